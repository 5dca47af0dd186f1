//! ptxas's command line: the table of its options and the grammar of their spelling.
//!
//! Source of names, arguments and defaults: `ptxas --help`, release 13.0.88; of the grammar and the error
//! texts: that program's behaviour.

mod error;
mod text;

pub use error::Error;
use std::collections::BTreeMap;
use text::{elements, words};
pub use text::{leading_number, number};

/// What argument an option takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// None.
    Flag,
    /// `true` or `false`.
    Bool,
    /// A number, as C reads it, of 32 bits with a sign; nothing is 0.
    Number,
    /// One of 64 bits.
    LongNumber,
    /// One of these words; empty: any text.
    Word(&'static [&'static str]),
    /// One of these words, if it is the last that was given.
    LateWord(&'static [&'static str]),
    /// A comma-separated list that adds up over repetitions.
    List,
    /// A text each time, none of which is taken apart.
    Repeated,
    /// Such a list of these words.
    Words(&'static [&'static str]),
}

/// What cache operators are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Loads.
    Load,
    /// Stores.
    Store,
}

/// What becomes of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It works.
    Built,
    /// Accepted: what it asks for is so anyway, or it only concerns speed or warnings that are never given.
    Moot,
    /// Known; giving it is an error.
    NotBuilt,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// Long name, after `--`.
    pub long: &'static str,
    /// Short name, after `-`; empty: there is none.
    pub short: &'static str,
    /// Argument.
    pub kind: Kind,
    /// State.
    pub status: Status,
    /// What it does, in our words.
    pub help: &'static str,
}

const fn opt(long: &'static str, short: &'static str, kind: Kind, status: Status, help: &'static str) -> Opt {
    Opt { long, short, kind, status, help }
}

use Kind::{Bool, Flag, LateWord, List, LongNumber, Number, Repeated, Word, Words};
use Status::{Built, Moot, NotBuilt};

/// Cache operators of loads and of stores.
const LOADS: &[&str] = &["ca", "cg", "cs", "lu", "cv"];
const STORES: &[&str] = &["wb", "cg", "cs", "wt"];

