// UNSAFETY: opens devices of a C library and reads what it fills in.
//! Devices: list, open, limits, ports and their addresses.

#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::ffi::CStr;
use std::io;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use verbs_sys as sys;
use verbs_sys::Verbs;

use crate::gid::{self, Gid, GidEntry, GidType};
use crate::qp::Mtu;
use crate::unlisted;

/// Why no device, or not the one asked for, can be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// libibverbs is not on this machine.
    #[error(
        "RDMA is not installed: {0} (on Debian: apt-get install libibverbs1 ibverbs-providers)"
    )]
    NotInstalled(String),
    /// libibverbs is there, and no device.
    #[error("no RDMA device on this machine")]
    NoDevice,
    /// The kernel has devices, and their files are not here, as in a container that was not given them.
    #[error("the kernel has RDMA devices ({}), and /dev/infiniband has none of their files", devices.join(", "))]
    NoFiles {
        /// The devices of the kernel.
        devices: Vec<String>,
    },
    /// The kernel has devices with files, and libibverbs no library of theirs.
    #[error("libibverbs has no provider for the RDMA devices of the kernel ({})", devices.join(", "))]
    NoProvider {
        /// The devices of the kernel.
        devices: Vec<String>,
    },
    /// The kernel lists devices, and libibverbs refused to.
    #[error("cannot list RDMA devices")]
    List(#[source] io::Error),
    /// The named device is not among those present.
    #[error("no RDMA device {name}; present: {}", present.join(", "))]
    NotFound {
        /// The name asked for.
        name: String,
        /// The names of the devices of this machine.
        present: Vec<String>,
    },
    /// The device is there and cannot be opened.
    #[error("cannot open RDMA device {name}")]
    Open {
        /// The device.
        name: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A question to the device failed.
    #[error("cannot query {what} of RDMA device {name}")]
    Query {
        /// The device.
        name: String,
        /// What was asked.
        what: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The port has no address.
    #[error(
        "port {port} of RDMA device {name} has no GID; give its network interface an IP address"
    )]
    NoGid {
        /// The device.
        name: String,
        /// The port, from 1.
        port: u8,
    },
    /// No port can be used, and this is why the last one looked at cannot.
    #[error("no usable port on RDMA device {name}: {why}")]
    NoPort {
        /// The device.
        name: String,
        /// What is wrong with its ports.
        why: String,
    },
    /// The table of addresses has no such entry.
    #[error("port {port} of RDMA device {name} has no GID at index {index}")]
    NoGidAt {
        /// The device.
        name: String,
        /// The port, from 1.
        port: u8,
        /// The index asked for.
        index: u8,
    },
}

/// An open device; clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct Device(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) verbs: &'static Verbs,
    pub(crate) context: NonNull<sys::ibv_context>,
    name: String,
    limits: Limits,
    firmware: String,
    iwarp: bool,
}

// SAFETY: libibverbs locks what it shares; a context may be used from any thread (ibv_open_device(3)).
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Inner {
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: opened by `Device::open`; all objects made from it hold an `Arc` of `self`, so none is left.
        if unsafe { (self.verbs.ibv_close_device)(self.context.as_ptr()) } != 0 {
            tracing::error!(device = self.name, "libibverbs did not close the device");
        }
    }
}

/// The device's own limits; more than these is refused at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Queue pairs.
    pub qps: u32,
    /// Work requests outstanding in each queue of a queue pair.
    pub qp_requests: u32,
    /// Segments of a work request.
    pub segments: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Entries of a completion queue.
    pub cq_entries: u32,
    /// Memory regions.
    pub mrs: u32,
    /// Bytes of a memory region.
    pub mr_bytes: u64,
    /// Shared receive queues.
    pub srqs: u32,
    /// Receives outstanding in a shared receive queue.
    pub srq_requests: u32,
    /// Segments of a receive in a shared receive queue.
    pub srq_segments: u32,
    /// RDMA reads and atomics that a queue pair may have outstanding as initiator.
    pub rd_atomic_initiator: u32,
    /// RDMA reads and atomics that a queue pair may serve at a time as target.
    pub rd_atomic_target: u32,
    /// Ports, numbered from 1.
    pub ports: u8,
}

