//! What executables and objects have in common: notes, attributes, call frame information.

use crate::Kernel;
use crate::attrs::{Attr, Attrs};

/// The name that the tool note gives; the note's second string says which release's output this resembles.
const TOOL: &str = "oxptxas";

/// The note that names the tool: a table of string offsets, then the strings.
pub(crate) fn tkinfo(options: &str) -> Vec<u8> {
    let strings = ["", TOOL, "Cuda compilation tools, release 13.0, V13.0.88", "oxptxas_0.1.0", options];
    let mut text = Vec::new();
    let mut offsets = Vec::new();
    for s in strings {
        offsets.push(text.len() as u32);
        text.extend_from_slice(s.as_bytes());
        text.push(0);
    }
    let mut desc = Vec::new();
    for word in [2u32].iter().chain(&offsets) {
        desc.extend_from_slice(&word.to_le_bytes());
    }
    desc.extend_from_slice(&text);
    note(2000, desc)
}

/// The note that says what the PTX was made for.
pub(crate) fn cuinfo(ptx_sm: u8) -> Vec<u8> {
    let mut desc = 2u16.to_le_bytes().to_vec();
    desc.extend_from_slice(&u16::from(ptx_sm).to_le_bytes());
    desc.extend_from_slice(&130u32.to_le_bytes());
    note(1000, desc)
}

fn note(ty: u32, mut desc: Vec<u8>) -> Vec<u8> {
    desc.resize(desc.len().next_multiple_of(4), 0);
    let mut out = 12u32.to_le_bytes().to_vec();
    out.extend_from_slice(&(desc.len() as u32).to_le_bytes());
    out.extend_from_slice(&ty.to_le_bytes());
    out.extend_from_slice(b"NVIDIA Corp\0");
    out.extend_from_slice(&desc);
    out
}

/// Bytes of the common information entry and of a frame description entry.
const CIE_SIZE: usize = 0x30;
const FDE_SIZE: usize = 0x38;

/// Offset of the code address in the frame description of kernel `i`.
pub(crate) fn fde_location(i: usize) -> u64 {
    (CIE_SIZE + i * FDE_SIZE + 20) as u64
}

/// DW_CFA_def_cfa of R1's register number, offset 0.
const DEF_CFA_R1: [u8; 6] = [0x0c, 0x81, 0x80, 0x80, 0x28, 0x00];

/// A common information entry in 64-bit DWARF.
fn common_entry(out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&u32::MAX.to_le_bytes());
    out.extend_from_slice(&(CIE_SIZE as u64 - 12).to_le_bytes());
    out.extend_from_slice(&u64::MAX.to_le_bytes());
    // Version 3, no augmentation, code alignment 4, data alignment -4, return address in no register.
    out.extend_from_slice(&[3, 0, 4, 0x7c, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    out.extend_from_slice(&DEF_CFA_R1);
    // DW_CFA_same_value of RZ and of R1.
    out.extend_from_slice(&[0x08, 0xff, 0x81, 0x80, 0x28, 0x08, 0x81, 0x80, 0x80, 0x28]);
    out.resize(start + CIE_SIZE, 0);
}

/// A frame description entry: the frame address is R1 plus 0 throughout.
fn frame_entry(out: &mut Vec<u8>, common: u64, k: &Kernel) {
    let start = out.len();
    out.extend_from_slice(&u32::MAX.to_le_bytes());
    out.extend_from_slice(&(FDE_SIZE as u64 - 12).to_le_bytes());
    out.extend_from_slice(&common.to_le_bytes());
    out.extend_from_slice(&0u64.to_le_bytes());
    out.extend_from_slice(&(16 * k.code.len() as u64).to_le_bytes());
    // DW_CFA_advance_loc4 over the first instruction, which loads R1.
    out.extend_from_slice(&[0x04, 4, 0, 0, 0]);
    out.extend_from_slice(&DEF_CFA_R1);
    out.resize(start + FDE_SIZE, 0);
}

/// Call frame information: one common entry, then an entry per kernel.
pub(crate) fn debug_frame(kernels: &[Kernel]) -> Vec<u8> {
    let mut out = Vec::new();
    common_entry(&mut out);
    for (i, k) in kernels.iter().enumerate() {
        frame_entry(&mut out, 0, k);
        debug_assert_eq!(out.len() as u64, fde_location(i + 1) - 20);
    }
    out
}

/// Call frame information of an object, where each function has a common entry of its own; and for each the offset
/// of that entry and of the fields that hold its offset, the address of the code and its size.
pub(crate) fn debug_frames<'k>(kernels: impl Iterator<Item = &'k Kernel>) -> (Vec<u8>, Vec<[u64; 4]>) {
    let (mut out, mut places) = (Vec::new(), Vec::new());
    for k in kernels {
        let common = out.len() as u64;
        common_entry(&mut out);
        let entry = out.len() as u64;
        frame_entry(&mut out, common, k);
        places.push([common, entry + 12, entry + 20, entry + 28]);
    }
    (out, places)
}

