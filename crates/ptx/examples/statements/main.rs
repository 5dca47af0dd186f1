//! `statements OUT TARGET…`: kernels for the statements of every form of the instruction table that a target has (the kernels
//! of oxptxas's example `coverage`), some to a module: OUT/TARGET/NUMBER.ptx. For mining the reference compiler's code.

#[path = "../../../oxptxas/examples/coverage/image.rs"]
#[allow(dead_code, reason = "threads with handles of their own are verified, not listed")]
mod image;
#[path = "../../../oxptxas/examples/coverage/kernel.rs"]
#[allow(dead_code)]
mod kernel;
#[path = "../forms/operands.rs"]
#[allow(dead_code)]
mod operands;
#[path = "../ptxas/mod.rs"]
#[allow(dead_code)]
mod ptxas;

use operands::{Style, modifiers};
use ptx::isa::{Op, Suffix};
use ptxas::Header;
use std::collections::BTreeSet;

/// Kernels in a module.
const BATCH: usize = 40;

/// The statements of a target.
fn statements(header: Header, sm: u16, suffix: Suffix) -> Vec<String> {
    let mut found = BTreeSet::new();
    for op in Op::ALL {
        for form in op.forms().iter().filter(|f| f.on(sm, suffix) || f.on(sm, Suffix::None)) {
            for mods in modifiers(form) {
                let optional = form.operands.iter().filter(|o| o.optional).count();
                for (style, optional) in [(Style::Typed, 0), (Style::Rich, optional)] {
                    let Some(list) = operands::operands(*op, form, &mods, style, optional) else { continue };
                    let words: String = mods.iter().map(|m| format!(".{}", m.name())).collect();
                    let statement = format!("{}{words} {};", op.name(), list.join(", "));
                    let statement = statement.replace("[tx", "[b64r200").replace("[sf", "[b64r200");
                    if ptxas::ours(header, &statement).is_none() {
                        found.insert(statement);
                    }
                }
            }
        }
    }
    found.into_iter().collect()
}

fn main() {
    let mut args = std::env::args().skip(1);
    let out = std::path::PathBuf::from(args.next().expect("OUT TARGET…"));
    for target in args {
        let digits = target.trim_start_matches("sm_").trim_end_matches('a');
        let sm: u16 = digits.parse().expect("a target like sm_90a");
        let suffix = if target.ends_with('a') { Suffix::Arch } else { Suffix::None };
        let list = statements(Header::new((9, 0), sm, suffix), sm, suffix);
        std::fs::create_dir_all(out.join(&target)).expect("a folder to write to");
        for (number, batch) in list.chunks(BATCH).enumerate() {
            let mut text = String::new();
            for (k, statement) in batch.iter().enumerate() {
                let module = kernel::module(statement, &target);
                let (head, body) = module.split_once(".visible .entry k(").expect("a kernel");
                if k == 0 {
                    text.push_str(head);
                }
                text += &format!("// {statement}\n.visible .entry statement{k}({body}");
            }
            std::fs::write(out.join(&target).join(format!("{number:04}.ptx")), text)
                .expect("a file to write");
        }
        println!("{target}: {} statements", list.len());
    }
}
