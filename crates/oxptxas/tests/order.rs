//! Accesses of memory that PTX keeps in order stay in it: reduced cases of orders that were wrong, and kernels/.

use oxptxas::{Settings, compile};
use sass::{Mod, Opcode, Target};
use sim::order::{self, Broken, Family, Options, Why};
use std::path::Path;

fn cubin(source: &str, arch: &str, opt_level: u8) -> Vec<u8> {
    let target = Target::parse(arch).unwrap();
    let settings = Settings { opt_level, line_info: Some(true), ..Settings::new(target) };
    compile(source, "k.ptx", &settings).unwrap().cubin
}

/// Checks our code on these targets and gives what the checker counted.
fn in_order(source: &str, archs: &[&str]) -> order::Stats {
    let module = ptx::parse(source).unwrap();
    let mut stats = order::Stats::default();
    for arch in archs {
        for level in [0, 1, 3] {
            let bytes = cubin(source, arch, level);
            for k in order::check_cubin(&module, source, &bytes, Options::default()).unwrap() {
                let found: Vec<String> = k.findings().collect();
                assert!(found.is_empty(), "{arch} -O{level} {}: {found:?}", k.name);
                stats += k.stats;
            }
        }
    }
    stats
}

const ALL: [&str; 4] = ["sm_75", "sm_80", "sm_90", "sm_120"];

/// A reduction in shared memory whose steps only `bar.warp.sync` keeps apart.
const WARP_SYNC: &str = include_str!("../../backend/tests/order/warp_sync.ptx");

/// A step of a radix sort: volatile accesses with weak ones between.
const VOLATILE: &str = include_str!("../../backend/tests/order/volatile.ptx");

const ACQUIRE: &str = include_str!("../../backend/tests/order/acquire.ptx");

const HALF_CAS: &str = include_str!("../../backend/tests/order/half_cas.ptx");

const WIDE: &str = include_str!("../../backend/tests/order/wide.ptx");

/// Steps of a reduction under conditions, which become guards.
const STEPS: &str = include_str!("../../backend/tests/order/steps.ptx");

const MATRICES: &str = include_str!("../../backend/tests/order/matrices.ptx");

const WMMA: &str = include_str!("../../backend/tests/order/wmma.ptx");

/// Lines with several statements.
const LINES: &str = include_str!("../../backend/tests/order/lines.ptx");

/// A loop of which the code has the body several times.
const ROUNDS: &str = include_str!("../../backend/tests/order/rounds.ptx");

/// The second reduction of a round stands before the first one of the next, and that is right; before its own it is found.
#[test]
fn rounds_of_a_loop() {
    in_order(ROUNDS, &ALL);
    let module = ptx::parse(ROUNDS).unwrap();
    let bytes = cubin(ROUNDS, "sm_90", 3);
    let kernels = order::load(&bytes).unwrap();
    let code = &kernels[0].1;
    let reductions: Vec<usize> = (0..code.insts.len())
        .filter(|k| code.insts[*k].as_ref().is_some_and(|i| i.op == Opcode::REDG))
        .collect();
    assert!(reductions.len() > 2, "the body is there once");
    for pair in reductions.chunks(2) {
        let mut wrong = code.clone();
        wrong.insts.swap(pair[0], pair[1]);
        wrong.lines.swap(pair[0], pair[1]);
        let (func, _) = module.funcs.iter().next().unwrap();
        let lines = ptx::LineIndex::new(ROUNDS);
        let found = order::check_function(&module, func, &lines, &wrong, &[], Options::default());
        assert!(!found.violations.is_empty(), "{pair:?}");
    }
}

#[test]
fn what_warp_sync_keeps_apart() {
    in_order(WARP_SYNC, &ALL);
}

#[test]
fn volatile_accesses() {
    in_order(VOLATILE, &ALL);
}

#[test]
fn acquisitions_of_shared_memory() {
    in_order(ACQUIRE, &ALL);
}

