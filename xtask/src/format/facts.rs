//! A cubin as lines, each a fact that doesn't depend on what code the compiler chose: two files of the same form have the
//! same lines.

use contract::elf::{
    ALLOC, Elf, INFO_LINK, NV_COMPAT, NV_INFO, Section, class, is_compilers, number, part, split,
};

/// The facts of a file.
pub struct Facts(pub Vec<String>);

/// Whether a section's size depends on the code, or on names.
fn size_varies(s: &Section) -> bool {
    const VARY: &[&str] = &[
        ".shstrtab",
        ".strtab",
        ".symtab",
        ".debug_",
        ".nv_debug_line",
        ".nv_debug_ptx",
        ".note.nv.tkinfo",
        ".text.",
        ".nv.info",
        ".nv.constant2.",
        ".nv.constant4",
        ".nv.callgraph",
    ];
    VARY.iter().any(|v| s.name.starts_with(v)) || s.name.starts_with(".rel") && s.size != 0
}

/// Runs of one class count once, as the order of the kernels is each compiler's own.
fn order<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut classes: Vec<String> = names.map(class).collect();
    classes.dedup();
    classes.join(" ")
}

/// The facts of a cubin.
///
/// # Errors
/// If it is none.
pub fn read(data: &[u8]) -> Result<Facts, String> {
    let f = Elf::new(data)?;
    let mut out = Vec::new();
    header(&f, &mut out);
    sections(&f, &mut out);
    segments(&f, &mut out);
    symbols(&f, &mut out);
    records(&f, &mut out);
    Ok(Facts(out))
}

fn header(f: &Elf<'_>, out: &mut Vec<String>) {
    let flags = number(f.data, 48, 4);
    let note = f.section_name(flags >> 24);
    let ident = &f.data[4..9];
    let (ty, machine) = (number(f.data, 16, 2), number(f.data, 18, 2));
    out.push(format!(
        "header: ident {ident:02x?} type {ty} machine {machine} sm {} note {note}",
        flags >> 8 & 0xffff
    ));
    out.push(format!("header: low flags {:#04x}", flags & 0xff));
}

fn sections(f: &Elf<'_>, out: &mut Vec<String>) {
    let listed = || f.sections.iter().skip(1).filter(|s| !is_compilers(&s.name));
    for s in listed() {
        let size = if size_varies(s) { "-".into() } else { format!("{:#x}", s.size) };
        let info = if s.name.starts_with(".text.") {
            f.symbol_name(s.info & 0xff_ffff)
        } else if s.flags & INFO_LINK != 0 {
            f.section_name(s.info.into()).to_string()
        } else if s.name == ".symtab" {
            String::new()
        } else {
            s.info.to_string()
        };
        let link = f.section_name(s.link.into());
        out.push(format!(
            "section {}: type {:#x} flags {:#x} align {} entry {} size {size} link {link} info {info}",
            s.name, s.ty, s.flags, s.align, s.entsize
        ));
    }
    out.push(format!("order of sections: {}", order(listed().map(|s| s.name.as_str()))));
}

fn segments(f: &Elf<'_>, out: &mut Vec<String>) {
    let (table, count) = (number(f.data, 32, 8), number(f.data, 56, 2) as usize);
    let mut before: Vec<&str> = Vec::new();
    let mut all = Vec::new();
    for at in (0..count).map(|i| table as usize + 56 * i) {
        let (ty, flags) = (number(f.data, at, 4), number(f.data, at + 4, 4));
        let [offset, address, in_file, in_memory, align] =
            [8, 16, 32, 40, 48].map(|field| number(f.data, at + field, 8));
        let letters: String =
            [(4, 'R'), (2, 'W'), (1, 'X')].iter().filter(|(bit, _)| flags & bit != 0).map(|l| l.1).collect();
        let mut what = "headers".to_string();
        if offset != table {
            let inside = |s: &&Section| {
                let end = s.offset + f.bytes(s).len() as u64;
                let writes = s.flags & 1 != 0;
                s.flags & ALLOC != 0
                    && !is_compilers(&s.name)
                    && (offset..=offset + in_file).contains(&s.offset)
                    && end <= offset + in_file
                    && writes == (flags & 2 != 0)
                    && !before.contains(&s.name.as_str())
            };
            let names: Vec<&str> = f.sections.iter().filter(inside).map(|s| s.name.as_str()).collect();
            let last = f.sections.iter().filter(inside).map(|s| s.offset + f.bytes(s).len() as u64).max();
            let nobits = f.sections.iter().filter(inside).filter(|s| s.is_nobits());
            let memory: u64 = nobits.map(|s| s.size).sum();
            let exact = last == Some(offset + in_file) && in_memory == in_file + memory;
            what = format!("{}{}", order(names.iter().copied()), if exact { "" } else { " (other size)" });
            before.extend(names);
        }
        let ty = if ty == 6 { "PHDR" } else { "LOAD" };
        all.push(format!("{ty} {letters} address {address} align {align}: {what}"));
    }
    out.push(format!("segments: {}", all.join("; ")));
}

