//! Which keys can travel through every launcher's key space.

use super::JobError;
use super::value::PART_MARK;
use super::wire::excerpt;

/// Refuses a key that some launcher could not carry, or that is longer than `max` bytes.
pub(super) fn check(key: &str, max: usize) -> Result<(), JobError> {
    let reason = if key.is_empty() {
        "it is empty"
    } else if key.starts_with("PMI_") {
        "names that begin with PMI_ are the launcher's"
    } else if !key
        .bytes()
        .all(|b| b.is_ascii_graphic() && b != b'=' && b != b';')
        || key.contains(PART_MARK)
    {
        "it must be printable ASCII without blanks, =, ; or ~"
    } else {
        return check_length(key, max);
    };
    Err(JobError::BadKey {
        key: excerpt(key),
        reason,
        max,
    })
}

/// Refuses a key, or the key of a part, that is longer than `max` bytes.
pub(super) fn check_length(key: &str, max: usize) -> Result<(), JobError> {
    if key.len() <= max {
        return Ok(());
    }
    Err(JobError::BadKey {
        key: excerpt(key),
        reason: "it is too long for the launcher",
        max,
    })
}
