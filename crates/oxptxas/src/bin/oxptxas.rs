//! `oxptxas`: ptxas's command line.

use oxptxas::console::{show, tell};
use oxptxas::directives::{Directives, cache_operator};
use oxptxas::inputs::Inputs;
use oxptxas::knobs::Knobs;
use oxptxas::options::{CommandLine, help, leading_number, number};
use oxptxas::timeline::Wanted;
use oxptxas::{Failure, Settings, compile, files, pipeline};
use ptx::{Diagnostic, Severity, Style};
use sass::Target;
use sass::target::LEAST_LIMIT;
use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;

/// ptxas's exit status on any error.
const FAILED: u8 = 255;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    // Tools match on the name that they called.
    let program = args
        .next()
        .and_then(|p| Path::new(&p).file_name().map(|n| n.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "oxptxas".into());
    let args: Vec<OsString> = args.collect();
    match run(&program, &args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            tell(&message);
            ExitCode::from(FAILED)
        }
    }
}

fn run(program: &str, arguments: &[OsString]) -> Result<(), String> {
    let fatal = |m: String| format!("{program} fatal   : {m}\n");
    let args: &[String] = &arguments.iter().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let path_of = |text: &str| files::path_of(arguments, text);
    let print = |text: &str| show(text).map_err(|e| fatal(format!("Standard output: {e}")));
    let line = CommandLine::parse(args).map_err(fatal)?;
    let arch = line.value("gpu-name").unwrap_or("sm_75");
    let (name, check_only) = match arch.strip_prefix("compute_") {
        Some(n) => (format!("sm_{n}"), true),
        None => (arch.to_string(), false),
    };
    let target = Target::parse(&name)
        .ok_or_else(|| fatal(format!("Value '{arch}' is not defined for option 'gpu-name'")))?;
    // Without a file there is nothing to do.
    let idle = line.inputs.is_empty() && !line.has("version") && !line.has("list-version");
    if idle || line.has("help") {
        return print(&help(program));
    }
    if line.has("version") {
        return print(&version(program));
    }
    if line.has("list-version") {
        return print(&versions());
    }
    line.finish().map_err(fatal)?;
    let quiet = line.has("disable-warnings");
    let warn = |m: &str| -> Result<(), String> {
        if line.has("warning-as-error") {
            return Err(format!("{program} error   : {m}\n"));
        }
        if !quiet {
            tell(&format!("{program} warning : {m}\n"));
        }
        Ok(())
    };
    // What is said of the command line itself is never an error, and never left out.
    let remark = |m: &str| tell(&format!("{program} warning : {m}\n"));
    line.warnings.iter().for_each(|w| remark(w));
    if line.has("key") {
        remark("option 'key' has been deprecated");
    }
    if line.has("compile-only") && line.has("extensible-whole-program") {
        warn(
            "Conflicting options '--compile-only' and '--extensible-whole-program' specified, ignoring '--extensible-whole-program' option",
        )?;
    }
    if line.has("preserve-relocs") {
        // What an object needs is there anyway. ptxas lists the other addresses, which are filled in, up to sm_89 only.
        if target.sm >= 90 || !line.has("compile-only") {
            warn(&format!(
                "'--preserve-relocs' option is not fully implemented for '{target}' and may not work as expected"
            ))?;
        }
    }
    let max_registers = match line.value("maxrregcount") {
        None | Some("archmax") => None,
        Some("archmin") => Some(LEAST_LIMIT.into()),
        Some(text) => {
            let n = registers(text)
                .ok_or_else(|| fatal(format!("Invalid value '{text}' for option 'maxrregcount'")))?;
            if !(0..256).contains(&n) {
                warn(&format!("Too big maxrregcount value specified {n}, will be ignored"))?;
            } else if n < LEAST_LIMIT.into() {
                warn(&format!(
                    "For profile {target} adjusting per thread register count of {n} to lower bound of {LEAST_LIMIT}"
                ))?;
            }
            u32::try_from(n).ok().filter(|n| *n < 256).map(|n| n.max(LEAST_LIMIT.into()))
        }
    };
    let opt_level = level(&line).map_err(fatal)?;
    if line.has("device-function-maxrregcount") {
        if line.has("compile-only") {
            return Err(fatal("Option '--device-function-maxrregcount' is known but not built yet".into()));
        }
        warn(
            "Command line option 'device-function-maxrregcount' not supported for 'whole program compilation', will be ignored",
        )?;
    }
    if line.has("legacy-bar-warp-wide-behavior") {
        warn(
            "'--legacy-bar-warp-wide-behavior' is a deprecated option, It will be removed in future release and is not recommended",
        )?;
        warn(
            "Command line option '--legacy-bar-warp-wide-behavior' not supported for this '.target', will be ignored",
        )?;
    }
    let aborted = || format!("{program} fatal   : Ptx assembly aborted due to errors\n");
    let mut inputs = Vec::new();
    for input in &line.inputs {
        let mut bytes = Vec::new();
        let read = if input == "-" {
            std::io::stdin().read_to_end(&mut bytes).map(drop)
        } else {
            std::fs::read(path_of(input)).map(|b| bytes = b)
        };
        read.map_err(|_| fatal(format!("Input file '{input}' could not be opened")) + &aborted())?;
        let file = if input == "-" { "stdin" } else { input };
        let source = String::from_utf8(bytes).map_err(|e| {
            let at = e.utf8_error().valid_up_to();
            let before = &e.as_bytes()[..at];
            let row = before.iter().filter(|b| **b == b'\n').count() + 1;
            let column = at - before.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1) + 1;
            let place =
                format!("{program} {file}, line {row}; fatal   : Parsing error: the file is not text\n");
            place + &format!("    --> {file}:{row}:{column}\n") + &aborted()
        })?;
        inputs.push((file.to_string(), source.trim_end_matches('\0').to_string()));
    }
    let bounds: Vec<u32> = line.list("maxntid").iter().map(|n| leading_number(n)).collect();
    let maxntid = match bounds[..] {
        [_, _, _, _, ..] => {
            warn("Too many values specified for option '-maxntid', option will be ignored")?;
            None
        }
        [] | [0, ..] => None,
        [x, ref rest @ ..] => {
            Some([x, rest.first().copied().unwrap_or(1), rest.get(1).copied().unwrap_or(1)])
        }
    };
    let cache = |name: &str| line.value(name).and_then(cache_operator);
    let directives = Directives {
        maxntid,
        minnctapersm: line.number("minnctapersm").and_then(|n| n.try_into().ok()),
        win: line.has("override-directive-values"),
        default_cache: [cache("def-load-cache"), cache("def-store-cache")],
        forced_cache: [cache("force-load-cache"), cache("force-store-cache")],
    };
    let stats = Wanted::of(line.list("compiler-stats"));
    if line.has("compiler-stats-file") && !line.has("compiler-stats") {
        remark(
            "Option '--compiler-stats-file' requires option '--compiler-stats'; ignoring since latter is not specified",
        );
    }
    let trace = match line.value("fdevice-time-trace") {
        None => None,
        Some(path) => {
            let text = std::fs::read_to_string(path_of(path));
            Some((path, text.map_err(|_| fatal(format!("File '{path}' could not be opened")))?))
        }
    };
    let mut knobs = Knobs { timed: trace.is_some() || stats.phases, ..Knobs::default() };
    for knob in line.list("knob") {
        knobs.add(knob).map_err(fatal)?;
    }
    let settings = Settings {
        knobs,
        directives,
        opt_level,
        level_given: line.has("opt-level"),
        max_registers,
        fmad: line.value("fmad") != Some("false"),
        entries: line.list("entry").to_vec(),
        options_text: line.recorded.clone(),
        relocatable: line.has("compile-only"),
        threads: line.number("split-compile").and_then(|n| n.try_into().ok()).filter(|n| *n > 0),
        extensible: line.has("extensible-whole-program"),
        line_info: match (line.has("suppress-debug-info"), line.has("generate-line-info")) {
            (true, _) => Some(false),
            (_, true) => Some(true),
            _ => None,
        },
        ..Settings::new(target)
    };
    let style = match line.value("diagnostics") {
        Some("rich") => Style::Rich,
        Some("json") => Style::Json,
        Some(_) => Style::Plain,
        None if std::io::stderr().is_terminal() => Style::Rich,
        None => Style::Plain,
    };
    let inputs = Inputs::new(inputs, target, arch, style, program)?;
    let (source, file) = (inputs.text(), inputs.name());
    let failed = |f: Failure| inputs.render_failure(&f, style, program);
    let say = |warnings: &[Diagnostic]| -> Result<(), String> {
        for d in warnings {
            let strict = line.has("warning-as-error") && d.severity == Severity::Warning;
            let severity = if strict { Severity::Error } else { d.severity };
            let d = Diagnostic { severity, ..d.clone() };
            let text = inputs.render(&d, style, program);
            if strict {
                return Err(text);
            }
            if !quiet {
                tell(&text);
            }
        }
        Ok(())
    };
    if check_only {
        let module = pipeline::front_end(source, file, target, arch).map_err(failed)?;
        return say(&ptx::check::warnings(&module));
    }
    let output = compile(source, file, &settings).map_err(failed)?;
    say(&output.warnings)?;
    for k in &output.kernels {
        if line.has("warn-on-local-memory-usage") && k.frame != 0 {
            warn(&format!(
                "Local memory used for function '{}', size of stack frame: {} bytes",
                k.name, k.frame
            ))?;
        }
        if line.has("warn-on-spills") && k.spills != (0, 0) {
            warn(&format!(
                "Registers are spilled to local memory in function '{}', {} bytes spill stores, {} bytes spill loads",
                k.name, k.spills.0, k.spills.1
            ))?;
        }
    }
    // The file first: what follows is only said about it.
    let path = line.value("output-file").unwrap_or("elf.o");
    files::write_whole(&path_of(path), &output.cubin)
        .map_err(|_| fatal(format!("Output file '{path}' could not be opened")))?;
    print(&output.timeline.shown)?;
    if line.has("compiler-stats") {
        match line.value("compiler-stats-file") {
            None => tell(&output.timeline.stats(stats, &format!("{program} info    : STAT: "))),
            Some(path) => {
                let text = format!("\n{file} >>\n\n{}", output.timeline.stats(stats, ""));
                append(&path_of(path), &text)
                    .map_err(|_| fatal(format!("File '{path}' could not be opened")))?;
            }
        }
    }
    if let Some((path, existing)) = trace {
        let trace = output.timeline.trace(&existing, file).map_err(fatal)?;
        std::fs::write(path_of(path), trace)
            .map_err(|_| fatal(format!("File '{path}' could not be opened")))?;
    }
    if line.has("verbose") {
        tell(&output.verbose(program, target));
    }
    Ok(())
}

