//! The command lines, the programs that they compile, and the reasons for what differs.

use oxptxas::options::{Kind, OPTIONS, Opt};

/// Options that ptxas has not.
pub const OURS: &[&str] =
    &["diagnostics", "knob", "apply-controls", "list-arch", "query-controls", "verbose2"];

/// For which effects are looked at: one of each family of encodings and conventions.
pub const SMS: &[u32] = &[75, 90, 120];

/// A program.
pub struct Probe {
    pub name: &'static str,
    pub what: &'static str,
    pub text: &'static str,
    /// With these options.
    pub options: &'static [&'static str],
    /// Whether effects are looked at.
    pub effects: bool,
}

impl Probe {
    pub fn file(&self) -> String {
        format!("{}.ptx", self.name)
    }
}

const fn probe(
    name: &'static str,
    what: &'static str,
    text: &'static str,
    options: &'static [&'static str],
) -> Probe {
    Probe { name, what, text, options, effects: true }
}

const RICH: &str = include_str!("probes/rich.ptx");
const FUNCTIONS: &str = include_str!("probes/functions.ptx");
const LINES: &str = include_str!("probes/lines.ptx");

/// All programs.
pub const PROBES: &[Probe] = &[
    probe("k", "one load, product and store", include_str!("probes/k.ptx"), &[]),
    probe(
        "rich",
        "two kernels, functions, arrays in local memory, a loop, shared memory, doubles, atomics",
        RICH,
        &[],
    ),
    probe("functions", "functions only, one with an array in local memory", FUNCTIONS, &["-c"]),
    probe("lines", "a kernel with `.loc` and an inlined function", LINES, &[]),
    Probe {
        name: "bad",
        what: "an error",
        text: include_str!("probes/bad.ptx"),
        options: &[],
        effects: false,
    },
];

/// Other files that are there.
pub const FILES: &[(&str, &str)] = &[
    ("good.opt", "-v --opt-level 2\n"),
    ("bad.opt", "--frob\n"),
    ("trace", "{\"traceEvents\":[]}"),
    ("list", "[]"),
    ("stats", ""),
];

/// A command line.
pub struct Case {
    /// Which option it is about; a name of its own where it is about several.
    pub option: &'static str,
    pub args: Vec<String>,
    pub stdin: &'static str,
}

impl Case {
    /// As a user would type it, PTX left out.
    pub fn shown(&self) -> String {
        let word = |a: &String| {
            if a.contains('\n') {
                "PTX".into()
            } else if a.is_empty() {
                "''".into()
            } else {
                a.clone()
            }
        };
        self.args.iter().map(word).collect::<Vec<String>>().join(" ").replace('|', "\\|")
    }
}

/// Values that an option takes.
fn good(opt: &Opt) -> &'static [&'static str] {
    match (opt.long, opt.kind) {
        ("Ofast-compile", _) => &["0", "min", "mid", "max"],
        ("cloning", _) => &["yes", "no", "x"],
        ("compiler-stats", _) => &["t", "m", "p", "time,memory", "phase-wise"],
        ("compiler-stats-file", _) => &["stats"],
        ("fdevice-time-trace", _) => &["trace"],
        ("device-function-maxrregcount" | "maxrregcount", _) => &["archmax", "archmin", "32", "0x40", "255"],
        ("entry", _) => &["k", "k,k", ",k"],
        ("gpu-name", _) => {
            &["sm_75", "sm_90", "sm_90a", "sm_100f", "sm_121a", "compute_90", "lto_90", "lto_120a"]
        }
        ("input-as-string", _) => &[include_str!("probes/k.ptx")],
        ("maxntid", _) => &["128", "64,2", "1,2,3", "1024"],
        ("minnctapersm", _) => &["1", "2", "4"],
        ("opt-level", _) => &["0", "1", "2", "3"],
        ("options-file", _) => &["good.opt", "good.opt,good.opt"],
        ("output-file", _) => &["out", "./out"],
        ("register-usage-level", _) => &["0", "5", "10"],
        ("split-compile", _) => &["0", "1", "2", "8"],
        ("cuda-api-version", _) => &["13.0"],
        ("tool-name", _) => &["x"],
        ("key", _) => &["x", "0"],
        (_, Kind::Flag) => &[],
        (_, Kind::Bool) => &["true", "false"],
        (_, Kind::Number | Kind::LongNumber) => &["0", "1", "7"],
        (_, Kind::Word(words) | Kind::LateWord(words) | Kind::Words(words)) => words,
        (_, Kind::List | Kind::Repeated) => &["x"],
    }
}

