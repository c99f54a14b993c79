//! `cargo xtask install --prefix P`: headers, libraries, files for pkg-config and CMake, the libfabric provider, and the commands.
//!
//! ```text
//!  <prefix>/bin/portolan, heat3d, …         the command, and programs to try
//!  <prefix>/include, <prefix>/<libdir>      for C programs: `portals-shim/capi/src/install.rs`, `conduit/capi/src/install.rs`
//!  <prefix>/<libdir>/cmake/portolan         the same for `find_package(portolan)`
//!  <prefix>/<libdir>/libfabric              the provider, in the folder of that name where libfabric looks
//!  <prefix>/<libdir>/portolan               what is preloaded for virtual time
//!  <prefix>/share                           completions for shells, manual pages, licences
//! ```
//!
//! No file has the prefix in it: an installation may be moved as a whole.

use crate::cargo::{self, release_dir, root};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

#[path = "../../portals-shim/capi/src/install.rs"]
#[expect(
    unreachable_pub,
    reason = "the file belongs to portals-c, which uses and exports all of it"
)]
mod portals_c;

#[path = "../../conduit/capi/src/install.rs"]
#[expect(
    unreachable_pub,
    reason = "the file belongs to gasnet-c, which uses and exports all of it"
)]
mod gasnet_c;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where the installation is: bin, include, share and the folder of libraries are made below it
    #[arg(long)]
    prefix: PathBuf,
    /// The folder of libraries below the prefix, such as lib64 or lib/x86_64-linux-gnu
    #[arg(long, default_value = "lib", value_parser = below)]
    libdir: String,
    /// A folder that stands for / until the installation is packed
    #[arg(long, env = "DESTDIR")]
    destdir: Option<PathBuf>,
}

/// The crates whose products are installed.
pub(crate) const CRATES: [&str; 8] = [
    "portals-c",
    "gasnet-c-seq",
    "gasnet-c-parsync",
    "gasnet-c-par",
    "portolan",
    "programs",
    "portolan-ofi",
    "portolan-clock",
];

/// Executables that are installed.
const PROGRAMS: [&str; 4] = ["portolan", "heat3d", "gups", "life"];

/// What shells read of the command line: the shell, the folder below `share`, the file.
const COMPLETIONS: [(&str, &str, &str); 3] = [
    ("bash", "bash-completion/completions", "portolan"),
    ("zsh", "zsh/site-functions", "_portolan"),
    ("fish", "fish/vendor_completions.d", "portolan.fish"),
];

/// The libfabric provider; libfabric loads files whose names end so.
const PROVIDER: &str = "libportolan-fi.so";

/// What `portolan run --clock virtual` preloads, in a folder of its own: nobody links it.
const CLOCK: &str = "libportolan-clock.so";

const CMAKE: &str = include_str!("../../packaging/portolanConfig.cmake");
const CMAKE_VERSION: &str = include_str!("../../packaging/portolanConfigVersion.cmake.in");

