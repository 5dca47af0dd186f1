//! Every kernel's code does what its PTX says on launches that nobody wrote.

use oxptxas::verify::{self, Verdict};
use oxptxas::{Settings, compile};
use sass::Target;
use std::path::Path;

#[test]
fn kernels_agree_on_made_up_launches() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|x| x == "ptx"));
    files.sort();
    let (mut compared, mut wrong) = (0, Vec::new());
    for file in &files {
        let source = std::fs::read_to_string(file).unwrap();
        let module = ptx::parse(&source).unwrap();
        for (arch, opt_level) in [("sm_75", 3), ("sm_90", 0), ("sm_120", 3)] {
            let settings = Settings { opt_level, ..Settings::new(Target::parse(arch).unwrap()) };
            let cubin = compile(&source, "kernel.ptx", &settings).unwrap().cubin;
            for name in verify::kernels(&module) {
                match verify::kernel(&module, &source, &cubin, name, 0..2) {
                    Verdict::Same | Verdict::Close => compared += 1,
                    Verdict::Differs(how) => wrong.push(format!("{name} {arch} -O{opt_level}: {how}")),
                    Verdict::Silent | Verdict::Undefined(_) | Verdict::OutOfScope(_) => {}
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 90, "only {compared} kernels stored anything");
}

/// A guarded load of a vector into registers that are wider than its elements keeps all of them.
const GUARDED: &str = "
.version 9.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .pred %p<4>;
    .reg .b32 %r<10>;
    .reg .b64 %d<6>, %t<4>;
    ld.param.u64 %t0, [in];
    ld.param.u64 %t1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %t2, %r1, 64;
    add.u64 %t0, %t0, %t2;
    add.u64 %t1, %t1, %t2;
    setp.gt.u32 %p3, %r1, 5;
    mov.b64 %d0, {%r1, 7};
    @%p3 ld.global.v4.u32 {%d0, _, _, _}, [%t0];
    st.global.u64 [%t1], %d0;
    mov.b64 %d1, {%r1, 7};
    @%p3 ld.global.v2.u32 {_, %d1}, [%t0+8];
    st.global.u64 [%t1+8], %d1;
    mov.b64 %d2, {%r1, 7};
    @%p3 ld.global.s32 %d2, [%t0+16];
    st.global.u64 [%t1+16], %d2;
    mov.b64 %d3, {%r1, 7};
    mov.u32 %r4, %r1;
    @%p3 ld.global.v2.s32 {%d3, %r4}, [%t0+24];
    st.global.u64 [%t1+24], %d3;
    st.global.u32 [%t1+32], %r4;
    mov.b64 %d4, {%r1, 7};
    @!%p3 ld.global.v2.u64 {_, %d4}, [%t0+32];
    st.global.u64 [%t1+40], %d4;
    ret;
}
";

#[test]
fn guarded_vector_loads_keep_whole_registers() {
    let module = ptx::parse(GUARDED).unwrap();
    for opt_level in [0, 3] {
        let settings = Settings { opt_level, ..Settings::new(Target::parse("sm_75").unwrap()) };
        let cubin = compile(GUARDED, "guarded.ptx", &settings).unwrap().cubin;
        assert_eq!(verify::kernel(&module, GUARDED, &cubin, "k", 0..2), Verdict::Same, "-O{opt_level}");
    }
}

/// What differs is told with both instructions that made it.
#[test]
fn the_first_differing_store_is_named() {
    let module = ptx::parse(GUARDED).unwrap();
    let other = GUARDED.replace("st.global.u64 [%t1+16], %d2", "st.global.u64 [%t1+16], %d1");
    let cubin = compile(&other, "other.ptx", &Settings::new(Target::parse("sm_75").unwrap())).unwrap().cubin;
    let Verdict::Differs(how) = verify::kernel(&module, GUARDED, &cubin, "k", 0..2) else {
        panic!("no difference")
    };
    let line = 1 + GUARDED.lines().position(|l| l.contains("[%t1+16]")).unwrap();
    assert!(how.contains(&format!("stored by line {line} of the PTX, by /*")), "{how}");
    assert!(how.contains("STG"), "{how}");
}
