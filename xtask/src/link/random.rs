//! Random pairs of modules: functions of both that call one another with parameters and results of every type, by name,
//! through pointers and tables and recursively, and that use variables of the other module. Every piece of a parameter goes into
//! a hash, which the next call passes on.

use super::cases::{Case, REGISTERS, external, kernel, module};
use std::fmt::Write as _;

/// Numbers that look random (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: u32) -> u32 {
        (self.next() % u64::from(n)) as u32
    }
    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }
}

/// A parameter or result.
#[derive(Clone)]
struct Passed {
    /// `.align 8 .b8`
    ty: String,
    /// `[12]`, or nothing.
    dims: String,
    size: u32,
    align: u32,
    /// Read at an index, through its address.
    addressed: bool,
}

impl Passed {
    fn declared(&self, name: &str) -> String {
        format!(".param {} {name}{}", self.ty, self.dims)
    }
}

const SCALARS: [(&str, u32); 14] = [
    ("b8", 1),
    ("b16", 2),
    ("f16", 2),
    ("b32", 4),
    ("u32", 4),
    ("s32", 4),
    ("f32", 4),
    ("b64", 8),
    ("u64", 8),
    ("s64", 8),
    ("f64", 8),
    ("b128", 16),
    ("b32", 4),
    ("b64", 8),
];

fn passed(r: &mut Random) -> Passed {
    let (name, bytes) = r.pick(&SCALARS);
    let scalar = |ty: String, align| Passed { ty, dims: String::new(), size: bytes, align, addressed: false };
    let mut made = match r.below(5) {
        0 | 1 => scalar(format!(".{name}"), bytes),
        2 => {
            let align = bytes.max(r.pick(&[1, 2, 4, 8, 16]));
            scalar(format!(".align {align} .{name}"), align)
        }
        3 => {
            let n = 1 + r.below(7);
            Passed {
                ty: format!(".{name}"),
                dims: format!("[{n}]"),
                size: n * bytes,
                align: bytes,
                addressed: r.one_in(4),
            }
        }
        _ => {
            let align = r.pick(&[1, 2, 4, 4, 8, 8, 16, 16, 32]);
            let n = 1 + r.pick(&[8, 20, 48, 90]).min(1 + r.below(90));
            Passed {
                ty: format!(".align {align} .b8"),
                dims: format!("[{n}]"),
                size: n,
                align,
                addressed: r.one_in(4),
            }
        }
    };
    made.addressed &= made.align >= 4 && made.size >= 8;
    made
}

/// The offsets and sizes of what a variable is stored or loaded in.
fn pieces(r: &mut Random, p: &Passed) -> Vec<(u32, u32)> {
    if p.dims.is_empty() {
        return vec![(0, p.size)];
    }
    let (mut at, mut out) = (0, Vec::new());
    while at < p.size {
        let aligned = if at == 0 { p.align } else { p.align.min(1 << at.trailing_zeros()) };
        let mut bytes = aligned.min(16);
        while bytes > p.size - at || bytes > 1 && r.one_in(3) {
            bytes /= 2;
        }
        out.push((at, bytes));
        at += bytes;
    }
    out
}

/// Stores what the hash in r2 makes of a variable.
fn fill(r: &mut Random, p: &Passed, name: &str) -> String {
    let mut s = String::new();
    for (at, bytes) in pieces(r, p) {
        let _ = writeln!(s, " mad.lo.u32 r10, r2, {}, {at};", 2 * r.below(1 << 20) + 1);
        let place = format!("[{name}+{at}]");
        let wide = " mul.wide.u32 d10, r10, 0x9e3779b9;\n";
        s += &match bytes {
            1 => format!(" cvt.u16.u32 h1, r10;\n st.param.b8 {place}, h1;\n"),
            2 => format!(" cvt.u16.u32 h1, r10;\n st.param.b16 {place}, h1;\n"),
            4 => format!(" st.param.b32 {place}, r10;\n"),
            8 if r.one_in(2) && !p.dims.is_empty() => format!(" st.param.v2.b32 {place}, {{r2, r10}};\n"),
            8 => format!("{wide} st.param.b64 {place}, d10;\n"),
            _ if p.dims.is_empty() => {
                format!(
                    "{wide} add.u64 d11, d10, 77;\n mov.b128 q1, {{d10, d11}};\n st.param.b128 {place}, q1;\n"
                )
            }
            _ if r.one_in(2) => format!("{wide} st.param.v2.b64 {place}, {{d10, d10}};\n"),
            _ => format!(" not.b32 r11, r10;\n st.param.v4.b32 {place}, {{r10, r11, r2, r10}};\n"),
        };
    }
    s
}

