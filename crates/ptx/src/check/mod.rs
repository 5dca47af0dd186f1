//! Semantic checks: modifiers and operands against the instruction table, version and target gates, in
//! ptxas's words.

mod address;
pub(crate) mod advice;
mod bits;
mod function;
mod image;
mod inst;
mod operand;
mod shape;
mod texture;

use crate::ast::{Body, FuncId, LabelId, Module, Stmt, VarId};
use crate::diag::{Diagnostic, Severity};
use crate::isa::{Mod, Op, Suffix, Type};
use crate::span::Span;
use cranelift_entity::SecondaryMap;
pub use function::{warnings, warnings_where};
pub(crate) use operand::space_of;
use rustc_hash::FxHashMap;
use shape::Shape;
use smallvec::SmallVec;
use std::rc::Rc;

/// Checks a parsed module for compilation to `sm` (90 for `sm_90`).
///
/// # Errors
/// Everything that ptxas would reject as well, as far as it is checked.
pub fn check(module: &Module, sm: u16) -> Result<(), Vec<Diagnostic>> {
    let (target, suffix) = target(module);
    let mut c = Checker {
        module,
        sm: target,
        suffix,
        labels: SecondaryMap::new(),
        callees: SecondaryMap::new(),
        inputs: &[],
        outputs: &[],
        shapes: FxHashMap::default(),
        last: None,
        errors: Vec::new(),
    };
    c.header(sm);
    for func in module.funcs.values() {
        c.function(func);
    }
    c.errors.extend(crate::alias::check(module));
    if c.errors.is_empty() { Ok(()) } else { Err(c.errors) }
}

/// What is said of a module with addresses of 32 bits in which nothing is wrong, where it is compiled.
pub fn narrow_addresses(module: &Module, sm: u16) -> Vec<Diagnostic> {
    if module.address_size != 32 {
        return Vec::new();
    }
    let warning = Diagnostic {
        severity: Severity::Warning,
        ..Diagnostic::whole(
            " 64 Bit host architecture (--machine) being used mismatches with .address_size of 32 bits",
        )
    };
    let message = match sm {
        ..90 => " 32-Bit compilation is no longer supported",
        _ => {
            " 32-Bit ABI (--machine 32 or 32-Bit addressing) is not supported on sm_90 or higher architectures."
        }
    };
    vec![warning, Diagnostic::whole(message)]
}

/// The SM number of the module's `.target`; 0 if there is none.
pub fn target_sm(module: &Module) -> u16 {
    target(module).0
}

/// SM number and suffix of the module's `.target`: of the last SM that it names, as ptxas has it.
pub fn target(module: &Module) -> (u16, Suffix) {
    let sm = |t: &String| {
        let number = t.strip_prefix("sm_")?;
        let digits = number.trim_end_matches(['a', 'f']);
        let suffix = match &number[digits.len()..] {
            "" => Suffix::None,
            "f" => Suffix::Family,
            _ => Suffix::Arch,
        };
        Some((digits.parse().ok()?, suffix))
    };
    module.targets.iter().rev().find_map(sm).unwrap_or((0, Suffix::None))
}

/// Whether a module can be compiled to `sm` with `suffix`. A module for `sm_100f` runs on every SM of the family
/// from 100 on, whatever its suffix; one for `sm_100a` on `sm_100a` alone.
pub fn runs_on(module: &Module, sm: u16, suffix: Suffix) -> bool {
    match target(module) {
        (own, Suffix::None) => own <= sm,
        (own, Suffix::Family) => own <= sm && own / 10 == sm / 10,
        (own, Suffix::Arch) => own == sm && suffix == Suffix::Arch,
    }
}

/// Why a module can't be compiled to `sm` with `suffix`, which the user called `arch`; in ptxas's words.
pub fn refusal(module: &Module, sm: u16, suffix: Suffix, arch: &str) -> Option<String> {
    let (own, own_suffix) = target(module);
    let name = module.targets.iter().rfind(|t| t.starts_with("sm_"))?;
    // That it is older than its target is what is said, by the checks.
    if module.version < first_version(own, own_suffix) {
        return None;
    }
    if own > sm {
        return Some("SM version specified by .target is higher than default SM version assumed".into());
    }
    if runs_on(module, sm, suffix) {
        return None;
    }
    Some(match own_suffix {
        Suffix::Arch if own == sm => {
            format!("PTX with .target '{name}' cannot be compiled for architecture '{arch}'")
        }
        Suffix::Family => {
            format!("Program with .target '{name}' cannot be compiled to different SM-family architecture")
        }
        _ => format!("Program with .target '{name}' cannot be compiled to future architecture"),
    })
}

/// The first PTX version that knows an SM.
pub fn first_version(sm: u16, suffix: Suffix) -> (u8, u8) {
    let base = match sm {
        ..=13 => (1, 0),
        20 | 21 => (2, 0),
        30 => (3, 0),
        32 => (4, 0),
        35 => (3, 1),
        37 => (4, 1),
        50 => (4, 0),
        52 => (4, 1),
        53 => (4, 2),
        60..=62 => (5, 0),
        70 => (6, 0),
        72 => (6, 1),
        75 => (6, 3),
        80 => (7, 0),
        86 => (7, 1),
        87 => (7, 4),
        // So ptxas 13.0.88; the manual has it since 9.0.
        88 => (7, 3),
        89 | 90 => (7, 8),
        100 | 101 => (8, 6),
        120 => (8, 7),
        103 | 121 => (8, 8),
        _ => (9, 0),
    };
    match suffix {
        Suffix::Arch if sm == 90 => (8, 0),
        Suffix::Family => base.max((8, 8)),
        _ => base,
    }
}

