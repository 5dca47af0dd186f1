//! Loops that run a known number of times are unrolled and do what they did.

use oxptxas::{Settings, compile};
use oxsass::verify::{Verdict, kernel, module};
use sass::Target;
use std::fmt::Write;

/// Counts from `start` by `step` as long as `cmp` of the next number and `bound` holds: the PTX of the loop, which gathers in
/// `%acc` what depends on every iteration and its number.
fn counting(name: &str, signed: bool, start: i64, step: i64, cmp: &str, bound: i64, body: &str) -> String {
    let ty = if signed { "s32" } else { "u32" };
    format!(
        ".visible .entry {name}(.param .u64 p) {{\n.reg .b64 %p<9>; .reg .b32 %r<19>; .reg .pred %q<9>;\n\
         .shared .align 4 .b8 tile_{name}[512];\n\
         ld.param.u64 %p1, [p];\nmov.u32 %r2, %tid.x;\nmul.wide.u32 %p2, %r2, 16;\nadd.u64 %p1, %p1, %p2;\n\
         mov.u32 %r1, {start};\nmov.u32 %r3, 1;\nmov.u32 %r4, 7;\n\
         LOOP:\n{body}\n\
         mad.lo.u32 %r3, %r3, 31, %r1;\n\
         add.{ty} %r1, %r1, {step};\n\
         setp.{cmp}.{ty} %q1, %r1, {bound};\n@%q1 bra LOOP;\n\
         st.global.u32 [%p1], %r1;\nst.global.u32 [%p1+4], %r3;\nst.global.u32 [%p1+8], %r4;\nret;\n}}\n"
    )
}

/// What goes on behind a loop of one round leaves blocks that nothing comes to, with readers of constants.
#[test]
fn rounds_that_nothing_comes_to() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u32 n)\n{\n\
        .reg .pred p<4>; .reg .b32 r<5>; .reg .b64 d;\n\
        ld.param.u64 d, [out]; ld.param.u32 r0, [n];\n\
        mov.b32 r1, 0xfffffffe; setp.gt.u32 p0, r1, 0xfffffff4; not.b32 r2, r0; mov.b32 r3, 2;\n\
        @!p0 bra L37;\nsub.u32 r3, r3, 1;\nL37: sub.u32 r3, r3, 1;\nsetp.eq.u32 p1, r3, 0;\n@p1 bra L34;\n\
        setp.ne.u32 p2, r2, 57;\n@!p2 bra L41;\nL41:\nL34: st.global.b32 [d+4], r2;\nret;\n}\n";
    let module = ptx::parse(source).unwrap();
    for arch in ["sm_75", "sm_90", "sm_120"] {
        let output = compile(source, "k.ptx", &Settings::new(Target::parse(arch).unwrap())).unwrap();
        assert!(matches!(kernel(&module, source, &output.cubin, "k", 0..4), Verdict::Same), "{arch}");
    }
}

/// What a loop goes around, besides what counts.
const BODIES: &[&str] = &[
    "",
    // Numbers that change places.
    "mov.u32 %r5, %r4;\nmov.u32 %r4, %r2;\nmov.u32 %r2, %r5;",
    // Sides of a branch that depends on the lane.
    "and.b32 %r5, %r1, %r2;\nsetp.eq.u32 %q2, %r5, 0;\n@%q2 bra ON;\nadd.u32 %r4, %r4, %r1;\nON:",
    // Under a guard that goes around.
    "@%q3 add.u32 %r4, %r4, 3;\nsetp.gt.u32 %q3, %r4, %r1;",
    // Neighbouring lanes.
    "shfl.sync.bfly.b32 %r5, %r4, 1, 31, 0xffffffff;\nadd.u32 %r4, %r5, %r2;",
    // Memory of the block, by an address that goes around.
    "shl.b32 %r5, %r2, 2;\nmov.u32 %r6, TILE;\nadd.u32 %r6, %r6, %r5;\nst.shared.u32 [%r6], %r4;\nbar.sync 0;\n\
     xor.b32 %r7, %r5, 4;\nmov.u32 %r6, TILE;\nadd.u32 %r6, %r6, %r7;\nld.shared.u32 %r4, [%r6];\nadd.u32 %r4, %r4, %r1;\nbar.sync 0;",
];

