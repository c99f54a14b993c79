//! What an installation of GASNet for C consists of.
//!
//! ```text
//!  <prefix>/include/portals-conduit/gasnet.h, …
//!  <prefix>/include/portals-conduit/portals-{seq,parsync,par}.mak    variables for a Makefile
//!  <prefix>/include/gasnet.h, …                                      the same headers, where configure scripts look for them
//!  <prefix>/include/gasnet_config.h, <prefix>/bin/gasnetrun_portals    for configure scripts, and for programs that start others
//!  <prefix>/lib/libgasnet-portals-{seq,parsync,par}.{so,a}
//!  <prefix>/lib/pkgconfig/gasnet-portals-{seq,parsync,par}.pc
//! ```
//!
//! No file has the prefix in it: an installation may be moved as a whole.
//!
//! This file depends on the standard library alone, so that a build tool can include it as a
//! module instead of linking the crate.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The thread models, as they are in names.
pub const MODELS: [&str; 3] = ["seq", "parsync", "par"];

/// What a program that links a static library links besides.
pub const LIBS_PRIVATE: &str = "-lpthread -ldl -lm";

const PKG_CONFIG: &str = include_str!("../gasnet.pc.in");
const MAKEFILE: &str = include_str!("../gasnet.mak.in");
const FRONT: &str = include_str!("../gasnet_front.h.in");
const CONFIG: &str = include_str!("../gasnet_config.h.in");
const RUN: &str = include_str!("../gasnetrun.in");

/// The number that a header defines for a part of the release.
fn release(headers: &str, part: &str) -> io::Result<String> {
    let name = format!("GASNETI_RELEASE_{part}");
    let mut words = headers.split_whitespace();
    words
        .find(|word| *word == name)
        .and_then(|_| words.next())
        .map(str::to_owned)
        .ok_or_else(|| io::Error::other(format!("no {name} in gasnet_basic.h")))
}

fn filled(template: &str, model: &str, libdir: &str, version: &str) -> String {
    // From the folder of a file of pkg-config to the prefix.
    let up = Path::new(libdir).components().map(|_| "../");
    template
        .replace("@UP@", &format!("{}..", up.collect::<String>()))
        .replace("@LIB@", libdir)
        .replace("@VERSION@", version)
        .replace("@MODEL@", model)
        .replace("@MODEL_UPPER@", &model.to_ascii_uppercase())
        .replace("@LIBS_PRIVATE@", LIBS_PRIVATE)
}

/// Installs the headers of `include` and the libraries that cargo left in `built` under `prefix`, where libraries are in `libdir`,
/// such as `lib`. Returns the paths written.
///
/// # Errors
/// A file cannot be read or written.
pub fn install(
    include: &Path,
    built: &Path,
    (prefix, libdir): (&Path, &str),
    version: &str,
) -> io::Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    let headers = prefix.join("include/portals-conduit");
    let lib = prefix.join(libdir);
    fs::create_dir_all(&headers)?;
    fs::create_dir_all(lib.join("pkgconfig"))?;
    for entry in fs::read_dir(include)? {
        let entry = entry?;
        let name = entry.file_name();
        let to = headers.join(&name);
        fs::copy(entry.path(), &to)?;
        written.push(to);
        let front = prefix.join("include").join(&name);
        fs::write(&front, FRONT.replace("@HEADER@", &name.to_string_lossy()))?;
        written.push(front);
    }
    let basic = fs::read_to_string(include.join("gasnet_basic.h"))?;
    let mut config = CONFIG.to_owned();
    for part in ["MAJOR", "MINOR", "PATCH"] {
        config = config.replace(&format!("@{part}@"), &release(&basic, part)?);
    }
    let to = prefix.join("include/gasnet_config.h");
    fs::write(&to, config)?;
    written.push(to);
    let bin = prefix.join("bin");
    fs::create_dir_all(&bin)?;
    let to = bin.join("gasnetrun_portals");
    fs::write(&to, filled(RUN, "", libdir, version))?;
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
    written.push(to);
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
        fs::write(&to, filled(PKG_CONFIG, model, libdir, version))?;
        written.push(to);
        let to = headers.join(format!("portals-{model}.mak"));
        fs::write(&to, filled(MAKEFILE, model, libdir, version))?;
        written.push(to);
    }
    Ok(written)
}
