//! Relocatable objects, and what executables do with what is elsewhere.

use cubin::graph::Graph;
use oxptxas::Settings;
use sass::Target;

const HEADER: &str = ".version 8.8\n.target sm_75\n.address_size 64\n";

fn settings(sm: u8, relocatable: bool) -> Settings {
    Settings { relocatable, ..Settings::new(Target::new(sm).unwrap()) }
}

fn object(text: &str) -> Result<Graph, String> {
    let output = oxptxas::compile(&format!("{HEADER}{text}"), "k.ptx", &settings(90, true));
    let output = output.map_err(|f| f.diagnostics.iter().map(|d| d.message.clone()).collect::<String>())?;
    Ok(cubin::graph::read(&output.cubin).unwrap())
}

fn pairs(list: &[(String, String)]) -> Vec<(&str, &str)> {
    list.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect()
}

/// nvlink compares these texts: one that differs from ptxas's keeps objects of both from being linked, or lets calls
/// through pointers miss.
#[test]
fn prototypes_are_those_of_ptxas() {
    let table = include_str!("prototypes.tsv");
    let (mut same, mut refused) = (0, 0);
    for line in table.lines().filter(|l| !l.starts_with('#')) {
        let (head, expected) = line.split_once('\t').unwrap();
        let body = if head.ends_with(".noreturn") { "exit;" } else { "ret;" };
        let found = object(&format!(".visible .func {head} {{ {body} }}\n"));
        if expected == "refused" {
            assert!(found.is_err(), "{head}");
            refused += 1;
        } else {
            let graph = found.unwrap_or_else(|e| panic!("{head}: {e}"));
            assert_eq!(pairs(&graph.others), [("f", expected)], "{head}");
            same += 1;
        }
    }
    assert!(same > 200 && refused > 10, "{same} {refused}");
}

/// As in ptxas's objects, the call graph is that of the text: dead code counts.
#[test]
fn call_graph_has_what_dead_code_names() {
    let module = |dead: &str| {
        format!(
            ".extern .func ext(.param .b32 x);\n.visible .entry k() {{ .reg .b64 d<2>; .param .b32 a; bra END;\n\
             {dead}\nEND: ret; }}\n"
        )
    };
    let graph = object(&module("call ext, (a);")).unwrap();
    assert_eq!(pairs(&graph.calls), [("k", "ext")]);
    assert_eq!(pairs(&graph.others), [("ext", "#vi")]);
    let graph = object(&module("mov.b64 d0, ext;")).unwrap();
    assert_eq!(pairs(&graph.taken), [("ext", "#vi")]);
    assert_eq!(pairs(&graph.takes), [("k", "ext")]);
    let graph = object(&module(
        "P: .callprototype (.param .b32 _[3]) _ (.param .b16 _, .param .align 8 .b8 _[12]);\n\
        .param .b16 h; .param .align 8 .b8 b[12]; .param .b32 r[3]; call (r), d0, (h, b), P;",
    ))
    .unwrap();
    assert_eq!(pairs(&graph.indirect), [("k", "#i3hb12")]);
    assert_eq!(object(&module("")).unwrap(), Graph::default());
}

