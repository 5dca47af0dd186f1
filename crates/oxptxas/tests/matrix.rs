//! Products of matrices: fragments of `wmma` through memory, in every shape, type, layout and space; sparse products
//! whose metadata is in no order. Compiled for several targets, decoded, executed, and compared with the interpreter.

use oxptxas::{Settings, compile};
use oxsass::verify::{self, Verdict};
use rayon::prelude::*;
use sass::Target;
use std::fmt::Write as _;

/// A launch of one warp.
const WARP: u64 = 8;

/// Fills `bytes` bytes at `to` (64-bit register of global, or name of shared memory) with elements of a type: small
/// integers, so that every sum is exact.
fn fill(out: &mut String, space: &str, to: &str, bytes: u32, ty: &str, n: u32) {
    let size = match ty {
        "f64" => 8,
        "f32" | "tf32" | "s32" | "u4" | "s4" | "b1" => 4,
        "f16" | "bf16" => 2,
        _ => 1,
    };
    let count = bytes / size;
    let _ = writeln!(out, "mov.u32 i, t;\nFILL{n}:\nmad.lo.u32 v, i, {}, {};", 37 + 2 * n, 11 + n);
    out.push_str(match ty {
        // Bits of any kind.
        "u4" | "s4" | "b1" => "mul.lo.u32 v, v, 0x9e3779b1; shr.u32 u, v, 15; xor.b32 v, v, u;\n",
        _ => "rem.u32 v, v, 13; sub.s32 v, v, 6;\n",
    });
    let _ = writeln!(out, "mul.wide.u32 w, i, {size}; add.u64 w, w, {to};");
    let _ = match ty {
        "f64" => writeln!(out, "cvt.rn.f64.s32 z, v; st.{space}.f64 [w], z;"),
        "f32" | "tf32" => writeln!(out, "cvt.rn.f32.s32 y, v; st.{space}.f32 [w], y;"),
        "f16" => writeln!(out, "cvt.rn.f16.s32 h, v; st.{space}.b16 [w], h;"),
        "bf16" => writeln!(out, "cvt.rn.f32.s32 y, v; cvt.rn.bf16.f32 h, y; st.{space}.b16 [w], h;"),
        "u8" | "s8" => writeln!(out, "st.{space}.u8 [w], v;"),
        _ => writeln!(out, "st.{space}.u32 [w], v;"),
    };
    let _ = writeln!(out, "add.u32 i, i, 32; setp.lt.u32 p, i, {count}; @p bra FILL{n};");
}

/// Registers of a fragment of `wmma`.
fn registers(which: char, (m, n): (u32, u32), ty: &str) -> usize {
    match (ty, which) {
        ("f16", 'a' | 'b') => 8,
        ("f16", _) => 4,
        ("f32" | "s32", _) if (m, n) == (8, 8) => 2,
        ("f32" | "s32", _) => 8,
        ("f64", 'a' | 'b') | ("u4" | "s4" | "b1", _) => 1,
        ("f64", _) => 2,
        ("tf32", _) => 4,
        ("bf16", c) => match if c == 'a' { m } else { n } {
            8 => 2,
            16 => 4,
            _ => 8,
        },
        (_, c) => match if c == 'a' { m } else { n } {
            8 => 1,
            16 => 2,
            _ => 4,
        },
    }
}

