//! Asynchronous operations done as late as code allows: what waits for them gives the same, what does not, does not.

use oxptxas::{Settings, compile};
use oxsass::verify::{self, Verdict};
use sass::Target;

/// A launch of one block.
const LAUNCH: u64 = 8;

fn source(target: &str, body: &str) -> String {
    format!(
        ".version 9.0\n.target {target}\n.address_size 64\n.shared .align 1024 .b8 m[4096];\n.shared .align 8 .b8 bar[8];\n\
         .shared .align 4 .b8 at[4];\n.visible .entry k(.param .u64 in, .param .u64 out)\n.reqntid 128\n{{\n\
         .reg .pred p, q, one; .reg .b32 t, w, s, b, v, u, ta, tw; .reg .b64 pi, po, a, d;\n\
         mov.u32 t, %tid.x; shr.u32 w, t, 5; ld.param.u64 pi, [in]; ld.param.u64 po, [out]; mul.wide.u32 a, t, 16;\n\
         add.u64 pi, pi, a; add.u64 po, po, a; mov.u32 b, bar; mov.u32 s, m; shl.b32 v, t, 4; add.u32 s, s, v;\n\
         setp.eq.u32 one, t, 0; setp.lt.u32 p, t, 32;\n{body}ret;\n}}\n"
    )
}

/// What comes out of the code of one PTX compared with another, at once and late.
fn verdicts(target: &str, code: &str, ptx: &str) -> [Verdict; 2] {
    let name = Target::parse(target).unwrap();
    let (code, ptx) = (source(target, code), source(target, ptx));
    let module = verify::module(&ptx, name).unwrap_or_else(|e| panic!("{e:?}\n{ptx}"));
    let cubin =
        compile(&code, "k.ptx", &Settings::new(name)).unwrap_or_else(|e| panic!("{}", e.render("test")));
    [false, true].map(|late| verify::kernel_as((&module, &ptx, &cubin.cubin), "k", LAUNCH..LAUNCH + 1, late))
}

/// A body with the wait that it needs, `WAIT`, and without; and code that lacks it though the PTX has it.
fn waits(target: &str, body: &str, wait: &str) {
    let (with, without) = (body.replace("WAIT", wait), body.replace("WAIT", ""));
    let found = verdicts(target, &with, &with);
    assert!(found.iter().all(|v| *v == Verdict::Same), "{target} with {wait}: {found:?}");
    let found = verdicts(target, &without, &without);
    assert!(matches!(&found, [Verdict::Same, Verdict::Undefined(_)]), "{target} without {wait}: {found:?}");
    let found = verdicts(target, &without, &with);
    assert!(
        matches!(&found, [Verdict::Same, Verdict::Differs(_)]),
        "{target}, code without {wait}: {found:?}"
    );
}

#[test]
fn copies_of_threads() {
    for target in ["sm_80", "sm_90", "sm_120"] {
        let body = "cp.async.ca.shared.global [s], [pi], 16;\ncp.async.commit_group;\nWAIT\nld.shared.u32 v, [s];\n\
                    st.global.u32 [po], v;\n";
        waits(target, body, "cp.async.wait_group 0;");
        // The last group may still be under way.
        let body = "cp.async.ca.shared.global [s], [pi], 8;\ncp.async.commit_group;\n\
                    cp.async.ca.shared.global [s+8], [pi+8], 8;\ncp.async.commit_group;\nWAIT\nld.shared.u32 v, [s];\n\
                    st.global.u32 [po], v;\n";
        waits(target, body, "cp.async.wait_group 1;");
        let body = "@one mbarrier.init.shared.b64 [b], 128;\nbar.sync 0;\ncp.async.ca.shared.global [s], [pi], 16;\n\
                    cp.async.mbarrier.arrive.noinc.shared.b64 [b];\nWAIT\nld.shared.u32 v, [s];\nst.global.u32 [po], v;\n";
        let wait = "L: mbarrier.test_wait.parity.shared.b64 q, [b], 0;\n@!q bra L;";
        if target == "sm_80" {
            // Who looks at a barrier is not known there: the copies are done at the arrival.
            let body = body.replace("WAIT", wait);
            assert_eq!(verdicts(target, &body, &body), [Verdict::Same, Verdict::Same]);
        } else {
            waits(target, body, wait);
        }
    }
}

