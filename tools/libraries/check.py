#!/usr/bin/env python3
"""Holds our code of PTX files against ptxas's, file by file:

    tools/libraries/check.py BIN OUT FILE.ptx…

BIN has oxptxas and oxsass; ptxas, nvdisasm and cuobjdump are on PATH. A line a file: its name, target, and for ptxas and for ours at -O3 and -O0 the seconds, the
memory in MB, instructions, the most registers and the bytes of spill stores; then what is wrong: a refusal, a hazard, text that nvdisasm refuses,
how many places are outside the hardware contract. Cubins stay in OUT, and lines in OUT/lines.txt; files that have a line there are left out.
"""

import os
import re
import subprocess
import sys

bin, out = sys.argv[1], sys.argv[2]
os.makedirs(out, exist_ok=True)
lines = os.path.join(out, "lines.txt")
done = {line.split()[0] for line in open(lines)} if os.path.exists(lines) else set()


def timed(*command):
    """Runs a command: its status, its output, seconds and MB."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as p:
        text = p.stdout.read()
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    return p.returncode, text, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def numbers(cubin, text):
    """Instructions, the most registers, bytes of spills."""
    code = subprocess.run(["nvdisasm", "-c", cubin], capture_output=True, text=True, errors="replace")
    if code.returncode != 0:
        return None
    count = len(re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?!NOP|BRA `\(\.L_x_\d+\);)", code.stdout, re.M))
    registers = max([int(n) for n in re.findall(r"Used (\d+) registers", text)] or [0])
    return count, registers, sum(int(n) for n in re.findall(r"(\d+) bytes spill stores", text))


def compile(compiler, level, file, target, cubin):
    status, text, seconds, memory = timed(compiler, f"-arch={target}", f"-O{level}", "-v", file, "-o", cubin)
    if status != 0:
        wrong = next((line for line in text.splitlines() if "rror" in line or "fatal" in line or "panic" in line), text[:200])
        return None, f"{seconds:.1f}s {memory:.0f}MB refused: {wrong[:300]}"
    found = numbers(cubin, text)
    if found is None:
        return None, "nvdisasm refuses it"
    warned = sorted(set(re.findall(r"\(C\d+\)", text)))
    return found, f"{seconds:.2f}s {memory:.0f}MB {found[0]} {found[1]}r {found[2]}sp {' '.join(warned)}".rstrip()


for file in sys.argv[3:]:
    name = os.path.basename(file).removesuffix(".ptx")
    if name in done:
        continue
    target = re.search(r"^\.target\s+(\w+)", open(file).read(), re.M).group(1)
    parts = [f"{name} {target}"]
    cubin = os.path.join(out, name)
    _, text = compile("ptxas", 3, file, target, cubin + ".ref.cubin")
    parts.append("ptxas " + text)
    for level in (3, 0):
        code, text = compile(os.path.join(bin, "oxptxas"), level, file, target, f"{cubin}.{level}.cubin")
        parts.append(f"ours -O{level} " + text)
        if code is None:
            continue
        status, text, _, _ = timed(os.path.join(bin, "oxsass"), "check", f"{cubin}.{level}.cubin")
        if status != 0:
            parts.append("HAZARDS " + text.strip()[-200:])
        status, text, _, _ = timed(os.path.join(bin, "oxsass"), "check", "--contract", f"{cubin}.{level}.cubin")
        found = re.search(r"(\d+) findings", text)
        parts.append(f"{found.group(1) if found else 0} outside")
    line = " | ".join(parts).replace("\n", " ")
    print(line, flush=True)
    with open(lines, "a") as f:
        f.write(line + "\n")
