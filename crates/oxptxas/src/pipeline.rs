//! From PTX text to a cubin: the order of the layers, kernels in parallel, the same bytes for any number of
//! threads.

use backend::Code;
use ptx::{Diagnostic, FuncId, LineIndex, Linkage, Module, Severity, Symbol};
use rayon::prelude::*;
use sass::Target;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// How to compile.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What for.
    pub target: Target,
    /// `-O`, 0 … 3.
    pub opt_level: u8,
    /// `-maxrregcount`
    pub max_registers: Option<u32>,
    /// `-fmad`
    pub fmad: bool,
    /// `-e`: only these kernels; empty for all.
    pub entries: Vec<String>,
    /// The options as text, for the note in the cubin.
    pub options_text: String,
    /// Every instruction waits for everything before it.
    pub serial: bool,
}

impl Settings {
    /// Defaults for a target.
    pub fn new(target: Target) -> Settings {
        Settings {
            target,
            opt_level: 3,
            max_registers: None,
            fmad: true,
            entries: Vec::new(),
            options_text: format!("-arch {target}"),
            serial: false,
        }
    }
}

/// What `-v` says of a kernel.
#[derive(Clone, Debug, Default)]
pub struct KernelStats {
    /// Name.
    pub name: String,
    /// Registers per thread.
    pub registers: u32,
    /// Named barriers.
    pub barriers: u32,
    /// Bytes of stack frame.
    pub frame: u32,
    /// Bytes of spill stores and loads.
    pub spills: (u32, u32),
    /// Bytes of static shared memory, the reserved part left out.
    pub shared: u32,
    /// Bytes of constant bank 0; bank 2.
    pub constant: (u32, u32),
    /// Instructions, padding included.
    pub instructions: usize,
    /// Time to compile it.
    pub time: Duration,
}

/// A compiled module.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// The ELF file.
    pub cubin: Vec<u8>,
    /// A line per kernel, in the order of the file.
    pub kernels: Vec<KernelStats>,
    /// Bytes of global variables; constant banks 3 and 4.
    pub module_bytes: (u64, u32, u32),
}

/// Why there is no output.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The messages.
    pub diagnostics: Vec<Diagnostic>,
    file: String,
    source: String,
}

impl Failure {
    /// The messages as text, closed as ptxas closes them.
    pub fn render(&self, program: &str) -> String {
        let lines = LineIndex::new(&self.source);
        let mut out: String =
            self.diagnostics.iter().map(|d| d.render(program, &self.file, &self.source, &lines)).collect();
        // ptxas leaves this line out when the target itself is refused.
        let located = self.diagnostics.iter().any(|d| d.span.is_some() || d.severity != Severity::Fatal);
        if located {
            let _ =
                writeln!(out, "{program} {}: Ptx assembly aborted due to errors", Severity::Fatal.padded());
        }
        out
    }
}

/// Parses and checks; what `-arch=compute_XX` does.
///
/// # Errors
/// Everything that is wrong with the source.
pub fn front_end(source: &str, file: &str, sm: u8) -> Result<Module, Failure> {
    let fail = |diagnostics| Failure { diagnostics, file: file.into(), source: source.into() };
    let module = ptx::parse(source).map_err(fail)?;
    ptx::check(&module, u16::from(sm)).map_err(fail)?;
    Ok(module)
}

/// Compiles a module.
///
/// # Errors
/// Everything that is wrong with the source, or not supported yet.
pub fn compile(source: &str, file: &str, settings: &Settings) -> Result<Output, Failure> {
    let fail = |diagnostics| Failure { diagnostics, file: file.into(), source: source.into() };
    let fatal = |message: String| fail(vec![Diagnostic { severity: Severity::Fatal, span: None, message }]);
    let module = front_end(source, file, settings.target.sm)?;
    let suffixed = module.targets.iter().any(|t| t.starts_with("sm_") && t.ends_with(['a', 'f']));
    if suffixed && !module.targets.contains(&settings.target.to_string()) {
        let message = format!(
            "PTX with .target '{}' cannot be compiled to architecture '{}'",
            module.targets[0], settings.target
        );
        return Err(fatal(message));
    }
    let lines = LineIndex::new(source);
    let layout = lower::ModuleLayout::new(&module, settings.target).map_err(fail)?;
    let unresolved = unresolved_addresses(&module, &layout);
    if !unresolved.is_empty() {
        return Err(fail(unresolved));
    }
    for name in &settings.entries {
        if !module.funcs.values().any(|f| f.entry && f.body.is_some() && f.name == *name) {
            return Err(fatal(format!("Unknown function {name}")));
        }
    }
    // ptxas puts the kernels into the file in reverse order.
    let chosen: Vec<FuncId> = module
        .funcs
        .iter()
        .filter(|(_, f)| f.body.is_some())
        .filter(|(_, f)| settings.entries.is_empty() || settings.entries.contains(&f.name))
        .map(|(id, _)| id)
        .rev()
        .collect();
    let compiled: Vec<Result<(Code, Duration), Vec<Diagnostic>>> = chosen
        .par_iter()
        .map(|id| {
            let start = Instant::now();
            let code = compile_function(&module, *id, &layout, &lines, settings)?;
            Ok((code, start.elapsed()))
        })
        .collect();
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
    Ok(assemble(&module, &layout, &chosen, codes, settings))
}

