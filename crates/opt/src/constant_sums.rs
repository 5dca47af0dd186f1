//! Sums with constants: `(x + 4) + 4` is `x + 8`, and a constant that is added to an address goes into the offset of the
//! instruction that uses it. Copies of a loop's body then depend on where the loop stands, not on each other. So does an address
//! `y + (x + 4)`, which becomes `(y + x) + 4`.

use crate::Pass;
use crate::sums::{self, Places, is_zero, value_of};
use cranelift_entity::SecondaryMap;
use ori::pairs::WideSum;
use ori::{Block, Function, Inst, InstData, Name, Op, Operand, Value, operand};
use rustc_hash::FxHashMap;
use sass::ops::{Iadd, Iadd3};
use sass::{AddrWidth, Opcode, Reg, RegFile};
use smallvec::SmallVec;

/// A 64-bit number as a pair and a constant.
#[derive(Clone, Copy)]
struct Pair {
    base: Value,
    more: i64,
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
    // Sums of a pair and a constant.
    let mut pairs: SecondaryMap<Value, Option<Pair>> = SecondaryMap::new();
    let room = room_of_addresses(func, &uses);
    let mut changed = false;
    for n in 0..func.layout.len() {
        let b = func.layout[n];
        let mut new = InFront::default();
        for k in 0..func.blocks[b].insts.len() {
            let i = func.blocks[b].insts[k];
            changed |= if let Some(sum) = WideSum::of(&func.insts[i]) {
                wide(func, &mut pairs, &sum, i) || wide_around(func, &mut pairs, &room, &sum, i, &mut new)
            } else if adds_two(&func.insts[i]) {
                narrow(func, &at, i) || around(func, &at, &pairs, &room, i, &mut new)
            } else {
                offset(func, &at, &pairs, i)
            };
        }
        put_in_front(func, b, new);
    }
    changed
}

/// What is put in front of instructions.
pub(crate) type InFront = FxHashMap<Inst, SmallVec<[Inst; 2]>>;

pub(crate) fn put_in_front(func: &mut Function, b: Block, mut new: InFront) {
    if new.is_empty() {
        return;
    }
    let old = std::mem::take(&mut func.blocks[b].insts);
    for i in old {
        func.blocks[b].insts.extend(new.remove(&i).into_iter().flatten());
        func.blocks[b].insts.push(i);
    }
}

/// Which numbers the offsets of all instructions that read a value take on top of what they have; those of values that are of other use than as addresses of memory have none.
pub(crate) type Room = SecondaryMap<Value, Option<(i64, i64)>>;

