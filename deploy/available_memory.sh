#!/usr/bin/env bash
# Prints the bytes of memory that this process may still take: what the machine has left, or a control
# group (cgroups(7), version 1 or 2) of the process, if that has less. deploy/available_memory.sh [ROOT]
# ROOT is put before all paths, so that tests can show another machine's files.
set -euo pipefail
top=${1-}

# Folders of all groups that can limit this process: its own group first, then its parents.
memory_groups() {
  local root folder rest kind group way
  while read -r _ _ _ root folder rest; do
    kind=${rest#* - }
    case $kind in
      cgroup2\ *) group=$(sed -n 's/^0:://p' "$top/proc/self/cgroup") ;;
      cgroup\ *)
        [[ ,${kind##* }, == *,memory,* ]] || continue
        group=$(sed -nE 's/^[0-9]+:([^:]*,)?memory(,[^:]*)?://p' "$top/proc/self/cgroup")
        ;;
      *) continue ;;
    esac
    [[ $root != / ]] || root=
    way=
    # If the mount does not show the group, the mount's root takes its place.
    if [[ $group/ == "$root"/* && $group != */..* ]]; then way=${group#"$root"}; fi
    way=${way%/}
    while :; do
      echo "$folder$way"
      [[ -n $way ]] || break
      way=${way%/*}
    done
  done <"$top/proc/self/mountinfo"
}

number() {
  local text
  text=$(cat "$1" 2>/dev/null || true)
  # Version 1 says "no limit" with a number near 2^63.
  if [[ $text =~ ^[0-9]+$ ]] && ((${#text} < 19)); then echo "$text"; fi
}

kilobytes=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' "$top/proc/meminfo")
bytes=$((kilobytes * 1024))
while read -r folder; do
  folder=$top$folder
  used=$(number "$folder/memory.current")
  if [[ -z $used ]]; then used=$(number "$folder/memory.usage_in_bytes"); fi
  # The system drops cached files before it stops a process.
  cached=$(sed -nE 's/^(total_)?inactive_file ([0-9]+)$/\2/p' "$folder/memory.stat" 2>/dev/null |
    sort -n | tail -1 || true)
  for name in max high limit_in_bytes; do
    limit=$(number "$folder/memory.$name")
    [[ -n $limit ]] || continue
    left=$((limit - ${used:-0} + ${cached:-0}))
    if ((left < bytes)); then bytes=$left; fi
  done
done < <(memory_groups)
echo "$((bytes > 0 ? bytes : 0))"
