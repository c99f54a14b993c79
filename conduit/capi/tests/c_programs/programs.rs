//! Compiles programs of `tests/c` against an installation of what was built, and runs them as ranks of jobs.

use crate::built::built;
use gasnet_c::install;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Where things are.
pub(crate) struct Places {
    pub(crate) root: PathBuf,
    /// Cargo's folder of this profile, which has the libraries.
    pub(crate) built: PathBuf,
    pub(crate) launcher: PathBuf,
    /// An installation of what was built.
    pub(crate) prefix: PathBuf,
}

/// A C or C++ compiler that works, or a word on its absence.
pub(crate) fn compiler(name: &str) -> bool {
    let found = Command::new(name).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no {name}");
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A library that is an example of this crate.
pub(crate) fn example(name: &str) -> PathBuf {
    let built = built(&["-p", "gasnet-c", "--example", name]);
    built.join("examples").join(format!("lib{name}.so"))
}

/// Builds the launcher and the libraries once.
pub(crate) fn places() -> &'static Places {
    static PLACES: OnceLock<Places> = OnceLock::new();
    PLACES.get_or_init(|| {
        let root = root();
        let models = install::MODELS.map(|model| format!("gasnet-c-{model}"));
        let mut what = vec!["-p", "portolan"];
        what.extend(models.iter().flat_map(|library| ["-p", library]));
        let built = built(&what);
        let at = |name: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let (made, prefix) = (at("gasnet-installed-first"), at("gasnet-installed"));
        for old in [&made, &prefix] {
            let _ = std::fs::remove_dir_all(old);
        }
        let include = root.join("conduit/capi/include");
        install::install(&include, &built, (&made, "lib"), "1.2.3").unwrap();
        // An installation may be moved: no file of it has its place.
        std::fs::rename(&made, &prefix).unwrap();
        Places {
            launcher: built.join("portolan"),
            root,
            built,
            prefix,
        }
    })
}

pub(crate) fn text(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// How a program is compiled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Build<'a> {
    pub(crate) compiler: &'a str,
    pub(crate) flags: &'a [&'a str],
    /// The model of the library it is linked with.
    pub(crate) model: &'a str,
    /// The model it is compiled for.
    pub(crate) compiled_for: &'a str,
}

pub(crate) const SEQ: Build<'_> = Build {
    compiler: "cc",
    flags: &["-std=gnu99"],
    model: "seq",
    compiled_for: "seq",
};

/// Compiles a program of `tests/c` as a user of the installation would.
pub(crate) fn try_compile(source: &str, b: Build<'_>) -> (PathBuf, Output) {
    let p = places();
    let flavour: String = format!(
        "{}{}{}{}",
        b.compiler,
        b.flags.concat(),
        b.model,
        b.compiled_for
    )
    .chars()
    .filter(char::is_ascii_alphanumeric)
    .collect();
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{source}-{flavour}"));
    let lib = p.prefix.join("lib");
    let output = Command::new(b.compiler)
        .args([
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-cast-function-type",
        ])
        .args(b.flags)
        .arg(format!("-DGASNET_{}", b.compiled_for.to_uppercase()))
        .arg("-I")
        .arg(p.prefix.join("include/portals-conduit"))
        .arg(p.root.join("tests/c").join(format!("{source}.c")))
        .args(["-x", "none", "-o"])
        .arg(&out)
        .arg("-L")
        .arg(&lib)
        .arg(format!("-Wl,-rpath,{}", lib.display()))
        .arg(format!("-lgasnet-portals-{}", b.model))
        .args(["-lpthread", "-ldl"])
        .output()
        .unwrap();
    (out, output)
}

/// A program that compiles; once, because tests run at one time and one may be running it.
pub(crate) fn compile(source: &str, b: Build<'_>) -> PathBuf {
    static MADE: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry(format!("{source} {b:?}"))
        .or_insert_with(|| {
            let (out, output) = try_compile(source, b);
            assert!(output.status.success(), "{}", text(&output));
            out
        })
        .clone()
}

/// The line of a program of `tests/c` with these words, from 1.
pub(crate) fn line_of(program: &str, words: &str) -> usize {
    let source = root().join("tests/c").join(program);
    let text = std::fs::read_to_string(source).unwrap();
    let at = text.lines().position(|l| l.contains(words));
    at.unwrap_or_else(|| panic!("no line {words}")) + 1
}

/// The fabrics that every machine has.
pub(crate) const FABRICS: [&str; 2] = ["seastar", "shm"];

pub(crate) fn launch(fabric: &str, ranks: u32, program: &Path, args: &[&str]) -> Command {
    let mut run = Command::new(&places().launcher);
    run.args(["run", "-n", &ranks.to_string(), "--timeout", "120"])
        .args(["--fabric", fabric, "--"])
        .arg(program)
        .args(args);
    run
}

pub(crate) fn run_on(fabric: &str, ranks: u32, program: &Path, args: &[&str]) -> Output {
    launch(fabric, ranks, program, args).output().unwrap()
}

pub(crate) fn passes(ranks: u32, program: &Path, args: &[&str]) {
    for fabric in FABRICS {
        let output = run_on(fabric, ranks, program, args);
        let said = text(&output);
        assert!(output.status.success(), "{fabric}: {said}");
        for rank in 0..ranks {
            let line = format!("node {rank}: all right");
            assert!(said.contains(&line), "{fabric}: {said}");
        }
    }
}

/// Passes with the library of each of these thread models, compiled for it.
pub(crate) fn passes_in(models: &[&str], ranks: u32, source: &str) {
    for model in models {
        let b = Build {
            model,
            compiled_for: model,
            ..SEQ
        };
        passes(ranks, &compile(source, b), &[]);
    }
}
