//! The name that programs which are linked with the library look for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liboxptxas.so.0");
}