/// Numbers of 8 and 16 bits where the convention holds, and several results, as ptxas refuses them.
#[test]
fn what_the_convention_has_no_place_for() {
    let whole = |text: &str| match oxptxas::compile(&format!("{HEADER}{text}"), "k.ptx", &settings(90, false))
    {
        Ok(_) => String::new(),
        Err(f) => f.diagnostics[0].message.clone(),
    };
    let debugged = |text: &str| {
        let settings = Settings { debug: true, ..settings(90, false) };
        let failed = oxptxas::compile(&format!("{HEADER}{text}"), "k.ptx", &settings).err();
        failed.map_or(String::new(), |f| f.diagnostics[0].message.clone())
    };
    let kernel =
        |body: &str| format!(".visible .entry k() {{ .reg .b64 d<2>; .reg .b32 r<2>; {body} ret; }}\n");
    let narrow = "In ABI compilation, passing predicate, 8-bit and 16-bit parameters to device functions is not supported";
    let own = format!(".visible .func f(.param .u16 x) {{ ret; }}\n{}", kernel(""));
    assert_eq!(whole(&own), "");
    assert_eq!(object(&own).unwrap_err(), narrow);
    let through = kernel(".param .u8 a; P: .callprototype _ (.param .u8 _); call d0, (a), P;");
    assert_eq!(whole(&through), narrow);
    assert_eq!(whole(&kernel("P: .callprototype _ (.param .u8 _);")), "");
    let f = ".func f(.param .s8 x) { ret; }\n";
    let call = "{ .param .s8 a; call f, (a); }";
    assert_eq!(whole(&format!("{f}{}", kernel("mov.b64 d0, f;"))), narrow);
    assert_eq!(whole(&format!("{f}{}", kernel(call))), narrow);
    let table = format!("{f}.global .u64 table = f;\n");
    assert_eq!(whole(&format!("{table}{}", kernel(""))), "");
    assert_eq!(whole(&format!("{table}{}", kernel("ld.global.u64 d0, [table];"))), narrow);
    // What no kernel reaches may do so, unless each function has code of its own.
    let again = ".func f(.param .s8 x) { .param .s8 a; call f, (a); ret; }\n";
    let between = format!("{f}.func g() {{ {call} ret; }}\n");
    for unreached in [again, &between, &format!("{f}.func g() {{ .reg .b64 d; mov.b64 d, f; ret; }}\n")] {
        assert_eq!(whole(unreached), "");
        assert_eq!(debugged(unreached), narrow);
    }
    assert_eq!(whole(&format!("{between}{}", kernel("call g;"))), narrow);
    // Vectors of such numbers have a place.
    let vector = |more: &str| format!(".func f(.reg .v2 .u16 x{more}) {{ ret; }}\n");
    let call = kernel(".reg .v2 .u16 v; .reg .u16 h; call f, (v);");
    assert_eq!(whole(&format!("{}{call}", vector(""))), "");
    let call = call.replace("(v)", "(v, h)");
    assert_eq!(whole(&format!("{}{call}", vector(", .reg .u16 y"))), narrow);
    let result = narrow.replace("passing", "returning").replace("parameters to", "values from");
    let both = ".visible .func (.param .u8 r) f() { ret; }\n.visible .func g(.param .u8 x) { ret; }\n";
    assert_eq!((debugged(both), object(both).unwrap_err()), (result, narrow.to_string()));
    let result = object(".visible .func (.param .u16 r) f() { ret; }\n").unwrap_err();
    assert!(result.contains("returning predicate"), "{result}");
    assert!(object(".extern .func f(.param .u16 x);\n").is_ok());
    assert!(object(&format!(".extern .func f(.param .u16 x);\n{}", kernel("mov.b64 d0, f;"))).is_err());

    let two = format!(
        ".func (.reg .b32 a, .reg .b32 b) f() {{ mov.b32 a, 1; mov.b32 b, 2; ret; }}\n{}",
        kernel("call (r0, r1), f;")
    );
    assert_eq!(whole(&two), "");
    assert_eq!(debugged(&two), "Function with multiple return values is not allowed with ABI");
    assert_eq!(object(&two).unwrap_err(), "'Compile only(-c)' requires ABI");
    // Without the convention predicates are passed as well, whichever function it is, and nothing calls itself.
    let two_of = |results: &str, body: &str| {
        format!(
            ".func ({results}) f(.reg .b32 c) {{ mov.b32 a, c; setp.eq.u32 b, c, 0; {body} ret; }}\n{}",
            ".func g(.reg .pred p) { ret; }\n.func (.reg .pred q) h(.reg .pred p) { not.pred q, p; ret; }\n"
        )
    };
    let call = ".visible .entry k() { .reg .pred p<2>; .reg .b32 r<2>; call (r0, p0), f, (r1); call g, (p0); call (p1), h, (p0); ret; }\n";
    let of_predicate = two_of(".reg .b32 a, .reg .pred b", "");
    assert_eq!(whole(&format!("{of_predicate}{call}")), "");
    let one = ".func g(.reg .pred p) { ret; }\n.visible .entry k() { .reg .pred p; call g, (p); ret; }\n";
    assert_eq!(whole(one), narrow);
    let recursive = two_of(".reg .b32 a, .reg .pred b", "call (a, b), f, (c);");
    assert_eq!(whole(&recursive), "Function 'f' is recursive");
    let in_memory = ".visible .func (.param .b32 a, .param .b32 b) f() { ret; }\n";
    assert_eq!(whole(in_memory), "Multiple return parameters require .register state space");
}

/// Variables that are elsewhere are an executable's own where their size is known; functions are refused.
#[test]
fn what_is_elsewhere_in_an_executable() {
    let module = |declaration: &str, body: &str| {
        let text = format!(
            "{HEADER}{declaration}\n.visible .entry k(.param .u64 p) {{ .reg .b64 d<2>; .reg .b32 r<2>;\n\
             ld.param.u64 d0, [p]; {body} st.global.b32 [d0], r0; ret; }}\n"
        );
        oxptxas::compile(&text, "k.ptx", &settings(90, false))
    };
    for (space, array) in [("global", ""), ("global", "[3]"), ("const", ""), ("shared", "[4]")] {
        let declaration = format!(".extern .{space} .u32 g{array};");
        for body in ["", &format!("ld.{space}.u32 r0, [g];")] {
            let output = module(&declaration, body).unwrap_or_else(|f| panic!("{}", f.render("oxptxas")));
            let expected =
                "Unresolved extern variable 'g' in whole program compilation, ignoring extern qualifier";
            let said: Vec<&str> = output.warnings.iter().map(|w| w.message.as_str()).collect();
            assert_eq!(said, [expected], "{declaration} {body}");
        }
    }
    assert!(module(".extern .shared .u32 g[];", "ld.shared.u32 r0, [g];").unwrap().warnings.is_empty());
    for (declaration, body, message) in [
        (".extern .global .u32 g[];", "", "Unresolved extern variable 'g'"),
        (".extern .func g();", "bra END; call g; END:", "Unresolved extern function 'g'"),
        (".func g();", "", "Unresolved extern function 'g'"),
        (".extern .func g();", "bra END; mov.b64 d1, g; END:", "Cannot take address of function 'g'"),
        (".extern .func g();\n.global .u64 t = g;", "", "Cannot take address of function 'g'"),
    ] {
        let failure = module(declaration, body).unwrap_err();
        assert_eq!(failure.diagnostics[0].message, message, "{declaration} {body}");
    }
}

