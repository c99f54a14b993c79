//! `cargo xtask conformance`: runs the conformance suite on every fabric and writes what it said as a
//! page of the book. The device's runs happen in the guest, or here where there is a device.

use crate::cargo::{self, release_dir, root};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Leave out the fabric that needs a device or a guest; its column says so
    #[arg(long)]
    no_guest: bool,
}

/// Highest numbers of the lists that cases refer to.
const SCENARIOS: u32 = 110;
const RULES: u32 = 73;
const FABRICS: [&str; 3] = ["in-process", "seastar", "verbs"];
const PAGE: &str = "docs/src/conformance.md";

/// One line of the suite's output.
struct Line {
    fabric: String,
    numbers: String,
    name: String,
    result: String,
}

/// Scenario and rule numbers of a text such as `14, 17-20, rules 5, 8`.
fn numbers(text: &str) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let (mut scenarios, mut rules, mut of_rules) = (BTreeSet::new(), BTreeSet::new(), false);
    for word in text.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '.' | ':')) {
        match word.trim_end_matches('s').to_lowercase().as_str() {
            "rule" => of_rules = true,
            "scenario" => of_rules = false,
            "row" | "section" => break,
            _ => {}
        }
        let range = word.split_once(['-', '–']).unwrap_or((word, word));
        if let (Ok(from), Ok(to)) = (range.0.parse::<u32>(), range.1.parse::<u32>()) {
            if of_rules { &mut rules } else { &mut scenarios }.extend(from..=to);
        }
    }
    (scenarios, rules)
}

/// The suite's lines: fabric, numbers, name and result in columns two blanks apart.
fn lines(output: &str) -> Vec<Line> {
    let parse = |line: &str| {
        let fabric = FABRICS
            .into_iter()
            .find(|f| line.starts_with(&format!("{f} ")))?;
        let columns: Vec<&str> = line[fabric.len()..]
            .split("  ")
            .map(str::trim)
            .filter(|c| !c.is_empty())
            .collect();
        let [numbers, name, result] = columns[..] else {
            return None;
        };
        Some(Line {
            fabric: fabric.to_owned(),
            numbers: numbers.to_owned(),
            name: name.to_owned(),
            result: result.split(' ').next().unwrap_or_default().to_owned(),
        })
    };
    // libtest puts the test's name before the first line that a test prints.
    output
        .lines()
        .map(|l| l.split_once(" ... ").map_or(l, |(_, rest)| rest))
        .filter_map(parse)
        .collect()
}

fn suite(options: &Options) -> Result<Vec<Line>> {
    let tests = cargo::release_tests(&["portolan-tests"])?;
    let (_, exe) = tests
        .iter()
        .find(|(n, _)| n == "conformance")
        .context("no conformance test")?;
    let run = |mut command: Command, fabric: &str| -> Result<Vec<Line>> {
        println!("$ {}", cargo::line(&command));
        let output = command.output().with_context(|| cargo::line(&command))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let found = lines(&text);
        if !output.status.success() || found.is_empty() {
            print!("{text}{}", String::from_utf8_lossy(&output.stderr));
            bail!(
                "conformance on {fabric}: {}, {} results",
                output.status,
                found.len()
            );
        }
        Ok(found)
    };
    let arguments = |filter: &str| [filter.to_owned(), "--nocapture".to_owned()];
    let mut all = Vec::new();
    for filter in ["in_process", "seastar"] {
        let mut command = Command::new(exe);
        command.args(arguments(filter));
        all.extend(run(command, filter)?);
    }
    if !options.no_guest {
        cargo::run(&mut cargo::cargo(&["build", "--release", "--quiet"]))?;
        let native = std::env::var("PORTOLAN_TEST_DEVICE").is_ok_and(|d| !d.is_empty());
        let mut command = if native {
            Command::new(exe)
        } else {
            let mut c = Command::new(release_dir().join("portolan"));
            c.args(["guest", "--timeout", "900", "--"]).arg(exe);
            c
        };
        command.args(arguments("verbs"));
        all.extend(run(command, "verbs")?);
    }
    Ok(all)
}

