//! `-g`: what a file has for debuggers, and where its own parts are resolved as ptxas 13.0.88 resolves them
//! (docs/cubin.md).

use object::{Object, ObjectSection};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debug").join(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn oxptxas(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oxptxas")).current_dir(dir).args(args).output().unwrap()
}

fn compile(name: &str, source: &str, args: &[&str]) -> Vec<u8> {
    let dir = folder(name);
    fs::write(dir.join("in.ptx"), source).unwrap();
    let out = oxptxas(&dir, &[args, &["in.ptx", "-o", "out.cubin"]].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    fs::read(dir.join("out.cubin")).unwrap()
}

fn contents(file: &[u8], section: &str) -> Vec<u8> {
    let file = object::File::parse(file).unwrap();
    let section = file.section_by_name(section).unwrap_or_else(|| panic!("no section {section}"));
    section.data().unwrap().to_vec()
}

fn names(file: &[u8]) -> Vec<String> {
    object::File::parse(file).unwrap().sections().map(|s| s.name().unwrap().to_string()).collect()
}

/// Entries of a table of relocations: the offset, the symbol's name, the type, what is added.
fn relocations(file: &[u8], table: &str) -> Vec<(u64, String, u32, i64)> {
    use object::ObjectSymbol;
    let data = contents(file, table);
    let elf = object::File::parse(file).unwrap();
    let number = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap());
    let size = if table.starts_with(".rela") { 24 } else { 16 };
    let mut out = Vec::new();
    for e in data.chunks(size) {
        let info = number(&e[8..16]);
        let symbol = elf.symbol_by_index(object::SymbolIndex((info >> 32) as usize)).unwrap();
        let mut name = symbol.name().unwrap().to_string();
        if name.is_empty() {
            let section = elf.section_by_index(symbol.section_index().unwrap()).unwrap();
            name = section.name().unwrap().to_string();
        }
        let addend = e.get(16..24).map_or(0, |b| number(b) as i64);
        out.push((number(&e[..8]), name, info as u32, addend));
    }
    out
}

/// What DWARF names stands in `.debug_info`; the rest of it is no DWARF.
const SOURCE: &str = "\
.version 7.8
.target sm_75
.address_size 64
.global .align 4 .b32 gg[4];
.const .align 4 .b32 cv[4];
.visible .entry k(.param .u64 p, .param .u32 n)
{
 .local .align 8 .b8 depot[24];
 .shared .align 4 .b32 s0[4];
 .shared .align 4 .b32 s1[4];
 .reg .b64 %rd<4>; .reg .b32 %r<4>;
 .loc 1 3 0
$L_begin:
 ld.param.u64 %rd1, [p];
 .loc 1 4 0
$L_one:
 ld.global.u32 %r1, [%rd1];
 st.local.u32 [depot+4], %r1;
 ld.shared.u32 %r2, [s0];
 ld.shared.u32 %r3, [s1];
 add.u32 %r2, %r2, %r3;
 ld.const.u32 %r3, [cv];
 add.u32 %r2, %r2, %r3;
 .loc 1 5 0
 mov.b32 %r3, %r2;
 .loc 1 6 0
 st.global.u32 [gg], %r3;
 st.global.u32 [%rd1+4], %r1;
 .loc 1 7 0
 ret;
$L_end:
}
.file 1 \"a.cu\"
.section .debug_info {
.b32 .debug_abbrev
.b32 .debug_line
here:
.b8 3
.b64 depot
.b8 3
.b64 gg
.b8 3
.b64 cv
.b8 3
.b64 s1
.b8 3
.b64 n
.b64 $L_begin
.b64 $L_end
.b64 $L_one
.b32 here
.b32 mark
.b32 $L_end-$L_begin
}
.section .debug_abbrev { .b8 1
mark: .b8 17,1,37,8,0,0,0
}
.section .debug_macinfo { .b8 0 }
.section .debug_frame { .b8 7 }
";

/// Where each field of the section is.
const DEPOT: usize = 8;
const GG: u64 = 18;
const CV: u64 = 27;
const S1: usize = 36;
const N: usize = 45;
const BEGIN: u64 = 53;
const ONE: u64 = 69;
const HERE: usize = 77;

