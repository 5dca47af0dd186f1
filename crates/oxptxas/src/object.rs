//! `-c`: a relocatable object instead of an executable. Every function is compiled on its own and keeps to the calling
//! convention; whatever has an address is left to the linker.

use crate::addresses::Address;
use crate::assemble::{binding, initial_bytes, kernel_record};
use crate::convention::{prototype, reached};
use crate::facts;
use crate::functions::{self, Through};
use crate::images::Images;
use crate::notices;
use crate::output::{KernelStats, Output};
use crate::stacks;
use crate::timeline::{Stage, Timeline};
use crate::units::Units;
use crate::{debug, dwarf};
use backend::Code;
use backend::link::Fill as CodeFill;
use backend::link::Whose;
use cubin::object::{Binding, Fill, Object, Place, Variable};
use ori::Part;
use ptx::{Diagnostic, Func, FuncId, Item, Linkage, Module, Space, Symbol, VarId};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::target::LEAST_LIMIT;
use std::time::Duration;

/// Compiles a module whose options are applied to an object.
///
/// # Errors
/// What is not supported.
pub(crate) fn compile(
    units: &Units<'_>,
    source: &str,
    mut timeline: Timeline,
) -> Result<Output, Vec<Diagnostic>> {
    let Units { module, layout, options, settings, lines, .. } = units;
    for name in &settings.entries {
        if !module.funcs.values().any(|f| f.entry && f.body.is_some() && f.name == *name) {
            return Err(vec![Diagnostic::whole(format!("Unknown function {name}"))]);
        }
    }
    let wanted = |f: &Func| {
        f.body.is_some() && (!f.entry || settings.entries.is_empty() || settings.entries.contains(&f.name))
    };
    let mut chosen: Vec<FuncId> = module.funcs.iter().filter(|(_, f)| wanted(f)).map(|(id, _)| id).collect();
    if options.extensible {
        let kept = kept_by_kernels(units, &chosen);
        chosen.retain(|f| kept.contains(f));
    }
    let there: FxHashSet<FuncId> = chosen.iter().copied().collect();
    let limit = |id: &FuncId| match settings.function_registers {
        Some(n) if !module.funcs[*id].entry => Some(n),
        _ => settings.max_registers,
    };
    let jobs: Vec<_> = chosen.iter().map(|id| (*id, limit(id))).collect();
    let given_back = jobs.iter().flat_map(|(f, limit)| {
        let options = lower::Options { maxrregcount: *limit, ..options.clone() };
        let limit = lower::max_regs(&module.funcs[*f], &options);
        crate::limits::more_than_ever(module, &[*f], limit.into())
    });
    let given_back: Vec<Diagnostic> = given_back.collect();
    if !given_back.is_empty() {
        return Err(given_back);
    }
    let compiled = units.compile(&jobs, &mut timeline);
    let mut object = Object {
        sm: settings.target.sm,
        accelerated: settings.target.suffix == sass::target::Suffix::A,
        ptx_sm: ptx::check::target_sm(module).min(255) as u8,
        options: settings.options_text.clone(),
        tool: settings.tool.clone(),
        extensible: settings.extensible && !settings.relocatable,
        ..Object::default()
    };
    let images = Images::new(module, layout, &chosen);
    object.independent = module.targets.iter().any(|t| t == "texmode_independent");
    object.asks_types = crate::images::asks_types(module, chosen.iter().copied());
    object.images.clone_from(&images.list);
    let mut output = Output::default();
    let mut errors = Vec::new();
    let with_lines = settings.line_info.unwrap_or_else(|| debug::has_source(module));
    let mut codes = Vec::new();
    let own = compiled.iter().flatten().map(|c| &c.0);
    if options.extensible && !settings.debug && !settings.quiet_stacks {
        let with_code = chosen.iter().zip(&compiled).filter_map(|(f, c)| Some((*f, &c.as_ref().ok()?.0)));
        output.warnings.extend(stacks::extensible(module, with_code, settings.opt_level > 0));
    }
    let meetings = units.shared(own, &mut timeline)?;
    let mut asks = sass::Asks::NOTHING;
    for (id, result) in chosen.iter().zip(compiled) {
        let func = &module.funcs[*id];
        let done = result.and_then(|(mut code, time)| {
            let named = match settings.relocatable {
                true => images.relocations(layout, *id, &mut code, settings.target),
                false => Ok(Vec::new()),
            };
            let named = named.map_err(|e| vec![Diagnostic::error(func.span, e.to_string())])?;
            let (lines, locals, places) = (code.lines.clone(), code.locals.clone(), code.places.clone());
            let said = facts::Said::by(settings.target.sm, settings.extra, [func], None);
            asks.join(facts::asks(settings.target.sm, &code.insts, &said));
            output.warnings.extend(notices::warp_groups(module, *id, &code));
            if lower::pool::has_statement(module, *id) {
                let failed = code.steady.as_deref();
                output.warnings.extend(notices::steady_registers(module, *id, layout, options, failed));
            }
            let spills = (code.spill_store_bytes, code.spill_load_bytes);
            let mut f = function(module, *id, code, options)?;
            f.code.options = settings.code_options();
            f.relocs.extend(named);
            unified_addresses(&mut f.relocs, module, layout);
            f.relocs.sort_by_key(|r| r.offset);
            for (p, v) in f.code.params.iter_mut().zip(&func.params) {
                p.image = images.place(*v);
            }
            // In objects for sm_90 and later the linker says it (ptxas 13.0.88).
            if settings.target.sm < 90 || !settings.relocatable {
                f.code.images = images.words(layout, *id);
            }
            // Such code is where it is: calls and the places they return to are addresses.
            let fixed = |r: &cubin::object::Reloc| !r.fill.is_of_a_bank();
            if settings.asked.independent && f.relocs.iter().any(fixed) {
                return Err(vec![crate::settings::not_independent(func.span)]);
            }
            if with_lines {
                let end = 16 * f.code.code.len() as u32;
                let (frame, symbol) = (f.code.frame.clone(), func.name.clone());
                let part = debug::Part { func: *id, start: 0, end, frame, locals, symbol, places };
                codes.push((part, Code { lines, words: f.code.code.clone(), ..Code::default() }));
            }
            output.kernels.push(KernelStats { spills, ..stats(module, &f, func, time) });
            let unified = f.unified.map(|_| entry_of_table(&func.name, options));
            object.functions.push(f);
            object.functions.extend(unified.transpose()?);
            Ok(())
        });
        if let Err(e) = done {
            errors.extend(e);
        }
    }
    for (name, code) in meetings {
        let kind = ori::meeting::Kind::parse(&name);
        let words = kind.map_or(0, |k| k.arguments().iter().map(|a| usize::from(a.1)).sum::<usize>());
        object.prototypes.push((name.clone(), format!("#i{}", "i".repeat(words + 1))));
        object.functions.push(meeting(name, &code, options)?);
    }
    (object.isa_class, object.tensor_maps) = (asks.class, asks.tensor_maps);
    variables(module, (layout, &images), &mut object, &mut errors);
    if !errors.is_empty() {
        errors.sort_by_key(|d| d.span.map_or(0, |s| s.start));
        return Err(errors);
    }
    let order: FxHashMap<FuncId, usize> =
        functions::as_said(module, settings.debug).into_iter().zip(0..).collect();
    let mut said: Vec<_> = chosen.iter().zip(std::mem::take(&mut output.kernels)).collect();
    said.sort_by_key(|(id, _)| order.get(*id));
    output.kernels = said.into_iter().map(|(_, stats)| stats).collect();
    let bytes = |place: &Place| -> u64 {
        let there = object
            .variables
            .iter()
            .filter(|v| v.defined && !v.common && v.unified.is_none() && v.place == *place);
        there.map(|v| v.size).fold(0, u64::saturating_add)
    };
    output.module_bytes = (bytes(&Place::Global), layout.const_size, 0);
    let in_data = object.variables.iter().flat_map(|v| &v.relocs);
    let in_code = object.functions.iter().flat_map(|f| &f.relocs);
    let in_graph = object.functions.iter().flat_map(|f| f.calls.iter().chain(&f.takes)).cloned();
    let used: FxHashSet<String> = in_data.chain(in_code).map(|r| r.symbol.clone()).chain(in_graph).collect();
    // Objects name all variables that are elsewhere, used or not; programs that can be extended have their own shared memory
    // (ptxas 13.0.88).
    let asked = |v: &Variable| settings.relocatable || !matches!(v.place, Place::Shared(_));
    object.variables.retain(|v| v.defined || asked(v) || used.contains(&v.name));
    let headers = functions::prototypes(module);
    object.externs = module
        .funcs
        .iter()
        .filter(|(id, f)| f.body.is_none() && !headers.contains(id) && used.contains(&f.name))
        .map(|(_, f)| f.name.clone())
        .collect();
    let elsewhere = module.funcs.values().filter(|f| f.body.is_none() && f.attrs.unified.is_some());
    object.unified_elsewhere = elsewhere.map(|f| f.name.clone()).collect();
    // The linker drops functions of this object alone that nothing seems to call.
    let in_data = object.variables.iter().flat_map(|v| &v.relocs).filter(|r| r.fill.is_of_a_function());
    let in_code = object.functions.iter().flat_map(|f| &f.takes).map(String::as_str);
    let taken: FxHashSet<&str> = in_data.map(|r| r.symbol.as_str()).chain(in_code).collect();
    let seen: Vec<(String, String)> = module
        .funcs
        .iter()
        .filter(|(id, f)| !headers.contains(id) && (f.body.is_none() || there.contains(id)))
        .map(|(_, f)| f)
        .filter(|f| !f.entry && (f.body.is_some() || object.externs.contains(&f.name)))
        .filter(|f| {
            f.linkage != Linkage::Internal
                || f.body.is_none()
                || taken.contains(f.name.as_str())
                || f.attrs.unified.is_some()
        })
        .map(|f| (f.name.clone(), prototype(module, f)))
        .collect();
    object.prototypes.extend(seen);
    // Kernels whose addresses are taken are in the list of what is, without a prototype (ptxas 13.0.88).
    let in_data = object.variables.iter().flat_map(|v| &v.relocs).map(|r| &r.symbol);
    let taken: FxHashSet<&String> = in_data.chain(object.functions.iter().flat_map(|f| &f.takes)).collect();
    let kernels = object.functions.iter().filter(|f| f.entry && taken.contains(&f.code.name));
    let kernels: Vec<_> = kernels.map(|f| (f.code.name.clone(), String::new())).collect();
    object.prototypes.extend(kernels);
    let any = chosen.iter().any(|f| module.funcs[*f].entry);
    let last = chosen.last().filter(|_| any && !settings.debug);
    object.holder = last.map(|f| module.funcs[*f].name.clone());
    for (id, function, _) in module.aliases.iter().filter(|a| there.contains(&a.1)) {
        let (alias, function) = (&module.funcs[*id], &module.funcs[*function]);
        let callers = module.by_alias.called.iter().filter(|(caller, a)| a == id && there.contains(caller));
        object.aliases.push(cubin::object::Alias {
            name: alias.name.clone(),
            function: function.name.clone(),
            callers: callers.map(|(caller, _)| module.funcs[*caller].name.clone()).collect(),
            taken: module.by_alias.taken.contains(id),
        });
        if function.linkage != Linkage::Internal {
            object.prototypes.push((alias.name.clone(), prototype(module, alias)));
        }
    }
    if with_lines {
        let units: Vec<debug::Unit<'_>> = codes
            .iter()
            .map(|(part, code)| debug::Unit {
                name: &module.funcs[part.func].name,
                code,
                parts: vec![part.clone()],
            })
            .collect();
        let mut tables = debug::lines(module, source, lines, &units);
        if settings.debug {
            let names = dwarf::Names::new(module, layout, lines, &units, (settings.target, true));
            let known = |name: &str| {
                units.iter().any(|u| u.name == name) || object.variables.iter().any(|v| v.name == name)
            };
            tables.copied = dwarf::copied(&names, known);
            tables.registers = Some(debug::registers(module, &units));
        }
        object.lines = Some(tables);
    }
    let written = timeline.time(Stage::Elf, || cubin::object::write(&object));
    output.cubin = written.map_err(|e| vec![Diagnostic::whole(e.to_string())])?;
    Ok(Output { timeline, ..output })
}

