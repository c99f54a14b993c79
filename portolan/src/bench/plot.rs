//! Results as SVG plots: one file for each measurement, both axes logarithmic.
//!
//! Results are marks, with a bar from the first to the third quartile; lines between them only lead the eye. Published fits are lines
//! without marks, upright where they have a step.

#[cfg(test)]
mod loads;
mod swept;
#[cfg(test)]
mod tests;

pub(crate) use swept::draw as draw_swept;

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use plotters::coord::combinators::{BindKeyPoints as _, IntoLogRange as _, LogCoord};
use plotters::prelude::{
    ChartBuilder, Circle, EmptyElement, IntoDrawingArea as _, LineSeries, PathElement, RGBColor,
    SVGBackend, Text, WHITE,
};
use plotters::style::{Color as _, ShapeStyle};

use super::name::{Axis, Name, Unit};
use super::published::Curve;
use super::record::Record;
use super::sizes;

/// Width, and height without the names of the lines, pixels.
const SIZE: (u32, u32) = (900, 540);
/// Height of the name of a line, pixels. Names stand above the drawing, where they hide nothing of it.
const ROW: u32 = 18;
/// Left edge of the names of lines, pixels.
const LEFT: i32 = 88;

/// The measurement first, then published curves.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 90, 181),
    RGBColor(200, 80, 30),
    RGBColor(100, 100, 100),
    RGBColor(30, 140, 90),
    RGBColor(150, 60, 160),
    RGBColor(180, 150, 0),
];

/// Radius of a mark, and of one that has no line; pixels.
const MARK: u32 = 3;
const LONE_MARK: u32 = 6;
/// Half the width of the end of a bar, pixels.
const CAP: i32 = 5;
/// Labels of an axis at most.
const LABELS: usize = 12;

/// A point of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    x: f64,
    y: f64,
    /// First and third quartile.
    quartiles: Option<(f64, f64)>,
}

/// A named line.
struct Series {
    label: String,
    points: Vec<Point>,
    /// Whether each point is a result, and no place of a formula.
    marks: bool,
}

/// Writes `NAME.svg` into `folder` for each measurement among `records` and returns the files.
///
/// # Errors
/// The message says which file could not be drawn or written.
pub(crate) fn write(
    records: &[Record],
    curves: &[Curve],
    folder: &Path,
) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for name in Name::ALL {
        let mut series = lines(records, name, |line| line);
        if series.is_empty() {
            continue;
        }
        if let Some(messages) = name.by_messages() {
            series.extend(lines(records, messages, |line| {
                format!("{messages}, {line}")
            }));
        }
        let sizes: Vec<f64> = series.iter().flat_map(|s| &s.points).map(|p| p.x).collect();
        let covers = |x: f64| sizes.iter().any(|s| *s <= x) && sizes.iter().any(|s| x <= *s);
        for curve in curves {
            // Beyond the sizes that were run it says nothing of them.
            let points = points(curve.series(name));
            let points: Vec<Point> = points.into_iter().filter(|p| covers(p.x)).collect();
            if !points.is_empty() {
                series.push(Series {
                    label: curve.label_for(name),
                    points,
                    marks: !curve.is_formula(),
                });
            }
        }
        let file = folder.join(format!("{name}.svg"));
        draw(&Frame::of(name), &series, &file).map_err(|e| cannot(&file, e.as_ref()))?;
        files.push(file);
        let hits = |r: &Record| r.hits.map(|h| (100.0 * h, None));
        let hits = lines_of(records, name, |line| line, hits);
        if !hits.is_empty() {
            let file = folder.join(format!("{name}-hits.svg"));
            let frame = Frame {
                caption: format!("{name}: operations that find their memory pinned"),
                y: "share of the operations, %",
                ..Frame::of(name)
            };
            draw(&frame, &hits, &file).map_err(|e| cannot(&file, e.as_ref()))?;
            files.push(file);
        }
    }
    Ok(files)
}

fn cannot(file: &Path, error: &dyn std::error::Error) -> String {
    format!("cannot draw {}: {error}", file.display())
}

