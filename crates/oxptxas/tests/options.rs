//! Options that add code or facts to the output, and those that are refused where they would have to (`docs/options.md` has what
//! ptxas does with each).

use contract::Contract;
use cubin::attrs::Attr;
use cubin::read::{Image, read};
use oxsass::listing::{self, Style};
use sass::Target;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn probe(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/src/options/probes").join(name)
}

fn run(args: &[&str], input: &str, output: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oxptxas"));
    command.args(args).arg(probe(input)).arg("-o").arg(output).env_remove("MAKEFLAGS").output().unwrap()
}

/// What comes of a probe, after the contract has taken it.
fn made(args: &[&str], input: &str) -> Image {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.cubin");
    let made = run(args, input, &output);
    assert!(made.status.success(), "{args:?}: {}", String::from_utf8_lossy(&made.stderr));
    let bytes = std::fs::read(output).unwrap();
    let findings = Contract::built_in().check(&bytes).unwrap();
    assert!(findings.is_empty(), "{args:?}: {}", findings[0]);
    read(&bytes).unwrap()
}

/// The instructions of a kernel.
fn listed(image: &Image, kernel: &str) -> Vec<String> {
    let mut text = String::new();
    let target = Target::new(image.sm).unwrap();
    listing::write(&mut text, &image.kernels[kernel].code, target, Style::default(), &mut 0);
    text.lines().map(|l| l.rsplit_once("*/").map_or(l, |(_, text)| text).trim().to_string()).collect()
}

#[test]
fn frames_are_checked_against_the_stack() {
    for (arch, level) in [("-arch=sm_75", "-O3"), ("-arch=sm_90", "-O0"), ("-arch=sm_120", "-O3")] {
        let image = made(&[arch, level, "-sp-bounds-check"], "rich.ptx");
        let code = listed(&image, "second");
        let trap = code.iter().position(|i| i.contains("BPT.TRAP 0x1")).unwrap();
        assert!(code[trap - 2].contains("ISETP.GE.U32.AND P0, PT, R1, R0, PT"), "{code:?}");
        assert!(code[trap - 1].contains("@P0 BRA"), "{code:?}");
        // At -O0 they always are, as by ptxas.
        let plain = made(&[arch, level], "rich.ptx");
        assert_eq!(listed(&plain, "second").iter().any(|i| i.contains("BPT")), level == "-O0");
    }
}

#[test]
fn errors_become_visible_before_every_exit() {
    for (arch, cluster) in [("-arch=sm_75", false), ("-arch=sm_90", true), ("-arch=sm_121", true)] {
        let image = made(&[arch, "-make-errors-visible-at-exit"], "rich.ptx");
        for name in image.kernels.keys() {
            let code = listed(&image, name);
            let exits: Vec<usize> = (0..code.len()).filter(|i| code[*i].contains("EXIT")).collect();
            assert!(!exits.is_empty());
            for at in exits {
                let before = at - usize::from(cluster);
                assert!(code[before - 1].contains("ERRBAR"), "{name}: {code:?}");
                assert_eq!(code[at - 1].contains("CGAERRBAR"), cluster, "{name}: {code:?}");
            }
        }
    }
}

#[test]
fn threads_sleep_before_they_write() {
    for arch in ["-arch=sm_75", "-arch=sm_90", "-arch=sm_120"] {
        let image = made(&[arch, "-sanitize=threadsteer"], "rich.ptx");
        for (name, kernel) in &image.kernels {
            let code = listed(&image, name);
            let count = |what: &[&str]| code.iter().filter(|i| what.iter().any(|w| i.contains(w))).count();
            let writes = count(&["STG", "STS", "ATOM", "RED."]);
            assert!(writes > 0 && count(&["NANOSLEEP.RAND"]) >= writes, "{name}: {code:?}");
            assert!(kernel.attributes.iter().any(|(a, _)| *a == Attr::Sanitize as u8));
        }
    }
}

#[test]
fn registers_are_stated_in_words() {
    let image = made(&["-arch=sm_90", "-annotate"], "k.ptx");
    let kernel = &image.kernels["k"];
    let (_, text) = kernel.attributes.iter().find(|(a, _)| *a == Attr::Annotations as u8).unwrap();
    // The branch to itself behind the exit does not count.
    let used = 1 + listed(&image, "k").iter().position(|i| i.starts_with("EXIT")).unwrap();
    let words = format!("instr/R-regs: {used} instructions, {} R-regs", kernel.registers);
    let text = String::from_utf8_lossy(text);
    assert!(text.contains(&words), "{text}; {words}; {:?}", listed(&image, "k"));
}

