"""The examples of server/CLIENTS.md, for the tests of the programs that they are about."""

import os
import re
import shlex
import subprocess
import sys

from clients_test import ROOT, check

PAGE = ROOT / "server" / "CLIENTS.md"
ADDRESS = "http://127.0.0.1:8000"


def example(name, language, root):
    """The code of a program's section, for the daemon at `root`."""
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.M)
    [section] = [one for one in sections if one.startswith(name + "\n")]
    [code] = re.findall(rf"^```{language}\n(.*?)^```$", section, re.M | re.S)
    check(ADDRESS in code or language == "python", f"{PAGE}: the example of {name} names no daemon")
    return code.replace(ADDRESS, root)


def words_of(name, root):
    """The words of a program's command, without the program."""
    return shlex.split(example(name, "sh", root).replace("\\\n", ""))[1:]


def run_example(name, root, variables):
    """Runs an example in Python, which must print something."""
    done = subprocess.run([sys.executable, "-c", example(name, "python", root)], env={"PATH": os.environ["PATH"], **variables},
                          stdout=subprocess.PIPE, text=True, timeout=300)
    check(done.returncode == 0 and done.stdout.strip(), f"the example of {name} in {PAGE} printed {done.stdout!r}")
