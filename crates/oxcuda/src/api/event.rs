//! Events.

use super::{Handle, only};
use crate::driver::within;
use crate::error::{Error, Result};
use crate::ffi::Out;
use crate::queue;
use crate::stream::Event;

/// Flags of an event: waiting for it takes no time of the host's, it has no time, it is for several processes.
const BLOCKING: u32 = 1;
const NO_TIME: u32 = 2;
const BETWEEN_PROCESSES: u32 = 4;

fn elapsed(from: Handle, to: Handle) -> Result<f32> {
    within(|d| {
        let (a, b) = (d.events.get(from)?, d.events.get(to)?);
        if (a.flags | b.flags) & NO_TIME != 0 {
            return Err(Error::INVALID_HANDLE);
        }
        if d.unrecorded(from)?.is_some() || d.unrecorded(to)?.is_some() {
            return Err(Error::NOT_READY);
        }
        let (a, b) = (a.time.ok_or(Error::INVALID_HANDLE)?, b.time.ok_or(Error::INVALID_HANDLE)?);
        Ok(match b.checked_duration_since(a) {
            Some(after) => after.as_secs_f32() * 1e3,
            None => -(a.duration_since(b).as_secs_f32() * 1e3),
        })
    })
}

api! {
    /// Makes one.
    fn cuEventCreate(out: Out<Handle>, flags: u32) {
        only(flags, BLOCKING | NO_TIME | BETWEEN_PROCESSES)?;
        if flags & BETWEEN_PROCESSES != 0 && flags & NO_TIME == 0 {
            return Err(Error::INVALID_VALUE);
        }
        out.make(|| within(|d| {
            let context = d.context()?;
            Ok(d.events.add(Event { flags, context, ..Event::default() }))
        }))
    }
    /// Ends one.
    fn cuEventDestroy(event: Handle) / cuEventDestroy_v2 {
        within(|d| d.events.remove(event).map(|_| ()))
    }
    /// Records one in a stream.
    fn cuEventRecord(event: Handle, stream: Handle) / cuEventRecord_ptsz {
        within(|d| d.record_in(event, stream, false))
    }
    /// The same, with flags: under capture as a node of the graph.
    fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: u32) / cuEventRecordWithFlags_ptsz {
        only(flags, 1)?;
        within(|d| d.record_in(event, stream, flags != 0))
    }
    /// Whether all before it is done: it is, but for what waits for a value.
    fn cuEventQuery(event: Handle) {
        within(|d| {
            d.settled(event)?;
            if d.unrecorded(event)?.is_some() { Err(Error::NOT_READY) } else { Ok(()) }
        })
    }
    /// Waits until it is done.
    fn cuEventSynchronize(event: Handle) {
        let waiting = within(|d| { d.settled(event)?; d.unrecorded(event) })?;
        waiting.map_or(Ok(()), queue::wait_for)
    }
    /// Milliseconds between two: of the simulator, not of a device.
    fn cuEventElapsedTime(out: Out<f32>, from: Handle, to: Handle) / cuEventElapsedTime_v2 {
        out.put(elapsed(from, to)?)
    }
}
