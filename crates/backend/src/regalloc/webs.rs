//! Out of SSA: isolates block parameters and kept values by copies, then merges values into webs that will
//! share registers.
//!
//! A web is a frame of registers; each member value sits at a fixed offset in it, so a tuple and the values
//! that it is collected from can share registers too. Two lanes may be in the same register if they are
//! never live at the same time, or if they are copies of each other (same value number).

use super::intervals::{Held, Intervals};
use super::room::FEW;
use super::under_way::UnderWay;
use crate::liveness::{Lanes, Numbering, Ranges, Segment, Spread};
use crate::pool::Grants;
use crate::together::barrier_left;
use cranelift_entity::{PrimaryMap, SecondaryMap, entity_impl};
use fixedbitset::FixedBitSet;
use ori::cfg::Cfg;
use ori::registers::{FILES, Registers, Set};
use ori::{ALWAYS, Block, Function, InstData, Loc, Macro, Name, Op, Operand, Operands, Value, operand};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::{Mods, Reg, RegFile, RegOp, Unit, Width, latency};
use smallvec::SmallVec;
use thin_vec::{ThinVec, thin_vec};

/// Values that share registers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Web(u32);
entity_impl!(Web, "web");

/// A register of a web's frame: how far it is from the first.
pub type Place = (Web, u8);

/// A web's frame.
#[derive(Clone, Debug)]
pub struct WebData {
    /// Register file.
    pub file: RegFile,
    /// The frame starts at a multiple of this.
    pub align: u8,
    /// The lowest register at which it may start.
    pub lowest: u8,
    /// Intervals of each register of the frame.
    pub lanes: SmallVec<[Intervals; 1]>,
    /// Members and their offsets.
    pub members: SmallVec<[(Value, u8); 1]>,
    /// Uses and definitions, weighted by loop depth.
    pub weight: f32,
    /// Whether values were merged that could also have been kept apart.
    pub coalesced: bool,
    /// Whether it lives where the warp holds few registers.
    pub confined: bool,
}

impl WebData {
    /// Registers that belong to the frame: no value that reaches beyond them becomes a member.
    pub fn size(&self) -> usize {
        self.lanes.len().max(usize::from(self.align))
    }

    /// Points at which its registers are taken, in all.
    pub fn length(&self) -> u64 {
        self.lanes.iter().flat_map(Intervals::iter).map(|h| u64::from(h.at.end - h.at.start)).sum()
    }

    /// The first point at which one of its registers is in use.
    pub fn start(&self) -> u32 {
        self.lanes.iter().filter_map(|l| Some(l.first()?.at.start)).min().unwrap_or(0)
    }
}

/// Whatever tuples of so many registers are for, they begin at the same multiples.
const NARROW: u8 = 4;

/// Where the operands of products of warp groups begin at the earliest in all code of ptxas 13.0.88.
const LOWEST_OF_GROUPS: u8 = 24;

/// The webs of a function.
pub struct Webs {
    /// All; a merged one is left empty.
    pub webs: PrimaryMap<Web, WebData>,
    /// Web and offset of each value that has registers.
    pub home: SecondaryMap<Value, Option<(Web, u8)>>,
    /// Intervals in which physical registers are taken: the function names them, calls destroy them, or the warp does not hold them.
    pub fixed: Vec<(Reg, Segment)>,
    pub taken: Vec<(Segment, Registers)>,
    /// Copies between different webs: (web, offset) of both sides and weight, heaviest first.
    pub copies: Vec<(Place, Place)>,
    /// Results that would best be in the registers of sources of their instructions ([`replaced_sources`]).
    pub replaced: Vec<(Place, Place)>,
    /// Registers that webs would best be in, for arguments and results of calls: (web, offset) and register.
    pub wishes: Vec<(Place, Reg)>,
    /// The numbering that the intervals are in.
    pub numbering: Numbering,
}

