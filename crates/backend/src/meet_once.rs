//! Asks once for several instructions in a row whether all lanes of the warp are there.
//!
//! Where lanes may meet lanes at other instructions ([`ori::meeting`]), each place asks for itself who has come, and branches ([`crate::meetings`]).
//! Nothing parts lanes within a block, though: if all are there at its first such place, they are at those that follow. So what stands between those
//! is there twice: for the whole warp, without any WARPSYNC, and, at the function's end, as it was. ptxas 13.0.88 has one `BRA.DIV` for up to
//! five elections with what the elected lane does (docs/convergence.md).
//!
//! What the warp executes for an elected lane needs no guard where that is one of the lanes there. Where lanes meet, it may be among
//! the others, which execute the same elsewhere.

use crate::convergence;
use crate::meetings::kind;
use crate::waits::{gathers, lets_others_run};
use fixedbitset::FixedBitSet;
use ori::edit::Clones;
use ori::meeting::{MARK, constant_lanes, is_meeting};
use ori::{
    ALWAYS, Block, BlockCall, Builder, Function, Inst, InstData, Macro, Name, Op, Operand, Terminator, Value,
    operand,
};
use rustc_hash::FxHashSet;
use sass::ops::{Elect, Voteu};
use sass::{Effect, Mod, Mods, Opcode, Reg, RegFile};
use std::ops::Range;
use thin_vec::ThinVec;

/// The most instructions that are there twice.
const MOST: usize = 160;

/// Asks once wherever that will do, and takes needless guards away; whether there were any.
pub fn run(func: &mut Function) -> bool {
    let several = |b: &&Block| {
        let insts = &func.blocks[**b].insts;
        insts.iter().filter(|i| is_place(func, **i)).nth(1).is_some()
            || insts.iter().any(|i| is_vote_of_elected(&func.insts[*i]))
    };
    let blocks: Vec<Block> = func.layout.iter().filter(several).copied().collect();
    if blocks.is_empty() {
        return false;
    }
    // Elsewhere a WARPSYNC does, and nobody asks.
    let Ok(shared) = convergence::shared_places(func) else { return false };
    let mut changed = false;
    for b in blocks {
        if let Some(range) = stretch(func, b, &shared) {
            divide(func, b, range);
            changed = true;
        }
    }
    for b in func.layout.clone() {
        changed |= drop_guards(func, b, &shared);
    }
    if changed {
        ori::dead::remove(func);
    }
    changed
}

/// Whether it is a place where all lanes of the warp may meet others.
fn is_place(func: &Function, i: Inst) -> bool {
    let d = &func.insts[i];
    is_meeting(d) && d.is_unguarded() && constant_lanes(d) == Some(!0)
}

/// Whether it is the guard of what the warp executes for an elected lane.
fn is_vote_of_elected(d: &InstData) -> bool {
    d.op == Op::Sass(Opcode::VOTEU) && d.mods.has(MARK)
}

/// Whether an instruction may be there twice, and leaves lanes together that came together.
fn may_be_twice(func: &Function, d: &InstData) -> bool {
    let labels = d.operands.iter().any(|o| matches!(o, Operand::Label(_)));
    let alone = match d.op {
        Op::Macro(m) => m.is_copy() || matches!(m, Macro::Collect | Macro::Undef),
        // The order of products of groups is that of the code.
        Op::Sass(op) => {
            let waits = matches!(op.info().effect, Effect::Control(_)) || op == Opcode::BAR;
            !waits && !op.is_group_product()
        }
    };
    alone && !labels && !gathers(func, d) && !lets_others_run(func, d)
}

