//! Allocations that are corrupted at random: what a walk along them shows to be wrong, the checker has to refuse.

mod programs;

use backend::regalloc::{Limits, allocate, checker, prepared};
use cranelift_entity::EntityRef;
use ori::{
    Allocated, Block, BlockCall, Function, Guard, Inst, InstData, Macro, Name, Op, Operand, Register, Value,
};
use programs::{Rng, program, program_with, tight};
use sass::{AddrWidth, ConstBank, Opcode, Reg, RegFile, Role};
use std::collections::HashMap;

/// What registers and slots hold along one way through a program and its allocation, both executed. A word of a value is nothing where
/// anything will do.
struct Walk<'f> {
    before: &'f Function,
    after: &'f Allocated,
    rng: Rng,
    values: HashMap<Value, Vec<Option<u32>>>,
    registers: HashMap<Reg, u32>,
    slots: HashMap<i32, u32>,
}

/// That an instruction or a branch reads something else.
#[derive(Debug, PartialEq, Eq)]
struct Wrong;

fn is_predicate(file: RegFile) -> bool {
    matches!(file, RegFile::P | RegFile::UP)
}

/// What an operand reads besides constants: names, and how many registers.
fn names<R: Register>(o: &Operand<R>, width: u8) -> Vec<(R, u8)> {
    match o {
        Operand::Reg(r) => vec![(r.reg, width)],
        Operand::Addr { desc, base, uniform, width, .. } => {
            let wide = if *width == AddrWidth::R64 { 2 } else { 1 };
            let all = [(desc, 2), (base, wide), (uniform, 1)];
            all.into_iter().filter_map(|(r, w)| Some(((*r)?, w))).collect()
        }
        Operand::Const { index: Some(r), .. } => vec![(*r, 1)],
        _ => Vec::new(),
    }
}

/// What stands in a bank of constants.
fn bank(number: u8, offset: i32) -> u32 {
    Rng::new((u64::from(number) << 32 | u64::from(offset as u32)) ^ 0x5bd1).number() as u32
}

