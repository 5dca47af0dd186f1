//! When what happened in a compilation: `--compiler-stats` and `--fdevice-time-trace`.

use ori::Phase;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// A part of the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Parsing and checking.
    Parse,
    /// The layout of variables.
    CompileUnitSetup,
    /// Lowering of a function.
    DagGen,
    /// Optimization and code generation of a function.
    Ocg,
    /// Both together.
    Unit,
    /// One phase of it.
    Phase(Phase),
    /// Writing the file.
    Elf,
}

/// Something that took time.
#[derive(Clone, Debug)]
pub struct Event {
    /// What.
    pub stage: Stage,
    /// Function; empty for the whole module.
    pub unit: String,
    /// From the start of the compilation.
    pub start: Duration,
    /// How long.
    pub length: Duration,
    /// Thread, from 0.
    pub thread: usize,
}

/// What happened in a compilation.
#[derive(Clone, Debug)]
pub struct Timeline {
    begin: Instant,
    /// What took time; of functions only where times are kept.
    pub events: Vec<Event>,
    /// The code after phases that are shown.
    pub shown: String,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline::new()
    }
}

/// Which of the numbers `--compiler-stats` wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Time.
    pub time: bool,
    /// Memory.
    pub memory: bool,
    /// Time of each stage.
    pub phases: bool,
}

impl Wanted {
    /// From the words of the option.
    pub fn of(words: &[String]) -> Wanted {
        let has = |long: &str| words.iter().any(|w| *w == long || *w == long[..1]);
        Wanted { time: has("time"), memory: has("memory"), phases: has("phase-wise") }
    }
}

/// Bytes of memory that the process had at most; `None` where the system doesn't say.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Why nothing can be added to a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TraceError {
    /// It is none.
    Form(String),
    /// It has no event of the name that others are to come after.
    NoSuchEvent,
}

impl Timeline {
    /// Adds what is shown of a function's phases, if anything is.
    pub(crate) fn show(&mut self, function: &str, text: &str) {
        if !text.is_empty() {
            self.shown.push_str(&format!("# function {function}\n{text}"));
        }
    }

    /// It begins now.
    pub fn new() -> Timeline {
        Timeline { begin: Instant::now(), events: Vec::new(), shown: String::new() }
    }

