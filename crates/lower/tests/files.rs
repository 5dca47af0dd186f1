//! File tests: each `files/NAME.ptx` lowers to the text beside it, `NAME.sm_XX.ori`, on the targets that its
//! first line names (`// targets: sm_75 sm_90`), with checks of tensor memory accesses where the second is `// tensor checks`. `UPDATE_EXPECT=1 cargo test -p oxptxas-lower --test files` writes
//! the expected files anew.

use lower::{ModuleLayout, Options, lower_function};
use std::path::Path;

fn lower(source: &str, target: sass::Target) -> String {
    let lines = ptx::LineIndex::new(source);
    let render = |e: Vec<ptx::Diagnostic>| {
        e.iter().map(|d| d.render("lower", "input", source, &lines)).collect::<Vec<_>>().join("")
    };
    let module = match ptx::parse(source) {
        Ok(m) => m,
        Err(e) => return render(e),
    };
    let layout = match ModuleLayout::new(&module, target) {
        Ok(l) => l,
        Err(e) => return render(e),
    };
    let tensor_checks = source.lines().nth(1) == Some("// tensor checks");
    let extra = ori::Extra { tensor_checks, ..ori::Extra::default() };
    let opts = Options { lines: Some(&lines), extra, ..Options::new(target) };
    let mut out = String::new();
    for (id, _) in module.funcs.iter().filter(|(_, f)| f.body.is_some()) {
        match lower_function(&module, id, &layout, &opts) {
            Ok(f) => {
                if let Err(e) = ori::verify::verify(&f) {
                    panic!("{}\n{f}", e.join("\n"));
                }
                out.push_str(&f.to_string());
            }
            Err(e) => out.push_str(&render(e)),
        }
    }
    out
}

#[test]
fn files() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let bless = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut inputs: Vec<_> = std::fs::read_dir(&dir)
        .expect("tests/files")
        .map(|e| e.expect("entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "ptx"))
        .collect();
    inputs.sort();
    let mut failures = Vec::new();
    for input in inputs {
        let source = std::fs::read_to_string(&input).expect("readable");
        let first = source.lines().next().unwrap_or("");
        let targets = first.strip_prefix("// targets:").expect("first line: // targets: sm_XX …");
        for name in targets.split_whitespace() {
            let got = lower(&source, sass::Target::parse(name).expect("target"));
            let expected = input.with_extension(format!("{name}.ori"));
            if bless {
                std::fs::write(&expected, got).expect("writable");
                continue;
            }
            let want = std::fs::read_to_string(&expected).unwrap_or_default();
            if got != want {
                let differs = got.lines().zip(want.lines()).position(|(g, w)| g != w);
                let line = differs.unwrap_or(got.lines().count().min(want.lines().count()));
                failures.push(format!(
                    "{} line {}:\n  got  {}\n  want {}",
                    expected.display(),
                    line + 1,
                    got.lines().nth(line).unwrap_or(""),
                    want.lines().nth(line).unwrap_or("")
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
