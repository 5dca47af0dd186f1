//! From the code of an executable's kernels and functions, and the module's variables, to what the file says of them.

pub(crate) mod apart;

use crate::addresses::{Address, fill_numbers};
use crate::output::{KernelStats, Output};
use crate::settings::Settings;
use crate::units::Compiled;
use crate::{debug, dwarf, facts, functions, images};
use backend::Code;
use cubin::object::Binding;
use ptx::{FuncId, LineIndex, Linkage, Module, Space, Symbol};
use rustc_hash::FxHashMap;

/// Why there is no file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Error {
    /// Code and the functions that it calls do not go together.
    Code(backend::Error),
    /// The file does not hold it.
    File(cubin::Error),
    /// An initialized variable has more bytes than a file may.
    Data {
        /// Its name.
        name: String,
        /// Its bytes.
        size: u64,
    },
}

impl From<backend::Error> for Error {
    fn from(e: backend::Error) -> Error {
        Error::Code(e)
    }
}

impl From<cubin::Error> for Error {
    fn from(e: cubin::Error) -> Error {
        Error::File(e)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Code(e) => e.fmt(f),
            Error::File(e) => e.fmt(f),
            Error::Data { name, size } => {
                let most = cubin::write::MOST_DATA;
                write!(
                    f,
                    "the initialized variable '{name}' has {size} bytes, more than the {most} that a file may have"
                )
            }
        }
    }
}

impl std::error::Error for Error {}

/// For diagnostics.
impl From<Error> for String {
    fn from(e: Error) -> String {
        e.to_string()
    }
}

/// The functions of an executable.
pub(crate) struct Device<'c> {
    /// What kernels are put together with.
    pub(crate) functions: backend::link::Functions<'c>,
    /// Those that have sections of their own, in the order of the file.
    pub(crate) apart: Option<Vec<apart::Function<'c>>>,
}

