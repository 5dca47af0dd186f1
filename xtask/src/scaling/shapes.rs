//! PTX that is large in one way, for measuring how compile time grows.

use std::fmt::Write;

/// A way of being large.
pub struct Shape {
    /// Its name in tables.
    pub name: &'static str,
    /// What there are `n` of.
    pub what: &'static str,
    /// The text of a module with `n` of them.
    pub text: fn(usize) -> String,
}

/// All that are measured.
pub const SHAPES: [Shape; 17] = [
    Shape { name: "straight", what: "dependent sums", text: straight },
    Shape { name: "pressure", what: "values that live at once", text: pressure },
    Shape { name: "ifs", what: "ifs, one after another", text: ifs },
    Shape { name: "nested ifs", what: "ifs, 50 deep", text: nested_ifs },
    Shape { name: "loops", what: "loops, one after another", text: loops },
    Shape { name: "nested loops", what: "loops, 12 deep", text: nested_loops },
    Shape { name: "phis", what: "ifs around which 16 values live that they change", text: phis },
    Shape { name: "switch", what: "targets of one brx.idx", text: switch },
    Shape { name: "calls", what: "calls of one function", text: calls },
    Shape { name: "call chain", what: "functions, each of which calls the next", text: call_chain },
    Shape { name: "functions", what: "functions that one kernel calls", text: functions },
    Shape { name: "kernels", what: "kernels", text: kernels },
    Shape { name: "division", what: "divisions of 32-bit integers", text: division },
    Shape { name: "guarded", what: "guarded instructions in one block", text: guarded },
    Shape { name: "stores", what: "stores of one register", text: stores },
    Shape { name: "irreducible", what: "loops that are entered in two places", text: irreducible },
    Shape { name: "ladder", what: "rungs of one loop with two rails, each with a branch back", text: ladder },
];

const HEAD: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";

/// A kernel with a pointer in %rd1, the number of the thread in %r1 and a loaded word in %r2; `body` stores %r2.
fn kernel(name: &str, registers: &str, body: &str) -> String {
    format!(
        ".visible .entry {name}(.param .u64 p)\n{{\n.reg .b64 %rd<8>;\n.reg .pred %p<8>;\n{registers}\
         ld.param.u64 %rd1, [p];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd1, %rd1, %rd2;\n\
         ld.global.u32 %r2, [%rd1];\n{body}st.global.u32 [%rd1], %r2;\nret;\n}}\n"
    )
}

fn module(registers: usize, body: &str) -> String {
    format!("{HEAD}{}", kernel("k", &format!(".reg .b32 %r<{registers}>;\n"), body))
}

fn repeat(n: usize, mut f: impl FnMut(&mut String, usize)) -> String {
    let mut s = String::new();
    (0..n).for_each(|i| f(&mut s, i));
    s
}

macro_rules! put {
    ($s:expr, $($t:tt)*) => { writeln!($s, $($t)*).expect("a string takes all") };
}

fn straight(n: usize) -> String {
    module(
        8,
        &repeat(n, |s, i| match i % 3 {
            0 => put!(s, "add.s32 %r2, %r2, %r1;"),
            1 => put!(s, "xor.b32 %r2, %r2, {};", i + 7),
            _ => put!(s, "mul.lo.s32 %r2, %r2, %r2;"),
        }),
    )
}

fn pressure(n: usize) -> String {
    let mut s = repeat(n, |s, i| put!(s, "ld.volatile.global.u32 %r{}, [%rd1+{}];", i + 8, 4 * (i % 4096)));
    s += &repeat(n, |s, i| put!(s, "mad.lo.s32 %r2, %r2, 3, %r{};", i + 8));
    module(n + 8, &s)
}

