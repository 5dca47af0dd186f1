//! `print FILE`: parses a PTX file and prints it in canonical form.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("usage: print FILE")?;
    let source = std::fs::read_to_string(&file)?;
    match ptx::parse(&source) {
        Ok(module) => print!("{module}"),
        Err(errors) => {
            let lines = ptx::LineIndex::new(&source);
            errors.iter().for_each(|e| eprint!("{}", e.render("print", &file, &source, &lines)));
            std::process::exit(1);
        }
    }
    Ok(())
}
