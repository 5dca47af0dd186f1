//! Sums with constants: `(x + 4) + 4` is `x + 8`, and a constant that is added to an address goes into the offset of the
//! instruction that uses it. Copies of a loop's body then depend on where the loop stands, not on each other. So does an address
//! `y + (x + 4)`, which becomes `(y + x) + 4`.

use crate::Pass;
use crate::sums::{self, Places, is_zero, value_of};
use cranelift_entity::SecondaryMap;
use ori::{Block, Function, Inst, InstData, Macro, Name, Op, Operand, Value, operand};
use rustc_hash::FxHashMap;
use sass::ops::Iadd3;
use sass::{AddrWidth, Opcode, Reg, RegFile};
use smallvec::SmallVec;

/// A 64-bit number as a pair and a constant.
#[derive(Clone, Copy)]
struct Pair {
    base: Value,
    more: i64,
    /// The upper word of the sum.
    high: Value,
}

/// The pass, for the table.
pub const PASS: Pass = Pass::alone(
    2,
    "constant-sums",
    "ExtractShaderConstsFirst",
    "constants of sums into one another and into addresses (of atomic operations and LDGSTS, too; of local memory from R1); addresses `y + (x + 4)` as `(y + x) + 4`",
    run,
);

/// The pass.
pub fn run(func: &mut Function) -> bool {
    let at = sums::places(func);
    let uses = crate::uses::count(func);
    // The lower words of sums of a pair and a constant.
    let mut pairs: SecondaryMap<Value, Option<Pair>> = SecondaryMap::new();
    let room = room_of_addresses(func, &uses);
    let mut changed = false;
    for n in 0..func.layout.len() {
        let b = func.layout[n];
        let mut new = InFront::default();
        for k in 0..func.blocks[b].insts.len() {
            let i = func.blocks[b].insts[k];
            changed |= if let Some(sum) = sums::sum(func, &at, &uses, i, b) {
                match sum.high {
                    None => narrow(func, &at, i) || around(func, &at, &pairs, &room, i, &mut new),
                    Some(ref high) => {
                        wide(func, &mut pairs, &sum, high.inst)
                            || wide_around(func, &mut pairs, &room, &sum, high, &mut new)
                    }
                }
            } else {
                offset(func, &at, &pairs, i)
            };
        }
        put_in_front(func, b, new);
    }
    changed
}

/// What is put in front of instructions.
type InFront = FxHashMap<Inst, SmallVec<[Inst; 2]>>;

fn put_in_front(func: &mut Function, b: Block, mut new: InFront) {
    if new.is_empty() {
        return;
    }
    let old = std::mem::take(&mut func.blocks[b].insts);
    for i in old {
        func.blocks[b].insts.extend(new.remove(&i).into_iter().flatten());
        func.blocks[b].insts.push(i);
    }
}

/// Which numbers the offsets of all instructions that read a value, or the pair of which it is a word, take on top of what they have;
/// those of values that are of other use than as addresses of memory have none.
type Room = SecondaryMap<Value, Option<(i64, i64)>>;

fn room_of_addresses(func: &Function, uses: &SecondaryMap<Value, u32>) -> Room {
    let mut as_address: SecondaryMap<Value, u32> = SecondaryMap::new();
    let mut room: Room = SecondaryMap::new();
    let insts = || func.layout.iter().flat_map(|b| &func.blocks[*b].insts).map(|i| &func.insts[*i]);
    for d in insts() {
        for o in &d.operands {
            if let Operand::Addr { base: Some(Name::Val(v)), uniform: None, width, offset, .. } = o
                && let Some(offsets) = offsets(d.op, *width == AddrWidth::R64)
            {
                as_address[*v] += 1;
                let here = (offsets.start() - i64::from(*offset), offsets.end() - i64::from(*offset));
                room[*v] = Some(room[*v].map_or(here, |r| (r.0.max(here.0), r.1.min(here.1))));
            }
        }
    }
    for v in func.values.keys().filter(|v| as_address[*v] != uses[*v]) {
        room[v] = None;
    }
    for (to, parts) in insts().filter_map(InstData::collected) {
        let [low, high] = parts else { continue };
        if let (Some(pair), [Some(low), Some(high)]) = (value_of(to), [low, high].map(value_of))
            && room[pair].is_some()
            && uses[low] == 1
            && uses[high] == 1
        {
            (room[low], room[high]) = (room[pair], room[pair]);
        }
    }
    room
}

