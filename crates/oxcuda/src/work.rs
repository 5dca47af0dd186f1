//! What streams and graphs are made of, and how it is done.

use crate::attributes;
use crate::driver::{self, Driver, limit};
use crate::error::{Error, Result};
use crate::ffi::{HostFn, StreamFn, Variant, as_variant};
use crate::function::{Function, attribute};
use crate::graph::Step;
use crate::memop::{Action, Batch};
use crate::module::{Code, Module};
use crate::settings;
use sim::sass::Cause;
use sim::sass::check::Report;
use std::io::Write as _;

/// Most bytes of local memory of a thread, as the programming guide's table of technical specifications has them.
const MOST_LOCAL: u32 = 512 << 10;

/// `CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH`
const CLUSTER_LAUNCH: u32 = 120;

/// A launch of a kernel.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The function's handle.
    pub function: u64,
    /// Blocks, and threads of a block.
    pub grid: [u32; 3],
    /// See `grid`.
    pub block: [u32; 3],
    /// Blocks of a cluster.
    pub cluster: Option<[u32; 3]>,
    /// Whether all blocks run at once.
    pub cooperative: bool,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The parameters' block.
    pub params: Vec<u8>,
}

/// Whose an address is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The host's.
    Host,
    /// One of the device's address space.
    Device,
    /// Whichever it turns out to be.
    Any,
}

/// One end of a copy.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Whose it is.
    pub side: Side,
    /// Its first byte.
    pub address: u64,
    /// Bytes from a row to the next, and from a slice to the next.
    pub pitch: u64,
    /// See `pitch`.
    pub slice: u64,
    /// The array that it lies in, and where: bytes, rows, slices.
    pub array: Option<(u64, [u64; 3])>,
}

impl End {
    /// Bytes in a row.
    pub fn flat(side: Side, address: u64) -> End {
        End { side, address, pitch: 0, slice: 0, array: None }
    }

    /// Whether both are of one kind of memory, as far as they say.
    fn is_like(&self, other: &End) -> bool {
        let unsure = self.side == Side::Any || other.side == Side::Any;
        self.array.is_some() == other.array.is_some() && (unsure || self.side == other.side)
    }
}

/// A copy of a box.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Where to.
    pub to: End,
    /// Where from.
    pub from: End,
    /// Bytes of a row, rows, slices.
    pub size: [u64; 3],
}

/// Puts a value everywhere in a rectangle.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// Where.
    pub address: u64,
    /// Bytes from a row to the next.
    pub pitch: u64,
    /// The value, and its bytes.
    pub value: u64,
    /// See `value`.
    pub element: u32,
    /// Elements of a row, and rows.
    pub size: [u64; 2],
}

/// Gives memory of the device at an address that is known before.
#[derive(Clone, Copy, Debug)]
pub struct Alloc {
    /// Where.
    pub address: u64,
    /// How many bytes.
    pub size: usize,
    /// The pool that counts them.
    pub pool: Option<u64>,
}

/// A piece of work.
#[derive(Clone)]
pub enum Work {
    /// Nothing.
    Empty,
    /// A kernel.
    Launch(Launch),
    /// A copy.
    Copy(Transfer),
    /// A value everywhere.
    Fill(Fill),
    /// A function of the program, with its argument.
    Host(HostFn, u64),
    /// A function of the program that is told the stream's state, with its argument.
    Callback(StreamFn, u64),
    /// An event is recorded.
    Record(u64),
    /// An event is waited for: all before it is done.
    Wait(u64),
    /// Memory is given.
    Alloc(Alloc),
    /// Memory is given back.
    Free(u64),
    /// Another graph.
    Graph(Vec<Step>),
    /// Words of memory are waited for and written.
    Batch(Batch),
}

impl Work {
    /// Its number in `CUgraphNodeType`.
    pub fn kind(&self) -> u32 {
        match self {
            Work::Launch(_) => 0,
            Work::Copy(_) => 1,
            Work::Fill(_) => 2,
            Work::Host(..) | Work::Callback(..) => 3,
            Work::Graph(_) => 4,
            Work::Empty => 5,
            Work::Wait(_) => 6,
            Work::Record(_) => 7,
            Work::Alloc(_) => 10,
            Work::Free(_) => 11,
            Work::Batch(_) => 12,
        }
    }

