//! Lanes that are to meet although they stand at different instructions ([`ori::meeting`]).
//!
//! WARPSYNC and what follows it gather lanes at one address. Where lanes of a warp may be at two such places of one kind
//! at once, both get a way round: if all lanes of the mask are there, the instruction is executed as it stands; if not,
//! a function is called that all places of the kind have in common, and in which the lanes meet.

use crate::Error;
use crate::waits::gathers;
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::cfg::Cfg;
use ori::meeting::{Kind, MARK, constant_lanes, is_meeting, is_truth};
use ori::{
    Block, BlockCall, Builder, Callee, Function, Inst, InstData, Loc, Macro, Name, Op, Operand, Terminator,
    Value, abi, operand,
};
use rustc_hash::FxHashSet;
use sass::ops::{Bar, Bsync, Warpsync};
use sass::{Mod, Mods, Opcode, Reg, RegFile, Role};
use smallvec::SmallVec;
use thin_vec::ThinVec;

/// A place where lanes may meet lanes at another one.
struct Site {
    inst: Inst,
    kind: Kind,
    /// The lanes, where they are a constant.
    lanes: Option<u32>,
}

/// What a lane comes by on its way through a block.
#[derive(Clone, Copy)]
enum Event {
    Site(usize),
    /// A function in which there may be sites of all kinds.
    Call,
    /// All lanes of the warp come together.
    All,
    /// A meeting of the lanes of a region.
    Sync(Value),
}

/// The sites of a function.
pub struct Sites {
    sites: Vec<Site>,
    /// Of each site, those of the same kind, and maybe the same lanes, without itself.
    alike: Vec<FixedBitSet>,
    events: SecondaryMap<Block, Vec<Event>>,
    calls: bool,
}

/// What follows a marked WARPSYNC.
struct Rest {
    kind: Kind,
    /// How many instructions are between.
    between: usize,
}

/// Looks at what follows the marked WARPSYNC at `at`. What belongs to it is of the same statement: where nobody needed that, votes by which
/// lanes share an atomic operation may come next, of lanes that are here and nowhere else.
fn rest(func: &Function, b: Block, at: usize) -> Result<Rest, Error> {
    let insts = &func.blocks[b].insts;
    let statement = func.insts[insts[at]].loc;
    for (between, i) in insts[at + 1..].iter().enumerate() {
        let d = &func.insts[*i];
        match Kind::of(d) {
            Some(kind) if d.loc == statement => return Ok(Rest { kind, between }),
            Some(_) => break,
            None => {}
        }
        let moves = match d.op {
            Op::Macro(m) => m.is_copy(),
            Op::Sass(Opcode::NOP) => break,
            Op::Sass(op) => op.info().effect == sass::Effect::Pure,
        };
        if !moves {
            break;
        }
    }
    Ok(Rest { kind: Kind::bare(), between: 0 })
}

/// Puts what belongs to marked WARPSYNCs directly behind them: what only was between, as that may change places, comes behind both, but for what the
/// former reads.
pub fn bring_together(func: &mut Function) {
    for b in func.layout.clone() {
        let mut at = 0;
        while let Some(k) = func.blocks[b].insts[at..].iter().position(|i| is_meeting(&func.insts[*i])) {
            at += k + 1;
            let insts = &func.blocks[b].insts;
            let statement = func.insts[insts[at - 1]].loc;
            let until = |i: &Inst| func.insts[*i].op == Op::Sass(Opcode::WARPSYNC);
            let behind = insts[at..].iter().take_while(|i| !until(i));
            let own = |i: &Inst| func.insts[*i].loc == statement && Kind::of(&func.insts[*i]).is_some();
            let Some(does) = behind.clone().position(own).map(|k| at + k) else { continue };
            let mut read: FxHashSet<Value> = FxHashSet::default();
            func.insts[insts[does]].for_each_use(|n| read.extend(n.value()));
            let (mut before, mut after) = (Vec::new(), Vec::new());
            for &i in insts[at..does].iter().rev() {
                let d = &func.insts[i];
                let mut needed = false;
                d.for_each_def(|n| needed |= n.value().is_some_and(|v| read.contains(&v)));
                if needed {
                    d.for_each_use(|n| read.extend(n.value()));
                }
                let list = if needed { &mut before } else { &mut after };
                list.push(i);
            }
            let own = insts[does];
            let order = before.into_iter().rev().chain([own]).chain(after.into_iter().rev());
            let order: Vec<Inst> = order.collect();
            func.blocks[b].insts[at..=does].copy_from_slice(&order);
        }
    }
}