/// Whether the offsets of all that read the value take the number.
fn takes(room: &Room, v: Value, number: i64) -> bool {
    room[v].is_some_and(|(least, most)| (least..=most).contains(&number))
}

/// What an address `y + (x + 4)` of 32 bits becomes: `(y + x) + 4`.
fn around(
    func: &mut Function,
    at: &Places,
    pairs: &SecondaryMap<Value, Option<Pair>>,
    room: &Room,
    i: Inst,
    new: &mut InFront,
) -> bool {
    let d = &func.insts[i];
    let Some(s) = Iadd3::of(d).filter(gives_no_carry) else { return false };
    let Some(to) = value_of(s.d).filter(|v| room[*v].is_some()) else { return false };
    let Some(terms) = sums::terms(d, None) else { return false };
    let split = |o: &Operand| {
        let v = value_of(o)?;
        if let Some(p) = pairs[v] {
            return Some((Name::Part(p.base, 0), p.more as u32));
        }
        number_added(&func.insts[at[v]?.0]).filter(|(n, _)| n.value().is_some())
    };
    let is_register = |o: &Operand| matches!(o, Operand::Reg(r) if r.reg.value().is_some());
    for (inner, other) in [(0, 1), (1, 0)] {
        if let Some((x, n)) = split(&terms[inner])
            && is_register(&terms[other])
            && takes(room, to, i64::from(n as i32))
        {
            let sum = func.add_value(RegFile::R, 1);
            let mut made = func.insts[i].clone();
            if let Some(s) = Iadd3::of_mut(&mut made) {
                *s.d = operand(sum);
                [*s.a, *s.b, *s.c] = [terms[other], operand(x), operand(Name::Phys(Reg::RZ))];
            }
            let made = func.insts.push(made);
            new.entry(i).or_default().push(made);
            set_terms(func, i, Name::Val(sum), n);
            return true;
        }
    }
    false
}

/// The same of 64 bits.
fn wide_around(
    func: &mut Function,
    pairs: &mut SecondaryMap<Value, Option<Pair>>,
    room: &Room,
    sum: &sums::Sum,
    upper: &sums::Upper,
    new: &mut InFront,
) -> bool {
    let word = |i: Inst| value_of(Iadd3::of(&func.insts[i])?.d);
    let (Some(low), Some(high)) = (word(sum.inst), word(upper.inst)) else { return false };
    if room[low].is_none() || room[high].is_none() {
        return false;
    }
    let is_register = |o: &Operand| matches!(o, Operand::Reg(r) if r.reg.value().is_some());
    // Terms of the two words stand in the order of their instructions, which may differ.
    for (l, h) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let (Some(a), Some(b)) = (value_of(&sum.low[l]), value_of(&upper.terms[h])) else { continue };
        let Some(p) = pairs[a].filter(|p| p.high == b) else { continue };
        let others = [sum.low[1 - l], upper.terms[1 - h]];
        let Ok(number) = i32::try_from(p.more) else { continue };
        if !others.iter().all(is_register) || !takes(room, low, p.more) {
            continue;
        }
        let zero = operand(Name::Phys(Reg::RZ));
        let words = [0, 1].map(|_| func.add_value(RegFile::R, 1));
        let carry = func.add_value(RegFile::P, 1);
        let pair = func.add_value(RegFile::R, 2);
        let mut first = func.insts[sum.inst].clone();
        if let Some(s) = Iadd3::of_mut(&mut first) {
            (*s.d, *s.carry_out) = (operand(words[0]), operand(carry));
            [*s.a, *s.b, *s.c] = [others[0], operand(Name::Part(p.base, 0)), zero];
        }
        let mut second = func.insts[upper.inst].clone();
        if let Some(s) = Iadd3::of_mut(&mut second) {
            (*s.d, *s.carry) = (operand(words[1]), operand(carry));
            [*s.a, *s.b, *s.c] = [others[1], operand(Name::Part(p.base, 1)), zero];
        }
        let collect = InstData {
            op: Op::Macro(Macro::Collect),
            mods: sass::Mods::none(),
            operands: [pair, words[0], words[1]].map(operand).into_iter().collect(),
            ..func.insts[sum.inst].clone()
        };
        // The upper words may be made between the two.
        let first = func.insts.push(first);
        new.entry(sum.inst).or_default().push(first);
        let rest = [second, collect].map(|d| func.insts.push(d));
        new.entry(upper.inst).or_default().extend(rest);
        set_terms(func, sum.inst, Name::Val(words[0]), number as u32);
        set_terms(func, upper.inst, Name::Val(words[1]), (p.more >> 32) as u32);
        pairs[low] = Some(Pair { base: pair, more: p.more, high });
        return true;
    }
    false
}

