# SPDX-License-Identifier: MIT
"""
The page: scores, and for each chart of the papers the simulated curves beside the papers' points, a
table of lines with hits and misses, and what was measured here. One file that needs no network, no
script and no date: the same results give the same bytes.
"""

import html
import math
import re

from .charts import PaperMark, Plot, Series, draw, finite, number_text
from .lists import PAPERS, vary_of
from .metrics import Verdict
from .results import describe
from .runner import LAYERS
from .score import scores

MEASURED_PLOTS_MAX = 16  # of one chart
SECTIONS = {
    "messages": "Message passing evaluation: An Evaluation of RDMA-based Message Passing Protocols",
    "rfp": "RFP and Jakiro, a store whose clients fetch",
    "rf-rpc": "RF-RPC, calls whose clients fetch (TPDS 2018)",
    "fasst": "FaSST, datagrams for transactions (slides and repositories)",
    "rdmabox": "RDMAbox"}
TOPOLOGIES = {"m1": "M:1", "1m": "1:M", "mm": "M:M"}
SIGNS = {"=": "", "<=": "≤ ", ">=": "≥ ", "order": "best first: ", "peak": "peak at "}
STYLE = """
:root{color-scheme:light dark;--page:#fff;--ink:#222;--soft:#666;--grid:#ddd;--link:#005a8c;
--hit:#00694d;--miss:#a33b00}
@media(prefers-color-scheme:dark){:root{--page:#16181b;--ink:#e6e6e6;--soft:#a2a6ab;--grid:#3a3f45;
--link:#7cc0ee;--hit:#4fc79c;--miss:#ff9257}}
body{font:16px/1.5 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;color:var(--ink);
background:var(--page);margin:0 auto;padding:1rem 1.25rem 3rem;max-width:78rem}
h1{font-size:1.9rem;line-height:1.2;margin:.6rem 0 .4rem}
h2{font-size:1.35rem;margin:2.6rem 0 .5rem;padding-top:.6rem;border-top:2px solid}
h3{font-size:1.1rem;margin:2.2rem 0 .3rem}
h3 span,.note,dt,small,.no{color:var(--soft)}h3 span{font-weight:400}
p{margin:.4rem 0;max-width:46rem}a,summary{color:var(--link)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:1rem 0}
dd{margin:0;overflow-wrap:anywhere}
nav ul{list-style:none;padding:0;margin:.2rem 0 .8rem;columns:2 22rem;column-gap:2rem}
nav li{break-inside:avoid;padding:.1rem 0}nav h3{margin:.8rem 0 0;font-size:1rem}
.plots{display:flex;flex-wrap:wrap;gap:.5rem 1.5rem;margin:.6rem 0}
figure{margin:0;flex:1 1 30rem;min-width:0;max-width:37.5rem}.tables{flex:1 1 34rem;min-width:0}
svg{display:block;width:100%;height:auto;color:var(--ink)}svg text{fill:currentColor}
.wide{overflow-x:auto;margin:.6rem 0}
table{border-collapse:collapse;font-size:.86rem;line-height:1.35}
.lines{width:100%}.lines td{overflow-wrap:anywhere}.lines td:nth-child(1){white-space:nowrap}
.lines td:nth-child(2){min-width:9.5rem}.lines td:nth-child(6){min-width:3.6rem}
.lines td:nth-child(7){min-width:5.5rem}.o{min-width:6rem}
th{text-align:left;font-weight:600;border-bottom:1.5px solid;white-space:nowrap}
th,td{padding:.22rem .7rem .22rem 0;vertical-align:top}td{border-bottom:1px solid var(--grid)}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.hit{color:var(--hit)}.miss{color:var(--miss);font-weight:600}
details{margin:.3rem 0}summary{cursor:pointer;font-size:.9rem}
@media(max-width:40rem){body{padding:.5rem .6rem 2rem}h1{font-size:1.5rem}
dl{grid-template-columns:1fr;gap:0}dt{margin-top:.4rem}}
@media print{body{max-width:none;font-size:11pt}.plots{display:block}h2,h3,.note{break-after:avoid}
figure{max-width:12cm;break-inside:avoid}tr{break-inside:avoid}details{display:none}
a{color:inherit;text-decoration:none}}
"""
ABOUT = """<p><strong>Curves and bars are simulated</strong>: the library’s own code on clusters in
virtual time, with network cards fitted to published microbenchmarks. Hollow symbols are what the
papers say in words and tables; each is drawn in every chart that has its configuration. Where
something was measured, it says so, and on what.</p>
"""
SCORE_NOTE = """<p class="note">How many of the papers’ figures the simulator meets. Of those with a
number 80 % are to be within their tolerance (5 or 10 %) and none off by more than 25 %; of bounds,
orders and peaks 90 % are to be right.</p>
"""


