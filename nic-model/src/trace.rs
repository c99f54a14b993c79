//! What happens in a world, as records for whoever wants to see it.
//!
//! A [`Sink`] given to [`World::trace_to`](crate::World::trace_to) gets a [`Record`] for each
//! thing that happens in chips and network; firmware and host driver add their own. Without a
//! sink each place costs the look at one `Option`. Records say nothing that depends on addresses
//! of processes, so that a program leaves the same records in every run.
//!
//! Five recorders write to any [`std::io::Write`] while the world runs, and remember only what is
//! under way:
//!
//! | recorder | writes |
//! |---|---|
//! | [`Timeline`] | JSON of Chrome's trace event format, for Perfetto |
//! | [`Capture`] | pcap with one frame for each packet that came out of the network |
//! | [`LinkTable`] | packets, bytes and time in use of each link |
//! | [`LinkSeries`] | the same over virtual time, as a flat array of JSON |
//! | [`Picture`] | an SVG: how busy each part of each node was |

mod capture;
mod links;
mod picture;
mod series;
mod timeline;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use crate::defs::event::EventWord;
use crate::defs::packet::{PacketHeader, flits};
use crate::network::{Crossing, Incident, Network};
use crate::params::Machine;
use crate::posted::PostedWrites;
use crate::queue::Event;
use crate::time::{SimDuration, SimTime};
use crate::topology::{NodeId, Port, Topology};
use crate::transfer::{Delivery, DmaSegment, TransferFault, Upcall};

pub use capture::{Capture, FRAME_HEADER, LINK_TYPE};
pub use links::LinkTable;
pub use picture::Picture;
pub use series::LinkSeries;
pub use timeline::Timeline;

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// When; for what took time, when it ended.
    pub time: SimTime,
    /// Where.
    pub node: NodeId,
    /// What.
    pub what: What<'a>,
}

/// The kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum What<'a> {
    /// A process was in an API call from `from` on, waiting included.
    Call {
        /// The process's rank.
        rank: u32,
        /// The call.
        name: &'static str,
        /// When it was made.
        from: SimTime,
    },
    /// The host's processor worked for a call.
    Trap {
        /// The call.
        name: &'static str,
        /// Since when.
        from: SimTime,
    },
    /// The host's processor was in the interrupt handler.
    Handler {
        /// The event it handled; empty on the way in and out.
        event: EventWord,
        /// Since when.
        from: SimTime,
    },
    /// A header was matched.
    Match {
        /// Who matched: the host or the firmware.
        by: &'static str,
        /// Node the message came from.
        source: u16,
        /// Its match bits.
        bits: u64,
        /// Entries looked at.
        searched: u32,
        /// What becomes of the message.
        outcome: &'static str,
    },
    /// The host rang a doorbell, which has reached the chip.
    Doorbell {
        /// Which mailbox.
        mailbox: u32,
        /// The write index.
        index: u32,
    },
    /// The firmware carried a command out, or refused it.
    Command {
        /// Which mailbox.
        mailbox: u32,
        /// Op code.
        op: u8,
        /// The reason of the refusal.
        refused: Option<u8>,
    },
    /// The embedded processor did a piece of work.
    Work {
        /// What, as far as the firmware says.
        name: &'static str,
        /// Since when.
        from: SimTime,
    },
    /// What the embedded processor is doing just now; names the [`What::Work`] that is recorded.
    Working(&'static str),
    /// The firmware posted an event.
    Event {
        /// The word.
        word: EventWord,
        /// Whether it interrupts.
        interrupt: bool,
    },
    /// The transmit engine started on a message.
    TxStart {
        /// Target.
        destination: NodeId,
        /// Its number.
        sequence: u16,
        /// Payload bytes behind the header packet.
        bytes: u64,
    },
    /// The transmit engine has finished one.
    TxEnd {
        /// Since when.
        from: SimTime,
        /// Target.
        destination: NodeId,
        /// Its number.
        sequence: u16,
        /// Payload bytes.
        bytes: u64,
        /// Whether it went well.
        ok: bool,
    },
    /// A message's header came to the firmware.
    Header {
        /// Source.
        source: NodeId,
        /// Its number.
        sequence: u16,
        /// Bytes of the header packet.
        bytes: u8,
        /// Whether payload follows.
        payload: bool,
    },
    /// The receive engine got a destination for a payload.
    RxStart {
        /// Bytes of room.
        bytes: u64,
    },
    /// A payload has been consumed.
    RxEnd {
        /// Since when the engine could work on it.
        from: SimTime,
        /// Bytes in host memory.
        deposited: u32,
        /// Bytes thrown away.
        discarded: u32,
        /// Whether it went well.
        ok: bool,
    },
    /// A packet was on a link.
    Hop {
        /// The link.
        port: Port,
        /// When its head left.
        from: SimTime,
        /// The packet.
        header: PacketHeader,
        /// Flits, the header's and those that were sent again included.
        flits: u64,
        /// How long its flits kept the link busy; the wait before a retry is not part of it.
        busy: SimDuration,
    },
    /// A packet came out of the network.
    Packet {
        /// Its header.
        header: PacketHeader,
        /// Its payload.
        payload: &'a [u8],
        /// Whether its CRC fails.
        corrupt: bool,
    },
    /// A fault has taken a packet out of the network; the record's node is the router that noticed.
    Lost {
        /// Its header.
        header: PacketHeader,
    },
    /// A packet was sent over a link again, because the link's CRC had failed.
    Retry {
        /// The link.
        port: Port,
        /// The packet.
        header: PacketHeader,
        /// How often.
        times: u32,
    },
    /// A write of the firmware reached host memory.
    HostWrite {
        /// Bytes.
        bytes: usize,
    },
    /// An interrupt reached the host.
    Interrupt,
    /// Something went wrong.
    Fault {
        /// What.
        name: &'static str,
    },
}

