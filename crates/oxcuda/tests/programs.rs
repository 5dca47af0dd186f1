//! Programs in C that use the library as any program would: compiled, linked with it, and run, once in the simulator and
//! once in the PTX interpreter.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The library under the names that programs look for, in a folder of its own.
fn library(folder: &Path) {
    let tests = std::env::current_exe().expect("tests run from a file");
    let built = tests.with_file_name("liboxcuda.so");
    std::fs::copy(&built, folder.join("libcuda.so.1")).expect("cargo builds the library for its tests");
    std::os::unix::fs::symlink("libcuda.so.1", folder.join("libcuda.so")).expect("the folder is new");
}

struct Program {
    folder: tempfile::TempDir,
    path: PathBuf,
}

impl Program {
    fn new(name: &str) -> Program {
        Program::with(name, None)
    }

    /// Compiled with another folder of headers.
    fn with(name: &str, headers: Option<&Path>) -> Program {
        let folder = tempfile::tempdir().expect("there is room");
        library(folder.path());
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("c");
        let path = folder.path().join(name);
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Werror", "-D_ISOC11_SOURCE", "-o"]).arg(&path).arg(source);
        if let Some(headers) = headers {
            cc.arg("-isystem").arg(headers);
        }
        let done = cc
            .arg("-L")
            .arg(folder.path())
            .args(["-lcuda", "-lpthread"])
            .output()
            .expect("there is a C compiler");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Program { folder, path }
    }

    fn run(&self, args: &[&str], variables: &[(&str, &str)]) -> (Output, String, String) {
        let mut run = Command::new(&self.path);
        run.args(args).env("LD_LIBRARY_PATH", self.folder.path()).envs(variables.iter().copied());
        let out = run.output().expect("runs");
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        let (said, complained) = (text(&out.stdout), text(&out.stderr));
        (out, said, complained)
    }

    fn passes(&self, args: &[&str], variables: &[(&str, &str)]) -> (String, String) {
        let (out, said, complained) = self.run(args, variables);
        assert!(out.status.success() && said.ends_with("done\n"), "{variables:?}: {said}{complained}");
        (said, complained)
    }
}

/// PTX of one kernel.
const SEVEN: &str = ".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry seven(.param .u64 x)\n{\n  .reg .b64 %rd;\n\
                     ld.param.u64 %rd, [x]; st.global.u32 [%rd], 7;\n  ret;\n}\n";

/// Devices and executors.
const WAYS: &[&[(&str, &str)]] =
    &[&[("OXCUDA_SM", "75")], &[], &[("OXCUDA_SM", "120")], &[("OXCUDA_MODE", "ptx")]];

#[test]
fn memory_of_every_kind_is_seen_by_kernels() {
    let p = Program::new("memory");
    WAYS.iter().for_each(|w| drop(p.passes(&[], w)));
}

#[test]
fn kernels_reach_the_hosts_memory_where_it_is() {
    let p = Program::new("shared");
    WAYS.iter().for_each(|w| drop(p.passes(&[], w)));
    p.passes(&[], &[("OXCUDA_CHECK", "all")]);
}

#[test]
fn work_is_done_in_order() {
    let p = Program::new("order");
    WAYS.iter().for_each(|w| drop(p.passes(&[], w)));
}

#[test]
fn captures_end_by_what_may_not_be_done() {
    Program::new("capture").passes(&[], &[]);
}

#[test]
fn graphs_are_as_their_edges_say() {
    let p = Program::new("graphs");
    p.passes(&[], &[]);
    p.passes(&[], &[("OXCUDA_CHECK", "all")]);
}

#[test]
fn memory_is_mapped_where_programs_want_it() {
    let p = Program::new("mapping");
    WAYS.iter().for_each(|w| drop(p.passes(&[], w)));
    let (_, complained) = p.passes(&["700"], &[]);
    assert!(complained.contains("kernel number"), "{complained}");
    let (_, complained) = p.passes(&[], &[]);
    assert!(complained.contains("memory that is mapped twice or in part is not built"), "{complained}");
    assert!(complained.contains("cuMemExportToShareableHandle is not built"), "{complained}");
}

#[test]
fn values_that_nobody_knows_are_refused() {
    let p = Program::new("values");
    WAYS.iter().for_each(|w| drop(p.passes(&[], w)));
}

#[test]
fn variables_of_modules_are_memory() {
    let p = Program::new("variables");
    WAYS.iter().for_each(|w| drop(p.passes(&[], w)));
    p.passes(&[], &[("OXCUDA_CHECK", "all")]);
}

