// UNSAFETY: descriptions are C structures that point at each other.
#![expect(
    unsafe_code,
    reason = "reads and fills descriptions that C callers have by pointers"
)]
//! What this provider can do, and whether that is what a program asks for (`fi_getinfo`).

use crate::abi::{self, Info, cap, errno, order};
use crate::loader;
use crate::names::{Asked, Ends, unopened};
use crate::ptr::{Out, Outcome, borrow, entry_int, string};
use ofi_engine::EAGER;
use portals_shim::endpoint::Address;
use portals_shim::fabric::{self, FabricChoice, FabricConfig, FabricKind};
use std::ffi::{CString, c_char, c_int};

/// Everything that an endpoint can do, by names that libfabric 1 has.
const CAPS: u64 = cap::MSG
    | cap::RMA
    | cap::ATOMIC
    | cap::TAGGED
    | cap::READ
    | cap::WRITE
    | cap::RECV
    | cap::SEND
    | cap::REMOTE_READ
    | cap::REMOTE_WRITE
    | cap::MULTI_RECV
    | cap::LOCAL_COMM
    | cap::REMOTE_COMM
    | cap::SOURCE
    | cap::RMA_EVENT
    | cap::DIRECTED_RECV;
/// The same by names of libfabric 2.
const CAPS_2: u64 = CAPS | RECEIVES_2;
/// Kinds of receives that libfabric 2 has names for.
const RECEIVES_2: u64 =
    cap::TAGGED_DIRECTED_RECV | cap::TAGGED_MULTI_RECV | cap::EXACT_DIRECTED_RECV;
/// What a domain can do: its peers may be on the same machine and on others.
const DOMAIN_CAPS: u64 = cap::LOCAL_COMM | cap::REMOTE_COMM;
/// What operations that send, read or write may have for flags without flags of their own.
pub(crate) const TX_FLAGS: u64 = cap::COMPLETION
    | cap::INJECT
    | cap::INJECT_COMPLETE
    | cap::TRANSMIT_COMPLETE
    | cap::DELIVERY_COMPLETE
    | cap::MATCH_COMPLETE;
/// The same of receives.
pub(crate) const RX_FLAGS: u64 = cap::COMPLETION
    | cap::MULTI_RECV
    | cap::INJECT_COMPLETE
    | cap::TRANSMIT_COMPLETE
    | cap::DELIVERY_COMPLETE;
const ORDER: u64 =
    order::SAS | order::SAW | order::WAS | order::WAW | order::RMA_WAW | order::ATOMIC;
/// The longest message.
pub(crate) const MOST: usize = 1 << 31;
/// Bytes that are copied at once (`FI_INJECT`).
pub(crate) const INJECT: usize = EAGER;
/// Of this provider's own kind: the highest bit says so.
const PROTOCOL: u32 = 1 << 31 | 0x7033;
const PROTOCOL_VERSION: u32 = 1;
/// Pieces of a peer's memory of one operation.
const RMA_PIECES: usize = 1;

/// Of this provider, as libfabric counts: 0.1.
pub(crate) const VERSION: u32 = 1;

/// How much of something is offered: to whoever does not ask, and at most.
#[derive(Clone, Copy)]
struct Limit {
    usual: usize,
    most: usize,
}

impl Limit {
    /// Pieces of memory of one operation or region.
    const PIECES: Self = Self {
        usual: 8,
        most: ofi_engine::memory::MOST_PIECES,
    };
    /// Operations of one endpoint under way.
    const OPERATIONS: Self = Self {
        usual: 1024,
        most: 1 << 16,
    };
    /// Regions of memory.
    const REGIONS: Self = Self {
        usual: 1 << 16,
        most: 1 << 16,
    };
    /// Counters, of which there are as many as find memory.
    const COUNTERS: Self = Self {
        usual: 1024,
        most: usize::MAX,
    };

    /// What is offered to whoever asks for so much.
    fn offer(self, asked: usize) -> Outcome<usize> {
        match asked > self.most {
            true => Err(no("more operations, pieces or regions than there may be")),
            false => Ok(asked.max(self.usual)),
        }
    }
}

/// Sizes that a program may ask for.
struct Sizes {
    tx_pieces: usize,
    rx_pieces: usize,
    mr_pieces: usize,
    tx: usize,
    rx: usize,
    regions: usize,
    counters: usize,
}

