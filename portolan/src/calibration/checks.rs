//! Single figures of the literature beside the model: what no parameter is fitted on, and what does not hold.

use std::fmt::Write as _;

use nic_model::Machine;
use portals_shim::nal::seastar::Mode;

use super::model::{self, Point};
use crate::bench::{Name, Software};
use crate::error::CmdError;

/// A run of the model.
#[derive(Debug, Clone, Copy)]
struct Run {
    machine: &'static str,
    mode: Mode,
    /// With an MPI library above Portals.
    mpi: bool,
    point: Point,
}

impl Run {
    const fn portals(machine: &'static str, point: Point) -> Self {
        Self {
            machine,
            mode: Mode::Generic,
            mpi: false,
            point,
        }
    }

    const fn mpi(machine: &'static str, point: Point) -> Self {
        Self {
            mpi: true,
            ..Self::portals(machine, point)
        }
    }

    const fn accelerated(machine: &'static str, point: Point) -> Self {
        Self {
            mode: Mode::Accelerated,
            ..Self::portals(machine, point)
        }
    }

    fn value(&self, machines: &Machines<'_>) -> Result<f64, CmdError> {
        let machine = machines(self.machine)?;
        let software = match self.mpi {
            true => model::mpi(&machine),
            false => Software::default(),
        };
        let values = model::run_in(&machine, self.mode, software, &[self.point])?;
        let value = values.first().copied();
        value.ok_or_else(|| CmdError::Failed("a check gave no result".to_owned()))
    }
}

/// The machine of a name, as it is or with other parameters.
pub(super) type Machines<'a> = dyn Fn(&str) -> Result<Machine, CmdError> + 'a;

/// What is published.
#[derive(Debug, Clone, Copy)]
enum Published {
    /// A value; the model holds within a tenth.
    Value(f64),
    Between(f64, f64),
    Least(f64),
    Most(f64),
}

/// How far from a published value the model may be, as a part of it.
const WITHIN: f64 = 0.1;

impl Published {
    /// The error of `value` as a part of the nearest value that holds, and whether `value` holds.
    fn error(self, value: f64) -> (f64, bool) {
        let (least, most) = match self {
            Self::Value(at) => (at, at),
            Self::Between(least, most) => (least, most),
            Self::Least(least) => (least, f64::INFINITY),
            Self::Most(most) => (0.0, most),
        };
        let error = value / value.clamp(least, most) - 1.0;
        let allowed = match self {
            Self::Value(_) => WITHIN,
            _ => 0.0,
        };
        (error, error.abs() <= allowed)
    }

    fn words(self) -> String {
        match self {
            Self::Value(at) => format!("{at}"),
            Self::Between(least, most) => format!("{least} to {most}"),
            Self::Least(least) => format!("more than {least}"),
            Self::Most(most) => format!("less than {most}"),
        }
    }
}

/// A figure that the model is to give.
pub(super) struct Check {
    /// What is measured, with its unit.
    words: &'static str,
    run: Run,
    /// What the result is divided by.
    over: Option<Run>,
    published: Published,
    /// Where it stands and how certain it is.
    standing: &'static str,
    /// Why the model does not give it, where it does not.
    fails: Option<&'static str>,
}

const RECALLED: &str = "recalled, Cluster 2005";
const CCI: &str = "S15, abstract: another firmware on a SeaStar 2+";
const S14: &str = "S14, abstract";
/// Eight million bytes, as NetPIPE has them.
const LONG: u64 = 8 << 20;

impl Check {
    const fn of(
        words: &'static str,
        run: Run,
        published: Published,
        standing: &'static str,
    ) -> Self {
        Self {
            words,
            run,
            over: None,
            published,
            standing,
            fails: None,
        }
    }

    const fn over(self, over: Run) -> Self {
        Self {
            over: Some(over),
            ..self
        }
    }

    const fn fails(self, why: &'static str) -> Self {
        Self {
            fails: Some(why),
            ..self
        }
    }

    fn value(&self, machines: &Machines<'_>) -> Result<f64, CmdError> {
        let value = self.run.value(machines)?;
        match self.over {
            Some(over) => Ok(value / over.value(machines)?),
            None => Ok(value),
        }
    }
}

const ONE_BYTE: Point = Point::OneWay(1);
const EIGHT_BYTES: Point = Point::OneWay(8);
const RATE: Point = Point::Of(Name::MessageRate, 8);
const SHORT_PUTS: Point = Point::Of(Name::PutBandwidth, 512);

