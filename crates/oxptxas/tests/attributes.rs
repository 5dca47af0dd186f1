//! What files say of code, beside what ptxas 13.0.88 says for the same PTX (docs/cubin.md).

use contract::elf::{Elf, NV_COMPAT, split};
use oxptxas::{Settings, compile};
use sass::Target;

const COOP_GROUP_INSTR_OFFSETS: u8 = 0x28;
const NUM_MBARRIERS: u8 = 0x38;
const MBARRIER_INSTR_OFFSETS: u8 = 0x39;

/// The file for a kernel of these statements.
fn file(target: &str, statements: &str) -> Vec<u8> {
    let source = format!(
        ".version 9.0\n.target {target}\n.address_size 64\n\
         .visible .entry k(.param .u64 p, .param .align 64 .b8 map[128])\n{{\n\
         .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<8>; .reg .b16 %h<4>; .reg .pred %p<4>;\n\
         .shared .align 16 .b8 sv[256];\n\
         ld.param.u64 %rd1, [p]; ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%rd1]; ld.global.u64 %rd2, [%rd1+16];\n\
         {statements}\nst.global.u32 [%rd1], %r1;\nst.global.u64 [%rd1+16], %rd2;\nret;\n}}\n"
    );
    let target = Target::parse(target).expect("a known target");
    let output = compile(&source, "k.ptx", &Settings::new(target));
    output.unwrap_or_else(|f| panic!("{}", f.render("oxptxas"))).cubin
}

/// ISA_CLASS and INST_TENSORMAP_V1.
fn asked(file: &[u8]) -> (u8, u8) {
    let elf = Elf::new(file).unwrap();
    let section = elf.sections.iter().find(|s| s.ty == NV_COMPAT).expect("from sm_90 on");
    let records = split(elf.bytes(section));
    let value = |code| records.iter().find(|r| r.1 == code).map_or(0, |r| r.2[0]);
    (value(2), value(3))
}

/// The words of an attribute of the kernel.
fn words(file: &[u8], code: u8) -> Option<Vec<u32>> {
    let image = cubin::read::read(file).unwrap();
    let (_, payload) = image.kernels["k"].attributes.iter().find(|a| a.0 == code)?;
    let word = |w: &[u8]| w.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b));
    Some(payload.chunks(4).map(word).collect())
}

#[test]
fn files_say_what_their_code_asks_for() {
    for (target, statement, stated) in [
        ("sm_90a", "add.u32 %r1, %r2, %r3;", (1, 0)),
        ("sm_90a", "wgmma.fence.sync.aligned;", (3, 0)),
        ("sm_90a", "wgmma.wait_group.sync.aligned 0;", (3, 0)),
        ("sm_90", "prefetch.tensormap [%rd1];", (2, 0)),
        ("sm_100", "prefetch.tensormap [%rd1];", (2, 0)),
        ("sm_90", "cvt.rn.f16x2.e5m2x2 %r1, %h1;", (2, 0)),
        ("sm_100a", "cvt.rs.satfinite.e4m3x4.f32 %r1, {%f1, %f2, %f3, %f4}, %r2;", (3, 0)),
        ("sm_90", "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;", (2, 0)),
        (
            "sm_90",
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3];",
            (2, 0),
        ),
        (
            "sm_90",
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r1], [%r4], %r2, [%r3];",
            (1, 0),
        ),
        (
            "sm_100",
            "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [%r3];",
            (2, 1),
        ),
        ("sm_100a", "tensormap.replace.tile.box_dim.global.b1024.b32 [%rd1], 2, %r1;", (1, 2)),
        (
            "sm_100a",
            "tensormap.replace.tile.box_dim.global.b1024.b32 [%rd1], 2, %r1;\n\
             cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [%r3];",
            (2, 3),
        ),
        ("sm_100a", "tcgen05.wait::ld.sync.aligned;", (2, 0)),
        ("sm_100a", "tcgen05.fence::before_thread_sync;", (2, 0)),
        ("sm_100a", "tcgen05.shift.cta_group::1.down [%r1];", (3, 0)),
        ("sm_100a", "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r2}, [%r3];", (2, 0)),
        (
            "sm_120a",
            "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r1, %r2}, {%f1, %f2, %f3, %f4}; mov.b32 %r1, %f1;",
            (2, 0),
        ),
    ] {
        assert_eq!(asked(&file(target, statement)), stated, "{target}: {statement}");
    }
}

