//! Call frame information, `.debug_frame`: how a debugger finds the frame of a caller. DWARF 3 in its 64-bit form, an
//! entry for each function with a common entry of its own, as ptxas 13.0.88 writes it (docs/cubin.md).

/// Number of the general register R0 in debug information; Rn is n more.
pub const GENERAL: u32 = 5 << 24;
/// The stack pointer.
const R1: u32 = GENERAL | 1;
/// What a helper of an executable adds to the start of its kernel to return.
const R20: u32 = GENERAL | 20;
/// RZ.
const RZ: u32 = GENERAL | 255;
/// The program counter.
const PC: u32 = GENERAL | 256;

/// What changes behind an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// The caller's stack pointer is R1 plus this.
    Frame(u32),
    /// This register of the caller is so many bytes below the caller's stack pointer.
    Saved(u8, u32),
    /// This register of the caller is in that one.
    Moved(u8, u8),
    /// This register of the caller is nowhere any more.
    Lost(u8),
    /// This register is the caller's again.
    Restored(u8),
}

/// A function's stack frame: byte offsets from its start, ascending, and what holds from there on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The changes.
    pub rules: Vec<(u32, Rule)>,
    /// The first of two registers in which a function that is called by its address finds where to return to.
    pub return_address: u8,
}

impl Default for Frame {
    fn default() -> Frame {
        Frame { rules: Vec::new(), return_address: 20 }
    }
}

impl Frame {
    /// Its bytes, if it has one size and no other.
    pub fn size(&self) -> Option<u32> {
        let mut sizes = self.rules.iter().filter_map(|(_, rule)| match rule {
            Rule::Frame(bytes) if *bytes != 0 => Some(*bytes),
            _ => None,
        });
        let first = sizes.next()?;
        sizes.all(|s| s == first).then_some(first)
    }
}

/// How a function comes back to its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Returns {
    /// It has none: a kernel.
    Never,
    /// To the start of the kernel plus R20.
    Relative,
    /// To what this register and the next hold.
    Absolute(u8),
}

/// A function to describe.
pub(crate) struct Entry<'f> {
    pub(crate) frame: &'f Frame,
    pub(crate) returns: Returns,
    /// Byte offset of its code in the section, and bytes.
    pub(crate) start: u64,
    pub(crate) size: u64,
}

/// Where in the section relocations belong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Places {
    /// The common entry.
    pub(crate) common: u64,
    /// The field that holds its offset.
    pub(crate) common_pointer: u64,
    /// The address of the code.
    pub(crate) code: u64,
    /// Its size.
    pub(crate) size: u64,
    /// The addresses of the kernel that the return address counts from.
    pub(crate) bases: Vec<u64>,
}

mod op {
    pub(super) const NOP: u8 = 0;
    pub(super) const ADVANCE_LOC4: u8 = 0x04;
    pub(super) const OFFSET_EXTENDED: u8 = 0x05;
    pub(super) const RESTORE_EXTENDED: u8 = 0x06;
    pub(super) const UNDEFINED: u8 = 0x07;
    pub(super) const SAME_VALUE: u8 = 0x08;
    pub(super) const REGISTER: u8 = 0x09;
    pub(super) const DEF_CFA: u8 = 0x0c;
    pub(super) const VAL_EXPRESSION: u8 = 0x16;
    /// In expressions.
    pub(super) const ADDR: u8 = 0x03;
    pub(super) const PLUS: u8 = 0x22;
    pub(super) const BREGX: u8 = 0x92;
    pub(super) const DEREF_SIZE: u8 = 0x94;
}

/// An unsigned number in LEB128.
fn unsigned(out: &mut Vec<u8>, mut n: u32) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn with(out: &mut Vec<u8>, op: u8, operands: &[u32]) {
    out.push(op);
    for n in operands {
        unsigned(out, *n);
    }
}

/// Fills up to a multiple of 8 bytes and puts the length at the start.
fn close(out: &mut Vec<u8>, start: usize) {
    let size = (out.len() - start).next_multiple_of(8);
    out.resize(start + size, op::NOP);
    out[start + 4..start + 12].copy_from_slice(&(size as u64 - 12).to_le_bytes());
}

