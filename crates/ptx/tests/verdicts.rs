//! Single statements and what the checker says of them: `verdicts.txt` has one a line, `=> ok` or the message.
//! `BLESS=1 cargo test -p oxptxas-ptx --test verdicts` rewrites it. With the vendor's tools at hand (`OXPTXAS_ORACLES`),
//! ptxas must accept and reject the same ones, but for those that the file marks `(ours)`.

use std::path::{Path, PathBuf};
use std::process::Command;

const HEAD: &str = "\
.version 8.0
.target sm_90
.address_size 64
.global .u32 gv;
.global .f32 gf[4];
.const .u32 cv;
.func (.param .b32 r) ff(.param .b32 a)
{
ret;
}
.visible .entry k(.param .u64 k0, .param .u32 k1)
{
.reg .pred p<4>;
.reg .b16 h<4>;
.reg .u32 u<4>;
.reg .s32 s<4>;
.reg .b32 r<10>;
.reg .b64 rd<10>;
.reg .u64 ud<4>;
.reg .f32 f<10>;
.reg .f64 fd<10>;
.reg .f16 hf<4>;
.reg .b8 bb<2>;
.shared .u32 sv;
.local .u32 lv;
.param .b32 pv;
";

fn module(statement: &str) -> String {
    format!("{HEAD}{statement}\nret;\n}}\n")
}

fn verdict(statement: &str) -> String {
    match ptx::parse(&module(statement)).and_then(|m| ptx::check(&m, 90)) {
        Ok(()) => "ok".to_string(),
        Err(errors) => errors[0].message.clone(),
    }
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verdicts.txt")
}

#[test]
fn verdicts() {
    let text = std::fs::read_to_string(file()).unwrap();
    let mut blessed = String::new();
    let mut wrong = Vec::new();
    for line in text.lines() {
        let (statement, rest) = line.split_once("  => ").unwrap_or((line, ""));
        let (want, mark) = rest.split_once("  (ours)").map_or((rest, ""), |(w, _)| (w, "  (ours)"));
        let got = verdict(statement);
        if got != want {
            wrong.push(format!("{statement}\n  want {want}\n  got  {got}"));
        }
        blessed += &format!("{statement}  => {got}{mark}\n");
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(file(), blessed).unwrap();
        return;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ptxas_agrees() {
    let Some(tools) = std::env::var_os("OXPTXAS_ORACLES") else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "OXPTXAS_ORACLES is not set");
        eprintln!("oracle tools not installed: skipped ptxas_agrees");
        return;
    };
    let ptxas = Path::new(&tools).join("ptxas");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let text = std::fs::read_to_string(file()).unwrap();
    let mut wrong = Vec::new();
    for (n, line) in text.lines().enumerate().filter(|(_, l)| !l.ends_with("(ours)")) {
        let (statement, want) = line.split_once("  => ").unwrap();
        let path = dir.join(format!("verdict{n}.ptx"));
        std::fs::write(&path, module(statement)).unwrap();
        let run =
            Command::new(&ptxas).args(["-arch", "sm_90", "-o", "/dev/null"]).arg(&path).output().unwrap();
        if run.status.success() != (want == "ok") {
            wrong.push(format!("{line}\n{}", String::from_utf8_lossy(&run.stderr)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
