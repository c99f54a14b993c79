//! Lines of trace and statistics files, taken apart. The format is in `conduit::trace`.

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line<'a> {
    /// `gasnet_nodes(): N`.
    Nodes(u32),
    /// `Total application run time: S`.
    Seconds(f64),
    /// An event of the program.
    Event(Event<'a>),
    /// A counter of the summary at the end.
    Counter(Counter<'a>),
    /// Nothing that is summed up.
    Other,
}

/// An event with a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event<'a> {
    /// `FILE:LINE`, if known.
    pub(crate) place: Option<&'a str>,
    pub(crate) category: char,
    /// Such as `PUT_NB_LOCAL`.
    pub(crate) name: &'a str,
    /// Bytes, microseconds, 0 or 1; nothing where only the event counts.
    pub(crate) number: Option<f64>,
}

/// A counter of one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counter<'a> {
    pub(crate) name: &'a str,
    pub(crate) count: u64,
    /// `sz`, `waittime (us)`; none for a mere count.
    pub(crate) unit: Option<&'a str>,
    /// Smallest, largest, sum.
    pub(crate) range: (f64, f64, f64),
}

/// The rank of a line and what it says; `None` for what is no line of such a file.
pub(crate) fn parse(line: &str) -> Option<(u32, Line<'_>)> {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rank = line.get(..digits)?.parse().ok()?;
    let rest = &line[digits..];
    if let Some(text) = rest.strip_prefix("> ") {
        return Some((rank, plain(text)));
    }
    // The thread in brackets, the time.
    let rest = match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')')?.1,
        None => rest,
    };
    let (time, rest) = rest.trim_start().split_once("s>")?;
    time.parse::<f64>().ok()?;
    let rest = rest.strip_prefix(' ')?;
    let (place, rest) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (place, rest) = rest.split_once("] ")?;
            (Some(place), rest)
        }
        None => (None, rest),
    };
    let (category, text) = rest.strip_prefix('(')?.split_once(") ")?;
    let category = category.parse().ok()?;
    Some((rank, event(place, category, text)))
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

fn event<'a>(place: Option<&'a str>, category: char, text: &'a str) -> Line<'a> {
    let end = text.find([':', '(']).unwrap_or(text.len());
    let name = &text[..end];
    // D repeats what other lines count; H and I are prose.
    if !is_name(name) || matches!(category, 'D' | 'H' | 'I' | 'C') {
        return Line::Other;
    }
    let number = match text.split_once("nbytes=") {
        Some((_, rest)) => first_number(rest),
        None if category == 'A' => None,
        None => text
            .rsplit_once('=')
            .and_then(|(_, rest)| first_number(rest)),
    };
    Line::Event(Event {
        place,
        category,
        name,
        number: number.filter(|_| text[end..].starts_with(':')),
    })
}

fn first_number(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text[..end].parse().ok()
}

fn plain(text: &str) -> Line<'_> {
    if let Some(nodes) = text.strip_prefix("gasnet_nodes(): ") {
        return nodes.trim().parse().map_or(Line::Other, Line::Nodes);
    }
    if let Some(time) = text.strip_prefix("Total application run time:") {
        return first_number(time).map_or(Line::Other, Line::Seconds);
    }
    // Counters are indented by one, totals of them are not.
    match text.strip_prefix(' ').and_then(counter) {
        Some(counter) => Line::Counter(counter),
        None => Line::Other,
    }
}

fn counter(text: &str) -> Option<Counter<'_>> {
    let (name, rest) = text.split_once(':')?;
    let name = name.strip_suffix(" cnt").unwrap_or(name);
    if !is_name(name) {
        return None;
    }
    let rest = rest.trim_start();
    let (count, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let count = count.parse().ok()?;
    let Some(rest) = rest.trim_start().strip_prefix("avg/min/max/total ") else {
        return Some(Counter {
            name,
            count,
            unit: None,
            range: (0.0, 0.0, 0.0),
        });
    };
    let (unit, numbers) = rest.split_once(" = ")?;
    let mut numbers = numbers.split('/').map(|n| n.trim().parse::<f64>().ok());
    let [_, least, most, sum] = std::array::from_fn(|_| numbers.next().flatten());
    Some(Counter {
        name,
        count,
        unit: Some(unit),
        range: (least?, most?, sum?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event_of(line: &str) -> (u32, Option<&str>, char, &str, Option<f64>) {
        match parse(line) {
            Some((rank, Line::Event(e))) => (rank, e.place, e.category, e.name, e.number),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn events() {
        assert_eq!(
            event_of("3 0.000123s> [src/heat.rs:12] (P) PUT_NB: sz =      8"),
            (3, Some("src/heat.rs:12"), 'P', "PUT_NB", Some(8.0))
        );
        assert_eq!(
            event_of("12(7f01) 17.250000s> (B) BARRIER_WAIT: waittime =  2.834us"),
            (12, None, 'B', "BARRIER_WAIT", Some(2.834))
        );
        assert_eq!(
            event_of(
                "0 0.1s> (A) AMREQUEST_MEDIUM: dest=1 handler=200 source_addr=0x0 1 nbytes=77 args: 0x1"
            ),
            (0, None, 'A', "AMREQUEST_MEDIUM", Some(77.0))
        );
        assert_eq!(
            event_of("0 0.1s> (A) AMREQUEST_SHORT: dest=1 handler=200 args: 0x00000005").4,
            None
        );
        assert_eq!(
            event_of("0 0.1s> (B) BARRIER_NOTIFY(team=GASNET_TEAM_ALL,id=0,flags=1)").4,
            None
        );
    }

    #[test]
    fn other_lines() {
        assert_eq!(parse("2> gasnet_nodes(): 4"), Some((2, Line::Nodes(4))));
        assert_eq!(
            parse("2> Total application run time:   1.500000s"),
            Some((2, Line::Seconds(1.5)))
        );
        for prose in [
            "0 0.1s> (H) PUT: 8",
            "0 0.1s> (D) PUT: (1,0x0 1) <- 0x0 2 (8 bytes): 00",
            "0> Command-line: x",
            "0> Total puts:   3  avg/min/max/total sz = 1/1/1/1",
            "0> ",
        ] {
            assert_eq!(parse(prose), Some((0, Line::Other)), "{prose}");
        }
        for junk in [
            "",
            "x",
            "0",
            "0 x",
            "0 1.0s>",
            "0 1.0s> (P",
            "-1> a",
            "99999999999> a",
        ] {
            assert_eq!(parse(junk), None, "{junk}");
        }
    }

    #[test]
    fn counters() {
        let counter = |line| match parse(line) {
            Some((_, Line::Counter(c))) => (c.name, c.count, c.unit, c.range),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            counter("1>  PUT:                           2  avg/min/max/total sz = 16/8/24/32"),
            ("PUT", 2, Some("sz"), (8.0, 24.0, 32.0))
        );
        assert_eq!(
            counter("1>  AMREQUEST_SHORT cnt:           7"),
            ("AMREQUEST_SHORT", 7, None, (0.0, 0.0, 0.0))
        );
        assert_eq!(
            counter("1>  BARRIER_WAIT:       1  avg/min/max/total waittime (us) = 1.5/1.5/1.5/1.5")
                .2,
            Some("waittime (us)")
        );
        assert_eq!(
            parse("1>  PUT: 2 avg/min/max/total sz = 1/2"),
            Some((1, Line::Other))
        );
    }
}
