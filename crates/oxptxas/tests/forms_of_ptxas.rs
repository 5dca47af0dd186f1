//! Forms that ptxas's code always has: each with a program that once had another one.

use oxptxas::{Settings, compile};
use sass::target::SMS;
use sass::{Inst, Mod, Opcode, Operand, Target};

/// Our code for the kernel `k`, for every target from `least` on.
fn code(source: &str, least: u8) -> impl Iterator<Item = (Target, Vec<Inst>)> {
    SMS.iter().filter(move |s| s.sm >= least).map(move |s| {
        let target = Target::new(s.sm).expect("a known target");
        let output = compile(source, "k.ptx", &Settings::new(target));
        let cubin = output.unwrap_or_else(|f| panic!("{}", f.render("oxptxas"))).cubin;
        let image = cubin::read::read(&cubin).unwrap();
        let words = image.kernels["k"].code.iter().enumerate();
        (target, words.map(|(k, w)| sass::decode(*w, target, 16 * k as i64).unwrap()).collect())
    })
}

/// Lanes that met go on where BSSY says: behind the BSYNC. At BSYNC itself they would wait once more.
#[test]
fn bssy_names_what_is_behind_its_bsync() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n\
        .reg .u32 %r<3>; .reg .u64 %a<2>; .reg .pred %p;\n\
        ld.param.u64 %a1, [a]; mov.u32 %r1, %tid.x; setp.gt.u32 %p, %r1, 3; mov.u32 %r2, 0;\n\
        @%p bra L;\nld.global.u32 %r2, [%a1]; atom.global.add.u32 %r2, [%a1+4], %r2;\n\
        L: st.global.u32 [%a1+8], %r2; bar.sync 0; ret;\n}\n";
    for (target, insts) in code(source, 75) {
        let named = insts.iter().filter(|i| i.op == Opcode::BSSY).flat_map(|i| &i.operands);
        let named: Vec<usize> = named
            .filter_map(|o| match o {
                Operand::Label(t) => Some(*t as usize / 16),
                _ => None,
            })
            .collect();
        assert!(!named.is_empty(), "{target}: no region");
        assert!(named.iter().all(|t| insts[t - 1].op == Opcode::BSYNC), "{target}");
    }
}

/// A wait for groups of copies counts on a scoreboard that nothing else uses.
#[test]
fn groups_of_copies_count_on_their_scoreboard() {
    let source = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n\
        .shared .align 16 .b8 s[64];\n.reg .u32 %r<4>; .reg .u64 %a<2>;\n\
        ld.param.u64 %a1, [a]; mov.u32 %r1, s;\n\
        cp.async.ca.shared.global [%r1], [%a1], 16; cp.async.commit_group;\n\
        ld.global.u32 %r3, [%a1+64]; cp.async.wait_group 0;\n\
        ld.shared.u32 %r2, [%r1]; add.u32 %r2, %r2, %r3; st.global.u32 [%a1], %r2; ret;\n}\n";
    for (target, insts) in code(source, 80) {
        let (groups, others): (Vec<_>, Vec<_>) = insts.iter().partition(|i| i.op == Opcode::LDGDEPBAR);
        assert!(!groups.is_empty() && groups.iter().all(|i| i.ctrl.write_sb == Some(0)), "{target}");
        let counts = |i: &&&Inst| i.ctrl.write_sb == Some(0) || i.ctrl.read_sb == Some(0);
        assert_eq!(others.iter().filter(counts).count(), 0, "{target}");
    }
}

/// ptxas has no `F2I.FTZ` of 64 bits.
#[test]
fn conversions_to_64_bits_flush_before() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n\
        .reg .f32 %f; .reg .b64 %a<5>;\n\
        ld.param.u64 %a1, [a]; ld.global.f32 %f, [%a1];\n\
        cvt.rmi.ftz.s64.f32 %a2, %f; cvt.rzi.ftz.s64.f32 %a3, %f; cvt.rpi.ftz.u64.f32 %a4, %f;\n\
        st.global.b64 [%a1], %a2; st.global.b64 [%a1+8], %a3; st.global.b64 [%a1+16], %a4; ret;\n}\n";
    for (target, insts) in code(source, 75) {
        let conversions: Vec<&Inst> = insts.iter().filter(|i| i.op == Opcode::F2I).collect();
        assert_eq!(conversions.len(), 3, "{target}");
        assert!(conversions.iter().all(|i| !i.mods.has(Mod::FTZ)), "{target}");
        assert!(insts.iter().any(|i| i.op == Opcode::FMUL && i.mods.has(Mod::FTZ)), "{target}");
    }
}

