#!/usr/bin/env python3
"""abuse.py [OPTIONS] HOST:PORT: does to a running annulusd on this machine what hostile clients do.

  --kinds K,...     some of those that --list prints; default: all
  --seconds N       for each kind; default 10
  --connections N   at a time; default 30
  --ca FILE         speak TLS, and trust this PEM file
  --http            HOST:PORT is that of the HTTP APIs, and so are the kinds
  --pid PID         of the daemon: its memory is watched too
  --list            print the kinds and leave

For each kind it prints how long the calls of a client that behaves took (the 99th percentile, alone and beside the
flood), how often the server hung up, and what memory the daemon took. It fails if a call failed, if the percentile is
above the larger of 100 ms more and 1.5 times (beside 1,000 connections that send a byte a second: above 1.2 times),
if the daemon took over 100 MiB more, or if it has not given back all but 5% and 8 MiB of it after 30 s. The hostile clients are one process of the lowest priority, on one processor.
"""

import argparse
import collections
import ipaddress
import multiprocessing
import os
import pathlib
import sys
import threading
import time

import http_kinds
import kinds
import tls_kinds
import witness
from http2 import Target

MOST_MORE_BYTES = 100 << 20
MOST_MORE_SECONDS = 0.1
MOST_TIMES = 1.5
MOST_TIMES_BESIDE_BYTES = 1.2
SECONDS_TO_RECOVER = 30
# The heap keeps some pages of any work, whatever it was.
KEPT_SHARE, KEPT_BYTES = 0.05, 8 << 20

# What clients speak: the kinds of abuse, and the client that behaves.
Side = collections.namedtuple("Side", "kinds watch")
GRPC = Side({**kinds.KINDS, **tls_kinds.kinds_of("TLS", b"\2h2")}, witness.watch)
HTTP = Side({**http_kinds.KINDS, **tls_kinds.kinds_of("HTTPS", b"\x08http/1.1")}, http_kinds.watch)
Result = collections.namedtuple("Result", "kind alone beside hung_up before most after error")


def resident(pid):
    if pid is None:
        return 0
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"process {pid} has ended")


def attack(side, target, kind, connections, seconds, hung_up):
    """The hostile clients, in a process of their own."""
    os.nice(19)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    until = time.monotonic() + seconds
    lock = threading.Lock()

    def over():
        return time.monotonic() >= until

    def repeat():
        while not over():
            try:
                side.kinds[kind](target, over)
            except OSError:
                with lock:
                    hung_up.value += 1

    threads = [threading.Thread(target=repeat, daemon=True) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 20)


def peak(pid, stop, most):
    while not stop.wait(0.05):
        most[0] = max(most[0], resident(pid))


def run(side, target, kind, connections, seconds, pid, alone):
    before = resident(pid)
    most, stop = [before], threading.Event()
    hung_up = multiprocessing.Value("q", 0)
    attackers = multiprocessing.Process(target=attack, args=(side, target, kind, connections, seconds, hung_up))
    watcher = threading.Thread(target=peak, args=(pid, stop, most))
    error, beside = None, None
    attackers.start()
    if pid is not None:
        watcher.start()
    try:
        # As many unfinished handshakes leave no place for others of their address.
        client = target.from_elsewhere() if kind.endswith(tls_kinds.HELLOS_KIND) else target
        beside = witness.percentile(side.watch(client, seconds), 0.99)
    except (OSError, RuntimeError) as failure:
        error = f"{type(failure).__name__}: {failure}"
    attackers.join(seconds + 60)
    stop.set()
    if pid is not None:
        watcher.join()
    after = resident(pid)
    enough = before * (1 + KEPT_SHARE) + KEPT_BYTES
    until = time.monotonic() + SECONDS_TO_RECOVER
    while after > enough and time.monotonic() < until:
        time.sleep(0.2)
        after = resident(pid)
    return Result(kind, alone, beside, hung_up.value, before, most[0], after, error)


def faults(result, judges_times):
    """What is wrong, in words."""
    if result.error:
        yield result.error
        return
    limit = max(result.alone + MOST_MORE_SECONDS, result.alone * MOST_TIMES)
    if result.kind == http_kinds.BYTE_A_SECOND:
        limit = result.alone * MOST_TIMES_BESIDE_BYTES
    if judges_times and result.beside > limit:
        yield f"a client that behaves waited {result.beside * 1000:.0f} ms, more than {limit * 1000:.0f}"
    if result.most > result.before + MOST_MORE_BYTES:
        yield f"the daemon took {(result.most - result.before) >> 20} MiB more"
    if result.after > result.before * (1 + KEPT_SHARE) + KEPT_BYTES:
        yield f"{SECONDS_TO_RECOVER} s later it kept {(result.after - result.before) >> 20} MiB"


def abuse(side, target, chosen, connections, seconds, pid, judges_times=True):
    """Runs each kind and prints a line for it. Returns whether all went well."""
    good = True
    alone = witness.percentile(side.watch(target, min(seconds, 3)), 0.99)
    for kind in chosen:
        result = run(side, target, kind, connections, seconds, pid, alone)
        wrong = list(faults(result, judges_times))
        good = good and not wrong
        times = "no answer" if result.beside is None else f"p99 {result.beside * 1000:6.1f} ms"
        print(f"{kind:22} {times} (alone {alone * 1000:.1f}), hung up {result.hung_up:6}, memory "
              f"{result.before >> 20} MiB, at most {result.most >> 20}, then {result.after >> 20}"
              f"{'' if not wrong else '  FAILED: ' + '; '.join(wrong)}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"), add_help=False)
    parser.add_argument("address", nargs="?")
    parser.add_argument("--kinds")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=30)
    parser.add_argument("--ca")
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--pid", type=int)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    side = HTTP if options.http else GRPC
    if options.list:
        print("\n".join(side.kinds))
        return
    if options.address is None:
        parser.error("give the HOST:PORT of a daemon")
    target = Target(options.address, options.ca)
    if not ipaddress.ip_address(target.host).is_loopback:
        sys.exit(f"abuse.py: {target.host} is not an address of this machine alone; give one like 127.0.0.1:PORT")
    chosen = options.kinds.split(",") if options.kinds else list(side.kinds)
    for kind in chosen:
        if kind not in side.kinds:
            sys.exit(f"abuse.py: there is no kind {kind}; --list prints all")
    sys.exit(0 if abuse(side, target, chosen, options.connections, options.seconds, options.pid) else 1)


if __name__ == "__main__":
    main()
