//! Graphs: work with an order, done in one that keeps it.

use crate::driver::{self, Driver};
use crate::error::{Error, Result};
use crate::ffi::{self, Block};
use crate::work::{Launch, Work};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A node.
#[derive(Clone)]
pub struct Node {
    /// Its handle.
    pub handle: u64,
    /// The nodes that it comes after.
    pub after: Vec<u64>,
    /// What is done.
    pub work: Work,
    /// The child graph, for programs that ask.
    pub child: Option<u64>,
    /// The node that it was copied from.
    pub copy_of: Option<u64>,
    /// Whether it is done at all.
    pub enabled: bool,
    /// Parameters of its launch and a list of their addresses, where the program asked for them.
    pub told: Option<Arc<[Block; 2]>>,
}

/// Something of the program's that is to be freed when nobody refers to it any more.
pub struct UserObject {
    /// The function that frees it, and its argument.
    pub free: (crate::ffi::HostFn, u64),
    /// How many refer to it.
    pub count: u32,
}

/// A graph.
#[derive(Clone, Default)]
pub struct Graph {
    /// Nodes in the order in which they were added.
    pub nodes: Vec<Node>,
    /// User objects, and how often it refers to them.
    pub objects: Vec<(u64, u32)>,
    /// Whether it belongs to a node of another one.
    pub inner: bool,
}

/// A node of a graph that is ready to run.
#[derive(Clone)]
pub struct Step {
    /// The handle of the node that it came from.
    pub handle: u64,
    /// The places of the steps that it comes after.
    pub after: Vec<usize>,
    /// What is done.
    pub work: Work,
    /// Whether it is done at all.
    pub enabled: bool,
}

/// A graph ready to run.
#[derive(Clone)]
pub struct Exec {
    /// The graph that it came from.
    pub graph: u64,
    /// As asked for.
    pub flags: u64,
    /// Nodes in the order in which they run; those of no effect are kept.
    pub steps: Vec<Step>,
    /// User objects, and how often it refers to them.
    pub objects: Vec<(u64, u32)>,
}

/// Flag of an executable graph: what it allocated and did not free is freed when it is launched again.
pub const AUTO_FREE: u64 = 1;

/// Why an executable graph cannot take over another one's nodes, as the header numbers it, with the node, and the one that
/// it comes after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unlike {
    /// The number.
    pub result: u32,
    /// The node that differs; 0 if it is not one.
    pub node: u64,
    /// What it comes after; 0 if that is not what differs.
    pub from: u64,
}

/// Numbers of `CUgraphExecUpdateResult`.
const TOPOLOGY_CHANGED: u32 = 2;
const TYPE_CHANGED: u32 = 3;
const PARAMETERS_CHANGED: u32 = 5;

/// Whether steps may take the place of others of the same shape, and those of graphs inside, too.
fn like(old: &[Step], new: &[Step]) -> std::result::Result<(), Unlike> {
    if old.len() != new.len() {
        return Err(Unlike { result: TOPOLOGY_CHANGED, node: 0, from: 0 });
    }
    for (a, b) in old.iter().zip(new) {
        let unlike = |result, from| Unlike { result, node: b.handle, from };
        if a.after.len() != b.after.len() {
            return Err(unlike(TOPOLOGY_CHANGED, 0));
        }
        if let Some((_, at)) = a.after.iter().zip(&b.after).find(|(x, y)| x != y) {
            return Err(unlike(TOPOLOGY_CHANGED, new[*at].handle));
        }
        if a.work.kind() != b.work.kind() {
            return Err(unlike(TYPE_CHANGED, 0));
        }
        if !b.work.fits(&a.work) {
            return Err(unlike(PARAMETERS_CHANGED, 0));
        }
        if let (Work::Graph(a), Work::Graph(b)) = (&a.work, &b.work) {
            like(a, b)?;
        }
    }
    Ok(())
}

impl Exec {
    /// Takes over other steps of the same shape.
    pub fn update(&mut self, steps: Vec<Step>) -> std::result::Result<(), Unlike> {
        like(&self.steps, &steps)?;
        for (old, new) in self.steps.iter_mut().zip(steps) {
            old.work = new.work;
        }
        Ok(())
    }

