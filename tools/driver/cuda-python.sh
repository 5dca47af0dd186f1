#!/usr/bin/env bash
# Programs of ours for cuda-python (cuda.core and cuda.bindings) on the driver library, without a GPU: vector addition,
# reductions, streams, graphs, mapped memory:
#
#     tools/driver/cuda-python.sh OUT
#
# It is installed with pip into OUT/venv, with NVRTC, which runs on the CPU.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
out=$(mkdir -p "$1" && realpath "$1")
venv=$out/venv
if [ ! -e "$venv/.complete" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check 'cuda-core[cu13]==1.2.2' 'cuda-bindings==13.0.*' \
        'nvidia-cuda-nvrtc==13.0.*' 'nvidia-cuda-runtime==13.0.*' numpy
    touch "$venv/.complete"
fi
[ -n "${DRIVER:-}" ] || DRIVER=$(cd "$here" && cargo xtask driver)
export LD_LIBRARY_PATH=$DRIVER
for program in "$here"/tools/driver/*.py; do
    echo "$(basename "$program"): $("$venv/bin/python" "$program" 2>&1 | tail -n 1)"
done
