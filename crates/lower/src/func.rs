//! The walk over a function: control-flow graph, registers, operands, guards.

use crate::call::{self, Home};
use crate::emit::Emit;
use crate::graph::Graph;
use thin_vec::{ThinVec, thin_vec};

use crate::ssa::{PtxBlock, Ssa, Var};
use crate::stack;
use crate::statement::Statement;
use crate::types::{Kind, Ty};
use crate::{Diagnostic, ModuleLayout, Options, Refusal};
use cranelift_entity::{EntityRef, SecondaryMap};
use ori::{
    ALWAYS, Block, BlockCall, Builder, Function, Guard, InstData, Loc, Macro, Name, Op, Terminator, Value,
    ValueData, operand,
};
use ptx::{Func, FuncId, Mod as M, Module, Op as O, Space, Stmt, Type, TypeClass, VarId};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::{Mod, Mods, Opcode, RegFile};

/// What lowering a statement comes to.
pub type Result<T> = std::result::Result<T, Refusal>;

/// What is known about a value beyond its definition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Known {
    #[default]
    Nothing,
    /// This number.
    Imm(u64),
    /// The content of constant memory at this bank and offset.
    Const(u8, u32),
    /// The handle of a texture or surface whose word is at this offset of constant bank 0.
    Image(u32),
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
    pub(crate) ssa: Ssa,
    pub(crate) block: PtxBlock,
    /// Guard of the current instruction.
    pub guard: Guard,
    pub(crate) known: SecondaryMap<Value, Known>,
    pub(crate) params: FxHashMap<VarId, u32>,
    pub(crate) locals: FxHashMap<VarId, u32>,
    pub(crate) desc: Option<Value>,
    pub(crate) smem: Option<Value>,
    /// Values written since a side branch was entered, with what they replaced.
    pub(crate) region: Option<Vec<(Var, Value)>>,
    pub(crate) carry: Var,
    /// The lowest address of the stack that is in use, if the code allocates on it.
    pub(crate) stack: Option<Var>,
    /// Where `.param` variables of the code live.
    pub(crate) homes: FxHashMap<VarId, Home>,
    /// The stack pointer of the caller, once it is needed.
    pub(crate) frame_top: Option<Value>,
    /// Where a device function returns to.
    pub(crate) return_address: Option<[Value; 2]>,
    /// Products of warp groups and their accumulators.
    pub(crate) groups: crate::matrix::Plan,
    /// Handles that stay the same.
    pub(crate) handles: crate::handles::Handles,
    /// Registers whose upper halves the code looks at before it divides.
    pub(crate) looked_at: FxHashSet<ptx::RegId>,
    /// Whether `setmaxnreg` does something.
    pub(crate) changes_registers: bool,
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
    if module.address_size != 64 {
        return Err(whole("only .address_size 64 is supported"));
    }
    let graph = Graph::new(body, func.entry).map_err(|r| whole(&r.to_string()))?;
    let mut out = Function::new(&func.name, opts.target);
    out.entry = func.entry;
    out.relocatable = opts.relocatable;
    out.apart = opts.apart;
    if opts.relocatable && !func.entry {
        out.convention = crate::call::convention(func);
    }
    out.extra = opts.extra;
    out.shared_size = if opts.relocatable { 0 } else { layout.shared_size(id) };
    out.max_regs = max_regs(func, opts);
    let start = match func.entry && !opts.steady_registers {
        true => crate::pool::start(module, id, layout, opts).and_then(|s| s.ok()),
        false => None,
    };
    out.max_regs = start.unwrap_or(out.max_regs);
    out.aim_regs = aim_regs(func, opts, out.shared_size).min(out.max_regs);
    if func.entry {
        out.threads = threads(func);
    }
    let insts = body.stmts.iter().filter_map(|s| if let ptx::Stmt::Inst(i) = s { Some(i) } else { None });
    let looked_at = crate::arith_int::looked_at(insts.clone());
    // What it calls counts on a number of registers.
    if opts.opt_level > 0 && !out.calls_absolutely() && start.is_none() {
        out.shared_paths = crate::math::shared_paths(insts);
    }
    let entry = out.entry_block();

    let (offsets, _) = module.param_layout(func);
    let base = u32::from(crate::layout::param_base(module, func, opts.target));
    let params = match func.entry {
        true => func.params.iter().zip(&offsets).map(|(v, o)| (*v, base + o)).collect(),
        false => FxHashMap::default(),
    };
    let mut vars: Vec<ValueData> = Vec::with_capacity(body.regs.len() + 1);
    for reg in body.regs.values() {
        vars.push(reg_shape(reg.ty));
    }
    let carry = Var(vars.len() as u32);
    vars.push(ValueData { file: RegFile::P, width: 1 });
    let stack_var = stack::allocates(body).then(|| {
        vars.push(ValueData { file: RegFile::R, width: 1 });
        Var(vars.len() as u32 - 1)
    });
    let groups = crate::matrix::Plan::new(body, &graph, &mut vars);
    let (homes, stack, align) = call::place_params(module, func, body, &mut vars, opts.relocatable);
    out.local_size = stack;
    out.local_align = align;

    let mut locals = FxHashMap::default();
    for &v in &body.vars {
        let var = &module.vars[v];
        if var.space == Space::Local {
            let at = out.local_size.next_multiple_of(var.align.max(1));
            locals.insert(v, at);
            out.locals.push((var.name.to_string(), at));
            out.local_align = out.local_align.max(var.align);
            out.local_size = at + var.size() as u32;
        }
    }
    out.local_size = out.local_size.next_multiple_of(8);

    let n = graph.ranges.len();
    let prologue = PtxBlock(n as u32);
    let order = graph.order();
    let mut reachable = vec![false; n];
    order.iter().for_each(|k| reachable[*k as usize] = true);
    let ranks: Vec<PtxBlock> = std::iter::once(prologue).chain(order.iter().map(|k| PtxBlock(*k))).collect();
    let succs = |k: &u32| {
        graph.succs[*k as usize].iter().map({
            let from = PtxBlock(*k);
            move |s| (from, PtxBlock(*s))
        })
    };
    let edges = std::iter::once((prologue, PtxBlock(0))).chain(order.iter().flat_map(succs));
    let mut ssa = Ssa::new(&ranks, edges, vars);
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
        stack: stack_var,
        homes,
        frame_top: None,
        return_address: None,
        groups,
        handles: crate::handles::Handles::new(body),
        looked_at,
        changes_registers: start.is_some(),
    };
    if !func.entry {
        lower.enter_function(func, body, prologue).map_err(|r| whole(&r.to_string()))?;
    }
    if let Some(var) = stack_var {
        let low = lower.b.iadd(operand(Name::Phys(sass::Reg::SP)), crate::emit::rz());
        let here = std::mem::replace(&mut lower.block, prologue);
        lower.write_var(var, low);
        lower.block = here;
    }
    let mut errors = Vec::new();
    // Ori blocks made while lowering each PTX block, for the final layout.
    let mut made: Vec<Vec<Block>> = vec![Vec::new(); n];
    for &k in &order {
        let before = lower.b.func.blocks.len();
        if k as usize == n - 1 && !func.entry {
            lower.return_block(func, body, k, &mut errors);
        } else {
            lower.block(&graph, body, k, &mut errors);
        }
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
    return_addresses_fit(&out).map_err(|r| whole(&r.to_string()))?;
    Ok(out)
}

