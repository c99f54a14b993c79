//! Trace and statistics files of a GASNet job, added up.
//!
//! ```text
//!  lines ─► line.rs ─► Summary: events by kind, place and type; counters of each rank once ─► tables
//! ```

mod line;

use line::{Counter, Event, Line, parse};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, BufRead};

/// What the rows of a table are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sort {
    /// The place in the program
    Place,
    /// The sum of bytes or time
    Total,
    /// How often it was called
    Calls,
    /// The mean
    Mean,
    /// The largest
    Max,
}

/// Kinds of events, in the order of the tables; the category, the title, and what is added up.
const KINDS: [(char, &str, Unit); 7] = [
    ('G', "gets", Unit::Bytes),
    ('P', "puts", Unit::Bytes),
    ('A', "active messages", Unit::Bytes),
    ('W', "collectives", Unit::Bytes),
    ('B', "barriers", Unit::Time),
    ('S', "waits for operations", Unit::Time),
    ('X', "waits for collectives", Unit::Time),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    Time,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    calls: u64,
    least: f64,
    most: f64,
    total: f64,
}

impl Sum {
    fn add(&mut self, calls: u64, least: f64, most: f64, total: f64) {
        if calls == 0 {
            return;
        }
        self.least = if self.calls == 0 {
            least
        } else {
            self.least.min(least)
        };
        self.most = self.most.max(most);
        self.calls += calls;
        self.total += total;
    }

    fn mean(&self) -> f64 {
        if self.calls == 0 {
            0.0
        } else {
            self.total / self.calls as f64
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: char,
    place: String,
    name: String,
    /// Where ranks are told apart.
    rank: Option<u32>,
}

/// What files said.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    sort: Sort,
    by_rank: bool,
    nodes: u32,
    seconds: f64,
    ranks: BTreeSet<u32>,
    rows: BTreeMap<Key, Sum>,
    /// By rank, then by counter.
    counters: BTreeMap<u32, BTreeMap<String, (Option<String>, Sum)>>,
    /// Lines that are none of such a file.
    strange: u64,
}

impl Summary {
    pub(crate) fn new(sort: Sort, by_rank: bool) -> Self {
        Self {
            sort,
            by_rank,
            nodes: 0,
            seconds: 0.0,
            ranks: BTreeSet::new(),
            rows: BTreeMap::new(),
            counters: BTreeMap::new(),
            strange: 0,
        }
    }

    /// Adds a file, or several that were written into one.
    pub(crate) fn read(&mut self, mut file: impl BufRead) -> io::Result<()> {
        let mut bytes = Vec::new();
        while file.read_until(b'\n', &mut bytes)? > 0 {
            let text = String::from_utf8_lossy(&bytes);
            let text = text.trim_end_matches(['\n', '\r']);
            match parse(text) {
                Some((rank, line)) => self.add(rank, line),
                None if text.trim().is_empty() => {}
                None => self.strange += 1,
            }
            bytes.clear();
        }
        Ok(())
    }

    /// Whether nothing was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    fn add(&mut self, rank: u32, line: Line<'_>) {
        self.ranks.insert(rank);
        match line {
            Line::Nodes(n) => self.nodes = self.nodes.max(n),
            Line::Seconds(s) => self.seconds = self.seconds.max(s),
            Line::Event(e) => self.event(rank, &e),
            Line::Counter(c) => self.counter(rank, c),
            Line::Other => {}
        }
    }

    fn event(&mut self, rank: u32, e: &Event<'_>) {
        // The start of a barrier has no time.
        let Some((_, _, unit)) = KINDS.iter().find(|k| k.0 == e.category) else {
            return;
        };
        if *unit == Unit::Time && (e.number.is_none() || e.name.contains("TRY")) {
            return;
        }
        let key = Key {
            kind: e.category,
            place: e.place.unwrap_or("-").to_owned(),
            name: e.name.to_owned(),
            rank: self.by_rank.then_some(rank),
        };
        let n = e.number.unwrap_or(0.0);
        self.rows.entry(key).or_default().add(1, n, n, n);
    }

    /// A rank's summary is in its trace file and in its statistics file, and counts once.
    fn counter(&mut self, rank: u32, c: Counter<'_>) {
        let mut sum = Sum::default();
        sum.add(c.count, c.range.0, c.range.1, c.range.2);
        let unit = c.unit.map(str::to_owned);
        let of_rank = self.counters.entry(rank).or_default();
        of_rank.insert(c.name.to_owned(), (unit, sum));
    }

    /// Counters of all ranks together.
    fn all_counters(&self) -> BTreeMap<&str, (Option<&str>, Sum)> {
        let mut all: BTreeMap<&str, (Option<&str>, Sum)> = BTreeMap::new();
        for (name, (unit, sum)) in self.counters.values().flatten() {
            if sum.calls > 0 {
                let (known, total) = all.entry(name).or_default();
                *known = known.or(unit.as_deref());
                total.add(sum.calls, sum.least, sum.most, sum.total);
            }
        }
        all
    }

    fn ordered(&self, kind: char) -> Vec<(&Key, &Sum)> {
        let mut rows: Vec<_> = self.rows.iter().filter(|(k, _)| k.kind == kind).collect();
        // Stable: rows that are equal stay in the order of places.
        let by: fn(&Sum) -> f64 = match self.sort {
            Sort::Place => |_| 0.0,
            Sort::Total => |s| s.total,
            Sort::Calls => |s| s.calls as f64,
            Sort::Mean => Sum::mean,
            Sort::Max => |s| s.most,
        };
        rows.sort_by(|a, b| by(b.1).total_cmp(&by(a.1)));
        rows
    }
}

