//! What the program does with files and streams that are not as it wishes.
#![cfg(unix)]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::{Command, Stdio};

fn oxptxas() -> Command {
    Command::new(env!("CARGO_BIN_EXE_oxptxas"))
}

fn saxpy() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/saxpy.ptx")
}

/// A stream that nothing can be written to.
fn full() -> Stdio {
    std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

/// A pipe that nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn closed_and_full_streams_are_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("k.cubin");
    for stderr in [closed, full] {
        let compile =
            oxptxas().arg("-v").arg(saxpy()).arg("-o").arg(&output).stderr(stderr()).status().unwrap();
        assert_eq!(compile.code(), Some(0), "what is said of the file is not the file");
        let fails = oxptxas().arg("missing.ptx").stderr(stderr()).status().unwrap();
        assert_eq!(fails.code(), Some(255));
    }
    assert_eq!(oxptxas().arg("--help").stdout(closed()).status().unwrap().code(), Some(0));
    let help = oxptxas().arg("--help").stdout(full()).output().unwrap();
    assert_eq!(help.status.code(), Some(255));
    assert!(String::from_utf8_lossy(&help.stderr).contains("Standard output"));
}

#[test]
fn the_old_file_stays_where_the_new_one_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("k.cubin");
    std::fs::write(&output, "old").unwrap();
    let bad = dir.path().join("bad.ptx");
    std::fs::write(&bad, ".version 8.0\n.target sm_75\n.address_size 64\n.entry k() { bad; }\n").unwrap();
    let run = oxptxas().arg(&bad).arg("-o").arg(&output).output().unwrap();
    assert_eq!(run.status.code(), Some(255));
    assert_eq!(std::fs::read(&output).unwrap(), b"old");
    let full = oxptxas().arg(saxpy()).args(["-o", "/dev/full"]).output().unwrap();
    assert_eq!(full.status.code(), Some(255));
    assert!(String::from_utf8_lossy(&full.stderr).contains("/dev/full"));
}

