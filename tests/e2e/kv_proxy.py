# SPDX-License-Identifier: MIT
"""
What the tests of gannet kv proxy share: TAP, processes that end with the test, and connections that
speak memcached's protocol.
"""

import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 30  # only a bug takes this long


def expect(got, want):
    """What is wrong, or None."""
    return None if got == want else f"{got!r} instead of {want!r}"


def rss_bytes(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        words = f.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def scheduled(pid, field):
    """Seconds, of all its threads; 0 where the kernel does not count."""
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[field])
    except OSError:
        pass  # it has ended, or this kernel does not count
    return total / 1e9


def ran_seconds(pid):
    """As cpu_seconds(), but not in steps of 10 ms."""
    return scheduled(pid, 0)


def queued_seconds(pid):
    """For how long its threads were ready to run and had no processor, so far."""
    return scheduled(pid, 1)


class Tap:
    def __init__(self):
        self.n = 0
        self.failed = False

    def ok(self, name, wrong=None):
        """wrong: what is not as it should be, as a text; None or empty when all is well."""
        self.n += 1
        print(f"{'not ok' if wrong else 'ok'} {self.n} - {name}")
        for line in str(wrong).split("\n") if wrong else []:
            print("# " + line[:2000])
        sys.stdout.flush()
        self.failed |= bool(wrong)

    def skip(self, name, why):
        self.n += 1
        print(f"ok {self.n} - {name} # SKIP {why}", flush=True)

    def run(self, name, test, *args):
        """A test returns what is wrong, or raises."""
        try:
            wrong = test(*args)
        except Exception as e:  # a test that cannot go on has failed; the others are run
            wrong = f"{type(e).__name__}: {e}"
        self.ok(name, wrong)

    def end(self):
        print(f"1..{self.n}")
        return 1 if self.failed else 0


class Process:
    """A program in the background, whose output is in a file."""

    def __init__(self, folder, name, args, **options):
        self.log = os.path.join(folder, name + ".log")
        with open(self.log, "ab") as out:
            self.p = subprocess.Popen(args, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                      **options)

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def wait_for(self, pattern, seconds=PATIENCE_S):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = re.search(pattern, self.text(), re.M)
            if found:
                return found
            if self.p.poll() is not None and not re.search(pattern, self.text(), re.M):
                break
            time.sleep(0.02)
        raise RuntimeError(f"no '{pattern}' in: {self.text()[-1000:]}")

    def stop(self):
        """SIGSTOP, and until it works: one thread takes it, when it runs, and then stops the others."""
        self.p.send_signal(signal.SIGSTOP)
        tasks, end = f"/proc/{self.p.pid}/task", time.monotonic() + PATIENCE_S
        while True:
            states = set()
            for task in os.listdir(tasks):
                with open(f"{tasks}/{task}/stat", encoding="ascii") as f:
                    states.add(f.read().rsplit(")", 1)[1].split()[0])
            if states == {"T"}:
                return
            if time.monotonic() > end:
                raise RuntimeError(f"it is not stopped: {states}")
            time.sleep(0.005)

    def end(self, signo=signal.SIGTERM):
        if self.p.poll() is None:
            self.p.send_signal(signo)
        try:
            return self.p.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
            return "it did not end"


class World:
    """A folder of its own, and what runs in it."""

    def __init__(self, gannet):
        self.gannet = gannet
        self.folder = tempfile.mkdtemp(prefix="gannet-px-")
        self.env = dict(os.environ, XDG_RUNTIME_DIR=os.path.join(self.folder, "run"))
        os.mkdir(self.env["XDG_RUNTIME_DIR"], 0o700)
        self.processes = []
        self.addr = f"shm:px-{os.path.basename(self.folder)}"

    def start(self, name, args):
        process = Process(self.folder, name, args, env=self.env)
        self.processes.append(process)
        return process

    def serve(self, *options):
        server = self.start("serve", [self.gannet, "kv", "serve", "--listen", self.addr,
                                      "--memory", "64M", *options])
        server.wait_for("^serving at ")
        return server

    def proxy(self, *options, name="proxy", wait=True):
        proxy = self.start(name, [self.gannet, "kv", "proxy", "--server", self.addr, *options])
        if wait:
            proxy.wait_for("^memcached at ")
        return proxy

    def path(self, name):
        return os.path.join(self.folder, name)

    def end(self):
        for process in reversed(self.processes):
            process.end()
        shutil.rmtree(self.folder, ignore_errors=True)


class Connection:
    def __init__(self, where, timeout=PATIENCE_S):
        if isinstance(where, str):
            self.s = socket.socket(socket.AF_UNIX)
        else:
            self.s = socket.socket(socket.AF_INET)
        self.s.settimeout(timeout)
        self.s.connect(where)
        self.buffer = b""

    def send(self, data):
        self.s.sendall(data)

    def close(self):
        self.s.close()

    def more(self):
        """False: it is closed."""
        data = self.s.recv(1 << 18)
        self.buffer += data
        return bool(data)

    def line(self):
        while b"\n" not in self.buffer:
            if not self.more():
                raise EOFError(f"closed after {self.buffer!r}")
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.rstrip(b"\r")

    def block(self, n):
        while len(self.buffer) < n:
            if not self.more():
                raise EOFError(f"closed after {len(self.buffer)} of {n} bytes")
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def ask(self, command):
        """One line for one line."""
        self.send(command + b"\r\n")
        return self.line()

    def get(self, key):
        self.send(b"get " + key + b"\r\n")
        line = self.line()
        if line == b"END":
            return None
        if not line.startswith(b"VALUE "):
            raise RuntimeError(line.decode("latin1"))
        value = self.block(int(line.split()[3]) + 2)[:-2]
        if self.line() != b"END":
            raise RuntimeError("a value without an END")
        return value

    def set(self, key, value):
        self.send(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
        return self.line()

    def all(self):
        """Everything until the other side closes it."""
        while self.more():
            pass
        data, self.buffer = self.buffer, b""
        return data

    def until(self, done, seconds):
        """Everything until done() is content with it, or nothing came for so long."""
        while not done(self.buffer):
            # No timeout of the socket: somebody else may be sending.
            if not select.select([self.s], [], [], seconds)[0]:
                break
            try:
                if not self.more():
                    self.buffer += b"<closed>"
                    break
            except ConnectionError:
                self.buffer += b"<closed>"
                break
        data, self.buffer = self.buffer, b""
        return data


def ask_stats(c, which=b""):
    c.send(b"stats" + which + b"\r\n")
    found = {}
    while True:
        line = c.line()
        if line == b"END":
            return found
        words = line.decode().split(" ", 2)
        if words[0] != "STAT" or len(words) < 3:
            raise RuntimeError(line)
        found[words[1]] = words[2]
