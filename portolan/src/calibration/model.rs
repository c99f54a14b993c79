//! Runs of the model beside what was published, in this process: two ranks that are threads.

use std::sync::Barrier;
use std::thread;

use nic_model::Machine;
use portals_shim::nal::seastar;
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
    /// Of a measurement between two nodes, in its own unit.
    Of(Name, u64),
}

/// What the model of `machine` gives for each of `points`.
pub(super) fn run(machine: &Machine, points: &[Point]) -> Result<Vec<f64>, CmdError> {
    let plan = |same_node: bool| -> Vec<(Name, u64)> {
        let of = |point: &Point| match *point {
            Point::OneWay(bytes) if !same_node => Some((Name::Pingpong, bytes)),
            Point::SameNode(bytes) if same_node => Some((Name::Pingpong, bytes)),
            Point::Of(name, at) if !same_node => Some((name, at)),
            _ => None,
        };
        points.iter().filter_map(of).collect()
    };
    let mut far = ranks(machine, Placement::ONE, &plan(false))?.into_iter();
    let pair = Placement::new(2).unwrap_or_default();
    let mut near = ranks(machine, pair, &plan(true))?.into_iter();
    let take = |point: &Point| match point {
        Point::SameNode(_) => near.next(),
        _ => far.next(),
    };
    let values: Option<Vec<f64>> = points.iter().map(take).collect();
    values.ok_or_else(|| CmdError::Failed("a measurement gave no result".to_owned()))
}

/// The medians of a plan on two ranks.
fn ranks(machine: &Machine, place: Placement, plan: &[(Name, u64)]) -> Result<Vec<f64>, CmdError> {
    if plan.is_empty() {
        return Ok(Vec::new());
    }
    let software = Software {
        send: machine.host.mpi_send.as_ns(),
        receive: machine.host.mpi_receive.as_ns(),
    };
    let waiting = seastar::in_threads_with(2, place, machine.clone())?;
    let all_here = Barrier::new(2);
    let body = |rank: seastar::InThread| -> Result<Vec<f64>, BenchError> {
        let at = rank.rank() as usize;
        let opened = rank.join()?;
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
        let values =
            result.map_err(|error| CmdError::Failed(format!("model: {}", crate::chain(&error))))?;
        if !values.is_empty() {
            first = values;
        }
    }
    Ok(first)
}
