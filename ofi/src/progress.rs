//! Progress: whoever reads a completion queue or a counter drives the endpoints that use it.

use ofi_engine::Endpoint;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How long a wait looks at one endpoint where it cannot sleep.
pub(crate) const SLICE: Duration = Duration::from_millis(1);
/// How long a wait looks before it sleeps: a peer that answers at once finds this side awake, since waking costs some 10 µs.
pub(crate) const LOOK: Duration = Duration::from_micros(200);

/// Endpoints that make progress when somebody reads.
#[derive(Debug, Default)]
pub(crate) struct Users(Mutex<Vec<Weak<Endpoint>>>);

impl Users {
    /// While somebody awaits a wait object, these endpoints make progress by themselves.
    pub(crate) fn watch(&self) -> io::Result<()> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = all.iter().filter_map(Weak::upgrade);
        all.try_for_each(|endpoint| endpoint.watch())
    }

    pub(crate) fn add(&self, endpoint: &Arc<Endpoint>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|e| e.strong_count() > 0);
        if !all.iter().any(|e| e.as_ptr() == Arc::as_ptr(endpoint)) {
            all.push(Arc::downgrade(endpoint));
        }
    }

    /// Progress for all, so long for the first of them if nothing happens.
    pub(crate) fn progress(&self, wait: Duration) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alone = all.len() == 1;
        let mut any = false;
        for endpoint in all.iter().filter_map(Weak::upgrade) {
            any |= endpoint.progress(if alone { wait } else { Duration::ZERO });
        }
        drop(all);
        if !alone && !any && !wait.is_zero() {
            std::thread::yield_now();
        }
    }
}