impl Sizes {
    /// What whoever does not ask is offered.
    const USUAL: Self = Self {
        tx_pieces: Limit::PIECES.usual,
        rx_pieces: Limit::PIECES.usual,
        mr_pieces: Limit::PIECES.usual,
        tx: Limit::OPERATIONS.usual,
        rx: Limit::OPERATIONS.usual,
        regions: Limit::REGIONS.usual,
        counters: Limit::COUNTERS.usual,
    };
}

/// What a program wants, as far as it matters.
struct Wanted {
    caps: u64,
    tx_flags: u64,
    rx_flags: u64,
    threading: c_int,
    /// Of control and of data.
    progress: [c_int; 2],
    av_type: c_int,
    mr_mode: c_int,
    kind: Option<FabricKind>,
    sizes: Sizes,
    ends: Ends,
    /// Whatever there is; who names what it needs would take several domains for several adapters.
    all: bool,
}

/// What a program of this version of the interface reads where memory is reached by offsets and by its own keys.
const fn unnamed_mr_mode(version: u32) -> c_int {
    // Modes are bits since 1.5, and none is needed here.
    if version < (1 << 16 | 5) {
        abi::MR_SCALABLE
    } else {
        0
    }
}

/// Everything that an endpoint can do, by the names of this version of the interface.
const fn caps_of(version: u32) -> u64 {
    if version < 2 << 16 { CAPS } else { CAPS_2 }
}

/// Whether an endpoint can do all that, by the names of any version.
pub(crate) const fn can(caps: u64) -> bool {
    caps & !CAPS_2 == 0
}

/// Bytes of data that travel beside what an endpoint with these capabilities sends: a tag takes the place of half of them.
const fn data_size(caps: u64) -> usize {
    if caps & cap::TAGGED == 0 { 8 } else { 4 }
}

/// Why a program is not offered anything.
pub(crate) fn no(why: &str) -> i32 {
    tracing::debug!(why, "fi_getinfo");
    errno::NODATA
}

