//! Every kernel's code does what its PTX says on launches that nobody wrote.

use oxptxas::{Settings, compile};
use oxsass::verify::{self, Verdict};
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
            assert!(cubin::read::is_ours(&cubin), "held to what is not asked of others");
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
    mov.b64 %d5, {%r1, 7};
    @%p3 ld.global.v2.s32 {%d3, %d5}, [%t0+24];
    st.global.u64 [%t1+24], %d3;
    st.global.u64 [%t1+32], %d5;
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

fn verified(source: &str, levels: [u8; 2]) {
    let module = ptx::parse(source).unwrap();
    let target = Target::parse(&module.targets[0]).unwrap();
    for opt_level in levels {
        let settings = Settings { opt_level, ..Settings::new(target) };
        let cubin = compile(source, "test.ptx", &settings).unwrap().cubin;
        assert_eq!(verify::kernel(&module, source, &cubin, "k", 0..2), Verdict::Same, "-O{opt_level}");
    }
}

/// More values than registers go around a loop, each in the place of another.
#[test]
fn spilled_values_go_around_loops() {
    use std::fmt::Write;
    const N: usize = 60;
    let mut s = String::from(
        ".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out) .maxnreg 24\n\
         {\n.reg .pred %p<70>;\n.reg .b32 %r<140>;\n.reg .b64 %d<4>;\nld.param.u64 %d0, [in];\n\
         ld.param.u64 %d1, [out];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d2, %r0, 512;\nadd.u64 %d0, %d0, %d2;\n\
         add.u64 %d1, %d1, %d2;\nmov.u32 %r139, 0;\n",
    );
    for i in 1..=N {
        writeln!(s, "ld.global.u32 %r{i}, [%d0+{}];\nsetp.gt.s32 %p{i}, %r{i}, 0;", 4 * i).unwrap();
    }
    s += "LOOP:\nmov.u32 %r138, %r1;\n";
    for i in 1..N {
        writeln!(s, "@%p{i} add.u32 %r{i}, %r{}, %r{i};\n@!%p{i} mov.u32 %r{i}, %r{};", i + 1, i + 1)
            .unwrap();
    }
    writeln!(
        s,
        "mov.u32 %r{N}, %r138;\nadd.u32 %r139, %r139, 1;\nsetp.lt.u32 %p69, %r139, 5;\n@%p69 bra LOOP;"
    )
    .unwrap();
    for i in 1..=N {
        writeln!(s, "@%p{i} add.u32 %r{i}, %r{i}, 1;\nst.global.u32 [%d1+{}], %r{i};", 4 * i).unwrap();
    }
    s += "ret;\n}\n";
    verified(&s, [0, 3]);
}

/// Predicates without a value, and more of them than there are, where two loops cross.
const CROSSED: &str = "
.version 9.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 floats, .param .u64 out, .param .u64 gsums, .param .u32 n0, .param .u32 n1)
{
	.reg .pred %p<5>;
	.reg .b32 %r<8>;
	.reg .b32 %u<4>;
	.reg .b32 %lane, %id, %sown, %sex;
	.reg .b64 %t3;
	.reg .b32 %t31;
	.reg .pred %t39;
	.reg .b32 %t42;
	.reg .b32 %t43;
	.reg .pred %t45;
	.reg .b64 %t53;
	.reg .b32 %t57;
	.reg .pred %t58;
	.reg .b32 %t65;
	.reg .b32 %t66;
	.reg .b32 %t67;
	ld.param.u64 %t3, [out];
	L32: .branchtargets L28, L29, L30;
	brx.idx %t31, L32;
L28:
	bra L27;
L29:
L30:
	setp.ne.s32 %t39, %lane, -889026680;
	@!%t39 bra L36;
L35:
	bra L37;
L36:
	bfi.b32 %r1, %r6, %r6, %t42, %t43;
	@%p4 bra L35;
L37:
	set.eq.and.u32.b32 %r6, %r1, %r0, !%p1;
	setp.eq.u32 %t45, %r4, 2268;
	@%t45 bra L36;
	not.pred %p1, %p3;
	st.global.u16 [%t53], %r6;
L27:
	setp.eq.u32 %t58, %t57, 0;
	@%t58 bra L56;
	setp.lt.xor.s32 %p2|%p3, %u3, 0, %p4;
L56:
	selp.b32 %t65, 1, 0, %p0;
	st.global.u8 [%t3+0], %t65;
	selp.b32 %t66, 1, 0, %p1;
	st.global.u8 [%t3+1], %t66;
	selp.b32 %t67, 1, 0, %p2;
	st.global.u8 [%t3+2], %t67;
}
";

