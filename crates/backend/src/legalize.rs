//! Makes every instruction encodable on the target: at most one source that is not a general register, in a
//! slot whose forms allow it; commutative operands are swapped for that, other sources copied to registers.
//! Switches become trees of comparisons.

use crate::Error;
use ori::{Block, BlockCall, Function, InstData, Loc, Macro, Name, Op, Operand, Operands, Terminator, Value};
use ori::{default_operand, operand};
use rustc_hash::FxHashMap;
use sass::ops::{Bool, Icmp, Int64, Isetp, IsetpMods, Lop3, Plop3};
use sass::{
    ConstBank, Guard, Mod, Mods, Opcode, Reg, RegFile, RegOp, SlotKind, SourceKinds, SwapChange, Target,
    WideImmediate,
};
use smallvec::SmallVec;
use thin_vec::{ThinVec, thin_vec};

/// How far an address offset reaches: 24 bits, signed.
const OFFSET_RANGE: std::ops::Range<i32> = -(1 << 23)..1 << 23;

/// Legalizes a function in SSA.
///
/// # Errors
/// On an instruction that no sequence for the target is known for.
pub fn run(func: &mut Function) -> Result<(), Error> {
    expand_switches(func);
    for b in func.layout.clone() {
        let insts = std::mem::take(&mut func.blocks[b].insts);
        let mut pass = Legalizer {
            target: func.target,
            func,
            out: Vec::with_capacity(insts.len()),
            constants: FxHashMap::default(),
            uniform: FxHashMap::default(),
            immediates: FxHashMap::default(),
            loc: Loc::default(),
        };
        for i in insts {
            let mut data = pass.func.insts[i].clone();
            pass.loc = data.loc;
            pass.instruction(&mut data)?;
            pass.func.insts[i] = data;
            pass.out.push(i);
        }
        let out = pass.out;
        func.blocks[b].insts = out;
    }
    Ok(())
}

/// Whether ptxas loads zero into a register for this operand; everywhere else it names RZ.
fn holds_zero(op: Opcode, mods: &Mods, at: usize) -> bool {
    use Opcode::*;
    match op {
        ATOM | ATOMG => at > 2 && mods.has(Mod::CAS),
        ATOMS => at > 1 && mods.has(Mod::CAS),
        SYNCS_PHASECHK => at == 2,
        _ => false,
    }
}

struct Legalizer<'f> {
    func: &'f mut Function,
    target: Target,
    out: Vec<ori::Inst>,
    /// Constants loaded earlier in the block: bank, offset and width.
    constants: FxHashMap<(u8, i32, u8), Value>,
    /// The same in uniform registers: words.
    uniform: FxHashMap<(u8, i32), Value>,
    /// Immediates put into registers earlier in the block.
    immediates: FxHashMap<u32, Value>,
    loc: Loc,
}

/// Whether an operand has a minus or is complemented.
pub fn is_signed<R, L>(o: &sass::Operand<R, L>) -> bool {
    match o {
        sass::Operand::Reg(r) => r.neg || r.not,
        sass::Operand::Const { neg, not, .. } => *neg || *not,
        _ => false,
    }
}

/// Whether a source is a register of the file that the opcode works on.
fn is_reg(func: &Function, op: Opcode, o: &Operand) -> bool {
    let file = if op.is_uniform() { RegFile::UR } else { RegFile::R };
    matches!(o, Operand::Reg(r) if func.shape(r.reg).file == file)
}

