//! The names of all variables that begin with `PORTOLAN_`, so that a misspelt one does not pass in silence.

use std::sync::Once;

/// Every variable of users that something here reads. A test compares them with the sources and with the book.
const NAMES: &[&str] = &[
    "PORTOLAN_ADDRESS",
    "PORTOLAN_CHANNEL",
    "PORTOLAN_CHATTY",
    "PORTOLAN_CONNECT",
    "PORTOLAN_CONNECTIONS",
    "PORTOLAN_CONNECTION_STATS",
    "PORTOLAN_CONNECT_TIMEOUT",
    "PORTOLAN_CRAY_GET_EVENTS",
    "PORTOLAN_CRAY_START",
    "PORTOLAN_CRAY_UNLINK_EVENTS",
    "PORTOLAN_DATAGRAM_STATS",
    "PORTOLAN_DEVICE",
    "PORTOLAN_DUMP_SEGMENTS",
    "PORTOLAN_EXE",
    "PORTOLAN_FABRIC",
    "PORTOLAN_FABRIC_REASON",
    "PORTOLAN_FLOOD",
    "PORTOLAN_GID",
    "PORTOLAN_GUEST",
    "PORTOLAN_JOB_ID",
    "PORTOLAN_LAUNCHER",
    "PORTOLAN_LOG",
    "PORTOLAN_MACHINE",
    "PORTOLAN_MEMLOCK",
    "PORTOLAN_PKEY_INDEX",
    "PORTOLAN_PROGRESS",
    "PORTOLAN_PROTO_INFO",
    "PORTOLAN_QUIET",
    "PORTOLAN_RANKS_PER_NODE",
    "PORTOLAN_REMOTE",
    "PORTOLAN_RINGS",
    "PORTOLAN_RUN_OPTIONS",
    "PORTOLAN_SEASTAR_FAULTS",
    "PORTOLAN_SEASTAR_FAULT_SEED",
    "PORTOLAN_SEASTAR_MODE",
    "PORTOLAN_SHORT_GETS",
    "PORTOLAN_SILENT_RANK",
    "PORTOLAN_SIMULATION",
    "PORTOLAN_SL",
    "PORTOLAN_SPIN",
    "PORTOLAN_SSH",
    "PORTOLAN_TOPOLOGY",
    "PORTOLAN_TRACE",
    "PORTOLAN_TRACE_COUNTERS",
    "PORTOLAN_TRACE_ERRORS",
    "PORTOLAN_TRACE_LINKS",
    "PORTOLAN_TRACE_PACKETS",
    "PORTOLAN_TRACE_PCAP",
    "PORTOLAN_TRACE_SVG",
    "PORTOLAN_TRACE_TITLE",
    "PORTOLAN_TRACE_WINDOW",
    "PORTOLAN_TRAFFIC_CLASS",
    "PORTOLAN_WRITE_FROM",
];

/// Those of who works on this project.
const OF_DEVELOPERS: &[&str] = &[
    "PORTOLAN_BLESS",
    "PORTOLAN_CASE",
    "PORTOLAN_CONFORMANCE_ROUNDS",
    "PORTOLAN_FAULT_ROUND",
    "PORTOLAN_GROWTH_MODELLED",
    "PORTOLAN_GROWTH_ONLY",
    "PORTOLAN_GROWTH_OPERATIONS",
    "PORTOLAN_HOSTILE_MARK",
    "PORTOLAN_SEED",
    "PORTOLAN_TAG_OPERATIONS",
];

/// What all variables here begin with, and those of tests.
const OURS: &str = "PORTOLAN_";
const OF_TESTS: &str = "PORTOLAN_TEST_";

/// What to say about variables of these names that nothing reads.
pub fn unknown_variables(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let ours = |name: &String| name.starts_with(OURS) && !name.starts_with(OF_TESTS);
    let unknown = |name: &String| {
        let mut known = NAMES.iter().chain(OF_DEVELOPERS);
        !known.any(|known| known == name)
    };
    let mut lines: Vec<String> = names
        .into_iter()
        .filter(|name| ours(name) && unknown(name))
        .map(|name| match nearest(&name, NAMES) {
            Some(known) => format!("{name} is no variable of Portolan; is it {known}?"),
            None => format!("{name} is no variable of Portolan"),
        })
        .collect();
    lines.sort();
    lines
}