/// Where files may not be as long as the output is, ptxas is ended by a signal and leaves the beginning.
#[test]
fn files_of_limited_length_are_whole_or_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let limited = |output: &Path| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -f 1; exec \"$0\" \"$1\" -o \"$2\""]).arg(env!("CARGO_BIN_EXE_oxptxas"));
        let run = shell.arg(saxpy()).arg(output).output().unwrap();
        assert_eq!(run.status.code(), Some(255), "{run:?}");
        assert!(String::from_utf8_lossy(&run.stderr).contains("Output file"));
    };
    let (new, old, other) = (dir.path().join("new"), dir.path().join("old"), dir.path().join("other"));
    std::fs::write(&old, "old").unwrap();
    std::fs::hard_link(&old, &other).unwrap();
    limited(&new);
    limited(&old);
    assert_eq!(std::fs::read(&other).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left");
    // Without a limit both names have the new file.
    assert!(oxptxas().arg(saxpy()).arg("-o").arg(&old).status().unwrap().success());
    assert!(std::fs::read(&other).unwrap().starts_with(b"\x7fELF"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn names_need_not_be_text() {
    let dir = tempfile::tempdir().unwrap();
    let odd = |name: &[u8]| dir.path().join(OsString::from_vec(name.to_vec()));
    let (input, output) = (odd(b"in\xff.ptx"), odd(b"out\xfe.cubin"));
    std::fs::copy(saxpy(), &input).unwrap();
    let run = oxptxas().arg(&input).arg("-o").arg(&output).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", String::from_utf8_lossy(&run.stderr));
    assert!(output.exists());
    let nonsense = oxptxas().arg(OsString::from_vec(b"-\xff".to_vec())).output().unwrap();
    assert_eq!(nonsense.status.code(), Some(255));
    assert!(!String::from_utf8_lossy(&nonsense.stderr).contains("panicked"));
}

/// A caller that compiles on many threads of a pool at once, as build tools do, whose threads have small stacks.
#[test]
fn compiling_inside_of_a_pool_takes_no_other_work_of_the_pool() {
    use rayon::prelude::*;
    let entries: String = (0..3)
        .map(|k| format!(".visible .entry k{k}(.param .u64 a) {{ .reg .u64 %a; ld.param.u64 %a, [a]; st.global.u64 [%a], %a; ret; }}\n"))
        .collect();
    let source = format!(".version 8.0\n.target sm_75\n.address_size 64\n{entries}");
    let settings = oxptxas::Settings::new(sass::Target::new(75).unwrap());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).stack_size(1 << 21).build().unwrap();
    let compiled: Vec<_> = pool.install(|| {
        let files = (0..2000).into_par_iter();
        files.map(|k| oxptxas::compile(&source, &format!("{k}.ptx"), &settings).is_ok()).collect()
    });
    assert!(compiled.iter().all(|ok| *ok));
}

/// Several input files are one module; each has its own variables, and messages name the file that they are about.
#[test]
fn several_input_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let module = |header: &str, text: &str| format!("{header}\n.address_size 64\n{text}\n");
    let kernel = |name: &str, body: &str| {
        format!(
            ".visible .entry {name}(.param .u64 p) {{\n.reg .b64 d; .reg .b32 r;\nld.param.u64 d, [p];\n{body}\nret; }}"
        )
    };
    let old = "// a\n.version 7.0 .target sm_75";
    let files = [
        ("a", module(old, &kernel("a", "mov.u32 r, 1; st.global.u32 [d], r;"))),
        (
            "b",
            module(
                ".version 8.7\n.target sm_80",
                &kernel("b", "mov.u32 r, %dynamic_smem_size; st.global.u32 [d], r;"),
            ),
        ),
        ("c", module(old, &kernel("c", "mov.u32 r, 3; st.global.u32 [d], r;"))),
        ("f", module(old, ".visible .func f() { ret; }")),
        ("uses", module(old, &format!(".visible .func f();\n{}", kernel("u", "call f;")))),
        ("own", module(old, &format!(".func f();\n{}", kernel("o", "call f;")))),
        (
            "s",
            module(
                old,
                &format!(".extern .shared .align 16 .b8 s[];\n{}", kernel("s1", "st.shared.u32 [s], 1;")),
            ),
        ),
        (
            "t",
            module(
                old,
                &format!(".extern .shared .align 16 .b8 s[];\n{}", kernel("s2", "st.shared.u32 [s], 1;")),
            ),
        ),
        ("x", module(old, ".global .u32 x = 1;")),
        ("reads", module(old, &kernel("r", "ld.global.u32 r, [x];"))),
        ("bad", module(old, &kernel("bad", "bogus;"))),
        ("debug", module(".version 8.0\n.target sm_75, texmode_independent", "")),
    ];
    for (name, text) in &files {
        std::fs::write(path(name), text).unwrap();
    }
    let out = path("out.cubin");
    let run = |arch: &str, names: &[&str]| {
        let _ = std::fs::remove_file(&out);
        let result = oxptxas()
            .args(["-arch", arch, "-o"])
            .arg(&out)
            .args(names.iter().map(|n| path(n)))
            .output()
            .unwrap();
        let said =
            String::from_utf8(result.stderr).unwrap().replace(&format!("{}/", folder.path().display()), "");
        let kernels = std::fs::read(&out).map(|bytes| {
            cubin::read::read(&bytes).unwrap().kernels.keys().cloned().collect::<Vec<_>>().join(" ")
        });
        (kernels.unwrap_or_default(), said)
    };
    assert_eq!(run("sm_90", &["a", "c"]), ("a c".into(), String::new()));
    assert_eq!(run("sm_90", &["a", "b"]).0, "a b");
    assert_eq!(run("sm_90", &["uses", "f"]), ("u".into(), String::new()));
    assert_eq!(run("sm_90", &["own", "f"]).1, "oxptxas fatal   : Unresolved extern function 'f'\n");
    assert_eq!(run("sm_90", &["s", "t"]), ("s1 s2".into(), String::new()));
    let (none, said) = run("sm_90", &["a", "a"]);
    assert!(
        none.is_empty() && said.starts_with("oxptxas a, line 4; error   : Duplicate definition"),
        "{said}"
    );
    let (none, said) = run("sm_90", &["a", "bad"]);
    assert!(none.is_empty() && said.starts_with("oxptxas bad, line 7; error   : Not a name"), "{said}");
    assert!(run("sm_90", &["x", "reads"]).1.contains("reads, line 7; error   : Unknown symbol 'x'"));
    assert!(
        run("sm_90", &["x", "x"]).1.contains("x, line 4; error   : Variable 'x' in more than one input file")
    );
    assert!(run("sm_90", &["a", "debug"]).1.contains("debug, line 2; error   : Conflicting .target option"));
    assert_eq!(run("sm_75", &["a", "b"]).0, "");
    assert!(run("sm_90", &["a", "missing"]).1.contains("Input file 'missing' could not be opened"));
}

#[test]
fn the_same_bytes_in_any_folder_and_under_any_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    let text = std::fs::read(saxpy()).unwrap();
    for (folder, name, how) in
        [("a", "k.ptx", "in"), ("b/c d", "tmpxft_0000-6_other.ptx", "out"), ("e", "k", "stdin")]
    {
        let folder = dir.path().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let (input, output) = (folder.join(name), folder.join(format!("{name}.cubin")));
        std::fs::write(&input, &text).unwrap();
        for options in [&["-lineinfo"][..], &["-g"], &["-c"], &[]] {
            let mut run = oxptxas();
            run.arg("-arch=sm_90").args(options);
            match how {
                "in" => run.current_dir(&folder).arg(name).arg(format!("--output-file={name}.cubin")),
                "out" => run.current_dir("/").arg(&input).arg("-o").arg(&output),
                _ => run.arg("-").stdin(std::fs::File::open(&input).unwrap()).arg("-o").arg(&output),
            };
            // Nor on the day, the user or the language.
            run.env("TZ", "Asia/Tokyo").env("LANG", format!("{how}.UTF-8")).env("USER", how);
            assert!(run.status().unwrap().success());
            all.push((options.to_vec(), std::fs::read(&output).unwrap()));
        }
    }
    for (options, bytes) in &all {
        let first = all.iter().find(|(o, _)| o == options).unwrap();
        assert!(bytes == &first.1, "{options:?}");
    }
}

