//! Single instructions, with values from the PTX ISA's definitions, and small programs on the warp model.

use super::compile::{Action, Step};
use super::grid::{Grid, Kernel};
use super::image::Banks;
use super::reach::Reach;
use super::state::{Block, Env, Group, Machine, Warp};
use super::{Fault, SimError};
use crate::memory::Memory;
use sass::{Inst, Target};

const SM: u8 = 90;

fn inst(text: &str, sm: u8) -> Inst {
    sass::parse_inst(text, Target::new(sm).unwrap()).unwrap_or_else(|e| panic!("{e}"))
}

fn env(threads: u32) -> Env {
    Env {
        banks: Banks::default(),
        block: [threads, 1, 1],
        grid: [1; 3],
        cooperative: false,
        local: 16,
        shared: 64,
    }
}

fn block() -> Block {
    Block { shared: vec![vec![0; 64]], ..Block::new([0; 3], 0) }
}

/// Executes one instruction on a full warp that `setup` has prepared.
fn step_on(sm: u8, text: &str, setup: impl Fn(&mut Warp)) -> Result<Warp, Fault> {
    let (env, mut block, mut memory) = (env(32), block(), Memory::new());
    let mut warp = Warp::new(0, 32, 0, 16);
    setup(&mut warp);
    let step = Step::of(&inst(text, sm), &env.banks);
    let mask = step.guard.mask(&warp);
    match &step.action {
        Action::Exec(f) | Action::Jump(f) => {
            let memory = Reach::Alone(&mut memory);
            f(&mut Machine { warp: &mut warp, block: &mut block, memory, env: &env, check: None }, mask)?;
        }
        Action::Nothing | Action::Wait(_) => {}
        Action::Late(f, _) => {
            let memory = Reach::Alone(&mut memory);
            f(&mut Machine { warp: &mut warp, block: &mut block, memory, env: &env, check: None }, mask)?;
        }
        Action::Control(_) => panic!("{text}: control"),
        Action::Unsupported(what) | Action::Fault(what) => panic!("{text}: {what}"),
    }
    Ok(warp)
}

/// R2 … R5 (the same in all lanes) and P0, P1 in; R0, R1 and P2 of lane 7 out.
fn eval(text: &str, r: [u32; 4], p: [bool; 2]) -> (u32, u32, bool) {
    let w = step_on(SM, text, |w| {
        for (i, x) in r.iter().enumerate() {
            w.r[i + 2] = [*x; 32];
        }
        for (i, x) in p.iter().enumerate() {
            w.p[i] = if *x { u32::MAX } else { 0 };
        }
    })
    .unwrap();
    (w.r[0][7], w.r[1][7], w.p[2] >> 7 & 1 != 0)
}

fn value(text: &str, r: [u32; 4]) -> u32 {
    eval(text, r, [false; 2]).0
}

