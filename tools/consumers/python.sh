#!/usr/bin/env bash
# The Python package in an empty environment: tools/consumers/python.sh WHEEL [WORK]. `cargo xtask wheel` makes the wheel.
wheel=$(realpath "$1")
shift
. "$(dirname "$0")/common.sh"
python3 -m venv --clear "$work/venv"
"$work/venv/bin/pip" install -q --no-index --disable-pip-version-check "$wheel"
cd "$root/python/tests"
"$work/venv/bin/python" -m unittest -q
cd "$work"
for ptx in "$root"/kernels/{saxpy,calls,sha256,matmul}.ptx; do
    name=$KEPT/$(basename "$ptx" .ptx)
    "$work/venv/bin/python" -c 'import oxptxas, sys; sys.stdout.buffer.write(oxptxas.compile(open(sys.argv[1]).read(), "sm_120"))' "$ptx" >"$name.cubin"
    cp "$ptx" "$name.ptx"
    echo "oxptxas.compile" >"$name.command"
done
verify_kept 4