/// Values that must share registers, and what each new value stands for.
pub struct Isolated {
    /// Pairs that are merged unconditionally.
    ties: Vec<(Value, Value)>,
    /// Inserted copy of which value of the SSA program.
    pub origin: FxHashMap<Value, Value>,
}

/// The operands of a product of a warp group that are one register tuple: what it makes, and what that is added to,
/// if it is.
fn accumulator(d: &InstData) -> Option<(usize, usize)> {
    let op = d.opcode().filter(|op| op.is_group_product())?;
    let addend = (1..op.slots().len()).find(|k| op.slots()[*k].width == Width::Accumulator)?;
    let value = d.operands[addend].as_reg().and_then(|r| r.reg.value());
    value.is_some().then_some((0, addend))
}

/// Which operand of a product of matrices is added to it, of those that are executed at once.
const ADDEND: usize = 3;

/// The registers of a product of matrices' result and of what is added to it. In a sum of many products all are in the same ones, as in
/// ptxas's code: tuples that wander about leave no room for others.
fn summed_lanes(func: &Function, lanes: &Lanes, d: &InstData, mut f: impl FnMut(LanePair)) {
    let Some(op) =
        d.opcode().filter(|op| matches!(op.unit(), Unit::Tensor | Unit::TensorInt | Unit::TensorFp64))
    else {
        return;
    };
    let name = |k: usize| d.operands.get(k)?.as_reg().map(|r| r.reg);
    let (Some(Name::Val(result)), Some(Name::Val(addend))) = (name(0), name(ADDEND)) else { return };
    let width = op.width(0, &d.mods);
    if [result, addend].iter().all(|v| func.values[*v].width == width) {
        (0..width).for_each(|i| f((lanes.lane(result, i), lanes.lane(addend, i))));
    }
}

/// Results that would best take the place of a source that ends there, because the instruction holds on to its sources for a
/// while: another instruction that overwrites them needs a scoreboard for that, its own result does not. So ptxas's loads, too,
/// put what they load over its address.
fn replaced_sources(func: &Function, d: &InstData, mut pair: impl FnMut(Value, (Value, u8))) {
    let Some(op) = d.opcode().filter(|op| latency::reads_late(*op, func.target)) else { return };
    if !latency::is_variable_latency(op, func.target) {
        return;
    }
    let general = |v: &Value| func.values[*v].file == RegFile::R;
    let mut result = None;
    d.for_each_def(|n| result = result.or(n.value().filter(general)));
    let Some(result) = result else { return };
    d.for_each_use(|n| match n {
        Name::Val(v) if general(&v) => pair(result, (v, 0)),
        Name::Part(v, k) if general(&v) => pair(result, (v, k)),
        _ => {}
    });
}

fn macro_inst(m: Macro, operands: Operands, loc: Loc) -> InstData {
    InstData { guard: ALWAYS, op: Op::Macro(m), mods: Mods::none(), operands, kept: ThinVec::new(), loc }
}

fn parallel(func: &mut Function, pairs: &[(Value, Value)], loc: Loc) -> ori::Inst {
    let dsts = pairs.iter().map(|(d, _)| operand(*d));
    let operands = dsts.chain(pairs.iter().map(|(_, s)| operand(*s))).collect();
    func.insts.push(macro_inst(Macro::ParCopy(pairs.len() as u16), operands, loc))
}

