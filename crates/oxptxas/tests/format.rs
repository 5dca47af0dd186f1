//! The form of the files: what is fixed by ptxas 13.0.88's files of the same PTX (docs/cubin.md).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("format").join(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn oxptxas(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oxptxas")).current_dir(dir).args(args).output().unwrap()
}

/// Compiles, and returns the file.
fn cubin(name: &str, source: &str, args: &[&str]) -> Vec<u8> {
    let dir = folder(name);
    fs::write(dir.join("in.ptx"), source).unwrap();
    let out = oxptxas(&dir, &[args, &["in.ptx", "-o", "out.cubin"]].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    fs::read(dir.join("out.cubin")).unwrap()
}

fn number(data: &[u8], at: usize, bytes: usize) -> u64 {
    data[at..at + bytes].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Section headers: size, alignment, contents, by name.
fn sections(file: &[u8]) -> BTreeMap<String, (u64, u64, Vec<u8>)> {
    let (table, count) = (number(file, 40, 8) as usize, number(file, 60, 2) as usize);
    let header = |i: usize| table + 64 * i;
    let names = number(file, header(number(file, 62, 2) as usize) + 24, 8) as usize;
    let mut out = BTreeMap::new();
    for at in (0..count).map(header) {
        let name = file[names + number(file, at, 4) as usize..].split(|b| *b == 0).next().unwrap();
        let (ty, offset) = (number(file, at + 4, 4), number(file, at + 24, 8) as usize);
        let (size, align) = (number(file, at + 32, 8), number(file, at + 48, 8));
        let nobits = matches!(ty, 8 | 0x7000_0007 | 0x7000_000a);
        let data = if nobits { Vec::new() } else { file[offset..offset + size as usize].to_vec() };
        out.insert(String::from_utf8_lossy(name).into_owned(), (size, align, data));
    }
    out
}

/// Codes and values of a section of records.
fn records(data: &[u8]) -> Vec<(u8, Vec<u8>)> {
    cubin::attrs::records(data).map(|(code, value)| (code, value.to_vec())).collect()
}

const HEAD: &str = ".version 8.7\n.target sm_75\n.address_size 64\n";

fn kernel(declarations: &str, code: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 p) {{ .reg .b32 %r<9>; .reg .b64 %d<9>; {declarations}\n\
         ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x;\n{code}\nst.global.b32 [%d0], %r0; ret; }}\n"
    )
}

/// Neither the names of the files nor where they are stands in the output.
#[test]
fn the_same_bytes_wherever_the_files_are() {
    let source = format!("{HEAD}{}", kernel("", ""));
    let mut found = Vec::new();
    for (dir, input, output) in [("one", "a.ptx", "x.cubin"), ("two/deeper", "b.ptx", "other name.cubin")] {
        let dir = folder(dir);
        fs::write(dir.join(input), &source).unwrap();
        let out = dir.join(output);
        let out = out.to_str().unwrap();
        let spelled = format!("--output-file={out}");
        for args in [[&["-o", out][..], &["-arch=sm_90"]].concat(), vec!["-arch", "sm_90", &spelled]] {
            let status = oxptxas(&dir, &[&args[..], &[input]].concat()).status;
            assert!(status.success());
            found.push(fs::read(out).unwrap());
        }
    }
    assert!(found.iter().all(|f| *f == found[0]));
}

/// nvlink 13.0.88 gives files without capsules the low byte 4 and leaves out the record that promises that they can be
/// finalized for other SMs; code for one SM alone says so.
#[test]
fn no_capsule_is_claimed() {
    let source = format!("{HEAD}{}", kernel("", ""));
    for relocatable in [&[][..], &["-c"]] {
        for (sm, accelerated, promises) in
            [("90", 0, true), ("90a", 1, true), ("100", 0, false), ("100f", 0, false), ("120a", 1, false)]
        {
            let arch = format!("-arch=sm_{sm}");
            let file =
                cubin(&format!("claim{sm}{}", relocatable.len()), &source, &[relocatable, &[&arch]].concat());
            assert_eq!(file[48], 4, "{sm}");
            let compat = records(&sections(&file)[".nv.compat"].2);
            assert_eq!(compat[0], (9, vec![accelerated, 0]), "{sm}");
            assert_eq!(compat.iter().any(|r| r.0 == 0x0b), promises, "{sm}");
        }
    }
}

