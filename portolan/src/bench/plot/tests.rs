//! What a plot has in it, as text of the SVG.

use super::*;
use crate::bench::samples::{Measured, Samples};
use crate::bench::{Setting, Software};
use portals_shim::ClockKind;

pub(super) fn record(name: Name, point: u64, times: &[u64]) -> Record {
    let mut samples = Samples::new();
    times.iter().for_each(|t| samples.add(*t));
    let setting = Setting {
        fabric: "shm".into(),
        mode: "memory".into(),
        ranks: 2,
        clock: ClockKind::Wall,
        machine: None,
        set: None,
        map: None,
        software: Software::default(),
    };
    let measured = Measured {
        samples,
        operations: 1,
        bytes: point,
        found: None,
    };
    Record::new(&setting, name, point, &measured).unwrap()
}

fn drawn(records: &[Record], curves: &[Curve], name: Name) -> String {
    let folder = tempfile::tempdir().unwrap();
    write(records, curves, folder.path()).unwrap();
    std::fs::read_to_string(folder.path().join(format!("{name}.svg"))).unwrap()
}

/// Labels of the SVG: what stands in its text elements.
pub(super) fn words(svg: &str) -> Vec<&str> {
    let texts = svg.split("<text").skip(1);
    texts
        .filter_map(|t| t.split_once('>')?.1.split('<').next())
        .map(str::trim)
        .collect()
}

#[test]
fn a_single_point_is_a_mark_in_the_middle_of_labelled_axes() {
    let svg = drawn(&[record(Name::Pingpong, 8, &[900])], &[], Name::Pingpong);
    let circles: Vec<&str> = svg.split("<circle").skip(1).collect();
    let [circle] = circles.as_slice() else {
        panic!("{} marks", circles.len())
    };
    assert!(circle.contains("r=\"6\""), "{circle}");
    let number = |key: &str| -> f64 {
        let from = circle.split_once(&format!(" {key}=\"")).unwrap().1;
        from.split('"').next().unwrap().parse().unwrap()
    };
    assert!((300.0..650.0).contains(&number("cx")), "{circle}");
    assert!((200.0..500.0).contains(&number("cy")), "{circle}");
    let words = words(&svg);
    for word in [
        "4",
        "8",
        "16",
        "0.5",
        "1",
        "time, µs",
        "size of a message, bytes",
        "pingpong: Puts to and fro between ranks 0 and 1; half of a round trip",
    ] {
        assert!(words.contains(&word), "{word}: {words:?}");
    }
}

#[test]
fn quartiles_are_bars_where_they_differ() {
    let wide = record(Name::PutLatency, 8, &[1000, 2000, 3000, 4000, 9000]);
    let narrow = record(Name::PutLatency, 64, &[5000; 5]);
    assert_eq!((wide.q1, wide.q3), (Some(2.0), Some(4.0)));
    let both = drawn(&[wide, narrow.clone()], &[], Name::PutLatency);
    // A bar is one upright line and two caps.
    let lines = |svg: &str| svg.matches("stroke-width=\"2\"").count();
    let one = drawn(
        &[record(Name::PutLatency, 8, &[3000]), narrow],
        &[],
        Name::PutLatency,
    );
    assert!(lines(&both) > lines(&one), "{both}");
    assert!(both.contains("bars: first to third quartile"));
    assert!(one.contains("quartile are the same"));
}

#[test]
fn a_line_of_nothing_but_0_is_named_once() {
    let hits = |point: u64, hits: f64| Record {
        hits: Some(hits),
        pinning: Some(if hits > 0.0 { "firehose" } else { "rendezvous" }.to_owned()),
        ..record(Name::RandomPut, point, &[1000])
    };
    let records = [hits(1, 1.0), hits(2, 0.5), hits(1, 0.0), hits(2, 0.0)];
    let folder = tempfile::tempdir().unwrap();
    write(&records, &[], folder.path()).unwrap();
    let svg = std::fs::read_to_string(folder.path().join("random-put-hits.svg")).unwrap();
    let words = words(&svg);
    let of_zero = words.iter().filter(|w| w.ends_with(": 0"));
    assert_eq!(of_zero.count(), 1, "{words:?}");
    assert_eq!(svg.matches("<circle").count(), 2);
}

#[test]
fn what_has_no_spread_claims_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("curves.svg");
    draw_curves(&[("model".to_owned(), vec![(0, 6.0), (8, 6.2)])], &file).unwrap();
    let svg = std::fs::read_to_string(file).unwrap();
    assert!(words(&svg).contains(&"marks: values"), "{svg}");
}

#[test]
fn a_fit_steps_upright_and_has_no_marks() {
    let records = [8, 64].map(|bytes| record(Name::Pingpong, bytes, &[5_000]));
    let fit: Vec<Curve> = Curve::all().into_iter().filter(Curve::is_formula).collect();
    let svg = drawn(&records, &fit, Name::Pingpong);
    assert_eq!(svg.matches("<circle").count(), 2, "the results only");
    let line = svg.split("<polyline").filter(|l| l.contains("#C8501E"));
    let line = line.last().unwrap().split_once("points=\"").unwrap().1;
    let line = line.split('"').next().unwrap();
    let points: Vec<(f64, f64)> = line
        .split_whitespace()
        .map(|p| p.split_once(',').unwrap())
        .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
        .collect();
    // 9.10 us from 32 bytes on, 6.06 us at 31: the greatest rise takes no more than what 1 byte is wide.
    let steepest = points.windows(2).max_by(|a, b| {
        let rise = |w: &[(f64, f64)]| w[0].1 - w[1].1;
        rise(a).total_cmp(&rise(b))
    });
    let [from, to] = steepest.unwrap() else {
        panic!("{points:?}")
    };
    assert!(from.1 - to.1 > 30.0 && to.0 - from.0 < 20.0, "{points:?}");
}

#[test]
fn zero_stands_left_of_the_least_size() {
    let records = [0, 1, 2].map(|depth| record(Name::MatchDepth, depth, &[1000 + depth]));
    let svg = drawn(&records, &[], Name::MatchDepth);
    let places = svg.split("<circle cx=\"").skip(1);
    let places: Vec<&str> = places.filter_map(|c| c.split('"').next()).collect();
    let [zero, one, two] = places.as_slice() else {
        panic!("{places:?}")
    };
    assert!(zero != one && one != two, "{places:?}");
    let words = words(&svg);
    for word in ["0", "1", "2"] {
        assert!(words.contains(&word), "{word}: {words:?}");
    }
}

#[test]
fn labels_are_round_and_few() {
    assert_eq!(labels(10, (0.45, 1.8)), [0.5, 1.0]);
    assert_eq!(
        labels(10, (4.0, 700.0)),
        [5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]
    );
    assert_eq!(labels(2, (4.0, 16.0)), [4.0, 8.0, 16.0]);
    for (base, ends) in [
        (2, (1.0, 1_048_576.0)),
        (10, (0.001, 1e9)),
        (2, (16.0, 1024.0)),
    ] {
        let count = labels(base, ends).len();
        assert!((3..=LABELS).contains(&count), "{base} {ends:?}: {count}");
    }
}