/// Whether an addition gives no carry.
fn gives_no_carry(s: &Iadd3<&Operand>) -> bool {
    [s.carry_out, s.carry_out2].into_iter().all(|o| sums::is_pred(o, Name::Phys(Reg::PT), false))
}

/// The register and the number of a sum of two.
fn parts(terms: &[Operand; 2]) -> Option<(Name, u32)> {
    let register = |o: &Operand| match o {
        Operand::Reg(r) if sums::plain(o) && !is_zero(o) => Some(r.reg),
        _ => None,
    };
    let number = |o: &Operand| match o {
        Operand::Imm(n) => Some(*n),
        o if is_zero(o) => Some(0),
        _ => None,
    };
    let [x, y] = terms;
    Some((register(x).or_else(|| register(y))?, number(y).or_else(|| number(x))?))
}

/// Puts the sum of a register and a number in the place of the terms of an addition.
fn set_terms(func: &mut Function, i: Inst, register: Name, number: u32) {
    let zero = operand(Name::Phys(Reg::RZ));
    let number = if number == 0 { zero } else { Operand::Imm(number) };
    if let Some(s) = Iadd3::of_mut(&mut func.insts[i]) {
        [*s.a, *s.b, *s.c] = [operand(register), number, zero];
    }
}

/// The register and the number of an addition of 32 bits without carries.
fn number_added(d: &InstData) -> Option<(Name, u32)> {
    let s = Iadd3::of(d)?;
    let carries = |o: &Operand| !sums::is_pred(o, Name::Phys(Reg::PT), false);
    if carries(s.carry_out) || carries(s.carry_out2) {
        return None;
    }
    parts(&sums::terms(d, None)?)
}

/// A 32-bit sum with a number, of a sum with a number.
fn narrow(func: &mut Function, at: &Places, i: Inst) -> bool {
    let Some((Name::Val(x), n)) = number_added(&func.insts[i]) else { return false };
    let Some((inner, ..)) = at[x] else { return false };
    let Some((y, m)) = number_added(&func.insts[inner]) else { return false };
    set_terms(func, i, y, n.wrapping_add(m));
    true
}

/// A 64-bit sum with a number: notes it, and makes it one of what its own term is a sum of.
fn wide(
    func: &mut Function,
    pairs: &mut SecondaryMap<Value, Option<Pair>>,
    sum: &sums::Sum,
    high: Inst,
) -> bool {
    let Some(upper) = &sum.high else { return false };
    let (Some((x, n)), Some((y, m))) = (parts(&sum.low), parts(&upper.terms)) else { return false };
    let more = i64::from(n as i32);
    // The upper word has the sign of the lower one.
    if m != (more >> 32) as u32 {
        return false;
    }
    let ((base, more), again) = match (x, y) {
        (Name::Part(a, 0), Name::Part(b, 1)) if a == b && func.values[a].width == 2 => ((a, more), false),
        (Name::Val(a), Name::Val(b)) => match pairs[a] {
            Some(p) if p.high == b => ((p.base, p.more + more), true),
            _ => return false,
        },
        _ => return false,
    };
    let Ok(number) = i32::try_from(more) else { return false };
    let word = |i: Inst| value_of(Iadd3::of(&func.insts[i])?.d);
    if let (Some(low), Some(high)) = (word(sum.inst), word(high)) {
        pairs[low] = Some(Pair { base, more, high });
    }
    if again {
        set_terms(func, sum.inst, Name::Part(base, 0), number as u32);
        set_terms(func, high, Name::Part(base, 1), (more >> 32) as u32);
    }
    again
}

