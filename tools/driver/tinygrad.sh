#!/usr/bin/env bash
# tinygrad's tests of operations on the driver library, with its CUDA device and its PTX renderer, without a GPU:
#
#     tools/driver/tinygrad.sh TINYGRAD OUT [TESTS…]     # TINYGRAD: a checkout of tinygrad; TESTS: test/backend/test_ops.py
#
# What they need besides is installed with pip into OUT/venv; clang is to be on PATH (tinygrad's CPU device). OXCUDA_SM,
# OXCUDA_PTXAS, OXCUDA_MODE hold as for any program (docs/driver.md). OUT/log has the log.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
source=$(realpath "$1") out=$(mkdir -p "$2" && realpath "$2")
shift 2
[ $# -gt 0 ] || set -- test/backend/test_ops.py
venv=$out/venv
if [ ! -e "$venv/.complete" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check numpy torch pytest pytest-timeout hypothesis ml_dtypes
    touch "$venv/.complete"
fi
[ -n "${DRIVER:-}" ] || DRIVER=$(cd "$here" && cargo xtask driver)
cd "$source"
# TEST_TIMEOUT: the suite ends itself by SIGABRT where a test takes longer.
LD_LIBRARY_PATH=$DRIVER DEV=CUDA:PTX CCACHE=0 TEST_TIMEOUT=1200 "$venv/bin/python" -m pytest "$@" -v -rA --timeout 1200 -p no:cacheprovider \
    >"$out/log" 2>&1 || true
tail -n 1 "$out/log"
grep -a '^FAILED ' "$out/log" || true
