# A bare Debian 12 to install the package in: for scripts that source this, as root. Sets `scratch`, a folder
# that goes at the end with all it holds, and ends a daemon that is left.
if [[ $(id -u) != 0 ]] || ! command -v debootstrap >/dev/null || ! command -v lintian >/dev/null; then
  echo 'this needs root, debootstrap and lintian: nothing was tried'
  exit 77
fi
# Mounts of a namespace go with it.
if [[ ${ANNULUS_TEST_NAMESPACE-} != own ]]; then
  exec env ANNULUS_TEST_NAMESPACE=own unshare --mount --propagation private bash "$0" "$@"
fi
unset ANNULUS_TEST_NAMESPACE

scratch=$(mktemp -d)
daemon=
finish() {
  if [[ -n $daemon ]]; then kill -KILL "$daemon" 2>/dev/null || true; fi
  if mountpoint --quiet "$scratch/debian/proc"; then umount --lazy "$scratch/debian/proc"; fi
  rm -rf --one-file-system "$scratch"
}
trap finish EXIT

# Makes the Debian: $debian is its root.
bare_debian() {
  debian=$scratch/debian
  debootstrap --variant=minbase bookworm "$debian" >"$scratch/debootstrap.log" 2>&1 || {
    tail -n 20 "$scratch/debootstrap.log"
    exit 1
  }
  mount -t proc proc "$debian/proc"
  # Packages start nothing here.
  printf '#!/bin/sh\nexit 101\n' >"$debian/usr/sbin/policy-rc.d"
  chmod +x "$debian/usr/sbin/policy-rc.d"
  cp /etc/resolv.conf "$debian/etc/resolv.conf"
}

# package_of BUILD: the path of the package of that build folder, or BUILD itself, if it is a package.
package_of() {
  if [[ $1 == *.deb ]]; then
    realpath "$1"
  else
    bash "$root/deploy/package.sh" "$1" | tail -n 1
  fi
}

inside() { DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$debian" "$@"; }

# start_daemon FLAG...: as the user of the service; sets $port and $metrics_port, which are free ones.
start_daemon() {
  local ready
  env -i PATH="$PATH" chroot --userspec=annulus:annulus "$debian" /usr/bin/annulusd "$@" --listen 127.0.0.1:0 \
    --metrics 127.0.0.1:0 --kv-memory 64MiB >"$scratch/daemon.log" 2>&1 &
  daemon=$!
  for _ in $(seq 300); do
    if ready=$(grep ' info ready ' "$scratch/daemon.log"); then break; fi
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.1
  done
  [[ -n $ready ]] || {
    cat "$scratch/daemon.log"
    exit 1
  }
  port=$(sed 's/.* port=\([0-9]*\).*/\1/' <<<"$ready")
  metrics_port=$(sed 's/.* metrics_port=\([0-9]*\).*/\1/' <<<"$ready")
}

# The exit status of the daemon after SIGTERM.
stop_daemon() {
  local status=0
  kill -TERM "$daemon"
  wait "$daemon" || status=$?
  daemon=
  return "$status"
}