    /// Whether an executable graph may do this in place of other work of its kind.
    pub fn fits(&self, other: &Work) -> bool {
        match (self, other) {
            (Work::Batch(new), Work::Batch(old)) => new.fits(old),
            // Of a rectangle address and value alone, of a row its length as well.
            (Work::Fill(new), Work::Fill(old)) => {
                let flat = old.size[1] <= 1 && new.size[1] == old.size[1];
                flat || (new.size, new.pitch, new.element) == (old.size, old.pitch, old.element)
            }
            (Work::Copy(new), Work::Copy(old)) => new.to.is_like(&old.to) && new.from.is_like(&old.from),
            _ => true,
        }
    }

    /// Whether that can be said of one node alone: of copies and fills of something, and of copies of one row.
    pub fn fits_alone(&self) -> bool {
        match self {
            Work::Fill(f) => !f.size.contains(&0),
            Work::Copy(t) => t.size[0] > 0 && t.size[1..] == [1, 1],
            _ => true,
        }
    }

    /// Does it, for a stream. Functions of the program are called while nobody works on the state.
    pub fn run(&self, stream: u64) -> Result<()> {
        match self {
            Work::Empty => Ok(()),
            Work::Launch(l) => driver::within(|d| d.launch(l)),
            Work::Copy(t) => driver::within(|d| d.copy(t)),
            Work::Fill(f) => driver::within(|d| d.fill(f)),
            // Not where the context is of no use, unlike the next one, which is told.
            Work::Host(f, data) => {
                driver::within(|_| Ok(()))?;
                as_variant(Variant::Shared, || f.call(*data));
                Ok(())
            }
            Work::Callback(f, data) => {
                let status = driver::within(|_| Ok(())).map_or_else(|e| e.0, |()| 0);
                as_variant(Variant::Shared, || f.call(stream, status, *data));
                Ok(())
            }
            Work::Record(event) => driver::within(|d| d.record(*event)),
            Work::Wait(event) => driver::within(|d| d.events.get(*event).map(|_| ())),
            Work::Alloc(a) => driver::within(|d| d.give(a)),
            Work::Free(address) => driver::within(|d| d.free_async(*address)),
            Work::Graph(all) => all.iter().filter(|s| s.enabled).try_for_each(|s| s.work.run(stream)),
            // What waits is the queue's to do, which takes it to pieces.
            Work::Batch(b) => b.actions().try_for_each(|a| match a {
                Action::Write(f) => driver::within(|d| d.fill(&f)),
                Action::Order => Ok(()),
                Action::Wait(_) => Err(Error::NOT_READY),
            }),
        }
    }
}

/// What is said of a kernel that failed, and what the driver answers from then on.
struct Failure {
    error: Error,
    /// Whether the context is of no use any more.
    breaks: bool,
    text: String,
}

impl Driver {
    /// Copies.
    pub fn copy(&mut self, t: &Transfer) -> Result<()> {
        let [width, height, depth] = t.size;
        let flat = depth <= 1 && (height <= 1 || t.to.pitch == width && t.from.pitch == width);
        let (rows, slices) = if flat { (1, 1) } else { (height, depth) };
        let whole =
            width.checked_mul(height).and_then(|n| n.checked_mul(depth)).ok_or(Error::INVALID_VALUE)?;
        let bytes = if flat { whole } else { width } as usize;
        if whole == 0 {
            return Ok(());
        }
        let init = settings::get().checks.init;
        let mut lost = 0;
        for (y, z) in (0..slices).flat_map(|z| (0..rows).map(move |y| (y, z))) {
            let at = |e: &End| {
                let row = e.address.wrapping_add(y.wrapping_mul(e.pitch));
                row.wrapping_add(z.wrapping_mul(e.slice))
            };
            let from = at(&t.from);
            // Before the other side is read, which may end where this one does.
            if t.to.side == Side::Device {
                self.space.check(at(&t.to), bytes as u64)?;
            }
            let row = match t.from.side {
                Side::Host => crate::ffi::read(from, bytes),
                Side::Device => self.space.read(from, bytes),
                Side::Any => self.space.read_any(from, bytes),
            }?;
            let to = at(&t.to);
            match t.to.side {
                Side::Host => crate::ffi::write(to, &row),
                Side::Device => self.space.write(to, &row),
                Side::Any => self.space.write_any(to, &row),
            }?;
            if init && t.from.side != Side::Host {
                lost += self.space.copied(to, from, bytes);
            }
        }
        if lost > 0 {
            let from = t.from.address;
            say!(
                "oxcuda: init: {lost} of {whole} bytes at {from:#x} that are copied to the host nobody has written"
            );
        }
        Ok(())
    }

