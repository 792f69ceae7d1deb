#!/usr/bin/env bash
# One process of a ring under Slurm. srun starts it once on each node:
#   srun --nodes 4 --ntasks-per-node 1 --no-kill --kill-on-bad-exit=0 ring.sh FLAG... [-- FLAG...]
# The first task is the coordinator, which gets all flags; the others are its workers, which get those
# before the --. Each hosts one rank. Variables:
#   RING_ADDRESS  of the first node; default: its name
#   RING_PORT     default 7000
# Slurm starts no task of a running step again, so a worker that fails is started again here.
set -euo pipefail

all=()
while (($# > 0)) && [[ $1 != -- ]]; do
  all+=("$1")
  shift
done
if (($# > 0)); then shift; fi

address=${RING_ADDRESS:-$(scontrol show hostnames "$SLURM_STEP_NODELIST" | head -n 1)}
port=${RING_PORT:-7000}
if ((SLURM_PROCID == 0)); then
  listen='[::]'
  if [[ $address == 127.* ]]; then listen=$address; fi
  exec annulusd "${all[@]}" --ranks "$SLURM_NTASKS" --workers-listen "$listen:$port" "$@"
fi
while true; do
  status=0
  annulusd "${all[@]}" --join "$address:$port" --worker-name "$SLURMD_NODENAME" || status=$?
  # Stopped, or options that will not get better.
  if ((status == 0 || status == 2)); then exit "$status"; fi
  sleep 5
done