/// Makes block parameters and kept values separable from everything else (Sreedhar's first method):
/// parameters are copied on entry, arguments before the terminator, kept values before the instruction.
pub fn isolate(func: &mut Function, cfg: &Cfg) -> Isolated {
    let mut out = Isolated { ties: Vec::new(), origin: FxHashMap::default() };
    let fresh = |func: &mut Function, like: Value, out: &mut Isolated| {
        let d = func.values[like];
        let v = func.add_value(d.file, d.width);
        out.origin.insert(v, like);
        v
    };
    let mut old_params: SecondaryMap<Block, SmallVec<[Value; 4]>> = SecondaryMap::new();
    for &b in &cfg.rpo {
        let params = func.blocks[b].params.clone();
        if !params.is_empty() {
            let pairs: Vec<(Value, Value)> = params.iter().map(|p| (*p, fresh(func, *p, &mut out))).collect();
            func.blocks[b].params = pairs.iter().map(|(_, n)| *n).collect();
            let copy = parallel(func, &pairs, Loc::default());
            func.blocks[b].insts.insert(0, copy);
            old_params[b] = params;
        }
    }
    for &b in &cfg.rpo {
        // What comes to stand, from the end on.
        let mut backwards = Vec::with_capacity(func.blocks[b].insts.len());
        for i in std::mem::take(&mut func.blocks[b].insts).into_iter().rev() {
            backwards.push(i);
            if let Some((result, addend)) = accumulator(&func.insts[i]) {
                let Operand::Reg(RegOp { reg: Name::Val(v), .. }) = func.insts[i].operands[result] else {
                    continue;
                };
                let tied = fresh(func, v, &mut out);
                out.ties.push((v, tied));
                let loc = func.insts[i].loc;
                let before = std::mem::replace(&mut func.insts[i].operands[addend], operand(tied));
                backwards.push(func.insts.push(macro_inst(
                    Macro::Copy,
                    thin_vec![operand(tied), before],
                    loc,
                )));
                continue;
            }
            if func.insts[i].kept.is_empty() {
                continue;
            }
            let loc = func.insts[i].loc;
            let defs: SmallVec<[Name; 2]> = {
                let mut d = SmallVec::new();
                func.insts[i].for_each_def(|n| d.push(n));
                d
            };
            for (j, def) in defs.iter().enumerate() {
                let Name::Val(v) = *def else { continue };
                let tied = fresh(func, v, &mut out);
                out.ties.push((v, tied));
                let kept = std::mem::replace(&mut func.insts[i].kept[j], Name::Val(tied));
                let m = macro_inst(Macro::Copy, thin_vec![operand(tied), operand(kept)], loc);
                backwards.push(func.insts.push(m));
            }
        }
        backwards.reverse();
        func.blocks[b].insts = backwards;
        let mut term = func.blocks[b].term.clone();
        let mut pairs: Vec<(Value, Value)> = Vec::new();
        let mut done: Vec<(Block, SmallVec<[Value; 4]>)> = Vec::new();
        for t in term.targets_mut() {
            if t.args.is_empty() {
                continue;
            }
            if let Some((_, args)) = done.iter().find(|(x, _)| *x == t.block) {
                t.args.clone_from(args);
                continue;
            }
            for (j, a) in t.args.iter_mut().enumerate() {
                let param = old_params[t.block][j];
                let new = fresh(func, param, &mut out);
                pairs.push((new, *a));
                out.ties.push((func.blocks[t.block].params[j], new));
                *a = new;
            }
            done.push((t.block, t.args.clone()));
        }
        if !pairs.is_empty() {
            let loc = func.blocks[b].term_loc;
            let copy = parallel(func, &pairs, loc);
            func.blocks[b].insts.push(copy);
            func.blocks[b].term = term;
        }
    }
    out
}

/// One register moved by a copy-like instruction: destination, source.
type LanePair = (u32, u32);

/// The registers that a copy, collect or parallel copy moves from values to values.
fn copied_lanes(func: &Function, lanes: &Lanes, d: &InstData, mut f: impl FnMut(LanePair)) {
    let mut pair = |dst: Value, at: u8, src: &Operand| -> u8 {
        let Operand::Reg(r) = src else { return 1 };
        match r.reg {
            _ if *r != RegOp::plain(r.reg) => 1,
            Name::Val(s) => {
                let w = func.values[s].width;
                (0..w).for_each(|i| f((lanes.lane(dst, at + i), lanes.lane(s, i))));
                w
            }
            Name::Part(s, i) => {
                f((lanes.lane(dst, at), lanes.lane(s, i)));
                1
            }
            Name::Phys(_) => 1,
        }
    };
    let Op::Macro(m) = d.op else { return };
    let n = m.defs();
    match m {
        Macro::Copy | Macro::Collect | Macro::Settle => {
            let Some((Some(Operand::Reg(to)), sources)) = d.macro_operands() else { return };
            let Some(dst) = to.reg.value() else { return };
            let mut at = 0;
            for src in sources {
                at += pair(dst, at, src);
            }
        }
        Macro::ParCopy(_) => {
            for k in 0..n {
                if let Some(dst) = d.operands[k].as_reg().and_then(|r| r.reg.value()) {
                    pair(dst, 0, &d.operands[n + k]);
                }
            }
        }
        _ => {}
    }
}

