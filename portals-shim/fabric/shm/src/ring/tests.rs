//! The ring and the bell under loom, which plays every interleaving that the memory model allows, and against a
//! queue with random operations.

use super::super::bulk::{give_back, given_back, place};
use super::{Bell, Consumer, Corrupt, Order, Producer, Word, Words, is_spoiled};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Arc, Condvar, Mutex};
use std::sync::atomic::Ordering;

impl Word for AtomicU32 {
    fn acquire(&self) -> u32 {
        self.load(Ordering::Acquire)
    }
    fn release(&self, value: u32) {
        self.store(value, Ordering::Release);
    }
    fn exchange(&self, value: u32) -> u32 {
        self.swap(value, Ordering::AcqRel)
    }
    fn fence() {
        fence(Ordering::SeqCst);
    }
    /// What the kernel puts into this thread for a sleeper is a fence.
    fn light_fence() {
        fence(Ordering::SeqCst);
    }
}

const CELLS: u32 = 2;

/// A ring whose cells hold a number each. They are read and written without any order of their own, so that loom
/// also plays the runs in which a reader sees an old number, unless the ring forbids it.
struct Ring {
    ready: [AtomicU32; CELLS as usize],
    consumed: AtomicU32,
    starved: AtomicU32,
    data: [AtomicU32; CELLS as usize],
    /// The receiver's and the sender's.
    bells: [AtomicU32; 2],
    kernel: [(Mutex<()>, Condvar); 2],
}

impl Words for Ring {
    type Word = AtomicU32;
    fn ready(&self, index: u32) -> &AtomicU32 {
        &self.ready[index as usize]
    }
    fn consumed(&self) -> &AtomicU32 {
        &self.consumed
    }
    fn starved(&self) -> &AtomicU32 {
        &self.starved
    }
}

impl Ring {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            ready: std::array::from_fn(|_| AtomicU32::new(0)),
            consumed: AtomicU32::new(0),
            starved: AtomicU32::new(0),
            data: std::array::from_fn(|_| AtomicU32::new(0)),
            bells: std::array::from_fn(|_| AtomicU32::new(0)),
            kernel: std::array::from_fn(|_| (Mutex::new(()), Condvar::new())),
        })
    }

    /// What the kernel does for a futex: compares and goes to sleep in one step.
    fn sleep(&self, who: usize) {
        let (lock, asleep) = &self.kernel[who];
        let mut held = lock.lock().unwrap();
        while self.bells[who].load(Ordering::Acquire) == 1 {
            held = asleep.wait(held).unwrap();
        }
    }

    fn wake(&self, who: usize) {
        let (lock, asleep) = &self.kernel[who];
        drop(lock.lock().unwrap());
        asleep.notify_all();
    }

    fn put(&self, p: &mut Producer, value: u32) -> bool {
        let Some(at) = p.room().or_else(|| {
            p.look(self).unwrap();
            p.room()
        }) else {
            return false;
        };
        self.data[at as usize].store(value, Ordering::Relaxed);
        p.publish(self);
        if Bell::is_due(&self.bells[0], Order::Sleeper) {
            self.wake(0);
        }
        true
    }

    fn take(&self, c: &mut Consumer) -> Option<u32> {
        let at = c.ready(self)?;
        let value = self.data[at as usize].load(Ordering::Relaxed);
        c.release();
        Some(value)
    }

    fn tell(&self, c: &mut Consumer, idle: bool) {
        if c.tell(self, idle, Order::Sleeper) && Bell::is_due(&self.bells[1], Order::Both) {
            self.wake(1);
        }
    }
}

#[test]
fn nothing_is_lost_or_overwritten() {
    loom::model(|| {
        let ring = Ring::new();
        let sender = Arc::clone(&ring);
        let sending = loom::thread::spawn(move || {
            let mut p = Producer::new(CELLS);
            for value in 1..=3 {
                while !sender.put(&mut p, value) {
                    loom::thread::yield_now();
                }
            }
        });
        let mut c = Consumer::new(CELLS);
        let mut next = 1;
        while next <= 3 {
            match ring.take(&mut c) {
                Some(value) => {
                    assert_eq!(value, next);
                    next += 1;
                }
                None => loom::thread::yield_now(),
            }
            ring.tell(&mut c, false);
        }
        sending.join().unwrap();
    });
}

/// A receiver that sleeps is woken by what is sent; loom ends the model with a deadlock if not.
#[test]
fn a_sleeping_receiver_is_woken() {
    loom::model(|| {
        let ring = Ring::new();
        let sender = Arc::clone(&ring);
        let sending = loom::thread::spawn(move || {
            let mut p = Producer::new(CELLS);
            assert!(sender.put(&mut p, 7));
        });
        let mut c = Consumer::new(CELLS);
        let value = loop {
            if let Some(value) = ring.take(&mut c) {
                break value;
            }
            Bell::prepare(&ring.bells[0]);
            if let Some(value) = ring.take(&mut c) {
                break value;
            }
            ring.sleep(0);
        };
        assert_eq!(value, 7);
        sending.join().unwrap();
    });
}

/// A sender that sleeps because the ring is full is woken by the receiver's progress.
#[test]
fn a_sender_that_waits_for_room_is_woken() {
    loom::model(|| {
        let ring = Ring::new();
        let mut p = Producer::new(CELLS);
        assert!(ring.put(&mut p, 1) && ring.put(&mut p, 2));
        let receiver = Arc::clone(&ring);
        let receiving = loom::thread::spawn(move || {
            let mut c = Consumer::new(CELLS);
            assert_eq!(receiver.take(&mut c), Some(1));
            receiver.tell(&mut c, false);
            assert_eq!(receiver.take(&mut c), Some(2));
            receiver.tell(&mut c, false);
            receiver.tell(&mut c, true);
        });
        while !ring.put(&mut p, 3) {
            Bell::prepare(&ring.bells[1]);
            Producer::starve(&*ring);
            if ring.put(&mut p, 3) {
                break;
            }
            ring.sleep(1);
        }
        receiving.join().unwrap();
    });
}

