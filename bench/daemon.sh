# Sourced, after tables.sh, by the scripts that measure a running daemon.

# Daemons take settings from these variables, and the command line a token: neither belongs into a
# measurement.
unset "${!ANNULUS_@}"

daemon=
scratch=$(mktemp -d)
stop_daemon() {
  if [[ -n $daemon ]]; then
    kill "${1:--TERM}" "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
    daemon=
  fi
}
trap 'stop_daemon; rm -rf "$scratch"' EXIT

# need PROGRAM...: ends the script, at its start instead of after an hour, if one of them is missing.
need() {
  local each
  for each in "$@"; do
    if ! command -v "$each" >/dev/null; then
      echo "$script: $each is missing; see the head of bench/$(basename "$0")" >&2
      exit 1
    fi
  done
}

# not_ready WHY: ends the script with what the daemon said.
not_ready() {
  printf '%s: the daemon %s; it said:\n' "$script" "$1" >&2
  cat "$scratch/log" >&2
  exit 1
}

# serve PROGRAM OPTION...: starts a daemon on free ports; $server and $metrics are where it listens.
# Ends the script if it is not ready within $READY_SECONDS (default 600: weights may have to be made).
serve() {
  local limit=$((SECONDS + ${READY_SECONDS:-600}))
  stop_daemon
  : >"$scratch/log"  # or the loop below may still find what the last daemon said
  "$@" "${options[@]}" --listen 127.0.0.1:0 --metrics 127.0.0.1:0 >"$scratch/log" 2>&1 &
  daemon=$!
  until grep -q ' ready listen=' "$scratch/log"; do
    if ! kill -0 "$daemon" 2>/dev/null; then not_ready 'ended before it was ready'; fi
    if ((SECONDS > limit)); then not_ready "was not ready within ${READY_SECONDS:-600} s; READY_SECONDS=N waits longer"; fi
    sleep 0.2
  done
  server=127.0.0.1:$(sed -n 's/.* ready .* port=\([0-9]*\).*/\1/p' "$scratch/log")
  metrics=127.0.0.1:$(sed -n 's/.* ready .* metrics_port=\([0-9]*\).*/\1/p' "$scratch/log")
}

# load TITLE OPTION...: one `annulus-bench serve` on the daemon that runs. Ends the script if that
# fails, because what is computed next would be of an earlier load.
load() {
  local title=$1 failed_before=$failed
  shift
  table "$title" serve --server "$server" "$@"
  if ((failed > failed_before)); then
    printf '%s: the load failed: %s; the last lines of the daemon:\n' "$script" "$title" >&2
    tail -5 "$scratch/log" >&2
    exit 1
  fi
}

# figure KEY: of the last row that has it.
figure() { grep -o "\"$1\":[0-9.e+-]*" "$rows" | tail -1 | cut -d: -f2; }

# total NAME [LABELS]: the metric annulus_NAME of the daemon that runs, added up over all labels that
# the pattern LABELS matches. Fails if there is none, or no daemon: 0 would say that all is done.
total() {
  curl -sSf --max-time 10 "http://$metrics/metrics" |
    awk -v pattern="^annulus_$1([{].*${2:-}| )" '
      $0 ~ pattern {
        sum += $NF
        found = 1
      }
      END {
        if (found) {
          printf "%.15g\n", sum
        } else {
          print "no metric of the daemon matches " pattern >"/dev/stderr"
          exit 1
        }
      }'
}
