#!/usr/bin/env python3
"""Runs the launches that `cargo xtask gpu-cases` wrote on a GPU and compares memory with what the PTX interpreter says.

    cases.py FILE[.gz|.xz] [--jobs N] [--ptxas PATH] [--seconds S] [--log FILE]

Pointers are numbers: where it is known which words of the parameters they are, memory lies anywhere; else each region of the interpreter's
sparse memory gets a range of addresses of its own, and words that are addresses in one are changed.
Each launch runs with each code of its module. Where one gives something else, ptxas's code for the same PTX is run as well, if
`--ptxas` says where that is, and the line says whether it agrees with ours. Processes work side by side, each with
a context of its own; after a fault, or when nothing came for ten seconds, the process is replaced.

It needs a driver, Python 3.11 and NumPy. The exit status is 1 if our code gave another result than both.
"""

import argparse
import ctypes
import gzip
import hashlib
import json
import lzma
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time

CHUNK = 2 << 20
# Bits of an address in a region of the interpreter's memory.
REGION = 36
PATIENCE = 10


def lines(path):
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(pathlib.Path(path).suffix, open)
    with opener(path, "rt") as f:
        yield from f


def tasks(path, worker, workers):
    """Modules with their launches that a worker is to run, with their numbers."""
    module, number, launch = None, -1, 0
    for line in lines(path):
        if line.startswith('{"code"') or line.startswith('{"file"'):
            number += 1
            mine = number % workers == worker
            module, launch = (json.loads(line) if mine else None), 0
        elif module:
            yield number, launch, module, json.loads(line)
            launch += 1


