//! What we emit for `kernels/`, for every target at -O0 and -O3, holds the hardware contract (docs/hardware-contract.md).

use contract::{Contract, File};
use oxptxas::{Settings, compile};
use rayon::prelude::*;
use sass::target::SMS;
use sass::{Opcode, Operand, Target};
use std::path::{Path, PathBuf};

fn cubin(source: &str, name: &str, target: Target, opt_level: u8) -> Vec<u8> {
    let settings = Settings { opt_level, ..Settings::new(target) };
    compile(source, name, &settings).unwrap_or_else(|f| panic!("{}", f.render("oxptxas"))).cubin
}

fn targets() -> impl Iterator<Item = Target> {
    SMS.iter().filter_map(|s| Target::new(s.sm))
}

#[test]
fn kernels_hold_the_contract() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "ptx"));
    files.sort();
    let jobs: Vec<(&PathBuf, Target, u8)> =
        files.iter().flat_map(|f| targets().flat_map(move |t| [0, 3].map(|level| (f, t, level)))).collect();
    assert!(jobs.len() > 500);
    let wrong: Vec<String> = jobs
        .par_iter()
        .flat_map_iter(|(file, target, level)| {
            let source = std::fs::read_to_string(file).unwrap();
            let cubin = cubin(&source, &file.display().to_string(), *target, *level);
            let findings = Contract::built_in().check(&cubin).unwrap();
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let line = move |f| format!("{name} {target} -O{level}: {f}");
            findings.into_iter().map(line)
        })
        .collect();
    assert!(wrong.is_empty(), "{} findings:\n{}", wrong.len(), wrong.join("\n"));
}

/// Lanes that met go on where BSSY says: behind the BSYNC. At BSYNC itself they would wait once more.
#[test]
fn bssy_names_what_is_behind_its_bsync() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n\
        .reg .u32 %r<3>; .reg .u64 %a<2>; .reg .pred %p;\n\
        ld.param.u64 %a1, [a]; mov.u32 %r1, %tid.x; setp.gt.u32 %p, %r1, 3; mov.u32 %r2, 0;\n\
        @%p bra L;\nld.global.u32 %r2, [%a1]; atom.global.add.u32 %r2, [%a1+4], %r2;\n\
        L: st.global.u32 [%a1+8], %r2; bar.sync 0; ret;\n}\n";
    for target in targets() {
        let bytes = cubin(source, "k.ptx", target, 3);
        let file = File::open(&bytes).unwrap();
        let insts: Vec<_> = file.kernels[0].items.iter().filter_map(|i| i.inst()).collect();
        let names = insts.iter().filter(|i| i.op == Opcode::BSSY).map(|i| {
            i.operands.iter().find_map(|o| match o {
                Operand::Label(t) => Some(*t as usize / 16),
                _ => None,
            })
        });
        let names: Vec<usize> = names.flatten().collect();
        assert!(!names.is_empty(), "{target}: no region");
        assert!(names.iter().all(|t| insts[t - 1].op == Opcode::BSYNC), "{target}");
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
    for target in targets().filter(|t| t.sm >= 80) {
        let bytes = cubin(source, "k.ptx", target, 3);
        let file = File::open(&bytes).unwrap();
        let insts: Vec<_> = file.kernels[0].items.iter().filter_map(|i| i.inst()).collect();
        let group = insts.iter().find(|i| i.op == Opcode::LDGDEPBAR).expect("a group");
        assert_eq!(group.ctrl.write_sb, Some(0), "{target}");
        let others = insts.iter().filter(|i| i.op != Opcode::LDGDEPBAR);
        assert!(others.clone().all(|i| i.ctrl.write_sb != Some(0) && i.ctrl.read_sb != Some(0)), "{target}");
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
    for target in targets() {
        let bytes = cubin(source, "k.ptx", target, 3);
        let file = File::open(&bytes).unwrap();
        let insts: Vec<_> = file.kernels[0].items.iter().filter_map(|i| i.inst()).collect();
        let conversions = insts.iter().filter(|i| i.op == Opcode::F2I);
        assert_eq!(conversions.clone().count(), 3, "{target}");
        assert!(conversions.clone().all(|i| !i.mods.has(sass::Mod::FTZ)), "{target}");
        let flushed = insts.iter().filter(|i| i.op == Opcode::FMUL && i.mods.has(sass::Mod::FTZ));
        assert!(flushed.count() > 0, "{target}");
    }
}
