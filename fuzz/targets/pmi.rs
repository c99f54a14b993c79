//! See `portolan_replay::pmi`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    portolan_replay::pmi::run(data);
});
