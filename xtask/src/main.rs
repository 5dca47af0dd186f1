//! Developer commands: `cargo xtask COMMAND`.

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

mod classes;
mod code;
mod compile;
mod contract;
mod coverage;
mod cycles;
mod docs;
mod driver;
mod format;
mod forms;
mod fuzz;
mod gpu;
mod hazards;
mod library;
mod link;
mod loops;
mod mnemonics;
mod mutate;
mod mutate_options;
mod options;
mod order;
mod places;
mod ptxfuzz;
mod regions;
mod release;
mod scaling;
mod score;
mod statements;
mod status;
mod vendor;
mod verify;
mod wheel;
mod words;
mod zluda;

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install the vendor's tools into target/oracles and print their folder.
    Oracles,
    /// Install the vendor's tools and run every test.
    Test,
    /// Compile every kernel for every target at -O0 and -O3 and let the vendor's tools read the files.
    VendorCheck,
    /// Compare the form of our files with that of ptxas's: sections, segments, symbols, attributes.
    VendorFormat(format::Options),
    /// Print the table of kernels and targets for docs/status.md.
    Status,
    /// Measure our code, compile time and memory beside ptxas's.
    Score(score::Options),
    /// Measure how compile time grows with programs that are large in one way, ours beside ptxas's.
    Scaling(scaling::Options),
    /// Compare our code's time on one SM with ptxas's, by the simulator's model.
    Cycles(cycles::Options),
    /// Compare the loops with products of matrices in our code and ptxas's: instructions, stalls, registers, spills.
    Loops(loops::Options),
    /// Compare how often our code and ptxas's execute each kind of instruction.
    Mnemonics(mnemonics::Options),
    /// Write the hazard checker's table of least distances from ptxas's code.
    MineLatencies(hazards::Options),
    /// Print the distances between pairs of opcodes in the reference compiler's code.
    Distances(hazards::Options),
    /// Check ptxas's code for hazards: there are none.
    CheckHazards(hazards::Options),
    /// Spoil control fields of ptxas's code and count what the hazard checker finds.
    Sabotage(hazards::Options),
    /// Check that code keeps the order of memory accesses: ours, or with --ptxas the reference compiler's.
    CheckOrder(order::Options),
    /// Exchange accesses of memory and count what the order checker finds.
    SabotageOrder(order::Options),
    /// Count where our code and ptxas's have convergence regions, by what the PTX has there.
    Regions(regions::Options),
    /// Change single bits of instructions of ptxas's code and count what verification notices.
    MutateCode(mutate::Options),
    /// Change command lines at random and compare whether ptxas and we accept them.
    MutateOptions(mutate_options::Options),
    /// Compare every option with ptxas's and write docs/options.md.
    Options(options::Options),
    /// List the instructions of a folder's code that the simulator refuses, most frequent first.
    SimCoverage(coverage::Options),
    /// Execute PTX and code of every kernel in folders of PTX on made-up launches and compare.
    Verify(verify::Options),
    /// Write launches that the PTX interpreter has a result of, with our code, for `tools/gpu/cases.py`.
    GpuCases(gpu::Options),
    /// Compare what registers hold where the maps of -g say with the PTX interpreter, for folders of PTX.
    Places(places::Options),
    /// Compare the instruction table with nvdisasm on random variations of words.
    FuzzSass(fuzz::Options),
    /// Link our objects with ptxas's and compare what they do with the PTX interpreter.
    LinkCheck(link::Options),
    /// Write docs/isa from the instruction table.
    DocsIsa,
    /// Compile every form of every PTX instruction with ptxas for every target.
    FormCubins(forms::Options),
    /// Compile PTX with ptxas for every target that it compiles for.
    PtxasCubins(compile::Options),
    /// Compare the instruction table with nvdisasm on every word of cubins.
    VendorWords(words::Options),
    /// Mine the hardware contract from ptxas's cubins, or hold cubins against it.
    Contract(contract::Options),
    /// Write the tables of what asks for the classes that files state, from ptxas's (crates/sass/isa/asks.isa).
    MineClasses(classes::Options),
    /// Compare our code for random PTX programs with the PTX interpreter, in the SASS simulator.
    #[command(name = "ptxfuzz")]
    PtxFuzz(ptxfuzz::Options),
    /// Build the compiler with a profile of itself, for speed, and print its path.
    Release(release::Options),
    /// Build the driver library (docs/driver.md) and put it into a folder as libcuda.so.1.
    Driver(driver::Options),
    /// Build the C library (docs/c-library.md) and put it with its header into a folder as an installed library is.
    Library(library::Options),
    /// Build the Python wheel, install it into an empty environment and test it there (docs/consumers/python.md).
    Wheel(wheel::Options),
    /// Run the hand-written PTX tests of a checkout of ZLUDA, with ptxas's code and ours.
    Zluda(zluda::Options),
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Task::Oracles => install_oracles().map(|bin| println!("{}", bin.display())),
        Task::Test => test(),
        Task::VendorCheck => install_oracles().and_then(|bin| vendor::check(&root(), &bin)),
        Task::VendorFormat(o) => install_oracles().and_then(|bin| format::run(&root(), &bin, &o)),
        Task::FuzzSass(options) => {
            install_oracles().and_then(|bin| fuzz::run(&options, &bin, &root().join("target/fuzz-sass")))
        }
        Task::PtxFuzz(o) if o.ptxas || o.only_ptxas => {
            install_oracles().and_then(|bin| ptxfuzz::main(&o, Some(&bin.join("ptxas"))))
        }
        Task::PtxFuzz(o) => ptxfuzz::main(&o, None),
        Task::LinkCheck(o) => match install_oracles() {
            Ok(bin) => link::check(&root(), &bin, &o),
            Err(e) if std::env::var_os("CI").is_some_and(|v| v == "true") => Err(e),
            Err(e) => {
                eprintln!("oracle tools not installed: skipped link-check ({e})");
                Ok(())
            }
        },
        Task::Zluda(o) => install_oracles().and_then(|bin| zluda::run(&bin, &o)),
        Task::MutateOptions(o) => install_oracles().and_then(|bin| mutate_options::run(&root(), &bin, &o)),
        Task::Options(o) => install_oracles().and_then(|bin| options::run(&root(), &bin, &o)),
        Task::Contract(o) => contract::run(&root(), &o),
        Task::MineClasses(o) => install_oracles().and_then(|bin| classes::run(&root(), &bin, &o)),
        Task::Release(o) => release::run(&root(), &o).map(|program| println!("{}", program.display())),
        Task::Driver(o) => driver::run(&root(), &o).map(|out| println!("{}", out.display())),
        Task::Library(o) => library::run(&root(), &o).map(|out| println!("{}", out.display())),
        Task::Wheel(o) => wheel::run(&root(), &o).map(|wheel| println!("{}", wheel.display())),
        Task::DocsIsa => docs::write(&root()),
        Task::FormCubins(o) => install_oracles().and_then(|bin| forms::run(&o, &root(), &bin)),
        Task::PtxasCubins(o) => install_oracles().and_then(|bin| compile::run(&o, &bin)),
        Task::VendorWords(options) => {
            install_oracles().and_then(|bin| words::run(&options, &bin, &root().join("target/vendor-words")))
        }
        Task::MineLatencies(o) => install_oracles().and_then(|bin| hazards::mine(&root(), &bin, &o)),
        Task::Distances(o) => install_oracles().and_then(|bin| hazards::print_distances(&root(), &bin, &o)),
        Task::CheckHazards(o) => install_oracles().and_then(|bin| hazards::check(&root(), &bin, &o)),
        Task::CheckOrder(o) => install_oracles().and_then(|bin| order::check(&root(), &bin, &o)),
        Task::Regions(o) => install_oracles().and_then(|bin| regions::run(&root(), &bin, &o)),
        Task::SabotageOrder(o) => install_oracles().and_then(|bin| order::sabotage(&root(), &bin, &o)),
        Task::Sabotage(o) => install_oracles().and_then(|bin| hazards::sabotage(&root(), &bin, &o)),
        Task::MutateCode(o) => install_oracles().and_then(|bin| mutate::run(&root(), &bin, &o)),
        Task::SimCoverage(o) => install_oracles().and_then(|bin| coverage::run(&root(), &bin, &o)),
        Task::Verify(o) => install_oracles().and_then(|bin| verify::run(&root(), &bin, &o)),
        Task::GpuCases(o) => gpu::run(&root(), &o),
        Task::Places(o) => places::run(&o),
        Task::Cycles(o) => install_oracles().and_then(|bin| cycles::run(&root(), &bin, &o)),
        Task::Loops(o) => install_oracles().and_then(|bin| loops::run(&root(), &bin, &o)),
        Task::Mnemonics(o) => install_oracles().and_then(|bin| mnemonics::run(&root(), &bin, &o)),
        Task::Scaling(o) => install_oracles().and_then(|bin| scaling::run(&root(), &bin, &o)),
        Task::Score(o) => install_oracles().and_then(|bin| score::run(&root(), &bin, &o)),
        Task::Status => install_oracles().and_then(|bin| status::print(&root(), &bin)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace").to_path_buf()
}

