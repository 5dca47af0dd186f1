//! Events.

use super::Handle;
use crate::driver::within;
use crate::error::{Error, Result};
use crate::ffi::Out;
use crate::stream::Event;

/// Flag of an event without a time.
const NO_TIME: u32 = 2;

fn elapsed(from: Handle, to: Handle) -> Result<f32> {
    within(|d| {
        let (a, b) = (d.events.get(from)?, d.events.get(to)?);
        if (a.flags | b.flags) & NO_TIME != 0 {
            return Err(Error::INVALID_HANDLE);
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
        out.put(within(|d| Ok(d.events.add(Event { flags, ..Event::default() })))?)
    }
    /// Ends one.
    fn cuEventDestroy(event: Handle) / cuEventDestroy_v2 {
        within(|d| d.events.remove(event).map(|_| ()))
    }
    /// Records one in a stream.
    fn cuEventRecord(event: Handle, stream: Handle) / cuEventRecord_ptsz {
        within(|d| d.record_in(event, stream))
    }
    /// The same, with flags.
    fn cuEventRecordWithFlags(event: Handle, stream: Handle, _flags: u32) / cuEventRecordWithFlags_ptsz {
        within(|d| d.record_in(event, stream))
    }
    /// Whether all before it is done: it is.
    fn cuEventQuery(event: Handle) {
        within(|d| d.events.get(event).map(|_| ()))
    }
    /// Waits until it is done.
    fn cuEventSynchronize(event: Handle) {
        within(|d| d.events.get(event).map(|_| ()))
    }
    /// Milliseconds between two: of the simulator, not of a device.
    fn cuEventElapsedTime(out: Out<f32>, from: Handle, to: Handle) / cuEventElapsedTime_v2 {
        out.put(elapsed(from, to)?)
    }
}
