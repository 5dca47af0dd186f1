//! Variables and functions that all programs know by a number, `.attribute(.unified(a, b))`: what objects say of them is what
//! ptxas's objects say.

use object::elf::FileHeader64;
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym};
use object::{LittleEndian as LE, SectionIndex, SymbolIndex};
use oxptxas::{Settings, Target};
use std::collections::BTreeSet;
use std::process::Command;

const MODULE: &str = ".extern .func .attribute(.unified(7, 8)) ext(.param .b32 p);
.extern .global .attribute(.unified(9, 10)) .b32 ev;
.visible .global .b32 v;
.visible .func .attribute(.unified(19, 95)) f(.param .b32 p) {
 .reg .b32 r; ld.param.b32 r, [p]; st.global.b32 [v], r; ret; }
.weak .func .attribute(.unified(20, 96)) w() { ret; }
.func .attribute(.unified(21, 97)) own() { ret; }
.visible .global .attribute(.unified(1, 2)) .b32 u;
.visible .global .attribute(.managed, .unified(5, 6)) .b32 m;
.visible .global .attribute(.unified(11, 12)) .b64 i = 77;
.visible .global .attribute(.unified(11, 13)) .u64 pf[3] = {f, u, v};
.visible .global .attribute(.unified(11, 14)) .u8 pb[2] = {0xff00(u), 0xff(v)};
.visible .global .u64 plain[2] = {u, generic(u)};
.visible .global .u8 plain_bytes[1] = {0xff00(u)};
.visible .entry k(.param .b64 o) {
 .reg .b64 d<9>; .reg .b32 r<9>;
 ld.param.b64 d1, [o];
 mov.b64 d2, f; mov.b64 d3, u; mov.b64 d4, ext; mov.b64 d5, ev; mov.b64 d6, pf; mov.b64 d7, i;
 st.global.b64 [d1], d2; st.global.b64 [d1+8], d3; st.global.b64 [d1+16], d4; st.global.b64 [d1+24], d5;
 st.global.b64 [d1+32], d6; st.global.b64 [d1+40], d7;
 ld.global.b32 r1, [m]; ld.global.b32 r2, [u]; add.s32 r1, r1, r2;
 { .param .b32 a; st.param.b32 [a], r1; call f, (a); }
 { .param .b32 a; st.param.b32 [a], r1; call ext, (a); }
 call w; call own; ret; }
";

/// What a linker needs of them, whatever the order of the file: lists, symbols, entries of the table, addresses.
fn said(file: &[u8]) -> BTreeSet<String> {
    let header = FileHeader64::<LE>::parse(file).unwrap();
    let sections = header.sections(LE, file).unwrap();
    let symbols = sections.symbols(LE, file, object::elf::SHT_SYMTAB).unwrap();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let name = |n: usize| text(symbols.symbol(SymbolIndex(n)).unwrap().name(LE, symbols.strings()).unwrap());
    let place = |n: usize| match sections.section(SectionIndex(n)) {
        Ok(s) => text(sections.section_name(LE, s).unwrap()),
        Err(_) => n.to_string(),
    };
    let mut out = BTreeSet::new();
    for s in symbols.iter() {
        let name = text(s.name(LE, symbols.strings()).unwrap());
        let of_tables = name.starts_with("__U") || name.starts_with("__cuda_uf_stub");
        let variable = s.st_info & 15 == 13;
        if of_tables || variable {
            let (info, other, size) = (s.st_info, s.st_other, s.st_size.get(LE));
            out.insert(format!("{name}: {info:#x} {other:#x} {size} {}", place(s.st_shndx(LE).into())));
        }
    }
    for (n, s) in sections.iter().enumerate() {
        let section = place(n);
        let data = s.data(LE, file).unwrap();
        let word = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().unwrap());
        let head = (s.sh_type(LE), s.sh_flags(LE), s.sh_addralign(LE), s.sh_entsize(LE));
        match section.as_str() {
            ".nv.udt.entry" | ".nv.uft.entry" => {
                out.insert(format!("{section} {head:?}"));
                for at in (0..data.len()).step_by(32) {
                    let symbol = symbols.symbol(SymbolIndex(word(at) as u32 as usize)).unwrap();
                    let at_symbol = word(at + 8) == symbol.st_value.get(LE);
                    let whose = text(symbol.name(LE, symbols.strings()).unwrap());
                    let flags = word(at) >> 32;
                    let number = (word(at + 16), word(at + 24));
                    out.insert(format!("{section} {whose}: {flags} {at_symbol} {number:?}"));
                }
            }
            ".nv.udt" => drop(out.insert(format!("{section} {head:?}"))),
            s if s.starts_with(".nv.uft.rel.") => drop(out.insert(format!("{section} {head:?} {data:x?}"))),
            _ => {}
        }
        let Some((entries, _)) = s.rela(LE, file).unwrap() else { continue };
        let (of, is_code) = (place(s.sh_info(LE) as usize), section.starts_with(".rela.text"));
        for r in entries.iter().filter(|_| !section.ends_with("frame")) {
            let (whose, ty) = (name(r.r_sym(LE, false) as usize), r.r_type(LE, false));
            // Where in code they are is everybody's own.
            let unified = (0x66..=0x71).contains(&ty);
            if !is_code || unified {
                out.insert(format!("{of}: {ty:#x} {whose} {}", r.r_addend(LE)));
            }
        }
    }
    let graph = cubin::graph::read(file).unwrap();
    let stubs = graph.calls.into_iter().filter(|c| c.0.starts_with("__"));
    out.extend(stubs.map(|(from, to)| format!("{from} calls {to}")));
    out.extend(graph.taken.iter().map(|(f, prototype)| format!("{f} is taken {prototype}")));
    out
}

