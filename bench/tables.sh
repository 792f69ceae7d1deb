# Sourced by the scripts that write tables. They set: program, tables (Markdown file), rows (JSON
# lines), script (how they are called) and failed=0.

# describe TITLE: what the figures were measured on.
describe() {
  echo "# $1"
  echo
  echo "Written by \`$script\`; what the columns mean: [bench/README.md](../README.md)."
  echo
  echo "- processor: $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1), $(nproc) threads"
  echo "- memory: $(sed -n 's/^MemTotal: *//p' /proc/meminfo)"
  echo "- system: $(uname -sr), $(c++ --version | head -1)"
  echo "- source: $(git describe --always --dirty 2>/dev/null || echo unknown)"
  echo "- date: $(date -u +%Y-%m-%d), load average before: $(cut -d' ' -f1-3 /proc/loadavg)"
}

# table TITLE ARGUMENT...: runs annulus-bench and adds its table. A command that fails says so in the
# tables and fails the script at its end.
table() {
  local title=$1 text
  shift
  echo "== $title" >&2
  printf '\n## %s\n\n```\n%s %s\n```\n\n' "$title" "$program" "$*" >>"$tables"
  if text=$("$program" "$@" --markdown --json-file "$rows"); then
    printf '%s\n' "$text" >>"$tables"
  else
    echo 'failed' >>"$tables"
    failed=$((failed + 1))
  fi
}

