//! What a compilation is asked for.

use crate::command::{Console, Run};
use ori::Cancel;
use ptx::{Diagnostic, Module, Space, Symbol, VarId};
use sass::Target;
use std::cell::RefCell;
use std::ffi::OsString;

/// How to compile.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What for.
    pub target: Target,
    /// `-O`, 0 … 3.
    pub opt_level: u8,
    /// Whether that was asked for.
    pub level_given: bool,
    /// `-maxrregcount`
    pub max_registers: Option<u32>,
    /// `-fmad`
    pub fmad: bool,
    /// What options say in place of the PTX.
    pub directives: crate::directives::Directives,
    /// `-e`: only these kernels; empty for all.
    pub entries: Vec<String>,
    /// The options as text, for the note in the cubin.
    pub options_text: String,
    /// Every instruction waits for everything before it.
    pub serial: bool,
    /// `--split-compile`: so many threads compile; as many as there are processors if it says nothing.
    pub threads: Option<usize>,
    /// `--search`: many codes are timed by a model.
    pub search: bool,
    /// What is asked of the phases.
    pub knobs: crate::knobs::Knobs,
    /// Line tables: always, never, or where the PTX has `.loc` directives.
    pub line_info: Option<bool>,
    /// Whether they were asked for, wanted or not.
    pub line_info_asked: bool,
    /// `-g`: debug information.
    pub debug: bool,
    /// `-Ofc` with a level, which debug information leaves without effect.
    pub fast: bool,
    /// `-c`: a relocatable object.
    pub relocatable: bool,
    /// `-ewp`: an object that says of itself that it is a whole program.
    pub extensible: bool,
    /// Code beside what the program says.
    pub extra: ori::Extra,
    /// `-annotate`: what the code takes, in words.
    pub annotate: bool,
    /// `-func-maxrregcount`: registers that device functions of an object may use.
    pub function_registers: Option<u32>,
    /// `-warn-double-usage`
    pub warn_double: bool,
    /// `-suppress-debug-info`, which is in vain without any.
    pub suppressed: bool,
    /// `-suppress-stack-size-warning`
    pub quiet_stacks: bool,
    /// `-suppress-async-bulk-multicast-advisory-warning`
    pub quiet_multicast: bool,
    /// `-suppress-sparse-mma-advisory-info`
    pub quiet_sparse: bool,
    /// `-v`: what limits registers is said, too.
    pub verbose: bool,
    /// `--tool-name`, for the note.
    pub tool: Option<String>,
    /// What the options ask for but is not built yet.
    pub asked: Asked,
    /// Who may end the compilation. He is asked between functions, and between the phases of each.
    pub cancel: Option<Cancel>,
}

/// What is only asked for, and refused where it would change the code.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Asked {
    /// `-device-stack-protector=true`
    pub protector: bool,
    /// `-c -pic=true`
    pub independent: bool,
    /// `-gno-tmem-access-check`: also where code is debugged.
    pub no_tensor_checks: bool,
    /// `-astoolspatch`
    pub patch: bool,
    /// Whether anything is asked for about tensor memory, which only some targets have.
    pub tensor_memory_said: bool,
}

/// What is wrong with options, as ptxas says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionError(String);

impl std::fmt::Display for OptionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionError {}

/// Keeps what is wrong.
#[derive(Default)]
struct Wrong(RefCell<String>);

impl Console for Wrong {
    fn info(&self, _: &str) {}
    fn error(&self, text: &str) {
        self.0.borrow_mut().push_str(text);
    }
    fn print(&self, _: &str) -> std::io::Result<()> {
        Ok(())
    }
}

