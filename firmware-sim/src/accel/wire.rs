//! Between the records of [`nic_model::defs::accel`] and the types of `portals-core`; both sides of
//! the mailbox use it.

use nic_model::defs::accel::{
    COMPLETION_DATA, Completion, Criteria, EventRecord, NO_HANDLE, QueriedState, StateRecord,
};
use portals_core::{
    EqHandle, Error, Event, EventKind, Gauge, MdHandle, MdOptions, MdSnapshot, MeHandle, MeSpec,
    NiFail, ProcessId, Status, Unlink, Usage,
};

/// What a match entry matches, as a command says it.
#[must_use]
pub fn criteria(spec: &MeSpec) -> Criteria {
    Criteria {
        nid: spec.match_id.nid.into(),
        pid: spec.match_id.pid.into(),
        match_bits: spec.match_bits.into(),
        ignore_bits: spec.ignore_bits.into(),
    }
}

/// The other way.
#[must_use]
pub fn entry_spec(criteria: &Criteria, unlink: Unlink) -> MeSpec {
    MeSpec {
        match_id: ProcessId::new(criteria.nid.get(), criteria.pid.get()),
        match_bits: criteria.match_bits.get(),
        ignore_bits: criteria.ignore_bits.get(),
        unlink,
    }
}

fn state(md: &MdSnapshot) -> StateRecord {
    StateRecord {
        start: md.start.into(),
        length: md.length.into(),
        max_size: md.max_size.into(),
        user_ptr: md.user_ptr.into(),
        threshold: md.threshold.into(),
        options: md.options.bits().into(),
        eq: md.eq.map_or(NO_HANDLE, EqHandle::raw).into(),
    }
}

fn snapshot(state: &StateRecord) -> MdSnapshot {
    let eq = state.eq.get();
    MdSnapshot {
        start: state.start.get(),
        length: state.length.get(),
        threshold: state.threshold.get(),
        max_size: state.max_size.get(),
        options: MdOptions::from_bits_retain(state.options.get()),
        user_ptr: state.user_ptr.get(),
        eq: (eq != NO_HANDLE).then(|| EqHandle::from_raw(eq)),
    }
}

/// An event as the ring of its queue holds it.
#[must_use]
pub fn event_record(event: &Event) -> EventRecord {
    EventRecord {
        kind: (event.kind as u32).into(),
        sequence: event.sequence.into(),
        initiator: [
            event.initiator.nid.into(),
            event.initiator.pid.into(),
            event.uid.into(),
            event.jid.into(),
        ],
        portal: event.pt_index.into(),
        md: event.md_handle.raw().into(),
        match_bits: event.match_bits.into(),
        rlength: event.rlength.into(),
        mlength: event.mlength.into(),
        offset: event.offset.into(),
        hdr_data: event.hdr_data.into(),
        link: event.link.into(),
        ni_fail: event.ni_fail.0.into(),
        state: state(&event.md),
        valid: 1.into(),
    }
}

const KINDS: [EventKind; 12] = [
    EventKind::GetStart,
    EventKind::GetEnd,
    EventKind::PutStart,
    EventKind::PutEnd,
    EventKind::GetPutStart,
    EventKind::GetPutEnd,
    EventKind::ReplyStart,
    EventKind::ReplyEnd,
    EventKind::SendStart,
    EventKind::SendEnd,
    EventKind::Ack,
    EventKind::Unlink,
];

/// The event in an entry of a ring; `None` for an entry that holds none.
#[must_use]
pub fn event_of(record: &EventRecord) -> Option<Event> {
    if record.valid.get() != 1 {
        return None;
    }
    let [nid, pid, uid, jid] = record.initiator;
    Some(Event {
        kind: *KINDS.get(record.kind.get() as usize)?,
        initiator: ProcessId::new(nid.get(), pid.get()),
        uid: uid.get(),
        jid: jid.get(),
        pt_index: record.portal.get(),
        match_bits: record.match_bits.get(),
        rlength: record.rlength.get(),
        mlength: record.mlength.get(),
        offset: record.offset.get(),
        md_handle: MdHandle::from_raw(record.md.get()),
        md: snapshot(&record.state),
        hdr_data: record.hdr_data.get(),
        link: record.link.get(),
        ni_fail: NiFail(record.ni_fail.get()),
        sequence: record.sequence.get(),
    })
}

