//! `cargo xtask crates`: what `cargo publish` would send to a registry, each crate compiled from its archive.

use crate::cargo::{self, cargo};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Most keywords that crates.io takes for a crate, and most characters of one.
const KEYWORDS: (usize, usize) = (5, 20);

/// Crates that have another name in the registry, which has crates of others by ours: programs go on saying `use conduit`.
const RENAMED: [(&str, &str); 5] = [
    ("conduit", "portolan-conduit"),
    ("host", "portolan-host"),
    ("launch", "portolan-launch"),
    ("programs", "portolan-programs"),
    ("tagged", "portolan-tagged"),
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Make the archives and compile nothing
    #[arg(long)]
    no_verify: bool,
}

/// The packages of the workspace by their names, as cargo tells of them.
fn packages() -> Result<BTreeMap<String, Value>> {
    let mut command = cargo(&["metadata", "--format-version=1", "--no-deps", "--offline"]);
    let output = command.current_dir(cargo::root()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}\n{said}", cargo::line(&command), output.status);
    }
    let all: Value = serde_json::from_slice(&output.stdout)?;
    let packages = all["packages"].as_array().context("no packages")?;
    let named = packages
        .iter()
        .map(|p| (p["name"].as_str().unwrap_or_default().to_owned(), p.clone()));
    Ok(named.collect())
}

/// Whether a registry may have it.
fn is_published(package: &Value) -> bool {
    package["publish"].is_null()
}

/// The name of one of ours in the registry.
fn registered(name: &str) -> &str {
    let renamed = RENAMED.iter().find(|(own, _)| *own == name);
    renamed.map_or(name, |(_, free)| free)
}

fn words(value: &Value) -> Vec<&str> {
    let words = value.as_array().into_iter().flatten();
    words.filter_map(Value::as_str).collect()
}

/// What a registry would refuse of a package, or its readers would miss.
fn lacks(package: &Value, all: &BTreeMap<String, Value>) -> Vec<String> {
    let mut lacks = Vec::new();
    for field in ["description", "license", "rust_version"] {
        if package[field].as_str().is_none_or(str::is_empty) {
            lacks.push(format!("no {field}"));
        }
    }
    let name = registered(package["name"].as_str().unwrap_or_default());
    let page = format!("https://docs.rs/{name}");
    if package["documentation"] != page.as_str() {
        lacks.push(format!("documentation is not {page}"));
    }
    let keywords = words(&package["keywords"]);
    let (most, longest) = KEYWORDS;
    if keywords.is_empty() || keywords.len() > most || keywords.iter().any(|w| w.len() > longest) {
        lacks.push(format!("keywords {keywords:?}"));
    }
    if words(&package["categories"]).is_empty() {
        lacks.push("no categories".to_owned());
    }
    // Those that stand on nothing in a registry: cargo leaves out dependencies of tests that have no version.
    let ours = package["dependencies"].as_array().into_iter().flatten();
    for needed in ours.filter(|d| d["path"].is_string()) {
        let name = needed["name"].as_str().unwrap_or_default();
        let has_version = needed["req"].as_str().is_some_and(|req| req != "*");
        let for_tests = needed["kind"] == "dev";
        if !has_version && !for_tests {
            lacks.push(format!("no version of {name}"));
        }
        if has_version && !all.get(name).is_some_and(is_published) {
            lacks.push(format!("{name} is not published"));
        }
    }
    lacks
}

/// The names of what is published, or all that is missing.
fn published() -> Result<Vec<String>> {
    let all = packages()?;
    let published = all.iter().filter(|(_, p)| is_published(p));
    let lacking: Vec<String> = published
        .clone()
        .filter_map(|(name, package)| {
            let lacks = lacks(package, &all);
            (!lacks.is_empty()).then(|| format!("{name}: {}", lacks.join(", ")))
        })
        .collect();
    if !lacking.is_empty() {
        bail!("cannot be published:\n  {}", lacking.join("\n  "));
    }
    Ok(published.map(|(name, _)| name.clone()).collect())
}

/// The last commit's files in a folder of their own.
fn stage() -> Result<PathBuf> {
    let folder = cargo::release_dir().with_file_name("crates");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    let mut archive = Command::new("git");
    archive.args(["archive", "--format=tar", "HEAD"]);
    let mut archive = archive
        .current_dir(cargo::root())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start git")?;
    let mut unpack = Command::new("tar");
    unpack.arg("-x").arg("-C").arg(&folder);
    unpack.stdin(archive.stdout.take().context("git has no output")?);
    let unpacked = unpack.status().context("cannot start tar")?;
    let archived = archive.wait()?;
    if !archived.success() || !unpacked.success() {
        bail!("git archive: {archived}, tar: {unpacked}");
    }
    Ok(folder)
}

/// Replaces what stands exactly once in a manifest.
fn replace_once(manifest: &str, what: &str, by: &str) -> Result<String> {
    if manifest.matches(what).count() != 1 {
        bail!("{what:?} does not stand there once");
    }
    Ok(manifest.replacen(what, by, 1))
}

