//! Convergence barriers: `BSSY B, L` before the lanes of a warp may part, `BSYNC B` where they meet again. (Here L is the
//! block of the BSYNC; emission makes it the place behind, as ptxas has it.)
//!
//! Every divergent branch with an immediate postdominator Y asks for a meeting at Y. Where all its lanes
//! surely come through one block D (which dominates the branches that meet at Y, and lies in no loop that
//! leaves Y out, and no way leads back from Y between them), BSSY stands at the end of D and BSYNC on the edges into Y. EXIT takes a lane out of all
//! barriers, so ways that end the thread need not meet. Where a meeting cannot be arranged surely (irreducible
//! flow, endless loops), or must not be (lanes on the way wait for others, `waits.rs`), the lanes simply stay
//! apart. So no lane at a BSYNC waits for one that waits for anything but its own work. docs/convergence.md tells
//! what ptxas does.
//!
//! Instructions that need the whole warp come with a WARPSYNC of all lanes, which is taken away where the lanes
//! are surely together.

use crate::Error;
use crate::leaving;
use crate::meetings::{self, Sites};
use crate::together::{Together, gathers_all, splits};
use crate::waits::{Spins, ends_thread, gathers_lanes};
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::block_set::{BlockSet, Seen};
use ori::cfg::{Cfg, DomTree, PostDom};
use ori::uniformity::Uniformity;
use ori::{Block, BlockCall, Function, Guard, Inst, InstData, Name, Op, Operand, Terminator, Value, operand};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::ops::Warpsync;
use sass::{Mod, Mods, Opcode, Reg, RegFile};
use smallvec::SmallVec;
use std::cell::RefCell;
use thin_vec::ThinVec;

/// Most barriers live at once: B0 … B11, as ptxas 13.0.88 has them; the encoding has 16.
const MAX_LIVE: u8 = 12;

/// The most of them that every call of the function leaves alone, those among them where lanes meet.
fn most_kept(func: &Function) -> u8 {
    let callees = func.callees.iter().map(|c| func.convention_of(c).barriers);
    MAX_LIVE - callees.fold(ori::abi::FIRST_KEPT_BARRIER, u8::max)
}

/// Branches that meet.
pub struct Region {
    /// BSSY goes to its end.
    pub enter: Block,
    /// Where they meet.
    pub meet: Block,
    /// The blocks from `enter` to `meet`, `enter` included, `meet` not.
    pub body: BlockSet,
    /// Where lanes leave it otherwise.
    pub exits: Vec<Exit>,
}

/// A way out of a region that does not come to its meeting.
pub struct Exit {
    /// The block that branches.
    pub from: Block,
    /// Where to.
    pub to: Block,
    /// Which lanes do.
    pub lanes: Guard,
}

impl Region {
    /// What BSSY, BREAK and BSYNC say of it, as ptxas has it.
    fn kind(&self, func: &Function) -> &'static [Mod] {
        match (func.target.info().reconvergent, self.exits.is_empty()) {
            (false, _) => &[],
            (true, true) => &[Mod::RECONVERGENT],
            (true, false) => &[Mod::RELIABLE],
        }
    }
}

/// Whether the block calls a function, which keeps some of the barriers only.
pub fn calls(func: &Function, b: Block) -> bool {
    let insts = &func.blocks[b].insts;
    insts.iter().any(|i| func.insts[*i].op == Op::Macro(ori::Macro::Call))
}

/// Places convergence barriers in a function in SSA without switches.
///
/// # Errors
/// On instructions of the warp that are not as lowering makes them.
pub fn run(func: &mut Function) -> Result<(), Error> {
    let placed = place(func)?;
    gather(func, &placed)
}

/// The WARPSYNCs of a function without barriers at which lanes may meet lanes that are at others.
///
/// # Errors
/// On instructions of the warp that are not as lowering makes them.
pub fn shared_places(func: &Function) -> Result<FxHashSet<Inst>, Error> {
    let mut func = func.clone();
    let placed = place(&mut func)?;
    let cfg = Cfg::new(&func);
    let sites = Sites::new(&func, &cfg)?;
    Ok(needed(&func, &cfg, sites.as_ref(), &placed).1)
}

