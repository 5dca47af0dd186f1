//! All phases of a compilation, for knobs and docs.

use ori::Phase;
use std::sync::LazyLock;

/// All phases, in the order in which they first run.
pub fn phases() -> &'static [Phase] {
    static ALL: LazyLock<Vec<Phase>> = LazyLock::new(|| {
        let optimizer = opt::phases();
        [lower::PHASE].into_iter().chain(optimizer).chain(backend::phases::ALL.iter().copied()).collect()
    });
    &ALL
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// What stands in the column that says when a phase does not run.
    fn left_out(phase: Phase) -> String {
        let levels: BTreeSet<u8> =
            opt::PASSES.iter().filter(|p| p.phase == phase).map(|p| p.min_level).collect();
        let asked =
            if levels.len() > 1 && levels.contains(&0) { "; once on request at any level" } else { "" };
        match phase.level() {
            Some(level) => format!("below `-O{level}`{asked}"),
            None if phase == lower::PHASE => String::new(),
            None => "never".into(),
        }
    }

    #[test]
    fn names_are_their_own() {
        let names: BTreeSet<&str> = phases().iter().map(|p| p.name()).collect();
        assert_eq!(names.len(), phases().len());
    }

    /// docs/phases.md has a row for each; `UPDATE_EXPECT=1` writes them.
    #[test]
    fn described() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/phases.md");
        let text = std::fs::read_to_string(path).expect("docs/phases.md");
        let start = text.find("| `").expect("a row");
        let end = start + text[start..].find("\n\n").expect("the table's end") + 1;
        let row = |p: &Phase| {
            let left_out = left_out(*p);
            format!("| `{}` | `{}` | {} | {left_out} |\n", p.name(), p.of_ptxas(), p.what())
        };
        let rows: String = phases().iter().map(row).collect();
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(path, format!("{}{rows}{}", &text[..start], &text[end..])).expect("writable");
        } else {
            assert_eq!(&text[start..end], rows, "UPDATE_EXPECT=1 cargo test -p oxptxas --lib phases");
        }
    }
}
