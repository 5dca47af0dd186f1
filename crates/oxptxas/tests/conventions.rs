//! Functions of objects with a calling convention of their own (`.abi_preserve`, `.abi_preserve_control`), docs/calls.md.

use oxptxas::{Output, Settings, Severity};
use sass::{Opcode, Operand, Reg, RegFile};

fn compile(text: &str, target: &str, limit: Option<u32>) -> Result<Output, String> {
    let target = sass::Target::parse(target).unwrap();
    let settings = Settings { relocatable: true, max_registers: limit, ..Settings::new(target) };
    let text = format!(".version 9.0\n.target {target}\n.address_size 64\n{text}");
    let said = |f: oxptxas::Failure| f.diagnostics.iter().map(|d| d.message.clone()).collect::<Vec<_>>();
    oxptxas::compile(&text, "k.ptx", &settings).map_err(|f| said(f).join("\n"))
}

/// The function `f` of the module's object.
fn code(text: &str, target: &str, limit: Option<u32>) -> Vec<sass::Inst> {
    let cubin = compile(text, target, limit).unwrap().cubin;
    let target = sass::Target::parse(target).unwrap();
    let range = cubin::read::code_ranges(&cubin).unwrap()["f"].clone();
    let words = cubin[range].chunks_exact(16).map(|w| u128::from_le_bytes(w.try_into().unwrap()));
    (0..).step_by(16).zip(words).map(|(pc, w)| sass::decode(w, target, pc).unwrap()).collect()
}

/// General registers that an object's function stores at its start.
fn saved(code: &[sass::Inst]) -> Vec<u8> {
    let data = |i: &sass::Inst| match (i.op, i.operands.last()) {
        (Opcode::STL, Some(Operand::Reg(r))) if r.reg.file == RegFile::R => Some(r.reg.index),
        _ => None,
    };
    let mut saved: Vec<u8> = code.iter().filter_map(data).collect();
    saved.sort_unstable();
    saved
}

/// Where the function returns to.
fn returns(code: &[sass::Inst]) -> Option<Reg> {
    let ret = code.iter().find(|i| i.op == Opcode::RET)?;
    if let Some(Operand::Reg(r)) = ret.operands.first() { Some(r.reg) } else { None }
}

const ADD: &str = "{ add.u32 r, a, 1; ret; }";
const CALL: &str = "{ .reg .b32 x; call (x), g, (a); add.u32 r, x, a; ret; }";

/// In the registers that ptxas 13.0.88 reads it from (sm_90, `-c`).
#[test]
fn return_addresses() {
    for (kept, register) in [(0, 14), (1, 14), (3, 16), (8, 22), (30, 44), (200, 214), (237, 250)] {
        let f = format!(".visible .func (.reg .b32 r) f(.reg .b32 a) .abi_preserve {kept} {ADD}");
        for target in ["sm_80", "sm_90", "sm_120"] {
            assert_eq!(returns(&code(&f, target, None)), Some(Reg::r(register)), "{kept} {target}");
        }
    }
}

/// Registers that a callee doesn't keep and the caller has to: as many as there are.
#[test]
fn callers_save_what_callees_do_not_keep() {
    let module = |f: &str, g: &str| {
        format!(
            ".extern .func (.reg .b32 r) g(.reg .b32 a) {g};\n.visible .func (.reg .b32 r) f(.reg .b32 a) {f} {CALL}"
        )
    };
    // f keeps the pattern of all functions, g R16 … R23.
    let found = saved(&code(&module("", ".abi_preserve 8"), "sm_90", Some(48)));
    assert!((24..32).chain(36..40).chain(44..46).all(|r| found.contains(&r)), "{found:?}");
    assert!(found.iter().all(|r| *r < 46), "{found:?}");
    // f keeps R16 … R45, g the pattern of all functions.
    let found = saved(&code(&module(".abi_preserve 30", ""), "sm_90", None));
    assert!([20, 21, 32, 33, 34, 35, 40, 41, 42, 43].iter().all(|r| found.contains(r)), "{found:?}");
    assert!(found.iter().all(|r| *r < 44), "{found:?}");
    // Both keep the same.
    let found = saved(&code(&module(".abi_preserve 30", ".abi_preserve 30"), "sm_90", None));
    assert!(found.len() < 6, "{found:?}");
}

