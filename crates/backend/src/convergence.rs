//! Convergence barriers: `BSSY B, L` before the lanes of a warp may part, `BSYNC B` at L where they meet again.
//!
//! Every divergent branch with an immediate postdominator Y asks for a meeting at Y. Where all its lanes
//! surely come through one block D (which dominates the branches that meet at Y, and lies in no loop that
//! leaves Y out), BSSY stands at the end of D and BSYNC on the edges into Y. EXIT takes a lane out of all
//! barriers, so ways that end the thread need not meet. Where a meeting cannot be arranged surely (irreducible
//! flow, endless loops), or must not be (lanes that spin until another lane has done something), the lanes
//! simply stay apart.
//!
//! Warp-wide instructions whose member mask is the whole warp come with a WARPSYNC of all lanes, which is taken
//! away where the lanes are surely together.

use crate::liveness::values_read;
use crate::uniformity::Uniformity;
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::cfg::{Cfg, DomTree, PostDom};
use ori::{Block, BlockCall, Function, InstData, Name, Op, Operand, Terminator, Value, operand};
use sass::{Mod, Mods, Opcode, Reg, RegFile};
use smallvec::SmallVec;

/// Most barriers live at once: B0 … B15.
const MAX_LIVE: u8 = 16;

/// Branches that meet.
struct Region {
    /// BSSY goes to its end.
    enter: Block,
    /// Where they meet.
    meet: Block,
    /// The blocks from `enter` to `meet`, `enter` included, `meet` not.
    body: FixedBitSet,
}

/// Places convergence barriers in a function in SSA without switches.
pub fn run(func: &mut Function) {
    let cfg = Cfg::new(func);
    let dom = DomTree::dominators(&cfg);
    let trimmed = without_early_exits(func, &cfg);
    let post = PostDom::new(&trimmed);
    let uniformity = Uniformity::new(func, &cfg);
    let parts = |func: &Function, b: Block| splits(func, b) && uniformity.is_divergent_branch(b);
    let mut enter: SecondaryMap<Block, Option<Block>> = SecondaryMap::with_default(None);
    for &b in &cfg.rpo {
        if trimmed.succs[b].len() < 2 || !parts(func, b) {
            continue;
        }
        if let Some(y) = post.ipdom(b).filter(|y| is_worthwhile(func, *y)) {
            enter[y] = Some(enter[y].map_or(b, |d| dom.common(d, b)));
        }
    }
    let read = values_read(func, &cfg);
    let mut regions: Vec<Region> = Vec::new();
    for &meet in &cfg.rpo {
        let mut at = enter[meet];
        while let Some(d) = at {
            if !dom.dominates(d, meet) && cfg.order[meet] > cfg.order[d] {
                break;
            }
            // Lanes that take another way would wait at an outer meeting for those that wait at this one.
            let surely = match d == meet {
                // Round a loop.
                true => trimmed.succs[d].iter().all(|s| post.dominates(meet, *s)),
                false => post.dominates(meet, d),
            };
            let way = match surely {
                true => body(func, &cfg, &dom, &read, d, meet),
                false if d == meet => break,
                false => Err(Obstacle::Leaks),
            };
            match way {
                Ok(body) => {
                    regions.push(Region { enter: d, meet, body });
                    break;
                }
                Err(Obstacle::Spins) => break,
                Err(Obstacle::Leaks) => at = dom.idom(d),
            }
        }
    }
    // Outer regions first; what exceeds the number of barriers stays apart.
    regions.sort_by_key(|r| (cfg.order[r.enter], std::cmp::Reverse(cfg.order[r.meet])));
    let mut live: SecondaryMap<Block, u8> = SecondaryMap::new();
    regions.retain(|r| {
        let blocks = || r.body.ones().map(Block::new);
        let fits = blocks().all(|b| live[b] < MAX_LIVE);
        if fits {
            blocks().for_each(|b| live[b] += 1);
        }
        fits
    });
    let barriers: Vec<Value> = regions.iter().map(|_| func.add_value(RegFile::B, 1)).collect();
    // Edges into a meeting block are redirected in the same order, so inner meetings come before outer ones.
    for (r, &barrier) in regions.iter().zip(&barriers).rev() {
        let sync = meeting(func, &cfg, r, barrier);
        let label = Operand::Label(sync);
        let mods: &[Mod] = if func.target.sm >= 100 { &[Mod::RECONVERGENT] } else { &[] };
        let data = instruction(Opcode::BSSY, mods, [operand(barrier), label]);
        let inst = func.insts.push(InstData { loc: func.blocks[r.enter].term_loc, ..data });
        // Regions that start in one block are placed from the inner to the outer one.
        let insts = &mut func.blocks[r.enter].insts;
        let first =
            insts.iter().rposition(|i| func.insts[*i].op != Op::Sass(Opcode::BSSY)).map_or(0, |k| k + 1);
        insts.insert(first, inst);
    }
    let divergent: FixedBitSet = cfg.rpo.iter().filter(|b| parts(func, **b)).map(|b| b.index()).collect();
    gather(func, &divergent);
}

