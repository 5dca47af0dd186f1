//! Line tables: `.debug_line`, from code to the source that the PTX was made from, and `.nv_debug_line_sass`, from
//! code to the PTX itself, whose text is in `.nv_debug_ptx_txt`.
//!
//! Both are DWARF 2 line programs with the header of ptxas 13.0.88. `.debug_line` has an extension, extended opcode
//! 0x90: what follows was inlined. Its operands are the number of the row that holds the place of the call (counted
//! from 1 in the function) and the offset in `.debug_str` of the inlined function's name; 0 and 0 where nothing is
//! inlined any more (observed in ptxas's files for PTX with `inlined_at`). The prologue then has 4
//! bytes more at its end: nvdisasm -g refuses a table without them.

use crate::object::Reloc;

/// A row: code from `address` on belongs to `line`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Byte offset in the function.
    pub address: u32,
    /// Index in the list of files.
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Row (from 1) of the call that brought this in, and offset of the function's name.
    pub inlined: Option<(u32, u32)>,
}

/// The rows of a kernel.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    /// Its name.
    pub function: String,
    /// Its size in bytes.
    pub size: u32,
    /// In ascending order of addresses.
    pub rows: Vec<Row>,
}

/// A file that lines are of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceFile {
    /// Its name, with the folder.
    pub name: String,
    /// When it was last changed, or 0.
    pub modified: u32,
    /// Its size in bytes, or 0.
    pub size: u32,
}

/// Debug information of a file.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Source files, in the order of their indices, from 1.
    pub files: Vec<SourceFile>,
    /// Rows that name source lines; a kernel without any is left out.
    pub source: Vec<Sequence>,
    /// Rows that name lines of the PTX; their file is 0.
    pub ptx: Vec<Sequence>,
    /// Contents of `.debug_str`.
    pub strings: Vec<u8>,
    /// The PTX, a NUL after each line.
    pub ptx_text: Vec<u8>,
    /// Where registers of the PTX are, and of which type they are.
    pub registers: Option<crate::places::Sections>,
    /// Sections that the PTX brings.
    pub copied: Vec<Copied>,
}

/// Whether a file is for a debugger, rather than with lines alone.
pub(crate) fn for_debuggers(lines: Option<&Lines>) -> bool {
    lines.is_some_and(|l| l.registers.is_some())
}

/// A section that the PTX brings, as the file has it.
#[derive(Clone, Debug, Default)]
pub struct Copied {
    /// Name, with its dot.
    pub name: String,
    /// Contents. Fields with an address of a relocation's hold what is added to its symbol.
    pub bytes: Vec<u8>,
    /// Addresses in it, ascending.
    pub relocs: Vec<Reloc>,
}

impl Lines {
    /// The sections that only debuggers read, in order.
    pub(crate) fn of_debuggers(&self) -> impl Iterator<Item = (String, Vec<u8>)> {
        let maps = self.registers.iter().flat_map(|r| {
            [(".nv_debug_info_reg_sass", r.places.clone()), (".nv_debug_info_reg_type", r.types.clone())]
        });
        let copied = self.copied.iter().map(|c| (c.name.clone(), c.bytes.clone()));
        maps.map(|(name, data)| (name.to_string(), data)).chain(copied)
    }
}

const LINE_BASE: i64 = -5;
const LINE_RANGE: i64 = 14;
const OPCODE_BASE: u8 = 10;
const ARGUMENTS: [u8; 9] = [0, 1, 1, 1, 1, 0, 0, 0, 1];

const COPY: u8 = 1;
const ADVANCE_PC: u8 = 2;
const ADVANCE_LINE: u8 = 3;
const SET_FILE: u8 = 4;
const END_SEQUENCE: u8 = 1;
const SET_ADDRESS: u8 = 2;
const INLINED: u8 = 0x90;

fn uleb(out: &mut Vec<u8>, mut n: u64) {
    loop {
        let byte = (n & 0x7f) as u8;
        n >>= 7;
        if n == 0 {
            return out.push(byte);
        }
        out.push(byte | 0x80);
    }
}

fn sleb(out: &mut Vec<u8>, mut n: i64) {
    loop {
        let byte = (n & 0x7f) as u8;
        n >>= 7;
        if (n == 0 && byte & 0x40 == 0) || (n == -1 && byte & 0x40 != 0) {
            return out.push(byte);
        }
        out.push(byte | 0x80);
    }
}

/// Stands for a number without a file. ptxas 13.0.88 leaves such a number out and counts on, so that lines of later files are another
/// file's, or none's (nvdisasm ends on its table).
const NAMELESS: &str = "?";

