//! Sizes, counts and directives that ptxas 13.0.88 refuses, in its words.

fn first(version: &str, target: &str, text: &str) -> String {
    let text = format!(".version {version}\n.target {target}\n{text}\n");
    let checked = ptx::parse(&text).and_then(|m| ptx::check(&m, 90));
    checked.err().map_or(String::new(), |e| e[0].message.clone())
}

fn refused(text: &str) -> String {
    first("9.0", "sm_90", text)
}

#[test]
fn parameters_have_a_size() {
    let kernel = |n: u32| format!(".entry k(.param .b8 p[{n}]) {{ ret; }}");
    for (version, target, most) in [
        ("9.0", "sm_90", 32764),
        ("8.1", "sm_75", 32764),
        ("8.0", "sm_80", 4352),
        ("6.0", "sm_60", 4352),
        ("1.4", "sm_13", 256),
    ] {
        assert_eq!(first(version, target, &kernel(most)), "", "{version} {target}");
        let want = format!(
            "Entry function 'k' uses too much parameter space ({:#x} bytes, {most:#x} max).",
            most + 1
        );
        assert_eq!(first(version, target, &kernel(most + 1)), want, "{version} {target}");
    }
    let feature = "Feature 'Kernel parameter size larger than 4352 bytes' requires .target sm_70 or higher";
    assert_eq!(first("8.1", "sm_60", &kernel(4353)), feature);
    let many = |n: u32| {
        let list: Vec<String> = (0..n).map(|i| format!(".param .u32 p{i}")).collect();
        refused(&format!(".entry k({}) {{ ret; }}", list.join(", ")))
    };
    assert_eq!(many(8191), "");
    assert!(many(8192).starts_with("Entry function 'k' uses too much parameter space (0x8000 bytes"));
}

#[test]
fn directives_have_ranges() {
    for (directives, want) in [
        (".maxntid 4294967328", "Constant overflow"),
        (".maxntid 0", "Positive non-zero value expected for maxntid"),
        (".maxntid 2*16", "Parsing error near '*': syntax error"),
        (".maxntid (32)", "Parsing error near '(': syntax error"),
        (".maxntid -1", "Parsing error near '-': syntax error"),
        (".maxntid WARP_SZ", ""),
        (".maxntid 1,1025", ""),
        (".reqntid 32,0", "Positive non-zero value expected for reqntid"),
        (".minnctapersm 0", "Positive non-zero value expected for minnctapersm"),
        (".maxnreg 0", "Positive non-zero value expected for maxnreg"),
        (".maxnreg 300", ""),
        (".maxnreg 4294967296", "Constant overflow"),
        (".maxclusterrank 4294967297", "Constant overflow"),
        (".maxclusterrank 0", ""),
        (
            ".maxnctapersm 4",
            "Deprecated feature: '.maxnctapersm directive' not supported as of PTX version 2.1",
        ),
        (
            ".reqnctapercluster 2 .maxclusterrank 4",
            "Conflicting directives: .reqnctapercluster and .maxclusterrank cannot both be specified",
        ),
        (
            ".blocksareclusters .reqntid 32",
            ".reqntid and .reqnctapercluster directive(s) required for directive '.blocksareclusters'",
        ),
    ] {
        assert_eq!(refused(&format!(".entry k() {directives} {{ ret; }}")), want, "{directives}");
    }
}

