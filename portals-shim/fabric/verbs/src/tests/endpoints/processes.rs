//! Two programs that were not started together meet by addresses in files.

use super::*;
use std::path::Path;
use std::process::Command;

const FOLDER: &str = "PORTOLAN_TEST_MEETING";

/// Tells the address to whoever looks into the folder.
fn publish(folder: &Path, name: &str, address: &[u8]) {
    let unfinished = folder.join(format!("{name}.unfinished"));
    std::fs::write(&unfinished, address).unwrap();
    std::fs::rename(unfinished, folder.join(name)).unwrap();
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    let start = Instant::now();
    loop {
        match std::fs::read(folder.join(name)) {
            Ok(address) => return address,
            Err(_) => assert!(start.elapsed() < Duration::from_secs(60), "no {name}"),
        }
        std::thread::yield_now();
    }
}

/// Opens an endpoint, as an [`Opened`] for the helpers of ranks.
fn open() -> (Endpoint, Opened) {
    let config = FabricConfig {
        fabric: FabricKind::Verbs.into(),
        device: device(),
        ..FabricConfig::default()
    };
    let endpoint = Endpoint::open(&config).unwrap();
    let opened = Opened {
        interface: endpoint.interface().clone(),
        peers: Vec::new(),
    };
    (endpoint, opened)
}

/// Puts a pattern into the other's memory, and waits for its ack.
fn give(o: &Opened, s: &Side, peer: ProcessId, seed: usize) {
    s.work.write(0, &pattern(LEN, seed)).unwrap();
    let whole = (0, LEN as u64);
    for (bits, number) in [(QUIET, 0), (LOUD, 1)] {
        let there = to(peer, bits, 0);
        let put = o
            .interface
            .put_region(s.source, whole, AckRequest::Ack, there, number);
        put.unwrap();
        wait(o, s.eq, EventKind::Ack, bits);
    }
}

/// Who has put what is expected here.
fn take(o: &Opened, s: &Side, seed: usize) -> ProcessId {
    let event = wait(o, s.eq, EventKind::PutEnd, LOUD);
    for memory in [&s.loud, &s.quiet] {
        let mut seen = vec![0; LEN];
        memory.read(0, &mut seen).unwrap();
        assert!(seen == pattern(LEN, seed));
    }
    event.initiator
}

#[test]
fn device_two_programs_meet_by_addresses_in_files() {
    if device().is_none() {
        return;
    }
    let _guard = EndOnPanic::guard();
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = Path::new(&folder);
        let (endpoint, o) = open();
        let s = side(&o, LEN);
        publish(folder, "second", &endpoint.address());
        let first = endpoint.connect(&read(folder, "first")).unwrap();
        give(&o, &s, first, 1);
        assert_eq!(take(&o, &s, 2), first);
        ring(&o, &s, first);
        wait(&o, s.eq, EventKind::SendEnd, BELL);
        return o.interface.close().unwrap();
    }
    let meeting = tempfile::tempdir().unwrap();
    let folder = meeting.path();
    let (endpoint, o) = open();
    let s = side(&o, LEN);
    publish(folder, "first", &endpoint.address());
    let name = "tests::endpoints::processes::device_two_programs_meet_by_addresses_in_files";
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(FOLDER, folder)
        .spawn()
        .unwrap();
    // Its own request alone makes it known.
    let second = take(&o, &s, 1);
    give(&o, &s, second, 2);
    wait(&o, s.eq, EventKind::PutEnd, BELL);
    assert!(other.wait().unwrap().success());
    let said = read(folder, "second");
    assert_eq!(Address::from_bytes(&said).unwrap().id(), second);
    o.interface.close().unwrap();
}