    /// Changes what a node does, to something of the same kind.
    pub fn set(&mut self, node: u64, work: Work) -> Result<()> {
        let step = self.step(node)?;
        let alone = work.fits_alone() && step.work.fits_alone();
        if step.work.kind() != work.kind() || !work.fits(&step.work) || !alone {
            return Err(Error::INVALID_VALUE);
        }
        if let (Work::Graph(old), Work::Graph(new)) = (&step.work, &work) {
            like(old, new).map_err(|_| Error::INVALID_VALUE)?;
        }
        step.work = work;
        Ok(())
    }

    /// What a node became.
    pub fn step(&mut self, node: u64) -> Result<&mut Step> {
        self.steps.iter_mut().find(|s| s.handle == node).ok_or(Error::INVALID_VALUE)
    }
}

impl Graph {
    /// Whether these are nodes of it, each named once.
    ///
    /// # Errors
    /// If they are not.
    pub fn has(&self, nodes: &[u64]) -> Result<()> {
        let known = |n: &u64| self.nodes.iter().any(|m| m.handle == *n);
        let twice = nodes.iter().enumerate().any(|(i, n)| nodes[..i].contains(n));
        if twice || !nodes.iter().all(known) { Err(Error::INVALID_VALUE) } else { Ok(()) }
    }

    /// Adds a node.
    pub fn add(&mut self, after: &[u64], work: Work) -> Result<u64> {
        self.has(after)?;
        let handle = driver::fresh();
        self.nodes.push(Node {
            handle,
            after: after.to_vec(),
            work,
            child: None,
            copy_of: None,
            told: None,
            enabled: true,
        });
        Ok(handle)
    }

    /// These nodes and all that they come after.
    pub fn before(&self, nodes: &[u64]) -> BTreeSet<u64> {
        let mut found: BTreeSet<u64> = nodes.iter().copied().collect();
        let mut open = nodes.to_vec();
        while let Some(n) = open.pop() {
            let after = self.nodes.iter().filter(|m| m.handle == n).flat_map(|m| &m.after);
            open.extend(after.filter(|a| found.insert(**a)));
        }
        found
    }

    /// Nodes in an order that keeps what comes after what.
    pub fn order(&self) -> Result<Vec<Step>> {
        let mut rest: Vec<&Node> = self.nodes.iter().collect();
        let mut done: Vec<Step> = Vec::new();
        let mut place: BTreeMap<u64, usize> = BTreeMap::new();
        while !rest.is_empty() {
            let ready = |n: &&Node| n.after.iter().all(|a| place.contains_key(a));
            let next = rest.iter().position(ready).ok_or(Error::INVALID_VALUE)?;
            let node = rest.remove(next);
            let after = node.after.iter().filter_map(|a| place.get(a).copied()).collect();
            place.insert(node.handle, done.len());
            let (handle, enabled) = (node.handle, node.enabled);
            done.push(Step { handle, after, work: node.work.clone(), enabled });
        }
        Ok(done)
    }

    /// All pairs of a node and one that comes after it.
    pub fn edges(&self) -> Vec<(u64, u64)> {
        self.nodes.iter().flat_map(|n| n.after.iter().map(|a| (*a, n.handle))).collect()
    }

    /// Lets nodes come after others; nothing changes if one is not there, does already, or a circle would be made.
    pub fn connect(&mut self, pairs: &[(u64, u64)]) -> Result<()> {
        let mut next = self.clone();
        for (a, b) in pairs {
            next.has(&[*a])?;
            let node = next.nodes.iter_mut().find(|n| n.handle == *b).ok_or(Error::INVALID_VALUE)?;
            if node.after.contains(a) {
                return Err(Error::INVALID_VALUE);
            }
            node.after.push(*a);
        }
        next.order()?;
        *self = next;
        Ok(())
    }

    /// Lets them no more; nothing changes if one does not.
    pub fn disconnect(&mut self, pairs: &[(u64, u64)]) -> Result<()> {
        self.movable()?;
        let mut next = self.clone();
        for (a, b) in pairs {
            let node = next.nodes.iter_mut().find(|n| n.handle == *b).ok_or(Error::INVALID_VALUE)?;
            let at = node.after.iter().position(|n| n == a).ok_or(Error::INVALID_VALUE)?;
            node.after.remove(at);
        }
        *self = next;
        Ok(())
    }