/// Gathers the compiled kernels and the module's variables into a cubin. `listed`: the source, if the file has tables of its lines.
pub(crate) fn assemble(
    module: &Module,
    layout: &lower::ModuleLayout,
    chosen: &[(FuncId, Vec<FuncId>)],
    Device { functions, apart }: &Device<'_>,
    codes: Vec<Compiled>,
    (lines, listed): (&LineIndex, Option<&str>),
    settings: &Settings,
) -> Result<Output, Error> {
    let target = settings.target;
    let options = lower::Options {
        maxrregcount: settings.max_registers,
        extra: settings.extra,
        ..lower::Options::new(settings.target)
    };
    let mut output = Output::default();
    let mut with_lines: Vec<(FuncId, Code, Vec<debug::Part>)> = Vec::new();
    let with_code = module.funcs.iter().filter(|(_, f)| f.body.is_some());
    let by_name: FxHashMap<&str, FuncId> = with_code.map(|(id, f)| (f.name.as_str(), id)).collect();
    let mut file = cubin::Cubin {
        sm: target.sm,
        accelerated: target.suffix == sass::target::Suffix::A,
        ptx_sm: ptx::check::target_sm(module).min(255) as u8,
        options: settings.options_text.clone(),
        tool: settings.tool.clone(),
        ..cubin::Cubin::default()
    };
    let mut asks = sass::Asks::NOTHING;
    let kernels: Vec<FuncId> = chosen.iter().map(|(k, _)| *k).collect();
    let images = images::Images::new(module, layout, &kernels);
    file.independent = module.targets.iter().any(|t| t == "texmode_independent");
    let all = chosen.iter().flat_map(|(k, used)| used.iter().chain([k])).copied();
    file.asks_types = images::asks_types(module, all);
    file.images.clone_from(&images.list);
    let separate = apart::Functions { module, layout, functions, options: &options, settings, lines };
    let separate = apart.is_some().then_some(separate);
    let mut stats_of_functions = Vec::new();
    for f in apart.iter().flatten() {
        let Some(separate) = &separate else { break };
        let (kernel, code) = separate.function(f)?;
        if let Some(id) = f.func {
            stats_of_functions.push(KernelStats {
                name: f.name.into(),
                frame: f.code.frame_bytes,
                spills: (f.code.spill_store_bytes, f.code.spill_load_bytes),
                time: f.time,
                ..KernelStats::default()
            });
            let said = facts::Said::by(target.sm, settings.extra, [&module.funcs[id]], Some(lines));
            asks.join(facts::asks(target.sm, &code.insts, &said));
            if listed.is_some() {
                let parts = parts(id, f.code, &[], &code, functions, &by_name);
                with_lines.push((
                    id,
                    Code { lines: code.lines, words: code.words, ..Code::default() },
                    parts,
                ));
            }
        }
        file.functions.push(kernel);
    }
    let of_functions = std::mem::take(&mut with_lines);
    for ((id, used), (own, time)) in chosen.iter().zip(codes) {
        let func = &module.funcs[*id];
        let mut links = cubin::Links::default();
        // Calls that are dead leave callees, but nothing to link.
        let (code, placed) = if let Some(separate) = &separate {
            let (code, relocs) = functions.apart(target, &own)?;
            links = separate.links(Some(*id), &code, relocs, &func.name);
            (code, Vec::new())
        } else if own.links.is_empty() {
            (own.clone(), Vec::new())
        } else {
            functions.link(target, &own)?
        };
        if separate.is_none() {
            links.kernels = functions::kernels_taken(module, used.iter().copied().chain([*id]));
        }
        let externs = functions::externs(module, used.iter().copied().chain([*id]));
        let registers = code.stated_registers(functions::least_registers(module, &externs));
        let mut syscalls = Vec::new();
        if !externs.is_empty() && separate.is_none() {
            let absolute = |i: &sass::Inst| i.op == sass::Opcode::CALL && i.mods.has(sass::Mod::ABS);
            syscalls
                .extend((0..).step_by(16).zip(&code.insts).filter(|(_, i)| absolute(i)).map(|(at, _)| at));
        }
        // The driver reserves stack for the deepest chain of calls.
        let alone = placed.is_empty() && separate.is_none();
        let cumulative = match (alone, code.recursive) {
            (true, _) => own.frame_bytes,
            (_, true) => 0,
            _ => code.stack_bytes.next_multiple_of(16),
        };
        let (_, param_bytes) = module.param_layout(func);
        let bank0 = layout.images.of(*id).last().map_or(0, |w| w.0 + 4);
        let bank0 = bank0.max(u32::from(lower::layout::param_base(module, func, target)) + param_bytes);
        let reserved =
            if target.sm >= 90 && code.shared_size != 0 { lower::layout::RESERVED_SHARED } else { 0 };
        output.kernels.push(KernelStats {
            name: func.name.clone(),
            entry: true,
            registers,
            barriers: code.barriers,
            frame: own.frame_bytes,
            // Where there is no bound ptxas -g says the kernel's own.
            cumulative: if code.recursive && separate.is_some() { own.frame_bytes } else { cumulative },
            functions: placed
                .iter()
                .filter(|p| !p.name.starts_with(ori::abi::SHARED))
                .filter_map(|p| {
                    let c = functions.code.get(p.name.as_str())?;
                    Some((p.name.clone(), c.frame_bytes, (c.spill_store_bytes, c.spill_load_bytes)))
                })
                .collect(),
            spills: (own.spill_store_bytes, own.spill_load_bytes),
            shared: code.shared_size - reserved,
            constant: (bank0, code.literals.len() as u32),
            images: layout.images.counts(module, *id, target),
            instructions: code.words.len(),
            time,
        });
        if listed.is_some() {
            let parts = parts(*id, &own, &placed, &code, functions, &by_name);
            let lines = code.lines.clone();
            with_lines.push((*id, Code { lines, words: code.words.clone(), ..Code::default() }, parts));
        }
        let helpers = (placed.iter())
            .map(|p| {
                let func = by_name.get(p.name.as_str()).map(|f| &module.funcs[*f]);
                helper(func, functions, p, &code)
            })
            .collect();
        let said_in = used.iter().chain([id]).map(|f| &module.funcs[*f]);
        let said = facts::Said::by(target.sm, settings.extra, said_in, Some(lines));
        asks.join(facts::asks(target.sm, &code.insts, &said));
        let facts = match &separate {
            Some(s) => s.facts_of_kernel(*id, &code, &own, &file.functions),
            None => facts_of(functions, target.sm, &own, &placed, &code, &said),
        };
        let frame = facts::frame(&code.insts[..own.insts.len()], &[]);
        let unbounded = code.recursive && settings.debug;
        let record = kernel_record(module, func, code, registers, &options);
        let params = record.params.iter().zip(&func.params);
        let params = params.map(|(p, v)| cubin::Param { image: images.place(*v), ..*p }).collect();
        file.kernels.push(cubin::Kernel {
            params,
            images: images.words(layout, *id),
            frame_bytes: cumulative,
            own_frame: separate.as_ref().map(|_| own.frame_bytes),
            links,
            shared_align: layout.shared_align(*id),
            unbounded,
            names_shared: used.iter().chain([id]).any(|f| layout.names_shared(*f)),
            functions: helpers,
            frame,
            facts,
            externs: externs.iter().map(|f| module.funcs[*f].name.clone()).collect(),
            syscalls,
            options: settings.code_options(),
            ..record
        });
    }
    output.kernels.extend(stats_of_functions);
    if separate.is_some() {
        let order = functions::as_said(module, true).into_iter().zip(0..);
        let order: FxHashMap<&str, usize> = order.map(|(f, n)| (module.funcs[f].name.as_str(), n)).collect();
        output.kernels.sort_by_key(|k| order.get(k.name.as_str()).copied());
    }
    with_lines.extend(of_functions);
    let by_address = separate.is_some();
    for v in &layout.globals {
        let var = &module.vars[*v];
        let init = match &var.init {
            Some(i) => {
                let mut bytes = initial_bytes(var, i)?;
                fill_numbers(&mut bytes, i, layout, by_address);
                Some(bytes)
            }
            None => None,
        };
        file.globals.push(cubin::Global {
            name: var.name.clone(),
            size: var.size(),
            align: u64::from(var.align),
            init,
            relocs: data_relocs(module, &images, (0, var.init.as_ref()), by_address).collect(),
            binding: binding(var.linkage),
            managed: var.managed,
        });
    }
    (file.isa_class, file.tensor_maps) = (asks.class, asks.tensor_maps);
    file.constants = vec![0; layout.const_size as usize];
    file.constant_align = layout.consts.iter().map(|v| module.vars[*v].align).max().unwrap_or(1).into();
    for v in &layout.consts {
        let var = &module.vars[*v];
        let at = layout.const_offset(*v).unwrap_or(0);
        if let Some(init) = &var.init {
            let place = &mut file.constants[at as usize..at as usize + init.bytes.len()];
            place.copy_from_slice(&init.bytes);
            fill_numbers(place, init, layout, by_address);
            let relocs = data_relocs(module, &images, (at.into(), Some(init)), by_address);
            file.constant_relocs.extend(relocs);
        }
        file.constant_symbols.push((var.name.clone(), at, var.size() as u32, binding(var.linkage)));
    }
    let addressed = layout.slots.iter().filter_map(|s| if let Symbol::Var(v) = s { Some(*v) } else { None });
    file.constants_first = layout.consts.iter().min() < addressed.min().as_ref();
    file.addresses = layout.slots.iter().map(|s| (symbol_name(module, *s), 0)).collect();
    let of_driver = |s: &&Symbol| matches!(s, Symbol::Func(f) if module.funcs[*f].body.is_none());
    file.driver_functions = layout.slots.iter().filter(of_driver).map(|s| symbol_name(module, *s)).collect();
    let global_bytes = file.globals.iter().map(|g| g.size).fold(0, u64::saturating_add);
    output.module_bytes = (global_bytes, layout.const_size, 8 * file.addresses.len() as u32);
    if let Some(source) = listed {
        let units: Vec<debug::Unit<'_>> = with_lines
            .iter()
            .map(|(k, code, parts)| debug::Unit { name: &module.funcs[*k].name, code, parts: parts.clone() })
            .collect();
        let mut tables = debug::lines(module, source, lines, &units);
        if settings.debug {
            let names = dwarf::Names::new(module, layout, lines, &units, (target, false));
            let known = |name: &str| {
                units.iter().any(|u| u.name == name)
                    || file.globals.iter().any(|g| g.name == name)
                    || file.constant_symbols.iter().any(|c| c.0 == name)
            };
            tables.copied = dwarf::copied(&names, known);
            tables.registers = Some(debug::registers(module, &units));
        }
        file.lines = Some(tables);
    }
    output.cubin = cubin::write::write(&file)?;
    Ok(output)
}

