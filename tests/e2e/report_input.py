# SPDX-License-Identifier: MIT
"""
Made-up results for every figure of data/figures.tsv, in the form that gannet-papers figures and gannet
bench msg write: what tests of gannet-papers report draw. The numbers mean nothing; they differ in size from
figure to figure, as real ones do.
"""

import json
import os
import sys

PROTOCOLS = ["READ", "WRITE/WRITE", "WRITE/SEND", "SEND/WRITE", "SEND/SEND", "WRITE_IMM", "UD"]


def items(text):
    """The names in a column x, series or extra."""
    if text == "-":
        return []
    if "=" in text:
        return [part.split("=")[0] for part in text.split("|")]
    return text.split(":", 1)[1].split(",")


def charts(source):
    with open(os.path.join(source, "data/figures.tsv"), encoding="utf-8") as f:
        lines = [line.rstrip("\n").split("\t") for line in f if line[0] != "#"]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def points(source):
    """One object for each point of each figure."""
    for c, chart in enumerate(charts(source)):
        names = items(chart["series"]) + items(chart["extra"])
        size = [0.4, 3, 47, 1234.5, 0.013][c % 5]
        for s, series in enumerate(names):
            for i, x in enumerate(items(chart["x"])):
                y = size * (1 + (7 * s + 3 * i + c) % 11) / 11
                yield {"figure": chart["id"], "series": series, "x": x, "y": y, "seed": 1,
                       "effort": 1, "profile": chart["profile"], "version": "0.0.0",
                       "status": "measured"}


def measurements():
    for topology in ("M:1", "1:M", "M:M"):
        for p, protocol in enumerate(PROTOCOLS):
            for pending in (1, 4, 16, 64, 256):
                yield {"bench": "msg", "provider": "shm", "profile": None, "protocol": protocol,
                       "topology": topology, "nodes": 1, "threads": 1, "pending": pending,
                       "request": 36, "value": 365, "seconds": 1, "mops": 1.5,
                       "gbps": 2 + p + pending / 40, "gbps_per_node": 1 + p, "p50_us": 1,
                       "p99_us": 2, "seed": 1, "version": "0.0.0",
                       "preset": "gannet",
                       "machine": {"cpu": "a <machine> & its \"name\"", "cores": 2}}


def write(path, objects):
    with open(path, "w", encoding="utf-8") as f:
        for o in objects:
            f.write(json.dumps(o) + "\n")


if __name__ == "__main__":
    write(sys.argv[2], points(sys.argv[1]))
    write(sys.argv[3], measurements())