/// Who gets the records.
pub trait Sink: Send {
    /// Something happened. Records come in the order in which things ended.
    fn record(&mut self, record: &Record<'_>);

    /// Nothing more comes; whatever is to be written has to be.
    ///
    /// # Errors
    /// What went wrong since the start, in one line.
    fn finish(&mut self) -> Result<(), String>;
}

/// The machine that records are about.
#[derive(Debug, Clone)]
pub struct Scene {
    /// Shape of the network.
    pub topology: Topology,
    /// Time of a flit on a link.
    pub flit: SimDuration,
    /// The machine's name.
    pub machine: String,
}

impl Scene {
    /// The scene of a world.
    #[must_use]
    pub fn new(machine: &Machine, topology: &Topology) -> Self {
        Self {
            topology: topology.clone(),
            flit: machine.flit_wire_time(),
            machine: machine.name.clone(),
        }
    }
}

/// A transmit or a deposit under way.
#[derive(Debug, Clone, Copy)]
struct Sending {
    from: SimTime,
    destination: NodeId,
    sequence: u16,
    bytes: u64,
}

/// What is under way at a node.
#[derive(Debug, Default)]
struct Station {
    /// Costs of announced work, oldest first.
    work: VecDeque<SimDuration>,
    sending: Option<Sending>,
    /// Starts of deposits by token.
    deposits: BTreeMap<u64, VecDeque<SimTime>>,
    /// End of the last deposit.
    received: SimTime,
}

struct Active {
    sink: Box<dyn Sink>,
    stations: Vec<Station>,
    /// Where the head of each packet in the network was last.
    packets: BTreeMap<u32, NodeId>,
    /// A piece of work that has ended, until it is known what it was.
    ended: Option<(NodeId, SimTime, SimTime, &'static str)>,
    hop: SimDuration,
    flit: SimDuration,
}

/// The place of a sink in a world.
#[derive(Default)]
pub(crate) struct Trace(Option<Box<Active>>);

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trace").field(&self.0.is_some()).finish()
    }
}

impl Active {
    fn put(&mut self, time: SimTime, node: NodeId, what: What<'_>) {
        self.sink.record(&Record { time, node, what });
    }

    /// Tells of the piece of work that ended last.
    fn settle(&mut self) {
        if let Some((node, from, time, name)) = self.ended.take() {
            self.put(time, node, What::Work { name, from });
        }
    }

    /// Gives the piece of work that has just ended its name.
    fn name_work(&mut self, time: SimTime, node: NodeId, name: &'static str) {
        if let Some((at, _, end, known)) = &mut self.ended
            && *at == node
            && *end <= time
            && *known == UNNAMED
        {
            *known = name;
        }
    }
}

/// Work of which nothing more is known.
const UNNAMED: &str = "work";

