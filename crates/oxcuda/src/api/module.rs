//! Modules, libraries, functions, variables.

use super::launch::function;
use super::{Handle, below};
use crate::compile::Jit;
use crate::driver::{Driver, with, within};
use crate::error::{Error, Result};
use crate::ffi::{Host, In, Out, StaticText, Text};
use crate::memory::Kind;
use crate::module::{Image, prepare};

/// Loads an image into the current context, or for all contexts.
fn load(image: Image, jit: &Jit, library: bool) -> Result<Handle> {
    with(|_| Ok(()))?;
    if !library {
        within(|_| Ok(()))?;
    }
    let ready = prepare(image, jit)?;
    with(|d| {
        let context = if library { None } else { Some(d.context()?) };
        d.load(ready, context)
    })
}

fn file(name: Text) -> Result<Image> {
    Image::of(&std::fs::read(name.get()?).map_err(|_| Error::FILE_NOT_FOUND)?)
}

fn module_of(d: &Driver, handle: Handle) -> Result<&crate::module::Module> {
    d.modules.get(handle)
}

fn variable(module: Handle, name: Text, at: Out<u64>, size: Out<usize>) -> Result<()> {
    let name = name.get()?;
    let (address, bytes) = with(|d| module_of(d, module)?.variable(&name))?;
    at.maybe(address);
    size.maybe(bytes as usize);
    Ok(())
}

/// What a library is in the current context.
fn in_context(library: Handle) -> Result<Handle> {
    within(|d| {
        let context = d.context()?;
        d.module_in(library, context)
    })
}

fn kernels(module: Handle) -> Result<Vec<Handle>> {
    with(|d| Ok(module_of(d, module)?.functions.values().copied().collect()))
}

fn param(handle: Handle, index: usize, offset: Out<usize>, size: Out<usize>) -> Result<()> {
    let f = function_anywhere(handle)?;
    let (at, bytes) = f.params.get(index).ok_or(Error::INVALID_VALUE)?;
    offset.put(usize::from(*at))?;
    size.maybe(*bytes as usize);
    Ok(())
}

/// A function, context or not.
fn function_anywhere(handle: Handle) -> Result<crate::function::Function> {
    with(|d| d.functions.get(handle).cloned())
}

