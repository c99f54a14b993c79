// UNSAFETY: entries get objects and room for results of a C caller by pointers.
#![expect(
    unsafe_code,
    reason = "entries get objects and room for results by pointers"
)]
//! Endpoints: what they are bound to, and when they are used.

use crate::abi::{Fid, cap, class, control, errno};
use crate::av::{AddressVector, Peers};
use crate::cntr::{Accesses, CompletionCounter, Counting};
use crate::cq::CompletionQueue;
use crate::domain::{Domain, Shared};
use crate::eq::EventQueue;
use crate::info::{RX_FLAGS, TX_FLAGS};
use crate::object::{self, Object, object, object_if};
use crate::options::{self, Options};
use crate::progress::Users;
use crate::ptr::{Outcome, borrow, entry, entry_int, write_bytes};
use crate::table::Table;
use ofi_engine::completion::{Level, Op, Queue, Reports, ReportsId, flags};
use ofi_engine::names::{Name, NameError, Published};
use ofi_engine::{Endpoint, OpenError, ProcessId, Refused};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Where completions of one direction go.
#[derive(Clone, Debug, Default)]
struct Direction {
    queue: Option<Arc<Queue>>,
    users: Option<Arc<Users>>,
    /// Only operations that ask for it have a completion.
    selective: bool,
}

/// Counters of one kind of operation.
type Count = Option<Counting>;

#[derive(Clone, Debug, Default)]
struct Bindings {
    peers: Option<Arc<Peers>>,
    tx: Direction,
    rx: Direction,
    send: Count,
    recv: Count,
    read: Count,
    write: Count,
    accesses: Accesses,
    /// By [`Which`]; once the endpoint is used.
    reports: [Option<ReportsId>; 4],
}

impl Bindings {
    /// A counter is bound with these flags.
    fn count(&mut self, counting: &Counting, flags: u64) {
        self.accesses.bind(flags, counting);
        let own = [
            (cap::SEND, &mut self.send),
            (cap::RECV, &mut self.recv),
            (cap::READ, &mut self.read),
            (cap::WRITE, &mut self.write),
        ];
        counting.bind(flags, own);
    }

    /// Tells an endpoint whom its operations tell of their ends.
    fn gather(&mut self, endpoint: &Endpoint) {
        let reports = |direction: &Direction, count: &Count, peers: Option<&Arc<Peers>>| {
            Some(endpoint.report_to(Reports {
                queue: direction.queue.clone(),
                counter: count.as_ref().map(|c| Arc::clone(&c.counter)),
                addresses: peers.map(|peers| Arc::clone(&peers.addresses)),
            }))
        };
        self.reports = [
            reports(&self.tx, &self.send, None),
            reports(&self.rx, &self.recv, self.peers.as_ref()),
            reports(&self.tx, &self.read, None),
            reports(&self.tx, &self.write, None),
        ];
    }
}

/// How often a counter may be bound to an endpoint that is used already.
const LATER: usize = 16;

/// What an endpoint is bound to, once it is used. A counter that is bound later makes it another value: calls that have begun keep the one
/// before, and none needs a lock.
#[derive(Debug, Default)]
struct Bound {
    values: [OnceLock<Bindings>; LATER + 1],
    /// How many there are.
    count: AtomicUsize,
}

impl Bound {
    #[inline]
    fn get(&self) -> Option<&Bindings> {
        let latest = self.count.load(Ordering::Acquire).checked_sub(1)?;
        self.values.get(latest)?.get()
    }

    /// Whether no other value can be set.
    fn is_full(&self) -> bool {
        self.count.load(Ordering::Relaxed) == self.values.len()
    }

    /// Who calls it has the lock of the endpoint's bindings.
    fn set(&self, bindings: Bindings) -> Outcome<()> {
        let count = self.count.load(Ordering::Relaxed);
        let place = self.values.get(count).ok_or(errno::NOMEM)?;
        place.set(bindings).map_err(|_| errno::OPBADSTATE)?;
        self.count.store(count + 1, Ordering::Release);
        Ok(())
    }
}