/// What a swap of 16 bits returns comes from a swap of the word, which is tried in any case: a loop that waits for another value would
/// go round for ever on what a weak load left in the first cache.
#[test]
fn halves_are_read_by_the_swap() {
    in_order(HALF_CAS, &ALL);
    // On sm_75 lanes take turns in the loop.
    for arch in ["sm_80", "sm_90", "sm_120"] {
        let bytes = cubin(HALF_CAS, arch, 3);
        let (_, code, _) = order::load(&bytes).unwrap().remove(0);
        let ops: Vec<Opcode> = code.insts.iter().flatten().map(|i| i.op).collect();
        let swap = ops.iter().position(|o| *o == Opcode::ATOMG).unwrap();
        assert!(!ops[..swap].contains(&Opcode::BRA), "{arch}: {ops:?}");
    }
}

#[test]
fn accesses_of_256_bits() {
    in_order(WIDE, &["sm_100", "sm_120"]);
}

#[test]
fn matrices_in_shared_memory() {
    in_order(MATRICES, &ALL);
}

#[test]
fn matrices_that_wmma_loads_and_stores() {
    let stats = in_order(WMMA, &ALL);
    assert_eq!(stats.matched, stats.accesses);
}

#[test]
fn lines_with_several_statements() {
    let stats = in_order(LINES, &ALL);
    assert_eq!(stats.matched, stats.accesses);
}

/// Where the lanes are together ptxas leaves a NOP in the place of WARPSYNC, and so do we.
#[test]
fn warp_sync_leaves_a_nop() {
    let bytes = cubin(WARP_SYNC, "sm_90", 3);
    let (_, code, _) = order::load(&bytes).unwrap().remove(0);
    let ops: Vec<Opcode> = code.insts.iter().flatten().map(|i| i.op).collect();
    let end = ops.iter().rposition(|o| *o == Opcode::EXIT).unwrap();
    assert!(!ops.contains(&Opcode::WARPSYNC));
    assert_eq!(ops[..end].iter().filter(|o| **o == Opcode::NOP).count(), 3);
}

/// What the checker says when two accesses change places.
fn exchanged(source: &str, arch: &str, first: Opcode, second: Opcode) -> Vec<Why> {
    let found = checked(source, arch, first, second, Options::default());
    assert_eq!(found.stats.unchecked, 0);
    found.violations.into_iter().map(|v| v.why).collect()
}

fn checked(source: &str, arch: &str, first: Opcode, second: Opcode, options: Options) -> order::Kernel {
    let module = ptx::parse(source).unwrap();
    let lines = ptx::LineIndex::new(source);
    let (name, mut code, functions) = order::load(&cubin(source, arch, 3)).unwrap().remove(0);
    let at = |op, from: usize| {
        code.insts[from..].iter().position(|i| i.as_ref().is_some_and(|i| i.op == op)).unwrap() + from
    };
    let i = at(first, 0);
    let j = at(second, i + 1);
    code.insts.swap(i, j);
    code.lines.swap(i, j);
    order::check_kernel(&module, &lines, &name, &code, &functions, options)
}

#[test]
fn the_checker_finds_exchanged_accesses() {
    let across = exchanged(WARP_SYNC, "sm_90", Opcode::STS, Opcode::LDS);
    assert!(across.iter().any(|w| matches!(w, Why::Fence(_))), "{across:?}");
    assert!(exchanged(VOLATILE, "sm_90", Opcode::STS, Opcode::LDS).contains(&Why::Volatile));
    assert!(exchanged(ACQUIRE, "sm_120", Opcode::LDS, Opcode::LDG).contains(&Why::Acquire));
    assert!(exchanged(WIDE, "sm_120", Opcode::STG, Opcode::LDG_256).contains(&Why::Overlap));
    let guarded = exchanged(STEPS, "sm_90", Opcode::LDS, Opcode::LDS);
    assert!(guarded.iter().any(|w| matches!(w, Why::Fence(_))), "{guarded:?}");
    assert!(exchanged(MATRICES, "sm_75", Opcode::STS, Opcode::LDSM).contains(&Why::MayOverlap));
    assert!(exchanged(WMMA, "sm_90", Opcode::LDG, Opcode::STG).contains(&Why::MayOverlap));
    let across = exchanged(LINES, "sm_90", Opcode::LDG, Opcode::STS);
    assert!(across.iter().any(|w| matches!(w, Why::Fence(_))), "{across:?}");
}

