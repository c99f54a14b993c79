//! See `portolan_replay::calls`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    portolan_replay::calls::run(data);
});