#[test]
fn parameters_say_where_they_point() {
    let source = format!(
        "{HEAD}.visible .entry k(.param .u64 a, .param .u64 .ptr .global .align 16 b, .param .u64 .ptr .shared .align 4 c,\
         .param .u64 .ptr .local .align 1 d, .param .u64 .ptr .align 8 e, .param .u64 .ptr .const .align 2 f) {{ ret; }}\n"
    );
    for arch in ["-arch=sm_75", "-arch=sm_90"] {
        let file = cubin("pointee", &source, &[arch]);
        let info = records(&sections(&file)[".nv.info.k"].2);
        let words: Vec<u64> =
            info.iter().filter(|r| r.0 == 0x17).map(|r| number(&r.1, 8, 4) & 0xfff).rev().collect();
        // Constant memory is a space of its own before sm_90 only.
        let constant = if arch.ends_with("75") { 0x301 } else { 0x401 };
        assert_eq!(words, [0, 0x404, 0x202, 0x100, 0x503, constant], "{arch}");
    }
}

/// Sizes of `.nv.shared.k` in ptxas 13.0.88's files for sm_75.
#[test]
fn shared_memory_is_placed_as_ptxas_does() {
    let both = ".shared .align 1 .b8 a[5]; .shared .align 16 .b8 b[3];\n";
    let own = ".shared .align 1 .b8 c[7]; .shared .align 8 .b8 d[9];";
    let all = "st.shared.b8 [a], %r0; st.shared.b8 [b], %r0; st.shared.b8 [c], %r0; st.shared.b8 [d], %r0;";
    let mixed = ".shared .align 4 .b8 a[5]; .shared .align 16 .b8 b[3]; .shared .align 4 .b8 c[7]; \
                 .shared .align 8 .b8 d[9]; .shared .align 1 .b8 e[2]; .shared .align 16 .b8 f[1]; .shared .align 2 .b8 g[4];";
    let unnamed = ".shared .align 1 .b8 x[5]; .shared .align 1 .b8 y[3];";
    let cases = [
        // Those of the kernel first.
        (both, own, all, 0x23, 16),
        ("", mixed, "st.shared.b8 [a], %r0; st.shared.b8 [d], %r0;", 0x36, 16),
        // What nothing names is last, of the module it is left out.
        (mixed, "", "st.shared.b8 [a], %r0; st.shared.b8 [d], %r0;", 0x11, 8),
        (".shared .align 16 .b8 z[3];\n", unnamed, "st.shared.b8 [x], %r0; st.shared.b8 [z], %r0;", 0x16, 16),
    ];
    for (i, (module, own, code, size, align)) in cases.into_iter().enumerate() {
        let source = format!("{HEAD}{module}{}", kernel(own, code));
        let file = cubin(&format!("shared{i}"), &source, &["-arch=sm_75"]);
        let section = &sections(&file)[".nv.shared.k"];
        assert_eq!((section.0, section.1), (size, align), "{module}{own}");
    }
}

/// Offsets in ptxas 13.0.88's file: the most aligned first, of those the smallest.
#[test]
fn globals_are_placed_as_ptxas_does() {
    let variables = "a:4:5 b:16:3 c:4:7 d:8:9 e:1:2 f:16:1 g:2:4";
    let (mut declared, mut used) = (String::new(), String::new());
    for v in variables.split(' ') {
        let [name, align, size] = v.split(':').collect::<Vec<_>>()[..] else { panic!() };
        declared += &format!(".global .align {align} .b8 {name}[{size}];\n");
        used += &format!("ld.global.u8 %r1, [{name}]; add.u32 %r0, %r0, %r1;\n");
    }
    let file = cubin("globals", &format!("{HEAD}{declared}{}", kernel("", &used)), &["-arch=sm_75"]);
    let s = sections(&file);
    assert_eq!((s[".nv.global"].0, s[".nv.global"].1), (0x3a, 16));
    let names = &s[".strtab"].2;
    let mut places = Vec::new();
    for symbol in s[".symtab"].2.chunks(24) {
        let name = names[number(symbol, 0, 4) as usize..].split(|b| *b == 0).next().unwrap();
        if symbol[4] & 0xf == 1 {
            places.push((number(symbol, 8, 8), String::from_utf8_lossy(name).into_owned()));
        }
    }
    places.sort();
    let order: Vec<String> = places.iter().map(|(at, name)| format!("{name}{at}")).collect();
    assert_eq!(order, ["f0", "b16", "d24", "a36", "c44", "g52", "e56"]);
}

