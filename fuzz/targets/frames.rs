//! See `portolan_replay::frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    portolan_replay::frames::run(data);
});
