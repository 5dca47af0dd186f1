//! Large inputs end with success or a clear error, in time that grows no faster than they do. The example `large` takes
//! them whole.

mod cases;

use cases::{CASES, complaints};

#[test]
fn large_inputs() {
    let unexpected: Vec<(&str, usize)> = CASES
        .iter()
        .map(|(name, whole, text, right)| (*name, complaints(&text((*whole).min(20_000))), *right))
        .filter(|(_, found, right)| (*found == 0) != *right)
        .map(|(name, found, _)| (name, found))
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
}