/// Positions of the instructions with this opcode.
fn places(insts: &[Inst], op: Opcode) -> Vec<usize> {
    insts.iter().enumerate().filter(|i| i.1.op == op).map(|i| i.0).collect()
}

/// Lanes of different masks do apart what all lanes do that are there: WARPSYNC.EXCLUSIVE, the instruction, and the move out of
/// the uniform register between BSSY and BSYNC.
#[test]
fn reductions_and_elections_of_several_masks_are_regions() {
    for (ptx, op, least) in [
        ("redux.sync.add.u32 %r3, %r2, %r1;", Opcode::REDUX, 80),
        ("elect.sync %r3|%p, %r1; selp.u32 %r3, %r3, 77, %p;", Opcode::ELECT, 90),
    ] {
        for parted in ["", "setp.gt.u32 %p, %r2, 7; @%p bra E;"] {
            let source = format!(
                ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a)\n{{\n\
                 .reg .u32 %r<4>; .reg .u64 %a<3>; .reg .pred %p;\n\
                 ld.param.u64 %a1, [a]; mov.u32 %r1, %tid.x; mul.wide.u32 %a2, %r1, 8; add.u64 %a1, %a1, %a2;\n\
                 ld.global.u32 %r1, [%a1]; ld.global.u32 %r2, [%a1+4]; {parted}\n{ptx} st.global.u32 [%a1], %r3;\n\
                 E: ret;\n}}\n"
            );
            let source = source.replace(".target sm_80", &format!(".target sm_{least}"));
            for (target, insts) in code(&source, least) {
                let at = places(&insts, op);
                assert_eq!(at.len(), 1, "{target}");
                let opens = insts[..at[0]].iter().rposition(|i| i.op == Opcode::BSSY).expect("a region");
                let closes =
                    at[0] + insts[at[0]..].iter().position(|i| i.op == Opcode::BSYNC).expect("an end");
                let inside = &insts[opens..closes];
                let apart = |i: &Inst| i.op == Opcode::WARPSYNC && i.mods.has(Mod::EXCLUSIVE);
                assert_eq!(inside.iter().filter(|i| apart(i)).count(), 1, "{target}");
                let uniform = insts[at[0]].operands.iter().find_map(|o| match o {
                    Operand::Reg(r) if r.reg.file == sass::RegFile::UR => Some(r.reg),
                    _ => None,
                });
                let reads = |i: &Inst| i.operands[1..].iter().any(|o| o.as_reg().map(|r| r.reg) == uniform);
                let moves: Vec<bool> = insts.iter().map(|i| i.op == Opcode::MOV && reads(i)).collect();
                assert_eq!(moves.iter().filter(|m| **m).count(), 1, "{target}");
                assert!(moves[at[0]..closes].contains(&true), "{target}: the result leaves too late");
            }
        }
    }
}

/// Barriers name number and thread count each as it is; only if both are in registers they share one.
#[test]
fn barriers_take_numbers_and_registers() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u32 a, .param .u32 b)\n{\n\
        .reg .u32 %r<3>;\nld.param.u32 %r1, [a]; ld.param.u32 %r2, [b];\n\
        bar.sync %r1; bar.sync %r1, 64; bar.sync 3, %r2; bar.sync %r1, %r2; bar.arrive %r1, 64; ret;\n}\n";
    for (target, insts) in code(source, 75) {
        let of = |i: &Inst| match &i.operands[..2] {
            [Operand::Imm(_), Operand::Reg(_)] => "3, R".to_string(),
            [Operand::Reg(a), Operand::Reg(b)] if a == b => "R, R".into(),
            [Operand::Reg(_), Operand::Imm(n)] => format!("R, {n}"),
            other => panic!("{other:?}"),
        };
        let found: Vec<String> = insts.iter().filter(|i| i.op == Opcode::BAR).map(of).collect();
        assert_eq!(found, ["R, 0", "R, 64", "3, R", "R, R", "R, 64"], "{target}");
    }
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k()\n{\n\
        .reg .u32 %r; .reg .pred %p;\nmov.u32 %r, %tid.x; setp.eq.u32 %p, %r, 7; mov.u32 %r, 0; add.u32 %r, %r, %r;\n\
        bar.red.or.pred %p, %r, %p; @%p trap; ret;\n}\n";
    for (target, insts) in code(source, 75) {
        let at = places(&insts, Opcode::BAR)[0];
        assert_eq!(insts[at].operands[0], Operand::Imm(0), "{target}");
    }
}

