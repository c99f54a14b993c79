//! What the parameters of a machine allow: no figure of its model may be better.
//!
//! ```text
//!   sender's processor ─▶ its firmware ─▶ transmit engine ─▶ link ─▶ receive engine ─▶ firmware ─▶ receiver's processor
//! ```
//!
//! Every message passes these stages. A rate is bounded by the stage that each message keeps busy longest, a time by
//! the sum of what one message waits for in turn. A stage has only what each message costs for certain. An interrupt
//! may serve several messages, so that entry and exit are in no bound; nor are the ends of transmits, which the
//! kernel may handle after a measurement has ended.
//!
//! Rates are payload over the rate of an engine; link times are those of flits. All are of the machine file, so that
//! they hold whatever the model does.

use nic_model::{Machine, SimDuration};
use portals_shim::nal::seastar::Mode;

use super::name::{Name, Unit};
use super::portals::Software;

/// Payload of a packet, and of a flit, bytes.
const PACKET: u64 = 64;
const FLIT: u64 = 8;
/// What a library above Portals may carry in the 128 bits of a header that are its own, bytes.
const IN_HEADER: u64 = 16;
/// Durations are whole nanoseconds, and half of a round trip is rounded down once more.
const CLOCK_US: f64 = 0.002;
/// The same of the shortest window that is timed, as a part of its rate.
const CLOCK_PART: f64 = 1e-5;

/// What is measured, and on which machine; ranks 0 and 1 are neighbours, or on one node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Model<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) mode: Mode,
    /// What computes above Portals where a measurement has that.
    pub(crate) software: Software,
    /// Ranks 0 and 1 are processes of one node.
    pub(crate) same_node: bool,
}

/// The best value there can be, in the unit of its measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bound {
    pub(crate) value: f64,
    /// The stage that sets it.
    pub(crate) by: &'static str,
}

/// A figure that its machine does not allow.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "{name} at {point}: {value:.3} {} is better than {:.3}, which {} of {machine} allows by its parameters; \
     no result is printed",
    name.unit().word(), bound.value, bound.by
)]
pub(crate) struct Broken {
    name: Name,
    point: u64,
    value: f64,
    bound: Bound,
    machine: String,
}

/// Directions whose payload a measurement adds up; each has its own engines and links.
fn directions(name: Name) -> u64 {
    match name {
        Name::PutBidirectional => 2,
        _ => 1,
    }
}

/// How a measurement uses the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Portals calls from rank 0 to rank 1, or from 1 to 0, each a message.
    Direct,
    /// A library's own messages between the two: one at least for each operation.
    Library,
    /// Messages of rank 0 to several ranks.
    Spread,
}

