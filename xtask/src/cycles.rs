//! `cargo xtask cycles`: how long our code and ptxas's take on one SM by the model of `oxsass run --cycles`, for
//! kernels with launch files, or for a sample of those in folders, on launches that are made up.

use crate::code::{own_target, ptx_files, reference};
use crate::score::Mean;
use oxsass::compare::{self, Figures};
use oxsass::verify;
use rayon::prelude::*;
use sass::Target;
use sim::launch::{LaunchFile, Rng};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What to compare.
#[derive(clap::Args)]
pub struct Options {
    /// Folders of PTX, of which each is a producer, or has producers' folders in it; kernels/ with its launch files when
    /// there are none.
    paths: Vec<PathBuf>,
    /// Targets; without it, 75, 80, 90 and 120 for kernels/, and other files' own.
    #[arg(long, value_delimiter = ',')]
    sm: Vec<String>,
    /// Kernels to time, of all producers in turn.
    #[arg(long, default_value_t = 300)]
    sample: usize,
    /// Which ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where what was found of the reference compiler's code is kept for the next time; target/cycles without it.
    #[arg(long)]
    cache: Option<PathBuf>,
    /// Print every kernel, and not only the worst.
    #[arg(long)]
    all: bool,
    /// Print an object for each kernel instead.
    #[arg(long)]
    json: bool,
    /// Search for the fastest code of each kernel (`--search`).
    #[arg(long)]
    search: bool,
    /// Knobs of our compiler (docs/phases.md).
    #[arg(long)]
    knob: Vec<String>,
}

/// Prints a table: our cycles over ptxas's, by kernel and target, or by producer.
pub fn run(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    if options.paths.is_empty() { launch_files(root, bin, options) } else { sample(root, bin, options) }
}

fn launch_files(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let sms = match &options.sm[..] {
        [] => ["75", "80", "90", "120"].map(String::from).to_vec(),
        some => some.to_vec(),
    };
    let columns: Vec<String> = sms.iter().map(|s| format!("sm_{s}")).collect();
    println!("| kernel | {} |\n|---|{}", columns.join(" | "), "---|".repeat(columns.len()));
    let mut means: Vec<Mean> = columns.iter().map(|_| Mean::default()).collect();
    for ptx in crate::kernels(root)? {
        let text = std::fs::read_to_string(ptx.with_extension("toml")).map_err(|e| e.to_string())?;
        let source = std::fs::read_to_string(&ptx).map_err(|e| e.to_string())?;
        for (index, launch) in LaunchFile::parse(&text)?.launch.iter().enumerate() {
            let mut row = format!("| {} {} |", launch.kernel, index + 1);
            for (sm, mean) in sms.iter().zip(&mut means) {
                let target = Target::parse(&format!("sm_{sm}")).ok_or("unknown target")?;
                let ours = oxptxas::compile(&source, "kernel.ptx", &oxptxas::Settings::new(target))
                    .map_err(|e| e.render("xtask"))?
                    .cubin;
                let theirs = reference(root, bin, &ptx, sm)?;
                let cycles = |cubin: &[u8]| {
                    let report = sim::cycles::measure(cubin, launch, sim::sass::Options::default());
                    report.map(|r| r.cycles as f64).map_err(|e| format!("{}: {e}", launch.kernel))
                };
                let (a, b) = (cycles(&ours)?, cycles(&theirs)?);
                mean.add(a, b);
                row.push_str(&format!(" {:.2} |", a / b));
            }
            println!("{row}");
        }
    }
    let all: Vec<String> = means.iter().map(|m| format!("{:.3}", m.get())).collect();
    println!("| geometric mean | {} |", all.join(" | "));
    Ok(())
}

/// Something to time: a kernel of a file.
pub struct Job {
    producer: String,
    /// The file.
    pub file: PathBuf,
    /// The target, without `sm_`.
    pub sm: String,
    /// Which kernel of the file, before the remainder by their number is taken.
    pub nth: u64,
}

/// A kernel's figures: ours, theirs.
struct Timed {
    producer: String,
    file: PathBuf,
    sm: String,
    kernel: String,
    ours: Figures,
    theirs: Figures,
}

impl Timed {
    fn ratio(&self) -> f64 {
        self.ours.cycles as f64 / self.theirs.cycles.max(1) as f64
    }
}