/// Offsets apart: the kind of each, its address is what the code has.
/// EIATTR_VRC_CTA_INIT_COUNT (0x4a, a byte) is 0x80 where tensor memory is taken or given back, whatever else is said of it.
#[test]
fn tensor_memory_that_changes_hands_is_counted() {
    let take = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;\n";
    let give = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;\n";
    let relinquish = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n";
    for (statements, wanted) in [
        (take.to_string(), 0x80),
        (give.to_string(), 0x80),
        (format!("{take}{relinquish}{give}"), 0x80),
        (relinquish.to_string(), 0),
        (String::new(), 0),
    ] {
        let file = file("sm_100a", &statements);
        let found: Vec<u8> = file.windows(4).filter(|w| matches!(w, [2, 0x4a, _, 0])).map(|w| w[2]).collect();
        assert_eq!(found, [wanted], "{statements}");
    }
}

#[test]
fn instructions_on_mbarriers_are_listed() {
    let init = "mbarrier.init.shared.b64 [%r1], 32;";
    let arrive = "mbarrier.arrive.shared.b64 %rd2, [%r1];";
    for (target, statements, kinds, made) in [
        ("sm_80", init, &[0][..], 1),
        ("sm_86", arrive, &[1], 0),
        ("sm_80", "mbarrier.arrive.noComplete.shared.b64 %rd2, [%r1], 3;", &[2], 0),
        ("sm_80", "mbarrier.arrive_drop.shared.b64 %rd2, [%r1];", &[3], 0),
        ("sm_89", "mbarrier.arrive_drop.noComplete.shared.b64 %rd2, [%r1], 3;", &[4], 0),
        ("sm_80", "mbarrier.test_wait.shared.b64 %p1, [%r1], %rd2; selp.b32 %r1, 1, 2, %p1;", &[5], 0),
        ("sm_80", "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], %r2; selp.b32 %r1, 1, 2, %p1;", &[6], 0),
        ("sm_80", "cp.async.mbarrier.arrive.shared.b64 [%r1];", &[7], 0),
        ("sm_90", "cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];", &[7], 0),
        ("sm_80", &format!("{init}\n{arrive}"), &[0, 1], 1),
        ("sm_90", &format!("{init}\n{arrive}"), &[0, 1], 1),
    ] {
        let file = file(target, statements);
        let list = words(&file, MBARRIER_INSTR_OFFSETS).unwrap_or_default();
        let listed: Vec<u32> = list.chunks(4).map(|entry| entry[3] & 0xff).collect();
        assert_eq!(listed, kinds, "{target}: {statements}");
        let number = words(&file, NUM_MBARRIERS).expect("where there is a list");
        assert_eq!(number, [made], "{target}: {statements}");
    }
    for (target, statement) in [
        ("sm_90", "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r1], %r2;"),
        ("sm_90", "mbarrier.pending_count.b64 %r1, %rd2;"),
        ("sm_80", "mbarrier.pending_count.b64 %r1, %rd2;"),
    ] {
        let file = file(target, statement);
        assert_eq!(words(&file, MBARRIER_INSTR_OFFSETS), None, "{target}: {statement}");
        assert_eq!(words(&file, NUM_MBARRIERS), None, "{target}: {statement}");
    }
}

