#!/usr/bin/env python3
"""kubernetes_test.py BUILD TOOLS: kustomize and the Helm chart render the same objects, they fit the schemas
of Kubernetes, the daemon takes the configuration in them, and the times of a drain fit together. The chart
refuses unknown values and models that would not be found, and its notes say what it serves.

TOOLS is what fetch_kubernetes_tools.sh made. Nothing is applied to a cluster.
"""

import os
import pathlib
import re
import shutil
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


def render(tools, chart, values):
    """The objects of the chart with these values, which YAML can say."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        return objects(run(tools / "bin/helm", "template", "annulus", chart, "-f", file.name))


DOWNLOAD = {"repository": "org/name", "revision": "main", "image": "hf:1", "tokenSecret": {"name": "hub", "key": "token"}}
DOWNLOADED = {"config": {"model": "/var/lib/annulus/model"}, "model": {"download": DOWNLOAD}}
CLAIMED = {"config": {"model": "/models/one"}, "model": {"claim": "models"}}
TERM = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": TERM}}
# Each with what must hold of the pod.
FEATURES = [
    ({"imagePullSecrets": [{"name": "pull"}]}, lambda pod: pod["imagePullSecrets"] == [{"name": "pull"}]),
    ({"nodeSelector": {"gpu": "yes"}}, lambda pod: pod["nodeSelector"] == {"gpu": "yes"}),
    ({"affinity": AFFINITY}, lambda pod: pod["affinity"] == AFFINITY),
    ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, lambda pod: pod["tolerations"][0]["key"] == "gpu"),
    ({"serviceAccount": {"name": "given"}}, lambda pod: pod["serviceAccountName"] == "given"),
    ({"serviceAccount": {"create": True, "annotations": {"role": "reader"}}},
     lambda pod: pod["serviceAccountName"] == "annulus"),
    ({"env": [{"name": "TZ", "value": "UTC"}]}, lambda pod: pod["containers"][0]["env"][0]["name"] == "TZ"),
    ({"secrets": [{"name": "tls", "mountPath": "/etc/annulus-tls"}]},
     lambda pod: mounted(pod, "/etc/annulus-tls")["secret"] == {"secretName": "tls", "defaultMode": 0o440}),
    ({"volumes": [{"name": "scratch", "emptyDir": {}}], "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]},
     lambda pod: "emptyDir" in mounted(pod, "/scratch")),
    ({"storageClass": "encrypted"}, lambda pod: True),
    ({"config": {"http": "[::]:8080"}}, lambda pod: {"name": "http", "containerPort": 8080, "protocol": "TCP"}
     in pod["containers"][0]["ports"]),
    (CLAIMED, lambda pod: mounted(pod, "/models")["persistentVolumeClaim"]["claimName"] == "models"),
    (DOWNLOADED, lambda pod: pod["initContainers"][0]["command"]
     == ["hf", "download", "org/name", "--local-dir", "/var/lib/annulus/model", "--revision", "main"]),
]
# Each with what the error must say.
REFUSED = [
    ("imagee: annulus:0.1.0", "imagee"),
    ("config: {kv_memry: 4GiB}", "kv_memry"),
    ("config: {insecure: true}", "insecure"),  # the daemon's values are texts
    ("serviceAccount: {nmae: x}", "nmae"),
    ("replicas: many", "replicas"),
    ("storage: lots", "storage"),
    ("config: {model: 5}", "config.model"),
    ("config: {http: host}", "config.http"),
    ("secrets: [{name: tls}]", "mountPath"),
    ("model: {claim: models}", "config.model must be under /models/"),
    ("{model: {download: {repository: org/name}}, config: {model: /var/lib/annulus/model}}", "model.download.image"),
    ("model: {download: {repository: org/name, image: hf}}", "config.model must be /var/lib/annulus/model"),
    ("{model: {claim: models, download: {repository: org/name, image: hf}}}", "one of them"),
]


def mounted(pod, path):
    """The pod's volume that its container has at `path`."""
    name = next(mount["name"] for mount in pod["containers"][0]["volumeMounts"] if mount["mountPath"] == path)
    return next(volume for volume in pod["volumes"] if volume["name"] == name)


