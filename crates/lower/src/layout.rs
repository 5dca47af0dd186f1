//! Where a module's variables live: offsets in the constant bank of the module, slots of addresses in
//! constant bank 4, offsets in shared memory.

use cranelift_entity::{EntityRef, SecondaryMap};
use ptx::{AddrBase, Func, FuncId, Item, Module, Operand, Space, Stmt, Symbol, VarId};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::Target;

use crate::Diagnostic;

/// Bytes at the bottom of the CTA's shared memory that the system keeps, from sm_90 on.
pub const RESERVED_SHARED: u32 = 0x400;

/// Tells a module where the parameters of its kernels begin on a target, which the text does not say: their alignment counts from elsewhere.
pub fn place_params(module: &mut Module, target: Target) {
    let info = target.info();
    module.param_skew = info.param_skew.into();
    module.large_param_skew = info.large_param_base.map(u32::from);
}

/// Where the parameters of a kernel begin in constant bank 0.
pub fn param_base(module: &Module, kernel: &ptx::Func, target: Target) -> u16 {
    let info = target.info();
    let large = if module.has_large_params(kernel) { info.large_param_base } else { None };
    large.unwrap_or(info.param_base)
}

/// The placement of everything that is not on a thread's stack.
#[derive(Clone, Debug, Default)]
pub struct ModuleLayout {
    /// `.const` variables in the order of their offsets in constant bank 3.
    pub consts: Vec<VarId>,
    /// Size in bytes of constant bank 3.
    pub const_size: u32,
    /// Whose addresses constant bank 4 holds, 8 bytes each, in order. The linker fills them in.
    pub slots: Vec<Symbol>,
    /// `.global` variables with storage, in the order of the text.
    pub globals: Vec<VarId>,
    /// Device functions whose address is taken, in the order of their numbers.
    pub functions: Vec<FuncId>,
    const_offsets: SecondaryMap<VarId, Option<u32>>,
    /// Variables of functions' bodies that have a place of their own.
    scoped: FxHashSet<VarId>,
    slot_index: FxHashMap<Symbol, u32>,
    shared: FxHashMap<(FuncId, VarId), u32>,
    shared_size: SecondaryMap<FuncId, u32>,
    shared_align: SecondaryMap<FuncId, u32>,
    /// Functions that name a shared variable.
    name_shared: FxHashSet<FuncId>,
    /// Alignment of dynamic shared memory, 0 if the module has none: all of its unsized variables start at one place, in
    /// kernels that don't name them, too (ptxas 13.0.88).
    dynamic_align: u32,
    /// Which functions call which.
    pub calls: crate::CallGraph,
    /// Words of textures, samplers and surfaces that code names.
    pub images: crate::image_slots::ImageSlots,
    /// Functions that wait for no other lane.
    pub(crate) quiet: SecondaryMap<FuncId, bool>,
}

/// Variables that ptxas gives slots to: with 8,192, which would fill constant bank 4, none has one.
const MOST_SLOTS: usize = 0x10000 / 8 - 1;

/// The least alignment of dynamic shared memory.
const DYNAMIC_ALIGN: u32 = 16;

/// Calls `f` for every symbol whose address or content the code of `func` uses.
pub fn for_each_symbol(func: &Func, mut f: impl FnMut(Symbol)) {
    fn operand(o: &Operand, f: &mut impl FnMut(Symbol)) {
        match o {
            Operand::Var(v, _) => f(Symbol::Var(*v)),
            Operand::Func(v) => f(Symbol::Func(*v)),
            Operand::Addr(a) => {
                if let AddrBase::Var(v) = a.base {
                    f(Symbol::Var(v));
                }
            }
            Operand::List(l) | Operand::Bracket(l) => l.iter().for_each(|o| operand(o, f)),
            _ => {}
        }
    }
    for stmt in func.body.iter().flat_map(|b| &b.stmts) {
        let Stmt::Inst(inst) = stmt else { continue };
        for o in &inst.operands {
            // The callee of a call is no address, and what it passes is in registers or on the stack.
            if inst.op != ptx::Op::call {
                operand(o, &mut f);
            }
        }
    }
}

