#!/usr/bin/env bash
# From a bare Debian 12 to an answer: bash deploy/quickstart.sh [--keep] [--ranks N]
#   --keep      leave the second daemon running and say how to talk to it
#   --ranks N   spread each document over N ranks instead of 4; "1,2,4,8" tries each in turn in the
#               second part
# Installs the missing packages (root or sudo) and builds in build/. First part: a small language
# model (98 MB, from PyPI) answers three questions about a report of about 4,000 tokens. Second part:
# the builtin recall model finds three facts in a document of 1,000,000 bytes, which are as many
# tokens. A second run skips what is done.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
state=$build/quickstart
document=$state/document.txt
facts=$state/facts.jsonl
report=$root/deploy/ferry-report.txt
log=$state/annulusd.log
running=$state/running # pid, address and ranks of a daemon that --keep left
document_bytes=1000000
# A token of the recall model holds 1024 bytes of float32 keys and values in layer 1: 1.024e9 bytes
# for the document. The rest is for layer 0's window, the question and the answer.
kv_memory=1100MiB
all_ranks=(4)
ranks=
keep=
daemon_pid=  # of the daemon that serves
started_pid= # the same if this run started it
address=

say() { printf '%s\n' "$*"; }
step() { printf '\n== %s\n' "$*"; }

fail() {
  printf '\nquickstart: %s\n' "$*" >&2
  exit 1
}

# Whether the process is the daemon of this build.
is_daemon() {
  [[ $(readlink "/proc/$1/exe" 2>/dev/null) == "$build/annulusd"* ]]
}

stop_daemon() {
  local pid=$1 tenths
  kill -TERM "$pid" 2>/dev/null || return 0
  for ((tenths = 0; tenths < 100; ++tenths)); do
    is_daemon "$pid" || return 0
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null || true
}

clean_up() {
  local status=$?
  if [[ -n $started_pid ]] && { [[ -z $keep ]] || ((status != 0)); }; then
    stop_daemon "$started_pid"
    forget_daemon "$started_pid"
  fi
}

# Removes the note of a daemon that runs, if it is of this process.
forget_daemon() {
  local pid rest
  if [[ -e $running ]] && read -r pid rest <"$running" && [[ $pid == "$1" ]]; then rm -f "$running"; fi
}

