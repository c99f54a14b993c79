//! Results that a process of a job hands to the command that started the job.
//!
//! They go through a file without a name: nobody else can open it, and it is gone with the last process that holds it,
//! however that ends. Ranks inherit its descriptor, as they do that of their launcher, and are told its number in place of a
//! file's name, and which file that is, by its device and its number there: `fd:7:1:1234`.

use rustix::fs::{MemfdFlags, Mode, OFlags, fchmod, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// What the name of a handover begins with.
const MARK: &str = "fd:";
const NONBLOCK: i32 = OFlags::NONBLOCK.bits().cast_signed();

/// The command's end of it.
#[derive(Debug)]
pub struct Handover(File, (u64, u64));

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
        let found = file.metadata()?;
        Ok(Self(file, (found.dev(), found.ino())))
    }

    /// What a rank is told in place of a file's name.
    pub fn name(&self) -> PathBuf {
        let (device, inode) = self.1;
        format!("{MARK}{}:{device}:{inode}", self.0.as_raw_fd()).into()
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
    let told = name.to_str().and_then(|name| name.strip_prefix(MARK));
    let Some((number, device, inode)) = told.and_then(parts) else {
        return File::create(name);
    };
    // A program between the command and its ranks may have closed the descriptor, and another file have its number: a
    // pipe, say, whose opening would wait for a reader.
    let mut options = File::options();
    options.write(true).custom_flags(NONBLOCK);
    let file = options.open(path_of(number))?;
    let found = file.metadata()?;
    if !found.is_file() || (found.dev(), found.ino()) != (device, inode) {
        let what = format!("descriptor {number} is not what this job's command handed over");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    file.set_len(0)?;
    Ok(file)
}

/// Number of the descriptor, device and inode.
fn parts(told: &str) -> Option<(i32, u64, u64)> {
    let mut words = told.split(':');
    let number = words.next()?.parse().ok()?;
    let device = words.next()?.parse().ok()?;
    let inode = words.next()?.parse().ok()?;
    words.next().is_none().then_some((number, device, inode))
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
        // What the command told, of a number that is another file's meanwhile.
        let handover = Handover::new().unwrap();
        let told = handover.name().display().to_string();
        let (_, file) = told.strip_prefix(MARK).unwrap().split_once(':').unwrap();
        let of = |number: i32| PathBuf::from(format!("{MARK}{number}:{file}"));
        let error = create(&of(other.as_file().as_raw_fd())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(std::fs::read(other.path()).unwrap(), b"precious");
        let mut nameless = tempfile::tempfile().unwrap();
        nameless.write_all(b"precious").unwrap();
        let error = create(&of(nameless.as_raw_fd())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(nameless.metadata().unwrap().len(), 8);
        // Nobody reads it, and nobody is waited for.
        let (read, write) = rustix::pipe::pipe().unwrap();
        drop(read);
        assert!(create(&of(write.as_raw_fd())).is_err());
        assert!(create(&of(1_000_000)).is_err());
    }
}