/// What is known of a function whose barriers have been placed.
struct Placed {
    /// Blocks at whose end lanes part.
    divergent: FixedBitSet,
    /// The regions of barriers.
    bodies: SecondaryMap<Value, Option<BlockSet>>,
    /// WARPSYNCs that keep lanes of different masks apart.
    divided: FxHashSet<Inst>,
}

fn place(func: &mut Function) -> Result<Placed, Error> {
    meetings::bring_together(func);
    let cfg = Cfg::new(func);
    let dom = DomTree::dominators(&cfg);
    let trimmed = without_early_exits(func, &cfg);
    let post = PostDom::new(&trimmed);
    let uniformity = Uniformity::new(func, &cfg);
    let divided = lanes_of_several_masks(func, &uniformity)?;
    let parts = |func: &Function, b: Block| splits(func, b) && uniformity.is_divergent_branch(b);
    let mut branches: SecondaryMap<Block, Vec<Block>> = SecondaryMap::new();
    for &b in &cfg.rpo {
        if trimmed.succs[b].len() < 2 || !parts(func, b) {
            continue;
        }
        if let Some(y) = post.ipdom(b).filter(|y| is_worthwhile(func, *y)) {
            branches[y].push(b);
        }
    }
    let spins = Spins::new(func, &cfg, &dom);
    let yields = spins.of_lanes(|b| parts(func, b));
    let seen = RefCell::new(Seen::new(func.blocks.len()));
    let graph = Graph { func, cfg: &cfg, trimmed: &trimmed, dom: &dom, post: &post, spins, seen };
    let mut regions: Vec<Region> = cfg.rpo.iter().flat_map(|y| graph.regions(&branches[*y], *y)).collect();
    // Outer regions first; what exceeds the number of barriers stays apart.
    let outer_first = |r: &Region| (cfg.order[r.enter], std::cmp::Reverse(cfg.order[r.meet]));
    regions.sort_by_key(outer_first);
    let most_kept = most_kept(func);
    let mut live: SecondaryMap<Block, u8> = SecondaryMap::new();
    regions.retain(|r| {
        let blocks = || r.body.iter();
        let fits = blocks().all(|b| live[b] < if calls(func, b) { most_kept } else { MAX_LIVE });
        if fits {
            blocks().for_each(|b| live[b] += 1);
        }
        fits
    });
    // Those that some lanes leave have their barrier for themselves everywhere.
    let most = cfg.rpo.iter().map(|b| live[*b]).max().unwrap_or(0);
    // Where lanes meet at several places, or are kept apart by their masks, functions will be called, with a region around.
    let gathers_some = |d: &InstData| {
        ori::meeting::is_meeting(d) || d.op == Op::Sass(Opcode::WARPSYNC) && d.mods.has(Mod::EXCLUSIVE)
    };
    let meets = cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts).any(|i| gathers_some(&func.insts[*i]));
    let called = meets || cfg.rpo.iter().any(|b| calls(func, *b));
    let room = if called { most_kept } else { MAX_LIVE }.saturating_sub(most + u8::from(meets));
    let search = leaving::Search {
        func,
        cfg: &cfg,
        dom: &dom,
        post: &post,
        spins: &graph.spins,
        parts: |b| parts(func, b),
    };
    regions.extend(search.run(&regions, room.into()));
    regions.sort_by_key(outer_first);
    let barriers: Vec<Value> = regions.iter().map(|_| func.add_value(RegFile::B, 1)).collect();
    // Edges into a meeting block are redirected in the same order, so inner meetings come before outer ones.
    let mut places = Places::new(func);
    for k in (0..regions.len()).rev() {
        let (r, barrier) = (&regions[k], barriers[k]);
        let sync = meeting(func, &cfg, r, barrier, &mut places);
        let label = Operand::Label(sync);
        let mods = r.kind(func);
        let data = instruction(Opcode::BSSY, mods, [operand(barrier), label]);
        let inst = func.insts.push(InstData { loc: func.blocks[r.enter].term_loc, ..data });
        // Regions that start in one block are placed from the inner to the outer one.
        let insts = &mut func.blocks[r.enter].insts;
        let first =
            insts.iter().rposition(|i| func.insts[*i].op != Op::Sass(Opcode::BSSY)).map_or(0, |k| k + 1);
        insts.insert(first, inst);
        // Lanes that met here go on to the meetings of the regions around.
        let (outer, inner) = regions.split_at_mut(k);
        let r = &inner[0];
        for o in outer.iter_mut().filter(|_| sync != r.meet) {
            if o.body.contains(r.enter) && (o.meet == r.meet || o.body.contains(r.meet)) {
                o.body.insert(sync);
            }
        }
    }
    for (r, &barrier) in regions.iter().zip(&barriers).rev() {
        leave(func, r, barrier);
    }
    places.lay_out(func);
    let mut divergent: FixedBitSet = cfg.rpo.iter().filter(|b| parts(func, **b)).map(|b| b.index()).collect();
    let mut bodies: SecondaryMap<Value, Option<BlockSet>> = SecondaryMap::new();
    // Lanes that part in a region that some leave are not together behind it.
    for (r, barrier) in regions.into_iter().zip(barriers).filter(|(r, _)| r.exits.is_empty()) {
        bodies[barrier] = Some(r.body);
    }
    for (from, to) in yield_before(func, &yields) {
        if divergent.contains(from.index()) {
            divergent.remove(from.index());
            divergent.grow_and_insert(to.index());
        }
        for body in bodies.values_mut().flatten().filter(|b| b.contains(from)) {
            body.insert(to);
        }
    }
    Ok(Placed { divergent, bodies, divided })
}

