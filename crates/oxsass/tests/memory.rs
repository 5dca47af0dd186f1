//! Memory, synchronization and warp instructions: every form compiles, and what they do is what PTX says.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, str};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/memory").join(name)
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Compiles a file; the messages if that fails.
fn compile(ptx: &Path, sm: impl std::fmt::Display, level: u8, to: &Path) -> Result<(), String> {
    let target = sass::Target::parse(&format!("sm_{sm}")).unwrap();
    let settings = oxptxas::Settings { opt_level: level, ..oxptxas::Settings::new(target) };
    let source = fs::read_to_string(ptx).unwrap();
    let output = oxptxas::compile(&source, &ptx.display().to_string(), &settings);
    fs::write(to, output.map_err(|f| f.render("oxptxas"))?.cubin).unwrap();
    Ok(())
}

/// Simulates `name` on these targets at -O0 and -O3 and compares with the interpreter.
fn verify(name: &str, sms: &[u32]) {
    let sms: Vec<String> = sms.iter().map(u32::to_string).collect();
    verify_on(name, &sms.iter().map(String::as_str).collect::<Vec<_>>());
}

/// The same, on targets with a letter, too.
fn verify_on(name: &str, sms: &[&str]) {
    let source = fs::read_to_string(data(&format!("{name}.ptx"))).unwrap();
    for sm in sms {
        let at = source.find(".target sm_").unwrap() + ".target sm_".len();
        let text = format!("{}{sm}{}", &source[..at], &source[at + 2..]);
        let ptx = scratch(&format!("{name}.{sm}.ptx"));
        fs::write(&ptx, text).unwrap();
        for level in [0, 3] {
            let cubin = scratch(&format!("{name}.{sm}.{level}.cubin"));
            compile(&ptx, sm, level, &cubin).unwrap();
            let out = Command::new(env!("CARGO_BIN_EXE_oxsass"))
                .arg("verify")
                .args([&ptx, &cubin, &data(&format!("{name}.toml"))])
                .output()
                .unwrap();
            let said = str::from_utf8(&out.stdout).unwrap();
            assert_eq!(said, format!("{name}: same\n"), "sm_{sm} -O{level}: {out:?}");
        }
    }
}

#[test]
fn atomics_on_every_space() {
    verify("atoms", &[75, 80, 90, 100, 120]);
}

/// Reductions by groups of threads: of one mask each, all masks at once.
#[test]
fn reductions_by_mask() {
    verify("redux", &[80, 90, 100, 120]);
}

/// Signs of constants that count though their magnitude is taken, and constants of 64 bits.
#[test]
fn constant_operands() {
    verify("constants", &[86, 90, 100, 120]);
}

/// Addresses in the initial contents of global and constant variables.
#[test]
fn addresses_in_initial_contents() {
    verify("initial", &[75, 80, 90, 120]);
}

/// Memory below the frame, in a loop and given back.
#[test]
fn allocation_on_the_stack() {
    verify("alloca", &[75, 90, 120]);
    verify("alloca_call", &[75, 90, 120]);
}

/// Copies and reductions of contiguous bytes, of every thread and of some.
#[test]
fn bulk_copies() {
    verify("bulk", &[90, 100, 120]);
    verify("bulk_cluster", &[90, 100, 110]);
}

/// Tiles of tensors to shared memory and back, and added to what is there.
#[test]
fn tensor_copies() {
    verify("bulk_tensor", &[90, 100, 120]);
}

/// Rows that are named one by one, and some bytes of every 16.
#[test]
fn copies_of_rows() {
    verify_on("bulk_rows", &["100a", "103a", "110a"]);
}

#[test]
fn asynchronous_copies() {
    verify("cp", &[80, 90, 100, 120]);
}

/// Lanes of one warp take turns: those that wait must not starve the one that holds the lock.
#[test]
fn lock_within_a_warp() {
    verify("lock", &[75, 80, 90, 100, 120]);
}

/// `ldmatrix`, `movmatrix`.
#[test]
fn matrices() {
    verify("matrix", &[75, 80, 89, 90, 100, 120]);
}

/// `multimem`, `stmatrix`.
#[test]
fn multicast_objects() {
    verify("multimem", &[90, 100, 120]);
}

/// Dynamic shared memory comes behind what the file states for the kernel, its own reserved part and the gap before the
/// dynamic part included; the sizes are ptxas 13.0.88's.
#[test]
fn dynamic_shared_memory() {
    verify("dynamic", &[75, 89, 90, 100, 120]);
    for (sm, sizes) in [(75, [0x400, 0]), (90, [0x800, 0x400]), (120, [0x800, 0x400])] {
        let image = cubin::read::read(&fs::read(scratch(&format!("dynamic.{sm}.3.cubin"))).unwrap()).unwrap();
        let of = |name: &str| image.kernels[name].shared_bytes;
        assert_eq!([of("dynamic"), of("none")], sizes, "sm_{sm}");
    }
}

const HEAD: &str = ".extern .shared .align 16 .b8 dyn[];
.const .align 16 .b8 cbuf[256];
.global .align 16 .b8 gbuf[256];
";

