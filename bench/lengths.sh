#!/usr/bin/env bash
# Measures what length costs and draws it: bash bench/lengths.sh [FOLDER] [-- OPTION...]
#   OPTION...  for every `model`, for example --kernels cpu/avx512-bf16
# Needs build/annulus-bench, and a machine that does nothing else. FOLDER (default bench/results) gets
# lengths.md, with every command and its table, lengths.svg, the chart, and lengths.jsonl, with every
# figure. Variables:
#   LENGTHS      tokens of prompts and before answers (default 512,2048,8192,32768,131072). The
#                longest takes most of the time, half an hour and more on 2 cores
#   PEERS        peers.jsonl of bench/peers.sh, to draw the other programs beside
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"
begin lengths "$@"
lengths=${LENGTHS:-512,2048,8192,32768,131072}
model=(--random bench/configs/qwen2.5-0.5b.json --repeat 1)
{
  describe 'What length costs'
  echo
  echo "Qwen2.5-0.5B's shape, random weights, bf16, one request at a time. The least time is that of the"
  echo 'same FLOPs, or of the same bytes read, at the peak. peak_fraction is of the peak measured beside each run;'
  echo 'the chart takes the highest of them, since a machine that others use, too, gives less at times.'
  echo
  echo '![seconds over length](lengths.svg)'
} >"$tables"
tag '"part":"lengths"' table 'Prompts' model "${model[@]}" --prompt-tokens "$lengths"
tag '"part":"lengths"' table 'Answers' model "${model[@]}" --depth "0,$lengths" --generate 16
if [[ -n ${PEERS-} ]]; then
  grep -h '"length"' "$PEERS" | grep -v '"program": "Annulus"' >>"$rows"
  say "The other programs, by [bench/peers.sh](peers.md): over HTTP or in their own process, as a client sees them."
fi
"$program" chart "$rows" -o "$folder/lengths.svg"
finish
