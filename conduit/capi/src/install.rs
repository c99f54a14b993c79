//! What an installation of GASNet for C consists of.
//!
//! ```text
//!  <prefix>/include/portals-conduit/gasnet.h, …
//!  <prefix>/include/portals-conduit/portals-{seq,parsync,par}.mak    variables for a Makefile
//!  <prefix>/lib/libgasnet-portals-{seq,parsync,par}.{so,a}
//!  <prefix>/lib/pkgconfig/gasnet-portals-{seq,parsync,par}.pc
//! ```
//!
//! This file depends on the standard library alone, so that a build tool can include it as a
//! module instead of linking the crate.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The thread models, as they are in names.
pub const MODELS: [&str; 3] = ["seq", "parsync", "par"];

/// What a program that links a static library links besides.
pub const LIBS_PRIVATE: &str = "-lpthread -ldl -lm";

const PKG_CONFIG: &str = include_str!("../gasnet.pc.in");
const MAKEFILE: &str = include_str!("../gasnet.mak.in");

fn filled(template: &str, model: &str, prefix: &Path, version: &str) -> String {
    template
        .replace("@PREFIX@", &prefix.display().to_string())
        .replace("@VERSION@", version)
        .replace("@MODEL@", model)
        .replace("@MODEL_UPPER@", &model.to_ascii_uppercase())
        .replace("@LIBS_PRIVATE@", LIBS_PRIVATE)
}

/// Installs the headers of `include` and the libraries that cargo left in `built` under `prefix`.
/// Returns the paths written.
///
/// # Errors
/// A file cannot be read or written.
pub fn install(
    include: &Path,
    built: &Path,
    prefix: &Path,
    version: &str,
) -> io::Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    let headers = prefix.join("include/portals-conduit");
    let lib = prefix.join("lib");
    fs::create_dir_all(&headers)?;
    fs::create_dir_all(lib.join("pkgconfig"))?;
    let prefix = fs::canonicalize(prefix)?;
    for entry in fs::read_dir(include)? {
        let entry = entry?;
        let to = headers.join(entry.file_name());
        fs::copy(entry.path(), &to)?;
        written.push(to);
    }
    for model in MODELS {
        for end in ["so", "a"] {
            let to = lib.join(format!("libgasnet-portals-{model}.{end}"));
            // Not overwritten in place: a program that runs may have the old one mapped.
            let new = lib.join(format!(".libgasnet-portals-{model}.{end}.new"));
            fs::copy(built.join(format!("libgasnet_portals_{model}.{end}")), &new)?;
            fs::rename(&new, &to)?;
            written.push(to);
        }
        let to = lib.join(format!("pkgconfig/gasnet-portals-{model}.pc"));
        fs::write(&to, filled(PKG_CONFIG, model, &prefix, version))?;
        written.push(to);
        let to = headers.join(format!("portals-{model}.mak"));
        fs::write(&to, filled(MAKEFILE, model, &prefix, version))?;
        written.push(to);
    }
    Ok(written)
}
