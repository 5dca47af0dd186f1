//! What ptxas writes of what functions take and give, for one function after the other: the table that our own texts
//! are compared with (`crates/oxptxas/tests/prototypes.tsv`).

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Heads of functions: every type as parameter and result, arrays, alignments, vectors, several at once.
fn heads() -> Vec<String> {
    let mut heads: Vec<String> = Vec::new();
    let numbers = [
        "b8", "u8", "s8", "b16", "u16", "s16", "f16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64",
        "b128",
    ];
    for t in numbers {
        for space in [".param", ".reg"] {
            heads.push(format!("f({space} .{t} x)"));
            heads.push(format!("({space} .{t} r) f()"));
        }
        for n in ["1", "2", "3", "4", "5", "100", ""] {
            heads.push(format!("f(.param .{t} x[{n}])"));
        }
        heads.push(format!("f(.param .align 16 .{t} x)"));
        heads.push(format!("f(.param .align 16 .{t} x[4])"));
        heads.push(format!("f(.param .b32 a, .param .align 16 .{t} x[])"));
        heads.push(format!("(.param .{t} r[3]) f()"));
        heads.push(format!("(.param .align 16 .{t} r[17]) f(.param .b64 a)"));
    }
    for vector in
        ["v2 .b8", "v4 .b8", "v2 .b16", "v4 .b16", "v2 .b32", "v4 .b32", "v2 .f32", "v4 .f32", "v2 .f64"]
    {
        heads.push(format!("f(.param .{vector} x[2])"));
    }
    for more in [
        "f(.reg .pred x)",
        "(.reg .pred r) f()",
        "f(.reg .f16x2 x)",
        "f",
        "f()",
        "f() .noreturn",
        "(.param .b32 r) f(.param .b32 a, .param .b64 b, .param .f32 c, .param .f64 d, .param .b8 e, .param .b16 h, \
         .param .b128 g)",
        "(.param .align 16 .b8 r[64]) f(.param .align 16 .b8 a[64], .param .align 8 .b8 b[8], .param .b32 c)",
        "f(.param .b32 a[10], .param .f32 b[2], .param .f16 h[3], .param .b64 d[2], .param .f64 e[2], .param .b128 g[2])",
    ] {
        heads.push(more.into());
    }
    heads
}

/// Writes the table.
pub fn write(root: &Path, bin: &Path) -> Result<(), String> {
    let dir = root.join("target/link-check");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let (source, object) = (dir.join("prototype.ptx"), dir.join("prototype.o"));
    let mut table = String::from(
        "# What ptxas 13.0.88 -c says of functions: `cargo xtask link-check --prototypes` writes this.\n",
    );
    for head in heads() {
        let text = format!(
            ".version 8.8\n.target sm_90\n.address_size 64\n.visible .func {head} {{ {} }}\n",
            if head.ends_with(".noreturn") { "exit;" } else { "ret;" }
        );
        std::fs::write(&source, text).map_err(|e| e.to_string())?;
        let mut ptxas = Command::new(bin.join("ptxas"));
        ptxas.args(["-c", "-arch=sm_90"]).arg(&source).arg("-o").arg(&object);
        let out = ptxas.output().map_err(|e| e.to_string())?;
        let said = if out.status.success() {
            let data = std::fs::read(&object).map_err(|e| e.to_string())?;
            let graph = cubin::graph::read(&data)?;
            graph.others.first().map(|p| p.1.clone()).ok_or("no prototype")?
        } else {
            "refused".into()
        };
        let _ = writeln!(table, "{head}\t{said}");
    }
    std::fs::write(root.join("crates/oxptxas/tests/prototypes.tsv"), table).map_err(|e| e.to_string())
}