/// A line for each run that has the measurement.
fn lines(records: &[Record], name: Name, label: impl Fn(String) -> String) -> Vec<Series> {
    lines_of(records, name, label, |r| Some((r.median, r.q1.zip(r.q3))))
}

/// The lines of something else than the result, where there is such a thing; see [`lines`].
fn lines_of(
    records: &[Record],
    name: Name,
    label: impl Fn(String) -> String,
    value: impl Fn(&Record) -> Option<(f64, Option<(f64, f64)>)>,
) -> Vec<Series> {
    let mut runs: Vec<(String, Vec<Point>)> = Vec::new();
    for record in records.iter().filter(|r| r.bench == name.word()) {
        let Some(value) = value(record) else { continue };
        let (line, at) = (record.line(), record.point());
        // A logarithmic axis shows no 0; a line that has nothing else is named so.
        let point = point(at, value.0, value.1);
        match runs.iter_mut().find(|(known, _)| *known == line) {
            Some((_, run)) => run.extend(point),
            None => runs.push((line, point.into_iter().collect())),
        }
    }
    let series = runs.into_iter().map(|(line, run)| Series {
        label: label(line),
        points: run,
        marks: true,
    });
    series.collect()
}

/// Draws times in µs by size.
///
/// # Errors
/// The message says which file could not be drawn or written.
pub(crate) fn draw_curves(lines: &[(String, Vec<(u64, f64)>)], file: &Path) -> Result<(), String> {
    let series: Vec<Series> = lines
        .iter()
        .map(|(label, line)| Series {
            label: label.clone(),
            points: points(line.iter().copied()),
            marks: true,
        })
        .collect();
    draw(&Frame::of(Name::Pingpong), &series, file).map_err(|e| cannot(file, e.as_ref()))
}

/// A logarithmic axis shows no 0 of what was measured.
fn point(x: u64, y: f64, quartiles: Option<(f64, f64)>) -> Option<Point> {
    let x = x as f64;
    let quartiles = quartiles.filter(|(low, high)| 0.0 < *low && low <= high);
    (y > 0.0).then_some(Point { x, y, quartiles })
}

fn points(of: impl IntoIterator<Item = (u64, f64)>) -> Vec<Point> {
    of.into_iter()
        .filter_map(|(x, y)| point(x, y, None))
        .collect()
}

/// The words around a drawing.
#[derive(Debug)]
pub(crate) struct Frame {
    caption: String,
    /// What is measured.
    pub(crate) about: String,
    /// Along the axes.
    pub(crate) x: Cow<'static, str>,
    pub(crate) y: &'static str,
    /// After a value.
    pub(crate) unit: &'static str,
    /// The values along the first axis are sizes, and not those of a parameter, whose effect may be small.
    sizes: bool,
}

impl Frame {
    /// Those of a measurement.
    pub(crate) fn of(name: Name) -> Self {
        let about = name.to_possible_value();
        let about = about.and_then(|v| v.get_help().map(ToString::to_string));
        let about = about.unwrap_or_default();
        Self {
            caption: format!("{name}: {about}"),
            about,
            x: Cow::Borrowed(match name.axis() {
                Axis::Bytes => "size of a message, bytes",
                Axis::Nothing => "payload, bytes: there is none",
                Axis::Entries => "entries before the match",
                Axis::Operations => "operations under way together",
                Axis::Threads => "threads that send",
                Axis::WorkingSet => "working set, bytes",
            }),
            y: match name.unit() {
                Unit::Microseconds => "time, µs",
                Unit::MegabytesPerSecond => "bandwidth, MB/s",
                Unit::OperationsPerSecond => "rate, operations per second",
            },
            unit: match name.unit() {
                Unit::Microseconds => "µs",
                Unit::MegabytesPerSecond => "MB/s",
                Unit::OperationsPerSecond => "operations per second",
            },
            sizes: true,
        }
    }