/// Values that are merged with nothing that they need not be.
#[derive(Default)]
pub struct Apart {
    /// Wherever the copy is.
    pub anywhere: FixedBitSet,
    /// Where the copy is in no loop.
    pub outside: FixedBitSet,
    /// But these are parts of tuples under other names, and in their registers whatever else is apart.
    pub pieces: FixedBitSet,
}

impl Apart {
    /// Makes room for so many values.
    pub fn grow(&mut self, values: usize) {
        self.anywhere.grow(values);
        self.outside.grow(values);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.anywhere.clear();
        self.outside.clear();
    }

    /// Whether a value keeps out of a copy of this weight.
    fn keeps(&self, v: Value, weight: f32) -> bool {
        let v = v.as_u32() as usize;
        self.anywhere.contains(v) || weight <= OUTSIDE && self.outside.contains(v)
    }
}

/// Copies in no loop weigh that at most.
const OUTSIDE: f32 = 1.0;

/// Why values are merged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// They have to be.
    Tied,
    /// A copy would read an accumulator of a product that goes on, so that all products would have to be waited for one by one; or it is none, but
    /// another name.
    Same,
    /// A copy would go.
    Wanted,
}

/// Where a warp is together.
#[derive(Clone, Copy)]
pub struct Warp<'a> {
    /// Values in uniform registers that lanes change together.
    pub joint: &'a FixedBitSet,
    /// Blocks in which no lane is elsewhere, as far as that is known.
    pub whole: Option<&'a FixedBitSet>,
}