/// The code of a function, a line per instruction.
fn code(text: &str, name: &str, sm: u8, relocatable: bool) -> Vec<String> {
    let output = oxptxas::compile(&format!("{HEADER}{text}"), "k.ptx", &settings(sm, relocatable));
    let cubin = output.unwrap_or_else(|f| panic!("{}", f.render("oxptxas"))).cubin;
    let image = cubin::read::read(&cubin).unwrap();
    let target = Target::new(sm).unwrap();
    let words = image.kernels[name].code.iter().enumerate();
    words
        .map(|(k, w)| sass::print(&sass::decode(*w, target, 16 * k as i64).unwrap(), target).to_string())
        .collect()
}

/// ptxas's callers keep R1 a multiple of 8 only: a function that needs more aligns its frame, and so does a kernel that
/// needs more than 16.
#[test]
fn frames_are_aligned() {
    let local = |align: u32| {
        format!(
            ".local .align {align} .b8 buf[64]; .reg .b64 d<2>; mov.b64 d0, buf; ld.param.b64 d1, [p];\n\
             st.global.b64 [d1], d0; ret; }}\n"
        )
    };
    let aligned = |lines: &[String]| lines.iter().any(|l| l.contains("LOP3.LUT R1, R1, "));
    for sm in [75, 80, 90, 100, 120] {
        for align in [8, 16, 32, 128] {
            let function = format!(".visible .func f(.param .b64 p) {{ {}", local(align));
            let lines = code(&function, "f", sm, true);
            assert_eq!(aligned(&lines), align > 8, "sm_{sm} {align} {lines:#?}");
            let restored = lines.iter().any(|l| l.contains("MOV R1, R0"));
            assert_eq!(restored, align > 8, "sm_{sm} {align} {lines:#?}");
            let kernel = format!(".visible .entry k(.param .b64 p) {{ {}", local(align));
            for relocatable in [false, true] {
                assert_eq!(aligned(&code(&kernel, "k", sm, relocatable)), align > 16, "sm_{sm} {align}");
            }
        }
    }
}

/// Parameters whose address is taken are in the frame, those without a size on the caller's stack.
#[test]
fn parameters_have_addresses() {
    let at = |params: &str, body: &str| {
        let head = format!(".visible .func (.param .b32 q) f({params})");
        code(
            &format!("{head} {{ .reg .b64 l<3>; .reg .b32 r<2>; {body} st.param.b32 [q], r0; ret; }}\n"),
            "f",
            90,
            true,
        )
    };
    let has = |lines: &[String], what: &str| lines.iter().any(|l| l.contains(what));
    let index = "ld.param.b32 r1, [x]; mov.b64 l0, y; cvt.u64.u32 l1, r1; add.u64 l0, l0, l1;";
    for space in ["local", "param"] {
        let load = format!("{index} ld.{space}.b32 r0, [l0+4];");
        let lines = at(".param .b32 x, .param .align 8 .b8 y[8]", &load);
        assert!(has(&lines, "STL [R1], R6") && has(&lines, "STL [R1+0x4], R7"), "{lines:#?}");
        let lines = at(".param .b32 x, .param .align 8 .b8 y[]", &load);
        assert!(!has(&lines, "STL") && has(&lines, "LDL R4, ["), "{lines:#?}");
    }
    // Behind what else is on the stack; words, where the parameter is aligned for no more.
    let lines = at(".param .align 8 .b8 x[64], .param .align 8 .b8 y[]", "ld.param.b32 r0, [y+4];");
    assert!(has(&lines, "0x44]"), "{lines:#?}");
    let lines = at(".param .align 8 .b8 x[64]", "ld.param.v2.b64 {l0, l1}, [x+16]; cvt.u32.u64 r0, l1;");
    assert!(!has(&lines, "LDL.128"), "{lines:#?}");
}

/// A file of variables alone has them and their symbols, as the driver and nvlink look for them.
#[test]
fn a_file_of_variables_alone() {
    let text = ".visible .global .u32 z;\n.global .u32 hidden;\n.visible .const .u32 c[2] = {1, 2};\n";
    for (sm, relocatable) in [(75, false), (90, false), (100, false), (120, false), (75, true), (90, true)] {
        let output = oxptxas::compile(&format!("{HEADER}{text}"), "k.ptx", &settings(sm, relocatable));
        let output = output.unwrap_or_else(|f| panic!("sm_{sm}: {:?}", f.diagnostics));
        let found = defined(&output.cubin);
        for name in ["z", "c"] {
            assert!(found.iter().any(|n| n == name), "sm_{sm}: no '{name}' in {found:?}");
        }
    }
}

