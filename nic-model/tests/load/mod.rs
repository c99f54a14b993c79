//! Latency and accepted load of the routers and links of a torus of 8 x 8.

mod study;

use std::fmt::Write;

use nic_model::load::{Bounds, Pattern, bounds, carry};
use nic_model::{Machine, Topology};

/// Loads, in percent of the greatest that the busiest channel can carry.
const PARTS: [u32; 8] = [10, 30, 50, 60, 70, 80, 90, 100];

fn cell(
    machine: &Machine,
    topology: &Topology,
    pattern: Pattern,
    most: Bounds,
    part: u32,
) -> String {
    let per_mille = (most.accepted * 10.0 * f64::from(part)).round() as u32;
    let carried = carry(machine, topology, &study::load(pattern, per_mille));
    let latency = match carried.latency {
        Some(latency) if !carried.is_saturated() => latency.as_ns().to_string(),
        _ => "saturated".to_owned(),
    };
    format!(" {latency} | {:.3} |", carried.accepted)
}

/// The table of the book: rows are loads, with latency and accepted load of each pattern.
pub(crate) fn table(tie_break: u32) -> String {
    let (machine, topology) = (study::machine(tie_break), study::torus());
    let bounds = Pattern::ALL.map(|pattern| bounds(&machine, &topology, pattern));
    let mut table = String::from("| of the bound |");
    for pattern in Pattern::ALL {
        write!(table, " {}, ns | accepted |", pattern.name()).expect("a string takes it");
    }
    table.push_str("\n|--:|--:|--:|--:|--:|--:|--:|\n| bound |");
    for bound in bounds {
        write!(
            table,
            " {} | {:.3} |",
            bound.latency.as_ns(),
            bound.accepted
        )
        .expect("a string takes it");
    }
    table.push('\n');
    for part in PARTS {
        write!(table, "| {part} % |").expect("a string takes it");
        for (pattern, most) in Pattern::ALL.into_iter().zip(bounds) {
            table.push_str(&cell(&machine, &topology, pattern, most, part));
        }
        table.push('\n');
    }
    table
}
