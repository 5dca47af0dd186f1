//! docs/tutorial.md: what it says to type is typed, and says what it says.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A piece of the document: commands, and what they say, if that is said.
struct Step {
    commands: String,
    said: Option<String>,
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```").filter(|k| !k.is_empty()) else { continue };
        let block: String = lines.by_ref().take_while(|l| *l != "```").map(|l| format!("{l}\n")).collect();
        match kind {
            "sh" => steps.push(Step { commands: block, said: None }),
            "text" => steps.last_mut().expect("commands come first").said = Some(block),
            _ => {}
        }
    }
    steps
}

/// Whether a line is what was expected, in which `…` is anything.
fn same(line: &str, expected: &str) -> bool {
    let Some((head, tail)) = expected.split_once('…') else {
        return line.trim_end() == expected.trim_end();
    };
    let Some(rest) = line.strip_prefix(head) else { return false };
    if tail.contains('…') {
        let next = tail.split('…').next().unwrap_or_default();
        return rest.find(next).is_some_and(|at| same(&rest[at..], tail));
    }
    rest.trim_end().ends_with(tail.trim_end())
}

/// Whether lines are what was expected, in which a line of `…` is any number of them.
fn all_same(lines: &[&str], expected: &[&str]) -> bool {
    match (lines, expected) {
        (_, ["…", rest @ ..]) => (0..=lines.len()).any(|n| all_same(&lines[n..], rest)),
        ([line, lines @ ..], [one, expected @ ..]) => same(line, one) && all_same(lines, expected),
        ([], []) => true,
        _ => false,
    }
}

#[test]
fn what_it_says_is_so() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let programs = PathBuf::from(env!("CARGO_BIN_EXE_oxsass"));
    let programs = programs.parent().expect("it is in a folder");
    if !programs.join("oxptxas").exists() {
        assert!(std::env::var_os("CI").is_none_or(|v| v != "true"), "oxptxas is not built");
        eprintln!("not run: `cargo build -p oxptxas` first, or `cargo test --workspace`");
        return;
    }
    let text = std::fs::read_to_string(root.join("docs/tutorial.md")).expect("it is part of the sources");
    // Nothing but what it needs of a checkout, in a folder of its own.
    let folder = tempfile::tempdir().expect("there is room");
    std::os::unix::fs::symlink(
        root.join("kernels").canonicalize().expect("it is there"),
        folder.path().join("kernels"),
    )
    .expect("the folder is new");
    let path = std::env::join_paths(
        std::iter::once(programs.to_path_buf())
            .chain(std::env::split_paths(&std::env::var_os("PATH").expect("there is one"))),
    );
    let steps = steps(&text);
    assert!(steps.len() >= 10, "{}", steps.len());
    for Step { commands, said } in steps {
        let run = Command::new("bash")
            .args(["-e", "-c", &format!("exec 2>&1\n{commands}")])
            .current_dir(folder.path())
            .env("PATH", path.as_ref().expect("no folder has a colon"))
            .output()
            .expect("there is a shell");
        let output = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success(), "{commands}{output}");
        let expected = said.unwrap_or_default();
        let (lines, expected): (Vec<&str>, Vec<&str>) =
            (output.lines().collect(), expected.lines().collect());
        assert!(all_same(&lines, &expected), "{commands}gives\n{output}\nand not\n{}", expected.join("\n"));
    }
}
