//! `oxsass`: the workbench.

use oxptxas::listing::{self, Style};
use oxptxas::verify::Verdict;
use sass::Target;
use sim::launch::{Buffers, Launch, LaunchFile, format_elem, npy, output_name};
use sim::memory::little_endian;
use sim::output::Output;
use sim::sass::check::{Checks, Report};
use sim::schedule::Schedule;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
oxsass: look at and execute GPU code

  oxsass dis [--hex] [--control] [--json] FILE.cubin
  oxsass dis --raw sm_90 [--hex] [--control] [--json] FILE
      Disassemble a cubin, or a file of instruction words. --hex adds the words, --control the control
      fields; --json prints an object a line.
  oxsass asm --raw sm_90 LISTING FILE
      Assemble a listing as `dis` prints it to a file of instruction words.
  oxsass asm LISTING --into FILE.cubin [--kernel NAME] -o OUT.cubin
      Put the code of a listing, as `dis --control` prints it, in the place of the code of the same length in a
      cubin: of every kernel whose name (`NAME:`) stands in the listing, or of the kernel that is named.
  oxsass ptx fmt FILE
      Print a PTX file in canonical form.
  oxsass run FILE LAUNCH.toml [--out DIR] [--all] [--schedule random:SEED] [--limit N]
      Execute a cubin, or interpret a PTX file, as the launch file says (docs/launch-files.md). Prints the
      output buffers, with --all every buffer; with --out, writes all of them as .npy files instead.
      With --schedule, warps and threads run in a random order, so that races show. With --limit, stop after so
      many warp instructions.
  oxsass run FILE LAUNCH.toml --check memory,init,race,sync
      Execute it (PTX is compiled first) and print accesses to memory that is not there, reads of memory that
      nobody has written, races, and misused barriers, with thread and line (docs/sanitizer.md); `all` for all.
  oxsass run FILE.cubin LAUNCH.toml --cycles
      Execute it and print how long it takes on one SM by a model of its schedulers, and why each instruction
      waits (docs/cycles.md).
  oxsass run FILE.cubin LAUNCH.toml --hazards
      Execute it and look for hazards on the paths that the warps take, indirect branches and calls included.
  oxsass check FILE.cubin
      Look for hazards: dependences that the control fields of the code do not cover, along every path.
  oxsass check --contract FILE.cubin…
      Hold the files against what the reference compiler's files always and never do (docs/hardware-contract.md):
      each form, control field, neighbourhood and attribute that those never have, with the nearest that they have.
  oxsass verify FILE.ptx [--arch sm_90] [--opt-level 3] [--cubin FILE] [--against FILE] [--seeds 4]
      [--check memory,init,race,sync]
      Compile the file (or take the cubin given), execute every kernel and interpret its PTX on launches that
      are made up from seeds, compare memory, and look for hazards. The exit status is 0 only if all agree.
      What differs is shown with the line of the PTX and the instruction of the code that stored it. With
      --against, another cubin of the same PTX, say ptxas's, is judged in the same way.
  oxsass bisect FILE.ptx [--arch sm_90] [--opt-level 3] [--seeds 4]
      Where `verify` finds a difference in our code: the first phase of the compiler that makes it.
  oxsass replay FOLDER [FILE.cubin | FILE.ptx]
      Run a launch that the driver library recorded (docs/driver.md) again, on its module or on another one, and
      compare what memory holds afterwards.
  oxsass verify FILE OTHER LAUNCH.toml
      Execute both (cubin or PTX) and compare the output buffers as the launch file says.
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = match &args[..] {
        [] | ["help" | "--help" | "-h", ..] => write!(out, "{HELP}").map_err(|e| e.to_string()),
        ["dis", options @ ..] => dis(&mut out, options),
        ["asm", "--raw", target, listing, file] => assemble(target, listing, file),
        ["asm", listing, options @ ..] => patch(listing, options),
        ["ptx", "fmt", file] => format_ptx(&mut out, file),
        ["run", file, launch, options @ ..] => run(&mut out, file, launch, options),
        ["check", "--contract", files @ ..] if !files.is_empty() => check_contract(&mut out, files),
        ["check", file] => check(&mut out, file),
        ["verify", file, other, launch] if !other.starts_with('-') => compare(&mut out, file, other, launch),
        ["replay", folder, options @ ..] => replay(&mut out, folder, options),
        ["bisect", file, options @ ..] => bisect(&mut out, file, options),
        ["verify", file, options @ ..] => verify(&mut out, file, options),
        _ => Err("bad arguments; see oxsass --help".into()),
    };
    // A closed pipe is the reader's choice.
    _ = out.flush();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("oxsass: {e}");
            ExitCode::FAILURE
        }
    }
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("{path}: {e}"))
}

