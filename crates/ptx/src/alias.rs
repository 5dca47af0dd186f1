//! `.alias name, function;`: another name for a function of the module.

use crate::Op;
use crate::ast::{Func, FuncId, Linkage, Module, Operand, Stmt, Symbol, Var, VarId};
use crate::diag::Diagnostic;
use crate::span::Span;
use rustc_hash::FxHashSet;

/// Who names aliases.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Uses {
    /// Functions, and the aliases that they call, each once, in the order of the text.
    pub called: Vec<(FuncId, FuncId)>,
    /// Aliases whose addresses code or initializers take.
    pub taken: Vec<FuncId>,
}

impl Module {
    /// Whether it is another name of a function.
    pub fn is_alias(&self, f: FuncId) -> bool {
        self.aliases.iter().any(|a| a.0 == f)
    }

    /// The first alias of an alias, which is well where no file has a symbol for it (ptxas 13.0.88).
    pub fn alias_of_alias(&self) -> Option<(&Func, Span)> {
        let mut aliases = self.aliases.iter();
        aliases.find(|a| self.is_alias(a.1)).map(|(alias, _, span)| (&self.funcs[*alias], *span))
    }

    /// Lets everything that names an alias name the function itself. Other modules still know the alias.
    pub fn resolve_aliases(&mut self) {
        if self.aliases.is_empty() {
            return;
        }
        let aliases = self.aliases.clone();
        let next = |f: &FuncId| aliases.iter().find(|a| a.0 == *f).map(|a| a.1);
        // Of an alias of an alias it is the function of both; those that are each other's come to none.
        let target =
            |f: FuncId| std::iter::successors(Some(f), next).take(1 + aliases.len()).last().unwrap_or(f);
        let is_alias = |f: FuncId| aliases.iter().any(|a| a.0 == f);
        let mut uses = Uses::default();
        for (caller, func) in &self.funcs {
            for stmt in func.body.iter().flat_map(|b| &b.stmts) {
                let Stmt::Inst(inst) = stmt else { continue };
                for o in &inst.operands {
                    match o {
                        Operand::Func(f) if is_alias(*f) && inst.op == Op::call => {
                            uses.called.push((caller, *f))
                        }
                        Operand::Func(f) if is_alias(*f) => uses.taken.push(*f),
                        _ => {}
                    }
                }
            }
        }
        let relocs = self.vars.values().filter_map(|v| v.init.as_ref()).flat_map(|i| &i.relocs);
        uses.taken.extend(relocs.filter_map(|r| match r.symbol {
            Symbol::Func(f) if is_alias(f) => Some(f),
            _ => None,
        }));
        let mut seen = FxHashSet::default();
        uses.called.retain(|c| seen.insert(*c));
        self.by_alias = uses;
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
        } else if let Some(scope) = match f.linkage {
            Linkage::Weak => Some("weak"),
            Linkage::Extern => Some("extern"),
            _ => None,
        } {
            format!("Function '{}' with .{scope} scope cannot be aliased", f.name)
        } else if f.body.is_none() && !module.is_alias(*function) {
            format!("Unresolved extern function '{}'", f.name)
        } else {
            let mismatch = |why| {
                format!(
                    "Mismatch in prototype of alias '{}' and aliasee '{}'. {why} differ(s)",
                    a.name, f.name
                )
            };
            let why = differences(module, a, f).into_iter();
            errors.extend(why.map(|why| Diagnostic::error(*span, mismatch(why))));
            continue;
        };
        errors.push(Diagnostic::error(*span, what));
    }
    errors
}

/// In what the headers of an alias and of its function differ: each pair of parameters, then of results, in all.
fn differences(module: &Module, alias: &Func, function: &Func) -> Vec<&'static str> {
    let mut why = Vec::new();
    for (a, f) in [(&alias.params, &function.params), (&alias.returns, &function.returns)] {
        let (a, f) = (whole(module, a), whole(module, f));
        if a.len() != f.len() {
            why.push("number of parameters");
        }
        for ((a, a_parts), (f, f_parts)) in a.into_iter().zip(f) {
            if (a.ty, &a.dims, a_parts) != (f.ty, &f.dims, f_parts) {
                why.push("parameter types");
            }
            if a.passed_align() != f.passed_align() {
                why.push("parameter alignment");
            }
            if a.space != f.space {
                why.push("parameter state space");
            }
        }
    }
    if alias.attrs.noreturn != function.attrs.noreturn {
        why.push(".noreturn directive");
    }
    why
}

