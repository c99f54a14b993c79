//! What a result came from: the version, the command and, of what was measured, the machine.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::words;

/// Where results come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// Version of Portolan.
    pub(crate) portolan: String,
    /// The command line.
    pub(crate) command: String,
    /// Processor, number of them, and system of the machine that was measured. A simulated machine is named elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
}

impl Origin {
    /// This command, of this version, and where `measured` this machine.
    pub(crate) fn here(measured: bool) -> Self {
        let words = std::env::args_os().skip(1);
        let words = words.map(|word| quoted(&word.to_string_lossy()));
        let command = std::iter::once("portolan".to_owned()).chain(words);
        Self {
            portolan: env!("CARGO_PKG_VERSION").to_owned(),
            command: command.collect::<Vec<_>>().join(" "),
            host: measured.then(host),
        }
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./,:=+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    words::for_shell(word)
}

/// What is known of this machine. Its name is nobody's business.
fn host() -> String {
    let processor = fs::read_to_string("/proc/cpuinfo").ok();
    let processor = processor.as_deref().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    let processor = processor.unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    format!("{processor}, {count} processors that may be used, Linux {release}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_again() {
        for (word, typed) in [
            ("--json", "--json"),
            ("a b", "'a b'"),
            ("", "''"),
            ("it's", r"'it'\''s'"),
            ("$(x)", "'$(x)'"),
        ] {
            assert_eq!(quoted(word), typed);
        }
    }

    #[test]
    fn a_simulation_names_no_host() {
        assert_eq!(Origin::here(false).host, None);
        let host = Origin::here(true).host.unwrap();
        assert!(
            host.contains("processors that may be used, Linux"),
            "{host}"
        );
    }
}
