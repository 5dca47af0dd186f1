//! What is said of kernels whose stack has no bound, and what stands in the file of it, as ptxas 13.0.88 has it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stacks").join(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn oxptxas(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oxptxas")).current_dir(dir).args(args).output().unwrap()
}

/// The kernels that are warned of.
fn warned(dir: &Path, args: &[&str]) -> Vec<String> {
    let out = oxptxas(dir, &[args, &["in.ptx"]].concat());
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{text}");
    let lines = text.lines().filter(|l| l.contains("statically"));
    lines.map(|l| l.split('\'').nth(1).unwrap().to_string()).collect()
}

/// Once for each function without a bound that a kernel calls or that its calls through pointers may go to (ptxas 13.0.88).
#[test]
fn stacks_without_a_bound_are_named() {
    let function = |name: &str, callee: &str| {
        format!(
            ".func (.param .b32 r) {name}(.param .b32 a) {{ .reg .b32 %a<2>; .reg .pred %p; ld.param.b32 %a0, [a];
            setp.lt.s32 %p, %a0, 2; @%p bra L; add.s32 %a0, %a0, -1;
            {{ .param .b32 x; .param .b32 y; st.param.b32 [x], %a0; call.uni (y), {callee}, (x); ld.param.b32 %a0, [y]; }}
            L: st.param.b32 [r], %a0; ret; }}\n"
        )
    };
    let call = |name: &str| {
        format!(
            "{{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r; call.uni (y), {name}, (x); ld.param.b32 %r, [y]; }}\n"
        )
    };
    let kernel = |name: &str, code: &str| {
        format!(
            ".visible .entry {name}(.param .u64 p) {{ .reg .b32 %r; .reg .b64 %d; ld.param.u64 %d, [p]; ld.global.b32 %r, [%d];
            {code} st.global.b32 [%d], %r; ret; }}\n"
        )
    };
    let source = [
        ".version 7.8\n.target sm_75\n.address_size 64\n.func (.param .b32 r) odd(.param .b32 a);\n"
            .to_string(),
        function("own", "own"),
        function("even", "odd"),
        function("odd", "even"),
        function("once", "own"),
        kernel("none", ""),
        kernel("two", &(call("even") + &call("own"))),
        kernel("one", &call("once")),
    ]
    .concat();
    let dir = folder("named");
    fs::write(dir.join("in.ptx"), source).unwrap();
    let warned = |args: &[&str]| warned(&dir, &[args, &["-arch=sm_75"]].concat());
    assert_eq!(warned(&["-g"]), ["two", "two", "one"]);
    assert_eq!(warned(&["-ewp"]), ["one", "two"]);
    assert_eq!(warned(&["-ewp", "-O0"]), ["one", "two"]);
    assert!(warned(&["-ewp", "-suppress-stack-size-warning"]).is_empty());
    assert!(warned(&["-g", "-suppress-stack-size-warning"]).is_empty());
    assert!(warned(&["-O0"]).is_empty() && warned(&["-g", "-c"]).is_empty());
    assert!(warned(&["-g", "-ewp"]).is_empty() && warned(&["-O3"]).is_empty());
    // And in the file, of every kernel that calls anything; without debug information it is 0.
    let least = |args: &[&str]| -> Vec<u32> {
        let out = oxptxas(&dir, &[args, &["-arch=sm_75", "in.ptx", "-o", "stacks.cubin"]].concat());
        assert!(out.status.success());
        let file = fs::read(dir.join("stacks.cubin")).unwrap();
        // EIATTR_MIN_STACK_SIZE: a symbol and a number.
        let found = file.windows(12).filter(|w| w[..4] == [0x04, 0x12, 0x08, 0x00]);
        let mut found: Vec<u32> = found.map(|w| u32::from_le_bytes(w[8..].try_into().unwrap())).collect();
        found.sort_unstable();
        found
    };
    assert_eq!(least(&["-g"]), [0, u32::MAX, u32::MAX]);
    assert_eq!(least(&["-O3"]), [0, 0, 0]);
}

const CALL: &str = "{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r1;";
const RESULT: &str = "ld.param.b32 %r3, [y]; add.s32 %r2, %r2, %r3; }\n";

/// A module of functions (small letters) and kernels (capitals): each with what it calls, in its order: a function by its name,
/// one through a pointer (`*`), or one of a list (`=f+g`); `&f` takes an address.
fn module(graph: &str) -> String {
    let (mut heads, mut bodies) = (String::new(), String::new());
    for node in graph.split(' ') {
        let (name, calls) = node.split_once(':').unwrap();
        let mut code = String::from("mov.u64 %d2, 0;\n");
        for call in calls.split(',').filter(|c| !c.is_empty()) {
            code += &match (&call[..1], &call[1..]) {
                ("*", _) => format!(
                    "{CALL} l: .callprototype (.param .b32 _) _ (.param .b32 _); call (y), %d2, (x), l; {RESULT}"
                ),
                ("=", list) => {
                    let list = list.replace('+', ", ");
                    format!("{CALL} l: .calltargets {list}; call (y), %d2, (x), l; {RESULT}")
                }
                ("&", function) => format!("mov.u64 %d2, {function};\n"),
                _ => format!("{CALL} call (y), {call}, (x); {RESULT}"),
            };
        }
        if name.chars().all(char::is_lowercase) {
            let head = format!(".func (.param .b32 r) {name}(.param .b32 a)");
            heads += &format!("{head};\n");
            bodies += &format!(
                "{head} {{ .reg .b32 %r<4>; .reg .pred %p; .reg .b64 %d<3>; ld.param.b32 %r1, [a]; setp.eq.s32 %p, %r1, 0;
                mov.b32 %r2, 0; @%p bra DONE; add.s32 %r1, %r1, -1;\n{code}add.s32 %r2, %r2, %r1;
                DONE: st.param.b32 [r], %r2; ret; }}\n"
            );
        } else {
            bodies += &format!(
                ".visible .entry {name}(.param .u64 p) {{ .reg .b32 %r<4>; .reg .b64 %d<3>; ld.param.u64 %d1, [p];
                ld.global.b32 %r1, [%d1]; mov.b32 %r2, 0;\n{code}st.global.b32 [%d1], %r2; ret; }}\n"
            );
        }
    }
    format!(".version 8.8\n.target sm_80\n.address_size 64\n{heads}{bodies}")
}

