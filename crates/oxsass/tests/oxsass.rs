//! The workbench's command line.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{fs, str};

fn kernel(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels").join(name)
}

fn oxsass(args: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oxsass")).args(args).output().unwrap()
}

/// Standard output of a run that succeeds.
fn text(args: &[&Path]) -> String {
    let out = oxsass(args);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn compile(ptx: &Path, cubin: &Path) {
    let source = fs::read_to_string(ptx).unwrap();
    let settings = oxptxas::Settings::new(sass::Target::parse("sm_90").unwrap());
    fs::write(cubin, oxptxas::compile(&source, "kernel.ptx", &settings).unwrap().cubin).unwrap();
}

fn saxpy_cubin(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    compile(&kernel("saxpy.ptx"), &path);
    path
}

#[test]
fn dis_shows_the_kernel() {
    let out = text(&["dis".as_ref(), &saxpy_cubin("dis.cubin")]);
    assert!(out.starts_with("// sm_90\n"), "{out}");
    assert!(out.contains("\nsaxpy:\n        /*0000*/  "), "{out}");
    assert!(out.contains("FFMA R") && out.contains("EXIT ;"), "{out}");
}

#[test]
fn check_finds_a_dropped_wait() {
    let cubin = saxpy_cubin("check.cubin");
    assert!(text(&["check".as_ref(), &cubin]).contains(" 0 hazards\n"));
    // No instruction of the copy waits for anything.
    let mut bytes = fs::read(&cubin).unwrap();
    let words = cubin::read::read(&bytes).unwrap().kernels["saxpy"].code.clone();
    for word in words {
        let old = word.to_le_bytes();
        let new = (word & !(0x3f << 116)).to_le_bytes();
        let at = bytes.windows(16).position(|w| w == old).unwrap();
        bytes[at..at + 16].copy_from_slice(&new);
    }
    let spoilt = cubin.with_extension("spoilt");
    fs::write(&spoilt, bytes).unwrap();
    let out = oxsass(&["check".as_ref(), &spoilt]);
    assert!(!out.status.success());
    assert!(String::from_utf8_lossy(&out.stdout).contains("the result is not waited for"));
}

#[test]
fn listings_go_back_into_cubins() {
    let cubin = saxpy_cubin("patch.cubin");
    let listing = text(&["dis".as_ref(), "--control".as_ref(), &cubin]);
    let (source, patched) = (cubin.with_extension("txt"), cubin.with_extension("patched"));
    let args: [&Path; 6] = ["asm".as_ref(), &source, "--into".as_ref(), &cubin, "-o".as_ref(), &patched];
    fs::write(&source, &listing).unwrap();
    text(&args);
    assert_eq!(fs::read(&cubin).unwrap(), fs::read(&patched).unwrap());
    fs::write(&source, listing.replacen("FFMA R", "FADD R", 1)).unwrap();
    let out = oxsass(&args);
    let line = 1 + listing.lines().position(|l| l.contains("FFMA R")).unwrap();
    let message = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && message.contains(&format!("patch.txt:{line}:")), "{message}");
    let shorter: Vec<&str> = listing.lines().filter(|l| !l.contains("FFMA R")).collect();
    fs::write(&source, shorter.join("\n")).unwrap();
    let out = oxsass(&args);
    assert!(String::from_utf8_lossy(&out.stderr).contains("instructions, the listing"));
}

#[test]
fn run_prints_outputs_and_writes_files() {
    let (ptx, launch) = (kernel("dot.ptx"), kernel("dot.toml"));
    let out = text(&["run".as_ref(), &ptx, &launch]);
    assert!(out.starts_with("dot:\n  out[0] = "), "{out}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dot");
    text(&["run".as_ref(), &ptx, &launch, "--out".as_ref(), &folder]);
    let npy = fs::read(folder.join("0.dot.out.npy")).unwrap();
    assert_eq!(npy.len(), 132);
    assert!(str::from_utf8(&npy[10..128]).unwrap().starts_with("{'descr': '<f4', "));
}

#[test]
fn verify_compares_ptx_and_cubin() {
    let cubin = saxpy_cubin("verify.cubin");
    let args: [&Path; 4] = ["verify".as_ref(), &cubin, &kernel("saxpy.ptx"), &kernel("saxpy.toml")];
    assert_eq!(text(&args), "saxpy: same\n");
}

