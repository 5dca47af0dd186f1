//! What the calling convention asks of a module: the texts by which the linker compares what functions take and give,
//! and what ptxas refuses because the convention has no place for it (observed, ptxas 13.0.88; docs/linking.md).

use crate::functions::{address_taken, callee, calls, prototypes_called};
use crate::notices;
use crate::settings::Settings;
use ptx::{Diagnostic, Func, FuncId, Linkage, Module, Symbol, Type, Var, VarId};
use rustc_hash::FxHashSet;

/// What a function takes and gives, as the call graph spells it: `#`, the result (`v` for none), the parameters; then what of the
/// convention is its own.
pub(crate) fn prototype(module: &Module, func: &Func) -> String {
    let spelled = |v: &VarId| spelling(&module.vars[*v]);
    let results: String = func.returns.iter().map(spelled).collect();
    let params: String = func.params.iter().map(spelled).collect();
    format!("#{}{params}{}", if results.is_empty() { "v" } else { &results }, own_registers(module, func))
}

/// What ptxas's objects say of a convention of a function's own: as many registers from the first argument's on hold arguments or
/// results, where the return address is, and masks of the barriers and registers that calls change.
fn own_registers(module: &Module, func: &Func) -> String {
    let (own, attrs) = (lower::convention(func), &func.attrs);
    if attrs.abi_preserve.is_none() && attrs.abi_preserve_control.is_none() {
        return String::new();
    }
    let mut out = String::from("|");
    if attrs.abi_preserve.is_some() {
        let words = lower::argument_words(module, func);
        // What takes more registers than there are was refused.
        let first = own.argument_registers(words).map_or(0, |r| r.first);
        out += &format!("{words}p{first}r{}", own.return_address());
    }
    if attrs.abi_preserve_control.is_some() {
        out += &format!("sBx{:08x}", (1u32 << own.barriers) - 1);
    }
    if let Some(n) = attrs.abi_preserve {
        let changed = |r: u32| r != 1 && r != 2 && !(16..16 + n).contains(&r) && r != 255;
        let nibble = |k: u32| (0..4).filter(|b| changed(4 * k + b)).fold(0, |d, b| d | 1u8 << b);
        out += "sRx";
        out.extend((0..64).rev().map(|k| format!("{:x}", nibble(k))));
    }
    out
}

/// A letter for the size of an element, a vector being one, with the number of elements behind it in an array.
fn spelling(var: &Var) -> String {
    let letter = match (var.ty, var.vector, var.ty.bytes() * u32::from(var.vector)) {
        (Type::f32, 1, _) => 'f',
        (Type::f64, 1, _) => 'd',
        (_, _, 0 | 1) => 'b',
        (_, _, 2) => 'h',
        (_, _, 3 | 4) => 'i',
        (_, _, 5..=8) => 'l',
        _ => 'x',
    };
    match &var.dims[..] {
        [] => letter.into(),
        dims => format!("{letter}{}", dims.iter().product::<u64>()),
    }
}

/// Whether the convention has no place for one of these parameters or results: numbers of 8 and 16 bits, predicates. (Bits of that
/// size have one, and so have vectors.)
fn has_narrow(module: &Module, mut list: &[VarId]) -> bool {
    while let Some(first) = list.first() {
        let var = &module.vars[*first];
        let number = matches!(var.ty, Type::u8 | Type::s8 | Type::u16 | Type::s16 | Type::pred);
        let n = module.components(list);
        if number && n == 1 && var.vector == 1 && var.dims.is_empty() {
            return true;
        }
        list = &list[n..];
    }
    false
}

/// Functions with several results, in the order of the text: with one of them ptxas compiles the module without the
/// convention.
pub(crate) fn several_results(module: &Module) -> impl Iterator<Item = (FuncId, &Func)> {
    module.funcs.iter().filter(|(_, f)| f.returns.len() > module.components(&f.returns))
}

