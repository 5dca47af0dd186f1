//! What ptxas 13.0.88 says of functions that say themselves which registers they keep (`.abi_preserve`): return addresses and arguments
//! that have no register, and calls that it thinks slow. docs/calls.md has where they are.

use crate::convention::reached;
use crate::functions::{callee, calls, prototypes_called};
use crate::notices;
use crate::settings::Settings;
use ori::abi::Convention;
use ptx::{Diagnostic, Func, FuncId, Item, Module, Operand, Severity, Stmt, Symbol};
use sass::Reg;

/// Errors, and else warnings.
#[derive(Default)]
pub(crate) struct Said {
    pub errors: Vec<Diagnostic>,
    pub warnings: Vec<Diagnostic>,
}

impl Said {
    fn error(&mut self, message: String) {
        self.errors.push(Diagnostic { severity: Severity::Error, ..Diagnostic::whole(message) });
    }

    fn warning(&mut self, message: String) {
        self.warnings.push(Diagnostic { severity: Severity::Warning, ..Diagnostic::whole(message) });
    }
}

/// What there is to say of a module.
pub(crate) fn said(module: &Module, settings: &Settings) -> Said {
    let mut out = Said::default();
    let declared = |f: &&Func| f.body.is_none();
    let items = || {
        module.items.iter().filter_map(|i| if let Item::Func(f) = i { Some(&module.funcs[*f]) } else { None })
    };
    for func in items().filter(declared).chain(items().filter(|f| !declared(f))) {
        if let Some(n) = func.attrs.abi_preserve {
            places(module, func, n, settings, &mut out);
        }
    }
    for (id, func) in module.funcs.iter().filter(|(_, f)| !f.entry) {
        let mut callees: Vec<&Func> =
            calls(module, id).filter_map(callee).map(|f| &module.funcs[f]).collect();
        callees.retain(|f| f.attrs.abi_preserve.is_some());
        callees.sort_by(|a, b| a.name.cmp(&b.name));
        callees.dedup_by(|a, b| a.name == b.name);
        for callee in callees {
            slow_call(func, callee, settings.max_registers, &mut out);
        }
    }
    out
}

/// A call by a list of targets, which is as all functions are called, where one of the list has a convention of its own: of the first such call
/// the last such target.
pub(crate) fn targets_that_differ(module: &Module) -> Option<Diagnostic> {
    let own = |f: &Func| f.attrs.abi_preserve.is_some() || f.attrs.abi_preserve_control.is_some();
    module.funcs.iter().find_map(|(id, caller)| {
        let label = |o: &Operand| if let Operand::Label(l) = o { Some(*l) } else { None };
        let mut labels = calls(module, id).filter_map(|c| c.operands.iter().find_map(label));
        let stmts = caller.body.as_ref().map(|b| &b.stmts)?;
        let target = labels.find_map(|label| {
            let targets = stmts.iter().find_map(|s| match s {
                Stmt::CallTargets(l, targets) if *l == label => Some(targets),
                _ => None,
            })?;
            targets.iter().rev().map(|f| &module.funcs[*f]).find(|f| own(f))
        })?;
        let what = match target.attrs.abi_preserve {
            Some(_) => "number of registers used for parameter passing differ",
            // So spelled.
            None => "scatrch control barriers differ",
        };
        Some(Diagnostic::whole(format!(
            "ABI mismatch when '{}' calls '{}': {what}",
            caller.name, target.name
        )))
    })
}

/// A call through a prototype whose return address has no register, from a function that is compiled.
pub(crate) fn prototypes_without_address(module: &Module, settings: &Settings) -> Option<Diagnostic> {
    let apart = settings.relocatable || settings.debug;
    let root = |f: &Func| f.body.is_some() && (apart || notices::compiled(f, settings));
    let roots = module.funcs.iter().filter(|(_, f)| root(f)).map(|(id, _)| Symbol::Func(id));
    let reached = reached(module, roots);
    let through = |id: FuncId| prototypes_called(module, id).into_iter().map(move |p| (id, p));
    let mut called = module.funcs.keys().filter(|id| reached.contains(id)).flat_map(through);
    called.find_map(|(caller, prototype)| {
        let caller = &module.funcs[caller];
        let limit = caller.attrs.maxnreg.filter(|_| caller.entry).or(settings.max_registers);
        let end =
            limit.unwrap_or(u32::MAX).min(Reg::ZERO.into()) - u32::from(sass::target::HARDWARE_REGISTERS);
        let at = return_address(module.funcs[prototype].attrs.abi_preserve?);
        (at + 1 >= end)
            .then(|| Diagnostic::whole(format!("(C7002) Return Address ({at}) should be less than {end}")))
    })
}

