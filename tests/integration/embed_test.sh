#!/usr/bin/env bash
# A program of its own against an installed Shoal: installs a build, builds examples/embed with find_package(shoal), and runs it.
#   embed_test.sh BUILD_DIR SOURCE_DIR CONTAINER
set -euo pipefail
build=$1 source=$2 container=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$build" --prefix "$scratch/prefix" >/dev/null
"$scratch/prefix/bin/shoal" version
"$scratch/prefix/bin/shoal-node" --version
cmake -S "$source/examples/embed" -B "$scratch/embed" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix" >/dev/null
cmake --build "$scratch/embed"
"$scratch/embed/embed" "$container" "$scratch/session" | tee "$scratch/output"
# 4 tokens of the prompt and 32 generated ones, saved and loaded again.
grep -q "Restored 36 tokens" "$scratch/output"
