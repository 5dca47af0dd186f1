//! Module directives, constant expressions and targets: what ptxas says of them.

use ptx::check::runs_on;
use ptx::isa::Suffix;

const HEAD: &str = ".version 9.0\n.target sm_90\n.address_size 64\n";

fn accepts(text: &str) -> bool {
    ptx::parse(&format!("{HEAD}{text}")).and_then(|m| ptx::check(&m, 90)).is_ok()
}

#[test]
fn directives_are_accepted_and_printed() {
    for text in [
        ".visible .func f() { ret; }\n.visible .func g();\n.alias g, f;\n",
        ".pragma \"nounroll\", \"nounroll\";\n.entry k() { .pragma \"c\", \"d\"; ret; }\n",
        ".func f() .abi_preserve 10 { ret; }\n",
        ".func f() .abi_preserve_control 4 { ret; }\n",
        ".entry k() .reqntid 32 .reqnctapercluster 2 .blocksareclusters { ret; }\n",
        ".entry k() { ret; }\n.section .debug_str { info: .b8 1,2,3\n .b32 info+4\n .b64 info-info }\n",
    ] {
        assert!(accepts(text), "{text}");
        let once = ptx::parse(&format!("{HEAD}{text}")).unwrap().to_string();
        let again = ptx::parse(&once).unwrap_or_else(|e| panic!("{e:?}\n{once}"));
        assert_eq!(again.to_string(), once);
        for word in [".alias g, f;", "abi_preserve", "\"d\"", "info-info", ".blocksareclusters"] {
            assert!(!text.contains(word) || once.contains(word), "{word} is lost:\n{once}");
        }
    }
    for text in
        [".entry k() { ret;; }", ".alias g, f;", ".pragma nounroll;", ".entry k() .minnreg 24 { ret; }"]
    {
        assert!(!accepts(text), "{text}");
    }
}

/// Behind a kernel's header a `.pragma` is the kernel's; behind that of a function, which it ends, the module's.
#[test]
fn pragmas_of_headers() {
    for (text, taken) in [
        (".entry k() .pragma \"nounroll\"; { ret; }", true),
        (".entry k() .pragma \"nounroll\" { ret; }", false),
        (".extern .func f() .pragma \"nounroll\";", true),
        (".extern .func f()\n.pragma \"nounroll\";\n.func f2() { ret; }", true),
        (".extern .func f() .pragma \"nounroll\";;", false),
        (".extern .func f() .pragma \"a\";", false),
        (".func f() .pragma \"nounroll\"; { ret; }", false),
        (".func f() .noreturn .pragma \"nounroll\"; { exit; }", false),
    ] {
        assert_eq!(accepts(text), taken, "{text}");
    }
}

/// What ptxas 13.0.88 says of strings with arguments, by version: the word need not end where the argument begins, and one
/// character between them is of neither.
#[test]
fn pragmas_have_versions_and_arguments() {
    let said = |version: &str, string: &str| -> Vec<String> {
        let kernel = format!(".entry k() {{ .pragma \"{string}\"; ret; }}");
        let text = format!(".version {version}\n.target sm_75\n.address_size 64\n{kernel}");
        let errors = ptx::parse(&text).err().unwrap_or_default();
        errors.into_iter().map(|e| e.message).collect()
    };
    let taken = ["1", "10", "0x10", "010", "+3", " 7", "4294967296", "99999999999999999999"];
    for argument in taken {
        assert_eq!(said("9.0", &format!("frequency {argument}")), [""; 0], "{argument}");
    }
    for string in
        ["frequency=3", "frequencyx 3", "  frequency 0", "used_bytes_mask 0", "local_maxnreg 0", "frequent"]
    {
        assert_eq!(said("9.0", string), [""; 0], "{string}");
    }
    let needs =
        |word: &str, version: &str| format!("Feature '{word}' requires PTX ISA .version {version} or later");
    assert_eq!(said("8.8", "frequency 1"), [needs("frequency", "9.0")]);
    assert_eq!(said("8.2", "used_bytes_mask 1"), [needs("used_bytes_mask", "8.3")]);
    assert_eq!(said("8.6", "enable_smem_spilling"), [needs("enable_smem_spilling", "8.7")]);
    let invalid =
        |argument: &str| format!("Invalid value '{argument}' specified for .pragma 'frequency {argument}'");
    for (argument, times) in [
        ("0", 1),
        ("-1", 1),
        ("00", 1),
        ("0x0", 1),
        ("1.5", 1),
        ("1 2", 1),
        (" 7 ", 1),
        ("3x", 1),
        ("1e3", 1),
        ("abc", 2),
        ("0x", 2),
        ("-", 2),
    ] {
        assert_eq!(
            said("9.0", &format!("frequency {argument}")),
            vec![invalid(argument); times],
            "{argument}"
        );
    }
    let empty = |text: &str| format!("Argument(s) to pragma '{text}' cannot be empty");
    assert_eq!(
        said("9.0", "frequency"),
        [empty("frequency"), "Invalid value '' specified for .pragma 'frequency'".to_string()]
    );
    assert_eq!(said("9.0", "used_bytes_mask"), [empty("used_bytes_mask")]);
    assert_eq!(said("9.0", "local_maxnreg x"), ["Invalid value 'x' specified for .pragma 'local_maxnreg x'"]);
}