/// Addresses that an executable can't hold: of what is not defined in it, of anything but global variables,
/// in fields of another size than 8 bytes, or in constant memory.
fn unresolved_addresses(module: &Module, layout: &lower::ModuleLayout) -> Vec<Diagnostic> {
    let defined = |s: Symbol| matches!(s, Symbol::Var(v) if layout.globals.contains(&v));
    let span_of = |s: Symbol| match s {
        Symbol::Var(v) => module.vars[v].span,
        Symbol::Func(f) => module.funcs[f].span,
    };
    let mut errors: Vec<Diagnostic> = Vec::new();
    for s in layout.slots.iter().filter(|s| !defined(**s)) {
        let message = format!("the address of '{}' is not supported yet", symbol_name(module, *s));
        errors.push(Diagnostic::error(span_of(*s), message));
    }
    for (vars, constant) in [(&layout.globals, false), (&layout.consts, true)] {
        for v in vars {
            let var = &module.vars[*v];
            let relocs = var.init.iter().flat_map(|i| &i.relocs);
            if relocs.into_iter().any(|r| constant || r.size != 8 || !defined(r.symbol)) {
                let message = format!("an address in the initializer of '{}' is not supported yet", var.name);
                errors.push(Diagnostic::error(var.span, message));
            }
        }
    }
    errors
}

/// One kernel through lowering, optimization and the backend.
fn compile_function(
    module: &Module,
    id: FuncId,
    layout: &lower::ModuleLayout,
    lines: &LineIndex,
    settings: &Settings,
) -> Result<Code, Vec<Diagnostic>> {
    let options = lower::Options {
        target: settings.target,
        opt_level: settings.opt_level,
        maxrregcount: settings.max_registers,
        fmad: settings.fmad,
        lines: Some(lines),
    };
    let span = module.funcs[id].span;
    let internal = |message: String| vec![Diagnostic::error(span, message)];
    let mut func = lower::lower_function(module, id, layout, &options)?;
    opt::optimize(&mut func, settings.opt_level, |_, _| {})
        .map_err(|e| internal(format!("internal error: {e}")))?;
    let options = backend::Options { opt_level: settings.opt_level, serial: settings.serial };
    backend::compile(func, &options).map_err(|e| {
        let mut d = internal(e.message);
        if e.line != 0 {
            let start = lines.offset(e.line);
            d[0].span = Some(ptx::Span { start, end: start });
        }
        d
    })
}

