//! One tiny kernel for every legal form of the arithmetic instructions, from the front end's table: load the
//! operands, do the operation, store the result.

use crate::values::{Shape, values};
use ptx::Type;
use ptx::isa::{Form, OperandKind, OperandSpec, TargetGate, TypeRef};
use ptx::{Mod, Op};
use sim::launch::{Arg, Buffer, Elem, Launch};
use sim::number::Number;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Threads of the block that runs a case: so many sets of operands.
pub const THREADS: usize = 96;
/// Operands that a kernel loads.
const OPERANDS: usize = 5;

/// How far results may be apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tolerance {
    /// The same bits.
    Exact,
    /// So many units in the last place of the type.
    Ulps(Type, u64),
}

/// One form with one choice of modifiers.
#[derive(Clone, Debug)]
pub struct Case {
    /// The instruction's text.
    pub text: String,
    /// Statements of the kernel.
    pub body: String,
    /// Values of the operands, 16 bytes each.
    pub inputs: Vec<[u32; 4]>,
    /// How to compare.
    pub tolerance: Tolerance,
    /// Targets that have it; all if empty.
    pub targets: &'static [TargetGate],
}

impl Case {
    /// The kernel, named `name`.
    pub fn kernel(&self, name: &str) -> String {
        format!(".visible .entry {name}(.param .u64 pin, .param .u64 pout)\n{{\n{}}}\n", self.body)
    }

    /// The launch that runs it.
    pub fn launch(&self, kernel: &str) -> Launch {
        let words: Vec<Number> = self.inputs.iter().flatten().map(|w| Number::Int((*w).into())).collect();
        let buffer =
            |length: usize, list: Option<Vec<Number>>| Buffer { list, ..Buffer::zeros(Elem::U32, length) };
        let arg = |name: &str| Arg { buffer: Some(name.into()), ..Arg::default() };
        Launch {
            kernel: kernel.into(),
            grid: [1; 3],
            block: [THREADS as u32, 1, 1],
            cluster: None,
            cooperative: false,
            stack: 0,
            shared: 0,
            args: vec![arg("in"), arg("out")],
            buffers: BTreeMap::from([
                ("in".into(), buffer(words.len(), Some(words))),
                ("out".into(), buffer(THREADS * 8, None)),
            ]),
            images: BTreeMap::new(),
            names: BTreeMap::new(),
            generated: None,
        }
    }
}

/// The mnemonics of this family.
const OPS: &[&str] = &[
    "add",
    "sub",
    "mul",
    "mad",
    "mul24",
    "mad24",
    "sad",
    "div",
    "rem",
    "abs",
    "neg",
    "min",
    "max",
    "popc",
    "clz",
    "bfind",
    "brev",
    "bfe",
    "bfi",
    "szext",
    "bmsk",
    "fns",
    "dp4a",
    "dp2a",
    "addc",
    "subc",
    "madc",
    "and",
    "or",
    "xor",
    "not",
    "cnot",
    "lop3",
    "shf",
    "shl",
    "shr",
    "prmt",
    "fma",
    "rcp",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "lg2",
    "ex2",
    "tanh",
    "testp",
    "copysign",
    "setp",
    "set",
    "selp",
    "slct",
    "cvt",
    "vadd",
    "vsub",
    "vabsdiff",
    "vmin",
    "vmax",
    "vshl",
    "vshr",
    "vmad",
    "vset",
    "vadd2",
    "vsub2",
    "vavrg2",
    "vabsdiff2",
    "vmin2",
    "vmax2",
    "vset2",
    "vadd4",
    "vsub4",
    "vavrg4",
    "vabsdiff4",
    "vmin4",
    "vmax4",
    "vset4",
];

/// Every case.
pub fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for name in OPS {
        let Some(op) = Op::parse(name) else { continue };
        // Some are of the oldest targets only.
        for form in op.forms().iter().filter(|f| f.before == u16::MAX) {
            for mods in choices(form) {
                for variant in 0..VARIANTS {
                    out.extend(case(op, form, &mods, variant));
                }
            }
        }
    }
    out.extend(crate::moves::cases());
    out
}

/// Every choice of modifiers.
fn choices(form: &Form) -> Vec<Vec<Mod>> {
    let mut all: Vec<Vec<Mod>> = vec![Vec::new()];
    for g in form.groups {
        let mut next = Vec::new();
        for so_far in &all {
            if g.optional {
                next.push(so_far.clone());
            }
            for a in g.alternatives {
                next.push(so_far.iter().chain(a.iter()).copied().collect());
            }
        }
        all = next;
    }
    all
}

/// Variants of each choice: registers only; an immediate as second source; parts of video operands, a negated
/// predicate, a sink.
const VARIANTS: usize = 3;