/// What stays of a program that can be extended: its kernels, and the functions that these and variables reach, as nothing else calls
/// functions of such a program (ptxas 13.0.88 keeps none by itself). Where code is debugged, all others stay too, but for those that
/// come to textures for which no kernel has words.
fn kept_by_kernels(units: &Units<'_>, chosen: &[FuncId]) -> FxHashSet<FuncId> {
    let Units { module, layout, settings, .. } = units;
    let kernels = chosen.iter().filter(|f| module.funcs[**f].entry).map(|f| Symbol::Func(*f));
    let mut kept = reached(module, kernels.chain(module.vars.keys().map(Symbol::Var)));
    if settings.debug {
        let complete = |f: &FuncId| layout.images.finds_all(module, settings.target, *f);
        for f in chosen {
            let more = reached(module, std::iter::once(Symbol::Func(*f)));
            if more.iter().all(complete) {
                kept.extend(more);
            }
        }
    }
    kept
}

/// What `-v` says of it. Shared variables of the module are nobody's yet.
fn stats(module: &Module, f: &cubin::object::Function, func: &Func, time: Duration) -> KernelStats {
    let own = func.body.iter().filter(|_| func.entry).flat_map(|b| &b.vars).map(|v| &module.vars[*v]);
    let placed = own.filter(|v| v.space == Space::Shared && !v.is_unsized() && v.linkage != Linkage::Extern);
    let shared = placed.map(|v| u32::try_from(v.size()).unwrap_or(u32::MAX)).fold(0, u32::saturating_add);
    KernelStats {
        name: func.name.clone(),
        entry: func.entry,
        registers: f.code.registers.into(),
        barriers: f.code.barriers.into(),
        frame: f.code.frame_bytes,
        shared,
        constant: (u32::from(f.code.param_base) + u32::from(f.code.param_bytes), 0),
        instructions: f.code.code.len(),
        time,
        ..KernelStats::default()
    }
}