/// The initial contents of a variable, as long as it is.
pub(crate) fn initial_bytes(var: &ptx::Var, init: &ptx::ast::Init) -> Result<Vec<u8>, Error> {
    if var.size() > cubin::write::MOST_DATA {
        return Err(Error::Data { name: var.name.to_string(), size: var.size() });
    }
    let mut bytes = init.bytes.clone();
    bytes.resize(var.size() as usize, 0);
    Ok(bytes)
}

/// The functions in the code of a kernel that the PTX has, its own first, for debuggers.
fn parts(
    id: FuncId,
    own: &Code,
    placed: &[backend::link::Placed],
    code: &Code,
    functions: &backend::link::Functions<'_>,
    by_name: &FxHashMap<&str, FuncId>,
) -> Vec<debug::Part> {
    let size = |insts: usize| 16 * insts as u32;
    let end = if placed.is_empty() { size(code.words.len()) } else { size(own.insts.len()) };
    let frame = facts::frame(&code.insts[..own.insts.len()], &own.of_caller);
    let kernel = by_name.iter().find(|(_, f)| **f == id).map_or("", |(name, _)| *name);
    let mut out = vec![debug::Part {
        func: id,
        start: 0,
        end,
        frame,
        locals: own.locals.clone(),
        symbol: kernel.to_string(),
        places: own.places.clone(),
    }];
    for p in placed {
        let (Some(func), Some(code_of)) = (by_name.get(p.name.as_str()), functions.code.get(p.name.as_str()))
        else {
            continue;
        };
        let insts = &code.insts[(p.offset / 16) as usize..((p.offset + p.size) / 16) as usize];
        out.push(debug::Part {
            func: *func,
            start: p.offset,
            end: p.offset + p.size,
            frame: facts::frame(insts, &code_of.of_caller),
            locals: code_of.locals.clone(),
            symbol: cubin::write::helper_symbol(kernel, &p.name),
            places: code_of.places.clone(),
        });
    }
    out
}

