//! Makes constants, parameters and addresses in the stack frame again where they are used, where keeping them would leave room
//! for fewer warps. Where arithmetic does not read constant memory itself, parameters and what is computed of them alone are
//! kept in uniform registers and moved from there, as far as those reach (what most blocks read before the rest), or computed again from
//! what it is made of where few blocks read it. So is what one instruction computes of registers that live as long anyway ([`beside`]).
//!
//! Which ones, the allocator's choice of what to spill says, among constants alone; a block in which one is used has its
//! own copy, or several if it is long or has calls, and the scheduler finds the place.

mod beside;

use crate::liveness::Ranges;
use crate::regalloc::room::Room;
use crate::regalloc::spill::Spiller;
use crate::uniform;
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::cfg::Cfg;
use ori::{ALWAYS, Block, Function, Inst, InstData, Loc, Macro, Name, Op, Operand, Value, operand};
use rustc_hash::FxHashMap;
use sass::ops::{Ldc, LdcMods, Size64};
use sass::{ConstBank, Mod, Mods, Opcode, Reg, RegFile, SlotKind, SourceKinds};
use smallvec::SmallVec;
use std::cmp::Reverse;
use thin_vec::ThinVec;

/// The most uniform registers that parameters take here, and those that must be left to addresses and descriptors.
const MOST: usize = 36;
const LEFT: usize = 16;

/// Instructions that compute a value which is kept there, at most, behind those that load.
const STEPS: usize = 4;

/// Blocks that read a value which is computed again in each, at most.
const RECOMPUTED: u32 = 3;

/// Instructions behind a copy for which it still serves.
const REACH: usize = 48;
/// The same where a copy takes as many instructions as registers.
const REACH_MOVED: usize = 144;

/// Lowers the number of general registers that are needed to what there is room for, as far as constants are to blame. Whether anything
/// changed.
pub fn run(func: &mut Function, cfg: &Cfg, limit: Room<'_>, ranges: &Ranges) -> bool {
    let mut room = uniform_room(func, cfg);
    let mut computed = Computed::new(func, cfg, room > 0);
    let beside = computed.beside(func, cfg, ranges);
    let frame = func.insts.values().filter(|d| is_stack_address(func, d)).filter_map(only_result);
    let few: Vec<Value> =
        func.values.keys().filter(|v| computed.general[*v].is_some() || beside[*v].is_some()).collect();
    let read = reading_blocks(func, cfg, &few.iter().map(|v| v.index()).collect());
    let few = few.into_iter().filter(|v| read[*v] <= RECOMPUTED);
    let uniform = func.values.keys().filter(|v| computed.by[*v].is_some());
    let others: Vec<Value> = frame.chain(uniform).chain(few).collect();
    let chosen = Spiller::constants(func, cfg, limit, ranges, &others);
    if chosen.is_clear() {
        return false;
    }
    // What makes each of them. Uniform registers go to those that most blocks read, as far as they reach.
    let readers = reading_blocks(func, cfg, &chosen);
    let mut kept = FixedBitSet::with_capacity(func.values.len());
    let mut order: Vec<(Inst, Value)> = Vec::new();
    for i in cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts).copied() {
        let d = &func.insts[i];
        if let Some(v) = only_result(d).filter(|v| chosen.contains(v.index()))
            && (is_load_of_constants(d) || computed.by[v].is_some())
        {
            order.push((i, v));
        }
    }
    order.sort_by_key(|(_, v)| Reverse(readers[*v]));
    let moved = moved_pairs(func, cfg, &chosen);
    for (i, v) in order {
        let width = usize::from(func.values[v].width);
        // One load brings what two moves would.
        let loads = moved.contains(v.index()) && is_load_of_constants(&func.insts[i]);
        if width <= room && !loads {
            room -= width;
            kept.insert(v.index());
        }
    }
    let mut makers: SecondaryMap<Value, Option<Again>> = SecondaryMap::new();
    let mut arithmetic = false;
    for &b in &cfg.rpo {
        let old = std::mem::take(&mut func.blocks[b].insts);
        let mut out = Vec::with_capacity(old.len());
        let mut loaded = Loaded::default();
        for i in old {
            let d = &func.insts[i];
            let mut made: SmallVec<[Value; 1]> = SmallVec::new();
            d.for_each_def(|n| made.extend(n.value().filter(|v| chosen.contains(v.index()))));
            if let &[v] = &made[..] {
                if kept.contains(v.index()) {
                    arithmetic |= computed.by[v].is_some();
                    computed.make_uniform(func, i, &mut loaded, &mut out);
                    func.values[v].file = RegFile::UR;
                    makers[v] = Some(Again::Moved);
                } else if computed.general[v].is_some() || beside[v].is_some() {
                    arithmetic = true;
                    makers[v] = Some(Again::General(i));
                } else if computed.by[v].is_none() {
                    makers[v] = Some(Again::Made(i));
                } else if readers[v] <= RECOMPUTED {
                    arithmetic = true;
                    makers[v] = Some(Again::Computed(i));
                }
            }
            out.push(i);
        }
        func.blocks[b].insts = out;
    }
    for &b in &cfg.rpo {
        block(func, b, &makers, &computed);
    }
    if arithmetic {
        // General registers that such values were computed of.
        ori::dead::remove(func);
    }
    true
}

