//! Products of matrices, and the moves that arrange them.

use super::{Case, INTEGERS, check};

#[test]
fn matrix_products() {
    let ints = INTEGERS;
    check(
        "matrix_products",
        &[
            Case {
                name: "hmma_f32",
                targets: &["sm_80", "sm_90", "sm_100", "sm_120"],
                // Halves between 1 and 2: sums are exact.
                input: "random = [1, 2000]",
                body: "ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%in]; ld.global.v2.u32 {%r4,%r5}, [%in+16];\n\
                   cvt.rn.f16.u32 %h0, %r0; mov.b32 %r0, {%h0,%h0}; cvt.rn.f16.u32 %h1, %r1; mov.b32 %r1, {%h1,%h0};\n\
                   cvt.rn.f16.u32 %h2, %r2; mov.b32 %r2, {%h2,%h1}; cvt.rn.f16.u32 %h3, %r3; mov.b32 %r3, {%h0,%h3};\n\
                   mov.f32 %f0, 0f40000000; mov.f32 %f1, 0fC0000000;\n\
                   mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f4,%f5,%f6,%f7}, {%r0,%r1,%r2,%r3}, {%r1,%r2}, {%f0,%f1,%f0,%f1};\n\
                   st.global.v4.f32 [%out], {%f4,%f5,%f6,%f7};",
            },
            Case {
                name: "hmma_mixed",
                targets: &["sm_80", "sm_90", "sm_120"],
                input: "random = [1, 60]",
                body: "ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%in];\n\
                   cvt.rn.f32.u32 %f0, %r0; cvt.rn.f32.u32 %f1, %r1; cvt.rn.f32.u32 %f2, %r2;\n\
                   mov.b32 %r10, %f0; mov.b32 %r11, %f1; mov.b32 %r12, %f2;\n\
                   mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%f4,%f5,%f6,%f7}, {%r10,%r11}, {%r12}, {%f0,%f1,%f2,%f0};\n\
                   mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f4,%f5,%f6,%f7}, {%r10,%r11,%r12,%r10}, {%r12,%r11}, {%f4,%f5,%f6,%f7};\n\
                   cvt.rn.bf16x2.f32 %r20, %f0, %f1; cvt.rn.bf16x2.f32 %r21, %f2, %f1;\n\
                   mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f4,%f5,%f6,%f7}, {%r20,%r21}, {%r21}, {%f4,%f5,%f6,%f7};\n\
                   mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f4,%f5,%f6,%f7}, {%r20,%r21,%r20,%r20}, {%r21,%r20}, {%f4,%f5,%f6,%f7};\n\
                   st.global.v4.f32 [%out], {%f4,%f5,%f6,%f7};",
            },
            Case {
                name: "hmma_f16",
                targets: &["sm_75", "sm_80", "sm_100"],
                input: "random = [1, 7]",
                body: "ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%in];\n\
                   cvt.rn.f16.u32 %h0, %r0; cvt.rn.f16.u32 %h1, %r1; cvt.rn.f16.u32 %h2, %r2;\n\
                   mov.b32 %r10, {%h0,%h1}; mov.b32 %r11, {%h1,%h2}; mov.b32 %r12, {%h2,%h0};\n\
                   mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r20,%r21}, {%r10,%r11}, {%r12}, {%r10,%r11};\n\
                   mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f4,%f5,%f6,%f7}, {%r10,%r11}, {%r12}, {%f4,%f4,%f4,%f4};\n\
                   st.global.v2.u32 [%out], {%r20,%r21}; ",
            },
            Case {
                name: "imma",
                targets: &["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"],
                input: ints,
                body: "ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%in]; ld.global.v2.u32 {%r4,%r5}, [%in+16];\n\
                   mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%r10,%r11,%r12,%r13}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%r1,%r2,%r3,%r4};\n\
                   mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.s8.s32 {%r14,%r15,%r16,%r17}, {%r0,%r1}, {%r4}, {%r10,%r11,%r12,%r13};\n\
                   mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%r18,%r19}, {%r2}, {%r3}, {%r14,%r15};\n\
                   st.global.v4.u32 [%out], {%r10,%r11,%r12,%r13}; st.global.v4.u32 [%out+16], {%r14,%r15,%r16,%r17};\n\
                   st.global.v2.u32 [%out+32], {%r18,%r19};",
            },
            Case {
                name: "imma4",
                targets: &["sm_75", "sm_80"],
                input: ints,
                body: "ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%in];\n\
                   mma.sync.aligned.m8n8k32.row.col.satfinite.s32.s4.u4.s32 {%r10,%r11}, {%r2}, {%r3}, {%r0,%r1};\n\
                   mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc {%r12,%r13}, {%r2}, {%r3}, {%r0,%r1};\n\
                   st.global.v4.u32 [%out], {%r10,%r11,%r12,%r13};",
            },
            Case {
                name: "dmma",
                targets: &["sm_80", "sm_90", "sm_100"],
                input: ints,
                body: "ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%in];\n\
                   cvt.rn.f64.u32 %d0, %r0; cvt.rn.f64.s32 %d1, %r1; cvt.rn.f64.u32 %d2, %r2;\n\
                   mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d3,%d4}, {%d0}, {%d1}, {%d2,%d1};\n\
                   st.global.v2.f64 [%out], {%d3,%d4};",
            },
            Case {
                name: "qmma",
                targets: &["sm_89", "sm_120"],
                input: "random = [0, 4]",
                body: "ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%in];\n\
                   mul.lo.u32 %r0, %r0, 0x08100818; mul.lo.u32 %r1, %r1, 0x10081008; mul.lo.u32 %r2, %r2, 0x08081010;\n\
                   mov.f32 %f0, 0f3F800000;\n\
                   mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f4,%f5,%f6,%f7}, {%r0,%r1,%r2,%r1}, {%r2,%r0}, {%f0,%f0,%f0,%f0};\n\
                   mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32 {%f4,%f5,%f6,%f7}, {%r0,%r1,%r2,%r1}, {%r2,%r0}, {%f4,%f5,%f6,%f7};\n\
                   st.global.v4.f32 [%out], {%f4,%f5,%f6,%f7};",
            },
            Case {
                name: "wmma_bits",
                targets: &["sm_80"],
                input: ints,
                body: "and.b32 %r3, %n, 31; mul.lo.u32 %r0, %r3, 0x9E3779B1; shl.b32 %r4, %r3, 2; mov.u32 %r5, sh; add.u32 %r4, %r4, %r5;\n\
                   st.shared.u32 [%r4], %r0; st.shared.u32 [%r4+128], %r0; mov.u32 %r14, 7; bar.sync 0;\n\
                   wmma.load.a.sync.aligned.row.m8n8k128.shared.b1 {%r10}, [sh]; wmma.load.b.sync.aligned.col.m8n8k128.shared.b1 {%r11}, [sh+64];\n\
                   wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r12,%r13}, {%r10}, {%r11}, {%r14,%r14};\n\
                   wmma.load.a.sync.aligned.row.m8n8k32.shared.u4 {%r10}, [sh]; wmma.load.b.sync.aligned.col.m8n8k32.shared.u4 {%r11}, [sh+64];\n\
                   bar.sync 0; wmma.store.d.sync.aligned.row.m8n8k128.shared.s32 [sh+1024], {%r12,%r13}; bar.sync 0;\n\
                   ld.shared.u32 %r30, [%r4+1024]; ld.shared.u32 %r31, [%r4+1152]; st.global.v2.u32 [%out], {%r30,%r31};",
            },
            Case {
                name: "wmma",
                targets: &["sm_75", "sm_80", "sm_90", "sm_120"],
                input: "random = [1, 60]",
                body: "and.b32 %r0, %n, 31; cvt.rn.f16.u32 %h0, %r0; xor.b32 %r1, %r0, 37; cvt.rn.f16.u32 %h1, %r1;\n\
                   mov.b32 %r2, {%h0,%h1}; and.b32 %r3, %n, 31; mul.lo.u32 %r4, %r3, 16; mov.u32 %r5, sh; add.u32 %r4, %r4, %r5;\n\
                   st.shared.v4.u32 [%r4], {%r2,%r2,%r2,%r2}; bar.sync 0;\n\
                   wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, [sh];\n\
                   wmma.load.b.sync.aligned.col.m16n16k16.shared.f16 {%r20,%r21,%r22,%r23,%r24,%r25,%r26,%r27}, [sh], 16;\n\
                   mov.f32 %f0, 0f40000000;\n\
                   wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%f10,%f11,%f12,%f13,%f14,%f15,%f16,%f17}, {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, {%r20,%r21,%r22,%r23,%r24,%r25,%r26,%r27}, {%f0,%f0,%f0,%f0,%f0,%f0,%f0,%f0};\n\
                   bar.sync 0; wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [sh+1024], {%f10,%f11,%f12,%f13,%f14,%f15,%f16,%f17}, 16; bar.sync 0;\n\
                   ld.shared.v4.u32 {%r30,%r31,%r32,%r33}, [%r4+1024]; st.global.v4.u32 [%out], {%r30,%r31,%r32,%r33};\n\
                   ld.shared.v4.u32 {%r30,%r31,%r32,%r33}, [%r4+1536]; st.global.v4.u32 [%out+16], {%r30,%r31,%r32,%r33};",
            },
        ],
    );
}

