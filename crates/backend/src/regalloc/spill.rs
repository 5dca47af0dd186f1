//! Lowers register pressure in SSA: chosen values are recomputed before each use, or kept in a register of a
//! roomier file (P and UR in R), or in local memory.

mod memory;
mod pressure;

use super::room::{self, Room};
use super::slots::{self, Slot};
use super::sources::{Source, sources};
use super::under_way::UnderWay;
use super::{farthest, split};
use crate::liveness::{Ranges, Spread, destroyed, values_read};
use crate::waits::lets_others_run;
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
pub use memory::slots_base;
use ori::cfg::Cfg;
use ori::{
    ALWAYS, Block, Function, Inst, InstData, Loc, Macro, Name, Op, Operand, Operands, Terminator, Value,
    ValueData, operand,
};
use pressure::most_needed;
use rustc_hash::FxHashMap;
use sass::{Mod, Mods, Opcode, RegFile, RegOp};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::rc::Rc;
use thin_vec::{ThinVec, thin_vec};

/// Where a spilled value is when it is not in a register of its file.
#[derive(Clone)]
enum Home {
    /// Nowhere: this instruction, which reads no registers, makes it again.
    Again(Inst),
    /// In local memory at this offset from the first slot; a parameter arrives at another.
    Slot { at: u32, arrives: u32 },
    /// In this value of another file ([`home_file`]).
    Value(Value),
}

/// Spilling state that lasts over rounds.
#[derive(Clone, Default)]
pub struct Spiller {
    /// Values that must not be spilled (again).
    pub pinned: FixedBitSet,
    /// Parts of tuples under names of their own, to be stored and brought back together.
    pub(super) pieces: FixedBitSet,
    /// Values in which values of other files are kept.
    homes: FixedBitSet,
    /// Bytes of local memory in slots.
    pub slot_bytes: u32,
    /// The slots.
    pub slots: Vec<Slot>,
    /// Bytes stored by inserted instructions.
    pub store_bytes: u32,
    /// Bytes loaded by inserted instructions.
    pub load_bytes: u32,
    /// Whether general values leave their registers by next use; others than those that must are spilled nowhere else then.
    pub(super) planned: bool,
    /// Whether something that must be in a uniform register found none free: others leave theirs by what lives, then.
    pub(super) short: bool,
    /// Whether what is brought back serves to the next call or the block's end, as registers are short at calls only.
    share: bool,
    /// The function before anything left a register, if something has.
    pub original: Option<Rc<Function>>,
}

/// Whether an instruction can be repeated anywhere: it is always executed, writes one value and reads only
/// immediates and constants.
pub fn is_constant(d: &InstData) -> bool {
    let op = match d.op {
        Op::Macro(m) => matches!(m, Macro::Copy | Macro::Collect | Macro::Undef),
        Op::Sass(op) => {
            matches!(op, Opcode::MOV | Opcode::UMOV | Opcode::LDC | Opcode::LDCU | Opcode::ULDC)
        }
    };
    let mut registers = false;
    d.for_each_use(|n| registers |= !matches!(n, Name::Phys(r) if r.is_zero()));
    op && d.is_unguarded() && !registers
}

impl Spiller {
    /// For a function: what the tensor core reads and writes while the code goes on stays in its registers meanwhile.
    pub fn of(func: &Function) -> Spiller {
        Spiller { pinned: UnderWay::new(func).values(), ..Spiller::default() }
    }

    /// Chooses values of `file` until no more registers are needed anywhere than there is `room` for, together with
    /// those in `forced`, and rewrites the function. Returns whether there were any. `ranges` are those of the function
    /// if they are known; they are left there unless it changes.
    pub fn lower(
        &mut self,
        func: &mut Function,
        cfg: &Cfg,
        file: RegFile,
        room: Room<'_>,
        forced: &[Value],
        ranges: &mut Option<Ranges>,
    ) -> bool {
        let room = room.of(file);
        self.pinned.grow(func.values.len());
        let mut chosen = FixedBitSet::with_capacity(func.values.len());
        forced.iter().filter(|v| func.values[**v].file == file).for_each(|v| chosen.insert(v.index()));
        let known = ranges.get_or_insert_with(|| Ranges::new(func, cfg));
        // An argument in a uniform register and its parameter mostly share it, though both count: whether registers reach shows when they are given out.
        let passed = |b: &Block| func.blocks[*b].params.iter().any(|p| func.values[*p].file == RegFile::UR);
        let shared = file == RegFile::UR && !self.short && cfg.rpo.iter().any(passed);
        let told = self.planned && file == RegFile::R || shared;
        if !told && (!forced.is_empty() || most_needed(func, cfg, file, room, known, true) > room.limit) {
            self.choose(func, cfg, file, room, known, &mut chosen);
        }
        self.share = file == RegFile::UR
            && forced.is_empty()
            && !chosen.is_clear()
            && 2 * most_needed(func, cfg, file, room, known, false) <= room.limit;
        let known = ranges.take_if(|_| !chosen.is_clear());
        if let Some(known) = &known {
            self.keep(func);
            self.rewrite(func, cfg, &chosen, known);
        }
        known.is_some()
    }