/// What arithmetic makes of constants alone.
#[derive(Default)]
struct Computed {
    /// Values in general registers, if the uniform datapath could make them: of one register, and products of two.
    by: SecondaryMap<Value, Option<Inst>>,
    /// Values in one or two that it could not.
    general: SecondaryMap<Value, Option<Inst>>,
    /// Those that are loaded.
    loaded: SecondaryMap<Value, Option<Inst>>,
    /// The instructions as they were: where they stand they read copies in the end.
    code: FxHashMap<Inst, InstData>,
}

impl Computed {
    fn new(func: &Function, cfg: &Cfg, uniform: bool) -> Computed {
        let mut found = Computed::default();
        // As many steps from a load to a value.
        let mut steps: SecondaryMap<Value, usize> = SecondaryMap::new();
        for &i in cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts) {
            let d = &func.insts[i];
            let Some(v) = only_result(d) else { continue };
            if is_load_of_constants(d) {
                found.loaded[v] = Some(i);
                found.code.insert(i, d.clone());
                continue;
            }
            let shape = func.values[v];
            let width = if d.mods.has(Mod::WIDE) { 2 } else { 1 };
            let fits = uniform && shape.width == width && shape.file == RegFile::R && found.fits(func, d);
            if !fits && !found.fits_generally(func, d, shape) {
                continue;
            }
            d.for_each_use(|n| steps[v] = steps[v].max(n.value().map_or(0, |s| steps[s] + 1)));
            let made = Some(i).filter(|_| steps[v] <= STEPS);
            if made.is_some() {
                found.code.insert(i, d.clone());
            }
            if fits {
                found.by[v] = made;
            } else {
                found.general[v] = made;
            }
        }
        found
    }

    /// What comes again of values that are in registers anyway, if not of constants.
    fn beside(&mut self, func: &Function, cfg: &Cfg, ranges: &Ranges) -> SecondaryMap<Value, Option<Inst>> {
        let mut found = beside::found(func, cfg, ranges);
        for v in func.values.keys() {
            if self.by[v].is_some() || self.general[v].is_some() {
                found[v] = None;
            } else if let Some(i) = found[v] {
                self.code.insert(i, func.insts[i].clone());
            }
        }
        found
    }

    fn code(&self, func: &Function, i: Inst) -> InstData {
        self.code.get(&i).unwrap_or(&func.insts[i]).clone()
    }

    /// Whether it is arithmetic on such values, whatever datapath has it.
    fn fits_generally(&self, func: &Function, d: &InstData, shape: ori::ValueData) -> bool {
        use Opcode::{IADD3, IMAD, LEA, LOP3, SHF};
        let known = |v: Value| self.loaded[v].is_some() || self.by[v].is_some() || self.general[v].is_some();
        let takes = |(k, o): (usize, &Operand)| match o {
            _ if d.is_def(k) => true,
            Operand::Reg(r) => match r.reg {
                Name::Phys(p) => p == Reg::PT || p == Reg::RZ,
                Name::Val(v) | Name::Part(v, _) => func.values[v].file == RegFile::R && known(v),
            },
            Operand::Imm(_) | Operand::Const { index: None, .. } => true,
            _ => false,
        };
        matches!(d.op, Op::Sass(IADD3 | IMAD | LEA | LOP3 | SHF))
            && d.is_unguarded()
            && shape.file == RegFile::R
            && shape.width <= 2
            && d.operands.iter().enumerate().all(takes)
    }

    /// Whether all that an instruction reads is such, and the uniform opcode takes it where it stands.
    fn fits(&self, func: &Function, d: &InstData) -> bool {
        let Op::Sass(op @ (Opcode::IADD3 | Opcode::IMAD | Opcode::SHF | Opcode::LEA | Opcode::LOP3)) = d.op
        else {
            return false;
        };
        let Some(to) = op.info().twins.first().map(|t| t.info()) else { return false };
        // As where constants become uniform first: no carries, no shifts that wrap around.
        let others: &[Mod] = if op == Opcode::SHF { &[Mod::W] } else { &[Mod::X, Mod::HI, Mod::SX32] };
        if !d.is_unguarded() || others.iter().any(|m| d.mods.has(*m)) {
            return false;
        }
        let mut values = 0;
        let takes = |(k, o): (usize, &Operand)| match o {
            _ if d.is_def(k) => true,
            Operand::Reg(r) => match r.reg {
                Name::Phys(p) => p == Reg::PT || p == Reg::RZ,
                Name::Val(v) | Name::Part(v, _) => {
                    values += 1;
                    func.values[v].file == RegFile::R && (self.loaded[v].is_some() || self.by[v].is_some())
                }
            },
            Operand::Imm(_) => op.slots()[k].kind != SlotKind::Source || to.sources.contains(&(k as u8)),
            _ => false,
        };
        d.operands.iter().enumerate().all(takes) && values > 0
    }

    /// A value once more, in a uniform register. What the block has `loaded` serves again.
    fn again(
        &self,
        func: &mut Function,
        made: Inst,
        v: Value,
        loaded: &mut Loaded,
        out: &mut Vec<Inst>,
    ) -> Value {
        if let Some(known) = loaded.get(&v) {
            return *known;
        }
        let new = func.add_value(RegFile::UR, func.values[v].width);
        let mut d = self.code(func, made);
        rename_results(&mut d, v, new);
        let copy = func.insts.push(d);
        self.make_uniform(func, copy, loaded, out);
        out.push(copy);
        if self.loaded[v] == Some(made) {
            loaded.insert(v, new);
        }
        new
    }

    /// Makes an instruction write a uniform register; what it reads that is not in one yet is made again before it.
    fn make_uniform(&self, func: &mut Function, i: Inst, loaded: &mut Loaded, out: &mut Vec<Inst>) {
        let mut read: SmallVec<[Value; 3]> = SmallVec::new();
        func.insts[i].for_each_use(|n| read.extend(n.value().filter(|v| func.values[*v].file == RegFile::R)));
        let mut again: SmallVec<[(Value, Value); 3]> = SmallVec::new();
        for v in read {
            let Some(maker) = self.loaded[v].or(self.by[v]) else { continue };
            if again.iter().all(|(old, _)| *old != v) {
                again.push((v, self.again(func, maker, v, loaded, out)));
            }
        }
        let d = &mut func.insts[i];
        d.map_uses(|n| match n {
            Name::Val(v) => Name::Val(again.iter().find(|(old, _)| *old == v).map_or(v, |a| a.1)),
            Name::Part(v, k) => Name::Part(again.iter().find(|(old, _)| *old == v).map_or(v, |a| a.1), k),
            Name::Phys(_) => n,
        });
        if let Op::Sass(op) = d.op {
            let load = func.target.info().constant_load;
            d.op = Op::Sass(if op == Opcode::LDC {
                load
            } else {
                op.info().twins.first().copied().unwrap_or(op)
            });
        }
        for o in &mut d.operands {
            if let Operand::Reg(r) = o
                && let Name::Phys(zero) = &mut r.reg
            {
                *zero = if *zero == Reg::RZ { Reg::URZ } else { Reg::UPT };
            }
        }
    }
}

