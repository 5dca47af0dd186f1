//! `wgmma`: products of a warp group, which go on while the code does.
//!
//! An accumulator is one value of as many registers as it has, from statement to statement and around loops: PTX registers
//! that are listed by `wgmma` in one order only are the parts of a variable of the SSA construction ([`Plan`]). What a product
//! makes may be read behind the wait for it alone, so a wait gives all accumulators that may be under way a new value
//! ([`ori::Macro::Settle`]), and holds the registers of A that may still be read. That nothing touches any of them earlier is
//! checked when registers are given out (`backend::groups`); if something does, the function is lowered again with a wait behind
//! each product.

use super::Elem;
use crate::emit::{Emit, as_imm, imm, not, pt, rz};
use crate::func::{Lower, Result};
use crate::graph::Graph;
use crate::ssa::Var;
use crate::statement::Statement;
use crate::types::Ty;
use cranelift_entity::EntityRef;
use ori::{ALWAYS, Block, Inst, Macro, Name, Operand, Value, ValueData, operand};
use ptx::{Mod as M, RegId, Stmt, VectorElem};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::{Mod, Opcode, Reg, RegFile};
use smallvec::SmallVec;

/// Nothing is under way.
const DONE: u8 = u8::MAX;
/// Groups behind which it does not count how many there were.
const MANY: u8 = 15;
/// No group of products is waited for by the operand that names one.
const NO_GROUP: u32 = 7;
/// Registers beside the accumulator and A's that a limit has to leave where there is a product (ptxas 13.0.88 refuses less, C7602).
const BESIDE_PRODUCT: u16 = 26;
/// Registers of A's words, where A is in registers.
const A_REGISTERS: u16 = 4;

/// An accumulator.
struct Tuple {
    registers: Vec<RegId>,
    /// The variable that it is, unless its registers stand elsewhere in another order.
    var: Option<Var>,
}

/// One product.
struct Product {
    tuple: usize,
    /// Variables for the registers that it reads besides: those of A, where it has some, and of what says where A is zero.
    rows: Option<Var>,
    metadata: Option<Var>,
}

impl Product {
    fn sources(&self) -> impl Iterator<Item = Var> {
        self.rows.into_iter().chain(self.metadata)
    }
}

/// What may be under way where a wait stands.
#[derive(Default)]
struct Waited {
    tuples: Vec<usize>,
    /// Accumulators that are of no use any more: their registers are not free before.
    unused: Vec<usize>,
    rows: Vec<Var>,
}

/// What is known of the products of a function before it is lowered.
#[derive(Default)]
pub(crate) struct Plan {
    tuples: Vec<Tuple>,
    /// Which part of which accumulator a register is.
    element: FxHashMap<Var, (usize, u8)>,
    /// By the place of the statement.
    products: FxHashMap<u32, Product>,
    waits: FxHashMap<u32, Waited>,
    /// Registers written since their accumulator was put together.
    written: FxHashSet<Var>,
    /// The last product that is in no group yet, and where.
    open: Option<(Block, Inst)>,
}

fn registers(o: Option<&ptx::Operand>) -> Option<Vec<RegId>> {
    let Some(ptx::Operand::Vector(v)) = o else { return None };
    v.iter().map(|e| if let VectorElem::Reg(r) = e { Some(*r) } else { None }).collect()
}

/// Calls `f` for every register of an operand.
fn named(o: &ptx::Operand, f: &mut impl FnMut(RegId)) {
    use ptx::Operand as O;
    match o {
        O::Reg(r) | O::NotPred(r) | O::NegReg(r) | O::Part { reg: r, .. } => f(*r),
        O::Vector(v) => v.iter().for_each(|e| {
            if let VectorElem::Reg(r) = e {
                f(*r);
            }
        }),
        O::Resident(v, p) => {
            f(*p);
            v.iter().for_each(|e| {
                if let VectorElem::Reg(r) = e {
                    f(*r);
                }
            });
        }
        O::Addr(a) => {
            if let ptx::AddrBase::Reg(r) = a.base {
                f(r);
            }
        }
        O::Bracket(list) | O::List(list) => list.iter().for_each(|o| named(o, f)),
        O::Pair(a, b) => [a, b].into_iter().flatten().for_each(|r| f(*r)),
        O::Int(_)
        | O::F64(_)
        | O::F32(_)
        | O::Special(..)
        | O::Var(..)
        | O::Func(_)
        | O::Label(_)
        | O::Sink => {}
    }
}

