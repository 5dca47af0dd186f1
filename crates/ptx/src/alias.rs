//! `.alias name, function;`: another name for a function of the module.

use crate::ast::{FuncId, Module, Operand, Stmt, Symbol};
use crate::diag::Diagnostic;

impl Module {
    /// Lets everything that names an alias name the function itself. Other modules still know the alias.
    pub fn resolve_aliases(&mut self) {
        if self.aliases.is_empty() {
            return;
        }
        let aliases = self.aliases.clone();
        let target = |f: FuncId| aliases.iter().find(|a| a.0 == f).map_or(f, |a| a.1);
        for stmt in self.funcs.values_mut().flat_map(|f| f.body.iter_mut().flat_map(|b| &mut b.stmts)) {
            match stmt {
                Stmt::Inst(inst) => inst.operands.iter_mut().for_each(|o| rename(o, &target)),
                Stmt::CallTargets(_, funcs) => funcs.iter_mut().for_each(|f| *f = target(*f)),
                _ => {}
            }
        }
        for r in self.vars.values_mut().filter_map(|v| v.init.as_mut()).flat_map(|i| &mut i.relocs) {
            if let Symbol::Func(f) = &mut r.symbol {
                *f = target(*f);
            }
        }
    }
}

fn rename(o: &mut Operand, target: &impl Fn(FuncId) -> FuncId) {
    match o {
        Operand::Func(f) => *f = target(*f),
        Operand::Bracket(list) | Operand::List(list) => list.iter_mut().for_each(|o| rename(o, target)),
        _ => {}
    }
}

/// What is wrong with a module's aliases, in ptxas's words.
pub(crate) fn check(module: &Module) -> Vec<Diagnostic> {
    let mut errors = Vec::new();
    for (n, (alias, function, span)) in module.aliases.iter().enumerate() {
        let (a, f) = (&module.funcs[*alias], &module.funcs[*function]);
        let sizes = |list: &[crate::ast::VarId]| -> Vec<u64> {
            list.iter().map(|v| module.vars[*v].size()).collect()
        };
        let earlier = module.aliases[..n].iter().find(|e| e.0 == *alias);
        let what = if alias == function {
            "Cannot alias a function to itself".into()
        } else if a.body.is_some() {
            format!("Illegal redefinition of function '{}' as alias", a.name)
        } else if let Some(entry) = [a, f].into_iter().find(|f| f.entry) {
            format!("Cannot define alias to entry function '{}'", entry.name)
        } else if let Some((_, old, _)) = earlier {
            format!(
                "'{}' is already aliased to '{}' and cannot be redefined",
                a.name, module.funcs[*old].name
            )
        } else if f.linkage == crate::ast::Linkage::Weak {
            format!("Function '{}' with .weak scope cannot be aliased", f.name)
        } else if f.body.is_none() {
            format!("Unresolved extern function '{}'", f.name)
        } else {
            let differs = |x: &[u64], y: &[u64]| if x.len() != y.len() { 1 } else { 2 * usize::from(x != y) };
            let (params, results) = (
                differs(&sizes(&a.params), &sizes(&f.params)),
                differs(&sizes(&a.returns), &sizes(&f.returns)),
            );
            let why = match (params, results) {
                (0, 0) => continue,
                (1, _) => "number of parameters differ(s)",
                (_, 1) => "number of return parameters differ(s)",
                _ => "parameters differ(s)",
            };
            format!("Mismatch in prototype of alias '{}' and aliasee '{}'. {why}", a.name, f.name)
        };
        errors.push(Diagnostic::error(*span, what));
    }
    errors
}

#[cfg(test)]
mod tests {
    const HEADER: &str = ".version 9.0\n.target sm_75\n.address_size 64\n\
        .visible .func foo () { ret; }\n.visible .func foo2 (.param .b32 x) { ret; }\n\
        .weak .func weak () { ret; }\n.visible .func bar ();\n.visible .entry k() { call bar, (); ret; }\n\
        .visible .global .u64 t = bar;\n";

    fn error(aliases: &str) -> String {
        let module = crate::parse(&format!("{HEADER}{aliases}")).unwrap();
        let errors = crate::check(&module, 75).map_or_else(|e| e, |()| Vec::new());
        errors.first().map_or(String::new(), |e| e.message.clone())
    }

    // The messages are those of ptxas 13.0.88.
    #[test]
    fn wrong_aliases_are_refused() {
        assert_eq!(error(".alias bar, foo;"), "");
        assert_eq!(error(".alias bar, k;"), "Cannot define alias to entry function 'k'");
        assert_eq!(error(".alias foo, foo2;"), "Illegal redefinition of function 'foo' as alias");
        assert_eq!(error(".alias bar, weak;"), "Function 'weak' with .weak scope cannot be aliased");
        assert_eq!(error(".alias bar, bar;"), "Cannot alias a function to itself");
        assert_eq!(
            error(".alias bar, foo; .alias bar, foo;"),
            "'bar' is already aliased to 'foo' and cannot be redefined"
        );
        assert_eq!(
            error(".alias bar, foo2;"),
            "Mismatch in prototype of alias 'bar' and aliasee 'foo2'. number of parameters differ(s)"
        );
    }

    #[test]
    fn everything_names_the_function() {
        let mut module = crate::parse(&format!("{HEADER}.alias bar, foo;\n")).unwrap();
        module.resolve_aliases();
        let text = module.to_string();
        assert!(text.contains("call foo") && text.contains("= {foo}") || text.contains("= foo"), "{text}");
    }
}
