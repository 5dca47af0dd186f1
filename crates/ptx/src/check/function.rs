//! Function headers: directives that go together, parameters and their size; and what is to be said of a function that is
//! not wrong.

use super::Checker;
use super::inst::full_name;
use crate::ast::{AddrBase, Body, Func, Inst, LARGE_PARAMS, Linkage, Module, Operand, Space, Stmt, VarId};
use crate::diag::{Diagnostic, Severity};
use crate::isa::{Mod, Op};
use crate::span::Span;

/// Bytes of parameters that a kernel has at most, by the PTX version from which on.
const PARAMETERS: &[((u8, u8), u32)] = &[((8, 1), 32764), ((1, 5), LARGE_PARAMS), ((1, 0), 256)];

/// Alignment of a parameter or result of a function.
const MOST_ALIGNED: u32 = 128;

impl<'m> Checker<'m> {
    pub(super) fn function(&mut self, func: &'m Func) {
        self.directives(func);
        if func.entry {
            self.kernel_parameters(func);
        } else {
            self.function_parameters(func);
        }
        let Some(body) = &func.body else {
            if func.entry && func.linkage != Linkage::Extern {
                let message = format!("Unresolved extern function '{}'", func.name);
                self.errors.push(Diagnostic::whole(message));
            }
            return;
        };
        self.aligned(func, body);
        self.inputs = &func.params;
        self.outputs = &func.returns;
        self.find_labels(body);
        for stmt in &body.stmts {
            match stmt {
                Stmt::Inst(inst) => self.inst(body, inst),
                _ => self.table(stmt),
            }
        }
    }

    fn directives(&mut self, func: &Func) {
        let a = &func.attrs;
        if a.maxntid.is_some() && a.reqntid.is_some() {
            let both = ".maxntid and .reqntid";
            let message = format!("Conflicting directives: {both} cannot both be specified");
            self.error(func.close(), message);
        }
        if a.blocks_are_clusters && (a.reqntid.is_none() || a.cluster().is_none()) {
            let message =
                ".reqntid and .reqnctapercluster directive(s) required for directive '.blocksareclusters'";
            self.error(func.close(), message);
        }
    }

    fn kernel_parameters(&mut self, func: &Func) {
        let module = self.module;
        for p in &func.params {
            let var = &module.vars[*p];
            if var.space == Space::Reg {
                let message = format!("Entry parameter '{}' must have .param state space", var.name);
                self.error(var.span, message);
            }
            if var.is_unsized() {
                self.error(var.span, "Parameter to entry function cannot be an incomplete array.");
            }
        }
        self.names(&func.params);
        let size = module.param_size(func);
        let most = PARAMETERS.iter().find(|p| p.0 <= module.version).map_or(u32::MAX, |p| p.1);
        if size > most {
            let message = format!(
                "Entry function '{}' uses too much parameter space ({size:#x} bytes, {most:#x} max).",
                func.name
            );
            self.error(func.close(), message);
        }
        if size > LARGE_PARAMS {
            let feature = "Feature 'Kernel parameter size larger than 4352 bytes'";
            if self.sm < 70 {
                self.error(func.close(), format!("{feature} requires .target sm_70 or higher"));
            }
            if module.version < (8, 1) {
                self.error(func.close(), format!("{feature} requires PTX ISA .version 8.1 or later"));
            }
        }
    }

    fn function_parameters(&mut self, func: &Func) {
        let module = self.module;
        for p in func.params.iter().chain(&func.returns) {
            let var = &module.vars[*p];
            if var.ptr.is_some() {
                self.error(var.span, "Illegal placement of kernel parameter attribute");
            }
        }
        for p in func.returns.iter().filter(|p| module.vars[**p].is_unsized()) {
            self.error(module.vars[*p].span, "Output parameter cannot be an incomplete array.");
        }
        let early = func.params.iter().rev().skip(1).rev().filter(|p| module.vars[**p].is_unsized());
        for p in early {
            self.error(module.vars[*p].span, "Only the last input parameter can be an incomplete array.");
        }
        self.names(&func.params);
        self.names(&func.returns);
    }

    /// What is passed between functions is aligned to 128 bytes at most; prototypes may say what they like.
    fn aligned(&mut self, func: &Func, body: &Body) {
        let module = self.module;
        let own = (!func.entry).then(|| func.params.iter().chain(&func.returns)).into_iter().flatten();
        for v in own.chain(&body.vars) {
            let var = &module.vars[*v];
            if var.space == Space::Param && var.align > MOST_ALIGNED {
                let message = format!(
                    "Parameter '{}' has illegal alignment (must be aligned to 1, 2, 4, 8, 16, 32, 64, or 128 bytes)",
                    var.name
                );
                self.error(var.span, message);
            }
        }
    }

    /// Every parameter has a name.
    fn names(&mut self, params: &[VarId]) {
        let nameless = params.iter().find(|p| self.module.vars[**p].name.is_empty());
        if let Some(p) = nameless {
            self.error(self.module.vars[*p].span, "Parsing error near ')': syntax error");
        }
    }
}

/// What is to be said of a module that is right: what was noticed while reading it, directives that have no effect,
/// instructions that are no more.
pub fn warnings(module: &Module) -> Vec<Diagnostic> {
    warnings_where(module, |_| true)
}

