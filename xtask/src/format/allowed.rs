//! The differences from ptxas's files that are meant, each with its reason.

/// A kind of difference: whose line (`-` ptxas's, `+` ours, `*` either), how the line begins, what else is in it.
struct Allowed {
    whose: char,
    begins: &'static str,
    has: &'static str,
    why: &'static str,
}

const fn a(whose: char, begins: &'static str, has: &'static str, why: &'static str) -> Allowed {
    Allowed { whose, begins, has, why }
}

const CAPSULE: &str = "we write no capsules, so we claim none: the form that nvlink gives such files";
const LITERALS: &str = "bank 2: ptxas keeps literals and jump tables there, we use immediates and compares";
const SLOTS: &str = "bank 4: which addresses code needs is the code generator's";
const HELPERS: &str = "which parts of instructions are functions, and which functions are inlined";
const CODE: &str = "follows the code: whether it has such instructions";

const ALLOWED: &[Allowed] = &[
    a('*', "header: low flags", "", CAPSULE),
    a('-', ".nv.compat: 11", "", CAPSULE),
    a('*', "section .nv.constant2.", "", LITERALS),
    a('*', "section .rela.nv.constant2.", "", LITERALS),
    a('*', "symbol of section .nv.constant2.", "", LITERALS),
    a('*', "section .nv.constant4", "", SLOTS),
    a('*', "section .rel.nv.constant4", "", SLOTS),
    a('*', "section .rela.nv.constant4", "", SLOTS),
    a('*', "symbol of section .nv.constant4", "", SLOTS),
    a('*', "symbol $", "type 2", HELPERS),
    a('*', ".nv.info: FRAME_SIZE", "$", HELPERS),
    a('*', "section .rela.text.", "size 0x0", HELPERS),
    a('*', ".nv.info.", ": CRS_STACK_SIZE", CODE),
    a('*', ".nv.info.", ": NUM_BARRIERS", CODE),
    a('*', ".nv.info.", ": COOP_GROUP", CODE),
    a('*', ".nv.info.", ": INT_WARP_WIDE", CODE),
    a('*', ".nv.info.", ": ANNOTATIONS", CODE),
    a('*', ".nv.info.", ": UNUSED_LOAD", CODE),
    a('*', ".nv.info.", ": EXTERNS", CODE),
    a('*', ".nv.info.", ": SYSCALL_OFFSETS", CODE),
    a('-', ".nv.info.", ": INDIRECT_BRANCH_TARGETS", CODE),
];

/// Why a difference is meant, if it is.
pub fn reason(whose: char, line: &str) -> Option<&'static str> {
    let found = ALLOWED
        .iter()
        .find(|a| (a.whose == '*' || a.whose == whose) && line.starts_with(a.begins) && line.contains(a.has));
    found.map(|a| a.why)
}
