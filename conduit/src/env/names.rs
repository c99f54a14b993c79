//! The variables of the portals-conduit, and those that this one accepts without effect.

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

/// What to say about variables that are set and do nothing.
pub(crate) fn warnings(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = names
        .into_iter()
        .filter_map(|n| match NO_EFFECT.iter().find(|e| e.name == n) {
            Some(e) => e.why.map(|why| format!("{n} has no effect: {why}")),
            None if !n.starts_with("GASNET_PORTAL_") || KNOWN.contains(&n.as_str()) => None,
            None => Some(match nearest(&n) {
                Some(known) => format!("{n} is no variable of this conduit; is it {known}?"),
                None => format!("{n} is no variable of this conduit"),
            }),
        })
        .collect();
    all.sort();
    all
}

/// A known name within three changes of letters.
fn nearest(name: &str) -> Option<&'static str> {
    let distance = |known: &str| {
        let (a, b) = (name.as_bytes(), known.as_bytes());
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, x) in a.iter().enumerate() {
            let mut corner = row[0];
            row[0] = i + 1;
            for (j, y) in b.iter().enumerate() {
                let change = corner + usize::from(x != y);
                corner = row[j + 1];
                row[j + 1] = change.min(row[j] + 1).min(corner + 1);
            }
        }
        row[b.len()]
    };
    let best = KNOWN.into_iter().min_by_key(|k| distance(k))?;
    (distance(best) <= 3).then_some(best)
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
            "GASNET_BARRIER",
            "GASNET_PHYSMEM_NOPROBE",
            "PATH",
        ];
        assert_eq!(
            warnings(names.map(str::to_owned)),
            [
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
        for name in KNOWN.into_iter().chain(NO_EFFECT.map(|e| e.name)) {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }
}
