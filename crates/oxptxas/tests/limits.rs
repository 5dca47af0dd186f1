//! The table of limits, `limits.txt`: a value that is just allowed and one that is not, for every target. We say of each what
//! ptxas said when the table was written. `BLESS=1 OXPTXAS_ORACLES=… cargo test -p oxptxas --test limits` asks ptxas again
//! and writes `docs/limits.md`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGETS: [&str; 12] = [
    "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120",
    "sm_121",
];

const REGISTERS: &str = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>;";

/// A line of the table.
struct Row {
    what: String,
    value: String,
    options: Vec<String>,
    text: String,
    /// What ptxas says: `ok`, `no`, or the targets that take it.
    verdict: String,
    /// Whether we say something else, for a reason that docs/ptx-acceptance.md gives.
    differs: bool,
    line: String,
}

impl Row {
    fn parse(line: &str) -> Option<Row> {
        if line.starts_with('#') {
            return None;
        }
        let (line, verdict) = line.split_once("  => ").unwrap_or((line, ""));
        let (verdict, differs) = verdict.strip_suffix("  (not ours)").map_or((verdict, false), |v| (v, true));
        let mut columns = line.splitn(4, '|').map(str::trim);
        let (what, value) = (columns.next()?, columns.next()?);
        let (options, text) = (columns.next()?.replace('@', value), columns.next()?.replace('@', value));
        Some(Row {
            what: what.into(),
            value: value.into(),
            options: options.split_whitespace().map(String::from).collect(),
            text,
            verdict: verdict.into(),
            differs,
            line: line.into(),
        })
    }

    /// The targets that it is asked of, as `-arch` takes them.
    fn targets(&self) -> Vec<&'static str> {
        if self.text.contains("sm_90a") { vec!["sm_90a"] } else { TARGETS.to_vec() }
    }

    fn module(&self, target: &str) -> String {
        let (text, head) = (&self.text, format!(".version 9.0 .target {target} .address_size 64 "));
        match text.as_bytes() {
            [b'.', b'v', b'e', b'r', ..] => text.clone(),
            [b'{', .., b'}'] => {
                let body = &text[1..text.len() - 1];
                format!("{head}.visible .entry k() {{ {REGISTERS}{body} ret; }}")
            }
            [b'(', ..] => format!("{head}.visible .entry k{text} {{ ret; }}"),
            [b'k', b' ', ..] => format!("{head}.visible .entry k() {} {{ ret; }}", &text[2..]),
            _ if text.contains(".entry") => format!("{head}{text}"),
            _ => format!("{head}{text} .visible .entry k() {{ ret; }}"),
        }
    }

    /// The verdict of a tool, and its first complaint.
    fn ask(&self, tool: &Path, dir: &Path) -> (String, String) {
        let targets = self.targets();
        let (mut taken, mut said) = (Vec::new(), String::new());
        for target in &targets {
            let path = dir.join(format!("limit.{}.ptx", std::process::id()));
            std::fs::write(&path, self.module(target) + "\n").unwrap();
            let run = Command::new(tool)
                .args(["-arch", target, "-o", "/dev/null"])
                .args(&self.options)
                .arg(&path)
                .output()
                .unwrap();
            if run.status.success() {
                taken.push(*target);
            } else if said.is_empty() {
                let text = String::from_utf8_lossy(&run.stderr);
                let first = text.lines().find(|l| l.contains("error") || l.contains("fatal"));
                let first = first.and_then(|l| l.split_once(" : ").or_else(|| l.split_once(": ")));
                said = first.map_or("", |(_, message)| message.trim()).to_string();
            }
        }
        let verdict = match taken.len() {
            0 => "no".to_string(),
            n if n == targets.len() => "ok".to_string(),
            _ => format!("ok {}", taken.join(" ")),
        };
        (verdict, said)
    }
}

fn table() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/limits.txt")
}

fn rows() -> Vec<Row> {
    std::fs::read_to_string(table()).unwrap().lines().filter_map(Row::parse).collect()
}

fn ours(row: &Row) -> (String, String) {
    row.ask(Path::new(env!("CARGO_BIN_EXE_oxptxas")), Path::new(env!("CARGO_TARGET_TMPDIR")))
}

