//! From a module to flat code: every function's instructions in one vector, labels resolved, operand types
//! looked up in the instruction table, variables placed.

use super::SimError;
use crate::fp::Round;
use ::ptx::ast::{AddrBase, FuncId, Inst, Item, LabelId, Module, Operand, RegId, Space, Stmt, Symbol, VarId};
use ::ptx::isa::{Form, TypeRef};
use ::ptx::{Mod, Op, Type};
use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Generic addresses of shared memory start here.
pub(super) const SHARED_WINDOW: u64 = 0x7e00 << 32;
/// Generic addresses of local memory start here.
pub(super) const LOCAL_WINDOW: u64 = 0x7d00 << 32;
pub(super) use crate::memory::{CONST_WINDOW, PARAM_WINDOW};
/// Size of each window.
pub(super) const WINDOW: u64 = 1 << 32;
/// Parameter variables inside functions are in the thread's stack; their addresses start here.
pub(super) const STACK_PARAMS: u64 = 1 << 24;
/// Address of function 0; the next is 16 bytes further.
pub(super) const FUNCTIONS: u64 = 0x10_0000;

/// Where a variable is.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) enum Place {
    /// Nowhere: not defined in this module.
    #[default]
    Missing,
    /// At an address of its space.
    Fixed(u64),
    /// In the frame of the function, this far from its start.
    Frame(u64),
}

/// An instruction, ready to run.
#[derive(Debug)]
pub(super) struct Code<'m> {
    pub inst: &'m Inst,
    pub func: FuncId,
    /// The first two types of the instruction; the first again if there is one only.
    pub ty: Type,
    pub ty2: Type,
    /// Type of each operand.
    pub types: SmallVec<[Type; 4]>,
    pub rm: Round,
    pub ftz: bool,
    pub sat: bool,
    /// See [`super::Options::nudge`].
    pub nudge: u64,
    /// Destinations of a branch: one, or a table.
    pub targets: SmallVec<[u32; 1]>,
}

/// What a function needs when it runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// Its first instruction; `None` for a declaration.
    pub entry: Option<u32>,
    /// First slot of each register.
    pub slots: Vec<u32>,
    /// What the registers hold at the start, a slot each; of [`Fill::Random`] contents those of the first thread.
    initial: Vec<u64>,
    /// The bits that each slot has.
    masks: Vec<u64>,
    /// Bytes of its local and parameter variables.
    pub frame: u64,
    /// Parameters and results in registers: first slot, how many, and where each has its place in the frame as others do.
    pub params: Vec<Passed>,
    /// See `params`.
    pub returns: Vec<Passed>,
}

impl Layout {
    /// What the registers of a thread of the block hold where the function begins: [`Fill::Random`] contents are other ones in each thread, as
    /// what depends on them may be the same by chance in lanes that hold the same.
    pub fn registers(&self, fill: Fill, thread: u32) -> Vec<u64> {
        if !matches!(fill, Fill::Random(_)) || thread == 0 {
            return self.initial.clone();
        }
        let of_thread = (thread as usize) << 40;
        self.masks.iter().enumerate().map(|(slot, mask)| garbage(fill, slot ^ of_thread) & mask).collect()
    }
}

/// A parameter or a result in a register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    /// First slot.
    slot: usize,
    /// Number of slots.
    slots: usize,
    /// Place in the frame.
    at: usize,
    /// Bytes of it that a slot holds.
    size: usize,
}

impl Passed {
    /// Into the register.
    pub fn load(self, regs: &mut [u64], frame: &[u8]) {
        for n in 0..self.slots {
            let at = self.at + n * self.size;
            regs[self.slot + n] = crate::memory::little_endian(&frame[at..at + self.size]);
        }
    }
    /// Out of the register.
    pub fn store(self, regs: &[u64], frame: &mut [u8]) {
        for n in 0..self.slots {
            let at = self.at + n * self.size;
            frame[at..at + self.size].copy_from_slice(&regs[self.slot + n].to_le_bytes()[..self.size]);
        }
    }
}

/// Largest variable that is given memory.
const LARGEST: u64 = 1 << 30;

/// Bytes of a hole between shared variables, and their alignment: more than that of any variable.
const HOLE: u64 = 4096;