#[test]
fn integer_values() {
    let max = u32::MAX;
    let table: &[(&str, [u32; 4], u32)] = &[
        ("IADD3 R0, R2, -R3, R4", [10, 3, 5, 0], 12),
        ("IMAD R0, R2, R3, R4", [7, 6, 5, 0], 47),
        ("IMAD.MOV.U32 R0, RZ, RZ, R3", [0, 9, 0, 0], 9),
        ("IMAD.HI.U32 R0, R2, R3, R4", [max, max, 1, 5], 3),
        ("IMAD.WIDE R0, R2, R3, R4", [max, 5, 7, 0], 2),
        ("LEA R0, R2, R3, 0x2", [5, 1, 0, 0], 21),
        ("LEA.HI R0, R2, R3, R4, 0x4", [0x8000_0000, 1, 2, 0], 0x29),
        ("LOP3.LUT R0, R2, R3, R4, 0x96, !PT", [12, 10, 1, 0], 7),
        ("LOP3.LUT R0, R2, R3, R4, 0xe8, !PT", [12, 10, 9, 0], 8),
        ("SHF.L.U32 R0, R2, R3, RZ", [1, 33, 0, 0], 0),
        ("SHF.R.S32.HI R0, RZ, 0x1f, R2", [0x8000_0000, 0, 0, 0], max),
        ("SHF.R.U32.HI R0, RZ, 0x4, R2", [0x80, 0, 0, 0], 8),
        ("SHF.L.W.U32.HI R0, R2, R3, R4", [0x8000_0000, 33, 1, 0], 3),
        ("SHF.R.U64 R0, R2, R3, R4", [0, 4, 1, 0], 0x1000_0000),
        ("PRMT R0, R2, 0x7531, R3", [0x3322_1100, 0x7766_5544, 0, 0], 0x7755_3311),
        ("PRMT R0, R2, 0x8880, RZ", [0x80, 0, 0, 0], 0xffff_ff80),
        ("FLO.U32 R0, R2", [0x10, 0, 0, 0], 4),
        ("FLO.U32.SH R0, R2", [0x10, 0, 0, 0], 27),
        ("FLO.U32 R0, R2", [0; 4], max),
        ("POPC R0, R2", [0xf0f0, 0, 0, 0], 8),
        ("BREV R0, R2", [1, 0, 0, 0], 0x8000_0000),
        ("IABS R0, R2", [(-5i32) as u32, 0, 0, 0], 5),
        ("SGXT R0, R2, 0x8", [0x80, 0, 0, 0], 0xffff_ff80),
        ("SGXT.U32 R0, R2, 0x8", [0x1_80, 0, 0, 0], 0x80),
        ("VHMNMX R0, R2, R3, R4, !PT", [0x3c00_0000, 0x4000_3c00, 0x3800_4200, 0], 0x4000_4200),
        ("VIADD.16x2 R0, R2, -R3", [0x0005_0000, 0x0001_0001, 0, 0], 0x0004_ffff),
        // (1, 2) and -i times (1, 2): the low half is −2·1, the high one 1·1.
        ("HFMA2 R0, R2.H0_H0, R3.H0_NH1, RZ", [0x3c00, 0x4000_3c00, 0, 0], 0x3c00_c000),
        ("VIMNMX R0, R2, R3, PT", [1, (-1i32) as u32, 0, 0], max),
        ("VIMNMX R0, R2, R3, !PT", [1, (-1i32) as u32, 0, 0], 1),
    ];
    for (text, input, want) in table {
        assert_eq!(value(text, *input), *want, "{text}");
    }
}

#[test]
fn carries() {
    // 0 − 0 carries (no borrow), 0 − 1 does not.
    assert_eq!(eval("IADD3 R0, P2, R2, -R3, RZ", [0; 4], [false; 2]), (0, 0, true));
    assert_eq!(eval("IADD3 R0, P2, R2, -R3, RZ", [0, 1, 0, 0], [false; 2]), (u32::MAX, 0, false));
    assert_eq!(eval("IADD3.X R0, R2, ~R3, RZ, P0, !PT", [5, 3, 0, 0], [true, false]).0, 2);
    assert_eq!(eval("IADD3 R0, P2, R2, R3, RZ", [u32::MAX, 1, 0, 0], [false; 2]), (0, 0, true));
    let wide = eval("IMAD.WIDE.U32 R0, P2, R2, R3, R4", [1, 1, u32::MAX, u32::MAX], [false; 2]);
    assert_eq!(wide, (0, 0, true));
}

/// An H200 takes them for illegal instructions.
#[test]
fn two_signs_in_front_are_refused() {
    let refused = |text: &str| {
        let step = Step::of(&inst(text, SM), &env(32).banks);
        matches!(step.action, Action::Unsupported(_) | Action::Fault(_))
    };
    for text in ["IADD3 R0, -R2, -R3, R4", "IADD3.X R0, ~R2, ~R3, R4, P0, !PT", "UIADD3 UR4, -UR5, -UR6, URZ"]
    {
        assert!(refused(text), "{text}");
    }
    for text in ["IADD3 R0, R2, -R3, -R4", "IADD3 R0, -R2, R3, -R4", "IADD3.X R0, R2, ~R3, ~R4, P0, !PT"] {
        assert!(!refused(text), "{text}");
    }
}

