//! `setmaxnreg`: a kernel of three warp groups, of which one brings data and holds few registers, and two compute and hold many, executed as
//! our code and, where the tools are there, as ptxas's; what files state; where it is ignored.

use oxptxas::{Settings, compile};
use oxsass::verify;
use sass::{Inst, Opcode, Target};
use sim::launch::LaunchFile;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

const TARGETS: [&str; 4] = ["sm_90a", "sm_100a", "sm_103f", "sm_120a"];
/// Numbers that each thread that computes holds.
const HELD: usize = 190;
/// Numbers that each thread holds that brings data.
const BROUGHT: usize = 10;
const STAGES: u32 = 3;

const LAUNCH: &str = r#"
[[launch]]
kernel = "k"
grid = [2, 1, 1]
block = [384, 1, 1]
args = [{ buffer = "in" }, { buffer = "out" }, { i32 = 7 }]
[launch.buffers.in]
type = "u32"
length = 4096
random = [0, 4294967295]
[launch.buffers.out]
type = "u32"
length = 768
fill = 7
"#;

/// Threads of the first group bring a word each for every round, as stages are free; the others mix what they hold with it.
fn kernel(target: &str, bounds: &str, held: usize) -> String {
    let mut s = format!(
        ".version 9.0\n.target {target}\n.address_size 64\n.shared .align 16 .b8 data[{}];\n\
         .shared .align 8 .b8 full[{}];\n.shared .align 8 .b8 free[{}];\n\
         .visible .entry k(.param .u64 in, .param .u64 out, .param .u32 rounds) {bounds}\n{{\n\
         .reg .pred p, q, r; .reg .b32 t, g, n, i, s, ph, a, b, x, y, v<{held}>, w<{BROUGHT}>; .reg .b64 pi, po, z, st;\n\
         mov.u32 t, %tid.x; shr.u32 g, t, 7; ld.param.u32 n, [rounds];\n\
         setp.ne.u32 p, t, 0;\n@p bra READY;\n",
        512 * STAGES,
        8 * STAGES,
        8 * STAGES,
    );
    for k in 0..STAGES {
        let _ = writeln!(
            s,
            "mbarrier.init.shared::cta.b64 [full+{}], 128;\nmbarrier.init.shared::cta.b64 [free+{}], 256;",
            8 * k,
            8 * k
        );
    }
    s += "READY:\nbar.sync 0;\nmov.u32 i, 0; mov.u32 s, 0; mov.u32 ph, 0;\n\
          setp.ne.u32 p, g, 0;\n@p bra COMPUTE;\n\
          setmaxnreg.dec.sync.aligned.u32 24;\n\
          ld.param.u64 pi, [in]; mov.u32 x, %ctaid.x; mad.lo.u32 x, x, 128, t; mul.wide.u32 z, x, 4; add.u64 pi, pi, z;\n";
    for k in 0..BROUGHT {
        let _ = writeln!(s, "ld.global.u32 w{k}, [pi+{}];", 1024 * k);
    }
    s += "BRING:\nmov.u32 b, free; mad.lo.u32 b, s, 8, b; xor.b32 y, ph, 1;\n\
          WAITFREE:\nmbarrier.try_wait.parity.shared::cta.b64 q, [b], y;\n@!q bra WAITFREE;\n\
          mov.u32 a, data; mad.lo.u32 a, s, 512, a; mad.lo.u32 a, t, 4, a;\n";
    for k in 0..BROUGHT {
        let _ = writeln!(s, "mad.lo.u32 w{k}, w{k}, {}, w{};", 2 * k + 3, (k + 5) % BROUGHT);
    }
    s += "st.shared.u32 [a], w3;\nmov.u32 b, full; mad.lo.u32 b, s, 8, b;\n\
          mbarrier.arrive.shared::cta.b64 st, [b];\n";
    s += &next("BRING", "END");
    s += "COMPUTE:\nsetmaxnreg.inc.sync.aligned.u32 240;\n";
    for k in 0..held {
        let _ = writeln!(s, "mad.lo.u32 v{k}, t, {}, {};", 2 * k + 1, 77 * k + 5);
    }
    s += "TAKE:\nmov.u32 b, full; mad.lo.u32 b, s, 8, b;\n\
          WAITFULL:\nmbarrier.try_wait.parity.shared::cta.b64 q, [b], ph;\n@!q bra WAITFULL;\n\
          mov.u32 a, data; mad.lo.u32 a, s, 512, a; and.b32 x, t, 127; mad.lo.u32 a, x, 4, a; ld.shared.u32 x, [a];\n\
          mov.u32 b, free; mad.lo.u32 b, s, 8, b;\nmbarrier.arrive.shared::cta.b64 st, [b];\n";
    for k in 0..held {
        let _ = writeln!(s, "mad.lo.u32 v{k}, v{k}, x, v{};", (k + 7) % held);
    }
    s += &next("TAKE", "SUM");
    s += "SUM:\nmov.u32 y, 0;\n";
    for k in 0..held {
        let _ = writeln!(s, "mad.lo.u32 y, y, 31, v{k};");
    }
    s += "ld.param.u64 po, [out]; mov.u32 x, %ctaid.x; mad.lo.u32 x, x, 384, t; mul.wide.u32 z, x, 4; add.u64 po, po, z;\n\
          st.global.u32 [po], y;\nEND:\nret;\n}\n";
    s
}

