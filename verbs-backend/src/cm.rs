// UNSAFETY: calls into librdmacm, whose identifiers and events are pointers.
//! Connections made by the RDMA connection manager (`rdma_cm(7)`), for devices that have no other way (iWARP), and for
//! RoCE and InfiniBand too.
//!
//! ```text
//!   asks                                         is asked
//!   Manager::resolve ─▶ Resolved                 Manager::listen ─▶ Listener
//!   Link::route      ─▶ Routed
//!   Link::connect    ───────────────────────────▶ Request ─▶ Link::accept, or Link::reject
//!       Response ─▶ Link::finish   (InfiniBand, RoCE)            Established
//!       Established                (iWARP)
//! ```
//!
//! The queue pair is the caller's, made as any other and brought to INIT. On InfiniBand and RoCE [`Link::finish`] and
//! [`Link::accept`] bring it to RTS with what the manager has agreed; on iWARP the kernel does.
//!
//! # Invariants
//!
//! * Nothing waits: what takes time ends with an event, and [`Manager::take_event`] gives those that are there.
//! * An event is acknowledged before it is given out, so that dropping a [`Link`] never waits for one.
//! * A [`Link`] keeps its queue pair: the kernel's identifier is destroyed first, which disconnects.
//! * A request that is neither accepted nor rejected is rejected when its [`Link`] is dropped.

#![expect(unsafe_code, reason = "calls into librdmacm")]

mod addresses;

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use verbs_sys as sys;
use verbs_sys::Cma;

use crate::device::Device;
use crate::qp::{Qp, QpError, QpState};

pub use addresses::local_addresses;

/// Bytes that a request can carry on every kind of device: what InfiniBand's leaves of 92.
pub const PRIVATE: usize = 56;
/// Requests that may wait for their [`CmEvent::Request`] to be taken.
const BACKLOG: i32 = 128;
/// Ports tried, should the one given be in use by the host's TCP, which shares them with iWARP.
const PORTS: u32 = 32;

/// No connection by the manager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// librdmacm is not on this machine.
    #[error(
        "the RDMA connection manager is not installed: {0} (on Debian: apt-get install librdmacm1)"
    )]
    NotInstalled(String),
    /// The kernel has no connection manager for user programs.
    #[error(
        "no RDMA connection manager: is the kernel module rdma_ucm loaded, and /dev/infiniband/rdma_cm open to users?"
    )]
    NoManager(#[source] io::Error),
    /// The device has no IP address.
    #[error(
        "port {port} of RDMA device {device} has no IP address; give its network interface one"
    )]
    NoAddress {
        /// The device.
        device: String,
        /// Its port.
        port: u8,
    },
    /// The address is not the device's.
    #[error("{address} is no address of port {port} of RDMA device {device}")]
    NotHere {
        /// The address asked for.
        address: IpAddr,
        /// The device.
        device: String,
        /// Its port.
        port: u8,
    },
    /// The manager refused a step.
    #[error("the connection manager refused to {what}")]
    Step {
        /// The step.
        what: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// More private data than a request carries.
    #[error("{0} bytes of private data; at most {PRIVATE} fit")]
    Private(usize),
    /// The queue pair cannot be connected.
    #[error(transparent)]
    Qp(#[from] QpError),
}

/// Reads and atomics under way on a connection, in its two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    /// That the peer may have under way.
    pub target: u8,
    /// That this side may have.
    pub initiator: u8,
}

/// Names a [`Link`] in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKey(usize);

/// What the manager tells.
#[derive(Debug)]
#[non_exhaustive]
pub enum CmEvent {
    /// The address of [`Manager::resolve`] has a device; [`Link::route`] is next.
    Resolved(LinkKey),
    /// There is a way; [`Link::connect`] is next.
    Routed(LinkKey),
    /// Somebody asks to be connected.
    Request {
        /// The connection, to be accepted or rejected.
        link: Link,
        /// What came with the request, padded on some devices.
        private: Vec<u8>,
    },
    /// The peer has accepted; [`Link::finish`] is next.
    Response(LinkKey, Depths),
    /// The connection is there.
    Established(LinkKey),
    /// It will not come.
    Failed {
        /// Of which.
        key: LinkKey,
        /// What has failed.
        what: &'static str,
        /// The manager's number for the reason.
        status: i32,
    },
    /// The peer has ended it.
    Disconnected(LinkKey),
    /// The device is being taken away.
    DeviceGone(LinkKey),
    /// A code that matters to nobody here, or is not known.
    Other(u32),
}