#[test]
fn code_for_other_devices_is_refused() {
    let p = Program::new("foreign");
    let file = p.folder.path().join("none.cubin").display().to_string();
    let cases = [
        ("80", "", "80", "0"),
        ("80", "", "86", "0"),
        ("86", "", "80", "209"),
        ("80", "", "90", "209"),
        // With features of an SM alone, and of a family.
        ("90", "a", "90", "0"),
        ("100", "", "103", "0"),
        ("100", "a", "100", "0"),
        ("100", "a", "103", "209"),
        ("100", "f", "103", "0"),
        ("103", "f", "100", "209"),
        ("120", "a", "121", "209"),
        ("120", "f", "121", "0"),
        ("120", "", "90", "209"),
    ];
    for (made, features, on, result) in cases {
        p.passes(&["make", &file, features], &[("OXCUDA_SM", made)]);
        p.passes(&["load", &file, result], &[("OXCUDA_SM", on)]);
    }
    // Whole but for its last bytes.
    let bytes = std::fs::read(&file).expect("was written");
    std::fs::write(&file, &bytes[..bytes.len() - 8]).expect("there is room");
    p.passes(&["load", &file, "200"], &[("OXCUDA_SM", "120")]);
}

#[test]
fn damaged_images_are_told() {
    let p = Program::new("damaged");
    let (_, complained) = p.passes(&[], &[]);
    assert!(!complained.contains("internal error"), "{complained}");
    let Some(tools) = std::env::var_os("OXPTXAS_ORACLES").map(PathBuf::from) else { return };
    let at = |name: &str| p.folder.path().join(name).display().to_string();
    std::fs::write(at("seven.ptx"), SEVEN).expect("there is room");
    let mut files = Vec::new();
    for mode in ["--compress=false", "--compress-mode=speed", "--compress-mode=size"] {
        let out = at(&format!("{mode}.fatbin"));
        let image = format!("--image3=kind=ptx,sm=90,file={}", at("seven.ptx"));
        let args = [format!("--create={out}"), image, "-64".into(), mode.into()];
        let done = Command::new(tools.join("fatbinary")).args(args).output().expect("is installed");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        files.push(out);
    }
    let args: Vec<&str> = files.iter().map(String::as_str).collect();
    p.passes(&args, &[]);
}

#[test]
fn what_is_left_is_told() {
    let p = Program::new("leaks");
    let (_, silent) = p.passes(&[], &[]);
    assert_eq!(silent, "");
    let (_, found) = p.passes(&[], &[("OXCUDA_CHECK", "memory")]);
    let wanted = [
        (32, "memory of the device"),
        (48, "managed memory"),
        (80, "pinned memory of the host"),
        (112, "memory of a pool"),
        (96, "what a kernel allocated"),
    ];
    for (size, what) in wanted {
        let line = |l: &str| l.starts_with(&format!("oxcuda: memory: {size} bytes at ")) && l.ends_with(what);
        assert!(found.lines().any(line), "{size}: {found}");
    }
    assert_eq!(found.lines().count(), wanted.len(), "{found}");
    // Of the copy one word was written; and 140 bytes of the other one are copied to the host.
    let (_, found) = p.passes(&[], &[("OXCUDA_CHECK", "init")]);
    assert!(found.contains("init: read: "), "{found}");
    assert!(found.contains("init: 140 of 144 bytes at"), "{found}");
    assert_eq!(found.lines().count(), 2, "{found}");
}

/// The program is written against CUDA's header, and compiled where that is (pip: nvidia-cuda-runtime, next to NVIDIA's tools).
#[test]
fn a_program_for_the_header_runs() {
    let tools = std::env::var_os("OXPTXAS_ORACLES").map(PathBuf::from);
    let headers = tools.and_then(|t| Some(t.parent()?.join("include")));
    let Some(headers) = headers.filter(|h| h.join("cuda.h").exists()) else { return };
    let p = Program::with("vector", Some(&headers));
    for w in WAYS {
        let (_, complained) = p.passes(&[], w);
        assert_eq!(complained, "oxcuda: cuIpcGetMemHandle is not built\n", "{w:?}");
    }
}