/// The first variable of each parameter, with how many there are: vector registers are several.
fn whole<'m>(module: &'m Module, mut list: &[VarId]) -> Vec<(&'m Var, usize)> {
    let mut found = Vec::new();
    while let Some(first) = list.first() {
        let n = module.components(list);
        found.push((&module.vars[*first], n));
        list = &list[n..];
    }
    found
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
        let elsewhere = ".extern .func far (); .alias bar, far;";
        assert_eq!(error(elsewhere), "Function 'far' with .extern scope cannot be aliased");
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
    fn headers_of_aliases_are_those_of_the_functions() {
        let differ = |alias: &str, function: &str| -> Vec<String> {
            let text = format!(
                ".version 9.0\n.target sm_75\n.address_size 64\n.visible .func {function} {{ trap; }}\n\
                 .visible .func {alias};\n.alias a, f;\n"
            );
            let errors = crate::check(&crate::parse(&text).unwrap(), 75).err().unwrap_or_default();
            let why =
                errors.iter().map(|e| e.message.split_once("'f'. ").unwrap().1.replace(" differ(s)", ""));
            why.collect()
        };
        let (types, alignment, space) = ("parameter types", "parameter alignment", "parameter state space");
        let number = "number of parameters";
        assert!(differ("a(.param .b32 x)", "f(.param .b32 y)").is_empty());
        assert_eq!(differ("a(.param .u32 x)", "f(.param .b32 x)"), [types]);
        assert_eq!(differ("a(.param .b32 x[1])", "f(.param .b32 x)"), [types]);
        assert_eq!(
            differ("a(.param .u32 x, .param .b32 y)", "f(.param .b32 x, .param .align 8 .b32 y)"),
            [types, alignment]
        );
        assert_eq!(
            differ("a(.param .align 8 .b32 x)", "f(.param .b32 x, .param .b32 y)"),
            [number, alignment]
        );
        assert_eq!(
            differ("(.param .u32 r) a(.reg .b64 x)", "(.param .b32 r) f(.param .b32 x)"),
            [types, alignment, space, types]
        );
        assert_eq!(differ("a(.param .b32 x)", "(.reg .b32 r) f()"), [number, number]);
        assert_eq!(differ("a(.reg .v2 .b32 x)", "f(.reg .b32 x, .reg .b32 y)"), [number, types]);
        assert_eq!(differ("a(.reg .v2 .b32 x)", "f(.reg .v2 .b32 x)"), [""; 0]);
        assert_eq!(differ("a()", "f() .noreturn"), [".noreturn directive"]);
    }

    #[test]
    fn who_calls_by_an_alias_is_said_once() {
        let source = ".version 9.0\n.target sm_75\n.address_size 64\n.visible .func f() { ret; }\n.visible .func a();\n.visible .func b();\n\
                      .alias a, f;\n.alias b, f;\n.visible .entry k() { call a; call b; call a; call b; call b; ret; }\n";
        let mut module = crate::parse(source).unwrap();
        module.resolve_aliases();
        let names: Vec<_> =
            module.by_alias.called.iter().map(|(k, f)| [*k, *f].map(|f| &module.funcs[f].name[..])).collect();
        assert_eq!(names, [["k", "a"], ["k", "b"]]);
    }

    #[test]
    fn everything_names_the_function() {
        let mut module = crate::parse(&format!("{HEADER}.alias bar, foo;\n")).unwrap();
        module.resolve_aliases();
        let text = module.to_string();
        assert!(text.contains("call foo") && text.contains("= {foo}") || text.contains("= foo"), "{text}");
    }
}
