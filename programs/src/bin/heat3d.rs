//! `heat3d INPUT`: diffusion on a grid read from a file; see [`programs::heat3d`].

use clap::{Parser, ValueEnum};
use programs::Memory;
use programs::heat3d::{self, FileError, GridFile, HeatError};
use std::path::PathBuf;
use std::process::ExitCode;

/// How a grid comes about is what a first call lacks.
const USAGE: &str = "heat3d [OPTIONS] INPUT\n       heat3d --generate 32 32 32 7 INPUT    makes a grid to begin with";

/// Diffuses five variables on a periodic grid; the checksum is the same for any number of ranks.
#[derive(Parser)]
#[command(name = "heat3d", version, override_usage = USAGE)]
struct Cli {
    /// The initial grid.
    #[arg(required_unless_present = "generate")]
    input: Option<PathBuf>,
    /// In this process alone, without a fabric.
    #[arg(long)]
    serial: bool,
    /// Steps to make.
    #[arg(long, default_value_t = 10)]
    steps: u32,
    /// How faces travel.
    #[arg(long, value_enum, default_value_t = How::Am)]
    exchange: How,
    /// Where faces travel from and to.
    #[arg(long, value_enum, default_value_t = Memory::Segment)]
    memory: Memory,
    /// Write a grid instead: cells along x, y and z, a seed, the file.
    #[arg(long, num_args = 5, value_names = ["NX", "NY", "NZ", "SEED", "FILE"], conflicts_with = "input")]
    generate: Option<Vec<String>>,
}

#[derive(Clone, Copy, ValueEnum)]
enum How {
    /// Active messages.
    Am,
    /// Puts and a barrier.
    Put,
}

fn fail(message: impl std::fmt::Display) -> ExitCode {
    portals_shim::say(format_args!("heat3d: {message}"));
    ExitCode::from(2)
}

fn generate(words: &[String]) -> ExitCode {
    let mut numbers = [0u64; 4];
    for (n, word) in numbers.iter_mut().zip(words) {
        match word.parse() {
            Ok(value) => *n = value,
            Err(e) => return fail(format_args!("\"{word}\": {e}")),
        }
    }
    let [x, y, z, seed] = numbers;
    let dims = [x, y, z].map(|d| usize::try_from(d).unwrap_or(usize::MAX));
    let path = words.get(4).map(PathBuf::from).unwrap_or_default();
    match heat3d::generate(dims, seed, &path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            fail(portals_shim::with_causes(&e));
            // The words make sense, and the system refused them.
            ExitCode::from(if matches!(e, FileError::Io { .. }) {
                1
            } else {
                2
            })
        }
    }
}

fn main() -> ExitCode {
    let cli = programs::arguments::<Cli>();
    if let Some(words) = cli.generate {
        return generate(&words);
    }
    let input = cli.input.unwrap_or_default();
    let open = || GridFile::open(&input).map_err(HeatError::from);
    if cli.serial {
        return match open().and_then(|file| heat3d::serial(&file, cli.steps)) {
            Ok(report) => ExitCode::from(u8::from(!programs::shown("heat3d", report))),
            Err(e) => fail(portals_shim::with_causes(&e)),
        };
    }
    let exchange = match cli.exchange {
        How::Am => heat3d::Exchange::Am,
        How::Put => heat3d::Exchange::Put,
    };
    programs::start("heat3d", |conduit| {
        let report = heat3d::run(conduit, open, cli.steps, exchange, cli.memory)?;
        if report.is_some_and(|report| !programs::shown("heat3d", report)) {
            conduit.exit(1);
        }
        Ok::<(), HeatError>(())
    })
}
