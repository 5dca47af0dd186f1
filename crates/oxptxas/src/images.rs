//! Textures, samplers and surfaces by name as the file has them.

use backend::Code;
use cubin::images::{ImageKind, ImageSymbol, ImageWord, SamplerInit};
use cubin::object::{Fill, Reloc};
use lower::ModuleLayout;
use ptx::ast::Opaque;
use ptx::{FuncId, Item, Linkage, Module, Op, Stmt, Symbol, Var, VarId};
use sass::{ConstBank, Opcode, Operand, Target};

/// What the file says of them: the list, and each variable's place in it.
pub(crate) struct Images {
    /// In the order of their symbols: parameters by kernels, then those that code names, then what may be seen elsewhere.
    pub(crate) list: Vec<ImageSymbol>,
    vars: Vec<VarId>,
}

fn kind(opaque: Opaque) -> ImageKind {
    match opaque {
        Opaque::Texture => ImageKind::Texture,
        Opaque::Sampler => ImageKind::Sampler,
        Opaque::Surface => ImageKind::Surface,
    }
}

/// What names of address modes and filters stand for, from number 1 on; numbers may be written instead. What the file says is the
/// place among the modes or filters.
const WORDS: [(&str, u8); 7] = [
    ("wrap", 0),
    ("mirror", 1),
    ("clamp_ogl", 2),
    ("clamp_to_edge", 3),
    ("clamp_to_border", 4),
    ("nearest", 0),
    ("linear", 1),
];

/// What is said of a sampler: as ptxas 13.0.88, 0xff where nothing is.
fn sampler(declared: u32, var: &Var) -> SamplerInit {
    let fields = var.init.iter().flat_map(|i| i.fields.iter().flatten());
    let mut init = SamplerInit { declared, modes: [0xff; 4], unnormalized: None };
    for (field, value) in fields {
        let named = WORDS.iter().position(|w| w.0 == value).map(|n| n as u64 + 1);
        let number = named.or_else(|| value.parse().ok()).unwrap_or(0);
        let word = number.checked_sub(1).and_then(|n| WORDS.get(usize::try_from(n).ok()?));
        let mode = match field.as_str() {
            "addr_mode_0" => 0,
            "addr_mode_1" => 1,
            "addr_mode_2" => 2,
            "filter_mode" => 3,
            "force_unnormalized_coords" => {
                init.unnormalized = Some(number as u32);
                continue;
            }
            _ => continue,
        };
        init.modes[mode] = word.map_or(0xff, |w| w.1);
    }
    init
}

impl Images {
    /// Of a module of which these kernels (and in objects functions) are compiled.
    pub(crate) fn new(module: &Module, layout: &ModuleLayout, kernels: &[FuncId]) -> Images {
        let mut all: Vec<(VarId, Option<usize>)> = Vec::new();
        for (n, k) in kernels.iter().enumerate() {
            let params = module.funcs[*k].params.iter().filter(|v| module.vars[**v].opaque.is_some());
            all.extend(params.map(|v| (*v, Some(n))));
        }
        let mut add = |v: VarId| {
            if !all.iter().any(|a| a.0 == v) {
                all.push((v, None));
            }
        };
        for k in kernels {
            for (_, n) in layout.images.of(*k) {
                [Some(n.image), n.sampler].into_iter().flatten().for_each(&mut add);
            }
        }
        let module_vars = module.items.iter().filter_map(|i| match i {
            Item::Var(v) => Some(*v),
            Item::Func(_) => None,
        });
        // Arrays of them nothing can name.
        let single = |v: &VarId| module.vars[*v].opaque.is_some() && module.vars[*v].dims.is_empty();
        let declared: Vec<VarId> = module_vars.filter(single).collect();
        for own in [false, true] {
            let of = |v: &&VarId| (module.vars[**v].linkage == Linkage::Internal) == own;
            declared.iter().filter(of).for_each(|v| add(*v));
        }
        let symbol = |(v, kernel): &(VarId, Option<usize>)| {
            let var = &module.vars[*v];
            let kind = kind(var.opaque?);
            let init = (kind == ImageKind::Sampler && kernel.is_none()).then(|| sampler(v.as_u32(), var));
            Some(ImageSymbol { name: var.name.clone(), kind, kernel: *kernel, sampler: init })
        };
        Images {
            list: all.iter().filter_map(symbol).collect(),
            vars: all.iter().filter(|(v, _)| module.vars[*v].opaque.is_some()).map(|a| a.0).collect(),
        }
    }

