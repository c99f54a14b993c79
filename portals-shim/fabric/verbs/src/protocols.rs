//! The table of protocols that users see: for each length, what `proto/select.rs` chooses.
//!
//! | protocol | file | when |
//! |---|---|---|
//! | `rma write`, `rma read` | `proto/rma_write.rs`, `proto/rma_read.rs` | the peer advertises the descriptor, and all before it has had its effect |
//! | `get by active message` | `proto/get_by_am.rs` | a short get of such a descriptor, where the peer's library is quicker than its adapter |
//! | `eager ring` | `proto/eager_ring.rs`, `peer/send_queue/eager_ring.rs` | header and data fit a slot, and the peer polls its ring; else as `eager send` |
//! | `eager send` | `proto/eager_send.rs`, `receive.rs` | they fit a receive |
//! | `rma write, send` | `proto/rma_write_send.rs` | the peer advertises the descriptor after some long puts; data in one piece |
//! | `rndv read` | `proto/rndv_read.rs` | longer: the target reads it |
//! | `eager datagram`, `eager datagrams` | `datagram/send.rs` | over datagrams: in one, or in several that the peer puts where they belong |

use super::adverts::Reach;
use super::datagram::first_data;
use super::frame::MESSAGE_HEAD;
use super::peer::COPY;
use super::proto::op::{Kind, Op};
use super::proto::select::{self, Carrier, PeerState, Protocol, Thresholds};
use super::settings::{Connect, Settings};
use super::verbs::NOBODY;
use fabric_api::call::Target;
use fabric_api::config::Channel;
use fabric_api::protocol::{Operation, Protocols, Reached};
use portals_core::MdHandle;
use verbs_backend::{Device, Remote};

/// What the choice asks an operation for besides its length; what is supposed of the peer answers whatever it is.
const ANYTHING: Target = Target {
    process: NOBODY,
    pt_index: 0,
    ac_index: 0,
    match_bits: 0,
    remote_offset: 0,
};

/// A peer whose memory is reached so, and where nothing is under way.
struct Supposed(Reached);

/// Anywhere.
const THERE: Remote = Remote {
    address: 0,
    rkey: 0,
};

impl PeerState for Supposed {
    fn may_reach(&self, _: u32) -> bool {
        self.0 != Reached::Matched
    }

    fn reach(&self, op: &Op) -> Option<Reach> {
        let there = Reach {
            remote: THERE,
            acks: true,
            events: (self.0 == Reached::Notified).then(|| MdHandle::from_raw(0)),
        };
        (op.len > 0 && self.may_reach(op.pt_index)).then_some(there)
    }

    fn is_settled(&self) -> bool {
        true
    }

    fn may_notify(&self) -> bool {
        true
    }

    fn answers_sooner(&self) -> bool {
        true
    }
}

/// The name of a protocol for `len` bytes, and why they go by it; `rings`: the peer polls a ring.
fn named(protocol: Protocol, len: u64, rings: bool) -> (&'static str, &'static str) {
    let frame = usize::try_from(len).map_or(usize::MAX, |len| MESSAGE_HEAD.saturating_add(len));
    match protocol {
        Protocol::Eager => match select::carrier(frame, COPY, rings, true) {
            Carrier::Ring(_) => ("eager ring", "it fits a slot where a peer that polls looks"),
            Carrier::Send => ("eager send", "header and data fit a receive of the peer"),
        },
        Protocol::RndvRead => ("rndv read", "the target's adapter reads it, without a copy"),
        Protocol::RmaWrite { .. } => ("rma write", "the adapter writes where the peer advertises"),
        Protocol::RmaWriteSend { .. } => (
            "rma write, send",
            "the adapter writes data in one piece, and a message has the peer post the events",
        ),
        Protocol::RmaRead(_) => ("rma read", "the adapter reads where the peer advertises"),
        Protocol::GetByAm(_) => (
            "get by active message",
            "the peer's library answers where that was quicker; else rma read",
        ),
    }
}

