//! Addresses in initializers: whole, byte by byte (`0xff00(symbol)`) and in `.u32`, of functions, kernels, variables, constants and
//! textures, in executables, objects and with `-g`.

use contract::elf::{Elf, number};
use oxptxas::{Settings, compile};
use oxsass::verify::{self, Verdict};
use sass::Target;
use std::path::PathBuf;
use std::process::Command;

/// A module with the variable `x` of this type and these first contents.
fn module(target: &str, ty: &str, init: &str) -> String {
    format!(
        ".version 8.8
.target {target}
.address_size 64
.global .texref tx;
.global .surfref sf;
.func (.param .b32 r) pad(.param .b32 a) {{ .reg .b32 %r; ld.param.b32 %r, [a]; add.s32 %r, %r, 3; st.param.b32 [r], %r; ret; }}
.func (.param .b32 r) foo(.param .b32 a) {{ .reg .b32 %r; ld.param.b32 %r, [a]; add.s32 %r, %r, 1; st.param.b32 [r], %r; ret; }}
.entry k2() {{ ret; }}
.global .u32 g[4] = {{5, 6, 7, 8}};
.const .u32 c0[4] = {{1, 2, 3, 4}};
.const .u32 c[4] = {{5, 6, 7, 8}};
.global .align 8 {ty} x[] = {{ {init} }};
.visible .entry k(.param .u64 p) {{ .reg .u64 %a, %b; ld.param.u64 %a, [p]; mov.u64 %b, x; st.global.u64 [%a], %b; ret; }}
"
    )
}

fn ours(source: &str, target: &str, option: &str) -> Vec<u8> {
    let mut settings = Settings::new(Target::parse(target).expect("is one"));
    match option {
        "-c" => settings.relocatable = true,
        "-g" => (settings.debug, settings.opt_level) = (true, 0),
        _ => {}
    }
    compile(source, "x.ptx", &settings).unwrap_or_else(|e| panic!("{target} {option}: {e}\n{source}")).cubin
}

fn theirs(source: &str, target: &str, option: &str) -> Option<Vec<u8>> {
    let tools = PathBuf::from(std::env::var_os("OXPTXAS_ORACLES")?);
    let dir = tempfile::tempdir().expect("there is room");
    let at = |name| dir.path().join(name);
    std::fs::write(at("x.ptx"), source).expect("can be written");
    let mut ptxas = Command::new(tools.join("ptxas"));
    ptxas
        .args(option.split_whitespace())
        .arg(format!("-arch={target}"))
        .arg(at("x.ptx"))
        .arg("-o")
        .arg(at("x"));
    let run = ptxas.output().expect("runs");
    assert!(run.status.success(), "{}\n{source}", String::from_utf8_lossy(&run.stderr));
    Some(std::fs::read(at("x")).expect("is there"))
}

/// What is filled into `x`, by the place in it, and the bytes that it has.
fn said(file: &[u8]) -> (Vec<String>, Vec<u8>) {
    let elf = Elf::new(file).expect("is a cubin");
    let x = elf.symbols.iter().find(|s| s.name == "x").expect("is a variable");
    let inside = x.value..x.value + x.size;
    let mut relocs = Vec::new();
    for s in elf.sections.iter().filter(|s| s.name.starts_with(".rel") && s.name.ends_with(".nv.global.init"))
    {
        for e in elf.bytes(s).chunks(s.entsize as usize) {
            let (at, info) = (number(e, 0, 8), number(e, 8, 8));
            let addend = if e.len() == 24 { number(e, 16, 8) } else { 0 };
            let symbol = elf.symbol_name((info >> 32) as u32);
            if inside.contains(&at) {
                relocs.push(format!("{:#x} {:#x} {symbol} {addend}", at - x.value, info as u32));
            }
        }
    }
    relocs.sort();
    let data = elf.sections.iter().find(|s| s.name == ".nv.global.init").expect("has contents");
    (relocs, elf.bytes(data)[inside.start as usize..inside.end as usize].to_vec())
}