/// A compiled function as the object has it.
fn function(
    module: &Module,
    id: FuncId,
    code: Code,
    options: &lower::Options<'_>,
) -> Result<cubin::object::Function, Vec<Diagnostic>> {
    let func = &module.funcs[id];
    let error = |e: backend::Error| vec![Diagnostic::error(func.span, e.message)];
    let (code, relocs) = backend::link::object(options.target, &code).map_err(error)?;
    let least = if !func.entry || !code.callees.is_empty() { LEAST_LIMIT } else { 0 };
    let of_callees = functions::least_registers(module, &functions::externs(module, [id]));
    let registers = code.stated_registers(least.max(of_callees));
    // What code that is gone names is in the call graph, too, as with ptxas.
    let name = |f: FuncId| module.funcs[f].name.clone();
    let mut calls: Vec<String> = Vec::new();
    let called = functions::calls(module, id).filter_map(functions::callee);
    let left = code.callees.iter().filter_map(|c| match c {
        ori::Callee::Internal(name) => Some(name.clone()),
        _ => None,
    });
    // A call by a list is one of each of its functions that are here, which programs that can be extended need not hold.
    let through = functions::through_pointers(module, id);
    let listed = through.iter().flat_map(|t| match t {
        Through::List(funcs) if !options.extensible => *funcs,
        Through::List(_) | Through::Prototype(_) => &[],
    });
    let listed = listed.copied().filter(|f| module.funcs[*f].body.is_some());
    for f in left.chain(called.chain(listed).map(name)) {
        if !calls.contains(&f) {
            calls.push(f);
        }
    }
    let mut takes: Vec<String> = Vec::new();
    let taken = functions::address_taken(module, id).into_iter().map(name);
    let left = code.symbols.iter().filter(|s| s.part == Part::FunctionLow).map(|s| s.name.clone());
    for f in left.chain(taken) {
        if !takes.contains(&f) {
            takes.push(f);
        }
    }
    let mut indirect: Vec<String> = Vec::new();
    for t in &through {
        let like = match t {
            Through::Prototype(f) => Some(f),
            Through::List(funcs) => funcs.first().filter(|_| options.extensible),
        };
        let Some(p) = like.map(|f| prototype(module, &module.funcs[*f])) else { continue };
        if !indirect.contains(&p) {
            indirect.push(p);
        }
    }
    let said = facts::Said::by(options.target.sm, options.extra, [func], options.lines);
    let facts = facts::apart(&code, options.target.sm, Some(&said));
    let return_address = lower::convention(func).return_address();
    let frame = cubin::frames::Frame { return_address, ..facts::frame(&code.insts, &code.of_caller) };
    Ok(cubin::object::Function {
        code: cubin::Kernel { facts, frame, ..kernel_record(module, func, code, registers, options) },
        entry: func.entry,
        relocs: relocations(relocs, &func.name),
        calls,
        takes,
        indirect,
        unified: func.attrs.unified,
        entry_of: None,
    })
}

