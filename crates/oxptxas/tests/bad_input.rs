//! Bad input: one clear error that names the place, ptxas's exit status, no output file, no panic.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

struct Outcome {
    status: Option<i32>,
    stderr: String,
    output: PathBuf,
}

/// Runs the compiler on a file of these bytes in a folder of its own.
fn compile(dir: &Path, name: &str, bytes: &[u8], options: &[&str]) -> Outcome {
    let input = dir.join(name);
    std::fs::write(&input, bytes).unwrap();
    run(dir, &input, options)
}

fn run(dir: &Path, input: &Path, options: &[&str]) -> Outcome {
    let output = dir.join("out.cubin");
    let _ = std::fs::remove_file(&output);
    let run = Command::new(env!("CARGO_BIN_EXE_oxptxas"))
        .args(options)
        .arg(input)
        .arg("-o")
        .arg(&output)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Outcome { status: run.status.code(), stderr: String::from_utf8(run.stderr).unwrap(), output }
}

impl Outcome {
    /// It failed as it should, and the first line of its message is this.
    fn fails_with(&self, first_line: &str) {
        assert_eq!(self.stderr.lines().next().unwrap_or_default(), first_line);
        self.fails();
    }
    fn fails(&self) {
        assert_eq!(self.status, Some(255), "{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        assert!(!self.output.exists(), "an output file was left");
    }
}

fn kernel() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/saxpy.ptx");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_kernel_itself_compiles() {
    let dir = tempfile::tempdir().unwrap();
    let ok = compile(dir.path(), "k.ptx", kernel().as_bytes(), &["-arch=sm_90"]);
    assert_eq!((ok.status, ok.stderr.as_str()), (Some(0), ""));
    assert!(ok.output.exists());
}

#[test]
fn files_that_are_no_ptx() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let empty = compile(dir.path(), "empty.ptx", b"", &[]);
    empty.fails();
    assert!(
        empty.stderr.starts_with(&format!("oxptxas {}, line 1; fatal   : Missing .version", at("empty.ptx")))
    );
    let missing = run(dir.path(), &dir.path().join("missing.ptx"), &[]);
    missing.fails_with(&format!("oxptxas fatal   : Input file '{}' could not be opened", at("missing.ptx")));
    let binary: Vec<u8> = (0..2000u32).map(|i| (i * 37 % 251) as u8).collect();
    let binary = compile(dir.path(), "binary.ptx", &binary, &[]);
    binary.fails();
    assert!(binary.stderr.contains("binary.ptx"), "{}", binary.stderr);
}

#[test]
fn truncated_at_every_50th_byte() {
    let dir = tempfile::tempdir().unwrap();
    let kernel = kernel();
    let body = kernel.find('{').unwrap();
    let end = kernel.rfind('}').unwrap();
    for cut in (0..end).step_by(50) {
        let got = compile(dir.path(), "cut.ptx", &kernel.as_bytes()[..cut], &["-arch=sm_80"]);
        // Cut between directives, before the first function, a module is whole and empty.
        if got.status == Some(0) {
            assert!(cut < body, "accepted when cut at {cut}");
        } else {
            got.fails();
            assert!(got.stderr.contains("cut.ptx"), "cut at {cut}: {}", got.stderr);
        }
    }
}

#[test]
fn wrong_statements_are_placed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("k.ptx").display().to_string();
    let kernel = kernel();
    let line_of = |text: &str, what: &str| text[..text.find(what).unwrap()].lines().count();
    let cases = [
        ("\tret;", "\tfrobnicate %f1;\n\tret;", "frobnicate"),
        ("\tret;", "\tadd.s32 %r1, %r1, %q1;\n\tret;", "%q1"),
        ("\tret;", "$L__BB0_2:\n\tret;", "$L__BB0_2:\n\tret"),
    ];
    for (from, to, what) in cases {
        let text = kernel.replacen(from, to, 1);
        let got = compile(dir.path(), "k.ptx", text.as_bytes(), &["--diagnostics=rich"]);
        got.fails();
        let line = line_of(&text, what).max(1);
        let first = got.stderr.lines().next().unwrap();
        let placed = (line..=line + 1).any(|l| first.starts_with(&format!("oxptxas {file}, line {l}; ")));
        assert!(placed, "{first}");
        // Line and column.
        assert!(got.stderr.contains(&format!("--> {file}:")), "{}", got.stderr);
    }
}

#[test]
fn targets_versions_and_outputs() {
    let dir = tempfile::tempdir().unwrap();
    let kernel = kernel();
    for arch in ["sm_60", "sm_999", "sm_080", "sm_0080", "sm_+80", "sm_+90a", "compute_080", "lto_080"] {
        let got = compile(dir.path(), "k.ptx", kernel.as_bytes(), &["-arch", arch]);
        got.fails_with(&format!("oxptxas fatal   : Value '{arch}' is not defined for option 'gpu-name'"));
    }
    let version = kernel.lines().find(|l| l.starts_with(".version")).unwrap();
    let newer = compile(dir.path(), "k.ptx", kernel.replace(version, ".version 9.9").as_bytes(), &[]);
    newer.fails();
    assert!(
        newer.stderr.contains("fatal   : Unsupported .version 9.9; current version is '9.5'"),
        "{}",
        newer.stderr
    );
    let input = dir.path().join("k.ptx");
    std::fs::write(&input, &kernel).unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_oxptxas"))
        .arg(&input)
        .args(["-o", "/nonexistent/k.cubin"])
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(255));
    assert_eq!(
        String::from_utf8(run.stderr).unwrap(),
        "oxptxas fatal   : Output file '/nonexistent/k.cubin' could not be opened\n"
    );
}