/// `.nv.compat`: constant but for the first byte of its last record, whose meaning is unknown.
pub(crate) fn compat(sm: u8) -> Vec<u8> {
    let mut out = vec![2, 9, 0, 0, 2, 2, 1, 0, 2, 5, 5, 0, 3, 7, 1, 1, 2, 3, 0, 0, 2, 6, 1, 0, 4, 0x0b, 8, 0];
    let last = match sm {
        100 => 9,
        120 => 0x50,
        _ => 0,
    };
    out.extend_from_slice(&[last, 0, 0, 0, 0, 0, 0, 0]);
    out
}

/// The records of `.nv.info.FUNCTION`, in ptxas's order; of a kernel, `bank_symbol` is that of its constant bank 0.
pub(crate) fn kernel_attributes(sm: u8, k: &Kernel, bank_symbol: Option<u32>, externs: &[u32]) -> Vec<u8> {
    let mut a = Attrs::default();
    let modern = sm >= 90;
    let entry = bank_symbol.is_some();
    let bank = |a: &mut Attrs| {
        let Some(bank_symbol) = bank_symbol else { return };
        let word = u32::from(k.param_bytes) << 16 | u32::from(k.param_base);
        a.words(Attr::ParamCbank, &[bank_symbol, word]);
    };
    match sm {
        75 => a.words(Attr::SwWar, &[1]),
        87 => a.words(Attr::SwWar, &[2]),
        _ => {}
    }
    a.words(Attr::CudaApiVersion, &[130]);
    if matches!(sm, 80..=88) {
        a.flag(Attr::Sw2393858War);
    }
    if !modern && entry {
        bank(&mut a);
        a.half(Attr::CbankParamSize, k.param_bytes);
    }
    for (i, (offset, size)) in k.params.iter().enumerate().rev() {
        let place = (u32::from(*offset) << 16) | i as u32;
        a.words(Attr::KparamInfo, &[0, place, size << 18 | 0x1f000]);
    }
    if sm == 110 {
        a.flag(Attr::Flag41);
    }
    if let Some(n) = k.max_cluster_rank {
        a.words(Attr::MaxClusterRank, &[n]);
    }
    if k.explicit_cluster {
        a.flag(Attr::ExplicitCluster);
    }
    if let Some(n) = k.cluster {
        a.words(Attr::CtaPerCluster, &n);
    }
    if modern {
        a.half(Attr::SparseMmaMask, 0);
    }
    if entry {
        a.half(Attr::MaxregCount, u16::from(k.max_registers.unwrap_or(255)));
    }
    if k.barriers != 0 {
        a.byte(Attr::NumBarriers, k.barriers);
    }
    if !externs.is_empty() {
        a.words(Attr::Externs, externs);
    }
    a.half(Attr::MercuryIsaVersion, if modern { 0x0101 } else { 0 });
    if sm >= 100 {
        a.byte(Attr::Flag4a, 0);
    }
    if !k.syscalls.is_empty() {
        a.words(Attr::SyscallOffsets, &k.syscalls);
    }
    if entry || !k.exits.is_empty() {
        a.words(Attr::ExitInstrOffsets, &k.exits);
    }
    if let Some(n) = k.maxntid {
        a.words(Attr::MaxThreads, &n);
    }
    if let Some(n) = k.reqntid {
        a.words(Attr::ReqNtid, &n);
    }
    let calls = !k.functions.is_empty() || !k.externs.is_empty();
    if k.convergence || k.barriers != 0 || calls {
        a.words(Attr::CrsStackSize, &[0]);
    }
    if modern && entry {
        a.half(Attr::CbankParamSize, k.param_bytes);
        bank(&mut a);
    }
    if modern {
        a.words(Attr::SwWar, &[if sm >= 120 { 0 } else { 8 }]);
    }
    a.0
}
