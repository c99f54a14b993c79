//! `portolan credits`: plays how credits move in a large job, and writes the picture and the table of the
//! book. Nothing is measured: ranks, messages and time are simulated.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use conduit::migration::{Iteration, Scenario};
use plotters::prelude::{
    ChartBuilder, IntoDrawingArea as _, LineSeries, PathElement, RGBColor, SVGBackend,
    SeriesLabelPosition, WHITE,
};
use plotters::style::{Color as _, ShapeStyle};

use crate::cmd::{failed, output, say};
use crate::error::CmdError;

/// Options of `portolan credits`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Ranks
    #[arg(long, default_value_t = 10_000)]
    ranks: u32,
    /// Ranks that each rank sends to
    #[arg(long, default_value_t = 100)]
    partners: u32,
    /// Full Mediums to each partner in an iteration
    #[arg(long, default_value_t = 8)]
    burst: u32,
    /// Iterations; the partners change in the middle
    #[arg(long, default_value_t = 32)]
    iterations: u32,
    /// Credits in the bank of each rank at the least
    #[arg(long, default_value_t = 10_000)]
    banked: u64,
    /// Write credits.svg and credits-table.txt into DIR
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

/// Plays both kinds of credits and shows them.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    let scenario = |dynamic| Scenario {
        ranks: options.ranks,
        partners: options.partners,
        burst: options.burst,
        iterations: options.iterations,
        change_at: options.iterations / 2,
        banked: Some(options.banked),
        epoch: 1024,
        dynamic,
    };
    let play = |dynamic| {
        let played = scenario(dynamic).run();
        played.map_err(|e| CmdError::Usage(e.to_string()))
    };
    if let Some(folder) = &options.into {
        // Before the minute that this takes.
        output::folder(folder)?;
    }
    let (fixed, moving) = (play(false)?, play(true)?);
    let table = table(&fixed, &moving);
    let Some(folder) = &options.into else {
        say(&table)?;
        return Ok(0);
    };
    fs::write(folder.join("credits-table.txt"), table).map_err(failed("write the table"))?;
    let plot = folder.join("credits.svg");
    draw(&fixed, &moving, &plot).map_err(|e| CmdError::System {
        what: format!("draw {}", plot.display()),
        source: std::io::Error::other(e.to_string()),
    })?;
    Ok(0)
}

fn table(fixed: &[Iteration], moving: &[Iteration]) -> String {
    let mut text = String::from(
        "| iteration | requests | static: stalls | ticks | dynamic: stalls | ticks | lent | given back | notices |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for (i, (f, m)) in fixed.iter().zip(moving).enumerate() {
        text += &format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
            i + 1,
            m.requests,
            f.stalls,
            f.ticks,
            m.stalls,
            m.ticks,
            m.granted,
            m.recovered,
            m.notices
        );
    }
    text
}

fn draw(
    fixed: &[Iteration],
    moving: &[Iteration],
    file: &std::path::Path,
) -> Result<(), Box<dyn std::error::Error>> {
    let share = |all: &[Iteration]| -> Vec<(f64, f64)> {
        let of = |(i, it): (usize, &Iteration)| {
            let share = 100.0 * it.stalls as f64 / it.requests.max(1) as f64;
            // An iteration has one value, from its beginning to its end.
            [(i as f64 + 0.5, share), (i as f64 + 1.5, share)]
        };
        all.iter().enumerate().flat_map(of).collect()
    };
    let area = SVGBackend::new(file, (900, 460)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .caption(
            "requests that wait for credits (simulated)",
            ("sans-serif", 22),
        )
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.5..moving.len() as f64 + 0.5, 0.0..100.0)?;
    chart
        .configure_mesh()
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .x_desc("iteration; the partners change in the middle")
        .y_desc("per cent of all requests")
        .light_line_style(WHITE)
        .draw()?;
    let lines = [
        ("static credits", share(fixed), RGBColor(200, 80, 30)),
        ("dynamic credits", share(moving), RGBColor(0, 90, 181)),
    ];
    for (label, points, colour) in lines {
        let style = ShapeStyle::from(&colour).stroke_width(2);
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(160, 160, 160))
        .draw()?;
    area.present()?;
    Ok(())
}
