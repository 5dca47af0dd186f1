//! How many registers are needed at once.

use super::{Room, room};
use crate::liveness::{Ranges, Spread, destroyed};
use ori::cfg::Cfg;
use ori::{Block, Function};
use sass::RegFile;
use smallvec::SmallVec;

/// No fewer registers of `file` than `Spiller::choose` would find to be needed anywhere, found without its lists; with
/// those that `calls` take away, or without. What blocks have less `room` for counts as needed there.
pub(super) fn most_needed(
    func: &Function,
    cfg: &Cfg,
    file: RegFile,
    room: Room<'_>,
    ranges: &Ranges,
    calls: bool,
) -> u32 {
    let Ranges { lanes, numbering: n, intervals, .. } = ranges;
    let spread = matches!(file, RegFile::UR | RegFile::UP).then(|| Spread::new(func, cfg, n, room.whole));
    // How many more registers are needed at each point than at the one before.
    let mut change = vec![0i32; 2 * n.at.len() + 3];
    for (v, d) in func.values.iter().filter(|(_, d)| d.file == file) {
        for i in 0..d.width {
            let lane = intervals.of(lanes.lane(v, i));
            let widened = spread.as_ref().and_then(|spread| spread.widened(lane.iter().copied()));
            for s in widened.as_deref().unwrap_or(lane) {
                change[s.start as usize] += 1;
                change[s.end as usize] -= 1;
            }
        }
    }
    let mut extra = |from: u32, points: usize, registers: usize| {
        change[from as usize] += registers as i32;
        change[from as usize + points] -= registers as i32;
    };
    for &b in &cfg.rpo {
        let limit = room.at(b);
        let (start, end) = (2 * n.entry[b], 2 * n.term[b] + 2);
        extra(start, (end - start) as usize, (room.limit - limit) as usize);
        for &i in &func.blocks[b].insts {
            let d = &func.insts[i];
            if let Some(all) = destroyed(func, d).filter(|_| calls) {
                extra(2 * n.inst[i] + 1, 1, room::below(all.of(file), limit) as usize);
            } else if !d.kept.is_empty() {
                d.for_each_def(|name| {
                    if let Some(v) = name.value().filter(|v| func.values[*v].file == file) {
                        extra(2 * n.inst[i], 1, func.values[v].width.into());
                    }
                });
            }
        }
        let mut seen: SmallVec<[Block; 2]> = SmallVec::new();
        for target in func.blocks[b].term.targets() {
            if !seen.contains(&target.block) {
                seen.push(target.block);
                let params = func.blocks[target.block].params.iter().map(|p| func.values[*p]);
                let registers = params.filter(|p| p.file == file).map(|p| usize::from(p.width)).sum();
                extra(2 * n.term[b], 2, registers);
            }
        }
    }
    let needed = change.iter().scan(0, |sum, c| {
        *sum += c;
        Some(*sum)
    });
    needed.max().unwrap_or(0).max(0) as u32
}
