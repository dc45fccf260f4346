#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A store behind a Unix socket that the load of `gannet bench socket` can be tried on, also one
that answers badly: sly_store.py PATH HOW, HOW among

  honest   all is as it should be, but comes in pieces of odd sizes
  forget   nothing is ever there
  swap     a value is another key's
  spoil    a bit of a value is wrong
  refuse   nothing is stored
  gone     the connection ends in the middle of an answer
  chatty   there is an answer too many
  silly    what comes is no answer

Speaks as much of memcached's text and meta commands and of Redis' protocol as that load does.
"""

import selectors
import socket
import sys

how = sys.argv[2]
store, last = {}, b""


def put(key, value):
    global last
    store[key] = value
    last = value


def get(key):
    value = store.get(key)
    if value is None or how == "forget":
        return None
    if how == "swap":
        return last if last != value else next(v for v in store.values() if v != value)
    return value[:-1] + bytes([value[-1] ^ 1]) if how == "spoil" else value


def take_line(data):
    line, end, rest = data.partition(b"\r\n")
    return (line, rest) if end else (None, data)


def memcached(data):
    """The answer to the first command, and what comes behind it; None: it is not all there."""
    line, rest = take_line(data)
    if line is None:
        return None, data
    words = line.split(b" ")
    meta = words[0] in (b"ms", b"mg")
    if words[0] in (b"set", b"ms"):
        size = int(words[2] if meta else words[4])
        if len(rest) < size + 2:
            return None, data
        put(words[1], rest[:size])
        if how == "refuse":
            answer = b"SERVER_ERROR out of memory storing object\r\n"
        elif words[-1] in (b"noreply", b"q"):
            answer = b""
        else:
            answer = b"HD\r\n" if meta else b"STORED\r\n"
        return answer, rest[size + 2:]
    answer = b""
    for key in words[1:2] if meta else words[1:]:
        value = get(key)
        if meta:
            answer += b"EN\r\n" if value is None else b"VA %d\r\n%s\r\n" % (len(value), value)
        elif value is not None:
            answer += b"VALUE %s 0 %d\r\n%s\r\n" % (key, len(value), value)
    return answer + (b"" if meta else b"END\r\n"), rest


def redis(data):
    line, rest = take_line(data)
    if line is None:
        return None, data
    words = []
    for _ in range(int(line[1:])):
        line, rest = take_line(rest)
        if line is None or len(rest) < int(line[1:]) + 2:
            return None, data
        words.append(rest[:int(line[1:])])
        rest = rest[int(line[1:]) + 2:]
    if words[0] in (b"SET", b"MSET"):
        for key, value in zip(words[1::2], words[2::2]):
            put(key, value)
        return b"-OOM command not allowed\r\n" if how == "refuse" else b"+OK\r\n", rest
    answer = b"*%d\r\n" % (len(words) - 1) if words[0] == b"MGET" else b""
    for value in map(get, words[1:]):
        answer += b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)
    return answer, rest


class Connection:
    def __init__(self, sock):
        self.sock, self.got, self.asked = sock, b"", 0

    def send(self, answer):
        """In pieces, so that they end anywhere."""
        step = max(1 + self.asked % 97, len(answer) // 20)
        for at in range(0, len(answer), step):
            self.sock.sendall(answer[at:at + step])

    def serve(self):
        came = self.sock.recv(1 << 16)
        self.got += came
        while self.got:
            speak = redis if self.got.startswith(b"*") else memcached
            answer, self.got = speak(self.got)
            if answer is None:
                break
            self.asked += 1
            if how == "gone" and self.asked == 500:
                self.sock.sendall(answer[:3])
                return False
            if how == "chatty" and self.asked == 500:
                answer += answer
            if how == "silly" and self.asked == 500:
                answer = b"\x00\xff" * 400
            self.send(answer)
        return bool(came)


def main():
    server = socket.socket(socket.AF_UNIX)
    server.bind(sys.argv[1])
    server.listen()
    ready = selectors.DefaultSelector()
    ready.register(server, selectors.EVENT_READ, None)
    print("ready", flush=True)
    while True:
        for key, _ in ready.select():
            if key.data is None:
                connection = Connection(server.accept()[0])
                ready.register(connection.sock, selectors.EVENT_READ, connection)
                continue
            try:
                more = key.data.serve()
            except OSError:  # the load has gone
                more = False
            if not more:
                ready.unregister(key.data.sock)
                key.data.sock.close()


if __name__ == "__main__":
    main()