api! {
    /// Loads a file.
    fn cuModuleLoad(out: Out<Handle>, name: Text) {
        out.make(|| load(file(name)?, &Jit::default(), false))
    }
    /// Loads an image.
    fn cuModuleLoadData(out: Out<Handle>, image: Host) / cuModuleLoadFatBinary {
        out.make(|| load(Image::at(image.address())?, &Jit::default(), false))
    }
    /// Loads an image with options.
    fn cuModuleLoadDataEx(out: Out<Handle>, image: Host, count: u32, options: In<u32>, values: Host) {
        let jit = Jit::read(count, options, In::at(values.address()), values.address())?;
        out.make(|| load(Image::at(image.address())?, &jit, false))
    }
    /// Takes one away.
    fn cuModuleUnload(module: Handle) {
        within(|d| {
            let m = d.modules.get(module)?;
            // A library's goes with it.
            if m.context.is_none() || m.of_library { Err(Error::NOT_PERMITTED) } else { d.unload(module) }
        })
    }
    /// A kernel.
    fn cuModuleGetFunction(out: Out<Handle>, module: Handle, name: Text) {
        let name = name.get()?;
        out.put(within(|d| module_of(d, module)?.function(&name))?)
    }
    /// How many kernels there are.
    fn cuModuleGetFunctionCount(count: Out<u32>, module: Handle) {
        count.put(kernels(module)?.len() as u32)
    }
    /// All kernels.
    fn cuModuleEnumerateFunctions(out: Out<Handle>, most: u32, module: Handle) {
        out.list(kernels(module)?.into_iter().take(most as usize));
        Ok(())
    }
    /// A variable.
    fn cuModuleGetGlobal_v2(at: Out<u64>, size: Out<usize>, module: Handle, name: Text) {
        variable(module, name, at, size)
    }
    /// Loads an image for all contexts.
    fn cuLibraryLoadData(out: Out<Handle>, image: Host, options: In<u32>, values: Host, count: u32, _library: Host, _library_values: Host, _library_count: u32) {
        let jit = Jit::read(count, options, In::at(values.address()), values.address())?;
        out.make(|| load(Image::at(image.address())?, &jit, true))
    }
    /// Loads a file for all contexts.
    fn cuLibraryLoadFromFile(out: Out<Handle>, name: Text, options: In<u32>, values: Host, count: u32, _library: Host, _library_values: Host, _library_count: u32) {
        let jit = Jit::read(count, options, In::at(values.address()), values.address())?;
        out.make(|| load(file(name)?, &jit, true))
    }
    /// Takes one away.
    fn cuLibraryUnload(library: Handle) {
        with(|d| d.unload(library))
    }
    /// A kernel.
    fn cuLibraryGetKernel(out: Out<Handle>, library: Handle, name: Text) {
        let name = name.get()?;
        out.put(with(|d| module_of(d, library)?.function(&name))?)
    }
    /// How many kernels there are.
    fn cuLibraryGetKernelCount(count: Out<u32>, library: Handle) {
        count.put(kernels(library)?.len() as u32)
    }
    /// All kernels.
    fn cuLibraryEnumerateKernels(out: Out<Handle>, most: u32, library: Handle) {
        out.list(kernels(library)?.into_iter().take(most as usize));
        Ok(())
    }
    /// The library as a module of the current context.
    fn cuLibraryGetModule(out: Out<Handle>, library: Handle) {
        out.put(in_context(library)?)
    }
    /// A variable.
    fn cuLibraryGetGlobal(at: Out<u64>, size: Out<usize>, library: Handle, name: Text) {
        variable(in_context(library)?, name, at, size)
    }
    /// Where a managed variable lies, and its size.
    fn cuLibraryGetManaged(at: Out<u64>, size: Out<usize>, library: Handle, name: Text) {
        let name = name.get()?;
        let (address, bytes) = with(|d| {
            let (address, bytes) = module_of(d, library)?.variable(&name)?;
            match d.space.find(address) {
                Some((_, r)) if r.kind == Kind::Variable => Ok((address, bytes)),
                _ => Err(Error::NOT_FOUND),
            }
        })?;
        at.maybe(address);
        size.maybe(bytes as usize);
        Ok(())
    }
    /// The kernel as a function of the current context.
    fn cuKernelGetFunction(out: Out<Handle>, kernel: Handle) {
        function(kernel)?;
        out.put(kernel)
    }
    /// Where a kernel is from.
    fn cuKernelGetLibrary(out: Out<Handle>, kernel: Handle) {
        out.put(function_anywhere(kernel)?.module)
    }
    /// Where a function is from.
    fn cuFuncGetModule(out: Out<Handle>, handle: Handle) {
        out.put(function(handle)?.module)
    }
    /// Its name.
    fn cuFuncGetName(out: Out<StaticText>, handle: Handle) / cuKernelGetName {
        out.put(crate::ffi::kept_text(&function_anywhere(handle)?.name))
    }
    /// Whether it is loaded: it is.
    fn cuFuncIsLoaded(state: Out<u32>, handle: Handle) {
        function(handle)?;
        state.put(1)
    }
    /// Loads it.
    fn cuFuncLoad(handle: Handle) {
        function(handle).map(|_| ())
    }
    /// Where a parameter lies.
    fn cuFuncGetParamInfo(handle: Handle, index: usize, offset: Out<usize>, size: Out<usize>) / cuKernelGetParamInfo {
        param(handle, index, offset, size)
    }
    /// An attribute.
    fn cuFuncGetAttribute(value: Out<i32>, attribute: u32, handle: Handle) {
        value.put(function(handle)?.attribute(attribute)?)
    }
    /// Sets an attribute.
    fn cuFuncSetAttribute(handle: Handle, attribute: u32, value: i32) {
        within(|d| d.functions.get_mut(handle)?.set_attribute(attribute, value))
    }
    /// An attribute.
    fn cuKernelGetAttribute(value: Out<i32>, attribute: u32, handle: Handle, device: i32) {
        super::device::check(device)?;
        value.put(function_anywhere(handle)?.attribute(attribute)?)
    }
    /// Sets an attribute.
    fn cuKernelSetAttribute(attribute: u32, value: i32, handle: Handle, device: i32) {
        super::device::check(device)?;
        with(|d| d.functions.get_mut(handle)?.set_attribute(attribute, value))
    }
    /// What caches it prefers: nothing depends on it.
    fn cuFuncSetCacheConfig(handle: Handle, config: u32) {
        below(config, 4)?;
        function(handle).map(|_| ())
    }
    /// What caches it prefers: nothing depends on it.
    fn cuKernelSetCacheConfig(handle: Handle, config: u32, device: i32) {
        below(config, 4)?;
        super::device::check(device)?;
        function_anywhere(handle).map(|_| ())
    }
    /// How wide banks are: nothing depends on it.
    fn cuFuncSetSharedMemConfig(handle: Handle, config: u32) {
        below(config, 3)?;
        function(handle).map(|_| ())
    }
}
