//! Planted errors that the simulator's checks must find, and correct programs of which they must say nothing:
//! `programs.txt`.

use sim::launch::{Launch, LaunchFile};
use sim::sass::check::{Finding, Report};

/// Lines in front of every body.
const PRELUDE: &str = "\
.version 8.7
.target sm_90
.address_size 64
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.visible .entry k(.param .u64 out, .param .u64 in, .param .u64 raw) {
.reg .b32 %t, %b, %s, %a, %c, %d, %e; .reg .b16 %h; .reg .b64 %p<4>, %o, %i, %r, %q; .reg .pred %c<3>;
.shared .align 16 .b32 s[256];
ld.param.u64 %p1, [out]; ld.param.u64 %p2, [in]; ld.param.u64 %p3, [raw];
mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; cvt.u16.u32 %h, %t;
mad.wide.u32 %o, %t, 4, %p1; mad.wide.u32 %i, %t, 4, %p2; mad.wide.u32 %r, %t, 4, %p3;
mov.u32 %s, s; mad.lo.u32 %s, %t, 4, %s;
";

/// A program of the table.
struct Program<'a> {
    name: &'a str,
    checks: &'a str,
    launch: Launch,
    source: String,
    /// Line, check and text of what must be found.
    wanted: Vec<(u32, &'a str, &'a str)>,
    /// Lines and checks of what may be found.
    allowed: Vec<(u32, &'a str)>,
}

fn programs(table: &str) -> Vec<Program<'_>> {
    let starts = table.split("\n== ").skip(1);
    starts
        .map(|text| {
            let (head, body) = text.split_once('\n').unwrap();
            let [name, checks, blocks, threads] = head.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{head}");
            };
            let first = PRELUDE.lines().count() as u32 + 1;
            let marked = |mark: &'static str| {
                (first..).zip(body.lines()).filter_map(move |(n, l)| {
                    let (check, text) = l.split_once(mark)?.1.split_once(' ').unwrap_or(("", ""));
                    Some((n, check, text))
                })
            };
            let file = format!(
                "[[launch]]\nkernel = 'k'\ngrid = [{blocks}, 1, 1]\nblock = [{threads}, 1, 1]\n\
                 args = [{{ buffer = 'out' }}, {{ buffer = 'in' }}, {{ buffer = 'raw' }}]\n\
                 [launch.buffers.out]\ntype = 'u32'\nlength = 256\n\
                 [launch.buffers.in]\ntype = 'u32'\nlength = 256\niota = [0, 1]\n\
                 [launch.buffers.raw]\ntype = 'u32'\nlength = 256\nundefined = true\n"
            );
            Program {
                name,
                checks,
                launch: LaunchFile::parse(&file).unwrap().launch.remove(0),
                source: format!("{PRELUDE}{body}\nret; }}\n"),
                wanted: marked("//! ").collect(),
                allowed: marked("//? ").map(|(n, c, _)| (n, c)).collect(),
            }
        })
        .collect()
}

fn compile(p: &Program<'_>, sm: u8) -> Vec<u8> {
    let source = p.source.replace("sm_90", &format!("sm_{sm}"));
    let mut settings = oxptxas::Settings::new(sass::Target::new(sm).unwrap());
    settings.line_info = Some(true);
    oxptxas::compile(&source, p.name, &settings).unwrap_or_else(|f| panic!("{}", f.render(p.name))).cubin
}

fn check(p: &Program<'_>, cubin: &[u8]) -> Vec<Finding> {
    let mut report = Report::of(cubin);
    report.read_ptx(&p.source);
    let options = sim::sass::Options { checks: p.checks.parse().unwrap(), ..Default::default() };
    let run = sim::sass::checked(cubin, &p.launch, options, &mut report);
    if let Err(e) = &run {
        assert!(!report.findings.is_empty(), "{}: {e}", p.name);
    }
    report.findings
}

/// What is wrong with what the checks say of all programs, and how many planted errors there are.
fn judge(sm: u8, compile: impl Fn(&Program<'_>) -> Vec<u8>) -> (Vec<String>, usize) {
    let (mut wrong, mut planted) = (Vec::new(), 0);
    for p in programs(include_str!("programs.txt")) {
        // Of what there is before sm_90, barriers in memory are another matter there.
        if sm < 90 && !p.name.ends_with("that-is-tested") {
            continue;
        }
        let findings = check(&p, &compile(&p));
        // Of two accesses that race, whichever comes first in this run is the other one.
        let is = |f: &Finding, line: u32, check: &str| {
            let places = [Some(&f.place), f.other.as_ref()];
            places.iter().flatten().any(|p| p.line == Some(line)) && f.check.to_string() == check
        };
        for (line, check, text) in &p.wanted {
            planted += 1;
            if !findings.iter().any(|f| is(f, *line, check) && f.what.contains(text)) {
                wrong.push(format!("{} (sm_{sm}): line {line}: no '{check} … {text}'", p.name));
            }
        }
        let expected = |f: &Finding| {
            p.wanted.iter().any(|w| is(f, w.0, w.1)) || p.allowed.iter().any(|w| is(f, w.0, w.1))
        };
        wrong.extend(findings.iter().filter(|f| !expected(f)).map(|f| format!("{} (sm_{sm}): {f}", p.name)));
    }
    (wrong, planted)
}

#[test]
fn planted_errors_are_found_at_their_lines_and_nothing_else() {
    for (sm, errors) in [(80, 0), (90, 56), (120, 56)] {
        let (wrong, planted) = judge(sm, |p| compile(p, sm));
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(planted >= errors, "{planted} planted errors");
    }
}

/// Needs `OXPTXAS_ORACLES`.
#[test]
fn they_are_found_in_code_of_ptxas_too() {
    let Some(tools) = std::env::var_os("OXPTXAS_ORACLES") else { return };
    let folder = tempfile::tempdir().unwrap();
    for sm in [80, 90, 120] {
        let (wrong, _) = judge(sm, |p| {
            let (from, to) = (folder.path().join("k.ptx"), folder.path().join("k.cubin"));
            std::fs::write(&from, p.source.replace("sm_90", &format!("sm_{sm}"))).unwrap();
            let mut ptxas = std::process::Command::new(std::path::Path::new(&tools).join("ptxas"));
            ptxas.args(["-lineinfo", "-arch", &format!("sm_{sm}"), "-o"]).arg(&to).arg(&from);
            let done = ptxas.output().unwrap();
            assert!(done.status.success(), "{}: {}", p.name, String::from_utf8_lossy(&done.stderr));
            std::fs::read(&to).unwrap()
        });
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

#[test]
fn nothing_is_found_in_the_test_kernels() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut wrong = Vec::new();
    let mut launches = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let toml = path.with_extension("toml");
        if path.extension().is_none_or(|e| e != "ptx") || !toml.exists() {
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        let mut settings = oxptxas::Settings::new(sass::Target::new(90).unwrap());
        settings.line_info = Some(true);
        let Ok(compiled) = oxptxas::compile(&source, "k", &settings) else { continue };
        let file = LaunchFile::parse(&std::fs::read_to_string(&toml).unwrap()).unwrap();
        for launch in &file.launch {
            let mut report = Report::of(&compiled.cubin);
            report.read_ptx(&source);
            let checks = "all".parse().unwrap();
            let options = sim::sass::Options { checks, limit: u64::MAX, ..Default::default() };
            let run = sim::sass::checked(&compiled.cubin, launch, options, &mut report);
            launches += 1;
            run.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            wrong.extend(report.findings.iter().map(|f| format!("{}: {f}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(launches > 20, "{launches} launches");
}
