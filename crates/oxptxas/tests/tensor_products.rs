//! Products in tensor memory of every kind: dense and sparse, of one block and of a pair, weight-stationary, scaled, with masks; compiled,
//! executed and compared with the interpreter. `FORMS=all` takes every statement of the table in several shapes.

use oxptxas::{Settings, compile};
use oxsass::verify::{self, Verdict};
use rayon::prelude::*;
use sass::Target;
use std::fmt::Write as _;

/// A launch of one cluster; its threads are as many as the kernels ask for.
const LAUNCH: u64 = 8;

fn wrong(source: &str, name: &str) -> Option<String> {
    let target = Target::parse(name).unwrap();
    let module = match verify::module(source, target) {
        Ok(m) => m,
        Err(e) => return Some(format!("{e:?}\n{source}")),
    };
    // With checks of what it touches, too, which these kernels pass.
    for (opt_level, tensor_checks) in [(3, false), (0, false), (3, true)] {
        let extra = ori::Extra { tensor_checks, ..ori::Extra::default() };
        let settings = Settings { opt_level, extra, ..Settings::new(target) };
        let cubin = match compile(source, "k.ptx", &settings) {
            Ok(out) => out.cubin,
            Err(e) => return Some(format!("{name} -O{opt_level}: {}\n{source}", e.render("test"))),
        };
        let hazards = sim::hazard::check_cubin(&cubin, sim::hazard::Minima::built_in()).unwrap();
        if let Some(h) = hazards.iter().find_map(|k| k.1.first()) {
            return Some(format!("{name} -O{opt_level}: {h}"));
        }
        // One of them with everything done as late as code allows.
        match verify::kernel_as((&module, source, &cubin), "k", LAUNCH..LAUNCH + 1, opt_level == 3) {
            Verdict::Same => {}
            v => return Some(format!("{name} -O{opt_level}: {v}\n{source}")),
        }
    }
    None
}

/// Every way to spell a product of a target, that the front end takes.
fn spellings(target: &str, sm: u16) -> Vec<&'static str> {
    let mut all = std::collections::BTreeSet::new();
    for form in ptx::isa::Op::tcgen05.forms().iter().filter(|f| f.on(sm, ptx::isa::Suffix::Arch)) {
        all.extend(form.spellings("tcgen05").into_iter().filter(|n| n.contains(".mma.")));
    }
    let taken =
        |name: &String| Form::spelled(name, 0).is_some_and(|(f, k)| ptx::parse(&f.source(k, target)).is_ok());
    all.into_iter().filter(taken).map(|n| &*n.leak()).collect()
}

/// What is multiplied: the kind, its elements and sums in the descriptor, a word of them and its bits that vary so that every element
/// is a number.
struct Kind {
    name: &'static str,
    formats: u32,
    unit: [u32; 2],
    /// Words of factors, if it is scaled.
    factors: Option<[u32; 2]>,
    /// Whether metadata are for chunks of two elements.
    pairs: bool,
}

const KINDS: &[Kind] = &[
    kind("f16", 0x10, [0x3c00_3c00, 0x8300_8300], None),
    kind("f16", 0, [0x3c00_3c00, 0x8300_8300], None),
    // Both signs the other way.
    kind("f16", 0x6490, [0x3f80_3f80, 0x8060_8060], None),
    Kind { pairs: true, ..kind("tf32", 0x910, [0x3f80_0000, 0x8060_0000], None) },
    kind("f8f6f4", 0x10, [0x3838_3838, 0x8484_8484], None),
    // E2M3 and E3M2, E2M1 and E5M2, E3M2 and E2M1.
    kind("f8f6f4", 0x1190, [0, !0], None),
    kind("f8f6f4", 0x2690, [0x3c3c_3c3c, 0x8181_8181], None),
    kind("f8f6f4", 0x5600, [0, !0], None),
    kind("i8", 0x4a0, [0, !0], None),
    kind("i8", 0xa8, [0, !0], None),
    kind(
        "mxf8f6f4.block_scale.block32",
        0x80_0000,
        [0x3838_3838, 0x8484_8484],
        Some([0x7f7f_7f7f, 0x0103_0102]),
    ),
    kind("mxf8f6f4.block_scale", 0x80_1690, [0, !0], Some([0x7f7f_7f7f, 0x0103_0102])),
    kind("mxf4.block_scale.block32", 0x80_0480, [0, !0], Some([0x7f7f_7f7f, 0x0103_0102])),
    kind("mxf4nvf4.block_scale.block32", 0x80_4480, [0, !0], Some([0x7f7f_7f7f, 0x0103_0102])),
    kind("mxf4nvf4.block_scale.block16", 0x480, [0, !0], Some([0x3838_3838, 0x0704_0703])),
    kind("mxf4nvf4.block_scale.block16", 0x80_2480, [0, !0], Some([0x7f7f_7f7f, 0x0103_0102])),
];

