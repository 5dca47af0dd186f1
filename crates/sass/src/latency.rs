//! Functional units and latencies, from `isa/latency.isa`.

use crate::form::target_bit;
use crate::inst::{Inst, Mods, Operand};
use crate::isa::{
    APART, CLASS_OF, CLASSES_BY_MOD, Class, Mod, Opcode, PACE, PARTS, QUEUES, RAW, STALL, UNIT_OF, UNITS,
    Unit, WAR, WAW,
};
use crate::reg::RegFile;
use crate::target::Target;
use std::sync::OnceLock;

/// What the table says about a unit.
pub(crate) struct UnitInfo {
    /// Targets on which its results need a scoreboard.
    pub variable: u32,
    /// Its sources are read some time after issue.
    pub late: bool,
}

/// Places of a class's instructions that are a class of their own.
pub(crate) struct PartRow {
    pub class: Class,
    pub writes: bool,
    /// Operand, and register of it.
    pub places: &'static [(u8, u8)],
    pub part: Class,
}

/// A row of the latencies.
pub(crate) struct LatencyRow {
    pub targets: u32,
    /// Classes of who comes first.
    pub first: u64,
    pub file: RegFile,
    /// Classes of who comes second, at no special site.
    pub second: u64,
    /// Sites at which it comes second.
    pub sites: u8,
    pub cycles: u8,
}

/// Places that have latencies of their own, whatever the instruction's class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReadSite {
    /// The execution guard.
    Guard,
    /// The execution guard of an instruction of the half-precision unit, which looks at it earlier.
    HalfGuard,
    /// The uniform part of a 64-bit address, or a descriptor.
    Global,
    /// The uniform part of another address.
    Shared,
    /// The uniform index or bank of a constant.
    Constant,
}

impl ReadSite {
    /// Every site, in order.
    pub const EVERY: [ReadSite; 5] =
        [ReadSite::Guard, ReadSite::HalfGuard, ReadSite::Global, ReadSite::Shared, ReadSite::Constant];
}

/// Who reads a register: an operand of an instruction of a class, or a special place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reader {
    /// A special place.
    Site(ReadSite),
    /// An operand.
    Operand(Class),
}

impl Reader {
    /// How many readers there are.
    const COUNT: usize = ReadSite::EVERY.len() + Class::EVERY.len();

    fn index(self) -> usize {
        match self {
            Reader::Site(s) => s as usize,
            Reader::Operand(c) => ReadSite::EVERY.len() + c as usize,
        }
    }
}

/// A distance that is kept for something that is no register.
pub(crate) struct ApartRow {
    /// Bit set of targets.
    pub(crate) targets: u32,
    /// What others stay away from; with a modifier, of those that have it.
    pub(crate) first: &'static [(Opcode, Option<Mod>)],
    /// Classes that stay away.
    pub(crate) classes: u64,
    /// Opcodes that stay away, besides.
    pub(crate) opcodes: &'static [Opcode],
    /// The distance.
    pub(crate) cycles: u8,
}

/// Taken when no row of the table holds: longer than any fixed latency.
const UNKNOWN: u8 = 15;

/// The table for one target, by file, first and second.
struct Dense {
    raw: Vec<u8>,
    waw: Vec<u8>,
    war: Vec<u8>,
    /// By class: the longest of its distances from a write, and from a read.
    longest: Vec<(u8, u8)>,
    /// By class: cycles to the next one of such instructions.
    pace: Vec<u8>,
    /// By class: cycles to the next instruction, at least.
    stall: Vec<u8>,
    /// By opcode: the longest distance that some instruction keeps from it.
    apart: Vec<u8>,
}

const FILES: usize = 5;
const CLASSES: usize = Class::EVERY.len();

/// The places of the bits that are set among the lowest `count`, ascending.
fn bits(set: u64, count: usize) -> impl Iterator<Item = usize> {
    let mut left = if count < 64 { set & ((1 << count) - 1) } else { set };
    std::iter::from_fn(move || {
        let lowest = (left != 0).then(|| left.trailing_zeros() as usize);
        left &= left.wrapping_sub(1);
        lowest
    })
}

