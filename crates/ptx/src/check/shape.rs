//! What the table says about a mnemonic with certain words, looked up once for all instructions of a module that
//! have them.

use super::Checker;
use super::operand::space_of;
use crate::ast::{Inst, Space};
use crate::isa::{Form, Mod, Op, OperandKind, OperandSpec, Type, TypeRef, Values};
use smallvec::SmallVec;
use std::rc::Rc;

/// An operand of a form, with what the instruction's words make of it.
pub(super) struct Slot {
    pub(super) spec: &'static OperandSpec,
    /// Its type; `None` if the words have none.
    pub(super) ty: Option<Type>,
    /// How many components it has if it is a vector by `.v2`, `.v4` or `.v8`.
    pub(super) vector: Option<usize>,
    /// How many registers stand in its braces, if it is a list.
    pub(super) length: Option<usize>,
    /// Twice as wide as its type.
    pub(super) double: bool,
    /// One value that is read or written, and nothing else to be said of it.
    pub(super) plain: bool,
}

/// A form that has the words of the instruction.
pub(super) struct Plan {
    pub(super) slots: SmallVec<[Slot; 4]>,
    /// So many operands must be there.
    needed: usize,
}

impl Plan {
    pub(super) fn new(op: Op, mods: &[Mod], form: &'static Form) -> Plan {
        let vector = vector_len(mods);
        let wide = mods.contains(&Mod::wide);
        let slots = form.operands_with(mods).enumerate().map(|(at, spec)| Slot {
            spec,
            ty: match spec.ty {
                TypeRef::Fixed(t) => Some(t),
                TypeRef::Mod(n) => mods.iter().filter_map(|m| m.as_type()).nth(n.into()),
            },
            vector: vector.filter(|_| spec.vector),
            length: match spec.count {
                Some(255) => super::list_length(op, mods, at),
                n => n.map(usize::from),
            },
            double: wide && spec.wider,
            plain: matches!(spec.kind, OperandKind::Dst | OperandKind::Src | OperandKind::DstPred)
                && spec.count.is_none()
                && !spec.vector
                && !spec.exact
                && !(wide && spec.wider),
        });
        let needed = form.operands_with(mods).filter(|o| !o.optional || !o.with.is_empty()).count();
        Plan { slots: slots.collect(), needed }
    }

    /// Whether so many operands may stand there.
    pub(super) fn takes(&self, operands: usize) -> bool {
        (self.needed..=self.slots.len()).contains(&operands)
    }
}

/// All that is known of instructions with the same mnemonic and words.
pub(super) struct Shape {
    pub(super) op: Op,
    pub(super) mods: SmallVec<[Mod; 8]>,
    /// The forms that have these words in this order, and exist here.
    pub(super) plans: Vec<Plan>,
    /// Whether a word needs more than there is.
    pub(super) gated: bool,
    /// Whether some constants are out of range.
    pub(super) ranged: bool,
    /// State spaces among the words, in order.
    pub(super) spaces: SmallVec<[Space; 4]>,
}

impl Checker<'_> {
    /// What the table says of `inst`'s mnemonic and words.
    pub(super) fn shape(&mut self, inst: &Inst) -> Rc<Shape> {
        if let Some(last) = &self.last
            && last.op == inst.op
            && last.mods == inst.mods
        {
            return Rc::clone(last);
        }
        let key = (inst.op, inst.mods.clone());
        let shape = match self.shapes.get(&key) {
            Some(shape) => Rc::clone(shape),
            None => {
                let shape = Rc::new(self.new_shape(inst.op, &inst.mods));
                self.shapes.insert(key, Rc::clone(&shape));
                shape
            }
        };
        self.last = Some(Rc::clone(&shape));
        shape
    }

    fn new_shape(&self, op: Op, mods: &[Mod]) -> Shape {
        let forms = op.forms();
        let plans = forms.iter().filter(|f| f.matches(mods) && self.open(f)).map(|f| Plan::new(op, mods, f));
        let version = self.module.version;
        let closed = |m: &Mod| {
            m.gates(op)
                .any(|gate| gate.version > version || version >= gate.until || !gate.on(self.sm, self.suffix))
        };
        Shape {
            op,
            mods: mods.into(),
            plans: plans.collect(),
            gated: mods.iter().any(closed),
            ranged: forms.iter().any(|f| f.operands.iter().any(|o| o.values != Values::All)),
            spaces: mods.iter().filter_map(|m| space_of(*m)).collect(),
        }
    }
}

/// How many components `.v2`, `.v4` or `.v8` ask for.
pub(super) fn vector_len(mods: &[Mod]) -> Option<usize> {
    mods.iter().find_map(|m| match m {
        Mod::v2 => Some(2),
        Mod::v4 => Some(4),
        Mod::v8 => Some(8),
        _ => None,
    })
}