/// The type of a register that holds a value of type `t`.
fn register(t: Type, wider: bool) -> Option<&'static str> {
    Some(match t.bits() {
        _ if t == Type::pred => "pred",
        8 if wider
            && matches!(t, Type::u8 | Type::s8 | Type::u4 | Type::s4 | Type::u2 | Type::s2 | Type::b8) =>
        {
            "b32"
        }
        8 => "b8",
        16 if wider && !t.is_float() => "b32",
        16 => "b16",
        32 => "b32",
        64 => "b64",
        128 => "b128",
        _ => return None,
    })
}

fn operand_type(spec: &OperandSpec, types: &[Type]) -> Option<Type> {
    match spec.ty {
        TypeRef::Fixed(t) => Some(t),
        TypeRef::Mod(n) => types.get(usize::from(n)).or(types.last()).copied(),
    }
}

/// An immediate of the type.
fn immediate(op: Op, t: Type) -> Option<&'static str> {
    Some(match t {
        Type::f32 => "0f3FC00000",
        Type::f64 => "0d3FF8000000000000",
        _ if t.is_float() => return None,
        _ if matches!(op, Op::shl | Op::shr | Op::shf | Op::bfe | Op::bfi | Op::szext | Op::bmsk) => "7",
        Type::s16 | Type::s32 | Type::s64 => "-13",
        Type::u64 | Type::b64 => "100000000007",
        Type::u16 | Type::u32 | Type::b16 | Type::b32 => "100",
        _ => return None,
    })
}

