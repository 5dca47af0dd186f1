#!/usr/bin/env python3
"""Compares what `-v` says with what ptxas says, for PTX files at up to three targets each (sm_75, 90 and 120 where the
file's own target allows it). Registers, spills and times are left out. Usage: verbose.py OXPTXAS PTXAS [-o OPTION]... FOLDER..."""

import collections
import concurrent.futures
import glob
import os
import re
import subprocess
import sys
import tempfile


def targets(path):
    text = open(path, errors="replace").read()
    found = re.search(r"^\s*\.target\s+sm_(\d+)(\w?)", text, re.M)
    if not found:
        return []
    sm, suffix = int(found.group(1)), found.group(2)
    if suffix:
        return [f"sm_{sm}{suffix}"]
    return [f"sm_{k}" for k in (75, 90, 120) if k >= sm] or [f"sm_{sm}"]


def said(tool, options, target, path):
    with tempfile.TemporaryDirectory() as folder:
        line = [tool, "-v", *options, f"-arch={target}", path, "-o", os.path.join(folder, "out")]
        done = subprocess.run(line, capture_output=True, text=True)
    text = re.sub(r"^oxptxas", "ptxas", done.stderr, flags=re.M)
    text = re.sub(r"Used \d+ registers", "Used N registers", text)
    text = re.sub(r"\d+ bytes spill stores, \d+ bytes spill loads", "SPILLS", text)
    text = re.sub(r"Compile time = [\d.]+ ms", "Compile time", text)
    return done.returncode, text


def main():
    arguments = sys.argv[1:]
    ours, theirs, options, folders = arguments[0], arguments[1], [], []
    rest = iter(arguments[2:])
    for a in rest:
        if a == "-o":
            options.append(next(rest))
        else:
            folders.append(a)
    paths = sorted(p for f in folders for p in glob.glob(os.path.join(f, "**/*.ptx"), recursive=True))
    jobs = [(p, t) for p in paths for t in targets(p)]

    def one(job):
        path, target = job
        return job, [said(tool, options, target, path) for tool in (ours, theirs)]

    same, kinds = 0, collections.defaultdict(list)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for job, ((code, a), (other, b)) in pool.map(one, jobs):
            if code or other:
                kinds["fails with ours" if code and not other else "fails with ptxas"].append((job, "", ""))
            elif a == b:
                same += 1
            else:
                lines = [(x, y) for x, y in zip(a.splitlines(), b.splitlines()) if x != y]
                x, y = lines[0] if lines else ("", "")
                field = re.sub(r"'[^']*'", "NAME", re.sub(r"\d+", "#", y.strip()))
                kinds[field].append((job, x.strip(), y.strip()))
    print(f"{same} of {len(jobs)} are the same")
    for field, cases in sorted(kinds.items(), key=lambda k: -len(k[1])):
        print(f"{len(cases)}: {field}")
        for (path, target), x, y in cases[:3]:
            print(f"    {path} {target}\n        ours:  {x}\n        ptxas: {y}")


main()
