//! Reading a machine file: where each figure comes from, and why a file is refused.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;

use super::Os;

/// Why a machine file is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MachineError {
    /// No machine of this name is built in.
    #[error("no machine named \"{name}\"; built in: {}; a machine file is named by a path that ends in .toml", known.join(", "))]
    UnknownMachine {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// The file cannot be read.
    #[error("cannot read machine file {path}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file of this name is refused.
    #[error("{path}: {error}")]
    InFile {
        /// The file.
        path: String,
        /// Why.
        error: Box<MachineError>,
    },
    /// Not TOML, or a table or entry of the wrong shape; the text names the line.
    #[error("machine file: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A parameter is not there.
    #[error("machine file line {line}: {section}.{key} is missing ({unit}, {min} to {max})")]
    Missing {
        /// Table of the parameter.
        section: &'static str,
        /// Its key.
        key: &'static str,
        /// Line of the table's head; the last line where there is no such table.
        line: usize,
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
        /// Line of the file, from 1; 0 of a value that is in no file.
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
    /// Values that are sensible one by one and not together.
    #[error("{}{reason}", if *line == 0 { String::new() } else { format!("machine file line {line}: ") })]
    Together {
        /// Line of the file, from 1; 0 of a value that is in no file.
        line: usize,
        /// What does not go together.
        reason: String,
    },
    /// No parameter of this name.
    #[error("{name:?} is not a parameter; {}", if near.is_empty() {
        "SECTION.KEY is expected, such as host.trap".to_owned()
    } else {
        format!("is it {}?", near.join(" or "))
    })]
    NoParameter {
        /// The name given.
        name: String,
        /// Names that are like it, the likest first.
        near: Vec<String>,
    },
    /// Not a parameter and a value of it.
    #[error("{setting:?}: {wanted} is expected")]
    Setting {
        /// What was given.
        setting: String,
        /// What could have been.
        wanted: String,
    },
    /// A parameter set to a value outside of the sensible range.
    #[error("{name} = {value}, want {min} to {max}")]
    SettingRange {
        /// The parameter, as `host.trap`.
        name: String,
        /// The value given, with its unit.
        value: String,
        /// Least sensible value.
        min: String,
        /// Greatest sensible value.
        max: String,
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

/// Where a figure comes from: the [`Status`] of its file, with what is *ours* divided by its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provenance {
    /// Measured on the machine.
    Measured,
    /// Taken from a published model of the machine, or computed from another parameter.
    Derived,
    /// Remembered from a publication, not verified.
    Recalled,
    /// Found by a fit of published figures.
    Fitted,
    /// Without a source for the figure.
    Invented,
}

impl Provenance {
    /// All, the surest first.
    pub const ALL: [Self; 5] = [
        Self::Measured,
        Self::Derived,
        Self::Recalled,
        Self::Fitted,
        Self::Invented,
    ];
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Measured => "measured",
            Self::Derived => "derived",
            Self::Recalled => "recalled",
            Self::Fitted => "fitted",
            Self::Invented => "invented",
        })
    }
}

impl ParameterInfo {
    /// Where the figure comes from. A source that begins with `fitted` is a fit's, one that begins with `that of` names
    /// the parameter that the figure is computed from.
    ///
    /// ```
    /// use nic_model::{Machine, Provenance};
    /// let machine = Machine::named("xt4")?;
    /// let of = |key| machine.parameters.iter().find(|p| p.key == key).map(|p| p.provenance());
    /// assert_eq!(of("interrupt_entry"), Some(Provenance::Fitted));
    /// assert_eq!(of("beyond_slots"), Some(Provenance::Invented));
    /// # Ok::<(), nic_model::MachineError>(())
    /// ```
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        match self.status {
            Status::Measured => Provenance::Measured,
            Status::Model => Provenance::Derived,
            Status::Recalled => Provenance::Recalled,
            Status::Ours if self.source.starts_with("fitted") => Provenance::Fitted,
            Status::Ours if self.source.starts_with("that of") => Provenance::Derived,
            Status::Ours => Provenance::Invented,
        }
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
    /// Line of the file it was read from, from 1; 0 of a value that is in no file.
    pub line: usize,
}

