//! Kernels that copy tiles, for several test programs.

use sim::launch::{Launch, LaunchFile};

/// A kernel of 64 threads; thread 0 runs `body`, whose registers are `%x` and `%y` (1 and 2 less than the block's number), `%m`
/// (the map), `%s` (a shared address, aligned to 1024); then all store 4 KiB of shared memory.
pub fn kernel(target: &str, body: &str) -> String {
    format!(
        ".version 8.8\n.target {target}\n.address_size 64\n\
         .visible .entry k(.param .u64 a, .param .align 64 .b8 map[128], .param .u64 b) {{\n\
         .reg .b64 %m, %in, %out, %t, %state; .reg .b32 %s, %n, %x, %y, %r<16>; .reg .pred %p<4>; .reg .b16 %h<4>;\n\
         .shared .align 1024 .b8 sh[4096]; .shared .align 128 .b8 own[128]; .shared .align 8 .b64 bar;\n\
         mov.u64 %m, map; cvta.param.u64 %m, %m; ld.param.u64 %out, [b]; cvta.to.global.u64 %out, %out;\n\
         ld.param.u64 %in, [a]; cvta.to.global.u64 %in, %in;\n\
         mov.u32 %n, %tid.x; mov.u32 %x, %ctaid.x; add.s32 %y, %x, -2; add.s32 %x, %x, -1; mov.u32 %s, sh;\n\
         mov.u32 %r0, %ctaid.x; mad.wide.u32 %out, %r0, 4096, %out; shl.b32 %r1, %n, 2; add.u32 %r2, %s, %r1;\n\
         cvt.u64.u32 %t, %r1; add.u64 %out, %out, %t; setp.ne.u32 %p0, %n, 0; mov.u32 %r3, 0;\n\
         Z: add.u32 %r4, %r2, %r3; sub.u32 %r5, %r4, %s; mad.lo.u32 %r5, %r5, 77, 5; st.shared.u32 [%r4], %r5; add.u32 %r3, %r3, 256;\n\
         setp.lt.u32 %p1, %r3, 4096; @%p1 bra Z;\n\
         @!%p0 mbarrier.init.shared.b64 [bar], 1; bar.sync 0; barrier.cluster.arrive; barrier.cluster.wait;\n\
         @%p0 bra W;\n{body}\n\
         W: bar.sync 0; barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r3, 0;\n\
         S: add.u32 %r4, %r2, %r3; ld.shared.u32 %r5, [%r4]; cvt.u64.u32 %t, %r3; add.u64 %t, %out, %t;\n\
         st.global.u32 [%t], %r5; add.u32 %r3, %r3, 256; setp.lt.u32 %p1, %r3, 4096; @%p1 bra S;\nret;\n}}\n"
    )
}

/// Its launch, with a tensor map and what there is to say of clusters.
pub fn launch(map: &str, cluster: &str) -> Launch {
    let text = format!(
        "[[launch]]\nkernel = 'k'\ngrid = [4, 1, 1]\nblock = [64, 1, 1]\n{cluster}\n\
         args = [{{ buffer = 'in' }}, {{ tensormap = {{ buffer = 'in', {map} }} }}, {{ buffer = 'out' }}]\n\
         [launch.buffers.in]\ntype = 'i16'\nlength = 4096\nseed = 7\nrandom = [15360, 16383]\ncompare = 'exact'\n\
         [launch.buffers.out]\ntype = 'u32'\nlength = 4096\ncompare = 'exact'\n"
    );
    LaunchFile::parse(&text).unwrap().launch.remove(0)
}

/// Waits for so many bytes at the barrier.
macro_rules! awaited {
    ($bytes:literal, $copy:literal) => {
        concat!(
            "mbarrier.arrive.expect_tx.shared.b64 %state, [bar], ",
            $bytes,
            ";\n",
            $copy,
            "\nV: mbarrier.try_wait.shared.b64 %p1, [bar], %state; @!%p1 bra V;"
        )
    };
}

const ALL: &[&str] = &["sm_90", "sm_100", "sm_120"];
const NEW: &[&str] = &["sm_100", "sm_120"];

