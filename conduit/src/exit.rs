//! Leaving the job.
//!
//! Any rank may exit at any time after start-up. It tells the ranks 1, 2, 4 … above it, each time
//! with the largest code it knows, and hears the same from below; a rank that hears of an exit joins
//! in. When all rounds are heard, every rank knows of the exit, and the code of all is the largest.
//! Only system messages are handled meanwhile: no handler runs any more.
//!
//! # Finishing together
//!
//! [`Conduit::finish`] meets all ranks, then leaves in the same way. No number of meetings would be
//! enough to keep the two apart: whoever leaves the last one first is heard of by ranks that are
//! still in it. So a rank in `finish` does not obey what it hears; it leaves too, and the message
//! says with the code whether any rank [exited](EXITED). `finish` returns on all ranks or on none:
//!
//! - If no rank exits, the first to leave had met the others, so all have called `finish`; nobody
//!   else can hear of it. None brings [`EXITED`], and all return.
//! - If one exits, every rank's result has its [`EXITED`], because each hears of each: all end with
//!   the common code.

use crate::conduit::{Conduit, Scope};
use crate::credit_files::{place, replace};
use crate::debugging::{OnError, freeze};
use crate::dissemination::{BarrierName, distances};
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::leaving::{EXITED, code_of};
use crate::matchbits::SysMsg;
use crate::signals::{Deaf, Signals, Wake};
use portals_shim::job::is_child_of_rank;
use portals_shim::{AckRequest, Brief, ClockKind, TimeLeft, Wait, recv_within, spawn_own_thread};
use signal_hook::low_level;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest exit after a signal whose sender waits. Ranks that live answer in far less, the dead are not
/// worth more.
const HASTY: Duration = Duration::from_millis(250);

/// How much longer than the fabric's clock the wall clock waits for an exit.
const GRACE: Duration = Duration::from_secs(2);

/// Ends the job after this much wall time in which the process runs, unless what it returns is dropped first. Without a
/// thread the fabric's clock alone has to do.
pub(crate) fn watch(
    job: Arc<dyn Exchange>,
    after: Duration,
    code: i32,
    message: String,
) -> Option<Sender<()>> {
    let (alive, dropped) = channel();
    let body = move || {
        if recv_within(&dropped, after) == Err(RecvTimeoutError::Timeout) {
            job.abort(code, &message);
        }
    };
    spawn_own_thread("exit", body).ok()?;
    Some(alive)
}

/// How the ranks parted.
enum Parted {
    /// All know; the common end.
    Together(u32),
    /// Not in time.
    Late,
}

impl Conduit {
    /// Ends the whole job with `code` (its low 8 bits); of several codes the largest counts. Any
    /// time after start-up, also in a handler. Messages not yet handled are lost: programs meet in a
    /// barrier first.
    pub fn exit(&self, code: i32) -> ! {
        let end = self.part(EXITED | (code.cast_unsigned() & 0xff));
        self.job.end(code_of(end))
    }

    /// Waits for all ranks to call this, then leaves the job with status 0; the process goes on.
    /// If a rank exits instead, or drops its conduit, this process ends with the common code: it
    /// returns on all ranks or on none.
    pub fn finish(self) {
        self.finishing.set(true);
        self.enter_meeting();
        self.wait_in("meeting the other ranks", Scope::Full, |c| {
            (c.meeting.try_leave().is_some() || c.leaving.heard().is_some()).then_some(())
        });
        let end = self.part(0);
        if end & EXITED != 0 {
            self.job.end(code_of(end));
        }
        self.job.leave();
    }

    fn enter_meeting(&self) {
        let advanced = {
            let mut core = self.core.borrow_mut();
            core.meeting.enter(BarrierName::Anonymous);
            core.advance_meeting()
        };
        self.check("meeting the other ranks", advanced);
    }

    /// Meets all ranks; every message is serviced meanwhile.
    pub(crate) fn meet(&self) {
        self.enter_meeting();
        self.wait_in("meeting the other ranks", Scope::Full, |c| {
            c.meeting.try_leave()
        });
    }

