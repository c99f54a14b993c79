//! What each mechanism of the model does to the curves: the same runs with it turned off.

use nic_model::Machine;

use super::model::{self, Point};
use crate::bench::Name;
use crate::error::CmdError;

/// A mechanism and the parameters that turn it off.
pub(super) struct Mechanism {
    pub(super) title: &'static str,
    /// What it does, and what the rows show.
    pub(super) about: &'static str,
    pub(super) off: &'static [(&'static str, u64)],
    pub(super) points: &'static [Point],
}

/// The mechanisms, in the order of the page.
pub(super) const ALL: [Mechanism; 8] = [
    Mechanism {
        title: "Data in the header packet",
        about: "Up to 16 bytes ride in the header packet, and the target needs one interrupt. Without that \
                the step moves from 16 bytes to the first byte.",
        off: &[("protocol.inline_data", 0)],
        points: &[
            Point::OneWay(0),
            Point::OneWay(8),
            Point::OneWay(16),
            Point::OneWay(32),
        ],
    },
    Mechanism {
        title: "Interrupts",
        about: "The target's processor is entered for the header and, when data follows, for the end of the \
                deposit. Without their cost the step beyond 16 bytes is that of the second event word and \
                the receive command.",
        off: &[("host.interrupt_entry", 0), ("host.interrupt_exit", 0)],
        points: &[
            Point::OneWay(8),
            Point::OneWay(32),
            Point::Of(Name::PutRate, 8),
            Point::Of(Name::MessageRate, 0),
        ],
    },
    Mechanism {
        title: "The kernel's work for each message",
        about: "The sender's processor is entered for the end of each transmit, the receiver's for each header; one \
                interrupt serves what has come meanwhile, and the kernel has work for each word that it finds. \
                Without that work, and without interrupts for ends that nobody waits for, the limit is what traps, \
                MPI and the firmware allow.",
        off: &[("host.event_handle", 0), ("host.tx_interrupt", 0)],
        points: &[
            Point::Of(Name::MessageRate, 0),
            Point::Of(Name::MessageRate, 8),
            Point::Of(Name::PutRate, 8),
        ],
    },
    Mechanism {
        title: "A slot of the engines for each message in flight",
        about: "The engines have slots for 256 messages, out and in; a message beyond them costs the firmware \
                more. One node puts 8 KiB to seven others in turn, so many under way together \
                (`puts-in-flight`): the rate is flat up to the slots and falls beyond them. What a message without a \
                slot costs is assumed, so that the place of the knee is modelled and its depth is not known.",
        off: &[("protocol.dma_slots", 65_535)],
        points: &[
            Point::Of(Name::PutsInFlight, 1),
            Point::Of(Name::PutsInFlight, 4),
            Point::Of(Name::PutsInFlight, 16),
            Point::Of(Name::PutsInFlight, 64),
            Point::Of(Name::PutsInFlight, 128),
            Point::Of(Name::PutsInFlight, 192),
            Point::Of(Name::PutsInFlight, 256),
            Point::Of(Name::PutsInFlight, 288),
            Point::Of(Name::PutsInFlight, 320),
            Point::Of(Name::PutsInFlight, 384),
            Point::Of(Name::PutsInFlight, 512),
            Point::Of(Name::PutsInFlight, 1024),
        ],
    },
    Mechanism {
        title: "The deposit goes on while the handler returns",
        about: "The receive engine works while the handler of the first interrupt returns to the program; \
                the second interrupt cannot be taken before. A short deposit is hidden: the curve is flat. \
                With a handler that returns at once every byte shows.",
        off: &[("host.interrupt_exit", 0)],
        points: &[
            Point::OneWay(32),
            Point::OneWay(1024),
            Point::OneWay(2304),
            Point::OneWay(4608),
        ],
    },
    Mechanism {
        title: "Network buffers hold payload",
        about: "While the target takes the first interrupt, payload flows into the buffers of node ports and \
                routers. With buffers of one packet the sender \
                stands still until the receive command, and credits come back too slowly for the link.",
        off: &[("network.node_port", 9), ("network.input_buffer", 9)],
        points: &[
            Point::OneWay(1024),
            Point::OneWay(4608),
            Point::OneWay(16_384),
            Point::OneWay(65_536),
        ],
    },
    Mechanism {
        title: "The backlog drains faster than the wire fills it",
        about: "Deposits run at the receive rate until they have caught up with the transmit engine. With a \
                receive rate that is no higher the backlog stays.",
        off: &[("chip.rx_rate", 1800)],
        points: &[
            Point::OneWay(4608),
            Point::OneWay(10_240),
            Point::OneWay(16_384),
            Point::OneWay(1 << 20),
        ],
    },
    Mechanism {
        title: "The transmit engine limits long messages",
        about: "Above 16 KiB time grows with the transmit rate. With a faster engine the link does.",
        off: &[("chip.tx_rate", 3200)],
        points: &[
            Point::OneWay(16_384),
            Point::OneWay(65_536),
            Point::OneWay(1 << 20),
        ],
    },
];