fn open(out: &mut Vec<u8>, id: u64) -> usize {
    let start = out.len();
    out.extend_from_slice(&u32::MAX.to_le_bytes());
    out.extend_from_slice(&0u64.to_le_bytes());
    out.extend_from_slice(&id.to_le_bytes());
    start
}

/// `val_expression` of the program counter: the start of the kernel plus what `rest` leaves on the stack; returns where the address of
/// the kernel goes.
fn return_address(out: &mut Vec<u8>, rest: &[u8]) -> u64 {
    with(out, op::VAL_EXPRESSION, &[PC, rest.len() as u32 + 10]);
    out.push(op::ADDR);
    let base = out.len() as u64;
    out.extend_from_slice(&0u64.to_le_bytes());
    out.extend_from_slice(rest);
    out.push(op::PLUS);
    base
}

/// An expression: what is in a register.
fn in_register(register: u32) -> Vec<u8> {
    let mut out = Vec::new();
    with(&mut out, op::BREGX, &[register, 0]);
    out
}

/// A common information entry; returns where the address of the kernel goes.
fn common(out: &mut Vec<u8>, returns: Returns) -> Option<u64> {
    let start = open(out, u64::MAX);
    // Version 3, no augmentation, code in units of 4 bytes, data of -4.
    out.extend_from_slice(&[3, 0, 4, 0x7c]);
    let column = match returns {
        Returns::Never => u32::MAX,
        Returns::Relative => PC,
        Returns::Absolute(first) => GENERAL | u32::from(first),
    };
    unsigned(out, column);
    with(out, op::DEF_CFA, &[R1, 0]);
    with(out, op::SAME_VALUE, &[RZ]);
    with(out, op::SAME_VALUE, &[R1]);
    let base = match returns {
        Returns::Never => None,
        Returns::Absolute(first) => {
            for r in [first, first + 1] {
                with(out, op::SAME_VALUE, &[GENERAL | u32::from(r)]);
            }
            None
        }
        Returns::Relative => {
            with(out, op::SAME_VALUE, &[R20]);
            Some(return_address(out, &in_register(R20)))
        }
    };
    close(out, start);
    base
}

/// What a rule about a register is; that of R20 in a function that returns relative to its kernel is one about the program counter,
/// too. `frame`: the bytes of the frame. Returns where the address of the kernel goes.
fn rule(out: &mut Vec<u8>, rule: Rule, returns: Returns, frame: u32) -> Option<u64> {
    let number = |r: u8| GENERAL | u32::from(r);
    match rule {
        Rule::Frame(bytes) => with(out, op::DEF_CFA, &[R1, bytes]),
        // In units of -4.
        Rule::Saved(r, below) => with(out, op::OFFSET_EXTENDED, &[number(r), below / 4]),
        Rule::Moved(r, to) => with(out, op::REGISTER, &[number(r), number(to)]),
        Rule::Lost(r) => with(out, op::UNDEFINED, &[number(r)]),
        Rule::Restored(r) => with(out, op::RESTORE_EXTENDED, &[number(r)]),
    }
    if returns != Returns::Relative {
        return None;
    }
    match rule {
        Rule::Saved(r, below) if number(r) == R20 => {
            let mut expression = vec![op::BREGX];
            unsigned(&mut expression, R1);
            // Signed, and not negative.
            let mut offset = frame - below;
            while offset >= 0x40 {
                expression.push(offset as u8 | 0x80);
                offset >>= 7;
            }
            expression.extend([offset as u8, op::DEREF_SIZE, 4]);
            Some(return_address(out, &expression))
        }
        Rule::Moved(r, to) if number(r) == R20 => Some(return_address(out, &in_register(number(to)))),
        Rule::Lost(r) if number(r) == R20 => {
            with(out, op::UNDEFINED, &[PC]);
            None
        }
        Rule::Restored(r) if number(r) == R20 => {
            with(out, op::RESTORE_EXTENDED, &[PC]);
            None
        }
        _ => None,
    }
}