/// The program is written against CUDA's header, as above.
#[test]
fn what_is_wrong_is_refused_as_documented() {
    let tools = std::env::var_os("OXPTXAS_ORACLES").map(PathBuf::from);
    let headers = tools.and_then(|t| Some(t.parent()?.join("include")));
    let Some(headers) = headers.filter(|h| h.join("cuda.h").exists()) else { return };
    let p = Program::with("documented", Some(&headers));
    WAYS[..2].iter().for_each(|w| drop(p.passes(&[], w)));
    let (_, found) = p.passes(&[], &[("OXCUDA_CHECK", "memory")]);
    assert!(!found.contains("not freed"), "{found}");
}

#[test]
fn launches_have_what_they_ask_for() {
    let p = Program::new("launch");
    for w in WAYS {
        let (said, _) = p.passes(&[], w);
        assert_eq!(said, "block 0\nblock 1\nblock 2\ndone\n", "{w:?}");
    }
}

#[test]
fn faults_are_told_with_their_place() {
    let p = Program::new("faults");
    let cases = [
        ("outside", "700", &["thread [32, 0, 0]", "line 10 of the PTX: st.global.u32 [%rd1], %r;"][..]),
        ("odd", "716", &["misaligned"]),
        ("stop", "719", &["trap"]),
        ("wrong", "710", &["x > 0"]),
    ];
    for (kernel, code, texts) in cases {
        let (_, complained) = p.passes(&[kernel, code], &[]);
        for t in [&[&*format!("kernel {kernel}")], texts].concat() {
            assert!(complained.contains(t), "{kernel}: {t} in {complained}");
        }
    }
}

#[test]
fn nothing_ends_where_nothing_can_be_said() {
    let p = Program::new("faults");
    let full = std::fs::File::options().write(true).open("/dev/full").expect("systems have it");
    let mut run = Command::new(&p.path);
    run.args(["outside", "700"])
        .env("LD_LIBRARY_PATH", p.folder.path())
        .env("OXCUDA_TRACE", "1")
        .stderr(full);
    let out = run.output().expect("runs");
    assert!(out.status.success() && out.stdout.ends_with(b"done\n"), "{out:?}");
}

#[test]
fn checks_tell_what_they_find() {
    let p = Program::new("checks");
    let (_, silent) = p.passes(&[], &[]);
    assert_eq!(silent, "");
    let wanted = [
        (
            "init",
            "oxcuda: init: turn: thread (32,0,0) of block (0,0,0), line 10 of the PTX",
            "4 of which nobody has written",
        ),
        ("race", "oxcuda: race: turn: ", "line 12 of the PTX"),
        ("memory", "oxcuda: memory: 256 bytes at", "not freed"),
    ];
    for (check, what, detail) in wanted {
        let (_, found) = p.passes(&[], &[("OXCUDA_CHECK", check)]);
        assert!(found.contains(what) && found.contains(detail), "{check}: {found}");
        assert!(found.lines().all(|l| l.starts_with(&format!("oxcuda: {check}: "))), "{check}: {found}");
        let (_, all) = p.passes(&[], &[("OXCUDA_CHECK", "all")]);
        assert!(all.contains(what), "{check}: {all}");
    }
}

#[test]
fn images_of_every_kind_are_loaded() {
    let p = Program::new("images");
    let (_, complained) = p.passes(&[], &[]);
    assert_eq!(complained.matches("cuTexRefCreate is not built").count(), 1, "{complained}");
    own_fat_binaries(&p);
    let Some(tools) = std::env::var_os("OXPTXAS_ORACLES").map(PathBuf::from) else { return };
    // What NVIDIA's tools make: a cubin, and fat binaries, compressed or not.
    let at = |name: &str| p.folder.path().join(name).display().to_string();
    std::fs::write(at("seven.ptx"), SEVEN).expect("there is room");
    let tool = |name: &str, args: &[String]| {
        let done = Command::new(tools.join(name)).args(args).output().expect("is installed");
        assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    };
    tool("ptxas", &["-arch=sm_90".into(), at("seven.ptx"), "-o".into(), at("seven.cubin")]);
    let mut files = vec![at("seven.ptx"), at("seven.cubin")];
    for (i, extra) in ["--compress=false", "--compress-all", "--compress-mode=speed", "--compress-mode=size"]
        .iter()
        .enumerate()
    {
        for (kind, file) in [("ptx", "seven.ptx"), ("elf", "seven.cubin")] {
            let out = at(&format!("{i}.{kind}.fatbin"));
            let image = format!("--image3=kind={kind},sm=90,file={}", at(file));
            tool("fatbinary", &[format!("--create={out}"), image, "-64".into(), (*extra).into()]);
            files.push(out);
        }
    }
    let args: Vec<&str> = files.iter().map(String::as_str).collect();
    p.passes(&args, &[]);
    // With features of one SM alone, and for all later ones: another SM takes the latter.
    tool("ptxas", &["-arch=sm_100a".into(), at("seven.ptx"), "-o".into(), at("own.cubin")]);
    let image = |kind: &str, sm: &str, file: &str| format!("--image3=kind={kind},sm={sm},file={}", at(file));
    let images = [image("elf", "100a", "own.cubin"), image("ptx", "75", "seven.ptx")];
    let (both, own) = (at("both.fatbin"), at("own.fatbin"));
    tool("fatbinary", &[format!("--create={both}"), images[0].clone(), images[1].clone(), "-64".into()]);
    tool("fatbinary", &[format!("--create={own}"), images[0].clone(), "-64".into()]);
    for sm in ["90", "100", "103"] {
        p.passes(&[&both], &[("OXCUDA_SM", sm)]);
    }
    p.passes(&[&own], &[("OXCUDA_SM", "100")]);
    let (out, _, _) = p.run(&[&own], &[("OXCUDA_SM", "103")]);
    assert!(!out.status.success(), "code for sm_100a runs on sm_103");
    let ptxas = tools.join("ptxas").display().to_string();
    p.passes(&[], &[("OXCUDA_PTXAS", &ptxas)]);
}

