#!/usr/bin/env python3
"""Runs the launches of a launch file on a GPU, from a cubin, through the CUDA driver.

    run.py FILE.cubin LAUNCH.toml [--expect DIR] [--out DIR] [--device N]
    run.py --inputs DIR LAUNCH.toml

`--expect DIR` compares the outputs with those that `oxsass run FILE LAUNCH.toml --out DIR` wrote, as each buffer's
`compare` says; `--out DIR` writes them. `--inputs DIR` needs no GPU: it only writes the generated inputs.

Files are named INDEX.KERNEL.BUFFER.npy, INDEX being the launch's place in the launch file. It needs a driver and
Python 3.11, nothing else. The launch file's format, and how buffers are generated, is described in
docs/launch-files.md; `generate` here and `Buffer::generate` in crates/sim make the same bytes.
"""

import argparse
import ctypes
import pathlib
import struct
import sys
import tomllib

MASK64 = (1 << 64) - 1
# Element types: size in bytes, NumPy's name, whether floating-point.
TYPES = {
    "u8": (1, "|u1", False),
    "i16": (2, "<i2", False),
    "i32": (4, "<i4", False),
    "u32": (4, "<u4", False),
    "i64": (8, "<i8", False),
    "u64": (8, "<u8", False),
    "f32": (4, "<f4", True),
    "f64": (8, "<f8", True),
}
SPECIAL32 = [
    0, 1, 0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x01000000, 0x3F800000, 0x3F7FFFFF, 0x7E800000, 0x7F000000,
    0x7F7FFFFF, 0x7F800000, 0x7FC00000,
]  # fmt: skip
SPECIAL64 = [
    0, 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x0010000000000001, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000,
    0x7FF8000000000000,
]  # fmt: skip

# CUtensorMapDataType
TENSOR_TYPES = [
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32.ftz", "tf32", "tf32.ftz",
]  # fmt: skip


class Rng:
    """splitmix64"""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK64
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
        return z ^ (z >> 31)


def bits(kind, x):
    """The bits of the number `x` in the type, as a non-negative integer."""
    if kind == "f32":
        return int.from_bytes(bytes(ctypes.c_float(x)), sys.byteorder)
    if kind == "f64":
        return int.from_bytes(struct.pack("<d", x), "little")
    return int(x) & ((1 << 8 * TYPES[kind][0]) - 1)


def generate(buffer):
    """The initial contents of a buffer."""
    kind, length = buffer["type"], buffer["length"]
    size, _, is_float = TYPES[kind]
    rng = Rng(buffer.get("seed", 0))
    out = bytearray()
    for i in range(length):
        if "fill" in buffer:
            b = bits(kind, buffer["fill"])
        elif "iota" in buffer:
            start, step = buffer["iota"]
            b = bits(kind, start + step * i)
        elif "list" in buffer:
            b = bits(kind, buffer["list"][i]) if i < len(buffer["list"]) else 0
        elif "random" in buffer:
            low, high = buffer["random"]
            r = rng.next()
            if is_float and not buffer.get("integers", False):
                b = bits(kind, low + (high - low) * ((r >> 11) / 9007199254740992.0))
            else:
                b = bits(kind, int(low) + r % (int(high) - int(low) + 1))
        elif buffer.get("special", False):
            r, s = rng.next(), rng.next()
            edge, negative = r & 3 == 0, r >> 4 & 1
            if kind == "f64":
                b = (SPECIAL64[(r >> 8) % len(SPECIAL64)] if edge else s) ^ negative << 63
            else:
                b = (SPECIAL32[(r >> 8) % len(SPECIAL32)] if edge else s & 0xFFFFFFFF) ^ negative << 31
        else:
            b = 0
        out += (b & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return bytes(out)


def argument(arg, addresses):
    """The bytes of an argument."""
    if "i32" in arg:
        return bits("i32", arg["i32"]).to_bytes(4, "little")
    if "i64" in arg:
        return bits("i64", arg["i64"]).to_bytes(8, "little")
    if "f32" in arg:
        return bits("f32", arg["f32"]).to_bytes(4, "little")
    if "f64" in arg:
        return struct.pack("<d", arg["f64"])
    if "buffer" in arg:
        return addresses[arg["buffer"]].to_bytes(8, "little")
    out, align = bytearray(), 1
    for field in arg["fields"]:
        size = TYPES[field["type"]][0]
        align = max(align, size)
        out += bytes(-len(out) % size)
        for x in field["values"]:
            out += bits(field["type"], x).to_bytes(size, "little")
    out += bytes(-len(out) % align)
    return bytes(out)


def elements(kind, data):
    """A buffer's elements as bits."""
    size = TYPES[kind][0]
    return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]


