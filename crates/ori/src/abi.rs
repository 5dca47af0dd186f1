//! The calling convention of device functions, as ptxas 13.0 has it with `-c` on every target (observed:
//! which registers its functions save, where arguments and results are, what callers expect).
//!
//! The stack pointer R1 grows down. Arguments are in R4 … R15, results from R4 on; what does not fit is on the
//! caller's stack. The return address is in R20 and R21, which neither side keeps.

use crate::registers::{Registers, Set};
use crate::{Callee, Function, InstData, Register};
use sass::{Reg, RegFile};
use std::sync::LazyLock;

/// The first register of arguments and results.
pub const FIRST_ARGUMENT: u8 = 4;
/// Number of registers for arguments.
pub const ARGUMENTS: u8 = 12;
/// The last register of arguments in functions that say themselves what they keep (`.abi_preserve`), if there are more than
/// [`ARGUMENTS`] words of them.
pub const LAST_ARGUMENT: u8 = 251;
/// How many registers a thread may use at most and yet have as many warps resident as with fewer: arguments that need more than
/// [`ARGUMENTS`] registers end below one of these numbers.
const RESIDENCY_STEPS: [u32; 13] = [24, 28, 32, 40, 48, 56, 64, 72, 80, 96, 128, 168, 256];
/// The first of two registers that hold the address to return to.
pub const RETURN_ADDRESS: u8 = 20;
/// Where a function keeps the address of its frame if its stack pointer moves: a register that callees keep.
pub const FRAME_POINTER: Reg = Reg { file: RegFile::R, index: 2 };
/// What the stack pointer is a multiple of at calls in an executable, and where a kernel starts.
pub const STACK_ALIGN: u32 = 16;
/// What it is a multiple of at calls in relocatable code: functions that need more move it themselves.
pub const LINKED_STACK_ALIGN: u32 = 8;

/// What the stack pointer is a multiple of where a function starts.
pub fn stack_align<R>(func: &Function<R>) -> u32 {
    if func.entry || !func.relocatable { STACK_ALIGN } else { LINKED_STACK_ALIGN }
}
/// The first convergence barrier that a function keeps.
pub const FIRST_KEPT_BARRIER: u8 = 6;

/// On sm_87, the uniform register that says whether the convergence barriers were set up: ptxas's kernels, and its functions in
/// relocatable code, do that where it is 0, which ends whatever the barriers held.
pub const BARRIERS_READY: Reg = Reg { file: RegFile::UR, index: 2 };

/// Whether [`BARRIERS_READY`] has that meaning.
pub fn has_barriers_ready(sm: u8) -> bool {
    sm == 87
}

/// The first register that a function keeps of those that follow the arguments.
const FIRST_KEPT: u8 = 16;
/// The highest register that may hold the lower half of a return address.
pub const LAST_RETURN_ADDRESS: u16 = 252;

/// What a function keeps, and where it finds its return address: that of all functions, but in objects for those that say otherwise
/// (`.abi_preserve`, `.abi_preserve_control`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Convention {
    /// As many general registers it keeps from R16 on and nothing above, the return address in the last of them; without a number it keeps
    /// those of the pattern of all functions.
    pub registers: Option<u8>,
    /// The first convergence barrier that it keeps.
    pub barriers: u8,
}

impl Default for Convention {
    fn default() -> Convention {
        Convention { registers: None, barriers: FIRST_KEPT_BARRIER }
    }
}

impl Convention {
    /// The first of two registers that hold the address to return to.
    pub fn return_address(self) -> u8 {
        // Numbers that are too large were refused.
        self.registers.map_or(RETURN_ADDRESS, |n| FIRST_KEPT.saturating_add(n & !1) - 2)
    }

