//! What is written is read back.

use cubin::object::{Binding, Fill, Reloc};
use cubin::{Cubin, Global, Kernel, Param};

fn address(offset: u64, addend: i64) -> Reloc {
    Reloc { offset, fill: Fill::Generic, symbol: "zero".into(), addend }
}

fn sample(sm: u8) -> Cubin {
    Cubin {
        sm,
        accelerated: false,
        isa_class: 1,
        tensor_maps: 0,
        ptx_sm: 75,
        options: format!("-arch sm_{sm}"),
        tool: None,
        kernels: vec![Kernel {
            name: "k".into(),
            code: (0..8).map(|i| 0x0000_0fc0_0000_0000_0000_0000_0000_7918 | i << 40).collect(),
            registers: 10,
            frame_bytes: 16,
            barriers: 1,
            shared_bytes: 64,
            shared_align: 16,
            param_base: 0x160,
            param_bytes: 12,
            params: vec![
                Param { offset: 0, size: 8, pointee: None, image: None },
                Param { offset: 8, size: 4, pointee: None, image: None },
            ],
            exits: vec![0x10],
            literals: vec![1, 2, 3, 4, 5, 6, 7, 8],
            ..Kernel::default()
        }],
        functions: Vec::new(),
        globals: vec![
            Global { name: "zero".into(), size: 12, align: 4, ..Global::default() },
            Global {
                name: "pointer".into(),
                size: 8,
                align: 8,
                init: Some(vec![0; 8]),
                relocs: vec![address(0, 4)],
                binding: Binding::Global,
                managed: false,
            },
        ],
        constant_align: 4,
        constants_first: true,
        constants: [vec![0; 16], vec![9; 4]].concat(),
        constant_relocs: vec![address(0, 0), address(8, 8)],
        constant_symbols: vec![("table".into(), 4, 16, Binding::Weak)],
        driver_functions: vec![],
        addresses: vec![("zero".into(), 0), ("pointer".into(), 0)],
        images: Vec::new(),
        independent: false,
        asks_types: false,
        lines: None,
    }
}

#[test]
fn read_gives_what_was_written() {
    for sm in [75, 80, 89, 90, 100, 121] {
        let c = sample(sm);
        let image = cubin::read::read(&cubin::write::write(&c).unwrap()).unwrap();
        assert_eq!(image.sm, sm);
        let k = &image.kernels["k"];
        assert_eq!(k.code, c.kernels[0].code);
        assert_eq!((k.registers, k.stack_bytes, k.shared_bytes), (10, 16, 64));
        assert_eq!(k.params, (0x160, 12));
        assert_eq!(k.constant2, c.kernels[0].literals);
        assert_eq!(k.constant0.len(), 0x160 + 12);
        assert_eq!(image.constant3, c.constants);
        assert_eq!(image.globals.len(), 2);
        let places: Vec<_> =
            image.relocs.iter().map(|r| (r.place.as_str(), r.offset, r.symbol.as_str(), r.addend)).collect();
        assert!(places.contains(&(".nv.constant4", 0, "zero", 0)), "{places:?}");
        assert!(places.contains(&(".nv.constant4", 8, "pointer", 0)));
        assert!(places.contains(&("pointer", 0, "zero", 4)));
        assert!(places.contains(&(".nv.constant3", 0, "zero", 0)));
        assert!(places.contains(&(".nv.constant3", 8, "zero", 8)));
    }
}

#[test]
fn garbage_is_refused() {
    assert!(cubin::read::read(b"").is_err());
    assert!(cubin::read::read(b"\x7fELF garbage").is_err());
    let good = cubin::write::write(&sample(90)).unwrap();
    for end in (0..good.len()).step_by(50) {
        let _ = cubin::read::read(&good[..end]);
    }
    // Sizes and places far beyond the file.
    for large in [u64::MAX, u64::from(u32::MAX) << 8, 1 << 40] {
        for at in (0..good.len() - 8).step_by(8) {
            let mut bad = good.clone();
            bad[at..at + 8].copy_from_slice(&large.to_le_bytes());
            let _ = cubin::read::read(&bad);
            let _ = cubin::read::code_ranges(&bad);
        }
    }
}

#[test]
fn files_of_cuda_12_have_their_sm_elsewhere() {
    let mut old = cubin::write::write(&sample(80)).unwrap();
    old[7..9].copy_from_slice(&[0x33, 7]);
    old[48..52].copy_from_slice(&0x0050_0550u32.to_le_bytes());
    assert_eq!(cubin::read::read(&old).unwrap().sm, 80);
}

