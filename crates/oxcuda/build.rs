//! From the table of functions: the look-up table, and a function of its own for everything that is not built.

use std::fmt::Write as _;
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=functions.txt");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    let table = std::fs::read_to_string("functions.txt").expect("the table is there");
    let (mut rows, mut missing) = (String::new(), String::new());
    for line in table.lines().filter(|l| !l.starts_with('#') && !l.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, version, symbol, state] = words[..] else { panic!("a row of four words: {line}") };
        let thread = symbol.ends_with("_ptsz") || symbol.ends_with("_ptds");
        let _ = writeln!(
            rows,
            "    Row::new(\"{name}\", {version}, {thread}, \"{symbol}\", {symbol} as *const ()),"
        );
        match state {
            "built" => {}
            "missing" => {
                let _ = writeln!(missing, "missing!({symbol});");
            }
            _ => panic!("built or missing: {line}"),
        }
    }
    let out = std::env::var("OUT_DIR").expect("cargo says so");
    let write =
        |file: &str, text: String| std::fs::write(Path::new(&out).join(file), text).expect("is writable");
    write("rows.rs", format!("[\n{rows}]\n"));
    write("missing.rs", missing);
}