const fn kind(name: &'static str, formats: u32, unit: [u32; 2], factors: Option<[u32; 2]>) -> Kind {
    Kind { name, formats, unit, factors, pairs: false }
}

/// The rest of a statement.
#[derive(Clone, Copy, Default)]
struct Form {
    rows: u32,
    n: u32,
    pair: bool,
    in_tensor: bool,
    sparse: bool,
    stationary: bool,
    /// Lanes that are left alone, or columns that count as zeros.
    masked: bool,
    /// A scaled accumulator.
    halvings: u32,
    moves: bool,
    /// What collectors keep.
    kept: &'static str,
    /// A copy over A in tensor memory before.
    copied: &'static str,
    /// The whole instruction, instead of what these make.
    spelled: Option<&'static str>,
}

/// `{x0, x1, …}`
fn list(name: char, n: usize) -> String {
    let names: Vec<String> = (0..n).map(|i| format!("{name}{i}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// A word of noise in `v` of what is in `i`.
fn noise(out: &mut String, salt: u32) {
    let _ = writeln!(
        out,
        "add.u32 v, i, {salt}; mul.lo.u32 v, v, 0x9e3779b1; shr.u32 u, v, 15; xor.b32 v, v, u; mul.lo.u32 v, v, 0x85ebca6b; \
         shr.u32 u, v, 13; xor.b32 v, v, u;"
    );
}

/// Numbers that vary where `bits` has ones.
fn vary(out: &mut String, [unit, bits]: [u32; 2]) {
    let _ = writeln!(out, "and.b32 v, v, {bits:#x}; xor.b32 v, v, {unit:#x};");
}

/// Fills so many columns of a warp's lanes from `column` on with what `word` makes of `i`, which is the same in lanes a multiple of `period`
/// apart.
fn fill(out: &mut String, column: u32, count: u32, period: u32, word: &dyn Fn(&mut String, u32)) {
    for k in 0..count {
        let _ = writeln!(out, "and.b32 i, t, {};", period - 1);
        word(out, 1000 * column + 131 * k);
        let _ = writeln!(out, "mov.b32 x{k}, v;");
    }
    let _ = writeln!(
        out,
        "tcgen05.st.sync.aligned.32x32b.x{count}.b32 [tw + {column}], {};",
        list('x', count as usize)
    );
}

impl Form {
    /// One for an instruction of this name, the `n`-th: other shapes, elements, places, masks with each.
    fn spelled(name: &str, n: usize) -> Option<(Form, &'static Kind)> {
        let words: Vec<&str> = name.split('.').collect();
        let has = |w: &str| words.contains(&w);
        let kind = words.iter().find_map(|w| w.strip_prefix("kind::"))?;
        let by_16 = has("scale_vec::4X") || has("block16");
        let fits = |k: &&Kind| {
            let mut words = k.name.split('.');
            words.next() == Some(kind) && (k.name.contains("block16") == by_16)
        };
        let kinds: Vec<&Kind> = KINDS.iter().filter(fits).collect();
        let k = *kinds.get(n % kinds.len().max(1))?;
        let (pair, sparse, stationary) = (has("cta_group::2"), has("sp"), has("ws"));
        let moves = has("ashift");
        let heights: &[u32] = match () {
            () if stationary => &[32, 64, 128],
            () if pair && (sparse || moves) => &[256],
            () if pair => &[128, 256],
            () if sparse || moves || k.factors.is_some() => &[128],
            () => &[64, 128],
        };
        let widths: &[u32] = match () {
            () if stationary => &[64, 128],
            () if pair && kind == "i8" => &[32, 64],
            () if pair => &[16, 48],
            () => &[8, 32],
        };
        let form = Form {
            rows: heights[n % heights.len()],
            n: widths[n / 2 % widths.len()],
            pair,
            in_tensor: moves || n % 2 == 1,
            sparse,
            stationary,
            masked: k.factors.is_none() && n / 3 % 2 == 1,
            halvings: if matches!(kind, "f16" | "tf32") && !stationary { n as u32 % 4 * 5 } else { 0 },
            moves,
            ..Form::default()
        };
        Some((form, k))
    }

    fn source(self, k: &Kind, target: &str) -> String {
        let group = if self.pair { 2 } else { 1 };
        let mut out = format!(
            ".version 9.0\n.target {target}\n.address_size 64\n.shared .align 1024 .b8 m[32768];\n.shared .align 8 .b8 bar[8];\n\
             .shared .align 4 .b8 at[4];\n.visible .entry k(.param .u64 out)\n.reqntid 128{}\n{{\n",
            if self.pair { "\n.reqnctapercluster 2, 1, 1" } else { "" }
        );
        out += ".reg .pred p, q, one; .reg .b16 h; .reg .b32 t, w, r, e, s, b, i, u, v, ta, tw, x<32>, y<32>, z<8>; .reg .b64 po, a, da, db, zm;\n\
                mov.u32 t, %tid.x; shr.u32 w, t, 5; mov.u32 r, %cluster_ctarank; ld.param.u64 po, [out]; mad.lo.u32 v, r, 128, t;\n\
                mul.wide.u32 a, v, 512; add.u64 po, po, a; mov.u32 s, at; mov.u32 b, bar; setp.lt.u32 p, t, 32;\n";
        let _ = writeln!(
            out,
            "@p tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [s], 512;\n\
             @p tcgen05.relinquish_alloc_permit.cta_group::{group}.sync.aligned;\n\
             bar.sync 0; ld.shared.b32 ta, [s]; shl.b32 tw, w, 21; add.u32 tw, tw, ta;\n\
             mad.lo.u32 i, r, 77777, t;\nFILL:"
        );
        noise(&mut out, 5);
        vary(&mut out, k.unit);
        out += "mad.lo.u32 u, r, -77777, i; mov.u64 a, m; mul.wide.u32 da, u, 4; add.u64 a, a, da; st.shared.b32 [a], v;\n\
                add.u32 i, i, 128; add.u32 u, u, 128; setp.lt.u32 q, u, 8192; @q bra FILL;\n\
                setp.eq.u32 one, t, 0;\n@one mbarrier.init.shared::cta.b64 [b], 1;\n";
        // Units of 8 lines by 16 bytes: eight lines 128 bytes behind the ones before them, columns 8 KiB.
        out += "mov.u32 v, m; shr.u32 v, v, 4; cvt.u64.u32 da, v; add.u64 db, da, 0x40;\n\
                or.b64 da, da, 0x0000400802000000; or.b64 db, db, 0x0000400802000000;\n";
        // D, A, metadata, factors.
        let period = if self.pair && self.rows == 128 && !self.sparse { 64 } else { 128 };
        let period = if self.stationary { self.rows } else { period };
        for column in [0, 32, 128, 160] {
            fill(&mut out, column, 32, 128, &|out, salt| {
                noise(out, salt);
                match k.name {
                    "i8" => {}
                    _ if k.formats == 0 => vary(out, [0x4800, 0x8300]),
                    _ => vary(out, [0x4100_0000, 0x8070_0000]),
                }
            });
        }
        let elements = |out: &mut String, salt: u32| {
            noise(out, salt);
            vary(out, k.unit);
        };
        fill(&mut out, 256, 8, period, &elements);
        fill(&mut out, 264, 2, period, &|out, salt| {
            noise(out, salt);
            let some = if k.pairs { 0x4e4e_e44e } else { 0x4e9d_c8e4 };
            let _ = writeln!(out, "and.b32 v, v, 28; mov.b32 u, {some:#x}; shf.l.wrap.b32 v, u, u, v;");
        });
        if let Some(f) = k.factors {
            fill(&mut out, 272, 16, 32, &|out, salt| {
                noise(out, salt);
                vary(out, f);
            });
        }
        for word in 0..8 {
            let _ = writeln!(out, "add.u32 i, r, {word};");
            noise(&mut out, 99);
            let _ = writeln!(out, "mov.b32 z{word}, v;");
        }
        // Of B three columns, then five of zeros; each part begins elsewhere; the first column is the third.
        out += "mov.b64 zm, 0x0202048500010201;\n";
        out += "tcgen05.wait::st.sync.aligned;\nfence.proxy.async;\ntcgen05.fence::before_thread_sync;\n";
        out += if self.pair {
            "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
        } else {
            "bar.sync 0;\n"
        };
        out += "tcgen05.fence::after_thread_sync;\n";
        let mut descriptor = k.formats | (self.n >> 3) << 17 | (self.rows >> 4) << 24;
        if self.sparse {
            descriptor |= 1 << 2;
        }
        if self.stationary && self.masked {
            descriptor |= 1 << 30;
        }
        let _ = writeln!(out, "mov.b32 e, {descriptor:#x}; setp.eq.u32 one, t, 0;");
        if self.pair {
            out += "setp.eq.u32 q, r, 0; and.pred one, one, q;\n";
        }
        if self.moves {
            // A shift, the copy that goes well behind it, and the product are done in this order.
            let _ = writeln!(
                out,
                "@one tcgen05.shift.cta_group::{group}.down [ta + 256];\n@one tcgen05.cp.cta_group::{group}.4x256b [ta + 256], da;"
            );
        }
        if !self.copied.is_empty() {
            let _ = writeln!(out, "@one tcgen05.cp.cta_group::{group}.{} [ta + 256], da;", self.copied);
        }
        for (turn, adds) in [1, 0, 1].into_iter().enumerate() {
            // The second one goes elsewhere, so that what it leaves alone is seen.
            let d = if turn == 1 { "[ta + 128]" } else { "[ta]" };
            let mut name = String::from("tcgen05.mma");
            name += if self.stationary { ".ws" } else { "" };
            name += if self.sparse { ".sp" } else { "" };
            let _ = write!(name, ".cta_group::{group}.kind::{}", k.name);
            name += if self.moves { ".ashift" } else { "" };
            name += self.kept;
            let name = self.spelled.unwrap_or(&name);
            let _ = write!(out, "mov.u32 v, {adds}; setp.eq.u32 q, v, 1;\n@one {name} {d}, ");
            out += if self.in_tensor { "[ta + 256], db, " } else { "da, db, " };
            out += if self.sparse { "[ta + 264], " } else { "" };
            out += "e, ";
            out += if k.factors.is_some() { "[ta + 272], [ta + 280], " } else { "" };
            if self.masked && !self.stationary {
                let _ = write!(out, "{}, ", list('z', 4 * group));
            }
            out += "q";
            if self.masked && self.stationary {
                out += ", zm";
            }
            if self.halvings != 0 {
                let _ = write!(out, ", {}", self.halvings);
            }
            out += ";\n";
        }
        if self.pair {
            out += "mov.b16 h, 3;\n@one tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [b], h;\n";
        } else {
            out += "@one tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [b];\n";
        }
        out += "WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 q, [b], 0;\n@!q bra WAIT;\ntcgen05.fence::after_thread_sync;\n";
        // 16 of each 32 lanes may be all that was written.
        let columns: u32 = if self.stationary { self.n * self.rows / 128 } else { self.n };
        let mut stored = 0;
        for start in (0..columns.min(64)).step_by(32) {
            for base in [0, 128] {
                let _ = writeln!(
                    out,
                    "tcgen05.ld.sync.aligned.32x32b.x32.b32 {}, [tw + {}];\ntcgen05.wait::ld.sync.aligned;",
                    list('y', 32),
                    base + start
                );
                for c in 0..32 {
                    let _ = writeln!(out, "st.global.b32 [po+{}], y{c};", 4 * (stored + c));
                }
                stored += 32;
            }
        }
        out += "tcgen05.fence::before_thread_sync;\n";
        out += if self.pair {
            "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
        } else {
            "bar.sync 0;\n"
        };
        let _ = writeln!(out, "@p tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 ta, 512;\nret;\n}}");
        out
    }
}

/// All that is wrong with the code of these statements.
fn check(all: &[(Form, &Kind)], target: &str) {
    let sources: Vec<String> = all.iter().map(|(f, k)| f.source(k, target)).collect();
    let failures: Vec<String> = sources.par_iter().filter_map(|s| wrong(s, target)).collect();
    assert!(failures.is_empty(), "{} of {}: {}", failures.len(), all.len(), failures[0]);
}

/// Every kind with A in shared and in tensor memory.
fn all(forms: &dyn Fn(&Kind) -> Vec<Form>) -> Vec<(Form, &'static Kind)> {
    let both = |f: Form| [Form { in_tensor: false, ..f }, Form { in_tensor: true, ..f }];
    KINDS.iter().flat_map(|k| forms(k).into_iter().flat_map(both).map(move |f| (f, k))).collect()
}

/// Kinds whose products may be weight-stationary, or have masks.
fn plain(k: &Kind) -> bool {
    k.factors.is_none()
}

#[test]
fn dense_and_sparse() {
    let forms = |k: &Kind| {
        let heights: &[u32] = if plain(k) { &[64, 128] } else { &[128] };
        let mut out = Vec::new();
        for &rows in heights {
            out.push(Form { rows, n: 32, masked: plain(k), ..Form::default() });
        }
        out.push(Form { rows: 128, n: 48, sparse: true, masked: plain(k), ..Form::default() });
        out
    };
    check(&all(&forms), "sm_100a");
}

#[test]
fn pairs_of_blocks() {
    let forms = |k: &Kind| {
        let mut out = Vec::new();
        for (rows, sparse) in [(128, false), (256, false), (256, true)] {
            out.push(Form { rows, n: 64, pair: true, sparse, masked: plain(k), ..Form::default() });
        }
        out
    };
    check(&all(&forms), "sm_100a");
}

#[test]
fn weight_stationary() {
    let forms = |k: &Kind| {
        if !plain(k) {
            return vec![];
        }
        let mut out = Vec::new();
        let kept = [
            "",
            ".collector::b0::fill",
            ".collector::b1::discard",
            ".collector::b2::fill",
            ".collector::b3::lastuse",
            ".collector::b1::use",
        ];
        for (i, rows) in [32, 64, 128].into_iter().enumerate() {
            for (j, sparse) in [false, true].into_iter().enumerate() {
                let kept = kept[2 * i + j];
                out.push(Form {
                    rows,
                    n: 64,
                    stationary: true,
                    sparse,
                    masked: j != i % 2,
                    kept,
                    ..Form::default()
                });
            }
        }
        out
    };
    check(&all(&forms), "sm_100a");
}

/// Accumulators that are halved, rows of A that move on before and after, what collectors keep.
#[test]
fn more() {
    let mut all = Vec::new();
    for k in KINDS.iter().filter(|k| plain(k)) {
        for pair in [false, true] {
            let rows = if pair { 256 } else { 128 };
            let f = Form { rows, n: 32, pair, in_tensor: true, ..Form::default() };
            all.push((Form { moves: true, ..f }, k));
            all.push((
                Form { moves: true, sparse: true, masked: true, kept: ".collector::a::lastuse", ..f },
                k,
            ));
            if matches!(k.name, "f16" | "tf32") {
                all.push((Form { halvings: 3, masked: true, ..f }, k));
                all.push((
                    Form { halvings: 15, sparse: true, in_tensor: false, kept: ".collector::a::fill", ..f },
                    k,
                ));
                all.push((Form { halvings: 1, moves: true, ..f }, k));
            }
            all.push((Form { kept: ".collector::a::use", in_tensor: false, ..f }, k));
        }
    }
    check(&all, "sm_100a");
}

/// Each block of a pair copies from its own shared memory.
#[test]
fn copies_of_pairs() {
    let k = KINDS.iter().find(|k| k.name == "i8").unwrap();
    let shapes = [
        ["128x256b", "128x256b.b8x16.b6x16_p32", "128x256b.b8x16.b4x16_p64"],
        ["4x256b", "4x256b.b8x16.b6x16_p32", "4x256b.b8x16.b4x16_p64"],
        ["128x128b", "128x128b.b8x16.b6x16_p32", "128x128b.b8x16.b4x16_p64"],
        [
            "64x128b.warpx2::02_13",
            "64x128b.warpx2::02_13.b8x16.b6x16_p32",
            "64x128b.warpx2::02_13.b8x16.b4x16_p64",
        ],
        [
            "64x128b.warpx2::01_23",
            "64x128b.warpx2::01_23.b8x16.b6x16_p32",
            "64x128b.warpx2::01_23.b8x16.b4x16_p64",
        ],
        ["32x128b.warpx4", "32x128b.warpx4.b8x16.b6x16_p32", "32x128b.warpx4.b8x16.b4x16_p64"],
    ];
    let form = |copied| Form { rows: 256, n: 32, pair: true, in_tensor: true, copied, ..Form::default() };
    let all: Vec<_> = shapes.concat().into_iter().map(|copied| (form(copied), k)).collect();
    check(&all, "sm_100a");
}

#[test]
fn statements_of_the_table() {
    let (step, shapes) = if std::env::var_os("FORMS").is_some() { (1, 4) } else { (9, 1) };
    for (target, sm) in [("sm_100a", 100), ("sm_103a", 103)] {
        let names = spellings(target, sm);
        assert!(names.len() > 350, "{target}: {}", names.len());
        let some = names.iter().enumerate().step_by(step);
        let all = some.flat_map(|(i, name)| {
            (0..shapes).filter_map(move |s| {
                let (form, k) = Form::spelled(name, i / step + s * 7)?;
                Some((Form { spelled: Some(name), ..form }, k))
            })
        });
        check(&all.collect::<Vec<_>>(), target);
    }
}
