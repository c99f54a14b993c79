//! Frames to bytes and back.

use super::*;
use portals_core::{Ack, Body as Operation};

const ENDS: Ends = Ends {
    target: ProcessId { nid: 1, pid: 128 },
    source: ProcessId { nid: 0, pid: 128 },
    who: (5, 6),
};

fn header(body: Operation) -> Header {
    Header {
        target: ENDS.target,
        source: ENDS.source,
        uid: 5,
        jid: 6,
        pt_index: 38,
        match_bits: 9,
        body,
    }
}

fn put(length: u64) -> Header {
    header(Operation::Put {
        length,
        remote_offset: 0,
        hdr_data: 1,
        ac_index: 0,
        ack_md: None,
    })
}

/// A finished frame.
fn frame(kind: Kind, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = vec![0; SLOT];
    let mut writer = Writer::new(&mut bytes, kind, false);
    body(&mut writer);
    let len = writer.len();
    bytes.truncate(len);
    stamp(&mut bytes, 7, 99);
    bytes
}

#[test]
fn frames_survive_the_wire() {
    let b = frame(Kind::Message, |w| {
        w.header(&put(3), 3);
        w.push(b"abc");
    });
    assert_eq!(b.len(), PREFIX + 4 + 8 + 8 + 3);
    let (prefix, body) = parse(&b, &ENDS).unwrap();
    assert_eq!((prefix.credits.get(), prefix.requests_done.get()), (7, 99));
    let header = put(3);
    assert_eq!(
        body,
        Body::Message {
            header,
            data: b"abc"
        }
    );

    let md = RemoteMd {
        match_id: ProcessId::ANY,
        match_bits: 0,
        ignore_bits: !15,
        start: Remote {
            address: 4096,
            rkey: 77,
        },
        length: 10,
        ac_mask: 255,
        put: true,
        get: false,
        ack: true,
        events: None,
    };
    let b = frame(Kind::Advertise, |w| {
        w.token(3);
        w.adverts(38, &[md, md]);
    });
    let (_, body) = parse(&b, &ENDS).unwrap();
    assert_eq!(
        body,
        Body::Advertise {
            portal: 38,
            token: 3,
            adverts: vec![md, md]
        }
    );
    assert!(md.admits(ProcessId::new(4, 4), 0, 0xfff0));
    assert!(!md.admits(ProcessId::new(4, 4), 0, 1));
    assert!(!md.admits(ProcessId::new(4, 4), 8, 0));
}

#[test]
fn every_header_survives_the_wire() {
    let mut rng = fastrand::Rng::with_seed(11);
    for _ in 0..20_000 {
        // Zero, small, and anything, because each is told another way.
        let mut value = || match rng.u8(..3) {
            0 => 0,
            1 => rng.u64(..300),
            _ => rng.u64(..),
        };
        let (length, offset, extra, moved) = (value(), value(), value(), value());
        let (match_bits, pt, ac) = (value(), value() as u32, value() as u32);
        let md = MdHandle::from_raw(value() as u32);
        let body = match value() % 5 {
            0 => Operation::Put {
                length,
                remote_offset: offset,
                hdr_data: extra,
                ac_index: ac,
                ack_md: (moved % 2 == 0).then_some(md),
            },
            1 => Operation::Get {
                length,
                remote_offset: offset,
                ac_index: ac,
                reply_md: md,
                reply_offset: extra,
            },
            2 => Operation::GetPut {
                length,
                remote_offset: offset,
                hdr_data: extra,
                ac_index: ac,
                reply_md: md,
                reply_offset: moved,
            },
            3 => Operation::Ack(Ack {
                md,
                offset,
                rlength: length,
                mlength: moved,
            }),
            _ => Operation::Reply {
                md,
                local_offset: offset,
                rlength: length,
                mlength: moved,
            },
        };
        let header = Header {
            pt_index: pt,
            match_bits,
            ..header(body)
        };
        for data in [0, 5, length % 200] {
            let data = vec![7; data as usize];
            let b = frame(Kind::Message, |w| {
                w.header(&header, data.len() as u64);
                w.push(&data);
            });
            assert!(b.len() <= MESSAGE_HEAD + data.len());
            let field_by_field = frame(Kind::Message, |w| {
                HeaderFields::new(&header, data.len() as u64).write(w);
                w.push(&data);
            });
            assert_eq!(b, field_by_field);
            let is_put = matches!(header.body, Operation::Put { .. });
            assert_eq!(put_head(&b), is_put.then_some(b.len() - data.len()));
            let (_, body) = parse(&b, &ENDS).unwrap();
            let data = data.as_slice();
            assert_eq!(body, Body::Message { header, data });
        }
        let from = Remote {
            address: extra,
            rkey: ac,
        };
        let b = frame(Kind::ReadyToSend, |w| {
            w.token(pt);
            w.place(from);
            w.header(&header, 0);
        });
        assert!(b.len() <= READY_TO_SEND);
        let rts = Body::ReadyToSend {
            header,
            token: pt,
            from,
        };
        assert_eq!(parse(&b, &ENDS).unwrap().1, rts);
    }
}

