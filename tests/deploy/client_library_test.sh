#!/usr/bin/env bash
# The client library as it is installed serves a program of somebody else, found by CMake and by pkg-config:
# client_library_test.sh BUILD. The program asks a daemon.
set -euo pipefail

build=$(realpath "$1")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d)
daemon=
finish() {
  if [[ -n $daemon ]]; then
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" || true
  fi
  rm -rf "$folder"
}
trap finish EXIT

bash "$root/deploy/build.sh" "$build" client_library annulusd
cmake --install "$build" --component client --prefix "$folder/prefix" >"$folder/install.log"
if grep -rl "$root" "$folder/prefix/lib/cmake" "$folder/prefix/lib/pkgconfig"; then
  echo 'these name the folder of the sources'
  exit 1
fi
mv "$folder/prefix" "$folder/moved"  # what is installed may be moved
cmake -S "$root/tests/deploy/consumer" -B "$folder/cmake" -DCMAKE_PREFIX_PATH="$folder/moved" >"$folder/configure.log" || {
  cat "$folder/configure.log"
  exit 1
}
cmake --build "$folder/cmake" >"$folder/build.log" || {
  cat "$folder/build.log"
  exit 1
}
export PKG_CONFIG_PATH=$folder/moved/lib/pkgconfig
read -ra flags < <(pkg-config --cflags annulus-client)
read -ra libraries < <(pkg-config --libs annulus-client)
c++ -std=c++20 "${flags[@]}" "$root/tests/deploy/consumer/consumer.cc" -o "$folder/by-pkg-config" "${libraries[@]}"

env -i "$build/annulusd" --listen 127.0.0.1:0 --metrics off --kv-memory 64MiB 2>"$folder/daemon.log" &
daemon=$!
for _ in {1..300}; do
  if grep -q ' ready ' "$folder/daemon.log"; then break; fi
  sleep 0.1
done
port=$(sed -n 's/.* ready .* port=\([0-9]*\) .*/\1/p' "$folder/daemon.log")
[[ -n $port ]] || {
  cat "$folder/daemon.log"
  exit 1
}
text='one two three one two '
wanted=$("$build/annulus" complete "$text" --max-tokens 8 --server "127.0.0.1:$port" 2>/dev/null)
for program in "$folder/cmake/consumer" "$folder/by-pkg-config"; do
  answer=$("$program" "127.0.0.1:$port" "$text")
  [[ $answer == "$wanted"* && -n $answer ]] || {
    echo "$program says '$answer', and annulus '$wanted'"
    exit 1
  }
done
echo "both programs say '$answer'"