/// What an operation is, for where its end is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Send,
    Receive,
    Read,
    Write,
}

/// Which receives say whose message they take.
#[derive(Clone, Copy, Debug)]
struct Directed {
    tagged: bool,
    untagged: bool,
    /// None of them takes everybody's.
    exact: bool,
}

impl Directed {
    const fn of(caps: u64) -> Self {
        let (all, tagged) = (cap::DIRECTED_RECV, cap::TAGGED_DIRECTED_RECV);
        let exact = caps & cap::EXACT_DIRECTED_RECV != 0;
        // Alone it is for all receives, beside another capability for those of that.
        let alone = exact && caps & (all | tagged) == 0;
        Self {
            tagged: alone || caps & (all | tagged) != 0,
            untagged: alone || caps & all != 0,
            exact,
        }
    }
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct EndpointFid {
    fid: Fid,
    ops: *const c_void,
    cm: *const c_void,
    msg: *const c_void,
    rma: *const c_void,
    tagged: *const c_void,
    atomic: *const c_void,
    collective: *const c_void,
    pub(crate) endpoint: Arc<Endpoint>,
    domain: Arc<Shared>,
    bindings: Mutex<Bindings>,
    bound: Bound,
    /// Flags of operations that have none of their own.
    pub(crate) tx_flags: AtomicU64,
    pub(crate) rx_flags: AtomicU64,
    directed: Directed,
    pub(crate) options: Options,
    /// What it is named for others of this machine, from when it is used.
    name: Option<Name>,
    published: Mutex<Option<Published>>,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for EndpointFid {
    const CLASS: usize = class::EP;
    const OPS: &'static Table<6> = &Table::new(&[
        (0, object::close::<Self> as *const c_void),
        (1, bind as *const c_void),
        (2, do_control as *const c_void),
    ]);

    fn end(&self) -> Outcome<()> {
        drop(lock(&self.published).take());
        Users::settle(&self.endpoint);
        clock_offer::closed(self.endpoint.interface());
        self.endpoint.close();
        Users::end(&self.endpoint);
        Ok(())
    }
}

static EP: Table<8> = Table::new(&[
    (0, cancel as *const c_void),
    (1, options::getopt as *const c_void),
    (2, options::setopt as *const c_void),
    (5, size_left as *const c_void),
    (6, size_left as *const c_void),
]);
static CM: Table<9> = Table::new(&[(1, getname as *const c_void)]);
static NONE: Table<16> = Table::new(&[]);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tables of operations that have a file of their own.
#[derive(Debug)]
pub(crate) struct Operations {
    pub(crate) msg: *const c_void,
    pub(crate) rma: *const c_void,
    pub(crate) tagged: *const c_void,
    pub(crate) atomic: *const c_void,
}

impl EndpointFid {
    /// An endpoint of a domain. Of what the program asks for it needs the capabilities, the flags that operations have
    /// without flags of their own, and the name that it has from when it is enabled.
    pub(crate) fn new(
        fid: Fid,
        domain: &Domain,
        operations: &Operations,
        caps: u64,
        (tx, rx): (u64, u64),
        name: Option<Name>,
    ) -> Outcome<Self> {
        let endpoint = Endpoint::open(&domain.shared.config).map_err(|why| {
            tracing::warn!(%why, "fi_endpoint");
            match why {
                OpenError::Room(_) => errno::NOMEM,
                OpenError::Fabric(_) => errno::NODATA,
            }
        })?;
        clock_offer::opened(endpoint.interface());
        Ok(Self {
            fid,
            ops: EP.as_ptr(),
            cm: CM.as_ptr(),
            msg: operations.msg,
            rma: operations.rma,
            tagged: operations.tagged,
            atomic: operations.atomic,
            collective: NONE.as_ptr(),
            endpoint: Arc::new(endpoint),
            domain: Arc::clone(&domain.shared),
            bindings: Mutex::default(),
            bound: Bound::default(),
            tx_flags: AtomicU64::new(tx),
            rx_flags: AtomicU64::new(rx),
            directed: Directed::of(caps),
            options: Options::default(),
            name,
            published: Mutex::default(),
        })
    }

