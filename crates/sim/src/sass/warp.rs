//! Instructions that see the whole warp: shuffles, votes, reductions, special registers, and moves between the
//! general and the uniform file.

use super::compile::{Unsupported, unsupported};
use super::mem::{Address, Space};
use super::operand::{Exec, Kind, Operands, Src, lanes};
use super::state::{LOCAL_WINDOW, Machine, SHARED_WINDOW, Warp};
use sass::Operand;

/// Prepares such an instruction; `None` if it isn't one.
pub(crate) fn compile(name: &str, o: &Operands<'_>) -> Result<Option<Exec>, Unsupported> {
    Ok(Some(match name {
        "SHFL" => shuffle(o)?,
        "VOTE" | "VOTEU" => vote(o)?,
        "MATCH" => matching(o)?,
        "REDUX" | "CREDUX" => reduction(o)?,
        "R2UR" => to_uniform(o)?,
        "R2UR.P" | "R2UR.OR" => to_uniform_and_compare(o, name.ends_with("OR"))?,
        "S2R" | "S2UR" | "CS2R" | "CS2UR" => special(o, name.starts_with('C'))?,
        "B2R" => barrier_result(o)?,
        "QSPC" => query_space(o)?,
        "ELECT" => elect(o)?,
        "USETMAXREG" | "USETMAXREG.ALLOC" => super::pool::compile(o, name.ends_with("ALLOC"))?,
        "RPCMOV" | "RPCMOV.W" => return_address(o, name)?,
        _ => return Ok(None),
    }))
}

/// What a shuffle reads from a lane that takes no part: unspecified, so something that will be noticed.
const INACTIVE: u64 = 0xdead_1a9e;

fn rows(s: &Src, w: &Warp) -> [u64; 32] {
    let mut v = [0; 32];
    s.fetch(w, &mut v);
    v
}

/// Pd, Rd, value, lane, clamp and segment mask; as PTX defines `shfl`.
fn shuffle(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let Some(mode) = o.choose(&[("IDX", 0), ("UP", 1), ("DOWN", 2), ("BFLY", 3)]) else {
        return unsupported("a shuffle without mode");
    };
    let (pred, dst) = (o.pred_dst(0)?, o.dst(1, 1)?);
    let (value, select, control) = (o.src(2, Kind::Int)?, o.src(3, Kind::Int)?, o.src(4, Kind::Int)?);
    Ok(Box::new(move |m, mask| {
        let w = &mut *m.warp;
        let (values, select, control) = (rows(&value, w), rows(&select, w), rows(&control, w));
        for lane in lanes(mask) {
            let (b, c, segment) =
                (select[lane] as i64 & 31, control[lane] as i64 & 31, control[lane] as i64 >> 8 & 31);
            let l = lane as i64;
            let max = l & segment | c & !segment;
            let (source, inside) = match mode {
                0 => (l & segment | b & !segment, true),
                1 => (l - b, false),
                2 => (l + b, true),
                _ => (l ^ b, true),
            };
            let ok = if inside { source <= max } else { source >= max };
            let source = if ok { source as usize } else { lane };
            let v = if mask >> source & 1 != 0 { values[source] } else { INACTIVE };
            dst.put(w, lane, v);
            pred.put(w, lane, ok);
        }
        Ok(())
    }))
}

/// Rd, Pd, Pa: the lanes in which Pa holds, and whether any or all active ones are among them.
fn vote(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let Some(mode) = o.choose(&[("ANY", 0), ("ALL", 1), ("EQ", 2)]) else {
        return unsupported("a vote without mode");
    };
    let (dst, pred, p) = (o.dst(0, 1)?, o.pred_dst(1)?, o.pred(2)?);
    Ok(Box::new(move |m, mask| {
        let w = &mut *m.warp;
        let ballot = p.mask(w) & mask;
        let verdict = match mode {
            0 => ballot != 0,
            1 => ballot == mask,
            _ => ballot == 0 || ballot == mask,
        };
        let writes = if dst.is_uniform() { 1 } else { mask };
        for lane in lanes(writes) {
            dst.put(w, lane, ballot.into());
            pred.put(w, lane, verdict);
        }
        Ok(())
    }))
}

/// Pd, Rd, value: the active lanes with the same value; ALL: all active lanes if they agree, else none.
fn matching(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let all = o.take("ALL");
    if !all && !o.take("ANY") {
        return unsupported("a match without mode");
    }
    let kind = if o.take("U64") { Kind::Long } else { Kind::Int };
    let (pred, dst, value) = (o.pred_dst(0)?, o.dst(1, 1)?, o.src(2, kind)?);
    Ok(Box::new(move |m, mask| {
        let w = &mut *m.warp;
        let values = rows(&value, w);
        for lane in lanes(mask) {
            let same = lanes(mask).filter(|l| values[*l] == values[lane]).fold(0u32, |m, l| m | 1 << l);
            let agreed = same == mask;
            dst.put(w, lane, if all && !agreed { 0 } else { same.into() });
            pred.put(w, lane, agreed);
        }
        Ok(())
    }))
}

