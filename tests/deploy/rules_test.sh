#!/usr/bin/env bash
# The alerts of deploy/monitoring fire when they should: rules_test.sh. Skipped (77) without promtool.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../../deploy/monitoring"
if ! command -v promtool >/dev/null; then
  echo 'no promtool (Debian package prometheus): nothing was tried'
  exit 77
fi
promtool check rules rules.yaml
promtool test rules rules_test.yaml
