//! The columns of `op` lines: functional unit, effect, what is done across lanes, and the words about operands.
//! Nothing has a default that would be harmless: what a line leaves out is refused.

use crate::memory::{self, Sizes};
use std::collections::BTreeSet;

/// What an `op` line says besides its slots.
pub struct Facts {
    /// The name of its functional unit.
    pub unit: String,
    effect: String,
    memory: String,
    lanes: &'static str,
    swap: (Vec<usize>, &'static str),
    /// Names of its twins on the uniform datapath.
    pub twins: Vec<String>,
    /// Operands in which we put something other than registers, and what.
    pub sources: (Vec<usize>, &'static str),
    min_stall: u32,
}

/// Words that stand for themselves.
const FLAGS: [&str; 12] = [
    "nowb",
    "norb",
    "nowait",
    "queued",
    "uniform",
    "awaited",
    "holds_uniform",
    "late",
    "passable",
    "noswap",
    "notwin",
    "extends",
];

fn flow(text: &str) -> Result<&'static str, String> {
    Ok(match text {
        "jump" => "Jump",
        "exit" => "Exit",
        "call" => "Call",
        "return" => "Return",
        "region" => "Region",
        "meet" => "Meet",
        "yield" => "Yield",
        "trap" => "Trap",
        _ => return Err(format!("unknown control `{text}`")),
    })
}

fn sync(text: &str) -> Result<&'static str, String> {
    Ok(match text {
        "threads" => "Threads",
        "block" => "Block",
        "result" => "Result",
        "grids" => "Grids",
        _ => return Err(format!("unknown sync `{text}`")),
    })
}

/// Numbers of the slots with these names.
fn numbers(text: &str, names: &[String]) -> Result<Vec<usize>, String> {
    let number = |n: &str| {
        names.iter().position(|name| name == n).ok_or_else(|| format!("`{n}` is the name of no operand"))
    };
    text.split(',').map(number).collect()
}

/// Name and shape of a slot: `carry<P`.
pub fn named_slot(text: &str) -> Result<(String, String), String> {
    let (name, shape) = text.split_at(text.find(['>', '<']).ok_or(format!("slot `{text}` has no role"))?);
    let proper = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(proper) {
        return Err(format!("slot `{text}` has no name"));
    }
    Ok((name.into(), shape.into()))
}

/// Kind and width of a slot, without its role.
fn shape(slot: &str) -> &str {
    &slot[1..]
}

fn kind(slot: &str) -> &str {
    let shape = shape(slot);
    &shape[..shape.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(shape.len())]
}

/// Whether the slot may hold a register that is read.
fn is_register(slot: &str) -> bool {
    !slot.starts_with('>') && matches!(kind(slot), "R" | "UR" | "P" | "UP" | "S")
}

impl Facts {
    /// Reads the words behind the name of an `op` line.
    pub fn read(
        words: &[String],
        (slots, names): (&[String], &[String]),
        sizes: &Sizes,
    ) -> Result<Facts, String> {
        let [unit, effect, lanes, words @ ..] = words else {
            return Err("write UNIT EFFECT LANES behind the name".into());
        };
        let addresses = slots.iter().filter(|s| kind(s) == "A").count();
        let mut memory = memory::NONE.to_string();
        let effect_rs = match effect.split_once('=') {
            None if effect == "pure" => "Effect::Pure".into(),
            None if effect == "state" => "Effect::State".into(),
            None if effect == "order" => "Effect::Order".into(),
            Some(("mem", what)) => {
                memory = memory::describe(what, addresses, sizes)?;
                "Effect::Memory".into()
            }
            Some(("control", what)) => format!("Effect::Control(Flow::{})", flow(what)?),
            Some(("sync", what)) => format!("Effect::Sync(Sync::{})", sync(what)?),
            _ => return Err(format!("`{effect}` is no effect")),
        };
        let lanes = match lanes.as_str() {
            "own" => "Own",
            "warp" => "Warp",
            "active" => "Active",
            "agreed" => "Agreed",
            "chosen" => "Chosen",
            _ => return Err(format!("`{lanes}` does not say what is done across lanes")),
        };
        let mut facts = Facts {
            unit: unit.clone(),
            effect: effect_rs,
            memory,
            lanes,
            swap: (Vec::new(), "Nothing"),
            twins: Vec::new(),
            sources: (Vec::new(), "Registers"),
            min_stall: if effect.starts_with("control=") || effect.starts_with("sync=") { 5 } else { 1 },
        };
        for word in words {
            facts.word(word, slots, names)?;
        }
        facts.check(effect == "pure" && lanes == "Own", words, slots)?;
        Ok(facts)
    }

