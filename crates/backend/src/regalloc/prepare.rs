//! Brings a function into the form that the allocator works on: no unreachable blocks, no two edges to one
//! block with different arguments, no guarded or modifying copies, no register for results that nobody reads.

use super::rewrite::move_inst;
use super::{Error, undefined};
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::cfg::{Cfg, DomTree};
use ori::{
    ALWAYS, Block, BlockCall, Function, Inst, InstData, Macro, Name, Op, Operand, Operands, Terminator,
    Value, operand,
};
use rustc_hash::FxHashMap;
use sass::{Mods, Opcode, Reg, RegFile, RegOp, Role};
use smallvec::SmallVec;
use thin_vec::{ThinVec, thin_vec};

/// Does all of it.
///
/// # Errors
/// A guarded copy between files that no instruction does.
pub fn run(func: &mut Function) -> Result<Cfg, Error> {
    let cfg = Cfg::new(func);
    func.layout.retain(|b| cfg.is_reachable(*b));
    split_double_edges(func);
    let cfg = Cfg::new(func);
    drop_unread(func, &cfg);
    prefer_copies(func, &cfg);
    undefined::run(func, &cfg);
    for &b in &cfg.rpo {
        let old = std::mem::take(&mut func.blocks[b].insts);
        let mut out = Vec::with_capacity(old.len());
        for i in old {
            let d = &func.insts[i];
            let modifies = |o: &Operand| matches!(o, Operand::Reg(r) if *r != RegOp::plain(r.reg));
            let copy = matches!(d.op, Op::Macro(Macro::Copy | Macro::Collect));
            if copy && (!d.is_unguarded() || d.operands.iter().any(modifies)) {
                expand(func, i, &mut out)?;
            } else {
                if let (Op::Macro(Macro::Undef), false) = (d.op, d.is_unguarded()) {
                    let d = &mut func.insts[i];
                    d.guard = ALWAYS;
                    d.kept.clear();
                }
                out.push(i);
            }
        }
        func.blocks[b].insts = out;
    }
    Ok(cfg)
}

/// Where a register of a tuple is copied for an argument of a block, everything behind the copy reads that: the tuple and its
/// copies would else be counted twice where both live on, as accumulators of matrices at the end of a loop do.
fn prefer_copies(func: &mut Function, cfg: &Cfg) {
    let mut passed = FixedBitSet::with_capacity(func.values.len());
    for &b in &cfg.rpo {
        func.blocks[b].term.targets().iter().flat_map(|t| &t.args).for_each(|a| passed.insert(a.index()));
    }
    // The first copy of each register, and where it is.
    let mut copies: FxHashMap<Name, (Value, Block, usize)> = FxHashMap::default();
    for &b in &cfg.rpo {
        for (k, &i) in func.blocks[b].insts.iter().enumerate() {
            let d = &func.insts[i];
            if let (Op::Macro(Macro::Copy), true, [Operand::Reg(to), Operand::Reg(from)]) =
                (d.op, d.is_unguarded(), &d.operands[..])
                && let (Name::Val(copy), Name::Part(..)) = (to.reg, from.reg)
                && *from == RegOp::plain(from.reg)
                && func.values[copy].file == func.shape(from.reg).file
                && passed.contains(copy.index())
            {
                copies.entry(from.reg).or_insert((copy, b, k));
            }
        }
    }
    if copies.is_empty() {
        return;
    }
    let dom = DomTree::dominators(cfg);
    for &b in &cfg.rpo {
        let behind = |n: Name, at: usize| match copies.get(&n) {
            Some(&(copy, c, k)) if c == b && k < at || c != b && dom.dominates(c, b) => Name::Val(copy),
            _ => n,
        };
        let insts = func.blocks[b].insts.clone();
        for (k, i) in insts.iter().enumerate() {
            func.insts[*i].map_uses(|n| behind(n, k));
        }
        if let Some(n) = func.blocks[b].term.used_name_mut() {
            *n = behind(*n, insts.len());
        }
    }
}