    fn bound(&self) -> Outcome<&Bindings> {
        self.bound.get().ok_or(errno::OPBADSTATE)
    }

    /// The process that a number of the address vector means.
    pub(crate) fn process(&self, number: u64) -> Outcome<ProcessId> {
        let peers = self.bound()?.peers.as_ref().ok_or(errno::NOAV)?;
        peers.addresses.process(number).ok_or(errno::ADDRNOTAVAIL)
    }

    /// Whose messages a receive takes, with a tag or without.
    pub(crate) fn source(&self, number: u64, tagged: bool) -> Outcome<Option<ProcessId>> {
        let directed = match tagged {
            true => self.directed.tagged,
            false => self.directed.untagged,
        };
        match number {
            _ if !directed => Ok(None),
            crate::abi::ADDR_UNSPEC if self.directed.exact => Err(errno::INVAL),
            crate::abi::ADDR_UNSPEC => Ok(None),
            number => self.process(number).map(Some),
        }
    }

    /// Whom an operation tells of its end; `flags` are those of the call, `kind` those of the completion. An operation
    /// without a context of the program's, `None`, has no completion.
    pub(crate) fn op(
        &self,
        which: Which,
        context: Option<*mut c_void>,
        flags: u64,
        kind: u64,
    ) -> Outcome<Op> {
        let bound = self.bound()?;
        let direction = match which {
            Which::Send | Which::Read | Which::Write => &bound.tx,
            Which::Receive => &bound.rx,
        };
        let asked = !direction.selective || flags & cap::COMPLETION != 0;
        let has = |level: u64| flags & level != 0;
        let level = if has(cap::MATCH_COMPLETE) {
            Level::Matched
        } else if has(cap::DELIVERY_COMPLETE | cap::COMMIT_COMPLETE) {
            Level::Delivered
        } else if has(cap::TRANSMIT_COMPLETE) {
            Level::Transmitted
        } else {
            Level::Injected
        };
        Ok(Op {
            context: context.map_or(0, |p| p.expose_provenance()),
            flags: kind,
            told: asked && context.is_some(),
            level,
            reports: bound.reports[which as usize],
        })
    }

    /// Binds a counter to an endpoint that is used: operations count from now on, as Sandia OpenSHMEM does it.
    fn bind_later(&self, bindings: &mut Bindings, counting: &Counting, flags: u64) -> Outcome {
        if self.bound.is_full() {
            return Err(errno::NOMEM);
        }
        let mut later = bindings.clone();
        later.count(counting, flags);
        later.gather(&self.endpoint);
        counting.serve(&self.endpoint);
        if flags & (cap::REMOTE_READ | cap::REMOTE_WRITE) != 0 {
            let counted = later.accesses.count(&self.endpoint, None);
            counted.map_err(|why| refused(&why))?;
        }
        self.bound.set(later.clone())?;
        *bindings = later;
        Ok(0)
    }

    /// Others find the endpoint by its name from now on, if it has one.
    fn publish(&self) -> Outcome<()> {
        let mut published = lock(&self.published);
        let Some(name) = self.name.filter(|_| published.is_none()) else {
            return Ok(());
        };
        let given = name.publish(self.endpoint.address()).map_err(|why| {
            tracing::warn!(%why, "fi_enable");
            match why {
                NameError::Taken { .. } => errno::ADDRINUSE,
                _ => errno::ADDRNOTAVAIL,
            }
        })?;
        *published = Some(given);
        Ok(())
    }

