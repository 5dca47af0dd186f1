//! Accesses of memory that PTX keeps in order stay in it: reduced cases of orders that were wrong, and kernels/.

use oxptxas::{Settings, compile};
use sass::{Opcode, Target};
use sim::order::{self, Options, Why};
use std::path::Path;

fn cubin(source: &str, arch: &str, opt_level: u8) -> Vec<u8> {
    let target = Target::parse(arch).unwrap();
    let settings = Settings { opt_level, line_info: Some(true), ..Settings::new(target) };
    compile(source, "k.ptx", &settings).unwrap().cubin
}

/// Checks our code on these targets and gives what the checker counted.
fn in_order(source: &str, archs: &[&str]) -> order::Stats {
    let module = ptx::parse(source).unwrap();
    let mut stats = order::Stats::default();
    for arch in archs {
        for level in [0, 1, 3] {
            let bytes = cubin(source, arch, level);
            for k in order::check_cubin(&module, source, &bytes, Options::default()).unwrap() {
                assert!(k.violations.is_empty(), "{arch} -O{level} {}: {}", k.name, k.violations[0]);
                stats += k.stats;
            }
        }
    }
    stats
}

const ALL: [&str; 4] = ["sm_75", "sm_80", "sm_90", "sm_120"];

fn kernel(body: &str) -> String {
    format!(
        ".version 8.8
.target {}
.address_size 64
.visible .entry k(.param .u64 p)
{{
\t.reg .b32 %r<40>; .reg .b64 %d<8>;
\t.shared .align 16 .b8 s[4096];
\tld.param.u64 %d1, [p];
\tmov.u32 %r1, %tid.x;
\tmul.wide.u32 %d2, %r1, 128;
\tadd.s64 %d3, %d1, %d2;
\tshl.b32 %r2, %r1, 4;
\tmov.u32 %r3, s;
\tadd.u32 %r4, %r3, %r2;
\tmad.lo.u32 %r9, %r1, %r1, %r1;
{body}
\tret;
}}
",
        if body.contains("v8") { "sm_100" } else { "sm_75" }
    )
}

/// A reduction in shared memory whose steps only `bar.warp.sync` keeps apart.
const WARP_SYNC: &str = "
\tst.shared.u32 [%r4], %r9;
\tbar.warp.sync 0xffffffff;
\tld.shared.u32 %r10, [%r4+256];
\tbar.warp.sync 0xffffffff;
\tadd.u32 %r10, %r10, %r9;
\tst.shared.u32 [%r4], %r10;
\tbar.warp.sync 0xffffffff;
\tld.shared.u32 %r11, [%r4+128];
\tst.global.u32 [%d3], %r11;";

/// A step of a radix sort: volatile accesses with weak ones between.
const VOLATILE: &str = "
\tst.volatile.shared.u32 [%r4], %r9;
\tst.volatile.shared.u32 [%r4+512], %r1;
\tld.volatile.shared.u32 %r10, [%r4+500];
\tadd.u32 %r10, %r10, %r9;
\tst.volatile.shared.u32 [%r4+512], %r10;
\tld.volatile.shared.u32 %r11, [%r4+496];
\tadd.u32 %r11, %r11, %r10;
\tst.volatile.shared.u32 [%r4+512], %r11;
\tld.volatile.shared.u32 %r12, [%r3];
\tld.volatile.shared.u32 %r13, [%r3+64];
\tadd.u32 %r12, %r12, %r13;
\tst.global.u32 [%d3], %r12;";

const ACQUIRE: &str = "
\tld.acquire.cta.shared.u32 %r10, [%r4];
\tadd.u32 %r10, %r10, 7;
\tld.global.u32 %r11, [%d3];
\tld.acquire.gpu.shared.u32 %r12, [%r4+4];
\tld.global.u32 %r13, [%d3+4];
\tadd.u32 %r10, %r10, %r11;
\tadd.u32 %r12, %r12, %r13;
\tst.shared.u32 [%r4+12], %r12;
\tst.release.cta.shared.u32 [%r4+8], %r10;
\tld.relaxed.cta.shared.u32 %r14, [%r4+8];
\tst.global.u32 [%d3+8], %r14;";

const WIDE: &str = "
\tst.global.u32 [%d3+16], %r9;
\tld.global.v8.b32 {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}, [%d3];
\tadd.u32 %r10, %r10, %r14;
\tst.global.v8.b32 [%d3+32], {%r11, %r11, %r12, %r13, %r14, %r15, %r16, %r17};
\tld.global.u32 %r20, [%d3+56];
\tadd.u32 %r20, %r20, %r10;
\tst.global.u32 [%d3+64], %r20;";