/// Conventions of one's own may put the return address above the registers that there are.
fn return_addresses_fit(func: &Function) -> Result<()> {
    let own = Some(func.convention).filter(|_| !func.entry);
    let called = func.callees.iter().map(|c| func.convention_of(c));
    let mut own = own.into_iter().chain(called).filter(|c| c.registers.is_some());
    let end = func.max_regs.saturating_sub(sass::target::HARDWARE_REGISTERS);
    match own.find(|c| c.return_address() + 1 >= end) {
        Some(c) => Err(Refusal::ReturnAddress { at: c.return_address(), end }),
        None => Ok(()),
    }
}

/// Registers to aim at in a kernel, as ptxas does: those with which as many threads fit into a multiprocessor as launch
/// bounds and static shared memory leave room for.
fn aim_regs(func: &Func, opts: &Options<'_>, shared_size: u32) -> u8 {
    let info = opts.target.info();
    if let Some(n) = func.attrs.maxnreg.or(opts.maxrregcount) {
        return n.min(255) as u8;
    }
    let all = u32::from(info.threads);
    let Some(d) = func.attrs.reqntid.or(func.attrs.maxntid) else { return info.full_registers() };
    let threads = d.iter().fold(1u32, |n, d| n.saturating_mul(*d)).clamp(1, all);
    let blocks = func.attrs.minnctapersm.filter(|n| threads.saturating_mul(*n) <= all).unwrap_or(u32::MAX);
    let by_shared = u32::from(info.shared_kib) * 1024 / (shared_size.next_multiple_of(128) + 1024);
    let blocks = blocks.min(all / threads).min(info.blocks.into()).min(by_shared).max(1);
    let warps = threads.div_ceil(32).next_multiple_of(4);
    sass::target::SmInfo::registers_for(32 * warps.saturating_mul(blocks)).max(info.full_registers())
}

