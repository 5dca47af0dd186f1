//! Program headers: which sections are loaded together, with which rights.

use super::{ALLOC, EXEC, WRITE};
use crate::elf::{Section, Segment};
use object::elf;

/// The rights of a section, if it is loaded. Up to sm_89 constants share the segment of the code.
fn rights(s: &Section, modern: bool) -> Option<u32> {
    if s.flags & ALLOC == 0 {
        return None;
    }
    let mut rights = elf::PF_R;
    if s.flags & WRITE != 0 {
        rights |= elf::PF_W;
    }
    if s.flags & EXEC != 0 || !modern && s.flags & WRITE == 0 {
        rights |= elf::PF_X;
    }
    Some(rights)
}

/// Runs of loaded sections with the same rights become one LOAD each. The headers themselves are two: the first, and one
/// among the LOADs, in front from sm_90 on, behind them before (there with the right to execute).
pub(super) fn list(sections: &[Section], modern: bool) -> Vec<Segment> {
    let mut loads: Vec<(usize, usize, u32)> = Vec::new();
    let mut open = false;
    for (i, s) in sections.iter().enumerate() {
        let Some(flags) = rights(s, modern) else {
            open = false;
            continue;
        };
        match loads.last_mut() {
            Some((_, last, f)) if open && *f == flags => *last = i,
            _ => loads.push((i, i, flags)),
        }
        open = true;
    }
    let loads = loads.into_iter().map(|(first, last, flags)| Segment::Load { first, last, flags });
    let flags = if modern { elf::PF_R } else { elf::PF_R | elf::PF_X };
    let mut out = vec![Segment::Headers { flags }];
    if modern {
        out.push(Segment::LoadHeaders { flags });
        out.extend(loads);
    } else {
        out.extend(loads);
        out.push(Segment::LoadHeaders { flags });
    }
    out
}
