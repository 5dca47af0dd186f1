//! From PTX text to a cubin: the order of the layers, kernels in parallel, the same bytes for any number of
//! threads.

use crate::assemble::{Device, apart, assemble, symbol_name};
use crate::output::{Failure, Output};
use crate::settings::{Settings, asked_in_vain};
use crate::timeline::{Stage, Timeline};
use crate::units::{Paths, Units};
use crate::{convention, debug, driver, functions, limits, newer, notices, preserved, stacks, vector_params};
#[cfg(all(debug_assertions, feature = "order-check"))]
use backend::Code;
use ori::Cancel;
use ptx::{Diagnostic, FuncId, LineIndex, Module, Severity, Space, Symbol, VarId};
use rustc_hash::{FxHashMap, FxHashSet};
use sass::Target;
use std::time::Duration;

/// Parses and checks for `target`, which the user called `arch`.
///
/// # Errors
/// Everything that is wrong with the source.
pub fn front_end(source: &str, file: &str, target: Target, arch: &str) -> Result<Module, Failure> {
    checked(ptx::parse_all(source), (source, file), target, arch)
}

/// What came of parsing a text, checked for `target`.
fn checked(
    (mut module, mut errors): (Module, Vec<Diagnostic>),
    (source, file): (&str, &str),
    target: Target,
    arch: &str,
) -> Result<Module, Failure> {
    let fail = |diagnostics| Failure::new(diagnostics, file, source);
    lower::layout::place_params(&mut module, target);
    if errors.iter().any(|e| e.severity == Severity::Fatal) {
        newer::note(&module, source, &mut errors);
        return Err(fail(errors));
    }
    // What could be parsed is checked even where something could not, and before it is asked whether it runs there.
    let sm = u16::from(target.sm).max(ptx::check::target_sm(&module));
    if let Err(more) = ptx::check(&module, sm) {
        errors.extend(more);
        errors.sort_by_key(|e| e.span.map_or(0, |s| s.start));
    }
    newer::note(&module, source, &mut errors);
    let suffix = ptx::isa::Suffix::of(&target.to_string());
    if errors.is_empty()
        && let Some(message) = ptx::check::refusal(&module, u16::from(target.sm), suffix, arch)
    {
        return Err(fail(vec![Diagnostic::whole(message)]));
    }
    if errors.is_empty() { Ok(module) } else { Err(fail(errors)) }
}