#[test]
fn variables_are_where_they_can_be() {
    let predicate = "Predicate variable 'a' must be in register state space";
    let incomplete = "Non-external variable 'a' has incomplete type";
    let param = "Variable 'a' cannot be allocated in .param state space";
    let early = "Only the last input parameter can be an incomplete array.";
    for (text, want) in [
        (".global .u32 a[0];", incomplete),
        (".shared .u32 a[];", incomplete),
        (".extern .shared .u32 a[0];", ""),
        (".extern .shared .u32 a[][4];", ""),
        (".global .u32 a[2][0];", "Array of incomplete type"),
        (".global .u32 a[2][];", "Parsing error near ']': syntax error"),
        (".global .u32 a[2*3];", "Parsing error near '*': syntax error"),
        (".global .u32 a[WARP_SZ];", ""),
        (".global .pred a;", predicate),
        (".shared .pred a;", predicate),
        (".global .v4 .u64 a;", "Vector type too large, exceeds 128 bit limit"),
        (".global .u32 a={1};", "Initial value type mismatch"),
        (".global .u32 a[2]=1;", "Initial value type mismatch"),
        (".global .u32 a[2]={1,2,};", "Parsing error near '}': syntax error"),
        (".global .align (4) .u32 a;", "Parsing error near '(': syntax error"),
        (".global .align 4294967297 .u32 a;", "Constant overflow"),
        (".shared .attribute(.managed) .u32 a;", "Illegal attribute '.managed' for symbol 'a'"),
        (".global .attribute() .u32 a;", "Parsing error near ')': syntax error"),
        (".global .attribute(.frob) .u32 a;", "Parsing error near '.frob': syntax error"),
        (".global .attribute(.unified(1)) .u32 a;", "Parsing error near ')': syntax error"),
        (".shared .attribute(.unified(1, 2)) .u32 a;", "Illegal attribute '.unified' for symbol 'a'"),
        (".func .attribute(.managed) f() { ret; }", "Parsing error near '.managed': syntax error"),
        (".func .attribute(.frob) f() { ret; }", "Parsing error near '.frob': syntax error"),
        (".entry .attribute(.unified(1, 2)) k() { ret; }", "Parsing error near '.attribute': syntax error"),
        (".common .entry k() { ret; }", "Parsing error near '.entry': syntax error"),
        (".common .func f() { ret; }", "Parsing error near '.func': syntax error"),
        (".common .const .u32 a;", ".common variables must be declared in .global space"),
        (".param .u32 a;", "Parameter variables may not be declared at module scope"),
        (".visible .visible .global .u32 a;", "Parsing error near '.visible': syntax error"),
        (
            ".extern .global .u32 a; .global .u32 a;",
            "'.extern' variable 'a' cannot be resolved by a '.static'",
        ),
        (".extern .global .u32 a; .visible .global .u64 a;", "Inconsistent redefinition of variable 'a'"),
        (".extern .global .u32 a; .visible .global .u32 a;", ""),
        (".entry k(.param .pred a) { ret; }", predicate),
        (".entry k(.param .f16x2 a) { ret; }", param),
        (".entry k(.param .v4 .f32 a) { ret; }", param),
        (".entry k(.param .b8 a[]) { ret; }", "Parameter to entry function cannot be an incomplete array."),
        (".entry k(.param .u64 .ptr .align 3 a) { ret; }", "Alignment must be a power of two"),
        (".entry k(.param .u64 .ptr .reg a) { ret; }", "Parsing error near '.reg': syntax error"),
        (".entry k(.param .u64 a,) { ret; }", "Parsing error near ')': syntax error"),
        (".entry k(.param .u64) { ret; }", "Parsing error near ')': syntax error"),
        (".entry k(.reg .u64 a) { ret; }", "Entry parameter 'a' must have .param state space"),
        (".func f(.param .u64 .ptr a) { ret; }", "Illegal placement of kernel parameter attribute"),
        (".func f(.param .b8 a[]) { ret; }", ""),
        (".func (.param .b8 a[]) f() { ret; }", "Output parameter cannot be an incomplete array."),
        (".func f(.param .b8 a[], .param .b32 b) { ret; }", early),
        (".entry k() { p: .callprototype _ (.param .b8 _[], .param .b32 _); ret; }", early),
        (".func f(.reg .u32 a[2]) { ret; }", "Variable 'a' cannot be allocated into a register"),
        (".entry k() { .param .b8 a[]; ret; }", incomplete),
    ] {
        assert_eq!(refused(text), want, "{text}");
    }
}

