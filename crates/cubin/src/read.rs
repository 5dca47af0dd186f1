//! The reader: executables of ours and of ptxas.

use crate::Error;
use crate::attrs::{Attr, records};
use crate::common::BRANCH;
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, SectionHeader};
use std::collections::{BTreeMap, BTreeSet};

/// A loaded executable.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// SM number.
    pub sm: u8,
    /// Made for this SM alone (`sm_90a`).
    pub accelerated: bool,
    /// Kernels by name.
    pub kernels: BTreeMap<String, KernelImage>,
    /// Contents of `.nv.constant3`.
    pub constant3: Vec<u8>,
    /// Contents of `.nv.constant4`, before relocation.
    pub constant4: Vec<u8>,
    /// Global variables.
    pub globals: Vec<GlobalImage>,
    /// Variables in `.nv.constant3`: name, offset and size.
    pub constants: Vec<(String, u64, u64)>,
    /// Addresses to put into `.nv.constant4`, `.nv.constant3` and globals.
    pub relocs: Vec<RelocImage>,
}

impl Image {
    /// The functions with sections of their own that a kernel may come to, by name or by an address in data: the sections, and the byte
    /// offsets behind the kernel's code at which they are executed here, which this gives out.
    pub fn behind(&self, kernel: &str) -> Vec<(&str, u64)> {
        let Some((kernel, own)) = self.kernels.get_key_value(kernel) else { return Vec::new() };
        let mut section: BTreeMap<&str, &str> = self.kernels.keys().map(|k| (&**k, &**k)).collect();
        for (name, k) in &self.kernels {
            for (symbol, _, _) in &k.functions {
                section.entry(symbol).or_insert(name);
            }
        }
        let mut named: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut open: Vec<&str> = vec![kernel];
        for r in &self.relocs {
            let Some(to) = section.get(&*r.symbol) else { continue };
            match r.place.strip_prefix(".text.") {
                Some(from) => named.entry(from).or_default().push(to),
                None => open.push(to),
            }
        }
        let mut found = BTreeSet::new();
        while let Some(next) = open.pop() {
            if found.insert(next) {
                open.extend(named.get(next).into_iter().flatten());
            }
        }
        found.remove(&**kernel);
        let mut words = own.code.len();
        let mut out = Vec::new();
        for name in found {
            let start = words.next_multiple_of(8);
            words = start + self.kernels[name].code.len();
            out.push((name, 16 * start as u64));
        }
        out
    }
}

/// A kernel of an executable.
#[derive(Clone, Debug, Default)]
pub struct KernelImage {
    /// Instruction words.
    pub code: Vec<u128>,
    /// Functions inside `.text` by name: byte offset and size; the kernel itself included.
    pub functions: Vec<(String, u64, u64)>,
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of local memory that the driver must provide per thread.
    pub stack_bytes: u32,
    /// Bytes of static shared memory.
    pub shared_bytes: u32,
    /// Offset and size of the parameters in constant bank 0.
    pub params: (u16, u16),
    /// Contents of constant bank 0 as stored.
    pub constant0: Vec<u8>,
    /// Contents of constant bank 2.
    pub constant2: Vec<u8>,
    /// Attributes, code and payload: those of its own section, then those of the file that name it.
    pub attributes: Vec<(u8, Vec<u8>)>,
    /// Whether it is a kernel, and not a device function with a section of its own.
    pub entry: bool,
}

impl KernelImage {
    /// Offset in the parameters' block and size of each parameter that is passed, in order; `None` where the file doesn't say.
    pub fn parameters(&self) -> Option<Vec<(u16, u32)>> {
        let mut found = BTreeMap::new();
        let codes = [Attr::KparamInfo as u8, Attr::KparamInfoV2 as u8];
        for (code, p) in self.attributes.iter().filter(|(code, _)| codes.contains(code)) {
            let [_, _, _, _, n0, n1, at0, at1, w @ ..] = &**p else { return None };
            let word = u32::from_le_bytes(w.try_into().ok()?);
            let size = if *code == Attr::KparamInfoV2 as u8 { word & 0xffff } else { word >> 18 };
            found.insert(u16::from_le_bytes([*n0, *n1]), (u16::from_le_bytes([*at0, *at1]), size));
        }
        let found_none = found.is_empty();
        let whole = found.keys().enumerate().all(|(i, n)| i == usize::from(*n));
        // Textures, samplers and surfaces are not.
        let passed = found.into_values().filter(|(at, size)| (*at, *size) != (0xffff, 0)).collect();
        (whole && (self.params.1 == 0 || !found_none)).then_some(passed)
    }