/// The place in front of the WARPSYNC that something else than what belongs to it would stand behind at `place`; else that.
pub fn outside(func: &Function, b: Block, place: usize) -> usize {
    let insts = &func.blocks[b].insts;
    let Some(at) = insts[..place].iter().rposition(|i| func.insts[*i].op == Op::Sass(Opcode::WARPSYNC))
    else {
        return place;
    };
    let statement = func.insts[insts[at]].loc;
    let own = |i: &Inst| func.insts[*i].loc == statement && Kind::of(&func.insts[*i]).is_some();
    let splits = !insts[at..place].iter().any(own) && insts[place..].iter().any(own);
    if splits { at } else { place }
}

/// Whether what follows the marked WARPSYNC at `at` is done by all lanes that are there, whatever their masks.
///
/// # Errors
/// On code that is not as lowering makes it.
pub fn is_of_those_here(func: &Function, b: Block, at: usize) -> Result<bool, Error> {
    Ok(rest(func, b, at)?.kind.is_of_those_here())
}

/// What follows the marked WARPSYNC at `at`.
///
/// # Errors
/// On code that is not as lowering makes it.
pub fn kind(func: &Function, b: Block, at: usize) -> Result<Kind, Error> {
    Ok(rest(func, b, at)?.kind)
}

impl Sites {
    /// Finds them; `None` if there is none.
    ///
    /// # Errors
    /// On code that is not as lowering makes it.
    pub fn new(func: &Function, cfg: &Cfg) -> Result<Option<Sites>, Error> {
        let mut out =
            Sites { sites: Vec::new(), alike: Vec::new(), events: SecondaryMap::new(), calls: false };
        for &b in &cfg.rpo {
            for (at, &i) in func.blocks[b].insts.iter().enumerate() {
                let d = &func.insts[i];
                let event = match d.op {
                    Op::Sass(Opcode::WARPSYNC) if is_meeting(d) => {
                        let Rest { kind, .. } = rest(func, b, at)?;
                        out.sites.push(Site { inst: i, kind, lanes: constant_lanes(d) });
                        Event::Site(out.sites.len() - 1)
                    }
                    Op::Sass(Opcode::WARPSYNC) if d.is_unguarded() && constant_lanes(d) == Some(!0) => {
                        Event::All
                    }
                    Op::Sass(Opcode::BSYNC) => match Bsync::of(d).map(|s| s.barrier) {
                        Some(Operand::Reg(r)) => r.reg.value().map_or(Event::All, Event::Sync),
                        _ => continue,
                    },
                    Op::Macro(Macro::Call) if gathers(func, d) => Event::Call,
                    _ => continue,
                };
                out.calls |= matches!(event, Event::Call);
                out.events[b].push(event);
            }
        }
        if out.sites.is_empty() {
            return Ok(None);
        }
        out.find_constants(func);
        let same = |a: &Site, b: &Site| {
            a.inst != b.inst
                && a.kind == b.kind
                && (a.lanes == b.lanes || a.lanes.is_none() || b.lanes.is_none())
        };
        out.alike = out
            .sites
            .iter()
            .map(|a| (0..out.sites.len()).filter(|b| same(a, &out.sites[*b])).collect())
            .collect();
        out.alike.iter_mut().for_each(|a: &mut FixedBitSet| a.grow(out.sites.len()));
        Ok(Some(out))
    }

    /// Masks that a copy brings into a register.
    fn find_constants(&mut self, func: &Function) {
        let mut numbers: SecondaryMap<Value, Option<u32>> = SecondaryMap::new();
        for d in func.insts.values() {
            if let (Op::Macro(Macro::Copy), [Operand::Reg(to), Operand::Imm(n)], true) =
                (d.op, &d.operands[..], d.is_unguarded())
                && let Some(v) = to.reg.value()
            {
                numbers[v] = Some(*n);
            }
        }
        for s in &mut self.sites {
            if let Some(Operand::Reg(r)) = Warpsync::of(&func.insts[s.inst]).map(|s| s.lanes) {
                s.lanes = r.reg.value().and_then(|v| numbers[v]);
            }
        }
    }