/// What `ptxas -arch=sm_90` says of each.
#[test]
fn debug_information_is_whole() {
    let first = |head: &str, text: &str| match ptx::parse(&format!("{head}\n{text}\n")) {
        Ok(m) => ptx::check(&m, 90).err().map_or(String::new(), |e| e[0].message.clone()),
        Err(e) => e[0].message.clone(),
    };
    let (old, new) = (".version 1.4\n.target sm_10", ".version 8.6\n.target sm_90");
    let debug = ".version 8.6\n.target sm_90, debug";
    let strings = ".section .debug_str { foo: .b8 0 }";
    let inlined = "{ .loc 1 5 6\n.loc 1 2 3, function_name foo, inlined_at 1 5 6\nret; }";
    for (head, text, want) in [
        (debug, ".entry k() { ret; }", "Debug information not found"),
        (".version 8.6\n.target debug", ".entry k() { ret; }", "Target architecture not defined"),
        (
            new,
            ".file 1 \"a\"\n.entry k() { .loc 1 2 3, function_name foo, inlined_at 1 2 3\nret; }\n.section .debug_str { foo: .b8 0 }",
            "Source location 1 2 3 used in inlined_at directive must be used in a preceding .loc directive",
        ),
        (debug, ".entry k() { ret; }\n.section .debug_info { .b8 1 }", ""),
        (old, "@@DWARF .section .debug_info, \"\",@progbits", ""),
        (new, "@@DWARF .section .debug_info, \"\",@progbits", "Deprecated feature: '@@DWARF"),
        (old, "@@FOO .byte 0", "Parsing error near '@'"),
        (old, "@@DWARF foo", "Parsing error near 'foo'"),
        (new, ".file 1 \"a\"\n.file 1 \"b\"", "Duplicate file index #1"),
        (new, &format!(".file 1 \"a\"\n.entry k() {inlined}"), "Unresolved label 'foo'"),
        (new, &format!(".file 1 \"a\"\n.entry k() {inlined}\n{strings}"), ""),
        (
            new,
            &format!(".entry k() {}\n{strings}", inlined.replacen("5 6\n", "5 7\n", 1)),
            "Source location 1 5 6",
        ),
        (new, ".entry k() { .pragma \"enable_smem_spilling\"; ret; }", "Feature 'enable_smem_spilling'"),
        (new, ".pragma \"enable_smem_spilling\";", "Pragma 'enable_smem_spilling' is allowed only"),
    ] {
        let got = first(head, text);
        assert!(got.starts_with(want) && got.is_empty() == want.is_empty(), "{head}\n{text}\n{got}");
    }
}

#[test]
fn constant_expressions_have_all_operators() {
    let text = ".global .s32 x[] = {1 ? 2 : 3, 0 ? 2 : 1 ? 5 : 6, 3 < 4, 4 <= 3, -1 > -2, 2 >= 3, 1 == 1, 1 != 1, 2 && 0, 0 || 3};\n\
        .entry k() { .reg .u32 %r<5>; mov.u32 %r4, 1; ret; }\n";
    let module = ptx::parse(&format!("{HEAD}{text}")).unwrap();
    let bytes = &module.vars.values().next().unwrap().init.as_ref().unwrap().bytes;
    let words: Vec<u32> = bytes.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(words, [2, 5, 1, 0, 1, 0, 1, 0, 0, 1]);
}

