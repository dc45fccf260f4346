# SPDX-License-Identifier: MIT
"""
Fits the simulator's profiles to the papers' microbenchmarks.

A value in data/nics/NAME.nic whose note begins with "fit from X:" is free, and X is what one would
have said of it before seeing the lines. Free values are moved, by damped least squares on
logarithms, until the simulator comes nearest to the C lines of data/paper.tsv that the profile can
run: those of layer fabric with op "=". Nothing else is looked at. A line weighs by its tolerance; a
small force pulls each value towards its X, so that a value that no line holds goes there.

Then every line is left out in turn: the others are fitted again (one linear step from the best
point) and the line is run with the result. A value that only the left-out line holds falls back to
its X, and the error then says how good that was.
"""

import math
import os
import re
import tempfile

from .lists import DATA, read_fits
from .metrics import Evaluator
from .runner import CannotRun

STEP = 0.05  # of a value, for the slopes
PULL = 1.5  # tolerances that it costs a value to be e times off its X
REACH = 0.35  # the most that a value moves in one round (logarithm) …
LOO_REACH = 2  # … or when a line is left out
MOVED = 0.15  # that --check allows
FREE = re.compile(r"^(\w+)(\s+)([0-9.]+)(\s+)fit from ([0-9.]+):(.*)$")


def shown(value):
    """Three digits are enough; counts are whole numbers."""
    return f"{float(f'{value:.3g}'):.3f}".rstrip("0").rstrip(".")


class Fit:
    """One profile: its text, its free values by name, and the lines that they are fitted on."""

    def __init__(self, name, lines, runner_for):
        self.name, self.lines, self.runner_for = name, lines, runner_for
        self.path = os.path.join(DATA, "nics", name + ".nic")
        with open(self.path, encoding="utf-8") as f:
            self.text = f.read()
        matches = [m for m in map(FREE.match, self.text.splitlines()) if m]
        self.start = {m[1]: float(m[3]) for m in matches}
        self.prior = {m[1]: float(m[5]) for m in matches}
        self.names = list(self.start)
        self.used = [line for line in lines.values() if not line.reason and line.op == "=" and
                     (line.kind, line.layer, line.profile) == ("C", "fabric", name)]

    def text_with(self, values):
        def change(line):
            m = FREE.match(line)
            if not m:
                return line
            text = shown(values[m[1]])
            gap = m[4][len(text) - len(m[3]):] if len(text) > len(m[3]) else \
                " " * (len(m[3]) - len(text)) + m[4]
            return f"{m[1]}{m[2]}{text}{gap}fit from {m[5]}:{m[6]}"
        return "\n".join(map(change, self.text.splitlines())) + "\n"

    def simulate(self, values, lines):
        """What the lines give with these values."""
        verdicts = []
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, self.name + ".nic")
            with open(path, "w", encoding="utf-8") as f:
                f.write(self.text_with(values))
            runner = self.runner_for(self.name, path)
            evaluator = Evaluator(runner, self.lines)
            runner.evaluate([lambda line=line: evaluator.judge(line) for line in lines],
                            lambda _, verdict: verdicts.append(verdict))
        for line, verdict in zip(lines, verdicts):
            if verdict.status != "measured":
                raise CannotRun(f"{line.id} failed: {verdict.reason}")
        return [verdict.simulated for verdict in verdicts]

    def misses(self, values):
        """How far off each line is, in tolerances."""
        return [math.log(max(simulated, 1e-9) / line.value) * 100 / line.tol_pct
                for line, simulated in zip(self.used, self.simulate(values, self.used))]

    def slopes(self, values, base):
        """How each line answers to each value: d(miss) / d(log value)."""
        columns = []
        for name in self.names:
            there = self.misses({**values, name: values[name] * (1 + STEP)})
            columns.append([(t - b) / math.log(1 + STEP) for t, b in zip(there, base)])
        return columns

    def away(self, values):
        """How far each value is from its X (logarithm)."""
        return [math.log(values[name] / self.prior[name]) for name in self.names]

    def moved(self, values, change):
        return {**values, **{name: float(shown(values[name] * math.exp(x)))
                             for name, x in zip(self.names, change)}}

    def fit(self, rounds):
        """The best values, and the error of each line that was left out, in per cent."""
        values = dict(self.start)
        if not self.used or not self.names:
            return values, []
        base, away = self.misses(values), self.away(values)
        print(f"{self.name}: {len(self.names)} free values, {len(self.used)} lines, worst miss "
              f"{max(map(abs, base)):.2f} tolerances", flush=True)
        columns = self.slopes(values, base)
        for number in range(rounds):
            change = step(columns, base, away)
            for _ in range(3):
                trial = self.moved(values, change)
                there, trial_away = self.misses(trial), self.away(trial)
                gain = cost(base, away) - cost(there, trial_away)
                if gain > 0:
                    break
                change = [x / 3 for x in change]
            else:
                break
            values, base, away = trial, there, trial_away
            print(f"  round {number + 1}: worst miss {max(map(abs, base)):.2f} tolerances",
                  flush=True)
            columns = self.slopes(values, base)
            if gain < 0.02:
                break
        return values, self.leave_one_out(values, columns, base, away)

    def leave_one_out(self, values, columns, base, away):
        errors = []
        for k, line in enumerate(self.used):
            change = step(columns, base, away, skip=k, reach=LOO_REACH)
            simulated = self.simulate(self.moved(values, change), [line])[0]
            errors.append(abs(100 * (simulated / line.value - 1)))
            print(f"  without {line.id}: it comes out {errors[-1]:.1f} % off", flush=True)
        return errors


