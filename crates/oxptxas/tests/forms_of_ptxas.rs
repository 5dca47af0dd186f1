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
