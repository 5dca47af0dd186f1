//! Semantic checks: modifiers and operands against the instruction table, version and target gates.

use crate::ast::{Body, Func, Inst, Module, Operand, RegId, Stmt, VectorElem};
use crate::diag::{Diagnostic, Severity};
use crate::isa::{Form, Mod, Op, OperandKind, OperandSpec, Type, TypeClass, TypeRef};
use crate::span::Span;

/// Checks a parsed module for compilation to `sm` (90 for `sm_90`).
///
/// # Errors
/// Everything that ptxas would reject as well, as far as it is checked.
pub fn check(module: &Module, sm: u16) -> Result<(), Vec<Diagnostic>> {
    let mut c = Checker { module, sm: target_sm(module), errors: Vec::new() };
    c.header(sm);
    for func in module.funcs.values() {
        if let Some(body) = &func.body {
            c.function(func, body);
        }
    }
    if c.errors.is_empty() { Ok(()) } else { Err(c.errors) }
}

/// The SM number of the module's `.target`; 0 if there is none.
pub fn target_sm(module: &Module) -> u16 {
    let digits =
        |t: &String| t.strip_prefix("sm_").map(|n| n.trim_end_matches(['a', 'f']).parse().unwrap_or(0));
    module.targets.iter().find_map(digits).unwrap_or(0)
}

struct Checker<'m> {
    module: &'m Module,
    sm: u16,
    errors: Vec<Diagnostic>,
}

impl Checker<'_> {
    fn header(&mut self, sm: u16) {
        if self.module.targets.is_empty() {
            self.errors.push(Diagnostic {
                severity: Severity::Fatal,
                span: Some(self.module.target_span),
                message: "Missing .target directive".into(),
            });
        } else if self.sm > sm {
            self.errors.push(Diagnostic {
                severity: Severity::Fatal,
                span: None,
                message: "SM version specified by .target is higher than default SM version assumed".into(),
            });
        }
        if self.module.address_size == 32 {
            self.errors.push(Diagnostic {
                severity: Severity::Fatal,
                span: None,
                message: "32-Bit compilation is no longer supported".into(),
            });
        }
    }

    fn error(&mut self, span: Span, message: String) {
        self.errors.push(Diagnostic::error(span, message));
    }

    fn function(&mut self, func: &Func, body: &Body) {
        let a = &func.attrs;
        if a.maxntid.is_some() && a.reqntid.is_some() {
            self.error(
                func.span,
                "Conflicting directives: .maxntid and .reqntid cannot both be specified".into(),
            );
        }
        for stmt in &body.stmts {
            if let Stmt::Inst(inst) = stmt {
                self.inst(body, inst);
            }
        }
    }

    fn inst(&mut self, body: &Body, inst: &Inst) {
        if let Some((p, _)) = inst.guard
            && body.regs[p].ty != Type::pred
        {
            self.error(inst.span, "Predicate register expected as guard".into());
        }
        let name = inst.op.name();
        let mut forms: Vec<&Form> = inst.op.forms().iter().filter(|f| f.matches(&inst.mods)).collect();
        if forms.is_empty() && matches!(inst.op, Op::atom | Op::red | Op::ld | Op::st) {
            forms.extend(inst.op.forms().iter().filter(|f| f.matches_unordered(&inst.mods)));
        }
        if forms.is_empty() {
            let mods: String = inst.mods.iter().map(|m| format!(".{}", m.name())).collect();
            return self.error(inst.span, format!("Illegal modifier combination '{name}{mods}'"));
        }
        let gate = |f: &&Form| f.version <= self.module.version && f.sm <= self.sm;
        let open: Vec<&Form> = forms.iter().copied().filter(|f| gate(f)).collect();
        if open.is_empty() {
            let f = forms[0];
            let message = if f.version > self.module.version {
                format!("Feature '{name}' requires PTX ISA .version {}.{} or later", f.version.0, f.version.1)
            } else {
                format!("Feature '{name}' requires .target sm_{} or higher", f.sm)
            };
            return self.error(inst.span, message);
        }
        if !open.iter().any(|f| self.operands_fit(body, inst, f)) {
            let counts = open.iter().any(|f| count_fits(f, inst.operands.len()));
            let message = if counts {
                format!("Arguments mismatch for instruction '{name}'")
            } else {
                format!("Wrong number of arguments for instruction '{name}'")
            };
            self.error(inst.span, message);
        }
    }

    fn operands_fit(&self, body: &Body, inst: &Inst, form: &Form) -> bool {
        if !count_fits(form, inst.operands.len()) {
            return false;
        }
        inst.operands.iter().zip(form.operands).all(|(o, spec)| self.operand_fits(body, inst, o, spec))
    }

    fn operand_fits(&self, body: &Body, inst: &Inst, o: &Operand, spec: &OperandSpec) -> bool {
        let ty = match spec.ty {
            TypeRef::Fixed(t) => Some(t),
            TypeRef::Mod(n) => inst.ty(n as usize),
        };
        let wide = inst.has(Mod::wide);
        let reg = |r: RegId| ty.is_none_or(|t| register_fits(body.regs[r].ty, t, spec.wider, wide));
        let pred = |r: &RegId| body.regs[*r].ty == Type::pred;
        match (spec.kind, o) {
            (OperandKind::Any, _) => true,
            (OperandKind::Dst, Operand::Sink) => true,
            (OperandKind::Dst | OperandKind::DstPred, Operand::Reg(r)) => reg(*r),
            (OperandKind::DstPred, Operand::Pair(d, p)) => d.is_none_or(&reg) && p.as_ref().is_none_or(pred),
            (OperandKind::Dst | OperandKind::Src, Operand::Vector(elems)) => {
                spec.vector
                    && vector_len(inst) == Some(elems.len())
                    && elems.iter().all(|e| match e {
                        VectorElem::Reg(r) => reg(*r),
                        _ => true,
                    })
            }
            (OperandKind::Dst | OperandKind::Src, Operand::Component(..)) => true,
            (OperandKind::Src, Operand::Reg(r) | Operand::NegReg(r)) => {
                reg(*r) && (spec.vector && vector_len(inst).is_some() || body.regs[*r].vector == 1)
            }
            (OperandKind::Src, Operand::Int(_)) => true,
            (OperandKind::Src, Operand::F32(_) | Operand::F64(_)) => {
                ty.is_none_or(|t| matches!(t.class(), TypeClass::Float | TypeClass::Bits))
            }
            (OperandKind::Src, Operand::Special(s, _)) => {
                ty.is_none_or(|t| register_fits(s.ty(), t, spec.wider, wide))
            }
            (OperandKind::Src, Operand::Var(..) | Operand::Func(_)) => ty.is_none_or(|t| t.bytes() >= 4),
            (OperandKind::Src, Operand::NotPred(r)) => ty == Some(Type::pred) && pred(r),
            (OperandKind::PredSrc, Operand::Reg(r) | Operand::NotPred(r)) => pred(r),
            (OperandKind::PredSrc, Operand::Int(_)) => true,
            (OperandKind::PredDst, Operand::Reg(r)) => pred(r),
            (OperandKind::PredPair, Operand::Reg(r)) => pred(r),
            (OperandKind::PredPair, Operand::Pair(p, q)) => {
                p.as_ref().is_none_or(pred) && q.as_ref().is_none_or(pred)
            }
            (OperandKind::PredDst | OperandKind::PredPair, Operand::Sink) => true,
            (OperandKind::Addr, Operand::Addr(_)) => true,
            (OperandKind::Label, Operand::Label(_)) => true,
            (OperandKind::Func, Operand::Func(_)) => true,
            (OperandKind::Imm, Operand::Int(_)) => true,
            _ => false,
        }
    }
}