port_is_taken() {
  (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# The first free port from the given one on.
free_port() {
  local port
  for ((port = $1; port < $1 + 100; ++port)); do
    if ! port_is_taken "$port"; then
      echo "$port"
      return
    fi
  done
  fail "all ports from $1 to $port are taken"
}

is_serving() {
  local status
  status=$("$build/annulus" status --server "$1" --timeout 5 2>/dev/null) || return 1
  [[ $status == *', serving,'* ]]
}

# Takes over the daemon that an earlier --keep left, unless the program has changed since.
adopt_daemon() {
  local pid at with
  [[ -e $running ]] && read -r pid at with <"$running" && is_daemon "$pid" || return 1
  if [[ $build/annulusd -nt $running || $with != "$ranks" ]] || ! is_serving "$at"; then
    say "Stopping the daemon of an earlier run (process $pid): it is out of date."
    stop_daemon "$pid"
    return 1
  fi
  daemon_pid=$pid address=$at keep=yes
  say "The daemon of an earlier run still serves at $address (process $pid)."
}

# start_daemon MODEL KV-MEMORY
start_daemon() {
  local port metrics deadline
  port=$(free_port 50051)
  metrics=$(free_port 9464)
  address=127.0.0.1:$port
  say "build/annulusd --model ${1#"$root/"} --ranks $ranks --kv-memory $2" \
    "--listen $address --metrics 127.0.0.1:$metrics"
  # A session of its own, so that Ctrl-C here reaches it only through clean_up.
  setsid "$build/annulusd" --model "$1" --ranks "$ranks" \
    --kv-memory "$2" --listen "$address" --metrics "127.0.0.1:$metrics" >"$log" 2>&1 </dev/null &
  daemon_pid=$!
  started_pid=$daemon_pid
  deadline=$((SECONDS + 60))
  until is_serving "$address"; do
    if ! kill -0 "$daemon_pid" 2>/dev/null; then
      tail -n 20 "$log" >&2
      started_pid=
      fail "the daemon ended at once; the end of its log is above ($log)"
    fi
    if ((SECONDS > deadline)); then
      tail -n 20 "$log" >&2
      fail "the daemon is not healthy after 60 s; the end of its log is above ($log)"
    fi
    sleep 0.1
  done
  say "Serving (process $daemon_pid, log $log)."
}

# The value of a string field of one line of JSON.
json_field() {
  local value
  value=$(sed -n "s/.*\"$2\": *\"\(\([^\"\\\\]\|\\\\.\)*\)\".*/\1/p" <<<"$1")
  printf '%b' "$value"
}

# Seconds with two decimals since a value of EPOCHREALTIME.
seconds_since() {
  local now=$EPOCHREALTIME hundredths
  hundredths=$(((${now/[.,]/} - ${1/[.,]/}) / 10000))
  printf '%d.%02d' $((hundredths / 100)) $((hundredths % 100))
}

# ask_report WORDS QUESTION: asks about the report; the answer must have the words in it.
ask_report() {
  local answer
  step "$2"
  say "build/annulus ask deploy/ferry-report.txt '$2' --temperature 0 --max-tokens 40 --timings"
  answer=$("$build/annulus" ask "$report" "$2" --server "$address" --temperature 0 \
    --max-tokens 40 --timings) ||
    fail "the call failed; the daemon's log is $log"
  say "answer:   $answer"
  if [[ $answer == *"$1"* ]]; then
    say 'right.'
  else
    say "WRONG; expected: $1"
    wrong=$((wrong + 1))
  fi
}

# The first part: a language model and a report that fits its context.
language_session() {
  local model status=0 wrong=0 start
  step 'First part: a small language model'
  model=$(bash deploy/fetch_model.sh "$build/models") || status=$?
  if ((status == 3)); then
    say "The model could not be downloaded (the reason is above), so the first part is skipped."
    return
  fi
  ((status == 0)) || fail 'the downloaded model is not the expected one (the reason is above)'
  say "$(basename "$model"): SmolLM2, 135 million parameters, Apache-2.0"
  start_daemon "$model" 512MiB
  start=$EPOCHREALTIME
  ask_report 'Ingrid Halvorsen' 'Who is the captain of the Marigold?'
  ask_report '640,000' 'What did the new engine cost?'
  ask_report '1953' 'In which year was the company founded?'
  step "$((3 - wrong)) of 3 answers are right, after $(seconds_since "$start") s"
  ((wrong == 0)) || fail 'that is a bug: please report it with the output above'
  say "So small a model reads a plain sentence out of a document, and fails if it must
compare, count or combine. engine/model/MODELS.md lists larger ones."
  stop_daemon "$daemon_pid"
  started_pid=
}

# Asks for every fact; fails unless all answers are right.
ask_facts() {
  local line cue expected answer asked=0 right=0 start=$EPOCHREALTIME first=
  while read -r line <&3; do
    cue=$(json_field "$line" cue)
    expected=$(json_field "$line" answer)
    asked=$((asked + 1))
    step "Question $asked, planted at $(sed -n 's/.*"depth": *\([0-9.]*\).*/\1/p' <<<"$line") of the document"
    say "build/annulus ask build/quickstart/document.txt '$cue' --temperature 0 --max-tokens 64" \
      "--stop '\\n' --timings"
    answer=$("$build/annulus" ask "$document" "$cue" --server "$address" --temperature 0 \
      --max-tokens 64 --stop '\n' --timings) || fail "the call failed; the daemon's log is $log"
    [[ -n $first ]] || first=$(seconds_since "$start")
    say "answer:   $answer"
    if [[ $answer == "$expected" ]]; then
      right=$((right + 1))
      say 'right.'
    else
      say "WRONG; expected: $expected"
    fi
  done 3<"$facts"
  step "$right of $asked answers are right with --ranks $ranks: the first after $first s, all\
 after $(seconds_since "$start") s"
  ((asked > 0 && right == asked)) || fail 'that is a bug: please report it with the output above'
}

explain() {
  say "The recall model is a demonstration, not a language model: its weights are computed, not
trained. It reads bytes and continues your text with what followed the same words earlier in the
document. But the computation is real: the keys and values of the document are spread over $ranks ranks,
and attention over all of it is exact.

To serve a language model, name a GGUF file or a Hugging Face directory (config.json, *.safetensors,
tokenizer.json; engine/model/MODELS.md lists the families):
  build/annulusd --model /path/to/model --ranks $ranks"
  if [[ -n $keep ]]; then
    say "
The daemon keeps running. Talk to it:
  export ANNULUS_SERVER=$address
  build/annulus ask build/quickstart/document.txt '$(json_field "$(head -n 1 "$facts")" cue)' --temperature 0 --stop '\\n'
  build/annulus status
Stop it:
  kill $daemon_pid"
  fi
}

usage() {
  sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit "$1"
}

parse_arguments() {
  while (($# > 0)); do
    case $1 in
      --keep) keep=yes ;;
      --ranks)
        [[ ${2-} =~ ^[1-9][0-9]*(,[1-9][0-9]*)*$ ]] || usage 2
        IFS=, read -ra all_ranks <<<"$2"
        shift
        ;;
      --help) usage 0 ;;
      *) usage 2 ;;
    esac
    shift
  done
}

make_document() {
  if [[ ! -e $facts || $build/annulus-demo -nt $facts ||
    $(stat -c %s "$document" 2>/dev/null) != "$document_bytes" ]]; then
    "$build/annulus-demo" --bytes "$document_bytes" --seed 7 --at 0.01,0.33,0.99 \
      --out "$document" >"$facts.new"
    mv "$facts.new" "$facts"
  fi
  say "$document: $document_bytes bytes, three facts planted"
}

# One daemon on $ranks ranks, all questions.
session() {
  step 'Daemon'
  if ! adopt_daemon; then
    start_daemon builtin:recall "$kv_memory"
    echo "$daemon_pid $address $ranks" >"$running"
  fi
  ask_facts
  "$build/annulus" status --server "$address"
}

main() {
  local turn
  parse_arguments "$@"
  cd "$root"
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM

  step 'Packages'
  bash deploy/setup.sh build session
  step 'Build (the first takes some minutes)'
  # Without tests: their libraries are not among the packages that serving needs.
  bash deploy/build.sh "$build" annulusd annulus annulus-tokenize annulus-demo -- -DCMAKE_BUILD_TYPE=Release \
    -DANNULUS_BUILD_TESTS=OFF
  mkdir -p "$state"
  ranks=${all_ranks[0]}
  language_session
  step 'Second part: a million tokens'
  make_document
  for ((turn = 0; turn < ${#all_ranks[@]}; ++turn)); do
    ranks=${all_ranks[turn]}
    session
    # The next daemon takes the place of this one.
    if ((turn + 1 < ${#all_ranks[@]})); then
      stop_daemon "$daemon_pid"
      forget_daemon "$daemon_pid"
      started_pid=
    fi
  done
  step 'What you saw'
  explain
}

main "$@"
