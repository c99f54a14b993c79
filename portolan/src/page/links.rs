//! The loads of links over time, in as many rows and columns as a page can show.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Fact;

/// Links that a page shows at most: the busiest.
const ROWS: usize = 64;
/// Columns of time at most.
const COLUMNS: u64 = 240;

/// An object of `portolan trace --link-series`.
#[derive(Debug, Deserialize)]
struct Bin {
    machine: String,
    link: String,
    node: u32,
    from_us: f64,
    width_us: f64,
    busy_us: f64,
}

/// Why loads of links cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LinksError {
    /// An object lacks something.
    #[error("not the form of `portolan trace --link-series`")]
    Form(#[from] serde_json::Error),
    /// A bin has no width, another one than the others, or does not begin at a multiple of it.
    #[error("object {0} has a bin that is none")]
    Bin(usize),
}

/// What `portolan trace --link-series` wrote.
#[derive(Debug)]
pub(crate) struct Links {
    bins: Vec<Bin>,
}

/// Loads of links as the page's script reads them.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    file: String,
    about: Vec<Fact>,
    notes: Vec<String>,
    /// Start of the first column, and the width of each, microseconds.
    from: f64,
    width: f64,
    columns: u64,
    rows: Vec<Row>,
}

/// A link.
#[derive(Debug, Serialize)]
struct Row {
    link: String,
    /// Column, and the share of it in which the link was in use; others are idle.
    cells: Vec<(u64, f64)>,
    /// Microseconds in use.
    #[serde(skip)]
    busy: f64,
}

/// Whether an array has loads of links, as far as its first object says.
pub(super) fn are_links(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let line = text.strip_prefix(b"[").unwrap_or(text).trim_ascii_start();
    let line = line.split(|b| *b == b'\n').next().unwrap_or(line);
    let line = line.strip_suffix(b",").unwrap_or(line);
    text.starts_with(b"[") && serde_json::from_slice::<Bin>(line).is_ok()
}

impl Links {
    /// Reads loads of links.
    ///
    /// # Errors
    /// [`LinksError`] for an object that is none.
    pub(super) fn parse(text: &[u8]) -> Result<Self, LinksError> {
        let bins: Vec<Bin> = serde_json::from_slice(text)?;
        let width = bins.first().map_or(1.0, |bin| bin.width_us);
        let is_bin = |bin: &Bin| {
            let number = bin.from_us / width;
            // Doubles count picoseconds exactly up to here, two hours.
            (0.0..9e9).contains(&bin.from_us)
                && (0.001..9e9).contains(&bin.width_us)
                && bin.width_us == width
                && (number - number.round()).abs() < 1e-3
                && (0.0..=width).contains(&bin.busy_us)
        };
        match bins.iter().position(|bin| !is_bin(bin)) {
            Some(at) => Err(LinksError::Bin(at + 1)),
            None => Ok(Self { bins }),
        }
    }

    /// What the page shows of them.
    pub(super) fn shown(&self, file: &str) -> Shown {
        let width = self.bins.first().map_or(1.0, |bin| bin.width_us);
        let number = |bin: &Bin| (bin.from_us / width).round() as u64;
        let first = self.bins.iter().map(number).min().unwrap_or(0);
        let last = self.bins.iter().map(number).max().unwrap_or(0);
        // So many bins are a column.
        let bins = (last - first + 1).div_ceil(COLUMNS);
        let mut links: BTreeMap<(u32, &str), BTreeMap<u64, f64>> = BTreeMap::new();
        let mut order: Vec<(u32, &str)> = Vec::new();
        for bin in &self.bins {
            let key = (bin.node, bin.link.as_str());
            let row = links.entry(key).or_insert_with(|| {
                order.push(key);
                BTreeMap::new()
            });
            *row.entry((number(bin) - first) / bins).or_default() += bin.busy_us;
        }
        let width = width * bins as f64;
        let rows = order.iter().map(|key| Row {
            link: key.1.to_owned(),
            busy: links[key].values().sum(),
            cells: links[key]
                .iter()
                .map(|(column, busy)| (*column, (busy / width).min(1.0)))
                .collect(),
        });
        let (rows, notes) = busiest(rows.collect());
        Shown {
            file: file.to_owned(),
            about: self.about(),
            notes,
            from: first as f64 * width / bins as f64,
            width,
            columns: (last - first + 1).div_ceil(bins),
            rows,
        }
    }

    fn about(&self) -> Vec<Fact> {
        let name = self.bins.first().map_or("", |bin| &bin.machine);
        let known = nic_model::Machine::named(name);
        let machine = known.map_or_else(|_| name.to_owned(), |m| m.description);
        vec![("machine", format!("{machine} (simulated)"))]
    }
}

