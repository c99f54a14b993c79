//! `portolan info`: what can be used on this machine, why the rest cannot, and what to do about it.

mod host;
mod variables;

pub(crate) use self::host::program;

use self::host::HostInfo;
use clap::Args;
use portals_shim::fabric::{self, FabricChoice, FabricConfig, FabricError, FabricKind};
use rustix::fs::Access;
use serde::Serialize;
use variables::VariableLine;
use verbs_backend::{Device, DeviceError, GidType};

use crate::cmd::say;
use crate::error::CmdError;

/// Options of `portolan info`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Print which protocol carries which operation, and why
    #[arg(long)]
    protocols: bool,
    /// Print every variable with its value, default and meaning
    ///
    /// A variable that is set and changes nothing is said with the reason.
    #[arg(long, conflicts_with = "protocols")]
    variables: bool,
}

/// One line of `--json`, told apart by `kind`.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Choice(ChoiceInfo),
    Fabric(FabricInfo),
    Device(DeviceInfo),
    Port(PortLine),
    Gid(GidLine),
    Guest(GuestInfo),
    Host(Box<HostInfo>),
    Protocols(fabric::Protocols),
    Library(LibraryInfo),
    Variable(VariableLine),
}

/// The library that drives RDMA devices.
#[derive(Debug, Serialize)]
struct LibraryInfo {
    /// Its file, whose name ends with its version.
    library: String,
}

/// The fabric that a job takes.
#[derive(Debug, Default, Serialize)]
struct ChoiceInfo {
    /// What the environment asks for: a name, or `auto`.
    asked: String,
    /// What that comes to if all ranks are on one machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    one_machine: Option<&'static str>,
    /// The same between machines; absent where nothing of this machine reaches another.
    #[serde(skip_serializing_if = "Option::is_none")]
    between_machines: Option<&'static str>,
    /// What is wrong with the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// A fabric, and why it cannot be used.
#[derive(Debug, Serialize)]
struct FabricInfo {
    fabric: &'static str,
    usable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// An RDMA device; limits are absent where it does not open.
#[derive(Debug, Serialize)]
struct DeviceInfo {
    device: String,
    /// Whether the verbs fabric takes it: because `PORTOLAN_DEVICE` names it, or when none is named.
    default: bool,
    /// `PORTOLAN_DEVICE` names it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    named: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Version of its firmware; absent for devices that have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    firmware: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<LimitsInfo>,
}

/// What a device can hold.
#[derive(Debug, Serialize)]
struct LimitsInfo {
    queue_pairs: u32,
    requests_per_queue: u32,
    segments: u32,
    completion_queues: u32,
    completions_per_queue: u32,
    memory_regions: u32,
    memory_region_bytes: u64,
    shared_receive_queues: u32,
    receives_per_shared_queue: u32,
}

/// A port of a device.
#[derive(Debug, Serialize)]
struct PortLine {
    device: String,
    port: u8,
    state: &'static str,
    link: &'static str,
    /// Payload of one packet, bytes.
    mtu: usize,
    /// Mbit/s of the link; absent where the driver does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_mbps: Option<u32>,
    lid: u16,
}

/// An address of a port.
#[derive(Debug, Serialize)]
struct GidLine {
    device: String,
    port: u8,
    index: u8,
    gid: String,
    packets: String,
    /// Whether the verbs fabric takes it.
    chosen: bool,
}

/// Whether `portolan guest` has the programs it starts.
#[derive(Debug, Serialize)]
struct GuestInfo {
    usable: bool,
    /// What is missing and what to install.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    /// Whether /dev/kvm can be opened; whether a guest runs with it (`--kvm`) shows when it is tried.
    kvm: bool,
}

/// The tables of all fabrics that can be used, as the environment sets them; the others with the reason.
fn protocols() -> Result<Vec<Line>, CmdError> {
    let set = FabricConfig::from_env().map_err(|error| CmdError::Failed(error.to_string()))?;
    let mut lines = Vec::new();
    for kind in FabricKind::ALL {
        let config = FabricConfig {
            fabric: kind.into(),
            ..set.clone()
        };
        match fabric::protocols(&config) {
            Ok(tables) => lines.extend(tables.into_iter().map(Line::Protocols)),
            Err(FabricError::Unusable { reason, .. }) => lines.push(Line::Fabric(FabricInfo {
                fabric: kind.name(),
                usable: false,
                reason: Some(reason),
            })),
            Err(error) => return Err(CmdError::Failed(error.to_string())),
        }
    }
    Ok(lines)
}

/// Prints what there is.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    if options.protocols {
        return print(&protocols()?, options.json);
    }
    if options.variables {
        return print_variables(options.json);
    }
    let mut lines = Vec::new();
    for kind in FabricKind::ALL {
        lines.push(fabric_line(kind));
        if kind == FabricKind::Verbs {
            let devices = device_lines();
            let library = host::verbs_library().map(|library| LibraryInfo { library });
            lines.extend(library.map(Line::Library));
            lines.extend(devices);
        }
    }
    let usable = |line: &Line| matches!(line, Line::Fabric(f) if f.usable && f.fabric == FabricKind::Verbs.name());
    let verbs = lines.iter().any(usable);
    lines.insert(0, choice_line(verbs));
    lines.push(guest_line());
    lines.push(Line::Host(Box::new(HostInfo::look())));
    print(&lines, options.json)
}

