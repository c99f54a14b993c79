//! The variables of the portals-conduit, and those that this one accepts without effect.

use portals_shim::nearest;

/// Why a known variable changes nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoEffect {
    pub(crate) name: &'static str,
    pub(crate) why: Option<&'static str>,
}

/// Every `GASNET_PORTAL_*` variable that has an effect.
pub(crate) const KNOWN: [&str; 21] = [
    "GASNET_PORTAL_MSG_LIMIT",
    "GASNET_PORTAL_NUM_TMPMD",
    "GASNET_PORTAL_PACKED_LONG",
    "GASNET_PORTAL_NEAR",
    "GASNET_PORTAL_FLOW_CONTROL",
    "GASNET_PORTAL_DYNAMIC_CREDITS",
    "GASNET_PORTAL_SB_CHUNKS",
    "GASNET_PORTAL_RPL_CHUNKS",
    "GASNET_PORTAL_SAFE_LIMIT",
    "GASNET_PORTAL_AM_LIMIT",
    "GASNET_PORTAL_SYS_LIMIT",
    "GASNET_PORTAL_MAX_CRED_PER_NODE",
    "GASNET_PORTAL_CREDIT_STATS",
    "GASNET_PORTAL_STATS",
    "GASNET_PORTAL_EPOCH_DURATION",
    "GASNET_PORTAL_CRED_PER_NODE",
    "GASNET_PORTAL_BANKED_CREDITS",
    "GASNET_PORTAL_AMRECV_SPACE",
    "GASNET_PORTAL_PUTGET_BOUNCE_LIMIT",
    "GASNET_PORTAL_PUT_BOUNCE_LIMIT",
    "GASNET_PORTAL_GET_BOUNCE_LIMIT",
];

pub(crate) const NO_EFFECT: [NoEffect; 3] = [
    NoEffect {
        name: "GASNET_PORTAL_ACCEL",
        why: Some("the mode is the fabric's: portolan run --mode accelerated"),
    },
    NoEffect {
        name: "GASNET_PORTAL_DEBUG_NODE",
        why: Some("there is no debug output to restrict to one rank"),
    },
    NoEffect {
        name: "GASNET_PHYSMEM_NOPROBE",
        // Clients set it for their users, and it asks for what is so anyway.
        why: None,
    },
];

/// A job whose ranks have attached segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    /// Every other rank shares memory with this one: active messages to it are frames, puts and gets copies.
    pub(crate) near: bool,
    /// The fabric pins memory.
    pub(crate) pins: bool,
}

/// What counts only where ranks exchange messages.
const OF_MESSAGES: [&str; 9] = [
    "GASNET_PORTAL_PACKED_LONG",
    "GASNET_PACKEDLONG_LIMIT",
    "GASNET_PORTAL_FLOW_CONTROL",
    "GASNET_PORTAL_DYNAMIC_CREDITS",
    "GASNET_PORTAL_MAX_CRED_PER_NODE",
    "GASNET_PORTAL_EPOCH_DURATION",
    "GASNET_PORTAL_PUTGET_BOUNCE_LIMIT",
    "GASNET_PORTAL_PUT_BOUNCE_LIMIT",
    "GASNET_PORTAL_GET_BOUNCE_LIMIT",
];

/// What counts only where memory is pinned.
const OF_PINNING: [&str; 8] = [
    "GASNET_FIREHOSE_M",
    "GASNET_FIREHOSE_MAXVICTIM_M",
    "GASNET_FIREHOSE_MAXREGION_SIZE",
    "GASNET_FIREHOSE_TIMEOUT",
    "GASNET_USE_FIREHOSE",
    "GASNET_RDMA_GETS",
    "GASNET_PHYSMEM_MAX",
    "GASNET_PHYSMEM_PINNABLE_RATIO",
];

/// What to say about variables of `set` that do nothing in a job with segments.
pub(super) fn idle(set: &[&'static str], job: Sharing) -> Vec<String> {
    let why = |name: &str| {
        if job.near && OF_MESSAGES.contains(&name) {
            Some(
                "the other ranks share memory with this one, and no messages are exchanged with them",
            )
        } else if !job.pins && OF_PINNING.contains(&name) {
            Some("this fabric pins no memory")
        } else {
            None
        }
    };
    let line = |name: &&str| Some(format!("{name} has no effect in this job: {}", why(name)?));
    set.iter().filter_map(line).collect()
}

/// Beginnings of the names of other conduits' variables.
const OTHER_CONDUITS: [&str; 16] = [
    "AMMPI", "AMUDP", "ARIES", "DCMF", "ELAN", "GEMINI", "GM", "GNI", "IBV", "LAPI", "MXM", "OFI",
    "PAMI", "SHMEM", "UCX", "VAPI",
];

fn is_of_another_conduit(name: &str) -> bool {
    let rest = name.strip_prefix("GASNET_").unwrap_or_default();
    let word = rest.split_once('_').map(|(word, _)| word);
    word.is_some_and(|word| OTHER_CONDUITS.contains(&word))
}

/// What to say about variables that are set and do nothing.
pub(crate) fn warnings(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = names
        .into_iter()
        .filter_map(|n| match NO_EFFECT.iter().find(|e| e.name == n) {
            Some(e) => e.why.map(|why| format!("{n} has no effect: {why}")),
            None if is_of_another_conduit(&n) => {
                Some(format!("{n} has no effect: it is of another conduit"))
            }
            None if !n.starts_with("GASNET_PORTAL_") || KNOWN.contains(&n.as_str()) => None,
            None => Some(match nearest(&n, &KNOWN) {
                Some(known) => format!("{n} is no variable of this conduit; is it {known}?"),
                None => format!("{n} is no variable of this conduit"),
            }),
        })
        .collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_nothing_is_said() {
        let names = [
            "GASNET_PORTAL_MSG_LIMITS",
            "GASNET_PORTAL_MSG_LIMIT",
            "GASNET_PORTAL_ACCEL",
            "GASNET_PORTAL_TEAPOT",
            "GASNET_GM_PACKED_LONG",
            "GASNET_IBV_PORTS",
            "GASNET_GMX",
            "GASNET_BARRIER",
            "GASNET_PHYSMEM_NOPROBE",
            "PATH",
        ];
        assert_eq!(
            warnings(names.map(str::to_owned)),
            [
                "GASNET_GM_PACKED_LONG has no effect: it is of another conduit",
                "GASNET_IBV_PORTS has no effect: it is of another conduit",
                "GASNET_PORTAL_ACCEL has no effect: the mode is the fabric's: portolan run --mode accelerated",
                "GASNET_PORTAL_MSG_LIMITS is no variable of this conduit; is it \
                 GASNET_PORTAL_MSG_LIMIT?",
                "GASNET_PORTAL_TEAPOT is no variable of this conduit",
            ]
        );
    }

    /// The book has a line for every variable.
    #[test]
    fn the_book_names_all() {
        let page = include_str!("../../../docs/src/mechanisms/conduit.md");
        let idle = OF_MESSAGES.into_iter().chain(OF_PINNING);
        for name in KNOWN
            .into_iter()
            .chain(NO_EFFECT.map(|e| e.name))
            .chain(idle)
        {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }
}