fn vector_len(inst: &Inst) -> Option<usize> {
    inst.mods.iter().find_map(|m| match m {
        Mod::v2 => Some(2),
        Mod::v4 => Some(4),
        Mod::v8 => Some(8),
        _ => None,
    })
}

fn count_fits(form: &Form, n: usize) -> bool {
    let needed = form.operands.iter().filter(|o| !o.optional).count();
    (needed..=form.operands.len()).contains(&n)
}

/// Whether a register of type `reg` can stand where the instruction has type `ty`: the same size, and
/// untyped bits on one side or the same kind of number. `.wide` doubles results.
fn register_fits(reg: Type, ty: Type, wider: bool, wide: bool) -> bool {
    if (reg == Type::pred) != (ty == Type::pred) {
        return false;
    }
    let size = if wide && wider { ty.bytes() * 2 } else { ty.bytes() };
    let size_fits = if wider && !wide { reg.bytes() >= size } else { reg.bytes() == size };
    let integer = |t: Type| matches!(t.class(), TypeClass::Unsigned | TypeClass::Signed);
    let class_fits = reg.class() == TypeClass::Bits
        || ty.class() == TypeClass::Bits
        || wider
        || integer(reg) && integer(ty)
        || reg.class() == ty.class();
    size_fits && class_fits
}

/// Mnemonics that end a thread or a function.
pub fn is_exit(op: Op) -> bool {
    matches!(op, Op::ret | Op::exit | Op::trap)
}
