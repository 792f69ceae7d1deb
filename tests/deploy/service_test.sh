#!/usr/bin/env bash
# systemd's own tools read the unit: service_test.sh BUILD. Skipped (77) without systemd-analyze.
set -euo pipefail

build=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if ! command -v systemd-analyze >/dev/null; then
  echo 'no systemd-analyze: the unit was not read'
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# As installed, with programs that are there.
mkdir -p "$folder/bin"
cp "$build/annulusd" "$folder/bin"
sed "s,@PREFIX@,$folder,g; s,@ETC@,$folder/etc,g" "$root/deploy/systemd/annulusd.service" >"$folder/annulusd.service"
verify() {
  local said
  if ! said=$(systemd-analyze verify "$folder/annulusd.service" 2>&1) || [[ -n $said ]]; then
    printf 'systemd-analyze verify: %s\n' "$said"
    exit 1
  fi
}
verify
mkdir "$folder/annulusd.service.d"
cp "$root/deploy/systemd/ring.conf" "$folder/annulusd.service.d"
verify
rm -r "$folder/annulusd.service.d"
# Tenths: 25 is an exposure of 2.5.
systemd-analyze security --offline=yes --threshold=25 --no-pager "$folder/annulusd.service" >"$folder/security" || {
  cat "$folder/security"
  exit 1
}
tail -n 1 "$folder/security"