impl Legalizer<'_> {
    fn push(&mut self, op: Op, mods: &[Mod], operands: Operands) {
        let data = InstData {
            guard: ori::ALWAYS,
            op,
            mods: Mods::of(mods),
            operands,
            kept: ThinVec::new(),
            loc: self.loc,
        };
        let inst = self.func.insts.push(data);
        self.out.push(inst);
    }

    fn instruction(&mut self, d: &mut InstData) -> Result<(), Error> {
        self.hold_kept(d);
        let Op::Sass(op) = d.op else { return Ok(()) };
        for i in 0..d.operands.len() {
            if holds_zero(op, &d.mods, i) && d.operands[i] == operand(Name::Phys(Reg::RZ)) {
                let zeros: SmallVec<[Operand; 2]> =
                    (0..op.width(i, &d.mods)).map(|_| d.operands[i]).collect();
                let copy = if zeros.len() == 1 { Macro::Copy } else { Macro::Collect };
                d.operands[i] = operand(self.define(copy, zeros.len() as u8, &zeros));
            }
        }
        for o in &d.operands {
            if let Operand::Addr { offset, .. } = o
                && !OFFSET_RANGE.contains(offset)
            {
                return Err(Error::at(self.loc.0, format!("address offset {offset:#x} is too large")));
            }
        }
        if op == Opcode::BAR {
            // A number that turned out to be zero is a number all the same.
            for o in d.operands[..2].iter_mut().filter(|o| **o == operand(Name::Phys(Reg::RZ))) {
                *o = Operand::Imm(0);
            }
            // One register for the barrier's number and, in its upper half, how many threads, turned out to be known. Nothing else has
            // the same twice, but for zeros: how many threads is a multiple of a warp.
            if let [Operand::Imm(number), Operand::Imm(count)] = &mut d.operands[..2]
                && number == count
            {
                (*number, *count) = (*number & 0xf, *count >> 16);
            }
        }
        let slots: SmallVec<[usize; 4]> =
            (0..d.operands.len()).filter(|&i| op.slots()[i].kind == SlotKind::Source).collect();
        if slots.is_empty() {
            return Ok(());
        }
        let info = op.info();
        let takes = |i: usize| info.sources.contains(&(i as u8));
        let each = info.source_kinds == SourceKinds::Immediates;
        let no_number = info.source_kinds == SourceKinds::Constant;
        // Zero is a register.
        if !each && (no_number || !takes(slots[0])) {
            for &i in &slots {
                if d.operands[i] == Operand::Imm(0) {
                    let zero = if op.is_uniform() { Reg::URZ } else { Reg::RZ };
                    d.operands[i] = operand(Name::Phys(zero));
                }
            }
        }
        // Constants that no form takes.
        let immediates_only = matches!(info.source_kinds, SourceKinds::Immediate | SourceKinds::Immediates);
        if !immediates_only {
            self.hold_uniformly(d, &slots);
        }
        for &i in &slots {
            let bad = match &d.operands[i] {
                Operand::Const { .. } => !self.target.info().alu_const || immediates_only,
                Operand::Imm(_) => {
                    // One of a floating-point instruction is the whole operand.
                    let integer = info.wide_immediate == WideImmediate::Integer;
                    op.width(i, &d.mods) > 1 && integer || each && !takes(i) || no_number
                }
                Operand::Reg(r) => {
                    self.func.shape(r.reg).file == RegFile::UR && immediates_only && !op.is_uniform()
                }
                _ => false,
            };
            if bad {
                self.materialize(d, i);
            }
        }
        if op == Opcode::SHFL {
            // The bits that count.
            for (n, bits) in [(1, 0x1f), (2, 0x1f1f)] {
                if let Operand::Imm(x) = &mut d.operands[slots[n]] {
                    *x &= bits;
                }
            }
        }
        if each {
            return Ok(());
        }
        commute(self.func, d, &slots);
        // At most one stays: a pair of constants, which two instructions would load, before a single word.
        let can_stay = |d: &InstData, i: usize| {
            let wide = matches!(d.operands[i], Operand::Const { .. }) && op.width(i, &d.mods) == 2;
            (!is_reg(self.func, op, &d.operands[i]) && takes(i)).then_some((!wide, i))
        };
        let stays = slots.iter().filter_map(|&i| can_stay(d, i)).min().map(|s| s.1);
        for &i in &slots {
            if !is_reg(self.func, op, &d.operands[i]) && stays != Some(i) {
                self.materialize(d, i);
            }
        }
        if matches!(op, Opcode::FMUL | Opcode::DMUL) {
            negate_second(d);
        }
        self.part_signs(d);
        Ok(())
    }

    /// Three terms with a minus are two sums: of the first two of one only one may have a sign ([`sass::compute::signed_terms`]). Where it is two,
    /// they change places when the code is laid out.
    fn part_signs(&mut self, d: &mut InstData) {
        let Op::Sass(op) = d.op else { return };
        let Some([a, b, c]) = sass::compute::signed_terms(op) else { return };
        if ![a, b, c].iter().all(|i| is_signed(&d.operands[*i])) {
            return;
        }
        let (uniform, phys) = (op.is_uniform(), |r| operand(Name::Phys(r)));
        let (file, predicates) = if uniform { (RegFile::UR, RegFile::UP) } else { (RegFile::R, RegFile::P) };
        let (zero, yes) = if uniform { (Reg::URZ, Reg::UPT) } else { (Reg::RZ, Reg::PT) };
        if d.mods.has(Mod::X) {
            // A complement is a number like another, and carries as the register does that holds it.
            let Operand::Reg(term) = d.operands[a] else { return };
            let complement = operand(self.func.add_value(file, 1));
            let join = Operand::Reg(RegOp { not: true, ..RegOp::plain(Name::Phys(yes)) });
            let (a_, zero, table) = (operand(term.reg), phys(zero), Operand::Imm(0x0f));
            let logic = Lop3 { p: phys(yes), d: complement, a: a_, b: zero, c: zero, table, join }.list();
            d.operands[a] = complement;
            let op = if uniform { Opcode::ULOP3 } else { Opcode::LOP3 };
            return self.push(Op::Sass(op), &[Mod::LUT], logic.into_iter().collect());
        }
        let carries = d.operands[1..a].iter().any(|o| *o != phys(yes));
        if carries && !d.is_unguarded() {
            return;
        }
        let sum = operand(self.func.add_value(file, 1));
        let carry =
            [(); 3].map(|()| if carries { operand(self.func.add_value(predicates, 1)) } else { phys(yes) });
        let mut first = d.operands.clone();
        (first[0], first[1], first[2], first[a]) = (sum, carry[0], carry[1], phys(zero));
        self.push(d.op, &[], first);
        let mut last = d.operands.clone();
        (last[1], last[2], last[b], last[c]) = (carry[2], phys(yes), sum, phys(zero));
        if !carries {
            d.operands = last;
            return;
        }
        // The minus of zero carries, so that both sums say what they carry: all three terms at least one, or at least two.
        self.push(d.op, &[], last);
        let [a, b, c] = carry;
        let (p, q, table, table2) = (d.operands[1], d.operands[2], Operand::Imm(0xfe), Operand::Imm(0xec));
        d.op = Op::Sass(if uniform { Opcode::UPLOP3 } else { Opcode::PLOP3 });
        d.mods = Mods::of(&[Mod::LUT]);
        d.operands = Plop3 { p, q, a, b, c, table, table2 }.list().into_iter().collect();
    }

    /// A constant that is the only source other than a general register comes by a uniform one, as in ptxas's code, where
    /// ULDC brings it: that takes no place in the queue of loads, and a few cycles.
    fn hold_uniformly(&mut self, d: &mut InstData, slots: &[usize]) {
        let Op::Sass(op) = d.op else { return };
        let info = op.info();
        let target = self.target.info();
        if target.alu_const || target.constant_load != Opcode::ULDC {
            return;
        }
        let mut others = slots.iter().copied().filter(|i| !is_reg(self.func, op, &d.operands[*i]));
        let (Some(at), None) = (others.next(), others.next()) else { return };
        let Operand::Const {
            bank: ConstBank::Index(bank),
            index: None,
            offset,
            neg: false,
            abs: false,
            not: false,
        } = d.operands[at]
        else {
            return;
        };
        let taken = |i: usize| info.sources.contains(&(i as u8));
        let moves = info.swap.contains(&(at as u8))
            && info.swap_changes == SwapChange::Nothing
            && slots.get(1).is_some_and(|to| taken(*to) && info.swap.contains(&(*to as u8)));
        if op.width(at, &d.mods) == 1 && (taken(at) || moves) {
            d.operands[at] = operand(self.uniform_constant(bank, offset));
        }
    }

    /// What a guarded instruction keeps where its guard is false must lie in a register that can be written.
    fn hold_kept(&mut self, d: &mut InstData) {
        let mut defs: SmallVec<[Name; 2]> = SmallVec::new();
        d.for_each_def(|n| defs.push(n));
        for (k, def) in defs.into_iter().enumerate() {
            if let (Name::Val(v), Some(Name::Phys(r))) = (def, d.kept.get(k).copied()) {
                let shape = self.func.values[v];
                let held = self.func.add_value(shape.file, shape.width);
                let (m, count) =
                    if shape.width == 1 { (Macro::Copy, 1) } else { (Macro::Collect, shape.width) };
                let sources = std::iter::repeat_n(operand(Name::Phys(r)), usize::from(count));
                self.push(Op::Macro(m), &[], std::iter::once(operand(held)).chain(sources).collect());
                d.kept[k] = Name::Val(held);
            }
        }
    }

    /// Replaces source `i` by a register that holds the same value.
    fn materialize(&mut self, d: &mut InstData, i: usize) {
        let Op::Sass(op) = d.op else { return };
        let width = op.width(i, &d.mods);
        let (name, neg, abs, not) = match d.operands[i] {
            Operand::Reg(r) => (self.define(Macro::Copy, width, &[operand(r.reg)]), r.neg, r.abs, r.not),
            Operand::Imm(n) if width == 2 => {
                let words = match op.info().wide_immediate {
                    WideImmediate::HighHalf => [0, n],
                    WideImmediate::Both => [n, n],
                    WideImmediate::Integer if d.mods.has(Mod::U32) => [n, 0],
                    WideImmediate::Integer | WideImmediate::Extended => [n, ((n as i32) >> 31) as u32],
                };
                let parts = words.map(Operand::Imm);
                (self.define(Macro::Collect, 2, &parts), false, false, false)
            }
            Operand::Const { bank: ConstBank::Index(bank), index: None, offset, neg, abs, not } => {
                let value = if self.target.info().alu_const {
                    let parts: SmallVec<[Operand; 2]> =
                        (0..i32::from(width)).map(|k| Operand::constant(bank, offset + 4 * k)).collect();
                    self.define(if width == 1 { Macro::Copy } else { Macro::Collect }, width, &parts)
                } else {
                    self.constant(bank, offset, width)
                };
                (value, neg, abs, not)
            }
            Operand::Imm(n) if width == 1 => (self.immediate(n), false, false, false),
            other => (self.define(Macro::Copy, width, &[other]), false, false, false),
        };
        d.operands[i] = Operand::Reg(RegOp { reg: name.into(), neg, abs, not, reuse: false });
    }

    fn define(&mut self, m: Macro, width: u8, sources: &[Operand]) -> Value {
        let v = self.func.add_value(RegFile::R, width);
        let mut operands: Operands = ThinVec::new();
        operands.push(operand(v));
        operands.extend(sources.iter().cloned());
        self.push(Op::Macro(m), &[], operands);
        v
    }

    /// An immediate in a register, once a block.
    fn immediate(&mut self, n: u32) -> Value {
        if let Some(v) = self.immediates.get(&n) {
            return *v;
        }
        let v = self.define(Macro::Copy, 1, &[Operand::Imm(n)]);
        self.immediates.insert(n, v);
        v
    }

    /// A word of constant memory in a uniform register, once a block.
    fn uniform_constant(&mut self, bank: u8, offset: i32) -> Value {
        if let Some(v) = self.uniform.get(&(bank, offset)) {
            return *v;
        }
        let v = self.func.add_value(RegFile::UR, 1);
        let operands = thin_vec![operand(v), Operand::constant(bank, offset)];
        self.push(Op::Sass(Opcode::ULDC), &[], operands);
        self.uniform.insert((bank, offset), v);
        v
    }

    /// A value loaded from constant memory, once a block.
    fn constant(&mut self, bank: u8, offset: i32, width: u8) -> Value {
        if let Some(v) = self.constants.get(&(bank, offset, width)) {
            return *v;
        }
        let v = self.func.add_value(RegFile::R, width);
        let mods: &[Mod] = if width == 2 { &[Mod::_64] } else { &[] };
        let operands = thin_vec![operand(v), Operand::constant(bank, offset)];
        self.push(Op::Sass(Opcode::LDC), mods, operands);
        self.constants.insert((bank, offset, width), v);
        v
    }
}

