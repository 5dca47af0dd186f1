//! Tensor memory of one block: every shape of loads and stores there and back, and products, compiled, executed and compared
//! with the interpreter.

use oxptxas::{Settings, compile};
use oxsass::verify::{self, Verdict};
use rayon::prelude::*;
use sass::Target;
use std::fmt::Write as _;

/// A launch of one block; its threads are as many as the kernels ask for.
const LAUNCH: u64 = 8;

fn wrong(source: &str, name: &str) -> Option<String> {
    let target = Target::parse(name).unwrap();
    // With checks of what it touches, too, which these kernels pass.
    for (opt_level, tensor_checks) in [(3, false), (0, false), (3, true)] {
        let extra = ori::Extra { tensor_checks, ..ori::Extra::default() };
        let settings = Settings { opt_level, extra, ..Settings::new(target) };
        let cubin = match compile(source, "k.ptx", &settings) {
            Ok(out) => out.cubin,
            Err(e) => return Some(format!("{name} -O{opt_level}: {}", e.render("test"))),
        };
        let hazards = sim::hazard::check_cubin(&cubin, sim::hazard::Minima::built_in()).unwrap();
        if let Some(h) = hazards.iter().find_map(|k| k.1.first()) {
            return Some(format!("{name} -O{opt_level}: {h}"));
        }
        let module = verify::module(source, target).unwrap();
        // One of them with everything done as late as code allows.
        match verify::kernel_as((&module, source, &cubin), "k", LAUNCH..LAUNCH + 1, opt_level == 3) {
            Verdict::Same | Verdict::Close => {}
            v => return Some(format!("{name} -O{opt_level}: {v}\n{source}")),
        }
    }
    None
}

/// A kernel of four warps with all of tensor memory at `ta`, whose lanes are the warp's at `tw`.
fn kernel(target: &str, body: &str) -> String {
    let mut out =
        format!(".version 9.0\n.target {target}\n.address_size 64\n.shared .align 1024 .b8 m[16384];\n");
    out += ".shared .align 8 .b8 bar[8];\n.shared .align 4 .b8 at[4];\n.visible .entry k(.param .u64 out)\n.reqntid 128\n{\n\
            .reg .pred p, q, one; .reg .b16 h; .reg .b32 t, w, e, s, b, i, v, ta, tw, x<128>, y<128>; .reg .b64 po, a, da, db;\n\
            mov.u32 t, %tid.x; shr.u32 w, t, 5; ld.param.u64 po, [out]; mul.wide.u32 a, t, 512; add.u64 po, po, a;\n\
            mov.u32 s, at; mov.u32 b, bar; setp.lt.u32 p, t, 32;\n\
            @p tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [s], 512;\n\
            @p tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n\
            bar.sync 0; ld.shared.b32 ta, [s]; shl.b32 tw, w, 21; add.u32 tw, tw, ta;\n";
    out += body;
    out + "bar.sync 0;\n@p tcgen05.dealloc.cta_group::1.sync.aligned.b32 ta, 512;\nret;\n}\n"
}

fn list(name: char, n: usize) -> String {
    let names: Vec<String> = (0..n).map(|i| format!("{name}{i}")).collect();
    format!("{{{}}}", names.join(", "))
}

#[test]
fn what_is_stored_is_loaded() {
    let shapes = [
        ("16x64b", 1, ""),
        ("16x128b", 2, ""),
        ("16x256b", 4, ""),
        ("32x32b", 1, ""),
        ("16x32bx2", 1, ", 256"),
    ];
    let mut all = Vec::new();
    for (i, (shape, each, split)) in shapes.into_iter().enumerate() {
        for count in [1, 2, 8, 32, 128 / each] {
            for packed in [false, true] {
                let n = count * each;
                // Halves take twice the columns.
                if packed && n > 64 {
                    continue;
                }
                let (out_of, into) = if packed { (".pack::16b", ".unpack::16b") } else { ("", "") };
                let mut body = String::new();
                for k in 0..n {
                    let _ = writeln!(body, "mad.lo.u32 x{k}, t, {}, {};", 1009 + 2 * k, 77 * k + i);
                }
                let _ = writeln!(
                    body,
                    "tcgen05.st.sync.aligned.{shape}.x{count}{into}.b32 [tw + 4]{split}, {};",
                    list('x', n)
                );
                body += "tcgen05.wait::st.sync.aligned;\n";
                let _ = writeln!(
                    body,
                    "tcgen05.ld.sync.aligned.{shape}.x{count}{out_of}.b32 {}, [tw + 4]{split};",
                    list('y', n)
                );
                body += "tcgen05.wait::ld.sync.aligned;\n";
                for k in 0..n {
                    let _ = writeln!(body, "st.global.b32 [po+{}], y{k};", 4 * k);
                }
                all.push(body);
            }
        }
    }
    let failures: Vec<String> = all
        .par_iter()
        .flat_map(|body| ["sm_100a", "sm_103a"].into_par_iter().filter_map(|t| wrong(&kernel(t, body), t)))
        .collect();
    assert!(failures.is_empty(), "{} of {}: {}", failures.len(), all.len(), failures[0]);
}

