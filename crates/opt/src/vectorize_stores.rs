//! Stores of neighbouring words of shared or local memory become one store of two or four words, where the address is known to be a
//! multiple of that, as ptxas has it: two words at most of local memory, four of shared memory.
//!
//! The store stands where the last of them stood. No access in between may see that the others are late: none of that space but stores at the same
//! base and other places. What is stored must be able to be in neighbouring registers: numbers, and what an instruction of the block makes
//! alone, for no other tuple.

use crate::Pass;
use crate::vectorize::{Access, Row, put_in_place, rows};
use cranelift_entity::SecondaryMap;
use ori::{
    ALWAYS, Analyses, Block, Changed, Function, Inst, InstData, Macro, Name, Op, Operand, Value, operand,
};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::memory::{MemoryEffects, MemorySpace};
use sass::ops::{Stl, Sts};
use sass::{AddrWidth, Effect, Mod, Mods, Opcode, Reg, RegFile, RegOp};
use thin_vec::thin_vec;

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "vectorize-stores",
    "LateVectorization",
    "stores of neighbouring words of shared and local memory as one of two or four words",
    run,
);

/// Stores that are looked at together.
const MOST_OPEN: usize = 128;

/// What stores that become one have in common: the opcode, and where they start from if that is a register.
type Kind = (Opcode, Option<Name>);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let mut insts = func.layout.iter().flat_map(|b| &func.blocks[*b].insts);
    if !insts.any(|i| matches!(func.insts[*i].op, Op::Sass(Opcode::STS | Opcode::STL))) {
        return Changed::Nothing;
    }
    let known = analyses.known_bits(func);
    let moves = func.moves_stack();
    let alignment = |(op, base): Kind| match (op, base) {
        (Opcode::STL, Some(Name::Phys(Reg::SP))) if !moves => ori::abi::LINKED_STACK_ALIGN,
        // The offset is the address.
        (Opcode::STS, None) => 16,
        (Opcode::STS, Some(Name::Val(v))) => known.alignment(v).min(16),
        (Opcode::STL, Some(Name::Val(v))) => known.alignment(v).min(ori::abi::LINKED_STACK_ALIGN),
        _ => 4,
    };
    let free = free_values(func);
    let mut changed = false;
    let mut local = false;
    for b in func.layout.clone() {
        let groups = groups(func, b, &alignment, &free);
        changed |= !groups.is_empty();
        local |= groups.iter().any(|(kind, _)| kind.0 == Opcode::STL);
        apply(func, b, &groups, &free);
    }
    if local {
        func.local_align = func.local_align.max(ori::abi::LINKED_STACK_ALIGN);
    }
    Changed::instructions(changed)
}

/// What a value is that may be put next to others.
#[derive(Clone, Copy)]
enum Free {
    /// A number.
    Number(Operand),
    /// What an instruction of this block makes.
    Made(Block),
}

/// Values of one word that no tuple, parameter, call or copy asks a certain place for.
fn free_values(func: &Function) -> SecondaryMap<Value, Option<Free>> {
    let mut free: SecondaryMap<Value, Option<Free>> = SecondaryMap::new();
    for &b in &func.layout {
        for &i in &func.blocks[b].insts {
            let d = &func.insts[i];
            let number = crate::copy_prop::number(d).map(|n| n.1);
            let computes = matches!(d.op, Op::Sass(_)) && d.kept.is_empty();
            d.for_each_def(|n| {
                if let Name::Val(v) = n
                    && func.values[v].file == RegFile::R
                    && func.values[v].width == 1
                    && d.is_unguarded()
                {
                    free[v] = number.map(Free::Number).or(computes.then_some(Free::Made(b)));
                }
            });
        }
    }
    let mut taken = |n: Name| {
        if let Some(v) = n.value()
            && matches!(free[v], Some(Free::Made(_)))
        {
            free[v] = None;
        }
    };
    for &b in &func.layout {
        for &i in &func.blocks[b].insts {
            let d = &func.insts[i];
            // Tuples, copies and calls; what a guarded instruction keeps is in its register.
            if matches!(d.op, Op::Macro(_)) {
                d.for_each_use(&mut taken);
            }
            d.kept.iter().for_each(|n| taken(*n));
        }
        let targets = func.blocks[b].term.targets();
        targets.into_iter().flat_map(|t| &t.args).for_each(|v| taken(Name::Val(*v)));
    }
    free
}

