#!/usr/bin/env bash
# The commands of deploy/README.md that lead from the package to the dashboards, each run in a bare Debian 12
# with a network of its own (apt-get has the machine's): walk_test.sh BUILD|PACKAGE, as root. Skipped (77)
# without root, debootstrap or lintian. There is no systemd: `systemctl` is a script that starts what a unit's
# ExecStart says, as its user.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$root/tests/deploy/debian.sh"

fail() {
  printf 'walk_test: %s\n' "$*" >&2
  exit 1
}

# The first block of commands behind the heading.
mapfile -t commands < <(awk '/^## From the package/ { found = 1 } found && /^```/ { if (inside) exit; inside = 1; next } inside' \
  "$root/deploy/README.md")
((${#commands[@]} == 10)) || fail "deploy/README.md has ${#commands[@]} commands, not 10"

package=$(package_of "$1")
bare_debian
cp "$package" "$debian/root"
cp "$root/deploy/ferry-report.txt" "$debian/root/report.txt"

# Programs in a namespace of processes go with its first one.
unshare --net sleep infinity &
daemon=$!
sleep 0.5
alone() { nsenter --net="/proc/$daemon/ns/net" "$@"; }
alone python3 - <<'PYTHON'
import fcntl, socket, struct
UP, GET, SET = 1, 0x8913, 0x8914  # IFF_UP, SIOCGIFFLAGS, SIOCSIFFLAGS
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any:
    flags, = struct.unpack("16xH", fcntl.ioctl(any, GET, struct.pack("16s16x", b"lo"))[:18])
    fcntl.ioctl(any, SET, struct.pack("16sH14x", b"lo", flags | UP))
PYTHON

cat >"$debian/usr/local/bin/systemctl" <<'SYSTEMCTL'
#!/bin/bash
# systemctl enable --now NAME | restart NAME
name=${!#}
unit=$(ls /usr/lib/systemd/system/"$name".service /lib/systemd/system/"$name".service 2>/dev/null | head -n 1)
[[ -n $unit ]] || exit 1
user=$(sed -n 's/^User=//p' "$unit")
command=$(sed -n 's/^ExecStart=//p' "$unit")
command=${command//\$ARGS/}
home=$(getent passwd "$user" | cut -d: -f6)
cd "$home" || exit 1
setsid setpriv --reuid "$user" --regid "$user" --clear-groups $command >"/var/log/$name.log" 2>&1 </dev/null &
echo $! >>/run/started
SYSTEMCTL
chmod +x "$debian/usr/local/bin/systemctl"

end_all() {
  local one
  for one in $(cat "$debian/run/started" 2>/dev/null); do kill -KILL "$one" 2>/dev/null || true; done
  finish
}
trap end_all EXIT

# until_ready URL NAME: what a person waits for between two commands.
until_ready() {
  for _ in $(seq 300); do
    if alone python3 -c "import urllib.request; urllib.request.urlopen('$1', timeout=5)" 2>/dev/null; then return; fi
    sleep 0.2
  done
  fail "$2 is not ready: $(cat "$debian/var/log/$2.log")"
}

for number in "${!commands[@]}"; do
  command=${commands[number]%%  #*}
  printf '%d. %s\n' $((number + 1)) "$command"
  run=(chroot "$debian" env -i HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
    bash -e -o pipefail -c "cd /root; $command")
  if [[ $command == apt-get* ]]; then
    "${run[@]}" >"$scratch/apt.log" 2>&1 || fail "$(tail -n 20 "$scratch/apt.log")"
    continue
  fi
  if [[ $command == *draw_dashboards* ]]; then
    echo '   (a minute of scrapes, with questions)'
    for _ in 1 2 3 4; do
      sleep 15
      alone chroot "$debian" annulus ask root/report.txt 'When?' --max-tokens 8 >/dev/null
      alone chroot "$debian" annulus ask root/report.txt 'Where?' --max-tokens 8 --attention strided >/dev/null
    done
  fi
  alone "${run[@]}" 2>&1 | sed 's/^/   /' || fail "command $((number + 1)) failed"
  case $command in
    *annulusd*now* | *enable*annulusd) until_ready http://127.0.0.1:9464/readyz annulusd ;;
    systemctl*prometheus) until_ready http://127.0.0.1:9090/-/ready prometheus ;;
  esac
done
for name in service memory-and-rings documents policies; do
  grep -q '<polyline' "$debian/root/dashboards/$name.svg" || fail "nothing is drawn in $name.svg"
done
echo 'ten commands, four dashboards'