    /// The words of an attribute.
    pub fn words(&self, attr: Attr) -> Option<Vec<u32>> {
        let (_, payload) = self.attributes.iter().find(|(code, _)| *code == attr as u8)?;
        Some(payload.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect())
    }
}

/// A global variable of an executable.
#[derive(Clone, Debug, Default)]
pub struct GlobalImage {
    /// Name.
    pub name: String,
    /// Initial contents.
    pub bytes: Vec<u8>,
    /// In managed memory, which the host reaches by the same address.
    pub managed: bool,
}

/// An address to be filled in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelocImage {
    /// In which section: `.nv.constant4`, `.nv.constant3`, `.nv.constant0.KERNEL`, `.text.FUNCTION`, or the name of a global.
    pub place: String,
    /// Byte offset there.
    pub offset: u64,
    /// Whose address.
    pub symbol: String,
    /// Added to it.
    pub addend: i64,
    /// Type of relocation.
    pub kind: u32,
}

/// `EI_OSABI` of files of ABI version 7.
const OLD_ABI: u8 = 0x33;
/// st_other of a kernel.
const STO_ENTRY: u8 = 0x10;
/// The record of `.nv.compat` that is 1 in files for an SM with its own features (CUDA_ACCELERATOR_TARGET).
const COMPAT_ACCELERATED: u8 = 9;
/// `sh_type` of shared memory in relocatable files: a size without bytes, like `SHT_NOBITS`.
const SHT_CUDA_SHARED: u32 = 0x7000_000a;
/// The same of what the system keeps.
const SHT_CUDA_RESERVED_SHARED: u32 = 0x7000_0015;
/// The bytes that all variables together may have.
const MOST_GLOBAL: u64 = 1 << 31;

