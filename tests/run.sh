#!/bin/sh
# Installs the packages, builds, runs every test, and ends in one line: N passed, N failed, N skipped.
#
#   tests/run.sh                 the release build
#   tests/run.sh --sanitizers    then asan-ubsan and tsan builds too (twice as long again)
#
# Tests that compare with third-party reference data read it from K3_REFERENCE_DIR (default: the
# folder shared/reference beside the checkout). Without it they are reported as skipped by name;
# REQUIRE_REFERENCE=1 turns such a skip into a failure. The NEON kernels are tested where Debian's
# g++-aarch64-linux-gnu and qemu-user-static are installed, and otherwise reported as skipped too.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
presets="release"
case "${1-}" in
  "") ;;
  --sanitizers) presets="release asan-ubsan tsan" ;;
  *) echo "usage: tests/run.sh [--sanitizers]" >&2; exit 2 ;;
esac

"$root/launch/install-packages.sh"
if [ -z "${K3_REFERENCE_DIR-}" ] && [ -d "$root/../shared/reference" ]; then
  K3_REFERENCE_DIR=$(cd "$root/../shared/reference" && pwd)
  export K3_REFERENCE_DIR
fi

cd "$root"
for preset in $presets; do
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset"
done
exec /usr/bin/python3 tests/run_all.py $presets neon
