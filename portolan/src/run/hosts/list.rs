//! Which hosts a job has, and which ranks each of them: text in, places out.
//!
//! | form | as in |
//! |---|---|
//! | `a,b:4` | `--hosts`, and one host per line of a host file, where `#` begins a comment |
//! | `a slots=4` | a line of a host file |
//! | `2`, then lines `host port` | the file of GM's processes, one line for each |
//!
//! Ranks go to hosts in blocks: the first ranks to the first host. Where hosts have numbers of ranks
//! they are filled in order; otherwise each gets the same number, the first ones one more.

use std::collections::BTreeSet;

/// What is wrong with a list of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ListError {
    /// No host at all.
    #[error("no host is named")]
    Empty,
    /// A host's name that ssh could take for something else.
    #[error("{0:?} is no host's name")]
    Name(String),
    /// The number of ranks of a host.
    #[error("{host:?} has {count:?} ranks: a number from 1 is expected")]
    Count {
        /// The host.
        host: String,
        /// What stands for the number.
        count: String,
    },
    /// A line of a file.
    #[error("line {line} is {text:?}: {expected} is expected")]
    Line {
        /// From 1.
        line: usize,
        /// The line.
        text: String,
        /// What should stand there.
        expected: &'static str,
    },
    /// The first line of a GM file against the others.
    #[error("the first line says {said} processes, and {found} lines follow")]
    Number {
        /// The first line.
        said: usize,
        /// Lines with hosts.
        found: usize,
    },
    /// Two processes of one host with one port.
    #[error("port {port} of {host} is named twice")]
    Port {
        /// The host.
        host: String,
        /// The port.
        port: u32,
    },
    /// More nodes than hosts or than ranks.
    #[error("{nodes} nodes of {hosts} hosts for {ranks} ranks")]
    Nodes {
        /// Nodes that were asked for.
        nodes: usize,
        /// Hosts that were named.
        hosts: usize,
        /// Ranks of the job.
        ranks: usize,
    },
    /// The hosts' numbers of ranks do not suffice.
    #[error("the hosts have {room} ranks in all, and the job has {ranks}")]
    Full {
        /// Ranks that the hosts have.
        room: usize,
        /// Ranks of the job.
        ranks: usize,
    },
}

/// A host that was named, with the number of its ranks where it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) count: Option<usize>,
}

/// A host of a job and its ranks, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) host: String,
    pub(crate) ranks: Vec<u32>,
}

/// A name or an address, perhaps with a user. What begins with `-` would be an option of ssh.
fn name(text: &str) -> Result<String, ListError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@:[]%".contains(c);
    if text.is_empty() || text.starts_with('-') || !text.chars().all(plain) {
        return Err(ListError::Name(text.to_owned()));
    }
    Ok(text.to_owned())
}

fn host(text: &str, count: Option<&str>) -> Result<Host, ListError> {
    // `::1` is an address; `a:2` is a host with two ranks.
    let (bare, count) = match (count, text.split_once(':')) {
        (None, Some((bare, count))) if !count.contains(':') => (bare, Some(count)),
        _ => (text, count),
    };
    let name = name(bare)?;
    let count = match count.map(|c| (c, c.parse::<usize>())) {
        None => None,
        Some((_, Ok(n))) if n > 0 => Some(n),
        Some((count, _)) => {
            return Err(ListError::Count {
                host: name,
                count: count.to_owned(),
            });
        }
    };
    Ok(Host { name, count })
}

/// Hosts between commas.
pub(crate) fn parse_words(text: &str) -> Result<Vec<Host>, ListError> {
    let hosts: Vec<Host> = text
        .split(',')
        .map(|word| host(word.trim(), None))
        .collect::<Result<_, _>>()?;
    if hosts.is_empty() {
        return Err(ListError::Empty);
    }
    Ok(hosts)
}

/// The lines of a file that say something, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let said = |line: &'_ str| line.split('#').next().unwrap_or_default().trim().len();
    (1..).zip(text.lines()).filter_map(move |(at, line)| {
        let bare = line.split('#').next().unwrap_or_default().trim();
        (said(line) > 0).then_some((at, bare))
    })
}

/// A host file.
pub(crate) fn parse_file(text: &str) -> Result<Vec<Host>, ListError> {
    let mut hosts = Vec::new();
    for (line, bare) in lines(text) {
        let words: Vec<&str> = bare.split_whitespace().collect();
        hosts.push(match words[..] {
            [one] => host(one, None)?,
            [one, slots] if slots.starts_with("slots=") => host(one, slots.strip_prefix("slots="))?,
            _ => {
                return Err(ListError::Line {
                    line,
                    text: bare.to_owned(),
                    expected: "HOST, HOST:N or HOST slots=N",
                });
            }
        });
    }
    if hosts.is_empty() {
        return Err(ListError::Empty);
    }
    Ok(hosts)
}