fn symbols(f: &Elf<'_>, out: &mut Vec<String>) {
    for s in f.symbols.iter().skip(1) {
        let section = f.section_name(s.section.into());
        if is_compilers(section) {
            continue;
        }
        let (name, ty) = (&s.name, s.info & 0xf);
        let name = match ty {
            3 => format!("of section {section}"),
            _ => part(name),
        };
        // Where functions are, and how variables follow each other, is free.
        let place = match ty {
            2 => String::new(),
            _ if section == ".nv.global" || section == ".nv.global.init" => format!(" size {}", s.size),
            _ => format!(" value {:#x} size {}", s.value, s.size),
        };
        let section = if s.section == 0xfff2 { "common" } else { section };
        out.push(format!(
            "symbol {name}: bind {} type {ty} other {:#x} in {section}{place}",
            s.info >> 4,
            s.other
        ));
    }
}

/// Names of the attributes that both write (cuobjdump 13.2's), and whether the value says something of the code.
const NAMES: &[(u8, &str, bool)] = &[
    (0x04, "CTAIDZ_USED", false),
    (0x05, "MAX_THREADS", false),
    (0x0a, "PARAM_CBANK", false),
    (0x0f, "EXTERNS", false),
    (0x10, "REQNTID", false),
    (0x11, "FRAME_SIZE", true),
    (0x12, "MIN_STACK_SIZE", true),
    (0x17, "KPARAM_INFO", false),
    (0x19, "CBANK_PARAM_SIZE", false),
    (0x1b, "MAXREG_COUNT", false),
    (0x1c, "EXIT_INSTR_OFFSETS", true),
    (0x1e, "CRS_STACK_SIZE", false),
    (0x23, "MAX_STACK_SIZE", true),
    (0x28, "COOP_GROUP_INSTR_OFFSETS", true),
    (0x29, "COOP_GROUP_MASK_REGIDS", true),
    (0x2b, "WMMA_USED", false),
    (0x2e, "ATOM16_EMUL_INSTR_REG_MAP", true),
    (0x2f, "REGCOUNT", true),
    (0x31, "INT_WARP_WIDE_INSTR_OFFSETS", true),
    (0x34, "INDIRECT_BRANCH_TARGETS", true),
    (0x35, "SW2861232_WAR", false),
    (0x36, "SW_WAR", false),
    (0x37, "CUDA_API_VERSION", false),
    (0x38, "NUM_MBARRIERS", true),
    (0x39, "MBARRIER_INSTR_OFFSETS", true),
    (0x3d, "CTA_PER_CLUSTER", false),
    (0x3e, "EXPLICIT_CLUSTER", false),
    (0x3f, "MAX_CLUSTER_RANK", false),
    (0x40, "INSTR_REG_MAP", true),
    (0x41, "RESERVED_SMEM_USED", false),
    (0x44, "UNUSED_LOAD_BYTE_OFFSET", true),
    (0x46, "SYSCALL_OFFSETS", true),
    (0x4a, "VRC_CTA_INIT_COUNT", false),
    (0x4c, "NUM_BARRIERS", false),
    (0x4f, "AT_ENTRY_FRAGMENTS", true),
    (0x50, "SPARSE_MMA_MASK", false),
    (0x51, "TCGEN05_1CTA_USED", false),
    (0x54, "REG_RECONFIG", false),
    (0x55, "ANNOTATIONS", true),
    (0x5f, "MERCURY_ISA_VERSION", false),
];

fn records(f: &Elf<'_>, out: &mut Vec<String>) {
    for s in f.sections.iter().filter(|s| !is_compilers(&s.name)) {
        let data = f.bytes(s);
        let own = s.name == ".nv.info";
        let mut kinds = Vec::new();
        for (format, code, value) in split(data).into_iter().filter(|_| matches!(s.ty, NV_INFO | NV_COMPAT)) {
            if s.ty == NV_COMPAT {
                out.push(format!(".nv.compat: {code} {value:02x?}"));
                continue;
            }
            let known = NAMES.iter().find(|n| n.0 == code);
            let (name, varies) = known.map_or((format!("{code:#x}"), true), |n| (n.1.to_string(), n.2));
            let words: Vec<u32> = value.chunks_exact(4).map(|w| number(w, 0, 4) as u32).collect();
            let symbolic = own || matches!(code, 0x0a | 0x0f);
            let first = match words.first() {
                Some(w) if symbolic => f.symbol_name(*w),
                _ => String::new(),
            };
            let rest = match (varies, symbolic) {
                (true, _) => String::new(),
                (false, true) => format!("{:x?}", words.get(1..).unwrap_or(&[])),
                (false, false) => format!("{value:02x?}"),
            };
            out.push(format!("{}: {name} format {format} {first} {rest}", s.name).trim_end().into());
            if kinds.last() != Some(&name) {
                kinds.push(name);
            }
        }
        // ptxas goes through the kernels one by one, so only the order within one is compared there.
        if s.ty == NV_INFO && !own {
            out.push(format!("order in {}: {}", s.name, kinds.join(" ")));
        }
        if s.ty == NV_INFO && own {
            let mut runs: Vec<String> = Vec::new();
            for k in kinds {
                if !runs.contains(&k) {
                    runs.push(k);
                }
            }
            out.push(format!("order in .nv.info: {}", runs.join(" ")));
        }
    }
}

/// A line without the names of kernels and variables, to count differences of one kind together.
pub fn kind(line: &str) -> String {
    let mut out = Vec::new();
    for word in line.split(' ') {
        let (bare, colon) = word.strip_suffix(':').map_or((word, ""), |w| (w, ":"));
        out.push(format!("{}{colon}", class(bare)));
    }
    if out.first().is_some_and(|w| w == "symbol") && out.get(1).is_some_and(|w| w != "of") {
        out[1] = "NAME:".into();
    }
    out.join(" ")
}