class Device:
    """The calls of the driver that are needed, and memory at wanted addresses."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", ctypes.c_uint(0))
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)
        self.mapped, self.windows, self.room, self.base, self.stack = set(), {}, 0, 0, 1024

    def call(self, name, *args):
        status = getattr(self.lib, name)(*args)
        if status:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorName(ctypes.c_int(status), ctypes.byref(text))
            raise RuntimeError(f"{name}: {text.value.decode() if text.value else status}")

    def map(self, chunk):
        """Sees to it that there is memory at this address of a window."""
        if chunk in self.mapped:
            return
        handle, size, at = ctypes.c_uint64(), ctypes.c_size_t(CHUNK), ctypes.c_uint64(chunk)
        # Pinned memory of device 0, no handle to share, no flags.
        wanted = (ctypes.c_int * 8)(1, 0, 1, 0, 0, 0, 0, 0)
        self.call("cuMemCreate", ctypes.byref(handle), size, wanted, ctypes.c_uint64(0))
        self.call("cuMemMap", at, size, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        # Device 0 may read and write.
        access = (ctypes.c_int * 3)(1, 0, 3)
        self.call("cuMemSetAccess", at, size, access, ctypes.c_size_t(1))
        self.mapped.add(chunk)

    def placed(self, case):
        """The launch with its regions in windows that the driver gives, and all words that are addresses in them changed."""
        import numpy

        regions = sorted({piece[0] >> REGION for piece in case["memory"]})
        for n in regions:
            if n not in self.windows:
                got = ctypes.c_uint64()
                size = ctypes.c_size_t(1 << REGION)
                self.call("cuMemAddressReserve", ctypes.byref(got), size, ctypes.c_size_t(CHUNK), ctypes.c_uint64(0), ctypes.c_uint64(0))
                self.windows[n] = got.value
        known = numpy.array(regions, numpy.uint64)
        moves = numpy.array([(self.windows[n] - (n << REGION)) % (1 << 64) for n in regions], numpy.uint64)

        def words(text):
            data = bytes.fromhex(text)
            whole = numpy.frombuffer(data[: len(data) // 8 * 8], numpy.uint64).copy()
            which = numpy.searchsorted(known, whole >> numpy.uint64(REGION)) % max(len(known), 1)
            found = known[which] == whole >> numpy.uint64(REGION)
            whole[found] += moves[which][found]
            return (whole.tobytes() + data[len(whole) * 8 :]).hex()

        if not regions:
            return case
        move = lambda at: at + self.windows[at >> REGION] - (at >> REGION << REGION)
        memory = [[move(at), words(before), words(after)] for at, before, after in case["memory"]]
        return case | {"params": words(case["params"]), "memory": memory}

    def moved(self, case):
        """The launch with its memory where the driver gives some."""
        first = min(piece[0] for piece in case["memory"]) // CHUNK * CHUNK
        end = max(piece[0] + len(piece[1]) // 2 for piece in case["memory"])
        while self.room < end - first + CHUNK:
            self.room, got = 8 * CHUNK + end - first, ctypes.c_uint64()
            self.call("cuMemAlloc_v2", ctypes.byref(got), ctypes.c_size_t(self.room))
            self.base = -(-got.value // CHUNK) * CHUNK
            self.mapped.update(range(self.base, got.value + self.room - CHUNK + 1, CHUNK))
        params = bytearray(bytes.fromhex(case["params"]))
        for at in case["pointers"]:
            address = int.from_bytes(params[at : at + 8], "little") - first + self.base
            params[at : at + 8] = address.to_bytes(8, "little")
        memory = [[at - first + self.base, *both] for at, *both in case["memory"]]
        return case | {"params": params.hex(), "memory": memory}

    def run(self, cubin, case):
        """What chunks and variables hold after a launch."""
        before = images(case, 1)
        for chunk, image in before.items():
            self.map(chunk)
            self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(chunk), image.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(CHUNK))
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), cubin)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, case["kernel"].encode())
        if case["stack"] > self.stack:
            # CU_LIMIT_STACK_SIZE: programs that call themselves need more than the driver gives unasked.
            self.stack = case["stack"]
            self.call("cuCtxSetLimit", ctypes.c_int(0), ctypes.c_size_t(self.stack))
        if case["shared"] > 48 << 10:
            self.call("cuFuncSetAttribute", function, ctypes.c_int(8), ctypes.c_int(case["shared"]))
        params = bytes.fromhex(case["params"])
        holder, size = ctypes.create_string_buffer(params, max(len(params), 1)), ctypes.c_size_t(len(params))
        # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(holder), 2, ctypes.addressof(size), 0)
        shape = case["grid"] + case["block"] + [case["shared"]]
        attributes = ctypes.create_string_buffer(2 * 72)
        count = 0
        if case["cluster"] and case["cluster"] != [1, 1, 1]:
            # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            (ctypes.c_uint * 5).from_buffer(attributes, 72 * count)[:] = [4, 0] + case["cluster"]
            count += 1
        if case["cooperative"]:
            # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            (ctypes.c_uint * 3).from_buffer(attributes, 72 * count)[:] = [2, 0, 1]
            count += 1
        config = ctypes.create_string_buffer(56)
        (ctypes.c_uint * 7).from_buffer(config)[:] = shape
        (ctypes.c_uint64 * 2).from_buffer(config, 32)[:] = [0, ctypes.addressof(attributes)]
        (ctypes.c_uint * 1).from_buffer(config, 48)[:] = [count]
        self.call("cuLaunchKernelEx", config, function, None, extra)
        self.call("cuCtxSynchronize")
        after = {}
        for chunk, image in before.items():
            self.call("cuMemcpyDtoH_v2", image.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(chunk), ctypes.c_size_t(CHUNK))
            after[chunk] = image
        variables = {}
        for name, want in case["variables"].items():
            address, size = ctypes.c_uint64(), ctypes.c_size_t()
            if self.lib.cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), module, name.encode()):
                continue
            data = ctypes.create_string_buffer(max(size.value, 1))
            self.call("cuMemcpyDtoH_v2", data, address, size)
            variables[name] = data.raw[: size.value]
        self.call("cuModuleUnload", module)
        return after, variables


def images(case, which):
    """The chunks that a launch's memory lies in, with what they hold: before (1) or after (2)."""
    import numpy

    out = {}
    for piece in case["memory"]:
        at, data = piece[0], bytes.fromhex(piece[which])
        while data:
            chunk = at // CHUNK * CHUNK
            part = data[: chunk + CHUNK - at]
            if chunk not in out:
                out[chunk] = numpy.zeros(CHUNK, numpy.uint8)
            out[chunk][at - chunk : at - chunk + len(part)] = numpy.frombuffer(part, numpy.uint8)
            at, data = at + len(part), data[len(part) :]
    return out


def compare(case, after, variables):
    """What differs in words, and a digest of everything."""
    import numpy

    digest, found = hashlib.sha1(), []
    for chunk, want in images(case, 2).items():
        got = after[chunk]
        digest.update(got.tobytes())
        if not numpy.array_equal(got, want):
            wrong = numpy.nonzero(got.view(numpy.uint32) != want.view(numpy.uint32))[0]
            i = int(wrong[0])
            x, y = int(got.view(numpy.uint32)[i]), int(want.view(numpy.uint32)[i])
            found.append(f"{len(wrong)} words, {chunk + 4 * i:#x} is {x:#010x}, not {y:#010x}")
    for name, got in variables.items():
        digest.update(got)
        # Addresses in variables are the driver's.
        if got != bytes.fromhex(case["variables"][name])[: len(got)]:
            found.append(f"variable {name}")
    return "; ".join(found), digest.hexdigest()[:8]


def work(options):
    """A worker: one line for each run."""
    device, wanted = None, options.only.split(",") if options.only else None
    for number, launch, module, case in tasks(options.file, options.worker, options.workers):
        if (number, launch) < (options.module, options.launch) or (wanted and f"{number}.{launch}" not in wanted):
            continue
        codes = dict(module["code"])
        if options.vendor:
            codes = {"px": vendor(options.ptxas, module["ptx"])}
        for level, code in codes.items():
            name = f"{number}.{launch} {level} {module['file']} {case['kernel']}"
            print("start", number, launch, level, flush=True)
            if code is None:
                print("end", name, ": ptxas refuses it", flush=True)
                continue
            device = device or Device()
            try:
                placed = device.moved(case) if case["pointers"] else device.placed(case)
                wrong, digest = compare(placed, *device.run(bytes.fromhex(code), placed))
            except RuntimeError as e:
                print("end", name, f": {e}", flush=True)
                # The context is of no more use, and it may not even end.
                import os

                os._exit(3)
            print("end", name, f": {digest} {wrong or 'same'}", flush=True)


