//! Threads of a warp that part and wait for each other: every target's code ends, and does what the PTX says.

use oxptxas::{Settings, compile};
use oxsass::verify::{self, Verdict};
use sass::{Mod, Opcode, Operand, Reg, Target};
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "meetings/programs.rs"]
mod programs;
use programs::{graph, rows};

/// What stands before the bodies: %out is where a thread stores, %id its number in the block, %lane that in the warp.
const HEAD: &str = "
.address_size 64
.func waits (.reg .b64 %a) { .reg .b32 %x; ld.global.u32 %x, [%a]; bar.warp.sync -1; st.global.u32 [%a+4], %x; ret; }
.func calm (.reg .b64 %a) { .reg .b32 %x; ld.global.u32 %x, [%a]; st.global.u32 [%a+4], %x; ret; }
.func (.reg .b32 %o) swaps (.reg .b32 %a) { shfl.sync.bfly.b32 %o, %a, 3, 31, -1; ret; }
.func (.reg .b32 %o) turns (.reg .b32 %a) { shfl.sync.bfly.b32 %o, %a, 5, 31, -1; add.u32 %o, %o, 1; ret; }
.func down (.reg .b32 %n, .reg .b64 %a)
{
    .reg .pred %p; .reg .b32 %m; setp.eq.u32 %p, %n, 0; @%p bra E; sub.u32 %m, %n, 1; call down, (%m, %a);
    E: st.global.u32 [%a+4], %n; ret;
}
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
        "the end of the thread is a meeting for lanes that left another one for it",
        "
    and.b32 %r2, %id, 1; setp.ne.u32 %p3, %r2, 0; and.b32 %r2, %id, 2; setp.ne.u32 %p4, %r2, 0;
    and.b32 %r2, %id, 4; setp.ne.u32 %p5, %r2, 0; mov.u32 %r3, 2; @%p5 bra J; @%p4 bra X; bra J; X: @%p3 bra D;
    J: @%p3 bra L; @%p4 bra D; L: st.global.u32 [%out], %r2; ret;
    D: st.global.u32 [%out], %r3; st.global.u32 [%out+4], %id; st.global.u32 [%out+8], %id; st.global.u32 [%out+12], %r2; ret;",
    ),
    (
        "lanes leave a region while others of it are in a function",
        "
    and.b32 %r2, %id, 7; xor.b32 %r3, %lane, 0x55; rem.u32 %r4, %r3, 8; T: .branchtargets X, X, X, C, M, X, M, M; brx.idx %r4, T;
    C: call down, (3, %out);
    M: atom.global.add.u32 %r3, [%out+8], %r2; add.u32 %r3, %r3, %id; xor.b32 %r3, %r3, 5; st.global.u32 [%out+12], %r3;
    X: call down, (2, %out); st.global.u32 [%out+16], %id; ret;",
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
        "shuffle in a loop and behind it",
        "
    selp.u32 %r4, 2, 1, %p3; mov.u32 %r2, %id; L: shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1; add.u32 %r2, %r2, %r3;
    sub.u32 %r4, %r4, 1; setp.ne.u32 %p4, %r4, 0; @%p4 bra L; @%p3 bra E;
    shfl.sync.bfly.b32 %r3, %r2, 2, 31, -1; E: st.global.u32 [%out], %r2; st.global.u32 [%out+4], %r3; ret;",
    ),
    (
        "shuffles under guards",
        "
    @%p3 shfl.sync.bfly.b32 %r2, %id, 1, 31, -1; @!%p3 shfl.sync.bfly.b32 %r2, %lane, 2, 31, -1;
    st.global.u32 [%out+4], %r2; ret;",
    ),
    (
        "loop with a shuffle",
        "
    mov.u32 %r2, 0; L: shfl.sync.bfly.b32 %r3, %id, 1, 31, -1; add.u32 %r2, %r2, 1; st.global.u32 [%out], %r3;
    setp.lt.u32 %p4, %r2, 4; @%p4 bra L; st.global.u32 [%out+4], %r2; ret;",
    ),
    (
        "barriers with number and count in registers",
        "
    shr.u32 %r3, %id, 31; setp.lt.u32 %p4, %id, 32; bar.sync %r3; @!%p4 bra E; add.u32 %r4, %r3, 32; add.u32 %r5, %r3, 1;
    st.volatile.shared.u32 [sh], %id; bar.sync %r5, 32; bar.sync 1, %r4; bar.sync %r5, %r4;
    bar.red.popc.u32 %r2, %r5, 32, %p2; bar.red.or.pred %p5, 2, %r4, %p1; selp.u32 %r6, 5, 6, %p5; add.u32 %r2, %r2, %r6;
    ld.volatile.shared.u32 %r6, [sh]; st.global.u32 [%out], %r2; E: bar.red.popc.u32 %r2, %r3, %p2; st.global.u32 [%out+4], %r2; ret;",
    ),
    (
        "reduction at a barrier in the code of some warps",
        "
    setp.lt.u32 %p4, %id, 32; @!%p4 bra E; barrier.red.popc.u32 %r2, 1, 32, %p2; st.global.u32 [%out], %r2;
    E: st.global.u32 [%out+4], %id; ret;",
    ),
    (
        "a loop that goes on from two places",
        "
    ld.global.u32 %r2, [%in]; mad.lo.u32 %r2, %id, 1664525, %r2; mov.u32 %r3, 0;
    L: add.u32 %r3, %r3, 1; mul.lo.u32 %r2, %r2, 1664525; add.u32 %r2, %r2, 1013904223; shr.u32 %r4, %r2, 28;
    setp.lt.u32 %p4, %r4, 5; @%p4 bra L; setp.gt.u32 %p5, %r4, 13; @%p5 bra E; xor.b32 %r2, %r2, 0x5555; bra L;
    E: st.global.u32 [%out], %r3; bar.sync 0; ret;",
    ),
    (
        "a loop that goes on from two places, each for its lanes",
        "
    mov.u32 %r4, 35; L: sub.u32 %r4, %r4, 1; setp.gt.and.s32 %p4, %r4, 0, %p3; @%p4 bra L;
    sub.u32 %r4, %r4, 1; setp.le.s32 %p5, %r4, 0; @%p5 bra E; @!%p3 bra L;
    E: st.global.u32 [%out], %r4; bar.sync 0; ret;",
    ),
];