#[test]
fn comparisons() {
    let holds = |text: &str, r, p| eval(text, r, p).2;
    assert!(holds("ISETP.LT.AND P2, PT, R2, R3, PT", [u32::MAX, 0, 0, 0], [false; 2]));
    assert!(!holds("ISETP.LT.U32.AND P2, PT, R2, R3, PT", [u32::MAX, 0, 0, 0], [false; 2]));
    // The low words decide where the high ones are equal.
    assert!(holds("ISETP.GT.U32.AND.EX P2, PT, R2, R3, PT, P0", [4, 4, 0, 0], [true, false]));
    assert!(!holds("ISETP.GT.U32.AND.EX P2, PT, R2, R3, PT, P0", [4, 4, 0, 0], [false, false]));
    let (nan, one) = (f32::NAN.to_bits(), 1f32.to_bits());
    assert!(!holds("FSETP.NE.AND P2, PT, R2, R3, PT", [nan, one, 0, 0], [false; 2]));
    assert!(holds("FSETP.NEU.AND P2, PT, R2, R3, PT", [nan, one, 0, 0], [false; 2]));
    assert!(holds("PLOP3.LUT P2, PT, P0, P1, PT, 0x80, 0x0", [0; 4], [true, true]));
    assert!(!holds("PLOP3.LUT P2, PT, P0, P1, PT, 0x80, 0x0", [0; 4], [true, false]));
}

#[test]
fn conversions() {
    let f = |x: f32| x.to_bits();
    assert_eq!(value("F2I.TRUNC.NTZ R0, R2", [f(-2.7), 0, 0, 0]), (-2i32) as u32);
    assert_eq!(value("F2I.TRUNC.NTZ R0, R2", [f(f32::NAN), 0, 0, 0]), 0);
    assert_eq!(value("F2I.U32.TRUNC.NTZ R0, R2", [f(1e20), 0, 0, 0]), u32::MAX);
    assert_eq!(value("I2F.RP R0, R2", [16_777_217, 0, 0, 0]), f(16_777_218.0));
    assert_eq!(value("FRND.FLOOR R0, R2", [f(-0.5), 0, 0, 0]), f(-1.0));
    assert_eq!(value("FADD.RM R0, R2, -R3", [f(1.0), f(1.0), 0, 0]), f(-0.0));
    assert_eq!(value("F2IP.U8.F32.NTZ R0, R2, R3, R4", [f(1.6), f(300.0), 0xabc, 0]), 0xabc_02ff);
    for text in ["HADD2 R0, -RZ.H0_H0, R2.F32", "HADD2 R0, R2.F32, -RZ.H0_H0"] {
        let converted = step_on(75, text, |w| w.r[2] = [f(1.0); 32]).unwrap();
        assert_eq!(converted.r[0][7], 0x3c00_3c00);
    }
    assert_eq!(value("MUFU.RCP R0, R2", [f(4.0), 0, 0, 0]), f(0.25));
}

#[test]
fn shuffles_and_votes() {
    let lanes = |w: &mut Warp| (0..32).for_each(|l| w.r[2][l] = l as u32);
    let w = step_on(SM, "SHFL.UP P2, R0, R2, 0x1, RZ", lanes).unwrap();
    assert_eq!((w.r[0][0], w.r[0][31], w.p[2]), (0, 30, 0xffff_fffe));
    let w = step_on(SM, "SHFL.BFLY PT, R0, R2, 0x10, 0x1f", lanes).unwrap();
    assert_eq!((w.r[0][0], w.r[0][31]), (16, 15));
    let w = step_on(SM, "VOTE.ANY R0, PT, P0", |w| w.p[0] = 0xf0).unwrap();
    assert_eq!(w.r[0], [0xf0; 32]);
    let fault = step_on(SM, "LDS R0, [R2]", |w| w.r[2] = [62; 32]).err().unwrap();
    assert!(fault.what.contains("misaligned"), "{}", fault.what);
    let fault = step_on(SM, "LDS R0, [R2]", |w| w.r[2] = [64; 32]).err().unwrap();
    assert!(fault.what.contains("beyond"), "{}", fault.what);
}

/// Runs a program on one block; the address and mask of each instruction issued.
fn program(threads: u32, lines: &[&str]) -> Result<Vec<(u32, u32)>, SimError> {
    in_turns(threads, lines, 1)
}

/// The same, in turns of some length, whose first instructions are noted.
fn in_turns(threads: u32, lines: &[&str], turn: u32) -> Result<Vec<(u32, u32)>, SimError> {
    let (env, mut block, mut memory) = (env(threads), block(), Memory::new());
    let code: super::Code = lines.iter().map(|l| Ok(inst(l, SM))).collect();
    let steps: Vec<Step> = code.iter().map(|i| Step::of(i.as_ref().unwrap(), &env.banks)).collect();
    let mut warp = Warp::new(0, threads, 0, 16);
    warp.p[0] = 0xffff;
    super::uniform::know_all(&mut warp);
    let target = Target::new(SM).unwrap();
    let options = super::Options { strict_uniform: true, ..Default::default() };
    let kernel =
        Kernel { target, code: &code, steps: &steps, env: &env, options, entry: 0, registers: 0, held: None };
    let mut grid = Grid::new(kernel, Reach::Alone(&mut memory));
    let mut trace = Vec::new();
    for _ in 0..1000 {
        let Some(Group { mask, pc, .. }) = warp.groups.last().cloned() else { break };
        trace.push((pc / 16, mask));
        grid.turn(&mut warp, &mut block, turn)?;
    }
    Ok(trace)
}

