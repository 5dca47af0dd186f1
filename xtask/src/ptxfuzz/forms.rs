//! The arithmetic instructions that programs are made of: every form of the front end's table with every choice of
//! modifiers whose result PTX defines to the bit.

use super::class::Class;
use ptx::isa::{Form, OperandKind, TypeRef};
use ptx::{Mod, Op, Type};
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

/// What stands at an operand's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// A written register.
    Dst(Class),
    /// A written register, perhaps with a predicate.
    DstPred(Class),
    /// One or two written predicates.
    PredPair,
    /// A source, perhaps constant.
    Src(Class, Type),
    /// A predicate, perhaps negated.
    PredSrc,
    /// A constant.
    Imm,
}

/// An instruction with its modifiers.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Mnemonic and modifiers.
    pub text: String,
    /// The mnemonic.
    pub op: Op,
    /// Operands.
    pub slots: Vec<Slot>,
}

impl Operation {
    /// Whether ptxas gives another result than the PTX manual (docs/verification.md).
    fn miscompiled(&self) -> bool {
        let has = |m: &str| self.text.split('.').any(|w| w == m);
        match self.op {
            Op::vmad => has("sat") || has("shr7") || has("shr15"),
            Op::szext => true,
            Op::fns => true,
            _ => false,
        }
    }

    /// Whether ptxas, which makes several instructions of it, guards all of them.
    pub fn may_be_guarded(&self) -> bool {
        !(matches!(self.op, Op::testp | Op::set) || self.op.name().starts_with('v'))
    }

    /// Whether it compares 16-bit floating-point numbers, which gives one predicate only unless they are pairs.
    pub fn halves(&self) -> bool {
        self.op == Op::setp && (self.text.ends_with("f16") || self.text.ends_with("bf16"))
    }
}

/// Operations by mnemonic.
pub type Table = Vec<Vec<Operation>>;

/// Mnemonics; those that stand first are more frequent.
const OPS: &[&str] = &[
    "add",
    "sub",
    "mul",
    "mad",
    "and",
    "or",
    "xor",
    "shl",
    "shr",
    "selp",
    "setp",
    "cvt",
    "fma",
    "min",
    "max",
    "lop3",
    "prmt",
    "shf",
    "bfe",
    "bfi",
    "set",
    "slct",
    "not",
    "neg",
    "abs",
    "sad",
    "div",
    "rem",
    "popc",
    "clz",
    "bfind",
    "brev",
    "cnot",
    "mul24",
    "mad24",
    "szext",
    "bmsk",
    "dp4a",
    "dp2a",
    "rcp",
    "sqrt",
    "testp",
    "fns",
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

/// How many of the mnemonics are the frequent ones.
pub const FREQUENT: usize = 23;

/// The operations that a target has, made on first use.
pub fn table(sm: u8, vendor: bool) -> &'static Table {
    static TABLES: OnceLock<Mutex<BTreeMap<(u8, bool), &'static Table>>> = OnceLock::new();
    let tables = TABLES.get_or_init(Mutex::default);
    let mut tables = tables.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    tables.entry((sm, vendor)).or_insert_with(|| Box::leak(Box::new(build(sm, vendor))))
}

fn build(sm: u8, vendor: bool) -> Table {
    let one = |name: &&str| -> Vec<Operation> {
        let Some(op) = Op::parse(name) else { return Vec::new() };
        let forms = op.forms().iter().flat_map(|f| choices(f).into_iter().map(move |m| (f, m)));
        forms
            .filter_map(|(f, mods)| operation(op, f, &mods))
            .filter(|o| legal(o, sm) && !(vendor && o.miscompiled()))
            .collect()
    };
    OPS.iter().map(one).filter(|list| !list.is_empty()).collect()
}

/// Every choice of modifiers.
fn choices(form: &Form) -> Vec<Vec<Mod>> {
    let mut all: Vec<Vec<Mod>> = vec![Vec::new()];
    for g in form.groups {
        let mut next = if g.optional { all.clone() } else { Vec::new() };
        for so_far in &all {
            next.extend(g.alternatives.iter().map(|a| so_far.iter().chain(a.iter()).copied().collect()));
        }
        all = next;
    }
    all
}

fn operation(op: Op, form: &Form, mods: &[Mod]) -> Option<Operation> {
    let has = |m: Mod| mods.contains(&m);
    let types: Vec<Type> = mods.iter().filter_map(|m| m.as_type()).collect();
    // Approximate results; carries, which have their own chains; stochastic rounding; the sign of a NaN.
    if has(Mod::approx)
        || has(Mod::full)
        || has(Mod::cc)
        || has(Mod::rs)
        || has(Mod::xorsign)
        || has(Mod::oob)
    {
        return None;
    }
    // Products and sums without a rounding mode may be contracted.
    let rounded = [Mod::rn, Mod::rz, Mod::rm, Mod::rp].iter().any(|m| has(*m));
    let float = types.first().is_some_and(|t| t.is_float());
    if float && matches!(op, Op::add | Op::sub | Op::mul | Op::mad) && !rounded {
        return None;
    }
    let video = op.name().starts_with('v');
    // An operation after the operation needs its operand.
    let two_steps = video && mods.iter().skip(2).any(|m| matches!(m, Mod::add | Mod::min | Mod::max));
    let all = form.operands.iter();
    let count = if video && !two_steps { all.filter(|o| !o.optional).count() } else { all.count() };
    let mut slots = Vec::new();
    for (i, spec) in form.operands.iter().take(count).enumerate() {
        let t = match spec.ty {
            TypeRef::Fixed(t) => t,
            TypeRef::Mod(n) => *types.get(usize::from(n)).or(types.last())?,
        };
        let t = if spec.wider && has(Mod::wide) { wide(t) } else { t };
        slots.push(match spec.kind {
            OperandKind::PredDst | OperandKind::PredPair => Slot::PredPair,
            OperandKind::PredSrc => Slot::PredSrc,
            OperandKind::Imm => Slot::Imm,
            OperandKind::DstPred => Slot::DstPred(Class::of(t)?),
            OperandKind::Dst | OperandKind::Any if i == 0 => Slot::Dst(Class::of(t)?),
            OperandKind::Src | OperandKind::Part | OperandKind::Any => Slot::Src(Class::of(t)?, t),
            _ => return None,
        });
    }
    let mut text = op.name().to_string();
    mods.iter().for_each(|m| {
        text.push('.');
        text.push_str(m.name());
    });
    Some(Operation { text, op, slots })
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

/// Whether the front end takes it.
fn legal(o: &Operation, sm: u8) -> bool {
    let mut text = format!(".version 9.0\n.target sm_{sm}\n.address_size 64\n.visible .entry k()\n{{\n");
    let mut args = Vec::new();
    for (i, s) in o.slots.iter().enumerate() {
        let (class, arg) = match s {
            Slot::Dst(c) | Slot::DstPred(c) | Slot::Src(c, _) => (*c, format!("%a{i}")),
            Slot::PredPair | Slot::PredSrc => (Class::P, format!("%a{i}")),
            Slot::Imm => (Class::P, "1".into()),
        };
        text.push_str(&format!(".reg .{} %a{i};\n", class.register()));
        args.push(arg);
    }
    text.push_str(&format!("{} {};\nret;\n}}\n", o.text, args.join(", ")));
    super::run::front_end(&text, sm).is_ok()
}
