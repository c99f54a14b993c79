//! See `portolan_replay::datagrams`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    portolan_replay::datagrams::run(data);
});
