//! Launches as a program made them: the kernel's shape and parameters, and all memory before and after, in a folder of
//! their own (docs/driver.md). Memory lies at the addresses that it had, as pointers are numbers.

use crate::image::Image;
use crate::launch::Launch;
use crate::memory::Memory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// A recorded launch: `launch.toml` of the folder.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The kernel.
    pub kernel: String,
    /// What it was compiled for, as in `sm_90`.
    pub target: String,
    /// The module's file: PTX or a cubin.
    pub module: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<[u32; 3]>,
    /// Whether all blocks run at once.
    #[serde(default)]
    pub cooperative: bool,
    /// Bytes of dynamic shared memory.
    #[serde(default)]
    pub shared: u32,
    /// Bytes of stack.
    #[serde(default)]
    pub stack: u32,
    /// The parameters' block, two digits a byte.
    pub params: String,
    /// Where the module's variables lie, two digits a byte, the highest first.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// Memory.
    #[serde(default)]
    pub memory: Vec<Piece>,
    /// Textures and surfaces, by the lower words of their handles.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, Image>,
}

/// An allocation, the variables of the module included: `before/ADDRESS` and `after/ADDRESS` hold its bytes.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    /// Its address, in hexadecimal digits.
    pub address: String,
    /// What it is.
    pub name: String,
}

/// Where the launch is described.
const FILE: &str = "launch.toml";

/// Why a launch is not recorded, or not read again.
#[derive(Debug)]
pub enum RecordError {
    /// A file, or the folder.
    Io(PathBuf, io::Error),
    /// The launch cannot be written as text.
    Write(toml::ser::Error),
    /// A file does not describe a launch.
    Read(PathBuf, toml::de::Error),
    /// What should be a number is none.
    Number(String),
    /// What should be the number of an image is none.
    Image(String),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Io(at, e) => write!(f, "{}: {e}", at.display()),
            RecordError::Write(e) => e.fmt(f),
            RecordError::Read(at, e) => write!(f, "{}: {e}", at.display()),
            RecordError::Number(text) => write!(f, "'{text}' is no hexadecimal number"),
            RecordError::Image(text) => write!(f, "'{text}' is no number of an image"),
        }
    }
}

impl std::error::Error for RecordError {}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn number(text: &str) -> Result<u64, RecordError> {
    u64::from_str_radix(text, 16).map_err(|_| RecordError::Number(text.into()))
}

impl Record {
    /// What a launch says of itself; parameters, variables and memory are to follow.
    pub fn of(launch: &Launch, params: &[u8], target: &str, module: &str) -> Record {
        Record {
            kernel: launch.kernel.clone(),
            target: target.into(),
            module: module.into(),
            grid: launch.grid,
            block: launch.block,
            cluster: launch.cluster,
            cooperative: launch.cooperative,
            shared: launch.shared,
            stack: launch.stack,
            params: hex(params),
            variables: BTreeMap::new(),
            memory: Vec::new(),
            images: BTreeMap::new(),
        }
    }