/// The WARPSYNCs of lanes that do something apart from those of other masks; where all lanes surely have the same one, or
/// what they did is gone because nobody needs it, they become others.
fn lanes_of_several_masks(func: &mut Function, uniformity: &Uniformity) -> Result<FxHashSet<Inst>, Error> {
    let mut found = FxHashSet::default();
    let mut together = Vec::new();
    for &b in &func.layout {
        for (at, &i) in func.blocks[b].insts.iter().enumerate() {
            let d = &func.insts[i];
            let Some(s) = Warpsync::of(d).filter(|_| d.mods.has(Mod::EXCLUSIVE)) else { continue };
            let one = match s.lanes {
                Operand::Imm(_) => true,
                Operand::Reg(r) => r.reg.value().is_some_and(|v| !uniformity.is_divergent(v)),
                _ => false,
            };
            if one || !meetings::is_of_those_here(func, b, at)? {
                together.push(i);
            } else {
                found.insert(i);
            }
        }
    }
    together.into_iter().for_each(|i| func.insts[i].mods.remove(Mod::EXCLUSIVE));
    Ok(found)
}

/// The WARPSYNCs where lanes may not be together, and those at which they may meet lanes that are at others.
fn needed(
    func: &Function,
    cfg: &Cfg,
    sites: Option<&Sites>,
    placed: &Placed,
) -> (FxHashSet<Inst>, FxHashSet<Inst>) {
    let Placed { divergent, bodies, divided } = placed;
    let mut shared: FxHashSet<Inst> = FxHashSet::default();
    // What is shared parts lanes, so that more may be.
    loop {
        let needed = Together::new(func, cfg, divergent, &shared, divided, false).needed();
        let Some(sites) = sites else { return (needed, shared) };
        let parts = |b: Block| divergent.contains(b.index());
        let within = |v: Value, b: Block| bodies[v].as_ref().is_some_and(|r| r.contains(b));
        let found = sites.shared(func, cfg, &needed, &shared, parts, within);
        if found.len() == shared.len() {
            return (needed, shared);
        }
        shared = found;
    }
}

