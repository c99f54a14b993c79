//! Frames that are placed in any order of their bytes, among messages, by writers that keep to the protocol and by others.

use super::*;

/// The end of a ring that is written, as `Peer::post_in_ring` does it, by an adapter that the test drives.
struct Writer {
    region: Region,
    slots: usize,
    at: usize,
}

/// What an adapter has to place: the words of a frame, and where the first one goes.
struct Packet {
    first: usize,
    words: Vec<u64>,
}

impl Writer {
    fn of(reader: &Reader) -> Self {
        Self {
            region: reader.region().clone(),
            slots: reader.slots,
            at: 0,
        }
    }

    fn packet(&mut self, frame: &[u8], number: u32, value: Option<u32>) -> Packet {
        let taken = taken(frame.len()).unwrap();
        let mut bytes = vec![0xee; taken];
        bytes[..frame.len()].copy_from_slice(frame);
        end(&mut bytes, frame.len(), number, value);
        let first = (self.at + 1) * SLOT - taken;
        self.at = (self.at + 1) % self.slots;
        let words = bytes.as_chunks::<8>().0.iter();
        Packet {
            first,
            words: words.map(|w| u64::from_le_bytes(*w)).collect(),
        }
    }

    fn place(&self, packet: &Packet) {
        for (at, word) in packet.words.iter().enumerate() {
            self.word(packet.first + 8 * at, *word);
        }
    }

    fn word(&self, at: usize, word: u64) {
        self.region.store_u64(at, word, Ordering::Relaxed).unwrap();
    }
}

fn ring(slots: usize) -> (Reader, Writer) {
    let reader = Reader::new(slots).unwrap();
    let writer = Writer::of(&reader);
    (reader, writer)
}

/// What the reader takes, as bytes.
fn take(reader: &mut Reader, expected: u32) -> Option<(Vec<u8>, Option<u32>)> {
    let mut copy = [0; WORDS];
    let (len, value) = reader.take(expected, &mut copy)?;
    let bytes = copy.iter().flat_map(|w| w.to_le_bytes());
    Some((bytes.take(len).collect(), value))
}

fn frame(number: u32, len: usize) -> Vec<u8> {
    (0..len)
        .map(|k| (k as u32 * 7).wrapping_add(number) as u8)
        .collect()
}

#[test]
fn frames_of_all_lengths_come_through_a_ring_again_and_again() {
    let (mut reader, mut writer) = ring(3);
    let start = u32::MAX - 100;
    for (turn, len) in (0..=SLOT - END).enumerate() {
        let number = start.wrapping_add(turn as u32);
        let value = (turn % 2 == 0).then_some(turn as u32 * 0x0101_0101);
        assert!(!reader.is_full());
        let packet = writer.packet(&frame(number, len), number, value);
        writer.place(&packet);
        assert!(reader.is_full());
        assert_eq!(take(&mut reader, number), Some((frame(number, len), value)));
        assert_eq!(take(&mut reader, number.wrapping_add(1)), None, "once");
    }
    assert!(reader.is_clean());
    assert_eq!(taken(SLOT - END + 1), None);
}

/// Words become visible in every order, the bytes of each in two halves: the frame is there when all of them are.
#[test]
fn a_frame_is_there_when_all_of_it_is() {
    let (mut reader, mut writer) = ring(1);
    for (turn, number) in (0x0102_0304..).take(3).enumerate() {
        let value = (turn == 1).then_some(77);
        let bytes = frame(number, 13);
        let packet = writer.packet(&bytes, number, value);
        let (words, first) = (packet.words.len(), packet.first);
        let old: Vec<u64> = (0..words)
            .map(|at| {
                reader
                    .region()
                    .load_u64(first + 8 * at, Ordering::Relaxed)
                    .unwrap()
            })
            .collect();
        let halves = 2 * words;
        for there in 0..1u32 << halves {
            let mut seen = old.clone();
            for half in (0..halves).filter(|half| there >> half & 1 != 0) {
                let mask = 0xffff_ffff_u64 << (32 * (half % 2));
                let word = &mut seen[half / 2];
                *word = *word & !mask | packet.words[half / 2] & mask;
            }
            let whole = seen == packet.words;
            for (at, word) in seen.iter().enumerate() {
                writer.word(first + 8 * at, *word);
            }
            let expected = whole.then(|| (bytes.clone(), value));
            assert_eq!(take(&mut reader, number), expected, "{there:b}");
        }
    }
}

#[test]
fn what_is_no_frame_stays_and_is_found_at_the_end() {
    let whole = |bytes: &[u8], number| {
        let (reader, mut writer) = ring(2);
        let packet = writer.packet(bytes, number, None);
        (reader, writer, packet)
    };
    let last_of = |packet: &Packet| *packet.words.last().unwrap();
    // Longer than a slot; without the bit that is always there; with one that has no meaning; an old and a later number.
    let (_, _, good) = whole(&frame(5, 24), 5);
    let last = last_of(&good);
    for word in [
        last | 0xff00,
        last & !FULL,
        last | 1 << 7,
        last | 1 << 17,
        last - (1 << 32),
        last + (1 << 32),
        u64::MAX,
        1,
    ] {
        let (mut reader, writer, packet) = whole(&frame(5, 24), 5);
        writer.place(&packet);
        writer.word(SLOT - 8, word);
        assert_eq!(take(&mut reader, 5), None, "{word:x}");
        assert!(reader.is_full() && !reader.is_clean());
        // What a writer corrects is a frame.
        writer.word(SLOT - 8, last);
        assert_eq!(take(&mut reader, 5), Some((frame(5, 24), None)));
    }
    // One in a slot that has its turn later.
    let (reader, writer, _) = whole(&[], 0);
    writer.word(2 * SLOT - 8, 1);
    assert!(!reader.is_full() && !reader.is_clean());
}

