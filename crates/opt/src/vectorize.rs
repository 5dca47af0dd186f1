//! Loads of neighbouring words of shared memory become one load of two or four words, and those of constants with an index one of two,
//! where the address is known to be a multiple of that, as ptxas has it. Stores: [`crate::vectorize_stores`].

use crate::Pass;
use ori::{Analyses, Block, Changed, Function, Inst, InstData, Macro, Name, Op, Operand, Value, operand};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::memory::{MemoryEffect, MemoryEffects, MemorySpace};
use sass::ops::{Ldc, Lds};
use sass::{AddrWidth, ConstBank, Effect, Mod, Mods, Opcode, RegOp};
use smallvec::SmallVec;
use thin_vec::thin_vec;

/// Loads of one block further apart than this stay what they are: their results would be in registers for long.
const DISTANCE: usize = 96;

/// The pass, for the table.
pub const PASS: Pass = Pass::analysed(
    2,
    "vectorize",
    "LateVectorization",
    "loads of neighbouring words of shared memory as one of two or four words, of constants of two",
    run,
);

/// The pass.
pub fn run(func: &mut Function, analyses: &Analyses) -> Changed {
    let loads = |d: &InstData| matches!(d.op, Op::Sass(Opcode::LDS | Opcode::LDC));
    let mut insts = func.layout.iter().flat_map(|b| &func.blocks[*b].insts);
    if !insts.any(|i| loads(&func.insts[*i])) {
        return Changed::Nothing;
    }
    let known = analyses.known_bits(func);
    // What a base is a multiple of, at most 16.
    let alignment = |base: Option<Name>| match base {
        Some(Name::Val(v)) => known.alignment(v).min(16),
        Some(Name::Part(..) | Name::Phys(_)) => 4,
        // The offset is the address.
        None => 16,
    };
    let mut changed = false;
    for b in func.layout.clone() {
        let groups = groups(func, b, &alignment);
        changed |= !groups.is_empty();
        apply(func, b, &groups);
    }
    Changed::instructions(changed)
}

/// An access of memory that may become a part of a larger one.
pub(crate) struct Access {
    /// Its place in the block.
    pub at: usize,
    pub inst: Inst,
    /// What is loaded or stored.
    pub value: Value,
    /// First byte.
    pub offset: i32,
    /// Number of words.
    pub words: u8,
}

/// What loads that become one have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// LDS from an address that a register says if there is one; `u`: LDS.U, as they are on sm_75.
    Shared { base: Option<Name>, u: bool },
    /// LDC from a bank with an index.
    Constant { bank: u8, index: Name },
}

impl Kind {
    fn base(self) -> Option<Name> {
        match self {
            Kind::Shared { base, .. } => base,
            Kind::Constant { index, .. } => Some(index),
        }
    }

    /// The most words of one load.
    fn most(self) -> u8 {
        match self {
            Kind::Shared { .. } => 4,
            Kind::Constant { .. } => 2,
        }
    }

    fn mods(self, words: u8) -> &'static [Mod] {
        match (self, words) {
            (Kind::Shared { u: false, .. }, 4) => &[Mod::_128],
            (Kind::Shared { u: true, .. }, 4) => &[Mod::U, Mod::_128],
            (Kind::Shared { u: true, .. }, _) => &[Mod::U, Mod::_64],
            _ => &[Mod::_64],
        }
    }

    fn address(self, offset: i32) -> Operand {
        match self {
            Kind::Shared { base, .. } => {
                Operand::Addr { desc: None, base, width: AddrWidth::R32, uniform: None, offset }
            }
            Kind::Constant { bank, index } => Operand::Const {
                bank: ConstBank::Index(bank),
                index: Some(index),
                offset,
                neg: false,
                abs: false,
                not: false,
            },
        }
    }
}

/// Loads that become one, by their places in memory.
struct Group {
    kind: Kind,
    loads: Row,
}

/// Accesses that become one, in the order of their places in memory.
pub(crate) type Row = SmallVec<[Access; 4]>;

fn load(func: &Function, at: usize, inst: Inst) -> Option<(Kind, Access)> {
    let d = &func.insts[inst];
    let (words, u) = match d.mods.0[..] {
        [] => (1, false),
        [Mod::U] => (1, true),
        [Mod::_64] => (2, false),
        [Mod::U, Mod::_64] => (2, true),
        _ => return None,
    };
    if !d.is_unguarded() {
        return None;
    }
    let (kind, to, offset) = match (Lds::of(d), Ldc::of(d)) {
        (
            Some(Lds {
                d,
                address: Operand::Addr { desc: None, base, width: AddrWidth::R32, uniform: None, offset },
            }),
            _,
        ) => (Kind::Shared { base: *base, u }, d, *offset),
        (
            _,
            Some(Ldc {
                d,
                address: Operand::Const { bank: ConstBank::Index(bank), index: Some(index), offset, .. },
            }),
        ) => (Kind::Constant { bank: *bank, index: *index }, d, *offset),
        _ => return None,
    };
    let Operand::Reg(RegOp { reg: Name::Val(value), .. }) = *to else { return None };
    Some((kind, Access { at, inst, value, offset, words }))
}

