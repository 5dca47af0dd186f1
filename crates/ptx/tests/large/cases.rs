//! Inputs that are large in one way, as many times as `n` says: shared by the test `large`, which takes them small, and the
//! example `large`, which takes them whole.

const HEAD: &str = ".version 9.0\n.target sm_90\n.address_size 64\n";

fn body(text: &str) -> String {
    format!("{HEAD}.entry k()\n{{\n.reg .b32 %r<4>;\n{text}\nret;\n}}\n")
}

/// A name, how large it is in whole, the text for a size, and whether it is right.
pub type Case = (&'static str, usize, fn(usize) -> String, bool);

/// All cases.
pub const CASES: &[Case] = &[
    ("nothing", 1, |_| String::new(), false),
    ("a comment of one line", 1_000_000_000, |n| format!("{HEAD}//{}\n", "x".repeat(n)), true),
    ("a comment in stars", 1_000_000_000, |n| format!("{HEAD}/*{}*/\n", "*".repeat(n)), true),
    ("a line of spaces", 1_000_000_000, |n| format!("{HEAD}{}\n", " ".repeat(n)), true),
    ("a name", 1_000_000_000, |n| body(&format!("mov.b32 {}, 1;", "x".repeat(n))), false),
    ("a word", 1_000_000_000, |n| body(&format!("mov.{} %r1, 1;", "x".repeat(n))), false),
    ("a number", 1_000_000_000, |n| body(&format!("mov.b32 %r1, {};", "1".repeat(n))), false),
    ("a fraction", 100_000_000, |n| body(&format!("mov.f32 %r1, 1.{};", "1".repeat(n))), true),
    ("a string", 1_000_000_000, |n| body(&format!(".pragma \"{}\";", "x".repeat(n))), true),
    ("a string without an end", 1_000_000_000, |n| body(&format!(".pragma \"{};", "x".repeat(n))), false),
    ("a comment without an end", 1_000_000_000, |n| body(&format!("/*{}", "x".repeat(n))), false),
    ("instructions in one line", 100_000_000, |n| body(&"add.u32 %r1,%r1,%r2;".repeat(n / 20)), true),
    ("semicolons", 100_000_000, |n| body(&";".repeat(n)), false),
    ("open braces", 1_000_000, |n| body(&"{".repeat(n)), false),
    ("nested blocks", 1_000_000, |n| body(&format!("{}{}", "{".repeat(n), "}".repeat(n))), false),
    ("blocks", 1_000_000, |n| body(&"{}".repeat(n)), true),
    ("open braces at module scope", 1_000_000, |n| format!("{HEAD}{}", "{".repeat(n)), false),
    ("closed braces", 1_000_000, |n| body(&"}".repeat(n)), false),
    ("an initializer in braces", 1_000_000, |n| format!("{HEAD}.global .b32 a = {}1;", "{".repeat(n)), false),
    ("an initializer", 10_000_000, |n| format!("{HEAD}.global .b8 a[] = {{{}1}};", "1,".repeat(n)), true),
    ("nested lists", 1_000_000, |n| body(&format!("call {}", "(".repeat(n))), false),
    ("nested brackets", 1_000_000, |n| body(&format!("ld.u32 %r1, {}", "[".repeat(n))), false),
    ("an operand in braces", 1_000_000, |n| body(&format!("mov.b32 %r1, {}", "{".repeat(n))), false),
    ("operands", 1_000_000, |n| body(&format!("mov.b32 %r1{};", ", %r1".repeat(n))), false),
    ("a vector", 1_000_000, |n| body(&format!("mov.b32 %r1, {{%r1{}}};", ", %r1".repeat(n))), false),
    ("words of an instruction", 1_000_000, |n| body(&format!("mov{}.b32 %r1, 1;", ".sync".repeat(n))), false),
    ("other words of one", 1_000_000, |n| body(&format!("mov{}.b32 %r1, 1;", ".global".repeat(n))), false),
    ("parentheses", 1_000_000, |n| body(&format!("mov.b32 %r1, {}1;", "(".repeat(n))), false),
    ("signs", 1_000_000, |n| body(&format!("mov.b32 %r1, {}1;", "- ".repeat(n))), false),
    ("complements", 1_000_000, |n| body(&format!("mov.b32 %r1, {}1;", "~!".repeat(n))), false),
    ("conditions", 1_000_000, |n| body(&format!("mov.b32 %r1, {}1;", "1?1:".repeat(n))), false),
    ("a sum", 10_000_000, |n| body(&format!("mov.b32 %r1, 1{};", "+1".repeat(n))), true),
    ("offsets", 10_000_000, |n| body(&format!("ld.local.u32 %r1, [%r1{}];", "+1".repeat(n))), true),
    (
        "registers of a range",
        10_000_000,
        |n| body(&format!(".reg .b32 %a<{n}>;\nmov.b32 %a{}, 1;", n - 1)),
        true,
    ),
    (
        "too many registers of a range",
        1 << 33,
        |n| body(&format!(".reg .b32 %a<{}>;", n.max(1 << 33))),
        false,
    ),
    (
        "registers by name",
        10_000_000,
        |n| {
            let names: Vec<String> = (0..n).map(|i| format!("a{i}x")).collect();
            body(&format!(".reg .b32 {};", names.join(",")))
        },
        true,
    ),
    (
        "ranges of registers",
        1_000_000,
        |n| {
            let names: Vec<String> = (0..n).map(|i| format!("a{i}x<2>")).collect();
            body(&format!(".reg .b32 {};\nmov.b32 a{}x1, 1;", names.join(","), n - 1))
        },
        true,
    ),
    (
        "labels",
        1_000_000,
        |n| {
            let labels: Vec<String> = (0..n).map(|i| format!("L{i}:\nbra L{i};\n")).collect();
            body(&labels.concat())
        },
        true,
    ),
    ("the same label", 1_000_000, |n| body(&"L:\n".repeat(n)), false),
    (
        "functions",
        1_000_000,
        |n| {
            let functions: Vec<String> = (0..n).map(|i| format!(".func f{i}() {{ ret; }}\n")).collect();
            format!("{HEAD}{}", functions.concat())
        },
        true,
    ),
    ("functions without an end", 1_000_000, |n| format!("{HEAD}{}", ".func f() {".repeat(n)), false),
    ("wrong statements", 10_000_000, |n| body(&"x;".repeat(n)), false),
    ("strange bytes", 100_000_000, |n| body(&"\u{1}".repeat(n)), false),
    ("letters beyond ASCII", 100_000_000, |n| body(&"ä".repeat(n / 2)), false),
    (
        "a sparse initializer",
        1,
        |_| format!("{HEAD}.global .b8 a[1000][1000000000] = {{{{}},{{}},{{1}}}};"),
        true,
    ),
    ("a large variable", 1, |_| format!("{HEAD}.global .b8 a[4294967295][4294967295];"), false),
];

/// The number of complaints, having shown the first in every way.
pub fn complaints(source: &str) -> usize {
    let (module, mut errors) = ptx::parse_all(source);
    errors.extend(ptx::check(&module, 90).err().unwrap_or_default());
    if let Some(e) = errors.first() {
        let lines = ptx::LineIndex::new(source);
        for style in [ptx::Style::Plain, ptx::Style::Rich, ptx::Style::Json] {
            let text = e.render_as(style, "ptxas", "large.ptx", source, &lines);
            assert!(text.len() < 2000, "a message of {} bytes", text.len());
        }
    }
    errors.len()
}