def escape(text):
    """Text for HTML and XML; what must not be in either is replaced."""
    return html.escape(re.sub(r"[^\t\n -~\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]",
                              "\ufffd", str(text)))


def table(heads, rows, kind=""):
    """heads: (text, is a number). rows: cells as HTML, with their <td>."""
    head = "".join(f'<th{" class=n" if n else ""}>{text}</th>' for text, n in heads)
    head = head.replace("class=n", 'class="n"')
    body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
    return (f'<div class="wide"><table{kind}>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}'
            "</tbody></table></div>\n")


def cell(text, kind=""):
    return f'<td class="{kind}">{text}</td>' if kind else f"<td>{text}</td>"


# ---- plots ----

def plot_of(results, chart):
    points = results.points.get(chart.id, {})
    series, xs = list(chart.series), list(chart.x)
    curves = [Series(label, i, [points.get((label, x), math.nan) for x in xs], label in chart.extra)
              for i, label in enumerate(series)]
    marks = [PaperMark(series.index(m.series), xs.index(m.x) if m.x else -1, m.value,
                       m.line.id if m.line else "") for m in chart.marks if m.series]
    return Plot(chart.id, chart.title, chart.x_label, chart.y_label, chart.scale, xs, curves, marks,
                chart.ideal, chart.ideal_label, bytes=chart.x_key in ("value", "size"))


def belongs(chart, m):
    """What may differ from the chart is how large the cluster is: a laptop is small."""
    return (chart.scale != "bars" and chart.x_key in ("pending", "value", "threads", "nodes") and
            TOPOLOGIES.get(chart.config.get("topology")) == m["topology"] and
            all(key == chart.x_key or key not in chart.config or
                float(chart.config[key]) == m[key] for key in ("pending", "value")))


def place_of(chart, m):
    """What is the same for all points of one measured plot."""
    size = tuple(m[key] for key in ("nodes", "threads") if key != chart.x_key)
    return m["provider"], m.get("profile") or "", machine_of(m), m.get("preset") or "", size


def machine_of(m):
    machine = m.get("machine") if isinstance(m.get("machine"), dict) else {}
    parts = [machine.get("cpu"), f"{machine['cores']} cores" if "cores" in machine else None,
             f"Linux {machine['kernel']}" if "kernel" in machine else None]
    return ", ".join(str(p) for p in parts if p) if machine.get("cpu") else ""


def measured_plots(results, chart):
    """One for each place where at least two x were measured."""
    places = {}
    for m in results.measured:
        if belongs(chart, m):
            places.setdefault(place_of(chart, m), []).append(m)
    metric = "gbps_per_node" if chart.metric == "gbps_per_node" else "gbps"
    n = 0
    for ms in places.values():
        xs = sorted({m[chart.x_key] for m in ms})
        if len(xs) < 2:
            continue
        styles = {label: i for i, label in enumerate(chart.series)}
        labels = sorted({m["protocol"] for m in ms}, key=lambda p: (styles.get(p, 99), p))
        found = {(m["protocol"], m[chart.x_key]): float(m[metric]) for m in ms}
        yield Plot(
            f"{chart.id}-m{n}", f"{chart.title}: {heading_of(chart, ms[0])}", chart.x_label,
            chart.y_label, chart.scale, [f"{x:g}" for x in xs],
            [Series(label, styles.get(label, i), [found.get((label, x), math.nan) for x in xs])
             for i, label in enumerate(labels)],
            word="simulated" if ms[0]["provider"] == "sim" else "measured",
            heading=heading_of(chart, ms[0]), bytes=chart.x_key == "value")
        n += 1