type Offsets = std::ops::RangeInclusive<i64>;

/// Offsets of instructions have 24 bits.
const OFFSETS: Offsets = -(1 << 23)..=(1 << 23) - 1;

/// Those of atomic operations, which ptxas 13.0.88 has up to here for all targets (beyond, for some from sm_100 on, not).
const ATOMIC_OFFSETS: Offsets = -(1 << 22)..=(1 << 22) - 1;

/// LDGSTS has 20 bits for shared memory, and 12 for global memory.
const COPY_OFFSETS: [Offsets; 2] = [-(1 << 19)..=(1 << 19) - 1, -(1 << 11)..=(1 << 11) - 1];

/// The offsets that an instruction takes for an address in two registers (`wide`) or one.
fn offsets(op: Op, wide: bool) -> Option<Offsets> {
    let Op::Sass(op) = op else { return None };
    // Addresses of shared and local memory are numbers modulo 2^32, and ptxas has negative offsets, too (13.0.88, all targets).
    match (op, wide) {
        (Opcode::LDG | Opcode::STG | Opcode::LD | Opcode::ST, true) => Some(OFFSETS),
        (Opcode::ATOM | Opcode::ATOMG | Opcode::RED | Opcode::REDG, true) => Some(ATOMIC_OFFSETS),
        (Opcode::LDS | Opcode::STS | Opcode::LDL | Opcode::STL, false) => Some(OFFSETS),
        // ptxas was not seen to have negative ones.
        (Opcode::LDSM, false) => Some(0..=*OFFSETS.end()),
        (Opcode::ATOMS, false) => Some(ATOMIC_OFFSETS),
        (Opcode::LDGSTS, _) => Some(COPY_OFFSETS[usize::from(wide)].clone()),
        _ => None,
    }
}

/// Takes the constants of addresses into the offsets.
fn offset(func: &mut Function, at: &Places, pairs: &SecondaryMap<Value, Option<Pair>>, i: Inst) -> bool {
    let mut changed = false;
    for slot in 0..func.insts[i].operands.len() {
        if let Some((base, offset)) = nearer_constant(func, at, &func.insts[i], slot)
            && let Operand::Const { index: b, offset: o, .. } = &mut func.insts[i].operands[slot]
        {
            (*b, *o) = (Some(Name::Val(base)), offset);
            changed = true;
        }
        if let Some((base, offset)) = nearer(func, at, pairs, &func.insts[i], slot)
            && let Operand::Addr { base: b, offset: o, .. } = &mut func.insts[i].operands[slot]
        {
            (*b, *o) = (Some(base), offset);
            changed = true;
        }
    }
    changed
}

/// Offsets of LDC have 16 bits, as the addresses of a bank.
const CONSTANT_OFFSETS: Offsets = -(1 << 15)..=(1 << 15) - 1;

/// What the index of a constant is in terms of another that is a number away. ptxas 13.0.88 has any number in the offset (modulo 2^16), and negative ones.
fn nearer_constant(func: &Function, at: &Places, d: &InstData, slot: usize) -> Option<(Value, i32)> {
    let Operand::Const { index: Some(Name::Val(v)), offset, .. } = d.operands[slot] else { return None };
    if d.op != Op::Sass(Opcode::LDC) {
        return None;
    }
    let (maker, ..) = at[v]?;
    let (Name::Val(base), number) = number_added(&func.insts[maker])? else { return None };
    let sum = i64::from(offset) + i64::from(number as i32);
    CONSTANT_OFFSETS.contains(&sum).then_some((base, sum as i32))
}