/// # Safety
/// `hints` is null or a description, as `fi_getinfo` takes it.
unsafe fn wanted(version: u32, hints: *const Info) -> Outcome<Wanted> {
    let all = caps_of(version);
    let mut wanted = Wanted {
        // Who does not ask for it may receive from everybody.
        caps: all & !cap::EXACT_DIRECTED_RECV,
        tx_flags: 0,
        rx_flags: 0,
        threading: abi::THREAD_SAFE,
        progress: [abi::PROGRESS_MANUAL; 2],
        av_type: abi::AV_UNSPEC,
        mr_mode: unnamed_mr_mode(version),
        kind: None,
        sizes: Sizes::USUAL,
        ends: Ends::default(),
        all: true,
    };
    // SAFETY: the condition above; it is only read.
    let Some(hints) = (unsafe { borrow(hints.cast_mut()) }) else {
        return Ok(wanted);
    };
    if hints.addr_format != abi::FORMAT_UNSPEC {
        return Err(no("its addresses have a format of their own"));
    }
    if hints.caps & !all != 0 {
        return Err(no("capabilities that it has not"));
    }
    if hints.caps != 0 {
        wanted.all = false;
        wanted.caps = hints.caps | cap::LOCAL_COMM | cap::REMOTE_COMM;
    }
    // SAFETY: a description points at its parts, or at none.
    if let Some(ep) = unsafe { borrow(hints.ep_attr) } {
        if ep.kind != abi::EP_UNSPEC && ep.kind != abi::EP_RDM {
            return Err(no("endpoints are reliable datagrams"));
        }
        wanted.all &= ep.kind == abi::EP_UNSPEC;
        if ep.max_msg_size > MOST {
            return Err(no("messages of more than 2 GiB"));
        }
        if (ep.protocol != 0 && ep.protocol != PROTOCOL) || ep.protocol_version > PROTOCOL_VERSION {
            return Err(no("another protocol"));
        }
        if ep.tx_ctx_cnt > 1 || ep.rx_ctx_cnt > 1 {
            return Err(no("several contexts of an endpoint"));
        }
        let unordered = ep.max_order_raw_size.max(ep.max_order_war_size);
        let ordered = hints.caps & (cap::RMA | cap::ATOMIC) != 0;
        if ordered && (unordered > 0 || ep.max_order_waw_size > MOST) {
            return Err(no("accesses in an order that it does not keep"));
        }
        if ep.auth_key_size > 0 {
            return Err(no("endpoints have no keys for authentication"));
        }
    }
    // SAFETY: as above.
    if let Some(tx) = unsafe { borrow(hints.tx_attr) } {
        if tx.msg_order & !ORDER != 0 {
            return Err(no("an order of messages that it does not keep"));
        }
        if tx.inject_size > INJECT || tx.rma_iov_limit > RMA_PIECES {
            return Err(no("more bytes at once, or more pieces, than it takes"));
        }
        if tx.comp_order != 0 {
            return Err(no("an order of completions that it does not keep"));
        }
        if tx.op_flags & !TX_FLAGS != 0 || tx.caps & !all != 0 {
            return Err(no("operations of other kinds than it makes"));
        }
        wanted.tx_flags = tx.op_flags;
        wanted.sizes.tx_pieces = Limit::PIECES.offer(tx.iov_limit)?;
        wanted.sizes.tx = Limit::OPERATIONS.offer(tx.size)?;
    }
    // SAFETY: as above.
    if let Some(rx) = unsafe { borrow(hints.rx_attr) } {
        if rx.msg_order & !ORDER != 0 {
            return Err(no("an order of messages that it does not keep"));
        }
        if rx.comp_order != 0 {
            return Err(no("an order of completions that it does not keep"));
        }
        if rx.op_flags & !RX_FLAGS != 0 || rx.caps & !all != 0 {
            return Err(no("receives of other kinds than it makes"));
        }
        if rx.total_buffered_recv > 0 {
            return Err(no("room for messages that nobody asks for is not reserved"));
        }
        wanted.rx_flags = rx.op_flags;
        wanted.sizes.rx_pieces = Limit::PIECES.offer(rx.iov_limit)?;
        wanted.sizes.rx = Limit::OPERATIONS.offer(rx.size)?;
    }
    // SAFETY: as above.
    if let Some(domain) = unsafe { borrow(hints.domain_attr) } {
        if domain.mr_mode == abi::MR_BASIC
            && wanted.caps & (cap::RMA | cap::ATOMIC) != 0
            && hints.caps != 0
        {
            return Err(no("memory is reached by offsets and by the program's keys"));
        }
        let old = abi::MR_BASIC | abi::MR_SCALABLE;
        if domain.mr_mode & old != 0 && domain.mr_mode & !old != 0 {
            return Err(no("a mode of libfabric 1.4 beside those that replace it"));
        }
        if domain.mr_mode & abi::MR_SCALABLE != 0 {
            wanted.mr_mode = abi::MR_SCALABLE;
        }
        if domain.caps & !DOMAIN_CAPS != 0 {
            return Err(no("capabilities of a domain that it has not"));
        }
        if domain.cq_data_size > data_size(wanted.caps) {
            return Err(no(
                "8 bytes of data travel beside a message, 4 beside a tag",
            ));
        }
        if domain.mr_key_size > 8 {
            return Err(no("keys have 8 bytes"));
        }
        if domain.auth_key_size > 0 {
            return Err(no("domains have no keys for authentication"));
        }
        if domain.max_err_data > 0 {
            return Err(no("failures say no more than their cause"));
        }
        let chosen = [
            (domain.threading, abi::THREAD_LAST),
            (domain.control_progress, abi::PROGRESS_LAST),
            (domain.data_progress, abi::PROGRESS_LAST),
            (domain.resource_mgmt, abi::RM_ENABLED),
            (domain.av_type, abi::AV_TABLE),
        ];
        if chosen.iter().any(|(one, last)| !(0..=*last).contains(one)) {
            return Err(no("a choice that libfabric has no name for"));
        }
        wanted.sizes.mr_pieces = Limit::PIECES.offer(domain.mr_iov_limit)?;
        wanted.sizes.regions = Limit::REGIONS.offer(domain.mr_cnt)?;
        wanted.sizes.counters = Limit::COUNTERS.offer(domain.cntr_cnt)?;
        wanted.progress =
            [domain.control_progress, domain.data_progress].map(|asked| match asked {
                abi::PROGRESS_AUTO => abi::PROGRESS_AUTO,
                _ => abi::PROGRESS_MANUAL,
            });
        if domain.threading != abi::THREAD_UNSPEC {
            wanted.threading = domain.threading;
        }
        if domain.av_type != abi::AV_UNSPEC {
            wanted.av_type = domain.av_type;
        }
        // SAFETY: a name is a string, or null.
        if let Some(name) = unsafe { string(domain.name) } {
            wanted.kind = Some(name.parse().map_err(|_| no("another domain"))?);
        }
    }
    // SAFETY: as above.
    if let Some(fabric) = unsafe { borrow(hints.fabric_attr) } {
        // SAFETY: a name is a string, or null.
        if unsafe { string(fabric.name) }.is_some_and(|name| name != NAME) {
            return Err(no("another fabric"));
        }
    }
    Ok(wanted)
}

