"""Triton kernels that multiply matrices, for aot.py: products plain, persistent, of tensor maps, of specialized warps, of 8-bit and block-scaled
numbers, of groups; attention forward and backward. All were written for this purpose, in the manner that such kernels have."""

import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, M, N, K, sa, sb, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACC: tl.constexpr):
    tile = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = tile // (GROUP*columns)
    height = min(rows - group*GROUP, GROUP)
    m = group*GROUP + (tile % (GROUP*columns)) % height
    n = (tile % (GROUP*columns)) // height
    i = (m*BM + tl.arange(0, BM)) % M
    j = (n*BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    pa = a + i[:, None]*sa + k[None, :]
    pb = b + k[:, None]*sb + j[None, :]
    acc = tl.zeros((BM, BN), dtype=ACC)
    for step in range(0, tl.cdiv(K, BK)):
        x = tl.load(pa, mask=k[None, :] < K - step*BK, other=0.0)
        y = tl.load(pb, mask=k[:, None] < K - step*BK, other=0.0)
        acc = tl.dot(x, y, acc, out_dtype=ACC)
        pa += BK
        pb += BK*sb
    i = m*BM + tl.arange(0, BM)
    j = n*BN + tl.arange(0, BN)
    tl.store(c + i[:, None]*sc + j[None, :], acc.to(c.dtype.element_ty), mask=(i[:, None] < M) & (j[None, :] < N))


@triton.jit
def persistent(a, b, c, M, N, K, sa, sb, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BLOCKS: tl.constexpr):
    columns = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM)*columns, BLOCKS, flatten=True):
        m, n = tile // columns, tile % columns
        i = m*BM + tl.arange(0, BM)
        j = n*BN + tl.arange(0, BN)
        i = tl.max_contiguous(tl.multiple_of(tl.where(i < M, i, 0), BM), BM)
        j = tl.max_contiguous(tl.multiple_of(tl.where(j < N, j, 0), BN), BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(0, tl.cdiv(K, BK)):
            k = step*BK + tl.arange(0, BK)
            x = tl.load(a + i[:, None]*sa + k[None, :], mask=k[None, :] < K, other=0.0)
            y = tl.load(b + k[:, None]*sb + j[None, :], mask=k[:, None] < K, other=0.0)
            acc = tl.dot(x, y, acc)
        i = m*BM + tl.arange(0, BM)
        j = n*BN + tl.arange(0, BN)
        tl.store(c + i[:, None]*sc + j[None, :], acc.to(c.dtype.element_ty), mask=(i[:, None] < M) & (j[None, :] < N))


@triton.jit
def mapped(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    da = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    dc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    m, n = tl.program_id(0)*BM, tl.program_id(1)*BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        acc = tl.dot(da.load([m, step*BK]), db.load([n, step*BK]).T, acc)
    dc.store([m, n], acc.to(c.dtype.element_ty))


@triton.jit
def mapped_persistent(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BLOCKS: tl.constexpr, SPECIAL: tl.constexpr):
    da = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    dc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    columns = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM)*columns, BLOCKS, flatten=True, warp_specialize=SPECIAL):
        m, n = tile // columns*BM, tile % columns*BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(0, tl.cdiv(K, BK)):
            acc = tl.dot(da.load([m, step*BK]), db.load([n, step*BK]).T, acc)
        dc.store([m, n], acc.to(c.dtype.element_ty))


