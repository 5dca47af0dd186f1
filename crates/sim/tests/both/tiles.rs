//! Copies of tiles by tensor maps, in one block and in clusters.

use super::tile_cases::{COLUMNS, UNITS, kernel, launch};
use super::{oracles, run};

/// The tensor map of a buffer of 24 × 10 × 3 binary32 (96 bytes a row, 1,024 a slice).
const CUBE: &str = "type = 'f32', dims = [20, 10, 3], strides = [96, 1024], box = [8, 4, 2], steps = [1, 2, 1], swizzle = 32";
/// One of 64 × 32 halves, in boxes of 64 × 8.
const HALVES: &str = "type = 'f16', dims = [64, 30], strides = [128], box = [64, 8], swizzle = 128";
/// One row of a matrix at a time.
const ROWS: &str = "type = 'u16', dims = [60, 30], strides = [128], box = [64, 1], swizzle = 64";

fn check(test: &str, cases: &[(&str, &str, &str, &[&str])]) {
    let tools = oracles(test);
    let mut errors = Vec::new();
    for (i, (map, cluster, body, targets)) in cases.iter().enumerate() {
        let launch = launch(map, cluster);
        for target in *targets {
            let name = format!("{test}{i}");
            errors.extend(run(tools.as_deref(), &name, &kernel(target, body), target, &launch));
        }
    }
    assert!(errors.is_empty(), "{} failures\n{}", errors.len(), errors.join("\n"));
}

const ALL: &[&str] = &["sm_90", "sm_100", "sm_120"];

#[test]
fn tiles() {
    const STORE: &str = "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%m, {%x, %y, 1}], [%s];\n\
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;";
    const REDUCE: &str = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.min.tile.bulk_group [%m, {%x, %y}], [%s];\n\
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;";
    check(
        "tiles",
        &[
            (
                CUBE,
                "",
                awaited!(
                    "128",
                    "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes\n\
                     [%s], [%m, {%x, %y, 1}], [bar];"
                ),
                ALL,
            ),
            (
                HALVES,
                "",
                awaited!(
                    "1024",
                    "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%m, {%x, %y}];\n\
                     cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%s], [%m, {0, %y}], [bar];"
                ),
                ALL,
            ),
            (CUBE, "", STORE, ALL),
            (HALVES, "", REDUCE, ALL),
        ],
    );
}

#[test]
fn rows_and_masks() {
    const SCATTER: &str = "mul.lo.s32 %r6, %y, 3;\n\
        cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%m, {0, %x, %r6, 9, 40}], [%s];\n\
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;";
    const MASKED: &str = "mov.b16 %h0, 0x5a37; cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%in], [sh], 64, %h0;\n\
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;";
    check(
        "rows_and_masks",
        &[
            (
                ROWS,
                "",
                awaited!(
                    "512",
                    "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes\n\
                     [%s], [%m, {%x, %y, 3, 40, %x}], [bar];"
                ),
                &["sm_100f"],
            ),
            (ROWS, "", SCATTER, &["sm_100f"]),
            (ROWS, "", MASKED, &["sm_100"]),
        ],
    );
}

#[test]
fn copies_to_a_cluster() {
    const PAIRS: &str = "cluster = [2, 1, 1]";
    check(
        "copies_to_a_cluster",
        &[
            (
                HALVES,
                PAIRS,
                awaited!(
                    "1024",
                    "mov.u32 %r6, %cluster_ctarank; setp.ne.u32 %p2, %r6, 0; mov.b16 %h0, 3;\n\
                     @!%p2 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster\n\
                     [%s], [%m, {0, %y}], [bar], %h0;"
                ),
                &["sm_90", "sm_100"],
            ),
            (
                HALVES,
                PAIRS,
                awaited!(
                    "256",
                    "mov.u32 %r6, %cluster_ctarank; setp.ne.u32 %p2, %r6, 0; mov.b16 %h0, 3;\n\
                     @!%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster\n\
                     [%s], [%in], 256, [bar], %h0;"
                ),
                &["sm_90", "sm_100"],
            ),
        ],
    );
}

#[test]
fn maps_are_changed_in_place() {
    const REPLACE: &str = "mov.u32 %r6, 0;\n\
        C: cvt.u64.u32 %t, %r6; add.u64 %t, %m, %t; ld.u32 %r7, [%t]; mov.u32 %r8, own; add.u32 %r8, %r8, %r6;\n\
        st.shared.u32 [%r8], %r7; add.u32 %r6, %r6, 4; setp.lt.u32 %p1, %r6, 128; @%p1 bra C;\n\
        add.u32 %r6, %x, 30; cvt.u64.u32 %t, %r6; mul.lo.u64 %t, %t, 0x123456790;\n\
        tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [own], 1, %r6;\n\
        tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [own], 4, %r6;\n\
        tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [own], 0, %r6;\n\
        tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [own], 3, %r6;\n\
        tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [own], 0, 3;\n\
        tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [own], 4, 2;\n\
        tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [own], 0, %t;\n\
        tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [own], 3, %t;\n\
        tensormap.replace.tile.global_address.shared::cta.b1024.b64 [own], %in;\n\
        tensormap.replace.tile.rank.shared::cta.b1024.b32 [own], 2;\n\
        tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [own], 10;\n\
        tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [own], 12;\n\
        tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [own], 2;\n\
        tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [own], 2;\n\
        tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [own], 1; mov.u32 %r6, 0;\n\
        D: mov.u32 %r8, own; add.u32 %r8, %r8, %r6; ld.shared.u32 %r7, [%r8]; add.u32 %r8, %s, %r6;\n\
        st.shared.u32 [%r8], %r7; add.u32 %r6, %r6, 4; setp.lt.u32 %p1, %r6, 128; @%p1 bra D;";
    check("maps_are_changed_in_place", &[(CUBE, "", REPLACE, &["sm_90a", "sm_100a", "sm_120a"])]);
}

#[test]
fn columns_of_pixels() {
    check("columns_of_pixels", COLUMNS);
}

#[test]
fn narrow_elements_and_units_that_stay_together() {
    check("narrow_elements", UNITS);
}