/// Takes WARPSYNCs away where all lanes are together, and lets lanes meet that are at different ones.
fn gather(func: &mut Function, placed: &Placed) -> Result<(), Error> {
    let is_warpsync = |d: &InstData| d.op == Op::Sass(Opcode::WARPSYNC);
    let mut insts = func.layout.iter().flat_map(|b| &func.blocks[*b].insts);
    if !insts.any(|i| is_warpsync(&func.insts[*i])) {
        ori::meeting::unmark(func);
        return Ok(());
    }
    let cfg = Cfg::new(func);
    let sites = Sites::new(func, &cfg)?;
    let (needed, shared) = needed(func, &cfg, sites.as_ref(), placed);
    for &b in &cfg.rpo {
        let insts = std::mem::take(&mut func.blocks[b].insts);
        let stays = |i: &Inst| !is_warpsync(&func.insts[*i]) || needed.contains(i);
        func.blocks[b].insts = insts.into_iter().filter(stays).collect();
        for i in func.blocks[b].insts.clone() {
            if func.target.sm >= 90 && !shared.contains(&i) && gathers_all(&func.insts[i]) {
                let d = &mut func.insts[i];
                d.mods = Mods::of(&[Mod::ALL]);
                d.operands[Warpsync::LANES] = ori::default_operand(Opcode::WARPSYNC, Warpsync::LANES);
            }
        }
        for i in func.blocks[b].insts.clone().into_iter().rev() {
            if shared.contains(&i) {
                meetings::call(func, b, i)?;
            } else if placed.divided.contains(&i) && ori::meeting::is_meeting(&func.insts[i]) {
                meetings::do_apart(func, b, i)?;
            }
        }
    }
    ori::meeting::unmark(func);
    Ok(())
}

/// Meeting just to end is of no use.
fn is_worthwhile(func: &Function, b: Block) -> bool {
    !(ends_thread(func, b) && func.blocks[b].insts.is_empty())
}

/// The graph without conditional branches to blocks that end the thread early.
fn without_early_exits(func: &Function, cfg: &Cfg) -> Cfg {
    let last = cfg.rpo.iter().rev().find(|b| ends_thread(func, **b) && is_worthwhile(func, **b));
    let early = |b: Block| ends_thread(func, b) && Some(&b) != last;
    let mut out = cfg.clone();
    let mut cut = Vec::new();
    for &b in &cfg.rpo {
        let (gone, kept): (SmallVec<[Block; 2]>, SmallVec<[Block; 2]>) =
            cfg.succs[b].iter().copied().partition(|s| early(*s));
        if !gone.is_empty() && !kept.is_empty() {
            out.succs[b] = kept;
            for s in gone {
                out.preds[s].retain(|p| *p != b);
            }
            cut.push(b);
        }
    }
    // An exit that is the only way out of a loop is not early.
    let mut ends: FixedBitSet = FixedBitSet::with_capacity(func.blocks.len());
    let mut stack: Vec<Block> = cfg.rpo.iter().copied().filter(|b| ends_thread(func, *b)).collect();
    ends.extend(stack.iter().map(|b| b.index()));
    while let Some(b) = stack.pop() {
        stack.extend(out.preds[b].iter().filter(|p| !ends.put(p.index())));
    }
    for b in cut.into_iter().filter(|b| !ends.contains(b.index())) {
        out.succs[b].clone_from(&cfg.succs[b]);
        for s in cfg.succs[b].iter().filter(|s| early(**s)) {
            out.preds[*s].push(b);
        }
    }
    out
}

/// Why there can be no barrier.
enum Obstacle {
    /// Lanes can get out of the region, or into it, or run through its entry twice; a region with an earlier
    /// entry may do.
    Leaks,
    /// The same, and so it is with any earlier entry.
    Stays,
    /// A lane in the region may wait for one that has left it, or that never came.
    Waits,
}

/// What is known of a function whose regions are sought.
struct Graph<'f> {
    func: &'f Function,
    cfg: &'f Cfg,
    trimmed: &'f Cfg,
    dom: &'f DomTree,
    post: &'f PostDom,
    spins: Spins<'f>,
    /// For walks through regions.
    seen: RefCell<Seen>,
}