    /// Remembers the function as it is before it is changed for the first time.
    fn keep(&mut self, func: &Function) {
        self.original.get_or_insert_with(|| Rc::new(func.clone()));
    }

    /// Lets general values leave their registers by next use, so that no more are needed anywhere than there is `room` for. Returns
    /// what was before, if it was called for.
    pub fn split(
        &mut self,
        func: &mut Function,
        cfg: &Cfg,
        room: Room<'_>,
        ranges: &mut Option<Ranges>,
    ) -> Option<(Rc<Function>, Spiller)> {
        self.pinned.grow(func.values.len());
        let known = ranges.get_or_insert_with(|| Ranges::new(func, cfg));
        if most_needed(func, cfg, RegFile::R, room, known, true) <= room.limit {
            return None;
        }
        let plan = farthest::plan(func, cfg, room, (known, &self.pinned))?;
        let before = (Rc::new(func.clone()), self.clone());
        self.original.get_or_insert_with(|| before.0.clone());
        split::apply(self, func, cfg, known, &plan);
        self.planned = true;
        *ranges = None;
        Some(before)
    }

    /// The constants and values of `others` among the general registers that must be made again where they are used, so
    /// that no more registers are needed anywhere than there is `room` for, as far as that helps.
    pub fn constants(
        func: &Function,
        cfg: &Cfg,
        room: Room<'_>,
        ranges: &Ranges,
        others: &[Value],
    ) -> FixedBitSet {
        let mut chosen = FixedBitSet::with_capacity(func.values.len());
        if most_needed(func, cfg, RegFile::R, room, ranges, true) > room.limit {
            let mut pinned = FixedBitSet::with_capacity(func.values.len());
            pinned.insert_range(..);
            for d in func.insts.values().filter(|d| is_constant(d)) {
                d.for_each_def(|n| n.value().into_iter().for_each(|v| pinned.set(v.index(), false)));
            }
            others.iter().for_each(|v| pinned.set(v.index(), false));
            let only = Spiller { pinned, ..Spiller::default() };
            only.choose(func, cfg, RegFile::R, room, ranges, &mut chosen);
        }
        chosen
    }

