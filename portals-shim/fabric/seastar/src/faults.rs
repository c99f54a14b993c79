//! What goes wrong on the simulated machine, as users choose it: a fault file, a seed with rates, or
//! both.

use nic_model::{FaultRates, Faults, Topology};

/// What a seed with rates looks like.
const FORM: &str = "N or N:RATE=VALUE,… is expected, such as 7:lost_packets=1000";

/// The faults of `file`, a path, and of `seed`: `N`, or `N:RATE=VALUE,…` with the rates of a fault
/// file. A seed takes the place of the file's, and so do rates if there are any.
pub(super) fn choose(file: Option<&str>, seed: Option<&str>) -> Result<Faults, String> {
    let mut faults = match file {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            Faults::from_toml(&text).map_err(|error| format!("{path}: {error}"))?
        }
        None => Faults::none(),
    };
    let Some(text) = seed else {
        return Ok(faults);
    };
    let shown: String = text.chars().take(80).collect();
    let wrong = |why: &str| format!("fault seed {shown:?}: {why}");
    let (number, rates) = match text.split_once(':') {
        Some((number, rates)) => (number, Some(rates)),
        None => (text, None),
    };
    let number = number.trim().parse().map_err(|_| wrong(FORM))?;
    faults = faults.with_seed(number);
    if let Some(rates) = rates {
        faults = faults.with_rates(parse_rates(rates).map_err(|why| wrong(&why))?);
    }
    if faults.is_empty() {
        return Err(wrong("nothing goes wrong without rates or a fault file"));
    }
    // Whether the rates are possible; any machine does for that, and no node of it is looked at.
    let nowhere = Faults::none().with_rates(faults.rates());
    if let Ok(any) = Topology::torus([1, 1, 1]) {
        nowhere.check(&any).map_err(|why| wrong(&why.to_string()))?;
    }
    Ok(faults)
}

fn parse_rates(text: &str) -> Result<FaultRates, String> {
    let mut rates = FaultRates::default();
    for rate in text.split(',') {
        let (name, value) = rate.split_once('=').ok_or(FORM)?;
        let place = match name.trim() {
            "link_bit_errors" => &mut rates.link_bit_errors,
            "lost_packets" => &mut rates.lost_packets,
            "corrupted_packets" => &mut rates.corrupted_packets,
            other => {
                let other: String = other.chars().take(40).collect();
                return Err(format!(
                    "no rate {other:?}; the rates are link_bit_errors, lost_packets and corrupted_packets"
                ));
            }
        };
        let digits = value.trim().replace('_', "");
        *place = digits
            .parse()
            .map_err(|_| format!("{name} is not a whole number"))?;
    }
    Ok(rates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_with_rates_is_what_a_file_says() {
        let text = "seed = 7\n[rates]\nlink_bit_errors = 1_000\nlost_packets = 5\n";
        let file = Faults::from_toml(text).unwrap();
        let short = choose(None, Some("7:link_bit_errors=1_000,lost_packets=5")).unwrap();
        assert_eq!(short, file);
        assert!(choose(None, None).unwrap().is_empty());
    }

    #[test]
    fn a_seed_takes_the_place_of_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("faults");
        let text = "seed = 1\n[rates]\nlost_packets = 5\n[[dead_node]]\nnode = 0\nat_ns = 9\n";
        std::fs::write(&path, text).unwrap();
        let name = path.to_str();
        let other = choose(name, Some("8")).unwrap();
        assert_eq!((other.seed(), other.rates().lost_packets), (8, 5));
        let other = choose(name, Some("8:corrupted_packets=3")).unwrap();
        assert_eq!(other.rates().lost_packets, 0);
        assert_eq!(other.script().count(), 1);
        std::fs::write(&path, text.replace("at_ns = 9", "at_ns = -9")).unwrap();
        let error = choose(name, None).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(error.contains("line 6"), "{error}");
        let error = choose(name, None).unwrap_err();
        assert!(error.starts_with(name.unwrap()), "{error}");
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for (seed, why) in [
            ("7", "nothing goes wrong"),
            ("x:lost_packets=5", "is expected"),
            ("-1:lost_packets=5", "is expected"),
            ("7:lost_packets", "is expected"),
            ("7:lost=5", "no rate \"lost\""),
            ("7:lost_packets=many", "whole number"),
            ("7:lost_packets=1000000001", "want 0 to 1000000000"),
            ("7:link_bit_errors=500000001", "want 0 to 500000000"),
        ] {
            let error = choose(None, Some(seed)).unwrap_err();
            assert!(
                error.contains(why) && error.contains("fault seed"),
                "{error}"
            );
        }
    }
}