/// Two products into one accumulator, the first of which does not read it; A in shared memory and in tensor memory.
#[test]
fn products() {
    // Kind, element formats and sums in the descriptor, and what the bytes are made of.
    let kinds = [
        ("f16", 0x10, "0x3c00", ""),
        ("f16", 0x490, "0x3f80", ""),
        ("tf32", 0x910, "0x3f80", ""),
        ("f8f6f4", 0x10, "0x3830", ""),
        ("i8", 0x4a0, "0x0703", ""),
        ("mxf8f6f4.block_scale.block32", 0x80_0000, "0x3830", "0x7f807f80"),
        ("mxf4.block_scale.block32", 0x80_0480, "0x2142", "0x7f807f80"),
        ("mxf4nvf4.block_scale.block32", 0x80_0480, "0x2142", "0x7f807f80"),
        ("mxf4nvf4.block_scale.block16", 0x480, "0x2142", "0x38404840"),
    ];
    let mut all = Vec::new();
    for (kind, formats, unit, factors) in kinds {
        // Scaled products have 128 rows.
        let heights: &[u32] = if factors.is_empty() { &[64, 128] } else { &[128] };
        for rows in heights.iter().copied() {
            for in_tensor in [false, true] {
                let descriptor = formats | (32 >> 3) << 17 | (rows >> 4) << 24;
                let mut body = String::from("mov.u32 i, t;\nFILL:\nand.b32 v, i, 3; shl.b32 v, v, 8;\n");
                let _ = writeln!(body, "add.u32 v, v, {unit}; prmt.b32 v, v, v, 0x1010;");
                body += "mov.u64 a, m; mul.wide.u32 da, i, 4; add.u64 a, a, da; st.shared.b32 [a], v;\n\
                         add.u32 i, i, 128; setp.lt.u32 q, i, 4096; @q bra FILL;\n\
                         setp.eq.u32 one, t, 0;\n@one mbarrier.init.shared::cta.b64 [b], 1;\n\
                         fence.proxy.async; mov.u32 v, m; shr.u32 v, v, 4; cvt.u64.u32 da, v; add.u64 db, da, 0x200;\n\
                         or.b64 da, da, 0x0000402000080000; or.b64 db, db, 0x0000402000080000;\n";
                let a = if in_tensor {
                    for k in 0..16 {
                        let _ = writeln!(
                            body,
                            "add.u32 v, t, {k}; and.b32 v, v, 3; shl.b32 v, v, 8; add.u32 v, v, {unit}; prmt.b32 x{k}, v, v, 0x1010;"
                        );
                    }
                    let _ = writeln!(
                        body,
                        "tcgen05.st.sync.aligned.32x32b.x16.b32 [tw + 64], {};\ntcgen05.wait::st.sync.aligned;",
                        list('x', 16)
                    );
                    "[ta + 64]"
                } else {
                    "da"
                };
                let scales = if factors.is_empty() {
                    ""
                } else {
                    let _ = writeln!(
                        body,
                        "mov.b32 v, {factors}; tcgen05.st.sync.aligned.32x32b.x8.b32 [tw + 128], \
                         {{v, v, v, v, v, v, v, v}};\ntcgen05.wait::st.sync.aligned;"
                    );
                    "[ta + 128], [ta + 132], "
                };
                body +=
                    "tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\n";
                let _ = writeln!(body, "mov.b32 e, {descriptor:#x};");
                for adds in [0, 1] {
                    let _ = writeln!(
                        body,
                        "mov.u32 v, {adds}; setp.eq.u32 q, v, 1;\n@one tcgen05.mma.cta_group::1.kind::{kind} [ta], {a}, db, e, {scales}q;"
                    );
                }
                body += "@one tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [b];\n\
                         WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 q, [b], 0;\n@!q bra WAIT;\n\
                         tcgen05.fence::after_thread_sync;\n";
                let _ = writeln!(
                    body,
                    "tcgen05.ld.sync.aligned.32x32b.x32.b32 {}, [tw];\ntcgen05.wait::ld.sync.aligned;",
                    list('y', 32)
                );
                // Of 64 rows, the lower half of each warp's lanes.
                let _ = writeln!(
                    body,
                    "and.b32 v, t, 31; setp.lt.u32 q, v, {};",
                    if rows == 64 { 16 } else { 32 }
                );
                for k in 0..32 {
                    let _ = writeln!(body, "@q st.global.b32 [po+{}], y{k};", 4 * k);
                }
                all.push(kernel("sm_100a", &body));
            }
        }
    }
    let failures: Vec<String> = all.par_iter().filter_map(|s| wrong(s, "sm_100a")).collect();
    assert!(failures.is_empty(), "{} of {}: {}", failures.len(), all.len(), failures[0]);
}

