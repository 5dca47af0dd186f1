//! A launch for a kernel that has no launch file: pointers and the kinds of data behind them are found by following
//! the kernel's code, everything else is made from a seed.

mod images;

use crate::image::{Bound, Image, Images, Kind, Sampler};
use crate::launch::{Launch, Rng};
use crate::sparse::{Content, Range, Sparse};
use ::ptx::ast::{
    Addr, AddrBase, Body, Func, FuncId, Inst, Module, Operand, RegId, Space, Stmt, VarId, VectorElem,
};
use ::ptx::isa::TypeClass;
use ::ptx::{Mod, Op, SpecialReg, Type};
use cranelift_entity::SecondaryMap;
use images::Wants;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// Parameters and memory of a generated launch.
#[derive(Clone, Debug, Default)]
pub struct Generated {
    /// The kernel's parameter block.
    pub params: Vec<u8>,
    /// Global memory.
    pub memory: Sparse,
    /// What textures and surfaces are bound to.
    pub images: Vec<Image>,
    /// Samplers of their own.
    pub samplers: Vec<Sampler>,
    /// What names stand for.
    pub names: BTreeMap<String, Bound>,
}

/// What a set of registers that are copied to each other is used for.
#[derive(Clone, Copy, Default, Debug)]
struct Facts {
    /// As an address of global memory, or as the one term of a sum that is the address.
    pointer: bool,
    /// As a factor, or shifted: not an address, even if it is added to one.
    factor: bool,
    /// Offset of the parameter that it is loaded from.
    param: Option<u32>,
    /// Loaded from memory, all eight bytes.
    loaded: bool,
    /// The region that it points into, plus one.
    region: usize,
    /// As a number of this kind.
    number: Option<Content>,
}

/// Registers of a body, those that are copied to each other as one.
struct Flow {
    parent: SecondaryMap<RegId, Option<RegId>>,
    facts: SecondaryMap<RegId, Facts>,
    /// Terms of the sums that are kept in them.
    terms: SecondaryMap<RegId, Vec<RegId>>,
}

impl Flow {
    fn root(&self, mut r: RegId) -> RegId {
        while let Some(up) = self.parent[r] {
            r = up;
        }
        r
    }
    fn unite(&mut self, a: RegId, b: RegId) {
        let (a, b) = (self.root(a), self.root(b));
        if a != b {
            self.parent[b] = Some(a);
        }
    }
    fn facts(&mut self, r: RegId) -> &mut Facts {
        let r = self.root(r);
        &mut self.facts[r]
    }
    /// What comes from parameters or memory into the sum that `address` is.
    fn leaves(&self, address: RegId) -> Vec<RegId> {
        let mut seen = vec![self.root(address)];
        let mut known: FxHashSet<RegId> = seen.iter().copied().collect();
        let mut next = 0;
        while let Some(&r) = seen.get(next) {
            next += 1;
            for &t in &self.terms[r] {
                let t = self.root(t);
                if known.insert(t) {
                    seen.push(t);
                }
            }
        }
        seen.retain(|&r| self.facts[r].param.is_some() || self.facts[r].loaded);
        seen
    }
}

fn content_of(ty: Type) -> Option<Content> {
    match (ty.class(), ty.bytes()) {
        (TypeClass::Float, 8) if ty != Type::f32x2 => Some(Content::F64),
        (TypeClass::Float, 2 | 4) if matches!(ty, Type::bf16 | Type::bf16x2) => Some(Content::Bf16),
        (TypeClass::Float, 2 | 4) if matches!(ty, Type::f16 | Type::f16x2) => Some(Content::F16),
        (TypeClass::Float, _) => Some(Content::F32),
        (TypeClass::Signed | TypeClass::Unsigned, n) => Some(Content::Int(n as u8)),
        _ => None,
    }
}

fn registers(o: &Operand) -> impl Iterator<Item = RegId> + '_ {
    let (one, many) = match o {
        Operand::Reg(r) => (Some(*r), &[][..]),
        Operand::Vector(v) => (None, &v[..]),
        _ => (None, &[][..]),
    };
    one.into_iter().chain(many.iter().filter_map(|e| match e {
        VectorElem::Reg(r) => Some(*r),
        _ => None,
    }))
}