#[test]
fn spilled_predicates_cross_loops() {
    for opt_level in [0, 3] {
        let settings = Settings { opt_level, ..Settings::new(Target::parse("sm_75").unwrap()) };
        compile(CROSSED, "crossed.ptx", &settings).unwrap();
    }
}

/// Every number may be added in a function, with a frame and without one.
const SUMS: &str = "
.version 9.0
.target sm_75
.address_size 64
.func (.param .b32 r) sum(.param .b32 x)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r0, [x];
    add.s32 %r1, %r0, -2147483648;
    add.s32 %r2, %r0, 16;
    xor.b32 %r1, %r1, %r2;
    st.param.b32 [r], %r1;
    ret;
}
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<3>;
    .reg .b64 %d<3>;
    ld.param.u64 %d0, [out];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %d1, %r0, 4;
    add.u64 %d0, %d0, %d1;
    { .param .b32 x; .param .b32 r;
      st.param.b32 [x], %r0; call (r), sum, (x); ld.param.b32 %r1, [r]; }
    st.global.u32 [%d0], %r1;
    ret;
}
";

#[test]
fn functions_add_every_number() {
    verified(SUMS, [0, 3]);
}

/// The places of parameters are aligned by their address in the constant bank, from sm_100 on by their offset.
#[test]
fn over_aligned_parameters() {
    let source = ".version 8.7
.target sm_75
.address_size 64
.visible .entry k(.param .u32 a, .param .align 256 .b8 s[64], .param .u32 b, .param .u64 out)
{
    .reg .b32 %r<5>;
    .reg .b64 %d;
    ld.param.u32 %r1, [a];
    ld.param.u32 %r2, [s+8];
    ld.param.u32 %r3, [b];
    ld.param.u64 %d, [out];
    mad.lo.u32 %r1, %r1, %r2, %r3;
    st.global.u32 [%d], %r1;
    ret;
}
";
    // What ptxas 13.0.88 states.
    for (arch, places) in [
        ("sm_75", [0, 0xa0, 0xe0, 0xe8]),
        ("sm_90", [0, 0xf0, 0x130, 0x138]),
        ("sm_100", [0, 0x100, 0x140, 0x148]),
        ("sm_120", [0, 0x100, 0x140, 0x148]),
    ] {
        let target = Target::parse(arch).unwrap();
        let module = verify::module(source, target).unwrap();
        assert_eq!(module.param_layout(&module.funcs[ptx::ast::FuncId::from_u32(0)]).0, places);
        let cubin = compile(source, "kernel.ptx", &Settings::new(target)).unwrap().cubin;
        assert_eq!(verify::kernel(&module, source, &cubin, "k", 0..2), Verdict::Same);
    }
}

/// Parameters by their address, whatever `ld.param` is called, and vectors moved element by element.
#[test]
fn parameters_by_address_and_vector_moves() {
    let source = ".version 9.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 a, .param .u32 b, .param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd0, [out];
    mov.u64 %rd1, a;
    ld.param::func.u8 %r0, [%rd1+16];
    ld.param::entry.u8 %r1, [%rd1+17];
    mov.v2.b32 {%r2, %r3}, {%r0, %r1};
    shl.b32 %r2, %r2, 20;
    shl.b32 %r3, %r3, 20;
    mov.v2.b32 {%r0, %r1}, {%r3, %r2};
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 8;
    add.u64 %rd0, %rd0, %rd2;
    st.global.v2.u32 [%rd0], {%r0, %r1};
    ret;
}
";
    for arch in ["sm_75", "sm_90", "sm_120"] {
        let target = Target::parse(arch).unwrap();
        let module = verify::module(source, target).unwrap();
        for opt_level in [0, 3] {
            let settings = Settings { opt_level, ..Settings::new(target) };
            let cubin = compile(source, "kernel.ptx", &settings).unwrap().cubin;
            assert_eq!(verify::kernel(&module, source, &cubin, "k", 0..2), Verdict::Same, "{arch}");
        }
    }
}

/// Half of a warp shuffles among itself; one of the results comes from a lane of the other half, which is undefined.
const ABSENT: &str = "
.version 9.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred %p<4>;
    .reg .b32 %r<10>;
    .reg .b64 %d<6>;
    ld.param.u64 %d0, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %laneid;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r2, %r2, 256, %r0;
    mul.wide.u32 %d1, %r2, 16;
    add.u64 %d0, %d0, %d1;
    setp.ge.u32 %p0, %r1, 16;
    @%p0 bra OUT;
    mad.lo.u32 %r3, %r1, 3, 1;
    shfl.sync.bfly.b32 %r4, %r3, 16, 31, 0xffff;
    shfl.sync.bfly.b32 %r5, %r3, 1, 31, 0xffff;
    st.global.u32 [%d0], %r4;
    st.global.u32 [%d0+8], %r5;