/// Whether the code of `func` uses the variable.
fn names(func: &Func, var: VarId) -> bool {
    let mut found = false;
    for_each_symbol(func, |s| found |= s == Symbol::Var(var));
    found
}

/// The shared variables of a function's body, other than those of the launch.
fn own_shared(module: &Module, func: &Func) -> Vec<VarId> {
    let vars = func.body.iter().flat_map(|b| b.vars.iter().copied());
    vars.filter(|v| {
        let var = &module.vars[*v];
        var.space == Space::Shared && !var.is_unsized() && var.linkage != ptx::Linkage::Extern
    })
    .collect()
}

/// Whether a function is no kernel and has code.
fn is_device(module: &Module, f: FuncId) -> bool {
    !module.funcs[f].entry && module.funcs[f].body.is_some()
}

fn calls(body: &ptx::Body) -> bool {
    body.stmts.iter().any(|s| matches!(s, Stmt::Inst(i) if i.op == ptx::Op::call))
}

impl ModuleLayout {
    /// Lays out `module` for `target`.
    ///
    /// # Errors
    /// What does not fit.
    pub fn new(module: &Module, target: Target) -> Result<ModuleLayout, Vec<Diagnostic>> {
        let mut layout = ModuleLayout {
            quiet: crate::quiet::quiet(module),
            calls: crate::CallGraph::new(module),
            ..ModuleLayout::default()
        };
        let mut errors = Vec::new();
        for v in module.funcs.values().flat_map(|f| f.body.iter().flat_map(|b| b.vars.iter())) {
            if module.vars[*v].linkage != ptx::Linkage::Extern {
                layout.scoped.insert(*v);
            }
        }
        let mut at = 0u64;
        let local_vars =
            module.funcs.values().flat_map(|f| f.body.iter().flat_map(|b| b.vars.iter().copied()));
        let module_vars = module.items.iter().filter_map(|i| match i {
            Item::Var(v) => Some(*v),
            Item::Func(_) => None,
        });
        for id in module_vars.chain(local_vars) {
            let var = &module.vars[id];
            match var.space {
                Space::Const => {
                    at = at.next_multiple_of(u64::from(var.align.max(1)));
                    layout.const_offsets[id] = Some(at as u32);
                    layout.consts.push(id);
                    at += var.size();
                    if at > 0x10000 {
                        errors.push(Diagnostic::error(var.span, "constant variables exceed 64 KiB"));
                        at = 0;
                    }
                }
                // Textures are the driver's.
                Space::Global if var.opaque.is_some() => {}
                Space::Global if var.linkage != ptx::Linkage::Extern => layout.globals.push(id),
                _ => {}
            }
        }
        layout.const_size = at as u32;
        let dynamic = module.vars.values().filter(|v| v.space == Space::Shared && v.is_unsized());
        layout.dynamic_align = dynamic.map(|v| v.align.max(DYNAMIC_ALIGN)).max().unwrap_or(0);
        for id in layout.globals.clone().into_iter().chain(layout.consts.clone()) {
            for r in module.vars[id].init.iter().flat_map(|i| &i.relocs) {
                if let Symbol::Func(f) = r.symbol {
                    layout.add_function_number(module, f);
                }
            }
        }
        let device = |f: &Func| !f.entry && f.body.is_some();
        let mut common: Vec<VarId> = Vec::new();
        for func in module.funcs.values().filter(|f| device(f)) {
            for_each_symbol(func, |s| {
                if let Symbol::Var(v) = s
                    && module.vars[v].space == Space::Shared
                    && !common.contains(&v)
                {
                    common.push(v);
                }
            });
            // What nothing names has its place, too.
            common.extend(
                own_shared(module, func).into_iter().filter(|v| !common.contains(v)).collect::<Vec<_>>(),
            );
        }
        let calls = module.funcs.values().any(|f| f.body.as_ref().is_some_and(calls));
        let common = if calls { common } else { Vec::new() };
        // ptxas gives every variable a slot, named or not, in the order of the text; where they don't fit, only what code names
        // has one here, too.
        if layout.globals.len() <= MOST_SLOTS {
            layout.globals.clone().into_iter().for_each(|v| layout.add_slot(Symbol::Var(v)));
        }
        for (id, func) in module.funcs.iter() {
            layout.add_function(module, target, id, func, &[]);
        }
        // Kernels whose functions use shared memory hold what those use, where all have it.
        let users: Vec<FuncId> = module.funcs.keys().filter(|f| layout.has_shared(*f)).collect();
        let concerned = layout.calls.reaching(module, users, &layout.functions);
        for (id, func) in module.funcs.iter() {
            if concerned.contains(id) {
                layout.add_function(module, target, id, func, &common);
            }
        }
        if common.iter().any(|v| module.vars[*v].is_unsized()) {
            layout.align_dynamic(module, &common);
        }
        layout.images = crate::image_slots::ImageSlots::new(module, target, &layout.calls, &layout.functions);
        if errors.is_empty() { Ok(layout) } else { Err(errors) }
    }

