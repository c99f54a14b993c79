//! What a put does in each mode, with each report, on every fabric: all of it or nothing, and the events that it promises.

use fabric_testing::{Rank, device, entry, joined, on_the_model, spec, to, two_ranks};
use portals_shim::fabric;
use portals_shim::nal::{seastar, shm, verbs};
use portals_shim::{
    AckRequest, EqHandle, EventKind, InsertPosition, MdHandle, MdMemory, MdSpec, NiFail, Posted,
    Put, Region, Report, Unlink, Wait,
};

/// Of the descriptor that puts go to, which makes no event, of one that is told when they have, and of the initiator's, which is
/// told when their bytes were compared: a later put may write before the target has read.
const DATA: u64 = 1;
const MARK: u64 = 2;
const COMPARED: u64 = 3;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Standard,
    AtOnce,
    Relaxed,
    Pack,
}

const KINDS: [Kind; 4] = [Kind::Standard, Kind::AtOnce, Kind::Relaxed, Kind::Pack];
const REPORTS: [Report; 3] = [Report::Events, Report::Silent, Report::Wait];
const ACKS: [AckRequest; 2] = [AckRequest::NoAck, AckRequest::Ack];
const LENGTHS: [usize; 3] = [0, 8, 5000];
const LARGEST: usize = 5000;

/// Long enough for any of them; a fabric's own time.
const LONG: Wait = Wait::Nanos(20_000_000_000);

/// A descriptor of the initiator's.
fn bind(r: &Rank<'_>, region: &Region, user_ptr: u64) -> MdHandle {
    let spec = MdSpec {
        user_ptr,
        ..spec(MdMemory::whole(region), Some(r.eq))
    };
    r.ni.md_bind(spec, Unlink::Retain).unwrap()
}

/// Attaches an entry for messages of these bits.
fn attach(r: &Rank<'_>, region: &Region, bits: u64, eq: Option<EqHandle>) {
    let me = r.ni.me_attach(4, entry(bits), InsertPosition::After);
    let spec = MdSpec {
        user_ptr: bits,
        ..spec(MdMemory::whole(region), eq)
    };
    r.ni.md_attach(me.unwrap(), spec, Unlink::Retain).unwrap();
}

/// The next event: which descriptor it is of, and what happened.
fn next(r: &Rank<'_>) -> (u64, EventKind) {
    let polled = r.ni.eq_poll(&[r.eq], LONG).unwrap();
    let event = polled.expect("an event that was promised").event;
    assert_eq!(event.ni_fail, NiFail::OK);
    (event.md.user_ptr, event.kind)
}

/// The bytes of the `number`th put.
fn bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (number * 31 + i * 7) as u8).collect()
}

/// Each put that is made, by number; whether it was declined is for the caller to say.
fn all(mut each: impl FnMut(usize, Kind, Report, AckRequest, usize)) {
    let mut number = 0;
    for kind in KINDS {
        for report in REPORTS {
            for ack in ACKS {
                for len in LENGTHS {
                    number += 1;
                    each(number, kind, report, ack, len);
                }
            }
        }
    }
}

