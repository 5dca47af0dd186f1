//! `-knob NAME=VALUE`: what developers of the compiler ask of its phases (docs/phases.md).

use crate::phases::phases;
use ori::{Cancel, Phase, Plan, Tuning, TuningError};
use std::collections::BTreeMap;
use std::fmt;
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

/// What is wrong with a knob.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// There is none of this name.
    Unknown(String),
    /// It takes no value.
    Value(String),
    /// It takes a number.
    Number {
        /// Its name.
        knob: String,
        /// What was said.
        value: String,
    },
    /// There is no such phase.
    Phase {
        /// Its name.
        knob: String,
        /// What was said.
        phase: String,
    },
    /// It takes a function and choices.
    Choices {
        /// Its name.
        knob: String,
        /// What was said.
        value: String,
    },
    /// The choices are none.
    Tuning {
        /// Its name.
        knob: String,
        /// Why.
        error: TuningError,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unknown(knob) => write!(f, "Invalid knob specified ({knob})"),
            Error::Value(knob) => write!(f, "Knob '{knob}' takes no value"),
            Error::Number { knob, value } => write!(f, "Knob '{knob}' wants a number, not '{value}'"),
            Error::Phase { knob, phase } => write!(f, "Knob '{knob}': no phase '{phase}'"),
            Error::Choices { knob, value } => {
                write!(f, "Knob '{knob}' wants FUNCTION:CHOICES, not '{value}'")
            }
            Error::Tuning { knob, error } => write!(f, "Knob '{knob}': {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// For who says errors as text.
impl From<Error> for String {
    fn from(e: Error) -> String {
        e.to_string()
    }
}

impl Knobs {
    /// Adds those of a file.
    ///
    /// # Errors
    /// The first line that is wrong, from 1 on, and why.
    pub fn add_all(&mut self, text: &str) -> Result<(), (usize, Error)> {
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
    pub fn add(&mut self, knob: &str) -> Result<(), Error> {
        let (name, value) = knob.split_once('=').unwrap_or((knob, ""));
        let wrong = |_| Error::Number { knob: name.into(), value: value.into() };
        let number = || value.parse::<u32>().map_err(wrong);
        match name.to_ascii_lowercase().as_str() {
            "dumpir" if value.eq_ignore_ascii_case("all") => self.shown.extend(phases()),
            "dumpir" => {
                for phase in value.split('+') {
                    let known: Vec<Phase> = phases().iter().copied().filter(|p| p.is_named(phase)).collect();
                    if known.is_empty() {
                        return Err(Error::Phase { knob: name.into(), phase: phase.into() });
                    }
                    self.shown.extend(known);
                }
            }
            "disablephases" => {
                for part in value.split('+').map(str::to_ascii_lowercase) {
                    if part.is_empty() || !phases().iter().any(|p| p.has_part(&part)) {
                        return Err(Error::Phase { knob: name.into(), phase: part });
                    }
                    self.disabled.push(part);
                }
            }
            "numoptphasesbudget" => self.phases = Some(number()?),
            "optbudget" => self.leveled = Some(number()?),
            "tune" => {
                let said = value.split_once(':').filter(|(f, choices)| !f.is_empty() && !choices.is_empty());
                let wrong = || Error::Choices { knob: name.into(), value: value.into() };
                let (function, choices) = said.ok_or_else(wrong)?;
                let tuning = self.tuned.entry(function.into()).or_default();
                *tuning = std::mem::take(tuning)
                    .and(choices, phases())
                    .map_err(|error| Error::Tuning { knob: name.into(), error })?;
            }
            "verifyeach" if value.is_empty() => self.verify = true,
            "verifyeach" => return Err(Error::Value(name.into())),
            _ => return Err(Error::Unknown(name.into())),
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
        assert_eq!(wrong, Err((4, Error::Unknown("Speed".into()))));
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
            k.add("NumOptPhasesBudget=x").unwrap_err().to_string(),
            "Knob 'NumOptPhasesBudget' wants a number, not 'x'"
        );
        assert_eq!(k.add("DumpIR=Nothing").unwrap_err().to_string(), "Knob 'DumpIR': no phase 'Nothing'");
        k.add("VerifyEach").unwrap();
        assert!(k.verify);
        assert_eq!(k.add("VerifyEach=1").unwrap_err().to_string(), "Knob 'VerifyEach' takes no value");
        k.add("Tune=Kernel:without=sink:order=2").unwrap();
        assert!(k.tuned["Kernel"].leaves_out(opt::sink::PASS.phase));
        assert!(k.add("Tune=Kernel").is_err() && k.add("Tune=Kernel:speed=9").is_err());
        assert_eq!(k.add("Speed=9").unwrap_err().to_string(), "Invalid knob specified (Speed)");
    }
}
