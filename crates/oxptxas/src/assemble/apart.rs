//! Functions with sections of their own in an executable, as where code is debugged: one function for all kernels that call it, so that
//! debug information, which names one place for each, is right wherever it is called from (docs/cubin.md).

use super::kernel_record;
use crate::settings::Settings;
use crate::{facts, functions, object};
use backend::Code;
use backend::link::Reloc;
use cubin::CodeFacts;
use ori::{Callee, Part};
use ptx::{FuncId, LineIndex, Module, Symbol};
use sass::target::LEAST_LIMIT;
use std::time::Duration;

/// A function.
pub(crate) struct Function<'c> {
    /// Which of the module; `None` of one in which lanes meet.
    pub(crate) func: Option<FuncId>,
    pub(crate) name: &'c str,
    pub(crate) code: &'c Code,
    /// Time to compile it.
    pub(crate) time: Duration,
}

/// What is known of all of them.
pub(super) struct Functions<'a> {
    pub(super) module: &'a Module,
    pub(super) layout: &'a lower::ModuleLayout,
    pub(super) functions: &'a backend::link::Functions<'a>,
    pub(super) options: &'a lower::Options<'a>,
    pub(super) settings: &'a Settings,
    pub(super) lines: &'a LineIndex,
}

impl Functions<'_> {
    /// What the file says of a function, and its finished code.
    pub(super) fn function(&self, f: &Function<'_>) -> Result<(cubin::Kernel, Code), backend::Error> {
        let Functions { module, layout, options, settings, .. } = self;
        let (code, relocs) = self.functions.apart(options.target, f.code)?;
        let links = self.links(f.func, &code, relocs, f.name);
        let Some(id) = f.func else {
            let record = object::meeting_record(f.name, code.clone(), options.target);
            return Ok((cubin::Kernel { links, ..record }, code));
        };
        let func = &module.funcs[id];
        let reached = layout.calls.reachable(module, id, &layout.functions);
        let externs = functions::externs(module, reached.into_iter().chain([id]));
        let registers = code.stated_registers(LEAST_LIMIT.max(functions::least_registers(module, &externs)));
        let record = kernel_record(module, func, code.clone(), registers, options);
        let kernel = cubin::Kernel {
            facts: self.facts(id, &code),
            frame: facts::frame(&code.insts, &code.of_caller),
            links,
            externs: externs.iter().map(|f| module.funcs[*f].name.clone()).collect(),
            names_shared: layout.names_shared(id),
            options: settings.code_options(),
            ..record
        };
        Ok((kernel, code))
    }

    fn facts(&self, id: FuncId, code: &Code) -> CodeFacts {
        let said = facts::Said::by(
            self.options.target.sm,
            self.options.extra,
            [&self.module.funcs[id]],
            Some(self.lines),
        );
        facts::apart(code, self.options.target.sm, Some(&said))
    }

    /// The facts about a kernel: what its own code has, and what the hardware must know of all that it reaches.
    pub(super) fn facts_of_kernel(
        &self,
        id: FuncId,
        code: &Code,
        own: &Code,
        known: &[cubin::Kernel],
    ) -> CodeFacts {
        let mut all = self.facts(id, code);
        let reached = self.functions.reachable(own).0;
        for CodeFacts {
            wmma,
            ctaid_z,
            reconfigures,
            tensor_memory,
            tensor_memory_of_pairs,
            reads_taken_columns,
            allocates_tensor_memory,
            counts_tensor_memory,
            ..
        } in known.iter().filter(|k| reached.contains(&k.name.as_str())).map(|k| &k.facts)
        {
            all.wmma |= wmma;
            all.ctaid_z |= ctaid_z;
            all.reconfigures |= reconfigures;
            all.tensor_memory |= tensor_memory;
            all.tensor_memory_of_pairs |= tensor_memory_of_pairs;
            all.reads_taken_columns |= reads_taken_columns;
            all.allocates_tensor_memory |= allocates_tensor_memory;
            all.counts_tensor_memory |= counts_tensor_memory;
        }
        all
    }

    /// What the driver fills into the code of a kernel or function, and whom it calls.
    pub(super) fn links(
        &self,
        id: Option<FuncId>,
        code: &Code,
        relocs: Vec<Reloc>,
        name: &str,
    ) -> cubin::Links {
        let mut links = cubin::Links { relocs: object::relocations(relocs, name), ..cubin::Links::default() };
        for callee in &code.callees {
            match callee {
                Callee::Internal(name) => links.calls.push(name.clone()),
                Callee::Indirect(_) => links.indirect = true,
                Callee::External => {}
            }
        }
        // By name, and out of the variables that it names.
        let by_name = code.symbols.iter().filter(|s| s.part == Part::FunctionLow).map(|s| s.name.clone());
        links.takes.extend(by_name);
        let Some(id) = id else { return links };
        lower::layout::for_each_symbol(&self.module.funcs[id], &mut |s: Symbol| {
            let Symbol::Var(v) = s else { return };
            for r in self.module.vars[v].init.iter().flat_map(|i| &i.relocs) {
                if let Symbol::Func(f) = r.symbol
                    && !self.module.funcs[f].entry
                {
                    links.takes.push(self.module.funcs[f].name.clone());
                }
            }
        });
        links.kernels = functions::kernels_taken(self.module, [id]);
        links.takes.sort_unstable();
        links.takes.dedup();
        links
    }
}
