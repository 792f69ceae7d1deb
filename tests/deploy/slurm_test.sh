#!/usr/bin/env bash
# A ring whose processes Slurm starts, on two nodes that are this machine: slurm_test.sh BUILD, as root.
# It answers as one process does, and a worker that is killed comes back. Skipped (77) without root,
# Slurm (Debian package slurm-wlm) or libucp.so.0.
set -euo pipefail

build=$(cd "$1" && pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
for program in slurmctld slurmd srun munged setpriv; do
  if ((EUID != 0)) || ! command -v "$program" >/dev/null || ! ldconfig -p | grep 'libucp\.so\.0' >/dev/null; then
    echo "needs root, slurm-wlm and libucx0: nothing was tried ($program)"
    exit 77
  fi
done
folder=$(mktemp -d)
children=()
finish() {
  # The step first: nobody else ends its processes.
  if [[ -e $folder/slurmctld.pid ]] && scancel --quiet --partition ring; then
    for ((turn = 0; turn < 150; ++turn)); do
      if [[ -z $(squeue --noheader 2>/dev/null) ]]; then break; fi
      sleep 0.2
    done
  fi
  for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
  for file in "$folder"/*.pid; do
    if [[ -e $file ]]; then kill "$(<"$file")" 2>/dev/null || true; fi
  done
  wait
  # The controller writes its state while it ends.
  for ((turn = 0; turn < 50; ++turn)); do
    if rm -rf "$folder" 2>/dev/null; then break; fi
    sleep 0.2
  done
}
trap finish EXIT

fail() {
  echo "$1"
  tail -n 20 "$folder"/*.log
  exit 1
}
# within SECONDS COMMAND...: until it succeeds.
within() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS > end)); then fail "never: $*"; fi
    sleep 0.2
  done
}
# number FILE KEY: of the first line with KEY=NUMBER.
number() { grep --only-matching --max-count=1 "$2=[0-9]*" "$1" | head -n 1 | cut -d = -f 2; }

# Ports that were free a moment ago.
mapfile -t ports < <(python3 - <<'PYTHON'
import socket
sockets = [socket.socket() for _ in range(4)]
for one in sockets:
    one.bind(("127.0.0.1", 0))
    print(one.getsockname()[1])
PYTHON
)
host=$(hostname --short)
chmod 711 "$folder"
mkdir "$folder/state" "$folder/munge"
head --bytes=1024 /dev/urandom >"$folder/munge/key"
chown -R munge: "$folder/munge"
chmod 711 "$folder/munge"
chmod 600 "$folder/munge/key"
cat >"$folder/slurm.conf" <<CONF
ClusterName=ring
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
NodeName=one NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=1
NodeName=two NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=1
PartitionName=ring Nodes=one,two Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$folder/slurm.conf
setpriv --reuid munge --regid munge --clear-groups munged --foreground --key-file="$folder/munge/key" \
  --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" \
  --seed-file="$folder/munge/seed" >"$folder/munged.log" 2>&1 &
children+=($!)
within 30 test -S "$folder/munge/socket"
slurmctld
slurmd -N one
slurmd -N two
within 60 bash -c '[[ $(sinfo --noheader --states idle --format %D) == 2 ]]'

# annulus ADDRESS: the answer of the daemon there.
annulus() {
  "$build/annulus" complete 'a prompt that both ranks have a part of, since a rank has few tokens here' \
    --server "$1" --max-tokens 12 --temperature 0
}
flags=(--model builtin:recall --page-tokens 16 --threads 1)
serves=(--tokens-per-rank 32 --kv-memory 64MiB --listen 127.0.0.1:0 --metrics off --admin-listen off)
PATH=$build:$PATH RING_ADDRESS=127.0.0.1 RING_PORT=${ports[3]} srun --nodes 2 --ntasks-per-node 1 \
  --no-kill --kill-on-bad-exit=0 --label "$root/deploy/slurm/ring.sh" "${flags[@]}" -- "${serves[@]}" \
  >"$folder/ring.log" 2>&1 &
children+=($!)
within 60 grep ' ready ' "$folder/ring.log"
answer=$(annulus "127.0.0.1:$(number "$folder/ring.log" port)")

"$build/annulusd" "${flags[@]}" "${serves[@]}" --ranks 2 2>"$folder/alone.log" &
children+=($!)
within 60 grep ' ready ' "$folder/alone.log"
expected=$(annulus "127.0.0.1:$(number "$folder/alone.log" port)")
if [[ -z $answer || $answer != "$expected" ]]; then fail "the ring says '$answer', one process '$expected'"; fi
echo "two nodes answer as one process: $answer"

# The step goes on without its worker, which is started again.
kill -KILL "$(pgrep --full "annulusd .*--join 127.0.0.1:${ports[3]}")"
within 60 bash -c "[[ \$(grep --count ' worker .*name=two' '$folder/ring.log') == 2 ]]"
echo 'a worker that was killed came back'
