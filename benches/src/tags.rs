//! Tagged messages as a program sends them, and what folding (communicator, source, tag) into match bits costs: by
//! functions compiled for a layout, as `tagged` has them, and by ones that ask for the layout in each call.

use crate::turns::Over;
use portals_shim::Region;
use portals_shim::fabric::in_process;
use portals_shim::nal::shm;
use std::convert::Infallible;
use std::hint::black_box;
use tagged::layout::{NO_RESERVED_BITS, Pattern};
use tagged::{Comm, Layout, Options, Request, Slice, TagMode, World};

const TAG: i32 = 3;
/// Messages of a window.
pub const WINDOW: u64 = 64;

/// Two ranks that one thread plays.
#[derive(Debug)]
pub struct Tagged {
    worlds: [World; 2],
    comms: [Comm; 2],
    out: Slice,
    into: Slice,
    none: Slice,
    /// Receives of messages that do not come.
    ahead: Vec<Request>,
}

impl Tagged {
    /// Opened with one layout.
    ///
    /// # Errors
    /// No memory.
    pub fn new(over: Over, mode: TagMode) -> Result<Self, tagged::OpenError> {
        let options = Options {
            mode,
            ..Options::default()
        };
        Self::with(over, &options)
    }

    /// Two ranks with all options of [`Tagged::new`].
    ///
    /// # Errors
    /// No memory, or options that do not go together.
    pub fn with(over: Over, options: &Options) -> Result<Self, tagged::OpenError> {
        let opened = match over {
            Over::Process => in_process(2),
            Over::Memory => portals_shim::fabric::interfaces(
                shm::in_threads(2).map_err(|e| tagged::OpenError::Start(e.to_string()))?,
            ),
        };
        let mut opened = opened.into_iter();
        let mut open = |rank| {
            let next = opened.next();
            let next = next.ok_or_else(|| tagged::OpenError::Start("no interface".to_owned()))?;
            World::open(next, rank, options, || Ok::<(), Infallible>(()))
        };
        let worlds = [open(0)?, open(1)?];
        let slice = |len| {
            let region = Region::new(8).map_err(|e| tagged::OpenError::Start(e.to_string()))?;
            // A region may be longer than what was asked for.
            Slice::new(&region, 0, len).map_err(|e| tagged::OpenError::Start(e.to_string()))
        };
        let (out, none) = (slice(8)?, slice(0)?);
        Ok(Self {
            comms: [worlds[0].comm(), worlds[1].comm()],
            worlds,
            none,
            out,
            into: slice(8)?,
            ahead: Vec::new(),
        })
    }

    /// Posts receives on both ranks that no message matches.
    ///
    /// # Errors
    /// The library's.
    pub fn post_ahead(&mut self, receives: usize) -> Result<(), tagged::CallError> {
        for (rank, comm) in self.comms.iter().enumerate() {
            let peer = Some(1 - rank as u32);
            for _ in 0..receives {
                let receive = comm.irecv(&self.none, peer, Some(TAG + 2))?;
                self.ahead.push(receive);
            }
        }
        Ok(())
    }

    /// A message of 8 bytes there and one back, each into a receive that is posted; whether both came.
    #[must_use]
    pub fn round_trip(&self) -> bool {
        self.message(0, 1) && self.message(1, 0)
    }

    fn message(&self, from: u32, to: u32) -> bool {
        let [sender, receiver] = [from, to].map(|rank| &self.comms[rank as usize]);
        let receive = receiver.irecv(self.into.clone(), Some(from), Some(TAG));
        let sent = sender.send(self.out.clone(), to, TAG);
        let got = receive.map(|request| receiver.wait(request));
        sent.is_ok() && got.is_ok_and(|status| status.is_ok_and(|s| s.len == 8))
    }

    /// A window of messages of 8 bytes from rank 0 to rank 1, whose receives are posted, and an empty one back; whether all came.
    #[must_use]
    pub fn window(&self) -> bool {
        let [sender, receiver] = &self.comms;
        let start = |_| receiver.irecv(&self.into, Some(0), Some(TAG));
        let send = |_| sender.isend(&self.out, 1, TAG);
        let all = |comm: &Comm, some: Result<Vec<_>, _>| {
            some.is_ok_and(|mut some| comm.wait_all(&mut some).is_ok())
        };
        let back = sender.irecv(&self.none, Some(1), Some(TAG + 1));
        let receives: Result<Vec<_>, _> = (0..WINDOW).map(start).collect();
        let sends: Result<Vec<_>, _> = (0..WINDOW).map(send).collect();
        let came = all(receiver, receives) && all(sender, sends);
        let answered = receiver.send(&self.none, 0, TAG + 1).is_ok();
        came && answered && back.is_ok_and(|back| sender.wait(back).is_ok())
    }