/// Copies of every shape, of words and of narrow elements, and shifts of rows; the lanes they leave alone hold what a store put there.
#[test]
fn copies() {
    let shapes = [
        "128x256b",
        "4x256b",
        "128x128b",
        "64x128b.warpx2::02_13",
        "64x128b.warpx2::01_23",
        "32x128b.warpx4",
    ];
    let formats = ["", ".b8x16.b6x16_p32", ".b8x16.b4x16_p64"];
    // What is behind it: nothing, or a shift of the rows of the first warp, or of the third.
    let shifts = [
        "",
        "@one tcgen05.shift.cta_group::1.down [ta + 32];\n",
        "add.u32 v, ta, 0x400020;\n@one tcgen05.shift.cta_group::1.down [v];\n",
    ];
    let all: Vec<String> = shapes
        .iter()
        .flat_map(|shape| formats.map(|f| (shape, f)))
        .enumerate()
        .map(|(i, (shape, format))| {
            let mut body = String::from(
                "mov.u32 i, t;\nFILL:\nmul.lo.u32 v, i, 1013904223;\n\
                 mov.u64 a, m; mul.wide.u32 da, i, 4; add.u64 a, a, da; st.shared.b32 [a], v;\n\
                 add.u32 i, i, 128; setp.lt.u32 q, i, 4096; @q bra FILL;\n\
                 setp.eq.u32 one, t, 0;\n@one mbarrier.init.shared::cta.b64 [b], 1;\nfence.proxy.async;\n\
                 mov.u32 v, m; shr.u32 v, v, 4; cvt.u64.u32 da, v; or.b64 da, da, 0x0000401000080000;\n\
                 tcgen05.st.sync.aligned.32x32b.x8.b32 [tw + 32], {t, t, t, t, t, t, t, t};\n\
                 tcgen05.wait::st.sync.aligned;\ntcgen05.fence::before_thread_sync;\nbar.sync 0;\n\
                 tcgen05.fence::after_thread_sync;\n",
            );
            let _ = writeln!(
                body,
                "@one tcgen05.cp.cta_group::1.{shape}{format} [ta + 32], da;\n{}\
                 @one tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [b];\n\
                 WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 q, [b], 0;\n@!q bra WAIT;\n\
                 tcgen05.fence::after_thread_sync;\n\
                 tcgen05.ld.sync.aligned.32x32b.x8.b32 {}, [tw + 32];\ntcgen05.wait::ld.sync.aligned;",
                shifts[i % 3],
                list('y', 8)
            );
            for k in 0..8 {
                let _ = writeln!(body, "st.global.b32 [po+{}], y{k};", 4 * k);
            }
            kernel("sm_100a", &body)
        })
        .collect();
    let failures: Vec<String> = all.par_iter().filter_map(|s| wrong(s, "sm_100a")).collect();
    assert!(failures.is_empty(), "{} of {}: {}", failures.len(), all.len(), failures[0]);
}