    /// Leaves the words of textures, samplers and surfaces that code names to the linker.
    pub fn link_images(&mut self, module: &Module, target: Target) {
        self.images = crate::image_slots::ImageSlots::of_object(module, target);
    }

    /// Places what `func` uses in shared memory. Variables in `common`, which device functions use, come first, in
    /// the same place for all.
    fn add_function(&mut self, module: &Module, target: Target, id: FuncId, func: &Func, common: &[VarId]) {
        let mut shared: Vec<VarId> = common.to_vec();
        let own = own_shared(module, func);
        for_each_symbol(func, |s| match s {
            Symbol::Var(v) => match module.vars[v].space {
                Space::Global if module.vars[v].opaque.is_none() => self.add_slot(s),
                Space::Shared if !shared.contains(&v) => shared.push(v),
                _ => {}
            },
            Symbol::Func(f) if is_device(module, f) => self.add_function_number(module, f),
            Symbol::Func(_) => self.add_slot(s),
        });
        for stmt in func.body.iter().flat_map(|b| &b.stmts) {
            if let Stmt::Inst(inst) = stmt
                && inst.op == ptx::Op::call
                && let Some(ptx::Operand::Func(f)) = crate::call::parts(inst).map(|p| p.callee)
                && module.funcs[*f].body.is_none()
            {
                self.add_slot(Symbol::Func(*f));
            }
        }
        if shared.len() > common.len() || common.iter().any(|v| names(func, *v)) {
            self.name_shared.insert(id);
        }
        // Sized ones first: those of the function itself before the module's, each in the order of the text, then its own
        // that nothing names (as ptxas 13.0.88 places them). All unsized ones start where those end.
        let named = shared.clone();
        shared.extend(own.iter().filter(|v| !named.contains(v)));
        // What functions share has the same order in each.
        let alone = |v: &VarId| !common.contains(v);
        let last = |v: &VarId| (!named.contains(v), alone(v) && !own.contains(v), *v);
        shared.sort_by_key(|v| (module.vars[*v].is_unsized(), alone(v), last(v)));
        let base = if target.sm >= 90 { RESERVED_SHARED } else { 0 };
        // Alignment counts from behind what is reserved: ptxas 13.0.88 places `.align 4096` at 0x400 on sm_90 and later.
        let aligned = |at: u32, align: u32| {
            (at - base).checked_next_multiple_of(align.max(1)).and_then(|n| n.checked_add(base)).unwrap_or(at)
        };
        let (mut at, mut align) = (base, self.dynamic_align);
        for v in shared.iter().filter(|v| !module.vars[**v].is_unsized()) {
            let var = &module.vars[*v];
            let start = aligned(at, var.align);
            align = align.max(var.align);
            self.shared.insert((id, *v), start);
            at = start.saturating_add(var.size().min(u64::from(u32::MAX)) as u32);
        }
        let any = at != base || self.dynamic_align != 0;
        // What is launched with the kernel comes behind what the file states, so the gap before it counts.
        let end = aligned(at, self.dynamic_align);
        for v in shared.iter().filter(|v| module.vars[**v].is_unsized()) {
            self.shared.insert((id, *v), end);
        }
        self.shared_size[id] = if any { end } else { 0 };
        self.shared_align[id] = align;
    }