    /// Registers for arguments and results that take so many words ([`span`]): the same of all functions where they do and where the
    /// function does not say itself what it keeps, else as many as needed, above the registers that are kept. They are where ptxas 13.0.88
    /// has them on every target (docs/calls.md); nothing if there are more than registers.
    pub fn argument_registers(self, words: u32) -> Option<ArgumentRegisters> {
        let Some(kept) = self.registers.filter(|_| words > ARGUMENTS.into()) else {
            return Some(ArgumentRegisters::USUAL);
        };
        let below = u32::from(FIRST_ARGUMENT) + (u32::from(FIRST_KEPT) + u32::from(kept)).next_multiple_of(4);
        let last = RESIDENCY_STEPS[RESIDENCY_STEPS.len() - 1];
        let end = RESIDENCY_STEPS.into_iter().find(|n| *n >= words + below).unwrap_or(last);
        let first = end.checked_sub(2 + words)? & !3;
        Some(ArgumentRegisters { first: first as u8, count: words as u8 })
    }

    /// Whether a function leaves in the register what was there, R1 included.
    pub fn is_preserved(self, reg: Reg) -> bool {
        match (reg.file, self.registers) {
            (RegFile::R, _) if matches!(reg.index, 1 | 2) => true,
            (RegFile::R, _) if matches!(reg.index.wrapping_sub(self.return_address()), 0 | 1) => false,
            (RegFile::R, Some(n)) => reg.index >= FIRST_KEPT && reg.index - FIRST_KEPT < n,
            (RegFile::R, None) => match reg.index {
                FIRST_KEPT..32 => true,
                Reg::ZERO => false,
                n => n >= 32 && n & 4 != 0,
            },
            (RegFile::B, _) => reg.index >= self.barriers,
            (RegFile::P | RegFile::UR | RegFile::UP, _) => false,
        }
    }

    /// The registers that a call may change.
    pub fn clobbers(self) -> Registers {
        static USUAL: LazyLock<Registers> = LazyLock::new(|| Convention::default().changed());
        if self == Convention::default() { *USUAL } else { self.changed() }
    }

    fn changed(self) -> Registers {
        let mut all = Registers::default();
        let files =
            [(RegFile::R, 255), (RegFile::P, 7), (RegFile::UR, 255), (RegFile::UP, 7), (RegFile::B, 16)];
        for (file, n) in files {
            let changed = (0..n).filter(|index| !self.is_preserved(Reg { file, index: *index }));
            changed.for_each(|index| all.of_mut(file).insert(index));
        }
        all
    }
}

/// `40/3`: general registers, and the first barrier; `-/3` with the pattern of all functions.
impl std::fmt::Display for Convention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.registers {
            Some(n) => write!(f, "{n}/{}", self.barriers),
            None => write!(f, "-/{}", self.barriers),
        }
    }
}

/// A text that is no convention.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConventionError(String);

impl std::fmt::Display for ConventionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "expected REGISTERS/BARRIER, not `{}`", self.0)
    }
}

impl std::error::Error for ConventionError {}

impl std::str::FromStr for Convention {
    type Err = ConventionError;

    fn from_str(text: &str) -> Result<Convention, ConventionError> {
        let parsed = text.split_once('/').and_then(|(registers, barriers)| {
            let registers = if registers == "-" { None } else { Some(registers.parse().ok()?) };
            Some(Convention { registers, barriers: barriers.parse().ok()? })
        });
        parsed.ok_or_else(|| ConventionError(text.into()))
    }
}

/// How the names of functions begin that are parts of instructions, shared by all that need them: they leave uniform
/// registers alone, and general ones from [`SHARED_REGISTERS`] on. No name of PTX has a dot.
pub const SHARED: &str = "oxptxas.";
/// How the names of those among them begin in which lanes meet ([`crate::meeting`]): these use [`MEETING_UNIFORM`], too.
pub const MEETING: &str = "oxptxas.sync.";
/// Uniform registers that a function in which lanes meet may change.
pub const MEETING_UNIFORM: std::ops::Range<u8> = 60..62;
/// Registers that such a function may use.
pub const SHARED_REGISTERS: u8 = 32;

/// Whether a function of this name need not follow the convention in an executable: those who call it know what it changes
/// ([`Function::changes`]).
pub fn is_private(name: &str) -> bool {
    name.starts_with(SHARED) && !name.starts_with(MEETING)
}