impl Webs {
    /// Builds the webs of a function in which parameters are isolated. Values in `apart` are merged with
    /// nothing that they need not be.
    pub fn new(
        func: &Function,
        cfg: &Cfg,
        isolated: &Isolated,
        apart: &Apart,
        ranges: &Ranges,
        Warp { joint, whole }: Warp<'_>,
        grants: Option<&Grants>,
    ) -> Webs {
        let Ranges { lanes, numbering, intervals, destroyed, depth, .. } = ranges;
        let block_weight = |b: Block| 10f32.powi(depth[b].min(8) as i32);

        // Value numbers, uses, and copies, in one walk in dominance order.
        let mut number: Vec<u32> = (0..lanes.count() as u32).collect();
        let mut weight: SecondaryMap<Value, f32> = SecondaryMap::new();
        let mut wanted: Vec<(f32, LanePair)> = Vec::new();
        let mut passed: Vec<((Value, u8), Reg)> = Vec::new();
        let mut replaced: Vec<(Value, (Value, u8))> = Vec::new();
        let mut lowest: SecondaryMap<Value, u8> = SecondaryMap::new();
        let mut align: SecondaryMap<Value, u8> = SecondaryMap::new();
        for &b in &cfg.rpo {
            let w = block_weight(b);
            for &i in &func.blocks[b].insts {
                let d = &func.insts[i];
                let mut count = |n: Name| {
                    if let Some(v) = n.value() {
                        weight[v] += w;
                    }
                };
                d.for_each_use(&mut count);
                d.for_each_def(&mut count);
                if let Some(op) = d.opcode() {
                    for o in &d.operands {
                        if let Operand::Reg(RegOp { reg: Name::Val(v), .. }) = o
                            && func.values[*v].width > NARROW
                        {
                            align[*v] = align[*v].max(op.tuple_alignment(func.values[*v].width));
                        }
                    }
                }
                if d.opcode().is_some_and(sass::Opcode::is_group_product) {
                    let mut above = |n: Name| {
                        if let Some(v) = n.value().filter(|v| func.values[*v].file == RegFile::R) {
                            lowest[v] = LOWEST_OF_GROUPS;
                        }
                    };
                    d.for_each_use(&mut above);
                    d.for_each_def(&mut above);
                }
                if let (Op::Macro(Macro::FromReg | Macro::ToReg), [Operand::Reg(x), Operand::Reg(y)]) =
                    (d.op, &d.operands[..])
                {
                    match (x.reg, y.reg) {
                        (Name::Val(v), Name::Phys(r)) | (Name::Phys(r), Name::Val(v)) => {
                            passed.push(((v, 0), r))
                        }
                        (Name::Phys(r), Name::Part(v, k)) => passed.push(((v, k), r)),
                        _ => {}
                    }
                }
                replaced_sources(func, d, |dst, src| replaced.push((dst, src)));
                let same = d.is_unguarded();
                copied_lanes(func, lanes, d, |(dst, src)| {
                    let file = |l: u32| lanes.owner(l).map(|(v, _)| func.values[v].file);
                    // A copy into another file has another form: a predicate is not the number it is made of.
                    if same && file(dst) == file(src) {
                        number[dst as usize] = number[src as usize];
                    }
                    wanted.push((w, (dst, src)));
                });
            }
            if let Some(v) = func.blocks[b].term.used_name().and_then(Name::value) {
                weight[v] += w;
            }
        }
        // Behind the copies that are executed as often: an instruction is left out for those.
        for &b in &cfg.rpo {
            let w = block_weight(b) / 2.0;
            for &i in &func.blocks[b].insts {
                summed_lanes(func, lanes, &func.insts[i], |pair| wanted.push((w, pair)));
            }
        }

        let mut out = Webs {
            webs: PrimaryMap::new(),
            home: SecondaryMap::new(),
            fixed: Vec::new(),
            taken: destroyed.iter().map(|(at, all)| (Segment { start: *at, end: at + 1 }, *all)).collect(),
            copies: Vec::new(),
            replaced: Vec::new(),
            wishes: Vec::new(),
            numbering: numbering.clone(),
        };
        for (v, d) in func.values.iter() {
            let held = |i: u8| -> Intervals {
                let l = lanes.lane(v, i);
                intervals.of(l).iter().map(|s| Held { at: *s, number: number[l as usize] }).collect()
            };
            let frame: SmallVec<[Intervals; 1]> = (0..d.width).map(held).collect();
            if frame.iter().all(Intervals::is_empty) {
                continue;
            }
            let web = out.webs.push(WebData {
                file: d.file,
                align: Reg::tuple_alignment(d.width).max(align[v]),
                lowest: lowest[v],
                lanes: frame,
                members: SmallVec::from_slice(&[(v, 0)]),
                weight: weight[v],
                coalesced: false,
                confined: false,
            });
            out.home[v] = Some((web, 0));
        }
        for r in FILES.into_iter().flat_map(|file| (0..=u8::MAX).map(move |index| Reg { file, index })) {
            out.fixed.extend(intervals.of(lanes.phys(r)).iter().map(|s| (r, *s)));
        }
        if let Some(grants) = grants {
            out.keep_within(grants, cfg);
        }
        for &(a, b) in &isolated.ties {
            out.merge(a, 0, b, 0, Why::Tied);
        }
        wanted.sort_by(|a, b| b.0.total_cmp(&a.0));
        let under_way = UnderWay::new(func);
        let is_piece = |v: Value| apart.pieces.contains(v.as_u32() as usize);
        for &(_, (dst, src)) in wanted.iter().filter(|_| !under_way.is_empty() || !apart.pieces.is_clear()) {
            if let (Some((d, i)), Some((s, j))) = (lanes.owner(dst), lanes.owner(src))
                && (under_way.moves(s, d) || is_piece(d) || is_piece(s))
            {
                out.merge(d, i, s, j, Why::Same);
            }
        }
        // What lanes change together is in one register as long as what it held before is needed no more.
        let together = |v: Value| {
            let at = v.as_u32() as usize;
            joint.contains(at) && !apart.anywhere.contains(at)
        };
        for &(_, (dst, src)) in wanted.iter().filter(|_| !joint.is_clear()) {
            if let (Some((d, i)), Some((s, j))) = (lanes.owner(dst), lanes.owner(src))
                && together(d)
                && together(s)
            {
                out.merge(d, i, s, j, Why::Wanted);
            }
        }
        out.spread_uniform(func, cfg, whole, lanes.count() as u32);
        out.keep_short(func);
        out.spread_left(func, cfg);
        let mut left = Vec::new();
        for &(w, (dst, src)) in &wanted {
            let (Some((d, i)), Some((s, j))) = (lanes.owner(dst), lanes.owner(src)) else { continue };
            if apart.keeps(d, w) || apart.keeps(s, w) || !out.merge(d, i, s, j, Why::Wanted) {
                left.push((d, i, s, j));
            }
        }
        for (d, i, s, j) in left {
            if let (Some((dw, doff)), Some((sw, soff))) = (out.home[d], out.home[s])
                && dw != sw
                && out.webs[dw].file == out.webs[sw].file
            {
                out.copies.push(((dw, doff + i), (sw, soff + j)));
            }
        }
        for (v, (source, k)) in replaced {
            if let (Some((dw, doff)), Some((sw, soff))) = (out.home[v], out.home[source])
                && dw != sw
            {
                out.replaced.push(((dw, doff), (sw, soff + k)));
            }
        }
        for ((v, k), reg) in passed {
            if let Some((web, offset)) = out.home[v]
                && out.webs[web].file == reg.file
            {
                out.wishes.push(((web, offset + k), reg));
            }
        }
        out
    }

