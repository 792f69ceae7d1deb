#!/usr/bin/env bash
# What takes too long for tests/run.sh: the whole product of ring settings against float64, the
# three-layer recall model at 64K tokens on 1, 3 and 4 ranks in both modes, dense and under policies,
# the two-layer one at a million under top_pages, all policies on rings of every degree, 10^7 random operations
# on pool and pages, 2,000 requests of all kinds at the daemon, its memory at a million tokens. Hours
# on two cores.
#   bash tests/nightly.sh [BUILD_FOLDER]   default build/, which must hold the tests
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tests=${1:-$root/build}/tests

ANNULUS_STRESS_REQUESTS=2000 "$tests/stress_test"
ANNULUS_MEMORY_TOKENS=1000000 "$tests/integration_test" --gtest_filter='*ServedMemory*'
ANNULUS_RECALL_TOKENS=65536 "$tests/engine_runner_test" --gtest_filter='Recall3.*'
ANNULUS_EXACTNESS=full "$tests/engine_runner_test" --gtest_filter='Content.EveryRow*'
ANNULUS_RECALL_TOKENS=65536 "$tests/engine_test" --gtest_filter='Facts.TopPagesFindThemAtEveryDepth'
ANNULUS_RECALL_TOKENS=1000000 "$tests/engine_test" --gtest_filter='Facts.*TwoLayers'
ANNULUS_PROPERTY_OPERATIONS=10000000 "$tests/engine_memory_test" --gtest_filter='*Property*'
ANNULUS_EXACTNESS=full "$tests/engine_ring_test" --gtest_filter='*WholeProduct*'
