//! Constants anywhere in a bank: offsets have 16 bits and a sign.

use oxptxas::{Settings, compile};
use oxsass::verify::{self, Verdict};
use sass::Target;

const KERNEL: &str = "
.version 9.0
.target sm_75
.address_size 64
.const .align 8 .b8 pad[40000];
.const .align 8 .b32 tab[8] = {1, 2, 0x40400000, 4, 0, 0x40080000, 7, 8};
.visible .entry k(.param .u64 out)
{
    .reg .b64 %d<4>; .reg .b32 %r<8>; .reg .f32 %f<2>; .reg .f64 %g<2>;
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 7;
    ld.const.b32 %r3, [tab+4];
    add.u32 %r3, %r3, %r1;
    ld.const.f32 %f1, [tab+8];
    fma.rn.f32 %f1, %f1, %f1, 0f3f800000;
    ld.const.f64 %g1, [tab+16];
    add.f64 %g1, %g1, %g1;
    shl.b32 %r4, %r2, 2;
    mov.u32 %r5, tab;
    add.u32 %r4, %r4, %r5;
    ld.const.b32 %r6, [%r4];
    mul.wide.u32 %d2, %r1, 24;
    add.s64 %d1, %d1, %d2;
    st.global.u32 [%d1], %r3;
    st.global.f32 [%d1+4], %f1;
    st.global.f64 [%d1+8], %g1;
    st.global.u32 [%d1+16], %r6;
    ret;
}
";

/// ptxas 13.0.88 has `c[0x3][-0x63bc]` for `tab+4` (0x9c44), and LDCU alone `c[0x3][0x9c44]`.
#[test]
fn behind_the_sign_of_offsets() {
    let module = ptx::parse(KERNEL).unwrap();
    let mut wrong = Vec::new();
    for arch in ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"] {
        for opt_level in [0, 3] {
            let target = Target::parse(arch).unwrap();
            let source = KERNEL.replace("sm_75", arch);
            let cubin =
                compile(&source, "k.ptx", &Settings { opt_level, ..Settings::new(target) }).unwrap().cubin;
            let image = cubin::read::read(&cubin).unwrap();
            let words = image.kernels["k"].code.iter().enumerate();
            let text: Vec<String> = words
                .map(|(k, w)| {
                    sass::print(&sass::decode(*w, target, 16 * k as i64).unwrap(), target).to_string()
                })
                .collect();
            if !text
                .iter()
                .any(|t| t.contains("c[0x3][-0x63bc]") || t.contains("LDCU") && t.contains("[0x9c44]"))
            {
                wrong.push(format!("{arch} -O{opt_level}: {}", text.join("\n")));
            }
            match verify::kernel(&module, KERNEL, &cubin, "k", 0..2) {
                Verdict::Same => {}
                other => wrong.push(format!("{arch} -O{opt_level}: {other:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Up to sm_89 more than 4,352 bytes of parameters begin at 0x1a80 in ptxas's code (13.0.88); what is not packed counts for that from the first
/// parameter on, and alignment from the start of the bank.
#[test]
fn many_parameters_begin_elsewhere() {
    let mut wrong = Vec::new();
    for (align, bytes, first, large) in [
        (4, 4344, 0x168, None),
        (4, 4348, 0x168, Some(0x1a88)),
        (64, 4288, 0x180, None),
        (64, 4292, 0x180, Some(0x1ac0)),
        (128, 8000, 0x180, Some(0x1b00)),
        (8, 32752, 0x168, Some(0x1a88)),
    ] {
        for arch in ["sm_75", "sm_80", "sm_89", "sm_90", "sm_120"] {
            let target = Target::parse(arch).unwrap();
            let source = format!(
                ".version 9.0\n.target {arch}\n.address_size 64\n.visible .entry k(.param .u64 p, .param .align {align} .b8 big[{bytes}])\n{{\n\
                 .reg .b64 %d<5>; .reg .b32 %r<5>;\nld.param.u64 %d1, [p];\nld.param.u32 %r1, [big];\nld.param.u32 %r2, [big+{}];\nmov.u32 %r3, %tid.x;\n\
                 and.b32 %r4, %r3, 1023;\nmul.wide.u32 %d2, %r4, 4;\nmov.u64 %d3, big;\nadd.s64 %d3, %d3, %d2;\nld.param.u32 %r4, [%d3+8];\n\
                 xor.b32 %r1, %r1, %r4;\nadd.u32 %r1, %r1, %r2;\nmul.wide.u32 %d4, %r3, 4;\nadd.s64 %d1, %d1, %d4;\nst.global.u32 [%d1], %r1;\nret;\n}}\n",
                bytes - 4
            );
            let mut module = ptx::parse(&source).unwrap();
            let info = target.info();
            lower::layout::place_params(&mut module, target);
            for (opt_level, relocatable) in [(0, false), (3, false), (3, true)] {
                let settings = Settings { opt_level, relocatable, ..Settings::new(target) };
                let cubin = compile(&source, "k.ptx", &settings).unwrap().cubin;
                let image = cubin::read::read(&cubin).unwrap();
                let kernel = &image.kernels["k"];
                let (base, at) = match large {
                    _ if target.sm >= 90 => (info.param_base, None),
                    Some(at) => (0x1a80, Some(at)),
                    None => (0x160, Some(first)),
                };
                let words = kernel.code.iter().enumerate();
                let code = words.map(|(k, w)| sass::decode(*w, target, 16 * k as i64).unwrap());
                let code: Vec<String> = code.map(|i| sass::print(&i, target).to_string()).collect();
                let named =
                    at.is_none_or(|at: u32| code.iter().any(|t| t.contains(&format!("c[0x0][{at:#x}]"))));
                if kernel.params.0 != base || !named {
                    wrong.push(format!(
                        "{arch} {align} {bytes} -O{opt_level}: {:#x}\n{}",
                        kernel.params.0,
                        code.join("\n")
                    ));
                }
                if relocatable {
                    continue;
                }
                match verify::kernel(&module, &source, &cubin, "k", 0..1) {
                    Verdict::Same => {}
                    other => wrong.push(format!("{arch} {align} {bytes} -O{opt_level}: {other:?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
