//! What the options mean together: conflicts, limits, and the settings that come of them.

use super::Stopped;
use super::voice::Voice;
use crate::directives::{Directives, cache_operator};
use crate::files;
use crate::jobserver::Tokens;
use crate::knobs::Knobs;
use crate::options::{CommandLine, Error, leading_number, number};
use crate::timeline::Wanted;
use crate::{Asked, Settings};
use ori::Extra;
use sass::Target;
use sass::target::LEAST_LIMIT;
use std::ffi::OsString;

/// What options limit.
pub(super) struct Limits {
    /// Registers of kernels, and of functions of executables.
    kernels: Option<u32>,
    /// Registers of device functions of objects.
    functions: Option<u32>,
    /// The level of optimization.
    level: u8,
}

/// The register limits that ptxas 13.0.88 takes for `archmin` and `archmax`, on all targets.
const ARCH_MIN: u32 = 32;
const ARCH_MAX: u32 = 255;

/// A part of a trace that is asked for without one: said where there is nothing to compile, too.
pub(super) fn of_trace(line: &CommandLine, voice: &Voice<'_>) {
    if line.has("ftrace-phase-after") && !line.has("fdevice-time-trace") {
        voice.remark(
            "Option '--ftrace-phase-after' requires option '--fdevice-time-trace'; ignoring since latter is not specified",
        );
    }
}

/// Warns of options that are in vain or against each other, in ptxas's order.
///
/// # Errors
/// The end of the run where that is fatal.
pub(super) fn limits(line: &CommandLine, target: Target, voice: &Voice<'_>) -> Result<Limits, Stopped> {
    if line.has("compile-only") && line.has("extensible-whole-program") {
        voice.warn("Conflicting options '--compile-only' and '--extensible-whole-program' specified, ignoring '--extensible-whole-program' option",
        );
    }
    if line.has("preserve-relocs") {
        // What an object needs is there anyway. ptxas lists the other addresses, which are filled in, up to sm_89 only.
        if target.sm >= 90 || !line.has("compile-only") {
            voice.warn(&format!(
                "'--preserve-relocs' option is not fully implemented for '{target}' and may not work as expected"
            ));
        }
    }
    let limit = |option: &str| -> Result<Option<u32>, Stopped> {
        let text = match line.value(option) {
            None => return Ok(None),
            Some("archmax") => return Ok(Some(ARCH_MAX)),
            Some("archmin") => return Ok(Some(ARCH_MIN)),
            Some(text) => text,
        };
        let n = registers(text)
            .ok_or_else(|| voice.stopped(format!("Invalid value '{text}' for option '{option}'")))?;
        if !(0..256).contains(&n) {
            voice.warn(&format!("Too big maxrregcount value specified {n}, will be ignored"));
        } else if n < LEAST_LIMIT.into() {
            voice.warn(&format!(
                "For profile {target} adjusting per thread register count of {n} to lower bound of {LEAST_LIMIT}"
            ));
        }
        // What is ignored is a limit all the same: the highest.
        Ok(Some(u32::try_from(n).map_or(ARCH_MAX, |n| n.clamp(LEAST_LIMIT.into(), ARCH_MAX))))
    };
    let kernels = limit("maxrregcount")?;
    let functions = match (line.has("device-function-maxrregcount"), line.has("compile-only")) {
        (true, true) => limit("device-function-maxrregcount")?,
        (true, false) => {
            voice.warn("Command line option 'device-function-maxrregcount' not supported for 'whole program compilation', will be ignored",
            );
            None
        }
        (false, _) => None,
    };
    if let Some(n) = line.number("register-usage-level").filter(|n| !(0..=10).contains(n)) {
        voice.warn(&format!(
            "Value of RegUsageLevel ({n}) is out of valid range {{0..10}}, option will be ignored"
        ));
    }
    if line.number("use-trace-pid").is_some_and(|n| n != 0) && !line.has("fdevice-time-trace") {
        voice.remark("Option '--use-trace-pid', ' requires option '--fdevice-time-trace'; ignoring since latter is not specified",
        );
    }
    of_trace(line, voice);
    if line.value("sanitize") == Some("memcheck") {
        return Err(voice.stopped("Value 'memcheck' of option '--sanitize' is known but not built yet"));
    }
    if line.has("compile-as-tools-patch") && line.has("compile-only") {
        return Err(
            voice.stopped("Conflicting options '--compile-only' and --compile-as-tools-patch specified")
        );
    }
    if line.value("blocks-are-clusters") == Some("true") {
        if target.sm >= 90 {
            return Err(voice.stopped("Option '--blocks-are-clusters' is known but not built yet"));
        }
        voice.warn(&format!(
            "Command line option '--blocks-are-clusters' not supported for '{target}', will be ignored"
        ));
    }
    // Registers first: launch bounds are ignored where a limit is given.
    let limited = line.has("maxrregcount");
    for option in ["minnctapersm", "maxntid"] {
        if limited && line.has(option) {
            voice.warn(&format!(
                "Conflicting options -maxrregcount and -{option} specified, ignoring -{option} option"
            ));
        }
    }
    let level = level(line).map_err(|m| voice.stopped(m))?;
    Ok(Limits { kernels, functions, level })
}