/// `r2 = r2 * 33 ^ x`
fn mix(x: &str) -> String {
    format!(" mul.lo.u32 r2, r2, 33;\n xor.b32 r2, r2, {x};\n")
}

fn mix_wide(x: &str) -> String {
    format!(" mov.b64 {{r12, r13}}, {x};\n{}{}", mix("r12"), mix("r13"))
}

/// Mixes a variable into the hash.
fn drain(r: &mut Random, p: &Passed, name: &str) -> String {
    let mut s = String::new();
    for (at, bytes) in pieces(r, p) {
        let place = format!("[{name}+{at}]");
        s += &match bytes {
            1 => format!(" ld.param.u8 r10, {place};\n{}", mix("r10")),
            2 => format!(" ld.param.u16 r10, {place};\n{}", mix("r10")),
            4 => format!(" ld.param.b32 r10, {place};\n{}", mix("r10")),
            8 if r.one_in(2) && !p.dims.is_empty() => {
                format!(" ld.param.v2.b32 {{r10, r11}}, {place};\n{}{}", mix("r10"), mix("r11"))
            }
            8 => format!(" ld.param.b64 d10, {place};\n{}", mix_wide("d10")),
            // ptxas 13.0.88 takes the upper half of `ld.param.b128` for zero in device functions.
            _ if p.dims.is_empty() => format!(
                " ld.param.b64 d10, {place};\n ld.param.b64 d11, [{name}+{}];\n{}{}",
                at + 8,
                mix_wide("d10"),
                mix_wide("d11")
            ),
            _ => format!(
                " ld.param.v4.b32 {{r10, r11, r14, r15}}, {place};\n{}{}{}{}",
                mix("r10"),
                mix("r11"),
                mix("r14"),
                mix("r15")
            ),
        };
    }
    s
}

/// Reads a word of a parameter at an index, through the parameter's address.
fn indexed(p: &Passed, name: &str, space: &str) -> String {
    let words = p.size / 4;
    format!(
        " rem.u32 r10, r2, {words};\n mul.wide.u32 d10, r10, 4;\n mov.b64 d11, {name};\n add.u64 d11, d11, d10;\n\
         ld.{space}.b32 r10, [d11];\n{}",
        mix("r10")
    )
}

/// A function of the pair.
struct Function {
    name: String,
    /// Whether it is in the module without the kernel.
    in_b: bool,
    params: Vec<Passed>,
    result: Option<Passed>,
    /// Counts down in its first parameter, and calls itself through its partner.
    recursive: bool,
}

impl Function {
    fn header(&self) -> String {
        let params: Vec<String> =
            self.params.iter().enumerate().map(|(i, p)| p.declared(&format!("x{i}"))).collect();
        let result = self.result.as_ref().map_or(String::new(), |q| format!("({}) ", q.declared("q")));
        format!(".func {result}{}({})", self.name, params.join(", "))
    }

    fn prototype(&self) -> String {
        let params: Vec<String> = self.params.iter().map(|p| p.declared("_")).collect();
        let result = self.result.as_ref().map_or(String::new(), |q| format!("({}) ", q.declared("_")));
        format!(" PROTO: .callprototype {result}_ ({});\n", params.join(", "))
    }

    /// Calls it with what the hash makes of its parameters. `callee`: its name, or a register.
    fn call(&self, r: &mut Random, callee: &str, depth: Option<&str>) -> String {
        let mut s = String::from("{\n");
        for (i, p) in self.params.iter().enumerate() {
            let mut actual = p.clone();
            if p.dims == "[]" {
                actual.size = 8 + 4 * r.below(12);
                actual.dims = format!("[{}]", actual.size);
            }
            let _ = writeln!(s, " {};", actual.declared(&format!("a{i}")));
            s += &match depth {
                Some(n) if i == 0 => format!(" st.param.b32 [a0], {n};\n"),
                _ => fill(r, &actual, &format!("a{i}")),
            };
        }
        let names: Vec<String> = (0..self.params.len()).map(|i| format!("a{i}")).collect();
        let mut head = "";
        if let Some(q) = &self.result {
            let _ = writeln!(s, " {};", q.declared("res"));
            head = "(res), ";
        }
        let mut label = "";
        if callee != self.name {
            s += &self.prototype();
            label = ", PROTO";
        }
        let _ = writeln!(s, " call {head}{callee}, ({}){label};", names.join(", "));
        if let Some(q) = &self.result {
            s += &drain(r, q, "res");
        }
        s + "}\n"
    }
}