fn place(inst: &ptx::Inst) -> u32 {
    inst.span.start
}

/// How many groups a wait leaves, if it is for all lanes.
fn awaited(inst: &ptx::Inst) -> Option<u64> {
    match inst.operands.first() {
        Some(ptx::Operand::Int(n)) if inst.guard.is_none() => Some(*n),
        _ => None,
    }
}

fn is_product(inst: &ptx::Inst) -> bool {
    inst.op == ptx::Op::wgmma && inst.has(M::mma_async)
}

fn insts(body: &ptx::Body, range: std::ops::Range<usize>) -> impl DoubleEndedIterator<Item = &ptx::Inst> {
    body.stmts[range].iter().filter_map(|s| if let Stmt::Inst(i) = s { Some(i) } else { None })
}

impl Plan {
    /// That of a function; makes its variables.
    pub(crate) fn new(body: &ptx::Body, graph: &Graph, vars: &mut Vec<ValueData>) -> Plan {
        let mut plan = Plan::default();
        let all = || insts(body, 0..body.stmts.len());
        if !all().any(is_product) {
            return plan;
        }
        let mut of: FxHashMap<Vec<RegId>, usize> = FxHashMap::default();
        for inst in all().filter(|i| is_product(i)) {
            let Some(list) = registers(inst.operands.first()) else { continue };
            let tuple = *of.entry(list.clone()).or_insert_with(|| {
                plan.tuples.push(Tuple { registers: list, var: None });
                plan.tuples.len() - 1
            });
            let mut variable = |width| {
                vars.push(ValueData { file: RegFile::R, width });
                Var(vars.len() as u32 - 1)
            };
            let rows = matches!(inst.operands.get(1), Some(ptx::Operand::Vector(_))).then(|| variable(4));
            let metadata = inst.has(M::sp).then(|| variable(1));
            plan.products.insert(place(inst), Product { tuple, rows, metadata });
        }
        plan.make_variables(body, vars);
        plan.find_waits(body, graph, vars);
        plan
    }

    /// Makes variables of the accumulators whose registers are listed in one order and not written under a guard.
    fn make_variables(&mut self, body: &ptx::Body, vars: &mut Vec<ValueData>) {
        let mut times: FxHashMap<RegId, usize> = FxHashMap::default();
        for t in &self.tuples {
            t.registers.iter().for_each(|r| *times.entry(*r).or_default() += 1);
        }
        for inst in insts(body, 0..body.stmts.len()).filter(|i| i.guard.is_some() && !is_product(i)) {
            inst.operands.iter().for_each(|o| named(o, &mut |r| *times.entry(r).or_default() += 1));
        }
        let word = ValueData { file: RegFile::R, width: 1 };
        for (k, t) in self.tuples.iter_mut().enumerate() {
            let width = t.registers.len();
            if width > 128 || t.registers.iter().any(|r| times[r] != 1 || vars[r.index()] != word) {
                continue;
            }
            vars.push(ValueData { file: RegFile::R, width: width as u8 });
            t.var = Some(Var(vars.len() as u32 - 1));
            for (i, r) in t.registers.iter().enumerate() {
                self.element.insert(Var(r.index() as u32), (k, i as u8));
            }
        }
    }