pub(crate) fn room_of_addresses(func: &Function, uses: &SecondaryMap<Value, u32>) -> Room {
    let mut as_address: SecondaryMap<Value, u32> = func.per_value();
    let mut room: Room = SecondaryMap::new();
    let insts = || func.layout.iter().flat_map(|b| &func.blocks[*b].insts).map(|i| &func.insts[*i]);
    for d in insts() {
        for o in &d.operands {
            if let Operand::Addr { base: Some(Name::Val(v)), uniform, width, offset, .. } = o
                && names_nothing(*uniform)
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
    room
}

/// Whether no uniform register is added to an address: SYNCS has URZ there.
fn names_nothing(uniform: Option<Name>) -> bool {
    uniform.is_none_or(|n| n == Name::Phys(Reg::URZ))
}

/// Whether the offsets of all that read the value take the number.
pub(crate) fn takes(room: &Room, v: Value, number: i64) -> bool {
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
        if let Operand::Reg(r) = o
            && let Name::Part(v, 0) = r.reg
            && sums::plain(o)
        {
            let p = pairs[v]?;
            return Some((Name::Part(p.base, 0), p.more as u32));
        }
        let v = value_of(o)?;
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
    sum: &WideSum,
    i: Inst,
    new: &mut InFront,
) -> bool {
    let [Some(x), Some(y)] = sum.terms.map(|o| value_of(&o)) else { return false };
    let apart = |v: Value| pairs[v].map(|p| (p.base, p.more));
    let split = [(apart(x), apart(y)), (apart(x), None), (None, apart(y))].into_iter().find_map(|(a, b)| {
        (a.is_some() || b.is_some()).then_some(())?;
        let ((x, n), (y, m)) = (a.unwrap_or((x, 0)), b.unwrap_or((y, 0)));
        let number = i32::try_from(n + m).ok()?;
        takes(room, sum.to, n + m).then_some((x, y, number))
    });
    let Some((x, y, number)) = split else { return false };
    let pair = func.add_value(RegFile::R, 2);
    let mut first = func.insts[i].clone();
    if let Some(s) = Iadd::of_mut(&mut first) {
        (*s.d, *s.a, *s.b) = (operand(pair), operand(x), operand(y));
    }
    let first = func.insts.push(first);
    new.entry(i).or_default().push(first);
    set_wide_terms(func, i, pair, number);
    pairs[sum.to] = Some(Pair { base: pair, more: number.into() });
    true
}

/// Puts the sum of a pair and a number in the place of the terms of one.
fn set_wide_terms(func: &mut Function, i: Inst, base: Value, number: i32) {
    if number == 0 {
        let to = func.insts[i].operands[Iadd::D];
        func.insts[i].become_copy(to, operand(base));
    } else if let Some(s) = Iadd::of_mut(&mut func.insts[i]) {
        (*s.a, *s.b) = (operand(base), Operand::Imm(number as u32));
    }
}

/// Whether an instruction is a sum of two numbers of 32 bits.
fn adds_two(d: &InstData) -> bool {
    Iadd3::of(d).is_some_and(|s| gives_no_carry(&s) && value_of(s.d).is_some())
        && sums::terms(d, None).is_some()
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
pub(crate) fn number_added(d: &InstData) -> Option<(Name, u32)> {
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
fn wide(func: &mut Function, pairs: &mut SecondaryMap<Value, Option<Pair>>, sum: &WideSum, i: Inst) -> bool {
    let Some((x, n)) = sum.with_number() else { return false };
    let (found, again) = match pairs[x] {
        Some(p) => (Pair { more: p.more + n, ..p }, true),
        None => (Pair { base: x, more: n }, false),
    };
    let Ok(number) = i32::try_from(found.more) else { return false };
    if func.values[found.base].file != RegFile::R {
        return false;
    }
    pairs[sum.to] = Some(found);
    if again {
        set_wide_terms(func, i, found.base, number);
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
        (Opcode::SYNCS_ARRIVE | Opcode::SYNCS_PHASECHK, false) => Some(OFFSETS),
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
    let Operand::Addr { base: Some(Name::Val(v)), width, uniform, offset, .. } = d.operands[slot] else {
        return None;
    };
    if !names_nothing(uniform) {
        return None;
    }
    let wide = width == AddrWidth::R64;
    let (base, more) = match width {
        AddrWidth::R64 => {
            let pair = pairs[v]?;
            (Name::Val(pair.base), pair.more)
        }
        AddrWidth::R32 => match number_added(&func.insts[at[v]?.0])? {
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
    fn barriers_are_at_offsets() {
        let got = after(
            "    v3:R = IADD3 PT, PT, v0, 0xfffffff8, RZ, !PT, !PT\n    SYNCS.ARRIVE.ARRIVE.TRANS64 RZ, [v3+URZ+0x10], v0\n",
        );
        assert!(got.contains("[v0+URZ+0x8], v0"), "{got}");
    }

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

    /// The 64-bit sum of a pair and another or a number, into v`n`.
    fn sum(n: u32, x: &str, y: &str) -> String {
        format!("    v{n}:R2 = IADD.64 PT, {x}, {y}, !PT\n")
    }

    #[test]
    fn addresses_take_constants() {
        let body = sum(10, "v1", "0x4")
            + &sum(20, "v10", "0xfffffff0")
            + "    v30:R = LDG.E PT, [v10.64+0x8], PT\n    STG.E [v20.64], v30\n";
        let text = after(&body);
        assert!(text.contains("[v1.64+0xc]") && text.contains("STG.E [v1.64+-0xc]"), "{text}");
        assert!(!text.contains("IADD"), "{text}");
    }

    #[test]
    fn atomic_operations_and_copies_take_constants() {
        let body = |n: &str| {
            sum(13, "v1", n)
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
            + &sum(10, "v3", "0x4")
            + &sum(20, "v1", "v10")
            + &sum(30, "v10", "v1")
            + "    v40:R = IADD3 PT, PT, v0, v10.0, RZ, !PT, !PT\n    v41:R = LDG.E PT, [v20.64+0x8], PT\n    \
               STG.E [v30.64], v41\n    STS [v40+0x10], v41\n";
        let text = after(&body);
        for offset in [".64+0xc]", ".64+0x4]", "+0x14]"] {
            assert!(text.contains(offset), "{offset}: {text}");
        }
        assert_eq!(text.matches("IADD.64").count(), 2, "{text}");
        // Not where it is of other use as well.
        let body = body + "    STS [v0], v20.0\n    STS [v0+0x4], v40\n";
        let text = after(&body);
        assert!(text.contains("LDG.E PT, [v20.64+0x8]") && text.contains("STS [v40+0x10]"), "{text}");
    }

    #[test]
    fn what_is_no_such_sum_stays() {
        for (x, y) in [("v1", "v1"), ("-v1", "0x4")] {
            let body = sum(13, x, y) + "    v30:R = LDG.E PT, [v13.64], PT\n    STG.E [v13.64], v30\n";
            assert!(after(&body).contains("[v13.64]"), "{x} {y}");
        }
        // The offset has 24 bits.
        let body = sum(13, "v1", "0x800000") + "    STG.E [v13.64], v0\n";
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
