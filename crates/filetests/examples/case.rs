//! Writes the file of a test: `case PASS KERNEL.ptx [sm_XX] [RUN]` prints what the kernel is in front of the pass, among the
//! passes of -O3, and what becomes of it.

use ori::{Manager, Plan};

fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [pass, file, rest @ ..] = &args[..] else { return Err("case PASS KERNEL.ptx [sm_XX] [RUN]".into()) };
    let target = rest.first().map_or("sm_90", String::as_str);
    let target = sass::Target::parse(target).ok_or("no such target")?;
    let run = rest.get(1).map_or("", String::as_str);
    let source = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
    let lines = ptx::LineIndex::new(&source);
    let told = |e: Vec<ptx::Diagnostic>| {
        e.iter().map(|d| d.render("case", file, &source, &lines)).collect::<String>()
    };
    let module = ptx::parse(&source).map_err(told)?;
    let layout = lower::ModuleLayout::new(&module, target).map_err(told)?;
    let options = lower::Options { opt_level: 3, ..lower::Options::new(target) };
    let (id, _) = module.funcs.iter().find(|(_, f)| f.entry).ok_or("no kernel")?;
    let mut func = lower::lower_function(&module, id, &layout, &options).map_err(told)?;
    let plan = Plan::new(3);
    let manager = Manager::new(&plan);
    // Before every pass of this name, until one finds something.
    for p in opt::PASSES {
        if p.phase.name() == pass {
            let mut after = func.clone();
            if filetests::apply(pass, &mut after)? && after.to_string() != func.to_string() {
                ori::edit::renumber(&mut func);
                let text =
                    format!("// test {pass}\n// run{}{run}\n{func}", if run.is_empty() { "" } else { " " });
                let case = filetests::Case::parse(&text)?;
                print!("{}", case.with(&case.result()?));
                return Ok(());
            }
        }
        if manager.admits_from(p.phase, p.min_level) {
            _ = p.run.apply(&mut func, &ori::Analyses::default());
        }
    }
    Err(format!("{pass} finds nothing in {file}:\n{func}"))
}