    /// Takes the registers that the warp does not hold in a block.
    fn keep_within(&mut self, grants: &Grants, cfg: &Cfg) {
        let n = &self.numbering;
        let at = |b: Block| Segment { start: 2 * n.entry[b], end: 2 * n.term[b] + 2 };
        let blocks = cfg.rpo.iter().map(|b| (grants.named(*b), at(*b)));
        self.taken.extend(blocks.clone().map(|(named, at)| {
            let mut all = Registers::default();
            *all.of_mut(RegFile::R) = Set::of(named.into()..Reg::ZERO.into());
            (at, all)
        }));
        let few: Vec<Segment> = blocks.filter(|(named, _)| *named < FEW).map(|(_, at)| at).collect();
        for d in self.webs.values_mut().filter(|d| d.file == RegFile::R) {
            let inside = |h: &Held| {
                let at = few.partition_point(|s| s.end <= h.at.start);
                few.get(at).is_some_and(|s| s.start < h.at.end)
            };
            d.confined = d.lanes.iter().flat_map(Intervals::iter).any(inside);
        }
    }

    /// Makes uniform webs that live from block to block, or past a place at which other lanes may run, live wherever those may be. `fresh` is an unused
    /// value number.
    fn spread_uniform(&mut self, func: &Function, cfg: &Cfg, whole: Option<&FixedBitSet>, mut fresh: u32) {
        let spread = Spread::new(func, cfg, &self.numbering, whole);
        for d in self.webs.values_mut().filter(|d| matches!(d.file, RegFile::UR | RegFile::UP)) {
            for lane in &mut d.lanes {
                let Some(first) = lane.first() else { continue };
                if let Some(at) = spread.widened(lane.iter().map(|h| h.at)) {
                    let same = lane.iter().all(|h| h.number == first.number);
                    let number = if same { first.number } else { fresh };
                    fresh += 1;
                    *lane = at.into_iter().map(|at| Held { at, number }).collect();
                }
            }
        }
    }

