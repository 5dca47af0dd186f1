//! Modules that stay, as a driver has them.

use super::decode::{Fill, Place, Program};
use super::run::{blocks, check, kernel_of};
use super::{Options, SimError};
use crate::image::Kind;
use crate::launch::Launch;
use crate::memory::Memory;
use crate::watch::Watch;
use ::ptx::ast::{FuncId, Module, Opaque, Space, VarId};
use std::collections::BTreeMap;

/// A module of which the variables lie in memory, so that its kernels can be launched again and again.
pub struct Loaded {
    module: Module,
    /// Address of each variable; constant ones are copied from there for every launch.
    variables: Vec<(VarId, u64)>,
}

impl Loaded {
    /// Allocates and fills the variables.
    ///
    /// # Errors
    /// When one of them is too large to interpret, or there is no kernel.
    pub fn new(module: Module, memory: &mut Memory) -> Result<Loaded, SimError> {
        Loaded::new_at(module, memory, &BTreeMap::new())
    }

    /// Names and sizes of the variables of a module that are in managed memory.
    pub fn managed(module: &Module) -> Vec<(String, usize)> {
        let managed = module.vars.values().filter(|v| v.managed);
        managed.map(|v| (v.name.clone(), v.size() as usize)).collect()
    }

    /// As [`Loaded::new`], with managed variables at the addresses that are said of their names.
    ///
    /// # Errors
    /// As there.
    pub fn new_at(
        mut module: Module,
        memory: &mut Memory,
        managed: &BTreeMap<String, u64>,
    ) -> Result<Loaded, SimError> {
        if !module.aliases.is_empty() {
            module.resolve_aliases();
            module.aliases.clear();
        }
        let mut variables = Vec::new();
        let kernels: Vec<FuncId> =
            module.funcs.iter().filter(|(_, f)| f.entry && f.body.is_some()).map(|f| f.0).collect();
        // Those of a kernel alone are variables of the module too, with contents that stay.
        for kernel in kernels {
            let mut program = Program::new(&module, kernel, Fill::Zero, 0)?;
            let constant = |v: &VarId| module.vars[*v].space == Space::Const;
            let mut all = program.globals.clone();
            all.extend(module.vars.keys().filter(constant).filter(|v| program.places[*v] != Place::Missing));
            let new = |v: &VarId| !variables.iter().any(|(known, _)| known == v);
            for v in all.into_iter().filter(new).collect::<Vec<_>>() {
                let var = &module.vars[v];
                let zeros = vec![0; var.size() as usize];
                let at = match managed.get(&*var.name).filter(|_| var.managed) {
                    Some(at) => {
                        memory.place(&var.name, *at, zeros);
                        *at
                    }
                    None => memory.alloc(&var.name, zeros),
                };
                variables.push((v, at));
            }
            for (v, at) in variables.iter().filter(|(v, _)| module.vars[*v].space == Space::Global) {
                program.places[*v] = Place::Fixed(*at);
            }
            for (v, at) in &variables {
                let contents = program.initial(*v);
                if let Some(to) = memory.slice_mut(*at, contents.len()) {
                    to.copy_from_slice(&contents);
                }
            }
        }
        Ok(Loaded { module, variables })
    }

    /// Frees the variables.
    pub fn unload(self, memory: &mut Memory) {
        for (_, at) in self.variables {
            memory.remove(at);
        }
    }

    /// The module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Address and size of every variable by name.
    pub fn variables(&self) -> BTreeMap<&str, (u64, u64)> {
        let one = |(v, at): &(VarId, u64)| {
            let var = &self.module.vars[*v];
            (&*var.name, (*at, var.size()))
        };
        self.variables.iter().map(one).collect()
    }

    /// Textures and surfaces that the module has by name.
    pub fn image_names(&self) -> impl Iterator<Item = (&str, Kind)> {
        let global = self.module.vars.values().filter(|v| v.space == Space::Global);
        global.filter_map(|v| {
            let kind = match v.opaque? {
                Opaque::Texture => Kind::Texture,
                Opaque::Surface => Kind::Surface,
                Opaque::Sampler => return None,
            };
            Some((&*v.name, kind))
        })
    }

    /// Runs a kernel with these parameters on memory that stays: what the threads printed. Arguments and buffers of
    /// the launch are not looked at.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run(
        &self,
        launch: &Launch,
        params: &[u8],
        memory: &mut Memory,
        options: Options,
    ) -> Result<crate::output::Output, SimError> {
        let module = &self.module;
        let kernel = kernel_of(module, launch)?;
        let mut program = Program::new(module, kernel, options.fill, options.nudge)?;
        check(module, kernel, launch, params)?;
        for (v, at) in &self.variables {
            let var = &module.vars[*v];
            match (var.space, program.places[*v]) {
                (Space::Const, Place::Fixed(place)) => {
                    let place = place as usize;
                    if let Some(bytes) = memory.slice(*at, var.size() as usize) {
                        program.consts[place..place + bytes.len()].copy_from_slice(bytes);
                    }
                }
                (Space::Global, _) => program.places[*v] = Place::Fixed(*at),
                _ => {}
            }
        }
        blocks((&program, kernel), launch, params, memory, (options, (&mut Watch::new(&[]), None)))
    }
}