/// The registers that this call may change.
pub fn clobbered_by<R: Register>(func: &Function<R>, call: &InstData<R>) -> Registers {
    let number = call.callee();
    if let Some(known) = number.and_then(|n| func.changes.get(&n)) {
        return known.iter().copied().collect();
    }
    let callee = number.and_then(|n| func.callees.get_index(n as usize));
    let starts = |with| matches!(callee, Some(Callee::Internal(name)) if name.starts_with(with));
    let (shared, meeting) = (starts(SHARED), starts(MEETING));
    let mut clobbered = callee.map(|c| func.convention_of(c)).unwrap_or_default().clobbers();
    let below = |clobbered: &mut Registers, n: u8| {
        let general = clobbered.of_mut(RegFile::R);
        *general = general.among(&Set::of(0..n.into()));
    };
    // In an executable all functions from elsewhere are the driver's.
    if callee == Some(&Callee::External) && !func.relocatable {
        below(&mut clobbered, func.target.info().driver_registers);
    } else if shared {
        below(&mut clobbered, SHARED_REGISTERS);
        let uniform = if meeting { MEETING_UNIFORM } else { 0..0 };
        *clobbered.of_mut(RegFile::UR) = Set::of(uniform.start.into()..uniform.end.into());
        *clobbered.of_mut(RegFile::UP) = Set::default();
    }
    clobbered
}

/// Registers in a row, for arguments and, from the same first one on, for results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArgumentRegisters {
    /// The number of the first.
    pub first: u8,
    /// How many.
    pub count: u8,
}

impl ArgumentRegisters {
    /// Those of most functions.
    pub const USUAL: ArgumentRegisters = ArgumentRegisters { first: FIRST_ARGUMENT, count: ARGUMENTS };
}

/// Where an argument or a result goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Registers from this one on, one for each 4 bytes.
    Regs(u8),
    /// Bytes from the caller's stack pointer at the call.
    Stack(u32),
}

/// As many words as arguments of these sizes and alignments in bytes take, one behind the other: what the number of registers for them
/// follows from, though [`assign`] leaves fewer holes.
pub fn span(arguments: impl IntoIterator<Item = (u32, u32)>) -> u32 {
    arguments
        .into_iter()
        .fold(0, |at, (size, align)| at.next_multiple_of(align.div_ceil(4).max(1)) + size.div_ceil(4))
}

