//! Prints what the backend makes of a PTX file: `backend FILE.ptx sm_90 3 [legalize|converge|allocate|machine]`.

use backend::{Error, Options, convergence, legalize, machine, regalloc};
use lower::{ModuleLayout, lower_function};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, file, target, level, rest @ ..] = args.as_slice() else {
        return Err("usage: backend FILE.ptx TARGET LEVEL [legalize|converge|allocate|machine]".into());
    };
    let source = std::fs::read_to_string(file)?;
    let lines = ptx::LineIndex::new(&source);
    let message = |e: Vec<ptx::Diagnostic>| e[0].message.clone();
    let module = ptx::parse(&source).map_err(message)?;
    let target = sass::Target::parse(target).ok_or("unknown target")?;
    let level = level.parse()?;
    let opts = lower::Options { lines: Some(&lines), opt_level: level, ..lower::Options::new(target) };
    let layout = ModuleLayout::new(&module, target).map_err(message)?;
    let stage = rest.first().map_or("machine", String::as_str);
    for (id, _) in module.funcs.iter().filter(|(_, f)| f.entry && f.body.is_some()) {
        let mut func = lower_function(&module, id, &layout, &opts).map_err(message)?;
        opt::optimize(&mut func, level, |_, _| {})?;
        legalize::run(&mut func)?;
        if stage == "legalize" {
            print!("{func}");
            continue;
        }
        convergence::run(&mut func);
        if stage == "converge" {
            print!("{func}");
            continue;
        }
        let limits = regalloc::Limits::of(&func);
        let stats = regalloc::allocate(&mut func, &limits).map_err(|e| Error::new(e.to_string()))?;
        if stage == "allocate" {
            print!("{func}");
            continue;
        }
        let mut machine = machine::lower(&func, stats.frame_bytes)?;
        backend::schedule_and_cover(&mut machine, &Options { opt_level: level, serial: false });
        println!("{}:\n{machine}", func.name);
    }
    Ok(())
}
