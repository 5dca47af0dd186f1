//! Puts what was chosen for uniform registers there.

use crate::regalloc::spill::is_constant;
use crate::{addends, legalize, remat};
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::cfg::{Cfg, DomTree};
use ori::loops::LoopForest;
use ori::{ALWAYS, Block, Function, Inst, InstData, Loc, Macro, Name, Op, Operand, Value, operand};
use rustc_hash::FxHashMap;
use sass::ops::R2ur;
use sass::{ConstBank, Mod, Mods, Opcode, Reg, RegFile, RegOp, SlotKind};
use smallvec::SmallVec;
use thin_vec::ThinVec;

/// Puts the chosen values into uniform registers, beside those that were brought there already. As many as `room` may hold constants from
/// outside of loops on.
pub fn convert(
    func: &mut Function,
    cfg: &Cfg,
    chosen: &FixedBitSet,
    moved: &mut FixedBitSet,
    mut room: usize,
    dom: &DomTree,
    loops: &LoopForest,
) {
    keep_numbers(func, cfg, chosen);
    moved.grow(func.values.len());
    for v in func.values.keys().filter(|v| chosen.contains(v.index())).collect::<Vec<_>>() {
        if func.values[v].file == RegFile::R {
            func.values[v].file = RegFile::UR;
            moved.insert(v.index());
        }
    }
    let mut hoisted: Vec<(Constant, Value, Block)> = Vec::new();
    let mut at: Vec<(Constant, Block)> =
        constants_in_loops(func, cfg, chosen, dom, loops).into_iter().collect();
    at.sort_unstable();
    for (c, mut b) in at {
        while loops.depth(b) > 0
            && let Some(up) = dom.idom(b)
        {
            b = up;
        }
        if usize::from(c.2) <= room {
            room -= usize::from(c.2);
            let mut held = Held::new(func);
            hoisted.push((c, held.constant(c, Loc::default()), b));
            // Before all that reads it there.
            let made = held.out;
            func.blocks[b].insts.splice(0..0, made);
        }
    }
    // The uniform ones beside comparisons.
    let mut beside: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    for &b in &cfg.rpo {
        let old = std::mem::take(&mut func.blocks[b].insts);
        let mut out = Vec::with_capacity(old.len());
        // What is made before a loop is there for what it dominates.
        let constants = hoisted.iter().filter(|h| dom.dominates(h.2, b)).map(|h| (h.0, h.1)).collect();
        let mut held = Held { func, constants, out: Vec::new() };
        for i in old {
            let mut makes = false;
            held.func.insts[i]
                .for_each_def(|n| makes |= n.value().is_some_and(|v| chosen.contains(v.index())));
            if !makes {
                out.push(i);
                continue;
            }
            let mut d = held.func.insts[i].clone();
            let compares = d.op == Op::Sass(Opcode::ISETP);
            held.convert(&mut d, &beside);
            if compares {
                for k in 0..d.operands.len() {
                    if let Operand::Reg(r) = d.operands[k]
                        && d.is_def(k)
                        && let Name::Val(v) = r.reg
                    {
                        let new = held.func.add_value(RegFile::UP, 1);
                        beside[v] = Some(new);
                        d.operands[k] = operand(new);
                    }
                }
                let new = held.func.insts.push(d);
                out.append(&mut held.out);
                out.extend([new, i]);
                continue;
            }
            let mut carries: SmallVec<[Value; 2]> = SmallVec::new();
            d.for_each_def(|n| carries.extend(n.value().filter(|v| held.func.values[*v].file == RegFile::P)));
            carries.into_iter().for_each(|v| held.func.values[v].file = RegFile::UP);
            let upper = d.mods.has(Mod::HI) && d.op == Op::Sass(Opcode::UIMAD);
            out.append(&mut held.out);
            out.push(i);
            if upper {
                out.push(upper_word(held.func, &mut d));
            }
            held.func.insts[i] = d;
        }
        func.blocks[b].insts = out;
    }
    for i in cfg.rpo.iter().flat_map(|b| func.blocks[*b].insts.clone()) {
        let mut d = func.insts[i].clone();
        let Op::Sass(op) = d.op else { continue };
        // What was brought there is there.
        if let Some(s) = R2ur::of(&d).filter(|_| d.is_unguarded())
            && let Operand::Reg(r) = *s.a
            && r.reg.value().is_some_and(|v| moved.contains(v.index()))
        {
            let to = *s.d;
            d.become_copy(to, Operand::Reg(r));
            func.insts[i] = d;
            continue;
        }
        let mut reads = false;
        d.for_each_use(|n| reads |= n.value().is_some_and(|v| moved.contains(v.index())));
        if reads && !op.is_uniform() {
            let source = |k: &usize| op.slots()[*k].kind == SlotKind::Source;
            let slots: SmallVec<[usize; 4]> = (0..d.operands.len()).filter(source).collect();
            legalize::commute(func, &mut d, &slots);
            func.insts[i] = d;
        }
    }
    remat::read_from_uniform(func, cfg, moved);
    addends::run(func, cfg);
    ori::dead::remove(func);
}