#[test]
fn matrix_moves() {
    check(
        "matrix_moves",
        &[
            Case {
                name: "ldmatrix",
                targets: &["sm_75", "sm_90", "sm_120"],
                input: INTEGERS,
                body: "ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%in]; mov.u32 %r4, sh; shl.b32 %r5, %n, 4; add.u32 %r6, %r4, %r5;\n\
                   st.shared.v4.u32 [%r6], {%r0,%r1,%r2,%r3}; bar.sync 0; xor.b32 %r5, %r5, 0x130; add.u32 %r6, %r4, %r5;\n\
                   ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10,%r11,%r12,%r13}, [%r6];\n\
                   ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r14,%r15}, [%r6+16];\n\
                   ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r16}, [%r6];\n\
                   movmatrix.sync.aligned.m8n8.trans.b16 %r17, %r1;\n\
                   st.global.v4.u32 [%out], {%r10,%r11,%r12,%r13}; st.global.v4.u32 [%out+16], {%r14,%r15,%r16,%r17};",
            },
            Case {
                name: "stmatrix",
                targets: &["sm_90", "sm_100"],
                input: INTEGERS,
                body: "ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%in]; mov.u32 %r4, sh; shl.b32 %r5, %n, 4; add.u32 %r6, %r4, %r5;\n\
                   stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r6], {%r0,%r1,%r2,%r3}; bar.sync 0;\n\
                   ld.shared.v4.u32 {%r10,%r11,%r12,%r13}, [%r6]; st.global.v4.u32 [%out], {%r10,%r11,%r12,%r13}; bar.sync 0;\n\
                   stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r6], {%r2,%r3}; bar.sync 0;\n\
                   ld.shared.v4.u32 {%r10,%r11,%r12,%r13}, [%r6]; st.global.v4.u32 [%out+16], {%r10,%r11,%r12,%r13};",
            },
            Case {
                name: "ldmatrix8",
                targets: &["sm_100f", "sm_120f"],
                input: INTEGERS,
                body: "ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%in]; mov.u32 %r4, sh; shl.b32 %r5, %n, 4; add.u32 %r6, %r4, %r5;\n\
                   st.shared.v4.u32 [%r6], {%r0,%r1,%r2,%r3}; bar.sync 0; and.b32 %r5, %r5, 0x1f0; xor.b32 %r5, %r5, 0x50;\n\
                   add.u32 %r6, %r4, %r5;\n\
                   ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b6x16_p32 {%r10,%r11,%r12,%r13}, [%r6];\n\
                   ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.b4x16_p64 {%r14,%r15}, [%r6];\n\
                   ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r16,%r17}, [%r6];\n\
                   ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8x16.b6x16_p32 {%r20,%r21,%r22,%r23}, [%r6+512];\n\
                   ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8x16.b4x16_p64 {%r18,%r19}, [%r6];\n\
                   st.global.v4.u32 [%out], {%r10,%r11,%r12,%r13}; st.global.v4.u32 [%out+16], {%r14,%r15,%r16,%r17};\n\
                   st.global.v4.u32 [%out+32], {%r20,%r21,%r22,%r23}; st.global.v2.u32 [%out+48], {%r18,%r19};",
            },
            Case {
                name: "stmatrix8",
                targets: &["sm_100f", "sm_120f"],
                input: INTEGERS,
                body: "ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%in]; mov.u32 %r4, sh; shl.b32 %r5, %n, 4; add.u32 %r6, %r4, %r5;\n\
                   stmatrix.sync.aligned.m16n8.x4.trans.shared.b8 [%r6], {%r0,%r1,%r2,%r3}; bar.sync 0;\n\
                   ld.shared.v4.u32 {%r10,%r11,%r12,%r13}, [%r6]; st.global.v4.u32 [%out], {%r10,%r11,%r12,%r13}; bar.sync 0;\n\
                   stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r6], {%r3}; bar.sync 0;\n\
                   ld.shared.v4.u32 {%r10,%r11,%r12,%r13}, [%r6]; st.global.v4.u32 [%out+16], {%r10,%r11,%r12,%r13};",
            },
        ],
    );
}