#[test]
fn only_barriers_reconverge() {
    let lines = ["@P0 BRA 0x20", "NOP", "NOP", "EXIT"];
    let at_exit = |t: &[(u32, u32)]| t.iter().filter(|s| s.0 == 3).map(|s| s.1).collect::<Vec<_>>();
    let apart = at_exit(&program(32, &lines).unwrap());
    assert_eq!(apart.len(), 2);
    let lines = ["BSSY B0, 0x40", "@P0 BRA 0x30", "NOP", "BSYNC B0", "EXIT"];
    let trace = program(32, &lines).unwrap();
    assert_eq!(trace.last(), Some(&(4, u32::MAX)));
    // Lanes that leave by BREAK or EXIT are not waited for.
    let lines = ["BSSY B0, 0x50", "@P0 BREAK B0", "@P0 BRA 0x40", "BSYNC B0", "EXIT", "EXIT"];
    let trace = program(32, &lines).unwrap();
    assert!(trace.contains(&(4, 0xffff_0000)) && trace.contains(&(4, 0xffff)));
    // A warp that is not of one mind stays together.
    let lines = ["@P0 BRA.U 0x20", "NOP", "EXIT"];
    assert_eq!(program(32, &lines).unwrap(), [(0, u32::MAX), (1, u32::MAX), (2, u32::MAX)]);
    assert_eq!(program(16, &lines).unwrap(), [(0, 0xffff), (2, 0xffff)]);
    let lines = ["@P0 EXIT", "WARPSYNC.ALL", "EXIT"];
    assert_eq!(program(32, &lines).unwrap().last(), Some(&(2, 0xffff_0000)));
}

#[test]
fn turns_do_not_disturb_uniform_registers() {
    // What lanes wrote before they waited stays, also where others go on whose turn had ended before.
    for guard in ["@P0", "@!P0"] {
        let branch = format!("{guard} BRA 0x60");
        let lines = [
            &branch,
            "NOP",
            "UMOV UR4, 0x5",
            "YIELD",
            "IADD3 R0, R0, UR4, RZ",
            "EXIT",
            "NOP",
            "NOP",
            "NOP",
            "EXIT",
        ];
        for turn in 1..12 {
            in_turns(32, &lines, turn).unwrap_or_else(|e| panic!("{guard}, {turn}: {e}"));
        }
    }
}

#[test]
fn lanes_whose_turn_ended_undo_nothing() {
    // Those that leave had written nothing when their turn ended: what the others wrote meanwhile stays.
    for guard in ["@P0", "@!P0"] {
        let branch = format!("{guard} BRA 0x70");
        let lines = [
            "BSSY B0, 0x50",
            &branch,
            "NOP",
            "UMOV UR4, 0x5",
            "BSYNC B0",
            "IADD3 R0, R0, UR4, RZ",
            "EXIT",
            "NOP",
            "NOP",
            "NOP",
            "NOP",
            "EXIT",
        ];
        for turn in 1..16 {
            in_turns(32, &lines, turn).unwrap_or_else(|e| panic!("{guard}, {turn}: {e}"));
        }
    }
}

#[test]
fn warps_arrive_as_a_whole() {
    // The lanes are never brought together again.
    let lines = ["@P0 BRA 0x20", "NOP", "BAR.SYNC.DEFER_BLOCKING 0x0", "EXIT"];
    let error = program(32, &lines).unwrap_err().to_string();
    assert!(error.contains("16 of the 32 threads of the warp arrive"), "{error}");
    let lines = ["@P0 BAR.ARV 0x1, 0x40", "EXIT"];
    assert!(program(32, &lines).unwrap_err().to_string().contains("16 of the 32"));
    // They are, or the others have ended.
    let lines = ["@P0 BRA 0x20", "NOP", "WARPSYNC.ALL", "BAR.ARV 0x1, 0x40", "EXIT"];
    assert_eq!(program(32, &lines).unwrap().last(), Some(&(4, u32::MAX)));
    let lines = ["@!P0 BRA 0x20", "EXIT", "WARPSYNC.ALL", "BAR.ARV 0x1, 0x40", "EXIT"];
    assert_eq!(program(32, &lines).unwrap().last(), Some(&(4, 0xffff_0000)));
    assert_eq!(program(16, &["BAR.ARV 0x1, 0x40", "EXIT"]).unwrap().last(), Some(&(1, 0xffff)));
}