/// The next round, of the next stage, until they are over.
fn next(again: &str, end: &str) -> String {
    format!(
        "add.u32 s, s, 1; setp.eq.u32 r, s, {STAGES}; @r mov.u32 s, 0; @r xor.b32 ph, ph, 1;\n\
         add.u32 i, i, 1; setp.lt.u32 r, i, n;\n@r bra {again};\nbra {end};\n"
    )
}

fn reference(source: &str, target: &str) -> Option<Vec<u8>> {
    let tools = PathBuf::from(std::env::var_os("OXPTXAS_ORACLES")?);
    let file = |ending: &str| {
        let name = format!("pool{}-{target}-{:?}.{ending}", std::process::id(), std::thread::current().id());
        std::env::temp_dir().join(name)
    };
    let (input, output) = (file("ptx"), file("cubin"));
    std::fs::write(&input, source).unwrap();
    let mut ptxas = Command::new(tools.join("ptxas"));
    let run = ptxas.arg(format!("-arch={target}")).arg(&input).arg("-o").arg(&output).output().unwrap();
    assert!(run.status.success(), "{}\n{source}", String::from_utf8_lossy(&run.stderr));
    let cubin = std::fs::read(&output).unwrap();
    let _ = (std::fs::remove_file(input), std::fs::remove_file(output));
    Some(cubin)
}

struct Ours {
    cubin: Vec<u8>,
    spilled: u32,
    said: Vec<String>,
}

fn ours(source: &str, target: &str, change: impl Fn(Settings) -> Settings) -> Ours {
    let settings = change(Settings::new(Target::parse(target).unwrap()));
    let out = compile(source, "k.ptx", &settings).unwrap_or_else(|e| panic!("{}", e.render("test")));
    Ours {
        spilled: out.kernels.iter().map(|k| k.spills.0).sum(),
        said: out.warnings.iter().map(|w| w.message.clone()).collect(),
        cubin: out.cubin,
    }
}

/// The registers that a file states for `k`, and its instructions.
fn code(cubin: &[u8], target: &str) -> (u32, Vec<Inst>) {
    let image = cubin::read::read(cubin).unwrap();
    let kernel = &image.kernels["k"];
    let target = Target::parse(target).unwrap();
    let words = kernel.code.iter().enumerate();
    let insts = words.map(|(k, w)| sass::decode(*w, target, 16 * k as i64).unwrap()).collect();
    (kernel.registers, insts)
}

fn changes(insts: &[Inst]) -> usize {
    insts.iter().filter(|i| matches!(i.op, Opcode::USETMAXREG | Opcode::USETMAXREG_ALLOC)).count()
}

fn check(cubin: &[u8], name: &str) {
    let hazards = sim::hazard::check_cubin(cubin, sim::hazard::Minima::built_in()).unwrap();
    if let Some(h) = hazards.iter().find_map(|k| k.1.first()) {
        panic!("{name}: {h}");
    }
}

const BOUNDS: &str = ".reqntid 384 .minnctapersm 1";

