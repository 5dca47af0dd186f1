//! Constants that many instructions read come by uniform registers from sm_90 on, where arithmetic no longer reads constant
//! memory itself: a load that only feeds operands which may be uniform registers becomes ULDC or LDCU, and what is computed of such
//! constants alone is computed on the uniform datapath.
//!
//! That is right wherever it stands, also where lanes have parted: it is the same for all threads of the block whenever they come
//! there, and the register of a value that lives from block to block holds nothing else in the function (register
//! allocation sees to that).

use crate::Pass;
use cranelift_entity::SecondaryMap;
use ori::{Function, Inst, InstData, Name, Op, Operand, Value};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::ops::{Ldc, LdcMods, S2r, Size64};
use sass::{
    ConstBank, Mod, Mods, Opcode, Reg, RegFile, RegOp, SlotKind, SmInfo, SourceKinds, SpecialReg, SwapChange,
};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// The most uniform registers that a function's constants take together; descriptors and addresses take others.
const MOST: usize = 40;

/// The pass, for the table.
pub const PASS: Pass = Pass::alone(
    2,
    "uniform-constants",
    "ConvertToUniformReg",
    "from sm_90 on constants that only feed arithmetic, and arithmetic on them, in uniform registers",
    run,
);

/// The pass.
pub fn run(func: &mut Function) -> bool {
    let takes_uniform = |d: &InstData| {
        d.op == Op::Macro(ori::Macro::Call) && !ori::abi::clobbered_by(func, d).of(RegFile::UR).is_empty()
    };
    // What is called has its own use for uniform registers.
    let mut insts = func.layout.iter().flat_map(|b| &func.blocks[*b].insts);
    if func.target.info().alu_const || !func.entry || insts.any(|i| takes_uniform(&func.insts[*i])) {
        return false;
    }
    let mut found = Found::new(func);
    found.refuse(func);
    let makers: Vec<Inst> = found.order.iter().copied().filter(|i| found.makes(&func.insts[*i])).collect();
    for &i in &makers {
        let Some(v) = result(&func.insts[i]) else { continue };
        func.values[v].file = RegFile::UR;
        let info = func.target.info();
        let d = &mut func.insts[i];
        if let Some(op) = twin(d, info) {
            d.op = Op::Sass(op);
            for o in &mut d.operands {
                if let Operand::Reg(r) = o
                    && let Name::Phys(zero) = &mut r.reg
                {
                    *zero = if *zero == Reg::RZ { Reg::URZ } else { Reg::UPT };
                }
            }
        }
    }
    unite(func, &makers);
    !makers.is_empty()
}

/// Has constants that lie side by side loaded at once, as ptxas has them: as many as one load of the target takes, where they lie at a
/// multiple of their size. `made`: what was made a load of a uniform register, read by operands of instructions alone.
fn unite(func: &mut Function, made: &[Inst]) {
    let most: u8 = if func.target.info().constant_load == Opcode::LDCU { 4 } else { 2 };
    let made: FxHashSet<Inst> = made.iter().copied().collect();
    let mut parts: FxHashMap<Value, Name> = FxHashMap::default();
    for b in func.layout.clone() {
        // The words of each bank, by where they lie: what loads them first.
        let mut words: BTreeMap<(u8, i32), (usize, Inst, Value)> = BTreeMap::new();
        for (at, &i) in func.blocks[b].insts.iter().enumerate().filter(|(_, i)| made.contains(i)) {
            if let Some((place, v)) = constant_word(func, &func.insts[i]) {
                words.entry(place).or_insert((at, i, v));
            }
        }
        let mut gone: FxHashSet<Inst> = FxHashSet::default();
        for count in [4u8, 2].into_iter().filter(|n| *n <= most) {
            let bytes = 4 * i32::from(count);
            let starts: Vec<(u8, i32)> = words.keys().copied().filter(|(_, at)| at % bytes == 0).collect();
            for (bank, start) in starts {
                let row: SmallVec<[(usize, Inst, Value); 4]> =
                    (0..count).map_while(|k| words.get(&(bank, start + 4 * i32::from(k))).copied()).collect();
                if row.len() < count.into() {
                    continue;
                }
                (0..count).for_each(|k| _ = words.remove(&(bank, start + 4 * i32::from(k))));
                let all = func.add_value(RegFile::UR, count);
                for (k, (_, _, v)) in (0..).zip(&row) {
                    parts.insert(*v, Name::Part(all, k));
                }
                // Where the first of them stands.
                let Some(&(_, first, _)) = row.iter().min() else { continue };
                gone.extend(row.iter().map(|w| w.1).filter(|i| *i != first));
                let from = func.insts[row[0].1].operands.clone();
                let d = &mut func.insts[first];
                d.operands = from;
                d.operands[0] = ori::operand(all);
                d.mods = Mods::of(&[if count == 4 { Mod::_128 } else { Mod::_64 }]);
            }
        }
        func.blocks[b].insts.retain(|i| !gone.contains(i));
    }
    if parts.is_empty() {
        return;
    }
    let name = |n: Name| n.value().and_then(|v| parts.get(&v)).copied().unwrap_or(n);
    for b in func.layout.clone() {
        for i in func.blocks[b].insts.clone() {
            func.insts[i].map_uses(name);
        }
    }
}