    /// The sites at which lanes may be while others are at another one of the kind; `apart` says at which of them lanes
    /// may be apart at all, `shared` which of them are known to be such sites, `parts` at the end of which blocks lanes
    /// part, and `within` whether a block lies in the region of a barrier.
    pub fn shared(
        &self,
        func: &Function,
        cfg: &Cfg,
        apart: &FxHashSet<Inst>,
        shared: &FxHashSet<Inst>,
        parts: impl Fn(Block) -> bool,
        within: impl Fn(Value, Block) -> bool,
    ) -> FxHashSet<Inst> {
        let numbers = |set: &FxHashSet<Inst>| -> FixedBitSet {
            let mut out = FixedBitSet::with_capacity(self.sites.len());
            out.extend(self.sites.iter().enumerate().filter(|s| set.contains(&s.1.inst)).map(|s| s.0));
            out
        };
        let found = self.find(func, cfg, &numbers(apart), &numbers(shared), parts, within);
        found.ones().map(|s| self.sites[s].inst).collect()
    }

    fn find(
        &self,
        func: &Function,
        cfg: &Cfg,
        apart: &FixedBitSet,
        shared: &FixedBitSet,
        parts: impl Fn(Block) -> bool,
        within: impl Fn(Value, Block) -> bool,
    ) -> FixedBitSet {
        let mut found = shared.clone();
        if !func.entry {
            // The lanes that have not come here may be anywhere.
            found.union_with(apart);
            return found;
        }
        let several = apart.ones().any(|s| !self.alike[s].is_disjoint(apart));
        if !several && !self.calls {
            return found;
        }
        let walk = Walk { sites: self, cfg, apart, shared, within: &within };
        for &b in &cfg.rpo {
            for (at, e) in self.events[b].iter().enumerate() {
                if let Event::Call = e {
                    let mut way = Way::new(self);
                    if walk.through(b, at + 1, None, &mut way) {
                        walk.from(cfg.succs[b].iter().copied(), None, &mut way);
                    }
                    found.union_with(&way.sites);
                }
            }
            if !parts(b) {
                continue;
            }
            let ways: SmallVec<[Way; 2]> = (cfg.succs[b].iter())
                .map(|s| {
                    let mut way = Way::new(self);
                    walk.from([*s].into_iter(), Some(b), &mut way);
                    way
                })
                .collect();
            for (k, one) in ways.iter().enumerate() {
                for other in ways.iter().enumerate().filter(|o| o.0 != k).map(|o| o.1) {
                    if other.calls {
                        found.union_with(&one.sites);
                    }
                    found.extend(one.sites.ones().filter(|s| !self.alike[*s].is_disjoint(&other.sites)));
                }
            }
        }
        found
    }
}

/// What lanes come by that have parted, until they are together again.
struct Way {
    sites: FixedBitSet,
    calls: bool,
}

impl Way {
    fn new(sites: &Sites) -> Way {
        Way { sites: FixedBitSet::with_capacity(sites.sites.len()), calls: false }
    }
}

struct Walk<'a, W> {
    sites: &'a Sites,
    cfg: &'a Cfg,
    apart: &'a FixedBitSet,
    shared: &'a FixedBitSet,
    within: &'a W,
}

