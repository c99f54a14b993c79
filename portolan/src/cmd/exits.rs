//! `portolan exits`: a rank that ends in one of many ways, for tests of how jobs end.
//!
//! The numbers are those of GASNet's own test of exits; what a rank of Rust cannot do as one of C does
//! says so. Others than the rank that ends are in a barrier, poll, or never call.

use std::cell::Cell;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Args;
use conduit::{BarrierName, ClockKind, Conduit, HandlerEntry, Par, ParHandler};

use crate::cmd::say;
use crate::error::CmdError;

/// Options of `portolan exits`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The way to end, 1 to 18; a signal by name, which the last rank sends itself (deaf-NAME: and makes no call
    /// afterwards; twice-NAME: two of them); panic; ways, for the list of these; or traffic without an end, for faults: endless-barrier, endless-am, endless-medium, endless-long, endless-put, endless-get
    way: String,
}

/// Handler that exits with its argument.
const EXIT: u8 = 201;
/// Handler that does nothing.
const IDLE: u8 = 202;
/// Handlers of a round trip.
const PING: u8 = 203;
const PONG: u8 = 204;
/// Requests before the one that exits.
const BEFORE: i32 = 500;
/// In front of a signal: the rank makes no call afterwards.
const DEAF: &str = "deaf-";
/// The same, and the signal comes twice.
const TWICE: &str = "twice-";
/// Threads of a rank.
const THREADS: u32 = 4;

fn failed(what: &'static str) -> impl FnOnce(&dyn std::error::Error) -> CmdError {
    move |error| CmdError::Usage(format!("{what}: {error}"))
}

/// Computes for ever: never calls.
fn spin() -> ! {
    loop {
        std::thread::park();
    }
}

/// Tells the last rank that this one makes no call any more, by the last call: a put, which looks at no message where memory
/// is shared.
fn note_spinning(conduit: &Conduit) -> Result<(), CmdError> {
    let last = conduit.nodes() - 1;
    let mine = conduit.segment(last).addr + u64::from(conduit.mynode());
    conduit.put(last, mine, &[1]).map_err(|e| failed("put")(&e))
}

/// Waits until all other ranks have said so.
fn meet_spinning(conduit: &Conduit) -> Result<(), CmdError> {
    let me = conduit.mynode();
    let mut said = vec![0; me as usize];
    while said.contains(&0) {
        conduit
            .get(&mut said, me, conduit.segment(me).addr)
            .map_err(|e| failed("get")(&e))?;
        conduit.poll();
        std::thread::yield_now();
    }
    Ok(())
}

fn barrier(conduit: &Conduit) {
    // An exit of another rank ends this one in here.
    let _ = conduit.barrier(BarrierName::Anonymous);
}

fn handlers() -> Vec<HandlerEntry> {
    vec![
        HandlerEntry::new(EXIT, |token, _, args| {
            token.conduit().exit(args.first().copied().unwrap_or(0))
        }),
        HandlerEntry::new(IDLE, |_, _, _| {}),
    ]
}

/// Sends the own process a signal.
fn raise(signal: &str) -> Result<(), CmdError> {
    let pid = std::process::id().to_string();
    let sent = Command::new("kill").args(["-s", signal, &pid]).status();
    match sent {
        Ok(status) if status.success() => Ok(()),
        _ => Err(CmdError::Usage(format!("cannot send SIG{signal}"))),
    }
}

/// Runs one rank.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    match options.way.parse::<i32>() {
        Ok(way @ 14..=18) => threads(way),
        Ok(way) => one_thread(way),
        Err(_) if options.way == "ways" => list(),
        Err(_) => match options.way.strip_prefix("endless-") {
            Some(kind) => endless(kind),
            None => crash(&options.way),
        },
    }
}