    /// A round trip in which each message is there before its receive.
    #[must_use]
    pub fn unexpected_round_trip(&self) -> bool {
        self.unexpected(0, 1, TAG) && self.unexpected(1, 0, TAG)
    }

    fn unexpected(&self, from: u32, to: u32, tag: i32) -> bool {
        self.left(from, to, tag) && self.found(from, to, tag)
    }

    /// Sends a message that no receive awaits.
    fn left(&self, from: u32, to: u32, tag: i32) -> bool {
        self.comms[from as usize]
            .send(self.out.clone(), to, tag)
            .is_ok()
    }

    /// Finds a message and receives it.
    fn found(&self, from: u32, to: u32, tag: i32) -> bool {
        let receiver = &self.comms[to as usize];
        let found = receiver.probe(Some(from), Some(tag));
        let got = receiver.recv(self.into.clone(), Some(from), Some(tag));
        found.is_ok() && got.is_ok_and(|s| s.len == 8)
    }

    /// A message that waits while so many others, each there before its receive, pass it in both directions, then is
    /// received; whether all came.
    #[must_use]
    pub fn passed(&self, others: u32) -> bool {
        self.left(0, 1, TAG + 1)
            && (0..others).all(|_| self.unexpected_round_trip())
            && self.found(0, 1, TAG + 1)
    }

    /// Messages that were moved out of a full overflow buffer.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.worlds
            .iter()
            .flat_map(World::counts)
            .map(|counts| counts.moved)
            .sum()
    }
}

/// What of a message depends on the layout: its bits, what its receive compares, and its source and tag again.
#[derive(Clone, Copy, Debug)]
pub enum Fold {
    /// Compiled for the layout with the source in the header data.
    Full,
    /// Compiled for the layouts with the source in the match bits.
    Source,
    /// Asks the layout each time.
    Branching,
}

fn one<const FULL: bool>(l: &Layout, cid: u32, source: u32, tag: i32) -> (u64, Pattern, u32) {
    let bits = l.message::<FULL>(cid, source, tag, false);
    let pattern = l.pattern::<FULL>(cid, Some(source), Some(tag));
    (bits, pattern, l.source::<FULL>(bits, source))
}

/// What [`one`] counts, for any layout.
fn any(l: &Layout, cid: u32, source: u32, tag: i32) -> (u64, Pattern, u32) {
    // Three questions, as a send, a receive and an event ask them at different times.
    let bits = if black_box(l).is_full() {
        l.message::<true>(cid, source, tag, false)
    } else {
        l.message::<false>(cid, source, tag, false)
    };
    let pattern = if black_box(l).is_full() {
        l.pattern::<true>(cid, Some(source), Some(tag))
    } else {
        l.pattern::<false>(cid, Some(source), Some(tag))
    };
    let told = if black_box(l).is_full() {
        l.source::<true>(bits, source)
    } else {
        l.source::<false>(bits, source)
    };
    (bits, pattern, told)
}

impl Fold {
    /// Folds and unfolds so often; the count of those that came out right.
    #[must_use]
    pub fn repeat(self, times: u64) -> u64 {
        let mode = match self {
            Self::Full => TagMode::Full,
            Self::Source | Self::Branching => TagMode::Tag1,
        };
        let Ok(layout) = Layout::new(mode, NO_RESERVED_BITS) else {
            return 0;
        };
        let work = match self {
            Self::Full => one::<true>,
            Self::Source => one::<false>,
            Self::Branching => any,
        };
        let mut right = 0;
        for n in 0..times {
            let (cid, source, tag) = black_box((3, n as u32 & 0xffff, TAG));
            let (bits, pattern, told) = work(black_box(&layout), cid, source, tag);
            right += u64::from(pattern.admits(bits) && told == source);
        }
        right
    }
}