/// Values that it does not, or takes with a word.
fn bad(opt: &Opt) -> &'static [&'static str] {
    match (opt.long, opt.kind) {
        ("maxntid", _) => &["0", "x", "1,2,3,4", "2000", "1024,1024", "1025", ",", "4294967297"],
        ("minnctapersm", _) => &["0", "-1", "100", "x", "08", "2147483648"],
        ("opt-level", _) => &["4", "5", "100", "-1", "x", "08", "2147483648", "3x"],
        ("register-usage-level", _) => &["11", "-1", "x", "2147483648"],
        ("device-function-maxrregcount" | "maxrregcount", _) => {
            &["0", "10", "23", "256", "300", "-1", "x", "99999999999"]
        }
        ("gpu-name", _) => {
            &["sm_70", "sm_99", "sm_107", "sm_75a", "compute_", "lto_70", "lto_", "90", "SM_90"]
        }
        ("output-file", _) => &["no/such/folder"],
        ("options-file", _) => &["nosuch", "bad.opt"],
        ("entry", _) => &["nosuch", "k,nosuch"],
        ("input-as-string", _) => &["x", include_str!("probes/bad.ptx")],
        ("cuda-api-version", _) => &["13", "12.0", "13.1", "x"],
        ("split-compile", _) => &["-1", "x", "2147483648"],
        ("fdevice-time-trace", _) => &["nosuch", "list", "k.ptx"],
        ("cloning" | "tool-name" | "key", _) => &[],
        (_, Kind::Flag) => &["1", "true"],
        (_, Kind::Bool) => &["yes", "1", "True", "x"],
        (_, Kind::Number | Kind::LongNumber) => &["x", "1.5", "99999999999999999999"],
        (_, Kind::Word(_) | Kind::LateWord(_) | Kind::Words(_) | Kind::List | Kind::Repeated) => {
            &["x", "nosuch"]
        }
    }
}

/// Lines about several options.
const TOGETHER: &[&str] = &[
    "-Ofc=min -O3 k.ptx",
    "-Ofc=mid -O1 k.ptx",
    "-Ofc=max -O0 k.ptx",
    "-Ofc=max -O2 k.ptx",
    "-Ofc=max --cloning=yes k.ptx",
    "-g -O0 k.ptx",
    "-g -O1 k.ptx",
    "-g -O3 k.ptx",
    "-g -Ofc=max k.ptx",
    "-g -lineinfo k.ptx",
    "-g -suppress-debug-info k.ptx",
    "-g -c k.ptx",
    "-g --dont-merge-basicblocks --return-at-end k.ptx",
    "-lineinfo -suppress-debug-info k.ptx",
    "-w -maxrregcount 10 k.ptx",
    "-Werror -maxrregcount 10 k.ptx",
    "-w -Werror -maxrregcount 10 k.ptx",
    "-Werror -w -k x k.ptx",
    "-Werror -k x k.ptx",
    "-Werror -O2 -O3 k.ptx",
    "-Werror -legacy-bar-warp-wide-behavior k.ptx",
    "-w -legacy-bar-warp-wide-behavior k.ptx",
    "-Werror -func-maxrregcount 32 k.ptx",
    "-Werror -warn-double-usage rich.ptx",
    "-w -warn-double-usage rich.ptx",
    "-Werror -warn-lmem-usage rich.ptx",
    "-Werror -regUsageLevel 11 k.ptx",
    "-Werror -suppress-debug-info k.ptx",
    "-Werror -maxntid=1,2,3,4 k.ptx",
    "-Werror -maxntid 2000 k.ptx",
    "-c -func-maxrregcount 10 functions.ptx",
    "-c -func-maxrregcount 300 functions.ptx",
    "-c -func-maxrregcount archmin functions.ptx",
    "-c -func-maxrregcount x functions.ptx",
    "-c -func-maxrregcount 32 -maxrregcount 64 functions.ptx",
    "-c -ewp k.ptx",
    "-c -astoolspatch functions.ptx",
    "-astoolspatch k.ptx",
    "-astoolspatch rich.ptx",
    "-c -annotate functions.ptx",
    "-c -pic=true k.ptx",
    "-c -sp-bounds-check functions.ptx",
    "-c -make-errors-visible-at-exit functions.ptx",
    "-c -v rich.ptx",
    "-v rich.ptx",
    "-v -maxrregcount 40 rich.ptx",
    "-arch=sm_90 -v rich.ptx",
    "-arch=sm_90 -maxntid 128 -minnctapersm 100 k.ptx",
    "-arch=sm_90 -maxntid 1024 -minnctapersm 2 k.ptx",
    "-arch=sm_90 -maxntid 1024 -minnctapersm 3 k.ptx",
    "-maxntid 1024 -minnctapersm 2 k.ptx",
    "-maxntid 128 -maxrregcount 32 k.ptx",
    "-maxntid 0 -maxrregcount 32 k.ptx",
    "-minnctapersm 2 -maxrregcount 32 k.ptx",
    "-maxntid 128 -minnctapersm 2 -maxrregcount 32 k.ptx",
    "-maxntid 128 -minnctapersm 2 -maxrregcount 32 -override-directive-values k.ptx",
    "-maxntid 128 -maxrregcount archmax k.ptx",
    "-dlcm=ca -flcm=cg k.ptx",
    "-jobserver -split-compile=4 rich.ptx",
    "--use-trace-pid=7 --fdevice-time-trace=trace k.ptx",
    "--compiler-stats-file=stats k.ptx",
    "--compiler-stats-file=stats --compiler-stats=t k.ptx",
    "-arch=compute_90 bad.ptx",
    "-arch=lto_90 bad.ptx",
    "-arch=lto_90 -c k.ptx",
    "-arch=compute_90 -v k.ptx",
    "-arch=sm_999 -arch=sm_90 k.ptx",
    "-arch=sm_80 -arch=sm_90 k.ptx",
    "-arch=sm_60 -c -",
    "-",
    "- k.ptx",
    "k.ptx rich.ptx",
    "k.ptx k.ptx",
    "k.ptx functions.ptx",
    "nosuch.ptx",
    "nosuch.ptx -v",
    "k.ptx nosuch.ptx",
    "bad.ptx",
    "-v",
    "-O3",
    "--",
    "---v k.ptx",
    "-Xptxas -v k.ptx",
    "-sanitize=memcheck -sanitize=threadsteer k.ptx",
    "-sanitize=memcheck -g k.ptx",
    "-g-tmem-access-check -gno-tmem-access-check k.ptx",
    "-h",
    "-h nosuch.ptx",
    "-V",
    "-V -h",
    "-version-ls",
    "-version-ls k.ptx",
    "-h --frob",
];