    /// Whether it allocates or frees memory.
    pub fn has_memory(&self) -> bool {
        self.nodes.iter().any(|n| matches!(n.work, Work::Alloc(_) | Work::Free(_)))
    }

    /// Whether nodes and edges can be taken away, and the graph be copied: not of one that allocates or frees memory.
    ///
    /// # Errors
    /// If it does.
    pub fn movable(&self) -> Result<()> {
        if self.has_memory() { Err(Error::NOT_SUPPORTED) } else { Ok(()) }
    }
}

/// Lets go of user objects; frees those that nobody refers to any more, while nobody works on the state.
pub fn release(objects: &[(u64, u32)]) -> Result<()> {
    let mut free = Vec::new();
    driver::with(|d| {
        for (handle, count) in objects {
            let object = d.objects.get_mut(*handle)?;
            object.count = object.count.checked_sub(*count).ok_or(Error::INVALID_VALUE)?;
            if object.count == 0 {
                free.push(d.objects.remove(*handle)?.free);
            }
        }
        Ok(())
    })?;
    free.into_iter().for_each(|(f, data)| f.call(data));
    Ok(())
}

impl Driver {
    /// Refers to user objects.
    pub fn retain(&mut self, objects: &[(u64, u32)]) -> Result<()> {
        for (handle, count) in objects {
            let object = self.objects.get_mut(*handle)?;
            object.count = object.count.checked_add(*count).ok_or(Error::INVALID_VALUE)?;
        }
        Ok(())
    }

    /// The graph of a node, and its place.
    pub fn node(&mut self, handle: u64) -> Result<(&mut Graph, usize)> {
        let mut graphs = self.graphs.values_mut();
        let found = graphs.find_map(|g| {
            let at = g.nodes.iter().position(|n| n.handle == handle)?;
            Some((g, at))
        });
        found.ok_or(Error::INVALID_VALUE)
    }

    /// Adds a node to a graph.
    pub fn add_node(&mut self, graph: u64, after: &[u64], work: Work) -> Result<u64> {
        match &work {
            Work::Launch(l) => self.could_launch(l)?,
            Work::Free(address) => self.could_free(graph, *address)?,
            _ => {}
        }
        self.graphs.get_mut(graph)?.add(after, work)
    }

    /// Whether a graph can free memory: what a node allocates, once, and in one graph if in its own.
    fn could_free(&mut self, graph: u64, address: u64) -> Result<()> {
        if !self.space.of_graphs(address) {
            return Err(Error::INVALID_VALUE);
        }
        let with = |is: &dyn Fn(&Work) -> bool| -> Vec<u64> {
            self.graphs.iter().filter(|(_, g)| g.nodes.iter().any(|n| is(&n.work))).map(|g| g.0).collect()
        };
        let owners = with(&|w| matches!(w, Work::Alloc(a) if a.address == address));
        let freeing = with(&|w| matches!(w, Work::Free(a) if *a == address));
        let owner = owners.contains(&graph);
        let wrong = freeing.contains(&graph)
            || owner && !freeing.is_empty()
            || owners.iter().any(|o| freeing.contains(o));
        if wrong { Err(Error::INVALID_VALUE) } else { Ok(()) }
    }

    /// A graph's nodes in an order that keeps what comes after what; those that are graphs as they are now.
    pub fn steps(&self, graph: u64) -> Result<Vec<Step>> {
        let graph = self.graphs.get(graph)?;
        let mut steps = graph.order()?;
        for s in &mut steps {
            let child = graph.nodes.iter().find(|n| n.handle == s.handle).and_then(|n| n.child);
            if let Some(child) = child {
                s.work = Work::Graph(self.steps(child)?);
            }
        }
        Ok(steps)
    }

    /// Makes a graph ready to run: once at a time if it allocates memory.
    pub fn instantiate(&mut self, graph: u64, flags: u64) -> Result<u64> {
        let steps = self.steps(graph)?;
        let g = self.graphs.get(graph)?;
        let objects = g.objects.clone();
        if g.has_memory() && self.execs.iter().any(|(_, e)| e.graph == graph) {
            return Err(Error::INVALID_VALUE);
        }
        self.retain(&objects)?;
        Ok(self.execs.add(Exec { graph, flags, steps, objects }))
    }