#[test]
fn verify_needs_no_launch_file() {
    let (verify, flag): (&Path, &Path) = ("verify".as_ref(), "--arch".as_ref());
    assert_eq!(text(&[verify, &kernel("sha256.ptx"), flag, "sm_86".as_ref()]), "sha256: same\n");
    // Code of another kernel is found out.
    let cubin = Path::new(env!("CARGO_TARGET_TMPDIR")).join("other.cubin");
    let source = fs::read_to_string(kernel("saxpy.ptx")).unwrap();
    let other = source.replace("%f4, %f2, %f1, %f3;", "%f4, %f2, %f3, %f1;");
    let changed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("other.ptx");
    fs::write(&changed, other).unwrap();
    compile(&changed, &cubin);
    let out = oxsass(&[verify, &kernel("saxpy.ptx"), "--cubin".as_ref(), &cubin]);
    assert!(!out.status.success());
    let shown = str::from_utf8(&out.stdout).unwrap();
    assert!(shown.starts_with("saxpy: DIFFERS: seed 0: region "), "{shown}");
}

#[test]
fn errors_name_the_place() {
    let out = oxsass(&["run".as_ref(), &kernel("dot.ptx"), &kernel("saxpy.toml")]);
    assert!(!out.status.success());
    let message = String::from_utf8(out.stderr).unwrap();
    assert!(message.contains("there is no kernel 'saxpy'"), "{message}");
    let out = oxsass(&["dis".as_ref(), &kernel("dot.ptx")]);
    assert!(!out.status.success() && String::from_utf8(out.stderr).unwrap().contains("not an ELF file"));
    assert!(!oxsass(&["run".as_ref(), "missing".as_ref(), "missing".as_ref()]).status.success());
}

/// Files whose numbers ask for more memory than there is.
#[test]
fn damaged_cubins_are_refused() {
    let whole = fs::read(saxpy_cubin("damaged.cubin")).unwrap();
    let number = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let headers = number(&whole, 0x28);
    let count = usize::from(u16::from_le_bytes([whole[0x3c], whole[0x3d]]));
    let refuses = |name: &str, bytes: &[u8], what: &str| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, bytes).unwrap();
        let out = oxsass(&["run".as_ref(), &path, &kernel("saxpy.toml")]);
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && error.contains(what), "{name}: {error}");
    };
    // Two thousand headers that all name the largest section.
    let sizes = (0..count).map(|i| (number(&whole, headers + 64 * i + 0x20), headers + 64 * i));
    let largest = sizes.filter(|(size, at)| *size < whole.len() && whole[at + 4] != 8).max().unwrap().1;
    let mut many = whole.clone();
    many[0x28..0x30].copy_from_slice(&(whole.len() as u64).to_le_bytes());
    many[0x3c..0x3e].copy_from_slice(&2000u16.to_le_bytes());
    many.extend_from_slice(&whole[headers..headers + 64 * count]);
    (count..2000).for_each(|_| many.extend_from_slice(&whole[largest..largest + 64]));
    refuses("many.cubin", &many, "sections that are larger than the file");
    // Each section under two headers, as ptxas's capsules have them.
    let mut twice = whole.clone();
    twice[0x28..0x30].copy_from_slice(&(whole.len() as u64).to_le_bytes());
    twice[0x3c..0x3e].copy_from_slice(&(2 * count as u16).to_le_bytes());
    (0..2).for_each(|_| twice.extend_from_slice(&whole[headers..headers + 64 * count]));
    assert_eq!(cubin::read::read(&twice).err(), None);
    // Every record of a stack size says four gigabytes, almost.
    let mut deep = whole.clone();
    for at in 0..deep.len() - 12 {
        if matches!(deep[at..at + 4], [0x04, 0x11 | 0x12, 0x08, 0x00]) {
            deep[at + 8..at + 12].copy_from_slice(&0xffff_fff0u32.to_le_bytes());
        }
    }
    assert_ne!(deep, whole);
    refuses("deep.cubin", &deep, "a stack of 4294967280 bytes");
}

