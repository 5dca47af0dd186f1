//! Products of warp groups: every statement of the table, compiled, decoded, executed and compared with the interpreter; that
//! they go on while the code does; and that they are waited for where the program touches them.

use oxptxas::{Settings, compile};
use oxsass::verify::{self, Verdict};
use rayon::prelude::*;
use sass::{Inst, Opcode, Target};
use std::fmt::Write as _;

/// A launch of one block; its threads are as many as the kernels ask for.
const LAUNCH: u64 = 8;

/// What is wrong with the code of a kernel, at -O3 with everything done as late as it allows.
fn wrong(source: &str) -> Option<String> {
    wrong_as(source, true)
}

/// The same, done late or not.
fn wrong_as(source: &str, late: bool) -> Option<String> {
    let target = Target::parse("sm_90a").unwrap();
    for opt_level in [3, 0] {
        let settings = Settings { opt_level, ..Settings::new(target) };
        let cubin = match compile(source, "k.ptx", &settings) {
            Ok(out) => out.cubin,
            Err(e) => return Some(format!("-O{opt_level}: {}", e.render("test"))),
        };
        let hazards = sim::hazard::check_cubin(&cubin, sim::hazard::Minima::built_in()).unwrap();
        if let Some(h) = hazards.iter().find_map(|k| k.1.first()) {
            return Some(format!("-O{opt_level}: {h}"));
        }
        let module = verify::module(source, target).unwrap();
        match verify::kernel_as((&module, source, &cubin), "k", LAUNCH..LAUNCH + 1, late && opt_level == 3) {
            Verdict::Same | Verdict::Close => {}
            other => return Some(format!("-O{opt_level}: {other}\n{source}")),
        }
    }
    None
}

fn code(source: &str) -> Vec<Inst> {
    let target = Target::parse("sm_90a").unwrap();
    let cubin = compile(source, "k.ptx", &Settings::new(target))
        .unwrap_or_else(|e| panic!("{}", e.render("test")))
        .cubin;
    let image = cubin::read::read(&cubin).unwrap();
    let words = image.kernels["k"].code.iter().enumerate();
    words.map(|(k, w)| sass::decode(*w, target, 16 * k as i64).unwrap()).collect()
}

/// The parts of a statement.
#[derive(Clone)]
struct Form {
    sparse: bool,
    n: u32,
    k: u32,
    types: [&'static str; 3],
    /// Behind the types.
    more: &'static str,
}

impl Form {
    fn accumulators(&self) -> u32 {
        if self.types[0] == "f16" { self.n / 4 } else { self.n / 2 }
    }