    /// Records the signals that end a job from here on, see [`crate::signals`]; once.
    pub(crate) fn catch_signals(&self) {
        let core = self.core.borrow();
        let wake = (core.ni.clock() == ClockKind::Wall).then(|| {
            let (ni, source) = (core.ni.clone(), core.descriptors.sys_send);
            let (bits, data) = SysMsg::Wake.encode();
            let to = core.am_target(core.ranks.me(), bits, 0);
            // Refused only when the interface is closed, and then nobody waits.
            Box::new(move || {
                let _ = ni.put(source, AckRequest::NoAck, to, data);
            }) as Wake
        });
        let (job, status) = (self.job.clone(), self.signal_status.clone());
        let patience = self.longest_exit();
        let deaf = Deaf {
            patience,
            end: Box::new(move |signal| {
                let name = low_level::signal_name(signal).unwrap_or("a signal");
                let message = format!(
                    "no call has seen {name} within {:.1} s",
                    patience.as_secs_f64()
                );
                let told = *status.lock().unwrap_or_else(PoisonError::into_inner);
                job.abort_beside(told.unwrap_or(128 + signal), &message)
            }),
        };
        match Signals::catch(&core.env.no_catch, wake, deaf) {
            Ok(signals) => drop(self.signals.set(signals)),
            Err(e) => tracing::warn!("signals keep their defaults: {e}"),
        }
    }

    /// Leaves if a signal asked for it.
    #[inline]
    pub(crate) fn obey_signal(&self) {
        if self.signals.get().is_some_and(Signals::take) {
            self.leave_for();
        }
    }

    #[cold]
    fn leave_for(&self) {
        if self.ended.get() {
            return;
        }
        if let Some(signals) = self.signals.get() {
            signals.answer();
        }
        self.tell_client();
        let told = *self.signal_status();
        self.exit(told.unwrap_or(1));
    }

