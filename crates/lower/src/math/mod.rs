//! Expansions of operations that no single SASS instruction does: division, remainder, reciprocal and
//! square root, bit-exact.
//!
//! Each function appends to the builder's block and may split it: afterwards [`ori::Builder::block`] is the
//! block in which the result is defined. Fast paths are the sequences that ptxas 13.0 is seen to emit, so
//! they are known right on hardware; the slow paths are our own and carry their argument.

mod asm;
mod f32;
mod f64;
mod int;

pub use f32::{div_f32, rcp_f32, sqrt_f32};
pub use f64::{div_f64, rcp_f64, sqrt_f64};
pub use int::{Want, div_s32, div_s64, div_u32, div_u64};

#[cfg(test)]
mod tests {
    use ori::{Builder, Function, Name, Operand, Terminator, operand};
    use sass::{Mod, Opcode, Reg, RegFile, SpecialReg, Target};

    /// Every expansion builds valid SSA on an old and a new target.
    #[test]
    fn expansions_verify() {
        for sm in [75, 120] {
            let mut f = Function::new("k", Target::new(sm).unwrap());
            let entry = f.entry_block();
            let mut b = Builder::new(&mut f, entry);
            let x = b.def(Opcode::S2R, &[], &[Operand::Special(SpecialReg::SR_TID_X)]);
            let w = b.collect(&[operand(x), operand(x)]);
            let narrow = [
                super::div_u32(&mut b, x, x, super::Want::Quotient),
                super::div_s32(&mut b, x, x, super::Want::Remainder),
                super::div_f32(&mut b, x, x, false),
                super::div_f32(&mut b, x, x, true),
                super::rcp_f32(&mut b, x, false),
                super::sqrt_f32(&mut b, x, true),
            ];
            let wide = [
                super::div_u64(&mut b, w, w, super::Want::Remainder),
                super::div_s64(&mut b, w, w, super::Want::Quotient),
                super::div_f64(&mut b, w, w),
                super::rcp_f64(&mut b, w),
                super::sqrt_f64(&mut b, w),
            ];
            for v in narrow {
                assert_eq!((b.func.values[v].file, b.func.values[v].width), (RegFile::R, 1));
                let address = Operand::Addr {
                    desc: None,
                    base: Some(Name::Phys(Reg::RZ)),
                    width: sass::AddrWidth::R32,
                    uniform: None,
                    offset: 0,
                };
                b.inst(Opcode::STS, &[], &[address, operand(v)]);
            }
            for v in wide {
                assert_eq!(b.func.values[v].width, 2);
                let address = Operand::Addr {
                    desc: None,
                    base: Some(Name::Phys(Reg::RZ)),
                    width: sass::AddrWidth::R32,
                    uniform: None,
                    offset: 0,
                };
                b.inst(Opcode::STS, &[Mod::_64], &[address, operand(v)]);
            }
            b.terminate(Terminator::Exit);
            if let Err(errors) = ori::verify::verify(&f) {
                panic!("{}\n{f}", errors.join("\n"));
            }
        }
    }
}