def close(kind, a, b, ulps):
    """Whether two values agree: the same bits, both NaN, or at most `ulps` apart."""
    if a == b:
        return True
    size, _, is_float = TYPES[kind]
    if not is_float:
        return False
    infinity, sign = (0x7F800000, 1 << 31) if size == 4 else (0x7FF0000000000000, 1 << 63)
    if a & (sign - 1) > infinity and b & (sign - 1) > infinity:
        return True

    def order(x):
        return -(x & (sign - 1)) if x & sign else x

    return ulps > 0 and abs(order(a) - order(b)) <= ulps


def differences(name, buffer, got, want):
    """A line about what differs, or None."""
    kind, how = buffer["type"], buffer["compare"]
    ulps = 0 if how == "exact" else int(how.removeprefix("ulp "))
    if len(got) != len(want):
        return f"{name} has {len(got)} bytes, not {len(want)}"
    pairs = list(zip(elements(kind, got), elements(kind, want)))
    wrong = [i for i, (a, b) in enumerate(pairs) if not close(kind, a, b, ulps)]
    if not wrong:
        return None
    i, digits = wrong[0], 2 * TYPES[kind][0]
    a, b = pairs[i]
    return f"{name}[{i}] is {a:#0{digits + 2}x}, not {b:#0{digits + 2}x} ({len(wrong)} of {len(pairs)} differ)"


def write_npy(path, kind, data):
    header = f"{{'descr': '{TYPES[kind][1]}', 'fortran_order': False, 'shape': ({len(data) // TYPES[kind][0]},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def read_npy(path):
    data = path.read_bytes()
    if data[:6] != b"\x93NUMPY":
        sys.exit(f"{path}: not a .npy file")
    if data[6] == 1:
        return data[10 + struct.unpack_from("<H", data, 8)[0] :]
    return data[12 + struct.unpack_from("<I", data, 8)[0] :]