/// The names of the symbols that have a section.
fn defined(cubin: &[u8]) -> Vec<String> {
    let number = |at: usize, bytes: usize| {
        cubin[at..at + bytes].iter().rev().fold(0_usize, |n, b| n << 8 | usize::from(*b))
    };
    let section = |n: usize| {
        let header = number(0x28, 8) + 64 * n;
        (number(header + 4, 4), number(header + 0x18, 8), number(header + 0x20, 8), number(header + 0x28, 4))
    };
    let (_, start, size, names) =
        (0..number(0x3c, 2)).map(section).find(|s| s.0 == 2).expect("a table of symbols");
    let texts = section(names).1;
    (start..start + size)
        .step_by(24)
        .filter(|at| number(at + 6, 2) != 0)
        .map(|at| {
            let name = &cubin[texts + number(at, 4)..];
            String::from_utf8_lossy(&name[..name.iter().position(|b| *b == 0).unwrap()]).into_owned()
        })
        .collect()
}

/// A kernel is launched by its descriptor: its address is another relocation than a function's, in objects and in executables
/// (R_CUDA_FUNC_DESC32_LO_32, R_CUDA_FUNC_DESC32_HI_32 and R_CUDA_FUNC_DESC_64 in ptxas's).
#[test]
fn addresses_of_kernels_are_descriptors() {
    let text = format!(
        "{HEADER}.visible .entry other() {{ ret; }}\n\
         .visible .entry k(.param .u64 p) {{ .reg .b64 a, b; ld.param.u64 a, [p]; mov.u64 b, other; st.global.u64 [a], b; \
         mov.u64 b, k; st.global.u64 [a+8], b; ret; }}\n"
    );
    for (relocatable, place, wanted) in
        [(true, ".text.k", vec![0x3e, 0x3f]), (false, ".nv.constant4", vec![0x23])]
    {
        for sm in [75, 90, 120] {
            let output = oxptxas::compile(&text, "k.ptx", &settings(sm, relocatable)).expect("legal");
            let image = cubin::read::read(&output.cubin).expect("a file");
            for symbol in ["other", "k"] {
                let here = image.relocs.iter().filter(|r| r.place == place && r.symbol == symbol);
                let mut kinds: Vec<u32> = here.map(|r| r.kind).collect();
                kinds.sort_unstable();
                assert_eq!(kinds, wanted, "{symbol} sm_{sm}");
            }
        }
    }
}

/// nvlink places shared variables kernel by kernel, and aligns each by the value of its symbol: a distance from others would be
/// taken for that.
#[test]
fn shared_variables_state_their_alignment() {
    let text = ".shared .align 8 .b8 a8[24];\n.visible .shared .align 16 .b8 v16[40];\n.weak .shared .align 32 .b8 w32[100];\n\
        .weak .shared .align 4 .b8 w4[8];\n.visible .entry k(.param .u64 o)\n{\n.reg .b64 p; .reg .b32 r<9>;\n\
        .shared .align 64 .b8 first[10]; .shared .align 64 .b8 second[10]; .shared .align 2 .b8 third[6];\n\
        ld.param.u64 p, [o]; mov.u32 r1, a8; mov.u32 r2, v16; mov.u32 r3, w32; mov.u32 r4, w4; mov.u32 r5, first;\n\
        mov.u32 r6, second; mov.u32 r7, third; st.global.v4.u32 [p], {r1, r2, r3, r4}; st.global.u32 [p+16], r5;\n\
        st.global.u32 [p+20], r6; st.global.u32 [p+24], r7; ret;\n}\n";
    let aligned =
        [("a8", 8), ("v16", 16), ("w32", 32), ("w4", 4), ("first", 64), ("second", 64), ("third", 2)];
    let values = |file: &[u8]| {
        let elf = contract::elf::Elf::new(file).unwrap();
        let value = |name: &str| {
            let own = format!("$__{name}__");
            elf.symbols.iter().find(|s| s.name == name || s.name.starts_with(&own)).map(|s| s.value)
        };
        aligned.map(|(name, _)| value(name).expect("is there"))
    };
    let source = format!("{HEADER}{text}");
    for sm in [75, 89, 90, 120] {
        for settings in [settings(sm, true), Settings { extensible: true, ..settings(sm, false) }] {
            let output = oxptxas::compile(&source, "k.ptx", &settings).expect("compiles");
            assert_eq!(values(&output.cubin), aligned.map(|a| a.1), "sm_{sm}");
        }
    }
    // Linked, the addresses are multiples of these.
    let Some(tools) = std::env::var_os("OXPTXAS_ORACLES").map(std::path::PathBuf::from) else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let launch = "[[launch]]\nkernel = \"k\"\ngrid = [1, 1, 1]\nblock = [1, 1, 1]\nargs = [{ buffer = \"out\" }]\n\
        [launch.buffers.out]\ntype = \"u32\"\nlength = 7\n";
    let launch = &sim::launch::LaunchFile::parse(launch).unwrap().launch[0];
    for sm in [75, 90] {
        let output = oxptxas::compile(&source, "k.ptx", &settings(sm, true)).expect("compiles");
        std::fs::write(at("k.o"), output.cubin).unwrap();
        let mut nvlink = std::process::Command::new(tools.join("nvlink"));
        let run = nvlink.arg(format!("-arch=sm_{sm}")).arg(at("k.o")).arg("-o").arg(at("k.cubin")).output();
        assert!(run.unwrap().status.success());
        let linked = std::fs::read(at("k.cubin")).unwrap();
        let buffers = sim::sass::run(&linked, launch, sim::sass::Options::default()).expect("runs").buffers;
        let words = buffers["out"].chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap()));
        for (address, (name, align)) in words.zip(aligned) {
            assert_eq!(u64::from(address) % align, 0, "sm_{sm} {name} at {address:#x}");
        }
    }
}