fn ifs(n: usize) -> String {
    module(
        8,
        &repeat(n, |s, i| {
            put!(s, "and.b32 %r3, %r2, {};\nsetp.eq.s32 %p1, %r3, 0;\n@%p1 bra L{i};", 1 << (i % 31));
            put!(s, "st.global.u32 [%rd1+{}], %r2;\nadd.s32 %r2, %r2, %r1;\nL{i}:", 4 * (i % 1024 + 1));
        }),
    )
}

fn nested_ifs(n: usize) -> String {
    const DEPTH: usize = 50;
    module(
        8,
        &repeat(n.div_ceil(DEPTH), |s, g| {
            for d in 0..DEPTH {
                put!(s, "and.b32 %r3, %r2, {};\nsetp.eq.s32 %p1, %r3, 0;", 1 << (d % 31));
                put!(s, "@%p1 bra L{g}_{d};\nadd.s32 %r2, %r2, %r1;");
                put!(s, "st.global.u32 [%rd1+{}], %r2;", 4 * (d + 1));
            }
            (0..DEPTH).rev().for_each(|d| put!(s, "L{g}_{d}:\nxor.b32 %r2, %r2, {};", d + 1));
        }),
    )
}

fn loops(n: usize) -> String {
    module(
        8,
        &repeat(n, |s, i| {
            put!(s, "mov.u32 %r3, 0;\nL{i}:\nmad.lo.s32 %r2, %r2, %r2, {};\nadd.s32 %r3, %r3, 1;", i + 1);
            put!(s, "setp.lt.u32 %p1, %r3, %r1;\n@%p1 bra L{i};");
        }),
    )
}

fn nested_loops(n: usize) -> String {
    const DEPTH: usize = 12;
    module(
        DEPTH + 8,
        &repeat(n.div_ceil(DEPTH), |s, g| {
            for d in 0..DEPTH {
                put!(s, "mov.u32 %r{}, 0;\nL{g}_{d}:\nmad.lo.s32 %r2, %r2, %r2, {};", d + 8, d + 1);
            }
            for d in (0..DEPTH).rev() {
                put!(s, "add.s32 %r{0}, %r{0}, 1;\nsetp.lt.u32 %p1, %r{0}, %r1;\n@%p1 bra L{g}_{d};", d + 8);
            }
        }),
    )
}

fn phis(n: usize) -> String {
    const LIVE: usize = 16;
    let mut s = repeat(LIVE, |s, i| put!(s, "ld.global.u32 %r{}, [%rd1+{}];", i + 8, 4 * i));
    s += &repeat(n, |s, i| {
        put!(s, "setp.lt.u32 %p1, %r{}, %r1;\n@%p1 bra L{i};", 8 + i % LIVE);
        (0..LIVE).for_each(|k| put!(s, "mad.lo.s32 %r{0}, %r{0}, {1}, %r2;", k + 8, i + k + 3));
        put!(s, "L{i}:");
    });
    s += &repeat(LIVE, |s, i| put!(s, "add.s32 %r2, %r2, %r{};", i + 8));
    module(LIVE + 8, &s)
}

fn switch(n: usize) -> String {
    let labels: Vec<String> = (0..n).map(|i| format!("L{i}")).collect();
    let mut s =
        format!("rem.u32 %r3, %r2, {n};\nts: .branchtargets {};\nbrx.idx %r3, ts;\n", labels.join(", "));
    s += &repeat(n, |s, i| put!(s, "L{i}:\nmad.lo.s32 %r2, %r2, {}, %r1;\nbra E;", i + 3));
    module(8, &(s + "E:\n"))
}

fn function(name: &str, body: &str) -> String {
    format!(
        ".func (.param .b32 o) {name}(.param .b32 a)\n{{\n.reg .b32 %r<4>;\nld.param.u32 %r1, [a];\n{body}\
         st.param.b32 [o], %r1;\nret;\n}}\n"
    )
}

fn call(name: &str, r: usize) -> String {
    format!(
        "{{\n.param .b32 a;\n.param .b32 o;\nst.param.b32 [a], %r{r};\ncall.uni (o), {name}, (a);\n\
         ld.param.b32 %r{r}, [o];\n}}\n"
    )
}

