//! Small kernels: ptxas's cubins of them give in the SASS simulator what the PTX gives in the interpreter. The
//! interpreter's half runs everywhere, the other needs the vendor tools (`OXPTXAS_ORACLES`).

mod group;
mod matrix;
#[macro_use]
mod tile_cases;
mod tiles;

use sim::launch::{Launch, LaunchFile};
use sim::schedule::Schedule;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The folder of the vendor tools; `None` (said on standard error) where they are not installed.
fn oracles(test: &str) -> Option<PathBuf> {
    let folder = env::var_os("OXPTXAS_ORACLES").map(PathBuf::from);
    if folder.is_none() {
        assert!(env::var("CI").as_deref() != Ok("true"), "CI needs OXPTXAS_ORACLES");
        eprintln!("oracle tools not installed: skipped {test}");
    }
    folder
}

/// Threads of the block.
const THREADS: usize = 64;
/// Words of `in` that a kernel may read per thread, and of `out` that it may write.
const WORDS: usize = 32;

/// A kernel whose body finds the address of its thread's words of `in` in `%in`, those of `out` in `%out`,
/// `tid.x` in `%n`, and registers `%r<64>`, `%rd<64>`, `%f<64>`, `%h<32>`, `%p<16>`.
fn kernel(target: &str, body: &str) -> String {
    format!(
        ".version 8.8\n.target {target}\n.address_size 64\n{globals}\n\
         .visible .entry k(.param .u64 a, .param .u64 b) {{\n\
         .reg .b64 %rd<64>; .reg .b64 %in; .reg .b64 %out; .reg .b64 %t; .reg .b32 %r<64>; .reg .b32 %n;\n\
         .reg .f32 %f<64>; .reg .f64 %d<32>; .reg .b16 %h<32>; .reg .pred %p<16>; .reg .b128 %q<8>;\n\
         .shared .align 128 .b8 sh[8192];\n\
         ld.param.u64 %in, [a]; ld.param.u64 %out, [b];\n\
         cvta.to.global.u64 %in, %in; cvta.to.global.u64 %out, %out;\n\
         mov.u32 %n, %tid.x; mul.wide.u32 %t, %n, {bytes};\n\
         add.s64 %in, %in, %t; add.s64 %out, %out, %t;\n{body}\nret;\n}}\n",
        globals = if body.contains("vprintf") {
            ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
             .extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n\
             .global .align 1 .b8 text[12] = {105, 61, 37, 100, 32, 102, 61, 37, 46, 50, 102, 10};\n\
             .global .align 1 .b8 end[1] = {0};"
        } else {
            ""
        },
        bytes = 4 * WORDS,
    )
}

/// A launch of it: `input` says what `in` holds.
fn launch(input: &str) -> Launch {
    let text = format!(
        "[[launch]]\nkernel = 'k'\ngrid = [1, 1, 1]\nblock = [{THREADS}, 1, 1]\n\
         args = [{{ buffer = 'in' }}, {{ buffer = 'out' }}]\n\
         [launch.buffers.in]\ntype = 'u32'\nlength = {n}\nseed = 7\n{input}\n\
         [launch.buffers.out]\ntype = 'u32'\nlength = {n}\ncompare = 'exact'\n",
        n = THREADS * WORDS
    );
    LaunchFile::parse(&text).unwrap().launch.remove(0)
}

fn ptxas(tools: &Path, name: &str, ptx: &str, arch: &str, level: u8) -> Vec<u8> {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("both");
    fs::create_dir_all(&scratch).unwrap();
    let (input, output) = (scratch.join(format!("{name}.ptx")), scratch.join(format!("{name}.cubin")));
    fs::write(&input, ptx).unwrap();
    let run = Command::new(tools.join("ptxas"))
        .args([format!("-arch={arch}"), format!("-O{level}"), "-o".into()])
        .args([&output, &input])
        .output()
        .unwrap();
    assert!(run.status.success(), "{name}: {}", String::from_utf8_lossy(&run.stderr));
    fs::read(output).unwrap()
}

