//! Whole numbers on the command line.

use std::fmt::Display;
use std::ops::RangeInclusive;

/// Reads a whole number of `range`. What is none is refused with words that say what is expected.
pub(crate) fn whole<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: Copy + Display + Into<i128> + TryFrom<i128> + Send + Sync + 'static,
{
    let (least, most) = (*range.start(), *range.end());
    move |text| {
        let number: i128 = text
            .parse()
            .map_err(|_| format!("a whole number is expected, such as {least}"))?;
        let wanted = (least.into()..=most.into()).contains(&number);
        T::try_from(number)
            .ok()
            .filter(|_| wanted)
            .ok_or_else(|| format!("{number} is not in {least}..={most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_or_the_refusal_says_what_is_expected() {
        let read = whole(2..=64u32);
        assert_eq!(read("2"), Ok(2));
        assert_eq!(read("64"), Ok(64));
        for (text, said) in [
            ("1", "1 is not in 2..=64"),
            ("65", "65 is not in 2..=64"),
            ("-1", "-1 is not in 2..=64"),
            ("4294967298", "4294967298 is not in 2..=64"),
            ("abc", "a whole number is expected, such as 2"),
            ("", "a whole number is expected, such as 2"),
            ("2.5", "a whole number is expected, such as 2"),
        ] {
            assert_eq!(read(text), Err(said.to_owned()), "{text}");
        }
    }
}
