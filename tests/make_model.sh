#!/usr/bin/env bash
# Makes a container for the tests anew: make_model.sh SHOAL CHECKPOINT DIR [FLAG...]
set -euo pipefail
shoal=$1 checkpoint=$2 directory=$3
shift 3
rm -rf "$directory" "$directory.partial"
mkdir -p "$(dirname "$directory")"
"$shoal" convert "$checkpoint" "$directory" "$@"