#[test]
fn masks_keep_lanes_apart_only_where_that_is_asked_for() {
    // P0 tells the halves of the warp apart, R2 and R3 are their masks.
    let lines = |sync: &'static str| ["MOV R2, 0xffff", "@!P0 MOV R2, 0xffff0000", sync, "NOP", "EXIT"];
    let at_nop = |sync| -> Vec<u32> {
        let trace = in_turns(32, &lines(sync), 1).unwrap();
        trace.iter().filter(|s| s.0 == 3).map(|s| s.1).collect()
    };
    assert_eq!(at_nop("WARPSYNC R2"), [u32::MAX]);
    let mut apart = at_nop("WARPSYNC.EXCLUSIVE R2");
    apart.sort_unstable();
    assert_eq!(apart, [0xffff, 0xffff_0000]);
}

#[test]
fn lanes_execute_collectively_what_they_reach_at_different_places() {
    let lines = [
        "@P0 BRA 0x50",
        "WARPSYNC.COLLECTIVE.ALL 0x40",
        "BAR.ARV 0x1, 0x40",
        "ENDCOLLECTIVE",
        "EXIT",
        "WARPSYNC.COLLECTIVE.ALL 0x80",
        "BAR.ARV 0x1, 0x40",
        "ENDCOLLECTIVE",
        "EXIT",
    ];
    let trace = program(32, &lines).unwrap();
    assert_eq!(trace.iter().filter(|s| s.1 == u32::MAX).count(), 3, "{trace:?}");
    assert!(trace.contains(&(4, 0xffff_0000)) && trace.contains(&(8, 0xffff)), "{trace:?}");
}

#[test]
fn signs_of_uniform_registers() {
    let sign = |text: &str, up: bool| {
        let w = step_on(SM, text, |w| {
            (w.ur[4], w.ur[5], w.ur[6], w.up[1]) = (1 << 31, 0, u32::MAX, up);
        });
        w.unwrap().up[0]
    };
    // Only a and c: 5 of the table.
    assert!(sign("UPLOP3.LUT UP0, UPT, UR4.SIGN, UR5.SIGN, UR6.SIGN, 0x20, 0x0", false));
    assert!(!sign("UPLOP3.LUT UP0, UPT, UR4.SIGN, UR4.SIGN, UR6.SIGN, 0x20, 0x0", false));
}

#[test]
fn all_leave_together_where_lanes_are_missing() {
    // The guard of some lanes doesn't hold: they are not among those that BRA.DIV finds, but go along.
    let lines = ["UMOV UR4, 0xffffffff", "@P0 BRA.DIV UR4, 0x30", "EXIT", "EXIT"];
    assert_eq!(program(32, &lines).unwrap().last(), Some(&(3, u32::MAX)));
    let lines = ["UMOV UR4, 0xffff", "@P0 BRA.DIV UR4, 0x30", "EXIT", "EXIT"];
    assert_eq!(program(32, &lines).unwrap().last(), Some(&(2, u32::MAX)));
}

/// What the warp executes once takes the words of the lane that made them, the others having made none; not those of one of several.
#[test]
fn an_elected_lane_speaks_for_the_warp() {
    let copy = "UBLKPF.L2 [UR4], UR6";
    let run = |lines: &[&str]| in_turns(32, lines, 100).map_err(|e| e.to_string());
    let elected = [
        "S2R R0, SR_LANEID",
        "ELECT P0, URZ, PT",
        "@P0 R2UR UR4, R0",
        "@P0 R2UR UR5, R0",
        "UMOV UR6, 0x10",
        copy,
        "EXIT",
    ];
    let strange =
        |r: Result<_, String>| r.err().is_some_and(|e: String| e.contains("holds what other lanes wrote"));
    assert!(!strange(run(&elected).map(|_| ())));
    let all = ["S2R R0, SR_LANEID", "R2UR UR4, R0", "R2UR UR5, R0", "UMOV UR6, 0x10", copy, "EXIT"];
    assert!(strange(run(&all).map(|_| ())));
}

