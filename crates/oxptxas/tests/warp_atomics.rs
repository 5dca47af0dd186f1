//! Atomic operations of all lanes on one address are done by one lane, and give what the interpreter says, whatever lanes are there.

use oxptxas::{Settings, compile};
use oxsass::verify::{self, Verdict};
use sass::Target;

const KERNELS: &str = "
.version 9.0
.target sm_75
.address_size 64
// Sums of one number: a constant, one of the block's, one of a loop that lanes leave at different times, under a guard, of 64 bits.
.visible .entry sums(.param .u64 out, .param .u64 in, .param .u32 n)
{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<8>;
    ld.param.u64 %d1, [out];
    ld.param.u64 %d2, [in];
    ld.param.u32 %r9, [n];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mul.wide.u32 %d3, %r1, 4;
    add.s64 %d2, %d2, %d3;
    ld.global.u32 %r3, [%d2];
    red.global.add.u32 [%d1], 1;
    red.global.add.u32 [%d1+4], %r2;
    setp.lt.s32 %p1, %r3, 0;
    @%p1 red.global.add.u32 [%d1+8], 3;
    @!%p1 red.global.add.s32 [%d1+12], %r9;
    @%p1 bra AROUND;
    red.global.add.u32 [%d1+16], 5;
    red.global.add.u64 [%d1+24], 1;
AROUND:
    and.b32 %r4, %r1, 7;
    mov.u32 %r5, 0;
LOOP:
    red.global.add.u32 [%d1+32], %r5;
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %p2, %r5, %r4;
    @%p2 bra LOOP;
    ret;
}
// What differs between lanes, of which nobody reads a result.
.visible .entry reductions(.param .u64 out, .param .u64 in)
{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<8>;
    ld.param.u64 %d1, [out];
    ld.param.u64 %d2, [in];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d3, %r1, 4;
    add.s64 %d2, %d2, %d3;
    ld.global.u32 %r3, [%d2];
    setp.lt.s32 %p1, %r3, 0;
    red.global.add.u32 [%d1], %r3;
    red.global.min.s32 [%d1+4], %r3;
    red.global.max.s32 [%d1+8], %r3;
    red.global.min.u32 [%d1+12], %r3;
    red.global.max.u32 [%d1+16], %r3;
    red.global.and.b32 [%d1+20], %r3;
    red.global.or.b32 [%d1+24], %r3;
    red.global.xor.b32 [%d1+28], %r3;
    @%p1 red.global.add.u32 [%d1+32], %r3;
    @%p1 red.global.min.s32 [%d1+36], %r3;
    @%p1 red.global.max.s32 [%d1+40], %r3;
    @!%p1 red.global.min.u32 [%d1+44], %r3;
    @!%p1 red.global.max.u32 [%d1+48], %r3;
    @!%p1 red.global.and.b32 [%d1+52], %r3;
    @%p1 bra AROUND;
    red.global.xor.b32 [%d1+56], %r3;
AROUND:
    ret;
}
// Places in a list, each for one lane, of shared and of global memory: the list is full whatever the order.
.visible .entry places(.param .u64 out, .param .u64 in)
{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<8>;
    .shared .align 4 .b32 count;
    ld.param.u64 %d1, [out];
    ld.param.u64 %d2, [in];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d3, %r1, 4;
    add.s64 %d2, %d2, %d3;
    ld.global.u32 %r3, [%d2];
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra READY;
    st.shared.u32 [count], 7;
READY:
    bar.sync 0;
    setp.lt.s32 %p2, %r3, 0;
    @%p2 bra OTHERS;
    atom.shared.add.u32 %r4, [count], 2;
    and.b32 %r4, %r4, 2047;
    mul.wide.u32 %d4, %r4, 4;
    add.s64 %d4, %d1, %d4;
    st.global.u32 [%d4], 1;
OTHERS:
    bar.sync 0;
    ld.shared.u32 %r6, [count];
    st.global.u32 [%d1+8192], %r6;
    ret;
}
// Lanes that came to the first sum in two groups meet before the second, or some of them end in a function between.
.visible .entry meet(.param .u64 out)
{
    .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<3>;
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 1;
    setp.eq.u32 %p1, %r2, 0;
    add.u32 %r3, %r1, 100;
    @%p1 bra L;
    bar.warp.sync 0xaaaaaaaa;
L:
    red.global.add.u32 [%d1], 1;
    bar.warp.sync -1;
    red.global.add.u32 [%d1+4], %r3;
    red.global.max.u32 [%d1+8], %r3;
    ret;
}
.func ends(.param .b32 a)
{
    .reg .b32 %a1; .reg .pred %q;
    ld.param.b32 %a1, [a];
    setp.gt.u32 %q, %a1, 27;
    @%q exit;
    ret;
}
.visible .entry end(.param .u64 out)
{
    .reg .b32 %r<8>; .reg .b64 %d<3>;
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %tid.x;
    add.u32 %r3, %r1, 100;
    red.global.add.u32 [%d1], 1;
    { .param .b32 q; st.param.b32 [q], %r1; call ends, (q); }
    red.global.add.u32 [%d1+4], %r3;
    red.global.add.u32 [%d1+8], 3;
    ret;
}
";