/// A line program, and where in it the address of each sequence's function goes.
pub fn program(files: &[SourceFile], sequences: &[Sequence]) -> (Vec<u8>, Vec<(u64, String)>) {
    // Length and prologue length come last.
    let mut out = vec![0; 4];
    out.extend(2u16.to_le_bytes());
    out.extend([0; 4]);
    out.extend([1, 1, LINE_BASE as u8, LINE_RANGE as u8, OPCODE_BASE]);
    out.extend(ARGUMENTS);
    // What would be an empty name, which ends a list, is a whole one: of files in the root, as in ptxas's tables, and of folders.
    let split = |f: &'_ SourceFile| {
        let (folder, name) = f.name.rsplit_once('/').filter(|(d, n)| !d.is_empty() && !n.is_empty())?;
        Some((folder.to_owned(), name.to_owned()))
    };
    let mut folders: Vec<String> = Vec::new();
    for (folder, _) in files.iter().filter_map(split) {
        if !folders.contains(&folder) {
            out.extend(folder.as_bytes());
            out.push(0);
            folders.push(folder);
        }
    }
    out.push(0);
    for f in files {
        let (folder, name) = match split(f) {
            Some((d, n)) => (folders.iter().position(|x| *x == d).map_or(0, |i| i as u64 + 1), n),
            None if f.name.is_empty() => (0, NAMELESS.into()),
            None => (0, f.name.clone()),
        };
        out.extend(name.as_bytes());
        out.push(0);
        uleb(&mut out, folder);
        uleb(&mut out, f.modified.into());
        uleb(&mut out, f.size.into());
    }
    out.push(0);
    if sequences.iter().flat_map(|s| &s.rows).any(|r| r.inlined.is_some()) {
        // Where the names of functions start in `.debug_str`.
        out.extend([0; 4]);
    }
    let prologue = out.len() as u32 - 10;
    out[6..10].copy_from_slice(&prologue.to_le_bytes());
    let mut places = Vec::new();
    for s in sequences {
        out.extend([0, 9, SET_ADDRESS]);
        places.push((out.len() as u64, s.function.clone()));
        out.extend([0; 8]);
        rows(&mut out, s);
        out.extend([0, 1, END_SEQUENCE]);
    }
    let length = out.len() as u32 - 4;
    out[..4].copy_from_slice(&length.to_le_bytes());
    (out, places)
}

fn rows(out: &mut Vec<u8>, s: &Sequence) {
    // The first row always names its file, as ptxas's does.
    let (mut address, mut file, mut line, mut inlined) = (0, u32::MAX, 1, None);
    for row in &s.rows {
        if row.file != file {
            out.push(SET_FILE);
            uleb(out, row.file.into());
            file = row.file;
        }
        if row.inlined != inlined {
            let mut operands = vec![INLINED];
            let (call, name) = row.inlined.unwrap_or((0, 0));
            uleb(&mut operands, call.into());
            uleb(&mut operands, name.into());
            out.push(0);
            uleb(out, operands.len() as u64);
            out.extend(operands);
            inlined = row.inlined;
        }
        let (by, lines) = (row.address - address, i64::from(row.line) - i64::from(line));
        let special = i64::from(by) * LINE_RANGE + lines - LINE_BASE + i64::from(OPCODE_BASE);
        if (LINE_BASE..LINE_BASE + LINE_RANGE).contains(&lines) && special < 256 {
            out.push(special as u8);
        } else {
            if lines != 0 {
                out.push(ADVANCE_LINE);
                sleb(out, lines);
            }
            if by != 0 {
                out.push(ADVANCE_PC);
                uleb(out, by.into());
            }
            out.push(COPY);
        }
        (address, line) = (row.address, row.line);
    }
    out.push(ADVANCE_PC);
    uleb(out, u64::from(s.size - address));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_ptxas_writes_it() {
        let row = |address, file, line, inlined| Row { address, file, line, inlined };
        let s = Sequence {
            function: "k".into(),
            size: 0x80,
            rows: vec![
                row(0, 1, 218, None),
                row(0x10, 1, 220, None),
                row(0x20, 1, 222, None),
                row(0x20, 2, 18, Some((3, 0))),
                row(0x30, 1, 223, None),
            ],
        };
        let named = |name: &str| SourceFile { name: name.into(), ..SourceFile::default() };
        let (bytes, places) = program(&[named("a.cu"), named("b.h")], &[s]);
        // From a file of ptxas 13.0.88 -lineinfo (the sequence up to its fifth row); file names differ.
        let want = [
            0x04, 0x01, 0x03, 0xd9, 0x01, 0x01, 0xf1, 0xf1, 0x04, 0x02, 0x00, 0x03, 0x90, 0x03, 0x00, 0x03,
            0xb4, 0x7e, 0x01, 0x04, 0x01, 0x00, 0x03, 0x90, 0x00, 0x00, 0x03, 0xcd, 0x01, 0x02, 0x10, 0x01,
        ];
        let start = places[0].0 as usize + 8;
        assert_eq!(bytes[start..start + want.len()], want);
        assert_eq!(bytes[start + want.len()..], [0x02, 0x50, 0, 1, 1]);
    }
    /// The folders and files of a table, these with the numbers of theirs.
    fn names(bytes: &[u8]) -> (Vec<String>, Vec<(String, u8)>) {
        let mut at = 10 + 5 + ARGUMENTS.len();
        let text = |at: &mut usize| {
            let end = *at + bytes[*at..].iter().position(|b| *b == 0).unwrap();
            let text = String::from_utf8(bytes[*at..end].to_vec()).unwrap();
            *at = end + 1;
            text
        };
        let folders = std::iter::from_fn(|| Some(text(&mut at)).filter(|t| !t.is_empty())).collect();
        let mut files = Vec::new();
        loop {
            let name = text(&mut at);
            if name.is_empty() {
                return (folders, files);
            }
            files.push((name, bytes[at]));
            at += 3;
        }
    }

    #[test]
    fn no_name_is_empty() {
        let of = |list: &[&str]| {
            let file = |name: &&str| SourceFile { name: (*name).into(), ..SourceFile::default() };
            names(&program(&list.iter().map(file).collect::<Vec<_>>(), &[]).0)
        };
        let s = String::from;
        assert_eq!(of(&["/x.cu", "/y/z.h"]), (vec![s("/y")], vec![(s("/x.cu"), 0), (s("z.h"), 1)]));
        assert_eq!(of(&["a/", "", "a/b"]), (vec![s("a")], vec![(s("a/"), 0), (s("?"), 0), (s("b"), 1)]));
    }
}
