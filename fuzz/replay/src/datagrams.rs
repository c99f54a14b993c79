//! Datagrams of a peer, as they arrive at an end of the reliable channel.
//!
//! Two ends talk. Each input is a list of acts: send, put, deliver, lose, repeat, change bytes, let time pass, and bytes
//! of nobody. What one end sent is handed up at the other in order and once, whatever happens to it on the way.

use verbs_backend::rd::{Config, Endpoint, Event, Priority, Received, Time};

type End = Endpoint<Vec<u8>>;

struct World {
    ends: [End; 2],
    now: Time,
    wire: [Vec<Vec<u8>>; 2],
    sent: [Vec<Vec<u8>>; 2],
    got: [usize; 2],
}

fn config() -> Config {
    let mut config = Config {
        window: 16,
        checksum: true,
        hold: 500,
        reassembly: 2000,
        ..Config::default()
    };
    config.command.mtu = 64;
    config.data.mtu = 96;
    config
}

impl World {
    fn new() -> Self {
        let ends = [0u32, 1].map(|own| {
            let mut end = End::new(config(), own, u64::from(own) + 5);
            let _ = end.add_peer(1 - own, u64::from(1 - own) + 5);
            end
        });
        Self {
            ends,
            now: 1,
            wire: Default::default(),
            sent: Default::default(),
            got: [0; 2],
        }
    }

    fn handed(&mut self, own: usize, data: &[u8]) {
        let expected = self.sent[1 - own].get(self.got[own]);
        assert_eq!(
            expected.map(Vec::as_slice),
            Some(data),
            "not what was sent next"
        );
        self.got[own] += 1;
    }

    fn give(&mut self, own: usize, bytes: &[u8]) {
        if let Received::Fragment { data, .. } = self.ends[own].handle_datagram(self.now, bytes) {
            self.handed(own, data);
        }
        while let Some(event) = self.ends[own].poll_event() {
            match event {
                Event::Fragment { data, .. } => self.handed(own, &data),
                Event::Place { .. } => panic!("no landing was opened"),
                _ => {}
            }
        }
    }

    fn pump(&mut self, own: usize) {
        let mut buffer = [0; 96];
        while let Some(t) = self.ends[own].poll_transmit(self.now, &mut buffer) {
            self.ends[own].handle_sent(t.channel, 1);
            self.wire[1 - own].push(buffer[..t.len].to_vec());
        }
    }
}

/// How many fragments were handed up.
pub fn run(data: &[u8]) -> u32 {
    let mut world = World::new();
    let mut rest = data;
    while let Some((act, after)) = rest.split_first() {
        rest = after;
        let own = usize::from(act >> 7);
        let mut byte = || {
            let (first, after) = rest.split_first().unwrap_or((&0, &[]));
            rest = after;
            *first
        };
        let waiting = world.wire[own].len();
        match act & 7 {
            0 => {
                let len = usize::from(byte()) * 2;
                let data = vec![world.sent[own].len() as u8; len];
                let peer = world.ends[own].find(1 - own as u32);
                let Some(peer) = peer.filter(|p| !world.ends[own].is_gone(*p)) else {
                    continue;
                };
                world.sent[own].push(data.clone());
                let priority = Priority::InOrder;
                let sent = world.ends[own].send(world.now, peer, data, len as u64, 0, priority);
                assert!(sent.is_ok());
            }
            1 => world.pump(own),
            2 if waiting > 0 => {
                let at = usize::from(byte()) % waiting;
                let datagram = world.wire[own].remove(at);
                world.give(own, &datagram);
            }
            3 if waiting > 0 => {
                let at = usize::from(byte()) % waiting;
                world.wire[own].remove(at);
            }
            4 if waiting > 0 => {
                let at = usize::from(byte()) % waiting;
                let datagram = world.wire[own][at].clone();
                world.give(own, &datagram);
            }
            5 if waiting > 0 => {
                let at = usize::from(byte()) % waiting;
                let mut datagram = world.wire[own][at].clone();
                let place = usize::from(byte()) % datagram.len();
                datagram[place] ^= byte().max(1);
                world.give(own, &datagram);
            }
            6 => {
                world.now += Time::from(byte()) << 17;
                world.ends[own].handle_timeout(world.now);
            }
            7 => {
                let len = usize::from(byte()).min(rest.len());
                let (bytes, after) = rest.split_at(len);
                rest = after;
                world.give(own, bytes);
            }
            _ => {}
        }
    }
    (world.got[0] + world.got[1]) as u32
}