/// The most threads of a block in each direction: what `.reqntid` says; `.maxntid` is about their number.
fn threads(func: &Func) -> [u32; 3] {
    let all = |d: [u32; 3]| d.iter().fold(1u32, |n, d| n.saturating_mul((*d).max(1)));
    let most = match (func.attrs.reqntid, func.attrs.maxntid) {
        (Some(exact), _) => exact.map(|n| n.max(1)),
        (None, Some(d)) => [all(d); 3],
        (None, None) => return ori::MOST_THREADS,
    };
    [0, 1, 2].map(|k| most[k].min(ori::MOST_THREADS[k]))
}

/// The threads of a block that launch bounds allow, if a multiprocessor has so many: else ptxas ignores them.
fn possible_threads(func: &Func, opts: &Options<'_>) -> Option<u32> {
    let d = func.attrs.reqntid.or(func.attrs.maxntid)?;
    let threads = d.iter().fold(1u32, |n, d| n.saturating_mul(*d)).max(1);
    (threads <= opts.target.info().threads.into()).then_some(threads)
}

/// The blocks that a multiprocessor is to hold, if it can hold so many of as many threads: else ptxas ignores them.
fn possible_blocks(func: &Func, opts: &Options<'_>) -> Option<u32> {
    let info = opts.target.info();
    let warps = possible_threads(func, opts)?.div_ceil(32);
    let possible =
        |n: &u32| (32 * warps).saturating_mul(*n) <= info.threads.into() && *n <= info.blocks.into();
    func.attrs.minnctapersm.filter(|n| *n > 0).filter(possible)
}

/// Whether it is known how many registers the threads of a kernel start with, however many it needs.
pub(crate) fn starts_known(func: &Func, opts: &Options<'_>) -> bool {
    let by_option = possible_threads(func, opts).is_none() && opts.maxrregcount.is_some();
    func.attrs.maxnreg.is_some() || by_option || possible_blocks(func, opts).is_some()
}

/// Most registers that may be stated for a kernel, from `.maxnreg`, launch bounds and options.
pub fn max_regs(func: &Func, opts: &Options<'_>) -> u8 {
    let own = func.attrs.maxnreg;
    let mut limit = 255;
    if let Some(threads) = possible_threads(func, opts) {
        // As many registers as leave room for the CTAs, if there can be so many: 64 Ki registers, granted by the
        // warp in units of 256; the warps of all CTAs come in fours.
        let warps = threads.div_ceil(32);
        let ctas = possible_blocks(func, opts);
        // A limit of its own goes before that of one CTA, and not before a promise of several.
        if ctas.is_some() || own.is_none() {
            let warps = (warps * ctas.unwrap_or(1)).next_multiple_of(4);
            limit = (65536 / 32 / warps) & !7;
        }
    } else if own.is_none() {
        limit = opts.maxrregcount.unwrap_or(limit);
    }
    limit = limit.min(own.unwrap_or(limit));
    limit.clamp(sass::target::LEAST_LIMIT.into(), 255) as u8
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
        Type::f16x2 => Kind::F16x2,
        Type::bf16x2 => Kind::Bf16x2,
        Type::f32x2 => Kind::F32x2,
        Type::u16x2 => Kind::U16x2,
        Type::s16x2 => Kind::S16x2,
        Type::u8x4 => Kind::U8x4,
        Type::s8x4 => Kind::S8x4,
        Type::pred => return Ty { kind: Kind::Pred, bits: 1 },
        t => match t.class() {
            TypeClass::Bits if t.bits() <= 128 => Kind::Bits,
            TypeClass::Unsigned => Kind::Unsigned,
            TypeClass::Signed => Kind::Signed,
            _ => Kind::Packed,
        },
    };
    Ty { kind, bits: t.bits() as u8 }
}