    /// Fills.
    pub fn fill(&mut self, f: &Fill) -> Result<()> {
        let bytes = f.size[0].checked_mul(f.element.into()).ok_or(Error::INVALID_VALUE)?;
        if bytes == 0 || f.size[1] == 0 {
            return Ok(());
        }
        let place = |y: u64| f.pitch.checked_mul(y).and_then(|n| f.address.checked_add(n));
        for y in [0, f.size[1] - 1] {
            self.space.check(place(y).ok_or(Error::INVALID_VALUE)?, bytes)?;
        }
        let row = f.value.to_le_bytes()[..f.element as usize].repeat(f.size[0] as usize);
        (0..f.size[1]).try_for_each(|y| self.space.write(place(y).ok_or(Error::INVALID_VALUE)?, &row))
    }

    /// Frees memory in the order of a stream.
    pub fn free_async(&mut self, address: u64) -> Result<()> {
        use crate::memory::Kind;
        let region = self.space.free(address, &[Kind::Device, Kind::Managed, Kind::Graph])?;
        self.uncount_in_pool(&region);
        Ok(())
    }

    /// Counts memory that is free again as its pool's.
    pub fn uncount_in_pool(&mut self, region: &crate::memory::Region) {
        if let Some(pool) = region.pool
            && let Ok(pool) = self.pools.get_mut(pool)
        {
            pool.used[0] = pool.used[0].saturating_sub(region.size as u64);
        }
    }

    /// Gives memory at its address.
    fn give(&mut self, a: &Alloc) -> Result<()> {
        let context = self.context()?;
        if let Some(pool) = a.pool {
            self.pools.get(pool)?.room(a.size)?;
        }
        self.space.give(a.address, a.size, a.pool)?;
        if let Some(r) = self.space.region_mut(a.address) {
            r.given_in = Some(context);
        }
        self.count_in_pool(a.pool, a.size)
    }

    /// Counts bytes that a pool gave.
    pub fn count_in_pool(&mut self, pool: Option<u64>, size: usize) -> Result<()> {
        if let Some(pool) = pool {
            let p = self.pools.get_mut(pool)?;
            p.used[0] += size as u64;
            p.used[1] = p.used[1].max(p.used[0]);
        }
        Ok(())
    }

    /// Whether a launch is one that the device takes, for what is done later.
    pub fn could_launch(&self, l: &Launch) -> Result<()> {
        let f = self.functions.get(l.function)?;
        self.check(&Launch { cluster: l.cluster.or(f.cluster), ..l.clone() }, f)
    }

    /// Whether a launch is one that the device takes.
    fn check(&self, l: &Launch, f: &Function) -> Result<()> {
        let sm = attributes::sm();
        let zero = l.grid.contains(&0) || l.block.contains(&0);
        let large = l.block.iter().zip([1024, 1024, 64]).any(|(n, most)| *n > most)
            || l.grid.iter().zip([i32::MAX as u32, 65535, 65535]).any(|(n, most)| *n > most);
        let threads = l.block.iter().fold(1u32, |p, n| p.saturating_mul(*n));
        // More than the kernel was compiled for is no launch at all (Numba's tests, which run on hardware, say so).
        if zero || large || threads > f.threads {
            return Err(Error::INVALID_VALUE);
        }
        // What it was compiled to have is what it must have.
        if f.block.is_some_and(|b| b != l.block) {
            return Err(Error::INVALID_VALUE);
        }
        if threads > f.most_threads() || f.local > MOST_LOCAL {
            return Err(Error::LAUNCH_OUT_OF_RESOURCES);
        }
        let asked = f.set.get(&attribute::MAX_DYNAMIC_SHARED).map(|n| *n as u32);
        let most = asked.unwrap_or(attributes::SHARED.saturating_sub(f.shared));
        if l.shared > most || l.shared + f.shared > sm.shared_opt_in.max(attributes::SHARED) {
            return Err(Error::INVALID_VALUE);
        }
        if let Some(c) = l.cluster {
            if c != [1; 3] && attributes::attribute(CLUSTER_LAUNCH) != Some(1) {
                return Err(crate::image::missing("clusters, which this device lacks,"));
            }
            let whole = l.grid.iter().zip(c).all(|(g, c)| c > 0 && g.is_multiple_of(c));
            let size = c.iter().fold(1u32, |p, n| p.saturating_mul(*n));
            let fixed = f.cluster_compiled && f.cluster.is_some_and(|own| own != c);
            if !whole || fixed || size > f.most_of_cluster() {
                return Err(Error::INVALID_CLUSTER_SIZE);
            }
        }
        if l.cooperative {
            let blocks: u64 = l.grid.iter().map(|n| u64::from(*n)).product();
            let fit = crate::occupancy::blocks(f, threads, l.shared as usize)?;
            if blocks > u64::from(fit * settings::get().multiprocessors) {
                return Err(Error::COOPERATIVE_LAUNCH_TOO_LARGE);
            }
        }
        Ok(())
    }