/// Whether it makes an address in the frame from the stack pointer, which stays as it is.
fn is_stack_address(func: &Function, d: &InstData) -> bool {
    if d.op != Op::Sass(Opcode::IADD3) || !d.is_unguarded() || func.moves_stack() {
        return false;
    }
    let mut only = true;
    d.for_each_use(|n| only &= matches!(n, Name::Phys(r) if r.is_zero() || r == Reg::SP));
    let mut results = 0;
    d.for_each_def(|n| match n {
        Name::Phys(r) => only &= r.is_zero(),
        _ => results += 1,
    });
    only && results == 1
}

/// The value that an instruction makes, if it makes nothing else.
fn only_result(d: &InstData) -> Option<Value> {
    let mut only = None;
    let mut others = false;
    d.for_each_def(|n| match n {
        Name::Val(v) => others |= only.replace(v).is_some(),
        Name::Part(..) => others = true,
        Name::Phys(r) => others |= !r.is_zero(),
    });
    only.filter(|_| !others)
}

fn rename_results(d: &mut InstData, old: Value, new: Value) {
    for k in 0..d.operands.len() {
        if d.is_def(k) && matches!(&d.operands[k], Operand::Reg(r) if r.reg == Name::Val(old)) {
            d.operands[k] = operand(new);
        }
    }
}

