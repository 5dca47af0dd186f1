//! Operands for a form: legal ones, as text, and ways to spoil them.

use crate::ptxas::Random;
use ptx::isa::{Form, Mod, Op, OperandKind, OperandSpec, Type, TypeClass, TypeRef, Values};
use std::collections::BTreeSet;

/// The kind of registers that stand for a type: its own, or untyped ones of its size.
fn family(ty: Type) -> String {
    match ty {
        Type::pred => "p".into(),
        Type::b8 | Type::b16 | Type::b32 | Type::b64 | Type::b128 => format!("{}r", ty.name()),
        Type::u8 | Type::u16 | Type::u32 | Type::u64 => format!("{}r", ty.name()),
        Type::s8 | Type::s16 | Type::s32 | Type::s64 => format!("{}r", ty.name()),
        Type::f32 | Type::f64 => format!("{}r", ty.name()),
        _ => format!("b{}r", ty.bits()),
    }
}

fn types(mods: &[Mod]) -> impl Iterator<Item = Type> + '_ {
    mods.iter().filter_map(|m| m.as_type())
}

pub fn vector_len(mods: &[Mod]) -> Option<usize> {
    mods.iter().find_map(|m| match m {
        Mod::v2 => Some(2),
        Mod::v4 => Some(4),
        Mod::v8 => Some(8),
        _ => None,
    })
}

/// How operands are chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Registers of the instruction's own types.
    Typed,
    /// Untyped registers, variables as addresses.
    Bits,
    /// Constants where they may stand, optional operands, wider registers.
    Rich,
}

/// A variable of the space that an instruction names.
fn variable(mods: &[Mod]) -> &'static str {
    let has = |list: &[Mod]| mods.iter().any(|m| list.contains(m));
    if has(&[Mod::shared, Mod::shared_cta, Mod::shared_cluster]) {
        "sv"
    } else if has(&[Mod::local]) {
        "lv"
    } else if has(&[Mod::_const]) {
        "cv"
    } else if has(&[Mod::param, Mod::param_entry]) {
        "k0"
    } else if has(&[Mod::global]) {
        "gv"
    } else {
        "b64r1"
    }
}

fn list(n: usize, one: impl Fn(usize) -> String) -> String {
    let items: Vec<String> = (0..n).map(one).collect();
    format!("{{{}}}", items.join(", "))
}

/// The type of an operand, if the table fixes one.
fn operand_type(spec: &OperandSpec, mods: &[Mod]) -> Option<Type> {
    match spec.ty {
        TypeRef::Fixed(t) => Some(t),
        TypeRef::Mod(n) => types(mods).nth(n as usize),
    }
}

/// Coordinates of a texture, surface or tensor.
fn coordinates(op: Op, mods: &[Mod]) -> Option<String> {
    let has = |m: Mod| mods.contains(&m);
    let (f, i) = (|n: usize| format!("f32r{n}"), |n: usize| format!("b32r{n}"));
    Some(match op {
        Op::cp => {
            let dims = [Mod::_1d, Mod::_2d, Mod::_3d, Mod::_4d, Mod::_5d];
            let n = dims.iter().position(|dim| has(*dim))? + 1;
            let gathers = has(Mod::tile_gather4) || has(Mod::tile_scatter4);
            let n = if gathers { 5 } else { n };
            let c: Vec<String> = (1..=n).map(i).collect();
            format!("[b64r1, {{{}}}]", c.join(", "))
        }
        Op::tex | Op::tld4 => {
            let float = types(mods).last()? == Type::f32;
            let c = |n: usize| if float { f(n) } else { i(n) };
            let x = match () {
                () if has(Mod::_1d) => format!("{{{}}}", c(1)),
                () if has(Mod::_2d) => format!("{{{}, {}}}", c(1), c(2)),
                () if has(Mod::_3d) || has(Mod::cube) => {
                    format!("{{{}, {}, {}, {}}}", c(1), c(2), c(3), c(4))
                }
                () if has(Mod::a1d) => format!("{{{}, {}}}", i(9), c(1)),
                () if has(Mod::a2d) || has(Mod::acube) => {
                    format!("{{{}, {}, {}, {}}}", i(9), c(1), c(2), c(3))
                }
                () if has(Mod::_2dms) || has(Mod::a2dms) => {
                    format!("{{{}, {}, {}, {}}}", i(9), i(1), i(2), i(3))
                }
                () => return None,
            };
            format!("[tx, {x}]")
        }
        Op::suld | Op::sust | Op::sured => match () {
            () if has(Mod::_1d) => format!("[sf, {{{}}}]", i(1)),
            () if has(Mod::_2d) || has(Mod::a1d) => format!("[sf, {{{}, {}}}]", i(1), i(2)),
            () => format!("[sf, {{{}, {}, {}, {}}}]", i(1), i(2), i(3), i(4)),
        },
        _ => return None,
    })
}

