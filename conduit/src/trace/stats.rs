//! What was counted, and how it is written at the end.

use super::names::{COUNTERS, Category, Counter, Mask, Sort};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Numbers seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    count: u64,
    least: u64,
    most: u64,
    sum: u64,
}

impl Seen {
    fn add(&mut self, value: u64) {
        self.least = if self.count == 0 {
            value
        } else {
            self.least.min(value)
        };
        self.most = self.most.max(value);
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
    }

    fn join(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.least = if self.count == 0 {
            other.least
        } else {
            self.least.min(other.least)
        };
        self.most = self.most.max(other.most);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
    }

    fn average(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }
}

/// `avg/min/max/total` of numbers, or of nanoseconds as microseconds.
fn spread(unit: &str, sort: Sort, s: &Seen) -> String {
    let us = |ns: u64| ns as f64 / 1000.0;
    let (avg, least, most, sum) = (s.average(), s.least, s.most, s.sum);
    if sort == Sort::Time {
        let [avg, least, most, sum] = [avg, least, most, sum].map(us);
        return format!("  avg/min/max/total {unit} (us) = {avg:.3}/{least:.3}/{most:.3}/{sum:.3}");
    }
    format!("  avg/min/max/total {unit} = {avg}/{least}/{most}/{sum}")
}

/// All counters of a rank.
#[derive(Debug)]
pub(super) struct Stats {
    index: BTreeMap<&'static str, usize>,
    /// Of other ranks, of the own one.
    seen: Vec<[Seen; 2]>,
}

impl Stats {
    pub(super) fn new() -> Self {
        Self {
            index: (0..).zip(COUNTERS).map(|(i, c)| (c.name, i)).collect(),
            seen: vec![[Seen::default(); 2]; COUNTERS.len()],
        }
    }

    /// The counter of a name.
    pub(super) fn counter(&self, name: &str) -> Option<&'static Counter> {
        self.index.get(name).and_then(|i| COUNTERS.get(*i))
    }

    pub(super) fn add(&mut self, name: &str, local: bool, value: u64) {
        if let Some(seen) = self.index.get(name).and_then(|i| self.seen.get_mut(*i)) {
            seen[usize::from(local)].add(value);
        }
    }

    /// The lines of the summary, for the categories of `mask`.
    pub(super) fn lines(&self, mask: Mask) -> Vec<String> {
        let rule = "-".repeat(80);
        let mut lines = vec![rule.clone(), "GASNet Statistical Summary:".to_owned()];
        for (c, seen) in COUNTERS.iter().zip(&self.seen) {
            for (local, s) in [false, true].into_iter().zip(seen) {
                if mask.has(c.category) && (c.local || !local) {
                    lines.push(one(c, local, s));
                }
            }
        }
        lines.extend([" ".to_owned(), " ".to_owned()]);
        let totals = [
            (Category::G, "gets"),
            (Category::P, "puts"),
            (Category::W, "collectives"),
        ];
        for (category, what) in totals {
            if mask.has(category) {
                let all = self.total(category, Sort::Value);
                let mut line = format!("{:<25}  {:>6}", format!("Total {what}:"), all.count);
                if all.count > 0 {
                    line.push_str(&spread("sz", Sort::Value, &all));
                }
                lines.push(line);
            }
        }
        for (category, what) in [(Category::S, "sync."), (Category::X, "coll.")] {
            if mask.has(category) {
                self.syncs(category, what, &mut lines);
            }
        }
        if mask.has(Category::A) {
            let all = self.total(Category::A, Sort::Count);
            lines.push(format!("{:<25}  {:>6}", "Total AM's:", all.count));
        }
        lines.push(rule);
        lines
    }

    fn syncs(&self, category: Category, what: &str, lines: &mut Vec<String>) {
        let tries = self.total(category, Sort::Value);
        let mut line = format!(
            "{:<25}  {:>6}",
            format!("Total try {what} calls:"),
            tries.count
        );
        if tries.count > 0 {
            let rate = tries.sum as f64 * 100.0 / tries.count as f64;
            let _ = write!(line, "  try success rate = {rate:.6}%");
        }
        lines.push(line);
        let waits = self.total(category, Sort::Time);
        let mut line = format!(
            "{:<25}  {:>6}",
            format!("Total wait {what} calls:"),
            waits.count
        );
        if waits.count > 0 {
            line.push_str(&spread("waittime", Sort::Time, &waits));
        }
        lines.push(line);
    }

    fn total(&self, category: Category, sort: Sort) -> Seen {
        let mut all = Seen::default();
        for (c, seen) in COUNTERS.iter().zip(&self.seen) {
            if c.category == category && c.sort == sort {
                seen.iter().for_each(|s| all.join(s));
            }
        }
        all
    }
}

fn one(c: &Counter, local: bool, s: &Seen) -> String {
    let end = if local { "_LOCAL" } else { "" };
    if c.sort == Sort::Count {
        let name = format!("{}{end} {}:", c.name, c.unit);
        return format!(" {name:<25} {:>6}", s.count);
    }
    let name = format!("{}{end}:", c.name);
    let mut line = format!(" {name:<25} {:>6}", s.count);
    if s.count > 0 {
        line.push_str(&spread(c.unit, c.sort, s));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts() {
        let mut stats = Stats::new();
        stats.add("PUT", false, 8);
        stats.add("PUT", false, 24);
        stats.add("PUT_NB", true, 1);
        stats.add("WAIT_SYNCNB", false, 1500);
        stats.add("TRY_SYNCNB", false, 1);
        stats.add("TRY_SYNCNB", false, 0);
        stats.add("AMREQUEST_SHORT", false, 0);
        stats.add("NOTHING", false, 0);
        let lines = stats.lines(Mask::all());
        for want in [
            " PUT:                           2  avg/min/max/total sz = 16/8/24/32",
            " PUT_LOCAL:                     0",
            " PUT_NB_LOCAL:                  1  avg/min/max/total sz = 1/1/1/1",
            " WAIT_SYNCNB:                   1  avg/min/max/total waittime (us) = 1.500/1.500/1.500/1.500",
            " AMREQUEST_SHORT cnt:           1",
            "Total puts:                     3  avg/min/max/total sz = 11/1/24/33",
            "Total gets:                     0",
            "Total try sync. calls:          2  try success rate = 50.000000%",
            "Total AM's:                     1",
        ] {
            assert!(lines.iter().any(|l| l == want), "{want:?} in {lines:#?}");
        }
        let few = stats.lines(Mask::parse("G"));
        assert!(few.iter().any(|l| l.starts_with(" GET:")));
        assert!(!few.iter().any(|l| l.contains("PUT") || l.contains("AM")));
    }
}