/// Maps, clusters, what a thread does, targets: copies of columns of pixels.
pub const COLUMNS: &[Case] = &[
    (
        "type = 'f16', dims = [16, 9, 7, 3], strides = [32, 288, 2016], box = [1, 1, 1, 1], columns = { channels = 8, pixels = 64, lower = [-1, -1], upper = [-1, -1] }",
        "",
        awaited!(
            "1024",
            "add.s32 %r7, %x, 1; mov.b16 %h0, 1; mov.b16 %h1, 2;\n\
             cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%s], [%m, {8, %r7, %x, 1}], [bar], {%h0, %h1};"
        ),
        ALL,
    ),
    (
        "type = 'f16', dims = [16, 9, 7, 3], strides = [32, 288, 2016], box = [1, 1, 1, 1], steps = [1, 2, 2, 1], swizzle = 32, columns = { channels = 16, pixels = 40, lower = [-1, 0], upper = [-1, -2] }",
        "",
        awaited!(
            "1280",
            "add.s32 %r7, %x, 1; mov.b16 %h0, 2; mov.b16 %h1, 3;\n\
             cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%s], [%m, {0, %x, %r7, 2}], [bar], {%h0, %h1};"
        ),
        ALL,
    ),
    (
        "type = 'f16', dims = [16, 9, 20], strides = [32, 320], box = [1, 1, 1], columns = { channels = 16, pixels = 96, lower = [-1], upper = [2] }",
        "",
        awaited!(
            "3072",
            "add.u32 %r7, %x, 9; cvt.u16.u32 %h0, %r7;\n\
             cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%s], [%m, {0, %x, 3}], [bar], {%h0};"
        ),
        ALL,
    ),
    (
        "type = 'f16', dims = [16, 4, 3, 4, 3], strides = [32, 128, 384, 1536], box = [1, 1, 1, 1, 1], columns = { channels = 16, pixels = 100, lower = [-1, -1, -1], upper = [0, 1, 0] }",
        "",
        awaited!(
            "3200",
            "mov.b16 %h0, 1; mov.b16 %h1, 2; mov.b16 %h2, 1; add.s32 %r7, %x, 1;\n\
             cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%s], [%m, {0, %x, %x, %r7, 1}], [bar], {%h0, %h1, %h2};"
        ),
        ALL,
    ),
    (
        "type = 'f16', dims = [16, 9, 7, 3], strides = [32, 288, 2016], box = [1, 1, 1, 1], columns = { channels = 8, pixels = 64, lower = [-1, -1], upper = [-1, -1] }",
        "cluster = [2, 1, 1]",
        awaited!(
            "2048",
            "and.b32 %r7, %x, 1; mov.b16 %h0, 1; mov.b16 %h1, 0; mov.b16 %h2, 3; mov.u32 %r8, %cluster_ctarank; shl.b32 %r8, %r8, 10; add.u32 %r8, %r8, %s;\n\
             cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster [%r8], [%m, {0, %r7, %r7, 1}], [bar], {%h0, %h1}, %h2;"
        ),
        &["sm_90", "sm_100"],
    ),
    (
        "type = 'f16', dims = [16, 9, 7, 3], strides = [32, 288, 2016], box = [1, 1, 1, 1], columns = { channels = 8, pixels = 48, lower = [-2, 0], upper = [-1, 0] }",
        "",
        awaited!(
            "768",
            "mov.b16 %h0, 0; add.u32 %r7, %x, 2; cvt.u16.u32 %h1, %r7;\n\
             cp.async.bulk.tensor.4d.shared::cta.global.im2col::w.mbarrier::complete_tx::bytes [%s], [%m, {8, %x, 5, 0}], [bar], {%h0, %h1};"
        ),
        NEW,
    ),
    (
        "type = 'f16', dims = [16, 9, 7, 3], strides = [32, 288, 2016], box = [1, 1, 1, 1], steps = [1, 2, 1, 1], columns = { channels = 8, pixels = 48, lower = [-1, 0], upper = [1, 0] }",
        "",
        awaited!(
            "2048",
            "mov.b16 %h0, 0; mov.b16 %h1, 1;\n\
             cp.async.bulk.tensor.4d.shared::cta.global.im2col::w::128.mbarrier::complete_tx::bytes [%s], [%m, {0, %x, 5, 0}], [bar], {%h0, %h1};"
        ),
        &["sm_100a", "sm_103a"],
    ),
    (
        "type = 'f16', dims = [16, 9, 7, 3], strides = [32, 288, 2016], box = [1, 1, 1, 1], columns = { channels = 8, pixels = 64, lower = [0, 0], upper = [0, 0] }",
        "",
        "add.s32 %r7, %x, 1;\n\
         cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%m, {0, %r7, 2, 0}], [%s];\n\
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        ALL,
    ),
];

/// Copies of elements narrower than bytes, and with units of a swizzle that stay together.
pub const UNITS: &[Case] = &[
    (
        "type = 'f16', dims = [64, 30], strides = [128], box = [64, 8], swizzle = 128, together = 32",
        "",
        awaited!(
            "1024",
            "\n\
             cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%s], [%m, {0, %y}], [bar];"
        ),
        NEW,
    ),
    (
        "type = 'f16', dims = [64, 30], strides = [128], box = [64, 8], swizzle = 128, together = 64",
        "",
        awaited!(
            "1024",
            "\n\
             cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%s], [%m, {0, %y}], [bar];"
        ),
        NEW,
    ),
    (
        "type = 'b4x16', dims = [128, 30], strides = [64], box = [64, 8], swizzle = 32",
        "",
        awaited!(
            "256",
            "shl.b32 %r7, %x, 5;\n\
             cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%s], [%m, {%r7, %y}], [bar];"
        ),
        &["sm_100a", "sm_103a"],
    ),
    (
        "type = 'b4x16_p64', dims = [128, 30], strides = [64], box = [128, 8], swizzle = 128",
        "",
        awaited!(
            "512",
            "\n\
             cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%s], [%m, {0, %y}], [bar];"
        ),
        &["sm_100a", "sm_103a"],
    ),
    (
        "type = 'b6x16_p32', dims = [128, 30], strides = [96], box = [128, 8], swizzle = 128, together = 32",
        "",
        awaited!(
            "768",
            "\n\
             cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%s], [%m, {0, %y}], [bar];"
        ),
        &["sm_100a", "sm_103a"],
    ),
    (
        "type = 'b4x16', dims = [128, 30], strides = [64], box = [64, 8]",
        "",
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%m, {64, 3}], [%s];\n\
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        &["sm_100a", "sm_103a"],
    ),
];

/// A tensor map, what there is to say of clusters, what a thread does, targets.
pub type Case = (&'static str, &'static str, &'static str, &'static [&'static str]);