/// What the model expects of one parameter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) section: &'static str,
    pub(super) key: &'static str,
    pub(super) unit: &'static str,
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Expected {
    pub(super) fn refuse(&self, line: usize, value: i64) -> MachineError {
        let Self {
            section,
            key,
            unit,
            min,
            max,
        } = *self;
        MachineError::Range {
            section,
            key,
            line,
            value,
            unit,
            min,
            max,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    value: i64,
    unit: String,
    status: Status,
    source: String,
}

/// A table of a machine file.
pub(super) type Table = BTreeMap<String, Spanned<Raw>>;

/// Takes parameters from a file's tables, and what is not there from the machine it is based on.
pub(super) struct Loader<'a> {
    pub(super) text: &'a str,
    /// Parameters of the machine that this one is based on.
    pub(super) base: Vec<ParameterInfo>,
    pub(super) taken: Vec<ParameterInfo>,
}

impl Loader<'_> {
    pub(super) fn line(&self, offset: usize) -> usize {
        let newlines = self.text.bytes().take(offset).filter(|&b| b == b'\n');
        1 + newlines.count()
    }

    /// Line of the head of table `section`, or the last line.
    fn head(&self, section: &str) -> usize {
        let head = format!("[{section}]");
        let found = self.text.lines().position(|l| l.trim() == head);
        found.map_or(self.text.lines().count(), |at| at + 1)
    }

    pub(super) fn take(
        &mut self,
        table: &mut Table,
        expected: &Expected,
    ) -> Result<u64, MachineError> {
        let Expected {
            section,
            key,
            unit,
            min,
            max,
        } = *expected;
        let Some(raw) = table.remove(key) else {
            let inherited = |p: &&ParameterInfo| p.section == section && p.key == key;
            let line = self.head(section);
            let found = self.base.iter().find(inherited);
            let found = found.ok_or(MachineError::Missing {
                section,
                key,
                line,
                unit,
                min,
                max,
            })?;
            self.taken.push(ParameterInfo {
                line: 0,
                ..found.clone()
            });
            return Ok(found.value);
        };
        let line = self.line(raw.span().start);
        let Raw {
            value,
            unit: found,
            status,
            source,
        } = raw.into_inner();
        if found != unit {
            return Err(MachineError::Unit {
                section,
                key,
                line,
                found,
                unit,
            });
        }
        let in_range = u64::try_from(value)
            .ok()
            .filter(|v| (min..=max).contains(v));
        let value = in_range.ok_or_else(|| expected.refuse(line, value))?;
        self.taken.push(ParameterInfo {
            section,
            key,
            value,
            unit,
            status,
            source,
            line,
        });
        Ok(value)
    }

    pub(super) fn finish(&self, section: &'static str, table: Table) -> Result<(), MachineError> {
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

/// The value of `section.key` and the line it was read from.
fn value(parameters: &[ParameterInfo], section: &str, key: &str) -> (u64, usize) {
    let found = parameters
        .iter()
        .find(|p| p.section == section && p.key == key);
    found.map_or((0, 0), |p| (p.value, p.line))
}

/// Refuses parameters that do not go together.
pub(super) fn check(os: Os, parameters: &[ParameterInfo]) -> Result<(), MachineError> {
    let refuse = |line, reason| Err(MachineError::Together { line, reason });
    let (page, line) = value(parameters, "host", "page_size");
    match os {
        Os::Catamount if page != 0 => refuse(
            line,
            format!(
                "host.page_size = {page} B, want 0: the memory of a catamount process is contiguous"
            ),
        ),
        Os::Linux if page < 4096 || !page.is_power_of_two() => refuse(
            line,
            format!("host.page_size = {page} B, want a power of two from 4096 on under linux"),
        ),
        _ => {
            let (burst, line) = value(parameters, "chip", "tx_burst");
            if burst % 64 == 0 {
                Ok(())
            } else {
                refuse(
                    line,
                    format!("chip.tx_burst = {burst} B, want a multiple of 64"),
                )
            }
        }
    }
}
