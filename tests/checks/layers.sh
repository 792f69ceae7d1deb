#!/usr/bin/env bash
# Checks that every include follows the arrows between layers: layers.sh [ROOT]. Prints each
# include that does not, and fails if there is one.
set -euo pipefail

root=${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}

# One row per folder or file: what it may include besides what the same row covers. A name that ends
# in "/" stands for all below it, one that ends in "/*" for the files right in it; the row with the
# longest name decides. "annulus/" and "google/" are generated from proto/; "grpc/" and "grpcpp/" are
# gRPC. Rows of engine/ and server/ stand below what they may include, so there is no cycle.
table='
kernels/base/      :
kernels/ops/       : kernels/base/
kernels/           : kernels/base/ kernels/ops/
kernels/cpu/       : kernels/base/ kernels/ops/ kernels/backend.h kernels/device_link.h kernels/registry.h
kernels/cuda/      : kernels/base/ kernels/ops/ kernels/backend.h kernels/device_link.h kernels/planned_backend.h kernels/registry.h

engine/disk/       : kernels/base/
engine/sparse/     : engine/base/work_meter.h engine/model/files/tensor_source.h KERNELS
engine/base/tenant_id.h :
engine/base/work_meter.h :
engine/base/       : engine/base/tenant_id.h engine/base/work_meter.h KERNELS
engine/api/        : engine/base/ engine/sparse/assignment.h kernels/base/
engine/api.h       : engine/api/ engine/base/ engine/sparse/block_map.h kernels/base/
engine/text/       : engine/api/ engine/base/ KERNELS
engine/model/      : engine/api/ engine/base/ engine/text/ KERNELS
engine/gguf/       : engine/base/ engine/text/ engine/model/ KERNELS
engine/memory/     : engine/api/ engine/base/ KERNELS
engine/tiers/      : engine/api/ engine/base/ engine/disk/ engine/memory/page_book.h KERNELS
engine/metrics/    : engine/api/ engine/base/ KERNELS
engine/grammar/    : engine/base/ engine/text/ KERNELS
engine/grammar/compiler/: engine/api/ engine/base/ engine/grammar/* engine/text/ KERNELS
engine/state/      : engine/api/ engine/base/ engine/grammar/machine.h engine/memory/page_owner.h engine/sparse/ KERNELS
engine/sampling/   : engine/api/ engine/base/ engine/grammar/* engine/text/ KERNELS
engine/scheduler/  : engine/api/ engine/base/ engine/grammar/matcher.h engine/memory/page_book.h engine/memory/page_owner.h engine/state/ engine/sparse/ KERNELS
engine/codec/      : engine/api/ engine/base/ engine/grammar/machine.h engine/state/ engine/sampling/validate.h engine/sparse/ annulus/internal/ KERNELS
engine/ring/       : engine/api/ engine/base/ engine/state/ engine/memory/ engine/sparse/ KERNELS
engine/runner/     : engine/api/ engine/base/ engine/codec/ engine/grammar/* engine/state/ engine/memory/ engine/model/ engine/metrics/ engine/ring/ engine/sampling/ engine/sparse/ KERNELS
engine/prompt/     : engine/api/ engine/base/ engine/text/ KERNELS
engine/loading/    : engine/api.h engine/api/ engine/base/ engine/gguf/ engine/grammar/token_trie.h engine/model/ engine/runner/ engine/sparse/ engine/text/ KERNELS
engine/exchange/   : engine/api/ engine/base/ engine/memory/ engine/model/ engine/ring/ engine/runner/ engine/scheduler/ KERNELS
engine/request/    : engine/api/ engine/base/ engine/runner/ engine/sampling/ engine/scheduler/ engine/sparse/ engine/state/ engine/text/ KERNELS
engine/pages/      : engine/api/ engine/base/ engine/disk/ engine/memory/ engine/metrics/ engine/model/ engine/request/ engine/runner/ engine/scheduler/ engine/sparse/ engine/state/ engine/tiers/ KERNELS
engine/coordinator/: engine/api/ engine/base/ engine/grammar/* engine/memory/ engine/metrics/ engine/model/ engine/pages/ engine/request/ engine/runner/ engine/scheduler/ engine/sparse/ engine/state/ KERNELS
engine/membership/ : engine/base/ KERNELS
engine/workers/    : engine/api/ engine/base/ engine/codec/ engine/membership/ engine/memory/ engine/ring/ engine/runner/ engine/sparse/ engine/state/ engine/tiers/ annulus/internal/ KERNELS
engine/*           : engine/ KERNELS

proto/             :
client/            : client/ annulus/ google/ grpc/ grpcpp/
server/config/     : engine/api.h engine/api/ kernels/base/
server/base/       : annulus/ google/ engine/api.h engine/api/ kernels/base/
server/log/        : server/config/ kernels/base/
server/process/    : server/config/ server/log/ engine/api.h engine/api/ kernels/base/
server/identity/   : server/base/ server/config/ annulus/ engine/api.h engine/api/ kernels/base/
server/net/        : server/base/ server/identity/ engine/api.h engine/api/ kernels/base/
server/work/       : server/base/ server/process/ annulus/ engine/api.h engine/api/ kernels/base/
server/documents/  : server/base/ server/config/ server/identity/ annulus/ engine/disk/ engine/text/utf8.h engine/api.h engine/api/ kernels/base/
server/traces/     : server/identity/ engine/api.h engine/api/ kernels/base/
server/metrics/    : server/base/ server/documents/ server/identity/ server/log/ server/net/ server/traces/ server/work/ annulus/ engine/api.h engine/api/ kernels/base/
server/generation/ : server/base/ server/config/ server/documents/ server/identity/ server/log/ server/metrics/ server/traces/ server/work/ annulus/ google/ engine/api.h engine/api/ kernels/base/
server/grpc/calls/ : server/base/ server/documents/ server/generation/ server/identity/ server/work/ annulus/ google/ grpc/ grpcpp/ kernels/base/
server/grpc/       : server/grpc/calls/ server/base/ server/config/ server/documents/ server/generation/ server/identity/ server/log/ server/metrics/ server/net/ server/traces/ server/work/ annulus/ google/ grpc/ grpcpp/ engine/api.h engine/api/ kernels/base/
server/cluster/    : server/base/ server/config/ server/grpc/* server/identity/ server/log/ server/metrics/ server/net/ server/process/ grpc/ grpcpp/ engine/workers/worker_link.h engine/api.h engine/api/ kernels/base/
server/http/       : server/base/ server/config/ server/documents/ server/generation/ server/identity/ server/log/ server/metrics/ server/net/ server/work/ annulus/ google/ engine/api.h engine/api/ kernels/base/
server/command/    : server/config/ server/net/ server/process/ engine/capacity.h kernels/base/
server/*           : server/ annulus/ google/ engine/api.h engine/api/ engine/capacity.h kernels/base/
server/devices.h   : server/ engine/api.h engine/api/ KERNELS
server/devices.cc  : server/ engine/api.h engine/api/ KERNELS kernels/planned_backend.h kernels/cpu/ kernels/cuda/
server/join.cc     : server/ engine/api.h engine/api/ engine/base/program_id.h engine/ring/wire/ucx_library.h engine/workers/worker_link.h KERNELS
server/main.cc     : server/ annulus/ google/ engine/api.h engine/api/ engine/capacity.h KERNELS

bench/workers/     : bench/ engine/ kernels/ server/cluster/ server/config/ server/log/
bench/             : bench/ annulus/ client/ engine/ kernels/ grpc/ grpcpp/
tests/             : tests/ annulus/ google/ grpc/ grpcpp/ bench/ client/ engine/ kernels/ server/
'
table=${table//KERNELS/kernels/base/ kernels/ops/ kernels/backend.h kernels/device_link.h kernels/registry.h}

cd "$root"
folders=()
for folder in kernels engine proto client server bench tests; do
  if [[ -d $folder ]]; then folders+=("$folder"); fi
done

grep --recursive --line-number --extended-regexp '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' \
  --include='*.h' --include='*.cc' --include='*.cu' --include='*.cuh' "${folders[@]}" |
  awk -v table="$table" '
    function covers(name, path,    folder) {
      folder = name
      sub(/\*$/, "", folder)
      if (folder !~ /\/$/) return path == name
      return index(path, folder) == 1 &&
             (folder == name || substr(path, length(folder) + 1) !~ /\//)
    }
    function row_of(path,    name, row) {
      for (name in allowed) if (covers(name, path) && length(name) > length(row)) row = name
      return row
    }
    function report(message) {
      printf "%s:%s: %s\n", file, line, message
      failed = 1
    }
    BEGIN {
      count = split(table, lines, "\n")
      for (i = 1; i <= count; ++i) {
        if (split(lines[i], sides, ":") != 2) continue
        gsub(/ /, "", sides[1])
        allowed[sides[1]] = sides[2]
      }
    }
    {
      split($0, parts, ":")
      file = parts[1]
      line = parts[2]
      split($0, marks, /["<>]/)
      target = marks[2]
      if (target ~ /(^|\/)\.\.(\/|$)/) {
        report("\"" target "\" goes up: it must start at the root of the project")
        next
      }
      if (target !~ /^(kernels|engine|proto|client|server|bench|tests|annulus|google\/rpc|grpc|grpcpp)\//) {
        # Other libraries are no layer; but a quoted path without a folder is one of ours cut short.
        if ($0 ~ /include *"/ && target !~ /^[^.].*\//)
          report("\"" target "\" does not start at the root of the project")
        next
      }
      row = row_of(file)
      if (row == "") {
        report("no row of the table of layers covers this file")
        next
      }
      if (row_of(target) == row) next
      names = split(allowed[row], list, " ")
      for (i = 1; i <= names; ++i) if (covers(list[i], target)) next
      report(row " may not include \"" target "\", only its own folder and:" allowed[row])
    }
    END { exit failed }
  '