/// Warns of more of them, which ptxas does once it has its input.
pub(super) fn conflicts(line: &CommandLine, voice: &Voice<'_>) {
    if line.has("device-debug") && line.has("generate-line-info") {
        voice.warn("Conflicting options --device-debug and --generate-line-info specified, ignoring --generate-line-info option",
        );
    }
    if line.has("legacy-bar-warp-wide-behavior") {
        voice.warn("'--legacy-bar-warp-wide-behavior' is a deprecated option, It will be removed in future release and is not recommended",
        );
        voice.warn("Command line option '--legacy-bar-warp-wide-behavior' not supported for '.target sm_70', will be ignored",
        );
        if line.has("compile-only") {
            voice.warn("Option '--legacy-bar-warp-wide-behavior' may not work unless all linked modules are compiled with it",
            );
        }
    }
    for access in ["load", "store"] {
        let [forced, default] = ["force", "def"].map(|which| format!("{which}-{access}-cache"));
        if line.has(&forced) && line.has(&default) {
            voice.warn(&format!(
                "Conflicting options {forced} and {default} specified, ignoring {default} option"
            ));
        }
    }
}

/// What options say in place of directives.
fn directives(line: &CommandLine, voice: &Voice<'_>) -> Directives {
    let limited = line.has("maxrregcount");
    let bounds: Vec<u32> = line.list("maxntid").iter().map(|n| leading_number(n)).collect();
    let maxntid = match bounds[..] {
        [_, _, _, _, ..] => {
            voice.warn("Too many values specified for option '-maxntid', option will be ignored");
            None
        }
        [] | [0, ..] => None,
        _ if limited => None,
        [x, ref rest @ ..] => {
            Some([x, rest.first().copied().unwrap_or(1), rest.get(1).copied().unwrap_or(1)])
        }
    };
    let cache = |name: &str| line.value(name).and_then(cache_operator);
    Directives {
        maxntid,
        minnctapersm: line.number("minnctapersm").and_then(|n| n.try_into().ok()).filter(|_| !limited),
        win: line.has("override-directive-values"),
        default_cache: [cache("def-load-cache"), cache("def-store-cache")],
        forced_cache: [cache("force-load-cache"), cache("force-store-cache")],
    }
}

/// The threads to compile with, and the tokens of make that they are taken for, which are given back when dropped.
pub(super) fn threads(line: &CommandLine, voice: &Voice<'_>) -> (Option<usize>, Option<Tokens>) {
    let threads = line.number("split-compile").and_then(|n| n.try_into().ok()).filter(|n| *n > 0);
    let tokens = if line.has("jobserver") {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let tokens = Tokens::take(threads.unwrap_or_else(processors) - 1);
        if tokens.is_none() && line.number("split-compile").is_some_and(|n| n != 1) {
            voice.warn(
                "GNU Jobserver support requested, but no compatible jobserver found. Ignoring '--jobserver'",
            );
        }
        tokens
    } else {
        None
    };
    (tokens.as_ref().map(|t| t.count() + 1).or(threads), tokens)
}