    /// Sweeps over the program; where more registers are needed than there is `room` for, picks the live value that is
    /// used least often per point that it lives.
    fn choose(
        &self,
        func: &Function,
        cfg: &Cfg,
        file: RegFile,
        room: Room<'_>,
        ranges: &Ranges,
        chosen: &mut FixedBitSet,
    ) {
        let Ranges { lanes, live, numbering: n, intervals, depth, .. } = ranges;

        let mut cost: SecondaryMap<Value, f32> = func.per_value();
        let mut uses: Vec<SmallVec<[(Value, i32); 2]>> = Vec::new();
        uses.resize_with(2 * n.at.len() + 2, SmallVec::new);
        // Registers needed at a point beyond what is live.
        let mut extra = vec![0i32; 2 * n.at.len() + 2];
        // Points at which parameters receive their values, arguments whose registers those can take over,
        // and the parameters of each such point.
        let mut arrives: SecondaryMap<Value, SmallVec<[u32; 2]>> = SecondaryMap::new();
        let mut covers: SecondaryMap<Value, SmallVec<[u32; 2]>> = SecondaryMap::new();
        let mut at_edge: FxHashMap<usize, Vec<Value>> = FxHashMap::default();
        let of_file = |v: &Value| func.values[*v].file == file;
        for &b in &cfg.rpo {
            let w = 10f32.powi(depth[b].min(8) as i32);
            let limit = room.at(b);
            for e in &mut extra[2 * n.entry[b] as usize..2 * n.term[b] as usize + 2] {
                *e += (room.limit - limit) as i32;
            }
            for &i in &func.blocks[b].insts {
                let d = &func.insts[i];
                let at = 2 * n.inst[i] as usize;
                // What lives across a call needs registers that the callee keeps.
                if let Some(all) = destroyed(func, d) {
                    extra[at + 1] += room::below(all.of(file), limit) as i32;
                }
                d.for_each_use(|name| {
                    if let Some(v) = name.value().filter(of_file) {
                        cost[v] += w;
                        uses[at].push((v, i32::from(func.shape(name).width)));
                    }
                });
                d.for_each_def(|name| {
                    if let Some(v) = name.value().filter(of_file) {
                        cost[v] += w;
                        uses[at + 1].push((v, i32::from(func.values[v].width)));
                        if !d.kept.is_empty() {
                            extra[at] += i32::from(func.values[v].width);
                        }
                    }
                });
            }
            let term = &func.blocks[b].term;
            let t = 2 * n.term[b] as usize;
            if let Some(v) = term.used_name().and_then(Name::value).filter(of_file) {
                cost[v] += w;
                uses[t].push((v, i32::from(func.values[v].width)));
            }
            // Every target's parameters need registers at once, apart from those of arguments that end here.
            let mut seen: SmallVec<[Block; 2]> = SmallVec::new();
            for target in term.targets() {
                if seen.contains(&target.block) {
                    continue;
                }
                seen.push(target.block);
                let mut taken: SmallVec<[Value; 4]> = SmallVec::new();
                for (a, p) in target.args.iter().zip(&func.blocks[target.block].params) {
                    if of_file(a) {
                        let width = i32::from(func.values[*a].width);
                        cost[*a] += w;
                        cost[*p] += w;
                        arrives[*p].push(t as u32);
                        at_edge.entry(t).or_default().push(*p);
                        // Another target may still want the argument: its register holds the same there.
                        let dies = !live.is_live_in(target.block, lanes.all(*a));
                        if !dies || taken.contains(a) {
                            extra[t] += width;
                            extra[t + 1] += width;
                        } else {
                            covers[*a].push(t as u32);
                            taken.push(*a);
                        }
                    }
                }
            }
        }
        // Making a constant again costs no memory access.
        for d in func.insts.values().filter(|d| is_constant(d)) {
            d.for_each_def(|name| {
                if let Some(v) = name.value() {
                    cost[v] *= 0.4;
                }
            });
        }

        let spread = matches!(file, RegFile::UR | RegFile::UP).then(|| Spread::new(func, cfg, n, room.whole));
        let mut starts: Vec<(u32, u32, u32)> = Vec::new();
        let mut length: SecondaryMap<Value, u32> = func.per_value();
        let mut pressure = 0i32;
        for (v, d) in func.values.iter().filter(|(_, d)| d.file == file) {
            for i in 0..d.width {
                let l = lanes.lane(v, i);
                let lane = intervals.of(l);
                let widened = spread.as_ref().and_then(|spread| spread.widened(lane.iter().copied()));
                for s in widened.as_deref().unwrap_or(lane) {
                    starts.push((s.start, s.end, l));
                    length[v] += s.end - s.start;
                }
            }
        }
        starts.sort_unstable();
        let mut next = starts.into_iter().peekable();
        let mut ends: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
        // Live lanes of each value, and the values that have some.
        let mut live_lanes: SecondaryMap<Value, u8> = SecondaryMap::new();
        let score = |v: Value| cost[v] / length[v].max(1) as f32;
        let may_go = |v: Value| !self.pinned.contains(v.index()) && (length[v] > 3 || !arrives[v].is_empty());
        // Those of them that may be spilled, the cheapest one first.
        let mut ready: BTreeSet<(Cost, Value)> = BTreeSet::new();
        for at in 0..extra.len() {
            while let Some(&Reverse((_, l))) = ends.peek().filter(|e| e.0.0 as usize <= at) {
                ends.pop();
                let (v, _) = lanes.owner(l).expect("lane of a value");
                live_lanes[v] -= 1;
                if live_lanes[v] == 0 {
                    ready.remove(&(Cost(score(v)), v));
                }
                pressure -= i32::from(!chosen.contains(v.index()));
            }
            while let Some((_, end, l)) = next.next_if(|s| s.0 as usize <= at) {
                ends.push(Reverse((end, l)));
                let (v, _) = lanes.owner(l).expect("lane of a value");
                live_lanes[v] += 1;
                if live_lanes[v] == 1 && !chosen.contains(v.index()) && may_go(v) {
                    ready.insert((Cost(score(v)), v));
                }
                pressure += i32::from(!chosen.contains(v.index()));
            }
            let mut here = pressure + extra[at];
            for (v, w) in &uses[at] {
                here += if chosen.contains(v.index()) { *w } else { 0 };
            }
            while here > room.limit as i32 {
                let params = at_edge.get(&at).or_else(|| at_edge.get(&at.wrapping_sub(1)));
                let unused = |v: &Value| !uses[at].iter().any(|(u, _)| u == v);
                let cheapest = ready.iter().map(|(_, v)| *v).find(unused);
                let victim = cheapest
                    .into_iter()
                    .chain(params.into_iter().flatten().copied().filter(unused))
                    .filter(|v| !chosen.contains(v.index()) && may_go(*v))
                    .min_by_key(|v| Cost(score(*v)));
                let Some(v) = victim else { break };
                chosen.insert(v.index());
                ready.remove(&(Cost(score(v)), v));
                pressure -= i32::from(live_lanes[v]);
                here -= i32::from(live_lanes[v]);
                let width = i32::from(func.values[v].width);
                let less = arrives[v].iter().map(|t| (*t as usize, -width));
                for (t, change) in less.chain(covers[v].iter().map(|t| (*t as usize, width))) {
                    extra[t] += change;
                    extra[t + 1] += change;
                    if t == at || t + 1 == at {
                        here += change;
                    }
                }
            }
        }
    }