impl Trace {
    pub(crate) fn start(&mut self, sink: Box<dyn Sink>, machine: &Machine, nodes: usize) {
        self.0 = Some(Box::new(Active {
            sink,
            stations: (0..nodes).map(|_| Station::default()).collect(),
            packets: BTreeMap::new(),
            ended: None,
            hop: machine.network.router_hop + machine.network.link_wire,
            flit: machine.flit_wire_time(),
        }));
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn finish(&mut self) -> Result<(), String> {
        match self.0.take() {
            Some(mut active) => {
                active.settle();
                active.sink.finish()
            }
            None => Ok(()),
        }
    }

    /// A record of the host's or the firmware's.
    pub(crate) fn note(&mut self, time: SimTime, node: NodeId, what: What<'_>) {
        let Some(active) = &mut self.0 else { return };
        match what {
            What::Command { op, .. } => active.name_work(time, node, command_name(op)),
            What::Working(name) => return active.name_work(time, node, name),
            _ => {}
        }
        active.put(time, node, what);
    }

    /// The firmware has announced work.
    pub(crate) fn spend(&mut self, node: NodeId, cost: SimDuration) {
        if let Some(active) = &mut self.0
            && let Some(station) = active.stations.get_mut(node.index())
        {
            station.work.push_back(cost);
        }
    }

    /// The transmit engine takes a message.
    pub(crate) fn tx_start(
        &mut self,
        time: SimTime,
        node: NodeId,
        (destination, sequence): (NodeId, u16),
        bytes: u64,
    ) {
        let Some(active) = &mut self.0 else { return };
        active.stations[node.index()].sending = Some(Sending {
            from: time,
            destination,
            sequence,
            bytes,
        });
        let what = What::TxStart {
            destination,
            sequence,
            bytes,
        };
        active.put(time, node, what);
    }

    /// The receive engine gets a destination for a payload.
    pub(crate) fn rx_start(
        &mut self,
        time: SimTime,
        node: NodeId,
        token: u64,
        segments: &[DmaSegment],
    ) {
        let Some(active) = &mut self.0 else { return };
        let starts = active.stations[node.index()]
            .deposits
            .entry(token)
            .or_default();
        starts.push_back(time);
        let bytes = segments.iter().map(|s| u64::from(s.length)).sum();
        active.put(time, node, What::RxStart { bytes });
    }
}

/// The name of a command's op code.
fn command_name(op: u8) -> &'static str {
    match op {
        0 => "init process",
        1 => "mark alive",
        2 => "init event queue",
        3 => "transmit",
        4 => "receive",
        5 => "release",
        13 => "datagram",
        _ => "command",
    }
}

fn fault_name(fault: &TransferFault) -> &'static str {
    match fault {
        TransferFault::Header(_) => "header not readable",
        TransferFault::Payload(_) => "host memory not reachable",
        TransferFault::Crc => "crc",
        TransferFault::Truncated => "message ended early",
        TransferFault::Unreachable => "no path",
    }
}

impl Trace {
    /// An event of the queue is about to be processed.
    pub(crate) fn event(
        &mut self,
        time: SimTime,
        event: &Event,
        network: &Network,
        posted: &PostedWrites,
    ) {
        let Some(active) = &mut self.0 else {
            return;
        };
        active.settle();
        match *event {
            Event::Router {
                node,
                input,
                packet,
            } => {
                let header = network.packet(packet).header;
                let before = active.packets.insert(packet, node);
                // A packet at its source has just begun, whatever its number was used for before.
                let step = before
                    .filter(|_| node.0 != header.source())
                    .and_then(|last| Some((last, link_before(input)?)));
                if let Some((last, port)) = step {
                    let Crossing { flits, busy, late } = network.crossing(packet);
                    let from = SimTime(time.0.saturating_sub(active.hop.0 + late.0));
                    let what = What::Hop {
                        port,
                        from,
                        header,
                        flits,
                        busy,
                    };
                    active.put(time, last, what);
                }
            }
            Event::Delivered { node, packet } => {
                active.packets.remove(&packet);
                let of = *network.packet(packet);
                let length = usize::from(of.length);
                let busy = active.flit * flits(length);
                let hop = What::Hop {
                    port: Port::Node,
                    from: SimTime(time.0.saturating_sub(busy.0)),
                    header: of.header,
                    flits: flits(length),
                    busy,
                };
                active.put(time, node, hop);
                let what = What::Packet {
                    header: of.header,
                    payload: network.payload(packet),
                    corrupt: of.corrupt,
                };
                active.sink.record(&Record { time, node, what });
            }
            Event::Doorbell {
                node,
                mailbox,
                index,
            } => active.put(time, node, What::Doorbell { mailbox, index }),
            Event::Work { node } => {
                if let Some(cost) = active.stations[node.index()].work.pop_front() {
                    let from = SimTime(time.0.saturating_sub(cost.0));
                    active.ended = Some((node, from, time, UNNAMED));
                }
            }
            Event::HostWrite { node, write } => {
                let bytes = posted.length(write);
                active.put(time, node, What::HostWrite { bytes });
            }
            Event::Interrupt { node } => active.put(time, node, What::Interrupt),
            _ => {}
        }
    }

