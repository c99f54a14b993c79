//! `portolan messages`: every kind of active message, with 0 to 16 arguments and payloads of every kind of
//! size, as request and as reply between all neighbours at once; for tests on every fabric.

use std::cell::RefCell;
use std::rc::Rc;

use clap::Args;
use conduit::{BarrierName, Conduit, HandlerEntry, MAX_ARGS, MAX_MEDIUM, Payload, Token};

use crate::cmd::say;
use crate::error::CmdError;

/// Options of `portolan messages`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only so many round trips of Shorts without arguments, from rank 0 to rank 1
    #[arg(long, value_name = "N")]
    round_trips: Option<u64>,
}

/// Answers with a message of the same kind.
const ECHO: u8 = 200;
/// Keeps what arrived.
const SINK: u8 = 201;
/// Requests go to the lower half of a segment, replies to the upper.
const HALF: usize = 1 << 18;

/// Around the ends of argument padding, of a chunk, of a credit and of a packet.
const SIZES: [usize; 18] = [
    0, 1, 7, 8, 12, 16, 17, 63, 64, 192, 193, 255, 256, 257, 1000, 1919, 1983, MAX_MEDIUM,
];
const LONGER: [usize; 6] = [1985, 2040, 2048, 2049, 70_000, HALF];

fn wrong(what: impl std::fmt::Display) -> CmdError {
    CmdError::Usage(what.to_string())
}

/// What the last reply brought.
#[derive(Debug, Default)]
struct Seen {
    source: u32,
    args: Vec<i32>,
    payload: Vec<u8>,
    count: u64,
    refused: Option<String>,
}

/// The bytes of a payload, wherever they are.
fn bytes(token: &Token<'_>, payload: &Payload<'_>) -> Result<Vec<u8>, String> {
    match payload {
        Payload::None => Ok(vec![]),
        Payload::Medium(bytes) => Ok(bytes.to_vec()),
        Payload::Long { offset, len, .. } => {
            let mut bytes = vec![0; *len];
            let segment = token.conduit().local_segment().ok_or("no segment")?;
            segment
                .read(*offset, &mut bytes)
                .map_err(|e| e.to_string())?;
            Ok(bytes)
        }
    }
}

fn echo(token: &mut Token<'_>, payload: &Payload<'_>, args: &[i32]) -> Result<(), String> {
    let back: Vec<i32> = args.iter().rev().copied().collect();
    let mut data = bytes(token, payload)?;
    data.iter_mut().for_each(|b| *b = b.wrapping_add(1));
    let base = token.conduit().segment(token.source()).addr + HALF as u64;
    match payload {
        Payload::None => token.reply_short(SINK, &back),
        Payload::Medium(_) => token.reply_medium(SINK, &data, &back),
        Payload::Long { .. } => token.reply_long(SINK, &data, base, &back),
    }
    .map_err(|e| e.to_string())
}

fn handlers(seen: &Rc<RefCell<Seen>>) -> Vec<HandlerEntry> {
    let (at_echo, at_sink) = (seen.clone(), seen.clone());
    vec![
        HandlerEntry::new(ECHO, move |token, payload, args| {
            if let Err(e) = echo(token, &payload, args) {
                at_echo.borrow_mut().refused = Some(e);
            }
        }),
        HandlerEntry::new(SINK, move |token, payload, args| {
            let got = bytes(token, &payload);
            let mut seen = at_sink.borrow_mut();
            seen.source = token.source();
            seen.args = args.to_vec();
            seen.count += 1;
            match got {
                Ok(got) => seen.payload = got,
                Err(e) => seen.refused = Some(e),
            }
        }),
    ]
}

/// The two ranks of a round trip; others wait.
fn round_trips(conduit: &Conduit, seen: &Rc<RefCell<Seen>>, times: u64) -> Result<(), CmdError> {
    let mut rounds = 0;
    while conduit.mynode() == 0 && conduit.nodes() > 1 && rounds < times {
        conduit.am_request_short(1, ECHO, &[]).map_err(wrong)?;
        rounds += 1;
        conduit.block_until(|| seen.borrow().count == rounds);
    }
    Ok(())
}

/// Runs one rank.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    let conduit = Conduit::init().map_err(wrong)?;
    let seen = Rc::new(RefCell::new(Seen::default()));
    conduit.attach(handlers(&seen), 2 * HALF).map_err(wrong)?;
    if let Some(times) = options.round_trips {
        round_trips(&conduit, &seen, times)?;
        conduit.finish();
        return Ok(0);
    }
    let peer = (conduit.mynode() + 1) % conduit.nodes();
    let there = conduit.segment(peer).addr;
    let mut rounds = 0u64;
    for count in 0..=MAX_ARGS {
        let short = [(0, 0)];
        let medium = SIZES.map(|size| (1, size));
        let long = SIZES.into_iter().chain(LONGER).map(|size| (2, size));
        for (kind, size) in short.into_iter().chain(medium).chain(long) {
            let args: Vec<i32> = (0..count as i32).map(|i| i * 1001 - size as i32).collect();
            let data: Vec<u8> = (0..size).map(|i| (i * 7 + count + kind) as u8).collect();
            match kind {
                0 => conduit.am_request_short(peer, ECHO, &args),
                1 => conduit.am_request_medium(peer, ECHO, &data, &args),
                _ => conduit.am_request_long(peer, ECHO, &data, there, &args),
            }
            .map_err(wrong)?;
            rounds += 1;
            conduit.block_until(|| {
                let seen = seen.borrow();
                seen.count == rounds || seen.refused.is_some()
            });
            let seen = seen.borrow();
            let good = seen.refused.is_none()
                && seen.source == peer
                && seen.args.iter().rev().eq(&args)
                && seen.payload.len() == size
                && seen
                    .payload
                    .iter()
                    .zip(&data)
                    .all(|(a, b)| *a == b.wrapping_add(1));
            if !good {
                let what = ["Short", "Medium", "Long"][kind];
                let said = seen.refused.clone().unwrap_or_default();
                return Err(wrong(format!(
                    "{what}, {count} arguments, {size} bytes: {said}"
                )));
            }
        }
    }
    conduit.barrier(BarrierName::Anonymous).map_err(wrong)?;
    if conduit.mynode() == 0 {
        say(&format!("{rounds} messages and replies on each rank: ok"))?;
    }
    conduit.finish();
    Ok(0)
}
