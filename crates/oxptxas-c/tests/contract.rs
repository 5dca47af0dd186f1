//! Programs in C that use the library as any program would: compiled against the header, linked with the library, and run.
//! `contract.c` is linked with NVIDIA's as well, where it is installed (docs/oracles.md), and has to say the same.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What a program is linked with.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Library {
    Static,
    Shared,
    /// NVIDIA's, and its own header.
    Nvidia,
}

/// NVIDIA's library, in the folder that the tools are installed to.
const NVIDIA: &str = "lib/libnvptxcompiler_static.a";

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// Where Cargo puts the library for its tests.
fn built(file: &str) -> PathBuf {
    std::env::current_exe().expect("tests run from a file").with_file_name(file)
}

/// The folder of NVIDIA's library where the reference tools are installed, of which it is one. It is linked with this one test,
/// which is what it is made for.
fn nvidia() -> Option<PathBuf> {
    let bin = PathBuf::from(std::env::var_os("OXPTXAS_ORACLES")?);
    let root = bin.parent().expect("the programs are in a folder of the tools").to_path_buf();
    let library = root.join(NVIDIA);
    assert!(library.exists(), "{} is missing: `cargo xtask oracles` installs it", library.display());
    Some(root)
}

/// A program, built in a folder of its own.
struct Program {
    folder: tempfile::TempDir,
    path: PathBuf,
}

impl Program {
    fn new(name: &str, library: Library) -> Program {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join(name);
        let mut cc = Command::new("cc");
        cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-D_POSIX_C_SOURCE=200809L", "-o"]);
        cc.arg(&path).arg(tests().join(name).with_extension("c"));
        let include = match library {
            Library::Nvidia => nvidia().expect("looked for before").join("include"),
            Library::Static | Library::Shared => Path::new(env!("CARGO_MANIFEST_DIR")).join("include"),
        };
        // A system header: its warnings are its own affair.
        cc.arg("-isystem").arg(include);
        match library {
            Library::Static => cc.arg(built("liboxptxas_c.a")).arg("-lgcc_s"),
            Library::Shared => {
                std::fs::copy(built("liboxptxas_c.so"), folder.path().join("liboxptxas.so.0"))
                    .expect("cargo builds the library for its tests");
                std::os::unix::fs::symlink("liboxptxas.so.0", folder.path().join("liboxptxas.so"))
                    .expect("the folder is new");
                cc.arg("-L").arg(folder.path()).arg("-loxptxas")
            }
            Library::Nvidia => cc.arg(nvidia().expect("as above").join(NVIDIA)),
        };
        let done = cc.args(["-lpthread", "-lm", "-ldl"]).output().expect("there is a C compiler");
        assert!(done.status.success(), "{library:?}: {}", String::from_utf8_lossy(&done.stderr));
        Program { folder, path }
    }

    /// Runs it, which is to succeed; what it says.
    fn run(&self, arguments: &[&Path]) -> String {
        let mut run = Command::new(&self.path);
        run.args(arguments).current_dir(self.folder.path()).env("LD_LIBRARY_PATH", self.folder.path());
        let out = run.output().expect("runs");
        let (said, wrong) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success() && wrong.is_empty(), "{}: {said}{wrong}", out.status);
        said.into_owned()
    }
}

/// `UPDATE_EXPECT=1` with NVIDIA's library installed writes what that does.
#[test]
fn the_contract_is_that_of_nvidias_library() {
    let path = tests().join("contract.txt");
    let theirs = nvidia().map(|_| Program::new("contract", Library::Nvidia).run(&[]));
    match &theirs {
        Some(theirs) if std::env::var_os("UPDATE_EXPECT").is_some() => {
            std::fs::write(&path, theirs).expect("the folder is writable");
        }
        None if std::env::var_os("CI").is_some_and(|v| v == "true") => {
            panic!("NVIDIA's library is not installed")
        }
        None => eprintln!("NVIDIA's library is not installed: ours was compared with what is known of it"),
        Some(_) => {}
    }
    let expected = std::fs::read_to_string(&path).expect("it is part of the sources");
    for (library, said) in [
        (Library::Nvidia, theirs.unwrap_or_else(|| expected.clone())),
        (Library::Static, Program::new("contract", Library::Static).run(&[])),
        (Library::Shared, Program::new("contract", Library::Shared).run(&[])),
    ] {
        let differs = said.lines().zip(expected.lines()).find(|(a, b)| a != b);
        assert_eq!(differs, None, "{library:?}");
        assert_eq!(said.lines().count(), expected.lines().count(), "{library:?}");
    }
    assert!(!Path::new("contract-output").exists());
}

#[test]
fn what_nvidias_library_leaves_open() {
    for library in [Library::Static, Library::Shared] {
        assert_eq!(Program::new("ours", library).run(&[]), "", "nothing on standard output");
    }
}

#[test]
fn eight_threads_compile_at_once() {
    let program = Program::new("threads", Library::Shared);
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let files = ["saxpy", "calls", "vecadd2d"].map(|name| kernels.join(name).with_extension("ptx"));
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let output = program.folder.path().join("code");
    let arguments = [&[Path::new("8"), Path::new("200"), &output][..], &files[..]].concat();
    assert_eq!(program.run(&arguments), "0 threads failed\n");
    // The same as from the command line.
    for (n, file) in files.iter().enumerate() {
        let arguments = ["-arch=sm_90".into(), "-v".into(), file.as_os_str().to_owned()];
        let run = oxptxas::command::Run::new("ptxas", &arguments, &Silent);
        let ours = run.to_memory().expect("it compiles").expect("there is code").cubin;
        let path = output.with_added_extension(n.to_string());
        assert!(std::fs::read(&path).expect("it was written") == ours, "{}", file.display());
    }
}

/// Nobody.
struct Silent;

impl oxptxas::command::Console for Silent {
    fn info(&self, _: &str) {}
    fn error(&self, _: &str) {}
    fn print(&self, _: &str) -> std::io::Result<()> {
        Ok(())
    }
}
