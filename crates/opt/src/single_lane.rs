//! Code that one lane of a warp executes at most: behind `elect.sync`, or where the thread's number is known. Instructions that take uniform
//! registers were lowered to loops of the lanes, one after another; there the loop has one round.

use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use ori::{ALWAYS, Analyses, Block, Function, Inst, InstData, Name, Op, Operand, Terminator, Value, operand};
use rustc_hash::FxHashSet;
use sass::ops::{Bool, Elect, Icmp, Isetp, IsetpMods, Plop3, R2urP, S2r, Sel, Warpsync};
use sass::{Mod, Mods, Opcode, Reg, RegFile, RegOp, SpecialReg};

/// Makes such loops straight code; whether there were any.
pub fn run(func: &mut Function, analyses: &Analyses) -> bool {
    let asks = |d: &InstData| matches!(d.op, Op::Sass(Opcode::ELECT | Opcode::R2UR_P));
    if !func.layout.iter().any(|b| func.blocks[*b].insts.iter().any(|i| asks(&func.insts[*i]))) {
        return false;
    }
    let alone = blocks(func, analyses);
    let mut known: SecondaryMap<Value, Option<bool>> = SecondaryMap::new();
    for b in alone {
        for n in 0..func.blocks[b].insts.len() {
            let i = func.blocks[b].insts[n];
            let d = &mut func.insts[i];
            // What only the chosen lane does, it does.
            if let Name::Val(v) = d.guard.pred
                && known[v] == Some(!d.guard.not)
            {
                d.guard = ALWAYS;
                d.kept.clear();
            }
            if let Some(s) = Elect::of(d) {
                let (p, nobody) = (*s.p, *s.d == operand(Name::Phys(Reg::URZ)));
                predicate(&p).into_iter().for_each(|p| known[p.0] = Some(true));
                if nobody {
                    d.become_copy(p, operand(Name::Phys(Reg::PT)));
                }
            } else if let Some(s) = R2urP::of(d) {
                let (p, to, from) = (predicate(s.p), *s.d, *s.a);
                p.into_iter().for_each(|p| known[p.0] = Some(false));
                (d.op, d.mods) = (Op::Sass(Opcode::R2UR), Mods::none());
                d.operands = [to, from].into_iter().collect();
            } else if let Some((p, value)) = joined(d, |o| truth(o, &known)) {
                known[p] = Some(value);
                // What it reads is not made any more.
                let always = RegOp { not: !value, ..RegOp::plain(Name::Phys(Reg::PT)) };
                d.become_copy(operand(p), Operand::Reg(always));
            }
        }
        let Terminator::Branch { cond: Name::Val(v), not, taken, fall } = &func.blocks[b].term else {
            continue;
        };
        if let Some(value) = known[*v] {
            let way = if value != *not { taken.clone() } else { fall.clone() };
            func.blocks[b].term = Terminator::Jump(way);
        }
    }
    known.values().any(Option::is_some)
}

/// A predicate, and whether it is negated.
fn predicate(o: &Operand) -> Option<(Value, bool)> {
    match o {
        Operand::Reg(r) => r.reg.value().map(|v| (v, r.not)),
        _ => None,
    }
}

fn truth(o: &Operand, known: &SecondaryMap<Value, Option<bool>>) -> Option<bool> {
    match o {
        Operand::Reg(RegOp { reg: Name::Phys(Reg::PT), not, .. }) => Some(!not),
        o => predicate(o).and_then(|(v, not)| Some(known[v]? != not)),
    }
}

/// What PLOP3 makes first of three operands of which all are known.
fn joined(d: &InstData, truth: impl Fn(&Operand) -> Option<bool>) -> Option<(Value, bool)> {
    let s = Plop3::of(d).filter(|_| d.is_unguarded())?;
    let Operand::Imm(table) = *s.table else { return None };
    let row = [s.a, s.b, s.c].into_iter().try_fold(0, |row, o| Some(2 * row + u32::from(truth(o)?)))?;
    Some((predicate(s.p)?.0, table >> row & 1 != 0))
}

