"""A client that behaves, beside the hostile ones: how long its calls take."""

import itertools
import struct
import time

from http2 import (ACK, DATA, END_STREAM, HEADERS, PING, RESET, SAME_BLOCK, SETTINGS, WINDOW_UPDATE, Frames, begin, block,
                   call, frame)
from kinds import KNOWN

PAUSE = 0.005  # seconds between calls
LIMIT = 60     # seconds for an answer


class Witness:
    def __init__(self, target):
        self.connection = target.connect(LIMIT)
        self.connection.settimeout(LIMIT)
        self.frames = Frames(self.connection)
        self.connection.sendall(begin())
        self.numbers = itertools.count(1, 2)
        self.headers = block(KNOWN)

    def ask(self):
        """Seconds that one call takes."""
        started = time.monotonic()
        number = next(self.numbers)
        self.connection.sendall(call(number, self.headers))
        self.headers = SAME_BLOCK
        answered = False
        while True:
            one = self.frames.next()
            if one is None:
                raise ConnectionResetError("the server closed the connection of a client that behaves")
            kind, flags, stream, payload = one
            if kind in (PING, SETTINGS) and not flags & ACK:
                self.connection.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
            if kind == DATA and payload:
                self.connection.sendall(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(payload))))
            if stream != number:
                continue
            answered = answered or kind == DATA
            if kind == RESET or kind == HEADERS and flags & END_STREAM:
                if not answered:
                    raise RuntimeError("a call of a client that behaves failed")
                return time.monotonic() - started

    def close(self):
        self.connection.close()


def watch(target, seconds):
    return times_of(Witness, target, seconds)


def times_of(kind, target, seconds):
    """Times of calls for so long, and of one on a new connection each second, sorted. Raises if a call fails."""
    until = time.monotonic() + seconds
    times, next_newcomer = [], 0.0
    steady = kind(target)
    while time.monotonic() < until:
        times.append(steady.ask())
        if time.monotonic() >= next_newcomer:
            next_newcomer = time.monotonic() + 1
            newcomer = kind(target)
            newcomer.ask()
            newcomer.close()
        time.sleep(PAUSE)
    steady.close()
    return sorted(times)


def percentile(times, share):
    return times[min(len(times) - 1, int(len(times) * share))]
