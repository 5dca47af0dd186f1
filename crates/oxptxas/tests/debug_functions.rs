//! `-g`: device functions stand once in a file, in sections of their own, whoever calls them, so that what debug information says of
//! their addresses is true in every kernel (docs/cubin.md; ptxas 13.0.88 does the same).

use cubin::attrs::Attr;
use object::{Object, ObjectSection, ObjectSymbol};
use oxptxas::Settings;
use oxsass::places::Debugged;
use sass::Target;
use sim::launch::LaunchFile;

const HEADER: &str = ".version 7.8\n.target sm_75\n.address_size 64\n";

/// A function of one argument and one result, with labels around its code.
fn function(name: &str, code: &str) -> String {
    format!(
        ".func (.param .b32 r) {name}(.param .b32 a)\n{{\n.reg .b32 %r<9>; .reg .pred %p;\n${name}_begin:\nld.param.b32 %r1, [a];\n\
         {code}\nst.param.b32 [r], %r1;\nret;\n${name}_end:\n}}\n"
    )
}

const PROTOTYPE: &str = "P: .callprototype (.param .b32 _) _ (.param .b32 _);";

/// The call of a function, or through a pointer.
fn call(callee: &str, prototype: &str) -> String {
    format!(
        "{{\n.param .b32 x;\n.param .b32 y;\nst.param.b32 [x], %r1;\n{}\ncall (y), {callee}, (x){};\nld.param.b32 %r1, [y];\n}}",
        if prototype.is_empty() { "" } else { PROTOTYPE },
        prototype
    )
}

fn kernel(name: &str, code: &str) -> String {
    format!(
        ".visible .entry {name}(.param .u64 p)\n{{\n.reg .b32 %r<9>; .reg .b64 %d<9>;\nld.param.u64 %d1, [p];\n\
         ld.global.u32 %r1, [%d1];\n{code}\nst.global.u32 [%d1], %r1;\nret;\n}}\n"
    )
}

/// `k1` and `k2` call `f`, `k3` calls it by way of `g` and, through a table, `h`; `k4` calls what calls itself; nothing calls `unused`.
fn source() -> String {
    let through_table = "ld.global.u64 %d2, [table+8];\n".to_string() + &call("%d2", ", P");
    let again =
        "setp.eq.u32 %p, %r1, 0;\n@%p bra E;\nshr.u32 %r1, %r1, 1;\n".to_string() + &call("again", "");
    [
        HEADER.to_string(),
        function("f", "mul.lo.u32 %r2, %r1, %r1;\nadd.u32 %r1, %r2, 3;"),
        function("g", &(call("f", "") + "\nadd.u32 %r1, %r1, 1;")),
        function("h", "xor.b32 %r1, %r1, 5;"),
        function("unused", "not.b32 %r1, %r1;"),
        ".func (.param .b32 r) again(.param .b32 a);\n".into(),
        function("again", &(again + "\nE: add.u32 %r1, %r1, 1;")),
        ".global .align 8 .u64 table[2] = {f, h};\n".into(),
        kernel("k1", &call("f", "")),
        kernel("k2", &(call("f", "") + "\nadd.u32 %r1, %r1, 7;")),
        kernel("k3", &(call("g", "") + &through_table)),
        kernel("k4", &call("again", "")),
        ".section .debug_abbrev {\n.b8 0\n}\n.section .debug_info {\n.b64 $f_begin\n.b64 $f_end\n.b64 $unused_begin\n}\n".into(),
    ]
    .concat()
}

fn compile(source: &str, sm: u8) -> Vec<u8> {
    let settings = Settings { debug: true, ..Settings::new(Target::new(sm).unwrap()) };
    oxptxas::compile(source, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render("oxptxas"))).cubin
}

