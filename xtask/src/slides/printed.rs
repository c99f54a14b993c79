//! What GASNet's performance tests print: a line for each size of each measurement.
//!
//! ```text
//!  A:  0 -          8 byte :     100 iters, latency        987 us total,     9.870 us ave. (put latency)
//!  C:   0 -       2048 byte :      16 iters, throughput  314.710693 MB/sec (put_nb_bulk throughput)
//!  B:       8 AMMedium    ping-pong roundtrip ReqRep       :  0.001 sec   11.920 us    1.280 MB/s
//! ```

use anyhow::{Result, bail};

/// Bytes of a megabyte of these programs, and of a kilobyte.
const MEGABYTE: f64 = 1_048_576.0;
const KILOBYTE: f64 = 1024.0;

/// The results of one program, in the order in which it printed them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Printed(Vec<Figure>);

/// One result.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    /// The program's own words for what it measured.
    pub(super) what: String,
    /// Payload of one operation.
    pub(super) bytes: u64,
    /// Microseconds of one operation, or 10⁶ bytes per second.
    pub(super) value: f64,
    /// The line as it was printed.
    line: String,
}

impl Figure {
    /// What a line says; `None`: it is no result.
    fn read(line: &str) -> Option<Self> {
        let (section, rest) = line.trim_end().split_once(": ")?;
        if section.len() != 1 {
            return None;
        }
        let (what, bytes, value) = of_putget(rest).or_else(|| of_am(rest))?;
        Some(Self {
            what,
            bytes,
            value,
            line: line.trim_end().to_owned(),
        })
    }
}

/// A line of testsmall or testlarge, behind its section.
fn of_putget(rest: &str) -> Option<(String, u64, f64)> {
    let (numbers, what) = rest.strip_suffix(')')?.rsplit_once('(')?;
    let words: Vec<&str> = numbers.split_whitespace().collect();
    let [
        _,
        "-",
        bytes,
        "byte",
        ":",
        iters,
        "iters,",
        kind,
        number,
        rest @ ..,
    ] = words.as_slice()
    else {
        return None;
    };
    let number: f64 = number.parse().ok()?;
    let value = match (*kind, rest) {
        // The average has three decimals whatever the time; the total is what was measured.
        ("latency", ["us", "total,", _, "us", "ave."]) => number / iters.parse::<f64>().ok()?,
        ("throughput", ["MB/sec"]) => number * MEGABYTE / 1e6,
        ("throughput", ["KB/sec"]) => number * KILOBYTE / 1e6,
        _ => return None,
    };
    Some((what.to_owned(), bytes.parse().ok()?, value))
}

/// A line of testam, behind its section.
fn of_am(rest: &str) -> Option<(String, u64, f64)> {
    let (what, numbers) = rest.split_once(':')?;
    let mut words: Vec<&str> = what.split_whitespace().collect();
    let size = words.first().and_then(|word| word.parse().ok());
    if size.is_some() {
        words.remove(0);
    }
    let numbers: Vec<&str> = numbers.split_whitespace().collect();
    let [_, "sec", microseconds, "us", ..] = numbers.as_slice() else {
        return None;
    };
    // Shorts have no payload, and no size.
    Some((
        words.join(" "),
        size.unwrap_or(0),
        microseconds.parse().ok()?,
    ))
}

impl Printed {
    /// The results among the lines of a program.
    pub(super) fn read(text: &str) -> Self {
        Self(text.lines().filter_map(Figure::read).collect())
    }

    /// The results of several runs, which must be the same.
    ///
    /// # Errors
    /// There is no result, or a line differs.
    pub(super) fn same(program: &str, runs: &[String]) -> Result<Self> {
        let mut runs = runs.iter().map(|text| Self::read(text));
        let first = runs.next().unwrap_or_default();
        if first.0.is_empty() {
            bail!("{program} printed no result");
        }
        for (run, other) in (2..).zip(runs) {
            let lines = |printed: &Self| -> Vec<String> {
                printed.0.iter().map(|f| f.line.clone()).collect()
            };
            let (one, two) = (lines(&first), lines(&other));
            let differs = one.iter().zip(&two).find(|(one, two)| one != two);
            if let Some((one, two)) = differs {
                bail!("{program} printed in its first run, and in run {run}:\n{one}\n{two}");
            }
            if one.len() != two.len() {
                bail!(
                    "{program} printed {} results in its first run, and {} in run {run}",
                    one.len(),
                    two.len()
                );
            }
        }
        Ok(first)
    }