    /// Finds what may be under way at each wait and is of use behind it.
    fn find_waits(&mut self, body: &ptx::Body, graph: &Graph, vars: &[ValueData]) {
        // Accumulators, then the registers of A of each product.
        let mut rows: Vec<Var> = self.products.values().flat_map(Product::sources).collect();
        rows.sort_unstable();
        let count = self.tuples.len() + rows.len();
        let live = self.live(body, graph);
        let mut entry: Vec<Vec<u8>> = vec![vec![DONE; count]; graph.ranges.len()];
        let mut dirty = vec![true; graph.ranges.len()];
        while let Some(b) = dirty.iter().position(|d| *d) {
            dirty[b] = false;
            let mut state = entry[b].clone();
            self.follow(body, graph.ranges[b].clone(), &rows, &mut state, &mut |_, _| {});
            for &s in &graph.succs[b] {
                let s = s as usize;
                for (to, from) in entry[s].iter_mut().zip(&state) {
                    if from < to {
                        *to = *from;
                        dirty[s] = true;
                    }
                }
            }
        }
        let mut waits: FxHashMap<u32, Waited> = FxHashMap::default();
        for (range, state) in graph.ranges.iter().zip(&entry) {
            self.follow(body, range.clone(), &rows, &mut state.clone(), &mut |inst, state| {
                if !inst.has(M::wait_group) {
                    return;
                }
                let waited = waits.entry(place(inst)).or_default();
                let live = live.get(&place(inst));
                // What a wait for older groups leaves under way is no other value behind it.
                let left = awaited(inst).unwrap_or(0);
                let done = |(_, a): &(usize, &u8)| **a != DONE && u64::from(**a) > left;
                for (k, _) in state.iter().enumerate().filter(done) {
                    match k.checked_sub(self.tuples.len()) {
                        Some(r) => waited.rows.push(rows[r]),
                        None if live.is_some_and(|l| l[k]) => waited.tuples.push(k),
                        None => waited.unused.push(k),
                    }
                }
            });
        }
        self.waits = waits;
        self.share(body, graph, (&rows, &entry), vars);
    }

    /// Follows what is under way through statements, accumulators first, then what products read; `seen` is told what is before each statement.
    fn follow(
        &self,
        body: &ptx::Body,
        range: std::ops::Range<usize>,
        rows: &[Var],
        state: &mut [u8],
        seen: &mut impl FnMut(&ptx::Inst, &[u8]),
    ) {
        for inst in insts(body, range).filter(|i| i.op == ptx::Op::wgmma) {
            seen(inst, state);
            if let Some(p) = self.products.get(&place(inst)) {
                state[p.tuple] = 0;
                for at in p.sources().filter_map(|v| rows.binary_search(&v).ok()) {
                    state[self.tuples.len() + at] = 0;
                }
            } else if inst.has(M::commit_group) {
                state.iter_mut().filter(|a| **a < MANY).for_each(|a| *a += 1);
            } else if inst.has(M::wait_group)
                && let Some(left) = awaited(inst)
            {
                state.iter_mut().filter(|a| u64::from(**a) > left).for_each(|a| *a = DONE);
            }
        }
    }

    /// Lets products that are never under way together have one variable for what they read: what a loop finds under way is that of the round
    /// before or that of the code before the loop, and takes the registers of one of them. `rows` are all such variables, and `entry` says what is under
    /// way where blocks begin, accumulators first.
    fn share(
        &mut self,
        body: &ptx::Body,
        graph: &Graph,
        (rows, entry): (&[Var], &[Vec<u8>]),
        vars: &[ValueData],
    ) {
        let first = self.tuples.len();
        let number = |v: Var| rows.binary_search(&v).ok();
        let mut together: FxHashSet<(usize, usize)> = FxHashSet::default();
        for (range, entry) in graph.ranges.iter().zip(entry) {
            self.follow(body, range.clone(), rows, &mut entry.clone(), &mut |inst, state| {
                let own: SmallVec<[usize; 2]> = self
                    .products
                    .get(&place(inst))
                    .into_iter()
                    .flat_map(Product::sources)
                    .filter_map(number)
                    .collect();
                let going = || state[first..].iter().enumerate().filter(|(_, a)| **a != DONE).map(|(k, _)| k);
                for &at in &own {
                    let others = going().chain(own.iter().copied()).filter(|k| *k != at);
                    together.extend(others.flat_map(|other| [(at, other), (other, at)]));
                }
            });
        }
        // In the order of the program, so that those of a group keep their places.
        let mut places: Vec<u32> = self.products.keys().copied().collect();
        places.sort_unstable();
        let mut classes: Vec<Vec<usize>> = Vec::new();
        let mut shared: FxHashMap<Var, Var> = FxHashMap::default();
        for v in places.iter().flat_map(|p| self.products[p].sources()) {
            let Some(at) = number(v) else { continue };
            let fits = |class: &&mut Vec<usize>| {
                vars[rows[class[0]].0 as usize] == vars[v.0 as usize]
                    && !class.iter().any(|other| together.contains(&(at, *other)))
            };
            match classes.iter_mut().find(fits) {
                Some(class) => {
                    shared.insert(v, rows[class[0]]);
                    class.push(at);
                }
                None => classes.push(vec![at]),
            }
        }
        let of = |v: &mut Var| *v = shared.get(v).copied().unwrap_or(*v);
        for p in self.products.values_mut() {
            p.rows.iter_mut().for_each(of);
            p.metadata.iter_mut().for_each(of);
        }
        for w in self.waits.values_mut() {
            w.rows.iter_mut().for_each(of);
            w.rows.sort_unstable();
            w.rows.dedup();
        }
    }