    /// Removes what earlier rounds inserted and nothing reads any more: copies to files other than R, loads, and what was made again.
    fn drop_leftovers(&mut self, func: &mut Function, cfg: &Cfg) {
        let mut again = true;
        while std::mem::take(&mut again) {
            let read = values_read(func, cfg);
            for &b in &cfg.rpo {
                let mut insts = std::mem::take(&mut func.blocks[b].insts);
                insts.retain(|i| {
                    let d = &func.insts[*i];
                    let unread = |n: Name| n.value().filter(|v| !read.contains(v.index()));
                    let Some(v) = d.operands.first().and_then(Operand::as_reg).and_then(|r| unread(r.reg))
                    else {
                        return true;
                    };
                    let ValueData { file, width } = func.values[v];
                    let pinned = self.pinned.contains(v.index()) && d.is_unguarded();
                    let loads = pinned && slots::access(func, d).is_some();
                    let tuple = pinned && d.op == Op::Macro(Macro::Collect);
                    let copies = matches!(d.op, Op::Macro(Macro::Copy | Macro::Undef))
                        && d.is_unguarded()
                        && file != RegFile::R;
                    if loads {
                        self.load_bytes -= 4 * u32::from(width);
                    }
                    // Its words are read no more, either.
                    again |= tuple;
                    let made_again = pinned && is_constant(d);
                    !(loads || tuple || copies || made_again)
                });
                func.blocks[b].insts = insts;
            }
        }
    }

    pub(super) fn pin(&mut self, v: Value) -> Value {
        self.pinned.grow(v.index() + 1);
        self.pinned.insert(v.index());
        v
    }

    /// A new slot.
    pub(super) fn slot(&mut self, width: u8) -> u32 {
        let align = 4 * u32::from(width.next_power_of_two().min(4));
        let at = self.slot_bytes.next_multiple_of(align);
        self.slot_bytes = at + 4 * u32::from(width);
        self.slots.push(Slot { at, width });
        at
    }

