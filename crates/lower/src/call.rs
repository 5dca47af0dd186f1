//! Calls, and the parameters and results of device functions.
//!
//! What PTX passes through `.param` variables is kept as one variable of the SSA construction for each 4 bytes,
//! and goes from and to the registers of [`ori::abi`] at calls, entries and returns. Aggregates that the
//! convention passes in memory are in the caller's stack frame.

use crate::access::{self, Access, Address, Order, Space as AccessSpace};
use crate::emit::{Emit, Pair, imm, rz};
use crate::func::{Lower, Result};
use crate::own_address::{Origins, Whose};
use crate::ssa::{PtxBlock, Var};
use crate::types::{Src, Ty};
use ori::abi::{self, Convention, Place};
use ori::{ALWAYS, Builder, Callee, Macro, Name, Operand, Terminator, Value, ValueData, operand};
use ptx::{Func, FuncId, Inst, Module, RegId, Space, Stmt, Symbol, VarId};
use rustc_hash::FxHashMap;
use sass::{Reg, RegFile};

/// Where a `.param` variable of a function's code lives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Home {
    /// This many variables, one for each 4 bytes.
    Words(Var, u32),
    /// Bytes from the stack pointer.
    Frame(u32),
    /// Bytes from the caller's stack pointer.
    Incoming(u32),
    /// Where this points to in local memory.
    Pointer(Value),
}

/// What a function takes and gives.
pub(crate) struct Signature {
    /// Places of the parameters.
    pub params: Vec<Place>,
    /// Bytes of stack that they take.
    pub stack: u32,
    /// What those must be aligned to.
    pub align: u32,
    /// Registers of the results; `None` if they are in memory.
    pub results: Option<Vec<u8>>,
    /// Where those in registers are.
    pub registers: abi::ArgumentRegisters,
}

fn shape(module: &Module, v: VarId) -> (u32, u32) {
    let var = &module.vars[v];
    (var.size().min(1 << 20) as u32, var.align)
}

/// The calling convention of a function, as the function sees it.
pub(crate) fn signature(module: &Module, func: &Func, relocatable: bool) -> Signature {
    signature_with(module, func, 0, relocatable)
}

/// The calling convention of a call. What a last parameter without a size takes is up to the call.
fn call_signature(
    module: &Module,
    header: &Func,
    arguments: &[ptx::Operand],
    relocatable: bool,
) -> Signature {
    let last = match arguments.last() {
        Some(ptx::Operand::Var(v, 0)) if arguments.len() == header.params.len() => shape(module, *v).0,
        _ => 0,
    };
    signature_with(module, header, last, relocatable)
}

/// How a function with this header is called in an object.
pub fn convention(func: &Func) -> Convention {
    let narrow = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
    Convention {
        registers: func.attrs.abi_preserve.map(narrow),
        barriers: func.attrs.abi_preserve_control.map_or(abi::FIRST_KEPT_BARRIER, narrow),
    }
}

/// The words that the parameters of a function with this header take, or its results, if these take more.
pub fn argument_words(module: &Module, func: &Func) -> u32 {
    let words = |list: &[VarId]| {
        abi::span(list.iter().map(|v| {
            let (size, align) = shape(module, *v);
            (if module.vars[*v].is_unsized() { 0 } else { size }, align)
        }))
    };
    words(&func.params).max(words(&func.returns))
}

/// A last parameter without a size is always on the stack; here it takes this many bytes. Conventions of functions' own are those of
/// `relocatable` code alone.
fn signature_with(module: &Module, func: &Func, last: u32, relocatable: bool) -> Signature {
    let own = if relocatable { convention(func) } else { Convention::default() };
    // What takes more registers than there are was refused.
    let registers =
        own.argument_registers(argument_words(module, func)).unwrap_or(abi::ArgumentRegisters::USUAL);
    let (places, stack) = abi::assign(func.returns.iter().map(|v| shape(module, *v)), registers);
    let results = (stack == 0).then(|| {
        let register = |p: &Place| if let Place::Regs(r) = p { *r } else { registers.first };
        places.iter().map(register).collect()
    });
    // The address of the results comes first.
    let hidden = results.is_none().then_some((4, 4));
    let sized = func.params.iter().filter(|v| !module.vars[**v].is_unsized());
    let shapes = hidden.into_iter().chain(sized.map(|v| shape(module, *v)));
    let (mut params, mut stack) = abi::assign(shapes, registers);
    if results.is_none() {
        params.remove(0);
    }
    if let Some(v) = func.params.last().filter(|v| module.vars[**v].is_unsized()) {
        let at = stack.next_multiple_of(shape(module, *v).1.max(4));
        params.push(Place::Stack(at));
        stack = at + last.next_multiple_of(4);
    }
    let in_memory = func.params.iter().zip(&params).filter(|(_, p)| matches!(p, Place::Stack(_)));
    let align = in_memory.map(|(v, _)| shape(module, *v).1).max().unwrap_or(1);
    Signature { params, stack, align, results, registers }
}

