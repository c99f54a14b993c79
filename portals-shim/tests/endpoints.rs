//! Endpoints that belong to no job: they meet by addresses, at any time, and lose each other.

use fabric_testing::{EndOnPanic, entry, spec, to};
use portals_shim::endpoint::{AddressError, Endpoint};
use portals_shim::fabric::{FabricConfig, FabricKind};
use portals_shim::{
    AckRequest, EqHandle, Event, EventKind, InsertPosition, MdHandle, MdMemory, NiFail, ProcessId,
    Region, Unlink, Wait,
};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of the memory of each side.
const LEN: usize = 1 << 20;
/// Entries with a queue, and without one.
const LOUD: u64 = 1;
const QUIET: u64 = 2;

/// An endpoint with memory to work from and memory that others reach.
struct Side {
    endpoint: Endpoint,
    eq: EqHandle,
    work: Region,
    loud: Region,
    quiet: Region,
    source: MdHandle,
}

/// Over the device that is to be tested, or over shared memory.
fn config() -> FabricConfig {
    let device = std::env::var("PORTOLAN_TEST_DEVICE").ok();
    let device = device.filter(|device| !device.is_empty());
    FabricConfig {
        fabric: match device {
            Some(_) => FabricKind::Verbs,
            None => FabricKind::Shm,
        }
        .into(),
        device,
        ..FabricConfig::default()
    }
}

fn shared_memory() -> FabricConfig {
    FabricConfig {
        fabric: FabricKind::Shm.into(),
        ..FabricConfig::default()
    }
}

impl Side {
    fn new() -> Self {
        Self::on(&config())
    }

    fn on(config: &FabricConfig) -> Self {
        let endpoint = Endpoint::open(config).unwrap();
        let ni = endpoint.interface();
        let eq = ni.eq_alloc(4096).unwrap();
        let work = Region::new(LEN).unwrap();
        let [loud, quiet] = [0; 2].map(|_| ni.new_region(LEN).unwrap());
        for (bits, memory, eq) in [(LOUD, &loud, Some(eq)), (QUIET, &quiet, None)] {
            let me = ni.me_attach(4, entry(bits), InsertPosition::After).unwrap();
            ni.md_attach(me, spec(MdMemory::whole(memory), eq), Unlink::Retain)
                .unwrap();
        }
        let source = spec(MdMemory::whole(&work), Some(eq));
        let source = ni.md_bind(source, Unlink::Retain).unwrap();
        Self {
            endpoint,
            eq,
            work,
            loud,
            quiet,
            source,
        }
    }

    fn id(&self) -> ProcessId {
        self.endpoint.interface().id()
    }

    fn knows(&self, other: &Self) {
        let id = self.endpoint.connect(&other.endpoint.address()).unwrap();
        assert_eq!(id, other.id());
    }

    fn put(&self, len: usize, target: ProcessId, bits: u64, data: u64) {
        let (ni, region) = (self.endpoint.interface(), (0, len as u64));
        ni.put_region(
            self.source,
            region,
            AckRequest::Ack,
            to(target, bits, 0),
            data,
        )
        .unwrap();
    }

    fn get(&self, len: usize, target: ProcessId, bits: u64) {
        let (ni, region) = (self.endpoint.interface(), (0, len as u64));
        ni.get_region(self.source, region, to(target, bits, 0))
            .unwrap();
    }

    fn look(&self) -> Option<Event> {
        let polled = self.endpoint.interface().eq_get(self.eq).unwrap();
        polled.map(|p| p.event)
    }