/// The relocations for a section: offset, symbol, type, addend (0 where the table has none).
fn relocations(file: &[u8], section: &str) -> Vec<(u64, String, u64, u64)> {
    let elf = object::File::parse(file).unwrap();
    let number = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap());
    let mut out = Vec::new();
    for (prefix, size) in [(".rela", 24), (".rel", 16)] {
        let Some(table) = elf.section_by_name(&format!("{prefix}{section}")) else { continue };
        for e in table.data().unwrap().chunks(size) {
            let info = number(&e[8..16]);
            let symbol = elf.symbol_by_index(object::SymbolIndex((info >> 32) as usize)).unwrap();
            let addend = e.get(16..24).map_or(0, number);
            out.push((number(&e[..8]), symbol.name().unwrap().into(), info & 0xffff_ffff, addend));
        }
    }
    out.sort_unstable();
    out
}

#[test]
fn functions_stand_once_in_the_file() {
    let source = source();
    for (sm, label, table) in
        [(75, 0x3a, ".rela"), (86, 0x3a, ".rela"), (90, 0x4b, ".rela"), (120, 0x4b, ".rela")]
    {
        let file = compile(&source, sm);
        let elf = object::File::parse(&file[..]).unwrap();
        assert_eq!(elf.kind(), object::ObjectKind::Executable);
        let texts: Vec<_> = elf
            .sections()
            .filter_map(|s| s.name().unwrap().strip_prefix(".text.").map(String::from))
            .collect();
        assert_eq!(texts, ["k1", "k2", "k3", "k4", "f", "g", "h", "unused", "again"], "sm_{sm}");
        assert!(elf.symbols().all(|s| !s.name().unwrap().starts_with('$')), "sm_{sm}");

        // A call is left to the driver, with the place to return to.
        for k in ["k1", "k2"] {
            let relocs = relocations(&file, &format!(".text.{k}"));
            let [low, high, to] = &relocs[..] else { panic!("sm_{sm} {k}: {relocs:?}") };
            assert_eq!((&*to.1, to.2, to.3), ("f", label, 0));
            assert_eq!((&*low.1, low.2, low.3), (k, 0x38, to.0 + 16));
            assert_eq!((&*high.1, high.2, high.3), (k, 0x39, to.0 + 16));
        }
        // Tables hold addresses.
        let table: Vec<_> = {
            assert!(elf.section_by_name(&format!("{table}.text.k1")).is_some());
            relocations(&file, ".nv.global.init").into_iter().map(|r| (r.0, r.1, r.2)).collect()
        };
        assert_eq!(table, [(0, "f".to_string(), 2), (8, "h".to_string(), 2)], "sm_{sm}");
        // What the PTX says of places is said of the one function.
        let size = elf.symbols().find(|s| s.name() == Ok("f")).unwrap().size();
        let places = relocations(&file, ".debug_info");
        let places: Vec<_> = places.iter().map(|r| (&*r.1, r.3)).collect();
        assert_eq!(places, [("f", 0), ("f", size), ("unused", 0)], "sm_{sm}");
        let lines: Vec<_> = relocations(&file, ".nv_debug_line_sass").into_iter().map(|r| r.1).collect();
        assert_eq!(lines, texts, "sm_{sm}");

        let image = cubin::read::read(&file).unwrap();
        let number = |name: &str| elf.symbols().find(|s| s.name() == Ok(name)).unwrap().index().0 as u32;
        let stack = |k: &str| image.kernels[k].words(Attr::MinStackSize).unwrap();
        let frame = |k: &str| image.kernels[k].words(Attr::FrameSize).unwrap();
        // What calls itself has no bound; else it is the sum of the deepest chain.
        assert_eq!(stack("k4"), [u32::MAX]);
        assert_eq!(image.kernels["k4"].words(Attr::CrsStackSize).unwrap(), [u32::MAX]);
        assert_eq!(stack("k3")[0], frame("k3")[0] + frame("g")[0] + frame("f")[0]);
        assert!(frame("g")[0] > 0 && image.kernels["f"].words(Attr::MinStackSize).is_none());
        assert!(image.kernels["k1"].registers >= image.kernels["f"].registers);
        assert!(image.kernels["k1"].entry && !image.kernels["f"].entry);
        // Who calls whom, whose address is taken, who calls through pointers, who takes whose address.
        let graph = elf.section_by_name(".nv.callgraph").unwrap().data().unwrap();
        let words: Vec<u32> = graph.chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
        let mark = |n: i32| [0, -n as u32];
        let pair = |a: &str, b: &str| [number(a), number(b)];
        let taken = {
            let mut taken = [number("f"), number("h")];
            taken.sort_unstable();
            taken.map(|n| [n, 1])
        };
        let takes = {
            let mut takes = ["f", "h"];
            takes.sort_unstable();
            takes.map(|n| pair("k3", n))
        };
        let want = [
            &[
                mark(1),
                pair("k1", "f"),
                pair("k2", "f"),
                pair("k3", "g"),
                pair("k4", "again"),
                pair("g", "f"),
            ][..],
            &[pair("again", "again"), mark(2)],
            &taken,
            &[mark(3), [number("k3"), 1], mark(4)],
            &takes,
        ];
        assert_eq!(words.chunks(2).collect::<Vec<_>>(), want.concat(), "sm_{sm}");
    }
}

