#!/usr/bin/env bash
# The Debian package: made, looked over by lintian, and in a bare Debian 12: installed, started by hand,
# asked, stopped, purged. package_test.sh BUILD|PACKAGE, as root, with a network for Debian's packages. Skipped (77)
# without root, debootstrap or lintian.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$root/tests/deploy/debian.sh"

fail() {
  printf 'package_test: %s\n' "$*" >&2
  exit 1
}

package=$(package_of "$1")
lintian --allow-root --fail-on error "$package" || fail 'lintian found errors'

bare_debian   # sets $debian
cp "$package" "$debian/annulus.deb"
printf 'w1 w2 w3 w1 w2 w4 ' >"$debian/report.txt"
inside apt-get -qq install --yes --no-install-recommends /annulus.deb >"$scratch/install.log" 2>&1 ||
  fail "it does not install: $(tail -n 20 "$scratch/install.log")"

echo '== installed'
inside getent passwd annulus | grep -q ':/var/lib/annulus:' || fail 'there is no user annulus'
[[ $(inside stat --format '%U %a' /var/lib/annulus) == 'annulus 750' ]] || fail 'the folder of the state is not its own'
# What was installed is what the option table says, and documents are kept.
cmp <(inside env -i annulusd --print-config --documents /var/lib/annulus/documents) "$debian/etc/annulus/annulusd.yaml" || fail 'the sample is another one'
grep -q '^ExecStart=/usr/bin/annulusd --config /etc/annulus/annulusd.yaml$' \
  "$debian/usr/lib/systemd/system/annulusd.service" || fail 'the unit starts something else'
inside env -i annulusd --version

echo '== started by hand, as the service would'
start_daemon --config /etc/annulus/annulusd.yaml
inside annulus status --server "127.0.0.1:$port" >/dev/null || fail 'no status'
inside annulus ask /report.txt 'w1 w2' --max-tokens 4 --server "127.0.0.1:$port" || fail 'no answer'
inside annulus documents put /report.txt --server "127.0.0.1:$port" >/dev/null || fail 'no document'
cmp <(inside annulus documents get report.txt --server "127.0.0.1:$port") "$debian/report.txt" || fail 'another document'

echo '== stopped'
stop_daemon || fail "it ended with $?"
grep -q ' drained' "$scratch/daemon.log" || fail 'it did not drain'

echo '== purged'
touch "$debian/var/lib/annulus/profile" "$debian/var/lib/annulus/models/weights"
inside apt-get -qq purge --yes annulus >"$scratch/purge.log" 2>&1 || fail "it does not go: $(cat "$scratch/purge.log")"
left=$(cd "$debian" && find . -xdev -path ./proc -prune -o \( -name '*annulus*' ! -name annulus.deb \) -print)
# Models are the administrator's.
[[ $left == ./var/lib/annulus && $(find "$debian/var/lib/annulus" -mindepth 1 -printf '%P ') == 'models models/weights ' ]] ||
  fail "this is left: $left"
[[ $(inside dpkg --list annulus 2>/dev/null | grep -c '^ii') == 0 ]] || fail 'it is still there'
echo 'installed, asked, stopped and purged'
