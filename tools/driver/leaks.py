#!/usr/bin/env python3
"""Compares what the check `memory` says is not freed with what the program's calls say.

    OXCUDA_CHECK=memory OXCUDA_TRACE=1 tools/driver/numba.sh OUT TESTS…
    tools/driver/leaks.py OUT/*.log

A log has the calls of one process with their results (`OXCUDA_TRACE=1`). For each log: findings, how many of them are memory that a
call gave, in this size, and that no call took back; how many are pieces that kernels allocated, of which no call tells; how many
are neither, which is wrong; and what calls gave, did not take back, and nobody reported: its context has not ended.
"""
import re
import sys
from pathlib import Path

CALL = re.compile(r"oxcuda: (cuMem\w+)\((0x[0-9a-f]+)(?:, (\d+))?\) -> 0$")
FINDING = re.compile(r"oxcuda: memory: (\d+) bytes at (0x[0-9a-f]+) are not freed when their context ends: (.*)$")


def look(text):
    """Findings, those that calls confirm, those of kernels, wrong ones, and what is left."""
    live, found, confirmed, kernels, wrong = {}, 0, 0, 0, []
    for line in text.splitlines():
        if call := CALL.search(line):
            _, address, size = call.groups()
            if size:
                live[address] = int(size)
            else:
                live.pop(address, None)
        elif finding := FINDING.search(line):
            size, address, what = finding.groups()
            found += 1
            if what == "what a kernel allocated":
                kernels += 1
            elif live.pop(address, None) == int(size):
                confirmed += 1
            else:
                wrong.append(line.strip())
    return found, confirmed, kernels, wrong, len(live)


def main():
    sums, bad = [0] * 5, 0
    print("file, findings, confirmed by calls, of kernels, wrong, left in contexts that have not ended")
    for path in map(Path, sys.argv[1:]):
        found, confirmed, kernels, wrong, left = look(path.read_text(errors="replace"))
        row = [found, confirmed, kernels, len(wrong), left]
        sums = [a + b for a, b in zip(sums, row)]
        if found or left:
            print(path.stem, *row)
        for line in wrong:
            print("   ", line)
        bad += bool(wrong)
    print("all:", *sums)
    sys.exit(bad != 0)


main()