/// Whether the instruction is a WARPSYNC of all lanes.
fn gathers_all(d: &InstData) -> bool {
    d.op == Op::Sass(Opcode::WARPSYNC) && d.operands.get(1) == Some(&Operand::Imm(!0))
}

/// Takes WARPSYNCs of all lanes away where they are together. `divergent`: blocks at whose end lanes part.
fn gather(func: &mut Function, divergent: &FixedBitSet) {
    let any = func.layout.iter().flat_map(|b| &func.blocks[*b].insts).any(|i| gathers_all(&func.insts[*i]));
    if !any {
        return;
    }
    let cfg = Cfg::new(func);
    // Whether all lanes that have not ended are together at the start and at the end of each block, and where a
    // barrier was set; true until shown otherwise.
    let mut start: SecondaryMap<Block, bool> = SecondaryMap::with_default(true);
    let mut end: SecondaryMap<Block, bool> = SecondaryMap::with_default(true);
    let mut set: SecondaryMap<Value, bool> = SecondaryMap::with_default(true);
    let mut changed = true;
    while changed {
        changed = false;
        for &b in &cfg.rpo {
            let mut together = match b == func.entry_block() {
                true => func.entry,
                false => cfg.preds[b].iter().all(|p| end[*p] && !leaves_lanes(func, divergent, *p, b)),
            };
            start[b] = together;
            for i in &func.blocks[b].insts {
                together = after(&func.insts[*i], together, &mut set);
            }
            changed |= std::mem::replace(&mut end[b], together) != together;
        }
    }
    for &b in &cfg.rpo {
        let mut together = start[b];
        let insts = std::mem::take(&mut func.blocks[b].insts);
        let needed = |i: &ori::Inst| {
            let d = &func.insts[*i];
            let needless = together && gathers_all(d);
            together = after(d, together, &mut set);
            !needless
        };
        func.blocks[b].insts = insts.into_iter().filter(needed).collect();
        for i in func.blocks[b].insts.clone() {
            if func.target.sm >= 90 && gathers_all(&func.insts[i]) {
                let d = &mut func.insts[i];
                d.mods = Mods::of(&[Mod::ALL]);
                d.operands[1] = ori::default_operand(Opcode::WARPSYNC, 1);
            }
        }
    }
}

/// Whether lanes that go from `b` to `to` leave others behind. Those that end at once are none.
fn leaves_lanes(func: &Function, divergent: &FixedBitSet, b: Block, to: Block) -> bool {
    let others = func.blocks[b].term.targets();
    let over = |s: Block| ends_thread(func, s) && func.blocks[s].insts.is_empty();
    divergent.contains(b.index()) && others.iter().any(|t| t.block != to && !over(t.block))
}

/// Whether all lanes are together after an instruction.
fn after(d: &InstData, together: bool, set: &mut SecondaryMap<Value, bool>) -> bool {
    let barrier = |at: usize| match d.operands.get(at) {
        Some(Operand::Reg(r)) => r.reg.value(),
        _ => None,
    };
    match d.op {
        Op::Sass(Opcode::BSSY) => {
            if let Some(v) = barrier(0) {
                set[v] = together;
            }
            together
        }
        Op::Sass(Opcode::BSYNC) => barrier(1).is_some_and(|v| set[v]),
        Op::Sass(Opcode::WARPSYNC) if gathers_all(d) => together || d.is_unguarded(),
        Op::Sass(Opcode::WARPSYNC) => false,
        Op::Macro(ori::Macro::Call) | Op::Sass(Opcode::CALL) => false,
        _ => together,
    }
}

/// Whether two ways lead out of `b`, chosen lane by lane.
fn splits(func: &Function, b: Block) -> bool {
    match &func.blocks[b].term {
        Terminator::Branch { cond, taken, fall, .. } => {
            let constant = matches!(cond, Name::Phys(r) if r.is_zero());
            taken.block != fall.block && !constant && func.shape(*cond).file == RegFile::P
        }
        _ => false,
    }
}

