//! `oxsass fatbin`: what it writes is what NVIDIA's `fatbinary` writes of the same images, and cuobjdump lists and extracts them.

use oxptxas::{Settings, Target, compile, compile_all};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder for a test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fatbin-{name}"));
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("can be made");
    folder
}

fn run(program: &Path, folder: &Path, arguments: &[&str]) -> Output {
    Command::new(program).current_dir(folder).args(arguments).output().expect("runs")
}

fn oxsass(folder: &Path, arguments: &[&str]) -> Output {
    run(env!("CARGO_BIN_EXE_oxsass").as_ref(), folder, arguments)
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

fn tool(name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("OXPTXAS_ORACLES")?).join(name))
}

fn saxpy(target: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/saxpy.ptx");
    let source = fs::read_to_string(path).expect("is there");
    let old = source.lines().find(|l| l.starts_with(".target")).expect("has a target").to_string();
    source.replace(&old, &format!(".target {target}"))
}

fn settings(target: &str) -> Settings {
    Settings::new(Target::parse(target).expect("is one"))
}

#[test]
fn all_targets_at_once_are_as_each_alone() {
    let source = saxpy("sm_75");
    let all = ["sm_75", "sm_90a", "sm_120"].map(settings);
    let wide = Settings { relocatable: true, ..settings("sm_80") };
    let all: Vec<Settings> = all.into_iter().chain([wide]).collect();
    for (settings, output) in all.iter().zip(compile_all(&source, "saxpy.ptx", &all)) {
        let alone = compile(&source, "saxpy.ptx", settings).expect("compiles").cubin;
        assert_eq!(output.expect("compiles").cubin, alone, "{}", settings.target);
    }
    // What one target refuses the others have all the same.
    let newer = saxpy("sm_90");
    let all = ["sm_80", "sm_90"].map(settings);
    let [old, new] = &compile_all(&newer, "saxpy.ptx", &all)[..] else { panic!("two results") };
    assert!(old.is_err() && new.is_ok());
}

#[test]
fn the_file_is_what_tools_expect() {
    let folder = folder("tools");
    fs::write(folder.join("saxpy.ptx"), saxpy("sm_80")).expect("can be written");
    let line = [
        "fatbin",
        "saxpy.ptx",
        "-o",
        "ours.fatbin",
        "--arch",
        "sm_80,sm_90a",
        "--gencode",
        "arch=compute_80,code=[sm_86,compute_80]",
        "--ident",
        "saxpy.cu",
        "--",
        "-O1",
    ];
    let out = oxsass(&folder, &line);
    assert!(out.status.success(), "{}", said(&out));
    let Some(cuobjdump) = tool("cuobjdump") else { return };
    let listed = run(&cuobjdump, &folder, &["-lelf", "-lptx", "ours.fatbin"]);
    let lines = ["saxpy.sm_80.cubin", "saxpy.sm_90a.cubin", "saxpy.sm_86.cubin", "saxpy.sm_80.ptx"];
    assert!(lines.iter().all(|l| said(&listed).contains(l)), "{}", said(&listed));
    for what in [["-xelf", "all"], ["-xptx", "all"]] {
        let out = run(&cuobjdump, &folder, &[what[0], what[1], "ours.fatbin"]);
        assert!(out.status.success(), "{}", said(&out));
    }
    let mut images = Vec::new();
    for (target, file) in
        [("sm_80", "saxpy.sm_80.cubin"), ("sm_90a", "saxpy.sm_90a.cubin"), ("sm_86", "saxpy.sm_86.cubin")]
    {
        let settings = Settings::parse(&[&format!("-arch={target}"), "-O1"]).expect("are right");
        let code = compile(&saxpy("sm_80"), "saxpy.ptx", &settings).expect("compiles").cubin;
        assert_eq!(fs::read(folder.join(file)).expect("was extracted"), code, "{target}");
        images.push(format!("--image3=kind=elf,sm={},file={file}", target.trim_start_matches("sm_")));
    }
    assert_eq!(fs::read_to_string(folder.join("saxpy.sm_80.ptx")).expect("was extracted"), saxpy("sm_80"));
    let mut line = vec!["-64", "--create=theirs.fatbin", "--compress=false", "-ident", "saxpy.cu"];
    line.extend(images.iter().map(String::as_str));
    let out = run(&tool("fatbinary").expect("as the other"), &folder, &line);
    assert!(out.status.success(), "{}", said(&out));
    let [ours, theirs] =
        ["ours.fatbin", "theirs.fatbin"].map(|f| fs::read(folder.join(f)).expect("is there"));
    // But for the PTX at the end, of which `fatbinary` drops comments.
    assert_eq!(&ours[16..theirs.len()], &theirs[16..]);
}

