//! Special registers: hardware registers, and words of constant bank 0 that the driver fills in.

use crate::emit::{Emit, Pair, imm, ineg};
use crate::func::{Lower, Result};
use crate::types::Src;
use ori::{Name, Operand, Value, operand};
use ptx::SpecialReg as S;
use sass::{Mod, Opcode, SpecialReg as R};

impl Lower<'_, '_> {
    /// The value of a special register (or of one component, 0 = x).
    pub fn special(&mut self, s: S, component: Option<u8>) -> Result<Src> {
        let c = u32::from(component.unwrap_or(0));
        let sm = self.sm();
        let blackwell = sm >= 100;
        let info = self.opts.target.info();
        let narrow = |v: Value| Src::Narrow(operand(v));
        if s.is_vector() && c > 2 {
            // The fourth component is 0 (a fourth extent does not exist).
            return Ok(Src::Narrow(imm(0)));
        }
        Ok(match s {
            S::tid => self.s2r([R::SR_TID_X, R::SR_TID_Y, R::SR_TID_Z][c as usize]),
            S::ctaid => self.s2r([R::SR_CTAID_X, R::SR_CTAID_Y, R::SR_CTAID_Z][c as usize]),
            S::ntid => self.driver_word(u32::from(info.ntid) + 4 * c),
            S::nctaid => self.driver_word(u32::from(info.nctaid) + 4 * c),
            S::laneid => self.s2r(R::SR_LANEID),
            S::lanemask_eq => self.s2r(R::SR_EQMASK),
            S::lanemask_lt => self.s2r(R::SR_LTMASK),
            S::lanemask_le => self.s2r(R::SR_LEMASK),
            S::lanemask_gt => self.s2r(R::SR_GTMASK),
            S::lanemask_ge => self.s2r(R::SR_GEMASK),
            S::smid => self.s2r(R::SR_VIRTUALSMID),
            S::nsmid => self.driver_word(if blackwell { 0x2d0 } else { 0x10c }),
            S::warpid => {
                let v = self.s2r(R::SR_VIRTID).low();
                let up = self.b.shr(false, v, imm(8));
                narrow(self.b.and(operand(up), imm(0x7f)))
            }
            S::nwarpid if sm >= 90 => {
                let v = self.s2r(R::SR_VIRTCFG).low();
                let up = self.b.shr(false, v, imm(8));
                narrow(self.b.and(operand(up), imm(0xff)))
            }
            S::nwarpid => Src::Narrow(imm(match sm {
                75 => 32,
                80 => 64,
                _ => 48,
            })),
            S::gridid => self.driver_pair(if blackwell { 0x140 } else { 0x30 }),
            S::clock64 => self.cs2r(R::SR_CLOCKLO),
            S::globaltimer => self.cs2r(R::SR_GLOBALTIMERLO),
            S::clock => self.cs2r_word(R::SR_CLOCKLO),
            S::clock_hi => self.cs2r_word(R::SR_CLOCKHI),
            S::globaltimer_lo => self.cs2r_word(R::SR_GLOBALTIMERLO),
            S::globaltimer_hi => self.cs2r_word(R::SR_GLOBALTIMERHI),
            S::dynamic_smem_size if !blackwell => self.driver_word(0x2c),
            S::total_smem_size => {
                let all = self.s2r(R::SR_SMEMSZ).low();
                if sm == 75 {
                    return Ok(Src::Narrow(all));
                }
                let reserved = self.driver_word(if blackwell { 0x16c } else { 0x114 }).low();
                narrow(self.b.iadd(all, ineg(reserved)))
            }
            S::WARP_SZ => Src::Narrow(imm(32)),
            s => return Err(format!("special register {} is not supported yet", s.name())),
        })
    }

    fn s2r(&mut self, r: R) -> Src {
        Src::Narrow(operand(self.b.def(Opcode::S2R, &[], &[Operand::Special(r)])))
    }

    fn cs2r(&mut self, r: R) -> Src {
        let v = self.b.def(Opcode::CS2R, &[], &[Operand::Special(r)]);
        Src::Wide(Pair::of(v))
    }

    fn cs2r_word(&mut self, r: R) -> Src {
        let v = self.b.def(Opcode::CS2R, &[Mod::_32], &[Operand::Special(r)]);
        Src::Narrow(operand(Name::Val(v)))
    }
}