#[test]
fn lanes_apart_do_not_share_uniform_registers() {
    let lines =
        ["UMOV UR4, 0x5", "@P0 BRA 0x20", "UIADD3 UR4, UR4, -0x1, URZ", "UIADD3 UR4, UR4, -0x1, URZ", "EXIT"];
    // Wherever turns end, which no warp knows, and so also where one ends at the branch.
    for turn in [1, 2, 3, 100] {
        let error = in_turns(32, &lines, turn).unwrap_err().to_string();
        assert!(error.contains("UR4 holds what other lanes wrote"), "{turn}: {error}");
    }
    // The same value is nobody's.
    let lines = ["UMOV UR4, 0x5", "@P0 BRA 0x20", "UMOV UR4, 0x5", "UIADD3 UR5, UR4, -0x1, URZ", "EXIT"];
    assert!(in_turns(32, &lines, 100).is_ok());
}

/// A warp is given what another gave back, and no more.
#[test]
fn warps_give_registers_to_others() {
    let (env, mut block) = (env(32), block());
    let mut change = |warp: &mut Warp, text: &str| -> Result<bool, String> {
        let step = Step::of(&inst(text, 90), &env.banks);
        let Action::Exec(f) = &step.action else { panic!("{text}") };
        let mut memory = Memory::new();
        let memory = Reach::Alone(&mut memory);
        let mut m = Machine { warp, block: &mut block, memory, env: &env, check: None };
        f(&mut m, u32::MAX).map_err(|f| f.what)?;
        Ok(warp.up[0])
    };
    let [mut few, mut many] = [0, 1].map(|n| Warp { held: 168, ..Warp::new(n, 32, 0, 16) });
    let asks = "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0";
    assert_eq!(change(&mut many, asks), Ok(false));
    assert_eq!((many.held, many.asked, many.r[167][0]), (168, Some(240), 0));
    few.r[21] = [5; 32];
    change(&mut few, "USETMAXREG.DEALLOC.CTAPOOL 0x18").unwrap();
    assert_eq!((few.held, few.r[21][0]), (24, 5));
    assert_ne!(few.r[22][0], 0, "it is anything");
    assert!(super::pool::excess(22, &few).is_ok() && super::pool::excess(23, &few).is_err());
    assert_eq!(change(&mut many, asks), Ok(true));
    assert_eq!((many.held, many.asked), (240, None));
    assert!(super::pool::excess(238, &many).is_ok() && super::pool::excess(239, &many).is_err());
    // 72 are left.
    assert_eq!(change(&mut few, "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0x68"), Ok(false));
    assert_eq!(change(&mut few, "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0x60"), Ok(true));
    assert!(change(&mut few, asks.replace("f0", "20").as_str()).unwrap_err().contains("the warp holds 96"));
    assert!(change(&mut few, "USETMAXREG.DEALLOC.CTAPOOL 0x68").unwrap_err().contains("104 of 96"));
}

/// The hardware keeps two of the registers that a file states.
#[test]
fn registers_beyond_those_stated_are_refused() {
    let banks = Banks::default();
    let needs = |text: &str, stated: u32| super::excess(&inst(text, SM), stated, &banks).is_some();
    assert!(!needs("MOV R13, 0x1", 16));
    assert!(needs("MOV R14, 0x1", 16));
    assert!(needs("LDG.E.64 R2, desc[UR4][R13.64]", 16), "the upper half of an address is R14");
    assert!(needs("LDC.64 R13, c[0x0][0x210]", 16));
    assert!(!needs("EXIT", 0));
    // A fetch needs of its vectors what it fills: a coordinate and a level, or two coordinates; two channels of four.
    assert!(!needs("TEX.LL RZ, R12, R12, R13, UR4, 0x0, 2D, 0x3", 16));
    assert!(needs("TEX.LL RZ, R12, R12, R13, UR4, 0x0, 3D, 0x3", 16));
    assert!(!needs("SULD.D.BA.1D.U16.STRONG.SM R13, [R13], UR4, 0x0", 16));
    assert!(needs("SULD.D.BA.2D.64.STRONG.SM R14, [R12], UR4, 0x0", 16));
}

