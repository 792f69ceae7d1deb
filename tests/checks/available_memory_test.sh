#!/usr/bin/env bash
# deploy/available_memory.sh on recorded machines.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
machine=

# A new machine with 8 GB, of which 4,096,000 bytes are available.
begin() {
  machine=$work/$1
  write proc/meminfo $'MemTotal: 8000000 kB\nMemAvailable: 4000 kB'
  write proc/self/mountinfo '23 1 254:0 / / rw - ext4 /dev/vda rw'
}
write() {
  mkdir -p "$(dirname "$machine/$1")"
  printf '%s\n' "$2" >"$machine/$1"
}
mount_groups() {
  printf '32 31 0:29 %s %s rw,relatime shared:9 - %s cgroup %s\n' "$@" >>"$machine/proc/self/mountinfo"
}
expect() {
  local got
  got=$(bash "$root/deploy/available_memory.sh" "$machine")
  if [[ $got != "$1" ]]; then
    echo "${machine##*/}: expected $1, got $got"
    failed=1
  fi
}

begin none
write proc/self/cgroup '0::/'
expect 4096000

begin version2
write proc/self/cgroup '0::/slice/box'
mount_groups / /sys/fs/cgroup cgroup2 rw
write sys/fs/cgroup/slice/box/memory.max max
write sys/fs/cgroup/slice/box/memory.current 500000
write sys/fs/cgroup/slice/memory.max 3000000
write sys/fs/cgroup/slice/memory.current 1000000
expect 2000000
write sys/fs/cgroup/slice/memory.stat $'file 700000\ninactive_file 600000'
expect 2600000
write sys/fs/cgroup/slice/box/memory.high 1500000
expect 1000000

begin version1
write proc/self/cgroup $'4:hugetlb,memory:/docker/0a1b\n0::/'
mount_groups /docker/0a1b /sys/fs/cgroup/memory cgroup rw,hugetlb,memory
mount_groups / /sys/fs/cgroup/unified cgroup2 rw
write sys/fs/cgroup/memory/memory.limit_in_bytes 9223372036854771712
write sys/fs/cgroup/memory/memory.usage_in_bytes 1000000
expect 4096000
write sys/fs/cgroup/memory/memory.limit_in_bytes 2000000
expect 1000000
write sys/fs/cgroup/memory/memory.usage_in_bytes 3000000
expect 0

begin namespace
write proc/self/cgroup '0::/../other'
mount_groups / /sys/fs/cgroup cgroup2 rw
write sys/fs/cgroup/memory.max 1000000
expect 1000000

exit "$failed"