/// Variables of one module that the other one uses: declaration, definition, and a use.
fn variables(r: &mut Random) -> Vec<(String, String, String)> {
    let index = " and.b32 r10, r2, 3;\n mul.wide.u32 d10, r10, 4;\n";
    let mut all = vec![
        (
            ".extern .global .align 16 .b32 words[4];\n".to_string(),
            format!(".visible .global .align 16 .b32 words[4] = {{1, {}, 3, 4}};\n", r.below(1 << 30)),
            format!(
                "{index} mov.u64 d11, words;\n add.u64 d11, d11, d10;\n ld.global.u32 r10, [d11];\n{}",
                mix("r10")
            ),
        ),
        (
            ".extern .const .align 4 .b32 fixed[4];\n".into(),
            format!(".visible .const .align 4 .b32 fixed[4] = {{5, 6, {}, 8}};\n", r.below(1 << 30)),
            format!(
                "{index} mov.u64 d11, fixed;\n add.u64 d11, d11, d10;\n ld.const.u32 r10, [d11];\n{}",
                mix("r10")
            ),
        ),
        (
            ".extern .shared .align 8 .b32 common[64];\n".into(),
            ".visible .shared .align 8 .b32 common[64];\n".into(),
            format!(
                " mov.u32 r10, %tid.x;\n shl.b32 r10, r10, 2;\n mov.u32 r11, common;\n add.u32 r11, r11, r10;\n\
                 st.shared.u32 [r11], r2;\n ld.shared.u32 r10, [r11];\n{}",
                mix("r10")
            ),
        ),
    ];
    all.retain(|_| !r.one_in(3));
    all
}

