//! The files that a simulation writes of itself, as the environment asks.
//!
//! | variable | what |
//! |---|---|
//! | `PORTOLAN_TRACE` | timeline: JSON of Chrome's trace event format |
//! | `PORTOLAN_TRACE_PCAP` | capture of all packets |
//! | `PORTOLAN_TRACE_LINKS` | table of links |
//! | `PORTOLAN_TRACE_LINK_SERIES` | loads of links over time |
//! | `PORTOLAN_TRACE_BIN` | width of a bin of these, microseconds |
//! | `PORTOLAN_TRACE_SVG` | picture |
//! | `PORTOLAN_TRACE_COUNTERS` | registers of the NIC control blocks at the end |
//! | `PORTOLAN_TRACE_PACKETS` | `0`: the timeline leaves packets out |
//! | `PORTOLAN_TRACE_TITLE` | what the picture is headed, and the program of the timeline |
//! | `PORTOLAN_TRACE_WINDOW` | `FROM..TO`, microseconds: the picture's part of the run |
//! | `PORTOLAN_TRACE_ERRORS` | a line for each of the files above that is not whole |
//!
//! A file is a name, or a handover (`fd:7`, see [`host::handover`]). The simulation of a privileged program writes none.

use super::sim::Sim;
use host::handover;
use host::privilege::{PRIVILEGED, is_privileged};
use nic_model::trace::{Capture, LinkSeries, LinkTable, Picture, Scene, Sink, Timeline};
use nic_model::{SimDuration, SimTime};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Names the file of the timeline.
pub const TRACE_VARIABLE: &str = "PORTOLAN_TRACE";
/// Names the file of the capture.
pub const PCAP_VARIABLE: &str = "PORTOLAN_TRACE_PCAP";
/// Names the file of the table of links.
pub const LINKS_VARIABLE: &str = "PORTOLAN_TRACE_LINKS";
/// Names the file of the loads of links over time.
pub const LINK_SERIES_VARIABLE: &str = "PORTOLAN_TRACE_LINK_SERIES";
/// How wide a bin of these is.
pub const BIN_VARIABLE: &str = "PORTOLAN_TRACE_BIN";
/// Names the file of the picture.
pub const SVG_VARIABLE: &str = "PORTOLAN_TRACE_SVG";
/// Names the file of the counters.
pub const COUNTERS_VARIABLE: &str = "PORTOLAN_TRACE_COUNTERS";
/// Whether the timeline shows packets.
pub const PACKETS_VARIABLE: &str = "PORTOLAN_TRACE_PACKETS";
/// The picture's part of the run.
pub const WINDOW_VARIABLE: &str = "PORTOLAN_TRACE_WINDOW";

/// What the picture is headed.
pub const TITLE_VARIABLE: &str = "PORTOLAN_TRACE_TITLE";
/// Names the file of what went wrong.
pub const ERRORS_VARIABLE: &str = "PORTOLAN_TRACE_ERRORS";

/// Bytes of a file that wait for being written.
const BUFFER: usize = 256 * 1024;

/// Microseconds, decimals allowed, as picoseconds.
fn parse_time(text: &str) -> Option<u64> {
    let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if part.len() > 6 || !digits(part) || !digits(whole) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let part: u64 = format!("{part:0<6}").parse().ok()?;
    whole.checked_mul(1_000_000)?.checked_add(part)
}

/// `FROM..TO` in microseconds, decimals allowed; `None` for anything else.
pub fn parse_window(text: &str) -> Option<(SimTime, SimTime)> {
    let (from, to) = text.split_once("..")?;
    let window = (SimTime(parse_time(from)?), SimTime(parse_time(to)?));
    (window.0 < window.1).then_some(window)
}

/// The width of a bin in microseconds, decimals allowed, 1 ns at least; `None` for anything else.
pub fn parse_bin(text: &str) -> Option<SimDuration> {
    let width = parse_time(text).map(SimDuration::from_ps);
    width.filter(|width| *width >= SimDuration::from_ns(1))
}

fn wanted(variable: &str) -> Option<PathBuf> {
    let value = std::env::var_os(variable)?;
    (!value.is_empty()).then(|| value.into())
}

/// Opens the file that a variable names, if it is set.
fn opened(variable: &str) -> Option<Result<File, String>> {
    let path = wanted(variable)?;
    let failed = |why: &dyn std::fmt::Display| {
        format!("cannot create {} ({variable}): {why}", path.display())
    };
    if is_privileged() {
        return Some(Err(failed(&PRIVILEGED)));
    }
    Some(handover::create(&path).map_err(|e| failed(&e)))
}

