//! The places that the register maps of `-g` name, over folders of PTX of other producers.

use oxsass::places::{Compared, Debugged, Failure};
use oxsass::verify;
use rayon::prelude::*;
use sass::Target;
use sim::generate::generate;
use sim::launch::{Launch, LaunchFile};
use std::path::{Path, PathBuf};

/// What to look at.
#[derive(clap::Args)]
pub struct Options {
    /// Folders of PTX files
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// A folder with launch files of the same names, where there are any
    #[arg(long)]
    launches: Option<PathBuf>,
    /// Targets, each for the files that allow it
    #[arg(long, default_value = "75,90,120", value_delimiter = ',')]
    sm: Vec<u8>,
    /// Launches that are made up of a kernel until one says something
    #[arg(long, default_value_t = 8)]
    seeds: u64,
}

/// What came of a file.
#[derive(Default)]
struct Found {
    compared: Compared,
    kernels: usize,
    /// Kernels of which no launch says anything.
    silent: Vec<String>,
    wrong: Vec<String>,
}

/// Launches of a kernel: those of its file, of one block, or made up.
fn launches(options: &Options, path: &Path, module: &ptx::Module, kernel: &str) -> Vec<Launch> {
    let file = options.launches.as_ref().and_then(|folder| {
        let name = Path::new(path.file_name()?).with_extension("toml");
        LaunchFile::parse(&std::fs::read_to_string(folder.join(name)).ok()?).ok()
    });
    let of_file = file.and_then(|f| f.launch.into_iter().find(|l| l.kernel == kernel)).map(|mut l| {
        if !l.cooperative && l.cluster.is_none() {
            l.grid = [1; 3];
        }
        l
    });
    of_file.into_iter().chain((0..options.seeds).filter_map(|seed| generate(module, kernel, seed))).collect()
}

fn file(options: &Options, path: &Path, target: Target) -> Result<Found, String> {
    let source = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let debugged = Debugged::new(&source, target)?;
    let mut found = Found::default();
    for kernel in verify::kernels(debugged.module()) {
        found.kernels += 1;
        let mut why = "no launch".to_string();
        let mut said = false;
        for launch in launches(options, path, debugged.module(), kernel) {
            match debugged.check(&launch) {
                Ok(c) => {
                    found.compared.values += c.values;
                    found.compared.stops += c.stops;
                    said = c.values > 0;
                }
                Err(Failure::Nothing(reason)) => why = reason,
                Err(Failure::Wrong(what)) => {
                    said = true;
                    found.wrong.push(format!("{kernel}: {what}"));
                }
            }
            if said {
                break;
            }
        }
        if !said {
            found.silent.push(format!("{kernel}: {why}"));
        }
    }
    Ok(found)
}

/// Compiles every file for debuggers and runs it.
///
/// # Errors
/// If a register is not where the map says, or nothing was compared of a file.
pub fn run(options: &Options) -> Result<(), String> {
    let mut wrong = 0;
    for folder in &options.folders {
        let list = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut paths: Vec<PathBuf> = list.filter_map(|e| Some(e.ok()?.path())).collect();
        paths.retain(|p| p.extension().is_some_and(|e| e == "ptx"));
        paths.sort();
        for sm in &options.sm {
            let target = Target::new(*sm).ok_or_else(|| format!("sm_{sm} is no target"))?;
            let results: Vec<_> = paths.par_iter().map(|p| (p, file(options, p, target))).collect();
            let (mut files, mut kernels, mut silent, mut all) = (0, 0, 0, Compared::default());
            for (path, result) in results {
                let name = path.display();
                match result {
                    Err(e) => {
                        println!("{name} sm_{sm}: {e}");
                        wrong += 1;
                    }
                    Ok(f) => {
                        f.wrong.iter().for_each(|w| println!("{name} sm_{sm}: WRONG: {w}"));
                        f.silent.iter().for_each(|s| println!("{name} sm_{sm}: nothing compared: {s}"));
                        wrong += f.wrong.len();
                        files += usize::from(f.wrong.is_empty() && f.silent.len() < f.kernels);
                        kernels += f.kernels;
                        silent += f.silent.len();
                        all.values += f.compared.values;
                        all.stops += f.compared.stops;
                    }
                }
            }
            println!(
                "{} sm_{sm}: {files} of {} files right, {kernels} kernels ({silent} without a launch that says anything), {} statements, {} values",
                folder.display(),
                paths.len(),
                all.stops,
                all.values
            );
        }
    }
    if wrong == 0 { Ok(()) } else { Err(format!("{wrong} findings")) }
}