/// The parts of a call: results, callee, arguments, table or prototype.
pub(crate) struct Parts<'i> {
    pub results: &'i [ptx::Operand],
    pub callee: &'i ptx::Operand,
    pub arguments: &'i [ptx::Operand],
    pub label: Option<ptx::LabelId>,
}

pub(crate) fn parts(inst: &Inst) -> Option<Parts<'_>> {
    let mut ops = inst.operands.iter().peekable();
    let results = match ops.peek() {
        Some(ptx::Operand::List(l)) => {
            ops.next();
            &l[..]
        }
        _ => &[],
    };
    let callee = ops.next()?;
    let arguments = match ops.peek() {
        Some(ptx::Operand::List(l)) => {
            ops.next();
            &l[..]
        }
        _ => &[],
    };
    let label = match ops.next() {
        Some(ptx::Operand::Label(l)) => Some(*l),
        _ => None,
    };
    Some(Parts { results, callee, arguments, label })
}

/// The function whose header says what a call passes.
pub(crate) fn prototype(body: &ptx::Body, p: &Parts<'_>) -> Option<FuncId> {
    if let ptx::Operand::Func(f) = p.callee {
        return Some(*f);
    }
    let label = p.label?;
    body.stmts.iter().find_map(|s| match s {
        Stmt::CallTargets(l, funcs) if *l == label => funcs.first().copied(),
        Stmt::CallPrototype(l, f) if *l == label => Some(*f),
        _ => None,
    })
}

/// The parameters and results of a function whose address its code takes.
fn addressed(module: &Module, func: &Func, body: &ptx::Body) -> Vec<VarId> {
    let mut found = Vec::new();
    for stmt in &body.stmts {
        let Stmt::Inst(inst) = stmt else { continue };
        if inst.op == ptx::Op::call {
            continue;
        }
        for o in &inst.operands {
            if let ptx::Operand::Var(v, _) = o
                && module.vars[*v].space == Space::Param
                && (func.params.contains(v) || func.returns.contains(v))
                && !found.contains(v)
            {
                found.push(*v);
            }
        }
    }
    found
}

