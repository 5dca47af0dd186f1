//! Checks of tensor memory accesses (`-g-tmem-access-check`): programs that break a rule end in the trap of this rule, those that keep
//! all do not, and ptxas's code of them ends alike in the same simulator.

use oxptxas::{Settings, compile};
use oxsass::verify;
use rayon::prelude::*;
use sass::Target;
use sim::sass::{Cause, SimError};
use std::path::{Path, PathBuf};

/// How a program ends: in no trap, or in that of the function whose name ends so.
type End = Option<&'static str>;

const BOUNDS: End = Some("access_out_of_physical_bounds");
const TAKEN: End = Some("unallocated_columns_access");
const QUARTER: End = Some("current_warp_owner_invalid");
const LANES: End = Some("invalid_datapath_alignment");
const SPARSE: End = Some("sparse_mismatch_between_idesc_mod");
const PHASE: End = Some("phase_invalid_during_alloc");
const GRANULARITY: End = Some("allocation_granularity_invalid");
const GIVEN_BACK: End = Some("unallocated_columns_being_dealloced");
const FIRST: End = Some("col_being_dealloced_not_returned_by_alloc");

/// A kernel of four warps that has taken 64 columns at `ta`, whose lanes are the warp's at `tw`. `t0` is 0, which no compiler knows; `one` holds for
/// a single thread; `e` is a descriptor of 128 rows and 32 columns.
fn kernel(target: &str, group: u32, body: &str) -> String {
    let cluster = if group == 2 { "\n.reqnctapercluster 2, 1, 1" } else { "" };
    let meet = match group {
        2 => "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
        _ => "bar.sync 0;",
    };
    format!(
        ".version 9.0\n.target {target}\n.address_size 64\n.shared .align 1024 .b8 m[16384];\n.shared .align 4 .b8 at[4];\n\
         .visible .entry k(.param .u64 out)\n.reqntid 128{cluster}\n{{\n\
         .reg .pred p, q, one; .reg .b32 t, w, s, v, e, f, t0, n, ta, tw, x<128>; .reg .b64 po, a, da, db;\n\
         mov.u32 t, %tid.x; shr.u32 w, t, 5; ld.param.u64 po, [out]; cvt.u32.u64 t0, po; and.b32 t0, t0, 1;\n\
         mul.wide.u32 a, t, 4; add.u64 po, po, a; mov.u32 s, at; setp.lt.u32 p, t, 32; setp.eq.u32 one, t, 0; setp.ne.u32 q, t, t;\n\
         @p tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [s], 64;\n\
         {meet}\nld.shared.b32 ta, [s]; shl.b32 v, w, 21; add.u32 ta, ta, t0; add.u32 tw, v, ta;\n\
         mov.u32 v, m; shr.u32 v, v, 4; cvt.u64.u32 da, v; or.b64 da, da, 0x0000400802000000; mov.b64 db, da;\n\
         mov.b32 e, 0x8080010; add.u32 e, e, t0;\n{body}\n{meet}\n\
         @p tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned;\n\
         @p tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 ta, 64;\nst.global.u32 [po], ta;\nret;\n}}\n"
    )
}

/// `{x0, …}`
fn list(n: usize) -> String {
    let names: Vec<String> = (0..n).map(|i| format!("x{i}")).collect();
    format!("{{{}}}", names.join(", "))
}

fn load(shape: &str, n: usize, at: &str) -> String {
    format!("tcgen05.ld.sync.aligned.{shape}.b32 {}, [{at}];\ntcgen05.wait::ld.sync.aligned;", list(n))
}

fn store(shape: &str, n: usize, at: &str) -> String {
    format!("tcgen05.st.sync.aligned.{shape}.b32 [{at}], {};\ntcgen05.wait::st.sync.aligned;", list(n))
}

/// A product of one thread with other bits in the descriptor, and other values of registers before it.
fn multiply(name: &str, operands: &str, bits: u32, before: &str) -> String {
    format!("xor.b32 e, e, {bits:#x};\n{before}\n@one tcgen05.mma{name} {operands};")
}