    /// Replaces every use and definition of the chosen values.
    fn rewrite(&mut self, func: &mut Function, cfg: &Cfg, chosen: &FixedBitSet, ranges: &Ranges) {
        let mut homes: FxHashMap<Value, Home> = FxHashMap::default();
        let Ranges { lanes, live, .. } = ranges;
        let old_params: SecondaryMap<Block, SmallVec<[Value; 4]>> = {
            let mut m = SecondaryMap::new();
            func.blocks.iter().for_each(|(b, d)| m[b] = d.params.clone());
            m
        };
        for &b in &cfg.rpo {
            for p in old_params[b].iter().filter(|p| chosen.contains(p.index())) {
                let home = self.home(func, *p);
                if let Home::Slot { at, .. } = home {
                    // The edge may store to the slot itself unless the old content is still wanted there.
                    let wanted = cfg.preds[b].iter().any(|q| {
                        live.is_live_out(*q, lanes.all(*p))
                            || func.blocks[*q].term.targets().iter().any(|t| t.args.contains(p))
                    });
                    let arrives = if wanted { self.slot(func.values[*p].width) } else { at };
                    homes.insert(*p, Home::Slot { at, arrives });
                } else {
                    homes.insert(*p, home);
                }
            }
            for k in 0..func.blocks[b].insts.len() {
                let i = func.blocks[b].insts[k];
                let d = func.insts[i].clone();
                d.for_each_def(|n| {
                    if let Some(v) = n.value().filter(|v| chosen.contains(v.index())) {
                        let home = if is_constant(&d) { Home::Again(i) } else { self.home(func, v) };
                        homes.insert(v, home);
                    }
                });
            }
        }
        let sources = sources(func, cfg);
        for &b in &cfg.rpo {
            self.rewrite_block(func, b, &homes, &old_params, &sources);
        }
        self.drop_leftovers(func, cfg);
    }

    fn home(&mut self, func: &mut Function, v: Value) -> Home {
        let d = func.values[v];
        if d.file == RegFile::R {
            let at = self.slot(d.width);
            Home::Slot { at, arrives: at }
        } else {
            let home = func.add_value(home_file(d.file), d.width);
            self.homes.grow(home.index() + 1);
            self.homes.insert(home.index());
            self.pinned.grow(func.values.len());
            Home::Value(home)
        }
    }

