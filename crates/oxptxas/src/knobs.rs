//! `-knob NAME=VALUE`: what developers of the compiler ask of its phases (docs/phases.md).

use crate::phases::phases;
use ori::{Cancel, Phase, Plan, Tuning};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU32;

/// What knobs ask for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Knobs {
    /// `DumpIR=PHASE+PHASE`: show the code after these phases; `all` for every phase.
    pub shown: Vec<Phase>,
    /// `DisablePhases=PART+PART`: leave out phases whose names have such a part, if code is right without them.
    pub disabled: Vec<String>,
    /// `NumOptPhasesBudget=N`: run only the first N phases that can be left out.
    pub phases: Option<u32>,
    /// `OptBudget=N`: later ones see level 1.
    pub leveled: Option<u32>,
    /// Keep the times of all phases.
    pub timed: bool,
    /// `VerifyEach`: run the checkers after each phase, as builds with debug assertions always do.
    pub verify: bool,
    /// Keep what passes decide ([`crate::Output::remarks`]).
    pub remarks: bool,
    /// `Tune=FUNCTION:CHOICE:CHOICE`: what is chosen for single functions.
    pub tuned: BTreeMap<String, Tuning>,
}

/// A knob, for who asks which there are.
struct Knob {
    name: &'static str,
    /// What its values are.
    values: &'static str,
    /// What holds without it.
    default: &'static str,
    help: &'static str,
}

/// All of them; [`Knobs::add`] reads their values.
const KNOBS: &[Knob] = &[
    Knob {
        name: "DumpIR",
        values: "names of phases with '+' between them, or all",
        default: "none",
        help: "print the code after these phases",
    },
    Knob {
        name: "DisablePhases",
        values: "parts of names of phases, with '+' between them",
        default: "none",
        help: "leave out phases with such a part in their names, where code is right without them",
    },
    Knob {
        name: "NumOptPhasesBudget",
        values: "0 to 4294967295",
        default: "no end",
        help: "run so many of the phases that can be left out, counted through all functions, and then no more",
    },
    Knob {
        name: "OptBudget",
        values: "0 to 4294967295",
        default: "no end",
        help: "so many of those see the level of optimization, and later ones level 1",
    },
    Knob {
        name: "Tune",
        values: "a function's name and choices, with ':' between them: without=PHASE+PHASE, registers=N, unroll=-4 to 2, latency=CYCLES, order=N",
        default: "none",
        help: "compile this function so, as --search found it",
    },
    Knob { name: "VerifyEach", values: "none", default: "not", help: "run the checkers after each phase" },
];

/// The knobs that there are, as a file of them (`--query-controls`) that changes nothing where it is applied.
pub fn listed() -> String {
    let mut out = String::from(
        "# Controls of oxptxas, for --apply-controls: NAME=VALUE in a line, later lines add to earlier ones. What is behind\n\
         # '#' is a comment. Names of phases: docs/phases.md.\n",
    );
    for k in KNOBS {
        out += &format!("\n# {}: {}.\n# Default: {}.\n#{}=\n", k.help, k.values, k.default, k.name);
    }
    out
}