/// What a command gives back when it succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing but success.
    Done,
    /// A match entry and the portal it is on.
    Entry(u32, MeHandle),
    /// A descriptor.
    Descriptor(MdHandle),
    /// An entry with its descriptor.
    Both(MeHandle, MdHandle),
    /// An event queue and the sequence number of its first event.
    Queue(EqHandle, u32),
    /// A descriptor's state, and whether operations on it are under way.
    State(MdSnapshot, bool),
    /// Status registers 0 to 5.
    Status(Status),
    /// Status registers 6 and on.
    Usage(Usage),
    /// Entries of a list now, and at most so far.
    Lengths(u64, u64),
}

/// The kind of an [`Outcome`] that a command is answered with; the asker knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the outcomes")]
pub enum OutcomeKind {
    Done,
    Entry,
    Descriptor,
    Both,
    Queue,
    State,
    Status,
    Usage,
    Lengths,
}

/// Words of a completion's data, one after the other.
struct Words<'a> {
    data: &'a mut [u8; COMPLETION_DATA],
    at: usize,
}

impl Words<'_> {
    fn put(&mut self, word: u64) {
        self.data[self.at..self.at + 8].copy_from_slice(&word.to_le_bytes());
        self.at += 8;
    }

    fn take(&mut self) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.data[self.at..self.at + 8]);
        self.at += 8;
        u64::from_le_bytes(word)
    }

    fn put_gauge(&mut self, gauge: &Gauge) {
        self.put(gauge.made);
        self.put(gauge.most);
        self.put(gauge.current);
    }

    fn take_gauge(&mut self) -> Gauge {
        Gauge {
            made: self.take(),
            most: self.take(),
            current: self.take(),
        }
    }
}

/// The answer to a command.
#[must_use]
pub fn completion(tag: u32, result: Result<Outcome, Error>) -> Completion {
    let mut data = [0; COMPLETION_DATA];
    let mut w = Words {
        data: &mut data,
        at: 0,
    };
    let code = match result {
        Ok(outcome) => {
            match outcome {
                Outcome::Done => {}
                Outcome::Entry(portal, me) => {
                    w.put(portal.into());
                    w.put(me.raw().into());
                }
                Outcome::Descriptor(md) => w.put(md.raw().into()),
                Outcome::Both(me, md) => {
                    w.put(me.raw().into());
                    w.put(md.raw().into());
                }
                Outcome::Queue(eq, first) => {
                    w.put(eq.raw().into());
                    w.put(first.into());
                }
                Outcome::State(md, in_use) => {
                    let record = QueriedState {
                        state: state(&md),
                        in_use: u32::from(in_use).into(),
                    };
                    w.data[..size_of::<QueriedState>()]
                        .copy_from_slice(zerocopy::IntoBytes::as_bytes(&record));
                }
                Outcome::Status(s) => {
                    for count in [
                        s.drop_count,
                        s.drop_length,
                        s.recv_count,
                        s.recv_length,
                        s.send_count,
                        s.send_length,
                    ] {
                        w.put(count);
                    }
                }
                Outcome::Usage(u) => {
                    for gauge in [&u.portals, &u.messages, &u.mes, &u.mds, &u.eqs] {
                        w.put_gauge(gauge);
                    }
                    for count in u.aligned {
                        w.put(count);
                    }
                }
                Outcome::Lengths(now, most) => {
                    w.put(now);
                    w.put(most);
                }
            }
            0
        }
        Err(error) => error.code().cast_unsigned(),
    };
    Completion {
        tag: tag.into(),
        code: code.into(),
        data,
    }
}

