//! Traffic that faults are made in: `cargo xtask faults` runs it over verbs, a process for each rank.
//!
//! Each rank puts and gets 1 MiB pieces at the next one, by the library and by the adapter alone, and short messages
//! between them. It says on standard error when its traffic flows, and at the end on standard output how each
//! operation ended. What arrives is numbered: a message that came twice, or in another order, is an error.
//!
//! ```text
//! fault_traffic [SECONDS]   traffic for so long, a second if not said
//! fault_traffic fresh       every long put is from memory that was never registered; a while after one has failed, the
//!                           rank ends its traffic, and the next one does when it hears so
//! ```
//!
//! | exit status | meaning |
//! |---|---|
//! | 0 | every operation ended, and what failed has said so; the peer is still there |
//! | 1 | the peer was given up, after which every operation ended with a failure |
//! | 3 | the fabric could not be opened |
//! | 4 | something is not as documented: lost, twice, out of order, or without an end; the line says what |

use portals_shim::fabric::{self, FabricConfig, FabricError, Opened};
use portals_shim::job::Job;
use portals_shim::{
    AckRequest, EqHandle, Event, EventKind, InsertPosition, MdHandle, MdMemory, MdOptions, MdSpec,
    MeSpec, NiFail, ProcessId, Region, THRESHOLD_INFINITE, Target, Unlink, Wait,
};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const PORTAL: u32 = 4;
const LONG: u64 = 1 << 20;
const SHORT: u64 = 8;
/// Operations under way at once.
const WINDOW: u64 = 4;
/// No operation takes longer: the library gives a peer up before.
const LIMIT: Duration = Duration::from_secs(40);

/// With a queue at the target: long messages, short ones, the last one.
const LOUD: u64 = 1;
const BRIEF: u64 = 2;
const LAST: u64 = 3;
/// Without one: the adapter serves it alone.
const QUIET: u64 = 4;

/// Ends of one kind of operation.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    begun: u64,
    /// SEND_ENDs of puts.
    left: u64,
    /// ACKs of puts, REPLY_ENDs of gets.
    answered: u64,
    failed: u64,
}

impl Count {
    fn under_way(self, gets: bool) -> u64 {
        let left = if gets { self.begun } else { self.left };
        self.begun - left.min(self.answered)
    }
}

struct Rank<'a> {
    rank: u32,
    o: &'a Opened,
    next: ProcessId,
    eq: EqHandle,
    source: MdHandle,
    source_memory: Region,
    landing: MdHandle,
    /// Every long put is from memory of its own.
    fresh: bool,
    loud: Count,
    brief: Count,
    quiet: Count,
    gets: Count,
    last: Count,
    /// Numbers of the next long and short message of the previous rank: at least.
    expected: [u64; 2],
    /// Messages that have arrived whole.
    arrived: u64,
    last_arrived: bool,
    wrong: Vec<String>,
}

fn spec(memory: MdMemory, options: MdOptions, eq: Option<EqHandle>) -> MdSpec {
    MdSpec {
        memory,
        threshold: THRESHOLD_INFINITE,
        max_size: 0,
        options,
        user_ptr: 0,
        eq,
    }
}

fn region(len: u64) -> Region {
    Region::new(len as usize).expect("memory")
}

impl<'a> Rank<'a> {
    fn new(rank: u32, o: &'a Opened, fresh: bool) -> Self {
        let ni = &o.interface;
        // More than can come while this rank looks elsewhere; an overflow is noticed all the same.
        let eq = ni.eq_alloc(4096).expect("a queue");
        let takes = MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE;
        for (bits, len, eq) in [
            (LOUD, LONG, Some(eq)),
            (BRIEF, SHORT, Some(eq)),
            (LAST, SHORT, Some(eq)),
            (QUIET, LONG, None),
        ] {
            let entry = MeSpec {
                match_id: ProcessId::ANY,
                match_bits: bits,
                ignore_bits: 0,
                unlink: Unlink::Retain,
            };
            let me = ni.me_attach(PORTAL, entry, InsertPosition::After);
            let memory = MdMemory::whole(&region(len));
            ni.md_attach(
                me.expect("an entry"),
                spec(memory, takes, eq),
                Unlink::Retain,
            )
            .expect("a descriptor");
        }
        let source_memory = region(LONG);
        let bind = |memory: &Region| {
            let spec = spec(MdMemory::whole(memory), MdOptions::empty(), Some(eq));
            ni.md_bind(spec, Unlink::Retain).expect("a descriptor")
        };
        Self {
            rank,
            o,
            next: o.peers[(rank as usize + 1) % o.peers.len()],
            eq,
            source: bind(&source_memory),
            source_memory,
            landing: bind(&region(LONG)),
            fresh,
            loud: Count::default(),
            brief: Count::default(),
            quiet: Count::default(),
            gets: Count::default(),
            last: Count::default(),
            expected: [0; 2],
            arrived: 0,
            last_arrived: false,
            wrong: Vec::new(),
        }
    }

