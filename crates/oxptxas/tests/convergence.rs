//! Threads of a warp that part and wait for each other: every target's code ends, and does what the PTX says.

use oxptxas::verify::{self, Verdict};
use oxptxas::{Settings, compile};
use sass::Target;

/// What stands before the bodies: %out is where a thread stores, %id its number in the block, %lane that in the warp.
const HEAD: &str = "
.address_size 64
.func waits (.reg .b64 %a) { .reg .b32 %x; ld.global.u32 %x, [%a]; bar.warp.sync -1; st.global.u32 [%a+4], %x; ret; }
.func calm (.reg .b64 %a) { .reg .b32 %x; ld.global.u32 %x, [%a]; st.global.u32 [%a+4], %x; ret; }
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .pred %p<10>; .reg .b32 %r<20>, %id, %lane; .reg .b64 %in, %out, %t;
    .shared .align 8 .b8 sh[64];
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %id, %tid.x; mov.u32 %lane, %laneid;
    mul.wide.u32 %t, %id, 64; add.u64 %out, %out, %t;
    setp.eq.u32 %p1, %lane, 0; setp.lt.u32 %p2, %lane, 7; and.b32 %r1, %id, 3; setp.eq.u32 %p3, %r1, 2;
";

/// Name, body.
const BODIES: &[(&str, &str)] = &[
    (
        "vote of all while one lane has left",
        "
    @%p1 bra E; vote.sync.ballot.b32 %r2, %p2, -1; st.global.u32 [%out], %r2;
    E: st.global.u32 [%out+4], %id; ret;",
    ),
    (
        "shuffle of all under a guard",
        "
    mov.u32 %r2, %id; @!%p1 shfl.sync.idx.b32 %r2, %id, 3, 31, -1; st.global.u32 [%out], %r2; ret;",
    ),
    (
        "shuffle of some, named by a register",
        "
    vote.sync.ballot.b32 %r3, %p2, -1; @!%p2 bra E; shfl.sync.idx.b32 %r2, %id, 2, 31, %r3;
    st.global.u32 [%out], %r2; E: st.global.u32 [%out+4], %id; ret;",
    ),
    (
        "barrier while one lane has left",
        "
    @%p1 bra E; barrier.sync 0; st.global.u32 [%out], %id; E: st.global.u32 [%out+4], %id; ret;",
    ),
    (
        "barrier of the warp while one lane has left",
        "
    @%p1 bra E; bar.warp.sync -1; st.global.u32 [%out], %id; E: st.global.u32 [%out+4], %id; ret;",
    ),
    (
        "barrier behind lanes that spin",
        "
    @!%p1 bra L; mov.u32 %r3, 0; W: add.u32 %r3, %r3, 1; setp.lt.u32 %p4, %r3, 40; @%p4 bra W;
    st.volatile.shared.u32 [sh], 5; L: ld.volatile.shared.u32 %r2, [sh]; setp.ne.u32 %p5, %r2, 5; @%p5 bra L;
    bar.sync 0; st.global.u32 [%out], %r2; ret;",
    ),
    (
        "lanes wait for one that comes later",
        "
    @!%p1 bra I; st.volatile.shared.u32 [sh+8], 0; I: bar.sync 0; @%p1 bra O;
    N: ld.volatile.shared.u32 %r2, [sh+8]; setp.ne.u32 %p5, %r2, 9; @%p5 bra N; bra Q;
    O: st.volatile.shared.u32 [sh+8], 9; Q: st.global.u32 [%out], %id; ret;",
    ),
    (
        "spin lock",
        "
    @%p1 bra I; bra J; I: st.volatile.shared.u32 [sh+12], 0; st.volatile.shared.u32 [sh+16], 0; J: bar.sync 0;
    mov.u32 %r5, 0;
    L: atom.shared.cas.b32 %r2, [sh+12], 0, 1; setp.ne.u32 %p4, %r2, 0; @%p4 bra M;
    ld.volatile.shared.u32 %r6, [sh+16]; add.u32 %r6, %r6, 1; st.volatile.shared.u32 [sh+16], %r6; membar.cta;
    atom.shared.exch.b32 %r2, [sh+12], 0; mov.u32 %r5, 1;
    M: setp.eq.u32 %p4, %r5, 0; @%p4 bra L; bar.sync 0; ld.volatile.shared.u32 %r2, [sh+16];
    st.global.u32 [%out], %r2; ret;",
    ),
    (
        "lock that is asked for until it is had",
        "
    @%p1 bra I; bra J; I: st.volatile.shared.u32 [sh+12], 0; st.volatile.shared.u32 [sh+16], 0; J: bar.sync 0;
    L: atom.shared.cas.b32 %r2, [sh+12], 0, 1; setp.ne.u32 %p4, %r2, 0; @%p4 bra L;
    ld.volatile.shared.u32 %r6, [sh+16]; add.u32 %r6, %r6, 1; st.volatile.shared.u32 [sh+16], %r6; membar.cta;
    atom.shared.exch.b32 %r2, [sh+12], 0;
    bar.sync 0; ld.volatile.shared.u32 %r2, [sh+16]; st.global.u32 [%out], %r2; ret;",
    ),
    (
        "function that waits, called by some",
        "
    @%p1 bra E; call waits, (%out); E: st.global.u32 [%out+8], %id; ret;",
    ),
    (
        "function that does not wait, called by some",
        "
    @%p2 bra E; call calm, (%out); E: bar.sync 0; st.global.u32 [%out+8], %id; ret;",
    ),
    (
        "branches that meet where an outer one must not",
        "
    @%p1 bra E; bar.warp.sync -1; @%p3 bra E; ld.global.u32 %r2, [%out]; add.u32 %r2, %r2, 1;
    st.global.u32 [%out], %r2; st.global.u32 [%out+8], %r2; E: st.global.u32 [%out+4], %id; ret;",
    ),
    (
        "loop with a shuffle",
        "
    mov.u32 %r2, 0; L: shfl.sync.bfly.b32 %r3, %id, 1, 31, -1; add.u32 %r2, %r2, 1; st.global.u32 [%out], %r3;
    setp.lt.u32 %p4, %r2, 4; @%p4 bra L; st.global.u32 [%out+4], %r2; ret;",
    ),
    (
        "reduction at a barrier in the code of some warps",
        "
    setp.lt.u32 %p4, %id, 32; @!%p4 bra E; barrier.red.popc.u32 %r2, 1, 32, %p2; st.global.u32 [%out], %r2;
    E: st.global.u32 [%out+4], %id; ret;",
    ),
];

#[test]
fn code_ends_and_agrees() {
    let mut wrong = Vec::new();
    for (name, body) in BODIES {
        for (arch, version) in [("sm_75", "7.0"), ("sm_80", "7.0"), ("sm_90", "8.0"), ("sm_120", "9.0")] {
            let source = format!(".version {version}\n.target {arch}\n{HEAD}{body}\n}}\n");
            let module = ptx::parse(&source).unwrap_or_else(|e| panic!("{name}: {e:?}"));
            for opt_level in [0, 3] {
                let settings = Settings { opt_level, ..Settings::new(Target::parse(arch).unwrap()) };
                let cubin = compile(&source, "k.ptx", &settings)
                    .unwrap_or_else(|e| panic!("{name}: {}", e.render("")));
                let verdict = verify::kernel(&module, &source, &cubin.cubin, "k", 0..2);
                if verdict != Verdict::Same {
                    wrong.push(format!("{name}, {arch} -O{opt_level}: {verdict:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
