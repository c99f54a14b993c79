//! `life`: the game of life with tagged messages; see [`programs::life`].

use clap::Parser;
use programs::life::{self, LifeError, Params};
use std::process::ExitCode;
use tagged::{Options, TagMode};

/// The game of life on a torus, rows in bands over the ranks, by tagged messages; the checksum is the same for any number
/// of ranks.
#[derive(Parser)]
#[command(name = "life", version)]
struct Cli {
    /// Rows.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    rows: u32,
    /// Cells of a row.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    columns: u32,
    /// Generations.
    #[arg(long, default_value_t = 100)]
    generations: u32,
    /// Layout of the match bits: auto, tag_1, tag_2, full.
    #[arg(long, default_value = "auto")]
    tag_mode: TagMode,
    /// In this process alone, without a fabric.
    #[arg(long)]
    serial: bool,
}

fn main() -> ExitCode {
    let cli = programs::arguments::<Cli>();
    let params = Params {
        rows: cli.rows as usize,
        columns: cli.columns as usize,
        generations: cli.generations,
    };
    if cli.serial {
        let shown = programs::shown("life", life::serial(params));
        return ExitCode::from(u8::from(!shown));
    }
    let options = Options {
        mode: cli.tag_mode,
        ..Options::default()
    };
    match life::join(params, &options) {
        Ok(report) => {
            let shown = report.is_none_or(|report| programs::shown("life", report));
            ExitCode::from(u8::from(!shown))
        }
        Err(error) => {
            portals_shim::say(format_args!("life: {}", portals_shim::with_causes(&error)));
            ExitCode::from(if matches!(error, LifeError::Fabric(_)) {
                3
            } else {
                2
            })
        }
    }
}
