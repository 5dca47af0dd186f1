//! Operands that take fewer registers than their width would let them, on targets with the newest instructions: ptxas 13.0.

fn verdict(statement: &str) -> Result<(), String> {
    let registers = ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .u32 %u<9>;\n\
        .reg .s32 %s<9>; .reg .pred %p<9>; .reg .f16x2 %x<9>; .reg .f16 %hf<4>; .reg .u16 %us<4>;\n";
    let text = format!(
        ".version 9.0\n.target sm_100a\n.address_size 64\n.visible .entry k() {{\n{registers}{statement}\nret; }}\n"
    );
    let module = ptx::parse(&text).map_err(|e| e[0].message.clone())?;
    ptx::check(&module, 100).map_err(|e| e[0].message.clone())
}

fn takes(statement: &str, words: &[(&str, bool)]) {
    for (word, good) in words {
        let text = statement.replace('?', word);
        assert_eq!(verdict(&text).is_ok(), *good, "{text}: {:?}", verdict(&text));
    }
}

const INTEGERS: &[(&str, bool)] = &[("%r1", true), ("%u1", true), ("%s1", true), ("%f1", false)];

#[test]
fn integers_only() {
    for statement in [
        "dp4a.u32.s32 ?,%r2,%r3,%r4;",
        "dp4a.u32.s32 %r1,?,%r3,%r4;",
        "dp4a.u32.s32 %r1,%r2,%r3,?;",
        "dp2a.lo.u32.s32 ?,%r2,%r3,%r4;",
        "dp2a.lo.u32.s32 %r1,?,%r3,%r4;",
        "bmsk.clamp.b32 ?,%r1,%r2;",
        "elect.sync ?|%p1,-1;",
        "elect.sync %r1|%p1,?;",
        "match.any.sync.b64 ?,%rd2,-1;",
        "match.any.sync.b32 %r1,%r2,?;",
        "match.all.sync.b32 ?|%p1,%r2,-1;",
        "match.all.sync.b32 %r1|%p1,%r2,?;",
        "shfl.sync.idx.b32 %r1,%r2,0,0,?;",
        "redux.sync.add.u32 %r1,%r2,?;",
        "redux.sync.and.b32 %r1,%r2,?;",
        "redux.sync.min.f32 %f1,%f2,?;",
        "vote.sync.ballot.b32 %r1,%p1,?;",
        "vote.sync.any.pred %p2,%p1,?;",
        "cvt.pack.sat.u16.s32 ?,%r1,%r2;",
        "cvt.pack.sat.u8.s32.b32 ?,%r1,%r2,%r3;",
        "cvt.pack.sat.u4.s32.b32 ?,%r1,%r2,%r3;",
        "tensormap.replace.tile.box_dim.global.b1024.b32 [%rd1],2,?;",
    ] {
        takes(statement, INTEGERS);
    }
    for statement in ["dp4a.u32.s32 %r1,?,%r3,%r4;", "elect.sync %r1|%p1,?;", "vote.sync.any.pred %p2,%p1,?;"]
    {
        takes(statement, &[("5", true), ("0f3f800000", false)]);
    }
}

#[test]
fn untyped_bits_only() {
    let words = &[("%r1", true), ("%u1", false), ("%s1", false), ("%f1", false), ("%x1", false)];
    for statement in [
        "cvt.rna.tf32.f32 ?,%f1;",
        "cvt.rn.satfinite.tf32.f32 ?,%f1;",
        "cvt.rs.f16x2.f32 %r1,%f1,%f2,?;",
        "cvt.rs.satfinite.e2m1x4.f32 %h1,{%f1,%f2,%f3,%f4},?;",
        "cvt.rs.satfinite.e4m3x4.f32 ?,{%f1,%f2,%f3,%f4},%r1;",
    ] {
        takes(statement, words);
    }
    for statement in [
        "cvt.rz.ue8m0x2.f32 ?,%f1,%f2;",
        "cvt.rz.ue8m0x2.bf16x2 ?,%r1;",
        "cvt.rn.bf16x2.ue8m0x2 %r1,?;",
        "cvt.rn.satfinite.e3m2x2.f32 ?,%f1,%f2;",
        "cvt.rn.f16x2.e2m3x2 %r1,?;",
        "cvt.rs.satfinite.e2m1x4.f32 ?,{%f1,%f2,%f3,%f4},%r1;",
    ] {
        takes(statement, &[("%h1", true), ("%hf1", false), ("%us1", false)]);
    }
}

#[test]
fn one_number_and_the_order_of_words() {
    for statement in [
        "fence.proxy.tensormap::generic.acquire.gpu [%rd1],?;",
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1],[%rd2],?;",
    ] {
        takes(statement, &[("128", true), ("0x80", true), ("0", false), ("256", false), ("-1", false)]);
    }
    takes(
        "? %r1,%r1,%r2;",
        &[
            ("cvt.pack.sat.u16.s32", true),
            ("cvt.pack.u16.sat.s32", true),
            ("cvt.sat.pack.u16.s32", false),
            ("cvt.u16.s32.pack.sat", false),
            ("cvt.u16.pack.sat.s32", false),
        ],
    );
    takes(
        "barrier.? 0;",
        &[("cta.sync", true), ("sync.aligned", true), ("sync.cta", false), ("sync.aligned.cta", false)],
    );
    takes(
        "? %r1,1,64,%p1;",
        &[("barrier.cta.red.popc.aligned.u32", true), ("barrier.red.cta.popc.aligned.u32", false)],
    );
    // The first priority is that of the lines in the range: the second may be one of two.
    let priorities = &[
        ("L2::evict_last.L2::evict_first", true),
        ("L2::evict_last.L2::evict_unchanged", true),
        ("L2::evict_unchanged.L2::evict_first", true),
        ("L2::evict_first.L2::evict_last", false),
        ("L2::evict_first.L2::evict_normal", false),
        ("L2::evict_unchanged.L2::evict_last", false),
    ];
    takes("createpolicy.range.global.?.b64 %rd2,[%rd1],4096,8192;", priorities);
    takes("createpolicy.fractional.?.b64 %rd2,0.5;", priorities);
}