OUT:
    ret;
}
";

#[test]
fn what_depends_on_undefined_values_is_not_compared_and_the_rest_is() {
    let module = ptx::parse(ABSENT).unwrap();
    let verdict = |source: &str| {
        let settings = Settings::new(Target::parse("sm_75").unwrap());
        let cubin = compile(source, "absent.ptx", &settings).unwrap().cubin;
        verify::kernel(&module, ABSENT, &cubin, "k", 0..2)
    };
    assert_eq!(verdict(ABSENT), Verdict::Same);
    let Verdict::Differs(how) = verdict(&ABSENT.replace("%r5, %r3, 1,", "%r5, %r3, 2,")) else {
        panic!("no difference")
    };
    assert!(how.contains("stored by line 23 of the PTX"), "{how}");
    let nothing_else = ABSENT.replace("    st.global.u32 [%d0+8], %r5;\n", "");
    let module = ptx::parse(&nothing_else).unwrap();
    let cubin =
        compile(&nothing_else, "absent.ptx", &Settings::new(Target::parse("sm_75").unwrap())).unwrap().cubin;
    let verdict = verify::kernel(&module, &nothing_else, &cubin, "k", 0..2);
    assert!(matches!(verdict, Verdict::Undefined(_)), "{verdict}");
}

/// The least of a word that nobody has written and one below zero, which is that one for most words.
const LEAST: &str = "
.version 8.0
.target sm_90
.address_size 64
.shared .align 4 .b8 s[512];
.visible .entry k(.param .u64 p)
{
	.reg .b64 %d<4>; .reg .b32 %r<6>;
	ld.param.u64 %d1, [p];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %d2, %r1, 4;
	add.u64 %d1, %d1, %d2;
	mov.u32 %r2, s;
	and.b32 %r3, %r1, 15;
	mad.lo.u32 %r2, %r3, 4, %r2;
	ld.shared.u32 %r4, [%r2+256];
	ld.global.u32 %r3, [%d1];
	or.b32 %r3, %r3, -16;
	min.s32 %r4, %r4, %r3;
	st.global.u32 [%d1], %r4;
	ret;
}
";

#[test]
fn what_only_few_undefined_values_change_is_not_compared() {
    let module = ptx::parse(LEAST).unwrap();
    let cubin = compile(LEAST, "least.ptx", &Settings::new(Target::parse("sm_90").unwrap())).unwrap().cubin;
    let verdict = verify::kernel(&module, LEAST, &cubin, "k", 0..4);
    assert!(!matches!(verdict, Verdict::Differs(_)), "{verdict}");
}

/// The states that arrivals find which say that they do not complete the phase: of one count, and of several.
const ARRIVALS: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
	.reg .b64 %a<9>, %s<9>; .reg .b32 %r<12>; .reg .pred %p<4>;
	.shared .align 8 .b8 s[64];
	ld.param.u64 %a1, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %a2, %r0, 32; add.u64 %a1, %a1, %a2;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared.b64 [s], 5000;
	@%p1 mbarrier.init.shared.b64 [s+8], 5000;
	bar.sync 0;
	and.b32 %r1, %r0, 3; add.u32 %r1, %r1, 1;
	mbarrier.arrive.noComplete.shared.b64 %s1, [s], 3;
	mbarrier.pending_count.b64 %r2, %s1;
	mov.u32 %r4, 0;
	bar.sync 0;
	mbarrier.arrive.noComplete.shared.b64 %s2, [s+8], %r1;
	mbarrier.pending_count.b64 %r3, %s2;
	bar.sync 0;
	mbarrier.arrive.shared.b64 %s3, [s+8], 1;
	mbarrier.arrive_drop.noComplete.shared.b64 %s6, [s], 1;
	bar.sync 0;
	atom.shared.add.u64 %s4, [s], 0;
	atom.shared.add.u64 %s5, [s+8], 0;
	st.global.u64 [%a1], %s4; st.global.u64 [%a1+8], %s5;
	and.b32 %r2, %r2, 0xfffff; and.b32 %r3, %r3, 0xfffff;
	setp.gt.u32 %p2, %r2, 0; selp.u32 %r2, 1, 0, %p2;
	st.global.u32 [%a1+16], %r2;
	ret;
}
";