/// Replaces a guarded or modifying copy by one real instruction per register, and a collect of the results.
fn expand(func: &mut Function, i: Inst, out: &mut Vec<Inst>) -> Result<(), Error> {
    let d = func.insts[i].clone();
    let Some((Some(to), from)) = d.macro_operands() else { return Err(Error::Move(format!("{:?}", d.op))) };
    let Some(dst) = to.as_reg().and_then(|r| r.reg.value()) else {
        return Err(Error::Move(format!("{to:?}")));
    };
    let shape = func.values[dst];
    let mut sources: Vec<Operand> = Vec::new();
    for o in from {
        match o {
            Operand::Reg(RegOp { reg: Name::Val(v), .. }) if func.values[*v].width > 1 => {
                sources.extend((0..func.values[*v].width).map(|k| operand(Name::Part(*v, k))));
            }
            other => sources.push(*other),
        }
    }
    let part = |n: Name, k: u8| match n {
        Name::Val(v) if shape.width > 1 => Name::Part(v, k),
        other => other,
    };
    let mut words: Operands = thin_vec![operand(dst)];
    for (k, src) in sources.iter().enumerate() {
        let word = if shape.width == 1 { dst } else { func.add_value(shape.file, 1) };
        // The instruction is chosen by files: stand-ins of the same files, replaced at once.
        let stand_in = |f: RegFile| Reg { file: f, index: 0 };
        let shown = src.map(
            |n| match n {
                Name::Phys(r) => r,
                Name::Val(_) | Name::Part(..) => stand_in(func.shape(n).file),
            },
            |block| block,
        );
        let chosen = move_inst(func.target, stand_in(shape.file), &shown)?;
        let Op::Sass(op) = chosen.op else { unreachable!("a move is a SASS instruction") };
        let named = |r: Reg, role: Role| match src {
            _ if r.index != 0 => Name::Phys(r),
            Operand::Reg(s) if role == Role::Use => s.reg,
            _ => Name::Val(word),
        };
        let operands = chosen.operands.iter().zip(op.slots());
        let mut m = InstData {
            guard: d.guard,
            op: chosen.op,
            mods: chosen.mods,
            operands: operands.map(|(o, slot)| o.map(|r| named(r, slot.role), |block| block)).collect(),
            kept: ThinVec::new(),
            loc: d.loc,
        };
        if !d.is_unguarded() {
            let mut kept = ThinVec::new();
            m.for_each_def(|n| {
                kept.push(match (n, d.kept.first()) {
                    (Name::Val(_), Some(old)) => part(*old, k as u8),
                    _ => n,
                });
            });
            m.kept = kept;
        }
        out.push(func.insts.push(m));
        words.push(operand(word));
    }
    if shape.width > 1 {
        let data = InstData {
            guard: ALWAYS,
            op: Op::Macro(Macro::Collect),
            mods: Mods::none(),
            operands: words,
            kept: ThinVec::new(),
            loc: d.loc,
        };
        out.push(func.insts.push(data));
    }
    Ok(())
}

/// Splits edges so that no block has two edges to the same block with different arguments.
fn split_double_edges(func: &mut Function) {
    for b in func.layout.clone() {
        let mut term = func.blocks[b].term.clone();
        let mut targets = term.targets_mut();
        for k in 1..targets.len() {
            let clash = targets[..k].iter().any(|t| t.block == targets[k].block && t.args != targets[k].args);
            if !clash {
                continue;
            }
            let new = func.add_block_after(b);
            let args = std::mem::take(&mut targets[k].args);
            let old = std::mem::replace(&mut targets[k].block, new);
            func.blocks[new].term = Terminator::Jump(BlockCall { block: old, args });
        }
        drop(targets);
        func.blocks[b].term = term;
    }
}

/// What is read: by instructions and terminators, or through a parameter that is.
fn read_values(func: &Function, cfg: &Cfg) -> FixedBitSet {
    let mut read = FixedBitSet::with_capacity(func.values.len());
    let mut work: Vec<Value> = Vec::new();
    let mut passes: SecondaryMap<Value, SmallVec<[Value; 2]>> = SecondaryMap::new();
    for &b in &cfg.rpo {
        let data = &func.blocks[b];
        for &i in &data.insts {
            func.insts[i].for_each_use(|n| work.extend(n.value()));
        }
        work.extend(data.term.used_name().and_then(Name::value));
        for t in data.term.targets() {
            for (p, a) in func.blocks[t.block].params.iter().zip(&t.args) {
                passes[*p].push(*a);
            }
        }
    }
    while let Some(v) = work.pop() {
        if !read.put(v.index()) {
            work.extend(&passes[v]);
        }
    }
    read
}

/// Results that are never read go to the zero register, except those of memory instructions; parameters
/// that are never read go.
fn drop_unread(func: &mut Function, cfg: &Cfg) {
    let read = read_values(func, cfg);
    let mut params: SecondaryMap<Block, SmallVec<[Value; 4]>> = SecondaryMap::new();
    for &b in &cfg.rpo {
        params[b] = func.blocks[b].params.clone();
        func.blocks[b].params.retain(|p| read.contains(p.index()));
    }
    for &b in &cfg.rpo {
        for t in func.blocks[b].term.targets_mut() {
            let mut kept = params[t.block].iter().map(|p| read.contains(p.index()));
            t.args.retain(|_| kept.next().unwrap_or(true));
        }
    }
    for &b in &cfg.rpo {
        for k in 0..func.blocks[b].insts.len() {
            let i = func.blocks[b].insts[k];
            let d = &mut func.insts[i];
            let Op::Sass(op) = d.op else { continue };
            if op.info().memory || matches!(op, Opcode::BSSY) {
                continue;
            }
            let mut nth = 0;
            for (o, slot) in d.operands.iter_mut().zip(op.slots()) {
                if slot.role == Role::Use {
                    continue;
                }
                if let Operand::Reg(RegOp { reg, .. }) = o {
                    if let Name::Val(v) = *reg
                        && !read.contains(v.index())
                        && func.values[v].file != RegFile::B
                    {
                        let zero = Name::Phys(Reg { file: func.values[v].file, index: Reg::ZERO });
                        *reg = zero;
                        if let Some(kept) = d.kept.get_mut(nth) {
                            *kept = zero;
                        }
                    }
                    nth += 1;
                }
            }
        }
    }
}
