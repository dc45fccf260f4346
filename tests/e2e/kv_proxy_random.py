# SPDX-License-Identifier: MIT
"""
Sessions at random for what speaks memcached's protocols: a script is a list of steps, each of which is
bytes, or a function that returns a key, and what makes bytes of its version.
"""

import random
import re
import time

NOW = int(time.time())
LONG = b"k" * 250
TOO_LONG = b"k" * 251


def cas(key, make):
    return lambda: (key, make)


class Maker:
    """Scripts at random. Some keys are not used with some commands, where memcached's answer depends
    on what it still does with the last one, or is a mistake that nobody can want:

    - A number is changed where it lies, or it is new: it may become longer, or a client may still read
      the last one. So it is filled up with blanks or not; it was fetched, is stale, or is somebody's to
      renew, or not; and a time that ma sets is lost. Numbers have keys of their own.
    - Of numbers from 2^63 on memcached looks for a minus sign far behind their end.
    - A key that was stored as base64 comes back as base64, also if it was asked for otherwise, and the
      other way round; what is appended to it, or made by N, is not base64 any more.
    """

    numbers = [b"b", b"n1", b"n2"]
    encoded = [b"YmluMQ==", b"AAEC", b"//79fHw="]
    encoded_numbers = [b"bnVtYmVy", b"AAD/"]

    def __init__(self, seed):
        self.r = random.Random(seed)

    def one(self, *choices):
        return self.r.choice(choices)

    def maybe(self, n):
        return self.r.randrange(n) == 0

    # ---- words

    def key(self):
        return self.r.choice([self.long, self.number])()

    def long(self):
        if self.maybe(60):
            return self.one(LONG, TOO_LONG, b"tab\tkey", b"\x01\x7f\xff", b"k" * 600)
        return self.one(b"a", b"c", b"key-%d" % self.r.randrange(20), LONG[:240])

    def number(self):
        return self.r.choice(self.numbers)

    def small_number(self):
        return self.one(0, 1, 9, 10, 99, 12345, 2**50)

    def written(self):
        """A number as it may be stored, or almost one."""
        return self.one(b"", b"", b" ", b"\t", b"\n ", b"+", b"-", b"00") + b"%d" % self.small_number() + \
            self.one(b"", b"", b" ", b"\t", b"\r\n", b" x", b"x", b"\0y", b"\v-", b".5", b"   ")

    def value(self, key=b""):
        kind = self.r.randrange(20)
        if kind < 6 or (key in self.numbers and kind < 15):
            value = self.written() if self.maybe(2) else b"%d" % self.small_number()
            # see above: a minus sign makes it too large
            return value if not value.startswith(b"-") or value.startswith(b"-0") else b"-" + value
        if kind < 15:
            return b"x" + bytes(self.r.choices(b"abc \r\nxyz\0", k=self.r.randrange(40))) + b"x"
        # Data after a line that is none is a line, and when too long the end, also of earlier answers.
        if kind < 19 or key in self.numbers or len(key) > 250:
            return b"v" * self.r.randrange(2000 if len(key) > 250 else 6000)
        return b"w" * (self.r.randrange(200000) if self.r.randrange(8) else 1100000)

    def exptime(self):
        return self.one(0, 0, 0, 100, 1000, -1, NOW + 1000, NOW - 10, 2592000, 2592001)

    def noreply(self):
        return b" noreply" if self.maybe(6) else b""

    # ---- text

    def store(self):
        verb = self.one(*[b"set"] * 4, b"add", b"replace", b"append", b"prepend", b"cas")
        key = self.long() if verb in (b"append", b"prepend") else self.key()
        value = self.value(key)
        if verb == b"cas":
            verb, more = b"cas", self.one(b" 0", b" 1", b" 18446744073709551615")
        else:
            more = b""
        return b"%s %s %d %d %d%s%s\r\n%s\r\n" % (
            verb, key, self.one(0, 1, 2**32 - 1), self.exptime(), len(value), more,
            self.noreply(), value)

    def get(self):
        verb = self.one(b"get", b"get", b"gets", b"bget", b"gat %d" % self.exptime(),
                        b"gats %d" % self.exptime())
        many = self.r.randrange(1, 60 if self.maybe(4) else 6)
        # With a key that is too long, memcached takes answers back that others before it wait for.
        keys = [key for key in (self.key() for _ in range(many)) if len(key) <= 250] or [b"a"]
        line = b"%s %s" % (verb, b" ".join(keys))
        # More than 2 KiB without an end are a mistake, if they come without it; get and gets may.
        return (line if verb in (b"get", b"gets") else line[:2000]) + b"\r\n"

    def small(self):
        key = self.key()
        return self.one(
            b"delete %s%s" % (key, self.one(b"", b"", b" 0", b" noreply", b" 0 noreply", b" 1")),
            b"incr %s %d%s" % (self.number(), self.one(0, 1, 9, 2**40), self.noreply()),
            b"decr %s %d%s" % (self.number(), self.one(0, 1, 9, 1000), self.noreply()),
            b"%s %s %s" % (self.one(b"incr", b"decr"), self.number(),
                           self.one(b"x", b"-1", b"+2", b"1x", b"", b"18446744073709551616", b"007")),
            b"touch %s %d%s" % (key, self.exptime(), self.noreply()),
            b"touch %s x" % key, b"version", b"mn", b"verbosity %d%s" % (self.r.randrange(3), self.noreply()),
            # No delay: what memcached has flushed before is there again, until then.
            self.one(b"flush_all", b"flush_all 0", b"flush_all -1", b"flush_all x") + self.noreply(),
            b"nonsense %s" % key, b"%s %s" % (self.one(b"set", b"cas", b"mg", b"ma", b"gat"), b"x" * 251),
            self.one(b"", b" ", b"m", b"get", b"gat 0", b"incr", b"set a 0 0", b"stats reset",
                     b"stats nothing", b"stats detail", b"stats detail x", b"lru_crawler",
                     b"stats cachedump", b"stats cachedump x 0", b"stats cachedump 1 x",
                     b"stats cachedump 64 0", b"stats cachedump 60 0")) + b"\r\n"

    # ---- meta

    def flags(self, choices, many=3):
        some = [f for f in choices if self.maybe(many)]
        self.r.shuffle(some)
        if self.maybe(40):
            some.append(self.one(b"!", b"k k", b"Tx", b"Nx", b"Rx", b"Fx", b"Cx", b"Mxx", b"M", b"Jx", b"D-1",
                                 b"O" + b"o" * 31, b"P7", b"L8", b"\x80",
                                 b" ".join(b"abcdefghijklmnopqrstuvw"[n:n + 1] for n in range(23))))
        return b"".join(b" " + f for f in some)

    def opaque(self):
        return b"O%d" % self.r.randrange(999)

    def mg(self, key, more):
        return b"mg %s%s\r\n" % (key, self.flags(
            more + [b"T%d" % self.exptime(), self.opaque(), b"t", b"c", b"f", b"s", b"l", b"v", b"q", b"u"]))

    def mg_any(self):
        kind = self.r.randrange(10)
        if kind < 6:
            return self.mg(self.long(), [b"N%d" % self.one(0, 30, 300, -1), b"k", b"h",
                                         b"R%d" % self.one(0, 15, 500, -1)])
        if kind < 8:
            return self.mg(self.number(), [b"k"])
        if kind < 9:
            return self.mg(self.r.choice(self.encoded) + b" b", [b"k", b"h", b"R%d" % self.one(0, 500)])
        return self.mg(self.r.choice(self.encoded_numbers) + b" b", [])

    def ms(self):
        kind = self.r.randrange(10)
        key, modes, more = self.long(), b"SEAPRxe", []
        if kind > 7:
            key, modes = self.number(), b"SERx"
        elif kind > 6:
            key, modes, more = self.r.choice(self.encoded), b"SER", [b"b"]
        value = self.value(key)
        more += [b"I"] if key not in self.numbers and self.maybe(3) else []
        flags = self.flags([b"T%d" % self.exptime(), b"F%d" % self.r.randrange(99), b"k", b"q", b"c",
                            self.opaque(), b"M%c" % self.r.choice(modes), b"C%d" % self.one(0, 1, 2**62)])
        if b" a b c d " in flags:  # too many: see value()
            value = value[:2000]
        return b"ms %s %d%s%s\r\n%s\r\n" % (key, len(value), b"".join(b" " + m for m in more), flags, value)

    def md(self):
        key = self.r.choice([self.long, self.long, self.number, lambda: self.r.choice(self.encoded) + b" b",
                             lambda: self.r.choice(self.encoded_numbers) + b" b"])()
        stale = [b"I", b"T%d" % self.one(0, 30, -1)] if key not in self.numbers and b" b" not in key else []
        if self.maybe(40):  # mg and ma may have done something before they look at that
            return b"md %s O%s\r\n" % (key, b"o" * 40)
        return b"md %s%s\r\n" % (key, self.flags(stale + [b"k", b"q", self.opaque(), b"C%d" % self.one(0, 7)]))

    def ma(self):
        key = self.number() if self.r.randrange(5) else self.r.choice(self.encoded_numbers) + b" b"
        return b"ma %s%s\r\n" % (key, self.flags(
            [b"N%d" % self.one(0, 30, -1), b"J%d" % self.r.randrange(99), b"D%d" % self.r.randrange(99),
             b"M" + self.one(b"I", b"D", b"i", b"+", b"-"), b"t", b"c", b"k", self.opaque(), b"q", b"v",
             b"C%d" % self.one(0, 3)]))

    def meta(self):
        return self.r.choice([self.mg_any, self.mg_any, self.ms, self.ms, self.md, self.ma, self.ma,
                              lambda: b"me %s\r\n" % self.long()])()

    # ---- steps

    def spoilt(self):
        """A line of ours with mistakes in it; what is no digit stays none, for lengths' sake."""
        line = bytearray(b"ms")
        while line.startswith(b"ms"):  # would wait for data
            line = bytearray(self.r.choice([self.small, self.meta, self.get])().split(b"\r\n")[0])
        for _ in range(self.r.randrange(1, 4)):
            if not line:
                break
            at = self.r.randrange(len(line))
            what = self.r.randrange(3)
            if what == 0:
                del line[at]
            elif what == 1:
                line.insert(at, self.r.choice(b" xk-+!~\t"))
            elif not chr(line[at]).isdigit():
                line[at] = self.r.choice(b" xkvqO\x7f")
        line = bytes(line)
        # Data would have to follow after all; a delay is not meant; this memcached has no flag E yet; and of
        # several keys, it counts those before one that is too long as fetched (see get()).
        if re.match(rb" *(ms|set|add|replace|append|prepend|cas|flush_all) | *m[gda] .* E", line) or \
                (re.match(rb" *(b?get|gets|gats?) ", line) and max(map(len, line.split(b" "))) > 250):
            line = b"nonsense"
        return line + b"\r\n"

    def with_version(self):
        """Commands that name the version of what is there, or one before or behind it, or none."""
        key, off = self.key(), self.one(0, 0, 0, 1, -1, None)
        value = self.value(key)[:50]
        modes = [b"", b"", b" MS", b" MR", b" ME"] + ([b" MA", b" MP"] if key not in self.numbers else [])
        some = self.flags([b"I", b"T%d" % self.exptime(), b"c", b"k", b"F5", b"q"], 2) + self.r.choice(modes)
        if key in self.numbers and b" I" in some:
            some = some.replace(b" I", b"")
        touch = self.flags([b"c", b"v", b"t", b"D%d" % self.r.randrange(9)])
        stale = self.one(b"", b" I", b" I T30") if key not in self.numbers else b""
        number = self.number()
        at = (lambda v: 0) if off is None else (lambda v: max(v + off, 0))
        return self.one(
            cas(key, lambda v: b"cas %s 0 0 %d %d\r\n%s\r\n" % (key, len(value), at(v), value)),
            cas(key, lambda v: b"ms %s %d C%d%s\r\n%s\r\nmg %s v t\r\n" % (
                key, len(value), at(v), some, value, key)),
            cas(key, lambda v: b"md %s C%d%s\r\n" % (key, at(v), stale)),
            cas(number, lambda v: b"ma %s C%d%s\r\n" % (number, at(v), touch)))

    def with_time(self):
        """A number with a time that ma sets, which stays as long as it was."""
        return [b"set fixed 0 %d 5\r\n50000\r\n" % self.one(0, 100)] + \
            [b"ma fixed%s\r\n" % self.flags([b"T%d" % self.exptime(), b"t", b"v", b"N30", b"D3",
                                             b"M" + self.one(b"I", b"D")], 2)
             for _ in range(self.r.randrange(1, 4))] + [b"mg fixed t v\r\n"]

    def script(self):
        steps = []
        for _ in range(self.r.randrange(1, 6)):
            kind = self.r.randrange(12)
            if kind < 4:
                steps.append(self.with_version())
            elif kind < 5:
                steps += self.with_time()
            else:
                steps.append(b"".join(self.r.choice([self.store, self.store, self.get, self.small,
                                                     self.meta, self.meta, self.meta])()
                                      for _ in range(self.r.randrange(1, 60))))
            if self.maybe(3):
                steps.append(self.spoilt())
        return steps

    def pieces(self, data):
        """In pieces, as a network may deliver it."""
        if self.r.randrange(2):
            return [data]
        parts, at = [], 0
        while at < len(data):
            n = self.r.choice([1, 2, 5, 100, 1000, 20000, 100000])
            parts.append(data[at:at + n])
            at += n
            if len(parts) > 200:
                parts.append(data[at:])
                break
        return parts