    /// Puts and gets of some sizes, on both kinds of memory.
    fn talks_to(&self, other: &Self, others: &[&Self]) {
        let all: Vec<&Self> = [self, other]
            .into_iter()
            .chain(others.iter().copied())
            .collect();
        for (seed, len) in [0, 8, 4096, 100_000, LEN].into_iter().enumerate() {
            for (bits, memory) in [(LOUD, &other.loud), (QUIET, &other.quiet)] {
                let data: Vec<u8> = (0..len).map(|i| (i * 31 + seed) as u8).collect();
                self.work.write(0, &data).unwrap();
                self.put(len, other.id(), bits, 0);
                let ack = event(&all, EventKind::Ack);
                assert_eq!((ack.ni_fail, ack.mlength), (NiFail::OK, len as u64));
                let mut seen = vec![0; len];
                memory.read(0, &mut seen).unwrap();
                assert!(seen == data, "put of {len} bytes");
                self.work.fill(0, len, 0).unwrap();
                self.get(len, other.id(), bits);
                let reply = event(&all, EventKind::ReplyEnd);
                assert_eq!((reply.ni_fail, reply.mlength), (NiFail::OK, len as u64));
                self.work.read(0, &mut seen).unwrap();
                assert!(seen == data, "get of {len} bytes");
            }
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.endpoint.interface().close();
    }
}

/// Polls all sides until the first has an event of this kind.
fn event(sides: &[&Side], kind: EventKind) -> Event {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        let found = sides[0].look();
        for other in &sides[1..] {
            other.look();
        }
        if let Some(e) = found.filter(|e| e.kind == kind) {
            return e;
        }
    }
    panic!("no {kind:?}")
}

#[test]
fn two_meet_by_an_address_and_both_talk() {
    let [a, b] = [Side::new(), Side::new()];
    a.knows(&b);
    a.talks_to(&b, &[]);
    // Whom it has not been told of, it has met.
    b.talks_to(&a, &[]);
    let paths = a.endpoint.interface().paths().unwrap();
    assert!(paths.one_sided > 0 && paths.two_sided > 0, "{paths:?}");
}

#[test]
fn two_that_speak_at_once_meet_once() {
    for round in 0..50 {
        let [a, b] = [Side::new(), Side::new()];
        a.knows(&b);
        b.knows(&a);
        std::thread::scope(|s| {
            for (own, other) in [(&a, &b), (&b, &a)] {
                s.spawn(move || {
                    let _end = EndOnPanic::guard();
                    own.put(64, other.id(), LOUD, 1);
                    let ack = event(&[own], EventKind::Ack);
                    assert_eq!(ack.ni_fail, NiFail::OK, "round {round}");
                });
            }
        });
        a.talks_to(&b, &[]);
    }
}

#[test]
fn messages_that_wait_for_a_meeting_arrive_in_order() {
    const COUNT: u64 = 500;
    let [a, b] = [Side::new(), Side::new()];
    a.knows(&b);
    for data in 0..COUNT {
        a.put(16 * (data as usize % 3), b.id(), LOUD, data);
    }
    let begun = Instant::now();
    let mut next = 0;
    while next < COUNT {
        assert!(begun.elapsed() < LIMIT, "{next} of {COUNT} have come");
        a.look();
        let end = b.look().filter(|e| e.kind == EventKind::PutEnd);
        if let Some(end) = end {
            assert_eq!(end.hdr_data, next);
            next += 1;
        }
    }
}

#[test]
fn each_of_many_talks_to_each() {
    let sides: Vec<Side> = (0..9).map(|_| Side::new()).collect();
    for (n, own) in sides.iter().enumerate() {
        // Half of them are told; the others are met.
        sides[n + 1..].iter().for_each(|other| own.knows(other));
    }
    for (n, own) in sides.iter().enumerate() {
        for other in &sides[n + 1..] {
            own.put(1000, other.id(), LOUD, 0);
        }
    }
    let all: Vec<&Side> = sides.iter().collect();
    for own in &sides {
        let others = sides.iter().filter(|other| other.id() != own.id());
        let rest = all.iter().copied().filter(|other| other.id() != own.id());
        let first: Vec<&Side> = std::iter::once(own).chain(rest).collect();
        for other in others {
            own.get(8, other.id(), QUIET);
            let reply = event(&first, EventKind::ReplyEnd);
            assert_eq!(reply.ni_fail, NiFail::OK);
        }
    }
}

