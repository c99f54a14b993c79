//! What an installation for C consists of.
//!
//! ```text
//!  <prefix>/include/portals3.h, p3api/…, portals/…, p3rt/…, catamount/…
//!  <prefix>/lib/libportals3.so, libportals3.a
//!  <prefix>/lib/libportals.{so,a}, libportals3-utcp.{so,a},
//!               libp3{api,lib,rt,utcp}.{so,a}                    links: names that old programs use
//!  <prefix>/lib/pkgconfig/portals3.pc
//! ```
//!
//! No file has the prefix in it: an installation may be moved as a whole.
//!
//! This file depends on the standard library alone, so that a build tool can include it as a
//! module instead of linking the crate.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The template of `portals3.pc`; `@UP@`, `@VERSION@` and `@LIBS_PRIVATE@` are filled in.
pub const PKG_CONFIG: &str = include_str!("../portals3.pc.in");

/// The libraries as cargo names them.
pub const LIBRARIES: [&str; 2] = ["libportals3.so", "libportals3.a"];

/// Other names of the libraries, without their ends.
pub const ALIASES: [&str; 6] = [
    "libportals",
    "libportals3-utcp",
    "libp3api",
    "libp3lib",
    "libp3rt",
    "libp3utcp",
];

/// What a program that links `libportals3.a` links besides.
pub const LIBS_PRIVATE: &str = "-lpthread -ldl -lm";

/// All files below `folder`, relative to it, in order.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(folder.join(&at))? {
            let entry = entry?;
            let path = at.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                open.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A symbolic link `link` to `target` in its folder, in place of what was there.
fn link(target: &str, link: &Path) -> io::Result<()> {
    match fs::remove_file(link) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => std::os::unix::fs::symlink(target, link),
    }
}

/// The way from a folder below that of libraries to the prefix.
pub fn up(libdir: &str) -> String {
    let folders = Path::new(libdir).components().map(|_| "../");
    format!("{}..", folders.collect::<String>())
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
    for header in files(include)? {
        let to = prefix.join("include").join(&header);
        fs::create_dir_all(to.parent().unwrap_or(prefix))?;
        fs::copy(include.join(&header), &to)?;
        written.push(to);
    }
    let lib = prefix.join(libdir);
    fs::create_dir_all(lib.join("pkgconfig"))?;
    for library in LIBRARIES {
        let to = lib.join(library);
        // Not overwritten in place: a program that runs may have the old one mapped.
        let new = lib.join(format!(".{library}.new"));
        fs::copy(built.join(library), &new)?;
        fs::rename(&new, &to)?;
        written.push(to);
        let end = library.rsplit('.').next().unwrap_or_default();
        for alias in ALIASES {
            let to = lib.join(format!("{alias}.{end}"));
            link(library, &to)?;
            written.push(to);
        }
    }
    let to = lib.join("pkgconfig").join("portals3.pc");
    let text = PKG_CONFIG
        .replace("@UP@", &up(libdir))
        .replace("@VERSION@", version)
        .replace("@LIBS_PRIVATE@", LIBS_PRIVATE);
    fs::write(&to, text)?;
    written.push(to);
    Ok(written)
}
