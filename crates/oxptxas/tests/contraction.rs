//! Which products and sums are contracted: as ptxas 13.0.88 does it (docs/lowering.md, "Contraction").

use oxptxas::{Settings, compile};
use oxsass::verify::{Verdict, kernel, module};
use sass::Target;

/// Statements, and how many fused, product and sum instructions ptxas makes of them.
const ROWS: &[(&str, [usize; 3])] = &[
    ("mul.f32 %f5,%f1,%f2; add.f32 %f6,%f5,%f3;", [1, 0, 0]),
    ("mul.f32 %f5,%f1,%f2; add.f32 %f6,%f3,%f5;", [1, 0, 0]),
    ("mul.f32 %f5,%f1,%f2; sub.f32 %f6,%f5,%f3;", [1, 0, 0]),
    ("mul.f32 %f5,%f1,%f2; sub.f32 %f6,%f3,%f5;", [1, 0, 0]),
    ("mul.rn.f32 %f5,%f1,%f2; add.f32 %f6,%f5,%f3;", [0, 1, 1]),
    ("mul.f32 %f5,%f1,%f2; add.rn.f32 %f6,%f5,%f3;", [0, 1, 1]),
    ("mul.rz.f32 %f5,%f1,%f2; add.rz.f32 %f6,%f5,%f3;", [0, 1, 1]),
    ("mul.ftz.f32 %f5,%f1,%f2; add.ftz.f32 %f6,%f5,%f3;", [1, 0, 0]),
    ("mul.ftz.f32 %f5,%f1,%f2; add.f32 %f6,%f5,%f3;", [0, 1, 1]),
    ("mul.f32 %f5,%f1,%f2; add.ftz.f32 %f6,%f5,%f3;", [0, 1, 1]),
    ("mul.f32 %f5,%f1,%f2; add.sat.f32 %f6,%f5,%f3;", [1, 0, 0]),
    ("mul.sat.f32 %f5,%f1,%f2; add.f32 %f6,%f5,%f3;", [0, 1, 1]),
    ("mul.f32 %f5,%f1,%f2; neg.f32 %f7,%f5; add.f32 %f6,%f7,%f3;", [1, 0, 0]),
    ("mul.f32 %f5,%f1,%f2; neg.f32 %f7,%f5; sub.f32 %f6,%f3,%f7;", [1, 0, 0]),
    ("mul.f32 %f5,%f1,%f2; add.f32 %f6,%f5,%f3; add.f32 %f7,%f5,%f4; st.global.f32 [%r1+72],%f7;", [2, 0, 0]),
    ("mul.f32 %f5,%f1,%f2; add.f32 %f6,%f5,%f3; st.global.f32 [%r1+72],%f5;", [0, 1, 1]),
    ("mul.f32 %f5,%f1,%f2; mul.f32 %f7,%f3,%f4; add.f32 %f6,%f5,%f7;", [1, 1, 0]),
    ("mul.f32 %f5,%f1,%f2; mul.f32 %f7,%f3,%f4; sub.f32 %f6,%f5,%f7;", [1, 1, 0]),
    (
        "mul.f32 %f5,%f1,%f2; mul.f32 %f7,%f3,%f4; add.f32 %f6,%f5,%f7; add.f32 %f8,%f7,%f4; st.global.f32 [%r1+72],%f8;",
        [1, 1, 1],
    ),
    ("mul.f32 %f5,%f1,%f2; mul.f32 %f7,%f3,%f4; add.f32 %f6,%f5,%f7; st.global.f32 [%r1+72],%f5;", [1, 1, 0]),
    ("mul.f32 %f5,%f1,%f2; add.f32 %f6,%f5,%f5;", [0, 1, 1]),
    ("mul.f32 %f5,%f1,%f1; add.f32 %f6,%f5,%f3;", [1, 0, 0]),
    ("mul.f32 %f5,%f1,0f40400000; sub.f32 %f6,%f3,%f5;", [1, 0, 0]),
    ("mul.f32 %f5,%f1,%f2; add.f32 %f6,%f5,0f40400000;", [1, 0, 0]),
    (
        "setp.gt.f32 %p1,%f4,0f00000000; mul.f32 %f5,%f1,%f2; mov.f32 %f6,%f4; @%p1 add.f32 %f6,%f5,%f3;",
        [1, 0, 0],
    ),
    (
        "setp.gt.f32 %p1,%f4,0f00000000; mov.f32 %f5,%f4; @%p1 mul.f32 %f5,%f1,%f2; add.f32 %f6,%f5,%f3;",
        [0, 1, 1],
    ),
    (
        "mul.f32 %f5,%f1,0f42A00000; add.f32 %f7,%f5,%f4; st.global.f32 [%r1+72],%f7; mov.f32 %f6,%f4; setp.gt.f32 %p1,%f4,0f00000000; @%p1 bra L; bar.sync 0; add.f32 %f6,%f5,%f3; L:",
        [2, 0, 0],
    ),
    (
        "mul.f32 %f5,%f1,%f2; add.f32 %f7,%f5,%f4; st.global.f32 [%r1+72],%f7; mov.f32 %f6,%f4; setp.gt.f32 %p1,%f4,0f00000000; @%p1 bra L; bar.sync 0; add.f32 %f6,%f5,%f3; L:",
        [0, 1, 2],
    ),
    ("mul.f32 %f5,%f1,%f2; add.f32 %f7,%f5,%f3; mul.f32 %f8,%f7,%f4; add.f32 %f6,%f8,%f1;", [2, 0, 0]),
    ("mul.f64 %d4,%d1,%d2; add.f64 %d5,%d4,%d3;", [1, 0, 0]),
    ("mul.f64 %d4,%d1,%d2; sub.f64 %d5,%d3,%d4;", [1, 0, 0]),
    ("mul.rn.f64 %d4,%d1,%d2; add.f64 %d5,%d4,%d3;", [0, 1, 1]),
    ("mul.f64 %d4,%d1,%d2; neg.f64 %d6,%d4; add.f64 %d5,%d6,%d3;", [1, 0, 0]),
    ("mul.f64 %d4,%d1,0d3FB999999999999A; sub.f64 %d5,%d3,%d4;", [1, 0, 0]),
    ("mul.f16 %h4,%h1,%h2; add.f16 %h5,%h4,%h3;", [1, 0, 0]),
    ("mul.f16 %h4,%h1,%h2; sub.f16 %h5,%h3,%h4;", [1, 0, 0]),
    ("mul.rn.f16 %h4,%h1,%h2; add.f16 %h5,%h4,%h3;", [0, 1, 1]),
    ("mul.f16 %h4,%h1,%h2; add.rn.f16 %h5,%h4,%h3;", [0, 1, 1]),
    ("mul.ftz.f16 %h4,%h1,%h2; add.ftz.f16 %h5,%h4,%h3;", [1, 0, 0]),
    ("mul.f16 %h4,%h1,%h2; add.sat.f16 %h5,%h4,%h3;", [1, 0, 0]),
    ("mul.sat.f16 %h4,%h1,%h2; add.f16 %h5,%h4,%h3;", [0, 1, 1]),
    ("mul.f16 %h4,%h1,%h2; neg.f16 %h6,%h4; add.f16 %h5,%h6,%h3;", [1, 0, 0]),
    ("mul.f16x2 %x4,%x1,%x2; add.f16x2 %x5,%x4,%x3;", [1, 0, 0]),
    ("mul.f16x2 %x4,%x1,%x2; sub.f16x2 %x5,%x3,%x4;", [1, 0, 0]),
    ("mul.bf16 %h4,%h1,%h2; add.bf16 %h5,%h4,%h3;", [1, 0, 0]),
    ("mul.bf16x2 %x4,%x1,%x2; sub.bf16x2 %x5,%x4,%x3;", [1, 0, 0]),
];