/// The result in a completion that is neither an old one nor [`MOVED`](nic_model::defs::accel::MOVED).
///
/// # Errors
/// The command's, or [`Error::Fail`] for a code that is none.
pub fn outcome(completion: &Completion, kind: OutcomeKind) -> Result<Outcome, Error> {
    if completion.code.get() != 0 {
        return Err(Error::from_code(completion.code.get().cast_signed()).unwrap_or(Error::Fail));
    }
    let mut data = completion.data;
    let mut w = Words {
        data: &mut data,
        at: 0,
    };
    let word = |w: &mut Words<'_>| w.take() as u32;
    Ok(match kind {
        OutcomeKind::Done => Outcome::Done,
        OutcomeKind::Entry => Outcome::Entry(word(&mut w), MeHandle::from_raw(word(&mut w))),
        OutcomeKind::Descriptor => Outcome::Descriptor(MdHandle::from_raw(word(&mut w))),
        OutcomeKind::Both => Outcome::Both(
            MeHandle::from_raw(word(&mut w)),
            MdHandle::from_raw(word(&mut w)),
        ),
        OutcomeKind::Queue => Outcome::Queue(EqHandle::from_raw(word(&mut w)), word(&mut w)),
        OutcomeKind::State => {
            let bytes = &completion.data[..size_of::<QueriedState>()];
            let record: QueriedState =
                zerocopy::FromBytes::read_from_bytes(bytes).map_err(|_| Error::Fail)?;
            Outcome::State(snapshot(&record.state), record.in_use.get() != 0)
        }
        OutcomeKind::Status => Outcome::Status(Status {
            drop_count: w.take(),
            drop_length: w.take(),
            recv_count: w.take(),
            recv_length: w.take(),
            send_count: w.take(),
            send_length: w.take(),
        }),
        OutcomeKind::Usage => Outcome::Usage(Usage {
            portals: w.take_gauge(),
            messages: w.take_gauge(),
            mes: w.take_gauge(),
            mds: w.take_gauge(),
            eqs: w.take_gauge(),
            aligned: std::array::from_fn(|_| w.take()),
        }),
        OutcomeKind::Lengths => Outcome::Lengths(w.take(), w.take()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(n: u64) -> Gauge {
        Gauge {
            made: n,
            most: n + 1,
            current: n + 2,
        }
    }

    #[test]
    fn every_outcome_survives_the_way() {
        let md = MdSnapshot {
            start: 1 << 40,
            length: 2,
            threshold: -1,
            max_size: 3,
            options: MdOptions::from_bits_retain(0x8000_0001),
            user_ptr: u64::MAX,
            eq: Some(EqHandle::from_raw(0xC000_0007)),
        };
        let me = MeHandle::from_raw(0x4000_0001);
        let handle = MdHandle::from_raw(0x8000_0002);
        let cases = [
            (Outcome::Done, OutcomeKind::Done),
            (Outcome::Entry(63, me), OutcomeKind::Entry),
            (Outcome::Descriptor(handle), OutcomeKind::Descriptor),
            (Outcome::Both(me, handle), OutcomeKind::Both),
            (
                Outcome::Queue(EqHandle::from_raw(0xC000_0001), u32::MAX - 7),
                OutcomeKind::Queue,
            ),
            (Outcome::State(md, true), OutcomeKind::State),
            (
                Outcome::State(MdSnapshot { eq: None, ..md }, false),
                OutcomeKind::State,
            ),
            (
                Outcome::Status(Status {
                    drop_count: 1,
                    drop_length: 2,
                    recv_count: 3,
                    recv_length: 4,
                    send_count: 5,
                    send_length: 6,
                }),
                OutcomeKind::Status,
            ),
            (
                Outcome::Usage(Usage {
                    portals: gauge(1),
                    messages: gauge(10),
                    mes: gauge(20),
                    mds: gauge(30),
                    eqs: gauge(40),
                    aligned: [1, 2, 3, 4, 5],
                }),
                OutcomeKind::Usage,
            ),
            (Outcome::Lengths(7, 9), OutcomeKind::Lengths),
        ];
        for (n, (value, kind)) in (1..).zip(cases) {
            let record = completion(n, Ok(value));
            assert_eq!(record.tag.get(), n);
            assert_eq!(outcome(&record, kind), Ok(value));
        }
        let refused = completion(9, Err(Error::MdNoUpdate));
        assert_eq!(
            outcome(&refused, OutcomeKind::State),
            Err(Error::MdNoUpdate)
        );
    }

    #[test]
    fn every_event_survives_the_way() {
        for (n, kind) in (0u32..).zip(KINDS) {
            assert_eq!(kind as u32, n);
            let event = Event {
                kind,
                initiator: ProcessId::new(3, 4),
                uid: 5,
                jid: 6,
                pt_index: 7,
                match_bits: 1 << 63,
                rlength: 9,
                mlength: 10,
                offset: 11,
                md_handle: MdHandle::from_raw(0x8000_0003),
                md: MdSnapshot {
                    start: 12,
                    length: 13,
                    threshold: -1,
                    max_size: 14,
                    options: MdOptions::OP_PUT,
                    user_ptr: 15,
                    eq: None,
                },
                hdr_data: 16,
                link: 17,
                ni_fail: NiFail::FAIL,
                sequence: u32::MAX,
            };
            assert_eq!(event_of(&event_record(&event)), Some(event));
        }
        let empty = zerocopy::FromZeros::new_zeroed();
        assert_eq!(event_of(&empty), None);
    }
}
