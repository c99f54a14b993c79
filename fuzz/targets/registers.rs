//! See `portolan_replay::registers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    portolan_replay::registers::run(data);
});