/// A module's code and layout.
#[derive(Debug)]
pub(super) struct Program<'m> {
    pub module: &'m Module,
    /// What registers and memory of a thread hold before they are written.
    pub fill: Fill,
    /// See [`super::Options::nudge`].
    nudge: u64,
    pub code: Vec<Code<'m>>,
    pub layouts: SecondaryMap<FuncId, Layout>,
    pub places: SecondaryMap<VarId, Place>,
    /// Constant memory.
    pub consts: Vec<u8>,
    /// Bytes of shared variables; dynamic shared memory follows.
    pub shared: u64,
    /// Shared memory between variables, where nothing is, unless `fill` is zeros: a program that reaches from one variable
    /// into another depends on where they are.
    pub holes: Vec<std::ops::Range<u64>>,
    /// Module-scope global variables: their first contents, addresses not yet filled in.
    pub globals: Vec<VarId>,
}

/// What registers, local and shared memory hold before they are written. A program whose result depends on it reads what is not
/// defined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Zeros everywhere.
    Zero,
    /// Memory: this byte everywhere. Registers: a number of its own each, the same in all threads.
    Byte(u8),
    /// Another number in every place and every thread, since numbers of the same bytes may all be as harmless as zeros; and others for
    /// another seed, since two predicates are the same by chance half of the time.
    Random(u32),
}

impl Fill {
    /// A number of its own: 0 for zeros, else odd or even as the byte is.
    pub(super) fn seed(self) -> u64 {
        match self {
            Fill::Zero => 0,
            Fill::Byte(n) => n.into(),
            Fill::Random(seed) => 0xa5 | u64::from(seed) << 8,
        }
    }
}

/// What a register slot holds before it is written: another thing in each, unless it is zero.
pub(super) fn garbage(fill: Fill, slot: usize) -> u64 {
    match fill {
        Fill::Zero => 0,
        _ => crate::launch::Rng::new(slot as u64 ^ fill.seed() << 32).next(),
    }
}

