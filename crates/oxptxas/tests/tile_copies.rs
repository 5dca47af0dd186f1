//! Copies by tensor maps, every statement of the table; of columns of pixels, of narrow elements, and with other swizzles: our code gives what the interpreter does, at once and late.

#[path = "../../sim/tests/both/tile_cases.rs"]
mod cases;

use cases::{COLUMNS, UNITS, kernel, launch};
use oxptxas::{Settings, compile};
use rayon::prelude::*;
use sass::Target;

fn check(cases: &[(&str, &str, &str, &[&str])]) {
    for (map, cluster, body, targets) in cases {
        let launch = launch(map, cluster);
        for name in *targets {
            let (source, target) = (kernel(name, body), Target::parse(name).unwrap());
            let mut module = ptx::parse(&source).unwrap_or_else(|e| panic!("{e:?}"));
            lower::layout::place_params(&mut module, target);
            let after = sim::ptx::execute(&module, &launch, 1 << 20);
            let after = after.unwrap_or_else(|e| panic!("{}", e.render("test", &source)));
            let wanted = launch.collect(&after);
            for (opt_level, late) in [(0, false), (3, false), (3, true)] {
                let settings = Settings { opt_level, ..Settings::new(target) };
                let cubin =
                    compile(&source, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render("test")));
                let options = sim::sass::Options { fill: 0, late, ..Default::default() };
                let found = sim::sass::run(&cubin.cubin, &launch, options);
                let found = found.unwrap_or_else(|e| panic!("{name} -O{opt_level}: {e}\n{body}"));
                let same = launch.compare(&found.buffers, &wanted);
                same.unwrap_or_else(|e| panic!("{name} -O{opt_level}, late {late}: {e}\n{map}\n{body}"));
            }
        }
    }
}

#[test]
fn columns_of_pixels() {
    check(COLUMNS);
}

#[test]
fn narrow_elements_and_units_that_stay_together() {
    check(UNITS);
}

/// Every way to spell a copy by a tensor map on a target, that the front end takes, with what is around it.
fn spellings(target: &str, sm: u16) -> Vec<(String, &'static str, String)> {
    let suffix = if target.ends_with('a') { ptx::isa::Suffix::Arch } else { ptx::isa::Suffix::None };
    let mut all = std::collections::BTreeSet::new();
    for form in
        ptx::isa::Op::cp.forms().iter().filter(|f| f.on(sm, suffix) || f.on(sm, ptx::isa::Suffix::None))
    {
        all.extend(form.spellings("cp").into_iter().filter(|n| n.contains(".tensor.")));
    }
    let all = all.iter().filter_map(|name| spelled(name));
    // What the front end takes, and other targets do not have alone.
    let there = |source: &str| {
        let settings = Settings { opt_level: 0, ..Settings::new(Target::parse(target).unwrap()) };
        ptx::parse(source).is_ok()
            && compile(source, "k.ptx", &settings)
                .map_err(|e| e.render("test"))
                .err()
                .is_none_or(|e| !e.contains(" requires "))
    };
    // Copies to several blocks are calls of the driver's on sm_120, which nobody executes.
    let own = |cluster: &str| sm < 120 || cluster.is_empty();
    all.filter(|(_, cluster, body)| own(cluster) && there(&kernel(target, body))).collect()
}

