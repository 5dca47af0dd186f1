//! `oxptxas`: ptxas's command line.

mod settings;
mod voice;

use oxptxas::console::tell;
use oxptxas::inputs::Inputs;
use oxptxas::options::{CommandLine, help, target_of};
use oxptxas::timeline::Wanted;
use oxptxas::{Failure, Output, compile, files, pipeline};
use ptx::{Diagnostic, Severity, Style};
use sass::target::Suffix;
use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use voice::Voice;

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
    let args: &[String] = &arguments.iter().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let mut voice = Voice::new(program);
    let mut line = CommandLine::default();
    let parsed = line.add(args, 0);
    line.warnings.iter().for_each(|w| voice.remark(w));
    parsed.map_err(|m| voice.fatal(m))?;
    let arch = line.value("gpu-name").unwrap_or("sm_75");
    let (target, check_only) = target_of(arch)
        .ok_or_else(|| voice.fatal(format!("Value '{arch}' is not defined for option 'gpu-name'")))?;
    if line.has("compiler-stats-file") && !line.has("compiler-stats") {
        voice.remark(
            "Option '--compiler-stats-file' requires option '--compiler-stats'; ignoring since latter is not specified",
        );
    }
    // Without a file there is nothing to do.
    let idle = line.inputs.is_empty()
        && !line.has("input-as-string")
        && !line.has("version")
        && !line.has("list-version");
    if idle || line.has("help") {
        return voice.print(&help(program));
    }
    if line.has("version") {
        return voice.print(&version(program));
    }
    if line.has("list-version") {
        return voice.print(&versions());
    }
    if arch.starts_with("lto_") && target.suffix == Suffix::A {
        return Err(voice.fatal(format!("Unsupported gpu architecture '{arch}'")));
    }
    line.finish().map_err(|m| match m.contains("cache modifier") {
        true => format!("{program} error   : {m}\n") + &voice.aborted(),
        false => voice.fatal(m),
    })?;
    voice.quiet = line.has("disable-warnings");
    voice.strict = line.has("warning-as-error") && !voice.quiet;
    let limits = settings::limits(&line, target, &voice)?;
    let inputs = read(&line, arguments, &voice)?;
    settings::conflicts(&line, &voice);
    if voice.denied() {
        return Err(voice.aborted());
    }
    let (threads, tokens) = settings::threads(&line, &voice);
    let settings = settings::settings(&line, target, &limits, threads, &voice)?;
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
        let mut errors = String::new();
        for d in warnings {
            let error = voice.strict && d.severity == Severity::Warning;
            let severity = if error { Severity::Error } else { d.severity };
            let text = inputs.render(&Diagnostic { severity, ..d.clone() }, style, program);
            if error && !errors.ends_with(&text) {
                errors += &text;
            } else if !error && !voice.quiet {
                tell(&text);
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors + &voice.aborted()) }
    };
    if check_only {
        return say(&pipeline::check(source, file, &settings, arch).map_err(failed)?);
    }
    let output = compile(source, file, &settings).map_err(failed)?;
    drop(tokens);
    say(&output.warnings)?;
    if voice.denied() {
        return Err(voice.aborted());
    }
    for k in &output.kernels {
        if line.has("warn-on-local-memory-usage") && k.frame != 0 {
            voice.warn(&format!(
                "Local memory used for function '{}', size of stack frame: {} bytes",
                k.name, k.frame
            ));
        }
        if line.has("warn-on-spills") && k.spills != (0, 0) {
            voice.warn(&format!(
                "Registers are spilled to local memory in function '{}', {} bytes spill stores, {} bytes spill loads",
                k.name, k.spills.0, k.spills.1
            ));
        }
    }
    if voice.denied() {
        return Err(String::new());
    }
    write(&line, arguments, &output, inputs.name(), &voice)?;
    if line.has("verbose") {
        tell(&output.verbose(program, target));
    }
    Ok(())
}

/// The input files, by name and text.
fn read(
    line: &CommandLine,
    arguments: &[OsString],
    voice: &Voice<'_>,
) -> Result<Vec<(String, String)>, String> {
    let program = voice.program;
    let mut inputs = Vec::new();
    let mut missing = String::new();
    for input in &line.inputs {
        let mut bytes = Vec::new();
        let read = if input == "-" {
            std::io::stdin().read_to_end(&mut bytes).map(drop)
        } else {
            std::fs::read(files::path_of(arguments, input)).map(|b| bytes = b)
        };
        if read.is_err() {
            missing += &voice.fatal(format!("Input file '{input}' could not be opened"));
            continue;
        }
        let file = if input == "-" { "stdin" } else { input };
        let source = String::from_utf8(bytes).map_err(|e| {
            let at = e.utf8_error().valid_up_to();
            let before = &e.as_bytes()[..at];
            let row = before.iter().filter(|b| **b == b'\n').count() + 1;
            let column = at - before.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1) + 1;
            let place =
                format!("{program} {file}, line {row}; fatal   : Parsing error: the file is not text\n");
            place + &format!("    --> {file}:{row}:{column}\n") + &voice.aborted()
        })?;
        inputs.push((file.to_string(), source.trim_end_matches('\0').to_string()));
    }
    if !missing.is_empty() {
        return Err(missing + &voice.aborted());
    }
    for text in line.list("input-as-string") {
        inputs.push(("application ptx input".to_string(), text.trim_end_matches('\0').to_string()));
    }
    Ok(inputs)
}

/// The cubin, and what is said of the compilation in files of its own.
fn write(
    line: &CommandLine,
    arguments: &[OsString],
    output: &Output,
    file: &str,
    voice: &Voice<'_>,
) -> Result<(), String> {
    let path_of = |text: &str| files::path_of(arguments, text);
    let program = voice.program;
    let stats = Wanted::of(line.list("compiler-stats"));
    // The file first: what follows is only said about it.
    let path = line.value("output-file").unwrap_or("elf.o");
    files::write_whole(&path_of(path), &output.cubin)
        .map_err(|_| voice.fatal(format!("Output file '{path}' could not be opened")))?;
    voice.print(&output.timeline.shown)?;
    if line.has("compiler-stats") {
        match line.value("compiler-stats-file") {
            None => tell(&output.timeline.stats(stats, &format!("{program} info    : STAT: "))),
            Some(path) => {
                let text = format!("\n{file} >>\n\n{}", output.timeline.stats(stats, ""));
                append(&path_of(path), &text)
                    .map_err(|_| voice.fatal(format!("File '{path}' could not be opened")))?;
            }
        }
    }
    if let Some(path) = line.value("fdevice-time-trace") {
        let existing = std::fs::read_to_string(path_of(path))
            .map_err(|_| voice.fatal(format!("File '{path}' could not be opened")))?;
        let process = line.number("use-trace-pid").unwrap_or_else(|| std::process::id().into());
        let trace = output
            .timeline
            .trace(&existing, file, process)
            .map_err(|e| voice.fatal(format!("Input file '{path}' not in expected format: {e}")))?;
        std::fs::write(path_of(path), trace)
            .map_err(|_| voice.fatal(format!("File '{path}' could not be opened")))?;
    }
    Ok(())
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