    fn rewrite_block(
        &mut self,
        func: &mut Function,
        b: Block,
        homes: &FxHashMap<Value, Home>,
        old_params: &SecondaryMap<Block, SmallVec<[Value; 4]>>,
        sources: &FxHashMap<Value, Source>,
    ) {
        let old = std::mem::take(&mut func.blocks[b].insts);
        let mut out = Vec::with_capacity(old.len() + 8);
        let mut params = SmallVec::new();
        for &p in &old_params[b] {
            match homes.get(&p) {
                None => params.push(p),
                Some(Home::Value(r)) => params.push(*r),
                Some(Home::Slot { at, arrives }) => {
                    if at != arrives {
                        let t = self.load(func, &mut out, p, None, *arrives, Loc::default());
                        self.store(func, &mut out, t, *at, Loc::default());
                    }
                }
                Some(Home::Again(_)) => unreachable!("a parameter has no instruction"),
            }
        }
        func.blocks[b].params = params;
        let mut recent: SmallVec<[(Name, Value); 4]> = SmallVec::new();
        for i in old {
            // Most instructions have nothing to do with what leaves its registers.
            let mut concerned = false;
            let mut concerns = |n: Name| concerned |= n.value().is_some_and(|v| homes.contains_key(&v));
            func.insts[i].for_each_use(&mut concerns);
            func.insts[i].for_each_def(&mut concerns);
            if !concerned {
                let d = &func.insts[i];
                if !self.share || d.op == Op::Macro(Macro::Call) || lets_others_run(func, d) {
                    recent.clear();
                }
                out.push(i);
                continue;
            }
            let mut d = func.insts[i].clone();
            let mut skip = false;
            d.for_each_def(|n| {
                skip |= n.value().is_some_and(|v| matches!(homes.get(&v), Some(Home::Again(_))));
            });
            if skip {
                continue;
            }
            let loc = d.loc;
            let mut temps = std::mem::take(&mut recent);
            // A tuple that is named whole and in part is one: products of matrices name the words of a pair.
            let mut whole: SmallVec<[Name; 2]> = SmallVec::new();
            d.for_each_use(|n| whole.extend(Some(n).filter(|n| matches!(n, Name::Val(_)))));
            for n in whole {
                self.use_name(func, &mut out, n, homes, &mut temps, loc);
            }
            d.map_uses(|n| self.use_name(func, &mut out, n, homes, &mut temps, loc));
            if self.share && !(d.op == Op::Macro(Macro::Call) || lets_others_run(func, &d)) {
                recent = temps;
            }
            let mut defs: SmallVec<[Value; 2]> = SmallVec::new();
            d.for_each_def(|n| defs.extend(n.value()));
            func.insts[i] = d;
            out.push(i);
            for v in defs {
                match homes.get(&v) {
                    Some(Home::Slot { at, .. }) => {
                        self.pin(v);
                        self.store(func, &mut out, v, *at, loc);
                    }
                    Some(Home::Value(r)) => {
                        self.pin(v);
                        to_home(func, &mut out, *r, v, loc);
                    }
                    _ => {}
                }
            }
        }
        let loc = func.blocks[b].term_loc;
        let mut term = std::mem::replace(&mut func.blocks[b].term, Terminator::Unreachable);
        let mut temps: SmallVec<[(Name, Value); 4]> = SmallVec::new();
        let mut done: SmallVec<[(Block, SmallVec<[Value; 4]>); 2]> = SmallVec::new();
        for t in term.targets_mut() {
            if let Some((_, args)) = done.iter().find(|(x, _)| *x == t.block) {
                t.args.clone_from(args);
                continue;
            }
            // Stores first, so that their temporaries are short-lived.
            let mut args = SmallVec::new();
            for (a, p) in t.args.iter().zip(&old_params[t.block]) {
                if let Some(Home::Slot { arrives, .. }) = homes.get(p) {
                    let v = match homes.get(a) {
                        None => match sources.get(a) {
                            // Brought back in an earlier round, with others: one at a time will do.
                            Some(Source::Slot(at, block))
                                if *block == b && self.pinned.contains(a.index()) =>
                            {
                                self.load(func, &mut out, *a, None, *at, loc)
                            }
                            Some(Source::Again(i)) if self.pinned.contains(a.index()) => {
                                self.make_again(func, &mut out, *a, *i, loc)
                            }
                            _ => *a,
                        },
                        Some(h) => self.reload(func, &mut out, *a, None, h, loc),
                    };
                    self.store(func, &mut out, v, *arrives, loc);
                }
            }
            for (a, p) in t.args.iter().zip(&old_params[t.block]) {
                match (homes.get(p), homes.get(a)) {
                    (Some(Home::Slot { .. } | Home::Again(_)), _) => {}
                    (None, None) => args.push(*a),
                    (None, Some(h)) => args.push(self.reload(func, &mut out, *a, None, h, loc)),
                    (Some(Home::Value(_)), Some(Home::Value(r))) => args.push(*r),
                    (Some(Home::Value(_)), h) => {
                        match sources.get(a) {
                            // It came from its home in an earlier round, perhaps by way of a slot.
                            Some(Source::Home(n))
                                if h.is_none()
                                    && (self.homes.contains(n.index())
                                        || self.pinned.contains(a.index())) =>
                            {
                                args.push(*n);
                                continue;
                            }
                            Some(Source::Undefined) => {
                                let d = func.values[*a];
                                let r = func.add_value(home_file(d.file), d.width);
                                let undef = plain(Op::Macro(Macro::Undef), &[], thin_vec![operand(r)], loc);
                                out.push(func.insts.push(undef));
                                args.push(r);
                                continue;
                            }
                            _ => {}
                        }
                        let v = match h {
                            None => match sources.get(a) {
                                Some(Source::Again(i)) if self.pinned.contains(a.index()) => {
                                    self.make_again(func, &mut out, *a, *i, loc)
                                }
                                _ => *a,
                            },
                            Some(h) => self.reload(func, &mut out, *a, None, h, loc),
                        };
                        let d = func.values[v];
                        let r = func.add_value(home_file(d.file), d.width);
                        to_home(func, &mut out, r, v, loc);
                        args.push(r);
                    }
                }
            }
            t.args = args;
            done.push((t.block, t.args.clone()));
        }
        if let Some(n) = term.used_name_mut() {
            *n = self.use_name(func, &mut out, *n, homes, &mut temps, loc);
        }
        func.blocks[b].term = term;
        func.blocks[b].insts = out;
    }

