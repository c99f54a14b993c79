//! Operations whose data a fabric has placed end as if their targets had answered.

use alloc::vec::Vec;

use crate::{
    Ack, AckRequest, Body, EqHandle, Error, Event, Header, InPlace, Incoming, Limits, MdDesc,
    MdHandle, MdOptions, Memory, Ni, NiConfig, NiFail, ProcessId, THRESHOLD_INFINITE, Unlink,
};

const OWN: ProcessId = ProcessId::new(1, 1);
const PEER: ProcessId = ProcessId::new(2, 1);
const BYTES: u64 = 64;

struct Side {
    ni: Ni,
    eq: EqHandle,
    mds: Vec<MdHandle>,
}

impl Side {
    fn new(get_send_events: bool) -> Self {
        let mut ni = Ni::new(NiConfig {
            id: OWN,
            uid: 7,
            jid: 8,
            interface: 0,
            limits: Limits::LIBRARY,
            get_send_events,
        });
        let eq = ni.eq_alloc(1000).unwrap();
        Self {
            ni,
            eq,
            mds: Vec::new(),
        }
    }

    fn bind(&mut self, threshold: i32, options: MdOptions, eq: bool, unlink: Unlink) {
        let desc = MdDesc {
            memory: Memory::contiguous(0x1000, BYTES),
            threshold,
            max_size: 0,
            options,
            user_ptr: 5,
            eq: eq.then_some(self.eq),
        };
        self.mds.push(self.ni.md_bind(desc, unlink).unwrap());
    }

    fn events(&mut self) -> Vec<Event> {
        let next = |_| self.ni.eq_get(self.eq).unwrap().map(|(event, _)| event);
        (0..).map_while(next).collect()
    }
}

/// What the target of `request` answers.
fn answer(request: &Header) -> Option<Header> {
    let body = match request.body {
        Body::Put {
            length,
            remote_offset,
            ack_md: Some(md),
            ..
        } => Body::Ack(Ack {
            md,
            offset: remote_offset,
            rlength: length,
            mlength: length,
        }),
        Body::Get {
            length,
            reply_md: md,
            reply_offset,
            ..
        } => Body::Reply {
            md,
            local_offset: reply_offset,
            rlength: length,
            mlength: length,
        },
        _ => return None,
    };
    Some(Header {
        target: OWN,
        source: PEER,
        body,
        ..*request
    })
}

/// The same, of an operation in place.
fn in_place(request: &Header) -> Option<InPlace> {
    let answer = answer(request)?;
    let (md, offset, length) = match answer.body {
        Body::Ack(Ack {
            md,
            offset,
            mlength,
            ..
        }) => (md, offset, mlength),
        Body::Reply {
            md,
            local_offset,
            mlength,
            ..
        } => (md, local_offset, mlength),
        _ => return None,
    };
    Some(InPlace {
        md,
        target: PEER,
        pt_index: answer.pt_index,
        match_bits: answer.match_bits,
        offset,
        length,
    })
}

/// Puts and gets, by steps on one side and in place on the other: results, events, counts and descriptors are the same,
/// whatever becomes of the descriptors meanwhile.
#[test]
fn an_operation_in_place_ends_as_if_its_target_had_answered() {
    for seed in 0..400 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut steps, mut alone) = (Side::new(seed % 2 == 0), Side::new(seed % 2 == 0));
        let mut under_way = Vec::new();
        for _ in 0..60 {
            match rng.u8(..10) {
                0 | 1 => {
                    let threshold = [THRESHOLD_INFINITE, 0, 1, 2, 5][rng.usize(..5)];
                    let mut options = MdOptions::empty();
                    options.set(MdOptions::EVENT_START_DISABLE, rng.bool());
                    options.set(MdOptions::EVENT_END_DISABLE, rng.bool());
                    let (eq, keep) = (rng.u8(..4) > 0, rng.bool());
                    let unlink = if keep { Unlink::Retain } else { Unlink::Unlink };
                    steps.bind(threshold, options, eq, unlink);
                    alone.bind(threshold, options, eq, unlink);
                }
                2 if !steps.mds.is_empty() => {
                    let at = rng.usize(..steps.mds.len());
                    let (a, b) = (steps.mds[at], alone.mds[at]);
                    assert_eq!(steps.ni.md_unlink(a), alone.ni.md_unlink(b));
                }
                3..=5 if !steps.mds.is_empty() => {
                    let at = rng.usize(..steps.mds.len());
                    let (a, b) = (steps.mds[at], alone.mds[at]);
                    let region = Some((rng.u64(..BYTES), rng.u64(..BYTES)));
                    let ack = [AckRequest::Ack, AckRequest::NoAck][rng.usize(..2)];
                    let bits = rng.u64(..);
                    let one = if rng.bool() {
                        let put = steps.ni.put(a, region, ack, PEER, 4, 0, bits, 3, 9);
                        let ready = alone.ni.ready_put(b, region, ack, PEER, 4, 0, bits, 3, 9);
                        if let Ok(ready) = &ready {
                            alone.ni.pass_put(ready, NiFail::OK, false);
                        }
                        (put, ready.map(|r| r.header))
                    } else {
                        let get = steps.ni.get(a, region, PEER, 4, 0, bits, 3);
                        let header = match alone.ni.landing(b, region) {
                            Ok(Some(landing)) => {
                                alone.ni.pass_get(&landing);
                                let tx = get.as_ref().unwrap();
                                assert_eq!(tx.landing[..], [landing.memory]);
                                let body = Body::Get {
                                    length: landing.memory.len,
                                    remote_offset: 3,
                                    ac_index: 0,
                                    reply_md: landing.md,
                                    reply_offset: landing.offset,
                                };
                                Ok(Header { body, ..tx.header })
                            }
                            Ok(None) => alone.ni.get(b, region, PEER, 4, 0, bits, 3).map(|tx| {
                                if let Some(op) = tx.op {
                                    alone.ni.send_end(op, NiFail::OK);
                                }
                                tx.header
                            }),
                            Err(error) => Err(error),
                        };
                        (get, header)
                    };
                    match one {
                        (Ok(tx), Ok(header)) => {
                            if let Some(op) = tx.op {
                                steps.ni.send_end(op, NiFail::OK);
                            }
                            under_way.push((tx.header, header));
                        }
                        (a, b) => assert_eq!(a.err(), b.err()),
                    }
                }
                _ if !under_way.is_empty() => {
                    let (a, b) = under_way.swap_remove(rng.usize(..under_way.len()));
                    let fail = [NiFail::OK, NiFail::FAIL][usize::from(rng.u8(..8) == 0)];
                    if let Some(answer) = answer(&a)
                        && let Incoming::Deposit(d) = steps.ni.handle_header(&answer)
                    {
                        steps.ni.deposit_end(d.op, fail);
                    }
                    match (in_place(&b), b.body) {
                        (Some(done), Body::Put { .. }) => alone.ni.ack_in_place(&done),
                        (Some(done), _) => alone.ni.reply_in_place(&done, fail),
                        (None, _) => {}
                    }
                }
                _ => {}
            }
            assert_eq!(steps.events(), alone.events(), "seed {seed}");
            assert_eq!(steps.ni.status(), alone.ni.status(), "seed {seed}");
            let shown = |side: &Side| -> Vec<_> {
                let query = |md: &MdHandle| -> Result<_, Error> { side.ni.md_query(*md) };
                side.mds.iter().map(query).collect()
            };
            assert_eq!(shown(&steps), shown(&alone), "seed {seed}");
        }
    }
}