/// Moves a source that is no register to where a form takes it, by exchanging sources.
pub fn commute(func: &Function, d: &mut InstData, slots: &[usize]) {
    let Op::Sass(op) = d.op else { return };
    let info = op.info();
    let reg = |d: &InstData, i: usize| is_reg(func, op, &d.operands[i]);
    // Forms take it as their second source.
    let Some(&to) = slots.get(1).filter(|i| info.sources.contains(&(**i as u8))) else { return };
    let change = info.swap_changes;
    // A comparison of upper words, unless for equality, and one that says which number is the greater, mean their sides.
    let equality = matches!(d.mods.0.first(), Some(Mod::EQ | Mod::NE));
    let sided = d.mods.iter().any(|m| matches!(m, Mod::MAX | Mod::MIN) || m == Mod::EX && !equality);
    if !info.swap.contains(&(to as u8)) || change == SwapChange::Compare && sided {
        return;
    }
    let others = info.swap.iter().map(|i| usize::from(*i)).filter(|i| *i != to);
    let Some(from) = others.into_iter().find(|i| !reg(d, *i) && reg(d, to)) else { return };
    d.operands.swap(from, to);
    let behind = info.swap.iter().max().map_or(0, |i| usize::from(*i) + 1);
    match change {
        SwapChange::Nothing => {}
        SwapChange::Lut => {
            if let Operand::Imm(lut) = &mut d.operands[behind] {
                *lut = swap_lut(*lut, usize::from(from > to) * 2);
            }
        }
        SwapChange::Select => {
            if let Operand::Reg(p) = &mut d.operands[behind] {
                p.not = !p.not;
            }
        }
        SwapChange::Compare => {
            if let Some(m) = d.mods.0.first_mut() {
                *m = flipped(*m);
            }
        }
    }
}

