//! What goes wrong on a link: wrong bits, lost packets, corruption that its CRC does not see.

use std::collections::BTreeMap;

use super::PORTS;
use crate::faults::{Fault, FaultRates, Faults, draw, threshold};
use crate::time::SimDuration;
use crate::topology::{NodeId, Port, Topology};

/// Bits of a flit on a link: 8 bytes and 4 sideband bits.
const FLIT_BITS: u64 = 68;
/// One in so many wrong packets has a CRC of 16 bits that is right.
const CRC_MISSES: u64 = 1 << 16;
/// Tries of one packet after which a link is not asked again; with the greatest rate that a fault
/// file may ask for, reached once in 2^64 packets.
const MAX_TRIES: u32 = 64;

/// Kinds of draws; with a link's number they make a stream.
mod stream {
    pub(super) const BITS: u64 = 1;
    pub(super) const CRC: u64 = 2;
    pub(super) const LOSS: u64 = 3;
    pub(super) const CORRUPTION: u64 = 4;
    pub(super) const PLACE: u64 = 5;
}

/// What happened to one packet on one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Passage {
    /// Times it was sent again.
    pub(super) retries: u32,
    pub(super) lost: bool,
    /// It is wrong now; the bits choose where.
    pub(super) corrupt: Option<u64>,
    /// It is wrong because the link's CRC did not see it.
    pub(super) missed: bool,
}

/// A link that is slower than the others, or was.
#[derive(Debug, Clone, Copy)]
struct Slow {
    /// Of the normal rate.
    percent: u32,
    /// How much longer it was busy than at the normal rate.
    stretched: SimDuration,
}

/// Faults of links: wrong bits and packets, and links that are slow.
#[derive(Debug, Clone)]
pub(super) struct LinkFaults {
    seed: u64,
    rates: FaultRates,
    /// By number of the output: rates of its own.
    own: BTreeMap<usize, FaultRates>,
    slow: BTreeMap<usize, Slow>,
    /// Something may go wrong.
    pub(super) any: bool,
}

impl LinkFaults {
    pub(super) fn new(faults: &Faults, topology: &Topology) -> Self {
        let rates = faults.rates();
        let mut own = BTreeMap::new();
        for &fault in faults.script() {
            if let Fault::LinkRates {
                node,
                port,
                rates: of,
            } = fault
            {
                own.extend(both(topology, node, port).map(|link| (link, of.over(rates))));
            }
        }
        Self {
            seed: faults.seed(),
            rates,
            any: rates.any() || !own.is_empty(),
            own,
            slow: BTreeMap::new(),
        }
    }

    /// From now on both directions of a link run at so many percent of the normal rate.
    pub(super) fn slow_down(
        &mut self,
        topology: &Topology,
        node: NodeId,
        port: Port,
        percent: u32,
    ) {
        self.any = true;
        for link in both(topology, node, port) {
            let slow = self.slow.entry(link).or_insert(Slow {
                percent: 100,
                stretched: SimDuration::ZERO,
            });
            slow.percent = percent.max(1);
        }
    }

    /// How much longer than `time` the flits that take that time at the normal rate take on `link`.
    pub(super) fn stretch(&self, link: usize, time: SimDuration) -> SimDuration {
        let percent = self.slow.get(&link).map_or(100, |slow| slow.percent);
        let all = u128::from(time.as_ps()) * 100 / u128::from(percent);
        let all = u64::try_from(all).unwrap_or(u64::MAX);
        SimDuration::from_ps(all.saturating_sub(time.as_ps()))
    }

    /// A link was busy for so much longer than at the normal rate.
    pub(super) fn add_stretched(&mut self, link: usize, time: SimDuration) {
        if let Some(slow) = self.slow.get_mut(&link) {
            slow.stretched += time;
        }
    }

    /// How much longer a link was busy than at the normal rate.
    pub(super) fn stretched(&self, link: usize) -> SimDuration {
        self.slow
            .get(&link)
            .map_or(SimDuration::ZERO, |slow| slow.stretched)
    }

    /// What happens to the packet of number `counter` on `link`. `packets` is more than one when
    /// it stands for several.
    pub(super) fn pass(&self, link: usize, counter: u64, flits: u16, packets: u16) -> Passage {
        let rates = self.own.get(&link).unwrap_or(&self.rates);
        let draw = |kind: u64, n: u64| draw(self.seed, (link as u64) << 8 | kind, n);
        let mut passage = Passage::default();
        let bits = u128::from(u64::from(flits) * FLIT_BITS * rates.link_bit_errors);
        let wrong = threshold(bits, FaultRates::BITS * u64::from(packets));
        let tries = u64::from(MAX_TRIES);
        // Each packet of a unit may need retries of its own.
        for n in 0..u64::from(packets) {
            for attempt in 0..tries {
                let number = (counter * u64::from(u8::MAX) + n) * tries + attempt;
                if draw(stream::BITS, number) >= wrong {
                    break;
                }
                if draw(stream::CRC, number).is_multiple_of(CRC_MISSES) {
                    passage.missed = true;
                    break;
                }
                passage.retries += 1;
            }
        }
        let rate =
            |part: u64| threshold(u128::from(part) * u128::from(packets), FaultRates::PACKETS);
        passage.lost = draw(stream::LOSS, counter) < rate(rates.lost_packets);
        let corrupted = draw(stream::CORRUPTION, counter) < rate(rates.corrupted_packets);
        if corrupted || passage.missed {
            passage.corrupt = Some(draw(stream::PLACE, counter));
        }
        passage
    }
}

/// The numbers of both directions of a link.
fn both(topology: &Topology, node: NodeId, port: Port) -> [usize; 2] {
    let other = topology.neighbour(node, port);
    [(node, port), (other, port.opposite())].map(|(node, port)| node.index() * PORTS + port.index())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> Topology {
        Topology::torus([4, 1, 1]).unwrap()
    }

    #[test]
    fn rates_are_met() {
        let rates = FaultRates {
            link_bit_errors: 1_000_000,
            lost_packets: 10_000_000,
            corrupted_packets: 20_000_000,
        };
        let faults = LinkFaults::new(&Faults::seeded(3).with_rates(rates), &ring());
        let (mut retries, mut lost, mut corrupt) = (0, 0, 0);
        for counter in 0..100_000 {
            let passage = faults.pass(9, counter, 9, 1);
            retries += passage.retries;
            lost += u32::from(passage.lost);
            corrupt += u32::from(passage.corrupt.is_some());
        }
        // 612 bits at 1e-6, 1e-2 and 2e-2 of 100,000 packets.
        assert!((45..80).contains(&retries), "{retries} retries");
        assert!((900..1_100).contains(&lost), "{lost} lost");
        assert!((1_850..2_150).contains(&corrupt), "{corrupt} corrupted");
    }

    #[test]
    fn a_link_that_is_wrong_every_second_time_passes_packets() {
        let rates = FaultRates {
            link_bit_errors: 500_000_000,
            ..FaultRates::default()
        };
        let faults = LinkFaults::new(&Faults::seeded(3).with_rates(rates), &ring());
        let retries: u32 = (0..10_000).map(|n| faults.pass(0, n, 9, 1).retries).sum();
        // p = 0.306: 0.44 retries each.
        assert!((4_100..4_700).contains(&retries), "{retries}");
        assert_eq!(
            LinkFaults::new(&Faults::seeded(1), &ring()).pass(0, 0, 9, 1),
            Passage::default()
        );
    }
}
