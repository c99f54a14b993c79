//! What accelerated mode brings, for its page of the book: the same runs in both modes.

use std::fmt::Write as _;

use nic_model::Machine;
use portals_shim::nal::seastar::Mode;

use super::model::{self, Point};
use crate::bench::{Name, Software, show_size};
use crate::error::CmdError;

/// A row: words, what is measured, and what is published of it.
const ROWS: [(&str, Point, &str); 11] = [
    ("one way, µs", Point::OneWay(8), LATENCY),
    ("", Point::OneWay(1024), LATENCY),
    ("", Point::OneWay(65_536), ""),
    ("put with ack, µs", Point::Of(Name::PutLatency, 8), ""),
    ("get, µs", Point::Of(Name::GetLatency, 8), ""),
    ("puts with acks, 1/s", Point::Of(Name::PutRate, 8), ""),
    ("", Point::Of(Name::PutRate, 64), ""),
    ("messages, 1/s", Point::Of(Name::MessageRate, 0), RATE),
    ("", Point::Of(Name::MessageRate, 8), RATE),
    ("", Point::Of(Name::MessageRate, 64), RATE),
    (
        "puts of 512 B, MB/s",
        Point::Of(Name::PutBandwidth, 512),
        BANDWIDTH,
    ),
];

/// S15 of the facts sheet, relative to generic Portals of the same machines.
const LATENCY: &str = "0.5 to 0.7";
const RATE: &str = "more than 6";
const BANDWIDTH: &str = "almost 7";

fn is_time(point: Point) -> bool {
    !matches!(
        point,
        Point::Of(Name::PutRate | Name::MessageRate | Name::PutBandwidth, _)
    )
}

/// Generic and accelerated, for each row.
fn measure(machine: &Machine) -> Result<Vec<(f64, f64)>, CmdError> {
    let points = ROWS.map(|(_, point, _)| point);
    let run = |mode| model::run_in(machine, mode, Software::default(), &points);
    Ok(run(Mode::Generic)?
        .into_iter()
        .zip(run(Mode::Accelerated)?)
        .collect())
}

/// The table of the page.
pub(super) fn table(machine: &Machine) -> Result<String, CmdError> {
    let mut text = format!(
        "Modelled with the parameters of the {}, no library above Portals:\n\n\
         | | bytes | generic | accelerated | ratio (modelled) | CCI's firmware over generic Portals (published) |\n\
         |---|--:|--:|--:|--:|---|\n",
        machine.name
    );
    for ((words, point, published), (generic, accelerated)) in ROWS.iter().zip(measure(machine)?) {
        let (Point::OneWay(bytes) | Point::SameNode(bytes) | Point::Of(_, bytes)) = *point;
        let places = if is_time(*point) { 2 } else { 0 };
        let _ = writeln!(
            text,
            "| {words} | {} | {generic:.places$} | {accelerated:.places$} | {:.2} | {published} |",
            show_size(bytes),
            accelerated / generic
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The direction of each ratio is what the mode is for.
    #[test]
    fn accelerated_mode_is_faster_at_everything_small() {
        let values = measure(&Machine::named("xt4").unwrap()).unwrap();
        for ((_, point, _), (generic, accelerated)) in ROWS.iter().zip(values) {
            let gain = if is_time(*point) {
                generic / accelerated
            } else {
                accelerated / generic
            };
            let least = if *point == Point::OneWay(65_536) {
                1.0
            } else {
                1.5
            };
            assert!(gain > least, "{point:?}: {generic} {accelerated}");
        }
    }
}
