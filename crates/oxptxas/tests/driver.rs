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
