//! Graphs.

use super::Handle;
use super::copy::Copy3;
use super::launch::{function, params};
use crate::driver::{self, with, within};
use crate::error::{Error, Result};
use crate::ffi::{Host, HostFn, In, Out};
use crate::graph::{self, Exec, Graph, UserObject};
use crate::work::{Fill, Launch, Work};

/// `CUDA_KERNEL_NODE_PARAMS` of version 1; version 2 goes on with a kernel and a context.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Kernel1 {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    params: u64,
    extra: u64,
}

/// `CUDA_KERNEL_NODE_PARAMS` of version 2.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Kernel2 {
    first: Kernel1,
    kernel: Handle,
    context: Handle,
}

impl Kernel1 {
    fn work(&self) -> Result<Work> {
        let f = function(self.function)?;
        let params = params(&f, In::at(self.params), In::at(self.extra))?;
        let (grid, block, shared) = (self.grid, self.block, self.shared);
        Ok(Work::Launch(Launch {
            function: self.function,
            grid,
            block,
            cluster: None,
            cooperative: false,
            shared,
            params,
        }))
    }
}

impl Kernel2 {
    fn work(&self) -> Result<Work> {
        let function = if self.first.function == 0 { self.kernel } else { self.first.function };
        Kernel1 { function, ..self.first }.work()
    }
}

/// `CUDA_MEMSET_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Memset {
    to: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

impl Memset {
    fn work(&self) -> Result<Work> {
        if !matches!(self.element, 1 | 2 | 4) {
            return Err(Error::INVALID_VALUE);
        }
        let size = [self.width as u64, self.height as u64];
        let (address, pitch) = (self.to, self.pitch as u64);
        Ok(Work::Fill(Fill { address, pitch, value: self.value, element: self.element, size }))
    }
}

/// `CUDA_HOST_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostNode {
    function: HostFn,
    data: u64,
}

fn add(out: Out<Handle>, graph: Handle, (after, count): (In<u64>, usize), work: Work) -> Result<()> {
    let after = after.list(count)?;
    out.put(with(|d| d.add_node(graph, &after, work))?)
}

/// A graph's nodes in order, as work.
fn whole(graph: Handle) -> Result<Vec<(u64, Work)>> {
    with(|d| d.graphs.get(graph)?.order())
}

fn instantiate(out: Out<Handle>, graph: Handle) -> Result<()> {
    let nodes = whole(graph)?;
    out.put(with(|d| {
        let objects = d.graphs.get(graph)?.objects.clone();
        d.retain(&objects)?;
        Ok(d.execs.add(Exec { nodes, objects }))
    })?)
}

fn child(out: Out<Handle>, graph: Handle, after: (In<u64>, usize), inner: Handle) -> Result<()> {
    let nodes = whole(inner)?;
    add(out, graph, after, Work::Graph(nodes.into_iter().map(|n| n.1).collect()))?;
    let node = out.get()?;
    with(|d| {
        let copy = d.graphs.get(inner)?.clone();
        d.retain(&copy.objects)?;
        let copy = d.graphs.add(copy);
        let (graph, at) = d.node(node)?;
        graph.nodes[at].child = Some(copy);
        Ok(())
    })
}

/// Changes a node of a graph.
fn change(node: Handle, work: Work) -> Result<()> {
    with(|d| {
        let (graph, at) = d.node(node)?;
        let old = &mut graph.nodes[at].work;
        if std::mem::discriminant(old) != std::mem::discriminant(&work) {
            return Err(Error::INVALID_VALUE);
        }
        *old = work;
        Ok(())
    })
}

fn work_of(node: Handle) -> Result<Work> {
    with(|d| {
        let (graph, at) = d.node(node)?;
        Ok(graph.nodes[at].work.clone())
    })
}

/// A list of handles the way C asks for it: how many, and as many as there is room for.
fn list(all: Vec<u64>, out: Out<u64>, count: Out<usize>) -> Result<()> {
    if out.is_null() {
        return count.put(all.len());
    }
    let room = count.get()?;
    let given = all.len().min(room);
    out.list(all.into_iter().chain(std::iter::repeat(0)).take(room));
    count.put(given)
}

fn pairs(all: Vec<(u64, u64)>, from: Out<u64>, to: Out<u64>, count: Out<usize>) -> Result<()> {
    let (a, b): (Vec<u64>, Vec<u64>) = all.into_iter().unzip();
    if from.is_null() && to.is_null() {
        return count.put(a.len());
    }
    let room = count.get()?.min(a.len());
    from.list(a.into_iter().take(room));
    to.list(b.into_iter().take(room));
    count.put(room)
}