/// The checks, in the order of the page.
pub(super) const ALL: [Check; 14] = [
    Check::of(
        "put, 1 B, one way, µs",
        Run::portals("xt3", ONE_BYTE),
        Published::Value(5.39),
        RECALLED,
    )
    .fails("the interrupts that the curves of the xt4 alone ask for are dearer than this figure leaves room for"),
    Check::of(
        "put, 0 B, one way, µs",
        Run::portals("xt3", Point::OneWay(0)),
        Published::Most(6.0),
        "S10, abstract",
    ),
    Check::of(
        "get, 1 B, µs",
        Run::portals("xt3", Point::Of(Name::GetLatency, 1)),
        Published::Value(6.60),
        RECALLED,
    )
    .fails(
        "the model interrupts both nodes for a get, and 1.21 µs more than a put leave no room for a second interrupt; \
         what NetPIPE counts as a get is not known here",
    ),
    Check::of(
        "MPI, 1 B, one way, µs",
        Run::mpi("xt3", ONE_BYTE),
        Published::Value(7.97),
        RECALLED,
    ),
    Check::of(
        "put, 7 KiB, one way, µs: half of the bandwidth",
        Run::portals("xt3", Point::OneWay(7 << 10)),
        Published::Value(12.93),
        "derived of what is recalled of Cluster 2005: 1108.76 MB/s, half of it at about 7 KB",
    ),
    Check::of(
        "put-bandwidth, 8 MiB, MB/s",
        Run::portals("xt3", Point::Of(Name::PutBandwidth, LONG)),
        Published::Value(1108.76),
        "recalled, Cluster 2005; `chip.tx_rate` of the xt3 is this figure",
    ),
    Check::of(
        "put-bidirectional, 8 MiB, MB/s",
        Run::portals("xt3", Point::Of(Name::PutBidirectional, LONG)),
        Published::Value(2203.19),
        RECALLED,
    ),
    Check::of(
        "put-bandwidth, 8 MiB, MB/s",
        Run::portals("redstorm", Point::Of(Name::PutBandwidth, LONG)),
        Published::Value(2000.0),
        "S13, first page",
    ),
    Check::of(
        "one way, 8 B: Linux over Catamount",
        Run::portals("xt3-linux", EIGHT_BYTES),
        Published::Least(1.2),
        S14,
    )
    .over(Run::portals("xt3", EIGHT_BYTES)),
    Check::of(
        "one way, 1 MiB: Linux over Catamount",
        Run::portals("xt3-linux", Point::OneWay(1 << 20)),
        Published::Least(1.2),
        S14,
    )
    .over(Run::portals("xt3", Point::OneWay(1 << 20))),
    Check::of(
        "MPI, 0 B, one way, µs",
        Run::mpi("xt4", Point::OneWay(0)),
        Published::Value(4.5),
        "recalled: best of an XT4, one rank a node",
    )
    .fails("S6, which the xt4 is fitted on, has 5.91; the two are of different software or of different machines"),
    Check::of(
        "one way, 8 B: accelerated over generic",
        Run::accelerated("xt4", EIGHT_BYTES),
        Published::Between(0.5, 0.7),
        CCI,
    )
    .over(Run::portals("xt4", EIGHT_BYTES))
    .fails(
        "what matching on the NIC costs is invented, and too low: a firmware that matches nothing gains less \
         than this one",
    ),
    Check::of(
        "message-rate, 8 B: accelerated over generic",
        Run::accelerated("xt4", RATE),
        Published::Least(6.0),
        CCI,
    )
    .over(Run::portals("xt4", RATE))
    .fails(
        "the processor of the target takes in, matches and reports each message alone; dearer matching, for the row \
         before this one, would make it worse",
    ),
    Check::of(
        "put-bandwidth, 512 B: accelerated over generic",
        Run::accelerated("xt4", SHORT_PUTS),
        Published::Value(7.0),
        CCI,
    )
    .over(Run::portals("xt4", SHORT_PUTS))
    .fails("as for the rate"),
];

/// The table of the page.
pub(super) fn table(
    machines: &Machines<'_>,
    joint: Option<&Machines<'_>>,
) -> Result<String, CmdError> {
    let (heads, lines) = match joint {
        Some(_) => (" joint fit | error | |", "--:|--:|---|"),
        None => ("", ""),
    };
    let mut text = format!(
        "| machine | figure | published | standing | model | error | |{heads}\n|---|---|--:|---|--:|--:|---|{lines}\n",
    );
    let mut notes = Vec::new();
    for check in &ALL {
        let value = check.value(machines)?;
        let (error, holds) = check.published.error(value);
        let mark = match (holds, check.fails) {
            (true, _) => String::new(),
            (false, Some(why)) => {
                notes.push(why);
                format!("**no** ({})", notes.len())
            }
            (false, None) => "**no**".to_owned(),
        };
        let mut beside = String::new();
        if let Some(joint) = joint {
            let value = check.value(joint)?;
            let (error, holds) = check.published.error(value);
            let mark = if holds { "" } else { "**no**" };
            beside = format!(" {value:.2} | {:+.1} % | {mark} |", 100.0 * error);
        }
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {value:.2} | {:+.1} % | {mark} |{beside}",
            check.run.machine,
            check.words,
            check.published.words(),
            check.standing,
            100.0 * error
        );
    }
    text.push('\n');
    for (at, why) in notes.iter().enumerate() {
        let _ = writeln!(text, "{}. {why}.", at + 1);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::named;
    use super::*;

    /// A check that begins or ceases to hold is news for the page.
    #[test]
    fn what_does_not_hold_is_what_the_page_explains() {
        let mut news = Vec::new();
        for check in &ALL {
            let value = check.value(&named).unwrap();
            let (error, holds) = check.published.error(value);
            if holds != check.fails.is_none() {
                news.push((check.run.machine, check.words, value, error));
            }
        }
        assert!(news.is_empty(), "{news:?}");
    }

    #[test]
    fn an_error_is_of_the_nearest_value_that_holds() {
        let near = |published: Published, value: f64| {
            let (error, holds) = published.error(value);
            ((error * 100.0).round(), holds)
        };
        assert_eq!(near(Published::Value(10.0), 10.9), (9.0, true));
        assert_eq!(near(Published::Value(10.0), 12.0), (20.0, false));
        assert_eq!(near(Published::Between(0.5, 0.7), 0.4), (-20.0, false));
        assert_eq!(near(Published::Between(0.5, 0.7), 0.7), (0.0, true));
        assert_eq!(near(Published::Least(6.0), 3.0), (-50.0, false));
        assert_eq!(near(Published::Most(6.0), 5.0), (0.0, true));
    }
}