impl<W: Fn(Value, Block) -> bool> Walk<'_, W> {
    /// Walks from the starts of blocks, for lanes that parted at the end of `parted`.
    fn from(&self, starts: impl Iterator<Item = Block>, parted: Option<Block>, way: &mut Way) {
        let mut seen = FixedBitSet::with_capacity(self.cfg.order.keys().count());
        let mut stack: Vec<Block> = starts.collect();
        while let Some(b) = stack.pop() {
            seen.grow(b.index() + 1);
            if !seen.put(b.index()) && self.through(b, 0, parted, way) {
                stack.extend(&self.cfg.succs[b]);
            }
        }
    }

    /// Walks through the events of a block from number `from` on; whether its end is reached.
    fn through(&self, b: Block, from: usize, parted: Option<Block>, way: &mut Way) -> bool {
        for e in &self.sites.events[b][from..] {
            match *e {
                Event::Site(s) if !self.apart.contains(s) => return false,
                Event::Site(s) => {
                    way.sites.insert(s);
                    if self.sites.sites[s].lanes == Some(!0) && !self.shared.contains(s) {
                        return false;
                    }
                }
                Event::Call => way.calls = true,
                Event::All => return false,
                Event::Sync(barrier) => {
                    if parted.is_some_and(|p| (self.within)(barrier, p)) {
                        return false;
                    }
                }
            }
        }
        true
    }
}

/// Gives the marked WARPSYNC `site` of a block a way round, for lanes that are not all there.
///
/// # Errors
/// On code that is not as lowering makes it.
pub fn call(func: &mut Function, b: Block, site: Inst) -> Result<(), Error> {
    let loc = func.insts[site].loc;
    let internal = |what: &str| Error::at(loc.0, format!("internal error: {what} where lanes meet"));
    let at = func.blocks[b].insts.iter().position(|i| *i == site).ok_or_else(|| internal("no WARPSYNC"))?;
    let Rest { kind, between } = rest(func, b, at)?;
    let lanes = *Warpsync::of(&func.insts[site]).ok_or_else(|| internal("no WARPSYNC"))?.lanes;
    // Where lanes of several masks may be, those of each do it apart from the others.
    let apart = func.insts[site].mods.has(Mod::EXCLUSIVE);
    let mut after = func.blocks[b].insts.split_off(at + 1);
    func.blocks[b].insts.pop();
    let moved: Vec<Inst> = after.drain(..between).collect();
    func.blocks[b].insts.extend(moved);
    // What is executed together: the instruction, and what belongs to it.
    let mut together: Vec<Inst> = Vec::new();
    if kind != Kind::bare() {
        together.push(after.remove(0));
        let second = |d: &InstData| match d.op {
            Op::Sass(Opcode::VOTE) => kind.tells_lanes() && d.mods.has(MARK),
            Op::Sass(Opcode::B2R) => kind.has_barrier_result(),
            _ => false,
        };
        // What comes behind another WARPSYNC belongs to that.
        let mut own = after.iter().take_while(|i| func.insts[**i].op != Op::Sass(Opcode::WARPSYNC));
        let place = own.position(|i| second(&func.insts[*i]));
        match place {
            Some(k) => together.push(after.remove(k)),
            None if kind.has_barrier_result() => return Err(internal("no result of a barrier")),
            None => {}
        }
    }
    let count = match together.first() {
        Some(i) => Bar::of(&func.insts[*i]).map(|s| *s.threads),
        None => None,
    };
    let mut arguments: Vec<(usize, u8, Operand)> = match together.first() {
        Some(i) => {
            let d = &func.insts[*i];
            let all = kind.arguments().into_iter();
            all.map(|(slot, words)| (slot, words, d.operands[slot])).collect()
        }
        None => Vec::new(),
    };
    let [fast, join, slow] = [(); 3].map(|()| func.add_block());
    func.layout.truncate(func.layout.len() - 3);
    let place = func.layout.iter().position(|x| *x == b).map_or(func.layout.len(), |k| k + 1);
    func.layout.splice(place..place, [fast, join]);
    func.layout.push(slow);
    func.blocks[join].term = std::mem::replace(&mut func.blocks[b].term, Terminator::Unreachable);
    func.blocks[join].term_loc = func.blocks[b].term_loc;
    // What comes from the function in each register, and under which name it is known behind.
    let mut results: Vec<(u8, Value)> = Vec::new();
    for (k, i) in together.iter().enumerate() {
        let op = func.insts[*i].opcode().ok_or_else(|| internal("no instruction"))?;
        for slot in op.slots().iter().enumerate().filter(|s| s.1.role == Role::Def).map(|s| s.0) {
            let Operand::Reg(r) = &func.insts[*i].operands[slot] else { continue };
            let Some(v) = r.reg.value() else { continue };
            // Behind the results of the first instruction there is the one of the second.
            let at = if k == 0 {
                kind.results().iter().position(|s| *s == slot)
            } else {
                Some(kind.results().len())
            };
            let at = at.ok_or_else(|| internal("a result"))?;
            let fresh = func.add_value(func.values[v].file, func.values[v].width);
            func.insts[*i].operands[slot] = operand(fresh);
            results.push((abi::FIRST_ARGUMENT + at as u8, v));
            func.blocks[fast].params.push(fresh);
        }
    }
    let fresh: SmallVec<[Value; 4]> = std::mem::take(&mut func.blocks[fast].params);
    func.blocks[fast].insts = apart.then_some(site).into_iter().chain(together).collect();
    let mut insts = Insts { func, block: b, loc };
    let outside = insts.anyone_missing(&lanes);
    insts.end(Terminator::Branch {
        cond: outside.into(),
        not: false,
        taken: Builder::call(slow),
        fall: Builder::call(fast),
    });
    insts.block = slow;
    if let (Some(count), Some((_, _, number))) = (count, arguments.first_mut()) {
        *number = insts.barrier(*number, count);
    }
    insts.call(&kind, &arguments, lanes, &internal)?;
    let mut came: SmallVec<[Value; 4]> = SmallVec::new();
    let words: Vec<Value> = results.iter().map(|(r, _)| insts.take(*r)).collect();
    for (w, (_, v)) in words.into_iter().zip(&results) {
        came.push(if insts.func.values[*v].file == RegFile::P { insts.truth(w) } else { w });
    }
    insts.end(Terminator::Jump(BlockCall { block: join, args: came }));
    // What is in a uniform register may be another number in each group of lanes that meets: it comes, and goes on, in a
    // general one.
    let mut met: SmallVec<[Value; 4]> = SmallVec::new();
    let mut sent: SmallVec<[Value; 4]> = SmallVec::new();
    for ((_, v), fresh) in results.iter().zip(fresh) {
        if insts.func.values[*v].file == RegFile::UR {
            insts.block = fast;
            sent.push(insts.def_macro(Macro::Copy, operand(fresh)));
            let word = insts.func.add_value(RegFile::R, 1);
            for i in &after {
                read_instead(&mut insts.func.insts[*i], *v, word).map_err(internal)?;
            }
            if is_read(insts.func, *v) {
                return Err(internal("a result in a uniform register that another block reads"));
            }
            met.push(word);
        } else {
            sent.push(fresh);
            met.push(*v);
        }
    }
    insts.block = fast;
    insts.end(Terminator::Jump(BlockCall { block: join, args: sent }));
    func.blocks[join].params = met;
    func.blocks[join].insts.extend(after);
    if apart {
        let all = 0..func.blocks[fast].insts.len();
        enclose(func, fast, all, true);
    }
    if kind.is_of_those_here() {
        let all = 0..func.blocks[slow].insts.len();
        enclose(func, slow, all, false);
    }
    Ok(())
}

