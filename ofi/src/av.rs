// UNSAFETY: entries get objects and arrays of a C caller by pointers.
#![expect(
    unsafe_code,
    reason = "entries get objects and arrays of a C caller by pointers"
)]
//! Address vectors.

use crate::abi::{
    ADDR_UNSPEC, AV_COMPLETE, AV_TABLE, AV_UNSPEC, Addr, AvAttr, Fid, cap, class, errno,
};
use crate::domain::{Domain, Shared};
use crate::eq::{EventQueue, Events};
use crate::names::of_unopened;
use crate::object::{self, Object, object};
use crate::ptr::{borrow, bytes, entry_int, read, write_at, write_bytes};
use crate::table::Table;
use ofi_engine::Endpoint;
use ofi_engine::addresses::Addresses;
use portals_shim::endpoint::Address;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Peers, and the endpoints that are to know them.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    pub(crate) addresses: Arc<Addresses>,
    endpoints: Mutex<Vec<Weak<Endpoint>>>,
}

impl Peers {
    fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        let all = self
            .endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// An endpoint uses this vector from now on.
    pub(crate) fn bind(&self, endpoint: &Arc<Endpoint>) {
        let mut all = self
            .endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.retain(|e| e.strong_count() > 0);
        all.push(Arc::downgrade(endpoint));
        for address in self.addresses.all() {
            if let Err(why) = endpoint.connect(&address) {
                tracing::warn!(%why, "a peer of an address vector");
            }
        }
    }

    /// Inserts an address; gives its number, if it can be reached.
    fn insert(&self, bytes: &[u8]) -> Option<u64> {
        let (number, address) = match self.addresses.insert(bytes) {
            Ok(inserted) => inserted,
            Err(why) => {
                tracing::warn!(%why, "an address that is inserted");
                return None;
            }
        };
        for endpoint in self.endpoints() {
            if let Err(why) = endpoint.connect(&address) {
                tracing::warn!(%why, "an address that is inserted");
                self.addresses.remove(number);
                return None;
            }
        }
        Some(number)
    }

    fn remove(&self, number: u64) {
        if let Some(address) = self.addresses.remove(number) {
            for endpoint in self.endpoints() {
                endpoint.remove(address.id());
            }
        }
    }
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct AddressVector {
    fid: Fid,
    ops: *const c_void,
    pub(crate) peers: Arc<Peers>,
    /// Insertions end with events (`FI_EVENT`).
    tells: bool,
    /// Where those events go.
    events: OnceLock<Arc<Events>>,
    domain: Arc<Shared>,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for AddressVector {
    const CLASS: usize = class::AV;
    const OPS: &'static Table<6> = &Table::new(&[
        (0, object::close::<Self> as *const c_void),
        (1, bind as *const c_void),
    ]);

    /// Endpoints use it.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.peers) > 1
    }
}

static AV: Table<11> = Table::new(&[
    (0, insert as *const c_void),
    (3, remove as *const c_void),
    (4, lookup as *const c_void),
    (5, straddr as *const c_void),
]);

/// `fi_av_open`
pub(crate) unsafe extern "C" fn open(
    domain: *mut c_void,
    attr: *mut AvAttr,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    let make = |domain: &Domain, fid| {
        // SAFETY: the caller says there what it wants, and reads what it gets.
        let attr = unsafe { borrow(attr) }.ok_or(errno::INVAL)?;
        // Shared by name, or of scalable endpoints.
        if !attr.name.is_null() || attr.rx_ctx_bits != 0 {
            return Err(errno::NOSYS);
        }
        if attr.flags & !(cap::EVENT | cap::SYMMETRIC) != 0 {
            return Err(errno::BADFLAGS);
        }
        if !(AV_UNSPEC..=AV_TABLE).contains(&attr.kind) {
            return Err(errno::INVAL);
        }
        if attr.kind == AV_UNSPEC {
            attr.kind = AV_TABLE;
        }
        Ok(AddressVector {
            fid,
            ops: AV.as_ptr(),
            peers: Arc::default(),
            tells: attr.flags & cap::EVENT != 0,
            events: OnceLock::new(),
            domain: Arc::clone(&domain.shared),
        })
    };
    // SAFETY: the caller was given the domain, and wants the vector there.
    unsafe { object::open(domain, out, context, make) }
}

/// `fi_av_bind`: the event queue that insertions tell of their ends.
unsafe extern "C" fn bind(av: *mut c_void, other: *mut c_void, flags: u64) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the vector.
        let av = unsafe { object::<AddressVector>(av) }?;
        // SAFETY: the caller was given the object.
        let eq = unsafe { object::<EventQueue>(other) }?;
        if flags != 0 {
            return Err(errno::BADFLAGS);
        }
        let bound = av.events.set(Arc::clone(&eq.events));
        bound.map(|()| 0).map_err(|_| errno::INVAL)
    })
}