    fn under_way(&self) -> u64 {
        let puts = [self.loud, self.brief, self.quiet, self.last];
        puts.iter().map(|c| c.under_way(false)).sum::<u64>() + self.gets.under_way(true)
    }

    fn failed(&self) -> u64 {
        let all = [self.loud, self.brief, self.quiet, self.gets, self.last];
        all.iter().map(|c| c.failed).sum()
    }

    fn there(&self, bits: u64) -> Target {
        Target {
            process: self.next,
            pt_index: PORTAL,
            ac_index: 0,
            match_bits: bits,
            remote_offset: 0,
        }
    }

    fn put(&mut self, bits: u64, len: u64, number: u64) {
        let ni = &self.o.interface;
        let mut from = self.source;
        if self.fresh && len == LONG {
            // Memory that was never registered; the descriptor is unlinked by its own threshold.
            let memory = MdMemory::whole(&region(LONG));
            let spec = MdSpec {
                threshold: 2,
                ..spec(memory, MdOptions::empty(), Some(self.eq))
            };
            from = ni.md_bind(spec, Unlink::Unlink).expect("a descriptor");
        } else {
            let word = number.to_le_bytes();
            self.source_memory.write(0, &word).expect("in range");
        }
        let there = self.there(bits);
        ni.put_region(from, (0, len), AckRequest::Ack, there, number)
            .expect("a put can be made");
    }

    /// One more operation, of each kind in turn.
    fn begin(&mut self, turn: u64) {
        match turn % 4 {
            0 => {
                self.put(LOUD, LONG, self.loud.begun);
                self.loud.begun += 1;
            }
            1 => {
                self.put(BRIEF, SHORT, self.brief.begun);
                self.brief.begun += 1;
            }
            2 => {
                self.put(QUIET, LONG, 0);
                self.quiet.begun += 1;
            }
            _ => {
                let there = self.there(QUIET);
                let ni = &self.o.interface;
                ni.get_region(self.landing, (0, LONG), there)
                    .expect("a get can be made");
                self.gets.begun += 1;
            }
        }
    }

    fn event(&mut self, e: &Event) {
        let bad = u64::from(e.ni_fail != NiFail::OK);
        let count = match e.match_bits {
            LOUD => &mut self.loud,
            BRIEF => &mut self.brief,
            LAST => &mut self.last,
            _ if e.kind == EventKind::ReplyEnd => &mut self.gets,
            _ => &mut self.quiet,
        };
        match e.kind {
            EventKind::SendEnd => count.left += 1,
            EventKind::Ack | EventKind::ReplyEnd => {
                count.answered += 1;
                count.failed += bad;
            }
            EventKind::PutStart => self.number(e),
            EventKind::PutEnd if bad == 0 => {
                self.arrived += 1;
                self.last_arrived |= e.match_bits == LAST;
            }
            _ => {}
        }
        for count in [self.loud, self.brief, self.quiet, self.last] {
            if count.left > count.begun || count.answered > count.begun {
                self.wrong.push(format!("an operation ended twice: {e:?}"));
            }
        }
    }

    /// A numbered message begins to arrive. Numbers that are missing belong to messages that were not sent.
    fn number(&mut self, e: &Event) {
        let at = match e.match_bits {
            LOUD => 0,
            BRIEF => 1,
            _ => return,
        };
        if e.hdr_data < self.expected[at] {
            let wanted = self.expected[at];
            let wrong = format!(
                "message {} of {} came after {wanted}",
                e.hdr_data, e.match_bits
            );
            self.wrong.push(wrong);
        }
        self.expected[at] = e.hdr_data + 1;
    }

    /// Takes events until there are none, or until `limit` if there are none at all.
    fn look(&mut self, limit: Duration) {
        let mut wait = Wait::Nanos(limit.as_nanos() as u64);
        loop {
            match self.o.interface.eq_poll(&[self.eq], wait) {
                Ok(Some(polled)) => {
                    if polled.dropped {
                        self.wrong.push("events were lost".to_owned());
                    }
                    self.event(&polled.event);
                }
                Ok(None) => return,
                Err(error) => {
                    // The device is gone; the events of what failed are still to be had.
                    if !matches!(wait, Wait::No) {
                        wait = Wait::No;
                        continue;
                    }
                    tracing::debug!(%error, "no events");
                    return;
                }
            }
            wait = Wait::No;
        }
    }