/// A function in which lanes meet, as the object has it. Every object has its own, and the linker keeps one of them, so
/// that lanes meet there wherever they come from.
fn meeting(
    name: String,
    code: &Code,
    options: &lower::Options<'_>,
) -> Result<cubin::object::Function, Vec<Diagnostic>> {
    let error = |e: backend::Error| vec![Diagnostic::whole(e.message)];
    let (code, relocs) = backend::link::object(options.target, code).map_err(error)?;
    let kernel = meeting_record(&name, code, options.target);
    Ok(cubin::object::Function {
        relocs: relocations(relocs, &name),
        code: kernel,
        entry: false,
        calls: Vec::new(),
        takes: Vec::new(),
        indirect: Vec::new(),
        unified: None,
        entry_of: None,
    })
}

/// The entry of a unified function in the table that all programs have in common: it goes on to the function. It is the
/// same on all targets (ptxas 13.0.88).
fn entry_of_table(
    function: &str,
    options: &lower::Options<'_>,
) -> Result<cubin::object::Function, Vec<Diagnostic>> {
    /// An instruction, how many times, the cycles until the next, and whether the warp goes on meanwhile.
    const CODE: &[(&str, usize, u8, bool)] = &[
        ("CALL.ABS.NOINC 0x0", 1, 5, true),
        ("BRA 0x10", 1, 5, true),
        ("NOP", 4, 1, true),
        ("BRA 0x60", 1, 0, false),
        ("NOP", 1, 0, false),
    ];
    let mut code = Vec::new();
    for (text, times, stall, no_yield) in CODE {
        for _ in 0..*times {
            let ctrl = sass::Control { stall: *stall, no_yield: *no_yield, ..sass::Control::default() };
            let word = sass::assemble(text, options.target, 16 * code.len() as i64, ctrl);
            code.push(word.map_err(|e| vec![Diagnostic::whole(e.to_string())])?);
        }
    }
    let call = cubin::object::Reloc { offset: 0, fill: Fill::Call, symbol: function.into(), addend: 0 };
    Ok(cubin::object::Function {
        code: cubin::Kernel {
            name: format!("__cuda_uf_stub_{function}"),
            binding: Binding::Local,
            registers: LEAST_LIMIT,
            param_base: options.target.info().param_base,
            code,
            ..cubin::Kernel::default()
        },
        relocs: vec![call],
        calls: vec![function.into()],
        entry_of: Some(function.into()),
        ..cubin::object::Function::default()
    })
}