impl<'a, 'f> Lower<'a, 'f> {
    /// Lowers the block at the end of a device function, to which all its returns lead.
    fn return_block(&mut self, func: &Func, body: &ptx::Body, k: u32, errors: &mut Vec<Diagnostic>) {
        self.block = PtxBlock(k);
        self.b.block = self.ssa.head(self.block);
        if let Err(refusal) = self.return_here(func, body) {
            errors.push(Diagnostic::error(func.span, refusal));
        }
        self.ssa.set_tail(self.block, self.b.block);
    }

    /// Lets the warp sleep for a random time of up to a microsecond before a statement that writes what other threads see,
    /// where ptxas does: stores, atomic operations, copies to shared memory other than bulk ones.
    fn steer(&mut self, inst: &ptx::Inst) {
        let own = [M::local, M::param, M::param_func, M::param_entry, M::_async, M::bulk];
        let writes = match inst.op {
            O::st => inst.one_of(&own).is_none(),
            O::atom | O::red => true,
            O::cp => {
                inst.one_of(&[M::ca, M::cg]).is_some() && inst.one_of(&own).is_none_or(|m| m == M::_async)
            }
            _ => false,
        };
        if writes {
            let whole: &[Mod] =
                if self.opts.target.sm == 75 { &[Mod::RAND, Mod::WARP] } else { &[Mod::RAND] };
            self.b.inst(Opcode::NANOSLEEP, whole, &[ori::Operand::Imm(1000)]);
        }
    }

    /// Lowers PTX block `k`.
    fn block(&mut self, graph: &Graph, body: &'a ptx::Body, k: u32, errors: &mut Vec<Diagnostic>) {
        self.block = PtxBlock(k);
        self.b.block = self.ssa.head(self.block);
        let mut ended = false;
        let stmts = &body.stmts[graph.ranges[k as usize].clone()];
        self.b.func.blocks[self.b.block].rolled =
            stmts.iter().any(|s| matches!(s, Stmt::Pragma(text) if text == "nounroll"));
        let mut placed = false;
        for stmt in stmts {
            if let Stmt::Loc(loc) = stmt {
                placed |= self.opts.extra.places && loc.line != 0;
            }
            let Stmt::Inst(inst) = stmt else { continue };
            self.b.loc = Loc(self.opts.lines.map_or(0, |l| l.line(inst.span.start)));
            if std::mem::take(&mut placed) {
                self.b.inst(Opcode::NOP, &[], &[]);
            }
            let result = if graph.is_terminator(inst) {
                ended = true;
                self.put_accumulators_together();
                terminator_asked(inst).and_then(|()| self.terminator(graph, inst, k))
            } else {
                if self.opts.extra.steer {
                    self.steer(inst);
                }
                self.guarded_inst(inst)
            };
            if let Err(refusal) = result {
                errors.push(Diagnostic::error(inst.span, refusal));
            }
        }
        if !ended {
            self.put_accumulators_together();
            let term = match graph.succs[k as usize].first() {
                Some(&s) => Terminator::Jump(Builder::call(self.ssa.head(PtxBlock(s)))),
                None => Terminator::Exit,
            };
            self.b.terminate(term);
        }
        self.ssa.set_tail(self.block, self.b.block);
    }

