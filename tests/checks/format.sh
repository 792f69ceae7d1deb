#!/usr/bin/env bash
# Checks the C++ sources against .clang-format with the clang-format of Debian 12 (version 14;
# others lay some lines out differently). Prints what differs; 77 means that it could not be tried.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=$(command -v clang-format-14 || command -v clang-format) || {
  echo "clang-format is missing: bash deploy/setup.sh test"
  exit 77
}
version=$("$program" --version)
if [[ $version != *'version 14.'* ]]; then
  echo "needs clang-format 14, found: $version"
  exit 77
fi
find kernels engine server client bench tests \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \) \
  -exec "$program" --dry-run -Werror {} +