/// The barriers that f keeps and g doesn't.
#[test]
fn callers_save_barriers() {
    let module = |f: &str, g: &str| {
        format!(
            ".extern .func (.reg .b32 r) g(.reg .b32 a) {g};\n.visible .func (.reg .b32 r) f(.reg .b32 a) {f} {CALL}"
        )
    };
    let barriers = |f: &str, g: &str| {
        let code = code(&module(f, g), "sm_90", None);
        code.iter().filter(|i| i.op == Opcode::BMOV && i.mods.has(sass::Mod::CLEAR)).count()
    };
    assert_eq!(barriers(".abi_preserve_control 0", ""), 6);
    assert_eq!(barriers("", ".abi_preserve_control 9"), 3);
    assert_eq!(barriers(".abi_preserve_control 9", ".abi_preserve_control 9"), 0);
}

/// What the linker compares, as ptxas 13.0.88 writes it.
#[test]
fn prototypes() {
    let all = [
        (".abi_preserve 8", "#vli|3p4r22sRx7fffffffffffffffffffffffffffffffffffffffffffffffffffffffff00fff9"),
        (
            ".abi_preserve 8 .abi_preserve_control 0",
            "#vli|3p4r22sBx00000000sRx7fffffffffffffffffffffffffffffffffffffffffffffffffffffffff00fff9",
        ),
        (".abi_preserve_control 10", "#vli|sBx000003ff"),
        (
            ".abi_preserve 0 .abi_preserve_control 11",
            "#vli|3p4r14sBx000007ffsRx7ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff9",
        ),
        (".abi_preserve 7", "#vli|3p4r20sRx7fffffffffffffffffffffffffffffffffffffffffffffffffffffffff80fff9"),
        (
            ".abi_preserve 200",
            "#vli|3p4r214sRx7fffffffff00000000000000000000000000000000000000000000000000fff9",
        ),
    ];
    for (own, expected) in all {
        let f = format!(".visible .func f(.reg .b64 a, .reg .b32 b) {own} {{ ret; }}");
        let graph = cubin::graph::read(&compile(&f, "sm_90", None).unwrap().cubin).unwrap();
        assert_eq!(graph.others, [("f".to_string(), expected.to_string())], "{own}");
    }
    let holes = [
        ("", "(.reg .b32 a, .reg .b64 b)", "#vil|4p4r24sR"),
        ("(.param .align 4 .b8 r[20])", "(.reg .b32 a, .reg .b64 b)", "#b20il|5p4r24sR"),
        ("(.reg .b32 r)", "(.param .align 16 .b8 a[16], .reg .b32 x)", "#ib16i|5p4r24sR"),
        ("", "(.param .align 8 .b8 a[3], .reg .b64 y)", "#vb3l|4p4r24sR"),
        ("", "()", "#v|0p4r24sR"),
        // Holes are filled, but counted.
        ("", "(.reg .b32 a, .param .align 16 .b8 b[16], .reg .b32 c, .reg .b64 d)", "#vib16il|12p4r24sR"),
        // What the usual registers do not hold is above those that are kept, results as well.
        ("", "(.param .align 4 .b8 a[52])", "#vb52|13p32r24sR"),
        ("(.param .align 4 .b8 r[80])", "(.reg .b32 a)", "#b80i|20p32r24sR"),
        ("", "(.reg .b32 a, .param .align 16 .b8 b[64], .reg .b32 c)", "#vib64i|21p32r24sR"),
        // A last parameter without a size is on the stack.
        ("", "(.param .b32 a, .param .align 8 .b8 p[])", "#vib0|2p4r24sR"),
    ];
    for (results, params, expected) in holes {
        let f = format!(".visible .func {results} f{params} .abi_preserve 10 {{ ret; }}");
        let graph = cubin::graph::read(&compile(&f, "sm_90", None).unwrap().cubin).unwrap();
        assert!(graph.others[0].1.starts_with(expected), "{:?} {expected}", graph.others);
    }
}

/// Calls through pointers, too, are as their prototype says.
#[test]
fn pointers() {
    let f = ".visible .func f(.reg .b64 p) { .reg .b32 r<3>;\n\
        P: .callprototype (.reg .b32 _) _ (.reg .b32 _) .abi_preserve 20 .abi_preserve_control 2;\n\
        Q: .callprototype (.reg .b32 _) _ (.reg .b32 _);\n\
        mov.u32 r0, 1; call (r1), p, (r0), P; call (r2), p, (r1), Q; ret; }";
    let code = code(f, "sm_90", None);
    let to = |r: u8| {
        let moves =
            |i: &&sass::Inst| i.op == Opcode::MOV && i.operands.first() == Some(&Operand::reg(Reg::r(r)));
        code.iter().filter(moves).count()
    };
    assert!(to(34) > 0 && to(35) > 0 && to(20) > 0 && to(21) > 0);
}