def check_features(tools, chart):
    for values, holds in FEATURES:
        found = render(tools, chart, values)
        changed = {key: one for key, one in found.items() if key[0] in ("StatefulSet", "ServiceAccount")}
        check_schemas("feature", changed, tools)
        expect(holds(found["StatefulSet", "annulus"]["spec"]["template"]["spec"]), f"not rendered: {values}")
    account = render(tools, chart, {"serviceAccount": {"create": True}})["ServiceAccount", "annulus"]
    expect(account["automountServiceAccountToken"] is False, "the service account's token is mounted")
    claim = render(tools, chart, {"storageClass": "x"})["StatefulSet", "annulus"]["spec"]["volumeClaimTemplates"][0]
    expect(claim["spec"]["storageClassName"] == "x", "storageClass is not rendered")
    policy = render(tools, chart, DOWNLOADED)["NetworkPolicy", "annulus"]
    check_schemas("download", {("NetworkPolicy", "annulus"): policy}, tools)
    egress = policy["spec"]["egress"]
    expect([port["port"] for port in egress[0]["ports"]] == [53, 53, 443], f"a download cannot leave: {egress}")
    check_ports(tools, chart)


def check_ports(tools, chart):
    """HTTP and the endpoint of spans open their ports, and nothing else does."""
    values = {"config": {"http": "[::]:8080", "otlp_endpoint": "collector:4317"}}
    for given, http, spans in (({}, [], []), (values, [8080], [53, 53, 4317])):
        found = render(tools, chart, given)
        service, policy = found["Service", "annulus"], found["NetworkPolicy", "annulus"]
        check_schemas("ports", {("Service", "annulus"): service, ("NetworkPolicy", "annulus"): policy}, tools)
        ports = [port["port"] for port in service["spec"]["ports"]]
        expect(ports == [50051, *http, 9464], f"{given}: the service has the ports {ports}")
        ports = [port["port"] for port in policy["spec"]["ingress"][0]["ports"]]
        expect(ports == [50051, *http], f"{given}: clients may call {ports}")
        ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
        expect(ports == spans, f"{given}: the daemon may call {ports}")


def check_refusals(tools, chart):
    for values, named in REFUSED:
        done = subprocess.run([tools / "bin/helm", "template", "annulus", chart, "-f", "-"], input=values,
                              capture_output=True, text=True)
        expect(done.returncode != 0 and named in done.stderr, f"{values}: {done.returncode} {done.stderr}")


def check_config_keys(build, chart):
    """The schema knows exactly the keys of the file of a daemon that serves."""
    schema = yaml.safe_load((chart / "values.schema.json").read_text())
    known = set(schema["properties"]["config"]["propertyNames"]["enum"])
    explained = run(f"{build}/annulusd", "--print-config", env=daemon.environment())
    keys = {key for key in re.findall(r"^#?([a-z_]+):", explained, re.M) if serves(build, key)}
    expect(known == keys, f"values.schema.json lacks {sorted(keys - known)}, has {sorted(known - keys)} too many")


