//! What executables and objects have in common: notes, attributes, call frame information.

use crate::attrs::{Attr, Attrs};
use crate::frames::GENERAL;
use crate::images::ImageKind;
use crate::{Kernel, Mbarrier, MbarrierKind};

/// The name that the tool note gives; the note's second string says which release's output this resembles.
const TOOL: &str = "oxptxas";

/// The variable that the system keeps at 0x40 of the shared memory of every block on sm_110, and its bytes; tensor memory's words
/// stand behind it.
pub(crate) const WAR_VARIABLE: (&str, u64) = ("__nv_reservedSMEM_gb10b_war_var", 0x80);

/// The name of where the memory begins that the system keeps.
pub(crate) const RESERVED_ALIAS: &str = "__nv_reservedSMEM_offset_0_alias";

/// Whether blocks have it.
pub(crate) fn has_war_variable(sm: u8) -> bool {
    sm == 110
}

/// The variable that holds the words of tensor memory.
pub(crate) const PARTITION: &str = "__nv_reservedSMEM_tcgen05_partition";

/// Where the words of tensor memory begin in the shared memory of a block, and their bytes.
pub(crate) fn partition(sm: u8) -> (u64, u64) {
    (0x40 + if has_war_variable(sm) { WAR_VARIABLE.1 } else { 0 }, 0x20)
}

/// What the note says was built: nothing but this compiler says that.
pub(crate) const BRANCH: &str = "oxptxas_0.1.0";

