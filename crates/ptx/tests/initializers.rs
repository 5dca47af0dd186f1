//! How the values of initializers lie in their variables, and what stands around declarations: as ptxas 13.0 does it.

use ptx::ast::Item;

const HEAD: &str = ".version 9.0\n.target sm_90\n.address_size 64\n.global .u32 zz;\n";

fn parse(text: &str) -> Result<ptx::ast::Module, String> {
    let source = format!("{HEAD}{text}");
    let module = ptx::parse(&source).map_err(|e| e[0].message.clone())?;
    ptx::check(&module, 90).map_err(|e| e[0].message.clone())?;
    Ok(module)
}

/// The bytes of `t`, and where its addresses are.
fn layout(declaration: &str) -> Result<(Vec<u8>, Vec<u64>), String> {
    let module = parse(&format!(".global {declaration};"))?;
    let (_, var) = module.vars.iter().find(|(_, v)| v.name == "t").expect("t");
    let init = var.init.as_ref().expect("an initializer");
    let mut bytes = init.bytes.clone();
    bytes.resize(usize::try_from(var.size()).unwrap(), 0);
    Ok((bytes, init.relocs.iter().map(|r| r.offset).collect()))
}

/// Values follow one another: what short lists leave is zero at the end of the variable, not of the row.
#[test]
fn short_rows_leave_zeros_at_the_end() {
    let cases: &[(&str, &[u8])] = &[
        (".u8 t[2][3]={{1,2},{4,5,6}}", &[1, 2, 4, 5, 6, 0]),
        (".u8 t[2][3]={{1,2},{4}}", &[1, 2, 4, 0, 0, 0]),
        (".u8 t[2][3]={{1,2}}", &[1, 2, 0, 0, 0, 0]),
        (".u8 t[2][3]={{},{4}}", &[4, 0, 0, 0, 0, 0]),
        (".u8 t[2][3]={{1},{}}", &[1, 0, 0, 0, 0, 0]),
        (".u8 t[2][2]={{},{}}", &[0, 0, 0, 0]),
        (".u8 t[2][2][2]={{{1},{2}},{{3},{4}}}", &[1, 2, 3, 4, 0, 0, 0, 0]),
        (".u8 t[2][2][2]={{{1}},{{3},{4}}}", &[1, 3, 4, 0, 0, 0, 0, 0]),
        (".u8 t[2][2][2]={{{1,2}},{{4,5},{6}}}", &[1, 2, 4, 5, 6, 0, 0, 0]),
        (".u16 t[2][2]={{1},{2,3}}", &[1, 0, 2, 0, 3, 0, 0, 0]),
        (".v2 .u8 t[2]={{1,2}}", &[1, 2, 0, 0]),
        (".v2 .u8 t[2][2]={{{1,2}},{{3,4}}}", &[1, 2, 3, 4, 0, 0, 0, 0]),
        (".v2 .u8 t[2][2]={{{1,2}},{{3,4},{5,6}}}", &[1, 2, 3, 4, 5, 6, 0, 0]),
    ];
    for (declaration, want) in cases {
        assert_eq!(layout(declaration).unwrap().0, *want, "{declaration}");
    }
    let (bytes, addresses) = layout(".u64 t[2][2]={{1},{zz,3}}").unwrap();
    assert_eq!((bytes.len(), bytes[16], addresses), (32, 3, vec![8]));
}

/// The rows of an open dimension are counted, however short they are.
#[test]
fn open_arrays_have_as_many_rows_as_there_are() {
    let cases: &[(&str, &[u8])] = &[
        (".u8 t[]={1,2,3}", &[1, 2, 3]),
        (".u8 t[][3]={{1,2,3},{4,5,6}}", &[1, 2, 3, 4, 5, 6]),
        (".u8 t[][3]={{1,2},{3}}", &[1, 2, 3, 0, 0, 0]),
        (".u8 t[][2][2]={{{1},{2}},{{3},{4}},{{5}}}", &[1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0]),
        (".v2 .u8 t[]={{1,2},{3,4}}", &[1, 2, 3, 4]),
        (".v2 .u8 t[][2]={{{1,2}},{{3,4}}}", &[1, 2, 3, 4, 0, 0, 0, 0]),
    ];
    for (declaration, want) in cases {
        assert_eq!(layout(declaration).unwrap().0, *want, "{declaration}");
    }
}

/// Each list is checked by itself, whatever room others leave.
#[test]
fn no_list_is_too_long() {
    for declaration in [
        ".u8 t[2][3]={{1},{},{3}}",
        ".u8 t[2][3]={{1,2,3,4}}",
        ".u8 t[2][3]={1,2,3,4,5,6}",
        ".u8 t[2][3]={{1,2,3},4}",
        ".u8 t[][3]={{1,2,3,4}}",
        ".u8 t[2][2][2]={{{1,2},{3},{4}}}",
        ".u8 t[2][2][2]={{{1,2,3}}}",
        ".u8 t[6]={{1,2},{3}}",
        ".u8 t[2][2]={{},{},{}}",
        ".v2 .u8 t[2]={{1,2},{3}}",
        ".v2 .u8 t[2]={{1,2},{3,4},{5,6}}",
    ] {
        assert!(layout(declaration).is_err(), "{declaration}");
    }
}