impl Walk<'_> {
    /// What a register holds, which is something even before it is written.
    fn register(&self, r: Reg) -> u32 {
        let unwritten = || Rng::new(u64::from(r.index) << 8 | r.file as u64).number() as u32;
        match r {
            r if r.is_zero() => u32::from(is_predicate(r.file)),
            r => self.registers.get(&r).copied().unwrap_or_else(unwritten) & self.mask(r.file),
        }
    }

    fn mask(&self, file: RegFile) -> u32 {
        if is_predicate(file) { 1 } else { u32::MAX }
    }

    fn set(&mut self, r: Reg, x: u32) {
        let x = x & self.mask(r.file);
        if !r.is_zero() {
            self.registers.insert(r, x);
        }
    }

    fn value(&self, name: Name) -> Vec<Option<u32>> {
        match name {
            Name::Phys(r) => vec![Some(self.register(r))],
            Name::Val(v) => self.values[&v].clone(),
            Name::Part(v, k) => vec![self.values[&v][usize::from(k)]],
        }
    }

    /// Whether what the allocation reads is what the program does.
    fn same(&self, name: Name, got: Reg) -> Result<(), Wrong> {
        if let Name::Phys(r) = name {
            return if r == got { Ok(()) } else { Err(Wrong) };
        }
        for (k, want) in self.value(name).into_iter().enumerate() {
            let r = if got.is_zero() { got } else { Reg { index: got.index.wrapping_add(k as u8), ..got } };
            if want.is_some_and(|want| want != self.register(r)) {
                return Err(Wrong);
            }
        }
        Ok(())
    }

    /// Whether an instruction is executed here; by chance where its guard may be anything.
    fn holds(&mut self, guard: Guard<Name>) -> bool {
        match self.value(guard.pred)[0] {
            Some(x) => (x != 0) != guard.not,
            None => self.rng.chance(50),
        }
    }

    /// The words of a macro's source, as the file of its result has them.
    fn source(&self, o: &Operand, to: RegFile) -> Vec<Option<u32>> {
        match o {
            Operand::Reg(r) => {
                let words = self.value(r.reg);
                let general = !is_predicate(to);
                let word = |x: u32| if general { x } else { u32::from(x != 0) };
                words.into_iter().map(|x| x.map(word)).collect()
            }
            Operand::Imm(n) => vec![Some(*n)],
            Operand::Const { bank: ConstBank::Index(b), offset, .. } => vec![Some(bank(*b, *offset))],
            o => panic!("a source that is not known: {o:?}"),
        }
    }

    /// What an instruction of the program makes.
    fn result(&mut self, d: &InstData, v: Value) -> Vec<Option<u32>> {
        let (file, width) = (self.before.values[v].file, self.before.values[v].width);
        match d.op {
            Op::Macro(Macro::Undef) => vec![None; usize::from(width)],
            Op::Macro(Macro::Copy | Macro::Collect) => {
                d.operands[1..].iter().flat_map(|o| self.source(o, file)).collect()
            }
            // As the allocator may make constants again, wherever it wants them.
            Op::Sass(Opcode::ULDC) if d.is_unguarded() => match &d.operands[1] {
                Operand::Const { bank: ConstBank::Index(b), offset, .. } => {
                    (0..i32::from(width)).map(|k| Some(bank(*b, offset + 4 * k))).collect()
                }
                o => panic!("a source that is not known: {o:?}"),
            },
            _ => (0..width).map(|_| Some(self.rng.number() as u32 & self.mask(file))).collect(),
        }
    }

    /// An instruction of the program that the allocation may have, too.
    fn step(&mut self, i: Inst, survives: bool) -> Result<(), Wrong> {
        let (before, after) = (self.before, self.after);
        let (old, new) = (&before.insts[i], &after.insts[i]);
        if survives {
            self.same(old.guard.pred, new.guard.pred)?;
            for (k, (o, n)) in old.operands.iter().zip(&new.operands).enumerate() {
                let slot = old.slot(k, &before.values);
                if slot.role != Role::Def {
                    let pairs = names(o, slot.width).into_iter().zip(names(n, slot.width));
                    pairs.into_iter().try_for_each(|((o, _), (n, _))| self.same(o, n))?;
                }
            }
        }
        let executed = self.holds(old.guard);
        let written = old.operands.iter().enumerate();
        let written = written.filter(|(k, _)| old.slot(*k, &before.values).role != Role::Use);
        let mut results = Vec::new();
        for (n, (k, o)) in written.enumerate() {
            let Operand::Reg(o) = o else { continue };
            let Name::Val(v) = o.reg else { continue };
            let made = self.result(old, v);
            let kept = old.kept.get(n).copied();
            let to = new.operands.get(k).and_then(Operand::as_reg).map(|r| r.reg).filter(|_| survives);
            if let Some((kept, to)) = kept.zip(to) {
                self.same(kept, to)?;
            }
            let words = match kept {
                Some(kept) if !executed => self.value(kept),
                _ => made,
            };
            results.push((v, to, words));
        }
        for (v, to, words) in results {
            for (k, x) in words.iter().enumerate() {
                // What may be anything is something in a register.
                let x = x.unwrap_or(self.rng.number() as u32);
                if let Some(to) = to.filter(|_| executed) {
                    self.set(Reg { index: to.index.wrapping_add(k as u8), ..to }, x);
                }
            }
            self.values.insert(v, words);
        }
        Ok(())
    }

    /// An instruction that the allocator added.
    fn added(&mut self, i: Inst) {
        let d = &self.after.insts[i];
        let Op::Sass(op) = d.op else { panic!("a macro was added: {d:?}") };
        let register = |k: usize| d.operands[k].as_reg().map(|r| r.reg);
        let nth = |r: Reg, k: u8| if r.is_zero() { r } else { Reg { index: r.index.wrapping_add(k), ..r } };
        let slot = |k: usize| match d.operands[k] {
            Operand::Addr { offset, .. } => offset,
            ref o => panic!("no slot: {o:?}"),
        };
        let read = |walk: &Self, k: usize| {
            let r = d.operands[k].as_reg().expect("a register");
            let x = walk.register(r.reg);
            if r.not { x ^ 1 } else { x }
        };
        match op {
            Opcode::STL => {
                for k in 0..op.width(1, &d.mods) {
                    let x = self.register(nth(register(1).expect("a register"), k));
                    self.slots.insert(slot(0) + 4 * i32::from(k), x);
                }
            }
            Opcode::LDL => {
                for k in 0..op.width(0, &d.mods) {
                    let at = slot(1) + 4 * i32::from(k);
                    let unwritten = || Rng::new(at as u64 ^ 0x77).number() as u32;
                    let x = self.slots.get(&at).copied().unwrap_or_else(unwritten);
                    self.set(nth(register(0).expect("a register"), k), x);
                }
            }
            Opcode::MOV | Opcode::UMOV | Opcode::R2UR | Opcode::LDC | Opcode::LDCU | Opcode::ULDC => {
                let from: Vec<u32> = (0..op.width(0, &d.mods))
                    .map(|k| match &d.operands[1] {
                        Operand::Reg(r) => self.register(nth(r.reg, k)),
                        Operand::Imm(n) => {
                            if k == 0 {
                                *n
                            } else {
                                0
                            }
                        }
                        Operand::Const { bank: ConstBank::Index(b), offset, .. } => {
                            bank(*b, offset + 4 * i32::from(k))
                        }
                        o => panic!("a source that is not known: {o:?}"),
                    })
                    .collect();
                for (k, x) in from.into_iter().enumerate() {
                    self.set(nth(register(0).expect("a register"), k as u8), x);
                }
            }
            // SEL r, RZ, 1, !p
            Opcode::SEL => {
                let x = read(self, 3);
                self.set(register(0).expect("a register"), 1 - x);
            }
            Opcode::ISETP => {
                let x = read(self, 2);
                self.set(register(0).expect("a register"), u32::from(x != 0));
            }
            Opcode::VOTEU => {
                let x = read(self, 2);
                self.set(register(1).expect("a register"), x);
            }
            Opcode::LOP3 | Opcode::ULOP3 | Opcode::PLOP3 | Opcode::UPLOP3 => {
                let s = d.operands.iter().position(|o| matches!(o, Operand::Imm(_))).expect("a table");
                let sources: Vec<usize> =
                    (0..d.operands.len()).filter(|k| !d.is_def(*k) && *k != s).collect();
                let Operand::Imm(table) = d.operands[s] else { panic!("no table") };
                let [a, b, c] = [0, 1, 2].map(|k| read(self, sources[k]));
                let x = (0..8).fold(0, |x, n| {
                    let term = |on: u32, x: u32| if n >> on & 1 != 0 { x } else { !x };
                    if table >> n & 1 != 0 { x | term(2, a) & term(1, b) & term(0, c) } else { x }
                });
                self.set(register(0).expect("a register"), x);
            }
            op => panic!("{op:?} was added"),
        }
    }

    fn block(&mut self, b: Block) -> Result<(), Wrong> {
        let (before, after) = (self.before, self.after);
        let mut old = before.blocks[b].insts.iter().copied().peekable();
        let new = &after.blocks[b].insts;
        for &i in new {
            while let Some(gone) = old.next_if(|o| !new.contains(o)) {
                self.step(gone, false)?;
            }
            if i.index() >= before.insts.len() {
                self.added(i);
            } else {
                assert_eq!(old.next(), Some(i));
                self.step(i, true)?;
            }
        }
        old.try_for_each(|gone| self.step(gone, false))?;
        match (before.blocks[b].term.used_name(), after.blocks[b].term.used_name()) {
            (Some(want), Some(got)) => self.same(want, got),
            _ => Ok(()),
        }
    }

    /// Goes to another block with what it is given.
    fn enter(&mut self, call: &BlockCall) {
        let given: Vec<Vec<Option<u32>>> = call.args.iter().map(|a| self.values[a].clone()).collect();
        let params = self.before.blocks[call.block].params.iter().copied();
        self.values.extend(params.zip(given));
    }

    fn run(&mut self, blocks: usize) -> Result<(), Wrong> {
        let mut b = self.before.entry_block();
        for _ in 0..blocks {
            self.block(b)?;
            let targets = self.before.blocks[b].term.targets();
            let Some(call) = targets.get(self.rng.below(targets.len())) else { return Ok(()) };
            let call = BlockCall { block: call.block, args: call.args.clone() };
            self.enter(&call);
            b = call.block;
        }
        Ok(())
    }
}