fn initiate(r: &Rank<'_>) {
    let source = Region::new(LARGEST).unwrap();
    let (data, mark) = (bind(r, &source, DATA), bind(r, &source, MARK));
    let none = Region::new(8).unwrap();
    attach(r, &none, COMPARED, Some(r.eq));
    r.meet();
    let mut declined_of_standard = 0;
    all(|number, kind, report, ack, len| {
        let about = format!("{kind:?} {report:?} {ack:?} {len} bytes");
        let sent = bytes(number, len);
        source.write(0, &sent).unwrap();
        let put = Put {
            report,
            ..Put::new(data, to(r.peer, DATA, 0))
                .region(0, len as u64)
                .ack(ack)
        };
        let mut calls = 0;
        let mut pack = |room: &mut [u8]| {
            calls += 1;
            room.copy_from_slice(&sent);
        };
        let posted = match kind {
            Kind::Standard => r.ni.post_put(put),
            Kind::AtOnce => r.ni.post_put(put.at_once()),
            Kind::Relaxed => r.ni.post_put(put.relaxed()),
            Kind::Pack => {
                // What lies in the descriptor is not what is sent.
                source.write(0, &vec![0; len]).unwrap();
                r.ni.post_put(put.pack(&mut pack))
            }
        };
        let posted = posted.unwrap();
        let declined = posted == Posted::Declined;
        let packed = matches!(kind, Kind::Pack) && !declined && len > 0;
        assert_eq!(calls, u32::from(packed), "{about}");
        declined_of_standard += u32::from(declined && matches!(kind, Kind::Standard));
        let hdr_data = u64::from(!declined);
        r.ni.put_region(mark, (0, 0), AckRequest::Ack, to(r.peer, MARK, 0), hdr_data)
            .unwrap();

        let mut expected = match posted {
            Posted::Declined | Posted::Taken | Posted::Done { .. } => vec![],
            Posted::Begun => vec![EventKind::SendStart, EventKind::SendEnd],
        };
        let acked = ack == AckRequest::Ack && matches!(posted, Posted::Begun | Posted::Taken);
        expected.extend(acked.then_some(EventKind::Ack));
        assert!(
            report != Report::Events || matches!(posted, Posted::Begun | Posted::Declined),
            "{about}: {posted:?}"
        );
        let (mut seen, mut marked, mut compared) = (Vec::new(), false, false);
        while seen.len() < expected.len() || !marked || !compared {
            match next(r) {
                (DATA, kind) => seen.push(kind),
                (MARK, kind) => marked |= kind == EventKind::Ack,
                (_, kind) => compared |= kind == EventKind::PutEnd,
            }
        }
        // An ack may come before its SEND_END.
        seen.sort_unstable_by_key(|kind| expected.iter().position(|e| e == kind));
        assert_eq!(seen, expected, "{about}: {posted:?}");
    });
    assert_eq!(declined_of_standard, 0);
}

fn serve(r: &Rank<'_>) {
    let (landing, none) = (Region::new(LARGEST).unwrap(), Region::new(8).unwrap());
    attach(r, &landing, DATA, None);
    attach(r, &none, MARK, Some(r.eq));
    let compared = bind(r, &none, COMPARED);
    r.meet();
    let mut there = vec![0; LARGEST];
    all(|number, kind, report, ack, len| {
        let made = loop {
            let polled = r.ni.eq_poll(&[r.eq], LONG).unwrap();
            let event = polled.expect("word of the initiator").event;
            if event.kind == EventKind::PutEnd {
                break event.hdr_data != 0;
            }
        };
        if made {
            there[..len].copy_from_slice(&bytes(number, len));
        }
        let mut seen = vec![0; LARGEST];
        landing.read(0, &mut seen).unwrap();
        assert!(
            seen == there,
            "{kind:?} {report:?} {ack:?} {len} bytes, made: {made}"
        );
        let back = Put::new(compared, to(r.peer, COMPARED, 0)).region(0, 0);
        r.ni.post_put(back).unwrap();
    });
}

fn both(r: &Rank<'_>) {
    match r.number {
        0 => initiate(r),
        _ => serve(r),
    }
    r.meet();
    r.ni.close().unwrap();
}

#[test]
fn puts_of_every_mode_in_process() {
    two_ranks(joined(fabric::in_process(2)), both);
}

#[test]
fn puts_of_every_mode_over_shared_memory() {
    two_ranks(
        joined(fabric::interfaces(shm::in_threads(2).unwrap())),
        both,
    );
}

#[test]
fn puts_of_every_mode_on_the_model() {
    for mode in [seastar::Mode::Generic, seastar::Mode::Accelerated] {
        two_ranks(on_the_model(mode), both);
    }
}

#[test]
fn device_puts_of_every_mode() {
    if let Some(device) = device() {
        let opened = verbs::in_threads(2, Some(&device)).unwrap();
        two_ranks(joined(fabric::interfaces(opened)), both);
    }
}

/// Frames have one owner.
#[test]
fn frames_past_the_library_are_given_once() {
    let mut opened = fabric::interfaces(shm::in_threads(2).unwrap());
    let one = opened.remove(0).interface;
    assert!(one.near().is_some());
    assert!(one.near().is_none());
    assert!(fabric::in_process(1).remove(0).interface.near().is_none());
}
