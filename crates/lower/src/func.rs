//! The walk over a function: control-flow graph, registers, operands, guards.

use crate::access::Address;
use crate::arith_int;
use crate::emit::{Emit, Pair, constant, imm, pt, rz};
use crate::ssa::{PtxBlock, Ssa, Var};
use crate::types::{Kind, Src, Ty};
use crate::{Diagnostic, ModuleLayout, Options};
use cranelift_entity::{EntityRef, SecondaryMap};
use ori::{
    ALWAYS, Block, BlockCall, Builder, Function, Guard, InstData, Loc, Macro, Name, Op, Operand, Terminator,
    Value, ValueData, operand,
};
use ptx::{
    AddrBase, Func, FuncId, Inst, LabelId, Module, RegId, Space, Stmt, Symbol, Type, TypeClass, VarId,
};
use rustc_hash::FxHashMap;
use sass::{Mods, Reg, RegFile};
use smallvec::SmallVec;

/// Why an instruction cannot be lowered.
pub type Result<T> = std::result::Result<T, String>;

/// What is known about a value beyond its definition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Known {
    #[default]
    Nothing,
    /// This number.
    Imm(u64),
    /// The content of constant memory at this bank and offset.
    Const(u8, u32),
    /// R1 plus this.
    Stack(i64),
    /// The CTA's shared window plus this.
    Shared(i64),
    /// Another 64-bit value plus this.
    Sum(Value, i64),
    /// A pair whose upper half is 0.
    Narrow,
}

/// The state of lowering one function.
pub struct Lower<'a, 'f> {
    /// The module.
    pub module: &'a Module,
    /// The function.
    pub id: FuncId,
    /// Placement of variables.
    pub layout: &'a ModuleLayout,
    /// Options.
    pub opts: &'a Options<'a>,
    /// Where instructions go.
    pub b: Builder<'f>,
    ssa: Ssa,
    block: PtxBlock,
    /// Guard of the current instruction.
    pub guard: Guard,
    known: SecondaryMap<Value, Known>,
    params: FxHashMap<VarId, u32>,
    locals: FxHashMap<VarId, u32>,
    desc: Option<Value>,
    smem: Option<Value>,
    /// Values written since a side branch was entered, with what they replaced.
    region: Option<Vec<(Var, Value)>>,
    carry: Var,
}

/// The PTX basic blocks of a function body.
struct Graph {
    /// Statements of each block.
    ranges: Vec<std::ops::Range<usize>>,
    succs: Vec<SmallVec<[u32; 2]>>,
    of_label: SecondaryMap<LabelId, u32>,
    tables: FxHashMap<LabelId, Vec<LabelId>>,
}

fn is_terminator(inst: &Inst) -> bool {
    match inst.op {
        ptx::Op::bra | ptx::Op::brx => true,
        ptx::Op::ret | ptx::Op::exit => inst.guard.is_none(),
        _ => false,
    }
}

impl Graph {
    fn new(body: &ptx::Body) -> Result<Graph> {
        let mut g = Graph {
            ranges: Vec::new(),
            succs: Vec::new(),
            of_label: SecondaryMap::with_default(u32::MAX),
            tables: FxHashMap::default(),
        };
        let mut start = 0;
        for (i, stmt) in body.stmts.iter().enumerate() {
            match stmt {
                Stmt::Label(l) => {
                    if i > start {
                        g.ranges.push(start..i);
                        start = i;
                    }
                    g.of_label[*l] = g.ranges.len() as u32;
                }
                Stmt::Inst(inst) if is_terminator(inst) => {
                    g.ranges.push(start..i + 1);
                    start = i + 1;
                }
                Stmt::BranchTargets(l, targets) => {
                    g.tables.insert(*l, targets.clone());
                }
                _ => {}
            }
        }
        g.ranges.push(start..body.stmts.len());
        for (k, r) in g.ranges.iter().enumerate() {
            let mut succs = SmallVec::new();
            let next = k as u32 + 1;
            match body.stmts[r.clone()].last() {
                Some(Stmt::Inst(inst)) if is_terminator(inst) => match inst.op {
                    ptx::Op::bra => {
                        succs.push(g.target(&inst.operands[0])?);
                        if inst.guard.is_some() {
                            succs.push(next);
                        }
                    }
                    ptx::Op::brx => {
                        for l in g.table(inst)? {
                            succs.push(g.of_label[*l]);
                        }
                        if inst.guard.is_some() {
                            succs.push(next);
                        }
                    }
                    _ => {}
                },
                _ if next < g.ranges.len() as u32 => succs.push(next),
                _ => {}
            }
            if succs.iter().any(|s| *s as usize >= g.ranges.len()) {
                return Err("branch to a label that is not in the code".into());
            }
            g.succs.push(succs);
        }
        Ok(g)
    }

    fn target(&self, o: &ptx::Operand) -> Result<u32> {
        match o {
            ptx::Operand::Label(l) => Ok(self.of_label[*l]),
            _ => Err("branch target is not a label".into()),
        }
    }