/// ptxas never negates the first factor of a product, but the second.
fn negate_second(d: &mut InstData) {
    let [_, Operand::Reg(first), second, ..] = &mut d.operands[..] else { return };
    if !first.neg {
        return;
    }
    match second {
        Operand::Reg(r) => r.neg = !r.neg,
        Operand::Const { neg, .. } => *neg = !*neg,
        // Of a binary64 number the high half.
        Operand::Imm(n) => *n ^= 1 << 31,
        _ => return,
    }
    first.neg = false;
}

/// The comparison with its sides exchanged.
fn flipped(m: Mod) -> Mod {
    match m {
        Mod::LT => Mod::GT,
        Mod::GT => Mod::LT,
        Mod::LE => Mod::GE,
        Mod::GE => Mod::LE,
        Mod::LTU => Mod::GTU,
        Mod::GTU => Mod::LTU,
        Mod::LEU => Mod::GEU,
        Mod::GEU => Mod::LEU,
        other => other,
    }
}

/// LOP3's table with source b exchanged with source a (`n` = 0) or c (`n` = 2). Row `a·4 + b·2 + c`.
fn swap_lut(lut: u32, n: usize) -> u32 {
    (0..8).fold(0, |out, row| {
        let (a, b, c) = (row >> 2 & 1, row >> 1 & 1, row & 1);
        let from = if n == 0 { b << 2 | a << 1 | c } else { a << 2 | c << 1 | b };
        out | (lut >> from & 1) << row
    })
}