/// Whether any block reads a value.
fn is_read(func: &Function, v: Value) -> bool {
    let mut read = false;
    for i in func.layout.iter().flat_map(|b| &func.blocks[*b].insts) {
        func.insts[*i].for_each_use(|n| read |= n.value() == Some(v));
    }
    read
}

/// Makes a copy from the uniform register `from` one of the general register `to`.
fn read_instead(d: &mut InstData, from: Value, to: Value) -> Result<(), &'static str> {
    let mut reads = false;
    d.for_each_use(|n| reads |= n.value() == Some(from));
    match (d.op, &mut d.operands[..]) {
        _ if !reads => Ok(()),
        (Op::Macro(Macro::Copy), [_, source]) => {
            *source = operand(to);
            Ok(())
        }
        _ => Err("a result in a uniform register that is not copied"),
    }
}

/// Lets lanes go on together that do something apart, those of each mask on their own: from the marked `WARPSYNC.EXCLUSIVE`
/// `site` of a block to where the result has left the uniform register.
///
/// # Errors
/// On code that is not as lowering makes it.
pub fn do_apart(func: &mut Function, b: Block, site: Inst) -> Result<(), Error> {
    let loc = func.insts[site].loc;
    let internal = |what: &str| Error::at(loc.0, format!("internal error: {what} where lanes meet"));
    let insts = &func.blocks[b].insts;
    let at = insts.iter().position(|i| *i == site).ok_or_else(|| internal("no WARPSYNC"))?;
    let Rest { kind, between } = rest(func, b, at)?;
    if !kind.is_of_those_here() {
        return Err(internal("nothing that masks keep apart"));
    }
    let does = at + 1 + between;
    let mut results: SmallVec<[Value; 1]> = SmallVec::new();
    func.insts[insts[does]].for_each_def(|n| {
        results.extend(n.value().filter(|v| func.values[*v].file == RegFile::UR));
    });
    let mut end = does + 1;
    for (k, i) in insts.iter().enumerate().skip(end) {
        let d = &func.insts[*i];
        let mut reads = false;
        d.for_each_use(|n| reads |= n.value().is_some_and(|v| results.contains(&v)));
        if reads && d.op != Op::Macro(Macro::Copy) {
            return Err(internal("a result in a uniform register that is not copied"));
        }
        end = if reads { k + 1 } else { end };
    }
    enclose(func, b, at..end, true);
    Ok(())
}