/// Whether the instruction accesses global memory, perhaps by a generic address.
fn is_global_access(inst: &Inst) -> bool {
    let access = matches!(inst.op, Op::ld | Op::st | Op::atom | Op::red | Op::ldu | Op::prefetch)
        || matches!(inst.op, Op::cp | Op::discard | Op::applypriority | Op::wmma);
    access && inst.one_of(&[Mod::shared, Mod::shared_cta, Mod::local, Mod::param, Mod::_const]).is_none()
        || inst.op == Op::cp && inst.has(Mod::global)
}

/// Sources whose sum is the result.
fn terms(inst: &Inst) -> &[Operand] {
    match inst.op {
        _ if inst.ty(0).is_none_or(|t| t.is_float()) || inst.operands.len() < 3 => &[],
        Op::add => &inst.operands[1..3],
        Op::sub => &inst.operands[1..2],
        Op::mad => inst.operands.get(3..4).unwrap_or(&[]),
        // An address that is aligned.
        Op::and | Op::or if matches!(inst.operands[2], Operand::Int(_)) => &inst.operands[1..2],
        _ => &[],
    }
}

/// Registers that the instruction scales.
fn factors(inst: &Inst) -> &[Operand] {
    match inst.op {
        _ if inst.ty(0).is_none_or(|t| t.is_float()) || inst.operands.len() < 3 => &[],
        Op::mul | Op::mad | Op::div | Op::rem => &inst.operands[1..3],
        Op::shl | Op::shr => &inst.operands[1..2],
        _ => &[],
    }
}

fn instructions(body: &Body) -> impl Iterator<Item = &Inst> {
    body.stmts.iter().filter_map(|s| match s {
        Stmt::Inst(i) => Some(i),
        _ => None,
    })
}

/// The base registers of the addresses of an access to memory.
fn bases(inst: &Inst) -> impl Iterator<Item = RegId> + '_ {
    inst.operands.iter().filter_map(|o| match o {
        Operand::Addr(Addr { base: AddrBase::Reg(r), .. }) => Some(*r),
        _ => None,
    })
}

/// A place where eight bytes are kept for a while: one of local memory, or all shared memory.
type Place = Option<(Option<RegId>, Option<VarId>, i64)>;

/// The place, and what is stored there or loaded from it.
fn keeps(inst: &Inst) -> Option<(Place, &Operand)> {
    let [a, b, ..] = &inst.operands[..] else { return None };
    let (data, Operand::Addr(addr)) = (if inst.op == Op::st { (b, a) } else { (a, b) }) else { return None };
    if !matches!(inst.op, Op::ld | Op::st) || inst.types().last().is_none_or(|t| t.bytes() != 8) {
        return None;
    }
    let place = match (inst.one_of(&[Mod::local, Mod::shared])?, addr.base) {
        (Mod::local, AddrBase::Reg(r)) => Some((Some(r), None, addr.offset)),
        (Mod::local, AddrBase::Var(v)) => Some((None, Some(v), addr.offset)),
        _ => None,
    };
    Some((place, data))
}

