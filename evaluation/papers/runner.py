# SPDX-License-Identifier: MIT
"""
Runs of the simulator: each is a process of its own, each distinct one runs once, and what it
measured is appended to a file, so that an interrupted evaluation goes on where it stopped.
"""

import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from . import bench
from .lists import parse_config

LAYERS = ("fabric", "rpc", "kv", "msg", "io", "dgram")


class NotWritten(Exception):
    """Nothing runs this layer yet."""


class CannotRun(Exception):
    """A run that gave no result: why."""


class Missing(Exception):
    """A run that has not been made."""


class Run(NamedTuple):
    """What determines a run, besides the seed and the effort. config: as lists.config_text()."""
    layer: str
    profile: str
    preset: str
    config: str


def command_of(run, card, seed, effort):
    """The command that makes a run, without the name of the program."""
    how = ["--seed", str(seed), "--effort", repr(effort)]
    return bench.command_of(run, card, parse_config(run.config)) + how


def run_point(gannet, run, card, seed, effort, timeout_s=None, started=lambda process: None):
    """{metric: value} of one simulated run. The only place that calls the simulator."""
    if run.layer not in LAYERS:
        raise NotWritten(f"there is no layer {run.layer} yet")
    try:
        command = command_of(run, card, seed, effort)
    except (bench.BadConfig, ValueError) as why:
        raise CannotRun(why) from None
    process = subprocess.Popen([gannet, *command], stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    started(process)
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise CannotRun(f"a run had no result after {timeout_s:g} s: give it longer with "
                        "--timeout, or make runs shorter with --effort") from None
    if process.returncode:
        last = (err.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
        raise CannotRun(last.removeprefix("gannet: "))
    return bench.metrics_of(json.loads(out))


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:16]


class Cache:
    """
    Results of one build of the command, a line each. Lines are only appended; one that a crash cut
    short is skipped, and what comes after it begins a new line.
    """

    def __init__(self, folder, gannet):
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, f"runs-{digest(gannet)}.jsonl")
        self.known = {}
        self.file = open(self.path, "a+b")
        self.file.seek(0)
        text = self.file.read()
        for number, line in enumerate(text.split(b"\n"), 1):
            try:
                entry = json.loads(line) if line else None
                if entry:
                    self.known[tuple(entry["key"])] = dict(entry["metrics"])
            except (ValueError, TypeError, KeyError):
                print(f"gannet-papers: {self.path} line {number} is not whole: left out",
                      file=sys.stderr)
        self.torn = bool(text) and not text.endswith(b"\n")

    def add(self, key, metrics):
        entry = json.dumps({"key": key, "metrics": metrics}).encode() + b"\n"
        self.file.write(b"\n" + entry if self.torn else entry)
        self.file.flush()
        self.torn = False


class Runner:
    """
    Looks up what runs measured. evaluate() first asks each job which runs it needs, makes those,
    jobs processes at a time, and then lets the job compute its result from them.
    """

    def __init__(self, gannet, seed=1, effort=1.0, jobs=1, cards=None, cache=None,
                 timeout_s=None):
        self.gannet, self.seed, self.effort, self.jobs = gannet, seed, effort, jobs
        self.timeout_s = timeout_s  # for each run; None: any time
        self.cards = cards or {}  # profile: a profile or file that is simulated in its place
        self.cache = Cache(cache, gannet) if cache else None
        self.results = {}  # Run: {metric: value}, or why there are none
        self.needed = None  # while planning: the runs to make, in order
        self.processes = set()
        self.digests = {}  # of cards in files
        self.lock = threading.Lock()
        self.stopped = False
        self.made = self.reused = 0

    # ---- looking up ----

    def value(self, run, metric):
        """A metric of a run. While planning, runs that are not made yet have 1 everywhere."""
        if run.layer not in LAYERS:
            raise NotWritten(f"there is no layer {run.layer} yet")
        result = self.results.get(run)
        if result is None:
            if self.needed is None:
                raise Missing(run)
            self.needed[run] = True
            return 1.0
        if isinstance(result, CannotRun):
            raise result
        if result.get(metric) is None:
            raise CannotRun(f"metric '{metric}' is not among those of layer {run.layer}")
        return result[metric]

    def runs_for(self, job):
        """Runs that a job needs and that have not been made. More may show when these have."""
        self.needed = {}
        try:
            job()
        except (CannotRun, NotWritten):
            pass
        needed, self.needed = self.needed, None
        return list(needed)

    # ---- running ----

    def card(self, run):
        return self.cards.get(run.profile, run.profile)

    def key(self, run):
        """Of a card in a file the content counts; the others are part of the command."""
        card = self.card(run)
        if card not in self.digests:
            self.digests[card] = digest(card) if os.path.isfile(card) else card
        return (*run, self.digests[card], self.seed, self.effort)

    def make(self, run):
        """In a thread of the pool."""
        if self.stopped:
            return
        key = self.key(run)
        metrics = self.cache.known.get(key) if self.cache else None
        reused = metrics is not None
        if not reused:
            metrics = self.simulate(run)
        with self.lock:
            if self.stopped:
                return
            self.results[run] = metrics
            self.reused += reused
            self.made += not reused
            if self.cache and not reused and isinstance(metrics, dict):
                self.cache.add(key, metrics)

    def simulate(self, run):
        started = []

        def keep(process):
            started.append(process)
            with self.lock:
                self.processes.add(process)
                if self.stopped:
                    process.kill()
        try:
            return run_point(self.gannet, run, self.card(run), self.seed, self.effort,
                             self.timeout_s, keep)
        except CannotRun as why:
            return why
        finally:
            with self.lock:
                self.processes.difference_update(started)

    def stop(self):
        """Ends the runs under way; their results are not kept."""
        with self.lock:
            self.stopped = True
            for process in self.processes:
                process.kill()

    def evaluate(self, jobs, done, progress=None):
        """Calls done(i, jobs[i]()) in order, when the runs that it needs are made."""
        progress = progress or Progress()
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            futures = {}

            def submit(runs):
                for run in runs:
                    if run not in futures:
                        futures[run] = pool.submit(self.make, run)
                return [futures[run] for run in runs]
            try:
                waits = [submit(self.runs_for(job)) for job in jobs]
                for i, job in enumerate(jobs):
                    wait = waits[i]
                    while wait:
                        for future in wait:
                            progress.wait(future, futures)
                        wait = submit(self.runs_for(job))
                    progress.clear()
                    done(i, job())
            except BaseException:
                self.stop()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
            finally:
                progress.clear()


class Progress:
    """One line on a terminal: how many runs are made, and how long the others may take."""

    def __init__(self):
        self.shown = sys.stderr.isatty()
        self.began = time.monotonic()

    def wait(self, future, futures):
        while True:
            try:
                future.result(timeout=0.5 if self.shown else None)
                return
            except concurrent.futures.TimeoutError:
                self.show(futures)

    def show(self, futures):
        made = sum(future.done() for future in futures.values())
        spent = time.monotonic() - self.began
        left = f", about {spent * (len(futures) - made) / made:.0f} s left" if made else ""
        print(f"\r{made} of {len(futures)} runs{left}   ", end="", file=sys.stderr, flush=True)

    def clear(self):
        if self.shown:
            print(f"\r{'':50}\r", end="", file=sys.stderr, flush=True)
