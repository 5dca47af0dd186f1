//! What PTX has had since 9.0 that is not built: every form that ptxas 13.5.37 was seen to take for sm_75 to sm_121 and that
//! the tables of instructions lack, so that its refusal can say what it is (docs/ptx-acceptance.md).

use ptx::{Diagnostic, Module};

/// The newest version of PTX that is known as a whole.
const WHOLE: (u8, u8) = (9, 0);

/// How messages about what is not known begin.
const UNKNOWN: [&str; 4] = [
    "Unknown modifier",
    "Illegal modifier",
    "Not a name of any known instruction",
    "Unexpected instruction types",
];

/// A version, a mnemonic or another word that a statement begins with (empty: any), and words that stand in it as well.
type Newer = ((u8, u8), &'static str, &'static [&'static str]);

const NEWER: &[Newer] = &[
    ((9, 1), "cvt", &["s2f6x2"]),
    ((9, 1), "multimem", &["cp"]),
    ((9, 1), "mma", &["scale_vec::4X", "ue8m0"]),
    ((9, 2), "cvt", &["scaled::n2::ue8m0"]),
    ((9, 2), "cvt", &["bf16x2", "e4m3x2"]),
    ((9, 2), "cvt", &["bf16x2", "e5m2x2"]),
    ((9, 2), "cvt", &["bf16x2", "e2m3x2"]),
    ((9, 2), "cvt", &["bf16x2", "e3m2x2"]),
    ((9, 2), "cvt", &["bf16x2", "e2m1x2"]),
    ((9, 2), "st", &["async", "b128"]),
    ((9, 2), "cp", &["ignore_oob"]),
    ((9, 3), "clmad", &[]),
    ((9, 3), "cp", &["bulk", "weak"]),
    ((9, 3), "cp", &["bulk", "relaxed"]),
    ((9, 3), "mbarrier", &["check_layout"]),
    ((9, 3), "mbarrier", &["layout::v0"]),
    ((9, 3), "mbarrier", &["layout::v1"]),
    ((9, 4), "atom", &["noftz", "f32"]),
    ((9, 4), "red", &["noftz", "f32"]),
    ((9, 4), "cp", &["noftz", "f32"]),
    ((9, 4), "cp", &["multicast::cluster::16b"]),
    ((9, 4), "fence", &["proxy", "alias", "acquire"]),
    ((9, 4), "fence", &["proxy", "alias", "release"]),
    ((9, 4), "ld", &["proxy::readonly"]),
    ((9, 4), "ldmatrix", &["s8", "s4"]),
    ((9, 4), "prefetch", &["valid_addr"]),
    ((9, 4), "", &["minperctamemory"]),
    ((9, 4), "", &["%perctamemoryoffset"]),
    ((9, 4), "", &["%perctamemorysize"]),
];

/// The words of the statement at a place: the mnemonic, modifiers and names, without dots.
fn words(source: &str, at: usize) -> Vec<&str> {
    let at = at.min(source.len());
    let start = source.get(..at).and_then(|s| s.rfind([';', '{', '}'])).map_or(0, |n| n + 1);
    let end = source.get(at..).and_then(|s| s.find([';', '{'])).map_or(source.len(), |n| at + n);
    let statement = source.get(start..end).unwrap_or_default();
    // Comments, a label, a guard.
    let last =
        statement.lines().filter(|l| !l.trim_start().starts_with("//")).flat_map(str::split_whitespace);
    let part_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '%' | ':');
    last.skip_while(|w| w.starts_with('@') || w.ends_with(':'))
        .flat_map(|w| w.split(move |c| !part_of_name(c)))
        .filter(|w| !w.is_empty())
        .collect()
}

/// What a statement is of, and since when.
fn known(words: &[&str]) -> Option<&'static Newer> {
    let first = words.first()?;
    let has = |w: &&str| words.contains(w);
    NEWER.iter().find(|(_, op, more)| (op.is_empty() || op == first) && more.iter().all(has))
}

/// Says with errors about what is newer than the module may know that it is.
pub(crate) fn note(module: &Module, source: &str, errors: &mut [Diagnostic]) {
    if module.version <= WHOLE {
        return;
    }
    for e in errors {
        let words = e.span.map(|s| words(source, s.start as usize)).unwrap_or_default();
        match known(&words).filter(|n| n.0 <= module.version) {
            Some(((major, minor), op, more)) => {
                let names = Some(*op).filter(|op| !op.is_empty()).into_iter().chain(more.iter().copied());
                let what: Vec<String> = names.map(|n| format!("'{n}'")).collect();
                let what = what.join(" with ");
                e.notes.push(format!("{what} is of PTX {major}.{minor}, and not built yet"));
            }
            None if UNKNOWN.iter().any(|start| e.message.starts_with(start)) => {
                let (major, minor) = WHOLE;
                e.notes.push(format!("of what PTX has had since {major}.{minor}, only a part is known"));
            }
            None => {}
        }
    }
}
