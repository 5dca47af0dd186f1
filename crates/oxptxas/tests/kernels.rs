//! Every kernel × target × {-O0, -O3}, end to end: our cubin, run by the SASS simulator, gives the result that
//! `kernels/expected.rs` computes independently, and the hazard checker finds nothing in it; the bytes are the same every time. With the vendor's tools at
//! hand, ptxas's cubin must give the same in the same simulator: that is what shows that the simulator is right.

use rayon::prelude::*;
use sass::Target;
use sim::hazard;
use sim::launch::{Launch, LaunchFile};
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../../../kernels/expected.rs"]
mod expected;

const SMS: &[u8] = &[75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121];

struct Kernel {
    path: PathBuf,
    source: String,
    launches: Vec<Launch>,
}

fn kernels() -> Vec<Kernel> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "ptx"))
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let source = std::fs::read_to_string(&path).unwrap();
            let text = std::fs::read_to_string(path.with_extension("toml")).unwrap();
            let launches = LaunchFile::parse(&text).unwrap().launch;
            Kernel { path, source, launches }
        })
        .collect()
}

/// Every combination.
fn cases(kernels: &[Kernel]) -> Vec<(&Kernel, u8, u8)> {
    let levels = |k, sm| [0, 3].map(|level| (k, sm, level));
    kernels.iter().flat_map(|k| SMS.iter().flat_map(move |sm| levels(k, *sm))).collect()
}

/// Runs a cubin's launches and says what is wrong.
fn check(cubin: &[u8], kernel: &Kernel) -> Result<(), String> {
    for launch in &kernel.launches {
        let run = sim::sass::run(cubin, launch, sim::sass::Options::default()).map_err(|e| e.to_string())?;
        launch.compare(&run.buffers, &expected::expected(launch))?;
    }
    Ok(())
}

/// The hazard checker finds nothing.
fn check_hazards(cubin: &[u8]) -> Result<(), String> {
    for (name, violations, _) in hazard::check_cubin(cubin, hazard::Minima::built_in())? {
        if let Some(first) = violations.first() {
            return Err(format!("{name}: {} hazards: {first}", violations.len()));
        }
    }
    Ok(())
}

/// Runs `test` on every case in parallel and fails with all complaints.
fn for_all(test: impl Fn(&Kernel, u8, u8) -> Result<(), String> + Sync) {
    let kernels = kernels();
    assert_eq!(kernels.len(), 23);
    let errors: Vec<String> = cases(&kernels)
        .par_iter()
        .filter_map(|(k, sm, level)| {
            let name = k.path.file_stem().unwrap().to_string_lossy();
            test(k, *sm, *level).err().map(|e| format!("{name} sm_{sm} -O{level}: {e}"))
        })
        .collect();
    assert!(errors.is_empty(), "{} cases fail:\n{}", errors.len(), errors.join("\n"));
}

#[test]
fn our_code_gives_the_expected_results() {
    for_all(|k, sm, level| {
        let settings =
            oxptxas::Settings { opt_level: level, ..oxptxas::Settings::new(Target::new(sm).unwrap()) };
        let compile = || oxptxas::compile(&k.source, "k.ptx", &settings).map_err(|f| f.render("oxptxas"));
        let first = compile()?;
        if first.cubin != compile()?.cubin {
            return Err("two compilations differ".into());
        }
        check_hazards(&first.cubin)?;
        check(&first.cubin, k)
    });
}

#[test]
fn the_references_code_gives_the_expected_results() {
    let Some(tools) = std::env::var_os("OXPTXAS_ORACLES") else {
        assert!(
            std::env::var_os("CI").is_none(),
            "the reference tools are missing: `cargo xtask test` installs them"
        );
        eprintln!(
            "reference tools not installed: the_references_code_gives_the_expected_results was not run"
        );
        return;
    };
    let ptxas = Path::new(&tools).join("ptxas");
    let dir = tempfile::tempdir().unwrap();
    for_all(|k, sm, level| {
        let out = dir.path().join(format!("{}.{sm}.{level}", k.path.file_stem().unwrap().to_string_lossy()));
        let status = Command::new(&ptxas)
            .args([format!("-arch=sm_{sm}"), format!("-O{level}")])
            .arg(&k.path)
            .arg("-o")
            .arg(&out)
            .status()
            .map_err(|e| e.to_string())?;
        if !status.success() {
            return Err("ptxas refuses it".into());
        }
        let cubin = std::fs::read(&out).map_err(|e| e.to_string())?;
        check_hazards(&cubin)?;
        check(&cubin, k)
    });
}