/// Whether loads of a space behind it may see something else than those before.
pub(crate) fn separates(d: &InstData, space: MemorySpace) -> bool {
    let Op::Sass(op) = d.op else { return matches!(d.op, Op::Macro(m) if !m.is_copy() && m != Macro::Undef) };
    if op == Opcode::WARPSYNC {
        // What `bar.warp.sync` says of memory is an instruction of its own.
        return false;
    }
    let info = op.info();
    match info.effect {
        Effect::Pure => false,
        Effect::Memory => match info.accesses {
            MemoryEffects::Accesses(all) => {
                d.mods.has(Mod::STRONG)
                    || all.iter().any(|a| a.effect != MemoryEffect::Read && a.space.overlaps(space))
            }
            MemoryEffects::ReadOnly => false,
            MemoryEffects::None | MemoryEffects::Fence => true,
        },
        Effect::State | Effect::Order | Effect::Sync(_) | Effect::Control(_) => true,
    }
}

/// The groups of a block.
fn groups(func: &Function, b: Block, alignment: &impl Fn(Option<Name>) -> u32) -> Vec<Group> {
    let mut found = Vec::new();
    let mut open: FxHashMap<Kind, Vec<Access>> = FxHashMap::default();
    let mut order: Vec<Kind> = Vec::new();
    let mut close = |open: &mut FxHashMap<Kind, Vec<Access>>, kinds: &mut dyn Iterator<Item = Kind>| {
        for kind in kinds {
            let most = 4 * u32::from(kind.most());
            let rows = rows(open.remove(&kind).unwrap_or_default(), alignment(kind.base()).min(most));
            found.extend(rows.into_iter().map(|loads| Group { kind, loads }));
        }
    };
    for (at, &i) in func.blocks[b].insts.iter().enumerate() {
        if let Some((kind, l)) = load(func, at, i) {
            let list = open.entry(kind).or_default();
            if list.is_empty() {
                order.push(kind);
            }
            list.push(l);
        } else if separates(&func.insts[i], MemorySpace::Shared) {
            // Nothing changes constants.
            close(&mut open, &mut order.extract_if(.., |k| matches!(k, Kind::Shared { .. })));
        }
    }
    close(&mut open, &mut order.into_iter());
    found
}

/// Puts accesses at one base together that is a multiple of `alignment`, four words first.
pub(crate) fn rows(mut loads: Vec<Access>, alignment: u32) -> Vec<Row> {
    let mut out = Vec::new();
    loads.sort_by_key(|l| (l.offset, l.at));
    // The second load of a place is a copy of the first for others to find.
    loads.dedup_by_key(|l| l.offset);
    for words in [4u8, 2] {
        let bytes = 4 * u32::from(words);
        if alignment < bytes {
            continue;
        }
        let mut rest: Vec<Access> = Vec::new();
        let mut row = Row::new();
        let covered = |row: &[Access]| row.iter().map(|l| l.words).sum::<u8>();
        for l in loads {
            let next = row.first().map(|f| f.offset + 4 * i32::from(covered(&row)));
            let near = |row: &[Access]| row.iter().all(|o| o.at.abs_diff(l.at) <= DISTANCE);
            let starts = l.offset.rem_euclid(bytes as i32) == 0;
            if next != Some(l.offset) || covered(&row) + l.words > words || !near(&row) {
                rest.extend(std::mem::take(&mut row));
                if !starts {
                    rest.push(l);
                    continue;
                }
            }
            row.push(l);
            if covered(&row) == words {
                let row = std::mem::take(&mut row);
                if row.len() > 1 {
                    out.push(row);
                } else {
                    rest.extend(row);
                }
            }
        }
        rest.extend(row);
        rest.sort_by_key(|l| (l.offset, l.at));
        loads = rest;
    }
    out
}

/// Puts one load where the first of each group is, and takes the results from it.
fn apply(func: &mut Function, b: Block, groups: &[Group]) {
    if groups.is_empty() {
        return;
    }
    let mut first: FxHashMap<Inst, Vec<Inst>> = FxHashMap::default();
    let mut gone: FxHashSet<Inst> = FxHashSet::default();
    for g in groups {
        let Some(head) = g.loads.iter().min_by_key(|l| l.at) else { continue };
        let words: u8 = g.loads.iter().map(|l| l.words).sum();
        let d = func.insts[head.inst].clone();
        let file = func.values[head.value].file;
        let all = func.add_value(file, words);
        let offset = g.loads[0].offset;
        let operands = thin_vec![operand(all), g.kind.address(offset)];
        let load = InstData { mods: Mods::of(g.kind.mods(words)), operands, ..d.clone() };
        let mut new = vec![func.insts.push(load)];
        let mut at = 0;
        for l in &g.loads {
            let parts = (at..at + l.words).map(|k| operand(Name::Part(all, k)));
            let op = if l.words == 1 { Macro::Copy } else { Macro::Collect };
            let operands = std::iter::once(operand(l.value)).chain(parts).collect();
            let copy =
                InstData { op: Op::Macro(op), mods: Mods::none(), operands, ..func.insts[l.inst].clone() };
            new.push(func.insts.push(copy));
            gone.insert(l.inst);
            at += l.words;
        }
        first.insert(head.inst, new);
    }
    put_in_place(func, b, first, &gone);
}