/// Puts a part of a block into a region: the lanes that come to it meet behind it. `surely`: not only after a function in
/// which others may keep them.
fn enclose(func: &mut Function, b: Block, part: std::ops::Range<usize>, surely: bool) {
    let loc = func.blocks[b].insts.get(part.start).map_or(func.blocks[b].term_loc, |i| func.insts[*i].loc);
    let rest = func.split_block(b, part.end);
    let barrier = operand(func.add_value(RegFile::B, 1));
    let mods: &[Mod] = if surely && func.target.info().reconvergent { &[Mod::RECONVERGENT] } else { &[] };
    let mut after = std::mem::take(&mut func.blocks[rest].insts);
    let mut insts = Insts { func, block: rest, loc };
    insts.put(Op::Sass(Opcode::BSYNC), mods, [pt(), barrier]);
    func.blocks[rest].insts.append(&mut after);
    let mut insts = Insts { func, block: b, loc };
    insts.put(Op::Sass(Opcode::BSSY), mods, [barrier, Operand::Label(rest)]);
    let region = &mut func.blocks[b].insts;
    region[part.start..].rotate_right(1);
}

/// Appends instructions, legal as they are.
struct Insts<'f> {
    func: &'f mut Function,
    block: Block,
    loc: Loc,
}

fn pt() -> Operand {
    operand(Name::Phys(Reg::PT))
}

fn rz() -> Operand {
    operand(Name::Phys(Reg::RZ))
}

