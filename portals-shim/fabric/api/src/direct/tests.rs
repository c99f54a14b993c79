//! When a wait sleeps.

use super::*;
use crate::bell::Bell;
use crate::bridge::Bridge as _;
use crate::call::RemoteKey;
use crate::identity::rank_config;
use crate::nal::{Armed, Look};
use crate::place::Placement;
use crate::region::tests::TRUST;
use portals_core::{Error, Ni, ProcessId, Transmit};

/// A fabric to which others write until a time, without an event.
#[derive(Debug)]
struct Written {
    until: Instant,
    bell: Arc<Bell>,
    /// How often a thread has gone to sleep before that time, and after it.
    slept: Arc<[AtomicU32; 2]>,
}

impl Nal for Written {
    fn send(&mut self, _: &mut Ni, _: &mut Transmit, _: Option<&RemoteKey>) {}

    fn progress(&mut self, _: &mut Ni, _: Look) -> bool {
        Instant::now() < self.until
    }

    fn waiter(&self) -> Waiter {
        Waiter::Descriptors(Attendance {
            alarm: Vec::new(),
            control: Vec::new(),
            bell: Arc::clone(&self.bell),
            thread: false,
            longest: None,
        })
    }

    fn arm(&mut self) -> Armed {
        let after = usize::from(Instant::now() >= self.until);
        self.slept[after].fetch_add(1, Ordering::Relaxed);
        Armed::ringing(true)
    }

    fn distance(&self, _: ProcessId) -> Option<u64> {
        None
    }
}

#[test]
fn a_rank_that_others_write_to_sleeps_only_when_they_have_ceased() {
    let slept = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    let mut ni = Ni::new(rank_config(Placement::ONE, 0, 1));
    let eq = ni.eq_alloc(4).unwrap();
    let fabric = Written {
        until: Instant::now() + 20 * SPIN,
        bell: Arc::new(Bell::new().unwrap()),
        slept: Arc::clone(&slept),
    };
    let direct = Direct::attended(Library::new(ni, fabric, TRUST)).unwrap();
    let long = u64::try_from((100 * SPIN).as_nanos()).unwrap();
    let found = direct.eq_poll(&[eq], Wait::Nanos(long)).unwrap();
    assert!(found.is_none());
    assert_eq!(slept[0].load(Ordering::Relaxed), 0, "asleep too soon");
    assert!(slept[1].load(Ordering::Relaxed) > 0, "never asleep");
}

/// A program that looks for events serves what has none at its own pace, and does not leave the core after each of them.
#[test]
fn a_look_that_serves_others_offers_the_core_to_nobody() {
    let mut ni = Ni::new(rank_config(Placement::ONE, 0, 1));
    let eq = ni.eq_alloc(4).unwrap();
    let fabric = Written {
        until: Instant::now() + Duration::from_secs(3600),
        bell: Arc::new(Bell::new().unwrap()),
        slept: Arc::default(),
    };
    let direct = Direct::attended(Library::new(ni, fabric, TRUST)).unwrap();
    let fruitless = || direct.shared.fruitless.load(Ordering::Relaxed);
    for look in [&|| direct.eq_get(eq).unwrap().is_none(), &|| {
        direct.eq_poll(&[eq], Wait::No).unwrap().is_none()
    }] as [&dyn Fn() -> bool; 2]
    {
        assert!((0..10_000).all(|_| look()));
        assert_eq!(fruitless(), 0);
    }
}

/// A fabric that gives a peer up at a time, of which nothing has failed, and says so to a thread that sleeps.
#[derive(Debug)]
struct Losing {
    at: Instant,
    lost: bool,
    bell: Arc<Bell>,
}

impl Nal for Losing {
    fn send(&mut self, _: &mut Ni, _: &mut Transmit, _: Option<&RemoteKey>) {}

    fn progress(&mut self, ni: &mut Ni, _: Look) -> bool {
        let now = !self.lost && Instant::now() >= self.at;
        if now {
            self.lost = true;
            ni.lost(ProcessId::new(1, 1));
        }
        now
    }

    fn waiter(&self) -> Waiter {
        Waiter::Descriptors(Attendance {
            alarm: Vec::new(),
            control: Vec::new(),
            bell: Arc::clone(&self.bell),
            thread: false,
            longest: Some(SPIN),
        })
    }

    fn arm(&mut self) -> Armed {
        Armed::ringing(true)
    }

    fn distance(&self, _: ProcessId) -> Option<u64> {
        None
    }
}

#[test]
fn a_wait_for_ever_ends_when_a_peer_is_given_up() {
    for sleeps in [false, true] {
        let mut ni = Ni::new(rank_config(Placement::ONE, 0, 1));
        let eqs = [ni.eq_alloc(4).unwrap(), ni.eq_alloc(4).unwrap()];
        let after = if sleeps { 20 * SPIN } else { Duration::ZERO };
        let fabric = Losing {
            at: Instant::now() + after,
            lost: false,
            bell: Arc::new(Bell::new().unwrap()),
        };
        let direct = Direct::attended(Library::new(ni, fabric, TRUST)).unwrap();
        let refused = direct.eq_poll(&eqs, Wait::Forever).unwrap_err();
        assert_eq!((refused.error, refused.which), (Error::Fail, 0));
        // It was told once, and to who waits for some time it is not told.
        let long = u64::try_from((4 * SPIN).as_nanos()).unwrap();
        assert_eq!(direct.eq_poll(&eqs, Wait::Nanos(long)), Ok(None));
        assert_eq!(direct.take_lost(&eqs), None);
    }
}