    /// Lets no uniform register of a function that is called hold anything everywhere: lanes that were elsewhere meanwhile may have called another
    /// function, which has the same registers. (Where a function calls others itself, they take all of them anyway.)
    fn keep_short(&mut self, func: &Function) {
        if super::color::uniform_limit(func).is_some() && func.callees.is_empty() {
            let mut all = Registers::default();
            [RegFile::UR, RegFile::UP].iter().for_each(|f| *all.of_mut(*f) = Set::of(0..Reg::ZERO.into()));
            self.taken.push((Segment { start: 0, end: 1 }, all));
        }
    }

    /// Makes barriers that lanes leave by BREAK live everywhere: those may run any code while others still wait.
    fn spread_left(&mut self, func: &Function, cfg: &Cfg) {
        let insts = cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts).map(|i| &func.insts[*i]);
        let left: FxHashSet<Value> = insts.filter_map(barrier_left).collect();
        if left.is_empty() {
            return;
        }
        let everywhere = Spread::new(func, cfg, &self.numbering, None).everywhere();
        for d in self.webs.values_mut().filter(|d| d.members.iter().any(|m| left.contains(&m.0))) {
            for lane in &mut d.lanes {
                if let Some(number) = lane.first().map(|h| h.number) {
                    *lane = [Held { at: everywhere, number }].into_iter().collect();
                }
            }
        }
    }

    /// Puts lane `i` of `a` and lane `j` of `b` into the same register if possible, and says whether they
    /// are.
    fn merge(&mut self, a: Value, i: u8, b: Value, j: u8, why: Why) -> bool {
        let (Some((wa, oa)), Some((wb, ob))) = (self.home[a], self.home[b]) else { return false };
        let (pa, pb) = (oa + i, ob + j);
        if wa == wb {
            return pa == pb;
        }
        // The frame with the larger alignment stays; the other is moved into it: the smaller one, so that no value is moved
        // more often than the logarithm of their number.
        let size = |w: Web| (self.webs[w].size(), self.webs[w].members.len());
        let ((wa, pa), (wb, pb)) =
            if size(wa) >= size(wb) { ((wa, pa), (wb, pb)) } else { ((wb, pb), (wa, pa)) };
        let (x, y) = (&self.webs[wa], &self.webs[wb]);
        if x.file != y.file || pa < pb {
            return false;
        }
        let shift = pa - pb;
        if !shift.is_multiple_of(y.align) || usize::from(shift) + y.lanes.len() > x.size() {
            return false;
        }
        let clash = |(k, lane): (usize, &Intervals)| {
            x.lanes.get(k + usize::from(shift)).is_some_and(|other| other.clashes(lane))
        };
        if y.lanes.iter().enumerate().any(clash) {
            debug_assert!(why != Why::Tied, "tied values {a} and {b} interfere");
            return false;
        }
        let empty = WebData {
            file: y.file,
            align: 1,
            lowest: 0,
            lanes: SmallVec::new(),
            members: SmallVec::new(),
            weight: 0.0,
            coalesced: false,
            confined: false,
        };
        let y = std::mem::replace(&mut self.webs[wb], empty);
        let x = &mut self.webs[wa];
        x.coalesced |= y.coalesced | (why == Why::Wanted);
        x.confined |= y.confined;
        x.weight += y.weight;
        x.align = x.align.max(y.align);
        x.lowest = x.lowest.max(y.lowest.saturating_sub(shift));
        for (k, lane) in y.lanes.into_iter().enumerate() {
            let k = k + usize::from(shift);
            if x.lanes.len() <= k {
                x.lanes.resize(k + 1, Intervals::default());
            }
            x.lanes[k].add(lane);
        }
        for (v, off) in y.members {
            self.home[v] = Some((wa, off + shift));
            x.members.push((v, off + shift));
        }
        true
    }
}