#[test]
fn meetings_of_lanes_are_listed() {
    for (target, statement, number) in [
        ("sm_90", "barrier.cluster.arrive;", 1),
        ("sm_90", "barrier.cluster.arrive.relaxed.aligned;", 1),
        ("sm_90", "barrier.cluster.wait;", 0),
        ("sm_100a", "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;", 2),
        ("sm_100a", "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r1], 32;", 2),
        ("sm_110a", "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;", 2),
        ("sm_100a", "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", 0),
    ] {
        let listed = words(&file(target, statement), COOP_GROUP_INSTR_OFFSETS).unwrap_or_default();
        assert_eq!(listed.len(), number, "{target}: {statement}: {listed:x?}");
    }
}

/// Sizes of parameters are whole where 14 bits do not hold them; ptxas states them so beyond 4,352 bytes.
#[test]
fn sizes_of_large_parameters_are_stated() {
    for (sm, size) in [(75, 4000u32), (75, 4300), (80, 16_384), (90, 20_000), (100, 32_000), (120, 5000)] {
        let text = format!(
            ".version 9.0\n.target sm_{sm}\n.address_size 64\n.visible .entry k(.param .u64 .ptr .global .align 8 o, .param .align 4 .b8 q[{size}])\n\
             {{ .reg .b64 %rd1; .reg .b32 %r1; ld.param.u64 %rd1,[o]; ld.param.u32 %r1,[q+8]; st.global.u32 [%rd1],%r1; ret; }}\n"
        );
        let settings = Settings::new(sass::Target::new(sm).unwrap());
        let cubin = compile(&text, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render(""))).cubin;
        let image = cubin::read::read(&cubin).unwrap();
        assert_eq!(image.kernels["k"].parameters(), Some(vec![(0, 8), (8, size)]), "sm_{sm}");
        let wide = image.kernels["k"].attributes.iter().any(|(code, _)| *code == 0x45);
        assert_eq!(wide, size + 8 > 4352, "sm_{sm}, {size} bytes");
    }
}

/// For that their size counts that they have packed from 0: what alignment adds where they begin in the bank is of no account
/// (ptxas 13.0.88, with and without `-c`).
#[test]
fn large_parameters_are_counted_from_0() {
    for sm in [75, 80, 89, 90, 100, 120] {
        // A word in front, which alignment from 0 makes 64 bytes; and one behind, which makes alignment from elsewhere more.
        for (params, wide) in [
            ("a, .param .align 64 .b8 q[4288]", false),
            ("a, .param .align 64 .b8 q[4292]", true),
            ("a, .param .align 64 .b8 q[4304]", true),
            ("a, .param .align 64 .b8 q[4308]", true),
            ("q[4344], .param .b32 a", false),
            ("q[4348], .param .b32 a", false),
            ("q[4352], .param .b32 a", true),
        ] {
            let first = if params.starts_with('a') { ".b32" } else { ".align 64 .b8" };
            let text = format!(
                ".version 9.0\n.target sm_{sm}\n.address_size 64\n.visible .entry k(.param {first} {params})\n\
                 {{ .reg .b64 %rd1; .reg .b32 %r1; ld.param.u32 %r1,[q+8]; mov.u64 %rd1,0; st.global.u32 [%rd1],%r1; ret; }}\n"
            );
            for relocatable in [false, true] {
                let settings = Settings { relocatable, ..Settings::new(sass::Target::new(sm).unwrap()) };
                let cubin =
                    compile(&text, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render(""))).cubin;
                let image = cubin::read::read(&cubin).unwrap();
                let attributes = &image.kernels["k"].attributes;
                assert_eq!(attributes.iter().any(|(code, _)| *code == 0x45), wide, "sm_{sm}: {params}");
                assert_eq!(attributes.iter().any(|(code, _)| *code == 0x17), !wide, "sm_{sm}: {params}");
            }
        }
    }
}