    /// Lets dynamic shared memory start at the same place for every function.
    fn align_dynamic(&mut self, module: &Module, common: &[VarId]) {
        let most = self.shared_size.values().copied().max().unwrap_or(0);
        for ((_, v), at) in &mut self.shared {
            if module.vars[*v].is_unsized() {
                *at = most;
            }
        }
        for id in module.funcs.keys() {
            if common.iter().any(|v| self.shared.contains_key(&(id, *v))) {
                self.shared_size[id] = most;
            }
        }
    }

    /// Whether a shared variable has a place in the function.
    fn has_shared(&self, f: FuncId) -> bool {
        self.shared.keys().any(|(g, _)| *g == f)
    }

    /// Whether the function names a shared variable.
    pub fn names_shared(&self, f: FuncId) -> bool {
        self.name_shared.contains(&f)
    }

    fn add_function_number(&mut self, module: &Module, f: FuncId) {
        if is_device(module, f) && !self.functions.contains(&f) {
            self.functions.push(f);
        }
    }

    /// What the address of a device function is: the byte offset of its entry in the table of functions, whose
    /// first 8 bytes are no entry.
    pub fn function_number(&self, f: FuncId) -> Option<u64> {
        self.functions.iter().position(|g| *g == f).map(|n| 8 * (n as u64 + 1))
    }

    fn add_slot(&mut self, s: Symbol) {
        if !self.slot_index.contains_key(&s) {
            self.slot_index.insert(s, self.slots.len() as u32);
            self.slots.push(s);
        }
    }

    /// Takes the slots of device functions away, where code has their addresses.
    pub fn call_by_address(&mut self, module: &Module) {
        let device = |s: &Symbol| matches!(s, Symbol::Func(f) if !module.funcs[*f].entry);
        self.slots.retain(|s| !device(s));
        self.slot_index = self.slots.iter().copied().zip(0..).collect();
    }

    /// The name that a symbol has in an object: variables of a function's body have one of their own.
    pub fn symbol_name(&self, module: &Module, s: Symbol) -> String {
        match s {
            Symbol::Func(f) => module.funcs[f].name.clone(),
            Symbol::Var(v) if self.scoped.contains(&v) => {
                format!("$__{}__{}", module.vars[v].name, v.index())
            }
            Symbol::Var(v) => module.vars[v].name.clone(),
        }
    }

    /// Byte offset of a `.const` variable in constant bank 3.
    pub fn const_offset(&self, var: VarId) -> Option<u32> {
        self.const_offsets[var]
    }
    /// Byte offset in constant bank 4 of the address of a symbol.
    pub fn address_slot(&self, symbol: Symbol) -> Option<u32> {
        self.slot_index.get(&symbol).map(|i| 8 * i)
    }
    /// Byte offset of a `.shared` variable in the CTA's shared memory, the reserved part included.
    pub fn shared_offset(&self, func: FuncId, var: VarId) -> Option<u32> {
        self.shared.get(&(func, var)).copied()
    }
    /// Alignment of a kernel's shared memory; 0 if it has none.
    pub fn shared_align(&self, func: FuncId) -> u32 {
        self.shared_align[func]
    }
    /// Shared memory of a kernel before what is launched with it, the reserved part included; 0 if it has none.
    pub fn shared_size(&self, func: FuncId) -> u32 {
        self.shared_size[func]
    }
}