    fn word(&mut self, word: &str, slots: &[String], names: &[String]) -> Result<(), String> {
        let (head, rest) = word.split_once('=').unwrap_or((word, ""));
        match head {
            "swap" => {
                let (list, change) = rest.split_once('/').unwrap_or((rest, ""));
                let change = match change {
                    "" => "Nothing",
                    "lut" => "Lut",
                    "select" => "Select",
                    "compare" => "Compare",
                    _ => return Err(format!("unknown change `{change}`")),
                };
                let list = numbers(list, names)?;
                if list.len() < 2 || list.iter().any(|n| slots[*n] != slots[list[0]]) {
                    return Err(format!("`{word}`: operands of different shapes"));
                }
                self.swap = (list, change);
            }
            "twin" => self.twins = rest.split(',').map(str::to_string).collect(),
            "any" | "imm" | "imms" | "const" => {
                let list = numbers(rest, names)?;
                if list.iter().any(|n| kind(&slots[*n]) != "S") {
                    return Err(format!("`{word}`: not a source"));
                }
                let what = match head {
                    "any" => "Any",
                    "imm" => "Immediate",
                    "const" => "Constant",
                    _ => "Immediates",
                };
                self.sources = (list, what);
            }
            "stall" => self.min_stall = rest.parse().map_err(|_| format!("`{word}`"))?,
            "as" => {}
            _ if head.ends_with("_predicates") || FLAGS.contains(&head) => {}
            _ => return Err(format!("unknown word `{word}`")),
        }
        Ok(())
    }

    /// What must be said of an opcode that does nothing but compute.
    fn check(&self, computes: bool, words: &[String], slots: &[String]) -> Result<(), String> {
        let has = |w: &str| words.iter().any(|x| x == w);
        let sources: Vec<&String> = slots.iter().filter(|s| is_register(s)).collect();
        let alike = sources.iter().any(|s| sources.iter().filter(|t| t == &s).count() > 1);
        if computes && alike && self.swap.0.is_empty() != has("noswap") {
            return Err("which of its sources may be exchanged? swap=N,N, or noswap".into());
        }
        let result = slots.iter().any(|s| !s.starts_with('<') && matches!(kind(s), "R" | "P"));
        if computes && !has("uniform") && result && self.twins.is_empty() != has("notwin") {
            return Err("which opcode of the uniform datapath does the same? twin=NAME, or notwin".into());
        }
        Ok(())
    }

    /// Whether an operand of the twin does what the operand of the same place does here.
    pub fn is_twin(slots: &[String], twin: &[String]) -> bool {
        let same = |(a, b): (&String, &String)| {
            let kinds = match kind(a) {
                "R" => ["UR", "UR"],
                "P" => ["UP", "P"],
                "S" => ["S", "UR"],
                other => [other, other],
            };
            a[..1] == b[..1] && kinds.contains(&kind(b))
        };
        slots.iter().zip(twin).all(same)
    }

    /// The fields of `OpInfo` that these are.
    pub fn expression(&self) -> String {
        let twins: Vec<String> = self.twins.iter().map(|t| format!("Opcode::{}", crate::ident(t))).collect();
        format!(
            "memory: {}, accesses: {}, effect: {}, control: {}, sync: {}, lanes: Lanes::{}, swap: &{:?}, \
             swap_changes: SwapChange::{}, twins: &[{}], sources: &{:?}, source_kinds: SourceKinds::{}, min_stall: {}",
            self.effect == "Effect::Memory",
            self.memory,
            self.effect,
            self.effect.starts_with("Effect::Control"),
            self.effect.starts_with("Effect::Sync"),
            self.lanes,
            self.swap.0,
            self.swap.1,
            twins.join(", "),
            self.sources.0,
            self.sources.1,
            self.min_stall
        )
    }
}

/// How a special register varies, as a Rust expression of its `sr` line's words.
pub fn special(words: &[&str]) -> Result<String, String> {
    let (scope, rest) = words.split_first().ok_or("for whom is it the same? lane, or block")?;
    let scope = match *scope {
        "lane" => "Lane",
        "block" => "Block",
        _ => return Err(format!("`{scope}` is neither lane nor block")),
    };
    let change = match rest {
        [] => "Never",
        ["volatile"] => "Anytime",
        ["clock"] => "Clock",
        _ => return Err(format!("unknown words `{}`", rest.join(" "))),
    };
    Ok(format!("SpecialInfo {{ scope: Scope::{scope}, changes: Changes::{change} }}"))
}

/// Checks that some form of the opcode has an immediate where the table says that we put one.
pub fn check_sources(facts: &Facts, immediates: &BTreeSet<(usize, String)>) -> Result<(), String> {
    let listed = facts.sources.0.iter().filter(|_| facts.sources.1 != "Constant");
    match listed.into_iter().find(|n| !immediates.iter().any(|(at, _)| at == *n)) {
        Some(n) => Err(format!("no form has an immediate as operand {n}")),
        None => Ok(()),
    }
}

/// What an immediate is where the operand has two registers, as a variant of `WideImmediate`: the forms say how it is spelled, and the
/// word `extends` whether an integer is taken there.
pub fn wide_immediate(
    slots: &[String],
    immediates: &BTreeSet<(usize, String)>,
    extends: bool,
) -> &'static str {
    let is_pair = |at: usize| shape(&slots[at]) == "S2";
    let of = |wanted: &str, fits: &dyn Fn(usize) -> bool| {
        immediates.iter().any(|(at, kind)| kind == wanted && fits(*at))
    };
    if of("F64", &|_| true) {
        "HighHalf"
    } else if of("F32", &is_pair) {
        "Both"
    } else if extends {
        "Extended"
    } else {
        "Integer"
    }
}