/// A message passed under a fence, one released and acquired, and a barrier of all threads.
const FENCES: &str = include_str!("../../backend/tests/order/fences.ptx");

#[test]
fn fences_between_accesses() {
    in_order(FENCES, &ALL);
}

/// Copies of two groups, each waited for before what it wrote is read.
const COPIES: &str = include_str!("../../backend/tests/order/copies.ptx");
/// A bulk copy of what was stored; what it reads is overwritten, and what it wrote read, when that is done.
const BULK: &str = include_str!("../../backend/tests/order/bulk.ptx");

#[test]
fn copies_are_waited_for() {
    use sass::Operand;
    in_order(COPIES, &["sm_80", "sm_90", "sm_100", "sm_120"]);
    in_order(BULK, &["sm_90", "sm_100", "sm_120"]);
    for (source, arch) in [(COPIES, "sm_80"), (COPIES, "sm_120"), (BULK, "sm_90"), (BULK, "sm_120")] {
        let waits = |i: &sass::Inst| {
            i.op == Opcode::DEPBAR && matches!(i.operands.first(), Some(Operand::Scoreboard(0)))
        };
        let none = spoilt_of(source, arch, |_| {});
        assert!(none.is_empty(), "{arch}: {none:?}");
        for n in 0..2 {
            let nth = |code: &order::Code| {
                let all = code.insts.iter().enumerate();
                all.filter(|i| i.1.as_ref().is_some_and(waits)).nth(n).map(|i| i.0).unwrap()
            };
            let removed = spoilt_of(source, arch, |code| {
                let at = nth(code);
                code.insts[at] = None;
            });
            let needed = |found: &[(String, Vec<Broken>)]| {
                found
                    .iter()
                    .flat_map(|k| &k.1)
                    .any(|b| matches!(b, Broken::Passed { .. } | Broken::Missing(..)))
            };
            assert!(needed(&removed), "{arch}, {n}: {removed:?}");
            let fewer = spoilt_of(source, arch, |code| {
                let at = nth(code);
                for o in code.insts[at].iter_mut().flat_map(|i| &mut i.operands) {
                    if let Operand::Imm(n) = o {
                        *n += 1;
                    }
                }
            });
            assert!(needed(&fewer), "{arch}, {n}: {fewer:?}");
        }
    }
    assert!(exchanged(COPIES, "sm_90", Opcode::LDGSTS, Opcode::LDGDEPBAR).contains(&Why::Commit));
    let across = exchanged(BULK, "sm_90", Opcode::STS, Opcode::UBLKCP);
    assert!(across.contains(&Why::Asynchronous(None, Some(Family::Store))), "{across:?}");
}

/// What the checker says of each kernel of [`FENCES`] when instructions are changed.
fn spoilt(arch: &str, change: impl Fn(&mut order::Code)) -> Vec<(String, Vec<Broken>)> {
    spoilt_of(FENCES, arch, change)
}

fn spoilt_of(source: &str, arch: &str, change: impl Fn(&mut order::Code)) -> Vec<(String, Vec<Broken>)> {
    let module = ptx::parse(source).unwrap();
    let lines = ptx::LineIndex::new(source);
    let kernels = order::load(&cubin(source, arch, 3)).unwrap();
    let check = |(name, mut code, functions): (String, order::Code, Vec<usize>)| {
        change(&mut code);
        let found = order::check_kernel(&module, &lines, &name, &code, &functions, Options::default());
        (name, found.broken)
    };
    kernels.into_iter().map(check).filter(|k| !k.1.is_empty()).collect()
}

/// Every instruction that is one of this kind, changed.
fn each(op: Opcode, change: impl Fn(&mut sass::Inst)) -> impl Fn(&mut order::Code) {
    move |code| code.insts.iter_mut().flatten().filter(|i| i.op == op).for_each(&change)
}

fn replaced(from: Mod, to: &[Mod]) -> impl Fn(&mut sass::Inst) {
    let to = to.to_vec();
    move |inst| {
        let put = |m: Mod| if m == from { to.clone() } else { vec![m] };
        inst.mods = sass::Mods::of(&inst.mods.iter().flat_map(put).collect::<Vec<_>>());
    }
}

