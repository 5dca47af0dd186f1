//! A short run.

use super::{generate, run};

#[test]
fn programs_are_defined() {
    for seed in 0..60 {
        let sm = super::WRITTEN_FOR[seed as usize % super::WRITTEN_FOR.len()];
        if let Err((_, e)) = run::define(&generate::generate(seed, sm, false), sm, true) {
            panic!("seed {seed}, sm_{sm}: {e}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_program() {
    assert_eq!(generate::generate(7, 90, false).text, generate::generate(7, 90, false).text);
}