/// What the host computes for all lanes at once is what the exact definitions say.
#[test]
fn conversions_and_sums_agree_with_their_definitions() {
    use crate::fp::{self, F32, F64, Round, Single};
    let edges = [
        0u32,
        1,
        0x7f_ffff,
        0x80_0000,
        0x80_0001,
        0x3eff_ffff,
        0x3f00_0000,
        0x3f80_0000,
        0x3fc0_0000,
        0x4020_0000,
    ];
    let large = [
        0x4b00_0001,
        0x4eff_ffff,
        0x4f00_0000,
        0x4f7f_ffff,
        0x4f80_0000,
        0x7f7f_ffff,
        0x7f80_0000,
        0x7fc0_1234,
    ];
    let mut rng = crate::launch::Rng::new(7);
    let all: Vec<u32> = edges.iter().chain(&large).flat_map(|x| [*x, x | 1 << 31]).collect();
    let random: Vec<u32> = (0..200).map(|_| rng.next() as u32).collect();
    let int = |x: u32, rm: Round, signed: bool| {
        let (min, max) = if signed { (-(1i128 << 31), (1i128 << 31) - 1) } else { (0, (1i128 << 32) - 1) };
        fp::to_int(x.into(), F32, rm).map_or(0, |n| n.clamp(min, max) as u32)
    };
    for x in all.iter().chain(&random).copied() {
        let one = |text: &str| value(text, [x, 0, 0, 0]);
        let two = |text: &str| {
            let (low, high, _) = eval(text, [x, x.rotate_left(9), 0, 0], [false; 2]);
            u64::from(low) | u64::from(high) << 32
        };
        assert_eq!(one("I2F R0, R2"), fp::from_int((x as i32).into(), F32, Round::Nearest) as u32, "{x:#x}");
        assert_eq!(one("I2F.U32 R0, R2"), fp::from_int(x.into(), F32, Round::Nearest) as u32, "{x:#x}");
        assert_eq!(two("I2F.F64 R0, R2"), fp::from_int((x as i32).into(), F64, Round::Nearest), "{x:#x}");
        assert_eq!(two("I2F.F64.U32 R0, R2"), fp::from_int(x.into(), F64, Round::Nearest), "{x:#x}");
        assert_eq!(one("F2I.NTZ R0, R2"), int(x, Round::Nearest, true), "{x:#x}");
        assert_eq!(one("F2I.TRUNC.NTZ R0, R2"), int(x, Round::Zero, true), "{x:#x}");
        assert_eq!(one("F2I.FLOOR.NTZ R0, R2"), int(x, Round::Down, true), "{x:#x}");
        assert_eq!(one("F2I.U32.CEIL.NTZ R0, R2"), int(x, Round::Up, false), "{x:#x}");
        assert_eq!(one("F2I.U32.TRUNC.NTZ R0, R2"), int(x, Round::Zero, false), "{x:#x}");
        assert_eq!(one("FRND R0, R2"), fp::round_integral(x.into(), F32, Round::Nearest) as u32, "{x:#x}");
        assert_eq!(one("FRND.FLOOR R0, R2"), fp::round_integral(x.into(), F32, Round::Down) as u32, "{x:#x}");
        assert_eq!(two("F2F.F64.F32 R0, R2"), fp::convert(x.into(), F32, F64, Round::Nearest), "{x:#x}");
        let wide = u64::from(x) | u64::from(x.rotate_left(9)) << 32;
        assert_eq!(
            two("F2F.F32.F64 R0, R2") as u32,
            fp::convert(wide, F64, F32, Round::Nearest) as u32,
            "{wide:#x}"
        );
        for y in edges.iter().chain(&large).copied() {
            let pair = |text: &str| value(text, [x, y, x ^ y, 0]);
            for (ftz, sat) in [(false, false), (true, false), (true, true)] {
                let op = Single { ftz, sat, ..Single::default() };
                let mods = format!("{}{}", if ftz { ".FTZ" } else { "" }, if sat { ".SAT" } else { "" });
                assert_eq!(pair(&format!("FADD{mods} R0, R2, R3")), op.add(x, y), "{x:#x} {y:#x} {mods}");
                assert_eq!(pair(&format!("FMUL{mods} R0, R2, R3")), op.mul(x, y), "{x:#x} {y:#x} {mods}");
                let fma = pair(&format!("FFMA{mods} R0, R2, R3, R4"));
                assert_eq!(fma, op.fma(x, y, x ^ y), "{x:#x} {y:#x} {mods}");
            }
        }
    }
}