/// Addresses of 8 bytes and of one, as ptxas 13.0.88 has them.
const WHOLE: [(&str, &str); 20] = [
    (".u64", "foo"),
    (".u64", "k2"),
    (".u64", "g, g+4"),
    (".u64", "c, c+4"),
    (".u64", "generic(g), generic(c)+8"),
    (".u64", "tx, sf"),
    (".u64", "generic(tx), tx+8"),
    (".u8", "0xff(foo), 0xff00(foo), 0xff0000(foo), 0xff000000(foo), 7"),
    (".u8", "0xff00000000(foo), 0xff0000000000(foo), 0xff000000000000(foo), 0xff00000000000000(foo)"),
    (".u8", "0xff(k2), 0xff00(k2), 0xff00000000000000(k2)"),
    (".u8", "1, 0xff(g), 0xff00(g), 0xff00000000000000(g), 2"),
    (".u8", "0xff(generic(g)), 0xff00(generic(g)+4)"),
    (".u8", "0xff(g+4), 0xff00(g+260)"),
    (".u8", "0xff(c), 0xff00(c+4), 0xff00(c+260)"),
    (".u8", "0xff(generic(c)), 0xff00(generic(c)+260)"),
    (".u8", "0xff(tx), 0xff00(sf)"),
    (".u32", "0xff(foo), 0xff00(g), 3"),
    (".u64", "0xff(foo), 0xff00(g), 3"),
    (".u32", "c, c+4"),
    (".u32", "0xff(c), 0xff0000(generic(c))"),
];

#[test]
fn addresses_are_filled_in_as_ptxas_does() {
    for (ty, init) in WHOLE {
        for target in ["sm_75", "sm_90", "sm_120"] {
            for option in ["", "-c", "-g"] {
                let source = module(target, ty, init);
                let own = said(&ours(&source, target, option));
                // Both halves of an offset of a constant in a `.u32` of an object, see below.
                if (ty, option) == (".u32", "-c") && init == "c, c+4" {
                    continue;
                }
                let Some(reference) = theirs(&source, target, option) else { return };
                assert_eq!(own, said(&reference), "{target} {option}: {ty} {init}");
            }
        }
    }
}

/// Types of relocation of one byte, and the numbers of functions in executables, known without the tools.
#[test]
fn bytes_have_relocations_of_their_own() {
    let of = |target: &str, option: &str, ty: &str, init: &str| {
        said(&ours(&module(target, ty, init), target, option))
    };
    let masks = |name: &str| format!("0xff({name}), 0xff00({name}), 0xff00000000000000({name})");
    let types = |first: u32, name: &str| {
        vec![
            format!("0x0 {first:#x} {name} 0"),
            format!("0x1 {:#x} {name} 0", first + 1),
            format!("0x2 {:#x} {name} 0", first + 7),
        ]
    };
    for (target, function) in [("sm_75", 0x4c), ("sm_90", 0x68)] {
        assert_eq!(of(target, "-c", ".u8", &masks("foo")).0, types(function, "foo"));
        assert_eq!(of(target, "-g", ".u8", &masks("foo")).0, types(0x4c, "foo"));
        assert_eq!(of(target, "-c", ".u8", &masks("c")).0, types(0x4c, "c"));
        for option in ["", "-c", "-g"] {
            assert_eq!(of(target, option, ".u8", &masks("k2")).0, types(0x5c, "k2"));
            assert_eq!(of(target, option, ".u8", &masks("g")).0, types(0x54, "g"));
            assert_eq!(of(target, option, ".u8", &masks("tx")).0, types(0x54, "tx"));
        }
        // The first function whose address is taken is number 8, and the second constant is at 16.
        assert_eq!(of(target, "", ".u8", &masks("foo")), (vec![], vec![8, 0, 0]));
        assert_eq!(of(target, "", ".u32", "foo, c"), (vec![], vec![8, 0, 0, 0, 16, 0, 0, 0]));
        assert_eq!(of(target, "", ".u8", "0xff(c+260), 0xff00(c+260)"), (vec![], vec![20, 1]));
    }
}

