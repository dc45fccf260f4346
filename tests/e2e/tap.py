# SPDX-License-Identifier: MIT
"""Tests as methods of a class, in a folder of their own, printed as TAP."""

import os
import subprocess
import sys
import tempfile
import traceback

SOURCE = os.environ.get("GANNET_SOURCE") or os.path.join(os.path.dirname(__file__), "../..")
PAPERS = os.path.join(SOURCE, "evaluation/gannet-papers")


class Wrong(Exception):
    """A test that fails: says why."""


def expect(so, why):
    if not so:
        raise Wrong(why)


class Tests:
    """Methods that begin with test_ are run in their order."""

    def __init__(self, gannet, tmp):
        self.gannet, self.tmp = gannet, tmp

    def path(self, name):
        return os.path.join(self.tmp, name)

    def papers(self, status, command, *args, **options):
        """Runs gannet-papers, which must end with that status."""
        done = subprocess.run([PAPERS, command, "--gannet", self.gannet, *args], timeout=240,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              **options)
        expect(done.returncode == status, f"exit status {done.returncode} instead of {status}: "
               f"{command} {args}: {done.stderr[-1000:]}")
        return done

    def one_line(self, done, words):
        expect(done.stderr.count("\n") == 1 and words in done.stderr, done.stderr)


def run(kind):
    failed, names = 0, [name for name in vars(kind) if name.startswith("test_")]
    print(f"1..{len(names)}")
    with tempfile.TemporaryDirectory(prefix="gn-") as tmp:
        tests = kind(os.path.abspath(sys.argv[1]), tmp)
        for n, name in enumerate(names, 1):
            try:
                getattr(tests, name)()
                print(f"ok {n} - {name[5:].replace('_', ' ')}")
            except Exception as e:  # pylint: disable=broad-except
                failed = 1
                why = str(e) if isinstance(e, Wrong) else traceback.format_exc()
                print(f"not ok {n} - {name[5:].replace('_', ' ')}")
                print("# " + why[:2000].replace("\n", "\n# "))
            sys.stdout.flush()
    return failed
