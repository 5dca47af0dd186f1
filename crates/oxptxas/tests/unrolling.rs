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

/// Counts as [`counting`] does, but from and to numbers of which the compiler knows nothing: they come from memory, or from the number of
/// the thread. `wide`: in 64 bits; `above`: the loop asks before the body, and may not execute it; `known`: the first number is one that is known.
fn counting_unknown(
    name: &str,
    [signed, wide, above, known]: [bool; 4],
    (from, step, cmp, to): (i64, i64, &str, i64),
    body: &str,
) -> String {
    let bits = if wide { 64 } else { 32 };
    let ty = format!("{}{bits}", if signed { 's' } else { 'u' });
    let opposite = match cmp {
        "lt" => "ge",
        "le" => "gt",
        "gt" => "le",
        "ge" => "lt",
        "ne" => "eq",
        "lo" => "hs",
        "ls" => "hi",
        "hi" => "ls",
        "hs" => "lo",
        other => panic!("{other}"),
    };
    // A number of the kernel's own plus something that differs from lane to lane, but not by much: the ends of the numbers are met.
    let number = |reg: &str, n: i64, lanes: bool| {
        let lane = if lanes { format!("add.{ty} {reg}, {reg}, %c4;\n") } else { String::new() };
        format!("ld.const.u{bits} {reg}, [numbers_{name}+{n}];\n{lane}")
    };
    let (ask, end) = if above {
        (format!("setp.{opposite}.{ty} %q1, %c1, %c2;\n@%q1 bra OUT;\n"), "bra LOOP;\nOUT:\n".to_string())
    } else {
        (String::new(), format!("setp.{cmp}.{ty} %q1, %c1, %c2;\n@%q1 bra LOOP;\n"))
    };
    let low = if wide { "cvt.u32.u64 %r1, %c1;" } else { "mov.b32 %r1, %c1;" };
    let lane = if wide { "cvt.u64.u32 %c4, %r5;" } else { "mov.b32 %c4, %r5;" };
    format!(
        ".const .align 8 .b{bits} numbers_{name}[2] = {{{from}, {to}}};\n\
         .visible .entry {name}(.param .u64 p) {{\n.reg .b64 %p<9>; .reg .b32 %r<19>; .reg .b{bits} %c<9>; .reg .pred %q<9>;\n\
         ld.param.u64 %p1, [p];\nmov.u32 %r2, %tid.x;\nmul.wide.u32 %p2, %r2, 16;\nadd.u64 %p1, %p1, %p2;\n\
         and.b32 %r5, %r2, 7;\n{lane}\n{}{}mov.u32 %r3, 1;\nmov.u32 %r4, 7;\nsetp.ne.u32 %q3, %r2, 0;\n\
         LOOP:\n{low}\n{ask}{body}\nmad.lo.u32 %r3, %r3, 31, %r1;\n\
         add.{ty} %c1, %c1, {step};\n{end}{low}\n\
         st.global.u32 [%p1], %r1;\nst.global.u32 [%p1+4], %r3;\nst.global.u32 [%p1+8], %r4;\nret;\n}}\n",
        if known { format!("mov.b{bits} %c1, {from};\n") } else { number("%c1", 0, false) },
        number("%c2", i64::from(bits / 8), cmp != "ne" || step == 1),
    )
}

/// What a loop of an unknown number of iterations goes around; nothing that lanes do together, as they leave it apart.
const BODIES_APART: &[&str] = &[
    "",
    "mov.u32 %r5, %r4;\nmov.u32 %r4, %r2;\nmov.u32 %r2, %r5;",
    "and.b32 %r5, %r1, %r2;\nsetp.eq.u32 %q2, %r5, 0;\n@%q2 bra ON;\nadd.u32 %r4, %r4, %r1;\nON:",
    "@%q3 add.u32 %r4, %r4, 3;\nsetp.gt.u32 %q3, %r4, %r1;",
    "ld.global.u32 %r5, [%p1+12];\nadd.u32 %r5, %r5, %r1;\nst.global.u32 [%p1+12], %r5;",
];

#[test]
fn loops_of_unknown_numbers_do_what_they_did() {
    let mut cases = Vec::new();
    for n in [0i64, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 40] {
        for step in [1i64, -1, 3, -5] {
            let (strict, loose) = if step > 0 { ("lt", "le") } else { ("gt", "ge") };
            cases.push((true, 5, step, strict, 5 + step * n));
            cases.push((true, -9, step, loose, -9 + step * (n - 1)));
            cases.push((true, 2, step, "ne", 2 + step * n.max(1)));
        }
    }
    for (bits, wide) in [(32, false), (64, true)] {
        let (least, most) = (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1);
        let mut cases = cases.clone();
        let n = |x: i128| x as i64;
        // At the ends of the numbers, where what is left of them may wrap around. The lanes' own numbers go up to 7.
        for k in 0i128..9 {
            cases.push((true, n(most - 30), 1, "lt", n(most - 7 - k)));
            cases.push((true, n(most - 40), 3, "lt", n(most - 7 - 3 * k)));
            cases.push((true, n(least + 20), -1, "gt", n(least + k)));
            cases.push((true, n(least + 20 + k), -3, "ge", n(least + 5)));
            cases.push((true, n(least + k), 2, "lt", n(least)));
            cases.push((false, 25, -1, "gt", n(k)));
            cases.push((false, 30, -4, "ge", n(4 + k)));
            cases.push((false, n(-20), 1, "lo", n(-8 - k)));
            cases.push((false, n(k), 2, "lo", 3));
            cases.push((false, n(-10), 1, "ne", n(k)));
            cases.push((true, n(3), -1, "ne", n(-12 - k)));
        }
        for (part, sm) in [75, 90, 120].into_iter().enumerate() {
            let target = Target::new(sm).unwrap();
            let mut text = format!(".version 8.8\n.target sm_{sm}\n.address_size 64\n");
            let mut names = Vec::new();
            // Each on one of the targets.
            let own = cases.iter().copied().enumerate().filter(|(n, _)| (n + n / 3) % 3 == part);
            for (n, (signed, from, step, cmp, to)) in own {
                let above = (n / 3) % 2 == 0;
                // Never an endless number of iterations: a loop that asks below goes once where it should not go at all.
                let cmp = if signed { cmp } else { &cmp.replace("gt", "hi").replace("ge", "hs") };
                let body = BODIES_APART[n % BODIES_APART.len()];
                let name = format!("k{n}");
                text +=
                    &counting_unknown(&name, [signed, wide, above, n % 7 < 3], (from, step, cmp, to), body);
                names.push(name);
            }
            let unit = module(&text, target).unwrap_or_else(|e| panic!("{e:?}"));
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