fn analyse(body: &Body, fields: &[(RegId, Field)]) -> Flow {
    let mut flow =
        Flow { parent: SecondaryMap::new(), facts: SecondaryMap::new(), terms: SecondaryMap::new() };
    for i in instructions(body) {
        let copies = match i.op {
            Op::mov | Op::cvta => &i.operands[..],
            Op::selp => i.operands.get(..3).unwrap_or(&[]),
            _ => &[],
        };
        let mut all = copies.iter().flat_map(registers);
        if let Some(first) = all.next() {
            all.for_each(|r| flow.unite(first, r));
        }
    }
    for (r, field) in fields.iter().filter(|(_, f)| f.bytes == 8) {
        let param = &mut flow.facts(*r).param;
        *param = Some(param.map_or(field.offset, |p| p.min(field.offset)));
    }
    let mut addresses = Vec::new();
    for i in instructions(body) {
        for r in factors(i).iter().flat_map(registers) {
            flow.facts(r).factor = true;
        }
        if is_global_access(i) {
            addresses.extend(bases(i));
            if i.op == Op::ld && i.types().last().is_some_and(|t| t.bytes() == 8) {
                for r in i.operands[..1].iter().flat_map(registers) {
                    flow.facts(r).loaded = true;
                }
            }
        }
        if !terms(i).is_empty()
            && let Some(d) = registers(&i.operands[0]).next()
        {
            let d = flow.root(d);
            flow.terms[d].extend(terms(i).iter().flat_map(registers));
        }
        if matches!(i.op, Op::mov | Op::cvta | Op::selp) {
            continue;
        }
        let stored = matches!(i.op, Op::st | Op::ld);
        if let Some(ty) = i.types().last()
            && let Some(c) = content_of(ty)
        {
            let from = usize::from(!stored && i.operands.len() > 1);
            for r in i.operands[from..].iter().flat_map(registers) {
                // A floating-point use says more than an integer one.
                let number = &mut flow.facts(r).number;
                if number.is_none() || !matches!(c, Content::Int(_)) {
                    *number = Some(c);
                }
            }
        }
        if i.op == Op::st && i.has(Mod::param) && i.ty(0).is_some_and(|t| t.bytes() == 8) {
            // An argument of a call: an address unless it is seen as a number.
            for r in i.operands.iter().flat_map(registers) {
                if flow.facts(r).number.is_none() {
                    addresses.push(r);
                }
            }
        }
    }
    // What is loaded from a place may be any of the first values stored there.
    let mut stored: BTreeMap<Place, Vec<RegId>> = BTreeMap::new();
    for (place, data) in instructions(body).filter(|i| i.op == Op::st).filter_map(keeps) {
        let values = stored.entry(place).or_default();
        values.extend(registers(data).take(16_usize.saturating_sub(values.len())));
    }
    for (place, data) in instructions(body).filter(|i| i.op == Op::ld).filter_map(keeps) {
        for r in registers(data) {
            let r = flow.root(r);
            flow.terms[r].extend(stored.get(&place).into_iter().flatten());
        }
    }
    let mut choices: Vec<Vec<RegId>> = addresses.into_iter().map(|a| flow.leaves(a)).collect();
    // Where only one term can be the address, it tells about sums where several can.
    choices.sort_by_key(Vec::len);
    for leaves in choices {
        let rank = |r: &&RegId| {
            let f = &flow.facts[**r];
            (!f.pointer, f.factor, f.param.is_none(), f.param)
        };
        if let Some(&pointer) = leaves.iter().min_by_key(rank) {
            flow.facts[pointer].pointer = true;
        }
    }
    flow
}

/// A field of the parameter block that the kernel reads.
#[derive(Clone, Copy)]
struct Field {
    offset: u32,
    bytes: u32,
    content: Option<Content>,
    /// Region that it points to.
    region: Option<usize>,
    /// The image that it is a handle of.
    image: Option<(usize, Kind)>,
}

/// The registers that parameters are loaded into, and what of them.
fn parameters(module: &Module, func: &Func, body: &Body) -> Vec<(RegId, Field)> {
    let (offsets, _) = module.param_layout(func);
    let mut fields = Vec::new();
    for i in instructions(body).filter(|i| i.op == Op::ld && i.has(Mod::param)) {
        let [to, Operand::Addr(a), ..] = &i.operands[..] else { continue };
        let (AddrBase::Var(v), Some(ty)) = (a.base, i.types().last()) else { continue };
        let Some(n) = func.params.iter().position(|p| *p == v) else { continue };
        for (k, r) in registers(to).enumerate() {
            let offset = offsets[n].wrapping_add(a.offset as u32).wrapping_add(k as u32 * ty.bytes());
            fields.push((
                r,
                Field { offset, bytes: ty.bytes(), content: content_of(ty), region: None, image: None },
            ));
        }
    }
    fields
}

