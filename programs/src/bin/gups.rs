//! `gups`: random updates of a distributed table; see [`programs::gups`].

use clap::Parser;
use programs::Memory;
use programs::gups::{self, Params};
use std::process::ExitCode;

/// Updates random words of a table spread over the ranks, one active message an update (or a get and a put), twice; the
/// checksum is the same for any number of ranks.
#[derive(Parser)]
#[command(name = "gups", version)]
struct Cli {
    /// Words of the table, as a power of two.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=40))]
    log2_table: u32,
    /// Updates of one pass, of all ranks together.
    #[arg(long, default_value_t = 10_000)]
    updates: u64,
    /// Where the table is, and so how it is updated.
    #[arg(long, value_enum, default_value_t = Memory::Segment)]
    memory: Memory,
    /// In this process alone, without a fabric.
    #[arg(long)]
    serial: bool,
}

fn main() -> ExitCode {
    let cli = programs::arguments::<Cli>();
    let params = Params {
        log2_table: cli.log2_table,
        updates: cli.updates,
    };
    if cli.serial {
        let shown = programs::shown("gups", gups::serial(params));
        return ExitCode::from(u8::from(!shown));
    }
    programs::start("gups", |conduit| {
        if let Some((report, rate)) = gups::run(conduit, params, cli.memory)? {
            let lines = format!("{report}\n{rate}");
            if !programs::shown("gups", lines) || report.errors > 0 {
                conduit.exit(1);
            }
        }
        Ok::<(), programs::Failed>(())
    })
}
