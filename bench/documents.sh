#!/usr/bin/env bash
# Measures what kept documents save and writes a report: bash bench/documents.sh [FOLDER] [-- OPTION...]
#   OPTION...  for every annulusd, for example --kernels cpu/avx512-bf16
# Needs build/annulusd, build/annulus, build/annulus-bench and build/annulus-demo, curl and fio
# (packages of Debian), the right to drop the caches of files (root), 6 GiB of a real disk under
# $TMPDIR (no tmpfs), 8 GiB of memory, and a machine that does nothing else; about half an hour on
# 2 cores. FOLDER (default bench/results) gets
# documents.md, with every command and its table, and documents.jsonl, with every figure.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"
begin documents "$@"
source bench/daemon.sh
need build/annulusd build/annulus build/annulus-demo curl fio
if [[ ! -w /proc/sys/vm/drop_caches ]]; then
  echo 'documents.sh: only root can drop the caches of files, and without that a disk is not what is read' >&2
  exit 1
fi

shape=random:bench/configs/qwen2.5-0.5b.json  # a byte of a text is a token of it
disk=$scratch/kv
drop_caches() { sync && echo 3 >/proc/sys/vm/drop_caches; }

# of KEY: the number or text that the JSON on standard input has under KEY.
of() { grep -o "\"$1\":[^,}]*" | head -1 | cut -d: -f2- | tr -d '" '; }

# ask WHAT DOCUMENT QUESTION OPTION...: asks the daemon, prints a row of a table and sets $answer.
# The caller's own settings of the command line, in XDG_CONFIG_HOME, do not count.
ask() {
  local what=$1
  shift
  answer=$(XDG_CONFIG_HOME=$scratch build/annulus ask "$@" --server "$server" --temperature 0 --digest --json --quiet </dev/null)
  printf '| %s | %s | %s | %s | %s | %.3f s | %.3f s | %.12s |\n' "$what" \
    "$(of prompt_tokens <<<"$answer")" "$(of cached_tokens <<<"$answer")" \
    "$(of restored_tokens <<<"$answer" || echo 0)" "$(of checked_position <<<"$answer" || true)" \
    "$(of time_to_first_token <<<"$answer")" "$(of prefill <<<"$answer")" "$(of digest <<<"$answer")" >>"$tables"
  printf '{"bench":"documents","what":"%s","answer":%s}\n' "$what" "$answer" >>"$rows"
}
first_token() { of time_to_first_token <<<"$answer"; }
asked_table() {
  printf '\n## %s\n\n' "$1"
  printf '| asked | prompt | cached | of it restored | page checked at | first token | prefill | digest |\n'
  printf '|---|--:|--:|--:|--:|--:|--:|---|\n'
} >>"$tables"

# Waits until every page is in each tier, at most two minutes.
wait_for_disk() {
  local turn waiting
  for ((turn = 0; turn < 600; ++turn)); do
    waiting=$(total kv_tier_waiting_pages)
    if [[ $waiting == 0 ]]; then return; fi
    sleep 0.2
  done
  echo 'documents.sh: pages still wait for the disk after two minutes' >&2
  exit 1
}

# read_rate: bytes a second that fio reads in $scratch, past the caches.
read_rate() {
  fio --name=read --directory="$scratch" --rw=read --bs=1M --size=1G --direct=1 --ioengine=libaio \
    --iodepth=8 --output-format=terse --terse-version=3 | awk -F';' '{printf "%.0f\n", $7 * 1024}'
  rm -f "$scratch"/read.*
}

{
  describe 'Kept documents'
  echo
  echo 'The 0.5B shape with random weights on one rank, keys and values as the daemon keeps them by default. Caches of files are'
  echo 'dropped before a daemon reads from its disk again; fio reads the same folder with `direct=1`.'
} >"$tables"

build/annulus-demo --bytes 32000 --seed 3 --facts 1 --out "$scratch/book.txt" >/dev/null
tiered=(--kv-disk "$disk" --kv-disk-size 4GiB)

asked_table 'One document of 32,000 tokens, before and after the daemon is killed'
serve build/annulusd --model "$shape" --ranks 1 --kv-memory 2GiB "${tiered[@]}"
ask 'the first time' "$scratch/book.txt" 'Who keeps the northern lamp?' -n 8
first=$(first_token) digest=$(of digest <<<"$answer")
# Questions differ from their first byte on, or they would share one more page.
ask 'another question' "$scratch/book.txt" 'Name the keeper of the western lamp.' -n 8
second=$(first_token)
alone=()
for question in 'Tell who keeps the eastern lamp.' 'List the lamps that were painted.' \
  'How old is the clock?'; do
  ask 'another, document at hand' "$scratch/book.txt" "$question" -n 8
  alone+=("$(of prefill <<<"$answer")")
