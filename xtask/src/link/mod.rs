//! Linking our objects with the reference compiler's: pairs of modules, each compiled by both, linked in all four
//! combinations; what the linked file does in the simulator is what the PTX interpreter says of both modules as one.

mod cases;
mod prototypes;
mod random;

use cases::Case;
use oxsass::verify::Verdict;
use rayon::prelude::*;
use sass::Target;
use sim::launch::{Launch, LaunchFile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to link.
#[derive(clap::Args)]
pub struct Options {
    /// For these SMs.
    #[arg(long, value_delimiter = ',', default_value = "75,80,90,100,120")]
    sm: Vec<u8>,
    /// At these levels of optimization.
    #[arg(long, value_delimiter = ',', default_value = "0,3")]
    level: Vec<u8>,
    /// Only pairs whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Keep the modules, objects and linked files, in target/link-check.
    #[arg(long)]
    keep: bool,
    /// So many random pairs as well.
    #[arg(long, default_value_t = 200)]
    random: u64,
    /// The number of the first one.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Only write the table of prototypes that a test compares ours with.
    #[arg(long)]
    prototypes: bool,
}

/// The launch of every kernel.
const LAUNCH: &str = r#"
[[launch]]
kernel = "k"
grid = [2, 1, 1]
block = [64, 1, 1]
stack = 16384
shared = 256
args = [{ buffer = "out" }, { buffer = "in" }]
[launch.buffers.in]
type = "u32"
length = 128
random = [0, 1000]
seed = 5
[launch.buffers.out]
type = "u32"
length = 128
compare = "exact"
"#;

fn run(program: &Path, args: &[&str]) -> Result<(), String> {
    let out = Command::new(program).args(args).output().map_err(|e| format!("{}: {e}", program.display()))?;
    if out.status.success() {
        return Ok(());
    }
    let what = program.file_name().unwrap_or_default().to_string_lossy();
    Err(format!("{what}: {}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)))
}

/// Compiles a module to an object of ours or of the reference compiler.
fn compile(bin: &Path, ptx: &Path, sm: u8, level: u8, ours: bool, object: &Path) -> Result<(), String> {
    if !ours {
        let (ptx, object) = (ptx.display().to_string(), object.display().to_string());
        let (arch, level) = (format!("-arch=sm_{sm}"), format!("-O{level}"));
        return self::run(&bin.join("ptxas"), &["-c", &arch, &level, &ptx, "-o", &object]);
    }
    let target = Target::new(sm).ok_or("unknown target")?;
    let source = std::fs::read_to_string(ptx).map_err(|e| e.to_string())?;
    let settings =
        oxptxas::Settings { opt_level: level, relocatable: true, ..oxptxas::Settings::new(target) };
    let output =
        oxptxas::compile(&source, &ptx.display().to_string(), &settings).map_err(|f| f.render("oxptxas"))?;
    std::fs::write(object, output.cubin).map_err(|e| e.to_string())
}

/// Whether the kernel of a linked file states as many registers as the code in the file names.
fn enough_registers(cubin: &[u8]) -> Result<(), String> {
    let image = cubin::read::read(cubin)?;
    let target = Target::new(image.sm).ok_or("unknown target")?;
    let stated = image.kernels.get("k").ok_or("no kernel")?.registers;
    let mut most = 0;
    for function in image.kernels.values() {
        for (k, word) in function.code.iter().enumerate() {
            let inst = sass::decode(*word, target, 16 * k as i64).map_err(|e| e.to_string())?;
            let mut note = |u| {
                if let Some(r) = backend::units::register(u)
                    && r.file == sass::RegFile::R
                    && !r.is_zero()
                {
                    most = most.max(u32::from(r.index) + 1);
                }
            };
            if !inst.op.info().leaves_function() {
                backend::units::for_each_read(&inst, |u, _| note(u));
                backend::units::for_each_write(&inst, |u, _| note(u));
            }
        }
    }
    if most <= stated { Ok(()) } else { Err(format!("{stated} registers stated, {most} used")) }
}

/// Whether a linked file does what the modules as one say.
fn verify(cubin: &Path, ours: bool, launch: &Launch, expected: &sim::launch::Prepared) -> Result<(), String> {
    let cubin = std::fs::read(cubin).map_err(|e| e.to_string())?;
    let run = sim::sass::run(&cubin, launch, sim::sass::Options::default()).map_err(|e| e.to_string())?;
    launch.compare(&run.buffers, &launch.collect(expected))?;
    enough_registers(&cubin)?;
    if run.output != expected.output {
        return Err(format!("prints\n{}not\n{}", run.output.text(), expected.output.text()));
    }
    if !ours {
        return Ok(());
    }
    let hazards = sim::hazard::check_cubin(&cubin, sim::hazard::Minima::built_in())?;
    match hazards.iter().find(|(_, v, _)| !v.is_empty()) {
        Some((name, ..)) => Err(format!("hazards in {name}")),
        None => Ok(()),
    }
}

/// A way to make the two objects: whether each is ours.
const COMBINATIONS: [(&str, bool, bool); 4] = [
    ("ours + ours", true, true),
    ("ours + ptxas", true, false),
    ("ptxas + ours", false, true),
    ("ptxas + ptxas", false, false),
];

/// Links a pair in all combinations; the failures.
fn pair(bin: &Path, dir: &Path, case: &Case, sm: u8, level: u8) -> Vec<(&'static str, String)> {
    let stem = format!("{}.{sm}.{level}", case.name.replace(' ', "-"));
    let all = |e: String| vec![("both", e)];
    let launch = match LaunchFile::parse(LAUNCH) {
        Ok(mut file) => file.launch.remove(0),
        Err(e) => return all(e.to_string()),
    };
    // Where the linker knows it, what it says must do.
    let launch = if case.bounded { Launch { stack: 0, ..launch } } else { launch };
    let merged = oxsass::merged::modules([&*case.a, &*case.b]);
    let path = |kind: &str| dir.join(format!("{stem}.{kind}"));
    for (kind, text) in [("a.ptx", &case.a), ("b.ptx", &case.b), ("both.ptx", &merged)] {
        if let Err(e) = std::fs::write(path(kind), text) {
            return all(e.to_string());
        }
    }
    let module = match ptx::parse(&merged) {
        Ok(m) => m,
        Err(e) => return all(format!("the modules as one: {}", e.first().map_or("", |d| &d.message))),
    };
    let expected = match sim::ptx::execute_with(&module, &launch, sim::ptx::Options::default()) {
        Ok(p) => p,
        Err(e) => return all(format!("interpreter: {e}")),
    };
    let mut objects: BTreeMap<(&str, bool), Result<PathBuf, String>> = BTreeMap::new();
    for part in ["a", "b"] {
        for ours in [true, false] {
            let object = path(&format!("{part}.{}.o", if ours { "ours" } else { "ptxas" }));
            let made = compile(bin, &path(&format!("{part}.ptx")), sm, level, ours, &object);
            objects.insert((part, ours), made.map(|()| object));
        }
    }
    let mut failures = Vec::new();
    for (label, a, b) in COMBINATIONS {
        let linked = path(&format!("{}.cubin", label.replace(" + ", "-")));
        let link = || -> Result<(), String> {
            let first = objects[&("a", a)].clone()?.display().to_string();
            let second = objects[&("b", b)].clone()?.display().to_string();
            let output = linked.display().to_string();
            self::run(&bin.join("nvlink"), &[&format!("-arch=sm_{sm}"), &first, &second, "-o", &output])?;
            verify(&linked, a && b, &launch, &expected)
        };
        if let Err(e) = link() {
            failures.push((label, e));
        }
    }
    failures
}

/// Compiles the PTX of a kernel of this repository to an object of ours, links that alone and compares it with the
/// PTX.
fn alone(bin: &Path, dir: &Path, ptx: &Path, sm: u8, level: u8) -> Result<usize, String> {
    let stem = ptx.file_stem().unwrap_or_default().to_string_lossy();
    let path = |kind: &str| dir.join(format!("{stem}.{sm}.{level}.{kind}"));
    let (object, linked) = (path("o"), path("cubin"));
    compile(bin, ptx, sm, level, true, &object)?;
    let (object, output) = (object.display().to_string(), linked.display().to_string());
    self::run(&bin.join("nvlink"), &[&format!("-arch=sm_{sm}"), &object, "-o", &output])?;
    let cubin = std::fs::read(&linked).map_err(|e| e.to_string())?;
    let source = std::fs::read_to_string(ptx).map_err(|e| e.to_string())?;
    let module = ptx::parse(&source).map_err(|_| "not accepted".to_string())?;
    let kernels = oxsass::verify::kernels(&module);
    for name in &kernels {
        let verdict = oxsass::verify::kernel(&module, &source, &cubin, name, 0..2);
        if let Verdict::Differs(_) | Verdict::OutOfScope(_) = verdict {
            return Err(format!("{name}: {verdict}"));
        }
    }
    Ok(kernels.len())
}

/// Links every pair for every target and level.
pub fn check(root: &Path, bin: &Path, options: &Options) -> Result<(), String> {
    if options.prototypes {
        return prototypes::write(root, bin);
    }
    let dir = root.join("target/link-check");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let mut cases = cases::all();
    cases.extend((options.seed..options.seed + options.random).map(random::pair));
    let mut jobs: Vec<(&Case, u8, u8)> = Vec::new();
    for case in cases.iter().filter(|c| c.name.contains(&options.only)) {
        for sm in &options.sm {
            jobs.extend(options.level.iter().map(|l| (case, *sm, *l)));
        }
    }
    let found: Vec<_> = jobs.par_iter().map(|(case, sm, level)| pair(bin, &dir, case, *sm, *level)).collect();
    let mut failed = 0;
    for ((case, sm, level), failures) in jobs.iter().zip(&found) {
        for (label, what) in failures {
            println!("{}, sm_{sm} -O{level}, {label}: {what}", case.name);
            failed += if *label == "both" { 4 } else { 1 };
        }
    }
    let files = if options.only.is_empty() { crate::kernels(root)? } else { Vec::new() };
    let mut jobs_alone: Vec<(&Path, u8, u8)> = Vec::new();
    for f in &files {
        for sm in &options.sm {
            jobs_alone.extend(options.level.iter().map(|l| (f.as_path(), *sm, *l)));
        }
    }
    let found: Vec<_> =
        jobs_alone.par_iter().map(|(f, sm, level)| alone(bin, &dir, f, *sm, *level)).collect();
    let mut wrong = 0;
    for ((file, sm, level), found) in jobs_alone.iter().zip(&found) {
        if let Err(e) = found {
            println!("{}, sm_{sm} -O{level}: {e}", file.display());
            wrong += 1;
        }
    }
    println!(
        "{} of {} objects of kernels/ linked alone do what the PTX says",
        found.len() - wrong,
        found.len()
    );
    println!(
        "{} pairs, {} targets, {} levels: {} of {} linked files do what the PTX says",
        jobs.len() / (options.sm.len() * options.level.len()).max(1),
        options.sm.len(),
        options.level.len(),
        4 * jobs.len() - failed,
        4 * jobs.len()
    );
    if !options.keep {
        std::fs::remove_dir_all(&dir).map_err(|e| e.to_string())?;
    }
    match failed + wrong {
        0 => Ok(()),
        n => Err(format!("{n} linked files are wrong")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_one_module() {
        let mut cases = cases::all();
        assert!(cases.len() >= 30);
        cases.extend((0..20).map(random::pair));
        for case in &cases {
            let merged = oxsass::merged::modules([&*case.a, &*case.b]);
            let module = ptx::parse(&merged).unwrap_or_else(|e| panic!("{}: {e:?}\n{merged}", case.name));
            let launch = LaunchFile::parse(LAUNCH).unwrap().launch.remove(0);
            let run = sim::ptx::execute_with(&module, &launch, sim::ptx::Options::default());
            assert!(run.is_ok(), "{}: {:?}\n{merged}", case.name, run.err().map(|e| e.to_string()));
        }
    }

    #[test]
    fn every_module_is_an_object() {
        for case in cases::all() {
            for (sm, text) in [(75, &case.a), (75, &case.b), (100, &case.a), (100, &case.b)] {
                let target = Target::new(sm).unwrap();
                let settings = oxptxas::Settings { relocatable: true, ..oxptxas::Settings::new(target) };
                let output = oxptxas::compile(text, &case.name, &settings);
                assert!(output.is_ok(), "{}: {}\n{text}", case.name, output.unwrap_err().render("oxptxas"));
            }
        }
    }
}