/// So many bytes of local or shared memory that nothing has been written to: in local memory by this thread of its block.
pub(super) fn unwritten(fill: Fill, bytes: usize, thread: u32) -> Vec<u8> {
    match fill {
        Fill::Zero => return vec![0; bytes],
        Fill::Byte(n) => return vec![n; bytes],
        Fill::Random(_) => {}
    }
    let mut rng = crate::launch::Rng::new(fill.seed() ^ u64::from(thread) << 40);
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        out.extend_from_slice(&rng.next().to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// Places variables one after another.
fn place(at: &mut u64, align: u32, size: u64) -> u64 {
    let start = at.next_multiple_of(u64::from(align.max(1)));
    *at = start + size;
    start
}

impl<'m> Program<'m> {
    /// Prepares the module to run `kernel`.
    pub fn new(module: &'m Module, kernel: FuncId, fill: Fill, nudge: u64) -> Result<Program<'m>, SimError> {
        if let Some(v) = module.vars.values().find(|v| v.size() > LARGEST) {
            return Err(SimError::at(v.span, format!("'{}' is too large to interpret", v.name)));
        }
        let mut p = Program {
            module,
            fill,
            nudge,
            code: Vec::new(),
            layouts: SecondaryMap::new(),
            places: SecondaryMap::new(),
            consts: Vec::new(),
            shared: 0,
            holes: Vec::new(),
            globals: Vec::new(),
        };
        p.place_variables(kernel);
        for id in module.funcs.keys().filter(|f| *f == kernel || !module.funcs[*f].entry) {
            p.function(id, id == kernel)?;
        }
        Ok(p)
    }

    fn place_variables(&mut self, kernel: FuncId) {
        let module = self.module;
        let mut const_size = 0;
        let mut dynamic = Vec::new();
        let in_module = module.items.iter().filter_map(|i| match i {
            Item::Var(v) => Some(*v),
            Item::Func(_) => None,
        });
        let in_functions = module
            .funcs
            .iter()
            .filter(|(f, func)| *f == kernel || !func.entry)
            .filter_map(|(_, func)| func.body.as_ref())
            .flat_map(|b| b.vars.iter().copied());
        for v in in_module.chain(in_functions) {
            let var = &module.vars[v];
            match var.space {
                Space::Shared if var.is_unsized() => dynamic.push(v),
                Space::Shared => {
                    self.leave_hole();
                    self.places[v] = Place::Fixed(place(&mut self.shared, var.align, var.size()));
                }
                Space::Const => {
                    let at = place(&mut const_size, var.align, var.size());
                    self.places[v] = Place::Fixed(at);
                }
                Space::Global => self.globals.push(v),
                Space::Reg | Space::Local | Space::Param => {}
            }
        }
        if !dynamic.is_empty() {
            self.leave_hole();
        }
        for v in &dynamic {
            self.shared = self.shared.next_multiple_of(u64::from(module.vars[*v].align.max(1)));
        }
        for v in dynamic {
            self.places[v] = Place::Fixed(self.shared);
        }
        self.consts = vec![0; const_size as usize];
    }

    /// Leaves a hole before the next shared variable.
    fn leave_hole(&mut self) {
        if self.fill != Fill::Zero && self.shared != 0 {
            let start = self.shared;
            self.shared = start.next_multiple_of(HOLE) + HOLE;
            self.holes.push(start..self.shared);
        }
    }

    /// First contents of a variable, with the addresses in it.
    pub fn initial(&self, v: VarId) -> Vec<u8> {
        let var = &self.module.vars[v];
        let mut bytes = vec![0; var.size() as usize];
        let Some(init) = &var.init else { return bytes };
        let n = init.bytes.len().min(bytes.len());
        bytes[..n].copy_from_slice(&init.bytes[..n]);
        for r in &init.relocs {
            let address = match r.symbol {
                Symbol::Var(v) => self.generic(v, r.generic),
                Symbol::Func(f) => function_address(f),
            };
            let address = address.wrapping_add(r.addend as u64).to_le_bytes();
            let (at, size) = (r.offset as usize, usize::from(r.size));
            let address = match r.byte {
                Some(n) => u64::from(address[usize::from(n)]).to_le_bytes(),
                None => address,
            };
            if let Some(field) = bytes.get_mut(at..at + size) {
                field.copy_from_slice(&address[..size]);
            }
        }
        bytes
    }

    /// Address of a variable that is in no frame, in its space or generic.
    fn generic(&self, v: VarId, generic: bool) -> u64 {
        let Place::Fixed(at) = self.places[v] else { return 0 };
        at + if generic { window(self.module.vars[v].space) } else { 0 }
    }

    fn function(&mut self, id: FuncId, kernel: bool) -> Result<(), SimError> {
        let func = &self.module.funcs[id];
        let mut layout = Layout::default();
        if kernel {
            for (v, at) in func.params.iter().zip(self.module.param_layout(func).0) {
                self.places[*v] = Place::Fixed(at.into());
            }
        } else {
            let sized = |v: &&VarId| !self.module.vars[**v].is_unsized();
            for v in func.returns.iter().chain(&func.params).filter(sized) {
                let var = &self.module.vars[*v];
                self.places[*v] = Place::Frame(place(&mut layout.frame, var.align, var.size()));
            }
        }
        let Some(body) = &func.body else {
            self.layouts[id] = layout;
            return Ok(());
        };
        for v in &body.vars {
            let var = &self.module.vars[*v];
            if matches!(var.space, Space::Local | Space::Param) {
                self.places[*v] = Place::Frame(place(&mut layout.frame, var.align, var.size()));
            }
        }
        // What it takes is up to the call: behind everything else.
        if let Some(v) = func.params.last().filter(|v| !kernel && self.module.vars[**v].is_unsized()) {
            let align = self.module.vars[*v].align;
            self.places[*v] = Place::Frame(place(&mut layout.frame, align, 0));
        }
        for r in body.regs.values() {
            layout.slots.push(layout.initial.len() as u32);
            let mask = super::int::mask(r.ty);
            let bits = garbage(self.fill, layout.initial.len()) & mask;
            // 128 bits take two slots.
            let slots = if r.ty == Type::b128 { 2 } else { 1 };
            layout.initial.resize(layout.initial.len() + slots, bits);
            layout.masks.resize(layout.masks.len() + slots, mask);
        }
        let passed = |layout: &Layout, list: &[VarId]| -> Vec<Passed> {
            let in_registers = list.iter().filter(|v| self.module.vars[**v].space == Space::Reg);
            let found = in_registers.filter_map(|v| {
                let var = &self.module.vars[*v];
                let Place::Frame(at) = self.places[*v] else { return None };
                let (r, reg) = body.regs.iter().find(|(_, r)| r.name == var.name)?;
                let slots = if reg.ty == Type::b128 { 2 } else { 1 };
                let size = (reg.ty.bytes() as usize).min(8);
                Some(Passed {
                    slot: layout.slots[r.as_u32() as usize] as usize,
                    slots,
                    at: at as usize,
                    size,
                })
            });
            found.collect()
        };
        (layout.params, layout.returns) = (passed(&layout, &func.params), passed(&layout, &func.returns));
        let first = self.code.len() as u32;
        layout.entry = Some(first);
        let mut labels: FxHashMap<LabelId, u32> = FxHashMap::default();
        let mut tables: FxHashMap<LabelId, &[LabelId]> = FxHashMap::default();
        let mut pc = first;
        for s in &body.stmts {
            match s {
                Stmt::Label(l) => _ = labels.insert(*l, pc),
                Stmt::BranchTargets(l, targets) => _ = tables.insert(*l, targets),
                Stmt::Inst(_) => pc += 1,
                _ => {}
            }
        }
        for s in &body.stmts {
            let Stmt::Inst(inst) = s else { continue };
            let mut code = self.instruction(id, inst)?;
            let target = |l: &LabelId| {
                labels.get(l).copied().ok_or_else(|| SimError::at(inst.span, "branch to an undefined label"))
            };
            if matches!(inst.op, Op::bra | Op::brx) {
                for o in &inst.operands {
                    let Operand::Label(l) = o else { continue };
                    match tables.get(l) {
                        Some(list) => {
                            code.targets = list.iter().map(target).collect::<Result<_, _>>()?;
                        }
                        None => code.targets.push(target(l)?),
                    }
                }
            }
            self.code.push(code);
        }
        // A body may end without `ret`.
        self.layouts[id] = layout;
        Ok(())
    }

    fn instruction(&self, func: FuncId, inst: &'m Inst) -> Result<Code<'m>, SimError> {
        let unsupported = || SimError::at(inst.span, format!("unsupported instruction '{}'", spelling(inst)));
        let mut forms = inst.op.forms().iter().filter(|f| fits(f, inst));
        let form = forms
            .clone()
            .find(|f| f.matches(&inst.mods))
            .or_else(|| forms.find(|f| f.matches_unordered(&inst.mods)))
            .ok_or_else(unsupported)?;
        let types = form
            .operands_with(&inst.mods)
            .map(|o| match o.ty {
                TypeRef::Mod(n) => inst.ty(n.into()).unwrap_or(Type::b32),
                TypeRef::Fixed(t) => t,
            })
            .collect();
        let rm = match inst.one_of(&[
            Mod::rn,
            Mod::rz,
            Mod::rm,
            Mod::rp,
            Mod::rni,
            Mod::rzi,
            Mod::rmi,
            Mod::rpi,
            Mod::rna,
            Mod::rs,
        ]) {
            Some(Mod::rz | Mod::rzi) => Round::Zero,
            Some(Mod::rm | Mod::rmi) => Round::Down,
            Some(Mod::rp | Mod::rpi) => Round::Up,
            Some(Mod::rs) => return Err(unsupported()),
            _ => Round::Nearest,
        };
        let bytes = inst.op == Op::multimem && inst.one_of(&[Mod::e4m3, Mod::e5m2]).is_some();
        let ty = if bytes { Type::b8 } else { inst.ty(0).unwrap_or(Type::b32) };
        Ok(Code {
            inst,
            func,
            ty,
            ty2: inst.ty(1).unwrap_or(ty),
            types,
            rm,
            ftz: inst.has(Mod::ftz),
            sat: inst.has(Mod::sat),
            nudge: self.nudge,
            targets: SmallVec::new(),
        })
    }

    /// The slot of a register.
    pub fn slot(&self, func: FuncId, r: RegId) -> usize {
        self.layouts[func].slots[r.as_u32() as usize] as usize
    }

    /// The type of a register.
    pub fn reg_type(&self, func: FuncId, r: RegId) -> Type {
        self.module.funcs[func].body.as_ref().map_or(Type::b32, |b| b.regs[r].ty)
    }

    /// The state space of an address that names a variable; `None` for others.
    pub fn space_of(&self, base: AddrBase) -> Option<Space> {
        match base {
            AddrBase::Var(v) => Some(self.module.vars[v].space),
            _ => None,
        }
    }
}

/// Whether the form takes this many operands.
fn fits(form: &Form, inst: &Inst) -> bool {
    form.takes_operands(&inst.mods, inst.operands.len())
}

/// The instruction's name with its modifiers.
pub(super) fn spelling(inst: &Inst) -> String {
    let mut s = inst.op.name().to_string();
    for m in &inst.mods {
        s.push('.');
        s.push_str(m.name());
    }
    s
}

/// Start of a space's generic window.
pub(super) fn window(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        Space::Const => CONST_WINDOW,
        Space::Param => PARAM_WINDOW,
        Space::Global | Space::Reg => 0,
    }
}

/// A function's address, for calls through registers.
pub(super) fn function_address(f: FuncId) -> u64 {
    FUNCTIONS + 16 * u64::from(f.as_u32())
}