/// Reads an executable.
///
/// # Errors
/// What is wrong with the file.
pub fn read(data: &[u8]) -> Result<Image, Error> {
    let header = FileHeader64::<LE>::parse(data).map_err(Error::NoElf)?;
    if header.e_machine.get(LE) != 190 {
        return Err(Error::NotCuda);
    }
    // They come last: a file that was cut off lacks them.
    header.program_headers(LE, data).map_err(Error::damaged)?;
    let sections = header.sections(LE, data).map_err(Error::damaged)?;
    let symbols = sections.symbols(LE, data, elf::SHT_SYMTAB).map_err(Error::damaged)?;
    // Linked files may have several functions, so sections, of one name: all but the first get their number as well.
    let (mut names, mut seen) = (Vec::new(), BTreeSet::new());
    for (i, s) in sections.enumerate() {
        let name = String::from_utf8_lossy(sections.section_name(LE, s).map_err(Error::damaged)?);
        let first = seen.insert(name.to_string());
        names.push(if first { name.into_owned() } else { format!("{name}#{}", i.0) });
    }
    let section_name = |i: usize| names.get(i).cloned().unwrap_or_default();
    let flags = header.e_flags.get(LE);
    // Up to CUDA 12.7 files have another ABI, with the SM in the low byte.
    let sm = if header.e_ident.os_abi == OLD_ABI { flags } else { flags >> 8 } as u8;
    let mut image = Image { sm, ..Image::default() };
    let mut contents: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
    // Copies that ptxas makes of sections for capsules name the same bytes once more.
    let mut unread = 2 * data.len() as u64;
    for (i, s) in sections.enumerate() {
        let name = section_name(i.0);
        sizes.insert(name.clone(), s.sh_size(LE));
        if !matches!(s.sh_type(LE), elf::SHT_NOBITS | SHT_CUDA_SHARED | SHT_CUDA_RESERVED_SHARED) {
            // A few headers may name the same bytes again and again.
            unread = unread.checked_sub(s.sh_size(LE)).ok_or(Error::TooMuchInFile)?;
            contents.insert(name, s.data(LE, data).map_err(Error::damaged)?.to_vec());
        }
    }
    let (mut symbol_names, mut seen) = (Vec::new(), BTreeSet::new());
    for (i, s) in symbols.iter().enumerate() {
        let name = String::from_utf8_lossy(symbols.symbol_name(LE, s).unwrap_or_default()).into_owned();
        let place = section_name(usize::from(s.st_shndx.get(LE)));
        symbol_names.push(
            match place.strip_prefix(".text.").filter(|p| p.starts_with(&format!("{name}#"))) {
                Some(of_section) => of_section.to_string(),
                None if !name.is_empty() && !seen.insert(name.clone()) => format!("{name}#{i}"),
                None => name,
            },
        );
    }
    for (name, bytes) in &contents {
        let Some(kernel) = name.strip_prefix(".text.") else { continue };
        let words = bytes.as_chunks::<16>().0.iter().map(|c| u128::from_le_bytes(*c)).collect();
        let take = |prefix: &str| contents.get(&format!("{prefix}{kernel}")).cloned().unwrap_or_default();
        image.kernels.insert(
            kernel.to_string(),
            KernelImage {
                code: words,
                constant0: take(".nv.constant0."),
                constant2: take(".nv.constant2."),
                shared_bytes: sizes.get(&format!(".nv.shared.{kernel}")).copied().unwrap_or(0) as u32,
                ..KernelImage::default()
            },
        );
        if let Some(info) = contents.get(&format!(".nv.info.{kernel}")) {
            for (code, payload) in records(info) {
                let image = image.kernels.get_mut(kernel).expect("just inserted");
                image.attributes.push((code, payload.to_vec()));
                if code == 0x0a && payload.len() == 8 {
                    let half = |i: usize| u16::from_le_bytes([payload[i], payload[i + 1]]);
                    image.params = (half(4), half(6));
                }
            }
        }
    }
    if let Some(compat) = contents.get(".nv.compat") {
        image.accelerated =
            records(compat).any(|(code, p)| code == COMPAT_ACCELERATED && p.first() == Some(&1));
    }
    image.constant3 = contents.get(".nv.constant3").cloned().unwrap_or_default();
    image.constant4 = contents.get(".nv.constant4").cloned().unwrap_or_default();
    let mut room = MOST_GLOBAL;
    for (s, name) in symbols.iter().zip(&symbol_names) {
        let place = section_name(usize::from(s.st_shndx.get(LE)));
        let (value, size) = (s.st_value.get(LE), s.st_size.get(LE));
        if let Some(kernel) = place.strip_prefix(".text.")
            && s.st_type() == elf::STT_FUNC
            && let Some(k) = image.kernels.get_mut(kernel)
        {
            k.entry |= s.st_other & STO_ENTRY != 0;
            k.functions.push((name.clone(), value, size));
        }
        let is_section = s.st_type() == elf::STT_SECTION;
        if place == ".nv.constant3" && !is_section {
            image.constants.push((name.clone(), value, size));
        }
        if (place == ".nv.global" || place == ".nv.global.init") && !is_section {
            room = room.checked_sub(size).ok_or_else(|| Error::Variable { name: name.clone(), size })?;
            let mut bytes = contents
                .get(&place)
                .and_then(|c| c.get(value as usize..value.checked_add(size)? as usize))
                .map(<[u8]>::to_vec)
                .unwrap_or_default();
            bytes.resize(size as usize, 0);
            let managed = s.st_other & crate::object::STO_MANAGED != 0;
            image.globals.push(GlobalImage { name: name.clone(), bytes, managed });
        }
    }
    if let Some(info) = contents.get(".nv.info") {
        for (code, payload) in records(info) {
            if payload.len() != 8 {
                continue;
            }
            let word =
                |i: usize| u32::from_le_bytes([payload[i], payload[i + 1], payload[i + 2], payload[i + 3]]);
            let Some(k) = symbol_names.get(word(0) as usize).and_then(|n| image.kernels.get_mut(n)) else {
                continue;
            };
            k.attributes.push((code, payload[4..].to_vec()));
            match code {
                0x2f => k.registers = word(4),
                // Without a bound, nvlink says u32::MAX.
                0x12 if word(4) == u32::MAX => k.stack_bytes = 0,
                0x12 => k.stack_bytes = k.stack_bytes.max(word(4)),
                0x11 => k.stack_bytes = k.stack_bytes.max(word(4)),
                _ => {}
            }
        }
    }
    for (i, s) in sections.enumerate() {
        let (place, entry) = match s.sh_type(LE) {
            elf::SHT_RELA => (section_name(s.sh_info(LE) as usize), 24),
            elf::SHT_REL => (section_name(s.sh_info(LE) as usize), 16),
            _ => continue,
        };
        let (place, Some(bytes)) = (place.as_str(), contents.get(&section_name(i.0))) else { continue };
        let code = place.starts_with(".text.");
        let data = matches!(place, ".nv.constant4" | ".nv.constant3" | ".nv.global.init");
        if !code && !data && !place.starts_with(".nv.constant0.") {
            continue;
        }
        for e in bytes.chunks_exact(entry) {
            let word = |i: usize| u64::from_le_bytes(e[i..i + 8].try_into().expect("8 bytes"));
            let (mut offset, info) = (word(0), word(8));
            let mut place = place.to_string();
            let base = contents.get(&place).map(Vec::as_slice).unwrap_or_default();
            let addend = if code && entry == 16 {
                0
            } else if entry == 24 {
                word(16) as i64
            } else if byte_filled(info as u32).is_some() {
                base.get(offset as usize).map_or(0, |b| i64::from(*b))
            } else {
                base.get(offset as usize..(offset as usize).saturating_add(8))
                    .map_or(0, |b| i64::from_le_bytes(b.try_into().expect("8 bytes")))
            };
            if place == ".nv.global.init" {
                // Name the variable that holds it.
                for (s, n) in symbols.iter().zip(&symbol_names) {
                    let (value, size) = (s.st_value.get(LE), s.st_size.get(LE));
                    let inside = section_name(usize::from(s.st_shndx.get(LE))) == ".nv.global.init"
                        && s.st_type() != elf::STT_SECTION
                        && (value..value.saturating_add(size)).contains(&offset);
                    if inside {
                        offset -= value;
                        place.clone_from(n);
                        break;
                    }
                }
            }
            let symbol = symbol_names.get((info >> 32) as usize).cloned().unwrap_or_default();
            image.relocs.push(RelocImage { place, offset, symbol, addend, kind: info as u32 });
        }
    }
    Ok(image)
}