/// Whether some walk shows that an allocation is wrong.
fn is_wrong(before: &Function, after: &Allocated, walks: u64) -> bool {
    (0..walks).any(|seed| {
        let (values, registers, slots) = Default::default();
        let mut walk = Walk { before, after, rng: Rng::new(seed), values, registers, slots };
        walk.run(60).is_err()
    })
}

/// Corrupts an allocation in one place; nothing where there is nothing of the kind.
fn corrupted(before: &Function, after: &Allocated, rng: &mut Rng) -> Option<Allocated> {
    let mut wrong = after.clone();
    let b = before.layout[rng.below(before.layout.len())];
    let insts = &after.blocks[b].insts;
    let added: Vec<usize> = (0..insts.len()).filter(|k| insts[*k].index() >= before.insts.len()).collect();
    let of = |op: &[Opcode]| -> Vec<Inst> {
        let all = added.iter().map(|k| insts[*k]);
        all.filter(|i| after.insts[*i].opcode().is_some_and(|o| op.contains(&o))).collect()
    };
    match rng.below(6) {
        // A copy, store or reload is not there.
        0 => {
            wrong.blocks[b].insts.remove(*added.get(rng.below(added.len()))?);
        }
        // Two registers of one file are exchanged, from some instruction on.
        1 | 2 => {
            let from = rng.below(insts.len());
            let to = if rng.chance(50) { from + 1 } else { insts.len() };
            let file = [RegFile::R, RegFile::R, RegFile::P, RegFile::UR][rng.below(4)];
            let most = if file == RegFile::P { 4 } else { 20 };
            let [x, y] = [(); 2].map(|()| Reg { file, index: rng.below(most) as u8 });
            let swap = |r: Reg| match r {
                r if r == x => y,
                r if r == y => x,
                r => r,
            };
            if x == y || [x, y].contains(&Reg::SP) {
                return None;
            }
            for i in insts.get(from..to)? {
                wrong.insts[*i].map_uses(swap);
            }
        }
        // A slot is another.
        3 => {
            let all = of(&[Opcode::STL, Opcode::LDL]);
            let (i, j) = (*all.get(rng.below(all.len()))?, *all.get(rng.below(all.len()))?);
            let offset = after.insts[j].operands.iter().find_map(|o| match o {
                Operand::Addr { offset, .. } => Some(*offset),
                _ => None,
            })?;
            wrong.insts[i].operands.iter_mut().for_each(|o| {
                if let Operand::Addr { offset: at, .. } = o {
                    *at = offset;
                }
            });
        }
        // An instruction reads the neighbours of its registers.
        4 => {
            let i = *insts.get(rng.below(insts.len()))?;
            wrong.insts[i].map_uses(|r| match r.file {
                RegFile::R if !r.is_zero() && r != Reg::SP => Reg { index: r.index ^ 4, ..r },
                _ => r,
            });
        }
        // Two instructions that were added change places.
        _ => {
            let (k, l) = (*added.get(rng.below(added.len()))?, *added.get(rng.below(added.len()))?);
            wrong.blocks[b].insts.swap(k, l);
        }
    }
    let same = wrong.blocks[b].insts == *insts && insts.iter().all(|i| wrong.insts[*i] == after.insts[*i]);
    (!same).then_some(wrong)
}