/// Loops that end, with few and many iterations, at the edges of the numbers.
fn loops() -> Vec<(bool, i64, i64, &'static str, i64)> {
    let mut all = Vec::new();
    for n in [1i64, 2, 3, 5, 8, 17, 64, 97, 300] {
        for step in [1i64, 3, 4, -1, -5] {
            for start in [0i64, 7, -100] {
                let end = start + step * n;
                let (strict, loose) = if step > 0 { ("lt", "le") } else { ("gt", "ge") };
                all.push((true, start, step, strict, end));
                all.push((true, start, step, "ne", end));
                all.push((true, start, step, loose, end - step));
            }
        }
    }
    let edge = i64::from(i32::MAX);
    all.extend([
        (true, edge - 10, 1, "lt", edge),
        (true, -edge, -1, "gt", -edge - 1),
        (true, edge - 9, 3, "ne", edge),
        (false, 0xffff_fff0, 1, "lt", 0xffff_ffff),
        (false, 0xffff_fff0, 1, "ne", 0),
        (false, 10, -1, "gt", 0),
        (false, 12, -3, "ne", 0),
        (false, 0x7fff_fff8, 1, "le", 0x8000_0004),
        (true, 0x7fff_fff8, 1, "gt", 5),
        (false, 5, -1, "lo", 100),
        (false, 3, 7, "ls", 80),
        (false, 3, 0, "ne", 3),
        (true, 1, 1, "eq", 2),
    ]);
    all
}

#[test]
fn loops_do_what_they_did() {
    for sm in [75, 90, 120] {
        let target = Target::new(sm).unwrap();
        let mut text = format!(".version 8.8\n.target sm_{sm}\n.address_size 64\n");
        let mut names = Vec::new();
        for (n, (signed, start, step, cmp, bound)) in loops().into_iter().enumerate() {
            let body = (n + usize::from(sm)) % BODIES.len();
            let name = format!("k{n}_{body}");
            let body = BODIES[body].replace("TILE", &format!("tile_{name}"));
            text += &counting(&name, signed, start, step, cmp, bound, &body);
            names.push(name);
        }
        let unit = module(&text, target).unwrap();
        let cubin = compile(&text, "k.ptx", &Settings::new(target))
            .unwrap_or_else(|f| panic!("{}", f.render("oxptxas")))
            .cubin;
        let mut wrong = String::new();
        for name in &names {
            let verdict = kernel(&unit, &text, &cubin, name, 0..2);
            if !matches!(verdict, Verdict::Same) {
                _ = writeln!(wrong, "{target} {name}: {verdict}");
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
    }
}

/// Branches that go back in the code of a kernel of one loop of 40 iterations.
fn ways_back(before: &str, level: u8, knob: Option<&str>) -> usize {
    let target = Target::new(90).unwrap();
    let text = counting("k", true, 0, 1, "lt", 40, "").replace("LOOP:\n", &format!("LOOP:\n{before}"));
    let text = format!(".version 8.8\n.target sm_90\n.address_size 64\n{text}");
    let mut settings = Settings { opt_level: level, ..Settings::new(target) };
    knob.into_iter().for_each(|k| settings.knobs.add(k).unwrap());
    let cubin =
        compile(&text, "k.ptx", &settings).unwrap_or_else(|f| panic!("{}", f.render("oxptxas"))).cubin;
    let image = cubin::read::read(&cubin).unwrap();
    let code = &image.kernels["k"].code;
    let at = |k: usize| sass::decode(code[k], target, 16 * k as i64).unwrap();
    // The last one is the branch to itself behind the code.
    let ends = (0..code.len()).rev().find(|k| at(*k).op.name() == "EXIT").unwrap();
    (0..ends).filter(|k| at(*k).op.name() == "BRA").count()
}

#[test]
fn loops_go_where_they_may() {
    assert_eq!(ways_back("", 3, None), 0);
    assert_eq!(ways_back("", 1, None), 1);
    assert_eq!(ways_back(".pragma \"nounroll\";\n", 3, None), 1);
    assert_eq!(ways_back("", 3, Some("DisablePhases=unroll")), 1);
}