#[test]
fn arrivals_find_their_own_states() {
    for target in ["sm_90", "sm_100", "sm_120"] {
        let module = ptx::parse(ARRIVALS).unwrap();
        for opt_level in [0, 3] {
            let settings = Settings { opt_level, ..Settings::new(Target::parse(target).unwrap()) };
            let cubin = compile(ARRIVALS, "k.ptx", &settings).unwrap().cubin;
            assert_eq!(
                verify::kernel(&module, ARRIVALS, &cubin, "k", 0..2),
                Verdict::Same,
                "{target} -O{opt_level}"
            );
        }
    }
}

/// What there is for 64 bits in no local memory.
const ATOMICS: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
	.reg .b64 %a<9>, %s<9>, %l; .reg .b32 %r<12>; .reg .pred %p<4>;
	.local .align 8 .b8 loc[64]; .shared .align 8 .b8 sh[4096];
	ld.param.u64 %a1, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %a2, %r0, 64; add.u64 %a1, %a1, %a2;
	mov.u64 %l, loc; cvta.local.u64 %l, %l;
	mul.wide.u32 %s1, %r0, 77; add.u64 %s2, %s1, 13; shl.b64 %s3, %s1, 31;
	st.u64 [%l], %s1; st.u64 [%l+8], %s2;
	atom.max.u64 %s4, [%l], %s3; atom.and.b64 %s5, [%l+8], 0x55; atom.min.s64 %s6, [%l+8], -3;
	ld.u64 %s7, [%l]; ld.u64 %s8, [%l+8];
	st.global.u64 [%a1], %s4; st.global.u64 [%a1+8], %s5; st.global.u64 [%a1+16], %s6; st.global.u64 [%a1+24], %s7; st.global.u64 [%a1+32], %s8;
	mov.u64 %l, sh; cvta.shared.u64 %l, %l; mul.wide.u32 %a3, %r0, 8; add.u64 %l, %l, %a3;
	st.u64 [%l], %s2; atom.max.u64 %s4, [%l], %s3; ld.u64 %s5, [%l];
	st.global.u64 [%a1+40], %s4; st.global.u64 [%a1+48], %s5;
	ret;
}
";

#[test]
fn atomics_of_64_bits_work_on_local_memory() {
    verified(ATOMICS, [0, 3]);
    let settings = Settings::new(Target::parse("sm_90").unwrap());
    let image = cubin::read::read(&compile(ATOMICS, "k.ptx", &settings).unwrap().cubin).unwrap();
    let insts = image.kernels["k"].code.iter().map(|w| sass::decode(*w, settings.target, 0).unwrap());
    let swaps: Vec<_> = insts.filter(|i| i.op == sass::Opcode::ATOM && i.mods.has(sass::Mod::CAS)).collect();
    // Where there is none, its predicate says so.
    assert!(!swaps.is_empty() && swaps.iter().all(|i| i.operands[0] != sass::Operand::reg(sass::Reg::PT)));
}

/// A call may leave a last parameter without a size out.
#[test]
fn nothing_is_passed_where_lists_are_open() {
    verified(
        ".version 9.0\n.target sm_75\n.address_size 64\n\
         .func (.param .b32 r) f(.param .b32 n, .param .align 8 .b8 x[])\n\
         { .reg .b32 %a<3>; .reg .pred %p; ld.param.b32 %a1, [n]; and.b32 %a2, %a1, 1; setp.eq.u32 %p, %a2, 0; @%p bra E;\n\
         ld.param.b32 %a1, [x+4]; E: st.param.b32 [r], %a1; ret; }\n\
         .visible .entry k(.param .u64 in, .param .u64 out)\n\
         { .reg .b32 %a<4>; .reg .b64 %d<4>; .reg .pred %p; .param .b32 n; .param .b32 r; .param .align 8 .b8 y[8];\n\
         ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mov.u32 %a1, %tid.x; mul.wide.u32 %d3, %a1, 4; add.u64 %d1, %d1, %d3;\n\
         add.u64 %d2, %d2, %d3; ld.global.b32 %a2, [%d1]; st.param.b32 [n], %a1; and.b32 %a3, %a1, 1;\n\
         setp.eq.u32 %p, %a3, 1; @%p bra ODD; call (r), f, (n); ld.param.b32 %a2, [r]; bra END;\n\
         ODD: st.param.b32 [y+4], %a2; call (r), f, (n, y); ld.param.b32 %a2, [r]; END: st.global.b32 [%d2], %a2; ret; }\n",
        [0, 3],
    );
}