/// Tells the command that asked for the files what is not whole, or everybody where there is none.
fn complain(what: &str) {
    static ERRORS: OnceLock<Option<File>> = OnceLock::new();
    let errors = ERRORS.get_or_init(|| opened(ERRORS_VARIABLE)?.ok());
    let told = errors
        .as_ref()
        .is_some_and(|mut file| writeln!(file, "{what}").is_ok());
    if !told {
        tracing::error!("{what}");
    }
}

/// A file to be written; an error is told and leaves the record out, not the run.
fn create(variable: &str) -> Option<BufWriter<File>> {
    match opened(variable)? {
        Ok(file) => Some(BufWriter::with_capacity(BUFFER, file)),
        Err(e) => {
            complain(&e);
            None
        }
    }
}

/// The recorders that the environment asks for.
fn recorders(scene: &Scene) -> Vec<Box<dyn Sink>> {
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    let program = std::env::var(TITLE_VARIABLE).unwrap_or_default();
    if let Some(file) = create(TRACE_VARIABLE) {
        let packets = std::env::var_os(PACKETS_VARIABLE).is_none_or(|v| v != "0");
        sinks.push(Box::new(Timeline::new(file, scene, &program, packets)));
    }
    if let Some(file) = create(PCAP_VARIABLE) {
        sinks.push(Box::new(Capture::new(file)));
    }
    if let Some(file) = create(LINKS_VARIABLE) {
        sinks.push(Box::new(LinkTable::new(file, scene)));
    }
    if let Some(file) = create(LINK_SERIES_VARIABLE) {
        sinks.push(Box::new(LinkSeries::new(file, scene, bin())));
    }
    if let Some(file) = create(SVG_VARIABLE) {
        let text = std::env::var(WINDOW_VARIABLE).unwrap_or_default();
        let window = parse_window(&text);
        if window.is_none() && !text.is_empty() {
            complain(&format!(
                "{WINDOW_VARIABLE} is {text:?}, not FROM..TO in microseconds"
            ));
        }
        let dims = scene.topology.dims();
        let [x, y, z] = dims;
        let comma = if program.is_empty() { "" } else { ": " };
        let nodes = scene.topology.nodes();
        let title = format!("{program}{comma}{nodes} nodes, {x} × {y} × {z}");
        sinks.push(Box::new(Picture::new(file, scene, &title, window)));
    }
    sinks
}

/// The width of a bin that the environment asks for.
fn bin() -> SimDuration {
    let text = std::env::var(BIN_VARIABLE).unwrap_or_default();
    let width = parse_bin(&text);
    if width.is_none() && !text.is_empty() {
        complain(&format!(
            "{BIN_VARIABLE} is {text:?}, not microseconds, 0.001 or more"
        ));
    }
    width.unwrap_or(SimDuration::from_us(1))
}

/// Begins what the environment asks for.
pub(super) fn begin(sim: &mut Sim) {
    let sinks = recorders(&sim.scene());
    if !sinks.is_empty() {
        sim.trace_to(Box::new(sinks));
    }
}

/// Ends it, once; to be called before the last rank is answered, because the job may be over with
/// that.
pub(super) fn end(sim: &mut Sim, ended: &mut bool) {
    if std::mem::replace(ended, true) {
        return;
    }
    if let Err(e) = sim.end_trace() {
        complain(&format!("the trace is not whole: {e}"));
    }
    let counters = opened(COUNTERS_VARIABLE);
    let written = counters.map(|file| {
        let mut file = file?;
        let text = sim.counters();
        let failed = |e| format!("cannot write the counters: {e}");
        file.write_all(text.as_bytes()).map_err(failed)
    });
    if let Some(Err(e)) = written {
        complain(&e);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_in_microseconds() {
        let window = parse_window("10..12.5").unwrap();
        assert_eq!(window, (SimTime(10_000_000), SimTime(12_500_000)));
        for bad in [
            "",
            "1",
            "2..1",
            "1..1",
            "a..b",
            "-1..2",
            "1..2.1234567",
            "1.+5..2",
        ] {
            assert!(parse_window(bad).is_none(), "{bad}");
        }
    }
    #[test]
    fn bins_are_a_nanosecond_wide_at_least() {
        for (text, ps) in [("1", 1_000_000), ("0.001", 1_000), ("2.5", 2_500_000)] {
            assert_eq!(parse_bin(text), Some(SimDuration::from_ps(ps)), "{text}");
        }
        for bad in [
            "",
            "0",
            "0.0009",
            "-1",
            "+1",
            "1us",
            "1..2",
            "99999999999999",
        ] {
            assert_eq!(parse_bin(bad), None, "{bad}");
        }
    }
}