/// A size of clusters whose first number is 0 says nothing; where the grid counts clusters it is said (ptxas 13.0.88).
#[test]
fn sizes_of_clusters_are_stated() {
    const BLOCKS_ARE_CLUSTERS: u8 = 0x5b;
    const SIZES: [u8; 2] = [0x3d, 0x3f];
    for (directives, sizes, counted) in [
        (".reqnctapercluster 0", [false, false], false),
        (".reqnctapercluster 0, 2", [false, false], false),
        (".reqnctapercluster 2, 0", [true, false], false),
        (".reqnctapercluster 2", [true, false], false),
        (".maxclusterrank 0", [false, false], false),
        (".maxclusterrank 4", [false, true], false),
        (".reqntid 4 .reqnctapercluster 2 .blocksareclusters", [true, false], true),
    ] {
        let text = format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k() {directives} {{ ret; }}\n"
        );
        for relocatable in [false, true] {
            let settings = Settings { relocatable, ..Settings::new(Target::new(90).unwrap()) };
            let cubin =
                compile(&text, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render(""))).cubin;
            let image = cubin::read::read(&cubin).unwrap();
            let said = |code: u8| image.kernels["k"].attributes.iter().any(|a| a.0 == code);
            assert_eq!(SIZES.map(said), sizes, "{directives}");
            assert_eq!(said(BLOCKS_ARE_CLUSTERS), counted, "{directives}");
        }
    }
}

/// Kernels whose address is taken are said to be elsewhere: by what takes it, and, of those that variables hold, by the last function
/// of the text (ptxas 13.0.88).
#[test]
fn kernels_by_address_are_named() {
    const EXTERNS: u8 = 0x0f;
    let kernel = |name: &str, body: &str| {
        format!(
            ".visible .entry {name}(.param .u64 p) {{ .reg .b64 a, b; ld.param.u64 a, [p]; {body} ret; }}\n"
        )
    };
    let take = |of: &str| format!("mov.u64 b, {of}; st.global.u64 [a], b;");
    let held = ".global .u64 t = k1;\n";
    let load = "ld.global.u64 b, [t]; st.global.u64 [a], b;";
    for (text, names, takes) in [
        (kernel("k1", "") + &kernel("k", &take("k1")), vec!["k"], 1),
        (kernel("k", &take("k")), vec![], 1),
        (kernel("k1", "") + held + &kernel("k2", load) + &kernel("k", ""), vec!["k"], 0),
        (kernel("k1", "") + held, vec![], 0),
    ] {
        let text = format!(".version 9.0\n.target sm_75\n.address_size 64\n{text}");
        for (sm, relocatable) in [(75, false), (90, false), (75, true), (90, true), (120, true)] {
            let settings = Settings { relocatable, ..Settings::new(Target::new(sm).unwrap()) };
            let cubin =
                compile(&text, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render(""))).cubin;
            let image = cubin::read::read(&cubin).unwrap();
            let naming = |k: &&String| image.kernels[*k].attributes.iter().any(|a| a.0 == EXTERNS);
            let found: Vec<&String> = image.kernels.keys().filter(naming).collect();
            assert_eq!(found, names, "sm_{sm} {relocatable}: {text}");
            let elf = Elf::new(&cubin).unwrap();
            let graph = elf.sections.iter().find(|s| s.name == ".nv.callgraph").expect("is there");
            let words = elf.bytes(graph).chunks(4).map(|w| i32::from_le_bytes(w.try_into().unwrap()));
            let words: Vec<i32> = words.collect();
            let pairs: Vec<&[i32]> = words.chunks(2).collect();
            let mark = |n: i32| pairs.iter().position(|p| *p == [0, n]).expect("a mark");
            assert_eq!(mark(-3) - mark(-2), 2, "one whose address is taken, sm_{sm}: {text}");
            assert_eq!(pairs[mark(-2) + 1][1], 0, "it has no prototype");
            assert_eq!(pairs.len() - mark(-4), 1 + takes, "sm_{sm}: {text}");
        }
    }
}