/// What a file says of a function in which lanes meet and that has a section of its own.
pub(crate) fn meeting_record(name: &str, code: Code, target: sass::Target) -> cubin::Kernel {
    cubin::Kernel {
        name: name.into(),
        facts: facts::apart(&code, target.sm, None),
        frame: facts::frame(&code.insts, &code.of_caller),
        binding: Binding::Weak,
        registers: code.stated_registers(LEAST_LIMIT).min(255) as u8,
        frame_bytes: code.frame_bytes,
        barriers: code.barriers as u8,
        param_base: target.info().param_base,
        exits: code.exit_offsets,
        literals: code.literals,
        code: code.words,
        ..cubin::Kernel::default()
    }
}

/// Relocations as the file has them, of the code of the function `own`.
pub(crate) fn relocations(relocs: Vec<backend::link::Reloc>, own: &str) -> Vec<cubin::object::Reloc> {
    relocs
        .into_iter()
        .map(|r| cubin::object::Reloc {
            offset: r.offset.into(),
            fill: match (r.fill, &r.whose) {
                (CodeFill::Call, Whose::FunctionBase) => Fill::FunctionBase,
                (CodeFill::Call, _) => Fill::Call,
                (CodeFill::Part(p), _) => match p {
                    Part::Low => Fill::Low,
                    Part::High => Fill::High,
                    Part::FunctionLow => Fill::FunctionLow,
                    Part::FunctionHigh => Fill::FunctionHigh,
                    Part::KernelLow => Fill::KernelLow,
                    Part::KernelHigh => Fill::KernelHigh,
                    Part::Shared => Fill::Shared,
                    Part::Constant => Fill::Constant,
                    Part::Number => Fill::Number,
                },
            },
            symbol: match r.whose {
                Whose::Own => own.to_string(),
                Whose::Symbol(name) => name,
                Whose::FunctionBase => String::new(),
            },
            addend: r.addend.into(),
        })
        .collect()
}

