//! Images for the textures and surfaces of a kernel: of the geometry that its instructions name, of a format that they can
//! read or write, with modes that the seed chooses.

use crate::image::format::{Element, Format};
use crate::image::{
    ADDRESSES, Address, Bound, COMPARISONS, GEOMETRIES, Geometry, Image, Images, Kind, Sampler,
};
use crate::launch::Rng;
use crate::sparse::{Content, Sparse};
use ::ptx::ast::{Addr, AddrBase, Func, Inst, Opaque, Operand, RegId, Space, Stmt, VarId};
use ::ptx::{Mod, Module, Op, Type};
use std::collections::BTreeMap;

/// What the instructions that use a handle ask of its image.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Wants {
    kind: Option<Kind>,
    geometry: Option<Geometry>,
    /// Its texels are read as floating-point numbers, or as integers.
    float: Option<bool>,
    /// Samples are written by their format, or changed; or accessed by so many bytes.
    formatted: bool,
    bytes: u32,
    /// Depths are compared.
    depth: bool,
    /// Levels are named.
    levels: bool,
    /// Of all channels one is asked for by name.
    channels: u32,
}

/// The register that holds the handle of a texture or surface.
pub(super) fn handle(inst: &Inst) -> Option<RegId> {
    if !matches!(inst.op, Op::tex | Op::tld4 | Op::txq | Op::suld | Op::sust | Op::sured | Op::suq) {
        return None;
    }
    inst.operands.iter().find_map(|o| match o {
        Operand::Bracket(list) => match list.first()? {
            Operand::Reg(r) | Operand::Addr(Addr { base: AddrBase::Reg(r), .. }) => Some(*r),
            _ => None,
        },
        Operand::Addr(Addr { base: AddrBase::Reg(r), .. }) => Some(*r),
        _ => None,
    })
}

/// An instruction's operand that names a texture, sampler or surface: which, and whether it is one of a list's first.
fn named(module: &Module, inst: &Inst) -> Vec<VarId> {
    let one = |o: &Operand| match o {
        Operand::Var(v, 0) | Operand::Addr(Addr { base: AddrBase::Var(v), .. }) => {
            module.vars[*v].opaque.is_some().then_some(*v)
        }
        _ => None,
    };
    let all = inst.operands.iter().flat_map(|o| match o {
        Operand::Bracket(list) => list.iter().filter_map(one).collect(),
        o => one(o).into_iter().collect::<Vec<_>>(),
    });
    all.collect()
}

/// Images and samplers for what the module names, and the kernel among its parameters.
pub(super) fn by_name(
    module: &Module,
    kernel: &Func,
    seed: u64,
    list: &mut Vec<Image>,
    contents: &mut Vec<Content>,
) -> (Vec<Sampler>, BTreeMap<String, Bound>) {
    let mut wants: BTreeMap<VarId, Wants> = BTreeMap::new();
    let mut samplers: Vec<VarId> = Vec::new();
    let concerned = |v: VarId| module.vars[v].space != Space::Param || kernel.params.contains(&v);
    for body in module.funcs.values().filter_map(|f| f.body.as_ref()) {
        let insts = || body.stmts.iter().filter_map(|s| if let Stmt::Inst(i) = s { Some(i) } else { None });
        for i in insts() {
            for v in named(module, i).into_iter().filter(|v| concerned(*v)) {
                if module.vars[v].opaque == Some(Opaque::Sampler) {
                    samplers.push(v);
                    continue;
                }
                let want = wants.entry(v).or_default();
                let surface = module.vars[v].opaque == Some(Opaque::Surface);
                want.kind = Some(if surface { Kind::Surface } else { Kind::Texture });
                match (i.op, i.operands.first()) {
                    // What is done by a handle in a register.
                    (Op::mov, Some(Operand::Reg(r))) => {
                        insts().filter(|u| handle(u) == Some(*r)).for_each(|u| want.add(u));
                    }
                    _ => want.add(i),
                }
            }
        }
    }
    // What nothing names has a word in linked files all the same.
    for (v, var) in module.vars.iter().filter(|(v, var)| concerned(*v) && var.dims.is_empty()) {
        match var.opaque {
            Some(Opaque::Sampler) => samplers.push(v),
            Some(opaque) => {
                let kind = if opaque == Opaque::Surface { Kind::Surface } else { Kind::Texture };
                let unused = || Wants { kind: Some(kind), geometry: Some(Geometry::D1), ..Wants::default() };
                wants.entry(v).or_insert_with(unused);
            }
            None => {}
        }
    }
    samplers.sort_unstable();
    samplers.dedup();
    let mut rng = Rng::new(seed ^ 0x7e0);
    let mut names = BTreeMap::new();
    for (v, want) in wants {
        let Some((kind, image, content)) = want.image(Sparse::address(contents.len()), &mut rng) else {
            continue;
        };
        contents.push(content);
        list.push(image);
        names.insert(module.vars[v].name.clone(), Bound::Image(Images::handle(list.len() - 1, kind)));
    }
    // Any of them may be with any texture.
    let filters = list.iter().all(|i| i.format.reads_float());
    let cubes = list.iter().any(|i| i.geometry.is_cube());
    let levels = list.iter().any(|i| i.levels.len() > 1);
    let mut own = Vec::new();
    for v in samplers {
        let mut one = sampler(&mut |n| (rng.next() >> 32) as usize % n, filters, cubes);
        one.normalized |= levels;
        own.push(one);
        names.insert(module.vars[v].name.clone(), Bound::Sampler(own.len() as u32));
    }
    (own, names)
}