/// Constants that a block has in uniform registers, by the values in general ones that they are.
type Loaded = FxHashMap<Value, Value>;

/// What a block has made again: the latest copy of each value, and where it is; constants in uniform registers.
#[derive(Default)]
struct Copies {
    latest: FxHashMap<Value, (Value, usize)>,
    loaded: Loaded,
}

/// How a value comes again.
#[derive(Clone, Copy)]
enum Again {
    /// As this instruction makes it.
    Made(Inst),
    /// From the uniform register that it has now.
    Moved,
    /// In uniform registers, from what it is computed of.
    Computed(Inst),
    /// In general registers, from what it is computed of.
    General(Inst),
}

impl Again {
    /// How a value that another one is made of comes again, if it need not be kept.
    fn general(computed: &Computed, v: Value) -> Option<Again> {
        let made = computed.loaded[v].map(Again::Made).or(computed.by[v].map(Again::Computed));
        made.or(computed.general[v].map(Again::General))
    }
}

/// A word or two of a constant bank.
fn is_load_of_constants(d: &InstData) -> bool {
    let constant =
        |s: Ldc<&Operand>| matches!(s.address, Operand::Const { bank: ConstBank::Index(_), index: None, .. });
    Ldc::of(d).is_some_and(constant) && d.is_unguarded() && is_word_or_pair(d)
}

/// Whether LDC loads a word or two.
pub(crate) fn is_word_or_pair(load: &InstData) -> bool {
    matches!(LdcMods::of(load), Some(LdcMods { size: None | Some(Size64::_64), mode: None }))
}

/// Uniform registers that nothing needs, up to [`MOST`]; none where arithmetic reads constants itself, or a callee uses them.
fn uniform_room(func: &Function, cfg: &Cfg) -> usize {
    let destroys = |d: &InstData| {
        d.op == Op::Macro(Macro::Call) && !ori::abi::clobbered_by(func, d).of(RegFile::UR).is_empty()
    };
    let mut insts = cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts).map(|i| &func.insts[*i]);
    if func.target.info().alu_const || !func.entry || insts.any(destroys) {
        return 0;
    }
    // Those that live from block to block have registers of their own.
    let taken = uniform::across(func, cfg, |v| func.values[v].file == RegFile::UR);
    usize::from(func.target.info().uregs).saturating_sub(taken + LEFT).min(MOST)
}