/// How a launch is made up. Kernels need shapes, sizes and contents that fit each other; what one launch lacks,
/// another may have.
struct Style {
    block: [u32; 3],
    grid: [u32; 3],
    /// What 32-bit parameters are.
    sizes: &'static [u32],
    range: Range,
}

/// Sizes that lead through most kernels, some of them odd.
const SIZES: &[u32] = &[1, 2, 4, 8, 16, 31, 32, 33, 64, 100];
/// Sizes that keep the rows of a matrix aligned.
const EVEN: &[u32] = &[32, 64, 128];

/// Bytes of shared memory that a kernel gets which says that it takes some: as many as there are where most is asked for.
const DYNAMIC_SHARED: u32 = 227 << 10;

/// The styles, one for each seed in turn. The first four are for kernels that take any launch: between them they have
/// several blocks, several full warps, a last warp that is not full, and threads in two dimensions.
const STYLES: &[Style] = &[
    Style { block: [64, 1, 1], grid: [2, 1, 1], sizes: SIZES, range: Range::Small },
    Style { block: [80, 1, 1], grid: [1, 2, 1], sizes: SIZES, range: Range::Wild },
    Style { block: [16, 4, 1], grid: [3, 1, 1], sizes: SIZES, range: Range::Small },
    Style { block: [96, 1, 1], grid: [3, 1, 1], sizes: SIZES, range: Range::Wild },
    Style { block: [16, 16, 1], grid: [1, 1, 1], sizes: EVEN, range: Range::Small },
    Style { block: [128, 1, 1], grid: [2, 1, 1], sizes: EVEN, range: Range::Small },
    Style { block: [1, 1, 1], grid: [1, 1, 1], sizes: SIZES, range: Range::Small },
    Style { block: [1, 1, 1], grid: [1, 1, 1], sizes: EVEN, range: Range::Zero },
    Style { block: [32, 1, 1], grid: [1, 1, 1], sizes: EVEN, range: Range::Zero },
    Style { block: [256, 1, 1], grid: [1, 1, 1], sizes: EVEN, range: Range::Zero },
    Style { block: [8, 8, 1], grid: [2, 2, 1], sizes: &[64], range: Range::Small },
    Style { block: [32, 8, 1], grid: [1, 1, 1], sizes: &[16, 1], range: Range::Small },
    Style { block: [37, 1, 1], grid: [2, 1, 1], sizes: SIZES, range: Range::Small },
    Style { block: [64, 1, 1], grid: [1, 1, 1], sizes: SIZES, range: Range::Wild },
];

/// Threads of a block: as the kernel says, else as the style has them.
fn block_of(module: &Module, kernel: FuncId, style: &Style) -> [u32; 3] {
    let attrs = &module.funcs[kernel].attrs;
    let product = |d: [u32; 3]| d.iter().map(|n| u64::from(*n)).product::<u64>();
    if let Some(d) = attrs.reqntid.filter(|d| product(*d) > 0) {
        return d;
    }
    let most = attrs.maxntid.map_or(1024, product);
    let block = fold(module, SpecialReg::tid, style.block);
    if product(block) <= most { block } else { [most.max(1) as u32, 1, 1] }
}

/// Whether anything reads a component of a special register.
fn reads(module: &Module, special: SpecialReg, component: u8) -> bool {
    let read = |o: &Operand| match o {
        Operand::Special(s, c) => *s == special && c.is_none_or(|c| c == component),
        _ => false,
    };
    let mut bodies = module.funcs.values().filter_map(|f| f.body.as_ref());
    bodies.any(|b| instructions(b).any(|i| i.operands.iter().any(read)))
}

/// As many threads or blocks in a row where nothing asks for their place in a dimension: those that differ in it alone
/// would all do the same to the same memory.
fn fold(module: &Module, place: SpecialReg, shape: [u32; 3]) -> [u32; 3] {
    let mut folded = shape;
    for dim in [1, 2] {
        if folded[dim] > 1 && reads(module, place, 0) && !reads(module, place, dim as u8) {
            folded[0] *= std::mem::replace(&mut folded[dim], 1);
        }
    }
    folded
}