/// In each kernel that calls a function a debugger finds its registers, and code does what the PTX says.
#[test]
fn every_kernel_finds_the_registers_of_a_function() {
    let source = source();
    for sm in [75, 90, 120] {
        let debugged = Debugged::new(&source, Target::new(sm).unwrap()).unwrap();
        // Statements: those of the kernel, and those of the functions that it reaches; in front of some nothing is alive.
        for (kernel, least) in [("k1", 7 + 5), ("k2", 8 + 5), ("k3", 10 + 5 + 6 + 4), ("k4", 7 + 8)] {
            let launch = format!(
                "[[launch]]\nkernel = \"{kernel}\"\ngrid = [1, 1, 1]\nblock = [1, 1, 1]\nargs = [{{ buffer = \"p\" }}]\n\
                 [launch.buffers.p]\ntype = \"u32\"\nlength = 1\nfill = 11\ncompare = \"exact\"\n"
            );
            let launch = &LaunchFile::parse(&launch).unwrap().launch[0];
            let done = debugged.check(launch).unwrap_or_else(|e| panic!("sm_{sm} {kernel}: {e:?}"));
            assert!(done.stops >= least && done.values >= least / 2, "sm_{sm} {kernel}: {done:?}");
        }
    }
}

/// Many kernels that call a function have no copies of it.
#[test]
fn kernels_do_not_grow_by_what_they_call() {
    let long: String =
        (0..500).map(|n| format!("add.u32 %r1, %r1, {n};\nxor.b32 %r1, %r1, %r1;\n")).collect();
    let size = |kernels: usize| {
        let kernels: String = (0..kernels).map(|n| kernel(&format!("k{n}"), &call("f", ""))).collect();
        let file = compile(&(HEADER.to_string() + &function("f", &long) + &kernels), 86);
        let elf = object::File::parse(&file[..]).unwrap();
        let code = elf.section_by_name(".text.f").unwrap().size() as usize;
        (file.len(), code)
    };
    let ((few, code), (many, _)) = (size(2), size(22));
    assert!(code > 16_000 && (many - few) / 20 < 3_000, "{few} bytes, {many} bytes, {code} of the function");
}