/// A lane whose bulk area holds the rest of one frame, memory whose accesses loom wants to be in some order.
struct Bulk {
    ring: Arc<Ring>,
    freed: AtomicU32,
    rest: UnsafeCell<u32>,
}

const REST: u32 = 64;

/// The rest of a frame is written when the reader has read the one before, whatever of the reader's two words is seen first.
#[test]
fn the_rest_of_a_frame_is_not_overwritten() {
    loom::model(|| {
        let lane = Arc::new(Bulk {
            ring: Ring::new(),
            freed: AtomicU32::new(0),
            rest: UnsafeCell::new(0),
        });
        let sender = Arc::clone(&lane);
        let sending = loom::thread::spawn(move || {
            let (mut p, mut next, mut freed) = (Producer::new(CELLS), 0, 0);
            for value in 1..=2 {
                let (at, after) = place(next, REST, REST);
                assert_eq!(at, 0);
                while p.room().is_none() || after - freed > REST {
                    loom::thread::yield_now();
                    p.look(&*sender.ring).unwrap();
                    freed = given_back(&sender.freed, freed, next).unwrap();
                }
                sender.rest.with_mut(|_| ());
                next = after;
                assert!(sender.ring.put(&mut p, value));
            }
        });
        let (mut c, mut next) = (Consumer::new(CELLS), 0);
        for value in 1..=2 {
            while c.ready(&*lane.ring).is_none() {
                loom::thread::yield_now();
            }
            lane.rest.with(|_| ());
            assert_eq!(lane.ring.take(&mut c), Some(value));
            next += REST;
            give_back(&lane.freed, next);
            lane.ring.tell(&mut c, false);
        }
        sending.join().unwrap();
    });
}

/// Words of plain memory, for one thread.
struct Plain {
    ready: Vec<std::sync::atomic::AtomicU32>,
    consumed: std::sync::atomic::AtomicU32,
    starved: std::sync::atomic::AtomicU32,
}

impl Words for Plain {
    type Word = std::sync::atomic::AtomicU32;
    fn ready(&self, index: u32) -> &Self::Word {
        &self.ready[index as usize]
    }
    fn consumed(&self) -> &Self::Word {
        &self.consumed
    }
    fn starved(&self) -> &Self::Word {
        &self.starved
    }
}

fn plain(cells: u32) -> Plain {
    Plain {
        ready: (0..cells).map(|_| 0.into()).collect(),
        consumed: 0.into(),
        starved: 0.into(),
    }
}

#[test]
fn a_ring_is_a_bounded_queue() {
    let mut rng = fastrand::Rng::with_seed(11);
    for cells in [1u32, 2, 8] {
        let words = plain(cells);
        let mut data = vec![0; cells as usize];
        let (mut p, mut c) = (Producer::new(cells), Consumer::new(cells));
        let mut oracle = std::collections::VecDeque::new();
        let mut told = 0;
        for round in 0..20_000u32 {
            match rng.u8(0..3) {
                0 => {
                    p.look(&words).unwrap();
                    let room = p.room();
                    assert_eq!(room.is_some(), oracle.len() + told < cells as usize);
                    if let Some(at) = room {
                        data[at as usize] = round;
                        p.publish(&words);
                        oracle.push_back(round);
                    }
                }
                1 => match c.ready(&words) {
                    Some(at) => {
                        assert_eq!(Some(data[at as usize]), oracle.pop_front());
                        c.release();
                        told += 1;
                    }
                    None => assert!(oracle.is_empty()),
                },
                _ => {
                    assert!(!c.tell(&words, rng.bool(), Order::Both));
                    told = 0;
                }
            }
        }
    }
}

#[test]
fn positions_wrap() {
    let words = plain(4);
    let (mut p, mut c) = (Producer::new(4), Consumer::new(4));
    let start = u32::MAX - 5;
    (p.next, p.seen) = (start, start);
    (c.next, c.told, c.asked) = (start, start, start);
    words.consumed.release(start);
    for _ in 0..12 {
        p.look(&words).unwrap();
        assert!(p.room().is_some());
        p.publish(&words);
        assert!(c.ready(&words).is_some());
        c.release();
        c.tell(&words, false, Order::Both);
    }
    assert_eq!(p.position(), start.wrapping_add(12));
}

#[test]
fn a_consumer_that_lies_is_not_believed() {
    let words = plain(4);
    let mut p = Producer::new(4);
    p.publish(&words);
    p.publish(&words);
    for lie in [3, 100, u32::MAX] {
        words.consumed.release(lie);
        let told = Corrupt {
            claimed: lie,
            from: 0,
            to: 2,
        };
        assert_eq!(p.look(&words), Err(told));
        assert_eq!(p.seen(), 0);
    }
    words.consumed.release(2);
    assert_eq!(p.look(&words), Ok(2));
    // It does not go back either.
    words.consumed.release(1);
    assert!(p.look(&words).is_err());
}

/// Between the two readings of the position another thread takes a frame, and the peer writes that cell anew.
#[test]
fn a_cell_that_was_taken_meanwhile_is_not_spoiled() {
    let position = std::cell::Cell::new(7);
    let taken_meanwhile = |at: u32| {
        position.set(at + 1);
        false
    };
    assert!(!is_spoiled(|| position.get(), taken_meanwhile));
    assert!(is_spoiled(|| position.get(), |at| at != 8));
    assert!(!is_spoiled(|| position.get(), |at| at == 8));
}