/// Regions that some lanes leave: name, body.
const LEFT: &[(&str, &str)] = &[
    (
        "cases that fall through, entered at several places, and a shuffle behind them",
        "
    and.b32 %r4, %id, 7; mov.u32 %r2, %id; setp.ge.u32 %p4, %r4, 4; @%p4 bra U; setp.eq.u32 %p5, %r4, 3; @%p5 bra C3;
    setp.eq.u32 %p5, %r4, 2; @%p5 bra C2; setp.eq.u32 %p5, %r4, 1; @%p5 bra C1; bra E;
    U: setp.eq.u32 %p5, %r4, 6; @%p5 bra C6; setp.eq.u32 %p5, %r4, 5; @%p5 bra C5; setp.eq.u32 %p5, %r4, 4; @%p5 bra C4; bra E;
    C6: mad.lo.u32 %r2, %r2, 11, 6; C5: mad.lo.u32 %r2, %r2, 13, 5; xor.b32 %r2, %r2, %lane; C4: mad.lo.u32 %r2, %r2, 17, 4;
    C3: mad.lo.u32 %r2, %r2, 19, 3; xor.b32 %r2, %r2, %id; C2: mad.lo.u32 %r2, %r2, 23, 2; shl.b32 %r3, %r2, 3; xor.b32 %r2, %r2, %r3;
    C1: mad.lo.u32 %r2, %r2, 29, 1; shl.b32 %r3, %r2, 5; xor.b32 %r2, %r2, %r3; add.u32 %r2, %r2, 77;
    E: shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1; st.global.u32 [%out], %r2; st.global.u32 [%out+4], %r3; ret;",
    ),
    (
        "a loop that is left out of a condition in it, again and again",
        "
    mov.u32 %r5, 0; mov.u32 %r2, %id;
    O: mov.u32 %r6, 0;
    L: mad.lo.u32 %r2, %r2, 1664525, 1013904223; shr.u32 %r4, %r2, 29; setp.gt.u32 %p4, %r4, 5; @!%p4 bra M;
    shr.u32 %r4, %r2, 20; and.b32 %r4, %r4, 3; setp.eq.u32 %p5, %r4, 1; @%p5 bra X; mad.lo.u32 %r2, %r2, 3, %lane; xor.b32 %r2, %r2, 99;
    M: add.u32 %r6, %r6, 1; mad.lo.u32 %r2, %r2, 5, %r6; xor.b32 %r2, %r2, 0x1234; shr.u32 %r4, %r2, 13; xor.b32 %r2, %r2, %r4; setp.lt.u32 %p4, %r6, 9; @%p4 bra L;
    X: add.u32 %r5, %r5, 1; xor.b32 %r2, %r2, %r6; setp.lt.u32 %p4, %r5, 3; @%p4 bra O;
    bar.warp.sync -1; shfl.sync.bfly.b32 %r3, %r2, 2, 31, -1; st.global.u32 [%out], %r2; st.global.u32 [%out+4], %r3; ret;",
    ),
    (
        "some end, some leave, some meet, and call a function",
        "
    setp.eq.u32 %p4, %r1, 0; and.b32 %r4, %id, 4; setp.ne.u32 %p5, %r4, 0; mov.u32 %r2, 5;
    @%p4 bra A; @%p5 bra B; setp.eq.u32 %p6, %r1, 1; @%p6 bra X; @%p1 ret; bra M;
    A: mad.lo.u32 %r2, %id, 7, 1; @%p5 bra M; bra X; B: mad.lo.u32 %r2, %id, 9, 2;
    M: xor.b32 %r2, %r2, %lane; mad.lo.u32 %r2, %r2, 3, 3; call calm, (%out); st.global.u32 [%out+12], %r2; add.u32 %r2, %r2, 1;
    X: call calm, (%out); st.global.u32 [%out+8], %r2; bar.warp.sync -1; st.global.u32 [%out+16], %r2; ret;",
    ),
];

