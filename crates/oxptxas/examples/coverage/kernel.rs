//! A kernel around one statement: every register and variable that it names holds something that depends on the thread, and
//! is stored afterwards.

use std::collections::BTreeSet;
use std::fmt::Write;

/// Bytes of each variable.
const VARIABLE: usize = 64;
/// Bytes of global memory that each thread has for itself, for what it stores and for addresses in registers.
const ROW: usize = 1024;
/// Where in its row a thread's own memory is; results are below.
const OWN: usize = 512;

/// The kinds of registers, and the bits that each stores.
const FAMILIES: &[(&str, u32)] = &[
    ("p", 1),
    ("b8r", 8),
    ("u8r", 8),
    ("s8r", 8),
    ("b16r", 16),
    ("u16r", 16),
    ("s16r", 16),
    ("f16r", 16),
    ("b32r", 32),
    ("u32r", 32),
    ("s32r", 32),
    ("f32r", 32),
    ("f16x2r", 32),
    ("b64r", 64),
    ("u64r", 64),
    ("s64r", 64),
    ("f64r", 64),
    ("b128r", 128),
];

/// A register that a statement names: its kind and number.
type Register = (usize, u32);

/// The registers in a text.
fn registers(text: &str) -> BTreeSet<Register> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let register = |word: &str| {
        FAMILIES.iter().enumerate().find_map(|(i, (name, _))| {
            let number = word.strip_prefix(name)?;
            (number.len() < 4).then(|| number.parse().ok().map(|n| (i, n))).flatten()
        })
    };
    words.filter_map(register).collect()
}

/// Registers that hold addresses: those in brackets.
fn addresses(text: &str) -> BTreeSet<Register> {
    let inside = text.split('[').skip(1).filter_map(|s| s.split([']', ',']).next());
    inside.flat_map(registers).collect()
}

fn name((family, number): Register) -> String {
    format!("{}{number}", FAMILIES[family].0)
}

/// What a register holds at first, from the thread's number in `t` and `w`, 64 bits.
fn fill(out: &mut String, r: Register) {
    let (to, n) = (name(r), r.1);
    let _ = match FAMILIES[r.0] {
        ("p", _) => writeln!(out, "shr.u32 x, t, {}; and.b32 x, x, 1; setp.ne.u32 {to}, x, 0;", n % 3),
        ("f16r", _) => {
            writeln!(out, "cvt.rn.f32.u32 y, t; add.f32 y, y, 0f40{:06x}; cvt.rn.f16.f32 {to}, y;", n << 14)
        }
        ("f32r", _) => writeln!(
            out,
            "cvt.rn.f32.u32 y, t; mul.rn.f32 y, y, 0f3f400000; sub.f32 {to}, y, 0f40{:06x};",
            n << 14
        ),
        ("f64r", _) => writeln!(
            out,
            "cvt.rn.f64.u32 z, t; mul.rn.f64 z, z, 0d3FE8000000000000; sub.f64 {to}, z, 0d40{:014x};",
            u64::from(n) << 45
        ),
        ("f16x2r", _) => writeln!(out, "mad.lo.u32 {to}, t, 0x110007, {};", 0x3c00_4000 + n * 0x2_0003),
        (_, 8) => writeln!(out, "mad.lo.u32 x, t, 37, {}; cvt.u8.u32 {to}, x;", n * 11 + 5),
        (_, 16) => writeln!(out, "mad.lo.u32 x, t, 2111, {}; cvt.u16.u32 {to}, x;", n * 1201 + 77),
        (_, 32) => writeln!(out, "mad.lo.u32 {to}, t, 0x9e3779b9, {};", 0x1234_5678u32.wrapping_mul(n + 1)),
        (_, 64) => writeln!(
            out,
            "mul.lo.u64 w, own, {}; xor.b64 {to}, w, {};",
            2 * n + 1,
            u64::from(n) * 0x1357_9bdf_0246
        ),
        _ => writeln!(out, "mul.lo.u64 w, own, {}; mov.b128 {to}, {{w, own}};", 2 * n + 3),
    };
}

