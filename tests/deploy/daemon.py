"""annulusd as a process, for the tests of deploy/. The folder of the build is the first argument."""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77


def environment():
    return {k: v for k, v in os.environ.items() if not k.startswith("ANNULUS_")}


def get(address, path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
        return answer.read().decode()


def certificate(folder):
    """Flags that serve with TLS. The certificate lies in `folder` and ends in three days."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-days", "3", "-subj", "/CN=localhost", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
                   check=True, capture_output=True)
    return ["--tls-certificate", f"{folder}/cert.pem", "--tls-key", f"{folder}/key.pem"]


class Daemon:
    """Listens on free ports: `address`, `metrics` and, with --http, `http`. It has started once it serves, or has found that it has no
    device to serve with. From then on nobody reads its log. `variables` are added to its environment."""

    def __init__(self, build, *flags, variables=None):
        self.process = subprocess.Popen(
            [f"{build}/annulusd", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--admin-listen", "off", *flags],
            stderr=subprocess.PIPE, text=True, env={**environment(), **(variables or {})})
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            ports = re.search(r" (?:ready|no_device) .* port=(\d+) .*metrics_port=(\d+)", line)
            if ports:
                self.address, self.metrics = (f"127.0.0.1:{port}" for port in ports.groups())
                http = re.search(r" http_port=(\d+)", line)
                self.http = f"127.0.0.1:{http[1]}" if http else None
                return
        sys.exit("annulusd did not start:\n" + "".join(lines))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Ring:
    """A coordinator and, unless `workers` is 0, its worker, as processes of one ring: `metrics` has their addresses.
    Nobody reads their logs."""

    def __init__(self, build, workers=1):
        self.processes = []
        coordinator, ports = self.start(
            build, r" loading .* metrics_port=(\d+) workers_port=(\d+)", "--ranks", "2", "--workers-listen", "127.0.0.1:0",
            "--listen", "127.0.0.1:0", "--admin-listen", "off", "--kv-memory", "64MiB", "--metrics", "127.0.0.1:0")
        self.metrics = [f"127.0.0.1:{ports[1]}"]
        if workers:
            _, ports = self.start(build, r" loading .* metrics_port=(\d+)", "--join", f"127.0.0.1:{ports[2]}",
                                  "--metrics", "127.0.0.1:0")
            self.metrics.append(f"127.0.0.1:{ports[1]}")
            self.read(coordinator, " ready ")
            while "annulus_worker_rank_memory_bytes{" not in get(self.metrics[1], "/metrics"):
                time.sleep(0.05)  # until its first beat in the ring

    def start(self, build, expected, *flags):
        self.processes.append(subprocess.Popen([f"{build}/annulusd", *flags], stderr=subprocess.PIPE, text=True,
                                               env=environment()))
        return self.processes[-1], self.read(self.processes[-1], expected)

    @staticmethod
    def read(process, expected):
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(expected, line):
                return found
        sys.exit("annulusd did not start:\n" + "".join(lines))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def families(metrics):
    """Name -> labels of its samples, from a scrape."""
    found = {}
    for line in get(metrics, "/metrics").splitlines():
        if line.startswith("# TYPE "):
            found[line.split()[2]] = set()
        elif line and line[0] != "#":
            name, labels = re.match(r"(\w+)(?:\{(.*)\})? ", line).groups()
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            found[family if family in found else name] |= set(re.findall(r'(\w+)="', labels or ""))
    return found


@contextlib.contextmanager
def stopping(process):
    """Ends a process that the test started."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
