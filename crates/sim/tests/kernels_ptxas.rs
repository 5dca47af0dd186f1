//! ptxas's cubins of every kernel, for every target, at -O0 and -O3, give the expected results in the SASS
//! simulator. Needs the vendor tools (`OXPTXAS_ORACLES`).

use sim::launch::{Launch, LaunchFile};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[path = "../../../kernels/expected.rs"]
mod expected;

/// The folder of the vendor tools; `None` (said on standard error) where they are not installed.
fn oracles(test: &str) -> Option<PathBuf> {
    let folder = env::var_os("OXPTXAS_ORACLES").map(PathBuf::from);
    if folder.is_none() {
        assert!(env::var("CI").as_deref() != Ok("true"), "CI needs OXPTXAS_ORACLES");
        eprintln!("oracle tools not installed: skipped {test}");
    }
    folder
}

/// Compiles PTX with ptxas for a target.
fn ptxas(tools: &Path, ptx: &str, sm: u8, level: u8, scratch: &Path) -> Vec<u8> {
    let retarget =
        |l: &str| if l.starts_with(".target") { format!(".target sm_{sm}") } else { l.to_string() };
    let source: Vec<String> = ptx.lines().map(retarget).collect();
    let (input, output) = (scratch.join("k.ptx"), scratch.join("k.cubin"));
    fs::write(&input, source.join("\n")).unwrap();
    let run = Command::new(tools.join("ptxas"))
        .args([format!("-arch=sm_{sm}"), format!("-O{level}"), "-o".into()])
        .args([&output, &input])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    fs::read(output).unwrap()
}

#[test]
fn cubins_of_ptxas_give_the_expected_results() {
    let Some(tools) = oracles("cubins_of_ptxas_give_the_expected_results") else { return };
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels_ptxas");
    fs::create_dir_all(&scratch).unwrap();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "ptx"));
    paths.sort();
    let mut errors = Vec::new();
    for path in &paths {
        let name = path.file_stem().unwrap().to_string_lossy();
        let ptx = fs::read_to_string(path).unwrap();
        let launches =
            LaunchFile::parse(&fs::read_to_string(path.with_extension("toml")).unwrap()).unwrap().launch;
        let wanted: Vec<_> = launches.iter().map(expected::expected).collect();
        for sm in sass::target::SMS.iter().map(|s| s.sm) {
            for level in [0, 3] {
                let cubin = ptxas(&tools, &ptx, sm, level, &scratch);
                for (launch, wanted) in launches.iter().zip(&wanted) {
                    if let Err(e) = check(&cubin, launch, wanted) {
                        errors.push(format!("{name} sm_{sm} -O{level}: {e}"));
                    }
                }
            }
        }
    }
    assert!(errors.is_empty(), "{} failures\n{}", errors.len(), errors.join("\n"));
}

fn check(cubin: &[u8], launch: &Launch, wanted: &sim::launch::Buffers) -> Result<(), String> {
    let run = sim::sass::run(cubin, launch, sim::sass::Options::default()).map_err(|e| e.to_string())?;
    Ok(launch.compare(&run.buffers, wanted)?)
}
