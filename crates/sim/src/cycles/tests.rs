//! Chains of dependent instructions, whose cost is that of published measurements (docs/cycles.md).

use super::scheduler::run;
use super::{Kernel, Machine, Reason, Report};
use crate::sass::trace::{Issue, Trace, WarpTrace, Work};
use sass::{Control, Inst, Target};

/// An instruction with its stall count, write scoreboard and wait mask.
type Line = (&'static str, u8, Option<u8>, u8);

/// Warps that each run the lines so often; `work` is what each load asks of memory.
fn time(sm: u8, lines: &[Line], times: usize, warps: u32, work: &Work) -> Report {
    let target = Target::new(sm).unwrap();
    let parse = |text: &str| sass::parse_inst(text, target).unwrap_or_else(|e| panic!("{text}: {e}"));
    let insts: Vec<Inst> = lines.iter().map(|l| parse(l.0)).collect();
    let control = |l: &Line| Control { stall: l.1, write_sb: l.2, wait: l.3, ..Control::default() };
    let kernel = Kernel {
        sm,
        insts: insts.into_iter().map(Some).collect(),
        controls: lines.iter().map(control).collect(),
        registers: 32,
        shared: 0,
        threads: 32 * warps,
    };
    let issue = |k: usize| {
        let loads = lines[k].0.starts_with("LD");
        Issue { pc: 16 * k as u32, lanes: u32::MAX, work: if loads { work.clone() } else { Work::None } }
    };
    let issues: Vec<Issue> = (0..times).flat_map(|_| (0..lines.len()).map(issue)).collect();
    let warp = |warp| WarpTrace { block: [0; 3], warp, issues: issues.clone() };
    let mut trace = Trace::default();
    trace.warps.extend((0..warps).map(warp));
    let machine = Machine::of(sm);
    Report::new(&kernel, &machine, run(&kernel, &machine, &trace, 1))
}

/// Cycles of one instruction of a long chain of them.
fn each(sm: u8, line: Line, work: &Work) -> f64 {
    time(sm, &[line], 1000, 1, work).cycles as f64 / 1000.0
}

#[test]
fn dependent_instructions_take_their_latency() {
    let line = Work::Lines { lines: Box::new([7]), sectors: 1 };
    for (sm, l1, shared) in [(75, 32.0, 19.0), (80, 38.0, 29.0), (89, 43.0, 30.0), (90, 41.0, 29.0)] {
        assert_eq!(each(sm, ("FFMA R0, R0, R1, R2", 4, None, 0), &line).round(), 4.0);
        let near = |want: f64, got: f64| assert!((got - want).abs() < 2.0, "sm_{sm}: {got}, not {want}");
        near(l1, each(sm, ("LDL R0, [R0]", 1, Some(0), 1), &line));
        near(shared, each(sm, ("LDS R0, [R0]", 1, Some(0), 1), &Work::Banks(1)));
    }
    // What is touched for the first time comes from DRAM.
    let first = time(80, &[("LDL R0, [R0]", 1, Some(0), 0)], 1, 1, &line).cycles;
    assert!((466..470).contains(&first), "{first}");
}

#[test]
fn units_have_their_rates() {
    // Four warps, one for each scheduler: 64 and 128 results per cycle and SM.
    let ffma: Line = ("FFMA R0, R1, R2, R1", 1, None, 0);
    let per = |sm, line| time(sm, &[line], 1000, 4, &Work::None).ipc();
    assert!((per(80, ffma) - 2.0).abs() < 0.1);
    assert!((per(90, ffma) - 4.0).abs() < 0.1);
    // 16 of MUFU.
    assert!((per(90, ("MUFU.RCP R0, R1", 1, Some(0), 0)) - 0.5).abs() < 0.05);
    // Three registers of one bank, and a shared memory bank with 32 words.
    let conflict = time(90, &[("FFMA R0, R1, R3, R5", 1, None, 0)], 1000, 1, &Work::None);
    assert!((conflict.ipc() - 0.5).abs() < 0.05);
    let banks = time(90, &[("LDS R0, [R1]", 1, Some(0), 0)], 1000, 1, &Work::Banks(32));
    assert!((banks.ipc() - 1.0 / 32.0).abs() < 0.01);
    assert_eq!(banks.stalls.worst(), Some(Reason::Pipe));
}

#[test]
fn barriers_wait_for_the_last_warp() {
    let lines = [("BAR.SYNC.DEFER_BLOCKING 0x0", 5, None, 0), ("NOP", 1, None, 0)];
    let r = time(90, &lines, 1, 8, &Work::None);
    assert!(r.stalls.of(Reason::Barrier) > 0, "{r}");
    assert_eq!((r.issued, r.blocks, r.warps), (16, 8, (64, 64)));
}