/// Lanes that meet at different instructions: name, body.
const MEETINGS: &[(&str, &str)] = &[
    (
        "shuffles in two arms",
        "
    @%p3 bra A; shfl.sync.bfly.b32 %r2, %id, 1, 31, -1; bra E; A: mul.lo.u32 %r3, %id, 5; shfl.sync.bfly.b32 %r2, %r3, 2, 31, -1; add.u32 %r2, %r2, 7;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "several shuffles in two arms",
        "
    @%p3 bra A; shfl.sync.down.b32 %r2|%p4, %id, 1, 31, -1; add.u32 %r2, %r2, %id; shfl.sync.down.b32 %r2, %r2, 2, 31, -1; bra E; A: shfl.sync.down.b32 %r2|%p4, %lane, %r1, 31, -1; @%p4 add.u32 %r2, %r2, 3; shfl.sync.down.b32 %r3, %r2, 4, 31, -1; add.u32 %r2, %r2, %r3;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "shuffles in two arms with masks",
        "
    @%p3 bra A; and.b32 %r4, %lane, 16; shl.b32 %r5, 0xffff, %r4; shfl.sync.bfly.b32 %r2, %id, 1, 31, %r5; bra E; A: and.b32 %r4, %lane, 16; shl.b32 %r5, 0xffff, %r4; shfl.sync.bfly.b32 %r2, %lane, 2, 31, %r5; add.u32 %r2, %r2, 7;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "ballots in two arms",
        "
    @%p3 bra A; vote.sync.ballot.b32 %r2, %p1, -1; bra E; A: vote.sync.ballot.b32 %r2, %p2, -1; add.u32 %r2, %r2, 7;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "ballots in two arms with masks",
        "
    @%p3 bra A; mov.u32 %r5, 0xf0f0f0f0; shr.u32 %r4, %lane, 2; and.b32 %r4, %r4, 1; setp.eq.u32 %p5, %r4, 0; @%p5 not.b32 %r5, %r5; vote.sync.ballot.b32 %r2, %p1, %r5; bra E; A: mov.u32 %r5, 0xf0f0f0f0; shr.u32 %r4, %lane, 2; and.b32 %r4, %r4, 1; setp.eq.u32 %p5, %r4, 0; @%p5 not.b32 %r5, %r5; vote.sync.ballot.b32 %r2, %p2, %r5; add.u32 %r2, %r2, 7;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "vote.any in two arms",
        "
    @%p3 bra A; vote.sync.any.pred %p5, %p1, -1; selp.u32 %r2, 3, 5, %p5; bra E; A: vote.sync.any.pred %p5, !%p2, -1; selp.u32 %r2, 13, 15, %p5;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "vote.any in two arms, constant masks",
        "
    @%p3 bra A; vote.sync.any.pred %p5, %p1, 0x7fffffff; selp.u32 %r2, 3, 5, %p5; bra E; A: vote.sync.any.pred %p5, !%p1, 0x7fffffff; selp.u32 %r2, 13, 15, %p5;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "vote.all in two arms",
        "
    @%p3 bra A; vote.sync.all.pred %p5, %p1, -1; selp.u32 %r2, 3, 5, %p5; bra E; A: vote.sync.all.pred %p5, !%p2, -1; selp.u32 %r2, 13, 15, %p5;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "vote.all in two arms, constant masks",
        "
    @%p3 bra A; vote.sync.all.pred %p5, %p1, 0x7fffffff; selp.u32 %r2, 3, 5, %p5; bra E; A: vote.sync.all.pred %p5, !%p1, 0x7fffffff; selp.u32 %r2, 13, 15, %p5;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "vote.uni in two arms",
        "
    @%p3 bra A; vote.sync.uni.pred %p5, %p1, -1; selp.u32 %r2, 3, 5, %p5; bra E; A: vote.sync.uni.pred %p5, !%p2, -1; selp.u32 %r2, 13, 15, %p5;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "vote.uni in two arms, constant masks",
        "
    @%p3 bra A; vote.sync.uni.pred %p5, %p1, 0x7fffffff; selp.u32 %r2, 3, 5, %p5; bra E; A: vote.sync.uni.pred %p5, !%p1, 0x7fffffff; selp.u32 %r2, 13, 15, %p5;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "matches in two arms",
        "
    @%p3 bra A; match.any.sync.b32 %r2, %r1, -1; bra E; A: xor.b32 %r3, %lane, 5; and.b32 %r3, %r3, 3; match.any.sync.b32 %r2, %r3, -1; add.u32 %r2, %r2, 7;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "matches of all in two arms",
        "
    @%p3 bra A; mov.u64 %t, 5; match.all.sync.b64 %r2|%p4, %t, -1; selp.u32 %r3, 1, 9, %p4; add.u32 %r2, %r2, %r3; bra E; A: mov.u64 %t, 5; match.all.sync.b64 %r2|%p4, %t, -1; selp.u32 %r3, 4, 6, %p4; add.u32 %r2, %r2, %r3;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "matches of all in two arms that differ",
        "
    @%p3 bra A; mov.u32 %r5, -1; match.all.sync.b32 %r2|%p4, 5, %r5; selp.u32 %r3, 1, 9, %p4; add.u32 %r2, %r2, %r3; bra E; A: match.all.sync.b32 %r2|%p4, 6, -1; selp.u32 %r3, 4, 6, %p4; add.u32 %r2, %r2, %r3;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "barriers of the warp in two arms",
        "
    @%p3 bra A; st.volatile.shared.u32 [sh], 7; bar.warp.sync -1; ld.volatile.shared.u32 %r2, [sh+4]; bra E; A: st.volatile.shared.u32 [sh+4], 9; bar.warp.sync -1; ld.volatile.shared.u32 %r2, [sh];
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "barriers in two arms",
        "
    @%p3 bra A; st.volatile.shared.u32 [sh], 7; barrier.sync 0; ld.volatile.shared.u32 %r2, [sh+4]; bra E; A: st.volatile.shared.u32 [sh+4], 9; barrier.sync 0; ld.volatile.shared.u32 %r2, [sh];
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "barriers in two arms, number in a register",
        "
    shr.u32 %r5, %id, 31; @%p3 bra A; st.volatile.shared.u32 [sh], 7; barrier.sync %r5; ld.volatile.shared.u32 %r2, [sh+4]; bra E;
    A: st.volatile.shared.u32 [sh+4], 9; barrier.sync %r5; ld.volatile.shared.u32 %r2, [sh]; E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "barriers in two arms, number or count in a register",
        "
    setp.lt.u32 %p4, %id, 32; @!%p4 bra E; shr.u32 %r5, %id, 31; add.u32 %r6, %r5, 32; add.u32 %r7, %r5, 3;
    @%p3 bra A; barrier.sync %r7, 32; barrier.red.popc.u32 %r2, 2, %r6, %p1; bra E;
    A: barrier.sync %r7, 32; barrier.red.popc.u32 %r2, 2, %r6, %p2; E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "reductions at barriers in two arms",
        "
    @%p3 bra A; barrier.red.popc.u32 %r2, 0, %p1; bra E; A: barrier.red.popc.u32 %r2, 0, %p2; add.u32 %r2, %r2, 7;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "reductions of predicates at barriers in two arms",
        "
    @%p3 bra A; barrier.red.or.pred %p5, 1, %p1; selp.u32 %r2, 3, 5, %p5; bra E; A: barrier.red.or.pred %p5, 1, %p2; selp.u32 %r2, 13, 15, %p5;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "shuffles in two arms and behind them",
        "
    @%p3 bra A; shfl.sync.bfly.b32 %r2, %id, 1, 31, -1; st.global.u32 [%out+4], %r2; bra B;
    A: shfl.sync.bfly.b32 %r2, %lane, 2, 31, -1; B: shfl.sync.bfly.b32 %r3, %r2, 4, 31, -1;
    st.global.u32 [%out], %r3; ret;",
    ),
    (
        "shuffle in front of an early return",
        "
    @%p3 bra A; shfl.sync.bfly.b32 %r2, %id, 1, 31, -1; st.global.u32 [%out+4], %r2; ret;
    A: shfl.sync.bfly.b32 %r2, %lane, 2, 31, -1; st.global.u32 [%out], %r2; ret;",
    ),
    (
        "shuffles behind the end of some lanes",
        "
    @%p2 ret; @%p3 bra A; shfl.sync.bfly.b32 %r2, %id, 1, 31, -1; bra E;
    A: shfl.sync.bfly.b32 %r2, %lane, 2, 31, -1; add.u32 %r2, %r2, 100; E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "shuffle here and in a function",
        "
    @%p3 bra A; shfl.sync.bfly.b32 %r2, %id, 1, 31, -1; bra E; A: call (%r2), swaps, (%lane);
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "shuffles in two functions",
        "
    @%p3 bra A; call (%r2), turns, (%id); bra E; A: call (%r2), swaps, (%lane);
    E: st.global.u32 [%out], %r2; ret;",
    ),
];