/// What a label names.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum LabelKind {
    #[default]
    Place,
    Branches,
    Calls,
    Prototype,
    /// A table or a prototype further down.
    Later,
}

struct Checker<'m> {
    module: &'m Module,
    sm: u16,
    suffix: Suffix,
    /// What the labels of the current function name.
    labels: SecondaryMap<LabelId, LabelKind>,
    /// What the calls through a register may call, by the label that they name.
    callees: SecondaryMap<LabelId, Vec<FuncId>>,
    /// The parameters of the current function.
    inputs: &'m [VarId],
    /// Its results.
    outputs: &'m [VarId],
    /// What the table says of the mnemonics and words that were seen.
    shapes: FxHashMap<(Op, SmallVec<[Mod; 8]>), Rc<Shape>>,
    /// That of the last instruction.
    last: Option<Rc<Shape>>,
    errors: Vec<Diagnostic>,
}

impl<'m> Checker<'m> {
    fn header(&mut self, sm: u16) {
        let module = self.module;
        if module.targets.is_empty() {
            self.errors.push(Diagnostic::fatal(
                module.target_span,
                "Missing .target directive at start of file '{file}'",
            ));
        } else if let Some(target) = module.targets.first()
            && module.version < first_version(self.sm, self.suffix)
        {
            let (major, minor) = module.version;
            let message = format!("PTX .version {major}.{minor} does not support .target {target}");
            self.error(module.target_span, message);
        } else if self.sm > sm {
            let message = "SM version specified by .target is higher than default SM version assumed";
            self.errors.push(Diagnostic::whole(message));
        }
    }

    fn error(&mut self, span: Span, message: impl Into<String>) {
        self.errors.push(Diagnostic::error(span, message));
    }

    /// An error with what helps to mend it.
    fn error_with(&mut self, span: Span, message: impl Into<String>, notes: Vec<String>) {
        self.errors.push(Diagnostic { notes, ..Diagnostic::error(span, message) });
    }

    fn find_labels(&mut self, body: &Body) {
        self.labels.clear();
        self.callees.clear();
        for stmt in &body.stmts {
            match stmt {
                Stmt::BranchTargets(l, _) | Stmt::CallTargets(l, _) | Stmt::CallPrototype(l, _) => {
                    self.labels[*l] = LabelKind::Later;
                }
                _ => {}
            }
        }
    }

    /// Tables and prototypes are known from where they stand.
    fn table(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::BranchTargets(l, _) => self.labels[*l] = LabelKind::Branches,
            Stmt::CallTargets(l, funcs) => {
                self.labels[*l] = LabelKind::Calls;
                self.callees[*l].clone_from(funcs);
            }
            Stmt::CallPrototype(l, f) => {
                self.labels[*l] = LabelKind::Prototype;
                self.callees[*l] = vec![*f];
            }
            _ => {}
        }
    }
}

/// Mnemonics that end a thread or a function.
pub fn is_exit(op: Op) -> bool {
    matches!(op, Op::ret | Op::exit | Op::trap)
}

/// How many registers the list at operand `at` holds, where the table leaves it to the instruction's words.
pub fn list_length(op: Op, mods: &[Mod], at: usize) -> Option<usize> {
    match op {
        Op::tcgen05 => {
            let counts = [Mod::x1, Mod::x2, Mod::x4, Mod::x8, Mod::x16, Mod::x32, Mod::x64, Mod::x128];
            let times = 1 << counts.iter().position(|x| mods.contains(x))?;
            let wide = if mods.contains(&Mod::_16x128b) {
                2
            } else if mods.contains(&Mod::_16x256b) {
                4
            } else {
                1
            };
            Some(wide * times)
        }
        // `m64n8k16`: the accumulators of 128 threads.
        Op::wgmma => {
            let shape = mods.iter().find_map(|m| m.name().strip_prefix("m64n"))?;
            let n: usize = shape.split('k').next()?.parse().ok()?;
            let first = mods.iter().find_map(|m| m.as_type())?;
            Some(if first == Type::f16 { n / 4 } else { n / 2 })
        }
        // Rows of `a`, columns of `b`: 8, 16 or 32 of 16 elements, by 32 threads.
        Op::wmma => {
            let rows = match (at, mods) {
                (1 | 2, mods) if mods.contains(&Mod::m16n16k16) => 2,
                (1, mods) if mods.contains(&Mod::m8n32k16) => 1,
                (1, mods) if mods.contains(&Mod::m32n8k16) => 4,
                (2, mods) if mods.contains(&Mod::m8n32k16) => 4,
                (2, mods) if mods.contains(&Mod::m32n8k16) => 1,
                _ => return None,
            };
            Some(if mods.contains(&Mod::bf16) { 2 * rows } else { rows })
        }
        _ => None,
    }
}