#[test]
fn ptx_is_kept_as_fatbinary_keeps_it() {
    let Some(fatbinary) = tool("fatbinary") else { return };
    let folder = folder("ptx");
    // Sizes around a multiple of 8.
    for name in ["k", "kk", "kkk", "kkkk", "kkkkk", "kkkkkk", "kkkkkkk", "kkkkkkkk"] {
        let source = format!(
            ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry {name}()\n{{\nret;\n}}\n"
        );
        fs::write(folder.join("k.ptx"), source).expect("can be written");
        let out = oxsass(&folder, &["fatbin", "k.ptx", "--arch=sm_90a,compute_90a", "-o", "ours.fatbin"]);
        assert!(out.status.success(), "{}", said(&out));
        let Some(cuobjdump) = tool("cuobjdump") else { return };
        let out = run(&cuobjdump, &folder, &["-xelf", "all", "ours.fatbin"]);
        assert!(out.status.success(), "{}", said(&out));
        let images =
            ["--image3=kind=elf,sm=90a,file=ours.1.sm_90a.cubin", "--image3=kind=ptx,sm=90a,file=k.ptx"];
        let line = [&["-64", "--create=theirs.fatbin", "--compress=false"][..], &images[..]].concat();
        let out = run(&fatbinary, &folder, &line);
        assert!(out.status.success(), "{}", said(&out));
        let [ours, theirs] =
            ["ours.fatbin", "theirs.fatbin"].map(|f| fs::read(folder.join(f)).expect("is there"));
        assert!(ours == theirs, "{name}");
    }
}

#[test]
fn what_cannot_be_is_said() {
    let folder = folder("wrong");
    fs::write(folder.join("saxpy.ptx"), saxpy("sm_80")).expect("can be written");
    for (arguments, what) in [
        (&["--arch", "sm_81"][..], "Value 'sm_81' is not defined"),
        (&["--arch", "sm_75,sm_80"], "SM version specified by .target is higher"),
        (&["--arch", "sm_80,compute_90"], "compute_90 of PTX that says .target sm_80"),
        (&["--gencode", "code=sm_80"], "expected arch=compute_NN,code=sm_NN"),
        (&["--gencode", "arch=compute_80,code=[sm_80,compute_90]"], "compute_90 beside compute_80"),
        (&["--arch", "sm_80", "--", "--nonsense"], "nonsense"),
        (&["--gencode", "arch=compute_90,code=sm_80"], "sm_80 beside compute_90"),
        (&["--arch", "sm_80", "--", "-arch=sm_90"], "it is said by --arch"),
        (&["--arch", "sm_80", "--", "-o", "other"], "it is said by --arch and --output"),
        (&["--arch", "sm_80", "--", "other.ptx"], "there is one input"),
    ] {
        let line = [&["fatbin", "saxpy.ptx", "-o", "none.fatbin"][..], arguments].concat();
        let out = oxsass(&folder, &line);
        assert!(!out.status.success() && said(&out).contains(what), "{arguments:?}: {}", said(&out));
        assert!(!folder.join("none.fatbin").exists(), "{arguments:?}");
    }
    let help = said(&oxsass(&folder, &["help", "fatbin"]));
    assert!(help.contains("--gencode") && help.contains("parsed once"), "{help}");
    for (command, word) in [(&["completions", "bash"][..], "fatbin"), (&["man"], "oxsass\\-fatbin")] {
        assert!(said(&oxsass(&folder, command)).contains(word), "{command:?}");
    }
}