/// `ptxas -arch=COLUMN` of an empty kernel with `.version 9.0` and `.target ROW`.
#[test]
fn suffixed_targets_compile_where_ptxas_compiles_them() {
    const COLUMNS: &str = "sm_90 sm_90a sm_100 sm_100f sm_100a sm_103 sm_103f sm_103a sm_110 sm_110f sm_110a sm_120 \
                           sm_120f sm_120a sm_121f sm_121a";
    for (row, want) in [
        ("sm_90", COLUMNS),
        ("sm_90a", "sm_90a"),
        ("sm_100", COLUMNS.strip_prefix("sm_90 sm_90a ").unwrap()),
        ("sm_100f", "sm_100 sm_100f sm_100a sm_103 sm_103f sm_103a"),
        ("sm_100a", "sm_100a"),
        ("sm_103f", "sm_103 sm_103f sm_103a"),
        ("sm_103a", "sm_103a"),
        ("sm_110f", "sm_110 sm_110f sm_110a"),
        ("sm_120f", "sm_120 sm_120f sm_120a sm_121f sm_121a"),
        ("sm_120a", "sm_120a"),
        ("sm_121f", "sm_121f sm_121a"),
        ("sm_121a", "sm_121a"),
    ] {
        let module = ptx::parse(&format!(".version 9.0\n.target {row}\n.entry k() {{ ret; }}\n")).unwrap();
        let compiles = |column: &&str| {
            let sm = column[3..].trim_end_matches(['a', 'f']).parse().unwrap();
            runs_on(&module, sm, Suffix::of(column))
        };
        let got: Vec<&str> = COLUMNS.split_whitespace().filter(compiles).collect();
        assert_eq!(got.join(" "), want, ".target {row}");
    }
}

#[test]
fn refusals_are_in_ptxas_words() {
    let said = |target: &str, version: &str, arch: &str| {
        let text = format!(".version {version}\n.target {target}\n.entry k() {{ ret; }}\n");
        let sm = arch
            .trim_start_matches("compute_")
            .trim_start_matches("sm_")
            .trim_end_matches(['a', 'f'])
            .parse()
            .unwrap();
        ptx::check::refusal(&ptx::parse(&text).unwrap(), sm, Suffix::of(arch), arch)
    };
    for (target, version, arch, want) in [
        ("sm_90a", "8.0", "compute_90a", None),
        (
            "sm_90a",
            "8.0",
            "compute_90",
            Some("PTX with .target 'sm_90a' cannot be compiled for architecture"),
        ),
        // A virtual target is the real one of its number.
        ("compute_80", "8.0", "sm_90", None),
        ("compute_90a", "8.0", "sm_90", Some("cannot be compiled for architecture 'sm_90'")),
        ("sm_90a", "8.0", "compute_100a", Some("'sm_90a' cannot be compiled to future architecture")),
        ("sm_90a", "8.0", "compute_80", Some("SM version specified by .target is higher than")),
        ("sm_100f", "8.8", "compute_110a", Some("cannot be compiled to different SM-family architecture")),
    ] {
        let got = said(target, version, arch);
        assert_eq!(got.is_some(), want.is_some(), "{target} on {arch}: {got:?}");
        if let (Some(got), Some(want)) = (got, want) {
            assert!(got.contains(want), "{got}");
        }
    }
}

