//! Files and folders that a command writes at its end. They are made ready before its work begins, so that what cannot be
//! written costs no measurement.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::error::CmdError;

/// A file that will be written. What it held stays until then; one that is new goes if nothing is written.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    file: File,
    /// It was made here and has not been written.
    idle: bool,
}

impl OutputFile {
    /// Opens `path` for writing, and makes the file where there is none.
    pub(crate) fn open(path: &Path) -> Result<Self, CmdError> {
        let open = || {
            let made = OpenOptions::new().write(true).create_new(true).open(path);
            match made {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    Ok((OpenOptions::new().write(true).open(path)?, false))
                }
                made => Ok((made?, true)),
            }
        };
        let (file, idle) = open().map_err(|error| refused("create", path, error))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            idle,
        })
    }

    /// Replaces what the file held by what `write` writes.
    pub(crate) fn write(
        mut self,
        write: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), CmdError> {
        self.idle = false;
        let emptied = match self.file.metadata() {
            Ok(kind) if kind.is_file() => self.file.set_len(0),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        emptied
            .and_then(|()| write(&self.file))
            .map_err(|error| refused("write", &self.path, error))
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.idle {
            // The command fails for another reason, which it tells.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes the folder `path` where there is none, and sees that files can be made in it; whether it is new.
pub(crate) fn folder(path: &Path) -> Result<bool, CmdError> {
    let new = !path.is_dir();
    fs::create_dir_all(path).map_err(|error| refused("make the folder", path, error))?;
    access(path, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|errno| refused("write into", path, errno.into()))?;
    Ok(new)
}

/// Why `path` cannot be written, with what to do where that is known.
pub(crate) fn refused(what: &str, path: &Path, reason: io::Error) -> CmdError {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let absent = parent.filter(|p| reason.kind() == ErrorKind::NotFound && !p.exists());
    let advice = match absent {
        Some(parent) => format!("make {} first, or name another place", parent.display()),
        None => "name another place".to_owned(),
    };
    let path = path.display();
    CmdError::Failed(format!("cannot {what} {path}: {reason}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_file_keeps_what_it_held_until_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        fs::write(&path, "what was there before").unwrap();
        drop(OutputFile::open(&path).unwrap());
        assert_eq!(text(&path), "what was there before");
        let output = OutputFile::open(&path).unwrap();
        output.write(|mut file| file.write_all(b"new")).unwrap();
        assert_eq!(text(&path), "new");
    }

    #[test]
    fn a_new_file_goes_unless_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let output = OutputFile::open(&path).unwrap();
        assert!(path.exists());
        drop(output);
        assert!(!path.exists());
        let output = OutputFile::open(&path).unwrap();
        output.write(|_| Ok(())).unwrap();
        assert!(path.exists());
    }

    #[test]
    fn a_refusal_has_the_path_and_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("a/b");
        let said = |error: CmdError| portals_shim::with_causes(&error);
        let words = said(OutputFile::open(&missing).unwrap_err());
        let (path, parent) = (missing.display(), folder.path().join("a"));
        let begin = format!("cannot create {path}: No such file");
        assert!(words.starts_with(&begin), "{words}");
        let advice = format!("; make {} first", parent.display());
        assert!(words.contains(&advice), "{words}");
        let words = said(OutputFile::open(folder.path()).unwrap_err());
        assert!(words.contains("Is a directory"), "{words}");
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(super::folder(&file.join("x")).is_err());
        assert!(super::folder(&missing).unwrap());
        assert!(!super::folder(&missing).unwrap());
    }
}