/// All of it.
///
/// # Errors
/// The end of the run where a value has no meaning.
pub(super) fn settings(
    line: &CommandLine,
    target: Target,
    limits: &Limits,
    threads: Option<usize>,
    arguments: &[OsString],
    voice: &Voice<'_>,
) -> Result<Settings, Stopped> {
    let mut knobs = Knobs {
        timed: line.has("fdevice-time-trace") || Wanted::of(line.list("compiler-stats")).phases,
        ..Knobs::default()
    };
    if let Some(path) = line.value("apply-controls") {
        let text = std::fs::read_to_string(files::path_of(arguments, path))
            .map_err(|_| voice.stopped(format!("File '{path}' could not be opened")))?;
        knobs.add_all(&text).map_err(|(n, m)| {
            voice.stopped(format!("Invalid compiler controls file '{path}', line {n}: {m}"))
        })?;
    }
    for knob in line.list("knob") {
        knobs.add(knob).map_err(|m| voice.stopped(m))?;
    }
    let is = |option: &str| line.value(option) == Some("true");
    Ok(Settings {
        extra: Extra {
            stack_bounds: line.has("sp-bounds-check"),
            errors_at_exit: line.has("make-errors-visible-at-exit"),
            steer: line.value("sanitize") == Some("threadsteer"),
            tensor_checks: line.has("g-tensor-memory-access-check")
                && !line.has("gno-tensor-memory-access-check"),
            ..Extra::default()
        },
        annotate: line.has("compiler-annotations"),
        function_registers: limits.functions,
        warn_double: line.has("warn-on-double-precision-use"),
        quiet_stacks: line.has("suppress-stack-size-warning"),
        quiet_multicast: line.has("suppress-async-bulk-multicast-advisory-warning"),
        quiet_sparse: line.has("suppress-sparse-mma-advisory-info"),
        verbose: line.has("verbose") || line.has("verbose2"),
        suppressed: line.has("suppress-debug-info"),
        tool: line.value("tool-name").map(String::from),
        asked: Asked {
            protector: is("device-stack-protector"),
            independent: is("position-independent-code") && line.has("compile-only"),
            no_tensor_checks: line.has("gno-tensor-memory-access-check"),
            patch: line.has("compile-as-tools-patch"),
            tensor_memory_said: line.has("g-tensor-memory-access-check")
                || line.has("gno-tensor-memory-access-check"),
        },
        search: line.has("search"),
        knobs,
        directives: directives(line, voice),
        opt_level: limits.level,
        level_given: line.has("opt-level"),
        max_registers: limits.kernels,
        fmad: line.value("fmad") != Some("false"),
        entries: line.list("entry").to_vec(),
        options_text: line.recorded.clone(),
        relocatable: line.has("compile-only"),
        threads,
        extensible: line.has("extensible-whole-program"),
        line_info_asked: line.has("generate-line-info"),
        debug: line.has("device-debug"),
        fast: line.value("Ofast-compile").is_some_and(|v| v != "0"),
        line_info: match (line.has("suppress-debug-info"), line.has("generate-line-info")) {
            (true, _) => Some(false),
            (_, true) => Some(true),
            _ => None,
        },
        ..Settings::new(target)
    })
}

/// A number of registers as C reads it: decimal, hexadecimal or octal, nothing being 0, and cut to 32 bits.
fn registers(text: &str) -> Option<i32> {
    number(text).map(|n| n.unwrap_or(-1) as i32)
}

/// What `-O` and `-Ofc` say of the level together.
fn level(line: &CommandLine) -> Result<u8, Error> {
    let given = line.number("opt-level");
    if line.has("device-debug") {
        return Ok(given.unwrap_or(0).clamp(0, 3) as u8);
    }
    let (fast, level, others) = match line.value("Ofast-compile") {
        None | Some("0") => return Ok(given.unwrap_or(3).clamp(0, 3) as u8),
        Some(fast @ "max") => (fast, 0, "1,2,3"),
        Some(fast) => (fast, 1, "0,2,3"),
    };
    if line.value("cloning").is_some_and(|v| v != "no") {
        return Err(Error::Cloning(fast.into()));
    }
    if given.is_some_and(|g| g != level) {
        return Err(Error::Level { others, fast: fast.into() });
    }
    Ok(level as u8)
}