/// Places the `.param` variables of a function: makes variables for those in registers and reserves stack for the
/// others, the arguments of calls at the bottom. Returns the homes, the bytes of stack used, and their alignment.
pub(crate) fn place_params(
    module: &Module,
    func: &Func,
    body: &ptx::Body,
    vars: &mut Vec<ValueData>,
    relocatable: bool,
) -> (FxHashMap<VarId, Home>, u32, u32) {
    let mut homes = FxHashMap::default();
    let (mut outgoing, mut most) = (0, 1);
    let mut in_memory: Vec<VarId> = Vec::new();
    for stmt in &body.stmts {
        let Stmt::Inst(inst) = stmt else { continue };
        if inst.op != ptx::Op::call {
            continue;
        }
        let Some(p) = parts(inst) else { continue };
        let Some(callee) = prototype(body, &p) else { continue };
        let sig = call_signature(module, &module.funcs[callee], p.arguments, relocatable);
        outgoing = outgoing.max(sig.stack);
        most = most.max(sig.align);
        if sig.results.is_none() {
            in_memory.extend(p.results.iter().filter_map(|o| match o {
                ptx::Operand::Var(v, _) => Some(*v),
                _ => None,
            }));
        }
    }
    let mut at = outgoing.next_multiple_of(16);
    let mut words = |v: VarId, homes: &mut FxHashMap<VarId, Home>| {
        let n = shape(module, v).0.div_ceil(4).max(1);
        homes.insert(v, Home::Words(Var(vars.len() as u32), n));
        vars.extend((0..n).map(|_| ValueData { file: RegFile::R, width: 1 }));
    };
    let mut memory = |v: VarId, homes: &mut FxHashMap<VarId, Home>| {
        let (size, align) = shape(module, v);
        at = at.next_multiple_of(align.max(4));
        homes.insert(v, Home::Frame(at));
        at += size.next_multiple_of(4);
        most = most.max(align);
    };
    if !func.entry {
        let sig = signature(module, func, relocatable);
        let addressed = addressed(module, func, body);
        for (v, place) in func.params.iter().zip(&sig.params) {
            match place {
                Place::Regs(_) if addressed.contains(v) => memory(*v, &mut homes),
                Place::Regs(_) => words(*v, &mut homes),
                Place::Stack(at) => {
                    homes.insert(*v, Home::Incoming(*at));
                }
            }
        }
        if sig.results.is_some() {
            for v in &func.returns {
                if addressed.contains(v) {
                    memory(*v, &mut homes);
                } else {
                    words(*v, &mut homes);
                }
            }
        }
    }
    for &v in body.vars.iter().filter(|v| module.vars[**v].space == Space::Param) {
        if homes.contains_key(&v) || func.params.contains(&v) || func.returns.contains(&v) {
            continue;
        }
        if in_memory.contains(&v) {
            memory(v, &mut homes);
        } else {
            words(v, &mut homes);
        }
    }
    (homes, at, most)
}

/// The register of a `.reg` formal parameter or result.
pub(crate) fn formal_register(module: &Module, body: &ptx::Body, v: VarId) -> Option<RegId> {
    let var = &module.vars[v];
    (var.space == Space::Reg)
        .then(|| body.regs.iter().find(|(_, r)| r.name == var.name).map(|(id, _)| id))
        .flatten()
}

/// Appends a macro-operation.
pub(crate) fn macro_inst(b: &mut Builder<'_>, m: Macro, operands: &[Operand]) {
    b.raw(ori::InstData {
        guard: ALWAYS,
        op: ori::Op::Macro(m),
        mods: sass::Mods::none(),
        operands: operands.iter().cloned().collect(),
        kept: thin_vec::ThinVec::new(),
        loc: b.loc,
    });
}

/// General register `r` as an operand.
pub(crate) fn register(r: u8) -> Operand {
    operand(Name::Phys(Reg::r(r)))
}

/// What register `r` holds.
pub(crate) fn take_register(b: &mut Builder<'_>, r: u8) -> Value {
    b.def_macro(Macro::FromReg, RegFile::R, 1, &[register(r)])
}

/// Puts a word into register `r`.
pub(crate) fn give_register(b: &mut Builder<'_>, r: u8, source: Operand) {
    macro_inst(b, Macro::ToReg, &[register(r), source]);
}