/// Turns each switch into a balanced tree of unsigned comparisons.
fn expand_switches(func: &mut Function) {
    for b in func.layout.clone() {
        if !matches!(func.blocks[b].term, Terminator::Switch { .. }) {
            continue;
        }
        let term = std::mem::replace(&mut func.blocks[b].term, Terminator::Unreachable);
        let Terminator::Switch { index, table } = term else { continue };
        // Runs of equal targets: the first index of each.
        let mut runs: Vec<(u32, BlockCall)> = Vec::new();
        for (k, call) in (0..).zip(table) {
            if runs.last().is_none_or(|(_, last)| *last != call) {
                runs.push((k, call));
            }
        }
        let made = func.layout.len();
        tree(func, b, index, &runs);
        // The new blocks follow the switch.
        let at = func.layout.iter().position(|x| *x == b).map_or(0, |p| p + 1);
        let new = func.layout.len() - made;
        func.layout[at..].rotate_right(new);
    }
}

fn tree(func: &mut Function, b: Block, index: Name, runs: &[(u32, BlockCall)]) {
    let loc = func.blocks[b].term_loc;
    match runs {
        [] => func.blocks[b].term = Terminator::Unreachable,
        [(_, call)] => func.blocks[b].term = Terminator::Jump(call.clone()),
        _ => {
            let (low, high) = runs.split_at(runs.len() / 2);
            let cond = func.add_value(RegFile::P, 1);
            let pt = default_operand(Opcode::ISETP, Isetp::Q);
            let operands = Isetp {
                p: operand(cond),
                q: pt,
                a: operand(index),
                b: Operand::Imm(high[0].0),
                join: pt,
                lower: pt,
            };
            let mods = IsetpMods { cmp: Icmp::LT, kind: Some(Int64::U32), join: Bool::AND, extended: false };
            let inst = func.insts.push(InstData {
                guard: Guard { pred: Name::Phys(Reg::PT), not: false },
                op: Op::Sass(Opcode::ISETP),
                mods: mods.mods(),
                operands: operands.list().into(),
                kept: ThinVec::new(),
                loc,
            });
            func.blocks[b].insts.push(inst);
            let mut side = |runs: &[(u32, BlockCall)]| match runs {
                [(_, call)] => call.clone(),
                _ => {
                    let block = func.add_block();
                    func.blocks[block].term_loc = loc;
                    tree(func, block, index, runs);
                    BlockCall { block, args: SmallVec::new() }
                }
            };
            let taken = side(low);
            let fall = side(high);
            func.blocks[b].term = Terminator::Branch { cond: cond.into(), not: false, taken, fall };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lut_swaps() {
        let (a, b, c) = (0xf0u32, 0xccu32, 0xaau32);
        assert_eq!(swap_lut(a & !b & 0xff, 0), b & !a & 0xff);
        assert_eq!(swap_lut(b & !c & 0xff, 2), c & !b & 0xff);
    }
}
