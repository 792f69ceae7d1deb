#!/usr/bin/env bash
# Times Annulus beside llama.cpp and OpenVINO GenAI: bash bench/peers.sh MODEL.gguf [FOLDER] [-- OPTION...]
#   OPTION...  of bench/peers/compare.py: --llama-server PROGRAM, --openvino PYTHON; --help has the others
# Needs build/annulusd, a machine that does nothing else, and the peers that are to be timed. FOLDER
# (default bench/results) gets peers.jsonl, with every figure; the table goes to the terminal.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if (($# < 1)) || [[ $1 == -* ]]; then
  sed -n '2,6s/^# \{0,1\}//p' bench/peers.sh
  exit 2
fi
model=$1
shift
folder=bench/results
if (($# > 0)) && [[ $1 != -- ]]; then
  folder=$1
  shift
fi
mkdir -p "$folder"
exec python3 bench/peers/compare.py --model "$model" --rows "$folder/peers.jsonl" "${@:2}"