/// In ptxas's words.
#[test]
fn what_cannot_be() {
    let refused = |f: &str, limit| compile(f, "sm_90", limit).map(|_| ()).unwrap_err();
    let f = |own: &str, params: &str| format!(".visible .func f{params} {own} {{ ret; }}");
    assert_eq!(refused(&f(".abi_preserve 240", "()"), None), "retaddr_reg 254 is invalid for sm_90");
    assert_eq!(refused(&f(".abi_preserve 255", "()"), None), "retaddr_reg 268 is invalid for sm_90");
    assert_eq!(
        refused(&f(".abi_preserve 238", "()"), None),
        "(C7002) Return Address (252) should be less than 253"
    );
    let own = f(".abi_preserve 60", "()");
    assert_eq!(refused(&own, Some(76)), "(C7002) Return Address (74) should be less than 74");
    assert!(compile(&own, "sm_90", Some(78)).is_ok());
    let caller = ".extern .func g() .abi_preserve 60;\n.visible .func f() { call g; ret; }";
    assert_eq!(refused(caller, Some(64)), "(C7002) Return Address (74) should be less than 62");
    let twelve = "(.param .align 4 .b8 a[48])";
    let message =
        "Parameter registers from R4 to R15 overlap with return address register R14 to R15 for function 'f'";
    assert_eq!(refused(&f(".abi_preserve 0", twelve), None), message);
    assert!(compile(&f(".abi_preserve 2", twelve), "sm_90", None).is_ok());
    // More than the usual registers hold: R24 to R36.
    let thirteen = "(.param .align 4 .b8 a[52])";
    assert!(compile(&f(".abi_preserve 2", thirteen), "sm_90", Some(39)).is_ok());
    let message = "(C7019) Function PARAMETER size requires more registers(37) than available(36)";
    assert_eq!(refused(&f(".abi_preserve 2", thirteen), Some(38)), message);
    let many = |n| format!("(.param .align 4 .b8 a[{}])", 4 * n);
    assert_eq!(
        refused(&f(".abi_preserve 2", &many(150)), None),
        "Parameter register 254 is invalid for sm_90"
    );
    assert_eq!(
        refused(&f(".abi_preserve 64", &many(200)), None),
        "Parameter registers from R52 to R251 overlap with return address register R78 to R79 for function 'f'"
    );
    assert_eq!(
        refused(&f(".abi_preserve 100", &many(150)), None),
        "Parameter registers from R104 to R253 overlap with return address register R114 to R115 for function 'f'\n\
         Parameter register 254 is invalid for sm_90"
    );
    let message = "Parameters of 300 registers do not fit into those of a thread for function 'f'";
    assert_eq!(refused(&f(".abi_preserve 2", &many(300)), None), message);
    for (first, second, what) in [
        (".abi_preserve 8", "", "number of parameter registers"),
        ("", ".abi_preserve 8", "number of parameter registers"),
        (".abi_preserve 8", ".abi_preserve 20", "return address registers"),
        (".abi_preserve 8", ".abi_preserve 9", "number of scratch registers"),
        (".abi_preserve_control 3", ".abi_preserve_control 6", "number of scratch registers"),
    ] {
        let f = format!(".visible .func f() {first};\n.visible .func f() {second} {{ ret; }}");
        assert_eq!(refused(&f, None), format!("Inconsistent prototypes of 'f', {what} differ"));
    }
}

/// Lists of targets are called as all functions are: none of them may have a convention of its own, not even all the same one.
#[test]
fn lists_of_targets() {
    let [kept, barriers] = [".abi_preserve 4", ".abi_preserve_control 6"];
    let [registers, control] =
        ["number of registers used for parameter passing differ", "scatrch control barriers differ"];
    let cases = [
        (kept, "", "f", registers),
        (kept, kept, "g", registers),
        (kept, barriers, "g", control),
        (barriers, kept, "g", registers),
        (barriers, barriers, "g", control),
        ("", ".abi_preserve 4 .abi_preserve_control 6", "g", registers),
    ];
    let module = |f: &str, g: &str, call: &str| {
        format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.visible .func f() {f} {{ ret; }} .visible .func g() {g} {{ ret; }}\n\
             .visible .entry k() {{ .reg .b64 %d; mov.u64 %d, f; T: .calltargets f, g; {call} ret; }}"
        )
    };
    let target = sass::Target::parse("sm_90").unwrap();
    for relocatable in [false, true] {
        let settings = Settings { relocatable, ..Settings::new(target) };
        let compile = |text: &str| oxptxas::compile(text, "k.ptx", &settings);
        for (f, g, named, what) in cases {
            let said = compile(&module(f, g, "call %d, (), T;")).unwrap_err().diagnostics[0].message.clone();
            assert_eq!(said, format!("ABI mismatch when 'k' calls '{named}': {what}"));
        }
        assert!(compile(&module("", "", "call %d, (), T;")).is_ok());
        assert!(compile(&module(kept, kept, "")).is_ok());
    }
}