/// The end of a program, its group of blocks, and what it does.
fn programs() -> Vec<(End, u32, String)> {
    // Columns, rows in the descriptor: by what bits to change those of `e` for it.
    let columns = |n: u32| (n >> 3 ^ 32 >> 3) << 17;
    let rows = |m: u32| (m >> 4 ^ 128 >> 4) << 24;
    let take = |n: u32| {
        format!("add.u32 n, t0, {n};\n@p tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [s], n;")
    };
    let give = |at: &str, n: u32| {
        format!(
            "add.u32 n, t0, {n}; add.u32 v, ta, {at};\n@p tcgen05.dealloc.cta_group::1.sync.aligned.b32 v, n;"
        )
    };
    let copy = |shape: &str, at: u32| format!("@one tcgen05.cp.cta_group::1.{shape} [ta + {at}], da;");
    let shift = |at: u32| format!("@one tcgen05.shift.cta_group::1.down [ta + {at}];");
    let f16 = ".cta_group::1.kind::f16";
    let d = |at: &str| format!("[{at}], da, db, e, q");
    let half = "add.u32 v, ta, 0x100000;";
    let mx = ".cta_group::1.kind::mxf8f6f4.block_scale";
    let mx_pair = ".cta_group::2.kind::mxf8f6f4.block_scale";
    let scaled = |a: u32, b: u32| format!("[ta], da, db, e, [ta + {a}], [ta + {b}], q");
    let pair = ".cta_group::2.kind::f16";
    let one = |end: End, body: String| (end, 1, body);
    let two = |end: End, body: String| (end, 2, body);
    vec![
        // Loads and stores: shapes, columns that are not taken, lanes.
        one(None, load("32x32b.x64", 64, "tw")),
        one(None, load("16x256b.x8", 32, "tw")),
        one(None, load("16x64b.x16.pack::16b", 16, "tw")),
        one(None, load("16x128b.x1", 2, "tw + 60")),
        one(None, store("32x32b.x1", 1, "tw + 63")),
        one(None, store("32x32b.x32.unpack::16b", 32, "tw")),
        one(TAKEN, load("32x32b.x64", 64, "tw + 1")),
        one(TAKEN, load("32x32b.x128", 128, "tw")),
        one(TAKEN, load("32x32b.x1", 1, "tw + 64")),
        one(TAKEN, load("16x64b.x2", 2, "tw + 61")),
        one(TAKEN, load("16x64b.x16.pack::16b", 16, "tw + 1")),
        one(TAKEN, load("16x128b.x1", 2, "tw + 61")),
        one(TAKEN, load("16x256b.x8", 32, "tw + 1")),
        one(TAKEN, store("32x32b.x32.unpack::16b", 32, "tw + 1")),
        one(BOUNDS, load("32x32b.x2", 2, "tw + 511")),
        one(BOUNDS, load("32x32b.x1", 1, "tw + 512")),
        one(BOUNDS, store("32x32b.x1", 1, "tw + 65535")),
        one(BOUNDS, store("16x256b.x32", 128, "tw + 257")),
        one(QUARTER, load("32x32b.x1", 1, "ta")),
        one(QUARTER, store("32x32b.x1", 1, "tw + 2097152")),
        // Copies and shifts.
        one(None, copy("128x256b", 56)),
        one(None, copy("128x128b", 60)),
        one(TAKEN, copy("128x256b", 57)),
        one(TAKEN, copy("4x256b", 57)),
        one(TAKEN, copy("128x128b", 61)),
        one(TAKEN, copy("64x128b.warpx2::02_13", 61)),
        one(TAKEN, copy("32x128b.warpx4.b8x16.b4x16_p64", 61)),
        one(BOUNDS, copy("128x256b", 505)),
        one(BOUNDS, copy("32x128b.warpx4", 509)),
        one(None, shift(56)),
        one(TAKEN, shift(57)),
        one(BOUNDS, shift(505)),
        // Accumulators.
        one(None, multiply(f16, &d("ta + 32"), 0, "")),
        one(TAKEN, multiply(f16, &d("ta + 33"), 0, "")),
        one(TAKEN, multiply(f16, &d("ta"), columns(72), "")),
        one(BOUNDS, multiply(f16, &d("ta + 481"), 0, "")),
        one(LANES, multiply(f16, &d("v"), 0, half)),
        one(None, multiply(f16, &d("v"), rows(64), half)),
        one(LANES, multiply(f16, &d("v"), rows(64), "add.u32 v, ta, 0x110000;")),
        one(LANES, multiply(&format!(".ws{f16}"), &d("v"), rows(64) | columns(64), half)),
        one(SPARSE, multiply(f16, &d("ta"), 4, "")),
        // The first factor in tensor memory.
        one(None, multiply(f16, "[ta], [ta + 56], db, e, q", 0, "")),
        one(TAKEN, multiply(f16, "[ta], [ta + 57], db, e, q", 0, "")),
        one(BOUNDS, multiply(f16, "[ta], [ta + 505], db, e, q", 0, "")),
        one(LANES, multiply(f16, "[ta], [v], db, e, q", 0, half)),
        // Sparse ones.
        one(None, multiply(&format!(".sp{f16}"), "[ta], da, db, [ta + 62], e, q", 4, "")),
        one(SPARSE, multiply(&format!(".sp{f16}"), "[ta], da, db, [ta + 62], e, q", 0, "")),
        one(TAKEN, multiply(&format!(".sp{f16}"), "[ta], da, db, [ta + 63], e, q", 4, "")),
        one(LANES, multiply(&format!(".sp{f16}"), "[ta], da, db, [v], e, q", 4, half)),
        // Factors of blocks.
        one(None, multiply(mx, &scaled(60, 62), 0x80_0000, "")),
        one(TAKEN, multiply(mx, &scaled(61, 60), 0x80_0000, "")),
        one(TAKEN, multiply(mx, &scaled(60, 63), 0x80_0000, "")),
        one(None, multiply(mx, &scaled(60, 62), 0x80_0000 | columns(64), "")),
        one(TAKEN, multiply(mx, "[ta], da, db, e, [ta], [ta + 508], q", 0x80_0000, "")),
        one(BOUNDS, multiply(mx, "[ta], da, db, e, [ta], [ta + 511], q", 0x80_0000, "")),
        one(LANES, multiply(mx, "[ta], da, db, e, [v], [ta], q", 0x80_0000, half)),
        one(LANES, multiply(mx, "[ta], da, db, e, [ta], [v], q", 0x80_0000, half)),
        // Pairs of blocks.
        two(TAKEN, multiply(pair, &d("ta + 33"), 0, "")),
        two(LANES, multiply(pair, &d("v"), 0, half)),
        two(LANES, multiply(&format!(".sp{pair}"), "[v], da, db, [ta], e, q", 4 | rows(256), half)),
        two(TAKEN, multiply(&format!(".sp{pair}"), "[v], da, db, [ta + 63], e, q", 4, half)),
        two(TAKEN, multiply(mx_pair, &scaled(63, 60), 0x80_0000, "")),
        two(TAKEN, multiply(mx_pair, &scaled(62, 60), 0x80_0000 | rows(256), "")),
        two(TAKEN, multiply(mx_pair, &scaled(62, 63), 0x80_0000, "")),
        // Columns that are taken and given back.
        one(None, format!("{}\nld.shared.b32 v, [s];\n{}", take(32), give("64", 32))),
        one(BOUNDS, take(0)),
        one(BOUNDS, take(1024)),
        one(GRANULARITY, take(96)),
        one(PHASE, format!("@p tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n{}", take(32))),
        one(GIVEN_BACK, give("64", 32)),
        one(GIVEN_BACK, give("0", 128)),
        one(FIRST, give("32", 32)),
        one(BOUNDS, give("512", 32)),
        one(BOUNDS, give("480", 64)),
        one(BOUNDS, give("0", 544)),
    ]
}