    /// The name to read instead of `n`, loaded once per instruction.
    fn use_name(
        &mut self,
        func: &mut Function,
        out: &mut Vec<Inst>,
        n: Name,
        homes: &FxHashMap<Value, Home>,
        temps: &mut SmallVec<[(Name, Value); 4]>,
        loc: Loc,
    ) -> Name {
        let Some((v, home)) = n.value().and_then(|v| Some((v, homes.get(&v)?))) else { return n };
        if let Some((_, t)) = temps.iter().find(|(k, _)| *k == n) {
            return Name::Val(*t);
        }
        let part = if let Name::Part(_, i) = n { Some(i) } else { None };
        if let Some(i) = part
            && let Some((_, t)) = temps.iter().find(|(k, _)| *k == Name::Val(v))
        {
            return Name::Part(*t, i);
        }
        let t = self.reload(func, out, v, part, home, loc);
        temps.push((n, t));
        Name::Val(t)
    }

    /// Brings `v` (or one register of it) into a new value of its file.
    fn reload(
        &mut self,
        func: &mut Function,
        out: &mut Vec<Inst>,
        v: Value,
        part: Option<u8>,
        home: &Home,
        loc: Loc,
    ) -> Value {
        let file = func.values[v].file;
        match home {
            Home::Slot { at, .. } => self.load(func, out, v, part, *at, loc),
            Home::Again(i) => {
                let width = func.values[v].width;
                let made = &func.insts[*i];
                if let (Some(part), Some((_, parts))) = (part, made.collected())
                    && parts.len() == usize::from(width)
                {
                    let word = parts[usize::from(part)];
                    let t = func.add_value(file, 1);
                    self.pin(t);
                    let copy = thin_vec![operand(t), word];
                    out.push(func.insts.push(plain(Op::Macro(Macro::Copy), &[], copy, loc)));
                    return t;
                }
                let t = self.make_again(func, out, v, *i, loc);
                match part {
                    Some(i) if width > 1 => {
                        let one = func.add_value(file, 1);
                        self.pin(one);
                        let copy = thin_vec![operand(one), operand(Name::Part(t, i))];
                        out.push(func.insts.push(plain(Op::Macro(Macro::Copy), &[], copy, loc)));
                        one
                    }
                    _ => t,
                }
            }
            Home::Value(r) => {
                let (from, width) = match part {
                    Some(i) => (Name::Part(*r, i), 1),
                    None => (Name::Val(*r), func.values[v].width),
                };
                let t = func.add_value(file, width);
                self.pin(t);
                let copy = thin_vec![operand(t), operand(from)];
                out.push(func.insts.push(plain(Op::Macro(Macro::Copy), &[], copy, loc)));
                t
            }
        }
    }

    /// Repeats the instruction that makes `v`, for a new value.
    pub(super) fn make_again(
        &mut self,
        func: &mut Function,
        out: &mut Vec<Inst>,
        v: Value,
        inst: Inst,
        loc: Loc,
    ) -> Value {
        let ValueData { file, width } = func.values[v];
        let t = func.add_value(file, width);
        self.pin(t);
        let mut d = InstData { loc, ..func.insts[inst].clone() };
        for k in 0..d.operands.len() {
            if d.is_def(k) && matches!(&d.operands[k], Operand::Reg(r) if r.reg == Name::Val(v)) {
                d.operands[k] = operand(t);
            }
        }
        out.push(func.insts.push(d));
        t
    }
}

/// What spilling costs, in order.
#[derive(Clone, Copy, PartialEq)]
struct Cost(f32);

impl Eq for Cost {}

impl Ord for Cost {
    fn cmp(&self, other: &Cost) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Cost {
    fn partial_cmp(&self, other: &Cost) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

fn plain(op: Op, mods: &[Mod], operands: Operands, loc: Loc) -> InstData {
    InstData { guard: ALWAYS, op, mods: Mods::of(mods), operands, kept: ThinVec::new(), loc }
}

/// Where values of a file that is no general one are kept while they are not in a register of it. No instruction moves a uniform predicate to a
/// general register.
pub(super) fn home_file(file: RegFile) -> RegFile {
    match file {
        RegFile::UP => RegFile::P,
        RegFile::P | RegFile::UR | RegFile::B | RegFile::R => RegFile::R,
    }
}

/// Copies `v` into `r` of the file of its home.
fn to_home(func: &mut Function, out: &mut Vec<Inst>, r: Value, v: Value, loc: Loc) {
    let operands = thin_vec![operand(r), Operand::Reg(RegOp::plain(Name::Val(v)))];
    out.push(func.insts.push(plain(Op::Macro(Macro::Copy), &[], operands, loc)));
}