/// The rows that a page has room for, in their order, and what is said of the others.
///
/// Node ports go first: each carries what all links towards its node do.
fn busiest(mut rows: Vec<Row>) -> (Vec<Row>, Vec<String>) {
    let all = rows.len();
    if all <= ROWS {
        return (rows, Vec::new());
    }
    rows.retain(|row| !row.link.ends_with(" node"));
    let links = rows.len();
    if links > ROWS {
        let mut uses: Vec<(f64, usize)> = rows.iter().map(|row| row.busy).zip(0..).collect();
        uses.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let kept: BTreeSet<usize> = uses.iter().take(ROWS).map(|(_, at)| *at).collect();
        let mut at = 0..links;
        rows.retain(|_| at.next().is_some_and(|at| kept.contains(&at)));
    }
    let (shown, ports) = (rows.len(), all - links);
    let note = format!(
        "The page shows the {shown} busiest of {links} links, and none of {ports} node ports."
    );
    (rows, vec![note])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bin(link: &str, node: u32, from: f64, busy: f64) -> String {
        format!(
            r#"{{"machine":"xt4","link":"{link}","node":{node},"from_us":{from},"width_us":0.5,"busy_us":{busy}}}"#
        )
    }

    fn shown(bins: &[String]) -> Shown {
        let text = format!("[\n{}\n]\n", bins.join(",\n"));
        assert!(are_links(text.as_bytes()));
        Links::parse(text.as_bytes()).unwrap().shown("f")
    }

    #[test]
    fn bins_become_columns_from_the_first_to_the_last() {
        let bins = [
            bin("(0,0,0) x+", 0, 10.0, 0.25),
            bin("(0,0,0) x+", 0, 11.0, 0.5),
            bin("(1,0,0) x+", 1, 10.5, 0.125),
        ];
        let shown = shown(&bins);
        assert_eq!((shown.from, shown.width, shown.columns), (10.0, 0.5, 3));
        assert_eq!(shown.rows[0].cells, [(0, 0.5), (2, 1.0)]);
        assert_eq!(shown.rows[1].cells, [(1, 0.25)]);
        assert_eq!(shown.rows[1].link, "(1,0,0) x+");
    }

    #[test]
    fn a_long_run_has_few_wide_columns_with_the_same_use() {
        let bins: Vec<String> = (0..1_000)
            .map(|n| bin("(0,0,0) x+", 0, f64::from(n) * 0.5, 0.2))
            .collect();
        let shown = shown(&bins);
        // 1000 bins by five.
        assert_eq!((shown.width, shown.columns), (2.5, 200));
        assert_eq!(shown.rows[0].cells.len(), 200);
        let far = |share: f64| (share - 0.4).abs() > 1e-9;
        assert!(!shown.rows[0].cells.iter().any(|cell| far(cell.1)));
    }

    #[test]
    fn the_busiest_links_are_shown_and_how_many_there_are() {
        let bins = (0..100).flat_map(|n| {
            let busy = if n % 2 == 0 { 0.3 } else { 0.1 };
            let link = |port: &str, busy| bin(&format!("({n},0,0) {port}"), n, 0.0, busy);
            [link("x+", busy), link("node", 0.4)]
        });
        let shown = shown(&bins.collect::<Vec<_>>());
        assert_eq!(shown.rows.len(), 64);
        let at = |link: &str| shown.rows.iter().position(|row| row.link == link);
        // All 50 with an even number, and the first 14 of the others.
        assert_eq!((at("(0,0,0) x+"), at("(98,0,0) x+")), (Some(0), Some(63)));
        assert_eq!((at("(27,0,0) x+"), at("(29,0,0) x+")), (Some(27), None));
        assert_eq!(
            shown.notes,
            ["The page shows the 64 busiest of 100 links, and none of 100 node ports."]
        );
    }

    #[test]
    fn bins_that_are_none_are_refused() {
        let good = bin("(0,0,0) x+", 0, 1.0, 0.5);
        for bad in [
            bin("(0,0,0) x+", 0, -1.0, 0.5),
            bin("(0,0,0) x+", 0, 1.2, 0.5),
            bin("(0,0,0) x+", 0, 1.0, 0.6),
            bin("(0,0,0) x+", 0, 1.0, -0.1),
            good.replace("0.5,\"b", "0.25,\"b"),
        ] {
            let text = format!("[\n{good},\n{bad}\n]");
            let parsed = Links::parse(text.as_bytes());
            assert!(matches!(parsed, Err(LinksError::Bin(2))), "{bad}");
        }
        let parsed = Links::parse(b"[{}]");
        assert!(matches!(parsed, Err(LinksError::Form(_))));
    }
}