#[test]
fn textures_and_masked_addresses() {
    let head = ".version 9.0\n.target sm_90\n.global .u32 gv;\n";
    let parse = |text: &str| ptx::parse(&format!("{head}{text}\n"));
    for text in [
        ".global .texref t = {addr_mode_0 = wrap, filter_mode = linear};",
        ".global .surfref s[2] = {{width = 4}, {width = 5}};",
        ".entry k(.param .texref t) { ret; }",
        ".global .u8 a[] = {0xff(gv), 0xff00(gv+3), 3, 0xff0000(generic(gv))};",
    ] {
        let module = parse(text).unwrap();
        let printed = module.to_string();
        assert_eq!(ptx::parse(&printed).unwrap().to_string(), printed);
    }
    for text in [
        ".const .texref t;",
        ".global .v2 .texref t;",
        ".global .texref t = 1;",
        ".global .texref t = {no_field = 3};",
        ".entry k() { .global .texref t; ret; }",
        ".global .u8 a[] = {0xff0(gv)};",
        ".global .u16 a = gv;",
        ".global .bf16 a;",
        ".entry k() { .reg .f32x2 a; ret; }",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
}

/// What `ptxas -arch=sm_90` says of each.
#[test]
fn what_is_newer_than_the_module_is_refused() {
    let first = |version: &str, target: &str, text: &str| {
        let source = format!(".version {version}\n.target {target}\n{text}\n");
        let errors = match ptx::parse(&source) {
            Ok(m) => ptx::check(&m, 90).err().unwrap_or_default(),
            Err(e) => e,
        };
        errors.first().map_or(String::new(), |e| e.message.clone())
    };
    let special = |name: &str| format!(".entry k() {{ .reg .b32 r; mov.u32 r, {name}; ret; }}");
    for (version, target, text, want) in [
        (
            "8.0",
            "sm_80",
            ".entry k() .reqnctapercluster 2 { ret; }",
            "'.reqnctapercluster' requires .target sm_90",
        ),
        (
            "7.7",
            "sm_80",
            ".entry k() .maxclusterrank 2 { ret; }",
            "'.maxclusterrank' requires PTX ISA .version 7.8",
        ),
        ("6.3", "sm_70", ".func f() .noreturn { ret; }", "'.noreturn' requires PTX ISA .version 6.4"),
        ("6.4", "sm_70", ".func f() .noreturn { ret; }", ""),
        ("8.0", "sm_90", ".entry k() .noreturn { ret; }", "near '.noreturn': syntax error"),
        ("8.0", "sm_90", ".func f() .maxntid 32 { ret; }", "near '.maxntid': syntax error"),
        (
            "1.4",
            "sm_10",
            ".entry k() .reqntid 32 { ret; }",
            "'.reqntid directive' requires PTX ISA .version 2.1",
        ),
        ("8.0", "sm_80", &special("%clusterid.x"), "Feature '%clusterid' requires .target sm_90"),
        ("4.3", "sm_50", &special("%clock_hi"), "Feature '%clock_hi' requires PTX ISA .version 5.0"),
        ("7.8", "sm_90", &special("%clusterid.x"), ""),
    ] {
        let got = first(version, target, text);
        assert!(got.contains(want) && got.is_empty() == want.is_empty(), "{text}\n{got}");
    }
}

/// The last SM that `.target` names is the one that counts (ptxas 13.0.88), for every order.
#[test]
fn the_last_target_counts() {
    let module =
        |targets: &str| ptx::parse(&format!(".version 9.0\n.target {targets}\n.address_size 64\n")).unwrap();
    for (targets, sm, suffix) in [
        ("sm_75, sm_80", 80, Suffix::None),
        ("sm_80, sm_75", 75, Suffix::None),
        ("sm_75, sm_90a, texmode_unified", 90, Suffix::Arch),
    ] {
        assert_eq!(ptx::check::target(&module(targets)), (sm, suffix), "{targets}");
    }
    let said = ptx::check::refusal(&module("sm_75, sm_90a"), 90, Suffix::None, "sm_90").unwrap();
    assert_eq!(said, "PTX with .target 'sm_90a' cannot be compiled for architecture 'sm_90'");
    assert!(ptx::parse(".version 9.5\n.target sm_107\n.address_size 64\n").is_err());
}

/// What came with PTX 9.1 to 9.3, and before which version and for which targets ptxas 13.5.37 refuses it.
#[test]
fn newer_forms_have_their_versions() {
    let accepts = |version: &str, target: &str, statement: &str| {
        let text = format!(
            ".version {version}\n.target {target}\n.address_size 64\n.entry k()\n{{\n.reg .b8 c<4>; .reg .b16 h<4>; \
             .reg .u16 uh; .reg .b32 r<6>; .reg .u32 u<4>; .reg .s32 s<4>; .reg .b64 d<4>; .local .align 16 .b8 lv[64];\n\
             {statement}\nret;\n}}\n"
        );
        let sm = target[3..].trim_end_matches(['a', 'f']).parse().unwrap();
        ptx::parse(&text).and_then(|m| ptx::check(&m, sm)).is_ok()
    };
    for (first, before, targets, others, statement) in [
        ("9.1", "9.0", &["sm_75", "sm_120"][..], &[][..], "ld.volatile.local.u32 u1, [lv];"),
        ("9.1", "9.0", &["sm_75"], &[], "st.volatile.local.v2.u32 [lv], {u1, u2};"),
        (
            "9.1",
            "9.0",
            &["sm_100f", "sm_110f", "sm_120a"],
            &["sm_90a", "sm_100"],
            "cvt.rn.satfinite.e2m1x2.f16x2 c1, r1;",
        ),
        ("9.1", "9.0", &["sm_103f", "sm_110f"], &["sm_120"], "cvt.rn.satfinite.relu.e5m2x2.bf16x2 h1, r1;"),
        ("9.1", "9.0", &["sm_100a"], &["sm_100"], "cvt.rn.satfinite.e3m2x2.bf16x2 h1, r1;"),
        ("9.2", "9.1", &["sm_120f", "sm_121a"], &["sm_120", "sm_100f"], "add.u8x4 r1, r2, r3;"),
        ("9.2", "9.1", &["sm_120a"], &["sm_110f"], "sub.sat.s8x4 r1, r2, r3;"),
        ("9.2", "9.1", &["sm_121f"], &["sm_121"], "max.relu.s8x4 r1, r2, r3;"),
        ("9.2", "9.1", &["sm_120f"], &["sm_103a"], "neg.s8x4 r1, r2;"),
        ("9.2", "9.1", &["sm_120f"], &["sm_120"], "add.sat.u16x2 r1, r2, r3;"),
        ("9.2", "9.1", &["sm_120f"], &["sm_120"], "add.sat.u32 u1, s2, 5;"),
        ("9.3", "9.2", &["sm_75", "sm_90"], &[], "ld.mmio.acquire.sys.global.u32 u1, [d1];"),
        ("9.3", "9.2", &["sm_80"], &[], "st.mmio.release.sys.u32 [d1], u1;"),
    ] {
        for target in targets {
            assert!(accepts(first, target, statement), "{target}: {statement}");
            assert!(!accepts(before, target, statement), "PTX {before}: {statement}");
        }
        for target in others {
            assert!(!accepts("9.5", target, statement), "{target}: {statement}");
        }
    }
    for statement in [
        "add.u8x4 u1, u2, u3;",
        "add.u8x4 r1, r2, 5;",
        "neg.u8x4 r1, r2;",
        "max.relu.u8x4 r1, r2, r3;",
        "sub.sat.u32 r1, r2, r3;",
        "cvt.rn.satfinite.e5m2x2.bf16x2 uh, r1;",
        "ld.mmio.acquire.gpu.u32 u1, [d1];",
        "ld.volatile.local.L2::128B.u32 u1, [lv];",
    ] {
        assert!(!accepts("9.5", "sm_120f", statement), "{statement}");
    }
}

/// A vector register as a parameter is its components; a call passes it by its name alone.
#[test]
fn vector_registers_are_passed_by_name() {
    let accepts = |call: &str| {
        accepts(&format!(
            ".func (.reg .v2 .u32 o) f(.reg .v2 .u32 i, .reg .u32 j) {{ mov.u32 o.x, i.y; add.u32 o.y, i.x, j; ret; }}\n\
             .entry k() {{ .reg .v2 .u32 v, w; .reg .u32 r<4>; mov.u32 v.x, 1; mov.u32 v.y, 2; {call} ret; }}\n"
        ))
    };
    assert!(accepts("call (w), f, (v, 5);"));
    for call in [
        "call (w), f, ({r1, r2}, r3);",
        "call ({r1, r2}), f, (v, r3);",
        "call (w), f, (v.x, v.y, r3);",
        "call (r1, r2), f, (v, r3);",
        "call (w), f, (r1, r2, r3);",
        "call (w), f, (r1, v);",
    ] {
        assert!(!accepts(call), "{call}");
    }
}

/// What ptxas 13.0.88 says of each.
#[test]
fn variables_by_number() {
    let kernel = |g: &str, s: &str| format!("{g}\n.entry k() {{ .reg .b32 r; {s} ret; }}\n");
    let one =
        |s: &str| kernel(".global .b32 v<4>, w; .const .b128 c<2>; .shared .align 32 .v4 .b32 t<3>;", s);
    assert!(accepts(&one("ld.global.b32 r, [v0]; st.global.b32 [v3], r; ld.shared.b32 r, [t2+4];")));
    for s in ["ld.global.b32 r, [v4];", "ld.global.b32 r, [v];", "ld.const.b32 r, [c2];"] {
        assert!(!accepts(&one(s)), "{s}");
    }
    assert!(accepts(&kernel(".global .b32 v<0>; .extern .global .b32 e<2>;", "ld.global.b32 r, [e1];")));
    for g in [
        ".global .b32 v<4>[3];",
        ".global .b32 v<4> = 3;",
        ".global .b32 v<4> = {1, 2, 3, 4};",
        ".global .b32 v<4>; .global .b32 v1;",
        ".global .b32 v1; .global .b32 v<4>;",
        ".func f(.param .b32 v<4>) { ret; }",
    ] {
        assert!(!accepts(&kernel(g, "")), "{g}");
    }
    let once = ptx::parse(&format!("{HEAD}{}", one(""))).unwrap().to_string();
    assert_eq!(ptx::parse(&once).unwrap().to_string(), once);
}

#[test]
fn only_functions_are_declared_inside_of_one() {
    assert!(accepts(".entry k() { .extern .func f(.param .b32 p); ret; }\n"));
    for text in [".extern .entry f();", ".visible .entry f(.param .b32 p);", ".entry f();", ".func f();"] {
        assert!(!accepts(&format!(".entry k() {{ {text} ret; }}\n")), "{text}");
    }
}

/// A backslash means nothing in a string, which may have several lines.
#[test]
fn strings_end_at_the_next_quotation_mark() {
    assert!(accepts(".file 1 \"a\\\"\n.entry k() { ret; }\n"));
    assert!(accepts(".file 1 \"a\nb.cu\"\n.entry k() { ret; }\n"));
    assert!(!accepts(".file 1 \"a\\\"b.cu\"\n.entry k() { ret; }\n"));
}

/// What ptxas says of addresses of 32 bits where code is to be made and nothing else is wrong.
#[test]
fn addresses_have_64_bits() {
    let all = |version: &str, size: u8, code: &str, sm: u16| -> Vec<String> {
        let text = format!(
            ".version {version}\n.target sm_75\n.address_size {size}\n.entry k() {{ {code} ret; }}\n"
        );
        let said = match ptx::parse(&text).and_then(|m| ptx::check(&m, sm).map(|()| m)) {
            Ok(module) => ptx::check::narrow_addresses(&module, sm),
            Err(errors) => errors,
        };
        said.into_iter().map(|e| e.message).collect()
    };
    let warning = " 64 Bit host architecture (--machine) being used mismatches with .address_size of 32 bits";
    assert_eq!(all("7.0", 32, "", 75), [warning, " 32-Bit compilation is no longer supported"]);
    let abi =
        " 32-Bit ABI (--machine 32 or 32-Bit addressing) is not supported on sm_90 or higher architectures.";
    assert_eq!(all("7.0", 32, "", 90), [warning, abi]);
    assert_eq!(all("7.0", 32, "foo;", 75), ["Not a name of any known instruction: 'foo'"]);
    let old = "Feature '.address_size directive' requires PTX ISA .version 2.3 or later";
    assert_eq!(all("2.2", 64, "", 75)[0], old);
    assert!(all("7.0", 64, "", 75).is_empty());
}

/// ptxas 13.0.88 takes declarations of functions that end where the next directive begins.
#[test]
fn declarations_may_end_without_a_semicolon() {
    let after = [
        ".visible .func g() { ret; }",
        ".entry k() { ret; }",
        ".global .b32 x;",
        ".visible .global .b32 x;",
        ".file 1 \"a.c\"",
        ".section .debug_str { .b8 1 }",
        ".pragma \"nounroll\";\n.entry k() { ret; }",
        "",
    ];
    for (n, next) in after.iter().enumerate() {
        for header in [
            ".extern .func f()",
            ".extern .func (.param .b32 r) f(.param .b32 a)",
            ".extern .func f() .noreturn",
        ] {
            let module =
                ptx::parse(&format!("{HEAD}{header}\n{next}\n")).unwrap_or_else(|e| panic!("{n}: {e:?}"));
            assert!(module.funcs.values().any(|f| f.name == "f" && f.body.is_none()), "{n}");
        }
    }
    assert!(accepts(".visible .func f() { ret; }\n.visible .func g()\n.alias g, f;\n"));
    assert!(!accepts(".extern .entry f()\n.entry k() { ret; }"));
    assert!(!accepts(".extern .func f() .maxntid 32\n.entry k() { ret; }"));
    assert!(!accepts(".extern .func f() x;"));
}

/// The numbers that ptxas 13.0.88 takes, and from which target on.
#[test]
fn ranges_of_what_is_preserved() {
    let first = |target: &str, text: &str| {
        let module = ptx::parse(&format!(".version 9.0\n.target {target}\n.func f() {text} {{ ret; }}\n"));
        module.err().map_or(String::new(), |e| e[0].message.clone())
    };
    assert_eq!(first("sm_80", ".abi_preserve 255 .abi_preserve_control 11"), "");
    assert_eq!(first("sm_90a", ".abi_preserve 256"), ".abi_preserve 256 is invalid for sm_90a");
    assert_eq!(first("sm_80", ".abi_preserve_control 12"), ".abi_preserve_control 12 is invalid for sm_80");
    assert_eq!(first("sm_75", ".abi_preserve 1"), "Feature '.abi_preserve' requires .target sm_80 or higher");
}

/// `.noreturn` first, and each once; prototypes have nothing else (ptxas 13.0.88).
#[test]
fn directives_of_functions_and_prototypes() {
    let said = |text: &str| {
        let module = ptx::parse(&format!(".version 9.0\n.target sm_90\n.address_size 64\n{text}\n"));
        module.err().map_or(String::new(), |e| e[0].message.clone())
    };
    let twice = |name: &str| format!("Attribute '.{name}' specified multiple times in function");
    let syntax = |at: &str| format!("Parsing error near '{at}': syntax error");
    let cases = [
        (".abi_preserve 1 .abi_preserve 2", twice("abi_preserve")),
        (".abi_preserve 1 .abi_preserve_control 2 .abi_preserve 1", twice("abi_preserve")),
        (".abi_preserve_control 3 .abi_preserve_control 3", twice("abi_preserve_control")),
        (".abi_preserve 3 .noreturn", syntax(".noreturn")),
        (".abi_preserve_control 3 .noreturn", syntax(".noreturn")),
        (".maxntid 32", syntax(".maxntid")),
        (".noreturn .abi_preserve 3 .abi_preserve_control 2", String::new()),
        (".abi_preserve_control 2 .abi_preserve 3", String::new()),
    ];
    let prototype =
        |own: &str| format!(".func f(.reg .b64 p) {{ P: .callprototype _ () {own}; call p, (), P; ret; }}");
    for (own, message) in &cases {
        for text in [format!(".func f() {own} {{ exit; }}"), format!(".func f() {own};"), prototype(own)] {
            assert_eq!(said(&text), *message, "{text}");
        }
    }
    assert_eq!(said(&prototype(".pragma \"nounroll\"")), syntax(".pragma"));
}

#[test]
fn common_variables_are_no_images() {
    for kind in ["texref", "surfref"] {
        assert!(accepts(&format!(".weak .global .{kind} t;")), "{kind}");
        let errors = ptx::parse(&format!("{HEAD}.common .global .{kind} t;")).unwrap_err();
        assert_eq!(errors[0].message, "Illegal type for .common symbol");
    }
}

/// The first declaration of a function or kernel says who sees it; others say the same, or nothing (ptxas 13.0.88).
#[test]
fn the_first_declaration_says_who_sees_it() {
    use ptx::Linkage::{Extern, Internal, Visible, Weak};
    let all = [("", Internal), (".visible", Visible), (".weak", Weak), (".extern", Extern)];
    for what in [".func", ".entry"] {
        for (a, first) in all {
            for (b, second) in all {
                for body in [";", " { ret; }"] {
                    let text = format!("{HEAD}{a} {what} f();\n{b} {what} f(){body}\n");
                    let parsed = ptx::parse(&text);
                    let again = matches!((first, second), (Visible | Weak, Internal)) || first == second;
                    let defined = body != ";";
                    assert_eq!(parsed.is_ok(), again && !(defined && second == Extern), "{text}");
                    if let Ok(module) = parsed {
                        assert_eq!(module.funcs.values().next().unwrap().linkage, first, "{text}");
                    }
                }
            }
        }
    }
    let thrice = ".visible .func f();\n.func f();\n.visible .func f() { ret; }\n";
    assert!(accepts(thrice));
}