/// A pair of modules.
pub fn pair(seed: u64) -> Case {
    let mut r = Random(seed);
    let r = &mut r;
    let mut functions: Vec<Function> = Vec::new();
    for n in 0..2 + r.below(4) {
        let mut params: Vec<Passed> = (0..r.pick(&[0, 1, 2, 3, 5, 9])).map(|_| passed(r)).collect();
        if r.one_in(4) {
            let align = r.pick(&[4, 8, 16]);
            let ty = format!(".align {align} .b8");
            params.push(Passed { ty, dims: "[]".into(), size: 8, align, addressed: r.one_in(2) });
        }
        let result = (!r.one_in(6)).then(|| passed(r));
        let name = format!("fun{n}");
        functions.push(Function { name, in_b: n % 2 == 0 || r.one_in(3), params, result, recursive: false });
    }
    let recursive = r.one_in(3);
    if recursive {
        for (name, in_b) in [("down", true), ("up", false)] {
            let count =
                Passed { ty: ".b32".into(), dims: String::new(), size: 4, align: 4, addressed: false };
            let mut params = vec![count];
            params.extend((0..r.below(3)).map(|_| passed(r)));
            let result = Some(passed(r));
            functions.push(Function { name: name.into(), in_b, params, result, recursive: true });
        }
    }
    let shared = variables(r);
    let tabled = functions.iter().position(|f| !f.recursive && r.one_in(2));
    let mut texts: Vec<String> = Vec::new();
    let count = functions.len();
    for (i, f) in functions.iter().enumerate() {
        let mut s = format!(" .reg .b128 q<2>;\n mov.u32 r2, {};\n", r.below(1 << 30));
        let align = r.pick(&[4, 8, 16, 16, 32, 64]);
        let local = r.one_in(2);
        if local {
            let _ = writeln!(s, " .local .align {align} .b8 buf[64];");
        }
        for (n, p) in f.params.iter().enumerate() {
            let name = format!("x{n}");
            s += &drain(r, p, &name);
            if p.addressed {
                s += &indexed(p, &name, r.pick(&["local", "param"]));
            }
        }
        if local {
            for at in (0..64).step_by(16) {
                s += &match align {
                    16.. => format!(" st.local.v4.b32 [buf+{at}], {{r2, r2, r2, r2}};\n"),
                    _ => (0..4).map(|k| format!(" st.local.b32 [buf+{}], r2;\n", at + 4 * k)).collect(),
                };
                s += &mix("r2");
            }
            let _ = write!(
                s,
                " mov.u64 d11, buf;\n cvt.u32.u64 r10, d11;\n and.b32 r10, r10, {};\n{} and.b32 r10, r2, 60;\n\
                 cvt.u64.u32 d10, r10;\n add.u64 d11, d11, d10;\n ld.local.b32 r10, [d11];\n{}",
                align - 1,
                mix("r10"),
                mix("r10")
            );
        }
        for (_, _, code) in &shared {
            if r.one_in(2) {
                s += code;
            }
        }
        if r.one_in(3) {
            let _ = write!(
                s,
                " and.b32 r10, r2, 3;\n TARGETS: .branchtargets L0, L1, L2, L3;\n brx.idx r10, TARGETS;\n\
                 L0: add.u32 r2, r2, 5;\n bra LEND;\nL1: not.b32 r2, r2;\n bra LEND;\nL2: mul.lo.u32 r2, r2, 7;\n\
                 L3: xor.b32 r2, r2, 9;\nLEND:\n"
            );
        }
        let divergent = r.one_in(3);
        if divergent {
            s += " and.b32 r10, r2, 1;\n setp.eq.u32 p1, r10, 0;\n @p1 bra SKIP;\n";
        }
        if f.recursive {
            let partner = functions.iter().position(|g| g.recursive && g.name != f.name).unwrap_or(i);
            s += " ld.param.u32 r20, [x0];\n setp.eq.u32 p2, r20, 0;\n @p2 bra BOTTOM;\n sub.u32 r20, r20, 1;\n";
            s += &functions[partner].call(r, &functions[partner].name, Some("r20"));
            s += "BOTTOM:\n";
        } else {
            for j in (i + 1..count).filter(|j| !functions[*j].recursive) {
                if j == i + 1 || r.one_in(3) {
                    let through = r.one_in(3);
                    let g = &functions[j];
                    if through {
                        let _ = writeln!(s, " mov.u64 d20, {};", g.name);
                    }
                    s += &g.call(r, if through { "d20" } else { &g.name }, None);
                }
            }
        }
        if divergent {
            s += "SKIP:\n";
        }
        if let Some(q) = &f.result {
            s += &fill(r, q, "q");
        }
        texts.push(format!(".visible {}\n{{\n{REGISTERS}{s}\n ret;\n}}\n", f.header()));
    }
    let mut body = " mov.u32 r2, r1;\n".to_string();
    body += &functions[0].call(r, "fun0", None);
    if let Some(t) = tabled {
        body += " ld.global.u64 d20, [table];\n";
        body += &functions[t].call(r, "d20", None);
    }
    if recursive {
        body += " and.b32 r20, r0, 3;\n";
        let down = &functions[count - 2];
        body += &down.call(r, "down", Some("r20"));
    }
    for (_, _, code) in &shared {
        body += code;
    }
    let body = body.replacen(" mov.u32 r2", " .reg .b128 q<2>;\n mov.u32 r2", 1);
    let (mut a, mut b): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for f in &functions {
        let own = format!(".visible {};\n", f.header());
        let (here, there) = if f.in_b { (&mut b, &mut a) } else { (&mut a, &mut b) };
        here.push(own);
        there.push(external(&f.header()));
    }
    for (declaration, definition, _) in shared {
        let (here, there) = if r.one_in(2) { (&mut a, &mut b) } else { (&mut b, &mut a) };
        here.push(declaration);
        there.push(definition);
    }
    if let Some(t) = tabled {
        a.push(".extern .global .align 8 .u64 table[1];\n".into());
        b.push(format!(".visible .global .align 8 .u64 table[1] = {{{}}};\n", functions[t].name));
    }
    for (f, text) in functions.iter().zip(texts) {
        if f.in_b { b.push(text) } else { a.push(text) }
    }
    a.push(kernel(&body));
    let version = |m: String| m.replace(".version 8.0", ".version 8.3");
    Case {
        name: format!("random {seed}"),
        a: version(module(&a)),
        b: version(module(&b)),
        bounded: !recursive,
    }
}
