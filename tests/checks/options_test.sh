#!/usr/bin/env bash
# Tries options.sh on a small tree: every planted violation must be reported, and nothing else.
set -euo pipefail

check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/options.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# plant HEADER LINE: one option with a reader, and a header with a member.
plant() {
  rm -rf "${tree:?}"/*
  mkdir -p "$tree"/{engine/{api,ring},server/config}
  cd "$tree"
  echo '  visit("room", "N", "Rooms.", &E::room, option::Within{1, 64});' >engine/api/options.h
  touch server/config/{server_config.h,{device,engine,service}_options.cc}
  echo '  return options.room;' >engine/ring/a.cc
  printf '%s\n' "$2" >"$1"
}

expect() {
  local wanted=$1 status=0 output
  output=$(bash "$check" "$tree") || status=$?
  if ((status != wanted)); then
    printf 'expected %s, got %s: %s\n%s\n' "$wanted" "$status" "$2" "$output"
    failures=$((failures + 1))
  fi
}

for member in 'int room;' 'int room = 0;' 'int room = 1;' 'int room{};' 'int room = EngineOptions().room;' \
  'int rooms = 7;' 'return room;'; do
  plant engine/ring/a.h "  $member"
  expect 0 "$member"
done
for member in 'int room = 7;' 'std::chrono::milliseconds room{30};' 'std::optional<int> room = 7;'; do
  for header in engine/ring/a.h server/config/server_config.h; do
    plant "$header" "  $member"
    expect 1 "$header: $member"
  done
done
plant engine/ring/a.cc '  return options.rooms;'
expect 1 'nobody reads it'

if ((failures > 0)); then exit 1; fi
echo "every planted violation was reported"
