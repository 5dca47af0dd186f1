//! Every kernel's code does what its PTX says on launches that nobody wrote.

use oxptxas::verify::{self, Verdict};
use oxptxas::{Settings, compile};
use sass::Target;
use std::path::Path;

#[test]
fn kernels_agree_on_made_up_launches() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|x| x == "ptx"));
    files.sort();
    let (mut compared, mut wrong) = (0, Vec::new());
    for file in &files {
        let source = std::fs::read_to_string(file).unwrap();
        let module = ptx::parse(&source).unwrap();
        for (arch, opt_level) in [("sm_75", 3), ("sm_90", 0), ("sm_120", 3)] {
            let settings = Settings { opt_level, ..Settings::new(Target::parse(arch).unwrap()) };
            let cubin = compile(&source, "kernel.ptx", &settings).unwrap().cubin;
            for name in verify::kernels(&module) {
                match verify::kernel(&module, &cubin, name, 0..2) {
                    Verdict::Same | Verdict::Close => compared += 1,
                    Verdict::Differs(how) => wrong.push(format!("{name} {arch} -O{opt_level}: {how}")),
                    Verdict::Silent | Verdict::Undefined(_) | Verdict::OutOfScope(_) => {}
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 90, "only {compared} kernels stored anything");
}