fn dependencies(graph: Handle, from: Vec<u64>, to: Vec<u64>, take: bool) -> Result<()> {
    with(|d| {
        let graph = d.graphs.get_mut(graph)?;
        for (a, b) in from.into_iter().zip(to) {
            let node = graph.nodes.iter_mut().find(|n| n.handle == b).ok_or(Error::INVALID_VALUE)?;
            if take {
                node.after.retain(|n| *n != a);
            } else {
                node.after.push(a);
            }
        }
        graph.order().map(|_| ())
    })
}

fn before(node: Handle) -> Result<Vec<u64>> {
    with(|d| {
        let (graph, at) = d.node(node)?;
        Ok(graph.nodes[at].after.clone())
    })
}

fn behind(node: Handle) -> Result<Vec<u64>> {
    with(|d| {
        let (graph, _) = d.node(node)?;
        Ok(graph.nodes.iter().filter(|n| n.after.contains(&node)).map(|n| n.handle).collect())
    })
}

/// Puts the nodes of a graph into an executable one of the same shape; whether they fit.
fn update(exec: Handle, graph: Handle) -> Result<bool> {
    let nodes = whole(graph)?;
    with(|d| {
        let e = d.execs.get_mut(exec)?;
        let alike = e.nodes.len() == nodes.len()
            && e.nodes
                .iter()
                .zip(&nodes)
                .all(|(a, b)| std::mem::discriminant(&a.1) == std::mem::discriminant(&b.1));
        if alike {
            for (old, new) in e.nodes.iter_mut().zip(nodes) {
                old.1 = new.1;
            }
        }
        Ok(alike)
    })
}

/// What the structure that holds nodes of all kinds says.
fn any_work(at: u64) -> Result<Work> {
    let kind = In::<u32>::at(at).get()?;
    // The kind and three reserved words come first.
    let inner = at + 16;
    Ok(match kind {
        0 => In::<Kernel2>::at(inner).get()?.work()?,
        1 => Work::Copy(In::<Copy3>::at(inner + 16).get()?.transfer()?),
        2 => In::<Memset>::at(inner).get()?.work()?,
        3 => {
            let h = In::<HostNode>::at(inner).get()?;
            Work::Host(h.function, h.data)
        }
        5 | 6 => Work::Empty,
        7 => Work::Record(In::<u64>::at(inner).get()?),
        _ => {
            eprintln!("oxcuda: nodes of kind {kind} of a graph are not built");
            return Err(Error::NOT_SUPPORTED);
        }
    })
}

/// A node of any kind.
fn any(out: Out<Handle>, graph: Handle, after: (In<u64>, usize), at: u64) -> Result<()> {
    // The fourth kind is another graph.
    if In::<u32>::at(at).get()? == 4 {
        return child(out, graph, after, In::<u64>::at(at + 16).get()?);
    }
    add(out, graph, after, any_work(at)?)
}

