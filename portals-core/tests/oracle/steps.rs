//! The steps of random programs, and how they are drawn.

use portals_core::{ANY, AcEntry, MeSpec, ProcessId, Unlink};
use proptest::prelude::*;

/// One step. Objects are named by position among all that were ever made, dead ones too.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Attach(u32, MeSpec, bool),
    Insert(usize, MeSpec, bool),
    MeUnlink(usize),
    MdAttach(usize, Desc, bool),
    MdBind(Desc, bool),
    MdUnlink(usize),
    /// An older descriptor and an older entry make room for a new target that most messages find.
    Target(usize, Desc),
    /// Such a target with events, which a fabric has advertised.
    Loud(usize, Desc),
    /// The same for a new source.
    Source(usize, Desc),
    MdUpdate(usize, Desc, Option<usize>),
    /// An update of the threshold and the user's value alone.
    MdRenew(usize, i32, u64, Option<usize>),
    Post(usize, MeSpec, bool, Desc, bool, Option<usize>),
    /// A fabric has a descriptor with events advertised.
    Open(usize),
    EqAlloc(u64),
    EqFree(usize),
    EqGet(usize),
    AcEntry(u32, AcEntry),
    Put(usize, Option<(u64, u64)>, bool, To, u64),
    Get(usize, Option<(u64, u64)>, To),
    GetPut(usize, usize, Option<(u64, u64, u64)>, To, u64),
    /// A put that begins and ends in one step.
    Pass(usize, Option<(u64, u64)>, bool, To, u64, bool),
    /// The oldest message arrives.
    Arrive,
    /// The oldest message arrives; a put with all its data.
    ArriveWhole(bool),
    /// The oldest message is lost.
    Lose,
    /// The oldest message arrives and comes again later.
    Duplicate,
    /// An operation under way ends.
    Finish(usize, bool),
}