/// What is to be there twice of a block: from its first place where lanes that are `shared` meet, if there is a second one, or an elected lane does
/// something there.
fn stretch(func: &Function, b: Block, shared: &FxHashSet<Inst>) -> Option<Range<usize>> {
    let insts = &func.blocks[b].insts;
    // The barriers of a block do not only gather lanes.
    let place = |k: usize| {
        is_place(func, insts[k])
            && shared.contains(&insts[k])
            && kind(func, b, k).is_ok_and(|kind| kind.op != Opcode::BAR)
    };
    let mut at = 0;
    while at < insts.len() {
        if !place(at) {
            at += 1;
            continue;
        }
        let twice = |k: &usize| place(*k) || may_be_twice(func, &func.insts[insts[*k]]);
        let mut end = (at..insts.len()).take_while(|k| twice(k)).last()? + 1;
        if end - at > MOST {
            // Up to what belongs to another place.
            end = (at + 1..at + MOST).rev().find(|k| place(*k))?;
        }
        let does = insts[at..end].iter().any(|i| is_vote_of_elected(&func.insts[*i]));
        if !does && !(at + 1..end).any(place) {
            at = end;
            continue;
        }
        // What is brought to uniform registers is not taken to another block.
        let mut start = at;
        let mut k = end;
        while k > start {
            k -= 1;
            func.insts[insts[k]].for_each_use(|n| {
                let uniform = |v: &Value| matches!(func.values[*v].file, RegFile::UR | RegFile::UP);
                let Some(v) = n.value().filter(uniform) else { return };
                let made = insts[..start].iter().rposition(|i| defines(func, *i, v));
                start = made.unwrap_or(start);
            });
        }
        let whole = (start..at).all(|k| may_be_twice(func, &func.insts[insts[k]]));
        // A vote that tells who met belongs to a place before it.
        let gathers = |i: &&Inst| func.insts[**i].op != Op::Sass(Opcode::WARPSYNC);
        let tells = |i: &Inst| func.insts[*i].op == Op::Sass(Opcode::VOTE) && func.insts[*i].mods.has(MARK);
        let cut = insts[end..].iter().take_while(gathers).any(tells);
        return Some(start..end)
            .filter(|r| whole && !cut && r.len() <= 2 * MOST && !leaves_uniform(func, b, r));
    }
    None
}

/// Takes the guards of what the warp executes for an elected lane away, where that is one of the lanes there; whether there were any.
fn drop_guards(func: &mut Function, b: Block, shared: &FxHashSet<Inst>) -> bool {
    let mut needless: Vec<Value> = Vec::new();
    let mut met = false;
    let mut elected: Vec<Value> = Vec::new();
    for i in &func.blocks[b].insts {
        let d = &func.insts[*i];
        if is_meeting(d) {
            met = shared.contains(i) || d.mods.has(Mod::EXCLUSIVE) && constant_lanes(d).is_none();
        }
        let value = |o: &Operand| match o {
            Operand::Reg(r) if !r.not => r.reg.value(),
            _ => None,
        };
        if let Some(s) = Elect::of(d).filter(|_| !met && d.is_unguarded()) {
            elected.extend(value(s.p));
        }
        if let Some(s) = Voteu::of(d).filter(|_| is_vote_of_elected(d))
            && value(s.a).is_some_and(|p| elected.contains(&p))
        {
            needless.extend(value(s.p));
        }
    }
    if needless.is_empty() {
        return false;
    }
    for i in func.blocks[b].insts.clone() {
        let d = &mut func.insts[i];
        if d.guard.pred.value().is_some_and(|v| needless.contains(&v)) && !d.guard.not {
            d.guard = ALWAYS;
            d.kept = ThinVec::new();
        }
    }
    true
}

fn defines(func: &Function, i: Inst, v: Value) -> bool {
    let mut found = false;
    func.insts[i].for_each_def(|n| found |= n.value() == Some(v));
    found
}

/// Whether what is behind a part of a block reads a uniform register that is made there.
fn leaves_uniform(func: &Function, b: Block, part: &Range<usize>) -> bool {
    let made = made(func, &func.blocks[b].insts[part.clone()]);
    let uniform = |v: Value| matches!(func.values[v].file, RegFile::UR | RegFile::UP);
    let mut read = false;
    read_outside(func, b, part, |v| read |= uniform(v) && made.contains(v.as_u32() as usize));
    read
}

fn made(func: &Function, insts: &[Inst]) -> FixedBitSet {
    let mut made = FixedBitSet::with_capacity(func.values.len());
    for i in insts {
        func.insts[*i].for_each_def(|n| n.value().into_iter().for_each(|v| made.insert(v.as_u32() as usize)));
    }
    made
}

/// Calls `f` with all values that are read elsewhere than in a part of a block.
fn read_outside(func: &Function, b: Block, part: &Range<usize>, mut f: impl FnMut(Value)) {
    for &other in &func.layout {
        let data = &func.blocks[other];
        for (k, i) in data.insts.iter().enumerate() {
            if other != b || !part.contains(&k) {
                func.insts[*i].for_each_use(|n| n.value().into_iter().for_each(&mut f));
            }
        }
        data.term.used_name().and_then(Name::value).into_iter().for_each(&mut f);
        data.term.targets().into_iter().flat_map(|t| &t.args).for_each(|a| f(*a));
    }
}

