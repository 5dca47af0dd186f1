//! What the lanes of a warp know of each other.

/// For each lane, up to when it knows what another one did, in instructions of their warp.
#[derive(Default)]
pub(super) struct Lanes {
    /// All of all.
    all: u32,
    /// One of another, where that is more: by the one that knows.
    each: Option<Box<[[u32; 32]; 32]>>,
}

impl Lanes {
    /// Up to when a lane knows another one.
    pub(super) fn know(&self, lane: usize, other: usize) -> u32 {
        self.each.as_ref().map_or(0, |e| e[lane & 31][other & 31]).max(self.all)
    }

    /// All of them meet.
    pub(super) fn meet_all(&mut self, now: u32) {
        self.all = now;
        self.each = None;
    }

    /// Some of them do.
    pub(super) fn meet(&mut self, lanes: u32, now: u32) {
        let each = self.each.get_or_insert_with(|| Box::new([[0; 32]; 32]));
        let named = |l: &usize| lanes >> l & 1 != 0;
        let mut joined = [0; 32];
        for l in (0..32).filter(named) {
            joined.iter_mut().zip(each[l]).for_each(|(j, k)| *j = k.max(*j));
        }
        (0..32).filter(named).for_each(|l| joined[l] = now);
        (0..32).filter(named).for_each(|l| each[l] = joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_met_knows_whom_the_other_had_met() {
        let mut lanes = Lanes::default();
        lanes.meet(0b011, 5);
        lanes.meet(0b110, 9);
        let known = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)].map(|(l, o)| lanes.know(l, o));
        assert_eq!(known, [5, 0, 5, 9, 5, 9]);
        lanes.meet_all(10);
        assert_eq!((lanes.know(0, 2), lanes.know(31, 30)), (10, 10));
    }
}