fn source(row: &str, sm: u8) -> String {
    let result = ["f64 [%r1+64],%d5;", "b16 [%r1+64],%h5;", "b32 [%r1+64],%x5;"];
    let stored = result.into_iter().find(|r| row.contains(&r[r.len() - 4..r.len() - 1]));
    let stored = stored.unwrap_or("f32 [%r1+64],%f6;");
    format!(
        ".version 8.8\n.target sm_{sm}\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\
        .reg .f32 %f<9>; .reg .f64 %d<9>; .reg .b64 %r<3>; .reg .b16 %h<9>; .reg .b32 %x<9>; .reg .pred %p1;\n\
        ld.param.u64 %r1,[p]; ld.global.v4.f32 {{%f1,%f2,%f3,%f4}},[%r1];\n\
        ld.global.v2.f64 {{%d1,%d2}},[%r1+16]; ld.global.f64 %d3,[%r1+32];\n\
        ld.global.v4.b16 {{%h1,%h2,%h3,%h6}},[%r1+40]; ld.global.v2.b32 {{%x1,%x2}},[%r1+48];\n\
        ld.global.b32 %x3,[%r1+56];\n{row}\nst.global.{stored}\nret;\n}}\n"
    )
}

/// How many of the code's instructions are fused, products and sums.
fn counts(cubin: &[u8], target: Target) -> [usize; 3] {
    let image = cubin::read::read(cubin).unwrap();
    let words = image.kernels["k"].code.iter().enumerate();
    let ops: Vec<_> =
        words.map(|(k, w)| sass::decode(*w, target, 16 * k as i64).unwrap().op.name()).collect();
    let names = [["FFMA", "DFMA", "HFMA2"], ["FMUL", "DMUL", "HMUL2"], ["FADD", "DADD", "HADD2"]];
    names.map(|names| ops.iter().filter(|o| names.contains(o)).count())
}

