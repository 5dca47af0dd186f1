//! Bulk copies into the shared memory of a cluster: from sm_120 on the driver does those into another block's.

use oxptxas::{Settings, compile};
use sass::memory::MemoryEffects;
use sass::{Opcode, Operand, Reg, RegFile, Target};
use std::collections::BTreeMap;

/// The code of each kernel of the probe, and the functions of the driver's that the file names.
fn compiled(sm: u8, level: u8) -> (BTreeMap<String, Vec<sass::Inst>>, Vec<String>) {
    let probe = concat!(env!("CARGO_MANIFEST_DIR"), "/../contract/probes/cluster_copies.ptx");
    let mut source = std::fs::read_to_string(probe).unwrap();
    if sm < 120 {
        source = source.replace("sm_120", &format!("sm_{sm}"));
    }
    let target = Target::new(sm).unwrap();
    let settings = Settings { opt_level: level, ..Settings::new(target) };
    let output = compile(&source, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render("test")));
    let image = cubin::read::read(&output.cubin).unwrap();
    let decoded = |k: &cubin::read::KernelImage| {
        k.code.iter().enumerate().map(|(i, w)| sass::decode(*w, target, 16 * i as i64).unwrap()).collect()
    };
    let text = String::from_utf8_lossy(&output.cubin).into_owned();
    let named = text.split('\0').filter(|s| s.starts_with("__cuda_syscall_")).map(String::from).collect();
    (image.kernels.iter().map(|(name, k)| (name.clone(), decoded(k))).collect(), named)
}

/// The functions that ptxas 13.0.88 names for the same file (`readelf -s`).
#[test]
fn sm_120_calls_the_functions_that_ptxas_calls() {
    let tiles = (1..=5).map(|d| format!("tensor_{d}d_tile_"));
    let columns = (3..=5).map(|d| format!("tensor_{d}d_im2col_"));
    let kinds = tiles.chain(columns).chain([String::new()]);
    let name = |k: String| ["multicast", "unicast"].map(|to| format!("__cuda_syscall_cp_async_bulk_{k}{to}"));
    let mut expected: Vec<String> = kinds.flat_map(name).collect();
    expected.sort();
    for level in [0, 3] {
        let (kernels, mut named) = compiled(120, level);
        named.sort();
        named.dedup();
        assert_eq!(named, expected, "-O{level}");
        for (name, code) in &kernels {
            let calls = code.iter().filter(|i| i.op == Opcode::CALL).count();
            let copies = code
                .iter()
                .filter(|i| matches!(i.op, Opcode::UBLKCP | Opcode::UTMALDG | Opcode::UBLKRED))
                .count();
            // What names the own block's memory, or comes from there, asks nothing.
            let asks = !name.ends_with("_cta") && !name.ends_with("_s2s");
            assert_eq!((calls, copies), (usize::from(asks), 1), "{name} -O{level}");
        }
    }
}

#[test]
fn earlier_targets_copy_themselves() {
    let (kernels, named) = compiled(100, 3);
    assert_eq!(named, [""; 0]);
    assert!(kernels.values().flatten().all(|i| i.op != Opcode::CALL));
}

/// Where ptxas puts what does not fit into registers: the offsets of pixels, two bytes each, and the policy behind them.
#[test]
fn offsets_and_policy_are_passed_on_the_stack() {
    let (kernels, _) = compiled(120, 3);
    // The words, whether stored one by one or together.
    let stored = |name: &str| {
        let mut at: Vec<i32> = Vec::new();
        let MemoryEffects::Accesses([store]) = Opcode::STL.info().accesses else { unreachable!() };
        for inst in kernels[name].iter().filter(|i| i.op == Opcode::STL) {
            if let Some(Operand::Addr { base: Some(Reg { file: RegFile::R, index: 1 }), offset, .. }) =
                inst.operands.first()
            {
                at.extend((*offset..).step_by(4).take(store.size(&inst.mods).unwrap() as usize / 4));
            }
        }
        at.sort_unstable();
        at
    };
    assert_eq!(stored("im5"), [0, 4, 8, 12]);
    assert_eq!(stored("t5"), [0, 4]);
    assert_eq!(stored("bulk"), [0; 0]);
}