    /// Tells of what befell packets on their way, if anybody is told.
    pub(crate) fn incidents(&mut self, time: SimTime, network: &mut Network) {
        let Some(active) = &mut self.0 else {
            return;
        };
        for incident in network.take_incidents() {
            match incident {
                Incident::Lost { node, header } => active.put(time, node, What::Lost { header }),
                Incident::Retried {
                    node,
                    port,
                    header,
                    times,
                } => {
                    let what = What::Retry {
                        port,
                        header,
                        times,
                    };
                    active.put(time, node, what);
                }
            }
        }
    }

    /// A chip reports to its firmware.
    pub(crate) fn upcall(&mut self, time: SimTime, node: NodeId, upcall: &Upcall) {
        let Some(active) = &mut self.0 else {
            return;
        };
        let station = &mut active.stations[node.index()];
        let (what, fault) = match upcall {
            Upcall::TxDone { result, .. } => {
                let Some(sending) = station.sending.take() else {
                    return;
                };
                let end = What::TxEnd {
                    from: sending.from,
                    destination: sending.destination,
                    sequence: sending.sequence,
                    bytes: sending.bytes,
                    ok: result.is_ok(),
                };
                (end, result.as_ref().err().map(fault_name))
            }
            Upcall::Rx(Delivery::Header(header)) => {
                let what = What::Header {
                    source: header.source,
                    sequence: header.sequence,
                    bytes: header.length,
                    payload: header.payload.is_some(),
                };
                (what, header.corrupt.then_some("header crc"))
            }
            Upcall::Rx(Delivery::Done { token, report }) => {
                let starts = station.deposits.get_mut(token);
                let (start, empty) = match starts {
                    Some(starts) => (starts.pop_front(), starts.is_empty()),
                    None => (None, false),
                };
                if empty {
                    station.deposits.remove(token);
                }
                // The engine works on one after the other.
                let from = start.unwrap_or(time).max(station.received);
                station.received = time;
                let what = What::RxEnd {
                    from,
                    deposited: report.deposited,
                    discarded: report.discarded,
                    ok: report.fault.is_none(),
                };
                (what, report.fault.as_ref().map(fault_name))
            }
            _ => return,
        };
        active.put(time, node, what);
        if let Some(name) = fault {
            active.put(time, node, What::Fault { name });
        }
    }
}

/// The link by which a packet came to an input of a router, as its sender names it.
fn link_before(input: u8) -> Option<Port> {
    match Port::from_index(usize::from(input >> 2)) {
        Port::Node => None,
        link => Some(link.opposite()),
    }
}

/// What a writing recorder remembers of its output.
#[derive(Debug)]
struct Output<W> {
    to: W,
    failed: Option<String>,
}

impl<W: std::io::Write> Output<W> {
    fn new(to: W) -> Self {
        Self { to, failed: None }
    }

    /// Writes, unless that has failed before.
    fn write(&mut self, bytes: &[u8]) {
        if self.failed.is_none()
            && let Err(error) = self.to.write_all(bytes)
        {
            self.failed = Some(error.to_string());
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        if self.failed.is_none()
            && let Err(error) = self.to.flush()
        {
            self.failed = Some(error.to_string());
        }
        self.failed.take().map_or(Ok(()), Err)
    }
}

/// Several sinks as one.
impl Sink for Vec<Box<dyn Sink>> {
    fn record(&mut self, record: &Record<'_>) {
        for sink in self {
            sink.record(record);
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        let failures: Vec<String> = self.iter_mut().filter_map(|s| s.finish().err()).collect();
        if failures.is_empty() {
            Ok(())
        } else {
            Err(failures.join("; "))
        }
    }
}

/// Picoseconds as microseconds, with as many decimals as they need.
fn micros(ps: u64) -> String {
    let text = format!("{}.{:06}", ps / 1_000_000, ps % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A text that others have chosen, as a string of JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}