/// A `.u32` has the lower half of an address, byte by byte: ptxas relocates eight bytes of it, and so what lies behind.
#[test]
fn half_an_address_leaves_the_rest_alone() {
    for (name, option, first) in [
        ("g", "", 0x54),
        ("g", "-c", 0x54),
        ("foo", "-c", 0x68),
        ("foo", "-g", 0x4c),
        ("k2", "", 0x5c),
        ("c", "-c", 0x4c),
        ("tx", "", 0x54),
    ] {
        let (relocs, bytes) =
            said(&ours(&module("sm_90", ".u32", &format!("9, {name}, 7")), "sm_90", option));
        let expected: Vec<String> =
            (0..4).map(|n| format!("{:#x} {:#x} {name} 0", 4 + n, first + n)).collect();
        assert_eq!((relocs, bytes), (expected, vec![9, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0]), "{name} {option}");
    }
}

/// A pointer that is put together of eight bytes calls its function, and one to a variable reads it.
#[test]
fn pointers_of_bytes_are_pointers() {
    let masks = |name: &str| {
        (0..8).map(|n| format!("{:#x}({name})", 0xffu64 << (8 * n))).collect::<Vec<_>>().join(", ")
    };
    let source = |target: &str| {
        format!(
            ".version 8.8
.target {target}
.address_size 64
.func (.param .b32 r) pad(.param .b32 a) {{ .reg .b32 %r; ld.param.b32 %r, [a]; add.s32 %r, %r, 3; st.param.b32 [r], %r; ret; }}
.func (.param .b32 r) foo(.param .b32 a) {{ .reg .b32 %r; ld.param.b32 %r, [a]; mad.lo.s32 %r, %r, 5, 1; st.param.b32 [r], %r; ret; }}
.global .u32 g[4] = {{5, 6, 7, 8}};
.const .u32 c[4] = {{50, 60, 70, 80}};
.global .u64 t = pad;
.global .align 8 .u8 x[] = {{ {}, {}, {} }};
.global .align 8 .u32 h[4] = {{ c, 0, c+4, 3 }};
.visible .entry k(.param .u64 p, .param .u32 n) {{
.reg .u64 %p, %a, %b; .reg .b32 %r, %s;
ld.param.u64 %p, [p]; ld.param.u32 %r, [n];
ld.global.u64 %a, [x];
{{ .param .b32 q; .param .b32 w; st.param.b32 [q], %r;
 P: .callprototype (.param .b32 _) _ (.param .b32 _);
 call (w), %a, (q), P; ld.param.b32 %r, [w]; }}
ld.global.u64 %b, [x+8]; ld.u32 %s, [%b+4]; mad.lo.s32 %r, %r, 10, %s;
ld.global.u64 %b, [x+16]; ld.u32 %s, [%b+8]; mad.lo.s32 %r, %r, 10, %s;
ld.global.u64 %b, [h+8]; cvt.u32.u64 %s, %b; cvt.u64.u32 %b, %s; ld.const.u32 %s, [%b]; mad.lo.s32 %r, %r, 10, %s;
st.global.u32 [%p], %r; ret; }}
",
            masks("foo"),
            masks("g"),
            masks("generic(c)")
        )
    };
    for target in ["sm_75", "sm_90", "sm_120"] {
        let source = source(target);
        for option in ["", "-g"] {
            let module = verify::module(&source, Target::parse(target).expect("is one")).expect("is PTX");
            for cubin in
                [Some(ours(&source, target, option)), theirs(&source, target, option)].into_iter().flatten()
            {
                let verdict = verify::kernel(&module, &source, &cubin, "k", 0..4);
                assert!(matches!(verdict, Verdict::Same), "{target} {option}: {verdict}");
            }
        }
    }
}

/// As for ptxas, other types hold no addresses, masks are of one byte, and functions have no generic addresses and no parts.
#[test]
fn what_is_no_address() {
    for (ty, init) in [
        (".b32", "foo"),
        (".s64", "foo"),
        (".u16", "g"),
        (".u8", "g"),
        (".f32", "foo"),
        (".b8", "0xff(foo)"),
        (".u16", "0xff(g)"),
        (".b64", "0xff(g)"),
        (".u8", "0xffff(g)"),
        (".u8", "0xfe(g)"),
        (".u8", "0xff(foo+4)"),
        (".u8", "0xff(generic(foo))"),
    ] {
        let settings = Settings::new(Target::new(75).expect("is one"));
        assert!(compile(&module("sm_75", ty, init), "x.ptx", &settings).is_err(), "{ty} {init}");
    }
}