/// Special registers among what stands in braces.
#[test]
fn special_registers_are_read_in_braces() {
    verified(
        ".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)\n\
         { .reg .b32 %a<4>; .reg .b64 %d<5>; .reg .pred %p; ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out];\n\
         mov.u32 %a1, %tid.x; mul.wide.u32 %d3, %a1, 32; add.u64 %d2, %d2, %d3; mul.wide.u32 %d3, %a1, 4;\n\
         add.u64 %d1, %d1, %d3; ld.global.b32 %a2, [%d1]; mov.b64 %d4, {%a2, %ntid.x}; st.global.b64 [%d2], %d4;\n\
         setp.ne.u32 %p, %a2, 0; @%p st.global.v4.u32 [%d2+16], {%laneid, %a2, %tid.x, %ctaid.y}; ret; }\n",
        [0, 3],
    );
}

/// Functions that ask for the generic address of a parameter, their own or the kernel's.
#[test]
fn generic_addresses_of_parameters() {
    const FUNCTIONS: &str = "
.version 9.0
.target sm_75
.address_size 64
.func (.param .b32 r) own(.param .b32 n, .param .align 16 .b8 x[16])
{ .reg .b64 %d<5>; .reg .b32 %a<5>; ld.param.b32 %a1, [n]; and.b32 %a1, %a1, 3; mul.wide.u32 %d1, %a1, 4;
  mov.b64 %d2, x; add.u64 %d3, %d1, %d2; cvta.param.u64 %d3, %d3; ld.b32 %a2, [%d3]; cvta.param.u64 %d4, %d2; ld.b32 %a3, [%d4+8];
  cvta.to.param.u64 %d4, %d4; ld.param.b32 %a4, [%d4+12]; xor.b32 %a4, %a4, %a2; add.u32 %a2, %a3, %a4; st.param.b32 [r], %a2; ret; }
.func (.param .b32 r) other(.param .b64 p, .param .align 4 .b8 x[8])
{ .reg .b64 %d<5>; .reg .b32 %a<5>; mov.b64 %d1, x; ld.local.b32 %a1, [%d1+4]; ld.param.b64 %d2, [p]; cvta.param.u64 %d2, %d2;
  ld.b32 %a2, [%d2+4]; add.u32 %a1, %a1, %a2; st.param.b32 [r], %a1; ret; }
.visible .entry k(.param .u64 in, .param .u64 out, .param .b32 q, .param .b32 z)
{ .reg .b64 %d<6>; .reg .b32 %a<6>; .param .b32 n; .param .align 16 .b8 x[16]; .param .b32 r; .param .b64 p; .param .align 4 .b8 y[8];
  ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mov.u32 %a1, %tid.x; mul.wide.u32 %d3, %a1, 16; add.u64 %d1, %d1, %d3;
  add.u64 %d2, %d2, %d3; ld.global.v2.b64 {%d4, %d5}, [%d1]; st.param.b32 [n], %a1; st.param.v2.b64 [x], {%d4, %d5};
  call (r), own, (n, x); ld.param.b32 %a2, [r]; st.global.b32 [%d2], %a2;
  mov.b64 %d4, q; st.param.b64 [p], %d4; st.param.b32 [y], %a1; st.param.b32 [y+4], %a2; call (r), other, (p, y);
  ld.param.b32 %a2, [r]; ld.param.b32 %a3, [z]; sub.u32 %a2, %a2, %a3; st.global.b32 [%d2+4], %a2; ret; }
";
    verified(FUNCTIONS, [0, 3]);
    // An address that is one or the other, or of which that can't be told.
    for from in ["selp.b64 %d2, %d2, %d1, %p1", "@%p1 mov.b64 %d2, x", "ld.local.b64 %d2, [%d1]"] {
        let text = FUNCTIONS.replace(
            "ld.param.b64 %d2, [p];",
            &format!(".reg .pred %p1; setp.eq.u32 %p1, %a1, 1; ld.param.b64 %d2, [p]; {from};"),
        );
        let settings = Settings::new(Target::parse("sm_75").unwrap());
        let errors = compile(&text, "k.ptx", &settings).unwrap_err();
        assert!(format!("{errors:?}").contains("the function's own parameter"), "{errors:?}");
    }
}

/// Constants and parameters of 128 bits, at known places and at computed ones, guarded too.
#[test]
fn constants_of_128_bits() {
    let source = |sm: &str| {
        format!(
            ".version 9.0
.target {sm}
.address_size 64
.const .align 16 .b32 c[16] = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
.visible .entry k(.param .u64 out, .param .align 16 .b8 q[32])
{{
    .reg .pred %p;
    .reg .b32 %r<3>;
    .reg .b64 %d<4>;
    .reg .b128 %q<4>;
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d2, %r1, 64;
    add.u64 %d1, %d1, %d2;
    ld.param.b128 %q1, [q+16];
    st.global.b128 [%d1], %q1;
    ld.const.b128 %q2, [c+16];
    st.global.b128 [%d1+16], %q2;
    and.b32 %r1, %r1, 3;
    setp.gt.u32 %p, %r1, 1;
    mul.wide.u32 %d2, %r1, 16;
    mov.u64 %d3, c;
    add.u64 %d2, %d2, %d3;
    @%p ld.const.b128 %q2, [%d2];
    st.global.b128 [%d1+32], %q2;
    @%p ld.const.b128 %q1, [c];
    st.global.b128 [%d1+48], %q1;
    ret;
}}
"
        )
    };
    for sm in ["sm_75", "sm_90", "sm_120"] {
        verified(&source(sm), [0, 3]);
    }
}

