//! See `portolan_replay::wire`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    portolan_replay::wire::run(data);
});
