"""What a hostile client of the HTTP APIs does, kind by kind, as in kinds.py; and a client that behaves beside it."""

import itertools
import json
import os
import time

from kinds import WAIT, send, wait
from witness import LIMIT, times_of

SHARE = 34  # connections of each hostile thread that has many: with 30 threads, over 1,000
ASKED = json.dumps({"prompt": "Nobody shall wait long for this.", "max_tokens": 8}).encode()
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def garbage(target, over):
    with target.connect() as connection:
        send(connection, over, (os.urandom(65536) for _ in itertools.count()))


def trickle(connection, over, text):
    """Sends `text` byte by byte, ten a second, and looks whether the server hangs up."""
    connection.settimeout(WAIT / 2)
    for byte in itertools.chain(text, itertools.repeat(ord("x"))):
        if over():
            return
        connection.sendall(bytes([byte]))
        try:
            if connection.recv(65536) == b"":
                raise ConnectionResetError
        except TimeoutError:
            pass


def slow_head(target, over):
    with target.connect() as connection:
        trickle(connection, over, b"GET /")


def slow_body(target, over):
    with target.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n{\"prompt\":\"")
        trickle(connection, over, b"")


def byte_a_second(target, over):
    """Many connections, half of which are within a head and the others within a body."""
    def begun(number):
        connection = target.connect()
        if number % 2:
            connection.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n")
        connection.settimeout(1 / SHARE)
        return connection

    connections = [begun(number) for number in range(SHARE)]
    try:
        for number in itertools.cycle(range(SHARE)):
            if over():
                return
            try:
                connections[number].sendall(b"G")
                if connections[number].recv(65536) == b"":
                    raise ConnectionResetError
            except TimeoutError:
                pass
            except OSError:
                connections[number].close()
                connections[number] = begun(number)
    finally:
        for connection in connections:
            connection.close()


def unfinished_bodies(target, over):
    """Long bodies that lack their last byte."""
    with target.connect() as connection:
        send(connection, over, [HEAD + b"Content-Length: 1000001\r\n\r\n" + b" " * 1000000])


def endless_chunks(target, over):
    """Chunks of one byte with extensions that are longer than the body may be."""
    with target.connect() as connection:
        first = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
        send(connection, over, itertools.chain([first], itertools.repeat((b"1;" + b"e" * 200 + b"\r\nx\r\n") * 100)))


def unread(target, over):
    """Requests in a row whose answers are not read."""
    one = HEAD + b"Content-Length: %d\r\n\r\n" % len(ASKED) + ASKED
    with target.connect() as connection:
        send(connection, over, itertools.repeat(one * 20))


def unknown_paths(target, over):
    with target.connect() as connection:
        connection.settimeout(10)
        while not over():
            connection.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
            if connection.recv(65536) == b"":
                raise ConnectionResetError


def idle(target, over):
    with target.connect() as connection:
        wait(connection, over)


def abandoned(target, over):
    """Clients that leave while they are answered."""
    while not over():
        with target.connect() as connection:
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(ASKED) + ASKED)


BYTE_A_SECOND = "byte a second"
KINDS = {
    "HTTP garbage": garbage,
    "slow heads": slow_head,
    "slow bodies": slow_body,
    BYTE_A_SECOND: byte_a_second,
    "unfinished bodies": unfinished_bodies,
    "endless chunks": endless_chunks,
    "unread answers": unread,
    "unknown paths": unknown_paths,
    "idle HTTP": idle,
    "abandoned requests": abandoned,
}


class Witness:
    """Asks for a short answer."""

    def __init__(self, target):
        self.connection = target.connect(LIMIT)
        self.connection.settimeout(LIMIT)
        self.came = b""

    def read(self):
        piece = self.connection.recv(65536)
        if piece == b"":
            raise ConnectionResetError("the server closed the connection of a client that behaves")
        self.came += piece

    def ask(self):
        started = time.monotonic()
        self.connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(ASKED) + ASKED)
        while b"\r\n\r\n" not in self.came:
            self.read()
        head, self.came = self.came.split(b"\r\n\r\n", 1)
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"a request of a client that behaves failed: {head[:60]}")
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(self.came) < size:
            self.read()
        self.came = self.came[size:]
        return time.monotonic() - started

    def close(self):
        self.connection.close()


def watch(target, seconds):
    return times_of(Witness, target, seconds)
