//! One parameter in the words of a command line: `host.interrupt_entry=2.0`.
//!
//! Times are microseconds where no unit is said, as results are; machine files have picoseconds. Everything else is a
//! whole number in the unit of the machine file.

use super::loader::{Expected, MachineError};
use super::{EXPECTED, Machine};
use strsim::levenshtein;

/// Units of time, picoseconds; the first is meant where none is said.
const TIMES: [(&str, u64); 6] = [
    ("us", 1_000_000),
    ("ps", 1),
    ("ns", 1_000),
    ("µs", 1_000_000),
    ("ms", 1_000_000_000),
    ("s", 1_000_000_000_000),
];

impl Machine {
    /// The same machine with one parameter set: `SECTION.KEY=VALUE`. Times may have a unit, `ps` to `s`; without one they
    /// are microseconds.
    ///
    /// The name of the machine says what was set.
    ///
    /// ```
    /// let machine = nic_model::Machine::named("xt4")?.with_setting("host.interrupt_entry=2.0")?;
    /// assert_eq!(machine.host.interrupt_entry.as_ns(), 2000);
    /// assert_eq!(machine.name, "xt4 with host.interrupt_entry=2.0");
    /// # Ok::<(), nic_model::MachineError>(())
    /// ```
    ///
    /// # Errors
    /// [`MachineError::Setting`]: not of this form. [`MachineError::NoParameter`] names keys that are like the one given.
    /// [`MachineError::SettingRange`]: a value outside of the sensible range. [`MachineError::Together`]: not sensible
    /// with the other parameters.
    pub fn with_setting(&self, setting: &str) -> Result<Self, MachineError> {
        let malformed = |wanted: &str| MachineError::Setting {
            setting: setting.chars().take(80).collect(),
            wanted: wanted.to_owned(),
        };
        let parts = setting.split_once('=');
        let (name, text) = parts.ok_or_else(|| malformed("SECTION.KEY=VALUE"))?;
        let (name, text) = (name.trim(), text.trim());
        let expected = expected(name)?;
        let value = match expected.unit {
            "ps" => time(text).ok_or_else(|| {
                malformed("a number of microseconds, or one with ps, ns, us, ms or s")
            })?,
            unit => {
                let text = text.strip_suffix(unit).unwrap_or(text).trim_end();
                whole(text)
                    .ok_or_else(|| malformed(&format!("a whole number of {}", unit_words(unit))))?
            }
        };
        if !(expected.min..=expected.max).contains(&value) {
            return Err(MachineError::SettingRange {
                name: name.to_owned(),
                value: shown(value, expected.unit),
                min: shown(expected.min, expected.unit),
                max: shown(expected.max, expected.unit),
            });
        }
        let mut machine = self.with(name, value)?;
        let joint = match self.name.contains(" with ") {
            true => ", ",
            false => " with ",
        };
        machine.name = format!("{}{joint}{name}={text}", self.name);
        Ok(machine)
    }
}

/// What is expected of parameter `name`, as `host.trap`.
pub(super) fn expected(name: &str) -> Result<&'static Expected, MachineError> {
    let is = |e: &&Expected| name.split_once('.') == Some((e.section, e.key));
    EXPECTED.iter().find(is).ok_or_else(|| {
        let name: String = name.chars().take(80).collect();
        let near = near(&name);
        MachineError::NoParameter { name, near }
    })
}

/// Up to three parameters whose names are like `name`, the likest first.
fn near(name: &str) -> Vec<String> {
    let key = name.rsplit('.').next().unwrap_or(name);
    let mut all: Vec<(usize, String)> = EXPECTED
        .iter()
        .map(|e| {
            let whole = format!("{}.{}", e.section, e.key);
            (
                levenshtein(name, &whole).min(levenshtein(key, e.key)),
                whole,
            )
        })
        .collect();
    all.sort();
    // A key without its section is known.
    let most = match all.first() {
        Some((0, _)) => 0,
        _ => (key.chars().count() / 3).max(1),
    };
    let like = |(far, _): &(usize, String)| *far <= most;
    all.into_iter()
        .filter(like)
        .take(3)
        .map(|(_, n)| n)
        .collect()
}