/// A function in the code of a kernel.
fn helper(
    func: Option<&ptx::Func>,
    functions: &backend::link::Functions<'_>,
    placed: &backend::link::Placed,
    code: &Code,
) -> cubin::Helper {
    let first = (placed.offset / 16) as usize;
    let insts = &code.insts[first..first + (placed.size / 16) as usize];
    let of = functions.code.get(placed.name.as_str());
    cubin::Helper {
        name: placed.name.clone(),
        binding: func.map(|f| binding(f.linkage)),
        offset: placed.offset,
        size: placed.size,
        frame_bytes: of.map_or(0, |c| c.frame_bytes),
        frame: facts::frame(insts, of.map_or(&[], |c| &c.of_caller)),
    }
}

/// The facts about a kernel's code and that of the functions in it.
fn facts_of(
    functions: &backend::link::Functions<'_>,
    sm: u8,
    own: &Code,
    placed: &[backend::link::Placed],
    code: &Code,
    said: &facts::Said,
) -> cubin::CodeFacts {
    let mut parts =
        vec![facts::Part { insts: 0..own.insts.len(), spill_slots: own.spill_slots.clone(), meeting: false }];
    for p in placed {
        let first = (p.offset / 16) as usize;
        let spill_slots =
            functions.code.get(p.name.as_str()).map(|c| c.spill_slots.clone()).unwrap_or_default();
        let meeting = p.name.starts_with(ori::abi::MEETING);
        parts.push(facts::Part { insts: first..first + (p.size / 16) as usize, spill_slots, meeting });
    }
    facts::code_facts(code, &parts, &Default::default(), sm, said)
}

