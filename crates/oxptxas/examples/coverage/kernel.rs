//! A kernel around one statement: every register and variable that it names holds something that depends on the thread, and
//! is stored afterwards.

use super::image::{HANDLE, Statement};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Bytes of each variable.
const VARIABLE: usize = 64;
/// Lanes of a warp, each with a row of its own in the variable that `ldmatrix`, `stmatrix` and `tensormap` reach.
const LANES: usize = 32;
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
            // Which thread holds what is not defined.
            | "wmma"
    )
}

/// Whether a statement has a mask of lanes.
pub fn is_for_warps(statement: &str) -> bool {
    let op = statement.split(['.', ' ']).next().unwrap_or("");
    matches!(op, "shfl" | "vote" | "match" | "redux" | "elect") && statement.contains(".sync")
        || is_matrix(op)
        || statement.starts_with("bar.warp.sync")
        || statement.starts_with("barrier.warp.sync")
}

/// Whether it is an instruction on matrices in the registers of a warp.
fn is_matrix(op: &str) -> bool {
    matches!(op, "mma" | "wmma" | "ldmatrix" | "stmatrix" | "movmatrix")
}

/// With all lanes of the warp as members, where a statement has a mask of them.
fn with_all_lanes(statement: &str) -> String {
    match statement.rsplit_once([' ']) {
        Some((rest, _))
            if is_for_warps(statement) && !statement.contains("matrix") && !statement.contains("mma") =>
        {
            format!("{rest} -1;")
        }
        _ => statement.to_string(),
    }
}

/// What a statement asks of the kernel around it.
struct Needs<'a> {
    /// Its instruction with all modifiers.
    op: &'a str,
    /// It tells a barrier in shared memory that bytes have come.
    asynchronous: bool,
    /// It needs such a barrier.
    barrier: bool,
    /// `cp.async` without `bulk`.
    copy: bool,
    /// It has the number of a block's barrier and a count of threads.
    counted: bool,
    /// The register that holds that number.
    number: u32,
    /// It moves rows of a matrix, or changes tensor maps, in shared memory: bytes of a row.
    rows: Option<usize>,
    /// Its 32-bit registers may be a sparse matrix's metadata.
    metadata: bool,
}

