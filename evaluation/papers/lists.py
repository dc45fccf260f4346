# SPDX-License-Identifier: MIT
"""
The two lists of the papers' figures: data/paper.tsv (one number, bound, order or peak a line) and
data/figures.tsv (one whole chart a line). The head of each file explains its columns. A malformed
line is refused with its number and the name of the field.
"""

import contextlib
import math
import os
from dataclasses import dataclass, field

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data")
PAPERS = {
    "S003": "message passing evaluation", "S002": "RFP", "S000": "RF-RPC", "S004": "FaSST",
    "S001": "RDMAbox"}
OPERATORS = ("=", "<=", ">=", "order", "peak")
SCALES = ("linear", "log2", "bars")


class ListError(Exception):
    """What is wrong with a list, for people."""


def name_papers(text):
    """The lists number the papers; people read their names."""
    for number, name in PAPERS.items():
        text = text.replace(number, name)
    return text


# ---- configurations: key=value;key=value ----

def parse_pairs(text, between, after):
    """Pairs as a dict, in the order of the text."""
    pairs = {}
    for part in text.split(after):
        key, mid, value = part.partition(between)
        if not mid or not key or not value:
            raise ListError(f"'{part}' is not key{between}value")
        if key in pairs:
            raise ListError(f"{key} is there twice")
        pairs[key] = value
    return pairs


def parse_config(text):
    return {} if text == "-" else parse_pairs(text, "=", ";")


def parse_changes(text):
    """KEY:VALUE,KEY:VALUE, as over= writes them."""
    return parse_pairs(text, ":", ",")


def config_text(config):
    """Equal configurations have equal texts."""
    return ";".join(f"{key}={config[key]}" for key in sorted(config)) or "-"


def vary_of(config):
    """Key and values of vary=KEY:a,b,c."""
    if "vary" not in config:
        raise ListError("a sweep needs vary=")
    key, _, values = config["vary"].partition(":")
    if not key or not values:
        raise ListError(f"vary={config['vary']} is not KEY:a,b,c")
    return key, values.split(",")


def number_of(name, text):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ListError(f"{name}: '{text}' is not a number")
    return value


# ---- lines of any list ----