/// Where the word of constant memory lies that an instruction loads, bank and offset, and its value.
fn constant_word(func: &Function, d: &InstData) -> Option<((u8, i32), Value)> {
    let v = result(d).filter(|v| func.values[*v].width == 1)?;
    let load = d.op == Op::Sass(func.target.info().constant_load) && d.mods == Mods::none();
    match d.operands.as_slice() {
        [_, Operand::Const { bank: ConstBank::Index(bank), index: None, offset, .. }] if load => {
            Some(((*bank, *offset), v))
        }
        _ => None,
    }
}

/// What a value may be made by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A load of constants.
    Constant,
    /// A special register that is the same for the block.
    Special,
    /// Arithmetic on such values.
    Arithmetic,
}

/// Values that may be uniform registers.
struct Found {
    kind: SecondaryMap<Value, Option<Kind>>,
    /// The instructions that make them, those that they are made of before them.
    order: Vec<Inst>,
}

impl Found {
    /// Whether an instruction makes such a value.
    fn makes(&self, d: &InstData) -> bool {
        result(d).is_some_and(|v| self.kind[v].is_some())
    }

    /// All that could be, whoever reads it.
    fn new(func: &Function) -> Found {
        let mut found = Found { kind: SecondaryMap::new(), order: Vec::new() };
        let mut words = 0;
        for &b in &func.layout {
            for &i in &func.blocks[b].insts {
                let d = &func.insts[i];
                let Some(v) = result(d) else { continue };
                let width = usize::from(func.values[v].width);
                if words + width <= MOST {
                    found.kind[v] = found.kind_of(func, d);
                    if found.kind[v].is_some() {
                        words += width;
                        found.order.push(i);
                    }
                }
            }
        }
        found
    }

    /// How an instruction would make its result in a uniform register.
    fn kind_of(&self, func: &Function, d: &InstData) -> Option<Kind> {
        let Op::Sass(op) = d.op else { return None };
        if !d.is_unguarded() {
            return None;
        }
        if let Some(load) = Ldc::of(d) {
            let plain = matches!(
                load.address,
                Operand::Const {
                    bank: ConstBank::Index(_),
                    index: None,
                    neg: false,
                    abs: false,
                    not: false,
                    ..
                }
            );
            let size = matches!(LdcMods::of(d)?, LdcMods { size: None | Some(Size64::_64), mode: None });
            return (plain && size).then_some(Kind::Constant);
        }
        if let Some(S2r { register: Operand::Special(s), .. }) = S2r::of(d) {
            use SpecialReg as S;
            let same = [S::SR_CTAID_X, S::SR_CTAID_Y, S::SR_CTAID_Z, S::SR_CgaCtaId].contains(s);
            return same.then_some(Kind::Special);
        }
        match op {
            Opcode::IADD3 | Opcode::IMAD | Opcode::SHF | Opcode::LEA | Opcode::LOP3 => {
                // Neither carries nor upper halves of sums, nor shifts that wrap around: ptxas has no such on this datapath.
                let others: &[Mod] =
                    if op == Opcode::SHF { &[Mod::W] } else { &[Mod::X, Mod::WIDE, Mod::HI, Mod::SX32] };
                let plain = !others.iter().any(|m| d.mods.has(*m));
                (plain && self.sources_fit(func, op, d)).then_some(Kind::Arithmetic)
            }
            _ => None,
        }
    }

    /// Whether all sources are such values or nothing, but for one number, where the uniform opcode takes that.
    fn sources_fit(&self, func: &Function, op: Opcode, d: &InstData) -> bool {
        let Some(to) = twin(d, func.target.info()).map(Opcode::info) else { return false };
        let mut numbers = 0;
        let mut values = 0;
        for (k, o) in d.operands.iter().enumerate() {
            let slot = op.slots()[k].kind;
            let fits = match o {
                Operand::Reg(RegOp { reg: Name::Phys(r), .. }) => {
                    *r == Reg::RZ && slot == SlotKind::Source || *r == Reg::PT
                }
                // The result.
                Operand::Reg(_) if d.is_def(k) => result(d).is_some(),
                Operand::Reg(RegOp { reg: Name::Val(v) | Name::Part(v, _), .. }) => {
                    values += 1;
                    self.kind[*v].is_some()
                }
                Operand::Imm(_) if slot == SlotKind::Source => {
                    numbers += 1;
                    let at = k as u8;
                    to.sources.contains(&at)
                        || to.swap.contains(&at) && to.swap_changes == SwapChange::Nothing
                }
                Operand::Imm(_) => true,
                _ => false,
            };
            if !fits {
                return false;
            }
        }
        numbers <= 1 && values > 0
    }

