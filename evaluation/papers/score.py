# SPDX-License-Identifier: MIT
"""How well the figures of a layer were met, and whether that is well enough."""

import json
import math
from dataclasses import dataclass

WITHIN_PCT = 80  # of "=" lines are within their tolerance …
WORST_PCT = 25.0  # … and the others no further away than this
RIGHT_PCT = 90  # of all other lines are right


@dataclass
class Score:
    equal: int = 0  # "=" lines
    within: int = 0
    worst_pct: float = 0.0  # the largest of their errors, without its sign
    others: int = 0
    right: int = 0
    no: int = 0  # these two count for nothing
    waiting: int = 0

    def add(self, line, verdict):
        """A line that failed is missed by as much as there is."""
        failed = verdict.status == "failed"
        if verdict.status == "no":
            self.no += 1
        elif verdict.status == "waiting":
            self.waiting += 1
        elif line.op == "=":
            self.equal += 1
            self.within += verdict.hit
            error = math.inf if failed else abs(verdict.error_pct)
            self.worst_pct = max(self.worst_pct, error)
        else:
            self.others += 1
            self.right += verdict.hit

    def parts(self):
        """(what, limit, reached)"""
        return [
            (f'{self.within} of {self.equal} "=" lines within their tolerance', f"{WITHIN_PCT} %",
             self.within * 100 >= self.equal * WITHIN_PCT),
            (f"largest error of them {self.worst_pct:.1f} %", f"{WORST_PCT:g} %",
             self.worst_pct <= WORST_PCT),
            (f"{self.right} of {self.others} other lines right", f"{RIGHT_PCT} %",
             self.right * 100 >= self.others * RIGHT_PCT)]

    @property
    def reached(self):
        return all(reached for _, _, reached in self.parts())

    def text(self, layer):
        for what, limit, reached in self.parts():
            yield f"# {layer}, simulated: {what} ({limit}: {'reached' if reached else 'missed'})"
        yield f"# {layer}: {self.no} lines cannot be run, {self.waiting} wait for a later layer"

    def json(self, layer):
        worst = self.worst_pct if math.isfinite(self.worst_pct) else None
        return json.dumps({"score": layer, **vars(self), "worst_pct": worst,
                           "reached": self.reached})


def scores(lines, verdicts, layers):
    """{layer: Score} of the layers that have a line."""
    found = {}
    for layer in layers:
        for line, verdict in zip(lines, verdicts):
            if line.layer == layer:
                found.setdefault(layer, Score()).add(line, verdict)
    return found