/// Compare-and-swap, and the phase that a barrier is asked about, are in registers even if they are zero.
#[test]
fn zero_is_loaded_where_ptxas_loads_it() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 b)\n{\n\
        .shared .align 8 .b32 s[4];\n.reg .u32 %r<5>; .reg .u64 %a<4>;\nld.param.u64 %a1, [a]; ld.param.u32 %r1, [b];\n\
        atom.global.cas.b32 %r2, [%a1], 0, %r1; atom.shared.cas.b32 %r3, [s], %r1, 0; atom.cas.b32 %r4, [%a1], 0, 0;\n\
        atom.global.cas.b64 %a2, [%a1+8], 0, 0; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4;\n\
        st.global.u64 [%a1], %a2; st.global.u32 [%a1], %r2; ret;\n}\n";
    for (target, insts) in code(source, 75) {
        let cas: Vec<&Inst> = insts.iter().filter(|i| i.mods.has(Mod::CAS)).collect();
        assert_eq!(cas.len(), 4, "{target}");
        for i in cas {
            let data = &i.operands[i.operands.len() - 2..];
            assert!(data.iter().all(|o| o.as_reg().is_some_and(|r| !r.reg.is_zero())), "{target}: {data:?}");
        }
    }
    let source = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n\
        .shared .align 8 .b64 s;\n.reg .pred %p; .reg .u64 %a;\nld.param.u64 %a, [a];\n\
        mbarrier.test_wait.parity.shared.b64 %p, [s], 0; @%p st.global.u64 [%a], %a; ret;\n}\n";
    for (target, insts) in code(source, 90) {
        let asked = places(&insts, Opcode::SYNCS_PHASECHK);
        assert!(!insts[asked[0]].operands[2].as_reg().unwrap().reg.is_zero(), "{target}");
    }
}

/// A 64-bit exchange on a generic address says whether it was done; in local memory, it is a load and a store.
#[test]
fn generic_exchanges_of_64_bits_may_not_be_done() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b)\n{\n\
        .reg .u64 %a<5>;\nld.param.u64 %a1, [a]; ld.param.u64 %a2, [b];\n\
        atom.cas.b64 %a3, [%a1], %a2, %a1; atom.exch.b64 %a4, [%a1], %a2;\n\
        st.global.u64 [%a1], %a3; st.global.u64 [%a1+8], %a4; ret;\n}\n";
    for (target, insts) in code(source, 75) {
        let atoms: Vec<&Inst> = insts.iter().filter(|i| i.op == Opcode::ATOM).collect();
        assert_eq!(atoms.len(), 2, "{target}");
        assert!(atoms.iter().all(|i| !i.operands[0].as_reg().unwrap().reg.is_zero()), "{target}");
        assert_eq!(places(&insts, Opcode::LD).len(), 2, "{target}");
        assert_eq!(places(&insts, Opcode::ST).len(), 2, "{target}");
    }
}

