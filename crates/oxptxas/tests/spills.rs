//! How much spill code there is: what a change may not make worse unseen.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Bytes that spill code of the kernel in a file stores and loads, as `-v` says.
fn spilled(ptx: &Path, arch: &str) -> (u32, u32) {
    let name = ptx.file_stem().expect("a file").display();
    let out = std::env::temp_dir().join(format!("oxptxas-spills-{}-{name}-{arch}", std::process::id()));
    let run = Command::new(env!("CARGO_BIN_EXE_oxptxas"))
        .args(["-v", &format!("-arch={arch}")])
        .arg(ptx)
        .arg("-o")
        .arg(&out)
        .output()
        .expect("oxptxas runs");
    std::fs::remove_file(&out).expect("a cubin was written");
    let text = String::from_utf8(run.stderr).expect("text") + &String::from_utf8_lossy(&run.stdout);
    let number = |before: &str| {
        let end = text.find(before).unwrap_or_else(|| panic!("no '{before}' in:\n{text}"));
        let digits = text[..end].rsplit(' ').next().expect("a number stands before it");
        digits.parse().unwrap_or_else(|e| panic!("{digits}: {e}"))
    };
    (number(" bytes spill stores"), number(" bytes spill loads"))
}

/// 72 values go round a loop with 32 registers, each of which is read three times in a turn. A value has one slot however often it
/// changes, and what is passed on to two blocks is stored once (ptxas 13.0.88: 568 and 824).
#[test]
fn values_that_go_round_a_loop_keep_their_slots() {
    let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/spill.ptx");
    let (stored, loaded) = spilled(Path::new(kernel), "sm_90");
    assert!(stored <= 720 && loaded <= 1000, "{stored} bytes stored, {loaded} loaded");
}

/// What a loop with two ways in does not change stays in its slot (ptxas 13.0.88: 184 bytes stored and as many loaded of a kernel alike).
#[test]
fn loops_with_two_ways_in_move_only_what_they_change() {
    const VALUES: usize = 60;
    let mut text = String::from(
        ".version 8.0\n.target sm_75\n.address_size 64\n.entry k(.param .u64 p, .param .u32 count) .maxnreg 32 {\n\
         .reg .b64 a; .reg .b32 n, i; .reg .pred q;\nld.param.u64 a, [p]; ld.param.u32 n, [count]; mov.u32 i, 0;\n",
    );
    (0..VALUES).for_each(|k| {
        let _ = writeln!(text, ".reg .b32 v{k}; ld.global.u32 v{k}, [a+{}];", 4 * k);
    });
    text += "setp.eq.u32 q, n, 7; @q bra B;\n\
             A: add.u32 v0, v0, v1; add.u32 i, i, 1; setp.gt.u32 q, i, 9; @q bra C;\n\
             B: mad.lo.u32 v2, v2, v0, v3; add.u32 i, i, 2; setp.lt.u32 q, i, n; @q bra A;\nC:\n";
    (0..VALUES).for_each(|k| {
        let _ = writeln!(text, "st.global.u32 [a+{}], v{k};", 4 * k);
    });
    text += "ret; }\n";
    let file = std::env::temp_dir().join(format!("oxptxas-two-ways-{}.ptx", std::process::id()));
    std::fs::write(&file, text).expect("a file");
    let (stored, loaded) = spilled(&file, "sm_90");
    std::fs::remove_file(&file).expect("the file is there");
    assert!(stored <= 400 && loaded <= 400, "{stored} bytes stored, {loaded} loaded");
}