#[test]
fn the_checker_finds_spoilt_fences() {
    for arch in ALL {
        let names = |found: Vec<(String, Vec<Broken>)>| found.into_iter().map(|f| f.0).collect::<Vec<_>>();
        let removed = |op| {
            move |code: &mut order::Code| {
                code.insts
                    .iter_mut()
                    .filter(|i| i.as_ref().is_some_and(|i| i.op == op))
                    .for_each(|i| *i = None);
            }
        };
        assert_eq!(names(spoilt(arch, |_| {})), [""; 0]);
        assert_eq!(names(spoilt(arch, removed(Opcode::MEMBAR))), ["last", "passing", "released"], "{arch}");
        assert_eq!(names(spoilt(arch, removed(Opcode::CCTL))), ["acquired", "last", "passing"], "{arch}");
        let weaker = each(Opcode::MEMBAR, replaced(Mod::GPU, &[Mod::CTA]));
        assert_eq!(names(spoilt(arch, weaker)), ["last", "passing", "released"], "{arch}");
        let weaker = each(Opcode::MEMBAR, replaced(Mod::SC, &[Mod::ALL]));
        assert_eq!(names(spoilt(arch, weaker)), ["last", "passing"], "{arch}");
        let weak = each(Opcode::LDG, replaced(Mod::STRONG, &[]));
        assert_eq!(names(spoilt(arch, weak)), ["acquired"], "{arch}");
        let fewer = each(Opcode::BAR, |i| i.operands[1] = sass::Operand::Imm(32));
        assert_eq!(names(spoilt(arch, fewer)), ["barrier"], "{arch}");
        // The second store before the fence; the fence is there.
        let moved = |code: &mut order::Code| {
            let at = |op| code.insts.iter().position(|i| i.as_ref().is_some_and(|i| i.op == op));
            let (Some(fence), Some(store)) = (
                at(Opcode::MEMBAR),
                code.insts.iter().rposition(|i| i.as_ref().is_some_and(|i| i.op == Opcode::STG)),
            ) else {
                return;
            };
            if fence < store {
                code.insts.swap(fence, store);
                code.lines.swap(fence, store);
            }
        };
        let found = spoilt(arch, moved);
        let passing = found.iter().find(|f| f.0 == "passing").unwrap_or_else(|| panic!("{arch}: {found:?}"));
        assert!(passing.1.iter().any(|b| matches!(b, Broken::Passed { .. })), "{arch}: {passing:?}");
    }
}

#[test]
fn steps_under_conditions() {
    in_order(STEPS, &ALL);
}

#[test]
fn what_is_not_looked_at_is_counted() {
    let none = Options { pairs: 0, ..Options::default() };
    let kernel = checked(WARP_SYNC, "sm_90", Opcode::STS, Opcode::LDS, none);
    assert!(kernel.violations.is_empty());
    assert!(kernel.stats.unchecked > 0);
}

#[test]
fn kernels_keep_their_order() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|x| x == "ptx"));
    files.sort();
    let mut total = order::Stats::default();
    for file in &files {
        total += in_order(&std::fs::read_to_string(file).unwrap(), &ALL);
    }
    assert_eq!(total.unchecked, 0);
    // The others are spills.
    assert!(3 * total.matched > total.accesses, "{total:?}");
}

/// Accesses that acquire, with their results read and unread.
const ACQUIRES: [&str; 12] = [
    "ld.acquire.gpu.global.u32 %r1, [%rd1];",
    "ld.acquire.sys.u32 %r1, [%rd1];",
    "ld.acquire.cta.global.u32 %r1, [%rd1];",
    "ld.acquire.gpu.shared.u32 %r1, [%r5];",
    "ld.acquire.cta.shared.u32 %r1, [%r5];",
    "atom.acquire.gpu.global.add.u32 %r1, [%rd1], %r6;",
    "atom.acquire.cta.global.cas.b32 %r1, [%rd1], %r6, %r7;",
    "atom.acq_rel.sys.exch.b32 %r1, [%rd1], %r6;",
    "atom.acq_rel.cta.shared.add.u32 %r1, [%r5], %r6;",
    "atom.acquire.gpu.shared.exch.b32 _, [%r5], %r6;",
    "atom.acq_rel.gpu.global.add.u32 _, [%rd1], %r6;",
    "atom.acquire.gpu.global.add.u64 %rd3, [%rd1], %rd1;",
];