/// Where functions are compiled one by one nothing is said of shared memory for spills.
#[test]
fn shared_spills_are_of_whole_kernels() {
    let source = ".version 9.0\n.target sm_90\n.address_size 64\n\
        .visible .entry k() { .pragma \"enable_smem_spilling\"; ret; }\n";
    let refused = |change: fn(&mut Settings)| {
        let mut settings = settings(90, false);
        change(&mut settings);
        oxptxas::compile(source, "k.ptx", &settings).err().map(|f| f.diagnostics[0].message.clone())
    };
    let message = "Pragma 'enable_smem_spilling' is not allowed for per-function compilation modes";
    assert_eq!(refused(|_| ()), None);
    assert_eq!(refused(|s| s.extensible = true), None);
    assert_eq!(refused(|s| s.relocatable = true).as_deref(), Some(message));
    assert_eq!(refused(|s| (s.debug, s.opt_level) = (true, 0)).as_deref(), Some(message));
}

/// A call by a list of targets is a call of each of them that is here (ptxas 13.0.88), one by a prototype is of what is like that.
#[test]
fn lists_of_targets_are_calls_by_name() {
    let call = |how: &str| format!("{{ .param .b32 a; st.param.b32 [a], 1; l: {how}; call %d, (a), l; }}\n");
    let text = [
        ".visible .func f(.param .b32 a) { ret; }\n.visible .func g(.param .b32 a) { ret; }\n.extern .func e(.param .b32 a);\n",
        ".visible .entry k(.param .u64 p) { .reg .b64 %d; ld.param.u64 %d, [p];\n",
        &call(".calltargets f, g"),
        "ret; }\n.visible .entry m(.param .u64 p) { .reg .b64 %d; mov.u64 %d, f;\n",
        &call(".calltargets e, f"),
        &call(".callprototype _ (.param .b32 _)"),
        "ret; }\n",
    ];
    let graph = object(&text.concat()).unwrap();
    let mut calls = pairs(&graph.calls);
    calls.sort_unstable();
    assert_eq!(calls, [("k", "f"), ("k", "g"), ("m", "f")]);
    assert_eq!(pairs(&graph.indirect), [("m", "#vi")]);
    assert_eq!(pairs(&graph.takes), [("m", "f")]);
}

/// Of shared variables an object says their sizes and alignments: what lies between them is for the linker to say.
#[test]
fn sizes_of_shared_variables_add_up_in_objects() {
    use object::{Object, ObjectSection};
    let variables =
        ".shared .align 4 .b8 z[3]; .shared .align 16 .b8 y[4]; .shared .align 4 .b8 q[9]; .shared .b8 w[3];";
    for (outside, inside, section) in [(variables, "", ".nv_debug.shared"), ("", variables, ".nv.shared.k")] {
        let source = format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n{outside}\n.visible .entry k() {{ {inside} .reg .b32 %r;\n\
             ld.shared.u8 %r, [w]; st.shared.u32 [q], %r; st.shared.u8 [z], %r; st.shared.u32 [y], 3; ret; }}\n"
        );
        let output = oxptxas::compile(&source, "k.ptx", &settings(90, true)).unwrap();
        let file = object::File::parse(&*output.cubin).unwrap();
        let section = file.section_by_name(section).unwrap();
        assert_eq!((section.size(), section.align()), (19, 16));
        assert_eq!(output.kernels[0].shared, if outside.is_empty() { 19 } else { 0 });
    }
}

/// Nor where the launch brings shared memory that the kernel comes to.
#[test]
fn shared_spills_leave_no_room_for_what_the_launch_brings() {
    let refused = |code: &str| {
        let source = format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.extern .shared .b8 dyn[];\n\
             .func f() {{ .reg .b32 %r; mov.u32 %r, dyn; st.shared.u32 [%r], 1; ret; }}\n{code}"
        );
        let failed = oxptxas::compile(&source, "k.ptx", &settings(90, false)).err();
        failed.map(|f| f.diagnostics[0].message.clone())
    };
    let asking = |code: &str| {
        format!(
            ".visible .entry k() {{ .reg .b32 %r; .reg .b64 %d; .pragma \"enable_smem_spilling\"; {code} ret; }}\n"
        )
    };
    let through = "{ l: .callprototype _ (); call %d, l; }";
    let elsewhere = ".visible .entry other() { .reg .b64 %d; mov.u64 %d, f; st.global.u64 [%d], %d; ret; }\n";
    let message = "Pragma 'enable_smem_spilling' is not allowed for dynamic SMEM";
    for code in [
        asking("mov.u32 %r, dyn; st.shared.u32 [%r], 1;"),
        asking("call f;"),
        asking("mov.u64 %d, f; st.global.u64 [%d], %d;"),
        format!(
            ".global .u64 table[1] = {{f}};\n{}",
            asking(&format!("ld.global.u64 %d, [table]; {through}"))
        ),
        asking(&format!("mov.u64 %d, 8; {through}")) + elsewhere,
    ] {
        assert_eq!(refused(&code).as_deref(), Some(message), "{code}");
    }
    for code in [
        asking(""),
        asking("") + elsewhere,
        asking("").replace(".pragma \"enable_smem_spilling\";", "call f;"),
    ] {
        assert_eq!(refused(&code), None, "{code}");
    }
}

