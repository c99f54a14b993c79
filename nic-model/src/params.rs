//! Machine parameters: one file per machine, every figure with its unit, its status and its
//! source, refused with key and line when it is missing or absurd.
//!
//! ```toml
//! [network]
//! router_hop = { value = 50000, unit = "ps", status = "model", source = "S5" }
//! ```
//!
//! Status is `measured` (on the machine), `model` (from somebody's published model), `recalled`
//! (from memory of a paper) or `ours` (assumed or fitted here).

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;

use crate::time::{Rate, SimDuration};

/// Why a machine file is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MachineError {
    /// No machine of this name is built in.
    #[error("no machine named \"{name}\"; built in: {}", known.join(", "))]
    UnknownMachine {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// Not TOML, or a table or entry of the wrong shape; the text names the line.
    #[error("machine file: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A parameter is not there.
    #[error("machine file: {section}.{key} is missing ({unit}, {min} to {max})")]
    Missing {
        /// Table of the parameter.
        section: &'static str,
        /// Its key.
        key: &'static str,
        /// Its unit.
        unit: &'static str,
        /// Least sensible value.
        min: u64,
        /// Greatest sensible value.
        max: u64,
    },
    /// A parameter that nothing reads, probably misspelt.
    #[error("machine file line {line}: {section}.{key} is not a parameter")]
    Unknown {
        /// Table of the parameter.
        section: &'static str,
        /// Its key.
        key: String,
        /// Line of the file, from 1.
        line: usize,
    },
    /// A value outside the sensible range.
    #[error("machine file line {line}: {section}.{key} = {value} {unit}, want {min} to {max}")]
    Range {
        /// Table of the parameter.
        section: &'static str,
        /// Its key.
        key: &'static str,
        /// Line of the file, from 1.
        line: usize,
        /// The value found.
        value: i64,
        /// Its unit.
        unit: &'static str,
        /// Least sensible value.
        min: u64,
        /// Greatest sensible value.
        max: u64,
    },
    /// A value in another unit than the model calculates with.
    #[error("machine file line {line}: {section}.{key} is in \"{found}\", want \"{unit}\"")]
    Unit {
        /// Table of the parameter.
        section: &'static str,
        /// Its key.
        key: &'static str,
        /// Line of the file, from 1.
        line: usize,
        /// The unit found.
        found: String,
        /// The unit wanted.
        unit: &'static str,
    },
}

/// How far a figure can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Measured on the machine.
    Measured,
    /// Taken from a published model of the machine.
    Model,
    /// Remembered from a publication, not verified.
    Recalled,
    /// Assumed or fitted here.
    Ours,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Measured => "measured",
            Self::Model => "model",
            Self::Recalled => "recalled",
            Self::Ours => "ours",
        })
    }
}

/// One parameter as the file states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterInfo {
    /// Table of the file.
    pub section: &'static str,
    /// Key in the table.
    pub key: &'static str,
    /// The value, in `unit`.
    pub value: u64,
    /// The unit.
    pub unit: &'static str,
    /// How far it can be trusted.
    pub status: Status,
    /// Where it comes from.
    pub source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    value: i64,
    unit: String,
    status: Status,
    source: String,
}

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

struct Loader<'a> {
    text: &'a str,
    taken: Vec<ParameterInfo>,
}

/// What the model expects of one parameter.
struct Expected {
    section: &'static str,
    key: &'static str,
    unit: &'static str,
    min: u64,
    max: u64,
}