/// All options that ptxas documents, and those it takes silently that tools pass.
pub static OPTIONS: &[Opt] = &[
    opt(
        "Ofast-compile",
        "Ofc",
        LateWord(&["0", "min", "mid", "max"]),
        Built,
        "compile faster: min and mid mean -O1, max -O0",
    ),
    opt(
        "allow-expensive-optimizations",
        "allow-expensive-optimizations",
        Bool,
        Moot,
        "spend time and memory on optimization",
    ),
    // ptxas keeps it to itself, like the others without a place in `--help`.
    opt("cloning", "cloning", Word(&[]), Moot, "clone functions (none are)"),
    // Of release 13.5.
    opt(
        "apply-controls",
        "apply-controls",
        Word(&[]),
        Built,
        "take knobs from this file, NAME=VALUE in each line",
    ),
    opt(
        "compile-as-tools-patch",
        "astoolspatch",
        Flag,
        Built,
        "compile patch code for tools; refused but for its errors",
    ),
    opt("compile-only", "c", Flag, Built, "make a relocatable object"),
    opt(
        "compiler-annotations",
        "annotate",
        Flag,
        Built,
        "state instructions and registers of each function in the output",
    ),
    opt(
        "def-load-cache",
        "dlcm",
        LateWord(LOADS),
        Built,
        "default cache modifier of global and generic loads",
    ),
    opt(
        "def-store-cache",
        "dscm",
        LateWord(STORES),
        Built,
        "default cache modifier of global and generic stores",
    ),
    opt(
        "compiler-stats",
        "",
        Words(&["time", "memory", "phase-wise", "t", "m", "p"]),
        Built,
        "print time (t), memory (m), and what each stage took (p)",
    ),
    opt("compiler-stats-file", "", Word(&[]), Built, "add what --compiler-stats prints to this file"),
    opt("device-debug", "g", Flag, Built, "debug information"),
    opt(
        "device-function-maxrregcount",
        "func-maxrregcount",
        Word(&[]),
        Built,
        "register limit of device functions with -c",
    ),
    opt(
        "device-stack-protector",
        "device-stack-protector",
        Bool,
        Built,
        "stack canaries; refused for functions of objects that have local variables",
    ),
    opt(
        "disable-optimizer-constants",
        "disable-optimizer-consts",
        Flag,
        Moot,
        "no optimizer constant bank (none is used)",
    ),
    opt("disable-warnings", "w", Flag, Built, "no warnings"),
    opt("dont-merge-basicblocks", "no-bb-merge", Flag, Moot, "keep basic blocks apart (for debuggers)"),
    opt("entry", "e", List, Built, "compile only these kernels"),
    opt("extensible-whole-program", "ewp", Flag, Built, "extensible whole program mode"),
    opt("fmad", "fmad", Bool, Built, "contract multiplications and additions"),
    opt("force-load-cache", "flcm", LateWord(LOADS), Built, "force a cache modifier on loads"),
    opt("force-store-cache", "fscm", LateWord(STORES), Built, "force a cache modifier on stores"),
    opt(
        "fdevice-time-trace",
        "",
        Word(&[]),
        Built,
        "add what took how long to this trace, for Chrome's viewer",
    ),
    // nvcc passes it with the trace: what came before.
    opt("ftrace-phase-after", "", Word(&[]), Built, "put the time trace behind the event of this name"),
    opt("g-tensor-memory-access-check", "g-tmem-access-check", Flag, Built, "check tensor memory accesses"),
    opt("generate-line-info", "lineinfo", Flag, Built, "line number information"),
    opt(
        "gno-tensor-memory-access-check",
        "gno-tmem-access-check",
        Flag,
        Moot,
        "no checks of tensor memory accesses",
    ),
    opt("gpu-name", "arch", Word(&[]), Built, "target: sm_75 … sm_121 (a and f too); compute_* only checks"),
    opt("help", "h", Flag, Built, "print this text"),
    opt("input-as-string", "ias", Repeated, Built, "PTX on the command line"),
    // ptxas keeps it to itself.
    opt("jobserver", "jobserver", Flag, Built, "no more threads than make has tokens for"),
    opt("key", "k", Word(&[]), Moot, "no effect any more"),
    opt(
        "knob",
        "knob",
        List,
        Built,
        "of phases: DumpIR=, DisablePhases=, NumOptPhasesBudget=, OptBudget=, VerifyEach",
    ),
    opt(
        "legacy-bar-warp-wide-behavior",
        "legacy-bar-warp-wide-behavior",
        Flag,
        Built,
        "old meaning of bar, on sm_70 only",
    ),
    opt("list-arch", "arch-ls", Flag, Built, "print the targets that code is made for"),
    opt("list-version", "version-ls", Flag, Built, "print the PTX versions that are understood"),
    opt("machine", "m", Word(&["64"]), Moot, "host architecture"),
    opt(
        "make-errors-visible-at-exit",
        "make-errors-visible-at-exit",
        Flag,
        Built,
        "make memory errors visible at exit",
    ),
    opt("maxntid", "maxntid", List, Built, "launch bounds"),
    opt("maxrregcount", "maxrregcount", Word(&[]), Built, "register limit: N, archmax or archmin"),
    opt("minnctapersm", "minnctapersm", Number, Built, "least blocks per multiprocessor"),
    opt("opt-level", "O", Number, Built, "optimization level, 0 to 3"),
    opt(
        "optimize-float-atomics",
        "opt-fp-atomics",
        Flag,
        Moot,
        "allow inexact float atomics (none are made)",
    ),
    opt("options-file", "optf", List, Built, "read options from these files"),
    opt("output-file", "o", Word(&[]), Built, "output file (elf.o)"),
    opt("override-directive-values", "override-directive-values", Flag, Built, "options win over directives"),
    opt(
        "position-independent-code",
        "pic",
        Bool,
        Built,
        "position independent code; refused for objects with calls or addresses",
    ),
    opt("preserve-relocs", "preserve-relocs", Flag, Built, "keep relocations"),
    opt("query-controls", "query-controls", Word(&[]), Built, "write the knobs that there are to this file"),
    opt("register-usage-level", "regUsageLevel", Number, Moot, "readiness to use more registers"),
    opt("return-at-end", "ret-end", Flag, Moot, "keep the return at the end (for debuggers)"),
    opt(
        "sanitize",
        "sanitize",
        Word(&["memcheck", "threadsteer"]),
        Built,
        "instrumented code; memcheck is refused",
    ),
    opt(
        "search",
        "",
        Flag,
        Built,
        "compile each kernel many times and take what a model says is fastest (ours alone)",
    ),
    opt("sp-bounds-check", "sp-bounds-check", Flag, Built, "check that frames fit the stack, as -O0 does"),
    opt(
        "split-compile",
        "split-compile",
        Number,
        Built,
        "threads, 0 and without it: as many as processors (the output does not depend on them)",
    ),
    opt(
        "suppress-async-bulk-multicast-advisory-warning",
        "suppress-async-bulk-multicast-advisory-warning",
        Flag,
        Built,
        "no warning of copies into several blocks that other targets do better",
    ),
    opt("suppress-debug-info", "suppress-debug-info", Flag, Built, "no debug information"),
    opt("suppress-double-demote-warning", "suppress-double-demote-warning", Flag, Moot, "no such warning"),
    opt(
        "suppress-sparse-mma-advisory-info",
        "suppress-sparse-mma-advisory-info",
        Flag,
        Built,
        "no message about sparse products without ordered metadata",
    ),
    opt(
        "suppress-stack-size-warning",
        "suppress-stack-size-warning",
        Flag,
        Built,
        "no warning of stacks without a bound (-g)",
    ),
    // Ours: how messages are written; rich at a terminal, else plain.
    opt("diagnostics", "diagnostics", Word(&["rich", "json", "plain"]), Built, "style of the messages"),
    opt("verbose", "v", Flag, Built, "print code statistics"),
    opt("verbose2", "v2", Flag, Built, "print what is worked on, and code statistics"),
    opt("version", "V", Flag, Built, "print the version"),
    opt("warn-on-double-precision-use", "warn-double-usage", Flag, Built, "warn of double precision"),
    opt("warn-on-local-memory-usage", "warn-lmem-usage", Flag, Built, "warn of local memory"),
    opt("warn-on-spills", "warn-spills", Flag, Built, "warn of spills"),
    opt("warning-as-error", "Werror", Flag, Built, "make warnings errors"),
    opt("use-trace-pid", "use-trace-pid", LongNumber, Built, "process number in the time trace"),
    opt("uumn", "uumn", Flag, Moot, "no effect on the code"),
    // The rest ptxas keeps to itself, too.
    opt(
        "assume-extern-functions-do-not-sync",
        "assume-extern-functions-do-not-sync",
        Bool,
        Moot,
        "what is called elsewhere is assumed to synchronize all the same",
    ),
    opt("blocks-are-clusters", "blocks-are-clusters", Bool, Built, "launched blocks are clusters"),
    opt("cuda-api-version", "cuda-api-version", Word(&[]), Moot, "version of the interface of CUDA"),
    opt("fast-compile", "", Flag, NotBuilt, "compile faster"),
    opt("force-rela", "force-rela", Flag, NotBuilt, "relocation sections with addends"),
    opt("membermask-overlap", "membermask-overlap", Bool, Moot, "member masks of one warp may overlap"),
    opt("tool-name", "tool-name", Word(&[]), Built, "name of the tool in the note of the output"),
    opt("verbose-tkinfo", "verbose-tkinfo", Bool, Moot, "more in the note of the output"),
    // Triton always passes it.
    opt("regAllocOptLevel", "regAllocOptLevel", Number, Moot, "effort of register allocation"),
];

