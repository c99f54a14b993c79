// UNSAFETY: asks the C library what the kernel said of the program at its start.
#![expect(
    unsafe_code,
    reason = "getauxval is an unsafe call of the C library, and no safe one says whether a program is privileged"
)]
//! A program with privileges that its caller lacks: setuid, setgid, or with capabilities of its file.
//!
//! Whoever calls such a program chooses its environment. The library therefore starts nothing that a variable names and
//! opens no file that a variable names (`AT_SECURE`, as the dynamic linker does).

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::OnceLock;

/// Why a variable does not count, for messages.
pub const PRIVILEGED: &str =
    "this program has privileges that its caller lacks (setuid, setgid or file capabilities)";

/// Whether this program has privileges that its caller lacks.
pub fn is_privileged() -> bool {
    static SECURE: OnceLock<bool> = OnceLock::new();
    // SAFETY: getauxval reads the process's auxiliary vector, and has no conditions.
    *SECURE.get_or_init(|| unsafe { libc::getauxval(libc::AT_SECURE) } != 0)
}

/// Whether only root and this process's effective user can change the file, or put another in its place.
pub fn is_trusted(file: &Path) -> bool {
    let own = crate::ids::user().ok();
    let safe = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|found| {
            (found.uid() == 0 || Some(found.uid()) == own) && found.mode() & 0o022 == 0
        })
    };
    safe(file) && file.parent().is_some_and(safe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_that_others_can_replace_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("program");
        std::fs::write(&file, "").unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        mode(&file, 0o755);
        assert!(is_trusted(&file));
        mode(&file, 0o775);
        assert!(!is_trusted(&file));
        mode(&file, 0o755);
        mode(folder.path(), 0o777);
        assert!(!is_trusted(&file));
        assert!(!is_trusted(&folder.path().join("absent")));
    }

    #[test]
    fn a_test_is_not_privileged() {
        assert!(!is_privileged());
    }
}