    fn terminator(&mut self, graph: &Graph, inst: &ptx::Inst, k: u32) -> Result<()> {
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
                    self.b.block = then;
                }
                self.b.terminate(Terminator::Switch { index, table });
            }
            ptx::Op::ret if !graph.entry => {
                let taken = to(self, graph.ranges.len() as u32 - 1);
                let term = match inst.guard {
                    None => Terminator::Jump(taken),
                    Some((p, not)) => {
                        let cond = Name::Val(self.read(p));
                        Terminator::Branch { cond, not, taken, fall: to(self, k + 1) }
                    }
                };
                self.b.terminate(term);
            }
            _ => self.b.terminate(Terminator::Exit),
        }
        Ok(())
    }

    fn guarded_inst(&mut self, inst: &ptx::Inst) -> Result<()> {
        self.guard = match inst.guard {
            None => ALWAYS,
            Some((p, not)) => Guard { pred: Name::Val(self.read(p)), not },
        };
        // ptxas's fences are under no guard: it branches around them. From sm_90 on those in front of stores are.
        let stores = matches!(inst.op, ptx::Op::st | ptx::Op::red) && self.b.func.target.sm >= 90;
        let apart = has_fence(inst) && !stores;
        let said = Statement::new(inst);
        let result = if apart { self.branch_around(|l| l.inst(&said)) } else { self.inst(&said) };
        self.guard = ALWAYS;
        result?;
        all_asked(&said)
    }

    fn inst(&mut self, inst: &Statement<'_>) -> Result<()> {
        use ptx::Op as O;
        match inst.op {
            O::ld | O::ldu => self.ld(inst),
            O::st => self.st(inst),
            O::prefetch | O::prefetchu | O::discard | O::applypriority => self.cache_control(inst),
            O::createpolicy => self.createpolicy(inst),
            O::cp => self.copy_async(inst),
            O::mbarrier => self.mbarrier(inst),
            O::isspacep => self.isspacep(inst),
            O::mapa => self.mapa(inst),
            O::getctarank => self.getctarank(inst),
            O::atom | O::red => self.atomic(inst),
            O::membar | O::fence => self.fence(inst),
            O::ret | O::exit => self.exit(),
            O::bar | O::barrier => self.barrier(inst),
            O::trap | O::brkpt | O::nanosleep | O::pmevent | O::griddepcontrol => self.misc(inst),
            O::shfl | O::vote | O::_match | O::redux | O::activemask | O::elect => self.warp(inst),
            O::call => self.call(inst.plain),
            O::ldmatrix | O::stmatrix | O::movmatrix => self.matrix_move(inst),
            O::mma | O::wmma => self.matrix(inst),
            O::wgmma => self.group(inst),
            O::tcgen05 => self.tensor_memory(inst),
            O::tex | O::tld4 => self.texture(inst),
            O::txq | O::suq => self.texture_query(inst),
            O::istypep => self.handle_type(inst),
            O::suld => self.surface_load(inst),
            O::sust => self.surface_store(inst),
            O::sured => self.surface_reduce(inst),
            O::alloca | O::stacksave | O::stackrestore => self.dynamic_stack(inst),
            O::clusterlaunchcontrol => self.cluster_launch(inst),
            O::setmaxnreg => self.register_count(inst),
            O::multimem => self.multimem(inst),
            O::tensormap => self.tensor_map_change(inst),
            _ => self.scalar(inst),
        }
    }

    /// A message about an instruction that this version does not know.
    pub fn unsupported<T>(&self, inst: &Statement<'_>) -> Result<T> {
        let mods: String = inst.plain.mods.iter().map(|m| format!(".{}", m.name())).collect();
        Err(Refusal::Instruction(format!("{}{mods}", inst.op.name())))
    }

    /// SM number.
    pub fn sm(&self) -> u8 {
        self.opts.target.sm
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
        // What is passed on and read by nobody would count as used.
        ori::dead::remove_params(func);
        ori::dead::drop_results(func);
        let used = ori::dead::read(func);
        for v in undefined.into_iter().filter(|v| used[*v]) {
            let data = InstData {
                guard: ALWAYS,
                op: Op::Macro(Macro::Undef),
                mods: Mods::none(),
                operands: thin_vec![operand(v)],
                kept: ThinVec::new(),
                loc: Loc::default(),
            };
            let inst = func.insts.push(data);
            func.blocks[entry].insts.insert(0, inst);
        }
    }
}

/// What ends blocks has words without effect only.
fn terminator_asked(inst: &ptx::Inst) -> Result<()> {
    let said = Statement::new(inst);
    said.has(ptx::Mod::idx);
    all_asked(&said)
}

/// A word that nothing asked for would be lost.
fn all_asked(inst: &Statement<'_>) -> Result<()> {
    if let Some(m) = inst.left_over() {
        return Err(Refusal::ModifierUnread(m, inst.op));
    }
    match inst.operand_left_over() {
        Some(at) => Err(Refusal::OperandUnread(at, inst.op)),
        None => Ok(()),
    }
}

/// Whether a fence is part of what the statement becomes.
fn has_fence(inst: &ptx::Inst) -> bool {
    use ptx::Op as O;
    match inst.op {
        O::membar | O::fence => true,
        O::ld | O::st | O::atom | O::red => {
            inst.one_of(&[ptx::Mod::acquire, ptx::Mod::release, ptx::Mod::acq_rel]).is_some()
        }
        _ => false,
    }
}