/// A product: what follows `.sync.aligned.`, the registers of D, A, B and C, and the operands behind them.
type Form = (&'static str, [usize; 4], &'static str);

/// Registers `%r10+first …` in braces.
fn vector(first: usize, n: usize) -> String {
    let all: Vec<String> = (first..first + n).map(|i| format!("%r{i}")).collect();
    format!("{{{}}}", all.join(","))
}

/// What random words are made numbers with whose sums are exact: bits that stay and bits that are set.
fn numbers(ty: &str) -> (u32, u32) {
    match ty {
        "f16" => (0x8383_8383, 0x3c00_3c00),
        "bf16" => (0x807f_807f, 0x3f80_3f80),
        "tf32" => (0x807f_e000, 0x3f80_0000),
        "f32" => (0x807f_f000, 0x3f80_0000),
        "e4m3" => (0x8787_8787, 0x3838_3838),
        "e5m2" => (0x8383_8383, 0x3c3c_3c3c),
        _ => (!0, 0),
    }
}

/// A kernel body that multiplies random matrices; metadata is in `%r24`, scales in `%r25` and `%r26`.
fn body(op: &str, (rest, [d, a, b, c], extra): Form) -> String {
    const TYPES: &str = "f16 bf16 tf32 f32 s32 u8 s8 u4 s4 e4m3 e5m2 e2m1 e2m3 e3m2";
    let types: Vec<&str> = rest.split('.').filter(|t| TYPES.split(' ').any(|n| n == *t)).collect();
    let mut out = String::new();
    for (first, n, ty) in [(0, a, types[1]), (8, b, types[2]), (16, c, types[3])] {
        let (keep, set) = numbers(ty);
        for i in first..first + n {
            out += &format!(
                "ld.global.u32 %r{i}, [%in+{}]; and.b32 %r{i}, %r{i}, {keep:#x}; or.b32 %r{i}, %r{i}, {set:#x};\n",
                4 * i
            );
        }
    }
    // Nibbles of metadata that are good in any order, another first one in each lane.
    let nibbles = if rest.contains("tf32") { "0x4ee4e44e" } else { "0xe4d98c4e" };
    out += &format!("shl.b32 %r30, %n, 2; mov.u32 %r31, {nibbles}; shf.l.wrap.b32 %r24, %r31, %r31, %r30;\n");
    // Powers of two near one, or E4M3 fractions, in every byte.
    let scale = if rest.contains("ue4m3") { "0x383a3c41" } else { "0x7e7f8081" };
    out += &format!(
        "mov.u32 %r31, {scale}; shf.l.wrap.b32 %r25, %r31, %r31, %n; and.b32 %r25, %r25, 0x03030303;\n"
    );
    out += &format!("xor.b32 %r25, %r25, {scale}; add.u32 %r26, %r25, 0x00010001;\n");
    let (d_regs, a, b, c) = (vector(32, d), vector(0, a), vector(8, b), vector(16, c));
    out += &format!("{op}.sync.aligned.{rest} {d_regs}, {a}, {b}, {c}{extra};\n");
    (0..d).for_each(|i| out += &format!("st.global.u32 [%out+{}], %r{};\n", 4 * i, 32 + i));
    out
}