    /// Runs a kernel.
    pub fn launch(&mut self, l: &Launch) -> Result<()> {
        let f = self.functions.get(l.function)?.clone();
        let cluster = l.cluster.or(f.cluster);
        let l = Launch { cluster, ..l.clone() };
        self.check(&l, &f)?;
        let context = self.context()?;
        let module = self.module_in(f.module, context)?;
        self.bind_references(module)?;
        let module = self.modules.get(module)?;
        let fixes = f.fixes.clone().unwrap_or_else(|| {
            let called = match &module.code {
                Code::Sass(m) => m.driver_functions(&f.name),
                // The whole module's.
                Code::Ptx(m) => m.module().funcs.values().map(|f| &*f.name).collect(),
            };
            limit::CALLS.iter().filter(|c| called.contains(c.0)).map(|c| c.1).collect()
        });
        self.functions.get_mut(l.function)?.fixes = Some(fixes.clone());
        let own = self.contexts.get_mut(context)?;
        own.fixed.extend(fixes);
        let stack = own.limits.get(&0).copied().unwrap_or(0);
        self.space.memory.set_heap(own.limits.get(&limit::HEAP).copied().unwrap_or(limit::HEAP_SIZE));
        let launch = sim::launch::Launch {
            grid: l.grid,
            block: l.block,
            cluster: l.cluster,
            cooperative: l.cooperative,
            shared: l.shared,
            stack: stack as u32,
            ..sim::launch::Launch::of(&f.name)
        };
        self.launches += 1;
        let number = self.launches;
        let result = self.space.launch(context, |memory| {
            let recording = record(module, &launch, &l.params, (number, memory));
            let result = run(module, &launch, &l.params, memory);
            if let Some((record, folder)) = recording {
                told(record.end(&folder, memory));
            }
            result
        });
        match result {
            Ok(text) => {
                let mut out = std::io::stdout();
                let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
                Ok(())
            }
            Err(failure) => {
                say!("oxcuda: kernel {}: {}", f.name, failure.text);
                if failure.breaks {
                    // As on hardware, it is the next call that is told.
                    self.contexts.get_mut(context)?.broken = Some(failure.error);
                    return Ok(());
                }
                Err(failure.error)
            }
        }
    }
}

/// What is said where a launch is not recorded.
fn told(result: std::result::Result<(), sim::record::RecordError>) {
    if let Err(e) = result {
        say!("oxcuda: not recorded: {e}");
    }
}

/// Records a launch, if that is asked for: its beginning, and where.
fn record(
    module: &Module,
    launch: &sim::launch::Launch,
    params: &[u8],
    (number, memory): (u64, &sim::memory::Memory),
) -> Option<(sim::record::Record, std::path::PathBuf)> {
    let plain: String =
        launch.kernel.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(60).collect();
    let folder = settings::get().record.as_ref()?.join(format!("{number:05}.{plain}"));
    let (name, bytes) = match &module.ptx {
        Some(text) => ("module.ptx", text.as_bytes()),
        None => ("module.cubin", &*module.cubin),
    };
    let target = crate::compile::target(module.ptx.as_deref().unwrap_or_default()).to_string();
    let mut record = sim::record::Record::of(launch, params, &target, name);
    if let Code::Sass(m) = &module.code {
        record.place(m.places());
    }
    told(record.begin(&folder, bytes, memory));
    Some((record, folder))
}

