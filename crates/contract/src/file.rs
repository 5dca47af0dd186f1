//! A cubin as the rules see it.

use crate::Error;
use cubin::read::Image;
use sass::{Inst, Opcode, Operand, Parts, Target};

/// Bytes of an instruction.
pub(crate) const INST_BYTES: i64 = 16;

/// An opened cubin.
pub struct File<'a> {
    /// The bytes, for rules about the format.
    pub bytes: &'a [u8],
    /// The target; its suffix is not in the file.
    pub target: Target,
    /// What the reader makes of the file.
    pub image: Image,
    /// Sections with code, by name.
    pub kernels: Vec<Kernel>,
}

/// A section of code.
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Instruction by instruction.
    pub items: Vec<Item>,
    /// How many instructions precede the padding.
    pub length: usize,
}

/// A word of code.
pub struct Item {
    /// The word.
    pub word: u128,
    /// What it says; `None` if the table has no form of it.
    pub parts: Option<Parts>,
    /// Whether control comes here from elsewhere than the word before.
    pub leader: bool,
}

impl Item {
    /// The instruction.
    pub fn inst(&self) -> Option<&Inst> {
        self.parts.as_ref().map(|p| &p.inst)
    }
    /// Its opcode.
    pub fn op(&self) -> Option<Opcode> {
        self.inst().map(|i| i.op)
    }
}

/// The target of a branch or call, as an index of an instruction.
pub(crate) fn label(inst: &Inst) -> Option<usize> {
    inst.operands.iter().find_map(|o| match o {
        Operand::Label(t) => usize::try_from(*t / INST_BYTES).ok(),
        _ => None,
    })
}

impl<'a> File<'a> {
    /// Opens a cubin.
    ///
    /// # Errors
    /// When it is none, or one for a target that is not known.
    pub fn open(bytes: &'a [u8]) -> Result<File<'a>, Error> {
        let image = cubin::read::read(bytes).map_err(|e| Error::Cubin(e.to_string()))?;
        let target = Target::new(image.sm).ok_or(Error::Target(image.sm))?;
        let kernels = image
            .kernels
            .iter()
            .map(|(name, k)| {
                let starts: Vec<usize> = k.functions.iter().map(|f| f.1 as usize / 16).collect();
                Kernel::new(name, &k.code, &starts, target)
            })
            .collect();
        Ok(File { bytes, target, image, kernels })
    }
}

impl Kernel {
    fn new(name: &str, words: &[u128], starts: &[usize], target: Target) -> Kernel {
        let mut items: Vec<Item> = words
            .iter()
            .enumerate()
            .map(|(k, word)| {
                let parts = sass::decode_parts(*word, target, INST_BYTES * k as i64).ok();
                Item { word: *word, parts, leader: k == 0 || starts.contains(&k) }
            })
            .collect();
        for k in 0..items.len() {
            let Some(inst) = items[k].inst() else { continue };
            let (op, to) = (inst.op, label(inst));
            // A label is also what BSSY names: control comes there by BSYNC.
            if let Some(item) = to.filter(|t| *t != k).and_then(|t| items.get_mut(t)) {
                item.leader = true;
            }
            let leaves = matches!(
                op,
                Opcode::BRA | Opcode::EXIT | Opcode::RET | Opcode::BRX | Opcode::BRXU | Opcode::KILL
            ) || op == Opcode::CALL;
            if leaves && let Some(item) = items.get_mut(k + 1) {
                item.leader = true;
            }
        }
        let padding = |i: &Item| i.op() == Some(Opcode::NOP);
        let mut length = items.iter().rposition(|i| !padding(i)).map_or(0, |n| n + 1);
        let last = length.checked_sub(1);
        let own = |k: usize| items[k].inst().is_some_and(|i| i.op == Opcode::BRA && label(i) == Some(k));
        if let Some(k) = last.filter(|k| own(*k)) {
            length = k;
        }
        Kernel { name: name.to_string(), items, length }
    }
}