#[test]
fn what_calls_pass() {
    let open = ".func f(.param .b32 n, .param .b8 a[]) { ret; } .entry k() { .param .b32 q; .param .b8 w[4];";
    let number = "Call has wrong number of parameters";
    let kind = "Type of argument does not match formal parameter 'y'";
    for (text, want) in [
        (format!("{open} call f, (q); ret; }}"), ""),
        (format!("{open} call f, (q, w); ret; }}"), ""),
        (format!("{open} call f, (q, w, q); ret; }}"), number),
        (".func f(.param .b8 a[]) { ret; } .entry k() { call f; ret; }".into(), number),
        (
            ".func f(.param .b32 y[2]) { ret; } .entry k() { .param .f16x2 q[2]; call f, (q); ret; }".into(),
            kind,
        ),
        (".func f(.reg .u32 y) { ret; } .entry k() { .reg .f16x2 q; call f, (q); ret; }".into(), ""),
        (".func f(.reg .f16x2 y) { ret; } .entry k() { .reg .f32 q; call f, (q); ret; }".into(), ""),
        (".func f(.reg .f16x2 y) { ret; } .entry k() { .reg .u16 q; call f, (q); ret; }".into(), kind),
    ] {
        assert_eq!(refused(&text), want, "{text}");
    }
}

#[test]
fn votes_without_sync_are_warned_of() {
    for (version, word, want) in [
        ("5.0", "ballot.b32 r", 1),
        ("6.0", "ballot.b32 r", 0),
        ("6.1", "ballot.b32 r", 0),
        ("6.2", "ballot.b32 r", 2),
        ("6.0", "all.pred q", 2),
    ] {
        let text = format!(
            ".version {version}\n.target sm_30\n.entry k() {{ .reg .pred p, q; .reg .b32 r; vote.{word}, p; ret; }}"
        );
        assert_eq!(ptx::check::warnings(&ptx::parse(&text).unwrap()).len(), want, "{text}");
    }
}

#[test]
fn headers_are_said_once() {
    let kernel = ".entry k() { ret; }";
    for (text, want) in [
        (".version 9.0\n.target sm_90\n.target sm_90", ""),
        (
            ".version 9.0\n.target sm_90\n.address_size 64\n.target sm_80",
            "Parsing error near '.target': syntax error",
        ),
        (
            ".version 9.0\n.target sm_90\n.address_size 64\n.address_size 64",
            "Parsing error near '.address_size': syntax error",
        ),
        (
            ".version 9.0\n.target sm_90\n.address_size 16",
            "Illegal value for .address_size directive (must be 32 or 64)",
        ),
        (
            ".version 9.0\n.target sm_90, texmode_unified, texmode_independent",
            "Conflicting .target option 'texmode_independent'",
        ),
        (
            ".version 9.0\n.target sm_90, map_f64_to_f32",
            "Directive map_f64_to_f32 is not supported with SM 1.3 or higher",
        ),
        (
            ".version 9.0\n.target texmode_unified",
            "Target architecture not defined at start of file '{file}'",
        ),
        (".version 9.0\n.target sm_90;", "Parsing error near ';': syntax error"),
        (".version 8.9\n.target sm_90", "Unsupported .version 8.9; current version is '9.5'"),
        (".version 9.5\n.target sm_90", ""),
        (".version 9.6\n.target sm_90", "Unsupported .version 9.6; current version is '9.5'"),
    ] {
        let checked = ptx::parse(&format!("{text}\n{kernel}\n")).and_then(|m| ptx::check(&m, 90));
        let got = checked.err().map_or(String::new(), |e| e[0].message.clone());
        assert_eq!(got, want, "{text}");
    }
}

