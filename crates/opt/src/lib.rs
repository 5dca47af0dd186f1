//! Optimization passes over Ori in SSA, and the list that says which run at which level.
//!
//! Passes carry the names that ptxas's documentation of phases uses, so that dumps and knobs can refer to
//! them. Each is one file and leaves verified SSA behind.

pub mod branch_opt;
pub mod copy_prop;
pub mod dce;
pub mod effects;
pub mod gvn;
pub mod wide_add;

use ori::Function;

/// One pass.
#[derive(Clone, Copy)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// The least `-O` level at which it runs.
    pub min_level: u8,
    /// The pass; says whether it changed anything.
    pub run: fn(&mut Function) -> bool,
}

/// All passes, in order.
pub static PHASES: &[Phase] = &[
    Phase { name: "OriBranchOpt", min_level: 1, run: branch_opt::run },
    Phase { name: "OriCopyProp", min_level: 1, run: copy_prop::run },
    Phase { name: "GeneralOptimize", min_level: 1, run: wide_add::run },
    Phase { name: "GvnCse", min_level: 2, run: gvn::run },
    Phase { name: "OriCopyProp2", min_level: 2, run: copy_prop::run },
    Phase { name: "OriPerformLiveDead", min_level: 0, run: dce::run },
];

/// Runs the passes of `level`, calling `after` with the name of each that ran.
///
/// # Errors
/// In builds with debug assertions, what the verifier found after a pass: an error in the pass.
pub fn optimize(
    func: &mut Function,
    level: u8,
    mut after: impl FnMut(&str, &Function),
) -> Result<(), String> {
    for phase in PHASES.iter().filter(|p| p.min_level <= level) {
        (phase.run)(func);
        if cfg!(debug_assertions)
            && let Err(errors) = ori::verify::verify(func)
        {
            return Err(format!("after {}: {}", phase.name, errors.join("; ")));
        }
        after(phase.name, func);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ori::{Builder, Macro, Operand, Terminator, operand};
    use sass::{Mod, Opcode, SpecialReg, Target};

    fn store(b: &mut Builder, v: ori::Value) {
        let address =
            Operand::Addr { desc: None, base: None, width: sass::AddrWidth::R32, uniform: None, offset: 0 };
        b.inst(Opcode::STS, &[], &[address, operand(v)]);
    }

    #[test]
    fn jumps_to_the_only_successor_merge() {
        let mut f = Function::new("k", Target::new(90).unwrap());
        let entry = f.entry_block();
        let next = f.add_block();
        let param = f.add_value(sass::RegFile::R, 1);
        f.blocks[next].params.push(param);
        let mut b = Builder::new(&mut f, entry);
        let x = b.def(Opcode::S2R, &[], &[Operand::Special(SpecialReg::SR_TID_X)]);
        b.terminate(Terminator::Jump(ori::BlockCall { block: next, args: [x].into_iter().collect() }));
        b.block = next;
        store(&mut b, param);
        b.terminate(Terminator::Exit);
        optimize(&mut f, 1, |_, _| {}).unwrap();
        assert_eq!(f.layout.len(), 1, "{f}");
        assert!(f.to_string().contains("STS [0x0], v1"), "{f}");
    }

    #[test]
    fn repeated_and_unused_computations_go() {
        let mut f = Function::new("k", Target::new(90).unwrap());
        let entry = f.entry_block();
        let mut b = Builder::new(&mut f, entry);
        let tid = [Operand::Special(SpecialReg::SR_TID_X)];
        let x = b.def(Opcode::S2R, &[], &tid);
        let y = b.def(Opcode::S2R, &[], &tid);
        let pair = b.collect(&[operand(x), operand(y)]);
        let low = b.def_macro(Macro::Copy, sass::RegFile::R, 1, &[operand(ori::Name::Part(pair, 1))]);
        let sum = b.def(Opcode::FADD, &[Mod::FTZ], &[operand(low), operand(x)]);
        let _unused = b.def(Opcode::FMUL, &[], &[operand(sum), operand(sum)]);
        store(&mut b, sum);
        b.terminate(Terminator::Exit);
        optimize(&mut f, 3, |_, _| {}).unwrap();
        let text = f.to_string();
        assert_eq!(text.matches("S2R").count(), 1, "{text}");
        assert!(!text.contains("FMUL") && !text.contains("collect") && !text.contains("copy"), "{text}");
        assert!(text.contains("FADD.FTZ v0, v0"), "{text}");
    }
}