impl Limits {
    fn new(attr: &sys::ibv_device_attr) -> Self {
        // Negative limits do not exist; a driver that reports one allows none.
        let count = |value: i32| u32::try_from(value).unwrap_or(0);
        Self {
            qps: count(attr.max_qp),
            qp_requests: count(attr.max_qp_wr),
            segments: count(attr.max_sge),
            cqs: count(attr.max_cq),
            cq_entries: count(attr.max_cqe),
            mrs: count(attr.max_mr),
            mr_bytes: attr.max_mr_size,
            srqs: count(attr.max_srq),
            srq_requests: count(attr.max_srq_wr),
            srq_segments: count(attr.max_srq_sge),
            rd_atomic_initiator: count(attr.max_qp_init_rd_atom),
            rd_atomic_target: count(attr.max_qp_rd_atom),
            ports: attr.phys_port_cnt,
        }
    }
}

/// State and properties of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortInfo {
    /// Number, from 1.
    pub number: u8,
    /// Can it carry traffic now?
    pub active: bool,
    /// The state's code (`enum ibv_port_state`).
    pub state: u32,
    /// RoCE or iWARP (true), or InfiniBand (false).
    pub ethernet: bool,
    /// iWARP: RDMA over TCP. Connections are made by the RDMA connection manager ([`crate::cm`]) alone; there are no
    /// datagrams, no immediate values, and the memory that a read goes to must be open to writes.
    pub iwarp: bool,
    /// Local identifier on InfiniBand; 0 on RoCE.
    pub lid: u16,
    /// Largest packet payload in use.
    pub mtu: Mtu,
    /// Rate of the link in Mbit/s, by its lanes and their nominal speed; 0 if the driver does not say.
    pub rate_mbps: u32,
    /// Bytes of the longest message.
    pub message_bytes: u32,
    /// Slots of the table of addresses, most of them empty.
    pub gid_slots: u32,
}

/// The text before the NUL of a field.
fn text(field: &[std::ffi::c_char]) -> String {
    let bytes = field.iter().map(|c| c.to_ne_bytes()[0]);
    let bytes: Vec<u8> = bytes.take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// Mbit/s of a link, by the codes of `active_width` and `active_speed` (ibv_query_port(3)); 0 for others.
fn rate(width: u8, speed: u8) -> u32 {
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    };
    let each = match speed {
        1 => 2_500,
        2 => 5_000,
        // QDR and FDR-10.
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    };
    lanes * each
}

/// Why libibverbs lists no device.
fn no_device() -> DeviceError {
    unlisted::why(Path::new("/"), None).unwrap_or(DeviceError::NoDevice)
}

/// The list that libibverbs hands out, freed on drop.
struct List {
    verbs: &'static Verbs,
    devices: NonNull<*mut sys::ibv_device>,
    count: usize,
}