/// Gathers the compiled kernels and the module's variables into a cubin.
fn assemble(
    module: &Module,
    layout: &lower::ModuleLayout,
    chosen: &[FuncId],
    codes: Vec<(Code, Duration)>,
    settings: &Settings,
) -> Output {
    let target = settings.target;
    let info = target.info();
    let mut output = Output::default();
    let mut file = cubin::Cubin {
        sm: target.sm,
        ptx_sm: ptx::check::target_sm(module).min(255) as u8,
        options: settings.options_text.clone(),
        ..cubin::Cubin::default()
    };
    for (id, (code, time)) in chosen.iter().zip(codes) {
        let func = &module.funcs[*id];
        let (offsets, param_bytes) = module.param_layout(func);
        let reserved =
            if target.sm >= 90 && code.shared_size != 0 { lower::layout::RESERVED_SHARED } else { 0 };
        output.kernels.push(KernelStats {
            name: func.name.clone(),
            registers: code.regs,
            barriers: code.barriers,
            frame: code.frame_bytes,
            spills: (code.spill_store_bytes, code.spill_load_bytes),
            shared: code.shared_size - reserved,
            constant: (u32::from(info.param_base) + param_bytes, code.literals.len() as u32),
            instructions: code.words.len(),
            time,
        });
        let convergence = code.insts.iter().any(|i| i.op == sass::Opcode::BSSY);
        file.kernels.push(cubin::Kernel {
            name: func.name.clone(),
            registers: code.regs.min(255) as u8,
            frame_bytes: code.frame_bytes,
            barriers: code.barriers as u8,
            convergence,
            shared_bytes: code.shared_size,
            param_base: info.param_base,
            param_bytes: param_bytes as u16,
            params: offsets
                .iter()
                .zip(&func.params)
                .map(|(at, p)| (*at as u16, module.vars[*p].size() as u32))
                .collect(),
            exits: code.exit_offsets,
            literals: code.literals,
            max_registers: func.attrs.maxnreg.map(|n| n.min(255) as u8),
            maxntid: func.attrs.maxntid,
            reqntid: func.attrs.reqntid,
            code: code.words,
        });
    }
    for v in &layout.globals {
        let var = &module.vars[*v];
        let init = var.init.as_ref().map(|i| {
            let mut bytes = i.bytes.clone();
            bytes.resize(var.size() as usize, 0);
            bytes
        });
        let relocs = var.init.iter().flat_map(|i| &i.relocs);
        file.globals.push(cubin::Global {
            name: var.name.clone(),
            size: var.size(),
            align: u64::from(var.align),
            init,
            relocs: relocs.map(|r| (r.offset, symbol_name(module, r.symbol), r.addend)).collect(),
            visible: var.linkage != Linkage::Internal,
        });
    }
    file.constants = vec![0; layout.const_size as usize];
    for v in &layout.consts {
        let var = &module.vars[*v];
        let at = layout.const_offset(*v).unwrap_or(0);
        if let Some(init) = &var.init {
            file.constants[at as usize..at as usize + init.bytes.len()].copy_from_slice(&init.bytes);
        }
        file.constant_symbols.push((var.name.clone(), at, var.size() as u32));
    }
    file.addresses = layout.slots.iter().map(|s| (symbol_name(module, *s), 0)).collect();
    let global_bytes = file.globals.iter().map(|g| g.size).sum();
    output.module_bytes = (global_bytes, layout.const_size, 8 * file.addresses.len() as u32);
    output.cubin = cubin::write::write(&file);
    output
}

fn symbol_name(module: &Module, symbol: Symbol) -> String {
    match symbol {
        Symbol::Var(v) => module.vars[v].name.clone(),
        Symbol::Func(f) => module.funcs[f].name.clone(),
    }
}

impl Output {
    /// What `-v` prints, line for line as ptxas 13.0 does.
    pub fn verbose(&self, program: &str, target: Target) -> String {
        let info = format!("{program} {}", Severity::Info.padded());
        // From sm_90 on constant banks are not listed.
        let banks = target.sm < 90;
        let mut out = format!("{info}: {} bytes gmem", self.module_bytes.0);
        if banks {
            for (bank, bytes) in [(3, self.module_bytes.1), (4, self.module_bytes.2)] {
                if bytes != 0 {
                    let _ = write!(out, ", {bytes} bytes cmem[{bank}]");
                }
            }
        }
        out.push('\n');
        for k in &self.kernels {
            let _ = writeln!(out, "{info}: Compiling entry function '{}' for '{target}'", k.name);
            let _ = writeln!(out, "{info}: Function properties for {}", k.name);
            let _ = writeln!(
                out,
                "    {} bytes stack frame, {} bytes spill stores, {} bytes spill loads",
                k.frame, k.spills.0, k.spills.1
            );
            let _ = write!(out, "{info}: Used {} registers, used {} barriers", k.registers, k.barriers);
            if k.frame != 0 {
                let _ = write!(out, ", {} bytes cumulative stack size", k.frame);
            }
            if k.shared != 0 {
                let _ = write!(out, ", {} bytes smem", k.shared);
            }
            if banks {
                let _ = write!(out, ", {} bytes cmem[0]", k.constant.0);
                if k.constant.1 != 0 {
                    let _ = write!(out, ", {} bytes cmem[2]", k.constant.1);
                }
            }
            let _ = writeln!(out, "\n{info}: Compile time = {:.3} ms", k.time.as_secs_f64() * 1e3);
        }
        out
    }
}