/// The same, of which those about limits of kernels are of the ones that are compiled.
pub fn warnings_where(module: &Module, compiled: impl Fn(&Func) -> bool) -> Vec<Diagnostic> {
    let mut out = module.warnings.clone();
    let mut say = |severity, span: Option<Span>, message: String| {
        out.push(Diagnostic { severity, span, ..Diagnostic::whole(message) });
    };
    for func in module.funcs.values().filter(|f| f.body.is_some()) {
        let a = &func.attrs;
        if (a.minnctapersm.is_some()) && a.maxntid.is_none() && a.reqntid.is_none() {
            let message = ".minnctapersm is ignored when neither .maxntid nor .reqntid is specified.";
            say(Severity::Warning, Some(func.close()), message.into());
        }
        match a.maxnreg.filter(|_| compiled(func)) {
            Some(n @ ..24) => say(
                Severity::Warning,
                None,
                format!(
                    "For entry {} adjusting per thread register count of {n} to lower bound of 24",
                    func.name
                ),
            ),
            Some(256..) => say(
                Severity::Warning,
                None,
                format!("Too many maxnreg specified for entry {}, will be ignored", func.name),
            ),
            _ => {}
        }
        for stmt in func.body.iter().flat_map(|b| &b.stmts) {
            let Stmt::Inst(inst) = stmt else { continue };
            match inst.op {
                // ptxas says nothing of ballots in these versions.
                Op::vote if inst.has(Mod::ballot) && matches!(module.version, (6, 0 | 1)) => {}
                Op::vote | Op::shfl if !inst.has(Mod::sync) => {
                    let name = inst.op.name();
                    let message = format!(
                        "Instruction '{name}' without '.sync' may produce unpredictable results on sm_70 and later \
                         architectures"
                    );
                    say(Severity::Warning, Some(inst.span), message);
                    if module.version >= (6, 0) {
                        let message = format!(
                            "Instruction '{name}' without '.sync' is deprecated since PTX ISA version 6.0 and will be \
                             discontinued in a future PTX ISA version"
                        );
                        say(Severity::Warning, Some(inst.span), message);
                    }
                }
                _ => {}
            }
        }
    }
    out
}

/// Mnemonics that take generic or global addresses of 32 bits without looking at them, as ptxas does.
fn unlooked(op: Op) -> bool {
    !matches!(
        op,
        Op::ld
            | Op::ldu
            | Op::st
            | Op::atom
            | Op::red
            | Op::prefetch
            | Op::prefetchu
            | Op::mbarrier
            | Op::discard
            | Op::applypriority
    )
}

impl Checker<'_> {
    /// Generic and global addresses of 32 bits, which ptxas has given up on all targets.
    pub(super) fn address_of_32_bits(&mut self, span: Span) {
        self.error(span, "Program uses 32-bit address which is conflicting with .address_size 64: 32-Bit addressing is not \
                 supported");
    }

    /// An address in a register: whether the register is wide enough for the state space.
    pub(super) fn address_width(&mut self, span: Span, op: Op, space: Option<Space>, bytes: u32) {
        if bytes == 16 {
            self.error(span, "Illegal operand type for address/array-index");
        } else if bytes == 4 && matches!(space, None | Some(Space::Global)) && !unlooked(op) {
            self.address_of_32_bits(span);
        }
    }

    /// The address of a global variable has 64 bits. ptxas takes fewer where a constant is added.
    pub(super) fn short_address(&mut self, inst: &Inst) {
        if let (Op::mov, Some(Operand::Var(v, 0))) = (inst.op, inst.operands.get(1))
            && inst.ty(0).is_some_and(|t| t.bytes() == 4)
        {
            self.address_width(inst.span, Op::ld, Some(self.module.vars[*v].space), 4);
        }
    }

    /// `setmaxnreg` counts registers by eights.
    pub(super) fn register_count(&mut self, inst: &Inst) {
        let Some(Operand::Int(n)) = inst.operands.first() else { return };
        let name = full_name(inst);
        if n % 8 != 0 {
            let message = format!(
                "Argument 1 of instruction '{name}': unexpected value '{n}', expected to be multiple of 8"
            );
            self.error(inst.span, message);
        }
        if !(24..=256).contains(n) {
            let message = format!(
                "Argument 1 of instruction '{name}': value '{}' out of range, expected to be in range [24..256]",
                *n as i64
            );
            self.error(inst.span, message);
        }
    }

    /// Parameters of calls are passed on every path.
    pub(super) fn unguarded(&mut self, body: &Body, inst: &Inst) {
        let passed = inst.operands.iter().find_map(|o| match o {
            Operand::Addr(a) => match a.base {
                AddrBase::Var(v) => {
                    let var = &self.module.vars[v];
                    (var.space == Space::Param && body.vars.contains(&v)).then_some(&var.name)
                }
                _ => None,
            },
            _ => None,
        });
        if let (Some(name), Some(_)) = (passed, inst.guard) {
            let op = inst.op.name();
            let message = format!("Illegal to predicate instruction '{op}.param' with operand '{name}'");
            self.error(inst.span, message);
        }
    }
}