/// What a file says of a kernel or device function, `registers` a thread, without what it says of the functions that it calls.
pub(crate) fn kernel_record(
    module: &Module,
    func: &ptx::Func,
    code: Code,
    registers: u32,
    options: &lower::Options<'_>,
) -> cubin::Kernel {
    let (offsets, param_bytes) = if func.entry { module.param_layout(func) } else { Default::default() };
    cubin::Kernel {
        name: func.name.clone(),
        binding: binding(func.linkage),
        registers: registers.min(255) as u8,
        frame_bytes: code.frame_bytes,
        barriers: code.barriers as u8,
        shared_bytes: code.shared_size,
        shared_align: 0,
        param_base: lower::layout::param_base(module, func, options.target),
        param_bytes: param_bytes as u16,
        many_params: func.entry && module.has_large_params(func),
        params: offsets.iter().zip(&func.params).map(|(at, p)| parameter(*at, &module.vars[*p])).collect(),
        exits: code.exit_offsets,
        numbers: code.numbers,
        literals: code.literals,
        max_registers: Some(lower::max_regs(func, options)),
        explicit_cluster: func.attrs.explicit_cluster,
        cluster: func.attrs.cluster(),
        blocks_are_clusters: func.attrs.blocks_are_clusters,
        max_cluster_rank: func.attrs.most_of_cluster(),
        maxntid: func.attrs.maxntid,
        reqntid: func.attrs.reqntid,
        instructions: length(&code.insts),
        code: code.words,
        ..cubin::Kernel::default()
    }
}

/// How many instructions there are, without the branch to itself and the NOPs at the end.
fn length(insts: &[sass::Inst]) -> u32 {
    let last = insts.iter().rposition(|i| i.op != sass::Opcode::NOP);
    last.map_or(0, |at| if insts[at].op == sass::Opcode::BRA { at } else { at + 1 }) as u32
}

/// A parameter at this offset.
fn parameter(at: u32, var: &ptx::Var) -> cubin::Param {
    let pointee = var.ptr.map(|(space, align)| {
        let space = match space {
            Some(Space::Local) => cubin::Pointee::Local,
            Some(Space::Shared) => cubin::Pointee::Shared,
            Some(Space::Const) => cubin::Pointee::Const,
            Some(_) => cubin::Pointee::Global,
            None => cubin::Pointee::Generic,
        };
        (space, align)
    });
    cubin::Param { offset: at as u16, size: var.size() as u32, pointee, image: None }
}

/// Who sees what is declared so.
pub(crate) fn binding(linkage: Linkage) -> Binding {
    match linkage {
        Linkage::Internal => Binding::Local,
        Linkage::Weak => Binding::Weak,
        Linkage::Visible | Linkage::Extern | Linkage::Common => Binding::Global,
    }
}

/// The addresses in the initial contents of a variable that the linker or driver fills in, from `at` on. `by_address`: functions have
/// addresses, not numbers.
fn data_relocs<'a>(
    module: &'a Module,
    images: &'a images::Images,
    (at, init): (u64, Option<&'a ptx::ast::Init>),
    by_address: bool,
) -> impl Iterator<Item = cubin::object::Reloc> + 'a {
    init.into_iter().flat_map(|i| &i.relocs).flat_map(move |r| {
        let address = Address::of(module, r, false);
        let known = match address {
            Address::Function => !by_address,
            Address::Offset => true,
            Address::Kernel | Address::Generic | Address::Unified => false,
        };
        let symbol = images.symbol(r.symbol).unwrap_or_else(|| symbol_name(module, r.symbol));
        if known { Vec::new() } else { address.relocs(at, r, &symbol) }
    })
}

pub(crate) fn symbol_name(module: &Module, symbol: Symbol) -> String {
    match symbol {
        Symbol::Var(v) => module.vars[v].name.clone(),
        Symbol::Func(f) => module.funcs[f].name.clone(),
    }
}