/// The file of GM's processes: their number, then a line `host port` for each, in the order of ranks. A
/// host's ports only tell its processes apart.
pub(crate) fn parse_gm(text: &str) -> Result<Vec<String>, ListError> {
    let mut lines = lines(text);
    let (at, first) = lines.next().ok_or(ListError::Empty)?;
    let said: usize = first
        .parse()
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| ListError::Line {
            line: at,
            text: first.to_owned(),
            expected: "the number of processes",
        })?;
    let mut hosts = Vec::new();
    let mut taken = BTreeSet::new();
    for (line, bare) in lines {
        let words: Vec<&str> = bare.split_whitespace().collect();
        let (host, port) = match words[..] {
            [host, port] => (host, port.parse::<u32>().ok()),
            _ => (bare, None),
        };
        let Some(port) = port else {
            return Err(ListError::Line {
                line,
                text: bare.to_owned(),
                expected: "HOST PORT",
            });
        };
        let host = name(host)?;
        if !taken.insert((host.clone(), port)) {
            return Err(ListError::Port { host, port });
        }
        hosts.push(host);
    }
    if hosts.len() != said {
        return Err(ListError::Number {
            said,
            found: hosts.len(),
        });
    }
    Ok(hosts)
}

/// Gives `ranks` ranks to `hosts` in blocks, on `nodes` of them if that is given.
pub(crate) fn by_block(
    hosts: &[Host],
    ranks: u32,
    nodes: Option<usize>,
) -> Result<Vec<Place>, ListError> {
    let count = usize::try_from(ranks).unwrap_or(usize::MAX);
    let used = nodes.unwrap_or(hosts.len().min(count));
    if used == 0 || used > hosts.len() || used > count {
        return Err(ListError::Nodes {
            nodes: used,
            hosts: hosts.len(),
            ranks: count,
        });
    }
    let counted = hosts.iter().any(|h| h.count.is_some());
    let mut places: Vec<Place> = Vec::new();
    let mut next = 0..ranks;
    for (at, host) in hosts.iter().take(used).enumerate() {
        let even = count / used + usize::from(at < count % used);
        let take = if counted {
            host.count.unwrap_or(1)
        } else {
            even
        };
        let block: Vec<u32> = next.by_ref().take(take).collect();
        if block.is_empty() {
            break;
        }
        // A host that is named twice has both blocks.
        match places.iter_mut().find(|p| p.host == host.name) {
            Some(place) => place.ranks.extend(block),
            None => places.push(Place {
                host: host.name.clone(),
                ranks: block,
            }),
        }
    }
    let placed: usize = places.iter().map(|p| p.ranks.len()).sum();
    if placed < count {
        return Err(ListError::Full {
            room: placed,
            ranks: count,
        });
    }
    Ok(places)
}

/// Gives rank i to the i-th of `hosts`.
pub(crate) fn one_by_one(hosts: &[String]) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for (rank, host) in (0..).zip(hosts) {
        match places.iter_mut().find(|p| p.host == *host) {
            Some(place) => place.ranks.push(rank),
            None => places.push(Place {
                host: host.clone(),
                ranks: vec![rank],
            }),
        }
    }
    places
}