    /// Two products into one accumulator: A in registers or not, whether D counts, signs, layouts.
    fn source(&self, registers: bool, counts: [&str; 2], signs: [i32; 2], turned: [u32; 2]) -> String {
        let [d, a, b] = self.types;
        let half = matches!(a, "f16" | "bf16");
        let float = half || matches!(a, "tf32" | "e4m3" | "e5m2");
        let mut out = header("k");
        fill(&mut out, a);
        let count = self.accumulators();
        for i in 0..count {
            let _ = writeln!(out, "add.u32 v, t, {}; rem.u32 v, v, 5;", i * 3 + 1);
            let _ = match d {
                "f16" => writeln!(out, "cvt.rn.f16.u32 h, v; mov.b32 d{i}, {{h, h}};"),
                "f32" => writeln!(out, "cvt.rn.f32.u32 y, v; mov.b32 d{i}, y;"),
                _ => writeln!(out, "mov.b32 d{i}, v;"),
            };
        }
        let list: Vec<String> = (0..count).map(|i| format!("d{i}")).collect();
        let name = format!(
            "wgmma.mma_async{}.sync.aligned.m64n{}k{}.{d}.{a}.{b}{}",
            if self.sparse { ".sp" } else { "" },
            self.n,
            self.k,
            self.more
        );
        if registers {
            out += "mul.lo.u32 v, t, 16; cvt.u64.u32 w, v; mov.u64 x, m; add.u64 w, w, x; ld.shared.v4.b32 {a0, a1, a2, a3}, [w];\n";
        }
        out += "setp.ge.u32 yes, t, 0; setp.lt.u32 no, t, 0; mov.b32 e, 0x44ee4ee4;\nwgmma.fence.sync.aligned;\n";
        for counts in counts {
            let mut operands = format!("{{{}}}, ", list.join(", "));
            operands += if registers { "{a0, a1, a2, a3}" } else { "da" };
            operands += ", db, ";
            if self.sparse {
                operands += "e, 0, ";
            }
            operands += counts;
            if float {
                let _ = write!(operands, ", {}, {}", signs[0], signs[1]);
            }
            if half {
                if !registers {
                    let _ = write!(operands, ", {}", turned[0]);
                }
                let _ = write!(operands, ", {}", turned[1]);
            }
            let _ = writeln!(out, "{name} {operands};");
        }
        out += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
        for i in 0..count {
            let _ = writeln!(out, "st.global.b32 [po+{}], d{i};", 4 * i);
        }
        out + "ret;\n}\n"
    }
}

/// A kernel with shared memory at `m`, descriptors `da` and `db` of it, and a row of 512 bytes for each thread at `po`.
fn header(name: &str) -> String {
    let mut out =
        String::from(".version 9.0\n.target sm_90a\n.address_size 64\n.shared .align 1024 .b8 m[32768];\n");
    let _ = writeln!(out, ".visible .entry {name}(.param .u64 out)\n.reqntid 128\n{{");
    out += ".reg .pred p, yes, no; .reg .b16 h; .reg .b32 t, i, u, v, e, a0, a1, a2, a3, d<128>, c<128>; .reg .f32 y; .reg .b64 w, x, po, da, db;\n\
            mov.u32 t, %tid.x; ld.param.u64 po, [out]; mul.wide.u32 w, t, 512; add.u64 po, po, w;\n";
    out
}

/// Fills shared memory with small numbers of a type, so that sums are exact.
fn fill(out: &mut String, ty: &str) {
    *out += "mov.u32 i, t;\nFILL:\nmad.lo.u32 v, i, 37, 11;\n";
    let size = match ty {
        "tf32" | "b1" => 4,
        "f16" | "bf16" => 2,
        _ => 1,
    };
    out.push_str(match ty {
        "b1" => "mul.lo.u32 v, v, 0x9e3779b1; shr.u32 u, v, 15; xor.b32 v, v, u;\n",
        _ => "rem.u32 v, v, 7; sub.s32 v, v, 3;\n",
    });
    let _ = writeln!(out, "mov.u64 x, m; mul.wide.u32 w, i, {size}; add.u64 w, w, x;");
    let _ = match ty {
        "tf32" => writeln!(out, "cvt.rn.f32.s32 y, v; st.shared.f32 [w], y;"),
        "f16" => writeln!(out, "cvt.rn.f16.s32 h, v; st.shared.b16 [w], h;"),
        "bf16" => writeln!(out, "cvt.rn.f32.s32 y, v; cvt.rn.bf16.f32 h, y; st.shared.b16 [w], h;"),
        // 0, 1, 1.5, … as they come, without infinities and NaN.
        "e4m3" | "e5m2" => writeln!(out, "and.b32 v, v, 0xbf; st.shared.u8 [w], v;"),
        "b1" => writeln!(out, "st.shared.u32 [w], v;"),
        _ => writeln!(out, "st.shared.u8 [w], v;"),
    };
    let _ = writeln!(out, "add.u32 i, i, 128; setp.lt.u32 p, i, {}; @p bra FILL;", 32768 / size);
    // Units of 128 bytes, one behind the other in k, 512 bytes apart in rows; B behind A.
    *out += "bar.sync 0; fence.proxy.async; mov.u64 x, m; cvt.u32.u64 v, x; shr.u32 v, v, 4; cvt.u64.u32 da, v; \
             add.u64 db, da, 0x200; or.b64 da, da, 0x0000002000080000; or.b64 db, db, 0x0000002000080000;\n";
}

fn forms() -> Vec<Form> {
    let mut out = Vec::new();
    let columns: &[u32] = if std::env::var_os("FORMS").is_some() {
        &[8, 16, 24, 32, 40, 64, 88, 96, 104, 128, 160, 176, 192, 224, 248, 256]
    } else {
        &[8, 24, 40, 128, 256]
    };
    for sparse in [false, true] {
        let twice = if sparse { 2 } else { 1 };
        for &n in columns {
            let mut add = |k: u32, types, more| out.push(Form { sparse, n, k: k * twice, types, more });
            for types in [["f16", "f16", "f16"], ["f32", "f16", "f16"], ["f32", "bf16", "bf16"]] {
                add(16, types, "");
            }
            add(8, ["f32", "tf32", "tf32"], "");
            for d in ["f16", "f32"] {
                for (a, b) in [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2")] {
                    add(32, [d, a, b], "");
                }
            }
            if n % 16 == 0 || n < 32 && n % 8 == 0 {
                for (a, b) in [("u8", "u8"), ("s8", "s8"), ("u8", "s8"), ("s8", "u8")] {
                    add(32, ["s32", a, b], "");
                    add(32, ["s32", a, b], ".satfinite");
                }
                if !sparse {
                    add(256, ["s32", "b1", "b1"], ".and.popc");
                }
            }
        }
    }
    out
}

#[test]
fn every_form_gives_what_it_says() {
    let mut all = Vec::new();
    for (i, f) in forms().into_iter().enumerate() {
        for registers in [false, true] {
            let counts =
                [["1", "1"], ["0", "1"], ["yes", "no"], ["no", "yes"]][(i + usize::from(registers)) % 4];
            let signs = [[1, 1], [-1, 1], [1, -1], [-1, -1]][(i / 4 + i) % 4];
            let turned = [[0, 0], [1, 0], [0, 1], [1, 1]][(i / 3) % 4];
            all.push(f.source(registers, counts, signs, turned));
        }
    }
    let failures: Vec<String> = all.par_iter().filter_map(|s| wrong(s)).collect();
    assert!(failures.is_empty(), "{} of {}: {}", failures.len(), all.len(), failures[0]);
}

fn statement(d: &str, n: u32, counts: &str) -> String {
    let list: Vec<String> = (0..n / 2).map(|i| format!("{d}{i}")).collect();
    format!(
        "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16 {{{}}}, da, db, {counts}, 1, 1, 0, 0;\n",
        list.join(", ")
    )
}

fn zero(d: &str, n: u32) -> String {
    (0..n / 2).map(|i| format!("mov.b32 {d}{i}, 0;\n")).collect()
}

fn store(d: &str, n: u32) -> String {
    (0..n / 2).map(|i| format!("st.global.b32 [po+{}], {d}{i};\n", 4 * i)).collect()
}

const FENCE: &str = "wgmma.fence.sync.aligned;\n";
const COMMIT: &str = "wgmma.commit_group.sync.aligned;\n";

fn wait(n: u32) -> String {
    format!("wgmma.wait_group.sync.aligned {n};\n")
}

fn program(body: &str) -> String {
    let mut out = header("k");
    fill(&mut out, "f16");
    out + body + "ret;\n}\n"
}

/// The waits of a kernel: how many groups each leaves.
fn waits(code: &[Inst]) -> Vec<u32> {
    let waits = code.iter().filter(|i| i.op == Opcode::WARPGROUP_DEPBAR);
    waits
        .filter_map(|i| if let Some(sass::Operand::Imm(n)) = i.operands.get(1) { Some(*n) } else { None })
        .collect()
}

/// Of two groups the older one is read while the younger one goes on.
#[test]
fn groups_go_on() {
    let body = zero("d", 64)
        + &zero("c", 64)
        + FENCE
        + &statement("d", 64, "1")
        + COMMIT
        + &statement("c", 64, "1")
        + COMMIT
        + &wait(1)
        + &store("d", 64)
        + &wait(0)
        + &store("c", 64);
    let source = program(&body);
    assert_eq!(wrong(&source), None);
    assert_eq!(waits(&code(&source)), [1, 0]);
}

/// All code of ptxas has accumulators of eight registers and more at multiples of eight, whatever else lives.
#[test]
fn accumulators_begin_at_multiples_of_eight() {
    for (n, m) in [(40, 40), (40, 24), (24, 72), (88, 40)] {
        let body = zero("d", n)
            + &zero("c", m)
            + FENCE
            + &statement("d", n, "1")
            + &statement("c", m, "1")
            + COMMIT
            + &wait(0)
            + &store("d", n)
            + &store("c", m);
        let source = program(&body);
        assert_eq!(wrong(&source), None, "{n} {m}");
        let code = code(&source);
        let products = code.iter().filter(|i| i.op.is_group_product());
        let begins: Vec<u8> = products.filter_map(|i| Some(i.operands[0].as_reg()?.reg.index)).collect();
        assert!(begins.len() == 2 && begins.iter().all(|r| r.is_multiple_of(8)), "{n} {m}: {begins:?}");
    }
}

/// nvdisasm takes no wait mask on WARPGROUP.DEPBAR, and ptxas has none there: what is in front of it waits.
#[test]
fn waits_for_groups_wait_for_nothing_else() {
    let fences = ["fence.proxy.async", "fence.proxy.async.shared::cta", "membar.cta", "fence.sc.cta"];
    for fence in fences {
        let body = zero("d", 8)
            + FENCE
            + &statement("d", 8, "1")
            + COMMIT
            + fence
            + ";\n"
            + &wait(0)
            + &store("d", 8);
        let source = program(&body);
        assert_eq!(wrong(&source), None, "{fence}");
        let code = code(&source);
        let at = code.iter().position(|i| i.op == Opcode::WARPGROUP_DEPBAR).unwrap();
        assert_eq!(code[at].ctrl.wait, 0, "{fence}");
        assert_ne!(code[at - 1].ctrl.wait, 0, "{fence}");
    }
}

/// A loop with one accumulator, whose last group goes on at its end: nothing moves the accumulator.
#[test]
fn accumulators_stay_in_place_around_loops() {
    for n in [64, 128, 256] {
        let body = zero("d", n)
            + "mov.u32 i, 0;\nLOOP:\n"
            + FENCE
            + &statement("d", n, "1")
            + &statement("d", n, "1")
            + COMMIT
            + &wait(1)
            + "add.u32 i, i, 1; add.u64 da, da, 2; setp.lt.u32 p, i, 5; @p bra LOOP;\n"
            + &wait(0)
            + &store("d", n);
        let source = program(&body);
        assert_eq!(wrong(&source), None);
        let code = code(&source);
        assert_eq!(waits(&code), [1, 0]);
        let at = |op: Opcode| code.iter().position(|i| i.op == op).unwrap();
        let (first, end) = (at(Opcode::WARPGROUP), at(Opcode::WARPGROUP_DEPBAR));
        let moves =
            code[first..end + 8].iter().filter(|i| i.op == Opcode::MOV && i.operands[1].as_reg().is_some());
        assert_eq!(moves.count(), 0, "n = {n}");
    }
}

/// Two pairs of accumulators, which take more registers than there are, in turn; the second pair goes on around the loop, with rows of A in registers
/// (the backward pass of attention): neither is waited for more often than the program says, and what leaves registers meanwhile leaves by fours.
#[test]
fn more_accumulators_than_registers_take_turns() {
    let rows = |d: &str, a: usize| {
        let list: Vec<String> = (0..64).map(|i| format!("{d}{i}")).collect();
        let a: Vec<String> = (0..4).map(|i| format!("a{}", 4 * a + i)).collect();
        format!(
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {{{}}}, {{{}}}, db, 1, 1, 1, 0;\n",
            list.join(", "),
            a.join(", ")
        )
    };
    let load: String = (0..8).map(|i| format!("ld.shared.b32 a{i}, [v+{}];\n", 4 * i)).collect();
    let half = |first: u32, d: &str| -> String {
        (0..64).map(|i| format!("st.global.b32 [po+{}], {d}{};\n", 4 * (first + i), i)).collect()
    };
    let body = ".reg .b32 a<8>, f<64>, g<64>, q<64>, s<64>;\n".to_string()
        + &["f", "g", "q", "s"].map(|d| zero(d, 128)).concat()
        + "mov.u32 i, 0; mov.u32 v, m;\nLOOP:\n"
        + &wait(0)
        + &load
        + FENCE
        + &statement("f", 128, "1")
        + &statement("g", 128, "1")
        + COMMIT
        + &wait(0)
        + FENCE
        + &rows("q", 0)
        + &rows("s", 1)
        + COMMIT
        + "add.u32 i, i, 1; add.u64 da, da, 2; setp.lt.u32 p, i, 3; @p bra LOOP;\n"
        + &wait(0)
        + &half(0, "f")
        + &half(64, "s")
        + "bar.sync 0; add.u64 po, po, 65536;\n"
        + &half(0, "g")
        + &half(64, "q");
    let source = program(&body).replace("a0, a1, a2, a3, ", "");
    assert_eq!(wrong(&source), None);
    let code = code(&source);
    assert_eq!(waits(&code), [0, 0, 0]);
    let narrow = |i: &&Inst| matches!(i.op, Opcode::LDL | Opcode::STL) && !i.mods.has(sass::Mod::_128);
    let (first, end) = (
        code.iter().position(|i| i.op == Opcode::WARPGROUP_DEPBAR).unwrap(),
        code.iter().rposition(|i| i.op == Opcode::WARPGROUP_DEPBAR).unwrap(),
    );
    let wide = code[first..end].iter().filter(|i| i.op == Opcode::LDL).count();
    assert!(wide >= 16, "{wide} loads");
    assert!(code[first..end].iter().filter(narrow).count() < 16);
}

/// A wait that leaves a group under way is none for its accumulator, which stays where it is whatever else needs registers; and what a loop finds under
/// way, of the code before it or of its last round, has the same registers for A.
#[test]
fn what_a_wait_leaves_stays_in_its_registers() {
    let busy: String = (0..90)
        .map(|i| format!("xor.b32 k{i}, s{}, {};\n", i, i * 77 + 1))
        .chain((0..90).map(|i| format!("add.u32 k{i}, k{i}, k{};\n", (i + 45) % 90)))
        .chain((0..90).map(|i| format!("st.global.b32 [po+{}], k{i};\n", 4 * i)))
        .collect();
    let body = ".reg .b32 k<90>, s<112>;\n".to_string()
        + &zero("d", 128)
        + FENCE
        + &statement("s", 224, "0")
        + COMMIT
        + &statement("d", 128, "1")
        + COMMIT
        + &wait(1)
        + &busy
        + &(90..112).map(|i| format!("st.global.b32 [po+{}], s{i};\n", 4 * i)).collect::<String>()
        + &wait(0)
        + "add.u64 po, po, 65536;\n"
        + &store("d", 128);
    let source = program(&body);
    assert_eq!(wrong(&source), None);
    assert_eq!(waits(&code(&source)), [1, 0]);

    let rows = |a: u32| {
        let of = |name: &str, range: std::ops::Range<u32>| -> String {
            range.map(|i| format!("{name}{i}")).collect::<Vec<_>>().join(", ")
        };
        format!(
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {{{}}}, {{{}}}, db, 1, 1, 1, 0;\n",
            of("d", 0..64),
            of("r", 4 * a..4 * a + 4)
        )
    };
    let load: String = (0..32).map(|i| format!("ld.shared.b32 r{i}, [v+{}];\n", 4 * i)).collect();
    let all = load.clone() + FENCE + &(0..8).map(rows).collect::<String>() + COMMIT;
    let body = ".reg .b32 r<32>, s<64>;\n".to_string()
        + &zero("d", 128)
        + "mov.u32 i, 0; mov.u32 v, m;\n"
        + &all
        + "LOOP:\n"
        + FENCE
        + &statement("s", 128, "0")
        + COMMIT
        + &wait(0)
        + &(0..32).map(|i| format!("xor.b32 s{i}, s{i}, s{};\n", i + 32)).collect::<String>()
        + &(0..32).map(|i| format!("st.global.b32 [po+{}], s{i};\n", 4 * i)).collect::<String>()
        + "add.u32 v, v, 128;\n"
        + &all
        + "add.u32 i, i, 1; setp.lt.u32 p, i, 3; @p bra LOOP;\n"
        + &wait(0)
        + "add.u64 po, po, 65536;\n"
        + &store("d", 128);
    let source = program(&body);
    assert_eq!(wrong(&source), None);
    let code = code(&source);
    assert_eq!(waits(&code), [0, 0]);
    let names: std::collections::BTreeSet<u8> = code
        .iter()
        .filter(|i| i.op == Opcode::HGMMA_R)
        .filter_map(|i| i.operands[1].as_reg().map(|r| r.reg.index))
        .collect();
    assert!(names.len() <= 9, "A is in {names:?}");
}

/// Two accumulators that fill all registers, of which one register each changes places in every round: each product is waited for, as by ptxas, and it
/// compiles.
#[test]
fn accumulators_that_do_not_fit_are_waited_for() {
    for n in [128, 256] {
        let body = zero("d", n)
            + &zero("c", n)
            + "mov.u32 i, 0;\nLOOP:\n"
            + FENCE
            + &statement("d", n, "1")
            + &statement("c", n, "1")
            + COMMIT
            + &wait(0)
            + "mov.b32 t, d3; mov.b32 d3, c3; mov.b32 c3, t;\n"
            + "add.u32 i, i, 1; setp.lt.u32 p, i, 3; @p bra LOOP;\n"
            + &store("d", n)
            + "add.u64 po, po, 65536;\n"
            + &store("c", n);
        let limit = if n == 128 { ".reqntid 128\n.maxnreg 128\n" } else { ".reqntid 128\n" };
        let source = program(&body).replace(".reqntid 128\n", limit);
        assert_eq!(wrong(&source), None, "n = {n}");
    }
}

/// What the program touches too early is waited for: an accumulator that is read, written or added elsewhere before its wait, or
/// rows of A that are overwritten.
#[test]
fn what_is_touched_is_waited_for() {
    let rows = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {d0, d1, d2, d3}, {a0, a1, a2, a3}, db, 1, 1, 1, 0;\n";
    let load = "mul.lo.u32 v, t, 16; cvt.u64.u32 w, v; mov.u64 x, m; add.u64 w, w, x; ld.shared.v4.b32 {a0, a1, a2, a3}, [w];\n";
    let bodies = [
        // Read with the group under way.
        zero("d", 8) + FENCE + &statement("d", 8, "1") + COMMIT + &wait(1) + &store("d", 8) + &wait(0),
        // Moved in the middle of a stage.
        zero("d", 8)
            + &zero("c", 8)
            + FENCE
            + &statement("d", 8, "1")
            + "mov.b32 c0, d0; mov.b32 c1, d0; add.f32 c2, d1, d2;\n"
            + &statement("c", 8, "1")
            + COMMIT
            + &wait(0)
            + &store("c", 8),
        // No fence at all; a product behind a branch.
        zero("d", 8)
            + "setp.ge.u32 p, t, 0;\n@!p bra NONE;\n"
            + &statement("d", 8, "1")
            + "NONE:\n"
            + COMMIT
            + &wait(0)
            + &store("d", 8),
        // No wait.
        zero("d", 8) + FENCE + &statement("d", 8, "1") + COMMIT + &store("d", 8),
        // A's registers get other contents before the group is done.
        zero("d", 8)
            + load
            + FENCE
            + rows
            + COMMIT
            + "add.u32 a0, a0, 0x100; mov.b32 a1, a0; mov.b32 a2, 0x3c003c00; mov.b32 a3, a2;\n"
            + FENCE
            + rows
            + COMMIT
            + &wait(0)
            + &store("d", 8),
        // Around a loop, with the wait for the group of the round before.
        zero("d", 8)
            + load
            + "mov.u32 i, 0;\nLOOP:\n"
            + FENCE
            + rows
            + COMMIT
            + "add.u32 v, i, 0x3c003c00; mov.b32 a0, v; mov.b32 a1, v; mov.b32 a2, v; mov.b32 a3, v;\n"
            + &wait(1)
            + "add.u32 i, i, 1; setp.lt.u32 p, i, 5; @p bra LOOP;\n"
            + &wait(0)
            + &store("d", 8),
    ];
    for body in bodies {
        // Done late, such a program has no result.
        assert_eq!(wrong_as(&program(&body), false), None);
    }
}

/// Limits that leave fewer registers than a product names are refused at once, as by ptxas 13.0.88 (C7602), with the least that do.
#[test]
fn limits_below_a_product() {
    let refused = |n: u32, limit: u32| {
        let settings = Settings::new(Target::parse("sm_90a").unwrap());
        let body = format!("{FENCE}{}{COMMIT}{}{}", statement("d", n, "0"), wait(0), store("d", n));
        let source = program(&body).replace(".reqntid 128", &format!(".maxnreg {limit}"));
        let failed = oxptxas::compile(&source, "k.ptx", &settings).err()?;
        Some(failed.diagnostics.iter().map(|d| d.message.clone()).collect::<String>())
    };
    for (n, needed) in [(8, 30), (16, 34), (32, 42), (64, 58), (128, 90), (256, 154)] {
        let below = needed - 1;
        let message = format!(
            "Insufficient registers ({below}) to compile instruction. Try to compile with register target of {needed} or higher."
        );
        assert_eq!(refused(n, below), Some(message), "{n}");
    }
    assert_eq!(refused(8, 40), None);
}

/// What is said of our own code, by the numbers of ptxas's messages: where an arrival was put in, why all products are waited
/// for one by one; nothing where code goes on as the program says.
#[test]
fn what_is_put_in_is_said() {
    let said = |body: &str, level: u8, relocatable: bool| -> Vec<String> {
        let target = Target::parse("sm_90a").unwrap();
        let settings = Settings { opt_level: level, relocatable, ..Settings::new(target) };
        let source = program(body);
        let output =
            oxptxas::compile(&source, "k.ptx", &settings).unwrap_or_else(|f| panic!("{}", f.render("k")));
        let line =
            |number: &str| source.lines().nth(number.parse::<usize>().unwrap() - 1).unwrap().to_string();
        let word = |message: &str| {
            let number = message[1..6].to_string();
            let at = message.split("around line ").nth(1).and_then(|rest| rest.split(' ').next());
            at.map_or(number.clone(), |n| number + " " + line(n).split('.').nth(1).unwrap_or_default())
        };
        assert!(
            output.warnings.iter().all(|w| w.severity == oxptxas::Severity::Info),
            "{:?}",
            output.warnings
        );
        output.warnings.iter().map(|w| word(&w.message)).collect()
    };
    let (d, c) = (zero("d", 8), zero("c", 8));
    let product = statement("d", 8, "1");
    let end = || COMMIT.to_string() + &wait(0) + &store("d", 8);
    let rows = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {d0, d1, d2, d3}, {a0, a1, a2, a3}, db, 1, 1, 1, 0;\n";
    let cases: [(String, &[&str]); 8] = [
        (d.clone() + FENCE + &product + &end(), &[]),
        (FENCE.to_string() + &d + &product + &end(), &[]),
        (d.clone() + &c + FENCE + &product + COMMIT + &statement("c", 8, "1") + &end() + &store("c", 8), &[]),
        (d.clone() + &product + &end(), &["C7519 mma_async"]),
        (COMMIT.to_string() + &wait(0), &["C7519 commit_group"]),
        (d.clone() + FENCE + &product + COMMIT + &wait(1) + &store("d", 8) + &wait(0), &["C7514"]),
        (
            d.clone() + FENCE + &product + COMMIT + "ld.global.b32 d0, [po];\n" + &wait(0) + &store("d", 8),
            &["C7515"],
        ),
        (
            d.clone()
                + "ld.global.v4.b32 {a0, a1, a2, a3}, [po];\nmov.u32 i, 0;\nLOOP:\n"
                + FENCE
                + rows
                + COMMIT
                + "ld.global.v4.b32 {a0, a1, a2, a3}, [po+16];\n"
                + &wait(1)
                + "add.u32 i, i, 1; setp.lt.u32 p, i, 5; @p bra LOOP;\n"
                + &wait(0)
                + &store("d", 8),
            &["C7513"],
        ),
    ];
    for (body, want) in &cases {
        assert_eq!(said(body, 3, false), *want, "{body}");
        assert_eq!(said(body, 3, true), *want, "{body}");
    }
    assert_eq!(said(&cases[0].0, 0, false), ["C7511"], "-O0 does not plan for what is under way");
}

/// Registers that the tensor core still writes or reads belong to it up to the wait, also where nobody is interested in what is in them:
/// accumulators that are not read, metadata of sparse products, and the rows of A of a product in whose place another value would do.
#[test]
fn registers_of_no_further_use_are_kept() {
    let busy = |n: u32| {
        let word = |i: u32| {
            format!(
                "add.u32 k{i}, i, {i}; xor.b32 k{i}, k{i}, {}; st.global.b32 [po+{}], k{i};\n",
                i * 77,
                512 + 4 * i
            )
        };
        format!(".reg .b32 k<{n}>;\n") + &(0..n).map(word).collect::<String>()
    };
    let sparse = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {d0, d1, d2, d3}, da, db, a0, 0, 1, 1, 1, 0, 0;\n";
    let d = zero("d", 8);
    let bodies = [
        d.clone() + FENCE + &statement("d", 8, "1") + COMMIT + "mov.u32 i, %tid.x;\n" + &busy(220) + &wait(0),
        d.clone()
            + "ld.global.b32 a0, [po]; mov.u32 i, %tid.x;\n"
            + FENCE
            + sparse
            + COMMIT
            + &busy(220)
            + &wait(0)
            + &store("d", 8),
    ];
    for body in &bodies {
        let source = program(body);
        let settings = oxptxas::Settings::new(sass::Target::parse("sm_90a").unwrap());
        let output =
            oxptxas::compile(&source, "kept.ptx", &settings).map_err(|e| e.render("oxptxas")).unwrap();
        let said: Vec<&str> = output.warnings.iter().map(|w| w.message.as_str()).collect();
        assert_eq!(said, [""; 0], "{body}");
    }
}

/// Accumulators of which registers are listed in two orders, in halves, and under a guard.
#[test]
fn registers_in_other_orders() {
    let reversed =
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {d3, d2, d1, d0}, da, db, 1, 1, 1, 0, 0;\n";
    let bodies = [
        zero("d", 8)
            + FENCE
            + &statement("d", 8, "1")
            + COMMIT
            + &wait(0)
            + FENCE
            + reversed
            + COMMIT
            + &wait(0)
            + &store("d", 8),
        zero("d", 16)
            + FENCE
            + &statement("d", 16, "1")
            + COMMIT
            + &wait(0)
            + FENCE
            + &statement("d", 8, "1")
            + COMMIT
            + &wait(0)
            + &store("d", 16),
        zero("d", 8)
            + "setp.lt.u32 p, t, 77;\n@p mov.b32 d1, 0x40000000;\n"
            + FENCE
            + &statement("d", 8, "1")
            + COMMIT
            + &wait(0)
            + "@p add.f32 d2, d2, d1;\n"
            + &store("d", 8),
        // Of another accumulator for every round.
        zero("d", 8)
            + &zero("c", 8)
            + "mov.u32 i, 0;\nLOOP:\n"
            + FENCE
            + &statement("d", 8, "1")
            + COMMIT
            + &statement("c", 8, "1")
            + COMMIT
            + &wait(0)
            + "mov.b32 e, d0; mov.b32 d0, c0; mov.b32 c0, e; mov.b32 e, d1; mov.b32 d1, c1; mov.b32 c1, e;\n"
            + "add.u32 i, i, 1; setp.lt.u32 p, i, 5; @p bra LOOP;\n"
            + &store("d", 8),
    ];
    for body in bodies {
        assert_eq!(wrong(&program(&body)), None);
    }
}
