#!/usr/bin/env bash
# Tests bench/serve.sh on programs that only pretend: what it computes from their rows and metrics, and
# that a part which is measured again replaces its own figures alone.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/bench" "$folder/build" "$folder/bin"
cp "$root"/bench/*.sh "$folder/bench"

# program NAME: what it does is read from standard input.
program() {
  { echo '#!/usr/bin/env bash'; cat; } >"$folder/$1"
  chmod +x "$folder/$1"
}

fail() {
  printf 'serve_script_test: %s; the report was:\n%s\nthe rows were:\n%s\n' "$*" \
    "$(cat "$folder/out/serve.md")" "$(cat "$folder/out/serve.jsonl")" >&2
  exit 1
}

program build/annulusd <<'END'
echo "$0 $* ${!ANNULUS_@}" >>"$COMMANDS"
echo 'INFO ready listen=127.0.0.1:0 port=1 metrics_port=2'
trap 'exit 0' TERM
while :; do read -r -t 1 <> <(:); done
END
mkdir "$folder/old" "$folder/silent"
cp "$folder/build/annulusd" "$folder/old/annulusd"

# Requests of the other daemon wait ten times as long if they are short. $PEAK is the rate of both loads;
# one with the option $FAILS fails. After a load with deadlines, one without makes 50 tokens a second, not 30.
program build/annulus-bench <<'END'
echo "$0 $*" >>"$COMMANDS"
if [[ -n ${FAILS-} && " $* " == *" $FAILS "* ]]; then exit 1; fi
if [[ $1 == chart ]]; then echo '<svg/>' >"${@: -1}"; exit; fi
while (($# > 0)); do
  if [[ $1 == --json-file ]]; then rows=$2; fi
  if [[ $1 == --streams && $2 == 8 ]]; then shared=0 step=0.08; fi
  if [[ $1 == --shared-prompt ]]; then shared=32704 step=0.04; fi
  if [[ $1 == --deadline ]]; then ended='"succeeded":4,"rejected":3,"cancelled":2,"failed":1'; fi
  shift
done
if [[ -n ${step-} ]]; then
  echo "{\"phase\":\"decode, batched\",\"streams\":8,\"depth\":32768,\"shared\":$shared,\"step_seconds\":$step,\"ranks\":1,\"threads\":2}" >>"$rows"
fi
if grep -q -- --beside-prompt <<<"$(tail -1 "$COMMANDS")"; then
  {
    echo '{"measured":"long_prompt","of_its_rate":0.7}'
    echo '{"measured":"progress_alone","gap_max":0.45,"eta_error_max":0.15}'
    echo '{"measured":"stream_inter_token","p50":0.1,"p99":0.24}'
    echo '{"measured":"time_to_first_token","p99":1.5,"max":2.5}'
  } >>"$rows"
fi
slow=1 tokens=30
if [[ -z ${ended-} ]] && tail -3 "$COMMANDS" | grep -q -- --deadline; then tokens=50; fi
if tail -2 "$COMMANDS" | grep -q old/annulusd; then slow=10; fi
{
  echo "{\"requests\":10,${ended-\"succeeded\":10,\"rejected\":0,\"cancelled\":0,\"failed\":0},\"requests_per_second\":${PEAK-2},\"prompt_tokens_per_second\":9,\"tokens_per_second\":$tokens}"
  echo "{\"latency\":\"time_to_first_token_shorter\",\"mean\":${slow},\"p99\":$((2 * slow))}"
  echo '{"latency":"time_to_first_token_longer","mean":4,"p99":8}'
} >>"$rows"
echo '| a table |'
END

program bin/curl <<'END'
cat <<'METRICS'
annulus_requests_offered_total 10
annulus_requests_settled_total{fate="completed"} 4
annulus_requests_settled_total{fate="rejected"} 3
annulus_requests_settled_total{fate="cancelled"} 2
annulus_requests_settled_total{fate="failed"} 1
annulus_requests_open 0
annulus_refusal_seconds_bucket{le="0.001"} 90
annulus_refusal_seconds_bucket{le="0.025"} 99
annulus_refusal_seconds_bucket{le="+Inf"} 100
annulus_memory_foreseen_bytes{part="weights"} 3000
annulus_memory_foreseen_bytes{part="documents"} 1000
annulus_process_resident_most_bytes 2000
METRICS
END
# Metrics of a daemon that has another name for its open requests.
mkdir "$folder/renamed"
sed 's/requests_open/open_requests/' "$folder/bin/curl" >"$folder/renamed/curl"
chmod +x "$folder/renamed/curl"
export PATH=$folder/bin:$PATH COMMANDS=$folder/commands

# run STATUS [VARIABLE=VALUE...]: the script must end with it.
run() {
  local expected=$1 status
  shift
  env "$@" bash "$folder/bench/serve.sh" "$folder/out" >"$folder/said" 2>&1
  status=$?
  ((status == expected)) || fail "ended with $status, not $expected: $(cat "$folder/said")"
}
has() { grep -qF -- "$1" "$folder/out/serve.md" || fail "no '$1'"; }
has_row() { grep -qF -- "$1" "$folder/out/serve.jsonl" || fail "no row '$1'"; }

run 1 PARTS=overload RANKS=1 FAILS=--deadline
if [[ -e $folder/out/serve.md || -e $folder/out/serve.jsonl ]]; then fail 'a report, though nothing was measured'; fi

run 0 RANKS=1 OTHER_ANNULUSD="$folder/old/annulusd" ANNULUS_KV_DISK=/nowhere ANNULUS_TOKEN=secret
grep -q ANNULUS_ "$COMMANDS" && fail 'settings and tokens of the caller reach the daemons'
for part in decode cascade lookup beside overload mixed; do has "<!-- part: $part -->"; done
has 'it is 2 times faster'
has 'tokens is 0.24 s (at most 0.25), a short request'
has 'after at most 2.5 s (3), and the prompt keeps 0.7 of its rate'
has 'for at most 0.45 s (0.5), and its time left is off by at most 0.15 (0.2)'
has_row '{"part":"cascade","measured":"cascade","ranks":1,"times_faster":"2"}'
has 'deadline: 0.75 of the peak'
has '10 requests: 4 succeeded + 3 rejected + 2 cancelled + 1 failed = 10'
has 'was offered 10: 4 completed + 3 rejected + 2 cancelled + 1 failed = 10'
has 'within 0.025 s'
has '2000 bytes at most, of 4000 foreseen (0.5)'
has '| 5 | 10 | 10 | 1 | 1 |'
has_row '{"part":"mixed","ranks":1,"daemon":"other","trace":5,"latency":"time_to_first_token_shorter","mean":10'
turns=$(grep -o '"daemon":"[a-z]*","trace":[12]' "$folder/out/serve.jsonl" | uniq | cut -d'"' -f4 | tr '\n' ' ')
[[ $turns == 'other this this other ' ]] || fail "the daemons do not take turns in being first: $turns"
grep -q -- '--rate 10 --duration 600 .*--deadline 10' "$COMMANDS" || fail 'no five times the peak for ten minutes'
grep -q -- '--rate 1.6 --duration 45 ' "$COMMANDS" || fail 'no 0.8 of the peak'

# One part again, with a smaller peak: the others stay as they are.
mixed_before=$(sed -n '/^<!-- part: mixed/,$p' "$folder/out/serve.md")
run 0 PARTS=overload RANKS='1 4' PEAK=1 OVERLOAD_SECONDS=20
[[ $(sed -n '/^<!-- part: mixed/,$p' "$folder/out/serve.md") == "$mixed_before" ]] || fail 'the mixed traces changed'
has 'peak 1 requests'
grep -qF 'peak 2 requests' "$folder/out/serve.md" && fail 'the old overload is still there'
has '5 times overload, 4 ranks, 20 s'
has '| 5 | 10 | 10 | 1 | 1 |'
has_row '{"part":"overload","measured":"overload_of_peak","ranks":4,"of_peak":"0.75"'
(($(grep -c '"measured":"cascade"' "$folder/out/serve.jsonl") == 1)) || fail 'the cascade was lost, or is there twice'
(($(grep -c '^<!-- part: ' "$folder/out/serve.md") == 6)) || fail 'not six parts'

# Figures of an earlier load, or of no metric, must not pass for those of this one: the part stays as it is.
run 1 PARTS=overload RANKS=1 OVERLOAD_SECONDS=30 FAILS=--deadline
grep -qF 'the load failed: 5 times overload, 1 rank, 30 s' "$folder/said" || fail "no word of what failed: $(cat "$folder/said")"
has '5 times overload, 4 ranks, 20 s'
run 1 PARTS=overload RANKS=1 OVERLOAD_SECONDS=30 PATH="$folder/renamed:$PATH"
grep -qF 'no metric of the daemon matches ^annulus_requests_open' "$folder/said" || fail "no word of the metric: $(cat "$folder/said")"
has '5 times overload, 4 ranks, 20 s'

run 1 OTHER_ANNULUSD="$folder/old/absent"
grep -qF 'old/absent is missing' "$folder/said" || fail 'a missing daemon is not named'

program silent/annulusd <<'END'
echo 'INFO loading'
trap 'exit 0' TERM
while :; do read -r -t 1 <> <(:); done
END
run 1 PARTS=mixed RANKS=1 READY_SECONDS=5 OTHER_ANNULUSD="$folder/silent/annulusd"
grep -qF 'was not ready within 5 s' "$folder/said" || fail "no word of the wait: $(cat "$folder/said")"
grep -qF 'INFO loading' "$folder/said" || fail "not what the daemon said: $(cat "$folder/said")"

run 2 PARTS='mixed everything'
grep -qF "'everything', which is no part" "$folder/said" || fail 'an unknown part is not named'