impl Graph<'_> {
    /// The regions of the branches that meet at `meet`: one for all of them, or, where lanes may wait for each
    /// other in that one, those of single branches.
    fn regions(&self, branches: &[Block], meet: Block) -> Vec<Region> {
        let Some(common) = branches.iter().copied().reduce(|d, b| self.dom.common(d, b)) else {
            return Vec::new();
        };
        let mut at = Some(common);
        while let Some(d) = at {
            match self.region(d, meet) {
                None => return Vec::new(),
                Some(Ok(r)) => return vec![r],
                Some(Err(Obstacle::Waits | Obstacle::Stays)) => break,
                Some(Err(Obstacle::Leaks)) => at = self.dom.idom(d),
            }
        }
        let mut found: Vec<Region> = Vec::new();
        for &b in branches {
            if !found.iter().any(|r| r.body.contains(b))
                && let Some(Ok(r)) = self.region(b, meet)
            {
                found.push(r);
            }
        }
        found
    }

    /// The region from `d` to `meet`; `None` if none with an earlier entry could be one either.
    fn region(&self, d: Block, meet: Block) -> Option<Result<Region, Obstacle>> {
        // Lanes that take another way would wait at an outer meeting for those that wait at this one.
        let surely = match d == meet {
            // Round a loop.
            true => self.trimmed.succs[d].iter().all(|s| self.post.dominates(meet, *s)),
            false => self.post.dominates(meet, d),
        };
        match surely {
            true => Some(self.body(d, meet).map(|body| Region { enter: d, meet, body, exits: Vec::new() })),
            false if d == meet => None,
            false if self.dom.dominates(meet, d) => Some(Err(Obstacle::Leaks)),
            // From any earlier entry there is a way to this one that does not meet, and on from here.
            false => Some(Err(Obstacle::Stays)),
        }
    }

    /// The blocks on the ways from `d` to `meet`.
    fn body(&self, d: Block, meet: Block) -> Result<BlockSet, Obstacle> {
        let mut seen = self.seen.borrow_mut();
        seen.restart();
        seen.put(d);
        let mut body = vec![d];
        let mut stack = vec![d];
        let mut reaches = false;
        let mut waits = false;
        let mut again = false;
        while let Some(b) = stack.pop() {
            waits |= b != d && gathers_lanes(self.func, b);
            for &s in &self.cfg.succs[b] {
                if s == meet {
                    reaches = true;
                } else if s == d {
                    again = true;
                } else if !self.dom.dominates(d, s) {
                    if !ends_thread(self.func, s) {
                        return Err(Obstacle::Leaks);
                    }
                    waits |= gathers_lanes(self.func, s);
                } else if !seen.put(s) {
                    body.push(s);
                    stack.push(s);
                }
            }
        }
        let body = BlockSet::new(body, self.func.blocks.len());
        // A lane that has met and comes back in behind BSSY, by another way around a loop, would wait with nothing set.
        let outside = |b: Block| self.cfg.preds[b].iter().filter(|p| !body.contains(**p));
        let returns = |b: Block| b != d && outside(b).next().is_some();
        // Every way there is one through the end, from whatever entry that does not lie behind it itself.
        let behind = |b: Block| b != d && outside(b).any(|p| self.dom.dominates(meet, *p));
        match () {
            () if !self.dom.dominates(meet, d) && body.iter().any(behind) => Err(Obstacle::Stays),
            () if again || !reaches || body.iter().any(returns) => Err(Obstacle::Leaks),
            () if waits || !self.spins.among(&body, Some(meet)).is_empty() => Err(Obstacle::Waits),
            () => Ok(body),
        }
    }
}

/// Lets other lanes run before the reads that lanes spin on. The blocks that were divided for that, with the ones that hold
/// their ends now.
fn yield_before(func: &mut Function, reads: &[(Block, Inst)]) -> Vec<(Block, Block)> {
    let mut done = FixedBitSet::with_capacity(func.blocks.len());
    let mut divided = Vec::new();
    for (b, _) in reads {
        let here = |i: &Inst| reads.contains(&(*b, *i));
        let sleeps = |i: &Inst| func.insts[*i].op == Op::Sass(Opcode::NANOSLEEP);
        let insts = &func.blocks[*b].insts;
        // Sleeping lets others run, too.
        if done.put(b.index()) || func.target.sm >= 80 && insts.iter().any(sleeps) {
            continue;
        }
        let Some(at) = insts.iter().position(here) else { continue };
        let loc = func.insts[insts[at]].loc;
        if func.target.sm == 75 {
            let at = meetings::outside(func, *b, at);
            divided.push((*b, yield_until_alone(func, *b, at)));
            continue;
        }
        let always = operand(Name::Phys(Reg::PT));
        let inst = func.insts.push(InstData { loc, ..instruction(Opcode::YIELD, &[], [always]) });
        // What belongs to a WARPSYNC stays behind it, too.
        let mut place = at;
        loop {
            let outside = meetings::outside(func, *b, free_of_uniform(func, *b, place));
            if std::mem::replace(&mut place, outside) == outside {
                break;
            }
        }
        func.blocks[*b].insts.insert(place, inst);
    }
    divided
}

