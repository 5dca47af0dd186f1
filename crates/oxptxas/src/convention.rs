//! What the calling convention asks of a module: the texts by which the linker compares what functions take and give,
//! and what ptxas refuses because the convention has no place for it (observed, ptxas 13.0.88; docs/linking.md).

use crate::functions::{address_taken, prototypes_called};
use ptx::{Diagnostic, Func, FuncId, Linkage, Module, Type, Var, VarId};
use rustc_hash::FxHashSet;

/// What a function takes and gives, as the call graph spells it: `#`, the result (`v` for none), the parameters.
pub(crate) fn prototype(module: &Module, func: &Func) -> String {
    let spelled = |v: &VarId| spelling(&module.vars[*v]);
    let results: String = func.returns.iter().map(spelled).collect();
    let params: String = func.params.iter().map(spelled).collect();
    format!("#{}{params}", if results.is_empty() { "v" } else { &results })
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

/// Whether there is a vector register among parameters or results.
fn has_vector(module: &Module, mut list: &[VarId]) -> bool {
    while !list.is_empty() {
        let n = module.components(list);
        if n > 1 {
            return true;
        }
        list = &list[n..];
    }
    false
}

/// Whether the convention has no place for a parameter or result: numbers of 8 and 16 bits. (Bits of that size have one.)
fn is_narrow(var: &Var) -> bool {
    let number = matches!(var.ty, Type::u8 | Type::s8 | Type::u16 | Type::s16 | Type::pred);
    number && var.vector == 1 && var.dims.is_empty()
}

/// Functions with several results, in the order of the text: with one of them ptxas compiles the module without the
/// convention.
pub(crate) fn several_results(module: &Module) -> impl Iterator<Item = (FuncId, &Func)> {
    module.funcs.iter().filter(|(_, f)| f.returns.len() > module.components(&f.returns))
}

/// What ptxas says of modules with parameters and results that the convention has no place for. In an executable that
/// concerns only functions that are called through pointers, whose address code takes, that call themselves, or that
/// the driver brings; in an object all that have code.
pub(crate) fn refused(module: &Module, linked: bool) -> Option<Diagnostic> {
    let calls = lower::CallGraph::new(module);
    let named: FxHashSet<FuncId> = module.funcs.keys().flat_map(|f| calls.named(f)).collect();
    let taken: FxHashSet<FuncId> = module.funcs.keys().flat_map(|f| address_taken(module, f)).collect();
    let recursive = calls.recursive(module);
    let concerned = |id: FuncId, f: &Func| {
        let elsewhere = f.body.is_none() && named.contains(&id);
        let own = f.body.is_some() && (linked || recursive.contains(id));
        !f.entry && (elsewhere || own || taken.contains(&id))
    };
    let mut funcs: Vec<&Func> =
        module.funcs.iter().filter(|(id, f)| concerned(*id, f)).map(|(_, f)| f).collect();
    let through = module.funcs.keys().flat_map(|f| prototypes_called(module, f));
    funcs.extend(through.map(|f| &module.funcs[f]));
    let narrow =
        |vars: &[VarId]| !has_vector(module, vars) && vars.iter().any(|v| is_narrow(&module.vars[*v]));
    let (how, of, what) = if funcs.iter().any(|f| narrow(&f.params)) {
        ("passing", "to", "parameters")
    } else if funcs.iter().any(|f| narrow(&f.returns)) {
        ("returning", "from", "values")
    } else {
        return None;
    };
    Some(Diagnostic::whole(format!(
        "In ABI compilation, {how} predicate, 8-bit and 16-bit {what} {of} device functions is not supported"
    )))
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