/// A parsed command line.
#[derive(Clone, Default, Debug)]
pub struct CommandLine {
    /// Values by long name, in order; flags have one empty value each time they are given.
    values: BTreeMap<&'static str, Vec<String>>,
    /// Input files.
    pub inputs: Vec<String>,
    /// Warnings about the command line itself.
    pub warnings: Vec<String>,
    /// What the output's note says: every option as given, without names of files, so that the same input gives the same
    /// bytes wherever they are.
    pub recorded: String,
}

/// Options whose values are names of files.
const FILES: &[&str] = &[
    "output-file",
    "options-file",
    "compiler-stats-file",
    "fdevice-time-trace",
    "apply-controls",
    "query-controls",
];

impl CommandLine {
    /// Parses arguments (without the program's name).
    ///
    /// # Errors
    /// What ptxas ends with.
    pub fn parse(args: &[String]) -> Result<CommandLine, Error> {
        let mut line = CommandLine::default();
        line.add(args, 0)?;
        Ok(line)
    }

    /// Looks at what only counts where something is compiled.
    ///
    /// # Errors
    /// What ptxas ends with.
    pub fn finish(&self) -> Result<(), Error> {
        for opt in OPTIONS {
            let Some(value) = self.value(opt.long) else { continue };
            match opt.kind {
                Kind::LateWord(words) if !words.contains(&value) => {
                    let value = value.to_string();
                    return Err(match opt.long {
                        "Ofast-compile" => Error::FastCompile(value),
                        long => Error::CacheModifier {
                            default: long.starts_with("def"),
                            access: if long.contains("load") { Access::Load } else { Access::Store },
                            value,
                        },
                    });
                }
                Kind::Word(_) | Kind::LateWord(_) | Kind::Number | Kind::LongNumber => {}
                Kind::Flag | Kind::Bool | Kind::List | Kind::Repeated | Kind::Words(_) => {}
            }
        }
        if let Some(value) = self.value("cuda-api-version").filter(|v| *v != "13.0") {
            return Err(Error::Invalid { value: value.into(), option: "cuda-api-version" });
        }
        if self.number("split-compile").is_some_and(|n| n < 0) {
            let value = self.value("split-compile").unwrap_or_default().into();
            return Err(Error::Invalid { value, option: "split-compile" });
        }
        Ok(())
    }