fn print_variables(json: bool) -> Result<u8, CmdError> {
    let get = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
    let fabric = get("PORTOLAN_FABRIC").and_then(|name| name.parse().ok());
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let (lines, unknown) = variables::lines(fabric, get, names);
    if json {
        let lines: Vec<Line> = lines.into_iter().map(Line::Variable).collect();
        return print(&lines, true);
    }
    say(&variables::words(&lines, &unknown))?;
    Ok(0)
}

fn print(lines: &[Line], json: bool) -> Result<u8, CmdError> {
    for line in lines {
        if json {
            let text = serde_json::to_string(line)
                .map_err(|error| CmdError::Failed(format!("cannot write JSON: {error}")))?;
            say(&text)?;
        } else {
            say(&words(line))?;
        }
    }
    Ok(0)
}

/// Why a fabric cannot be used here, if it cannot.
pub(crate) fn why_not(kind: FabricKind) -> Option<String> {
    let config = FabricConfig {
        fabric: kind.into(),
        device: named_device(),
        ..FabricConfig::default()
    };
    match fabric::check(&config) {
        Ok(()) => None,
        Err(FabricError::Unusable { reason, .. }) => Some(reason),
        Err(error) => Some(error.to_string()),
    }
}

fn fabric_line(kind: FabricKind) -> Line {
    let reason = why_not(kind);
    Line::Fabric(FabricInfo {
        fabric: kind.name(),
        usable: reason.is_none(),
        reason,
    })
}

/// What a job takes that is started with this environment and no option, where verbs can be used or not.
fn choice_line(verbs: bool) -> Line {
    let choice = match FabricConfig::from_env() {
        Ok(config) => config.fabric,
        Err(error) => {
            return Line::Choice(ChoiceInfo {
                problem: Some(error.to_string()),
                ..ChoiceInfo::default()
            });
        }
    };
    let here = choice.on_one_machine();
    let reaches = verbs && (choice == FabricChoice::Auto || here == FabricKind::Verbs);
    Line::Choice(ChoiceInfo {
        asked: choice.to_string(),
        one_machine: Some(here.name()),
        between_machines: reaches.then(|| FabricKind::Verbs.name()),
        problem: None,
    })
}

/// The RDMA devices with their ports and addresses; a machine without RDMA has none, which the line of
/// the verbs fabric explains.
fn device_lines() -> Vec<Line> {
    let named = named_device();
    let default = Device::choose(named.as_deref())
        .map(|(device, _)| device.name().to_owned())
        .ok();
    let named = named.is_some();
    let mut lines = Vec::new();
    for name in Device::list().unwrap_or_default() {
        let is_default = default.as_deref() == Some(name.as_str());
        match Device::open(Some(&name)) {
            Ok(device) => {
                lines.push(Line::Device(DeviceInfo {
                    limits: Some(limits(&device)),
                    firmware: Some(device.firmware().to_owned()).filter(|f| !f.is_empty()),
                    device: name,
                    default: is_default,
                    named: is_default && named,
                    problem: None,
                }));
                for port in 1..=device.limits().ports {
                    if let Err(error) = port_lines(&device, port, &mut lines) {
                        lines.push(problem(device.name(), is_default, &error));
                    }
                }
            }
            Err(error) => lines.push(problem(&name, is_default, &error)),
        }
    }
    lines
}

/// The device that the environment asks for.
fn named_device() -> Option<String> {
    FabricConfig::from_env().ok()?.device
}

fn guest_line() -> Line {
    let missing = crate::guest::missing();
    let kvm = rustix::fs::access("/dev/kvm", Access::READ_OK | Access::WRITE_OK).is_ok();
    Line::Guest(GuestInfo {
        usable: missing.is_empty(),
        missing,
        kvm,
    })
}

fn problem(device: &str, default: bool, error: &DeviceError) -> Line {
    let problem = Some(portals_shim::with_causes(error));
    Line::Device(DeviceInfo {
        device: device.to_owned(),
        default,
        named: false,
        problem,
        firmware: None,
        limits: None,
    })
}

fn limits(device: &Device) -> LimitsInfo {
    let limits = device.limits();
    LimitsInfo {
        queue_pairs: limits.qps,
        requests_per_queue: limits.qp_requests,
        segments: limits.segments,
        completion_queues: limits.cqs,
        completions_per_queue: limits.cq_entries,
        memory_regions: limits.mrs,
        memory_region_bytes: limits.mr_bytes,
        shared_receive_queues: limits.srqs,
        receives_per_shared_queue: limits.srq_requests,
    }
}

