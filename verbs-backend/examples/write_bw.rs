//! Bandwidth of RDMA writes between two queue pairs of this process, posted in chains. Short messages are inline, and
//! only the last of a chain is signalled; long ones own a buffer each.
//!
//! ```text
//! cargo run --release -p verbs-backend --example write_bw -- [DEVICE] [BYTES]
//! ```
//!
//! Prints payload MB/s (10^6 bytes), the rate of messages, and the packets that crossed the device.

use std::error::Error;
use std::time::Instant;

use verbs_backend::{
    BufferPool, Completion, Cq, Device, Pd, Qp, QpOptions, SendBatch, SendFlags, SendOp, Window,
    counters,
};

/// Requests of a chain, and chains outstanding.
const CHAIN: u64 = 16;
const OUTSTANDING: u64 = 4;
const SIZES: [usize; 5] = [64, 1024, 4096, 65_536, 1 << 20];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next();
    let total: u64 = arguments.next().map_or(Ok(32 << 20), |text| text.parse())?;
    let device = Device::open(name.as_deref())?;
    let pd = Pd::new(&device)?;
    let cq = Cq::new(&device, 256)?;
    let (source, target) = (
        Qp::new(&pd, &QpOptions::new(&cq))?,
        Qp::new(&pd, &QpOptions::new(&cq))?,
    );
    source.connect(&target.endpoint())?;
    target.connect(&source.endpoint())?;
    let window = Window::new(&pd, 1 << 20)?;
    let op = SendOp::Write(window.remote(0).ok_or("an empty window")?);
    let pool = BufferPool::new(&pd, u32::try_from(CHAIN * OUTSTANDING)?, 1 << 20)?;
    let max_inline = usize::try_from(source.capabilities().max_inline)?;
    let data = vec![1; max_inline];
    let before = counters::sent_packets(device.name(), 1).ok();
    let mut batch = SendBatch::new();
    let mut slots = [Completion::EMPTY; 8];
    for size in SIZES {
        let chains = (total / u64::try_from(size)? / CHAIN).clamp(OUTSTANDING, 500);
        let inline = data.get(..size);
        let start = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while done < chains * CHAIN {
            while posted < chains && (posted + 1) * CHAIN <= done + OUTSTANDING * CHAIN {
                for index in 1..=CHAIN {
                    if let Some(data) = inline {
                        let last = index == CHAIN;
                        let flags = if last {
                            SendFlags::SIGNALLED
                        } else {
                            SendFlags::empty()
                        };
                        batch.push_inline(posted, op, data, flags)?;
                    } else {
                        let buffer = pool.take().ok_or("no free buffer")?;
                        batch.push_owned(posted, op, buffer, 0..size, SendFlags::empty())?;
                    }
                }
                source.post(&mut batch)?;
                posted += 1;
            }
            for completion in cq.poll(&mut slots)? {
                completion.result()?;
                done += if source.take(completion).is_some() {
                    1
                } else {
                    CHAIN
                };
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let messages = (chains * CHAIN) as f64;
        println!(
            "{size:8} B {:9.2} MB/s {:9.0} messages/s",
            messages * size as f64 / 1e6 / seconds,
            messages / seconds
        );
    }
    if let (Some(before), Ok(after)) = (before, counters::sent_packets(device.name(), 1)) {
        println!("packets sent by the device: {}", after - before);
    }
    Ok(())
}