/// Places arguments of these sizes and alignments in bytes, in order: each in the first free ones of these registers that are
/// aligned for it, else on the stack. Also the bytes of stack that they take.
pub fn assign(
    arguments: impl IntoIterator<Item = (u32, u32)>,
    registers: ArgumentRegisters,
) -> (Vec<Place>, u32) {
    let mut taken = vec![false; registers.count.into()];
    let mut stack = 0u32;
    let places = arguments
        .into_iter()
        .map(|(size, align)| {
            let words = size.div_ceil(4).max(1);
            let step = (align / 4).clamp(1, 4).next_power_of_two() as usize;
            let wanted = |at: usize| at..at.saturating_add(words as usize);
            let fits = |at: &usize| taken.get(wanted(*at)).is_some_and(|t| !t.contains(&true));
            let found = (0..taken.len()).step_by(step).find(fits);
            match found {
                Some(at) => {
                    taken[wanted(at)].fill(true);
                    Place::Regs(registers.first + at as u8)
                }
                None => {
                    let at = stack.next_multiple_of(align.max(4));
                    stack = at + 4 * words;
                    Place::Stack(at)
                }
            }
        })
        .collect();
    (places, stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    // As ptxas 13.0.88 -c -arch=sm_80 places them.
    #[test]
    fn arguments_fill_holes() {
        let regs = |args: &[(u32, u32)]| assign(args.iter().copied(), ArgumentRegisters::USUAL).0;
        let r = Place::Regs;
        // b64, b32, 16 bytes, b64, b32, b64
        let mixed = [(8, 8), (4, 4), (16, 16), (8, 8), (4, 4), (8, 8)];
        assert_eq!(regs(&mixed), [r(4), r(6), r(8), r(12), r(7), r(14)]);
        // b8, b16, b64, b32, 6 bytes aligned to 2
        assert_eq!(regs(&[(1, 1), (2, 2), (8, 8), (4, 4), (6, 2)]), [r(4), r(5), r(6), r(8), r(9)]);
        // b32, 64 bytes, b64
        assert_eq!(regs(&[(4, 4), (64, 8), (8, 8)]), [r(4), Place::Stack(0), r(6)]);
    }

    // As the prototypes of ptxas 13.0.88's objects state it (`13p32r22`), the same on sm_80 to sm_121.
    #[test]
    fn more_arguments_than_the_usual_registers_hold() {
        for (kept, words, first) in [
            (8, 12, 4),
            (8, 13, 32),
            (8, 15, 28),
            (8, 17, 28),
            (8, 20, 24),
            (8, 21, 32),
            (8, 32, 28),
            (8, 56, 36),
            (8, 65, 28),
            (8, 100, 24),
            (8, 128, 36),
            (8, 200, 52),
            (0, 13, 24),
            (0, 19, 16),
            (2, 17, 28),
            (10, 65, 60),
            (10, 100, 64),
            (20, 56, 36),
            (33, 13, 56),
            (33, 48, 76),
            (33, 128, 124),
            (64, 13, 112),
            (64, 48, 116),
            (100, 56, 196),
            (100, 128, 124),
            (180, 15, 236),
            (180, 39, 212),
            (2, 237, 16),
        ] {
            let own = Convention { registers: Some(kept), ..Convention::default() };
            assert_eq!(own.argument_registers(words).map(|r| r.first), Some(first), "{kept}, {words}");
        }
        let own = Convention { registers: Some(2), ..Convention::default() };
        assert_eq!(own.argument_registers(300), None);
        // b32, 16 bytes, b32, b64, b32
        let args = [(4, 4), (16, 16), (4, 4), (8, 8), (4, 4)];
        assert_eq!(span(args), 13);
        let registers = own.argument_registers(13).unwrap();
        let r = Place::Regs;
        assert_eq!(assign(args, registers), (vec![r(24), r(28), r(25), r(26), r(32)], 0));
    }

    #[test]
    fn stack_pointer_and_argument_registers() {
        let usual = Convention::default();
        assert!(usual.is_preserved(Reg::SP));
        assert!(usual.clobbers().contains(Reg::r(4)) && !usual.clobbers().contains(Reg::r(16)));
    }
    /// As the prototypes of ptxas 13.0.88's objects state them (`r22sRx…00fff9`: the return address, and what is changed).
    #[test]
    fn kept_registers_of_ones_own() {
        let kept = |n| {
            let own = Convention { registers: Some(n), ..Convention::default() };
            let kept = (0..255).filter(|r| own.is_preserved(Reg::r(*r)));
            (own.return_address(), kept.collect::<Vec<u8>>())
        };
        assert_eq!(kept(0), (14, vec![1, 2]));
        assert_eq!(kept(1), (14, vec![1, 2, 16]));
        assert_eq!(kept(3), (16, vec![1, 2, 18]));
        assert_eq!(kept(7), (20, vec![1, 2, 16, 17, 18, 19, 22]));
        assert_eq!(kept(8), (22, [1, 2].into_iter().chain(16..22).collect()));
        assert_eq!(kept(200), (214, [1, 2].into_iter().chain(16..214).collect()));
        let barriers = Convention { barriers: 3, ..Convention::default() };
        let kept: Vec<u8> =
            (0..16).filter(|n| barriers.is_preserved(Reg { file: RegFile::B, index: *n })).collect();
        assert_eq!(kept, Vec::from_iter(3..16));
        assert_eq!("40/3".parse(), Ok(Convention { registers: Some(40), barriers: 3 }));
        assert_eq!(barriers.to_string(), "-/3");
        assert_eq!("-/3".parse(), Ok(barriers));
        assert!("40".parse::<Convention>().is_err());
    }
}
