//! Every kernel in `kernels/`: its launch file fits it, and the PTX interpreter gives the expected result.

use sim::launch::{Launch, LaunchFile};
use std::fs;

#[path = "../../../kernels/expected.rs"]
mod expected;

/// Every kernel file with its module and launches.
fn kernels() -> Vec<(String, String, ptx::Module, Vec<Launch>)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels");
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "ptx") {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let source = fs::read_to_string(&path).unwrap();
        let module = ptx::parse(&source).unwrap();
        let text = fs::read_to_string(path.with_extension("toml")).unwrap();
        let file = LaunchFile::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        all.push((name, source, module, file.launch));
    }
    assert_eq!(all.len(), 23);
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn launch_files_fit_their_kernels() {
    for (name, _, module, launches) in kernels() {
        for launch in &launches {
            let func = module.funcs.values().find(|f| f.entry && f.name == launch.kernel);
            let func = func.unwrap_or_else(|| panic!("{name}: no kernel '{}'", launch.kernel));
            let size = module.param_layout(func).1;
            assert_eq!(
                size as usize,
                launch.params(&launch.prepare().addresses, 0).len(),
                "{name}: {}",
                launch.kernel
            );
        }
        let launched = |f: &&ptx::Func| !launches.iter().any(|l| l.kernel == f.name);
        let missing = module.funcs.values().filter(|f| f.entry).find(launched);
        assert!(missing.is_none(), "{name}: kernel '{}' is not launched", missing.unwrap().name);
    }
}

#[test]
fn the_interpreter_gives_the_expected_results() {
    let mut errors = Vec::new();
    for (name, source, module, launches) in kernels() {
        for launch in &launches {
            match sim::ptx::run(&module, launch) {
                Ok(got) => {
                    if let Err(e) = launch.compare(&got, &expected::expected(launch)) {
                        errors.push(format!("{name}: {e}"));
                    }
                }
                Err(e) => errors.push(e.render(&name, &source)),
            }
        }
    }
    assert!(errors.is_empty(), "\n{}", errors.join("\n"));
}

/// The example of FIPS 180-2: SHA-256 of "abc".
#[test]
fn sha256_of_abc() {
    let kernels = kernels();
    let (_, _, module, launches) = kernels.iter().find(|k| k.0 == "sha256.ptx").unwrap();
    let launch = launches.iter().find(|l| l.buffers["messages"].length == 3).unwrap();
    let got = sim::ptx::run(module, launch).unwrap();
    let words = [
        0xba78_16bf_u32,
        0x8f01_cfea,
        0x4141_40de,
        0x5dae_2223,
        0xb003_61a3,
        0x9617_7a9c,
        0xb410_ff61,
        0xf200_15ad,
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    assert_eq!(got["digests"], bytes);
}