/// The same for what the targets from sm_80 on have: name, body.
const REDUCTIONS: &[(&str, &str)] = &[
    (
        "reductions in two arms",
        "
    @%p3 bra A; redux.sync.add.u32 %r2, %id, -1; bra E; A: redux.sync.add.u32 %r2, %lane, -1; add.u32 %r2, %r2, 1;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "reductions in two arms with masks",
        "
    shr.u32 %r4, %lane, 4; mul.lo.u32 %r4, %r4, 16; shl.b32 %r5, 0xffff, %r4; @%p3 bra A;
    redux.sync.max.u32 %r2, %id, %r5; bra E; A: redux.sync.max.u32 %r2, %lane, %r5; add.u32 %r2, %r2, 1;
    E: st.global.u32 [%out], %r2; ret;",
    ),
    (
        "reduction with two masks, the warp together",
        "
    and.b32 %r4, %lane, 16; shl.b32 %r5, 0xffff, %r4; redux.sync.max.u32 %r2, %id, %r5; add.u32 %r2, %r2, %r4;
    redux.sync.add.u32 %r3, %r2, %r5; st.global.u32 [%out], %r2; st.global.u32 [%out+4], %r3; ret;",
    ),
    (
        "reduction with two masks while some lanes have left",
        "
    and.b32 %r4, %lane, 16; shl.b32 %r5, 0xffff, %r4; and.b32 %r5, %r5, 0xffffff80; @%p2 bra E;
    redux.sync.xor.b32 %r2, %id, %r5; st.global.u32 [%out], %r2; E: st.global.u32 [%out+4], %id; ret;",
    ),
    (
        "reductions with two masks in a loop",
        "
    and.b32 %r4, %lane, 16; shl.b32 %r5, 0xffff, %r4; mov.u32 %r2, %id; shr.u32 %r6, %r4, 3; add.u32 %r6, %r6, 1;
    L: redux.sync.min.u32 %r3, %r2, %r5; mad.lo.u32 %r2, %r3, 3, %lane; sub.u32 %r6, %r6, 1;
    setp.ne.u32 %p4, %r6, 0; @%p4 bra L; st.global.u32 [%out], %r2; ret;",
    ),
];

/// From sm_90 on.
const ELECTIONS: &[(&str, &str)] = &[
    (
        "elections in two arms",
        "
    @%p3 bra A; elect.sync %r2|%p4, -1; bra E; A: elect.sync %r2|%p4, -1; add.u32 %r2, %r2, 1;
    E: selp.u32 %r3, 1, 2, %p4; st.global.u32 [%out], %r2; st.global.u32 [%out+4], %r3; ret;",
    ),
    (
        "what is elected for is done once by lanes that meet",
        "
    st.shared.u32 [sh+16], 1; st.shared.u32 [sh+20], 1; st.shared.u32 [sh+24], 1; st.shared.u32 [sh+28], 1;
    fence.proxy.async; bar.sync 0; mov.u32 %r5, sh;
    @%p3 bra A; elect.sync %r2|%p4, -1; @!%p4 bra E; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out], [%r5+16], 16; bra E;
    A: elect.sync %r2|%p4, -1; @!%p4 bra E; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out+16], [%r5+16], 16;
    E: cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret;",
    ),
    (
        "election with two masks, the warp together",
        "
    and.b32 %r4, %lane, 16; shl.b32 %r5, 0xffff, %r4; elect.sync %r2|%p4, %r5; selp.u32 %r3, 1, 2, %p4;
    st.global.u32 [%out], %r2; st.global.u32 [%out+4], %r3; ret;",
    ),
];