/// The entry of a function.
fn function(out: &mut Vec<u8>, entry: &Entry<'_>, common: u64) -> (u64, u64, u64, Vec<u64>) {
    let start = open(out, common);
    let at = start as u64;
    out.extend_from_slice(&entry.start.to_le_bytes());
    out.extend_from_slice(&entry.size.to_le_bytes());
    let (mut here, mut frame) = (0, 0);
    let mut framed = false;
    let mut bases = Vec::new();
    for (offset, what) in &entry.frame.rules {
        if *offset != here {
            out.push(op::ADVANCE_LOC4);
            out.extend_from_slice(&((offset - here) / 4).to_le_bytes());
            here = *offset;
        }
        if let Rule::Frame(bytes) = what {
            frame = *bytes;
            framed = true;
        }
        bases.extend(rule(out, *what, entry.returns, frame));
    }
    if !framed {
        // As ptxas says it of functions without a frame.
        if here == 0 {
            out.push(op::ADVANCE_LOC4);
            out.extend_from_slice(&4u32.to_le_bytes());
        }
        with(out, op::DEF_CFA, &[R1, 0]);
    }
    close(out, start);
    (at + 12, at + 20, at + 28, bases)
}

/// The section, and for each entry where relocations belong.
pub(crate) fn section<'f>(entries: impl Iterator<Item = Entry<'f>>) -> (Vec<u8>, Vec<Places>) {
    let (mut out, mut places) = (Vec::new(), Vec::new());
    for e in entries {
        let at = out.len() as u64;
        let base = common(&mut out, e.returns);
        let (common_pointer, code, size, more) = function(&mut out, &e, at);
        let bases = base.into_iter().chain(more).collect();
        places.push(Places { common: at, common_pointer, code, size, bases });
    }
    (out, places)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that ptxas 13.0.88 writes for sm_90: a kernel whose prologue takes 64 bytes (kernels/localarray.cu),
    /// and a helper without a frame (kernels/calls.cu).
    #[test]
    fn as_ptxas_writes_it() {
        let frame = Frame { rules: vec![(0x50, Rule::Frame(64))], ..Frame::default() };
        let plain = Frame::default();
        let entries = [
            Entry { frame: &frame, returns: Returns::Never, start: 0, size: 0x2600 },
            Entry { frame: &plain, returns: Returns::Relative, start: 0x1c0, size: 0x20 },
        ];
        let (data, places) = section(entries.into_iter());
        let hex = |b: &[u8]| b.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(
            hex(&data[..0x30]),
            "ffffffff2400000000000000ffffffffffffffff0300047cffffffff0f0c8180802800\
             08ff8180280881808028000000"
                .replace(' ', "")
        );
        let first = hex(&data[0x30..0x60]);
        let head = "ffffffff2400000000000000000000000000000000000000000000000026000000000000";
        assert_eq!(first, format!("{head}04140000000c818080284000"));
        assert_eq!(
            hex(&data[0x60..0xa8]),
            "ffffffff3c00000000000000ffffffffffffffff0300047c808280280c818080280008ff818028\
             08818080280894808028168082802810030000000000000000929480802800220"
                .replace(' ', "")
                + "0"
        );
        assert_eq!(places[1].common, 0x60);
        assert_eq!(&data[places[1].common_pointer as usize..][..8], &0x60u64.to_le_bytes());
        assert_eq!(&data[places[1].code as usize..][..8], &0x1c0u64.to_le_bytes());
        let base = places[1].bases[0] as usize;
        assert_eq!(data[base - 1], op::ADDR);
    }

    #[test]
    fn saved_registers() {
        let rules = vec![
            (16, Rule::Frame(24)),
            (32, Rule::Saved(21, 8)),
            (64, Rule::Restored(21)),
            (80, Rule::Frame(0)),
        ];
        let frame = Frame { rules, ..Frame::default() };
        let entry = Entry { frame: &frame, returns: Returns::Absolute(20), start: 0, size: 128 };
        let (data, _) = section([entry].into_iter());
        let rules = &data[0x38 + 36..];
        let expected = [
            &[4, 4, 0, 0, 0, 0x0c, 0x81, 0x80, 0x80, 0x28, 24][..],
            &[4, 4, 0, 0, 0, 5, 0x95, 0x80, 0x80, 0x28, 2],
            &[4, 8, 0, 0, 0, 6, 0x95, 0x80, 0x80, 0x28],
            &[4, 4, 0, 0, 0, 0x0c, 0x81, 0x80, 0x80, 0x28, 0],
        ];
        assert!(rules.starts_with(&expected.concat()), "{rules:02x?}");
    }
}
