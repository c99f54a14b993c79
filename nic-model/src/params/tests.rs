//! What is accepted, what is refused and how.

use super::*;

fn xt4() -> &'static str {
    include_str!("../../machines/xt4.toml")
}

#[test]
fn built_in_machines_load() {
    for name in Machine::names() {
        let machine = Machine::named(name).unwrap();
        assert_eq!(machine.name, name);
        assert!(machine.parameters.len() > 30);
    }
    let error = Machine::named("xt9").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("no machine named \"xt9\"; built in: redstorm, ")
    );
}

/// The file with the line of `key` replaced, and that line's number.
fn with(key: &str, line: &str) -> (String, usize) {
    let at = xt4().lines().position(|l| l.starts_with(key)).unwrap();
    let text: Vec<&str> = xt4()
        .lines()
        .enumerate()
        .map(|(n, l)| if n == at { line } else { l })
        .collect();
    (text.join("\n"), at + 1)
}

#[test]
fn absurd_values_are_refused_with_key_line_and_reason() {
    let (text, line) = with(
        "router_hop",
        r#"router_hop = { value = -1, unit = "ps", status = "ours", source = "-" }"#,
    );
    assert_eq!(
        Machine::from_toml(&text).unwrap_err().to_string(),
        format!("machine file line {line}: network.router_hop = -1 ps, want 1 to 1000000")
    );
    let (text, line) = with(
        "tx_rate",
        r#"tx_rate = { value = 2, unit = "GB/s", status = "ours", source = "-" }"#,
    );
    assert_eq!(
        Machine::from_toml(&text).unwrap_err().to_string(),
        format!("machine file line {line}: chip.tx_rate is in \"GB/s\", want \"MB/s\"")
    );
    let (text, _) = with("trap", "");
    let head = 1 + text.lines().position(|l| l == "[host]").unwrap();
    assert_eq!(
        Machine::from_toml(&text).unwrap_err().to_string(),
        format!("machine file line {head}: host.trap is missing (ps, 0 to 100000000)")
    );
    let (text, line) = with(
        "trap",
        r#"trapp = { value = 1, unit = "ps", status = "ours", source = "-" }"#,
    );
    let error = Machine::from_toml(&text).unwrap_err().to_string();
    assert!(error.contains("host.trap is missing"), "{error}");
    let (text, _) = (text.replace("trapp = ", "trap = "), line);
    let extra = format!(
        "{text}\nspeed = {{ value = 1, unit = \"ps\", status = \"ours\", source = \"-\" }}"
    );
    let last = extra.lines().count();
    assert_eq!(
        Machine::from_toml(&extra).unwrap_err().to_string(),
        format!("machine file line {last}: host.speed is not a parameter")
    );
    let (text, line) = with("trap", r#"trap = { value = 1.5, unit = "ps" }"#);
    let error = Machine::from_toml(&text).unwrap_err().to_string();
    assert!(error.contains(&format!("line {line}")), "{error}");
}

#[test]
fn a_file_states_only_what_differs_from_its_base() {
    let text = r#"
name = "mine"
description = "-"
base = "xt4"
[host]
trap = { value = 1, unit = "ps", status = "ours", source = "-" }
"#;
    let (mine, xt4) = (
        Machine::from_toml(text).unwrap(),
        Machine::named("xt4").unwrap(),
    );
    assert_eq!(mine.host.trap, SimDuration::from_ps(1));
    let differ = |(a, b): &(&ParameterInfo, &ParameterInfo)| a.value != b.value;
    let pairs = mine.parameters.iter().zip(&xt4.parameters);
    assert_eq!(pairs.filter(differ).count(), 1);
    let refused = |from: &str, to: &str| {
        let text = text.replace(from, to);
        Machine::from_toml(&text).unwrap_err().to_string()
    };
    assert!(refused("xt4", "xt9").starts_with("no machine named \"xt9\""));
    assert!(refused("trap", "tarp").ends_with("line 6: host.tarp is not a parameter"));
    assert!(refused("base =", "basis =").contains("line 4"));
    assert!(refused("base = \"xt4\"", "").contains("line 6: network.router_hop is missing"));
    assert!(refused("[host]", "os = \"minix\"\n[host]").contains("line 5"));
}

#[test]
fn pages_belong_to_linux() {
    let with = |os: &str, page: u32| {
        let text = format!(
            "name = \"mine\"\ndescription = \"-\"\nbase = \"xt4\"\nos = \"{os}\"\n[host]\npage_size = \
             {{ value = {page}, unit = \"B\", status = \"ours\", source = \"-\" }}"
        );
        Machine::from_toml(&text).map_err(|e| e.to_string())
    };
    assert!(with("linux", 4096).is_ok());
    assert_eq!(
        with("linux", 5000).unwrap_err(),
        "machine file line 6: host.page_size = 5000 B, want a power of two from 4096 on under linux"
    );
    assert!(with("catamount", 4096).unwrap_err().contains("line 6"));
}

#[test]
fn one_parameter_can_be_changed_by_name() {
    let xt4 = Machine::named("xt4").unwrap();
    let slow = xt4.with("chip.tx_rate", 3).unwrap();
    assert_eq!(
        (slow.value("chip.tx_rate"), slow.chip.tx_rate.time(3)),
        (Some(3), SimDuration::from_us(1))
    );
    assert_eq!(slow.host.trap, xt4.host.trap);
    for (name, value, said) in [
        (
            "chip.tx_rate",
            0,
            "machine file line 0: chip.tx_rate = 0 MB/s, want 1 to 100000",
        ),
        (
            "chip.tx_rate",
            100_001,
            "machine file line 0: chip.tx_rate = 100001 MB/s, want 1 to 100000",
        ),
        (
            "chip.tx_burst",
            100,
            "chip.tx_burst = 100 B, want a multiple of 64",
        ),
        (
            "tx_rate",
            3,
            "\"tx_rate\" is not a parameter; is it chip.tx_rate?",
        ),
    ] {
        assert_eq!(xt4.with(name, value).unwrap_err().to_string(), said);
    }
}

#[test]
fn a_file_is_chosen_by_its_path() {
    assert!(Machine::is_file("./xt4") && Machine::is_file("my.toml") && !Machine::is_file("xt4"));
    let error = Machine::choose("/no/such.toml").unwrap_err().to_string();
    assert_eq!(error, "cannot read machine file /no/such.toml");
}

/// Each value of a machine file, and what a file, or a change by name, may not make of it.
#[test]
fn every_value_has_a_range() {
    let xt4 = Machine::named("xt4").unwrap();
    for parameter in &xt4.parameters {
        let (key, unit) = (parameter.key, parameter.unit);
        for value in [-1, i64::MIN, 1_000_000_000_000_000_000, i64::MAX] {
            let line = format!(
                "{key} = {{ value = {value}, unit = \"{unit}\", status = \"ours\", source = \"-\" }}"
            );
            let (text, at) = with(&format!("{key} ="), &line);
            let error = Machine::from_toml(&text).unwrap_err().to_string();
            let section = parameter.section;
            let begin = format!("machine file line {at}: {section}.{key} = {value} {unit}, want ");
            assert!(error.starts_with(&begin), "{error}");
        }
        let name = format!("{}.{key}", parameter.section);
        assert!(
            xt4.with(&name, 1_000_000_000_000_000_000).is_err(),
            "{name}"
        );
        assert!(xt4.with(&name, u64::MAX).is_err(), "{name}");
    }
}

/// The last values that are taken, and the first that are not, of some that have reasons.
#[test]
fn ranges_end_where_they_should() {
    let xt4 = Machine::named("xt4").unwrap();
    for (name, least, most) in [
        // A hop takes time, and at most a microsecond.
        ("network.router_hop", 1, 1_000_000),
        // Three policies.
        ("protocol.exhaustion", 0, 2),
        // One for messages to a peer, one for those of another; node ids have 15 bits.
        ("firmware.sources", 2, 32_768),
        // The header packet has 64 bytes, of which a header takes 48.
        ("protocol.inline_data", 0, 16),
        ("protocol.source_size", 16, 1_024),
        ("protocol.datagram", 4, 65_536),
        ("accelerated.md_segments", 1, 4_096),
    ] {
        let (_, key) = name.split_once('.').unwrap();
        let named = |p: &&ParameterInfo| format!("{}.{}", p.section, p.key) == name;
        let unit = xt4.parameters.iter().find(named).unwrap().unit;
        let in_file = |value: u64| {
            let line = format!(
                "{key} = {{ value = {value}, unit = \"{unit}\", status = \"ours\", source = \"-\" }}"
            );
            Machine::from_toml(&with(&format!("{key} ="), &line).0).is_ok()
        };
        let by_name = |value| xt4.with(name, value).is_ok();
        for (value, taken) in [(least, true), (most, true), (most + 1, false)] {
            assert_eq!(by_name(value), taken, "{name} = {value}");
            assert_eq!(in_file(value), taken, "{name} = {value} in a file");
        }
        if let Some(less) = least.checked_sub(1) {
            assert!(!by_name(less) && !in_file(less), "{name} = {less}");
        }
    }
}