def heading_of(chart, m):
    sim = m["provider"] == "sim"
    text = f"{'Simulated' if sim else 'Measured'} on {m.get('profile') or m['provider']}"
    if chart.x_key != "nodes":
        text += f", {m['nodes']:g} node{'' if m['nodes'] == 1 else 's'}"
    if chart.x_key != "threads":
        text += f", S = {m['threads']:g}"
    return text + (", the paper’s way" if m.get("preset") == "paper" else "")


def picture(results, id):
    """One chart as an SVG of its own."""
    chart = results.charts[id]
    plot = plot_of(results, chart)
    paper = SECTIONS[chart.paper].split(":")[0].split(",")[0].split(" and ")[0]
    plot.heading = f"{paper}, {chart.name}: {chart.title}"
    return draw(plot, themed=False)


# ---- tables ----

LINE_HEADS = (("Line", 0), ("Configuration", 0), ("Paper", 1), ("Simulated", 1), ("Error", 1),
              ("Verdict", 0), ("Source", 0))


def line_row(id, what, paper, verdict, source, judged=True):
    """paper: text, and whether it is a list."""
    if verdict.reason:
        what += f"<br><small>{escape(verdict.reason)}</small>"
    measured = verdict.status == "measured"
    values = [number_text(v) for v in verdict.values] or [
        number_text(verdict.simulated) if math.isfinite(verdict.simulated) else "never"]
    error = f"{verdict.error_pct:+.1f} %" if math.isfinite(verdict.error_pct) else "–"
    if measured and judged:
        word = cell("✓ hit", "hit") if verdict.hit else cell("✗ miss", "miss")
    else:
        word = cell({"no": "not run", "failed": "failed", "waiting": "no result"}.get(
            verdict.status, ""), "no")
    return [cell(escape(id)), cell(what), cell(escape(paper[0]), "o" if paper[1] else "n"),
            cell(", ".join(values) if measured else "–", "o" if len(values) > 3 else "n"),
            cell(error if measured else "–", "n"), word, cell(escape(source))]


def paper_text(line):
    unit = {"1": "", "-": "", "us": " µs"}.get(line.unit, " " + line.unit)
    text = SIGNS[line.op] + line.text.replace(",", ", ")
    return (text, True) if line.op == "order" else (text + unit, False)


def on_curve(plot, mark):
    """What the drawn curve has where the mark stands."""
    ys = plot.series[[s.label for s in plot.series].index(mark.series)].ys
    return ys[plot.xs.index(mark.x)] if mark.x else max(finite(ys), default=math.nan)


def mark_verdict(results, plot, mark):
    """What calibrate or reproduce found counts more than the curve."""
    if mark.line and mark.line.id in results.verdicts:
        return results.verdicts[mark.line.id]
    if mark.line and mark.line.reason:
        return Verdict("no", reason=mark.line.reason)
    y = on_curve(plot, mark) if mark.series else math.nan
    if not math.isfinite(y):
        return Verdict("waiting")
    error = 100 * (y / mark.value - 1)
    return Verdict("measured", y, [], error,
                   bool(mark.line) and abs(error) <= mark.line.tol_pct + 1e-9)


def what_of(chart, mark):
    """What a line says beyond the chart."""
    if mark.highest:
        return f"{mark.series}, its highest"
    if mark.series:
        return f"{mark.series} at {mark.x}"
    config = {k: v for k, v in mark.line.config.items() if chart.config.get(k) != v}
    if "vary" in config:
        config["vary"] = vary_of(config)[0]
    text = describe(mark.line, config)
    return text.removeprefix(chart.profile + " ")


def mark_rows(results, chart, plot):
    for mark in chart.marks:
        verdict = mark_verdict(results, plot, mark)
        if mark.line:
            source = re.sub("^(%s) " % "|".join(PAPERS.values()), "", mark.line.source)
            yield line_row(mark.line.id, escape(what_of(chart, mark)), paper_text(mark.line),
                           verdict, source)
        else:
            yield line_row("text", escape(what_of(chart, mark)), (number_text(mark.value), False),
                           verdict, chart.name, judged=False)


def values_table(plot):
    rows = [[cell(escape(s.label)), *(cell(number_text(y), "n") for y in s.ys)]
            for s in plot.series]
    heads = [(escape(plot.x_label), 0)] + [(escape(x), 1) for x in plot.xs]
    return ("<details><summary>The simulated values as numbers</summary>\n" + table(heads, rows) +
            "</details>\n")


