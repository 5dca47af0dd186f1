//! Memory: every thread's own part of every space, tables that all read, sums that all add to.

use super::{Context, Gen};
use crate::ptxfuzz::class::Class;

/// Bytes of integers in a thread's own part of global memory; numbers follow, a cell of 8 bytes for each class of
/// [`CELLS`].
pub(super) const OWN_INTEGERS: usize = 64;
/// Classes of the cells.
pub(super) const CELLS: [Class; 8] =
    [Class::E, Class::E2, Class::B, Class::B2, Class::F, Class::F2, Class::G, Class::F];
/// Bytes of the local array.
pub(super) const LOCAL: usize = 64;
/// Bytes of a thread's own part of shared memory.
pub(super) const OWN_SHARED: usize = 32;
/// Bytes of the tables in constant and global memory.
pub(super) const TABLE: usize = 256;
/// Sums in global memory, and as many in shared memory, 8 bytes each.
pub(super) const SUMS: usize = 8;
/// What the sums may be.
const SUM_OPS: &[&str] = &[
    "add.u32", "add.s32", "add.u64", "min.s32", "max.u32", "and.b32", "or.b64", "xor.b32", "max.s64",
    "min.u64", "and.b64", "inc.u32",
];

/// What an address starts from.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// `.global`, or nothing for a generic address.
    pub space: &'static str,
    /// A register or a variable.
    pub base: String,
    /// Bits of the address.
    pub bits: usize,
    /// Bytes there.
    pub size: usize,
    /// It may be written.
    pub writable: bool,
}

impl Gen {
    pub(super) fn memory(&mut self, _ctx: &Context) {
        let guard = if self.rng.percent(15) { format!("@{} ", self.condition(false)) } else { String::new() };
        match self.rng.below(16) {
            0..=4 => {
                let p = self.own_place();
                self.access(&guard, &p);
            }
            5..=7 if self.profile.local => {
                let p = self.local_place();
                self.access(&guard, &p);
            }
            8 | 9 => {
                let p = self.table_place();
                self.access(&guard, &p);
            }
            10 | 11 if self.profile.shared => {
                let (space, base, bits) = self.shared_own();
                let p = Place { space, base, bits, size: OWN_SHARED, writable: true };
                self.access(&guard, &p);
            }
            12 => self.cell(&guard),
            13 => self.sum(&guard),
            _ => self.own_atomic(&guard),
        }
    }

    fn own_place(&mut self) -> Place {
        let space = self.rng.pick(&[".global", ".global", ""]);
        Place { space, base: "%own".into(), bits: 64, size: OWN_INTEGERS, writable: true }
    }

    fn local_place(&mut self) -> Place {
        let (space, base) = match self.rng.below(4) {
            0 => {
                let t = self.temp("b64");
                let a = self.temp("b64");
                self.line(format!("mov.u64 {a}, loc;"));
                self.line(format!("cvta.local.u64 {t}, {a};"));
                ("", t)
            }
            1 => {
                let t = self.temp("b64");
                self.line(format!("mov.u64 {t}, loc;"));
                (".local", t)
            }
            _ => (".local", "loc".into()),
        };
        Place { space, base, bits: 64, size: LOCAL, writable: true }
    }

    fn table_place(&mut self) -> Place {
        let (space, base) = match self.rng.below(6) {
            0 => {
                let t = self.temp("b64");
                self.line(format!("mov.u64 {t}, gtab;"));
                (".global", t)
            }
            1 => {
                let (a, t) = (self.temp("b64"), self.temp("b64"));
                let s = self.rng.pick(&["global", "const"]);
                self.line(format!("mov.u64 {a}, {}tab;", &s[..1]));
                self.line(format!("cvta.{s}.u64 {t}, {a};"));
                ("", t)
            }
            2 => (".global", "gtab".into()),
            _ => (".const", "ctab".into()),
        };
        Place { space, base, bits: 64, size: TABLE, writable: false }
    }