#[test]
fn limits_are_those_of_ptxas() {
    if std::env::var_os("BLESS").is_some() {
        bless();
    }
    let mut wrong = String::new();
    for row in rows() {
        let (verdict, said) = ours(&row);
        if (verdict == row.verdict) == row.differs {
            let _ = writeln!(wrong, "{}\n  ptxas {}, ours {verdict} {said}", row.line, row.verdict);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Writes the table and its page again.
fn bless() {
    let tools = std::env::var_os("OXPTXAS_ORACLES").expect("OXPTXAS_ORACLES names the folder of ptxas");
    let ptxas = Path::new(&tools).join("ptxas");
    let text = std::fs::read_to_string(table()).unwrap();
    let (mut out, mut page) = (String::new(), String::from(PAGE));
    for line in text.lines() {
        let Some(row) = Row::parse(line) else {
            let _ = writeln!(out, "{line}");
            continue;
        };
        let (theirs, _) = row.ask(&ptxas, Path::new(env!("CARGO_TARGET_TMPDIR")));
        let (verdict, said) = ours(&row);
        let mark = if verdict == theirs { "" } else { "  (not ours)" };
        let _ = writeln!(out, "{}  => {theirs}{mark}", row.line);
        let cell = |text: &str| text.replace('|', "\\|");
        let _ = writeln!(
            page,
            "| {} | `{}` | {theirs} | {} | {} |",
            cell(&row.what),
            cell(&row.value),
            if verdict == theirs { "same" } else { &verdict },
            cell(&said)
        );
    }
    std::fs::write(table(), out).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/limits.md");
    std::fs::write(path, page).unwrap();
}

const PAGE: &str = "# Limits

Written by `BLESS=1 OXPTXAS_ORACLES=… cargo test -p oxptxas --test limits` from `crates/oxptxas/tests/limits.txt`, which holds the PTX: what
ptxas 13.0.88 says of a value that is just allowed and of one that is not, for sm_75 to sm_121 (or the targets that take it), and what we
say. The words are ours.

| what | value | ptxas | ours | message |
|---|---|---|---|---|
";

/// 256 textures, 32 surfaces and 32 samplers in a kernel of an executable, as with ptxas 13.0.88, which links objects with more.
#[test]
fn images_of_a_kernel() {
    use oxptxas::{Settings, compile};
    let declared = |what: &str, n: usize| -> String {
        (0..n).map(|k| format!(".global .{what} i{k};\n")).collect::<String>()
    };
    let reads = |n: usize, read: &dyn Fn(usize) -> String| (0..n).map(read).collect::<String>();
    let texture = |n| {
        let body = reads(n, &|k| {
            format!("tex.1d.v4.f32.s32 {{%f1,%f2,%f3,%f4}}, [i{k}, {{%r1}}]; add.f32 %f0,%f0,%f1;\n")
        });
        (String::new(), declared("texref", n), body)
    };
    let surface = |n| {
        let body =
            reads(n, &|k| format!("suld.b.1d.b32.trap {{%f1}}, [i{k}, {{%r1}}]; add.f32 %f0,%f0,%f1;\n"));
        (String::new(), declared("surfref", n), body)
    };
    let sampler = |n| {
        let body = reads(n, &|k| {
            format!("tex.1d.v4.f32.s32 {{%f1,%f2,%f3,%f4}}, [t, i{k}, {{%r1}}]; add.f32 %f0,%f0,%f1;\n")
        });
        (", texmode_independent".into(), declared("samplerref", n) + ".global .texref t;\n", body)
    };
    /// What else the target says, declarations, and code for so many.
    type Source<'a> = &'a dyn Fn(usize) -> (String, String, String);
    let cases: [(&str, usize, Source<'_>); 3] =
        [("textures", 256, &texture), ("surfaces", 32, &surface), ("samplers", 32, &sampler)];
    for (what, most, source) in cases {
        for (n, relocatable) in [(most, false), (most + 1, false), (most + 1, true)] {
            let (mode, globals, body) = source(n);
            let text = format!(
                ".version 9.0\n.target sm_90{mode}\n.address_size 64\n{globals}.visible .entry k(.param .u64 p)\n{{\n\
                 .reg .b64 %d; .reg .b32 %r1; .reg .f32 %f<5>;\nld.param.u64 %d, [p];\nmov.u32 %r1, %tid.x;\nmov.f32 %f0, 0f00000000;\n\
                 {body}st.global.f32 [%d], %f0;\nret;\n}}\n"
            );
            let settings = Settings { relocatable, ..Settings::new(sass::Target::new(90).unwrap()) };
            let said = compile(&text, "k.ptx", &settings).map(|_| ()).map_err(|e| e.render("test"));
            if n > most && !relocatable {
                let message = format!("More than {most} {what} used in entry function 'k'");
                assert!(said.as_ref().is_err_and(|e| e.contains(&message)), "{n} {what}: {said:?}");
            } else {
                assert!(said.is_ok(), "{n} {what}: {said:?}");
            }
        }
    }
}
