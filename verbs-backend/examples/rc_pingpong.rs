//! Ping-pong between two queue pairs of this process, one in each of two threads: by send, and by RDMA write into a
//! window that the other side polls.
//!
//! ```text
//! cargo run --release -p verbs-backend --example rc_pingpong -- [DEVICE] [ROUNDS]
//! ```
//!
//! Prints half round trips in µs, and the packets that crossed the device.

use std::error::Error;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use verbs_backend::{
    BufferPool, Completion, Cq, Device, Endpoint, Pd, Qp, QpOptions, Remote, SendFlags, SendOp,
    Window, counters,
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const SIZES: [usize; 5] = [8, 64, 512, 1024, 4096];
/// Sends between two signalled ones.
const BATCH: usize = 32;

struct Side {
    cq: Cq,
    qp: Qp,
    pool: BufferPool,
    window: Window,
    peer: Remote,
    first: bool,
    rounds: usize,
}

impl Side {
    /// Makes a queue pair and connects it with the other thread's.
    fn new(
        device: &Device,
        to: &Sender<(Endpoint, Remote)>,
        from: &Receiver<(Endpoint, Remote)>,
        first: bool,
        rounds: usize,
    ) -> Outcome<Self> {
        let pd = Pd::new(device)?;
        let cq = Cq::new(device, 512)?;
        let qp = Qp::new(&pd, &QpOptions::new(&cq))?;
        let pool = BufferPool::new(&pd, 128, 4096)?;
        let window = Window::new(&pd, 4096)?;
        let own = window.remote(0).ok_or("an empty window")?;
        qp.init()?;
        qp.post_recv(std::iter::from_fn(|| pool.take()).take(64))?;
        to.send((qp.endpoint(), own))?;
        let (endpoint, peer) = from.recv()?;
        qp.connect(&endpoint)?;
        if first {
            println!("{}: {:?}", device.name(), qp.capabilities());
        }
        Ok(Self {
            cq,
            qp,
            pool,
            window,
            peer,
            first,
            rounds,
        })
    }

    /// Half round trips by send, in µs, sorted.
    fn send(&self, size: usize) -> Outcome<Vec<f64>> {
        let inline = size <= usize::try_from(self.qp.capabilities().max_inline)?;
        let data = vec![1; size];
        let mut slots = [Completion::EMPTY; 8];
        let (mut arrived, mut times) = (0, Vec::with_capacity(self.rounds));
        // Posted again after the answer, so that this costs no latency.
        let mut spare = Vec::with_capacity(64);
        for round in 0..self.rounds {
            let start = Instant::now();
            for step in [self.first, !self.first] {
                if step {
                    if inline {
                        let signal = if round % BATCH == 0 {
                            SendFlags::SIGNALLED
                        } else {
                            SendFlags::empty()
                        };
                        self.qp.post_inline(0, SendOp::Send, &data, signal)?;
                    } else {
                        let mut buffer = self.pool.take().ok_or("no free buffer")?;
                        buffer[..size].copy_from_slice(&data);
                        self.qp
                            .post_owned(0, SendOp::Send, buffer, 0..size, SendFlags::empty())?;
                    }
                    continue;
                }
                while arrived <= round {
                    for completion in self.cq.poll(&mut slots)? {
                        completion.result()?;
                        let taken = self.qp.take(completion);
                        if completion
                            .opcode()
                            .is_some_and(|opcode| opcode.is_receive())
                        {
                            arrived += 1;
                            spare.extend(taken.map(|(buffer, _)| buffer));
                        }
                    }
                }
            }
            times.push(start.elapsed().as_secs_f64() * 0.5e6);
            if spare.len() >= 32 {
                self.qp.post_recv(spare.drain(..))?;
            }
        }
        self.qp.post_recv(spare)?;
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// Half round trips by RDMA write, in µs, sorted. The last byte of each message tells its round.
    fn write(&self, size: usize) -> Outcome<Vec<f64>> {
        let inline = size <= usize::try_from(self.qp.capabilities().max_inline)?;
        let mut data = vec![0; size];
        let mut slots = [Completion::EMPTY; 8];
        let mut times = Vec::with_capacity(self.rounds);
        for round in 0..self.rounds {
            let mark = u8::try_from(round % 255)? + 1;
            let start = Instant::now();
            for step in [self.first, !self.first] {
                if step {
                    data[size - 1] = mark;
                    let op = SendOp::Write(self.peer);
                    if inline {
                        let signal = if round % BATCH == 0 {
                            SendFlags::SIGNALLED
                        } else {
                            SendFlags::empty()
                        };
                        self.qp.post_inline(0, op, &data, signal)?;
                    } else {
                        let mut buffer = self.pool.take().ok_or("no free buffer")?;
                        buffer[..size].copy_from_slice(&data);
                        self.qp
                            .post_owned(0, op, buffer, 0..size, SendFlags::empty())?;
                    }
                    continue;
                }
                while self.window.load(size - 1)? != mark {
                    std::hint::spin_loop();
                }
                for completion in self.cq.poll(&mut slots)? {
                    completion.result()?;
                    self.qp.take(completion);
                }
            }
            times.push(start.elapsed().as_secs_f64() * 0.5e6);
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    fn run(&self) -> Outcome<()> {
        for size in SIZES {
            let (send, write) = (self.send(size)?, self.write(size)?);
            if self.first {
                let show =
                    |times: &[f64]| format!("{:8.2} {:8.2}", times[0], times[times.len() / 2]);
                println!(
                    "{size:6} B   send min, median {}   write {}",
                    show(&send),
                    show(&write)
                );
            }
        }
        Ok(())
    }
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next();
    let rounds = arguments.next().map_or(Ok(2000), |text| text.parse())?;
    let device = Device::open(name.as_deref())?;
    let before = counters::sent_packets(device.name(), 1).ok();
    let (to_second, from_first) = channel();
    let (to_first, from_second) = channel();
    let other = device.clone();
    let second = thread::spawn(move || -> Outcome<()> {
        // The side lives until its last message is acknowledged: the first side's end waits for this thread.
        Side::new(&other, &to_first, &from_first, false, rounds)?.run()
    });
    let first = Side::new(&device, &to_second, &from_second, true, rounds)?;
    first.run()?;
    second.join().map_err(|_| "the second thread panicked")??;
    if let (Some(before), Ok(after)) = (before, counters::sent_packets(device.name(), 1)) {
        println!("packets sent by the device: {}", after - before);
    }
    Ok(())
}