impl Knobs {
    /// Adds those of a file.
    ///
    /// # Errors
    /// The first line that is wrong, from 1 on, and why.
    pub fn add_all(&mut self, text: &str) -> Result<(), (usize, String)> {
        for (n, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                self.add(line).map_err(|m| (n + 1, m))?;
            }
        }
        Ok(())
    }

    /// Adds one `NAME=VALUE`.
    ///
    /// # Errors
    /// An unknown name, phase or number.
    pub fn add(&mut self, knob: &str) -> Result<(), String> {
        let (name, value) = knob.split_once('=').unwrap_or((knob, ""));
        let number =
            || value.parse::<u32>().map_err(|_| format!("Knob '{name}' wants a number, not '{value}'"));
        match name.to_ascii_lowercase().as_str() {
            "dumpir" if value.eq_ignore_ascii_case("all") => self.shown.extend(phases()),
            "dumpir" => {
                for phase in value.split('+') {
                    let known: Vec<Phase> = phases().iter().copied().filter(|p| p.is_named(phase)).collect();
                    if known.is_empty() {
                        return Err(format!("Knob '{name}': no phase '{phase}'"));
                    }
                    self.shown.extend(known);
                }
            }
            "disablephases" => {
                for part in value.split('+').map(str::to_ascii_lowercase) {
                    if part.is_empty() || !phases().iter().any(|p| p.has_part(&part)) {
                        return Err(format!("Knob '{name}': no phase '{part}'"));
                    }
                    self.disabled.push(part);
                }
            }
            "numoptphasesbudget" => self.phases = Some(number()?),
            "optbudget" => self.leveled = Some(number()?),
            "tune" => {
                let (function, choices) = value
                    .split_once(':')
                    .ok_or_else(|| format!("Knob '{name}' wants FUNCTION:CHOICES, not '{value}'"))?;
                if function.is_empty() || choices.is_empty() {
                    return Err(format!("Knob '{name}' wants FUNCTION:CHOICES, not '{value}'"));
                }
                let tuning = self.tuned.entry(function.into()).or_default();
                *tuning = std::mem::take(tuning)
                    .and(choices, phases())
                    .map_err(|m| format!("Knob '{name}': {m}"))?;
            }
            "verifyeach" if value.is_empty() => self.verify = true,
            "verifyeach" => return Err(format!("Knob '{name}' takes no value")),
            _ => return Err(format!("Invalid knob specified ({name})")),
        }
        Ok(())
    }

    /// The plan of a compilation at a level.
    pub(crate) fn plan(&self, level: u8, cancel: Option<Cancel>) -> Plan {
        Plan {
            cancel,
            level,
            shown: self.shown.clone(),
            disabled: self.disabled.clone(),
            phases: self.phases.map(AtomicU32::new),
            leveled: self.leveled.map(AtomicU32::new),
            timed: self.timed,
            verify: self.verify,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        let mut k = Knobs::default();
        k.add_all(&listed()).unwrap();
        assert_eq!(k, Knobs::default(), "what is listed is not chosen");
        let all: String = listed()
            .replace("\n#", "\n")
            .lines()
            .filter(|l| l.ends_with('='))
            .map(|l| format!("{l}\n"))
            .collect();
        assert_eq!(all.lines().count(), KNOBS.len());
        let values = all
            .replace("DumpIR=", "DumpIR=all")
            .replace("Phases=", "Phases=gvn")
            .replace("Budget=", "Budget=7")
            .replace("Tune=", "Tune=k:order=7");
        k.add_all(&values).unwrap();
        assert_eq!((k.phases, k.leveled, k.tuned["k"].order), (Some(7), Some(7), 7));
        let wrong = k.add_all("# one\n\nOptBudget=3 # fine\nSpeed=9\n");
        assert_eq!(wrong, Err((4, "Invalid knob specified (Speed)".into())));
    }

    #[test]
    fn values() {
        let mut k = Knobs::default();
        k.add("DUMPIR=GvnCse+allocateregisters").unwrap();
        assert_eq!(k.shown, [opt::gvn::PASS.phase, backend::phases::ALLOCATE]);
        k.add("DisablePhases=Copy").unwrap();
        assert_eq!(k.disabled, ["copy"]);
        k.add("OptBudget=3").unwrap();
        assert_eq!(k.leveled, Some(3));
        assert_eq!(
            k.add("NumOptPhasesBudget=x").unwrap_err(),
            "Knob 'NumOptPhasesBudget' wants a number, not 'x'"
        );
        assert_eq!(k.add("DumpIR=Nothing").unwrap_err(), "Knob 'DumpIR': no phase 'Nothing'");
        k.add("VerifyEach").unwrap();
        assert!(k.verify);
        assert_eq!(k.add("VerifyEach=1").unwrap_err(), "Knob 'VerifyEach' takes no value");
        k.add("Tune=Kernel:without=sink:order=2").unwrap();
        assert!(k.tuned["Kernel"].leaves_out(opt::sink::PASS.phase));
        assert!(k.add("Tune=Kernel").is_err() && k.add("Tune=Kernel:speed=9").is_err());
        assert_eq!(k.add("Speed=9").unwrap_err(), "Invalid knob specified (Speed)");
    }
}