fn last(what: &'static str) -> CmError {
    let source = io::Error::last_os_error();
    CmError::Step { what, source }
}

/// The answer of a call that gives 0, or -1 and `errno`.
fn done(status: i32, what: &'static str) -> Result<(), CmError> {
    match status {
        0 => Ok(()),
        _ => Err(last(what)),
    }
}

#[derive(Debug)]
struct Channel {
    lib: &'static Cma,
    raw: NonNull<sys::cma::rdma_event_channel>,
}

// SAFETY: librdmacm locks what it shares; a channel may be used from any thread (rdma_cm(7)).
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made by `Manager::new`; all identifiers made on it hold an `Arc` of `self`, so none is left.
        unsafe { (self.lib.rdma_destroy_event_channel)(self.raw.as_ptr()) }
    }
}

impl Channel {
    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives while `self` does, and never changes its descriptor.
        let fd = unsafe { (*self.raw.as_ptr()).fd };
        // SAFETY: open until the channel is destroyed, which the borrow of `self` prevents.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

/// A channel of the connection manager, on which all events of its connections come.
#[derive(Debug)]
pub struct Manager(Arc<Channel>);

impl Manager {
    /// Opens a channel.
    ///
    /// # Errors
    ///
    /// The library or the kernel's part is missing.
    pub fn new() -> Result<Self, CmError> {
        let lib = sys::cma().map_err(|e| CmError::NotInstalled(e.to_string()))?;
        // SAFETY: no precondition.
        let raw = unsafe { (lib.rdma_create_event_channel)() };
        let raw =
            NonNull::new(raw).ok_or_else(|| CmError::NoManager(io::Error::last_os_error()))?;
        let made = Self(Arc::new(Channel { lib, raw }));
        rustix::io::ioctl_fionbio(made.events_fd(), true)
            .map_err(|e| CmError::NoManager(e.into()))?;
        Ok(made)
    }

    /// The descriptor that becomes readable when there is an event, to be given to `poll(2)`.
    pub fn events_fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    fn id(&self) -> Result<Link, CmError> {
        let mut raw = std::ptr::null_mut();
        let (channel, context) = (self.0.raw.as_ptr(), std::ptr::null_mut());
        // SAFETY: the channel is live, and `raw` has room for the answer.
        let status = unsafe {
            (self.0.lib.rdma_create_id)(channel, &mut raw, context, sys::cma::RDMA_PS_TCP)
        };
        match NonNull::new(raw) {
            Some(raw) if status == 0 => Ok(Link::new(&self.0, raw)),
            _ => Err(last("make an identifier")),
        }
    }

    /// The address of a port of a device: `wanted` if that is one, or else the first of this machine's.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn address(
        &self,
        device: &Device,
        port: u8,
        wanted: Option<IpAddr>,
    ) -> Result<IpAddr, CmError> {
        let all = match wanted {
            Some(address) => vec![address],
            None => local_addresses(),
        };
        for address in all {
            let id = self.id()?;
            if id.bind(SocketAddr::new(address, 0)).is_ok() && id.is_on(device, port) {
                return Ok(address);
            }
        }
        let device = device.name().to_owned();
        Err(match wanted {
            Some(address) => CmError::NotHere {
                address,
                device,
                port,
            },
            None => CmError::NoAddress { device, port },
        })
    }