#[test]
fn bulk_copies() {
    let body = "@one mbarrier.init.shared.b64 [b], 1;\nfence.proxy.async;\nbar.sync 0;\n\
                @one mbarrier.arrive.expect_tx.shared.b64 _, [b], 2048;\n\
                @one cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [pi], 2048, [b];\nbar.sync 0;\nWAIT\n\
                ld.shared.u32 v, [s];\nst.global.u32 [po], v;\n";
    let wait = "L: mbarrier.try_wait.parity.shared.b64 q, [b], 0;\n@!q bra L;";
    waits("sm_90", body, wait);
    waits("sm_100a", body, wait);
    // What is copied out of shared memory may not be overwritten yet.
    let body = "st.shared.v4.u32 [s], {t, t, t, t};\nfence.proxy.async;\nbar.sync 0;\n\
                @one cp.async.bulk.global.shared::cta.bulk_group [po], [s], 2048;\n@one cp.async.bulk.commit_group;\nWAIT\n\
                bar.sync 0;\nst.shared.u32 [s], w;\n";
    waits("sm_90", body, "@one cp.async.bulk.wait_group.read 0;");
    waits("sm_120", body, "@one cp.async.bulk.wait_group 0;");
}

#[test]
fn tensor_memory() {
    let start = "mov.u32 v, at;\n@p tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [v], 32;\nbar.sync 0;\n\
                 ld.shared.u32 ta, [v]; shl.b32 tw, w, 21; add.u32 tw, tw, ta;\n";
    let end = "bar.sync 0;\n@p tcgen05.dealloc.cta_group::1.sync.aligned.b32 ta, 32;\n";
    let body = "tcgen05.st.sync.aligned.32x32b.x1.b32 [tw], {t};\nWAIT\n\
                tcgen05.ld.sync.aligned.32x32b.x1.b32 {v}, [tw];\ntcgen05.wait::ld.sync.aligned;\nst.global.u32 [po], v;\n";
    waits("sm_100a", &format!("{start}{body}{end}"), "tcgen05.wait::st.sync.aligned;");
    let body = "@one mbarrier.init.shared.b64 [b], 1;\nadd.u32 u, t, 7; st.shared.v4.u32 [s], {u, w, t, w};\nfence.proxy.async;\nbar.sync 0;\n\
                mov.u32 v, m; shr.u32 v, v, 4; cvt.u64.u32 d, v; or.b64 d, d, 0x0000400800080000;\n\
                tcgen05.st.sync.aligned.32x32b.x1.b32 [tw], {t};\ntcgen05.wait::st.sync.aligned;\n\
                tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\n\
                @one tcgen05.cp.cta_group::1.128x128b [ta], d;\n\
                @one tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [b];\nbar.sync 0;\nWAIT\n\
                tcgen05.ld.sync.aligned.32x32b.x1.b32 {v}, [tw];\ntcgen05.wait::ld.sync.aligned;\nst.global.u32 [po], v;\n\
                END: mbarrier.try_wait.parity.shared.b64 q, [b], 0;\n@!q bra END;\n";
    let wait =
        "L: mbarrier.try_wait.parity.shared.b64 q, [b], 0;\n@!q bra L;\ntcgen05.fence::after_thread_sync;";
    waits("sm_100a", &format!("{start}{body}{end}"), wait);
}

/// Products of warp groups read shared memory until they are waited for.
#[test]
fn products_of_warp_groups() {
    let zeros = (0..4).map(|i| format!("mov.b32 d{i}, 0;\n")).collect::<String>();
    let body = format!(
        ".reg .b32 d<4>;\nmov.b32 v, 0x3c003c00; st.shared.v4.u32 [s], {{v, v, v, v}};\nfence.proxy.async;\nbar.sync 0;\n\
         mov.u32 v, m; shr.u32 v, v, 4; cvt.u64.u32 d, v; or.b64 d, d, 0x0000001000080000;\n{zeros}wgmma.fence.sync.aligned;\n\
         wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{d0, d1, d2, d3}}, d, d, 1, 1, 1, 0, 0;\n\
         wgmma.commit_group.sync.aligned;\nWAIT\nbar.sync 0;\nmov.b32 v, 0x40004000; st.shared.v4.u32 [s], {{v, v, v, v}};\n\
         wgmma.wait_group.sync.aligned 0;\nst.global.v4.u32 [po], {{d0, d1, d2, d3}};\n"
    );
    waits("sm_90a", &body, "wgmma.wait_group.sync.aligned 0;");
}