    /// Which accumulators are of use behind each wait.
    fn live(&self, body: &ptx::Body, graph: &Graph) -> FxHashMap<u32, Vec<bool>> {
        let mut number: FxHashMap<RegId, usize> = FxHashMap::default();
        for r in self.tuples.iter().flat_map(|t| &t.registers) {
            let next = number.len();
            number.entry(*r).or_insert(next);
        }
        let mut out: FxHashMap<u32, Vec<bool>> = FxHashMap::default();
        let mut entry: Vec<Vec<bool>> = vec![vec![false; number.len()]; graph.ranges.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for b in (0..graph.ranges.len()).rev() {
                let mut state = vec![false; number.len()];
                for &s in &graph.succs[b] {
                    state.iter_mut().zip(&entry[s as usize]).for_each(|(a, b)| *a |= b);
                }
                for inst in insts(body, graph.ranges[b].clone()).rev() {
                    if inst.op == ptx::Op::wgmma && inst.has(M::wait_group) {
                        let of = |t: &Tuple| t.registers.iter().any(|r| state[number[r]]);
                        out.insert(place(inst), self.tuples.iter().map(of).collect());
                    }
                    // A move writes its register without a look at it; of others that is not asked.
                    let moved = match inst.operands.first() {
                        Some(ptx::Operand::Reg(r)) if inst.op == ptx::Op::mov && inst.guard.is_none() => {
                            Some(*r)
                        }
                        _ => None,
                    };
                    if let Some(n) = moved.and_then(|r| number.get(&r)) {
                        state[*n] = false;
                    }
                    for o in &inst.operands[usize::from(moved.is_some())..] {
                        named(o, &mut |r| {
                            if let Some(n) = number.get(&r) {
                                state[*n] = true;
                            }
                        });
                    }
                }
                if state != entry[b] {
                    entry[b] = state;
                    changed = true;
                }
            }
        }
        out
    }
}

/// The modifier of this name.
fn spelled(name: &str) -> Result<Mod> {
    let found = Mod::EVERY.iter().find(|m| m.name() == name);
    found.copied().ok_or_else(|| crate::Refusal::Spelled(name.into()))
}

impl Lower<'_, '_> {
    /// The accumulator that a register is a part of, and which, unless the register was written on its own since.
    pub(crate) fn part_of_accumulator(&self, var: Var) -> Option<(Var, u8)> {
        let (tuple, part) = *self.groups.element.get(&var)?;
        let whole = self.groups.tuples[tuple].var?;
        (!self.groups.written.contains(&var)).then_some((whole, part))
    }

    /// The registers of the accumulator that a variable is, if it is one.
    pub(crate) fn registers_of_tuple(&self, var: Var) -> Vec<RegId> {
        let tuple = self.groups.tuples.iter().find(|t| t.var == Some(var));
        tuple.map(|t| t.registers.clone()).unwrap_or_default()
    }

    /// Takes note that a register is written on its own.
    pub(crate) fn note_part_written(&mut self, var: Var) {
        if self.groups.element.contains_key(&var) {
            self.groups.written.insert(var);
        }
    }

    /// Puts the accumulators together of which registers were written on their own: at the end of every block.
    pub(crate) fn put_accumulators_together(&mut self) {
        if self.groups.written.is_empty() {
            return;
        }
        for k in 0..self.groups.tuples.len() {
            self.put_together(k);
        }
    }

    /// Whether registers of an accumulator were written on their own since it was put together.
    fn is_apart(&self, tuple: usize) -> bool {
        let registers = &self.groups.tuples[tuple].registers;
        registers.iter().any(|r| self.groups.written.contains(&Var(r.index() as u32)))
    }