    fn signal_status(&self) -> MutexGuard<'_, Option<i32>> {
        let status = self.signal_status.lock();
        status.unwrap_or_else(PoisonError::into_inner)
    }

    /// What the job ends with when a signal asks this rank for it, unless a handler of SIGQUIT ends it
    /// first. If never called: 1, or 128 + the signal if the rank makes no call in which it could see it.
    pub fn set_signal_status(&self, status: i32) {
        *self.signal_status() = Some(status);
    }

    /// The client's handler of SIGQUIT may end the job its own way.
    fn tell_client(&self) {
        if let Some(signals) = self.signals.get() {
            signals.tell_client();
        }
    }

    /// Whether whoever sent a signal waits for the end.
    fn is_hasty(&self) -> bool {
        self.signals.get().is_some_and(Signals::is_hasty)
    }

    /// How long an exit may take before it is given up, on the clock of the wall.
    pub(crate) fn longest_exit(&self) -> Duration {
        let core = self.core.borrow();
        Duration::from_nanos(core.env.exit_timeout_ns(core.ranks.count(), true))
            .saturating_add(GRACE)
    }

    /// Joins an exit that was heard of.
    pub(crate) fn obey_shutdown(&self) {
        if self.ended.get() || self.finishing.get() {
            return;
        }
        let end = {
            let core = self.core.borrow();
            core.leaving.heard()
        };
        if let Some(end) = end {
            self.tell_client();
            self.exit(code_of(end));
        }
    }

    /// Waits for a debugger, if the environment says so.
    pub(crate) fn freeze_if_asked(&self) {
        let asked = self.core.borrow().env.debugging.freeze;
        if asked {
            freeze(self.mynode());
        }
    }

    /// What this rank is to do when it fails.
    pub fn on_error(&self) -> OnError {
        // A fault may come while the state is in use; then nothing is known.
        let wishes = self.core.try_borrow().map(|c| c.env.debugging.clone());
        OnError::new(self.mynode(), &wishes.unwrap_or_default())
    }

    /// Whether `GASNET_NO_CATCH_SIGNAL` names a signal.
    pub fn leaves_alone(&self, signal: i32) -> bool {
        crate::signals::is_left_alone(&self.core.borrow().env.no_catch, signal)
    }

    /// Ends the job at once, saying which rank failed and in what.
    pub(crate) fn fatal(&self, call: &str, fault: &Fault) -> ! {
        if !self.ended.replace(true) {
            if let Some(t) = &self.tracer {
                t.message_always(&format!("{call}: {fault}"));
            }
            // The status is one of failure in any case.
            let _whole = self.finish_trace();
            self.on_error().act();
        }
        self.job.abort(1, &format!("{call}: {fault}"))
    }

    /// Tells all ranks of the own `end`, learns the common one, closes the interface. A good end whose files are not
    /// whole is none.
    fn part(&self, end: u32) -> u32 {
        if self.ended.replace(true) || is_child_of_rank() {
            // The rings, buffers and sockets of a child are its parent's.
            return end;
        }
        let timeout = {
            let core = self.core.borrow();
            core.env
                .exit_timeout_ns(core.ranks.count(), core.attached.is_some())
        };
        let late = format!(
            "failed to coordinate shutdown after {} milliseconds",
            timeout / 1_000_000
        );
        let late_code = code_of(end).max(1);
        // A rank that computes and never calls holds virtual time back; this clock goes on.
        let grace = Duration::from_nanos(timeout).saturating_add(GRACE);
        let watch =
            (self.nodes() > 1).then(|| watch(self.job.clone(), grace, late_code, late.clone()));
        if let Some(signals) = self.signals.get() {
            signals.answer();
        }
        let whole = self.write_credit_stats() & self.finish_trace();
        let end = if whole { end } else { end.max(EXITED | 1) };
        let told = self.tell_all(end, timeout);
        drop(watch);
        match told {
            Ok(Parted::Together(end)) => {
                let _ = self.core.borrow().ni.close();
                end
            }
            // Ranks that were told to end together, or that died, are not missed.
            Ok(Parted::Late) if self.is_hasty() => end,
            Ok(Parted::Late) => self.job.abort(late_code, &late),
            Err(fault) => self.job.abort(late_code, &format!("exit: {fault}")),
        }
    }

    /// Ends the trace and the statistics. A fault may come while the credits are in use: then they are not said.
    /// Whether the files are whole.
    fn finish_trace(&self) -> bool {
        let Some(t) = &self.tracer else { return true };
        let core = self.core.try_borrow();
        t.finish(&core.map_or_else(
            |_| String::new(),
            |c| {
                let pinned = c.firehose_stats();
                let pinned = pinned.map_or_else(String::new, |s| s.to_string());
                format!("{}{pinned}", c.credits.report())
            },
        ))
    }

    /// `portals-credits.RANK`, if asked for. Whether this and `credits.RANK` are whole, as far as they are asked for.
    fn write_credit_stats(&self) -> bool {
        let core = self.core.borrow();
        let dumped = core.dumps.as_ref().is_none_or(|d| d.is_whole());
        if !core.env.credit_stats {
            return dumped;
        }
        let file = place(&core.env, &format!("portals-credits.{}", core.ranks.me()));
        let mut text = core.credits.report().to_string();
        if let Some(neighbours) = self.neighbours.get() {
            text += &neighbours.report().to_string();
        }
        let written = replace(&file, &text);
        if let Err(e) = &written {
            crate::say(format_args!(
                "ERROR: cannot write the credit statistics {}: {e}",
                file.display()
            ));
        }
        dumped && written.is_ok()
    }

    fn tell_all(&self, end: u32, timeout: u64) -> Result<Parted, Fault> {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        let timeout = Duration::from_nanos(timeout);
        let mut time = TimeLeft::new(core.ni.clock(), core.ni.now(), timeout);
        core.leaving.tell(end);
        let mut told = 0;
        for distance in distances(core.ranks.count()) {
            let to = core.ranks.above(distance);
            let message = SysMsg::Shutdown {
                distance,
                code: core.leaving.end(),
                sender: core.ranks.me(),
            };
            core.send_sys(to, message)?;
            told |= distance;
            while !core.leaving.heard_from(told) {
                // The signal may come while this waits, and wakes it.
                let less = if self.is_hasty() {
                    timeout.saturating_sub(HASTY)
                } else {
                    Duration::ZERO
                };
                let left = time.at(core.ni.now()).saturating_sub(less);
                if left.is_zero() {
                    return Ok(Parted::Late);
                }
                let slice = time.slice(left).as_nanos();
                let wait = Wait::Nanos(u64::try_from(slice).unwrap_or(u64::MAX));
                let polled = core
                    .ni
                    .eq_poll(&[core.descriptors.queues.sys], wait)
                    .map_err(|e| Fault::Portals {
                        call: "PtlEQPoll",
                        error: e.error,
                    })?;
                if let Some(polled) = polled {
                    core.handle(&Brief::new(&polled.event, false, 0))?;
                }
            }
        }
        Ok(Parted::Together(core.leaving.end()))
    }
}

impl Drop for Conduit {
    /// An orderly exit with 0, or with 1 when the thread is panicking; programs that have a status to say
    /// say it by [`Conduit::exit`]. If the job's code is another
    /// one the process ends with it.
    fn drop(&mut self) {
        let panicking = std::thread::panicking();
        if self.ended.get() || self.core.try_borrow_mut().is_err() {
            return;
        }
        if panicking && self.job.panicked() {
            self.ended.set(true);
            return;
        }
        let code = code_of(self.part(EXITED | u32::from(panicking)));
        if code == 0 || panicking {
            self.job.leave();
        } else {
            self.job.end(code);
        }
    }
}