/// What ptxas says of modules with parameters and results that the convention has no place for: in functions that kernels reach, and
/// in all that have code where each has code of its own, in an object and where code is debugged. Of several functions the first
/// is named, in objects the last. Where a function has several results, there is no convention.
pub(crate) fn refused(module: &Module, settings: &Settings) -> Option<Diagnostic> {
    if several_results(module).next().is_some() {
        return None;
    }
    let apart = settings.relocatable || settings.debug;
    let root = |f: &&(FuncId, &Func)| f.1.body.is_some() && (apart || notices::compiled(f.1, settings));
    let funcs: Vec<(FuncId, &Func)> = module.funcs.iter().collect();
    let reached = reached(module, funcs.iter().filter(root).map(|f| Symbol::Func(f.0)));
    let named = funcs.iter().filter(|(id, f)| reached.contains(id) && !f.entry).map(|f| f.1);
    let mut concerned: Vec<&Func> = named.collect();
    if settings.relocatable {
        concerned.reverse();
    }
    let through =
        funcs.iter().filter(|f| reached.contains(&f.0)).flat_map(|f| prototypes_called(module, f.0));
    concerned.extend(through.map(|f| &module.funcs[f]));
    let how = concerned.iter().find_map(|f| {
        let passed = has_narrow(module, &f.params).then_some(("passing", "to", "parameters"));
        passed.or(has_narrow(module, &f.returns).then_some(("returning", "from", "values")))
    });
    let (how, of, what) = how?;
    Some(Diagnostic::whole(format!(
        "In ABI compilation, {how} predicate, 8-bit and 16-bit {what} {of} device functions is not supported"
    )))
}

/// Functions among these, and those that they call by name or hold the addresses of, themselves or by variables and functions that
/// they name.
pub(crate) fn reached(module: &Module, from: impl Iterator<Item = Symbol>) -> FxHashSet<FuncId> {
    let mut work: Vec<Symbol> = from.collect();
    let mut seen: FxHashSet<Symbol> = work.iter().copied().collect();
    while let Some(symbol) = work.pop() {
        let mut add = |s: Symbol| {
            if seen.insert(s) {
                work.push(s);
            }
        };
        match symbol {
            Symbol::Func(f) => {
                calls(module, f).filter_map(callee).for_each(|f| add(Symbol::Func(f)));
                lower::layout::for_each_symbol(&module.funcs[f], add);
            }
            Symbol::Var(v) => {
                module.vars[v].init.iter().flat_map(|i| &i.relocs).for_each(|r| add(r.symbol));
            }
        }
    }
    seen.into_iter().filter_map(|s| if let Symbol::Func(f) = s { Some(f) } else { None }).collect()
}

/// Takes variables that should be elsewhere for the module's own, as ptxas does in executables; what it says of that.
/// `only_shared`: only those in shared memory, which the linker can't bring into a program that is whole.
///
/// # Errors
/// On those whose size is not known.
pub(crate) fn adopt_variables(
    module: &mut Module,
    only_shared: bool,
) -> Result<Vec<String>, Vec<Diagnostic>> {
    let mut said = Vec::new();
    let mut errors = Vec::new();
    for item in &module.items {
        let ptx::Item::Var(id) = item else { continue };
        let var = &mut module.vars[*id];
        // Shared memory of unknown size is what the launch brings.
        if var.linkage != Linkage::Extern || var.space == ptx::Space::Shared && var.is_unsized() {
            continue;
        }
        if var.is_unsized() {
            errors.push(Diagnostic::whole(format!("Unresolved extern variable '{}'", var.name)));
        } else if !only_shared || var.space == ptx::Space::Shared {
            var.linkage = Linkage::Visible;
            said.push(format!(
                "Unresolved extern variable '{}' in whole program compilation, ignoring extern qualifier",
                var.name
            ));
        }
    }
    if errors.is_empty() { Ok(said) } else { Err(errors) }
}

/// Addresses of functions that are elsewhere, which only an object can hold.
pub(crate) fn addresses_elsewhere(module: &Module, extensible: bool) -> Option<Diagnostic> {
    let in_code = module.funcs.keys().flat_map(|f| address_taken(module, f));
    let relocs = module.vars.values().flat_map(|v| v.init.iter().flat_map(|i| &i.relocs));
    let in_data = relocs.filter_map(|r| if let ptx::Symbol::Func(f) = r.symbol { Some(f) } else { None });
    let f = in_code.chain(in_data).map(|f| &module.funcs[f]).find(|f| f.body.is_none() && !f.entry)?;
    let whole = if extensible { " in extensible whole program compilation." } else { "" };
    Some(Diagnostic::whole(format!("Cannot take address of function '{}'{whole}", f.name)))
}
