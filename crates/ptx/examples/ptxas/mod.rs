//! What ptxas and we say of single statements, each one line of a module; shared by the examples that compare the
//! two.

use ptx::check::first_version;
use ptx::isa::Suffix;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The folder of ptxas: `OXPTXAS_ORACLES`.
pub fn tools() -> PathBuf {
    match std::env::var_os("OXPTXAS_ORACLES") {
        Some(dir) => dir.into(),
        None => {
            eprintln!("OXPTXAS_ORACLES is not set");
            std::process::exit(2)
        }
    }
}

/// `.version` and `.target` of a module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Header {
    pub version: (u8, u8),
    pub sm: u16,
    pub suffix: Suffix,
}

impl Header {
    pub fn new(version: (u8, u8), sm: u16, suffix: Suffix) -> Header {
        Header { version, sm, suffix }
    }

    fn name(self) -> String {
        let suffix = match self.suffix {
            Suffix::None => "",
            Suffix::Family => "f",
            Suffix::Arch => "a",
        };
        format!("{}{suffix}", self.sm)
    }

    /// What `-arch` takes for it.
    pub fn arch(self) -> String {
        if self.sm < 75 { "compute_75".into() } else { format!("compute_{}", self.name()) }
    }

    /// Whether `.version` knows the `.target`.
    pub fn exists(self) -> bool {
        self.version >= first_version(self.sm, self.suffix)
    }

    fn at_least(self, version: (u8, u8), sm: u16) -> bool {
        self.version >= version && self.sm >= sm
    }

    /// The text before the statements, one of every kind of symbol that this target has.
    pub fn prelude(self) -> String {
        let (major, minor) = self.version;
        let mut out = format!(".version {major}.{minor}\n.target sm_{}", self.name());
        out += if self.sm < 13 { ", map_f64_to_f32\n" } else { "\n" };
        if self.version >= (2, 3) {
            out += ".address_size 64\n";
        }
        out += ".global .align 32 .b8 gv[64];\n.const .align 16 .b8 cv[64];\n";
        if self.at_least((1, 5), 10) {
            out += ".global .texref tx;\n.global .surfref sf;\n";
        }
        let regs: &[(&str, &str)] = &[
            ("pred", "p"),
            ("b8", "b8r"),
            ("u8", "u8r"),
            ("s8", "s8r"),
            ("b16", "b16r"),
            ("u16", "u16r"),
            ("s16", "s16r"),
            ("f16", "f16r"),
            ("b32", "b32r"),
            ("u32", "u32r"),
            ("s32", "s32r"),
            ("f32", "f32r"),
            ("b64", "b64r"),
            ("u64", "u64r"),
            ("s64", "s64r"),
            ("f64", "f64r"),
        ];
        if self.at_least((2, 0), 20) {
            out += ".func ff() { ret; }\n.func (.param .b32 o) fg(.param .b32 i, .param .b64 j) { ret; }\n";
        }
        out += ".entry k(.param .u64 k0, .param .u32 k1)\n{\n";
        for (ty, name) in regs {
            out += &format!(".reg .{ty} {name}<260>;\n");
        }
        if self.at_least((8, 3), 70) {
            out += ".reg .b128 b128r<260>;\n";
        }
        if self.at_least((4, 2), 53) {
            out += ".reg .f16x2 f16x2r<260>;\n";
        }
        out += ".shared .align 16 .b8 sv[64];\n.local .align 16 .b8 lv[64];\nK:\n";
        if self.at_least((6, 0), 30) {
            out += "T: .branchtargets K;\n";
        }
        if self.at_least((2, 1), 20) {
            out += ".param .b32 pa, pr;\n.param .b64 pb;\n";
            out += "P: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b64 _);\n";
        }
        out
    }
}

/// What is said of a statement: nothing, or the first complaint.
pub type Verdict = Option<String>;

/// Our verdict.
#[allow(dead_code)]
pub fn ours(header: Header, statement: &str) -> Verdict {
    let text = format!("{}{statement}\nret;\n}}\n", header.prelude());
    match ptx::parse(&text).and_then(|m| ptx::check(&m, header.sm)) {
        Ok(()) => None,
        Err(errors) => Some(errors[0].message.clone()),
    }
}