    fn put_together(&mut self, tuple: usize) {
        let Some(whole) = self.groups.tuples[tuple].var else { return };
        if !self.is_apart(tuple) {
            return;
        }
        let parts: Vec<Var> =
            self.groups.tuples[tuple].registers.iter().map(|r| Var(r.index() as u32)).collect();
        let words: Vec<Operand> = parts.iter().map(|v| operand(self.read_var(*v))).collect();
        let value = if words.len() == 1 { self.read_var(parts[0]) } else { self.b.collect(&words) };
        parts.iter().for_each(|v| {
            self.groups.written.remove(v);
        });
        self.write_var(whole, value);
    }

    fn read_accumulator(&mut self, tuple: usize) -> Value {
        self.put_together(tuple);
        match self.groups.tuples[tuple].var {
            Some(var) => self.read_var(var),
            None => {
                let registers = self.groups.tuples[tuple].registers.clone();
                let words: Vec<Operand> = registers.iter().map(|r| operand(self.read(*r))).collect();
                self.b.collect(&words)
            }
        }
    }

    fn write_accumulator(&mut self, tuple: usize, value: Value) {
        if let Some(var) = self.groups.tuples[tuple].var {
            return self.write_var(var, value);
        }
        let registers = self.groups.tuples[tuple].registers.clone();
        let words: Vec<Value> =
            (0..registers.len()).map(|i| self.b.copy(operand(Name::Part(value, i as u8)))).collect();
        for (r, word) in registers.into_iter().zip(words) {
            self.write_var(Var(r.index() as u32), word);
        }
    }

    /// `wgmma`.
    pub(crate) fn group(&mut self, inst: &Statement<'_>) -> Result<()> {
        self.put_accumulators_together();
        self.branch_around(|l| {
            let serial = l.opts.serial_groups;
            if !(serial && inst.has(M::commit_group)) {
                l.b.guarded(ALWAYS, Opcode::WARPSYNC, &[], &[pt(), imm(!0)], &[]);
            }
            match () {
                () if inst.has(M::mma_async) => l.group_product(inst),
                () if inst.has(M::wait_group) => l.group_wait(inst),
                // What a product touches is awaited before each, then.
                () if serial => {
                    inst.moot(&[M::fence, M::commit_group]);
                    Ok(())
                }
                () if inst.has(M::fence) => {
                    l.b.inst(Opcode::WARPGROUP, &[Mod::ARRIVE], &[]);
                    Ok(())
                }
                () if inst.has(M::commit_group) => {
                    l.group_commit();
                    Ok(())
                }
                () => l.unsupported(inst),
            }
        })
    }

    /// Ends a group with its last product, or with one of nothing.
    fn group_commit(&mut self) {
        if let Some((block, product)) = self.groups.open.take()
            && block == self.b.block
        {
            if let Some(o) = self.b.func.insts[product].operands.last_mut() {
                *o = Operand::Imm(0);
            }
            return;
        }
        self.b.inst(Opcode::WARPGROUP, &[Mod::ARRIVE], &[]);
        let nothing =
            [rz(), descriptors(Name::Phys(Reg::URZ)), rz(), not(Name::Phys(Reg::UPT)), Operand::Imm(0)];
        self.b.inst(Opcode::HGMMA, &[Mod::_64x8x16, Mod::F16], &nothing);
    }

    fn group_wait(&mut self, inst: &Statement<'_>) -> Result<()> {
        let ptx::Operand::Int(n) = inst.operands[0] else { return self.unsupported(inst) };
        if self.opts.serial_groups {
            return Ok(());
        }
        let left = u32::try_from(n).unwrap_or(NO_GROUP).min(NO_GROUP);
        self.b.inst(Opcode::WARPGROUP_DEPBAR, &[Mod::LE], &[Operand::Imm(0), Operand::Imm(left)]);
        let Some(Waited { tuples, unused, rows }) = self.groups.waits.remove(&place(inst.plain)) else {
            return Ok(());
        };
        for tuple in tuples {
            let value = self.read_accumulator(tuple);
            let width = self.b.func.values[value].width;
            let settled = self.b.def_macro(Macro::Settle, RegFile::R, width, &[operand(value)]);
            self.write_accumulator(tuple, settled);
        }
        let whole = |l: &Self, k: usize| l.groups.tuples[k].var.filter(|_| !l.is_apart(k));
        let unused: Vec<Var> = unused.into_iter().filter_map(|k| whole(self, k)).collect();
        for var in unused.into_iter().chain(rows) {
            let value = self.read_var(var);
            self.hold(value);
        }
        Ok(())
    }