    fn enable(&self) -> Outcome {
        let chosen = lock(&self.bindings);
        if self.bound.get().is_some() {
            return Ok(0);
        }
        let mut bindings = chosen.clone();
        let peers = bindings.peers.as_ref().ok_or(errno::NOAV)?;
        if bindings.tx.queue.is_none()
            && bindings.rx.queue.is_none()
            && bindings.write.is_none()
            && bindings.send.is_none()
            && bindings.recv.is_none()
            && bindings.read.is_none()
            && bindings.accesses.is_empty()
        {
            return Err(errno::NOCQ);
        }
        self.publish()?;
        peers.bind(&self.endpoint);
        Users::begin(&self.endpoint);
        let counts = [
            &bindings.send,
            &bindings.recv,
            &bindings.read,
            &bindings.write,
        ];
        let of_counts = counts.into_iter().flatten();
        of_counts.for_each(|counting| counting.serve(&self.endpoint));
        let of_queues = [&bindings.tx.users, &bindings.rx.users]
            .into_iter()
            .flatten();
        of_queues.for_each(|users| users.add(&self.endpoint));
        let queues = [&bindings.tx.queue, &bindings.rx.queue];
        let of_queues = queues.into_iter().flatten().map(|q| q.wait_object());
        of_queues.for_each(|object| self.endpoint.serve(object));
        bindings
            .accesses
            .count(&self.endpoint, None)
            .map_err(|why| refused(&why))?;
        self.domain
            .add(&self.endpoint)
            .map_err(|why| refused(&why))?;
        if bindings.rx.queue.is_some() {
            let reports = self.endpoint.report_to(Reports {
                queue: bindings.rx.queue.clone(),
                // What peers do is counted where it is done.
                counter: None,
                addresses: Some(Arc::clone(&peers.addresses)),
            });
            self.endpoint.tell_writes(Op {
                context: 0,
                flags: flags::RMA | flags::REMOTE_WRITE,
                told: true,
                reports: Some(reports),
                ..Op::default()
            });
        }
        bindings.gather(&self.endpoint);
        self.bound.set(bindings)?;
        drop(chosen);
        if self.domain.automatic
            && let Err(error) = self.endpoint.watch_always()
        {
            tracing::warn!(%error, "no thread for automatic progress");
            return Err(errno::NOMEM);
        }
        Ok(0)
    }
}

/// What libfabric calls the reason why an operation cannot be taken.
pub(crate) fn refused(why: &Refused) -> i32 {
    match why {
        Refused::Again => errno::AGAIN,
        Refused::NoPeer => errno::ADDRNOTAVAIL,
        Refused::NoMessage => errno::NOMSG,
        Refused::Invalid => errno::INVAL,
        Refused::InUse => errno::BUSY,
        Refused::Portals(error) => {
            tracing::warn!(%error, "an operation is refused");
            errno::IO
        }
    }
}

/// Whether a completion queue may be bound with these flags: to a direction, or both, that has none yet.
fn queued(bindings: &Bindings, flags: u64) -> Outcome<()> {
    let both = cap::SEND | cap::RECV;
    if flags & both == 0 || flags & !(both | cap::SELECTIVE_COMPLETION) != 0 {
        return Err(errno::BADFLAGS);
    }
    let has = |direction: &Direction, flag| flags & flag != 0 && direction.queue.is_some();
    match has(&bindings.tx, cap::SEND) || has(&bindings.rx, cap::RECV) {
        true => Err(errno::INVAL),
        false => Ok(()),
    }
}

/// Whether a counter may be bound with these flags: it counts something, and all that they say.
fn counted(flags: u64) -> Outcome<()> {
    let own = cap::SEND | cap::RECV | cap::READ | cap::WRITE;
    let all = own | cap::REMOTE_READ | cap::REMOTE_WRITE;
    match flags & all == 0 || flags & !all != 0 {
        true => Err(errno::BADFLAGS),
        false => Ok(()),
    }
}

