//! Which protocol carries which operation: what `portolan info --protocols` and `PORTOLAN_PROTO_INFO` print.
//!
//! A fabric makes its table by asking the function that chooses for every length ([`Protocols::add`]), so that the table says
//! what the choice does. Names are those of UCX: `short`, `eager`, `rndv` for a rendezvous, `zcopy` where the data is not copied
//! into memory of the fabric.

use serde::Serialize;
use std::fmt;

/// The variable that has rank 0 print the table when it opens the fabric, and over verbs what each protocol has carried when it
/// closes it.
pub const VARIABLE: &str = "PORTOLAN_PROTO_INFO";

/// Whether the user asks for the table: [`VARIABLE`] is neither empty nor 0.
pub fn is_wanted() -> bool {
    std::env::var(VARIABLE).is_ok_and(|value| !matches!(value.trim(), "" | "0"))
}

/// What a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// `PtlPut` and its kin.
    Put,
    /// `PtlGet` and its kin.
    Get,
}

/// What the target's descriptor permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reached {
    /// It has no event queue and is the only one that can match: initiators reach its memory without the target's library.
    Direct,
    /// It has an event queue, and its owner advertises it: the adapters place the data, and a message notifies the owner.
    Notified,
    /// The target's library matches the message.
    Matched,
}

/// One protocol, and the lengths that go by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Protocol {
    /// Of which operation.
    pub operation: Operation,
    /// To which descriptors.
    pub reached: Reached,
    /// Shortest data, bytes.
    pub from: u64,
    /// Longest data, bytes; none where there is no limit but that of a message.
    pub to: Option<u64>,
    /// Its name.
    pub name: &'static str,
    /// Why these lengths go by it.
    pub why: &'static str,
}

/// The protocols of one fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Protocols {
    /// The fabric.
    pub fabric: &'static str,
    /// What of it, and of this machine, the choice depends on.
    pub about: String,
    /// By operation, descriptor and length.
    pub rows: Vec<Protocol>,
}

/// Lengths beyond which no fabric chooses anew, bytes.
const LONGEST: u64 = 1 << 32;

impl Protocols {
    /// A table without rows.
    pub const fn new(fabric: &'static str, about: String) -> Self {
        let rows = Vec::new();
        Self {
            fabric,
            about,
            rows,
        }
    }

    /// Adds what `choose` gives for each length, as (name, reason).
    pub fn add(
        &mut self,
        (operation, reached): (Operation, Reached),
        choose: impl Fn(u64) -> (&'static str, &'static str),
    ) {
        for (from, to) in ranges(LONGEST, |len| choose(len).0) {
            let (name, why) = choose(from);
            self.rows.push(Protocol {
                operation,
                reached,
                from,
                to: (to < LONGEST).then_some(to),
                name,
                why,
            });
        }
    }

    /// The protocol of an operation of `len` bytes.
    pub fn of(&self, operation: Operation, reached: Reached, len: u64) -> Option<&Protocol> {
        self.rows.iter().find(|row| {
            (row.operation, row.reached) == (operation, reached)
                && row.from <= len
                && row.to.is_none_or(|to| len <= to)
        })
    }
}

/// The ranges of `0..=most` in which `probe` gives the same: (first, last). A change is found unless two lie between neighbouring
/// powers of two and undo each other.
fn ranges<P: PartialEq>(most: u64, probe: impl Fn(u64) -> P) -> Vec<(u64, u64)> {
    /// Adds the lengths in `low..high` after which `probe` changes.
    fn changes<P: PartialEq>(low: u64, high: u64, probe: &impl Fn(u64) -> P, out: &mut Vec<u64>) {
        if probe(low) == probe(high) {
            return;
        }
        if high - low == 1 {
            out.push(low);
            return;
        }
        let middle = low + (high - low) / 2;
        changes(low, middle, probe, out);
        changes(middle, high, probe, out);
    }
    let mut ends = Vec::new();
    let mut low = 0;
    let powers = (0..).map(|power| 1 << power);
    for high in powers.take_while(|high| *high < most).chain([most]) {
        changes(low, high, &probe, &mut ends);
        low = high;
    }
    ends.push(most);
    let mut from = 0;
    ends.into_iter()
        .map(|to| (std::mem::replace(&mut from, to + 1), to))
        .collect()
}

impl fmt::Display for Protocols {
    /// A line for the fabric, and one for each protocol.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.fabric, self.about)?;
        let lines = self.rows.iter().map(|row| {
            let operation = match row.operation {
                Operation::Put => "put",
                Operation::Get => "get",
            };
            let reached = match row.reached {
                Reached::Direct => "direct",
                Reached::Notified => "notified",
                Reached::Matched => "matched",
            };
            let lengths = match row.to {
                Some(to) if to == row.from => to.to_string(),
                Some(to) => format!("{}..{to}", row.from),
                None => format!("{}..", row.from),
            };
            [
                operation.to_owned(),
                reached.to_owned(),
                lengths,
                row.name.to_owned(),
                row.why.to_owned(),
            ]
        });
        let head = ["", "descriptor", "bytes", "protocol", "because"].map(str::to_owned);
        let lines: Vec<[String; 5]> = std::iter::once(head).chain(lines).collect();
        let width = |at: usize| lines.iter().map(|line| line[at].len()).max().unwrap_or(0);
        let [operation, reached, lengths, name] = [0, 1, 2, 3].map(width);
        for [a, b, c, d, e] in &lines {
            writeln!(
                f,
                "  {a:operation$}  {b:reached$}  {c:lengths$}  {d:name$}  {e}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_has_the_protocol_that_is_chosen_for_it() {
        let bounds = [0, 216, 217, 2047, 8192, 1 << 20];
        let choose = |len: u64| {
            let names = ["a", "b", "c", "d", "e", "f", "g"];
            (names[bounds.iter().filter(|b| **b < len).count()], "")
        };
        let mut all = Protocols::new("", String::new());
        all.add((Operation::Put, Reached::Matched), choose);
        assert_eq!(all.rows.len(), bounds.len() + 1);
        for bound in bounds {
            for len in [bound.saturating_sub(1), bound, bound + 1] {
                let row = all.of(Operation::Put, Reached::Matched, len).unwrap();
                assert_eq!(row.name, choose(len).0, "{len}");
            }
        }
        assert_eq!(all.rows.last().unwrap().to, None);
        assert_eq!(all.of(Operation::Get, Reached::Matched, 0), None);
    }

    #[test]
    fn a_table_can_be_read() {
        let mut all = Protocols::new("shm", "as it is".to_owned());
        all.add((Operation::Get, Reached::Direct), |len| match len {
            0 => ("short", "there is no data"),
            _ => ("rma read", "the adapter reads"),
        });
        let text = all.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "shm: as it is",
                "       descriptor  bytes  protocol  because",
                "  get  direct      0      short     there is no data",
                "  get  direct      1..    rma read  the adapter reads",
            ]
        );
    }
}