/// Registers of several types in braces are untyped bits.
#[test]
fn vectors_of_several_types() {
    let source = "
.version 9.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .f32 %f<4>;
    .reg .s32 %s<4>;
    .reg .u32 %u<4>;
    .reg .b64 %d<6>;
    ld.param.u64 %d1, [in];
    ld.param.u64 %d2, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d3, %r1, 32;
    add.u64 %d1, %d1, %d3;
    add.u64 %d2, %d2, %d3;
    ld.global.v2.u32 {%r2, %f2}, [%d1];
    add.f32 %f3, %f2, %f2;
    st.global.v4.s32 [%d2], {%r2, %f2, %f3, %r1};
    ld.global.v2.f32 {%s1, %u1}, [%d1+8];
    mov.v2.u32 {%r3, %f1}, {%f2, %r2};
    st.global.v4.f32 [%d2+16], {%s1, %u1, %s1, %u1};
    st.global.v2.u32 [%d2+8], {%r3, %f1};
    ret;
}
";
    verified(source, [0, 3]);
}

/// What a statement of its own computes before the instruction that reads it.
#[test]
fn operands_that_are_computed_before() {
    let source = "
.version 9.0
.target sm_80
.address_size 64
.global .align 8 .b32 table<4>;
.shared .align 16 .b32 tile[64];
.func other() { ret; }
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .pred %p<4>;
    .reg .b16 %h<4>;
    .reg .b32 %r<8>;
    .reg .f32 %f<12>;
    .reg .b64 %d<12>;
    ld.param.u64 %d1, [in];
    ld.param.u64 %d2, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d3, %r1, 128;
    add.u64 %d1, %d1, %d3;
    add.u64 %d2, %d2, %d3;
    mov.u64 %d4, table1;
    setp.eq.u64 %p1, table0+4, %d4;
    selp.u64 %d5, table3+8, 0, %p1;
    mov.u64 %d6, table3;
    sub.u64 %d5, %d5, %d6;
    st.global.u64 [%d2], %d5;
    add.u32 %r2, %r1, tile+4;
    mov.u32 %r3, tile;
    sub.u32 %r2, %r2, %r3;
    st.global.u32 [%d2+8], %r2;
    mov.u16 %h1, tile+0;
    add.u16 %h2, %h1, tile+6;
    sub.u16 %h2, %h2, %h1;
    sub.u16 %h2, %h2, %h1;
    st.global.u16 [%d2+12], %h2;
    st.global.u32 [%d2+16], tile+12;
    mul.wide.u32 %d7, %r1, 4;
    mad.wide.u32 %d7, %r1, 4, table0+8;
    mov.u64 %d8, table0;
    sub.u64 %d7, %d7, %d8;
    st.global.u64 [%d2+24], %d7;
    mov.u64 %d9, other;
    setp.eq.u64 %p2, %d9, other;
    selp.u32 %r4, 1, 2, %p2;
    ld.global.u32 %r5, [%d1];
    st.global.v4.u32 [%d2+32], {%r4, 0f3FC00000, %r5, %laneid};
    ld.global.v4.f32 {%f5, %f6, %f7, %f8}, [%d1+16];
    mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r5, 0, 0x3F800000, %f5}, {%r5, (1)},
        {0f3F800000, 0f40000000, 0f00000000, 0fBF800000};
    st.global.v4.f32 [%d2+48], {%f1, %f2, %f3, %f4};
    mma.sync.aligned.m16n8k16.row.col.s32.s8.u8.s32 {%r4, %f2, %r6, %r7}, {%r5, %f5}, {%r5}, {%r5, %f6, 3, %r1};
    st.global.v4.u32 [%d2+64], {%r4, %f2, %r6, %r7};
    st.shared.v4.u32 [tile], {0, 0, 0, 0};
    bar.sync 0;
    sub.u32 %r6, %r1, 2;
    setp.lt.u32 %p3, %r6, 3;
    shl.b32 %r7, 1, %r1;
    @%p3 cp.async.ca.shared.global [%lanemask_eq+4], [%d1], 4;
    cp.async.wait_all;
    @%p3 ld.shared.u32 %r6, [%r7+4];
    st.global.u32 [%d2+80], %r6;
    ret;
}
";
    verified(source, [0, 3]);
}