/// A folder below another one.
fn below(text: &str) -> Result<String, String> {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if text.is_empty() || !Path::new(text).components().all(plain) {
        return Err("it is to be a folder below the prefix, such as lib".to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// The call of cargo that builds what is installed.
pub(crate) fn build() -> Command {
    let packages = CRATES.iter().flat_map(|c| ["--package", *c]);
    let mut command = cargo::cargo(&["build", "--release", "--quiet"]);
    command.args(packages);
    command
}

/// Headers, files for pkg-config, and the C libraries that cargo left in `built`, with libraries in a folder of a prefix. Returns the
/// paths written.
pub(crate) fn libraries(built: &Path, place: (&Path, &str)) -> Result<Vec<PathBuf>> {
    let what = || format!("cannot install under {}", place.0.display());
    let version = env!("CARGO_PKG_VERSION");
    let include = root().join("portals-shim/include");
    let mut written = portals_c::install(&include, built, place, version).with_context(what)?;
    let include = root().join("conduit/capi/include");
    written.extend(gasnet_c::install(&include, built, place, version).with_context(what)?);
    Ok(written)
}

/// Installs what was built, with libraries in `libdir` of `prefix`; the paths that were written.
pub(crate) fn into(prefix: &Path, libdir: &str) -> Result<Vec<PathBuf>> {
    let built = release_dir();
    let what = || format!("cannot install under {}", prefix.display());
    let mut written = libraries(&built, (prefix, libdir))?;
    // Not overwritten in place: a program that runs may have the old one mapped.
    let mut copy = |from: PathBuf, folder: &Path, name: &str| -> Result<()> {
        std::fs::create_dir_all(folder).with_context(what)?;
        let (new, to) = (folder.join(format!(".{name}.new")), folder.join(name));
        std::fs::copy(from, &new).with_context(what)?;
        std::fs::rename(&new, &to).with_context(what)?;
        written.push(to);
        Ok(())
    };
    for program in PROGRAMS {
        copy(built.join(program), &prefix.join("bin"), program)?;
    }
    let lib = prefix.join(libdir);
    copy(
        built.join("libportolan_fi.so"),
        &lib.join("libfabric"),
        PROVIDER,
    )?;
    copy(
        built.join("libportolan_clock.so"),
        &lib.join("portolan"),
        CLOCK,
    )?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        copy(
            root().join(licence),
            &prefix.join("share/doc/portolan"),
            licence,
        )?;
    }
    let cmake = lib.join("cmake/portolan");
    std::fs::create_dir_all(&cmake).with_context(what)?;
    let up = format!("{}/..", portals_c::up(libdir));
    for (name, text) in [
        ("portolanConfig.cmake", CMAKE.replace("@UP@", &up)),
        (
            "portolanConfigVersion.cmake",
            CMAKE_VERSION.replace("@VERSION@", env!("CARGO_PKG_VERSION")),
        ),
    ] {
        let to = cmake.join(name);
        std::fs::write(&to, text).with_context(what)?;
        written.push(to);
    }
    written.extend(shells(&prefix.join("bin/portolan"), prefix)?);
    Ok(written)
}

/// Where files go whose installation will be at `prefix`.
fn destination(options: &Options) -> Result<PathBuf> {
    let Some(destdir) = &options.destdir else {
        return Ok(options.prefix.clone());
    };
    match options.prefix.strip_prefix("/") {
        Ok(below) => Ok(destdir.join(below)),
        Err(_) => bail!(
            "--prefix {} is to begin with / where there is a --destdir",
            options.prefix.display()
        ),
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let to = destination(options)?;
    cargo::run(&mut build())?;
    let written = into(&to, &options.libdir)?;
    println!("{} files are below {}", written.len(), to.display());
    let (prefix, libdir) = (options.prefix.display(), &options.libdir);
    println!("  FI_PROVIDER_PATH={prefix}/{libdir}/libfabric fi_info -p portolan");
    println!(
        "  cc gasnet-prog.c $(PKG_CONFIG_PATH={prefix}/{libdir}/pkgconfig pkg-config --cflags --libs gasnet-portals-seq)"
    );
    println!(
        "  cc prog.c $(PKG_CONFIG_PATH={prefix}/{libdir}/pkgconfig pkg-config --cflags --libs portals3) && {prefix}/bin/portolan run -n 2 -- ./a.out"
    );
    Ok(())
}

/// Has the installed command write its completions and its manual pages; the files.
fn shells(portolan: &Path, prefix: &Path) -> Result<Vec<PathBuf>> {
    let share = prefix.join("share");
    let mut written = Vec::new();
    for (shell, folder, file) in COMPLETIONS {
        let folder = share.join(folder);
        std::fs::create_dir_all(&folder)?;
        let file = folder.join(file);
        let output = Command::new(portolan)
            .args(["completions", shell])
            .output()?;
        ensure!(
            output.status.success(),
            "portolan completions {shell} failed"
        );
        std::fs::write(&file, output.stdout)?;
        written.push(file);
    }
    let pages = share.join("man/man1");
    let status = Command::new(portolan).arg("man").arg(&pages).status()?;
    ensure!(status.success(), "portolan man failed");
    for page in std::fs::read_dir(&pages)? {
        let page = page?;
        // Others may have pages there too.
        if page.file_name().to_string_lossy().starts_with("portolan") {
            written.push(page.path());
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_below_the_prefix() {
        for good in ["lib", "lib64", "lib/x86_64-linux-gnu"] {
            assert_eq!(below(good).as_deref(), Ok(good));
        }
        assert_eq!(below("lib/").as_deref(), Ok("lib"));
        for bad in ["", "/lib", "../lib", "lib/../..", "."] {
            assert!(below(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_destination_stands_for_the_root() {
        let options = |prefix: &str, destdir: Option<&str>| Options {
            prefix: prefix.into(),
            libdir: "lib".to_owned(),
            destdir: destdir.map(PathBuf::from),
        };
        let to = |prefix, destdir| destination(&options(prefix, destdir)).ok();
        assert_eq!(to("here", None), Some(PathBuf::from("here")));
        assert_eq!(
            to("/usr", Some("/tmp/d")),
            Some(PathBuf::from("/tmp/d/usr"))
        );
        assert_eq!(to("usr", Some("/tmp/d")), None);
    }
}
