#!/usr/bin/env python3
"""How many of the source lines that ptxas's line tables (-lineinfo) name ours name as well: tools/debug/lines.py FOLDER [FILES].

Takes PTX files with .loc below FOLDER, FILES of them (30) by a fixed seed, for their own targets, at -O3. OXPTXAS names our compiler
(target/release/oxptxas without), OXPTXAS_ORACLES the folder of ptxas and nvdisasm (docs/oracles.md). Fails below 95 %.
"""
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parents[2]
tools = pathlib.Path(os.environ.get("OXPTXAS_ORACLES", root / "target/oracles/nvidia/cu13/bin"))
compilers = [os.environ.get("OXPTXAS", root / "target/release/oxptxas"), tools / "ptxas"]
texts = {f: f.read_text(errors="replace") for f in sorted(pathlib.Path(sys.argv[1]).rglob("*.ptx"))}
with_lines = [f for f, text in texts.items() if re.search(r"^\s*\.loc\s", text, re.M)]
random.Random(3).shuffle(with_lines)


def lines(compiler, file, cubin):
    """The lines that nvdisasm shows, or nothing where the file is refused."""
    target = re.search(r"^\s*\.target\s+(sm_\w+)", texts[file], re.M)[1]
    command = [compiler, f"-arch={target}", "-lineinfo", file, "-o", cubin]
    if subprocess.run(command, capture_output=True).returncode:
        return None
    shown = subprocess.run([tools / "nvdisasm", "-g", "-c", cubin], capture_output=True, text=True, check=True)
    return set(re.findall(r'//## File "([^"]*)", line (\d+)', shown.stdout))


ours_all, theirs_all, common, files = 0, 0, 0, 0
with tempfile.TemporaryDirectory() as folder:
    for file in with_lines[: int(sys.argv[2]) if len(sys.argv) > 2 else 30]:
        ours, theirs = (lines(c, file, f"{folder}/cubin") for c in compilers)
        if theirs is None:
            continue
        if ours is None:
            sys.exit(f"{file}: refused by ours alone")
        files += 1
        ours_all, theirs_all, common = ours_all + len(ours), theirs_all + len(theirs), common + len(ours & theirs)
        if theirs - ours:
            print(f"{file}: {len(theirs - ours)} of {len(theirs)} lines are missing")
if not files:
    sys.exit("no files with .loc")
print(f"{files} files, {theirs_all} lines of ptxas's, {ours_all} of ours, {common} in both: {100 * common / theirs_all:.1f} %")
sys.exit(common < 0.95 * theirs_all)