/// A barrier's number and how many threads it is for share a register where neither is known, as in a loop before its end was seen; then both
/// turn out to be known.
#[test]
fn barriers_become_known() {
    let source = ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out) .reqntid 64, 1, 1\n{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<10>;\n.reg .b64 %d<4>;\n.shared .b32 s[256];\nld.param.u64 %d0, [out];\n\
         mov.u32 %r0, %tid.x;\nmul.wide.u32 %d1, %r0, 4;\nadd.u64 %d0, %d0, %d1;\nshl.b32 %r1, %r0, 2;\n\
         mov.u32 %r2, s;\nadd.u32 %r2, %r2, %r1;\nmov.u32 %r4, 1;\nmov.u32 %r5, 64;\n\
         LOOP:\nst.shared.u32 [%r2], %r0;\nbar.sync %r4, %r5;\nxor.b32 %r6, %r1, 252;\nmov.u32 %r7, s;\n\
         add.u32 %r7, %r7, %r6;\nld.shared.u32 %r8, [%r7];\nadd.u32 %r0, %r0, %r8;\nadd.u32 %r2, %r2, 256;\n\
         add.u32 %r1, %r1, 256;\nbar.sync %r4, %r5;\nsetp.lt.u32 %p1, %r1, 768;\n\
         @%p1 bra LOOP;\nst.global.u32 [%d0], %r0;\nret;\n}\n";
    let target = Target::parse("sm_90").unwrap();
    let cubin = compile(source, "test.ptx", &Settings::new(target)).unwrap().cubin;
    let image = cubin::read::read(&cubin).unwrap();
    let code = image.kernels["k"].code.iter().map(|w| sass::decode(*w, target, 0).unwrap());
    let code = code.map(|i| sass::print(&i, target).to_string());
    let barriers: Vec<String> = code.filter(|i| i.starts_with("BAR")).collect();
    assert!(barriers.iter().all(|b| b == "BAR.SYNC.DEFER_BLOCKING 0x1, 0x40"), "{barriers:?}");
    verified(source, [0, 3]);
}

/// Accesses of 256 bits below their register, as far as the offset goes; -O3 folds both sums.
#[test]
fn wide_accesses_have_offsets_of_either_sign() {
    for offset in [-32, -2097152, 2097120, -2097184, 2097152, 16] {
        let back: i32 = -offset;
        let source = format!(
            ".version 9.0\n.target sm_120\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)\n{{\n\
             .reg .b32 %r<9>;\n.reg .b64 %d<5>;\nld.param.u64 %d0, [in];\nld.param.u64 %d1, [out];\n\
             mov.u32 %r0, %tid.x;\nmul.wide.u32 %d2, %r0, 32;\nadd.u64 %d0, %d0, %d2;\nadd.u64 %d1, %d1, %d2;\n\
             add.s64 %d3, %d0, {back};\n\
             ld.global.v8.u32 {{%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}}, [%d3+{offset}];\nadd.s64 %d4, %d1, {back};\n\
             st.global.v8.u32 [%d4+{offset}], {{%r8, %r7, %r6, %r5, %r4, %r3, %r2, %r1}};\nret;\n}}\n"
        );
        verified(&source, [0, 3]);
    }
}

/// Offsets that an instruction does not reach are added to the address before.
#[test]
fn offsets_out_of_reach() {
    let atom = |offset: i64| {
        format!(
            ".version 8.8\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 g) {{\n.reg .b64 %q<3>;\n.reg .b32 %r<5>;\n\
             ld.param.u64 %q1, [g];\nadd.s64 %q2, %q1, {};\natom.global.add.u32 %r1, [%q2+{offset}], 1;\n\
             atom.exch.b32 %r2, [%q2+{offset}], 5;\nred.global.add.u32 [%q2+{offset}], 3;\nadd.u32 %r1, %r1, %r2;\n\
             st.global.u32 [%q1+4], %r1;\nret;\n}}\n",
            -offset
        )
    };
    let copy = |offset: i64| {
        format!(
            ".version 8.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 g, .param .u32 s) {{\n.reg .b64 %q<3>;\n\
             .reg .b32 %r<3>;\n.shared .align 16 .b8 room[64];\nld.param.u64 %q1, [g];\nmov.u32 %r1, room;\nsub.u32 %r1, %r1, {offset};\n\
             cp.async.ca.shared.global [%r1+{offset}], [%q1], 4;\ncp.async.wait_all;\nld.shared.u32 %r2, [room];\n\
             st.global.u32 [%q1+4], %r2;\nret;\n}}\n"
        )
    };
    for (source, from) in [(1 << 22, 75), (-(1 << 22) - 1, 75), (1 << 23, 75)]
        .map(|(n, from)| (atom(n), from))
        .into_iter()
        .chain([1 << 19, -(1 << 19) - 4, 1 << 23].map(|n| (copy(n), 80)))
    {
        let module = ptx::parse(&source).unwrap();
        for sm in sass::target::SMS.iter().map(|t| t.sm).filter(|sm| *sm >= from) {
            for opt_level in [0, 3] {
                let settings = Settings { opt_level, ..Settings::new(Target::new(sm).unwrap()) };
                let cubin = compile(&source, "kernel.ptx", &settings);
                let cubin = cubin.unwrap_or_else(|e| panic!("sm_{sm}: {}", e.render("test"))).cubin;
                let verdict = verify::kernel(&module, &source, &cubin, "k", 0..2);
                assert!(verdict.is_right(), "sm_{sm} -O{opt_level}: {verdict}\n{source}");
            }
        }
    }
}