fn bytes(n: f64) -> String {
    for (unit, word) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let unit = (1u64 << unit) as f64;
        if n >= unit {
            return format!("{:.2} {word}", n / unit);
        }
    }
    format!("{n:.0} B")
}

fn time(us: f64) -> String {
    if us >= 1e6 {
        format!("{:.3} s", us / 1e6)
    } else if us >= 1e3 {
        format!("{:.3} ms", us / 1e3)
    } else {
        format!("{us:.3} us")
    }
}

impl Unit {
    fn show(self, n: f64) -> String {
        match self {
            Self::Bytes => bytes(n),
            Self::Time => time(n),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seen, nodes) = (self.ranks.len(), self.nodes.max(self.ranks.len() as u32));
        writeln!(f, "{seen} of {nodes} ranks, {:.6} s", self.seconds)?;
        for (kind, title, unit) in KINDS {
            let rows = self.ordered(kind);
            if rows.is_empty() {
                continue;
            }
            let wide = rows.iter().map(|(k, _)| k.place.len()).max().unwrap_or(0);
            let rank = if self.by_rank { "  rank" } else { "" };
            writeln!(
                f,
                "\n{title}\n{:<wide$}{rank}  {:<26} {:>8} {:>12} {:>12} {:>12} {:>12}",
                "place", "event", "calls", "min", "max", "mean", "total"
            )?;
            for (k, s) in rows {
                write!(f, "{:<wide$}", k.place)?;
                if let Some(rank) = k.rank {
                    write!(f, "  {rank:>4}")?;
                }
                let [least, most, mean, total] =
                    [s.least, s.most, s.mean(), s.total].map(|n| unit.show(n));
                writeln!(
                    f,
                    "  {:<26} {:>8} {least:>12} {most:>12} {mean:>12} {total:>12}",
                    k.name, s.calls
                )?;
            }
        }
        let counters = self.all_counters();
        if !counters.is_empty() {
            let of = self.counters.len();
            writeln!(
                f,
                "\ncounters of {of} ranks\n{:<27} {:>9} {:>12} {:>12} {:>12}",
                "event", "count", "min", "max", "total"
            )?;
        }
        for (name, (unit, s)) in counters {
            let show = |n: f64| match unit {
                Some("sz") => bytes(n),
                Some(u) if u.contains("(us)") => time(n),
                Some(_) => format!("{n}"),
                None => "-".to_owned(),
            };
            let [least, most, total] = [s.least, s.most, s.total].map(show);
            writeln!(
                f,
                "{name:<27} {:>9} {least:>12} {most:>12} {total:>12}",
                s.calls
            )?;
        }
        if seen < nodes as usize {
            writeln!(f, "\nfiles of {} ranks are missing", nodes as usize - seen)?;
        }
        if self.strange > 0 {
            writeln!(
                f,
                "\n{} lines are not of a trace or statistics file",
                self.strange
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
0> gasnet_nodes(): 2
0 0.1s> [a.c:2] (P) PUT: sz =      8
0 0.1s> [a.c:1] (P) PUT: sz =   2048
0 0.1s> [a.c:1] (P) PUT: sz =   4096
0 0.1s> [a.c:9] (B) BARRIER_NOTIFY(team=GASNET_TEAM_ALL,id=0,flags=1)
0 0.1s> [a.c:9] (B) BARRIER_WAIT: waittime =  1500.0us
1 0.1s> (A) AMREQUEST_SHORT: dest=0 handler=1 args:
0> Total application run time:   2.000000s
0>  PUT:   3  avg/min/max/total sz = 2050/8/4096/6152
0>  GET:   0
what is this
";

    #[test]
    fn events_are_added_by_place_and_counters_once() {
        let mut s = Summary::new(Sort::Total, false);
        assert!(s.is_empty());
        s.read(FILE.as_bytes()).unwrap();
        s.read("0>  PUT:   3  avg/min/max/total sz = 2050/8/4096/6152\n".as_bytes())
            .unwrap();
        let text = s.to_string();
        let squeezed: Vec<String> = text
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for want in [
            "2 of 2 ranks, 2.000000 s",
            "a.c:1 PUT 2 2.00 KiB 4.00 KiB 3.00 KiB 6.00 KiB",
            "a.c:2 PUT 1 8 B 8 B 8 B 8 B",
            "a.c:9 BARRIER_WAIT 1 1.500 ms 1.500 ms 1.500 ms 1.500 ms",
            "- AMREQUEST_SHORT 1 0 B 0 B 0 B 0 B",
            "PUT 3 8 B 4.00 KiB 6.01 KiB",
            "1 lines are not of a trace or statistics file",
        ] {
            assert!(squeezed.iter().any(|l| l == want), "{want} in\n{text}");
        }
        assert!(!text.contains("GET") && !text.contains("BARRIER_NOTIFY"));
        let at = |what: &str| text.find(what).unwrap();
        assert!(at("a.c:1") < at("a.c:2"), "by total");
    }

    #[test]
    fn ranks_apart() {
        let mut s = Summary::new(Sort::Place, true);
        s.read("0 1s> (P) PUT: sz = 1\n1 1s> (P) PUT: sz = 2\n".as_bytes())
            .unwrap();
        assert_eq!(s.ordered('P').len(), 2);
    }
}
