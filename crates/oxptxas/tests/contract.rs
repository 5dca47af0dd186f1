//! What we emit for `kernels/`, for every target at -O0 and -O3, holds the hardware contract (docs/hardware-contract.md).

use contract::Contract;
use oxptxas::{Settings, compile};
use rayon::prelude::*;
use sass::Target;
use sass::target::SMS;
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

/// A call that turns out to be dead leaves code like any other, padded once.
#[test]
fn kernels_whose_calls_are_dead_end_once() {
    let source = ".version 8.0\n.target sm_90\n.address_size 64\n\
        .extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
        .visible .entry k(.param .u64 a)\n{\n.reg .pred %p; .reg .b32 %r<3>; .reg .b64 %a<3>;\nld.param.u64 %a1, [a];\n\
        mov.u32 %r1, 5;\nsetp.ne.s32 %p, %r1, 5;\n@!%p bra END;\n\
        {\n.param .b64 f; .param .b64 l; .param .b32 r;\nst.param.b64 [f], %a1;\nst.param.b64 [l], %a1;\n\
        call.uni (r), vprintf, (f, l);\nld.param.b32 %r2, [r];\n}\nEND:\nst.u32 [%a1], %r1;\nret;\n}\n";
    let bytes = cubin(source, "k.ptx", Target::parse("sm_90").unwrap(), 3);
    let findings = Contract::built_in().check(&bytes).unwrap();
    let layout: Vec<String> =
        findings.iter().map(|f| f.to_string()).filter(|f| f.contains("layout")).collect();
    assert!(layout.is_empty(), "{layout:?}");
}

/// Forms that were found wrong once, or that ptxas never has, put into our code: each is found.
mod spoilt {
    use super::*;
    use sass::{Control, Inst, Mod, Opcode, Operand, RegFile, assemble, parse_inst};

    const HEAD: &str = ".address_size 64\n.visible .entry k(.param .u64 a)\n{\n.reg .pred %p; .reg .f32 %f; .reg .b32 %r<4>; \
        .reg .b64 %a<5>; .shared .align 16 .b8 s[64];\nld.param.u64 %a1, [a];\n";

    /// Our cubin of these statements.
    fn ours(target: &str, statements: &str) -> (Target, Vec<u8>) {
        let target = Target::parse(target).unwrap();
        let version = match target.sm {
            110 => "9.0",
            100.. => "8.7",
            _ => "8.0",
        };
        let source = format!(".version {version}\n.target {target}\n{HEAD}{statements}\nret;\n}}\n");
        let bytes = cubin(&source, "k.ptx", target, 3);
        let findings = Contract::built_in().check(&bytes).unwrap();
        assert!(findings.is_empty(), "before: {findings:?}");
        (target, bytes)
    }

    /// Changes words; the new ones may have another text or another control field.
    fn change(target: Target, bytes: &mut [u8], mut spoil: impl FnMut(&mut Inst, i64) -> bool) {
        let code = cubin::read::code_ranges(bytes).unwrap()["k"].clone();
        let mut changed = 0;
        for (k, word) in bytes[code].chunks_exact_mut(16).enumerate() {
            let pc = 16 * k as i64;
            let mut inst =
                sass::decode(u128::from_le_bytes((&*word).try_into().unwrap()), target, pc).unwrap();
            if spoil(&mut inst, pc) {
                changed += 1;
                word.copy_from_slice(&sass::encode(&inst, target, pc).unwrap().to_le_bytes());
            }
        }
        assert!(changed > 0, "nothing to spoil");
    }

    /// That the rule finds something that begins so.
    fn found(bytes: &[u8], rule: &str, what: &str) {
        let findings = Contract::built_in().check(bytes).unwrap();
        let is = |f: &contract::Finding| f.rule == rule && f.what.starts_with(what);
        assert!(findings.iter().any(is), "no '{rule}: {what}' in {findings:#?}");
    }

    /// Puts an instruction in the place of the first with this opcode, with its control field.
    fn replaced(target: &str, statements: &str, op: Opcode, text: &str) -> Vec<u8> {
        let (target, mut bytes) = ours(target, statements);
        let mut open = true;
        change(target, &mut bytes, |inst, pc| {
            let here = open && inst.op == op;
            open &= !here;
            if here {
                let ctrl = inst.ctrl;
                let word = assemble(text, target, pc, ctrl).unwrap_or_else(|e| panic!("{text}: {e:?}"));
                *inst = sass::decode(word, target, pc).unwrap();
            }
            here
        });
        bytes
    }