/// Objects whose code names a shared variable say how much of it the system keeps, with debug information and without; on sm_90 a
/// local symbol without a name is left of that (ptxas 13.0.88).
#[test]
fn code_with_shared_memory_says_what_is_kept() {
    let said = |text: &str, sm: u8, debug: bool| {
        let settings = Settings { debug, opt_level: if debug { 0 } else { 3 }, ..settings(sm, true) };
        let text = format!(".version 8.0\n.target sm_90\n.address_size 64\n{text}");
        let output =
            oxptxas::compile(&text, "k.ptx", &settings).unwrap_or_else(|f| panic!("{}", f.render("k")));
        let elf = contract::elf::Elf::new(&output.cubin).unwrap();
        let nameless = elf.symbols.iter().skip(1).filter(|s| s.name.is_empty() && !s.is_section());
        let left: Vec<_> = nameless.map(|s| (s.info, s.other, s.section, s.value, s.size)).collect();
        (elf.symbols.iter().any(|s| s.name == ".nv.reservedSmem.cap"), left)
    };
    let shared = ".shared .b32 s;\n.extern .shared .b8 d[];\n";
    let of = |named: &str| {
        let body = format!("{{ .shared .b32 o; .reg .b32 r; mov.u32 r, 1; {named} ret; }}");
        [format!("{shared}.visible .func f() {body}"), format!("{shared}.visible .entry k() {body}")]
    };
    for debug in [false, true] {
        for name in ["s", "d", "o"] {
            for text in of(&format!("st.volatile.shared.b32 [{name}], r;")) {
                assert_eq!(said(&text, 90, debug), (false, vec![(0, 1, 0, 0, 0)]), "{text} {debug}");
                assert_eq!(said(&text, 100, debug), (true, vec![]), "{text} {debug}");
                assert_eq!(said(&text, 120, debug), (true, vec![]), "{text} {debug}");
            }
        }
        for text in of("") {
            assert_eq!(said(&text, 90, debug), (false, vec![]), "{text} {debug}");
            assert_eq!(said(&text, 120, debug), (false, vec![]), "{text} {debug}");
        }
    }
}

/// Places of words for names of textures are the same wherever code is; what is called has addresses.
#[test]
fn names_of_textures_are_independent_of_places() {
    let independent = |text: &str| {
        let mut settings = settings(90, true);
        settings.asked.independent = true;
        let source = format!(".version 8.0\n.target sm_90\n.address_size 64\n{text}");
        oxptxas::compile(&source, "k.ptx", &settings).is_ok()
    };
    let kernel = |body: &str| {
        format!(
            ".global .texref t;\n.func f() {{ ret; }}\n.visible .entry k(.param .u64 p) {{ .reg .b32 r; .reg .b64 d; ld.param.u64 d, [p];\n\
             {body} st.global.u32 [d], r; ret; }}\n"
        )
    };
    assert!(independent(&kernel("txq.width.b32 r, [t];")));
    assert!(!independent(&kernel("txq.width.b32 r, [t]; call f;")));
}

/// What can be extended holds addresses of functions by their own names only; the driver's functions are elsewhere whatever their
/// headers say; addresses of 32 bits are known, but nothing is compiled for them; `.unified` counts wherever it stands.
#[test]
fn verdicts_of_whole_programs() {
    let first = |text: &str, settings: &Settings| match oxptxas::compile(
        &format!("{HEADER}{text}"),
        "k.ptx",
        settings,
    ) {
        Ok(_) => String::new(),
        Err(f) => f.diagnostics[0].message.clone(),
    };
    let plain = settings(90, false);
    let extensible = Settings { extensible: true, ..plain.clone() };
    let alias = ".visible .func f() { ret; }\n.visible .func g();\n.alias g, f;\n";
    let kernel = |body: &str| format!("{alias}.visible .entry k() {{ .reg .b64 d; {body} ret; }}\n");
    let refused = "Cannot take address of function 'g' in extensible whole program compilation.";
    assert_eq!(first(&kernel("mov.b64 d, g;"), &extensible), refused);
    assert_eq!(first(&format!("{}.global .u64 t = g;\n", kernel("")), &extensible), refused);
    for (body, settings) in
        [("mov.b64 d, g;", &plain), ("mov.b64 d, f;", &extensible), ("call g;", &extensible)]
    {
        assert_eq!(first(&kernel(body), settings), "", "{body}");
    }
    for linkage in ["", ".visible", ".weak", ".extern"] {
        let declared = format!("{linkage} .func free(.param .b64 p);\n");
        assert_eq!(first(&format!("{declared}{}", kernel("")), &plain), "", "{linkage}");
        let call = kernel("{ .param .b64 a; st.param.b64 [a], 0; call free, (a); }");
        assert_eq!(first(&format!("{declared}{call}"), &plain), "", "{linkage}");
    }
    let unified = ".visible .func f();\n.visible .func .attribute(.unified(1, 2)) f() { ret; }\n";
    let unified = format!(".version 9.0\n.target sm_90\n.address_size 64\n{unified}");
    let refused = oxptxas::compile(&unified, "k.ptx", &plain).unwrap_err();
    assert!(refused.diagnostics[0].message.contains("requires command line option '--compile-only'"));
    let narrow = ".version 9.0\n.target sm_90\n.address_size 32\n.visible .entry k() { ret; }\n";
    assert!(ptx::parse(narrow).and_then(|m| ptx::check(&m, 90)).is_ok());
    let refused = oxptxas::compile(narrow, "k.ptx", &plain).unwrap_err();
    assert!(refused.diagnostics.iter().any(|d| d.message.contains("32-Bit ABI")));
}

