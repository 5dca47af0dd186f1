//! Every kernel of `kernels/` lowers to valid SSA on every target.

use lower::{ModuleLayout, Options, lower_function};
use std::path::Path;

#[test]
fn kernels_lower_on_every_target() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .expect("kernels/")
        .map(|e| e.expect("entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "ptx"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let mut failures = Vec::new();
    for file in &files {
        let source = std::fs::read_to_string(file).expect("readable");
        let lines = ptx::LineIndex::new(&source);
        let name = file.file_name().expect("name").to_string_lossy().into_owned();
        let module = match ptx::parse(&source) {
            Ok(m) => m,
            Err(e) => {
                failures.push(format!("{name}: {}", e[0].message));
                continue;
            }
        };
        for info in sass::target::SMS {
            let target = sass::Target::new(info.sm).expect("known");
            let opts = Options { lines: Some(&lines), ..Options::new(target) };
            let layout = match ModuleLayout::new(&module, target) {
                Ok(l) => l,
                Err(e) => {
                    failures.push(format!("{name} {target}: {}", e[0].message));
                    continue;
                }
            };
            for (id, func) in module.funcs.iter().filter(|(_, f)| f.entry && f.body.is_some()) {
                match lower_function(&module, id, &layout, &opts) {
                    Ok(f) => {
                        if let Err(e) = ori::verify::verify(&f) {
                            failures.push(format!("{name} {} {target}: {}", func.name, e[0]));
                        }
                    }
                    Err(e) => failures.push(e[0].render("lower", &name, &source, &lines)),
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