/// Names the simulation that endpoints on the model join.
const SIMULATION: &str = "PORTOLAN_SIMULATION";

/// The name of the fabric.
const NAME: &str = "portolan";

/// The choices of the environment, in which the provider's own variables come first.
pub(crate) fn config(kind: Option<FabricKind>) -> Result<FabricConfig, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut config = FabricConfig::from_env().map_err(|e| e.to_string())?;
    let chosen =
        variable("FI_PORTOLAN_FABRIC").map(|name| name.parse().map_err(|e| format!("{e}")));
    config.fabric = match (kind, chosen.transpose()?) {
        (Some(kind), _) => kind.into(),
        (None, Some(choice)) => choice,
        // What is chosen of the model is for jobs, and no word to join a simulation.
        (None, None) if variable("PORTOLAN_FABRIC").is_none() => FabricChoice::Auto,
        (None, None) => config.fabric,
    };
    if let Some(device) = variable("FI_PORTOLAN_DEVICE") {
        config.device = Some(device);
    }
    Ok(config)
}

/// The fabrics that can be used here, the one that the user chooses first.
fn kinds(wanted: &Wanted) -> Vec<FabricKind> {
    let chosen = match config(wanted.kind) {
        Ok(config) => config.kind(),
        Err(why) => {
            tracing::warn!(why, "a variable of the environment");
            return Vec::new();
        }
    };
    let others = FabricKind::ALL.into_iter().filter(|kind| *kind != chosen);
    let all = std::iter::once(chosen).chain(others.filter(|_| wanted.all && wanted.kind.is_none()));
    // The model is joined by whoever was told of a simulation.
    let told =
        |kind: &FabricKind| *kind != FabricKind::Seastar || std::env::var_os(SIMULATION).is_some();
    let usable = |kind: &FabricKind| match config(Some(*kind)).map(|config| fabric::check(&config))
    {
        Ok(Ok(())) => true,
        Ok(Err(why)) => {
            tracing::debug!(%why, "a fabric");
            false
        }
        Err(_) => false,
    };
    all.filter(told).filter(usable).collect()
}