    /// What the symbol of one is called.
    pub(crate) fn symbol(&self, symbol: Symbol) -> Option<String> {
        let Symbol::Var(v) = symbol else { return None };
        self.place(v).map(ImageSymbol::key)
    }

    /// What the linker fills into the code of a function of an object: where it stands for the place of a word, as it was lowered,
    /// nothing is left. In the order of the code.
    ///
    /// # Errors
    /// If an instruction has no encoding without the place.
    pub(crate) fn relocations(
        &self,
        layout: &ModuleLayout,
        func: FuncId,
        code: &mut Code,
        target: Target,
    ) -> Result<Vec<Reloc>, sass::EncodeError> {
        let words = layout.images.of(func);
        let key = |place: u32| {
            let found = words.iter().find(|(at, _)| *at == place)?;
            Some(ImageSymbol::key(self.place(found.1.image)?))
        };
        let mut relocs = Vec::new();
        if words.is_empty() {
            return Ok(relocs);
        }
        for (offset, inst) in (0..).step_by(16).zip(&mut code.insts) {
            // What takes a handle from the bank has its place as a number, counted in words: no other of its numbers is as large.
            let handles = is_image(inst.op);
            let load = match inst.op {
                Opcode::LDCU => Fill::ImageUniformLoad,
                Opcode::ULDC | Opcode::LDC => Fill::ImageLoad,
                _ => Fill::ImageOperand,
            };
            for o in &mut inst.operands {
                let (symbol, fill) = match o {
                    Operand::Imm(n) if handles => (n.checked_mul(4).and_then(key), Fill::ImagePlace),
                    Operand::Const { bank: ConstBank::Index(0), index: None, offset, .. } => {
                        (u32::try_from(*offset).ok().and_then(key), load)
                    }
                    _ => continue,
                };
                let Some(symbol) = symbol else { continue };
                match o {
                    Operand::Const { offset, .. } => *offset = 0,
                    other => *other = Operand::Imm(0),
                }
                relocs.push(Reloc { offset, fill, symbol, addend: 0 });
            }
        }
        // Of kernels that call nothing there are words already.
        let made = !code.words.is_empty();
        for r in relocs.iter().filter(|_| made) {
            let at = r.offset as usize / 16;
            code.words[at] = sass::encode(&code.insts[at], target, r.offset as i64)?;
        }
        Ok(relocs)
    }

    /// The place of a variable in the list.
    pub(crate) fn place(&self, var: VarId) -> Option<usize> {
        self.vars.iter().position(|v| *v == var)
    }

    /// The words of a kernel.
    pub(crate) fn words(&self, layout: &ModuleLayout, kernel: FuncId) -> Vec<ImageWord> {
        let word = |(offset, n): &(u32, lower::image_slots::Named)| {
            let sampler = n.sampler.and_then(|s| self.place(s));
            Some(ImageWord { offset: *offset, image: self.place(n.image)?, sampler })
        };
        layout.images.of(kernel).iter().filter_map(word).collect()
    }
}

/// Whether an instruction takes the handle of a texture or surface.
fn is_image(op: Opcode) -> bool {
    use Opcode::{SULD, SURED, SUST, TEX, TLD, TLD4, TXD, TXQ};
    matches!(op, TEX | TLD | TLD4 | TXD | TXQ | SULD | SUST | SURED)
}

/// Whether code asks a handle what it is of.
pub(crate) fn asks_types(module: &Module, funcs: impl Iterator<Item = FuncId>) -> bool {
    let stmts = |f: FuncId| module.funcs[f].body.iter().flat_map(|b| &b.stmts);
    funcs.into_iter().any(|f| stmts(f).any(|s| matches!(s, Stmt::Inst(i) if i.op == Op::istypep)))
}