/// The last place in a block, not behind instruction `at`, at which no uniform register of its own holds anything: the lanes that run
/// there may have other uses for it. Those that live from block to block hold nothing else anywhere.
fn free_of_uniform(func: &Function, b: Block, at: usize) -> usize {
    let insts = &func.blocks[b].insts;
    let mut made: FxHashMap<Value, usize> = FxHashMap::default();
    for (k, i) in insts[..at].iter().enumerate() {
        func.insts[*i].for_each_def(|n| {
            let uniform = |v: &Value| matches!(func.values[*v].file, RegFile::UR | RegFile::UP);
            if let Some(v) = n.value().filter(uniform) {
                made.entry(v).or_insert(k);
            }
        });
    }
    // Where each is read for the last time; the first of those that live across a place moves it.
    let mut last: FxHashMap<Value, usize> = FxHashMap::default();
    for (k, i) in insts.iter().enumerate() {
        func.insts[*i].for_each_use(|n| {
            if let Some(v) = n.value().filter(|v| made.contains_key(v)) {
                last.insert(v, k);
            }
        });
    }
    let mut place = at;
    while let Some(from) = made
        .iter()
        .filter(|(v, k)| **k < place && last.get(*v).is_some_and(|l| *l >= place))
        .map(|m| *m.1)
        .min()
    {
        place = from;
    }
    place
}

/// Divides a block in front of its instruction `at`, where it yields until that brings no more lanes: ptxas has it so for
/// sm_75. The block that goes on.
fn yield_until_alone(func: &mut Function, b: Block, at: usize) -> Block {
    let loc = func.insts[func.blocks[b].insts[at]].loc;
    let [again, rest] = [(); 2].map(|()| func.add_block());
    func.layout.truncate(func.layout.len() - 2);
    let place = func.layout.iter().position(|x| *x == b).map_or(func.layout.len(), |k| k + 1);
    func.layout.splice(place..place, [again, rest]);
    func.blocks[rest].insts = func.blocks[b].insts.split_off(at);
    let jump = |block| Terminator::Jump(BlockCall { block, args: SmallVec::new() });
    func.blocks[rest].term = std::mem::replace(&mut func.blocks[b].term, jump(again));
    func.blocks[rest].term_loc = std::mem::replace(&mut func.blocks[b].term_loc, loc);
    let [pt, upt, rz] = [Reg::PT, Reg::UPT, Reg::RZ].map(|r| operand(Name::Phys(r)));
    let none = Operand::Reg(sass::RegOp { not: true, ..sass::RegOp::plain(Name::Phys(Reg::PT)) });
    let before = func.add_value(RegFile::R, 1);
    let after = func.add_value(RegFile::UR, 1);
    let came = func.add_value(RegFile::P, 1);
    let new = [operand(came), rz, operand(before), operand(after), rz, Operand::Imm(0xc), none];
    let insts = [
        instruction(Opcode::VOTE, &[Mod::ANY], [operand(before), pt, pt]),
        instruction(Opcode::YIELD, &[], [pt]),
        instruction(Opcode::VOTEU, &[Mod::ANY], [operand(after), upt, pt]),
        instruction(Opcode::LOP3, &[Mod::LUT], new),
    ];
    for d in insts {
        let inst = func.insts.push(InstData { loc, ..d });
        func.blocks[again].insts.push(inst);
    }
    let to = |block| BlockCall { block, args: SmallVec::new() };
    func.blocks[again].term =
        Terminator::Branch { cond: came.into(), not: false, taken: to(again), fall: to(rest) };
    func.blocks[again].term_loc = loc;
    rest
}

fn instruction(op: Opcode, mods: &[Mod], operands: impl IntoIterator<Item = Operand>) -> InstData {
    InstData {
        guard: ori::ALWAYS,
        op: Op::Sass(op),
        mods: Mods::of(mods),
        operands: operands.into_iter().collect(),
        kept: ThinVec::new(),
        loc: ori::Loc::default(),
    }
}