/// What nobody needs the result of, and votes that belong to their own meeting.
const LEFTOVERS: &[(&str, &str)] = &[
    (
        "vote of all named by a register behind a shuffle at another place",
        "
    and.b32 %r11, %id, 6; setp.ne.u32 %p4, %r11, 0; mov.u32 %r7, 0; vote.sync.ballot.b32 %r6, %p3, -1; not.b32 %r12, %r6;
    @!%p3 bra M; vote.sync.ballot.b32 %r10, %p4, %r6; @!%p4 bra L; vote.sync.ballot.b32 %r7, %p2, %r10;
    L: shfl.sync.idx.b32 %r8, %r2, %r1, 31, %r6; vote.sync.all.pred %p5, %p4, %r6; selp.u32 %r9, 1, 0, %p5;
    add.u32 %r9, %r9, %r7; st.global.u32 [%out], %r9; ret;
    M: shfl.sync.idx.b32 %r9, %r1, %r1, 31, %r12; st.global.u32 [%out], %r9; ret;",
    ),
    (
        "atomic operations behind shuffles of all whose results nobody needs",
        "
    ld.param.u64 %t, [out];
    @%p3 bra A;
    shfl.sync.idx.b32 %r2, %r1, 3, 31, -1;
    red.global.add.u32 [%t+8], 1;
    bra J;
    A:
    shfl.sync.idx.b32 %r2, %r1, 3, 31, -1;
    red.global.add.u32 [%t+12], 1;
    J: ret;",
    ),
    (
        "the same on one line",
        "
    ld.param.u64 %t, [out]; @%p3 bra A; shfl.sync.idx.b32 %r2, %r1, 3, 31, -1; red.global.add.u32 [%t+8], 1; bra J; A: shfl.sync.idx.b32 %r2, %r1, 3, 31, -1; red.global.add.u32 [%t+12], 1; J: ret;",
    ),
];

/// The same from sm_80 on.
const UNUSED: &[(&str, &str)] = &[(
    "reduction of lanes named by a register, of no use",
    "
    vote.sync.ballot.b32 %r3, %p2, -1; @!%p2 bra E; redux.sync.add.u32 %r2, %id, %r3; E: st.global.u32 [%out], %id; ret;",
)];

/// Targets, and the PTX version to ask for.
const TARGETS: [(&str, &str); 5] =
    [("sm_75", "7.0"), ("sm_80", "7.0"), ("sm_90", "8.0"), ("sm_100", "8.6"), ("sm_120", "9.0")];

