//! Commands that look at code or PTX without executing it.

use super::{Error, Result, parse_target, read, rendered};
use clap::{Args, Subcommand};
use oxsass::listing::{self, Style};
use sass::Target;
use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// `oxsass dis`
#[derive(Args)]
pub struct Dis {
    /// The cubin, or with --raw the file of words
    file: PathBuf,
    /// The file holds instruction words for this target, and nothing else
    #[arg(long, value_name = "SM", value_parser = parse_target)]
    raw: Option<Target>,
    /// Print the words as well
    #[arg(long)]
    hex: bool,
    /// Print the control fields as well
    #[arg(long)]
    control: bool,
    /// Print an object a line
    #[arg(long)]
    json: bool,
}

impl Dis {
    /// Prints the listing.
    pub fn run(self, out: &mut impl Write) -> Result {
        let path = self.file.display();
        let bytes = read(&self.file)?;
        let mut style =
            Style { hex: self.hex, control: self.control, json: self.json, labels: self.raw.is_none() };
        let mut text = String::new();
        if let Some(target) = self.raw {
            let (words, rest) = bytes.as_chunks::<16>();
            if !rest.is_empty() {
                return Err(format!("{path}: {} bytes are not a whole number of words", bytes.len()).into());
            }
            let words: Vec<u128> = words.iter().map(|w| u128::from_le_bytes(*w)).collect();
            style.labels = false;
            listing::write(&mut text, &words, target, style, &mut 0);
            return Ok(out.write_all(text.as_bytes())?);
        }
        text += &listing::of_cubin(&bytes, style).map_err(|e| format!("{path}: {e}"))?;
        Ok(out.write_all(text.as_bytes())?)
    }
}

/// `oxsass asm`
#[derive(Args)]
pub struct Asm {
    /// The listing
    listing: PathBuf,
    /// Where the words go, with --raw
    #[arg(requires = "raw", conflicts_with = "into")]
    file: Option<PathBuf>,
    /// The target of the words
    #[arg(long, value_name = "SM", value_parser = parse_target, requires = "file")]
    raw: Option<Target>,
    /// The cubin whose code is replaced
    #[arg(long, value_name = "CUBIN", requires = "output", required_unless_present = "raw")]
    into: Option<PathBuf>,
    /// The one kernel whose code the listing has
    #[arg(long, value_name = "NAME", alias = "section", requires = "into")]
    kernel: Option<String>,
    /// The cubin that is written
    #[arg(short, value_name = "CUBIN", requires = "into")]
    output: Option<PathBuf>,
}

impl Asm {
    /// Writes the words or the cubin.
    pub fn run(self) -> Result {
        let source = self.listing.display();
        let text = fs::read_to_string(&self.listing).map_err(|e| format!("{source}: {e}"))?;
        let (bytes, to) = match (self.raw, self.file, self.into, self.output) {
            (Some(target), Some(file), ..) => {
                let words = listing::assemble(&text, target).map_err(|e| format!("{source}:{e}"))?;
                (words.iter().flat_map(|w| w.to_le_bytes()).collect(), file)
            }
            (_, _, Some(cubin), Some(to)) => {
                let only = self.kernel.as_deref().map(|k| k.trim_start_matches(".text."));
                let patched = listing::patch(&text, &read(&cubin)?, only).map_err(|e| match e {
                    listing::PatchError::Listing(e) => format!("{source}:{e}"),
                    e => format!("{}: {e}", cubin.display()),
                });
                (patched?, to)
            }
            _ => return Err("asm needs --raw and a file, or --into FILE.cubin and -o OUT.cubin".into()),
        };
        Ok(fs::write(&to, bytes).map_err(|e| format!("{}: {e}", to.display()))?)
    }
}

/// `oxsass ptx`
#[derive(Subcommand)]
pub enum Ptx {
    /// Print a PTX file, which has to be right for its own target, in canonical form
    Fmt {
        /// The file
        file: PathBuf,
    },
}

impl Ptx {
    /// Prints it.
    pub fn run(self, out: &mut impl Write) -> Result {
        let Ptx::Fmt { file } = self;
        let path = file.display().to_string();
        let source = String::from_utf8(read(&file)?).map_err(|_| format!("{path}: not text"))?;
        let checked = ptx::parse(&source).and_then(|module| {
            ptx::check(&module, ptx::check::target_sm(&module))?;
            Ok(module)
        });
        let module = checked.map_err(|errors| rendered(&errors, &path, &source))?;
        Ok(write!(out, "{module}")?)
    }
}

/// `oxsass check`
#[derive(Args)]
pub struct Check {
    /// Cubins
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Hold them against the hardware contract instead
    #[arg(long)]
    contract: bool,
}

impl Check {
    /// Prints what is found; an error if that is anything.
    pub fn run(self, out: &mut impl Write) -> Result {
        let mut found = 0;
        for file in &self.files {
            let bytes = read(file)?;
            let said = |e: &dyn Display| Error::Said(format!("{}: {e}", file.display()));
            if self.contract {
                let findings = contract::Contract::built_in().check(&bytes).map_err(|e| said(&e))?;
                found += findings.len();
                for finding in &findings {
                    writeln!(out, "{}: {finding}", file.display())?;
                }
                continue;
            }
            let minima = sim::hazard::Minima::built_in();
            for (name, violations, stats) in
                &sim::hazard::check_cubin(&bytes, minima).map_err(|e| said(&e))?
            {
                found += violations.len();
                writeln!(out, "{name}: {} instructions, {} hazards", stats.instructions, violations.len())?;
                if stats.unknown > 0 {
                    writeln!(out, "  {} instructions are not in the table", stats.unknown)?;
                }
                for v in violations {
                    writeln!(out, "  {v}")?;
                }
            }
            for (name, excess) in oxsass::pool::excesses(&bytes).map_err(|e| said(&e))? {
                found += 1;
                writeln!(out, "{name}: {excess}")?;
            }
        }
        let what = if self.contract { "findings outside the contract" } else { "hazards" };
        if found == 0 { Ok(()) } else { Err(format!("{found} {what}").into()) }
    }
}
