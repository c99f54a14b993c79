//! The licences of all crates that are in what is installed.

use super::output;
use crate::cargo::{cargo, root};
use crate::install::CRATES;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// The crates of others that those of `names` are built with, and not only their tests and build scripts, by id.
fn linked<'m>(metadata: &'m Value, names: &[&str]) -> Option<BTreeSet<&'m str>> {
    let nodes = metadata["resolve"]["nodes"].as_array()?;
    let nodes: BTreeMap<_, _> = nodes
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node["deps"].as_array()?)))
        .collect();
    let packages = metadata["packages"].as_array()?;
    let own = packages
        .iter()
        .filter(|p| p["name"].as_str().is_some_and(|name| names.contains(&name)));
    let mut open: Vec<_> = own.filter_map(|p| p["id"].as_str()).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !found.insert(id) {
            continue;
        }
        for dep in nodes.get(id).into_iter().copied().flatten() {
            let kinds = dep["dep_kinds"].as_array();
            let is_linked = kinds.is_some_and(|kinds| kinds.iter().any(|k| k["kind"].is_null()));
            open.extend(dep["pkg"].as_str().filter(|_| is_linked));
        }
    }
    Some(found)
}

/// The texts of a crate's licence, in the order of their names.
fn texts(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let upper = name.to_uppercase();
        let known = [
            "LICENSE",
            "LICENCE",
            "COPYING",
            "COPYRIGHT",
            "NOTICE",
            "UNLICENSE",
        ];
        if known.iter().any(|k| upper.starts_with(k)) && entry.file_type()?.is_file() {
            texts.push((name, std::fs::read_to_string(entry.path())?));
        }
    }
    texts.sort();
    Ok(texts)
}

/// Writes the name, version and licence of each crate, and the texts that came with it; a text that many have stands once.
pub(super) fn write(to: &Path) -> Result<()> {
    let mut command = cargo(&["metadata", "--format-version", "1", "--locked"]);
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    command.args(["--filter-platform", &platform]);
    let metadata: Value = serde_json::from_str(&output(command.current_dir(root()))?)?;
    let linked =
        linked(&metadata, &CRATES).context("what cargo says of the crates makes no sense")?;
    let mut all = String::from(
        "Crates of others that these programs and libraries contain, and their licences.\n",
    );
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let foreign = !package["source"].is_null();
        let is_linked = package["id"].as_str().is_some_and(|id| linked.contains(id));
        if !(foreign && is_linked) {
            continue;
        }
        let word = |key: &str| package[key].as_str().unwrap_or_default();
        let title = format!("{} {}", word("name"), word("version"));
        let _ = write!(all, "\n{title}: {}\n", word("license"));
        let folder = Path::new(word("manifest_path")).parent();
        for (name, text) in texts(folder.context("a crate without a folder")?)? {
            match known.get(&text) {
                Some(first) => drop(writeln!(all, "  {name}: as {first}")),
                None => {
                    let _ = writeln!(all, "  {name}:\n\n{text}");
                    known.insert(text, format!("{name} of {title}"));
                }
            }
        }
    }
    std::fs::write(to, all).with_context(|| format!("cannot write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_linked_is_found_and_what_only_tests_need_is_not() {
        let dep = |pkg: &str, kind: Value| json!({ "pkg": pkg, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [{ "name": "own", "id": "own" }, { "name": "far", "id": "far" }],
            "resolve": { "nodes": [
                { "id": "own", "deps": [dep("near", Value::Null), dep("tests", json!("dev"))] },
                { "id": "near", "deps": [dep("own", Value::Null), dep("deep", Value::Null), dep("made", json!("build"))] },
                { "id": "far", "deps": [dep("other", Value::Null)] },
            ] },
        });
        let found = linked(&metadata, &["own"]).unwrap();
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["deep", "near", "own"]
        );
    }
}