#[test]
fn who_was_disconnected_fails_until_it_is_connected_again() {
    let [a, b] = [Side::new(), Side::new()];
    a.knows(&b);
    a.talks_to(&b, &[]);
    assert!(a.endpoint.disconnect(b.id()) && !a.endpoint.disconnect(b.id()));
    for _ in 0..3 {
        a.put(8, b.id(), LOUD, 0);
        assert_eq!(event(&[&a, &b], EventKind::Ack).ni_fail, NiFail::FAIL);
        a.get(8, b.id(), QUIET);
        assert_eq!(event(&[&a, &b], EventKind::ReplyEnd).ni_fail, NiFail::FAIL);
    }
    a.knows(&b);
    a.talks_to(&b, &[]);
    b.talks_to(&a, &[]);
    // At once, so that nobody may have looked in between.
    for _ in 0..20 {
        a.endpoint.disconnect(b.id());
        a.knows(&b);
        a.put(8, b.id(), LOUD, 0);
        assert_eq!(event(&[&a, &b], EventKind::Ack).ni_fail, NiFail::OK);
    }
    a.talks_to(&b, &[]);
}

#[test]
fn who_is_not_there_fails() {
    let [a, b] = [Side::new(), Side::new()];
    // Nobody has told of it.
    a.put(8, b.id(), LOUD, 0);
    assert_eq!(event(&[&a], EventKind::Ack).ni_fail, NiFail::FAIL);
    a.knows(&b);
    let id = b.id();
    drop(b);
    a.get(8, id, QUIET);
    assert_eq!(event(&[&a], EventKind::ReplyEnd).ni_fail, NiFail::FAIL);
}

#[test]
fn who_closes_after_it_has_talked_fails_and_what_it_sent_arrives() {
    let [a, b] = [Side::new(), Side::new()];
    a.knows(&b);
    a.talks_to(&b, &[]);
    b.put(100, a.id(), LOUD, 77);
    let id = b.id();
    std::thread::scope(|s| {
        s.spawn(|| drop(b));
        let end = event(&[&a], EventKind::PutEnd);
        assert_eq!((end.ni_fail, end.hdr_data), (NiFail::OK, 77));
    });
    a.put(8, id, LOUD, 0);
    assert_eq!(event(&[&a], EventKind::Ack).ni_fail, NiFail::FAIL);
}

#[test]
fn what_is_no_address_is_refused() {
    let a = Side::on(&shared_memory());
    let connect = |bytes: &[u8]| a.endpoint.connect(bytes);
    assert_eq!(connect(&[]), Err(AddressError::Length { len: 0 }));
    let mut other = Side::on(&shared_memory()).endpoint.address();
    // Another machine.
    other[26] ^= 1;
    let said = connect(&other).unwrap_err().to_string();
    assert!(said.contains("another machine"), "{said}");
    other[1] = 1;
    assert!(matches!(
        connect(&other),
        Err(AddressError::OtherFabric { .. })
    ));
    assert_eq!(connect(&a.endpoint.address()), Ok(a.id()));
}

/// A wait for an event sleeps, and a peer that speaks ends it.
#[test]
fn a_sleeper_is_woken_by_a_peer_that_it_has_not_met() {
    let [a, b] = [Side::new(), Side::new()];
    a.knows(&b);
    std::thread::scope(|s| {
        let waits = s.spawn(|| {
            let wait = Wait::Nanos(LIMIT.as_nanos() as u64);
            let ni = b.endpoint.interface();
            while let Some(polled) = ni.eq_poll(&[b.eq], wait).unwrap() {
                if polled.event.kind == EventKind::PutEnd {
                    return polled.event.hdr_data;
                }
            }
            0
        });
        a.put(8, b.id(), LOUD, 5);
        assert_eq!(event(&[&a], EventKind::Ack).ni_fail, NiFail::OK);
        assert_eq!(waits.join().unwrap(), 5);
    });
}