/// A crate's own manifest with the name that it has in the registry.
fn rename(manifest: &str, own: &str, free: &str) -> Result<String> {
    let named = replace_once(
        manifest,
        &format!("[package]\nname = \"{own}\"\n"),
        &format!("[package]\nname = \"{free}\"\n"),
    )?;
    Ok(format!("{named}\n[lib]\nname = \"{own}\"\n"))
}

/// The workspace's manifest where crates stand on it by that name.
fn rename_needed(manifest: &str, own: &str, free: &str) -> Result<String> {
    replace_once(
        manifest,
        &format!("\n{own} = {{ "),
        &format!("\n{own} = {{ package = \"{free}\", "),
    )
}

fn edit(path: &Path, change: impl FnOnce(&str) -> Result<String>) -> Result<()> {
    let of = || format!("{}", path.display());
    let manifest = fs::read_to_string(path).with_context(of)?;
    fs::write(path, change(&manifest).with_context(of)?).with_context(of)
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let names = published()?;
    let folder = stage()?;
    for (own, free) in RENAMED {
        edit(&folder.join(own).join("Cargo.toml"), |m| {
            rename(m, own, free)
        })?;
        edit(&folder.join("Cargo.toml"), |m| rename_needed(m, own, free))?;
    }
    let target = folder.join("target");
    let mut package = cargo(&["package", "--target-dir"]);
    package.arg(&target);
    for name in &names {
        package.args(["--package", registered(name)]);
    }
    package.args(options.no_verify.then_some("--no-verify"));
    cargo::run_in(&folder, &mut package)?;
    let archives = target.join("package");
    println!("{} crates in {}", names.len(), archives.display());
    println!(
        "`cargo publish` of the same packages in {} sends them",
        folder.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_published_crate_has_what_a_registry_asks_for() {
        let names = published().unwrap();
        for name in ["portals-core", "portals-shim", "portolan", "verbs-sys"] {
            assert!(names.iter().any(|n| n == name), "{name}");
        }
    }

    #[test]
    fn what_a_package_lacks_is_named() {
        let good = |name: &str| {
            json!({
                "name": name, "description": "d", "license": "MIT", "documentation": format!("https://docs.rs/{name}"),
                "rust_version": "1.88", "keywords": ["a"], "categories": ["science"], "publish": null, "dependencies": [],
            })
        };
        let needs = |of: Value| {
            let mut package = good("whole");
            package["dependencies"] = json!([of]);
            package
        };
        let mut own = good("own");
        own["publish"] = json!([]);
        let all: BTreeMap<_, _> = [good("free"), own]
            .map(|p| (p["name"].as_str().unwrap().to_owned(), p))
            .into();
        let lacks = |package: &Value| lacks(package, &all).join("; ");
        assert_eq!(lacks(&good("whole")), "");
        let on = |name, req, kind| json!({"name": name, "req": req, "kind": kind, "path": "/p"});
        assert_eq!(lacks(&needs(on("free", "^1", Value::Null))), "");
        assert_eq!(lacks(&needs(on("own", "*", json!("dev")))), "");
        let bare = needs(on("free", "*", Value::Null));
        assert_eq!(lacks(&bare), "no version of free");
        for kind in [Value::Null, json!("dev")] {
            assert_eq!(lacks(&needs(on("own", "^1", kind))), "own is not published");
        }
        for (field, value, told) in [
            ("description", json!(""), "no description"),
            ("license", Value::Null, "no license"),
            (
                "documentation",
                Value::Null,
                "documentation is not https://docs.rs/whole",
            ),
            ("categories", json!([]), "no categories"),
            ("keywords", json!([]), "keywords []"),
            (
                "keywords",
                json!(["of more letters than are"]),
                "keywords [\"of more letters than are\"]",
            ),
        ] {
            let mut package = good("whole");
            package[field] = value;
            assert_eq!(lacks(&package), told);
        }
    }

    #[test]
    fn a_crate_has_another_name_in_the_registry_and_the_same_in_programs() {
        let own = rename(
            "[package]\nname = \"host\"\n\n[lints]\n",
            "host",
            "portolan-host",
        );
        assert_eq!(
            own.unwrap(),
            "[package]\nname = \"portolan-host\"\n\n[lints]\n\n[lib]\nname = \"host\"\n"
        );
        let workspace = "[workspace.dependencies]\nhost = { path = \"host\" }\n";
        assert_eq!(
            rename_needed(workspace, "host", "portolan-host").unwrap(),
            "[workspace.dependencies]\nhost = { package = \"portolan-host\", path = \"host\" }\n"
        );
        assert!(rename(workspace, "host", "portolan-host").is_err());
        assert_eq!(registered("host"), "portolan-host");
        assert_eq!(registered("portals-core"), "portals-core");
    }
}
