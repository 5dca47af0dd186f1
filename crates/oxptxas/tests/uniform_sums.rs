//! Loops with more sums that are the same in all lanes than there are uniform registers: they stay in general registers, where otherwise
//! they would come and go in each round.

use oxptxas::{Settings, compile};
use sass::Target;
use std::fmt::Write;

/// A kernel with a loop of `n` sums which the lanes of a warp share, stored at its end.
fn sums(n: usize, target: &str) -> String {
    let mut out = format!(
        ".version 8.7\n.target {target}\n.address_size 64\n\
         .visible .entry k(.param .u64 k_out, .param .u32 k_rounds, .param .u32 k_factor)\n{{\n\
         .reg .b32 s<{n}>, i, t, factor, rounds, block; .reg .b64 out, at; .reg .pred p;\n\
         ld.param.u64 out, [k_out]; ld.param.u32 rounds, [k_rounds]; ld.param.u32 factor, [k_factor];\n\
         mov.u32 block, %ctaid.x; mov.u32 t, %tid.x; mul.wide.u32 at, t, 4; add.s64 out, out, at; mov.u32 i, 0;\n"
    );
    for k in 0..n {
        let _ = writeln!(out, "mov.u32 s{k}, 0;");
    }
    out += "LOOP: mad.lo.u32 t, i, factor, block;\n";
    for k in 0..n {
        let other = (7 * k + 1) % n;
        let _ = writeln!(out, "mad.lo.u32 s{k}, s{k}, t, s{other}; add.u32 s{k}, s{k}, {};", k + 1);
    }
    out += "add.u32 i, i, 1; setp.lt.u32 p, i, rounds; @p bra LOOP;\n";
    for k in 0..n {
        let _ = writeln!(out, "st.global.u32 [out+{}], s{k};", 4096 * k);
    }
    out + "ret;\n}\n"
}

#[test]
fn sums_that_find_no_uniform_registers_do_not_come_and_go() {
    for name in ["sm_80", "sm_90", "sm_120"] {
        let target = Target::parse(name).unwrap();
        for n in [8, 32, 48, 56, 64, 96] {
            let cubin = compile(&sums(n, name), "k.ptx", &Settings::new(target)).unwrap().cubin;
            let image = cubin::read::read(&cubin).unwrap();
            let code = image.kernels["k"].code.iter().enumerate();
            let moved = code.filter(|(at, word)| {
                sass::decode(**word, target, 16 * *at as i64).unwrap().op.name() == "R2UR"
            });
            assert_eq!(moved.count(), 0, "{n} sums, {name}");
        }
    }
}
