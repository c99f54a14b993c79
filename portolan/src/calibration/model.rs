//! Runs of the model beside what was published, in this process: ranks that are threads.

use std::sync::Barrier;
use std::thread;

use nic_model::Machine;
use portals_shim::nal::seastar;
use portals_shim::nal::seastar::Mode;
use portals_shim::place::Placement;

use crate::bench::{BenchError, Name, Software, measure_on};
use crate::error::CmdError;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
    /// Half a round trip between two nodes, µs.
    OneWay(u64),
    /// The same between two processes of one node.
    SameNode(u64),
    /// Of a measurement between nodes, in its own unit.
    Of(Name, u64),
}

/// Which ranks a point needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ground {
    /// Two nodes.
    Pair,
    /// Two processes of a node.
    Node,
    /// One node and seven others.
    Many,
}

impl Ground {
    const ALL: [Self; 3] = [Self::Pair, Self::Node, Self::Many];

    fn of(point: Point) -> Self {
        match point {
            Point::SameNode(_) => Self::Node,
            Point::Of(Name::PutsInFlight, _) => Self::Many,
            _ => Self::Pair,
        }
    }

    fn ranks(self) -> u32 {
        match self {
            Self::Pair | Self::Node => 2,
            Self::Many => 8,
        }
    }

    fn place(self) -> Placement {
        match self {
            Self::Pair | Self::Many => Placement::ONE,
            Self::Node => Placement::new(2).unwrap_or_default(),
        }
    }
}

/// What the library above Portals computes, as the published figures are MPI's.
pub(super) fn mpi(machine: &Machine) -> Software {
    Software {
        send: machine.host.mpi_send.as_ns(),
        receive: machine.host.mpi_receive.as_ns(),
        copy_start: machine.host.memcpy_fixed.as_ns(),
        copy_rate: machine.host.memcpy_rate.bytes_per_us(),
    }
}

/// What the model of `machine` gives for each of `points`, in generic mode and with MPI above it.
pub(super) fn run(machine: &Machine, points: &[Point]) -> Result<Vec<f64>, CmdError> {
    run_in(machine, Mode::Generic, mpi(machine), points)
}

/// What the model of `machine` gives for each of `points`.
pub(super) fn run_in(
    machine: &Machine,
    mode: Mode,
    software: Software,
    points: &[Point],
) -> Result<Vec<f64>, CmdError> {
    let mut values = vec![None; points.len()];
    for ground in Ground::ALL {
        let (mut places, mut plan) = (Vec::new(), Vec::new());
        for (at, point) in points.iter().enumerate() {
            if Ground::of(*point) == ground {
                places.push(at);
                plan.push(match *point {
                    Point::OneWay(bytes) | Point::SameNode(bytes) => (Name::Pingpong, bytes),
                    Point::Of(name, at) => (name, at),
                });
            }
        }
        let medians = ranks(machine, mode, software, ground, &plan)?;
        for (at, median) in places.into_iter().zip(medians) {
            values[at] = Some(median);
        }
    }
    let values: Option<Vec<f64>> = values.into_iter().collect();
    values.ok_or_else(|| CmdError::Failed("a measurement gave no result".to_owned()))
}

/// The medians of a plan.
fn ranks(
    machine: &Machine,
    mode: Mode,
    software: Software,
    ground: Ground,
    plan: &[(Name, u64)],
) -> Result<Vec<f64>, CmdError> {
    if plan.is_empty() {
        return Ok(Vec::new());
    }
    let count = ground.ranks();
    let waiting = seastar::in_threads_with(count, ground.place(), machine.clone(), mode)?;
    let all_here = Barrier::new(count as usize);
    let body = |rank: seastar::InThread| -> Result<Vec<f64>, BenchError> {
        let at = rank.rank() as usize;
        let opened = portals_shim::fabric::Opened::from(rank.join()?);
        measure_on(&opened, at, software, plan, || {
            all_here.wait();
        })
    };
    let results: Vec<Result<Vec<f64>, BenchError>> = thread::scope(|scope| {
        let threads: Vec<_> = waiting
            .into_iter()
            .map(|rank| scope.spawn(|| body(rank)))
            .collect();
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        joined.filter_map(Result::ok).collect()
    });
    let mut first = Vec::new();
    for result in results {
        let values = result.map_err(|error| {
            CmdError::Failed(format!("model: {}", portals_shim::with_causes(&error)))
        })?;
        if !values.is_empty() {
            first = values;
        }
    }
    Ok(first)
}
