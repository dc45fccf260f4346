# SPDX-License-Identifier: MIT
"""
One chart as SVG, by matplotlib: curves or groups of bars, the paper's points as hollow marks, names
at the ends of the curves. Colours can be told apart by the colour-blind, and marks without any
colour. The same plot gives the same bytes.
"""

import functools
import io
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator

SVG = "http://www.w3.org/2000/svg"
XLINK = "{http://www.w3.org/1999/xlink}href"
FONT = "'DejaVu Sans',Verdana,'Helvetica Neue',Arial,sans-serif"
# Okabe and Ito's, with greys that can be seen on black and on white.
COLOURS = ["#0072b2", "#d55e00", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#808080", "#a07040"]
MARKERS = ["o", "s", "D", "^", "v", "P", "X", "*"]
INK, SOFT, GRID, PAPER, RED = "#222222", "#666666", "#dddddd", "#ffffff", "#d0243c"
THEMED = {INK: "currentColor", SOFT: "var(--soft)", GRID: "var(--grid)", PAPER: "var(--page)"}

WIDTH, HEIGHT = 600, 320  # of the picture, and of what is above the x axis, in pixels
TEXT, SMALL = 13, 11.5
LINE = 17  # between names at the right
FAR_OFF = 1.6  # times the highest value: an ideal that would make a curve flat

matplotlib.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "gannet", "font.size": TEXT, "text.color": INK,
    "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.edgecolor": INK,
    "path.simplify": False})


@dataclass
class Series:
    label: str
    style: int  # colour and marker
    ys: list  # NaN: none
    extra: bool = False  # not the paper's: dashed


@dataclass
class PaperMark:
    series: int
    x: int  # -1: the highest of the series
    y: float
    id: str


@dataclass
class Plot:
    id: str
    title: str
    x_label: str
    y_label: str
    scale: str  # linear, log2 or bars
    xs: list  # texts
    series: list
    marks: list = field(default_factory=list)
    ideal: list = field(default_factory=list)
    ideal_label: str = ""
    word: str = "simulated"
    heading: str = ""
    bytes: bool = False  # 4096 is 4 Ki


def number_text(value):
    """Four digits at most, without an exponent where people would not write one."""
    if not math.isfinite(value):
        return "–"
    return f"{value:.0f}" if 100 <= abs(value) < 1e9 else f"{value:.3g}"


def x_text(plot, i):
    value = float(plot.xs[i]) if plot.bytes else 0
    return f"{value / 1024:g} Ki" if value >= 1024 and value % 1024 == 0 else plot.xs[i]


@functools.cache
def text_width(text, size=TEXT):
    return text_to_path.get_text_width_height_descent(text, FontProperties(size=size), False)[0]


def colour(style):
    return COLOURS[style % len(COLOURS)]


def finite(values):
    return [v for v in values if math.isfinite(v)]


# ---- the frame ----