fn dense(target: Target) -> &'static Dense {
    static TABLES: [OnceLock<Dense>; u16::BITS as usize] = [const { OnceLock::new() }; u16::BITS as usize];
    let bit = target_bit(target);
    TABLES[bit.trailing_zeros() as usize].get_or_init(|| {
        let bit = u32::from(bit);
        let files = [RegFile::R, RegFile::P, RegFile::UR, RegFile::UP, RegFile::B];
        let fill = |rows: &[LatencyRow], seconds: usize, none: u8| {
            let mut table = vec![none; FILES * CLASSES * seconds];
            let sites = seconds - CLASSES;
            // The first row that holds counts: it is written last.
            for row in rows.iter().rev().filter(|r| r.targets & bit != 0) {
                let Some(file) = files.iter().position(|f| *f == row.file) else { continue };
                for first in bits(row.first, CLASSES) {
                    let cells = &mut table[(file * CLASSES + first) * seconds..][..seconds];
                    bits(row.second, CLASSES).for_each(|class| cells[sites + class] = row.cycles);
                    bits(row.sites.into(), sites).for_each(|site| cells[site] = row.cycles);
                }
            }
            table
        };
        let raw = fill(RAW, Reader::COUNT, UNKNOWN);
        let waw = fill(WAW, CLASSES, UNKNOWN);
        let war = fill(WAR, CLASSES, 1);
        let most = |table: &[u8], class: usize| {
            let seconds = table.len() / (FILES * CLASSES);
            let rows = (0..FILES).map(|f| &table[(f * CLASSES + class) * seconds..][..seconds]);
            rows.flatten().copied().max().unwrap_or(0)
        };
        let own = |class: usize| (most(&raw, class).max(most(&waw, class)), most(&war, class));
        let longest = (0..CLASSES).map(|class| {
            let parts = PARTS.iter().filter(|p| p.class as usize == class).map(|p| own(p.part as usize));
            parts.fold(own(class), |a, b| (a.0.max(b.0), a.1.max(b.1)))
        });
        let longest = longest.collect();
        let cycles = |rows: &[(u32, u64, u8)], none: u8| {
            let of = |class: usize| rows.iter().find(|p| p.0 & bit != 0 && p.1 >> class & 1 != 0);
            (0..CLASSES).map(|class| of(class).map_or(none, |p| p.2)).collect()
        };
        let (pace, stall) = (cycles(PACE, 0), cycles(STALL, 1));
        let mut apart = vec![0; CLASS_OF.len()];
        for row in APART.iter().filter(|r| r.targets & bit != 0) {
            for (op, _) in row.first {
                let most: &mut u8 = &mut apart[*op as usize];
                *most = row.cycles.max(*most);
            }
        }
        Dense { raw, waw, war, longest, pace, stall, apart }
    })
}

impl Opcode {
    /// The functional unit.
    pub fn unit(self) -> Unit {
        UNIT_OF[self as usize]
    }
}

fn info(op: Opcode) -> &'static UnitInfo {
    &UNITS[op.unit() as usize]
}

/// Whether the results of an opcode arrive after an unknown time, so that readers need a scoreboard.
pub fn is_variable_latency(op: Opcode, target: Target) -> bool {
    info(op).variable & u32::from(target_bit(target)) != 0
}

/// Whether the sources may still be read some time after issue, so that overwriting them needs a scoreboard.
pub fn reads_late(op: Opcode, target: Target) -> bool {
    info(op).late || op.info().late || is_variable_latency(op, target)
}

/// The class of an instruction.
pub fn class(inst: &Inst) -> Class {
    class_of(inst.op, &inst.mods)
}

/// The class of an instruction with this opcode and these modifiers.
fn class_of(op: Opcode, mods: &Mods) -> Class {
    // By opcode: the classes that modifiers make of it, of which most have none.
    static BY_MOD: OnceLock<Vec<Vec<(Mod, Class)>>> = OnceLock::new();
    let by_mod = BY_MOD.get_or_init(|| {
        let of = |op: Opcode| {
            let has = |only: &&[Opcode]| only.is_empty() || only.contains(&op);
            let rows = CLASSES_BY_MOD.iter().filter(|(unit, only, ..)| *unit == op.unit() && has(only));
            rows.map(|(_, _, m, class)| (*m, *class)).collect()
        };
        Opcode::EVERY.iter().map(|op| of(*op)).collect()
    });
    let class = by_mod[op as usize].iter().find(|(m, _)| mods.has(*m));
    class.map_or(CLASS_OF[op as usize], |c| c.1)
}