/// Prints a PTX file that passes all checks for its own target.
fn format_ptx(out: &mut impl Write, path: &str) -> Result<(), String> {
    let source = String::from_utf8(read(path)?).map_err(|_| format!("{path}: not text"))?;
    let checked = ptx::parse(&source).and_then(|module| {
        ptx::check(&module, ptx::check::target_sm(&module))?;
        Ok(module)
    });
    let module = checked.map_err(|errors| {
        let lines = ptx::LineIndex::new(&source);
        errors.iter().map(|d| d.render("oxsass", path, &source, &lines)).collect::<String>()
    })?;
    write!(out, "{module}").map_err(|e| e.to_string())
}

fn launches(path: &str) -> Result<Vec<Launch>, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    Ok(LaunchFile::parse(&text).map_err(|e| format!("{path}: {e}"))?.launch)
}

fn parse_target(name: &str) -> Result<Target, String> {
    Target::parse(name).ok_or_else(|| format!("{name} is not a known target"))
}

fn dis(out: &mut impl Write, options: &[&str]) -> Result<(), String> {
    let (mut style, mut raw, mut path) = (Style { labels: true, ..Style::default() }, None, None);
    let mut options = options.iter();
    while let Some(o) = options.next() {
        match *o {
            "--hex" => style.hex = true,
            "--control" => style.control = true,
            "--json" => style.json = true,
            "--raw" => raw = Some(parse_target(options.next().ok_or("--raw needs a target")?)?),
            o if o.starts_with("--") => return Err(format!("unknown option '{o}'")),
            o if path.is_none() => path = Some(o),
            _ => return Err("dis takes one file".into()),
        }
    }
    let path = path.ok_or("dis needs a file")?;
    let bytes = read(path)?;
    let mut text = String::new();
    if let Some(target) = raw {
        let (words, rest) = bytes.as_chunks::<16>();
        if !rest.is_empty() {
            return Err(format!("{path}: {} bytes are not a whole number of words", bytes.len()));
        }
        let words: Vec<u128> = words.iter().map(|w| u128::from_le_bytes(*w)).collect();
        style.labels = false;
        listing::write(&mut text, &words, target, style, &mut 0);
        return out.write_all(text.as_bytes()).map_err(|e| e.to_string());
    }
    let image = cubin::read::read(&bytes).map_err(|e| format!("{path}: {e}"))?;
    let target = Target::new(image.sm).ok_or_else(|| format!("{path}: sm_{} is not known", image.sm))?;
    if !style.json {
        text += &format!("// {target}\n");
    }
    let mut next_label = 0;
    for (name, kernel) in &image.kernels {
        if !style.json {
            text += &format!(
                "\n// {} registers, {} bytes of stack, {} bytes of shared memory\n{name}:\n",
                kernel.registers, kernel.stack_bytes, kernel.shared_bytes
            );
        }
        listing::write(&mut text, &kernel.code, target, style, &mut next_label);
    }
    out.write_all(text.as_bytes()).map_err(|e| e.to_string())
}

fn assemble(target: &str, source: &str, file: &str) -> Result<(), String> {
    let text = fs::read_to_string(source).map_err(|e| format!("{source}: {e}"))?;
    let words = listing::assemble(&text, parse_target(target)?).map_err(|e| format!("{source}:{e}"))?;
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    fs::write(file, bytes).map_err(|e| format!("{file}: {e}"))
}

