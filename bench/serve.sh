#!/usr/bin/env bash
# Measures serving and writes a report: bash bench/serve.sh [FOLDER] [-- OPTION...]
#   OPTION...  for every annulusd, for example --kernels cpu/avx512-bf16
# Needs build/annulusd and build/annulus-bench, and a machine that does nothing else; about an hour on
# 2 cores. FOLDER (default bench/results) gets serve.md, with every command and its table, and
# serve.jsonl, with every figure. Variables:
#   OVERLOAD_SECONDS  of the overload (default 600)
#   TRACE_SECONDS     of each mixed trace (default 180)
#   OTHER_ANNULUSD    another build of the daemon, for the mixed trace beside this one
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"
begin serve "$@"
source bench/daemon.sh

{
  describe 'Serving'
  echo
  echo 'Requests arrive at random, whatever became of others (an open loop); latencies count from the'
  echo 'time a request was due. Prompts are random ids, answers have a fixed length.'
} >"$tables"

shape=random:bench/configs/qwen2.5-0.5b.json
for ranks in 1 4; do
  serve build/annulusd --model "$shape" --ranks "$ranks" --kv-memory 2GiB
  load "A prompt of 32K tokens beside a stream and short requests, $ranks ranks (stall budget 250 ms)" \
    --beside-prompt 32000 --rate 0.2 --prompt-tokens 200 --max-tokens 1 --stream-tokens 20000
done

table 'Decode at depth 512: streams share the weights that are read' model \
  --random bench/configs/qwen2.5-0.5b.json --depth 512 --generate 32 --streams 1,8,32 --ranks 1,4 --repeat 3

# What the daemon does at most, then five times that with a deadline.
serve build/annulusd --model "$shape" --ranks 1 --kv-memory 2GiB
load 'Capacity: more than can be served, without deadlines' --rate 20 --duration 10 --prompt-tokens 512 \
  --max-tokens 16
peak=$(figure requests_per_second)
serve build/annulusd --model "$shape" --ranks 1 --kv-memory 2GiB --max-waiting 64
load "5 times overload, ${OVERLOAD_SECONDS:-600} s, deadline 10 s (peak $peak requests a second)" \
  --rate "$(awk "BEGIN {print 5 * $peak}")" --duration "${OVERLOAD_SECONDS:-600}" --prompt-tokens 512 \
  --max-tokens 16 --deadline 10
{
  printf '\nWhat the daemon counted, and its memory:\n\n```\n'
  curl -s "http://$metrics/metrics" |
    grep -E '^(annulus_requests_(offered|settled|open)|process_resident_memory_bytes)'
  printf '```\n'
} >>"$tables"

# Lengths from 200 tokens to 128K at 0.8 of what the daemon can read.
small=random:bench/configs/small.json
serve build/annulusd --model "$small" --ranks 1 --kv-memory 2GiB
load 'Capacity of the mixed trace' --rate 5 --duration 20 --prompt-tokens 200 --longest-prompt 131072 --max-tokens 16
rate=$(awk "BEGIN {print 0.8 * $(figure requests_per_second)}")
for seed in 1 2 3 4 5; do
  for program_of in build/annulusd ${OTHER_ANNULUSD:+"$OTHER_ANNULUSD"}; do
    serve "$program_of" --model "$small" --ranks 1 --kv-memory 2GiB
    load "Mixed trace, seed $seed, by $(basename "$(dirname "$program_of")")/annulusd" --rate "$rate" \
      --duration "${TRACE_SECONDS:-180}" --prompt-tokens 200 --longest-prompt 131072 --max-tokens 16 --seed "$seed"
  done
done

finish