/// Code and data that name an alias name the function; the linker asks who calls the alias all the same. Linked, it runs.
#[test]
fn aliases_that_are_called_and_taken_are_linked() {
    let functions = ".visible .func (.param .b32 r) f(.param .b32 a)\n{ .reg .b32 x; ld.param.b32 x, [a]; add.u32 x, x, 5; st.param.b32 [r], x; ret; }\n\
        .visible .func (.param .b32 r) g(.param .b32 a);\n.alias g, f;\n";
    let kernel = |globals: &str, get: &str, call: &str, prototype: &str| {
        format!(
            "{HEADER}{functions}{globals}.visible .entry k(.param .u64 p)\n{{ .reg .b64 q, t; .reg .b32 x; ld.param.u64 q, [p]; mov.u32 x, 37; {get}\n\
             {{ .param .b32 i; .param .b32 o; st.param.b32 [i], x; {prototype} call (o), {call}; ld.param.b32 x, [o]; }} st.global.u32 [q], x; ret; }}\n"
        )
    };
    let prototype = "P: .callprototype (.param .b32 _) _ (.param .b32 _);";
    let sources = [
        kernel("", "", "g, (i)", ""),
        kernel("", "mov.b64 t, g;", "t, (i), P", prototype),
        kernel(".global .u64 tab[2] = {g, f};\n", "ld.global.u64 t, [tab];", "t, (i), P", prototype),
    ];
    let graph = |source: &str| {
        let output = oxptxas::compile(source, "k.ptx", &settings(90, true)).expect("compiles");
        let elf = contract::elf::Elf::new(&output.cubin).unwrap();
        let section = elf.sections.iter().find(|s| s.name == ".nv.callgraph").expect("is there");
        let words: Vec<u32> = output.cubin[section.offset as usize..][..section.size as usize]
            .chunks(4)
            .map(|w| u32::from_le_bytes(w.try_into().unwrap()))
            .collect();
        let name = |n: u32| match i32::try_from(n) {
            Ok(n) if n > 0 => elf.symbols.get(n as usize).map_or(String::new(), |s| s.name.clone()),
            _ => (n as i32).to_string(),
        };
        words.chunks(2).map(|w| [name(w[0]), name(w[1])]).collect::<Vec<_>>()
    };
    // As ptxas 13.0.88 has it.
    let pair = |a: &str, b: &str| [a.to_string(), b.to_string()];
    assert!(graph(&sources[0]).starts_with(&[
        pair("0", "-1"),
        pair("k", "g"),
        pair("k", "f"),
        pair("g", "f"),
        pair("0", "-2")
    ]));
    let Some(tools) = std::env::var_os("OXPTXAS_ORACLES").map(std::path::PathBuf::from) else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let launch = "[[launch]]\nkernel = \"k\"\ngrid = [1, 1, 1]\nblock = [1, 1, 1]\nargs = [{ buffer = \"out\" }]\n\
        [launch.buffers.out]\ntype = \"u32\"\nlength = 1\n";
    let launch = &sim::launch::LaunchFile::parse(launch).unwrap().launch[0];
    for (n, source) in sources.iter().enumerate() {
        for sm in [75, 90, 120] {
            let output = oxptxas::compile(source, "k.ptx", &settings(sm, true)).expect("compiles");
            std::fs::write(at("k.o"), output.cubin).unwrap();
            let mut nvlink = std::process::Command::new(tools.join("nvlink"));
            let run = nvlink
                .arg(format!("-arch=sm_{sm}"))
                .arg(at("k.o"))
                .arg("-o")
                .arg(at("k.cubin"))
                .output()
                .unwrap();
            assert!(run.status.success(), "{n} sm_{sm}: {}", String::from_utf8_lossy(&run.stderr));
            let linked = std::fs::read(at("k.cubin")).unwrap();
            let buffers =
                sim::sass::run(&linked, launch, sim::sass::Options::default()).expect("runs").buffers;
            assert_eq!(buffers["out"], 42u32.to_le_bytes(), "{n} sm_{sm}");
        }
    }
}

/// The symbol of an object: its section and size, and what the section holds there.
fn symbol(output: &[u8], name: &str) -> Option<(u16, u64, Vec<u8>)> {
    let elf = contract::elf::Elf::new(output).unwrap();
    let s = elf.symbols.iter().find(|s| s.name == name)?;
    let there = elf.sections.get(usize::from(s.section)).filter(|_| s.section != 0);
    let data = there.filter(|t| t.name == ".nv.global.init").map_or(&[][..], |t| {
        let start = (t.offset + s.value) as usize;
        &output[start..start + s.size as usize]
    });
    Some((s.section, s.size, data.to_vec()))
}