/// Signals and the status of a job of which one rank has had it; SIGTERM keeps its default where time is virtual.
const SIGNALS: [(&str, i32, i32); 15] = [
    ("ABRT", 128 + 6, 128 + 6),
    ("SEGV", 128 + 11, 128 + 11),
    ("BUS", 128 + 7, 128 + 7),
    ("FPE", 128 + 8, 128 + 8),
    ("KILL", 128 + 9, 128 + 9),
    ("INT", 1, 1),
    ("QUIT", 1, 1),
    ("HUP", 1, 1),
    ("TERM", 1, 128 + 15),
    // The rank makes no call afterwards.
    ("deaf-INT", 128 + 2, 128 + 2),
    ("deaf-TERM", 128 + 15, 128 + 15),
    ("deaf-HUP", 128 + 1, 128 + 1),
    ("twice-INT", 1, 1),
    ("twice-TERM", 1, 128 + 15),
    // Or the rank's own, 101, if that is the first that the launcher sees.
    ("panic", 1, 1),
];

/// A line for each way: the way, the job's status where time is real, and where it is virtual.
fn list() -> Result<u8, CmdError> {
    let mut text = String::new();
    for way in 1..=18 {
        // Returning from main drops the conduit, which does not know the status: the rank's own counts, or
        // 1 where the others cannot be told.
        let status = if way == 9 { 1 } else { way };
        text.push_str(&format!("{way} {status} {status}\n"));
    }
    for (way, wall, model) in SIGNALS {
        text.push_str(&format!("{way} {wall} {model}\n"));
    }
    say(text.trim_end())?;
    Ok(0)
}

fn init() -> Result<Conduit, CmdError> {
    Conduit::init().map_err(|e| failed("init")(&e))
}

fn one_thread(way: i32) -> Result<u8, CmdError> {
    let conduit = init()?;
    let (me, nodes) = (conduit.mynode(), conduit.nodes());
    let last = me == nodes - 1;
    // A rank that never calls holds virtual time back, and with it ranks that are in a collective call:
    // on the model those that are to spin do so before the first.
    let early = conduit.clock() == ClockKind::Virtual;
    match way {
        6 => conduit.exit(6),
        7 if last => conduit.exit(7),
        5 if last && early => conduit.exit(5),
        9 if last && early => return Ok(9),
        5 | 9 if early => spin(),
        _ => {}
    }
    conduit
        .attach(handlers(), 4096)
        .map_err(|e| failed("attach")(&e))?;
    barrier(&conduit);
    let request = |to, handler, args: &[i32]| {
        conduit
            .am_request_short(to, handler, args)
            .map_err(|e| failed("request")(&e))
    };
    match way {
        1 => conduit.exit(1),
        2 => return Ok(2),
        3 if last => conduit.exit(3),
        4 if last => {
            conduit.set_signal_status(4);
            raise("INT")?;
            conduit.block_until(|| false);
        }
        5 if last => conduit.exit(5),
        8 if last => return Ok(8),
        9 if last => {
            // A rank that still polls would hear of the end, and the job end with the rank's own status.
            meet_spinning(&conduit)?;
            return Ok(9);
        }
        9 => {
            note_spinning(&conduit)?;
            spin()
        }
        5 => spin(),
        10 => {
            request((me + 1) % nodes, EXIT, &[10])?;
            conduit.block_until(|| false);
        }
        11 if last => request(0, EXIT, &[11])?,
        12 if last => request(me, EXIT, &[12])?,
        13 if last => {
            for _ in 0..BEFORE {
                request(0, IDLE, &[])?;
            }
            request(0, EXIT, &[13])?;
        }
        _ => {}
    }
    // A barrier would be complete before requests are handled that were sent before it.
    if (11..=13).contains(&way) {
        conduit.block_until(|| false);
    }
    barrier(&conduit);
    // Only ranks that nothing ended come here.
    Err(CmdError::Usage(format!("way {way}: still here")))
}

