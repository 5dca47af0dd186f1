//! Start, versions, errors, the device.

use crate::attributes;
use crate::driver;
use crate::error::{Error, Result};
use crate::ffi::{Host, In, Out, StaticText, Text, text_of};
use crate::settings;

/// The version of the header.
pub const VERSION: i32 = 13000;

/// Whether there is such a device.
pub fn check(device: i32) -> Result<()> {
    if device == 0 { Ok(()) } else { Err(Error::INVALID_DEVICE) }
}

/// Bytes that name the device.
const UUID: [u8; 16] = *b"oxcuda simulator";

api! {
    /// Makes the driver ready.
    fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        driver::start();
        Ok(())
    }

    /// The version of the header.
    fn cuDriverGetVersion(version: Out<i32>) {
        version.put(VERSION)
    }

    /// A function by its name.
    fn cuGetProcAddress_v2(name: Text, function: Out<*const ()>, version: i32, flags: u64, found: Out<u32>) {
        if function.is_null() || version > VERSION || flags & !3 != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let name = name.get()?;
        // Found, not found, of a newer version.
        let (state, pointer) = match super::find(&name, version, flags & 2 != 0) {
            Ok(row) => (0, row.function),
            Err(known) => (if known { 2 } else { 1 }, std::ptr::null()),
        };
        function.put(pointer)?;
        let told = !found.is_null();
        found.maybe(state);
        if state == 0 || told { Ok(()) } else { Err(Error::NOT_FOUND) }
    }

    /// A function by its name, as up to CUDA 11.
    fn cuGetProcAddress(name: Text, function: Out<*const ()>, version: i32, flags: u64) {
        match super::find(&name.get()?, version, flags & 2 != 0) {
            Ok(row) => function.put(row.function),
            Err(_) => {
                function.maybe(std::ptr::null());
                Err(Error::NOT_FOUND)
            }
        }
    }

    /// The name of an error.
    fn cuGetErrorName(error: u32, name: Out<StaticText>) {
        match Error(error).row() {
            Some((_, n, _)) => name.put(text_of(n)),
            None => {
                name.maybe(StaticText(std::ptr::null()));
                Err(Error::INVALID_VALUE)
            }
        }
    }

    /// What an error means.
    fn cuGetErrorString(error: u32, text: Out<StaticText>) {
        match Error(error).row() {
            Some((_, _, t)) => text.put(text_of(t)),
            None => {
                text.maybe(StaticText(std::ptr::null()));
                Err(Error::INVALID_VALUE)
            }
        }
    }

    /// How many devices there are.
    fn cuDeviceGetCount(count: Out<i32>) {
        driver::with(|_| count.put(1))
    }

    /// A device.
    fn cuDeviceGet(device: Out<i32>, ordinal: i32) {
        driver::with(|_| check(ordinal))?;
        device.put(ordinal)
    }

    /// Its name.
    fn cuDeviceGetName(name: Out<u8>, length: i32, device: i32) {
        check(device)?;
        let text = attributes::name();
        let most = usize::try_from(length - 1).map_err(|_| Error::INVALID_VALUE)?;
        name.put(0)?;
        name.list(text.bytes().take(most).chain([0]));
        Ok(())
    }

    /// Bytes that name it.
    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32) / cuDeviceGetUuid_v2 {
        check(device)?;
        uuid.put(UUID)
    }

    /// Bytes of its memory.
    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) {
        check(device)?;
        bytes.put(settings::get().memory as usize)
    }

    /// What it can do.
    fn cuDeviceGetAttribute(value: Out<i32>, attribute: u32, device: i32) {
        driver::with(|_| check(device))?;
        value.put(attributes::attribute(attribute).ok_or(Error::INVALID_VALUE)?)
    }

    /// Its compute capability.
    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) {
        check(device)?;
        let (a, b) = attributes::capability(settings::get().target.sm);
        major.put(a)?;
        minor.put(b)
    }

    /// Threads, sizes and clocks in one structure.
    fn cuDeviceGetProperties(properties: Out<[i32; 14]>, device: i32) {
        check(device)?;
        let numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
        properties.put(numbers.map(|n| attributes::attribute(n).unwrap_or(0)))
    }

    /// Where it would be plugged in.
    fn cuDeviceGetPCIBusId(text: Out<u8>, length: i32, device: i32) {
        check(device)?;
        let most = usize::try_from(length - 1).map_err(|_| Error::INVALID_VALUE)?;
        text.put(0)?;
        text.list("0000:00:00.0".bytes().take(most).chain([0]));
        Ok(())
    }

    /// The device that is plugged in somewhere.
    fn cuDeviceGetByPCIBusId(device: Out<i32>, text: Text) {
        let text = text.get()?;
        if ["0000:00:00.0", "00:00.0"].contains(&&*text) { device.put(0) } else { Err(Error::INVALID_DEVICE) }
    }

    /// Whether one device reaches another one's memory: there is but one.
    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) {
        check(device).and(check(peer))?;
        can.put(0)
    }

    /// What two devices have in common.
    fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: u32, from: i32, to: i32) {
        check(from).and(check(to))?;
        if attribute == 0 || from == to {
            return Err(Error::INVALID_VALUE);
        }
        value.put(0)
    }

    /// Whether contexts can be given a part of the device.
    fn cuDeviceGetExecAffinitySupport(can: Out<i32>, _kind: u32, device: i32) {
        check(device)?;
        can.put(0)
    }

    /// How modules are loaded: when they are asked for.
    fn cuModuleGetLoadingMode(mode: Out<u32>) {
        mode.put(1)
    }

    /// Nothing is measured.
    fn cuProfilerInitialize(_config: In<u8>, _output: In<u8>, _mode: u32) {
        Ok(())
    }

    /// Nothing is measured.
    fn cuProfilerStart() {
        Ok(())
    }

    /// Nothing is measured.
    fn cuProfilerStop() {
        Ok(())
    }

    /// Tables of functions that no document describes: there are none.
    fn cuGetExportTable(table: Out<Handle>, _id: Host) {
        table.maybe(0);
        Err(Error::NOT_FOUND)
    }
}

use super::Handle;
