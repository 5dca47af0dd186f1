//! Commands that execute PTX and code on launches that are made up: `verify` and `bisect`.

use super::{Program, Result, launches, load_ptx, own_target, parse_target, read};
use clap::Args;
use oxsass::link;
use oxsass::verify::{self, Verdict};
use sass::Target;
use sim::sass::check::Checks;
use sim::schedule::Schedule;
use std::io::Write;
use std::path::{Path, PathBuf};

/// How PTX is compiled, and with what launches it is executed.
#[derive(Args)]
struct Compiled {
    /// The target, `sm_90`; without it, the one that the PTX names
    #[arg(long, value_name = "SM", value_parser = parse_target)]
    arch: Option<Target>,
    /// Optimization level
    #[arg(long, value_name = "0…3", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=3))]
    opt_level: u8,
    /// How many launches are made up for a kernel
    #[arg(long, value_name = "N", default_value_t = 4)]
    seeds: u64,
}

impl Compiled {
    fn settings(&self, module: &ptx::Module) -> Result<oxptxas::Settings> {
        let target = self.arch.or(own_target(module));
        let target = target.ok_or("--arch is needed: the file names no target that is known")?;
        Ok(oxptxas::Settings { opt_level: self.opt_level, ..oxptxas::Settings::new(target) })
    }
}

/// `oxsass bisect`
#[derive(Args)]
pub struct Bisect {
    /// The PTX
    file: PathBuf,
    #[command(flatten)]
    compiled: Compiled,
}

impl Bisect {
    /// Prints the phase.
    pub fn run(self, out: &mut impl Write) -> Result {
        use oxsass::bisect::{Culprit, search};
        let (source, mut module) = load_ptx(&self.file, "bisect starts from PTX")?;
        let settings = self.compiled.settings(&module)?;
        lower::layout::place_params(&mut module, settings.target);
        let wrong = |output: &oxptxas::Output| {
            let mut names = verify::kernels(&module).into_iter();
            names.any(|name| {
                let verdict = verify::kernel(&module, &source, &output.cubin, name, 0..self.compiled.seeds);
                matches!(verdict, Verdict::Differs(_))
            })
        };
        let path = self.file.display().to_string();
        let line = match search(&source, &path, &settings, wrong).map_err(|f| f.render("oxsass"))? {
            Culprit::None => "nothing differs".into(),
            Culprit::Always => "it differs without all phases that can be left out".into(),
            Culprit::Phase(phase, unit, n) => {
                format!("{} of {unit}: phase {n} of those that can be left out", phase.name())
            }
        };
        Ok(writeln!(out, "{line}")?)
    }
}

/// `oxsass verify`
#[derive(Args)]
pub struct Verify {
    /// The PTX; with LAUNCH.toml, a cubin or PTX
    file: PathBuf,
    /// Another cubin or PTX, to execute beside the first
    #[arg(requires = "launch", conflicts_with_all = ["cubin", "against", "check"])]
    other: Option<PathBuf>,
    /// What to launch on which data
    launch: Option<PathBuf>,
    #[command(flatten)]
    compiled: Compiled,
    /// Take this cubin instead of compiling
    #[arg(long, value_name = "CUBIN")]
    cubin: Option<PathBuf>,
    /// PTX of other objects of the program; the modules count as one. Without --cubin and --object each is compiled to an object,
    /// and nvlink links them
    #[arg(long = "with", value_name = "PTX", conflicts_with = "launch")]
    others: Vec<PathBuf>,
    /// Link these objects instead of compiling, ours or the reference compiler's
    #[arg(long = "object", value_name = "OBJECT", conflicts_with_all = ["cubin", "launch"])]
    objects: Vec<PathBuf>,
    /// The linker, where it is not on PATH
    #[arg(long, value_name = "NVLINK", default_value = "nvlink")]
    nvlink: PathBuf,
    /// Judge another cubin of the same PTX, say the reference compiler's, in the same way
    #[arg(long, value_name = "CUBIN")]
    against: Option<PathBuf>,
    /// What else to look for: `memory,init,race,sync`, or `all` (docs/sanitizer.md)
    #[arg(long, value_name = "LIST")]
    check: Option<Checks>,
    /// Do what is asynchronous as late as the code and the PTX allow, not at once (docs/simulator.md)
    #[arg(long, conflicts_with = "launch")]
    late: bool,
}

impl Verify {
    /// Prints a verdict for each kernel.
    pub fn run(self, out: &mut impl Write) -> Result {
        match (&self.other, &self.launch) {
            (Some(other), Some(launch)) => beside(out, &self.file, other, launch),
            _ => self.made_up(out),
        }
    }