/// The note that names the tool: a table of string offsets, then the strings.
pub(crate) fn tkinfo(tool: Option<&str>, options: &str) -> Vec<u8> {
    let strings =
        ["", tool.unwrap_or(TOOL), "Cuda compilation tools, release 13.0, V13.0.88", BRANCH, options];
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

/// `.nv.compat`. The record that promises that the code can be finalized for other SMs (0x0b) is only for files with the
/// intermediate form that this is done from; nvlink leaves it out in files without, from sm_100 on.
pub(crate) fn compat(sm: u8, accelerated: bool, isa_class: u8, tensor_maps: u8) -> Vec<u8> {
    // Records of a byte, but for the version of the ISA.
    let mut out = vec![2, 9, accelerated.into(), 0, 2, 2, isa_class, 0, 2, 5, 5, 0, 3, 7, 1, 1];
    out.extend_from_slice(&[2, 3, tensor_maps, 0, 2, 6, 1, 0]);
    if sm < 100 {
        out.extend_from_slice(&[4, 0x0b, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    out
}

/// The records of `.nv.info.FUNCTION`, in ptxas's order; of a kernel, `bank_symbol` is that of its constant bank 0.
pub(crate) fn kernel_attributes(
    sm: u8,
    k: &Kernel,
    bank_symbol: Option<u32>,
    externs: &[u32],
    images: &[(u32, ImageKind)],
) -> Vec<u8> {
    let mut a = Attrs::default();
    let modern = sm >= 90;
    let entry = bank_symbol.is_some();
    // ptxas says nothing of parameters where there are none.
    let takes = entry && k.param_bytes > 0;
    let bank = |a: &mut Attrs| {
        let Some(bank_symbol) = bank_symbol else { return };
        let word = u32::from(k.param_bytes) << 16 | u32::from(k.param_base);
        a.words(Attr::ParamCbank, &[bank_symbol, word]);
    };
    if k.blocks_are_clusters {
        a.flag(Attr::BlocksAreClusters);
    }
    match sm {
        75 => a.words(Attr::SwWar, &[1]),
        87 => a.words(Attr::SwWar, &[2]),
        _ => {}
    }
    a.words(Attr::CudaApiVersion, &[130]);
    if matches!(sm, 80..=88) {
        a.flag(Attr::Sw2861232War);
    }
    if !modern && takes {
        bank(&mut a);
        a.half(Attr::CbankParamSize, k.param_bytes);
    }
    let named = |kind: ImageKind| k.images.iter().any(|w| images.get(w.image).is_some_and(|i| i.1 == kind));
    let wide = k.many_params;
    // Of what is pointed at, bits 11:8 the space and 7:0 the alignment.
    let size_and_pointee = |size: u32, pointee: u32| match wide {
        true => (Attr::KparamInfoV2, size | (pointee & 0xff) << 16 | pointee >> 8 << 24),
        false => (Attr::KparamInfo, size << 18 | 0x1f000 | pointee),
    };
    for (i, p) in k.params.iter().enumerate().rev() {
        if let Some((symbol, kind)) = p.image.and_then(|n| images.get(n)) {
            let (attr, word) = size_and_pointee(0, kind.space() << 8);
            a.words(attr, &[*symbol, 0xffff << 16 | i as u32, word]);
            continue;
        }
        let place = (u32::from(p.offset) << 16) | i as u32;
        let pointee = p.pointee.map_or(0, |(space, align)| space.number(sm) << 8 | align.max(1).ilog2());
        let (attr, word) = size_and_pointee(p.size, pointee);
        a.words(attr, &[0, place, word]);
    }
    if k.facts.allocates_tensor_memory {
        // What the driver sets up at the entry: words that tell which columns are taken.
        a.words(Attr::AtEntryFragments, &[if k.facts.tensor_memory_of_pairs { 7 } else { 6 }]);
    }
    if sm == 110 || k.facts.allocates_tensor_memory {
        a.flag(Attr::ReservedSmemUsed);
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
    if k.facts.tensor_memory_of_pairs {
        a.flag(Attr::Tcgen05TwoCtaUsed);
    } else if k.facts.tensor_memory {
        a.flag(Attr::Tcgen05OneCtaUsed);
    }
    if k.facts.wmma {
        a.flag(Attr::WmmaUsed);
    }
    if entry {
        a.half(Attr::MaxregCount, u16::from(k.max_registers.unwrap_or(255)));
    }
    if !modern && named(ImageKind::Surface) {
        a.byte(Attr::BindlessSurfaceBank, 0);
    }
    if !modern && named(ImageKind::Texture) {
        a.byte(Attr::BindlessTextureBank, 0);
    }
    if k.barriers != 0 {
        a.byte(Attr::NumBarriers, k.barriers);
    }
    if !externs.is_empty() {
        a.words(Attr::Externs, externs);
    }
    let facts = &k.facts;
    if k.options.steers {
        a.half(Attr::Sanitize, 0);
    }
    let pairs: Vec<u32> = facts.spills.iter().flat_map(|at| [1, *at]).collect();
    a.list(Attr::Annotations, &pairs, 2);
    if k.options.annotate {
        let text = format!("instr/R-regs: {} instructions, {} R-regs", k.instructions, k.registers);
        a.text(Attr::Annotations, 3, &text);
    }
    a.half(Attr::MercuryIsaVersion, if modern { 0x0101 } else { 0 });
    let words: Vec<u32> = facts.unused_bytes.iter().flat_map(|(at, used)| [*at, *used]).collect();
    a.list(Attr::UnusedLoadByteOffset, &words, 2);
    a.list(Attr::IntWarpWideInstrOffsets, &facts.warp_wide, 1);
    let mask = |r: &Option<u8>| r.map_or(u32::MAX, |r| GENERAL | u32::from(r));
    let masks: Vec<u32> = facts.groups.iter().map(|(_, r)| mask(r)).collect();
    a.list(Attr::CoopGroupMaskRegids, &masks, 1);
    let offsets: Vec<u32> = facts.groups.iter().map(|g| g.0).collect();
    a.list(Attr::CoopGroupInstrOffsets, &offsets, 1);
    if facts.reconfigures {
        a.flag(Attr::RegReconfig);
    }
    if sm >= 100 {
        a.byte(Attr::VrcCtaInitCount, if facts.counts_tensor_memory { 0x80 } else { 0 });
    }
    if let Some(mbarriers) = &facts.mbarriers {
        let words = |m: &Mbarrier| {
            let uniform = m.uniform.unwrap_or(if sm >= 100 { 255 } else { 63 });
            // cuobjdump calls the second byte a stride, of 4.
            let kind = u32::from_le_bytes([m.kind as u8, 1, uniform, 0]);
            [m.offset, m.register.unwrap_or(255).into(), m.immediate as u32, kind]
        };
        let words: Vec<u32> = mbarriers.iter().flat_map(words).collect();
        a.list(Attr::MbarrierInstrOffsets, &words, 4);
        let inits = mbarriers.iter().filter(|m| m.kind == MbarrierKind::Init).count();
        a.half(Attr::NumMbarriers, inits.min(usize::from(u16::MAX)) as u16);
    }
    a.list(Attr::SyscallOffsets, &k.syscalls, 1);
    if entry && k.exits.is_empty() {
        a.words(Attr::ExitInstrOffsets, &[]);
    }
    a.list(Attr::ExitInstrOffsets, &k.exits, 1);
    if let Some(n) = k.maxntid {
        a.words(Attr::MaxThreads, &n);
    }
    if let Some(n) = k.reqntid {
        a.words(Attr::ReqNtid, &n);
    }
    if facts.ctaid_z && !modern {
        a.flag(Attr::CtaidzUsed);
    }
    if k.unbounded {
        a.words(Attr::CrsStackSize, &[u32::MAX]);
    } else if facts.stack_of_barriers {
        a.words(Attr::CrsStackSize, &[0]);
    }
    if modern && takes {
        a.half(Attr::CbankParamSize, k.param_bytes);
        bank(&mut a);
    }
    if modern {
        a.words(Attr::SwWar, &[if sm >= 120 { 0 } else { 8 }]);
    }
    if modern && !k.images.is_empty() {
        a.byte(Attr::BindlessTextureBank, 0);
    }
    if modern && !k.images.is_empty() {
        a.byte(Attr::BindlessSurfaceBank, 0);
    }
    a.0
}
