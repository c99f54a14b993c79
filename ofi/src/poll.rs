// UNSAFETY: entries get objects and room for results of a C caller by pointers.
#![expect(
    unsafe_code,
    reason = "entries get objects and room for results by pointers"
)]
//! Poll sets: queues and counters that are asked for news together.

use crate::abi::{Fid, class, errno};
use crate::cntr::{CompletionCounter, Counting};
use crate::cq::CompletionQueue;
use crate::domain::{Domain, Shared};
use crate::object::{self, Object, object, object_if};
use crate::progress::Users;
use crate::ptr::{Outcome, entry_int, read, write_at};
use crate::table::Table;
use ofi_engine::completion::Queue;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug)]
enum What {
    Queue(Arc<Queue>, Arc<Users>),
    /// With the successes and failures that were there at the last poll.
    Counter(Counting, [u64; 2]),
}

impl What {
    /// Makes progress, and says whether there is news.
    fn has_news(&mut self) -> bool {
        match self {
            Self::Queue(queue, users) => {
                users.progress(Duration::ZERO);
                !queue.is_empty()
            }
            Self::Counter(Counting { counter, users }, seen) => {
                users.progress(Duration::ZERO);
                let now = [counter.done(), counter.failed()];
                std::mem::replace(seen, now) != now
            }
        }
    }
}

/// A queue or counter of a set: its address and the program's value, and what is asked.
#[derive(Debug)]
struct Member {
    fid: usize,
    context: usize,
    what: What,
}

#[derive(Debug)]
#[repr(C)]
struct PollSet {
    fid: Fid,
    ops: *const c_void,
    members: Mutex<Vec<Member>>,
    _domain: Arc<Shared>,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for PollSet {
    const CLASS: usize = class::POLL;
    const OPS: &'static Table<6> = &Table::new(&[(0, object::close::<Self> as *const c_void)]);

    /// Queues and counters are in it.
    fn is_used(&self) -> bool {
        !self.members().is_empty()
    }
}

impl PollSet {
    fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static POLL: Table<3> = Table::new(&[
    (0, poll as *const c_void),
    (1, add as *const c_void),
    (2, remove as *const c_void),
]);

/// `fi_poll_open`
pub(crate) unsafe extern "C" fn open(
    domain: *mut c_void,
    attr: *const u64,
    out: *mut *mut c_void,
) -> c_int {
    let make = |domain: &Domain, fid| {
        // SAFETY: the caller says there what it wants, if anything: flags, of which there are none.
        if unsafe { read(attr) }.is_some_and(|flags| flags != 0) {
            return Err(errno::BADFLAGS);
        }
        Ok(PollSet {
            fid,
            ops: POLL.as_ptr(),
            members: Mutex::default(),
            _domain: Arc::clone(&domain.shared),
        })
    };
    // SAFETY: the caller was given the domain, and wants the set there.
    unsafe { object::open(domain, out, std::ptr::null_mut(), make) }
}

/// A queue or a counter, as a member.
///
/// # Safety
/// `fid` is null or an object that the caller was given.
unsafe fn member(fid: *mut c_void) -> Outcome<Member> {
    // SAFETY: the condition above.
    let (context, what) = if let Some(cq) = unsafe { object_if::<CompletionQueue>(fid) }? {
        let what = What::Queue(Arc::clone(&cq.queue), Arc::clone(&cq.users));
        (cq.context(), what)
    } else {
        // SAFETY: the condition above.
        let cntr = unsafe { object::<CompletionCounter>(fid) }?;
        (cntr.context(), What::Counter(cntr.counting.clone(), [0; 2]))
    };
    Ok(Member {
        fid: fid.addr(),
        context: context.expose_provenance(),
        what,
    })
}

unsafe extern "C" fn add(set: *mut c_void, fid: *mut c_void, flags: u64) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the set.
        let set = unsafe { object::<PollSet>(set) }?;
        if flags != 0 {
            return Err(errno::BADFLAGS);
        }
        // SAFETY: the caller was given the object.
        let member = unsafe { member(fid) }?;
        let mut members = set.members();
        // Once is as good as twice, and one removal is enough, as in libfabric's own poll sets.
        if members.iter().all(|other| other.fid != member.fid) {
            members.push(member);
        }
        Ok(0)
    })
}

unsafe extern "C" fn remove(set: *mut c_void, fid: *mut c_void, flags: u64) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the set.
        let set = unsafe { object::<PollSet>(set) }?;
        if flags != 0 {
            return Err(errno::BADFLAGS);
        }
        // SAFETY: the caller was given the object.
        unsafe { member(fid) }?;
        let mut members = set.members();
        let at = members.iter().position(|member| member.fid == fid.addr());
        members.swap_remove(at.ok_or(errno::INVAL)?);
        Ok(0)
    })
}

unsafe extern "C" fn poll(set: *mut c_void, out: *mut *mut c_void, count: c_int) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the set.
        let set = unsafe { object::<PollSet>(set) }?;
        let count = usize::try_from(count).map_err(|_| errno::INVAL)?;
        if out.is_null() {
            return Err(errno::INVAL);
        }
        let mut members = set.members();
        let mut found = 0;
        for member in members.iter_mut() {
            if found < count && member.what.has_news() {
                let context = std::ptr::with_exposed_provenance_mut(member.context);
                // SAFETY: the caller has room for so many.
                unsafe { write_at(out, found, context) };
                found += 1;
            }
        }
        Ok(found as isize)
    })
}
