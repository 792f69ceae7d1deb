#!/usr/bin/env python3
"""abuse_test.py BUILD [SECONDS]: every kind of abuse.py on daemons with TLS and without.

With SECONDS, for so long each, and calls beside it must not take longer than abuse.py says. Without, for a moment each,
half of the kinds with TLS and the others without, which changes with ANNULUS_TEST_SEED; other tests run at the same
time, so only answers and memory are looked at. Skipped (77) without openssl.
"""

import contextlib
import os
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "deploy"))

import abuse
import daemon
from http2 import Target

MOMENT = 0.3
CONNECTIONS = 30


def cut_off(metrics):
    """How many connections the daemon has closed for too many frames."""
    for line in daemon.get(metrics, "/metrics").splitlines():
        if line.startswith('annulus_connections_cut_off_total{reason="flood"}'):
            return float(line.split()[1])
    sys.exit("abuse_test.py: the daemon has no metric of connections that it has cut off")


def try_all(build, folder, tls, chosen, seconds, judges_times):
    flags = daemon.certificate(folder) if tls else []
    with daemon.Daemon(build, "--model", "builtin:recall", "--http", "127.0.0.1:0", *flags) as one:
        print(f"== {'TLS' if tls else 'no TLS'}", flush=True)
        good = True
        for side, address in ((abuse.GRPC, one.address), (abuse.HTTP, one.http)):
            target = Target(address, f"{folder}/cert.pem" if tls else None)
            own = [kind for kind in chosen if kind in side.kinds]
            good = abuse.abuse(side, target, own, CONNECTIONS, seconds, one.process.pid, judges_times) and good
        if cut_off(one.metrics) == 0:
            print("FAILED: no connection was cut off for a flood of frames")
            good = False
        return good


def main():
    build = sys.argv[1]
    long = len(sys.argv) > 2
    seconds = float(sys.argv[2]) if long else MOMENT
    if shutil.which("openssl") is None:
        sys.exit(daemon.SKIPPED)
    seed = int(os.environ.get("ANNULUS_TEST_SEED", "0"))
    good = True
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for tls in (False, True):
            every = [*abuse.GRPC.kinds, *abuse.HTTP.kinds]
            chosen = every if long else every[(seed + tls) % 2::2]
            good = try_all(build, pathlib.Path(folder), tls, chosen, seconds, long) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