/// The first of the eight types of relocation by which one byte of an address is filled in: of an offset or code, of a generic
/// address, of a kernel, of a function.
const BYTES: [u32; 4] = [0x4c, 0x54, 0x5c, 0x68];

/// Which byte of an address a type of relocation fills in, 0 the lowest; `None` of those that fill in more.
pub fn byte_filled(kind: u32) -> Option<u32> {
    BYTES.iter().find_map(|first| kind.checked_sub(*first).filter(|n| *n < 8))
}

/// Whether the file says that this compiler made it, and nobody has linked it since.
pub fn is_ours(data: &[u8]) -> bool {
    let note = || {
        let header = FileHeader64::<LE>::parse(data).ok()?;
        let sections = header.sections(LE, data).ok()?;
        let (_, section) = sections.section_by_name(LE, b".note.nv.tkinfo")?;
        section.data(LE, data).ok()
    };
    note().is_some_and(|note| note.windows(BRANCH.len()).any(|w| w == BRANCH.as_bytes()))
}

/// Where the code of each kernel lies in the file.
///
/// # Errors
/// What is wrong with the file.
pub fn code_ranges(data: &[u8]) -> Result<BTreeMap<String, std::ops::Range<usize>>, Error> {
    let header = FileHeader64::<LE>::parse(data).map_err(Error::NoElf)?;
    let sections = header.sections(LE, data).map_err(Error::damaged)?;
    let mut ranges = BTreeMap::new();
    for (_, s) in sections.enumerate() {
        let name = String::from_utf8_lossy(sections.section_name(LE, s).map_err(Error::damaged)?);
        let (Some(kernel), Some((at, size))) = (name.strip_prefix(".text."), s.file_range(LE)) else {
            continue;
        };
        let range = usize::try_from(at).ok().zip(usize::try_from(at.saturating_add(size)).ok());
        let (from, to) = range.filter(|r| r.1 <= data.len()).ok_or(Error::Outside)?;
        ranges.insert(kernel.to_string(), from..to);
    }
    Ok(ranges)
}
