//! The interpreter's instructions one by one, against values worked out from the PTX ISA manual.

use sim::launch::{Buffers, Launch, LaunchFile};
use sim::ptx::Fill;

/// A module with one kernel `k` that takes a buffer.
fn module(declarations: &str, body: &str) -> String {
    format!(
        ".version 8.7\n.target sm_100\n.address_size 64\n{declarations}\n\
         .visible .entry k(.param .u64 out)\n{{\n\
         .reg .pred p, q; .reg .b16 h, ha, hb, hc; .reg .b32 r, ra, rb, rc, t; .reg .b64 d, da, db, dc, o, w;\n\
         ld.param.u64 o, [out];\n{body}\nret;\n}}\n"
    )
}

fn launch(block: u32, length: usize) -> Launch {
    let text = format!(
        "[[launch]]\nkernel = 'k'\ngrid = [1, 1, 1]\nblock = [{block}, 1, 1]\nargs = [{{ buffer = 'out' }}]\n\
         [launch.buffers.out]\ntype = 'u64'\nlength = {length}\n"
    );
    LaunchFile::parse(&text).unwrap().launch.remove(0)
}

fn run(source: &str, launch: &Launch) -> Result<Buffers, String> {
    let module = ptx::parse(source).map_err(|e| format!("{e:?}\n{source}"))?;
    sim::ptx::run(&module, launch).map_err(|e| e.render("k.ptx", source))
}

