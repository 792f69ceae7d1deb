# Sourced by the scripts that write tables.

export LC_ALL=C.UTF-8  # numbers with decimal points
program=build/annulus-bench
failed=0

# begin NAME [FOLDER] [-- OPTION...]: the files to write, NAME.md ($tables) and $rows, JSON lines,
# are made anew; $rows is left alone if keep_rows is set. The options go to every `model` and
# `attention` of the tables.
begin() {
  local name=$1
  shift
  script="bash bench/$(basename "$0")${*:+ $*}"
  folder=bench/results
  if (($# > 0)) && [[ $1 != -* ]]; then
    folder=$1
    shift
  fi
  if (($# > 0)) && [[ $1 != -- ]]; then
    awk 'NR > 1 && !/^#/ {exit} NR > 1' "$0" | sed 's/^# \{0,1\}//'
    exit 2
  fi
  options=("${@:2}")
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  if [[ ! -x $program ]]; then
    echo "$script: $program is not there; build it: bash deploy/build.sh build annulus-bench" >&2
    exit 1
  fi
  mkdir -p "$folder"
  tables=$folder/$name.md
  rows=$folder/$name.jsonl
  if [[ -z ${keep_rows-} ]]; then : >"$rows"; fi
}

# source_revision: the commit, and -dirty if anything was changed but results.
source_revision() {
  local revision
  if ! revision=$(git describe --always 2>/dev/null); then
    revision=unknown
  elif ! git diff --quiet HEAD -- . ':!bench/results'; then
    revision+=-dirty
  fi
  echo "$revision"
}

# describe TITLE: what the figures were measured on.
describe() {
  echo "# $1"
  echo
  echo "Written by \`$script\`; what the columns mean: [bench/README.md](../README.md)."
  echo
  echo "- processor: $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1), $(nproc) threads"
  echo "- memory: $(sed -n 's/^MemTotal: *//p' /proc/meminfo)"
  echo "- system: $(uname -sr), $(c++ --version | head -1)"
  echo "- source: $(source_revision)"
  echo "- date: $(date -u +%Y-%m-%d), load average before: $(cut -d' ' -f1-3 /proc/loadavg)"
}

# table TITLE ARGUMENT...: runs annulus-bench and adds its table. A command that fails says so in the
# tables and fails the script at its end.
table() {
  local title=$1 text
  shift
  if [[ $1 == model || $1 == attention ]]; then set -- "$@" "${options[@]}"; fi
  echo "== $title" >&2
  printf '\n## %s\n\n```\n%s %s\n```\n\n' "$title" "$program" "$*" >>"$tables"
  if text=$("$program" "$@" --markdown --json-file "$rows"); then
    printf '%s\n' "$text" >>"$tables"
  else
    echo 'failed' >>"$tables"
    failed=$((failed + 1))
  fi
}

# tag FIELDS COMMAND...: runs the command and adds the fields to every row that it writes.
tag() {
  local fields=$1 before
  shift
  before=$(wc -l <"$rows")
  "$@"
  sed -i "$((before + 1)),\$s/^{/{$fields,/" "$rows"
}

# say TEXT...: a paragraph among the tables.
say() { printf '\n%s\n' "$*" >>"$tables"; }

# ratio A B: A / B; "-" if one of them is not known.
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {if (a > 0 && b > 0) printf "%.3g", a / b; else printf "-"}'; }

# finish: says where the tables are; the exit code tells whether a command failed.
finish() {
  echo "written: $tables, $rows" >&2
  ((failed == 0))
}
