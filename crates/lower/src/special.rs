//! Special registers: hardware registers, and words of constant bank 0 that the driver fills in.

use crate::emit::{Emit, Pair, imm, ineg};
use crate::func::{Lower, Result};
use crate::types::Src;
use ori::{Name, Operand, Value, operand};
use ptx::SpecialReg as S;
use sass::{Mod, Opcode, SpecialReg as R};

const PM: [R; 8] = [R::SR_PM0, R::SR_PM1, R::SR_PM2, R::SR_PM3, R::SR_PM4, R::SR_PM5, R::SR_PM6, R::SR_PM7];

/// `%name12` as its name and number.
fn numbered(name: &str) -> Option<(&str, u32)> {
    let at = name.find(|c: char| c.is_ascii_digit())?;
    Some((&name[..at], name[at..].parse().ok()?))
}

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
            S::total_smem_size => {
                let all = self.s2r(R::SR_SMEMSZ).low();
                if sm == 75 {
                    return Ok(Src::Narrow(all));
                }
                let reserved = self.driver_word(if blackwell { 0x16c } else { 0x114 }).low();
                narrow(self.b.iadd(all, ineg(reserved)))
            }
            S::cluster_ctarank if sm >= 90 => self.s2r(R::SR_CgaCtaId),
            S::clusterid if sm >= 90 => self.clusterid(c),
            S::cluster_ctaid if sm >= 90 => {
                let id = self.clusterid(c).low();
                let size = self.launch_word(0x144 + 4 * c, 0x2a0 + 4 * c).low();
                let cta = self.s2r([R::SR_CTAID_X, R::SR_CTAID_Y, R::SR_CTAID_Z][c as usize]).low();
                let id = operand(self.b.reg(&id));
                let minus = self.b.iadd(ineg(id), imm(0));
                narrow(self.b.imad(operand(minus), size, cta))
            }
            S::nclusterid if sm >= 90 => self.launch_word(0x15c + 4 * c, 0x2c0 + 4 * c),
            S::cluster_nctaid if sm >= 90 => self.launch_word(0x144 + 4 * c, 0x2a0 + 4 * c),
            S::cluster_nctarank if sm >= 90 => self.launch_word(0x188, 0x2cc),
            S::dynamic_smem_size => self.launch_word(0x2c, 0x2ac),
            S::aggr_smem_size if sm >= 90 => {
                let all = self.s2r(R::SR_SMEMSZ).low();
                let aggregate = self.launch_word(0x13c, 0x2bc).low();
                let aggregate = operand(self.b.reg(&aggregate));
                narrow(crate::convert::minmax(&mut self.b, false, false, all, aggregate))
            }
            S::reserved_smem_offset_begin if sm >= 90 => Src::Narrow(imm(0)),
            S::reserved_smem_offset_begin | S::reserved_smem_offset_0 if sm < 90 => {
                return self.special(S::total_smem_size, None);
            }
            S::reserved_smem_offset_end => self.launch_word(if sm < 90 { 0x120 } else { 0x68 }, 0x278),
            S::reserved_smem_offset_cap if sm >= 90 => Src::Narrow(imm(0x400)),
            S::reserved_smem_offset_cap => self.s2r(R::SR_SMEMSZ),
            S::reserved_smem_offset_0 => Src::Narrow(imm(if blackwell { 0x40 } else { 0 })),
            S::reserved_smem_offset_1 => self.launch_word(if sm < 90 { 0x124 } else { 0x6c }, 0x27c),
            S::current_graph_exec => self.driver_pair(match sm {
                75 => 0x120,
                100.. => 0x2e8,
                90 => 0x190,
                _ => 0x130,
            }),
            S::WARP_SZ => Src::Narrow(imm(32)),
            s => match numbered(s.name()) {
                Some(("%envreg", n)) if blackwell && n >= 16 => self.driver_word(0xd0 + 4 * (n - 16)),
                Some(("%envreg", n)) => {
                    self.launch_word(if sm < 90 { 0x88 } else { 0x40 } + 4 * n, 0x250 + 4 * n)
                }
                Some(("%pm", n)) if n < 8 => self.cs2r_word(PM[n as usize]),
                _ => match s.name().strip_suffix("_64").and_then(numbered) {
                    Some(("%pm", n)) if n < 8 => self.cs2r(PM[n as usize]),
                    _ => return Err(crate::Refusal::SpecialRegister(s.name())),
                },
            },
        })
    }

    /// A word that the driver fills in for each launch: in constant bank 0, or (from sm_100 on) before the
    /// parameters of the CTA's slot in its cluster.
    fn launch_word(&mut self, before: u32, blackwell: u32) -> Src {
        if self.sm() < 100 {
            return self.driver_word(before);
        }
        let slot = self.cs2r_word(R::SR_CgaSize).low();
        let index = self.b.imad(slot, imm(0xa0u32.wrapping_neg()), imm(0));
        let at = crate::emit::indexed_constant(0, Some(Name::Val(index)), blackwell as i32);
        Src::Narrow(operand(self.b.def(Opcode::LDC, &[], &[at])))
    }

    /// `%clusterid`: the CTA's number times the reciprocal of the cluster's size, which the driver rounds up.
    fn clusterid(&mut self, c: u32) -> Src {
        let cta = self.s2r([R::SR_CTAID_X, R::SR_CTAID_Y, R::SR_CTAID_Z][c as usize]).low();
        let reciprocal = self.launch_word(0x150 + 4 * c, 0x2b0 + 4 * c).low();
        let x = self.b.def(Opcode::I2FP, &[Mod::F32, Mod::U32], &[cta]);
        let q = self.b.def(Opcode::FMUL, &[], &[operand(x), reciprocal]);
        let n = self.b.def(Opcode::F2I, &[Mod::U32, Mod::TRUNC, Mod::NTZ], &[operand(q)]);
        Src::Narrow(operand(n))
    }

    /// Whether the kernel was launched with clusters.
    pub fn explicit_cluster(&mut self) -> Value {
        let word = self.driver_word(if self.sm() >= 100 { 0x36c } else { 0x140 }).low();
        self.b.isetp(sass::Mod::EQ, false, word, imm(1))
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