/// Programs with their allocations and limits.
fn allocations() -> impl Iterator<Item = (Function, Allocated, Limits)> {
    (0..80).map(|seed| {
        let (func, limits) = match seed % 4 {
            0 => (program(seed, 6, 25, 50), tight()),
            1 => (program_with(seed, 10, 25, 50, 60, 0), Limits { preds: 4, regs_r: 22, ..tight() }),
            2 => (program_with(seed, 8, 25, 50, 50, 50), Limits { upreds: 4, regs_r: 22, ..tight() }),
            _ => {
                let func = program(seed, 4, 12, 50);
                let limits = Limits::of(&func);
                (func, limits)
            }
        };
        let done = allocate(func.clone(), &limits).unwrap_or_else(|e| panic!("{e}\n{func}")).func;
        (prepared(func).expect("it was allocated"), done, limits)
    })
}

/// Walks find nothing wrong with what the allocator makes.
#[test]
fn walks_agree_with_allocations() {
    for (func, done, _) in allocations() {
        assert!(!is_wrong(&func, &done, 30), "{func}\n{done}");
    }
}

#[test]
fn what_walks_show_is_refused() {
    let (mut wrong, mut refused, mut tried) = (0, 0, 0);
    for (n, (func, done, limits)) in allocations().enumerate() {
        let mut rng = Rng::new(n as u64 + 77);
        for _ in 0..40 {
            let Some(bad) = corrupted(&func, &done, &mut rng) else { continue };
            let answer = checker::check(&func, &bad, &limits);
            tried += 1;
            refused += usize::from(answer.is_err());
            if is_wrong(&func, &bad, 12) {
                wrong += 1;
                assert!(answer.is_err(), "{func}\n{bad}");
            }
        }
    }
    // Most of what is refused a few walks show, too.
    assert!(
        tried > 1000 && wrong * 10 > refused * 9,
        "{tried} tried, {refused} refused, {wrong} shown to be wrong"
    );
}
