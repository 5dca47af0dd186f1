//! The page of the statements on which ptxas and the checker disagree, each under why.

use super::Case;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Why a statement is judged differently. The first line whose statement starts so and whose kinds include the
/// statement's says it; an empty list of kinds is every kind.
struct Reason {
    /// Whether ptxas takes it (and we don't).
    taken: bool,
    op: &'static [&'static str],
    kinds: &'static [&'static str],
    text: &'static str,
}

const fn taken(op: &'static [&'static str], kinds: &'static [&'static str], text: &'static str) -> Reason {
    Reason { taken: true, op, kinds, text }
}

const fn refused(op: &'static [&'static str], kinds: &'static [&'static str], text: &'static str) -> Reason {
    Reason { taken: false, op, kinds, text }
}

const REASONS: &[Reason] = &[
    taken(
        &["cp.async", "cp.reduce"],
        &[],
        "ptxas does not look at what stands for an address of a bulk copy: predicates, vectors and constants pass.",
    ),
    taken(
        &["red"],
        &["another operand"],
        "ptxas takes `_` for the address of `red` without brackets. It has no meaning.",
    ),
    taken(
        &["sured", "sust", "suld", "st.async", "red.async"],
        &[],
        "ptxas does not compare the value and the number of its elements with the instruction's type, nor the \
         number of operands.",
    ),
    taken(
        &["wgmma", "mma", "tcgen05", "wmma"],
        &["another operand", "an operand more", "another word"],
        "ptxas does not check this operand of a matrix instruction.",
    ),
    taken(
        &["wgmma", "mma", "tcgen05", "wmma", "multimem", "tex", "ld", "prefetch"],
        &["a word more", "another word", "words swapped"],
        "ptxas ignores a word of another instruction or form.",
    ),
    taken(&["atom"], &["an operand more"], "ptxas ignores an operand too many of `atom`."),
    taken(&["set", "setp"], &[], "ptxas does not check the second source of comparisons of `.bf16x2`."),
    taken(
        &["mad"],
        &[],
        "`mad.f32` without rounding ends with sm_13; ptxas takes it with `.sat` on later targets.",
    ),
    taken(&["testp"], &[], "`testp` without a test passes in ptxas; what it tests is not defined."),
    taken(
        &["multimem", "add", "cvt", "tex", "mbarrier", "mov"],
        &[],
        "A single form in which ptxas does not check the kind of an operand, or a type, against the manual.",
    ),
    refused(
        &["multimem", "getctarank", "mapa", "cvt"],
        &["another operand", "another type"],
        "ptxas refuses this kind of register or address here alone; other instructions with the same operand take it.",
    ),
    refused(
        &["set", "setp"],
        &[],
        "Predicate operands of comparisons of `.bf16` may not be constants in ptxas; those of other types may.",
    ),
    refused(
        &["st.async"],
        &[],
        "`st.async.mmio` takes no registers that are wider than the type in ptxas; `st.async` does.",
    ),
    refused(
        &["mma", "wgmma", "wmma"],
        &["words swapped"],
        "ptxas wants the operation of a binary product before `.popc`; the words of other instructions come in any order.",
    ),
    refused(
        &["bar", "createpolicy"],
        &["words swapped"],
        "ptxas wants these words in this order; those of other instructions come in any.",
    ),
    refused(
        &["tex"],
        &[],
        "ptxas says that an offset needs sm_30 on every target, for kinds of textures without offsets.",
    ),
    refused(
        &["txq"],
        &[],
        "ptxas wants a sampler for attributes of samplers; in unified mode a texture has them.",
    ),
    refused(
        &[
            "cp.async",
            "createpolicy",
            "tcgen05",
            "tensormap",
            "atom",
            "pmevent",
            "st.bulk",
            "mov",
            "vset",
            "wgmma",
            "barrier",
        ],
        &[],
        "A single form that ptxas refuses for the value or the kind of an operand, or for a word.",
    ),
];

/// What we say of accesses by addresses that are too small, and why ptxas doesn't.
const SMALL: (&str, &str) = (
    "Program uses 32-bit address",
    "ptxas refuses accesses by 32-bit addresses when it makes code, not when it only checks (`-arch=compute_…`), which is how forms are asked.",
);

fn reason(case: &Case, is_taken: bool, ours: Option<&str>) -> Option<&'static str> {
    if is_taken && ours.is_some_and(|said| said.starts_with(SMALL.0)) {
        return Some(SMALL.1);
    }
    let found = REASONS.iter().find(|r| {
        r.taken == is_taken
            && r.op.iter().any(|op| case.statement.starts_with(op))
            && (r.kinds.is_empty() || r.kinds.contains(&case.kind))
    });
    found.map(|r| r.text)
}

/// The page; each case with what ptxas and what we said, `None` for "fine".
pub fn page(cases: &[(&Case, Option<&str>, Option<&str>)], all: usize) -> String {
    let mut groups: BTreeMap<(bool, &str), Vec<String>> = BTreeMap::new();
    for (case, theirs, ours) in cases {
        let why = reason(case, theirs.is_none(), *ours).unwrap_or("Not explained yet.");
        let said = theirs.or(*ours).unwrap_or_default();
        let line = format!("- `{}` ({}; {}): {said}", case.statement, case.header.arch(), case.kind);
        groups.entry((theirs.is_some(), why)).or_default().push(line);
    }
    let mut out = String::from(
        "# Statements that ptxas and oxptxas judge differently\n\nWritten by `OXPTXAS_ORACLES=… PAGE=docs/ptx-differences.md \
         cargo run --release -p oxptxas-ptx --example forms`.\nBehind each statement: the target, what was changed in a legal \
         form, and the message of the one that refuses it.\n",
    );
    let _ = writeln!(out, "\n{} of {all} statements.", cases.len());
    for ((refused, why), lines) in groups {
        let who = if refused { "Refused by ptxas" } else { "Taken by ptxas" };
        let _ = write!(out, "\n## {who}: {} statements\n\n{why}\n\n", lines.len());
        for line in lines {
            let _ = writeln!(out, "{line}");
        }
    }
    out
}