/// Every class that an instruction of this opcode, or a place of it, can have.
pub fn classes(op: Opcode) -> impl Iterator<Item = Class> {
    let by_mod = CLASSES_BY_MOD.iter().filter(move |c| c.0 == op.unit()).map(|c| c.3);
    let whole = by_mod.chain([CLASS_OF[op as usize]]);
    whole.flat_map(|c| PARTS.iter().filter(move |p| p.class == c).map(|p| p.part).chain([c]))
}

/// The class of a writer: register `nth` of operand `operand` (none: a predicate that no operand names).
pub fn writer(inst: &Inst, operand: Option<u8>, nth: u8) -> Class {
    let class = class(inst);
    let part = PARTS.iter().find(|p| {
        p.writes
            && p.class == class
            && operand
                .is_some_and(|o| p.places.contains(&(o, nth)) && inst.op.width(o.into(), &inst.mods) > 1)
    });
    part.map_or(class, |p| p.part)
}

/// The reader of a register of `file`, register `nth` of operand `operand` (none: a predicate that no operand names).
pub fn reader(inst: &Inst, file: RegFile, operand: Option<u8>, nth: u8) -> Reader {
    let Some(at) = operand else { return Reader::Operand(class(inst)) };
    if file == RegFile::UR {
        match inst.operands.get(usize::from(at)) {
            Some(Operand::Const { .. }) => return Reader::Site(ReadSite::Constant),
            Some(Operand::Addr { .. }) if QUEUES >> class(inst) as u64 & 1 != 0 => {}
            Some(Operand::Addr { .. }) => {
                let near = inst.has_near_address(usize::from(at));
                return Reader::Site(if near { ReadSite::Shared } else { ReadSite::Global });
            }
            _ => {}
        }
    }
    let class = class(inst);
    let part = PARTS.iter().find(|p| !p.writes && p.class == class && p.places.contains(&(at, nth)));
    Reader::Operand(part.map_or(class, |p| p.part))
}

/// The reader of an instruction's guard.
pub fn guard(inst: &Inst) -> Reader {
    Reader::Site(if inst.op.unit() == Unit::Half { ReadSite::HalfGuard } else { ReadSite::Guard })
}

/// The longest distance that anything must keep from a fixed-latency instruction that writes, and from one that reads,
/// registers.
pub fn longest(inst: &Inst, target: Target) -> (u8, u8) {
    dense(target).longest[class(inst) as usize]
}

/// Cycles until the result of a product of matrices of fixed latency is there for everybody; `None` of other instructions.
pub fn product(op: Opcode, mods: &Mods, target: Target) -> Option<u8> {
    let product = matches!(op.unit(), Unit::Tensor | Unit::TensorInt) && !is_variable_latency(op, target);
    product.then(|| dense(target).longest[class_of(op, mods) as usize].0)
}

/// Cycles from a product of matrices to the next one of the warp; 0 for other instructions.
pub fn pace(inst: &Inst, target: Target) -> u8 {
    pace_of(inst.op, &inst.mods, target)
}

/// The same of an opcode with modifiers.
pub fn pace_of(op: Opcode, mods: &Mods, target: Target) -> u8 {
    if op.is_group_product() {
        // As ptxas 13.0.88 has them: as long as B takes, of integers not so.
        let float = mods.has(Mod::F16) || mods.has(Mod::F32);
        let columns = crate::isa::columns(mods).unwrap_or(0);
        return if float { (columns / 8).saturating_sub(4).max(4) as u8 } else { 5 };
    }
    dense(target).pace[class_of(op, mods) as usize]
}

/// Cycles from an instruction to the next one of the warp, at least, whatever that is.
pub fn least_stall(inst: &Inst, target: Target) -> u8 {
    inst.op.info().min_stall.max(dense(target).stall[class(inst) as usize])
}

/// Cycles from an instruction to the next `next`, although no register says so: what waits for other threads, orders accesses or moves
/// control takes effect on some instructions later than on others.
pub fn apart(first: &Inst, next: &Inst, target: Target) -> u8 {
    if longest_apart(first.op, target) == 0 {
        return 0;
    }
    let (bit, class) = (u32::from(target_bit(target)), class(next) as usize);
    let holds = |r: &&ApartRow| {
        r.targets & bit != 0
            && r.first.iter().any(|(op, m)| *op == first.op && m.is_none_or(|m| first.mods.has(m)))
            && (r.classes >> class & 1 != 0 || r.opcodes.contains(&next.op))
    };
    APART.iter().filter(holds).map(|r| r.cycles).max().unwrap_or(0)
}