fn source(sm: u8) -> String {
    format!(".version 9.0\n.target sm_{sm}\n.address_size 64\n{MODULE}")
}

fn ours(sm: u8) -> Vec<u8> {
    let settings = Settings { relocatable: true, ..Settings::new(Target::new(sm).unwrap()) };
    oxptxas::compile(&source(sm), "k.ptx", &settings)
        .unwrap_or_else(|f| panic!("{}", f.render("oxptxas")))
        .cubin
}

#[test]
fn objects_list_what_is_unified() {
    let said = said(&ours(90));
    for want in [
        ".nv.uft.entry f: 1 true (19, 95)",
        ".nv.uft.entry own: 1 true (21, 97)",
        ".nv.udt.entry m: 1 true (5, 6)",
        ".nv.udt: 0x66 v 0",
        ".nv.udt: 0x69 u 0",
        ".nv.global.init: 0x4 u 0",
        ".nv.global.init: 0x55 u 0",
        ".text.k: 0x70 ev 0",
        ".nv.uft.rel.w: 0x4b w 0",
        "__cuda_uf_stub_f calls f",
        "ext is taken #vi",
        "m: 0x1d 0x34 4 .nv.udt",
    ] {
        assert!(said.contains(want), "{want}: {said:#?}");
    }
    assert!(!said.iter().any(|s| s.contains("entry ext") || s.contains("entry ev")), "{said:#?}");
}

#[test]
fn objects_are_as_those_of_ptxas() {
    let Some(tools) = std::env::var_os("OXPTXAS_ORACLES") else { return };
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("unified");
    std::fs::create_dir_all(&folder).unwrap();
    for sm in [90, 100, 120] {
        std::fs::write(folder.join("k.ptx"), source(sm)).unwrap();
        let status = Command::new(std::path::Path::new(&tools).join("ptxas"))
            .current_dir(&folder)
            .args([&format!("-arch=sm_{sm}"), "-c", "k.ptx", "-o", "k.o"])
            .status()
            .unwrap();
        assert!(status.success());
        let (ours, theirs) = (said(&ours(sm)), said(&std::fs::read(folder.join("k.o")).unwrap()));
        let differ: Vec<_> = ours.symmetric_difference(&theirs).collect();
        assert!(differ.is_empty(), "sm_{sm}: {differ:#?}");
    }
}

#[test]
fn executables_have_none() {
    let declarations = [
        ".global .attribute(.unified(1, 2)) .b32 u;",
        ".visible .func .attribute(.unified(1, 2)) f() { ret; }",
        ".extern .func .attribute(.unified(1, 2)) f();",
    ];
    for text in declarations {
        let refused = |extensible| {
            let settings = Settings { extensible, ..Settings::new(Target::new(90).unwrap()) };
            let source = format!(".version 8.0\n.target sm_90\n.address_size 64\n{text}\n");
            oxptxas::compile(&source, "k.ptx", &settings).expect_err("refused").render("oxptxas")
        };
        for extensible in [false, true] {
            let said = refused(extensible);
            let want = "error   : Feature 'unified Functions' requires command line option '--compile-only'.";
            assert!(said.contains(want), "{said}");
        }
    }
}

/// The first declaration says whether something is unified; two numbers for one function are an error.
#[test]
fn declarations_agree() {
    let compile = |text: &str| {
        let settings = Settings { relocatable: true, ..Settings::new(Target::new(90).unwrap()) };
        let source = format!(".version 8.0\n.target sm_90\n.address_size 64\n{text}\n");
        match oxptxas::compile(&source, "k.ptx", &settings) {
            Ok(output) => {
                said(&output.cubin).into_iter().filter(|s| s.contains("entry f")).collect::<String>()
            }
            Err(f) => f.diagnostics.iter().map(|d| format!("{}\n", d.message)).collect(),
        }
    };
    let differ = |n: u8| {
        format!(
            "Mismatch between declaration and definition of function 'f', unified identifier-{n} differ\n"
        )
    };
    for (declared, defined, want) in [
        (".attribute(.unified(1, 2))", "", ".nv.uft.entry f: 1 true (1, 2)".to_string()),
        ("", ".attribute(.unified(1, 2))", String::new()),
        (".attribute(.unified(1, 2))", ".attribute(.unified(3, 4))", differ(1) + &differ(2)),
        (".attribute(.unified(1, 2))", ".attribute(.unified(1, 4))", differ(2)),
    ] {
        let text = format!(".visible .func {declared} f(); .visible .func {defined} f() {{ ret; }}");
        assert_eq!(compile(&text), want, "{text}");
    }
    let text = ".extern .global .attribute(.unified(1, 2)) .b32 f; .visible .global .b32 f;";
    assert_eq!(compile(text), ".nv.udt.entry f: 1 true (1, 2)");
    assert_eq!(compile(".extern .global .b32 f; .visible .global .attribute(.unified(1, 2)) .b32 f;"), "");
}
