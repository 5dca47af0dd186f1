//! The linker.

use super::{Handle, below};
use crate::compile::Jit;
use crate::driver::with;
use crate::error::{Error, Result};
use crate::ffi::{Block, Host, In, Out, Text};
use crate::link::{Input, Link};

/// Kinds of inputs: cubin, PTX, fat binary, object, library, and code for link-time optimization.
const KINDS: u32 = 6;

fn add(link: Handle, input: Input) -> Result<()> {
    below(input.kind, KINDS)?;
    let jit = with(|d| Ok(d.links.get(link)?.jit.clone()))?;
    input.check(&jit)?;
    with(|d| {
        let l = d.links.get_mut(link)?;
        if l.output.is_some() {
            return Err(Error::INVALID_VALUE);
        }
        l.inputs.push(input);
        Ok(())
    })
}

api! {
    /// Begins.
    fn cuLinkCreate_v2(count: u32, options: In<u32>, values: Host, out: Out<Handle>) / cuLinkCreate {
        let jit = Jit::read(count, options, In::at(values.address()), values.address())?;
        out.make(|| with(|d| Ok(d.links.add(Link { jit, ..Link::default() }))))
    }
    /// Adds an input.
    fn cuLinkAddData_v2(link: Handle, kind: u32, data: Host, size: usize, name: Text, _count: u32, _options: In<u32>, _values: Host) / cuLinkAddData {
        let bytes = crate::ffi::read(data.address(), size)?;
        add(link, Input { kind, bytes, name: name.get().unwrap_or_default() })
    }
    /// Adds a file.
    fn cuLinkAddFile_v2(link: Handle, kind: u32, path: Text, _count: u32, _options: In<u32>, _values: Host) / cuLinkAddFile {
        let name = path.get()?;
        let bytes = std::fs::read(&name).map_err(|_| Error::FILE_NOT_FOUND)?;
        add(link, Input { kind, bytes, name })
    }
    /// The cubin, which stays until the link is destroyed.
    fn cuLinkComplete(link: Handle, cubin: Out<u64>, size: Out<usize>) {
        let work = with(|d| d.links.get(link).map(|l| Link { jit: l.jit.clone(), inputs: l.inputs.clone(), output: None }))?;
        let bytes = work.complete()?;
        let block = Block::new(bytes.len())?;
        crate::ffi::write(block.address(), &bytes)?;
        cubin.put(block.address())?;
        size.maybe(bytes.len());
        with(|d| { d.links.get_mut(link)?.output = Some(block); Ok(()) })
    }
    /// Ends.
    fn cuLinkDestroy(link: Handle) {
        with(|d| d.links.remove(link).map(|_| ()))
    }
}