/// The pairs of registers among `values` that more instructions would have to move from uniform registers than could read them there.
fn moved_pairs(func: &Function, cfg: &Cfg, values: &FixedBitSet) -> FixedBitSet {
    let mut excess: SecondaryMap<Value, i32> = SecondaryMap::new();
    for i in cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts) {
        let d = &func.insts[*i];
        let direct = could_read_directly(d);
        let mut seen: SmallVec<[Value; 4]> = SmallVec::new();
        d.for_each_use(|n| {
            if let Some(v) = n.value().filter(|v| values.contains(v.index()) && !seen.contains(v)) {
                seen.push(v);
                excess[v] += if direct == Some(v) { -1 } else { 1 };
            }
        });
    }
    let mut found = FixedBitSet::with_capacity(func.values.len());
    found.extend(
        func.values.keys().filter(|v| func.values[*v].width == 2 && excess[*v] > 0).map(|v| v.index()),
    );
    found
}

/// The value that an instruction of general registers could read from a uniform one.
fn could_read_directly(d: &InstData) -> Option<Value> {
    let all = register_sources(d)?;
    all.into_iter().rev().find(|(_, may)| *may).and_then(|(n, _)| n.value())
}

/// The sources of an instruction of general registers, and which may be a uniform one; `None` where none may, or one is no register.
fn register_sources(d: &InstData) -> Option<SmallVec<[(Name, bool); 4]>> {
    let Op::Sass(op) = d.op else { return None };
    let info = op.info();
    if info.uniform || matches!(info.source_kinds, SourceKinds::Immediate | SourceKinds::Immediates) {
        return None;
    }
    let sources = d.operands.iter().enumerate().filter(|(k, _)| op.slots()[*k].kind == SlotKind::Source);
    sources
        .map(|(k, o)| match o {
            Operand::Reg(r) => Some((r.reg, info.sources.contains(&(k as u8)))),
            _ => None,
        })
        .collect()
}

/// How many blocks read each of these values.
fn reading_blocks(func: &Function, cfg: &Cfg, values: &FixedBitSet) -> SecondaryMap<Value, u32> {
    let mut count: SecondaryMap<Value, u32> = SecondaryMap::new();
    let mut last: SecondaryMap<Value, Option<Block>> = SecondaryMap::new();
    for &b in &cfg.rpo {
        let mut read = |v: Value| {
            if values.contains(v.index()) && last[v].replace(b) != Some(b) {
                count[v] += 1;
            }
        };
        for i in &func.blocks[b].insts {
            func.insts[*i].for_each_use(|n| n.value().into_iter().for_each(&mut read));
        }
        let term = &func.blocks[b].term;
        term.used_name().and_then(Name::value).into_iter().for_each(&mut read);
        term.targets().into_iter().flat_map(|t| &t.args).for_each(|a| read(*a));
    }
    count
}

fn block(func: &mut Function, b: Block, makers: &SecondaryMap<Value, Option<Again>>, computed: &Computed) {
    let old = std::mem::take(&mut func.blocks[b].insts);
    let mut out: Vec<Inst> = Vec::with_capacity(old.len() + 8);
    let mut copies = Copies::default();
    for i in old {
        let d = &func.insts[i];
        // Most instructions have nothing to do with such values, nor with those that they are made of.
        let (mut made, mut concerned) = (false, false);
        d.for_each_use(|n| {
            concerned |= n.value().is_some_and(|v| makers[v].is_some() || copies.latest.contains_key(&v));
        });
        d.for_each_def(|n| {
            concerned |= n.value().is_some_and(|v| makers[v].is_some());
            made |= n
                .value()
                .is_some_and(|v| matches!(makers[v], Some(Again::Made(m) | Again::Computed(m) | Again::General(m)) if m == i));
        });
        if made {
            continue;
        }
        if !concerned {
            out.push(i);
            if d.op == Op::Macro(Macro::Call) {
                copies = Copies::default();
            }
            continue;
        }
        let direct = read_directly(func, d, |v| makers[v].is_some());
        // What computes in uniform registers reads them.
        let moves = matches!(d.op, Op::Macro(Macro::Copy | Macro::Collect)) && d.is_unguarded();
        let stays = |v: Value| {
            direct == Some(v)
                || in_uniform_registers(func, d)
                || moves && matches!(makers[v], Some(Again::Moved))
        };
        let mut uses: SmallVec<[Value; 4]> = SmallVec::new();
        d.for_each_use(|n| uses.extend(n.value().filter(|v| makers[*v].is_some() && !stays(*v))));
        for v in uses {
            copy(func, v, (makers, computed), &mut copies, &mut out);
        }
        if !in_uniform_registers(func, &func.insts[i]) {
            func.insts[i].map_uses(|n| if n.value() == direct { n } else { renamed(n, &copies) });
        }
        out.push(i);
        // Across it, a copy would need a register that the callee keeps.
        if func.insts[i].op == Op::Macro(Macro::Call) {
            copies = Copies::default();
        }
    }
    let mut term = func.blocks[b].term.clone();
    if let Some(n) = term.used_name_mut()
        && let Some(v) = n.value().filter(|v| makers[*v].is_some())
    {
        copy(func, v, (makers, computed), &mut copies, &mut out);
        *n = renamed(*n, &copies);
    }
    for t in term.targets_mut() {
        for (k, a) in t.args.iter_mut().enumerate() {
            let uniform = func.values[func.blocks[t.block].params[k]].file == RegFile::UR;
            if makers[*a].is_some() && !uniform {
                *a = copy(func, *a, (makers, computed), &mut copies, &mut out);
            }
        }
    }
    func.blocks[b].term = term;
    func.blocks[b].insts = out;
}

