//! Prints the Ori of every kernel of a PTX file: `cargo run -p oxptxas-lower --example lower -- FILE.ptx [sm_90]`.

use lower::{ModuleLayout, Options, lower_function};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(file) = args.first() else {
        eprintln!("lower FILE.ptx [sm_XX]");
        return ExitCode::from(2);
    };
    let target = args.get(1).map_or("sm_90", String::as_str);
    let Some(target) = sass::Target::parse(target) else {
        eprintln!("unknown target {target}");
        return ExitCode::from(2);
    };
    let source = match std::fs::read_to_string(file) {
        Ok(s) => s,
        Err(e) => {
            eprintln!("{file}: {e}");
            return ExitCode::from(2);
        }
    };
    let lines = ptx::LineIndex::new(&source);
    let show = |errors: Vec<ptx::Diagnostic>| {
        for e in errors {
            eprint!("{}", e.render("lower", file, &source, &lines));
        }
    };
    let module = match ptx::parse(&source) {
        Ok(m) => m,
        Err(e) => {
            show(e);
            return ExitCode::FAILURE;
        }
    };
    let layout = match ModuleLayout::new(&module, target) {
        Ok(l) => l,
        Err(e) => {
            show(e);
            return ExitCode::FAILURE;
        }
    };
    let opts = Options { lines: Some(&lines), ..Options::new(target) };
    let mut status = ExitCode::SUCCESS;
    for (id, func) in module.funcs.iter() {
        if func.body.is_none() {
            continue;
        }
        match lower_function(&module, id, &layout, &opts) {
            Ok(f) => {
                print!("{f}");
                if let Err(e) = ori::verify::verify(&f) {
                    eprintln!("{}: {}", func.name, e.join("\n"));
                    status = ExitCode::FAILURE;
                }
            }
            Err(e) => {
                show(e);
                status = ExitCode::FAILURE;
            }
        }
    }
    status
}