/// What an executable can't hold is refused, not left at address 0.
/// As ptxas 13.0.88 has it: an executable holds the variable itself, and says so.
#[test]
fn variables_of_elsewhere_are_defined_here() {
    let dir = tempfile::tempdir().unwrap();
    let kernel = kernel();
    let header = kernel.find(".visible").unwrap();
    let with = |declaration: &str, statement: &str| {
        let (head, rest) = kernel.split_at(header);
        format!("{head}{declaration}\n{}", rest.replacen("\tret;", &format!("{statement}\n\tret;"), 1))
    };
    for (declaration, statement) in [
        (".extern .global .b32 elsewhere;", "\tmov.u64 %rd1, elsewhere;"),
        (".extern .global .b32 elsewhere;\n.const .u64 table = elsewhere;", ""),
        (".extern .global .b32 elsewhere;\n.global .u64 pointer = elsewhere;", ""),
    ] {
        let got = compile(dir.path(), "k.ptx", with(declaration, statement).as_bytes(), &[]);
        let warning =
            "Unresolved extern variable 'elsewhere' in whole program compilation, ignoring extern qualifier";
        assert_eq!((got.status, got.stderr), (Some(0), format!("oxptxas warning : {warning}\n")));
        assert!(got.output.exists());
    }
}

/// What is wrong with a header is said where ptxas 13.0.88 says it: behind the body, in front of it, or with a directive.
#[test]
fn headers_are_placed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("k.ptx").display().to_string();
    let conflict = "Conflicting directives: .maxntid and .reqntid cannot both be specified";
    let clusters = "Conflicting directives: .reqnctapercluster and .maxclusterrank cannot both be specified";
    let differ = |what: &str| format!("Inconsistent prototypes of 'f', {what} differ");
    for (text, line, message) in [
        (".entry k()\n.maxntid 4\n.reqntid 4\n{\n\nret;\n}", 10, conflict.to_string()),
        (".entry k()\n.reqnctapercluster 4\n.maxclusterrank 4\n{\nret;\n}", 6, clusters.into()),
        (".entry k()\n.maxclusterrank 0\n.reqnctapercluster 4\n\n{\nret;\n}", 8, clusters.into()),
        (".entry k()\n.maxclusterrank 4\n.reqnctapercluster 4,2,\n2\n\n{\nret;\n}", 7, clusters.into()),
        (
            ".extern .func f()\n{\n\nret;\n}",
            8,
            "Function definition conflicts with '.extern' declaration for function 'f'".into(),
        ),
        (
            ".func (.param .u32 r) f()\n.noreturn\n\n{\nexit;\n}",
            7,
            "Invalid directive '.noreturn' for function 'f'".into(),
        ),
        (".func f()\n{\nret;\n}\n.func f()\n\n{\nret;\n}", 10, "Duplicate definition of function 'f'".into()),
        (
            ".entry f()\n{\nret;\n}\n.entry f()\n\n{\nret;\n}",
            8,
            "Duplicate definition of function 'f'".into(),
        ),
        (".func f(.param .u32 a)\n;\n.func f(.param .b32 a)\n\n;", 8, differ("parameter types")),
        (
            ".entry k(.param .b8 x[40000])\n{\nret;\n}",
            7,
            "Entry function 'k' uses too much parameter space (0x9c40 bytes, 0x7ffc max).".into(),
        ),
    ] {
        let text = format!(".version 8.7\n.target sm_90\n.address_size 64\n{text}\n");
        let got = compile(dir.path(), "k.ptx", text.as_bytes(), &["-arch", "sm_90"]);
        got.fails();
        got.fails_with(&format!("oxptxas {file}, line {line}; error   : {message}"));
    }
    let text = ".version 8.7\n.target sm_90\n.address_size 64\n.entry k()\n.minnctapersm 2\n{\n\nret;\n}\n";
    let got = compile(dir.path(), "k.ptx", text.as_bytes(), &["-arch", "sm_90"]);
    assert!(got.stderr.starts_with(&format!("oxptxas {file}, line 9; warning ")), "{}", got.stderr);
}

/// That a file is for a later target is said of what is right otherwise; that it has no version, behind `.target` (ptxas 13.0.88).
#[test]
fn files_as_wholes_are_placed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("k.ptx").display().to_string();
    for (text, first) in [
        (
            ".version 8.7\n.target sm_90\n.global .align 3 .u32 v;\n",
            ", line 3; error   : Alignment must be a power of two",
        ),
        (
            ".version 8.7\n.target sm_90\n.global .u32 v[];\n",
            ", line 3; error   : Non-external variable 'v' has incomplete type",
        ),
        (
            "\n.target sm_90\n\n.global .u32 v;\n",
            ", line 4; fatal   : Missing .version directive at start of file '",
        ),
        ("\n.global .u32 v;\n", ", line 2; fatal   : Missing .version directive at start of file '"),
    ] {
        let got = compile(dir.path(), "k.ptx", text.as_bytes(), &[]);
        got.fails();
        assert!(got.stderr.starts_with(&format!("oxptxas {file}{first}")), "{}", got.stderr);
    }
    let got = compile(dir.path(), "k.ptx", b".version 8.7\n.target sm_90\n.global .u32 v;\n", &[]);
    got.fails_with(
        "oxptxas fatal   : SM version specified by .target is higher than default SM version assumed",
    );
}