/// All files, shuffled, of each producer in turn, for targets or their own.
pub fn candidates(paths: &[PathBuf], sms: &[String], seed: u64) -> Vec<Job> {
    let mut producers: BTreeMap<String, Vec<(PathBuf, String)>> = BTreeMap::new();
    for path in paths {
        for file in ptx_files(path) {
            let below = file.strip_prefix(path).unwrap_or(&file);
            let folder = if below.components().count() > 1 { below.iter().next() } else { path.file_name() };
            let producer = folder.map_or(String::new(), |f| f.to_string_lossy().into_owned());
            let own = std::fs::read_to_string(&file).ok().and_then(|t| own_target(&t));
            let targets = if sms.is_empty() { own.into_iter().collect() } else { sms.to_vec() };
            let files = producers.entry(producer).or_default();
            files.extend(targets.into_iter().map(|t| (file.clone(), t)));
        }
    }
    let mut rng = Rng::new(seed);
    let mut turns: Vec<(usize, usize, Job)> = Vec::new();
    for (p, (producer, mut files)) in producers.into_iter().enumerate() {
        for k in (1..files.len()).rev() {
            files.swap(k, (rng.next() % (k as u64 + 1)) as usize);
        }
        for (turn, (file, sm)) in files.into_iter().enumerate() {
            turns.push((turn, p, Job { producer: producer.clone(), file, sm, nth: rng.next() >> 8 }));
        }
    }
    turns.sort_by_key(|t| (t.0, t.1));
    turns.into_iter().map(|t| t.2).collect()
}