/// Where new blocks go in the layout.
struct Places {
    /// Position of each block before there were any.
    at: SecondaryMap<Block, u32>,
    /// New ones directly before a block, in order.
    before: SecondaryMap<Block, SmallVec<[Block; 1]>>,
    /// New ones directly behind a block, the last one first.
    behind: SecondaryMap<Block, SmallVec<[Block; 1]>>,
}

impl Places {
    fn new(func: &Function) -> Places {
        let mut at = SecondaryMap::with_default(u32::MAX);
        func.layout.iter().enumerate().for_each(|(k, b)| at[*b] = k as u32);
        Places { at, before: SecondaryMap::new(), behind: SecondaryMap::new() }
    }

    /// Takes the new blocks into the layout.
    fn lay_out(&self, func: &mut Function) {
        let old = std::mem::take(&mut func.layout);
        for b in old {
            func.layout.extend(&self.before[b]);
            func.layout.push(b);
            func.layout.extend(self.behind[b].iter().rev());
        }
    }
}

/// Takes the lanes that leave a region out of its barrier.
fn leave(func: &mut Function, r: &Region, barrier: Value) {
    for exit in &r.exits {
        let pred = operand(Name::Phys(Reg::PT));
        let data = instruction(Opcode::BREAK, r.kind(func), [pred, operand(barrier)]);
        let loc = func.blocks[exit.from].term_loc;
        let inst = func.insts.push(InstData { guard: exit.lanes, loc, ..data });
        func.blocks[exit.from].insts.push(inst);
    }
}

/// Puts the BSYNC of a region on all its edges into the meeting block; the block that it stands in.
fn meeting(func: &mut Function, cfg: &Cfg, r: &Region, barrier: Value, places: &mut Places) -> Block {
    let mods = r.kind(func);
    let always = operand(Name::Phys(Reg::PT));
    let sync = func.insts.push(instruction(Opcode::BSYNC, mods, [always, operand(barrier)]));
    if cfg.preds[r.meet].iter().all(|p| r.body.contains(*p)) {
        func.blocks[r.meet].insts.insert(0, sync);
        return r.meet;
    }
    let block = func.add_block();
    func.layout.pop();
    // Before the meeting block, or, for a loop header, after the last latch.
    let latch = match r.body.contains(r.meet) || cfg.order[r.meet] <= cfg.order[r.enter] {
        true => r.body.iter().filter(|b| places.at[*b] != u32::MAX).max_by_key(|b| places.at[*b]),
        false => None,
    };
    match latch {
        Some(b) => places.behind[b].push(block),
        None => places.before[r.meet].push(block),
    }
    let params: SmallVec<[Value; 4]> = func.blocks[r.meet].params.clone();
    let params: SmallVec<[Value; 4]> = params
        .iter()
        .map(|v| {
            let shape = func.values[*v];
            func.add_value(shape.file, shape.width)
        })
        .collect();
    let data = &mut func.blocks[block];
    data.params.clone_from(&params);
    data.insts.push(sync);
    data.term = Terminator::Jump(BlockCall { block: r.meet, args: params });
    for p in r.body.iter() {
        for t in func.blocks[p].term.targets_mut() {
            if t.block == r.meet {
                t.block = block;
            }
        }
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lanes that yield share uniform registers with those that run then (random program 2002395).
    #[test]
    fn lanes_yield_where_uniform_registers_hold_nothing() {
        let text = "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {\nblock0:\n    v0:R = LDS [0x0]\n    \
                    v1:UR = ULDC c[0x0][0x210]\n    v2:R = IADD3 PT, PT, v0, v1, RZ, !PT, !PT\n    v3:UR = ULDC c[0x0][0x214]\n    \
                    v4:R = LDS [0x4]\n    v5:R = IADD3 PT, PT, v2, v3, v4, !PT, !PT\n    STS [0x0], v5\n    exit\n}\n";
        let f = ori::parse::parse(text).unwrap_or_else(|e| panic!("{e}"));
        let b = f.entry_block();
        let places: Vec<usize> = (0..7).map(|at| free_of_uniform(&f, b, at)).collect();
        assert_eq!(places, [0, 1, 1, 3, 3, 3, 6]);
    }
}