    /// A place that a loop may go through.
    pub(super) fn walked_place(&mut self) -> Place {
        match self.rng.below(4) {
            0 => self.table_place(),
            1 if self.profile.local => self.local_place(),
            2 if self.profile.shared => {
                let (space, base, bits) = self.shared_own();
                Place { space, base, bits, size: OWN_SHARED, writable: true }
            }
            _ => self.own_place(),
        }
    }

    /// The thread's own part of shared memory.
    fn shared_own(&mut self) -> (&'static str, String, usize) {
        if self.rng.percent(25) {
            let (a, t) = (self.temp("b64"), self.temp("b64"));
            self.line(format!("cvt.u64.u32 {a}, %sown;"));
            self.line(format!("cvta.shared.u64 {t}, {a};"));
            ("", t, 64)
        } else {
            (".shared", "%sown".into(), 32)
        }
    }

    /// An address in a place, of so many bytes, aligned.
    fn address(&mut self, p: &Place, bytes: usize) -> String {
        if self.walks && self.rng.percent(25) {
            return self.stepped(p, bytes);
        }
        let n = p.size / bytes;
        if self.rng.percent(60) {
            return format!("[{}+{}]", p.base, bytes * self.rng.below(n));
        }
        let r = self.word();
        let i = self.temp("b32");
        self.line(format!("and.b32 {i}, {r}, {};", n.next_power_of_two().min(n) - 1));
        if p.base.starts_with('%') || p.bits == 32 {
            let a = self.temp(&format!("b{}", p.bits));
            if p.bits == 32 {
                self.line(format!("mad.lo.u32 {a}, {i}, {bytes}, {};", p.base));
            } else {
                self.line(format!("mad.wide.u32 {a}, {i}, {bytes}, {};", p.base));
            }
            return format!("[{a}]");
        }
        let (b, a) = (self.temp("b64"), self.temp("b64"));
        self.line(format!("mov.u64 {b}, {};", p.base));
        self.line(format!("mad.wide.u32 {a}, {i}, {bytes}, {b};"));
        format!("[{a}]")
    }

    /// A load or a store of integers.
    pub(super) fn access(&mut self, guard: &str, p: &Place) {
        let class = match self.rng.below(4) {
            0 if self.pool(Class::D) > 0 => Class::D,
            1 if self.pool(Class::H) > 0 => Class::H,
            _ => Class::R,
        };
        let store = p.writable && self.rng.percent(50);
        let narrow = match class {
            Class::R if self.rng.percent(30) => Some(self.rng.pick(&["u8", "s8", "u16", "s16", "b8", "b16"])),
            Class::H if self.rng.percent(30) => Some(self.rng.pick(&["u8", "s8", "b8"])),
            Class::D if self.rng.percent(20) => Some(self.rng.pick(&["u32", "s32", "s16", "u8"])),
            _ => None,
        };
        let ty = narrow.unwrap_or_else(|| class.memory_types()[self.rng.below(class.memory_types().len())]);
        let bytes = ty[1..].parse::<usize>().map_or(4, |b| b / 8);
        let vector = match self.rng.below(6) {
            0 => 2,
            1 if bytes <= 4 => 4,
            _ => 1,
        };
        let a = self.address(p, bytes * vector);
        let (v, data) = self.registers(class, vector, !store);
        let how = match (store, p.space) {
            (false, ".global") if !p.writable => self.rng.pick(&["", ".nc", ""]),
            (_, ".const") => "",
            (false, _) => self.rng.pick(&["", "", "", ".volatile", ".weak", ".relaxed.cta"]),
            (true, _) => self.rng.pick(&["", "", "", ".volatile", ".weak", ".relaxed.gpu"]),
        };
        // Only weak accesses of local and parameter memory.
        let how = if p.space == ".local" && how != ".weak" { "" } else { how };
        let space = p.space;
        if how == ".nc" {
            self.line(format!("{guard}ld{space}.nc{v}.{ty} {data}, {a};"));
        } else if store {
            self.line(format!("{guard}st{how}{space}{v}.{ty} {a}, {data};"));
        } else {
            self.line(format!("{guard}ld{how}{space}{v}.{ty} {data}, {a};"));
        }
    }

