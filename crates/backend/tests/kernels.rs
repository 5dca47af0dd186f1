//! Every kernel of `kernels/` compiles on every target, twice to the same words; the checkers of register
//! allocation and hazards run on each (debug assertions).

use backend::compile;
use lower::{ModuleLayout, lower_function};
use ori::{Manager, Plan};
use std::path::Path;

#[test]
fn kernels_compile_on_every_target() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "ptx"));
    files.sort();
    assert!(!files.is_empty());
    let mut failures = Vec::new();
    for file in &files {
        let source = std::fs::read_to_string(file).unwrap();
        let lines = ptx::LineIndex::new(&source);
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let module = ptx::parse(&source).unwrap();
        for (target, level) in
            sass::target::SMS.iter().filter_map(|s| sass::Target::new(s.sm)).flat_map(|t| [(t, 0), (t, 3)])
        {
            let opts =
                lower::Options { lines: Some(&lines), opt_level: level, ..lower::Options::new(target) };
            let layout = ModuleLayout::new(&module, target).unwrap();
            for (id, _) in module.funcs.iter().filter(|(_, f)| f.entry && f.body.is_some()) {
                let mut func = lower_function(&module, id, &layout, &opts).unwrap();
                let plan = Plan::new(level);
                opt::optimize(&mut func, &mut Manager::new(&plan)).unwrap();
                let place = format!("{name} {} {target} -O{level}", func.name);
                let compiled = |func| compile(func, &mut Manager::new(&plan), false);
                match (compiled(func.clone()), compiled(func)) {
                    (Ok(a), Ok(b)) if a != b => failures.push(format!("{place}: two different results")),
                    (Ok(_), _) => {}
                    (Err(e), _) => failures.push(format!("{place}: {e}")),
                }
            }
        }
    }
    failures.sort();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
