#!/usr/bin/env bash
# Packs what bench/gpu.sh runs, for a machine that cannot build it: bash bench/gpu_pack.sh FOLDER [ARCHITECTURES]
# ARCHITECTURES (default 90a-real) as for CMAKE_CUDA_ARCHITECTURES. FOLDER is made anew: the programs,
# stripped; lib/, the shared libraries that they need beside the C library; what they were built from.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if (($# < 1 || $# > 2)) || [[ $1 == -* ]]; then
  sed -n '2,4s/^# //p' "$0"
  exit 2
fi
package=$1
architectures=${2:-90a-real}
if [[ -e $package && ! -e $package/built_from.txt ]]; then
  echo "gpu_pack: $package is there and no package: name another folder" >&2
  exit 2
fi

# A folder of its own, as architectures stay in a build folder's cache.
build=$root/build-gpu
bash "$root/deploy/build.sh" "$build" gpu_programs -- -DCMAKE_BUILD_TYPE=Release \
  -DANNULUS_BUILD_TESTS=ON -DANNULUS_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$architectures"

rm -rf "$package"
mkdir -p "$package/tests" "$package/lib"
for program in gpu-lab gpu-model tests/kernels_gpu_test tests/engine_gpu_test; do
  [[ ! -x $build/$program ]] || strip -o "$package/$program" "$build/$program"
done

# Whatever the loader finds, but for the loader and the C library, which belong together.
ldd "$package"/gpu-* "$package"/tests/* | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
  grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util))\.so[^/]*$' |
  while read -r library; do cp -L "$library" "$package/lib"; done

oldest=$(objdump -T "$package"/gpu-* "$package"/tests/* "$package"/lib/* |
  grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
commit=$(git -C "$root" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
echo "built from $commit for $architectures; needs $oldest and a driver for CUDA 13" | tee "$package/built_from.txt"
du -sh "$package"
