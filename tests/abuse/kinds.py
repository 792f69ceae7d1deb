"""What a hostile client does on one connection, kind by kind. Each function gets the Target and yields nothing: it
sends until `over()` is true or the server hangs up (OSError)."""

import itertools
import os
import random
import socket
import struct

from http2 import (CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PRIORITY, RESET, SAME_BLOCK,
                   SETTINGS, WINDOW_UPDATE, begin, block, call, frame, message)

UNKNOWN = "/annulus.v1.InferenceService/Nothing"
KNOWN = "/annulus.v1.ModelService/ListModels"
GENERATE = "/annulus.v1.InferenceService/Generate"
UPLOAD = "/annulus.v1.DocumentService/UploadDocument"
SHARE = 36    # connections of each hostile thread that has many: with 30 threads, more than there may be
SMALL = 50    # open calls of each of them: less than 1 MiB as the relay counts
PIECE = 1000  # frames that are sent at once
WAIT = 0.2    # seconds between looks at the clock while nothing is sent


def send(connection, over, pieces):
    """Sends all of it without reading. A server that takes nothing holds this up, but not for ever."""
    connection.settimeout(WAIT)
    for piece in pieces:
        left = memoryview(piece)
        while len(left) > 0:
            if over():
                return
            try:
                left = left[connection.send(left):]
            except (TimeoutError, BlockingIOError):
                pass
    wait(connection, over)


def wait(connection, over):
    """Until the server hangs up, without reading its answers further than the first bytes."""
    connection.settimeout(WAIT)
    while not over():
        try:
            if connection.recv(1) == b"":
                raise ConnectionResetError
        except TimeoutError:
            pass


def flood(first, piece):
    """Repeats `piece`, which is frames, after `first`."""
    def run(target, over):
        with target.connect() as connection:
            send(connection, over, itertools.chain([begin() + first], itertools.repeat(piece)))
    return run


def garbage(target, over):
    with target.connect() as connection:
        send(connection, over, (os.urandom(65536) for _ in itertools.count()))


def raw_garbage(target, over):
    """Where TLS is spoken, bytes that are none."""
    with target.connect_raw() as connection:
        send(connection, over, (os.urandom(65536) for _ in itertools.count()))


def random_frames(target, over):
    def frames():
        yield begin()
        while True:
            yield b"".join(frame(random.randrange(12), random.randrange(256), random.choice((0, 1, 2, 3, 5, 2**31 - 1)),
                                 os.urandom(random.choice((0, 1, 4, 5, 8, 100, 16384)))) for _ in range(50))
    with target.connect() as connection:
        send(connection, over, frames())


def streams():
    return itertools.count(1, 2)


def calls(method, ending):
    """Calls without end on one connection; `ending(stream)` follows the headers of each."""
    def run(target, over):
        def pieces():
            numbers = streams()
            first = next(numbers)
            yield begin() + frame(HEADERS, END_HEADERS, first, block(method)) + ending(first)
            while True:
                yield b"".join(frame(HEADERS, END_HEADERS, n, SAME_BLOCK) + ending(n)
                               for n in itertools.islice(numbers, PIECE))
        with target.connect() as connection:
            send(connection, over, pieces())
    return run


def whole(stream):
    return frame(DATA, 1, stream, message())


def reset(stream):
    return frame(RESET, 0, stream, struct.pack(">I", 8))


def read_refusals(target, over):
    """Calls to a method that does not exist, whose answers are read."""
    with target.connect() as connection:
        connection.settimeout(10)
        connection.sendall(begin() + call(1, block(UNKNOWN)))
        numbers = itertools.count(3, 2)
        while not over():
            connection.sendall(b"".join(call(n, SAME_BLOCK) for n in itertools.islice(numbers, 100)))
            if connection.recv(65536) == b"":
                raise ConnectionResetError


def read_faults(target, over):
    """Requests that are no calls, whose answers are read."""
    headers = b"\x82\x86\x84"  # GET /
    with target.connect() as connection:
        connection.settimeout(10)
        connection.sendall(begin())
        numbers = streams()
        while not over():
            connection.sendall(b"".join(frame(HEADERS, END_HEADERS | END_STREAM, n, headers)
                                        for n in itertools.islice(numbers, 64)))
            if connection.recv(65536) == b"":
                raise ConnectionResetError