#[test]
fn nothing_is_needed_but_the_input_and_the_output() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("k.cubin");
    let mut run = oxptxas();
    // No home, no folder for temporary files, and a folder to work in where nothing can be written, even by the superuser.
    run.env_clear().env("TMPDIR", "/nonexistent").current_dir(if Path::new("/proc").exists() {
        "/proc"
    } else {
        "/"
    });
    let done =
        run.arg("-arch=sm_90").arg(saxpy().canonicalize().unwrap()).arg("-o").arg(&output).output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["k.cubin"], "and nothing is left");
    // The output may be all that can be written.
    let mut run = oxptxas();
    run.env_clear()
        .current_dir("/proc")
        .arg("-arch=sm_90")
        .arg("-")
        .stdin(std::fs::File::open(saxpy()).unwrap());
    assert!(run.args(["-o", "/dev/stdout"]).stdout(Stdio::null()).status().unwrap().success());
}

/// What the driver brings needs no definition (ptxas 13.0.88, sm_75 to sm_121).
#[test]
fn functions_of_the_driver_are_called_without_a_definition() {
    let source = |name: &str| {
        format!(
            ".version 8.5\n.target sm_75\n.address_size 64\n.extern .func (.param .b32 r) {name} (.param .b64 a, .param .b32 b);\n\
             .visible .entry k(.param .u64 o) {{ .reg .b64 %a; .reg .b32 %r; ld.param.u64 %a, [o]; {{ .param .b64 p; st.param.b64 [p], %a; \
             .param .b32 q; st.param.b32 [q], 1; .param .b32 v; call.uni (v), {name}, (p, q); ld.param.b32 %r, [v]; }} \
             st.global.u32 [%a], %r; ret; }}\n"
        )
    };
    for name in ["vprintf", "cudaGraphLaunch", "cudaGraphSetConditional", "cudaGraphKernelNodeSetParam"] {
        for arch in ["sm_75", "sm_90", "sm_120"] {
            let settings = oxptxas::Settings::new(sass::Target::parse(arch).unwrap());
            let source = source(name);
            let output = oxptxas::compile(&source, "k.ptx", &settings)
                .unwrap_or_else(|e| panic!("{}", e.render(&source)));
            assert!(output.cubin.windows(name.len()).any(|w| w == name.as_bytes()), "{name} {arch}");
        }
    }
    for name in ["cudaGraphInstantiate", "cudaGraphLaunchX", "cudaMalloc"] {
        let settings = oxptxas::Settings::new(sass::Target::parse("sm_90").unwrap());
        assert!(oxptxas::compile(&source(name), "k.ptx", &settings).is_err(), "{name}");
    }
}
