# Functions shared by ./quickstart, ./run-tests and .ci/run. Sourced; leaves the caller in the root
# of the sources.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# CMake takes its default launcher from this variable, so every build of the script profits.
if [[ -z ${CMAKE_CXX_COMPILER_LAUNCHER:-} ]] && command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi

heading() { printf '\n==> %s\n' "$*"; }

fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# install_packages GROUP: quick and quiet where nothing is missing.
install_packages() {
  heading "Packages ($1)"
  local code=0
  deploy/dependencies --install "$1" || code=$?
  # Its code says why (3: no right to install); it has explained itself already.
  [[ $code -eq 0 ]] || exit "$code"
}

# configure PRESET [CMAKE ARGUMENT...]
configure() {
  local preset=$1
  shift
  heading "Configure build/$preset"
  cmake --preset "$preset" "$@"
}

# build PRESET [TARGET...]: everything where no target is given.
build() {
  local preset=$1
  shift
  heading "Build ${*:-everything} in build/$preset"
  cmake --build "build/$preset" --parallel "$(nproc)" ${1:+--target "$@"}
}
