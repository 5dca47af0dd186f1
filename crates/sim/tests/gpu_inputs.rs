//! `tools/gpu/run.py` generates the same inputs as the launch module, and reads and writes the same `.npy`.

use sim::launch::{LaunchFile, npy, output_name};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

#[test]
fn the_script_generates_the_same_inputs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = Command::new("python3").args(["-c", "import tomllib"]).output();
    if !python.is_ok_and(|o| o.status.success()) {
        assert!(env::var_os("CI").is_none_or(|v| v != "true"), "CI needs Python 3.11");
        eprintln!("Python 3.11 not installed: skipped the_script_generates_the_same_inputs");
        return;
    }
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inputs");
    let mut compared = 0;
    // Between them, these use every type and every generator.
    for name in ["collatz", "divsqrt", "double", "dot", "eight", "histogram", "sha256"] {
        let path = root.join("kernels").join(name).with_extension("toml");
        _ = fs::remove_dir_all(&out);
        let script = root.join("tools/gpu/run.py");
        let status = Command::new("python3").arg(script).arg("--inputs").arg(&out).arg(&path).status();
        assert!(status.unwrap().success());
        let file = LaunchFile::parse(&fs::read_to_string(&path).unwrap()).unwrap();
        for (index, launch) in file.launch.iter().enumerate() {
            for (name, b) in &launch.buffers {
                let theirs = fs::read(out.join(output_name(index, launch, name))).unwrap();
                assert!(npy(b.ty, &b.generate()) == theirs, "{}: {index} {name}", path.display());
                compared += 1;
            }
        }
    }
    assert!(compared > 40, "{compared} buffers");
}
