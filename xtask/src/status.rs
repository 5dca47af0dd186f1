//! The table of `docs/status.md`: instructions, registers, time and memory beside ptxas's, measured in one
//! run.

use crate::score::{Ratios, compile};
use std::path::Path;

/// Prints the table as Markdown: per kernel and target, our instructions and registers over ptxas's, then
/// the geometric means of these and of wall time and memory.
pub fn print(root: &Path, bin: &Path) -> Result<(), String> {
    let cc = crate::compiler(root)?;
    let sms = crate::SMS;
    let columns: Vec<String> = sms.iter().map(|s| format!("sm_{s}")).collect();
    println!("| kernel | {} |\n|---|{}", columns.join(" | "), "---|".repeat(sms.len()));
    let mut ratios = Ratios::default();
    for ptx in crate::kernels(root)? {
        let mut row = format!("| {} |", ptx.file_stem().unwrap_or_default().to_string_lossy());
        for sm in sms {
            let ours = compile(&cc, &ptx, &sm.to_string(), 3);
            let theirs = compile(&bin.join("ptxas"), &ptx, &sm.to_string(), 3);
            match (ours, theirs) {
                (Ok(a), Ok(b)) => {
                    let i = a.instructions as f64 / b.instructions as f64;
                    row.push_str(&format!(" {i:.2} {}/{} |", a.registers, b.registers));
                    ratios.add(&a, &b);
                }
                (Err(_), _) => row.push_str(" – |"),
                (_, Err(e)) => return Err(e),
            }
        }
        println!("{row}");
    }
    println!("\n{}\n{}", Ratios::HEAD, ratios.row("kernels"));
    Ok(())
}