impl List {
    fn new() -> Result<Self, DeviceError> {
        let verbs = sys::verbs().map_err(|e| DeviceError::NotInstalled(e.to_string()))?;
        let mut count = 0;
        // SAFETY: no precondition; `count` is written.
        let devices = unsafe { (verbs.ibv_get_device_list)(&mut count) };
        let Some(devices) = NonNull::new(devices) else {
            let error = io::Error::last_os_error();
            // ENOSYS: the kernel has no RDMA subsystem loaded.
            return Err(match error.raw_os_error() {
                Some(libc::ENOSYS | libc::ENOENT | libc::ENODEV) => no_device(),
                _ => DeviceError::List(error),
            });
        };
        Ok(Self {
            verbs,
            devices,
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    fn device(&self, index: usize) -> *mut sys::ibv_device {
        assert!(index < self.count, "an index below the length of the list");
        // SAFETY: the library says that the list has `count` entries, and `index` is less.
        let entry = unsafe { self.devices.add(index) };
        // SAFETY: the entry lies in the list, which lives as long as `self`.
        unsafe { entry.read() }
    }

    fn names(&self) -> Vec<String> {
        (0..self.count).map(|index| self.name(index)).collect()
    }

    fn name(&self, index: usize) -> String {
        // SAFETY: an entry of a live list is a valid device.
        let name = unsafe { (self.verbs.ibv_get_device_name)(self.device(index)) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: a NUL-terminated string inside the device, which the list keeps alive.
        unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list came from `ibv_get_device_list`; open devices do not need it.
        unsafe { (self.verbs.ibv_free_device_list)(self.devices.as_ptr()) }
    }
}

impl Device {
    /// Names of the devices of this machine.
    ///
    /// # Errors
    ///
    /// libibverbs is absent ([`DeviceError::NotInstalled`]) or the kernel has no RDMA
    /// ([`DeviceError::NoDevice`]); an empty list is not an error.
    pub fn list() -> Result<Vec<String>, DeviceError> {
        Ok(List::new()?.names())
    }

    /// Opens the device `name`, or without a name the first that has an active port, or else the first.
    ///
    /// # Errors
    ///
    /// One of [`DeviceError`] that says what to do.
    pub fn open(name: Option<&str>) -> Result<Self, DeviceError> {
        let list = List::new()?;
        let names = list.names();
        if names.is_empty() {
            return Err(no_device());
        }
        if let Some(name) = name {
            let Some(index) = names.iter().position(|n| n == name) else {
                let why = unlisted::why(Path::new("/"), Some(name));
                return Err(why.unwrap_or_else(|| DeviceError::NotFound {
                    name: name.to_owned(),
                    present: names,
                }));
            };
            return Self::open_entry(&list, index);
        }
        let mut first = None;
        for index in 0..names.len() {
            let device = Self::open_entry(&list, index);
            if device.as_ref().is_ok_and(Self::has_active_port) {
                return device;
            }
            first.get_or_insert(device);
        }
        first.unwrap_or_else(|| Err(no_device()))
    }

    fn open_entry(list: &List, index: usize) -> Result<Self, DeviceError> {
        let name = list.name(index);
        let verbs = list.verbs;
        // SAFETY: an entry of a live list is a valid device.
        let context = unsafe { (verbs.ibv_open_device)(list.device(index)) };
        let Some(context) = NonNull::new(context) else {
            return Err(DeviceError::Open {
                name,
                source: io::Error::last_os_error(),
            });
        };
        let mut attr = std::mem::MaybeUninit::<sys::ibv_device_attr>::zeroed();
        // SAFETY: the context is open, and `attr` has room for the answer.
        let status = unsafe { (verbs.ibv_query_device)(context.as_ptr(), attr.as_mut_ptr()) };
        // SAFETY: all fields are integers, for which the zeroes it was made of are valid values.
        let attr = unsafe { attr.assume_init() };
        let limits = Limits::new(&attr);
        let kind = std::fs::read_to_string(format!("/sys/class/infiniband/{name}/node_type"));
        let iwarp = kind.is_ok_and(|kind| kind.starts_with("4:"));
        let device = Self(Arc::new(Inner {
            iwarp,
            verbs,
            context,
            name,
            limits,
            firmware: text(&attr.fw_ver),
        }));
        device.check(status, || "limits".to_owned())?;
        Ok(device)
    }

    fn has_active_port(&self) -> bool {
        (1..=self.limits().ports).any(|port| self.port(port).is_ok_and(|p| p.active))
    }

    /// The device's name, such as `rxe0` or `mlx5_0`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The version of the device's firmware, as its driver writes it; empty for devices without.
    pub fn firmware(&self) -> &str {
        &self.0.firmware
    }

    /// The device's limits.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// State and properties of port `port` (from 1).
    ///
    /// # Errors
    ///
    /// [`DeviceError::Query`]; a port that does not exist is one.
    pub fn port(&self, port: u8) -> Result<PortInfo, DeviceError> {
        let mut attr = sys::ibv_port_attr::default();
        let context = self.0.context.as_ptr();
        // SAFETY: the context is open, and `attr` has room for the answer.
        let status = unsafe { (self.0.verbs.ibv_query_port)(context, port, &mut attr) };
        self.check(status, || format!("port {port}"))?;
        Ok(PortInfo {
            number: port,
            active: attr.state == sys::IBV_PORT_ACTIVE,
            state: attr.state,
            ethernet: attr.link_layer == sys::IBV_LINK_LAYER_ETHERNET,
            iwarp: self.0.iwarp,
            lid: attr.lid,
            mtu: Mtu::from_code(attr.active_mtu),
            rate_mbps: rate(attr.active_width, attr.active_speed),
            message_bytes: attr.max_msg_sz,
            gid_slots: u32::try_from(attr.gid_tbl_len).unwrap_or(0),
        })
    }

    /// The addresses of port `port`; empty slots and those beyond the 256 that a queue pair can name are left
    /// out.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Query`].
    pub fn gids(&self, port: u8) -> Result<Vec<GidEntry>, DeviceError> {
        let info = self.port(port)?;
        match self.gid_table(info.gid_slots) {
            Some(entries) => Ok(entries
                .iter()
                .filter(|entry| entry.port_num == u32::from(port))
                .filter_map(|entry| {
                    Some(GidEntry {
                        index: u8::try_from(entry.gid_index).ok()?,
                        gid: Gid(entry.gid.raw),
                        kind: GidType::from_code(entry.gid_type),
                    })
                })
                .filter(|entry| !entry.gid.is_empty())
                .collect()),
            None => self.gids_one_by_one(&info),
        }
    }

    /// The whole table in one call, where the library has it.
    fn gid_table(&self, slots: u32) -> Option<Vec<sys::ibv_gid_entry>> {
        let query = self.0.verbs.query_gid_table?;
        let room = usize::try_from(slots)
            .ok()?
            .checked_mul(usize::from(self.0.limits.ports))?;
        let mut entries = vec![sys::ibv_gid_entry::default(); room.max(1)];
        let size = size_of::<sys::ibv_gid_entry>();
        let context = self.0.context.as_ptr();
        // SAFETY: the context is open, and the pointer and length are those of one allocation.
        let count = unsafe { query(context, entries.as_mut_ptr(), entries.len(), 0, size) };
        entries.truncate(usize::try_from(count).ok()?);
        Some(entries)
    }

    /// Each slot by its own call, with the kind from the kernel's files.
    fn gids_one_by_one(&self, info: &PortInfo) -> Result<Vec<GidEntry>, DeviceError> {
        let port = info.number;
        let mut entries = Vec::new();
        for index in 0..u8::try_from(info.gid_slots).unwrap_or(u8::MAX) {
            let mut gid = sys::ibv_gid::default();
            let context = self.0.context.as_ptr();
            // SAFETY: the context is open, and `gid` has room for the answer.
            let status =
                unsafe { (self.0.verbs.ibv_query_gid)(context, port, i32::from(index), &mut gid) };
            self.check(status, || format!("GID {index} of port {port}"))?;
            let gid = Gid(gid.raw);
            if !gid.is_empty() {
                let file = format!(
                    "/sys/class/infiniband/{}/ports/{port}/gid_attrs/types/{index}",
                    self.name()
                );
                let kind = match std::fs::read_to_string(file).unwrap_or_default().trim() {
                    "RoCE v2" => GidType::RoceV2,
                    _ if info.ethernet => GidType::RoceV1,
                    _ => GidType::InfiniBand,
                };
                entries.push(GidEntry { index, gid, kind });
            }
        }
        Ok(entries)
    }

    /// The entry at `index`, or without an index the one that reaches most peers ([`gid::choose`]).
    ///
    /// # Errors
    ///
    /// The table cannot be read, is empty, or lacks the index.
    pub fn gid(&self, port: u8, index: Option<u8>) -> Result<GidEntry, DeviceError> {
        let entries = self.gids(port)?;
        let name = || self.name().to_owned();
        match index {
            Some(index) => entries
                .into_iter()
                .find(|entry| entry.index == index)
                .ok_or_else(|| DeviceError::NoGidAt {
                    name: name(),
                    port,
                    index,
                }),
            None => gid::choose(&entries).ok_or_else(|| DeviceError::NoGid { name: name(), port }),
        }
    }

    /// The device and port to use: `name` is a device, or a device and a port as in `mlx5_0:2`; without a name, or
    /// without a port, the first port that is active and has the best address of all looked at: routable RoCE
    /// version 2 or InfiniBand before link-local ones and iWARP.
    ///
    /// # Errors
    ///
    /// No device, or none of its ports is active and has an address.
    pub fn choose(name: Option<&str>) -> Result<(Self, PortInfo), DeviceError> {
        let (name, wanted) = match name.and_then(|n| n.rsplit_once(':')) {
            Some((device, port)) => match port.parse() {
                Ok(port) => (Some(device), Some(port)),
                Err(_) => (name, None),
            },
            None => (name, None),
        };
        let names = match name {
            Some(name) => vec![name.to_owned()],
            None => Self::list()?,
        };
        let mut best: Option<(u8, Self, PortInfo)> = None;
        let mut last = None;
        for name in &names {
            let device = match Self::open(Some(name)) {
                Ok(device) => device,
                Err(error) => {
                    last = Some(error);
                    continue;
                }
            };
            let ports = wanted.map_or(1..=device.limits().ports, |p| p..=p);
            for port in ports {
                match device.suitability(port) {
                    Ok((score, info)) if best.as_ref().is_none_or(|b| b.0 < score) => {
                        best = Some((score, device.clone(), info));
                    }
                    Ok(_) => {}
                    Err(error) => last = Some(error),
                }
            }
        }
        best.map(|(_, device, info)| (device, info))
            .ok_or_else(|| last.unwrap_or_else(no_device))
    }

    /// How well the port suits, more is better, or why it cannot be used.
    fn suitability(&self, port: u8) -> Result<(u8, PortInfo), DeviceError> {
        let no = |why: String| DeviceError::NoPort {
            name: self.name().to_owned(),
            why,
        };
        let ports = self.limits().ports;
        if !(1..=ports).contains(&port) {
            return Err(no(format!("it has {ports}, and no port {port}")));
        }
        let info = self.port(port)?;
        if !info.active {
            return Err(no(format!("port {port} is not active")));
        }
        if info.iwarp {
            // Whether it has an address, the connection manager knows.
            return Ok((2, info));
        }
        if !info.ethernet {
            return match info.lid {
                0 => Err(no(format!(
                    "port {port} has no LID: no subnet manager runs"
                ))),
                _ => Ok((3, info)),
            };
        }
        let entry = self.gid(port, None)?;
        let score = match (entry.kind, entry.gid.is_link_local()) {
            (GidType::RoceV1, _) => 1,
            (_, true) => 2,
            (_, false) => 3,
        };
        Ok((score, info))
    }

    /// The raw context, for calls that this crate does not cover. It stays owned by the device.
    pub fn as_raw(&self) -> *mut sys::ibv_context {
        self.0.context.as_ptr()
    }

    fn check(&self, status: i32, what: impl FnOnce() -> String) -> Result<(), DeviceError> {
        if status == 0 {
            return Ok(());
        }
        // Some calls return the error number, others -1 and set errno.
        let source = match status {
            1.. => io::Error::from_raw_os_error(status),
            _ => io::Error::last_os_error(),
        };
        Err(DeviceError::Query {
            name: self.name().to_owned(),
            what: what(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_lanes_times_speed() {
        // SDR x1, QDR x4, EDR x4, HDR x2, NDR x4.
        let rates = [(1, 1), (2, 4), (2, 32), (16, 64), (2, 128)].map(|(w, s)| rate(w, s));
        assert_eq!(rates, [2_500, 40_000, 100_000, 100_000, 400_000]);
        assert_eq!(rate(0, 32), 0);
        assert_eq!(rate(2, 0), 0);
    }

    #[test]
    fn firmware_ends_at_its_nul() {
        let mut field = [0; 64];
        for (to, from) in field.iter_mut().zip(b"20.31.1014") {
            *to = from.cast_signed() as std::ffi::c_char;
        }
        assert_eq!(text(&field), "20.31.1014");
    }
}
