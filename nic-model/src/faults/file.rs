//! The file form of faults.

use serde::Deserialize;
use toml::Spanned;

use super::{Fault, FaultRates, Faults, FaultsError, LinkRates, Scripted, UNPLACED, check_values};
use crate::time::SimTime;
use crate::topology::{LinkName, NodeId, Port};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    rates: Rates,
    #[serde(default)]
    dead_link: Vec<Spanned<DeadLink>>,
    #[serde(default)]
    dead_node: Vec<Spanned<DeadNode>>,
    #[serde(default)]
    slow_dma: Vec<Spanned<SlowDma>>,
    #[serde(default)]
    slow_link: Vec<Spanned<SlowLink>>,
    #[serde(default)]
    link_rates: Vec<Spanned<OneLink>>,
    #[serde(default)]
    stalled_host: Vec<Spanned<StalledHost>>,
    #[serde(default)]
    lost_packet: Vec<Spanned<OnePacket>>,
    #[serde(default)]
    corrupted_packet: Vec<Spanned<OnePacket>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Rates {
    #[serde(default)]
    link_bit_errors: Option<Spanned<u64>>,
    #[serde(default)]
    lost_packets: Option<Spanned<u64>>,
    #[serde(default)]
    corrupted_packets: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeadLink {
    link: Option<String>,
    node: Option<u16>,
    port: Option<String>,
    at_ns: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeadNode {
    node: u16,
    at_ns: u64,
    #[serde(default)]
    router: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SlowDma {
    node: u16,
    from_ns: u64,
    until_ns: u64,
    percent: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SlowLink {
    link: Option<String>,
    node: Option<u16>,
    port: Option<String>,
    #[serde(default)]
    from_ns: u64,
    until_ns: Option<u64>,
    percent: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneLink {
    link: Option<String>,
    node: Option<u16>,
    port: Option<String>,
    link_bit_errors: Option<u64>,
    lost_packets: Option<u64>,
    corrupted_packets: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StalledHost {
    node: u16,
    from_ns: u64,
    until_ns: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnePacket {
    source: u16,
    destination: u16,
    packet: u64,
}

/// Latest time a file can name: what 64 bits of picoseconds hold, 213 days.
const MAX_NS: u64 = u64::MAX / 1_000;

/// A fault, and the place of its link if that is how the file names it.
type Placed = (Fault, Option<[u16; 3]>);

struct Reader<'a> {
    text: &'a str,
    script: Vec<Scripted>,
}

impl Reader<'_> {
    fn line(&self, offset: usize) -> usize {
        1 + self
            .text
            .bytes()
            .take(offset)
            .filter(|&b| b == b'\n')
            .count()
    }

    fn add<T>(
        &mut self,
        entries: Vec<Spanned<T>>,
        fault: impl Fn(T) -> Result<Fault, String>,
    ) -> Result<(), FaultsError> {
        self.add_placed(entries, |entry| Ok((fault(entry)?, None)))
    }

    fn add_placed<T>(
        &mut self,
        entries: Vec<Spanned<T>>,
        fault: impl Fn(T) -> Result<Placed, String>,
    ) -> Result<(), FaultsError> {
        for entry in entries {
            let line = Some(self.line(entry.span().start));
            let (fault, at) = fault(entry.into_inner())
                .and_then(|made| check_values(made.0).map(|()| made))
                .map_err(|what| FaultsError::Value { line, what })?;
            self.script.push(Scripted { fault, line, at });
        }
        Ok(())
    }

    fn rate(&self, value: Option<Spanned<u64>>, key: &str, max: u64) -> Result<u64, FaultsError> {
        let Some(spanned) = value else { return Ok(0) };
        let line = Some(self.line(spanned.span().start));
        let value = spanned.into_inner();
        if value <= max {
            return Ok(value);
        }
        let what = format!("rates.{key} = {value}, want 0 to {max}");
        Err(FaultsError::Value { line, what })
    }
}

fn time(key: &str, ns: u64) -> Result<SimTime, String> {
    if ns <= MAX_NS {
        Ok(SimTime(ns * 1_000))
    } else {
        Err(format!("{key} = {ns}, want 0 to {MAX_NS}"))
    }
}

fn port(name: &str) -> Result<Port, String> {
    Port::LINKS
        .into_iter()
        .find(|port| port.name() == name)
        .ok_or_else(|| format!("port = \"{name}\", want x+, x-, y+, y-, z+ or z-"))
}

/// A link by its place, or by node and port.
fn link(
    name: Option<String>,
    node: Option<u16>,
    port_name: Option<String>,
) -> Result<(NodeId, Port, Option<[u16; 3]>), String> {
    match (name, node, port_name) {
        (Some(name), None, None) => {
            let LinkName { at, port } = name.parse().map_err(|e| format!("link = {e}"))?;
            Ok((UNPLACED, port, Some(at)))
        }
        (None, Some(node), Some(name)) => Ok((NodeId(node), port(&name)?, None)),
        _ => Err("which link? want link = \"(0,0,1) x+\", or node and port".to_owned()),
    }
}

impl Faults {
    /// Reads a fault file; see the module's example.
    ///
    /// # Errors
    /// [`FaultsError`] names line and reason. Nodes and links are compared with the machine when
    /// the faults are used.
    pub fn from_toml(text: &str) -> Result<Self, FaultsError> {
        let file: File = toml::from_str(text)?;
        let mut reader = Reader {
            text,
            script: Vec::new(),
        };
        let rates = FaultRates {
            link_bit_errors: reader.rate(
                file.rates.link_bit_errors,
                "link_bit_errors",
                FaultRates::MAX_BIT_ERRORS,
            )?,
            lost_packets: reader.rate(
                file.rates.lost_packets,
                "lost_packets",
                FaultRates::PACKETS,
            )?,
            corrupted_packets: reader.rate(
                file.rates.corrupted_packets,
                "corrupted_packets",
                FaultRates::PACKETS,
            )?,
        };
        reader.add_placed(file.dead_link, |entry| {
            let (node, port, at) = link(entry.link, entry.node, entry.port)?;
            let fault = Fault::DeadLink {
                node,
                port,
                at: time("at_ns", entry.at_ns)?,
            };
            Ok((fault, at))
        })?;
        reader.add(file.dead_node, |entry| {
            Ok(Fault::DeadNode {
                node: NodeId(entry.node),
                at: time("at_ns", entry.at_ns)?,
                router: entry.router,
            })
        })?;
        reader.add(file.slow_dma, |entry| {
            Ok(Fault::SlowDma {
                node: NodeId(entry.node),
                from: time("from_ns", entry.from_ns)?,
                until: time("until_ns", entry.until_ns)?,
                percent: entry.percent,
            })
        })?;
        reader.add_placed(file.slow_link, |entry| {
            let until = entry.until_ns.map(|ns| time("until_ns", ns)).transpose()?;
            let (node, port, at) = link(entry.link, entry.node, entry.port)?;
            let fault = Fault::SlowLink {
                node,
                port,
                from: time("from_ns", entry.from_ns)?,
                until: until.unwrap_or(SimTime::NEVER),
                percent: entry.percent,
            };
            Ok((fault, at))
        })?;
        reader.add_placed(file.link_rates, |entry| {
            let (node, port, at) = link(entry.link, entry.node, entry.port)?;
            let fault = Fault::LinkRates {
                node,
                port,
                rates: LinkRates {
                    link_bit_errors: entry.link_bit_errors,
                    lost_packets: entry.lost_packets,
                    corrupted_packets: entry.corrupted_packets,
                },
            };
            Ok((fault, at))
        })?;
        reader.add(file.stalled_host, |entry| {
            Ok(Fault::StalledHost {
                node: NodeId(entry.node),
                from: time("from_ns", entry.from_ns)?,
                until: time("until_ns", entry.until_ns)?,
            })
        })?;
        reader.add(file.lost_packet, |entry| {
            Ok(Fault::LostPacket {
                source: NodeId(entry.source),
                destination: NodeId(entry.destination),
                packet: entry.packet,
            })
        })?;
        reader.add(file.corrupted_packet, |entry| {
            Ok(Fault::CorruptedPacket {
                source: NodeId(entry.source),
                destination: NodeId(entry.destination),
                packet: entry.packet,
            })
        })?;
        Ok(Self {
            seed: file.seed,
            rates,
            script: reader.script,
        })
    }
}