/// `oxsass asm` into a cubin.
fn patch(source: &str, options: &[&str]) -> Result<(), String> {
    let (mut cubin, mut only, mut to) = (None, None, None);
    for pair in options.chunks(2) {
        let [name, value] = *pair else { return Err(format!("option '{}' lacks its value", pair[0])) };
        match name {
            "--into" => cubin = Some(value),
            "--kernel" | "--section" => only = Some(value.trim_start_matches(".text.")),
            "-o" => to = Some(value),
            _ => return Err(format!("unknown option '{name}'")),
        }
    }
    let (cubin, to) = cubin.zip(to).ok_or("asm needs --raw, or --into FILE.cubin and -o OUT.cubin")?;
    let text = fs::read_to_string(source).map_err(|e| format!("{source}: {e}"))?;
    let bytes = listing::patch(&text, &read(cubin)?, only).map_err(|e| match e {
        listing::PatchError::Listing(e) => format!("{source}:{e}"),
        listing::PatchError::Cubin(e) => format!("{cubin}: {e}"),
    })?;
    fs::write(to, bytes).map_err(|e| format!("{to}: {e}"))
}

fn check(out: &mut impl Write, path: &str) -> Result<(), String> {
    let kernels = sim::hazard::check_cubin(&read(path)?, sim::hazard::Minima::built_in())
        .map_err(|e| format!("{path}: {e}"))?;
    let mut found = 0;
    for (name, violations, stats) in &kernels {
        found += violations.len();
        let mut write = || -> io::Result<()> {
            writeln!(out, "{name}: {} instructions, {} hazards", stats.instructions, violations.len())?;
            if stats.unknown > 0 {
                writeln!(out, "  {} instructions are not in the table", stats.unknown)?;
            }
            violations.iter().try_for_each(|v| writeln!(out, "  {v}"))
        };
        write().map_err(|e| e.to_string())?;
    }
    if found == 0 { Ok(()) } else { Err(format!("{path}: {found} hazards")) }
}

/// `oxsass check --contract`
fn check_contract(out: &mut impl Write, paths: &[&str]) -> Result<(), String> {
    let mut found = 0;
    for path in paths {
        let findings =
            contract::Contract::built_in().check(&read(path)?).map_err(|e| format!("{path}: {e}"))?;
        found += findings.len();
        for finding in &findings {
            writeln!(out, "{path}: {finding}").map_err(|e| e.to_string())?;
        }
    }
    if found == 0 { Ok(()) } else { Err(format!("{found} findings outside the contract")) }
}

/// The options of `oxsass verify` without a launch file, and of `bisect`.
struct VerifyOptions<'a> {
    target: Option<Target>,
    level: u8,
    cubin: Option<Vec<u8>>,
    against: Option<(&'a str, Vec<u8>)>,
    seeds: u64,
    checks: Checks,
}

