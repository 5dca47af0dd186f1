//! Streams, and what is captured from them.

use super::{Handle, below, only};
use crate::capture::{self, Mode};
use crate::driver::within;
use crate::error::{Error, Result};
use crate::ffi::{Host, HostFn, In, Out, StreamFn, Text};
use crate::memop::{Action, Batch, Operation};
use crate::queue;
use crate::stream::{OWN, Stream, submit};
use crate::work::Work;

fn create(out: Out<Handle>, flags: u32, priority: i32) -> Result<()> {
    if flags > 1 {
        return Err(Error::INVALID_VALUE);
    }
    out.make(|| {
        within(|d| {
            let context = d.context()?;
            Ok(d.streams.add(Stream { flags, priority: priority.clamp(-5, 0), context, capture: None }))
        })
    })
}

/// Makes the next node of a capture come after these, in place of what it came after if bit 0 of the flags is set.
fn come_after(stream: Handle, after: Vec<u64>, flags: u32) -> Result<()> {
    only(flags, 1)?;
    within(|d| {
        let (graph, mut last) = d.capturing(stream)?.ok_or(Error::ILLEGAL_STATE)?;
        if flags & 1 != 0 {
            last.clear();
        }
        last.extend(after);
        d.graphs.get(graph)?.has(&last)?;
        d.set_last(stream, last)
    })
}

/// Numbers of `CUstreamCaptureStatus`.
const NOT_CAPTURING: u32 = 0;
const CAPTURING: u32 = 1;
const INVALID: u32 = 2;

/// State of a capture: whether there is one, its number, its graph, and the nodes that the next comes after.
struct Info {
    state: Out<u32>,
    id: Out<u64>,
    graph: Out<Handle>,
    after: Out<u64>,
    count: Out<usize>,
}

fn info(stream: Handle, to: &Info) -> Result<()> {
    let (state, capture) = within(|d| {
        // To ask does no harm to a capture that is in the way.
        if !d.in_the_way(stream).is_empty() {
            return Err(Error::STREAM_CAPTURE_IMPLICIT);
        }
        let Some(c) = d.stream(stream)?.capture.clone() else { return Ok((NOT_CAPTURING, None)) };
        let q = d.captures.get(c.sequence)?;
        Ok(if q.invalid { (INVALID, None) } else { (CAPTURING, Some((c, q.graph))) })
    })?;
    to.state.put(state)?;
    if let Some((c, graph)) = capture {
        to.id.maybe(c.sequence);
        to.graph.maybe(graph);
        to.count.maybe(c.last.len());
        if !to.after.is_null() {
            to.after.maybe(crate::ffi::kept(&c.last));
        }
    }
    Ok(())
}

/// Does operations on words of memory in their turn.
fn operate(stream: Handle, list: &[Operation]) -> Result<()> {
    let batch = within(|d| {
        d.implicit(stream)?;
        let context = d.context_of(stream)?;
        let batch = d.batch(context, list)?;
        let Some((graph, last)) = d.capturing(stream)? else { return Ok(Some(batch)) };
        let node = d.add_node(graph, &last, Work::Batch(batch))?;
        d.set_last(stream, vec![node])?;
        Ok(None)
    })?;
    batch.iter().flat_map(Batch::actions).try_for_each(|action| match action {
        Action::Wait(v) => within(|d| d.wait_for_value(stream, v)),
        Action::Write(f) => submit(stream, Work::Fill(f)),
        Action::Order => Ok(()),
    })
}

