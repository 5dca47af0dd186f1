#!/usr/bin/env bash
# A C program with the library in nvPTXCompiler's place: tools/consumers/c-library.sh [WORK]. LIBRARY names a folder that
# `cargo xtask library` made (target/library without).
. "$(dirname "$0")/common.sh"
library=$(realpath "${LIBRARY:-$root/target/library}")
cd "$work"
cc -std=c99 -Wall -Werror "$root/tools/consumers/compile.c" -I"$library/include" -L"$library/lib" -loxptxas -Wl,-rpath,"$library/lib" -o shared
cc -std=c99 -Wall -Werror "$root/tools/consumers/compile.c" -I"$library/include" -L"$library/lib" -lnvptxcompiler_static -lpthread -lm -ldl -lgcc_s -o static
for ptx in "$root"/kernels/{saxpy,calls,sha256,matmul}.ptx; do
    for program in shared static; do
        ./$program "$ptx" -arch=sm_90 >"$KEPT/$(basename "$ptx" .ptx)-$program.cubin"
        cp "$ptx" "$KEPT/$(basename "$ptx" .ptx)-$program.ptx"
    done
done
verify_kept 8