#[test]
fn what_is_not_built_is_refused_without_a_file() {
    for (args, input) in [
        (&["-sanitize=memcheck"][..], "k.ptx"),
        (&["-astoolspatch"], "k.ptx"),
        (&["-c", "-pic=true"], "rich.ptx"),
        (&["-c", "-pic=true"], "functions.ptx"),
        (&["-c", "-device-stack-protector=true"], "functions.ptx"),
        (&["-arch=sm_90", "--blocks-are-clusters=true"], "k.ptx"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("out.cubin");
        let refused = run(args, input, &output);
        assert_eq!(refused.status.code(), Some(255), "{args:?}");
        assert!(!refused.stderr.is_empty() && !output.exists(), "{args:?}");
    }
}

/// For a real target and where only the front end runs.
#[test]
fn patches_for_tools_hold_no_kernels() {
    let dir = tempfile::tempdir().unwrap();
    for arch in ["-arch=sm_90", "-arch=compute_90"] {
        let refused = run(&["--compile-as-tools-patch", arch], "rich.ptx", &dir.path().join("out"));
        assert_eq!(refused.status.code(), Some(255), "{arch}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("Entry function is not allowed"), "{arch}");
    }
}

#[test]
fn ptx_on_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let (by_file, by_text) = (dir.path().join("a"), dir.path().join("b"));
    assert!(run(&[], "k.ptx", &by_file).status.success());
    let text = std::fs::read_to_string(probe("k.ptx")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_oxptxas"));
    assert!(command.arg("-ias").arg(text).arg("-o").arg(&by_text).status().unwrap().success());
    let code = |path: &Path| read(&std::fs::read(path).unwrap()).unwrap().kernels["k"].code.clone();
    assert_eq!(code(&by_file), code(&by_text));
}

/// What release 13.5 has beyond 13.0: ptxas 13.5.37 lists its targets as numbers, one in a line, and names what it works on. The file of
/// controls is our own.
#[test]
fn options_of_release_13_5() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let oxptxas = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_oxptxas")).args(args).current_dir(dir.path()).output().unwrap()
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let listed = text(&oxptxas(&["--list-arch"]).stdout);
    let targets: Vec<u8> = listed.lines().map(|l| l.parse().unwrap()).collect();
    assert_eq!(targets, sass::target::SMS.iter().map(|t| t.sm).collect::<Vec<_>>());

    let input = probe("k.ptx");
    let input = input.to_str().unwrap();
    let said = oxptxas(&["-v2", "-arch=sm_90", input, "-o", "v.cubin"]);
    assert!(text(&said.stderr).contains("info    : Processing "), "{}", text(&said.stderr));

    assert!(oxptxas(&["-arch=sm_90", input, "-o", "a.cubin"]).status.success());
    assert!(oxptxas(&["--query-controls", "knobs.txt"]).status.success());
    let known = std::fs::read_to_string(path("knobs.txt")).unwrap();
    assert!(
        oxptxas(&["-arch=sm_90", input, "-o", "b.cubin", "--apply-controls", "knobs.txt"]).status.success()
    );
    let bytes = |name: &str| std::fs::read(path(name)).unwrap();
    assert!(bytes("a.cubin") == bytes("b.cubin"), "controls as they are listed change the code");
    std::fs::write(path("knobs.txt"), known + "DumpIR=gvn\n").unwrap();
    let dumped = oxptxas(&["-arch=sm_90", input, "-o", "c.cubin", "--apply-controls", "knobs.txt"]);
    assert!(text(&dumped.stdout).contains("# after gvn"), "{}", text(&dumped.stdout));
    for (file, error) in
        [("bad.txt", "line 2: Invalid knob specified (Speed)"), ("none.txt", "could not be opened")]
    {
        if file == "bad.txt" {
            std::fs::write(path(file), "# fast\nSpeed=9\n").unwrap();
        }
        let refused = oxptxas(&["-arch=sm_90", input, "-o", "d.cubin", "--apply-controls", file]);
        assert_eq!(refused.status.code(), Some(255));
        assert!(text(&refused.stderr).contains(error), "{}", text(&refused.stderr));
        assert!(!path("d.cubin").exists());
    }
}

/// What `-v` says of limits that differ, of each kernel the number and what it is of; the last kernel first (ptxas 13.0.88).
#[test]
fn who_limits_registers_is_said() {
    const KERNELS: &str = ".version 9.0
.target sm_90
.address_size 64
.visible .entry k1() .reqntid 64,2 .maxnreg 40 {ret;}
.visible .entry k2() .reqntid 64,2 {ret;}
.visible .entry k3() .maxntid 64,2 {ret;}
.visible .entry k4() .minnctapersm 4 {ret;}
.visible .entry k5() .maxnreg 400 {ret;}
.visible .entry k6() .maxntid 256 .minnctapersm 2 {ret;}
.visible .entry k7() .reqntid 64 .minnctapersm 2 .maxnreg 30 {ret;}
.visible .entry k8() .reqntid 1024 .minnctapersm 1 .maxnreg 128 {ret;}
";
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("k.ptx");
    std::fs::write(&input, KERNELS).unwrap();
    let said = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oxptxas"));
        command.args(["-arch=sm_90", "-v"]).args(options).arg(&input).arg("-o").arg(dir.path().join("out"));
        let out = command.output().unwrap();
        assert!(out.status.success());
        let text = String::from_utf8(out.stderr).unwrap();
        let told = text.lines().filter_map(|l| {
            let (_, message) = l.split_once("Overriding ")?;
            let kernel = message.split_once('\'').map_or("", |m| m.1.split('\'').next().unwrap_or(""));
            let words: Vec<&str> = message.split_whitespace().collect();
            let at = words.iter().position(|w| *w == "value" || *w == "limit")?;
            Some(format!("{} {} {kernel}", words[at + 1], words.last()?).trim_end().to_string())
        });
        (told.collect::<Vec<_>>(), text)
    };
    let (lines, text) = said(&["-maxrregcount", "32"]);
    let of_entries = ["64 count", "30 .maxnreg", "128 count", "255 .maxnreg", "256 option k4", "40 .maxnreg"];
    assert_eq!(lines, of_entries, "{text}");
    // It is information, which stays where warnings are switched off.
    assert_eq!(said(&["-maxrregcount", "32", "-w"]).0, of_entries);
    let (lines, text) = said(&["-maxrregcount", "128"]);
    let same = ["64 count", "30 .maxnreg", "255 .maxnreg", "256 option k4", "40 .maxnreg"];
    assert_eq!(lines, same, "128 is no difference: {text}");
    let (lines, text) = said(&["-maxrregcount", "32", "-override-directive-values"]);
    let by_option = [
        "64 count",
        "128 option k8",
        "30 option k7",
        "128 count",
        "256 option k6",
        "255 option k5",
        "256 option k4",
        "256 option k3",
        "256 option k2",
        "40 option k1",
    ];
    assert_eq!(lines, by_option, "{text}");
    // Where code is debugged in the order of the text, of what can be extended twice.
    let of_text: Vec<&str> = of_entries.iter().rev().copied().collect();
    assert_eq!(said(&["-maxrregcount", "32", "-g"]).0, of_text);
    assert_eq!(said(&["-maxrregcount", "32", "-g", "-ewp"]).0, of_text);
    assert_eq!(said(&["-maxrregcount", "32", "-ewp"]).0, [of_entries, of_entries].concat());
    assert_eq!(said(&["-maxrregcount", "32", "-c"]).0, of_entries);
    let (_, text) = said(&["-maxrregcount", "32", "-g"]);
    assert!(text.find("Overriding") < text.find(".debug_info section not found"), "{text}");
    // What is too large is ignored, but for that.
    let highest = said(&["-maxrregcount", "255"]).0;
    assert_eq!(
        (said(&["-maxrregcount", "300"]).0, said(&["-maxrregcount", "-1"]).0),
        (highest.clone(), highest)
    );
    // Of kernels that are not compiled nothing is said.
    let (lines, text) = said(&["-maxrregcount", "32", "-e", "k2, k4"]);
    assert_eq!(lines, ["256 option k4"], "{text}");
    assert!(!text.contains("k5"), "{text}");
}

/// ptxas refuses it, too. (In memory the length of the text may count it: the tests of the C library.)
#[test]
fn a_file_that_ends_with_a_zero() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("k.ptx");
    let mut text = std::fs::read(probe("k.ptx")).unwrap();
    text.push(0);
    std::fs::write(&input, text).unwrap();
    let output = dir.path().join("out.cubin");
    let made =
        Command::new(env!("CARGO_BIN_EXE_oxptxas")).arg(&input).arg("-o").arg(&output).output().unwrap();
    let said = String::from_utf8_lossy(&made.stderr);
    assert_eq!(made.status.code(), Some(255));
    assert!(said.contains("Unexpected EOF encountered") && !output.exists(), "{said}");
}
