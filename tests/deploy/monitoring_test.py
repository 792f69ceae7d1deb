#!/usr/bin/env python3
"""monitoring_test.py BUILD: the dashboards are those of their script, name metrics and labels that the
daemon has, and each alert has a test and an entry in the runbook."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import daemon

FOLDER = daemon.ROOT / "deploy" / "monitoring"
# Labels that Prometheus adds itself, and of histograms.
ADDED = {"job", "instance", "le"}
problems = []


def expect(condition, problem):
    if not condition:
        problems.append(problem)


def check_dashboards():
    with tempfile.TemporaryDirectory() as made:
        subprocess.run([sys.executable, FOLDER / "make_dashboards.py", made], check=True)
        names = {path.name for path in pathlib.Path(made).iterdir()}
        expect(names == {path.name for path in (FOLDER / "dashboards").iterdir()},
               "deploy/monitoring/dashboards has other files than make_dashboards.py writes")
        for name in names:
            expect((pathlib.Path(made) / name).read_text()
                   == (FOLDER / "dashboards" / name).read_text(),
                   f"dashboards/{name} is not what make_dashboards.py writes: run it")


def queries():
    """Place and text of every query."""
    for path in sorted((FOLDER / "dashboards").iterdir()):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.name}, {panel['title']}", target["expr"]
    rules = (FOLDER / "rules.yaml").read_text()
    for rule in re.split(r"\n\s*- (?=alert|record)", rules)[1:]:
        name = rule.split(None, 2)[1]
        yield f"rules.yaml, {name}", re.sub(r"\n\s*(for|labels|annotations|- name):.*", "", rule,
                                            flags=re.S).split("expr:", 1)[1]


def check_names(known):
    used = set()
    for place, query in queries():
        for name, labels in re.findall(r"(?<![:\w])(annulus_\w+)(?:\{([^}]*)\})?", query):
            family = name if name in known else re.sub(r"_(bucket|sum|count)$", "", name)
            used.add(family)
            expect(family in known, f"{place}: the daemon has no metric {name}")
            chosen = set(re.findall(r"(\w+)\s*[=!]~?\s*\"", labels))
            for group in re.findall(r"by \(([^)]*)\)", query):
                chosen |= set() if "/" in query else {label.strip() for label in group.split(",")}
            missing = chosen - ADDED - known.get(family, chosen)
            expect(not missing, f"{place}: {name} has no label {', '.join(sorted(missing))}")
    unseen = {name for name in known if name.startswith("annulus_")} - used
    expect(not unseen, f"no panel and no rule shows {', '.join(sorted(unseen))}")


def check_tested_series(known):
    """A rule that is tested with other labels than the daemon's may never fire."""
    text = (FOLDER / "rules_test.yaml").read_text()
    for name, labels in re.findall(r"series: '(annulus_\w+)\{([^}]*)\}'", text):
        family = name if name in known else re.sub(r"_(bucket|sum|count)$", "", name)
        tested = set(re.findall(r"(\w+)=", labels)) - ADDED
        real = known.get(family, set()) - ADDED
        # Those of which the daemon has no sample yet have no labels to compare.
        expect(not real or tested == real, f"rules_test.yaml tests {name} with {sorted(tested)}; the daemon's are {sorted(real)}")


def check_alerts():
    rules = (FOLDER / "rules.yaml").read_text()
    tests = (FOLDER / "rules_test.yaml").read_text()
    runbook = (FOLDER.parent / "RUNBOOK.md").read_text()
    alerts = re.findall(r"- alert: (\w+)", rules)
    entries = re.findall(r"^## (\w+)$", runbook, re.M)
    expect(alerts == entries, f"alerts are {alerts}, entries of the runbook {entries}")
    for alert in alerts:
        fires = rf"alertname: {alert}\n\s+exp_alerts:\n\s+- exp_labels"
        expect(re.search(fires, tests), f"rules_test.yaml never makes {alert} fire")


def main():
    check_dashboards()
    check_alerts()
    with tempfile.TemporaryDirectory() as folder:
        tls = daemon.certificate(pathlib.Path(folder))
        # Some metrics are there only with their option. Nothing listens for traces: spans are dropped.
        options = ["--documents", f"{folder}/documents", "--otlp-endpoint", "127.0.0.1:9"]
        with daemon.Daemon(sys.argv[1], "--ranks", "2", "--kv-memory", "64MiB", *options, *tls) as served:
            known = daemon.families(served.metrics)
        # Others belong to a ring of several processes.
        with daemon.Ring(sys.argv[1]) as ring:
            for metrics in ring.metrics:
                for name, labels in daemon.families(metrics).items():
                    known.setdefault(name, set()).update(labels)
        check_names(known)
        check_tested_series(known)
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


main()