#[test]
fn groups_of_warps_give_registers_to_others() {
    let launch = &LaunchFile::parse(LAUNCH).unwrap().launch[0];
    for target in TARGETS {
        let source = kernel(target, BOUNDS, HELD);
        let module = verify::module(&source, Target::parse(target).unwrap()).unwrap();
        let expected = sim::ptx::run(&module, launch).unwrap();
        let mut files = Vec::new();
        for opt_level in [3, 0] {
            let out = ours(&source, target, |s| Settings { opt_level, ..s });
            assert_eq!(out.said, Vec::<String>::new(), "{target} -O{opt_level}");
            let (stated, insts) = code(&out.cubin, target);
            assert_eq!((stated, changes(&insts)), (168, 2), "{target} -O{opt_level}");
            check(&out.cubin, target);
            if opt_level == 3 {
                assert_eq!(out.spilled, 0, "{target}");
                // Without it they do not fit.
                let unknown = kernel(target, ".reqntid 384", HELD);
                assert!(ours(&unknown, target, |s| s).spilled > 100, "{target}");
            }
            files.push((format!("{target} -O{opt_level}"), out.cubin));
        }
        files.extend(reference(&source, target).map(|c| (format!("ptxas for {target}"), c)));
        for (name, cubin) in files {
            // ptxas's code keeps to it as well.
            assert_eq!(oxsass::pool::excesses(&cubin), Ok(Vec::new()), "{name}");
            for fill in [0, 9] {
                let options = sim::sass::Options { fill, ..sim::sass::Options::default() };
                let run = sim::sass::run(&cubin, launch, options).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert_eq!(run.buffers["out"], expected["out"], "{name}");
            }
        }
    }
}

/// A function that holds sixty numbers at once, and calls of it from threads that bring data and from those that compute.
fn with_calls(target: &str) -> String {
    let mut mix = String::from(
        ".func (.param .b32 r) mix(.param .b32 x)\n{\n.reg .b32 a, v<60>;\nld.param.u32 a, [x];\n",
    );
    for k in 0..60 {
        let _ = writeln!(mix, "mad.lo.u32 v{k}, a, {}, {};", 2 * k + 3, 5 * k + 1);
    }
    for k in (0..60).chain((0..60).rev()) {
        let _ = writeln!(mix, "mad.lo.u32 a, a, a, v{k};");
    }
    mix += "st.param.b32 [r], a;\nret;\n}\n.visible .entry";
    let call = |label: &str, of: &str| {
        format!(
            "{label}:\n{{ .param .b32 p; .param .b32 r; st.param.b32 [p], {of}; call (r), mix, (p); ld.param.b32 {of}, [r]; }}\n"
        )
    };
    kernel(target, BOUNDS, 100)
        .replace(".visible .entry", &mix)
        .replace("BRING:\n", &call("BRING", "w0"))
        .replace("TAKE:\n", &call("TAKE", "v0"))
}

/// Functions that are called by name have as many registers as their callers hold (ptxas 13.0.88).
#[test]
fn functions_keep_to_what_their_callers_hold() {
    let launch = &LaunchFile::parse(LAUNCH).unwrap().launch[0];
    for target in ["sm_90a", "sm_100a"] {
        let source = with_calls(target);
        let module = verify::module(&source, Target::parse(target).unwrap()).unwrap();
        let expected = sim::ptx::run(&module, launch).unwrap();
        let mut files = Vec::new();
        for opt_level in [3, 0] {
            let out = ours(&source, target, |s| Settings { opt_level, ..s });
            assert_eq!(out.said, Vec::<String>::new(), "{target} -O{opt_level}");
            let (stated, insts) = code(&out.cubin, target);
            assert_eq!((stated, changes(&insts)), (168, 2), "{target} -O{opt_level}");
            check(&out.cubin, target);
            files.push((format!("{target} -O{opt_level}"), out.cubin));
        }
        files.extend(reference(&source, target).map(|c| (format!("ptxas for {target}"), c)));
        for (name, cubin) in files {
            assert_eq!(oxsass::pool::excesses(&cubin), Ok(Vec::new()), "{name}");
            let run = sim::sass::run(&cubin, launch, sim::sass::Options::default());
            assert_eq!(
                run.unwrap_or_else(|e| panic!("{name}: {e}")).buffers["out"],
                expected["out"],
                "{name}"
            );
        }
    }
}

