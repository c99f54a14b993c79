//! Reading variables: what their texts mean, and a record of what was read for `GASNET_VERBOSEENV`.

use std::cell::RefCell;
use std::fmt;

/// A variable has a value that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}=\"{value}\" is not {expected}")]
pub struct EnvError {
    /// The variable.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What it should have been.
    pub expected: &'static str,
}

/// A variable that was read, as `GASNET_VERBOSEENV` shows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shown {
    name: &'static str,
    /// What counts.
    value: String,
    /// What the environment says, if it says something.
    text: Option<String>,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, text } = self;
        match text {
            None => write!(f, "ENV parameter: {name} = {value:<24} (default)"),
            Some(text) if text == value => write!(f, "ENV parameter: {name} = {value}"),
            Some(text) => write!(f, "ENV parameter: {name} = {text} ({value})"),
        }
    }
}

pub(super) struct Reader<F> {
    get: F,
    shown: RefCell<Vec<Shown>>,
    /// What counts as something else than it says.
    bent: RefCell<Vec<String>>,
}

/// What a reader has read.
#[derive(Debug)]
pub(super) struct Read {
    /// All variables, in order.
    pub(super) shown: Vec<Shown>,
    /// A line for each value that counts as another one.
    pub(super) bent: Vec<String>,
}

impl Read {
    /// The variables that the environment has.
    pub(super) fn set(&self) -> Vec<&'static str> {
        let set = self.shown.iter().filter(|shown| shown.text.is_some());
        set.map(|shown| shown.name).collect()
    }
}

impl<F: Fn(&str) -> Option<String>> Reader<F> {
    pub(super) fn new(get: F) -> Self {
        Self {
            get,
            shown: RefCell::default(),
            bent: RefCell::default(),
        }
    }

    /// All that was read.
    pub(super) fn done(self) -> Read {
        Read {
            shown: self.shown.into_inner(),
            bent: self.bent.into_inner(),
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        (self.get)(name)
            .map(|v| v.trim().to_owned())
            .filter(|v| !v.is_empty())
    }

    /// The text of a variable, shown as `unset` where it is not there.
    pub(super) fn shown_text(&self, name: &'static str, unset: &str) -> Option<String> {
        let text = self.text(name);
        self.show(name, text.as_deref().unwrap_or(unset));
        text
    }

    fn show(&self, name: &'static str, value: impl fmt::Display) {
        let text = self.text(name);
        let value = value.to_string();
        self.shown.borrow_mut().push(Shown { name, value, text });
    }

    /// The value of `name`, or `None`, shown as `unset`.
    fn read<T: fmt::Display>(
        &self,
        name: &'static str,
        unset: &str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, EnvError> {
        let Some(value) = self.text(name) else {
            self.show(name, unset);
            return Ok(None);
        };
        let parsed = parse(&value).ok_or(EnvError {
            name,
            value,
            expected,
        })?;
        self.show(name, &parsed);
        Ok(Some(parsed))
    }

    pub(super) fn number(&self, name: &'static str, unset: &str) -> Result<Option<u64>, EnvError> {
        self.read(name, unset, "a number", parse_number)
    }

    /// A value that counts as what `fit` makes of it, which is said where that is something else.
    fn fitted<T: fmt::Display + PartialEq + Copy>(
        &self,
        name: &'static str,
        unset: &str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
        fit: impl Fn(T) -> T,
    ) -> Result<Option<T>, EnvError> {
        let parsed = |text: &str| parse(text).map(|said| (said, fit(said)));
        let found = self.read(name, unset, expected, |text| {
            let (said, counts) = parsed(text)?;
            if said != counts {
                let line = format!("{name}={text} counts as {counts}");
                self.bent.borrow_mut().push(line);
            }
            Some(counts)
        })?;
        Ok(found)
    }

    /// A number that counts as `most` where it is more.
    pub(super) fn number_up_to(
        &self,
        name: &'static str,
        unset: &str,
        most: u64,
    ) -> Result<Option<u64>, EnvError> {
        self.fitted(name, unset, "a number", parse_number, |n| n.min(most))
    }

    /// An amount of memory: megabytes, unless a suffix says otherwise. It counts as what `fit` makes of it.
    pub(super) fn megabytes(
        &self,
        name: &'static str,
        unset: &str,
        fit: impl Fn(u64) -> u64,
    ) -> Result<Option<u64>, EnvError> {
        let parse = |text: &str| {
            let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            if plain {
                parse_number(&format!("{text}M")).map(Bytes)
            } else {
                parse_number(text).map(Bytes)
            }
        };
        let fit = |Bytes(n)| Bytes(fit(n));
        let found = self.fitted(name, unset, "an amount of memory", parse, fit)?;
        Ok(found.map(|Bytes(n)| n))
    }

    /// A number between 0 and 1, neither of them.
    pub(super) fn ratio(&self, name: &'static str, default: f64) -> Result<f64, EnvError> {
        let expected = "a number between 0 and 1";
        let found = self.read(name, &default.to_string(), expected, |text| {
            text.parse::<f64>().ok().filter(|v| *v > 0.0 && *v < 1.0)
        })?;
        Ok(found.unwrap_or(default))
    }

    /// A number that counts as the nearest that makes sense.
    pub(super) fn count(
        &self,
        name: &'static str,
        default: u64,
        least: u64,
        most: u64,
    ) -> Result<u32, EnvError> {
        let fit = |n: u64| n.clamp(least, most);
        let n = self.fitted(name, &default.to_string(), "a number", parse_number, fit)?;
        Ok(u32::try_from(n.unwrap_or(default)).unwrap_or(u32::MAX))
    }

    pub(super) fn seconds(&self, name: &'static str, unset: &str) -> Result<Option<f64>, EnvError> {
        self.read(name, unset, "a number of seconds", |text| {
            text.parse::<f64>()
                .ok()
                .filter(|v| v.is_finite() && *v >= 0.0)
        })
    }

    /// `None` where the environment does not say.
    pub(super) fn choice(
        &self,
        name: &'static str,
        default: bool,
    ) -> Result<Option<bool>, EnvError> {
        let word = |yes| if yes { "YES" } else { "NO" };
        let found = self.read(name, word(default), "yes or no", |text| {
            match text.to_ascii_lowercase().as_str() {
                "1" | "y" | "yes" => Some("YES"),
                "0" | "n" | "no" => Some("NO"),
                _ => None,
            }
        })?;
        Ok(found.map(|w| w == "YES"))
    }

    pub(super) fn switch(&self, name: &'static str, default: bool) -> Result<bool, EnvError> {
        Ok(self.choice(name, default)?.unwrap_or(default))
    }
}

/// An amount of memory, written so that it is read as the same again.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        let whole = |(shift, _): &(u32, &str)| self.0 > 0 && self.0.trailing_zeros() >= *shift;
        match units.into_iter().find(whole) {
            Some((shift, unit)) => f.pad(&format!("{}{unit}", self.0 >> shift)),
            None => f.pad(&format!("{}B", self.0)),
        }
    }
}