/// What an address is in terms of a base that is a constant away.
fn nearer(
    func: &Function,
    at: &Places,
    pairs: &SecondaryMap<Value, Option<Pair>>,
    d: &InstData,
    slot: usize,
) -> Option<(Name, i32)> {
    let Operand::Addr { base: Some(Name::Val(v)), width, uniform: None, offset, .. } = d.operands[slot]
    else {
        return None;
    };
    let (maker, ..) = at[v]?;
    let m = &func.insts[maker];
    let wide = width == AddrWidth::R64;
    let (base, more) = match width {
        AddrWidth::R64 => {
            let (_, [low, high]) = m.collected()? else { return None };
            let (low, high) = (value_of(low)?, value_of(high)?);
            let pair = pairs[low].filter(|p| p.high == high)?;
            (Name::Val(pair.base), pair.more)
        }
        AddrWidth::R32 => match number_added(m)? {
            (Name::Val(x), n) => (Name::Val(x), i64::from(n as i32)),
            // The frame is where it is.
            (Name::Phys(Reg::SP), n) if !func.moves_stack() => (Name::Phys(Reg::SP), i64::from(n as i32)),
            _ => return None,
        },
        _ => return None,
    };
    let sum = i64::from(offset) + more;
    offsets(d.op, wide)?.contains(&sum).then_some((base, sum as i32))
}

#[cfg(test)]
mod tests {
    #[test]
    fn frames_are_accessed_from_the_stack_pointer() {
        let got = after(
            "    v3:R = IADD3 PT, PT, R1, 0x40, RZ, !PT, !PT\n    v4:R = LDL [v3+0x4]\n    STS [v0], v4\n",
        );
        assert!(got.contains("LDL [R1+0x44]"), "{got}");
        // Where allocations move it, not.
        let moved = after(
            "    v3:R = IADD3 PT, PT, R1, 0x40, RZ, !PT, !PT\n    setstack v0\n    v4:R = LDL [v3+0x4]\n    STS [v0], v4\n",
        );
        assert!(moved.contains("LDL [v3+0x4]"), "{moved}");
    }

    #[test]
    fn constants_are_loaded_at_offsets() {
        let at = |number: &str, offset: &str| {
            after(&format!(
                "    v3:R = IADD3 PT, PT, v0, {number}, RZ, !PT, !PT\n    v4:R = LDC c[0x3][v3+{offset}]\n    STS [v0], v4\n"
            ))
        };
        assert!(at("0x400", "0x4").contains("LDC c[0x3][v0+0x404]"), "{}", at("0x400", "0x4"));
        assert!(at("0xfffffff0", "0x4").contains("LDC c[0x3][v0+-0xc]"), "{}", at("0xfffffff0", "0x4"));
        // ptxas takes this modulo 2^16.
        assert!(at("0x8000", "0x4").contains("LDC c[0x3][v3+0x4]"), "{}", at("0x8000", "0x4"));
    }

    #[test]
    fn matrices_are_loaded_at_offsets() {
        let at = |n: &str| {
            after(&format!(
                "    v3:R = IADD3 PT, PT, v0, {n}, RZ, !PT, !PT\n    v4:R4 = LDSM.16.M88.4 [v3]\n    STS [v0], v4.0\n"
            ))
        };
        assert!(at("0x80").contains("LDSM.16.M88.4 [v0+0x80]"), "{}", at("0x80"));
        assert!(at("0xffffff80").contains("LDSM.16.M88.4 [v3]"), "{}", at("0xffffff80"));
    }