/// URd, value: a reduction over the active lanes; a bitwise AND if nothing else is said.
fn reduction(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    if o.take("F32") {
        let nan = o.take("NAN");
        let ops = [
            ("MIN", (true, false)),
            ("MAX", (false, false)),
            ("MINABS", (true, true)),
            ("MAXABS", (false, true)),
        ];
        let Some((least, abs)) = o.choose(&ops) else { return unsupported("this reduction") };
        let (dst, value) = (o.dst(0, 1)?, o.src(1, Kind::Single)?);
        return Ok(Box::new(move |m, mask| {
            let values = rows(&value, m.warp);
            let all = lanes(mask).map(|l| if abs { values[l] & 0x7fff_ffff } else { values[l] });
            let result = all.reduce(|a, b| super::extremum(crate::fp::F32, a, b, least, nan));
            dst.put(m.warp, 0, result.unwrap_or(0));
            Ok(())
        }));
    }
    let signed = o.take("S32");
    o.ignore(&["U32"]);
    let flip = if signed { 1 << 31 } else { 0 };
    let ops = [("SUM", 1), ("MIN", 2), ("MAX", 3), ("OR", 4), ("XOR", 5), ("AND", 0)];
    let op = o.choose(&ops).unwrap_or(0);
    let (dst, value) = (o.dst(0, 1)?, o.src(1, Kind::Int)?);
    Ok(Box::new(move |m, mask| {
        let values = rows(&value, m.warp);
        let all = lanes(mask).map(|l| values[l] as u32);
        let result = match op {
            0 => all.reduce(|a, b| a & b),
            1 => all.reduce(u32::wrapping_add),
            2 => all.map(|x| x ^ flip).reduce(u32::min).map(|x| x ^ flip),
            3 => all.map(|x| x ^ flip).reduce(u32::max).map(|x| x ^ flip),
            4 => all.reduce(|a, b| a | b),
            _ => all.reduce(|a, b| a ^ b),
        };
        dst.put(m.warp, 0, result.unwrap_or(0).into());
        Ok(())
    }))
}

/// URd, value: the first active lane's value.
fn to_uniform(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    o.ignore(&["BROADCAST", "FILL"]);
    let (dst, value) = (o.dst(0, 1)?, o.src(1, Kind::Int)?);
    Ok(Box::new(move |m, mask| {
        let values = rows(&value, m.warp);
        let lane = mask.trailing_zeros() as usize & 31;
        dst.put(m.warp, 0, values[lane]);
        Ok(())
    }))
}

/// Moves between a general register and a half of the return address, which serves as a register here.
fn return_address(o: &Operands<'_>, name: &str) -> Result<Exec, Unsupported> {
    o.ignore(&["32"]);
    if name == "RPCMOV" {
        let (dst, half) = (o.dst(0, 1)?, o.imm(1)? as usize & 1);
        return Ok(Box::new(move |m, mask| {
            lanes(mask).for_each(|l| dst.put(m.warp, l, m.warp.rpc[half][l].into()));
            Ok(())
        }));
    }
    let (half, src) = (o.imm(0)? as usize & 1, o.src(1, Kind::Int)?);
    Ok(Box::new(move |m, mask| {
        let values = rows(&src, m.warp);
        lanes(mask).for_each(|l| m.warp.rpc[half][l] = values[l] as u32);
        Ok(())
    }))
}

/// Pd, URd, P: the first lane in which P holds.
fn elect(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    let (pred, dst, p) = (o.pred_dst(0)?, o.dst(1, 1)?, o.pred(2)?);
    Ok(Box::new(move |m, mask| {
        let leader = (p.mask(m.warp) & mask).trailing_zeros();
        for lane in lanes(mask) {
            pred.put(m.warp, lane, lane as u32 == leader);
        }
        dst.put(m.warp, 0, u64::from(leader & 31));
        Ok(())
    }))
}

/// Pd, URd, value: the first active lane's value, and in which lanes it differs from their own; with OR, or
/// where Pd held before.
fn to_uniform_and_compare(o: &Operands<'_>, or: bool) -> Result<Exec, Unsupported> {
    o.ignore(&["OR"]);
    let (pred, old, dst, value) = (o.pred_dst(0)?, o.pred(0)?, o.dst(1, 1)?, o.src(2, Kind::Int)?);
    Ok(Box::new(move |m, mask| {
        let values = rows(&value, m.warp);
        let before = old.mask(m.warp);
        let first = values[mask.trailing_zeros() as usize & 31];
        dst.put(m.warp, 0, first);
        for lane in lanes(mask) {
            pred.put(m.warp, lane, values[lane] != first || or && before >> lane & 1 != 0);
        }
        Ok(())
    }))
}

