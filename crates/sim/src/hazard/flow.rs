//! Control flow over the words of a section.

use sass::{Guard, Inst, Opcode, Operand};

/// Bytes of an instruction.
pub(crate) const INST_BYTES: i64 = 16;

/// Where control may go after an instruction, and where blocks begin.
pub(crate) struct Graph {
    /// Whether control comes to this instruction from elsewhere than the one before it.
    pub leader: Vec<bool>,
    /// Instructions that control comes to for reasons that the code doesn't show: targets of BRX, functions.
    pub roots: Vec<usize>,
}

/// The successors of an instruction.
pub(crate) struct Next {
    /// Target of a branch or call.
    pub target: Option<usize>,
    /// Whether control can go on to the next instruction.
    pub falls: bool,
    /// Whether what is under way stays so on the way to the next instruction: not over a call.
    pub keeps: bool,
}

/// Where control goes after `inst`, instruction `at` of `count`. `None`: a word that isn't known.
pub(crate) fn next(inst: Option<&Inst>, at: usize, count: usize) -> Next {
    let Some(inst) = inst else { return Next { target: None, falls: true, keeps: true } };
    let label = inst.operands.iter().find_map(|o| match o {
        // The linker puts calls of other sections in the place of 0.
        Operand::Label(t) => {
            usize::try_from(*t / INST_BYTES).ok().filter(|t| (1..count).contains(t) && *t != at)
        }
        _ => None,
    });
    match inst.op {
        Opcode::BRA => Next { target: label, falls: !always(inst), keeps: true },
        Opcode::EXIT | Opcode::RET | Opcode::BRX | Opcode::BRXU | Opcode::KILL => {
            Next { target: None, falls: !always(inst), keeps: true }
        }
        Opcode::CALL => Next { target: label, falls: true, keeps: false },
        _ => Next { target: None, falls: true, keeps: true },
    }
}

/// Whether a transfer is taken by every lane that comes to it.
fn always(inst: &Inst) -> bool {
    inst.guard == Guard::TRUE
        && inst.operands.iter().zip(inst.op.slots()).all(|(o, slot)| match o {
            Operand::Reg(r) => {
                let predicate = matches!(r.reg.file, sass::RegFile::P | sass::RegFile::UP);
                !predicate || slot.role == sass::Role::Def || (r.reg.is_zero() && !r.not)
            }
            _ => true,
        })
}

impl Graph {
    /// The graph of `insts`, which control enters at the start and at `functions`.
    pub fn new(insts: &[Option<Inst>], functions: &[usize]) -> Graph {
        let count = insts.len();
        let mut leader = vec![false; count];
        let mut fallen_into = vec![false; count];
        let mut targeted = vec![false; count];
        for (k, inst) in insts.iter().enumerate() {
            let next = next(inst.as_ref(), k, count);
            if let Some(t) = next.target {
                leader[t] = true;
                targeted[t] = true;
            }
            if k + 1 < count {
                leader[k + 1] |= next.target.is_some() || !next.falls || !next.keeps;
                fallen_into[k + 1] = next.falls;
            }
        }
        let mut roots = vec![];
        for (k, inst) in insts.iter().enumerate() {
            let padding = inst.as_ref().is_some_and(|i| matches!(i.op, Opcode::NOP));
            let dead = !fallen_into[k] && !targeted[k] && !padding;
            if k == 0 || dead || functions.contains(&k) {
                leader[k] = true;
                roots.push(k);
            }
        }
        Graph { leader, roots }
    }
}
