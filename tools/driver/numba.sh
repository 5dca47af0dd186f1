#!/usr/bin/env bash
# Numba's own test suite (numba-cuda) on the driver library, without a GPU:
#
#     tools/driver/numba.sh OUT [TESTS…]          # TESTS as in cudapy.test_array; all of them if none is named
#
# Everything is installed with pip into OUT/venv. nvJitLink is taken out again, so that PTX is linked by the driver (cuLink):
# one PTX goes through our compiler; several inputs through nvlink of NVIDIA's wheel. Each file of tests runs in a process of
# its own, as an error of a kernel leaves a context of no use; OUT/NAME.log has its log, what is there already is kept.
# OXCUDA_SM, OXCUDA_PTXAS, OXCUDA_MODE hold as for any program (docs/driver.md). JOBS processes run at once, two if unset. A test may take TEST_TIMEOUT
# seconds, 600 if unset, and a file of them three times as long.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
out=$(mkdir -p "$1" && realpath "$1")
shift
venv=$out/venv
if [ ! -e "$venv/.complete" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check 'numba-cuda[cu13]==0.30.4' 'cuda-toolkit==13.0.*' \
        'cuda-bindings==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-nvrtc==13.0.*' 'nvidia-cuda-runtime==13.0.*' \
        'nvidia-cuda-nvcc==13.0.88' 'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-cccl==13.0.*' \
        'pytest>=8,<9' pytest-timeout pytest-benchmark psutil cffi ml_dtypes filecheck statistics
    "$venv/bin/pip" uninstall -q -y nvidia-nvjitlink
    touch "$venv/.complete"
fi
[ -n "${DRIVER:-}" ] || DRIVER=$(cd "$here" && cargo xtask driver)
site=$("$venv/bin/python" -c 'import numba_cuda, os; print(os.path.dirname(os.path.dirname(numba_cuda.__file__)))')
# What the suite takes from its own folder of tests.
mkdir -p "$out/run"
cat >"$out/run/pytest.ini" <<'INI'
[pytest]
consider_namespace_packages = true
addopts = --benchmark-disable --pyargs
INI
cat >"$out/run/conftest.py" <<'PY'
import pytest


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    request.cls._dump_failed_filechecks = False
PY
export PATH=$venv/bin:$site/nvidia/cu13/bin:$PATH LD_LIBRARY_PATH=$DRIVER OUT=$out
if [ $# -gt 0 ]; then
    printf '%s\n' "$@"
else
    (cd "$site/numba_cuda/numba/cuda/tests" && find . -name 'test_*.py' | sed 's|^\./||; s|\.py$||; s|/|.|g' |
        grep -v '^cudasim\|^benchmarks' | sort)
fi >"$out/files"
cd "$out/run"
# shellcheck disable=SC2016
xargs -P "${JOBS:-2}" -I{} sh -c '[ -s "$OUT/{}.log" ] || { timeout $((3 * ${TEST_TIMEOUT:-600})) python -m pytest numba.cuda.tests.{} -v -rA \
    --timeout ${TEST_TIMEOUT:-600} -p no:cacheprovider >"$OUT/{}.part" 2>&1; mv "$OUT/{}.part" "$OUT/{}.log"; }' <"$out/files"
echo "passed $(cat "$out"/*.log | grep -ac '^PASSED ' || true), failed:"
grep -a '^FAILED \|^ERROR ' "$out"/*.log | sed "s|^$out/||" || true