/// Variables without contents take none here, however large.
#[test]
fn large_variables() {
    let code = "ld.global.u8 %r0, [g];";
    for relocatable in [&[][..], &["-c"]] {
        let source = format!("{HEAD}.global .align 4 .b8 g[1099511627776];\n{}", kernel("", code));
        let file =
            cubin(&format!("large{}", relocatable.len()), &source, &[&["-arch=sm_90"], relocatable].concat());
        assert_eq!(sections(&file)[".nv.global"].0, 1 << 40);
        let dir = folder("too_large");
        let source = format!("{HEAD}.global .align 4 .b8 g[1099511627776] = {{1}};\n{}", kernel("", code));
        fs::write(dir.join("in.ptx"), source).unwrap();
        let out = oxptxas(&dir, &[&["-arch=sm_90", "in.ptx", "-o", "out.cubin"], relocatable].concat());
        assert_eq!(out.status.code(), Some(255));
        assert!(String::from_utf8_lossy(&out.stderr).contains("1099511627776"), "{out:?}");
        assert!(!dir.join("out.cubin").exists());
    }
}

/// The rules of a kernel's frame: `def_cfa R1 FRAME` once the prologue has lowered R1.
#[test]
fn frames_are_described() {
    let depot = ".local .align 16 .b8 depot[64];";
    let code = "and.b32 %r1, %r0, 15; mul.wide.u32 %d1, %r1, 4; mov.u64 %d2, depot; add.s64 %d1, %d1, %d2;\n\
                st.local.u32 [%d1], %r0; ld.local.u32 %r0, [depot+8];";
    for arch in ["-arch=sm_75", "-arch=sm_90", "-arch=sm_120"] {
        let file = cubin("frame", &format!("{HEAD}{}", kernel(depot, code)), &[arch]);
        let frame = &sections(&file)[".debug_frame"].2;
        let rule = [0x0c, 0x81, 0x80, 0x80, 0x28, 64];
        assert!(frame.windows(6).any(|w| w == rule), "{arch}: {frame:02x?}");
    }
}

/// Collective instructions, spills, and what only older files say.
#[test]
fn facts_about_the_code() {
    let code = "mov.u32 %r2, %ctaid.z; add.u32 %r0, %r0, %r2; shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; add.u32 %r0, %r0, %r1;";
    for (arch, z) in [("-arch=sm_75", true), ("-arch=sm_90", false)] {
        let file = cubin("facts", &format!("{HEAD}{}", kernel("", code)), &[arch]);
        let info = records(&sections(&file)[".nv.info.k"].2);
        let find = |code: u8| info.iter().find(|r| r.0 == code).map(|r| r.1.clone());
        assert_eq!(find(0x29), Some(vec![0xff; 4]), "{arch}");
        assert_eq!(find(0x28).map(|v| v.len()), Some(4), "{arch}");
        assert_eq!(find(0x04).is_some(), z, "{arch}");
        assert_eq!(find(0x1e), None, "no barriers, no calls");
    }
}

/// `-v` and the warnings say of objects what they say of executables.
#[test]
fn statistics_of_objects() {
    let source = format!(
        "{HEAD}.visible .func (.param .b32 r) f(.param .b32 a) {{ .reg .b32 %r<2>; ld.param.b32 %r0, [a]; \
         st.param.b32 [r], %r0; ret; }}\n.global .align 4 .b8 g[12];\n{}",
        kernel(".shared .align 4 .b8 s[100];", "st.shared.u32 [s], %r0; ld.global.u8 %r0, [g];")
    );
    let dir = folder("statistics");
    fs::write(dir.join("in.ptx"), source).unwrap();
    let out = oxptxas(&dir, &["-arch=sm_75", "-c", "-v", "in.ptx", "-o", "out.o"]);
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text.contains("12 bytes gmem"), "{text}");
    assert!(text.contains("Compiling entry function 'k'") && !text.contains("entry function 'f'"), "{text}");
    assert!(text.contains("Function properties for f"), "{text}");
    assert!(text.contains("used 0 barriers, 100 bytes smem, 360 bytes cmem[0]"), "{text}");
}

/// 128 bytes that every file for sm_110 keeps in front of what tensor memory needs (ptxas 13.0.88).
#[test]
fn sm_110_keeps_a_variable_of_the_system() {
    let source = "
.version 9.0
.target sm_110
.address_size 64
.visible .entry k() { ret; }
";
    let names = |file: &[u8]| String::from_utf8_lossy(file).contains("__nv_reservedSMEM_gb10b_war_var");
    let whole = cubin("war", source, &["-arch=sm_110"]);
    let (size, align, _) = sections(&whole)[".nv.shared.reserved.0"].clone();
    assert_eq!((size, align, names(&whole)), (0xc0, 16, true));
    let object = cubin("war_object", source, &["-arch=sm_110", "-c"]);
    let (size, align, _) = sections(&object)[".nv.shared.reserved.0"].clone();
    assert_eq!((size, align, names(&object)), (0x80, 16, true));
    let other = cubin("war_other", &source.replace("sm_110", "sm_103"), &["-arch=sm_103"]);
    assert_eq!(sections(&other)[".nv.shared.reserved.0"].0, 0x40);
    assert!(!names(&other));
}