impl Loader<'_> {
    fn line(&self, offset: usize) -> usize {
        1 + self
            .text
            .bytes()
            .take(offset)
            .filter(|&b| b == b'\n')
            .count()
    }

    fn take(
        &mut self,
        table: &mut BTreeMap<String, Spanned<Raw>>,
        expected: Expected,
    ) -> Result<u64, MachineError> {
        let Expected {
            section,
            key,
            unit,
            min,
            max,
        } = expected;
        let Some(raw) = table.remove(key) else {
            return Err(MachineError::Missing {
                section,
                key,
                unit,
                min,
                max,
            });
        };
        let line = self.line(raw.span().start);
        let raw = raw.into_inner();
        if raw.unit != unit {
            return Err(MachineError::Unit {
                section,
                key,
                line,
                found: raw.unit,
                unit,
            });
        }
        match u64::try_from(raw.value) {
            Ok(value) if (min..=max).contains(&value) => {
                let Raw { status, source, .. } = raw;
                self.taken.push(ParameterInfo {
                    section,
                    key,
                    value,
                    unit,
                    status,
                    source,
                });
                Ok(value)
            }
            _ => Err(MachineError::Range {
                section,
                key,
                line,
                value: raw.value,
                unit,
                min,
                max,
            }),
        }
    }

    fn finish(
        &self,
        section: &'static str,
        table: BTreeMap<String, Spanned<Raw>>,
    ) -> Result<(), MachineError> {
        match table.into_iter().min_by_key(|(_, raw)| raw.span().start) {
            Some((key, raw)) => Err(MachineError::Unknown {
                section,
                key,
                line: self.line(raw.span().start),
            }),
            None => Ok(()),
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
            $($(#[$about])+ pub $section: $Section,)+
            /// Every parameter with its provenance, in the order of the sections here.
            pub parameters: Vec<ParameterInfo>,
        }

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            name: String,
            description: String,
            $($section: BTreeMap<String, Spanned<Raw>>,)+
        }

        impl Machine {
            /// Reads a machine file.
            ///
            /// # Errors
            /// [`MachineError`] names the key, the line and the reason.
            pub fn from_toml(text: &str) -> Result<Self, MachineError> {
                let mut file: File = toml::from_str(text)?;
                let mut loader = Loader { text, taken: Vec::new() };
                $(
                    let $section = $Section {
                        $($key: <$ty>::from_value(loader.take(
                            &mut file.$section,
                            Expected {
                                section: stringify!($section),
                                key: stringify!($key),
                                unit: $unit,
                                min: $min,
                                max: $max,
                            },
                        )?),)+
                    };
                    loader.finish(stringify!($section), file.$section)?;
                )+
                Ok(Self {
                    name: file.name,
                    description: file.description,
                    $($section,)+
                    parameters: loader.taken,
                })
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
        /// Source structures, one for each peer that has sent or been sent to.
        sources: u32 = "1", 1, 32_768;
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
        /// Copying by the processor: inline data, bounce buffers.
        memcpy_rate: Rate = "MB/s", 1, 1_000_000;
    }
}

/// The machine files that are built in.
const BUILT_IN: &[(&str, &str)] = &[("xt4", include_str!("../machines/xt4.toml"))];

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

    /// Wire time of one flit, with the link's overhead.
    #[must_use]
    pub fn flit_wire_time(&self) -> SimDuration {
        let network = &self.network;
        SimDuration(network.flit_time.0 * u64::from(network.link_overhead) / 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xt4() -> &'static str {
        BUILT_IN[0].1
    }

    #[test]
    fn built_in_machines_load() {
        for name in Machine::names() {
            let machine = Machine::named(name).unwrap();
            assert_eq!(machine.name, name);
            assert!(machine.parameters.len() > 30);
        }
        let error = Machine::named("xt9").unwrap_err();
        assert_eq!(error.to_string(), "no machine named \"xt9\"; built in: xt4");
    }

    /// The file with the line of `key` replaced, and that line's number.
    fn with(key: &str, line: &str) -> (String, usize) {
        let at = xt4().lines().position(|l| l.starts_with(key)).unwrap();
        let text: Vec<&str> = xt4()
            .lines()
            .enumerate()
            .map(|(n, l)| if n == at { line } else { l })
            .collect();
        (text.join("\n"), at + 1)
    }

    #[test]
    fn absurd_values_are_refused_with_key_line_and_reason() {
        let (text, line) = with(
            "router_hop",
            r#"router_hop = { value = -1, unit = "ps", status = "ours", source = "-" }"#,
        );
        assert_eq!(
            Machine::from_toml(&text).unwrap_err().to_string(),
            format!("machine file line {line}: network.router_hop = -1 ps, want 1 to 1000000")
        );
        let (text, line) = with(
            "tx_rate",
            r#"tx_rate = { value = 2, unit = "GB/s", status = "ours", source = "-" }"#,
        );
        assert_eq!(
            Machine::from_toml(&text).unwrap_err().to_string(),
            format!("machine file line {line}: chip.tx_rate is in \"GB/s\", want \"MB/s\"")
        );
        let (text, _) = with("trap", "");
        assert_eq!(
            Machine::from_toml(&text).unwrap_err().to_string(),
            "machine file: host.trap is missing (ps, 0 to 100000000)"
        );
        let (text, line) = with(
            "trap",
            r#"trapp = { value = 1, unit = "ps", status = "ours", source = "-" }"#,
        );
        let error = Machine::from_toml(&text).unwrap_err().to_string();
        assert!(error.contains("host.trap is missing"), "{error}");
        let (text, _) = (text.replace("trapp = ", "trap = "), line);
        let extra = format!(
            "{text}\nspeed = {{ value = 1, unit = \"ps\", status = \"ours\", source = \"-\" }}"
        );
        let last = extra.lines().count();
        assert_eq!(
            Machine::from_toml(&extra).unwrap_err().to_string(),
            format!("machine file line {last}: host.speed is not a parameter")
        );
        let (text, line) = with("trap", r#"trap = { value = 1.5, unit = "ps" }"#);
        let error = Machine::from_toml(&text).unwrap_err().to_string();
        assert!(error.contains(&format!("line {line}")), "{error}");
    }
}
