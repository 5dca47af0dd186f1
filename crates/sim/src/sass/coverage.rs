//! Which instructions of a cubin the simulator would refuse, found without running it.

use super::compile::{Action, Step};
use super::decode;
use super::image::Banks;
use crate::FileError;
use sass::{Inst, Target};
use std::collections::BTreeMap;
use std::fmt;

/// Instructions of some code by what the simulator makes of them.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Instructions in all.
    pub total: u64,
    /// How often each instruction without a meaning in the simulator occurs: opcode with modifiers, and why.
    pub refused: BTreeMap<(String, String), u64>,
}

impl Coverage {
    /// Adds another one's counts.
    pub fn merge(&mut self, other: Coverage) {
        self.total += other.total;
        for (what, n) in other.refused {
            *self.refused.entry(what).or_default() += n;
        }
    }

    /// Instructions refused.
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<_> = self.refused.iter().collect();
        rows.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        for ((what, why), n) in rows {
            writeln!(f, "{n:8} {what}: {why}")?;
        }
        write!(f, "{} of {} instructions refused", self.refusals(), self.total)
    }
}

/// Opcode and modifiers of an instruction.
fn spelling(inst: &Inst) -> String {
    inst.mods.iter().fold(inst.op.name().to_string(), |s, m| s + "." + m.name())
}

/// What the simulator makes of each instruction of a cubin.
///
/// # Errors
/// When the file is not a cubin for a known target.
pub fn coverage(file: &[u8]) -> Result<Coverage, FileError> {
    let cubin = cubin::read::read(file)?;
    let target = Target::new(cubin.sm).ok_or(FileError::Target(cubin.sm))?;
    let mut out = Coverage::default();
    // Constants are read when instructions are prepared; here every bank is full of zeros.
    let mut banks = Banks::default();
    (0..5).for_each(|b| banks.bank_mut(b).resize(1 << 16, 0));
    for kernel in cubin.kernels.values() {
        for inst in decode(&kernel.code, target) {
            out.total += 1;
            let why = match inst {
                Ok(inst) => match Step::of(&inst, &banks).action {
                    Action::Unsupported(why) => (spelling(&inst), why),
                    _ => continue,
                },
                Err(e) => ("?".to_string(), e.to_string()),
            };
            *out.refused.entry(why).or_default() += 1;
        }
    }
    Ok(out)
}
