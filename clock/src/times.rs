//! Seconds and nanoseconds.

use libc::{timespec, timeval};

pub(crate) const SECOND: u64 = 1_000_000_000;

/// Nanoseconds; `None` where it is no time, or one before 1970 or after 2554.
pub(crate) fn nanos(time: &timespec) -> Option<u64> {
    let (seconds, nanos) = (
        u64::try_from(time.tv_sec).ok()?,
        u64::try_from(time.tv_nsec).ok()?,
    );
    if nanos >= SECOND {
        return None;
    }
    seconds.checked_mul(SECOND)?.checked_add(nanos)
}

/// Nanoseconds of microseconds and seconds; `None` where it is no time.
pub(crate) fn nanos_of_timeval(time: &timeval) -> Option<u64> {
    let micros = u64::try_from(time.tv_usec)
        .ok()
        .filter(|u| *u < 1_000_000)?;
    let seconds = u64::try_from(time.tv_sec).ok()?;
    seconds.checked_mul(SECOND)?.checked_add(micros * 1000)
}

/// The same as the C library has it.
pub(crate) fn timespec(nanos: u64) -> timespec {
    timespec {
        tv_sec: (nanos / SECOND).cast_signed(),
        tv_nsec: (nanos % SECOND).cast_signed(),
    }
}

/// The same in microseconds, rounded down.
pub(crate) fn timeval(nanos: u64) -> timeval {
    timeval {
        tv_sec: (nanos / SECOND).cast_signed(),
        tv_usec: (nanos % SECOND / 1000).cast_signed(),
    }
}

/// The next whole second.
pub(crate) fn whole(nanos: u64) -> u64 {
    nanos.div_ceil(SECOND).saturating_mul(SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back() {
        for n in [0, 1, SECOND - 1, SECOND, 1_800_000_000 * SECOND + 7] {
            assert_eq!(nanos(&timespec(n)), Some(n));
            assert_eq!(nanos_of_timeval(&timeval(n)), Some(n / 1000 * 1000));
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        let time = |tv_sec, tv_nsec| libc::timespec { tv_sec, tv_nsec };
        assert_eq!(nanos(&time(0, SECOND.cast_signed())), None);
        assert_eq!(nanos(&time(-1, 0)), None);
        assert_eq!(nanos(&time(0, -1)), None);
        assert_eq!(nanos(&time(i64::MAX, 0)), None);
        let long = libc::timeval {
            tv_sec: 0,
            tv_usec: 1_000_000,
        };
        assert_eq!(nanos_of_timeval(&long), None);
    }

    #[test]
    fn a_whole_second_is_not_before() {
        assert_eq!(whole(0), 0);
        assert_eq!(whole(1), SECOND);
        assert_eq!(whole(SECOND), SECOND);
        assert_eq!(whole(SECOND + 1), 2 * SECOND);
    }
}
