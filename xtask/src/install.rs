//! `cargo xtask install --prefix P`: headers, libraries and a pkg-config file for C programs, the libfabric provider, and the
//! commands that start them.

use crate::cargo::{self, release_dir, root};
use anyhow::{Context, Result};
use std::path::PathBuf;

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
    /// Where to install: bin, include and lib are made below it
    #[arg(long)]
    prefix: PathBuf,
}

/// Executables that are installed.
const PROGRAMS: [&str; 3] = ["portolan", "heat3d", "gups"];

/// The libfabric provider; libfabric loads files whose names end so.
const PROVIDER: &str = "libportolan-fi.so";

pub(crate) fn run(options: &Options) -> Result<()> {
    cargo::build(&[
        "--package",
        "portals-c",
        "--package",
        "gasnet-c-seq",
        "--package",
        "gasnet-c-parsync",
        "--package",
        "gasnet-c-par",
        "--package",
        "portolan",
        "--package",
        "programs",
        "--package",
        "portolan-ofi",
    ])?;
    let (prefix, built) = (&options.prefix, release_dir());
    let include = root().join("portals-shim/include");
    let what = || format!("cannot install under {}", prefix.display());
    let mut written = portals_c::install(&include, &built, prefix, env!("CARGO_PKG_VERSION"))
        .with_context(what)?;
    let include = root().join("conduit/capi/include");
    written.extend(
        gasnet_c::install(&include, &built, prefix, env!("CARGO_PKG_VERSION"))
            .with_context(what)?,
    );
    let bin = prefix.join("bin");
    std::fs::create_dir_all(&bin).with_context(what)?;
    for program in PROGRAMS {
        let (new, to) = (bin.join(format!(".{program}.new")), bin.join(program));
        std::fs::copy(built.join(program), &new).with_context(what)?;
        std::fs::rename(&new, &to).with_context(what)?;
        written.push(to);
    }
    let providers = prefix.join("lib/libfabric");
    std::fs::create_dir_all(&providers).with_context(what)?;
    let (new, to) = (providers.join(".provider.new"), providers.join(PROVIDER));
    std::fs::copy(built.join("libportolan_fi.so"), &new).with_context(what)?;
    std::fs::rename(&new, &to).with_context(what)?;
    written.push(to);
    println!("{} files are below {}", written.len(), prefix.display());
    println!(
        "  FI_PROVIDER_PATH={0}/lib/libfabric fi_info -p portolan",
        prefix.display()
    );
    println!(
        "  cc gasnet-prog.c $(PKG_CONFIG_PATH={0}/lib/pkgconfig pkg-config --cflags --libs gasnet-portals-seq)",
        prefix.display()
    );
    println!(
        "  cc prog.c $(PKG_CONFIG_PATH={0}/lib/pkgconfig pkg-config --cflags --libs portals3) && {0}/bin/portolan run -n 2 -- ./a.out",
        prefix.display()
    );
    Ok(())
}