/// The complaints in ptxas's output, by line; line 0 holds those without one.
pub fn complaints(stderr: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    for line in stderr.lines() {
        let located = line.split_once(", line ").and_then(|(_, rest)| {
            let (number, rest) = rest.split_once(';')?;
            let (kind, message) = rest.split_once(": ")?;
            matches!(kind.trim(), "error" | "fatal").then_some((number.parse().ok()?, message.to_string()))
        });
        if let Some(l) = located {
            out.push(l);
        } else if line.contains("fatal   :") && !line.contains("aborted due to errors") {
            out.push((0, line.to_string()));
        }
    }
    out
}

/// Runs ptxas on a file as far as its checks go.
pub fn run(ptxas: &Path, arch: &str, file: &Path) -> (bool, String) {
    let out = Command::new(ptxas)
        .arg("-arch")
        .arg(arch)
        .args(["-o", "/dev/null"])
        .arg(file)
        .output()
        .expect("ptxas runs");
    let text = String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout);
    (out.status.success(), text)
}

/// ptxas's verdicts on statements, one a line, that share a header. It says all it finds in one run; what it
/// refuses is left out and the rest is tried again, until there is nothing more to say.
fn ask(ptxas: &Path, file: &Path, header: Header, statements: &[&str]) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = vec![None; statements.len()];
    let prelude = header.prelude();
    let first = prelude.lines().count() + 1;
    loop {
        let live: Vec<usize> = (0..statements.len()).filter(|i| verdicts[*i].is_none()).collect();
        let mut text = prelude.clone();
        for i in &live {
            text += statements[*i];
            text += "\n";
        }
        text += "ret;\n}\n";
        std::fs::write(file, text).expect("a file of the target folder");
        let (ok, output) = run(ptxas, &header.arch(), file);
        if ok {
            return verdicts;
        }
        let found = complaints(&output);
        let mut known = false;
        for (line, message) in found {
            if let Some(i) = line.checked_sub(first).and_then(|n| live.get(n)) {
                known = true;
                verdicts[*i].get_or_insert(message);
            }
        }
        assert!(!live.is_empty(), "the prelude is wrong for {header:?}: {output}");
        if !known {
            // Something with the whole module: halves tell which statements are to blame.
            if live.len() == 1 {
                verdicts[live[0]] = Some(output.lines().next().unwrap_or("no reason").to_string());
                return verdicts;
            }
            for half in live.chunks(live.len().div_ceil(2)) {
                let part: Vec<&str> = half.iter().map(|i| statements[*i]).collect();
                for (i, v) in half.iter().zip(ask(ptxas, file, header, &part)) {
                    verdicts[*i] = v;
                }
            }
            return verdicts;
        }
    }
}

/// ptxas's verdicts on many statements, two batches at a time.
pub fn ask_all(ptxas: &Path, cases: &[(Header, &str)]) -> Vec<Verdict> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/ptxas-cases");
    std::fs::create_dir_all(&dir).expect("the target folder");
    let mut groups: BTreeMap<Header, Vec<usize>> = BTreeMap::new();
    for (i, (header, _)) in cases.iter().enumerate() {
        groups.entry(*header).or_default().push(i);
    }
    let batches: Vec<(Header, &[usize])> =
        groups.iter().flat_map(|(h, list)| list.chunks(400).map(|c| (*h, c))).collect();
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(vec![None; cases.len()]);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (next, verdicts, batches, dir) = (&next, &verdicts, &batches, &dir);
            scope.spawn(move || {
                let file = dir.join(format!("{}.{worker}.ptx", std::process::id()));
                while let Some((header, list)) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let statements: Vec<&str> = list.iter().map(|i| cases[*i].1).collect();
                    let answers = ask(ptxas, &file, *header, &statements);
                    let mut verdicts = verdicts.lock().expect("no panic");
                    for (i, v) in list.iter().zip(answers) {
                        verdicts[*i] = v;
                    }
                }
                let _ = std::fs::remove_file(&file);
            });
        }
    });
    verdicts.into_inner().expect("no panic")
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ z >> 31) as u128 * n as u128) >> 64) as usize
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}
