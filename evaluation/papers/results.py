# SPDX-License-Identifier: MIT
"""
Results as JSON, one object a line: verdicts of lines, points of charts, and what gannet bench msg
measured. Files of them are read strictly, because one may be half written, or something else.
"""

import json
import math
import sys
from dataclasses import dataclass, field

from .metrics import Verdict

# How a key of a configuration is said: {} is the value; None leaves it out; KEY=VALUE comes first.
WORDS = {
    "op": "{}", "dir=in": "in-bound", "dir=out": "out-bound", "topology=m1": "many to one",
    "topology=1m": "one to many", "topology=mm": "all to all", "protocol": "{}", "transport": "{}",
    "size": "{} B", "value": "{} B", "key": None, "signaled=yes": None, "inline=yes": None,
    "resp_threads": None, "qps_per_resp_thread": None, "client_machines": "client machines {}",
    "clients_per_machine": "x {}", "server_threads": "server threads {}", "nodes": "{} nodes",
    "threads": "threads {}", "of": None}


def describe(line, config=None):
    """What a line is about, in a few words."""
    config = line.config if config is None else config
    words = [f"{line.profile} {line.metric}" + (f" ({config['of']})" if "of" in config else "")]
    for key, value in config.items():
        word = WORDS.get(f"{key}={value}", WORDS.get(key, f"{key}={{}}"))
        if word:
            words.append(word.format(value))
    return ", ".join(words)


def number(value):
    return value if value is not None and math.isfinite(value) else None


def simulated(verdict):
    return verdict.values or number(verdict.simulated)


def verdict_json(line, verdict, gannet=None, **facts):
    """gannet: the verdict of the same line with the library's defaults."""
    measured = verdict.status == "measured"
    beside = {"gannet_simulated": simulated(gannet)} if gannet else {}
    reason = {"reason": verdict.reason} if verdict.reason else {}
    return json.dumps({
        "id": line.id, "kind": line.kind, "layer": line.layer, "profile": line.profile,
        "preset": line.preset, "what": describe(line), "unit": line.unit, "op": line.op,
        "paper": line.text.split(",") if line.op == "order" else line.value,
        "simulated": simulated(verdict), **beside, "error_pct": number(verdict.error_pct),
        "tol_pct": line.tol_pct, "hit": verdict.hit if measured else None,
        "status": verdict.status, **reason, "source": line.source, **facts}, ensure_ascii=False)


def value_text(verdict):
    """A figure by itself, for people."""
    if verdict.status != "measured":
        return "-"
    if verdict.values:
        return ",".join(f"{v:.4g}" for v in verdict.values)
    return f"{verdict.simulated:.4g}" if math.isfinite(verdict.simulated) else "never"


# ---- reading ----

class NoResult(Exception):
    """A line that a page has no place for: why."""


def need(fields, key, kind=(int, float)):
    value = fields.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise NoResult(f"{key} is missing, or is not what it should be")
    return value


@dataclass
class Results:
    """All that files of results say. measured: objects of gannet bench msg."""
    lines: dict
    charts: dict
    verdicts: dict = field(default_factory=dict)  # by line id
    points: dict = field(default_factory=dict)  # chart id: {(series, x): value}
    measured: list = field(default_factory=list)
    facts: dict = field(default_factory=lambda: {k: {} for k in
                                                 ("version", "profile", "seed", "effort")})
    usable: int = 0

    def add(self, fields):
        if not isinstance(fields, dict):
            raise NoResult("not a JSON object")
        if isinstance(fields.get("figure"), str):
            self.add_point(fields)
        elif isinstance(fields.get("id"), str) and "paper" in fields:
            self.add_verdict(fields)
        elif "bench" in fields:
            self.add_measured(fields)
        elif "score" not in fields:  # which is counted again from the lines
            raise NoResult("no result that a report has a place for")
        self.usable += 1
        for key, seen in self.facts.items():
            if fields.get(key) not in (None, "-") and ("bench" not in fields or key == "version"):
                seen[str(fields[key])] = True

    def add_point(self, fields):
        chart = self.charts.get(fields["figure"])
        if not chart:
            raise NoResult("a figure that is not in the list")
        if fields.get("series") not in chart.series or fields.get("x") not in chart.x:
            raise NoResult("a point that the figure does not have")
        if "y" not in fields:
            raise NoResult("a point without y")
        if fields["y"] is not None:
            place = fields["series"], fields["x"]
            self.points.setdefault(chart.id, {})[place] = float(need(fields, "y"))

    def add_verdict(self, fields):
        if fields["id"] not in self.lines:
            raise NoResult("an id that is not in the list of figures")
        status, value = fields.get("status"), fields.get("simulated")
        if status not in ("measured", "waiting", "no", "failed") or "hit" not in fields:
            raise NoResult("not a whole result of gannet-papers calibrate or reproduce")
        verdict = Verdict(status, hit=fields["hit"] is True, reason=str(fields.get("reason", "")))
        if isinstance(value, list):
            verdict.values = [float(v) for v in value]
        elif value is not None:
            verdict.simulated = float(need(fields, "simulated"))
        elif status == "measured":
            verdict.simulated = math.inf  # there is no such x
        if fields.get("error_pct") is not None:
            verdict.error_pct = float(need(fields, "error_pct"))
        self.verdicts[fields["id"]] = verdict

    def add_measured(self, fields):
        if fields["bench"] != "msg":
            raise NoResult("a benchmark of which there is no figure")
        for key in ("provider", "protocol", "topology"):
            need(fields, key, str)
        for key in ("nodes", "threads", "pending", "value", "gbps", "gbps_per_node"):
            need(fields, key)
        self.measured.append(fields)

    def read(self, path):
        """Lines that are not understood are named on stderr and left out."""
        with open(0 if path == "-" else path, "rb") as f:
            for n, line in enumerate(f, 1):
                try:
                    if line.strip():
                        self.add(json.loads(line))
                except (NoResult, ValueError, TypeError) as why:
                    if isinstance(why, ValueError):
                        why = "not a whole JSON object"
                    print(f"gannet-papers: {path} line {n}: {why}; left out", file=sys.stderr)