/// Code of ours for several targets, with and without the PTX.
fn own_fat_binaries(p: &Program) {
    use cubin::fatbin::{Image, Reach, write};
    let all = ["sm_75", "sm_90", "sm_100a"].map(|t| sass::Target::parse(t).expect("is one"));
    let all = all.map(oxptxas::Settings::new);
    let outputs = oxptxas::compile_all(SEVEN, "seven.ptx", &all);
    let code: Vec<Vec<u8>> = outputs.into_iter().map(|o| o.expect("compiles").cubin).collect();
    let mut images: Vec<Image<'_>> = (all.iter().zip(&code))
        .map(|(s, bytes)| Image {
            ptx: None,
            sm: s.target.sm.into(),
            reach: if s.target.sm == 100 { Reach::Alone } else { Reach::Later },
            debug: false,
            bytes,
        })
        .collect();
    let file = |name: &str, images: &[Image<'_>]| {
        let path = p.folder.path().join(name).display().to_string();
        std::fs::write(&path, write(images, "seven.cu")).expect("there is room");
        path
    };
    let alone = file("code.fatbin", &images);
    for sm in ["75", "90", "100"] {
        p.passes(&[&alone], &[("OXCUDA_SM", sm)]);
    }
    let (out, ..) = p.run(&[&alone], &[("OXCUDA_SM", "120")]);
    assert!(!out.status.success(), "there is no code for sm_120");
    let ptx = Image { ptx: Some((7, 8)), sm: 75, reach: Reach::Later, debug: false, bytes: SEVEN.as_bytes() };
    images.push(ptx);
    p.passes(&[&file("both.fatbin", &images)], &[("OXCUDA_SM", "120")]);
}

#[test]
fn accesses_behind_an_allocation_are_found_when_asked_for() {
    let p = Program::new("slack");
    // A driver gives memory in units, so nothing happens by itself.
    for kernel in ["put", "lay"] {
        let (_, complained) = p.passes(&[kernel, "0"], &[]);
        assert_eq!(complained, "");
    }
    let (_, complained) = p.passes(&["put", "700"], &[("OXCUDA_CHECK", "memory")]);
    assert!(complained.contains("line 9 of the PTX: st.global.u32 [%rd1], %r1;"), "{complained}");
    assert!(complained.contains("put.py, line 6"), "{complained}");
    let (_, complained) = p.passes(&["lay", "700"], &[("OXCUDA_CHECK", "memory")]);
    assert!(complained.contains("st.shared.u32 [%r1+8], %r2;"), "{complained}");
}

#[test]
fn streams_wait_for_values() {
    let p = Program::new("waits");
    WAYS.iter().for_each(|w| drop(p.passes(&[], w)));
    // Nobody is left who could write.
    let (_, complained) = p.passes(&["never"], &[("OXCUDA_WAIT", "1000")]);
    assert!(complained.contains("waits for at least 0x1 at 0x"), "{complained}");
    assert!(complained.contains("where 0x0 is, and nobody comes to write it"), "{complained}");
}

#[test]
fn much_may_wait() {
    Program::new("many").passes(&[], &[]);
}