def time_all(path):
    """Each code of each launch three times, as a profiler counts them in turn: a line for each launch."""
    device = Device()
    for number, launch, module, case in tasks(path, 0, 1):
        for level, code in module["code"].items():
            for turn in range(3):
                placed = device.placed(case)
                wrong, digest = compare(placed, *device.run(bytes.fromhex(code), placed))
                print("timed", number, launch, level, turn, module["model"][level], digest, module["file"], flush=True)


def vendor(ptxas, text):
    with tempfile.TemporaryDirectory() as d:
        source, cubin = pathlib.Path(d, "a.ptx"), pathlib.Path(d, "a.cubin")
        source.write_text(text)
        arch = next((w.split(",")[0] for w in text.split(".target", 1)[1].split()[:1]), "sm_90")
        arch = "sm_90a" if arch.endswith("a") else "sm_90"
        done = subprocess.run([ptxas, f"-arch={arch}", "-fmad=false", source, "-o", cubin], capture_output=True)
        return cubin.read_bytes().hex() if done.returncode == 0 else None


def drive(options, worker, workers, end, out, only=None):
    """Runs a worker to its end, replacing it where it stops early."""
    at = (0, 0, "")
    while time.time() < end:
        command = [sys.executable, __file__, options.file, "--worker", str(worker), "--workers", str(workers)]
        command += ["--module", str(at[0]), "--launch", str(at[1])]
        if only:
            command += ["--only", only, "--vendor", "--ptxas", options.ptxas]
        p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        got = queue.Queue()

        def pump(stream=p.stdout, got=got):
            for line in stream:
                got.put(line)
            got.put(None)

        threading.Thread(target=pump, daemon=True).start()
        running = None
        while True:
            try:
                line = got.get(timeout=PATIENCE if running else 60)
            except queue.Empty:
                line = "hang"
            if line == "hang" or time.time() > end:
                if line == "hang":
                    out(f"end {running} : no end")
                p.kill()
                break
            if line is None:
                break
            if line.startswith("start "):
                _, number, launch, level = line.split()
                running, at = f"{number}.{launch} {level}", (int(number), int(launch), level)
            elif line.startswith("end "):
                out(line.strip())
            else:
                out("note " + line.strip())
        if p.poll() == 0 or line is None and p.wait() == 0:
            return
        # The rest of the levels of this launch is not run.
        at = (at[0], at[1] + 1, "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--ptxas")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--log", type=pathlib.Path)
    for name in ("--module", "--launch", "--workers", "--worker"):
        parser.add_argument(name, type=int, default=-1 if name == "--worker" else 0, help=argparse.SUPPRESS)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--vendor", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--time", action="store_true", help="run each code three times, for a profiler")
    options = parser.parse_args()
    if options.time:
        return time_all(options.file)
    if options.worker >= 0:
        return work(options)
    end, results, lock = time.time() + options.seconds, [], threading.Lock()
    log = options.log.open("w") if options.log else None

    def out(line):
        with lock:
            results.append(line)
            if log:
                log.write(line + "\n")
                log.flush()

    def all_workers(only=None):
        threads = [
            threading.Thread(target=drive, args=(options, w, options.jobs, end, out, only)) for w in range(options.jobs)
        ]
        [t.start() for t in threads]
        [t.join() for t in threads]

    all_workers()
    ours = [r for r in results if r.startswith("end ")]
    bad = [r for r in ours if not r.endswith(" same")]
    notes = [r for r in results if r.startswith("note ")]
    print(f"{len(ours)} runs, {len(ours) - len(bad)} as the interpreter says")
    theirs = {}
    if bad and options.ptxas:
        results.clear()
        all_workers(",".join(sorted({r.split()[1] for r in bad})))
        theirs = {r.split()[1]: r.split(" : ", 1)[-1] for r in results if r.startswith("end ")}
    wrong = 0
    for r in bad:
        mine, other = r.split(" : ", 1)[-1], theirs.get(r.split()[1], "not run")
        same = mine.split()[0] == other.split()[0] and len(mine.split()[0]) == 8
        verdict = "ptxas's code gives the same" if same else f"ptxas's code: {other[:90]}"
        wrong += not same
        line = f"{'agrees' if same else 'DIFFERS'} {r[4:]} | {verdict}"
        if log:
            log.write(line + "\n")
        if not same:
            print(line)
    print(f"{len(bad) - wrong} otherwise, as ptxas's code; {wrong} otherwise")
    [print(n) for n in notes[:10]]
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