@triton.jit
def special(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    da = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    m, n = tl.program_id(0)*BM, tl.program_id(1)*BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in tl.range(0, tl.cdiv(K, BK), warp_specialize=True):
        acc = tl.dot(da.load([m, step*BK]), db.load([n, step*BK]).T, acc)
    i, j = m + tl.arange(0, BM), n + tl.arange(0, BN)
    tl.store(c + i[:, None]*N + j[None, :], acc.to(c.dtype.element_ty), mask=(i[:, None] < M) & (j[None, :] < N))


@triton.jit
def scaled(a, ra, b, rb, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FORM: tl.constexpr, EACH: tl.constexpr, PER: tl.constexpr):
    i = tl.program_id(0)*BM + tl.arange(0, BM)
    j = tl.program_id(1)*BN + tl.arange(0, BN)
    k = tl.arange(0, BK // PER)
    s = tl.arange(0, BK // EACH)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    pa, pb = a + i[:, None]*(K // PER) + k[None, :], b + j[None, :]*(K // PER) + k[:, None]
    qa, qb = ra + i[:, None]*(K // EACH) + s[None, :], rb + j[:, None]*(K // EACH) + s[None, :]
    for _ in range(0, tl.cdiv(K, BK)):
        acc = tl.dot_scaled(tl.load(pa), tl.load(qa), FORM, tl.load(pb), tl.load(qb), FORM, acc)
        pa += BK // PER
        pb += BK // PER
        qa += BK // EACH
        qb += BK // EACH
    tl.store(c + i[:, None]*N + j[None, :], acc, mask=(i[:, None] < M) & (j[None, :] < N))


@triton.jit
def grouped(a, b, c, sizes, strides, count, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BLOCKS: tl.constexpr):
    tile = tl.program_id(0)
    before = 0
    for g in range(count):
        M, N, K = tl.load(sizes + 3*g), tl.load(sizes + 3*g + 1), tl.load(sizes + 3*g + 2)
        columns = tl.cdiv(N, BN)
        tiles = tl.cdiv(M, BM)*columns
        while tile >= before and tile < before + tiles:
            sa, sb, sc = tl.load(strides + 3*g), tl.load(strides + 3*g + 1), tl.load(strides + 3*g + 2)
            ga = tl.load(a + g).to(tl.pointer_type(tl.float16))
            gb = tl.load(b + g).to(tl.pointer_type(tl.float16))
            gc = tl.load(c + g).to(tl.pointer_type(tl.float16))
            m, n = (tile - before) // columns, (tile - before) % columns
            i, j, k = m*BM + tl.arange(0, BM), n*BN + tl.arange(0, BN), tl.arange(0, BK)
            pa, pb = ga + i[:, None]*sa + k[None, :], gb + k[:, None]*sb + j[None, :]
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for _ in range(0, tl.cdiv(K, BK)):
                tl.multiple_of(pa, [16, 16])
                tl.multiple_of(pb, [16, 16])
                acc += tl.dot(tl.load(pa), tl.load(pb))
                pa += BK
                pb += BK*sb
            tl.store(gc + i[:, None]*sc + j[None, :], acc.to(tl.float16))
            tile += BLOCKS
        before += tiles


@triton.jit
def attend(acc, l, m, q, pk, pv, sk, sv, scale, first, last, rows, ahead: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    columns = tl.arange(0, BN)
    d = tl.arange(0, D)
    for at in range(first, last, BN):
        n = at + columns
        k = tl.load(pk + n[None, :]*sk + d[:, None])
        s = tl.dot(q, k)*scale
        if ahead:
            s = tl.where(rows[:, None] >= n[None, :], s, -1.0e6)
        most = tl.maximum(m, tl.max(s, 1))
        p = tl.math.exp2(s - most[:, None])
        less = tl.math.exp2(m - most)
        v = tl.load(pv + n[:, None]*sv + d[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc*less[:, None])
        l = l*less + tl.sum(p, 1)
        m = most
    return acc, l, m


@triton.jit
def attention(q, k, v, o, lse, scale, sq, sk, sv, so, heads, N, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    head = tl.program_id(1)
    start = tl.program_id(0)*BM
    rows = start + tl.arange(0, BM)
    d = tl.arange(0, D)
    x = tl.load(q + head*N*sq + rows[:, None]*sq + d[None, :])
    acc = tl.zeros((BM, D), dtype=tl.float32)
    m = tl.full((BM,), -float("inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    pk, pv = k + head*N*sk, v + head*N*sv
    if CAUSAL:
        acc, l, m = attend(acc, l, m, x, pk, pv, sk, sv, scale, 0, start, rows, False, BN, D)
        acc, l, m = attend(acc, l, m, x, pk, pv, sk, sv, scale, start, start + BM, rows, True, BN, D)
    else:
        acc, l, m = attend(acc, l, m, x, pk, pv, sk, sv, scale, 0, N, rows, False, BN, D)
    tl.store(lse + head*N + rows, m + tl.math.log2(l))
    tl.store(o + head*N*so + rows[:, None]*so + d[None, :], (acc/l[:, None]).to(o.dtype.element_ty))


@triton.jit
def attention_backward(q, k, v, do, dk, dv, dq, lse, delta, scale, s, N, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1)*N
    d = tl.arange(0, D)
    # The gradients of a block of keys and values, over all rows of queries.
    n = tl.program_id(0)*BN + tl.arange(0, BN)
    kn = tl.load(k + (head + n[:, None])*s + d[None, :])
    vn = tl.load(v + (head + n[:, None])*s + d[None, :])
    gk = tl.zeros((BN, D), dtype=tl.float32)
    gv = tl.zeros((BN, D), dtype=tl.float32)
    for at in range(0, N, BM):
        i = at + tl.arange(0, BM)
        qt = tl.load(q + (head + i[None, :])*s + d[:, None])
        pt = tl.math.exp2(tl.dot(kn, qt)*scale - tl.load(lse + head + i)[None, :])
        g = tl.load(do + (head + i[:, None])*s + d[None, :])
        gv += tl.dot(pt.to(tl.float16), g)
        dt = pt*(tl.dot(vn, tl.trans(g)) - tl.load(delta + head + i)[None, :])
        gk += tl.dot(dt.to(tl.float16), tl.trans(qt))
    tl.store(dv + (head + n[:, None])*s + d[None, :], gv.to(tl.float16))
    tl.store(dk + (head + n[:, None])*s + d[None, :], (gk*scale).to(tl.float16))
    # Those of a block of queries, over all keys.
    m = tl.program_id(0)*BN + tl.arange(0, BN)
    qm = tl.load(q + (head + m[:, None])*s + d[None, :])
    gm = tl.load(do + (head + m[:, None])*s + d[None, :])
    lm, em = tl.load(lse + head + m)[:, None], tl.load(delta + head + m)[:, None]
    gq = tl.zeros((BN, D), dtype=tl.float32)
    for at in range(0, N, BM):
        j = at + tl.arange(0, BM)
        kt = tl.load(k + (head + j[None, :])*s + d[:, None])
        vt = tl.load(v + (head + j[None, :])*s + d[:, None])
        p = tl.math.exp2(tl.dot(qm, kt)*scale - lm)
        ds = p*(tl.dot(gm, vt) - em)
        gq += tl.dot(ds.to(tl.float16), tl.trans(kt))
    tl.store(dq + (head + m[:, None])*s + d[None, :], (gq*scale).to(tl.float16))


def product(element, out, *, tile=(128, 128, 32), acc=tl.float32, warps=4, stages=3, least=75, function=matmul, **more):
    """A kernel: the function, its signature, its constants, options, and the capabilities that have it."""
    sizes = dict.fromkeys(function.arg_names[3:function.arg_names.index("BM")], "i32")
    constants = dict(zip(("BM", "BN", "BK"), tile)) | more | (dict(GROUP=8, ACC=acc) if function is matmul else {})
    return function, {"a": element, "b": element, "c": out} | sizes, constants, dict(num_warps=warps, num_stages=stages), least


def attending(function, pointers, numbers, *, warps=4, stages=3, least=80, **constants):
    signature = dict.fromkeys(pointers, "*fp16") | dict(lse="*fp32", scale="fp32") | dict.fromkeys(numbers, "i32")
    if function is attention_backward:
        signature["delta"] = "*fp32"
    return function, signature, constants, dict(num_warps=warps, num_stages=stages), least


def by_scales(form, element, each, per, least):
    scale = "*u8" if each == 32 else "*fp8e4nv"
    signature = dict(a=element, ra=scale, b=element, rb=scale, c="*fp32", M="i32", N="i32", K="i32")
    constants = dict(BM=128, BN=128, BK=128, FORM=form, EACH=each, PER=per)
    return scaled, signature, constants, dict(num_warps=4, num_stages=2), least


H, E5, E4 = "*fp16", "*fp8e5", "*fp8e4nv"
FORWARD = ("q", "k", "v", "o"), ("sq", "sk", "sv", "so", "heads", "N")
BACKWARD = ("q", "k", "v", "do", "dk", "dv", "dq"), ("s", "N")
GROUPED = dict(a="*i64", b="*i64", c="*i64", sizes="*i32", strides="*i32", count="i32")

KERNELS = {
    "matmul_f16": product(H, H),
    "matmul_f16_small": product(H, H, tile=(64, 64, 64), stages=4),
    "matmul_bf16": product("*bf16", "*bf16", tile=(128, 256, 64), warps=8, least=80),
    "matmul_tf32": product("*fp32", "*fp32", tile=(64, 128, 32)),
    "matmul_i8": product("*i8", "*i32", tile=(128, 128, 64), acc=tl.int32, least=80),
    "matmul_e5": product(E5, H, tile=(128, 128, 64), least=80),
    "matmul_e4": product(E4, H, tile=(128, 256, 64), warps=8, least=89),
    "persistent_f16": product(H, H, tile=(128, 128, 64), warps=8, least=80, function=persistent, BLOCKS=132),
    "mapped_f16": product(H, H, tile=(128, 128, 64), least=90, function=mapped),
    "mapped_e4": product(E4, H, tile=(128, 128, 128), least=90, function=mapped),
    "mapped_persistent": product(H, H, tile=(128, 256, 64), warps=8, least=90, function=mapped_persistent, BLOCKS=132, SPECIAL=False),
    "special_persistent": product(H, H, tile=(128, 128, 64), least=100, function=mapped_persistent, BLOCKS=148, SPECIAL=True),
    "special_f16": product(H, H, tile=(128, 128, 64), least=90, function=special),
    "scaled_mxfp8": by_scales("e4m3", E4, 32, 1, 90),
    "scaled_mxfp4": by_scales("e2m1", "*u8", 32, 2, 80),
    "scaled_nvfp4": by_scales("e2m1", "*u8", 16, 2, 100),
    "grouped_f16": (grouped, GROUPED, dict(BM=128, BN=128, BK=32, BLOCKS=132), dict(num_warps=4, num_stages=3), 75),
    "attention_64": attending(attention, *FORWARD, BM=128, BN=64, D=64, CAUSAL=False),
    "attention_128_causal": attending(attention, *FORWARD, BM=128, BN=64, D=128, CAUSAL=True, warps=8),
    "attention_small": attending(attention, *FORWARD, BM=64, BN=32, D=64, CAUSAL=True, stages=2, least=75),
    "attention_backward": attending(attention_backward, *BACKWARD, BM=32, BN=128, D=64, warps=8),
}

# Triton 3.5.0 fails in a pass of its own.
FAILS = {("scaled_nvfp4", 120)}

MAPPED = mapped, mapped_persistent, special


def launch(function, signature, constants, made):
    """A launch file for a kernel that makes tensor maps: one tile more than one in each direction, whole numbers, of which sums are exact."""
    (m, n, k), name = (2*constants["BM"], 2*constants["BN"], 2*constants["BK"]), function.__name__
    threads = next(int(line.split()[1].rstrip(",")) for line in made.asm["ptx"].splitlines() if line.startswith(".reqntid"))
    grid = [2, 2, 1] if "BLOCKS" not in constants else [2, 1, 1]
    words = dict(a=m*k, b=n*k, c=m*n)
    kinds = {H: ("i16", 2), E4: ("u8", 1)}
    text = f'[[launch]]\nkernel = "{name}"\ngrid = {grid}\nblock = [{threads}, 1, 1]\nshared = {made.metadata.shared}\nargs = [\n'
    text += "".join(f'{{ buffer = "{b}" }},\n' for b in "abc") + "".join(f"{{ i32 = {v} }},\n" for v in (m, n, k))
    text += '{ buffer = "scratch" },\n{ buffer = "profile" },\n]\n'
    for b, length in words.items():
        kind, size = kinds[signature[b]]
        # Small whole numbers in binary16 (1 to 3.75) and e4m3 (1 to 1.875).
        low, high = (0x3C00, 0x4380) if size == 2 else (0x38, 0x3F)
        data = f"random = [{low}, {high}]\nseed = {ord(b)}" if b != "c" else 'fill = 0\ncompare = "exact"'
        text += f'[launch.buffers.{b}]\ntype = "{kind}"\nlength = {length}\n{data}\n'
    return text + '[launch.buffers.scratch]\ntype = "u8"\nlength = 65536\nfill = 0\n[launch.buffers.profile]\ntype = "u8"\nlength = 128\nfill = 0\n'
