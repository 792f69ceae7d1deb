#!/usr/bin/env python3
"""alerts_test.py BUILD, as root: every alert of deploy/monitoring/rules.yaml, caused on real daemons, reaches its
receiver by a real Prometheus and a real Alertmanager.

Both read the shipped files with three substitutions: addresses; a webhook of this test in each receiver; and time
(see scaled). What daemons do takes its real time: a first token is late after 30 s. A scrape that takes too long, half a
second where a minute is two, has failed, and alerts wait anew; so a machine that is busy with other work gets longer
minutes. Skipped (77) without root, prometheus, prometheus-alertmanager, openssl, python3-xxhash or a C compiler.
"""

import concurrent.futures
import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import daemon
import monitors

try:
    import xxhash
except ImportError:
    xxhash = None

LIMIT_SECONDS = 900
# What a minute of the rules takes: longer where more processes want to run than there are processors.
MINUTE_SECONDS = 2 * min(3, max(1, os.getloadavg()[0] / os.cpu_count()))
# One page says it: see inhibit_rules in alertmanager.yml.
INHIBITED = {"AnnulusRankDown"}
# Of a page's file on disk, and of the checksum at its end: engine/tiers/page_entry.h.
HEADER_BYTES, CHECKSUM_BYTES = 4096, 16
KEPT_PROMPT = "".join(f"sentence {n} of a text that is kept. " for n in range(60))
# Put into a process by LD_PRELOAD.
HEAVY = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void* take(void* unused) {
  const size_t bytes = 2000000000;
  while (access("TAKE", F_OK) != 0) usleep(100000);
  char* memory = malloc(bytes);
  if (memory != NULL) memset(memory, 1, bytes);
  return unused;
}
__attribute__((constructor)) static void begin(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, take, NULL) == 0) pthread_detach(thread);
}
"""


def scaled(text):
    """A minute becomes MINUTE_SECONDS, hours and seconds likewise."""
    minutes = {"s": 1 / 60, "m": 1, "h": 60}
    return re.sub(r"\b(\d+)([smh])\b",
                  lambda time: f"{int(int(time[1]) * minutes[time[2]] * MINUTE_SECONDS * 1000)}ms", text)


class Receivers(http.server.ThreadingHTTPServer):
    """What Alertmanager sends: `arrived` has (receiver, name of the alert) -> annotations."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.arrived = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for alert in message["alerts"]:
                if alert["status"] == "firing":
                    key = (self.path.strip("/"), alert["labels"]["alertname"])
                    self.server.arrived[key] = alert["annotations"]["summary"]
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


def slow_daemon(build, folder):
    """Has four pages, computes a prompt of that length in one step of 45 s or more, and lets two requests wait."""
    shape = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024,
             "intermediate_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 8,
             "num_key_value_heads": 2, "vocab_size": 32000, "max_position_embeddings": 32768,
             "rms_norm_eps": 1e-5, "rope_theta": 1e4, "hidden_act": "silu", "tie_word_embeddings": True,
             "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2}
    (folder / "slow.json").write_text(json.dumps(shape))
    return daemon.Daemon(build, "--model", f"random:{folder}/slow.json", "--cpu-isa", "reference", "--threads", "1",
                         "--page-tokens", "256", "--kv-memory", "16MiB", "--stall-budget", "off", "--max-waiting", "2",
                         "--exchange-timeout", "1h")


def loading_daemon(build, folder):
    """Loads for minutes: eight billion weights are drawn and quantised on one processor. Returns process and address."""
    shape = json.loads((folder / "slow.json").read_text())
    shape.update(hidden_size=4096, intermediate_size=16384, num_hidden_layers=32, num_attention_heads=32,
                 num_key_value_heads=8, torch_dtype="bfloat16")
    (folder / "large.json").write_text(json.dumps(shape))
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        ["taskset", "--cpu-list", "0", f"{build}/annulusd", "--model", f"random:{folder}/large.json", "--weights-dtype", "int4_g32",
         "--threads", "1", "--kv-memory", "64MiB", "--listen", "127.0.0.1:0", "--metrics", address],
        stderr=subprocess.DEVNULL, env=daemon.environment())
    return process, address


def certified_daemon(build, folder):
    return daemon.Daemon(build, *daemon.certificate(folder), "--kv-memory", "64MiB")


def heavy_daemon(build, folder):
    """Something in its process takes 2 GB that nobody foresaw, once there is a file `take`."""
    (folder / "heavy.c").write_text(HEAVY.replace("TAKE", str(folder / "take")))
    subprocess.run(["cc", "-shared", "-fPIC", "-O0", "-pthread", "-o", folder / "heavy.so", folder / "heavy.c"], check=True)
    return daemon.Daemon(build, "--kv-memory", "64MiB", variables={"LD_PRELOAD": f"{folder}/heavy.so"})