/// Numbers that the doc comments of tests name: (scenarios, rules) to the tests' files.
fn named_in(folder: &Path, found: &mut BTreeMap<(bool, u32), BTreeSet<String>>) -> Result<()> {
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
        for line in text.lines().map(|l| l.trim_start_matches(['/', '*', ' '])) {
            let lower = line.to_lowercase();
            if !(lower.starts_with("scenario") || lower.starts_with("rule")) {
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

fn page(results: &[Line], unit: &BTreeMap<(bool, u32), BTreeSet<String>>) -> Result<String> {
    let mut cases: Vec<(&str, &str)> = Vec::new();
    for line in results {
        if !cases.contains(&(line.numbers.as_str(), line.name.as_str())) {
            cases.push((&line.numbers, &line.name));
        }
    }
    let result = |name: &str, fabric: &str| {
        let found = results
            .iter()
            .find(|l| l.name == name && l.fabric == fabric);
        found.map_or("not run", |l| l.result.as_str())
    };
    let mut out = String::from(
        "# Conformance\n\nWritten by `cargo xtask conformance` from a run; not edited by hand. One body per case, \
         run on every fabric; on `verbs` with SoftRoCE. The suite is `tests/src/conformance`.\n\n\
         | case | scenarios and rules | in-process | seastar | verbs |\n|---|---|---|---|---|\n",
    );
    for (numbers, name) in &cases {
        writeln!(
            out,
            "| {name} | {numbers} | {} | {} | {} |",
            result(name, FABRICS[0]),
            result(name, FABRICS[1]),
            result(name, FABRICS[2])
        )?;
    }
    for (rules, title, last) in [(false, "Scenarios", SCENARIOS), (true, "Rules", RULES)] {
        writeln!(
            out,
            "\n## {title}, one by one\n\nCases of the suite, and files of tests of one process that name the number. \
             A dash means that no test names it.\n\n| {title} | cases | other tests |\n|--:|---|---|"
        )?;
        for n in 1..=last {
            let names: Vec<&str> = cases
                .iter()
                .filter(|(text, _)| {
                    let (s, r) = numbers(text);
                    if rules { &r } else { &s }.contains(&n)
                })
                .map(|(_, name)| *name)
                .collect();
            let files: Vec<String> = unit
                .get(&(rules, n))
                .into_iter()
                .flatten()
                .map(|f| format!("`{f}`"))
                .collect();
            let or_dash = |text: String| {
                if text.is_empty() {
                    "–".to_owned()
                } else {
                    text
                }
            };
            writeln!(
                out,
                "| {n} | {} | {} |",
                or_dash(names.join("; ")),
                or_dash(files.join(", "))
            )?;
        }
    }
    Ok(out)
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let results = suite(options)?;
    let mut unit = BTreeMap::new();
    for folder in [
        "portals-core/src/ni/tests",
        "portals-core/tests",
        "tests/c",
        "portals-shim/capi/tests",
    ] {
        named_in(&root().join(folder), &mut unit)?;
    }
    let text = page(&results, &unit)?;
    std::fs::write(root().join(PAGE), text).with_context(|| format!("cannot write {PAGE}"))?;
    let failed = results.iter().filter(|l| l.result != "pass").count();
    println!(
        "{} results, {failed} not passed; {PAGE} is written",
        results.len()
    );
    if failed > 0 {
        bail!("{failed} results are not passes");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cases_and_of_comments() {
        let of = |text| {
            let (s, r) = numbers(text);
            (Vec::from_iter(s), Vec::from_iter(r))
        };
        assert_eq!(
            of("14, 17-20, rules 5, 8"),
            (vec![14, 17, 18, 19, 20], vec![5, 8])
        );
        assert_eq!(
            of("Scenario 75; rules 2 and 3: both"),
            (vec![75], vec![2, 3])
        );
        assert_eq!(
            of("Scenario 51; rules 16, 30 and row 5 of"),
            (vec![51], vec![16, 30])
        );
        assert_eq!(of("Rule 12."), (vec![], vec![12]));
    }

    #[test]
    fn a_line_of_the_suite() {
        let out = "test in_process ... in-process   14, rule 5    entries are searched   pass (1 ms)\n\
                   seastar      29           entries are checked when set      FAIL: x\nok\n";
        let l = lines(out);
        assert_eq!(l.len(), 2);
        assert_eq!(
            (
                l[0].numbers.as_str(),
                l[0].name.as_str(),
                l[0].result.as_str()
            ),
            ("14, rule 5", "entries are searched", "pass")
        );
        assert_eq!(
            (l[1].fabric.as_str(), l[1].result.as_str()),
            ("seastar", "FAIL:")
        );
    }
}