/// One operand; `None` if nothing is known of what may stand there.
fn operand(op: Op, mods: &[Mod], spec: &OperandSpec, at: usize, style: Style) -> Option<String> {
    let ty = operand_type(spec, mods);
    let wide = spec.wider && mods.contains(&Mod::wide);
    let bits = |t: Type| Type::parse(&format!("b{}", t.bits())).unwrap_or(Type::b8);
    let reg = |n: usize| -> Option<String> {
        let t = ty?;
        if t == Type::pred {
            return Some(format!("p{n}"));
        }
        let t = if wide { Type::parse(&format!("{}{}", &t.name()[..1], t.bits() * 2))? } else { t };
        let wider =
            spec.wider && !wide && style == Style::Rich && t.bytes() < 8 && t.class() != TypeClass::Float;
        Some(match style {
            _ if wider => format!("b64r{n}"),
            Style::Bits => format!("b{}r{n}", bits(t).bits()),
            _ => format!("{}{n}", family(t)),
        })
    };
    let integer = |t: Type| matches!(t.class(), TypeClass::Bits | TypeClass::Unsigned | TypeClass::Signed);
    let n = 1 + 40 * at.min(5);
    let length = match spec.count {
        Some(255) => Some(ptx::check::list_length(op, mods, at)?),
        Some(n) => Some(usize::from(n)),
        None if spec.vector => vector_len(mods),
        None => None,
    };
    let constant = match spec.values {
        Values::All => 7,
        Values::Range(_, last) => last,
        Values::Multiples(n) => n,
        Values::Sign => 1,
    };
    Some(match spec.kind {
        OperandKind::Dst | OperandKind::Src | OperandKind::Reg if length.is_some() => {
            reg(n)?;
            list(length?, |i| reg(n + i).expect("a register"))
        }
        OperandKind::Src if style == Style::Rich && ty.is_some_and(|t| integer(t) && t.bytes() <= 8) => {
            "7".into()
        }
        OperandKind::Src if style == Style::Rich && ty == Some(Type::f32) => "0f3F800000".into(),
        OperandKind::Src if style == Style::Rich && ty == Some(Type::f64) => "0d3FF0000000000000".into(),
        OperandKind::Dst | OperandKind::Src | OperandKind::Reg => reg(n)?,
        OperandKind::DstPred if style == Style::Rich => format!("{}|p{}", reg(n)?, n + 1),
        OperandKind::DstPred => reg(n)?,
        OperandKind::DstAndPred => format!("{}|p{}", reg(n)?, n + 1),
        OperandKind::TensorAddr => format!("[b32r{n}]"),
        OperandKind::PredSrc if style == Style::Rich => format!("!p{n}"),
        OperandKind::PredSrc | OperandKind::PredDst => format!("p{n}"),
        OperandKind::PredPair if style == Style::Rich => format!("p{n}|p{}", n + 1),
        OperandKind::PredPair => format!("p{n}"),
        OperandKind::Addr if op == Op::txq => "[tx]".into(),
        OperandKind::Addr if op == Op::suq => "[sf]".into(),
        OperandKind::Addr => match style {
            Style::Typed => format!("[b64r{n}]"),
            Style::Bits => match variable(mods) {
                "b64r1" => format!("[b64r{n}+16]"),
                v => format!("[{v}]"),
            },
            Style::Rich => format!("[b64r{n}+16]"),
        },
        OperandKind::Bracket => coordinates(op, mods)?,
        OperandKind::Label if op == Op::brx => "T".into(),
        OperandKind::Label => "K".into(),
        OperandKind::Func => return None,
        OperandKind::Sink => "_".into(),
        OperandKind::Imm if spec.values != Values::All => constant.to_string(),
        OperandKind::Imm => immediate(op, mods, at),
        OperandKind::Part if style == Style::Rich => format!("{}.h1", reg(n)?),
        OperandKind::Part | OperandKind::PartDst => reg(n)?,
        OperandKind::Any => return special(op, mods, at, style),
    })
}

/// A constant that an instruction takes at a place.
fn immediate(op: Op, mods: &[Mod], at: usize) -> String {
    match op {
        Op::cp if mods.contains(&Mod::cg) => "16",
        Op::cp if mods.contains(&Mod::ca) => "8",
        Op::setmaxnreg => "64",
        Op::applypriority | Op::discard | Op::fence | Op::tensormap => "128",
        Op::st => "0",
        Op::mma => "0",
        Op::wgmma if at > 2 => "1",
        _ => "1",
    }
    .into()
}

