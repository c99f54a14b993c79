//! What `portolan info --variables` says: every variable with its value, what it is without one, and whether it has an
//! effect here.

use host::variables::{Reader, VARIABLES, Variable, unknown_variables};
use portals_shim::fabric::FabricKind;
use serde::Serialize;

/// A variable as this process has it.
#[derive(Debug, Serialize)]
pub(super) struct VariableLine {
    variable: &'static str,
    /// Its value; absent where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    default: &'static str,
    meaning: &'static str,
    read_by: &'static str,
    /// Why the value changes nothing; absent where it counts, or is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_effect: Option<String>,
}

/// All variables, and what to say of those that nothing reads. `get` gives a value of the environment; `fabric` is the one
/// that the environment names.
pub(super) fn lines(
    fabric: Option<FabricKind>,
    get: impl Fn(&str) -> Option<String>,
    names: impl IntoIterator<Item = String>,
) -> (Vec<VariableLine>, Vec<String>) {
    let line = |variable: &Variable| {
        let value = get(variable.name);
        let no_effect = value
            .as_deref()
            .and_then(|v| no_effect(variable, v, fabric));
        VariableLine {
            variable: variable.name,
            value,
            default: variable.default,
            meaning: variable.meaning,
            read_by: variable.reader.words(),
            no_effect,
        }
    };
    (
        VARIABLES.iter().map(line).collect(),
        unknown_variables(names),
    )
}

/// Why a value changes nothing.
fn no_effect(variable: &Variable, value: &str, fabric: Option<FabricKind>) -> Option<String> {
    let other = |only: FabricKind| {
        let fabric = fabric.filter(|fabric| *fabric != only)?;
        Some(format!("the fabric is {fabric}"))
    };
    match variable.reader {
        Reader::Nobody => Some("nothing reads it".to_owned()),
        _ if value.is_empty() => Some("it is empty".to_owned()),
        Reader::Verbs => other(FabricKind::Verbs),
        Reader::Seastar | Reader::Simulation => other(FabricKind::Seastar),
        _ => None,
    }
}

/// The lines for people: a heading for each reader, and two lines for each variable.
pub(super) fn words(lines: &[VariableLine], unknown: &[String]) -> String {
    let mut text = Vec::new();
    let mut reader = "";
    for line in lines {
        if line.read_by != reader {
            reader = line.read_by;
            if !text.is_empty() {
                text.push(String::new());
            }
            text.push(format!("Read by {reader}:"));
        }
        let name = line.variable;
        let set = match (&line.value, &line.no_effect) {
            (None, _) => format!("  {name} is not set; default: {}", line.default),
            (Some(value), None) => format!("  {name}={value}  (default: {})", line.default),
            (Some(value), Some(why)) => format!("  {name}={value}  has no effect: {why}"),
        };
        text.push(set);
        text.push(format!("      {}", line.meaning));
    }
    if !unknown.is_empty() {
        text.push(String::new());
        text.extend(unknown.iter().cloned());
    }
    text.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of an environment over a fabric.
    fn said(set: &[(&str, &str)], fabric: Option<FabricKind>) -> String {
        let get = |name: &str| {
            let found = set.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let names = set.iter().map(|(name, _)| (*name).to_owned());
        let (lines, unknown) = lines(fabric, get, names);
        assert_eq!(lines.len(), VARIABLES.len());
        words(&lines, &unknown)
    }

    #[test]
    fn each_variable_has_its_value_or_its_default_and_its_meaning() {
        let text = said(&[("PORTOLAN_MACHINE", "xt3")], None);
        assert!(
            text.contains("  PORTOLAN_MACHINE=xt3  (default: xt4)\n      machine that"),
            "{text}"
        );
        assert!(
            text.contains("  PORTOLAN_SSH is not set; default: ssh -x"),
            "{text}"
        );
        for reader in Reader::ALL {
            let heading = format!("Read by {}:", reader.words());
            assert_eq!(text.matches(&heading).count(), 1, "{heading}");
        }
    }

    #[test]
    fn what_has_no_effect_is_said_with_the_reason() {
        let set = [
            ("PORTOLAN_RINGS", "4"),
            ("PORTOLAN_MACHINE", "xt3"),
            ("PORTOLAN_LOG", ""),
            ("GASNET_PORTAL_ACCEL", "1"),
            ("PORTOLAN_FABRIK", "shm"),
        ];
        let text = said(&set, Some(FabricKind::Shm));
        for words in [
            "PORTOLAN_RINGS=4  has no effect: the fabric is shm",
            "PORTOLAN_MACHINE=xt3  has no effect: the fabric is shm",
            "PORTOLAN_LOG=  has no effect: it is empty",
            "GASNET_PORTAL_ACCEL=1  has no effect: nothing reads it",
            "PORTOLAN_FABRIK is no variable of Portolan; is it PORTOLAN_FABRIC?",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let verbs = said(&set, Some(FabricKind::Verbs));
        assert!(verbs.contains("PORTOLAN_RINGS=4  (default: 8)"), "{verbs}");
        let open = said(&set, None);
        assert!(
            open.contains("PORTOLAN_MACHINE=xt3  (default: xt4)"),
            "{open}"
        );
    }
}
