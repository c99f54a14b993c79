//! See `portolan_replay::accelerated`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    portolan_replay::accelerated::run(data);
});