done
wait_for_disk
same='the same digest'
# ask_restarted WHAT OPTION...: the first question to a new daemon, after the other one was killed.
ask_restarted() {
  local what=$1
  shift
  stop_daemon -KILL
  drop_caches
  serve build/annulusd --model "$shape" --ranks 1 --kv-memory 2GiB "${tiered[@]}" "$@"
  ask "$what" "$scratch/book.txt" 'Who keeps the northern lamp?' -n 8
  if [[ $(of digest <<<"$answer") != "$digest" ]]; then same='ANOTHER DIGEST'; fi
}
ask_restarted 'after kill -9, from disk, with `--kv-verify off`' --kv-verify off
read_seconds=$(of queue <<<"$answer")  # it waits for its pages before it begins to compute
read_bytes=$(total kv_tier_moved_bytes_total 'way="read"')
ask_restarted 'after kill -9, from disk'
restored=$(first_token)
counted=$(curl -sf "http://$metrics/metrics" | grep '^annulus_kv_tier_.*tier="disk"')
stop_daemon
disk_rate=$(read_rate)
median_alone=$(printf '%s\n' "${alone[@]}" | sort -g | sed -n 2p)
say "The second question took $(ratio "$second" "$median_alone") times what computing a question at this depth takes\
 ($median_alone s, the median of three). After the restart the first token came $(ratio "$first" "$restored") times\
 sooner than the first time, with a page computed again to check the others, and $same. Without that check the\
 request began $read_seconds s after it came: $read_bytes bytes were read and put in place in that time, at\
 $(ratio "$(ratio "$read_bytes" "$read_seconds")" "$disk_rate") of the $disk_rate bytes a second that fio reads."

say 'What the last of these daemons counted of its disk:'
printf '\n```\n%s\n```\n' "$counted" >>"$tables"

# Prompts that nobody sent before, with and without a disk that takes their pages.
rates_without=() rates_with=()
orders=('without with' 'with without')  # in turn, so that a machine that slows down favours neither
for pair in 1 2 3 4 5; do
  for tier in ${orders[pair % 2]}; do
    stop_daemon
    rm -rf "$disk"
    if [[ $tier == with ]]; then
      serve build/annulusd --model "$shape" --ranks 1 --kv-memory 2GiB "${tiered[@]}"
    else
      serve build/annulusd --model "$shape" --ranks 1 --kv-memory 2GiB
    fi
    load "No prompt is known, $tier the disk, pair $pair" --rate 4 --duration 5 --prompt-tokens 512 --max-tokens 16 \
      --seed "$pair"
    declare -n rates=rates_$tier
    rates+=("$(figure requests_per_second)")
  done
done
quotients=$(for pair in 0 1 2 3 4; do ratio "${rates_with[pair]}" "${rates_without[pair]}"; echo; done)
say "Requests a second with the disk, over those without it: $(tr '\n' ' ' <<<"$quotients"), median\
 $(sort -g <<<"$quotients" | sed -n 3p)."

# Twice what the ranks' memory holds, in turn: the second round counts. A document takes 65 pages of
# 64 tokens of 24,576 bytes in float32, as when the committed table was made.
documents=10
for ((document = 1; document <= documents; ++document)); do
  build/annulus-demo --bytes 4000 --seed "$document" --facts 1 --out "$scratch/part$document.txt" >/dev/null
done
rotate() {
  local title=$1 round document start
  shift
  stop_daemon
  rm -rf "$disk"
  serve build/annulusd --model "$shape" --ranks 1 --kv-memory 450MiB --kv-dtype f32 "$@"
  asked_table "$title"
  for round in 1 2; do
    start=$EPOCHREALTIME
    for ((document = 1; document <= documents; ++document)); do
      ask "round $round, document $document" "$scratch/part$document.txt" 'Who keeps the northern lamp?' -n 1
    done
    seconds=$(awk "BEGIN {printf \"%.2f\", $EPOCHREALTIME - $start}")
    if [[ $round == 1 && $# -gt 0 ]]; then
      wait_for_disk
      drop_caches
    fi
  done
  say "The second round took $seconds s."
}
rotate 'Ten documents in turn, room for four: nothing kept below'
computed=$seconds
for tier in "--kv-host 2GiB" "${tiered[*]}"; do
  # shellcheck disable=SC2086
  rotate "Ten documents in turn, room for four: ${tier//"$disk"/DIR}" $tier
  say "That is $(ratio "$computed" "$seconds") times faster than computing them again."
done

# A million tokens of the recall model, which answers by looking a text up: three facts planted in it.
stop_daemon
rm -rf "$disk"
facts=$scratch/facts
build/annulus-demo --bytes 1000000 --seed 7 --at 0.01,0.33,0.99 --out "$scratch/million.txt" >"$facts"
for life in 'before it is killed' 'after kill -9, from disk'; do
  asked_table "The recall model over 1,000,000 tokens, 4 ranks, the daemon $life"
  serve build/annulusd --model builtin:recall --ranks 4 --kv-memory 1100MiB "${tiered[@]}"
  right=0
  while read -r fact; do
    ask "fact at $(of depth <<<"$fact")" "$scratch/million.txt" "$(sed -n 's/.*"cue": *"\([^"]*\)".*/\1/p' <<<"$fact")" \
      -n 64 --stop '\n'
    expected=$(sed -n 's/.*"answer": *"\([^"]*\)".*/\1/p' <<<"$fact")
    if grep -qF "\"text\":\"$expected\"" <<<"$answer"; then right=$((right + 1)); fi
  done <"$facts"
  say "$right of 3 answers are right."
  wait_for_disk
  stop_daemon -KILL
  drop_caches
done

finish
