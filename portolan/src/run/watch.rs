//! Waiting for descriptors, in the order in which they became ready.
//!
//! A rank is killed, its line closes, a peer notices and says so: news that come in one look are only understood in
//! their order. The kernel's list of ready descriptors has it (epoll appends what becomes ready).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// The most that one look tells of; what is left comes with the next.
const LOOK: usize = 256;

/// What became ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    Interrupt,
    /// The launcher has spoken to its agent.
    Link,
    /// The line of the rank at this place.
    Line(usize),
    RankEnd(usize),
}

impl Ready {
    /// The number that stands for it where a descriptor is waited for.
    fn tag(self) -> u64 {
        match self {
            Self::Interrupt => 0,
            Self::Link => 1,
            Self::Line(at) => at as u64 * 2 + 2,
            Self::RankEnd(at) => at as u64 * 2 + 3,
        }
    }

    fn of(tag: u64) -> Self {
        let at = |number: u64| usize::try_from(number / 2).unwrap_or(usize::MAX);
        match tag {
            0 => Self::Interrupt,
            1 => Self::Link,
            tag if tag.is_multiple_of(2) => Self::Line(at(tag - 2)),
            tag => Self::RankEnd(at(tag - 3)),
        }
    }
}

/// Descriptors to wait for.
#[derive(Debug)]
pub(super) struct Watch(OwnedFd);

impl Watch {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// From now on `source` is waited for.
    pub(super) fn add(&self, source: impl AsFd, what: Ready) -> io::Result<()> {
        let data = epoll::EventData::new_u64(what.tag());
        Ok(epoll::add(&self.0, source, data, epoll::EventFlags::IN)?)
    }

    /// From now on `source`, which was added, is waited for until it can be written too, or not any more.
    pub(super) fn also_writable(
        &self,
        source: impl AsFd,
        what: Ready,
        writable: bool,
    ) -> io::Result<()> {
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, writable);
        let data = epoll::EventData::new_u64(what.tag());
        Ok(epoll::modify(&self.0, source, data, flags)?)
    }

    /// From now on `source`, which was added, is not waited for.
    pub(super) fn remove(&self, source: impl AsFd) {
        // It may be waited for no more already.
        let _ = epoll::delete(&self.0, source);
    }

    /// Sleeps until something is readable, or at its end, or `until` has come, or a signal has; gives what is, that which
    /// became so first before the others.
    pub(super) fn ready(&self, until: Option<Instant>) -> io::Result<Vec<Ready>> {
        let timeout = until.map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec {
                // Longer than i64 seconds never comes.
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let mut events = Vec::with_capacity(LOOK);
        match epoll::wait(&self.0, spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(events.iter().map(|e| Ready::of(e.data.u64())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ready::{Line, Link, RankEnd};
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    #[test]
    fn numbers_tell_what_they_stand_for() {
        for what in [
            Ready::Interrupt,
            Link,
            Line(0),
            RankEnd(0),
            Line(7),
            RankEnd(7),
        ] {
            assert_eq!(Ready::of(what.tag()), what);
        }
    }

    #[test]
    fn room_to_write_is_seen_while_it_is_asked_for() {
        let watch = Watch::new().unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        watch.add(&ours, Link).unwrap();
        for (asked, seen) in [(true, vec![Link]), (false, vec![])] {
            watch.also_writable(&ours, Link, asked).unwrap();
            assert_eq!(watch.ready(Some(Instant::now())).unwrap(), seen);
        }
    }

    #[test]
    fn what_became_ready_first_is_told_first() {
        let watch = Watch::new().unwrap();
        let mut pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().unwrap()).collect();
        for (at, (ours, _)) in (0..).zip(&pairs) {
            watch.add(ours, Line(at)).unwrap();
        }
        assert_eq!(watch.ready(Some(Instant::now())).unwrap(), []);
        let order = [2, 0, 3, 1];
        for at in order {
            pairs[at].1.write_all(b"x").unwrap();
        }
        assert_eq!(watch.ready(None).unwrap(), order.map(Line));
        for (ours, _) in &mut pairs {
            ours.read_exact(&mut [0]).unwrap();
        }
        assert_eq!(watch.ready(Some(Instant::now())).unwrap(), []);
        // An end is ready too, and what is no longer waited for is not.
        watch.remove(&pairs[3].0);
        for at in [3, 1] {
            pairs[at].1.shutdown(std::net::Shutdown::Both).unwrap();
        }
        assert_eq!(watch.ready(None).unwrap(), [Line(1)]);
    }
}