/// A function that others call by this name, within `max_regs` registers: it follows the convention of device functions as far
/// as [`abi::clobbered_by`] says. `body` gives its results to registers, and says which.
pub(crate) fn internal_function(
    name: &str,
    target: sass::Target,
    max_regs: u8,
    body: impl FnOnce(&mut Builder<'_>) -> Vec<Operand>,
) -> ori::Function {
    let mut func = ori::Function::new(name, target);
    func.entry = false;
    func.max_regs = max_regs.min(abi::SHARED_REGISTERS + sass::target::HARDWARE_REGISTERS);
    let entry = func.entry_block();
    let mut b = Builder::new(&mut func, entry);
    let ra = abi::RETURN_ADDRESS;
    let back = [take_register(&mut b, ra), take_register(&mut b, ra + 1)];
    let kept = body(&mut b);
    for (r, v) in (ra..).zip(back) {
        give_register(&mut b, r, operand(v));
    }
    macro_inst(&mut b, Macro::Keep, &kept);
    b.terminate(ori::Terminator::Return(Name::Phys(Reg::r(ra))));
    func
}

/// The return address, and a call with arguments in registers and, if it needs one, an address.
pub(crate) fn emit_call(
    b: &mut Builder<'_>,
    callee: Callee,
    address: Option<Value>,
    arguments: Vec<Operand>,
) {
    let first = b.func.convention_of(&callee).return_address();
    let n = b.func.callees.insert_full(callee).0;
    let ra = [first, first + 1].map(register);
    macro_inst(b, Macro::ReturnAddress, &ra);
    let mut operands = vec![Operand::Imm(n as u32)];
    operands.extend(address.map(operand));
    operands.extend(arguments);
    operands.extend(ra);
    macro_inst(b, Macro::Call, &operands);
}

impl Lower<'_, '_> {
    /// Whose parameter's address an operand is: in a device function that takes the address of one of its parameters it may
    /// be one of local memory. Nothing where that can't be told.
    pub(crate) fn whose_parameter(&self, address: &ptx::Operand) -> Option<Whose> {
        let func = &self.module.funcs[self.id];
        match &func.body {
            Some(body) if !func.entry && !addressed(self.module, func, body).is_empty() => {
                Origins::of(self.module, func, body, address)
            }
            _ => Some(Whose::Kernels),
        }
    }

    fn undefined_word(&mut self) -> Value {
        self.undefined_value(ValueData { file: RegFile::R, width: 1 })
    }

    /// Conventions of functions' own may put arguments above the registers that there are.
    fn arguments_fit(&self, sig: &Signature) -> Result<()> {
        let registers = u16::from(sig.registers.first) + u16::from(sig.registers.count);
        let end = self.b.func.max_regs.saturating_sub(sass::target::HARDWARE_REGISTERS);
        let usual = sig.registers == abi::ArgumentRegisters::USUAL;
        if usual || registers <= end.into() {
            Ok(())
        } else {
            Err(crate::Refusal::Arguments { registers, end })
        }
    }

    /// Takes over the parameters at the start of a device function.
    pub(crate) fn enter_function(&mut self, func: &Func, body: &ptx::Body, prologue: PtxBlock) -> Result<()> {
        let sig = signature(self.module, func, self.opts.relocatable);
        self.arguments_fit(&sig)?;
        let (module, here) = (self.module, std::mem::replace(&mut self.block, prologue));
        if sig.results.is_none() {
            let at = take_register(&mut self.b, abi::FIRST_ARGUMENT);
            for v in &func.returns {
                self.homes.insert(*v, Home::Pointer(at));
            }
        }
        let ra = self.b.func.convention.return_address();
        self.return_address = Some([take_register(&mut self.b, ra), take_register(&mut self.b, ra + 1)]);
        let mut in_frame: Vec<(u32, Value)> = Vec::new();
        for (v, place) in func.params.iter().zip(&sig.params) {
            let Place::Regs(first) = place else { continue };
            let n = shape(module, *v).0.div_ceil(4).max(1) as u8;
            let words: Vec<Value> = (0..n).map(|i| take_register(&mut self.b, first + i)).collect();
            if let Some(Home::Words(var, _)) = self.homes.get(v).copied() {
                for (i, word) in words.iter().enumerate() {
                    self.write_var(Var(var.0 + i as u32), *word);
                }
            }
            if let Some(r) = formal_register(module, body, *v) {
                self.formal(r, &words);
            }
            if let Some(Home::Frame(at)) = self.homes.get(v).copied() {
                in_frame.extend((at..).step_by(4).zip(words));
            }
        }
        for (at, word) in in_frame {
            self.stack_store(Name::Phys(Reg::SP), at, operand(word));
        }
        for (v, place) in func.params.iter().zip(&sig.params) {
            let (Place::Stack(at), Some(r)) = (place, formal_register(module, body, *v)) else { continue };
            let n = shape(module, *v).0.div_ceil(4).max(1);
            let base = self.frame_top();
            let words: Vec<Value> = (0..n).map(|i| self.stack_load(Name::Val(base), at + 4 * i)).collect();
            self.formal(r, &words);
        }
        self.block = here;
        Ok(())
    }

    /// Gives a register parameter its value.
    fn formal(&mut self, r: RegId, words: &[Value]) {
        let parts: Vec<Operand> = words.iter().map(|w| operand(*w)).collect();
        let shape = self.shape(r);
        let value = match (shape.file, words) {
            (RegFile::P, [w, ..]) => self.b.isetp(sass::Mod::NE, false, operand(*w), rz()),
            (_, [w]) => *w,
            _ => self.b.collect(&parts),
        };
        self.write(r, value);
    }

    /// The stack pointer of the caller.
    fn frame_top(&mut self) -> Value {
        if let Some(v) = self.frame_top {
            return v;
        }
        let v = self.in_prologue(|b| b.def_macro(Macro::FrameTop, RegFile::R, 1, &[]));
        self.frame_top = Some(v);
        v
    }

    fn stack_access() -> Access {
        Access {
            space: AccessSpace::Local,
            size: 4,
            signed: false,
            order: Order::Weak,
            mmio: false,
            evict: None,
            prefetch: None,
            constant: false,
            collective: false,
        }
    }

    fn stack_load(&mut self, base: Name, at: u32) -> Value {
        let address = Address { base: Some(base), wide: false, offset: at as i32 }.operand(None);
        access::load(&mut self.b, &Self::stack_access(), address, ALWAYS, None)
    }

    fn stack_store(&mut self, base: Name, at: u32, value: Operand) {
        let value = operand(self.b.reg(&value));
        let address = Address { base: Some(base), wide: false, offset: at as i32 }.operand(None);
        access::store(&mut self.b, &Self::stack_access(), address, value, ALWAYS);
    }

    /// Base and offset of a `.param` variable that is in memory.
    pub(crate) fn param_memory(&mut self, v: VarId) -> Option<(Name, u32)> {
        Some(match *self.homes.get(&v)? {
            Home::Words(..) => return None,
            Home::Frame(at) => (Name::Phys(Reg::SP), at),
            Home::Incoming(at) => (Name::Val(self.frame_top()), at),
            Home::Pointer(p) => (Name::Val(p), 0),
        })
    }

    /// Whether an access of so many bytes to a `.param` variable in memory is wider than the variable is aligned for: it is
    /// then made of words.
    pub(crate) fn is_split(&self, a: &ptx::Addr, bytes: u32) -> bool {
        let ptx::AddrBase::Var(v) = a.base else { return false };
        self.homes.contains_key(&v) && bytes > 4 && bytes > self.module.vars[v].align
    }

    /// `ld.param` of words, one by one.
    pub(crate) fn ld_split(&mut self, a: &ptx::Addr, bytes: u32) -> Result<Vec<Operand>> {
        let at = self.address32(a, Space::Local)?;
        let word = |k: u32| Address { offset: at.offset + 4 * k as i32, ..at };
        let load = |k| access::load(&mut self.b, &Self::stack_access(), word(k).operand(None), ALWAYS, None);
        Ok((0..bytes / 4).map(load).map(operand).collect())
    }

    /// `st.param` of words, one by one.
    pub(crate) fn st_split(&mut self, a: &ptx::Addr, words: &[Operand]) -> Result<()> {
        let at = self.address32(a, Space::Local)?;
        for (k, w) in (0..).zip(words) {
            let word = Address { offset: at.offset + 4 * k, ..at };
            access::store(&mut self.b, &Self::stack_access(), word.operand(None), *w, ALWAYS);
        }
        Ok(())
    }

    /// The variables of a `.param` variable that is not in memory: the first, and how many.
    pub(crate) fn param_words(&self, a: &ptx::Addr) -> Option<(Var, u32)> {
        let ptx::AddrBase::Var(v) = a.base else { return None };
        match self.homes.get(&v)? {
            Home::Words(first, n) => Some((*first, *n)),
            _ => None,
        }
    }

    /// The variable that holds a byte of a `.param` variable, and the bit that starts it there. Nothing for what is not all
    /// in the variable: such an access is undefined, but need not be reached.
    fn word_at(&self, (first, n): (Var, u32), at: i64, bytes: u32) -> Result<Option<(Var, u32)>> {
        // Addresses have 32 bits.
        let at = at as u32;
        if at.checked_add(bytes).is_none_or(|end| end > 4 * n) {
            return Ok(None);
        }
        if !at.is_multiple_of(bytes.min(4)) {
            return Err("unaligned access to a parameter".into());
        }
        Ok(Some((Var(first.0 + at / 4), 8 * (at % 4))))
    }

    /// `ld.param` of a variable in registers.
    pub(crate) fn ld_words(
        &mut self,
        home: (Var, u32),
        at: i64,
        t: Ty,
        dsts: &[Option<RegId>],
    ) -> Result<()> {
        let bytes = u32::from(t.bits) / 8;
        for (i, d) in dsts.iter().enumerate() {
            let Some(d) = *d else { continue };
            let place = self.word_at(home, at + i64::from(bytes) * i as i64, bytes)?;
            let mark = self.mark();
            let bit = place.map_or(0, |(_, bit)| bit);
            let words: Vec<Operand> = (0..bytes.div_ceil(4))
                .map(|k| place.map_or_else(rz, |(var, _)| operand(self.read_var(Var(var.0 + k)))))
                .collect();
            let value = match &words[..] {
                [w] if bit != 0 => self.b.shr(false, *w, imm(bit)),
                [w] => self.b.copy(*w),
                _ => self.b.collect(&words),
            };
            let value = if t.bits < 64 { self.fill_load(d, value, t, false) } else { value };
            self.assign(d, value, mark);
        }
        Ok(())
    }

    /// `st.param` of a variable in registers.
    pub(crate) fn st_words(&mut self, home: (Var, u32), at: i64, t: Ty, sources: &[Src]) -> Result<()> {
        let bytes = u32::from(t.bits) / 8;
        for (i, s) in sources.iter().enumerate() {
            let Some((var, bit)) = self.word_at(home, at + i64::from(bytes) * i as i64, bytes)? else {
                continue;
            };
            let new: Vec<Value> = match (t.bits, s) {
                (8 | 16, s) => {
                    let old = self.read_var(var);
                    let old = if self.is_undefined(old) { rz() } else { operand(old) };
                    let byte = bit / 8;
                    let (mask, pick) = if t.bits == 8 { (0xf, 4) } else { (0xff, 0x54) };
                    let selector = (0x3210 & !(mask << (4 * byte))) | pick << (4 * byte);
                    let low = operand(self.b.reg(&s.low()));
                    vec![self.b.prmt(old, imm(selector), low)]
                }
                (32, s) => vec![self.b.copy(s.low())],
                (64, s) => {
                    let p: Pair = s.pair();
                    vec![self.b.copy(p.lo), self.b.copy(p.hi)]
                }
                (_, Src::Quad(v)) => (0..4).map(|k| self.b.copy(operand(Name::Part(*v, k)))).collect(),
                _ => return Err(crate::Refusal::NotBuilt("store of this size is not supported yet")),
            };
            for (k, value) in new.into_iter().enumerate() {
                let var = Var(var.0 + k as u32);
                let old = self.read_var(var);
                let value = if self.guard == ALWAYS || self.is_undefined(old) {
                    value
                } else {
                    self.merge(ValueData { file: RegFile::R, width: 1 }, value, old)
                };
                self.write_var(var, value);
            }
        }
        Ok(())
    }

    /// The registers that a value of the caller's goes to, word by word.
    fn argument_words(&mut self, o: &ptx::Operand, formal: VarId) -> Result<Vec<Value>> {
        let sized = match o {
            ptx::Operand::Var(v, 0) if self.module.vars[formal].is_unsized() => *v,
            _ => formal,
        };
        let n = shape(self.module, sized).0.div_ceil(4).max(1);
        match o {
            ptx::Operand::Var(v, 0) => match self.homes.get(v).copied() {
                Some(Home::Words(first, have)) => Ok((0..n)
                    .map(|i| if i < have { self.read_var(Var(first.0 + i)) } else { self.undefined_word() })
                    .collect()),
                Some(_) => {
                    let (base, at) = self.param_memory(*v).ok_or("argument without a place")?;
                    Ok((0..n).map(|i| self.stack_load(base, at + 4 * i)).collect())
                }
                None => Err("an argument must be a .param variable of the caller".into()),
            },
            o => {
                let t = crate::func::ty(self.module.vars[formal].ty);
                if t.kind == crate::types::Kind::Pred {
                    let p = self.pred(o)?;
                    return Ok(vec![self.b.sel(p, imm(1), rz())]);
                }
                Ok(match self.src(o, t)? {
                    Src::Narrow(x) => vec![self.b.copy(x)],
                    Src::Wide(p) => vec![self.b.copy(p.lo), self.b.copy(p.hi)],
                    Src::Quad(v) => (0..4).map(|k| self.b.copy(operand(Name::Part(v, k)))).collect(),
                })
            }
        }
    }

    /// `call`.
    pub(crate) fn call(&mut self, inst: &Inst) -> Result<()> {
        self.branch_around(|l| l.call_here(inst))
    }

    /// In code that allocates on the stack: the stack pointer for a call with so many bytes of arguments on the stack.
    fn stack_for_call(&mut self, bytes: u32, align: u32) -> Option<Value> {
        let low = operand(self.read_var(self.stack?));
        let below = self.b.iadd(low, imm(bytes.wrapping_neg()));
        Some(self.b.and(operand(below), imm(abi::STACK_ALIGN.max(align).wrapping_neg())))
    }

    fn call_here(&mut self, inst: &Inst) -> Result<()> {
        let module = self.module;
        let body = module.funcs[self.id].body.as_ref().ok_or("no code")?;
        let p = parts(inst).ok_or("call without a callee")?;
        let callee = prototype(body, &p).ok_or("call without a prototype")?;
        let header = &module.funcs[callee];
        let sig = call_signature(module, header, p.arguments, self.opts.relocatable);
        self.arguments_fit(&sig)?;
        // A last parameter without a size may be left out.
        let open = header.params.last().is_some_and(|v| module.vars[*v].is_unsized());
        let whole =
            p.arguments.len() == header.params.len() || open && p.arguments.len() + 1 == header.params.len();
        if !whole || p.results.len() != header.returns.len() {
            return Err("call with another number of parameters".into());
        }
        let convention = if self.opts.relocatable { convention(header) } else { Convention::default() };
        let (kind, address) = match p.callee {
            ptx::Operand::Func(f) if module.funcs[*f].entry => {
                return Err("call of a kernel".into());
            }
            ptx::Operand::Func(f) if module.funcs[*f].body.is_some() || self.calls_absolutely() => {
                let name = &module.funcs[*f].name;
                // The linker may put another function in its place.
                if self.layout.quiet[*f] && !self.opts.relocatable {
                    self.b.func.quiet.insert(name.clone());
                }
                if convention != Convention::default() {
                    self.b.func.conventions.insert(name.clone(), convention);
                }
                (Callee::Internal(name.clone()), None)
            }
            ptx::Operand::Func(f) => {
                let s = self.address_slot(Symbol::Func(*f))?;
                (Callee::External, Some(self.b.pair(&s.pair())))
            }
            o if self.calls_absolutely() => {
                let s = self.src(o, Ty { kind: crate::types::Kind::Bits, bits: 64 })?;
                (Callee::Indirect(convention), Some(self.b.pair(&s.pair())))
            }
            o => {
                // The number of a function is the byte offset of its distance in constant bank 2.
                let s = self.src(o, Ty { kind: crate::types::Kind::Bits, bits: 64 })?;
                let number = Name::Val(self.b.reg(&s.pair().lo));
                let place = crate::emit::indexed_constant(2, Some(number), 0);
                (
                    Callee::Indirect(convention),
                    Some(self.b.def(sass::Opcode::LDC, &[sass::Mod::_64], &[place])),
                )
            }
        };
        let mut words: Vec<(Place, Vec<Value>)> = Vec::new();
        for ((o, formal), place) in p.arguments.iter().zip(&header.params).zip(&sig.params) {
            words.push((*place, self.argument_words(o, *formal)?));
        }
        let mut buffers: Vec<Home> = Vec::new();
        if sig.results.is_none() {
            for o in p.results {
                match o {
                    ptx::Operand::Var(v, 0) => buffers.extend(self.homes.get(v)),
                    _ => return Err("a large result needs a .param variable".into()),
                }
            }
        }
        let mut given: Vec<Operand> = Vec::new();
        let stack = self.stack_for_call(sig.stack, sig.align);
        let base = stack.map_or(Name::Phys(Reg::SP), Name::Val);
        for (place, values) in &words {
            if let Place::Stack(at) = place {
                for (i, v) in values.iter().enumerate() {
                    if !self.is_undefined(*v) {
                        self.stack_store(base, at + 4 * i as u32, operand(*v));
                    }
                }
            }
        }
        match buffers[..] {
            [] => {}
            [Home::Frame(at)] => {
                let sp = operand(Name::Phys(Reg::SP));
                let to = self.b.iadd(sp, imm(at));
                give_register(&mut self.b, abi::FIRST_ARGUMENT, operand(to));
                given.push(register(abi::FIRST_ARGUMENT));
            }
            _ => return Err(crate::Refusal::NotBuilt("results of this kind are not supported yet")),
        }
        for (place, values) in &words {
            let Place::Regs(first) = place else { continue };
            for (r, v) in (*first..).zip(values) {
                if !self.is_undefined(*v) {
                    give_register(&mut self.b, r, operand(*v));
                    given.push(register(r));
                }
            }
        }
        if let Some(v) = stack {
            macro_inst(&mut self.b, Macro::SetStack, &[operand(v)]);
        }
        emit_call(&mut self.b, kind, address, given);
        let Some(results) = sig.results else { return Ok(()) };
        let mut values: Vec<Vec<Value>> = Vec::new();
        for (first, formal) in results.iter().zip(&header.returns) {
            let n = shape(module, *formal).0.div_ceil(4).max(1) as u8;
            values.push((0..n).map(|i| take_register(&mut self.b, first + i)).collect());
        }
        for (o, values) in p.results.iter().zip(values) {
            match o {
                ptx::Operand::Var(v, 0) => {
                    let Some(Home::Words(first, n)) = self.homes.get(v).copied() else {
                        return Err("result without a place".into());
                    };
                    for (k, value) in (0..n).zip(values) {
                        self.write_var(Var(first.0 + k), value);
                    }
                }
                ptx::Operand::Reg(r) => self.formal(*r, &values),
                ptx::Operand::Sink => {}
                _ => return Err(crate::Refusal::NotBuilt("result of a kind that is not supported here")),
            }
        }
        Ok(())
    }

    /// The end of a device function: results into their registers, and back.
    pub(crate) fn return_here(&mut self, func: &Func, body: &ptx::Body) -> Result<()> {
        let module = self.module;
        let sig = signature(module, func, self.opts.relocatable);
        let mut kept: Vec<Operand> = Vec::new();
        if let Some(results) = &sig.results {
            let mut words: Vec<(u8, Value)> = Vec::new();
            for (first, v) in results.iter().zip(&func.returns) {
                let values: Vec<Value> = if let Some(r) = formal_register(module, body, *v) {
                    let value = self.read(r);
                    match self.b.func.values[value] {
                        ValueData { file: RegFile::P, .. } => vec![self.b.sel(operand(value), imm(1), rz())],
                        ValueData { width: 1, .. } => vec![value],
                        d => (0..d.width).map(|k| self.b.copy(operand(Name::Part(value, k)))).collect(),
                    }
                } else {
                    match self.homes.get(v).copied() {
                        Some(Home::Words(var, n)) => (0..n).map(|k| self.read_var(Var(var.0 + k))).collect(),
                        Some(Home::Frame(at)) => {
                            let n = shape(module, *v).0.div_ceil(4).max(1);
                            (0..n).map(|k| self.stack_load(Name::Phys(Reg::SP), at + 4 * k)).collect()
                        }
                        _ => return Err("result without a place".into()),
                    }
                };
                words.extend((*first..).zip(values));
            }
            for (r, v) in words {
                if !self.is_undefined(v) {
                    give_register(&mut self.b, r, operand(v));
                    kept.push(register(r));
                }
            }
        }
        let [lo, hi] = self.return_address.ok_or("return from a kernel")?;
        let ra = self.b.func.convention.return_address();
        give_register(&mut self.b, ra, operand(lo));
        give_register(&mut self.b, ra + 1, operand(hi));
        macro_inst(&mut self.b, Macro::Keep, &kept);
        self.b.terminate(Terminator::Return(Name::Phys(Reg::r(ra))));
        Ok(())
    }
}
