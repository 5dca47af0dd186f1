//! Which files are looked at, for which targets, and whose code of them.

use sass::Target;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files and targets.
#[derive(Clone, clap::Args)]
pub struct Files {
    /// PTX files or folders of them; kernels/ when there are none.
    pub paths: Vec<PathBuf>,
    /// For these targets (75, 90a …); without it, those of kernels/ for all and other files for their own.
    #[arg(long, value_delimiter = ',')]
    pub sm: Vec<String>,
}

/// Code of files.
#[derive(Clone, clap::Args)]
pub struct Source {
    /// The files.
    #[command(flatten)]
    pub files: Files,
    /// The reference compiler's code instead of ours.
    #[arg(long)]
    pub ptxas: bool,
    /// Optimization level.
    #[arg(long, default_value_t = 3)]
    pub opt_level: u8,
    /// Knobs of our compiler (docs/phases.md).
    #[arg(long)]
    pub knob: Vec<String>,
}

/// How code is made.
#[derive(Clone, Copy)]
pub struct How {
    /// The reference compiler's says what lines of the PTX it comes from; ours always does.
    pub lines: bool,
    /// Products and sums may be contracted.
    pub fmad: bool,
}

impl Default for How {
    fn default() -> How {
        How { lines: false, fmad: true }
    }
}

impl Source {
    /// The code of a file for a target.
    pub fn cubin(
        &self,
        root: &Path,
        bin: &Path,
        (ptx, source): (&Path, &str),
        sm: &str,
        how: How,
    ) -> Result<Vec<u8>, String> {
        if self.ptxas {
            let level = format!("-O{}", self.opt_level);
            let mut options = Vec::new();
            options.extend(how.lines.then_some("-lineinfo"));
            options.extend((!how.fmad).then_some("-fmad=false"));
            options.extend((self.opt_level != 3).then_some(level.as_str()));
            return reference_with(root, bin, ptx, sm, &options);
        }
        let target = Target::parse(&format!("sm_{sm}")).ok_or("unknown target")?;
        let mut settings = oxptxas::Settings {
            opt_level: self.opt_level,
            line_info: Some(true),
            fmad: how.fmad,
            ..oxptxas::Settings::new(target)
        };
        self.knob.iter().try_for_each(|k| settings.knobs.add(k))?;
        let output = oxptxas::compile(source, &ptx.display().to_string(), &settings);
        let message =
            |f: oxptxas::Failure| f.diagnostics.first().map_or(String::new(), |d| d.message.clone());
        Ok(output.map_err(message)?.cubin)
    }
}

/// PTX files under a path, sorted.
pub fn ptx_files(path: &Path) -> Vec<PathBuf> {
    files(path, "ptx")
}

/// Files of a kind under a path, sorted; the path itself, if it is a file.
pub fn files(path: &Path, extension: &str) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.into()];
    }
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(path).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect();
    entries.sort();
    let wanted = |p: &PathBuf| p.is_dir() || p.extension().is_some_and(|x| x == extension);
    entries.iter().filter(|p| wanted(p)).flat_map(|p| files(p, extension)).collect()
}

/// The target that a PTX file names, without `sm_`.
pub fn own_target(text: &str) -> Option<String> {
    let line = text.lines().find_map(|l| l.trim().strip_prefix(".target"))?;
    Some(line.trim().strip_prefix("sm_")?.split(|c: char| !c.is_ascii_alphanumeric()).next()?.into())
}

/// Files and targets to compile.
pub fn jobs(root: &Path, paths: &[PathBuf], sms: &[String]) -> Vec<(PathBuf, String)> {
    let kernels = root.join("kernels");
    let paths = if paths.is_empty() { vec![kernels.clone()] } else { paths.to_vec() };
    let files = paths.iter().flat_map(|p| ptx_files(p));
    files
        .flat_map(|f| {
            let ours = f.canonicalize().is_ok_and(|f| f.starts_with(&kernels));
            let targets = match (sms.is_empty(), ours) {
                (false, _) => sms.to_vec(),
                (true, true) => crate::SMS.iter().map(u32::to_string).collect(),
                (true, false) => std::fs::read_to_string(&f).iter().filter_map(|t| own_target(t)).collect(),
            };
            targets.into_iter().map(move |t| (f.clone(), t))
        })
        .collect()
}

/// Compiles with ptxas, or finds what it made before in target/reference.
pub fn reference(root: &Path, bin: &Path, ptx: &Path, sm: &str) -> Result<Vec<u8>, String> {
    reference_with(root, bin, ptx, sm, &[])
}

/// The same with further options.
pub fn reference_with(
    root: &Path,
    bin: &Path,
    ptx: &Path,
    sm: &str,
    options: &[&str],
) -> Result<Vec<u8>, String> {
    let text = std::fs::read(ptx).map_err(|e| format!("{}: {e}", ptx.display()))?;
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for b in &text {
        hash = (hash ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3);
    }
    let dir = root.join("target/reference");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let out = dir.join(format!("{hash:016x}.{sm}{}.cubin", options.concat()));
    if let Ok(bytes) = std::fs::read(&out) {
        return Ok(bytes);
    }
    let mut c = Command::new(bin.join("ptxas"));
    c.arg(format!("-arch=sm_{sm}")).args(options).arg(ptx).arg("-o").arg(&out);
    let done = c.output().map_err(|e| format!("ptxas: {e}"))?;
    if !done.status.success() {
        return Err(format!("ptxas -arch=sm_{sm} refuses {}", ptx.display()));
    }
    std::fs::read(&out).map_err(|e| e.to_string())
}