/// What a function says is held against the limits of the command line in every mode.
#[test]
fn registers_behind_the_limit() {
    let target = sass::Target::parse("sm_90").unwrap();
    let module = |own: &str, params: &str| {
        let pass = if params == "()" { "" } else { ".param .align 4 .b8 a[52];" };
        let passed = if params == "()" { "" } else { ", (a)" };
        format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.func f{params} {own} {{ ret; }}\n\
             .visible .entry k() {{ {{ {pass} call f{passed}; }} ret; }}"
        )
    };
    let address = |limit| {
        format!(
            "Cannot specify R74-R75 as return address registers since function 'f' is restricted to use maximum of {limit} registers"
        )
    };
    let arguments = |limit| {
        format!(
            "Cannot specify R40-R52 as parameter registers since function 'f' is restricted to use maximum of {limit} registers"
        )
    };
    let end = |end| format!("(C7002) Return Address (74) should be less than {end}");
    let params = "(.param .align 4 .b8 a[52])";
    // The option, with what is debugged or linked; what is said: ptxas 13.0.88.
    for (kept, params, limit, whole, linked, debugged) in [
        (60, "()", 32, vec![address(32)], vec![address(32)], vec![address(32)]),
        (60, "()", 74, vec![address(74)], vec![address(74)], vec![address(74)]),
        (60, "()", 75, vec![], vec![end(73)], vec![end(73)]),
        (60, "()", 77, vec![], vec![end(75)], vec![end(75)]),
        (60, "()", 78, vec![], vec![], vec![]),
        (20, params, 36, vec![arguments(36); 2], vec![arguments(36); 2], vec![arguments(36); 2]),
        (20, params, 44, vec![arguments(44)], vec![arguments(44)], vec![arguments(44)]),
    ] {
        let text = module(&format!(".abi_preserve {kept}"), params);
        for (relocatable, debug, want) in
            [(false, false, &whole), (true, false, &linked), (false, true, &debugged)]
        {
            let opt_level = if debug { 0 } else { 3 };
            let settings = Settings {
                relocatable,
                debug,
                opt_level,
                max_registers: Some(limit),
                ..Settings::new(target)
            };
            let errors = oxptxas::compile(&text, "k.ptx", &settings).err().map(|e| e.diagnostics);
            let beyond = |d: &ptx::Diagnostic| d.message.starts_with("Cannot specify");
            let severe =
                errors.iter().flatten().filter(|d| beyond(d)).all(|d| d.severity == ptx::Severity::Error);
            assert!(severe, "{errors:?}");
            let mut said: Vec<String> = errors.into_iter().flatten().map(|d| d.message).collect();
            // Objects say it of who calls it, too.
            said.truncate(want.len());
            assert_eq!(&said, want, "{kept} {limit} {relocatable} {debug}");
            assert!(!want.is_empty() || oxptxas::compile(&text, "k.ptx", &settings).is_ok());
        }
    }
}

/// In all that is compiled, executables and code that is debugged as well.
#[test]
fn prototypes_without_a_return_address() {
    let target = sass::Target::parse("sm_90").unwrap();
    let module = |kept: u32, call: &str| {
        format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 q) {{ .reg .b64 %d; ld.param.u64 %d, [q];\n\
             P: .callprototype _ () .abi_preserve {kept}; {call} ret; }}"
        )
    };
    for (relocatable, debug) in [(false, false), (true, false), (false, true)] {
        let of = |max_registers| Settings { relocatable, debug, max_registers, ..Settings::new(target) };
        let compile = |kept, call: &str, limit| oxptxas::compile(&module(kept, call), "k.ptx", &of(limit));
        let call = "call %d, (), P;";
        for (kept, limit, at, end) in
            [(238, None, 252, 253), (240, None, 254, 253), (255, None, 268, 253), (60, Some(64), 74, 62)]
        {
            let said = compile(kept, call, limit).unwrap_err().diagnostics[0].message.clone();
            assert_eq!(said, format!("(C7002) Return Address ({at}) should be less than {end}"));
        }
        assert!(compile(237, call, None).is_ok() && compile(240, "", None).is_ok());
    }
}