fn threads(way: i32) -> Result<u8, CmdError> {
    let par = Par::share(init()?);
    let early = way == 16 && par.with(Conduit::clock) == ClockKind::Virtual;
    if early {
        // As in `one_thread`.
        if par.mynode() == par.nodes() - 1 {
            std::thread::scope(|s| s.spawn(|| par.exit(16)).join().ok());
        }
        spin();
    }
    let count = Arc::new(AtomicU32::new(0));
    let counter = count.clone();
    let idle = ParHandler::new(IDLE, move |_, _, _| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    par.attach(vec![idle], 4096)
        .map_err(|e| failed("attach")(&e))?;
    par.with(barrier);
    let (me, last) = (par.mynode(), par.nodes() - 1);
    std::thread::scope(|s| {
        for thread in 0..THREADS {
            let par = &par;
            s.spawn(move || {
                let first = me == last && thread == 0;
                match way {
                    14 => par.exit(14),
                    _ if first => par.exit(way),
                    15 if thread == 1 => par.with(barrier),
                    16 => spin(),
                    17 => loop {
                        par.with(Conduit::poll);
                    },
                    18 => loop {
                        let to = (me + thread) % (last + 1);
                        let _ = par.with(|c| c.am_request_short(to, IDLE, &[]));
                    },
                    _ => par.with(|c| c.block_until(|| false)),
                }
            });
        }
    });
    Err(CmdError::Usage(format!("way {way}: still here")))
}

/// Every rank does the same with the next one until something ends the job.
fn endless(kind: &str) -> Result<u8, CmdError> {
    const BYTES: usize = 64 << 10;
    let conduit = init()?;
    let pongs = Rc::new(Cell::new(0u64));
    let counter = pongs.clone();
    let handlers = vec![
        HandlerEntry::new(PING, |token, _, _| {
            // Before the reply can go nothing else of the token was used.
            let _ = token.reply_short(PONG, &[]);
        }),
        HandlerEntry::new(PONG, move |_, _, _| counter.set(counter.get() + 1)),
        HandlerEntry::new(IDLE, |_, _, _| {}),
    ];
    conduit
        .attach(handlers, BYTES)
        .map_err(|e| failed("attach")(&e))?;
    let (me, next) = (conduit.mynode(), (conduit.mynode() + 1) % conduit.nodes());
    let there = conduit.segment(next).addr;
    let mut buffer = vec![0u8; BYTES];
    for turn in 0u64.. {
        let done = match kind {
            "barrier" => conduit
                .barrier(BarrierName::Anonymous)
                .map_err(|e| e.to_string()),
            "am" => {
                let before = pongs.get();
                let sent = conduit.am_request_short(next, PING, &[]);
                conduit.block_until(|| sent.is_err() || pongs.get() > before);
                sent.map_err(|e| e.to_string())
            }
            "medium" => conduit
                .am_request_medium(next, IDLE, &buffer[..1984], &[])
                .map_err(|e| e.to_string()),
            "long" => conduit
                .am_request_long_from_segment(next, IDLE, 0, BYTES, there, &[])
                .map_err(|e| e.to_string()),
            "put" => conduit.put(next, there, &buffer).map_err(|e| e.to_string()),
            "get" => conduit
                .get(&mut buffer, next, there)
                .map_err(|e| e.to_string()),
            _ => return Err(CmdError::Usage(format!("no traffic is called {kind}"))),
        };
        done.map_err(CmdError::Usage)?;
        if turn == 0 {
            portals_shim::say(format_args!("rank {me}: traffic"));
        }
    }
    Ok(0)
}

/// The last rank ends as no rank should; the others are in a barrier.
fn crash(way: &str) -> Result<u8, CmdError> {
    let conduit = init()?;
    conduit
        .attach(handlers(), 4096)
        .map_err(|e| failed("attach")(&e))?;
    barrier(&conduit);
    if conduit.mynode() == conduit.nodes() - 1 {
        match way {
            "panic" => panic!("asked to"),
            signal => {
                let (deaf, twice) = (signal.strip_prefix(DEAF), signal.strip_prefix(TWICE));
                let signal = deaf.or(twice).unwrap_or(signal);
                raise(signal)?;
                if twice.is_some() {
                    raise(signal)?;
                }
                if deaf.or(twice).is_some() {
                    spin();
                }
                // Rust looks at the first of these for an overflow of the stack.
                if matches!(signal, "SEGV" | "BUS") {
                    raise(signal)?;
                }
            }
        }
        // A signal that is obeyed in polls.
        conduit.block_until(|| false);
    }
    barrier(&conduit);
    Err(CmdError::Usage(format!("{way}: still here")))
}
