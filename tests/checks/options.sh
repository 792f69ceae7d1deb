#!/usr/bin/env bash
# Checks that every option of the daemon has one default and a reader: options.sh [ROOT]. Walks the
# fields that the rows of options name. Prints each field that nobody reads, and each member of
# another struct with the field's name and a default of its own, and fails if there is one.
set -euo pipefail

cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
found=0

# Where options are said: their fields and rows.
said=(engine/api/options.h server/config/server_config.h server/config/cluster_options.cc server/config/device_options.cc
  server/config/engine_options.cc server/config/service_options.cc)
excluded=()
for file in "${said[@]}"; do excluded+=(":!$file"); done

# Members that are named like an option and are something else, or say what was chosen: FILE:FIELD.
others='
engine/api/answer.h:reasoning
engine/api/load.h:activations
engine/api/load.h:kv_dtype
engine/api/load.h:weights_dtype
engine/api/plan.h:ranks
engine/api/ring.h:attention
engine/capacity.h:kv_dtype
engine/capacity.h:weights_dtype
engine/loading/model_files.h:kv_dtype
engine/model/weights/weight_slots.h:model
engine/runner/rank_model.h:activations
engine/scheduler/step_pacer.h:attention
engine/sparse/policy.h:window
'

# Values that say nothing: 0, false, nullptr, nullopt, an empty one; and 1, of what is counted.
neutral='(0|1|false|nullptr|std::nullopt|""|\{\})'

search() { git grep --no-index --line-number --perl-regexp "$@" || true; }

fields=$(search --only-matching --no-line-number -h '&(E|ServerConfig|DocumentLimits|AttachLimits)::\K\w+' \
  -- "${said[@]}" | sort --unique)
for field in $fields; do
  if [[ -z $(search "(\.|->)$field\b" -- engine server "${excluded[@]}") ]]; then
    printf '%s: an option sets it, but nobody reads it\n' "$field"
    found=1
  fi
  # A member: a type, the name, and a default.
  mapfile -t own < <(grep ":$field\$" <<<"$others" | sed "s|:.*||; s|^|:!|")
  seconds=$(search "^  (?!return|const auto|auto)[A-Za-z_][\w:<>, ]* $field(?! = (?:$neutral|EngineOptions\(\)\.$field);|\{$neutral?\};)( = |\{)[^;]*;" \
    -- 'engine/*.h' 'server/*.h' ':!engine/api/options.h' "${own[@]}")
  if [[ -n $seconds ]]; then
    printf '%s: an option with a second default; leave it to EngineOptions or the row:\n%s\n' "$field" "$seconds"
    found=1
  fi
done
exit "$found"
