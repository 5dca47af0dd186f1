//! Graphs.

mod nodes;

use super::copy::Copy3;
use super::{Handle, only};
use crate::driver::with;
use crate::error::{Error, Result};
use crate::ffi::{Host, HostFn, In, Out};
use crate::graph::{self, Graph, Unlike, UserObject};
use crate::work::Work;
pub use nodes::{AllocNode, BatchNode, HostNode, Kernel1, Kernel2, Memset};

/// A number of references to a user object.
fn references(count: u32) -> Result<()> {
    if (1..=i32::MAX as u32).contains(&count) { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

/// Whether a context is there; null is the current one.
fn of_context(context: Handle) -> Result<()> {
    with(|d| match context {
        0 => d.context().map(|_| ()),
        c => d.contexts.get(c).map(|_| ()).map_err(|_| Error::INVALID_CONTEXT),
    })
}

/// An event that is there.
fn event(event: Handle) -> Result<Handle> {
    with(|d| d.events.get(event).map(|_| event).map_err(|_| Error::INVALID_VALUE))
}

fn add(out: Out<Handle>, graph: Handle, (after, count): (In<u64>, usize), work: Work) -> Result<()> {
    let after = after.list(count)?;
    out.make(|| with(|d| d.add_node(graph, &after, work)))
}

/// Flags of an executable graph that are taken: memory is freed by the next launch, it is uploaded, nodes have priorities.
const INSTANTIATE_FLAGS: u64 = graph::AUTO_FREE | 2 | 8;
/// The flag of one that kernels launch.
const DEVICE_LAUNCH: u64 = 4;

fn instantiate(out: Out<Handle>, graph: Handle, flags: u64) -> Result<()> {
    if flags & DEVICE_LAUNCH != 0 {
        say!("oxcuda: graphs that kernels launch are not built");
        return Err(Error::NOT_SUPPORTED);
    }
    if flags & !INSTANTIATE_FLAGS != 0 {
        return Err(Error::INVALID_VALUE);
    }
    out.make(|| with(|d| d.instantiate(graph, flags)))
}

fn child(out: Out<Handle>, graph: Handle, (after, count): (In<u64>, usize), inner: Handle) -> Result<()> {
    let after = after.list(count)?;
    out.make(|| with(|d| d.add_child(graph, &after, inner)))
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
        graph.nodes[at].told = None;
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
    // The count is the same for both.
    let ask = count.get()?;
    list(a, from, count)?;
    if !to.is_null() {
        count.put(ask)?;
    }
    list(b, to, count)
}

/// What edges have besides: nothing, in zeros of eight bytes, which are told with the nodes alone.
fn no_data(data: Out<u64>, with: &[Out<u64>], count: Out<usize>) -> Result<()> {
    if data.is_null() {
        return Ok(());
    }
    if with.iter().any(|w| w.is_null()) {
        return Err(Error::INVALID_VALUE);
    }
    data.list((0..count.get()?).map(|_| 0));
    Ok(())
}

fn dependencies(graph: Handle, (from, to, count): (In<u64>, In<u64>, usize), take: bool) -> Result<()> {
    let pairs: Vec<(u64, u64)> = from.list(count)?.into_iter().zip(to.list(count)?).collect();
    with(|d| {
        let graph = d.graphs.get_mut(graph)?;
        if take { graph.disconnect(&pairs) } else { graph.connect(&pairs) }
    })
}

/// Whether the data of edges is what the header has: two ports, a kind, and five reserved bytes. All edges are whole dependencies.
fn edges(data: In<[u8; 8]>, count: usize) -> Result<()> {
    let known = |e: &[u8; 8]| e[2] <= 1 && e[3..] == [0; 5];
    match data.is_null() || data.list(count)?.iter().all(known) {
        true => Ok(()),
        false => Err(Error::INVALID_VALUE),
    }
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

/// Puts the nodes of a graph into an executable one of the same shape; what differs if they do not fit.
fn update(exec: Handle, graph: Handle) -> Result<std::result::Result<(), Unlike>> {
    with(|d| {
        let steps = d.steps(graph)?;
        Ok(d.execs.get_mut(exec)?.update(steps))
    })
}

/// Kinds of nodes that allocate and free memory, and that wait for and write words of it.
const ALLOC: u32 = 10;
const FREE: u32 = 11;
const BATCH: u32 = 12;

/// What the structure that holds nodes of all kinds says.
fn any_work(at: u64) -> Result<Work> {
    let kind = In::<u32>::at(at).get()?;
    // The kind and three reserved words come first.
    let inner = at + 16;
    Ok(match kind {
        0 => In::<Kernel2>::at(inner).get()?.work()?,
        // Flags there are none.
        1 if In::<u64>::at(inner).get()? != 0 => return Err(Error::INVALID_VALUE),
        1 => Work::Copy(In::<Copy3>::at(inner + 16).get()?.transfer()?),
        2 => In::<Memset>::at(inner).get()?.work()?,
        3 => In::<HostNode>::at(inner).get()?.work()?,
        5 => Work::Empty,
        6 => Work::Wait(event(In::at(inner).get()?)?),
        7 => Work::Record(event(In::at(inner).get()?)?),
        ALLOC => {
            let node = In::<AllocNode>::at(inner).get()?;
            let work = node.work()?;
            if let Work::Alloc(a) = &work {
                Out::<AllocNode>::at(inner).put(AllocNode { address: a.address, ..node })?;
            }
            work
        }
        FREE => Work::Free(In::<u64>::at(inner).get()?),
        BATCH => In::<BatchNode>::at(inner).get()?.work()?,
        // Up to conditional ones there are more.
        14.. => return Err(Error::INVALID_VALUE),
        _ => {
            say!("oxcuda: nodes of kind {kind} of a graph are not built");
            return Err(Error::NOT_SUPPORTED);
        }
    })
}

/// A node of any kind.
fn any(out: Out<Handle>, graph: Handle, after: (In<u64>, usize), at: u64) -> Result<()> {
    // Three words behind the kind and the last two are reserved.
    let (first, last) = (In::<[u32; 3]>::at(at + 4).get()?, In::<u64>::at(at + 248).get()?);
    if (first, last) != ([0; 3], 0) {
        return Err(Error::INVALID_VALUE);
    }
    // The fourth kind is another graph.
    if In::<u32>::at(at).get()? == 4 {
        return child(out, graph, after, In::<u64>::at(at + 16).get()?);
    }
    add(out, graph, after, any_work(at)?)
}

api! {
    /// Makes one.
    fn cuGraphCreate(out: Out<Handle>, flags: u32) {
        only(flags, 0)?;
        out.make(|| with(|d| Ok(d.graphs.add(Graph::default()))))
    }
    /// Ends one.
    fn cuGraphDestroy(graph: Handle) {
        graph::release(&with(|d| match d.graphs.get(graph)?.inner {
            // It goes with its node.
            true => Err(Error::INVALID_VALUE),
            false => d.end_graph(graph),
        })?)
    }
    /// Another one of the same nodes.
    fn cuGraphClone(out: Out<Handle>, graph: Handle) {
        out.make(|| with(|d| d.copy_graph(graph)))
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
    fn cuGraphAddMemcpyNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, copy: In<Copy3>, context: Handle) {
        of_context(context).map_err(|_| Error::INVALID_VALUE)?;
        add(out, graph, (after, count), Work::Copy(copy.get()?.transfer()?))
    }
    /// A value everywhere.
    fn cuGraphAddMemsetNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, set: In<Memset>, context: Handle) {
        of_context(context)?;
        add(out, graph, (after, count), set.get()?.work()?)
    }
    /// A function of the program.
    fn cuGraphAddHostNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, node: In<HostNode>) {
        add(out, graph, (after, count), node.get()?.work()?)
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
        add(out, graph, (after, count), Work::Record(self::event(event)?))
    }
    /// An event is waited for: all before it is done.
    fn cuGraphAddEventWaitNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, event: Handle) {
        add(out, graph, (after, count), Work::Wait(self::event(event)?))
    }
    /// Memory is given; where is known at once.
    fn cuGraphAddMemAllocNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, given: Out<AllocNode>) {
        let node = given.get()?;
        let work = node.work()?;
        if let Work::Alloc(a) = &work {
            given.put(AllocNode { address: a.address, ..node })?;
        }
        add(out, graph, (after, count), work)
    }
    /// Memory that a node gave is freed.
    fn cuGraphAddMemFreeNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, address: u64) {
        add(out, graph, (after, count), Work::Free(address))
    }
    /// Words of memory are waited for and written.
    fn cuGraphAddBatchMemOpNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, node: In<BatchNode>) {
        add(out, graph, (after, count), node.get()?.work()?)
    }
    /// The operations of a node.
    fn cuGraphBatchMemOpNodeGetParams(node: Handle, out: Out<BatchNode>) {
        match work_of(node)? {
            Work::Batch(b) => out.put(BatchNode::of(&b)),
            _ => Err(Error::INVALID_VALUE),
        }
    }
    /// Other ones.
    fn cuGraphBatchMemOpNodeSetParams(node: Handle, new: In<BatchNode>) {
        change(node, new.get()?.work()?)
    }
    /// Other ones of the same kinds.
    fn cuGraphExecBatchMemOpNodeSetParams(exec: Handle, node: Handle, new: In<BatchNode>) {
        let work = new.get()?.work()?;
        with(|d| d.set_node(exec, node, work))
    }
    /// What a node allocates.
    fn cuGraphMemAllocNodeGetParams(node: Handle, out: Out<AllocNode>) {
        match work_of(node)? {
            Work::Alloc(a) => out.put(AllocNode::of(&a)),
            _ => Err(Error::INVALID_VALUE),
        }
    }
    /// What a node frees.
    fn cuGraphMemFreeNodeGetParams(node: Handle, out: Out<u64>) {
        match work_of(node)? {
            Work::Free(address) => out.put(address),
            _ => Err(Error::INVALID_VALUE),
        }
    }
    /// The node of a copy of a graph that was made from a node.
    fn cuGraphNodeFindInClone(out: Out<Handle>, node: Handle, graph: Handle) {
        out.put(with(|d| {
            let found = d.graphs.get(graph)?.nodes.iter().find(|n| n.copy_of == Some(node));
            found.map(|n| n.handle).ok_or(Error::INVALID_VALUE)
        })?)
    }
    /// Whether a node of an executable graph is done: kernels, copies and fills need not be.
    fn cuGraphNodeSetEnabled(exec: Handle, node: Handle, enabled: u32) {
        with(|d| {
            let step = d.execs.get_mut(exec)?.step(node)?;
            if step.work.kind() > 2 {
                return Err(Error::INVALID_VALUE);
            }
            step.enabled = enabled != 0;
            Ok(())
        })
    }
    /// Whether it is.
    fn cuGraphNodeGetEnabled(exec: Handle, node: Handle, enabled: Out<u32>) {
        enabled.put(with(|d| Ok(u32::from(d.execs.get_mut(exec)?.step(node)?.enabled)))?)
    }
    /// The event of a node that records one.
    fn cuGraphEventRecordNodeGetEvent(node: Handle, out: Out<Handle>) {
        match work_of(node)? {
            Work::Record(event) => out.put(event),
            _ => Err(Error::INVALID_VALUE),
        }
    }
    /// Another event.
    fn cuGraphEventRecordNodeSetEvent(node: Handle, event: Handle) {
        change(node, Work::Record(self::event(event)?))
    }
    /// The event of a node that waits for one.
    fn cuGraphEventWaitNodeGetEvent(node: Handle, out: Out<Handle>) {
        match work_of(node)? {
            Work::Wait(event) => out.put(event),
            _ => Err(Error::INVALID_VALUE),
        }
    }
    /// Another event.
    fn cuGraphEventWaitNodeSetEvent(node: Handle, event: Handle) {
        change(node, Work::Wait(self::event(event)?))
    }
    /// Another event.
    fn cuGraphExecEventRecordNodeSetEvent(exec: Handle, node: Handle, event: Handle) {
        with(|d| { d.events.get(event)?; d.set_node(exec, node, Work::Record(event)) })
    }
    /// Another event.
    fn cuGraphExecEventWaitNodeSetEvent(exec: Handle, node: Handle, event: Handle) {
        with(|d| { d.events.get(event)?; d.set_node(exec, node, Work::Wait(event)) })
    }
    /// Nothing is kept that is not used.
    fn cuDeviceGraphMemTrim(device: i32) {
        super::device::check(device)
    }
    /// Bytes that graphs have allocated, now and at most; as many are kept.
    fn cuDeviceGetGraphMemAttribute(device: i32, number: u32, value: Out<u64>) {
        super::device::check(device)?;
        let used = with(|d| Ok(d.space.graphs_used()))?;
        value.put(match number {
            0 | 2 => used[0],
            1 | 3 => used[1],
            _ => return Err(Error::INVALID_VALUE),
        })
    }
    /// Forgets the most.
    fn cuDeviceSetGraphMemAttribute(device: i32, number: u32, value: In<u64>) {
        super::device::check(device)?;
        if !matches!(number, 1 | 3) || value.get()? != 0 {
            return Err(Error::INVALID_VALUE);
        }
        with(|d| { d.space.forget_most_of_graphs(); Ok(()) })
    }
    /// A node of any kind.
    fn cuGraphAddNode(out: Out<Handle>, graph: Handle, after: In<u64>, count: usize, node: Host) {
        any(out, graph, (after, count), node.address())
    }
    /// A node of any kind; edges have no data.
    fn cuGraphAddNode_v2(out: Out<Handle>, graph: Handle, after: In<u64>, data: In<[u8; 8]>, count: usize, node: Host) {
        edges(data, count)?;
        any(out, graph, (after, count), node.address())
    }
    /// Takes a node away.
    fn cuGraphDestroyNode(node: Handle) {
        with(|d| {
            let (graph, at) = d.node(node)?;
            graph.movable()?;
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
        no_data(data, &[from, to], count)?;
        pairs(with(|d| Ok(d.graphs.get(graph)?.edges()))?, from, to, count)
    }
    /// What a node comes after.
    fn cuGraphNodeGetDependencies(node: Handle, out: Out<u64>, count: Out<usize>) {
        list(before(node)?, out, count)
    }
    /// What a node comes after.
    fn cuGraphNodeGetDependencies_v2(node: Handle, out: Out<u64>, data: Out<u64>, count: Out<usize>) {
        no_data(data, &[out], count)?;
        list(before(node)?, out, count)
    }
    /// What comes after a node.
    fn cuGraphNodeGetDependentNodes(node: Handle, out: Out<u64>, count: Out<usize>) {
        list(behind(node)?, out, count)
    }
    /// What comes after a node.
    fn cuGraphNodeGetDependentNodes_v2(node: Handle, out: Out<u64>, data: Out<u64>, count: Out<usize>) {
        no_data(data, &[out], count)?;
        list(behind(node)?, out, count)
    }
    /// Lets nodes come after others.
    fn cuGraphAddDependencies(graph: Handle, from: In<u64>, to: In<u64>, count: usize) {
        dependencies(graph, (from, to, count), false)
    }
    /// Lets nodes come after others.
    fn cuGraphAddDependencies_v2(graph: Handle, from: In<u64>, to: In<u64>, data: In<[u8; 8]>, count: usize) {
        edges(data, count)?;
        dependencies(graph, (from, to, count), false)
    }
    /// Lets them no more.
    fn cuGraphRemoveDependencies(graph: Handle, from: In<u64>, to: In<u64>, count: usize) {
        dependencies(graph, (from, to, count), true)
    }
    /// Lets them no more.
    fn cuGraphRemoveDependencies_v2(graph: Handle, from: In<u64>, to: In<u64>, _data: Host, count: usize) {
        dependencies(graph, (from, to, count), true)
    }
    /// Of which kind a node is.
    fn cuGraphNodeGetType(node: Handle, kind: Out<u32>) {
        kind.put(work_of(node)?.kind())
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
                value: f.value as u32,
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
        change(node, new.get()?.work()?)
    }
    /// The launch of a node.
    fn cuGraphKernelNodeGetParams(node: Handle, out: Out<Kernel1>) {
        out.put(Kernel2::of(node)?.first)
    }
    /// The launch of a node.
    fn cuGraphKernelNodeGetParams_v2(node: Handle, out: Out<Kernel2>) {
        out.put(Kernel2::of(node)?)
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
        instantiate(out, graph, 0)
    }
    /// Makes it ready to run.
    fn cuGraphInstantiateWithFlags(out: Out<Handle>, graph: Handle, flags: u64) {
        instantiate(out, graph, flags)
    }
    /// Makes it ready to run; the parameters say whether all went well.
    fn cuGraphInstantiateWithParams(out: Out<Handle>, graph: Handle, given: Host) / cuGraphInstantiateWithParams_ptsz {
        let flags = In::<u64>::at(given.address()).get()?;
        let done = instantiate(out, graph, flags);
        // No node, and a result: success, or what the function's own result says.
        Out::at(given.address() + 16).put(0u64)?;
        Out::at(given.address() + 24).put(u32::from(done.is_err()))?;
        done
    }
    /// Nothing is to be brought anywhere.
    fn cuGraphUpload(exec: Handle, _stream: Handle) / cuGraphUpload_ptsz {
        with(|d| d.execs.get(exec).map(|_| ()))
    }
    /// Runs it.
    fn cuGraphLaunch(exec: Handle, stream: Handle) / cuGraphLaunch_ptsz {
        crate::stream::launch_graph(exec, stream)
    }
    /// Ends it; what of it waits is still done, and what it refers to let go then.
    fn cuGraphExecDestroy(exec: Handle) {
        graph::release(&with(|d| {
            let objects = d.execs.remove(exec)?.objects;
            Ok(d.release_later(exec, objects))
        })?)
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
        let work = new.get()?.work()?;
        with(|d| d.set_node(exec, node, work))
    }
    /// Takes everything from another graph of the same shape.
    fn cuGraphExecUpdate(exec: Handle, graph: Handle, node: Out<Handle>, result: Out<u32>) {
        let done = update(exec, graph).inspect_err(|_| result.maybe(1))?;
        result.maybe(done.err().map_or(0, |u| u.result));
        node.maybe(done.err().map_or(0, |u| u.node));
        done.map_err(|_| Error::GRAPH_EXEC_UPDATE_FAILURE)
    }
    /// Takes everything from another graph of the same shape.
    fn cuGraphExecUpdate_v2(exec: Handle, graph: Handle, result: Out<[u64; 3]>) {
        let done = update(exec, graph).inspect_err(|_| result.maybe([1, 0, 0]))?;
        result.maybe(done.err().map_or([0; 3], |u| [u.result.into(), u.node, u.from]));
        done.map_err(|_| Error::GRAPH_EXEC_UPDATE_FAILURE)
    }
    /// Flags.
    fn cuGraphExecGetFlags(exec: Handle, flags: Out<u64>) {
        flags.put(with(|d| Ok(d.execs.get(exec)?.flags))?)
    }
    /// Something of the program's that graphs keep.
    fn cuUserObjectCreate(out: Out<Handle>, data: Host, free: HostFn, count: u32, flags: u32) {
        // That its end is told nobody is all that there is, and has to be asked for.
        if flags != 1 {
            return Err(Error::INVALID_VALUE);
        }
        if !free.is_some() {
            return Err(Error::INVALID_VALUE);
        }
        references(count)?;
        out.make(|| with(|d| Ok(d.objects.add(UserObject { free: (free, data.address()), count }))))
    }
    /// Refers to it.
    fn cuUserObjectRetain(object: Handle, count: u32) {
        references(count)?;
        with(|d| d.retain(&[(object, count)]))
    }
    /// Lets go of it.
    fn cuUserObjectRelease(object: Handle, count: u32) {
        references(count)?;
        graph::release(&[(object, count)])
    }
    /// Lets a graph refer to it; with the flag in place of the caller.
    fn cuGraphRetainUserObject(graph: Handle, object: Handle, count: u32, flags: u32) {
        only(flags, 1)?;
        references(count)?;
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
        references(count)?;
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
        with(|d| {
            d.graphs.get(inner)?.movable()?;
            let steps = d.steps(inner)?;
            d.set_node(exec, node, Work::Graph(steps))
        })
    }
}