def serves(build, key):
    """Whether the key is of use to a daemon that serves: others have an error of their own."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(f"{key}: 1GiB\n")
        config.flush()
        done = subprocess.run([f"{build}/annulusd", "--print-config", "--config", config.name], capture_output=True,
                              text=True, env=daemon.environment())
        return not re.search(r"only --(plan|convert) uses it", done.stderr)


def check_notes(tools, chart):
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "chart"
        shutil.copytree(chart, copy)
        (copy / "templates/NOTES.txt").rename(copy / "notes")  # helm prints notes only with a cluster
        (copy / "templates/notes.yaml").write_text(
            'kind: Notes\nmetadata: {name: notes}\ntext: {{ tpl (.Files.Get "notes") . | quote }}\n')
        for values, says, silent in (({}, "the demonstration builtin:recall", "It serves /"),
                                     (CLAIMED, "It serves /models/one.", "demonstration")):
            text = render(tools, copy, values)["Notes", "notes"]["text"]
            expect(says in text and silent not in text, f"the notes say: {text}")


def bytes_of(text):
    number, unit = re.fullmatch(r"(\d+)([KMGT]i)B?", text).groups()
    return int(number) * 1024 ** (" KMGT".index(unit[0]))


def check_disk(name, stateful_set, values):
    """Documents and pages on disk lie on a volume that outlives the pod and has room for them. GPUs have no
    pages there."""
    expect("kv_disk" in values or values["device"] == "cuda", f"{name}: there is no kv_disk")
    container = stateful_set["template"]["spec"]["containers"][0]
    claims = {claim["metadata"]["name"]: claim["spec"]["resources"]["requests"]["storage"]
              for claim in stateful_set["volumeClaimTemplates"]}
    needed = 0
    for key in ("documents", "kv_disk"):
        if key not in values:
            continue
        needed += 1.1 * bytes_of(values[f"{key}_size"])
        rooms = [claims.get(mount["name"]) for mount in container["volumeMounts"]
                 if values[key].startswith(mount["mountPath"] + "/")]
        expect(rooms and rooms[0] is not None, f"{name}: {key} {values[key]} is on no claimed volume")
        expect(rooms and rooms[0] and bytes_of(rooms[0]) >= needed, f"{name}: {key}_size leaves no room on the volume")


# Of a LeaderWorkerSet (leaderworkerset.x-k8s.io/v1); Kubernetes knows no schema of it.
GROUP_KEYS = {"spec": {"replicas", "startupPolicy", "networkConfig", "leaderWorkerTemplate"},
              "template": {"size", "restartPolicy", "leaderTemplate", "workerTemplate"}}


def check_ring(build, tools):
    """A ring of pods: what coordinator, workers and network policy say of each other fits."""
    found = objects(run(tools / "bin/kubectl", "kustomize", FOLDER / "ring"))
    group = found.pop(("LeaderWorkerSet", "annulus-ring"))["spec"]
    check_schemas("ring", found, tools)
    template = group["leaderWorkerTemplate"]
    expect(set(group) <= GROUP_KEYS["spec"], f"ring: a LeaderWorkerSet has no {set(group) - GROUP_KEYS['spec']}")
    expect(set(template) <= GROUP_KEYS["template"], f"ring: a group has no {set(template) - GROUP_KEYS['template']}")
    expect(template["restartPolicy"] == "None", "ring: one pod that fails would end all")
    # The coordinator is ready when its workers are there.
    expect(group["startupPolicy"] == "LeaderCreated", "ring: workers would wait for the coordinator, and it for them")
    files = found["ConfigMap", "annulus-ring"]["data"]
    rules = found["NetworkPolicy", "annulus-ring"]["spec"]["ingress"]
    members = rules[0]["from"][0]["podSelector"]["matchLabels"]
    open_to_members = [(port["port"], port.get("endPort", port["port"])) for port in rules[0]["ports"]]
    for role, expanded in (("leader", {"LWS_GROUP_SIZE": "4"}),
                           ("worker", {"LWS_LEADER_ADDRESS": "annulus-ring-0.annulus-ring.default", "LWS_WORKER_INDEX": "1"})):
        pod = template[f"{role}Template"]
        named = {**pod, "metadata": {"name": role, **pod["metadata"]}}
        check_schemas(f"ring-{role}", {("Pod", role): {"apiVersion": "v1", "kind": "Pod", **named}}, tools)
        expect(members.items() <= pod["metadata"]["labels"].items(), f"ring: the {role} is no member")
        container = pod["spec"]["containers"][0]
        ucx = next(one["value"] for one in container["env"] if one["name"] == "UCX_TCP_PORT_RANGE")
        expect(tuple(map(int, ucx.split("-"))) in open_to_members, f"ring: the policy does not open {ucx} to the {role}")
        arguments = []
        for argument in container["args"]:
            for name, value in expanded.items():
                argument = argument.replace(f"$({name})", value)
            expect("$(" not in argument, f"ring: nobody sets the variable in {argument}")
            arguments += argument.split("=", 1) if argument.startswith("--") else [argument]
        file = pathlib.Path(arguments[arguments.index("--config") + 1])
        text = files[file.name]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / file.name
            path.write_text(text)
            arguments[arguments.index(str(file))] = str(path)
            printed = run(f"{build}/annulusd", "--print-config", *arguments, env=daemon.environment())
        values = yaml.load(printed, Loader=yaml.BaseLoader)
        expect(yaml.load(text, Loader=yaml.BaseLoader).items() <= values.items(), f"ring: {role} reads {values}")
        port = int((values["workers_listen"] if role == "leader" else values["join"]).rsplit(":", 1)[1])
        expect((port, port) in open_to_members, f"ring: the policy does not open port {port} to members")
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        expect(values["metrics"].endswith(f":{ports['metrics']}"), f"ring: {role}'s metrics are not on their port")


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
    check_ring(build, tools)
    check_features(tools, chart)
    check_refusals(tools, chart)
    check_config_keys(build, chart)
    check_notes(tools, chart)
    # Another release beside it shares no name.
    other = run(tools / "bin/helm", "template", "second", chart)
    expect(not re.search(r"name: annulus$", re.sub(r".*(app.kubernetes.io/name|matchLabels|- name).*", "", other), re.M),
           "a release of another name renders objects named annulus")
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


main()