/// The effect of which values is looked at.
pub const EFFECTS: &[(&str, &[&str])] = &[
    ("Ofast-compile", &["-Ofc=min"]),
    ("allow-expensive-optimizations", &["--allow-expensive-optimizations=false"]),
    ("cloning", &["--cloning=yes"]),
    ("compiler-annotations", &["-annotate"]),
    ("def-load-cache", &["-dlcm=cg"]),
    ("def-store-cache", &["-dscm=wt"]),
    ("device-debug", &["-g"]),
    ("device-function-maxrregcount", &["-func-maxrregcount=24"]),
    ("device-stack-protector", &["-device-stack-protector=true"]),
    ("disable-optimizer-constants", &["-disable-optimizer-consts"]),
    ("dont-merge-basicblocks", &["-no-bb-merge"]),
    ("fmad", &["-fmad=false"]),
    ("force-load-cache", &["-flcm=cg"]),
    ("force-store-cache", &["-fscm=wt"]),
    ("g-tensor-memory-access-check", &["-g-tmem-access-check"]),
    ("generate-line-info", &["-lineinfo"]),
    ("gno-tensor-memory-access-check", &["-gno-tmem-access-check"]),
    ("jobserver", &["-jobserver"]),
    ("make-errors-visible-at-exit", &["-make-errors-visible-at-exit"]),
    ("maxntid", &["-maxntid=256"]),
    ("maxrregcount", &["-maxrregcount=24"]),
    ("minnctapersm", &["-minnctapersm=2"]),
    ("opt-level", &["-O1"]),
    ("optimize-float-atomics", &["-opt-fp-atomics"]),
    ("override-directive-values", &["-override-directive-values"]),
    ("position-independent-code", &["-pic=true"]),
    ("preserve-relocs", &["-preserve-relocs"]),
    ("regAllocOptLevel", &["--regAllocOptLevel=2"]),
    ("register-usage-level", &["-regUsageLevel=10"]),
    ("return-at-end", &["-ret-end"]),
    ("sanitize", &["-sanitize=threadsteer"]),
    ("sp-bounds-check", &["-sp-bounds-check"]),
    ("split-compile", &["-split-compile=4"]),
    ("suppress-debug-info", &["-suppress-debug-info"]),
    ("uumn", &["-uumn"]),
    ("force-rela", &["--force-rela"]),
    ("membermask-overlap", &["--membermask-overlap=true"]),
    ("blocks-are-clusters", &["--blocks-are-clusters=true"]),
    ("assume-extern-functions-do-not-sync", &["--assume-extern-functions-do-not-sync=true"]),
    ("verbose-tkinfo", &["--verbose-tkinfo=true"]),
    ("cuda-api-version", &["--cuda-api-version=13.0"]),
    ("fast-compile", &["--fast-compile"]),
    ("tool-name", &["--tool-name=x"]),
];

