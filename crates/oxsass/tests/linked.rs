//! `oxsass verify` of programs of several modules: compiled to objects and linked by nvlink, or linked from objects that are there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const KERNEL: &str = ".version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 q) twice(.param .b32 x);
.visible .entry k(.param .u64 out) {
 .reg .b32 r<3>; .reg .b64 d<3>;
 ld.param.u64 d0, [out]; mov.u32 r0, %tid.x; mul.wide.u32 d1, r0, 4; add.u64 d0, d0, d1;
 { .param .b32 x; .param .b32 q; st.param.b32 [x], r0; call (q), twice, (x); ld.param.b32 r1, [q]; }
 st.global.u32 [d0], r1; ret; }
";

const FUNCTION: &str = ".version 8.0
.target sm_80
.address_size 64
.visible .func (.param .b32 q) twice(.param .b32 x) {
 .reg .b32 r<2>; ld.param.b32 r0, [x]; shl.b32 r0, r0, 1; st.param.b32 [q], r0; ret; }
";

fn oxsass(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let program = env!("CARGO_BIN_EXE_oxsass");
    let out = Command::new(program).current_dir(folder).args(arguments).output().expect("runs");
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.success(), said)
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("can be made");
    fs::write(folder.join("kernel.ptx"), KERNEL).expect("can be written");
    fs::write(folder.join("function.ptx"), FUNCTION).expect("can be written");
    folder
}

#[test]
fn modules_are_linked_and_verified() {
    let Some(tools) = std::env::var_os("OXPTXAS_ORACLES") else { return };
    let folder = folder("linked");
    let nvlink = Path::new(&tools).join("nvlink").display().to_string();
    let both = ["verify", "kernel.ptx", "--with", "function.ptx", "--nvlink", &nvlink];
    let (right, said) = oxsass(&folder, &both);
    assert!(right && said.contains("k: same"), "{said}");
    // Objects of both compilers, and one that computes something else.
    let object = |source: &str, name: &str| {
        let mut settings = oxptxas::Settings::new(oxptxas::Target::new(80).expect("is one"));
        settings.relocatable = true;
        let cubin = oxptxas::compile(source, name, &settings).expect("compiles").cubin;
        fs::write(folder.join(name), cubin).expect("can be written");
    };
    object(&FUNCTION.replace("r0, 1;", "r0, 2;"), "wrong.o");
    object(KERNEL, "kernel.o");
    let ptxas = Command::new(Path::new(&tools).join("ptxas"))
        .current_dir(&folder)
        .args(["-arch=sm_80", "-c", "function.ptx", "-o", "function.o"])
        .status();
    assert!(ptxas.expect("runs").success());
    for (function, same) in [("function.o", true), ("wrong.o", false)] {
        let objects = ["--object", "kernel.o", "--object", function];
        let (right, said) = oxsass(&folder, &[&both[..], &objects].concat());
        assert!(right == same && said.contains("DIFFERS") != same, "{function}: {said}");
    }
    // What nvlink says is passed on.
    let (right, said) = oxsass(&folder, &[&both[..], &["--object", "kernel.o"]].concat());
    assert!(!right && said.contains("Undefined reference to 'twice'"), "{said}");
}

/// What is debugged says of lines of its own text, and not of the modules as one.
#[test]
fn debugged_modules_are_linked_and_verified() {
    let Some(tools) = std::env::var_os("OXPTXAS_ORACLES") else { return };
    let folder = folder("debugged");
    let nvlink = Path::new(&tools).join("nvlink").display().to_string();
    let debugged = |text: &str| {
        let text = text.replace("sm_80", "sm_80, debug").replace("mov.u32 r0", "bar.sync 0;\n mov.u32 r0");
        text + ".section .debug_abbrev {\n.b8 0\n}\n.section .debug_info {\n.b8 0\n}\n"
    };
    for (text, name) in [(KERNEL, "kernel"), (FUNCTION, "function")] {
        let text = debugged(text);
        let settings = oxptxas::Settings {
            relocatable: true,
            debug: true,
            ..oxptxas::Settings::new(oxptxas::Target::new(80).expect("is one"))
        };
        let object = oxptxas::compile(&text, name, &settings).expect("compiles").cubin;
        fs::write(folder.join(format!("{name}.o")), object).expect("can be written");
        fs::write(folder.join(format!("{name}.ptx")), text).expect("can be written");
    }
    let both = ["verify", "kernel.ptx", "--with", "function.ptx", "--nvlink", &nvlink];
    for objects in [&[][..], &["--object", "kernel.o", "--object", "function.o"]] {
        let (right, said) = oxsass(&folder, &[&both[..], objects].concat());
        assert!(right && said.contains("k: same"), "{said}");
    }
}

#[test]
fn without_a_linker_it_is_said_how_to_get_one() {
    let folder = folder("unlinked");
    let (right, said) =
        oxsass(&folder, &["verify", "kernel.ptx", "--with", "function.ptx", "--nvlink", "./none"]);
    assert!(!right && said.contains("pip install nvidia-cuda-nvcc") && said.contains("--nvlink"), "{said}");
}

/// A linker takes it and makes nothing of it.
#[test]
fn an_executable_is_no_object() {
    let folder = folder("executable");
    let source = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n";
    let settings = oxptxas::Settings::new(sass::Target::parse("sm_80").expect("a target"));
    let made = oxptxas::compile(source, "k.ptx", &settings).map_err(|f| f.render("oxsass"));
    fs::write(folder.join("k.cubin"), made.expect("compiles").cubin).expect("can be written");
    fs::write(folder.join("k.ptx"), source).expect("can be written");
    let (right, said) = oxsass(&folder, &["verify", "k.ptx", "--object", "k.cubin", "--nvlink", "./none"]);
    assert!(!right && said.contains("k.cubin is no object but an executable: --cubin takes it"), "{said}");
}