impl<'a> Needs<'a> {
    fn of(statement: &'a str) -> Needs<'a> {
        let op = statement.split(' ').next().unwrap_or("");
        let asynchronous = op.contains(".async.") && op.contains("complete_tx");
        Needs {
            op,
            asynchronous,
            barrier: op.contains("mbarrier") || asynchronous,
            copy: op.starts_with("cp.async.c"),
            counted: ["bar.", "barrier."].iter().any(|b| op.starts_with(b)) && !op.contains(".cluster"),
            number: if op.contains(".red") { 41 } else { 1 },
            rows: match () {
                () if op.starts_with("ldmatrix") || op.starts_with("stmatrix") => Some(16),
                () if op.starts_with("tensormap") && op.contains(".shared") => Some(128),
                () => None,
            },
            metadata: op.starts_with("mma.sp"),
        }
    }

    /// Makes an address, the `i`-th register of the statement.
    fn address(&self, out: &mut String, statement: &str, i: usize, r: Register) {
        let to = name(r);
        // What is added to it keeps the alignment of the widest vectors, but not that of tensor maps.
        let added: usize = if statement.contains("+16]") { 16 } else { 0 };
        let maps = self.op.starts_with("tensormap");
        let less = if maps { added } else { 0 };
        // The first address of a copy of a map is in global memory.
        if let Some(bytes) = self.rows.filter(|_| !self.op.contains("cp_fenceproxy") || r.1 != 1) {
            let _ = writeln!(out, "mov.u64 {to}, mv; mul.wide.u32 w, t, {bytes}; add.u64 {to}, {to}, w;");
            if !self.op.contains(".shared") {
                let _ = writeln!(out, "cvta.shared.u64 {to}, {to};");
            }
            let _ = writeln!(out, "sub.u64 {to}, {to}, {less};");
            return;
        }
        if self.op.starts_with("st.bulk") {
            let _ = writeln!(out, "mov.u64 {to}, sv;");
            if !self.op.contains(".shared") {
                let _ = writeln!(out, "cvta.shared.u64 {to}, {to};");
            }
            return;
        }
        if maps {
            let _ = writeln!(out, "add.u64 {to}, own, {};", OWN - less);
            return;
        }
        let spaces = [(".shared", "sv"), (".local", "lv"), (".const", "cv"), (".param", "k0")];
        let place = spaces.iter().find(|(space, _)| self.op.contains(space)).map(|(_, v)| *v);
        // The source of a copy is in global memory.
        let place = place.filter(|_| !self.copy || r.1 == 1);
        let own = OWN + 64 * (i % 4) + added;
        // Data, then the barrier at the start of the variable.
        let at = if r.1 == 1 { 32 } else { 0 } - added as i64;
        let place = if self.barrier {
            Some(format!("sv+{}", if self.asynchronous { at } else { -(added as i64) }))
        } else {
            place.map(String::from)
        };
        let Some(v) = place else {
            let _ = writeln!(out, "add.u64 {to}, own, {own};");
            return;
        };
        let _ = writeln!(out, "mov.u64 {to}, {v};");
        if self.barrier && !self.asynchronous && !self.op.contains(".shared") {
            let _ = writeln!(out, "cvta.shared.u64 {to}, {to};");
        }
    }

    /// Gives a register a value.
    fn value(&self, out: &mut String, r: Register) {
        let (to, (family, bits)) = (name(r), FAMILIES[r.0]);
        let whole = bits == 32 && family == "b32r";
        let _ = match () {
            () if self.counted && bits == 32 => {
                writeln!(out, "mov.u32 {to}, {};", if r.1 == self.number { 1 } else { 32 })
            }
            // What a thread counts for.
            () if self.barrier && bits == 32 && family != "f32r" => writeln!(out, "mov.u32 {to}, 1;"),
            // What a bulk store covers.
            () if self.op.starts_with("st.bulk") && bits == 64 => writeln!(out, "mov.u64 {to}, 32;"),
            // Selectors of scales, the same in all lanes.
            () if self.op.contains("block_scale") && bits == 16 => writeln!(out, "mov.u16 {to}, 0;"),
            // Nibbles that name two columns, another first one in each lane.
            () if self.metadata && whole => {
                let nibbles = if self.op.contains("tf32") { "0x4ee4e44e" } else { "0xe4d98c4e" };
                let _ = writeln!(out, "mad.lo.u32 x, t, 4, {};", 4 * r.1);
                writeln!(out, "mov.b32 {to}, {nibbles}; shf.l.wrap.b32 {to}, {to}, {to}, x;")
            }
            () => {
                fill(out, r);
                // Floating-point numbers of any size less than 32 bits near one.
                if self.op.starts_with("mma.") && whole {
                    let _ = writeln!(out, "and.b32 {to}, {to}, 0x87878787; or.b32 {to}, {to}, 0x38383838;");
                }
                Ok(())
            }
        };
    }

    /// What variables hold at first.
    fn memory(&self, out: &mut String) {
        let words = |bytes: usize| (0..bytes).step_by(4);
        for at in words(VARIABLE) {
            let _ = writeln!(out, "@first st.shared.u32 [sv+{at}], {};", at * 0x0102_0305 + 9);
            let _ = writeln!(
                out,
                "mad.lo.u32 x, t, 0x10203, {}; st.local.u32 [lv+{at}], x;",
                at * 0x0304_0507 + 3
            );
        }
        for at in words(self.rows.map_or(0, |bytes| bytes * LANES + 16)) {
            let value = (at as u32).wrapping_mul(0x0071_0305).wrapping_add(0x8040_2011);
            let _ = writeln!(out, "@first st.shared.u32 [mv+{at}], {value};");
        }
        if self.barrier && !self.op.starts_with("mbarrier.init") {
            let _ = writeln!(out, "@first mbarrier.init.shared.b64 [sv], 1024;");
        }
    }

    /// Stores what variables hold at last.
    fn stored_memory(&self, out: &mut String) {
        for k in (0..VARIABLE).step_by(4) {
            let _ = writeln!(out, "ld.local.u32 x, [lv+{k}]; st.global.u32 [own+{}], x;", OWN + 256 + k);
            let _ =
                writeln!(out, "ld.global.u32 x, [gv+{k}]; @first st.global.u32 [own+{}], x;", OWN + 384 + k);
            if self.barrier && k < 16 {
                continue;
            }
            let _ =
                writeln!(out, "ld.shared.u32 x, [sv+{k}]; @first st.global.u32 [own+{}], x;", OWN + 320 + k);
        }
        if let Some(bytes) = self.rows {
            // All of a map shows in its sum and its exclusive or.
            let _ = writeln!(out, "mov.u64 w, mv; mad.wide.u32 w, t, {bytes}, w;\n.reg .b32 sum, all;");
            out.push_str("mov.u32 sum, 0; mov.u32 all, 0;\n");
            for k in (0..bytes).step_by(4) {
                let _ = writeln!(
                    out,
                    "ld.shared.u32 x, [w+{k}]; mad.lo.u32 sum, sum, 0x10101, x; xor.b32 all, all, x;"
                );
            }
            let _ = writeln!(out, "st.global.v2.u32 [own+{}], {{sum, all}};", OWN + 448);
        }
    }
}

/// The module of a statement.
pub fn module(statement: &str, target: &str) -> String {
    around(statement, target, false)
}

/// The same where threads have handles of their own, if the statement has one.
pub fn varying(statement: &str, target: &str) -> Option<String> {
    super::image::is_image(statement).then(|| around(statement, target, true))
}

fn around(statement: &str, target: &str, varying: bool) -> String {
    let statement = &with_all_lanes(statement);
    let needs = Needs::of(statement);
    let mut out = format!(".version 9.0\n.target {target}\n.address_size 64\n");
    let bytes =
        |k: usize| (0..VARIABLE).map(|i| ((i * 37 + k) % 251).to_string()).collect::<Vec<_>>().join(", ");
    let _ = writeln!(out, ".global .align 32 .b8 gv[{VARIABLE}] = {{{}}};", bytes(11));
    let _ = writeln!(out, ".const .align 16 .b8 cv[{VARIABLE}] = {{{}}};", bytes(90));
    let image = Statement::of(statement, varying);
    let handles = match varying {
        _ if image.is_none() => "",
        true => ", .param .u64 h0, .param .u64 h1",
        false => ", .param .u64 h0",
    };
    let _ = writeln!(out, ".visible .entry k(.param .u64 k0, .param .u32 k1, .param .u64 out{handles})\n{{");
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
    if let Some(bytes) = needs.rows {
        let _ = writeln!(out, ".shared .align 128 .b8 mv[{}];", bytes * LANES + 16);
    }
    let _ = writeln!(out, "mov.u32 t, %tid.x;\nld.param.u64 own, [out];\nmad.wide.u32 own, t, {ROW}, own;");
    out += "setp.eq.u32 first, t, 0;\n";
    if let Some(image) = &image {
        out += ".reg .pred odd;\n.reg .b32 k;\nld.param.u32 k, [k1];\n";
        image.handle(&mut out);
    }
    needs.memory(&mut out);
    out += "bar.sync 0;\n";
    let pointers = addresses(statement);
    for (i, r) in used.iter().enumerate() {
        if let Some(image) = &image {
            let to = name(*r);
            if to == HANDLE || image.value(&mut out, &to, FAMILIES[r.0].0, r.1) {
                continue;
            }
        }
        if pointers.contains(r) && FAMILIES[r.0].1 == 64 {
            needs.address(&mut out, statement, i, *r);
        } else {
            needs.value(&mut out, *r);
        }
    }
    // A carry to go in.
    match needs.op.split('.').next() {
        Some("addc" | "madc") => out += "add.cc.u32 x, t, -2;\n",
        Some("subc") => out += "sub.cc.u32 x, t, 1;\n",
        _ => {}
    }
    let _ = writeln!(out, "{statement}");
    if needs.op.starts_with("cp.async.") && !needs.op.contains("bulk") {
        out += "cp.async.wait_all;\n";
    }
    let mut at = 0usize;
    // Where a variable is, is not defined, nor what barriers and policies look like.
    let opaque = needs.barrier || needs.op.starts_with("createpolicy");
    for r in used.difference(&pointers).filter(|_| !opaque) {
        let bytes = FAMILIES[r.0].1.div_ceil(8) as usize;
        at = at.next_multiple_of(bytes);
        store(&mut out, *r, at);
        at += bytes;
    }
    out += "bar.sync 0;\n";
    needs.stored_memory(&mut out);
    out += "ret;\n}\n";
    out
}
