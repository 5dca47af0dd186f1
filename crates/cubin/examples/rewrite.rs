//! Reads a cubin and writes it again with our writer, to see what the vendor's tools say of the format:
//! `cargo run -p oxptxas-cubin --example rewrite -- IN OUT`.

use cubin::{Cubin, Global, Kernel};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let image = cubin::read::read(&std::fs::read(&args[1])?)?;
    let kernels = image
        .kernels
        .iter()
        .map(|(name, k)| Kernel {
            name: name.clone(),
            code: k.code.clone(),
            registers: k.registers as u8,
            frame_bytes: k.stack_bytes,
            barriers: 1,
            shared_bytes: k.shared_bytes,
            shared_align: if k.shared_bytes == 0 { 0 } else { 16 },
            param_base: k.params.0,
            param_bytes: k.params.1,
            literals: k.constant2.clone(),
            exits: vec![0x10],
            ..Kernel::default()
        })
        .collect();
    let globals = image
        .globals
        .iter()
        .map(|g| Global {
            name: g.name.clone(),
            size: g.bytes.len() as u64,
            align: 8,
            init: Some(g.bytes.clone()),
            ..Global::default()
        })
        .collect();
    let slots = image.relocs.iter().filter(|r| r.place == ".nv.constant4");
    let addresses = slots.map(|r| (r.symbol.clone(), r.addend)).collect();
    let constants = image.relocs.iter().filter(|r| r.place == ".nv.constant3");
    let constant_relocs = constants
        .map(|r| cubin::object::Reloc {
            offset: r.offset,
            fill: cubin::object::Fill::Generic,
            symbol: r.symbol.clone(),
            addend: r.addend,
        })
        .collect();
    let cubin = Cubin {
        sm: image.sm,
        isa_class: 1,
        tensor_maps: 0,
        constant_align: 8,
        ptx_sm: 75,
        options: "rewrite".into(),
        kernels,
        globals,
        constants: image.constant3.clone(),
        constant_relocs,
        constant_symbols: Vec::new(),
        addresses,
        ..Cubin::default()
    };
    std::fs::write(&args[2], cubin::write::write(&cubin)?)?;
    Ok(())
}
