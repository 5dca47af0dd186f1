//! The files of `files/`, and that every pass has one that is executed.

use filetests::{Case, Stage};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("files");
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(dir).expect("files/").map(|e| e.expect("an entry").path()).collect();
    all.sort();
    all
}

fn read(path: &Path) -> Case {
    let text = std::fs::read_to_string(path).expect("a file");
    Case::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn what_becomes_of_functions() {
    let bless = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = Vec::new();
    for path in files() {
        let case = read(&path);
        match case.result() {
            Err(e) => wrong.push(format!("{}: {e}", path.display())),
            Ok(got) if bless => std::fs::write(&path, case.with(&got)).expect("writable"),
            Ok(got) if got != case.after => wrong.push(format!("{} becomes\n{got}", path.display())),
            Ok(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_pass_has_a_test_that_is_executed() {
    let executed: BTreeSet<String> = files()
        .iter()
        .map(|f| read(f))
        .filter(|c| c.run.is_some())
        .filter_map(|c| match c.stage {
            Stage::Pass(name) => Some(name),
            _ => None,
        })
        .collect();
    let missing: BTreeSet<&str> =
        opt::PASSES.iter().map(|p| p.phase.name()).filter(|name| !executed.contains(*name)).collect();
    assert!(missing.is_empty(), "no file in crates/filetests/files with `// run` for {missing:?}");
}