#[test]
fn one_lane_does_it_for_all() {
    let module = ptx::parse(KERNELS).unwrap();
    let mut wrong = Vec::new();
    for (arch, opt_level) in
        [("sm_75", 3), ("sm_80", 3), ("sm_90", 3), ("sm_100", 3), ("sm_120", 3), ("sm_90", 2)]
    {
        let settings = Settings { opt_level, ..Settings::new(Target::parse(arch).unwrap()) };
        let cubin = compile(KERNELS, "kernel.ptx", &settings).unwrap().cubin;
        for name in verify::kernels(&module) {
            match verify::kernel(&module, KERNELS, &cubin, name, 0..4) {
                Verdict::Same => {}
                other => wrong.push(format!("{name} {arch} -O{opt_level}: {other:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The instructions of a kernel's code.
fn code(arch: &str, body: &str) -> String {
    let source = format!(
        ".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n.reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %d<4>;\n\
         ld.param.u64 %d1, [p];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %d2, %r1, 4;\nadd.s64 %d3, %d1, %d2;\nld.global.u32 %r2, [%d3+4096];\n{body}\nret;\n}}\n"
    );
    let target = Target::parse(arch).unwrap();
    let cubin = compile(&source, "k.ptx", &Settings::new(target)).unwrap().cubin;
    let image = cubin::read::read(&cubin).unwrap();
    let words = image.kernels["k"].code.iter().enumerate();
    let insts = words
        .map(|(k, w)| sass::print(&sass::decode(*w, target, 16 * k as i64).unwrap(), target).to_string());
    insts.collect::<Vec<_>>().join("\n")
}

#[test]
fn where_all_lanes_have_one_address_and_not_elsewhere() {
    let all = code("sm_90", "red.global.add.u32 [%d1], 1;");
    assert!(all.contains("VOTE.ANY") && all.contains("POPC") && all.contains("@P0 REDG"), "{all}");
    let reduced = code("sm_80", "red.global.max.s32 [%d1], %r2;");
    assert!(reduced.contains("REDUX.MAX.S32"), "{reduced}");
    assert!(code("sm_100", "red.global.max.s32 [%d1], %r2;").contains("CREDUX.MAX.S32"));
    let result = code("sm_75", "atom.global.add.u32 %r3, [%d1], 1;\nst.global.u32 [%d3], %r3;");
    assert!(result.contains("SHFL.IDX") && result.contains("SR_LTMASK"), "{result}");
    for alone in [
        // Another address for each lane.
        "red.global.add.u32 [%d3], 1;",
        // Lanes that meet in a loop may be in different rounds.
        "mov.u32 %r4, 0;\nL:\natom.global.add.u32 %r3, [%d1], %r4;\nst.global.u32 [%d3], %r3;\nadd.u32 %r4, %r4, 1;\nsetp.lt.u32 %p1, %r4, %r2;\n@%p1 bra L;",
        // One lane alone.
        "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra L;\nred.global.add.u32 [%d1], 1;\nL:",
        // No sums of several.
        "red.global.inc.u32 [%d1], 9;",
        "red.global.add.f32 [%d1], 0f3f800000;",
        "red.global.max.s64 [%d1], %d2;",
        "atom.global.max.u32 %r3, [%d1], 9;\nst.global.u32 [%d3], %r3;",
    ] {
        let code = code("sm_90", alone);
        assert!(!code.contains("VOTE"), "{alone}: {code}");
    }
}

/// ptxas has REDG here too: only an exchange between lanes reads the result, and nobody that one's.
#[test]
fn results_that_only_unneeded_code_reads_are_not_fetched() {
    let code =
        code("sm_120", "atom.global.add.u32 %r3, [%d3], %r2;\nshfl.sync.idx.b32 %r4|%p1, %r3, %r2, 31, -1;");
    assert!(code.contains("REDG") && !code.contains("ATOMG"), "{code}");
}