api! {
    /// Makes one.
    fn cuGraphCreate(out: Out<Handle>, _flags: u32) {
        out.put(with(|d| Ok(d.graphs.add(Graph::default())))?)
    }
    /// Ends one.
    fn cuGraphDestroy(graph: Handle) {
        graph::release(&with(|d| d.graphs.remove(graph))?.objects)
    }
    /// Another one of the same nodes.
    fn cuGraphClone(out: Out<Handle>, graph: Handle) {
        out.put(with(|d| {
            let mut copy = d.graphs.get(graph)?.clone();
            d.retain(&copy.objects)?;
            let names: Vec<(u64, u64)> = copy.nodes.iter().map(|n| (n.handle, driver::fresh())).collect();
            let new = |h: u64| names.iter().find(|n| n.0 == h).map_or(h, |n| n.1);
            for n in &mut copy.nodes {
                n.handle = new(n.handle);
                n.after.iter_mut().for_each(|a| *a = new(*a));
            }
            Ok(d.graphs.add(copy))
        })?)
    }
    /// A kernel.
    fn cuGraphAddKernelNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, node: In<Kernel1>) {
        add(out, graph, (after, count), node.get()?.work()?)
    }
    /// A kernel.
    fn cuGraphAddKernelNode_v2(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, node: In<Kernel2>) {
        add(out, graph, (after, count), node.get()?.work()?)
    }
    /// A copy.
    fn cuGraphAddMemcpyNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, copy: In<Copy3>, _context: Handle) {
        add(out, graph, (after, count), Work::Copy(copy.get()?.transfer()?))
    }
    /// A value everywhere.
    fn cuGraphAddMemsetNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, set: In<Memset>, _context: Handle) {
        add(out, graph, (after, count), set.get()?.work()?)
    }
    /// A function of the program.
    fn cuGraphAddHostNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, node: In<HostNode>) {
        let node = node.get()?;
        add(out, graph, (after, count), Work::Host(node.function, node.data))
    }
    /// Nothing.
    fn cuGraphAddEmptyNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize) {
        add(out, graph, (after, count), Work::Empty)
    }
    /// Another graph.
    fn cuGraphAddChildGraphNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, inner: Handle) {
        child(out, graph, (after, count), inner)
    }
    /// An event is recorded.
    fn cuGraphAddEventRecordNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, event: Handle) {
        add(out, graph, (after, count), Work::Record(event))
    }
    /// An event is waited for: all before it is done.
    fn cuGraphAddEventWaitNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, _event: Handle) {
        add(out, graph, (after, count), Work::Empty)
    }
    /// A node of any kind.
    fn cuGraphAddNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, node: Host) {
        any(out, graph, (after, count), node.address())
    }
    /// A node of any kind; edges have no data.
    fn cuGraphAddNode_v2(out: Out<Handle>, graph: Handle, after: In<u64>, _edges: Host, count: usize, node: Host) {
        any(out, graph, (after, count), node.address())
    }
    /// Takes a node away.
    fn cuGraphDestroyNode(node: Handle) {
        with(|d| {
            let (graph, at) = d.node(node)?;
            graph.nodes.remove(at);
            graph.nodes.iter_mut().for_each(|n| n.after.retain(|a| *a != node));
            Ok(())
        })
    }
    /// All nodes.
    fn cuGraphGetNodes(graph: Handle, nodes: Out<u64>, count: Out<usize>) {
        list(with(|d| Ok(d.graphs.get(graph)?.nodes.iter().map(|n| n.handle).collect()))?, nodes, count)
    }
    /// Nodes that come after none.
    fn cuGraphGetRootNodes(graph: Handle, nodes: Out<u64>, count: Out<usize>) {
        list(with(|d| Ok(d.graphs.get(graph)?.nodes.iter().filter(|n| n.after.is_empty()).map(|n| n.handle).collect()))?, nodes, count)
    }
    /// What comes after what.
    fn cuGraphGetEdges(graph: Handle, from: Out<u64>, to: Out<u64>, count: Out<usize>) {
        pairs(with(|d| Ok(d.graphs.get(graph)?.edges()))?, from, to, count)
    }
    /// What comes after what; edges have no data.
    fn cuGraphGetEdges_v2(graph: Handle, from: Out<u64>, to: Out<u64>, data: Out<u64>, count: Out<usize>) {
        let edges = with(|d| Ok(d.graphs.get(graph)?.edges()))?;
        if !data.is_null() {
            data.list(edges.iter().map(|_| 0).take(count.get()?));
        }
        pairs(edges, from, to, count)
    }
    /// What a node comes after.
    fn cuGraphNodeGetDependencies(node: Handle, out: Out<u64>, count: Out<usize>) {
        list(before(node)?, out, count)
    }
    /// What a node comes after.
    fn cuGraphNodeGetDependencies_v2(node: Handle, out: Out<u64>, _data: Out<u64>, count: Out<usize>) {
        list(before(node)?, out, count)
    }
    /// What comes after a node.
    fn cuGraphNodeGetDependentNodes(node: Handle, out: Out<u64>, count: Out<usize>) {
        list(behind(node)?, out, count)
    }
    /// What comes after a node.
    fn cuGraphNodeGetDependentNodes_v2(node: Handle, out: Out<u64>, _data: Out<u64>, count: Out<usize>) {
        list(behind(node)?, out, count)
    }
    /// Lets nodes come after others.
    fn cuGraphAddDependencies(graph: Handle, from: In<u64>, to: In<u64>, count: usize) {
        dependencies(graph, from.list(count)?, to.list(count)?, false)
    }
    /// Lets nodes come after others.
    fn cuGraphAddDependencies_v2(graph: Handle, from: In<u64>, to: In<u64>, _data: Host, count: usize) {
        dependencies(graph, from.list(count)?, to.list(count)?, false)
    }
    /// Lets them no more.
    fn cuGraphRemoveDependencies(graph: Handle, from: In<u64>, to: In<u64>, count: usize) {
        dependencies(graph, from.list(count)?, to.list(count)?, true)
    }
    /// Lets them no more.
    fn cuGraphRemoveDependencies_v2(graph: Handle, from: In<u64>, to: In<u64>, _data: Host, count: usize) {
        dependencies(graph, from.list(count)?, to.list(count)?, true)
    }
    /// Of which kind a node is.
    fn cuGraphNodeGetType(node: Handle, kind: Out<u32>) {
        kind.put(match work_of(node)? {
            Work::Launch(_) => 0,
            Work::Copy(_) => 1,
            Work::Fill(_) => 2,
            Work::Host(..) | Work::Callback(..) => 3,
            Work::Graph(_) => 4,
            Work::Empty => 5,
            Work::Record(_) => 7,
            Work::Free(_) => 11,
        })
    }
    /// The graph of a node that is one.
    fn cuGraphChildGraphNodeGetGraph(node: Handle, out: Out<Handle>) {
        out.put(with(|d| {
            let (graph, at) = d.node(node)?;
            graph.nodes[at].child.ok_or(Error::INVALID_VALUE)
        })?)
    }
    /// The copy of a node.
    fn cuGraphMemcpyNodeGetParams(node: Handle, copy: Out<Copy3>) {
        match work_of(node)? {
            Work::Copy(t) => copy.put(Copy3::of(&t)),
            _ => Err(Error::INVALID_VALUE),
        }
    }
    /// Another copy.
    fn cuGraphMemcpyNodeSetParams(node: Handle, copy: In<Copy3>) {
        change(node, Work::Copy(copy.get()?.transfer()?))
    }
    /// The value of a node.
    fn cuGraphMemsetNodeGetParams(node: Handle, set: Out<Memset>) {
        match work_of(node)? {
            Work::Fill(f) => set.put(Memset {
                to: f.address,
                pitch: f.pitch as usize,
                value: f.value,
                element: f.element,
                width: f.size[0] as usize,
                height: f.size[1] as usize,
            }),
            _ => Err(Error::INVALID_VALUE),
        }
    }
    /// Another value.
    fn cuGraphMemsetNodeSetParams(node: Handle, set: In<Memset>) {
        change(node, set.get()?.work()?)
    }
    /// The function of a node.
    fn cuGraphHostNodeGetParams(node: Handle, out: Out<HostNode>) {
        match work_of(node)? {
            Work::Host(function, data) => out.put(HostNode { function, data }),
            _ => Err(Error::INVALID_VALUE),
        }
    }
    /// Another function.
    fn cuGraphHostNodeSetParams(node: Handle, new: In<HostNode>) {
        let new = new.get()?;
        change(node, Work::Host(new.function, new.data))
    }
    /// Another launch.
    fn cuGraphKernelNodeSetParams(node: Handle, new: In<Kernel1>) {
        change(node, new.get()?.work()?)
    }
    /// Another launch.
    fn cuGraphKernelNodeSetParams_v2(node: Handle, new: In<Kernel2>) {
        change(node, new.get()?.work()?)
    }
    /// Makes it ready to run.
    fn cuGraphInstantiate(out: Out<Handle>, graph: Handle, node: Out<Handle>, log: Out<u8>, size: usize) / cuGraphInstantiate_v2 {
        node.maybe(0);
        if size > 0 {
            log.maybe(0);
        }
        instantiate(out, graph)
    }
    /// Makes it ready to run.
    fn cuGraphInstantiateWithFlags(out: Out<Handle>, graph: Handle, _flags: u64) {
        instantiate(out, graph)
    }
    /// Makes it ready to run; the parameters say that all went well.
    fn cuGraphInstantiateWithParams(out: Out<Handle>, graph: Handle, given: Host) / cuGraphInstantiateWithParams_ptsz {
        crate::ffi::write(given.address() + 16, &[0; 12])?;
        instantiate(out, graph)
    }
    /// Nothing is to be brought anywhere.
    fn cuGraphUpload(exec: Handle, _stream: Handle) / cuGraphUpload_ptsz {
        with(|d| d.execs.get(exec).map(|_| ()))
    }
    /// Runs it.
    fn cuGraphLaunch(exec: Handle, stream: Handle) / cuGraphLaunch_ptsz {
        let nodes = within(|d| Ok(d.execs.get(exec)?.nodes.clone()))?;
        crate::stream::submit(stream, Work::Graph(nodes.into_iter().map(|n| n.1).collect()))
    }
    /// Ends it.
    fn cuGraphExecDestroy(exec: Handle) {
        graph::release(&with(|d| d.execs.remove(exec))?.objects)
    }
    /// Another launch.
    fn cuGraphExecKernelNodeSetParams(exec: Handle, node: Handle, new: In<Kernel1>) {
        let work = new.get()?.work()?;
        with(|d| d.set_node(exec, node, work))
    }
    /// Another launch.
    fn cuGraphExecKernelNodeSetParams_v2(exec: Handle, node: Handle, new: In<Kernel2>) {
        let work = new.get()?.work()?;
        with(|d| d.set_node(exec, node, work))
    }
    /// Another copy.
    fn cuGraphExecMemcpyNodeSetParams(exec: Handle, node: Handle, copy: In<Copy3>, _context: Handle) {
        let work = Work::Copy(copy.get()?.transfer()?);
        with(|d| d.set_node(exec, node, work))
    }
    /// Another value.
    fn cuGraphExecMemsetNodeSetParams(exec: Handle, node: Handle, set: In<Memset>, _context: Handle) {
        let work = set.get()?.work()?;
        with(|d| d.set_node(exec, node, work))
    }
    /// Another function.
    fn cuGraphExecHostNodeSetParams(exec: Handle, node: Handle, new: In<HostNode>) {
        let new = new.get()?;
        with(|d| d.set_node(exec, node, Work::Host(new.function, new.data)))
    }
    /// Takes everything from another graph of the same shape.
    fn cuGraphExecUpdate(exec: Handle, graph: Handle, node: Out<Handle>, result: Out<u32>) {
        node.maybe(0);
        let done = update(exec, graph)?;
        result.maybe(u32::from(!done));
        if done { Ok(()) } else { Err(Error::GRAPH_EXEC_UPDATE_FAILURE) }
    }
    /// Takes everything from another graph of the same shape.
    fn cuGraphExecUpdate_v2(exec: Handle, graph: Handle, result: Out<[u64; 3]>) {
        let done = update(exec, graph)?;
        result.maybe([u64::from(!done), 0, 0]);
        if done { Ok(()) } else { Err(Error::GRAPH_EXEC_UPDATE_FAILURE) }
    }
    /// Flags.
    fn cuGraphExecGetFlags(exec: Handle, flags: Out<u64>) {
        with(|d| d.execs.get(exec).map(|_| ()))?;
        flags.put(0)
    }
    /// Something of the program's that graphs keep.
    fn cuUserObjectCreate(out: Out<Handle>, data: Host, free: HostFn, count: u32, _flags: u32) {
        if !free.is_some() || count == 0 {
            return Err(Error::INVALID_VALUE);
        }
        out.put(with(|d| Ok(d.objects.add(UserObject { free: (free, data.address()), count })))?)
    }
    /// Refers to it.
    fn cuUserObjectRetain(object: Handle, count: u32) {
        with(|d| d.retain(&[(object, count)]))
    }
    /// Lets go of it.
    fn cuUserObjectRelease(object: Handle, count: u32) {
        graph::release(&[(object, count)])
    }
    /// Lets a graph refer to it; with the flag in place of the caller.
    fn cuGraphRetainUserObject(graph: Handle, object: Handle, count: u32, flags: u32) {
        with(|d| {
            d.graphs.get(graph)?;
            if flags & 1 == 0 {
                d.retain(&[(object, count)])?;
            }
            d.graphs.get_mut(graph)?.objects.push((object, count));
            Ok(())
        })
    }
    /// Lets a graph refer to it no more.
    fn cuGraphReleaseUserObject(graph: Handle, object: Handle, count: u32) {
        with(|d| {
            let objects = &mut d.graphs.get_mut(graph)?.objects;
            let held = objects.iter_mut().find(|o| o.0 == object && o.1 >= count).ok_or(Error::INVALID_VALUE)?;
            held.1 -= count;
            objects.retain(|o| o.1 > 0);
            Ok(())
        })?;
        graph::release(&[(object, count)])
    }
    /// Another launch, copy, value or function for a node.
    fn cuGraphNodeSetParams(node: Handle, given: Host) {
        change(node, any_work(given.address())?)
    }
    /// The same in an executable graph.
    fn cuGraphExecNodeSetParams(exec: Handle, node: Handle, given: Host) {
        let work = any_work(given.address())?;
        with(|d| d.set_node(exec, node, work))
    }
    /// Another graph for a node that is one.
    fn cuGraphExecChildGraphNodeSetParams(exec: Handle, node: Handle, inner: Handle) {
        let work = Work::Graph(whole(inner)?.into_iter().map(|n| n.1).collect());
        with(|d| d.set_node(exec, node, work))
    }
}