    fn after(body: &str) -> String {
        let text = format!(
            "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{
block0:
    v0:R = S2R SR_TID.X
    v1:R2 = LDC.64 c[0x0][0x210]
{body}    exit
}}
"
        );
        let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        super::run(&mut f);
        ori::dead::remove(&mut f);
        ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
        f.to_string()
    }

    /// The 64-bit sum of a pair (as its words) and a number, into v`n` and v`n + 1`.
    fn sum(n: u32, [low, high]: [&str; 2], [x, y]: [&str; 2]) -> String {
        format!(
            "    v{n}:R, v{}:P = IADD3 PT, {low}, {x}, RZ, !PT, !PT
    v{}:R = IADD3.X PT, PT, {high}, {y}, RZ, v{}, !PT
    v{}:R2 = collect v{n}, v{}
",
            n + 2,
            n + 1,
            n + 2,
            n + 3,
            n + 1
        )
    }

    #[test]
    fn addresses_take_constants() {
        let body = sum(10, ["v1.0", "v1.1"], ["0x4", "RZ"])
            + &sum(20, ["v10", "v11"], ["0xfffffff0", "0xffffffff"])
            + "    v30:R = LDG.E PT, [v13.64+0x8], PT\n    STG.E [v23.64], v30\n";
        let text = after(&body);
        assert!(text.contains("[v1.64+0xc]") && text.contains("STG.E [v1.64+-0xc]"), "{text}");
        assert!(!text.contains("IADD3"), "{text}");
    }

    #[test]
    fn atomic_operations_and_copies_take_constants() {
        let body = |n: &str| {
            sum(10, ["v1.0", "v1.1"], [n, "RZ"])
                + &format!("    v14:R = IADD3 PT, PT, v0, {n}, RZ, !PT, !PT\n")
                + "    REDG.E.ADD.F32.FTZ.RN.STRONG.GPU [v13.64], v0\n    v15:R = ATOMS.ADD [v14], v0, RZ\n    \
                   LDGSTS.E [v14], [v13.64], PT\n    STS [v0], v15\n"
        };
        let text = after(&body("0x7fc"));
        for part in [
            "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU [v1.64+0x7fc]",
            "ATOMS.ADD [v0+0x7fc], v0",
            "LDGSTS.E [v0+0x7fc], [v1.64+0x7fc]",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = after(&body("0x80000"));
        assert!(text.contains("[v1.64+0x80000]") && text.contains("LDGSTS.E [v14], [v13.64]"), "{text}");
    }

    #[test]
    fn addresses_around_a_sum_take_its_constant() {
        // v1 + (v3 + 4), and the lower word of that on top of v0.
        let body = "    v3:R2 = LDC.64 c[0x0][0x218]\n".to_string()
            + &sum(10, ["v3.0", "v3.1"], ["0x4", "RZ"])
            + &sum(20, ["v1.0", "v1.1"], ["v10", "v11"])
            + &sum(30, ["v10", "v11"], ["v1.0", "v1.1"])
            + "    v40:R = IADD3 PT, PT, v0, v10, RZ, !PT, !PT\n    v41:R = LDG.E PT, [v23.64+0x8], PT\n    \
               STG.E [v33.64], v41\n    STS [v40+0x10], v41\n";
        let text = after(&body);
        for offset in [".64+0xc]", ".64+0x4]", "+0x14]"] {
            assert!(text.contains(offset), "{offset}: {text}");
        }
        assert_eq!(text.matches("IADD3.X").count(), 2, "{text}");
        // Not where it is of other use as well.
        let body = body + "    STS [v0], v20\n    STS [v0+0x4], v40\n";
        let text = after(&body);
        assert!(text.contains("LDG.E PT, [v23.64+0x8]") && text.contains("STS [v40+0x10]"), "{text}");
    }

    #[test]
    fn what_is_no_such_sum_stays() {
        // The upper word has another sign, or another carry.
        for (x, y) in [("0xfffffff0", "RZ"), ("0x4", "0x1"), ("0x4", "v0")] {
            let body = sum(10, ["v1.0", "v1.1"], [x, y])
                + "    v30:R = LDG.E PT, [v13.64], PT\n    STG.E [v13.64], v30\n";
            assert!(after(&body).contains("[v13.64]"), "{x} {y}");
        }
        // The offset has 24 bits.
        let body = sum(10, ["v1.0", "v1.1"], ["0x800000", "RZ"]) + "    STG.E [v13.64], v0\n";
        assert!(after(&body).contains("[v13.64]"));
    }

    #[test]
    fn words_add_up() {
        let text = after(
            "    v2:R = IADD3 PT, PT, v0, 0x4, RZ, !PT, !PT
    v3:R = IADD3 PT, PT, v2, 0xfffffffc, RZ, !PT, !PT
    v4:R = IADD3 PT, PT, v2, 0x6, RZ, !PT, !PT
    STS [v4+0x8], v3\n",
        );
        assert!(text.contains("STS [v0+0x12], v3") && text.contains("IADD3 PT, PT, v0, RZ, RZ"), "{text}");
    }
}