/// Refuses what patches for tools (`--compile-as-tools-patch`) must not have.
fn patch(module: &Module) -> Result<(), Vec<Diagnostic>> {
    let errors = notices::not_in_patches(module);
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// What `-arch=compute_XX` does: the front end and nothing else; the warnings. `arch` is the target as the user wrote it.
///
/// # Errors
/// Everything that is wrong with the source.
pub fn check(source: &str, file: &str, settings: &Settings, arch: &str) -> Result<Vec<Diagnostic>, Failure> {
    let module = front_end(source, file, settings.target, arch)?;
    let fail = |errors| Failure::new(errors, file, source);
    limits::of_mode(&module, settings).map_err(fail)?;
    if settings.asked.patch {
        patch(&module).map_err(fail)?;
    }
    Ok(ptx::check::warnings(&module))
}

/// What the front end knows but the code generator does not.
fn not_built(module: &Module) -> Option<ptx::Diagnostic> {
    let refuse =
        |span, what: &str| ptx::Diagnostic::error(span, format!("Feature '{what}' is not supported yet"));
    let mut used: Vec<VarId> = Vec::new();
    let mut note = |s: Symbol| {
        if let Symbol::Var(v) = s {
            used.push(v);
        }
    };
    for func in module.funcs.values() {
        lower::layout::for_each_symbol(func, &mut note);
    }
    for r in module.vars.values().flat_map(|v| &v.init).flat_map(|i| &i.relocs) {
        note(r.symbol);
    }
    // Arrays are left out, if nothing uses them.
    let opaque = |(id, v): &(VarId, &ptx::Var)| {
        let named = v.space != Space::Global || used.contains(id);
        v.opaque.is_some() && named && !v.dims.is_empty()
    };
    if let Some((_, var)) = module.vars.iter().find(opaque) {
        return Some(refuse(var.span, &format!(".{}", var.opaque.map_or("", |o| o.name()))));
    }
    None
}

/// Compiles the text of a PTX file, called `file` in messages, to the bytes of a cubin.
///
/// Any number of threads may do so at once, with the same settings or others; each call has threads of its own
/// ([`Settings::threads`]). The bytes depend on the source and the settings alone, not on the name or the threads.
///
/// # Errors
/// Everything that is wrong with the source, or not supported yet; or that it was cancelled ([`Settings::cancel`]).
pub fn compile(source: &str, file: &str, settings: &Settings) -> Result<Output, Failure> {
    cancellable(file, settings, || match settings.search {
        true => search(source, file, settings),
        false => compile_to_end(source, file, settings),
    })
}

/// Compiles the text of a PTX file once for each of the settings, and parses it once. The results are those of [`compile`], in the
/// order of the settings.
pub fn compile_all(source: &str, file: &str, all: &[Settings]) -> Vec<Result<Output, Failure>> {
    let parsed = ptx::parse_all(source);
    let one = |settings: &Settings| {
        if settings.search {
            return compile(source, file, settings);
        }
        cancellable(file, settings, || {
            let arch = settings.target.to_string();
            let front = || checked(parsed.clone(), (source, file), settings.target, &arch);
            compile_module(front, source, file, settings)
        })
    };
    all.iter().map(one).collect()
}

/// Compiles unless it is cancelled before, or on the way.
fn cancellable(
    file: &str,
    settings: &Settings,
    compile: impl FnOnce() -> Result<Output, Failure>,
) -> Result<Output, Failure> {
    let wished = || settings.cancel.as_ref().is_some_and(Cancel::wished);
    if wished() {
        return Err(Failure::cancelled(file));
    }
    let result = compile();
    // Whatever came of it: after the wish it is that of a compilation which did not go on.
    if wished() { Err(Failure::cancelled(file)) } else { result }
}

#[cfg(feature = "search")]
fn search(source: &str, file: &str, settings: &Settings) -> Result<Output, Failure> {
    crate::search::compile(source, file, settings)
}

#[cfg(not(feature = "search"))]
fn search(source: &str, file: &str, _: &Settings) -> Result<Output, Failure> {
    let message = "Option '--search' is not supported in this build, which has no simulator";
    Err(Failure::new(vec![Diagnostic::whole(message)], file, source))
}

pub(crate) fn compile_to_end(source: &str, file: &str, settings: &Settings) -> Result<Output, Failure> {
    let front = || front_end(source, file, settings.target, &settings.target.to_string());
    compile_module(front, source, file, settings)
}

/// Compiles what the front end gives.
fn compile_module(
    front: impl FnOnce() -> Result<Module, Failure>,
    source: &str,
    file: &str,
    settings: &Settings,
) -> Result<Output, Failure> {
    let fail = |diagnostics| Failure::new(diagnostics, file, source);
    let fatal = |message: String| fail(vec![Diagnostic::whole(message)]);
    let mut timeline = Timeline::new();
    let mut module = timeline.time(Stage::Parse, front)?;
    let narrow = ptx::check::narrow_addresses(&module, settings.target.sm.into());
    if !narrow.is_empty() {
        return Err(fail(narrow));
    }
    let debugging = settings.debug || module.targets.iter().any(|t| t == "debug");
    if debugging && settings.level_given && settings.opt_level > 0 {
        return Err(fatal("Optimized debugging not supported".into()));
    }
    let mut warnings = ptx::check::warnings_where(&module, |f| notices::compiled(f, settings));
    warnings.extend(notices::advice(&module, settings));
    let mut limits = match settings.verbose {
        true => notices::register_limits(&module, settings, debugging),
        false => Vec::new(),
    };
    let of_debugger;
    let settings = if debugging {
        warnings.extend(notices::debugging(&module, settings, std::mem::take(&mut limits)));
        of_debugger = settings.debugging();
        &of_debugger
    } else {
        warnings.extend(notices::lines_without_files(&module));
        settings
    };
    settings.directives.apply(&mut module, settings.max_registers);
    if settings.warn_double {
        warnings.extend(notices::double_precision(&module));
    }
    warnings.extend(notices::in_vain(&module, settings));
    warnings.extend(notices::launch_bounds(&module, settings));
    // An alias is elsewhere for what can be extended.
    if settings.extensible
        && !settings.relocatable
        && convention::several_results(&module).next().is_none()
        && let Some(d) = convention::addresses_elsewhere(&module, true)
    {
        return Err(fail(vec![d]));
    }
    if (settings.relocatable || settings.debug)
        && let Some((alias, span)) = module.alias_of_alias()
    {
        let message = format!("Function '{}' is aliased to what is an alias itself", alias.name);
        return Err(fail(vec![Diagnostic::error(span, message)]));
    }
    module.resolve_aliases();
    let said = preserved::said(&module, settings);
    if !said.errors.is_empty() {
        return Err(fail(said.errors));
    }
    warnings.extend(said.warnings);
    if let Some(d) = limits::spills_beside_dynamic(&module, settings) {
        return Err(fail(vec![d]));
    }
    limits::of_mode(&module, settings).map_err(fail)?;
    if settings.asked.patch {
        patch(&module).map_err(fail)?;
    }
    if let Some(d) = not_built(&module).or_else(|| asked_in_vain(&module, settings)) {
        return Err(fail(vec![d]));
    }
    let (more, relocatable) = convention_of(&mut module, settings).map_err(fail)?;
    let warning = |message| Diagnostic { severity: Severity::Warning, ..Diagnostic::whole(message) };
    warnings.extend(more.into_iter().map(warning));
    driver::call_driver(&mut module, settings.target);
    if !settings.relocatable && !settings.debug {
        lower::pool::splice(&mut module);
    }
    let lines = LineIndex::new(source);
    let mut layout = timeline
        .time(Stage::CompileUnitSetup, || lower::ModuleLayout::new(&module, settings.target).map_err(fail))?;
    // Where code is debugged ptxas keeps each function once.
    let separate = settings.debug && !relocatable;
    // What can be extended has its names in words as an executable has.
    if settings.relocatable {
        layout.link_images(&module, settings.target);
    } else if separate {
        layout.call_by_address(&module);
    }
    let mut units = Units {
        module: &module,
        layout: &layout,
        lines: &lines,
        options: lower::Options {
            target: settings.target,
            opt_level: settings.opt_level,
            maxrregcount: settings.max_registers,
            fmad: settings.fmad,
            lines: Some(&lines),
            relocatable,
            apart: separate,
            extensible: relocatable && !settings.relocatable,
            // Without optimization ptxas has nothing under way while a product is.
            serial_groups: settings.opt_level == 0,
            steady_registers: false,
            // ptxas checks the stack wherever it does not optimize.
            extra: ori::Extra {
                stack_bounds: settings.extra.stack_bounds || settings.opt_level == 0,
                ..settings.extra
            },
        },
        settings,
        plan: settings.knobs.plan(settings.opt_level, settings.cancel.clone()),
        paths: Paths::new(settings.max_registers.map(|n| n.min(255) as u8), false),
    };
    warnings.extend(limits);
    if relocatable {
        let mut output = crate::object::compile(&units, source, timeline).map_err(fail)?;
        warnings.append(&mut output.warnings);
        return Ok(Output { warnings, ..output });
    }
    let mut unresolved = functions::unresolved(&module);
    if unresolved.is_empty() {
        unresolved = unresolved_addresses(&module, &layout);
    }
    if !unresolved.is_empty() {
        return Err(fail(unresolved));
    }
    for name in &settings.entries {
        if !module.funcs.values().any(|f| f.entry && f.body.is_some() && f.name == *name) {
            return Err(fatal(format!("Unknown function {name}")));
        }
    }
    // ptxas puts the kernels into the file in reverse order, unless they are debugged.
    let mut chosen: Vec<FuncId> = module
        .funcs
        .iter()
        .filter(|(_, f)| f.entry && f.body.is_some())
        .filter(|(_, f)| settings.entries.is_empty() || settings.entries.contains(&f.name))
        .map(|(id, _)| id)
        .collect();
    if !settings.debug {
        chosen.reverse();
    }
    let mut too_much = limits::too_much_shared(&module, &layout, &chosen, settings.target);
    too_much
        .extend(chosen.iter().filter_map(|k| limits::over_the_bank(*k, &module, &layout, settings.target)));
    if !too_much.is_empty() {
        return Err(fail(too_much));
    }
    let images = |k: &FuncId| limits::too_many_images(&module, &layout, *k, settings.target);
    if let (false, Some(message)) = (settings.relocatable, chosen.iter().find_map(images)) {
        return Err(fatal(message));
    }
    if let Some(k) = chosen.iter().find(|k| limits::endless(&module.funcs[**k])) {
        let name = &module.funcs[*k].name;
        return Err(fatal(format!("The number of threads of entry '{name}' is too large")));
    }
    let uses: Vec<Vec<FuncId>> =
        chosen.iter().map(|k| layout.calls.reachable(&module, *k, &layout.functions)).collect();
    if settings.debug && !settings.quiet_stacks {
        warnings.extend(stacks::debugged(&module, &chosen));
    }
    let mut refused = limits::both_groups(&module, chosen.iter().zip(&uses));
    for (kernel, used) in chosen.iter().zip(&uses) {
        let limit = lower::max_regs(&module.funcs[*kernel], &units.options);
        refused.extend(limits::more_than_ever(&module, &[&[*kernel], &used[..]].concat(), limit.into()));
    }
    if !refused.is_empty() {
        return Err(fail(refused));
    }
    let (mut jobs, mut compiled);
    loop {
        let start = |k: &FuncId| match lower::pool::start(&module, *k, &layout, &units.options) {
            Some(Ok(n)) if !units.options.steady_registers => Some(n),
            _ => None,
        };
        let starts: Vec<Option<u8>> = chosen.iter().map(start).collect();
        let kernels = chosen.iter().copied().zip(starts.iter().copied());
        jobs = registers_of(&module, &layout, kernels.clone().zip(&uses), &units.options);
        if separate {
            // Those that no kernel reaches, too, unless they name textures for which no kernel has words.
            let known: FxHashSet<FuncId> = jobs.iter().map(|(f, _)| *f).collect();
            let functions = module.funcs.iter().filter(|(_, f)| !f.entry && f.body.is_some());
            let more = functions
                .map(|(f, _)| f)
                .filter(|f| !known.contains(f) && layout.images.finds_all(&module, settings.target, *f));
            jobs.extend(more.map(|f| (f, settings.max_registers)));
        }
        // What kernels call that change how many registers they hold runs with as few as there can be.
        let limit = kernels.map(|(k, start)| match start {
            Some(_) => sass::target::LEAST_LIMIT,
            None => lower::max_regs(&module.funcs[k], &units.options),
        });
        units.paths = Paths::new(limit.min(), jobs.len() == chosen.len());
        compiled = units.compile(&jobs, &mut timeline);
        // Where functions need more than is held where they are called, nothing changes how many that are.
        let called = compiled[chosen.len()..].iter().any(Result::is_err);
        if !called || starts.iter().all(Option::is_none) {
            break;
        }
        units.options.steady_registers = true;
    }
    let steady = units.options.steady_registers.then_some("functions that kernels call need more");
    let mut errors = Vec::new();
    let mut codes = Vec::new();
    for result in compiled {
        match result {
            Ok(c) => codes.push(c),
            Err(e) => errors.extend(e),
        }
    }
    if !errors.is_empty() {
        errors.sort_by_key(|d| d.span.map_or(0, |s| s.start));
        return Err(fail(errors));
    }
    #[cfg(all(debug_assertions, feature = "order-check"))]
    {
        for ((func, _), (code, _)) in jobs.iter().zip(&codes) {
            check_order(&module, *func, &lines, code);
        }
    }
    for (kernel, (code, _)) in chosen.iter().zip(&codes) {
        warnings.extend(notices::steady_registers(
            &module,
            *kernel,
            &layout,
            &units.options,
            code.steady.as_deref().or(steady),
        ));
    }
    let said = jobs.iter().zip(&codes).flat_map(|((f, _), (c, _))| notices::warp_groups(&module, *f, c));
    warnings.extend(said);
    let remarks = jobs.iter().zip(&codes).filter(|(_, (c, _))| !c.remarks.is_empty());
    let remarks: Vec<_> =
        remarks.map(|((f, _), (c, _))| (module.funcs[*f].name.clone(), c.remarks.clone())).collect();
    let shared = units.shared(codes.iter().map(|(c, _)| c), &mut timeline).map_err(fail)?;
    let device = codes.split_off(chosen.len());
    let names = jobs[chosen.len()..].iter().map(|(f, _)| module.funcs[*f].name.as_str());
    let apart =
        separate.then(|| {
            let mut apart: Vec<apart::Function<'_>> = Vec::new();
            let own = jobs[chosen.len()..].iter().zip(&device).map(|((f, _), (code, time))| {
                apart::Function { func: Some(*f), name: &module.funcs[*f].name, code, time: *time }
            });
            apart.extend(own);
            apart.sort_unstable_by_key(|f| f.func);
            let time = Duration::ZERO;
            apart.extend(shared.iter().map(|(name, code)| apart::Function { func: None, name, code, time }));
            apart
        });
    let functions = backend::link::Functions {
        code: names
            .zip(device.iter().map(|(c, _)| c))
            .chain(shared.iter().map(|(name, code)| (name.as_str(), code)))
            .collect(),
        table: layout.functions.iter().map(|f| module.funcs[*f].name.as_str()).collect(),
    };
    let listed = settings.line_info.unwrap_or_else(|| debug::has_source(&module)).then_some(source);
    let kernels: Vec<(FuncId, Vec<FuncId>)> = chosen.into_iter().zip(uses).collect();
    let device = Device { functions, apart };
    let assembled = || assemble(&module, &layout, &kernels, &device, codes, (&lines, listed), settings);
    let output = timeline.time(Stage::Elf, assembled).map_err(|e| fatal(e.into()))?;
    Ok(Output { timeline, warnings, remarks, ..output })
}

/// Looks at the linkage and the functions of a module: the warnings, and whether the file is relocatable.
fn convention_of(module: &mut Module, settings: &Settings) -> Result<(Vec<String>, bool), Vec<Diagnostic>> {
    let refuse = |message: String| Err(vec![Diagnostic::whole(message)]);
    let mut warnings: Vec<String> = Vec::new();
    let mut extensible = settings.extensible && !settings.relocatable;
    let prototypes = functions::prototypes(module);
    for (id, f) in convention::several_results(module) {
        if f.returns.iter().any(|v| module.vars[*v].space == Space::Param) {
            let message = "Multiple return parameters require .register state space";
            return Err(vec![Diagnostic::error(f.span, message)]);
        }
        if settings.debug {
            let message = "Function with multiple return values is not allowed with ABI";
            return Err(vec![Diagnostic { severity: Severity::Error, ..Diagnostic::whole(message) }]);
        }
        if std::mem::take(&mut extensible) {
            warnings.push(
                "Command line option '--extensible-whole-program' not supported for 'compilation without ABI', will be ignored"
                    .into(),
            );
        }
        if settings.relocatable {
            return refuse("'Compile only(-c)' requires ABI".into());
        }
        if !prototypes.contains(&id) {
            warnings.push(format!("Function '{}' with multiple return values found, disabling ABI", f.name));
        }
    }
    let through = |f: FuncId| functions::prototypes_called(module, f);
    let indirect = module.funcs.keys().any(|f| !through(f).is_empty());
    let elsewhere = !functions::externs(module, module.funcs.keys()).is_empty();
    if convention::several_results(module).next().is_some() && (indirect || elsewhere) {
        return refuse("'Indirect Functions or Extern Functions' requires ABI".into());
    }
    if convention::several_results(module).next().is_some() {
        let recursive = lower::CallGraph::new(module).recursive(module);
        if let Some((_, f)) = module.funcs.iter().find(|(id, _)| recursive.contains(*id)) {
            return refuse(format!("Function '{}' is recursive", f.name));
        }
    }
    if let Some(f) = functions::without_code(module) {
        return refuse(format!("Unresolved extern function '{}'", f.name));
    }
    if !settings.relocatable {
        warnings.extend(convention::adopt_variables(module, extensible)?);
        if let Some(d) = convention::addresses_elsewhere(module, extensible) {
            return Err(vec![d]);
        }
    }
    if settings.relocatable {
        vector_params::through_variables(module);
    }
    let refused = preserved::targets_that_differ(module)
        .or_else(|| convention::refused(module, settings))
        .or_else(|| preserved::prototypes_without_address(module, settings));
    match refused {
        Some(d) => Err(vec![d]),
        None => Ok((warnings, settings.relocatable || extensible)),
    }
}

/// Kernels, each with the number of registers that it begins with if it changes that, and the functions that they reach; and how many
/// each may use: a function as many as the most limited kernel that reaches it, or as warps hold that call it, where that changes; one
/// that has code of its own also no more than `-maxrregcount` says, which launch bounds of kernels go before.
fn registers_of<'u>(
    module: &Module,
    layout: &lower::ModuleLayout,
    kernels: impl Iterator<Item = ((FuncId, Option<u8>), &'u Vec<FuncId>)> + Clone,
    options: &lower::Options<'_>,
) -> Vec<(FuncId, Option<u32>)> {
    let mut jobs: Vec<_> = kernels.clone().map(|((k, _), _)| (k, options.maxrregcount)).collect();
    let mut place: FxHashMap<FuncId, usize> = FxHashMap::default();
    for ((kernel, start), used) in kernels.filter(|(_, used)| !used.is_empty()) {
        let limit = lower::max_regs(&module.funcs[kernel], options);
        let held = start.map(|n| lower::pool::held_in_functions(module, kernel, layout, n));
        for f in used {
            let held = held.as_ref().map(|h| h.get(f).copied().unwrap_or(sass::target::LEAST_LIMIT));
            let limit = u32::from(held.unwrap_or(limit));
            let at = *place.entry(*f).or_insert_with(|| {
                jobs.push((*f, options.maxrregcount.filter(|_| options.apart)));
                jobs.len() - 1
            });
            let most = &mut jobs[at].1;
            *most = Some(most.map_or(limit, |m| m.min(limit)));
        }
    }
    jobs
}

/// Whether the code keeps the order of memory accesses, which the order checker reads off the PTX.
#[cfg(all(debug_assertions, feature = "order-check"))]
fn check_order(module: &Module, func: FuncId, lines: &LineIndex, code: &Code) {
    let table: Vec<(u64, u32)> = code.lines.iter().map(|(at, line)| (u64::from(*at), *line)).collect();
    let insts = sim::order::Code::new(code.insts.iter().cloned().map(Some).collect(), &table);
    let options = sim::order::Options::default();
    let found = sim::order::check_function(module, func, lines, &insts, &[], options);
    if let Some(first) = found.violations.first() {
        panic!("{}: {first}", module.funcs[func].name);
    }
}

/// Addresses that an executable can't hold: of what is not defined in it.
fn unresolved_addresses(module: &Module, layout: &lower::ModuleLayout) -> Vec<Diagnostic> {
    let external = functions::externs(module, module.funcs.keys());
    let defined = |s: Symbol| match s {
        Symbol::Var(v) => layout.globals.contains(&v) || layout.const_offset(v).is_some(),
        Symbol::Func(f) => {
            let func = &module.funcs[f];
            external.contains(&f) || func.entry && func.body.is_some()
        }
    };
    let numbered = |s: Symbol| matches!(s, Symbol::Func(f) if layout.function_number(f).is_some());
    let span_of = |s: Symbol| match s {
        Symbol::Var(v) => module.vars[v].span,
        Symbol::Func(f) => module.funcs[f].span,
    };
    let mut errors: Vec<Diagnostic> = Vec::new();
    for s in layout.slots.iter().filter(|s| !defined(**s)) {
        let message = format!("the address of '{}' is not supported yet", symbol_name(module, *s));
        errors.push(Diagnostic::error(span_of(*s), message));
    }
    for vars in [&layout.globals, &layout.consts] {
        for v in vars {
            let var = &module.vars[*v];
            let relocs = var.init.iter().flat_map(|i| &i.relocs);
            let held = |r: &ptx::ast::Reloc| match r.symbol {
                Symbol::Func(f) => module.funcs[f].entry || numbered(r.symbol),
                Symbol::Var(v) => module.vars[v].opaque.is_some() || defined(r.symbol),
            };
            if !relocs.into_iter().all(held) {
                let message = format!("an address in the initializer of '{}' is not supported yet", var.name);
                errors.push(Diagnostic::error(var.span, message));
            }
        }
    }
    errors
}
