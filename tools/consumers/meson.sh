#!/usr/bin/env bash
# Meson's CUDA language with oxptxas in ptxas's place: tools/consumers/meson.sh [WORK]. meson and ninja on PATH (pip has both).
. "$(dirname "$0")/common.sh"
toolkit
mkdir -p "$work/source"
cp "$root/tools/consumers/vectors.cu" "$work/source"
cat >"$work/source/meson.build" <<'MESON'
project('vectors', 'cpp', 'cuda')
executable('vectors', 'vectors.cu', cuda_args: ['-arch=sm_90'], link_args: ['-arch=sm_90'])
MESON
for type in debug release; do
    build=$work/build-$type
    PATH=$work/cuda/bin:$PATH meson setup "$build" "$work/source" --buildtype=$type >"$build.log" || { cat "$build.log" && exit 1; }
    PATH=$work/cuda/bin:$PATH meson compile -C "$build" >>"$build.log" || { cat "$build.log" && exit 1; }
    "$build/vectors"
done
verify_kept 2