def falsify(page):
    """Changes a page's file so that only computing the page again can tell."""
    content = page.read_bytes()
    header, keys_and_values = content[:HEADER_BYTES - CHECKSUM_BYTES], bytearray(content[HEADER_BYTES:])
    right = xxhash.xxh3_128_digest(bytes(keys_and_values))
    keys_and_values[0] ^= 1
    header = header.replace(right, xxhash.xxh3_128_digest(bytes(keys_and_values)))
    page.write_bytes(header + xxhash.xxh3_128_digest(header) + keys_and_values)


def wrong_daemon(build, folder):
    """Computes KEPT_PROMPT, if it is asked to, and finds other bytes on its disk."""
    kept = folder / "kept"
    flags = ["--kv-memory", "64MiB", "--kv-disk", kept, "--kv-disk-size", "64MiB", "--kv-verify", "all"]
    with daemon.Daemon(build, *flags) as first:
        ask = [f"{build}/annulus", "complete", "--server", first.address, "--max-tokens", "1"]
        subprocess.run(ask, input=KEPT_PROMPT, text=True, check=True, env=daemon.environment(), capture_output=True)
        while not re.search(r'^annulus_kv_tier_pages\{.*tier="disk".*\} [1-9]', daemon.get(first.metrics, "/metrics"), re.M):
            time.sleep(0.1)
        first.process.terminate()
        first.process.wait()
    pages = [file for file in kept.iterdir() if file.stat().st_size > HEADER_BYTES]
    for page in pages:
        falsify(page)
    return daemon.Daemon(build, *flags)


def damaged_daemon(build, folder):
    """Finds a damaged file among its documents."""
    flags = ["--kv-memory", "64MiB", "--documents", str(folder / "documents")]
    with daemon.Daemon(build, *flags) as first:
        subprocess.run([f"{build}/annulus", "documents", "put", "-", "--name", "text", "--server", first.address],
                       input="text", text=True, check=True, env=daemon.environment(), capture_output=True)
    next((folder / "documents").glob("*.document")).write_bytes(b"nothing")
    return daemon.Daemon(build, *flags)


