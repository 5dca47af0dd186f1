//! Vector clocks of warps: what each one knows of the others.

use rustc_hash::FxHashMap;
use std::rc::Rc;

/// How far a warp knows every warp of the grid to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// Those of its own block: warps, and what copies for them.
    own: Vec<u32>,
    /// Those of other blocks, by their numbers in the grid.
    others: Rc<FxHashMap<u32, u32>>,
}

impl Clock {
    /// That knows nothing of a block of so many.
    pub(super) fn new(count: u32) -> Clock {
        Clock { own: vec![0; count as usize], others: Rc::default() }
    }

    /// How far it knows a warp of its own block to be.
    pub(super) fn own(&self, warp: u32) -> u32 {
        self.own.get(warp as usize).copied().unwrap_or(0)
    }

    /// How far it knows a warp of another block to be.
    pub(super) fn other(&self, number: u32) -> u32 {
        self.others.get(&number).copied().unwrap_or(0)
    }

    /// Another time begins for a warp.
    pub(super) fn tick(&mut self, warp: u32) {
        if let Some(c) = self.own.get_mut(warp as usize) {
            *c += 1;
        }
    }

    /// Learns how far one of its own block is.
    pub(super) fn hear(&mut self, warp: u32, time: u32) {
        if let Some(c) = self.own.get_mut(warp as usize) {
            *c = time.max(*c);
        }
    }

    /// Learns all that another clock of the same block knows.
    pub(super) fn join(&mut self, from: &Clock) {
        self.own.iter_mut().zip(&from.own).for_each(|(a, b)| *a = (*a).max(*b));
        if !Rc::ptr_eq(&self.others, &from.others) && !from.others.is_empty() {
            let others = Rc::make_mut(&mut self.others);
            for (w, c) in from.others.iter() {
                let known = others.entry(*w).or_insert(0);
                *known = (*known).max(*c);
            }
        }
    }

    /// Puts what it knows into a table by number of warp; `first` is the number of the block's first one.
    pub(super) fn publish(&self, first: u32, to: &mut FxHashMap<u32, u32>) -> bool {
        let own = self.own.iter().enumerate().filter(|(_, c)| **c != 0).map(|(i, c)| (first + i as u32, *c));
        let mut news = false;
        for (w, c) in own.chain(self.others.iter().map(|(w, c)| (*w, *c))) {
            let known = to.entry(w).or_insert(0);
            news |= *known < c;
            *known = (*known).max(c);
        }
        news
    }

    /// Learns what is in such a table.
    pub(super) fn learn(&mut self, first: u32, from: &FxHashMap<u32, u32>) {
        let mut others = None;
        for (w, c) in from {
            let own = w.checked_sub(first).and_then(|i| self.own.get_mut(i as usize));
            match own {
                Some(o) => *o = (*o).max(*c),
                None if self.others.get(w).is_some_and(|k| k >= c) => {}
                None => {
                    others.get_or_insert_with(|| FxHashMap::clone(&self.others)).insert(*w, *c);
                }
            }
        }
        if let Some(others) = others {
            self.others = Rc::new(others);
        }
    }
}
