//! The pictures of the book that show latency and accepted load of the routers, made and compared by the test below.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use nic_model::load::{Bounds, Carried, Pattern, bounds, carry};

#[path = "../../../../nic-model/tests/load/study.rs"]
mod study;

use super::tests::words;
use super::{Frame, Point, Series, picture};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/mechanisms");
/// Loads, in percent of the greatest that the busiest channel can carry; those of the table are among them.
const PARTS: [u32; 19] = [
    5, 10, 20, 30, 40, 50, 60, 65, 70, 75, 80, 85, 90, 95, 100, 120, 150, 200, 300,
];
/// From here on accepted load is shown: below, everything is accepted.
const SHOWN: f64 = 0.55;

/// What a pattern has come to.
struct Curve {
    pattern: Pattern,
    bound: Bounds,
    carried: Vec<Carried>,
}

/// The loads of the table of the book, and some between them.
fn curves() -> Vec<Curve> {
    let (machine, topology) = (study::machine(1), study::torus());
    let curve = |pattern| {
        let bound = bounds(&machine, &topology, pattern);
        let loads = PARTS.map(|part| (bound.accepted * 10.0 * f64::from(part)).round() as u32);
        // A source sends a flit in each flit time at most.
        let loads = loads.into_iter().filter(|per_mille| *per_mille <= 1_000);
        let carried =
            loads.map(|per_mille| carry(&machine, &topology, &study::load(pattern, per_mille)));
        Curve {
            pattern,
            bound,
            carried: carried.collect(),
        }
    };
    Pattern::ALL.into_iter().map(curve).collect()
}

fn line(label: String, marks: bool, places: impl IntoIterator<Item = (f64, f64)>) -> Series {
    let points = places.into_iter().map(|(x, y)| Point {
        x,
        y,
        quartiles: None,
    });
    Series {
        label,
        points: points.collect(),
        marks,
    }
}

fn ns(time: nic_model::SimDuration) -> f64 {
    time.as_ps() as f64 / 1e3
}

/// Latency against offered load: points that the network keeps up with, and the corner that no network passes.
fn latency(curves: &[Curve]) -> Vec<Series> {
    let kept = |curve: &Curve| -> Vec<(f64, f64)> {
        let kept = curve.carried.iter().filter(|c| !c.is_saturated());
        kept.filter_map(|c| Some((c.offered, ns(c.latency?))))
            .collect()
    };
    let all = curves.iter().flat_map(kept);
    let most = all.map(|point| point.1).fold(0.0, f64::max);
    let of = |curve: &Curve| {
        let (name, kept) = (curve.pattern.name(), kept(curve));
        let least = kept.first().map_or(0.0, |point| point.0);
        let (x, y) = (curve.bound.accepted, ns(curve.bound.latency));
        let label = format!("{name}: bound, {y:.0} ns and a load of {x:.3}");
        let last = kept.last().map_or(0.0, |point| point.0);
        [
            line(
                format!("{name}: up to {last:.2}, beyond it saturated"),
                true,
                kept,
            ),
            line(label, false, [(least, y), (x, y), (x, most)]),
        ]
    };
    curves.iter().flat_map(of).collect()
}

/// Accepted against offered load: all points, and the corner that no network passes.
fn accepted(curves: &[Curve]) -> Vec<Series> {
    let of = |curve: &Curve| {
        let (name, bound) = (curve.pattern.name(), curve.bound.accepted);
        let all = curve.carried.iter().map(|c| (c.offered, c.accepted));
        let all: Vec<(f64, f64)> = all.filter(|point| point.0 > SHOWN * bound).collect();
        let ends = [all.first(), all.last()].map(|point| point.map_or(bound, |p| p.0));
        let most = all.iter().map(|point| point.1).fold(0.0, f64::max);
        [
            line(format!("{name}: {most:.2} at most"), true, all),
            line(
                format!("{name}: bound, {bound:.3}"),
                false,
                [(ends[0], ends[0]), (bound, bound), (ends[1], bound)],
            ),
        ]
    };
    curves.iter().flat_map(of).collect()
}

fn frame(caption: &str, y: &'static str) -> Frame {
    let caption = format!("{caption} of routers and links, torus of 8 × 8, xt4 (simulated)");
    Frame {
        about: caption.clone(),
        caption,
        x: Cow::Borrowed("offered load, flits for each node and flit time"),
        y,
        unit: "",
        sizes: false,
    }
}

/// The pictures are those of the model; `PORTOLAN_BLESS=1` writes them.
#[test]
fn the_book_has_the_load_curves_of_the_model() {
    let curves = curves();
    let latency = (
        "load-latency.svg",
        frame("latency under load", "mean latency, ns"),
        latency(&curves),
    );
    let accepted = (
        "load-accepted.svg",
        frame(
            "accepted load",
            "accepted load, flits for each node and flit time",
        ),
        accepted(&curves),
    );
    for (name, frame, series) in [latency, accepted] {
        let svg = picture(&frame, &series).unwrap();
        let words = words(&svg);
        for word in [frame.caption.as_str(), frame.x.as_ref(), frame.y] {
            assert!(words.contains(&word), "{name}: {word}: {words:?}");
        }
        for series in &series {
            assert!(words.contains(&series.label.as_str()), "{}", series.label);
        }
        let file = Path::new(FOLDER).join(name);
        if std::env::var_os("PORTOLAN_BLESS").is_some() {
            fs::write(&file, &svg).unwrap();
        }
        let there = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            there == svg,
            "{name} differs; PORTOLAN_BLESS=1 writes it anew"
        );
    }
}