/// The value of a special register in a lane.
type Special = fn(&Machine<'_>, usize) -> u64;

/// The number of the thread in its block.
fn thread(m: &Machine<'_>, lane: usize) -> u32 {
    m.warp.first + lane as u32
}

/// How a special register is read.
fn special_value(name: &str) -> Option<Special> {
    Some(match name {
        "SR_LANEID" => |_, lane| lane as u64,
        "SR_TID.X" => |m, lane| (thread(m, lane) % m.env.block[0]).into(),
        "SR_TID.Y" => |m, lane| (thread(m, lane) / m.env.block[0] % m.env.block[1]).into(),
        "SR_TID.Z" => |m, lane| (thread(m, lane) / m.env.block[0] / m.env.block[1]).into(),
        "SR_CTAID.X" => |m, _| m.block.index[0].into(),
        "SR_CTAID.Y" => |m, _| m.block.index[1].into(),
        "SR_CTAID.Z" => |m, _| m.block.index[2].into(),
        "SR_NCTAID.X" => |m, _| m.env.grid[0].into(),
        "SR_NCTAID.Y" => |m, _| m.env.grid[1].into(),
        "SR_NCTAID.Z" => |m, _| m.env.grid[2].into(),
        "SR_EQMASK" => |_, lane| 1 << lane,
        "SR_LTMASK" => |_, lane| (1 << lane) - 1,
        "SR_LEMASK" => |_, lane| (2 << lane) - 1,
        "SR_GTMASK" => |_, lane| !((2 << lane) - 1) & 0xffff_ffff,
        "SR_GEMASK" => |_, lane| !((1 << lane) - 1) & 0xffff_ffff,
        "SR_SWINHI" => |_, _| SHARED_WINDOW.into(),
        "SR_LWINHI" => |_, _| LOCAL_WINDOW.into(),
        "SR_SWINLO" | "SR_LWINLO" | "SRZ" => |_, _| 0,
        // Where the stack must not go below.
        "SR_LMEMHIOFF" => |_, _| 0,
        "SR_CgaCtaId" => |m, _| m.block.rank as u64,
        // Which of the slots of constants before the parameters holds the cluster's (sm_100 on).
        "SR_CgaSize" | "SR_SMID" | "SR_VIRTUALSMID" | "SR_VIRTID" => |_, _| 0,
        // Counters that no tool has started.
        name if name.starts_with("SR_PM") => |_, _| 0,
        "SR_WARPID" => |m, _| m.warp.number.into(),
        "SR_CLOCKLO" | "SR_GLOBALTIMERLO" => |m, _| m.warp.issued,
        "SR_CLOCKHI" | "SR_GLOBALTIMERHI" => |m, _| m.warp.issued >> 32,
        "SR_SMEMSZ" => |m, _| m.env.shared.into(),
        _ => return None,
    })
}

fn special(o: &Operands<'_>, pair: bool) -> Result<Exec, Unsupported> {
    let Operand::Special(register) = o.operand(1)? else {
        return unsupported("this operand of a special register read");
    };
    let name = register.name();
    let width = if pair && !o.take("32") { 2 } else { 1 };
    let dst = o.dst(0, width)?;
    let value = special_value(name);
    Ok(Box::new(move |m, mask| {
        let mask = if dst.is_uniform() { 1 } else { mask };
        let Some(value) = value else {
            let lane = mask.trailing_zeros() as usize & 31;
            return Err(super::Fault::at(lane, format!("special register {name} is not supported")));
        };
        for lane in lanes(mask) {
            let v = value(m, lane);
            dst.put(m.warp, lane, v);
        }
        Ok(())
    }))
}

/// Rd, Pd: the result of the last barrier reduction.
fn barrier_result(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    if !o.take("RESULT") {
        return unsupported("this barrier state");
    }
    let (dst, pred) = (o.dst(0, 1)?, o.pred_dst(1)?);
    Ok(Box::new(move |m, mask| {
        let (count, verdict) = m.warp.reduction;
        for lane in lanes(mask) {
            dst.put(m.warp, lane, count.into());
            pred.put(m.warp, lane, verdict);
        }
        Ok(())
    }))
}

/// Pd, Rd, address: whether a generic address lies in the window of a space.
fn query_space(o: &Operands<'_>) -> Result<Exec, Unsupported> {
    // Shared memory of the block, of its cluster, local and global memory.
    let window = |w: u32| Some(w);
    let spaces = [
        ("S", (window(SHARED_WINDOW), true)),
        ("D", (window(SHARED_WINDOW), false)),
        ("L", (window(LOCAL_WINDOW), false)),
        ("G", (None, false)),
    ];
    let Some((window, own)) = o.choose(&spaces) else {
        return unsupported("a query of this space");
    };
    let (pred, address) = (o.pred_dst(0)?, Address::of(o, 2, Space::Generic)?);
    Ok(Box::new(move |m, mask| {
        for lane in lanes(mask) {
            let a = address.at(m.warp, lane);
            let high = (a >> 32) as u32;
            let inside = match window {
                Some(w) => high == w && (!own || (a >> 24 & 0xff) as usize == m.block.rank),
                None => high != SHARED_WINDOW && high != LOCAL_WINDOW,
            };
            pred.put(m.warp, lane, inside);
        }
        Ok(())
    }))
}