/// What functions declare of shared memory, and what they share with the kernel, each has a place of its own and the same in all.
#[test]
fn functions_share_memory_without_sharing_places() {
    for target in ["sm_75", "sm_90"] {
        let source = format!(
            ".version 8.0\n.target {target}\n.address_size 64\n.shared .align 4 .b32 m;\n\
             .func (.param .b32 r) f1(.param .b32 x)\n{{\n.shared .align 4 .b32 a[4];\n.reg .b32 %a;\n\
             ld.param.b32 %a, [x];\nadd.s32 %a, %a, 1;\nst.shared.b32 [a], %a;\nst.shared.b32 [m], 5;\n\
             st.param.b32 [r], %a;\nret;\n}}\n\
             .func (.param .b32 r) f2(.param .b32 x)\n{{\n.shared .align 4 .b32 b[4];\n.reg .b32 %a, %b;\n\
             ld.param.b32 %a, [x];\nst.shared.b32 [b], %a;\n\
             {{ .param .b32 q; .param .b32 s; st.param.b32 [q], %a; call (s), f1, (q); ld.param.b32 %b, [s]; }}\n\
             ld.shared.b32 %a, [b];\nadd.s32 %a, %a, %b;\nst.param.b32 [r], %a;\nret;\n}}\n\
             .visible .entry k(.param .u64 .ptr .global p, .param .u32 n)\n.maxntid 1\n{{\n.reg .b64 %p;\n.reg .b32 %n, %x, %y;\n\
             ld.param.b64 %p, [p];\nld.param.b32 %n, [n];\nst.shared.b32 [m], %n;\n\
             {{ .param .b32 q; .param .b32 s; st.param.b32 [q], %n; call (s), f2, (q); ld.param.b32 %x, [s]; }}\n\
             ld.shared.b32 %y, [m];\nst.global.b32 [%p], %x;\nst.global.b32 [%p+4], %y;\nret;\n}}\n"
        );
        verified(&source, [0, 3]);
    }
}

/// Numbers with a decimal point in lists are of the type that is stored.
#[test]
fn decimal_numbers_in_lists() {
    verified(
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 .ptr .global p)\n.maxntid 1\n{\n.reg .b64 %p;\n\
         ld.param.b64 %p, [p];\nst.global.v4.f32 [%p], {1.0, 2.5, -4.0, 0.1};\nst.global.v2.f64 [%p+16], {1.5, 0.1};\nret;\n}\n",
        [0, 3],
    );
}

/// A function whose address alone is taken calls the driver: nothing here calls it.
#[test]
fn addresses_of_functions_that_call_the_driver() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n.extern .func (.param .b64 r) malloc(.param .b64 n);\n\
                  .func f()\n{\n.reg .b64 %a;\n{ .param .b64 q; .param .b64 s; st.param.b64 [q], 8; call (s), malloc, (q); }\nret;\n}\n\
                  .visible .entry k(.param .u64 .ptr .global p)\n{\n.reg .b64 %p, %t;\nld.param.b64 %p, [p];\nmov.b64 %t, f;\n\
                  st.global.b64 [%p], %t;\nret;\n}\n";
    for sm in [75, 90, 120] {
        for opt_level in [0, 3] {
            let settings = Settings { opt_level, ..Settings::new(Target::new(sm).unwrap()) };
            let output =
                compile(source, "address.ptx", &settings).unwrap_or_else(|e| panic!("sm_{sm}: {e:?}"));
            let malloc = output.cubin.windows(8).any(|w| w == b"\0malloc\0");
            assert!(malloc, "sm_{sm} -O{opt_level}");
        }
    }
}