/// The longest distance of [`apart`] from an opcode.
pub fn longest_apart(first: Opcode, target: Target) -> u8 {
    dense(target).apart[first as usize]
}

/// Least distance in cycles from the issue of a fixed-latency writer to that of a reader of its result in `file`.
pub fn raw(writer: Class, file: RegFile, reader: Reader, target: Target) -> u8 {
    dense(target).raw[(file as usize * CLASSES + writer as usize) * Reader::COUNT + reader.index()]
}

/// Least distance in cycles from a fixed-latency writer to another writer of the same register.
pub fn waw(first: Class, file: RegFile, second: Class, target: Target) -> u8 {
    dense(target).waw[(file as usize * CLASSES + first as usize) * CLASSES + second as usize]
}

/// Least distance in cycles from an instruction that reads a register when it issues to one that overwrites it.
pub fn war(reader: Class, file: RegFile, writer: Class, target: Target) -> u8 {
    dense(target).war[(file as usize * CLASSES + reader as usize) * CLASSES + writer as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(sm: u8) -> Target {
        Target::new(sm).expect("target")
    }

    #[test]
    fn the_double_precision_unit_is_fast_on_some_targets_only() {
        assert!(is_variable_latency(Opcode::DFMA, on(86)));
        assert!(!is_variable_latency(Opcode::DFMA, on(90)));
        assert!(!is_variable_latency(Opcode::DFMA, on(100)));
        assert!(is_variable_latency(Opcode::DFMA, on(120)));
    }

    #[test]
    fn products_of_matrices_take_long() {
        let of = |mods: &[Mod], sm| product(Opcode::HMMA, &Mods::of(mods), on(sm));
        let (long, short) = ([Mod::_16816, Mod::F32], [Mod::_1688, Mod::F32]);
        assert_eq!(of(&long, 75), None);
        let (long, short) = (of(&long, 90).expect("fixed"), of(&short, 90).expect("fixed"));
        assert!(long >= 24 && (16..long).contains(&short), "{long} {short}");
        assert_eq!(product(Opcode::FFMA, &Mods::of(&[]), on(90)), None);
    }

    #[test]
    fn pairs_take_two_cycles_where_one_pipe_does_them() {
        let stall = |text, sm| least_stall(&parse(text, sm), on(sm));
        let pairs = ["ISETP.EQ.U64.AND P0, PT, R2, UR0, PT", "MOV.64 R2, R4", "IADD.64 R2, R4, R6"];
        assert_eq!(pairs.map(|text| stall(text, 120)), [2; 3]);
        assert_eq!(stall("ISETP.EQ.U32.AND P0, PT, R2, UR0, PT", 120), 1);
        assert_eq!(stall("MOV R2, R4", 120), 1);
        assert_eq!(stall("EXIT", 120), 5);
    }

    #[test]
    fn stores_read_late_and_write_nothing() {
        assert!(!is_variable_latency(Opcode::STG, on(90)));
        assert!(reads_late(Opcode::STG, on(90)));
        assert!(!reads_late(Opcode::IADD3, on(90)));
    }

    /// The least distance through `file` between two instructions, each given with an operand and a register of it.
    fn raw_of(sm: u8, file: RegFile, from: (&str, u8, u8), to: (&str, u8, u8)) -> u8 {
        let writer = writer(&parse(from.0, sm), Some(from.1), from.2);
        raw(writer, file, reader(&parse(to.0, sm), file, Some(to.1), to.2), on(sm))
    }

    #[test]
    fn pipes_forward_to_themselves_sooner() {
        use RegFile::R;
        let (add, ffma) = (("PRMT R0, R1, 0x7770, R2", 0, 0), ("FFMA R0, R1, R1, R1", 0, 0));
        let (add_in, ffma_in) = (("PRMT R5, R0, 0x7770, R2", 1, 0), ("FFMA R3, R0, R0, R0", 1, 0));
        for sm in [75, 80, 89, 90, 100, 120] {
            assert_eq!(raw_of(sm, R, add, add_in), 4);
            assert_eq!(raw_of(sm, R, add, ffma_in), 5);
            assert_eq!(raw_of(sm, R, ffma, add_in), 5);
            assert_eq!(raw_of(sm, R, ffma, ffma_in), 4);
        }
        // The second arithmetic pipe of sm_120 forwards to nobody.
        let (sel, sel_in) = (("SEL R0, R1, R2, P0", 0, 0), ("SEL R5, R0, R2, P0", 1, 0));
        assert_eq!([75, 90, 120].map(|sm| raw_of(sm, R, sel, sel_in)), [4, 4, 5]);
    }

    #[test]
    fn pairs_come_as_soon_as_words_do() {
        use RegFile::R;
        let of = |from, to| raw_of(120, R, (from, 0, 0), to);
        let (add, add_in) = ("IADD.64 R0, R2, R4", ("IADD.64 R2, R0, R4", 2, 1));
        let (set, word) =
            (("ISETP.LT.U64.AND P0, PT, R0, R2, PT", 2, 1), ("LOP3.LUT R2, R0, R4, RZ, 0xc0, !PT", 2, 0));
        let load = ("LDG.E R4, desc[UR4][R0.64]", 2, 0);
        assert_eq!([add_in, word, set, load].map(|to| of(add, to)), [4, 5, 6, 6]);
        let copy = "MOV R0, R4";
        assert_eq!([add_in, set, ("MOV.64 R2, R0", 1, 0)].map(|to| of(copy, to)), [5, 5, 6]);
        let set = parse("ISETP.LT.U64.AND P0, PT, R0, R2, PT", 120);
        let (writer, p) = (writer(&set, Some(0), 0), RegFile::P);
        let branch = parse("@P0 EXIT", 120);
        let select = parse("SEL R0, R1, R2, P0", 120);
        assert_eq!(raw(writer, p, guard(&branch), on(120)), 14);
        assert_eq!(raw(writer, p, reader(&select, p, Some(3), 0), on(120)), 6);
    }

    #[test]
    fn the_halves_of_wide_products_come_apart() {
        use RegFile::R;
        let wide = "IMAD.WIDE R4, R1, R2, R6";
        let (low, high) = ((wide, 0, 0), (wide, 0, 1));
        let (factor, addend) = (("IMAD.WIDE R8, R4, R4, R4", 2, 0), ("IMAD.WIDE R8, R4, R4, R4", 4, 0));
        let add = ("PRMT R5, R4, 0x7770, R2", 1, 0);
        assert_eq!([75, 80, 90, 120].map(|sm| raw_of(sm, R, low, add)), [5, 5, 3, 5]);
        assert_eq!([75, 80, 90, 120].map(|sm| raw_of(sm, R, high, add)), [5, 5, 5, 5]);
        assert_eq!([75, 80, 90, 120].map(|sm| raw_of(sm, R, high, factor)), [6, 6, 6, 7]);
        assert_eq!([75, 80, 90, 120].map(|sm| raw_of(sm, R, high, addend)), [6, 6, 4, 5]);
    }

    #[test]
    fn predicates_take_longer_to_guards_votes_and_half_precision() {
        let set = parse("ISETP.GT.AND P0, PT, R0, R1, PT", 90);
        let writer = writer(&set, Some(0), 0);
        let of = |text| {
            let inst = parse(text, 90);
            let at = inst.operands.iter().position(|o| o.as_reg().is_some_and(|r| r.reg == crate::Reg::p(0)));
            let reader = match at {
                Some(at) => reader(&inst, RegFile::P, Some(at as u8), 0),
                None => guard(&inst),
            };
            raw(writer, RegFile::P, reader, on(90))
        };
        assert_eq!(of("@P0 IADD3 R0, R1, R2, RZ"), 13);
        assert_eq!(of("@P0 HADD2 R0, R1, R2"), 16);
        assert_eq!(of("SEL R0, R1, R2, P0"), 4);
        assert_eq!(of("VOTE.ANY R0, PT, P0"), 13);
        assert_eq!(of("HSETP2.GT.AND P1, PT, R0, R1, P0"), 16);
    }

    #[test]
    fn a_uniform_move_waits_for_the_readers_of_its_register() {
        let (add, mov) = (parse("UIADD3 UR4, UR5, UR6, URZ", 90), parse("UMOV UR5, 0x1", 90));
        assert_eq!(war(class(&add), RegFile::UR, class(&mov), on(90)), 3);
        assert_eq!(war(class(&add), RegFile::UR, class(&add), on(90)), 2);
        assert_eq!(war(class(&add), RegFile::UR, class(&add), on(120)), 1);
        assert_eq!(waw(class(&add), RegFile::UR, class(&mov), on(90)), 7);
    }

    fn parse(text: &str, sm: u8) -> Inst {
        crate::parse_inst(text, on(sm)).unwrap_or_else(|e| panic!("{text}: {e}"))
    }
}
