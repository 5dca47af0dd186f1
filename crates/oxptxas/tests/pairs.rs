//! Arithmetic on pairs of binary32 numbers: one instruction where the target has it (docs/lowering.md, "Pairs of numbers").

use oxptxas::{Settings, compile};
use oxsass::verify::{Verdict, kernel, module};
use sass::{Opcode, Target};

/// Every statement, with constants as each source, rounding, flushing, signs and a guard.
const ALL: &str = "
.version 8.8
.target sm_100
.address_size 64
.visible .entry k(.param .u64 p, .param .f32 a, .param .f32 b)
{
	.reg .b64 %d<40>; .reg .f32 %f<9>; .reg .pred %p<2>; .reg .b32 %r<4>;
	ld.param.u64 %d1, [p]; ld.param.f32 %f1, [a]; ld.param.f32 %f2, [b];
	mov.u32 %r1, %tid.x; mul.wide.u32 %d9, %r1, 64; add.u64 %d1, %d1, %d9;
	ld.global.v2.u64 {%d2, %d3}, [%d1];
	mov.b64 %d4, {%f1, %f2};
	mov.b64 %d5, 0x4040000040400000;
	mov.b64 %d6, 0x400000003f800000;
	add.rn.f32x2 %d10, %d2, %d3;
	add.rz.ftz.f32x2 %d11, %d10, %d5;
	sub.rn.f32x2 %d12, %d11, %d4;
	sub.rm.f32x2 %d13, %d5, %d12;
	mul.rn.f32x2 %d14, %d5, %d13;
	mul.rp.ftz.f32x2 %d15, %d14, %d6;
	fma.rn.f32x2 %d16, %d15, %d5, %d5;
	fma.rn.f32x2 %d17, %d5, %d5, %d16;
	fma.rz.ftz.f32x2 %d18, %d3, %d17, %d5;
	fma.rn.f32x2 %d19, %d18, %d4, %d6;
	mov.b64 {%f3, %f4}, %d19;
	setp.lt.f32 %p1, %f3, %f4;
	mov.b64 %d20, {%f4, %f3};
	@%p1 add.rn.f32x2 %d20, %d20, %d19;
	mov.f32 %f5, 0f3F000000; mov.f32 %f6, 0f00000000; mov.f32 %f7, 0f80000000;
	mov.b64 %d21, {%f5, %f5}; mov.b64 %d22, {%f6, %f6}; mov.b64 %d23, {%f7, %f7}; mov.b64 %d24, {%f5, %f6};
	mul.rn.f32x2 %d25, %d21, %d20;
	sub.rn.f32x2 %d26, %d21, %d25;
	sub.rn.ftz.f32x2 %d27, %d26, %d21;
	add.rn.f32x2 %d28, %d27, %d22;
	add.rn.f32x2 %d29, %d23, %d28;
	fma.rn.f32x2 %d30, %d21, %d21, %d29;
	fma.rn.f32x2 %d31, %d30, %d21, %d21;
	fma.rn.f32x2 %d32, %d21, %d31, %d22;
	fma.rm.f32x2 %d20, %d24, %d32, %d20;
	mov.b64 %d33, 0x8000000080000000;
	sub.rn.f32x2 %d34, %d20, %d33;
	sub.rn.f32x2 %d35, %d33, %d34;
	sub.rn.f32x2 %d36, %d35, %d23;
	add.rn.f32x2 %d20, %d36, %d33;
	st.global.v2.u64 [%d1+16], {%d12, %d13};
	st.global.v2.u64 [%d1+32], {%d16, %d17};
	st.global.v2.u64 [%d1+48], {%d18, %d20};
	ret;
}
";

/// How many instructions of the code are on pairs.
fn pairs(cubin: &[u8], target: Target) -> usize {
    let image = cubin::read::read(cubin).unwrap();
    let words = image.kernels["k"].code.iter().enumerate();
    let ops = words.map(|(k, w)| sass::decode(*w, target, 16 * k as i64).unwrap().op);
    ops.filter(|op| matches!(op, Opcode::FADD2 | Opcode::FMUL2 | Opcode::FFMA2)).count()
}

#[test]
fn pairs_are_one_instruction_where_there_is_one() {
    for (sm, expected) in [(100, 24), (103, 24), (110, 0), (120, 0)] {
        let target = Target::new(sm).unwrap();
        let text = ALL.replace("8.8", "9.0").replace("sm_100", &format!("sm_{sm}"));
        let unit = module(&text, target).unwrap();
        for opt_level in [0, 1, 3] {
            let settings = Settings { opt_level, ..Settings::new(target) };
            let output = compile(&text, "k.ptx", &settings);
            let cubin = output.unwrap_or_else(|f| panic!("{}", f.render("oxptxas"))).cubin;
            assert_eq!(pairs(&cubin, target), expected, "{target} -O{opt_level}");
            let verdict = kernel(&unit, &text, &cubin, "k", 0..4);
            assert!(matches!(verdict, Verdict::Same), "{target} -O{opt_level}: {verdict}");
        }
    }
}