# ---- parts of the page ----

def head(results, files):
    machines = dict.fromkeys(f"{m['provider']}: {machine_of(m) or 'not said'}"
                             for m in results.measured if m["provider"] != "sim")
    facts = {"Version": results.facts["version"], "Simulated cards": results.facts["profile"],
             "Seeds": results.facts["seed"], "Effort": results.facts["effort"],
             "Measured on": machines, "Results from": files}
    rows = "".join(f"<dt>{name}</dt><dd>{escape(', '.join(words))}</dd>\n"
                   for name, words in facts.items() if words)
    title = "Gannet: the papers’ figures, again"
    return ('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
            f"{ABOUT}<dl>\n{rows}</dl>\n")


def score_table(results):
    known = [results.lines[id] for id in results.verdicts]
    rows = []
    for layer, s in scores(known, results.verdicts.values(), LAYERS).items():
        if s.equal + s.others:
            rows.append([cell(layer), cell(f"{s.within} of {s.equal}", "n"),
                         cell(f"{s.worst_pct:.1f} %", "n"), cell(f"{s.right} of {s.others}", "n"),
                         cell(s.no, "n"), cell("reached", "hit") if s.reached else
                         cell("missed", "miss")])
    heads = (("Layer", 0), ("within tolerance", 1), ("largest error", 1), ("other lines right", 1),
             ("cannot be run", 1), ("verdict", 0))
    return f'<h2 id="score">Score</h2>\n{SCORE_NOTE}{table(heads, rows)}' if rows else ""


def section(results, chart, measured):
    plot = plot_of(results, chart)
    parts = [f'<section id="f-{chart.id}">\n<h3><span>{chart.name}</span> {escape(chart.title)}'
             "</h3>\n"]
    if chart.note:
        parts.append(f'<p class="note">{escape(chart.note)}</p>\n')
    parts.append('<div class="plots">\n')
    plots = ([plot] if chart.id in results.points else []) + measured[:MEASURED_PLOTS_MAX]
    parts += [f"<figure>\n{draw(p, themed=True)}</figure>\n" for p in plots]
    if len(measured) > MEASURED_PLOTS_MAX:
        parts.append('<p class="note">More was measured than is drawn here.</p>\n')
    rows = list(mark_rows(results, chart, plot))
    lines = table(LINE_HEADS, rows, ' class="lines"') if rows else ""
    return "".join(parts) + (f'<div class="tables">\n{lines}{values_table(plot)}</div>\n</div>\n'
                             "</section>\n")


def other_lines(results):
    """Lines of the list that no chart has."""
    charted = {m.line.id for chart in results.charts.values() for m in chart.marks if m.line}
    known = [(line, results.verdicts[line.id]) for line in results.lines.values()
             if line.id in results.verdicts and line.id not in charted]
    rows = [line_row(line.id, escape(describe(line)), paper_text(line), verdict, line.source)
            for line, verdict in known if verdict.status not in ("waiting", "no")]
    return ('<section id="other">\n<h2>Lines that belong to no chart</h2>\n' +
            table(LINE_HEADS, rows, ' class="lines"') + "</section>\n") if rows else ""


def write(results, files):
    """The page's text."""
    shown = {}
    for chart in results.charts.values():
        measured = list(measured_plots(results, chart))
        if chart.id in results.points or measured:
            shown.setdefault(chart.paper, []).append((chart, measured))
    other = other_lines(results)
    contents, body = [], []
    for paper, title in SECTIONS.items():
        if paper not in shown:
            continue
        contents.append(f"<h3>{escape(title)}</h3>\n<ul>\n" + "".join(
            f'<li><a href="#f-{c.id}">{c.name}</a> {escape(c.title)}</li>\n'
            for c, _ in shown[paper]) + "</ul>\n")
        body.append(f'<h2 id="{paper}">{escape(title)}</h2>\n' + "".join(
            section(results, chart, measured) for chart, measured in shown[paper]))
    if other:
        contents.append('<p><a href="#other">Lines that belong to no chart</a></p>\n')
    return "".join([head(results, files), score_table(results),
                    '<nav aria-label="Charts">\n<h2>Charts</h2>\n', *contents, "</nav>\n", *body,
                    other, "</body>\n</html>\n"])
