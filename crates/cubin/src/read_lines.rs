//! Reads `.nv_debug_line_sass`: which line of the PTX each instruction comes from, in our files and in those of
//! `ptxas -lineinfo`.

use crate::Error;
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym};
use std::collections::BTreeMap;

/// Byte offsets where code of another line of the PTX begins, and that line.
pub type Rows = Vec<(u64, u32)>;

/// By text section (without `.text.`); of a kernel, with those of the functions that are executed behind it.
pub type PtxLines = BTreeMap<String, Rows>;

/// A cursor over a line program.
struct Bytes<'d> {
    data: &'d [u8],
    at: usize,
}

impl Bytes<'_> {
    fn byte(&mut self) -> Result<u8, Error> {
        let b = self.data.get(self.at).copied().ok_or(Error::LinesEnd)?;
        self.at += 1;
        Ok(b)
    }

    fn leb(&mut self) -> Result<(u64, u32, bool), Error> {
        let (mut n, mut shift) = (0, 0);
        loop {
            let b = self.byte()?;
            if shift < 64 {
                n |= u64::from(b & 0x7f) << shift;
            }
            shift += 7;
            if b & 0x80 == 0 {
                return Ok((n, shift, b & 0x40 != 0));
            }
        }
    }

    fn uleb(&mut self) -> Result<u64, Error> {
        Ok(self.leb()?.0)
    }

    fn sleb(&mut self) -> Result<i64, Error> {
        let (n, shift, negative) = self.leb()?;
        Ok(if negative && shift < 64 { (n | !0 << shift) as i64 } else { n as i64 })
    }

    fn number(&mut self, bytes: u32) -> Result<u64, Error> {
        (0..bytes).try_fold(0, |n, k| Ok(n | u64::from(self.byte()?) << (8 * k)))
    }
}

/// The rows of one program, by the offset in the section of the address that each sequence starts from.
fn program(b: &mut Bytes<'_>) -> Result<Vec<(usize, Rows)>, Error> {
    let length = b.number(4)? as usize;
    let end = b.at + length;
    if b.number(2)? != 2 {
        return Err(Error::LinesVersion);
    }
    let prologue = b.number(4)? as usize;
    let start = b.at + prologue;
    let (unit, _, base, range, opcodes) = (b.byte()?, b.byte()?, b.byte()? as i8, b.byte()?, b.byte()?);
    if range == 0 || opcodes == 0 {
        return Err(Error::LinesRange);
    }
    let arguments = (1..opcodes).map(|_| b.byte()).collect::<Result<Vec<u8>, Error>>()?;
    b.at = start;
    let mut out: Vec<(usize, Rows)> = Vec::new();
    let (mut address, mut line) = (0u64, 1i64);
    let mut rows = Vec::new();
    let mut place = 0;
    while b.at < end {
        let op = b.byte()?;
        let special = |op: u8| {
            let n = op - opcodes;
            (u64::from(n / range) * u64::from(unit), i64::from(base) + i64::from(n % range))
        };
        match op {
            0 => {
                let size = b.uleb()? as usize;
                let next = b.at + size;
                match b.byte()? {
                    1 => {
                        out.push((place, std::mem::take(&mut rows)));
                        (address, line) = (0, 1);
                    }
                    2 => {
                        place = b.at;
                        address = b.number(8)?;
                    }
                    _ => {}
                }
                b.at = next;
            }
            1 => rows.push((address, line as u32)),
            2 => address += b.uleb()? * u64::from(unit),
            3 => line += b.sleb()?,
            8 => address += special(255).0,
            9 => address += b.number(2)?,
            op if op >= opcodes => {
                let (by, lines) = special(op);
                address += by;
                line += lines;
                rows.push((address, line as u32));
            }
            op => {
                for _ in 0..arguments[usize::from(op) - 1] {
                    b.uleb()?;
                }
            }
        }
    }
    b.at = end;
    Ok(out)
}

