# shellcheck shell=bash
# Pools whose nodes' disks are held to a rate (shoal-node --drill-read-rate), so that one machine can
# play them all. Sourced by the benchmarks beside it.

fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 2
}

say() { printf '%s\n' "$*" >&2; }

# python EXPRESSION ARGUMENT...: prints the expression's value; arguments are in `a`.
python() { python3 -c 'import json, statistics, sys; a = sys.argv[2:]; print(eval(sys.argv[1]))' "$@"; }

# start_work BUILD DIR: sets shoal, node and work; DIR may be empty (then a temporary one, removed at
# the end). What start_nodes starts ends with the script.
start_work() {
  [[ -n $1 ]] || fail "the build folder is missing; see --help"
  shoal=$1/coordinator/shoal
  node=$1/expert_node/shoal-node
  [[ -x $shoal && -x $node ]] || fail "$shoal and $node are not both there: build them first"
  work=$2
  own_work=
  if [[ -z $work ]]; then
    work=$(mktemp -d)
    own_work=$work
  fi
  mkdir -p "$work"
  pids=()
  trap clean_up EXIT
}

stop_nodes() {
  for pid in "${pids[@]}"; do
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  pids=()
}

clean_up() {
  stop_nodes
  [[ -z $own_work ]] || rm -rf "$own_work"
}

# make_model EXPERTS: $work/model, experts as large as Kimi K3's in two of its three layers.
make_model() {
  model=$work/model
  say "model: 3 layers, 2 of them with $1 experts of K3's size"
  "$shoal" synth "$model" --like kimi-k3 --layers 3 --experts "$1" --vocab 512 >&2
}

# make_parts POOL COPIES RATE...: plan and partitions in $work/POOL of nodes node-0, node-1, ... with
# disks of these rates, in bytes a second. Only the disks' rates are told apart.
make_parts() {
  local pool=$1 copies=$2 i=0 nodes=() read_rate
  shift 2
  for read_rate in "$@"; do
    nodes+=("{\"name\": \"node-$i\", \"read_bytes_per_second\": $read_rate,
      \"compute_bytes_per_second\": 1e12, \"link_bytes_per_second\": 1e12, \"round_trip_ms\": 0,
      \"free_disk_bytes\": 1000000000000}")
    i=$((i + 1))
  done
  mkdir -p "$work/$pool"
  (
    IFS=,
    printf '{"format": "shoal-pool-spec", "version": 1, "nodes": [%s]}\n' "${nodes[*]}"
  ) >"$work/$pool/spec.json"
  [[ -e $work/$pool/plan.json ]] ||
    "$shoal" plan "$model" --nodes "$work/$pool/spec.json" --placement units --copies "$copies" \
      --out "$work/$pool/plan.json" >/dev/null
  "$shoal" shard "$model" --plan "$work/$pool/plan.json" --out "$work/$pool/parts" >/dev/null
}

# least_budget PART: bytes, as the node itself says when it gets too few.
least_budget() {
  { "$node" "$1" --budget 1MiB --threads 1 --max-rows 4 2>&1 || true; } |
    sed -n 's/.*--budget to at least \([0-9]*\) bytes.*/\1/p'
}

# start_node POOL INDEX RATE LISTEN: a node on its part of make_parts, with the smallest cache that it
# takes, so that every expert is read. Its process id goes to the end of `pids`; returns at once.
start_node() {
  local part=$work/$1/parts/node-$2 budget
  budget=$(least_budget "$part")
  [[ -n $budget ]] || fail "$part: the node does not say what it needs at least"
  : >"$work/node-$2.out"
  "$node" "$part" --name "node-$2" --listen "$4" --budget "$budget" --threads 1 --max-rows 4 \
    --no-measure --allow-drill --drill-read-rate "$3" >"$work/node-$2.out" 2>"$work/node-$2.err" &
  pids+=($!)
}

# start_nodes POOL RATE...: all nodes of a pool, and waits for them. Their addresses are in
# `addresses`, in the order of the rates.
start_nodes() {
  local pool=$1 i=0 read_rate line
  shift
  addresses=()
  for read_rate in "$@"; do
    start_node "$pool" "$i" "$read_rate" 127.0.0.1:0
    i=$((i + 1))
  done
  for ((i = 0; i < $#; i++)); do
    # It reads the experts of its probe first, at its rate.
    line=$(listening_on "$work/node-$i.out" "${pids[i]}") ||
      fail "a node does not say where it listens: $(cat "$work/node-$i.err")"
    addresses+=("$line")
  done
}

# listening_on FILE PID: the address that a program announced in FILE, once it has; fails where it
# ended, or said nothing for two minutes.
listening_on() {
  local line tries
  for ((tries = 0; tries < 1200; tries++)); do
    line=$(sed -n 's/^listening on //p' "$1")
    if [[ -n $line ]]; then
      printf '%s\n' "$line"
      return 0
    fi
    kill -0 "$2" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}

# joined WORD...: the words with commas between them.
joined() {
  local IFS=,
  printf '%s' "$*"
}
