"""Compiles Triton kernels ahead of time with oxptxas in place of ptxas, and verifies each cubin.

    cargo build --release
    pip install triton==3.5.0
    python tools/triton/aot.py [--ptxas target/release/oxptxas] [--oxsass target/release/oxsass] [--keep DIR] [CAPABILITY...]

Needs no GPU. The exit status is 0 only if every kernel compiled and its code gives what its PTX says.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
args.add_argument("--ptxas", default=ROOT / "target/release/oxptxas", type=pathlib.Path)
args.add_argument("--oxsass", default=ROOT / "target/release/oxsass", type=pathlib.Path)
args.add_argument("--keep", type=pathlib.Path, help="leave PTX and cubins here")
args.add_argument("capabilities", nargs="*", type=int, default=[75, 80, 86, 89, 90, 100, 120])
args.add_argument("--only", help="kernels with this in their names")
args = args.parse_args()

work = args.keep or pathlib.Path(tempfile.mkdtemp(prefix="oxptxas-triton-"))
work.mkdir(parents=True, exist_ok=True)
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="oxptxas-triton-cache-")
os.environ["TRITON_PTXAS_PATH"] = str(args.ptxas.resolve())
os.environ["TRITON_PTXAS_BLACKWELL_PATH"] = str(args.ptxas.resolve())

import triton  # noqa: E402  (reads the environment)
import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

import matrices  # noqa: E402


@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0)*B + tl.arange(0, B)
    m = i < n
    tl.store(o+i, tl.load(x+i, mask=m) + tl.load(y+i, mask=m), mask=m)


@triton.jit
def gelu(x, o, n, B: tl.constexpr):
    i = tl.program_id(0)*B + tl.arange(0, B)
    m = i < n
    v = tl.load(x+i, mask=m)
    tl.store(o+i, 0.5*v*(1+tl.erf(v*0.7071067811865476)) + tl.exp(-v) + tl.log(v*v+1) + tl.sqrt(v*v) + tl.sin(v)*tl.cos(v), mask=m)


@triton.jit
def softmax(x, o, sx, so, n, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + r*sx + i, mask=i < n, other=-float("inf"))
    v = v - tl.max(v, axis=0)
    e = tl.exp(v)
    tl.store(o + r*so + i, e/tl.sum(e, axis=0), mask=i < n)


@triton.jit
def layernorm(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    Y += row*stride
    X += row*stride
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        c = off + tl.arange(0, BLOCK)
        acc += tl.load(X + c, mask=c < N, other=0.).to(tl.float32)
    mean = tl.sum(acc, axis=0)/N
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        c = off + tl.arange(0, BLOCK)
        x = tl.load(X + c, mask=c < N, other=0.).to(tl.float32)
        x = tl.where(c < N, x - mean, 0.)
        acc += x*x
    rstd = 1/tl.sqrt(tl.sum(acc, axis=0)/N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for off in range(0, N, BLOCK):
        c = off + tl.arange(0, BLOCK)
        m = c < N
        w = tl.load(W + c, mask=m)
        b = tl.load(B + c, mask=m)
        x = tl.load(X + c, mask=m, other=0.).to(tl.float32)
        tl.store(Y + c, (x - mean)*rstd*w + b, mask=m)


@triton.jit
def reduction(x, o, n, B: tl.constexpr):
    i = tl.program_id(0)*B + tl.arange(0, B)
    v = tl.load(x+i, mask=i < n, other=0)
    tl.store(o + tl.program_id(0)*4, tl.sum(v, axis=0))
    tl.store(o + tl.program_id(0)*4+1, tl.max(v, axis=0))
    tl.store(o + tl.program_id(0)*4+2, tl.argmax(v, axis=0).to(tl.float32))
    tl.store(o + tl.program_id(0)*4+3, tl.min(v, axis=0))


@triton.jit
def comb(a, b):
    return a + b


@triton.jit
def scan(x, o, n, B: tl.constexpr):
    i = tl.program_id(0)*B + tl.arange(0, B)
    v = tl.load(x+i, mask=i < n, other=0)
    tl.store(o+i, tl.cumsum(v, axis=0) + tl.associative_scan(v, 0, comb), mask=i < n)


@triton.jit
def sort(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0)*B + i)
    tl.store(o + tl.program_id(0)*B + i, tl.sort(v))


@triton.jit
def histogram(x, o, n, B: tl.constexpr, NB: tl.constexpr):
    i = tl.program_id(0)*B + tl.arange(0, B)
    v = tl.load(x+i, mask=i < n, other=0)
    h = tl.histogram(v, NB)
    tl.atomic_add(o + tl.arange(0, NB), h)


@triton.jit
def atomics(x, o, lock, n, B: tl.constexpr):
    i = tl.program_id(0)*B + tl.arange(0, B)
    m = i < n
    v = tl.load(x+i, mask=m)
    tl.atomic_add(o + i % 7, v, mask=m)
    tl.atomic_max(lock + 16 + i % 5, i, mask=m)
    tl.atomic_min(lock + 8 + i % 5, i, mask=m)
    tl.atomic_xchg(lock + 32, 3)
    tl.atomic_cas(lock, 0, 1)
    tl.atomic_and(lock + 1, 7)
    tl.atomic_or(lock + 3, 5)
    tl.atomic_xor(lock + 2 + i*0, i & 1, mask=m)


@triton.jit
def dropout(x, o, n, p, seed, B: tl.constexpr):
    i = tl.program_id(0)*B + tl.arange(0, B)
    m = i < n
    r = tl.rand(seed, i)
    v = tl.load(x+i, mask=m)
    tl.store(o+i, tl.where(r > p, v/(1-p), 0.0), mask=m)


@triton.jit
def transpose(x, o, M, N, B: tl.constexpr):
    a = tl.program_id(0)*B + tl.arange(0, B)
    b = tl.program_id(1)*B + tl.arange(0, B)
    v = tl.load(x + a[:, None]*N + b[None, :], mask=(a[:, None] < M) & (b[None, :] < N))
    tl.store(o + b[:, None]*M + a[None, :], tl.trans(v), mask=(b[:, None] < N) & (a[None, :] < M))


@triton.jit
def casts(x, o16, ob, o8, oi, n, B: tl.constexpr):
    i = tl.program_id(0)*B + tl.arange(0, B)
    m = i < n
    v = tl.load(x+i, mask=m)
    tl.store(o16+i, v.to(tl.float16), mask=m)
    tl.store(ob+i, v.to(tl.bfloat16), mask=m)
    tl.store(o8+i, v.to(tl.int8), mask=m)
    tl.store(oi+i, v.to(tl.int64)*3, mask=m)


F, I = "*fp32", "*i32"
KERNELS = {
 "add": (add, dict(x=F, y=F, o=F, n="i32"), dict(B=1024)),
 "add16": (add, dict(x="*fp16", y="*fp16", o="*fp16", n="i32"), dict(B=1024)),
 "addbf": (add, dict(x="*bf16", y="*bf16", o="*bf16", n="i32"), dict(B=256)),
 "addi64": (add, dict(x="*i64", y="*i64", o="*i64", n="i32"), dict(B=256)),
 "addf64": (add, dict(x="*fp64", y="*fp64", o="*fp64", n="i32"), dict(B=256)),
 "gelu": (gelu, dict(x=F, o=F, n="i32"), dict(B=512)),
 "gelu64": (gelu, dict(x="*fp64", o="*fp64", n="i32"), dict(B=128)),
 "softmax": (softmax, dict(x=F, o=F, sx="i32", so="i32", n="i32"), dict(B=1024)),
 "softmax16": (softmax, dict(x="*fp16", o="*fp16", sx="i32", so="i32", n="i32"), dict(B=2048)),
 "layernorm": (layernorm, dict(X="*fp16", Y="*fp16", W="*fp16", B="*fp16", Mean=F, Rstd=F, stride="i32", N="i32", eps="fp32"), dict(BLOCK=1024)),
 "reduction": (reduction, dict(x=F, o=F, n="i32"), dict(B=1024)),
 "scan": (scan, dict(x=F, o=F, n="i32"), dict(B=1024)),
 "scani": (scan, dict(x=I, o=I, n="i32"), dict(B=512)),
 "sort": (sort, dict(x=F, o=F), dict(B=512)),
 "sorti": (sort, dict(x=I, o=I), dict(B=256)),
 "histogram": (histogram, dict(x=I, o=I, n="i32"), dict(B=512, NB=64)),
 "atomics": (atomics, dict(x=F, o=F, lock=I, n="i32"), dict(B=256)),
 "dropout": (dropout, dict(x=F, o=F, n="i32", p="fp32", seed="i32"), dict(B=512)),
 "transpose": (transpose, dict(x=F, o=F, M="i32", N="i32"), dict(B=32)),
 "casts": (casts, dict(x=F, o16="*fp16", ob="*bf16", o8="*i8", oi="*i64", n="i32"), dict(B=256)),
}

KERNELS = {name: (*kernel, {}, 75) for name, kernel in KERNELS.items()} | matrices.KERNELS

failed = total = 0
for capability in args.capabilities:
    for name, (function, signature, constants, options, least) in KERNELS.items():
        if capability < least or (name, capability) in matrices.FAILS or args.only and args.only not in name:
            continue
        total += 1
        constants = {k: constants[k] for k in function.arg_names if k in constants}
        signature = signature | {k: "constexpr" for k in constants}
        signature = {k: signature[k] for k in function.arg_names}
        # What is passed to kernels of matrices starts at multiples of 16 bytes, and strides are multiples of 16, as PyTorch's are.
        even = [(n,) for n, (k, kind) in enumerate(signature.items()) if options and (kind[0] == "*" or kind == "i32" and k not in ("count", "heads"))]
        source = ASTSource(function, signature, constexprs=constants, attrs={at: [["tt.divisibility", 16]] for at in even})
        try:
            made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        except Exception as e:  # whatever Triton throws is this kernel's failure
            print(f"{name} {capability}: not compiled: {str(e)[:1000]}")
            failed += 1
            continue
        asm = made.asm
        ptx, cubin = work / f"{name}_{capability}.ptx", work / f"{name}_{capability}.cubin"
        ptx.write_text(asm["ptx"])
        cubin.write_bytes(asm["cubin"])
        arch = next(l.split()[1] for l in asm["ptx"].splitlines() if l.startswith(".target")).rstrip(",")
        verify = [args.oxsass, "verify", ptx, "--arch", arch, "--cubin", cubin]
        if function in matrices.MAPPED:
            # Tensor maps are made in memory that a launch has to have.
            launch = work / f"{name}_{capability}.toml"
            launch.write_text(matrices.launch(function, signature, constants, made))
            verify = [args.oxsass, "verify", cubin, ptx, launch]
        done = subprocess.run(verify, capture_output=True, text=True)
        if done.returncode:
            print(f"{name} {capability}: {done.stdout}{done.stderr}")
            failed += 1
print(f"{total - failed} of {total} kernels compiled and verified")
sys.exit(bool(failed))