@contextlib.contextmanager
def small_disk(folder):
    """A folder with room for 2 MiB."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def start_monitoring(folder, targets, receivers):
    alertmanager = scaled((monitors.MONITORING / "alertmanager.yml").read_text())
    for name in ("pages", "tickets"):
        hook = f"webhook_configs: [{{url: 'http://127.0.0.1:{receivers.server_port}/{name}'}}]"
        alertmanager = alertmanager.replace(f"  - name: {name}\n", f"  - name: {name}\n    {hook}\n")
    (folder / "alertmanager.yml").write_text(alertmanager)
    manager, address = monitors.start_alertmanager(folder / "alertmanager.yml")
    prometheus = scaled((monitors.MONITORING / "prometheus.yml").read_text())
    prometheus = prometheus.replace("127.0.0.1:9093", address)
    prometheus = prometheus.replace('["127.0.0.1:9464"]', json.dumps(targets))
    (folder / "prometheus.yml").write_text(prometheus)
    (folder / "rules.yaml").write_text(scaled((monitors.MONITORING / "rules.yaml").read_text()))
    return manager, address, *monitors.start_prometheus(folder / "prometheus.yml")


class Trouble:
    """Causes what alerts are about, until it is stopped."""

    def __init__(self, build):
        self.build = build
        self.ended = threading.Event()
        self.pool = concurrent.futures.ThreadPoolExecutor(16)

    def annulus(self, *arguments, text=None):
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([f"{self.build}/annulus", *arguments], input=text, text=True, check=False,
                           timeout=LIMIT_SECONDS, env=daemon.environment(), capture_output=True)

    def once(self, *arguments, **more):
        self.pool.submit(self.annulus, *arguments, **more)

    def again_and_again(self, *arguments):
        def work():
            while not self.ended.wait(0.2):
                self.annulus(*arguments)
        self.pool.submit(work)

    def fill_log(self, process):
        """A signal leaves a line, and nobody reads them."""
        def work():
            while not self.ended.wait(0.001):
                process.send_signal(signal.SIGUSR1)
        self.pool.submit(work)

    def stop(self):
        self.ended.set()
        self.pool.shutdown(cancel_futures=True)


def cause(trouble, daemons, folder, prometheus):
    slow = ["--server", daemons["slow"].address, "--max-tokens", "2"]
    question = "a prompt that fills four pages. " * 28
    trouble.once("complete", "first: " + question, *slow)   # takes all pages, and its first token is late
    time.sleep(1)
    trouble.once("complete", "second: " + question, *slow)  # waits
    time.sleep(1)
    for _ in range(4):  # two wait, and one still does when the next step begins; the others are refused
        trouble.again_and_again("complete", "third: " + question, *slow)
    for _ in range(3):
        trouble.again_and_again("complete", "x", "--server", daemons["deviceless"].address)
    trouble.once("complete", "--server", daemons["disk"].address, "--max-tokens", "2",
                 text="".join(f"word {n} " for n in range(4000)))
    # A counter that is never seen at 0 never increases.
    series = urllib.parse.quote(f'annulus_kv_tier_mismatches_total{{instance="{daemons["wrong"].metrics}"}}')
    while not json.loads(daemon.get(prometheus, f"/api/v1/query?query={series}"))["data"]["result"]:
        time.sleep(0.1)
    trouble.once("complete", "--server", daemons["wrong"].address, "--max-tokens", "1", text=KEPT_PROMPT)
    trouble.fill_log(daemons["certified"].process)
    (folder / "cert.pem").write_text("no certificate\n")
    (folder / "take").touch()
    daemons["gone"].process.kill()


def suppressed(address):
    """Names of the alerts that Alertmanager has and sends to nobody."""
    alerts = json.loads(daemon.get(address, "/api/v2/alerts?silenced=false"))
    return {alert["labels"]["alertname"] for alert in alerts if alert["status"]["state"] == "suppressed"}


def wait_for_alerts(receivers, alertmanager, severities):
    expected = {("pages" if severity == "page" else "tickets", name)
                for name, severity in severities.items() if name not in INHIBITED}
    started = time.monotonic()
    said, inhibited = set(), set()
    while time.monotonic() - started < LIMIT_SECONDS:
        inhibited |= suppressed(alertmanager) & INHIBITED
        for key in set(receivers.arrived) - said:
            said.add(key)
            print(f"{time.monotonic() - started:5.0f} s  {key[0]:8} {key[1]}: {receivers.arrived[key]}", flush=True)
        if said >= expected and inhibited == INHIBITED:
            break
        time.sleep(0.2)
    problems = [f"{receiver} never got {name}" for receiver, name in sorted(expected - said)]
    problems += [f"{receiver} got {name}, which is not for it" for receiver, name in sorted(said - expected)]
    problems += [f"{name} was never suppressed" for name in sorted(INHIBITED - inhibited)]
    problems += [f"{name} says: {text}" for (_, name), text in receivers.arrived.items() if "<no value>" in text]
    return problems


def check(build, folder, open_later):
    opened = open_later.enter_context
    disk = opened(small_disk(folder))
    small = ["--kv-memory", "64MiB"]
    daemons = {
        "slow": slow_daemon(build, folder),
        "deviceless": daemon.Daemon(build, "--device", "cuda"),
        "disk": daemon.Daemon(build, *small, "--kv-disk", f"{disk}/pages", "--kv-disk-size", "1GiB"),
        "certified": certified_daemon(build, folder),
        "heavy": heavy_daemon(build, folder),
        "wrong": wrong_daemon(build, folder),
        "damaged": damaged_daemon(build, folder),
        "gone": daemon.Daemon(build, *small),
    }
    for served in daemons.values():
        opened(served)
    loading, loads_at = loading_daemon(build, folder)
    opened(daemon.stopping(loading))
    alone = opened(daemon.Ring(build, workers=0))  # waits for a worker
    receivers = Receivers()
    targets = [served.metrics for served in daemons.values()] + [loads_at] + alone.metrics
    manager, address, prometheus, prometheus_address = start_monitoring(folder, targets, receivers)
    opened(daemon.stopping(manager))
    opened(daemon.stopping(prometheus))
    trouble = Trouble(build)
    open_later.callback(trouble.stop)
    # Clients end when their daemons do, so these go first.
    open_later.callback(lambda: [served.process.kill() for served in daemons.values()])
    open_later.callback(trouble.ended.set)
    cause(trouble, daemons, folder, prometheus_address)
    print(f"a minute of the rules takes {MINUTE_SECONDS:.1f} s here", flush=True)
    severities = dict(re.findall(r"- alert: (\w+)\n.*?severity: (\w+)",
                                 (monitors.MONITORING / "rules.yaml").read_text(), re.S))
    return wait_for_alerts(receivers, address, severities)


def main():
    needed = ("prometheus", "prometheus-alertmanager", "openssl", "cc", "mount", "taskset")
    missing = [program for program in needed if not shutil.which(program)]
    missing += [] if xxhash else ["python3-xxhash"]
    if missing or os.geteuid() != 0:
        print(f"needs root and {', '.join(missing)}: nothing was tried")
        sys.exit(daemon.SKIPPED)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as open_later:
        problems = check(sys.argv[1], pathlib.Path(folder), open_later)
    print("\n".join(problems) if problems else "every alert arrived")
    sys.exit(1 if problems else 0)


main()