/// What others wait for although it writes no register: the fence in front of SYNCS.EXCH, SYNCS.EXCH, SYNCS.CCTL, and
/// CCTL of a tensor map. EXIT waits until uniform registers have been read.
#[test]
fn barriers_and_tensor_maps_are_waited_for() {
    let source = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n\
        .shared .align 8 .b64 s;\n.reg .u64 %a<3>;\nld.param.u64 %a1, [a]; st.shared.u64 [s], %a1;\n\
        mbarrier.init.shared.b64 [s], 5; mbarrier.inval.shared.b64 [s];\n\
        ld.shared.u64 %a2, [s]; st.global.u64 [%a1], %a2; ret;\n}\n";
    for (target, insts) in code(source, 90) {
        // From sm_100 on the first SYNCS.CCTL ends what is kept of all barriers.
        let stores = target.sm >= 100;
        let chain: &[(Opcode, usize)] = if stores {
            &[(Opcode::FENCE, 0), (Opcode::SYNCS_CCTL, 0), (Opcode::SYNCS_CCTL, 1), (Opcode::LDS, 0)]
        } else {
            &[(Opcode::FENCE, 0), (Opcode::SYNCS_EXCH, 0), (Opcode::SYNCS_CCTL, 0), (Opcode::LDS, 0)]
        };
        let at: Vec<usize> = chain.iter().map(|(op, nth)| places(&insts, *op)[*nth]).collect();
        for pair in at.windows(2) {
            let board =
                insts[pair[0]].ctrl.write_sb.unwrap_or_else(|| panic!("{target}: nothing to wait for"));
            // By it, or by what stands between.
            let between = &insts[pair[0] + 1..=pair[1]];
            assert!(between.iter().any(|i| i.ctrl.wait >> board & 1 != 0), "{target}");
        }
        if stores {
            assert!(
                insts[at[1]].mods.has(Mod::IVALL) && places(&insts, Opcode::SYNCS_EXCH).is_empty(),
                "{target}"
            );
            continue;
        }
        let read = insts[at[1]].ctrl.read_sb.expect("uniform registers are read late");
        let rest = &insts[at[1] + 1..=places(&insts, Opcode::EXIT)[0]];
        assert!(rest.iter().any(|i| i.ctrl.wait >> read & 1 != 0), "{target}");
    }
    let source = ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n\
        .reg .u64 %a<3>;\nld.param.u64 %a1, [a]; ld.global.u64 %a2, [%a1];\n\
        fence.proxy.tensormap::generic.acquire.gpu [%a2], 128; ret;\n}\n";
    for (target, insts) in code(source, 100) {
        let (drains, ends, works) = (
            places(&insts, Opcode::DEPBAR)[0],
            places(&insts, Opcode::CCTL_LDCU)[0],
            places(&insts, Opcode::UTMACCTL)[0],
        );
        assert!(drains < ends && ends < works, "{target}");
        let board = insts[ends].ctrl.write_sb.expect("a scoreboard");
        assert!(insts[works].ctrl.wait >> board & 1 != 0 && insts[ends].ctrl.read_sb.is_none(), "{target}");
    }
}

/// Arrivals that do not complete the phase say so.
#[test]
fn arrivals_that_complete_nothing_say_so() {
    let source = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n\
        .shared .align 8 .b64 s;\n.reg .u64 %a<3>;\nld.param.u64 %a1, [a];\n\
        mbarrier.arrive.noComplete.shared.b64 %a2, [s], 3; st.global.u64 [%a1], %a2; ret;\n}\n";
    for (target, insts) in code(source, 90) {
        let at = places(&insts, Opcode::SYNCS_ARRIVE)[0];
        assert!(insts[at].mods.has(Mod::TMASK), "{target}");
        // The state that the lane finds is behind the arrivals of those below it.
        assert!(places(&insts, Opcode::POPC)[0] > at, "{target}");
    }
    for (target, insts) in
        code(&source.replace("%a2, [s], 3;", "_, [s], 3;").replace("%a1], %a2", "%a1], %a1"), 90)
    {
        let at = places(&insts, Opcode::SYNCS_ARRIVE)[0];
        assert!(!insts[at].mods.has(Mod::TMASK), "{target}");
    }
}

/// Where a product of halves takes several steps, the last one saturates.
#[test]
fn products_saturate_at_their_end() {
    let source = ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n\
        .reg .b32 %r<9>; .reg .b64 %d<2>;\n\
        ld.param.u64 %d1, [p]; ld.global.v4.b32 {%r0,%r1,%r2,%r3}, [%d1]; ld.global.v2.b32 {%r4,%r5}, [%d1+16];\n\
        wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16.satfinite {%r5,%r6,%r7,%r8},\n\
        {%r0,%r1,%r2,%r3,%r0,%r1,%r2,%r3}, {%r4,%r5,%r4,%r5,%r4,%r5,%r4,%r5}, {%r0,%r1,%r2,%r3};\n\
        st.global.v4.b32 [%d1], {%r5,%r6,%r7,%r8}; ret;\n}\n";
    for (target, insts) in code(source, 75).take(1) {
        let steps = insts.iter().filter(|i| i.op == Opcode::HMMA);
        let saturates: Vec<bool> = steps.map(|i| i.mods.has(Mod::SATFINITE)).collect();
        assert_eq!(saturates, [false, false, true, true], "{target}");
    }
}