/// The launch and the figures of the reference compiler's code, from the cache if they are there.
///
/// # Errors
/// When it has no launch that can be timed.
pub fn theirs(
    cache: &Path,
    module: &ptx::Module,
    source: &str,
    (kernel, sm): (&str, &str),
    cubin: impl FnOnce() -> Result<Vec<u8>, String>,
) -> Result<(u64, Figures), String> {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let version = Target::parse(&format!("sm_{sm}")).map_or(0, |t| sim::cycles::version(t.sm));
    let version = if version > 0 { format!(" {version}") } else { String::new() };
    for b in source.bytes().chain(kernel.bytes()).chain(sm.bytes()).chain(version.bytes()) {
        hash = (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
    }
    let file = cache.join(format!("{hash:016x}"));
    if let Ok(text) = std::fs::read_to_string(&file) {
        let numbers: Vec<u64> = text.split_whitespace().map_while(|n| n.parse().ok()).collect();
        return match *numbers {
            [seed, a, b, c, d, e, f, g] => Ok((seed, Figures::from_values([a, b, c, d, e, f, g]))),
            _ => Err(text),
        };
    }
    let find = || {
        let cubin = cubin()?;
        let seed = compare::seed(module, &cubin, kernel).ok_or("no launch runs")?;
        let launch = compare::launch(module, kernel, seed).ok_or("no launch")?;
        Ok((seed, Figures::of(&cubin, &launch)?))
    };
    let found: Result<(u64, Figures), String> = find();
    let text = match &found {
        Ok((seed, f)) => f.values().iter().fold(seed.to_string(), |text, n| format!("{text} {n}")),
        Err(e) => e.clone(),
    };
    std::fs::write(file, text).map_err(|e| e.to_string())?;
    found
}

/// Times one kernel. `None` where the reference compiler's code can't be timed: then it is none of the sample.
fn time(
    root: &Path,
    bin: &Path,
    cache: &Path,
    options: &Options,
    job: &Job,
) -> Option<Result<Timed, String>> {
    let source = std::fs::read_to_string(&job.file).ok()?;
    let target = Target::parse(&format!("sm_{}", job.sm))?;
    let module = verify::module(&source, target).ok()?;
    let kernels = verify::kernels(&module);
    let kernel = *kernels.get((job.nth % kernels.len().max(1) as u64) as usize)?;
    let reference = || reference(root, bin, &job.file, &job.sm);
    let (seed, theirs) = theirs(cache, &module, &source, (kernel, &job.sm), reference).ok()?;
    let launch = compare::launch(&module, kernel, seed)?;
    let ours = || -> Result<Figures, String> {
        let mut settings = oxptxas::Settings::new(target);
        options.knob.iter().try_for_each(|k| settings.knobs.add(k))?;
        if options.search {
            settings.search = true;
            settings.threads = Some(1);
            settings.entries = vec![kernel.into()];
        }
        let output = oxptxas::compile(&source, "kernel.ptx", &settings).map_err(|f| f.render("xtask"))?;
        Figures::of(&output.cubin, &launch).map_err(|e| e.to_string())
    };
    let (producer, file, sm) = (job.producer.clone(), job.file.clone(), job.sm.clone());
    let name = |e| format!("{} {kernel}: {e}", job.file.display());
    let timed = |ours| Timed { producer, file, sm, kernel: kernel.into(), ours, theirs };
    Some(ours().map(timed).map_err(name))
}

fn sample(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    let cache = options.cache.clone().unwrap_or_else(|| root.join("target/cycles"));
    std::fs::create_dir_all(&cache).map_err(|e| e.to_string())?;
    let mut timed: Vec<Timed> = Vec::new();
    let mut refused: Vec<String> = Vec::new();
    for jobs in candidates(&options.paths, &options.sm, options.seed).chunks(64) {
        let found: Vec<_> = jobs.par_iter().filter_map(|j| time(root, bin, &cache, options, j)).collect();
        for f in found {
            match f {
                Ok(t) if timed.len() < options.sample => timed.push(t),
                Ok(_) => {}
                Err(e) => refused.push(e),
            }
        }
        if timed.len() >= options.sample {
            break;
        }
    }
    if options.json {
        timed.iter().for_each(|t| println!("{}", json(t)));
        return Ok(());
    }
    let mut groups: BTreeMap<&str, Vec<&Timed>> = BTreeMap::new();
    timed.iter().for_each(|t| groups.entry(&t.producer).or_default().push(t));
    println!(
        "| producer | kernels | instructions | executed | cycles | cycles ×{} | registers | warps | local bytes |",
        compare::COPIES
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (name, group) in &groups {
        println!("{}", row(name, group));
    }
    let all: Vec<&Timed> = timed.iter().collect();
    println!("{}", row("all", &all));
    let above = |limit: f64| timed.iter().filter(|t| t.ratio() > limit).count();
    println!("{} above 1.2, {} above 1.5, {} above 2 of {}", above(1.2), above(1.5), above(2.0), timed.len());
    timed.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()));
    let shown = if options.all { timed.len() } else { 20 };
    for t in timed.iter().take(shown) {
        let pairs = Figures::NAMES.iter().zip(t.ours.values().into_iter().zip(t.theirs.values()));
        let pairs: Vec<String> = pairs.map(|(n, (a, b))| format!("{n} {a}/{b}")).collect();
        println!("{:.2} {} sm_{} {}: {}", t.ratio(), t.file.display(), t.sm, t.kernel, pairs.join(", "));
    }
    refused.iter().for_each(|e| println!("not timed: {}", e.lines().next().unwrap_or_default()));
    Ok(())
}

/// A row of the table: geometric means of ours over theirs, and bytes.
fn row(name: &str, group: &[&Timed]) -> String {
    let mut means: Vec<Mean> = Figures::NAMES.iter().map(|_| Mean::default()).collect();
    let mut local = [0, 0];
    for t in group {
        for (mean, (a, b)) in means.iter_mut().zip(t.ours.values().into_iter().zip(t.theirs.values())) {
            mean.add(a as f64, b as f64);
        }
        local[0] += t.ours.local_bytes;
        local[1] += t.theirs.local_bytes;
    }
    let means: Vec<String> = means[..6].iter().map(|m| format!("{:.3}", m.get())).collect();
    format!("| {name} | {} | {} | {}, {} |", group.len(), means.join(" | "), local[0], local[1])
}

/// A kernel as a line of JSON.
fn json(t: &Timed) -> String {
    let quoted = |s: &str| format!("\"{}\"", s.replace('\\', "\\\\").replace('"', "\\\""));
    let figures = |f: &Figures| {
        let fields = Figures::NAMES.iter().zip(f.values()).map(|(n, v)| format!("\"{n}\":{v}"));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    };
    format!(
        "{{\"file\":{},\"sm\":{},\"name\":{},\"ours\":{},\"theirs\":{}}}",
        quoted(&t.file.display().to_string()),
        quoted(&t.sm),
        quoted(&t.kernel),
        figures(&t.ours),
        figures(&t.theirs)
    )
}
