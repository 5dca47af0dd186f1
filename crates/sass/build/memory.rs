//! What opcodes do with memory: the effect `mem=…` of `op` lines and the sizes of `bytes` lines.

use std::collections::{BTreeMap, BTreeSet};

/// What is said of an opcode that leaves memory alone.
pub const NONE: &str = "MemoryEffects::None";

/// Sizes of accesses by name: bytes, and the modifiers that make it others.
#[derive(Default)]
pub struct Sizes(BTreeMap<String, (u32, Vec<(String, u32)>)>);

fn number(text: &str, place: &str) -> u32 {
    text.parse().unwrap_or_else(|_| panic!("{place}: `{text}` is no number of bytes"))
}

impl Sizes {
    /// A line `bytes NAME N MOD=N …`.
    pub fn line(&mut self, rest: &str, place: &str, mods: &mut BTreeSet<String>) {
        let mut words = rest.split_whitespace();
        let (Some(name), Some(default)) = (words.next(), words.next()) else {
            panic!("{place}: bytes NAME N MOD=N …");
        };
        let by_mod = words.map(|w| {
            let (m, n) = w.split_once('=').unwrap_or_else(|| panic!("{place}: `{w}` is not MOD=N"));
            mods.insert(m.to_string());
            (m.to_string(), number(n, place))
        });
        self.0.insert(name.to_string(), (number(default, place), by_mod.collect()));
    }

    fn expression(&self, name: &str) -> Result<String, String> {
        if name == "?" {
            return Ok("None".into());
        }
        let (default, by_mod) = match (name.parse::<u32>(), self.0.get(name)) {
            (Ok(n), _) => (n, &[][..]),
            (_, Some((n, by_mod))) => (*n, &by_mod[..]),
            _ => return Err(format!("no `bytes {name}` line above it")),
        };
        let by_mod: Vec<String> =
            by_mod.iter().map(|(m, n)| format!("(Mod::{}, {n})", crate::ident(m))).collect();
        Ok(format!("Some(AccessBytes {{ default: {default}, by_mod: &[{}] }})", by_mod.join(", ")))
    }
}

/// The effects of an opcode on memory (`mem=TEXT`) as a Rust expression; an error where the table leaves them open.
pub fn describe(text: &str, addresses: usize, sizes: &Sizes) -> Result<String, String> {
    if text == "fence" {
        return Ok("MemoryEffects::Fence".into());
    }
    if text == "readonly" {
        return Ok("MemoryEffects::ReadOnly".into());
    }
    let accesses = text.split('+').map(|access| {
        let (what, bytes) = access.split_once(':').ok_or(format!("`{access}` has no size"))?;
        let (space, effect) = what.split_once('.').ok_or(format!("`{what}` is not SPACE.EFFECT"))?;
        let space = match space {
            "global" => "Global",
            "shared" => "Shared",
            "local" => "Local",
            "generic" => "Generic",
            _ => return Err(format!("unknown space `{space}`")),
        };
        let effect = match effect {
            "read" => "Read",
            "write" => "Write",
            "atomic" => "Atomic",
            _ => return Err(format!("unknown effect `{effect}`")),
        };
        let bytes = sizes.expression(bytes)?;
        Ok(format!(
            "MemoryAccess {{ space: MemorySpace::{space}, effect: MemoryEffect::{effect}, bytes: {bytes} }}"
        ))
    });
    let accesses = accesses.collect::<Result<Vec<_>, String>>()?;
    if accesses.len() != addresses {
        return Err(format!("{} accesses for {addresses} addresses", accesses.len()));
    }
    Ok(format!("MemoryEffects::Accesses(&[{}])", accesses.join(", ")))
}