/// Arguments above the registers that are kept: both sides name the same ones, holes filled.
#[test]
fn more_arguments_than_the_usual_registers_hold() {
    let params = "(.param .b32 a, .param .align 16 .b8 b[16], .param .b32 c, .param .b64 d, .param .b32 e) .abi_preserve 2";
    let f = format!(
        ".global .b32 g[4];\n.visible .func f{params} {{ .reg .b32 x<4>; .reg .b64 y; ld.param.b32 x0, [a]; ld.param.b32 x1, [b+8];\n\
         ld.param.b32 x2, [c]; ld.param.b32 x3, [e]; st.volatile.global.b32 [g], x0; st.volatile.global.b32 [g+4], x1;\n\
         st.volatile.global.b32 [g+8], x2; st.volatile.global.b32 [g+12], x3; ret; }}"
    );
    let stored = |i: &sass::Inst| match (i.op, i.operands.last()) {
        (Opcode::STG, Some(Operand::Reg(r))) => Some(r.reg.index),
        _ => None,
    };
    assert_eq!(Vec::from_iter(code(&f, "sm_90", None).iter().filter_map(stored)), [24, 30, 25, 32]);
    let caller = format!(
        ".extern .func g{params};\n.visible .func f(.reg .b32 z) {{ .param .b32 a, c, e; .param .align 16 .b8 b[16]; .param .b64 d;\n\
         st.param.b32 [a], 1; st.param.b32 [b+8], 2; st.param.b32 [c], 3; st.param.b64 [d], 4; st.param.b32 [e], 5;\n\
         call g, (a, b, c, d, e); ret; }}"
    );
    // Constants come in many ways, none of them from memory.
    let given = |i: &sass::Inst| match i.operands.first() {
        Some(Operand::Reg(r)) if i.op != Opcode::LDL && (24..48).contains(&r.reg.index) => Some(r.reg.index),
        _ => None,
    };
    let mut found: Vec<u8> = code(&caller, "sm_90", None).iter().filter_map(given).collect();
    found.sort_unstable();
    assert_eq!(found, [24, 25, 26, 27, 30, 32], "a, c, d, b[8], e");
}

/// Of calls after which a return address or registers above the limit have to be restored.
#[test]
fn slow_calls() {
    let said = |text: &str, limit| -> Vec<String> {
        compile(text, "sm_90", limit).unwrap().warnings.into_iter().map(|w| w.message).collect()
    };
    let g = ".extern .func g() .abi_preserve 8;\n";
    let f = |own: &str| format!("{g}.visible .func f() {own} {{ call g; call g; ret; }}");
    let same = "Caller and callee expected to have different return address register but 'f' and 'g' both use R22 as return address register";
    assert_eq!(said(&f(".abi_preserve 8"), None), [same]);
    assert!(said(&f(".abi_preserve 20"), None).is_empty() && said(&f(""), None).is_empty());
    let spilled = said(&f(""), Some(252));
    let of = |r: u8| {
        format!(
            "Register spills may happen since callee 'g' specifies register R{r} as scratch but caller 'f' doesn't specify"
        )
    };
    assert_eq!(spilled, [254, 253, 252].map(of));
    assert!(said(&f(".abi_preserve 20"), Some(40)).is_empty());
    let kernel = format!("{g}.visible .entry f() {{ call g; ret; }}");
    assert!(said(&kernel, Some(40)).is_empty());
}

#[test]
fn return_addresses_among_scratch_registers() {
    let module = ".extern .func g() .abi_preserve 0;\n.visible .func f() .abi_preserve 1 { call g; ret; }";
    let warnings = compile(module, "sm_90", None).unwrap().warnings;
    let said: Vec<&str> =
        warnings.iter().filter(|w| w.severity == Severity::Warning).map(|w| w.message.as_str()).collect();
    let expected = [("g", 14), ("g", 15), ("f", 14), ("f", 15)].map(|(name, r)| {
        format!("Function '{name}' specifies register R{r} as scratch register which is used as return address register")
    });
    let same = "Caller and callee expected to have different return address register but 'f' and 'g' both use R14 as return address register";
    assert_eq!(said, expected.into_iter().chain([same.to_string()]).collect::<Vec<_>>());
}

/// A kernel with a callee whose return address is above all other registers is not planned for fewer again and again.
#[test]
fn high_return_addresses() {
    let k = ".extern .func (.reg .b32 r) g(.reg .b32 a) .abi_preserve 100;\n\
        .visible .entry f(.param .u64 p) { .reg .b32 x, y; .reg .b64 q; ld.param.u64 q, [p]; ld.global.u32 x, [q];\n\
        call (y), g, (x); add.u32 y, y, x; st.global.u32 [q], y; ret; }";
    assert!(compile(k, "sm_100", None).is_ok());
}