unsafe extern "C" fn bind(fid: *mut c_void, other: *mut c_void, flags: u64) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the endpoint.
        let ep = unsafe { object::<EndpointFid>(fid) }?;
        let mut bindings = lock(&ep.bindings);
        let bindings = &mut *bindings;
        // SAFETY: the caller was given the object.
        let cntr = unsafe { object_if::<CompletionCounter>(other) }?;
        if ep.bound.get().is_some() {
            let counting = &cntr.ok_or(errno::OPBADSTATE)?.counting;
            counted(flags)?;
            return ep.bind_later(bindings, counting, flags);
        }
        // SAFETY: the caller was given the object.
        if let Some(cq) = unsafe { object_if::<CompletionQueue>(other) }? {
            let direction = Direction {
                queue: Some(Arc::clone(&cq.queue)),
                users: Some(Arc::clone(&cq.users)),
                selective: flags & cap::SELECTIVE_COMPLETION != 0,
            };
            queued(bindings, flags)?;
            if flags & cap::SEND != 0 {
                bindings.tx = direction.clone();
            }
            if flags & cap::RECV != 0 {
                bindings.rx = direction;
            }
            return Ok(0);
        }
        // SAFETY: the caller was given the object.
        if let Some(av) = unsafe { object_if::<AddressVector>(other) }? {
            if bindings.peers.is_some() {
                return Err(errno::INVAL);
            }
            bindings.peers = Some(Arc::clone(&av.peers));
            return Ok(0);
        }
        if let Some(cntr) = cntr {
            counted(flags)?;
            bindings.count(&cntr.counting, flags);
            return Ok(0);
        }
        // SAFETY: the caller was given the object, to which nothing is said.
        unsafe { object::<EventQueue>(other) }?;
        Ok(0)
    })
}

unsafe extern "C" fn do_control(fid: *mut c_void, command: c_int, arg: *mut c_void) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the endpoint.
        let ep = unsafe { object::<EndpointFid>(fid) }?;
        match command {
            control::ENABLE => ep.enable(),
            control::GET_OPS_FLAG | control::SET_OPS_FLAG => {
                // SAFETY: the flags that are meant are there, and those that are are wanted there.
                let flags = unsafe { borrow(arg.cast::<u64>()) }.ok_or(errno::INVAL)?;
                let (place, known) = match *flags & (cap::SEND | cap::RECV) {
                    cap::SEND => (&ep.tx_flags, TX_FLAGS),
                    cap::RECV => (&ep.rx_flags, RX_FLAGS),
                    _ => return Err(errno::INVAL),
                };
                let others = *flags & !(cap::SEND | cap::RECV);
                match command {
                    control::GET_OPS_FLAG => *flags = place.load(Ordering::Relaxed),
                    _ if others & !known != 0 => return Err(errno::BADFLAGS),
                    _ => place.store(others, Ordering::Relaxed),
                }
                Ok(0)
            }
            _ => Err(errno::NOSYS),
        }
    })
}

unsafe extern "C" fn cancel(fid: *mut c_void, context: *mut c_void) -> isize {
    entry(|| {
        // SAFETY: the caller was given the endpoint.
        let ep = unsafe { object::<EndpointFid>(fid) }?;
        // Only receives can be taken back; one that has its message has ended.
        ep.endpoint.cancel(context.expose_provenance());
        Ok(0)
    })
}

unsafe extern "C" fn size_left(ep: *mut c_void) -> isize {
    // SAFETY: the caller was given the endpoint.
    entry(|| unsafe { object::<EndpointFid>(ep) }.map(|_| 1024))
}

unsafe extern "C" fn getname(fid: *mut c_void, out: *mut c_void, len: *mut usize) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the endpoint.
        let ep = unsafe { object::<EndpointFid>(fid) }?;
        // SAFETY: the caller says there how much room it has, and reads how much is needed.
        let len = unsafe { borrow(len) }.ok_or(errno::INVAL)?;
        let own = &ep.endpoint.address()[..ep.domain.address_len()];
        let room = std::mem::replace(len, own.len());
        if room < own.len() {
            return Err(errno::TOOSMALL);
        }
        // SAFETY: there is so much room.
        unsafe { write_bytes(out, own) }?;
        Ok(0)
    })
}
