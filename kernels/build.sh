#!/usr/bin/env bash
# Makes the PTX of every kernel here with nvcc 13.0 for compute_75, so that one file serves every target.
# OXPTXAS_ORACLES names the folder that holds the vendor's programs (`cargo xtask oracles` prints it).
set -euo pipefail
cd "$(dirname "$0")"
: "${OXPTXAS_ORACLES:?folder of the vendor programs}"
export PATH=$OXPTXAS_ORACLES:$PATH
for cu in *.cu; do
  options=()
  # nvcc only makes brx.idx of a switch when it is told to.
  [ "$cu" = jumptable.cu ] && options=(--jump-table-density=20)
  nvcc -arch=compute_75 "${options[@]}" -ptx "$cu" -o "${cu%.cu}.ptx"
done
