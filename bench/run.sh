#!/usr/bin/env bash
# Measures everything and writes the tables: bash bench/run.sh [--long] [FOLDER] [-- OPTION...]
#   --long     also the long prompts and depths: 16,384 to 131,072 tokens
#   OPTION...  for every `model` and `attention`, for example --kernels cpu/avx512-bf16 --peak bf16
# Needs build/annulus-bench, and a machine that does nothing else. FOLDER (default bench/results)
# gets tables.md, with every command and its table, and tables.jsonl, with every figure.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"
long=
if [[ ${1-} == --long ]]; then
  long=yes
  shift
fi
begin tables "$@"

model() {
  local title=$1 config=$2
  shift 2
  table "$title" model --random "bench/configs/$config.json" "$@"
}

describe 'Measured tables' >"$tables"
table "The machine's ceilings" peak

prompts=512,2048,8192 depths=0,8192
if [[ -n $long ]]; then prompts=$prompts,16384,32768 depths=$depths,16384,32768; fi
model 'Qwen2.5-0.5B, bf16' qwen2.5-0.5b --prompt-tokens "$prompts" --depth "$depths"
for dtype in int8 int4_g32; do
  model "Qwen2.5-0.5B, $dtype" qwen2.5-0.5b --prompt-tokens 512,2048 --depth 0 \
    --weights-dtype "$dtype"
done
for ranks in 2 4 8; do
  model "Qwen2.5-0.5B, bf16, a ring of $ranks" qwen2.5-0.5b --prompt-tokens 8192 --depth 0 \
    --ranks "$ranks" --repeat 3
done
model 'Llama-3.2-1B, bf16' llama-3.2-1b --prompt-tokens 512,2048 --depth 0
for dtype in int8 int4_g32; do
  model "Llama-3.2-1B, $dtype" llama-3.2-1b --prompt-tokens 512 --depth 0 --weights-dtype "$dtype"
done
if [[ -n $long ]]; then
  model 'Qwen2.5-0.5B, bf16, 131,072 tokens' qwen2.5-0.5b --prompt-tokens 131072 --repeat 1
fi

sequences=8192,16384
if [[ -n $long ]]; then sequences=$sequences,32768,65536; fi
for dtype in bf16 int8 fp8_e4m3; do
  table "Attention alone, $dtype keys and values" attention --seq "$sequences" --heads 14 \
    --kv-heads 2 --head-dim 64 --kv-dtype "$dtype" --decode
done
table 'Attention alone, head_dim 128' attention --seq 8192 --heads 16 --kv-heads 4 --head-dim 128 \
  --decode
for ranks in 2 4 8; do
  table "Attention alone, a ring of $ranks" attention --seq 8192 --heads 14 --kv-heads 2 \
    --head-dim 64 --ranks "$ranks"
done
sparse=16384
if [[ -n $long ]]; then sparse=16384,65536; fi
for density in 0.5 0.1 0.05; do
  table "Policies at density $density" attention --seq "$sparse" --heads 8 --kv-heads 8 \
    --head-dim 64 --policy window random --density "$density"
done

finish