def hpack_bomb(target, over):
    """One long header enters the table, and each byte of what follows repeats it."""
    def pieces():
        name = b"\x40" + bytes([1]) + b"x" + b"\x7f\x81\x1e" + b"y" * 3968  # 127 + 1 + 30 * 128
        for number in streams():
            yield (b"" if number > 1 else begin()) + frame(
                HEADERS, END_HEADERS, number,
                (block(GENERATE) if number == 1 else SAME_BLOCK[:2]) + name + b"\xbe" * 12000)
    with target.connect() as connection:
        send(connection, over, pieces())


def idle(target, over):
    with target.connect() as connection:
        connection.sendall(begin())
        wait(connection, over)


def half_open(target, over):
    """A connection on which less than a handshake comes."""
    with target.connect_raw() as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01" if target.context else b"PRI * HT")
        wait(connection, over)


def abandoned(target, over):
    """Connections that are reset as soon as they are there, in the middle of a call."""
    while not over():
        connection = target.connect()
        connection.sendall(begin() + frame(HEADERS, END_HEADERS, 1, block(GENERATE)))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


def slow_upload(target, over):
    """A message that comes byte by byte."""
    with target.connect() as connection:
        connection.sendall(begin() + frame(HEADERS, END_HEADERS, 1, block(UPLOAD)) +
                           frame(DATA, 0, 1, struct.pack(">BI", 0, 1 << 20)))
        connection.settimeout(WAIT)
        while not over():
            connection.sendall(frame(DATA, 0, 1, b"x"))
            try:
                if connection.recv(65536) == b"":
                    raise ConnectionResetError
            except TimeoutError:
                pass


def many(begun, more):
    """Many connections of each thread. Each begins with `begun` and then sends more(0), more(1), ... New ones take the
    place of those that the server closes."""
    def connect(target):
        connection = target.connect()
        connection.sendall(begin() + begun)
        connection.settimeout(WAIT / SHARE)
        return connection

    def go_on(connection, turn):
        connection.sendall(more(turn))
        try:
            if connection.recv(65536) == b"":
                raise ConnectionResetError
        except TimeoutError:
            pass

    def run(target, over):
        turns = {}
        try:
            while not over():
                if len(turns) < SHARE:
                    turns[connect(target)] = 0
                for connection, turn in list(turns.items()):
                    try:
                        go_on(connection, turn)
                        turns[connection] = turn + 1
                    except OSError:
                        del turns[connection]
                        connection.close()
        finally:
            for connection in turns:
                connection.close()
    return run


def small_call(turn):
    """One more open call of a connection, but not too many of them."""
    return frame(HEADERS, END_HEADERS, 2 * turn + 3, SAME_BLOCK) if turn < SMALL else b""


OPEN_CALL = frame(HEADERS, END_HEADERS, 1, block(GENERATE))
HALF_CALL = frame(HEADERS, 0, 1, block(GENERATE))

KINDS = {
    "garbage": garbage,
    "raw garbage": raw_garbage,
    "random frames": random_frames,
    "PING": flood(b"", frame(PING, 0, 0, b"12345678") * PIECE),
    "SETTINGS": flood(b"", frame(SETTINGS, 0, 0) * PIECE),
    "PRIORITY": flood(b"", frame(PRIORITY, 0, 1, b"\0\0\0\0\x10") * PIECE),
    "WINDOW_UPDATE": flood(OPEN_CALL, frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1") * PIECE),
    "GOAWAY": flood(b"", frame(GOAWAY, 0, 0, bytes(8)) * PIECE),
    "unknown frames": flood(b"", frame(0xfa, 0, 0, b"unknown") * PIECE),
    "empty DATA": flood(OPEN_CALL, frame(DATA, 0, 1) * PIECE),
    "CONTINUATION": flood(HALF_CALL, frame(CONTINUATION, 0, 1) * PIECE),
    "RST_STREAM": flood(OPEN_CALL, frame(RESET, 0, 1, struct.pack(">I", 8)) * PIECE),
    "rapid resets": calls(GENERATE, reset),
    "HPACK bomb": hpack_bomb,
    "unread unknown calls": calls(UNKNOWN, whole),
    "unread calls": calls(KNOWN, whole),
    "refused calls": read_refusals,
    "no calls": read_faults,
    "open calls": calls(GENERATE, lambda stream: b""),
    "idle": idle,
    "half-open": half_open,
    "abandoned": abandoned,
    "slow uploads": slow_upload,
    "all places": many(b"", lambda turn: b""),
    "small calls": many(OPEN_CALL, small_call),
}
