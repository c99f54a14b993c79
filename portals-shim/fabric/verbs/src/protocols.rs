//! Which protocol carries a message, and the table of them.
//!
//! | protocol | file | when |
//! |---|---|---|
//! | `rma write`, `rma read` | `send.rs` (`one_sided`), `alone.rs` | the peer advertises the descriptor, and all before it has had its effect |
//! | `get by active message` | `asked.rs` | a short get of such a descriptor, where the peer's library is quicker than its adapter |
//! | `eager ring` | `ring.rs`, `peer/ring.rs` | header and data fit a slot, and the peer polls its ring; else as `eager send` |
//! | `eager send` | `send.rs` (`eager`), `receive.rs` | they fit a receive |
//! | `rma write, send` | `written.rs` | the peer advertises the descriptor after some long puts; data in one piece |
//! | `rndv read` | `send.rs` (`announce`), `receive.rs` | longer: the target reads it |
//! | `eager datagram`, `eager datagrams` | `datagram/send.rs` | over datagrams: in one, or in several that the peer puts where they belong |

use super::advice::chain;
use super::asked;
use super::datagram::first_data;
use super::frame::{self, MESSAGE_HEAD};
use super::ring;
use super::settings::{Connect, Settings};
use fabric_api::config::Channel;
use fabric_api::protocol::{Operation, Protocols, Reached};
use verbs_backend::Device;

type Said = (&'static str, &'static str);

fn message(len: u64, rings: bool) -> Said {
    let ring =
        rings && usize::try_from(len).is_ok_and(|len| ring::taken(MESSAGE_HEAD + len).is_some());
    match frame::is_eager(len) {
        true if ring => ("eager ring", "it fits a slot where a peer that polls looks"),
        true => ("eager send", "header and data fit a receive of the peer"),
        false => ("rndv read", "the target's adapter reads it, without a copy"),
    }
}

fn connected(device: &str, settings: &Settings, connect: Connect) -> Protocols {
    let rings = settings.rings(false) > 0;
    let asks = |len| asked::may_ask(len, settings.reads, connect == Connect::Iwarp);
    let mut all = Protocols::new("verbs", format!("a reliable connection over {device}"));
    let message = |len| message(len, rings);
    all.add((Operation::Put, Reached::Direct), |len| match len {
        0 => message(0),
        _ => ("rma write", "the adapter writes where the peer advertises"),
    });
    all.add((Operation::Put, Reached::Notified), |len| {
        let written = usize::try_from(len).is_ok_and(|len| settings.writes(len));
        match written {
            true => (
                "rma write, send",
                "the adapter writes data in one piece, and a message has the peer post the events",
            ),
            false => message(len),
        }
    });
    all.add((Operation::Put, Reached::Matched), message);
    all.add((Operation::Get, Reached::Direct), |len| match len {
        0 => message(0),
        len if asks(len) => (
            "get by active message",
            "the peer's library answers where that was quicker; else rma read",
        ),
        _ => ("rma read", "the adapter reads where the peer advertises"),
    });
    // The answer is a message of the target.
    all.add((Operation::Get, Reached::Matched), message);
    all
}

fn datagrams(device: &str, mtu: usize) -> Protocols {
    let mut all = Protocols::new(
        "verbs",
        format!("reliable datagrams over {device}, at most {mtu} bytes each"),
    );
    let message = |len| match usize::try_from(len) {
        Ok(len) if len <= first_data(mtu) => ("eager datagram", "header and data fit one"),
        _ => (
            "eager datagrams",
            "its rest follows, and goes where the first one matched",
        ),
    };
    all.add((Operation::Put, Reached::Matched), message);
    // The answer is a message of the target.
    all.add((Operation::Get, Reached::Matched), message);
    all
}

/// The protocols over a device, the one of `PORTOLAN_DEVICE` or the first if none is named, as the environment sets them: a
/// table for connections, one for datagrams, or both.
///
/// # Errors
/// The device cannot be used, or a variable has no value that it may have.
pub fn protocols(device: Option<&str>, channel: Channel) -> Result<Vec<Protocols>, String> {
    let settings = Settings::from_env().map_err(|e| e.to_string())?;
    let (device, port) = Device::choose(device).map_err(|e| chain(&e))?;
    let name = device.name();
    let connections = || connected(name, &settings, settings.connect(&port));
    let datagrams = || datagrams(name, port.mtu.bytes());
    Ok(match channel {
        Channel::Rc => vec![connections()],
        Channel::Ud => vec![datagrams()],
        Channel::Auto => vec![datagrams(), connections()],
    })
}