#[test]
fn statements_have_rules_of_their_own() {
    let narrow = "Program uses 32-bit address which is conflicting with .address_size 64: 32-Bit addressing is not supported";
    let call = ".func f(.param .b32 x) { ret; }";
    for (statement, want) in [
        ("ld.global.u32 r, [r];", narrow),
        ("ld.u32 r, [r];", narrow),
        ("atom.add.u32 r, [r], 1;", narrow),
        ("mov.u32 r, g;", narrow),
        ("ld.shared.u32 r, [r];", ""),
        ("ld.const.u32 r, [r];", ""),
        ("ld.global.u32 r, [b];", "Illegal operand type for address/array-index"),
        (
            "{ .param .b32 a; @p st.param.b32 [a], r; call f, (a); }",
            "Illegal to predicate instruction 'st.param' with operand 'a'",
        ),
        ("{ .param .b32 a; st.param.b32 [a], r; @p call f, (a); }", ""),
    ] {
        let text = format!(
            ".global .u32 g;\n{call}\n.entry k() {{ .reg .pred p; .reg .b32 r; .reg .b128 b; {statement} ret; }}"
        );
        assert_eq!(refused(&text), want, "{statement}");
    }
    let mismatch = |op: &str| format!("Arguments mismatch for instruction '{op}'");
    let product = "tcgen05.mma.cta_group::1.kind::f16 [r], d, d, r";
    for (statement, want) in [
        (format!("{product}, {{0, 0, 0, 0}}, p;"), mismatch("tcgen05.mma")),
        (format!("{product}, {{0, r, 0, 0}}, p;"), String::new()),
        (format!("{product}, {{r, r, r, r}}, p;"), String::new()),
        ("tcgen05.st.sync.aligned.16x64b.x2.b32 [r], {0, 0};".into(), mismatch("tcgen05.st")),
        ("tcgen05.st.sync.aligned.16x64b.x2.b32 [r], {0, r};".into(), String::new()),
    ] {
        let text = format!(
            ".version 8.8\n.target sm_100a\n.address_size 64\n.entry k() {{ .reg .pred p; .reg .b32 r; .reg .b64 d; {statement} ret; }}"
        );
        let checked = ptx::parse(&text).and_then(|m| ptx::check(&m, 100));
        let found = checked.err().map_or(String::new(), |e| e[0].message.clone());
        assert_eq!(found, want, "{statement}");
    }
    let range = |n: &str| {
        format!(
            "Argument 1 of instruction 'setmaxnreg.inc': value '{n}' out of range, expected to be in range [24..256]"
        )
    };
    for (n, want) in [
        ("24", String::new()),
        ("256", String::new()),
        ("16", range("16")),
        ("264", range("264")),
        ("-8", range("-8")),
        (
            "25",
            "Argument 1 of instruction 'setmaxnreg.inc': unexpected value '25', expected to be multiple of 8"
                .into(),
        ),
    ] {
        let text = format!(".entry k() {{ setmaxnreg.inc.sync.aligned.u32 {n}; ret; }}");
        assert_eq!(first("9.0", "sm_90a", &text), want, "{n}");
    }
    let moved = ".entry k() { setmaxnreg.sync.inc.aligned.u32 64; ret; }";
    assert_ne!(first("9.0", "sm_90a", moved), "");
}

#[test]
fn pragmas_are_known_or_not() {
    let said = |text: &str| {
        let module = ptx::parse(&format!(".version 9.0\n.target sm_90\n{text}\n"));
        module.map(|m| m.warnings.iter().map(|w| w.message.clone()).collect::<Vec<_>>())
    };
    let body = |text: &str| said(&format!(".entry k() {{ .pragma {text}; ret; }}")).unwrap();
    assert_eq!(body("\"nounroll\", \"frequency 5\", \"used_bytes_mask 0xf\""), [""; 0]);
    assert_eq!(
        body("\"foo\", \"nounroll;\""),
        ["Pragma 'foo' unsupported", "Pragma 'nounroll;' unsupported"]
    );
    assert_eq!(
        body("\"enable_smem_spilling\""),
        ["Pragma 'enable_smem_spilling' is ignored: registers are spilled to local memory"]
    );
    assert_eq!(
        said(".func f() { .pragma \"enable_smem_spilling\"; ret; }").unwrap_err()[0].message,
        "Pragma 'enable_smem_spilling' cannot be specified for device functions"
    );
    assert_eq!(said(".entry k() .pragma \"local_maxnreg 32\"; { ret; }").unwrap().len(), 1);
    assert_eq!(said(".pragma \"foo\";").unwrap_err()[0].message, "Pragma 'foo' not supported");
    for text in [".pragma \"frequency 5\";", ".entry k() .pragma \"frequency 5\"; { ret; }"] {
        let message = "Pragma 'frequency 5' is allowed only within function scope";
        assert_eq!(said(text).unwrap_err()[0].message, message, "{text}");
    }
}

