//! How much each connection gets of what a device and a job have.
//!
//! Memory for a connected peer is mostly receive slots; a peer that was never talked to has none. The more ranks a
//! job has, the less each connection gets, so that a rank connected to all of them stays within [`SLOTS`].
//!
//! | ranks | receive slots a peer may fill | requests under way | receive memory a peer |
//! |---|---|---|---|
//! | up to 65 | 64 | 128 | 550 KiB |
//! | 257 | 16 | 32 | 146 KiB |
//! | 1025 and more | 4 | 16 | 49 KiB |
//!
//! A peer that has a ring (`proto/eager_ring.rs`, at most 8 by default) takes 256 bytes more for each slot that it may fill.

#[cfg(test)]
use super::frame::SLOT;

/// Receive slots that a rank would have if it were connected to every other one of a large job.
const SLOTS: u32 = 4096;
/// Slots that a peer may fill, besides those for credits.
const CREDITS: (u32, u32) = (4, 64);
/// Requests under way to a peer.
const DEPTH: (u32, u32) = (16, 128);
/// Slots for frames without credit, per peer. One is under way at a time; the others cover slots that are being given
/// back.
pub(super) const RESERVED: u32 = 2;

/// What the device can do, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) qps: u32,
    pub(super) qp_requests: u32,
    pub(super) cq_entries: u32,
    pub(super) srq_requests: u32,
}

/// Sizes of a rank's queues; those that concern a peer are told to it when it connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Receive slots that a peer may fill.
    pub(super) credits: u16,
    /// Requests under way to a peer.
    pub(super) depth: u32,
    /// Connections at a time.
    pub(super) peers: u32,
    /// Entries of the completion queue: one for each slot and each request of all connections, so that it cannot
    /// overrun.
    pub(super) cq_entries: u32,
    /// Receives of the shared queue.
    pub(super) slots: u32,
}

impl Plan {
    /// The plan for a job of `ranks`; `None` if the device cannot hold one connection.
    pub(super) fn new(ranks: u32, device: Device) -> Option<Self> {
        let others = ranks.saturating_sub(1).max(1);
        let credits = (SLOTS / others).clamp(CREDITS.0, CREDITS.1);
        let depth = (2 * credits)
            .clamp(DEPTH.0, DEPTH.1)
            .min(device.qp_requests);
        let slots = credits + RESERVED;
        let peers = others
            .min(device.qps.saturating_sub(1))
            .min(device.srq_requests / slots)
            .min(device.cq_entries / (slots + depth));
        (peers > 0 && depth > 0).then_some(Self {
            credits: credits as u16,
            depth,
            peers,
            cq_entries: peers * (slots + depth),
            slots: peers * slots,
        })
    }

    /// Connections that a rank may have by default where datagrams can do without: half of the queue pairs of the device,
    /// which all ranks of the machine share, at most one for each processor.
    pub(super) fn connections(qps: u32, processors: usize) -> u32 {
        let processors = u32::try_from(processors).unwrap_or(u32::MAX).max(1);
        (qps / 2 / processors).max(1)
    }

    /// Receive slots to be added for one more connection.
    pub(super) fn slots_of_peer(&self) -> u32 {
        u32::from(self.credits) + RESERVED
    }

    /// Bytes of receive slots that a connected peer costs.
    #[cfg(test)]
    pub(super) fn bytes_of_peer(&self) -> usize {
        self.slots_of_peer() as usize * SLOT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIG: Device = Device {
        qps: 262_144,
        qp_requests: 32_768,
        cq_entries: 4_194_303,
        srq_requests: 32_767,
    };
    /// What SoftRoCE of Linux 6.1 says.
    const RXE: Device = Device {
        qps: 1_048_560,
        qp_requests: 1_048_576,
        cq_entries: 32_767,
        srq_requests: 983_040,
    };

    #[test]
    fn every_completion_has_its_place_in_the_queue() {
        for device in [BIG, RXE] {
            for ranks in [1, 2, 3, 64, 65, 66, 257, 1000, 4096, 100_000, u32::MAX] {
                let plan = Plan::new(ranks, device).unwrap();
                assert!(plan.cq_entries <= device.cq_entries, "{ranks}");
                assert!(plan.slots <= device.srq_requests, "{ranks}");
                let each = u32::from(plan.credits) + RESERVED + plan.depth;
                assert!(plan.peers * each <= plan.cq_entries, "{ranks}");
                assert!(plan.peers < ranks.max(2) && plan.credits >= 4 && plan.depth >= 16);
            }
        }
    }

    #[test]
    fn thousands_of_peers_fit() {
        let plan = Plan::new(4096, BIG).unwrap();
        assert_eq!((plan.peers, plan.credits, plan.depth), (4095, 4, 16));
        assert_eq!(plan.bytes_of_peer(), 6 * SLOT);
        // SoftRoCE's completion queue is the limit there.
        assert_eq!(Plan::new(4096, RXE).unwrap().peers, 1489);
        let small = Plan::new(4, RXE).unwrap();
        assert_eq!((small.peers, small.credits, small.depth), (3, 64, 128));
    }

    #[test]
    fn ranks_of_a_machine_share_the_queue_pairs() {
        assert_eq!(Plan::connections(BIG.qps, 64), 2048);
        assert_eq!(Plan::connections(RXE.qps, 2), 262_140);
        assert_eq!(Plan::connections(1, 4), 1);
    }

    #[test]
    fn a_device_for_nothing_is_refused() {
        assert_eq!(Plan::new(2, Device { qps: 1, ..BIG }), None);
        let none = Device {
            cq_entries: 10,
            ..BIG
        };
        assert_eq!(Plan::new(2, none), None);
    }
}