/// Makes a part of a block twice: for the whole warp, and for lanes that are not all there.
fn divide(func: &mut Function, b: Block, part: Range<usize>) {
    let made = made(func, &func.blocks[b].insts[part.clone()]);
    let mut leaving: Vec<Value> = Vec::new();
    read_outside(func, b, &part, |v| {
        if made.contains(v.as_u32() as usize) && !leaving.contains(&v) {
            leaving.push(v);
        }
    });
    let mut insts = std::mem::take(&mut func.blocks[b].insts);
    let after = insts.split_off(part.end);
    let apart = insts.split_off(part.start);
    func.blocks[b].insts = insts;
    let first = apart.iter().find(|i| is_place(func, **i)).or(apart.first());
    let loc = first.map_or(func.blocks[b].term_loc, |i| func.insts[*i].loc);

    // The copies of all but the WARPSYNCs.
    let mut clones = Clones::default();
    for v in made.ones().map(|v| Value::from_u32(v as u32)) {
        let shape = func.values[v];
        let new = func.add_value(shape.file, shape.width);
        clones.values.insert(v, new);
    }
    let mut together = Vec::with_capacity(apart.len());
    for i in &apart {
        if !is_place(func, *i) {
            let mut d = func.insts[*i].clone();
            d.map_names(|n| clones.name(n));
            together.push(func.insts.push(d));
        }
    }

    let [fast, join, slow] = [(); 3].map(|()| func.add_block());
    func.layout.truncate(func.layout.len() - 3);
    let place = func.layout.iter().position(|x| *x == b).map_or(func.layout.len(), |k| k + 1);
    func.layout.splice(place..place, [fast, join]);
    func.layout.push(slow);
    func.blocks[join].term = std::mem::replace(&mut func.blocks[b].term, Terminator::Unreachable);
    func.blocks[join].term_loc = func.blocks[b].term_loc;
    func.blocks[join].insts = after;
    (func.blocks[fast].insts, func.blocks[slow].insts) = (together, apart);

    // What is read behind has another name there.
    let mut met = Clones::default();
    for v in &leaving {
        let shape = func.values[*v];
        let p = func.add_value(shape.file, shape.width);
        func.blocks[join].params.push(p);
        met.values.insert(*v, p);
    }
    for other in func.layout.clone() {
        if other == slow || other == fast {
            continue;
        }
        for i in func.blocks[other].insts.clone() {
            func.insts[i].map_uses(|n| met.name(n));
        }
        let term = &mut func.blocks[other].term;
        if let Some(n) = term.used_name_mut() {
            *n = met.name(*n);
        }
        for t in term.targets_mut() {
            t.args.iter_mut().for_each(|a| *a = met.value(*a));
        }
    }
    for (from, args) in [
        (slow, leaving.iter().copied().collect()),
        (fast, leaving.iter().map(|v| clones.value(*v)).collect()),
    ] {
        func.blocks[from].term = Terminator::Jump(BlockCall { block: join, args });
        func.blocks[from].term_loc = func.blocks[join].term_loc;
    }

    let here = func.add_value(RegFile::R, 1);
    let missing = func.add_value(RegFile::P, 1);
    let pt = || operand(Name::Phys(Reg::PT));
    let mut put = |op: Opcode, mods: &[Mod], operands: &[Operand]| {
        let inst = func.insts.push(InstData {
            guard: ALWAYS,
            op: Op::Sass(op),
            mods: Mods::of(mods),
            operands: operands.iter().cloned().collect(),
            kept: ThinVec::new(),
            loc,
        });
        func.blocks[b].insts.push(inst);
    };
    put(Opcode::VOTE, &[Mod::ANY], &[operand(here), pt(), pt()]);
    let compared = [operand(missing), pt(), operand(here), Operand::Imm(!0), pt(), pt()];
    put(Opcode::ISETP, &[Mod::NE, Mod::U32, Mod::AND], &compared);
    func.blocks[b].term = Terminator::Branch {
        cond: missing.into(),
        not: false,
        taken: Builder::call(slow),
        fall: Builder::call(fast),
    };
    func.blocks[b].term_loc = loc;
}
