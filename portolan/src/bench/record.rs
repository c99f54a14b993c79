//! One result, and the lines of `--json`.

use std::io::{self, BufRead, Write};

use clap::ValueEnum as _;
use portals_shim::ClockKind;
use serde::{Deserialize, Serialize};

use super::bounds::{Broken, Model};
use super::name::{Axis, Name, Unit};
use super::origin::Origin;
use super::portals::Software;
use super::random::Pinning;
use super::samples::Measured;
use super::sensitivity::Moved;
use super::which::Which;

/// What `--json` prints, one object per line; scripts rely on these names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The measurement.
    pub(crate) bench: String,
    /// The fabric.
    pub(crate) fabric: String,
    /// How the fabric worked: `generic`, `rc`.
    pub(crate) mode: String,
    /// Ranks of the job.
    pub(crate) ranks: u32,
    /// Payload of one operation, bytes.
    pub(crate) bytes: u64,
    /// Durations measured.
    pub(crate) iters: u64,
    /// `virtual` or `wall`.
    pub(crate) clock: String,
    /// `us`, `MB/s` or `op/s`.
    pub(crate) unit: String,
    /// The least.
    pub(crate) min: f64,
    /// The middle one.
    pub(crate) median: f64,
    /// 99 % do not exceed it.
    pub(crate) p99: f64,
    /// The greatest.
    pub(crate) max: f64,
    /// First quartile: a quarter do not exceed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) q1: Option<f64>,
    /// Third quartile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) q3: Option<f64>,
    /// Entries before the one that matches, where they are what varies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) depth: Option<u64>,
    /// Operations under way together, where they are what varies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) in_flight: Option<u64>,
    /// Threads that send, where they are what varies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) threads: Option<u64>,
    /// The machine that is modelled, by name or file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<String>,
    /// Parameters of that machine that were set, with commas between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) set: Option<String>,
    /// Which rank sat on which place of its grid, where that was said: `random:7`, or a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) map: Option<String>,
    /// What a library above Portals computes for each message, on both sides together, µs; part of
    /// the times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) software_us: Option<f64>,
    /// The conduit that was measured, `portals` or `mpi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conduit: Option<String>,
    /// Bytes of the memory that is put to, where they are what varies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) working_set: Option<u64>,
    /// How that is pinned: `whole`, `firehose`, `rendezvous`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pinning: Option<String>,
    /// The part of the operations that found it pinned, 0 to 1, where that is not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hits: Option<f64>,
    /// The best value that the modelled machine's parameters allow, in `unit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bound: Option<f64>,
    /// What sets that bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bound_by: Option<String>,
    /// Invented parameters of the modelled machine that move the result, where they were tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) moved_by: Option<Vec<Moved>>,
    /// What it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<Origin>,
}

/// What all results of one run share.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) fabric: String,
    pub(crate) mode: String,
    pub(crate) ranks: u32,
    pub(crate) clock: ClockKind,
    /// The machine that is modelled.
    pub(crate) machine: Option<String>,
    /// Parameters of it that were set.
    pub(crate) set: Option<String>,
    /// The map of its ranks that was said.
    pub(crate) map: Option<String>,
    pub(crate) software: Software,
}

impl Record {
    /// The result of `name` at `point`; `None` where nothing was measured.
    pub(crate) fn new(
        setting: &Setting,
        name: Name,
        point: u64,
        measured: &Measured,
    ) -> Option<Self> {
        let covered = measured.bytes.saturating_mul(measured.operations);
        let summary = measured
            .samples
            .summary(name.unit(), covered, measured.operations)?;
        Some(Self {
            bench: name.word().to_owned(),
            fabric: setting.fabric.clone(),
            mode: setting.mode.clone(),
            ranks: setting.ranks,
            bytes: measured.bytes,
            iters: measured.samples.len(),
            clock: match setting.clock {
                ClockKind::Virtual => "virtual".to_owned(),
                ClockKind::Wall => "wall".to_owned(),
            },
            unit: name.unit().word().to_owned(),
            min: summary.min,
            median: summary.median,
            p99: summary.p99,
            max: summary.max,
            q1: Some(summary.q1),
            q3: Some(summary.q3),
            depth: (name.axis() == Axis::Entries).then_some(point),
            in_flight: (name.axis() == Axis::Operations).then_some(point),
            threads: (name.axis() == Axis::Threads).then_some(point),
            machine: setting.machine.clone(),
            set: setting.set.clone(),
            map: setting.map.clone(),
            software_us: (name.has_software() && setting.software != Software::default())
                .then_some((setting.software.send + setting.software.receive) as f64 / 1e3),
            conduit: None,
            working_set: (name.axis() == Axis::WorkingSet).then_some(point),
            pinning: None,
            hits: measured.found,
            bound: None,
            bound_by: None,
            moved_by: None,
            origin: None,
        })
    }

