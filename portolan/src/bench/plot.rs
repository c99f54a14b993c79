//! Results as SVG plots: one file for each measurement, sizes on a logarithmic axis.

use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use plotters::coord::combinators::IntoLogRange as _;
use plotters::prelude::{
    ChartBuilder, Circle, IntoDrawingArea as _, LineSeries, PathElement, RGBColor, SVGBackend,
    Text, WHITE,
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

/// A named line.
struct Series {
    label: String,
    points: Vec<(f64, f64)>,
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
        let sizes: Vec<f64> = series.iter().flat_map(|s| &s.points).map(|p| p.0).collect();
        let covers = |x: f64| sizes.iter().any(|s| *s <= x) && sizes.iter().any(|s| x <= *s);
        for curve in curves {
            // Beyond the sizes that were run it says nothing of them.
            let points = points(curve.series(name));
            let points: Vec<(f64, f64)> = points.into_iter().filter(|p| covers(p.0)).collect();
            if !points.is_empty() {
                series.push(Series {
                    label: curve.label_for(name),
                    points,
                });
            }
        }
        let file = folder.join(format!("{name}.svg"));
        draw(&Frame::of(name), &series, &file).map_err(|e| cannot(&file, e.as_ref()))?;
        files.push(file);
        let hits = lines_of(records, name, |line| line, |r| r.hits.map(|h| 100.0 * h));
        if !hits.is_empty() {
            let file = folder.join(format!("{name}-hits.svg"));
            let frame = Frame {
                caption: format!("{name}: operations that find their memory pinned"),
                y: "%",
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
    lines_of(records, name, label, |r| Some(r.median))
}

/// The lines of something else than the result, where there is such a thing; see [`lines`].
fn lines_of(
    records: &[Record],
    name: Name,
    label: impl Fn(String) -> String,
    value: impl Fn(&Record) -> Option<f64>,
) -> Vec<Series> {
    let mut runs: Vec<(String, Vec<(u64, f64)>)> = Vec::new();
    for record in records.iter().filter(|r| r.bench == name.word()) {
        let Some(value) = value(record) else { continue };
        let (line, point) = (record.line(), (record.point(), value));
        match runs.iter_mut().find(|(known, _)| *known == line) {
            Some((_, run)) => run.push(point),
            None => runs.push((line, vec![point])),
        }
    }
    let series = runs.into_iter().map(|(line, run)| Series {
        label: label(line),
        points: points(run),
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
        })
        .collect();
    draw(&Frame::of(Name::Pingpong), &series, file).map_err(|e| cannot(file, e.as_ref()))
}

/// A logarithmic axis has no 0; the smallest size of 0 stands at 1.
fn points(of: impl IntoIterator<Item = (u64, f64)>) -> Vec<(f64, f64)> {
    of.into_iter()
        .map(|(x, y)| (x.max(1) as f64, y))
        .filter(|(_, y)| *y > 0.0)
        .collect()
}

/// The words around a drawing.
struct Frame {
    caption: String,
    x: &'static str,
    y: &'static str,
}

impl Frame {
    fn of(name: Name) -> Self {
        let about = name.to_possible_value();
        let about = about.and_then(|v| v.get_help().map(ToString::to_string));
        Self {
            caption: about.map_or_else(|| name.to_string(), |about| format!("{name}: {about}")),
            x: match name.axis() {
                Axis::Bytes | Axis::Nothing => "bytes (0 stands at 1)",
                Axis::Entries => "entries before the match (0 stands at 1)",
                Axis::Operations => "operations under way together",
                Axis::Threads => "threads that send",
                Axis::WorkingSet => "working set, bytes",
            },
            y: match name.unit() {
                Unit::Microseconds => "µs",
                Unit::MegabytesPerSecond => "MB/s",
                Unit::OperationsPerSecond => "operations per second",
            },
        }
    }
}

/// Height of a caption's letters, smaller where it would be wider than the picture. A letter is some 0.43 of its height wide
/// on average.
fn caption_height(caption: &str) -> f64 {
    let room = f64::from(SIZE.0) - f64::from(LEFT) - 16.0;
    (room / (0.43 * caption.chars().count() as f64)).min(17.0)
}

fn draw(frame: &Frame, series: &[Series], file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let all = || series.iter().flat_map(|s| &s.points);
    let range = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) = values.fold((f64::MAX, 0.0), |(l, h): (f64, f64), v| {
            (l.min(v), h.max(v))
        });
        // At least a factor of 2, so that a single point has an axis.
        if low > high {
            (1.0, 2.0)
        } else {
            (low, high.max(low * 2.0))
        }
    };
    let (left, right) = range(&mut all().map(|p| p.0));
    let (bottom, top) = range(&mut all().map(|p| p.1));
    let names = ROW * series.len() as u32 + 40;
    let area = SVGBackend::new(file, (SIZE.0, SIZE.1 + names)).into_drawing_area();
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
    let mut chart = ChartBuilder::on(&body)
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(
            (left..right).log_scale().base(2.0),
            (bottom * 0.8..top * 1.25).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc(frame.x)
        .y_desc(frame.y)
        .x_label_formatter(&|x| sizes::show(x.round() as u64))
        .y_label_formatter(&|y| format!("{y}"))
        .light_line_style(WHITE)
        .draw()?;
    for (line, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let style = ShapeStyle::from(colour).stroke_width(2);
        chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
        chart.draw_series(
            line.points
                .iter()
                .map(|p| Circle::new(*p, 2, colour.filled())),
        )?;
    }
    area.present()?;
    Ok(())
}