def rows(text, columns):
    """(line number, fields by name) of each line that is not a comment."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.startswith(("#", columns[0] + "\t")):
            continue
        fields = line.split("\t")
        with located(number):
            if len(fields) != len(columns):
                raise ListError(f"{len(fields)} fields instead of {len(columns)}")
            for name, value in zip(columns, fields):
                if not value:
                    raise ListError(f'{name}: is empty; "-" means none')
        yield number, dict(zip(columns, fields))


@contextlib.contextmanager
def located(where):
    """Puts the line number, or the field, before what is wrong."""
    try:
        yield
    except ListError as e:
        where = f"line {where}" if isinstance(where, int) else where
        raise ListError(f"{where}: {e}") from None


def read_text(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read()
    except (OSError, UnicodeDecodeError) as e:
        raise ListError(f"{path}: {getattr(e, 'strerror', None) or e}") from None


# ---- data/paper.tsv ----

LINE_COLUMNS = ("id", "kind", "layer", "profile", "preset", "config", "metric", "unit", "op",
                "value", "tol_pct", "run", "source", "note")


@dataclass
class Line:
    """One figure of a paper."""
    number: int
    id: str
    kind: str  # C: profiles are fitted on it; P: a prediction
    layer: str
    profile: str
    preset: str
    config: dict
    metric: str
    unit: str
    op: str
    text: str  # the value as it stands
    value: float  # NaN of an order
    tol_pct: float
    reason: str  # why it cannot be run; empty: it can
    source: str

    @property
    def experiment(self):
        """C4 of C4a."""
        return self.id.rstrip("abcdefghijklmnopqrstuvwxyz")


def parse_line(number, row):
    if row["kind"] not in ("C", "P"):
        raise ListError(f"kind: '{row['kind']}' is neither C nor P")
    with located("config"):
        config = parse_config(row["config"])
    if row["op"] not in OPERATORS:
        raise ListError(f"op: '{row['op']}' is not one of {' '.join(OPERATORS)}")
    value = math.nan if row["op"] == "order" else number_of("value", row["value"])
    tol_pct = number_of("tol_pct", row["tol_pct"])
    if tol_pct < 0:
        raise ListError(f"tol_pct: '{row['tol_pct']}' is negative")
    run = row["run"]
    if run != "yes" and not (run.startswith("no:") and run[3:]):
        raise ListError(f"run: '{run}' is neither yes nor no:REASON")
    return Line(number, row["id"], row["kind"], row["layer"], row["profile"], row["preset"], config,
                row["metric"], row["unit"], row["op"], row["value"], value, tol_pct,
                name_papers(run[3:]), name_papers(row["source"]))


def check_line(line, lines):
    """What a line says about itself and about others."""
    over, among = line.config.get("over"), line.config.get("among")
    if over and ":" in over:
        with located(f"config: over={over}"):
            parse_changes(over)
    elif over and over not in ("READ6", "READ6x2") and over not in lines:
        raise ListError(f"config: over={over} is neither a line nor KEY:VALUE")
    if "vary" in line.config:
        with located("config"):
            vary_of(line.config)
    elif line.op == "peak":
        raise ListError("config: a peak needs vary=")
    if line.op == "order" and not among:
        raise ListError("config: an order needs among=")
    if line.op == "order" and "," not in line.text:
        raise ListError(f"value: '{line.text}' is no list to put in order")
    if line.op == "order" and among == "line":
        for item in line.text.split(","):
            if item != "self" and item not in lines:
                raise ListError(f"value: there is no line '{item}'")


def parse_lines(text):
    """{id: Line} in the order of the list."""
    lines = {}
    for number, row in rows(text, LINE_COLUMNS):
        with located(number):
            line = parse_line(number, row)
            if line.id in lines:
                raise ListError(f"id: {line.id} is there twice")
            lines[line.id] = line
    for line in lines.values():
        if not line.reason:  # what cannot run may use words that nobody knows
            with located(line.number):
                check_line(line, lines)
    if not lines:
        raise ListError("no lines in it")
    return lines


def read_lines(path=None):
    path = path or os.path.join(DATA, "paper.tsv")
    with located(path):
        return parse_lines(read_text(path))


def read_fits():
    """data/fit.tsv: how well each profile foretells a line that it was not fitted on."""
    path = os.path.join(DATA, "fit.tsv")
    columns = ("profile", "parameters", "lines", "loo_median_pct", "loo_max_pct")
    with located(path):
        return [row for _, row in rows(read_text(path), columns)]


# ---- data/figures.tsv ----

CHART_COLUMNS = ("id", "title", "layer", "profile", "preset", "config", "metric", "y_label", "x",
                 "x_label", "scale", "series", "extra", "ideal", "points", "note")


@dataclass
class Chart:
    """One chart of a paper. x and series: {label: what it changes in the configuration}."""
    number: int
    id: str
    title: str
    layer: str
    profile: str
    preset: str
    config: dict
    metric: str
    y_label: str
    x: dict
    x_key: str  # empty where several keys change
    x_label: str
    scale: str
    series: dict
    extra: set  # labels of series that the paper does not have
    ideal: list  # one for each x; empty: none
    ideal_label: str
    note: str
    marks: list = field(default_factory=list)

    @property
    def paper(self):
        return self.id.rpartition("-")[0]

    @property
    def name(self):
        part = self.id.rpartition("-")[2]
        if part[0].isdigit():
            return f"Fig {part}"
        return f"Table {part[1:]}" if part[0] == "T" else "Text"


def parse_items(text):
    """KEY:a,b,c or LABEL=KEY:v,KEY:v|LABEL=…: {label: changes}, and KEY of the first form."""
    if text == "-":
        return {}, ""
    if "=" in text:
        items = {}
        for part in text.split("|"):
            label, mid, changes = part.partition("=")
            if not mid or not label:
                raise ListError(f"'{part}' is not LABEL=KEY:v,KEY:v")
            items[label] = parse_changes(changes)
        return items, ""
    key, mid, values = text.partition(":")
    if not mid or not key or not values:
        raise ListError(f"'{text}' is not KEY:a,b,c")
    return {value: {key: value} for value in values.split(",")}, key


def check_scale(scale, x, x_key):
    if scale not in SCALES:
        raise ListError(f"scale: '{scale}' is not linear, log2 or bars")
    if scale == "bars":
        return
    if not x_key or len(x) < 2:
        raise ListError("x: a curve needs KEY:a,b,…")
    before = 0
    for label in x:
        value = number_of("x", label)
        if value <= before:
            raise ListError(f"x: {label} does not come after {before:g}")
        before = value


def parse_ideal(text, n):
    """NUMBER|NUMBER…:what it is."""
    if text == "-":
        return [], ""
    numbers, mid, label = text.partition(":")
    if not mid or not label:
        raise ListError(f"ideal: '{text}' is not NUMBER:what it is")
    values = [number_of("ideal", number) for number in numbers.split("|")]
    if len(values) not in (1, n):
        raise ListError(f"ideal: {len(values)} numbers for {n} x")
    return values * (n if len(values) == 1 else 1), label


def parse_chart(number, row, lines):
    with located("config"):
        config = parse_config(row["config"])
    with located("x"):
        x, x_key = parse_items(row["x"])
    with located("series"):
        series, _ = parse_items(row["series"])
    with located("extra"):
        extra, _ = parse_items(row["extra"])
    check_scale(row["scale"], x, x_key)
    ideal, ideal_label = parse_ideal(row["ideal"], len(x))
    chart = Chart(number, row["id"], row["title"], row["layer"], row["profile"], row["preset"],
                  config, row["metric"], row["y_label"], x, x_key, row["x_label"], row["scale"],
                  {**series, **extra}, set(extra), ideal, ideal_label,
                  "" if row["note"] == "-" else row["note"])
    with located("points"):
        points = [] if row["points"] == "-" else row["points"].split(",")
        chart.marks = [parse_mark(chart, text, lines) for text in points]
    return chart


def parse_charts(text, lines):
    charts = {}
    for number, row in rows(text, CHART_COLUMNS):
        with located(number):
            chart = parse_chart(number, row, lines)
            if chart.id in charts:
                raise ListError(f"id: {chart.id} is there twice")
            charts[chart.id] = chart
    if not charts:
        raise ListError("no lines in it")
    return charts


def read_charts(lines):
    path = os.path.join(DATA, "figures.tsv")
    with located(path):
        return parse_charts(read_text(path), lines)


# ---- what of the papers belongs to a chart, and where it is drawn ----

@dataclass
class Mark:
    """A figure of the paper: at series and x; the highest of a series (x empty); or only listed."""
    line: Line  # None: a number of the text that is no line
    value: float
    series: str = ""
    x: str = ""

    @property
    def highest(self):
        return bool(self.series) and not self.x


def parse_mark(chart, text, lines):
    """ID, ID@SERIES@X or SERIES@X=NUMBER."""
    where, mid, number = text.partition("=")
    if mid:
        mark = Mark(None, number_of(where, number))
        place = where
    else:
        id, _, place = text.partition("@")
        if id not in lines:
            raise ListError(f"there is no line '{id}'")
        mark = Mark(lines[id], lines[id].value)
        if "@" not in text:
            mark.series, mark.x = find_place(chart, lines[id])
            return mark
    mark.series, _, mark.x = place.partition("@")
    if mark.series not in chart.series or mark.x not in chart.x:
        raise ListError(f"there is no '{mark.series}' at '{mark.x}'")
    return mark


def agrees(line, changes, profile):
    """Does the line have what an item of the chart changes?"""
    has = {"batch": "1", **line.config, "profile": line.profile}
    return line.profile == profile and all(
        has.get(key) == value for key, value in changes.items() if key != "metric")


def find_place(chart, line):
    """The series and x of which the line is the value; x is empty for the highest of a sweep."""
    same = all(line.config.get(key) == chart.config.get(key) for key in ("of", "over"))
    if line.op != "=" or not same:
        return "", ""
    sweeps = chart.scale != "bars" and line.config.get("vary", "").startswith(chart.x_key + ":")
    for series, changes in chart.series.items():
        profile = changes.get("profile", chart.profile)
        if sweeps and line.metric == chart.metric + "_max" and agrees(line, changes, profile):
            return series, ""
        for x, more in chart.x.items():
            at = more.get("profile", profile)
            if (agrees(line, changes, at) and agrees(line, more, at) and
                    line.metric == more.get("metric", chart.metric)):
                return series, x
    return "", ""