/// A kernel body, the targets that it is compiled for, and its input.
struct Case<'a> {
    name: &'a str,
    targets: &'a [&'a str],
    input: &'a str,
    body: &'a str,
}

/// Runs the cases.
fn check(test: &str, cases: &[Case<'_>]) {
    let tools = oracles(test);
    let mut errors = Vec::new();
    for case in cases {
        for target in case.targets {
            let source = kernel(target, case.body);
            errors.extend(run(tools.as_deref(), case.name, &source, target, &launch(case.input)));
        }
    }
    assert!(errors.is_empty(), "{} failures\n{}", errors.len(), errors.join("\n"));
}

/// Runs a kernel by definition, and as ptxas's code; what differs.
fn run(tools: Option<&Path>, name: &str, source: &str, target: &str, launch: &Launch) -> Vec<String> {
    let mut errors = Vec::new();
    let mut module = ptx::parse(source).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    lower::layout::place_params(&mut module, sass::Target::parse(target).unwrap());
    let after = sim::ptx::execute(&module, launch, 1 << 20)
        .unwrap_or_else(|e| panic!("{name}: {}", e.render(name, source)));
    let wanted = launch.collect(&after);
    assert!(wanted["out"].iter().any(|b| *b != 0), "{name}: writes nothing");
    // In a random order of the threads it is the same.
    let schedule = Schedule::Random(11);
    let options = sim::ptx::Options { schedule, ..Default::default() };
    let again = sim::ptx::execute_with(&module, launch, options).unwrap();
    launch.compare(&launch.collect(&again), &wanted).unwrap_or_else(|e| panic!("{name}: {e}"));
    for level in [0, 3] {
        let Some(tools) = tools else { continue };
        let cubin = ptxas(tools, name, source, target, level);
        for schedule in [Schedule::Turns, schedule] {
            // Some read shared memory that nothing has written: zeros in both.
            let options = sim::sass::Options { schedule, fill: 0, ..Default::default() };
            let run = sim::sass::run(&cubin, launch, options).map_err(|e| e.to_string());
            let result = run.and_then(|r| match r.output == after.output {
                true => launch.compare(&r.buffers, &wanted).map_err(String::from),
                false => Err(format!("prints {}, not {}", r.output.text(), after.output.text())),
            });
            if let Err(e) = result {
                errors.push(format!("{name} {target} -O{level} {schedule:?}: {e}"));
            }
        }
    }
    errors
}

const INTEGERS: &str = "random = [0, 4294967295]";

#[test]
fn driver_functions() {
    check(
        "driver_functions",
        &[Case {
            name: "vprintf",
            targets: &["sm_75", "sm_90", "sm_100", "sm_120"],
            input: INTEGERS,
            body: ".local .align 8 .b8 list[16]; .reg .b32 %len; ld.global.u32 %r0, [%in]; cvt.rn.f64.u32 %d0, %r0;\n\
               .global .align 1 .b8 fmt[16] = {105, 61, 37, 100, 32, 102, 61, 37, 46, 50, 102, 10, 0, 0, 0, 0};\n\
               mov.u64 %rd0, list; cvta.local.u64 %rd1, %rd0; st.local.u32 [%rd0], %r0; st.local.f64 [%rd0+8], %d0;\n\
               mov.u64 %rd2, fmt; cvta.global.u64 %rd2, %rd2;\n\
               setp.lt.u32 %p0, %n, 40; @!%p0 bra SKIP;\n\
               { .param .b64 x; .param .b64 y; .param .b32 r; st.param.b64 [x], %rd2; st.param.b64 [y], %rd1;\n\
                 call.uni (r), vprintf, (x, y); ld.param.b32 %r1, [r]; }\n\
               SKIP:\n\
               { .param .b64 m; .param .b64 r; st.param.b64 [m], 32; call.uni (r), malloc, (m); ld.param.b64 %rd3, [r]; }\n\
               st.u32 [%rd3+4], %r0; ld.u32 %r2, [%rd3+4];\n\
               { .param .b64 m; st.param.b64 [m], %rd3; call.uni free, (m); }\n\
               st.global.u32 [%out], %r2;",
        }],
    );
}

#[test]
fn barriers_in_shared_memory() {
    check(
        "barriers_in_shared_memory",
        &[
            Case {
                name: "mbarrier",
                targets: &["sm_90", "sm_100", "sm_120"],
                input: INTEGERS,
                body: ".shared .align 8 .b64 bar[2]; setp.ne.u32 %p0, %n, 0; @%p0 bra A;\n\
                   mbarrier.init.shared.b64 [bar], 64; mbarrier.init.shared.b64 [bar+8], 64;\n\
                   A: bar.sync 0; mov.u32 %r0, sh; shl.b32 %r1, %n, 2; add.u32 %r0, %r0, %r1; ld.global.u32 %r2, [%in];\n\
                   st.shared.u32 [%r0], %r2; mbarrier.arrive.shared.b64 %rd0, [bar];\n\
                   W: mbarrier.try_wait.shared.b64 %p1, [bar], %rd0; @!%p1 bra W;\n\
                   xor.b32 %r1, %r1, 0x84; mov.u32 %r3, sh; add.u32 %r3, %r3, %r1; ld.shared.u32 %r4, [%r3];\n\
                   mbarrier.arrive.expect_tx.shared.b64 %rd1, [bar+8], 16; mbarrier.complete_tx.shared.b64 [bar+8], 16;\n\
                   V: mbarrier.test_wait.parity.shared.b64 %p1, [bar+8], 0; @!%p1 bra V;\n\
                   mbarrier.pending_count.b64 %r5, %rd0; min.u32 %r5, %r5, 1; mbarrier.arrive_drop.shared.b64 _, [bar];\n\
                   U: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 1; @!%p1 bra U;\n\
                   st.global.v2.u32 [%out], {%r4, %r5};",
            },
            Case {
                name: "mbarrier80",
                targets: &["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"],
                input: INTEGERS,
                body: ".shared .align 8 .b64 bar[2]; setp.ne.u32 %p0, %n, 0; @%p0 bra A; mbarrier.init.shared.b64 [bar], 64;\n\
                   A: bar.sync 0; mov.u32 %r0, sh; shl.b32 %r1, %n, 2; add.u32 %r0, %r0, %r1;\n\
                   cp.async.ca.shared.global [%r0], [%in], 4; cp.async.mbarrier.arrive.shared.b64 [bar];\n\
                   mbarrier.arrive.shared.b64 %rd0, [bar];\n\
                   W: mbarrier.test_wait.shared.b64 %p1, [bar], %rd0; @!%p1 bra W;\n\
                   xor.b32 %r1, %r1, 0x84; mov.u32 %r3, sh; add.u32 %r3, %r3, %r1; ld.shared.u32 %r4, [%r3]; st.global.u32 [%out], %r4;",
            },
            Case {
                name: "bulk",
                targets: &["sm_90", "sm_100", "sm_120"],
                input: INTEGERS,
                body: ".shared .align 8 .b64 bar; setp.ne.u32 %p0, %n, 0; @%p0 bra A; mbarrier.init.shared.b64 [bar], 1;\n\
                   fence.mbarrier_init.release.cluster; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;\n\
                   cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [sh], [%in], 1024, [bar];\n\
                   A: bar.sync 0;\n\
                   W: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra W;\n\
                   mov.u32 %r0, sh; shl.b32 %r1, %n, 4; add.u32 %r0, %r0, %r1; ld.shared.v4.u32 {%r2,%r3,%r4,%r5}, [%r0];\n\
                   st.global.v4.u32 [%out], {%r2,%r3,%r4,%r5}; bar.sync 0; st.shared.u32 [%r0], %n; fence.proxy.async; bar.sync 0;\n\
                   @%p0 bra B; cp.async.bulk.global.shared::cta.bulk_group [%out+64], [sh], 64; cp.async.bulk.commit_group;\n\
                   cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out+16], [sh+64], 32; cp.async.bulk.wait_group 0;\n\
                   B: bar.sync 0;",
            },
            Case {
                name: "cluster",
                targets: &["sm_90", "sm_100"],
                input: INTEGERS,
                body: ".shared .align 8 .b64 bar; mov.u32 %r0, sh; shl.b32 %r1, %n, 4; add.u32 %r0, %r0, %r1; ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%in];\n\
                   mapa.shared::cluster.u32 %r6, %r0, 0; mov.u32 %r7, bar; mapa.shared::cluster.u32 %r7, %r7, 0;\n\
                   setp.ne.u32 %p0, %n, 0; @%p0 bra A; mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1536;\n\
                   A: barrier.cluster.arrive; barrier.cluster.wait;\n\
                   st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r6], {%r2,%r3,%r4,%r5}, [%r7];\n\
                   red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 [%r6+2048], %rd0, [%r7];\n\
                   W: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra W; barrier.cluster.arrive; barrier.cluster.wait;\n\
                   xor.b32 %r1, %r1, 0x210; mov.u32 %r8, sh; add.u32 %r8, %r8, %r1; ld.shared.v4.u32 {%r2,%r3,%r4,%r5}, [%r8];\n\
                   elect.sync %r9|%p2, 0xffffffff; selp.u32 %r10, 77, %r9, %p2;\n\
                   st.global.v4.u32 [%out], {%r2,%r3,%r4,%r5}; st.global.u32 [%out+16], %r10;",
            },
        ],
    );
}

#[test]
fn wide_and_packed_values() {
    check(
        "wide_and_packed_values",
        &[
            Case {
                name: "b128",
                targets: &["sm_90", "sm_100"],
                input: INTEGERS,
                body: "ld.global.v2.u64 {%rd0,%rd1}, [%in]; mov.b128 %q0, {%rd0,%rd1}; ld.global.v2.u64 {%rd2,%rd3}, [%in+16];\n\
                   mov.b128 %q1, {%rd2,%rd3}; st.global.b128 [%out], %q0; atom.global.exch.b128 %q2, [%out], %q1;\n\
                   atom.global.cas.b128 %q3, [%out], %q1, %q0; mov.b128 {%rd4,%rd5}, %q2; mov.b128 {%rd6,%rd7}, %q3;\n\
                   st.global.v2.u64 [%out+16], {%rd4,%rd5}; st.global.v2.u64 [%out+32], {%rd6,%rd7};",
            },
            Case {
                name: "f32x2",
                targets: &["sm_100", "sm_120"],
                input: "random = [1000000000, 1100000000]",
                body: "ld.global.v2.u64 {%rd0,%rd1}, [%in]; fma.rn.f32x2 %rd2, %rd0, %rd1, %rd0; add.rz.f32x2 %rd3, %rd2, %rd1;\n\
                   mul.rm.ftz.f32x2 %rd4, %rd3, %rd0; st.global.v2.u64 [%out], {%rd2,%rd3}; st.global.u64 [%out+16], %rd4;",
            },
            Case {
                name: "v8",
                targets: &["sm_100", "sm_120"],
                input: INTEGERS,
                body: "ld.global.v8.b32 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, [%in]; add.u32 %r0, %r0, %r7;\n\
                   st.global.v8.b32 [%out+32], {%r7,%r6,%r5,%r4,%r3,%r2,%r1,%r0}; st.global.v4.u32 [%out], {%r0,%r1,%r2,%r3};",
            },
            Case {
                name: "small",
                targets: &["sm_90", "sm_100", "sm_120"],
                input: INTEGERS,
                body: "ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%in]; mov.b32 {%h0,%h1}, %r0; cvt.rn.f16x2.e4m3x2 %r4, %h1; cvt.rn.f16x2.e5m2x2 %r5, %h0;\n\
                   cvt.sat.s8.s32 %r6, %r1; cvt.sat.u16.s32 %h2, %r2; cvt.u32.u16 %r7, %h2;\n\
                   add.u16x2 %r8, %r0, %r1; min.s16x2 %r9, %r8, %r2; max.u16x2 %r10, %r9, %r3;\n\
                   vabsdiff4.u32.u32.u32.add %r11, %r0, %r1, %r2;\n\
                   st.global.v4.u32 [%out], {%r4,%r5,%r6,%r7}; st.global.v4.u32 [%out+16], {%r8,%r9,%r10,%r11};",
            },
            Case {
                name: "spin",
                targets: &["sm_75", "sm_90", "sm_100", "sm_120"],
                input: "random = [1, 60]",
                body: "ld.global.u32 %r0, [%in]; cvt.rn.f32.u32 %f0, %r0; cvt.u64.u32 %rd0, %r0; mov.u64 %rd1, sh; cvta.shared.u64 %rd2, %rd1;\n\
                   atom.shared.add.f32 %f1, [sh], %f0; atom.shared.add.u64 %rd3, [sh+8], %rd0; atom.add.f32 %f2, [%rd2+16], %f0;\n\
                   atom.shared.max.u64 %rd4, [sh+24], %rd0; bar.sync 0; ld.shared.v2.u64 {%rd5,%rd6}, [sh]; ld.shared.v2.u64 {%rd7,%rd8}, [sh+16];\n\
                   st.global.v2.u64 [%out], {%rd5,%rd6}; st.global.v2.u64 [%out+16], {%rd7,%rd8};",
            },
        ],
    );
}

/// Both warps write a word without a barrier: who comes last depends on the order.
#[test]
fn random_schedules_show_races() {
    let source = kernel(
        "sm_90",
        "st.shared.u32 [sh], %n; st.shared.u32 [sh+4], %n; ld.shared.u32 %r1, [sh]; st.global.u32 [%out], %r1;",
    );
    let module = ptx::parse(&source).unwrap();
    let launch = launch(INTEGERS);
    let of = |schedule| {
        let options = sim::ptx::Options { schedule, ..Default::default() };
        launch.collect(&sim::ptx::execute_with(&module, &launch, options).unwrap())
    };
    let results: Vec<_> = (0..8).map(|seed| of(Schedule::Random(seed))).collect();
    assert!(results.iter().any(|r| *r != results[0]));
    assert_eq!(of(Schedule::Random(3)), results[3]);
    assert_eq!(of(Schedule::Turns), of(Schedule::Turns));
}

#[test]
fn clusters() {
    // Each block of a cluster of four writes its rank and number, the ranks of the others and what they have in their
    // shared memory, by address and by generic address, and what all of them have added there.
    let body = "mov.u32 %r0, %cluster_ctarank; mov.u32 %r1, %cluster_nctarank; mov.u32 %r2, %clusterid.x;\n\
        mov.u32 %r3, %cluster_ctaid.x; mov.u32 %r4, %cluster_nctaid.x; mov.u32 %r5, %nclusterid.x;\n\
        mov.u32 %r6, %ctaid.x; mul.lo.u32 %r7, %r6, 8192; cvt.u64.u32 %rd0, %r7; add.s64 %out, %out, %rd0;\n\
        st.global.v4.u32 [%out], {%r0,%r1,%r2,%r3}; st.global.v2.u32 [%out+16], {%r4,%r5};\n\
        mov.u32 %r8, sh; shl.b32 %r9, %n, 2; add.u32 %r8, %r8, %r9;\n\
        mad.lo.u32 %r10, %r6, 1000, %n; st.shared.u32 [%r8], %r10; st.shared.u32 [%r8+1024], %r6;\n\
        barrier.cluster.arrive.release; barrier.cluster.wait.acquire;\n\
        add.u32 %r11, %r0, 1; and.b32 %r11, %r11, 3; mapa.shared::cluster.u32 %r12, %r8, %r11;\n\
        ld.shared::cluster.u32 %r13, [%r12]; getctarank.shared::cluster.u32 %r14, %r12;\n\
        cvt.u64.u32 %rd1, %r8; cvta.shared.u64 %rd1, %rd1; add.u32 %r15, %r0, 2; and.b32 %r15, %r15, 3;\n\
        mapa.u64 %rd2, %rd1, %r15; ld.u32 %r16, [%rd2]; getctarank.u64 %r17, %rd2;\n\
        st.global.v4.u32 [%out+32], {%r13,%r14,%r16,%r17};\n\
        mov.u32 %r18, 0; mapa.shared::cluster.u32 %r19, %r8, %r18; mov.u32 %r20, 1;\n\
        red.shared::cluster.add.u32 [%r19+1024], %r20;\n\
        barrier.cluster.arrive; barrier.cluster.wait; ld.shared.u32 %r21, [%r8+1024]; st.global.u32 [%out+48], %r21;";
    let source =
        kernel("sm_90", body).replace("{\n.reg .b64 %rd", "\n.reqnctapercluster 4, 1, 1\n{\n.reg .b64 %rd");
    assert!(source.contains(".reqnctapercluster"));
    let text = format!(
        "[[launch]]\nkernel = 'k'\ngrid = [8, 1, 1]\nblock = [{THREADS}, 1, 1]\ncluster = [4, 1, 1]\n\
         args = [{{ buffer = 'in' }}, {{ buffer = 'out' }}]\n\
         [launch.buffers.in]\ntype = 'u32'\nlength = 1\nfill = 0\n\
         [launch.buffers.out]\ntype = 'u32'\nlength = {}\ncompare = 'exact'\n",
        8 * THREADS * WORDS
    );
    let launch = LaunchFile::parse(&text).unwrap().launch.remove(0);
    let module = ptx::parse(&source).unwrap();
    let after =
        sim::ptx::execute(&module, &launch, 1 << 20).unwrap_or_else(|e| panic!("{}", e.render("", &source)));
    let wanted = launch.collect(&after);
    let word = |block: usize, thread: usize, at: usize| {
        let from = (block * THREADS + thread) * 4 * WORDS + at;
        u32::from_le_bytes(wanted["out"][from..from + 4].try_into().unwrap())
    };
    for (block, thread) in [(0, 0), (3, 5), (6, 63)] {
        let (rank, cluster) = (block as u32 % 4, block as u32 / 4);
        let given: Vec<u32> = (0..6).map(|i| word(block, thread, 4 * i)).collect();
        assert_eq!(given, [rank, 4, cluster, rank, 4, 2]);
        let of = |rank: u32| (cluster * 4 + rank) * 1000 + thread as u32;
        let (next, second) = ((rank + 1) % 4, (rank + 2) % 4);
        let seen: Vec<u32> = (0..5).map(|i| word(block, thread, 32 + 4 * i)).collect();
        assert_eq!(seen, [of(next), next, of(second), second, block as u32 + if rank == 0 { 4 } else { 0 }]);
    }
    let Some(tools) = oracles("clusters") else { return };
    for target in ["sm_90", "sm_100", "sm_120"] {
        for level in [0, 3] {
            let cubin = ptxas(&tools, "clusters", &source, target, level);
            for schedule in [Schedule::Turns, Schedule::Random(5)] {
                let options = sim::sass::Options { schedule, ..Default::default() };
                let run =
                    sim::sass::run(&cubin, &launch, options).unwrap_or_else(|e| panic!("{target}: {e}"));
                launch.compare(&run.buffers, &wanted).unwrap_or_else(|e| panic!("{target} -O{level}: {e}"));
            }
        }
    }
}
