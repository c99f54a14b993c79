//! Starts programs to which the kernel refuses system calls, by the filter of `tests/c/deny.c`.

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The program that sets the filter up, compiled.
#[derive(Debug)]
pub struct Deny {
    _folder: TempDir,
    program: PathBuf,
}

impl Deny {
    /// Compiles it; `None`, and a line, where there is no C compiler.
    ///
    /// # Panics
    /// It does not compile, or there is no place for temporary files.
    ///
    /// ```
    /// # if let Some(deny) = deny::Deny::compile() {
    /// let made = deny.command("EPERM", "mkdir").args(["mkdir", "nothing"]).status()?;
    /// assert!(!made.success());
    /// # }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn compile() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a place for temporary files");
        let program = folder.path().join("deny");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../c/deny.c");
        let mut compiler = Command::new("cc");
        match compiler.arg("-o").arg(&program).arg(source).status() {
            Ok(status) => assert!(status.success(), "{source}"),
            Err(error) => {
                println!("skipped: cc: {error}");
                return None;
            }
        }
        Some(Self {
            _folder: folder,
            program,
        })
    }

    /// Where it is, as long as this lives.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A command that runs the program of its further arguments, whose calls of these names (`getpid,gettid`) fail with `error` (`EPERM`).
    #[must_use]
    pub fn command(&self, error: &str, calls: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args([error, calls]);
        command
    }
}
