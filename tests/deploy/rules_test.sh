#!/usr/bin/env bash
# The alerts of deploy/monitoring fire when they should, and Prometheus and Alertmanager read its configuration files:
# rules_test.sh. Skipped (77) without promtool or amtool.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../../deploy/monitoring"
if ! command -v promtool >/dev/null || ! command -v amtool >/dev/null; then
  echo 'no promtool or amtool (Debian packages prometheus, prometheus-alertmanager): nothing was tried'
  exit 77
fi
promtool check rules rules.yaml
promtool test rules rules_test.yaml
promtool check config prometheus.yml
amtool check-config alertmanager.yml
