//! Textures, samplers and surfaces by name: symbols that the driver binds, and words of constant bank 0 that it fills in
//! (ptxas 13.0.88; docs/cubin.md).

use crate::attrs::{Attr, Attrs};
use object::elf;

/// What a name is of, by the type of its symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ImageKind {
    /// A texture.
    Texture = 10,
    /// A sampler.
    Sampler = 11,
    /// A surface.
    Surface = 12,
}

impl ImageKind {
    /// The kind of a symbol of this type.
    pub fn of(symbol_type: u8) -> Option<ImageKind> {
        [ImageKind::Texture, ImageKind::Sampler, ImageKind::Surface]
            .into_iter()
            .find(|k| *k as u8 == symbol_type)
    }

    /// The relocation that fills in a word: R_CUDA_TEX_HEADER_INDEX, R_CUDA_SAMP_HEADER_INDEX (before sm_90 the upper bits of
    /// its texture's word, then a word of its own), R_CUDA_SURF_HEADER_INDEX.
    pub fn reloc(self, sm: u8) -> u32 {
        match self {
            ImageKind::Texture => 6,
            ImageKind::Sampler if sm >= 90 => 0x65,
            ImageKind::Sampler => 7,
            ImageKind::Surface => 0x34,
        }
    }

    /// What a relocation of this type fills in; nvlink has the older one for samplers on all targets.
    pub fn filled(reloc: u32) -> Option<ImageKind> {
        match reloc {
            6 => Some(ImageKind::Texture),
            7 | 0x65 => Some(ImageKind::Sampler),
            0x34 => Some(ImageKind::Surface),
            _ => None,
        }
    }

    /// The space of such a parameter in KPARAM_INFO.
    pub(crate) fn space(self) -> u32 {
        match self {
            ImageKind::Texture => 6,
            ImageKind::Surface => 7,
            ImageKind::Sampler => 8,
        }
    }
}

/// How a sampler is set up: what the PTX says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SamplerInit {
    /// Its place among all variables: the last is stated first.
    pub declared: u32,
    /// Address modes of three dimensions and the filter, 0xff where nothing is said.
    pub modes: [u8; 4],
    /// Whether coordinates are texels in any case.
    pub unnormalized: Option<u32>,
}

/// A texture, sampler or surface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageSymbol {
    /// Name.
    pub name: String,
    /// What it is.
    pub kind: ImageKind,
    /// Of a parameter the kernel, by its place in the list.
    pub kernel: Option<usize>,
    /// Of a sampler of the module.
    pub sampler: Option<SamplerInit>,
}

impl ImageSymbol {
    /// By what the writer finds its symbol, and what relocations of objects name: parameters of several kernels may have one name.
    pub fn key(n: usize) -> String {
        format!("image {n}")
    }

    /// `st_info`.
    pub(crate) fn info(&self) -> u8 {
        let binding = if self.kernel.is_some() { elf::STB_LOCAL } else { elf::STB_GLOBAL };
        binding << 4 | self.kind as u8
    }
}

/// States how the samplers of the module are set up, the last one first; `symbols` are the numbers of all `images`.
pub(crate) fn samplers(attributes: &mut Attrs, images: &[ImageSymbol], symbols: &[(u32, ImageKind)]) {
    let mut samplers: Vec<_> =
        images.iter().zip(symbols).filter_map(|(i, s)| Some((i.sampler?, s.0))).collect();
    samplers.sort_by_key(|(init, _)| std::cmp::Reverse(init.declared));
    for (init, symbol) in samplers {
        if let Some(set) = init.unnormalized {
            attributes.words(Attr::SamplerForceUnnormalized, &[symbol, set]);
        }
        attributes.words(Attr::SamplerInit, &[symbol, u32::from_le_bytes(init.modes)]);
    }
}

/// A word of constant bank 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImageWord {
    /// Its byte offset in the bank.
    pub offset: u32,
    /// What fills it in, by its place in the list of the file.
    pub image: usize,
    /// Before sm_90 what fills in the upper bits, if that is not the texture's own sampler.
    pub sampler: Option<usize>,
}
