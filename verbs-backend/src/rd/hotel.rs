//! Timers: each guest has a room, and leaves when it checks out or when its time has come.
//!
//! A wheel of slots of [`TICK`] each, with the rooms of a slot in a ring: checking in, checking out and the expiry of
//! one guest take a constant number of steps. A deadline beyond the wheel's reach waits in the farthest slot and is checked
//! in again from there.
//!
//! # Invariants
//!
//! * A room has one guest at most; checking in again moves it.
//! * Nobody leaves before its deadline, and at the first [`Hotel::expire`] a tick after it at the latest.
//! * [`Hotel::next`] is not later than a tick after the earliest deadline.

use super::config::Time;

/// Length of a slot, nanoseconds. Deadlines are rounded up to it.
pub(super) const TICK: Time = 1 << 16;
const SLOTS: usize = 1024;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Room {
    next: u32,
    prev: u32,
    /// In ticks; meaningful while the room is taken.
    deadline: u64,
    /// [`NONE`]: free.
    slot: u32,
}

/// Bytes of a room.
pub(super) const ROOM: usize = size_of::<Room>();

/// Rooms by number.
#[derive(Debug)]
pub(super) struct Hotel {
    rooms: Vec<Room>,
    /// First and last of each slot.
    slots: Box<[(u32, u32)]>,
    /// Slots that have guests.
    taken: [u64; SLOTS / 64],
    /// The tick up to which guests have left.
    now: u64,
    guests: usize,
}

impl Hotel {
    pub(super) fn new() -> Self {
        Self {
            rooms: Vec::new(),
            slots: vec![(NONE, NONE); SLOTS].into_boxed_slice(),
            taken: [0; SLOTS / 64],
            now: 0,
            guests: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn guests(&self) -> usize {
        self.guests
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.rooms.capacity() * size_of::<Room>() + SLOTS * 8
    }

    /// Whether the room is taken.
    #[cfg(test)]
    pub(super) fn has(&self, room: u32) -> bool {
        self.rooms
            .get(room as usize)
            .is_some_and(|r| r.slot != NONE)
    }

    /// The guest of `room` is to leave at `deadline`.
    pub(super) fn check_in(&mut self, room: u32, deadline: Time) {
        self.check_out(room);
        let at = room as usize;
        if at >= self.rooms.len() {
            let empty = Room {
                next: NONE,
                prev: NONE,
                deadline: 0,
                slot: NONE,
            };
            self.rooms.resize(at + 1, empty);
        }
        self.guests += 1;
        self.put(room, deadline.div_ceil(TICK));
    }

    fn put(&mut self, room: u32, deadline: u64) {
        // The slot of `now` has been looked through.
        let tick = deadline.clamp(self.now + 1, self.now + SLOTS as u64 - 1);
        let slot = tick as usize % SLOTS;
        let (first, last) = &mut self.slots[slot];
        let prev = *last;
        self.rooms[room as usize] = Room {
            next: NONE,
            prev,
            deadline,
            slot: slot as u32,
        };
        *last = room;
        if prev == NONE {
            *first = room;
            self.taken[slot / 64] |= 1 << (slot % 64);
        } else {
            self.rooms[prev as usize].next = room;
        }
    }

    /// Ends the timer of `room`; whether there was one.
    pub(super) fn check_out(&mut self, room: u32) -> bool {
        let Some(&Room {
            next, prev, slot, ..
        }) = self.rooms.get(room as usize).filter(|r| r.slot != NONE)
        else {
            return false;
        };
        let slot = slot as usize;
        match prev {
            NONE => self.slots[slot].0 = next,
            prev => self.rooms[prev as usize].next = next,
        }
        match next {
            NONE => self.slots[slot].1 = prev,
            next => self.rooms[next as usize].prev = prev,
        }
        if self.slots[slot].0 == NONE {
            self.taken[slot / 64] &= !(1 << (slot % 64));
        }
        self.rooms[room as usize].slot = NONE;
        self.guests -= 1;
        true
    }

    /// The first tick after `now` whose slot has guests; there are some.
    fn next_tick(&self) -> u64 {
        let start = (self.now as usize + 1) % SLOTS;
        let mut word = start / 64;
        let mut bits = self.taken[word] & (u64::MAX << (start % 64));
        for _ in 0..=SLOTS / 64 {
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (slot + SLOTS - start) % SLOTS;
                return self.now + 1 + ahead as u64;
            }
            word = (word + 1) % (SLOTS / 64);
            bits = self.taken[word];
        }
        self.now + 1
    }

    /// When [`Hotel::expire`] has something to do.
    pub(super) fn next(&self) -> Option<Time> {
        (self.guests > 0).then(|| self.next_tick() * TICK)
    }

    /// Any guest, who has checked out.
    pub(super) fn any(&mut self) -> Option<u32> {
        if self.guests == 0 {
            return None;
        }
        let room = self.slots[self.next_tick() as usize % SLOTS].0;
        self.check_out(room).then_some(room)
    }

    /// One of those whose time has come, the earliest first; it has checked out.
    pub(super) fn expire(&mut self, now: Time) -> Option<u32> {
        let now = now / TICK;
        while self.guests > 0 && self.now < now {
            let tick = self.next_tick();
            if tick > now {
                break;
            }
            self.now = tick - 1;
            let room = self.slots[tick as usize % SLOTS].0;
            let deadline = self.rooms.get(room as usize)?.deadline;
            self.check_out(room);
            if deadline <= now {
                return Some(room);
            }
            // It waited here for a later turn of the wheel.
            self.guests += 1;
            self.put(room, deadline);
        }
        self.now = self.now.max(now);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn guests_leave_in_time_as_a_naive_list_says() {
        for seed in 0..40 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut hotel = Hotel::new();
            let mut naive: BTreeMap<u32, Time> = BTreeMap::new();
            let mut now = 0;
            for step in 0..3000 {
                let room = random.u32(..64);
                match random.u32(..4) {
                    0 | 1 => {
                        let far = [10, 1000, 5000][random.usize(..3)] * TICK;
                        let deadline = now + random.u64(..far);
                        hotel.check_in(room, deadline);
                        naive.insert(room, deadline);
                    }
                    2 => assert_eq!(hotel.check_out(room), naive.remove(&room).is_some()),
                    _ => {
                        let pace = [1, 40, 3000][random.usize(..3)] * TICK;
                        now += random.u64(..pace);
                        let mut last = 0;
                        while let Some(room) = hotel.expire(now) {
                            let deadline = naive.remove(&room);
                            let deadline = deadline
                                .unwrap_or_else(|| panic!("seed {seed} step {step}: {room}"));
                            assert!(deadline <= now, "seed {seed} step {step}: too early");
                            last = last.max(deadline);
                        }
                        for (room, deadline) in &naive {
                            assert!(hotel.has(*room));
                            // The tick that the deadline lies in is over only with the tick.
                            assert!(
                                deadline.div_ceil(TICK) > now / TICK,
                                "seed {seed} step {step}: too late"
                            );
                        }
                    }
                }
                assert_eq!(hotel.guests(), naive.len());
                let first = naive.values().min().map(|d| d.div_ceil(TICK) * TICK);
                match (hotel.next(), first) {
                    (None, None) => {}
                    // Those far away are looked at earlier.
                    (Some(next), Some(first)) => {
                        assert!(
                            next <= first.max(now / TICK * TICK + TICK),
                            "seed {seed} step {step}"
                        );
                        assert!(
                            next > now / TICK * TICK,
                            "seed {seed} step {step}: in the past"
                        );
                    }
                    other => panic!("seed {seed} step {step}: {other:?}"),
                }
            }
        }
    }
}