/// A product of `wmma`.
struct Case {
    size: (u32, u32, u32),
    /// Types of D, A, B, C.
    types: [&'static str; 4],
    /// Layouts of A, B, C and D.
    layouts: [&'static str; 3],
    /// Words of `wmma.mma` before `.sync`, behind the types.
    words: [&'static str; 2],
    space: &'static str,
    /// Lines are further apart than they are long.
    strided: bool,
}

impl Case {
    fn source(&self, target: &str) -> String {
        let (m, n, k) = self.size;
        let [d, a, b, c] = self.types;
        let bits = |ty: &str| match ty {
            "f64" => 64,
            "f32" | "tf32" | "s32" => 32,
            "f16" | "bf16" => 16,
            "u8" | "s8" => 8,
            "b1" => 1,
            _ => 4,
        };
        let mut out = format!(".version 9.0\n.target {target}\n.address_size 64\n");
        let mut buffers = Vec::new();
        let parts = [
            ('a', a, (m, k), self.layouts[0]),
            ('b', b, (k, n), self.layouts[1]),
            ('c', c, (m, n), self.layouts[2]),
        ];
        for (name, ty, (rows, columns), layout) in parts {
            let (lines, width) = if layout == "row" { (rows, columns) } else { (columns, rows) };
            let stride = if self.strided { width + 128 / bits(ty).min(32) } else { width };
            buffers.push((name, ty, lines * stride * bits(ty) / 8, stride, layout));
        }
        let (place, space) = if self.space == "shared" { ("shared", "shared") } else { ("global", "global") };
        for (name, _, bytes, ..) in &buffers {
            let _ = writeln!(out, ".{place} .align 128 .b8 m{name}[{bytes}];");
        }
        out += ".visible .entry k(.param .u64 out, .param .u32 step)\n{\n.reg .pred p; .reg .b16 h; .reg .b32 t, i, u, v, by;\n\
                .reg .f32 y; .reg .f64 z; .reg .b64 w, pa, pb, pc, po; mov.u32 t, %tid.x; ld.param.u64 po, [out];\n";
        for (i, (name, ty, bytes, ..)) in buffers.iter().enumerate() {
            let _ = writeln!(out, "mov.u64 p{name}, m{name};");
            fill(&mut out, space, &format!("p{name}"), *bytes, ty, i as u32);
        }
        out += "bar.sync 0;\n";
        let shape = format!("m{m}n{n}k{k}");
        let suffix = if self.space == "generic" { String::new() } else { format!(".{}", self.space) };
        let list = |c: char, ty: &str| {
            let names: Vec<String> = (0..registers(c, (m, n), ty)).map(|i| format!("f{c}{i}")).collect();
            format!("{{{}}}", names.join(", "))
        };
        for (name, ty, _, stride, layout) in &buffers {
            let class = match *ty {
                "f32" if *name == 'c' => "f32",
                "f64" => "f64",
                "tf32" | "f16" | "bf16" => "b32",
                _ => "b32",
            };
            let count = registers(*name, (m, n), ty);
            let _ = writeln!(out, ".reg .{class} f{name}<{count}>;");
            if self.space == "generic" {
                let _ = writeln!(out, "cvta.global.u64 p{name}, p{name};");
            }
            let stride = match self.strided {
                // Known to nobody.
                true => {
                    let _ = writeln!(
                        out,
                        "ld.param.u32 by, [step]; and.b32 by, by, 0; add.u32 by, by, {stride};"
                    );
                    ", by"
                }
                false => "",
            };
            let regs = list(*name, ty);
            let _ = writeln!(
                out,
                "wmma.load.{name}.sync.aligned.{layout}.{shape}{suffix}.{ty} {regs}, [p{name}]{stride};"
            );
        }
        let class = if matches!(d, "f32" | "f64") { d } else { "b32" };
        let _ = writeln!(out, ".reg .{class} fd<{}>;", registers('d', (m, n), d));
        let types = if a == "f16" { format!("{d}.{c}") } else { format!("{d}.{a}.{b}.{c}") };
        let [first, last] = self.words;
        let layouts = format!("{}.{}", self.layouts[0], self.layouts[1]);
        let _ = writeln!(
            out,
            "wmma.mma{first}.sync.aligned.{layouts}.{shape}.{types}{last} {}, {}, {}, {};",
            list('d', d),
            list('a', a),
            list('b', b),
            list('c', c)
        );
        let stride = if self.strided { ", 48" } else { "" };
        let global = if self.space == "generic" { "" } else { ".global" };
        let (layout, regs) = (self.layouts[2], list('d', d));
        let _ = writeln!(
            out,
            "wmma.store.d.sync.aligned.{layout}.{shape}{global}.{d} [po], {regs}{stride};\nret;\n}}"
        );
        out
    }
}

/// Compiles and compares at -O3 and -O0; what is wrong.
fn wrong(source: &str, name: &str) -> Option<String> {
    let target = Target::parse(name).unwrap();
    for opt_level in [3, 0] {
        let settings = Settings { opt_level, ..Settings::new(target) };
        let cubin = match compile(source, "k.ptx", &settings) {
            Ok(output) => output.cubin,
            Err(e) => return Some(format!("{name} -O{opt_level}: {:?}\n{source}", e.diagnostics.first())),
        };
        let hazards = sim::hazard::check_cubin(&cubin, sim::hazard::Minima::built_in()).unwrap();
        if let Some(h) = hazards.iter().find_map(|k| k.1.first()) {
            return Some(format!("{name} -O{opt_level}: {h}\n{source}"));
        }
        let module = verify::module(source, target).unwrap();
        match verify::kernel(&module, source, &cubin, "k", WARP..WARP + 1) {
            Verdict::Same | Verdict::Close => {}
            v => return Some(format!("{name} -O{opt_level}: {v}\n{source}")),
        }
    }
    None
}

fn cases() -> Vec<(Case, &'static [&'static str])> {
    const ALL: &[&str] = &["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"];
    const LATER: &[&str] = &["sm_80", "sm_90", "sm_103", "sm_120"];
    let shapes = [(16, 16, 16), (32, 8, 16), (8, 32, 16)];
    type Product = ((u32, u32, u32), [&'static str; 4], [&'static str; 2], &'static [&'static str]);
    let mut products: Vec<Product> = Vec::new();
    for s in shapes {
        for (d, c) in [("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32")] {
            products.push((s, [d, "f16", "f16", c], ["", ""], ALL));
        }
        products.push((s, ["s32", "u8", "u8", "s32"], ["", ""], ALL));
        products.push((s, ["s32", "s8", "s8", "s32"], ["", ".satfinite"], ALL));
        products.push((s, ["f32", "bf16", "bf16", "f32"], ["", ""], LATER));
    }
    products.push(((16, 16, 8), ["f32", "tf32", "tf32", "f32"], ["", ""], LATER));
    products.push(((8, 8, 4), ["f64", "f64", "f64", "f64"], ["", ""], LATER));
    products.push(((8, 8, 32), ["s32", "u4", "u4", "s32"], ["", ""], ALL));
    products.push(((8, 8, 32), ["s32", "s4", "s4", "s32"], ["", ".satfinite"], ALL));
    products.push(((8, 8, 128), ["s32", "b1", "b1", "s32"], [".xor.popc", ""], ALL));
    products.push(((8, 8, 128), ["s32", "b1", "b1", "s32"], [".and.popc", ""], LATER));
    let mut cases = Vec::new();
    for (size, types, words, targets) in products {
        let narrow = matches!(types[1], "u4" | "s4" | "b1");
        for (i, layouts) in
            [["row", "col", "row"], ["col", "row", "col"], ["row", "row", "row"], ["col", "col", "col"]]
                .into_iter()
                .enumerate()
        {
            if narrow && i > 1 {
                continue;
            }
            let layouts = if narrow { ["row", "col", layouts[2]] } else { layouts };
            for (space, strided) in
                [("global", false), ("global", true), ("shared", false), ("shared", true), ("generic", true)]
            {
                cases.push((Case { size, types, layouts, words, space, strided }, targets));
            }
        }
    }
    cases
}

#[test]
fn fragments_in_memory() {
    let cases = cases();
    let wrong: Vec<String> = cases
        .par_iter()
        .flat_map_iter(|(case, targets)| targets.iter().filter_map(|t| wrong(&case.source(t), t)))
        .collect();
    let firsts: Vec<&str> = wrong.iter().filter_map(|w| w.lines().next()).collect();
    assert!(wrong.is_empty(), "{} of {}: {}\n{}", wrong.len(), cases.len(), wrong[0], firsts.join("\n"));
}

/// A sparse product with small integers and metadata whose columns are in any order.
fn sparse(target: &str, shape: &str, types: &str, [d, a, b, c]: [usize; 4], ordered: bool) -> String {
    let mut out = format!(
        ".version 9.0\n.target {target}\n.address_size 64\n.visible .entry k(.param .u64 out)\n{{\n\
         .reg .b32 t, e, x; .reg .b64 w, po;\nmov.u32 t, %tid.x; ld.param.u64 po, [out]; mul.wide.u32 w, t, 64; add.u64 po, po, w;\n"
    );
    let class = |ty: &str| if ty == "f32" { "f32" } else { "b32" };
    let all: Vec<&str> = types.split('.').collect();
    let (dt, at, ct) = (all[0], all[1], all[3]);
    let _ = writeln!(
        out,
        ".reg .b32 a<{a}>; .reg .b32 b<{b}>; .reg .{} c<{c}>; .reg .{} d<{d}>;",
        class(ct),
        class(dt)
    );
    // Bits that are numbers of any type.
    let mask = match at {
        "f16" => (0x0300_0300u32, 0x3c00_3c00u32),
        "bf16" => (0x8180_8180, 0x3f00_3f00),
        "e4m3" | "e5m2" => (0x8484_8484, 0x3838_3838),
        _ => (u32::MAX, 0),
    };
    for (name, count) in [('a', a), ('b', b)] {
        for i in 0..count {
            let n = 977 * (i + 1) + usize::from(name == 'b') * 31;
            let _ = writeln!(
                out,
                "mad.lo.u32 x, t, 0x9e3779b1, {n}; mul.lo.u32 x, x, 0x85ebca6b; shr.u32 e, x, 13; xor.b32 x, x, e; \
                 and.b32 x, x, {:#x}; or.b32 {name}{i}, x, {:#x};",
                mask.0, mask.1
            );
        }
    }
    for i in 0..c {
        let _ = match ct {
            "f32" => writeln!(out, "cvt.rn.f32.u32 c{i}, t;"),
            "s32" => writeln!(out, "mad.lo.u32 c{i}, t, 77, {i};"),
            _ => writeln!(out, "mov.b32 c{i}, 0x3c003800;"),
        };
    }
    let nibbles = if ordered { 0xe4d9_8c4eu32 } else { 0xb4d6_2c1e };
    let _ = writeln!(out, "mul.lo.u32 x, t, 4; mov.b32 e, {nibbles:#x}; shf.l.wrap.b32 e, e, e, x;");
    let list = |name: char, n: usize| {
        let names: Vec<String> = (0..n).map(|i| format!("{name}{i}")).collect();
        format!("{{{}}}", names.join(", "))
    };
    let sp = if ordered { "sp::ordered_metadata" } else { "sp" };
    let _ = writeln!(
        out,
        "mma.{sp}.sync.aligned.{shape}.row.col.{types} {}, {}, {}, {}, e, 0;",
        list('d', d),
        list('a', a),
        list('b', b),
        list('c', c)
    );
    for i in 0..d {
        let _ = writeln!(out, "st.global.{} [po+{}], d{i};", class(dt), 4 * i);
    }
    out + "ret;\n}\n"
}

#[test]
fn metadata_in_any_order() {
    let forms: &[(&str, &str, [usize; 4], u16)] = &[
        ("m16n8k16", "f32.f16.f16.f32", [4, 2, 2, 4], 80),
        ("m16n8k32", "f32.f16.f16.f32", [4, 4, 4, 4], 80),
        ("m16n8k32", "f16.f16.f16.f16", [2, 4, 4, 2], 80),
        ("m16n8k32", "f32.bf16.bf16.f32", [4, 4, 4, 4], 80),
        ("m16n8k32", "s32.s8.u8.s32", [4, 2, 2, 4], 80),
        ("m16n8k64", "s32.s8.s8.s32", [4, 4, 4, 4], 80),
        ("m16n8k64", "s32.u4.s4.s32", [4, 2, 2, 4], 80),
        ("m16n8k128", "s32.s4.u4.s32", [4, 4, 4, 4], 80),
        ("m16n8k64", "f32.e4m3.e5m2.f32", [4, 4, 4, 4], 89),
    ];
    let mut all = Vec::new();
    for (shape, types, counts, least) in forms {
        for (sm, target) in [(80, "sm_80"), (89, "sm_89"), (90, "sm_90"), (100, "sm_100"), (120, "sm_120")] {
            if sm >= *least {
                all.extend([true, false].map(|o| (sparse(target, shape, types, *counts, o), target)));
            }
        }
    }
    let wrong: Vec<String> = all.par_iter().filter_map(|(source, target)| wrong(source, target)).collect();
    assert!(wrong.is_empty(), "{} of {}: {}", wrong.len(), all.len(), wrong[0]);
}

/// A loop as Triton makes them: what it multiplies was read an iteration before and taken apart into halves. Accumulators
/// stay where they are, and the halves never come apart.
fn pipelined(target: &str) -> String {
    const ROWS: usize = 4;
    const COLUMNS: usize = 8;
    let mut out = format!(
        ".version 9.0\n.target {target}\n.address_size 64\n.visible .entry k(.param .u64 out)\n{{\n\
         .shared .align 16 .b8 m[4096];\n.reg .b16 ha<{}>, hb<{}>;\n.reg .b32 a<{}>, b<{}>, t, i, at, v;\n\
         .reg .f32 d<{}>;\n.reg .pred p;\n.reg .b64 w, po;\n",
        8 * ROWS,
        4 * COLUMNS,
        4 * ROWS,
        2 * COLUMNS,
        4 * ROWS * COLUMNS
    );
    out += "mov.u32 t, %tid.x; ld.param.u64 po, [out]; mul.wide.u32 w, t, 4; add.u64 po, po, w;\n\
            mov.u32 at, m; mad.lo.u32 at, t, 4, at; mov.u32 i, 0;\nFILL: and.b32 v, i, 0x0300; or.b32 v, v, 0x3c003c00;\n\
            st.shared.u32 [at], v; add.u32 at, at, 128; add.u32 i, i, 88; setp.lt.u32 p, i, 2816; @p bra FILL;\n\
            bar.sync 0; mov.u32 at, m; mad.lo.u32 at, t, 16, at; mov.u32 i, 0;\n";
    let load = |out: &mut String| {
        for r in 0..ROWS {
            let n = 4 * r;
            let _ = writeln!(
                out,
                "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{a{n}, a{}, a{}, a{}}}, [at+{}];",
                n + 1,
                n + 2,
                n + 3,
                512 * r
            );
        }
        for c in 0..COLUMNS / 2 {
            let n = 4 * c;
            let _ = writeln!(
                out,
                "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{b{n}, b{}, b{}, b{}}}, [at+{}];",
                n + 1,
                n + 2,
                n + 3,
                512 * c + 2048
            );
        }
        for (name, count) in [('a', 4 * ROWS), ('b', 2 * COLUMNS)] {
            for n in 0..count {
                let _ = writeln!(out, "mov.b32 {{h{name}{}, h{name}{}}}, {name}{n};", 2 * n, 2 * n + 1);
            }
        }
    };
    load(&mut out);
    for n in 0..4 * ROWS * COLUMNS {
        let _ = writeln!(out, "mov.f32 d{n}, 0f00000000;");
    }
    out += "LOOP:\n";
    for (name, count) in [('a', 4 * ROWS), ('b', 2 * COLUMNS)] {
        for n in 0..count {
            let _ = writeln!(out, "mov.b32 {name}{n}, {{h{name}{}, h{name}{}}};", 2 * n, 2 * n + 1);
        }
    }
    for r in 0..ROWS {
        for c in 0..COLUMNS {
            let n = 4 * (r * COLUMNS + c);
            let d = format!("{{d{n}, d{}, d{}, d{}}}", n + 1, n + 2, n + 3);
            let a = 4 * r;
            let _ = writeln!(
                out,
                "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d}, {{a{a}, a{}, a{}, a{}}}, {{b{}, b{}}}, {d};",
                a + 1,
                a + 2,
                a + 3,
                2 * c,
                2 * c + 1
            );
        }
    }
    load(&mut out);
    out += "add.u32 i, i, 1; setp.lt.u32 p, i, 3; @p bra LOOP;\n";
    for n in 8..4 * ROWS * COLUMNS {
        let _ = writeln!(out, "fma.rn.f32 d{0}, d{n}, 0f3F800000, d{0};", n % 8);
    }
    for n in 0..8 {
        let _ = writeln!(out, "st.global.f32 [po+{}], d{n};", 128 * n);
    }
    out + "ret;\n}\n"
}

#[test]
fn loops_move_nothing() {
    for name in ["sm_80", "sm_90", "sm_120"] {
        let source = pipelined(name);
        let what = wrong(&source, name);
        assert!(what.is_none(), "{}", what.unwrap_or_default().lines().next().unwrap_or_default());
        let target = Target::parse(name).unwrap();
        let cubin = compile(&source, "k.ptx", &Settings::new(target)).unwrap().cubin;
        let code = instructions(&cubin, target);
        let first = code.iter().position(|i| i.op.name() == "HMMA").unwrap();
        let back = code[first..].iter().position(|i| i.op.name() == "BRA").unwrap() + first;
        let products = code[first..back].iter().filter(|i| i.op.name() == "HMMA").count();
        assert_eq!(products, 32, "{name}");
        let moved = ["MOV", "PRMT", "SHF", "LDL", "STL"];
        // Nothing that is multiplied or added up; a counter in a uniform register is read through a general one.
        let counter = |i: &sass::Inst| {
            let from = i.operands.get(1);
            matches!(from, Some(sass::Operand::Reg(r)) if r.reg.file == sass::RegFile::UR)
        };
        for i in code[first..back].iter().filter(|i| !counter(i)) {
            assert!(!moved.contains(&i.op.name()), "{name}: {}", sass::print(i, target));
        }
    }
}

/// Products of a tile that is loaded whole in front of a fence and a barrier: 16 registers of one factor, 64 of the other, 64 of sums.
fn loaded_whole(target: &str) -> String {
    const TILES: usize = 16;
    let mut out = format!(
        ".version 8.7\n.target {target}\n.address_size 64\n.visible .entry k(.param .u64 k_p)\n.maxnreg 120\n{{\n\
         .reg .b64 p, q; .reg .b32 at, t, a<16>, b<{}>; .reg .f32 d<{}>; .shared .align 16 .b8 tile[16384];\n\
         ld.param.u64 p, [k_p]; mov.u32 t, %tid.x; mul.wide.u32 q, t, 4; add.s64 p, p, q; shl.b32 t, t, 4; mov.u32 at, tile; add.u32 at, at, t;\n",
        4 * TILES,
        4 * TILES
    );
    for n in 0..32 {
        // Halves that are small integers.
        let _ = writeln!(
            out,
            "st.shared.v4.b32 [at+{}], {{0x3c003c00, 0x40003c00, 0x3c00{:04x}, 0x44003c00}};",
            512 * n,
            0x3c00 + 0x400 * (n % 3)
        );
    }
    out += "bar.sync 0;\n";
    let quad =
        |name: char, n: usize| format!("{{{name}{n}, {name}{}, {name}{}, {name}{}}}", n + 1, n + 2, n + 3);
    for n in 0..4 {
        let _ =
            writeln!(out, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {}, [at+{}];", quad('a', 4 * n), 512 * n);
    }
    for n in 0..TILES {
        let _ = writeln!(
            out,
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {}, [at+{}];",
            quad('b', 4 * n),
            512 * (n + 4)
        );
    }
    out += "fence.proxy.async.shared::cta;\nbar.sync 0;\n";
    for n in 0..4 * TILES {
        let _ = writeln!(out, "mov.f32 d{n}, 0f00000000;");
    }
    for k in 0..2 {
        for n in 0..TILES {
            let (d, b) = (quad('d', 4 * n), 4 * n + 2 * k);
            let _ = writeln!(
                out,
                "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d}, {}, {{b{b}, b{}}}, {d};",
                quad('a', 4 * k),
                b + 1
            );
        }
    }
    for n in 0..4 * TILES {
        let _ = writeln!(out, "st.global.f32 [p+{}], d{n};", 128 * n);
    }
    out + "ret;\n}\n"
}

/// Products may stand in front of what PTX has in front of them, the loads of others and fences, as in ptxas's code: else 144 registers
/// would be needed. Between the two instructions of a fence there is nothing.
#[test]
fn a_tile_is_not_loaded_whole() {
    for name in ["sm_90", "sm_120"] {
        let source = loaded_whole(name);
        let what = wrong(&source, name);
        assert!(what.is_none(), "{}", what.unwrap_or_default().lines().next().unwrap_or_default());
        let target = Target::parse(name).unwrap();
        let code = instructions(&compile(&source, "k.ptx", &Settings::new(target)).unwrap().cubin, target);
        let at = |op: &str| code.iter().position(|i| i.op.name() == op).unwrap();
        assert!(!code.iter().any(|i| i.op.name() == "STL"), "{name} spills");
        assert!(at("HMMA") < code.iter().rposition(|i| i.op.name() == "LDSM").unwrap(), "{name}");
        assert_eq!(at("MEMBAR") + 1, at("FENCE"), "{name}");
    }
}

/// The instructions of a cubin's only kernel.
fn instructions(cubin: &[u8], target: Target) -> Vec<sass::Inst> {
    let image = cubin::read::read(cubin).unwrap();
    let words = image.kernels["k"].code.iter().enumerate();
    words.map(|(k, w)| sass::decode(*w, target, 16 * k as i64).unwrap()).collect()
}

/// Metadata of other lanes than the first: HMMA and IMMA say which, as in ptxas's code for every target.
#[test]
fn metadata_of_selected_lanes() {
    let forms: &[(&str, &str, [usize; 4], u32)] = &[
        ("m16n8k16", "f32.f16.f16.f32", [4, 2, 2, 4], 4),
        ("m16n8k32", "f32.f16.f16.f32", [4, 4, 4, 4], 2),
        ("m16n8k16", "f16.f16.f16.f16", [2, 2, 2, 2], 4),
        ("m16n8k16", "f32.bf16.bf16.f32", [4, 2, 2, 4], 4),
        ("m16n8k32", "f32.bf16.bf16.f32", [4, 4, 4, 4], 2),
        ("m16n8k32", "s32.s8.u8.s32", [4, 2, 2, 4], 2),
        ("m16n8k64", "s32.u4.s4.s32", [4, 2, 2, 4], 2),
    ];
    let mut all = Vec::new();
    for (shape, types, counts, lanes) in forms {
        for target in ["sm_80", "sm_90", "sm_100", "sm_120"] {
            for (selector, ordered) in (1..*lanes).flat_map(|s| [(s, true), (s, false)]) {
                let source = sparse(target, shape, types, *counts, ordered);
                let selected = source.replace(", e, 0;", &format!(", e, {selector};"));
                assert_ne!(source, selected);
                all.push((selected, target));
            }
        }
    }
    let wrong: Vec<String> = all.par_iter().filter_map(|(source, target)| wrong(source, target)).collect();
    assert!(wrong.is_empty(), "{} of {}: {}", wrong.len(), all.len(), wrong[0]);
}

/// A whole warp multiplies and transposes, although a few lanes alone have anything to do with the result: it is neither made behind where the others
/// end, nor in the branch of those that store it, whatever it is made of.
#[test]
fn lanes_that_end_multiply_first() {
    let products = [
        ("ld.global.v4.b32 {a0, a1, a2, a3}, [po]; ld.global.v2.b32 {b0, b1}, [po+16];", "mma"),
        ("mov.u32 a0, n; mov.u32 a1, n; mov.u32 a2, 0; mov.u32 a3, n; mov.u32 b0, n; mov.u32 b1, n;", "mma"),
        ("ld.global.u32 a0, [po];", "movmatrix"),
        ("mov.u32 a0, n;", "movmatrix"),
        ("mov.u32 a0, t;", "movmatrix"),
    ];
    let stores = [
        "@p bra END; STORE END: ret;",
        "@p ret; STORE ret;",
        "@!p bra THERE; ret; THERE: STORE ret;",
        "@p bra BEHIND; STORE BEHIND: bar.warp.sync -1; st.global.u32 [po+48], t; ret;",
        "@p bra OTHER; STORE bra BEHIND; OTHER: st.global.u32 [po+16], t; STORE BEHIND: bar.warp.sync -1; st.global.u32 [po+48], n; ret;",
    ];
    let mut all = Vec::new();
    for (fill, product) in products {
        let statement = match product {
            "mma" => {
                "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {c0, c1, c2, c3}, {a0, a1, a2, a3}, {b0, b1}, {z, z, z, z};"
            }
            _ => "movmatrix.sync.aligned.m8n8.trans.b16 c0, a0;",
        };
        let store = if product == "mma" {
            "st.global.v4.b32 [po+32], {c0, c1, c2, c3};"
        } else {
            "st.global.u32 [po+32], c0;"
        };
        for name in ["sm_80", "sm_90", "sm_120"] {
            for ends in stores {
                let source = format!(
                    ".version 8.8\n.target {name}\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u32 given)\n{{\n\
                     .reg .b32 a<4>, b<2>, c<4>, z, n, t, u;\n.reg .b64 po;\n.reg .pred p;\nld.param.u64 po, [out];\n\
                     ld.param.u32 n, [given];\nmov.u32 t, %tid.x;\nmad.wide.u32 po, t, 64, po;\nmov.u32 z, 0;\n{fill}\n{statement}\n\
                     mul.lo.u32 u, t, 5;\nsetp.gt.u32 p, u, 77;\n{}\n}}\n",
                    ends.replace("STORE", store)
                );
                all.push((source, name));
            }
        }
    }
    let wrong: Vec<String> = all.par_iter().filter_map(|(source, name)| wrong(source, name)).collect();
    assert!(wrong.is_empty(), "{} of {}: {}", wrong.len(), all.len(), wrong[0]);
}