/// Picoseconds; `None` for what is no time, or is finer than that.
fn time(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let unit = &text[digits.len()..];
    let scale = match unit {
        "" => TIMES[0].1,
        unit => TIMES.iter().find(|(word, _)| *word == unit)?.1,
    };
    let (whole, part) = digits
        .trim_end()
        .split_once('.')
        .unwrap_or((digits.trim_end(), ""));
    let is_number = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.len() + part.len() == 0 || !is_number(whole) || !is_number(part) {
        return None;
    }
    let mut picos = match whole {
        "" => 0,
        whole => whole.parse::<u64>().ok()?.checked_mul(scale)?,
    };
    let mut place = scale;
    for digit in part.trim_end_matches('0').bytes() {
        if place % 10 != 0 {
            return None;
        }
        place /= 10;
        picos = picos.checked_add(place * u64::from(digit - b'0'))?;
    }
    Some(picos)
}

fn whole(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The unit of a count in words.
fn unit_words(unit: &str) -> &str {
    match unit {
        "1" => "things",
        unit => unit,
    }
}

/// A value with its unit; times are microseconds.
fn shown(value: u64, unit: &str) -> String {
    match unit {
        "ps" => format!("{} us", value as f64 / 1e6),
        "1" | "policy" => value.to_string(),
        unit => format!("{value} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(setting: &str) -> Result<Machine, MachineError> {
        Machine::named("xt4").unwrap().with_setting(setting)
    }

    #[test]
    fn a_time_is_microseconds_unless_it_has_a_unit() {
        for (text, picos) in [
            ("2.0", 2_000_000),
            ("2", 2_000_000),
            (".5", 500_000),
            ("1.41", 1_410_000),
            ("0.000001", 1),
            ("1410ns", 1_410_000),
            ("7 ps", 7),
            ("0.05ms", 50_000_000),
            ("3µs", 3_000_000),
            ("0", 0),
        ] {
            let machine = set(&format!("host.interrupt_entry={text}")).unwrap();
            assert_eq!(machine.host.interrupt_entry.as_ps(), picos, "{text}");
        }
    }

    #[test]
    fn other_values_are_whole_numbers_in_the_unit_of_the_file() {
        let machine = set("chip.tx_rate=2000").unwrap();
        assert_eq!(machine.chip.tx_rate.bytes_per_us(), 2000);
        assert_eq!(
            set("protocol.inline_data=12B")
                .unwrap()
                .protocol
                .inline_data,
            12
        );
        assert_eq!(
            set("network.age_rr_select=0xFF")
                .unwrap()
                .network
                .age_rr_select,
            255
        );
    }

    #[test]
    fn the_name_says_all_that_was_set() {
        let machine = set("host.trap=0.2").unwrap();
        let machine = machine.with_setting("chip.tx_rate=2000").unwrap();
        assert_eq!(machine.name, "xt4 with host.trap=0.2, chip.tx_rate=2000");
        assert_eq!(machine.host.trap.as_ns(), 200);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_could() {
        for (setting, said) in [
            ("host.trap", "\"host.trap\": SECTION.KEY=VALUE is expected"),
            (
                "host.trap=fast",
                "\"host.trap=fast\": a number of microseconds, or one with ps, ns, us, ms or s is expected",
            ),
            ("host.trap=-1", "a number of microseconds"),
            ("host.trap=0.0000001", "a number of microseconds"),
            ("host.trap=1h", "a number of microseconds"),
            ("host.trap=.", "a number of microseconds"),
            ("host.trap=99999999999999999999", "a number of microseconds"),
            (
                "host.trap=75000",
                "host.trap = 75000 us, want 0 us to 100 us",
            ),
            ("chip.tx_rate=1.5", "a whole number of MB/s is expected"),
            (
                "protocol.inline_data=17",
                "protocol.inline_data = 17 B, want 0 B to 16 B",
            ),
            ("network.tie_break=2", "network.tie_break = 2, want 0 to 1"),
            (
                "host.interupt_entry=2",
                "\"host.interupt_entry\" is not a parameter; is it host.interrupt_entry",
            ),
            ("trap=2", "\"trap\" is not a parameter; is it host.trap"),
            (
                "host.weather=2",
                "\"host.weather\" is not a parameter; SECTION.KEY is expected, such as host.trap",
            ),
            (
                "chip.tx_burst=100",
                "chip.tx_burst = 100 B, want a multiple of 64",
            ),
        ] {
            let error = set(setting).unwrap_err().to_string();
            assert!(error.contains(said), "{setting}: {error}");
        }
    }
}
