//! Random SSA programs under high register pressure: every allocation must pass the checker.

mod programs;

use backend::pool::{self, Grants};
use backend::regalloc::{Allocation, Error, Limits, allocate, checker};
use cranelift_entity::EntityRef;
use ori::cfg::Cfg;
use ori::{Block, Builder, Function, InstData, Macro, Op, Operand, Terminator, operand};
use programs::{Rng, program, program_with, tight};
use proptest::prelude::*;
use sass::{Mod, Mods, Opcode, Reg, RegFile};
use thin_vec::ThinVec;

/// Programs per size in the fixed sweep.
const SEEDS: u64 = 100;

fn allocates(func: &Function, limits: &Limits) -> Result<(), String> {
    if let Err(e) = ori::verify::verify(func) {
        return Err(format!("bad program: {}", e.join("\n")));
    }
    let stats = allocate(func.clone(), limits).map_err(|e| format!("{e}\n{func}"))?.stats;
    if stats.regs_used > u16::from(limits.regs_r) {
        return Err(format!("{} registers", stats.regs_used));
    }
    Ok(())
}

/// Uniform predicates of which many look for their registers anew before all have one.
#[test]
fn many_uniform_predicates_make_room() {
    let func = program_with(14236189973544291601, 16, 17, 0, 72, 64);
    assert_eq!(allocates(&func, &Limits { upreds: 5, regs_r: 22, ..tight() }), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_under_pressure(seed: u64, blocks in 2usize..12, steps in 1usize..40, far in 0usize..100) {
        prop_assert_eq!(allocates(&program(seed, blocks, steps, far), &tight()), Ok(()));
    }

    /// Predicates that are kept in general registers, which are short themselves.
    #[test]
    fn random_programs_with_few_predicates(seed: u64, blocks in 2usize..16, steps in 1usize..60, far in 0usize..100) {
        let limits = Limits { preds: 4, ..tight() };
        prop_assert_eq!(allocates(&program(seed, blocks, steps, far), &limits), Ok(()));
    }

    /// Loops that pass on more predicates than there are registers for, in any order.
    #[test]
    fn random_programs_of_predicates(
        seed: u64,
        blocks in 2usize..24,
        steps in 1usize..40,
        far in 0usize..100,
        predicates in 10usize..95,
        preds in 4u8..8,
        regs_r in 22u8..32,
        uregs in 10u8..64,
    ) {
        let func = program_with(seed, blocks, steps, far, predicates, 0);
        prop_assert_eq!(allocates(&func, &Limits { preds, regs_r, uregs, ..tight() }), Ok(()));
    }

    /// The same with uniform ones, which are kept in others.
    #[test]
    fn random_programs_of_uniform_predicates(
        seed: u64,
        blocks in 2usize..24,
        steps in 1usize..40,
        far in 0usize..100,
        predicates in 10usize..95,
        uniform in 10usize..90,
        upreds in 4u8..8,
        regs_r in 22u8..32,
    ) {
        let func = program_with(seed, blocks, steps, far, predicates, uniform);
        prop_assert_eq!(allocates(&func, &Limits { upreds, regs_r, ..tight() }), Ok(()));
    }

    /// Nothing may leave its register for memory: that fits, or it is an error.
    #[test]
    fn random_programs_without_slots(seed: u64, blocks in 2usize..12, steps in 1usize..30, far in 0usize..100, regs_r in 22u8..64) {
        let func = program(seed, blocks, steps, far);
        match allocate(func, &Limits { regs_r, spills: false, ..tight() }) {
            Ok(Allocation { stats, .. }) => prop_assert_eq!((stats.spill_store_bytes, stats.spill_load_bytes), (0, 0)),
            Err(e) => prop_assert!(matches!(e, Error::Pressure(_)), "{}", e),
        }
    }

    #[test]
    fn random_programs_with_room(seed: u64, blocks in 2usize..12, steps in 1usize..20, far in 0usize..100) {
        let func = program(seed, blocks, steps, far);
        prop_assert_eq!(allocates(&func, &Limits::of(&func)), Ok(()));
    }
}

/// Where one uniform register after the other found no room, what was left could not be coloured either.
#[test]
fn uniform_registers_that_find_no_room() {
    for (seed, blocks, steps, far, predicates, uniform) in
        [(458608622836079802, 20, 21, 1, 27, 68), (12379008329996200214, 13, 37, 47, 10, 19)]
    {
        let func = program_with(seed, blocks, steps, far, predicates, uniform);
        assert_eq!(allocates(&func, &Limits { upreds: 4, regs_r: 22, ..tight() }), Ok(()), "{seed}");
    }
}

/// Gives registers back here and there, and asks for some.
fn with_pool(mut func: Function, seed: u64) -> Function {
    let mut rng = Rng::new(seed);
    let plain = |op, mods: &[Mod], operands| InstData {
        guard: ori::ALWAYS,
        op,
        mods: Mods::of(mods),
        operands,
        kept: ThinVec::new(),
        loc: ori::Loc::default(),
    };
    func.max_regs = 64;
    for b in func.layout.clone() {
        let n = Operand::Imm(24 + 8 * rng.below(6) as u32);
        if rng.chance(40) {
            let give = plain(Op::Sass(Opcode::USETMAXREG), &[Mod::DEALLOC, Mod::CTAPOOL], ThinVec::from([n]));
            let give = func.insts.push(give);
            let at = rng.below(func.blocks[b].insts.len() + 1);
            func.blocks[b].insts.insert(at, give);
        }
        let n = Operand::Imm(64 + 8 * rng.below(9) as u32);
        if let (Terminator::Jump(t), true) = (func.blocks[b].term.clone(), rng.chance(60)) {
            let asks = func.add_block();
            let (granted, copy) = (func.add_value(RegFile::UP, 1), func.add_value(RegFile::P, 1));
            let ask = ThinVec::from([operand(granted), n]);
            let ask = plain(Op::Sass(Opcode::USETMAXREG_ALLOC), &[Mod::TRY_ALLOC, Mod::CTAPOOL], ask);
            let copied = plain(Op::Macro(Macro::Copy), &[], ThinVec::from([operand(copy), operand(granted)]));
            func.blocks[asks].insts = vec![func.insts.push(ask), func.insts.push(copied)];
            let (taken, fall) = (t, Builder::call(asks));
            func.blocks[asks].term = Terminator::Branch { cond: copy.into(), not: false, taken, fall };
            func.blocks[b].term = Terminator::Jump(Builder::call(asks));
        }
    }
    pool::divide(&mut func);
    func
}

/// Whether all of a block names what the warp holds there.
fn within(func: &Function) -> Result<(), String> {
    allocates(func, &Limits { check: true, ..Limits::of(func) })?;
    let cfg = Cfg::new(func);
    let Some(grants) = Grants::new(func, &cfg) else { return Ok(()) };
    let after = allocate(func.clone(), &Limits::of(func)).map_err(|e| e.to_string())?.func;
    for &b in &cfg.rpo {
        for i in &after.blocks[b].insts {
            let d = &after.insts[*i];
            let mut most = 0;
            let mut note = |r: Reg, w: u8| {
                if r.file == RegFile::R && !r.is_zero() {
                    most = most.max(r.index + w);
                }
            };
            backend::liveness::for_each_use(&after, d, &mut note);
            backend::liveness::for_each_def(&after, d, &mut note);
            if most > grants.named(b) {
                return Err(format!("{b} names {most} of {}: {}\n{func}", grants.named(b), after));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_that_give_registers_back(
        seed: u64,
        blocks in 2usize..16,
        steps in 1usize..60,
        far in 0usize..100,
    ) {
        prop_assert_eq!(within(&with_pool(program(seed, blocks, steps, far), seed)), Ok(()));
    }
}

/// Where ways meet, the fewest are held; what was asked for is there where it was granted.
#[test]
fn blocks_hold_what_all_ways_leave() {
    let mut func = ori::parse::parse(
        "function k sm_90 entry regs=168 {
block0:
    v0:P = ISETP.EQ.AND PT, RZ, 0x1, PT, PT
    branch v0, block1, block2
block1:
    WARPSYNC PT, 0xffffffff
    USETMAXREG.DEALLOC.CTAPOOL 0x28
    MEMBAR.SC.GPU
    jump block4
block2:
    v1:UP = USETMAXREG.ALLOC.TRY_ALLOC.CTAPOOL 0xf0
    v2:P = copy v1
    branch !v2, block2, block3
block3:
    branch v0, block4, block5
block4:
    exit
block5:
    exit
}
",
    )
    .unwrap_or_else(|e| panic!("{e}"));
    pool::divide(&mut func);
    let grants = Grants::new(&func, &Cfg::new(&func)).expect("some");
    let held: Vec<u8> = (0..6).map(|b| grants.held(Block::new(b))).collect();
    assert_eq!(held, [168, 40, 168, 240, 40, 240]);
    assert_eq!(
        (pool::most(&func), grants.named(Block::new(1)), grants.share(Block::new(1), 119)),
        (240, 38, 19)
    );
}

/// A fixed sweep; of the programs that fail, the shortest is shown.
#[test]
fn many_seeds() {
    let mut failures: Vec<String> = Vec::new();
    for (blocks, steps) in [(4, 12), (3, 30), (9, 37), (6, 8), (5, 30)] {
        for seed in 0..SEEDS {
            let func = program(seed, blocks, steps, (seed * 7 % 100) as usize);
            failures.extend(allocates(&func, &tight()).err());
        }
    }
    if let Some(shortest) = failures.iter().min_by_key(|f| f.len()) {
        panic!("{} failures; the shortest:\n{shortest}", failures.len());
    }
}

/// Programs that once failed, each by its seed and shape: predicates of a hundred, and registers.
#[test]
fn programs_that_failed() {
    // A slot that the end of the block had stored to was loaded behind that.
    let changed = (
        program_with(12_020_228_648_381_941_819, 20, 26, 64, 38, 0),
        Limits { preds: 4, regs_r: 22, ..tight() },
    );
    // Tuples of three, and constants, stayed in registers until the end of the block.
    let tuples = (
        program_with(16_113_115_546_093_569_948, 10, 35, 37, 33, 0),
        Limits { preds: 4, regs_r: 22, ..tight() },
    );
    let constants = (
        program_with(11_178_544_939_141_134_898, 8, 22, 0, 10, 0),
        Limits { preds: 4, regs_r: 22, ..tight() },
    );
    // Many places hold the same, which other ways of keeping what is known of them lose.
    let equal = (
        program_with(15_183_903_280_446_957_503, 16, 34, 12, 75, 0),
        Limits { preds: 4, regs_r: 22, uregs: 10, ..tight() },
    );
    for (func, limits) in [changed, tuples, constants, equal] {
        assert_eq!(allocates(&func, &limits), Ok(()));
    }
}

/// A product of matrices in tensor memory names both words of a pair, which have to be neighbours also where the pair was spilled.
#[test]
fn words_of_spilled_pairs_stay_together() {
    let mut text = "function k sm_100a entry local=0 shared=0 barriers=0 regs=255 {\nblock0:\n".to_string();
    for n in 0..12 {
        text += &format!(
            "    v{n}:UR2 = LDCU.64 c[0x0][{:#x}]\n    v{}:UR2 = UMOV.64 v{n}\n",
            0x380 + 8 * n,
            20 + n
        );
    }
    for _ in 0..2 {
        for n in 20..32 {
            let next = 20 + (n - 19) % 12;
            text += &format!("    UTCHMMA [v20], [v{next}], [v21.0], [v{n}], [v{n}.1], URZ, UPT, 0x0\n");
        }
    }
    text += "    exit\n}\n";
    let func = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let limits = Limits { uregs: 12, ..Limits::of(&func) };
    let text = allocate(func, &limits).unwrap().to_string();
    let mut products = 0;
    for line in text.lines().filter(|l| l.contains("UTCHMMA")) {
        let registers: Vec<u32> =
            line.split("[UR").skip(1).map(|l| l.split(']').next().unwrap().parse().unwrap()).collect();
        assert_eq!(registers.len(), 5, "{line}");
        assert_eq!(registers[4], registers[3] + 1, "{line}");
        products += 1;
    }
    assert_eq!(products, 24);
}

/// A barrier that lanes leave by BREAK is for one region alone, though the next begins behind its meeting.
#[test]
fn barriers_that_lanes_leave_are_for_one_region() {
    let region = |n: u32, p: u32| {
        let [b0, b1, b2, b3] = [0, 1, 2, 3].map(|k| 4 * n + k);
        let next = 4 * n + 4;
        format!(
            "block{b0}:\n    v{p}:B = BSSY block{b2}\n    branch v1, block{b1}, block{b2}\nblock{b1}:\n    @v1 BREAK PT, v{p}\n    \
             branch v1, block{b3}, block{b2}\nblock{b2}:\n    BSYNC PT, v{p}\n    jump block{b3}\nblock{b3}:\n    jump block{next}\n"
        )
    };
    let head = "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {\nblock99:\n    v0:R = S2R SR_TID.X\n    \
                v1:P = ISETP.GT.AND PT, v0, 0x5, PT, PT\n    jump block0\n";
    let text = format!("{head}{}{}block8:\n    exit\n}}\n", region(0, 2), region(1, 3));
    let func = ori::parse::parse(&text).unwrap();
    let limits = Limits::of(&func);
    let mut done = allocate(func.clone(), &limits).unwrap();
    checker::check(&func, &done.func, &limits).unwrap();
    for d in done.func.insts.values_mut() {
        for o in &mut d.operands {
            if let Operand::Reg(r) = o
                && r.reg.file == RegFile::B
            {
                r.reg.index = 0;
            }
        }
    }
    let wrong = checker::check(&func, &done.func, &limits).unwrap_err().to_string();
    assert!(wrong.contains("is set in two places"), "{wrong}");
}

/// Twelve uniform predicates at once: none fails for want of a move, and those in registers are not more than there are.
#[test]
fn many_uniform_predicates() {
    let compare = |n: u32| format!("    v{}:UP = UISETP.LT.AND UPT, v0, {n:#x}, UPT, UPT\n", n + 1);
    let choose = |n: u32| {
        format!("    v{}:UR = USEL v{}, URZ, v{}\n", 20 + n, if n == 0 { 0 } else { 19 + n }, 12 - n)
    };
    let text = format!(
        "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{\nblock0:\n    v0:UR = ULDC c[0x0][0x210]\n{}{}    \
         v40:R = copy v31\n    STG.E desc[URZ][RZ.64], v40\n    exit\n}}\n",
        (0..12).map(compare).collect::<String>(),
        (0..12).map(choose).collect::<String>(),
    );
    let func = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let limits = Limits { check: true, ..Limits::of(&func) };
    assert_eq!(allocates(&func, &limits), Ok(()));
}