    /// Labels along the first axis between these ends: powers of 2 of sizes, the values of a parameter, or round ones where those are
    /// many.
    fn labels(&self, values: impl Iterator<Item = f64>, ends: (f64, f64)) -> Vec<f64> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        match self.sizes {
            true => labels(2, ends),
            false if values.len() > LABELS => finer_labels(4, ends),
            false => values,
        }
    }

    /// Labels along the second axis: more of them where a parameter changes little.
    fn y_labels(&self, ends: (f64, f64)) -> Vec<f64> {
        match self.sizes {
            true => labels(10, ends),
            false => finer_labels(3, ends),
        }
    }

    fn label(&self, x: f64) -> String {
        match self.sizes {
            true => sizes::show(x.round() as u64),
            false => show(x),
        }
    }
}

/// Height of a caption's letters, smaller where it would be wider than the picture. A letter is some 0.43 of its height wide
/// on average.
fn caption_height(caption: &str) -> f64 {
    let room = f64::from(SIZE.0) - f64::from(LEFT) - 16.0;
    (room / (0.43 * caption.chars().count() as f64)).min(17.0)
}

/// The values of an axis: from a little below the least to a little above the greatest, at least such a factor, so that a single
/// point stands in the middle of something.
fn range(values: impl Iterator<Item = f64>, margin: f64, factor: f64) -> (f64, f64) {
    let fold = |(l, h): (f64, f64), v: f64| (l.min(v), h.max(v));
    let (low, high) = values.fold((f64::MAX, 0.0), fold);
    if low > high {
        return (1.0, factor);
    }
    let margin = margin.max((factor * low / high).sqrt());
    (low / margin, high * margin)
}

/// Round values between two others for labels of a logarithmic axis: powers of 2, or 1, 2 and 5 times powers of 10. Some are left out
/// where they would be too many.
fn labels(base: u32, (from, to): (f64, f64)) -> Vec<f64> {
    let factors: &[f64] = if base == 2 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    labels_by(factors, base, (from, to))
}

/// The same of powers of 10, with more multiples where there would be fewer than `enough`.
fn finer_labels(enough: usize, ends: (f64, f64)) -> Vec<f64> {
    let finer = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
    match labels(10, ends) {
        few if few.len() < enough => labels_by(&finer, 10, ends),
        round => round,
    }
}

/// The same of these multiples of powers of `base`.
fn labels_by(factors: &[f64], base: u32, (from, to): (f64, f64)) -> Vec<f64> {
    let first = from.log(base.into()).floor() as i32;
    let last = to.log(base.into()).ceil() as i32;
    let inside = |v: &f64| (from * 0.999..=to * 1.001).contains(v);
    let every = |factors: &[f64], step: usize| -> Vec<f64> {
        let powers = (first..=last).filter(|p| p.rem_euclid(step as i32) == 0);
        let powers = powers.map(|p| f64::from(base).powi(p));
        let of = |p: f64| factors.iter().map(move |f| f * p).collect::<Vec<_>>();
        powers.flat_map(of).filter(inside).collect()
    };
    let all = every(factors, 1);
    if all.len() <= LABELS {
        return all;
    }
    let steps = (1..).map(|step| every(&[1.0], step));
    let few = steps.into_iter().find(|few| few.len() <= LABELS);
    few.unwrap_or(all)
}

/// A value beside an axis, without an exponent.
fn show(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e4 => format!("{}k", v / 1e3),
        v => format!("{}", (v * 1e6).round() / 1e6),
    }
}

/// What the marks mean.
fn key(series: &[Series]) -> &'static str {
    let points = series.iter().flat_map(|s| &s.points);
    let spread = points
        .filter_map(|p| p.quartiles)
        .map(|(low, high)| high - low);
    match spread.reduce(f64::max) {
        Some(most) if most > 0.0 => "marks: medians; bars: first to third quartile",
        Some(_) => "marks: medians; first and third quartile are the same",
        None => "marks: values",
    }
}

fn draw(frame: &Frame, series: &[Series], file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    Ok(fs::write(file, picture(frame, series)?)?)
}

/// The text of the SVG.
fn picture(frame: &Frame, series: &[Series]) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    draw_on(&mut svg, frame, series)?;
    Ok(svg)
}

