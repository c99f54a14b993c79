//! The clock of an interface, and computing that takes a stated time.

use super::Interface;
use fabric_api::bridge::{Caller, ClockKind};
use fabric_api::call::Call;
use portals_core::Error;
use std::cell::Cell;

/// Readings in a row, by one thread, of one instant of virtual time that take none.
const FREE_READINGS: u32 = 1_000;
/// Readings that take none after one that did: a program that has seen its time come may read the clock again.
const FREE_AFTER_STEP: u32 = 16;
/// What a reading takes at least that is not free, nanoseconds.
const STEP: u64 = 1_000;
/// Of the time that the loop has waited so far it takes this part, if that is more.
const PART: u64 = 1_000;

/// Readings in a row, by one thread, between which nothing but they took time.
#[derive(Clone, Copy)]
struct Readings {
    /// The last.
    at: u64,
    count: u32,
    /// What they took, nanoseconds.
    waited: u64,
}

thread_local! {
    static READINGS: Cell<Readings> = const { Cell::new(Readings { at: 0, count: 0, waited: 0 }) };
}

/// What this reading takes: nothing before there were so many in a row that this thread must be waiting for a time.
fn cost(now: u64) -> Option<u64> {
    let mut readings = READINGS.get();
    if readings.at != now {
        readings = Readings {
            at: now,
            count: 0,
            waited: 0,
        };
    }
    readings.count = readings.count.saturating_add(1);
    READINGS.set(readings);
    (readings.count > FREE_READINGS).then_some(STEP.max(readings.waited / PART))
}

/// The last reading took until `now`.
fn took(now: u64) {
    let mut readings = READINGS.get();
    readings.waited += now.saturating_sub(readings.at);
    readings.at = now;
    readings.count = FREE_READINGS - FREE_AFTER_STEP;
    READINGS.set(readings);
}

impl Interface {
    /// Nanoseconds of the fabric's clock, from an arbitrary start.
    pub fn now(&self) -> u64 {
        self.inner.bridge.now()
    }

    /// What [`Interface::now`] counts.
    pub fn clock(&self) -> ClockKind {
        self.inner.bridge.clock()
    }

    /// What the calling thread has to do with virtual time; [`Caller::Stranger`] where time is the host's.
    pub fn caller(&self) -> Caller {
        self.inner.bridge.caller()
    }

    /// The clock ([`Interface::now`]) for a program that may wait in a loop for a time to come. Virtual time stands still for a rank
    /// that makes no call. So the first 1000 readings of one instant by one thread take no time. The next computes 1 µs, or a thousandth
    /// of what the loop has waited if that is more; and so does each 17th after it, while no call comes between. In a handler of a signal that has
    /// interrupted a call of its thread none takes time. Fails where the simulation has ended and such a loop would not.
    ///
    /// ```
    /// use portals_shim::core::{Limits, NiConfig, ProcessId};
    /// use portals_shim::{ClockKind, fabric};
    ///
    /// let config = NiConfig {
    ///     id: ProcessId { nid: 0, pid: 1 },
    ///     uid: 0,
    ///     jid: 1,
    ///     interface: 0,
    ///     limits: Limits::LIBRARY,
    ///     get_send_events: false,
    /// };
    /// let interface = fabric::alone(config).interface;
    /// assert_eq!(interface.clock(), ClockKind::Wall);
    /// let end = interface.reading()? + 1_000;
    /// while interface.reading()? < end {}
    /// # Ok::<(), portals_shim::Error>(())
    /// ```
    pub fn reading(&self) -> Result<u64, Error> {
        let now = self.now();
        if self.clock() == ClockKind::Wall || self.caller() == Caller::Inside {
            return Ok(now);
        }
        let Some(nanos) = cost(now) else {
            return Ok(now);
        };
        self.compute(nanos)?;
        let now = self.now();
        took(now);
        Ok(now)
    }

    /// On a simulated fabric this rank's clock advances as if its program had computed for `nanos`:
    /// interrupts of its processor come on top. Elsewhere nothing happens. Fails in a handler of a signal that has interrupted a
    /// call of its thread.
    #[inline]
    pub fn compute(&self, nanos: u64) -> Result<(), Error> {
        if nanos == 0 || self.clock() == ClockKind::Wall {
            return Ok(());
        }
        if self.caller() == Caller::Inside {
            return Err(Error::Fail);
        }
        self.done(Call::Compute(nanos))
    }
}