impl Model<'_> {
    /// The bound of `name` at `point` with payloads of `bytes`; `None` where the network has no part in it.
    pub(crate) fn bound(&self, name: Name, point: u64, bytes: u64) -> Option<Bound> {
        let usage = match name {
            Name::Memcpy => return None,
            Name::PutsInFlight | Name::AmThreads => Use::Spread,
            _ if name.is_of_conduit() || name.is_of_tags() || name.is_of_pinning() => Use::Library,
            _ => Use::Direct,
        };
        // Libraries have ways of their own between processes of a node.
        if self.same_node && usage != Use::Direct {
            return None;
        }
        let value = |time: SimDuration, by| {
            let nanos = time.as_ps() as f64 / 1e3;
            Bound {
                value: match name.unit() {
                    Unit::Microseconds => nanos / 1e3,
                    Unit::MegabytesPerSecond => {
                        directions(name) as f64 * bytes as f64 * 1e3 / nanos
                    }
                    Unit::OperationsPerSecond => 1e9 / nanos,
                },
                by,
            }
        };
        if name.unit() == Unit::Microseconds && name != Name::AmFlood {
            return Some(value(
                self.time(name, point, bytes),
                "the way of its messages",
            ));
        }
        let stages = self.stages(name, usage, bytes);
        let (by, longest) = stages.into_iter().max_by_key(|(_, time)| *time)?;
        (longest > SimDuration::ZERO).then(|| value(longest, by))
    }

    /// The bound of a figure, whose best value is `best`.
    ///
    /// # Errors
    /// The figure is better than its bound.
    pub(crate) fn check(
        &self,
        name: Name,
        point: u64,
        bytes: u64,
        best: f64,
    ) -> Result<Option<Bound>, Broken> {
        let Some(bound) = self.bound(name, point, bytes) else {
            return Ok(None);
        };
        let holds = match name.unit() {
            Unit::Microseconds => best + CLOCK_US >= bound.value,
            _ => best <= bound.value * (1.0 + CLOCK_PART),
        };
        if holds {
            return Ok(Some(bound));
        }
        Err(Broken {
            name,
            point,
            value: best,
            bound,
            machine: self.machine.name.clone(),
        })
    }

    fn generic(&self) -> bool {
        self.mode == Mode::Generic
    }

    /// Processes of a node talk through its kernel, unless the chip has the state of its processes.
    fn through_kernel(&self) -> bool {
        self.same_node && self.generic()
    }

    /// Whether data follows the header packet.
    fn follows(&self, bytes: u64) -> bool {
        bytes > u64::from(self.machine.protocol.inline_data)
    }

    // ---- times ----

    fn time(&self, name: Name, point: u64, bytes: u64) -> SimDuration {
        let Software { send, receive, .. } = self.software;
        let software = SimDuration::from_ns(send + receive);
        let carried = bytes.saturating_sub(IN_HEADER);
        let acked = |bytes| self.asked(bytes) + self.answered(0);
        let of = |each: SimDuration| each * point;
        match name {
            Name::Pingpong => self.asked(bytes) + self.wake() + software,
            Name::PutLatency => acked(bytes),
            Name::GetLatency => self.asked(0) + self.answered(bytes),
            Name::MatchDepth if self.generic() => acked(bytes) + of(self.machine.host.match_entry),
            Name::MatchDepth => acked(bytes) + of(self.machine.accelerated.nic_match_entry),
            Name::SegmentPut | Name::RandomPut => acked(carried),
            Name::SegmentGet => self.asked(0) + self.answered(carried),
            Name::AmShort | Name::AmMedium | Name::AmLong => {
                self.asked(carried) + self.asked(0) + self.wake() * 2
            }
            Name::TagPingAck => self.asked(carried) + self.asked(0) + self.wake() * 2 + software,
            Name::TagPingpong => self.asked(carried) + self.wake(),
            _ => self.asked(0) + self.wake(),
        }
    }

    /// A message from the call of its sender until it is where it is to be.
    fn asked(&self, bytes: u64) -> SimDuration {
        let Machine {
            host,
            firmware,
            accelerated,
            ..
        } = self.machine;
        let kernel = host.trap + host.header_build;
        if self.through_kernel() {
            let map = if bytes > 0 {
                host.local_map
            } else {
                SimDuration::ZERO
            };
            let copy = map + host.memcpy_rate.time(bytes);
            return host.api_call + kernel + host.local_handoff + host.match_fixed + copy;
        }
        if self.generic() {
            return host.api_call + kernel + firmware.tx_message + self.moved(bytes);
        }
        host.api_call + accelerated.nic_initiate + accelerated.nic_match + self.moved(bytes)
    }

    /// An ack or a reply, from where it is made until it is where it is to be.
    fn answered(&self, bytes: u64) -> SimDuration {
        let Machine { host, firmware, .. } = self.machine;
        if self.through_kernel() {
            return host.local_handoff + host.match_fixed + host.memcpy_rate.time(bytes);
        }
        if self.generic() {
            return host.header_build + firmware.tx_message + self.moved(bytes) + self.wake();
        }
        self.moved(bytes) + self.wake()
    }

    /// From the sender's engine to the receiver's memory, with what the receiver's kernel does for it.
    fn moved(&self, bytes: u64) -> SimDuration {
        let Machine {
            host,
            firmware,
            chip,
            network,
            ..
        } = self.machine;
        let hop = match self.same_node {
            true => SimDuration::ZERO,
            false => network.router_hop + network.link_wire,
        };
        let kernel = |time| {
            if self.generic() {
                time
            } else {
                SimDuration::ZERO
            }
        };
        let read = kernel(chip.ht_read_latency);
        let header = hop + firmware.rx_message + kernel(self.word() + host.match_fixed);
        if !self.follows(bytes) {
            return read + header;
        }
        let programmed = header + kernel(firmware.rx_command) + chip.rx_rate.time(bytes);
        let sent = chip.tx_rate.time(bytes).max(self.on_link(bytes)) + hop;
        read + programmed.max(sent) + kernel(firmware.rx_complete + self.word())
    }

    /// What the kernel takes for a word of the firmware.
    fn word(&self) -> SimDuration {
        self.machine.host.eq_read + self.machine.host.event_handle
    }

    /// What a program takes to notice an event that it waits for.
    fn wake(&self) -> SimDuration {
        self.machine.host.eq_read
    }

    // ---- rates ----

    /// How long each message keeps each stage busy.
    fn stages(&self, name: Name, usage: Use, bytes: u64) -> Vec<(&'static str, SimDuration)> {
        let Machine {
            host,
            firmware,
            chip,
            ..
        } = self.machine;
        if self.through_kernel() {
            return vec![
                ("the hand-off within a node", host.local_handoff),
                ("the copy within a node", host.memcpy_rate.time(bytes)),
            ];
        }
        let carried = match usage {
            Use::Library => bytes.saturating_sub(IN_HEADER),
            Use::Direct | Use::Spread => bytes,
        };
        let follows = self.follows(carried);
        let payload = if follows { carried } else { 0 };
        let initiate = match self.generic() {
            true => firmware.tx_message,
            false => self.machine.accelerated.nic_initiate,
        };
        let mut stages = vec![
            ("the sender's firmware", initiate),
            ("the transmit engine", chip.tx_rate.time(payload)),
            ("the link", self.on_link(payload)),
        ];
        if usage == Use::Spread {
            return stages;
        }
        stages.push(("the receive engine", chip.rx_rate.time(payload)));
        stages.push(("the receiver's firmware", self.firmware_in(name, follows)));
        stages.push(("the sender's processor", self.processor_out(name)));
        stages.push(("the receiver's processor", self.processor_in(name, follows)));
        stages
    }

    fn on_link(&self, bytes: u64) -> SimDuration {
        let flits = bytes.div_ceil(FLIT) + bytes.div_ceil(PACKET);
        match self.same_node {
            true => SimDuration::ZERO,
            false => self.machine.flit_wire_time() * flits,
        }
    }

    fn firmware_in(&self, name: Name, follows: bool) -> SimDuration {
        let Machine {
            firmware,
            accelerated,
            ..
        } = self.machine;
        if self.generic() {
            let payload = firmware.rx_command + firmware.rx_complete;
            return firmware.rx_message + if follows { payload } else { SimDuration::ZERO };
        }
        let matched = match name {
            Name::MessageRate => {
                accelerated.nic_match + accelerated.nic_match_entry + accelerated.nic_event
            }
            _ => SimDuration::ZERO,
        };
        firmware.rx_message + matched
    }

    fn processor_out(&self, name: Name) -> SimDuration {
        let host = &self.machine.host;
        let kernel = match self.generic() {
            true => host.trap + host.header_build,
            false => SimDuration::ZERO,
        };
        let software = match name.has_software() {
            true => SimDuration::from_ns(self.software.send),
            false => SimDuration::ZERO,
        };
        software + host.api_call + kernel + host.command_write
    }

    /// The processor that takes the interrupts is the one that the program runs on.
    fn processor_in(&self, name: Name, follows: bool) -> SimDuration {
        let host = &self.machine.host;
        let program = match name {
            Name::MessageRate => {
                host.api_call + self.wake() + SimDuration::from_ns(self.software.receive)
            }
            _ => SimDuration::ZERO,
        };
        if !self.generic() {
            return program;
        }
        let payload = match follows {
            true => host.command_write + self.word(),
            false => SimDuration::ZERO,
        };
        program + self.word() + host.match_fixed + payload
    }
}

#[cfg(test)]
mod tests;