/// What is stated: what launch bounds leave, not more than is ever asked for (ptxas 13.0.88).
#[test]
fn files_state_what_threads_begin_with() {
    let body = |s: &str| {
        format!(
            ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 o) BOUNDS {{\n.reg .pred p; .reg .b32 t; .reg .b64 q;\n\
             mov.u32 t, %tid.x; setp.lt.u32 p, t, 128; ld.param.u64 q, [o];\n{s}\nst.global.u32 [q], t; ret; }}\n"
        )
    };
    let parted = "@p bra A;\nsetmaxnreg.inc.sync.aligned.u32 240;\nbra B;\nA:\nsetmaxnreg.dec.sync.aligned.u32 24;\nB:\n";
    let small = "setmaxnreg.inc.sync.aligned.u32 80;\nsetmaxnreg.inc.sync.aligned.u32 120;\n";
    let unreached = "bra A;\nsetmaxnreg.inc.sync.aligned.u32 80;\nA:\nsetmaxnreg.dec.sync.aligned.u32 40;\n";
    for (statements, bounds, stated) in [
        (parted, ".maxntid 384 .minnctapersm 1", 168),
        (parted, ".reqntid 384 .minnctapersm 1", 168),
        (parted, ".maxntid 300 .minnctapersm 1", 168),
        (parted, ".maxntid 384 .minnctapersm 3", 56),
        (parted, ".maxntid 256 .minnctapersm 1", 240),
        (parted, ".maxnreg 50", 50),
        (parted, ".maxnreg 20", 24),
        (parted, ".maxntid 384 .maxnreg 128", 128),
        (parted, ".maxntid 384 .minnctapersm 1 .maxnreg 128", 128),
        (small, ".maxntid 384 .minnctapersm 1", 120),
        (unreached, ".maxntid 384 .minnctapersm 1", 80),
    ] {
        let source = body(statements).replace("BOUNDS", bounds);
        let out = ours(&source, "sm_90a", |s| s);
        let (found, insts) = code(&out.cubin, "sm_90a");
        assert!(changes(&insts) > 0, "{bounds}");
        assert_eq!(found, stated, "{bounds} {statements}");
        if let Some(cubin) = reference(&source, "sm_90a") {
            assert_eq!(code(&cubin, "sm_90a").0, stated, "ptxas: {bounds} {statements}");
        }
    }
}

#[test]
fn where_it_is_ignored_that_is_said() {
    let whole = kernel("sm_90a", BOUNDS, 20);
    let unknown = kernel("sm_90a", ".reqntid 384", 20);
    let calls = |functions: &str, call: &str| {
        whole
            .replace(".visible .entry", &format!("{functions}\n.visible .entry"))
            .replace("BRING:\n", &format!("BRING:\n{call}\n"))
    };
    let again = ".func f();\n.func f() { .reg .pred p; .reg .b32 t; mov.u32 t, %clock; setp.ne.u32 p, t, 0; @p bra A; call f; A: ret; }";
    let itself = calls(again, "call f;");
    let pointed = calls(
        ".func f() { ret; }\n.global .u64 table[1] = {f};",
        "{ .reg .b64 a; ld.global.u64 a, [table]; P: .callprototype _ (); call a, P; }",
    );
    let same = |s: Settings| s;
    for (source, what, change) in [
        (&unknown, "(C7508)", &same as &dyn Fn(Settings) -> Settings),
        (&unknown, "(C7508)", &|s| Settings { max_registers: Some(128), ..s }),
        (&whole, "(C7504)", &|s| Settings { relocatable: true, ..s }),
        (&whole, "(C7505)", &|s| Settings { debug: true, opt_level: 0, ..s }),
        (&itself, "(C7506)", &same),
        (&pointed, "(C7506)", &same),
    ] {
        let out = ours(source, "sm_90a", change);
        let said = out.said.iter().find(|m| m.contains("setmaxnreg")).expect(what);
        assert!(said.contains(what), "{said}");
        assert!(said.contains("Potential Performance Loss: 'setmaxnreg' ignored"), "{said}");
        assert_eq!(changes(&code(&out.cubin, "sm_90a").1), 0, "{what}");
    }
}

