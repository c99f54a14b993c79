use super::*;
use std::fs::File;
use std::process::{Child, Command};

fn own() -> ProcessMemory {
    ProcessMemory::new(Arc::new(Files::own().unwrap()))
}

#[test]
fn bad_addresses_are_answers() {
    let mut own = own();
    let data = Box::new([1u8, 2, 3, 4]);
    let at = data.as_ptr().expose_provenance() as u64;
    let mut back = [0u8; 4];
    assert!(own.read(at, &mut back));
    assert_eq!(back, *data);
    assert!(!own.read(8, &mut back));
    assert!(!own.write(8, &[1]));
    assert!(!own.write(u64::MAX - 2, &*data));
    assert!(
        own.write(8, &[]) && own.read(8, &mut []),
        "nothing is everywhere"
    );
}

/// The file by which memory is reached would write there.
#[test]
fn memory_that_may_not_be_written_is_not() {
    static CONSTANT: [u8; 64] = [7; 64];
    let at = std::hint::black_box(&CONSTANT).as_ptr().expose_provenance() as u64;
    let mut own = own();
    let mut back = [0; 64];
    assert!(own.read(at, &mut back));
    assert_eq!(back, [7; 64]);
    assert!(!own.write(at, &[1]));
    assert!(own.read(at, &mut back));
    assert_eq!(back, [7; 64]);
}

#[test]
fn what_a_process_maps_while_it_runs_is_found() {
    let mut own = own();
    let region = fabric_api::region::Region::new(1 << 20).unwrap();
    let at = region.addr();
    assert!(own.write(at, &[5; 100]));
    drop(region);
    own.has_run();
    assert!(!own.write(at, &[6; 100]) || fabric_api::region::Region::new(4096).is_ok());
}

/// Packets are there together, once the process may look.
#[test]
fn what_packets_bring_is_there_together() {
    let mut own = own();
    let room = Box::new([const { std::cell::Cell::new(0u64) }; 32]);
    let at = room.as_ptr().expose_provenance() as u64;
    assert!((0..8).all(|packet| own.write(at + packet * 32, &[packet as u8 + 1; 32])));
    let seen = |n: usize| std::hint::black_box(&room)[n].get();
    assert!(!own.areas.are_current() || seen(0) == 0);
    own.flush();
    assert_eq!(seen(0), u64::from_ne_bytes([1; 8]));
    assert_eq!(seen(31), u64::from_ne_bytes([8; 8]));
    // What was written and is not flushed yet is read.
    let mut back = [0; 8];
    assert!(own.write(at, &[9; 8]) && own.read(at + 4, &mut back));
    assert_eq!(back, [9, 9, 9, 9, 1, 1, 1, 1]);
}

fn memory_of(child: &Child) -> Arc<Files> {
    let folder = format!("/proc/{}", child.id());
    Arc::new(Files::at(Path::new(&folder)).unwrap())
}

/// The first bytes of a mapping of a process that it may write.
fn somewhere(child: &Child) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
    let line = maps
        .lines()
        .find(|l| l.contains(" rw-p ") && l.contains("[stack]"));
    let (_, end) = line
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .split_once('-')
        .unwrap();
    u64::from_str_radix(end, 16).unwrap() - 64
}

fn sleeper() -> Child {
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    // After exec its memory stays.
    let comm = format!("/proc/{}/comm", child.id());
    while std::fs::read_to_string(&comm).unwrap().trim() != "sleep" {
        std::thread::yield_now();
    }
    child
}

/// Another process gets the number of one that was a rank: neither is reached any more.
#[test]
fn a_process_that_has_the_number_of_one_that_is_gone_is_not_touched() {
    let mut first = sleeper();
    let (number, at) = (first.id(), somewhere(&first));
    let mut rank = ProcessMemory::new(memory_of(&first));
    let mut back = [0; 8];
    assert!(rank.read(at, &mut back));
    assert!(rank.write(at, &[1; 8]) && rank.read(at, &mut back));
    assert_eq!(back, [1; 8]);
    first.kill().unwrap();
    first.wait().unwrap();
    rank.has_run();
    assert!(!rank.read(at, &mut back) && !rank.write(at, &[2; 8]));
    let Some(mut second) = reborn(number) else {
        return;
    };
    rank.has_run();
    let at = somewhere(&second);
    let mut other = ProcessMemory::new(memory_of(&second));
    assert!(other.write(at, &[3; 8]));
    assert!(!rank.read(at, &mut back) && !rank.write(at, &[2; 8]));
    assert!(other.read(at, &mut back));
    assert_eq!(back, [3; 8]);
    second.kill().unwrap();
    second.wait().unwrap();
}

/// A process with this number, if one can be had.
fn reborn(number: u32) -> Option<Child> {
    for _ in 0..1000 {
        // Others start processes too.
        let before = (number - 1).to_string();
        if let Err(error) = std::fs::write("/proc/sys/kernel/ns_last_pid", before) {
            eprintln!("skipped: the next process id cannot be chosen: {error}");
            return None;
        }
        let mut child = sleeper();
        if child.id() == number {
            return Some(child);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    eprintln!("skipped: others took process id {number}");
    None
}

#[test]
fn what_is_said_of_a_refusal_is_its_cause() {
    assert!(refusal(Errno::NOENT).contains("/proc"));
    assert!(refusal(Errno::MFILE).contains("its /proc/self/mem cannot be used"));
    assert!(File::open("/proc/self/maps").is_ok());
}