/// Operands that the table leaves to the checker.
fn special(op: Op, mods: &[Mod], at: usize, style: Style) -> Option<String> {
    let ty = types(mods).next();
    match (op, at) {
        (Op::mov, _) => {
            let t = ty?;
            let n = 1 + 40 * at;
            if let Some(len) = vector_len(mods) {
                return Some(list(len, |i| format!("{}{}", family(t), n + i)));
            }
            let half = matches!(t, Type::b32 | Type::b64) && style == Style::Rich && at == 1;
            Some(if half {
                format!("{{b{0}r1, b{0}r2}}", t.bits() / 2)
            } else if style == Style::Bits && t != Type::pred {
                format!("b{}r{n}", t.bits())
            } else {
                format!("{}{n}", family(t))
            })
        }
        (Op::call, _) => match (style, at) {
            (Style::Typed, 0) => Some("ff".into()),
            (Style::Bits, _) => ["(pr)", "fg", "(pa, pb)"].get(at).map(ToString::to_string),
            (Style::Rich, _) => ["(pr)", "b64r1", "(pa, pb)", "P"].get(at).map(ToString::to_string),
            _ => None,
        },
        (Op::mapa | Op::getctarank, 1) => {
            let t = types(mods).next()?;
            Some(format!("{}2", family(t)))
        }
        // The differences of the coordinates, a vector as long as they are.
        (Op::tex, 2 | 3) if mods.contains(&Mod::grad) => {
            let n = match () {
                () if mods.iter().any(|m| matches!(m, Mod::_1d | Mod::a1d)) => 1,
                () if mods.iter().any(|m| matches!(m, Mod::_2d | Mod::a2d)) => 2,
                () => 4,
            };
            Some(list(n, |i| format!("f32r{}", 200 + i)))
        }
        _ if op.name().starts_with('v') && at == 0 => Some("b32r1".into()),
        _ => None,
    }
}

/// The operands of a form with these modifiers; `optional` of those that may be absent are there.
pub fn operands(op: Op, form: &Form, mods: &[Mod], style: Style, optional: usize) -> Option<Vec<String>> {
    let mut left = optional;
    let mut out = Vec::new();
    for (at, spec) in form.operands_with(mods).enumerate() {
        if spec.optional && spec.with.is_empty() {
            let Some(n) = left.checked_sub(1) else { break };
            left = n;
        }
        match operand(op, mods, spec, at, style) {
            Some(o) => out.push(o),
            None if spec.optional => break,
            None => return None,
        }
    }
    Some(out)
}

/// What stands for an operand now and then: registers of all types, constants, addresses, lists, names.
pub const OTHERS: &[&str] = &[
    "p1",
    "b8r1",
    "b16r1",
    "u16r1",
    "s16r1",
    "f16r1",
    "b32r1",
    "u32r1",
    "s32r1",
    "f32r1",
    "b64r1",
    "u64r1",
    "s64r1",
    "f64r1",
    "3",
    "-1",
    "1.5",
    "0f3F800000",
    "0d3FF0000000000000",
    "[b64r1]",
    "[b32r1]",
    "[gv]",
    "[sv]",
    "gv",
    "sv",
    "k1",
    "%tid.x",
    "%clock64",
    "_",
    "!p1",
    "p1|p2",
    "{b32r1, b32r2}",
    "{f32r1, f32r2, f32r3, f32r4}",
    "K",
    "b32r1|p1",
    "-b32r1",
    "b32r1.h0",
    "b128r1",
    "[b16r1]",
    "[f64r1]",
    "[p1]",
    "[16]",
    "[lv]",
    "[cv+8]",
    "[k0]",
    "[gv+8]",
    "[%clock64]",
    "[%laneid]",
    "[b64r1, {b32r1}]",
    "[b64r1+8, {b32r1, b32r2}]",
    "[gv, {b32r1, b32r2}]",
    "[16, {b32r1, b32r2}]",
    "{b32r1, f32r1}",
    "{b32r1, b32r2, b32r3, f32r4}",
    "{%laneid, b32r2}",
    "{b32r1, 3}",
];

/// Puts something else in the place of one operand, drops one or adds one.
pub fn spoil(operands: &mut Vec<String>, random: &mut Random) -> &'static str {
    if operands.is_empty() || random.below(8) == 0 {
        operands.push((*random.pick(OTHERS)).to_string());
        return "an operand more";
    }
    let at = random.below(operands.len());
    if random.below(8) == 0 {
        operands.remove(at);
        return "an operand less";
    }
    operands[at] = (*random.pick(OTHERS)).to_string();
    "another operand"
}

/// The modifiers of a form: every alternative once, the optional ones absent otherwise.
pub fn modifiers(form: &Form) -> BTreeSet<Vec<Mod>> {
    let choice = |fixed: Option<(usize, usize)>| -> Vec<Mod> {
        let mut mods = Vec::new();
        for (g, group) in form.groups.iter().enumerate() {
            match fixed {
                Some((at, n)) if at == g => mods.extend_from_slice(group.alternatives[n]),
                _ if group.optional => {}
                _ => mods.extend_from_slice(group.alternatives[0]),
            }
        }
        mods
    };
    let mut out = BTreeSet::from([choice(None)]);
    for (g, group) in form.groups.iter().enumerate() {
        out.extend((0..group.alternatives.len()).map(|n| choice(Some((g, n)))));
    }
    out
}
