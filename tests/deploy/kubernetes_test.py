#!/usr/bin/env python3
"""kubernetes_test.py BUILD TOOLS: kustomize and the Helm chart render the same objects, they fit the schemas
of Kubernetes, the daemon takes the configuration in them, and the times of a drain fit together.

TOOLS is what fetch_kubernetes_tools.sh made. Nothing is applied to a cluster.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

import daemon

FOLDER = daemon.ROOT / "deploy" / "kubernetes"
STOP_SECONDS = 3  # of the daemon, after its grace time
problems = []


def expect(condition, problem):
    if not condition:
        problems.append(problem)


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    expect(done.returncode == 0, f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def objects(text):
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text) if one}


def check_schemas(name, found, tools):
    with tempfile.TemporaryDirectory() as folder:
        for (kind, _), one in found.items():
            if kind == "ServiceMonitor":  # of the Prometheus operator, which is not part of Kubernetes
                continue
            path = pathlib.Path(folder) / f"{name}-{kind}.yaml"
            path.write_text(yaml.safe_dump(one))
            run(sys.executable, "-m", "kubernetes_validate", "-k", "1.31", "--strict", path,
                env=dict(os.environ, PYTHONPATH=str(tools / "python")))


def check_config(name, found, build):
    text = found["ConfigMap", "annulus"]["data"]["annulusd.yaml"]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(text)
        config.flush()
        printed = run(f"{build}/annulusd", "--print-config", "--config", config.name, env=daemon.environment())
    values = yaml.load(text, Loader=yaml.BaseLoader)  # as texts: "on" is no number and no truth
    in_effect = yaml.load(printed, Loader=yaml.BaseLoader)
    expect(in_effect == values,
           f"{name}: the daemon reads {in_effect} where the file says {values}")
    check_disk(name, found["StatefulSet", "annulus"]["spec"], values)
    pod = found["StatefulSet", "annulus"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    sleep = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    needed = sleep + int(values["grace_time"].removesuffix("s")) + STOP_SECONDS
    given = pod["terminationGracePeriodSeconds"]
    expect(given >= needed, f"{name}: a drain may take {needed} s, and is killed after {given}")
    readiness = container["readinessProbe"]
    expect(sleep > readiness["periodSeconds"] * readiness["failureThreshold"],
           f"{name}: preStop ends before readiness could have failed")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for key, port in (("listen", "grpc"), ("metrics", "metrics")):
        expect(values[key].endswith(f":{ports[port]}"), f"{name}: {key} is not port {port}")


def bytes_of(text):
    number, unit = re.fullmatch(r"(\d+)([KMGT]i)B?", text).groups()
    return int(number) * 1024 ** (" KMGT".index(unit[0]))


def check_disk(name, stateful_set, values):
    """Pages on disk lie on a volume that outlives the pod and has room for them. GPUs have no such tier."""
    if "kv_disk" not in values:
        expect(values["device"] == "cuda", f"{name}: there is no kv_disk")
        return
    container = stateful_set["template"]["spec"]["containers"][0]
    claims = {claim["metadata"]["name"]: claim["spec"]["resources"]["requests"]["storage"]
              for claim in stateful_set["volumeClaimTemplates"]}
    rooms = [claims.get(mount["name"]) for mount in container["volumeMounts"]
             if values["kv_disk"].startswith(mount["mountPath"] + "/")]
    expect(rooms and rooms[0] is not None, f"{name}: kv_disk {values['kv_disk']} is on no claimed volume")
    expect(rooms and rooms[0] and bytes_of(rooms[0]) >= 1.1 * bytes_of(values["kv_disk_size"]),
           f"{name}: kv_disk_size leaves no room on the volume")


def main():
    build, tools = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    chart = FOLDER / "chart"
    run(tools / "bin/helm", "lint", "--strict", chart)
    for name, values in (("cpu", []), ("gpu", ["-f", chart / "values-gpu.yaml"])):
        kustomized = objects(run(tools / "bin/kubectl", "kustomize", FOLDER / "overlays" / name))
        charted = objects(run(tools / "bin/helm", "template", "annulus", chart, *values))
        expect(kustomized.keys() == charted.keys(),
               f"{name}: kustomize has {sorted(kustomized)}, the chart {sorted(charted)}")
        for key, one in kustomized.items():
            expect(one == charted.get(key), f"{name}: {key} differs:\n{one}\n{charted.get(key)}")
        if problems:
            break
        check_schemas(name, kustomized, tools)
        check_config(name, kustomized, build)
        print(f"{name}: {len(kustomized)} objects, {', '.join(sorted(kind for kind, _ in kustomized))}")
    # Another release beside it shares no name.
    other = run(tools / "bin/helm", "template", "second", chart)
    expect(not re.search(r"name: annulus$", re.sub(r".*(app.kubernetes.io/name|matchLabels|- name).*", "", other), re.M),
           "a release of another name renders objects named annulus")
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


main()