/// The trap that a kernel ends in, as the name of the function that it is in, or "" where it is in none.
fn end(source: &str, cubin: &[u8], target: Target) -> Option<String> {
    let module = verify::module(source, target).unwrap();
    let launch = sim::generate::generate(&module, "k", 8).expect("a launch");
    match sim::sass::run(cubin, &launch, sim::sass::Options::default()) {
        Err(SimError::Instruction { address, cause: Cause::Trap, .. }) => {
            let elf = contract::elf::Elf::new(cubin).unwrap();
            let here = |s: &&contract::elf::Symbol| {
                s.name.starts_with("$__internal_") && (s.value..s.value + s.size).contains(&address.into())
            };
            Some(elf.symbols.iter().find(here).map(|s| s.name.clone()).unwrap_or_default())
        }
        // Products with such operands are of no use; here it matters only that the code got there.
        _ => None,
    }
}

/// Our code of a program with checks.
fn ours(source: &str, target: Target, opt_level: u8) -> Result<Vec<u8>, String> {
    let extra = ori::Extra { tensor_checks: true, ..ori::Extra::default() };
    let settings = Settings { opt_level, extra, ..Settings::new(target) };
    compile(source, "k.ptx", &settings).map(|out| out.cubin).map_err(|e| e.render("test"))
}