/// The listing of a kernel, which the contract takes and which has no hazards.
fn code(source: &str, name: &str, opt_level: u8) -> String {
    let target = Target::parse(name).unwrap();
    let settings = Settings { opt_level, ..Settings::new(target) };
    let cubin = compile(source, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render("test"))).cubin;
    let findings = contract::Contract::built_in().check(&cubin).unwrap();
    assert!(findings.is_empty(), "{name} -O{opt_level}: {}", findings[0]);
    let hazards = sim::hazard::check_cubin(&cubin, sim::hazard::Minima::built_in()).unwrap();
    assert!(hazards.iter().all(|k| k.1.is_empty()), "{name} -O{opt_level}: {:?}", hazards[0].1.first());
    let image = cubin::read::read(&cubin).unwrap();
    let mut text = String::new();
    oxsass::listing::write(
        &mut text,
        &image.kernels["k"].code,
        target,
        oxsass::listing::Style::default(),
        &mut 0,
    );
    text
}

/// A kernel of one warp on a 32-bit address in tensor memory, two descriptors and masks.
fn bare(target: &str, body: &str) -> String {
    format!(
        ".version 9.0\n.target {target}\n.address_size 64\n.shared .align 8 .b8 bar[8];\n.shared .align 4 .b8 at[4];\n\
         .visible .entry k(.param .u64 in, .param .u32 ta, .param .u64 da, .param .u64 db)\n.reqntid 32\n{{\n\
         .reg .pred q; .reg .b32 t, m<8>; .reg .b64 p, a, b;\n\
         ld.param.u32 t, [ta]; ld.param.u64 a, [da]; ld.param.u64 b, [db]; ld.param.u64 p, [in];\n\
         ld.global.v4.u32 {{m0, m1, m2, m3}}, [p]; ld.global.v4.u32 {{m4, m5, m6, m7}}, [p+16];\n\
         setp.ne.u32 q, m0, 0;\n{body}ret;\n}}\n"
    )
}

/// Columns of a pair of blocks: one finds them and sends the first to the other, by turns at barriers of the system's.
#[test]
fn pairs_take_columns_together() {
    for target in ["sm_100a", "sm_103a", "sm_110a"] {
        for level in [0, 3] {
            let source = bare(
                target,
                "mov.u32 m1, at;\ntcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [m1], 64;\n\
                 ld.shared.b32 t, [m1];\ntcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;\n\
                 tcgen05.dealloc.cta_group::2.sync.aligned.b32 t, 64;\n",
            );
            let text = code(&source, target, level);
            for part in [
                "UTCATOMSWS.2CTA.FIND_AND_SET.ALIGN UP",
                "SYNCS.PHASECHK.TRANS64.TRYWAIT P",
                "NANOSLEEP.SYNCS 0x989680",
                "SYNCS.ARRIVE.TRANS64.RED RZ",
                "SYNCS.ARRIVE.TRANS64.RED.A1T0 RZ",
                "STAS [R",
                "ATOMS.XOR RZ",
                "UTCATOMSWS.AND URZ",
                "UVIRTCOUNT.DEALLOC.SMPOOL 0x80",
            ] {
                assert!(text.contains(part), "{target} -O{level}: no {part}\n{text}");
            }
        }
    }
}