/// The map, the cluster and the body of a kernel with an instruction of this name.
fn spelled(name: &str) -> Option<(String, &'static str, String)> {
    let words: Vec<&str> = name.split('.').collect();
    let has = |w: &str| words.contains(&w);
    let rank = (1..=5).find(|d| has(&format!("{d}d")))?;
    let (reduces, prefetches) = (has("reduce"), has("prefetch"));
    let stores =
        words.iter().position(|w| *w == "global") < words.iter().position(|w| w.starts_with("shared"));
    let loads = !stores && !prefetches;
    let columns = words.iter().find_map(|w| w.strip_prefix("im2col"));
    let rows = has("tile::gather4") || has("tile::scatter4");
    let multicast = has("multicast::cluster");
    let number = |w: &str| matches!(w, "inc" | "dec" | "and" | "or" | "xor");
    let (ty, first) = match () {
        () if words.iter().any(|w| number(w)) => ("u32", 8),
        () if reduces => ("s32", 8),
        () => ("f16", 16),
    };
    let list = |v: &[i64]| v.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let dims: &[i64] = match (rank, columns) {
        (1, _) => &[1000],
        (3, Some(_)) => &[first, 9, 14],
        (4, Some(_)) => &[first, 9, 7, 4],
        _ => &[first, 9, 7, 2, 2][..rank],
    };
    let (dims, strides, sizes): (&[i64], &[i64], &[i64]) = match () {
        () if rows => (&[60, 30], &[128], &[64, 1]),
        () if rank == 1 => (dims, &[], &[64]),
        () => (dims, &[32, 288, 2016, 4032][..rank - 1], &[first, 3, 2, 1, 1][..rank]),
    };
    let mut map = format!(
        "type = '{ty}', dims = [{}], strides = [{}], box = [{}]",
        list(dims),
        list(strides),
        list(if columns.is_some() { &[1; 5][..rank] } else { sizes })
    );
    let size = if ty == "f16" { 2 } else { 4 };
    let mut bytes = size * sizes.iter().product::<i64>() * if rows { 4 } else { 1 };
    if let Some(along) = columns {
        let inner = rank.checked_sub(2).filter(|n| *n > 0)?;
        let low = if stores { 0 } else { -1 };
        map += &format!(
            ", columns = {{ channels = 8, pixels = 20, lower = [{}], upper = [{}] }}",
            list(&[low; 3][..inner]),
            list(&[0; 3][..inner])
        );
        bytes = 8 * size * if along == "::w::128" { 128 } else { 20 };
    }
    // Coordinates inside for what is stored.
    let start = if stores { "%r7" } else { "%x" };
    let coordinates = match () {
        () if rows => vec!["0", start, "3", "7", "%r7"],
        () if columns == Some("") || columns == Some("_no_offs") => {
            ["0", start, start, "0"][..rank - 1].iter().copied().chain(["1"]).collect()
        }
        () if columns.is_some() => ["0", start, "1", "0"][..rank - 1].iter().copied().chain(["0"]).collect(),
        () if rank == 1 => vec!["%r7"],
        () => ["0", start, start, "0", "1"][..rank].to_vec(),
    };
    let tensor = format!("[%m, {{{}}}]", coordinates.join(", "));
    let mut operands = match (loads, prefetches) {
        (true, _) => format!("[%r8], {tensor}, [bar]"),
        (_, true) => tensor,
        _ => format!("{tensor}, [%s]"),
    };
    match columns {
        Some("") => operands += &format!(", {{{}}}", ["%h0", "%h1", "%h3"][..rank - 2].join(", ")),
        Some("_no_offs") | None => {}
        Some(_) => operands += ", {%h3, %h0}",
    }
    operands += if multicast { ", %h2" } else { "" };
    operands += if has("L2::cache_hint") { ", %pol" } else { "" };
    let mut body = String::from(
        ".reg .b64 %pol; createpolicy.fractional.L2::evict_first.b64 %pol, 1.0;\n\
         mov.b16 %h0, 1; mov.b16 %h1, 2; mov.b16 %h2, 3; mov.b16 %h3, 0; add.s32 %r7, %x, 1; mov.u32 %r8, %s;\n",
    );
    if multicast {
        body += "mov.u32 %r8, %cluster_ctarank; shl.b32 %r8, %r8, 11; add.u32 %r8, %r8, %s;\n";
    }
    let instruction = format!("{name} {operands};\n");
    match (loads, prefetches) {
        (true, _) => {
            let bytes = if multicast { 2 * bytes } else { bytes };
            body += &format!("mbarrier.arrive.expect_tx.shared.b64 %state, [bar], {bytes};\n{instruction}");
            body += "V: mbarrier.try_wait.shared.b64 %p1, [bar], %state; @!%p1 bra V;";
        }
        (_, true) => body += &instruction,
        _ => {
            body += &format!("{instruction}cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;");
        }
    }
    Some((map, if multicast { "cluster = [2, 1, 1]" } else { "" }, body))
}

/// Every statement of the table.
#[test]
fn statements_of_the_table() {
    for (target, sm) in [("sm_90", 90), ("sm_100a", 100), ("sm_103a", 103), ("sm_120", 120)] {
        let all = spellings(target, sm);
        assert!(all.len() > 300, "{target}: {}", all.len());
        all.par_iter().for_each(|(map, cluster, body)| check(&[(map, cluster, body, &[target])]));
    }
}