/// A byte that is changed after the sum was made.
#[test]
fn a_frame_with_another_byte_is_none() {
    let (mut reader, mut writer) = ring(1);
    let packet = writer.packet(&frame(9, 40), 9, Some(3));
    for at in 0..packet.words.len() - 1 {
        for bit in 0..64 {
            writer.place(&packet);
            writer.word(packet.first + 8 * at, packet.words[at] ^ 1 << bit);
            assert_eq!(take(&mut reader, 9), None, "word {at}, bit {bit}");
        }
    }
    writer.place(&packet);
    assert!(take(&mut reader, 9).is_some());
}

/// What a peer posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Post {
    Written,
    Sent,
    /// A message that has no number: credits.
    Credits,
}

/// The two ends, and an adapter between them that keeps the order of what is posted.
struct Model {
    posts: Vec<Post>,
    /// Placed, or with its completion in the queue.
    arrived: usize,
    queue: std::collections::VecDeque<usize>,
    reader: Reader,
    writer: Writer,
    /// By the index of the post.
    handled: Vec<usize>,
    received: u32,
}

impl Model {
    fn new(posts: &[Post], slots: usize) -> Self {
        let (reader, writer) = ring(slots);
        Self {
            posts: posts.to_vec(),
            arrived: 0,
            queue: std::collections::VecDeque::new(),
            reader,
            writer,
            handled: Vec::new(),
            received: 0,
        }
    }

    fn number(&self, post: usize) -> u32 {
        let before = self.posts[..post].iter();
        before.filter(|p| **p != Post::Credits).count() as u32
    }

    /// The next post arrives; `false` if there is none, or no slot for it, which credits prevent.
    fn arrive(&mut self) -> bool {
        let post = self.arrived;
        match self.posts.get(post) {
            None => return false,
            Some(Post::Written) => {
                if self.number(post) >= self.received + self.reader.slots as u32 {
                    return false;
                }
                let number = self.number(post);
                let packet = self.writer.packet(&[post as u8], number, None);
                self.writer.place(&packet);
            }
            Some(_) => self.queue.push_back(post),
        }
        self.arrived += 1;
        true
    }

    /// `Verbs::take_ring`.
    fn look(&mut self, most: usize) -> bool {
        let mut any = false;
        for _ in 0..most {
            let Some((bytes, _)) = take(&mut self.reader, self.received) else {
                break;
            };
            any = true;
            self.handled.push(usize::from(bytes[0]));
            self.received += 1;
        }
        any
    }

    /// `Verbs::handle_completion`.
    fn poll(&mut self) -> bool {
        let Some(post) = self.queue.pop_front() else {
            return false;
        };
        self.look(usize::MAX);
        if self.posts[post] == Post::Sent {
            self.handled.push(post);
            self.received += 1;
        }
        true
    }

    /// Does these steps; `false` if one of them could not be.
    fn run(&mut self, steps: &[usize]) -> bool {
        steps.iter().all(|step| match step {
            0 => self.arrive(),
            1 => self.look(1),
            _ => self.poll(),
        })
    }
}

/// Everything that a peer may post, arriving, looked at and polled in every order: each frame is handled once, in the order
/// in which it was posted.
#[test]
fn frames_and_messages_keep_their_order_however_they_are_looked_at() {
    const POSTS: usize = 4;
    let mut ends = 0;
    for number in 0..3usize.pow(POSTS as u32) {
        let posts: Vec<Post> = (0..POSTS as u32)
            .map(|k| [Post::Written, Post::Sent, Post::Credits][number / 3usize.pow(k) % 3])
            .collect();
        let counted = |p: &&usize| posts[**p] != Post::Credits;
        let all: Vec<usize> = (0..POSTS).collect();
        let in_order: Vec<usize> = all.iter().filter(counted).copied().collect();
        // Depth first, each way from the start: a ring cannot be copied.
        let mut ways: Vec<Vec<usize>> = vec![Vec::new()];
        while let Some(way) = ways.pop() {
            let mut end = true;
            for step in 0..3 {
                let mut longer = way.clone();
                longer.push(step);
                let mut model = Model::new(&posts, 2);
                if !model.run(&longer) {
                    continue;
                }
                assert!(
                    in_order.starts_with(&model.handled),
                    "{posts:?} {longer:?}: {:?}",
                    model.handled
                );
                end = false;
                ways.push(longer);
            }
            if end {
                let mut model = Model::new(&posts, 2);
                assert!(model.run(&way));
                assert_eq!(model.handled, in_order, "{posts:?} {way:?}");
                assert!(model.reader.is_clean());
                ends += 1;
            }
        }
    }
    assert!(ends > 1000, "{ends} ways were gone");
}