#[test]
fn graphs_wait_for_values() {
    let p = Program::new("memops");
    WAYS.iter().for_each(|w| drop(p.passes(&[], w)));
}

#[test]
fn work_is_done_in_order_by_chance() {
    Program::new("shuffle").passes(&["300"], &[]);
}

#[test]
fn what_waits_is_told_what_went_wrong() {
    let p = Program::new("late");
    p.passes(&[], &[]);
    p.passes(&[], &[("OXCUDA_CHECK", "all")]);
    let (_, complained) = p.passes(&["trap"], &[]);
    assert!(complained.contains("kernel stop"), "{complained}");
    let (_, complained) = p.passes(&["never"], &[("OXCUDA_WAIT", "1000")]);
    assert!(complained.contains("nobody comes to write it"), "{complained}");
}

#[test]
fn events_are_their_newest_records() {
    let p = Program::new("events");
    p.passes(&[], &[]);
    p.passes(&[], &[("OXCUDA_CHECK", "all")]);
}

/// The program is written against CUDA's header, as above.
#[test]
fn arrays_textures_and_surfaces_are_as_documented() {
    let tools = std::env::var_os("OXPTXAS_ORACLES").map(PathBuf::from);
    let headers = tools.and_then(|t| Some(t.parent()?.join("include")));
    let Some(headers) = headers.filter(|h| h.join("cuda.h").exists()) else { return };
    let p = Program::with("textures", Some(&headers));
    let ptxas = std::env::var("OXPTXAS_ORACLES").unwrap_or_default() + "/ptxas";
    for w in WAYS.iter().copied().chain([&[("OXCUDA_PTXAS", &*ptxas)][..]]) {
        p.passes(&[], w);
    }
    let (_, complained) = p.passes(&[], &[("OXCUDA_CHECK", "memory")]);
    let left = "oxcuda: memory: 80 bytes at ";
    assert!(complained.lines().any(|l| l.starts_with(left) && l.ends_with("an array")), "{complained}");
    // What is wrong, which hardware does not tell.
    let cases = [
        (
            "race",
            "race: mark: thread (32,0,0) of block (0,0,0), ",
            "which the other thread writes: thread (31,0,0)",
        ),
        (
            "lanes",
            "race: mark: thread (0,0,0) of block (0,0,0), ",
            "another thread of the warp writes something else there at once",
        ),
        ("fresh", "init: flat: thread (4,0,0) of block (0,0,0), ", "4 of which nobody has written"),
    ];
    for (what, place, text) in cases {
        let (said, complained) = p.passes(&[what], &[("OXCUDA_CHECK", "init,race")]);
        assert_eq!(said, "0\ndone\n", "{what}: {complained}");
        assert!(complained.contains(place) && complained.contains(text), "{what}: {complained}");
    }
    let cases = [
        (
            "outside",
            "719",
            "memory: twice: thread (4,0,0)",
            "access outside of a surface: bytes from [16, 1] of 4 x 3 x 1",
        ),
        (
            "odd",
            "716",
            "memory: odd: thread (1,0,0)",
            "misaligned access to 4 bytes of a surface at byte 1 of a row",
        ),
        ("gone", "700", "memory: twice: thread (0,0,0)", "where no memory is"),
    ];
    for (what, code, place, text) in cases {
        for checks in ["", "memory"] {
            let (said, complained) = p.passes(&[what], &[("OXCUDA_CHECK", checks)]);
            assert_eq!(said, format!("{code}\ndone\n"), "{what}: {complained}");
            assert!(complained.contains(text), "{what}: {complained}");
            assert_eq!(complained.contains(place), !checks.is_empty(), "{what}: {complained}");
        }
    }
}

#[test]
fn limits_hold_until_kernels_have_need_of_them() {
    let p = Program::new("limits");
    for w in WAYS {
        let (said, _) = p.passes(&[], w);
        assert_eq!(said, "hi\ndone\n", "{w:?}");
    }
}

#[test]
fn large_arrays_leave_memory_for_others() {
    let p = Program::new("large");
    let peak = |checks: &str| {
        let (said, found) = p.passes(&["8"], &[("OXCUDA_CHECK", checks)]);
        assert_eq!(found, "", "{checks}");
        let mib: u64 = said.split(' ').next().and_then(|n| n.parse().ok()).expect("says how much");
        mib
    };
    // Twice the arrays, and what is open at once.
    let (without, with) = (peak(""), peak("race"));
    assert!(with < without + 16 + 60, "{with} MiB, {without} without checks");
}
