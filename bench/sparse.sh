#!/usr/bin/env bash
# Measures attention policies and writes a report: bash bench/sparse.sh [FOLDER] [-- OPTION...]
#   OPTION...  for every `model` and `attention`, for example --kernels cpu/avx512-bf16 --peak bf16
# Needs build/annulus-bench, and a machine that does nothing else; under 10 minutes on 2 cores. FOLDER
# (default bench/results) gets sparse.md, with every command and its table, sparse.svg, a chart of
# them, and sparse.jsonl, with every figure.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"
begin sparse "$@"

shape=(--heads 8 --kv-heads 8 --head-dim 64 --kv-dtype bf16)
lists=(window strided global_local random dilated_blocks)
content=(adaptive adaptive:coverage=0.95 adaptive:estimator=pooled learned hierarchical top_pages)
{
  describe 'Block-sparse attention'
  echo
  echo 'One layer of 8 heads of 64 channels, bf16 keys and values, every row of a causal sequence.'
  echo 'Each table has the warmed dense run of the same kernel first; ratios compare neighbours in'
  echo 'time. Of long sequences some chunks of rows run, evenly spread, and the time of all is'
  echo 'inferred from their share of the attended pairs; memory is that of the whole sequence.'
  echo 'Policies that choose from content are timed with what choosing costs: estimate_share of dense.'
  echo 'Errors, coverage and the least density that has 0.95 of the attention are of heads with a'
  echo 'known structure (sinks, bands, lines, slashes, heavy blocks), drawn from seeds.'
  echo
  echo '![time and ratio to dense over length](sparse.svg)'
} >"$tables"

short=1024,2048,4096,8192,16384,32768,65536
table 'Density 0.1' attention --seq "$short" "${shape[@]}" --policy "${lists[@]}" --density 0.1 \
  --most-chunks 8 --repeat 3 --quality
table 'Dilated: segments 2,048, 4,096 and 8,192, rates 1, 2 and 4' attention --seq "$short" \
  "${shape[@]}" --policy dilated --most-chunks 8 --repeat 3 --quality
table 'Chosen from content' attention --seq 4096,16384,32768,65536 "${shape[@]}" \
  --policy "${content[@]}" --most-chunks 8 --repeat 1 --quality
"$program" chart "$rows" -o "$folder/sparse.svg"
table 'Long sequences, density 0.1' attention --seq 40960,131072,262144,483328 "${shape[@]}" \
  --policy "${lists[@]}" --density 0.1 --most-chunks 4 --repeat 1
table 'Long sequences, chosen from content' attention --seq 40960,131072 "${shape[@]}" \
  --policy adaptive adaptive:coverage=0.95 top_pages --most-chunks 4 --repeat 1
table 'Long sequences, dilated with segments for their length' attention \
  --seq 40960,131072,262144,483328 "${shape[@]}" --policy dilated:segments=auto --most-chunks 4 \
  --repeat 1
for density in 0.5 0.2 0.05; do
  table "65,536 tokens, density $density" attention --seq 65536 "${shape[@]}" --policy window \
    strided random --density "$density" --most-chunks 8 --repeat 3
done
table 'Lists of a million tokens: list_share is their share of the time' attention --seq 1048576 \
  "${shape[@]}" --policy window strided global_local --density 0.05 --most-chunks 2 --repeat 1
table 'Reuse of block lists (pattern_hits) in steady serving, 4 ranks' model \
  --random bench/configs/qwen2.5-0.5b.json --prompt-tokens 2048 --depth 2048 --generate 64 \
  --ranks 4 --attention strided --repeat 3

finish
