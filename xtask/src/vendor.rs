//! Our cubins in the vendor's tools.

use std::path::Path;
use std::process::Command;

/// Compiles every kernel × target × {-O0, -O3} and runs nvdisasm, cuobjdump and nvlink on the files.
pub fn check(root: &Path, bin: &Path) -> Result<(), String> {
    let cc = crate::compiler(root)?;
    let dir = root.join("target/vendor-check");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let (mut done, mut failed) = (0, 0);
    for ptx in crate::kernels(root)? {
        for sm in crate::SMS {
            for level in [0, 3] {
                let cubin = dir.join("k.cubin");
                let linked = dir.join("linked.cubin");
                let arch = format!("-arch=sm_{sm}");
                let mut steps: Vec<Command> = Vec::new();
                let mut step = |program: &Path, args: &[&str]| {
                    let mut c = Command::new(program);
                    c.args(args);
                    steps.push(c);
                };
                let (ptx_name, file) = (ptx.to_string_lossy(), cubin.to_string_lossy());
                step(&cc, &[&arch, &format!("-O{level}"), &ptx_name, "-o", &file]);
                step(&bin.join("nvdisasm"), &["-c", &file]);
                step(&bin.join("cuobjdump"), &["-elf", &file]);
                step(&bin.join("cuobjdump"), &["-sass", &file]);
                step(&bin.join("cuobjdump"), &["-res-usage", &file]);
                step(&bin.join("nvlink"), &[&arch, &file, "-o", &linked.to_string_lossy()]);
                done += 1;
                for mut s in steps {
                    let out = s.output().map_err(|e| format!("{s:?}: {e}"))?;
                    let text = String::from_utf8_lossy(&out.stderr);
                    if !out.status.success() || !text.trim().is_empty() {
                        println!("{} sm_{sm} -O{level}: {s:?}\n{text}", ptx_name);
                        failed += 1;
                        break;
                    }
                }
            }
        }
    }
    println!("{} of {done} accepted by every tool", done - failed);
    if failed == 0 { Ok(()) } else { Err(format!("{failed} files have complaints")) }
}