/// The numbers in the buffer after running `body` on `block` threads.
fn words(declarations: &str, body: &str, block: u32, length: usize) -> Vec<u64> {
    let out = run(&module(declarations, body), &launch(block, length));
    let out = out.unwrap_or_else(|e| panic!("{e}\n{body}"));
    out["out"].chunks(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect()
}

/// Runs `code` with the arguments in `da db dc`, `ra rb rc` and `ha hb hc`; its result is in `d`, `r`, `h` or
/// `p`.
fn one(code: &str, [a, b, c]: [u64; 3]) -> u64 {
    let mut body = String::new();
    for (name, x) in [("a", a), ("b", b), ("c", c)] {
        body += &format!(
            "mov.b64 d{name}, 0x{x:x}; cvt.u32.u64 r{name}, d{name}; cvt.u16.u64 h{name}, d{name};\n"
        );
    }
    body += code;
    body += "\ncvt.u64.u32 w, r; or.b64 d, d, w; cvt.u64.u16 w, h; or.b64 d, d, w;\n\
             selp.b64 w, 1, 0, p; or.b64 d, d, w; st.global.u64 [o], d;";
    words("", &body, 1, 1)[0]
}

fn check(rows: &[(&str, [u64; 3], u64)]) {
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|(code, args, want)| {
            let got = one(code, *args);
            (got != *want).then(|| format!("{code} {args:x?}: {got:#x}, not {want:#x}"))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

const F1: u64 = 0x3f80_0000;
const NAN: u64 = 0x7fff_ffff;
const INF: u64 = 0x7f80_0000;

#[test]
fn integers() {
    check(&[
        ("add.u32 r, ra, rb;", [0xffff_ffff, 2, 0], 1),
        ("add.sat.s32 r, ra, rb;", [0x7fff_ffff, 2, 0], 0x7fff_ffff),
        ("sub.sat.s32 r, ra, rb;", [0x8000_0000, 1, 0], 0x8000_0000),
        ("add.s16 h, ha, hb;", [0xffff, 3, 0], 2),
        ("add.s16x2 r, ra, rb;", [0xffff_0001, 0x0001_ffff, 0], 0),
        ("add.cc.u32 t, ra, rb; addc.u32 r, rc, 0;", [0xffff_ffff, 1, 7], 8),
        ("sub.cc.u32 t, ra, rb; subc.u32 r, rc, 0;", [0, 1, 7], 6),
        // The condition code is a carry, not a borrow (as ptxas 13.0.88 has it).
        ("sub.cc.u32 t, ra, rb; addc.u32 r, rc, 0;", [0, 1, 7], 7),
        ("sub.cc.u32 t, ra, rb; addc.u32 r, rc, 0;", [1, 1, 7], 8),
        ("add.cc.u32 t, ra, rb; subc.u32 r, rc, 0;", [0, 1, 7], 6),
        ("mul.hi.u32 r, ra, rb;", [0xffff_ffff, 0xffff_ffff, 0], 0xffff_fffe),
        ("mul.hi.s32 r, ra, rb;", [0xffff_ffff, 5, 0], 0xffff_ffff),
        ("mul.hi.u64 d, da, db;", [u64::MAX, u64::MAX, 0], u64::MAX - 1),
        ("mul.hi.s64 d, da, db;", [1 << 63, 1 << 63, 0], 1 << 62),
        ("mul.wide.s32 d, ra, rb;", [0xffff_ffff, 3, 0], (-3i64) as u64),
        ("mad.wide.u32 d, ra, rb, dc;", [0xffff_ffff, 2, 1 << 40], (1 << 40) + 0x1_ffff_fffe),
        ("mad.lo.s32 r, ra, rb, rc;", [7, 0xffff_ffff, 10], 3),
        ("mad.hi.sat.s32 r, ra, rb, rc;", [0x7fff_ffff, 0x7fff_ffff, 0x7fff_ffff], 0x7fff_ffff),
        ("mul24.lo.s32 r, ra, rb;", [0x0100_0002, 0xffff_ffff, 0], 0xffff_fffe),
        ("sad.s32 r, ra, rb, rc;", [0xffff_fffb, 5, 1], 11),
        ("div.s32 r, ra, rb;", [0xffff_fff9, 2, 0], 0xffff_fffd),
        ("rem.s32 r, ra, rb;", [0xffff_fff9, 2, 0], 0xffff_ffff),
        ("div.u64 d, da, db;", [u64::MAX, 10, 0], u64::MAX / 10),
        ("abs.s32 r, ra;", [0x8000_0000, 0, 0], 0x8000_0000),
        ("min.s32 r, ra, rb;", [0xffff_ffff, 1, 0], 0xffff_ffff),
        ("max.relu.s32 r, ra, rb;", [0xffff_ffff, 0xffff_fffe, 0], 0),
        ("max.s16x2 r, ra, rb;", [0xffff_0001, 0x0001_ffff, 0], 0x0001_0001),
        ("popc.b64 r, da;", [u64::MAX, 0, 0], 64),
        ("clz.b32 r, ra;", [1, 0, 0], 31),
        ("clz.b64 r, da;", [0, 0, 0], 64),
        ("bfind.s32 r, ra;", [0xffff_fff0, 0, 0], 3),
        ("bfind.shiftamt.u64 r, da;", [1, 0, 0], 63),
        ("bfind.u32 r, ra;", [0, 0, 0], 0xffff_ffff),
        ("brev.b32 r, ra;", [1, 0, 0], 0x8000_0000),
        ("bfe.u32 r, ra, rb, rc;", [0x1234_5678, 8, 8], 0x56),
        ("bfe.s32 r, ra, rb, rc;", [0x0000_8000, 8, 8], 0xffff_ff80),
        ("bfe.s32 r, ra, rb, rc;", [0x8000_0000, 28, 8], 0xffff_fff8),
        ("bfi.b32 r, ra, rb, rc, 4;", [0xf, 0xffff_0000, 8], 0xffff_0f00),
        ("szext.wrap.s32 r, ra, rb;", [0x80, 8, 0], 0xffff_ff80),
        ("bmsk.clamp.b32 r, ra, rb;", [4, 8, 0], 0xff0),
        ("fns.b32 r, ra, rb, rc;", [0b1011_0000, 4, 2], 5),
        ("dp4a.s32.s32 r, ra, rb, rc;", [0x01ff_0203, 0x0101_0101, 10], 15),
        ("dp2a.hi.u32.u32 r, ra, rb, rc;", [0x0002_0003, 0x0504_0000, 1], 23),
        ("lop3.b32 r, ra, rb, rc, 0x96;", [0xf0, 0xcc, 0xaa], 0x96),
        ("lop3.b32 r, ra, rb, rc, 0xe8;", [0xf0, 0xcc, 0xaa], 0xe8),
        ("shf.l.wrap.b32 r, ra, rb, rc;", [0x8000_0000, 1, 33], 3),
        ("shf.r.clamp.b32 r, ra, rb, rc;", [1, 0xabcd, 40], 0xabcd),
        ("shl.b32 r, ra, rb;", [1, 32, 0], 0),
        ("shr.s32 r, ra, rb;", [0x8000_0000, 99, 0], 0xffff_ffff),
        ("shr.u64 d, da, rb;", [1 << 63, 63, 0], 1),
        ("prmt.b32 r, ra, rb, rc;", [0x8372_6150, 0xc7b6_a594, 0xb076], 0xff50_c7b6),
        ("prmt.b32.b4e r, ra, rb, 0;", [0x0302_0100, 0x0706_0504, 0], 0x0506_0700),
        ("prmt.b32.rc16 r, ra, rb, 1;", [0x0302_0100, 0, 0], 0x0302_0302),
        ("cnot.b32 r, ra;", [0, 0, 0], 1),
        ("not.b16 h, ha;", [1, 0, 0], 0xfffe),
        ("setp.lo.u32 p, ra, rb;", [1, 0xffff_ffff, 0], 1),
        ("setp.lt.s32 p, ra, rb;", [1, 0xffff_ffff, 0], 0),
        ("setp.eq.s32 q, ra, ra; setp.lt.xor.s32 p, ra, rb, q;", [1, 2, 0], 0),
        ("setp.eq.s32 p|q, ra, rb; @q mov.b32 r, 6;", [1, 2, 0], 6),
        ("set.gt.u32.s32 r, ra, rb;", [3, 2, 0], 0xffff_ffff),
        ("set.gt.f32.s32 r, ra, rb;", [3, 2, 0], F1),
        ("slct.b32.s32 r, ra, rb, rc;", [1, 2, 0xffff_ffff], 2),
        ("mov.b64 d, {ra, rb};", [1, 2, 0], 0x2_0000_0001),
        ("mov.b64 {ra, r}, da;", [0x5_0000_0001, 0, 0], 5),
        ("mov.b32 {ha, h}, ra;", [0x0007_0001, 0, 0], 7),
    ]);
}

#[test]
fn floating_point() {
    check(&[
        ("add.rn.f32 r, ra, rb;", [F1, 0x3300_0000, 0], F1),
        ("add.rp.f32 r, ra, rb;", [F1, 0x0000_0001, 0], F1 + 1),
        ("sub.rm.f32 r, ra, ra;", [F1, 0, 0], 0x8000_0000),
        ("add.ftz.f32 r, ra, rb;", [0x007f_ffff, 1, 0], 0),
        ("add.sat.f32 r, ra, rb;", [F1, F1, 0], F1),
        ("mul.f32 r, ra, rb;", [INF, 0, 0], NAN),
        ("fma.rz.f32 r, ra, rb, rc;", [0x3f80_0001, 0x3f80_0001, 0xbf80_0000], 0x3480_0000),
        ("div.rn.f32 r, ra, rb;", [F1, 0x4040_0000, 0], 0x3eaa_aaab),
        ("div.rz.f32 r, ra, rb;", [F1, 0x4040_0000, 0], 0x3eaa_aaaa),
        ("div.rn.f32 r, ra, rb;", [1, 0x4000_0000, 0], 0),
        ("rcp.rp.f32 r, ra;", [0x4040_0000, 0, 0], 0x3eaa_aaab),
        ("sqrt.rn.f32 r, ra;", [0x4000_0000, 0, 0], 0x3fb5_04f3),
        ("sqrt.rp.f32 r, ra;", [0x4000_0000, 0, 0], 0x3fb5_04f4),
        ("sqrt.rn.f32 r, ra;", [0xbf80_0000, 0, 0], NAN),
        ("rsqrt.approx.f32 r, ra;", [0x4080_0000, 0, 0], 0x3f00_0000),
        ("ex2.approx.f32 r, ra;", [0x4040_0000, 0, 0], 0x4100_0000),
        ("lg2.approx.f32 r, ra;", [0x4100_0000, 0, 0], 0x4040_0000),
        ("min.f32 r, ra, rb;", [0x7fc0_0000, F1, 0], F1),
        ("max.NaN.f32 r, ra, rb;", [0x7fc0_0000, F1, 0], NAN),
        ("min.f32 r, ra, rb;", [0, 0x8000_0000, 0], 0x8000_0000),
        ("max.xorsign.abs.f32 r, ra, rb;", [0xc000_0000, F1, 0], 0xc000_0000),
        ("sin.approx.f32 r, ra;", [0x8000_0000, 0, 0], 0x8000_0000),
        ("sin.approx.ftz.f32 r, ra;", [0x8000_0001, 0, 0], 0x8000_0000),
        // The reciprocal of what is beyond 2^126 counts as zero.
        ("div.approx.f32 r, ra, rb;", [0x7f00_0000, 0x7e80_0001, 0], 0),
        ("div.approx.ftz.f32 r, ra, rb;", [0xff00_0000, 0x7f00_0000, 0], 0x8000_0000),
        ("div.approx.f32 r, ra, rb;", [INF, 0x7f00_0000, 0], NAN),
        ("div.approx.f32 r, ra, rb;", [0x7e80_0000, 0x7e80_0000, 0], F1),
        ("div.full.f32 r, ra, rb;", [0x7f00_0000, 0x7f00_0000, 0], F1),
        ("neg.f32 r, ra;", [0, 0, 0], 0x8000_0000),
        ("abs.ftz.f32 r, ra;", [0x8000_0001, 0, 0], 0),
        ("copysign.f32 r, ra, rb;", [0x8000_0000, F1, 0], 0xbf80_0000),
        ("testp.subnormal.f32 p, ra;", [1, 0, 0], 1),
        ("setp.ltu.f32 p, ra, rb;", [NAN, F1, 0], 1),
        ("setp.ne.f32 p, ra, rb;", [NAN, F1, 0], 0),
        ("setp.eq.f32 p, ra, rb;", [0x8000_0000, 0, 0], 1),
        ("setp.eq.ftz.f32 p, ra, rb;", [5, 0, 0], 1),
        ("add.f64 d, da, db;", [0x3ff0_0000_0000_0000, 0x3ff0_0000_0000_0000, 0], 0x4000_0000_0000_0000),
        ("div.rm.f64 d, da, db;", [0x3ff0 << 48, 0x4008 << 48, 0], 0x3fd5_5555_5555_5555),
        ("div.rp.f64 d, da, db;", [0x3ff0 << 48, 0x4008 << 48, 0], 0x3fd5_5555_5555_5556),
        ("add.f16 h, ha, hb;", [0x3c00, 0x3c00, 0], 0x4000),
        ("fma.rn.f16x2 r, ra, rb, rc;", [0x3c00_4000, 0x4000_4000, 0x3c00_0000], 0x4200_4400),
        ("fma.rn.relu.bf16 h, ha, hb, hc;", [0x3f80, 0xbf80, 0], 0),
        ("mul.rn.f32x2 d, da, db;", [0x4000_0000_3f80_0000, 0x4040_0000_4040_0000, 0], 0x40c0_0000_4040_0000),
        ("mov.f32 r, 1.5;", [0, 0, 0], 0x3fc0_0000),
        ("mov.f64 d, 1.5;", [0, 0, 0], 0x3ff8 << 48),
    ]);
}

#[test]
fn conversions() {
    check(&[
        ("cvt.s64.s32 d, ra;", [0xffff_ffff, 0, 0], u64::MAX),
        ("cvt.u64.u8 d, ha;", [0x1ff, 0, 0], 0xff),
        ("cvt.s32.s8 r, ra;", [0x80, 0, 0], 0xffff_ff80),
        ("cvt.sat.u8.s32 r, ra;", [0xffff_ffff, 0, 0], 0),
        ("cvt.sat.s8.s32 r, ra;", [300, 0, 0], 127),
        ("cvt.rzi.s32.f32 r, ra;", [0xc020_0000, 0, 0], 0xffff_fffe),
        ("cvt.rni.s32.f32 r, ra;", [0x4020_0000, 0, 0], 2),
        ("cvt.rpi.s32.f32 r, ra;", [0x4020_0000, 0, 0], 3),
        ("cvt.rzi.u32.f32 r, ra;", [0xbf80_0000, 0, 0], 0),
        ("cvt.rzi.s32.f32 r, ra;", [INF, 0, 0], 0x7fff_ffff),
        ("cvt.rzi.s32.f32 r, ra;", [NAN, 0, 0], 0),
        ("cvt.rzi.u64.f32 d, ra;", [NAN, 0, 0], 1 << 63),
        ("cvt.rzi.s32.f64 r, da;", [0x7ff8 << 48, 0, 0], 0x8000_0000),
        ("cvt.rn.f32.s32 r, ra;", [0x0100_0001, 0, 0], 0x4b80_0000),
        ("cvt.rp.f32.s32 r, ra;", [0x0100_0001, 0, 0], 0x4b80_0001),
        ("cvt.rn.f32.u64 r, da;", [u64::MAX, 0, 0], 0x5f80_0000),
        ("cvt.f64.f32 d, ra;", [F1, 0, 0], 0x3ff0 << 48),
        ("cvt.rn.f32.f64 r, da;", [0x3ff0_0000_1000_0000, 0, 0], F1),
        ("cvt.rn.ftz.f32.f64 r, da;", [1, 0, 0], 0),
        ("cvt.rni.f32.f32 r, ra;", [0x4020_0000, 0, 0], 0x4000_0000),
        ("cvt.rmi.f32.f32 r, ra;", [0xbe80_0000, 0, 0], 0xbf80_0000),
        ("cvt.sat.f32.f32 r, ra;", [0x4000_0000, 0, 0], F1),
        ("cvt.rn.f16.f32 h, ra;", [F1, 0, 0], 0x3c00),
        ("cvt.rn.f16.f32 h, ra;", [0x4780_0000, 0, 0], 0x7c00),
        ("cvt.rn.satfinite.f16x2.f32 r, ra, rb;", [0x4780_0000, F1, 0], 0x7bff_3c00),
        ("cvt.f32.f16 r, ha;", [1, 0, 0], 0x3380_0000),
        ("cvt.rn.bf16x2.f32 r, ra, rb;", [F1, 0x4000_0000, 0], 0x3f80_4000),
        ("cvt.f32.bf16 r, ha;", [0x3f80, 0, 0], F1),
        ("cvt.rna.tf32.f32 r, ra;", [0x3f80_1000, 0, 0], 0x3f80_2000),
    ]);
}

#[test]
fn warps() {
    let each = "mov.u32 t, %laneid; mul.wide.u32 w, t, 8; add.u64 o, o, w;\n";
    let with = |code: &str| words("", &format!("{each}{code}\nst.global.u64 [o], d;"), 32, 32);
    let lanes = |f: &dyn Fn(u64) -> u64| (0..32).map(f).collect::<Vec<u64>>();
    let out = with("shfl.sync.bfly.b32 r|p, t, 3, 0x1f, -1; cvt.u64.u32 d, r;");
    assert_eq!(out, lanes(&|l| l ^ 3));
    let out = with("shfl.sync.up.b32 r|p, t, 2, 0, -1; selp.b32 r, r, 99, p; cvt.u64.u32 d, r;");
    assert_eq!(out, lanes(&|l| if l < 2 { 99 } else { l - 2 }));
    let out = with("shfl.sync.down.b32 r, t, 1, 0x181f, -1; cvt.u64.u32 d, r;");
    assert_eq!(out, lanes(&|l| if l % 8 == 7 { l } else { l + 1 }));
    let out = with("shfl.sync.idx.b32 r, t, 5, 0x181f, -1; cvt.u64.u32 d, r;");
    assert_eq!(out, lanes(&|l| l / 8 * 8 + 5));
    let out = with("and.b32 r, t, 3; match.any.sync.b32 r, r, -1; cvt.u64.u32 d, r;");
    assert_eq!(out, lanes(&|l| 0x1111_1111 << (l % 4)));
    let out = with("redux.sync.add.u32 r, t, -1; cvt.u64.u32 d, r;");
    assert_eq!(out, lanes(&|_| 496));
    // The lanes of a partial mask meet, wherever they come from.
    let out = with(
        "setp.lt.u32 p, t, 8; @p bra low; mov.b32 ra, 0; mov.b64 d, 7; bra end;\n\
         low: setp.eq.u32 q, t, 3; @q bra three; setp.ge.u32 q, t, 0; bra meet;\n\
         three: setp.lt.u32 q, t, 0;\nmeet: vote.sync.ballot.b32 r, q, 0xff; cvt.u64.u32 d, r;\nend:",
    );
    assert_eq!(out, lanes(&|l| if l < 8 { 0xf7 } else { 7 }));
    let out = with("setp.lt.u32 p, t, 5; @p activemask.b32 r; cvt.u64.u32 d, r;");
    assert_eq!(out, lanes(&|l| if l < 5 { 0x1f } else { 0 }));
    let error = run(&module("", "vote.sync.ballot.b32 r, p, 0x2;"), &launch(1, 1)).unwrap_err();
    assert!(error.starts_with("k.ptx:9: lane is not in its own member mask 0x2"), "{error}");
    // Without `.sync`: together, or not defined.
    let old = |code: &str| {
        let source = module("", &format!("mov.u32 t, %laneid;\n{code}\nst.global.b32 [o], r;"));
        source.replace(".version 8.7", ".version 6.0").replace("sm_100", "sm_60")
    };
    let out = run(&old("shfl.bfly.b32 r, t, 3, 0x1f;"), &launch(32, 32));
    assert!(out.is_ok(), "{out:?}");
    let error =
        run(&old("setp.lt.u32 p, t, 5; @p shfl.bfly.b32 r, t, 3, 0x1f;"), &launch(32, 32)).unwrap_err();
    assert!(error.contains("who takes part without '.sync' is not defined"), "{error}");
}

#[test]
fn blocks() {
    let shared = ".extern .shared .align 8 .b8 dynamic[];";
    // Each thread reads what another wrote before the barrier.
    let body = "mov.u32 t, %tid.x; mul.wide.u32 w, t, 8; mov.u64 da, counts; add.u64 da, da, w;\n\
         st.shared.u64 [da], w; bar.sync 0; sub.u32 r, 63, t; mul.wide.u32 w, r, 8; mov.u64 db, counts;\n\
         add.u64 db, db, w; ld.shared.u64 d, [db]; mul.wide.u32 w, t, 8; add.u64 o, o, w; st.global.u64 [o], d;";
    let out = words(".shared .align 8 .b8 counts[512];", body, 64, 64);
    assert_eq!(out, (0..64).map(|t| 8 * (63 - t)).collect::<Vec<u64>>());
    let body = "mov.u32 t, %tid.x; setp.lt.u32 p, t, 40; bar.red.popc.u32 r, 1, p; setp.eq.u32 q, t, 0;\n\
         cvt.u64.u32 d, r; @q st.global.u64 [o], d;";
    assert_eq!(words("", body, 96, 1), [40]);
    // Threads that have left are not waited for.
    let body =
        "mov.u32 t, %tid.x; setp.ge.u32 p, t, 32; @p exit; bar.sync 0; mov.b64 d, 1; st.global.u64 [o], d;";
    assert_eq!(words("", body, 64, 1), [1]);
    let body = "mov.b64 d, 9; cvta.shared.u64 w, 0; st.u64 [w], d; ld.shared.u64 d, [dynamic];\n\
         atom.add.u64 da, [w], 5; ld.u64 db, [w]; add.u64 d, d, db; st.global.u64 [o], d;";
    let mut l = launch(1, 1);
    l.shared = 8;
    let out = run(&module(shared, body), &l).unwrap();
    assert_eq!(out["out"], 23u64.to_le_bytes());
    let error = run(&module(shared, body), &launch(1, 1)).unwrap_err();
    assert!(error.contains("of Shared memory, which is not there (block [0, 0, 0], thread"), "{error}");
    let error = run(&module("", "bar.sync 0, 64;"), &launch(32, 1)).unwrap_err();
    assert!(error.contains("deadlock"), "{error}");
    let error = run(&module("", "st.global.u64 [o + 8], d;"), &launch(1, 1)).unwrap_err();
    assert!(error.contains("access to 8 bytes"), "{error}");
    let error = run(&module("", "trap;"), &launch(1, 1)).unwrap_err();
    assert!(error.starts_with("k.ptx:9: trap (block"), "{error}");
}

#[test]
fn atomics() {
    check(&[
        ("st.global.u64 [o], da; atom.global.cas.b64 d, [o], db, dc; ld.global.u64 d, [o];", [5, 5, 9], 9),
        ("st.global.u64 [o], da; atom.global.inc.u32 r, [o], rb; ld.global.u32 r, [o];", [4, 4, 0], 0),
        ("st.global.u64 [o], da; atom.global.dec.u32 r, [o], rb; ld.global.u32 r, [o];", [0, 4, 0], 4),
        ("st.global.u64 [o], da; red.global.max.s64 [o], db; ld.global.u64 d, [o];", [u64::MAX, 3, 0], 3),
        ("st.global.u64 [o], da; atom.global.exch.b32 r, [o], rb;", [7, 1, 0], 7),
        (
            "st.global.u64 [o], da; atom.global.add.f64 d, [o], db; ld.global.u64 d, [o];",
            [0, 0x3ff0 << 48, 0],
            0x3ff0 << 48,
        ),
        (
            "st.global.u64 [o], da; atom.global.add.noftz.f16x2 r, [o], rb; ld.global.u32 r, [o];",
            [0x3c00_3c00, 0x3c00_4000, 0],
            0x4000_4200,
        ),
        ("st.global.u64 [o], da; ld.global.s8 d, [o];", [0x80, 0, 0], 0xffff_ffff_ffff_ff80),
        ("st.global.u64 [o], da; ld.global.v2.u32 {ra, r}, [o];", [0x3_0000_0001, 0, 0], 3),
    ]);
}

#[test]
fn calls_and_tables() {
    let twice = ".func (.param .b32 result) twice(.param .b32 x)\n{\n.reg .b32 a;\nld.param.b32 a, [x];\n\
         add.u32 a, a, a;\nst.param.b32 [result], a;\nret;\n}\n\
         .func (.param .b32 result) power(.param .b32 n)\n{\n.reg .b32 a, b; .reg .pred p;\nld.param.b32 a, [n];\n\
         mov.b32 b, 1;\nsetp.eq.u32 p, a, 0;\n@p bra done;\n{\n.param .b32 x; .param .b32 y;\nsub.u32 a, a, 1;\n\
         st.param.b32 [x], a;\ncall (y), power, (x);\nld.param.b32 b, [y];\n}\n\
         {\n.param .b32 x; .param .b32 y;\nst.param.b32 [x], b;\ncall (y), twice, (x);\nld.param.b32 b, [y];\n}\n\
         done: st.param.b32 [result], b;\nret;\n}\n.global .align 8 .u64 table[2] = {twice, power};\n\
         .global .align 4 .u32 number = 77;\n\
         .const .align 8 .u64 pointer = generic(number);";
    let call = |callee: &str| {
        format!(
            "{{\n.param .b32 x; .param .b32 y;\nst.param.b32 [x], 5;\n{callee}\nld.param.b32 r, [y];\n}}\n\
             cvt.u64.u32 d, r; st.global.u64 [o], d;"
        )
    };
    assert_eq!(words(twice, &call("call (y), power, (x);"), 1, 1), [32]);
    let indirect = "prototype: .callprototype (.param .b32 _) _ (.param .b32 _);\n\
         ld.global.u64 w, [table];\ncall (y), w, (x), prototype;";
    assert_eq!(words(twice, &call(indirect), 1, 1), [10]);
    let body = "ld.const.u64 w, [pointer]; ld.u32 r, [w]; cvt.u64.u32 d, r; st.global.u64 [o], d;";
    assert_eq!(words(twice, body, 1, 1), [77]);
    let body = ".local .align 8 .b8 array[16]; mov.u64 w, array; cvta.local.u64 w, w; mov.b64 d, 6;\n\
         st.u64 [w + 8], d; ld.local.u64 d, [array + 8]; st.global.u64 [o], d;";
    assert_eq!(words("", body, 1, 1), [6]);
    let endless = ".func f()\n{\ncall f;\nret;\n}";
    let error = run(&module(endless, "call f;"), &launch(1, 1)).unwrap_err();
    assert!(error.contains("calls inside calls"), "{error}");
    let error = run(&module(".global .b8 huge[1099511627776];", ""), &launch(1, 1)).unwrap_err();
    assert!(error.contains("'huge' is too large to interpret"), "{error}");
    let body = "mov.b32 r, 1; mov.b64 d, 0;\ntargets: .branchtargets zero, one;\nbrx.idx r, targets;\n\
         zero: mov.b64 d, 10; bra end;\none: mov.b64 d, 11;\nend: st.global.u64 [o], d;";
    assert_eq!(words("", body, 1, 1), [11]);
}

#[test]
fn parameters_of_functions_may_be_registers() {
    let functions = ".func (.reg .b64 s) f(.reg .b32 a, .reg .b64 b, .param .b32 c) {\n\
                     .reg .b64 t; .reg .b32 u; cvt.u64.u32 t, a; add.u64 s, t, b; ld.param.b32 u, [c];\n\
                     cvt.u64.u32 t, u; add.u64 s, s, t; ret; }";
    let body = "mov.b32 ra, 5; mov.b64 da, 0x100000000; { .param .b32 c; st.param.b32 [c], 7;\n\
                call (d), f, (ra, da, c); call (dc), f, (1, d, c); } st.global.u64 [o], d; st.global.u64 [o+8], dc;";
    assert_eq!(words(functions, body, 1, 2), [0x1_0000_000c, 0x1_0000_0014]);
}

#[test]
fn a_shuffle_from_a_lane_that_takes_no_part_is_undefined() {
    let body = "mov.u32 ra, %tid.x; setp.lt.u32 p, ra, 16; cvt.u64.u32 d, ra; mul.lo.u64 d, d, 8; add.u64 o, o, d;\n\
                @!p bra OUT; shfl.sync.bfly.b32 r, ra, 16, 31, 0xffff; shfl.sync.bfly.b32 rb, ra, 1, 31, 0xffff;\n\
                mov.b64 d, {r, rb}; st.global.u64 [o], d; OUT:";
    let source = module("", body);
    let module = ptx::parse(&source).unwrap();
    let run = |fill| {
        let launch = launch(32, 32);
        let done = sim::ptx::execute_filled(&module, &launch, 1000, fill).unwrap();
        let bytes = launch.collect(&done).remove("out").unwrap();
        bytes.chunks(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect::<Vec<_>>()
    };
    let (first, other) = (run(Fill::Zero), run(Fill::Random(0)));
    for lane in 0..16u64 {
        let (a, b) = (first[lane as usize], other[lane as usize]);
        assert_eq!((a as u32, a >> 32, b >> 32), (lane as u32, lane ^ 1, lane ^ 1));
        assert_ne!(b as u32, a as u32);
    }
}

#[test]
fn unwritten_shared_and_local_memory_holds_other_numbers_in_other_runs() {
    let stores = "mov.b64 d, {ra, rb}; mov.b64 w, {rc, t}; st.global.u64 [o], d; st.global.u64 [o+8], w;";
    let variables = ".shared .b32 s[4]; .local .b32 l[4]; ld.shared.b32 ra, [s]; ld.shared.b32 rb, [s+8];\n\
                     ld.local.b32 rc, [l]; ld.local.b32 t, [l+8];";
    let stack = "alloca.u64 d, 16, 16; ld.local.v4.b32 {ra, rb, rc, t}, [d];";
    for loads in [variables, stack] {
        let source = module("", &format!("{loads}\n{stores}"));
        let module = ptx::parse(&source).unwrap();
        let run = |fill| {
            let launch = launch(1, 2);
            let done = sim::ptx::execute_filled(&module, &launch, 1000, fill).unwrap();
            launch.collect(&done).remove("out").unwrap()
        };
        assert_eq!((run(Fill::Zero), run(Fill::Byte(0x7f))), (vec![0; 16], vec![0x7f; 16]));
        let random = run(Fill::Random(0));
        assert!(random[..4] != random[4..8] && random[8..12] != random[12..], "{random:x?}");
    }
}

/// What nothing has written is another thing in each lane of one run, so that none takes another's for its own.
#[test]
fn unwritten_registers_and_local_memory_hold_other_numbers_in_other_lanes() {
    let loads = ".local .b32 l[4]; ld.local.b32 rb, [l]; mov.u32 t, %tid.x; cvt.u64.u32 d, t; mul.lo.u64 d, d, 8; add.u64 o, o, d;\n\
                 mov.b64 d, {ra, rb}; st.global.u64 [o], d;";
    let called = ".func (.param .b64 q) f() { .reg .b32 a, b; .reg .b64 c; .local .b32 l[4]; ld.local.b32 b, [l]; mov.b64 c, {a, b};\n\
                  st.param.b64 [q], c; ret; }\n";
    let call = "mov.u32 t, %tid.x; cvt.u64.u32 d, t; mul.lo.u64 d, d, 8; add.u64 o, o, d;\n\
                { .param .b64 c; call (c), f; ld.param.b64 d, [c]; } st.global.u64 [o], d;";
    for (functions, body) in [("", loads), (called, call)] {
        let source = module(functions, body);
        let module = ptx::parse(&source).unwrap();
        let run = |fill| {
            let launch = launch(32, 32);
            let done = sim::ptx::execute_filled(&module, &launch, 1000, fill).unwrap();
            let bytes = launch.collect(&done).remove("out").unwrap();
            let words = bytes.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap()));
            let (all, mut lower, mut upper): (Vec<u32>, Vec<u32>, Vec<u32>) =
                (words.collect(), vec![], vec![]);
            for w in all.chunks(2) {
                lower.push(w[0]);
                upper.push(w[1]);
            }
            [lower, upper].map(|mut of| {
                of.sort_unstable();
                of.dedup();
                of.len()
            })
        };
        assert_eq!((run(Fill::Zero), run(Fill::Random(0))), ([1, 1], [32, 32]), "{body}");
    }
}

/// A last parameter without a size has that of what is passed; its address is one of local memory.
#[test]
fn a_last_parameter_without_a_size_holds_what_is_passed() {
    let f = ".func (.param .b64 q) sum(.param .b32 c, .param .align 8 .b8 x[])\n{\n\
             .reg .pred p; .reg .b32 n, i; .reg .b64 at, s, v, w, l; .local .align 64 .b8 buf[64];\n\
             ld.param.b32 n, [c]; mov.b64 at, x; mov.u32 i, 0; mov.b64 s, 0;\n\
             L: setp.ge.u32 p, i, n; @p bra E; ld.local.b64 v, [at]; ld.param.b64 w, [at]; add.u64 s, s, v;\n\
             add.u64 s, s, w; add.u64 at, at, 8; add.u32 i, i, 1; bra L;\n\
             E: mov.b64 l, buf; and.b64 l, l, 63; add.u64 s, s, l; st.param.b64 [q], s; ret;\n}\n";
    let call = |n: u32| {
        let stores: String =
            (0..n).map(|k| format!("mov.b64 d, {}; st.param.b64 [b+{}], d;\n", k + 1, 8 * k)).collect();
        format!(
            "{{ .param .b32 a; .param .align 8 .b8 b[{}]; .param .b64 c;\n st.param.b32 [a], {n};\n{stores}\
             call (c), sum, (a, b); ld.param.b64 d, [c]; st.global.u64 [o], d; add.u64 o, o, 8; }}\n",
            8 * n
        )
    };
    assert_eq!(words(f, &(call(1) + &call(5)), 1, 2), [2, 30]);
}

/// Conversions of every integer of 8 bits; each floating-point format holds them all, whatever the rounding.
#[test]
fn integers_of_8_bits_are_converted() {
    let half = |x: i64| {
        // 0 … 255 as binary16: exact.
        let magnitude = x.unsigned_abs();
        let top = 63 - magnitude.leading_zeros().min(63);
        let bits =
            if magnitude == 0 { 0 } else { u64::from(15 + top) << 10 | (magnitude << (10 - top) & 0x3ff) };
        bits | if x < 0 { 0x8000 } else { 0 }
    };
    let integers = [
        ("u8", 8, false),
        ("s8", 8, true),
        ("u16", 16, false),
        ("s16", 16, true),
        ("u32", 32, false),
        ("s32", 32, true),
        ("u64", 64, false),
        ("s64", 64, true),
    ];
    let mut wrong = Vec::new();
    for (from, signed) in [("u8", false), ("s8", true)] {
        let number = |i: usize| if signed { i64::from(i as u8 as i8) } else { i as i64 };
        let mut test = |statement: &str, want: &dyn Fn(i64) -> u64| {
            // The operand's upper half is not looked at.
            for junk in ["0", "0xa500"] {
                let body = format!(
                    "mov.u32 ra, %tid.x; cvt.u16.u32 ha, ra; or.b16 ha, ha, {junk}; mov.b64 d, 0;\n{statement}\n\
                     mul.wide.u32 w, ra, 8; add.u64 o, o, w; st.global.u64 [o], d;"
                );
                let got = words("", &body, 256, 256);
                let bad = (0..256).find(|i| got[*i] != want(number(*i)));
                wrong.extend(bad.map(|i| format!("{statement} {i} with {junk}: {:#x}", got[i])));
            }
        };
        for (to, bits, to_signed) in integers {
            for sat in ["", ".sat"] {
                let all = if to_signed {
                    i64::MAX >> (64 - bits)
                } else {
                    (u64::MAX >> (64 - bits)).min(i64::MAX as u64) as i64
                };
                let (low, high) =
                    if to_signed { (-all - 1, all) } else { (0, if bits == 64 { i64::MAX } else { all }) };
                let outside =
                    [number(0x80), number(0x7f), number(0xff)].iter().any(|x| !(low..=high).contains(x));
                if !sat.is_empty() && !outside {
                    continue;
                }
                let want = |x: i64| {
                    let x = if sat.is_empty() { x } else { x.clamp(low, high) };
                    // What is narrower than the register is extended as the type says.
                    match (bits, to_signed) {
                        (64, _) => x as u64,
                        (_, true) => (x << (64 - bits) >> (64 - bits)) as u64,
                        (_, false) => x as u64 & (u64::MAX >> (64 - bits)),
                    }
                };
                test(&format!("cvt{sat}.{to}.{from} d, ha;"), &want);
            }
        }
        for round in ["rn", "rz", "rm", "rp"] {
            test(&format!("cvt.{round}.f16.{from} h, ha; cvt.u64.u16 d, h;"), &half);
            test(&format!("cvt.{round}.f32.{from} r, ha; cvt.u64.u32 d, r;"), &|x| {
                (x as f32).to_bits().into()
            });
            test(&format!("cvt.{round}.f64.{from} d, ha;"), &|x| (x as f64).to_bits());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
