//! Many peers: what they cost, and many senders to one receiver.

use super::net::{End, Net, Wire, token};
use std::time::Instant;
use verbs_backend::rd::{Channel, Config, Priority, Received, Time};

const MS: Time = 1_000_000;

#[test]
fn ten_thousand_peers_in_one_process() {
    const PEERS: usize = 10_000;
    let started = Instant::now();
    let mut hub = End::new(Config::default(), 0, token(0));
    let empty = hub.memory();
    let mut others: Vec<End> = (1..=PEERS)
        .map(|own| {
            let mut end = End::new(Config::default(), own as u32, token(own));
            let _ = end.add_peer(0, token(0));
            end
        })
        .collect();
    let ids: Vec<_> = (1..=PEERS)
        .map(|n| hub.add_peer(n as u32, token(n)))
        .collect();
    let mut buffer = vec![0; 4096];
    let mut now = 0;
    // Everybody gets a short message and one of three chunks, and answers; then a second round over what is there.
    for round in 0..2u8 {
        for id in &ids {
            hub.send(now, *id, vec![round; 8], 8, 1, Priority::InOrder)
                .unwrap();
            hub.send(now, *id, vec![round; 10_000], 10_000, 2, Priority::InOrder)
                .unwrap();
        }
        let mut got = 0;
        let mut busy = true;
        while busy {
            busy = false;
            now += 1000;
            while let Some(t) = hub.poll_transmit(now, &mut buffer) {
                busy = true;
                hub.handle_sent(t.channel, 1);
                let other = &mut others[hub.number(t.peer).unwrap() as usize - 1];
                let _ = other.handle_datagram(now, &buffer[..t.len]);
                while let Some(event) = other.poll_event() {
                    let back = other.find(0).unwrap();
                    if matches!(event, verbs_backend::rd::Event::Fragment { .. }) {
                        other
                            .send(now, back, vec![9; 8], 8, 0, Priority::InOrder)
                            .unwrap();
                    }
                }
                while let Some(t) = other.poll_transmit(now, &mut buffer) {
                    other.handle_sent(t.channel, 1);
                    got += usize::from(matches!(
                        hub.handle_datagram(now, &buffer[..t.len]),
                        Received::Fragment { .. }
                    ));
                    while hub.poll_event().is_some() {}
                }
            }
            let timeouts: Vec<Time> = hub.next_timeout().into_iter().collect();
            if let Some(at) = timeouts
                .first()
                .filter(|_| !hub.is_idle() || !others.iter().all(End::is_idle))
            {
                now = now.max(*at);
                hub.handle_timeout(now);
                busy = true;
            }
            for other in &mut others {
                if other.next_timeout().is_some_and(|at| at <= now) {
                    other.handle_timeout(now);
                }
            }
        }
        assert_eq!(got, PEERS);
        assert!(hub.is_idle());
        assert_eq!(hub.posted(Channel::Data) + hub.posted(Channel::Command), 0);
    }
    let each = (hub.memory() - empty) as f64 / PEERS as f64;
    println!(
        "10,000 peers: {each:.0} bytes each in all with their traffic over, {:.2} s for 2 rounds of 4 segments and an answer",
        started.elapsed().as_secs_f64()
    );
    let (idle, busy) = hub.memory_of_peers();
    println!(
        "a peer with nothing under way: {idle} bytes; with one message under way: {busy} bytes more"
    );
    assert!(idle <= 256, "{idle}");
}

/// Each of 16 senders has 16 MiB for one receiver, through a port of 10 Gbit/s; what each got through while all sent, and
/// the whole time as a fraction of what the port needs.
fn many_to_one(queue: u64, buffers: usize) -> (Vec<u64>, f64, u64) {
    const SENDERS: usize = 16;
    const MESSAGE: usize = 64 << 10;
    const EACH: usize = 256;
    let wire = Wire {
        per_kilobyte: 800,
        delay: 5_000,
        queue,
        buffers,
        ..Wire::default()
    };
    let mut net = Net::new(SENDERS + 1, Config::default(), wire, 3);
    let start = net.now;
    for i in 0..EACH {
        for from in 1..=SENDERS {
            net.send(from, 0, vec![from as u8; MESSAGE], i as u64);
        }
    }
    for from in 1..=SENDERS {
        net.pump(from);
    }
    let mut shares = None;
    let until = net.now + 10_000 * MS;
    let mut done = vec![0; SENDERS];
    let mut seen = 0;
    while net.got[0].len() < SENDERS * EACH {
        assert!(net.step(until), "stuck");
        for (_, got) in &net.got[0][seen..] {
            if let super::net::Got::Fragment(from, _) = got {
                done[*from - 1] += 1;
            }
        }
        seen = net.got[0].len();
        // As long as nobody has finished.
        if shares.is_none() && done.contains(&(EACH as u64)) {
            shares = Some(done.clone());
        }
    }
    let least = (SENDERS * EACH * MESSAGE) as f64 * 0.8;
    let took = (net.now - start) as f64;
    net.settle(10_000 * MS);
    (shares.unwrap_or_default(), least / took, net.dropped)
}

#[test]
fn many_to_one_neither_collapses_nor_favours() {
    // Ports that hold 16 datagrams of each sender, and four.
    for queue in [1 << 20, 256 << 10] {
        let (shares, used, dropped) = many_to_one(queue, 0);
        let mean = shares.iter().sum::<u64>() as f64 / shares.len() as f64;
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        println!(
            "16 senders, a port of {} KiB: {:.0} % of the port used, {dropped} lost, messages of each: {least} to {most}, mean {mean:.1}",
            queue >> 10,
            used * 100.0
        );
        assert!(used > 0.8, "{used}");
        assert!(
            *least as f64 >= mean * 0.8 && *most as f64 <= mean * 1.2,
            "{shares:?}"
        );
    }
}