/// PyPI packages of the reference tools, pinned (docs/oracles.md).
const PACKAGES: &[&str] = &[
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cuda-nvdisasm==13.2.78",
    "nvidia-cuda-cuobjdump==13.2.78",
    "nvidia-nvptxcompiler==13.0.88",
];

/// The folder of the programs: `OXPTXAS_ORACLES`, else target/oracles, where they are installed if need be.
fn install_oracles() -> Result<PathBuf, String> {
    if let Some(dir) = std::env::var_os("OXPTXAS_ORACLES") {
        return Ok(dir.into());
    }
    let dir = root().join("target/oracles");
    let bin = dir.join("nvidia/cu13/bin");
    let stamp = dir.join(".complete");
    let wanted = PACKAGES.join("\n");
    if std::fs::read_to_string(&stamp).is_ok_and(|s| s == wanted) {
        return Ok(bin);
    }
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-compile"]);
    pip.args(["--upgrade", "--target"]).arg(&dir).args(PACKAGES);
    run(&mut pip)?;
    let mut chmod = Command::new("chmod");
    chmod.arg("-R").arg("u+x").arg(&bin).arg(dir.join("nvidia/cu13/nvvm/bin"));
    run(&mut chmod)?;
    for (tool, version) in [("ptxas", "V13.0.88"), ("nvdisasm", "V13.2.78")] {
        let out =
            Command::new(bin.join(tool)).arg("--version").output().map_err(|e| format!("{tool}: {e}"))?;
        if !String::from_utf8_lossy(&out.stdout).contains(version) {
            return Err(format!("{tool} is not {version}"));
        }
    }
    std::fs::write(&stamp, wanted).map_err(|e| e.to_string())?;
    Ok(bin)
}

fn test() -> Result<(), String> {
    let bin = install_oracles()?;
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--workspace"]).current_dir(root()).env("OXPTXAS_ORACLES", bin);
    run(&mut cargo)
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

/// The kernels' PTX files, by name.
fn kernels(root: &Path) -> Result<Vec<PathBuf>, String> {
    ptx_in(&root.join("kernels"))
}

/// A folder's PTX files, by name.
fn ptx_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|x| x == "ptx"))
        .collect();
    files.sort();
    Ok(files)
}

/// All targets without suffix.
const SMS: &[u32] = &[75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121];

/// Builds and names our compiler, unless `OXPTXAS_COMPILER` names one that is there.
fn compiler(root: &Path) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("OXPTXAS_COMPILER").map(PathBuf::from) {
        // Else each file would look like one that ours refuses.
        return path.is_file().then_some(path).ok_or_else(|| "OXPTXAS_COMPILER names no file".into());
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "-q", "-p", "oxptxas"]).current_dir(root);
    run(&mut cargo)?;
    Ok(root.join("target/release/oxptxas"))
}
