#!/usr/bin/env bash
# A Rust program with the crate as its dependency: tools/consumers/rust.sh [WORK]
. "$(dirname "$0")/common.sh"
mkdir -p "$work/program/src"
cat >"$work/program/Cargo.toml" <<TOML
[package]
name = "program"
version = "0.0.0"
edition = "2024"

[workspace]

[dependencies]
oxptxas = { path = "$root/crates/oxptxas" }
TOML
cat >"$work/program/src/main.rs" <<'RUST'
use oxptxas::Settings;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (ptx, cubin) = (arguments.next().expect("PTX"), arguments.next().expect("cubin"));
    let settings = Settings::parse(&arguments.collect::<Vec<_>>())?;
    let output = oxptxas::compile(&std::fs::read_to_string(&ptx)?, &ptx, &settings)?;
    for k in &output.kernels {
        eprintln!("{}: {} registers, {} bytes of spills", k.name, k.registers, k.spills.0 + k.spills.1);
    }
    Ok(std::fs::write(cubin, output.cubin)?)
}
RUST
(cd "$work/program" && CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$work/target} cargo build -q)
program=${CARGO_TARGET_DIR:-$work/target}/debug/program
for ptx in "$root"/kernels/{saxpy,calls,sha256,matmul}.ptx; do
    name=$KEPT/$(basename "$ptx" .ptx)
    "$program" "$ptx" "$name.cubin" -arch=sm_90
    cp "$ptx" "$name.ptx"
    echo "-arch=sm_90" >"$name.command"
done
verify_kept 4
