//! A rank that runs and makes no call, and what the simulation says of a program that is at its end.

use super::sim::Setting;
use super::tests::each;
use super::{Mode, in_threads_on, setting};
use fabric_api::call::Wait;
use fabric_api::config::FabricConfig;
use fabric_api::place::Placement;
use portals_core::Error;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The others wait no longer than the setting says for a rank that makes no call; its next call is made at the present.
#[test]
fn a_silent_rank_holds_virtual_time_for_so_long() {
    for mode in Mode::ALL {
        let config = FabricConfig {
            mode,
            ..FabricConfig::default()
        };
        let setting = Setting {
            patience: Some(Duration::from_millis(200)),
            ..setting(&config).unwrap()
        };
        let waiting = in_threads_on(3, Placement::ONE, setting).unwrap();
        let gone_on = &AtomicBool::new(false);
        let ends = each(waiting, |rank, opened| {
            let ni = &opened.interface;
            let eq = ni.eq_alloc(4).unwrap();
            if rank < 2 {
                assert!(ni.eq_poll(&[eq], Wait::Nanos(5_000_000)).unwrap().is_none());
                if rank == 0 {
                    gone_on.store(true, Ordering::SeqCst);
                }
                return ni.now();
            }
            let until = Instant::now() + Duration::from_secs(60);
            while !gone_on.load(Ordering::SeqCst) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(gone_on.load(Ordering::SeqCst), "{mode}: the others wait");
            assert!(ni.eq_poll(&[eq], Wait::No).unwrap().is_none());
            ni.now()
        });
        assert!(ends[2] >= ends[0], "{mode}: {ends:?}");
    }
}

/// What is logged on a thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<String>>);

impl Visit for Lines {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        let _ = writeln!(self.0.lock().unwrap(), "{value:?}");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Every rank says that the program is deadlocked, and since when.
#[test]
fn a_deadlock_is_said_by_every_rank() {
    let setting = setting(&FabricConfig::default()).unwrap();
    let waiting = in_threads_on(2, Placement::ONE, setting).unwrap();
    let said = each(waiting, |_, opened| {
        let ni = &opened.interface;
        let eq = ni.eq_alloc(4).unwrap();
        assert!(ni.eq_poll(&[eq], Wait::Nanos(70_000)).unwrap().is_none());
        let lines = Lines::default();
        let ended = tracing::subscriber::with_default(lines.clone(), || ni.eq_wait(eq));
        assert_eq!(ended, Err(Error::Fail));
        let lines = lines.0.lock().unwrap().clone();
        (lines, ni.now())
    });
    for (lines, now) in said {
        let told = lines
            .trim()
            .strip_prefix("deadlock at ")
            .unwrap_or_else(|| panic!("{lines:?}"));
        let (at, rest) = told.split_once(' ').unwrap();
        assert_eq!(
            rest,
            "ns: every rank waits for an event and nothing is on its way"
        );
        let at: u64 = at.parse().unwrap();
        assert!((70_000..=now).contains(&at), "{at} {now}");
    }
}