    #[test]
    fn regions_that_end_at_their_bsync() {
        for target in ["sm_75", "sm_89", "sm_90", "sm_100", "sm_120"] {
            let (target, mut bytes) = ours(
                target,
                "mov.u32 %r1, %tid.x; setp.gt.u32 %p, %r1, 3; mov.u32 %r2, 0;\n@%p bra L;\n\
                 ld.global.u32 %r2, [%a1]; atom.global.add.u32 %r2, [%a1+4], %r2;\n\
                 L: st.global.u32 [%a1+8], %r2; bar.sync 0;",
            );
            change(target, &mut bytes, |inst, _| {
                let labels = inst.operands.iter_mut().filter(|_| inst.op == Opcode::BSSY);
                let mut any = false;
                for operand in labels {
                    if let Operand::Label(to) = operand {
                        *to -= 16;
                        any = true;
                    }
                }
                any
            });
            found(&bytes, "layout", "BSSY to elsewhere");
        }
    }

    const GROUP: &str = "mov.u32 %r1, s;\ncp.async.ca.shared.global [%r1], [%a1], 16; cp.async.commit_group;\n\
        cp.async.wait_group 0; ld.shared.u32 %r2, [%r1]; st.global.u32 [%a1], %r2;";

    #[test]
    fn groups_of_copies_that_nothing_counts() {
        for target in ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"] {
            let (target, clean) = ours(target, GROUP);
            let mut bytes = clean.clone();
            change(target, &mut bytes, |inst, _| {
                inst.ctrl.write_sb = inst.ctrl.write_sb.filter(|_| inst.op != Opcode::LDGDEPBAR);
                inst.op == Opcode::LDGDEPBAR
            });
            found(&bytes, "control", "LDGDEPBAR sets no write scoreboard");
            let mut bytes = clean;
            change(target, &mut bytes, |inst, _| {
                let here = inst.op == Opcode::DEPBAR;
                inst.ctrl = if here { Control { stall: 1, ..inst.ctrl } } else { inst.ctrl };
                here
            });
            found(&bytes, "control", "DEPBAR stall 1");
        }
    }

    /// A load five cycles behind a barrier read what was there before it, on an H200.
    #[test]
    fn loads_right_behind_a_barrier() {
        for target in ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"] {
            let (target, mut bytes) = ours(
                target,
                "mov.u32 %r1, s; st.shared.u32 [%r1], %r1; bar.sync 0; ld.shared.u32 %r2, [%r1+4]; bar.sync 0;\n\
                 st.shared.u32 [%r1+8], %r2; bar.sync 0; ld.shared.u32 %r2, [%r1+8]; st.global.u32 [%a1], %r2;",
            );
            change(target, &mut bytes, |inst, _| {
                let here = inst.op == Opcode::BAR;
                inst.ctrl.stall = if here { 2 } else { inst.ctrl.stall };
                here
            });
            found(&bytes, "distances", "BAR to Load after ");
        }
    }

    /// An H200 takes it for an illegal instruction.
    #[test]
    fn two_signs_in_front_of_a_sum() {
        let copy = "mov.u32 %r1, s; ld.shared.u32 %r2, [%r1]; st.global.u32 [%a1], %r2;";
        for target in ["sm_75", "sm_89", "sm_90", "sm_100", "sm_120"] {
            let carries = if matches!(target, "sm_100" | "sm_120") { "PT, PT, " } else { "" };
            for (op, signs) in [("IADD3", "-R2, -R3, RZ"), ("IADD3.X", "~R2, ~R3, RZ, P0, !PT")] {
                let text = format!("{op} R2, {carries}{signs}");
                found(&replaced(target, copy, Opcode::LDS, &text), "signs", "IADD3 d");
            }
        }
    }

    /// BAR reads its registers late: overwritten two instructions behind it, one made FlashAttention 3 wait for ever.
    #[test]
    fn numbers_of_barriers_overwritten_at_once() {
        for target in ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"] {
            let (target, mut bytes) = ours(
                target,
                "ld.global.v2.u32 {%r1, %r2}, [%a1]; bar.sync %r1, %r2; ld.global.u32 %r3, [%a1+8]; st.global.u32 [%a1], %r3;",
            );
            let mut number = None;
            change(target, &mut bytes, |inst, pc| {
                if let Some(register) = number.take() {
                    let word = assemble(&format!("MOV R{register}, 0x1"), target, pc, Control::default());
                    *inst = sass::decode(word.unwrap_or_else(|e| panic!("{e:?}")), target, pc).unwrap();
                    return true;
                }
                if inst.op == Opcode::BAR {
                    number = inst.operands[0].as_reg().map(|r| r.reg.index);
                    inst.ctrl.read_sb = None;
                }
                inst.op == Opcode::BAR
            });
            found(&bytes, "overwrites", "BAR a:R is overwritten after ");
        }
    }

    /// `tensormap.cp_fenceproxy` copies maps by exchanges.
    #[test]
    fn exchanges_that_nothing_counts() {
        for target in ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"] {
            let (target, mut bytes) = ours(
                target,
                "mov.u32 %r1, %tid.x; atom.global.exch.b32 %r2, [%a1], %r1;\n\
                 L: ld.volatile.global.u32 %r3, [%a1+8]; setp.eq.u32 %p, %r3, 0;\n@%p bra L;",
            );
            change(target, &mut bytes, |inst, _| {
                let here = inst.op == Opcode::ATOMG;
                inst.ctrl.write_sb = inst.ctrl.write_sb.filter(|_| !here);
                here
            });
            found(&bytes, "unused", "ATOMG");
        }
    }

    #[test]
    fn conversions_that_flush_to_64_bits() {
        for target in ["sm_75", "sm_89", "sm_90", "sm_100", "sm_120"] {
            let (target, mut bytes) =
                ours(target, "ld.global.f32 %f, [%a1]; cvt.rzi.s64.f32 %a2, %f; st.global.b64 [%a1], %a2;");
            change(target, &mut bytes, |inst, pc| {
                if inst.op != Opcode::F2I {
                    return false;
                }
                let text = sass::print(inst, target).to_string().replace("F2I.", "F2I.FTZ.");
                let parsed = parse_inst(&text, target).unwrap_or_else(|e| panic!("{text} at {pc:#x}: {e:?}"));
                *inst = Inst { ctrl: inst.ctrl, ..parsed };
                inst.mods.has(Mod::FTZ)
            });
            found(&bytes, "forms", "F2I ");
        }
    }

    #[test]
    fn one_register_more_or_less_than_the_code_has() {
        for target in ["sm_75", "sm_89", "sm_90", "sm_100", "sm_120"] {
            for by in [1u8, 255] {
                let (_, mut bytes) = ours(
                    target,
                    "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%a1]; add.u32 %r0, %r1, %r2; st.global.b32 [%a1], %r0;",
                );
                // .nv.info records of four-byte format: REGCOUNT has the kernel's symbol and the number.
                let at = bytes.windows(4).position(|w| w == [0x04, 0x2f, 0x08, 0x00]).expect("REGCOUNT");
                bytes[at + 8] = bytes[at + 8].wrapping_add(by);
                found(&bytes, "attributes", "REGCOUNT beyond the highest register");
            }
        }
    }

    #[test]
    fn forms_that_ptxas_never_has() {
        let copy = "mov.u32 %r1, s; ld.shared.u32 %r2, [%r1]; st.global.u32 [%a1], %r2;";
        // Groups of copies end under no guard. (ERRBAR has one before an EXIT that has: --make-errors-visible-at-exit.)
        found(&replaced("sm_80", copy, Opcode::LDS, "@P0 LDGDEPBAR"), "forms", "LDGDEPBAR @P");
    }

    /// What takes a pipe of 32 bits two cycles is never followed after one (sm_120).
    #[test]
    fn pairs_of_registers_followed_after_one_cycle() {
        let compared = "ld.global.u64 %a2, [%a1]; ld.global.u64 %a3, [%a1+8]; setp.gt.u64 %p, %a2, %a3;\n\
            selp.b32 %r1, 3, 5, %p; st.global.u32 [%a1], %r1; add.u64 %a2, %a2, %a3; st.global.u64 [%a1+8], %a2;";
        for class in ["pairs", "pair_compare"] {
            let (target, mut bytes) = ours("sm_120", compared);
            change(target, &mut bytes, |inst, _| {
                let pairs = sass::latency::class(inst).name() == class;
                inst.ctrl.stall = if pairs { 1 } else { inst.ctrl.stall };
                pairs
            });
            found(&bytes, "control", &format!("class:{class} stall 1"));
        }
    }

    /// ARRIVES takes the address from a uniform register alone.
    #[test]
    fn arrivals_of_copies_at_a_register() {
        for target in ["sm_80", "sm_90", "sm_100", "sm_120"] {
            let (target, mut bytes) = ours(
                target,
                "mov.u32 %r1, %tid.x; shl.b32 %r1, %r1, 3; cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];",
            );
            change(target, &mut bytes, |inst, _| {
                for operand in inst.operands.iter_mut().filter(|_| inst.op == Opcode::ARRIVES) {
                    if let Operand::Addr { base, uniform, .. } = operand {
                        *base = Some(sass::Reg { file: RegFile::R, index: 4 });
                        *uniform = Some(sass::Reg::URZ);
                    }
                }
                inst.op == Opcode::ARRIVES
            });
            found(&bytes, "forms", "ARRIVES a:[R+URZ]");
        }
    }

    /// From sm_100 to sm_110 textures have a uniform register that nvdisasm doesn't print; none is URZ.
    #[test]
    fn textures_with_an_offset_in_ur0() {
        for target in ["sm_100", "sm_110"] {
            let target = Target::parse(target).unwrap();
            let source = ".version 9.0\n.target sm_100\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 t)\n{\n\
                .reg .b32 %r; .reg .f32 %f<5>; .reg .b64 %a<3>;\nld.param.u64 %a1, [a]; ld.param.u64 %a2, [t];\nmov.u32 %r, %tid.x;\n\
                tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%a2, {%r}]; st.global.f32 [%a1], %f1; ret;\n}\n";
            let mut bytes = cubin(source, "k.ptx", target, 3);
            let code = cubin::read::code_ranges(&bytes).unwrap()["k"].clone();
            let findings = Contract::built_in().check(&bytes).unwrap();
            assert!(findings.is_empty(), "before: {findings:?}");
            for (k, word) in bytes[code].chunks_exact_mut(16).enumerate() {
                let old = u128::from_le_bytes((&*word).try_into().unwrap());
                let inst = sass::decode(old, target, 16 * k as i64).unwrap();
                if inst.op.mnemonic() == "TLD" {
                    word.copy_from_slice(&(old & !(0xff << 48)).to_le_bytes());
                }
            }
            found(&bytes, "bits", "TLD.U ");
        }
    }

    #[test]
    fn tuples_at_odd_registers() {
        for target in ["sm_75", "sm_90", "sm_120"] {
            let (target, mut bytes) =
                ours(target, "ld.global.v2.b32 {%r1, %r2}, [%a1]; st.global.v2.b32 [%a1+8], {%r1, %r2};");
            change(target, &mut bytes, |inst, _| {
                let load = inst.op == Opcode::LDG;
                if let (true, Some(Operand::Reg(r))) = (
                    load,
                    inst.operands.iter_mut().find(|o| o.as_reg().is_some_and(|r| r.reg.file == RegFile::R)),
                ) {
                    r.reg.index |= 1;
                }
                load
            });
            found(&bytes, "tuples", "LDG ");
        }
    }

    /// Changes a field of a section's header, so many bytes into it.
    fn section(bytes: &mut [u8], name: &str, field: usize, change: impl FnOnce(u64) -> u64) {
        let elf = contract::elf::Elf::new(bytes).unwrap();
        let table = contract::elf::number(bytes, 40, 8) as usize;
        let index = elf.sections.iter().position(|s| s.name == name).unwrap_or_else(|| panic!("no {name}"));
        let at = table + 64 * index + field;
        let new = change(contract::elf::number(bytes, at, 8));
        bytes[at..at + 8].copy_from_slice(&new.to_le_bytes());
    }

    const SHARED: &str = "mov.u32 %r1, s; ld.shared.u32 %r2, [%r1]; st.global.u32 [%a1], %r2;";
    const FLAGS: usize = 8;
    const SIZE: usize = 32;
    const ALIGN: usize = 48;

    /// Every file for sm_110 keeps 128 bytes of shared memory under that name; ours once had none.
    #[test]
    fn the_shared_memory_that_sm_110_keeps() {
        let name = b"__nv_reservedSMEM_gb10b_war_var";
        let (_, mut bytes) = ours("sm_110", "st.global.u64 [%a1], %a1;");
        let clean = bytes.clone();
        let at = bytes.windows(name.len()).position(|w| w == name).expect("its name");
        bytes[at + name.len() - 1] = b'x';
        found(
            &bytes,
            "format",
            "sm_110 executable has there is always symbol/__nv_reservedSMEM_gb10b_war_var",
        );
        found(&bytes, "format", "symbol __nv_reservedSMEM_gb10b_war_vax");
        let mut bytes = clean;
        section(&mut bytes, ".nv.shared.reserved.0", SIZE, |n| n - 128);
        found(
            &bytes,
            "format",
            "section .nv.shared.reserved.0 of executable type 0x8 flags 0x3 align 16 entry 0 size 0x40",
        );
    }

    #[test]
    fn sections_of_other_forms() {
        for target in ["sm_75", "sm_80", "sm_90", "sm_100", "sm_110", "sm_120"] {
            let (_, clean) = ours(target, SHARED);
            for (name, field, by, what) in [
                (".text.k", FLAGS, 1, "section .text.* of executable type 0x1 flags 0x7"),
                (
                    ".nv.info.k",
                    ALIGN,
                    4,
                    "section .nv.info.* of executable type 0x70000000 flags 0x40 align 8",
                ),
                (".nv.constant0.k", SIZE, 8, "size of .nv.constant0.* of executable beyond the parameters 8"),
                (".nv.shared.k", FLAGS, 4, "section .nv.shared.* of executable type 0x8 flags 0x47"),
            ] {
                let mut bytes = clean.clone();
                section(&mut bytes, name, field, |n| n + by);
                found(&bytes, "format", what);
            }
        }
    }
}