impl Insts<'_> {
    fn put(&mut self, op: Op, mods: &[Mod], operands: impl IntoIterator<Item = Operand>) {
        let inst = self.func.insts.push(InstData {
            guard: ori::ALWAYS,
            op,
            mods: Mods::of(mods),
            operands: operands.into_iter().collect(),
            kept: ThinVec::new(),
            loc: self.loc,
        });
        self.func.blocks[self.block].insts.push(inst);
    }

    fn end(&mut self, term: Terminator) {
        let data = &mut self.func.blocks[self.block];
        data.term = term;
        data.term_loc = self.loc;
    }

    fn def_macro(&mut self, m: Macro, source: Operand) -> Value {
        let v = self.func.add_value(RegFile::R, 1);
        self.put(Op::Macro(m), &[], [operand(v), source]);
        v
    }

    fn take(&mut self, r: u8) -> Value {
        self.def_macro(Macro::FromReg, operand(Name::Phys(Reg::r(r))))
    }

    /// Whether a word is not 0.
    fn truth(&mut self, word: Value) -> Value {
        self.differ(operand(word), rz())
    }

    fn differ(&mut self, a: Operand, b: Operand) -> Value {
        let p = self.func.add_value(RegFile::P, 1);
        let mods = [Mod::NE, Mod::U32, Mod::AND];
        self.put(Op::Sass(Opcode::ISETP), &mods, [operand(p), pt(), a, b, pt(), pt()]);
        p
    }

    /// Whether not all of the named lanes are here with the same mask: the same in all of those that are.
    fn anyone_missing(&mut self, lanes: &Operand) -> Value {
        let here = self.func.add_value(RegFile::R, 1);
        match lanes {
            Operand::Imm(_) => self.put(Op::Sass(Opcode::VOTE), &[Mod::ANY], [operand(here), pt(), pt()]),
            // Lanes of several masks may be here.
            _ => self.put(Op::Sass(Opcode::MATCH), &[Mod::ANY], [pt(), operand(here), *lanes]),
        }
        self.differ(operand(here), *lanes)
    }

    /// Number and thread count of a barrier as they share a register.
    fn barrier(&mut self, number: Operand, count: Operand) -> Operand {
        let up = match (&number, count) {
            (Operand::Imm(number), Operand::Imm(count)) => return Operand::Imm(number | count << 16),
            (number, count) if *number == count => return count,
            (_, Operand::Imm(count)) => self.def_macro(Macro::Copy, Operand::Imm(count << 16)),
            (_, count) => {
                let up = self.func.add_value(RegFile::R, 1);
                self.put(
                    Op::Sass(Opcode::SHF),
                    &[Mod::L, Mod::U32],
                    [operand(up), count, Operand::Imm(16), rz()],
                );
                up
            }
        };
        let number = match number {
            Operand::Imm(_) => operand(self.def_macro(Macro::Copy, number)),
            number => number,
        };
        let both = self.func.add_value(RegFile::R, 1);
        let never = Operand::Reg(sass::RegOp { not: true, ..sass::RegOp::plain(Name::Phys(Reg::PT)) });
        let operands =
            [pt(), operand(both), operand(up), Operand::Imm(0xf), number, Operand::Imm(0xf8), never];
        self.put(Op::Sass(Opcode::LOP3), &[Mod::LUT], operands);
        operand(both)
    }

    /// The call of the function of a kind.
    fn call(
        &mut self,
        kind: &Kind,
        arguments: &[(usize, u8, Operand)],
        lanes: Operand,
        internal: &dyn Fn(&str) -> Error,
    ) -> Result<(), Error> {
        let mut words: Vec<Operand> = Vec::new();
        for (slot, count, o) in arguments {
            match o {
                _ if is_truth(kind.op, *slot) => words.push(operand(self.number(*o))),
                Operand::Imm(_) if *count == 1 => words.push(*o),
                Operand::Reg(r) if !(r.neg || r.abs || r.not) => {
                    for n in 0..*count {
                        words.push(match (r.reg, *count) {
                            (name, 1) => operand(name),
                            (Name::Val(v), _) => operand(Name::Part(v, n)),
                            _ => return Err(internal("a pair of registers")),
                        });
                    }
                }
                _ => return Err(internal("no such operand")),
            }
        }
        if !kind.is_of_all() {
            words.push(lanes);
        }
        let registers: Vec<Operand> =
            (abi::FIRST_ARGUMENT..).take(words.len()).map(|r| operand(Name::Phys(Reg::r(r)))).collect();
        for (r, word) in registers.iter().zip(words) {
            self.put(Op::Macro(Macro::ToReg), &[], [*r, word]);
        }
        let callee = Callee::Internal(kind.name());
        let n = self.func.callees.insert_full(callee).0;
        let back = [0, 1].map(|n| operand(Name::Phys(Reg::r(abi::RETURN_ADDRESS + n))));
        self.put(Op::Macro(Macro::ReturnAddress), &[], back);
        let operands = std::iter::once(Operand::Imm(n as u32)).chain(registers).chain(back);
        self.put(Op::Macro(Macro::Call), &[], operands);
        Ok(())
    }

    /// A predicate as 0 or 1.
    fn number(&mut self, o: Operand) -> Value {
        let inverted = match o {
            Operand::Reg(r) => Operand::Reg(sass::RegOp { not: !r.not, ..r }),
            o => o,
        };
        let v = self.func.add_value(RegFile::R, 1);
        self.put(Op::Sass(Opcode::SEL), &[], [operand(v), rz(), Operand::Imm(1), inverted]);
        v
    }
}