unsafe extern "C" fn insert(
    fid: *mut c_void,
    addresses: *const c_void,
    count: usize,
    out: *mut Addr,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the vector.
        let av = unsafe { object::<AddressVector>(fid) }?;
        if flags & !(cap::MORE | cap::SYNC_ERR) != 0 {
            return Err(errno::BADFLAGS);
        }
        let events = match av.tells {
            true => Some(av.events.get().ok_or(errno::NOEQ)?),
            false => None,
        };
        let each = av.domain.address_len();
        let len = count.checked_mul(each).ok_or(errno::INVAL)?;
        let all = match count {
            0 => Vec::new(),
            // SAFETY: the caller gives so many addresses, of the length that an endpoint's name has.
            _ => unsafe { bytes(addresses, len) }?,
        };
        let wanted = flags & cap::SYNC_ERR != 0 && events.is_none() && !context.is_null();
        let mut inserted = 0;
        for (index, address) in all.chunks_exact(each).enumerate() {
            let number = av.peers.insert(address);
            inserted += isize::from(number.is_some());
            if !out.is_null() {
                // SAFETY: the caller has room for so many numbers.
                unsafe { write_at(out, index, number.unwrap_or(ADDR_UNSPEC)) };
            }
            let failed = number.is_none().then_some(errno::ADDRNOTAVAIL);
            if wanted {
                // SAFETY: with this flag the caller has room for so many errors there.
                unsafe { write_at(context.cast(), index, failed.unwrap_or(0)) };
            }
            if let Some((events, why)) = events.zip(failed) {
                events.fail(fid, context, index as u64, why);
            }
        }
        let Some(events) = events else {
            return Ok(inserted);
        };
        events.tell(AV_COMPLETE, fid, context, inserted as u64);
        Ok(0)
    })
}

unsafe extern "C" fn remove(
    av: *mut c_void,
    numbers: *mut Addr,
    count: usize,
    _flags: u64,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the vector.
        let av = unsafe { object::<AddressVector>(av) }?;
        for index in 0..count {
            // SAFETY: the caller gives so many numbers.
            let number = unsafe { read(numbers.wrapping_add(index)) };
            av.peers.remove(number.ok_or(errno::INVAL)?);
        }
        Ok(0)
    })
}

unsafe extern "C" fn lookup(
    av: *mut c_void,
    number: Addr,
    out: *mut c_void,
    len: *mut usize,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the vector.
        let av = unsafe { object::<AddressVector>(av) }?;
        let address = av.peers.addresses.address(number).ok_or(errno::INVAL)?;
        // SAFETY: the caller says there how much room it has, and reads how much is needed.
        let len = unsafe { borrow(len) }.ok_or(errno::INVAL)?;
        let room = std::mem::replace(len, av.domain.address_len());
        let bytes = address.to_bytes();
        // SAFETY: there is so much room.
        unsafe { write_bytes(out, &bytes[..room.min(*len)]) }?;
        Ok(0)
    })
}

unsafe extern "C" fn straddr(
    av: *mut c_void,
    address: *const c_void,
    out: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    entry_int(|| {
        // SAFETY: the caller was given the vector.
        let av = unsafe { object::<AddressVector>(av) }?;
        // SAFETY: the caller gives an address of the length that an endpoint's name has.
        let bytes = unsafe { bytes(address, av.domain.address_len()) }?;
        let mut text = match Address::from_bytes(&bytes) {
            Ok(address) => format!(
                "{}://{}/{}",
                address.kind(),
                address.id().nid,
                address.id().pid
            ),
            Err(_) => match of_unopened(&bytes) {
                Some((kind, Some(name))) => format!("{kind}://{name}"),
                Some((kind, None)) => format!("{kind}://nobody"),
                None => "not an address".to_owned(),
            },
        };
        text.push('\0');
        // SAFETY: the caller says there how much room it has, and reads how much is needed.
        let len = unsafe { borrow(len) }.ok_or(errno::INVAL)?;
        let room = std::mem::replace(len, text.len());
        if room > 0 {
            let mut part = text.into_bytes();
            part.truncate(room);
            if let Some(last) = part.last_mut() {
                *last = 0;
            }
            // SAFETY: there is so much room.
            unsafe { write_bytes(out.cast(), &part) }?;
        }
        Ok(0)
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn endpoints_that_have_closed_are_forgotten() {
        let peers = Peers::default();
        for _ in 0..3 {
            let endpoint = testing::endpoint();
            peers.bind(&endpoint);
            endpoint.close();
        }
        assert_eq!(peers.endpoints.lock().unwrap().len(), 1);
    }
}