    /// Takes requests at `address`, at a port of the manager's choice.
    ///
    /// # Errors
    ///
    /// The address is not this machine's, or no port is free.
    pub fn listen(&self, address: IpAddr) -> Result<Listener, CmError> {
        let mut tries = 0;
        loop {
            let id = self.id()?;
            id.bind(SocketAddr::new(address, 0))?;
            tries += 1;
            // SAFETY: the identifier is live and bound.
            let status = unsafe { (self.0.lib.rdma_listen)(id.raw.as_ptr(), BACKLOG) };
            match done(status, "listen") {
                Ok(()) => {
                    // SAFETY: the identifier is live.
                    let port = unsafe { (self.0.lib.rdma_get_src_port)(id.raw.as_ptr()) };
                    return Ok(Listener {
                        port: u16::from_be(port),
                        _id: id,
                    });
                }
                Err(CmError::Step { source, .. })
                    if source.raw_os_error() == Some(libc::EADDRINUSE) && tries < PORTS => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Begins a connection from the own address `from` to a listener at `to`.
    ///
    /// # Errors
    ///
    /// The manager refuses.
    pub fn resolve(&self, from: IpAddr, to: SocketAddr, limit: Duration) -> Result<Link, CmError> {
        let id = self.id()?;
        let (mut from, mut to) = (Raw::of(SocketAddr::new(from, 0)), Raw::of(to));
        // SAFETY: the identifier is live; both addresses are complete, and read before the call returns.
        let status = unsafe {
            (self.0.lib.rdma_resolve_addr)(
                id.raw.as_ptr(),
                from.as_mut_ptr(),
                to.as_mut_ptr(),
                millis(limit),
            )
        };
        done(status, "resolve an address")?;
        Ok(id)
    }

    /// The next event, without waiting.
    ///
    /// # Errors
    ///
    /// The system call failed.
    pub fn take_event(&self) -> Result<Option<CmEvent>, CmError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the channel is live, and `raw` has room for the answer.
        let status = unsafe { (self.0.lib.rdma_get_cm_event)(self.0.raw.as_ptr(), &mut raw) };
        let Some(raw) = NonNull::new(raw).filter(|_| status == 0) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(CmError::Step {
                    what: "give an event",
                    source: error,
                }),
            };
        };
        // SAFETY: the library's event, which is there until it is acknowledged below.
        let event = unsafe { raw.as_ref() };
        let conn = event.conn;
        let length = usize::from(conn.private_data_len);
        let private = if event.event == sys::cma::RDMA_CM_EVENT_CONNECT_REQUEST
            && !conn.private_data.is_null()
        {
            // SAFETY: the event says that so many bytes are there, as long as it is.
            unsafe { std::slice::from_raw_parts(conn.private_data.cast::<u8>(), length) }.to_vec()
        } else {
            Vec::new()
        };
        let (code, status, id) = (event.event, event.status, event.id);
        // SAFETY: the event that was just taken, once; nothing refers to it below.
        unsafe { (self.0.lib.rdma_ack_cm_event)(raw.as_ptr()) };
        let key = LinkKey(id.addr());
        let depths = Depths {
            target: conn.responder_resources,
            initiator: conn.initiator_depth,
        };
        let failed = |what| CmEvent::Failed { key, what, status };
        Ok(Some(match code {
            sys::cma::RDMA_CM_EVENT_ADDR_RESOLVED => CmEvent::Resolved(key),
            sys::cma::RDMA_CM_EVENT_ROUTE_RESOLVED => CmEvent::Routed(key),
            sys::cma::RDMA_CM_EVENT_CONNECT_REQUEST => match NonNull::new(id) {
                Some(id) => {
                    let mut link = Link::new(&self.0, id);
                    link.offered = Some(depths);
                    CmEvent::Request { link, private }
                }
                None => CmEvent::Other(code),
            },
            sys::cma::RDMA_CM_EVENT_CONNECT_RESPONSE => CmEvent::Response(key, depths),
            sys::cma::RDMA_CM_EVENT_ESTABLISHED => CmEvent::Established(key),
            sys::cma::RDMA_CM_EVENT_ADDR_ERROR => failed("the address does not resolve"),
            sys::cma::RDMA_CM_EVENT_ROUTE_ERROR => failed("there is no route"),
            sys::cma::RDMA_CM_EVENT_CONNECT_ERROR => failed("connecting has failed"),
            sys::cma::RDMA_CM_EVENT_UNREACHABLE => failed("the peer does not answer"),
            sys::cma::RDMA_CM_EVENT_REJECTED => failed("the peer has rejected the request"),
            sys::cma::RDMA_CM_EVENT_DISCONNECTED => CmEvent::Disconnected(key),
            sys::cma::RDMA_CM_EVENT_DEVICE_REMOVAL => CmEvent::DeviceGone(key),
            other => CmEvent::Other(other),
        }))
    }
}

