#!/usr/bin/env bash
# Prints the value of CMAKE_CUDA_ARCHITECTURES for the GPUs of this machine. Without a GPU: the pair
# that CMakeLists.txt has by default.
set -euo pipefail

# Compute capability 9.0 has instructions of its own, which need the name 90a.
found=$(timeout 20 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
  sed -n 's/^ *\([0-9]\{1,2\}\)\.\([0-9]\) *$/\1\2-real/p' | sed 's/^90-/90a-/' | sort -u | paste -sd ';') || true
echo "${found:-80-real;90a-real}"