/// What follows an acquire in PTX is done only when its value is there: ptxas 13.0.88 has CCTL.IVALL, or a NOP for the block's
/// scope, wait for the scoreboard of the access, at every level.
#[test]
fn acquires_are_waited_for() {
    for (arch, level) in [("sm_75", 3), ("sm_80", 3), ("sm_90", 0), ("sm_90", 1), ("sm_90", 3), ("sm_120", 3)]
    {
        for (acquire, used) in ACQUIRES.iter().flat_map(|a| [(a, true), (a, false)]) {
            let result = if used { "st.global.u32 [%rd2+4], %r1;" } else { "" };
            let source = format!(
                ".version 8.7\n.target {arch}\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 c)\n\
                 {{ .reg .b32 %r<9>; .reg .b64 %rd<9>;\n ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u32 %r5, [c];\n \
                 mov.u32 %r6, %tid.x; mov.u32 %r7, %ctaid.x; mov.u32 %r1, 0;\n {acquire}\n st.global.u32 [%rd2], %r6;\n {result} ret; }}\n"
            );
            let target = Target::parse(arch).unwrap();
            let settings = Settings { opt_level: level, ..Settings::new(target) };
            let cubin = compile(&source, "k.ptx", &settings).unwrap().cubin;
            let words = cubin::read::read(&cubin).unwrap().kernels["k"].code.clone();
            let code: Vec<_> = (words.iter())
                .map(|w| (sass::decode(*w, target, 0).unwrap(), sass::Control::from_bits(*w)))
                .collect();
            let reads = |op: Opcode| {
                use Opcode::{ATOM, ATOMG, ATOMS, LD, LDG, LDS};
                matches!(op, ATOM | ATOMG | ATOMS | LD | LDG | LDS)
            };
            let at = code.iter().position(|(i, _)| reads(i.op)).unwrap_or_else(|| panic!("{arch} {acquire}"));
            let board =
                code[at].1.write_sb.unwrap_or_else(|| panic!("{arch} -O{level} {acquire}: no scoreboard"));
            let next =
                code[at + 1..].iter().position(|(i, c)| c.wait >> board & 1 != 0 || i.op.info().memory);
            let next = next.map(|n| &code[at + 1 + n]).unwrap();
            assert!(
                next.1.wait >> board & 1 != 0,
                "{arch} -O{level} {acquire}: {:?} does not wait",
                next.0.op
            );
        }
    }
}

/// Bulk copies there and back with products of a warp group between, which fences and waits keep apart.
const GROUPS: &str = include_str!("../../backend/tests/order/groups.ptx");
/// Tensor memory: stores, copies, products, loads.
const TENSOR: &str = include_str!("../../backend/tests/order/tensor.ptx");

/// What the checker says when an instruction of one kind and the next one of another change places.
fn moved(source: &str, arch: &str, (first, second): (&str, &str)) -> Vec<String> {
    let module = ptx::parse(source).unwrap();
    let lines = ptx::LineIndex::new(source);
    let (name, mut code, functions) = order::load(&cubin(source, arch, 3)).unwrap().remove(0);
    let target = Target::parse(arch).unwrap();
    let text = |i: &sass::Inst| sass::print(i, target).to_string();
    let at = |start: &str, from: usize| {
        let is = |i: &Option<sass::Inst>| i.as_ref().is_some_and(|i| text(i).contains(start));
        code.insts[from..].iter().position(is).unwrap_or_else(|| panic!("{arch}: no {start}")) + from
    };
    let i = at(first, 0);
    let j = at(second, i + 1);
    code.insts.swap(i, j);
    code.lines.swap(i, j);
    order::check_kernel(&module, &lines, &name, &code, &functions, Options::default()).findings().collect()
}

