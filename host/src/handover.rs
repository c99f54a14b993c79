//! Results that a process of a job hands to the command that started the job.
//!
//! They go through a file without a name: nobody else can open it, and it is gone with the last process that holds it,
//! however that ends. Ranks inherit its descriptor, as they do that of their launcher, and are told its number in place of a
//! file's name: `fd:7`.

use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// What the name of a handover begins with.
const MARK: &str = "fd:";

/// The command's end of it.
#[derive(Debug)]
pub struct Handover(File);

impl Handover {
    /// A handover that processes started from now on inherit.
    ///
    /// # Errors
    /// The system has neither anonymous memory nor a folder for temporary files.
    pub fn new() -> io::Result<Self> {
        let file = memfd_create("portolan-results", MemfdFlags::CLOEXEC)
            .map(File::from)
            .or_else(|_| tempfile::tempfile())?;
        fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        fcntl_setfd(&file, FdFlags::empty())?;
        Ok(Self(file))
    }

    /// What a rank is told in place of a file's name.
    pub fn name(&self) -> PathBuf {
        format!("{MARK}{}", self.0.as_raw_fd()).into()
    }

    /// The path by which a process that inherits it opens it like any file.
    pub fn path(&self) -> PathBuf {
        path_of(self.0.as_raw_fd())
    }

    /// What was written, from its start.
    pub fn into_file(self) -> File {
        self.0
    }
}

fn path_of(number: i32) -> PathBuf {
    format!("/proc/self/fd/{number}").into()
}

/// Opens what a process writes its results into: the handover that `name` is, or the file of that name. It is empty then.
///
/// # Errors
/// The file cannot be made, or the number is not that of a handover.
pub fn create(name: &Path) -> io::Result<File> {
    let number = name.to_str().and_then(|name| name.strip_prefix(MARK));
    let Some(number) = number.and_then(|number| number.parse().ok()) else {
        return File::create(name);
    };
    // A program between the command and its ranks may have closed the descriptor, and another file have its number.
    let file = File::options().write(true).open(path_of(number))?;
    let found = file.metadata()?;
    if !found.is_file() || found.nlink() != 0 {
        let what = format!("descriptor {number} is not what this job's command handed over");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    file.set_len(0)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn what_is_written_by_name_arrives() {
        let handover = Handover::new().unwrap();
        create(&handover.name())
            .unwrap()
            .write_all(b"longer")
            .unwrap();
        create(&handover.name())
            .unwrap()
            .write_all(b"last")
            .unwrap();
        let mut text = String::new();
        handover.into_file().read_to_string(&mut text).unwrap();
        assert_eq!(text, "last");
    }

    #[test]
    fn nothing_of_it_has_a_name() {
        let handover = Handover::new().unwrap();
        let found = std::fs::metadata(handover.path()).unwrap();
        assert!(found.is_file());
        assert_eq!(found.nlink(), 0);
        assert_eq!(found.mode() & 0o777, 0o600);
    }

    #[test]
    fn another_file_of_its_number_is_left_alone() {
        let mut other = tempfile::NamedTempFile::new().unwrap();
        other.write_all(b"precious").unwrap();
        let name = format!("{MARK}{}", other.as_file().as_raw_fd());
        let error = create(Path::new(&name)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(std::fs::read(other.path()).unwrap(), b"precious");
        assert!(create(Path::new("fd:1000000")).is_err());
    }
}