class Driver:
    """The few calls of the driver API that are needed."""

    def __init__(self, device):
        name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
        try:
            self.lib = ctypes.CDLL(name)
        except OSError as e:
            sys.exit(f"cannot load the CUDA driver: {e}")
        self.call("cuInit", ctypes.c_uint(0))
        handle, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(device))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), handle)
        self.call("cuCtxSetCurrent", self.context)
        text, major, minor = ctypes.create_string_buffer(256), ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGetName", text, ctypes.c_int(256), handle)
        self.call("cuDeviceGetAttribute", ctypes.byref(major), ctypes.c_int(75), handle)
        self.call("cuDeviceGetAttribute", ctypes.byref(minor), ctypes.c_int(76), handle)
        self.name = f"{text.value.decode()} (sm_{major.value}{minor.value})"

    def call(self, name, *args):
        status = getattr(self.lib, name)(*args)
        if status != 0:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorName(ctypes.c_int(status), ctypes.byref(text))
            reason = text.value.decode() if text.value else status
            raise RuntimeError(f"{name}: {reason}")

    def tensor_map(self, tiles, addresses):
        """The bytes of a tensor map, which only the driver knows to make."""
        rank = len(tiles["dims"])
        steps = tiles.get("steps", [1] * rank)
        holder = ctypes.create_string_buffer(128 + 63)
        # A map is aligned to 64 bytes.
        start = -ctypes.addressof(holder) % 64
        self.call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(ctypes.addressof(holder) + start),
            ctypes.c_int(TENSOR_TYPES.index(tiles["type"])),
            ctypes.c_uint(rank),
            ctypes.c_void_p(addresses[tiles["buffer"]]),
            (ctypes.c_uint64 * rank)(*tiles["dims"]),
            (ctypes.c_uint64 * max(rank - 1, 1))(*tiles["strides"]),
            (ctypes.c_uint32 * rank)(*tiles["box"]),
            (ctypes.c_uint32 * rank)(*steps),
            ctypes.c_int(0),
            ctypes.c_int([0, 32, 64, 128].index(tiles.get("swizzle", 0))),
            ctypes.c_int(0),
            ctypes.c_int(0),
        )
        return holder.raw[start : start + 128]

    def launch(self, cubin, launch):
        """Runs one launch; the contents of all buffers afterwards."""
        if launch.get("images"):
            raise SystemExit(f"kernel {launch['kernel']}: textures and surfaces are not made here")
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        # A module of its own for each launch, so that its variables are fresh too.
        image = ctypes.create_string_buffer(cubin, len(cubin))
        self.call("cuModuleLoadData", ctypes.byref(module), image)
        memory = {}
        try:
            self.call("cuModuleGetFunction", ctypes.byref(function), module, launch["kernel"].encode())
            for name, buffer in launch.get("buffers", {}).items():
                data = generate(buffer)
                address = ctypes.c_uint64()
                self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(len(data), 1)))
                memory[name] = (address, len(data))
                self.call("cuMemcpyHtoD_v2", address, data, ctypes.c_size_t(len(data)))
            addresses = {name: address.value for name, (address, _) in memory.items()}
            args = [
                self.tensor_map(a["tensormap"], addresses) if "tensormap" in a else argument(a, addresses)
                for a in launch["args"]
            ]
            holders = [ctypes.create_string_buffer(a, len(a)) for a in args]
            params = (ctypes.c_void_p * max(len(args), 1))(*[ctypes.addressof(h) for h in holders])
            shared = launch.get("shared", 0)
            if shared > 48 << 10:
                # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                self.call("cuFuncSetAttribute", function, ctypes.c_int(8), ctypes.c_int(shared))
            shape = [ctypes.c_uint(n) for n in launch["grid"] + launch["block"] + [shared]]
            self.call("cuLaunchKernel", function, *shape, ctypes.c_void_p(), params, ctypes.c_void_p())
            self.call("cuCtxSynchronize")
            results = {}
            for name, (address, size) in memory.items():
                data = ctypes.create_string_buffer(max(size, 1))
                self.call("cuMemcpyDtoH_v2", data, address, ctypes.c_size_t(size))
                results[name] = data.raw[:size]
            return results
        finally:
            for address, _ in memory.values():
                self.lib.cuMemFree_v2(address)
            self.lib.cuModuleUnload(module)


def file_name(index, launch, buffer):
    return f"{index}.{launch['kernel']}.{buffer}.npy"


def write_all(folder, index, launch, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        write_npy(folder / file_name(index, launch, name), launch["buffers"][name]["type"], data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cubin", nargs="?", type=pathlib.Path)
    parser.add_argument("launch", type=pathlib.Path)
    parser.add_argument("--expect", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--inputs", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--device", type=int, default=0)
    options = parser.parse_args()
    launches = tomllib.loads(options.launch.read_text())["launch"]
    if options.inputs:
        for index, launch in enumerate(launches):
            contents = {name: generate(b) for name, b in launch.get("buffers", {}).items()}
            write_all(options.inputs, index, launch, contents)
        return 0
    if options.cubin is None:
        parser.error("a cubin is needed")
    cubin, driver, failed = options.cubin.read_bytes(), Driver(options.device), False
    print(f"{options.cubin} on {driver.name}")
    for index, launch in enumerate(launches):
        try:
            results = driver.launch(cubin, launch)
        except RuntimeError as e:
            # After a fault the context is of no more use.
            print(f"{index} {launch['kernel']}: {e}")
            return 1
        if options.out:
            write_all(options.out, index, launch, results)
        verdict = "ran"
        if options.expect:
            found = []
            for name, buffer in launch.get("buffers", {}).items():
                if "compare" in buffer:
                    want = read_npy(options.expect / file_name(index, launch, name))
                    found.append(differences(name, buffer, results[name], want))
            found = [f for f in found if f]
            failed |= bool(found)
            verdict = "; ".join(found) or "same"
        print(f"{index} {launch['kernel']}: {verdict}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