/// Leaves a number that is chosen in a general register for all that is not: there it is made where it is passed on, with nothing to wait for.
fn keep_numbers(func: &mut Function, cfg: &Cfg, chosen: &FixedBitSet) {
    let mut numbers: FxHashMap<Value, Value> = FxHashMap::default();
    for &b in &cfg.rpo {
        let mut at = 0;
        while let Some(&i) = func.blocks[b].insts.get(at) {
            at += 1;
            let mut d = func.insts[i].clone();
            if d.op == Op::Macro(Macro::Copy)
                && is_constant(&d)
                && let Some(Operand::Reg(RegOp { reg: Name::Val(v), .. })) = d.operands.first().cloned()
                && chosen.contains(v.index())
                && func.values[v].file == RegFile::R
            {
                let own = func.add_value(RegFile::R, 1);
                numbers.insert(v, own);
                d.operands[0] = operand(own);
                let made = func.insts.push(d);
                func.blocks[b].insts.insert(at, made);
                at += 1;
            }
        }
    }
    if numbers.is_empty() {
        return;
    }
    let own = |v: Value| numbers.get(&v).copied();
    for &b in &cfg.rpo {
        for i in func.blocks[b].insts.clone() {
            let mut makes = false;
            func.insts[i].for_each_def(|n| makes |= n.value().is_some_and(|v| chosen.contains(v.index())));
            if makes {
                continue;
            }
            func.insts[i].map_uses(|n| n.value().and_then(own).map_or(n, Name::Val));
        }
        let mut term = func.blocks[b].term.clone();
        let mut changed = false;
        for t in term.targets_mut() {
            for (a, p) in t.args.iter_mut().zip(&func.blocks[t.block].params) {
                if let Some(own) = own(*a).filter(|_| !chosen.contains(p.index())) {
                    (*a, changed) = (own, true);
                }
            }
        }
        if changed {
            func.blocks[b].term = term;
        }
    }
}

/// Makes UIMAD.HI, which ptxas never has, the wide product, and the copy of its upper word.
fn upper_word(func: &mut Function, d: &mut InstData) -> Inst {
    let pair = func.add_value(RegFile::UR, 2);
    let result = (0..d.operands.len())
        .find(|k| d.is_def(*k) && matches!(&d.operands[*k], Operand::Reg(r) if r.reg.value().is_some()));
    let mut copy = InstData { guard: ALWAYS, ..d.clone() };
    if let Some(k) = result {
        let to = std::mem::replace(&mut d.operands[k], operand(pair));
        copy.become_copy(to, operand(Name::Part(pair, 1)));
    }
    d.mods = Mods::of(&[Mod::WIDE, Mod::U32]);
    func.insts.push(copy)
}

/// Bank, offset and words.
type Constant = (u8, i32, u8);

/// The constants that instructions of chosen values read as operands, in loops too, and the last block through which all ways to those lead.
fn constants_in_loops(
    func: &Function,
    cfg: &Cfg,
    chosen: &FixedBitSet,
    dom: &DomTree,
    loops: &LoopForest,
) -> FxHashMap<Constant, Block> {
    let mut out: FxHashMap<Constant, (Block, bool)> = FxHashMap::default();
    for &b in &cfg.rpo {
        for i in &func.blocks[b].insts {
            let d = &func.insts[*i];
            let Op::Sass(op) = d.op else { continue };
            let mut makes = false;
            d.for_each_def(|n| makes |= n.value().is_some_and(|v| chosen.contains(v.index())));
            if !makes || op == Opcode::LDC {
                continue;
            }
            for (k, o) in d.operands.iter().enumerate() {
                if let Operand::Const { bank: ConstBank::Index(bank), offset, .. } = o {
                    let (at, often) = out.entry((*bank, *offset, op.width(k, &d.mods))).or_insert((b, false));
                    *at = dom.common(*at, b);
                    *often |= loops.depth(b) > 0;
                }
            }
        }
    }
    out.into_iter().filter(|(_, at)| at.1).map(|(c, at)| (c, at.0)).collect()
}