#[test]
fn pairs_multiply_and_copy() {
    let lanes = "{m0, m1, m2, m3, m4, m5, m6, m7}";
    let body = format!(
        "tcgen05.cp.cta_group::2.128x256b [t], a;\ntcgen05.shift.cta_group::2.down [t];\n\
         tcgen05.mma.cta_group::2.kind::f16 [t], a, b, m0, {lanes}, q;\n\
         tcgen05.mma.cta_group::2.kind::tf32 [t], [t], b, m0, q;\n\
         tcgen05.mma.sp.cta_group::2.kind::f8f6f4 [t], a, b, [t], m0, q;\n\
         mov.u32 m1, bar; cvt.u16.u32 h, m2;\n\
         tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [m1];\n\
         tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [m1], h;\n"
    );
    for target in ["sm_100a", "sm_103a", "sm_110a"] {
        for level in [0, 3] {
            let source = bare(target, &format!(".reg .b16 h;\n{body}"));
            let text = code(&source, target, level);
            for part in [
                "UTCCP.T.S.2CTA tmem[UR",
                "UTCSHIFT.2CTA.DOWN tmem[UR",
                "UTCHMMA.2CTA gdesc[UR",
                "UTCHMMA.2CTA tmem[UR",
                "UTCQMMA.2CTA gdesc[UR",
                "UTCBAR.2CTA [UR",
                "UTCBAR.2CTA.MULTICAST [UR",
            ] {
                assert!(text.contains(part), "{target} -O{level}: no {part}\n{text}");
            }
        }
    }
}

/// Where one lane is proved, nothing is done lane by lane.
#[test]
fn an_elected_lane_takes_no_turns() {
    let product = "tcgen05.mma.cta_group::1.kind::f16 [t], a, b, m0, q;\n";
    let commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [m1];\n";
    let lane = ".reg .pred e; .reg .b32 l; mov.u32 m1, bar;\n";
    for (turns, body) in [
        (0, format!("{lane}elect.sync _|e, -1;\n@e {product}@e {product}@e {commit}")),
        (0, format!("{lane}mov.u32 l, %tid.x; setp.ne.u32 e, l, 0; @e bra END;\n{product}{commit}END:\n")),
        (0, format!("{lane}elect.sync _|e, -1; and.pred e, e, q;\n@e {product}@e {commit}")),
        (1, format!("{lane}{product}")),
        (1, format!("{lane}setp.ne.u32 e, m2, 0;\n@e {product}")),
    ] {
        let text = code(&bare("sm_100a", &body), "sm_100a", 3);
        let number = |t: &str| u32::from_str_radix(t.trim_end_matches([' ', ';']), 16).ok();
        let leads_back = |line: &str| {
            let at = line.split_once("/*")?.1.split_once("*/")?;
            Some(number(at.1.split_once("BRA 0x")?.1)? < number(at.0)?)
        };
        let back = text.lines().filter(|l| leads_back(l) == Some(true)).count();
        assert_eq!(back, turns, "{body}\n{text}");
    }
}

/// Lanes that stay as they are, columns that count as zeros: words in uniform registers that stand together.
#[test]
fn masks_of_products() {
    for target in ["sm_100a", "sm_103a"] {
        let source = bare(
            target,
            "tcgen05.mma.cta_group::1.kind::f16 [t], a, b, m0, {m0, m1, m2, m3}, q, 3;\n\
             tcgen05.mma.ws.cta_group::1.kind::f16 [t], a, b, m0, q, p;\ntcgen05.shift.cta_group::1.down [t];\n",
        );
        let text = code(&source, target, 3);
        let line = |what: &str| text.lines().find(|l| l.contains(what)).unwrap_or_else(|| panic!("{text}"));
        let product = line("UTCHMMA gdesc");
        assert!(product.contains(", 0x3"), "{product}");
        for (what, unit) in [("UTCHMMA gdesc", 4), ("UTCHMMA.WS", 2)] {
            let mask = line(what).split(", ").find_map(|o| o.strip_prefix("UR")).unwrap();
            assert_eq!(mask.parse::<u32>().unwrap() % unit, 0, "{}", line(what));
        }
        assert!(text.contains("UTCSHIFT.DOWN tmem[UR"), "{text}");
    }
}

#[test]
fn one_kernel_has_one_kind_of_group() {
    let source =
        bare("sm_100a", "tcgen05.shift.cta_group::1.down [t];\ntcgen05.shift.cta_group::2.down [t];\n");
    let target = Target::parse("sm_100a").unwrap();
    let text = compile(&source, "k.ptx", &Settings::new(target)).unwrap_err().render("test");
    assert!(text.contains("single CTA(.cta_group::1) and CTA pair granularity(.cta_group::2)"), "{text}");
}

