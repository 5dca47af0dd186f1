//! The dynamic hazard check: the path that a warp really takes, indirect branches, calls and returns included, which
//! the static check does not follow. It finds what this run shows, and only that.

use super::engine::{Engine, Found, State, violation};
use super::{Class, Code, Minima, Violation};

/// Follows one warp. Lanes that run apart have states of their own.
pub struct Walker<'a> {
    code: &'a Code,
    minima: &'a Minima,
    found: Found,
    /// What is under way for these lanes.
    states: Vec<(u32, State)>,
}

impl<'a> Walker<'a> {
    /// A warp at the start of a kernel.
    pub fn new(code: &'a Code, minima: &'a Minima) -> Walker<'a> {
        Walker { code, minima, found: Found::new(), states: vec![(u32::MAX, State::default())] }
    }

    /// The lanes of `mask` execute the instruction at this index.
    pub fn step(&mut self, at: usize, mask: u32) {
        if at >= self.code.insts.len() {
            return;
        }
        // Lanes that have left go on with what was under way; lanes that have met, with what is under way for any.
        let mut mine: Option<State> = None;
        for (lanes, state) in &mut self.states {
            if *lanes & mask != 0 {
                *lanes &= !mask;
                match &mut mine {
                    Some(m) => drop(m.merge(state)),
                    None if *lanes == 0 => mine = Some(std::mem::take(state)),
                    None => mine = Some(state.clone()),
                }
            }
        }
        self.states.retain(|(lanes, _)| *lanes != 0);
        let mut state = mine.unwrap_or_default();
        let (code, minima) = (self.code, self.minima);
        let mut least = |d: &super::Distance<'_>| minima.least(code.target, Class::of(d));
        let found = std::mem::take(&mut self.found);
        let mut engine = Engine { code, least: &mut least, found, report: true };
        engine.step(&mut state, at);
        self.found = engine.found;
        self.states.push((mask, state));
    }

    /// What was found, in address order.
    pub fn violations(&self) -> Vec<Violation> {
        self.found.iter().map(violation).collect()
    }
}