fn store(func: &Function, at: usize, inst: Inst) -> Option<(Kind, Access)> {
    let d = &func.insts[inst];
    let (op, address, value) = match (Sts::of(d), Stl::of(d)) {
        (Some(s), _) => (Opcode::STS, s.address, s.value),
        (_, Some(s)) => (Opcode::STL, s.address, s.value),
        _ => return None,
    };
    let Operand::Addr { desc: None, base, width: AddrWidth::R32, uniform: None, offset } = address else {
        return None;
    };
    let Operand::Reg(r @ RegOp { reg: Name::Val(value), .. }) = value else { return None };
    let plain = d.is_unguarded() && d.mods == Mods::none() && *r == RegOp::plain(r.reg);
    let base = base.filter(|b| *b != Name::Phys(Reg::RZ));
    plain.then_some(((op, base), Access { at, inst, value: *value, offset: *offset, words: 1 }))
}

/// Whether an instruction may access the space, or orders accesses.
fn touches(d: &InstData, space: MemorySpace) -> bool {
    let Op::Sass(op) = d.op else { return matches!(d.op, Op::Macro(m) if !m.is_copy() && m != Macro::Undef) };
    match op.info().effect {
        Effect::Pure => false,
        Effect::Memory => match op.info().accesses {
            MemoryEffects::Accesses(all) => {
                d.mods.has(Mod::STRONG) || all.iter().any(|a| a.space.overlaps(space))
            }
            MemoryEffects::ReadOnly => false,
            MemoryEffects::None | MemoryEffects::Fence => true,
        },
        Effect::State | Effect::Order | Effect::Sync(_) | Effect::Control(_) => true,
    }
}

/// Which stores of a block become one.
fn groups(
    func: &Function,
    b: Block,
    alignment: &impl Fn(Kind) -> u32,
    free: &SecondaryMap<Value, Option<Free>>,
) -> Vec<(Kind, Row)> {
    let mut found: Vec<(Kind, Row)> = Vec::new();
    // The stores so far that nothing has passed, of each space.
    let mut open: [(MemorySpace, Option<Kind>, Vec<Access>); 2] =
        [(MemorySpace::Shared, None, Vec::new()), (MemorySpace::Local, None, Vec::new())];
    let mut used: FxHashSet<Value> = FxHashSet::default();
    let mut close = |kind: &mut Option<Kind>, list: &mut Vec<Access>| {
        let Some(kind) = kind.take() else { return };
        for row in rows(std::mem::take(list), alignment(kind)) {
            // A value that is made has one place.
            let made = row.iter().filter(|a| matches!(free[a.value], Some(Free::Made(_))));
            let made: Vec<Value> = made.map(|a| a.value).collect();
            if made.iter().all(|v| !used.contains(v)) {
                used.extend(made);
                found.push((kind, row));
            }
        }
    };
    for (at, &i) in func.blocks[b].insts.iter().enumerate() {
        let store = store(func, at, i);
        for (space, kind, list) in &mut open {
            let own = store.as_ref().filter(|(k, _)| (k.0 == Opcode::STL) == (*space == MemorySpace::Local));
            match own {
                Some((k, a)) => {
                    let overlaps = || list.iter().any(|o| o.offset.abs_diff(a.offset) < 4);
                    if *kind != Some(*k) || list.len() == MOST_OPEN || overlaps() {
                        close(kind, list);
                    }
                    *kind = Some(*k);
                    let fits = match free[a.value] {
                        Some(Free::Number(_)) => true,
                        Some(Free::Made(at)) => at == b && !list.iter().any(|o| o.value == a.value),
                        None => false,
                    };
                    // One that does not fit stays: those before it are of other places, and those behind it go further back.
                    if fits {
                        list.push(Access { ..*a });
                    }
                }
                None if touches(&func.insts[i], *space) => close(kind, list),
                None => {}
            }
        }
    }
    for (_, kind, list) in &mut open {
        close(kind, list);
    }
    found
}