fn check_forms(test: &str, op: &str, targets: &[&str], forms: &[Form]) {
    let bodies: Vec<(String, String)> =
        forms.iter().enumerate().map(|(i, f)| (format!("{test}_{i}"), body(op, *f))).collect();
    let cases: Vec<Case<'_>> =
        bodies.iter().map(|(name, body)| Case { name, targets, input: INTEGERS, body }).collect();
    check(test, &cases);
}

/// Sparse products of sm_80; later ptxas replaces some of them by others, and moves the metadata for them.
const SPARSE: &[Form] = &[
    ("m16n8k16.row.col.f32.f16.f16.f32", [4, 2, 2, 4], ", %r24, 0"),
    ("m16n8k16.row.col.f32.f16.f16.f32", [4, 2, 2, 4], ", %r24, 3"),
    ("m16n8k16.row.col.f16.f16.f16.f16", [2, 2, 2, 2], ", %r24, 1"),
    ("m16n8k32.row.col.f32.f16.f16.f32", [4, 4, 4, 4], ", %r24, 0"),
    ("m16n8k32.row.col.f32.bf16.bf16.f32", [4, 4, 4, 4], ", %r24, 1"),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", [4, 2, 2, 4], ", %r24, 2"),
    ("m16n8k16.row.col.f32.tf32.tf32.f32", [4, 4, 4, 4], ", %r24, 1"),
    ("m16n8k32.row.col.satfinite.s32.u8.s8.s32", [4, 2, 2, 4], ", %r24, 0"),
    ("m16n8k32.row.col.s32.s8.s8.s32", [4, 2, 2, 4], ", %r24, 1"),
    ("m16n8k64.row.col.s32.u8.s8.s32", [4, 4, 4, 4], ", %r24, 0"),
    ("m16n8k64.row.col.s32.u4.s4.s32", [4, 2, 2, 4], ", %r24, 1"),
    ("m16n8k128.row.col.s32.s4.u4.s32", [4, 4, 4, 4], ", %r24, 0"),
];

