//! Arrivals at barriers in memory under a condition: an instruction with a guard, as in ptxas's code, and no branch.

use oxptxas::{Settings, compile};
use sass::{Opcode, Target};

fn code(arrival: &str, target: &str) -> Vec<sass::Inst> {
    let source = format!(
        ".version 8.7\n.target {target}\n.address_size 64\n.visible .entry k(.param .u64 k_p)\n{{\n\
         .reg .b64 p, state; .reg .b32 t; .reg .f32 f; .reg .pred few; .shared .align 8 .b64 bar;\n\
         ld.param.u64 p, [k_p]; mov.u32 t, %tid.x; setp.lt.u32 few, t, 3; ld.global.f32 f, [p]; mov.u64 state, 0;\n\
         {arrival}\nst.global.f32 [p], f; st.global.b64 [p+8], state; ret;\n}}\n"
    );
    let target = Target::parse(target).unwrap();
    let cubin = compile(&source, "k.ptx", &Settings::new(target)).unwrap().cubin;
    let image = cubin::read::read(&cubin).unwrap();
    let words = image.kernels["k"].code.iter().enumerate();
    words.map(|(k, w)| sass::decode(*w, target, 16 * k as i64).unwrap()).collect()
}

#[test]
fn are_guarded() {
    let forms = [
        "@few mbarrier.arrive.shared::cta.b64 _, [bar];",
        "@few mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;",
        "@few mbarrier.arrive.shared::cta.b64 state, [bar], 2;",
        "@few mbarrier.arrive_drop.shared::cta.b64 _, [bar];",
        "@!few bra PAST; mbarrier.arrive.shared::cta.b64 _, [bar]; st.global.u32 [p+16], t; PAST:",
    ];
    for name in ["sm_90", "sm_100", "sm_120"] {
        for form in forms {
            let code = code(form, name);
            let end = code.iter().position(|i| i.op == Opcode::EXIT).unwrap();
            assert!(!code[..end].iter().any(|i| i.op == Opcode::BRA), "{name}: {form}");
            let arrivals: Vec<_> = code.iter().filter(|i| i.op == Opcode::SYNCS_ARRIVE).collect();
            assert!(arrivals.len() == 1 && arrivals[0].guard != sass::Guard::TRUE, "{name}: {form}");
        }
    }
}