/// Puts instructions of a block in the places of others, and takes away those that are `gone`.
pub(crate) fn put_in_place(
    func: &mut Function,
    b: Block,
    mut new: FxHashMap<Inst, Vec<Inst>>,
    gone: &FxHashSet<Inst>,
) {
    for i in std::mem::take(&mut func.blocks[b].insts) {
        if let Some(new) = new.remove(&i) {
            func.blocks[b].insts.extend(new);
        } else if !gone.contains(&i) {
            func.blocks[b].insts.push(i);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function after the pass; v1 is a multiple of 16, v0 of nothing.
    fn after(body: &str) -> String {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = S2R SR_TID.X\n    \
             v1:R = SHF.L.U32 v0, 0x4, RZ\n{body}    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        _ = run(&mut f, &Analyses::default());
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn neighbours_are_loaded_together() {
        let use_all = "    STS [v0], v2\n    STS [v0], v3\n    STS [v0], v4\n    STS [v0], v5\n";
        let loads = |base: &str, offsets: [i32; 4]| -> String {
            let line = |k: usize| format!("    v{}:R = LDS [{base}+{:#x}]\n", k + 2, offsets[k]);
            (0..4).map(line).collect::<String>() + use_all
        };
        let four = after(&loads("v1", [0x20, 0x2c, 0x24, 0x28]));
        assert!(four.contains("LDS.128 [v1+0x20]") && four.matches("LDS").count() == 1, "{four}");
        let two = after(&loads("v1", [0x24, 0x28, 0x2c, 0x30]));
        assert!(two.contains("LDS.64 [v1+0x28]") && two.matches("LDS").count() == 3, "{two}");
        assert_eq!(after(&loads("v0", [0, 4, 8, 12])).matches("LDS [").count(), 4);
        // Not past a store.
        let past = "    v2:R = LDS [v1+0x0]\n    STS [v0], v2\n    v3:R = LDS [v1+0x4]\n    STS [v0], v3\n";
        assert_eq!(after(past).matches("LDS [").count(), 2);
        // On sm_75.
        let u = after(&loads("v1", [0x10, 0x14, 0x18, 0x1c]).replace("LDS [", "LDS.U ["));
        assert!(u.contains("LDS.U.128 [v1+0x10]"), "{u}");
        // Without a register.
        let fixed =
            "    v2:R = LDS [0x10]\n    v3:R = LDS [0x14]\n    v4:R = LDS [0x18]\n    v5:R = LDS [0x1c]\n"
                .to_owned()
                + use_all;
        assert!(after(&fixed).contains("LDS.128 [0x10]"), "{}", after(&fixed));
        let between = fixed.replace("0x1c", "0x20").replace("0x10", "0xc");
        assert!(
            after(&between).contains("LDS [0xc]") && after(&between).matches("LDS").count() == 4,
            "{}",
            after(&between)
        );
        // A pair and two words.
        let mixed = "    v2:R2 = LDS.64 [v1+0x10]\n    v3:R = LDS [v1+0x18]\n    v4:R = LDS [v1+0x1c]\n    STS.64 [v1], v2\n    \
                     STS [v0], v3\n    STS [v0], v4\n";
        assert!(after(mixed).contains("LDS.128 [v1+0x10]"), "{}", after(mixed));
    }

    #[test]
    fn neighbouring_constants_are_loaded_together() {
        let loads = |index: &str, first: i32| -> String {
            let line = |k: i32| format!("    v{}:R = LDC c[0x3][{index}+{:#x}]\n", k + 2, first + 4 * k);
            (0..4).map(line).collect::<String>()
                + "    STS [v0], v2\n    STS [v0], v3\n    STS [v0], v4\n    STS [v0], v5\n"
        };
        // Two words at most, and stores are not in the way.
        let two = after(&loads("v1", 0x10).replacen("    v3", "    STS [v0], v2\n    v3", 1));
        assert!(two.contains("LDC.64 c[0x3][v1+0x10]") && two.contains("LDC.64 c[0x3][v1+0x18]"), "{two}");
        let between = after(&loads("v1", 0xc));
        assert!(between.contains("LDC.64 c[0x3][v1+0x10]"), "{between}");
        assert_eq!(between.matches("LDC c").count(), 2, "{between}");
        assert_eq!(after(&loads("v0", 0)).matches("LDC c").count(), 4);
    }
}
