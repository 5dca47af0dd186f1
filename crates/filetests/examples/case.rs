//! Writes the file of a test: `case STAGE KERNEL.ptx [sm_XX] [RUN]` prints what the kernel is in front of the stage (a pass, a
//! phase of the backend, or `lower`) at -O3, and what becomes of it.

use ori::{Manager, Plan};

fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [pass, file, rest @ ..] = &args[..] else { return Err("case PASS KERNEL.ptx [sm_XX] [RUN]".into()) };
    let target = rest.first().map_or("sm_90", String::as_str);
    let target = sass::Target::parse(target).ok_or("no such target")?;
    let run = rest.get(1).map_or("", String::as_str);
    let source = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
    let run = format!("// run{}{run}\n", if run.is_empty() { "" } else { " " });
    if pass == "lower" {
        let case = filetests::Case::parse(&format!("// test lower sm_{}\n{run}{source}", target.sm))?;
        print!("{}", case.with(&case.result()?));
        return Ok(());
    }
    let lines = ptx::LineIndex::new(&source);
    let told = |e: Vec<ptx::Diagnostic>| {
        e.iter().map(|d| d.render("case", file, &source, &lines)).collect::<String>()
    };
    let module = ptx::parse(&source).map_err(told)?;
    let mut func = filetests::lowered(&module, target)?;
    let plan = Plan::new(3);
    let manager = Manager::new(&plan);
    // Before every pass of this name, until one finds something.
    for p in opt::PASSES {
        if p.phase.name() == pass {
            let mut after = func.clone();
            if filetests::apply(pass, &mut after)? && after.to_string() != func.to_string() {
                return write(pass, &run, &mut func);
            }
        }
        if manager.admits_from(p.phase, p.min_level) {
            _ = p.run.apply(&mut func, &ori::Analyses::default());
        }
    }
    if backend::phases::ALL.iter().any(|p| p.name() == pass) {
        return write(pass, &run, &mut func);
    }
    Err(format!("{pass} finds nothing in {file}:\n{func}"))
}

fn write(stage: &str, run: &str, func: &mut ori::Function) -> Result<(), String> {
    ori::edit::renumber(func);
    let case = filetests::Case::parse(&format!("// test {stage}\n{run}{func}"))?;
    print!("{}", case.with(&case.result()?));
    Ok(())
}
