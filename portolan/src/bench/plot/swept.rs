//! One measurement over a grid of parameters: along its sizes where it has several, otherwise along one parameter.

use std::borrow::Cow;

use super::{Frame, Point, Record, Series, picture, point, sizes};
use crate::bench::{Axis, Name};

/// Results of a point of the grid, with the value of each parameter.
pub(crate) type Results<'a> = (Vec<f64>, &'a Record);

/// The SVG of `results` of one measurement; `headings` are names and units of their parameters, and `along` is the one that
/// the first axis may have. Each combination of the others is a line.
///
/// # Errors
/// What the drawing library says.
pub(crate) fn draw(
    name: Name,
    headings: &[(String, &str)],
    along: Option<usize>,
    results: &[Results<'_>],
) -> Result<String, String> {
    let first = results.first().map(|(_, record)| record.point());
    let several = results.iter().any(|(_, r)| Some(r.point()) != first);
    let along = along.filter(|_| !several);
    let mut frame = Frame::of(name);
    if let (Some(point), Some(_)) = (first, along) {
        let of = match name.axis() {
            Axis::Nothing => String::new(),
            Axis::Bytes | Axis::WorkingSet => format!(", {} bytes", sizes::show(point)),
            Axis::Entries => format!(", {point} entries"),
            Axis::Operations => format!(", {point} in flight"),
            Axis::Threads => format!(", {point} threads"),
        };
        frame.caption += &of;
    }
    let machine = results.iter().find_map(|(_, r)| r.machine.as_ref());
    if let Some(machine) = machine {
        frame.caption = format!("{}, {machine} (simulated)", frame.caption);
    }
    if let Some((name, unit)) = along.and_then(|at| headings.get(at)) {
        let unit = match *unit {
            "" => String::new(),
            "us" => ", µs".to_owned(),
            unit => format!(", {unit}"),
        };
        frame.x = Cow::Owned(format!("{name}{unit}"));
        frame.sizes = false;
    }
    let own = results.iter().filter(|(_, r)| r.bench == name.word());
    let mut series: Vec<Series> = Vec::new();
    for (values, record) in own {
        let (label, x) = match along {
            Some(at) => (others(record, headings, at).line(), values[at]),
            None => (record.line(), record.point() as f64),
        };
        let found = record.q1.zip(record.q3);
        let found = point(0, record.median, found).map(|p| Point { x, ..p });
        match series.iter_mut().find(|line| line.label == label) {
            Some(line) => line.points.extend(found),
            None => series.push(Series {
                label,
                points: found.into_iter().collect(),
                marks: true,
            }),
        }
    }
    for line in &mut series {
        line.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    picture(&frame, &series).map_err(|error| format!("cannot draw {name}: {error}"))
}

/// A record that does not say what the parameter number `at` was set to.
fn others(record: &Record, headings: &[(String, &str)], at: usize) -> Record {
    let own = headings.get(at).map(|(name, _)| format!("{name}="));
    let is_own = |set: &str| own.as_ref().is_some_and(|own| set.starts_with(own));
    let set = record.set.as_ref().map(|set| {
        let others = set.split(", ").filter(|set| !is_own(set));
        others.collect::<Vec<_>>().join(", ")
    });
    Record {
        set: set.filter(|set| !set.is_empty()),
        ..record.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{record, words};
    use super::*;

    fn with(bytes: u64, set: &str, time: u64) -> Record {
        Record {
            set: Some(set.to_owned()),
            machine: Some("xt4".to_owned()),
            clock: "virtual".to_owned(),
            ..record(Name::Pingpong, bytes, &[time])
        }
    }

    fn drawn(results: &[Results<'_>]) -> String {
        let headings = [
            ("host.trap".to_owned(), "us"),
            ("chip.tx_rate".to_owned(), "MB/s"),
        ];
        draw(Name::Pingpong, &headings, Some(0), results).unwrap()
    }

    #[test]
    fn one_size_is_drawn_along_the_parameter_with_a_line_for_each_value_of_the_other() {
        let records: Vec<(Vec<f64>, Record)> = [(0.0, 1), (0.25, 1), (0.0, 2), (0.25, 2)]
            .into_iter()
            .map(|(trap, rate)| {
                let set = format!("host.trap={trap}, chip.tx_rate={rate}");
                (vec![trap, f64::from(rate)], with(8, &set, 900))
            })
            .collect();
        let results: Vec<Results<'_>> = records.iter().map(|(v, r)| (v.clone(), r)).collect();
        let svg = drawn(&results);
        let words = words(&svg);
        for word in [
            "0",
            "0.25",
            "host.trap, µs",
            "shm (memory, chip.tx_rate=1), modelled",
            "shm (memory, chip.tx_rate=2), modelled",
        ] {
            assert!(words.contains(&word), "{word}: {words:?}");
        }
        // 0.9 µs, with labels of less than a factor of 2 around it.
        assert!(words.contains(&"0.8") && words.contains(&"1"), "{words:?}");
        assert!(svg.contains(", 8 bytes, xt4 (simulated)"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 4);
    }

    #[test]
    fn several_sizes_are_drawn_along_them_with_a_line_for_each_point() {
        let records: Vec<Record> = [(8, "0.1"), (1024, "0.1"), (8, "0.2"), (1024, "0.2")]
            .map(|(bytes, trap)| with(bytes, &format!("host.trap={trap}"), 900))
            .into();
        let results: Vec<Results<'_>> = records.iter().map(|r| (vec![0.1], r)).collect();
        let svg = drawn(&results);
        let words = words(&svg);
        for word in [
            "8",
            "1K",
            "size of a message, bytes",
            "shm (memory, host.trap=0.1), modelled",
            "shm (memory, host.trap=0.2), modelled",
        ] {
            assert!(words.contains(&word), "{word}: {words:?}");
        }
    }
}