fn draw_on(
    svg: &mut String,
    frame: &Frame,
    series: &[Series],
) -> Result<(), Box<dyn std::error::Error>> {
    let all = || series.iter().flat_map(|s| &s.points);
    let ends = |p: &Point| {
        let (low, high) = p.quartiles.unwrap_or((p.y, p.y));
        [p.y, low, high]
    };
    // A logarithmic axis has no 0: it stands left of the least size, at half of that.
    let least = all().map(|p| p.x).filter(|x| *x > 0.0).reduce(f64::min);
    let zero = least.unwrap_or(1.0) / 2.0;
    let place = |x: f64| if x > 0.0 { x } else { zero };
    let (left, right) = range(all().map(|p| place(p.x)), 1.0, 4.0);
    let mut x_labels = frame.labels(all().map(|p| p.x).filter(|x| *x > 0.0), (left, right));
    let with_zero = all().any(|p| p.x <= 0.0);
    if with_zero {
        x_labels.retain(|x| *x > zero);
        x_labels.insert(0, zero);
    }
    let (margin, factor) = if frame.sizes { (1.25, 4.0) } else { (1.1, 2.0) };
    let (bottom, top) = range(all().flat_map(ends), margin, factor);
    let names = ROW * (series.len() as u32 + 1) + 40;
    let area = SVGBackend::with_string(svg, (SIZE.0, SIZE.1 + names)).into_drawing_area();
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(names);
    head.draw(&Text::new(
        frame.caption.clone(),
        (LEFT, 14),
        ("sans-serif", caption_height(&frame.caption)),
    ))?;
    for (row, (line, colour)) in series.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let y = 40 + (ROW * row as u32) as i32;
        let style = ShapeStyle::from(colour).stroke_width(2);
        head.draw(&PathElement::new(
            [(LEFT, y + 6), (LEFT + 22, y + 6)],
            style,
        ))?;
        let at = (LEFT + 30, y);
        // A logarithmic axis shows no 0.
        let all_zero = if line.points.is_empty() { ": 0" } else { "" };
        let label = format!("{}{all_zero}", line.label);
        head.draw(&Text::new(label, at, ("sans-serif", 13)))?;
    }
    let at = (LEFT, 40 + (ROW * series.len() as u32) as i32);
    head.draw(&Text::new(key(series), at, ("sans-serif", 12)))?;
    let x_axis: LogCoord<f64> = (left..right).log_scale().base(2.0).into();
    let y_axis: LogCoord<f64> = (bottom..top).log_scale().into();
    let mut chart = ChartBuilder::on(&body)
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(
            x_axis.with_key_points(x_labels),
            y_axis.with_key_points(frame.y_labels((bottom, top))),
        )?;
    chart
        .configure_mesh()
        .x_desc(frame.x.as_ref())
        .y_desc(frame.y)
        .x_labels(LABELS)
        .y_labels(LABELS)
        .x_label_formatter(&|x| match with_zero && *x <= zero {
            true => "0".to_owned(),
            false => frame.label(*x),
        })
        .y_label_formatter(&|y| show(*y))
        .light_line_style(WHITE)
        .draw()?;
    for (line, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let style = ShapeStyle::from(colour).stroke_width(2);
        let places = line.points.iter().map(|p| (place(p.x), p.y));
        chart.draw_series(LineSeries::new(places, style))?;
        if !line.marks && line.points.len() > 1 {
            continue;
        }
        let radius = if line.points.len() == 1 {
            LONE_MARK
        } else {
            MARK
        };
        chart.draw_series(
            line.points
                .iter()
                .map(|p| Circle::new((place(p.x), p.y), radius, colour.filled())),
        )?;
        for (x, ends) in line
            .points
            .iter()
            .filter_map(|p| Some((place(p.x), p.quartiles?)))
            .filter(|(_, (low, high))| low < high)
        {
            let (low, high) = ends;
            chart.draw_series([PathElement::new([(x, low), (x, high)], style)])?;
            let cap = |y| EmptyElement::at((x, y)) + PathElement::new([(-CAP, 0), (CAP, 0)], style);
            chart.draw_series([cap(low), cap(high)])?;
        }
    }
    area.present()?;
    Ok(())
}