/// A number of registers as C reads it: decimal, hexadecimal or octal, nothing being 0, and cut to 32 bits.
fn registers(text: &str) -> Option<i32> {
    number(text).map(|n| n.unwrap_or(-1) as i32)
}

/// What `-O` and `-Ofc` say of the level together.
fn level(line: &CommandLine) -> Result<u8, String> {
    let given = line.number("opt-level");
    let (fast, level, others) = match line.value("Ofast-compile") {
        None | Some("0") => return Ok(given.unwrap_or(3).clamp(0, 3) as u8),
        Some(fast @ "max") => (fast, 0, "1,2,3"),
        Some(fast) => (fast, 1, "0,2,3"),
    };
    if line.value("cloning").is_some_and(|v| v != "no") {
        return Err(format!("Conflicting options -cloning=yes and --Ofast-compile={fast} specified"));
    }
    if given.is_some_and(|g| g != level) {
        return Err(format!(
            "Conflicting options -opt-level=<{others}> and --Ofast-compile={fast} specified"
        ));
    }
    Ok(level as u8)
}

fn append(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(text.as_bytes())
}

/// Our own name first, then the release that we are compatible with, in the lines that tools parse.
fn version(program: &str) -> String {
    format!(
        "{program}: oxptxas {} (open-source PTX assembler and optimizing code generator)\n\
         Compatible with: Ptx optimizing assembler\n\
         Cuda compilation tools, release 13.0, V13.0.88\n\
         Build oxptxas_{}\n",
        env!("CARGO_PKG_VERSION"),
        env!("CARGO_PKG_VERSION")
    )
}

/// The PTX versions that exist up to the newest that is understood.
fn versions() -> String {
    let mut out = String::new();
    for (major, last) in ptx::parser::LAST_MINOR {
        for minor in 0..=*last {
            out.push_str(&format!("{major}.{minor}\n"));
        }
    }
    out
}