/// Stores a register at a place of the thread's row.
fn store(out: &mut String, r: Register, at: usize) {
    let from = name(r);
    let _ = match FAMILIES[r.0] {
        ("p", _) => writeln!(out, "selp.u32 x, 1, 0, {from}; st.global.u8 [own+{at}], x;"),
        (_, 8) => writeln!(out, "st.global.b8 [own+{at}], {from};"),
        ("f16r", _) => writeln!(out, "mov.b16 h, {from}; st.global.b16 [own+{at}], h;"),
        (_, 128) => writeln!(out, "st.global.b128 [own+{at}], {from};"),
        (_, bits) => writeln!(out, "st.global.b{bits} [own+{at}], {from};"),
    };
}

/// Statements that can't stand in a kernel whose result says anything.
pub fn runs(statement: &str) -> bool {
    let op = statement.split(['.', ' ', ';']).next().unwrap_or("");
    !matches!(
        op,
        "call"
            | "bra"
            | "brx"
            | "ret"
            | "exit"
            | "trap"
            | "brkpt"
            | "setmaxnreg"
            | "stackrestore"
            | "stacksave"
            | "alloca"
    )
}

/// Whether a statement has a mask of lanes.
pub fn is_for_warps(statement: &str) -> bool {
    let op = statement.split(['.', ' ']).next().unwrap_or("");
    matches!(op, "shfl" | "vote" | "match" | "redux" | "elect") && statement.contains(".sync")
        || statement.starts_with("bar.warp.sync")
        || statement.starts_with("barrier.warp.sync")
}

/// With all lanes of the warp as members, where a statement has a mask of them.
fn with_all_lanes(statement: &str) -> String {
    match statement.rsplit_once([' ']) {
        Some((rest, _)) if is_for_warps(statement) => format!("{rest} -1;"),
        _ => statement.to_string(),
    }
}