impl Settings {
    /// What ptxas's options ask for, each a word (or two, where a value stands behind its option). Options about files and messages
    /// have no effect.
    ///
    /// # Errors
    /// What ptxas says of them.
    pub fn parse<S: AsRef<str>>(options: &[S]) -> Result<Settings, OptionError> {
        let arguments: Vec<OsString> = options.iter().map(|o| o.as_ref().into()).collect();
        let wrong = Wrong::default();
        Run::new("ptxas", &arguments, &wrong).settings().map_err(|_| {
            let said = wrong.0.borrow();
            let first = said.lines().next().unwrap_or_default();
            OptionError(
                first.split_once(" : ").or(first.split_once(": ")).map_or(first, |(_, m)| m).to_string(),
            )
        })
    }

    /// Defaults for a target.
    pub fn new(target: Target) -> Settings {
        Settings {
            target,
            opt_level: 3,
            level_given: false,
            max_registers: None,
            fmad: true,
            directives: crate::directives::Directives::default(),
            entries: Vec::new(),
            options_text: format!("-arch {target}"),
            serial: false,
            threads: None,
            search: false,
            knobs: crate::knobs::Knobs::default(),
            line_info: None,
            line_info_asked: false,
            debug: false,
            fast: false,
            relocatable: false,
            extensible: false,
            extra: ori::Extra::default(),
            annotate: false,
            function_registers: None,
            warn_double: false,
            suppressed: false,
            quiet_stacks: false,
            quiet_multicast: false,
            quiet_sparse: false,
            verbose: false,
            tool: None,
            asked: Asked::default(),
            cancel: None,
        }
    }

    /// For code that is debugged: not optimized, and with all that tools want to know.
    pub(crate) fn debugging(&self) -> Settings {
        Settings {
            debug: true,
            opt_level: 0,
            line_info: Some(!self.suppressed),
            extra: ori::Extra {
                errors_at_exit: true,
                places: true,
                tensor_checks: !self.asked.no_tensor_checks,
                ..self.extra
            },
            ..self.clone()
        }
    }

    /// What the file says of code that is made so.
    pub(crate) fn code_options(&self) -> cubin::CodeOptions {
        let ori::Extra { errors_at_exit, steer, .. } = self.extra;
        cubin::CodeOptions { errors_at_exit, steers: steer, annotate: self.annotate }
    }
}

/// What options ask for that would change the code but is not built.
pub(crate) fn asked_in_vain(module: &Module, settings: &Settings) -> Option<Diagnostic> {
    let asked = settings.asked;
    let refuse = |span, option: &str, what: &str| {
        Some(Diagnostic::error(span, format!("Option '--{option}' is not supported yet for {what}")))
    };
    let with_code = || module.funcs.values().filter(|f| f.body.is_some());
    if asked.patch {
        return Some(Diagnostic::whole("Option '--compile-as-tools-patch' is known but not built yet"));
    }
    let objects = settings.relocatable || settings.extensible;
    let local =
        |f: &&ptx::Func| f.body.iter().flat_map(|b| &b.vars).any(|v| module.vars[*v].space == Space::Local);
    // A kernel does not return, and functions of executables are part of it for ptxas.
    if asked.protector
        && objects
        && let Some(f) = with_code().find(|f| !f.entry && local(f))
    {
        return refuse(f.span, "device-stack-protector", "functions with local variables");
    }
    if asked.independent
        && let Some(f) = with_code().find(|f| {
            let mut named = false;
            lower::layout::for_each_symbol(f, &mut |s| {
                // Of a texture there is a place in a bank.
                named |=
                    !matches!(s, Symbol::Var(v) if in_frame(module, v) || module.vars[v].opaque.is_some())
            });
            named
        })
    {
        return Some(not_independent(f.span));
    }
    None
}

/// That a function of an object has addresses in its code.
pub(crate) fn not_independent(span: ptx::Span) -> Diagnostic {
    let message = "Option '--position-independent-code' is not supported yet for objects whose code has calls or addresses of \
                   variables or functions";
    Diagnostic::error(span, message)
}

/// Whether nothing is left to the linker about the variable's address.
fn in_frame(module: &Module, v: VarId) -> bool {
    matches!(module.vars[v].space, Space::Local | Space::Param | Space::Reg)
}