/// What is chosen for an operation of `len` bytes, as far as the target is known.
fn chosen(operation: Operation, reached: Reached, len: u64, thresholds: &Thresholds) -> Protocol {
    let kind = match (operation, reached) {
        (Operation::Put, _) => Kind::Put,
        // The reply is a message of the target.
        (Operation::Get, Reached::Matched) => Kind::Message,
        (Operation::Get, _) => Kind::Get,
    };
    let op = Op::immediate(kind, NOBODY, &ANYTHING, len);
    select::select(&op, &Supposed(reached), thresholds)
}

fn connected(device: &str, settings: &Settings, connect: Connect) -> Protocols {
    let rings = settings.rings(false) > 0;
    let thresholds = settings.thresholds(connect == Connect::Iwarp);
    let mut all = Protocols::new("verbs", format!("a reliable connection over {device}"));
    for (operation, reached) in [
        (Operation::Put, Reached::Direct),
        (Operation::Put, Reached::Notified),
        (Operation::Put, Reached::Matched),
        (Operation::Get, Reached::Direct),
        (Operation::Get, Reached::Matched),
    ] {
        all.add((operation, reached), |len| {
            named(chosen(operation, reached, len, &thresholds), len, rings)
        });
    }
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
    let (device, port) = Device::choose(device).map_err(|e| host::with_causes(&e))?;
    let name = device.name();
    let connections = || connected(name, &settings, settings.connect(&port));
    let datagrams = || datagrams(name, port.mtu.bytes());
    Ok(match channel {
        Channel::Rc => vec![connections()],
        Channel::Ud => vec![datagrams()],
        Channel::Auto => vec![datagrams(), connections()],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::select::ShortGets;

    type Row = (Operation, Reached, u64, Option<u64>, &'static str);

    fn rows(settings: &Settings, connect: Connect) -> Vec<Row> {
        let table = connected("rxe0", settings, connect);
        let rows = table.rows.iter();
        rows.map(|r| (r.operation, r.reached, r.from, r.to, r.name))
            .collect()
    }

    fn settings() -> Settings {
        Settings {
            notify_from: 2048,
            rings: 8,
            short_gets: ShortGets::Measured,
            thread: false,
            ..Settings::from_env().unwrap()
        }
    }

    #[test]
    fn the_table_is_what_is_chosen() {
        use Operation::{Get, Put};
        use Reached::{Direct, Matched, Notified};
        let ring = |operation, reached, to| (operation, reached, 0, Some(to), "eager ring");
        let send = |operation, reached, to| (operation, reached, 177, Some(to), "eager send");
        let long = |operation, reached| (operation, reached, 8193, None, "rndv read");
        assert_eq!(
            rows(&settings(), Connect::Words),
            [
                ring(Put, Direct, 0),
                (Put, Direct, 1, None, "rma write"),
                ring(Put, Notified, 176),
                send(Put, Notified, 2047),
                (Put, Notified, 2048, Some(8192), "rma write, send"),
                long(Put, Notified),
                ring(Put, Matched, 176),
                send(Put, Matched, 8192),
                long(Put, Matched),
                ring(Get, Direct, 0),
                (Get, Direct, 1, Some(192), "get by active message"),
                (Get, Direct, 193, None, "rma read"),
                ring(Get, Matched, 176),
                send(Get, Matched, 8192),
                long(Get, Matched),
            ]
        );
    }

    #[test]
    fn settings_and_adapter_show_in_the_table() {
        let has = |settings: &Settings, connect, name| {
            rows(settings, connect).iter().any(|row| row.4 == name)
        };
        let all = settings();
        assert!(!has(&all, Connect::Iwarp, "get by active message"));
        let no_rings = Settings { rings: 0, ..all };
        assert!(!has(&no_rings, Connect::Words, "eager ring"));
        let never = Settings {
            notify_from: usize::MAX,
            ..settings()
        };
        assert!(!has(&never, Connect::Words, "rma write, send"));
        let read = Settings {
            short_gets: ShortGets::RmaRead,
            ..settings()
        };
        assert!(!has(&read, Connect::Words, "get by active message"));
        assert!(has(&read, Connect::Words, "rma read"));
    }
}