const BODY: &str = ".shared .align 16 .b8 sbuf[256];
.local .align 16 .b8 lbuf[128];
.reg .b8 %c<4>; .reg .b16 %h<20>; .reg .b32 %r<60>; .reg .b64 %rd<60>; .reg .f32 %f<20>; .reg .f64 %fd<8>;
.reg .pred %p<8>; .reg .b128 %q<4>;
ld.param.u64 %rd0,[pa]; ld.param.u64 %rd1,[pb]; ld.param.u32 %r0,[pc]; ld.param.u32 %r1,[pd];
cvta.to.global.u64 %rd2,%rd0; ld.param.f32 %f0,[pc]; ld.param.f64 %fd0,[pa]; cvt.u16.u32 %h0,%r0;
cvt.u16.u32 %h1,%r1; setp.lt.u32 %p0,%r0,%r1; mov.b128 %q0,{%rd0,%rd1}; mov.b128 %q1,{%rd1,%rd0};
";

/// Whether a form from `from` on (`80`, or `100a` for this target alone) is for `target`.
fn is_for(from: &str, target: &str) -> bool {
    let number = |s: &str| s.trim_end_matches('a').parse::<u32>().unwrap();
    from == target || !from.ends_with('a') && number(from) <= number(target)
}

#[test]
fn every_form_compiles() {
    let forms = fs::read_to_string(data("forms.txt")).unwrap();
    for target in ["75", "80", "90", "120", "100a"] {
        let mut text = format!(".version 9.0\n.target sm_{target}\n.address_size 64\n{HEAD}");
        let mut count = 0;
        for line in forms.lines().filter(|l| !l.starts_with('#')) {
            let (from, form) = line.split_once(' ').unwrap();
            // Of sm_100a, what only it has, or nothing before it.
            let new = from.trim_end_matches('a').parse::<u32>().unwrap() >= 100;
            if is_for(from, target) && (new || target != "100a") {
                let params = ".param .u64 pa,.param .u64 pb,.param .u32 pc,.param .u32 pd";
                writeln!(text, ".visible .entry k{count}({params})\n{{\n{BODY}{form}\nret;\n}}").unwrap();
                count += 1;
            }
        }
        assert!(count > 20);
        let ptx = scratch(&format!("forms.{target}.ptx"));
        fs::write(&ptx, text).unwrap();
        compile(&ptx, target, 3, &scratch("forms.cubin")).unwrap();
    }
}

/// Calls of functions that only the driver has, and of one that allocates, on every target.
#[test]
fn calls_of_the_driver() {
    let source = "
.version 9.0
.target sm_75
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 list);
.global .align 1 .b8 text[4] = {37, 100, 10, 0};
.visible .entry k(.param .u32 n)
{
  .local .align 8 .b8 list[8];
  .reg .b64 %rd<4>; .reg .b32 %r<3>;
  ld.param.u32 %r0, [n];
  cvt.u64.u32 %rd0, %r0;
  alloca.u64 %rd1, %rd0;
  st.local.u32 [list], %r0;
  mov.u64 %rd2, list; cvta.local.u64 %rd2, %rd2;
  mov.u64 %rd3, text; cvta.global.u64 %rd3, %rd3;
  { .param .b64 p; .param .b64 q; .param .b32 r;
    st.param.b64 [p], %rd3; st.param.b64 [q], %rd2;
    call (r), vprintf, (p, q); ld.param.b32 %r1, [r]; }
  ret;
}
";
    for sm in [75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121] {
        let ptx = scratch(&format!("driver.{sm}.ptx"));
        fs::write(&ptx, source).unwrap();
        for level in [0, 3] {
            compile(&ptx, sm, level, &scratch("driver.cubin")).unwrap();
        }
    }
}

/// A function that saves and restores a convergence barrier around a short region: no hazard between its BSSY and BMOV.
#[test]
fn restored_convergence_barriers() {
    let source = "
.version 9.0
.target sm_75
.address_size 64
.func none(.param .b32 n)
{
}
.func f(.param .b32 n)
{
  .reg .pred %p<1>; .reg .b32 %r<2>; .reg .f64 %d<2>;
  mov.u32 %r0, %tid.x;
  cvt.rn.f64.s32 %d0, %r0; cvt.rn.f64.s32 %d1, %r0;
  setp.gtu.f64 %p0, %d1, %d0;
  @%p0 bra over;
  { .param .b32 a; st.param.b32 [a], %r0; call.uni none, (a); }
over:
  ret;
}
.visible .entry k()
{
  { .param .b32 a; st.param.b32 [a], 1; call.uni f, (a); }
  ret;
}
";
    for sm in [75, 80, 86, 90, 100, 120] {
        let (ptx, cubin) = (scratch(&format!("barrier.{sm}.ptx")), scratch(&format!("barrier.{sm}.cubin")));
        fs::write(&ptx, source).unwrap();
        for level in [0, 3] {
            compile(&ptx, sm, level, &cubin).unwrap();
            let oxsass = env!("CARGO_BIN_EXE_oxsass");
            let out = Command::new(oxsass).arg("check").arg(&cubin).output().unwrap();
            assert!(out.status.success(), "sm_{sm} -O{level}: {}", String::from_utf8_lossy(&out.stdout));
        }
    }
}
