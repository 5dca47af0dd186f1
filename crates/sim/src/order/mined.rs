//! Which statements code has in the order of the PTX, and which in another: what a reference compiler never exchanges ours must not
//! exchange either.

use super::Done;
use super::families::Side;
use super::ptx::Program;
use std::collections::BTreeMap;

/// For two sides, the first of which comes first in the PTX: how often the code has them so within a block, how often the
/// other way around, and lines and places of one of these.
pub type Pairs = BTreeMap<(Side, Side), (u64, u64, Option<((u32, u32), (u64, u64))>)>;

pub(super) fn count(program: &Program, done: &[Done], pairs: &mut Pairs) {
    const REACH: usize = 64;
    for (k, first) in done.iter().enumerate() {
        for second in done[k + 1..].iter().take(REACH).take_while(|d| d.block == first.block) {
            let (x, y) = (&program.accesses[first.access], &program.accesses[second.access]);
            if x.family.is_none() && y.family.is_none() || x.at == y.at {
                continue;
            }
            let kept = match (program.precedes(x, y), program.precedes(y, x)) {
                (true, false) => true,
                (false, true) => false,
                _ => continue,
            };
            let key = if kept { (Side::of(x), Side::of(y)) } else { (Side::of(y), Side::of(x)) };
            let entry = pairs.entry(key).or_default();
            if kept {
                entry.0 += 1;
            } else {
                entry.1 += 1;
                entry.2.get_or_insert(((y.line, x.line), (16 * second.at as u64, 16 * first.at as u64)));
            }
        }
    }
}