#[derive(Clone, Debug)]
pub(super) struct Desc {
    pub(super) lens: Vec<u64>,
    pub(super) threshold: i32,
    pub(super) max_size: u64,
    pub(super) options: u32,
    pub(super) eq: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct To {
    pub(super) own: bool,
    pub(super) pt: u32,
    pub(super) ac: u32,
    pub(super) bits: u64,
    pub(super) offset: u64,
}

pub(super) fn spec() -> impl Strategy<Value = MeSpec> {
    let half = || prop_oneof![8 => Just(ANY), 1 => 0..2u32];
    let ignore = prop_oneof![6 => Just(u64::MAX), 2 => Just(0), 1 => Just(1u64)];
    (half(), half(), 0..3u64, ignore, any::<bool>()).prop_map(|(nid, pid, bits, ignore, stays)| {
        MeSpec {
            match_id: ProcessId::new(nid, if pid == ANY { ANY } else { 6 + pid }),
            match_bits: bits,
            ignore_bits: ignore,
            unlink: unlink(stays),
        }
    })
}

pub(super) fn unlink(stays: bool) -> Unlink {
    if stays {
        Unlink::Retain
    } else {
        Unlink::Unlink
    }
}

pub(super) fn desc() -> impl Strategy<Value = Desc> {
    let lens = prop_oneof![
        3 => prop::collection::vec(0..60u64, 1),
        3 => prop::collection::vec(0..8u64, 1),
        3 => prop::collection::vec(0..14u64, 2),
        1 => prop::collection::vec(0..9u64, 3),
    ];
    let threshold = prop_oneof![3 => Just(-1), 6 => 1..4i32, 1 => -3..1i32];
    // Most accept puts and gets, so that messages find takers.
    let options = prop_oneof![5 => (0..0x200u32).prop_map(|o| o | 3), 1 => 0..0x200u32];
    (
        lens,
        threshold,
        0..30u64,
        options,
        prop::option::weighted(0.8, 0..3usize),
    )
        .prop_map(|(lens, threshold, max_size, options, eq)| Desc {
            lens,
            threshold,
            max_size,
            options,
            eq,
        })
}

pub(super) fn to() -> impl Strategy<Value = To> {
    let low = || prop_oneof![24 => Just(0), 6 => Just(1), 1 => Just(2), 1 => Just(u32::MAX)];
    let offset = prop_oneof![3 => 0..20u64, 6 => Just(0), 1 => u64::MAX - 40..u64::MAX];
    (prop::bool::weighted(0.3), low(), low(), 0..3u64, offset).prop_map(
        |(own, pt, ac, bits, offset)| To {
            own,
            pt,
            ac,
            bits,
            offset,
        },
    )
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let n = || prop_oneof![4 => 0..4usize, 1 => 0..24usize];
    let region = || {
        prop::option::of(prop_oneof![
            5 => (0..6u64, 0..8u64),
            1 => (any::<u64>(), any::<u64>()),
        ])
    };
    let regions = prop::option::of((0..14u64, 0..14u64, 0..18u64));
    let id = || prop_oneof![Just(ANY), 0..2u32];
    let entry = (id(), id(), id(), prop_oneof![Just(ANY), 0..3u32]).prop_map(
        |(nid, uid, jid, pt_index)| AcEntry {
            match_id: ProcessId::new(nid, ANY),
            uid: if uid == ANY { ANY } else { 1000 + uid },
            jid,
            pt_index,
        },
    );
    prop_oneof![
        5 => (prop_oneof![5 => Just(0u32), 2 => 1..3u32], spec(), any::<bool>())
            .prop_map(|(p, s, b)| Step::Attach(p, s, b)),
        4 => (n(), spec(), any::<bool>()).prop_map(|(m, s, b)| Step::Insert(m, s, b)),
        3 => n().prop_map(Step::MeUnlink),
        14 => (n(), desc(), any::<bool>()).prop_map(|(m, d, u)| Step::MdAttach(m, d, u)),
        6 => (desc(), any::<bool>()).prop_map(|(d, u)| Step::MdBind(d, u)),
        4 => n().prop_map(Step::MdUnlink),
        8 => (4..9usize, desc()).prop_map(|(n, d)| Step::Target(n, d)),
        9 => (4..9usize, desc()).prop_map(|(n, d)| Step::Loud(n, d)),
        6 => (4..12usize, desc()).prop_map(|(n, d)| Step::Source(n, d)),
        4 => (n(), desc(), prop::option::of(n())).prop_map(|(m, d, t)| Step::MdUpdate(m, d, t)),
        4 => (n(), -2..4i32, any::<u64>(), prop::option::of(n()))
            .prop_map(|(m, n, u, t)| Step::MdRenew(m, n, u, t)),
        2 => (n(), spec(), any::<bool>(), desc(), any::<bool>(), prop::option::of(n()))
            .prop_map(|(m, s, b, d, u, t)| Step::Post(m, s, b, d, u, t)),
        3 => n().prop_map(Step::Open),
        3 => (0..6u64).prop_map(Step::EqAlloc),
        1 => n().prop_map(Step::EqFree),
        8 => n().prop_map(Step::EqGet),
        // Entry 0 stays open, or nothing would get through for the rest of a program.
        2 => (1..3u32, entry).prop_map(|(i, e)| Step::AcEntry(i, e)),
        16 => (n(), region(), any::<bool>(), to(), any::<u64>())
            .prop_map(|(m, r, a, t, h)| Step::Put(m, r, a, t, h)),
        8 => (n(), region(), to()).prop_map(|(m, r, t)| Step::Get(m, r, t)),
        6 => (n(), n(), regions, to(), any::<u64>())
            .prop_map(|(g, p, r, t, h)| Step::GetPut(g, p, r, t, h)),
        12 => (n(), region(), any::<bool>(), to(), any::<u64>(), prop::bool::weighted(0.9))
            .prop_map(|(m, r, a, t, h, ok)| Step::Pass(m, r, a, t, h, ok)),
        24 => Just(Step::Arrive),
        24 => prop::bool::weighted(0.9).prop_map(Step::ArriveWhole),
        2 => Just(Step::Lose),
        2 => Just(Step::Duplicate),
        24 => (n(), prop::bool::weighted(0.9)).prop_map(|(i, ok)| Step::Finish(i, ok)),
    ]
}
