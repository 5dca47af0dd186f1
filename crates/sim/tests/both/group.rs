//! Products of a warp group.

use super::{oracles, run};
use sim::launch::LaunchFile;

/// A layout in shared memory: what the descriptor holds besides the address (leading and stride bytes, swizzle).
type Layout = (u64, u64, u64);

/// Rows of 128, 64 and 32 bytes with a swizzle, and units of 8 × 16 bytes.
const WIDE: Layout = (0, 1024, 1);
const MIDDLE: Layout = (512, 1024, 2);
const NARROW: Layout = (256, 2048, 3);
const UNITS: Layout = (128, 512, 0);

/// `wgmma.mma_async.OP`, registers of D and whether they are 32-bit floats, whether A is in registers, the layouts of A and B,
/// and the operands behind the descriptors.
type Form = (&'static str, usize, bool, bool, [Layout; 2], &'static str);

fn kernel((op, d, float, registers, layouts, rest): Form, (keep, set): (u32, u32)) -> String {
    let reg = if float { "f" } else { "r" };
    let vector = |name: &str, first: usize, n: usize| {
        let all: Vec<String> = (first..first + n).map(|i| format!("%{name}{i}")).collect();
        format!("{{{}}}", all.join(","))
    };
    let mut out = format!(
        ".version 8.4\n.target sm_90a\n.address_size 64\n\
         .visible .entry k(.param .u64 a, .param .u64 b) {{\n\
         .reg .b64 %in, %out, %t, %desc<2>; .reg .b32 %n, %s, %r<150>, %x<8>; .reg .f32 %f<140>; .reg .pred %p<4>;\n\
         .shared .align 1024 .b8 sh[32768];\n\
         ld.param.u64 %in, [a]; ld.param.u64 %out, [b]; cvta.to.global.u64 %in, %in; cvta.to.global.u64 %out, %out;\n\
         mov.u32 %n, %tid.x; mov.u32 %x0, 0; mov.u32 %s, sh;\n\
         Z: mad.lo.u32 %x1, %x0, 512, 0; mad.lo.u32 %x1, %n, 4, %x1; cvt.u64.u32 %t, %x1; add.u64 %t, %in, %t;\n\
         ld.global.u32 %x2, [%t]; and.b32 %x2, %x2, {keep:#x}; or.b32 %x2, %x2, {set:#x};\n\
         add.u32 %x3, %s, %x1; st.shared.u32 [%x3], %x2; add.u32 %x0, %x0, 1;\n\
         setp.lt.u32 %p0, %x0, 64; @%p0 bra Z;\n\
         bar.sync 0; mad.wide.u32 %out, %n, 512, %out; mul.wide.u32 %t, %n, 4; add.u64 %in, %in, %t;\n\
         setp.ge.s32 %p1, %s, 0; shl.b32 %x4, %n, 2; mov.u32 %x5, 0xe4d98c4e; shf.l.wrap.b32 %x5, %x5, %x5, %x4;\n"
    );
    for (i, (leading, stride, swizzle)) in layouts.into_iter().enumerate() {
        let high = (leading / 16) << 16 | (stride / 16) << 32 | swizzle << 62;
        out += &format!(
            "add.u32 %x0, %s, {}; shr.u32 %x0, %x0, 4; cvt.u64.u32 %t, %x0; or.b64 %desc{i}, %t, {high:#x};\n",
            i * 16384
        );
    }
    for i in 0..4 {
        out += &format!("ld.global.u32 %r{i}, [%in+{}]; and.b32 %r{i}, %r{i}, {keep:#x};\n", 512 * i);
        out += &format!("or.b32 %r{i}, %r{i}, {set:#x};\n");
    }
    for i in 4..4 + d {
        let value = if float {
            format!("0f{:08x}", 0x3f80_0000 + (i << 18))
        } else {
            format!("{:#x}", 0x3c00_3c00 + i)
        };
        out += &format!("mov.b32 %{reg}{i}, {value};\n");
    }
    let a = if registers { vector("r", 0, 4) } else { "%desc0".into() };
    out += &format!(
        "wgmma.fence.sync.aligned;\nwgmma.mma_async.{op} {}, {a}, %desc1{rest};\n\
         wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n",
        vector(reg, 4, d)
    );
    (0..d).for_each(|i| out += &format!("st.global.b32 [%out+{}], %{reg}{};\n", 4 * i, 4 + i));
    out + "ret;\n}\n"
}

