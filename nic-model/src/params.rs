//! Machine parameters: one file per machine, every figure with its unit, its status and its
//! source, refused with key and line when it is missing or absurd.
//!
//! ```toml
//! [network]
//! router_hop = { value = 50000, unit = "ps", status = "model", source = "S5" }
//! ```
//!
//! A file may say `base = "xt4"`: then every parameter that it does not state is that machine's.
//! `os` is the kind of kernel on the nodes: `catamount` (a process's memory is contiguous) or
//! `linux` (it is pages, each a segment of its own for the NIC).
//!
//! Status is `measured` (on the machine), `model` (from somebody's published model), `recalled`
//! (from memory of a paper) or `ours` (assumed or fitted here).

mod loader;
mod setting;
#[cfg(test)]
mod tests;

use serde::Deserialize;

use crate::time::{Rate, SimDuration};
use loader::{Expected, Loader, Table};
pub use loader::{MachineError, ParameterInfo, Provenance, Status};

/// A type that a parameter's integer becomes.
trait Quantity {
    fn from_value(value: u64) -> Self;
}

impl Quantity for SimDuration {
    fn from_value(value: u64) -> Self {
        Self::from_ps(value)
    }
}

impl Quantity for Rate {
    fn from_value(value: u64) -> Self {
        Self::new(value)
    }
}

impl Quantity for u32 {
    fn from_value(value: u64) -> Self {
        Self::try_from(value).unwrap_or(Self::MAX)
    }
}

/// The kind of kernel on the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Os {
    /// A light kernel: the memory of a process is physically contiguous, and nothing is pinned.
    Catamount,
    /// Pages that lie anywhere: each is pinned and described to the NIC by itself.
    Linux,
}

impl Os {
    /// The word of the machine file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Catamount => "catamount",
            Self::Linux => "linux",
        }
    }
}