const MATRICES: &str = "
\tst.shared.u32 [%r4+8], %r9;
\tldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r4];
\tadd.u32 %r10, %r10, %r11;
\tst.shared.u32 [%r4+12], %r10;
\tldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r14}, [%r4];
\tst.global.u32 [%d3], %r14;";

#[test]
fn what_warp_sync_keeps_apart() {
    in_order(&kernel(WARP_SYNC), &ALL);
}

#[test]
fn volatile_accesses() {
    in_order(&kernel(VOLATILE), &ALL);
}

#[test]
fn acquisitions_of_shared_memory() {
    in_order(&kernel(ACQUIRE), &ALL);
}

#[test]
fn accesses_of_256_bits() {
    in_order(&kernel(WIDE), &["sm_100", "sm_120"]);
}

#[test]
fn matrices_in_shared_memory() {
    in_order(&kernel(MATRICES), &ALL);
}

/// Where the lanes are together ptxas leaves a NOP in the place of WARPSYNC, and so do we.
#[test]
fn warp_sync_leaves_a_nop() {
    let bytes = cubin(&kernel(WARP_SYNC), "sm_90", 3);
    let (_, code, _) = order::load(&bytes).unwrap().remove(0);
    let ops: Vec<Opcode> = code.insts.iter().flatten().map(|i| i.op).collect();
    let end = ops.iter().rposition(|o| *o == Opcode::EXIT).unwrap();
    assert!(!ops.contains(&Opcode::WARPSYNC));
    assert_eq!(ops[..end].iter().filter(|o| **o == Opcode::NOP).count(), 3);
}

/// What the checker says when two accesses change places.
fn exchanged(body: &str, arch: &str, first: Opcode, second: Opcode) -> Vec<Why> {
    let found = checked(body, arch, first, second, Options::default());
    assert_eq!(found.stats.unchecked, 0);
    found.violations.into_iter().map(|v| v.why).collect()
}

fn checked(body: &str, arch: &str, first: Opcode, second: Opcode, options: Options) -> order::Kernel {
    let source = kernel(body);
    let module = ptx::parse(&source).unwrap();
    let lines = ptx::LineIndex::new(&source);
    let (name, mut code, functions) = order::load(&cubin(&source, arch, 3)).unwrap().remove(0);
    let at = |op, from: usize| {
        code.insts[from..].iter().position(|i| i.as_ref().is_some_and(|i| i.op == op)).unwrap() + from
    };
    let i = at(first, 0);
    let j = at(second, i + 1);
    code.insts.swap(i, j);
    code.lines.swap(i, j);
    order::check_kernel(&module, &lines, &name, &code, &functions, options)
}

#[test]
fn the_checker_finds_exchanged_accesses() {
    let across = exchanged(WARP_SYNC, "sm_90", Opcode::STS, Opcode::LDS);
    assert!(across.iter().any(|w| matches!(w, Why::Fence(_))), "{across:?}");
    assert!(exchanged(VOLATILE, "sm_90", Opcode::STS, Opcode::LDS).contains(&Why::Volatile));
    assert!(exchanged(ACQUIRE, "sm_120", Opcode::LDS, Opcode::LDG).contains(&Why::Acquire));
    assert!(exchanged(WIDE, "sm_120", Opcode::STG, Opcode::LDG_256).contains(&Why::Overlap));
    assert!(exchanged(MATRICES, "sm_75", Opcode::STS, Opcode::LDSM).contains(&Why::MayOverlap));
}

#[test]
fn what_is_not_looked_at_is_counted() {
    let none = Options { pairs: 0, ..Options::default() };
    let kernel = checked(WARP_SYNC, "sm_90", Opcode::STS, Opcode::LDS, none);
    assert!(kernel.violations.is_empty());
    assert!(kernel.stats.unchecked > 0);
}

#[test]
fn kernels_keep_their_order() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|x| x == "ptx"));
    files.sort();
    let mut total = order::Stats::default();
    for file in &files {
        total += in_order(&std::fs::read_to_string(file).unwrap(), &ALL);
    }
    assert_eq!(total.unchecked, 0);
    // The others are spills.
    assert!(3 * total.matched > total.accesses, "{total:?}");
}