impl<'a> VerifyOptions<'a> {
    fn parse(options: &[&'a str]) -> Result<VerifyOptions<'a>, String> {
        let checks = Checks::default();
        let mut o = VerifyOptions { target: None, level: 3, cubin: None, against: None, seeds: 4, checks };
        for pair in options.chunks(2) {
            let [name, value] = pair else { return Err(format!("option '{}' lacks its value", pair[0])) };
            let number = || value.parse::<u64>().map_err(|_| format!("{name}: '{value}' is not a number"));
            match *name {
                "--arch" => o.target = Some(parse_target(value)?),
                "--opt-level" => o.level = number()?.min(3) as u8,
                "--seeds" => o.seeds = number()?,
                "--check" => o.checks = value.parse()?,
                "--cubin" => o.cubin = Some(read(value)?),
                "--against" => o.against = Some((*value, read(value)?)),
                other => return Err(format!("unknown option '{other}'")),
            }
        }
        Ok(o)
    }

    /// For the target that was given, else the one that the module names.
    fn settings(&self, module: &ptx::Module) -> Result<oxptxas::Settings, String> {
        let own = module.targets.first().and_then(|t| Target::parse(t));
        let target = self.target.or(own).ok_or("--arch is needed: the file names no target that is known")?;
        Ok(oxptxas::Settings { opt_level: self.level, ..oxptxas::Settings::new(target) })
    }
}

/// `oxsass bisect`
fn bisect(out: &mut impl Write, path: &str, options: &[&str]) -> Result<(), String> {
    use oxptxas::bisect::{Culprit, search};
    let options = VerifyOptions::parse(options)?;
    let Program::Ptx { source, mut module, .. } = Program::load(path)? else {
        return Err(format!("{path}: bisect starts from PTX"));
    };
    let settings = options.settings(&module)?;
    module.param_skew = settings.target.info().param_skew().into();
    let wrong = |output: &oxptxas::Output| {
        let mut names = oxptxas::verify::kernels(&module).into_iter();
        names.any(|name| {
            let verdict = oxptxas::verify::kernel(&module, &source, &output.cubin, name, 0..options.seeds);
            matches!(verdict, Verdict::Differs(_))
        })
    };
    let found = search(&source, path, &settings, wrong).map_err(|f| f.render("oxsass"))?;
    let line = match found {
        Culprit::None => "nothing differs".into(),
        Culprit::Always => "it differs without all phases that can be left out".into(),
        Culprit::Phase(phase, unit, n) => {
            format!("{} of {unit}: phase {n} of those that can be left out", phase.name())
        }
    };
    writeln!(out, "{line}").map_err(|e| e.to_string())
}

/// `oxsass verify` without a launch file.
fn verify(out: &mut impl Write, path: &str, options: &[&str]) -> Result<(), String> {
    let options = VerifyOptions::parse(options)?;
    let Program::Ptx { source, mut module, .. } = Program::load(path)? else {
        return Err(format!("{path}: verify starts from PTX"));
    };
    let settings = options.settings(&module);
    let VerifyOptions { cubin, against, seeds, checks, .. } = options;
    let ours = cubin.is_none();
    let mut exact = None;
    let (bytes, target) = match cubin {
        Some(bytes) => {
            let target = Target::new(cubin::read::read(&bytes)?.sm).ok_or("a cubin of an unknown target")?;
            (bytes, target)
        }
        None => {
            let settings = oxptxas::Settings { line_info: Some(true), ..settings? };
            let target = settings.target;
            let compiled = |settings: oxptxas::Settings| {
                oxptxas::compile(&source, path, &settings).map_err(|f| f.render("oxsass"))
            };
            if oxptxas::verify::may_be_contracted(&module) {
                exact = Some(compiled(oxptxas::Settings { fmad: false, ..settings.clone() })?.cubin);
            }
            (compiled(settings)?.cubin, target)
        }
    };
    module.param_skew = target.info().param_skew().into();
    let mut agree = true;
    for name in oxptxas::verify::kernels(&module) {
        let mut show = |whose: &str, cubin: &[u8]| {
            let judge = |cubin: &[u8]| oxptxas::verify::kernel(&module, &source, cubin, name, 0..seeds);
            let verdict = match (judge(cubin), &exact) {
                // Contraction may lose or keep what cancels: without it, every bit must agree.
                (Verdict::Differs(_) | Verdict::Close, Some(exact)) if whose.is_empty() => {
                    oxptxas::verify::despite_contraction(judge(exact))
                }
                (verdict, _) => verdict,
            };
            agree &= matches!(verdict, Verdict::Same | Verdict::Close | Verdict::Silent);
            writeln!(out, "{name}{whose}: {verdict}").map_err(|e| e.to_string())
        };
        show("", &bytes)?;
        if let Some((file, other)) = &against {
            show(&format!(" in {file}"), other)?;
        }
        if checks.any() {
            for f in oxptxas::verify::findings(&module, &source, &bytes, name, (0..seeds, checks)) {
                writeln!(out, "{f}").map_err(|e| e.to_string())?;
            }
        }
    }
    let hazards = sim::hazard::check_cubin(&bytes, sim::hazard::Minima::built_in())?;
    for (name, violations, _) in &hazards {
        agree &= violations.is_empty();
        for v in violations {
            writeln!(out, "{name}: hazard: {v}").map_err(|e| e.to_string())?;
        }
    }
    // A cubin from elsewhere may say nothing of the lines of the PTX.
    if ours || sim::order::load(&bytes).is_ok() {
        let options = sim::order::Options { foreign: !ours, ..sim::order::Options::default() };
        for k in sim::order::check_cubin(&module, &source, &bytes, options)? {
            agree &= k.violations.is_empty() && k.stats.unchecked == 0;
            if k.stats.unchecked > 0 {
                let n = k.stats.unchecked;
                writeln!(out, "{}: order: {n} accesses not checked: too many pairs", k.name)
                    .map_err(|e| e.to_string())?;
            }
            for v in &k.violations {
                writeln!(out, "{}: order: {v}", k.name).map_err(|e| e.to_string())?;
            }
        }
    }
    if agree { Ok(()) } else { Err(format!("{path}: not verified")) }
}

/// A program to execute.
enum Program {
    Cubin { path: String, bytes: Vec<u8> },
    Ptx { path: String, source: String, module: Box<ptx::Module> },
}

impl Program {
    fn load(path: &str) -> Result<Program, String> {
        let bytes = read(path)?;
        if bytes.starts_with(b"\x7fELF") {
            return Ok(Program::Cubin { path: path.into(), bytes });
        }
        let source = String::from_utf8(bytes).map_err(|_| format!("{path}: neither a cubin nor text"))?;
        let lines = ptx::LineIndex::new(&source);
        let render = |errors: Vec<ptx::Diagnostic>| {
            let list: Vec<String> =
                errors.iter().map(|d| d.render("oxsass", path, &source, &lines)).collect();
            list.join("")
        };
        let module = ptx::parse(&source).map_err(render)?;
        Ok(Program::Ptx { path: path.into(), source, module: module.into() })
    }

    /// The buffers afterwards, and what the threads printed.
    fn run(
        &self,
        launch: &Launch,
        schedule: Schedule,
        limit: Option<u64>,
    ) -> Result<(Buffers, Output), String> {
        match self {
            Program::Cubin { path, bytes } => {
                let options = sass_options(schedule, limit);
                let run = sim::sass::run(bytes, launch, options);
                run.map(|r| (r.buffers, r.output))
                    .map_err(|e| format!("{path}: kernel '{}': {e}", launch.kernel))
            }
            Program::Ptx { path, source, module } => {
                let usual = sim::ptx::Options::default();
                let options = sim::ptx::Options { schedule, limit: limit.unwrap_or(usual.limit), ..usual };
                let run = sim::ptx::execute_with(module, launch, options);
                let after = run.map_err(|e| e.render(path, source))?;
                Ok((launch.collect(&after), after.output))
            }
        }
    }
}

/// How the simulator runs a launch.
fn sass_options(schedule: Schedule, limit: Option<u64>) -> sim::sass::Options {
    let usual = sim::sass::Options::default();
    sim::sass::Options { schedule, limit: limit.unwrap_or(usual.limit), ..usual }
}

fn run(out: &mut impl Write, file: &str, launch_file: &str, options: &[&str]) -> Result<(), String> {
    let (mut folder, mut all, mut schedule) = (None, false, Schedule::Turns);
    let (mut cycles, mut hazards) = (false, false);
    let (mut checks, mut limit) = (Checks::default(), None);
    let mut options = options.iter();
    while let Some(o) = options.next() {
        match *o {
            "--all" => all = true,
            "--cycles" => cycles = true,
            "--hazards" => hazards = true,
            "--check" => checks = options.next().ok_or("--check needs a list of checks")?.parse()?,
            "--limit" => {
                let text = options.next().ok_or("--limit needs a number")?;
                limit = Some(text.parse().map_err(|_| format!("'{text}' is no number of instructions"))?);
            }
            "--schedule" => schedule = options.next().ok_or("--schedule needs a value")?.parse()?,
            "--out" => folder = Some(*options.next().ok_or("--out needs a folder")?),
            other => return Err(format!("unknown option '{other}'")),
        }
    }
    if (cycles || hazards) && (all || folder.is_some()) {
        return Err("--cycles and --hazards print no buffers: not with --all or --out".into());
    }
    let program = Program::load(file)?;
    let mut found = 0;
    for (index, launch) in launches(launch_file)?.iter().enumerate() {
        if cycles || hazards {
            let Program::Cubin { bytes, .. } = &program else {
                return Err(format!("{file}: PTX takes no time; compile it first"));
            };
            let options = sass_options(schedule, limit);
            let fault = |e| format!("{file}: kernel '{}': {e}", launch.kernel);
            let mut text = String::new();
            if cycles {
                text = sim::cycles::measure(bytes, launch, options).map_err(fault)?.to_string();
            }
            if hazards {
                let minima = sim::hazard::Minima::built_in();
                let violations = sim::hazard::check_run(bytes, launch, options, minima).map_err(fault)?;
                found += violations.len();
                violations.iter().for_each(|v| text += &format!("{v}\n"));
                text += &format!("{} hazards\n", violations.len());
            }
            write!(out, "{}:\n{text}", launch.kernel).map_err(|e| e.to_string())?;
            continue;
        }
        if checks.any() {
            let options = sim::sass::Options { checks, ..sass_options(schedule, limit) };
            found += run_checked(out, &program, launch, options)?;
            continue;
        }
        let (buffers, output) = program.run(launch, schedule, limit)?;
        write!(out, "{}", output.text()).map_err(|e| e.to_string())?;
        match folder {
            Some(f) => save(Path::new(f), index, launch, &buffers).map_err(|e| format!("{f}: {e}"))?,
            None => show(out, launch, &buffers, all).map_err(|e| e.to_string())?,
        }
    }
    let what = if checks.any() { "findings" } else { "hazards" };
    if found == 0 { Ok(()) } else { Err(format!("{file}: {found} {what}")) }
}

/// Runs a launch with checks and prints what they find; how much that is. PTX is compiled first, for its own target.
fn run_checked(
    out: &mut impl Write,
    program: &Program,
    launch: &Launch,
    options: sim::sass::Options,
) -> Result<usize, String> {
    let compiled;
    let (path, cubin, source) = match program {
        Program::Cubin { path, bytes } => (path, bytes, None),
        Program::Ptx { path, source, module } => {
            let name = module.targets.first().map_or("", String::as_str);
            let target = sass::Target::parse(name).ok_or("the PTX names no target that is known")?;
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
        writeln!(out, "{finding}").map_err(|e| e.to_string())?;
    }
    match run {
        Err(e) if report.findings.is_empty() => Err(format!("{path}: kernel '{}': {e}", launch.kernel)),
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

/// `oxsass verify` with a launch file.
fn compare(out: &mut impl Write, file: &str, other: &str, launch_file: &str) -> Result<(), String> {
    let (a, b) = (Program::load(file)?, Program::load(other)?);
    for launch in &launches(launch_file)? {
        let (a, b) = (a.run(launch, Schedule::Turns, None)?, b.run(launch, Schedule::Turns, None)?);
        launch.compare(&a.0, &b.0)?;
        if a.1 != b.1 {
            return Err(format!("{file} prints\n{}{other} prints\n{}", a.1.text(), b.1.text()));
        }
        writeln!(out, "{}: same", launch.kernel).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Runs a recorded launch again, on the module's PTX or on another module, and compares what memory holds afterwards.
fn replay(out: &mut impl Write, folder: &str, options: &[&str]) -> Result<(), String> {
    use sim::record::Record;
    let at = Path::new(folder);
    let record = Record::read(at)?;
    let other = match options {
        [] => at.join(&record.module).display().to_string(),
        [file] => (*file).to_string(),
        _ => return Err("bad arguments; see oxsass --help".into()),
    };
    let cubin = match Program::load(&other)? {
        Program::Cubin { bytes, .. } => bytes,
        Program::Ptx { source, .. } => {
            let target =
                Target::parse(&record.target).ok_or_else(|| format!("unknown target {}", record.target))?;
            let compiled = oxptxas::compile(&source, &other, &oxptxas::Settings::new(target));
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
    let mut text = output.text();
    for (name, address, [was, is]) in &differences {
        text += &format!("{name} at {address:#x}: {is:#04x}, recorded was {was:#04x}\n");
    }
    text += &format!("{}: {issued} warp instructions\n", launch.kernel);
    write!(out, "{text}").map_err(|e| e.to_string())?;
    if differences.is_empty() {
        Ok(())
    } else {
        Err(format!("{folder}: memory differs from the recorded run"))
    }
}