/// Puts one store where the last of each row is.
fn apply(func: &mut Function, b: Block, groups: &[(Kind, Row)], free: &SecondaryMap<Value, Option<Free>>) {
    if groups.is_empty() {
        return;
    }
    let mut last: FxHashMap<Inst, Vec<Inst>> = FxHashMap::default();
    let mut gone: FxHashSet<Inst> = FxHashSet::default();
    let zero = operand(Name::Phys(Reg::RZ));
    for (kind, row) in groups {
        let Some(end) = row.iter().max_by_key(|a| a.at) else { continue };
        let (loc, op) = (func.insts[end.inst].loc, Op::Sass(kind.0));
        let word = |a: &Access| match free[a.value] {
            Some(Free::Number(n)) => n,
            _ => operand(a.value),
        };
        let words: Vec<Operand> = row.iter().map(word).collect();
        let mut new = Vec::new();
        let value = if words.iter().all(|w| *w == zero) {
            zero
        } else {
            let all = func.add_value(RegFile::R, row.len() as u8);
            let operands = std::iter::once(operand(all)).chain(words).collect();
            let collect = Op::Macro(Macro::Collect);
            new.push(func.insts.push(InstData {
                guard: ALWAYS,
                op: collect,
                mods: Mods::none(),
                operands,
                kept: thin_vec![],
                loc,
            }));
            operand(all)
        };
        let address = Operand::Addr {
            desc: None,
            base: kind.1,
            width: AddrWidth::R32,
            uniform: None,
            offset: row[0].offset,
        };
        let mods = Mods::of(&[if row.len() == 4 { Mod::_128 } else { Mod::_64 }]);
        let operands = thin_vec![address, value];
        new.push(func.insts.push(InstData { guard: ALWAYS, op, mods, operands, kept: thin_vec![], loc }));
        gone.extend(row.iter().map(|a| a.inst));
        last.insert(end.inst, new);
    }
    put_in_place(func, b, last, &gone);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function after the pass; v1 is a multiple of 16, v0 of nothing, v2 to v5 are computed.
    fn after(body: &str) -> String {
        let made: String =
            (2..6).map(|k| format!("    v{k}:R = IADD3 PT, PT, v0, {k:#x}, RZ, !PT, !PT\n")).collect();
        let text = format!(
            "function k sm_90 entry local=64 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = S2R SR_TID.X\n    \
             v1:R = SHF.L.U32 v0, 0x4, RZ\n    v6:R = copy RZ\n    v7:R = copy 0x7\n{made}{body}    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        _ = run(&mut f, &Analyses::default());
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    fn stores(op: &str, base: &str, what: &[(i32, u32)]) -> String {
        what.iter().map(|(at, v)| format!("    {op} [{base}+{at:#x}], v{v}\n")).collect()
    }

    #[test]
    fn neighbours_are_stored_together() {
        let four = after(&stores("STS", "v1", &[(0x1c, 5), (0x10, 2), (0x14, 3), (0x18, 7)]));
        assert!(four.contains("= collect v2, v3, 0x7, v5\n    STS.128 [v1+0x10], v8"), "{four}");
        assert_eq!(four.matches("STS").count(), 1, "{four}");
        let two = after(&stores("STS", "v1", &[(0x14, 2), (0x18, 3), (0x1c, 4), (0x20, 5)]));
        assert!(two.contains("STS.64 [v1+0x18]") && two.matches("STS").count() == 3, "{two}");
        let zeros = after(&stores("STS", "v1", &[(0, 6), (4, 6), (8, 6), (12, 6)]));
        assert!(zeros.contains("STS.128 [v1], RZ"), "{zeros}");
        // Two words of the frame at a time, which is aligned for that.
        let local = after(&stores("STL", "R1", &[(0, 2), (4, 3), (8, 7), (12, 6)]));
        assert!(local.contains("STL.64 [R1], ") && local.contains("STL.64 [R1+0x8], "), "{local}");
        assert!(local.contains("align=8"), "{local}");
    }

    #[test]
    fn what_may_see_the_difference_keeps_stores_apart() {
        let pair = |between: &str| {
            let [one, other] = [(0, 2), (4, 3)].map(|s| stores("STS", "v1", &[s]));
            after(&format!("{one}{between}{other}"))
        };
        assert!(pair("").contains("STS.64"));
        // Other places of the same base, and other spaces.
        assert!(pair("    STS [v1+0x20], v4\n").contains("STS.64"));
        assert!(pair("    STL [R1], v4\n").contains("STS.64"));
        // The later store of a place counts.
        let again = pair("    STS [v1+0x0], v4\n");
        assert!(again.contains("STS [v1], v2") && again.contains("= collect v4, v3"), "{again}");
        for between in [
            "    STS [v0], v4\n",
            "    v9:R = LDS [v0]\n",
            "    MEMBAR.SC.GPU\n",
            "    BAR.SYNC.DEFER_BLOCKING 0x0, 0x0, PT\n",
            "    @PT STS.U8 [v1+0x1], v4\n",
        ] {
            assert!(!pair(between).contains("STS.64"), "{between}");
        }
        // What is a multiple of nothing, and a value that has another place.
        assert!(!after(&stores("STS", "v0", &[(0, 2), (4, 3)])).contains("STS.64"));
        let taken = "    v9:R2 = collect v2, v4\n    STS.64 [v0], v9\n".to_owned();
        assert!(!after(&(taken + &stores("STS", "v1", &[(0, 2), (4, 3)]))).contains("STS.64 [v1]"));
    }
}