/// `.align` and `.attribute` may stand before the space, and the greatest of several alignments counts.
#[test]
fn placement_may_come_first() {
    for (text, align) in [
        (".align 8 .global .u32 t;", 8),
        (".visible .align 8 .global .v2 .u32 t;", 8),
        (".global .align 16 .align 8 .u32 t;", 16),
        (".align 16 .global .align 8 .u32 t;", 16),
        (".attribute(.managed) .align 8 .global .u32 t;", 8),
        (".align 8 .const .u32 t;", 8),
        (".func f() { .align 8 .local .u32 t; .align 4 .reg .u32 r; ret; }", 8),
        (".entry k(.align 8 .param .u32 t) { ret; }", 8),
    ] {
        let module = parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let (_, t) = module.vars.iter().find(|(_, v)| v.name == "t").expect("t");
        assert_eq!(t.align, align, "{text}");
        assert_eq!(t.managed, text.contains("managed"), "{text}");
        let again = ptx::parse(&module.to_string()).unwrap();
        assert_eq!(again.to_string(), module.to_string());
    }
    for text in [
        ".align 8 .visible .global .u32 t;",
        ".align 8 .v2 .global .u32 t;",
        ".u32 .align 8 .global t;",
        ".align 8 .entry k() { ret; }",
        ".align 8 .func f() { ret; }",
        ".align 8;",
        ".func f() { .align 8 ret; }",
        ".func f() { .align 8 .extern .func g(); ret; }",
        ".func f(.param .u64 .align 8 t) { ret; }",
        ".func f(.attribute(.managed) .param .u64 t) { ret; }",
        ".func f() { .attribute(.managed) .reg .u64 t; ret; }",
        ".entry k(.param .u64 .ptr .global .align 8 .align 8 t) { ret; }",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
}

/// Headers have their directives at the end, and `.noreturn` is of what returns nothing.
#[test]
fn headers_of_functions() {
    for text in [".func f() .noreturn { exit; }", ".func () f(.param .u64 x) .noreturn { exit; }"] {
        assert_eq!(parse(text).err(), None, "{text}");
    }
    for text in [
        ".func (.param .u32 r) f() .noreturn { exit; }",
        ".func (.reg .u32 r) f() .noreturn { exit; }",
        ".extern .func (.param .u32 r) f() .noreturn;",
        ".func f() .noreturn .noreturn { exit; }",
        ".func .noreturn f() { exit; }",
        ".func .abi_preserve 4 f() { ret; }",
        ".entry .maxntid 1 k() { ret; }",
        ".entry (.param .u32 r) k() { ret; }",
        ".entry () k() { ret; }",
        ".entry k() { T: .callprototype (.param .u32 r) _ () .noreturn; ret; }",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
}

/// Lines of preprocessors are passed over; nothing else begins with `#`.
#[test]
fn lines_of_preprocessors() {
    let item = |text: &str| parse(text).map(|m| m.items.iter().filter(|i| matches!(i, Item::Var(_))).count());
    for line in [
        "# 1 \"a\"",
        "#1 \"a\"",
        "#line 1 \"a\"",
        "#line1 \"a\"",
        "#\tline\t1\t\"a\"",
        "  # 01 \"a\"",
        "# 1 \"a\" 3 4",
        "# 1 \"\"",
        "# 1 \"a\\b\" 3\r",
        "# 99999999999 \"a\"",
        ".global .u32 x; # 1 \"a\"",
        ".global .u32 x # 1 \"a\"\n;",
    ] {
        let want = 2 + usize::from(line.contains(".global"));
        assert_eq!(item(&format!("{line}\n.global .u32 y;")), Ok(want), "{line}");
    }
    for line in [
        "#",
        "# 1",
        "#line 1",
        "#define X 5",
        "#pragma once",
        "# \"a\"",
        "# 0x1 \"a\"",
        "# -1 \"a\"",
        "# 1U \"a\"",
        "# 1 a",
        "# 1 'a'",
        "# 1 \"a",
        "# 1 \"a\"3",
        "# 1 \"a\" b",
        "# 1 \"a\\\"b\"",
        "# 1 \"a\" // c",
        "# 1 \"a\" #2 \"b\"",
        "#line 1\"a\"",
        "#Line 1 \"a\"",
        "#lines 1 \"a\"",
        "# 1\n\"a\"",
    ] {
        assert!(item(&format!("{line}\n.global .u32 y;")).is_err(), "{line}");
    }
    // Without an end of line it is no line.
    assert!(item("# 1 \"a\"").is_err());
}

#[test]
fn characters_and_the_version() {
    for text in ["\u{1a}", ".global .u32 y;\n\u{1a}\u{1a}", "// \u{1a}\n", ".global\u{c}.u32 y;"] {
        assert_eq!(parse(text).err(), None, "{text:?}");
    }
    for text in ["\0", ".global .u32 y;\n\0\n", "/* \0 */", "\u{1}", "\u{b}.global .u32 y;"] {
        assert!(parse(text).is_err(), "{text:?}");
    }
    let tail = "\n.target sm_90\n.address_size 64\n";
    for (text, good) in [
        (".version\t9.0", true),
        (".version\r9.0", true),
        ("/* */ .version 9.0/* */", true),
        ("# 1 \"a\"\n.version 9.0", true),
        (".version /* */ 9.0", false),
        (".version // c\n9.0", false),
        (".version\n9.0", false),
        (".version9.0", false),
        ("\\.version 9.0", false),
    ] {
        assert_eq!(ptx::parse(&format!("{text}{tail}")).is_ok(), good, "{text:?}");
    }
}

/// Shared memory has no address that a variable could begin with.
#[test]
fn addresses_are_of_global_and_constant_variables() {
    let said = |text: &str| parse(text).map(drop);
    assert_eq!(said(".const .u32 c; .global .u64 a[2] = {zz, generic(c)};"), Ok(()));
    for text in ["y", "generic(y)", "y+4"] {
        let message = said(&format!(".shared .b32 y[4]; .global .u64 a[1] = {{{text}}};")).unwrap_err();
        assert!(message.contains("not in .global or .const state space"), "{text}: {message}");
    }
}