api! {
    /// Makes one.
    fn cuStreamCreate(out: Out<Handle>, flags: u32) {
        create(out, flags, 0)
    }
    /// Makes one with a priority.
    fn cuStreamCreateWithPriority(out: Out<Handle>, flags: u32, priority: i32) {
        create(out, flags, priority)
    }
    /// Ends one.
    fn cuStreamDestroy(stream: Handle) / cuStreamDestroy_v2 {
        within(|d| d.end_stream(stream))
    }
    /// Waits until all is done: it is, but for what waits for a value.
    fn cuStreamSynchronize(stream: Handle) / cuStreamSynchronize_ptsz {
        within(|d| d.finished(stream))?;
        queue::finish(stream)
    }
    /// Whether all is done: it is, but for what waits for a value.
    fn cuStreamQuery(stream: Handle) / cuStreamQuery_ptsz {
        within(|d| {
            d.finished(stream)?;
            if d.unfinished(stream)? { Err(Error::NOT_READY) } else { Ok(()) }
        })
    }
    /// Lets what follows wait for an event.
    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) / cuStreamWaitEvent_ptsz {
        only(flags, 1)?;
        within(|d| d.wait(stream, event, flags != 0))
    }
    /// Calls a function of the program in its turn.
    fn cuStreamAddCallback(stream: Handle, function: StreamFn, data: Host, flags: u32) / cuStreamAddCallback_ptsz {
        only(flags, 0)?;
        if !function.is_some() {
            return Err(Error::INVALID_VALUE);
        }
        // Such functions, unlike the simpler ones, are no part of graphs.
        within(|d| { d.implicit(stream)?; d.uncaptured(stream) })?;
        submit(stream, Work::Callback(function, data.address()))
    }
    /// The same, simpler.
    fn cuLaunchHostFunc(stream: Handle, function: HostFn, data: Host) / cuLaunchHostFunc_ptsz {
        if !function.is_some() {
            return Err(Error::INVALID_VALUE);
        }
        submit(stream, Work::Host(function, data.address()))
    }
    /// Flags.
    fn cuStreamGetFlags(stream: Handle, flags: Out<u32>) / cuStreamGetFlags_ptsz {
        flags.put(within(|d| Ok(d.stream(stream)?.flags))?)
    }
    /// Priority.
    fn cuStreamGetPriority(stream: Handle, priority: Out<i32>) / cuStreamGetPriority_ptsz {
        priority.put(within(|d| Ok(d.stream(stream)?.priority))?)
    }
    /// A number of its own.
    fn cuStreamGetId(stream: Handle, id: Out<u64>) / cuStreamGetId_ptsz {
        within(|d| d.stream(stream).map(|_| ()))?;
        id.put(stream)
    }
    /// Its device.
    fn cuStreamGetDevice(stream: Handle, device: Out<i32>) / cuStreamGetDevice_ptsz {
        within(|d| d.stream(stream).map(|_| ()))?;
        device.put(0)
    }
    /// Its context.
    fn cuStreamGetCtx(stream: Handle, context: Out<Handle>) / cuStreamGetCtx_ptsz {
        context.put(within(|d| if stream <= OWN { d.context() } else { Ok(d.stream(stream)?.context) })?)
    }
    /// Its context; it is of no part of the device.
    fn cuStreamGetCtx_v2(stream: Handle, context: Out<Handle>, green: Out<Handle>) / cuStreamGetCtx_v2_ptsz {
        context.put(within(|d| if stream <= OWN { d.context() } else { Ok(d.stream(stream)?.context) })?)?;
        green.maybe(0);
        Ok(())
    }
    /// Attributes: nothing depends on them.
    fn cuStreamCopyAttributes(to: Handle, from: Handle) / cuStreamCopyAttributes_ptsz {
        within(|d| { d.stream(to)?; d.stream(from).map(|_| ()) })
    }
    /// Begins to capture.
    fn cuStreamBeginCapture(stream: Handle, mode: u32) / cuStreamBeginCapture_v2 / cuStreamBeginCapture_ptsz / cuStreamBeginCapture_v2_ptsz {
        let mode = Mode::of(mode)?;
        within(|d| d.begin_capture(stream, mode, None))
    }
    /// Begins to capture into a graph.
    fn cuStreamBeginCaptureToGraph(stream: Handle, graph: Handle, after: In<u64>, _edges: Host, count: usize, mode: u32) / cuStreamBeginCaptureToGraph_ptsz {
        let (after, mode) = (after.list(count)?, Mode::of(mode)?);
        within(|d| d.begin_capture(stream, mode, Some((graph, after))))
    }
    /// Ends it.
    fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) / cuStreamEndCapture_ptsz {
        graph.maybe(0);
        let (made, wrong) = within(|d| d.end_capture(stream))?;
        let Some(wrong) = wrong else { return graph.put(made) };
        if made != 0 {
            crate::graph::release(&within(|d| d.end_graph(made))?)?;
        }
        Err(wrong)
    }
    /// Whether it captures.
    fn cuStreamIsCapturing(stream: Handle, state: Out<u32>) / cuStreamIsCapturing_ptsz {
        info(stream, &Info { state, id: Out::at(0), graph: Out::at(0), after: Out::at(0), count: Out::at(0) })
    }
    /// What it captures.
    fn cuStreamGetCaptureInfo(stream: Handle, state: Out<u32>, id: Out<u64>) / cuStreamGetCaptureInfo_ptsz {
        info(stream, &Info { state, id, graph: Out::at(0), after: Out::at(0), count: Out::at(0) })
    }
    /// What it captures, and where.
    fn cuStreamGetCaptureInfo_v2(stream: Handle, state: Out<u32>, id: Out<u64>, graph: Out<Handle>, after: Out<u64>, count: Out<usize>) / cuStreamGetCaptureInfo_v2_ptsz {
        info(stream, &Info { state, id, graph, after, count })
    }
    /// What it captures, and where; edges have no data.
    fn cuStreamGetCaptureInfo_v3(stream: Handle, state: Out<u32>, id: Out<u64>, graph: Out<Handle>, after: Out<u64>, edges: Out<u64>, count: Out<usize>) / cuStreamGetCaptureInfo_v3_ptsz {
        edges.maybe(0);
        info(stream, &Info { state, id, graph, after, count })
    }
    /// Changes what the next node comes after.
    fn cuStreamUpdateCaptureDependencies(stream: Handle, after: In<u64>, count: usize, flags: u32) / cuStreamUpdateCaptureDependencies_ptsz {
        come_after(stream, after.list(count)?, flags)
    }
    /// Changes what the next node comes after.
    fn cuStreamUpdateCaptureDependencies_v2(stream: Handle, after: In<u64>, _edges: Host, count: usize, flags: u32) / cuStreamUpdateCaptureDependencies_v2_ptsz {
        come_after(stream, after.list(count)?, flags)
    }
    /// How strict the thread is about captures; what it was before.
    fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) {
        let before = capture::exchange(Mode::of(mode.get()?)?);
        mode.put(before as u32)
    }
    /// Writes a word in its turn.
    fn cuStreamWriteValue32(stream: Handle, address: u64, value: u32, flags: u32) / cuStreamWriteValue32_v2 / cuStreamWriteValue32_ptsz / cuStreamWriteValue32_v2_ptsz {
        operate(stream, &[Operation::write((address, 4), value.into(), flags)])
    }
    /// Writes a word of 64 bits in its turn.
    fn cuStreamWriteValue64(stream: Handle, address: u64, value: u64, flags: u32) / cuStreamWriteValue64_v2 / cuStreamWriteValue64_ptsz / cuStreamWriteValue64_v2_ptsz {
        operate(stream, &[Operation::write((address, 8), value, flags)])
    }
    /// Several of these, one after another.
    fn cuStreamBatchMemOp(stream: Handle, count: u32, list: In<Operation>, flags: u32) / cuStreamBatchMemOp_v2 / cuStreamBatchMemOp_ptsz / cuStreamBatchMemOp_v2_ptsz {
        only(flags, 0)?;
        below(count, 256)?;
        operate(stream, &list.list(count as usize)?)
    }
    /// Waits for a word.
    fn cuStreamWaitValue32(stream: Handle, address: u64, value: u32, flags: u32) / cuStreamWaitValue32_v2 / cuStreamWaitValue32_ptsz / cuStreamWaitValue32_v2_ptsz {
        operate(stream, &[Operation::wait((address, 4), value.into(), flags)])
    }
    /// Waits for a word of 64 bits.
    fn cuStreamWaitValue64(stream: Handle, address: u64, value: u64, flags: u32) / cuStreamWaitValue64_v2 / cuStreamWaitValue64_ptsz / cuStreamWaitValue64_v2_ptsz {
        operate(stream, &[Operation::wait((address, 8), value, flags)])
    }
    /// Writes a description of a graph.
    fn cuGraphDebugDotPrint(graph: Handle, path: Text, flags: u32) {
        below(flags, 1 << 17)?;
        let edges = within(|d| Ok(d.graphs.get(graph)?.edges()))?;
        let lines: String = edges.iter().map(|(a, b)| format!("  n{a:x} -> n{b:x};\n")).collect();
        std::fs::write(path.get()?, format!("digraph {{\n{lines}}}\n")).map_err(|_| Error::OPERATING_SYSTEM)
    }
}
