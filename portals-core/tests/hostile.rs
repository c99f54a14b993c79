//! Headers that no honest process sends: whatever arrives, nothing panics, and nothing but the drop
//! counters changes unless the message was accepted.

use portals_core::header::{DecodeError, WIRE_LEN};
use portals_core::{
    Ack, AckRequest, Body, EqHandle, Header, Incoming, InsertPosition, Limits, MdDesc, MdHandle,
    MdOptions, MeSpec, Memory, Ni, NiConfig, NiFail, ProcessId, Unlink,
};
use proptest::prelude::*;

fn handle() -> impl Strategy<Value = MdHandle> {
    // Not the value that stands for "no ack wanted".
    prop_oneof![any::<u32>(), 0x8000_0000..0x8000_0004u32]
        .prop_filter("reserved", |raw| *raw != u32::MAX)
        .prop_map(MdHandle::from_raw)
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..80u64, u64::MAX - 80..=u64::MAX]
}

fn body() -> impl Strategy<Value = Body> {
    let n = number;
    prop_oneof![
        (n(), n(), n(), 0..10u32, prop::option::of(handle())).prop_map(
            |(length, remote_offset, hdr_data, ac_index, ack_md)| Body::Put {
                length,
                remote_offset,
                hdr_data,
                ac_index,
                ack_md
            }
        ),
        (n(), n(), 0..10u32, handle(), n()).prop_map(
            |(length, remote_offset, ac_index, reply_md, reply_offset)| Body::Get {
                length,
                remote_offset,
                ac_index,
                reply_md,
                reply_offset
            }
        ),
        (n(), n(), n(), 0..10u32, handle(), n()).prop_map(
            |(length, remote_offset, hdr_data, ac_index, reply_md, reply_offset)| {
                Body::GetPut {
                    length,
                    remote_offset,
                    hdr_data,
                    ac_index,
                    reply_md,
                    reply_offset,
                }
            }
        ),
        (handle(), n(), n(), n()).prop_map(|(md, offset, rlength, mlength)| Body::Ack(Ack {
            md,
            offset,
            rlength,
            mlength
        })),
        (handle(), n(), n(), n()).prop_map(|(md, local_offset, rlength, mlength)| Body::Reply {
            md,
            local_offset,
            rlength,
            mlength
        }),
    ]
}

fn header() -> impl Strategy<Value = Header> {
    let who = || (any::<u32>(), any::<u32>()).prop_map(|(nid, pid)| ProcessId::new(nid, pid));
    let pt = prop_oneof![Just(0u32), 0..70u32, any::<u32>()];
    let uid = prop_oneof![Just(1000u32), any::<u32>()];
    (who(), who(), uid, any::<u32>(), pt, 0..3u64, body()).prop_map(
        |(target, source, uid, jid, pt_index, match_bits, body)| Header {
            target,
            source,
            uid,
            jid,
            pt_index,
            match_bits,
            body,
        },
    )
}

const MDS: u64 = 4;
const LEN: u64 = 64;

struct Victim {
    ni: Ni,
    mds: Vec<MdHandle>,
    eq: EqHandle,
}