    /// Drops values that something reads that takes no uniform register, and what is made of them.
    fn refuse(&mut self, func: &Function) {
        for &b in &func.layout {
            for &i in &func.blocks[b].insts {
                self.read_by(func, &func.insts[i]);
            }
            let term = &func.blocks[b].term;
            let passed = term.targets().into_iter().flat_map(|t| t.args.iter().copied());
            for v in term.used_name().and_then(Name::value).into_iter().chain(passed) {
                self.kind[v] = None;
            }
        }
        // What is dropped is read like anything else; what is made of it goes as well. Only makers can change their minds.
        let order = std::mem::take(&mut self.order);
        while order.iter().fold(false, |dropped, i| self.read_by(func, &func.insts[*i]) | dropped) {}
        self.order = order;
    }

    /// Drops what an instruction reads and cannot read from a uniform register; whether there was anything.
    fn read_by(&mut self, func: &Function, d: &InstData) -> bool {
        let mut dropped = false;
        let mut refuse = |n: Name| {
            if let Some(v) = n.value() {
                dropped |= self.kind[v].take().is_some();
            }
        };
        refuse(d.guard.pred);
        d.kept.iter().for_each(|n| refuse(*n));
        let own = result(d).filter(|v| self.kind[*v].is_some());
        let mut taken = false;
        for (k, o) in d.operands.iter().enumerate() {
            if d.is_def(k) {
                continue;
            }
            let value = match o {
                Operand::Reg(r) => r.reg.value(),
                _ => None,
            };
            let kind = value.and_then(|v| self.kind[v]);
            if let Some(own) = own {
                // One of its sources has gone.
                if value.is_some() && kind.is_none() {
                    dropped |= self.kind[own].take().is_some();
                }
            } else if kind.is_some_and(|k| k != Kind::Special) && !taken && takes(func, d, k) {
                taken = true;
            } else {
                ori::for_each_name(o, |n| {
                    if let Some(v) = n.value() {
                        dropped |= self.kind[v].take().is_some();
                    }
                });
            }
        }
        dropped
    }
}

/// The value that an instruction makes, if that is one general register or two, and nothing else.
fn result(d: &InstData) -> Option<Value> {
    let mut only = None;
    let mut others = false;
    d.for_each_def(|n| match n {
        Name::Val(v) => others |= only.replace(v).is_some(),
        Name::Part(..) => others = true,
        Name::Phys(r) => others |= !r.is_zero(),
    });
    only.filter(|_| !others && matches!(d.op, Op::Sass(_)))
}

/// The opcode that does the same on the uniform datapath.
fn twin(d: &InstData, info: &SmInfo) -> Option<Opcode> {
    let Op::Sass(op) = d.op else { return None };
    match op {
        Opcode::LDC => Some(info.constant_load),
        _ => op.info().twins.first().copied(),
    }
}

