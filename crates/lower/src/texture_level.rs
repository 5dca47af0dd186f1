//! `tex.grad` of volumes and cubes, and with a depth to compare: no instruction takes these derivatives, so the level is computed from them as Mesa does
//! for the same hardware (`nir_lower_tex`: `lower_gradient`, `lower_gradient_cube_map`): the logarithm of the longer of both
//! in texels of the largest level. Where there are several levels, coordinates are normalized.

use crate::emit::{Emit, fabs, fimm, fneg, never, pt, rz};
use crate::func::{Lower, Result};
use crate::texture::{Handle, one};
use crate::types::{Kind, Ty};
use ori::{Builder, Name, Operand, operand};
use ptx::VectorElem;
use sass::{Mod, Opcode};
use smallvec::SmallVec;

const F32: Ty = Ty { kind: Kind::Float, bits: 32 };

fn multiply(b: &mut Builder<'_>, x: Operand, y: Operand) -> Operand {
    operand(b.def(Opcode::FMUL, &[], &[x, y]))
}

fn fused(b: &mut Builder<'_>, x: Operand, y: Operand, z: Operand) -> Operand {
    operand(b.def(Opcode::FFMA, &[], &[x, y, z]))
}

impl Lower<'_, '_> {
    /// The level; `at` are the coordinates. Of a cube it is the direction, which has been multiplied by `scale` so that its largest component is 1.
    pub(crate) fn level_of_derivatives(
        &mut self,
        handle: &Handle,
        at: &[Operand],
        cube: bool,
        scale: Operand,
        derivatives: [&ptx::Operand; 2],
    ) -> Result<Operand> {
        let count = if cube { 1 } else { at.len() };
        let [low, high] = self.dimensions(handle, rz(), (1 << count) - 1)?;
        let texels = [(low, 0), (low, 1), (high, 0)].map(|(v, part)| operand(Name::Part(v, part)));
        let mut sizes = Vec::new();
        for n in &texels[..count] {
            let n = operand(self.b.def(Opcode::I2F, &[Mod::U32], &[*n]));
            // From one end of a face to the other, coordinates go from -1 to 1.
            sizes.push(if cube { multiply(&mut self.b, n, fimm(0.5)) } else { n });
        }
        let largest = if cube { Some(self.largest(at)) } else { None };
        let mut longest = None;
        for d in derivatives {
            let elems: SmallVec<[VectorElem; 4]> = match d {
                ptx::Operand::Vector(elems) => elems.iter().cloned().collect(),
                o => one(o).into_iter().collect(),
            };
            if elems.len() < at.len() {
                return Err("too few derivatives".into());
            }
            let mut d = Vec::new();
            for e in elems.iter().take(at.len()) {
                d.push(self.elem(e, F32)?.low());
            }
            if let Some(largest) = largest {
                // A quotient's derivative: of each component, less its share of that of the largest one.
                let [sign, own] = [at, &d[..]].map(|list| self.component(largest, list));
                let own = multiply(&mut self.b, sign, own);
                for (d, at) in d.iter_mut().zip(at) {
                    let rest = fused(&mut self.b, fneg(*at), own, *d);
                    *d = multiply(&mut self.b, rest, scale);
                }
            }
            let mut sum = None;
            for (i, d) in d.into_iter().enumerate() {
                let t = multiply(&mut self.b, d, sizes[i.min(count - 1)]);
                sum = Some(match sum {
                    Some(s) => fused(&mut self.b, t, t, s),
                    None => multiply(&mut self.b, t, t),
                });
            }
            let sum = sum.unwrap_or_else(rz);
            longest = Some(match longest {
                Some(l) => operand(self.b.def(Opcode::FMNMX, &[], &[l, sum, never()])),
                None => sum,
            });
        }
        let squared = self.b.def(Opcode::MUFU, &[Mod::LG2], &[longest.unwrap_or_else(rz)]);
        Ok(multiply(&mut self.b, operand(squared), fimm(0.5)))
    }

    /// Whether the first component is the largest, and whether the second is larger than the third.
    fn largest(&mut self, at: &[Operand]) -> [Operand; 2] {
        let mut least = |x: Operand, y: Operand, and: Operand| {
            operand(self.b.def_pred(Opcode::FSETP, &[Mod::GE, Mod::AND], &[fabs(x), fabs(y), and]))
        };
        let over = least(at[0], at[1], pt());
        [least(at[0], at[2], over), least(at[1], at[2], pt())]
    }

    /// The component that is the largest.
    fn component(&mut self, [first, second]: [Operand; 2], list: &[Operand]) -> Operand {
        let rest = self.b.sel(second, list[1], list[2]);
        operand(self.b.sel(first, list[0], operand(rest)))
    }
}
