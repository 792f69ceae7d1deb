#!/usr/bin/env bash
# Measures what each saving costs in quality, and writes a report:
#   ANNULUS_TEXTS=FOLDER bash bench/quality.sh [FOLDER]
# Needs build/annulus-bench, the quickstart's model (deploy/fetch_model.sh brings it) and two novels,
# moby_dick_utf8.txt and war_and_peace.txt, in $ANNULUS_TEXTS; over an hour on 2 cores, which may
# have other work. FOLDER (default bench/results) gets quality.md, with every command and its table,
# quality.svg, a chart of them, and quality.jsonl, with every figure.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"
begin quality "$@"

folder_of_texts=$(realpath "${ANNULUS_TEXTS:?is not set: the folder of the two novels}")
model=$(bash deploy/fetch_model.sh build/models)
mkdir -p build/texts
# What stands before the first chapter, title pages and contents, is no prose.
# prose_of FILE FIRST-WORDS NAME: from the line on that begins with these words.
prose_of() {
  sed -n "/^$2/,\$p" "$folder_of_texts/$1" >"build/texts/$3"
  if [[ ! -s build/texts/$3 ]]; then
    echo "quality.sh: no line of $folder_of_texts/$1 begins with: $2" >&2
    exit 1
  fi
}
prose_of moby_dick_utf8.txt 'Call me Ishmael' moby_dick_prose.txt
prose_of war_and_peace.txt '"Well, Prince, so Genoa' war_and_peace_prose.txt
moby=build/texts/moby_dick_prose.txt
war=build/texts/war_and_peace_prose.txt

# quality TITLE OPTION...: compares with f32 weights, f32 keys and values and dense attention.
quality() {
  local title=$1
  shift
  table "$title" quality --model "$model" "$@"
}

{
  describe 'What each saving costs'
  echo
  echo 'SmolLM2-135M-Instruct (the GGUF file that `deploy/fetch_model.sh` brings, its 4-bit matrices read'
  echo 'exactly as f32) over the beginnings of two novels, from their first chapters on. Each row differs in one thing'
  echo 'from the reference: f32 weights, f32 keys and values, dense attention.'
  echo
  echo '- `density` counts a pair of row and key once for each branch that attends it. The branches of `dilated`'
  echo '  overlap, so its density can exceed 1.'
  echo '- `global_local` equals `window` here: one global block of 64 tokens holds the same keys as 64 sinks.'
  echo '- `top_pages` skips keys in answers only and leaves the perplexity of a text unchanged; its answers are in'
  echo '  the last table.'
  echo '- `auto` has no row: it chooses dense, `adaptive` or `learned` for each request, and costs what its choice costs.'
  echo
  echo '![divergence over length](quality.svg)'
} >"$tables"

lengths=2048,4096,8192
quality 'Weights' --text "$moby" "$war" --tokens "$lengths" --weights-dtype bf16,int8,int4_g32,fp8_e4m3,q4_1
quality 'Weights, and inputs of layers in int8' --text "$moby" "$war" --tokens "$lengths" \
  --weights-dtype q4_1,int8,int4_g32 --activations int8
quality 'Keys and values' --text "$moby" "$war" --tokens "$lengths" --kv-dtype bf16,int8,fp8_e4m3
quality 'Attention policies' --text "$moby" "$war" --tokens "$lengths" --attention window:window=512 \
  global_local:window=512 strided random dilated dilated_blocks hierarchical
quality 'Attention under a coverage contract' --text "$moby" "$war" --tokens "$lengths" --attention \
  adaptive:coverage=0.9 adaptive:coverage=0.95 adaptive:coverage=0.99 adaptive:estimator=pooled,coverage=0.95

# Gates learn from one novel and are judged on the other.
gates=build/texts/gates.safetensors
rm -f "$gates"
table 'Gates of the policy learned, fitted on one novel' gates --model "$model" --document "$moby" --tokens 8192 \
  -o "$gates"
quality 'The policy learned, on the other novel' --text "$war" --tokens "$lengths" --attention-gates "$gates" \
  --attention learned learned:coverage=0.95

quality 'Facts planted at ten depths, asked for in the chat template' --text "$moby" "$war" --tokens 1024,4096 \
  --needles 10 --weights-dtype q4_1,int8,int4_g32 --kv-dtype int8,fp8_e4m3 \
  --attention window:window=512 strided hierarchical adaptive:coverage=0.95 top_pages
"$program" chart "$rows" -o "$folder/quality.svg"

finish