    /// Sets the bound that `model` has for a result.
    ///
    /// # Errors
    /// The result is better than its bound.
    pub(crate) fn bounded(self, model: &Model<'_>) -> Result<Self, Broken> {
        let named = Name::from_str(&self.bench, false).ok();
        let Some(name) = named else {
            return Ok(self);
        };
        let best = match name.unit() {
            Unit::Microseconds => self.min,
            Unit::MegabytesPerSecond | Unit::OperationsPerSecond => self.max,
        };
        let bound = model.check(name, self.point(), self.bytes, best)?;
        Ok(Self {
            bound: bound.map(|b| (b.value * 1e3).round() / 1e3),
            bound_by: bound.map(|b| b.by.to_owned()),
            ..self
        })
    }

    /// Says that this command measured it.
    pub(crate) fn of_this_command(self) -> Self {
        let origin = Origin::here(self.clock == "wall");
        Self {
            origin: Some(origin),
            ..self
        }
    }

    /// One result of those of each point that was measured in several turns, in the order of the first.
    pub(crate) fn of_turns(all: Vec<Self>) -> Vec<Self> {
        let mut points: Vec<Vec<Self>> = Vec::new();
        for record in all {
            match points.iter_mut().find(|p| p[0].is_of_the_point(&record)) {
                Some(point) => point.push(record),
                None => points.push(vec![record]),
            }
        }
        points.into_iter().filter_map(Self::together).collect()
    }

    fn is_of_the_point(&self, other: &Self) -> bool {
        let bare = |r: &Self| Self {
            iters: 0,
            min: 0.0,
            median: 0.0,
            p99: 0.0,
            max: 0.0,
            q1: None,
            q3: None,
            hits: None,
            ..r.clone()
        };
        bare(self) == bare(other)
    }