/// More than ptxas inlines.
fn long_body(seed: usize) -> String {
    repeat(40, |s, i| put!(s, "mad.lo.s32 %r1, %r1, %r1, {};", seed + i))
}

fn calls(n: usize) -> String {
    let body = call("f", 2).repeat(n);
    HEAD.to_string() + &function("f", &long_body(1)) + &kernel("k", ".reg .b32 %r<8>;\n", &body)
}

fn call_chain(n: usize) -> String {
    let mut s = HEAD.to_string() + &function("f0", &long_body(0));
    (1..n).for_each(|i| s += &function(&format!("f{i}"), &(long_body(i) + &call(&format!("f{}", i - 1), 1))));
    s + &kernel("k", ".reg .b32 %r<8>;\n", &call(&format!("f{}", n - 1), 2))
}

fn functions(n: usize) -> String {
    let mut s = HEAD.to_string();
    let mut body = String::new();
    for i in 0..n {
        s += &function(&format!("f{i}"), &long_body(i));
        body += &call(&format!("f{i}"), 2);
    }
    s + &kernel("k", ".reg .b32 %r<8>;\n", &body)
}

fn kernels(n: usize) -> String {
    let body = "mad.lo.s32 %r2, %r2, %r2, %r1;\n";
    (0..n).fold(HEAD.to_string(), |s, i| s + &kernel(&format!("k{i}"), ".reg .b32 %r<8>;\n", body))
}

fn division(n: usize) -> String {
    module(
        8,
        &repeat(n, |s, i| match i % 2 {
            0 => put!(s, "div.u32 %r2, %r2, %r1;"),
            _ => put!(s, "add.s32 %r2, %r2, {};", 1000 * i + 1),
        }),
    )
}

fn guarded(n: usize) -> String {
    module(
        8,
        &repeat(n, |s, i| match i % 4 {
            0 => put!(s, "setp.lt.u32 %p1, %r2, {};", i + 1),
            _ => put!(s, "@%p1 mad.lo.s32 %r2, %r2, {}, %r1;", i + 3),
        }),
    )
}

fn stores(n: usize) -> String {
    module(8, &repeat(n, |s, i| put!(s, "st.global.u32 [%rd1+{}], %r2;", 4 * (i % 100_000 + 1))))
}

fn irreducible(n: usize) -> String {
    module(
        8,
        &repeat(n, |s, i| {
            put!(s, "mov.u32 %r3, 0;\nsetp.lt.u32 %p1, %r2, {};\n@%p1 bra B{i};", i + 1);
            put!(
                s,
                "A{i}:\nmad.lo.s32 %r2, %r2, %r2, 3;\nB{i}:\nadd.s32 %r2, %r2, %r1;\nadd.s32 %r3, %r3, 1;"
            );
            put!(s, "setp.lt.u32 %p2, %r3, %r1;\n@%p2 bra A{i};");
        }),
    )
}

fn ladder(n: usize) -> String {
    let rungs = repeat(n, |s, i| {
        let (before, after) = (i.saturating_sub(1), i + 1);
        for (rail, other, op) in [("L", "R", "add.u32"), ("R", "L", "xor.b32")] {
            put!(s, "{rail}{i}:\n{op} %r2, %r2, %r1;\nsetp.lt.u32 %p1, %r2, {};", 7 * i + 3);
            put!(s, "@%p1 bra {other}{before};\nsetp.lt.u32 %p2, %r2, {};\n@%p2 bra {other}{after};", 5 * i);
            put!(s, "bra {rail}{after};");
        }
    });
    let enter = "setp.lt.u32 %p3, %r1, %r2;\n@%p3 bra L0;\nbra R0;\n";
    module(8, &format!("{enter}{rungs}L{n}:\nadd.u32 %r2, %r2, 1;\nR{n}:\n"))
}