/// A function that does nothing else, as a compiler makes it that does not inline, changes what its caller holds.
#[test]
fn functions_that_do_nothing_else_are_part_of_their_callers() {
    let functions = ".func give() { setmaxnreg.dec.sync.aligned.u32 24; ret; }\n\
        .func ask() { setmaxnreg.inc.sync.aligned.u32 240; }\n\
        .func both(.param .u32 n) { .reg .b32 r; ld.param.u32 r, [n]; setmaxnreg.dec.sync.aligned.u32 24; ret; }\n";
    for (target, opt_level) in [("sm_90a", 3), ("sm_90a", 0), ("sm_100a", 3), ("sm_120a", 3)] {
        let plain = kernel(target, BOUNDS, 20);
        let called = plain
            .replace("setmaxnreg.dec.sync.aligned.u32 24;", "call give;")
            .replace("setmaxnreg.inc.sync.aligned.u32 240;", "call ask;")
            .replace(".visible .entry", &format!("{functions}\n.visible .entry"));
        assert!(called.contains("call give;") && called.contains("call ask;"));
        let compiled = |source: &str| {
            let out = ours(source, target, |s| Settings { opt_level, ..s });
            (out.said, code(&out.cubin, target))
        };
        let ((said, (stated, insts)), (_, (wanted, of_plain))) = (compiled(&called), compiled(&plain));
        assert!(said.is_empty(), "{target} -O{opt_level}: {said:?}");
        assert_eq!((stated, changes(&insts)), (wanted, changes(&of_plain)), "{target} -O{opt_level}");
    }
    // One with a value is a function, for which all of the kernel's are ignored.
    let other = kernel("sm_90a", BOUNDS, 20)
        .replace(
            "setmaxnreg.dec.sync.aligned.u32 24;",
            "{ .param .u32 n; st.param.u32 [n], 1; call both, (n); }",
        )
        .replace(".visible .entry", &format!("{functions}\n.visible .entry"));
    let said = ours(&other, "sm_90a", |s| s).said;
    assert!(said.iter().any(|s| s.contains("C7506")), "{said:?}");
}

/// In objects it is said of every function that has the statement, called or not; whole programs that can be extended honour it
/// in kernels that call nothing.
#[test]
fn objects_say_it_of_functions() {
    let bounds = ".maxntid 128 .minnctapersm 1";
    let source = format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .func x();\n\
         .visible .func f() {{ setmaxnreg.dec.sync.aligned.u32 40; ret; }}\n\
         .visible .entry k() {bounds} {{ setmaxnreg.dec.sync.aligned.u32 40; ret; }}\n\
         .visible .entry calls() {bounds} {{ setmaxnreg.dec.sync.aligned.u32 40; call x; ret; }}\n\
         .visible .entry none() {bounds} {{ call f; ret; }}\n"
    );
    let compiled = |change: &dyn Fn(&mut Settings)| {
        let mut settings = Settings::new(Target::parse("sm_90a").unwrap());
        change(&mut settings);
        let out =
            oxptxas::compile(&source, "k.ptx", &settings).unwrap_or_else(|f| panic!("{}", f.render("k")));
        let said = out.warnings.iter().filter(|w| w.message.contains("setmaxnreg"));
        let said: Vec<String> = said
            .map(|w| w.message[1..6].to_string() + w.message.rsplit(':').next().unwrap_or_default())
            .collect();
        (said, out.cubin)
    };
    let (said, _) = compiled(&|s| s.relocatable = true);
    assert_eq!(said, ["C7504 'f'", "C7504 'k'", "C7504 'calls'"]);
    let (said, _) = compiled(&|s| (s.relocatable, s.debug, s.opt_level) = (true, true, 0));
    assert_eq!(said, ["C7505 'f'", "C7505 'k'", "C7505 'calls'"]);
    let (said, cubin) = compiled(&|s| s.extensible = true);
    // `f` is put into `none`, and nothing else calls it.
    assert_eq!(said, ["C7506 'calls'"]);
    // Code of k, with the statement.
    let image = cubin::read::read(&cubin).unwrap();
    let target = Target::parse("sm_90a").unwrap();
    let words = image.kernels["k"].code.iter().enumerate();
    let insts: Vec<_> = words.map(|(n, w)| sass::decode(*w, target, 16 * n as i64).unwrap()).collect();
    assert_eq!(changes(&insts), 1);
    assert_eq!(image.kernels["k"].registers, 255);
}