impl Mechanism {
    /// What the model gives with the mechanism and without it.
    pub(super) fn effect(&self, machine: &Machine) -> Result<Vec<(f64, f64)>, CmdError> {
        let set = |machine: Machine, (key, value): &(&str, u64)| machine.with(key, *value);
        let off = self.off.iter().try_fold(machine.clone(), set);
        let off = off.map_err(|error| CmdError::Failed(error.to_string()))?;
        let with = model::run(machine, self.points)?;
        let without = model::run(&off, self.points)?;
        Ok(with.into_iter().zip(without).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(title: &str) -> Vec<(f64, f64)> {
        let mechanism = ALL.iter().find(|m| m.title == title).unwrap();
        mechanism.effect(&Machine::named("xt4").unwrap()).unwrap()
    }

    #[test]
    fn the_inline_step_is_that_of_a_second_interrupt() {
        let machine = Machine::named("xt4").unwrap();
        let step = |of: fn(&(f64, f64)) -> f64| {
            let inline = effect("Data in the header packet");
            (
                of(&inline[1]) - of(&inline[0]),
                of(&inline[3]) - of(&inline[2]),
            )
        };
        let entry = machine.host.interrupt_entry.as_ns() as f64 / 1e3;
        let (first, beyond) = step(|p| p.0);
        assert!(first < 0.5 && beyond > entry, "{first} {beyond}");
        let (first, beyond) = step(|p| p.1);
        assert!(first > entry && beyond < 0.5, "without: {first} {beyond}");
        let none = effect("Interrupts");
        let (with, without) = (none[1].0 - none[0].0, none[1].1 - none[0].1);
        assert!(without < with / 2.0, "{with} {without}");
    }

    #[test]
    fn work_for_each_message_limits_the_message_rate() {
        let rates = effect("The kernel's work for each message");
        assert!(rates[0].1 > 2.0 * rates[0].0, "{rates:?}");
    }

    #[test]
    fn the_rate_falls_past_the_slots_of_the_engines() {
        const TITLE: &str = "A slot of the engines for each message in flight";
        let mechanism = ALL.iter().find(|m| m.title == TITLE).unwrap();
        // The page has more points, which take four times as long to simulate.
        const POINTS: &[Point] = &[
            Point::Of(Name::PutsInFlight, 64),
            Point::Of(Name::PutsInFlight, 256),
            Point::Of(Name::PutsInFlight, 512),
        ];
        assert!(POINTS.iter().all(|point| mechanism.points.contains(point)));
        let mechanism = Mechanism {
            points: POINTS,
            ..*mechanism
        };
        let rates = mechanism.effect(&Machine::named("xt4").unwrap()).unwrap();
        let (flat, slots, beyond) = (rates[0], rates[1], rates[2]);
        assert!((slots.0 / flat.0 - 1.0).abs() < 0.05, "{rates:?}");
        assert!(beyond.0 < 0.85 * slots.0, "{rates:?}");
        assert!((beyond.1 / flat.1 - 1.0).abs() < 0.05, "{rates:?}");
        assert!((flat.0 / flat.1 - 1.0).abs() < 0.01, "{rates:?}");
    }

    #[test]
    fn the_flat_part_of_the_curve_is_the_handlers_return() {
        let hidden = effect("The deposit goes on while the handler returns");
        let grows = |of: fn(&(f64, f64)) -> f64| of(&hidden[1]) - of(&hidden[0]);
        assert!(grows(|p| p.1) > grows(|p| p.0) + 0.1, "{hidden:?}");
    }

    #[test]
    fn buffers_let_payload_flow_ahead() {
        let buffers = effect("Network buffers hold payload");
        assert!(buffers[2].1 > buffers[2].0 + 1.0, "{buffers:?}");
    }
}