/// ptxas's.
fn theirs(source: &str, name: &str, ptxas: &Path) -> Result<Vec<u8>, String> {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("k.ptx"), source).unwrap();
    let mut command = std::process::Command::new(ptxas);
    command.args(["-g-tmem-access-check", "-arch", name]).arg(at("k.ptx")).arg("-o").arg(at("k.cubin"));
    let run = command.output().unwrap();
    match run.status.success() {
        true => Ok(std::fs::read(at("k.cubin")).unwrap()),
        false => Err(String::from_utf8_lossy(&run.stderr).into_owned()),
    }
}

fn ptxas() -> Option<PathBuf> {
    std::env::var_os("OXPTXAS_ORACLES").map(|tools| PathBuf::from(tools).join("ptxas"))
}

fn differs(name: &str, (wanted, group, body): &(End, u32, String), ptxas: Option<&Path>) -> Option<String> {
    let (source, target) = (kernel(name, *group, body), Target::parse(name).unwrap());
    let same = |got: &Option<String>| match (wanted, got) {
        (None, None) => true,
        (Some(w), Some(g)) => g.ends_with(w),
        _ => false,
    };
    for opt_level in [3, 0] {
        let cubin = match ours(&source, target, opt_level) {
            Ok(cubin) => cubin,
            Err(e) => return Some(format!("{name} -O{opt_level}: {e}\n{source}")),
        };
        let hazards = sim::hazard::check_cubin(&cubin, sim::hazard::Minima::built_in()).unwrap();
        if let Some(h) = hazards.iter().find_map(|k| k.1.first()) {
            return Some(format!("{name} -O{opt_level}: {h}\n{source}"));
        }
        let got = end(&source, &cubin, target);
        if !same(&got) {
            return Some(format!("{name} -O{opt_level}: {got:?} instead of {wanted:?}: {body}"));
        }
    }
    let got = match theirs(&source, name, ptxas?) {
        Ok(cubin) => end(&source, &cubin, target),
        Err(e) => return Some(format!("{name}: {e}\n{source}")),
    };
    (!same(&got)).then(|| format!("{name}, ptxas: {got:?} instead of {wanted:?}: {body}"))
}

#[test]
fn programs_end_as_ptxas_has_it() {
    let ptxas = ptxas();
    let all: Vec<_> = ["sm_100a", "sm_103a", "sm_110a"]
        .into_iter()
        .flat_map(|name| programs().into_iter().map(move |p| (name, p)))
        .collect();
    let failures: Vec<String> =
        all.par_iter().filter_map(|(name, p)| differs(name, p, ptxas.as_deref())).collect();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), all.len(), failures.join("\n"));
}

/// A program of one statement at places and with a descriptor that are made up, many of them where rules end.
fn made_up(seed: u64) -> (u32, String) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let group = 1 + below(2);
    let [d, a, e, f, g] = [(); 5].map(|()| {
        let column = match below(8) {
            0..3 => below(10),
            3..5 => 54 + below(12),
            5 => 500 + below(16),
            6 => below(512),
            _ => 0,
        };
        format!("[ta + {}]", column + ([0, 0, 0, 0, 0, 16, 32, 64, 17][below(9)] << 16))
    });
    let (sparse, in_tensor, ws) = (below(2) == 1, below(2) == 1, group == 1 && below(4) == 0);
    let rows = [4, 8, 8, 16, 2][below(5)];
    let columns = if below(4) > 0 { below(8) } else { below(64) };
    let says = sparse != (below(8) == 0);
    let descriptor = rows << 24 | columns << 17 | usize::from(says) << 2 | 0x10;
    let setup = format!("xor.b32 e, t0, {descriptor:#x};\n@one tcgen05.mma");
    let (sp, metadata) = if sparse { (".sp", format!("{e}, ")) } else { ("", String::new()) };
    let a = if in_tensor { a } else { "da".into() };
    let body = match below(10) {
        0 => {
            let (shape, n) = [("16x64b.x1", 1), ("32x32b.x2", 2), ("16x128b.x2.pack::16b", 4)][below(3)];
            load(shape, n, &format!("tw + {}", [below(70), 500 + below(14)][below(2)]))
        }
        1 => {
            let shape = ["128x256b", "128x128b", "4x256b"][below(3)];
            format!("@one tcgen05.cp.cta_group::{group}.{shape} {d}, da;")
        }
        2 => format!("@one tcgen05.shift.cta_group::{group}.down {d};"),
        3..6 => {
            let kind = ["mxf8f6f4", "mxf4", "mxf4nvf4"][below(3)];
            let by = if kind == "mxf4nvf4" { ".block16" } else { "" };
            format!(
                "{setup}{sp}.cta_group::{group}.kind::{kind}.block_scale{by} {d}, {a}, db, {metadata}e, {f}, {g}, q;"
            )
        }
        _ => {
            let (ws, kind) = (if ws { ".ws" } else { "" }, ["f16", "tf32", "f8f6f4"][below(3)]);
            format!("{setup}{ws}{sp}.cta_group::{group}.kind::{kind} {d}, {a}, db, {metadata}e, q;")
        }
    };
    (group as u32, body)
}