/// The rows of every sequence in a section of line tables, relocations left aside.
///
/// # Errors
/// What is wrong with it.
pub fn rows(section: &[u8]) -> Result<Vec<Rows>, Error> {
    let mut b = Bytes { data: section, at: 0 };
    let mut out = Vec::new();
    while b.at + 4 < b.data.len() {
        out.extend(program(&mut b)?.into_iter().map(|(_, rows)| rows));
    }
    Ok(out)
}

/// The lines of PTX in a cubin; empty without a table.
///
/// # Errors
/// What is wrong with the file.
pub fn ptx_lines(data: &[u8]) -> Result<PtxLines, Error> {
    let header = FileHeader64::<LE>::parse(data).map_err(Error::NoElf)?;
    let sections = header.sections(LE, data).map_err(Error::damaged)?;
    let symbols = sections.symbols(LE, data, elf::SHT_SYMTAB).map_err(Error::damaged)?;
    let name = |s| sections.section_name(LE, s).map(String::from_utf8_lossy).map_err(Error::damaged);
    let mut out = PtxLines::new();
    let mut table: Option<&[u8]> = None;
    // Symbol and addend by place.
    let mut relocs: BTreeMap<usize, (usize, i64)> = BTreeMap::new();
    for s in sections.iter() {
        match &*name(s)? {
            ".nv_debug_line_sass" => table = Some(s.data(LE, data).map_err(Error::damaged)?),
            ".rela.nv_debug_line_sass" => {
                let list = s.rela(LE, data).map_err(Error::damaged)?;
                for r in list.iter().flat_map(|(r, _)| r.iter()) {
                    relocs.insert(r.r_offset(LE) as usize, (r.r_sym(LE, false) as usize, r.r_addend(LE)));
                }
            }
            ".rel.nv_debug_line_sass" => {
                let list = s.rel(LE, data).map_err(Error::damaged)?;
                for r in list.iter().flat_map(|(r, _)| r.iter()) {
                    relocs.insert(r.r_offset.get(LE) as usize, (r.r_sym(LE) as usize, 0));
                }
            }
            _ => {}
        }
    }
    let mut b = Bytes { data: table.unwrap_or_default(), at: 0 };
    while b.at + 4 < b.data.len() {
        for (place, rows) in program(&mut b)? {
            let Some((symbol, addend)) = relocs.get(&place) else { continue };
            let symbol = symbols.symbol(object::SymbolIndex(*symbol)).map_err(Error::damaged)?;
            let section = object::SectionIndex(usize::from(symbol.st_shndx(LE)));
            let Ok(section) = sections.section(section) else { continue };
            let base = symbol.st_value(LE).wrapping_add_signed(*addend);
            let text = name(section)?;
            let Some(text) = text.strip_prefix(".text.") else { continue };
            let all = out.entry(text.to_string()).or_default();
            all.extend(rows.into_iter().map(|(address, line)| (base + address, line)));
        }
    }
    out.values_mut().for_each(|rows| rows.sort_by_key(|r| r.0));
    add_functions(data, &mut out)?;
    Ok(out)
}

/// Puts the lines of functions with sections of their own behind those of the kernels that come to them, where they are executed
/// ([`crate::read::Image::behind`]).
fn add_functions(data: &[u8], lines: &mut PtxLines) -> Result<(), Error> {
    if lines.is_empty() {
        return Ok(());
    }
    let image = crate::read::read(data)?;
    for kernel in image.kernels.iter().filter(|(_, k)| k.entry).map(|(name, _)| name) {
        let behind = image.behind(kernel);
        let moved = behind.iter().flat_map(|(name, start)| {
            lines.get(*name).into_iter().flatten().map(move |(at, line)| (start + at, *line))
        });
        let more: Rows = moved.collect();
        if let Some(rows) = lines.get_mut(kernel) {
            rows.extend(more);
        }
    }
    Ok(())
}