/// The module of a statement.
pub fn module(statement: &str, target: &str) -> String {
    let statement = &with_all_lanes(statement);
    let mut out = format!(".version 9.0\n.target {target}\n.address_size 64\n");
    let bytes =
        |k: usize| (0..VARIABLE).map(|i| ((i * 37 + k) % 251).to_string()).collect::<Vec<_>>().join(", ");
    let _ = writeln!(out, ".global .align 32 .b8 gv[{VARIABLE}] = {{{}}};", bytes(11));
    let _ = writeln!(out, ".const .align 16 .b8 cv[{VARIABLE}] = {{{}}};", bytes(90));
    out += ".visible .entry k(.param .u64 k0, .param .u32 k1, .param .u64 out)\n{\n";
    out +=
        ".reg .b16 h;\n.reg .b32 t, x;\n.reg .f32 y;\n.reg .b64 own, w;\n.reg .f64 z;\n.reg .pred first;\n";
    let used = registers(statement);
    for r in &used {
        let ty = match FAMILIES[r.0].0 {
            "p" => "pred",
            family => family.trim_end_matches('r'),
        };
        let _ = writeln!(out, ".reg .{ty} {};", name(*r));
    }
    let _ = writeln!(out, ".shared .align 16 .b8 sv[{VARIABLE}];\n.local .align 16 .b8 lv[{VARIABLE}];");
    let _ = writeln!(out, "mov.u32 t, %tid.x;\nld.param.u64 own, [out];\nmad.wide.u32 own, t, {ROW}, own;");
    out += "setp.eq.u32 first, t, 0;\n";
    for at in (0..VARIABLE).step_by(4) {
        let _ = writeln!(out, "@first st.shared.u32 [sv+{at}], {};", at * 0x0102_0305 + 9);
        let _ =
            writeln!(out, "mad.lo.u32 x, t, 0x10203, {}; st.local.u32 [lv+{at}], x;", at * 0x0304_0507 + 3);
    }
    let op = statement.split(' ').next().unwrap_or("");
    let asynchronous = op.contains(".async.") && op.contains("complete_tx");
    let barrier = op.contains("mbarrier") || asynchronous;
    let copy = op.starts_with("cp.async.c");
    // Barrier 1 for a warp.
    let counted = ["bar.", "barrier."].iter().any(|b| op.starts_with(b)) && !op.contains(".cluster");
    let number = if op.contains(".red") { 41 } else { 1 };
    if barrier && !op.starts_with("mbarrier.init") {
        let _ = writeln!(out, "@first mbarrier.init.shared.b64 [sv], 1024;");
    }
    out += "bar.sync 0;\n";
    let pointers = addresses(statement);
    for (i, r) in used.iter().enumerate() {
        if pointers.contains(r) && FAMILIES[r.0].1 == 64 {
            let spaces = [(".shared", "sv"), (".local", "lv"), (".const", "cv"), (".param", "k0")];
            let place = spaces.iter().find(|(space, _)| op.contains(space)).map(|(_, v)| *v);
            // The source of a copy is in global memory.
            let place = place.filter(|_| !copy || r.1 == 1);
            // What is added to it keeps the alignment of the widest vectors.
            let added = if statement.contains("+16]") { 16 } else { 0 };
            let own = OWN + 64 * (i % 4) + added;
            // Data, then the barrier at the start of the variable.
            let at = if r.1 == 1 { 32 } else { 0 } - added as i64;
            let place = if asynchronous || barrier {
                Some(format!("sv+{}", if asynchronous { at } else { -(added as i64) }))
            } else {
                place.map(String::from)
            };
            let _ = match place {
                Some(v) => {
                    let to = name(*r);
                    let _ = writeln!(out, "mov.u64 {to}, {v};");
                    let generic = barrier && !asynchronous && !op.contains(".shared");
                    if generic { writeln!(out, "cvta.shared.u64 {to}, {to};") } else { Ok(()) }
                }
                None => writeln!(out, "add.u64 {}, own, {own};", name(*r)),
            };
        } else if counted && FAMILIES[r.0].1 == 32 {
            let _ = writeln!(out, "mov.u32 {}, {};", name(*r), if r.1 == number { 1 } else { 32 });
        } else if barrier && FAMILIES[r.0].1 == 32 && FAMILIES[r.0].0 != "f32r" {
            // What a thread counts for.
            let _ = writeln!(out, "mov.u32 {}, 1;", name(*r));
        } else {
            fill(&mut out, *r);
        }
    }
    // A carry to go in.
    match op.split('.').next() {
        Some("addc" | "madc") => out += "add.cc.u32 x, t, -2;\n",
        Some("subc") => out += "sub.cc.u32 x, t, 1;\n",
        _ => {}
    }
    let _ = writeln!(out, "{statement}");
    if op.starts_with("cp.async.") && !op.contains("bulk") {
        out += "cp.async.wait_all;\n";
    }
    let mut at = 0usize;
    // Where a variable is, is not defined, nor what barriers and policies look like.
    let opaque = barrier || op.starts_with("createpolicy");
    for r in used.difference(&pointers).filter(|_| !opaque) {
        let bytes = FAMILIES[r.0].1.div_ceil(8) as usize;
        at = at.next_multiple_of(bytes);
        store(&mut out, *r, at);
        at += bytes;
    }
    out += "bar.sync 0;\n";
    for k in (0..VARIABLE).step_by(4) {
        let _ = writeln!(out, "ld.local.u32 x, [lv+{k}]; st.global.u32 [own+{}], x;", OWN + 256 + k);
        let _ = writeln!(out, "ld.global.u32 x, [gv+{k}]; @first st.global.u32 [own+{}], x;", OWN + 384 + k);
        if barrier && k < 16 {
            continue;
        }
        let _ = writeln!(out, "ld.shared.u32 x, [sv+{k}]; @first st.global.u32 [own+{}], x;", OWN + 320 + k);
    }
    out += "ret;\n}\n";
    out
}
