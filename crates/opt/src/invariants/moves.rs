//! Takes what was chosen out of its loop.

use ori::{Block, BlockCall, Editor, Inst, Name, Terminator, Value};
use rustc_hash::FxHashMap;

/// A branch, the blocks on the ways from it, and where they meet: what that block's parameters are is what all of it computes.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) from: Block,
    pub(super) blocks: Vec<Block>,
    pub(super) to: Block,
}

/// Something that leaves a loop.
#[derive(Clone, Debug)]
pub(super) enum Move {
    /// An instruction.
    Inst(Inst),
    /// One that stays as well, and is made once more for those that leave.
    Again(Inst),
    Region(Region),
}

/// Puts what leaves a loop into the block before it.
pub(super) fn carry_out(e: &mut Editor<'_>, mut before: Block, moves: Vec<Move>) {
    let mut again: FxHashMap<Value, Value> = FxHashMap::default();
    for m in moves {
        match m {
            Move::Again(i) => {
                let mut data = e.data(i).clone();
                let mut made = Vec::new();
                data.for_each_def(|n| made.extend(n.value()));
                for v in made {
                    let shape = e.func().values[v];
                    again.insert(v, e.add_value(shape.file, shape.width));
                }
                data.map_names(|n| renamed(&again, n));
                e.append(before, data);
            }
            Move::Inst(i) => {
                e.move_to_end(i, before);
                rename(e, &again, i);
            }
            Move::Region(region) => before = carry_out_region(e, before, &region, &again),
        }
    }
}

fn renamed(again: &FxHashMap<Value, Value>, n: Name) -> Name {
    let new = |v: Value| again.get(&v).copied().unwrap_or(v);
    match n {
        Name::Val(v) => Name::Val(new(v)),
        Name::Part(v, k) => Name::Part(new(v), k),
        Name::Phys(_) => n,
    }
}

fn rename(e: &mut Editor<'_>, again: &FxHashMap<Value, Value>, i: Inst) {
    if !again.is_empty() {
        e.change(i, |d| d.map_names(|n| renamed(again, n)));
    }
}

/// Puts a region behind `before`; the block where its ways meet then.
fn carry_out_region(
    e: &mut Editor<'_>,
    before: Block,
    region: &Region,
    again: &FxHashMap<Value, Value>,
) -> Block {
    let meet = e.add_block_after(before);
    e.move_params(region.to, meet);
    let term = e.func().blocks[before].term.clone();
    e.set_terminator(meet, term);
    let moved = |mut term: Terminator| {
        if let Some(n) = term.used_name_mut() {
            *n = renamed(again, *n);
        }
        for t in term.targets_mut() {
            t.block = if t.block == region.to { meet } else { t.block };
            t.args.iter_mut().for_each(|a| *a = again.get(a).copied().unwrap_or(*a));
        }
        term
    };
    let branch = moved(e.func().blocks[region.from].term.clone());
    let after = Terminator::Jump(BlockCall { block: region.to, args: [].into_iter().collect() });
    e.set_terminator(before, branch);
    e.set_terminator(region.from, after);
    // Each goes right behind `before`, so the last one first.
    for &b in region.blocks.iter().rev() {
        e.move_block_after(b, before);
        for i in e.insts(b).collect::<Vec<_>>() {
            rename(e, again, i);
        }
        let term = moved(e.func().blocks[b].term.clone());
        e.set_terminator(b, term);
    }
    meet
}
