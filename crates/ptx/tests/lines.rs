//! Lines of preprocessors: messages name the file and line that they say, as ptxas 13.0.88 does; the place under the message is that of
//! the text.

use ptx::{Diagnostic, LineIndex, Style};

const HEAD: &str = ".version 8.0\n.target sm_90\n.address_size 64\n";

/// The first line of each message about `text`.
fn messages(text: &str) -> Vec<String> {
    let source = format!("{HEAD}{text}");
    let (module, mut errors) = ptx::parse_all(&source);
    errors.extend(ptx::check(&module, 90).err().unwrap_or_default());
    let lines = LineIndex::new(&source);
    let place = |d: &Diagnostic| {
        let text = d.render_as(Style::Plain, "ptxas", "k.ptx", &source, &lines);
        text.split(';').next().unwrap().strip_prefix("ptxas ").unwrap().to_string()
    };
    errors.iter().map(place).collect()
}

const BAD: &str = "add.u32 %r1, %r2, 1.0;";

#[test]
fn the_line_behind_a_mark_is_the_one_it_names() {
    let start = ".visible .entry k()\n{\n.reg .b32 %r<4>;\n";
    let kernel = |text: &str| messages(&format!("{start}{text}\nret;\n}}\n"));
    assert_eq!(kernel(&format!("# 5 \"foo.cu\"\n{BAD}\n{BAD}")), ["foo.cu, line 5", "foo.cu, line 6"]);
    assert_eq!(
        kernel(&format!(
            "#line 7 \"foo.cu\"\n{BAD}\n\n# 100 \"bar.cu\" 1 2\n{BAD}\n{}",
            BAD.replace(' ', "\n")
        )),
        ["foo.cu, line 7", "bar.cu, line 100", "bar.cu, line 101"]
    );
    // Behind a statement, too; a name may be empty; the number has 32 bits and is decimal.
    assert_eq!(kernel(&format!("{BAD} # 100 \"bar.cu\"\n{BAD}")), ["k.ptx, line 7", "bar.cu, line 100"]);
    assert_eq!(kernel(&format!("# 100 \"\"\n{BAD}")), [", line 100"]);
    assert_eq!(kernel(&format!("# 4294967299 \"z.cu\"\n{BAD}")), ["z.cu, line 3"]);
    assert_eq!(kernel(&format!("# 010 \"z.cu\"\n{BAD}")), ["z.cu, line 10"]);
    // Not in comments.
    assert_eq!(kernel(&format!("# 52 \"z.cu\"\n/* a\n# 3 \"q.cu\"\n*/{BAD}")), ["z.cu, line 54"]);
    assert_eq!(kernel(&format!("// # 3 \"q.cu\"\n{BAD}")), ["k.ptx, line 8"]);
    // Nor in strings, which may have several lines.
    let file = ".file 1 \"a\n# 3 \"\n";
    assert_eq!(messages(&format!("{file}{start}{BAD}\nret;\n}}\n")), ["k.ptx, line 9"]);
}

#[test]
fn the_place_in_the_text_stays() {
    let source =
        format!("{HEAD}# 5 \"foo.cu\"\n.visible .entry k()\n{{\n.reg .b32 %r<4>;\n{BAD}\nret;\n}}\n");
    let module = ptx::parse(&source).unwrap();
    let errors = ptx::check(&module, 90).unwrap_err();
    let lines = LineIndex::new(&source);
    let text = errors[0].render("ptxas", "k.ptx", &source, &lines);
    assert!(text.starts_with("ptxas foo.cu, line 8; error"), "{text}");
    assert!(text.contains("--> k.ptx:8:1\n    | add.u32"), "{text}");
    let json = errors[0].render_as(Style::Json, "ptxas", "k.ptx", &source, &lines);
    let want = "\"file\":\"k.ptx\",\"line\":8,\"column\":1,\"end_line\":8,\"end_column\":23,\
                \"origin\":{\"file\":\"foo.cu\",\"line\":8}";
    assert!(json.contains(want), "{json}");
}