/// Programs that are made up (`COUNT` of them from `SEED` on) end as ptxas's code of them does.
#[test]
fn made_up_programs_end_as_ptxas_has_it() {
    let Some(ptxas) = ptxas() else { return };
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |n| n.parse().unwrap());
    let (seed, count) = (number("SEED", 1), number("COUNT", 60));
    let ends = |seed: u64| {
        let name = ["sm_100a", "sm_103a", "sm_110a"][(seed % 3) as usize];
        let (group, body) = made_up(seed);
        let (source, target) = (kernel(name, group, &body), Target::parse(name).unwrap());
        let opt_level = if seed.is_multiple_of(4) { 0 } else { 3 };
        let both = [ours(&source, target, opt_level), theirs(&source, name, &ptxas)].map(|code| {
            let got = end(&source, &code.unwrap_or_else(|e| panic!("{seed}, {name}: {e}\n{source}")), target);
            got.map(|g| g.split("_trap_").nth(1).unwrap_or_default().to_string())
        });
        (both, format!("{seed}, {name}: {body}"))
    };
    let all: Vec<_> = (seed..seed + count).into_par_iter().map(ends).collect();
    let mut times = std::collections::BTreeMap::new();
    for ([got, _], _) in &all {
        *times.entry(got).or_insert(0) += 1;
    }
    println!("{times:?}");
    let failures: Vec<_> = all.iter().filter(|([a, b], _)| a != b).collect();
    assert!(failures.is_empty(), "{} of {}: {:#?}", failures.len(), all.len(), failures);
}

/// Debugged programs have the checks, unless they are switched off; others have them if they are asked for.
#[test]
fn who_has_checks() {
    let source = kernel("sm_100a", 1, &load("32x32b.x1", 1, "tw + 64"));
    let target = Target::parse("sm_100a").unwrap();
    for (options, wanted) in [
        (&["-arch=sm_100a"][..], false),
        (&["-arch=sm_100a", "-g-tmem-access-check"], true),
        (&["-arch=sm_100a", "-g"], true),
        (&["-arch=sm_100a", "-g", "-gno-tmem-access-check"], false),
        (&["-arch=sm_100a", "-g-tmem-access-check", "-gno-tmem-access-check"], false),
    ] {
        let cubin = compile(&source, "k.ptx", &Settings::parse(options).unwrap()).unwrap().cubin;
        assert_eq!(end(&source, &cubin, target).is_some(), wanted, "{options:?}");
    }
}

/// A kernel whose checks alone read the words that say what is taken has these words, in executables and objects.
#[test]
fn checks_alone_have_the_words() {
    let source = ".version 9.0\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u32 a)\n{\n.reg .b32 t;\n\
                  ld.param.u32 t, [a];\ntcgen05.shift.cta_group::1.down [t];\nret;\n}\n";
    for option in ["-O3", "-g", "-c"] {
        for (checks, wanted) in [("-g-tmem-access-check", true), ("-gno-tmem-access-check", false)] {
            let settings = Settings::parse(&["-arch=sm_100a", option, checks]).unwrap();
            let cubin = compile(source, "k.ptx", &settings).unwrap().cubin;
            let elf = contract::elf::Elf::new(&cubin).unwrap();
            let words = elf.symbols.iter().any(|s| s.name == "__nv_reservedSMEM_tcgen05_partition");
            assert_eq!(words, wanted, "{option} {checks}");
        }
    }
}