    fn made_up(self, out: &mut impl Write) -> Result {
        let path = self.file.display().to_string();
        let (mut source, mut module) = load_ptx(&self.file, "verify starts from PTX")?;
        let mut texts = vec![source.clone()];
        if !self.others.is_empty() {
            for other in &self.others {
                texts.push(load_ptx(other, "PTX is merged with PTX")?.0);
            }
            source = oxsass::merged::modules(texts.iter().map(String::as_str));
            let path = "the modules as one";
            *module = ptx::parse(&source).map_err(|errors| super::rendered(&errors, path, &source))?;
        }
        let checks = self.check.unwrap_or_default();
        let seeds = self.compiled.seeds;
        // What is linked has no lines of the modules as one.
        let linked = !self.others.is_empty() || !self.objects.is_empty();
        let lines = match (self.cubin.is_none(), linked) {
            (_, true) => verify::Lines::OfParts,
            (true, false) => verify::Lines::Ours,
            (false, false) => verify::Lines::Foreign,
        };
        let mut exact = None;
        let (bytes, target) = match &self.cubin {
            Some(file) => {
                let bytes = read(file)?;
                let target =
                    Target::new(cubin::read::read(&bytes)?.sm).ok_or("a cubin of an unknown target")?;
                (bytes, target)
            }
            None if !self.objects.is_empty() => {
                let object = |path: &PathBuf| -> Result<Vec<u8>> {
                    let file = read(path)?;
                    if link::is_executable(&file) {
                        let path = path.display();
                        return Err(format!("{path} is no object but an executable: --cubin takes it").into());
                    }
                    Ok(file)
                };
                let objects = self.objects.iter().map(object).collect::<Result<Vec<_>>>()?;
                let first = objects.first().and_then(|o| link::target_of(o));
                let target = self.compiled.arch.or(first).ok_or("an object of an unknown target")?;
                (link::link(&self.nvlink, target, &objects)?, target)
            }
            None if linked => {
                let settings = oxptxas::Settings { relocatable: true, ..self.compiled.settings(&module)? };
                let target = settings.target;
                let compiled = |settings: &oxptxas::Settings| -> Result<Vec<u8>> {
                    let paths = std::iter::once(&self.file).chain(&self.others);
                    let one = |(path, text): (&PathBuf, &String)| {
                        let output = oxptxas::compile(text, &path.display().to_string(), settings);
                        Ok(output.map_err(|f| f.render("oxsass"))?.cubin)
                    };
                    let objects = paths.zip(&texts).map(one).collect::<Result<Vec<_>>>()?;
                    Ok(link::link(&self.nvlink, target, &objects)?)
                };
                if verify::may_be_contracted(&module) {
                    exact = Some(compiled(&oxptxas::Settings { fmad: false, ..settings.clone() })?);
                }
                (compiled(&settings)?, target)
            }
            None => {
                let settings =
                    oxptxas::Settings { line_info: Some(true), ..self.compiled.settings(&module)? };
                let target = settings.target;
                let compiled = |settings: oxptxas::Settings| {
                    oxptxas::compile(&source, &path, &settings).map_err(|f| f.render("oxsass"))
                };
                if verify::may_be_contracted(&module) {
                    exact = Some(compiled(oxptxas::Settings { fmad: false, ..settings.clone() })?.cubin);
                }
                (compiled(settings)?.cubin, target)
            }
        };
        let against = match &self.against {
            Some(file) => Some((file.display(), read(file)?)),
            None => None,
        };
        lower::layout::place_params(&mut module, target);
        let mut agree = true;
        for name in verify::kernels(&module) {
            let judge =
                |cubin: &[u8]| verify::kernel_as((&module, &source, cubin), name, 0..seeds, self.late);
            let verdict = verify::either(judge, &bytes, exact.as_deref());
            agree &= verdict.is_right();
            writeln!(out, "{name}: {verdict}")?;
            if let Some((file, other)) = &against {
                let verdict = judge(other);
                agree &= verdict.is_right();
                writeln!(out, "{name} in {file}: {verdict}")?;
            }
            if checks.any() {
                for f in verify::findings(&module, &source, &bytes, name, (0..seeds, checks)) {
                    writeln!(out, "{f}")?;
                }
            }
        }
        let (notes, right) = verify::at_rest(&module, &source, &bytes, lines)?;
        agree &= right;
        for note in notes {
            writeln!(out, "{note}")?;
        }
        let split = sim::order::one_per_line(&module, &source);
        if lines == verify::Lines::Ours && split.source != source {
            // Lines with several statements do not say which of them an instruction is of.
            let module = ptx::parse(&split.source).map_err(|_| format!("{path}: not parsed by lines"))?;
            let settings = oxptxas::Settings { line_info: Some(true), ..self.compiled.settings(&module)? };
            let output = oxptxas::compile(&split.source, &path, &settings);
            let bytes = output.map_err(|f| f.render("oxsass"))?.cubin;
            for mut k in
                sim::order::check_cubin(&module, &split.source, &bytes, sim::order::Options::default())?
            {
                split.of_original(&mut k);
                agree &= k.is_good();
                for v in k.findings() {
                    writeln!(out, "{}: order: {v}", k.name)?;
                }
            }
        }
        if agree { Ok(()) } else { Err(format!("{path}: not verified").into()) }
    }
}

/// Executes two programs as a launch file says, and compares their output buffers and what they print.
fn beside(out: &mut impl Write, file: &Path, other: &Path, launch_file: &Path) -> Result {
    let (a, b) = (Program::load(file)?, Program::load(other)?);
    for launch in &launches(launch_file)? {
        let (a, b) = (a.run(launch, Schedule::Turns, None)?, b.run(launch, Schedule::Turns, None)?);
        launch.compare(&a.0, &b.0)?;
        if a.1 != b.1 {
            let (file, other) = (file.display(), other.display());
            return Err(format!("{file} prints\n{}{other} prints\n{}", a.1.text(), b.1.text()).into());
        }
        writeln!(out, "{}: same", launch.kernel)?;
    }
    Ok(())
}