/// The first register of the return address of a function that keeps `n`, whether there is one or not.
fn return_address(n: u32) -> u32 {
    14 + (n & !1)
}

/// The registers of a function's arguments and of its return address, where it keeps `n`.
fn places(module: &Module, func: &Func, n: u32, settings: &Settings, out: &mut Said) {
    let (name, target) = (&func.name, settings.target);
    let address = return_address(n);
    if address > ori::abi::LAST_RETURN_ADDRESS.into() {
        out.error(format!("retaddr_reg {address} is invalid for {target}"));
    }
    let words = lower::argument_words(module, func);
    match lower::convention(func).argument_registers(words).map(|r| u32::from(r.first)) {
        Some(first) => {
            let end = first + words;
            if first < address + 2 && end > address {
                out.error(format!(
                    "Parameter registers from R{first} to R{} overlap with return address register R{address} to R{} for function '{name}'",
                    end - 1,
                    address + 1
                ));
            }
            if words > ori::abi::ARGUMENTS.into() && end - 1 > ori::abi::LAST_ARGUMENT.into() {
                out.error(format!("Parameter register {end} is invalid for {target}"));
            }
        }
        // In executables nothing comes of it.
        None if settings.relocatable || settings.extensible => {
            out.error(format!(
                "Parameters of {words} registers do not fit into those of a thread for function '{name}'"
            ));
        }
        None => {}
    }
    if func.body.is_some() {
        within_limit(func, address, words, settings, out);
    }
    for r in (address..address + 2).filter(|_| n < 2) {
        out.warning(format!(
            "Function '{name}' specifies register R{r} as scratch register which is used as return address register"
        ));
    }
}

/// Registers of a function with code that are behind those that the command line leaves it: said of the first of the return address, and
/// of the first and of the last of the arguments where these are not where all functions have them. Where code is debugged the return
/// address also needs those registers that the hardware keeps; objects find that where they are lowered.
fn within_limit(func: &Func, address: u32, words: u32, settings: &Settings, out: &mut Said) {
    let of_functions = settings.function_registers.filter(|_| settings.relocatable);
    let given = of_functions.or(settings.max_registers);
    let limit = given.unwrap_or(Reg::ZERO.into());
    let mut beyond = |from: u32, to: u32, what: &str| {
        out.error(format!(
            "Cannot specify R{from}-R{to} as {what} registers since function '{}' is restricted to use maximum of {limit} registers",
            func.name
        ));
    };
    if address >= limit && given.is_some() {
        beyond(address, address + 1, "return address");
    }
    let first = lower::convention(func).argument_registers(words).map(|r| u32::from(r.first));
    if let (Some(first), true) = (first, words > ori::abi::ARGUMENTS.into() && given.is_some()) {
        let last = first + words - 1;
        for _ in [first, last].into_iter().filter(|r| *r >= limit) {
            beyond(first, last, "parameter");
        }
    }
    let end = limit.min(Reg::ZERO.into()) - u32::from(sass::target::HARDWARE_REGISTERS);
    let known = address <= ori::abi::LAST_RETURN_ADDRESS.into() && address < limit;
    if settings.debug && !settings.relocatable && known && address + 1 >= end {
        let message = format!("(C7002) Return Address ({address}) should be less than {end}");
        out.errors.push(Diagnostic::whole(message));
    }
}

/// A call between functions where the caller has to save its return address, or registers above its limit that it did not say it
/// changes.
fn slow_call(caller: &Func, callee: &Func, limit: Option<u32>, out: &mut Said) {
    let [own, other]: [Convention; 2] = [caller, callee].map(lower::convention);
    let (f, g) = (&caller.name, &callee.name);
    if own.registers.is_some() && own.return_address() == other.return_address() {
        out.warning(format!(
            "Caller and callee expected to have different return address register but '{f}' and '{g}' both use R{} as return address register",
            own.return_address()
        ));
    }
    let limit = limit.and_then(|n| u8::try_from(n).ok()).unwrap_or(Reg::ZERO);
    let kept = |r: &u8| own.registers.is_none() || own.is_preserved(Reg::r(*r));
    for r in (limit..Reg::ZERO).rev().filter(|r| kept(r) && !other.is_preserved(Reg::r(*r))) {
        out.warning(format!(
            "Register spills may happen since callee '{g}' specifies register R{r} as scratch but caller '{f}' doesn't specify"
        ));
    }
}