/// Code beside itself: every figure twice, and the kernel that is asked for alone.
#[test]
fn compare_prints_figures_of_both_codes() {
    let cubin = saxpy_cubin("compare.cubin");
    let (ptx, toml) = (kernel("saxpy.ptx"), kernel("saxpy.toml"));
    let args: [&Path; 6] =
        ["compare".as_ref(), &ptx, "--against".as_ref(), &cubin, "--arch".as_ref(), "sm_90".as_ref()];
    let json = text(&[&args[..], &["--json".as_ref(), "--launch".as_ref(), &toml]].concat());
    let all: serde_json::Value = serde_json::from_str(&json).unwrap();
    let one = &all["kernels"][0];
    assert_eq!((&one["name"], &one["ours"]), (&"saxpy".into(), &one["theirs"]), "{json}");
    let names = ["instructions", "executed", "cycles", "cycles_full", "registers", "warps", "spill_bytes"];
    assert!(names.iter().all(|n| one["ours"][n].is_u64()), "{json}");
    assert!(
        one["ours"]["loads_in_flight"].as_f64().unwrap() > 0.0 && one["ours"]["spill_bytes"] == 0,
        "{json}"
    );
    let table = text(&[&args[..], &["--kernel".as_ref(), "saxpy".as_ref(), "--whole".as_ref()]].concat());
    assert!(table.starts_with("saxpy:\n") && table.contains("FFMA"), "{table}");
    let out = oxsass(&[&args[..], &["--kernel".as_ref(), "other".as_ref()]].concat());
    assert!(String::from_utf8(out.stderr).unwrap().contains("there is no kernel 'other'"));
}

#[test]
fn every_command_says_what_it_takes() {
    for name in ["dis", "asm", "run", "check", "verify", "compare", "bisect", "replay", "completions", "man"]
    {
        let help = text(&[name.as_ref(), "--help".as_ref()]);
        assert!(help.contains(&format!("Usage: oxsass {name}")), "{help}");
    }
    assert!(
        text(&["man".as_ref()]).contains(".TH oxsass\\-compare 1")
            || text(&["man".as_ref()]).contains("oxsass-compare")
    );
    assert!(text(&["completions".as_ref(), "zsh".as_ref()]).starts_with("#compdef oxsass"));
    let out = oxsass(&["disassemble".as_ref()]);
    assert!(!out.status.success());
    assert!(String::from_utf8(out.stderr).unwrap().contains("unrecognized subcommand"));
}

/// A barrier of all blocks as CUDA's cooperative groups make it, from what the driver leaves in `%envreg1` and `%envreg2`.
#[test]
fn cooperative_grids_have_a_workspace() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for arch in ["sm_80", "sm_90", "sm_100"] {
        let source = format!(
            ".version 8.7\n.target {arch}\n.address_size 64\n.visible .entry k(.param .u64 out) {{\n\
             .reg .b32 %r<20>; .reg .b64 %d<9>; .reg .pred %p<3>;\n\
             mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2; mov.b64 %d1, {{%r2, %r1}};\n\
             mov.u32 %r3, %ctaid.x; mov.u32 %r4, %nctaid.x; setp.eq.u32 %p1, %r3, 0;\n\
             sub.u32 %r5, 0x80000001, %r4; selp.u32 %r6, %r5, 1, %p1;\n\
             ld.param.u64 %d2, [out]; mul.wide.u32 %d3, %r3, 4; add.u64 %d4, %d2, %d3;\n\
             add.u32 %r12, %r3, 7; st.global.u32 [%d4], %r12;\n\
             atom.add.release.gpu.u32 %r7, [%d1+4], %r6;\n\
             L: ld.acquire.gpu.u32 %r8, [%d1+4]; xor.b32 %r9, %r8, %r7; setp.ge.s32 %p2, %r9, 0; @%p2 bra L;\n\
             sub.u32 %r10, %r4, %r3; add.u32 %r10, %r10, -1; mul.wide.u32 %d5, %r10, 4; add.u64 %d6, %d2, %d5;\n\
             ld.relaxed.gpu.global.u32 %r11, [%d6]; st.global.u32 [%d4+64], %r11; ret; }}\n"
        );
        let (ptx, bin) = (folder.join(format!("grid.{arch}.ptx")), folder.join(format!("grid.{arch}.cubin")));
        fs::write(&ptx, &source).unwrap();
        let settings = oxptxas::Settings::new(sass::Target::parse(arch).unwrap());
        fs::write(&bin, oxptxas::compile(&source, "grid.ptx", &settings).unwrap().cubin).unwrap();
        let toml = folder.join("grid.toml");
        let launch = "[[launch]]\nkernel = 'k'\ngrid = [4, 1, 1]\nblock = [1, 1, 1]\ncooperative = true\n\
                      args = [{ buffer = 'out' }]\n[launch.buffers.out]\ntype = 'u32'\nlength = 32\ncompare = 'exact'\n";
        fs::write(&toml, launch).unwrap();
        for program in [&ptx, &bin] {
            let out = text(&["run".as_ref(), program, &toml]);
            for (k, held) in [(0, 7), (3, 10), (16, 10), (19, 7)] {
                assert!(out.contains(&format!("out[{k}] = {held}\n")), "{arch} {}: {out}", program.display());
            }
        }
    }
}