fn check(test: &str, numbers: (u32, u32), forms: &[Form]) {
    let tools = oracles(test);
    let text = "[[launch]]\nkernel = 'k'\ngrid = [1, 1, 1]\nblock = [128, 1, 1]\n\
         args = [{ buffer = 'in' }, { buffer = 'out' }]\n\
         [launch.buffers.in]\ntype = 'u32'\nlength = 8192\nseed = 7\nrandom = [0, 4294967295]\n\
         [launch.buffers.out]\ntype = 'u32'\nlength = 16384\ncompare = 'exact'\n";
    let launch = LaunchFile::parse(text).unwrap().launch.remove(0);
    let mut errors = Vec::new();
    for (i, form) in forms.iter().enumerate() {
        let name = format!("{test}{i}");
        errors.extend(run(tools.as_deref(), &name, &kernel(*form, numbers), "sm_90a", &launch));
    }
    assert!(errors.is_empty(), "{} failures\n{}", errors.len(), errors.join("\n"));
}

#[test]
fn group_products_of_halves() {
    check(
        "group_products_of_halves",
        (0x83ff_83ff, 0x3c00_3c00),
        &[
            ("sync.aligned.m64n8k16.f32.f16.f16", 4, true, false, [WIDE, WIDE], ", %p1, 1, 1, 0, 0"),
            ("sync.aligned.m64n16k16.f32.f16.f16", 8, true, false, [MIDDLE, NARROW], ", 1, -1, 1, 0, 0"),
            ("sync.aligned.m64n64k16.f32.f16.f16", 32, true, false, [UNITS, WIDE], ", 1, 1, 1, 0, 1"),
            ("sync.aligned.m64n24k16.f32.f16.f16", 12, true, false, [NARROW, UNITS], ", 1, 1, 1, 1, 1"),
            ("sync.aligned.m64n32k16.f16.f16.f16", 8, false, true, [WIDE, MIDDLE], ", 1, 1, -1, 1"),
            ("sp.sync.aligned.m64n8k32.f32.f16.f16", 4, true, false, [WIDE, WIDE], ", %x5, 1, 1, 1, 1, 0, 0"),
            ("sp.sync.aligned.m64n8k32.f32.f16.f16", 4, true, true, [WIDE, UNITS], ", %x5, 0, %p1, 1, 1, 1"),
        ],
    );
}

#[test]
fn group_products_of_other_types() {
    let bf16 = ("sync.aligned.m64n8k16.f32.bf16.bf16", 4, true, true, [WIDE, WIDE], ", 0, -1, -1, 1");
    check("group_products_of_bf16", (0x807f_807f, 0x3f80_3f80), &[bf16]);
    let tf32 = ("sync.aligned.m64n8k8.f32.tf32.tf32", 4, true, false, [MIDDLE, WIDE], ", 1, 1, -1");
    check("group_products_of_tf32", (0x807f_e000, 0x3f80_0000), &[tf32]);
    let bytes = [
        ("sync.aligned.m64n8k32.f32.e4m3.e5m2", 4, true, false, [WIDE, UNITS], ", 1, 1, -1"),
        ("sp.sync.aligned.m64n8k64.f32.e5m2.e4m3", 4, true, true, [WIDE, NARROW], ", %x5, 0, 1, 1, 1"),
    ];
    check("group_products_of_e4m3", (0x8787_8787, 0x3838_3838), &bytes);
}

#[test]
fn group_products_of_integers() {
    check(
        "group_products_of_integers",
        (!0, 0),
        &[
            ("sync.aligned.m64n8k32.s32.u8.s8", 4, false, false, [WIDE, MIDDLE], ", 1"),
            ("sync.aligned.m64n16k32.satfinite.s32.s8.s8", 8, false, true, [WIDE, UNITS], ", %p1"),
            ("sp.sync.aligned.m64n8k64.s32.s8.u8", 4, false, false, [WIDE, WIDE], ", %x5, 0, 1"),
            ("sync.aligned.m64n8k256.s32.b1.b1.and.popc", 4, false, false, [UNITS, NARROW], ", 1"),
        ],
    );
}