/// Makes what still reads these values from general registers read the uniform ones that they are in now, or copies.
pub fn read_from_uniform(func: &mut Function, cfg: &Cfg, moved: &FixedBitSet) {
    let mut makers: SecondaryMap<Value, Option<Again>> = SecondaryMap::new();
    for v in func.values.keys().filter(|v| moved.contains(v.index())) {
        makers[v] = Some(Again::Moved);
    }
    for &b in &cfg.rpo {
        block(func, b, &makers, &Computed::default());
    }
}

/// Whether it reads and writes uniform registers alone, and has no place for general ones, as STTM has for what it stores.
fn in_uniform_registers(func: &Function, d: &InstData) -> bool {
    let mut all = match d.op {
        Op::Sass(op) => {
            op.info().uniform && !op.slots().iter().any(|s| matches!(s.kind, SlotKind::Reg(RegFile::R)))
        }
        Op::Macro(m) => matches!(m, Macro::Copy | Macro::Collect),
    };
    let uniform = |n: Name| match n {
        Name::Val(v) | Name::Part(v, _) => matches!(func.values[v].file, RegFile::UR | RegFile::UP),
        Name::Phys(_) => true,
    };
    d.for_each_use(|n| all &= uniform(n));
    d.for_each_def(|n| all &= uniform(n));
    all
}

/// A value in a uniform register, of those that `may` be there, that an instruction reads once, where that may stand, beside general
/// registers and others of them.
fn read_directly(func: &Function, d: &InstData, may: impl Fn(Value) -> bool) -> Option<Value> {
    let mut found = None;
    for (n, takes) in register_sources(d)? {
        let Some(v) = n.value().filter(|v| func.values[*v].file == RegFile::UR) else { continue };
        if !may(v) {
            return None;
        }
        if takes && found.is_none() {
            found = Some(v);
        }
    }
    // Not as an address, too.
    let mut times = 0;
    d.for_each_use(|n| times += u32::from(n.value() == found));
    found.filter(|_| times == 1)
}

fn renamed(n: Name, copies: &Copies) -> Name {
    let to = |v: Value| copies.latest.get(&v).map_or(v, |c| c.0);
    match n {
        Name::Val(v) => Name::Val(to(v)),
        Name::Part(v, k) => Name::Part(to(v), k),
        Name::Phys(_) => n,
    }
}

/// The copy of a value to use next, made at the end of `out` if there is none near.
fn copy(
    func: &mut Function,
    v: Value,
    (makers, computed): (&SecondaryMap<Value, Option<Again>>, &Computed),
    copies: &mut Copies,
    out: &mut Vec<Inst>,
) -> Value {
    let reach = if matches!(makers[v], Some(Again::Moved)) { REACH_MOVED } else { REACH };
    if let Some((c, at)) = copies.latest.get(&v)
        && out.len() - at <= reach
    {
        return *c;
    }
    let Some(again) = makers[v] else { return v };
    made_again(func, v, again, (makers, computed), copies, out)
}