/// Makes this program the other one; its value is the folder where the two find each other's addresses.
const OTHER: &str = "PORTOLAN_TEST_OTHER_PROGRAM";

fn run_again(folder: &Path, test: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(OTHER, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn tell(folder: &Path, name: &str, side: &Side) {
    let (new, path) = (folder.join(format!("{name}.new")), folder.join(name));
    std::fs::write(&new, side.endpoint.address()).unwrap();
    std::fs::rename(new, path).unwrap();
}

fn told(folder: &Path, name: &str) -> Vec<u8> {
    let (begun, path) = (Instant::now(), folder.join(name));
    loop {
        match std::fs::read(&path) {
            Ok(bytes) => return bytes,
            Err(_) => assert!(begun.elapsed() < LIMIT, "no address in {}", path.display()),
        }
        std::thread::yield_now();
    }
}

fn other_program() -> Option<PathBuf> {
    std::env::var_os(OTHER).map(PathBuf::from)
}

#[test]
fn two_programs_meet_by_a_file() {
    let name = "two_programs_meet_by_a_file";
    if let Some(folder) = other_program() {
        let own = Side::new();
        let first = own.endpoint.connect(&told(&folder, "first")).unwrap();
        own.work.write(0, b"from the second").unwrap();
        own.put(15, first, LOUD, 1);
        assert_eq!(event(&[&own], EventKind::Ack).ni_fail, NiFail::OK);
        // The first one has it of nobody but this message, and answers.
        let end = event(&[&own], EventKind::PutEnd);
        assert_eq!((end.hdr_data, end.mlength), (2, LEN as u64));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut other = run_again(folder.path(), name);
    let own = Side::new();
    tell(folder.path(), "first", &own);
    let came = event(&[&own], EventKind::PutEnd);
    let mut seen = [0; 15];
    own.loud.read(0, &mut seen).unwrap();
    assert_eq!((&seen, came.hdr_data), (b"from the second", 1));
    own.put(LEN, came.initiator, LOUD, 2);
    assert_eq!(event(&[&own], EventKind::Ack).ni_fail, NiFail::OK);
    assert!(other.wait().unwrap().success());
}

#[test]
fn a_killed_program_fails_and_is_no_hang() {
    let name = "a_killed_program_fails_and_is_no_hang";
    if let Some(folder) = other_program() {
        let own = Side::new();
        tell(&folder, "second", &own);
        loop {
            own.look();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut other = run_again(folder.path(), name);
    let own = Side::new();
    let second = own
        .endpoint
        .connect(&told(folder.path(), "second"))
        .unwrap();
    own.put(8, second, LOUD, 0);
    assert_eq!(event(&[&own], EventKind::Ack).ni_fail, NiFail::OK);
    other.kill().unwrap();
    other.wait().unwrap();
    // Some may find room in its memory; each ends, and the last ones fail at once.
    let mut last = NiFail::OK;
    let begun = Instant::now();
    while last == NiFail::OK && begun.elapsed() < LIMIT {
        own.put(LEN, second, LOUD, 0);
        last = event(&[&own], EventKind::Ack).ni_fail;
    }
    assert_eq!(last, NiFail::FAIL);
}

/// Peers that connect to it would wait for ever.
#[test]
fn an_endpoint_without_a_thread_for_its_peers_does_not_open() {
    let test = "an_endpoint_without_a_thread_for_its_peers_does_not_open";
    if !fabric_testing::is_denied("EAGAIN", "clone,clone3", test) {
        return;
    }
    let error = Endpoint::open(&config()).unwrap_err().to_string();
    let said = "no thread for connections can be started: Resource temporarily unavailable";
    assert!(error.contains(said), "{error}");
    assert!(error.contains("ulimit -u"), "{error}");
}