/// Why an option's rows differ.
pub const REASONS: &[(&str, &str)] = &[
    ("entry", "a kernel that is named twice is an internal error of ptxas's; it is compiled once"),
    ("preserve-relocs", "addresses other than those of `-c` are filled in, and a warning says so"),
    ("sanitize", "the checks of `memcheck` are a private interface to the driver: refused"),
    ("fast-compile", "hidden, and other code than that of `-Ofc`: refused"),
    ("force-rela", "hidden: refused"),
    ("search", "ours alone: ptxas does not know it"),
    ("blocks-are-clusters", "hidden: refused where ptxas takes it"),
    (
        "input-as-string",
        "several inputs are checked one by one, so that an error in one keeps conflicts with others from being named",
    ),
    ("warn-on-local-memory-usage", "functions that ptxas puts into their callers have frames of their own"),
    ("warn-on-spills", "ptxas counts registers that a function keeps for its caller, as they were spilled"),
    ("Ofast-compile", "`min` and `mid` mean `-O1`, which is other code"),
    ("register-usage-level", "a hint for heuristics that are not ours"),
    ("optimize-float-atomics", "a permission that is not made use of: results are as without it"),
    (
        "maxrregcount",
        "the probe's functions need fewer registers than the least limit, which ptxas gives them up to",
    ),
    ("device-function-maxrregcount", "as for `-maxrregcount`"),
    ("device-stack-protector", "refused for functions of objects that have local variables"),
    ("position-independent-code", "refused for objects whose code has addresses"),
    (
        "split-compile",
        "the order of functions does not depend on the number of threads, as it does in ptxas's file",
    ),
];

/// All command lines.
pub fn all() -> Vec<Case> {
    let stdin = PROBES[0].text;
    let mut out: Vec<Case> = Vec::new();
    for opt in OPTIONS.iter().filter(|o| !OURS.contains(&o.long)) {
        let mut add = |args: &[&str]| {
            let args = args.iter().map(|a| (*a).to_string()).collect();
            out.push(Case { option: opt.long, args, stdin });
        };
        let long = format!("--{}", opt.long);
        let short = format!("-{}", opt.short);
        let names =
            if opt.short.is_empty() { vec![long.as_str()] } else { vec![long.as_str(), short.as_str()] };
        let rest: &[&str] = if opt.long == "output-file" { &["k.ptx"] } else { &["k.ptx", "-o", "out"] };
        fn both<'a>(args: &[&'a str], rest: &[&'a str]) -> Vec<&'a str> {
            [args, rest].concat()
        }
        // Under the other name's dashes.
        add(&both(&[&format!("-{}", opt.long)], rest));
        for name in &names {
            // Last, without anything behind.
            add(&["k.ptx", name]);
            add(&both(&[name], rest));
            add(&both(&[&format!("{name}=")], rest));
            if opt.kind == Kind::Flag {
                add(&both(&[name, name], rest));
                add(&["-arch=sm_90", name, "k.ptx"]);
                add(&["-arch=sm_120", name, "rich.ptx"]);
                add(&[name, "lines.ptx", "-o", "out"]);
                add(&["-c", name, "functions.ptx"]);
            }
            for value in good(opt).iter().chain(bad(opt)) {
                add(&both(&[&format!("{name}={value}")], rest));
                add(&both(&[name, value], rest));
            }
        }
        for value in good(opt) {
            add(&both(&[&format!("{long}={value}"), &format!("{long}={value}")], rest));
            if opt.long != "gpu-name" {
                let file = if opt.long == "entry" { "k.ptx" } else { "rich.ptx" };
                add(&["-arch=sm_90", &format!("{long}={value}"), file]);
            }
        }
        if let [first, second, ..] = good(opt) {
            add(&both(&[&format!("{long}={first}"), &format!("{long}={second}")], rest));
        }
        // Attached, as `-O3` is.
        if let (Some(value), false) = (good(opt).first(), opt.short.is_empty()) {
            add(&both(&[&format!("{short}{value}")], rest));
        }
    }
    for line in TOGETHER {
        out.push(Case { option: "together", args: line.split(' ').map(String::from).collect(), stdin });
    }
    out
}
