//! Loss, reordering, window and round trip against goodput, in virtual time: `docs/src/mechanisms/datagrams-table.txt`,
//! compared byte for byte. `PORTOLAN_BLESS=1` writes it anew.

use super::net::{Got, Net, Wire};
use std::fmt::Write;
use verbs_backend::rd::{Config, Congestion, Retransmit, Time};

/// 10 Gbit/s.
const PER_KILOBYTE: Time = 800;
const MESSAGE: usize = 64 << 10;
const MS: Time = 1_000_000;

struct Row {
    loss: u32,
    reorder: u32,
    window: u16,
    trip: Time,
}

struct Outcome {
    /// Bytes a second, / 1e6.
    goodput: u64,
    /// Segments sent again, of 1000.
    again: u64,
    /// From the send to the delivery, microseconds.
    worst: u64,
}

/// A stream of 64 KiB messages of 16 MiB in all, of which at most 16 wait; then 200 of 8 bytes, one each half millisecond, for
/// the delay.
fn play(row: &Row, total: usize, change: impl Fn(&mut Config)) -> Outcome {
    let mut config = Config {
        window: row.window,
        ..Config::default()
    };
    change(&mut config);
    let wire = Wire {
        per_kilobyte: PER_KILOBYTE,
        delay: row.trip / 2,
        loss: row.loss,
        reorder: row.reorder,
        // By up to 20 datagrams.
        late: 20 * 3300,
        ..Wire::default()
    };
    let mut net = Net::new(2, config, wire, 7);
    let count = total / MESSAGE;
    let start = net.now;
    let mut sent = 0;
    while net.fragments_count(1) < count {
        let waiting = sent - net.acked(0, 1).len();
        for _ in waiting..16.min(waiting + count - sent) {
            net.send(0, 1, vec![sent as u8; MESSAGE], sent as u64);
            sent += 1;
        }
        net.pump(0);
        let until = net.now + 60_000 * MS;
        assert!(net.step(until), "stuck");
    }
    let took = net.now - start;
    net.settle(60_000 * MS);
    let stats = *net.ends[0].stats();
    let segments = stats.fragment_sends + stats.chunk_sends;
    let before = net.got[1].len();
    let mut times = Vec::new();
    for i in 0..200u64 {
        times.push(net.now);
        net.send(0, 1, i.to_le_bytes().to_vec(), 0);
        net.run(MS / 2);
    }
    net.settle(60_000 * MS);
    let late = net.got[1][before..]
        .iter()
        .filter(|g| matches!(g.1, Got::Fragment(..)));
    let worst = late.zip(&times).map(|(got, sent)| got.0 - sent).max();
    Outcome {
        goodput: total as u64 * 1000 / took,
        again: stats.resends * 1000 / segments,
        worst: worst.unwrap_or(0) / 1000,
    }
}

fn percent(of_million: u32) -> String {
    format!("{}.{}", of_million / 10_000, of_million / 1000 % 10)
}

fn table() -> String {
    let mut text = String::from(
        "SIMULATED: 10 Gbit/s (1250 MB/s), datagrams of 4096 bytes, 16 MiB in messages of 64 KiB, then 200 of 8 bytes\n\
         goodput: payload bytes / 1e6 per second; again: segments sent again per 1000; worst: delay of an 8-byte message\n\
         adaptive: times and window as learned; fixed: 5 ms, no congestion window (Open MPI's defaults)\n\n\
         loss %  reorder %  window  round trip us |  adaptive: MB/s  again  worst us |  fixed: MB/s  again  worst us\n",
    );
    for trip in [10, 100, 1000] {
        for window in [64, 4096] {
            for reorder in [0, 50_000] {
                for loss in [0, 1000, 10_000, 50_000, 200_000] {
                    let row = Row {
                        loss,
                        reorder,
                        window,
                        trip: trip * 1000,
                    };
                    let a = play(&row, 16 << 20, |_| {});
                    let f = play(&row, 16 << 20, |config| {
                        config.retransmit = Retransmit::Fixed(5 * MS);
                        config.congestion = Congestion::None;
                    });
                    let _ = writeln!(
                        text,
                        "{:>6}  {:>9}  {window:>6}  {trip:>13} |  {:>14}  {:>5}  {:>8} |  {:>11}  {:>5}  {:>8}",
                        percent(loss),
                        percent(reorder),
                        a.goodput,
                        a.again,
                        a.worst,
                        f.goodput,
                        f.again,
                        f.worst
                    );
                }
            }
        }
    }
    text
}

#[test]
fn table_of_loss_reordering_window_and_round_trip() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/src/mechanisms/datagrams-table.txt"
    );
    let text = table();
    println!("{text}");
    if std::env::var_os("PORTOLAN_BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == text,
        "{path} differs; PORTOLAN_BLESS=1 writes it anew"
    );
}

#[test]
fn a_hundredth_lost_leaves_more_than_half() {
    for trip in [10_000, 100_000, 1_000_000] {
        let row = |loss| Row {
            loss,
            reorder: 0,
            window: 4096,
            trip,
        };
        let (without, with) = (
            play(&row(0), 64 << 20, |_| {}).goodput,
            play(&row(10_000), 64 << 20, |_| {}).goodput,
        );
        println!("round trip {trip} ns: {without} MB/s, with 1 % lost {with} MB/s");
        assert!(with * 2 >= without);
    }
}