#[test]
fn asynchronous_work_keeps_its_place() {
    in_order(GROUPS, &["sm_90a"]);
    in_order(TENSOR, &["sm_100a"]);
    for pair in [
        // The copy before the mbarrier knows of it, and the barrier before the copy.
        ("SYNCS.ARRIVE", "UBLKCP"),
        ("BAR.SYNC", "SYNCS.PHASECHK"),
        // What is stored before and behind the fence, products before it and before the data is there.
        ("STS [", "FENCE.VIEW"),
        ("FENCE.VIEW.ASYNC.S", "HGMMA"),
        ("SYNCS.PHASECHK", "HGMMA"),
        ("WARPGROUP.ARRIVE", "HGMMA"),
        // Products, the end of their group, the wait, and what overwrites what they read.
        ("HGMMA", "gsb0"),
        ("gsb0", "WARPGROUP.DEPBAR"),
        ("WARPGROUP.DEPBAR", "STS.128"),
        // The copy back.
        ("STS.128", "MEMBAR"),
        ("STS.128", "BAR.SYNC"),
        ("BAR.SYNC", "UBLKCP.G"),
        ("UBLKCP.G", "UTMACMDFLUSH"),
        ("UTMACMDFLUSH", "DEPBAR.LE SB0"),
    ] {
        assert!(!moved(GROUPS, "sm_90a", pair).is_empty(), "{pair:?}");
    }
    for pair in [
        ("STTM", "FENCE.VIEW.ASYNC.T"),
        ("FENCE.VIEW.ASYNC.T", "BAR.SYNC"),
        ("UTCCP", "UTCHMMA"),
        ("UTCHMMA", "UTCBAR"),
        ("SYNCS.PHASECHK", "LDTM"),
        ("LDTM", "STG"),
    ] {
        assert!(!moved(TENSOR, "sm_100a", pair).is_empty(), "{pair:?}");
    }
}

/// Textures are read before what comes behind them is written, whoever writes.
#[test]
fn textures_are_read_before_writes() {
    in_order(include_str!("../../backend/tests/order/textures.ptx"), &ALL);
}

/// Products, the wait for them and what uses their registers, seen in the code alone.
#[test]
fn groups_of_products_hold_their_registers() {
    use sim::hazard::{self, Why};
    let bytes = cubin(GROUPS, "sm_90a", 3);
    let target = Target::parse("sm_90a").unwrap();
    let (_, code) = hazard::load(&bytes).unwrap().remove(0);
    assert!(code.tokens().is_empty(), "{:?}", code.tokens());
    let words = &cubin::read::read(&bytes).unwrap().kernels["groups"].code;
    let at = |start: &str| {
        let is = |w: &u128| {
            sass::print(&sass::decode(*w, target, 0).unwrap(), target).to_string().starts_with(start)
        };
        words.iter().position(is).unwrap_or_else(|| panic!("no {start}"))
    };
    let found = |i, j| code.exchanged(i, j, &[]).tokens().iter().map(|v| v.why).collect::<Vec<_>>();
    assert!(found(at("WARPGROUP.DEPBAR"), at("STS.128")).contains(&Why::UnderWay));
    assert!(found(at("WARPGROUP.ARRIVE"), at("HGMMA")).contains(&Why::NotArrived));

    let bytes = cubin(COPIES, "sm_80", 3);
    let (_, code) = hazard::load(&bytes).unwrap().remove(0);
    assert!(code.tokens().is_empty(), "{:?}", code.tokens());
    let image = cubin::read::read(&bytes).unwrap();
    let words = &image.kernels["copies"].code;
    let target = Target::parse("sm_80").unwrap();
    let end = |w: &u128| sass::decode(*w, target, 0).unwrap().op == Opcode::LDGDEPBAR;
    let end = words.iter().position(end).unwrap();
    let none = sass::Control { write_sb: None, ..sass::Control::from_bits(words[end]) };
    assert_eq!(code.with_control(end, none).tokens()[0].why, Why::GroupNotCounted);
    let other = sass::Control { read_sb: Some(0), ..sass::Control::from_bits(words[end + 1]) };
    assert_eq!(code.with_control(end + 1, other).tokens()[0].why, Why::GroupsDisturbed);
}