def solve(matrix, vector):
    """Gauss with pivoting; small and well-conditioned thanks to the pull."""
    n = len(vector)
    rows = [row[:] + [vector[i]] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, n):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i])]
    out = [0.0] * n
    for i in reversed(range(n)):
        out[i] = (rows[i][n] - sum(rows[i][k] * out[k] for k in range(i + 1, n))) / rows[i][i]
    return out


def step(columns, base, away, skip=None, reach=REACH):
    """The change of the logarithms that makes the squares of all lines but one the least."""
    n = len(columns)
    use = [k for k in range(len(base)) if k != skip]
    matrix = [[sum(columns[a][k] * columns[b][k] for k in use) + (PULL * PULL if a == b else 0)
               for b in range(n)] for a in range(n)]
    vector = [-sum(columns[a][k] * base[k] for k in use) - PULL * PULL * away[a] for a in range(n)]
    return [max(-reach, min(reach, x)) for x in solve(matrix, vector)]


def cost(base, away):
    return sum(x * x for x in base) + sum(PULL * PULL * x * x for x in away)


def run(lines, runner_for, profiles, rounds, check):
    """runner_for(profile, path): a runner that simulates the file in place of the profile."""
    rows = {row["profile"]: "\t".join(row.values()) + "\n" for row in read_fits()}
    far = False
    for name in profiles or ["cx3", "cx3-fdr", "connect-ib"]:
        fit = Fit(name, lines, runner_for)
        values, left = fit.fit(rounds)
        for key in fit.names:
            print(f"  {key:20} {shown(fit.start[key]):>9} -> {shown(values[key])}")
            far = far or abs(math.log(values[key] / fit.start[key])) > MOVED
        left.sort()
        if left:
            rows[name] = (f"{name}\t{len(fit.names)}\t{len(fit.used)}\t{left[len(left) // 2]:.1f}\t"
                          f"{left[-1]:.1f}\n")
        if not check:
            with open(fit.path, "w", encoding="utf-8") as f:
                f.write(fit.text_with(values))
    if check:
        return 1 if far else 0
    with open(os.path.join(DATA, "fit.tsv"), "w", encoding="utf-8") as f:
        f.write("# Written by gannet-papers fit: how well the profiles foretell a line they were "
                "not fitted on.\nprofile\tparameters\tlines\tloo_median_pct\tloo_max_pct\n")
        f.writelines(rows[name] for name in sorted(rows))
    return 0