    /// The launch of a node, and where the addresses of its parameters are for as long as the node does that; 0 if it has none.
    pub fn launch_of(&mut self, node: u64) -> Result<(Launch, u64)> {
        let (graph, at) = self.node(node)?;
        let Work::Launch(launch) = graph.nodes[at].work.clone() else { return Err(Error::INVALID_VALUE) };
        let offsets: Vec<u64> =
            self.functions.get(launch.function)?.params.iter().map(|p| p.0.into()).collect();
        if offsets.is_empty() {
            return Ok((launch, 0));
        }
        let (values, list) = (Block::new(launch.params.len())?, Block::new(8 * offsets.len())?);
        ffi::write(values.address(), &launch.params)?;
        let addresses = offsets.iter().flat_map(|o| (values.address() + o).to_le_bytes());
        ffi::write(list.address(), &addresses.collect::<Vec<u8>>())?;
        let (graph, at) = self.node(node)?;
        let told = graph.nodes[at].told.get_or_insert_with(|| Arc::new([values, list]));
        Ok((launch, told[1].address()))
    }

    /// Another graph of the same nodes, and of copies of those that are graphs.
    pub fn copy_graph(&mut self, graph: u64) -> Result<u64> {
        let mut copy = self.graphs.get(graph)?.clone();
        copy.movable()?;
        self.retain(&copy.objects)?;
        let names: BTreeMap<u64, u64> = copy.nodes.iter().map(|n| (n.handle, driver::fresh())).collect();
        let new = |h: u64| names.get(&h).copied().unwrap_or(h);
        for n in &mut copy.nodes {
            n.copy_of = Some(n.handle);
            n.handle = new(n.handle);
            n.after.iter_mut().for_each(|a| *a = new(*a));
            n.child = n.child.map(|c| self.copy_inner(c)).transpose()?;
        }
        copy.inner = false;
        Ok(self.graphs.add(copy))
    }

    /// The same, for a node of another one.
    fn copy_inner(&mut self, graph: u64) -> Result<u64> {
        let copy = self.copy_graph(graph)?;
        self.graphs.get_mut(copy)?.inner = true;
        Ok(copy)
    }

    /// Adds a graph to another one as a node, which is a copy of it.
    pub fn add_child(&mut self, graph: u64, after: &[u64], inner: u64) -> Result<u64> {
        self.graphs.get(inner)?.movable()?;
        if inner == graph {
            return Err(Error::INVALID_VALUE);
        }
        let node = self.add_node(graph, after, Work::Graph(Vec::new()))?;
        let copy = self.copy_inner(inner)?;
        let (graph, at) = self.node(node)?;
        graph.nodes[at].child = Some(copy);
        Ok(node)
    }

    /// Takes a graph away with those that are nodes of it; the user objects that they refer to.
    pub fn end_graph(&mut self, graph: u64) -> Result<Vec<(u64, u32)>> {
        let ended = self.graphs.remove(graph)?;
        let mut objects = ended.objects;
        for child in ended.nodes.iter().filter_map(|n| n.child) {
            objects.extend(self.end_graph(child)?);
        }
        Ok(objects)
    }

    /// The work of an executable graph, which is about to be done, and memory that is to be freed first: what it allocated the last
    /// time has to be free by then, if that was not asked for.
    pub fn begin_launch(&self, exec: u64) -> Result<(Vec<Step>, Vec<u64>)> {
        let e = self.execs.get(exec)?;
        let alloc = |s: &Step| if let Work::Alloc(a) = &s.work { Some(a.address) } else { None };
        let left: Vec<u64> = e.steps.iter().filter_map(alloc).filter(|a| self.is_left(*a)).collect();
        if !left.is_empty() && e.flags & AUTO_FREE == 0 {
            return Err(Error::INVALID_VALUE);
        }
        Ok((e.steps.clone(), left))
    }

    /// Changes what a node of an executable graph does, to something of the same kind.
    pub fn set_node(&mut self, exec: u64, node: u64, work: Work) -> Result<()> {
        if let Work::Launch(l) = &work {
            self.could_launch(l)?;
        }
        self.execs.get_mut(exec)?.set(node, work)
    }
}