/// Decimal, with a fraction if a suffix makes it whole, or `0x` hexadecimal; K, M, G, T are powers
/// of 1024, B is 1.
fn parse_number(text: &str) -> Option<u64> {
    let upper = text.to_ascii_uppercase();
    let upper = upper.strip_prefix('+').unwrap_or(&upper);
    if let Some(hex) = upper.strip_prefix("0X") {
        return u64::from_str_radix(hex, 16).ok();
    }
    let shift = match upper.as_bytes().last()? {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        b'T' => 40,
        _ => 0,
    };
    let digits = upper.strip_suffix(['B', 'K', 'M', 'G', 'T']);
    let digits = digits.unwrap_or(upper);
    let unit = 1u64 << shift;
    match digits.split_once('.') {
        None => digits.parse::<u64>().ok()?.checked_mul(unit),
        Some((whole, part)) => {
            let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
            let tenths = part.parse::<u64>().ok()?;
            let scale = 10u64.checked_pow(u32::try_from(part.len()).ok()?)?;
            let part = u128::from(tenths) * u128::from(unit) / u128::from(scale);
            whole.checked_add(u64::try_from(part).ok()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_they_are_read() {
        for (bytes, text) in [
            (0, "0B"),
            (1000, "1000B"),
            (131_072, "128K"),
            (400 << 20, "400M"),
            (1 << 40, "1T"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
            assert_eq!(parse_number(text), Some(bytes));
        }
    }

    #[test]
    fn numbers() {
        for (text, number) in [
            ("12", Some(12)),
            ("+12", Some(12)),
            ("0x1F", Some(31)),
            ("3m", Some(3 << 20)),
            ("1.5K", Some(1536)),
            ("2B", Some(2)),
            ("1.9", Some(1)),
            ("16777216T", None),
            ("-1", None),
            ("", None),
            ("K", None),
            ("1.", None),
            ("1.-5", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(parse_number(text), number, "{text:?}");
        }
    }
}