    /// Waits for the end of all but `most` operations.
    fn drain(&mut self, most: u64) {
        let end = Instant::now() + LIMIT;
        while self.under_way() > most {
            if Instant::now() > end {
                let under_way = self.under_way();
                let wrong = format!("{under_way} operations have no end after {LIMIT:?}");
                self.wrong.push(wrong);
                return;
            }
            self.look(Duration::from_millis(20));
        }
    }

    /// Whether the traffic has been long enough, which may end at `end`.
    fn is_enough(&self, end: Option<Instant>) -> bool {
        if self.fresh {
            // Short messages were put after the long one failed.
            self.last_arrived || self.loud.failed >= 2
        } else {
            end.is_some_and(|end| Instant::now() >= end)
        }
    }

    /// The traffic; whether the peer is still there at its end.
    fn run(&mut self, length: Duration) -> bool {
        let mut end = None;
        let mut turn = 0;
        while !self.is_enough(end) && self.wrong.is_empty() {
            self.begin(turn);
            turn += 1;
            self.drain(WINDOW - 1);
            self.look(Duration::ZERO);
            // Messages fail only when the peer has been given up, or their memory cannot be registered.
            let given_up = if self.fresh {
                self.brief.failed
            } else {
                self.brief.failed + self.loud.failed
            };
            if given_up > 0 {
                self.drain(0);
                return false;
            }
            if end.is_none() && self.loud.answered > 0 && self.gets.answered > 0 {
                portals_shim::say(format_args!("rank {}: traffic", self.rank));
                end = Some(Instant::now() + length);
            }
        }
        self.drain(0);
        if self.brief.failed > 0 || (!self.fresh && self.loud.failed > 0) {
            return false;
        }
        self.put(LAST, SHORT, 0);
        self.last.begun += 1;
        self.drain(0);
        if self.last.failed > 0 {
            return false;
        }
        let limit = Instant::now() + LIMIT;
        while !self.last_arrived && self.wrong.is_empty() {
            if Instant::now() > limit {
                self.wrong.push("the last message has not come".to_owned());
            }
            self.look(Duration::from_millis(20));
        }
        true
    }

    fn report(&self) -> String {
        let kind = |name: &str, c: Count| format!("{name} {} ({} failed)", c.answered, c.failed);
        format!(
            "rank {}: {}, {}, {}, {}; {} arrived in order",
            self.rank,
            kind("long puts", self.loud),
            kind("short puts", self.brief),
            kind("one-sided puts", self.quiet),
            kind("gets", self.gets),
            self.arrived
        )
    }
}

fn main() -> ExitCode {
    let mut length = Duration::from_secs(1);
    let mut fresh = false;
    for word in std::env::args().skip(1) {
        match word.parse() {
            Ok(seconds) => length = Duration::from_secs_f64(seconds),
            Err(_) if word == "fresh" => fresh = true,
            Err(_) => {
                portals_shim::say(format_args!("usage: fault_traffic [SECONDS] | fresh"));
                return ExitCode::from(2);
            }
        }
    }
    let _ = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .try_init();
    let opened = Job::from_env().map_err(FabricError::from).and_then(|job| {
        let opened = fabric::open(&job, &FabricConfig::from_env()?)?;
        Ok((job, opened))
    });
    let (job, opened) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            portals_shim::say(format_args!("fault_traffic: {error}"));
            return ExitCode::from(3);
        }
    };
    let mut rank = Rank::new(job.rank(), &opened, fresh);
    let met = opened.interface.outside(|| job.barrier());
    if !matches!(met, Ok(Ok(()))) {
        portals_shim::say(format_args!(
            "fault_traffic: the ranks do not meet: {met:?}"
        ));
        return ExitCode::from(4);
    }
    let there = rank.run(length);
    println!("{}", rank.report());
    if !rank.wrong.is_empty() {
        for wrong in &rank.wrong {
            portals_shim::say(format_args!(
                "rank {}: NOT AS DOCUMENTED: {wrong}",
                job.rank()
            ));
        }
        return ExitCode::from(4);
    }
    if !there {
        let failed = rank.failed();
        portals_shim::say(format_args!(
            "rank {}: the next rank is gone, {failed} operations failed",
            job.rank()
        ));
        return ExitCode::from(1);
    }
    // Nobody closes while another may still need its progress.
    let met = opened.interface.outside(|| job.barrier());
    let closed = opened.interface.close();
    if let (Ok(Ok(())), Ok(()), Ok(())) = (met, closed, job.finalize()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(4)
    }
}