/// Runs a kernel; what its threads printed.
fn run(
    module: &Module,
    launch: &sim::launch::Launch,
    params: &[u8],
    memory: &mut sim::memory::Memory,
) -> std::result::Result<String, Failure> {
    let limit = settings::get().limit;
    match &module.code {
        Code::Sass(m) => {
            let checks = settings::get().checks;
            // Nothing stops a kernel that reaches behind its shared memory within the last unit of it.
            let shared_unit = if checks.any() { 1 } else { attributes::sm().shared_unit };
            let options =
                sim::sass::Options { limit, checks, parallel: true, shared_unit, ..Default::default() };
            let mut report = checks.any().then(|| Report::of(&module.cubin));
            if let (Some(r), Some(ptx)) = (&mut report, &module.ptx) {
                r.read_ptx(ptx);
            }
            let done = m.run_checked(launch, params, memory, (options, report.as_mut()));
            report.iter().flat_map(|r| &r.findings).for_each(|f| say!("oxcuda: {f}"));
            match done {
                Ok((_, output)) => Ok(output.text()),
                Err(e) => Err(of_sass(module, launch, &e)),
            }
        }
        Code::Ptx(m) => {
            let options = sim::ptx::Options { limit, ..Default::default() };
            match m.run(launch, params, memory, options) {
                Ok(output) => Ok(output.text()),
                Err(e) => {
                    let text = e.render("module.ptx", module.ptx.as_deref().unwrap_or_default());
                    Err(Failure { error: Error::LAUNCH_FAILED, breaks: e.thread.is_some(), text })
                }
            }
        }
    }
}

/// What a program is told of an error of the simulator.
fn of_sass(module: &Module, launch: &sim::launch::Launch, e: &sim::sass::SimError) -> Failure {
    use sim::sass::SimError;
    let mut text = e.to_string();
    let (error, breaks) = match e {
        SimError::Cubin(_) => (Error::INVALID_IMAGE, false),
        SimError::Launch(_) => (Error::INVALID_VALUE, false),
        SimError::Limit(_) | SimError::Starved { .. } => (Error::LAUNCH_TIMEOUT, false),
        SimError::Deadlock { .. } => (Error::LAUNCH_TIMEOUT, true),
        SimError::Taken(_) => (Error::LAUNCH_FAILED, true),
        SimError::Instruction { address, warp, lane, cause, .. } => {
            if let Some(lane) = lane {
                let [x, y, _] = launch.block;
                let n = 32 * warp + *lane as u32;
                let thread = [n % x, n / x % y, n / (x * y)];
                text.push_str(&format!(", thread {thread:?}"));
            }
            text.push_str(&place(module, &launch.kernel, *address));
            match cause {
                Cause::Address => (Error::ILLEGAL_ADDRESS, true),
                Cause::Misaligned => (Error::MISALIGNED_ADDRESS, true),
                Cause::Assertion => (Error::ASSERT, true),
                // What hardware answers to an access outside of a surface, no document says.
                Cause::Trap | Cause::Surface => (Error::LAUNCH_FAILED, true),
                Cause::Unsupported => (Error::NOT_SUPPORTED, false),
                Cause::Barrier | Cause::Other => (Error::LAUNCH_FAILED, true),
            }
        }
    };
    Failure { error, breaks, text }
}

/// The line of the PTX that an instruction comes from.
fn place(module: &Module, kernel: &str, address: u32) -> String {
    let Some(rows) = module.lines.get(kernel) else { return String::new() };
    let Some((_, line)) = rows.iter().rfind(|(at, _)| *at <= u64::from(address)) else {
        return String::new();
    };
    let source = module.ptx.as_deref().unwrap_or_default();
    let text = source.lines().nth(*line as usize - usize::from(*line > 0)).unwrap_or_default();
    let source = source_place(source, *line as usize).map(|p| format!("\noxcuda:   {p}")).unwrap_or_default();
    format!("\noxcuda:   line {line} of the PTX: {}{source}", text.trim())
}

/// The program's own line, if the PTX says which one a line comes from: the last `.loc` of the same function.
fn source_place(ptx: &str, line: usize) -> Option<String> {
    let before: Vec<&str> = ptx.lines().take(line).collect();
    let body = before.iter().rev().take_while(|l| !l.trim_start().starts_with('{') || l.contains("\t{"));
    let at = body.map(|l| l.trim_start()).find_map(|l| l.strip_prefix(".loc"))?;
    let mut numbers = at.split([' ', '\t', ',']).filter(|w| !w.is_empty());
    let (file, line) = (numbers.next()?, numbers.next()?);
    let named = |l: &&str| {
        let rest = l.trim_start().strip_prefix(".file")?.trim_start();
        let (number, name) = rest.split_once(char::is_whitespace)?;
        (number == file).then(|| name.split('"').nth(1).unwrap_or(name).to_string())
    };
    let name = ptx.lines().find_map(|l| named(&l))?;
    Some(format!("{name}, line {line}"))
}
