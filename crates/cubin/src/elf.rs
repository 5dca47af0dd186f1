//! Sections and symbols laid out into an ELF file: what of the format is not CUDA's.

use crate::Error;
use object::elf;
use object::endian::{LittleEndian as LE, U16, U32, U64};
use object::pod::bytes_of;

/// A section under construction.
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) ty: u32,
    pub(crate) flags: u64,
    pub(crate) link: u32,
    pub(crate) info: u32,
    pub(crate) align: u64,
    pub(crate) entsize: u64,
    pub(crate) data: Vec<u8>,
    /// Size of a section without contents.
    pub(crate) nobits: u64,
    /// Whether it has none, whatever its type.
    pub(crate) no_bits: bool,
}

impl Section {
    pub(crate) fn new(name: &str, ty: u32, flags: u64, align: u64, data: Vec<u8>) -> Section {
        Section {
            name: name.into(),
            ty,
            flags,
            link: 0,
            info: 0,
            align,
            entsize: 0,
            data,
            nobits: 0,
            no_bits: ty == elf::SHT_NOBITS,
        }
    }
    fn size(&self) -> u64 {
        if self.no_bits { self.nobits } else { self.data.len() as u64 }
    }
}

/// A symbol.
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) info: u8,
    pub(crate) other: u8,
    pub(crate) section: u16,
    pub(crate) value: u64,
    pub(crate) size: u64,
}

/// A string table.
#[derive(Default)]
pub(crate) struct Strings {
    pub(crate) bytes: Vec<u8>,
}

impl Strings {
    pub(crate) fn add(&mut self, s: &str) -> u32 {
        if self.bytes.is_empty() {
            self.bytes.push(0);
        }
        if s.is_empty() {
            return 0;
        }
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(s.as_bytes());
        self.bytes.push(0);
        at
    }
}

/// The symbol table's bytes and its string table.
pub(crate) fn symbol_table(symbols: &[Symbol], strings: &mut Strings) -> Vec<u8> {
    let mut out = Vec::new();
    for s in symbols {
        let raw = elf::Sym64::<LE> {
            st_name: U32::new(LE, strings.add(&s.name)),
            st_info: s.info,
            st_other: s.other,
            st_shndx: U16::new(LE, s.section),
            st_value: U64::new(LE, s.value),
            st_size: U64::new(LE, s.size),
        };
        out.extend_from_slice(bytes_of(&raw));
    }
    out
}

/// A segment: sections `first ..= last`, or the program header table itself.
pub(crate) enum Segment {
    Headers { flags: u32 },
    LoadHeaders { flags: u32 },
    Load { first: usize, last: usize, flags: u32 },
}

/// The file. Section 0 is made here; `sections[i]` becomes number i + 1. `.shstrtab` must be the first.
///
/// # Errors
/// If there are more sections than numbers for them.
pub(crate) fn file(sections: Vec<Section>, flags: u32, segments: &[Segment]) -> Result<Vec<u8>, Error> {
    build(sections, flags, segments, elf::ET_EXEC)
}

/// A relocatable file, which has no segments.
///
/// # Errors
/// If there are more sections than numbers for them.
pub(crate) fn relocatable(sections: Vec<Section>, flags: u32, file_type: u16) -> Result<Vec<u8>, Error> {
    build(sections, flags, &[], file_type)
}