class Drawing:
    """A figure under way, and the texts to show under the pointer: {group id: [text]}."""

    def __init__(self, plot):
        self.plot, self.tips = plot, {}
        self.bars = plot.scale == "bars"
        self.highest = max(finite([y for s in plot.series for y in s.ys]) +
                           [m.y for m in plot.marks] + [0])
        ideal = max(finite(plot.ideal), default=math.nan)
        self.ideal = self.bars and bool(plot.ideal) or ideal <= FAR_OFF * self.highest
        top = max(self.highest * (1.16 if self.bars else 1.04),
                  ideal * 1.02 if self.ideal and plot.ideal else 0) or 1
        self.ticks = MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(0, top)
        keys = self.keys()
        rows = fit_rows(keys, WIDTH - 20)
        names = fit_rows(self.bar_names(), WIDTH - 20) if self.bars else []
        heading = 36 if plot.heading else 10
        above = heading + 20 * len(names)
        below = 24 + 20 + 14 + 20 * len(rows)
        two_lines = 20 if self.bars and any("\n" in text for text in self.group_names()) else 0
        below += two_lines
        self.height = above + HEIGHT + below
        left = 34 + max(text_width(f"{t:g}") for t in self.ticks)
        right = 14 if self.bars else 26 + max(text_width(s.label, SMALL) for s in plot.series)
        self.figure = Figure(figsize=(WIDTH / 72, self.height / 72), dpi=72)
        FigureCanvasSVG(self.figure)
        self.figure.patch.set_visible(False)
        self.ax = self.figure.add_axes((left / WIDTH, below / self.height,
                                        (WIDTH - left - right) / WIDTH, HEIGHT / self.height))
        self.axes_frame(40 + two_lines)
        self.legend(rows, 20 * len(rows) + 2)
        self.legend(names, self.height - heading + 4)

    def axes_frame(self, x_label_below):
        ax, plot = self.ax, self.plot
        ax.patch.set_visible(False)
        for side in ("left", "right", "top"):
            ax.spines[side].set_visible(False)
        ax.set_ylim(0, self.ticks[-1])
        ax.set_yticks(self.ticks, [f"{t:.10g}" for t in self.ticks])
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", color=GRID, linewidth=1)
        ax.set_axisbelow(True)
        box = ax.bbox
        self.text(15, (box.y0 + box.y1) / 2, plot.y_label, TEXT, rotation=90)
        self.text((box.x0 + box.x1) / 2, box.y0 - x_label_below, plot.x_label, TEXT)
        if plot.heading:  # bold is wider than what is measured
            size = min(TEXT + 1, (WIDTH - 24) / (1.15 * text_width(plot.heading, 1)))
            self.text(12, self.height - 18, plot.heading, size, ha="left", weight="bold")

    def text(self, x, y, text, size, ha="center", color=INK, **more):
        """In pixels from the lower left corner."""
        self.figure.text(x / WIDTH, y / self.height, text, fontsize=size, ha=ha, color=color,
                         va="center" if more.get("rotation") else "baseline",
                         rotation_mode="anchor", **more)

    def legend(self, rows, top):
        """Rows of samples with texts, centred, from the top downwards."""
        for row, entries in enumerate(rows):
            width = sum(entry_width(text) for _, text in entries)
            x, y = (WIDTH - width) / 2, top - 20 * row - 11
            for handle, text in entries:
                if isinstance(handle, Patch):
                    handle.set_bounds(x + 8, y - 5, 16, 10)
                else:
                    handle.set_data([x + 2, x + 15, x + 28], [y] * 3)
                handle.set_transform(None)
                handle.set_figure(self.figure)
                self.figure.add_artist(handle)
                self.text(x + 34, y - 4, text, SMALL, ha="left")
                x += entry_width(text)

    def keys(self):
        """What the simulator, the papers and the library each look like."""
        plot, kinds = self.plot, []
        if self.bars:
            kinds.append((block(SOFT, 1), plot.word))
        else:
            kinds.append((Line2D([], [], color=SOFT, marker="o", markevery=[1], linewidth=2,
                                 markersize=6), plot.word))
        if any(m.x >= 0 for m in plot.marks):
            kinds.append((Line2D([], [], color=SOFT, linestyle="none", marker="o", markevery=[1],
                                 markerfacecolor=PAPER, markersize=9, markeredgewidth=1.8),
                          "the paper"))
        if any(m.x < 0 for m in plot.marks):
            kinds.append((Line2D([], [], color=SOFT, linestyle=":", marker="o", markevery=[1],
                                 markerfacecolor=PAPER, markersize=9, markeredgewidth=1.8),
                          "the paper’s highest"))
        if any(s.extra for s in plot.series):
            kinds.append((block(SOFT, 0.5) if self.bars else
                          Line2D([], [], color=SOFT, linestyle="--", linewidth=2),
                          "not in the paper"))
        if self.ideal and plot.ideal:
            kinds.append((Line2D([], [], color=RED, linestyle="--", linewidth=1.6),
                          plot.ideal_label))
        return kinds

    def bar_names(self):
        return [(block(colour(s.style), 0.5 if s.extra else 1), s.label) for s in self.plot.series]

    def group_names(self):
        """Names of groups of bars, broken where they are too long."""
        room = (WIDTH - 80) / len(self.plot.xs)
        return [text if text_width(text) < room else
                "\n".join(re.match(r"(.{%d,}?) (.*)|(.*)" % (len(text) // 3), text).groups(""))
                .strip("\n") for text in self.plot.xs]

    # ---- what is drawn in it ----

    def tip(self, group, series, x, y, word):
        label = self.plot.series[series].label
        at = f" at {x_text(self.plot, x)}" if x >= 0 else ""
        self.tips.setdefault(group, []).append(f"{label}{at}: {number_text(y)} ({word})")

    def marker(self, group, x, y, style, word, series, at):
        """A hollow mark of the paper, in pixels."""
        self.tip(group, series, at[0], at[1], word)
        self.figure.add_artist(Line2D(
            [x], [y], transform=None, color=colour(style), marker=MARKERS[style % len(MARKERS)],
            markersize=10, markerfacecolor=PAPER, markeredgewidth=1.8, gid=group, zorder=9))


def block(fill, alpha):
    return matplotlib.patches.Rectangle((0, 0), 1, 1, facecolor=fill, alpha=alpha)


def entry_width(text):
    return 34 + text_width(text, SMALL) + 14


def fit_rows(entries, room):
    """As many to a row as fit, the rows about equally long."""
    n = max(1, math.ceil(sum(entry_width(text) for _, text in entries) / room))
    while True:
        size = math.ceil(len(entries) / n) if entries else 1
        rows = [entries[i:i + size] for i in range(0, len(entries), size)]
        if n >= len(entries) or all(sum(entry_width(t) for _, t in row) <= room for row in rows):
            return rows
        n += 1


# ---- curves ----

def draw_curves(d):
    plot, ax = d.plot, d.ax
    xs = [float(x) for x in plot.xs]
    if plot.scale == "log2":
        ax.set_xscale("log", base=2)
        edge = (xs[-1] / xs[0]) ** 0.03
        ax.set_xlim(xs[0] / edge, xs[-1] * edge)
    else:
        edge = (xs[-1] - xs[0]) * 0.03
        ax.set_xlim(xs[0] - edge, xs[-1] + edge)
    pixels = [ax.transData.transform((x, 0))[0] for x in xs]
    ax.minorticks_off()
    ax.set_xticks(xs, [x_text(plot, i) if shown else ""
                       for i, shown in enumerate(fitting_ticks(plot, pixels))])
    if d.ideal and plot.ideal:
        ax.axhline(plot.ideal[0], color=RED, linestyle="--", linewidth=1.6)
    # The first lies above the others, whose marks are larger, so that a hidden curve shows; what is
    # dashed hides little and lies above all.
    for s in sorted(range(len(plot.series)), key=lambda s: (plot.series[s].extra, -s)):
        series = plot.series[s]
        group = f"{plot.id}-s{s}"
        for i, y in enumerate(series.ys):
            if math.isfinite(y):
                d.tip(group, s, i, y, plot.word)
        ax.plot(xs, series.ys, color=colour(series.style), linewidth=2,
                linestyle="--" if series.extra else "-",
                marker=MARKERS[series.style % len(MARKERS)], markersize=6 if series.extra else 6 + 1.2 * s, markeredgewidth=0, gid=group)
    name_curves(d)
    draw_paper_points(d, pixels)


def fitting_ticks(plot, pixels):
    """Which x have the room for their number; always the last."""
    half = [text_width(x_text(plot, i)) / 2 + 3 for i in range(len(pixels))]
    taken, shown = -math.inf, []
    for i, x in enumerate(pixels):
        last = i + 1 == len(pixels)
        fits = last or (x - half[i] >= taken and x + half[i] <= pixels[-1] - half[-1])
        taken = x + half[i] if fits else taken
        shown.append(fits)
    return shown


def name_curves(d):
    """Names at the right, each as near to the end of its curve as the others let it."""
    ends = []
    for series in d.plot.series:
        at = [(i, y) for i, y in enumerate(series.ys) if math.isfinite(y)]
        if at:
            x, y = d.ax.transData.transform((float(d.plot.xs[at[-1][0]]), at[-1][1]))
            ends.append([y, x, y, series])
    ends.sort(key=lambda end: end[0])
    low, high = d.ax.bbox.y0, d.ax.bbox.y1
    for i, end in enumerate(ends):  # up from the lowest, then down from the top
        end[0] = max(end[0], low + LINE * i, ends[i - 1][0] + LINE if i else low)
    for i in reversed(range(len(ends))):
        limit = ends[i + 1][0] - LINE if i + 1 < len(ends) else high
        ends[i][0] = min(ends[i][0], limit)
    right = d.ax.bbox.x1
    for y, x, end, series in ends:
        d.figure.add_artist(Line2D([x + 5, right + 6, right + 14], [end, y, y], transform=None,
                                   color=colour(series.style), linewidth=0.8))
        d.text(right + 18, y - 4, series.label, SMALL, ha="left")


def draw_paper_points(d, pixels):
    """Marks that would hide each other stand side by side."""
    placed = []
    for n, mark in enumerate(d.plot.marks):
        x = pixels[mark.x] if mark.x >= 0 else d.ax.bbox.x1 - 6
        y = d.ax.transData.transform((1, mark.y))[1]
        placed.append((x, y))
    for n, mark in enumerate(d.plot.marks):
        x, y = placed[n]
        near = [k for k, (a, b) in enumerate(placed) if abs(a - x) < 14 and abs(b - y) < 9 and
                (d.plot.marks[k].x < 0) == (mark.x < 0)]
        first = min(x - 7 * (len(near) - 1), d.ax.bbox.x1 - 7 - 14 * (len(near) - 1))
        at = max(first, d.ax.bbox.x0 + 8) + 14 * near.index(n)
        style = d.plot.series[mark.series].style
        if mark.x < 0:
            d.ax.axhline(mark.y, color=colour(style), linestyle=":", linewidth=1.6)
        word = ("the paper’s highest" if mark.x < 0 else "the paper") + (
            f", {mark.id}" if mark.id else "")
        d.marker(f"{d.plot.id}-p{n}", at, y, style, word, mark.series, (mark.x, mark.y))


# ---- bars ----

def draw_bars(d):
    plot, ax = d.plot, d.ax
    n, groups = len(plot.series), len(plot.xs)
    width = min(0.86 / n, 56 * groups / ax.bbox.width)
    ax.set_xlim(-0.5, groups - 0.5)
    ax.set_xticks(range(groups), d.group_names(), linespacing=1.5)
    ax.tick_params(axis="x", length=0)
    for x, ideal in enumerate(plot.ideal):
        if math.isfinite(ideal):
            ax.plot([x - 0.47, x + 0.47], [ideal] * 2, color=RED, linestyle="--", linewidth=1.6)
    for s, series in enumerate(plot.series):
        for x, y in enumerate(series.ys):
            middle = x + width * (s + 0.5 - n / 2)
            mark = next((m for m in plot.marks if (m.series, m.x) == (s, x)), None)
            draw_bar(d, s, x, y, middle, width, mark)


def draw_bar(d, s, x, y, middle, width, mark):
    series, pixel = d.plot.series[s], d.ax.transData.transform
    room = width * d.ax.bbox.width / len(d.plot.xs)
    centre = pixel((middle, 0))[0]
    if math.isfinite(y):
        group = f"{d.plot.id}-b{s}-{x}"
        d.tip(group, s, x, y, d.plot.word)
        d.ax.bar([middle], [y], width * 0.92, color=colour(series.style), gid=group,
                 alpha=0.5 if series.extra else 1)
        text, turned = number_text(y), room < 30
        needs = text_width(text, SMALL) if turned else SMALL
        bottom = pixel((0, y))[1] + 4
        if mark and pixel((0, mark.y))[1] - 9 < bottom + needs and \
                pixel((0, mark.y))[1] + 9 > bottom:
            bottom = pixel((0, mark.y))[1] + 10
        d.figure.text((centre + (4 if turned else 0)) / WIDTH, bottom / d.height, text,
                      fontsize=SMALL, rotation=90 if turned else 0, rotation_mode="anchor",
                      ha="left" if turned else "center", va="baseline")
    if mark:
        at = pixel((0, mark.y))[1]
        d.figure.add_artist(Line2D([centre - room / 2, centre + room / 2], [at] * 2, transform=None,
                                   color=INK, linewidth=1.6))
        word = "the paper" + (f", {mark.id}" if mark.id else "")
        d.marker(f"{d.plot.id}-p{s}-{x}", centre, at, series.style, word, s, (x, mark.y))


# ---- SVG ----

def draw(plot, themed):
    """The SVG's text. themed: in the page's colours, which may be dark; else on white."""
    drawing = Drawing(plot)
    (draw_bars if drawing.bars else draw_curves)(drawing)
    out = io.StringIO()
    drawing.figure.savefig(out, format="svg", metadata={
        "Date": None, "Creator": None, "Format": None, "Type": None})
    root = ET.fromstring(out.getvalue())
    tidy(root, plot, drawing.tips)
    name_picture(root, plot, drawing.height)
    if not themed:
        root.insert(2, ET.Element(f"{{{SVG}}}rect", {
            "width": str(WIDTH), "height": f"{drawing.height:g}", "fill": PAPER}))
    ET.register_namespace("", SVG)
    text = ET.tostring(root, encoding="unicode")
    for ink, variable in THEMED.items() if themed else ():
        text = text.replace(ink, variable)
    return text + "\n"


def tidy(root, plot, tips):
    """Leaves nothing that another picture on the page could clash with, and adds the tips."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith("}clipPath") or child.tag.endswith("}style"):
                parent.remove(child)
    used = {e.get(XLINK)[1:] for e in root.iter() if XLINK in e.attrib}
    for e in root.iter():
        id = e.get("id")
        if id in tips:
            add_tips(e, tips[id])
        if id is not None and id not in used:
            del e.attrib["id"]
        elif id is not None:
            e.set("id", f"{plot.id}-{id}")
        if XLINK in e.attrib:
            e.set("href", f"#{plot.id}-{e.attrib.pop(XLINK)[1:]}")
        e.attrib.pop("clip-path", None)
        if e.tag.endswith("}text"):
            e.set("style", re.sub(r"font: (\w+ )?([0-9.]+)px [^;]*",
                                  r"font: \1\2px " + FONT, e.get("style", "")))
        e.text = e.text if e.text and e.text.strip() else None
        e.tail = "\n"
        if "d" in e.attrib:
            e.set("d", re.sub(r"\d+\.\d+", lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip("."),
                              " ".join(e.get("d").split())))


def add_tips(group, texts):
    """To the marks of a curve, one by one, or to a bar or mark as a whole."""
    uses = [e for e in group.iter() if e.tag.endswith("}use")]
    for element, text in zip(uses if len(uses) == len(texts) else [group], texts):
        tip = ET.Element(f"{{{SVG}}}title")
        tip.text = text
        element.insert(0, tip)


def name_picture(root, plot, height):
    """What it shows, for those who cannot see it."""
    root.attrib.update({
        "width": str(WIDTH), "height": f"{height:g}", "viewBox": f"0 0 {WIDTH} {height:g}",
        "role": "img", "aria-labelledby": f"{plot.id}-t {plot.id}-d", "font-family": FONT,
        "stroke-linejoin": "round"})
    parts = [f"{plot.y_label} by {plot.x_label}, {plot.word}."]
    for series in plot.series:
        values = [f"{number_text(y)} at {plot.xs[i]}" for i, y in enumerate(series.ys)
                  if math.isfinite(y)]
        parts.append(f"{series.label}: {', '.join(values)}.")
    for tag, text in (("desc", " ".join(parts)), ("title", plot.title)):
        e = ET.Element(f"{{{SVG}}}{tag}", {"id": f"{plot.id}-{tag[0]}"})
        e.text = text
        root.insert(0, e)