/// Which rank is on which node, in the words of PMI: `(vector,(first node,nodes,ranks each),…)`.
pub(crate) fn mapping(places: &[Place], ranks: u32) -> String {
    let node = |rank: u32| places.iter().position(|p| p.ranks.contains(&rank));
    let mut runs: Vec<(usize, u32)> = Vec::new();
    for node in (0..ranks).filter_map(node) {
        match runs.last_mut() {
            Some((last, count)) if *last == node => *count += 1,
            _ => runs.push((node, 1)),
        }
    }
    let runs: Vec<String> = runs.iter().map(|(n, k)| format!("({n},1,{k})")).collect();
    format!("(vector,{})", runs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str, ranks: &[u32]) -> Place {
        Place {
            host: host.to_owned(),
            ranks: ranks.to_vec(),
        }
    }

    #[test]
    fn ranks_go_to_hosts_in_blocks() {
        let hosts = parse_words("a,b,c").unwrap();
        let five = by_block(&hosts, 5, Some(2)).unwrap();
        assert_eq!(five, [place("a", &[0, 1, 2]), place("b", &[3, 4])]);
        assert_eq!(mapping(&five, 5), "(vector,(0,1,3),(1,1,2))");
        let two = by_block(&hosts, 2, None).unwrap();
        assert_eq!(two, [place("a", &[0]), place("b", &[1])]);
        let counted = parse_words("a:3,root@b:1").unwrap();
        let four = by_block(&counted, 4, None).unwrap();
        assert_eq!(four, [place("a", &[0, 1, 2]), place("root@b", &[3])]);
        let twice = by_block(&parse_words("a,b,a").unwrap(), 3, None).unwrap();
        assert_eq!(twice, [place("a", &[0, 2]), place("b", &[1])]);
        assert_eq!(mapping(&twice, 3), "(vector,(0,1,1),(1,1,1),(0,1,1))");
    }

    #[test]
    fn lists_that_cannot_hold_the_job_are_errors() {
        let hosts = parse_words("a:1,b:1").unwrap();
        let full = ListError::Full { room: 2, ranks: 3 };
        assert_eq!(by_block(&hosts, 3, None), Err(full));
        assert!(matches!(
            by_block(&hosts, 2, Some(3)),
            Err(ListError::Nodes { .. })
        ));
        assert!(matches!(
            by_block(&hosts, 2, Some(0)),
            Err(ListError::Nodes { .. })
        ));
        for (words, name) in [
            ("", ""),
            ("a,,b", ""),
            ("-oProxyCommand=x", "-oProxyCommand=x"),
            ("a b", "a b"),
            ("a;b", "a;b"),
            ("$(x)", "$(x)"),
        ] {
            assert_eq!(parse_words(words), Err(ListError::Name(name.to_owned())));
        }
        for count in ["0", "x", "-1"] {
            let refused = ListError::Count {
                host: "a".to_owned(),
                count: count.to_owned(),
            };
            assert_eq!(parse_words(&format!("a:{count}")), Err(refused));
        }
    }

    #[test]
    fn host_files_of_both_manners_are_read() {
        let text = "# machines\n a slots=2 # big\n\nb:1\nfe80::1\n";
        let hosts = parse_file(text).unwrap();
        let read: Vec<_> = hosts.iter().map(|h| (h.name.as_str(), h.count)).collect();
        assert_eq!(read, [("a", Some(2)), ("b", Some(1)), ("fe80::1", None)]);
        assert_eq!(parse_file("# nothing\n"), Err(ListError::Empty));
        let error = parse_file("a\nb c d").unwrap_err().to_string();
        assert_eq!(
            error,
            "line 2 is \"b c d\": HOST, HOST:N or HOST slots=N is expected"
        );
    }

    #[test]
    fn the_file_of_gm_has_a_line_for_each_rank() {
        let hosts = parse_gm("3\nhost001 2\nhost002 4\nhost001 4\n").unwrap();
        let places = one_by_one(&hosts);
        assert_eq!(places, [place("host001", &[0, 2]), place("host002", &[1])]);
        let says = |text: &str| parse_gm(text).unwrap_err().to_string();
        assert_eq!(says(""), "no host is named");
        assert_eq!(
            says("host001 2\n"),
            "line 1 is \"host001 2\": the number of processes is expected"
        );
        assert_eq!(
            says("2\na 2\n"),
            "the first line says 2 processes, and 1 lines follow"
        );
        assert_eq!(says("2\na 2\na 2\n"), "port 2 of a is named twice");
        assert_eq!(says("1\na\n"), "line 2 is \"a\": HOST PORT is expected");
        assert_eq!(says("1\na x\n"), "line 2 is \"a x\": HOST PORT is expected");
        assert!(says("1\n-a 2\n").contains("no host's name"));
    }

    #[test]
    fn any_text_is_a_list_or_an_error() {
        let mut rng = fastrand::Rng::with_seed(8);
        for _ in 0..5000 {
            let text: String = (0..rng.usize(..30))
                .map(|_| {
                    *rng.choice(&['a', '1', ' ', '\n', ':', ',', '#', '-', '='])
                        .unwrap()
                })
                .collect();
            let _ = parse_gm(&text);
            for hosts in [parse_words(&text), parse_file(&text)]
                .into_iter()
                .flatten()
            {
                let ranks = rng.u32(1..9);
                if let Ok(places) = by_block(&hosts, ranks, None) {
                    let mut all: Vec<u32> = places.iter().flat_map(|p| p.ranks.clone()).collect();
                    all.sort_unstable();
                    assert_eq!(all, (0..ranks).collect::<Vec<_>>(), "{text:?}");
                }
            }
        }
    }
}