/// Lanes that make different barriers each store theirs from sm_100 on; before, they take turns.
#[test]
fn barriers_of_lanes_are_made_by_stores() {
    let source = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u32 a)\n{\n\
        .shared .align 8 .b8 s[1024];\n.reg .u32 %a<3>;\nmov.u32 %a0, %tid.x; shl.b32 %a1, %a0, 3; mov.u32 %a2, s;\n\
        add.u32 %a2, %a2, %a1; mbarrier.init.shared.b64 [%a2], %a0; ret;\n}\n";
    for (target, insts) in code(source, 90) {
        let loops = places(&insts, Opcode::BSYNC).len();
        let exchanges = places(&insts, Opcode::SYNCS_EXCH).len();
        let stores = insts.iter().filter(|i| i.op == Opcode::STS && i.mods.has(Mod::_64)).count();
        let expected = if target.sm >= 100 { (0, 0, 1) } else { (0, 1, 0) };
        assert_eq!((loops, exchanges, stores), expected, "{target}");
    }
}

/// On sm_87 every kernel sets up the convergence barriers, unless UR2 says that they are.
#[test]
fn kernels_for_sm_87_set_up_their_barriers() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n\
        .reg .u64 %a;\nld.param.u64 %a, [a]; st.global.u64 [%a], %a; ret;\n}\n";
    for (target, insts) in code(source, 75) {
        let moves = places(&insts, Opcode::BMOV_B);
        if target.sm != 87 {
            assert!(moves.is_empty(), "{target}");
            continue;
        }
        let says = places(&insts, Opcode::UMOV)[0];
        assert!(moves.len() == 17 && (2..20).all(|k| k == says || moves.contains(&k)));
        assert_eq!((insts[0].op, insts[1].op), (Opcode::ISETP, Opcode::BRA));
        let ready = Operand::reg(sass::Reg { file: sass::RegFile::UR, index: 2 });
        assert!(insts[0].operands.contains(&ready) && insts[says].operands[0] == ready);
        assert!(!insts[1].guard.not && insts[1].operands.contains(&Operand::Label(20 * 16)));
        // Nothing else writes what says so.
        assert!(insts[20..].iter().all(|i| !i.operands.contains(&ready)));
    }
}

/// What counts copies and waits for them is under no guard: there is a branch around it.
#[test]
fn groups_of_copies_are_under_no_guard() {
    let source = |least: u8, words: &str| {
        format!(
            ".version 8.0\n.target sm_{least}\n.address_size 64\n.visible .entry k(.param .u64 a)\n{{\n\
            .reg .u64 %a; .reg .u32 %r<2>; .reg .pred %p;\nld.param.u64 %a, [a]; mov.u32 %r0, %tid.x;\n\
            setp.gt.u32 %p, %r0, 3; @%p {words}.commit_group; @%p {words}.wait_group 1;\n\
            st.global.u32 [%a], %r0; ret;\n}}\n"
        )
    };
    for (least, words) in [(80, "cp.async"), (90, "cp.async.bulk")] {
        for (target, insts) in code(&source(least, words), least) {
            let ours = [Opcode::LDGDEPBAR, Opcode::UTMACMDFLUSH, Opcode::DEPBAR, Opcode::CCTL];
            let count = insts.iter().filter(|i| ours.contains(&i.op)).count();
            assert!(count >= 2, "{target}");
            let free = |i: &Inst| i.guard == sass::Guard::TRUE;
            assert!(insts.iter().filter(|i| ours.contains(&i.op)).all(free), "{target}");
        }
    }
}

/// What a branch is taken by that goes to one place in any case is not computed.
#[test]
fn branches_to_one_place_leave_nothing_behind() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n\
        .reg .u32 %r<4>; .reg .u64 %a<2>;\n\
        ld.param.u64 %a1, [a]; ld.global.u32 %r1, [%a1]; rem.u32 %r2, %r1, 3;\n\
        T: .branchtargets L, L, L;\nbrx.idx %r2, T;\nL: st.global.u32 [%a1], 7; ret;\n}\n";
    for (target, insts) in code(source, 75) {
        let copies = |i: &Inst| i.op == Opcode::IMAD && i.mods.has(Mod::MOV);
        let computes = |i: &&Inst| matches!(i.op, Opcode::IMAD | Opcode::SHF | Opcode::BRX) && !copies(i);
        assert_eq!(insts.iter().find(computes), None, "{target}");
    }
}
