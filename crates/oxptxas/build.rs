//! Links the programs at a fixed address where the linker is known to take the word. The tables of instructions are full of
//! pointers; in a position-independent program the loader writes each of them anew at every start (29,000, half of the time that a
//! small kernel's compilation takes before its first line is read).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |key: &str| std::env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    // A program that brings its C library along is told so by rustc itself, and needs no loader (`cargo xtask release` builds one).
    let whole = target("FEATURE").split(',').any(|f| f == "crt-static");
    if target("OS") == "linux" && target("ENV") == "gnu" && !whole {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
