//! Damaged input: never a panic, whatever is said of it.

use proptest::prelude::*;
use std::path::Path;

/// Parses, checks, renders and prints whatever it is.
fn digest(source: &str) -> bool {
    match ptx::parse(source) {
        Ok(module) => {
            let _ = ptx::check(&module, 90);
            let printed = module.to_string();
            if let Err(e) = ptx::parse(&printed) {
                panic!("{}", e[0].render("p", "f", &printed, &ptx::LineIndex::new(&printed)))
            }
            true
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            let lines = ptx::LineIndex::new(source);
            for e in errors {
                assert!(e.render("ptxas", "k.ptx", source, &lines).starts_with("ptxas "));
            }
            false
        }
    }
}

fn kernels() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "ptx"));
    files.sort();
    files.iter().map(|f| std::fs::read_to_string(f).unwrap()).collect()
}

#[test]
fn cut_anywhere() {
    for source in kernels() {
        let open = source.find("\n{").unwrap();
        let last = source.rfind('}').unwrap();
        for end in (0..source.len()).step_by(50).filter(|e| source.is_char_boundary(*e)) {
            let accepted = digest(&source[..end]);
            // The first body is not closed yet; later ones may be missing altogether.
            assert!(!(accepted && end > open && end <= source[..=last].find("\n}").unwrap()));
        }
    }
}

#[test]
fn deep_nesting_is_refused() {
    let head = ".version 8.0\n.target sm_90\n.address_size 64\n";
    for (open, close) in [("(", ")"), ("-", ""), ("~", ""), ("{", "}")] {
        let n = 100_000;
        let value = format!("{}1{}", open.repeat(n), close.repeat(n));
        assert!(!digest(&format!("{head}.global .u32 a = {value};\n")));
        assert!(!digest(&format!("{head}.entry k() {{ .reg .u32 r; mov.u32 r, {value}; }}\n")));
        assert!(!digest(&format!("{head}.entry k() {{ {} }}\n", open.repeat(n))));
    }
}

#[test]
fn huge_numbers_are_refused_or_cheap() {
    let head = ".version 8.0\n.target sm_90\n.address_size 64\n";
    digest(&format!("{head}.entry k() {{ .reg .u32 %r<4294967295>; mov.u32 %r4294967294, 1; ret; }}\n"));
    assert!(!digest(&format!("{head}.global .u32 a[99999999999][99999999999];\n")));
    // The values lie together, whatever the size of a row.
    assert!(digest(&format!("{head}.global .u8 a[2][500000000000] = {{{{1}}, {{2}}}};\n")));
    assert!(!digest(&format!("{head}.global .u32 a = 99999999999999999999999;\n")));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_kernels(which in 0usize..100, edits in prop::collection::vec((0usize..100_000, 0usize..60, "\\PC{0,6}|[{}\\[\\]();,.:@!|+<>=%$_0-9a-f\"/*-]{1,6}"), 1..8)) {
        let kernels = kernels();
        let mut source = kernels[which % kernels.len()].clone();
        for (at, length, text) in edits {
            let mut at = at % source.len();
            while !source.is_char_boundary(at) {
                at -= 1;
            }
            let mut end = (at + length).min(source.len());
            while !source.is_char_boundary(end) {
                end += 1;
            }
            source.replace_range(at..end, &text);
        }
        digest(&source);
    }

    #[test]
    fn shuffled_tokens(words in prop::collection::vec(prop::sample::select(vec![
        ".reg", ".u32", ".b64", ".pred", "%r1", "%p1", "%r<9>", "add", ".lo", "mad", "ld", ".global", "[", "]", "{", "}",
        "(", ")", ",", ";", ":", "L", "@", "!", "|", "_", "+", "-", "1", "0x7f", "1.5", "0f3F800000", "%tid", ".x",
        ".entry", ".func", "k", ".visible", ".param", ".align", ".shared", "=", "call", ".v2", "bra", ".loc",
        ".branchtargets", ".callprototype", ".pragma", "\"s\"", ".ptr", ".section", ".file", "generic", "%", "<", "\n",
    ]), 0..120)) {
        let head = ".version 8.0\n.target sm_90\n.address_size 64\n";
        digest(&format!("{head}{}", words.join(" ")));
        digest(&format!("{head}.entry k() {{ .reg .u32 %r<9>; .reg .pred %p1; {}", words.join(" ")));
    }

    #[test]
    fn any_text(text in "\\PC{0,200}") {
        digest(&text);
        digest(&format!(".version 8.0 .target sm_90 {text}"));
    }
}