/// Lets code take addresses of unified variables from the linker's table.
fn unified_addresses(relocs: &mut [cubin::object::Reloc], module: &Module, layout: &lower::ModuleLayout) {
    let unified: FxHashSet<String> = module
        .vars
        .iter()
        .filter(|(_, v)| v.unified.is_some() && v.opaque.is_none())
        .map(|(id, _)| layout.symbol_name(module, Symbol::Var(id)))
        .collect();
    for r in relocs.iter_mut().filter(|r| unified.contains(&r.symbol)) {
        r.fill = match r.fill {
            Fill::Low => Fill::UnifiedLow,
            Fill::High => Fill::UnifiedHigh,
            other => other,
        };
    }
}

/// The variables that have an address, with what they hold.
fn variables(
    module: &Module,
    (layout, images): (&lower::ModuleLayout, &Images),
    object: &mut Object,
    errors: &mut Vec<Diagnostic>,
) {
    let mut numbers: FxHashMap<String, usize> = FxHashMap::default();
    let mut add = |id: VarId, owner: Option<&Func>, errors: &mut Vec<Diagnostic>| {
        let var = &module.vars[id];
        if var.opaque.is_some() {
            return;
        }
        let place = match var.space {
            Space::Global => Place::Global,
            Space::Const => Place::Constant,
            Space::Shared => Place::Shared(owner.filter(|f| f.entry).map(|f| f.name.clone())),
            _ => return,
        };
        let name = layout.symbol_name(module, Symbol::Var(id));
        // An array of unknown size is the launch's.
        let dynamic = var.space == Space::Shared && var.is_unsized();
        let defined = var.linkage != Linkage::Extern && !dynamic;
        let new = object.variables.len();
        let n = *numbers.entry(name.clone()).or_insert(new);
        if let Some(old) = object.variables.get_mut(n) {
            // A declaration and its definition.
            if old.defined || !defined {
                return;
            }
            old.binding = binding(var.linkage);
            old.defined = true;
        } else {
            object.variables.push(Variable {
                name,
                place,
                binding: binding(var.linkage),
                defined,
                // With an initial value it is like any other (ptxas 13.0.88).
                common: var.linkage == Linkage::Common && var.init.is_none(),
                managed: var.managed,
                unified: var.unified,
                size: var.size(),
                align: u64::from(var.align),
                init: None,
                relocs: Vec::new(),
            });
        }
        let Some(init) = &var.init else { return };
        let bytes = match initial_bytes(var, init) {
            Ok(bytes) => bytes,
            Err(e) => return errors.push(Diagnostic::error(var.span, e)),
        };
        let unified = object.variables[n].unified.is_some();
        let relocs = init.relocs.iter().flat_map(|r| {
            let symbol = images.symbol(r.symbol).unwrap_or_else(|| layout.symbol_name(module, r.symbol));
            Address::of(module, r, unified).relocs(0, r, &symbol)
        });
        let relocs = relocs.collect();
        let v = &mut object.variables[n];
        v.init = Some(bytes);
        v.relocs = relocs;
    };
    for item in &module.items {
        match item {
            Item::Var(v) => add(*v, None, errors),
            Item::Func(f) => {
                let func = &module.funcs[*f];
                for v in func.body.iter().flat_map(|b| &b.vars) {
                    add(*v, Some(func), errors);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Settings;
    use sass::Target;

    /// Functions that only a table of pointers names are in the call graph, as in ptxas's objects: else nvlink drops them
    /// and the pointers are null.
    #[test]
    fn functions_in_tables_are_in_the_call_graph() {
        let source = ".version 8.0\n.target sm_90\n.address_size 64\n\
            .func (.param .b32 r) f(.param .b32 a) { .reg .b32 %r<2>; ld.param.b32 %r0, [a]; st.param.b32 [r], %r0; ret; }\n\
            .global .align 8 .u64 table[1] = {f};\n\
            .visible .entry k(.param .u64 p) { .reg .b64 %d<3>; ld.param.u64 %d0, [p]; ld.global.u64 %d1, [table];\n\
            st.global.u64 [%d0], %d1; ret; }\n";
        let mut settings = Settings::new(Target::new(90).unwrap());
        settings.relocatable = true;
        let file =
            crate::compile(source, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render("k"))).cubin;
        let mark = |n: i32| [0u32, n as u32].map(u32::to_le_bytes).concat();
        let find = |n: i32| file.windows(8).position(|w| w == mark(n)).unwrap();
        let (taken, indirect, takes) = (find(-2), find(-3), find(-4));
        assert_eq!(indirect - taken, 16, "one function whose address is taken");
        let function = &file[taken + 8..taken + 12];
        assert_eq!(&file[takes + 12..takes + 16], function, "k reaches it");
    }
}