/// In at most one lane of a warp a predicate is so.
#[derive(Clone, Copy, Default)]
struct One {
    set: bool,
    clear: bool,
}

/// The elections of some lanes of a warp, whatever lanes these are: others may be elected beside, so that a predicate is so in several lanes (one for
/// each group of `match.any.sync`, say). What elects all lanes stands behind a WARPSYNC of all, or behind none.
fn of_several(func: &Function, analyses: &Analyses) -> FxHashSet<Inst> {
    let mut out = FxHashSet::default();
    for b in &analyses.cfg(func).rpo {
        let mut some = false;
        for &i in &func.blocks[*b].insts {
            let d = &func.insts[i];
            if let Some(s) = Warpsync::of(d) {
                some = *s.lanes != Operand::Imm(!0) && !d.mods.has(Mod::ALL) || d.mods.has(Mod::EXCLUSIVE);
            } else if some && Elect::of(d).is_some() {
                out.insert(i);
            }
        }
    }
    out
}

/// The blocks that at most one lane of a warp comes to at a time, in reverse post order.
fn blocks(func: &Function, analyses: &Analyses) -> Vec<Block> {
    let cfg = analyses.cfg(func);
    let dom = analyses.dominators(func);
    let mut one: SecondaryMap<Value, One> = SecondaryMap::new();
    // Whether a value is another number in each lane.
    let mut numbers = FixedBitSet::with_capacity(func.values.len());
    let line = func.threads[1] == 1 && func.threads[2] == 1;
    // Values that are zero, and those that are so but in one lane.
    let mut zeros = FixedBitSet::with_capacity(func.values.len());
    let mut few = FixedBitSet::with_capacity(func.values.len());
    let several = of_several(func, analyses);
    for i in cfg.rpo.iter().flat_map(|b| &func.blocks[*b].insts) {
        let d = &func.insts[*i];
        let zero = |o: &Operand| match o {
            Operand::Imm(n) => *n == 0,
            Operand::Reg(r) if *r == RegOp::plain(r.reg) => match r.reg {
                Name::Val(v) => zeros.contains(v.index()),
                n => n == Name::Phys(Reg::RZ),
            },
            _ => false,
        };
        if !d.is_unguarded() {
            // `@p mov x, 1` where x was 0.
            if let (Some((Operand::Reg(to), _)), Name::Val(g), Some(kept)) =
                (d.copied(), d.guard.pred, d.kept.first())
                && (if d.guard.not { one[g].clear } else { one[g].set })
                && zero(&operand(*kept))
                && let Name::Val(to) = to.reg
            {
                few.insert(to.index());
            }
            continue;
        }
        let so = |o: &Operand, value: bool| {
            predicate(o).is_some_and(|(v, not)| if value != not { one[v].set } else { one[v].clear })
        };
        let plain = |o: &Operand| match o {
            Operand::Reg(r) if *r == RegOp::plain(r.reg) => r.reg.value(),
            _ => None,
        };
        let (made, is) = if let Some(s) = Elect::of(d) {
            (predicate(s.p), One { set: !several.contains(i), clear: false })
        } else if let Some(s) = S2r::of(d) {
            let own = match s.register {
                Operand::Special(SpecialReg::SR_TID_X) => line,
                Operand::Special(SpecialReg::SR_LANEID) => true,
                _ => false,
            };
            plain(s.d).filter(|_| own).into_iter().for_each(|v| numbers.insert(v.index()));
            continue;
        } else if let (Some(s), Some(m)) = (Isetp::of(d), IsetpMods::of(d)) {
            let own = |o: &Operand| plain(o).is_some_and(|v| numbers.contains(v.index()));
            let fixed = |o: &Operand| {
                matches!(o, Operand::Imm(_))
                    || plain(o).is_none() && matches!(o, Operand::Reg(r) if r.reg == Name::Phys(Reg::RZ))
            };
            let compares = !m.extended && (own(s.a) && fixed(s.b) || fixed(s.a) && own(s.b));
            let is_few = |o: &Operand| plain(o).is_some_and(|v| few.contains(v.index()));
            let differs = !m.extended && (is_few(s.a) && zero(s.b) || zero(s.a) && is_few(s.b));
            let and = m.join == Bool::AND;
            let always = *s.join == Operand::Reg(RegOp::plain(Name::Phys(Reg::PT)));
            let either = |own: Icmp, few: Icmp| compares && m.cmp == own || differs && m.cmp == few;
            let set = and && (either(Icmp::EQ, Icmp::NE) || so(s.join, true));
            // Neither the comparison nor what it is joined with holds.
            let neither = m.join == Bool::OR && so(s.join, false);
            let clear = and && always && either(Icmp::NE, Icmp::EQ) || neither;
            (predicate(s.p), One { set, clear })
        } else if let (Some(s), Some(Operand::Imm(table))) = (Plop3::of(d), Plop3::of(d).map(|s| *s.table)) {
            // In all rows that give it, an operand is so that is so in one lane.
            let forces = |result: bool| {
                [s.a, s.b, s.c].iter().enumerate().any(|(k, o)| {
                    [true, false].into_iter().any(|value| {
                        let rows = (0..8u32).filter(|row| (table >> row & 1 != 0) == result);
                        so(o, value) && rows.into_iter().all(|row| (row >> (2 - k) & 1 != 0) == value)
                    })
                })
            };
            (predicate(s.p), One { set: forces(true), clear: forces(false) })
        } else if let Some(s) = Sel::of(d) {
            let one = zero(s.b) && so(s.choose, true) || zero(s.a) && so(s.choose, false);
            plain(s.d).filter(|_| one).into_iter().for_each(|v| few.insert(v.index()));
            continue;
        } else if let Some((to, from)) = d.copied() {
            let Some(to) = plain(to) else { continue };
            if zero(from) {
                zeros.insert(to.index());
            } else if let Some(from) = plain(from) {
                numbers.set(to.index(), numbers.contains(from.index()));
                few.set(to.index(), few.contains(from.index()));
                let is = one[from];
                one[to] = is;
            }
            continue;
        } else {
            continue;
        };
        if let Some((p, _)) = made.filter(|p| func.values[p.0].file == RegFile::P) {
            one[p] = is;
        }
    }
    let meet = analyses.postdominators(func);
    let mut alone = FixedBitSet::with_capacity(func.blocks.len());
    let mut found = Vec::new();
    for &b in &cfg.rpo {
        let mut outside = cfg.preds[b].iter().filter(|p| !dom.dominates(b, **p));
        let (from, others) = (outside.next().copied(), outside.next());
        let by_edge = from.filter(|_| others.is_none()).is_some_and(|from| match &func.blocks[from].term {
            Terminator::Branch { cond: Name::Val(v), not, taken, fall } if taken.block != fall.block => {
                let taken_here = taken.block == b;
                let other = if taken_here { fall.block } else { taken.block };
                let single = if taken_here != *not { one[*v].set } else { one[*v].clear };
                single && !comes_back(func, other, from, meet.ipdom(from))
            }
            _ => false,
        });
        if by_edge || dom.idom(b).is_some_and(|up| alone.contains(up.index())) {
            alone.insert(b.index());
            found.push(b);
        }
    }
    found
}