/// With `-g` a kernel is named once for each function without a bound that it calls, or that a call through a pointer may go to; with
/// `-ewp` once if it holds one. (With addresses ptxas's order is that of a hash.)
#[test]
fn graphs_of_calls_are_taken_as_by_ptxas() {
    let dir = folder("graphs");
    for (graph, debugged, extensible) in [
        ("f:f g:g h:f,g A:h", "A", "A"),
        ("f:f g:g h:f,g A:h,h", "A", "A"),
        ("f:f g:g h:f,g A:h,f", "A A", "A"),
        ("f:f,g g:g A:f,g", "A A", "A"),
        ("f:g g:h h:f A:f,g,h", "A A A", "A"),
        ("f:g,h g:f h:h A:f B:h,f C:f,h", "A B B C C", "A B C"),
        ("f:f g:f h:g i:h A:i,h,g,f", "A A A A", "A"),
        ("f:f g:g A:&f,&g,*", "A A", "A"),
        ("f:f g:g A:&f,&g,*,*", "A A A A", "A"),
        ("f:f g:g A:&f,&g,*,f", "A A A", "A"),
        ("f:f g:g A:*,f B:g,* C:* D:&f E:&g", "A A A B B B C C", "A B C D E"),
        ("f:f g:g A:=f,f", "A A", "A"),
        ("f:f g:g A:=f", "A", ""),
        ("f:f g:g A:=f,=g", "A A", ""),
        ("f:f g:g A:=f+g", "A A", ""),
        ("f:f g: A:=f+g B:=g C:=g+f", "A C", ""),
        ("f:f g: A:&g,=f+g B:=g", "A", ""),
        ("f:&f,* A:f", "A", "A"),
        ("f:* A:f B:&f", "A", "A B"),
        ("f:* g:&f A:f B:g C:f,g", "A C", "A B C"),
        ("f:=f A:f B:=f", "A B", ""),
        ("f:=g g:f A:f B:=f C:g", "A B C", ""),
        ("f:=g g:* h:h A:f B:=f C:g D:&h", "A B C", "A B C D"),
        ("f: g: h:h A:* D:&h,&f", "A", "A D"),
        ("f: g: h:h A:* D:&f E:h", "E", "E"),
        ("f: g: h:h A:=f+h,&h B:* C:=f", "A B", "A B C"),
        ("f: g: h:h D:&h B:=f", "", "B D"),
        ("f: g:* D:&g B:=f C:*,=f", "C", "B C D"),
        ("f:* g:f A:f D:&g B:g C:*", "A B C", "A B C D"),
        ("f:* g:f A:&g,*,* D:&g,* B:g C:*,g", "A A B C C D", "A B C D"),
        ("f:f h: A:&h B: D:&f", "", "A D"),
        ("f:f h:&h A:h B: D:&f", "", "A D"),
        ("f:f h:&h A:h B: D:f", "D", "D"),
        ("f:f h:&f A:h B: D:f", "D", "A D"),
        ("f:f h:&h A: B: D:&f", "", "D"),
        ("f:f h:* A:h B:h C: D:&f", "A B", "A B D"),
        ("f:f h:* C:h B:h A: D:&f E:", "B C", "B C D"),
        ("f:f C:f B:f A:f D:f E:f,&f", "A B C D E", "A B C D E"),
    ] {
        fs::write(dir.join("in.ptx"), module(graph)).unwrap();
        for (option, want) in [("-g", debugged), ("-ewp", extensible)] {
            let mut found = warned(&dir, &["-arch=sm_80", option]);
            found.sort();
            assert_eq!(found.join(" "), want, "{graph} {option}");
        }
    }
}

/// What is called behind the end, or never, counts where nothing is optimized.
#[test]
fn dead_calls_count_where_nothing_is_optimized() {
    let dir = folder("dead");
    let text = module("f:f A:f");
    let never = text.replace(
        "mov.b32 %r2, 0;\nmov.u64 %d2, 0;",
        "mov.b32 %r2, 0; .reg .pred %q; setp.ne.s32 %q, 1, 1; mov.u64 %d2, 0;",
    );
    let at = never.find(".visible").unwrap();
    let never = never[..at].to_string() + &never[at..].replace("call (y)", "@%q call (y)");
    let behind = text[..text.find(".visible").unwrap()].to_string()
        + &text[text.find(".visible").unwrap()..].replace("mov.u64 %d2, 0;", "ret;");
    for source in [never, behind] {
        fs::write(dir.join("in.ptx"), source).unwrap();
        assert!(warned(&dir, &["-arch=sm_80", "-ewp"]).is_empty());
        assert_eq!(warned(&dir, &["-arch=sm_80", "-ewp", "-O0"]), ["A"]);
        assert_eq!(warned(&dir, &["-arch=sm_80", "-g"]), ["A"]);
    }
}