/// What nothing calls is in the file all the same, unless it names textures: their words are those of kernels.
#[test]
fn functions_that_nothing_calls_are_compiled() {
    let shared =
        "mov.u32 %r2, %tid.x;\nst.shared.u32 [s], %r1;\nld.const.u32 %r2, [c];\nadd.u32 %r1, %r1, %r2;";
    let fetch = ".reg .f32 %f<4>;\ntex.2d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [t, {%r1, %r1}];\ncvt.rni.s32.f32 %r1, %f0;";
    let variables = ".global .texref t;\n.shared .align 4 .b32 s;\n.const .align 4 .b32 c = 5;\n.extern .shared .b8 more[];\n";
    let dynamic = "st.shared.u32 [more+4], %r1;";
    for sm in [75, 90, 120] {
        let source = [
            HEADER,
            variables,
            &function("a", shared),
            &function("b", fetch),
            &function("d", dynamic),
            &kernel("k", ""),
        ]
        .concat();
        let file = compile(&source, sm);
        let elf = object::File::parse(&file[..]).unwrap();
        let has = |name: &str| elf.section_by_name(name).is_some();
        assert!(has(".text.a") && has(".text.d") && !has(".text.b"), "sm_{sm}");
        let source = source.replace(&kernel("k", ""), &kernel("k", &call("b", "")));
        let file = compile(&source, sm);
        let elf = object::File::parse(&file[..]).unwrap();
        assert!(elf.section_by_name(".text.b").is_some(), "sm_{sm}");
    }
}

/// The driver's functions are called in the form of objects where the module has none of its own, too.
#[test]
fn kernels_alone_call_the_driver() {
    let source = ".version 8.6\n.target sm_75\n.address_size 64\n\
                  .extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
                  .visible .entry k(.param .b64 p)\n{\n.reg .b64 %q0;\nld.param.b64 %q0, [p];\n\
                  { .param .b64 a; .param .b64 b; .param .b32 c;\nst.param.b64 [a], %q0;\nst.param.b64 [b], %q0;\ncall (c), vprintf, (a, b); }\nret;\n}\n";
    for sm in [75, 90, 120] {
        let settings = Settings { debug: true, opt_level: 0, ..Settings::new(Target::new(sm).unwrap()) };
        let cubin = oxptxas::compile(source, "printf.ptx", &settings)
            .unwrap_or_else(|e| panic!("sm_{sm}: {e:?}"))
            .cubin;
        let file = object::File::parse(&*cubin).unwrap();
        assert!(file.symbols().any(|s| s.name() == Ok("vprintf") && s.is_undefined()), "sm_{sm}");
    }
}

/// With `-maxrregcount` functions have no more, whatever the launch bounds of kernels leave, and whether or not a kernel calls them.
#[test]
fn functions_keep_to_the_limit_of_registers() {
    let loads: String = (0..60)
        .map(|n| format!("mad.lo.u32 %v{n}, %r1, %r1, {n};\nxor.b32 %v{n}, %v{n}, %v{};\n", n.max(1) - 1))
        .collect();
    let sums: String = (0..60)
        .map(|n| format!("add.u32 %r1, %r1, %v{n};\nmul.lo.u32 %r1, %r1, %v{};\n", n * 7 % 60))
        .collect();
    let code = format!(".reg .b32 %v<60>;\n{loads}{sums}");
    let bounds = kernel("k", &call("f", "")).replace(".u64 p)", ".u64 p) .maxntid 1024");
    let source = HEADER.to_string() + &function("f", &code) + &function("unused", &code) + &bounds;
    let registers = |limit: Option<u32>| {
        let settings =
            Settings { debug: true, max_registers: limit, ..Settings::new(Target::new(75).unwrap()) };
        let file = oxptxas::compile(&source, "k.ptx", &settings)
            .unwrap_or_else(|e| panic!("{}", e.render("oxptxas")))
            .cubin;
        let image = cubin::read::read(&file).unwrap();
        (image.kernels["f"].registers, image.kernels["unused"].registers)
    };
    let (f, unused) = registers(None);
    assert!(f > 40 && f <= 64 && unused > 40, "{f} {unused}");
    let (f, unused) = registers(Some(40));
    assert!(f <= 40 && unused <= 40, "{f} {unused}");
}