/// Each kernel has three sections or more, and their numbers have 16 bits.
#[test]
fn too_many_kernels_are_refused() {
    let kernel = |n: usize| Kernel { name: format!("k{n}"), code: vec![0; 8], ..Kernel::default() };
    let file = |kernels| Cubin { sm: 75, kernels, ..Cubin::default() };
    assert!(cubin::write::write(&file((0..21_000).map(kernel).collect())).is_ok());
    let refused = cubin::write::write(&file((0..23_000).map(kernel).collect()));
    assert!(refused.is_err_and(|e| e.to_string().contains("23000 kernels")));
}

/// ptxas's relocatable files have variables of shared memory in a section of a type of their own, which has a size but no
/// bytes: it may be larger than the file.
#[test]
fn shared_memory_of_relocatable_files_has_no_bytes() {
    let mut bytes = cubin::write::write(&sample(90)).unwrap();
    let number = |bytes: &[u8], at: usize, size: usize| {
        (0..size).fold(0usize, |n, i| n | usize::from(bytes[at + i]) << (8 * i))
    };
    let (sections, count) = (number(&bytes, 0x28, 8), number(&bytes, 0x3c, 2));
    let shared = (0..count)
        .map(|i| sections + 0x40 * i)
        .find(|at| number(&bytes, at + 4, 4) == 8 && number(&bytes, at + 0x20, 8) == 64)
        .expect("shared memory of the kernel");
    bytes[shared + 4..shared + 8].copy_from_slice(&0x7000_000au32.to_le_bytes());
    bytes[shared + 0x20..shared + 0x28].copy_from_slice(&40_000u64.to_le_bytes());
    assert!(bytes.len() < 20_000, "two of them are smaller than the section");
    assert_eq!(cubin::read::read(&bytes).unwrap().kernels["k"].shared_bytes, 40_000);
}

/// Functions with sections of their own are executed behind the kernels that come to them, by name or by addresses in data, and have
/// their lines there.
#[test]
fn functions_are_behind_the_kernels_that_call_them() {
    use cubin::lines::{Lines, Row, Sequence};
    use cubin::{Links, object};
    for sm in [75, 90] {
        let mut file = sample(sm);
        let own = |name: &str, words: usize, calls: &[&str]| Kernel {
            name: name.into(),
            code: vec![file.kernels[0].code[0]; words],
            registers: 24,
            links: Links {
                relocs: (0..)
                    .zip(calls)
                    .map(|(n, to)| object::Reloc {
                        offset: 16 * n,
                        fill: Fill::Call,
                        symbol: (*to).into(),
                        addend: 0,
                    })
                    .collect(),
                calls: calls.iter().map(|c| c.to_string()).collect(),
                ..Links::default()
            },
            ..Kernel::default()
        };
        file.functions = vec![
            own("f", 8, &["g"]),
            own("g", 16, &["g"]),
            own("h", 8, &[]),
            own("alone", 8, &["f"]),
            own("far", 8, &[]),
        ];
        file.kernels[0].links = own("k", 8, &["f"]).links;
        // In data, which every kernel may read.
        file.globals[1].relocs[0] =
            object::Reloc { offset: 0, fill: Fill::Function, symbol: "far".into(), addend: 0 };
        let row = |line| vec![Row { address: 0, file: 0, line, inlined: None }];
        let sequence = |name: &str, line| Sequence { function: name.into(), size: 128, rows: row(line) };
        let ptx = vec![sequence("k", 1), sequence("f", 2), sequence("g", 3), sequence("far", 4)];
        file.lines = Some(Lines { ptx, ..Lines::default() });
        let bytes = cubin::write::write(&file).unwrap();
        let image = cubin::read::read(&bytes).unwrap();
        assert_eq!(image.behind("k"), [("f", 128), ("far", 256), ("g", 384)], "sm_{sm}");
        assert_eq!(image.behind("alone"), [("f", 128), ("far", 256), ("g", 384)]);
        assert!(image.kernels["k"].entry && !image.kernels["f"].entry);
        let lines = cubin::read_lines::ptx_lines(&bytes).unwrap();
        assert_eq!(lines["k"], [(0, 1), (128, 2), (256, 4), (384, 3)], "sm_{sm}");
        assert_eq!(lines["f"], [(0, 2)]);
    }
}