/// Makes a value again at the end of `out`.
fn made_again(
    func: &mut Function,
    v: Value,
    again: Again,
    (makers, computed): (&SecondaryMap<Value, Option<Again>>, &Computed),
    copies: &mut Copies,
    out: &mut Vec<Inst>,
) -> Value {
    let width = func.values[v].width;
    let new = func.add_value(RegFile::R, width);
    let d = match again {
        Again::Made(made) => {
            let mut d: InstData = func.insts[made].clone();
            for k in 0..d.operands.len() {
                if d.is_def(k) && matches!(&d.operands[k], Operand::Reg(r) if r.reg == Name::Val(v)) {
                    d.operands[k] = operand(new);
                }
            }
            d
        }
        Again::General(made) => {
            let mut d: InstData = computed.code(func, made);
            let mut read: SmallVec<[Value; 3]> = SmallVec::new();
            d.for_each_use(|n| read.extend(n.value()));
            let mut now: SmallVec<[(Value, Value); 3]> = SmallVec::new();
            for s in read {
                let again = (makers[s].or(Again::general(computed, s)), now.iter().any(|(old, _)| *old == s));
                if let (Some(again), false) = again {
                    let found = match makers[s] {
                        Some(_) => copy(func, s, (makers, computed), copies, out),
                        None => made_again(func, s, again, (makers, computed), copies, out),
                    };
                    now.push((s, found));
                }
            }
            let to = |v: Value| now.iter().find(|(old, _)| *old == v).map_or(v, |n| n.1);
            d.map_uses(|n| match n {
                Name::Val(v) => Name::Val(to(v)),
                Name::Part(v, k) => Name::Part(to(v), k),
                Name::Phys(_) => n,
            });
            rename_results(&mut d, v, new);
            d
        }
        Again::Moved | Again::Computed(_) => {
            let v = match again {
                Again::Computed(made) => computed.again(func, made, v, &mut copies.loaded, out),
                _ => v,
            };
            let op = Op::Macro(if width == 1 { Macro::Copy } else { Macro::Collect });
            let parts = (0..width).map(|k| if width == 1 { operand(v) } else { operand(Name::Part(v, k)) });
            let operands = std::iter::once(operand(new)).chain(parts).collect();
            InstData {
                op,
                mods: Mods::none(),
                operands,
                guard: ALWAYS,
                kept: ThinVec::new(),
                loc: Loc::default(),
            }
        }
    };
    copies.latest.insert(v, (new, out.len()));
    let new_inst = func.insts.push(d);
    out.push(new_inst);
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is made again where `limit` registers are to do.
    fn after(sm: u8, limit: u32) -> String {
        let mut text = format!("function k sm_{sm} entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n");
        text += "    v0:R = LDC c[0x0][0x210]\n    v1:R2 = LDC.64 c[0x0][0x218]\n    v2:R = S2R SR_TID.X\n";
        for k in 3..12 {
            text += &format!("    v{k}:R = LDS [v2+{k:#x}]\n");
        }
        for k in 3..12 {
            text += &format!("    STS [v2], v{k}\n");
        }
        text += "    v12:R = IADD3 PT, PT, v2, v0, RZ, !PT, !PT\n    STS.64 [v12], v1\n    exit\n}\n";
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let cfg = Cfg::new(&f);
        let ranges = Ranges::new(&f, &cfg);
        assert!(run(&mut f, &cfg, Room { limit, kept: 1, grants: None, whole: None }, &ranges));
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    /// A function where eight registers are to do: nine numbers that are loaded, then stored, between `before` and `behind`. Whether the pass
    /// changed it, and to what.
    fn with_eight(before: &str, behind: &str) -> (bool, String) {
        let mut text =
            String::from("function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {\nblock0:\n");
        text += before;
        (3..12).for_each(|k| text += &format!("    v{k}:R = LDS [{k:#x}]\n"));
        (3..12).for_each(|k| text += &format!("    STS [0x0], v{k}\n"));
        text += &format!("{behind}    exit\n}}\n");
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let cfg = Cfg::new(&f);
        let ranges = Ranges::new(&f, &cfg);
        let changed = run(&mut f, &cfg, Room { limit: 8, kept: 1, grants: None, whole: None }, &ranges);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        (changed, f.to_string())
    }

    #[test]
    fn what_is_computed_of_parameters_stays_in_uniform_registers() {
        let made = |sum: &str| {
            let before = "    v0:R = LDC c[0x0][0x210]\n    v1:R = SHF.R.S32.HI RZ, 0x1f, v0\n    v13:R = S2R SR_TID.X\n";
            let behind = "    STS [0x4], v2\n    STS [0x8], v1\n";
            let (changed, got) = with_eight(&format!("{before}{sum}"), behind);
            assert!(changed, "{got}");
            got
        };
        let got = made("    v2:R = IADD3 PT, PT, v1, 0x7, v0, !PT, !PT\n");
        assert!(got.contains("USHF.R.S32.HI URZ, 0x1f, ") && got.contains(" = ULDC c"), "{got}");
        assert!(got.contains("UIADD3 UPT, UPT, ") && !got.contains("LDC c[0x0][0x210]\n    v1:R"), "{got}");
        // What the uniform datapath has not comes again where it is needed, of uniform registers.
        let got = made("    v2:R = IMAD.HI.U32 PT, v1, 0x7, RZ, !PT\n");
        let (stored, again) = (got.find("STS [0x0], v11"), got.find("IMAD.HI.U32"));
        assert!(stored < again && !got.contains("v2:R"), "{got}");
        // Not what a thread's own number is in, which would have to be kept for it.
        assert!(made("    v2:R = IMAD.HI.U32 PT, v13, 0x7, RZ, !PT\n").contains("v2:R = IMAD.HI"));
    }

    #[test]
    fn what_is_computed_of_live_registers_needs_none() {
        let made = |made: &str, behind: &str| {
            let before = format!("    v0:R = S2R SR_TID.X\n    v1:R = {made}\n");
            with_eight(&before, &format!("    STS [0x4], v1\n{behind}"))
        };
        let sign = "SHF.R.S32.HI RZ, 0x1f, v0";
        let (_, got) = made(sign, "    STS [0x8], v0\n");
        let (stored, again) = (got.find("STS [0x0], v11"), got.find("SHF.R.S32.HI"));
        assert!(stored < again && !got.contains("v1:R"), "{got}");
        // What would have to be kept for it, and what is no arithmetic.
        assert!(!made(sign, "").0);
        assert!(!made("LDS [v0]", "    STS [0x8], v0\n").0);
        assert!(!made("MUFU.RCP v0", "    STS [0x8], v0\n").0);
    }

    #[test]
    fn parameters_stay_in_uniform_registers() {
        let got = after(90, 8);
        assert!(got.contains("v0:UR = ULDC c") && got.contains("IADD3 PT, PT, v2, v0, RZ"), "{got}");
        // A pair that would be moved to where none may be is loaded there.
        let (stored, again) = (got.find("STS [v2], v11"), got.find(":R2 = LDC.64 c[0x0][0x218]"));
        assert!(stored < again && !got.contains("ULDC.64"), "{got}");
        // One that is read where it is stays, and is moved for others.
        let pair = "    v0:R2 = LDC.64 c[0x0][0x218]\n    v1:R2 = LDC.64 c[0x0][0x220]\n";
        let sums = "    v20:R2 = DADD v1, v0\n    v21:R2 = DADD v20, v0\n    STS.64 [0x4], v21\n    STS.64 [0x8], v0\n";
        let (_, got) = with_eight(pair, sums);
        assert!(got.contains("v0:UR2 = ULDC.64 c") && got.contains(":R2 = collect v0.0, v0.1"), "{got}");
        assert!(after(120, 8).contains("v0:UR = LDCU c"));
        // There arithmetic reads constants itself.
        assert!(!after(80, 8).contains("ULDC"));
    }
}