fn millis(limit: Duration) -> i32 {
    i32::try_from(limit.as_millis()).unwrap_or(i32::MAX)
}

/// An address as the C library has it.
enum Raw {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl Raw {
    fn of(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => Self::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }

    fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        match self {
            Self::V4(v4) => std::ptr::from_mut(v4).cast(),
            Self::V6(v6) => std::ptr::from_mut(v6).cast(),
        }
    }
}

/// Takes requests until it is dropped.
#[derive(Debug)]
pub struct Listener {
    port: u16,
    _id: Link,
}

impl Listener {
    /// The port at which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// One connection, or what is to become one.
#[derive(Debug)]
pub struct Link {
    raw: NonNull<sys::cma::rdma_cm_id>,
    channel: Arc<Channel>,
    offered: Option<Depths>,
    /// Dropped after the identifier is destroyed.
    qp: Option<Qp>,
}

// SAFETY: librdmacm locks what it shares; an identifier may be used from any thread.
unsafe impl Send for Link {}
// SAFETY: as above; all that changes is behind `&mut`.
unsafe impl Sync for Link {}

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: made by the library, and destroyed only here; all of its events are acknowledged.
        if unsafe { (self.channel.lib.rdma_destroy_id)(self.raw.as_ptr()) } != 0 {
            let error = io::Error::last_os_error();
            tracing::warn!(%error, "librdmacm did not destroy an identifier");
        }
    }
}

impl Link {
    fn new(channel: &Arc<Channel>, raw: NonNull<sys::cma::rdma_cm_id>) -> Self {
        Self {
            raw,
            channel: Arc::clone(channel),
            offered: None,
            qp: None,
        }
    }

    /// Its name in events.
    pub fn key(&self) -> LinkKey {
        LinkKey(self.raw.as_ptr().addr())
    }

    fn bind(&self, address: SocketAddr) -> Result<(), CmError> {
        let mut address = Raw::of(address);
        let bind = self.channel.lib.rdma_bind_addr;
        // SAFETY: the identifier is live; the address is complete, and read before the call returns.
        let status = unsafe { bind(self.raw.as_ptr(), address.as_mut_ptr()) };
        done(status, "bind an address")
    }

    /// Whether it goes through this port of this device.
    pub fn is_on(&self, device: &Device, port: u8) -> bool {
        // SAFETY: the library's identifier, live while `self` is; nothing changes it meanwhile but calls of this crate.
        let id = unsafe { self.raw.as_ref() };
        // There is a device once it is bound.
        let (verbs, number) = (id.verbs, id.port_num);
        if verbs.is_null() || (number != 0 && number != port) {
            return false;
        }
        // SAFETY: the library keeps the device open while an identifier is bound to it.
        let entry = unsafe { (*verbs).device };
        // SAFETY: as above.
        let name = unsafe { (device.0.verbs.ibv_get_device_name)(entry) };
        if name.is_null() {
            return false;
        }
        // SAFETY: a NUL-terminated string inside the device.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_bytes() == device.name().as_bytes()
    }

    /// Looks for the way to the address.
    ///
    /// # Errors
    ///
    /// The manager refuses.
    pub fn route(&self, limit: Duration) -> Result<(), CmError> {
        let route = self.channel.lib.rdma_resolve_route;
        // SAFETY: the identifier is live.
        done(
            unsafe { route(self.raw.as_ptr(), millis(limit)) },
            "find a route",
        )
    }