    /// Notes where variables are.
    pub fn place<'n>(&mut self, variables: impl Iterator<Item = (&'n str, u64)>) {
        self.variables.extend(variables.map(|(name, at)| (name.to_string(), format!("{at:x}"))));
    }

    /// Writes it with memory as it is before the launch.
    ///
    /// # Errors
    /// What is wrong with the folder.
    pub fn begin(&mut self, folder: &Path, module: &[u8], memory: &Memory) -> Result<(), RecordError> {
        let fail = |e| RecordError::Io(folder.into(), e);
        fs::create_dir_all(folder.join("before")).map_err(fail)?;
        fs::write(folder.join(&self.module), module).map_err(fail)?;
        for a in memory.allocations() {
            let address = format!("{:x}", a.base);
            fs::write(folder.join("before").join(&address), &*a.bytes).map_err(fail)?;
            self.memory.push(Piece { address, name: a.name.clone() });
        }
        self.images = memory.images.all().map(|(n, image)| (n.to_string(), image.clone())).collect();
        let text = toml::to_string(self).map_err(RecordError::Write)?;
        fs::write(folder.join(FILE), text).map_err(fail)
    }

    /// Writes memory as it is after the launch.
    ///
    /// # Errors
    /// What is wrong with the folder.
    pub fn end(&self, folder: &Path, memory: &Memory) -> Result<(), RecordError> {
        let fail = |e| RecordError::Io(folder.into(), e);
        fs::create_dir_all(folder.join("after")).map_err(fail)?;
        for p in &self.memory {
            let Some(a) = memory.allocation(number(&p.address)?) else { continue };
            fs::write(folder.join("after").join(&p.address), &*a.bytes).map_err(fail)?;
        }
        Ok(())
    }

    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(folder: &Path) -> Result<Record, RecordError> {
        let file = folder.join(FILE);
        let text = fs::read_to_string(&file).map_err(|e| RecordError::Io(file.clone(), e))?;
        toml::from_str(&text).map_err(|e| RecordError::Read(file, e))
    }

    /// The launch and its parameters.
    ///
    /// # Errors
    /// When the parameters are no bytes.
    pub fn launch(&self) -> Result<(Launch, Vec<u8>), RecordError> {
        let digits = self.params.as_bytes().as_chunks::<2>().0;
        let byte = |d: &[u8; 2]| number(&String::from_utf8_lossy(d)).map(|n| n as u8);
        let launch = Launch {
            grid: self.grid,
            block: self.block,
            cluster: self.cluster,
            cooperative: self.cooperative,
            shared: self.shared,
            stack: self.stack,
            ..Launch::of(&self.kernel)
        };
        Ok((launch, digits.iter().map(byte).collect::<Result<_, _>>()?))
    }

    /// Where the module's variables are to lie.
    ///
    /// # Errors
    /// When an address is none.
    pub fn places(&self) -> Result<BTreeMap<String, u64>, RecordError> {
        self.variables.iter().map(|(name, at)| Ok((name.clone(), number(at)?))).collect()
    }

    /// Gives memory the bytes of before the launch; what the module has placed already gets its own.
    ///
    /// # Errors
    /// What is wrong with the folder.
    pub fn fill(&self, folder: &Path, memory: &mut Memory) -> Result<(), RecordError> {
        for p in &self.memory {
            let (at, file) = (number(&p.address)?, folder.join("before").join(&p.address));
            let bytes = fs::read(&file).map_err(|e| RecordError::Io(file, e))?;
            memory.remove(at);
            memory.place(&p.name, at, bytes);
        }
        for (n, image) in &self.images {
            let number = n.parse().map_err(|_| RecordError::Image(n.clone()))?;
            memory.images.put(number, image.clone());
        }
        Ok(())
    }

    /// The first address at which memory differs from what it was after the recorded launch, and both bytes, for each
    /// piece that differs.
    ///
    /// # Errors
    /// What is wrong with the folder.
    pub fn differences(
        &self,
        folder: &Path,
        memory: &Memory,
    ) -> Result<Vec<(String, u64, [u8; 2])>, RecordError> {
        let mut out = Vec::new();
        for p in &self.memory {
            let (at, file) = (number(&p.address)?, folder.join("after").join(&p.address));
            let (Ok(want), Some(a)) = (fs::read(&file), memory.allocation(at)) else { continue };
            if let Some(i) = want.iter().zip(&*a.bytes).position(|(x, y)| x != y) {
                out.push((p.name.clone(), at + i as u64, [want[i], a.bytes[i]]));
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::format::{Element, Format};
    use crate::image::{Geometry, Sampler};

    #[test]
    fn what_was_recorded_is_read_again() {
        let launch = Launch { grid: [2, 1, 1], shared: 5, ..Launch::of("k") };
        let mut memory = Memory::new();
        let at = memory.alloc("x", vec![1, 2, 3]);
        let format = Format::new(Element::U8, 1, true).expect("is one");
        let image = Image::packed(at, Geometry::D2, format, ([2, 1, 1], 1), 2).expect("is one");
        let sampler = Sampler { clamp: Some([0.5, 2.0]), linear: true, ..Sampler::default() };
        memory.images.push(Image { sampler, ..image });
        let folder = std::env::temp_dir().join(format!("record-{}", std::process::id()));
        let mut record = Record::of(&launch, &[7, 255], "sm_90", "module.ptx");
        record.place([("v", 0x10)].into_iter());
        record.begin(&folder, b"text", &memory).expect("can be written");
        memory.write(at + 1, 1, 9).expect("is there");
        record.end(&folder, &memory).expect("can be written");
        let again = Record::read(&folder).expect("can be read");
        assert_eq!(again, record);
        assert_eq!(again.launch().expect("is one").1, [7, 255]);
        let mut other = Memory::new();
        again.fill(&folder, &mut other).expect("can be read");
        assert!(memory.images.all().eq(other.images.all()) && !other.images.is_empty());
        assert_eq!(again.differences(&folder, &other).unwrap(), vec![("x".into(), at + 1, [9, 2])]);
        fs::remove_dir_all(folder).expect("is there");
    }
}