    /// One register, or a vector of them: distinct ones if they are written.
    fn registers(&mut self, c: Class, n: usize, written: bool) -> (&'static str, String) {
        if n == 1 {
            let r = if c == Class::R && !written { self.word() } else { self.reg(c) };
            return ("", r);
        }
        let mut list: Vec<String> = Vec::new();
        for _ in 0..n {
            let r = self.reg(c);
            list.push(if written && list.contains(&r) { "_".into() } else { r });
        }
        (if n == 2 { ".v2" } else { ".v4" }, format!("{{{}}}", list.join(", ")))
    }

    /// A load or store of a number.
    fn cell(&mut self, guard: &str) {
        let k = self.rng.below(CELLS.len());
        let c = CELLS[k];
        if self.pool(c) == 0 {
            return;
        }
        let a = format!("[%own+{}]", OWN_INTEGERS + 8 * k);
        let ty = c.memory_types()[self.rng.below(c.memory_types().len())];
        let r = self.reg(c);
        if self.rng.percent(50) {
            self.line(format!("{guard}st.global.{ty} {a}, {r};"));
        } else {
            self.line(format!("{guard}ld.global.{ty} {r}, {a};"));
        }
    }

    /// The operation of a sum.
    pub(super) fn sum_op(&mut self, k: usize) -> &'static str {
        while self.accumulators.len() <= k {
            let op = self.rng.pick(SUM_OPS);
            self.accumulators.push(op);
        }
        self.accumulators[k]
    }

    /// Adds to one of the sums; the order doesn't matter and nobody looks until the end.
    fn sum(&mut self, guard: &str) {
        let k = self.rng.below(SUMS);
        let op = self.sum_op(k);
        let value = match op {
            // Each increment the same.
            "inc.u32" => "1000003".into(),
            _ if op.ends_with("64") && self.pool(Class::D) == 0 => format!("{}", self.rng.below(1 << 20)),
            _ if op.ends_with("64") => self.reg(Class::D),
            _ => self.word(),
        };
        let shared = self.profile.shared && self.rng.percent(40);
        let (space, a) = if shared {
            (".shared", format!("[added+{}]", 8 * k))
        } else {
            (self.rng.pick(&[".global", ""]), format!("[%sums+{}]", 8 * k))
        };
        let how = self.rng.pick(&["", "", ".relaxed.gpu", ".relaxed.cta"]);
        let how = if self.profile.blocks > 1 && how.ends_with("cta") && !shared { "" } else { how };
        if self.rng.percent(50) {
            self.line(format!("{guard}red{how}{space}.{op} {a}, {value};"));
        } else {
            let t = self.temp(if op.ends_with("64") { "b64" } else { "b32" });
            self.line(format!("{guard}atom{how}{space}.{op} {t}, {a}, {value};"));
        }
    }

    /// An atomic operation on what no other thread touches.
    fn own_atomic(&mut self, guard: &str) {
        let wide = self.pool(Class::D) > 0 && self.rng.percent(30);
        let (class, bytes) = if wide { (Class::D, 8) } else { (Class::R, 4) };
        let op = if wide {
            self.rng.pick(&[
                "add.u64", "and.b64", "or.b64", "xor.b64", "exch.b64", "cas.b64", "min.s64", "max.u64",
                "min.u64", "max.s64",
            ])
        } else {
            self.rng.pick(&[
                "add.u32", "add.s32", "and.b32", "or.b32", "xor.b32", "exch.b32", "cas.b32", "min.s32",
                "max.u32", "min.u32", "max.s32", "inc.u32", "dec.u32",
            ])
        };
        let p = if self.profile.shared && self.rng.percent(50) {
            let (space, base, bits) = self.shared_own();
            Place { space, base, bits, size: OWN_SHARED, writable: true }
        } else {
            self.own_place()
        };
        let (space, a) = (p.space, self.address(&p, bytes));
        let (d, x, y) = (self.reg(class), self.reg(class), self.reg(class));
        let more = if op.starts_with("cas") { format!(", {y}") } else { String::new() };
        let how = self.rng.pick(&["", "", ".relaxed.gpu", ".acq_rel.cta"]);
        self.line(format!("{guard}atom{how}{space}.{op} {d}, {a}, {x}{more};"));
    }
}