/// A sampler of any modes; `filters` if the image is read as floating-point numbers.
fn sampler(pick: &mut impl FnMut(usize) -> usize, filters: bool, cube: bool) -> Sampler {
    let linear = filters && pick(2) == 0;
    let address = [(); 3].map(|()| ADDRESSES[pick(4)].1);
    Sampler {
        bias: 0.0,
        clamp: None,
        normalized: pick(2) == 0,
        address: if cube { [Address::Clamp; 3] } else { address },
        linear,
        linear_levels: linear && pick(2) == 0,
        border: if pick(2) == 0 { [0.0; 4] } else { [0.5, 1.0, -2.0, 4.0] },
        compare: COMPARISONS[pick(4)].1,
    }
}

impl Wants {
    /// Adds what an instruction asks for.
    pub(super) fn add(&mut self, inst: &Inst) {
        let texture = matches!(inst.op, Op::tex | Op::tld4 | Op::txq);
        self.kind.get_or_insert(if texture { Kind::Texture } else { Kind::Surface });
        let geometry = inst.mods.iter().find_map(|m| GEOMETRIES.iter().find(|g| g.0 == m.name()));
        self.geometry = self.geometry.or(geometry.map(|g| g.1));
        self.levels |= inst.one_of(&[Mod::level, Mod::grad]).is_some();
        let ty = inst.ty(0).unwrap_or(Type::b32);
        match inst.op {
            Op::tex | Op::tld4 => {
                let extra = usize::from(inst.has(Mod::level)) + 2 * usize::from(inst.has(Mod::grad));
                let mut rest = inst.operands.iter().enumerate().skip(2 + extra);
                let depth = rest.any(|(n, o)| !inst.is_braced(n) && !matches!(o, Operand::Vector(_)));
                self.depth |= depth;
                self.float = self.float.or(Some(ty.is_float() || depth));
                let channel = inst.one_of(&[Mod::r, Mod::g, Mod::b, Mod::a]);
                let needs = match channel {
                    Some(Mod::g) => 2,
                    Some(Mod::b | Mod::a) => 4,
                    _ => 1,
                };
                self.channels = self.channels.max(needs);
            }
            Op::suld | Op::sust | Op::sured => {
                self.formatted |= inst.has(Mod::p);
                let count = inst.operands.iter().find_map(|o| match o {
                    Operand::Vector(v) => Some(v.len() as u32),
                    _ => None,
                });
                self.bytes = self.bytes.max(ty.bytes() * count.unwrap_or(1));
                self.channels = self.channels.max(count.unwrap_or(1));
            }
            _ => {}
        }
    }

    /// An image at an address, and what its memory holds.
    pub(super) fn image(&self, base: u64, rng: &mut Rng) -> Option<(Kind, Image, Content)> {
        let kind = self.kind?;
        let mut pick = |n: usize| (rng.next() >> 32) as usize % n;
        // Of queries alone any geometry is right.
        let geometry = self.geometry.unwrap_or_else(|| GEOMETRIES[pick(7)].1);
        let format = self.format(kind, &mut pick);
        let width = 5 + pick(20) as u32;
        let mut size = [1; 3];
        for (d, n) in size.iter_mut().enumerate().take(geometry.dims()) {
            *n = if d == 0 || geometry.is_cube() { width } else { 2 + pick(12) as u32 };
        }
        // Whatever has to be aligned is at the end of a row as well.
        if kind == Kind::Surface {
            size[0] = size[0].next_multiple_of(16);
        }
        let layers = if geometry.is_array() { 2 + pick(4) as u32 } else { 1 };
        let samples = if geometry.has_samples() { 2 } else { 1 };
        let most = size.iter().max().map_or(1, |n| n.ilog2() + 1);
        let levels = if kind == Kind::Texture && (self.levels || self.geometry.is_none()) && samples == 1 {
            1 + pick(most as usize) as u32
        } else {
            1
        };
        let mut sampler = sampler(&mut pick, format.reads_float(), geometry.is_cube());
        // Of mipmapped arrays coordinates have to be normalized (cuTexObjectCreate).
        sampler.normalized |= levels > 1;
        let image = Image::new(base, geometry, format, (size, layers, samples), (levels, 0), sampler).ok()?;
        let content = match format.element {
            Element::F32 => Content::F32,
            Element::F16 => Content::F16,
            _ => Content::Bits,
        };
        Some((kind, image, content))
    }

    fn format(&self, kind: Kind, pick: &mut impl FnMut(usize) -> usize) -> Format {
        let channels = [1, 2, 4][pick(3)].max(self.channels);
        let format =
            |(element, normalized): (Element, bool), channels| Format { element, channels, normalized };
        let integers = [Element::U8, Element::S8, Element::U16, Element::S16, Element::U32, Element::S32];
        let floats = [
            (Element::F32, false),
            (Element::F16, false),
            (Element::U8, true),
            (Element::S8, true),
            (Element::U16, true),
            (Element::S16, true),
        ];
        if kind == Kind::Surface {
            return match (self.formatted, self.bytes) {
                // What is converted is as wide as what it is made of.
                (true, 8) if self.channels == 1 => format(([Element::U32, Element::S32][pick(2)], false), 2),
                (true, _) => format(([Element::U32, Element::S32][pick(2)], false), self.channels.max(1)),
                // Whatever the format is, bytes count.
                _ => format((integers[pick(6)], false), channels),
            };
        }
        match self.float {
            Some(false) => format((integers[pick(6)], false), channels),
            Some(true) => format(floats[pick(6)], channels),
            None => match pick(2) {
                0 => format((integers[pick(6)], false), channels),
                _ => format(floats[pick(6)], channels),
            },
        }
    }
}
