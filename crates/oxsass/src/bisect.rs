//! Finds the phase that breaks a compilation: with a budget of N phases that can be left out, the first N run; the
//! least N with wrong code names the phase.

use ori::Phase;
use oxptxas::knobs::Knobs;
use oxptxas::timeline::Stage;
use oxptxas::{Failure, Output, Settings, compile};

/// What a search found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Culprit {
    /// The code is right with all phases.
    None,
    /// It is wrong without any that can be left out.
    Always,
    /// The first phase that makes it wrong, its function, and its number among all that can be left out, from 1.
    Phase(Phase, String, u32),
}

fn with_budget(source: &str, file: &str, settings: &Settings, budget: u32) -> Result<Output, Failure> {
    let knobs = Knobs { phases: Some(budget), timed: true, ..settings.knobs.clone() };
    compile(source, file, &Settings { knobs, ..settings.clone() })
}

/// Functions and phases that ran, sorted.
fn ran(output: &Output) -> Vec<(String, Phase)> {
    let events = output.timeline.events.iter();
    let mut list: Vec<(String, Phase)> = events
        .filter_map(|e| match e.stage {
            Stage::Phase(p) => Some((e.unit.clone(), p)),
            _ => None,
        })
        .collect();
    list.sort();
    list
}

/// Searches for the first phase after which `wrong` says so of what was compiled.
///
/// # Errors
/// The module does not compile.
pub fn search(
    source: &str,
    file: &str,
    settings: &Settings,
    mut wrong: impl FnMut(&Output) -> bool,
) -> Result<Culprit, Failure> {
    let all = with_budget(source, file, settings, u32::MAX)?;
    if !wrong(&all) {
        return Ok(Culprit::None);
    }
    let mut before = with_budget(source, file, settings, 0)?;
    if wrong(&before) {
        return Ok(Culprit::Always);
    }
    let (mut good, mut bad, mut after) = (0, (ran(&all).len() - ran(&before).len()) as u32, all);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        let output = with_budget(source, file, settings, middle)?;
        if wrong(&output) {
            (bad, after) = (middle, output);
        } else {
            (good, before) = (middle, output);
        }
    }
    let mut without = ran(&before).into_iter().peekable();
    let more = ran(&after).into_iter().find(|one| without.next_if_eq(one).is_none());
    Ok(more.map_or(Culprit::None, |(unit, phase)| Culprit::Phase(phase, unit, bad)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_phase() {
        let source = include_str!("../../../kernels/sha256.ptx");
        let settings = Settings::new(sass::Target::new(90).unwrap());
        let code = |output: &Output| output.kernels[0].instructions;
        let size = |n| code(&with_budget(source, "sha256.ptx", &settings, n).unwrap());
        let (first, last) = (size(0), size(u32::MAX));
        assert!(last < first, "{last} {first}");
        // "Wrong" is what is no longer than with all phases.
        let Culprit::Phase(phase, unit, number) =
            search(source, "sha256.ptx", &settings, |output| code(output) <= last).unwrap()
        else {
            panic!("no phase")
        };
        assert!(unit.contains("sha256"), "{unit}");
        assert!(size(number) <= last && size(number - 1) > last, "{phase:?} {number}");
        let search = |wrong: bool| search(source, "sha256.ptx", &settings, |_| wrong).unwrap();
        assert_eq!(search(false), Culprit::None);
        assert_eq!(search(true), Culprit::Always);
    }
}