#[test]
fn products_and_sums_are_fused_where_ptxas_does() {
    for sm in [75, 80, 90, 120] {
        let target = Target::new(sm).unwrap();
        for (row, expected) in ROWS.iter().filter(|(row, _)| sm >= 90 || !row.contains("bf16")) {
            let text = source(row, sm);
            let unit = module(&text, target).unwrap();
            let with = |level, fmad| {
                let settings = Settings { opt_level: level, fmad, ..Settings::new(target) };
                compile(&text, "k.ptx", &settings).unwrap_or_else(|f| panic!("{}", f.render("oxptxas"))).cubin
            };
            let fused = with(3, true);
            assert_eq!(counts(&fused, target), *expected, "{target}: {row}");
            let verdict = kernel(&unit, &text, &fused, "k", 0..4);
            assert!(matches!(verdict, Verdict::Same | Verdict::Close), "{target}: {row}: {verdict}");
            for apart in [with(3, false), with(0, true)] {
                assert_eq!(counts(&apart, target)[0], 0, "{target}: {row}");
                let verdict = kernel(&unit, &text, &apart, "k", 0..4);
                assert!(matches!(verdict, Verdict::Same), "{target}: {row}: {verdict}");
            }
        }
    }
}

/// Without the pass that reads the mark, nothing is left of it.
#[test]
fn the_mark_goes_without_its_pass() {
    let target = Target::new(90).unwrap();
    let mut settings = Settings::new(target);
    settings.knobs.add("DisablePhases=contract").unwrap();
    let output = compile(&source(ROWS[0].0, 90), "k.ptx", &settings);
    let cubin = output.unwrap_or_else(|f| panic!("{}", f.render("oxptxas"))).cubin;
    assert_eq!(counts(&cubin, target), [0, 1, 1]);
}

/// The fused sum is what `fma.rn` is, to the bit.
#[test]
fn a_fused_sum_is_rounded_once() {
    let pairs = [
        ("mul.f32 %f5,%f1,%f2; sub.f32 %f6,%f5,%f3;", "neg.f32 %f3,%f3; fma.rn.f32 %f6,%f1,%f2,%f3;"),
        ("mul.f32 %f5,%f1,%f2; sub.f32 %f6,%f3,%f5;", "neg.f32 %f2,%f2; fma.rn.f32 %f6,%f1,%f2,%f3;"),
        ("mul.f32 %f5,%f1,%f2; neg.f32 %f7,%f5; sub.f32 %f6,%f3,%f7;", "fma.rn.f32 %f6,%f1,%f2,%f3;"),
        (
            "mul.f32 %f5,%f1,%f2; mul.f32 %f7,%f3,%f4; sub.f32 %f6,%f5,%f7;",
            "mul.rn.f32 %f7,%f3,%f4; neg.f32 %f7,%f7; fma.rn.f32 %f6,%f1,%f2,%f7;",
        ),
        ("mul.f64 %d4,%d1,%d2; sub.f64 %d5,%d3,%d4;", "neg.f64 %d1,%d1; fma.rn.f64 %d5,%d1,%d2,%d3;"),
        ("mul.f16 %h4,%h1,%h2; sub.f16 %h5,%h3,%h4;", "neg.f16 %h1,%h1; fma.rn.f16 %h5,%h1,%h2,%h3;"),
        ("mul.f16x2 %x4,%x1,%x2; add.f16x2 %x5,%x4,%x3;", "fma.rn.f16x2 %x5,%x1,%x2,%x3;"),
        ("mul.bf16x2 %x4,%x1,%x2; add.bf16x2 %x5,%x4,%x3;", "fma.rn.bf16x2 %x5,%x1,%x2,%x3;"),
    ];
    let target = Target::new(90).unwrap();
    for (open, fused) in pairs {
        let output = compile(&source(open, 90), "k.ptx", &Settings::new(target));
        let cubin = output.unwrap_or_else(|f| panic!("{}", f.render("oxptxas"))).cubin;
        let text = source(fused, 90);
        let verdict = kernel(&module(&text, target).unwrap(), &text, &cubin, "k", 0..8);
        assert!(matches!(verdict, Verdict::Same), "{open}: {verdict}");
    }
}