fn port_lines(device: &Device, port: u8, lines: &mut Vec<Line>) -> Result<(), DeviceError> {
    let info = device.port(port)?;
    let name = device.name().to_owned();
    lines.push(Line::Port(PortLine {
        device: name.clone(),
        port,
        state: state(info.state),
        link: match (info.iwarp, info.ethernet) {
            (true, _) => "iWARP",
            (false, true) => "ethernet",
            (false, false) => "infiniband",
        },
        mtu: info.mtu.bytes(),
        rate_mbps: Some(info.rate_mbps).filter(|rate| *rate > 0),
        lid: info.lid,
    }));
    let chosen = portals_shim::nal::verbs::chosen_gid(device, port);
    for entry in device.gids(port)? {
        lines.push(Line::Gid(GidLine {
            device: name.clone(),
            port,
            index: entry.index,
            gid: entry.gid.to_string(),
            packets: packets(entry.kind),
            chosen: chosen == Some(entry),
        }));
    }
    Ok(())
}

/// The names of `ibv_port_state`.
fn state(code: u32) -> &'static str {
    match code {
        1 => "down",
        2 => "initialising",
        3 => "armed",
        4 => "active",
        5 => "active, link deferred",
        _ => "unknown",
    }
}

fn packets(kind: GidType) -> String {
    match kind {
        GidType::InfiniBand => "infiniband".to_owned(),
        GidType::RoceV1 => "RoCE v1".to_owned(),
        GidType::RoceV2 => "RoCE v2".to_owned(),
        other => format!("{other:?}"),
    }
}

fn words(line: &Line) -> String {
    match line {
        Line::Fabric(f) => {
            let state = if f.usable { "usable" } else { "not usable" };
            let reason = f
                .reason
                .as_ref()
                .map(|r| format!(": {r}"))
                .unwrap_or_default();
            format!("{:<8} {state}{reason}", f.fabric)
        }
        Line::Choice(c) => {
            let between = c.between_machines.unwrap_or("nothing");
            let taken = match (&c.problem, c.one_machine) {
                (Some(problem), _) => problem.clone(),
                (None, here) => format!(
                    "{} on one machine, {between} between machines ({})",
                    here.unwrap_or("nothing"),
                    c.asked
                ),
            };
            format!("{:<8} {taken}", "taken")
        }
        Line::Protocols(table) => table.to_string().trim_end().to_owned(),
        Line::Device(d) => {
            let default = match (d.default, d.named) {
                (_, true) => " (taken: PORTOLAN_DEVICE names it)",
                (true, false) => " (taken when none is named)",
                (false, false) => "",
            };
            let limits = d.limits.as_ref().map(|l| {
                format!(
                    ": {} queue pairs of {} requests, {} memory regions of {} bytes, {} shared receive queues of {}",
                    l.queue_pairs,
                    l.requests_per_queue,
                    l.memory_regions,
                    l.memory_region_bytes,
                    l.shared_receive_queues,
                    l.receives_per_shared_queue
                )
            });
            let problem = d.problem.as_ref().map(|p| format!(": {p}"));
            let firmware = d.firmware.as_ref().map(|f| format!(", firmware {f}"));
            format!(
                "  device {}{default}{}{}",
                d.device,
                firmware.unwrap_or_default(),
                limits.or(problem).unwrap_or_default()
            )
        }
        Line::Port(p) => {
            let gbps = |mbps: u32| format!(", {} Gbit/s", f64::from(mbps) / 1000.0);
            let rate = p.rate_mbps.map_or_else(String::new, gbps);
            format!(
                "    port {}: {}, {}{rate}, MTU {}, LID {}",
                p.port, p.state, p.link, p.mtu, p.lid
            )
        }
        Line::Guest(g) if g.usable => {
            let how = if g.kvm {
                "by emulation; /dev/kvm opens, so --kvm may work"
            } else {
                "by emulation"
            };
            format!("{:<8} usable, {how}", "guest")
        }
        Line::Guest(g) => {
            format!("{:<8} not usable: {}", "guest", g.missing.join("; "))
        }
        Line::Host(h) => h.words(),
        Line::Library(l) => format!("  library {}", l.library),
        Line::Variable(v) => variables::words(std::slice::from_ref(v), &[]),
        Line::Gid(g) => {
            let mark = if g.chosen { " <- used" } else { "" };
            format!("      GID {:>3} {} {}{mark}", g.index, g.gid, g.packets)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_they_are() {
        let line = Line::Gid(GidLine {
            device: "rxe0".into(),
            port: 1,
            index: 1,
            gid: "::ffff:10.9.0.1".into(),
            packets: packets(GidType::RoceV2),
            chosen: true,
        });
        assert_eq!(
            words(&line),
            "      GID   1 ::ffff:10.9.0.1 RoCE v2 <- used"
        );
        let json = serde_json::to_string(&line).unwrap();
        assert!(
            json.starts_with("{\"kind\":\"gid\",\"device\":\"rxe0\",\"port\":1,\"index\":1"),
            "{json}"
        );
    }

    #[test]
    fn an_unusable_fabric_has_a_reason() {
        for kind in FabricKind::ALL {
            let Line::Fabric(info) = fabric_line(kind) else {
                panic!("{kind}")
            };
            assert_eq!(info.usable, info.reason.is_none(), "{kind}");
        }
    }
}