    /// Time from the beginning.
    pub(crate) fn since(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.begin)
    }

    /// Does something for the whole module.
    pub(crate) fn time<R>(&mut self, stage: Stage, work: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = work();
        let length = start.elapsed();
        self.events.push(Event { stage, unit: String::new(), start: self.since(start), length, thread: 0 });
        result
    }

    /// The numbers of `--compiler-stats`, each of them after `prefix`. Times of functions are sums over threads.
    /// Memory is what the process had at most; there is no such number for each stage.
    pub fn stats(&self, wanted: Wanted, prefix: &str) -> String {
        let mut out = String::new();
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        if wanted.time {
            let total = ms(self.begin.elapsed());
            let percent = if wanted.phases { " (100%)" } else { "" };
            let _ = writeln!(out, "{prefix}CompileTime = {total:.6} ms{percent}");
            let stages = [
                ("Parse", Stage::Parse),
                ("CompileUnitSetup", Stage::CompileUnitSetup),
                ("DAGgen", Stage::DagGen),
                ("OCG", Stage::Ocg),
                ("ELF", Stage::Elf),
            ];
            for (name, stage) in stages.iter().filter(|_| wanted.phases) {
                let time = ms(self.events.iter().filter(|e| e.stage == *stage).map(|e| e.length).sum());
                let name = format!("{name}-time");
                let _ = writeln!(out, "{name:<22}: {time:.3} ms ({:.2}%)", 100.0 * time / total);
            }
            if wanted.phases {
                out.push('\n');
            }
        }
        if wanted.memory
            && let Some(bytes) = peak_memory()
        {
            let _ = writeln!(out, "{prefix}PeakMemoryUsage = {:.3} KB", bytes as f64 / 1024.0);
        }
        out
    }

    /// Adds the events to a trace that Chrome's viewer shows, as those of a process of this number, and returns the whole. `after`: they
    /// begin at the end of the first event of this name, and without a number are of its process.
    ///
    /// # Errors
    /// A trace of another form, or without such an event.
    pub fn trace(
        &self,
        existing: &str,
        file: &str,
        process: Option<i64>,
        after: Option<&str>,
    ) -> Result<String, TraceError> {
        let mut trace: Value = serde_json::from_str(existing).map_err(|e| TraceError::Form(e.to_string()))?;
        let events = trace.get_mut("traceEvents").and_then(Value::as_array_mut);
        let events = events.ok_or_else(|| TraceError::Form("expected key traceEvents".into()))?;
        let (mut begin, mut process_before) = (0, None);
        if let Some(after) = after {
            let before = events.iter().find(|e| e["name"] == after).ok_or(TraceError::NoSuchEvent)?;
            let number = |key: &str| {
                let value = before[key].as_u64();
                value.ok_or_else(|| TraceError::Form(format!("expected key '{key}'")))
            };
            begin = number("ts")?.saturating_add(number("dur")?);
            process_before = before["pid"].as_i64();
        }
        let process = process.or(process_before).unwrap_or_else(|| std::process::id().into());
        let mut add = |name: &str, of: &str, thread: usize, start: Duration, length: Duration| {
            events.push(json!({
                "name": name, "ph": "X", "pid": process, "tid": thread,
                "ts": begin + start.as_micros() as u64, "dur": length.as_micros() as u64, "args": {"name": of},
            }));
        };
        add("Total PTXAS Time", file, 0, Duration::ZERO, self.begin.elapsed());
        for e in &self.events {
            let name = match e.stage {
                Stage::Parse => "PTX parsing and setup time",
                Stage::CompileUnitSetup => "CompileUnitSetup",
                Stage::DagGen => "DAGgen",
                Stage::Ocg => "OCG",
                Stage::Unit => "Optimizing compilation unit",
                Stage::Phase(p) => p.name(),
                Stage::Elf => "Post processing",
            };
            add(name, &e.unit, e.thread, e.start, e.length);
        }
        Ok(trace.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_and_trace() {
        let mut t = Timeline::new();
        assert_eq!(t.time(Stage::Parse, || 7), 7);
        let wanted = Wanted::of(&["t".into(), "phase-wise".into()]);
        let text = t.stats(wanted, "STAT: ");
        assert!(
            text.starts_with("STAT: CompileTime = ") && text.contains("\nOCG-time              : 0.000 ms"),
            "{text}"
        );
        let trace = t.trace(r#"{"traceEvents":[{"name":"x"}]}"#, "k.ptx", Some(7), None).unwrap();
        let parsed: Value = serde_json::from_str(&trace).unwrap();
        let names: Vec<_> =
            parsed["traceEvents"].as_array().unwrap().iter().map(|e| e["name"].clone()).collect();
        assert_eq!(names, ["x", "Total PTXAS Time", "PTX parsing and setup time"]);
        let form = TraceError::Form("expected key traceEvents".into());
        assert_eq!(t.trace("[]", "k.ptx", Some(7), None), Err(form));
        let others =
            r#"{"traceEvents":[{"name":"LibNVVM","pid":7,"ts":1000,"dur":500},{"name":"y","ts":9}]}"#;
        let trace = t.trace(others, "k.ptx", None, Some("LibNVVM")).unwrap();
        let parsed: Value = serde_json::from_str(&trace).unwrap();
        assert_eq!(
            (&parsed["traceEvents"][2]["ts"], &parsed["traceEvents"][2]["pid"]),
            (&json!(1500), &json!(7))
        );
        assert_eq!(t.trace(others, "k.ptx", None, Some("z")), Err(TraceError::NoSuchEvent));
    }
}