fn describe(kind: FabricKind, wanted: &Wanted) -> Outcome<*mut Info> {
    let made = loader::new_info().ok_or(errno::NOMEM)?;
    // SAFETY: the library has made it, and nobody else has it.
    let Some(info) = (unsafe { borrow(made) }) else {
        return Err(errno::NOMEM);
    };
    let mut caps = wanted.caps;
    if caps & (cap::RMA | cap::ATOMIC) != 0
        && caps & (cap::READ | cap::WRITE | cap::REMOTE_READ | cap::REMOTE_WRITE) == 0
    {
        caps |= cap::READ | cap::WRITE | cap::REMOTE_READ | cap::REMOTE_WRITE;
    }
    if caps & (cap::MSG | cap::TAGGED) != 0 && caps & (cap::SEND | cap::RECV) == 0 {
        caps |= cap::SEND | cap::RECV;
    }
    (info.caps, info.mode, info.addr_format) = (caps, 0, abi::FORMAT_UNSPEC);
    let len = Address::len_on(kind);
    info.src_addr = loader::copy_bytes(&unopened(kind, wanted.ends.source)?[..len]);
    if !info.src_addr.is_null() {
        info.src_addrlen = len;
    }
    if let Some(peer) = wanted.ends.peer {
        info.dest_addr = loader::copy_bytes(&peer.to_bytes()[..len]);
        if !info.dest_addr.is_null() {
            info.dest_addrlen = len;
        }
    }
    let both = cap::MSG | cap::TAGGED | cap::RMA | cap::ATOMIC;
    // SAFETY: the library makes a description with all its parts.
    if let Some(tx) = unsafe { borrow(info.tx_attr) } {
        tx.caps = caps & (both | cap::READ | cap::WRITE | cap::SEND);
        (tx.op_flags, tx.msg_order) = (wanted.tx_flags, ORDER);
        (tx.inject_size, tx.size) = (INJECT, wanted.sizes.tx);
        (tx.iov_limit, tx.rma_iov_limit) = (wanted.sizes.tx_pieces, RMA_PIECES);
    }
    // SAFETY: as above.
    if let Some(rx) = unsafe { borrow(info.rx_attr) } {
        rx.caps = caps
            & (both
                | cap::RECV
                | cap::REMOTE_READ
                | cap::REMOTE_WRITE
                | cap::MULTI_RECV
                | cap::SOURCE
                | cap::RMA_EVENT
                | cap::DIRECTED_RECV
                | RECEIVES_2);
        (rx.op_flags, rx.msg_order) = (wanted.rx_flags, ORDER);
        (rx.size, rx.iov_limit) = (wanted.sizes.rx, wanted.sizes.rx_pieces);
    }
    // SAFETY: as above.
    if let Some(ep) = unsafe { borrow(info.ep_attr) } {
        (ep.kind, ep.protocol) = (abi::EP_RDM, PROTOCOL);
        ep.protocol_version = PROTOCOL_VERSION;
        (ep.max_msg_size, ep.max_order_waw_size) = (MOST, MOST);
        // A tag has all its 64 bits; what programs get is what they can divide.
        ep.mem_tag_format = 0xAAAA_AAAA_AAAA_AAAA;
        (ep.tx_ctx_cnt, ep.rx_ctx_cnt) = (1, 1);
    }
    // SAFETY: as above.
    if let Some(domain) = unsafe { borrow(info.domain_attr) } {
        let name = CString::new(kind.name()).unwrap_or_default();
        domain.name = loader::copy(&name);
        domain.threading = wanted.threading;
        // On the model time passes by the program's own calls.
        [domain.control_progress, domain.data_progress] = match kind {
            FabricKind::Seastar => [abi::PROGRESS_MANUAL; 2],
            _ => wanted.progress,
        };
        domain.resource_mgmt = abi::RM_ENABLED;
        (domain.av_type, domain.mr_mode) = (wanted.av_type, wanted.mr_mode);
        (domain.mr_key_size, domain.cq_data_size) = (8, data_size(caps));
        (domain.cq_cnt, domain.ep_cnt, domain.cntr_cnt) = (1024, 256, wanted.sizes.counters);
        (domain.tx_ctx_cnt, domain.rx_ctx_cnt) = (256, 256);
        (domain.max_ep_tx_ctx, domain.max_ep_rx_ctx) = (1, 1);
        (domain.mr_iov_limit, domain.mr_cnt) = (wanted.sizes.mr_pieces, wanted.sizes.regions);
        domain.caps = DOMAIN_CAPS;
    }
    // SAFETY: as above.
    if let Some(fabric) = unsafe { borrow(info.fabric_attr) } {
        let name = CString::new(NAME).unwrap_or_default();
        fabric.name = loader::copy(&name);
        fabric.prov_version = VERSION;
    }
    Ok(made)
}

/// `fi_getinfo`: a description of the fabric that the user chooses; for whoever names no need, of each that can be used.
pub(crate) unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const Info,
    out: *mut *mut Info,
) -> c_int {
    entry_int(|| {
        tracing::debug!(version, flags, "fi_getinfo");
        // SAFETY: the caller wants the descriptions there.
        let out = unsafe { Out::new(out) }?;
        // SAFETY: what the caller has given as its hints.
        let mut wanted = unsafe { wanted(version, hints) }?;
        let asked = Asked {
            node,
            service,
            flags,
        };
        // SAFETY: as above; it is only read.
        let hints = unsafe { borrow(hints.cast_mut()) };
        // SAFETY: a caller gives strings, or nothing, and hints with addresses of the lengths that they say.
        wanted.ends = unsafe { Ends::of(asked, hints.as_deref(), wanted.kind) }?;
        wanted.kind = wanted.ends.kind;
        let mut first: *mut Info = std::ptr::null_mut();
        for kind in kinds(&wanted).into_iter().rev() {
            match describe(kind, &wanted) {
                Ok(info) => {
                    // SAFETY: it was just made.
                    if let Some(info) = unsafe { borrow(info) } {
                        info.next = first;
                    }
                    first = info;
                }
                Err(error) => {
                    if !first.is_null() {
                        loader::free_info(first);
                    }
                    return Err(error);
                }
            }
        }
        if first.is_null() {
            return Err(no("no fabric can be used here"));
        }
        out.set(first);
        Ok(0)
    })
}
