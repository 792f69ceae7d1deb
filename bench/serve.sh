#!/usr/bin/env bash
# Measures serving and writes a report: bash bench/serve.sh [FOLDER] [-- OPTION...]
#   OPTION...  for every annulusd and `model`, for example --kernels cpu/avx512-bf16
# Needs build/annulusd and build/annulus-bench, curl, and a machine that does nothing else; about an
# hour on 2 cores, with OTHER_ANNULUSD. FOLDER (default bench/results) gets serve.md, with every
# command and its table, serve.svg, charts of them, and serve.jsonl, with every figure. Variables:
#   PARTS             what to measure, for example PARTS='mixed overload' (default: all of
#                     'decode cascade lookup beside overload mixed'). Of parts that are left out, the
#                     report keeps what an earlier run wrote into FOLDER
#   RANKS             numbers of ranks, for example RANKS=1 (default: '1 4'). A part that is measured
#                     again loses its figures for others
#   OTHER_ANNULUSD    another build of the daemon, for the mixed trace beside this one
#   OVERLOAD_SECONDS  of the overload (default: 600 with one rank, 60 with more)
#   TRACE_SECONDS     of each mixed trace (default 45)
set -euo pipefail

# shellcheck disable=SC2034
keep_rows=yes  # begin leaves those of other parts
source "$(dirname "${BASH_SOURCE[0]}")/tables.sh"
all_parts='decode cascade lookup beside overload mixed'
parts=${PARTS:-$all_parts}
ranks=${RANKS:-1 4}
for part in $parts; do
  if [[ " $all_parts " != *" $part "* ]]; then
    echo "serve.sh: PARTS has '$part', which is no part; known: $all_parts" >&2
    exit 2
  fi
done
other=${OTHER_ANNULUSD:+$(realpath "$OTHER_ANNULUSD")}
begin serve "$@"
source bench/daemon.sh
need build/annulusd curl ${other:+"$other"}
report=$tables report_rows=$rows chart=$folder/serve.svg

shape=random:bench/configs/qwen2.5-0.5b.json
trace=random:bench/configs/trace.json

# count_of N: "1 rank", "4 ranks".
count_of() { printf '%s rank' "$1"; if [[ $1 != 1 ]]; then printf s; fi; }

# of_load KEY: of the last row of totals.
of_load() { grep '"succeeded":' "$rows" | tail -1 | grep -o "\"$1\":[0-9.e+-]*" | cut -d: -f2; }

# latency NAME KEY: of the last row about that latency; empty if no request succeeded.
latency() {
  grep "\"latency\":\"$1\"" "$rows" | tail -1 | grep -o "\"$2\":[0-9.e+-]*" | cut -d: -f2 || true
}

# measured NAME KEY: the same of the last row that says that it measured this.
measured() {
  grep "\"measured\":\"$1\"" "$rows" | tail -1 | grep -o "\"$2\":[0-9.e+-]*" | cut -d: -f2 || true
}

