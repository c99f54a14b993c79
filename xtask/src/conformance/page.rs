//! The page of the book.

use super::{Line, Mode, numbers};
use crate::cargo::root;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// Highest numbers of the lists that cases refer to.
const SCENARIOS: u32 = 110;
const RULES: u32 = 73;

/// Folders of tests beside the suite, whose comments name numbers.
const OTHER_TESTS: [&str; 6] = [
    "portals-core/src/ni/tests",
    "portals-core/tests",
    "portals-shim/src",
    "portals-shim/fabric",
    "portals-shim/tests",
    "portals-shim/capi/src",
];

/// Numbers that the comments of tests name, as (is a rule, number), to the tests' files.
pub(super) type Named = BTreeMap<(bool, u32), BTreeSet<String>>;

/// Those of [`OTHER_TESTS`].
pub(super) fn other_tests() -> Result<Named> {
    let mut found = Named::new();
    for folder in OTHER_TESTS {
        named_in(&root().join(folder), &mut found)?;
    }
    Ok(found)
}

fn named_in(folder: &Path, found: &mut Named) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            named_in(&path, found)?;
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let file = path
            .strip_prefix(root())
            .unwrap_or(&path)
            .display()
            .to_string();
        for line in text.lines().map(str::trim_start) {
            let Some(line) = line.strip_prefix("///") else {
                continue;
            };
            let line = line.trim_start();
            let begins = |word| line.to_lowercase().starts_with(word);
            if !(begins("scenario") || begins("rule ") || begins("rules ")) {
                continue;
            }
            let (scenarios, rules) = numbers(line);
            let keys = scenarios
                .into_iter()
                .map(|n| (false, n))
                .chain(rules.into_iter().map(|n| (true, n)));
            for key in keys {
                found.entry(key).or_default().insert(file.clone());
            }
        }
    }
    Ok(())
}

/// The cases in the order of the run: (name, numbers).
fn cases(results: &[Line]) -> Vec<(&str, &str)> {
    let mut cases: Vec<(&str, &str)> = Vec::new();
    for line in results {
        let case = (line.case.as_str(), line.numbers.as_str());
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases
}

/// What a mode did of some cases: a failure counts before a pass, a pass before a reason. `None` when
/// nothing is known.
fn verdict(results: &[Line], mode: &Mode, names: &[&str]) -> Option<String> {
    let of_mode: Vec<&str> = results
        .iter()
        .filter(|l| l.mode == mode.name && names.contains(&l.case.as_str()))
        .map(|l| l.result.as_str())
        .collect();
    for word in ["FAIL", "pass"] {
        if of_mode.contains(&word) {
            return Some(word.to_owned());
        }
    }
    let mut reasons: Vec<&str> = Vec::new();
    for result in of_mode {
        let reason = result.trim_start_matches("n/a: ");
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    (!reasons.is_empty()).then(|| format!("n/a: {}", reasons.join("; ")))
}

/// The result of a program in a mode that only the suite has.
const NOT_A_PROGRAM: &str = "n/a: C programs do not look at the path of their messages";

fn cells(results: &[Line], modes: &[Mode], names: &[&str]) -> (String, bool) {
    let mut row = String::new();
    let mut complete = true;
    for mode in modes {
        let cell = verdict(results, mode, names).unwrap_or_else(|| {
            let ran = results.iter().any(|l| l.mode == mode.name);
            if ran && names.iter().any(|n| n.contains("tests/c/")) {
                return NOT_A_PROGRAM.to_owned();
            }
            complete = false;
            "not run".to_owned()
        });
        row += &format!(" {cell} |");
    }
    (row, complete)
}

/// The text, and the numbers that have neither a result nor a reason somewhere.
pub(super) fn write(
    modes: &[Mode],
    results: &[Line],
    other: &Named,
) -> Result<(String, Vec<String>)> {
    let cases = cases(results);
    let names: String = modes.iter().map(|m| format!(" {} |", m.name)).collect();
    let rule = "---|".repeat(modes.len());
    let mut gaps = Vec::new();
    let mut out = String::from(
        "# Conformance\n\n\
         Written by `cargo xtask conformance` from a run; not edited by hand. A case is one body (`tests/src/conformance`),\n\
         run in every mode (`tests/src/harness.rs`), or a C program (`tests/c`) against `libportals3`, run on every fabric;\n\
         `in-process` it uses `PTL_IFACE_SELF`. `verbs` is SoftRoCE. In `verbs one-sided` a case passes only if the adapters'\n\
         counters say that they served messages without the target's library.\n\n",
    );
    writeln!(out, "| |{names}\n|---|{rule}")?;
    for word in ["pass", "n/a", "FAIL"] {
        write!(out, "| {word} |")?;
        for mode in modes {
            let of_mode = results.iter().filter(|l| l.mode == mode.name);
            let count = of_mode.filter(|l| l.result.starts_with(word)).count();
            write!(out, " {count} |")?;
        }
        out.push('\n');
    }
    writeln!(
        out,
        "\n## Cases\n\n| case | scenarios and rules |{names}\n|---|---|{rule}"
    )?;
    for (name, numbers) in &cases {
        writeln!(
            out,
            "| {name} | {numbers} |{}",
            cells(results, modes, &[name]).0
        )?;
    }
    for (rules, title, last) in [(false, "Scenarios", SCENARIOS), (true, "Rules", RULES)] {
        writeln!(
            out,
            "\n## {title}, one by one\n\n| {title} | cases |{names} other tests |\n|--:|---|{rule}---|"
        )?;
        for n in 1..=last {
            let of_number: Vec<&str> = cases
                .iter()
                .filter(|(_, text)| {
                    let (s, r) = numbers(text);
                    if rules { &r } else { &s }.contains(&n)
                })
                .map(|(name, _)| *name)
                .collect();
            let (row, complete) = cells(results, modes, &of_number);
            if !complete || of_number.is_empty() {
                gaps.push(format!(
                    "{} {n}",
                    title.to_lowercase().trim_end_matches('s')
                ));
            }
            let files: Vec<String> = other
                .get(&(rules, n))
                .into_iter()
                .flatten()
                .map(|f| format!("`{f}`"))
                .collect();
            let files = if files.is_empty() {
                "cases only".to_owned()
            } else {
                files.join(", ")
            };
            writeln!(out, "| {n} | {} |{row} {files} |", of_number.join("; "))?;
        }
    }
    Ok((out, gaps))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(name: &str) -> Mode {
        Mode {
            test: name.to_owned(),
            name: name.to_owned(),
            device: false,
        }
    }

    fn line(mode: &str, numbers: &str, case: &str, result: &str) -> Line {
        Line {
            mode: mode.to_owned(),
            numbers: numbers.to_owned(),
            case: case.to_owned(),
            result: result.to_owned(),
        }
    }

    #[test]
    fn a_number_without_result_or_reason_is_a_gap() {
        let modes = [mode("a"), mode("b")];
        let results = [
            line("a", "1-110, rules 1-72", "all", "pass"),
            line("b", "1-110, rules 1-72", "all", "n/a: why"),
            line("a", "2", "two", "FAIL"),
            line("b", "2", "two", "pass"),
        ];
        let (text, gaps) = write(&modes, &results, &Named::new()).unwrap();
        assert_eq!(gaps, ["rule 73"]);
        assert!(text.contains("| 1 | all | pass | n/a: why |"));
        assert!(text.contains("| 2 | all; two | FAIL | pass |"));
    }
}