/// An interface with targets of every kind, and a descriptor that awaits an ack and a reply.
fn victim() -> Victim {
    let id = ProcessId::new(0, 7);
    let mut ni = Ni::new(NiConfig {
        id,
        uid: 1000,
        jid: 1,
        interface: 0,
        limits: Limits::LIBRARY,
        get_send_events: false,
    });
    let eq = ni.eq_alloc(4096).unwrap();
    let both = MdOptions::OP_PUT | MdOptions::OP_GET;
    let mut mds = Vec::new();
    for (i, options) in [
        MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE,
        both | MdOptions::TRUNCATE,
        both | MdOptions::MANAGE_REMOTE | MdOptions::TRUNCATE,
        both,
    ]
    .into_iter()
    .enumerate()
    {
        let spec = MeSpec {
            match_id: ProcessId::ANY,
            match_bits: i as u64 % 3,
            ignore_bits: 0,
            unlink: Unlink::Retain,
        };
        let me = ni.me_attach(0, spec, InsertPosition::After).unwrap();
        let desc = MdDesc {
            memory: Memory::contiguous(0x1000 * (i as u64 + 1), LEN),
            threshold: 1000,
            max_size: 0,
            options,
            user_ptr: i as u64,
            eq: Some(eq),
        };
        mds.push(ni.md_attach(me, desc, Unlink::Retain).unwrap());
    }
    let tx = ni
        .put(mds[0], None, AckRequest::Ack, id, 0, 0, 0, 0, 0)
        .unwrap();
    ni.send_end(tx.op.unwrap(), NiFail::OK);
    ni.get(mds[0], None, id, 0, 0, 0, 0).unwrap();
    while ni.eq_get(eq).unwrap().is_some() {}
    Victim { ni, mds, eq }
}

/// Everything that can be seen of the interface but its counters.
fn visible(v: &Victim) -> Vec<String> {
    let mut seen: Vec<_> = v
        .mds
        .iter()
        .map(|md| format!("{:?}", v.ni.md_query(*md)))
        .collect();
    seen.push(format!("{:?}", v.ni.eq_peek(v.eq)));
    seen
}

