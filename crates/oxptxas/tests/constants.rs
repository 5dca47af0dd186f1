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