/// DEPBAR always stands directly above UTCATOMSWS.FIND_AND_SET in ptxas's code, whatever the number of columns is made of.
#[test]
fn allocations_wait_first() {
    for columns in ["512", "32", "t"] {
        let source = format!(
            ".version 9.0\n.target sm_100a\n.address_size 64\n.shared .align 4 .b8 at[4];\n.visible .entry k(.param .u32 n)\n{{\n\
             .reg .b32 t, s;\nld.param.u32 t, [n];\nmov.u32 s, at;\n\
             tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [s], {columns};\nld.shared.u32 s, [s];\n\
             tcgen05.dealloc.cta_group::1.sync.aligned.b32 s, {columns};\nret;\n}}\n"
        );
        for level in [3, 0] {
            let text = code(&source, "sm_100a", level);
            let lines: Vec<&str> = text.lines().collect();
            let finds = (0..lines.len()).filter(|i| lines[*i].contains("UTCATOMSWS.FIND"));
            let above: Vec<_> = finds.map(|i| lines[i - 1]).collect();
            assert!(!above.is_empty() && above.iter().all(|l| l.contains("DEPBAR")), "{columns}: {above:?}");
        }
    }
}

/// The file says where the words are that say what is given out, and the code reads and writes them there: lowering and the writer of files
/// know it each for itself.
#[test]
fn code_and_file_agree_where_the_words_are() {
    const WORDS: &str = "__nv_reservedSMEM_tcgen05_partition";
    for name in ["sm_100a", "sm_103a", "sm_110a"] {
        let target = Target::parse(name).unwrap();
        let cubin = compile(&kernel(name, ""), "k.ptx", &Settings::new(target)).expect("legal").cubin;
        let elf = contract::elf::Elf::new(&cubin).unwrap();
        let words = elf.symbols.iter().find(|s| s.name == WORDS).expect("there");
        let image = cubin::read::read(&cubin).unwrap();
        let reserved = words.value..words.value + words.size;
        let mut found = 0;
        for (n, word) in image.kernels["k"].code.iter().enumerate() {
            let inst = sass::decode(*word, target, 16 * n as i64).unwrap();
            if !matches!(inst.op, sass::Opcode::ATOMS | sass::Opcode::LDS | sass::Opcode::STS) {
                continue;
            }
            let offsets = inst.operands.iter().filter_map(|o| match o {
                // Behind that are the program's own.
                sass::Operand::Addr { offset, .. } => Some(*offset as u64).filter(|n| (1..0x400).contains(n)),
                _ => None,
            });
            for offset in offsets {
                assert!(reserved.contains(&offset), "{name}: {offset:#x} is not in {reserved:#x?}");
                found += 1;
            }
        }
        assert!(found > 0, "{name}");
    }
}

/// In objects the linker places the words that say what is given out. What nvlink makes of ours does what the PTX says.
#[test]
fn objects() {
    const WORDS: &str = "__nv_reservedSMEM_tcgen05_partition";
    let tools = std::env::var_os("OXPTXAS_ORACLES").map(std::path::PathBuf::from);
    let body = "tcgen05.st.sync.aligned.32x32b.x1.b32 [tw], {t};\ntcgen05.wait::st.sync.aligned;\n\
        tcgen05.ld.sync.aligned.32x32b.x1.b32 {v}, [tw];\ntcgen05.wait::ld.sync.aligned;\nst.global.b32 [po], v;\n";
    for name in ["sm_100a", "sm_103a", "sm_110a"] {
        let (source, target) = (kernel(name, body), Target::parse(name).unwrap());
        for (opt_level, tensor_checks) in [(3, false), (0, false), (3, true)] {
            let extra = ori::Extra { tensor_checks, ..ori::Extra::default() };
            let settings = Settings { relocatable: true, opt_level, extra, ..Settings::new(target) };
            let object = compile(&source, "k.ptx", &settings).expect("legal").cubin;
            let elf = contract::elf::Elf::new(&object).unwrap();
            let words = elf.symbols.iter().find(|s| s.name == WORDS).expect("there");
            // Its alignment, as ptxas's objects have it.
            assert_eq!(words.value, 1, "{name}");
            let image = cubin::read::read(&object).unwrap();
            let uses = image.relocs.iter().filter(|r| r.symbol == WORDS);
            assert!(uses.clone().count() > 0 && uses.into_iter().all(|r| r.kind == 0x37), "{name}");
            let Some(tools) = &tools else { continue };
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            std::fs::write(at("k.o"), object).unwrap();
            let mut nvlink = std::process::Command::new(tools.join("nvlink"));
            let run =
                nvlink.arg(format!("-arch={name}")).arg(at("k.o")).arg("-o").arg(at("k.cubin")).output();
            assert!(run.unwrap().status.success(), "{name}");
            let linked = std::fs::read(at("k.cubin")).unwrap();
            let module = verify::module(&source, target).unwrap();
            match verify::kernel(&module, &source, &linked, "k", LAUNCH..LAUNCH + 1) {
                Verdict::Same => {}
                v => panic!("{name} -O{opt_level}: {v}"),
            }
        }
    }
}