fn attack(v: &mut Victim, h: &Header) -> Result<(), TestCaseError> {
    let (before, status) = (visible(v), v.ni.status());
    let incoming = v.ni.handle_header(h);
    let within = |segments: &portals_core::Segments| {
        segments
            .iter()
            .all(|s| (1..=MDS).any(|i| s.addr >= 0x1000 * i && s.addr + s.len <= 0x1000 * i + LEN))
    };
    match incoming {
        Incoming::Dropped(_) => {
            prop_assert_eq!(visible(v), before);
            let after = v.ni.status();
            prop_assert_eq!(after.drop_count, status.drop_count + 1);
            prop_assert_eq!(after.recv_count, status.recv_count);
            prop_assert_eq!(after.send_count, status.send_count);
            return Ok(());
        }
        Incoming::Acked => {}
        Incoming::Deposit(d) => {
            prop_assert!(within(&d.segments) && d.length <= LEN);
            prop_assert!(d.length <= h.payload_len());
            v.ni.deposit_end(d.op, NiFail::OK);
        }
        Incoming::Reply(r) => {
            prop_assert!(within(&r.segments));
            prop_assert!(r.header.payload_len() <= LEN);
            v.ni.reply_end(r.op, NiFail::OK);
        }
        Incoming::Swap(s) => {
            prop_assert!(within(&s.segments) && s.length <= LEN);
            v.ni.swap_end(s.op, NiFail::OK);
        }
    }
    prop_assert_eq!(v.ni.status().drop_count, status.drop_count);
    while v.ni.eq_get(v.eq).unwrap().is_some() {}
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_header_survives_its_byte_form(h in header()) {
        let bytes = h.encode();
        prop_assert_eq!(Header::decode(&bytes), Ok(h));
        let mut longer = bytes.to_vec();
        longer.push(9);
        prop_assert_eq!(Header::decode(&longer), Ok(h));
        prop_assert_eq!(
            Header::decode(&bytes[..WIRE_LEN - 1]),
            Err(DecodeError::Short(WIRE_LEN - 1))
        );
    }

    #[test]
    fn random_bytes_are_no_header_or_a_harmless_one(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        disguised in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if disguised && bytes.len() > 4 {
            let kind = bytes[3] % 6;
            bytes[..4].copy_from_slice(&[0x50, 0x33, 1, kind]);
        }
        if let Ok(h) = Header::decode(&bytes) {
            prop_assert_eq!(&Header::decode(&h.encode()), &Ok(h));
            attack(&mut victim(), &h)?;
        }
    }

    #[test]
    fn hostile_headers_change_nothing_unless_accepted(
        headers in prop::collection::vec(header(), 1..40),
    ) {
        let mut v = victim();
        for h in &headers {
            attack(&mut v, h)?;
        }
    }

    #[test]
    fn flipped_bits_change_nothing_unless_accepted(
        h in header(),
        flips in prop::collection::vec(0..WIRE_LEN * 8, 1..6),
    ) {
        let mut bytes = h.encode();
        for bit in flips {
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        if let Ok(h) = Header::decode(&bytes) {
            attack(&mut victim(), &h)?;
        }
    }
}

#[test]
fn magic_version_and_kind_are_checked() {
    let h = Header {
        target: ProcessId::new(1, 2),
        source: ProcessId::new(3, 4),
        uid: 5,
        jid: 6,
        pt_index: 7,
        match_bits: 8,
        body: Body::Put {
            length: 9,
            remote_offset: 10,
            hdr_data: 11,
            ac_index: 12,
            ack_md: None,
        },
    };
    let bytes = h.encode();
    for at in [0, 1, 2] {
        let mut bad = bytes;
        bad[at] ^= 0x10;
        assert!(matches!(
            Header::decode(&bad),
            Err(DecodeError::Magic { .. })
        ));
    }
    let mut bad = bytes;
    bad[3] = 5;
    assert_eq!(Header::decode(&bad), Err(DecodeError::Type(5)));
    assert_eq!(Header::decode(&[]), Err(DecodeError::Short(0)));
}

/// The number that says "no ack" in a put is a handle like any other in other operations, which all need one.
#[test]
fn the_number_of_no_descriptor_means_that_in_a_put_alone() {
    const NO_MD: u32 = 0xffff_ffff;
    let md = MdHandle::from_raw(NO_MD);
    let (length, remote_offset, reply_offset, ac_index) = (9, 10, 11, 12);
    let bodies = [
        Body::Get {
            length,
            remote_offset,
            ac_index,
            reply_md: md,
            reply_offset,
        },
        Body::GetPut {
            length,
            remote_offset,
            hdr_data: 13,
            ac_index,
            reply_md: md,
            reply_offset,
        },
        Body::Ack(Ack {
            md,
            rlength: 14,
            mlength: 15,
            offset: 16,
        }),
        Body::Reply {
            md,
            local_offset: 17,
            rlength: 18,
            mlength: 0,
        },
    ];
    let with = |body| Header {
        target: ProcessId::new(0, 7),
        source: ProcessId::new(3, 4),
        uid: 5,
        jid: 6,
        pt_index: 7,
        match_bits: 8,
        body,
    };
    for body in bodies {
        let h = with(body);
        assert_eq!(h.encode()[64..68], [0xff; 4], "{body:?}");
        assert_eq!(Header::decode(&h.encode()), Ok(h));
        // It names nothing that a target or an initiator has.
        let mut v = victim();
        attack(&mut v, &h).unwrap();
    }
    let put = |ack_md| Body::Put {
        length,
        remote_offset,
        hdr_data: 13,
        ac_index,
        ack_md,
    };
    assert_eq!(
        Header::decode(&with(put(Some(md))).encode()),
        Ok(with(put(None)))
    );
}

/// Two such lengths are more than a 64-bit counter holds.
#[test]
fn enormous_dropped_lengths_do_not_overflow_the_counter() {
    let mut v = victim();
    let h = Header {
        target: ProcessId::new(0, 7),
        source: ProcessId::new(1, 7),
        uid: 1000,
        jid: 1,
        pt_index: 99,
        match_bits: 0,
        body: Body::Put {
            length: u64::MAX,
            remote_offset: 0,
            hdr_data: 0,
            ac_index: 0,
            ack_md: None,
        },
    };
    for _ in 0..3 {
        assert!(matches!(v.ni.handle_header(&h), Incoming::Dropped(_)));
    }
    assert_eq!(v.ni.status().drop_count, 3);
}
