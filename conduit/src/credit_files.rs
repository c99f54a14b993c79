//! Files about credits, each written anew: `portals-credits.RANK` at the end, `credits.RANK` with a table for each epoch.

use crate::credits::Credits;
use crate::env::Env;
use portals_shim::{PRIVILEGED, is_privileged};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Where a file of this name goes.
pub(crate) fn place(env: &Env, name: &str) -> PathBuf {
    Path::new(env.tmpdir.as_deref().unwrap_or(".")).join(name)
}

/// Makes a file anew that begins with `text`. The folder may be everybody's: a link that somebody put there is replaced and not
/// followed.
pub(crate) fn replace(file: &Path, text: &str) -> Result<File, String> {
    if is_privileged() {
        return Err(PRIVILEGED.to_owned());
    }
    let write = || -> io::Result<File> {
        let folder = file.parent().unwrap_or(Path::new("."));
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(text.as_bytes())?;
        Ok(new.persist(file)?)
    };
    write().map_err(|e| e.to_string())
}

/// `credits.RANK`: the credits of a rank at its start and at the end of each of its epochs (`GASNET_PORTAL_STATS`).
#[derive(Debug)]
pub(crate) struct Dumps {
    path: PathBuf,
    /// `None` once something could not be written, which was said.
    file: Option<File>,
    /// Epochs that are in the file.
    epochs: u64,
}

impl Dumps {
    /// The file with its first table; `None` where none is asked for.
    pub(crate) fn open(env: &Env, me: u32, credits: &Credits) -> Option<Box<Self>> {
        env.credit_dumps.then(|| {
            let path = place(env, &format!("credits.{me:03}"));
            let mut dumps = Self {
                path,
                file: None,
                epochs: 0,
            };
            let made = replace(&dumps.path, &credits.dump());
            dumps.file = dumps.kept(made);
            Box::new(dumps)
        })
    }

    /// To be called after each request: if it ended an epoch, the file gets a table.
    pub(crate) fn note(&mut self, credits: &Credits) {
        let epochs = credits.counts().epochs;
        if epochs != self.epochs {
            self.epochs = epochs;
            self.append(&credits.dump());
        }
    }

    #[cold]
    fn append(&mut self, text: &str) {
        if let Some(mut file) = self.file.take() {
            let written = file.write_all(text.as_bytes()).map(|()| file);
            self.file = self.kept(written);
        }
    }

    /// The file, unless the writing failed.
    fn kept<E: std::fmt::Display>(&self, written: Result<File, E>) -> Option<File> {
        written
            .inspect_err(|e| {
                let path = self.path.display();
                crate::say(format_args!(
                    "ERROR: cannot write the credits to {path}: {e}"
                ));
            })
            .ok()
    }

    /// Whether all is in the file.
    pub(crate) fn is_whole(&self) -> bool {
        self.file.is_some()
    }
}
