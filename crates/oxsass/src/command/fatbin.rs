//! `oxsass fatbin`: code for several targets, and PTX, in one file.

use super::{Result, read};
use clap::Args;
use cubin::fatbin::{Image, Reach, write};
use oxptxas::options::CommandLine;
use oxptxas::{Failure, Settings, Target, compile_all};
use sass::target::Suffix;
use std::path::PathBuf;

/// `oxsass fatbin`
#[derive(Args)]
pub struct Fatbin {
    /// The PTX
    file: PathBuf,
    /// Targets: `sm_80,sm_90a`; `compute_80` keeps the PTX, which has to say `.target sm_80`
    #[arg(long, value_name = "LIST", value_delimiter = ',', required_unless_present = "gencode")]
    arch: Vec<String>,
    /// The same as nvcc has it: `arch=compute_80,code=[sm_80,compute_80]`
    #[arg(long, value_name = "SPEC", visible_alias = "generate-code")]
    gencode: Vec<String>,
    /// The fat binary
    #[arg(short, long, value_name = "FATBIN")]
    output: PathBuf,
    /// What the driver and tools call it
    #[arg(long, value_name = "NAME", default_value = "")]
    ident: String,
    /// Options of the compiler, for all targets: `-- -O1 -lineinfo`
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

/// The list in what follows `-gencode`.
fn of_gencode(text: &str) -> Result<Vec<String>> {
    let wrong =
        || format!("--gencode {text}: expected arch=compute_NN,code=sm_NN or code=[sm_NN,compute_NN]");
    let (arch, code) = text.split_once(",code=").ok_or_else(wrong)?;
    let arch = arch.strip_prefix("arch=").filter(|a| a.starts_with("compute_")).ok_or_else(wrong)?;
    let list = code.trim_start_matches('[').trim_end_matches(']').replace(['"', '\\'], "");
    let codes: Vec<String> = list.split(',').map(str::to_string).collect();
    // The PTX that the code is made of is that of the virtual target.
    let number = |name: &str| {
        let digits = name.split_once('_').map_or("", |n| n.1).trim_end_matches(['a', 'f']);
        digits.parse::<u32>().unwrap_or(0)
    };
    let beside = |c: &&String| (c.starts_with("compute_") && *c != arch) || number(c) < number(arch);
    match codes.iter().find(beside) {
        Some(other) => Err(format!("--gencode {text}: {other} beside {arch}").into()),
        None => Ok(codes),
    }
}

/// Whom an image of a target is for.
fn reach(target: Target) -> Reach {
    match target.suffix {
        Suffix::None => Reach::Later,
        Suffix::F => Reach::Family,
        Suffix::A => Reach::Alone,
    }
}

impl Fatbin {
    /// Writes the file.
    pub fn run(self) -> Result {
        let path = self.file.display().to_string();
        let bytes = read(&self.file)?;
        let source = String::from_utf8(bytes).map_err(|_| format!("{path}: PTX is text"))?;
        let mut wanted = self.arch.clone();
        for g in &self.gencode {
            wanted.extend(of_gencode(g)?);
        }
        let line = CommandLine::parse(&self.options).map_err(|e| format!("behind --: {e}"))?;
        if let Some(own) = ["gpu-name", "output-file"].into_iter().find(|o| line.has(o)) {
            return Err(format!("--{own} behind --: it is said by --arch and --output").into());
        }
        if let Some(input) = line.inputs.first() {
            return Err(format!("'{input}' behind --: there is one input").into());
        }
        let mut codes: Vec<Settings> = Vec::new();
        let mut text: Option<String> = None;
        for name in wanted {
            if let Some(number) = name.strip_prefix("compute_") {
                text = Some(number.to_string());
                continue;
            }
            // A listed file of options would be read again for each.
            let mut options = vec![format!("-arch={name}")];
            options.extend(self.options.iter().cloned());
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let settings = Settings::parse(&options).map_err(|e| e.to_string())?;
            if !codes.iter().any(|c| c.target == settings.target) {
                codes.push(settings);
            }
        }
        let mut outputs = Vec::new();
        for (settings, result) in codes.iter().zip(compile_all(&source, &path, &codes)) {
            let output = result
                .map_err(|f: Failure| format!("{}no code for {}", f.render("oxsass"), settings.target))?;
            let lines = ptx::LineIndex::new(&source);
            for w in &output.warnings {
                eprint!("{}", w.render("oxsass", &path, &source, &lines));
            }
            outputs.push(output);
        }
        let mut images: Vec<Image<'_>> = (codes.iter().zip(&outputs))
            .map(|(settings, output)| Image {
                ptx: None,
                sm: settings.target.sm.into(),
                reach: reach(settings.target),
                debug: settings.debug,
                bytes: &output.cubin,
            })
            .collect();
        if let Some(number) = &text {
            images.push(kept(&source, &path, number)?);
        }
        let file = write(&images, &self.ident);
        let to = self.output.display();
        Ok(oxptxas::files::write_whole(&self.output, &file).map_err(|e| format!("{to}: {e}"))?)
    }
}

/// The PTX as an image, which must be for the target that was asked for.
fn kept<'s>(source: &'s str, path: &str, number: &str) -> Result<Image<'s>> {
    let (module, _) = ptx::parse_all(source);
    let named = module.targets.first().map_or("", String::as_str);
    if named != format!("sm_{number}") {
        return Err(format!("{path}: compute_{number} of PTX that says .target {named}").into());
    }
    let target = Target::parse(named).ok_or_else(|| format!("{named} is not a known target"))?;
    let (major, minor) = module.version;
    Ok(Image {
        ptx: Some((major, minor)),
        sm: target.sm.into(),
        reach: reach(target),
        debug: module.targets.iter().any(|t| t == "debug"),
        bytes: source.as_bytes(),
    })
}
