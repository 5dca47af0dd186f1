//! Contexts.

use super::device::check;
use super::{Handle, below, only};
use crate::driver::{self, Context, limit, stack, with, within};
use crate::error::{Error, Result};
use crate::ffi::{Host, In, Out};
use crate::queue;

/// Limits by number, and what holds where nothing was set: stack, printf's buffer, the heap, and others.
const LIMITS: [(u32, u64); 9] = [
    (0, 1024),
    (limit::PRINTF, 1 << 20),
    (limit::HEAP, limit::HEAP_SIZE),
    (3, 2),
    (4, 2048),
    (5, 64),
    (6, 0),
    (7, 0),
    (8, 0),
];

/// Flags of a context: how to wait (one of them at most), and others of which nothing depends here.
fn context_flags(flags: u32) -> Result<()> {
    only(flags, 0xff)?;
    if matches!(flags & 7, 0 | 1 | 2 | 4) { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

/// A context that is there; the current one if it is null.
fn known(context: Handle) -> Result<Handle> {
    with(|d| {
        let c = if context == 0 { d.current().ok_or(Error::INVALID_CONTEXT)? } else { context };
        d.contexts
            .get(c)
            .map(|_| c)
            .map_err(|_| if context == 0 { Error::CONTEXT_IS_DESTROYED } else { Error::INVALID_CONTEXT })
    })
}

fn create(out: Out<Handle>, flags: u32, device: i32) -> Result<()> {
    check(device)?;
    context_flags(flags)?;
    out.make(|| {
        let context = with(|d| Ok(d.contexts.add(Context { flags, ..Context::default() })))?;
        stack(|s| s.push(context));
        Ok(context)
    })
}

fn destroy(context: Handle) -> Result<()> {
    with(|d| {
        // The primary one ends when nobody holds it any more.
        if d.primary == Some(context) {
            return Err(Error::INVALID_CONTEXT);
        }
        d.destroy(context).map_err(|_| Error::INVALID_CONTEXT)
    })?;
    stack(|s| {
        if s.last() == Some(&context) {
            s.pop();
        }
    });
    Ok(())
}

api! {
    /// Makes a context and makes it current.
    fn cuCtxCreate(out: Out<Handle>, flags: u32, device: i32) / cuCtxCreate_v2 {
        create(out, flags, device)
    }

    /// The same, for a part of the device.
    fn cuCtxCreate_v3(out: Out<Handle>, _params: Host, count: i32, flags: u32, device: i32) {
        if count != 0 {
            return Err(Error::UNSUPPORTED_EXEC_AFFINITY);
        }
        create(out, flags, device)
    }

    /// The same, with parameters.
    fn cuCtxCreate_v4(out: Out<Handle>, params: In<[u64; 3]>, flags: u32, device: i32) {
        // Lists of processors and what is shared with graphics, and between them how long the first list is.
        let [affinity, _, graphics] = if params.is_null() { [0; 3] } else { params.get()? };
        if affinity != 0 || graphics != 0 {
            say!("oxcuda: contexts on a part of the device are not built");
            return Err(Error::NOT_SUPPORTED);
        }
        create(out, flags, device)
    }

    /// Ends one.
    fn cuCtxDestroy(context: Handle) / cuCtxDestroy_v2 {
        destroy(context)
    }

    /// The current one.
    fn cuCtxGetCurrent(out: Out<Handle>) {
        out.put(with(|d| Ok(d.current().unwrap_or(0)))?)
    }

    /// Makes one current in place of another.
    fn cuCtxSetCurrent(context: Handle) {
        with(|d| if context == 0 { Ok(()) } else { d.contexts.get(context).map(|_| ()).map_err(|_| Error::INVALID_CONTEXT) })?;
        stack(|s| {
            s.pop();
            if context != 0 {
                s.push(context);
            }
        });
        Ok(())
    }

    /// Makes one current.
    fn cuCtxPushCurrent(context: Handle) / cuCtxPushCurrent_v2 {
        with(|d| d.contexts.get(context).map(|_| ()).map_err(|_| Error::INVALID_CONTEXT))?;
        stack(|s| s.push(context));
        Ok(())
    }

    /// Makes the one before current again.
    fn cuCtxPopCurrent(out: Out<Handle>) / cuCtxPopCurrent_v2 {
        let top = stack(Vec::pop).ok_or(Error::INVALID_CONTEXT)?;
        out.maybe(top);
        Ok(())
    }

    /// The device of the current one.
    fn cuCtxGetDevice(device: Out<i32>) {
        with(|d| d.current().map(|_| ()).ok_or(Error::INVALID_CONTEXT))?;
        device.put(0)
    }

    /// The device of one.
    fn cuCtxGetDevice_v2(device: Out<i32>, context: Handle) {
        known(context)?;
        device.put(0)
    }

    /// Flags.
    fn cuCtxGetFlags(flags: Out<u32>) {
        flags.put(within(|d| { let c = d.context()?; Ok(d.contexts.get(c)?.flags) })?)
    }

    /// Sets flags.
    fn cuCtxSetFlags(flags: u32) {
        context_flags(flags)?;
        within(|d| { let c = d.context()?; d.contexts.get_mut(c)?.flags = flags; Ok(()) })
    }

    /// A number of its own.
    fn cuCtxGetId(context: Handle, id: Out<u64>) {
        id.put(known(context)?)
    }

    /// The version that it was made for.
    fn cuCtxGetApiVersion(context: Handle, version: Out<u32>) {
        known(context)?;
        version.put(3020)
    }

    /// Waits for everything: it is done.
    fn cuCtxSynchronize() {
        within(|d| d.wait_for_all())?;
        queue::wait(|_| true)
    }

    /// Waits for everything in a context.
    fn cuCtxSynchronize_v2(context: Handle) {
        let context = known(context)?;
        with(|d| d.contexts.get(context)?.broken.map_or(Ok(()), Err).and(d.wait_for_all()))?;
        queue::wait(|_| true)
    }

    /// A limit.
    fn cuCtxGetLimit(value: Out<usize>, limit: u32) {
        let default = LIMITS.iter().find(|l| l.0 == limit).ok_or(Error::UNSUPPORTED_LIMIT)?.1;
        let set = within(|d| { let c = d.context()?; Ok(d.contexts.get(c)?.limits.get(&limit).copied()) })?;
        value.put(set.unwrap_or(default) as usize)
    }

    /// Sets a limit.
    fn cuCtxSetLimit(limit: u32, value: usize) {
        LIMITS.iter().find(|l| l.0 == limit).ok_or(Error::UNSUPPORTED_LIMIT)?;
        if limit == 0 && value > 512 << 10 {
            return Err(Error::INVALID_VALUE);
        }
        within(|d| {
            let c = d.context()?;
            let context = d.contexts.get_mut(c)?;
            if context.fixed.contains(&limit) {
                return Err(Error::INVALID_VALUE);
            }
            context.limits.insert(limit, value as u64);
            Ok(())
        })
    }

    /// What caches are preferred: nothing depends on it.
    fn cuCtxGetCacheConfig(config: Out<u32>) {
        config.put(within(|d| { let c = d.context()?; Ok(d.contexts.get(c)?.configuration[0]) })?)
    }

    /// Says what is preferred.
    fn cuCtxSetCacheConfig(config: u32) {
        below(config, 4)?;
        within(|d| { let c = d.context()?; d.contexts.get_mut(c)?.configuration[0] = config; Ok(()) })
    }

    /// How wide banks are: nothing depends on it.
    fn cuCtxGetSharedMemConfig(config: Out<u32>) {
        config.put(within(|d| { let c = d.context()?; Ok(d.contexts.get(c)?.configuration[1]) })?)
    }

    /// Says how wide they are to be.
    fn cuCtxSetSharedMemConfig(config: u32) {
        below(config, 3)?;
        within(|d| { let c = d.context()?; d.contexts.get_mut(c)?.configuration[1] = config; Ok(()) })
    }

    /// Priorities of streams: nothing depends on them.
    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        least.maybe(0);
        greatest.maybe(-5);
        Ok(())
    }

    /// There are no such lines.
    fn cuCtxResetPersistingL2Cache() {
        Ok(())
    }

    /// No other device is there to be reached.
    fn cuCtxEnablePeerAccess(_context: Handle, _flags: u32) {
        Err(Error::PEER_ACCESS_UNSUPPORTED)
    }

    /// No other device was reached.
    fn cuCtxDisablePeerAccess(_context: Handle) {
        Err(Error::PEER_ACCESS_NOT_ENABLED)
    }

    /// Holds the primary context.
    fn cuDevicePrimaryCtxRetain(out: Out<Handle>, device: i32) {
        check(device)?;
        out.make(|| with(|d| { d.held += 1; Ok(d.primary()) }))
    }

    /// Lets go of the primary context.
    fn cuDevicePrimaryCtxRelease_v2(device: i32) / cuDevicePrimaryCtxRelease {
        check(device)?;
        with(|d| {
            d.held = d.held.checked_sub(1).ok_or(Error::INVALID_CONTEXT)?;
            match d.primary {
                Some(c) if d.held == 0 => d.destroy(c),
                _ => Ok(()),
            }
        })
    }

    /// Ends the primary context for everyone.
    fn cuDevicePrimaryCtxReset_v2(device: i32) / cuDevicePrimaryCtxReset {
        check(device)?;
        with(|d| d.primary.map_or(Ok(()), |c| d.destroy(c)))
    }

    /// Sets its flags.
    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) / cuDevicePrimaryCtxSetFlags {
        check(device)?;
        context_flags(flags)?;
        with(|d| {
            d.primary_flags = flags;
            match d.primary {
                Some(c) => { d.contexts.get_mut(c)?.flags = flags; Ok(()) }
                None => Ok(()),
            }
        })
    }

    /// Whether there is one.
    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) {
        check(device)?;
        with(|d| {
            flags.maybe(d.primary_flags);
            active.maybe(i32::from(d.primary.is_some()));
            Ok(())
        })
    }

    /// Holds on to a context.
    fn cuCtxAttach(out: Out<Handle>, flags: u32) {
        only(flags, 0)?;
        let context = driver::with(|d| {
            let current = d.current().ok_or(Error::INVALID_CONTEXT)?;
            d.contexts.get_mut(current).map_err(|_| Error::CONTEXT_IS_DESTROYED)?.attached += 1;
            Ok(current)
        })?;
        out.put(context)
    }

    /// Lets go of a context.
    fn cuCtxDetach(context: Handle) {
        let others = driver::with(|d| {
            let c = d.contexts.get_mut(context).map_err(|_| Error::INVALID_CONTEXT)?;
            c.attached = c.attached.wrapping_sub(1);
            Ok(c.attached != u32::MAX)
        })?;
        if others { Ok(()) } else { destroy(context) }
    }
}
