//! What tests of passes have in common.

use ori::{Analyses, Changed, Function};

/// A function as a pass leaves it, verified. Its first block has a descriptor (v0), an address (v1), the thread's number (v2), and whether
/// that is less than five (v3), by which it branches to the blocks 1 and 2 of `rest`.
pub fn branched(rest: &str, run: fn(&mut Function, &Analyses) -> Changed) -> Function {
    let text = format!(
        "function k sm_90 entry local=0 shared=0 barriers=0 regs=255 {{
block0:
    v0:UR2 = ULDC.64 c[0x0][0x208]
    v1:R2 = LDC.64 c[0x0][0x210]
    v2:R = S2R SR_TID.X
    v3:P = ISETP.LT.AND PT, v2, 0x5, PT, PT
    branch v3, block1, block2
{rest}
    exit
}}
"
    );
    let mut f = ori::parse::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    _ = run(&mut f, &Analyses::default());
    ori::verify::verify(&f).unwrap_or_else(|e| panic!("{e:?}: {f}"));
    f
}
