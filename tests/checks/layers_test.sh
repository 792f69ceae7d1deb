#!/usr/bin/env bash
# Tries layers.sh on small trees: every planted violation must be reported, and nothing else.
set -euo pipefail

check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/layers.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# plant FILE INCLUDE: a tree with one file that has one include line.
plant() {
  rm -rf "${tree:?}"/*
  mkdir -p "$tree/$(dirname "$1")"
  printf '#include %s\n' "$2" >"$tree/$1"
}

expect_allowed() {
  plant "$1" "$2"
  if ! output=$(bash "$check" "$tree"); then
    echo "allowed, but reported: $1 includes $2: $output"
    failures=$((failures + 1))
  fi
}

expect_reported() {
  plant "$1" "$2"
  if output=$(bash "$check" "$tree") || [[ $output != "$1:1: "* ]]; then
    echo "planted, but not reported: $1 includes $2: $output"
    failures=$((failures + 1))
  fi
}

expect_allowed kernels/cpu/a.cc '"kernels/backend.h"'
expect_allowed kernels/cpu/isa/a.cc '"kernels/cpu/b.h"'
expect_allowed engine/ring/a.cc '"engine/state/plan.h"'
expect_allowed engine/coordinator/coordinator.cc '"engine/runner/a.h"'
expect_allowed engine/runner/a.cc '"engine/grammar/matcher.h"'
expect_allowed server/a.cc '"engine/api.h"'
expect_allowed server/devices.cc '"kernels/cpu/a.h"'
expect_allowed server/grpc/a.cc '<grpcpp/server_context.h>'
expect_allowed server/generation/a.cc '"server/work/a.h"'
expect_allowed client/cli/a.cc '"annulus/v1/a.pb.h"'
expect_allowed client/a.cc '"absl/status/status.h"'
expect_allowed client/a.cc '<vector>'
expect_allowed tests/server/a.cc '"engine/ring/a.h"'

expect_reported kernels/base/a.h '"kernels/backend.h"'
expect_reported kernels/registry.h '"kernels/cpu/a.h"'
expect_reported kernels/ops/a.h '"engine/api.h"'
expect_reported engine/base/clock.h '"engine/api/result.h"'
expect_reported engine/runner/a.cc '"kernels/cpu/a.h"'
expect_reported engine/memory/a.h '"engine/state/sequence.h"'
expect_reported engine/scheduler/a.cc '"engine/runner/a.h"'
expect_reported engine/runner/a.cc '"engine/coordinator/coordinator.h"'
expect_reported engine/runner/a.cc '"engine/grammar/compiler/compile.h"'
expect_reported engine/grammar/a.cc '"engine/grammar/compiler/compile.h"'
expect_reported engine/ring/a.cc '"server/base/errors.h"'
expect_reported engine/ring/a.cc '<server/base/errors.h>'
expect_reported engine/new/a.cc '"tests/support/a.h"'
expect_reported engine/new/a.cc '"engine/base/clock.h"'
expect_reported server/a.cc '"engine/ring/a.h"'
expect_reported server/main.cc '"client/a.h"'
expect_reported server/a.cc '<grpcpp/server.h>'
expect_reported server/generation/a.cc '<grpcpp/server_context.h>'
expect_reported server/generation/a.cc '"server/grpc/a.h"'
expect_reported server/grpc/calls/a.cc '"server/grpc/a.h"'
expect_reported server/base/a.h '"server/work/a.h"'
expect_reported server/new/a.cc '"server/base/a.h"'
expect_reported client/a.cc '"engine/api.h"'
expect_reported client/a.cc '"kernels/base/dtype.h"'
expect_reported bench/a.cc '"tests/support/a.h"'
expect_reported engine/ring/a.cc '"channel.h"'
expect_reported engine/ring/a.cc '"../api.h"'
expect_reported engine/ring/a.cc '<../server/errors.h>'
expect_reported engine/ring/a.cc '"engine/ring/../../server/errors.h"'

if ((failures > 0)); then exit 1; fi
echo "every planted violation was reported"