/// Whether lanes that went to `other` at the end of `from` may come there once more before they come to where they meet the one that did not.
fn comes_back(func: &Function, other: Block, from: Block, meet: Option<Block>) -> bool {
    let mut seen = FxHashSet::default();
    let mut more = vec![other];
    while let Some(b) = more.pop() {
        if b == from {
            return true;
        }
        if Some(b) != meet && seen.insert(b) {
            more.extend(func.blocks[b].term.targets().into_iter().map(|t| t.block));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function after the pass.
    fn after(blocks: &str) -> (bool, String) {
        let text = format!(
            "function k sm_100 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = S2R SR_LANEID\n    v1:R = S2R SR_CTAID.X\n{blocks}}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let changed = run(&mut f, &Analyses::default());
        (changed, f.to_string())
    }

    #[test]
    fn an_elected_lane_needs_no_turn() {
        let turns = "block2:\n    v3:P = ELECT URZ, PT\n    STS [0x4], v1\n    branch !v3, block2, block3\nblock3:\n    exit\n";
        for (cond, alone) in [
            ("    v2:P = ELECT URZ, PT\n    branch v2, block2, block3\n", true),
            ("    v2:P = ELECT URZ, PT\n    branch !v2, block2, block3\n", false),
            ("    WARPSYNC PT, 0xffffffff\n    v2:P = ELECT URZ, PT\n    branch v2, block2, block3\n", true),
            ("    WARPSYNC PT, 0xffff\n    v2:P = ELECT URZ, PT\n    branch v2, block2, block3\n", false),
            (
                "    WARPSYNC.EXCLUSIVE PT, v0\n    v2:P = ELECT URZ, PT\n    branch v2, block2, block3\n",
                false,
            ),
            ("    v2:P = ISETP.EQ.AND PT, v0, 0x3, PT, PT\n    branch v2, block2, block3\n", true),
            ("    v2:P = ISETP.NE.AND PT, v0, 0x3, PT, PT\n    branch !v2, block2, block3\n", true),
            ("    v2:P = ISETP.NE.AND PT, v0, 0x3, PT, PT\n    branch v2, block2, block3\n", false),
            (
                "    v4:P = ELECT URZ, PT\n    v5:R = copy 0x0\n    @v4 v6:R = copy 0x1 keep v5\n    v2:P = ISETP.EQ.AND PT, v6, 0x0, PT, PT\n    \
                 branch !v2, block2, block3\n",
                true,
            ),
            ("    v2:P = ISETP.EQ.AND PT, v1, 0x3, PT, PT\n    branch v2, block2, block3\n", false),
            (
                "    v4:P = ELECT URZ, PT\n    v2:P = ISETP.LT.OR PT, v1, 0x3, !v4, PT\n    branch !v2, block2, block3\n",
                true,
            ),
            (
                "    v4:P = ELECT URZ, PT\n    v2:P = ISETP.LT.OR PT, v1, 0x3, v4, PT\n    branch !v2, block2, block3\n",
                false,
            ),
            (
                "    v4:P = ELECT URZ, PT\n    v2:P = ISETP.LT.OR PT, v1, 0x3, !v4, PT\n    branch v2, block2, block3\n",
                false,
            ),
            ("    jump block2\n", false),
        ] {
            let (changed, got) = after(&format!("{cond}{turns}"));
            assert_eq!((changed, got.contains("branch !v3")), (alone, !alone), "{got}");
        }
    }

    #[test]
    fn nothing_reads_what_is_not_made() {
        let turns = "block2:\n    v3:P, v4:UR = R2UR.P v0\n    v5:P, v6:UR = R2UR.P v1\n    v7:P = PLOP3.LUT PT, v3, v5, PT, 0xa8, 0x0\n    \
                     STS [0x4], v1\n    branch v7, block2, block3\nblock3:\n    exit\n";
        let (changed, got) =
            after(&format!("    v2:P = ELECT URZ, PT\n    branch v2, block2, block3\n{turns}"));
        assert!(changed && !got.contains("PLOP3") && !got.contains("branch v7"), "{got}");
    }

    /// Behind a loop of turns all lanes are.
    #[test]
    fn lanes_that_come_one_after_another_meet() {
        let (changed, got) = after(
            "    jump block1\nblock1:\n    v2:P = ELECT URZ, PT\n    STS [0x4], v1\n    branch !v2, block1, block2\nblock2:\n    \
             v3:P = ELECT URZ, PT\n    STS [0x8], v1\n    branch !v3, block2, block3\nblock3:\n    exit\n",
        );
        assert!(!changed, "{got}");
    }
}
