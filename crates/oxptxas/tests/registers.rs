//! How many registers a cubin states for a thread: those that its code names, and the two that the hardware keeps.

use oxptxas::{Settings, compile};
use sass::target::{HARDWARE_REGISTERS, LEAST_REGISTERS};
use sass::{Role, Target};

/// The highest general register that an instruction names, + 1.
fn named(inst: &sass::Inst) -> u32 {
    let mut most = 0;
    let mut see = |r: sass::Reg, width: u8| {
        if r.file == sass::RegFile::R && !r.is_zero() {
            most = most.max(u32::from(r.index) + u32::from(width));
        }
    };
    for (i, (operand, slot)) in inst.operands.iter().zip(inst.op.slots()).enumerate() {
        match operand {
            sass::Operand::Reg(r) if slot.role == Role::Def || slot.role == Role::Use => {
                see(r.reg, inst.op.width(i, &inst.mods));
            }
            sass::Operand::Addr { base: Some(r), width, .. } => {
                see(*r, if *width == sass::AddrWidth::R64 { 2 } else { 1 });
            }
            _ => {}
        }
    }
    most
}

/// What the file states for each kernel, and what its code names.
fn counts(source: &str, target: Target, opt_level: u8, max_registers: Option<u32>) -> Vec<(u32, u32)> {
    let settings = Settings { opt_level, max_registers, ..Settings::new(target) };
    let output = compile(source, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render("test")));
    let image = cubin::read::read(&output.cubin).unwrap();
    let count = |k: &cubin::read::KernelImage| {
        let insts = k.code.iter().enumerate().map(|(i, w)| sass::decode(*w, target, 16 * i as i64).unwrap());
        (k.registers, insts.map(|i| named(&i)).max().unwrap_or(0))
    };
    image.kernels.values().map(count).collect()
}

/// ptxas states 32 for what calls the driver's functions for gradients of volumes and cubes, which may use as many, whatever the limit is.
#[test]
fn callers_of_gradients_state_what_those_may_use() {
    let probe = concat!(env!("CARGO_MANIFEST_DIR"), "/../contract/probes/gradients.ptx");
    let source = std::fs::read_to_string(probe).unwrap();
    for sm in [90, 100, 120] {
        for (level, limit) in [(0, None), (3, None), (3, Some(24))] {
            let counts = counts(&source, Target::new(sm).unwrap(), level, limit);
            assert!(counts.iter().all(|(stated, _)| *stated >= 32), "sm_{sm} -O{level}: {counts:?}");
        }
    }
}

#[test]
fn every_kernel_states_two_registers_more_than_it_names() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "ptx") {
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        for sm in [75, 80, 90, 120] {
            for level in [0, 3] {
                for (stated, named) in counts(&source, Target::new(sm).unwrap(), level, None) {
                    seen += 1;
                    let needed = (named + u32::from(HARDWARE_REGISTERS)).max(LEAST_REGISTERS.into());
                    assert!(stated >= needed, "{}: {stated} stated, R{} named", path.display(), named - 1);
                }
            }
        }
    }
    assert!(seen > 250, "{seen} kernels");
}

/// Forty values live at once, under a limit: `.maxnreg`, or `-maxrregcount`.
fn pressure(directive: &str) -> String {
    let mut body = String::new();
    for i in 0..40 {
        body += &format!("ld.global.u32 %r{i}, [%a+{}];\n", 4 * i);
    }
    body += "bar.sync 0;\n";
    for i in 0..40 {
        body += &format!("st.global.u32 [%a+{}], %r{i};\n", 1024 + 4 * i);
    }
    format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p) {directive} {{\n\
         .reg .b64 %a; .reg .b32 %r<40>;\nld.param.u64 %a, [p];\n{body}ret;\n}}\n"
    )
}

/// ptxas 13.0.88: `.maxnreg 30` states 30 and names R27, limits below 24 become 24 (R21).
#[test]
fn a_limit_counts_the_registers_that_the_hardware_keeps() {
    for sm in [75, 90, 120] {
        let target = Target::new(sm).unwrap();
        for (asked, stated) in [(30, 30), (32, 32), (24, 24), (16, 24), (1, 24)] {
            assert_eq!(
                counts(&pressure(&format!(".maxnreg {asked}")), target, 3, None),
                [(stated, stated - 2)]
            );
        }
        assert_eq!(counts(&pressure(""), target, 3, Some(28)), [(28, 26)]);
        assert!(counts(&pressure(""), target, 3, None)[0].1 <= 253);
    }
}

#[test]
fn an_empty_kernel_states_four() {
    let empty = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n";
    for sm in [75, 80, 90, 100, 120] {
        let stated = counts(empty, Target::new(sm).unwrap(), 3, None)[0].0;
        assert_eq!(stated, u32::from(LEAST_REGISTERS));
    }
}

/// What the driver's functions leave alone (`driver_registers` in the table of targets) holds values across calls of them; on sm_75 they
/// keep what any function keeps.
#[test]
fn values_stay_in_registers_across_the_drivers_functions() {
    use std::fmt::Write;
    let mut source = String::from(
        ".version 8.0\n.target sm_75\n.address_size 64\n.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n\
         .visible .entry k(.param .u64 p)\n{\n.reg .pred %p;\n.reg .b32 %r<200>;\n.reg .b64 %d;\nld.param.u64 %d, [p];\n",
    );
    for i in 0..200 {
        writeln!(source, "ld.global.u32 %r{i}, [%d+{}];", 4 * i).unwrap();
    }
    source += "setp.ne.u32 %p, %r3, 7;\n@%p bra L;\n{ .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %d;\n\
               st.param.b64 [b], 0; call.uni (r), vprintf, (a, b); }\nL:\n";
    for i in 0..200 {
        writeln!(source, "st.global.u32 [%d+{}], %r{i};", 4 * (i * 7 % 200)).unwrap();
    }
    source += "ret;\n}\n";
    for (sm, spills) in [(75, true), (80, false), (90, false), (100, false), (120, false)] {
        let target = Target::new(sm).unwrap();
        let output = compile(&source, "k.ptx", &Settings::new(target))
            .unwrap_or_else(|e| panic!("{}", e.render("test")));
        let image = cubin::read::read(&output.cubin).unwrap();
        let mut code = image.kernels["k"].code.iter().map(|w| sass::decode(*w, target, 0).unwrap());
        assert_eq!(code.any(|i| i.op == sass::Opcode::LDL), spills, "sm_{sm}");
    }
}
