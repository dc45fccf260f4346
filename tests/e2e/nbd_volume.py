# SPDX-License-Identifier: MIT
"""Donors and an nbdkit with Gannet's plugin, as processes of a test."""

import json
import os
import signal
import subprocess
import time

from tap import Wrong, expect

MIB = 1 << 20
SLAB = 4 * MIB
WAIT_S = 60


def wait_for(what, why, seconds=WAIT_S):
    """Until what() is true."""
    end = time.monotonic() + seconds
    while True:
        value = what()
        if value:
            return value
        expect(time.monotonic() < end, f"not after {seconds} s: {why}")
        time.sleep(0.02)


class Process:
    """A program whose output goes to a file. It does not outlive the test."""

    def __init__(self, args, log, **options):
        self.log = log
        with open(log, "wb") as to:
            self.child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *args],
                                          stdin=subprocess.DEVNULL, stdout=to,
                                          stderr=to, **options)

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def running(self):
        return self.child.poll() is None

    def until(self, words):
        def said():
            expect(self.running() or words in self.text(), f"ended: {self.text()[-1500:]}")
            return words in self.text()
        wait_for(said, f"{words}: {self.text()[-1500:]}")

    def end(self, signo=signal.SIGTERM, seconds=WAIT_S):
        """Its exit status."""
        if self.running():
            self.child.send_signal(signo)
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired as e:
            self.child.kill()
            self.child.wait()
            raise Wrong(f"not ended after {seconds} s: {self.text()[-1500:]}") from e


class Donor:
    """gannet donor serve; may be killed and started again at the same address."""

    def __init__(self, gannet, tmp, name, memory=64 * MIB, slab=SLAB, options=()):
        self.gannet, self.tmp, self.name = gannet, tmp, name
        self.addr = f"shm:{name}"
        self.words = ["--memory", str(memory), "--slab", str(slab), *options]
        self.process = None
        self.start()

    def start(self):
        self.process = Process([self.gannet, "donor", "serve", "--listen", self.addr, *self.words],
                               os.path.join(self.tmp, f"donor-{self.name}"))
        self.process.until("lending ")

    def kill(self):
        self.process.end(signal.SIGKILL)

    def stats(self):
        out = subprocess.run([self.gannet, "donor", "stats", "--server", self.addr], check=True,
                             timeout=WAIT_S, capture_output=True, text=True).stdout
        return {name: int(value) for name, value in
                (line.split("\t") for line in out.splitlines())}

    def granted(self):
        return self.stats()["granted"]

    def held(self, owner):
        """How many slabs that owner has."""
        out = subprocess.run([self.gannet, "donor", "list", "--server", self.addr, "--owner", owner],
                             check=True, timeout=WAIT_S, capture_output=True, text=True).stdout
        return sum("\tslab " in line for line in out.splitlines())


class Volume:
    """nbdkit in the foreground, at a Unix socket. One at a time: a test that failed left its own."""

    last = None

    def __init__(self, plugin, tmp, donors, *words, size=32 * MIB, nbdkit=(), name="volume"):
        if Volume.last:
            Volume.last.process.end(signal.SIGKILL)
        Volume.last = self
        self.gannet, self.monitor = donors[0].gannet, f"shm:monitor-{name}"
        self.socket = os.path.join(tmp, f"{name}.sock")
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        self.uri = f"nbd+unix:///?socket={self.socket}"
        read_fd, write_fd = os.pipe()
        self.process = Process(
            ["nbdkit", "--foreground", "--exit-with-parent", *nbdkit, "--unix", self.socket, plugin,
             *(f"donor={d.addr}" for d in donors), f"size={size}", f"monitor={self.monitor}",
             f"ready-fd={write_fd}", *words], os.path.join(tmp, name), pass_fds=[write_fd])
        os.close(write_fd)
        ready = os.read(read_fd, 16)
        os.close(read_fd)
        if ready != b"ready\n":
            self.process.end()
            raise Wrong(f"nbdkit: {self.process.text()[-1500:]}")

    def status(self):
        """What gannet vol status prints."""
        return json.loads(subprocess.run(
            [self.gannet, "vol", "status", "--server", self.monitor, "--json"], check=True,
            timeout=WAIT_S, capture_output=True, text=True).stdout)

    def repaired(self):
        """Whether every extent has all its copies."""
        s = self.status()
        return s["with_copies"][s["copies"]] + s["unused"] == s["extents"]