/// Whether operand `k` may be a uniform register: where it stands or where legalization moves it, next to sources that all are
/// general registers.
fn takes(func: &Function, d: &InstData, k: usize) -> bool {
    let Op::Sass(op) = d.op else { return false };
    let info = op.info();
    let source = |i: usize| op.slots()[i].kind == SlotKind::Source;
    let general = |o: &Operand| match o {
        Operand::Reg(r) => match r.reg {
            Name::Val(v) | Name::Part(v, _) => func.values[v].file == RegFile::R,
            Name::Phys(p) => p == Reg::RZ,
        },
        _ => false,
    };
    if info.uniform
        || !source(k)
        || matches!(info.source_kinds, SourceKinds::Immediate | SourceKinds::Immediates)
        || !d.operands.iter().enumerate().all(|(i, o)| i == k || !source(i) || general(o))
    {
        return false;
    }
    let may = |i: usize| info.sources.contains(&(i as u8));
    let swaps = |i: usize| info.swap.contains(&(i as u8));
    let alike = |to: usize| op.width(k, &d.mods) == op.width(to, &d.mods);
    let moves = info.swap_changes == SwapChange::Nothing
        && swaps(k)
        && (0..d.operands.len()).any(|to| source(to) && may(to) && swaps(to) && alike(to));
    may(k) || moves
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function after the pass.
    fn after(sm: u8, body: &str) -> String {
        let text = format!(
            "function k sm_{sm} entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:R = LDC c[0x0][0x210]\n    \
             v1:R2 = LDC.64 c[0x0][0x218]\n    v2:R = S2R SR_TID.X\n{body}    exit\n}}\n"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        run(&mut f);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    #[test]
    fn constants_that_only_feed_arithmetic_are_uniform() {
        let sum = "    v3:R = IADD3 PT, PT, v2, v0, RZ, !PT, !PT\n    STS [v3], v2\n";
        assert!(after(90, sum).contains("v0:UR = ULDC c"));
        assert!(after(120, sum).contains("v0:UR = LDCU c"));
        // There c[0x0][0x210] is an operand.
        assert!(after(80, sum).contains("v0:R = LDC c"));
        // What moves to where it may be uniform, and parts of a pair.
        let product =
            "    v3:R = IMAD PT, v0, v2, RZ, !PT\n    v4:R = IMAD PT, v3, v1.1, v3, !PT\n    STS [v4], v2\n";
        let got = after(90, product);
        assert!(got.contains("v0:UR = ULDC c") && got.contains("v1:UR2 = ULDC.64 c"), "{got}");
        // One of two.
        let two = after(90, "    v3:R = IADD3 PT, PT, v0, v1.0, RZ, !PT, !PT\n    STS [v3], v2\n");
        assert!(two.contains("v0:UR = ULDC c") && two.contains("v1:R2 = LDC.64 c"), "{two}");
        // What is computed of constants alone; not with two numbers, which no form takes.
        let shift = "    v3:R = SHF.R.S32.HI RZ, 0x1f, v0\n    v4:R = IADD3 PT, PT, v3, 0x7, v0, !PT, !PT\n";
        let got = after(90, &format!("{shift}    v5:R = IMAD PT, v2, v4, v2, !PT\n    STS [v5], v2\n"));
        assert!(got.contains("v3:UR = USHF.R.S32.HI URZ, 0x1f, v0"), "{got}");
        assert!(got.contains("v4:UR = UIADD3 UPT, UPT, v3, 0x7, v0, !UPT, !UPT"), "{got}");
        let stored = after(90, &format!("{shift}    STS [v2], v4\n"));
        assert!(stored.contains("v0:R = LDC") && stored.contains("v3:R = SHF"), "{stored}");
        // The number of the block's shared memory only on the way to an address.
        let base = "    v3:R = S2R SR_CgaCtaId\n    v4:R = LEA PT, v3, 0x400, RZ, 0x18, !PT\n    v5:R = IMAD PT, v2, 0x4, v4, !PT\n    STS [v5], v2\n";
        assert!(after(90, base).contains("v3:R = S2R"));
        // What is stored, an address, beside a number.
        for other in [
            "    STS [v2], v0\n",
            "    STS [v0], v2\n",
            "    v5:R = IADD3 PT, PT, v0, 0x5, v2, !PT, !PT\n    STS [v5], v2\n",
        ] {
            assert!(after(90, &format!("{sum}{other}")).contains("v0:R = LDC c"), "{other}");
        }
    }

    /// Words that lie side by side, at a multiple of what they take together.
    #[test]
    fn neighbours_are_loaded_at_once() {
        let body = |offsets: [u32; 4]| -> String {
            let load = |k: usize| format!("    v{}:R = LDC c[0x0][{:#x}]\n", k + 3, offsets[k]);
            let sum = |k: usize| {
                format!(
                    "    v{}:R = IMAD PT, v{}, v{}, v2, !PT\n",
                    k + 7,
                    if k == 0 { 2 } else { k + 6 },
                    k + 3
                )
            };
            (0..4).map(load).chain((0..4).map(sum)).collect::<String>() + "    STS [v10], v2\n"
        };
        let four = after(120, &body([0x3a8, 0x3a0, 0x3ac, 0x3a4]));
        assert!(four.contains("LDCU.128 c[0x0][0x3a0]") && four.matches("LDCU").count() == 3, "{four}");
        assert!(four.contains("v2, v11.2, v2") && four.contains("v7, v11.0, v2"), "{four}");
        let pairs = after(90, &body([0x3a8, 0x3a0, 0x3ac, 0x3a4]));
        assert!(pairs.matches("ULDC.64").count() == 3 && pairs.matches("ULDC").count() == 4, "{pairs}");
        let apart = after(120, &body([0x3a4, 0x3a8, 0x3b4, 0x3bc]));
        assert!(apart.matches("LDCU.64").count() == 1 && apart.matches("LDCU").count() == 6, "{apart}");
    }
}
