//! Debug information that ptxas 13.0.88 refuses, in its words: `.section`, `.file`, `.loc`.

use ptx::ast::{Place, PlaceOf};

fn first(text: &str) -> String {
    let text = format!(".version 9.0\n.target sm_90\n{text}\n");
    let checked = ptx::parse(&text).and_then(|m| ptx::check(&m, 90));
    checked.err().map_or(String::new(), |e| e[0].message.clone())
}

fn near(word: &str) -> String {
    format!("Parsing error near '{word}': syntax error")
}

fn data(cases: &[(&str, &str)]) {
    for (text, want) in cases {
        let want = want.strip_prefix('!').map_or((*want).to_string(), near);
        assert_eq!(first(&format!(".section .debug_info {{ {text} }}")), want, "{text}");
    }
}

#[test]
fn numbers_have_ranges() {
    data(&[
        (".b8 255, 0, -128", ""),
        (".b8 256", "Value out of range for type .b8 256"),
        (".b8 -129", "Value out of range for type .b8 -129"),
        (".b8 -0", "Value out of range for type .b8 0"),
        (".b8 0xffffffffffffffff", "Value out of range for type .b8 4294967295"),
        (".b8 18446744073709551616", ""),
        (".b8 340282366920938463463374607431768211456", "Constant overflow"),
        (".b8 017", ""),
        (".b8 0400", "Value out of range for type .b8 256"),
        (".b8 08", "!8"),
        (".b8 1U", ""),
        (".b8 -1U", "!1U"),
        (".b16 65535", ""),
        (".b16 65536", "Value out of range for type .b16 65536"),
        (".b16 -32768", ""),
        (".b16 -32769", "Value out of range for type .b16 -32769"),
        (".b32 4294967296", ""),
        (".b32 -2147483648", ""),
        (".b32 -2147483649", "Value out of range for type .b32 -2147483649"),
        (".b32 -0", "Value out of range for type .b32 0"),
        (".b64 -0", ""),
        (".b64 -9223372036854775807", ""),
        (".b64 -9223372036854775808", "!9223372036854775808"),
    ]);
}

#[test]
fn data_are_numbers_or_a_label() {
    data(&[
        ("", ""),
        ("a: .b8 1 b: c:.b32 1,2 .b64 3", ""),
        (".b32 a .b64 a+1 .b32 a-b .b64 nothing", ""),
        (".b32 .debug_abbrev .b64 .debug_info+0x10", ""),
        ("a: a:", "Duplicate definition of label 'a'"),
        (".b8", "!}"),
        (".b8 0;", "!;"),
        (".b8 0,", "!}"),
        (".b8 1 2", "!2"),
        (".b8 1,a", "!a"),
        (".b8 1+1", "!+"),
        (".b8 ~0", "!~"),
        (".b8 (1)", "!("),
        (".b8 1.5", "!1.5"),
        (".b8 \"a\"", "!\"a\""),
        (".b8 WARP_SZ", "!WARP_SZ"),
        (".b32 a,1", "!,"),
        (".b32 a-1", "!1"),
        (".b32 a+b", "!b"),
        (".b32 a-b+1", "!+"),
        (".b32 .debug_info-a", "!-"),
        (".b16 a", "Illegal type for dwarf data"),
        (".b8 .debug_info", "Illegal type for dwarf data"),
        (".u8 0", "Illegal type for dwarf data"),
        (".b128 0", "Illegal type for dwarf data"),
        (".align 4", "!.align"),
        ("0", "!0"),
    ]);
}

#[test]
fn sections_have_names() {
    for (name, want) in [
        (".debug_str", ""),
        (".foo", ""),
        (".text", ""),
        ("foo", "!foo"),
        (".b8", "!.b8"),
        (".entry", "!.entry"),
        (".global", "!.global"),
        (".add", "!.add"),
        ("\"a\"", "!\"a\""),
    ] {
        let want = want.strip_prefix('!').map_or(want.to_string(), near);
        assert_eq!(first(&format!(".section {name} {{ .b8 1 }}")), want, "{name}");
    }
    let two = ".section .debug_info { a: } .section .debug_abbrev { a: }";
    assert_eq!(first(two), "Duplicate definition of label 'a'");
}

#[test]
fn files_have_a_time_and_a_size() {
    for (text, want) in [
        ("1 \"a\"", ""),
        ("1 \"a\",0", ""),
        ("1 \"a\",18446744073709551615,0x20", ""),
        ("1 \"a\",-1,1", "!-"),
        ("1 \"a\",1,-1", "!-"),
        ("1 \"a\",1+1", "!+"),
        ("1 \"a\",1,1,1", "!,"),
        ("1 \"a\",99999999999999999999", "Constant overflow"),
        ("4294967296 \"a\"", "Constant overflow"),
    ] {
        let want = want.strip_prefix('!').map_or(want.to_string(), near);
        assert_eq!(first(&format!(".file {text}")), want, "{text}");
    }
}

#[test]
fn inlined_code_names_its_function() {
    for (name, want) in [
        ("f", ""),
        ("f+18446744073709551615", ""),
        (".debug_str", ""),
        (".debug_str+2", ""),
        ("f-1", "!-"),
        ("f+-1", "!-"),
        ("g", "Unresolved label 'g' used in function_name attribute."),
    ] {
        let want = want.strip_prefix('!').map_or(want.to_string(), near);
        let text = format!(
            ".file 1 \"a\"\n.entry k() {{ .loc 1 1 1 .loc 1 2 1, function_name {name}, inlined_at 1 1 1 ret; }}
            .section .debug_str {{ f: .b8 97,0 }}"
        );
        assert_eq!(first(&text), want, "{name}");
    }
}

#[test]
fn bytes_and_labels_are_kept() {
    let text =
        ".version 9.0\n.target sm_90\n.section .debug_str { a: .b8 97,\n 0 b: .b16 -2 .b32 a c: .b64 010 }\n";
    let module = ptx::parse(text).unwrap();
    let section = &module.sections[0];
    assert_eq!(section.bytes, [97, 0, 0xfe, 0xff, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    let labels: Vec<(&str, u32)> = section.labels.iter().map(|(n, at)| (n.as_str(), *at)).collect();
    assert_eq!(labels, [("a", 0), ("b", 2), ("c", 8)]);
    let place = |offset, of, plus| Place { offset, size: 4, of, plus };
    assert_eq!(section.places, [place(4, PlaceOf::Name("a".into()), 0)]);
    let text =
        ".version 9.0\n.target sm_90\n.section .debug_x { .b8 1 .b32 .debug_str+4 .b32 f-g .b32 f+2 }\n";
    let section = &ptx::parse(text).unwrap().sections[0];
    let distance = PlaceOf::Distance("f".into(), "g".into());
    let want = [
        place(1, PlaceOf::Section(".debug_str".into()), 4),
        place(5, distance, 0),
        place(9, PlaceOf::Name("f".into()), 2),
    ];
    assert_eq!(section.places, want);
}