# The bound, in seconds, below which the daemon gave 99 of 100 refusals; "-" if it refused nobody.
refusal_p99() {
  curl -s "http://$metrics/metrics" | awk '
    /^annulus_refusal_seconds_bucket/ {
      bound = $0
      sub(/.*le="/, "", bound)
      sub(/".*/, "", bound)
      bounds[++n] = bound
      counts[n] = $NF
    }
    END {
      for (i = 1; i <= n; ++i) {
        if (counts[n] > 0 && counts[i] >= 0.99 * counts[n]) {
          print bounds[i]
          exit
        }
      }
      print "-"
    }'
}

# Until the daemon has settled every request, at most ten seconds.
wait_until_settled() {
  local turn open
  for ((turn = 0; turn < 50; ++turn)); do
    open=$(total requests_open)
    if [[ $open == 0 ]]; then return; fi
    sleep 0.2
  done
}

part_decode() {
  table 'Decode at depth 512: streams share the weights that are read' model \
    --random bench/configs/qwen2.5-0.5b.json --depth 512 --generate 32 --streams 1,8,32 \
    --ranks "${ranks// /,}" --repeat 3
}

# Eight prompts that share nothing cost eight times the time to read, so the shape has two layers.
# Their keys and values, 14 heads of 64, do not fit a cache.
part_cascade() {
  local each=(--random bench/configs/questions.json --depth 32768 --generate 32 --ranks "${ranks// /,}" --repeat 3)
  table 'Eight questions over one document of 32K tokens: shared pages are read once a step' model \
    "${each[@]}" --streams 1,8 --shared-prompt
  table 'Eight documents of 32K tokens: every stream reads its own' model "${each[@]}" --streams 8
  local count shared apart
  for count in $ranks; do
    shared=$(cascade_step "$count" '[1-9][0-9]*')
    apart=$(cascade_step "$count" 0)
    say "With $(count_of "$count"), a step over the shared document takes $shared s, one over eight documents $apart s: it is \
$(ratio "$apart" "$shared") times faster (at least 1.3)."
    printf '{"measured":"cascade","ranks":%s,"times_faster":"%s"}\n' "$count" "$(ratio "$apart" "$shared")" >>"$rows"
  done
}
# cascade_step RANKS SHARED: seconds of a step of eight streams that share so many tokens (a pattern).
cascade_step() {
  grep '"streams":8,' "$rows" | grep "\"ranks\":$1," | grep "\"shared\":$2," | tail -1 |
    grep -o '"step_seconds":[0-9.e+-]*' | cut -d: -f2 || true
}

part_lookup() {
  local answer
  for answer in quote mislead; do
    table "Prompt lookup, answers forced: $answer" model --random bench/configs/qwen2.5-0.5b.json --depth 8192 \
      --generate 200 --force-tokens "$answer" --repeat 3
  done
}

part_beside() {
  local count
  for count in $ranks; do
    serve build/annulusd --model "$shape" --ranks "$count" --kv-memory 2GiB
    tag "\"ranks\":$count" \
      load "A prompt of 32K tokens beside a stream and short requests, $(count_of "$count") (stall budget 250 ms)" \
      --beside-prompt 32000 --rate 0.2 --prompt-tokens 200 --max-tokens 1 --stream-tokens 30000
    say "With $(count_of "$count") the stream's p99 between two tokens is $(measured stream_inter_token p99) s (at most 0.25), \
a short request's first token comes after at most $(measured time_to_first_token max) s (3), and the prompt keeps \
$(measured long_prompt of_its_rate) of its rate (at least 0.6). Alone, nothing is heard of it for at most \
$(measured progress_alone gap_max) s (0.5), and its time left is off by at most $(measured progress_alone eta_error_max) (0.2)."
  done
}

# What the daemon does at most, then five times that with a deadline, then what it does at most
# again: a shared machine's speed changes within ten minutes, so the peak is the mean of both.
part_overload() {
  local count
  for count in $ranks; do overload "$count"; done
}
overload() {
  local count=$1 seconds=60 peak before
  if [[ $count == 1 ]]; then seconds=600; fi
  seconds=${OVERLOAD_SECONDS:-$seconds}
  capacity "$count" before
  peak=$(of_load requests_per_second)
  before=$(of_load tokens_per_second)
  serve build/annulusd --model "$shape" --ranks "$count" --kv-memory 2GiB --max-running 16 --max-waiting 8
  tag "\"ranks\":$count" load "5 times overload, $(count_of "$count"), $seconds s, deadline 10 s (peak $peak requests a second)" \
    --rate "$(awk "BEGIN {print 5 * $peak}")" --duration "$seconds" "${overload_requests[@]}" --deadline 10
  wait_until_settled
  say_overload "$count"
  capacity "$count" after
  say_of_peak "$count" "$(awk "BEGIN {print ($before + $(of_load tokens_per_second)) / 2}")"
}
overload_requests=(--prompt-tokens 512 --max-tokens 16)
# capacity RANKS WHEN
capacity() {
  serve build/annulusd --model "$shape" --ranks "$1" --kv-memory 2GiB
  tag "\"ranks\":$1" load "Capacity $2 the overload, $(count_of "$1"): more than can be served, without deadlines" \
    --rate 20 --duration 3 "${overload_requests[@]}"
}
# say_of_peak RANKS PEAK: the overload's tokens, of which overloaded_tokens keeps the rate.
say_of_peak() {
  local share
  share=$(ratio "$overloaded_tokens" "$2")
  say "Tokens of requests that met their deadline: $share of the peak (at least 0.9), the mean of before and after."
  printf '{"measured":"overload_of_peak","ranks":%s,"of_peak":"%s"}\n' "$1" "$share" >>"$rows"
}
# say_overload RANKS: the load that has just ended beside what the daemon counted.
say_overload() {
  local fate client=0 told=0 settled='' resident foreseen refusals
  for fate in succeeded rejected cancelled failed; do client=$((client + $(of_load "$fate"))); done
  for fate in completed rejected cancelled failed; do
    settled+="${settled:+ + }$(total requests_settled_total "fate=\"$fate\"") $fate"
    told=$((told + $(total requests_settled_total "fate=\"$fate\"")))
  done
  resident=$(total process_resident_most_bytes)
  foreseen=$(total memory_foreseen_bytes)
  overloaded_tokens=$(of_load tokens_per_second)
  refusals=$(refusal_p99)
  say "The client sent\
 $(of_load requests) requests: $(of_load succeeded) succeeded + $(of_load rejected) rejected + $(of_load cancelled) cancelled\
 + $(of_load failed) failed = $client. The daemon was offered $(total requests_offered_total): $settled = $told.\
 It refused 99 of 100 within $refusals s on its own clock (at most 0.05). Its memory: $resident bytes at most, of\
 $foreseen foreseen ($(ratio "$resident" "$foreseen"))."
  printf '{"measured":"overload","ranks":%s,"sent":%s,"ended":%s,"offered":%s,"settled":%s,' \
    "$1" "$(of_load requests)" "$client" "$(total requests_offered_total)" "$told" >>"$rows"
  printf '"refusal_p99":"%s","resident_bytes":%s,"foreseen_bytes":%s}\n' "$refusals" "$resident" "$foreseen" >>"$rows"
}

# Lengths from 200 tokens to 128K at 0.8 of what this daemon can read.
part_mixed() {
  local count
  for count in $ranks; do mixed "$count"; done
}
mixed() {
  local count=$1 requests=(--prompt-tokens 200 --longest-prompt 131072 --max-tokens 16) rate seed whose program_of
  local ratios='' half key
  local -A seconds
  local -a orders=('this other' 'other this')  # in turn, so that a machine that slows down favours neither
  serve build/annulusd --model "$trace" --ranks "$count" --kv-memory 2GiB
  tag "\"ranks\":$count" load "Capacity of the mixed trace, $(count_of "$count")" --rate 20 --duration 3 "${requests[@]}"
  rate=$(awk "BEGIN {print 0.8 * $(of_load requests_per_second)}")
  for seed in 1 2 3 4 5; do
    for whose in ${orders[seed % 2]}; do
      program_of=build/annulusd
      if [[ $whose == other ]]; then program_of=$other; fi
      if [[ -z $program_of ]]; then continue; fi
      serve "$program_of" --model "$trace" --ranks "$count" --kv-memory 2GiB
      tag "\"ranks\":$count,\"daemon\":\"$whose\",\"trace\":$seed" \
        load "Mixed trace, $(count_of "$count"), seed $seed, by $whose daemon" --rate "$rate" \
        --duration "${TRACE_SECONDS:-45}" "${requests[@]}" --seed "$seed"
      for half in shorter longer; do
        for key in mean p99; do seconds[$whose$half$key]=$(latency "time_to_first_token_$half" "$key"); done
      done
    done
    if [[ -z $other ]]; then continue; fi
    ratios+="| $seed | $(ratio "${seconds[othershortermean]}" "${seconds[thisshortermean]}") |"
    ratios+=" $(ratio "${seconds[othershorterp99]}" "${seconds[thisshorterp99]}") |"
    ratios+=" $(ratio "${seconds[thislongermean]}" "${seconds[otherlongermean]}") |"
    ratios+=" $(ratio "${seconds[thislongerp99]}" "${seconds[otherlongerp99]}") |"$'\n'
  done
  if [[ -z $ratios ]]; then return; fi
  printf '\n## Mixed trace, %s: time to the first token beside the other daemon\n\n' "$(count_of "$count")"
  printf '%s\n' '| seed | short half: times better, mean (at least 10) | p99 | long half: times as long, mean (at most 1.3) | p99 |' \
    '|--:|--:|--:|--:|--:|'
  printf '%s' "$ratios"
} >>"$tables"

# earlier FILE: what an earlier run wrote into it, if there was one.
earlier() { if [[ -e $1 ]]; then cat "$1"; fi; }

# keep PART: puts what was measured of the part into the report, in the place of what stood there.
keep() {
  local each
  sed -i "s/^{/{\"part\":\"$1\",/" "$rows"
  {
    describe 'Serving'
    echo
    echo 'Requests arrive at random, whatever became of others (an open loop); latencies count from the'
    echo 'time a request was due. Prompts are random ids, answers have a fixed length. Each part says'
    echo 'when it was measured; the lines above are of the part that was measured last.'
    echo
    echo '![latencies of the mixed trace and decoding in batches](serve.svg)'
    for each in $all_parts; do
      if [[ $each == "$1" ]]; then
        cat "$tables"
      else
        # One blank line before it and none behind.
        earlier "$report" | awk -v part="$each" '
          /^<!-- part: / {
            on = $3 == part
            blank = "\n"
          }
          on && NF == 0 {blank = blank "\n"}
          on && NF > 0 {
            printf "%s%s\n", blank, $0
            blank = ""
          }'
      fi
    done
  } >"$scratch/report"
  for each in $all_parts; do
    if [[ $each == "$1" ]]; then cat "$rows"; else earlier "$report_rows" | grep "^{\"part\":\"$each\"," || true; fi
  done >"$scratch/report_rows"
  cp "$scratch/report" "$report"
  cp "$scratch/report_rows" "$report_rows"
  sed '/"part":"cascade"/d' "$report_rows" >"$scratch/charted.jsonl"  # another shape
  "$program" chart "$scratch/charted.jsonl" -o "$chart"
}

for part in $parts; do
  tables=$scratch/$part.md rows=$scratch/$part.jsonl
  : >"$rows"
  {
    printf '\n<!-- part: %s -->\n\n' "$part"
    echo "Part \`$part\`, $(date -u +%Y-%m-%d), source $(source_revision), load average" \
      "before: $(cut -d' ' -f1-3 /proc/loadavg)"
  } >"$tables"
  started=$SECONDS
  "part_$part"
  stop_daemon
  say "The part took $((SECONDS - started)) s."
  keep "$part"
done

tables=$report rows=$report_rows
finish