/// A block's constants in uniform registers.
pub(super) struct Held<'f> {
    func: &'f mut Function,
    constants: FxHashMap<Constant, Value>,
    /// Instructions that make those for the next one.
    out: Vec<Inst>,
}

impl<'f> Held<'f> {
    pub(super) fn new(func: &'f mut Function) -> Held<'f> {
        Held { func, constants: FxHashMap::default(), out: Vec::new() }
    }

    /// The instructions that were made.
    pub(super) fn into_made(self) -> Vec<Inst> {
        self.out
    }

    /// Makes an instruction read and write uniform registers.
    pub(super) fn convert(&mut self, d: &mut InstData, beside: &SecondaryMap<Value, Option<Value>>) {
        let loc = d.loc;
        let load = self.func.target.info().constant_load;
        let from = d.op;
        if let Op::Sass(op) = d.op {
            d.op = Op::Sass(match op {
                Opcode::LDC => load,
                _ => op.info().twins.first().copied().unwrap_or(op),
            });
        }
        if from == Op::Sass(Opcode::LDC) {
            return;
        }
        if from == Op::Sass(Opcode::ISETP) && d.mods.has(Mod::EQ) && !d.mods.has(Mod::U32) {
            // Words are equal with or without signs; ptxas 13.0.88 compares them without.
            let with_u32 = d.mods.iter().flat_map(|m| [Some(m), (m == Mod::EQ).then_some(Mod::U32)]);
            d.mods = Mods::of(&with_u32.flatten().collect::<SmallVec<[Mod; 4]>>());
        }
        let zero = |n: Name| match n {
            Name::Phys(Reg::RZ) => Name::Phys(Reg::URZ),
            Name::Phys(Reg::PT) => Name::Phys(Reg::UPT),
            Name::Val(v) => Name::Val(beside[v].unwrap_or(v)),
            n => n,
        };
        if d.guard.pred.value().is_some() {
            d.guard.pred = zero(d.guard.pred);
        }
        d.kept.iter_mut().for_each(|n| *n = zero(*n));
        for k in 0..d.operands.len() {
            let (width, takes_number) = match (from, d.op) {
                (Op::Sass(op), Op::Sass(to)) => {
                    let source = op.slots()[k].kind == SlotKind::Source;
                    (op.width(k, &d.mods), !source || to.info().sources.contains(&(k as u8)))
                }
                _ => (1, true),
            };
            match d.operands[k] {
                Operand::Reg(r) => d.operands[k] = Operand::Reg(RegOp { reg: zero(r.reg), ..r }),
                Operand::Imm(0) if !takes_number => d.operands[k] = operand(Name::Phys(Reg::URZ)),
                Operand::Imm(n) if !takes_number => {
                    let v = self.func.add_value(RegFile::UR, width);
                    let high = if d.mods.has(Mod::U32) { 0 } else { ((n as i32) >> 31) as u32 };
                    let words = [Operand::Imm(n), Operand::Imm(high)];
                    let m = if width == 1 { Macro::Copy } else { Macro::Collect };
                    self.push(Op::Macro(m), Mods::none(), v, &words[..usize::from(width)], loc);
                    d.operands[k] = operand(v);
                }
                Operand::Const { bank: ConstBank::Index(bank), offset, .. } => {
                    let v = self.constant((bank, offset, width), loc);
                    d.operands[k] = operand(v);
                }
                _ => {}
            }
        }
    }

    /// A constant in a uniform register, loaded once.
    fn constant(&mut self, c: Constant, loc: Loc) -> Value {
        if let Some(v) = self.constants.get(&c) {
            return *v;
        }
        let (bank, offset, width) = c;
        let v = self.func.add_value(RegFile::UR, width);
        let mods = if width == 2 { Mods::of(&[Mod::_64]) } else { Mods::none() };
        let load = self.func.target.info().constant_load;
        self.push(Op::Sass(load), mods, v, &[Operand::constant(bank, offset)], loc);
        self.constants.insert(c, v);
        v
    }

    fn push(&mut self, op: Op, mods: Mods, v: Value, sources: &[Operand], loc: Loc) {
        let operands = std::iter::once(operand(v)).chain(sources.iter().cloned()).collect();
        let i =
            self.func.insts.push(InstData { guard: ALWAYS, op, mods, operands, kept: ThinVec::new(), loc });
        self.out.push(i);
    }
}
