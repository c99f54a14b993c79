//! Sleeping and waking by futex on a rank's bell in shared memory.

use super::layout::Block;
use super::map::Map;
use super::ring::Word;
use fabric_api::nal::Nap;
use rustix::event::Timespec;
use rustix::thread::{MembarrierCommand, futex, membarrier, membarrier_query};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// The longest sleep: afterwards a waiter looks whether those it waits for still live.
pub const LONGEST: Duration = Duration::from_millis(200);

/// Wakes all threads that sleep on a bell.
#[cold]
pub(super) fn wake(bell: &AtomicU32) {
    // Not private: the sleepers may be threads of another process. It cannot fail for a mapped, aligned word.
    let _ = futex::wake(bell, futex::Flags::empty(), i32::MAX.cast_unsigned());
}

/// Whether the kernel orders the threads of this process with a sleeper's when that asks for it
/// ([`order_all`]), and lets it ask. From now on it does.
pub(super) fn register_for_order() -> bool {
    let known = membarrier_query().contains_command(MembarrierCommand::GlobalExpedited);
    known && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// A fence in every running thread of the processes that have registered. It costs this thread some microseconds,
/// and spares those the fence of each message. A failure costs a sleeper at most [`LONGEST`].
pub(super) fn order_all() {
    let _ = membarrier(MembarrierCommand::GlobalExpedited);
}

/// The own bell.
#[derive(Debug)]
pub(super) struct Futex {
    map: Arc<Map>,
    block: Block,
}

impl Futex {
    pub(super) fn new(map: Arc<Map>, block: Block) -> Self {
        Self { map, block }
    }
}

impl Nap for Futex {
    fn sleep(&self, until: Option<Instant>) {
        let left = until.map_or(LONGEST, |at| at.saturating_duration_since(Instant::now()));
        let Ok(left) = Timespec::try_from(left.min(LONGEST)) else {
            return;
        };
        // An interruption, a word that has changed and the end of the time are wake-ups like any other.
        let bell = self.block.bell(&self.map);
        let _ = futex::wait(bell, futex::Flags::empty(), 1, Some(&left));
    }

    fn wake(&self) {
        let bell = self.block.bell(&self.map);
        if bell.exchange(0) == 1 {
            wake(bell);
        }
    }
}
