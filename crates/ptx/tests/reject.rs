//! Wrong input: one clear error with its place, and no panic.

use ptx::{Diagnostic, LineIndex};

const KERNEL: &str = "\
.version 8.0
.target sm_75
.address_size 64

.visible .entry k(
\t.param .u64 k_param_0,
\t.param .u32 k_param_1
)
{
\t.reg .pred \t%p<2>;
\t.reg .b32 \t%r<6>;
\t.reg .b64 \t%rd<4>;
\tld.param.u64 \t%rd1, [k_param_0];
\tld.param.u32 \t%r1, [k_param_1];
\tcvta.to.global.u64 \t%rd2, %rd1;
\tmov.u32 \t%r2, %tid.x;
\tsetp.ge.s32 \t%p1, %r2, %r1;
\t@%p1 bra \t$L__BB0_2;
\tmul.wide.s32 \t%rd3, %r2, 4;
\tadd.s64 \t%rd3, %rd2, %rd3;
\tst.global.u32 \t[%rd3], %r2;
$L__BB0_2:
\tret;
}
";

fn errors(source: &str) -> Vec<Diagnostic> {
    match ptx::parse(source).and_then(|m| ptx::check(&m, 90)) {
        Ok(()) => Vec::new(),
        Err(e) => e,
    }
}

/// The first error of the kernel with `from` replaced by `to`.
fn first_error(from: &str, to: &str) -> String {
    assert!(KERNEL.contains(from));
    let source = KERNEL.replacen(from, to, 1);
    let errors = errors(&source);
    let first = errors.first().unwrap_or_else(|| panic!("`{to}` was accepted"));
    first.render("ptxas", "k.ptx", &source, &LineIndex::new(&source)).lines().next().unwrap().to_string()
}

#[test]
fn the_kernel_itself_is_fine() {
    assert_eq!(errors(KERNEL), []);
}

#[test]
fn errors_name_the_line() {
    let cases = [
        ("mul.wide", "mull.wide", "line 19; error   : Not a name of any known instruction: 'mull'"),
        ("%r2, 4", "%q2, 4", "line 19; error   : Unknown symbol '%q2'"),
        ("bra \t$L__BB0_2", "bra \t$L__BB0_3", "line 18; error   : Unknown symbol '$L__BB0_3'"),
        ("\tret;", "$L__BB0_2:\n\tret;", "line 23; error   : Duplicate definition of label '$L__BB0_2'"),
        (
            "add.s64 \t%rd3, %rd2",
            "add.s64 \t%rd3, %r2",
            "line 20; error   : Arguments mismatch for instruction 'add'",
        ),
        ("setp.ge", "setp.gx", "line 17; error   : Unknown modifier '.gx'"),
        (
            ".version 8.0",
            ".version 9.6",
            "line 1; fatal   : Unsupported .version 9.6; current version is '9.5'",
        ),
        (".version 8.0\n", "", "line 2; fatal   : Missing .version directive at start of file 'k.ptx'"),
    ];
    for (from, to, want) in cases {
        assert_eq!(first_error(from, to), format!("ptxas k.ptx, {want}"));
    }
    let higher = errors(&KERNEL.replacen("8.0\n.target sm_75", "8.6\n.target sm_100", 1));
    assert!(higher[0].message.contains("SM version specified by .target is higher"), "{higher:?}");
    // What is wrong in the header is all that is said of it.
    let old = "line 2; error   : PTX .version 8.0 does not support .target sm_100";
    assert_eq!(first_error("sm_75", "sm_100"), format!("ptxas k.ptx, {old}"));
    assert_eq!(errors(&KERNEL.replacen("sm_75", "sm_100", 1)).len(), 1);
}

#[test]
fn independent_errors_are_all_reported() {
    let source = KERNEL.replace("mul.wide", "mull.wide").replace("setp.ge", "setp.gx");
    assert_eq!(errors(&source).len(), 2);
}

#[test]
fn no_truncation_panics_and_none_is_accepted_inside_the_body() {
    let body = KERNEL.find('{').unwrap();
    for end in 0..KERNEL.len() - 2 {
        let found = errors(&KERNEL[..end]);
        assert!(!found.is_empty() || end < body, "cut at byte {end}");
    }
    assert!(!errors("").is_empty());
    assert!(!errors("\u{7f}ELF\u{2}\u{1}").is_empty());
}

#[test]
fn what_could_be_parsed_is_checked_too() {
    let text =
        ".version 8.0\n.target sm_90\n.entry k()\n{\n.reg .b32 r<4>;\nbla r1;\nadd.f32 r1, r2;\nret;\n}\n";
    let (module, errors) = ptx::parse_all(text);
    assert_eq!(errors.len(), 1);
    let more = ptx::check(&module, 90).unwrap_err();
    assert_eq!(more.len(), 1);
    assert!(more[0].notes.iter().any(|n| n.starts_with("nearest form: add")), "{:?}", more[0].notes);
    let lines = ptx::LineIndex::new(text);
    let json = more[0].render_as(ptx::Style::Json, "ptxas", "k.ptx", text, &lines);
    assert!(json.starts_with("{\"severity\":\"error\",\"file\":\"k.ptx\",\"line\":7,"), "{json}");
    let plain = more[0].render_as(ptx::Style::Plain, "ptxas", "k.ptx", text, &lines);
    assert_eq!(plain, "ptxas k.ptx, line 7; error   : Arguments mismatch for instruction 'add'\n");
}
