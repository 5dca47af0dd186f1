//! Which registers some instruction reads: what others hold has no effect.

use crate::hazard::access;
use sass::{Inst, Operand, RegFile};

/// The registers that a set of instructions reads, memory descriptors aside.
#[derive(Clone, Default, Debug)]
pub(crate) struct Read {
    files: [Vec<usize>; 4],
}

const FILES: [RegFile; 4] = [RegFile::R, RegFile::UR, RegFile::P, RegFile::UP];

impl Read {
    /// Those that these instructions read.
    pub(crate) fn by<'a>(insts: impl Iterator<Item = &'a Inst>) -> Read {
        let mut read = Read::default();
        for inst in insts {
            let mut descriptors = Vec::new();
            for o in &inst.operands {
                if let Operand::Addr { desc: Some(d), .. } = o {
                    descriptors.extend([(d.file, d.index), (d.file, d.index.wrapping_add(1))]);
                }
            }
            access::reads(inst, |c, _| {
                let r = access::register(c);
                if let Some(at) = descriptors.iter().position(|d| *d == (r.file, r.index)) {
                    descriptors.swap_remove(at);
                } else if let Some(file) = FILES.iter().position(|f| *f == r.file) {
                    read.files[file].push(r.index.into());
                }
            });
        }
        for f in &mut read.files {
            f.sort_unstable();
            f.dedup();
        }
        read
    }
    /// General registers.
    pub(crate) fn registers(&self) -> impl Iterator<Item = usize> + '_ {
        self.files[0].iter().copied()
    }
    /// Uniform registers.
    pub(crate) fn uniform(&self) -> impl Iterator<Item = usize> + '_ {
        self.files[1].iter().copied()
    }
    /// Predicates.
    pub(crate) fn predicates(&self) -> impl Iterator<Item = usize> + '_ {
        self.files[2].iter().copied()
    }
    /// Uniform predicates.
    pub(crate) fn uniform_predicates(&self) -> impl Iterator<Item = usize> + '_ {
        self.files[3].iter().copied()
    }
}
