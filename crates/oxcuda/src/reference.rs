//! References of textures and surfaces: names that a module's code has for them, bound by the program before a launch. What a
//! launch sees is what was bound when it runs.

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::image::{Resource, Sampling};
use crate::module::Code;
use sim::image::{Bound, Kind};

/// A reference.
#[derive(Debug)]
pub struct Reference {
    /// The module that has it.
    pub module: u64,
    name: String,
    kind: Kind,
    /// What it is bound to, if it is.
    pub resource: Option<Resource>,
    /// Number of the format of a channel, and channels.
    pub format: [u32; 2],
    /// How it is sampled, if it is of a texture.
    pub sampling: Sampling,
    /// The texture or surface that it was when a kernel was launched last, if nothing was changed since.
    object: Option<u64>,
}

impl Reference {
    fn new(module: u64, name: &str, kind: Kind) -> Reference {
        let (name, format) = (name.to_string(), [0x20, 1]);
        Reference { module, name, kind, resource: None, format, sampling: Sampling::default(), object: None }
    }
}

impl Driver {
    /// The reference of a name in a module.
    pub fn reference_of(&mut self, module: u64, name: &str, kind: Kind) -> Result<u64> {
        let has = match &self.modules.get(module)?.code {
            Code::Sass(m) => m.image_names().any(|(n, k)| (n, k) == (name, kind)),
            Code::Ptx(m) => m.image_names().any(|(n, k)| (n, k) == (name, kind)),
        };
        if !has {
            return Err(Error::NOT_FOUND);
        }
        let same = |r: &Reference| r.module == module && r.name == name && r.kind == kind;
        let known = self.references.iter().find(|(_, r)| same(r)).map(|r| r.0);
        Ok(known.unwrap_or_else(|| self.references.add(Reference::new(module, name, kind))))
    }

    /// Changes a reference of a kind.
    pub fn change_reference(
        &mut self,
        handle: u64,
        kind: Kind,
        change: impl FnOnce(&mut Reference) -> Result<()>,
    ) -> Result<()> {
        let r = self.references.get_mut(handle)?;
        if r.kind != kind {
            return Err(Error::INVALID_HANDLE);
        }
        change(r)?;
        // What it was bound to may be gone, and its texture with it.
        match r.object.take() {
            Some(object) => self.unbind(object, kind).or(Ok(())),
            None => Ok(()),
        }
    }

    /// Lets the names of a module stand for what the program bound to them.
    pub fn bind_references(&mut self, module: u64) -> Result<()> {
        let of = |r: &Reference| r.module == module && r.resource.is_some();
        let own: Vec<u64> = self.references.iter().filter(|(_, r)| of(r)).map(|r| r.0).collect();
        for handle in own {
            let r = self.references.get(handle)?;
            let (Some(resource), kind, name) = (r.resource, r.kind, r.name.clone()) else { continue };
            let object = match (r.object, kind) {
                (Some(object), _) => object,
                (None, Kind::Texture) => self.make_texture(resource, r.sampling, None)?,
                (None, Kind::Surface) => self.make_surface(resource)?,
            };
            self.references.get_mut(handle)?.object = Some(object);
            self.space.memory.images.bind(&name, Bound::Image(object));
        }
        Ok(())
    }

    /// Takes the references of a module away.
    pub fn free_references(&mut self, module: u64) -> Result<()> {
        let own: Vec<u64> = self.references.iter().filter(|(_, r)| r.module == module).map(|r| r.0).collect();
        for handle in own {
            let r = self.references.remove(handle)?;
            if let Some(object) = r.object {
                self.unbind(object, r.kind).or(Ok::<(), Error>(()))?;
            }
        }
        Ok(())
    }
}