#[test]
fn a_question_and_its_answer_survive_the_wire() {
    let at = Remote {
        address: 0x1234_5678_9abc,
        rkey: 77,
    };
    let (number, length) = (u32::MAX, 192);
    let b = frame(Kind::ReadRequest, |w| w.read_request(number, at, length));
    assert_eq!(b.len(), READ_REQUEST);
    let asked = Body::ReadRequest { number, at, length };
    assert_eq!(parse(&b, &ENDS).unwrap().1, asked);
    for end in 0..b.len() {
        assert!(parse(&b[..end], &ENDS).is_err(), "{end}");
    }
    for data in [&b""[..], b"data"] {
        for refused in [false, true] {
            let mut b = frame(Kind::ReadResponse, |w| {
                w.token(number);
                w.push(data);
            });
            b[1] = u8::from(refused);
            let data = (!refused).then_some(data);
            let answer = Body::ReadResponse { number, data };
            assert_eq!(parse(&b, &ENDS).unwrap().1, answer);
            assert!(parse(&b[..TOKEN - 1], &ENDS).is_err());
        }
    }
}

#[test]
fn every_prefix_of_a_frame_and_every_corruption_is_an_answer() {
    let b = frame(Kind::ReadyToSend, |w| {
        w.token(1);
        w.place(Remote {
            address: 1,
            rkey: 2,
        });
        w.header(&put(100), 0);
    });
    assert!(parse(&b, &ENDS).is_ok());
    for end in 0..b.len() {
        assert!(parse(&b[..end], &ENDS).is_err(), "{end}");
    }
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..10_000 {
        let mut c = b.clone();
        c[rng.usize(..b.len())] = rng.u8(..);
        let _ = parse(&c, &ENDS);
    }
}

#[test]
fn a_frame_never_grows_past_its_memory() {
    for room in 0..40 {
        let mut bytes = vec![0; room];
        let mut w = Writer::new(&mut bytes, Kind::Message, false);
        w.header(&put(1), 0);
        w.push(&[0; 30]);
        assert_eq!(w.len(), room);
    }
}

/// What rides on a frame rides on an immediate value too, wherever the count of requests wraps around.
#[test]
fn what_rides_on_a_frame_rides_on_an_immediate_value() {
    let mut bytes = frame(Kind::Message, |w| {
        w.header(&put(3), 3);
        w.push(b"abc");
    });
    for (before, done) in [(0, 0), (7, 9), (0xfff0, 0x1_0005), (u32::MAX - 2, 3)] {
        stamp(&mut bytes, 700, done);
        let prefix = prefix_of(stamp_value(&bytes), before);
        assert_eq!(prefix.credits.get(), 700);
        assert_eq!(prefix.requests_done.get(), done);
    }
    assert_eq!(put_head(&bytes), Some(bytes.len() - 3));
}