    /// Adds what another program printed.
    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The results of a measurement.
    pub(super) fn of<'a>(&'a self, what: &'a str) -> impl Iterator<Item = &'a Figure> {
        self.0.iter().filter(move |figure| figure.what == what)
    }

    /// The result of a measurement at a size.
    pub(super) fn at(&self, what: &str, bytes: u64) -> Option<f64> {
        self.of(what).find(|f| f.bytes == bytes).map(|f| f.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUT: &str = "A:  0 -          8 byte :     128 iters, latency        160 us total,     1.250 us ave. (put latency)";
    const FLOOD: &str = "C:   0 -       4096 byte :      16 iters, throughput    2.500000 MB/sec (put_nb_bulk throughput)";
    const MEDIUM: &str = "B:      16 AMMedium    ping-pong roundtrip ReqRep       :  0.002 sec   12.625 us    2.417 MB/s";
    const SHORT: &str =
        "A:         AMShort     flood     one-way   Req        :  0.001 sec    6.250 us";

    fn one(line: &str) -> (String, u64, f64) {
        let figure = Figure::read(line).unwrap();
        (figure.what, figure.bytes, figure.value)
    }

    #[test]
    fn each_kind_of_line_is_read() {
        assert_eq!(one(PUT), ("put latency".to_owned(), 8, 1.25));
        let (what, bytes, rate) = one(FLOOD);
        assert_eq!((what.as_str(), bytes), ("put_nb_bulk throughput", 4096));
        assert!((rate - 2.62144).abs() < 1e-9, "{rate}");
        let medium = "AMMedium ping-pong roundtrip ReqRep".to_owned();
        assert_eq!(one(MEDIUM), (medium, 16, 12.625));
        let short = "AMShort flood one-way Req".to_owned();
        assert_eq!(one(SHORT), (short, 0, 6.25));
        let kilobytes = FLOOD.replace("MB/sec", "KB/sec");
        assert!((one(&kilobytes).2 - 0.00256).abs() < 1e-9);
    }

    #[test]
    fn the_total_counts_and_not_the_rounded_average() {
        let line = PUT.replace("160 us total", "161 us total");
        assert_eq!(one(&line).2, 161.0 / 128.0);
    }

    #[test]
    fn other_lines_are_no_results() {
        for line in [
            "",
            "Timer granularity: <= 0.001 us, overhead: ~ 0.000 us",
            "node 0/2 hostname is: here (supernode=0 pid=7)",
            " max:",
            "A: done",
            "A: 1 : 2 us",
            "AB:  0 -  8 byte : 1 iters, latency 9 us total, 9.000 us ave. (put latency)",
            "A:  0 -  8 byte : 1 iters, throughput 9.0 GB/sec (put throughput)",
        ] {
            assert_eq!(Figure::read(line), None, "{line}");
        }
    }

    #[test]
    fn runs_that_print_the_same_are_one_result() {
        let text = |first: &str| format!("{first}\n{PUT}\n{FLOOD}\n");
        let runs = [text("pid=1"), text("pid=2"), text("pid=3")];
        let printed = Printed::same("testsmall", &runs).unwrap();
        assert_eq!(printed.at("put latency", 8), Some(1.25));
        assert_eq!(printed.at("put latency", 16), None);
        assert_eq!(printed.of("put_nb_bulk throughput").count(), 1);
    }

    #[test]
    fn runs_that_differ_are_refused_with_both_lines() {
        let other = PUT.replace("160 us total", "161 us total");
        let runs = [PUT.to_owned(), PUT.to_owned(), other.clone()];
        let error = Printed::same("testsmall", &runs).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("testsmall printed in its first run, and in run 3:\n{PUT}\n{other}")
        );
        let longer = [PUT.to_owned(), format!("{PUT}\n{FLOOD}")];
        let error = Printed::same("testsmall", &longer).unwrap_err().to_string();
        assert!(
            error.contains("1 results in its first run, and 2 in run 2"),
            "{error}"
        );
        let nothing = Printed::same("testam", &["done".to_owned()]);
        assert_eq!(nothing.unwrap_err().to_string(), "testam printed no result");
    }
}
