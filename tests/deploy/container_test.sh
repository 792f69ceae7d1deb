#!/usr/bin/env bash
# The image, made with podman and runc on a base from debootstrap and with the Debian package, then run with
# the least that it needs: container_test.sh BUILD|PACKAGE, as root, with a network for Debian's packages. Skipped (77)
# without root, debootstrap, podman or runc. Compiling in the image (PACKAGE=built) is not tried: it takes as long as
# building everything.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if ! command -v podman >/dev/null || ! command -v runc >/dev/null; then
  echo 'this needs podman and runc: nothing was tried'
  exit 77
fi
source "$root/tests/deploy/debian.sh"

fail() {
  printf 'container_test: %s\n' "$*" >&2
  exit 1
}
pod() {
  podman --runtime runc --cgroup-manager cgroupfs --storage-driver vfs --root "$scratch/images" \
    --runroot "$scratch/run" --events-backend file --tmpdir "$scratch/podman" "$@"
}

leave() {
  pod rm --all --force --time 0 >/dev/null 2>&1 || true
  finish
}
trap leave EXIT

package=$(package_of "$1")
bare_debian
umount "$debian/proc"
tar --directory "$debian" --create . | pod import --quiet - annulus-base >/dev/null
rm -rf --one-file-system "$debian"

echo '== built'
# The sources as a build would see them, with the package.
context=$scratch/context
mkdir -p "$context/build"
cp -r "$root/deploy" "$root/.dockerignore" "$context"
cp "$package" "$context/build"
pod build --quiet --isolation chroot --network host --format docker --file "$context/deploy/container/Dockerfile" \
  --build-arg BASE=localhost/annulus-base --build-arg PACKAGE=given --tag annulus:0.1.0 "$context" ||
  fail 'it is not built'
pod image inspect annulus:0.1.0 --format 'size {{.Size}} bytes, user {{.User}}, {{index .Labels "org.opencontainers.image.title"}}'
[[ $(pod image inspect annulus:0.1.0 --format '{{.User}}') == 10001:10001 ]] || fail 'it runs as another user'

echo '== runs'
# The host's network, and so free ports: the tests of others run here too. podman 4.3 leaves health checks to
# timers of systemd, so the check is run by hand below.
pod run --detach --name daemon --network host --read-only --tmpfs /tmp --cap-drop ALL \
  --security-opt no-new-privileges --memory 1g --ulimit "nofile=$(ulimit -Hn)" --ulimit nproc=4096 \
  --no-healthcheck annulus:0.1.0 \
  --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --kv-memory 64MiB >/dev/null || fail 'it does not start'
for _ in $(seq 300); do
  if ready=$(pod logs daemon 2>&1 | grep ' info ready '); then break; fi
  sleep 0.1
done
[[ -n $ready ]] || fail "it is not ready: $(pod logs daemon 2>&1)"
port=$(sed 's/.* port=\([0-9]*\).*/\1/' <<<"$ready")
metrics=$(sed 's/.* metrics_port=\([0-9]*\).*/\1/' <<<"$ready")
pod exec daemon annulus complete 'w1 w2 w3 w1' --max-tokens 4 --server "127.0.0.1:$port" || fail 'no answer'
if pod exec daemon touch /usr/bin/x 2>/dev/null; then fail 'its root can be written'; fi

echo '== health'
check=$(pod image inspect annulus:0.1.0 --format '{{index .HealthCheck.Test 3}}')
[[ $check == *9464* ]] || fail "the health check asks elsewhere: $check"
pod exec daemon /bin/bash -c "${check//9464/$metrics}" || fail 'its health check fails while it serves'
if pod exec daemon /bin/bash -c "${check//9464/1}" 2>/dev/null; then fail 'its health check never fails'; fi

echo '== drains'
pod stop --time 40 daemon >/dev/null
pod inspect daemon --format 'status {{.State.ExitCode}}, killed for memory: {{.State.OOMKilled}}' | tee "$scratch/end"
grep -q '^status 0, killed for memory: false$' "$scratch/end" || fail 'it did not end well'
pod logs daemon 2>&1 | grep -q ' drained' || fail 'it did not drain'
pod rm --force daemon >/dev/null