/// Whether `GASNET_QUIET` leaves out what a start says of itself, warnings too.
fn is_gasnet_quiet() -> bool {
    std::env::var("GASNET_QUIET").is_ok_and(|value| {
        let value = value.trim().to_ascii_lowercase();
        ["1", "y", "yes"].contains(&value.as_str())
    })
}

/// Whether a start says nothing of what it has chosen: by `PORTOLAN_QUIET`, which is set to anything but 0, or `GASNET_QUIET`.
pub fn is_quiet() -> bool {
    let set = std::env::var_os("PORTOLAN_QUIET").is_some_and(|v| !v.is_empty() && v != "0");
    set || is_gasnet_quiet()
}

/// Says once in this process which variables nothing reads; `GASNET_QUIET` leaves it out, as other warnings.
pub fn say_unknown() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if is_gasnet_quiet() {
            return;
        }
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for line in unknown_variables(names) {
            crate::say::say(format_args!("WARNING: {line}"));
        }
    });
}

/// The known name within three changes of letters.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
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
    let best = known.iter().copied().min_by_key(|k| distance(k))?;
    (distance(best) <= 3).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    #[test]
    fn a_misspelt_name_is_said_with_what_it_may_mean() {
        let names = [
            "PORTOLAN_FABRIK",
            "PORTOLAN_FABRIC",
            "PORTOLAN_TEST_ANYTHING",
            "PORTOLAN_TEAPOT_COSY",
            "PORTOLAND",
            "PATH",
        ];
        assert_eq!(
            unknown_variables(names.map(str::to_owned)),
            [
                "PORTOLAN_FABRIK is no variable of Portolan; is it PORTOLAN_FABRIC?",
                "PORTOLAN_TEAPOT_COSY is no variable of Portolan",
            ]
        );
    }

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    /// The texts of all files below `folder` that end so.
    fn texts(folder: &Path, ends: &[&str], to: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" {
                    texts(&path, ends, to);
                }
            } else if ends.iter().any(|end| name.ends_with(end)) && !path.ends_with("variables.rs")
            {
                to.push(fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }

    /// The names that stand alone between quotes.
    fn quoted(text: &str) -> impl Iterator<Item = &str> {
        text.split('"').filter(|word| {
            let of_name = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
            word.starts_with(OURS) && word.len() > OURS.len() && word.bytes().all(of_name)
        })
    }

    /// What tests misspell.
    const MISSPELT: &str = "PORTOLAN_FABRIK";

    #[test]
    fn the_names_are_those_of_the_sources() {
        let mut sources = Vec::new();
        texts(&root(), &[".rs", ".c"], &mut sources);
        let read: BTreeSet<&str> = sources
            .iter()
            .flat_map(|text| quoted(text))
            .filter(|name| !name.starts_with(OF_TESTS) && !name.ends_with('_'))
            .collect();
        assert!(read.len() > 40, "{read:?}");
        let known: BTreeSet<&str> = NAMES.iter().chain(OF_DEVELOPERS).copied().collect();
        let missing: Vec<_> = read
            .difference(&known)
            .filter(|n| **n != MISSPELT)
            .collect();
        assert!(missing.is_empty(), "add to NAMES: {missing:?}");
        let idle: Vec<_> = known.difference(&read).collect();
        assert!(idle.is_empty(), "nothing reads: {idle:?}");
    }

    #[test]
    fn the_book_has_them_all() {
        let mut pages = Vec::new();
        texts(&root().join("docs/src"), &[".md"], &mut pages);
        let named = |name: &str| {
            let mut words = pages
                .iter()
                .flat_map(|page| page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
            words.any(|word| word == name)
        };
        let absent: Vec<_> = NAMES.iter().filter(|name| !named(name)).collect();
        assert!(absent.is_empty(), "{absent:?}");
    }
}