macro_rules! machine {
    ($(
        $(#[$about:meta])+
        $section:ident: $Section:ident {
            $($(#[$doc:meta])+ $key:ident: $ty:ty = $unit:literal, $min:literal, $max:literal;)+
        }
    )+) => {
        $(
            $(#[$about])+
            #[derive(Debug, Clone, Copy)]
            pub struct $Section {
                $($(#[$doc])+ #[doc = concat!("\n\nUnit in the file: ", $unit, ".")] pub $key: $ty,)+
            }
        )+

        /// Every parameter of a machine.
        #[derive(Debug, Clone)]
        pub struct Machine {
            /// Short name, as on the command line.
            pub name: String,
            /// One line about it.
            pub description: String,
            /// The kind of kernel on its nodes.
            pub os: Os,
            $($(#[$about])+ pub $section: $Section,)+
            /// Every parameter with its provenance, in the order of the sections here.
            pub parameters: Vec<ParameterInfo>,
        }

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            name: String,
            description: String,
            base: Option<String>,
            os: Option<Os>,
            $(#[serde(default)] $section: Table,)+
        }

        /// What is expected, in the order of the sections.
        const EXPECTED: &[Expected] = &[
            $($(Expected {
                section: stringify!($section),
                key: stringify!($key),
                unit: $unit,
                min: $min,
                max: $max,
            },)+)+
        ];

        impl Machine {
            /// Reads a machine file.
            ///
            /// # Errors
            /// [`MachineError`] names the key, the line and the reason.
            pub fn from_toml(text: &str) -> Result<Self, MachineError> {
                let mut file: File = toml::from_str(text)?;
                let base = file.base.as_deref().map(Self::named).transpose()?;
                let os = file.os.or(base.as_ref().map(|b| b.os)).unwrap_or(Os::Catamount);
                let base = base.map(|b| b.parameters).unwrap_or_default();
                let mut loader = Loader { text, base, taken: Vec::new() };
                for expected in EXPECTED {
                    let table = match expected.section {
                        $(stringify!($section) => &mut file.$section,)+
                        _ => continue,
                    };
                    loader.take(table, expected)?;
                }
                $(loader.finish(stringify!($section), file.$section)?;)+
                loader::check(os, &loader.taken)?;
                Ok(Self::build(file.name, file.description, os, loader.taken))
            }

            /// A machine of these parameters, which are all there, in order.
            fn build(
                name: String,
                description: String,
                os: Os,
                parameters: Vec<ParameterInfo>,
            ) -> Self {
                let mut values = parameters.iter().map(|p| p.value);
                $(
                    let $section = $Section {
                        $($key: <$ty>::from_value(values.next().unwrap_or_default()),)+
                    };
                )+
                drop(values);
                Self {
                    name,
                    description,
                    os,
                    $($section,)+
                    parameters,
                }
            }
        }
    };
}

machine! {
    /// Routers and links.
    network: NetworkParams {
        /// From a router's input to its output, per router crossed.
        router_hop: SimDuration = "ps", 1, 1_000_000;
        /// Flight time of one link.
        link_wire: SimDuration = "ps", 0, 1_000_000;
        /// One flit on a link, before overhead.
        flit_time: SimDuration = "ps", 1, 1_000_000;
        /// Wire time over flit time: link-level sideband and retry overhead.
        link_overhead: u32 = "percent", 100, 1_000;
        /// Input buffer of a router, for each link and virtual channel.
        input_buffer: u32 = "flits", 9, 4_096;
        /// Output buffer of a router, for each input, virtual channel and output.
        output_buffer: u32 = "flits", 9, 4_096;
        /// Buffer between NIC and router, for each direction and class.
        node_port: u32 = "flits", 9, 32_768;
        /// From a flit's leaving an input buffer until the router before it knows.
        credit_return: SimDuration = "ps", 0, 1_000_000;
        /// A waiting packet grows older by one in this time.
        age_clock_period: SimDuration = "ps", 2_000, 8_000_000_000_000;
        /// A request grows older by this in each router.
        request_age_bias: u32 = "1", 0, 255;
        /// A response grows older by this in each router.
        response_age_bias: u32 = "1", 0, 255;
        /// Which of 32 arbitrations in turn the oldest packet wins; the others go round robin. A
        /// bit for each.
        age_rr_select: u32 = "bits", 0, 0xFFFF_FFFF;
        /// Which way a packet takes whose destination is half way round a ring: 0 plus, 1 plus from even coordinates and
        /// minus from odd ones.
        tie_break: u32 = "policy", 0, 1;
        /// From the end of a packet that failed its link CRC to its repetition.
        link_retry: SimDuration = "ps", 0, 1_000_000_000;
        /// Payload that is moved as one packet when messages and not packets are simulated; a
        /// multiple of 64.
        message_unit: u32 = "B", 64, 16_384;
    }
    /// HyperTransport and the DMA engines.
    chip: ChipParams {
        /// From a DMA or firmware read request to its first byte.
        ht_read_latency: SimDuration = "ps", 1, 100_000_000;
        /// From a posted write of one side until the other side sees it.
        ht_write_latency: SimDuration = "ps", 1, 100_000_000;
        /// Sustained transmit rate, host memory to network.
        tx_rate: Rate = "MB/s", 1, 100_000;
        /// Deposit rate, node port to host memory.
        rx_rate: Rate = "MB/s", 1, 100_000;
        /// Bytes that the transmit engine fetches at a time; a multiple of 64.
        tx_burst: u32 = "B", 64, 4_096;
        /// Incoming messages that can hold engine state at once.
        cam_entries: u32 = "1", 1, 65_535;
        /// Longest payload of a message.
        max_message: u32 = "B", 1, 0x8000_0000;
        /// Most segments of a scattered buffer.
        max_segments: u32 = "1", 1, 65_535;
    }
    /// The program on the embedded processor.
    firmware: FirmwareParams {
        /// To notice and fetch one mailbox command.
        mailbox_poll: SimDuration = "ps", 0, 100_000_000;
        /// To carry out an initialisation command.
        control_command: SimDuration = "ps", 0, 100_000_000;
        /// To look up the source and program the transmit engine for one message.
        tx_message: SimDuration = "ps", 0, 100_000_000;
        /// To post the end of a transmit.
        tx_complete: SimDuration = "ps", 0, 100_000_000;
        /// To take in one header: source look-up, pending, copy, event.
        rx_message: SimDuration = "ps", 0, 100_000_000;
        /// To program the receive engine for one message.
        rx_command: SimDuration = "ps", 0, 100_000_000;
        /// To post the end of a deposit.
        rx_complete: SimDuration = "ps", 0, 100_000_000;
        /// To give a pending back to the free list.
        release: SimDuration = "ps", 0, 100_000_000;
        /// Each segment of a scattered buffer.
        segment: SimDuration = "ps", 0, 100_000_000;
        /// Between two looks at a full event queue.
        eq_retry: SimDuration = "ps", 1_000, 100_000_000;
        /// Source structures, one for each peer that messages are under way to or from.
        sources: u32 = "1", 2, 32_768;
    }
    /// The protocol between firmwares and the limits of their SRAM; *ours* but where the file says
    /// otherwise.
    protocol: ProtocolParams {
        /// What a firmware without room for a message does: 0 lets it wait in the network, 1 refuses
        /// it and has it sent again (go-back-n), 2 stops the node.
        exhaustion: u32 = "policy", 0, 2;
        /// From the first refusal of a message until it is sent again; doubles up to `backoff_max`.
        backoff_min: SimDuration = "ps", 1_000, 1_000_000_000_000;
        /// Longest wait before a refused message is sent again; 3,000 senders to one node need some milliseconds.
        backoff_max: SimDuration = "ps", 1_000, 1_000_000_000_000;
        /// Without an acknowledgement for so long a firmware asks its peer what has arrived.
        probe_after: SimDuration = "ps", 1_000, 10_000_000_000_000;
        /// Without progress for so long a firmware gives the messages to a peer up.
        give_up: SimDuration = "ps", 1_000, 100_000_000_000_000;
        /// To send or to take in an acknowledgement, a refusal or a question.
        control: SimDuration = "ps", 0, 100_000_000;
        /// Messages that have a slot of the engines at once, out and in; one without costs `beyond_slots`.
        dma_slots: u32 = "1", 1, 65_535;
        /// What a transmit without a slot costs more: the engine waits while the firmware sets it up.
        beyond_slots: SimDuration = "ps", 0, 100_000_000;
        /// Tick of the firmware's heartbeat.
        heartbeat: SimDuration = "ps", 1_000_000, 100_000_000_000_000;
        /// Silence of a heartbeat after which a node counts as failed.
        declared_dead: SimDuration = "ps", 1_000_000, 100_000_000_000_000;
        /// User data that may ride in the header packet.
        inline_data: u32 = "B", 0, 16;
        /// SRAM that the firmware's image takes.
        image: u32 = "B", 0, 131_072;
        /// SRAM of one source structure.
        source_size: u32 = "B", 16, 1_024;
        /// Most pendings of the generic process.
        generic_pendings: u32 = "1", 1, 65_535;
        /// Longest datagram, its 4-byte header included.
        datagram: u32 = "B", 4, 65_536;
    }
    /// Accelerated mode: what matching on the NIC costs and what it may hold.
    accelerated: AcceleratedParams {
        /// Matching one header on the embedded processor, besides the entries looked at.
        nic_match: SimDuration = "ps", 0, 100_000_000;
        /// Each match entry looked at by the embedded processor.
        nic_match_entry: SimDuration = "ps", 0, 100_000_000;
        /// To carry out a command that makes, changes or ends an object.
        nic_command: SimDuration = "ps", 0, 100_000_000;
        /// To make a command out of the arguments of a put or get, and its header.
        nic_initiate: SimDuration = "ps", 0, 100_000_000;
        /// To write one event into a queue in host memory.
        nic_event: SimDuration = "ps", 0, 100_000_000;
        /// The kernel's work when it takes the state of a process over from the NIC, besides copying
        /// it.
        take_over: SimDuration = "ps", 0, 1_000_000_000;
        /// SRAM for everything: image, mailboxes, tables, the state of accelerated processes.
        sram: u32 = "B", 65_536, 393_216;
        /// SRAM of one match entry.
        me_size: u32 = "B", 16, 1_024;
        /// SRAM of one memory descriptor.
        md_size: u32 = "B", 16, 1_024;
        /// SRAM of one event queue's control block.
        eq_size: u32 = "B", 16, 1_024;
        /// Pendings of an accelerated process, half of them for its own transmits.
        pendings: u32 = "1", 2, 4_096;
        /// Most pieces of a descriptor.
        md_segments: u32 = "1", 1, 4_096;
    }
    /// The host's processor and its kernel; the model itself does not use these.
    host: HostParams {
        /// From user mode into the kernel and back.
        trap: SimDuration = "ps", 0, 100_000_000;
        /// The library's own work in one API call, besides the trap.
        api_call: SimDuration = "ps", 0, 100_000_000;
        /// From the raised interrupt to the handler's first instruction.
        interrupt_entry: SimDuration = "ps", 0, 100_000_000;
        /// From the handler's last instruction to the interrupted program.
        interrupt_exit: SimDuration = "ps", 0, 100_000_000;
        /// Reading and clearing one event word of the firmware's queue.
        eq_read: SimDuration = "ps", 0, 100_000_000;
        /// The interrupt handler's work for one event word, besides what has a cost of its own.
        event_handle: SimDuration = "ps", 0, 100_000_000;
        /// 1: the driver asks for an interrupt at the end of every transmit. 0: only when something
        /// waits for that end, or pendings run out.
        tx_interrupt: u32 = "1", 0, 1;
        /// Matching one header, besides the entries walked.
        match_fixed: SimDuration = "ps", 0, 100_000_000;
        /// Each match entry walked.
        match_entry: SimDuration = "ps", 0, 100_000_000;
        /// Building one message header in an upper pending.
        header_build: SimDuration = "ps", 0, 100_000_000;
        /// Writing one 64-byte command and the doorbell.
        command_write: SimDuration = "ps", 0, 100_000_000;
        /// Reading one word of the chip across HyperTransport.
        register_read: SimDuration = "ps", 0, 100_000_000;
        /// Posting one event to an event queue of the program.
        event_post: SimDuration = "ps", 0, 100_000_000;
        /// Starting one copy by the processor.
        memcpy_fixed: SimDuration = "ps", 0, 100_000_000;
        /// Copying by the processor: inline data, bounce buffers, messages within a node.
        memcpy_rate: Rate = "MB/s", 1, 1_000_000;
        /// Bytes of a page of a process's memory; 0 where that is contiguous.
        page_size: u32 = "B", 0, 16_777_216;
        /// Pinning one page for a transfer and releasing it again.
        pin_page: SimDuration = "ps", 0, 100_000_000;
        /// Handing a message from one process of a node to another, on another processor.
        local_handoff: SimDuration = "ps", 0, 100_000_000;
        /// Making another process's memory reachable for one copy.
        local_map: SimDuration = "ps", 0, 100_000_000;
        /// What an MPI library does for one message before it calls Portals.
        mpi_send: SimDuration = "ps", 0, 100_000_000;
        /// What an MPI library does for one message after its event.
        mpi_receive: SimDuration = "ps", 0, 100_000_000;
    }
}

/// The machine files that are built in.
const BUILT_IN: &[(&str, &str)] = &[
    ("redstorm", include_str!("../machines/redstorm.toml")),
    (
        "redstorm-2005",
        include_str!("../machines/redstorm-2005.toml"),
    ),
    ("xt3", include_str!("../machines/xt3.toml")),
    ("xt3-linux", include_str!("../machines/xt3-linux.toml")),
    ("xt4", include_str!("../machines/xt4.toml")),
    ("xt4-linux", include_str!("../machines/xt4-linux.toml")),
];

impl Machine {
    /// A built-in machine.
    ///
    /// # Errors
    /// [`MachineError::UnknownMachine`] with the names there are.
    pub fn named(name: &str) -> Result<Self, MachineError> {
        match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Self::from_toml(text),
            None => Err(MachineError::UnknownMachine {
                name: name.to_owned(),
                known: Self::names().collect(),
            }),
        }
    }

    /// The names of the built-in machines.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Whether `choice` names a file and not a built-in machine.
    #[must_use]
    pub fn is_file(choice: &str) -> bool {
        choice.contains('/') || choice.ends_with(".toml")
    }

    /// A machine as users choose it: the name of a built-in one, or a machine file, which has a `/`
    /// in its name or ends in `.toml`.
    ///
    /// # Errors
    /// Those of [`Machine::named`] and [`Machine::from_toml`], with the file's name.
    pub fn choose(choice: &str) -> Result<Self, MachineError> {
        if !Self::is_file(choice) {
            return Self::named(choice);
        }
        let path = choice.to_owned();
        let text = std::fs::read_to_string(choice).map_err(|source| MachineError::Read {
            path: path.clone(),
            source,
        })?;
        Self::from_toml(&text).map_err(|error| MachineError::InFile {
            path,
            error: Box::new(error),
        })
    }

    /// The same machine with parameter `name`, as `host.trap`, set to `value` in its unit.
    ///
    /// # Errors
    /// No such parameter, or not a sensible value.
    pub fn with(&self, name: &str, value: u64) -> Result<Self, MachineError> {
        let expected = setting::expected(name)?;
        if !(expected.min..=expected.max).contains(&value) {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            return Err(expected.refuse(0, value));
        }
        let mut parameters = self.parameters.clone();
        for p in &mut parameters {
            if (p.section, p.key) == (expected.section, expected.key) {
                p.value = value;
                p.status = Status::Ours;
                p.source = "set for one run".to_owned();
                p.line = 0;
            }
        }
        loader::check(self.os, &parameters)?;
        Ok(Self::build(
            self.name.clone(),
            self.description.clone(),
            self.os,
            parameters,
        ))
    }

    /// The value of parameter `name`, as `host.trap`, in its unit.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<u64> {
        let (section, key) = name.split_once('.')?;
        let is = |p: &&ParameterInfo| p.section == section && p.key == key;
        self.parameters.iter().find(is).map(|p| p.value)
    }

    /// Wire time of one flit, with the link's overhead.
    #[must_use]
    pub fn flit_wire_time(&self) -> SimDuration {
        let network = &self.network;
        SimDuration(network.flit_time.0 * u64::from(network.link_overhead) / 100)
    }
}