    /// The last value of an option that takes a number.
    pub fn number(&self, long: &str) -> Option<i64> {
        self.value(long).and_then(|text| number(text).and_then(Result::ok))
    }

    /// Whether a flag was given.
    pub fn has(&self, long: &str) -> bool {
        self.values.contains_key(long)
    }
    /// The last value of an option.
    pub fn value(&self, long: &str) -> Option<&str> {
        self.values.get(long)?.last().map(String::as_str)
    }
    /// All values of a list.
    pub fn list(&self, long: &str) -> &[String] {
        self.values.get(long).map_or(&[], Vec::as_slice)
    }

    /// Adds arguments. What was read stays where there is an error behind it, so that its warnings can be given. `depth` counts
    /// the files of options that are inside of one another.
    ///
    /// # Errors
    /// What ptxas ends with.
    pub fn add(&mut self, args: &[String], depth: usize) -> Result<(), Error> {
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if arg == "-" || !arg.starts_with('-') {
                self.inputs.push(arg.clone());
                continue;
            }
            let (opt, attached) = find(arg)?;
            let value = match (opt.kind, attached) {
                (Kind::Flag, Some(_)) => return Err(Error::Argument(head(arg).into())),
                (Kind::Flag, None) => String::new(),
                // What follows is a file: `-O 3` asks for level 0 and a file `3`.
                (Kind::Number, None) if arg == "-O" => String::new(),
                (_, Some(v)) => {
                    if opt.long == "key" {
                        self.warnings.push("option 'key' has been deprecated".into());
                    }
                    v.to_string()
                }
                (_, None) => {
                    if opt.long == "key" {
                        self.warnings.push("option 'key' has been deprecated".into());
                    }
                    args.next().cloned().ok_or_else(|| Error::NoArgument(arg.clone()))?
                }
            };
            self.set(opt, &value)?;
            if !FILES.contains(&opt.long) {
                let space = if self.recorded.is_empty() { "" } else { " " };
                let (dash, name) = if opt.short.is_empty() { ("--", opt.long) } else { ("-", opt.short) };
                self.recorded.push_str(&format!("{space}{dash}{name} {value}"));
                self.recorded.truncate(self.recorded.trim_end().len());
            }
            if opt.long == "options-file" {
                if depth > 8 {
                    return Err(Error::Nested(value));
                }
                for file in elements(&value)? {
                    let text = std::fs::read_to_string(&file).map_err(|_| Error::File(file))?;
                    self.add(&words(&text)?, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, opt: &'static Opt, value: &str) -> Result<(), Error> {
        match opt.long {
            "gpu-name" if target_of(value).is_none() => {
                let several = value.contains(',') && value.split(',').all(|v| target_of(v).is_some());
                return Err(match several {
                    true => Error::Targets(value.into()),
                    false => Error::Undefined { value: value.into(), option: opt.long },
                });
            }
            "machine" if number(value).is_none() => return Err(Error::NoNumber(value.into())),
            _ => {}
        }
        match opt.kind {
            Kind::Bool if !matches!(value, "true" | "false") => {
                return Err(Error::NoBool(value.into()));
            }
            Kind::Number | Kind::LongNumber => {
                let bits = if opt.kind == Kind::Number { 32 } else { 64 };
                let least = i64::MIN >> (64 - bits);
                match number(value) {
                    None => return Err(Error::NoNumber(value.into())),
                    Some(Ok(n)) if (least..=!least).contains(&n) => {}
                    Some(_) => return Err(Error::Range { bits, value: value.into() }),
                }
            }
            Kind::Word(words) if !words.is_empty() && !words.contains(&value) => {
                return Err(Error::Undefined { value: value.into(), option: opt.long });
            }
            Kind::Words(words) => {
                let given = elements(value)?;
                if let Some(unknown) = given.iter().find(|v| !words.contains(&v.as_str())) {
                    return Err(Error::Undefined { value: unknown.clone(), option: opt.long });
                }
            }
            _ => {}
        }
        if opt.status == Status::NotBuilt {
            return Err(Error::NotBuilt(opt.long));
        }
        let values = self.values.entry(opt.long).or_default();
        if opt.kind == Kind::Repeated {
            values.push(value.to_string());
        } else if matches!(opt.kind, Kind::List | Kind::Words(_)) {
            values.extend(elements(value)?);
        } else {
            if values.last().is_some_and(|old| old != value) {
                self.warnings.push(format!(
                    "incompatible redefinition for option '{}', the last value of this option was used",
                    opt.long
                ));
            }
            values.push(value.to_string());
        }
        Ok(())
    }
}

/// The option's name as written, without `=value`.
fn head(arg: &str) -> &str {
    arg.split_once('=').map_or(arg, |(h, _)| h)
}

/// The option that `arg` spells, and the value attached to it (`-arch=sm_90`, `-O3`, `-m64`).
fn find(arg: &str) -> Result<(&'static Opt, Option<&str>), Error> {
    let (name, value) = arg.split_once('=').map_or((arg, None), |(n, v)| (n, Some(v)));
    if let Some(long) = name.strip_prefix("--") {
        let opt = OPTIONS.iter().find(|o| o.long == long);
        // ptxas itself drops one dash in this message.
        return opt.map(|o| (o, value)).ok_or_else(|| Error::Unknown(format!("-{long}")));
    }
    let short = &name[1..];
    // The long name has two dashes.
    if let Some(o) = OPTIONS.iter().find(|o| !short.is_empty() && o.short == short) {
        return Ok((o, value));
    }
    if value.is_none() {
        for o in OPTIONS.iter().filter(|o| o.short.len() == 1 && o.kind != Kind::Flag) {
            if let Some(rest) = short.strip_prefix(o.short)
                && matches!(o.short, "O" | "m")
            {
                return Ok((o, Some(rest)));
            }
        }
    }
    Err(Error::Unknown(short.into()))
}

/// The target that `-arch` names, and whether it is one for which nothing is written.
pub fn target_of(arch: &str) -> Option<(sass::Target, bool)> {
    let stem = ["sm_", "compute_", "lto_"].iter().find_map(|p| arch.strip_prefix(p))?;
    Some((sass::Target::parse(&format!("sm_{stem}"))?, !arch.starts_with("sm_")))
}

/// The text of `--help`.
pub fn help(program: &str) -> String {
    let mut out = format!("\nUsage  : {program} [options] <ptx file>,...\n\nOptions\n=======\n\n");
    for o in OPTIONS {
        let argument = match o.kind {
            Kind::Flag => "",
            Kind::Bool => " <true|false>",
            Kind::Number | Kind::LongNumber => " <N>",
            Kind::Word(_) | Kind::LateWord(_) => " <value>",
            Kind::List | Kind::Repeated | Kind::Words(_) => " <value>,...",
        };
        let left = format!("--{}{argument}", o.long);
        let note = match o.status {
            Status::NotBuilt => " [not built yet]".to_string(),
            _ => String::new(),
        };
        let short = if o.short.is_empty() { String::new() } else { format!("(-{})", o.short) };
        out.push_str(&format!("{}\n        {}{note}\n\n", format!("{left:<52}{short}").trim_end(), o.help));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<CommandLine, Error> {
        CommandLine::parse(&args.iter().map(|a| (*a).to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn every_spelling_is_the_same() {
        for args in [
            &["-arch", "sm_90", "-O3"][..],
            &["-arch=sm_90", "--opt-level", "3"],
            &["--gpu-name", "sm_90", "--opt-level", "3"],
            &["--gpu-name=sm_90", "--opt-level=3"],
            &["-arch=sm_90", "-O=3"],
        ] {
            let line = parse(args).unwrap();
            assert_eq!(
                (line.value("gpu-name"), line.value("opt-level")),
                (Some("sm_90"), Some("3")),
                "{args:?}"
            );
        }
        let line =
            parse(&["-m64", "-v", "--regAllocOptLevel=2", "a.ptx", "-", "-e", "f,g", "-e", "h"]).unwrap();
        assert_eq!(line.inputs, ["a.ptx", "-"]);
        assert_eq!(line.list("entry"), ["f", "g", "h"]);
    }

    #[test]
    fn errors_are_worded_as_ptxas_does() {
        for (args, want) in [
            (&["-arch"][..], "argument expected after '-arch'"),
            (&["--frob"], "Unknown option '-frob'"),
            (&["-frob"], "Unknown option 'frob'"),
            (&["-v=true"], "no argument expected after '-v'"),
            (&["-Ox"], "'x': expected a number"),
            (&["-fmad=maybe"], "'maybe': expected true or false"),
            (&["-m", "x"], "'x': expected a number"),
            (&["-arch=sm_99", "-arch=sm_90"], "Value 'sm_99' is not defined for option 'gpu-name'"),
            (
                &["-arch=sm_80,sm_90"],
                "Value 'sm_80,sm_90' is not defined for option 'gpu-name'; give one target, and run once for each, or `oxsass fatbin`",
            ),
            (&["-arch=sm_80,sm_91"], "Value 'sm_80,sm_91' is not defined for option 'gpu-name'"),
            (&["-m", "32"], "Value '32' is not defined for option 'machine'"),
            (&["--force-rela"], "Option '--force-rela' is known but not built yet"),
            (&["-verbose"], "Unknown option 'verbose'"),
            (&["-O08"], "'08': expected a number"),
            (&["-O2147483648"], "32-bit integer value (2147483648) out of range"),
            (&["-gpu-name=sm_90"], "Unknown option 'gpu-name'"),
            (&["-opt-level", "3"], "Unknown option 'opt-level'"),
            (&["-compiler-stats=t"], "Unknown option 'compiler-stats'"),
            (&["--split-compile", "-2147483649"], "32-bit integer value (-2147483649) out of range"),
            (
                &["--use-trace-pid=99999999999999999999"],
                "64-bit integer value (99999999999999999999) out of range",
            ),
        ] {
            assert_eq!(parse(args).unwrap_err().to_string(), want);
        }
        for (args, want) in [
            (&["--split-compile", "-1"][..], "Invalid value '-1' for option '--split-compile'"),
            (&["-dlcm", "x"], "Invalid default cache modifier on load specified: x"),
            (&["-Ofc=1"], "Invalid value for --Ofast-compile/-Ofc (1), is not 'max', 'mid', 'min', or '0'"),
        ] {
            assert_eq!(parse(args).unwrap().finish().unwrap_err().to_string(), want);
        }
    }

    /// As ptxas 13.0.88 reads them.
    #[test]
    fn lists_and_files_of_options_have_quotes() {
        let list = |text| elements(text).map(|e| e.join("|"));
        let good = [
            ("a,b", "a|b"),
            ("a, b", "a|b"),
            (" a\t,\tb ,", "a|b"),
            ("a , , b", "a|b"),
            ("\"a\",\"b\"", "a|b"),
            ("\"a, b\"", "a, b"),
            ("\" a \"", " a "),
            ("a\"2\"", "a2"),
            ("a\\,b", "a\\|b"),
            ("a\n", "a\n"),
        ];
        for (text, expected) in good {
            assert_eq!(list(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(list("\"a").unwrap_err().to_string(), "Stray '\"' character");
        let file = |text| words(text).map(|w| w.join("|"));
        let good = [
            ("-o x\\ y", "-o|x y"),
            ("-o x\\\\y", "-o|x\\y"),
            ("-o \"x\\\"y\"", "-o|xy"),
            ("-o x\"y z\"w", "-o|xy zw"),
            ("-o 'x y'", "-o|'x|y'"),
            ("-e k\\,k2", "-e|k,k2"),
            ("-o\nx\r\n-v", "-o|x|-v"),
            ("-o x\x0c-v", "-o|x\x0c-v"),
            ("-o \"\"", "-o|"),
            ("-v\0-O1", "-v"),
        ];
        for (text, expected) in good {
            assert_eq!(file(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(file("-o \"x").unwrap_err().to_string(), "Stray '\"' character");
        assert_eq!(file("-o x\\").unwrap_err().to_string(), "Stray '\\' character");
    }

    #[test]
    fn numbers_are_read_as_in_c() {
        for (text, want) in
            [("0x10", 16), ("010", 8), (" 1", 1), ("+5", 5), ("", 0), ("-2147483648", -2147483648)]
        {
            assert_eq!(
                parse(&["--regAllocOptLevel", text]).unwrap().number("regAllocOptLevel"),
                Some(want),
                "{text}"
            );
        }
        for (text, want) in [
            ("12x", 12),
            ("x", 0),
            ("0x10", 0),
            (" 7", 7),
            ("4294967297", 1),
            ("-5", 5u32.wrapping_neg()),
            ("", 0),
        ] {
            assert_eq!(leading_number(text), want, "{text}");
        }
        // The last one counts, and `-O` takes no word behind it.
        let line = parse(&["-Ofc", "1", "-Ofc", "0", "-O", "3", "--entry", ",k,"]).unwrap();
        assert_eq!(line.finish(), Ok(()));
        assert_eq!((line.number("opt-level"), &line.inputs[..]), (Some(0), &["3".to_string()][..]));
        assert_eq!(line.list("entry"), ["k"]);
    }
}
