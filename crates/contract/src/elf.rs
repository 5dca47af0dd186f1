//! A cubin's ELF structures as they are, for rules about the format.

use crate::Error;

/// Section types without bytes: `SHT_NOBITS` and those of shared memory.
const NOBITS: &[u32] = &[8, 0x7000_0007, 0x7000_000a, 0x7000_0015];
/// `SHF_ALLOC`.
pub const ALLOC: u64 = 2;
/// `SHF_INFO_LINK`.
pub const INFO_LINK: u64 = 0x40;
/// Section type of `.nv.info`.
pub const NV_INFO: u32 = 0x7000_0000;
/// Section type of `.nv.compat`.
pub const NV_COMPAT: u32 = 0x7000_0086;

/// A section header.
pub struct Section {
    /// Its name.
    pub name: String,
    /// `sh_type`.
    pub ty: u32,
    /// `sh_flags`.
    pub flags: u64,
    /// `sh_offset`.
    pub offset: u64,
    /// `sh_size`.
    pub size: u64,
    /// `sh_link`.
    pub link: u32,
    /// `sh_info`.
    pub info: u32,
    /// `sh_addralign`.
    pub align: u64,
    /// `sh_entsize`.
    pub entsize: u64,
}

impl Section {
    /// Whether it has a size, but no bytes in the file.
    pub fn is_nobits(&self) -> bool {
        NOBITS.contains(&self.ty)
    }
}

/// A symbol.
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// `st_info`: binding and type.
    pub info: u8,
    /// `st_other`.
    pub other: u8,
    /// `st_shndx`.
    pub section: u16,
    /// `st_value`.
    pub value: u64,
    /// `st_size`.
    pub size: u64,
}

impl Symbol {
    /// Whether it stands for a section.
    pub fn is_section(&self) -> bool {
        self.info & 0xf == 3
    }
}

/// The headers of an ELF file.
pub struct Elf<'d> {
    /// The file.
    pub data: &'d [u8],
    /// Its sections.
    pub sections: Vec<Section>,
    /// Its symbols.
    pub symbols: Vec<Symbol>,
}

/// A little endian number; what lies outside of the data counts as zeros.
pub fn number(data: &[u8], at: usize, bytes: usize) -> u64 {
    let field = data.get(at..at + bytes).unwrap_or(&[]);
    field.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

fn text(data: &[u8], at: usize) -> String {
    let bytes = data.get(at..).unwrap_or(&[]);
    String::from_utf8_lossy(bytes.split(|b| *b == 0).next().unwrap_or(&[])).into_owned()
}

impl<'d> Elf<'d> {
    /// Reads the headers.
    ///
    /// # Errors
    /// When it is no ELF file, or has no symbols.
    pub fn new(data: &'d [u8]) -> Result<Elf<'d>, Error> {
        if data.get(..4) != Some(b"\x7fELF") {
            return Err(Error::NoElf);
        }
        let (table, count) = (number(data, 40, 8) as usize, number(data, 60, 2) as usize);
        let mut sections: Vec<Section> = (0..count)
            .map(|i| table + 64 * i)
            .map(|at| Section {
                name: number(data, at, 4).to_string(),
                ty: number(data, at + 4, 4) as u32,
                flags: number(data, at + 8, 8),
                offset: number(data, at + 24, 8),
                size: number(data, at + 32, 8),
                link: number(data, at + 40, 4) as u32,
                info: number(data, at + 44, 4) as u32,
                align: number(data, at + 48, 8),
                entsize: number(data, at + 56, 8),
            })
            .collect();
        let names = sections.get(number(data, 62, 2) as usize).map_or(0, |s| s.offset) as usize;
        for s in &mut sections {
            s.name = text(data, names + s.name.parse::<usize>().unwrap_or(0));
            // Its number is a hash of the PTX.
            if s.name.starts_with(".nv_debug_ptx_txt.") {
                s.name = ".nv_debug_ptx_txt.N".into();
            }
        }
        let mut file = Elf { data, sections, symbols: Vec::new() };
        let (Some(table), Some(strings)) = (file.find(".symtab"), file.find(".strtab")) else {
            return Err(Error::NoSymbols);
        };
        let (start, strings) = (table.offset as usize, strings.offset as usize);
        file.symbols = (0..file.bytes(table).len() / 24)
            .map(|i| start + 24 * i)
            .map(|at| Symbol {
                name: text(data, strings + number(data, at, 4) as usize),
                info: number(data, at + 4, 1) as u8,
                other: number(data, at + 5, 1) as u8,
                section: number(data, at + 6, 2) as u16,
                value: number(data, at + 8, 8),
                size: number(data, at + 16, 8),
            })
            .collect();
        Ok(file)
    }

    /// The section of a name.
    pub fn find(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| s.name == name)
    }

    /// The bytes of a section.
    pub fn bytes(&self, s: &Section) -> &'d [u8] {
        if s.is_nobits() {
            return &[];
        }
        self.data.get(s.offset as usize..s.offset.saturating_add(s.size) as usize).unwrap_or(&[])
    }

    /// The name of a section by number.
    pub fn section_name(&self, n: u64) -> &str {
        self.sections.get(n as usize).map_or("?", |s| s.name.as_str())
    }

    /// A symbol's name, of a section's the section.
    pub fn symbol_name(&self, n: u32) -> String {
        match self.symbols.get(n as usize) {
            Some(s) if s.info & 0xf == 3 => self.section_name(s.section.into()).to_string(),
            Some(s) => part(&s.name),
            None => "?".into(),
        }
    }
}

/// Functions that are parts of instructions have names of each compiler's own.
pub fn part(name: &str) -> String {
    if name.starts_with("$__internal_") { "$__internal".into() } else { name.into() }
}

/// A name without that of the kernel that it belongs to.
pub fn class(name: &str) -> String {
    const OF_KERNELS: &[&str] = &[
        ".text.",
        ".nv.info.",
        ".nv.shared.",
        ".nv.constant0.",
        ".nv.constant2.",
        ".rela.text.",
        ".rel.text.",
        ".rela.nv.constant2.",
        ".rel.nv.constant2.",
    ];
    if name.starts_with(".nv.shared.reserved.") {
        return name.into();
    }
    OF_KERNELS.iter().find(|p| name.starts_with(**p)).map_or_else(|| name.into(), |p| format!("{p}*"))
}

/// Bank 2, the capsules of ptxas from sm_100 on and their copies of other sections are the code generator's.
pub fn is_compilers(name: &str) -> bool {
    name.starts_with(".nv.capmerc") || name.starts_with(".nv.merc")
}

/// Format, code and value of each record.
pub fn split(mut data: &[u8]) -> Vec<(u8, u8, &[u8])> {
    let mut out = Vec::new();
    while data.len() >= 4 {
        let size = if data[0] == 4 { number(data, 2, 2) as usize } else { 0 };
        let value = if data[0] == 4 { data.get(4..4 + size).unwrap_or(&[]) } else { &data[2..4] };
        out.push((data[0], data[1], value));
        data = data.get(4 + size..).unwrap_or(&[]);
    }
    out
}