fn number(data: &[u8], at: usize, bytes: usize) -> u64 {
    data[at..at + bytes].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

#[test]
fn sections_are_copied_and_resolved() {
    for (sm, reserved, bank0, rela) in
        [(75, 0, 0x160, ".rela"), (90, 0x400, 0x210, ".rela"), (120, 0x400, 0x380, ".rela")]
    {
        let arch = format!("-arch=sm_{sm}");
        let file = compile(&format!("exec{sm}"), SOURCE, &["-g", &arch]);
        let listed = names(&file);
        let from = listed.iter().position(|n| n == ".debug_line").unwrap();
        let want = [".debug_line", ".nv_debug_line_sass", ".nv_debug_ptx_txt"];
        assert_eq!(listed[from..from + 3], want);
        let from = listed.iter().position(|n| n == ".debug_abbrev").unwrap();
        assert_eq!(listed[from..from + 3], [".debug_abbrev", ".debug_info", ".debug_macinfo"]);
        assert_eq!(listed.iter().filter(|n| *n == ".debug_frame").count(), 1);

        let info = contents(&file, ".debug_info");
        assert_eq!(info[..8], [0; 8]);
        // The frame has 24 bytes, or 32 where kernels round up: DW_OP_fbreg, no operation behind it.
        let frame = info[DEPOT + 1];
        assert_eq!(info[DEPOT], 0x91);
        assert!([0x68, 0x60].contains(&frame), "{frame:#x}");
        assert_eq!(info[DEPOT + 2..DEPOT + 9], [0x96; 7]);
        assert_eq!(number(&info, S1, 8), reserved + 16);
        assert_eq!(number(&info, N, 8), bank0 + 8);
        assert_eq!(number(&info, HERE, 4), 8);
        assert_eq!(number(&info, HERE + 4, 4), 1);

        let entries = relocations(&file, &format!("{rela}.debug_info"));
        let of = |at| entries.iter().find(|e| e.0 == at).unwrap_or_else(|| panic!("{at}")).clone();
        assert_eq!(of(GG), (GG, "gg".into(), 2, 0));
        assert_eq!(of(CV), (CV, "cv".into(), 4, 0));
        assert_eq!(of(BEGIN), (BEGIN, "k".into(), 2, 0));
        let size = contents(&file, ".text.k").len() as i64;
        assert_eq!(of(BEGIN + 8), (BEGIN + 8, "k".into(), 2, size));
        let one = of(ONE).3;
        assert!(0 < one && one < size && one % 16 == 0, "{one:#x}");
        assert_eq!(entries.len(), 5);
        assert_eq!(number(&info, HERE + 8, 4), size as u64);
        // Every `.loc` has a row, that of copies, too; the prologue is the first's.
        let lines = cubin::read_lines::rows(&contents(&file, ".debug_line")).unwrap().remove(0);
        assert_eq!(lines.iter().map(|l| l.1).collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
        assert_eq!((lines[0].0, lines[1].0), (0, one as u64));
    }
}

#[test]
fn objects_leave_addresses_to_the_linker() {
    for (sm, reserved) in [(75, 0), (90, 0x400)] {
        let file = compile(&format!("object{sm}"), SOURCE, &["-g", "-c", &format!("-arch=sm_{sm}")]);
        let tables = if sm == 75 { &[".rel", ".rela"][..] } else { &[".rela"] };
        let entries: Vec<_> =
            tables.iter().flat_map(|t| relocations(&file, &format!("{t}.debug_info"))).collect();
        let of = |at| entries.iter().find(|e| e.0 == at).unwrap_or_else(|| panic!("{at}")).clone();
        assert_eq!(of(0), (0, ".debug_abbrev".into(), 1, 0));
        assert_eq!(of(4), (4, ".debug_line".into(), 1, 0));
        let (_, name, kind, addend) = of(S1 as u64);
        assert!(name.contains("s1"), "{name}");
        assert_eq!((kind, addend), (2, reserved));
        assert_eq!(of(HERE as u64 + 4), (HERE as u64 + 4, ".debug_abbrev".into(), 1, 1));
        assert_eq!(of(GG).1, "gg");
    }
}

#[test]
fn the_target_asks_for_it_as_the_option_does() {
    let debug = SOURCE.replace("sm_75", "sm_75, debug");
    let of = |name: &str, source: &str, args: &[&str]| {
        let file = compile(name, source, &[args, &["-arch=sm_90"]].concat());
        (contents(&file, ".text.k"), names(&file))
    };
    let option = of("option", SOURCE, &["-g"]);
    assert_eq!(of("target", &debug, &[]), option);
    assert_eq!(of("both", &debug, &["-g", "--dont-merge-basicblocks", "--return-at-end"]), option);
    let suppressed = of("suppressed", SOURCE, &["-g", "-suppress-debug-info"]);
    assert_eq!(suppressed.0, option.0);
    assert!(!suppressed.1.iter().any(|n| n.starts_with(".debug_info") || n.starts_with(".nv_debug")));
}

#[test]
fn what_it_says() {
    let dir = folder("messages");
    let bare = SOURCE.split(".file 1").next().unwrap();
    fs::write(dir.join("bare.ptx"), bare).unwrap();
    fs::write(dir.join("info.ptx"), format!("{bare}.section .debug_info {{ .b8 0 }}\n")).unwrap();
    fs::write(dir.join("debug.ptx"), bare.replace("sm_75", "sm_75, debug")).unwrap();
    let missing = |name: &str| format!("oxptxas warning :  {name} section not found\n");
    // Its lines are of no file.
    let lines = "oxptxas warning : .loc directive without .file directive is found, line information in generated binary may not be complete\n";
    let both = lines.to_string() + &missing(".debug_abbrev") + &missing(".debug_info");
    let conflict = |with: &str| format!("oxptxas warning : Conflicting options {with} option\n{both}");
    let fatal = "oxptxas fatal   : Optimized debugging not supported\n".to_string();
    for (args, want, good) in [
        (&["-g", "bare.ptx"][..], both.clone(), true),
        (&["-g", "-O0", "bare.ptx"], both.clone(), true),
        (&["-g", "-O2", "bare.ptx"], fatal, false),
        (
            &["-g", "-lineinfo", "bare.ptx"],
            conflict("--device-debug and --generate-line-info specified, ignoring --generate-line-info"),
            true,
        ),
        (
            &["-g", "-Ofc=max", "bare.ptx"],
            conflict(
                "'--device-debug' and '--Ofast-compile=<min,mid,max>' specified, ignoring '--Ofast-compile=<min,mid,max>'",
            ),
            true,
        ),
        (
            &["-g", "info.ptx"],
            lines.to_string()
                + &missing(".debug_abbrev")
                + "oxptxas info    : skipping .debug_info section due to missing .debug_abbrev section\n",
            true,
        ),
        // Options that conflict end it where warnings are errors.
        (
            &["-g", "-lineinfo", "-Werror", "bare.ptx"],
            "oxptxas error   : Conflicting options --device-debug and --generate-line-info specified, ignoring --generate-line-info option\n\
             oxptxas fatal   : Ptx assembly aborted due to errors\n".into(),
            false,
        ),
        (&["-g", "-suppress-debug-info", "info.ptx"], lines.to_string() + &missing(".debug_abbrev"), true),
    ] {
        let out = oxptxas(&dir, &[&["-arch=sm_90"], args].concat());
        assert_eq!(String::from_utf8_lossy(&out.stderr), want, "{args:?}");
        assert_eq!(out.status.success(), good, "{args:?}");
    }
    let out = oxptxas(&dir, &["-arch=sm_90", "debug.ptx"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("Debug information not found"));
    assert!(!out.status.success());
}

/// The end of a kernel has the line of its `ret`, not of what stands before it, where others branch to it, too.
#[test]
fn ends_have_lines_of_their_own() {
    let source = ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u32 n)\n{\n\
        .reg .pred q; .reg .b32 r; .reg .b64 a;\n.loc 1 5 1\nld.param.u32 r, [n]; setp.eq.u32 q, r, 0; @q bra DONE;\n\
        .loc 1 6 1\nld.param.u64 a, [p]; st.global.u32 [a], r;\nDONE:\n.loc 1 9 1\nret;\n}\n.file 1 \"k.cu\"\n";
    let file = compile("ends", source, &["-lineinfo", "-arch=sm_90"]);
    let lines = cubin::read_lines::rows(&contents(&file, ".debug_line")).unwrap().remove(0);
    assert_eq!(lines.last().map(|l| l.1), Some(9), "{lines:?}");
    assert!(lines.iter().any(|l| l.1 == 6));
}

/// Threads wait for what they have written, and for their errors, before they end; that is never under a guard.
#[test]
fn exits_wait_for_errors() {
    use sass::{Guard, Opcode};
    let source =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/saxpy.ptx")).unwrap();
    for (arch, before) in [
        ("sm_75", &[Opcode::MEMBAR, Opcode::ERRBAR][..]),
        ("sm_90", &[Opcode::MEMBAR, Opcode::ERRBAR, Opcode::CGAERRBAR]),
    ] {
        let file = compile("exits_wait", &source, &["-g", &format!("-arch={arch}")]);
        let target = sass::Target::parse(arch).unwrap();
        let code = cubin::read::code_ranges(&file).unwrap()["saxpy"].clone();
        let words = file[code].chunks_exact(16).map(|w| u128::from_le_bytes(w.try_into().unwrap()));
        let insts: Vec<_> =
            (0..).step_by(16).zip(words).map(|(pc, w)| sass::decode(w, target, pc).unwrap()).collect();
        let exits: Vec<usize> = (0..insts.len()).filter(|k| insts[*k].op == Opcode::EXIT).collect();
        assert!(!exits.is_empty());
        for k in exits {
            let there: Vec<Opcode> = insts[k - before.len()..k].iter().map(|i| i.op).collect();
            assert_eq!(there, before, "{arch}");
            assert!(insts[k - before.len()..=k].iter().all(|i| i.guard == Guard::TRUE));
        }
    }
}

/// When a source was changed and its size, 32 bits of each, as in ptxas's table.
#[test]
fn times_and_sizes_of_sources() {
    let dir = folder("times");
    let source = ".version 8.5\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n.loc 1 4 3\nret;\n}\n\
        .file 1 \"/tmp/x.cu\", 1700000000, 345\n.file 2 \"/tmp/y.cu\", 4294967299\n";
    fs::write(dir.join("in.ptx"), source).unwrap();
    for args in [&["-lineinfo"][..], &["-lineinfo", "-c"], &["-g"]] {
        let out = oxptxas(&dir, &[args, &["-arch=sm_90", "in.ptx", "-o", "times.cubin"]].concat());
        assert!(out.status.success());
        let file = fs::read(dir.join("times.cubin")).unwrap();
        // A name, its folder, time and size, 7 bits a byte.
        let entries = b"x.cu\0\x01\x80\xe2\xcf\xaa\x06\xd9\x02y.cu\0\x01\x03\x00";
        assert!(file.windows(entries.len()).any(|w| w == entries), "{args:?}");
    }
}