#[test]
fn types_need_versions_and_targets() {
    let version = "Feature 'Type .b128' requires PTX ISA .version 8.3 or later";
    let target = "Feature 'Type .b128' requires .target sm_70 or higher";
    let pairs = "Feature '.f16x2 packed data-type' requires .target sm_53 or higher";
    for declaration in [".global .@ g;", ".func f(.reg .@ r) { ret; }", ".entry k() { .reg .@ r<3>; ret; }"] {
        let (wide, half) = (declaration.replace('@', "b128"), declaration.replace('@', "f16x2"));
        assert_eq!(first("8.2", "sm_80", &wide), version, "{wide}");
        assert_eq!(first("8.3", "sm_60", &wide), target, "{wide}");
        assert_eq!(first("8.3", "sm_70", &wide), "", "{wide}");
        assert_eq!(first("4.3", "sm_50", &half), pairs, "{half}");
        assert_eq!(first("4.3", "sm_53", &half), "", "{half}");
    }
    assert_eq!(first("7.3", "sm_88", ".entry k() { ret; }"), "");
    assert_ne!(first("7.2", "sm_88", ".entry k() { ret; }"), "");
}

#[test]
fn text_is_ascii() {
    for text in ["// é", "/* é */", ".file 1 \"é.cu\"", ".entry k() { .pragma \"é\"; ret; }"] {
        assert_eq!(refused(text), "Unexpected non-ASCII character", "{text}");
    }
}

/// Constants of newer targets.
#[test]
fn counts_have_ranges() {
    let first = |target: &str, statement: &str| {
        let text = format!(
            ".version 9.0\n.target {target}\n.entry k() {{ .reg .b32 r; .reg .b64 d; .shared .b64 s; {statement} ret; }}\n"
        );
        let checked = ptx::parse(&text).and_then(|m| ptx::check(&m, 121));
        checked.err().map_or(String::new(), |e| e[0].message.clone())
    };
    let alloc = |n: &str| first("sm_100a", &format!("tcgen05.alloc.cta_group::1.sync.aligned.b32 [d], {n};"));
    let dealloc =
        |n: &str| first("sm_100a", &format!("tcgen05.dealloc.cta_group::1.sync.aligned.b32 r, {n};"));
    let fill = |n: &str| first("sm_100a", &format!("st.bulk [d], {n}, 0;"));
    let wait = |n: &str| first("sm_90a", &format!("wgmma.wait_group.sync.aligned {n};"));
    for n in ["32", "64", "512"] {
        assert_eq!(alloc(n), "");
    }
    assert_eq!(alloc("48"), "Argument 1 of 'tcgen05.alloc' instruction: value must be power of 2");
    assert!(!alloc("16").is_empty() && !alloc("1024").is_empty());
    for n in ["0", "96", "1024", "-32"] {
        assert_eq!(dealloc(n), "");
    }
    assert!(!dealloc("48").is_empty());
    assert_eq!(fill("16777216"), "");
    assert!(!fill("16777224").is_empty() && !fill("-8").is_empty() && !fill("12").is_empty());
    assert_eq!(wait("4294967296"), "");
    assert!(!wait("-1").is_empty());
}
