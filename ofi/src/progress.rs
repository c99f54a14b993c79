//! Progress: whoever reads a completion queue or a counter drives the endpoints that use it.

use host::fork::Own;
use ofi_engine::Endpoint;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a wait looks at one endpoint where it cannot sleep.
pub(crate) const SLICE: Duration = Duration::from_millis(1);
/// How long a wait looks before it sleeps: a peer that answers at once finds this side awake, since waking costs some 10 µs.
pub(crate) const LOOK: Duration = Duration::from_micros(200);

/// How long an endpoint that closes waits for the end of what it has begun.
const LAST: Duration = Duration::from_secs(1);

/// How long a call sleeps before it serves the other endpoints of its process.
pub(crate) const OTHERS: Duration = Duration::from_millis(10);

/// Endpoints that make progress when somebody reads, each until it closes.
#[derive(Debug, Default)]
pub(crate) struct Users(Mutex<Vec<Arc<Endpoint>>>);

/// Every endpoint of this process that is used. Who waits for one serves the peers of the others too, as they may be what the
/// wait's peer waits for.
static ALL: Own<Users> = Own::unset();

/// Whatever has endpoints, so that one that closes leaves them all.
static LISTS: Own<Mutex<Vec<Weak<Users>>>> = Own::unset();

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Users {
    /// An endpoint is used from now on.
    pub(crate) fn begin(endpoint: &Arc<Endpoint>) {
        ALL.get().insert(endpoint);
    }

    /// Waits until the operations of an endpoint that closes have ended and its injected messages have left: [`LAST`] at most. Peers may
    /// be endpoints of this process, which nobody else serves now.
    pub(crate) fn settle(endpoint: &Endpoint) {
        let begun = Instant::now();
        while endpoint.is_busy() && begun.elapsed() < LAST {
            let mut any = endpoint.progress(Duration::ZERO);
            for other in ALL.get().all() {
                any |= other.progress(Duration::ZERO);
            }
            if !any {
                std::thread::yield_now();
            }
        }
    }

    /// The process ends, and endpoints are open: what their programs hold for sent leaves. Nothing happens while a call has one of them, as
    /// the thread that ends the process may be in it, within a signal handler.
    pub(crate) fn leave() {
        let (all, begun) = (ALL.get().all(), Instant::now());
        if !all.iter().any(|endpoint| endpoint.leaves_by_progress()) {
            return;
        }
        while all.iter().any(|endpoint| endpoint.is_taken()) {
            if begun.elapsed() >= LAST {
                return;
            }
            std::thread::yield_now();
        }
        for endpoint in all.iter().filter(|e| e.leaves_by_progress()) {
            Self::settle(endpoint);
            endpoint.close();
        }
    }

    /// An endpoint has closed: nobody who reads has it any more.
    pub(crate) fn end(endpoint: &Arc<Endpoint>) {
        ALL.get().remove(endpoint);
        let lists: Vec<_> = lock(LISTS.get()).iter().filter_map(Weak::upgrade).collect();
        lists.iter().for_each(|users| users.remove(endpoint));
    }

    fn all(&self) -> Vec<Arc<Endpoint>> {
        lock(&self.0).clone()
    }

    /// Progress for all endpoints of this process.
    pub(crate) fn serve_all() {
        for endpoint in ALL.get().all() {
            endpoint.progress(Duration::ZERO);
        }
    }

    /// Progress for the other endpoints of this process. Returns whether there are any.
    pub(crate) fn serve_others(&self) -> bool {
        let own = self.all();
        let is_other = |one: &Arc<Endpoint>| !own.iter().any(|e| Arc::ptr_eq(e, one));
        let others: Vec<_> = ALL.get().all().into_iter().filter(is_other).collect();
        for endpoint in &others {
            endpoint.progress(Duration::ZERO);
        }
        !others.is_empty()
    }

    /// While somebody awaits a wait object, these endpoints make progress by themselves.
    pub(crate) fn watch(&self) -> io::Result<()> {
        self.all().iter().try_for_each(Endpoint::watch)
    }

    /// Adds an endpoint that has not closed.
    pub(crate) fn add(self: &Arc<Self>, endpoint: &Arc<Endpoint>) {
        let mut lists = lock(LISTS.get());
        lists.retain(|list| list.strong_count() > 0);
        if !lists.iter().any(|list| list.as_ptr() == Arc::as_ptr(self)) {
            lists.push(Arc::downgrade(self));
        }
        drop(lists);
        self.insert(endpoint);
    }

    fn insert(&self, endpoint: &Arc<Endpoint>) {
        let mut all = lock(&self.0);
        if !all.iter().any(|e| Arc::ptr_eq(e, endpoint)) {
            all.push(Arc::clone(endpoint));
        }
    }

    fn remove(&self, endpoint: &Arc<Endpoint>) {
        lock(&self.0).retain(|e| !Arc::ptr_eq(e, endpoint));
    }

    /// Progress for all, so long for the first of them if nothing happens.
    pub(crate) fn progress(&self, wait: Duration) {
        let all = lock(&self.0);
        let alone = all.len() == 1;
        let mut any = false;
        for endpoint in all.iter() {
            any |= endpoint.progress(if alone { wait } else { Duration::ZERO });
        }
        drop(all);
        if !alone && !any && !wait.is_zero() {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn an_endpoint_that_has_closed_leaves_everybody() {
        let endpoint = testing::endpoint();
        let lists: [Arc<Users>; 2] = Default::default();
        Users::begin(&endpoint);
        for users in &lists {
            users.add(&endpoint);
            users.add(&endpoint);
        }
        assert_eq!(Arc::strong_count(&endpoint), 4);
        endpoint.close();
        Users::end(&endpoint);
        assert_eq!(Arc::strong_count(&endpoint), 1);
    }
}
