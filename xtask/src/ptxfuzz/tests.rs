//! A short run.

use super::{generate, run};

#[test]
fn programs_are_defined() {
    for seed in
        (0..40).chain(2_000_000..2_000_040).chain(10_000_000..10_000_040).chain(20_000_000..20_000_060)
    {
        let sm = super::WRITTEN_FOR[seed as usize % super::WRITTEN_FOR.len()];
        if let Err((_, e)) = run::define(&generate::generate(seed, sm, false), sm, true) {
            panic!("seed {seed}, sm_{sm}: {e}");
        }
    }
}

/// Lanes part and end beside what they do together; the checkers look at each phase.
#[test]
fn lanes_that_part_and_end() {
    for seed in 20_000_000..20_000_024 {
        for sm in [75, 80, 90, 120] {
            let p = generate::generate(seed, super::written_for(seed, sm), false);
            let want = run::define(&p, sm, false).unwrap_or_else(|e| panic!("seed {seed}: {}", e.1));
            let setup = run::Setup { sm, level: 3, vendor: None, verify_each: true };
            if let Some(f) = run::check(&p, &want, &setup) {
                panic!("seed {seed}, sm_{sm}: {}", f.message);
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_program() {
    assert_eq!(generate::generate(7, 90, false).text, generate::generate(7, 90, false).text);
}

/// Programs on which this compiler was once wrong: two moves into one register, a barrier restored too early, more
/// predicates than there are in the arguments of a block, branches that met at a loop's head while lanes could leave
/// the loop from between them.
#[test]
fn programs_that_failed_once() {
    for (seed, sm) in [(310_238, 75), (400_106, 86), (800_111, 120), (938_005, 90)] {
        let written = super::written_for(seed, sm);
        let p = generate::generate(seed, written, false);
        let want = run::define(&p, sm, false).unwrap_or_else(|e| panic!("seed {seed}: {}", e.1));
        for level in [0, 3] {
            let setup = run::Setup { sm, level, vendor: None, verify_each: false };
            if let Some(f) = run::check(&p, &want, &setup) {
                panic!("seed {seed}, sm_{sm} -O{level}: {}", f.message);
            }
        }
    }
}