fn build(
    mut sections: Vec<Section>,
    flags: u32,
    segments: &[Segment],
    file_type: u16,
) -> Result<Vec<u8>, Error> {
    let most = usize::from(elf::SHN_LORESERVE) - 1;
    if sections.len() + 1 > most {
        return Err(Error::CodeSections { sections: sections.len() + 1, most });
    }
    let mut names = Strings::default();
    names.add("");
    let name_offsets: Vec<u32> = sections.iter().map(|s| names.add(&s.name)).collect();
    sections[0].data = names.bytes;
    let mut out = vec![0; 64];
    let mut offsets = Vec::new();
    for s in &sections {
        out.resize(out.len().next_multiple_of(s.align.max(1) as usize), 0);
        offsets.push(out.len() as u64);
        if !s.no_bits {
            out.extend_from_slice(&s.data);
        }
    }
    out.resize(out.len().next_multiple_of(8), 0);
    let section_headers = out.len() as u64;
    let header = |name, ty, flags, offset, size, link, info, align, entsize| elf::SectionHeader64::<LE> {
        sh_name: U32::new(LE, name),
        sh_type: U32::new(LE, ty),
        sh_flags: U64::new(LE, flags),
        sh_addr: U64::new(LE, 0),
        sh_offset: U64::new(LE, offset),
        sh_size: U64::new(LE, size),
        sh_link: U32::new(LE, link),
        sh_info: U32::new(LE, info),
        sh_addralign: U64::new(LE, align),
        sh_entsize: U64::new(LE, entsize),
    };
    out.extend_from_slice(bytes_of(&header(0, 0, 0, 0, 0, 0, 0, 0, 0)));
    for (i, s) in sections.iter().enumerate() {
        let raw =
            header(name_offsets[i], s.ty, s.flags, offsets[i], s.size(), s.link, s.info, s.align, s.entsize);
        out.extend_from_slice(bytes_of(&raw));
    }
    let program_headers = out.len() as u64;
    let table = 56 * segments.len() as u64;
    for s in segments {
        let (ty, flags, offset, file_size, mem_size) = match s {
            Segment::Headers { flags } => (elf::PT_PHDR, *flags, program_headers, table, table),
            Segment::LoadHeaders { flags } => (elf::PT_LOAD, *flags, program_headers, table, table),
            Segment::Load { first, last, flags } => {
                // What has no contents follows the file's in memory, each aligned; the gap before the first is in the file.
                let start = offsets[*first];
                let contents =
                    |i: &usize| if sections[*i].no_bits { 0 } else { sections[*i].data.len() as u64 };
                let in_file = offsets[*last] + contents(last) - start;
                let mut memory = in_file;
                for s in sections[*first..=*last].iter().filter(|s| s.no_bits) {
                    memory =
                        (start + memory).next_multiple_of(s.align.max(1)).saturating_add(s.nobits) - start;
                }
                (elf::PT_LOAD, *flags, start, in_file, memory)
            }
        };
        let raw = elf::ProgramHeader64::<LE> {
            p_type: U32::new(LE, ty),
            p_flags: U32::new(LE, flags),
            p_offset: U64::new(LE, offset),
            p_vaddr: U64::new(LE, 0),
            p_paddr: U64::new(LE, 0),
            p_filesz: U64::new(LE, file_size),
            p_memsz: U64::new(LE, mem_size),
            p_align: U64::new(LE, 8),
        };
        out.extend_from_slice(bytes_of(&raw));
    }
    let header = elf::FileHeader64::<LE> {
        e_ident: elf::Ident {
            magic: elf::ELFMAG,
            class: elf::ELFCLASS64,
            data: elf::ELFDATA2LSB,
            version: elf::EV_CURRENT,
            os_abi: 0x41,
            abi_version: 8,
            padding: [0; 7],
        },
        e_type: U16::new(LE, file_type),
        e_machine: U16::new(LE, 190),
        e_version: U32::new(LE, 1),
        e_entry: U64::new(LE, 0),
        e_phoff: U64::new(LE, if segments.is_empty() { 0 } else { program_headers }),
        e_shoff: U64::new(LE, section_headers),
        e_flags: U32::new(LE, flags),
        e_ehsize: U16::new(LE, 64),
        e_phentsize: U16::new(LE, 56),
        e_phnum: U16::new(LE, segments.len() as u16),
        e_shentsize: U16::new(LE, 64),
        e_shnum: U16::new(LE, sections.len() as u16 + 1),
        e_shstrndx: U16::new(LE, 1),
    };
    out[..64].copy_from_slice(bytes_of(&header));
    Ok(out)
}
