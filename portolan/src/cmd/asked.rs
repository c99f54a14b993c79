//! What `portolan bench` is asked to measure: a name, all of them, or the list of what there is.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error, ValueEnum as _};

use crate::bench::{Axis, Name};

/// A word in place of a measurement's name, or one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Every measurement.
    All,
    /// What there is, without measuring.
    List,
    /// One measurement.
    One(Name),
}

impl Asked {
    const ALL: &str = "all";
    const LIST: &str = "list";

    /// What a word means; the refusal names what is near.
    fn of(word: &str) -> Result<Self, String> {
        match word {
            Self::ALL => return Ok(Self::All),
            Self::LIST => return Ok(Self::List),
            _ => {}
        }
        let names = Name::ALL.map(Name::word);
        let found = Name::ALL.into_iter().find(|name| name.word() == word);
        found.map(Self::One).ok_or_else(|| {
            let near = host::variables::nearest(word, &names);
            let near = near.map_or_else(String::new, |near| format!("; is it {near}?"));
            format!("there is no such measurement; `portolan bench list` shows all{near}")
        })
    }

    /// The measurements that are meant.
    pub(crate) fn names(&self) -> &[Name] {
        match self {
            Self::All => &Name::ALL,
            Self::List => &[],
            Self::One(name) => std::slice::from_ref(name),
        }
    }
}

/// Reads an [`Asked`], and tells shells what there is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedParser;

impl TypedValueParser for AskedParser {
    type Value = Asked;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, word: &OsStr) -> Result<Asked, Error> {
        let read = |word: &str| Asked::of(word);
        read.parse_ref(cmd, arg, word)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let words = [
            PossibleValue::new(Asked::ALL).help("Every measurement"),
            PossibleValue::new(Asked::LIST).help("What there is, without measuring"),
        ];
        let names = Name::ALL.iter().filter_map(Name::to_possible_value);
        Some(Box::new(words.into_iter().chain(names)))
    }
}

/// A line for each measurement: its name, what it measures, its unit, and what `--sizes` counts.
pub(crate) fn list() -> String {
    let widest = Name::ALL.map(|name| name.word().len());
    let width = widest.into_iter().max().unwrap_or(0);
    let line = |name: Name| {
        let value = name.to_possible_value();
        let help = value.and_then(|value| value.get_help().map(ToString::to_string));
        let sizes = match name.axis() {
            Axis::Bytes => "bytes",
            Axis::Entries => "entries",
            Axis::Operations => "operations",
            Axis::Threads => "threads",
            Axis::WorkingSet => "bytes of memory",
            Axis::Nothing => "none",
        };
        let (word, unit) = (name.word(), name.unit().word());
        format!(
            "{word:width$}  {} [{unit}; sizes: {sizes}]",
            help.unwrap_or_default()
        )
    };
    Name::ALL.map(line).join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_names_or_all_or_the_list() {
        assert_eq!(Asked::of("all").map(|a| a.names().len()), Ok(27));
        assert_eq!(Asked::of("list"), Ok(Asked::List));
        assert_eq!(Asked::of("pingpong"), Ok(Asked::One(Name::Pingpong)));
        let said = Asked::of("pingpon").unwrap_err();
        assert!(
            said.contains("is it pingpong?") && said.contains("bench list"),
            "{said}"
        );
        let said = Asked::of("teleport").unwrap_err();
        assert!(!said.contains("is it"), "{said}");
    }

    #[test]
    fn the_list_has_a_line_of_words_for_each_name() {
        let list = list();
        let lines: Vec<&str> = list.lines().collect();
        assert_eq!(lines.len(), Name::ALL.len());
        for (name, line) in Name::ALL.iter().zip(lines) {
            assert!(line.starts_with(&format!("{name} ")), "{line}");
            assert!(line.split_whitespace().count() > 5, "{line}");
        }
        assert!(list.contains("[MB/s; sizes: bytes]"));
    }
}