/// What stands for `.sync` statements is listed: BAR of barriers that are not aligned, but not arrivals; the NOP that is left of
/// `bar.warp.sync` where the lanes are together; no aligned barrier (ptxas 13.0.88).
#[test]
fn instructions_of_groups() {
    let code = "barrier.sync 1; ld.global.u32 %r1, [%d0+4];\nbar.warp.sync -1; barrier.arrive 2, 64; bar.sync 0;\n\
        add.u32 %r0, %r0, %r1; shfl.sync.bfly.b32 %r2, %r0, 1, 31, -1; add.u32 %r0, %r0, %r2;";
    for sm in [75, 80, 90, 100, 120] {
        for level in ["-O0", "-O3"] {
            let source = format!("{HEAD}{}", kernel("", code));
            let file = cubin("groups", &source, &[&format!("-arch=sm_{sm}"), level]);
            let info = records(&sections(&file)[".nv.info.k"].2);
            let find = |code: u8| info.iter().find(|r| r.0 == code).map(|r| r.1.clone()).unwrap();
            assert_eq!(find(0x29), vec![0xff; 12], "sm_{sm} {level}");
            let image = cubin::read::read(&file).unwrap();
            let target = sass::Target::new(sm).unwrap();
            let listed = find(0x28).chunks(4).map(|w| number(w, 0, 4) as usize / 16).collect::<Vec<_>>();
            let listed = listed.iter().map(|k| {
                let word = image.kernels["k"].code[*k];
                sass::decode(word, target, 16 * *k as i64).unwrap().op.mnemonic()
            });
            assert_eq!(listed.collect::<Vec<_>>(), ["BAR", "NOP", "SHFL"], "sm_{sm} {level}");
        }
    }
}

/// Constant bank 4 of an executable has the address of every variable in global memory in the order of the text, whether code
/// names it or not; of more than 8,191 none (ptxas 13.0.88).
#[test]
fn variables_have_slots() {
    let some = ".visible .global .u32 a;\n.global .align 8 .b64 b = 7;\n.common .global .u64 c;\n.visible .const .u32 d;\n";
    for arch in ["-arch=sm_75", "-arch=sm_90", "-arch=sm_120"] {
        let file = cubin("slots", &format!("{HEAD}{some}{}", kernel("", "")), &[arch]);
        let s = sections(&file);
        assert_eq!(s[".nv.constant4"].0, 24, "{arch}");
        let object = cubin("slots_object", &format!("{HEAD}{some}{}", kernel("", "")), &[arch, "-c"]);
        assert!(!sections(&object).contains_key(".nv.constant4"), "{arch}");
    }
    let many: String = (0..8192).map(|n| format!(".visible .global .u32 v{n};\n")).collect();
    let file = cubin("slots_many", &format!("{HEAD}{many}{}", kernel("", "")), &["-arch=sm_75"]);
    assert!(!sections(&file).contains_key(".nv.constant4"));
}

/// `-v` of an object: device functions first, and of these the last ones; of an executable, the functions of a kernel by
/// name. The linker finds room for common variables.
#[test]
fn what_verbose_lists_and_in_which_order() {
    let function = |name: &str| {
        format!(
            ".visible .func (.param .b32 r) {name}(.param .b32 a) {{ .reg .b32 %a; ld.param.b32 %a, [a]; st.param.b32 [r], %a; ret; }}\n"
        )
    };
    let call = |name: &str| {
        format!(
            "{{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r0; call.uni (y), {name}, (x); ld.param.b32 %r0, [y]; }}"
        )
    };
    let one = kernel("", &(call("g") + &call("f"))).replace("entry k", "entry one");
    let source = format!(
        "{HEAD}.common .global .align 8 .b64 c;\n.global .b32 d;\n{}{}{one}",
        function("g"),
        function("f")
    );
    let dir = folder("verbose");
    fs::write(dir.join("in.ptx"), source).unwrap();
    for (args, want, bytes) in [
        (&["-arch=sm_75", "-c"][..], &["f", "g", "one"][..], "4 bytes gmem"),
        (&["-arch=sm_75"], &["one", "f", "g"], "12 bytes gmem"),
    ] {
        let out = oxptxas(&dir, &[args, &["-v", "in.ptx", "-o", "out.cubin"]].concat());
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        let named: Vec<&str> =
            text.lines().filter_map(|l| l.split("Function properties for ").nth(1)).collect();
        assert_eq!(named, want, "{text}");
        assert!(text.contains(bytes), "{text}");
    }
}
