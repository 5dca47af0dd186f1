//! What a run leaves: the output file, and what is said of the compilation in files of its own.

use super::{Done, Stopped};
use crate::files;
use crate::timeline::{TraceError, Wanted};
use std::ffi::OsString;

/// Writes the cubin.
pub(super) fn output_file(done: &Done<'_>, arguments: &[OsString]) -> Result<(), Stopped> {
    let path = done.line.value("output-file").unwrap_or("elf.o");
    files::write_whole(&files::path_of(arguments, path), &done.output.cubin)
        .map_err(|_| done.voice.stopped(format!("Output file '{path}' could not be opened")))
}

impl Done<'_> {
    /// Says what the options want to know of the code.
    pub(super) fn told(&self, arguments: &[OsString]) -> Result<(), Stopped> {
        let Done { line, voice, output, file, .. } = self;
        let path_of = |text: &str| files::path_of(arguments, text);
        let program = voice.program;
        let stats = Wanted::of(line.list("compiler-stats"));
        voice.print(&output.timeline.shown)?;
        if line.has("compiler-stats") {
            match line.value("compiler-stats-file") {
                None => {
                    voice.console.info(&output.timeline.stats(stats, &format!("{program} info    : STAT: ")));
                }
                Some(path) => {
                    let text = format!("\n{file} >>\n\n{}", output.timeline.stats(stats, ""));
                    files::append(&path_of(path), &text)
                        .map_err(|_| voice.stopped(format!("File '{path}' could not be opened")))?;
                }
            }
        }
        if let Some(path) = line.value("fdevice-time-trace") {
            let existing = std::fs::read_to_string(path_of(path))
                .map_err(|_| voice.stopped(format!("File '{path}' could not be opened")))?;
            let (process, after) = (line.number("use-trace-pid"), line.value("ftrace-phase-after"));
            let trace = output.timeline.trace(&existing, file, process, after).map_err(|e| match e {
                TraceError::Form(e) => voice.stopped(format!("Input file '{path}' not in expected format: {e}")),
                TraceError::NoSuchEvent => voice.stopped(
                    "Parsed trace file not in expected format : --ftrace-phase-after string not found in input file",
                ),
            })?;
            files::write_whole(&path_of(path), trace.as_ref())
                .map_err(|_| voice.stopped(format!("File '{path}' could not be opened")))?;
        }
        if line.has("verbose2") {
            let names = output.kernels.iter().map(|k| format!("{program} info    : Processing {}\n", k.name));
            voice.console.info(&names.collect::<String>());
        }
        if line.has("verbose") || line.has("verbose2") {
            voice.console.info(&output.verbose(program, self.target));
        }
        Ok(())
    }
}