/// A common variable with an initial value is one like any other; without one the linker makes it (ptxas 13.0.88).
#[test]
fn common_variables_keep_their_initial_values() {
    const COMMON: u16 = 0xfff2;
    let text = ".common .global .u32 a = 5;\n.common .global .align 16 .u32 b[4] = {1, 2};\n.common .global .v2 .u32 c = {3, 4};\n\
        .common .global .u32 z = 0;\n.common .global .u32 y;\n.common .global .u64 u = y;\n";
    let output = oxptxas::compile(&format!("{HEADER}{text}"), "k.ptx", &settings(90, true)).unwrap();
    assert_eq!(output.module_bytes.0, 40);
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    for (name, value) in
        [("a", vec![5]), ("b", vec![1, 2, 0, 0]), ("c", vec![3, 4]), ("z", vec![0]), ("u", vec![0, 0])]
    {
        let (section, size, data) = symbol(&output.cubin, name).expect(name);
        assert!(section != COMMON && size as usize == 4 * value.len(), "{name}");
        assert_eq!(data, words(&value), "{name}");
    }
    assert_eq!(symbol(&output.cubin, "y"), Some((COMMON, 4, Vec::new())));
}

/// Variables that are elsewhere are asked for whether or not code names them; of programs that can be extended, but for shared
/// memory, which is their own (ptxas 13.0.88).
#[test]
fn variables_elsewhere_are_named() {
    let text = ".extern .global .u32 g;\n.extern .const .u32 c;\n.extern .shared .u32 s;\n.extern .shared .u32 d[];\n\
        .extern .func f();\n.visible .entry k() { ret; }\n";
    let undefined = |text: &str, settings: &Settings| {
        let output = oxptxas::compile(&format!("{HEADER}{text}"), "k.ptx", settings).unwrap().cubin;
        let named = |n: &&str| symbol(&output, n).is_some_and(|s| s.0 == 0);
        ["g", "a", "c", "ca", "s", "d", "f"].iter().filter(|n| named(n)).copied().collect::<Vec<_>>()
    };
    for sm in [75, 90, 120] {
        let arrays = format!(".extern .global .u32 a[];\n.extern .const .u32 ca[];\n{text}");
        assert_eq!(undefined(&arrays, &settings(sm, true)), ["g", "a", "c", "ca", "s", "d"], "sm_{sm}");
        let extensible = Settings { extensible: true, ..settings(sm, false) };
        assert_eq!(undefined(text, &extensible), ["g", "c"], "sm_{sm}");
        assert_eq!(undefined(text, &settings(sm, false)), [""; 0], "sm_{sm}");
    }
}

/// Objects from sm_90 on name all tables of unified code and data; the memory that the system keeps has a name in programs, but not in
/// debugged ones, nor in objects (ptxas 13.0.88).
#[test]
fn what_the_linker_and_the_system_bring_is_named() {
    let text = format!("{HEADER}.visible .entry k() {{ ret; }}\n");
    for sm in [75, 90, 100, 120] {
        for (relocatable, extensible) in [(false, false), (true, false), (false, true)] {
            for debug in [false, true] {
                let settings = Settings {
                    extensible,
                    debug,
                    opt_level: if debug { 0 } else { 3 },
                    ..settings(sm, relocatable)
                };
                let output = oxptxas::compile(&text, "k.ptx", &settings).unwrap().cubin;
                let elf = contract::elf::Elf::new(&output).unwrap();
                let tables = elf.symbols.iter().filter(|s| s.name.starts_with("__U")).count();
                let case = format!("sm_{sm} {relocatable} {extensible} {debug}");
                assert_eq!(tables, if relocatable && sm >= 90 { 8 } else { 0 }, "{case}");
                let named = symbol(&output, "__nv_reservedSMEM_offset_0_alias").is_some();
                let there = elf.sections.iter().any(|s| s.name == ".nv.shared.reserved.0");
                let wanted = sm >= 90 && !relocatable && !debug;
                assert_eq!((named, there), (wanted, wanted), "{case}");
            }
        }
    }
}

/// An alias of an alias is the function in a whole program; no file has a symbol for it (ptxas 13.0.88).
#[test]
fn aliases_of_aliases() {
    let text = ".visible .func f() { ret; }\n.visible .func h();\n.visible .func g();\n.alias g, h;\n.alias h, f;\n\
        .visible .entry k() { call f; call h; ret; }\n";
    let refused = |change: fn(&mut Settings)| {
        let mut settings = settings(90, false);
        change(&mut settings);
        oxptxas::compile(&format!("{HEADER}{text}"), "k.ptx", &settings).is_err()
    };
    assert!(!refused(|_| ()));
    assert!(!refused(|s| s.extensible = true));
    assert!(refused(|s| s.relocatable = true));
    assert!(refused(|s| (s.debug, s.opt_level) = (true, 0)));
    // Of two that are each other's nothing comes, as long as nothing asks.
    let text = ".visible .func h();\n.visible .func g();\n.alias g, h;\n.alias h, g;\n.visible .entry k() { ret; }\n";
    assert!(oxptxas::compile(&format!("{HEADER}{text}"), "k.ptx", &settings(90, false)).is_ok());
}
