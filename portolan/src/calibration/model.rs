//! Runs of the model beside what was published, in this process: ranks that are threads.

use std::sync::Barrier;
use std::thread;

use nic_model::Machine;
use portals_shim::nal::seastar;
use portals_shim::nal::seastar::Mode;
use portals_shim::place::Placement;

use crate::bench::{BenchError, Model, Name, Software, Unit, measure_on};
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
    for (ground, group) in jobs(points) {
        let plan: Vec<(Name, u64)> = group.iter().map(|(_, point)| measurement(*point)).collect();
        let medians = ranks(machine, mode, software, ground, &plan)?;
        let model = Model {
            machine,
            mode,
            software,
            same_node: ground == Ground::Node,
        };
        for ((at, point), (bytes, median)) in group.into_iter().zip(medians) {
            let (name, point) = measurement(point);
            let checked = model.check(name, point, bytes, median);
            checked.map_err(|broken| CmdError::Failed(broken.to_string()))?;
            values[at] = Some(median);
        }
    }
    let values: Option<Vec<f64>> = values.into_iter().collect();
    values.ok_or_else(|| CmdError::Failed("a measurement gave no result".to_owned()))
}

/// What is run for a point, and at what.
fn measurement(point: Point) -> (Name, u64) {
    match point {
        Point::OneWay(bytes) | Point::SameNode(bytes) => (Name::Pingpong, bytes),
        Point::Of(name, at) => (name, at),
    }
}

/// A job: where its ranks are, and points with their places in the results.
type Job = (Ground, Vec<(usize, Point)>);

/// The jobs that measure `points`: one for each ground, and one for each rate, which varies with what came before it.
fn jobs(points: &[Point]) -> Vec<Job> {
    let all: Vec<(usize, Point)> = points.iter().copied().enumerate().collect();
    let alone = |point: Point| {
        Ground::of(point) == Ground::Pair && measurement(point).0.unit() != Unit::Microseconds
    };
    let (rates, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, p)| alone(*p));
    let together = Ground::ALL.map(|ground| {
        let of = |(_, point): &&(usize, Point)| Ground::of(*point) == ground;
        (ground, others.iter().filter(of).copied().collect())
    });
    let rates = rates.into_iter().map(|rate| (Ground::Pair, vec![rate]));
    together.into_iter().chain(rates).collect()
}

/// The payloads and medians of a plan.
fn ranks(
    machine: &Machine,
    mode: Mode,
    software: Software,
    ground: Ground,
    plan: &[(Name, u64)],
) -> Result<Vec<(u64, f64)>, CmdError> {
    if plan.is_empty() {
        return Ok(Vec::new());
    }
    let count = ground.ranks();
    let waiting = seastar::in_threads_with(count, ground.place(), machine.clone(), mode)?;
    let all_here = Barrier::new(count as usize);
    let body = |rank: seastar::InThread| -> Result<Vec<(u64, f64)>, BenchError> {
        let at = rank.rank() as usize;
        let opened = portals_shim::fabric::Opened::from(rank.join()?);
        measure_on(&opened, at, software, plan, || {
            all_here.wait();
        })
    };
    let results: Vec<Result<Vec<(u64, f64)>, BenchError>> = thread::scope(|scope| {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates, bandwidths and times of Portals calls, short and long.
    fn points(ground: fn(u64) -> Point) -> Vec<Point> {
        const NAMES: [Name; 7] = [
            Name::PutLatency,
            Name::GetLatency,
            Name::PutBandwidth,
            Name::GetBandwidth,
            Name::PutBidirectional,
            Name::PutRate,
            Name::MessageRate,
        ];
        let sizes = [0, 17, 512, 16_384];
        let of = |name| sizes.into_iter().map(move |bytes| Point::Of(name, bytes));
        let mut points: Vec<Point> = NAMES.into_iter().flat_map(of).collect();
        let empty =
            |p: &Point| matches!(p, Point::Of(name, 0) if name.unit() == Unit::MegabytesPerSecond);
        points.retain(|p| !empty(p));
        points.extend(sizes.map(ground));
        points.push(Point::Of(Name::MatchDepth, 64));
        points.push(Point::Of(Name::PutsInFlight, 64));
        points
    }

    /// [`run_in`] refuses what breaks a bound.
    #[test]
    fn no_figure_of_any_machine_is_better_than_its_parameters_allow() {
        let all = |name: &str| {
            let machine = Machine::named(name).unwrap();
            for software in [Software::default(), mpi(&machine)] {
                run_in(&machine, Mode::Generic, software, &points(Point::OneWay)).unwrap();
            }
            if machine.os == nic_model::Os::Catamount {
                let points = points(Point::OneWay);
                run_in(&machine, Mode::Accelerated, Software::default(), &points).unwrap();
            }
            run(&machine, &[0, 17, 512, 16_384].map(Point::SameNode)).unwrap();
        };
        thread::scope(|scope| {
            for name in Machine::names() {
                scope.spawn(move || all(name));
            }
        });
    }

    /// An instrument that times the reading of a full queue finds 3.6 million messages per second here.
    #[test]
    fn messages_whose_data_follows_come_no_faster_than_their_kernel_takes_them() {
        let machine = Machine::named("xt4").unwrap();
        let sizes = [24, 64, 128, 256, 512];
        let rates = run(
            &machine,
            &sizes.map(|bytes| Point::Of(Name::MessageRate, bytes)),
        );
        for (bytes, rate) in sizes.into_iter().zip(rates.unwrap()) {
            assert!((300_000.0..420_000.0).contains(&rate), "{bytes} B: {rate}");
        }
    }

    /// Fewer costs, and the stage that then is the slowest.
    #[test]
    fn bounds_hold_where_other_stages_limit() {
        let free = [
            "host.interrupt_entry",
            "host.interrupt_exit",
            "host.event_handle",
            "host.tx_interrupt",
            "host.trap",
            "firmware.tx_message",
            "firmware.rx_message",
        ];
        let set = |machine: Machine, key: &&str| machine.with(key, 0).unwrap();
        let machine = free.iter().fold(Machine::named("xt4").unwrap(), set);
        for (key, value) in [
            ("chip.rx_rate", 900),
            ("chip.tx_rate", 900),
            ("network.flit_time", 6000),
        ] {
            let machine = machine.with(key, value).unwrap();
            let points = points(Point::OneWay);
            run_in(&machine, Mode::Generic, Software::default(), &points).unwrap();
            run_in(&machine, Mode::Accelerated, Software::default(), &points).unwrap();
        }
    }
}