    fn together(turns: Vec<Self>) -> Option<Self> {
        let all = |of: fn(&Self) -> f64| {
            let mut values: Vec<f64> = turns.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        // The lower one of two in the middle, which one turn had.
        let middle = |of: Vec<f64>| of.get(of.len().saturating_sub(1) / 2).copied();
        let quartiles = |of: fn(&Self) -> Option<f64>| {
            let mut values: Vec<f64> = turns.iter().filter_map(of).collect();
            values.sort_by(f64::total_cmp);
            middle(values)
        };
        let hits: Vec<f64> = turns.iter().filter_map(|r| r.hits).collect();
        let first = turns.first()?;
        Some(Self {
            iters: turns.iter().map(|r| r.iters).sum(),
            min: *all(|r| r.min).first()?,
            q1: quartiles(|r| r.q1),
            median: middle(all(|r| r.median))?,
            q3: quartiles(|r| r.q3),
            p99: *all(|r| r.p99).last()?,
            max: *all(|r| r.max).last()?,
            hits: first
                .hits
                .map(|_| hits.iter().sum::<f64>() / hits.len() as f64),
            ..first.clone()
        })
    }

    /// Says how memory was pinned, if that is what is compared.
    pub(crate) fn of_pinning(self, name: Name, pinning: Option<Pinning>) -> Self {
        let pinning = pinning.filter(|_| name.is_of_pinning());
        Self {
            pinning: pinning.map(|p| p.word().to_owned()),
            ..self
        }
    }

    /// Says which conduit was measured, if one was.
    pub(crate) fn of_conduit(self, name: Name, which: Which) -> Self {
        let conduit = name.is_of_conduit().then(|| which.word().to_owned());
        Self { conduit, ..self }
    }

    /// The run that it belongs to, in the words of a legend.
    pub(crate) fn line(&self) -> String {
        let Self { fabric, mode, .. } = self;
        let set = self.set.as_ref();
        let set = set.map_or_else(String::new, |set| format!(", {set}"));
        let map = self.map.as_ref();
        let map = map.map_or_else(String::new, |map| format!(", map {map}"));
        let standing = if self.clock == "virtual" {
            "modelled"
        } else {
            "measured"
        };
        let conduit = self.conduit.as_ref();
        let conduit = conduit.map_or_else(String::new, |which| format!("{which}-conduit, "));
        let pinning = match self.pinning.as_deref() {
            Some("whole") => "pinned as a whole, ",
            Some("firehose") => "firehoses, ",
            Some("rendezvous") => "rendezvous, ",
            _ => "",
        };
        format!("{conduit}{pinning}{fabric} ({mode}{set}{map}), {standing}")
    }

    /// The place on the axis of its measurement.
    pub(crate) fn point(&self) -> u64 {
        let other = self
            .depth
            .or(self.in_flight)
            .or(self.threads)
            .or(self.working_set);
        other.unwrap_or(self.bytes)
    }
}

/// Writes results as lines of JSON.
pub(crate) fn write(records: &[Record], mut to: impl Write) -> io::Result<()> {
    for record in records {
        serde_json::to_writer(&mut to, record)?;
        to.write_all(b"\n")?;
    }
    to.flush()
}

/// Reads what [`write()`] wrote.
pub(crate) fn read(from: impl BufRead) -> io::Result<Vec<Record>> {
    from.lines()
        .map(|line| Ok(serde_json::from_str(&line?)?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: Name, point: u64, bytes: u64) -> Record {
        let mut samples = crate::bench::samples::Samples::new();
        samples.add(5910);
        let setting = Setting {
            fabric: "seastar".into(),
            mode: "generic".into(),
            ranks: 2,
            clock: ClockKind::Virtual,
            machine: None,
            set: None,
            map: None,
            software: Software::default(),
        };
        Record::new(
            &setting,
            name,
            point,
            &Measured {
                samples,
                operations: 1,
                bytes,
                found: None,
            },
        )
        .unwrap()
    }

    #[test]
    fn the_line_has_the_words_scripts_rely_on() {
        let mut text = Vec::new();
        write(&[record(Name::Pingpong, 8, 8)], &mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "{\"bench\":\"pingpong\",\"fabric\":\"seastar\",\"mode\":\"generic\",\"ranks\":2,\"bytes\":8,\
             \"iters\":1,\"clock\":\"virtual\",\"unit\":\"us\",\"min\":5.91,\"median\":5.91,\"p99\":5.91,\
             \"max\":5.91,\"q1\":5.91,\"q3\":5.91}\n"
        );
    }

    #[test]
    fn turns_of_a_point_are_one_result() {
        let of = |median: f64, working_set: u64| Record {
            median,
            min: median - 1.0,
            max: median + 1.0,
            q1: Some(median - 0.5),
            q3: Some(median + 0.5),
            hits: Some(0.5),
            working_set: Some(working_set),
            ..record(Name::Pingpong, 8, 8)
        };
        let all = vec![of(7.0, 1), of(5.0, 2), of(3.0, 1), of(4.0, 1)];
        let found = Record::of_turns(all);
        let [one, other] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!((one.min, one.median, one.max), (2.0, 4.0, 8.0));
        assert_eq!((one.q1, one.q3), (Some(3.5), Some(4.5)));
        assert_eq!((one.iters, one.hits), (3, Some(0.5)));
        assert_eq!((one.working_set, other.working_set), (Some(1), Some(2)));
        assert_eq!(*other, of(5.0, 2));
    }

    #[test]
    fn lines_are_read_back_and_depth_is_kept() {
        let records = [
            record(Name::Pingpong, 8, 8),
            record(Name::MatchDepth, 64, 8),
        ];
        assert_eq!((records[0].point(), records[1].point()), (8, 64));
        let mut text = Vec::new();
        write(&records, &mut text).unwrap();
        assert_eq!(read(text.as_slice()).unwrap(), records);
        assert!(read(&b"nonsense\n"[..]).is_err());
    }
}