/// The kernel of one choice of modifiers.
fn case(op: Op, form: &Form, mods: &[Mod], variant: usize) -> Option<Case> {
    let types: Vec<Type> = mods.iter().filter_map(|m| m.as_type()).collect();
    let first = types.first().copied().unwrap_or(Type::b32);
    let has = |m: Mod| mods.contains(&m);
    let video = op.name().starts_with('v');
    let (mut decls, mut loads, mut text) = (String::new(), String::new(), String::new());
    let mut stores = String::new();
    let mut shapes = Vec::new();
    let mut varied = false;
    let _ = write!(text, "{}", op.name());
    for m in mods {
        let _ = write!(text, ".{}", m.name());
    }
    let mut sources = 0;
    let count = if variant == 2 || !video {
        form.operands.len()
    } else {
        form.operands.iter().filter(|o| !o.optional).count()
    };
    // An operation after the operation needs its operand.
    let two_steps = video && mods.iter().skip(2).any(|m| matches!(m, Mod::add | Mod::min | Mod::max));
    let count = if two_steps { form.operands.len() } else { count };
    for (i, spec) in form.operands.iter().take(count).enumerate() {
        text.push_str(if i == 0 { " " } else { ", " });
        let t = operand_type(spec, &types)?;
        let written = i == 0;
        match spec.kind {
            OperandKind::PredDst | OperandKind::PredPair => {
                let pair = spec.kind == OperandKind::PredPair;
                let _ = write!(text, "{}", if pair { "%p|%q" } else { "%p" });
                decls.push_str(".reg .pred %p, %q;\n");
                stores.push_str("selp.b32 %u, 1, 0, %p;\nst.global.b32 [%out], %u;\n");
                if pair {
                    stores.push_str("selp.b32 %u, 1, 0, %q;\nst.global.b32 [%out+16], %u;\n");
                }
            }
            OperandKind::PredSrc => {
                let negated = variant == 2;
                varied |= negated;
                let _ = write!(text, "{}%s", if negated { "!" } else { "" });
                decls.push_str(".reg .pred %s;\n");
                let _ = writeln!(
                    loads,
                    "ld.global.b32 %u, [%in+{at}];\nand.b32 %u, %u, 1;\nsetp.ne.b32 %s, %u, 0;",
                    at = 16 * sources
                );
                shapes.push(Shape::of(op, sources, Type::b32));
                sources += 1;
            }
            OperandKind::Imm => {
                text.push_str(["0x96", "0xe2", "0x1"][variant]);
                varied = true;
            }
            OperandKind::Dst if t == Type::pred => {
                text.push_str("%p");
                decls.push_str(".reg .pred %p;\n");
                stores.push_str("selp.b32 %u, 1, 0, %p;\nst.global.b32 [%out], %u;\n");
            }
            OperandKind::Src if t == Type::pred => {
                let _ = write!(text, "%s{sources}");
                let _ = writeln!(decls, ".reg .pred %s{sources};");
                let _ = writeln!(
                    loads,
                    "ld.global.b32 %u, [%in+{at}];\nand.b32 %u, %u, 1;\nsetp.ne.b32 %s{sources}, %u, 0;",
                    at = 16 * sources
                );
                shapes.push(Shape::of(op, sources, Type::b32));
                sources += 1;
            }
            _ if written && spec.kind != OperandKind::Addr => {
                let t = if spec.wider && has(Mod::wide) { wide(t) } else { t };
                let r = register(t, spec.wider)?;
                let _ = writeln!(decls, ".reg .{r} %d;");
                match (video && variant == 2 && !two_steps, spec.kind) {
                    (_, OperandKind::DstPred | OperandKind::DstAndPred) => {
                        text.push_str("%d|%p");
                        decls.push_str(".reg .pred %p;\n");
                        stores.push_str("selp.b32 %u, 1, 0, %p;\nst.global.b32 [%out+16], %u;\n");
                    }
                    (true, OperandKind::Any | OperandKind::PartDst) => {
                        let _ = write!(text, "%d{}", part(op, 0, has(Mod::add)));
                        varied = true;
                    }
                    _ => text.push_str("%d"),
                }
                let _ = writeln!(stores, "st.global.{r} [%out], %d;");
            }
            OperandKind::Src | OperandKind::Part | OperandKind::PartDst | OperandKind::Any => {
                let t = if spec.wider && has(Mod::wide) { wide(t) } else { t };
                if variant == 1
                    && sources == 1
                    && spec.kind == OperandKind::Src
                    && let Some(n) = immediate(op, t)
                {
                    text.push_str(n);
                    varied = true;
                    shapes.push(Shape::of(op, sources, t));
                    sources += 1;
                    continue;
                }
                let r = register(t, spec.wider)?;
                let _ = writeln!(decls, ".reg .{r} %a{sources};");
                let _ = writeln!(loads, "ld.global.{r} %a{sources}, [%in+{}];", 16 * sources);
                let _ = write!(text, "%a{sources}");
                if spec.kind == OperandKind::Part && variant == 2 && op != Op::vmad {
                    text.push_str(part(op, i, false));
                    varied = true;
                }
                shapes.push(Shape::of(op, sources, t));
                sources += 1;
            }
            _ => return None,
        }
    }
    if variant > 0 && !varied || sources > OPERANDS {
        return None;
    }
    let mut body = String::from(".reg .b64 %in, %out;\n.reg .b32 %t, %u;\n");
    body.push_str(&decls);
    let _ = write!(
        body,
        "mov.u32 %t, %tid.x;\nld.param.u64 %in, [pin];\nld.param.u64 %out, [pout];\n\
         mad.wide.u32 %in, %t, {}, %in;\nmad.wide.u32 %out, %t, 32, %out;\n",
        16 * OPERANDS
    );
    body.push_str(&loads);
    carry_before(&mut body, op, first);
    let _ = writeln!(body, "{text};");
    if has(Mod::cc) {
        let reader = if matches!(op, Op::sub | Op::subc) { "subc" } else { "addc" };
        let _ = writeln!(body, "{reader}.u32 %u, 0, 0;\nst.global.b32 [%out+16], %u;");
    }
    body.push_str(&stores);
    body.push_str("ret;\n");
    let inputs = values(&shapes, THREADS, OPERANDS);
    let approximate = has(Mod::approx) || has(Mod::full);
    let tolerance = if approximate { Tolerance::Ulps(first, 8) } else { Tolerance::Exact };
    Some(Case { text, body, inputs, tolerance, targets: form.targets })
}

/// The type of twice the width.
fn wide(t: Type) -> Type {
    match t {
        Type::u16 => Type::u32,
        Type::s16 => Type::s32,
        Type::u32 => Type::u64,
        Type::s32 => Type::s64,
        t => t,
    }
}

/// What sets the condition code before an instruction that reads it.
fn carry_before(body: &mut String, op: Op, _t: Type) {
    match op {
        Op::addc | Op::madc => {
            body.push_str("ld.global.b32 %u, [%in+64];\nadd.cc.u32 %u, %u, 0x80000000;\n");
        }
        Op::subc => {
            body.push_str("ld.global.b32 %u, [%in+64];\nsub.cc.u32 %u, %u, 0x80000000;\n");
        }
        _ => {}
    }
}

/// A part of operand `i` of a video instruction.
fn part(op: Op, i: usize, masked_sum: bool) -> &'static str {
    let name = op.name();
    match (name.as_bytes()[name.len() - 1], i) {
        (b'2', 0) if masked_sum => ".h0",
        (b'2', 0) => ".h1",
        (b'2', 1) => ".h21",
        (b'2', _) => ".h30",
        (b'4', 0) => ".b310",
        (b'4', 1) => ".b7310",
        (b'4', _) => ".b5264",
        (_, 0) => ".b1",
        (_, 1) => ".h1",
        _ => ".b3",
    }
}
