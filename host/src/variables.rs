//! The variables that something here reads, so that a user finds them and a misspelt one does not pass in silence.

mod table;

use std::sync::Once;

pub use table::{Reader, VARIABLES, Variable};

/// Those of who works on this project.
const OF_DEVELOPERS: &[&str] = &[
    "PORTOLAN_BLESS",
    "PORTOLAN_CASE",
    "PORTOLAN_CONFORMANCE_ROUNDS",
    "PORTOLAN_FAULT_ROUND",
    "PORTOLAN_FLOOD",
    "PORTOLAN_GROWTH_MODELLED",
    "PORTOLAN_GROWTH_ONLY",
    "PORTOLAN_GROWTH_OPERATIONS",
    "PORTOLAN_HOSTILE_MARK",
    "PORTOLAN_SEED",
    "PORTOLAN_TAG_OPERATIONS",
];

/// What variables begin with that nobody else reads, and those of tests.
const OURS: [&str; 2] = ["PORTOLAN_", "FI_PORTOLAN_"];
const OF_TESTS: &str = "PORTOLAN_TEST_";

fn is_ours(name: &str) -> bool {
    OURS.iter().any(|beginning| name.starts_with(beginning))
}

/// What to say about variables of these names that nothing reads.
pub fn unknown_variables(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let ours = |name: &String| is_ours(name) && !name.starts_with(OF_TESTS);
    let of_users: Vec<&str> = VARIABLES.iter().map(|v| v.name).collect();
    let unknown = |name: &String| {
        let mut known = of_users.iter().chain(OF_DEVELOPERS);
        !known.any(|known| known == name)
    };
    let mut lines: Vec<String> = names
        .into_iter()
        .filter(|name| ours(name) && unknown(name))
        .map(|name| match nearest(&name, &of_users) {
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
    let distance = |known: &str| strsim::levenshtein(name, known);
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
            "FI_PORTOLAN_DEVISE",
            "FI_PROVIDER",
            "PORTOLAND",
            "PATH",
        ];
        assert_eq!(
            unknown_variables(names.map(str::to_owned)),
            [
                "FI_PORTOLAN_DEVISE is no variable of Portolan; is it FI_PORTOLAN_DEVICE?",
                "PORTOLAN_FABRIK is no variable of Portolan; is it PORTOLAN_FABRIC?",
                "PORTOLAN_TEAPOT_COSY is no variable of Portolan",
            ]
        );
    }

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    /// Whether a file is of the table itself.
    fn is_of_table(path: &Path) -> bool {
        path.ends_with("host/src/variables.rs") || path.ends_with("variables/table.rs")
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
            } else if ends.iter().any(|end| name.ends_with(end)) && !is_of_table(&path) {
                to.push(fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }

    /// The names of variables that stand alone between quotes.
    fn quoted(text: &str) -> impl Iterator<Item = &str> {
        let begins = |word: &str| is_ours(word) || word.starts_with("GASNET_");
        text.split('"').filter(move |word| {
            let of_name = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
            begins(word) && !word.ends_with('_') && word.bytes().all(of_name)
        })
    }

    /// What tests misspell.
    const MISSPELT: [&str; 2] = ["PORTOLAN_FABRIK", "FI_PORTOLAN_DEVISE"];
    /// Names of `gasnet.h` that are no variables of the environment.
    const OF_GASNET_H: [&str; 3] = ["GASNET_OK", "GASNET_BLOCKUNTIL", "GASNET_ERR_"];

    /// The text of a source without its tests.
    fn untested(text: &str) -> &str {
        let tests = text.find("#[cfg(test)]\nmod tests {");
        tests.map_or(text, |at| &text[..at])
    }

    #[test]
    fn the_names_are_those_of_the_sources() {
        let mut sources = Vec::new();
        texts(&root(), &[".rs", ".c"], &mut sources);
        // Tests name what GASNet has elsewhere, so that only what is not a test says what is read.
        let mut untested_sources = Vec::new();
        let crates = [
            "conduit",
            "host",
            "ofi",
            "portals-shim",
            "portolan",
            "tagged",
            "launch",
        ];
        for folder in crates {
            for part in [
                "src",
                "capi/src",
                "capi/include",
                "engine/src",
                "fabric/api/src",
            ] {
                let folder = root().join(folder).join(part);
                if folder.is_dir() {
                    texts(&folder, &[".rs", ".h"], &mut untested_sources);
                }
            }
        }
        let of_gasnet = |name: &&str| {
            let other = OF_GASNET_H.iter().any(|other| name.starts_with(other));
            name.starts_with("GASNET_") && !other
        };
        let ours = sources.iter().flat_map(|text| quoted(text));
        let ours = ours.filter(|name| is_ours(name) && !name.starts_with(OF_TESTS));
        let gasnet = untested_sources.iter();
        let gasnet = gasnet.flat_map(|text| quoted(untested(text)));
        let read: BTreeSet<&str> = ours.chain(gasnet.filter(of_gasnet)).collect();
        assert!(read.len() > 100, "{read:?}");
        let of_users = VARIABLES.iter().map(|v| v.name);
        let known: BTreeSet<&str> = of_users.chain(OF_DEVELOPERS.iter().copied()).collect();
        let missing: Vec<_> = read
            .difference(&known)
            .filter(|name| !MISSPELT.iter().any(|m| m == *name))
            .collect();
        assert!(missing.is_empty(), "add to the table: {missing:?}");
        let idle: Vec<_> = known.difference(&read).collect();
        assert!(idle.is_empty(), "nothing reads: {idle:?}");
    }

    #[test]
    fn each_variable_stands_once_with_words_for_all_that_is_asked() {
        let names: BTreeSet<&str> = VARIABLES.iter().map(|v| v.name).collect();
        assert_eq!(names.len(), VARIABLES.len());
        for variable in VARIABLES {
            assert!(Reader::ALL.contains(&variable.reader));
            let (default, meaning) = (variable.default, variable.meaning);
            assert!(!default.is_empty() && meaning.len() > 8, "{variable:?}");
        }
        let order = |v: &Variable| Reader::ALL.iter().position(|r| *r == v.reader);
        let sorted = VARIABLES.is_sorted_by_key(|v| (order(v), v.name));
        assert!(sorted, "by reader and name");
    }

    /// The page of the book that is made of the table.
    const PAGE: &str = "docs/src/variables.md";

    fn page() -> String {
        let mut text = "# Variables\n\nWhat `portolan info --variables` prints, without the values. The page is made of \
                        `host/src/variables/table.rs` by\n`PORTOLAN_BLESS=1 cargo test -p host variables`.\n"
            .to_owned();
        for reader in Reader::ALL {
            text += &format!("\n## Read by {}\n\n", reader.words());
            text += "| variable | default | meaning |\n|---|---|---|\n";
            for Variable {
                name,
                default,
                meaning,
                ..
            } in VARIABLES.iter().filter(|v| v.reader == reader)
            {
                text += &format!("| `{name}` | {default} | {meaning} |\n");
            }
        }
        text
    }

    #[test]
    fn the_page_of_the_book_is_the_table() {
        let path = root().join(PAGE);
        if std::env::var_os("PORTOLAN_BLESS").is_some() {
            fs::write(&path, page()).unwrap();
        }
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == page(),
            "{PAGE} differs; PORTOLAN_BLESS=1 writes it anew"
        );
    }

    #[test]
    fn the_book_explains_them_all() {
        let mut pages = Vec::new();
        texts(&root().join("docs/src"), &[".md"], &mut pages);
        let made = page();
        pages.retain(|page| *page != made);
        let named = |name: &str| {
            let mut words = pages
                .iter()
                .flat_map(|page| page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
            words.any(|word| word == name)
        };
        let absent = VARIABLES.iter().filter(|v| !named(v.name));
        let absent: Vec<_> = absent.map(|v| v.name).collect();
        assert!(absent.is_empty(), "{absent:?}");
    }
}