#[test]
fn code_ends_and_agrees() {
    let of =
        |bodies: &'static [(&str, &str)], least| bodies.iter().map(move |(name, body)| (*name, *body, least));
    let mut wrong = Vec::new();
    for (name, body, least) in
        of(BODIES, 75).chain(of(LEFT, 75)).chain(of(LEFTOVERS, 75)).chain(of(UNUSED, 80)).chain(meetings())
    {
        for (arch, source) in sources(body, least) {
            // Functions are once in the file where code is debugged, those in which lanes meet, too.
            for (opt_level, debug) in [(0, false), (3, false), (0, true)] {
                let settings = Settings { opt_level, debug, ..Settings::new(Target::parse(arch).unwrap()) };
                let cubin = compile(&source, "k.ptx", &settings)
                    .unwrap_or_else(|e| panic!("{name}: {}", e.render("")));
                let verdict = verdict(&source, &cubin.cubin);
                if verdict != Verdict::Same {
                    let debug = if debug { " -g" } else { "" };
                    wrong.push(format!("{name}, {arch} -O{opt_level}{debug}: {verdict:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Barriers that lanes leave beside functions in which lanes meet, which keep six of the twelve; a parameter in a uniform register while others run
/// that write theirs (`ULDC; NANOSLEEP; IMAD; REDUX`).
#[test]
fn registers_of_the_warp_are_enough_and_kept() {
    let mut wrong = Vec::new();
    // The first has masks in parameters, for which made-up numbers will not do.
    for (name, source, is_run) in [
        ("left and met", include_str!("convergence/left_and_met.ptx"), false),
        ("uniform constant", include_str!("convergence/uniform_constant.ptx"), true),
    ] {
        let least =
            source.split(".target sm_").nth(1).and_then(|s| s.get(..2)).unwrap().parse::<u8>().unwrap();
        for (arch, _) in TARGETS.iter().filter(|t| Target::parse(t.0).unwrap().sm >= least) {
            for opt_level in [1, 3] {
                let settings = Settings { opt_level, ..Settings::new(Target::parse(arch).unwrap()) };
                let cubin = compile(source, "k.ptx", &settings)
                    .unwrap_or_else(|e| panic!("{name}, {arch} -O{opt_level}: {}", e.render("")));
                let verdict = verdict(source, &cubin.cubin);
                if is_run && verdict != Verdict::Same {
                    wrong.push(format!("{name}, {arch} -O{opt_level}: {verdict:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Lanes take random ways through random graphs, forwards and around loops, and come together at the end.
#[test]
fn lanes_find_their_way_through_random_graphs() {
    let mut wrong = Vec::new();
    for seed in 0..300 {
        let body = graph(seed);
        for (arch, source) in sources(&body, 75) {
            let settings = Settings { opt_level: 3, ..Settings::new(Target::parse(arch).unwrap()) };
            let cubin = compile(&source, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render("")));
            let verdict = verdict(&source, &cubin.cubin);
            if verdict != Verdict::Same {
                wrong.push(format!("seed {seed}, {arch}: {verdict:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Lanes that meet those of another arm, there where nobody reads what they find out, and in front of reads that they spin on, which other lanes are
/// let run before. An attacker's programs: the WARPSYNC of what nobody read stayed without it, and YIELD stood between the two.
#[test]
fn lanes_count_on_those_of_other_arms() {
    let programs = [
        ("unread ballot", include_str!("meetings/unread_ballot.ptx")),
        ("unread election", include_str!("meetings/unread_election.ptx")),
        ("ballot", include_str!("meetings/spin_ballot.ptx")),
        ("election", include_str!("meetings/spin_election.ptx")),
        ("election of two masks", include_str!("meetings/spin_masks_election.ptx")),
        ("sum of two masks", include_str!("meetings/spin_masks_redux.ptx")),
        ("match", include_str!("meetings/spin_match.ptx")),
        ("shuffle", include_str!("meetings/spin_shuffle.ptx")),
    ];
    for (name, source) in programs {
        for opt_level in 0..=3 {
            let settings = Settings { opt_level, ..Settings::new(Target::parse("sm_90a").unwrap()) };
            let cubin = compile(source, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render("")));
            assert_eq!(verdict(source, &cubin.cubin), Verdict::Same, "{name}, -O{opt_level}");
        }
    }
}

/// Several shuffles, votes and elections in a row in two arms, round for round: the lanes of each warp are all in one of them, or meet those of the
/// other (`backend::meet_once`).
#[test]
fn lanes_meet_at_several_places_in_a_row() {
    let mut wrong = Vec::new();
    for seed in 0..60 {
        let elects = seed % 2 == 1;
        let body = rows(seed, elects);
        for (arch, source) in sources(&body, if elects { 90 } else { 75 }) {
            let settings = Settings { opt_level: 3, ..Settings::new(Target::parse(arch).unwrap()) };
            let cubin = compile(&source, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render("")));
            let verdict = verdict(&source, &cubin.cubin);
            if verdict != Verdict::Same {
                wrong.push(format!("seed {seed}, {arch}: {verdict:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Name and body of programs in which lanes meet at different instructions, and the first target that takes them.
fn meetings() -> impl Iterator<Item = (&'static str, &'static str, u8)> {
    let of =
        |bodies: &'static [(&str, &str)], least| bodies.iter().map(move |(name, body)| (*name, *body, least));
    of(MEETINGS, 75).chain(of(REDUCTIONS, 80)).chain(of(ELECTIONS, 90))
}

/// A program for each target from `least` on.
fn sources(body: &str, least: u8) -> impl Iterator<Item = (&'static str, String)> {
    let taken = TARGETS.iter().filter(move |t| Target::parse(t.0).unwrap().sm >= least);
    taken.map(move |(arch, version)| {
        (*arch, format!(".version {version}\n.target {arch}\n{HEAD}{body}\n}}\n"))
    })
}

fn verdict(source: &str, cubin: &[u8]) -> Verdict {
    let module = ptx::parse(source).unwrap_or_else(|e| panic!("{e:?}"));
    verify::kernel(&module, source, cubin, "k", 0..2)
}

/// ptxas 13.0.88 has it so: the interpreter says the same of where lanes meet, and the simulator executes its code.
#[test]
fn lanes_of_the_reference_compiler_meet() {
    let Some(tools) = std::env::var_os("OXPTXAS_ORACLES").map(PathBuf::from) else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI needs OXPTXAS_ORACLES");
        eprintln!("oracle tools not installed: skipped");
        return;
    };
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("convergence");
    std::fs::create_dir_all(&scratch).unwrap();
    let (input, output) = (scratch.join("k.ptx"), scratch.join("k.cubin"));
    let mut wrong = Vec::new();
    for (name, body, least) in meetings() {
        for (arch, source) in sources(body, least) {
            std::fs::write(&input, &source).unwrap();
            for level in ["-O0", "-O3"] {
                let run = Command::new(tools.join("ptxas"))
                    .args([&format!("-arch={arch}"), level, "-o"])
                    .args([&output, &input])
                    .output()
                    .unwrap();
                assert!(run.status.success(), "{name}: {}", String::from_utf8_lossy(&run.stderr));
                let verdict = verdict(&source, &std::fs::read(&output).unwrap());
                if verdict != Verdict::Same {
                    wrong.push(format!("{name}, {arch} {level}: {verdict:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Calls keep six of the twelve barriers: divisions have functions, in regions nested deeper than that.
#[test]
fn regions_nested_around_calls_have_barriers() {
    for depth in [5, 6, 7, 9, 12, 13, 16] {
        let (mut open, mut close) = (String::new(), String::new());
        for k in 0..depth {
            open += &format!(
                "setp.eq.u32 %p1, %r2, {k}; @%p1 bra E{k}; div.rn.f32 %f1, %f1, %f2; add.u32 %r2, %r2, %r1;\n"
            );
            let tail = format!(
                "add.u32 %r1, %r1, 1; div.rn.f32 %f2, %f1, %f2; E{k}: add.f32 %f1, %f1, 0f3f800000;\n"
            );
            close = format!("{tail}{close}");
        }
        let mut reversed: Vec<&str> = close.lines().collect();
        reversed.reverse();
        let source = format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 a)\n{{\n\
             .reg .u32 %r<4>; .reg .u64 %a<3>; .reg .f32 %f<3>; .reg .pred %p1;\n\
             ld.param.u64 %a1, [a]; mov.u32 %r1, %tid.x; mul.wide.u32 %a2, %r1, 8; add.u64 %a1, %a1, %a2;\n\
             ld.global.v2.f32 {{%f1, %f2}}, [%a1]; and.b32 %r2, %r1, 15;\n{open}{}\n\
             st.global.v2.f32 [%a1], {{%f1, %f2}}; ret;\n}}\n",
            reversed.join("\n")
        );
        for arch in ["sm_75", "sm_90", "sm_120"] {
            let target = Target::parse(arch).unwrap();
            let module = oxsass::verify::module(&source, target).unwrap();
            for opt_level in [0, 1, 3] {
                let settings = Settings { opt_level, ..Settings::new(target) };
                let output = compile(&source, "k.ptx", &settings);
                let cubin = output.unwrap_or_else(|f| panic!("{}", f.render("oxptxas"))).cubin;
                let verdict = oxsass::verify::kernel(&module, &source, &cubin, "k", 0..2);
                assert!(matches!(verdict, oxsass::verify::Verdict::Same), "{arch} {depth}: {verdict}");
            }
        }
    }
}

/// The program as two modules: the kernel, and the functions that it calls.
fn divided(source: &str) -> [String; 2] {
    let (mut kernel, mut functions) = (String::new(), String::new());
    for line in source.lines() {
        if let Some((head, _)) = line.starts_with(".func").then(|| line.split_once('{')).flatten() {
            kernel += &format!(".extern {head};\n");
            functions += &format!(".visible {line}\n");
        } else if line.starts_with(".version")
            || line.starts_with(".target")
            || line.starts_with(".address_size")
        {
            kernel += &format!("{line}\n");
            functions += &format!("{line}\n");
        } else {
            kernel += &format!("{line}\n");
        }
    }
    [kernel, functions]
}

/// Lanes at two instructions meet in objects, too: within one, and in two that are linked.
#[test]
fn lanes_meet_in_linked_objects() {
    let Some(tools) = std::env::var_os("OXPTXAS_ORACLES").map(PathBuf::from) else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI needs OXPTXAS_ORACLES");
        eprintln!("oracle tools not installed: skipped");
        return;
    };
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("linked-convergence");
    std::fs::create_dir_all(&scratch).unwrap();
    let output = scratch.join("k.cubin");
    let mut wrong = Vec::new();
    for (name, body, least) in meetings() {
        for (arch, source) in sources(body, least) {
            let [kernel, functions] = divided(&source);
            for modules in [vec![source.clone()], vec![kernel, functions]] {
                let settings = Settings { relocatable: true, ..Settings::new(Target::parse(arch).unwrap()) };
                let mut objects = Vec::new();
                for (k, module) in modules.iter().enumerate() {
                    let object = compile(module, "k.ptx", &settings);
                    let object = object.unwrap_or_else(|e| panic!("{name}: {}", e.render("")));
                    objects.push(scratch.join(format!("{k}.o")));
                    std::fs::write(&objects[k], object.cubin).unwrap();
                }
                let run = Command::new(tools.join("nvlink"))
                    .args([&format!("-arch={arch}"), "-o"])
                    .arg(&output)
                    .args(&objects)
                    .output()
                    .unwrap();
                assert!(run.status.success(), "{name}: {}", String::from_utf8_lossy(&run.stderr));
                let verdict = verdict(&source, &std::fs::read(&output).unwrap());
                if verdict != Verdict::Same {
                    wrong.push(format!("{name}, {arch}, {} objects: {verdict:?}", objects.len()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A function that calls itself and uses two barriers that it must give back.
const KEEPS: &str = ".version 9.0 .target sm_75 .const .align 16 .b8 ctab[256] = {120, 67, 186, 97}; .func (.param .f64 ret) \
    fn0(.param .b64 own, .param .b64 sums, .param .b32 depth, .param .f64 p0, .param .b32 p1, .param .b16 p2, .param \
    .b64 p3, .param .b32 p4) { .reg .pred %p<4>; .reg .b32 %r<4>; .reg .b32 %u<4>; .reg .b32 %lane, %id, %sown, \
    %sex; .reg .b32 %t17; .reg .pred %t18; .reg .b32 %t29; .reg .pred %t30; .reg .pred %t31; .reg .b32 %t35; mov.u32 \
    %id, %tid.x; ld.const.u32 %u3, [ctab+12]; ld.param.s32 %r0, [p1]; ld.param.u32 %r1, [p4]; mul.lo.u32 %r2, %id, \
    0x168913; mul.lo.u32 %r3, %id, 0x0; setp.gt.u32 %p0, %r2, 0xfffffff4; setp.gt.u32 %p2, %r0, 0x2ffc; @!%p2 bra \
    L9; and.b32 %t17, %r2, 7; L15: sub.u32 %t17, %t17, 1; setp.lt.s32 %t18, %t17, 0; @%t18 bra L16; @%p0 bra L15; rem.u32 \
    %t29, %u3, 3; setp.eq.u32 %t30, %t29, 0; @%t30 bra L27; setp.eq.u32 %t31, %t29, 1; @%t31 bra L28; bra L27; L27: \
    mad.lo.cc.u32 %r1, %r0, %r3, %r1; addc.cc.u32 %r0, %r1, %r3; madc.hi.cc.u32 %r1, %r2, %r3, %r2; L28: bfe.s32 \
    %r2, %r0, 3, 4; and.b32 %t35, %r2, 255; bfe.u32 %r3, %r0, %t35, 24; bra L15; L16: { .param .b64 a_own; .param \
    .b64 a_sums; .param .b32 a_depth; .param .f64 a_0; .param .b32 a_1; st.param.b32 [a_1], %r3; .param .b16 a_2; \
    .param .b64 a_3; .param .b32 a_4; st.param.b32 [a_4], %r2; .param .f64 a_ret; call.uni (a_ret), fn0, (a_own, \
    a_sums, a_depth, a_0, a_1, a_2, a_3, a_4); } L9: } .visible .entry k(.param .u64 in, .param .u64 floats, .param \
    .u64 out, .param .u64 gsums, .param .u32 n0, .param .u32 n1) { .reg .b32 %r<11>; .reg .b32 %u<4>; .reg .b32 \
    %lane, %id, %sown, %sex; .reg .pred %t157; .reg .b32 %t158; mov.u32 %id, %tid.x; mov.u32 %u1, %ctaid.x; \
    ld.const.u32 %u2, [ctab+8]; mul.lo.u32 %r5, %id, 0x4; dp4a.s32.u32 %r1, 0xffff8000, %u2, %u1; { .param .b64 \
    c_own; .param .b64 c_sums; .param .b32 c_depth; .param .f64 c_0; .param .b32 c_1; .param .b16 c_2; .param .b64 \
    c_3; .param .b32 c_4; st.param.b32 [c_4], %r5; .param .f64 c_ret; call.uni (c_ret), fn0, (c_own, c_sums, \
    c_depth, c_0, c_1, c_2, c_3, c_4); } setp.lt.s32 %t157, %r1, 51685841; vote.sync.ballot.b32 %t158, %t157, -1; }";

/// A function saves the barriers that it uses, which empties them, before it empties them on its own account, as sm_75 does in front of BSSY.
#[test]
fn barriers_are_saved_before_they_are_emptied() {
    let settings = Settings { opt_level: 3, ..Settings::new(Target::parse("sm_75").unwrap()) };
    let cubin = compile(KEEPS, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render(""))).cubin;
    let image = cubin::read::read(&cubin).unwrap();
    let (mut emptied, mut saved) = (Vec::new(), 0);
    // The function stands behind the kernel, which has no barriers.
    for (k, word) in image.kernels["k"].code.iter().enumerate() {
        let inst = sass::decode(*word, settings.target, 16 * k as i64).unwrap();
        if inst.op != Opcode::BMOV || !inst.mods.has(Mod::CLEAR) {
            continue;
        }
        let [Operand::Reg(to), Operand::Reg(barrier)] = &inst.operands[..] else { continue };
        if to.reg == Reg::RZ {
            emptied.push(barrier.reg);
        } else {
            saved += 1;
            assert!(!emptied.contains(&barrier.reg), "{} is saved when it is empty", barrier.reg);
        }
    }
    assert_eq!(saved, 2);
}

/// A loop that lanes leave at different times, behind which others already are by a branch that all lanes take alike: ptxas 13.0.88 has a region
/// around it, too.
#[test]
fn lanes_meet_behind_a_loop_that_others_went_around() {
    let body = "
    ld.global.u32 %r2, [%out]; mov.u32 %r5, %ctaid.x; mov.u32 %r4, -1; setp.eq.u32 %p4, %r5, 0; @%p4 bra M;
    mov.u32 %r4, 0; L: and.b32 %r7, %r4, 1; mul.wide.u32 %t, %r7, 4; add.u64 %t, %out, %t; ld.global.u32 %r3, [%t]; setp.gt.u32 %p5, %r3, %r2; @%p5 bra M;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p6, %r4, 9; @%p6 bra L; mov.u32 %r4, -1;
    M: shl.b32 %r6, %r4, 3; xor.b32 %r6, %r6, %r2; st.global.u32 [%out], %r4; st.global.u32 [%out+8], %r6; ret;";
    for (arch, source) in sources(body, 75) {
        let settings = Settings { opt_level: 3, ..Settings::new(Target::parse(arch).unwrap()) };
        let cubin =
            compile(&source, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render(&source))).cubin;
        let image = cubin::read::read(&cubin).unwrap();
        let words = image.kernels["k"].code.iter().enumerate();
        let insts = words.map(|(k, w)| sass::decode(*w, settings.target, 16 * k as i64).unwrap());
        assert_eq!(insts.filter(|i| i.op == Opcode::BSSY).count(), 1, "{arch}");
        assert_eq!(verdict(&source, &cubin), Verdict::Same, "{arch}");
    }
}

/// Lanes that are in a function while others of the warp are in another one: both have the same uniform registers, so neither counts on what it
/// put there before lanes met (random program 9308183: REDUX in one overwrote the descriptor of the other).
#[test]
fn functions_keep_nothing_in_uniform_registers_where_lanes_meet() {
    const SOURCE: &str = ".version 8.0 .target sm_80 .address_size 64
        .func stores (.reg .b64 %a, .reg .b32 %n)
        {
            .reg .pred %p; .reg .b32 %x, %i; setp.gt.u32 %p, %n, 5; st.global.u32 [%a], %n; @%p bra E; mov.u32 %i, %n;
            L: ld.global.u32 %x, [%a+4]; add.u32 %i, %i, %x; st.global.u32 [%a+8], %i; setp.lt.u32 %p, %i, 9; @%p bra L;
            E: st.global.u32 [%a+12], %n; ret;
        }
        .func (.reg .b32 %s) sums (.reg .b32 %n) { .reg .b32 %m; activemask.b32 %m; redux.sync.add.u32 %s, %n, %m; ret; }
        .visible .entry k (.param .u64 out)
        {
            .reg .pred %p; .reg .b32 %t, %u; .reg .b64 %a, %o; ld.param.u64 %a, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 16;
            add.u64 %a, %a, %o; and.b32 %u, %t, 1; setp.eq.u32 %p, %u, 0; @%p bra A; call stores, (%a, %t); bra E;
            A: call (%u), sums, (%t); st.global.u32 [%a], %u; E: ret;
        }";
    for arch in ["sm_80", "sm_90", "sm_120"] {
        let settings = Settings { opt_level: 3, ..Settings::new(Target::parse(arch).unwrap()) };
        let cubin =
            compile(SOURCE, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render(SOURCE))).cubin;
        let image = cubin::read::read(&cubin).unwrap();
        let words = image.kernels["k"].code.iter().enumerate();
        let insts: Vec<_> =
            words.map(|(k, w)| sass::decode(*w, settings.target, 16 * k as i64).unwrap()).collect();
        // The functions stand behind the kernel's end.
        let end = insts.iter().position(|i| i.op == Opcode::EXIT && i.guard == sass::Guard::TRUE).unwrap();
        let (mut known, mut read) = (Vec::new(), 0);
        for i in &insts[end + 1..] {
            if i.op == Opcode::BSYNC {
                known.clear();
            }
            for (o, slot) in i.operands.iter().zip(i.op.slots()) {
                let uniform = match o {
                    Operand::Reg(r) => Some(r.reg),
                    Operand::Addr { desc, .. } => *desc,
                    _ => None,
                };
                let Some(reg) = uniform.filter(|r| r.file == sass::RegFile::UR && !r.is_zero()) else {
                    continue;
                };
                if slot.role == sass::Role::Def {
                    known.push(reg);
                } else {
                    read += 1;
                    assert!(known.contains(&reg), "{arch}: {reg} is read behind BSYNC");
                }
            }
        }
        assert!(read > 3, "{arch}");
    }
}
