# SPDX-License-Identifier: MIT
"""
The value of a figure: metrics of single runs, and the sweeps, ratios, orders and peaks that
data/paper.tsv makes of them; and whether the value agrees with the paper.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from .lists import ListError, config_text, parse_changes, parse_config, vary_of
from .runner import CannotRun, NotWritten, Run

READ6 = parse_config("op=READ;topology=mm;nodes=6;threads=all;qps_per_thread=6;window=24;size=32;"
                     "signaled=yes")
CONTROL_KEYS = ("vary", "among", "over", "of")  # about the figure, not about the run
BEST_THREADS = ("1", "2", "4", "8", "16")  # that server_threads=best tries
SMALLER_IS_BETTER = {"latency_us_mean", "p15_us", "p50_us", "p99_us", "interrupts", "ios"}
PROTOCOLS = ("READ", "SEND/SEND", "SEND/WRITE", "WRITE/SEND", "WRITE/WRITE")
PEAK_PART = 0.95  # of the largest value of a sweep: still the peak
EQUAL_PART = 0.05
EPSILON = 1e-9  # 5 % is 5 %, whatever a division makes of it


class Point(NamedTuple):
    """Where a figure is taken. config has the control keys too."""
    layer: str
    profile: str
    preset: str
    config: dict

    def but(self, **changes):
        return self._replace(config={**self.config, **changes})

    def without(self, *keys):
        return self._replace(config={k: v for k, v in self.config.items() if k not in keys})


def point_of(item):
    """Of a line or a chart."""
    return Point(item.layer, item.profile, item.preset, item.config)


# ---- groups: names that stand for several protocols ----

def matches(group, protocol):
    """WRITE/x and x/SEND: the request or the response."""
    request, stroke, response = protocol.partition("/")
    return bool(stroke) and group in (request + "/x", "x/" + response)


def is_group(key, name):
    return key == "protocol" and (name == "rest" or name.startswith("x/") or name.endswith("/x"))


def members(name, named):
    """Protocols of a group; rest: those that the list named has not."""
    if name != "rest":
        return [p for p in PROTOCOLS if matches(name, p)]
    items = named.split(",")
    return [p for p in PROTOCOLS if not any(i == p or matches(i, p) for i in items)]


# ---- lines ----

@dataclass
class Verdict:
    """What came of a line. status: measured, waiting (for a layer), no, or failed."""
    status: str
    simulated: float = math.nan  # infinite: there is no such point
    values: list = field(default_factory=list)  # of an order
    error_pct: float = math.nan  # of "="
    hit: bool = False
    reason: str = ""


class Evaluator:
    """Figures from the runs of a runner. preset: takes the place of any that a point has."""

    def __init__(self, runner, lines, preset=None):
        self.runner, self.lines, self.preset = runner, lines, preset

    # ---- a metric at a point ----

    def at(self, point, metric):
        if metric in ("ratio", "delta"):
            return self.compare(point, metric)
        if metric.startswith("gain_"):
            return self.gain(point, metric[5:])
        if metric.endswith("_at_latency"):
            return self.at_latency(point, metric.removesuffix("_at_latency"))
        if metric.startswith("drop_"):
            values = self.sweep(point, metric[5:])
            if values[-1] == 0:
                raise CannotRun(f"{metric[5:]} is 0 at the end of the sweep")
            return values[0] / values[-1]
        # A layer may have a maximum of its own, over time: only a sweep or a ratio makes one here.
        if metric[-4:] in ("_max", "_min") and (
                "vary" in point.config or metric.startswith("ratio_")):
            values = self.sweep(point, metric[:-4])
            return max(values) if metric.endswith("_max") else min(values)
        if point.config.get("server_threads") == "best":
            best = min if metric in SMALLER_IS_BETTER else max
            return best(self.run(point.but(server_threads=n), metric) for n in BEST_THREADS)
        return self.run(point, metric)

    def run(self, point, metric):
        preset = self.preset if self.preset and point.preset != "-" else point.preset
        config = config_text(point.without(*CONTROL_KEYS).config)
        return self.runner.value(Run(point.layer, point.profile, preset, config), metric)

    def sweep(self, point, metric):
        """The values along vary=, or of a ratio for each member of the group in over=."""
        key, _, group = point.config.get("over", "").partition(":")
        if metric == "ratio" and is_group(key, group):
            changes = [{"over": f"{key}:{m}"} for m in members(group, point.config.get(key, ""))]
            if not changes:
                raise CannotRun(f"over={key}:{group} has no members")
        else:
            key, xs = vary_of(point.config)
            changes = [{key: x} for x in xs]
            point = point.without("vary")
        return [self.at(point.but(**change), metric) for change in changes]

    def at_latency(self, point, metric):
        """The metric at a mean latency of limit_us, on straight lines between points of a sweep."""
        limit = float(point.config.get("limit_us", 0))
        key, xs = vary_of(point.config)
        point = point.without("vary", "limit_us")
        last = None
        for x in xs:
            here = point.but(**{key: x})
            us, value = self.at(here, "latency_us_mean"), self.at(here, metric)
            if last and us != last[0] and (last[0] - limit) * (us - limit) <= 0:
                return last[1] + (value - last[1]) * (limit - last[0]) / (us - last[0])
            last = us, value
        raise CannotRun(f"no point of the sweep reaches limit_us={limit:g}")

    # ---- comparisons ----

    def other_side(self, point):
        """Point, metric (None: the same) and scale of what over= names."""
        over = point.config.get("over")
        if not over:
            raise CannotRun("a comparison without over=")
        if ":" in over:
            return point.without("over").but(**parse_changes(over)), None, 1
        if over in ("READ6", "READ6x2"):
            scale = 1 if over == "READ6" else 0.5
            return Point("fabric", point.profile, "-", READ6), "mops_per_node", scale
        return point_of(self.lines[over]).without("over"), None, 1

    def compare(self, point, metric):
        of = point.config.get("of")
        if not of:
            raise CannotRun("a comparison without of=")
        other, other_of, scale = self.other_side(point)
        here = self.at(point.without("over"), of)
        there = self.at(other, other_of or of) * scale
        if metric == "delta":
            return here - there
        if there == 0:
            raise CannotRun(f"{other_of or of} is 0 at the other side of the ratio")
        return here / there

    def gain(self, point, metric):
        """At twice the setting of among= divided by that at the setting."""
        key = point.config.get("among")
        if not point.config.get(key, "").isdigit():
            raise CannotRun(f"gain_{metric} needs a number as setting of among=")
        once = self.at(point, metric)
        twice = self.at(point.but(**{key: str(2 * int(point.config[key]))}), metric)
        if once == 0:
            raise CannotRun(f"{metric} is 0 at {key}={point.config[key]}")
        return twice / once

    # ---- whole lines ----

    def judge(self, line):
        if line.reason:
            return Verdict("no", reason=line.reason)
        verdict = Verdict("measured")
        try:
            self.measure(line, verdict)
        except NotWritten:
            return Verdict("waiting")
        except (CannotRun, ListError) as why:
            return Verdict("failed", reason=str(why))
        if line.op == "=":
            verdict.error_pct = (100 * (verdict.simulated / line.value - 1) if line.value else
                                 0.0 if verdict.simulated == 0 else math.inf)
            verdict.hit = abs(verdict.error_pct) <= line.tol_pct + EPSILON
        elif line.op == "<=":
            verdict.hit = verdict.simulated <= line.value
        elif line.op == ">=":
            verdict.hit = verdict.simulated >= line.value
        return verdict

    def measure(self, line, verdict):
        point = point_of(line)
        if line.op == "order":
            verdict.hit = self.order(line, point, verdict.values)
        elif line.op == "peak":
            verdict.simulated, verdict.hit = self.peak(line, point)
        elif line.metric == "equal_from":
            verdict.simulated = self.equal_from(point)
        else:
            verdict.simulated = self.at(point, line.metric)

    def order(self, line, point, values):
        """A group in the configuration itself: the order must hold for each of its members."""
        for key, name in point.config.items():
            if is_group(key, name):
                points = [point.but(**{key: m}) for m in members(name, "")]
                return all([self.order_at(line, p, values) for p in points])
        return self.order_at(line, point, values)

    def order_at(self, line, point, values):
        """Every value of an item must be worse than every value of the item before."""
        among, of = line.config["among"], line.config.get("of")
        smaller = "over" not in line.config and of in SMALLER_IS_BETTER
        sign = 1 if smaller else -1  # times value: the larger, the worse
        right, worst = True, -math.inf
        for item in line.text.split(","):
            settings = members(item, line.text) if is_group(among, item) else [item]
            if not settings:
                raise CannotRun(f"the group {among}={item} is empty")
            found = [self.order_value(line, point, among, s) for s in settings]
            values += found
            if min(sign * v for v in found) <= worst:
                right = False
            worst = max(sign * v for v in found)
        return right

    def order_value(self, line, point, among, setting):
        metric = line.config.get("of")
        if among == "line" and setting != "self":
            other = self.lines[setting]
            return self.at(point_of(other), metric or other.metric)
        if not metric:
            raise CannotRun("an order without of=")
        if among == "profile":
            point = point._replace(profile=setting)
        elif among != "line":
            point = point.but(**{among: setting})
        return self.at(point, "ratio" if "over" in point.config else metric)

    def peak(self, line, point):
        """The x of the largest value, and whether the value at the paper's x is as good as that."""
        of = line.config.get("of")
        if not of:
            raise CannotRun("a peak without of=")
        key, xs = vary_of(point.config)
        point = point.without("vary")
        found = {float(x): self.at(point.but(**{key: x}), of) for x in xs}
        if line.value not in found:
            raise CannotRun(f"the sweep does not visit {line.text}")
        at = max(found, key=found.get)
        return at, found[line.value] >= PEAK_PART * found[at]

    def equal_from(self, point):
        """Smallest x from which on two figures stay within 5 %; infinite when they never do."""
        key, xs = vary_of(point.config)
        point = point.without("vary")
        begin = math.inf
        for x in xs:
            ratio = self.at(point.but(**{key: x}), "ratio")
            if abs(ratio - 1) > EQUAL_PART + EPSILON:
                begin = math.inf
            elif math.isinf(begin):
                begin = float(x)
        return begin