    /// Keeps the registers of a value up to here.
    fn hold(&mut self, value: Value) {
        let data = ori::InstData {
            guard: ALWAYS,
            op: ori::Op::Macro(Macro::Keep),
            mods: sass::Mods::none(),
            operands: [operand(value)].into_iter().collect(),
            kept: Default::default(),
            loc: self.b.loc,
        };
        self.b.raw(data);
    }

    /// A word of a descriptor in a uniform register; it is the same in all threads.
    fn uniform_half(&mut self, word: &Operand) -> Operand {
        if as_imm(word).is_some() {
            return operand(self.b.def_macro(Macro::Copy, RegFile::UR, 1, std::slice::from_ref(word)));
        }
        let word = self.b.reg(word);
        operand(self.b.def(Opcode::R2UR, &[], &[operand(word)]))
    }

    /// The halves of a descriptor.
    fn descriptor(&mut self, o: &ptx::Operand) -> Result<[Operand; 2]> {
        let d = self.src(o, Ty { bits: 64, ..Ty::B32 })?.pair();
        Ok([self.uniform_half(&d.lo), self.uniform_half(&d.hi)])
    }

    fn group_product(&mut self, inst: &Statement<'_>) -> Result<()> {
        let shown = self.groups.products.get(&place(inst.plain));
        let Some(&Product { tuple, rows, metadata: zeros }) = shown else { return self.unsupported(inst) };
        // The accumulator is known by the place of the statement.
        inst.operands.get(0);
        let sparse = inst.has(M::sp);
        let Some((_, n, k)) = inst.find(|m| super::size(m.name())) else { return self.unsupported(inst) };
        let mut types = Vec::new();
        inst.find(|m| {
            types.extend(Elem::of(m));
            Elem::of(m)
        });
        let [d, a, b] = types[..] else { return self.unsupported(inst) };
        let mut mods = vec![spelled(&format!("64x{n}x{k}"))?];
        if matches!(a, Elem::F16 | Elem::Bf16 | Elem::Tf32 | Elem::Small(_)) {
            mods.push(if d == Elem::F16 { Mod::F16 } else { Mod::F32 });
        }
        let registers = matches!(inst.operands[1], ptx::Operand::Vector(_));
        use Opcode as O;
        let of = |all: [Opcode; 4]| all[usize::from(registers) + 2 * usize::from(sparse)];
        let op = match (a, b) {
            (Elem::F16, Elem::F16) | (Elem::Bf16, Elem::Bf16) | (Elem::Tf32, Elem::Tf32) => {
                mods.extend(match a {
                    Elem::Bf16 => Some(Mod::BF16),
                    Elem::Tf32 => Some(Mod::TF32),
                    _ => None,
                });
                of([O::HGMMA, O::HGMMA_R, O::HGMMA_SP, O::HGMMA_SP_R])
            }
            (Elem::Small(a), Elem::Small(b)) => {
                mods.extend([a, b]);
                of([O::QGMMA, O::QGMMA_R, O::QGMMA_SP, O::QGMMA_SP_R])
            }
            (Elem::B1, Elem::B1) => {
                inst.has_prefix("and");
                inst.has_prefix("popc");
                mods.extend([Mod::AND, Mod::POPC]);
                of([O::BGMMA, O::BGMMA_R, O::BGMMA, O::BGMMA_R])
            }
            _ => {
                let (Some(a), Some(b)) = (a.integer(), b.integer()) else { return self.unsupported(inst) };
                mods.extend([a, b]);
                if inst.has(M::satfinite) {
                    mods.push(Mod::SAT);
                }
                of([O::IGMMA, O::IGMMA_R, O::IGMMA_SP, O::IGMMA_SP_R])
            }
        };
        let first = if sparse { 5 } else { 3 };
        let is = |at: usize, n: i64| match inst.operands.get(first + at) {
            Some(ptx::Operand::Int(x)) => *x as i64 == n,
            _ => false,
        };
        let negated = [is(1, -1), is(2, -1)];
        let transposed = if registers { [false, is(3, 1)] } else { [is(3, 1), is(4, 1)] };
        inst.operands.from(first);
        // The first flag says which operand they are of.
        let flags = [
            (negated[0] && !registers).then_some("negA"),
            negated[1].then_some("negB"),
            transposed[0].then_some("tnspA"),
            transposed[1].then_some("tnspB"),
        ];
        for (i, flag) in flags.into_iter().flatten().enumerate() {
            let side = if registers { "B" } else { "A" };
            mods.push(spelled(&if i == 0 { format!("{side}:{flag}") } else { flag.into() })?);
        }
        let accumulator = self.groups.tuples[tuple].registers.len() as u16;
        let needed = BESIDE_PRODUCT + accumulator + if registers { A_REGISTERS } else { 0 };
        let limit = self.b.func.max_regs;
        if needed > limit.into() {
            return Err(crate::Refusal::Registers { limit, needed });
        }
        let mut sources = Vec::new();
        let mut held: Vec<(Option<Var>, Value)> = Vec::new();
        let b_words = self.descriptor(&inst.operands[2])?;
        let words = if registers {
            let words = self.matrix_words(&inst.operands[1], Elem::F16)?;
            let value = self.b.collect(&words);
            held.push((rows, value));
            sources.push(Operand::Reg(sass::RegOp { neg: negated[0], ..sass::RegOp::plain(value.into()) }));
            let nothing = self.undefined_value(ValueData { file: RegFile::UR, width: 1 });
            vec![operand(nothing), operand(nothing), b_words[0], b_words[1]]
        } else {
            let a_words = self.descriptor(&inst.operands[1])?;
            a_words.into_iter().chain(b_words).collect()
        };
        let quad = self.b.def_macro(Macro::Collect, RegFile::UR, 4, &words);
        sources.push(descriptors(quad.into()));
        let (addend, counts) = match &inst.operands[first] {
            ptx::Operand::Int(0) => (rz(), not(Name::Phys(Reg::UPT))),
            ptx::Operand::Int(_) => (operand(self.read_accumulator(tuple)), operand(Name::Phys(Reg::UPT))),
            o => {
                let pred = match o {
                    ptx::Operand::Reg(r) => operand(self.read(*r)),
                    ptx::Operand::NotPred(r) => not(self.read(*r)),
                    _ => return self.unsupported(inst),
                };
                let uniform = self.b.func.add_value(RegFile::UP, 1);
                let nowhere = operand(Name::Phys(Reg::URZ));
                self.b.inst(Opcode::VOTEU, &[Mod::ANY], &[nowhere, operand(uniform), pred]);
                (operand(self.read_accumulator(tuple)), operand(uniform))
            }
        };
        sources.extend([addend, counts]);
        if sparse {
            let metadata = self.one_word(&inst.operands[3])?;
            let metadata = self.b.reg(&metadata);
            held.push((zeros, metadata));
            let metadata = operand(metadata);
            let ptx::Operand::Int(lanes) = inst.operands[4] else { return self.unsupported(inst) };
            sources.extend([metadata, Operand::Imm(lanes as u32)]);
        }
        sources.push(Operand::Imm(NO_GROUP));
        if self.opts.serial_groups {
            self.b.inst(Opcode::WARPGROUP, &[Mod::ARRIVE], &[]);
        }
        let width = self.groups.tuples[tuple].registers.len() as u8;
        let mut result = self.b.func.add_value(RegFile::R, width);
        let operands: Vec<Operand> = std::iter::once(operand(result)).chain(sources).collect();
        let product = self.b.inst(op, &mods, &operands);
        self.groups.open = Some((self.b.block, product));
        if self.opts.serial_groups {
            self.group_commit();
            self.b.inst(Opcode::WARPGROUP_DEPBAR, &[Mod::LE], &[Operand::Imm(0), Operand::Imm(0)]);
            result = self.b.def_macro(Macro::Settle, RegFile::R, width, &[operand(result)]);
            held.into_iter().for_each(|(_, value)| self.hold(value));
        } else {
            held.into_iter().for_each(|(var, value)| {
                if let Some(var) = var {
                    self.write_var(var, value);
                }
            });
        }
        self.write_accumulator(tuple, result);
        Ok(())
    }
}

/// The operand of the descriptors in four uniform registers.
fn descriptors(quad: Name) -> Operand {
    Lower::uniform_address(quad)
}