    fn table(&self, inst: &Inst) -> Result<&[LabelId]> {
        match inst.operands.get(1) {
            Some(ptx::Operand::Label(l)) => {
                self.tables.get(l).map(Vec::as_slice).ok_or_else(|| "no such .branchtargets".into())
            }
            _ => Err("brx.idx needs a .branchtargets label".into()),
        }
    }

    /// Reachable blocks in reverse postorder.
    fn order(&self) -> Vec<u32> {
        let mut seen = vec![false; self.ranges.len()];
        let mut post = Vec::new();
        let mut stack = vec![(0u32, 0usize)];
        seen[0] = true;
        while let Some((b, k)) = stack.pop() {
            match self.succs[b as usize].get(k) {
                Some(&s) => {
                    stack.push((b, k + 1));
                    if !std::mem::replace(&mut seen[s as usize], true) {
                        stack.push((s, 0));
                    }
                }
                None => post.push(b),
            }
        }
        post.reverse();
        post
    }
}

/// Lowers one function that has a body.
///
/// # Errors
/// Every statement that cannot be lowered.
pub fn lower_function(
    module: &Module,
    id: FuncId,
    layout: &ModuleLayout,
    opts: &Options<'_>,
) -> std::result::Result<Function, Vec<Diagnostic>> {
    let func = &module.funcs[id];
    let whole = |m: &str| vec![Diagnostic::error(func.span, m)];
    let body = func.body.as_ref().ok_or_else(|| whole("function without a body"))?;
    if !func.entry {
        return Err(whole("device functions (.func) are not supported yet"));
    }
    if module.address_size != 64 {
        return Err(whole("only .address_size 64 is supported"));
    }
    let graph = Graph::new(body).map_err(|m| whole(&m))?;
    let mut out = Function::new(&func.name, opts.target);
    out.shared_size = layout.shared_size(id);
    out.max_regs = max_regs(func, opts);
    let entry = out.entry_block();

    let (offsets, _) = module.param_layout(func);
    let base = u32::from(opts.target.info().param_base);
    let params = func.params.iter().zip(&offsets).map(|(v, o)| (*v, base + o)).collect();
    let mut locals = FxHashMap::default();
    for &v in &body.vars {
        let var = &module.vars[v];
        if var.space == Space::Local {
            let at = out.local_size.next_multiple_of(var.align.max(1));
            locals.insert(v, at);
            out.local_size = at + var.size() as u32;
        }
    }
    out.local_size = out.local_size.next_multiple_of(8);

    let mut vars: Vec<ValueData> = Vec::with_capacity(body.regs.len() + 1);
    for reg in body.regs.values() {
        if reg.vector != 1 {
            return Err(whole(&format!("vector register {} is not supported", reg.name)));
        }
        vars.push(reg_shape(reg.ty));
    }
    let carry = Var(vars.len() as u32);
    vars.push(ValueData { file: RegFile::P, width: 1 });

    let n = graph.ranges.len();
    let prologue = PtxBlock(n as u32);
    let order = graph.order();
    let mut reachable = vec![false; n];
    order.iter().for_each(|k| reachable[*k as usize] = true);
    let mut ssa = Ssa::new(n + 1, vars);
    ssa.add_edge(prologue, PtxBlock(0));
    for &k in &order {
        for &s in &graph.succs[k as usize] {
            ssa.add_edge(PtxBlock(k), PtxBlock(s));
        }
    }
    for k in (0..n).filter(|k| reachable[*k]) {
        let head = out.add_block();
        ssa.set_head(PtxBlock(k as u32), head);
    }
    ssa.set_head(prologue, entry);
    ssa.set_tail(prologue, entry);

    let mut lower = Lower {
        module,
        id,
        layout,
        opts,
        b: Builder::new(&mut out, entry),
        ssa,
        block: PtxBlock(0),
        guard: ALWAYS,
        known: SecondaryMap::new(),
        params,
        locals,
        desc: None,
        smem: None,
        region: None,
        carry,
    };
    let mut errors = Vec::new();
    // Ori blocks made while lowering each PTX block, for the final layout.
    let mut made: Vec<Vec<Block>> = vec![Vec::new(); n];
    for &k in &order {
        let before = lower.b.func.blocks.len();
        lower.block(&graph, body, k, &mut errors);
        let after = lower.b.func.blocks.len();
        made[k as usize].extend((before..after).map(Block::new));
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut blocks = vec![entry];
    for k in (0..n).filter(|k| reachable[*k]) {
        blocks.push(lower.ssa.head(PtxBlock(k as u32)));
        blocks.append(&mut made[k]);
    }
    lower.finish();
    out.layout = blocks;
    Ok(out)
}

fn max_regs(func: &Func, opts: &Options<'_>) -> u8 {
    let mut limit = 255;
    if let Some(n) = func.attrs.maxnreg {
        limit = limit.min(n);
    } else if let Some(ctas) = func.attrs.minnctapersm {
        // As many registers as leave room for the CTAs: 64 Ki registers, granted by the warp in units of 256.
        let threads = func.attrs.reqntid.or(func.attrs.maxntid).map_or(1024, |d| d.iter().product::<u32>());
        let warps = threads.div_ceil(32).max(1) * ctas.max(1);
        limit = limit.min((65536 / 32 / warps) & !7);
    } else if let Some(d) = func.attrs.reqntid.or(func.attrs.maxntid) {
        let warps = d.iter().product::<u32>().div_ceil(32).max(1);
        limit = limit.min((65536 / 32 / warps) & !7);
    } else if let Some(n) = opts.maxrregcount {
        limit = limit.min(n);
    }
    limit.clamp(16, 255) as u8
}

fn reg_shape(ty: Type) -> ValueData {
    if ty.class() == TypeClass::Predicate {
        ValueData { file: RegFile::P, width: 1 }
    } else {
        ValueData { file: RegFile::R, width: ty.bytes().div_ceil(4) as u8 }
    }
}

/// The lowering view of a PTX type.
pub fn ty(t: Type) -> Ty {
    let kind = match t {
        Type::f16 | Type::f32 | Type::f64 => Kind::Float,
        Type::bf16 => Kind::Bf16,
        Type::pred => return Ty { kind: Kind::Pred, bits: 1 },
        t => match t.class() {
            TypeClass::Bits if t.bits() <= 128 => Kind::Bits,
            TypeClass::Unsigned if t != Type::u16x2 => Kind::Unsigned,
            TypeClass::Signed if t != Type::s16x2 => Kind::Signed,
            _ => Kind::Packed,
        },
    };
    Ty { kind, bits: t.bits() as u8 }
}

impl<'a, 'f> Lower<'a, 'f> {
    /// Lowers PTX block `k`.
    fn block(&mut self, graph: &Graph, body: &'a ptx::Body, k: u32, errors: &mut Vec<Diagnostic>) {
        self.block = PtxBlock(k);
        self.b.block = self.ssa.head(self.block);
        let mut ended = false;
        for stmt in &body.stmts[graph.ranges[k as usize].clone()] {
            let Stmt::Inst(inst) = stmt else { continue };
            self.b.loc = Loc(self.opts.lines.map_or(0, |l| l.line(inst.span.start)));
            let result = if is_terminator(inst) {
                ended = true;
                self.terminator(graph, inst, k)
            } else {
                self.guarded_inst(inst)
            };
            if let Err(message) = result {
                errors.push(Diagnostic::error(inst.span, message));
            }
        }
        if !ended {
            let term = match graph.succs[k as usize].first() {
                Some(&s) => Terminator::Jump(Builder::call(self.ssa.head(PtxBlock(s)))),
                None => Terminator::Exit,
            };
            self.b.terminate(term);
        }
        self.ssa.set_tail(self.block, self.b.block);
    }

    fn terminator(&mut self, graph: &Graph, inst: &Inst, k: u32) -> Result<()> {
        let to = |s: &Self, k: u32| Builder::call(s.ssa.head(PtxBlock(k)));
        match inst.op {
            ptx::Op::bra => {
                let taken = to(self, graph.target(&inst.operands[0])?);
                let term = match inst.guard {
                    None => Terminator::Jump(taken),
                    Some((p, not)) => {
                        let cond = Name::Val(self.read(p));
                        Terminator::Branch { cond, not, taken, fall: to(self, k + 1) }
                    }
                };
                self.b.terminate(term);
            }
            ptx::Op::brx => {
                let index = self.src(&inst.operands[0], Ty::U32)?;
                let index = Name::Val(self.b.reg(&index.low()));
                let table: Vec<BlockCall> =
                    graph.table(inst)?.iter().map(|l| to(self, graph.of_label[*l])).collect();
                if let Some((p, not)) = inst.guard {
                    let cond = Name::Val(self.read(p));
                    let then = self.b.func.add_block();
                    let fall = to(self, k + 1);
                    self.b.terminate(Terminator::Branch { cond, not, taken: Builder::call(then), fall });
                    return Err("guarded brx.idx is not supported yet".into());
                }
                self.b.terminate(Terminator::Switch { index, table });
            }
            _ => self.b.terminate(Terminator::Exit),
        }
        Ok(())
    }

    fn guarded_inst(&mut self, inst: &Inst) -> Result<()> {
        self.guard = match inst.guard {
            None => ALWAYS,
            Some((p, not)) => Guard { pred: Name::Val(self.read(p)), not },
        };
        let result = self.inst(inst);
        self.guard = ALWAYS;
        result
    }

    fn inst(&mut self, inst: &Inst) -> Result<()> {
        use ptx::Op as O;
        match inst.op {
            O::ld | O::ldu => self.ld(inst),
            O::st => self.st(inst),
            O::prefetch | O::prefetchu => self.prefetch(inst),
            O::atom | O::red => self.atomic(inst),
            O::membar | O::fence => self.fence(inst),
            O::ret | O::exit => self.exit(),
            O::bar | O::barrier => self.barrier(inst),
            O::trap | O::brkpt | O::nanosleep | O::pmevent => self.misc(inst),
            O::shfl | O::vote | O::_match | O::redux | O::activemask | O::elect => self.warp(inst),
            O::call => Err("calls are not supported yet".into()),
            _ => self.scalar(inst),
        }
    }

    /// A message about an instruction that this version does not know.
    pub fn unsupported<T>(&self, inst: &Inst) -> Result<T> {
        let mods: String = inst.mods.iter().map(|m| format!(".{}", m.name())).collect();
        Err(format!("{}{mods} is not supported yet", inst.op.name()))
    }

    /// SM number.
    pub fn sm(&self) -> u8 {
        self.opts.target.sm
    }

    // Registers.

    /// The current value of a register.
    pub fn read(&mut self, r: RegId) -> Value {
        self.read_var(Var(r.index() as u32))
    }

    fn read_var(&mut self, var: Var) -> Value {
        self.ssa.read(self.b.func, self.block, var)
    }

    /// Shape of a register.
    pub fn shape(&self, r: RegId) -> ValueData {
        self.ssa.shape(Var(r.index() as u32))
    }

    fn write_var(&mut self, var: Var, value: Value) {
        if self.region.is_some() {
            let old = self.read_var(var);
            if let Some(region) = &mut self.region
                && region.iter().all(|(v, _)| *v != var)
            {
                region.push((var, old));
            }
        }
        self.ssa.write(self.block, var, value);
    }

    /// The undefined value of a shape.
    pub fn undefined_value(&mut self, shape: ValueData) -> Value {
        self.ssa.undefined(self.b.func, shape)
    }

    /// Whether a value is that of a register that was never written.
    pub fn is_undefined(&self, v: Value) -> bool {
        self.ssa.is_undefined(v)
    }

    /// Assigns unconditionally; the value may be narrower (zero-extended) or wider (truncated) than the
    /// register.
    pub fn write(&mut self, r: RegId, value: Value) {
        let want = self.shape(r);
        let have = self.b.func.values[value];
        let value = match (want.width, have.width) {
            (w, h) if w == h => value,
            (1, _) => self.b.copy(operand(Name::Part(value, 0))),
            (w, h) => {
                let mut parts: SmallVec<[Operand; 4]> = SmallVec::new();
                for i in 0..w {
                    parts.push(match (i < h, h) {
                        (true, 1) => operand(value),
                        (true, _) => operand(Name::Part(value, i)),
                        (false, _) => rz(),
                    });
                }
                self.b.collect(&parts)
            }
        };
        self.note_narrow(value);
        self.write_var(Var(r.index() as u32), value);
    }

    /// Remembers that a pair which was just put together has a zero upper half.
    fn note_narrow(&mut self, v: Value) {
        let Some(&last) = self.b.func.blocks[self.b.block].insts.last() else { return };
        let data = &self.b.func.insts[last];
        if self.known[v] == Known::Nothing
            && data.op == Op::Macro(Macro::Collect)
            && data.is_unguarded()
            && let [d, _, hi] = &data.operands[..]
            && *d == operand(v)
            && crate::emit::as_imm(hi) == Some(0)
        {
            self.known[v] = Known::Narrow;
        }
    }

    /// Assigns under the current guard. `first` is the number of instructions in the block before the value
    /// was computed: if it took exactly one, that one gets the guard.
    pub fn assign(&mut self, r: RegId, value: Value, first: Mark) {
        if self.guard == ALWAYS {
            return self.write(r, value);
        }
        let old = self.read(r);
        if self.is_undefined(old) {
            return self.write(r, value);
        }
        let shape = self.shape(r);
        if self.b.func.values[value].width != shape.width {
            let guard = std::mem::replace(&mut self.guard, ALWAYS);
            self.write(r, value);
            self.guard = guard;
            let value = self.read(r);
            let merged = self.merge(shape, value, old);
            return self.write(r, merged);
        }
        if let Some(inst) = self.single(first, value) {
            let guard = self.guard;
            let data = &mut self.b.func.insts[inst];
            data.guard = guard;
            let mut kept: SmallVec<[Name; 1]> = SmallVec::new();
            data.for_each_def(|n| {
                kept.push(match n {
                    Name::Val(_) => Name::Val(old),
                    n => n,
                });
            });
            data.kept = kept;
            return self.write(r, value);
        }
        let merged = self.merge(shape, value, old);
        self.write(r, merged);
    }

    /// The one SASS instruction since `first`, if it alone defines `value` (and nothing else).
    fn single(&self, first: Mark, value: Value) -> Option<ori::Inst> {
        if first.block != self.b.block {
            return None;
        }
        let [inst] = self.b.func.blocks[self.b.block].insts[first.count..] else { return None };
        let data = &self.b.func.insts[inst];
        let mut defs = 0;
        let mut it = false;
        data.for_each_def(|n| {
            if let Name::Val(v) = n {
                defs += 1;
                it |= v == value;
            }
        });
        (data.is_unguarded() && matches!(data.op, Op::Sass(_)) && defs == 1 && it).then_some(inst)
    }

    /// `guard ? new : old`.
    fn merge(&mut self, shape: ValueData, new: Value, old: Value) -> Value {
        let p = self.guard_operand();
        match (shape.file, shape.width) {
            (RegFile::P, _) => self.b.def_pred(
                sass::Opcode::PLOP3,
                &[sass::Mod::LUT],
                &[p, operand(new), operand(old), Operand::Imm(0xca), Operand::Imm(0)],
            ),
            (_, 1) => self.b.sel(p, operand(new), operand(old)),
            (_, 2) => self.b.sel64(p, &Pair::of(new), &Pair::of(old)),
            (_, w) => {
                let parts: Vec<Operand> = (0..w)
                    .map(|i| {
                        let (x, y) = (operand(Name::Part(new, i)), operand(Name::Part(old, i)));
                        operand(self.b.sel(p.clone(), x, y))
                    })
                    .collect();
                self.b.collect(&parts)
            }
        }
    }

    /// The current guard as a predicate operand.
    pub fn guard_operand(&self) -> Operand {
        Operand::Reg(sass::RegOp { not: self.guard.not, ..sass::RegOp::plain(self.guard.pred) })
    }

    /// A place to measure from; see [`Lower::assign`].
    pub fn mark(&self) -> Mark {
        Mark { block: self.b.block, count: self.b.func.blocks[self.b.block].insts.len() }
    }

    /// Runs `f` where the guard holds, as a branch around it: for side effects of several instructions.
    pub fn branch_around(&mut self, f: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if self.guard == ALWAYS {
            return f(self);
        }
        let guard = std::mem::replace(&mut self.guard, ALWAYS);
        let (then, join) = (self.b.func.add_block(), self.b.func.add_block());
        let from = self.b.block;
        self.b.terminate(Terminator::Branch {
            cond: guard.pred,
            not: guard.not,
            taken: Builder::call(then),
            fall: Builder::call(join),
        });
        self.b.block = then;
        self.region = Some(Vec::new());
        let result = f(self);
        let region = self.region.take().unwrap_or_default();
        let (mut new, mut old) = (SmallVec::new(), SmallVec::new());
        for (var, before) in region {
            new.push(self.read_var(var));
            old.push(before);
            let d = self.ssa.shape(var);
            let param = self.b.func.add_value(d.file, d.width);
            self.b.func.blocks[join].params.push(param);
            self.ssa.write(self.block, var, param);
        }
        self.b.terminate(Terminator::Jump(BlockCall { block: join, args: new }));
        if let Terminator::Branch { fall, .. } = &mut self.b.func.blocks[from].term {
            fall.args = old;
        }
        self.b.block = join;
        result
    }

    /// The carry flag.
    pub fn carry(&mut self) -> Value {
        self.read_var(self.carry)
    }

    /// Sets the carry flag.
    pub fn set_carry(&mut self, v: Value) {
        self.write_var(self.carry, v);
    }

    // Operands.

    /// A register operand that is written.
    pub fn dst(&self, o: &ptx::Operand) -> Result<RegId> {
        match o {
            ptx::Operand::Reg(r) => Ok(*r),
            _ => Err("destination is not a register".into()),
        }
    }

    /// A source operand of this type.
    pub fn src(&mut self, o: &ptx::Operand, ty: Ty) -> Result<Src> {
        let wide = ty.bits == 64;
        let bits = |n: u64| {
            if wide {
                Src::Wide(Pair::imm(n))
            } else {
                let mask = if ty.bits >= 32 { u64::MAX } else { (1 << ty.bits) - 1 };
                Src::Narrow(imm((n & mask) as u32))
            }
        };
        Ok(match o {
            ptx::Operand::Reg(r) => {
                let v = self.read(*r);
                self.value_src(v)
            }
            ptx::Operand::NegReg(r) => {
                let v = self.read(*r);
                let s = self.value_src(v);
                let neg = if ty.is_int() {
                    arith_int::neg(&mut self.b, ty, &s)
                } else {
                    crate::arith_float::sign(&mut self.b, ty, false, false, &s)
                };
                self.value_src(neg)
            }
            ptx::Operand::Int(n) => bits(*n),
            ptx::Operand::F32(x) if wide && ty.is_float() => bits(f64::from(f32::from_bits(*x)).to_bits()),
            ptx::Operand::F32(x) => bits(u64::from(*x)),
            ptx::Operand::F64(x) if wide => bits(*x),
            ptx::Operand::F64(x) if ty.bits == 32 => bits(u64::from((f64::from_bits(*x) as f32).to_bits())),
            ptx::Operand::Special(s, c) => self.special(*s, *c)?,
            ptx::Operand::Var(v, offset) => self.address_of(*v, *offset)?,
            ptx::Operand::Func(f) => self.address_slot(Symbol::Func(*f))?,
            _ => return Err("operand of a kind that is not supported here".into()),
        })
    }

    /// A value as a source.
    pub fn value_src(&self, v: Value) -> Src {
        match self.b.func.values[v].width {
            1 => Src::Narrow(match self.known[v] {
                Known::Imm(n) => imm(n as u32),
                Known::Const(bank, at) if self.opts.target.info().alu_const => constant(bank, at),
                _ => operand(v),
            }),
            2 => Src::Wide(match self.known[v] {
                Known::Imm(n) => Pair { value: Some(v), ..Pair::imm(n) },
                Known::Const(bank, at) if self.opts.target.info().alu_const => {
                    Pair { lo: constant(bank, at), hi: constant(bank, at + 4), value: Some(v) }
                }
                Known::Narrow => Pair { hi: rz(), ..Pair::of(v) },
                _ => Pair::of(v),
            }),
            _ => Src::Quad(v),
        }
    }

    /// A predicate operand, perhaps negated.
    pub fn pred(&mut self, o: &ptx::Operand) -> Result<Operand> {
        match o {
            ptx::Operand::Reg(r) => Ok(operand(self.read(*r))),
            ptx::Operand::NotPred(r) => Ok(crate::emit::not(self.read(*r))),
            ptx::Operand::Int(n) => Ok(if *n != 0 { pt() } else { crate::emit::never() }),
            _ => Err("not a predicate".into()),
        }
    }

    /// An integer constant operand.
    pub fn integer(&self, o: &ptx::Operand) -> Result<u64> {
        match o {
            ptx::Operand::Int(n) => Ok(*n),
            _ => Err("an integer constant is needed".into()),
        }
    }

    /// A source as a value of its own (a copy of an immediate or constant), remembering what it is.
    pub fn materialize(&mut self, s: &Src) -> Value {
        match s {
            Src::Narrow(o) => {
                let v = self.b.reg(o);
                self.note(v, s);
                v
            }
            Src::Wide(p) => {
                let v = self.b.pair(p);
                self.note(v, s);
                v
            }
            Src::Quad(v) => *v,
        }
    }

    /// Remembers what `v` is equal to.
    fn note(&mut self, v: Value, s: &Src) {
        if self.known[v] != Known::Nothing {
            return;
        }
        let word = |o: &Operand| match o {
            Operand::Const {
                bank: sass::ConstBank::Index(b),
                index: None,
                offset,
                neg: false,
                abs: false,
                not: false,
            } => Some((*b, *offset as u32)),
            _ => None,
        };
        self.known[v] = match s {
            Src::Narrow(o) => match (crate::emit::as_imm(o), word(o)) {
                (Some(n), _) => Known::Imm(n.into()),
                (_, Some((b, at))) => Known::Const(b, at),
                _ => Known::Nothing,
            },
            Src::Wide(p) => match (p.as_imm(), word(&p.lo), word(&p.hi)) {
                (Some(n), ..) => Known::Imm(n),
                (_, Some((b, lo)), Some((c, hi))) if b == c && hi == lo + 4 => Known::Const(b, lo),
                _ => Known::Nothing,
            },
            Src::Quad(_) => Known::Nothing,
        };
    }

    /// `v + n` where what `v` points to is known, for addresses of stack and shared variables.
    pub fn add_known(&mut self, x: &Src, y: &Src, sum: Value) {
        let (Src::Wide(x), Src::Wide(y)) = (x, y) else {
            if let (Src::Narrow(Operand::Reg(r)), Some(n)) = (x, crate::emit::as_imm(&y.low()))
                && let Some(v) = r.reg.value()
                && let Known::Shared(at) = self.known[v]
            {
                self.known[sum] = Known::Shared(at + i64::from(n as i32));
            }
            return;
        };
        if let (Some(v), Some(n)) = (x.value, y.as_imm()) {
            self.known[sum] = match self.known[v] {
                Known::Stack(at) => Known::Stack(at.wrapping_add(n as i64)),
                Known::Shared(at) => Known::Shared(at.wrapping_add(n as i64)),
                Known::Sum(base, at) => Known::Sum(base, at.wrapping_add(n as i64)),
                _ => Known::Sum(v, n as i64),
            };
        }
    }

    // Addresses.

    /// Runs `f` at the end of the entry block.
    pub fn in_prologue<T>(&mut self, f: impl FnOnce(&mut Builder<'f>) -> T) -> T {
        let here = std::mem::replace(&mut self.b.block, self.b.func.entry_block());
        let loc = std::mem::take(&mut self.b.loc);
        let result = f(&mut self.b);
        self.b.block = here;
        self.b.loc = loc;
        result
    }

    /// The memory descriptor of global and generic accesses; sm_75 has none.
    pub fn desc(&mut self) -> Option<Value> {
        let at = self.opts.target.info().mem_desc;
        if at == 0 {
            return None;
        }
        if self.desc.is_none() {
            let op = if self.sm() >= 100 { sass::Opcode::LDCU } else { sass::Opcode::ULDC };
            let v = self.in_prologue(|b| b.def(op, &[sass::Mod::_64], &[constant(0, at.into())]));
            self.desc = Some(v);
        }
        self.desc
    }

    /// The start of the CTA's shared window as 32-bit shared addresses see it: 0 before sm_90, the CTA's
    /// rank in its cluster in bits 24 … 31 from there on.
    pub fn shared_window(&mut self) -> Option<Value> {
        if self.sm() < 90 {
            return None;
        }
        if self.smem.is_none() {
            let v = self.in_prologue(|b| {
                let rank = b.def(sass::Opcode::S2R, &[], &[Operand::Special(sass::SpecialReg::SR_CgaCtaId)]);
                b.shl(operand(rank), imm(24))
            });
            self.smem = Some(v);
        }
        self.smem
    }

    /// The content of the slot of constant bank 4 that holds a symbol's address.
    fn address_slot(&mut self, s: Symbol) -> Result<Src> {
        let at = self.layout.address_slot(s).ok_or("symbol without an address slot")?;
        let v = self.load_const64(4, at);
        Ok(self.value_src(v))
    }

    /// A 64-bit word of constant memory.
    pub fn load_const64(&mut self, bank: u8, at: u32) -> Value {
        let (lo, hi) = (constant(bank, at), constant(bank, at + 4));
        let v = if self.opts.target.info().alu_const && self.sm() < 90 {
            self.b.collect(&[lo, hi])
        } else {
            self.b.def(sass::Opcode::LDC, &[sass::Mod::_64], &[lo])
        };
        self.known[v] = Known::Const(bank, at);
        v
    }

    /// A 32-bit word of constant memory.
    pub fn load_const32(&mut self, bank: u8, at: u32) -> Value {
        let v = if self.opts.target.info().alu_const {
            self.b.copy(constant(bank, at))
        } else {
            self.b.def(sass::Opcode::LDC, &[], &[constant(bank, at)])
        };
        self.known[v] = Known::Const(bank, at);
        v
    }

    /// A parameter's offset in constant bank 0.
    pub fn param_offset(&self, var: VarId) -> Option<u32> {
        self.params.get(&var).copied()
    }

    /// The address of a variable in its own state space, as 64 bits.
    fn address_of(&mut self, var: VarId, offset: i64) -> Result<Src> {
        let space = self.module.vars[var].space;
        let v = match space {
            Space::Global => {
                let base = self.address_slot(Symbol::Var(var))?;
                if offset == 0 {
                    return Ok(base);
                }
                self.b.add64(&base.pair(), &Pair::imm(offset as u64))
            }
            Space::Const | Space::Param => {
                let at = self.bank_offset(var)?.1;
                return Ok(Src::Wide(Pair::imm((i64::from(at) + offset) as u64)));
            }
            Space::Shared => {
                let at = self.shared_offset(var)? + offset;
                match self.shared_window() {
                    None => return Ok(Src::Wide(Pair::imm(at as u64))),
                    Some(w) => {
                        let lo = self.b.iadd(operand(w), imm(at as u32));
                        let v = self.b.collect(&[operand(lo), rz()]);
                        self.known[v] = Known::Shared(at);
                        v
                    }
                }
            }
            Space::Local => {
                let at = self.local_offset(var)? + offset;
                let lo = self.b.iadd(operand(Name::Phys(Reg::SP)), imm(at as u32));
                let v = self.b.collect(&[operand(lo), rz()]);
                self.known[v] = Known::Stack(at);
                v
            }
            Space::Reg => return Err("a register has no address".into()),
        };
        Ok(self.value_src(v))
    }

    fn shared_offset(&self, var: VarId) -> Result<i64> {
        let at = self.layout.shared_offset(self.id, var).ok_or("shared variable is not placed")?;
        Ok(at.into())
    }

    fn local_offset(&self, var: VarId) -> Result<i64> {
        self.locals
            .get(&var)
            .map(|o| i64::from(*o))
            .ok_or_else(|| "local variable of another function".into())
    }

    /// Constant bank and offset of a `.const` variable or kernel parameter.
    pub fn bank_offset(&self, var: VarId) -> Result<(u8, u32)> {
        match self.module.vars[var].space {
            Space::Const => self.layout.const_offset(var).map(|o| (3, o)),
            Space::Param => self.param_offset(var).map(|o| (0, o)),
            _ => None,
        }
        .ok_or_else(|| "variable has no place in constant memory".into())
    }

    /// A global or generic address.
    pub fn address64(&mut self, a: &ptx::Addr) -> Result<Address> {
        let base = match a.base {
            AddrBase::Reg(r) => {
                let v = self.read(r);
                if self.b.func.values[v].width != 2 {
                    let p = self.value_src(v).pair();
                    self.b.pair(&p)
                } else {
                    v
                }
            }
            AddrBase::Var(var) => {
                let s = match self.module.vars[var].space {
                    Space::Global => self.address_slot(Symbol::Var(var))?,
                    _ => return Err("variable of another state space".into()),
                };
                self.b.pair(&s.pair())
            }
            AddrBase::Absolute => self.b.pair(&Pair::imm(0)),
        };
        // A sum with a constant is left to the instruction.
        let (base, offset) = match self.known[base] {
            Known::Sum(b, at) if in_range(at.saturating_add(a.offset)) => (b, at + a.offset),
            _ => (base, a.offset),
        };
        let (base, offset) = if in_range(offset) {
            (base, offset as i32)
        } else {
            (self.b.add64(&Pair::of(base), &Pair::imm(offset as u64)), 0)
        };
        Ok(Address { base: Some(Name::Val(base)), wide: true, offset })
    }

    /// A 32-bit shared or local address.
    pub fn address32(&mut self, a: &ptx::Addr, space: Space) -> Result<Address> {
        let (base, at) = match a.base {
            AddrBase::Var(var) if space == Space::Shared => {
                let at = self.shared_offset(var)?;
                (self.shared_window().map(Name::Val), at)
            }
            AddrBase::Var(var) => (Some(Name::Phys(Reg::SP)), self.local_offset(var)?),
            AddrBase::Absolute => (None, 0),
            AddrBase::Reg(r) => {
                let v = self.read(r);
                match (self.known[v], space) {
                    (Known::Stack(at), Space::Local) => (Some(Name::Phys(Reg::SP)), at),
                    (Known::Shared(at), Space::Shared) => (self.shared_window().map(Name::Val), at),
                    (Known::Imm(n), _) => (None, i64::from(n as u32)),
                    _ => (Some(self.low_name(v)), 0),
                }
            }
        };
        let at = at + a.offset;
        if in_range(at) {
            return Ok(Address { base, wide: false, offset: at as i32 });
        }
        let lo = base.map_or_else(rz, operand);
        let sum = self.b.iadd(lo, imm(at as u32));
        Ok(Address { base: Some(Name::Val(sum)), wide: false, offset: 0 })
    }

    /// A constant-memory operand and whether it is at a fixed offset.
    pub fn address_const(&mut self, a: &ptx::Addr) -> Result<(Operand, Option<(u8, u32)>)> {
        let (bank, at, index) = match a.base {
            AddrBase::Var(var) => {
                let (bank, at) = self.bank_offset(var)?;
                (bank, i64::from(at), None)
            }
            AddrBase::Absolute => (3, 0, None),
            AddrBase::Reg(r) => {
                let v = self.read(r);
                match self.known[v] {
                    Known::Imm(n) => (3, i64::from(n as u32), None),
                    _ => (3, 0, Some(self.low_name(v))),
                }
            }
        };
        self.const_operand(bank, at + a.offset, index)
    }

    /// `c[bank][index + at]`.
    pub fn const_operand(
        &mut self,
        bank: u8,
        at: i64,
        index: Option<Name>,
    ) -> Result<(Operand, Option<(u8, u32)>)> {
        match index {
            None if (0..0x10000).contains(&at) => Ok((constant(bank, at as u32), Some((bank, at as u32)))),
            None => Err("constant address out of range".into()),
            Some(index) if (-0x8000..0x8000).contains(&at) => {
                Ok((crate::emit::indexed_constant(bank, Some(index), at as i32), None))
            }
            Some(index) => {
                let sum = self.b.iadd(operand(index), imm(at as u32));
                Ok((crate::emit::indexed_constant(bank, Some(Name::Val(sum)), 0), None))
            }
        }
    }

    /// The low register of a value, as an address base or index.
    pub fn low_name(&mut self, v: Value) -> Name {
        if self.b.func.values[v].width == 1 { Name::Val(v) } else { Name::Part(v, 0) }
    }

    /// Ends the construction: entry block, undefined values, SSA.
    fn finish(mut self) {
        let entry = self.b.func.entry_block();
        let first = self.ssa.head(PtxBlock(0));
        self.b.block = entry;
        self.b.loc = Loc::default();
        self.b.terminate(Terminator::Jump(Builder::call(first)));
        let func: &mut Function = self.b.func;
        let undefined = self.ssa.finish(func);
        let used = used_values(func);
        crate::atomics::drop_results(func, &used);
        for v in undefined.into_iter().filter(|v| used[*v]) {
            let data = InstData {
                guard: ALWAYS,
                op: Op::Macro(Macro::Undef),
                mods: Mods::none(),
                operands: SmallVec::from_iter([operand(v)]),
                kept: SmallVec::new(),
                loc: Loc::default(),
            };
            let inst = func.insts.push(data);
            func.blocks[entry].insts.insert(0, inst);
        }
    }
}

/// The values that anything reads.
fn used_values(func: &Function) -> SecondaryMap<Value, bool> {
    let mut used = SecondaryMap::with_capacity(func.value_count());
    for b in func.blocks.values() {
        for i in &b.insts {
            func.insts[*i].for_each_use(|n| {
                if let Some(v) = n.value() {
                    used[v] = true;
                }
            });
        }
        if let Some(v) = b.term.used_name().and_then(Name::value) {
            used[v] = true;
        }
        for a in b.term.targets().iter().flat_map(|t| &t.args) {
            used[*a] = true;
        }
    }
    used
}

/// Whether an address offset fits the 24 bits of a memory instruction.
fn in_range(offset: i64) -> bool {
    (-(1 << 23)..1 << 23).contains(&offset)
}

/// A place in a block; see [`Lower::assign`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    block: Block,
    count: usize,
}
