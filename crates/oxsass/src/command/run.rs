//! Commands that execute launches that a file describes: `run` and `replay`.

use super::{Program, Result, launches, own_target, sass_options};
use clap::Args;
use sass::Target;
use sim::launch::{Buffers, Launch, format_elem, npy, output_name};
use sim::memory::little_endian;
use sim::sass::check::{Checks, Report};
use sim::schedule::Schedule;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// `oxsass run`
#[derive(Args)]
pub struct Run {
    /// A cubin, or PTX, which is interpreted
    file: PathBuf,
    /// What to launch on which data
    launch: PathBuf,
    /// Print every buffer, and not only those that are compared
    #[arg(long)]
    all: bool,
    /// Write all buffers as .npy files instead
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// `turns`, or `random:SEED`: warps and threads run in a random order, so that races show
    #[arg(long, default_value = "turns", hide_default_value = true)]
    schedule: Schedule,
    /// Stop after so many warp instructions
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Of `memory,init,race,sync`, or `all`: print accesses to memory that is not there, reads of memory that nobody has written,
    /// races, and misused barriers, with thread and line (docs/sanitizer.md). PTX is compiled first
    #[arg(long, value_name = "LIST")]
    check: Option<Checks>,
    /// Print how long a cubin takes on one SM by a model of its schedulers, and why each instruction waits (docs/cycles.md)
    #[arg(long, conflicts_with_all = ["all", "out"])]
    cycles: bool,
    /// Look for hazards on the paths that the warps take, indirect branches and calls included
    #[arg(long, conflicts_with_all = ["all", "out"])]
    hazards: bool,
}

impl Run {
    /// Executes every launch.
    pub fn run(self, out: &mut impl Write) -> Result {
        let file = self.file.display();
        let checks = self.check.unwrap_or_default();
        let program = Program::load(&self.file)?;
        let mut found = 0;
        for (index, launch) in launches(&self.launch)?.iter().enumerate() {
            let options = sass_options(self.schedule, self.limit);
            if self.cycles || self.hazards {
                let Program::Cubin { bytes, .. } = &program else {
                    return Err(format!("{file}: PTX takes no time; compile it first").into());
                };
                let fault = |e| format!("{file}: kernel '{}': {e}", launch.kernel);
                let mut text = String::new();
                if self.cycles {
                    text = sim::cycles::measure(bytes, launch, options).map_err(fault)?.to_string();
                }
                if self.hazards {
                    let minima = sim::hazard::Minima::built_in();
                    let violations = sim::hazard::check_run(bytes, launch, options, minima).map_err(fault)?;
                    found += violations.len();
                    violations.iter().for_each(|v| text += &format!("{v}\n"));
                    text += &format!("{} hazards\n", violations.len());
                }
                write!(out, "{}:\n{text}", launch.kernel)?;
                continue;
            }
            if checks.any() {
                let options = sim::sass::Options { checks, ..options };
                found += run_checked(out, &program, launch, options)?;
                continue;
            }
            let (buffers, output) = program.run(launch, self.schedule, self.limit)?;
            write!(out, "{}", output.text())?;
            match &self.out {
                Some(f) => save(f, index, launch, &buffers).map_err(|e| format!("{}: {e}", f.display()))?,
                None => show(out, launch, &buffers, self.all)?,
            }
        }
        let what = if checks.any() { "findings" } else { "hazards" };
        if found == 0 { Ok(()) } else { Err(format!("{file}: {found} {what}").into()) }
    }
}

/// Runs a launch with checks and prints what they find; how much that is. PTX is compiled first, for its own target.
fn run_checked(
    out: &mut impl Write,
    program: &Program,
    launch: &Launch,
    options: sim::sass::Options,
) -> Result<usize> {
    let compiled;
    let (path, cubin, source) = match program {
        Program::Cubin { path, bytes } => (path, bytes, None),
        Program::Ptx { path, source, module } => {
            let target = own_target(module).ok_or("the PTX names no target that is known")?;
            let mut settings = oxptxas::Settings::new(target);
            settings.line_info = Some(true);
            compiled = oxptxas::compile(source, path, &settings).map_err(|f| f.render(path))?.cubin;
            (path, &compiled, Some(source))
        }
    };
    let mut report = Report::of(cubin);
    if let Some(source) = source {
        report.read_ptx(source);
    }
    let run = sim::sass::checked(cubin, launch, options, &mut report);
    for finding in &report.findings {
        writeln!(out, "{finding}")?;
    }
    match run {
        Err(e) if report.findings.is_empty() => {
            Err(format!("{path}: kernel '{}': {e}", launch.kernel).into())
        }
        _ => Ok(report.findings.len()),
    }
}

/// Writes every buffer as a `.npy` file.
fn save(folder: &Path, index: usize, launch: &Launch, buffers: &Buffers) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, b) in &launch.buffers {
        let bytes = buffers.get(name).map_or(&[][..], |b| b);
        fs::write(folder.join(output_name(index, launch, name)), npy(b.ty, bytes))?;
    }
    Ok(())
}

/// Prints the buffers, an element a line.
fn show(out: &mut impl Write, launch: &Launch, buffers: &Buffers, all: bool) -> io::Result<()> {
    writeln!(out, "{}:", launch.kernel)?;
    for (name, b) in launch.buffers.iter().filter(|(_, b)| all || b.compare.is_some()) {
        let bytes = buffers.get(name).map_or(&[][..], |b| b);
        for (i, x) in bytes.chunks(b.ty.size()).enumerate() {
            writeln!(out, "  {name}[{i}] = {}", format_elem(b.ty, little_endian(x)))?;
        }
    }
    Ok(())
}

/// `oxsass replay`
#[derive(Args)]
pub struct Replay {
    /// What was recorded
    folder: PathBuf,
    /// A cubin or PTX to run in the place of the module
    other: Option<PathBuf>,
}

impl Replay {
    /// Runs a recorded launch again, on the module's PTX or on another module, and compares what memory holds afterwards.
    pub fn run(self, out: &mut impl Write) -> Result {
        use sim::record::Record;
        let at = &self.folder;
        let record = Record::read(at)?;
        let other = self.other.unwrap_or_else(|| at.join(&record.module));
        let cubin = match Program::load(&other)? {
            Program::Cubin { bytes, .. } => bytes,
            Program::Ptx { path, source, .. } => {
                let target = Target::parse(&record.target)
                    .ok_or_else(|| format!("unknown target {}", record.target))?;
                let compiled = oxptxas::compile(&source, &path, &oxptxas::Settings::new(target));
                compiled.map_err(|f| f.render("oxsass"))?.cubin
            }
        };
        let mut memory = sim::memory::Memory::new();
        let module = sim::sass::Module::load_at(&cubin, &mut memory, &record.places()?)?;
        record.fill(at, &mut memory)?;
        let (launch, params) = record.launch()?;
        let options = sim::sass::Options { limit: u64::MAX, ..Default::default() };
        let done = module.run(&launch, &params, &mut memory, options);
        let (issued, output) = done.map_err(|e| format!("kernel '{}': {e}", launch.kernel))?;
        let differences = record.differences(at, &memory)?;
        write!(out, "{}", output.text())?;
        for (name, address, [was, is]) in &differences {
            writeln!(out, "{name} at {address:#x}: {is:#04x}, recorded was {was:#04x}")?;
        }
        writeln!(out, "{}: {issued} warp instructions", launch.kernel)?;
        if differences.is_empty() {
            Ok(())
        } else {
            Err(format!("{}: memory differs from the recorded run", at.display()).into())
        }
    }
}
