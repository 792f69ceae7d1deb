"""Prometheus and Alertmanager as processes, for the tests of deploy/."""

import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import daemon

MONITORING = daemon.ROOT / "deploy" / "monitoring"


def start_on_free_port(name, command, ready):
    """Starts command(address), which cannot choose a free port itself, so ports are tried. Returns the process
    and the address once it answers at the path `ready`."""
    for _ in range(20):
        address = f"127.0.0.1:{random.randrange(20000, 60000)}"
        process = subprocess.Popen(command(address), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            if process.poll() is not None:
                break
            try:
                daemon.get(address, ready)
                return process, address
            except OSError:
                time.sleep(0.1)
        process.kill()
        process.wait()
    sys.exit(f"{name} does not start")


def start_prometheus(configuration):
    """`configuration`: a path. Its data goes beside it."""
    data = tempfile.mkdtemp(dir=configuration.parent)
    return start_on_free_port("prometheus", lambda address: [
        "prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={data}",
        f"--web.listen-address={address}"], "/-/ready")


def start_alertmanager(configuration):
    """The same, as root. It has no peers. Debian's reads a template under /usr/share, so a program that was unpacked
    elsewhere gets a view of its own in which that is there."""
    data = tempfile.mkdtemp(dir=configuration.parent)
    share = pathlib.Path(shutil.which("prometheus-alertmanager")).resolve().parents[1] / "share"
    view = [] if share == pathlib.Path("/usr/share") else [
        "unshare", "--mount", "sh", "-c", 'mount -t overlay -o "lowerdir=$0:/usr/share" overlay /usr/share && exec "$@"', share]
    return start_on_free_port("prometheus-alertmanager", lambda address: [
        *view, "prometheus-alertmanager", f"--config.file={configuration}", f"--storage.path={data}",
        f"--web.listen-address={address}", "--cluster.listen-address="], "/-/ready")