    /// Asks for the connection with a queue pair in the state INIT; `private` comes with the request.
    ///
    /// # Errors
    ///
    /// Too much private data, or the manager refuses.
    pub fn connect(&mut self, qp: &Qp, private: &[u8]) -> Result<(), CmError> {
        let mut param = param(qp, qp.depths(), private)?;
        self.qp = Some(qp.clone());
        let connect = self.channel.lib.rdma_connect;
        // SAFETY: the identifier is live; `param` names `private`, and both are read before the call returns.
        done(unsafe { connect(self.raw.as_ptr(), &mut param) }, "connect")
    }

    /// Accepts a request with a queue pair in the state INIT, which is ready to send when the connection is there.
    ///
    /// # Errors
    ///
    /// The queue pair or the manager refuses.
    pub fn accept(&mut self, qp: &Qp) -> Result<(), CmError> {
        let own = qp.depths();
        let depths = self.offered.map_or(own, |offered| Depths {
            target: own.target.min(offered.target),
            initiator: own.initiator.min(offered.initiator),
        });
        self.qp = Some(qp.clone());
        self.ready(qp, depths)?;
        let mut param = param(qp, depths, &[])?;
        let accept = self.channel.lib.rdma_accept;
        // SAFETY: the identifier is live; `param` is read before the call returns.
        done(unsafe { accept(self.raw.as_ptr(), &mut param) }, "accept")
    }

    /// Refuses a request.
    pub fn reject(self) {
        let reject = self.channel.lib.rdma_reject;
        // SAFETY: the identifier is live; there is no private data.
        let status = unsafe { reject(self.raw.as_ptr(), std::ptr::null(), 0) };
        if let Err(error) = done(status, "reject") {
            tracing::debug!(%error, "a request is dropped");
        }
    }

    /// The peer has accepted: makes the queue pair ready, and tells the peer.
    ///
    /// # Errors
    ///
    /// The queue pair or the manager refuses.
    pub fn finish(&self, depths: Depths) -> Result<(), CmError> {
        let Some(qp) = &self.qp else { return Ok(()) };
        let own = qp.depths();
        let depths = Depths {
            target: own.target.min(depths.target),
            initiator: own.initiator.min(depths.initiator),
        };
        self.ready(qp, depths)?;
        let establish = self.channel.lib.rdma_establish;
        // SAFETY: the identifier is live.
        done(unsafe { establish(self.raw.as_ptr()) }, "finish")
    }

    /// INIT to RTS with what the manager has agreed; on iWARP the kernel does it.
    fn ready(&self, qp: &Qp, depths: Depths) -> Result<(), CmError> {
        if qp.is_iwarp() {
            return Ok(());
        }
        for to in [QpState::RTR, QpState::RTS] {
            let mut attr = sys::ibv_qp_attr {
                qp_state: to.0,
                ..Default::default()
            };
            let mut mask = 0;
            let init = self.channel.lib.rdma_init_qp_attr;
            // SAFETY: the identifier is live, and both have room for the answer.
            let status = unsafe { init(self.raw.as_ptr(), &mut attr, &mut mask) };
            done(status, "tell what was agreed")?;
            qp.step(&mut attr, mask.cast_unsigned(), depths, to)?;
        }
        Ok(())
    }
}

fn param(qp: &Qp, depths: Depths, private: &[u8]) -> Result<sys::cma::rdma_conn_param, CmError> {
    let too_long = || CmError::Private(private.len());
    let len = u8::try_from(private.len()).map_err(|_| too_long())?;
    if private.len() > PRIVATE {
        return Err(too_long());
    }
    let (retry_count, rnr_retry) = qp.retries();
    Ok(sys::cma::rdma_conn_param {
        private_data: private.as_ptr().cast(),
        private_data_len: len,
        responder_resources: depths.target,
        initiator_depth: depths.initiator,
        flow_control: 0,
        retry_count,
        rnr_retry_count: rnr_retry,
        srq: u8::from(qp.has_srq()),
        qp_num: qp.qpn(),
    })
}
