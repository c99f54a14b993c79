//! Progress: whoever reads a completion queue or a counter drives the endpoints that use it.

use ofi_engine::Endpoint;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How long a wait looks at one endpoint where several use a queue.
pub(crate) const SLICE: Duration = Duration::from_millis(1);

/// Endpoints that make progress when somebody reads.
#[derive(Debug, Default)]
pub(crate) struct Users(Mutex<Vec<Weak<Endpoint>>>);

impl Users {
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