fn ends_thread(func: &Function, b: Block) -> bool {
    matches!(func.blocks[b].term, Terminator::Exit | Terminator::Unreachable)
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
    /// A lane in the region may wait for one that has left it.
    Spins,
}

/// The blocks on the ways from `d` to `meet`.
fn body(
    func: &Function,
    cfg: &Cfg,
    dom: &DomTree,
    read: &FixedBitSet,
    d: Block,
    meet: Block,
) -> Result<FixedBitSet, Obstacle> {
    let mut body = FixedBitSet::with_capacity(func.blocks.len());
    body.insert(d.index());
    let mut stack = vec![d];
    let mut reaches = false;
    let mut spins = false;
    let mut again = false;
    while let Some(b) = stack.pop() {
        spins |= b != d && waits_for_others(func, read, b) && is_in_loop(cfg, dom, b);
        for &s in &cfg.succs[b] {
            if s == meet {
                reaches = true;
            } else if s == d {
                again = true;
            } else if !dom.dominates(d, s) {
                if !ends_thread(func, s) {
                    return Err(Obstacle::Leaks);
                }
            } else if !body.put(s.index()) {
                stack.push(s);
            }
        }
    }
    match () {
        () if again || !reaches => Err(Obstacle::Leaks),
        () if spins => Err(Obstacle::Spins),
        () => Ok(body),
    }
}

/// Whether `b` may lie on a cycle: some block that it dominates, or that dominates it, jumps back over it.
fn is_in_loop(cfg: &Cfg, dom: &DomTree, b: Block) -> bool {
    cfg.rpo.iter().any(|&h| {
        dom.dominates(h, b)
            && cfg.preds[h].iter().any(|&latch| cfg.order[latch] >= cfg.order[b] && dom.dominates(h, latch))
    })
}

/// Whether `b` reads what another thread may be about to write: the body of a spin lock.
fn waits_for_others(func: &Function, read: &FixedBitSet, b: Block) -> bool {
    func.blocks[b].insts.iter().any(|i| {
        let d = &func.insts[*i];
        match d.op {
            Op::Sass(Opcode::ATOMG | Opcode::ATOMS | Opcode::ATOM) => {
                let mut used = false;
                d.for_each_def(|n| used |= n.value().is_some_and(|v| read.contains(v.index())));
                used
            }
            Op::Sass(Opcode::LDG | Opcode::LD | Opcode::LDS | Opcode::LDG_256) => d.mods.has(Mod::STRONG),
            _ => false,
        }
    })
}

fn instruction(op: Opcode, mods: &[Mod], operands: impl IntoIterator<Item = Operand>) -> InstData {
    InstData {
        guard: ori::ALWAYS,
        op: Op::Sass(op),
        mods: Mods::of(mods),
        operands: operands.into_iter().collect(),
        kept: SmallVec::new(),
        loc: ori::Loc::default(),
    }
}

/// Puts the BSYNC of a region on all its edges into the meeting block; the block that it stands in.
fn meeting(func: &mut Function, cfg: &Cfg, r: &Region, barrier: Value) -> Block {
    let mods: &[Mod] = if func.target.sm >= 100 { &[Mod::RECONVERGENT] } else { &[] };
    let always = operand(Name::Phys(Reg::PT));
    let sync = func.insts.push(instruction(Opcode::BSYNC, mods, [always, operand(barrier)]));
    if cfg.preds[r.meet].iter().all(|p| r.body.contains(p.index())) {
        func.blocks[r.meet].insts.insert(0, sync);
        return r.meet;
    }
    let block = func.add_block();
    func.layout.pop();
    // Before the meeting block, or, for a loop header, after the last latch.
    let at = if r.body.contains(r.meet.index()) || cfg.order[r.meet] <= cfg.order[r.enter] {
        func.layout.iter().rposition(|b| r.body.contains(b.index())).map(|k| k + 1)
    } else {
        func.layout.iter().position(|b| *b == r.meet)
    };
    let at = at.unwrap_or(func.layout.len());
    func.layout.insert(at, block);
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
    for p in r.body.ones().map(Block::new) {
        for t in func.blocks[p].term.targets_mut() {
            if t.block == r.meet {
                t.block = block;
            }
        }
    }
    block
}