/// A number that a loop stores may be in a uniform register, but not where STTM reads it (it was refused: `STTM [UR6], UR38`).
#[test]
fn loops_store_what_does_not_change() {
    for (shape, unpack) in [("32x32b.x1", ""), ("32x32b.x1", ".unpack::16b"), ("16x64b.x1", "")] {
        let body = format!(
            ".reg .b32 i, v; .reg .pred go; ld.param.u32 v, [in+4]; mov.u32 i, 0;\n\
             LOOP:\ntcgen05.st.sync.aligned.{shape}{unpack}.b32 [i+32], {{v}};\n\
             @q tcgen05.mma.cta_group::1.kind::f16 [t], a, b, i, q;\n\
             add.u32 i, i, 1; setp.lt.u32 go, i, v; @go bra LOOP;\n"
        );
        let text = code(&bare("sm_100a", &body), "sm_100a", 3);
        let stores: Vec<&str> = text.lines().filter(|l| l.contains("STTM")).collect();
        assert!(!stores.is_empty() && stores.iter().all(|l| l.contains(", R")), "{body}\n{text}");
    }
}

/// The word of an im2col copy's offsets has zeros in its upper half where no mask of blocks is: ptxas 13.0.88 has them always.
#[test]
fn offsets_of_pixels_stand_alone() {
    let copy = "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes \
                [m0], [a, {1, 2, 3}], [m1], {h0};\n";
    let body = format!(
        ".reg .b16 h0, h1; .reg .pred e; elect.sync _|e, -1; @!e bra END;\nmov.b32 {{h0, h1}}, m2;\n{copy}END:\n"
    );
    let text = code(&bare("sm_90a", &body), "sm_90a", 3);
    assert!(text.contains("PRMT") || text.contains("LOP3"), "{text}");
}

/// What may not be done with columns has no defined result, rather than one that code happens to give.
#[test]
fn misuse_of_columns() {
    let alloc = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [m1], 64;\nld.shared.b32 t, [m1];\n";
    let dealloc = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 t, 64;\n";
    let relinquish = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n";
    let other = format!("mov.u32 m3, 16;\n{}", dealloc.replace("t, 64", "t, m3"));
    let inside = format!("add.u32 m2, t, 32;\n{}", dealloc.replace("t, 64", "m2, 32"));
    for (right, body) in [
        (true, format!("{alloc}{relinquish}{dealloc}")),
        (true, format!("{alloc}{dealloc}{alloc}{relinquish}{dealloc}")),
        (false, alloc.to_string()),
        (false, format!("{alloc}{other}")),
        (false, format!("{alloc}{inside}{dealloc}")),
        (false, format!("{alloc}{dealloc}{dealloc}")),
        (false, format!("{relinquish}{alloc}{dealloc}")),
    ] {
        let source = bare("sm_100a", &format!("mov.u32 m1, at;\n{body}st.global.u32 [p], t;\n"));
        let target = Target::parse("sm_100a").unwrap();
        let module = verify::module(&source, target).unwrap();
        let cubin = compile(&source, "k.ptx", &Settings::new(target)).unwrap().cubin;
        let verdict = verify::kernel(&module, &source, &cubin, "k", LAUNCH..LAUNCH + 1);
        let good = if right { verdict == Verdict::Same } else { matches!(verdict, Verdict::Undefined(_)) };
        assert!(good, "{verdict}\n{body}");
    }
}