/// A launch of the kernel, or `None` if there is no such kernel. The same seed gives the same launch.
pub fn generate(module: &Module, name: &str, seed: u64) -> Option<Launch> {
    let (kernel, func) = module.funcs.iter().find(|(_, f)| f.entry && f.body.is_some() && f.name == name)?;
    let body = func.body.as_ref()?;
    let (_, size) = module.param_layout(func);
    let loads = parameters(module, func, body);
    let loaded: Vec<(RegId, u32)> = loads.iter().map(|(r, f)| (*r, f.offset)).collect();
    let mut flow = analyse(body, &loads);
    let mut fields: BTreeMap<u32, Field> = BTreeMap::new();
    let mut regions = 0;
    for (r, load) in loads {
        let facts = flow.facts(r);
        let field = fields.entry(load.offset).or_insert(Field { content: None, ..load });
        field.bytes = field.bytes.max(load.bytes);
        field.content = field.content.or(facts.number).or(load.content);
        if facts.pointer && load.bytes == 8 && field.region.is_none() {
            field.region = Some(regions);
            regions += 1;
        }
        if let Some(region) = field.region {
            facts.region = region + 1;
        }
    }
    // Pointers derived from parameters point where these do.
    loop {
        let mut changed = false;
        for i in instructions(body).filter(|i| !terms(i).is_empty()) {
            let Some(d) = registers(&i.operands[0]).next() else { continue };
            let from = terms(i).iter().flat_map(registers).map(|r| flow.facts(r).region).max().unwrap_or(0);
            let to = &mut flow.facts(d).region;
            if *to == 0 && from != 0 {
                *to = from;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let mut contents: Vec<Option<Content>> = vec![None; regions];
    for i in instructions(body).filter(|i| is_global_access(i)) {
        let (Some(ty), Some(base)) = (i.types().last(), bases(i).last()) else { continue };
        let Some(region) = flow.facts(base).region.checked_sub(1) else { continue };
        let data = i.operands.iter().flat_map(registers).next();
        let facts = data.map_or(Facts::default(), |r| *flow.facts(r));
        let seen = if facts.pointer && ty.bytes() == 8 && i.op == Op::ld {
            Some(Content::Pointer)
        } else {
            facts.number.filter(|c| !matches!(c, Content::Int(_))).or(content_of(ty)).or(facts.number)
        };
        let content = &mut contents[region];
        if content.is_none() || seen == Some(Content::Pointer) {
            *content = seen.or(*content);
        }
    }
    let style = &STYLES[(seed % STYLES.len() as u64) as usize];
    let mut rng = Rng::new(seed);
    let unknown = if seed.is_multiple_of(2) { Content::Int(4) } else { Content::F32 };
    let mut contents: Vec<Content> = contents.into_iter().map(|c| c.unwrap_or(unknown)).collect();
    let mut images = images(body, (&flow, &loaded), &mut fields, (seed, &mut contents));
    let (samplers, names) = images::by_name(module, func, seed, &mut images, &mut contents);
    let mut params = vec![0; size as usize];
    for f in fields.values() {
        let bytes = match (f.image, f.region) {
            (Some((n, kind)), _) => Images::handle(n, kind),
            (_, Some(n)) => Sparse::address(n),
            _ => scalar(f, style.sizes, &mut rng),
        };
        let at = f.offset as usize;
        if let Some(to) = params.get_mut(at..at + f.bytes.min(8) as usize) {
            to.copy_from_slice(&bytes.to_le_bytes()[..to.len()]);
        }
    }
    let dynamic = module.vars.values().any(|v| v.space == Space::Shared && v.is_unsized());
    let mut bodies = module.funcs.values().filter_map(|f| f.body.as_ref());
    let allocates =
        bodies.any(|b| b.stmts.iter().any(|s| matches!(s, ptx::Stmt::Inst(i) if i.op == Op::alloca)));
    let cluster = func.attrs.cluster().unwrap_or([1; 3]);
    let grid = fold(module, SpecialReg::ctaid, style.grid);
    Some(Launch {
        kernel: name.to_string(),
        grid: [0, 1, 2].map(|i| grid[i] * cluster[i].max(1)),
        block: block_of(module, kernel, style),
        // A kernel with `.explicitcluster` is launched with clusters in any case.
        cluster: func
            .attrs
            .cluster()
            .or(func.attrs.explicit_cluster.then_some([1; 3]))
            .map(|c| c.map(|n| n.max(1))),
        cooperative: false,
        // What a kernel allocates on its stack is in no header; the driver gives every thread this much.
        stack: if allocates { 1024 } else { 0 },
        shared: if dynamic { DYNAMIC_SHARED } else { 0 },
        args: Vec::new(),
        buffers: BTreeMap::new(),
        images: BTreeMap::new(),
        names: BTreeMap::new(),
        generated: Some(Generated {
            params,
            memory: Sparse::new(seed, style.range, contents),
            images,
            samplers,
            names,
        }),
    })
}

/// Makes an image for each parameter that is a handle, and two for each region that handles are loaded from; each has a
/// region of its own.
fn images(
    body: &Body,
    (flow, loaded): (&Flow, &[(RegId, u32)]),
    fields: &mut BTreeMap<u32, Field>,
    (seed, contents): (u64, &mut Vec<Content>),
) -> Vec<Image> {
    let mut wants: BTreeMap<Source, Wants> = BTreeMap::new();
    for i in instructions(body) {
        let Some(r) = images::handle(i) else { continue };
        // Of several handles that meet, each may be the one.
        let root = flow.root(r);
        let params = loaded.iter().filter(|(r, _)| flow.root(*r) == root).map(|(_, p)| Source::Param(*p));
        let loads = instructions(body).filter(|i| i.op == Op::ld && is_global_access(i));
        let loads =
            loads.filter(|i| i.operands.first().is_some_and(|o| registers(o).any(|r| flow.root(r) == root)));
        let regions = loads.filter_map(|i| flow.facts[flow.root(bases(i).next()?)].region.checked_sub(1));
        for source in params.chain(regions.map(Source::Region)) {
            wants.entry(source).or_default().add(i);
        }
    }
    let mut rng = Rng::new(seed ^ 0x1a6e);
    let mut list = Vec::new();
    for (source, wants) in wants {
        let mut make = |contents: &mut Vec<Content>| {
            let (kind, image, content) = wants.image(Sparse::address(contents.len()), &mut rng)?;
            contents.push(content);
            list.push(image);
            Some((list.len() - 1, kind))
        };
        match source {
            Source::Param(param) => {
                if let Some(field) = fields.get_mut(&param).filter(|f| f.bytes == 8) {
                    field.image = make(contents);
                }
            }
            Source::Region(region) => {
                if let (Some((n, kind)), Some(_)) = (make(contents), make(contents)) {
                    contents[region] = Content::Handle(n as u8, kind);
                }
            }
        }
    }
    list
}

/// Where a handle comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// The parameter at this offset.
    Param(u32),
    /// Memory.
    Region(usize),
}

/// A number for a parameter: sizes and strides that are likely to lead through the kernel, short loops.
fn scalar(f: &Field, sizes: &[u32], rng: &mut Rng) -> u64 {
    let r = rng.next();
    match f.content {
        Some(Content::F32) => u64::from((((r >> 40) as f32) / 8_388_608.0 - 0.75).to_bits()),
        Some(Content::F64) => ((r >> 11) as f64 / (1u64 << 52) as f64 - 0.75).to_bits(),
        Some(Content::F16) => 0x3800 + (r & 0x7ff),
        Some(Content::Bf16) => 0x3f00 + (r & 0xff),
        _ if f.bytes == 8 => [8, 16, 32, 64][r as usize % 4],
        _ if f.bytes == 4 => sizes[(r % sizes.len() as u64) as usize].into(),
        _ => r >> 62,
    }
}