#[test]
fn sparse_products() {
    check_forms("sparse_products", "mma.sp", &["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"], SPARSE);
}

#[test]
fn sparse_products_in_order() {
    // Metadata in ascending order is good here, too.
    let targets = ["sm_80", "sm_90", "sm_120"];
    check_forms("sparse_products_in_order", "mma.sp::ordered_metadata", &targets, SPARSE);
}

#[test]
fn sparse_products_of_bytes() {
    let e4m3: Form = ("m16n8k64.row.col.f32.e4m3.e5m2.f32", [4, 4, 4, 4], ", %r24, 0");
    check_forms("sparse_products_of_bytes", "mma.sp", &["sm_89", "sm_90", "sm_120"], &[e4m3]);
    check_forms(
        "sparse_products_of_small",
        "mma.sp::ordered_metadata",
        &["sm_120a"],
        &[
            ("m16n8k64.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32", [4, 4, 4, 4], ", %r24, 0"),
            ("m16n8k64.row.col.kind::f8f6f4.f16.e5m2.e2m3.f16", [2, 4, 4, 2], ", %r24, 0"),
            (
                "m16n8k128.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
                [4, 4, 4, 4],
                ", %r24, 0, %r25, {2, 1}, %r26, {0, 3}",
            ),
            (
                "m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
                [4, 4, 4, 4],
                ", {%r24}, 0, {%r25}, {0, 1}, %r26, {0, 2}",
            ),
            (
                "m16n8k64.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e3m2.f32.ue8m0",
                [4, 4, 4, 4],
                ", %r24, 0, %r25, {3, 1}, %r26, {1, 2}",
            ),
        ],
    );
}

#[test]
fn block_scaled_products() {
    check_forms(
        "block_scaled_products",
        "mma",
        &["sm_120a"],
        &[
            (
                "m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e2m1.f32.ue8m0",
                [4, 4, 2, 4],
                ", %r25, {0, 0}, %r26, {0, 0}",
            ),
            (
                "m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e5m2.e2m3.f32.ue8m0",
                [4, 4, 2, 4],
                ", {%r25}, {3, 1}, {%r26}, {2, 3}",
            ),
            (
                "m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
                [4, 4, 2, 4],
                ", %r25, {2, 0}, %r26, {0, 1}",
            ),
            (
                "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
                [4, 4, 2, 4],
                ", %r25, {0, 1}, %r26, {2, 2}",
            ),
            (
                "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
                [4, 4, 2, 4],
                ", %r25, {0, 1}, %r26, {0, 3}",
            ),
        ],
    );
}
