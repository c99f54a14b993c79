//! What needs an RDMA device: `PORTOLAN_TEST_DEVICE` names it. Without it each test says that it is skipped.

use std::time::{Duration, Instant};

use verbs_backend::qp::{PostError, QpError};
use verbs_backend::{
    Access, BufferPool, Completion, Cq, DatagramOptions, Datagrams, Device, DeviceError, Opcode,
    Pd, Qp, QpOptions, QpState, Remote, Route, SendBatch, SendFlags, SendOp, Srq, Status, Window,
    counters,
};

/// Longest wait for anything in these tests; a device that works answers in microseconds.
const PATIENCE: Duration = Duration::from_secs(20);

fn device() -> Option<Device> {
    let Ok(name) = std::env::var("PORTOLAN_TEST_DEVICE") else {
        eprintln!("skipped: no RDMA device (set PORTOLAN_TEST_DEVICE)");
        return None;
    };
    Some(Device::open(Some(&name)).unwrap())
}

/// Polls until `count` completions have come.
fn wait(cq: &Cq, count: usize) -> Vec<Completion> {
    let start = Instant::now();
    let mut slots = [Completion::EMPTY; 16];
    let mut all = Vec::new();
    while all.len() < count {
        all.extend_from_slice(cq.poll(&mut slots).unwrap());
        assert!(
            start.elapsed() < PATIENCE,
            "{} of {count} completions: {all:?}",
            all.len()
        );
    }
    assert_eq!(all.len(), count, "{all:?}");
    all
}

/// Two connected queue pairs with a completion queue each.
struct Pair {
    pd: Pd,
    cqs: [Cq; 2],
    qps: [Qp; 2],
}

impl Pair {
    fn new(device: &Device, change: impl Fn(&mut QpOptions<'_>)) -> Self {
        let pd = Pd::new(device).unwrap();
        let cqs = [(); 2].map(|()| Cq::with_events(device, 1024).unwrap());
        let qps = [0, 1].map(|side| {
            let mut options = QpOptions::new(&cqs[side]);
            change(&mut options);
            Qp::new(&pd, &options).unwrap()
        });
        for side in 0..2 {
            qps[side].connect(&qps[1 - side].endpoint()).unwrap();
            assert_eq!(qps[side].state().unwrap(), QpState::RTS);
        }
        Self { pd, cqs, qps }
    }
}

#[test]
fn devices_are_listed_and_unknown_ones_refused_with_the_list() {
    let Some(device) = device() else { return };
    assert!(
        Device::list()
            .unwrap()
            .iter()
            .any(|name| name == device.name())
    );
    assert_eq!(
        Device::open(None).unwrap().port(1).unwrap().active,
        device.port(1).unwrap().active
    );
    match Device::open(Some("absent0")).unwrap_err() {
        DeviceError::NotFound { name, present } => {
            assert_eq!(name, "absent0");
            assert!(present.iter().any(|name| name == device.name()));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(device.port(99), Err(DeviceError::Query { .. })));
    assert!(matches!(
        device.gid(1, Some(250)),
        Err(DeviceError::NoGidAt { .. })
    ));
    let limits = device.limits();
    assert!(
        limits.qp_requests > 0 && limits.cq_entries > 0 && limits.ports > 0,
        "{limits:?}"
    );
    let gid = device.gid(1, None).unwrap();
    assert!(
        !gid.gid.is_link_local() || device.gids(1).unwrap().len() == 1,
        "{gid:?}"
    );
}

#[test]
fn buffers_travel_through_a_shared_receive_queue() {
    let Some(device) = device() else { return };
    let pd = Pd::new(&device).unwrap();
    let cq = Cq::new(&device, 256).unwrap();
    let srq = Srq::new(&pd, 64, 1).unwrap();
    let mut options = QpOptions::new(&cq);
    options.srq = Some(&srq);
    let (one, two) = (
        Qp::new(&pd, &options).unwrap(),
        Qp::new(&pd, &options).unwrap(),
    );
    one.connect(&two.endpoint()).unwrap();
    two.connect(&one.endpoint()).unwrap();
    let pool = BufferPool::new(&pd, 64, 3000).unwrap();
    assert_eq!(
        srq.post_recv(std::iter::from_fn(|| pool.take()).take(20))
            .unwrap(),
        20
    );
    let before = counters::sent_packets(device.name(), 1).ok();
    let mut batch = SendBatch::new();
    for tag in 0..10u8 {
        let mut buffer = pool.take().unwrap();
        buffer.fill(tag);
        let length = 100 * (usize::from(tag) + 1);
        let op = SendOp::SendImmediate(u32::from(tag) + 1000);
        batch
            .push_owned(u64::from(tag), op, buffer, 0..length, SendFlags::empty())
            .unwrap();
    }
    one.post(&mut batch).unwrap();
    assert!(batch.is_empty());
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for completion in wait(&cq, 20) {
        completion.result().unwrap();
        assert!(completion.owns_buffer());
        if completion.opcode() == Some(Opcode::Receive) {
            let buffer = srq.take(&completion).unwrap();
            assert!(
                srq.take(&completion).is_none(),
                "a completion frees its buffer once"
            );
            let length = usize::try_from(completion.length()).unwrap();
            let tag = buffer[0];
            assert!(buffer[..length].iter().all(|&byte| byte == tag));
            assert_eq!(length, 100 * (usize::from(tag) + 1));
            assert_eq!(completion.immediate(), Some(u32::from(tag) + 1000));
            assert_eq!(completion.qpn(), two.qpn());
            received.push(tag);
        } else {
            assert_eq!(completion.opcode(), Some(Opcode::Send));
            let (_buffer, tag) = one.take(&completion).unwrap();
            sent.push(tag);
        }
    }
    assert_eq!(received, (0..10).collect::<Vec<u8>>());
    assert_eq!(sent, (0..10).collect::<Vec<u64>>());
    assert_eq!((srq.outstanding(), pool.available()), (10, 54));
    // The kernel reads the adapter again only when its last reading is some milliseconds old.
    let start = Instant::now();
    while before.is_some_and(|n| counters::sent_packets(device.name(), 1).unwrap() < n + 10) {
        assert!(
            start.elapsed() < PATIENCE,
            "the messages did not cross the device"
        );
    }
    // The queue's buffers come back when it goes.
    drop((one, two, srq));
    assert_eq!(pool.available(), 64);
}

#[test]
fn a_write_and_the_send_chained_behind_it_arrive_in_order() {
    let Some(device) = device() else { return };
    let pair = Pair::new(&device, |_| {});
    let window = Window::new(&pair.pd, 8192).unwrap();
    let pool = BufferPool::new(&pair.pd, 8, 8192).unwrap();
    let mut batch = SendBatch::new();
    for round in 1..=50u8 {
        pair.qps[1].post_recv(pool.take()).unwrap();
        let mut data = pool.take().unwrap();
        data.fill(round);
        let write = SendOp::Write(window.remote(0).unwrap());
        batch
            .push_owned(7, write, data, 0..8192, SendFlags::empty())
            .unwrap();
        batch
            .push_inline(8, SendOp::Send, &[round], SendFlags::SIGNALLED)
            .unwrap();
        pair.qps[0].post(&mut batch).unwrap();
        let arrived = wait(&pair.cqs[1], 1)[0];
        assert_eq!(
            (arrived.opcode(), arrived.length()),
            (Some(Opcode::Receive), 1)
        );
        let mut bytes = [0; 8192];
        window.read(0, &mut bytes).unwrap();
        assert!(
            bytes.iter().all(|&byte| byte == round),
            "the send overtook the write"
        );
        assert_eq!(window.load(8191).unwrap(), round);
        assert_eq!(pair.qps[1].take(&arrived).unwrap().0[0], round);
        for completion in wait(&pair.cqs[0], 2) {
            completion.result().unwrap();
            pair.qps[0].take(&completion);
        }
    }
}

#[test]
fn reads_fetch_a_peers_window() {
    let Some(device) = device() else { return };
    let pair = Pair::new(&device, |_| {});
    let window = Window::new(&pair.pd, 10_000).unwrap();
    let bytes: Vec<u8> = (0..10_000u32)
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect();
    window.write(0, &bytes).unwrap();
    let pool = BufferPool::new(&pair.pd, 1, 9_000).unwrap();
    let read = SendOp::Read(window.remote(500).unwrap());
    let buffer = pool.take().unwrap();
    pair.qps[0]
        .post_owned(3, read, buffer, 100..9_000, SendFlags::empty())
        .unwrap();
    let completion = wait(&pair.cqs[0], 1)[0];
    completion.result().unwrap();
    assert_eq!(completion.opcode(), Some(Opcode::Read));
    let (buffer, tag) = pair.qps[0].take(&completion).unwrap();
    assert_eq!(tag, 3);
    assert_eq!(buffer[100..], bytes[500..9_400]);
}

#[test]
fn unsignalled_requests_make_no_completion_and_free_the_queue_with_the_next_signal() {
    let Some(device) = device() else { return };
    let pair = Pair::new(&device, |options| options.max_send = 32);
    let window = Window::new(&pair.pd, 64).unwrap();
    let op = SendOp::Write(window.remote(0).unwrap());
    for id in 1..=1000u64 {
        let flags = if id % 16 == 0 {
            SendFlags::SIGNALLED
        } else {
            SendFlags::empty()
        };
        pair.qps[0]
            .post_inline(id, op, &id.to_le_bytes(), flags)
            .unwrap();
        if id % 16 == 0 {
            let completion = wait(&pair.cqs[0], 1)[0];
            completion.result().unwrap();
            assert_eq!((completion.id(), completion.owns_buffer()), (id, false));
        }
    }
    pair.qps[0]
        .post_inline(1001, op, b"last", SendFlags::SIGNALLED)
        .unwrap();
    assert_eq!(wait(&pair.cqs[0], 1)[0].id(), 1001);
    let mut bytes = [0; 4];
    window.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"last");
}

#[test]
fn a_full_send_queue_leaves_the_rest_in_the_batch() {
    let Some(device) = device() else { return };
    let pair = Pair::new(&device, |options| options.max_send = 8);
    let room = usize::try_from(pair.qps[0].capabilities().max_send).unwrap();
    let pool = BufferPool::new(&pair.pd, 600, 16).unwrap();
    let window = Window::new(&pair.pd, 64).unwrap();
    let op = SendOp::Write(window.remote(0).unwrap());
    let mut batch = SendBatch::new();
    for tag in 0..500 {
        batch
            .push_owned(tag, op, pool.take().unwrap(), 0..16, SendFlags::empty())
            .unwrap();
    }
    let mut tags = Vec::new();
    let mut refusals = 0;
    let start = Instant::now();
    while !batch.is_empty() || tags.len() < 500 {
        let before = batch.len();
        match pair.qps[0].post(&mut batch) {
            Ok(()) => assert!(batch.is_empty()),
            Err(PostError::Full { accepted, .. }) => {
                assert_eq!(batch.len(), before - accepted);
                refusals += 1;
            }
            Err(other) => panic!("{other}"),
        }
        let mut slots = [Completion::EMPTY; 16];
        for completion in pair.cqs[0].poll(&mut slots).unwrap() {
            completion.result().unwrap();
            tags.push(pair.qps[0].take(completion).unwrap().1);
        }
        assert!(start.elapsed() < PATIENCE);
    }
    assert!(refusals > 0, "500 requests fitted in a queue of {room}");
    assert_eq!(tags, (0..500).collect::<Vec<u64>>());
    assert_eq!(pool.available(), 600);
}

#[test]
fn an_access_beyond_the_rights_fails_and_flushes_what_follows() {
    let Some(device) = device() else { return };
    let pair = Pair::new(&device, |_| {});
    let window = Window::new(&pair.pd, 4096).unwrap();
    let pool = BufferPool::new(&pair.pd, 4, 64).unwrap();
    pair.qps[0].post_recv(pool.take()).unwrap();
    let wrong = Remote {
        rkey: window.mr().rkey() ^ 0x55,
        ..window.remote(0).unwrap()
    };
    let post = |remote, tag| {
        let buffer = pool.take().unwrap();
        pair.qps[0].post_owned(
            tag,
            SendOp::Write(remote),
            buffer,
            0..64,
            SendFlags::empty(),
        )
    };
    post(wrong, 1).unwrap();
    let failed = wait_for_owned(&pair, 1);
    assert_eq!(failed[0].1, Status::REMOTE_ACCESS);
    assert_eq!(failed[0].0, 1);
    // The queue pair is in the error state: requests are flushed, or refused.
    if post(window.remote(0).unwrap(), 2).is_ok() {
        assert_eq!(wait_for_owned(&pair, 1), [(2, Status::FLUSHED)]);
    }
    assert_eq!(pair.qps[0].state().unwrap(), QpState::ERROR);
}

/// Waits for `count` completions of owned sends of the first side, passing over flushed receives.
fn wait_for_owned(pair: &Pair, count: usize) -> Vec<(u64, Status)> {
    let start = Instant::now();
    let mut slots = [Completion::EMPTY; 4];
    let mut seen = Vec::new();
    while seen.len() < count {
        for completion in pair.cqs[0].poll(&mut slots).unwrap() {
            assert_eq!(completion.qpn(), pair.qps[0].qpn());
            let (_, tag) = pair.qps[0].take(completion).unwrap();
            if tag != 0 {
                seen.push((tag, completion.status()));
            }
        }
        assert!(start.elapsed() < PATIENCE, "{seen:?}");
    }
    seen
}

#[test]
fn receives_are_flushed_by_the_error_state() {
    let Some(device) = device() else { return };
    let pair = Pair::new(&device, |_| {});
    let pool = BufferPool::new(&pair.pd, 40, 64).unwrap();
    pair.qps[1]
        .post_recv(std::iter::from_fn(|| pool.take()))
        .unwrap();
    assert_eq!(pool.available(), 0);
    pair.qps[1].to_error().unwrap();
    for completion in wait(&pair.cqs[1], 40) {
        assert_eq!(completion.status(), Status::FLUSHED);
        assert!(pair.qps[1].take(&completion).is_some());
    }
    assert_eq!(pool.available(), 40);
}

#[test]
fn events_tell_of_completions() {
    let Some(device) = device() else { return };
    let pair = Pair::new(&device, |_| {});
    let pool = BufferPool::new(&pair.pd, 2, 64).unwrap();
    pair.qps[1].post_recv(pool.take()).unwrap();
    assert!(!pair.cqs[1].wait(Some(Duration::ZERO)).unwrap());
    pair.cqs[1].arm(false).unwrap();
    assert!(!pair.cqs[1].take_event().unwrap());
    pair.qps[0]
        .post_inline(1, SendOp::Send, b"wake", SendFlags::SIGNALLED)
        .unwrap();
    assert!(pair.cqs[1].wait(Some(PATIENCE)).unwrap());
    assert_eq!(wait(&pair.cqs[1], 1)[0].length(), 4);
    assert!(
        !pair.cqs[1].wait(Some(Duration::ZERO)).unwrap(),
        "one event for one arming"
    );
    let silent = Cq::new(&device, 4).unwrap();
    assert!(silent.arm(false).is_err() && silent.event_fd().is_err());
}

#[test]
fn a_wrong_change_of_state_says_so() {
    let Some(device) = device() else { return };
    let pd = Pd::new(&device).unwrap();
    let cq = Cq::new(&device, 16).unwrap();
    let qp = Qp::new(&pd, &QpOptions::new(&cq)).unwrap();
    match qp.ready_to_send().unwrap_err() {
        QpError::Modify {
            from, to, cause, ..
        } => {
            assert_eq!((from, to), (QpState::RESET, QpState::RTS));
            assert!(cause.contains("order"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
    let mut options = QpOptions::new(&cq);
    options.max_send = u32::MAX;
    assert!(matches!(
        Qp::new(&pd, &options),
        Err(QpError::Size { what: "sends", .. })
    ));
    options.max_send = 16;
    options.max_inline = 1 << 20;
    let qp = Qp::new(&pd, &options).unwrap();
    assert!(qp.capabilities().max_inline < 1 << 20);
    assert!(Cq::new(&device, 0).is_err() && Cq::new(&device, u32::MAX).is_err());
}

#[test]
fn objects_may_be_dropped_in_any_order() {
    let Some(device) = device() else { return };
    let pair = Pair::new(&device, |_| {});
    let pool = BufferPool::new(&pair.pd, 4, 64).unwrap();
    pair.qps[0].post_recv(pool.take()).unwrap();
    let Pair { pd, cqs, qps } = pair;
    drop(device);
    drop(pd);
    drop(cqs);
    assert_eq!(pool.available(), 3);
    drop(qps);
    assert_eq!(pool.available(), 4);
    let mut last = pool.take().unwrap();
    drop(pool);
    last.fill(1);
}

#[test]
fn rights_are_those_of_the_header() {
    let all = Access::all().bits();
    assert_eq!(all, 0b1111 | 1 << 6);
}

/// Takes completions of datagrams until one has arrived.
fn datagram(cq: &Cq, datagrams: &Datagrams) -> Vec<u8> {
    let start = Instant::now();
    let mut slots = [Completion::EMPTY; 4];
    loop {
        for completion in cq.poll(&mut slots).unwrap() {
            let mut arrived = None;
            let handled = datagrams.handle(completion, |bytes| arrived = Some(bytes.to_vec()));
            handled.unwrap();
            if let Some(bytes) = arrived {
                return bytes;
            }
        }
        assert!(start.elapsed() < PATIENCE, "no datagram came");
    }
}

#[test]
fn datagrams_reach_an_address_and_survive_a_restart() {
    let Some(device) = device() else { return };
    let pd = Pd::new(&device).unwrap();
    let cqs = [(); 2].map(|()| Cq::with_events(&device, 64).unwrap());
    let options = DatagramOptions {
        port: 1,
        gid_index: None,
        route: Route::default(),
        qkey: 0x1234,
        receives: 8,
        sends: 4,
        size: 100,
    };
    let ends = [0, 1].map(|side| Datagrams::new(&pd, &cqs[side], &options).unwrap());
    let to = ends[0].resolve(&ends[1].address()).unwrap();
    // More than the receives, so that they are posted again.
    for n in 0..20u8 {
        assert!(ends[0].send(&to, &[n; 33]).unwrap());
        assert_eq!(datagram(&cqs[1], &ends[1]), [n; 33]);
        let sent = wait(&cqs[0], 1);
        ends[0]
            .handle(&sent[0], |_| panic!("nothing was sent to this side"))
            .unwrap();
        assert_eq!(ends[0].outstanding(), 0);
    }
    assert!(ends[0].send(&to, &[0; 101]).is_err());
    let qpn = ends[1].qpn();
    ends[1].recover().unwrap();
    assert_eq!(ends[1].qpn(), qpn);
    assert!(ends[0].send(&to, b"again").unwrap());
    assert_eq!(datagram(&cqs[1], &ends[1]), b"again");
}

#[test]
fn a_send_waits_for_a_receive_that_comes_late() {
    let Some(device) = device() else { return };
    let pair = Pair::new(&device, |_| {});
    let pool = BufferPool::new(&pair.pd, 1, 64).unwrap();
    pair.qps[0]
        .post_inline(1, SendOp::Send, b"early", SendFlags::SIGNALLED)
        .unwrap();
    // The target answers "not ready" for as long; the sender repeats without a limit.
    let mut slots = [Completion::EMPTY; 1];
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(100) {
        assert!(pair.cqs[0].poll(&mut slots).unwrap().is_empty());
    }
    pair.qps[1].post_recv(pool.take()).unwrap();
    assert!(wait(&pair.cqs[0], 1)[0].is_ok());
    assert_eq!(wait(&pair.cqs[1], 1)[0].length(), 5);
}

#[test]
fn a_broken_queue_pair_connects_again_after_a_reset() {
    let Some(device) = device() else { return };
    let pair = Pair::new(&device, |_| {});
    let pool = BufferPool::new(&pair.pd, 4, 64).unwrap();
    pair.qps[1].post_recv(pool.take()).unwrap();
    for qp in &pair.qps {
        qp.to_error().unwrap();
        qp.reset().unwrap();
        assert_eq!(qp.state().unwrap(), QpState::RESET);
    }
    assert_eq!(pool.available(), 4, "a reset gives the buffers back");
    for side in 0..2 {
        pair.qps[side].init().unwrap();
        pair.qps[side]
            .connect(&pair.qps[1 - side].endpoint())
            .unwrap();
    }
    pair.qps[1].post_recv(pool.take()).unwrap();
    pair.qps[0]
        .post_inline(1, SendOp::Send, b"anew", SendFlags::SIGNALLED)
        .unwrap();
    let mut slots = [Completion::EMPTY; 8];
    let start = Instant::now();
    loop {
        let done = pair.cqs[1].poll(&mut slots).unwrap();
        if done.iter().any(|c| c.is_ok() && c.length() == 4) {
            break;
        }
        assert!(start.elapsed() < PATIENCE);
    }
}

#[test]
fn the_device_is_chosen_with_its_port_and_has_nothing_to_tell() {
    let Some(device) = device() else { return };
    let (chosen, port) = Device::choose(None).unwrap();
    assert!(port.active && chosen.port(port.number).unwrap().active);
    let named = format!("{}:1", device.name());
    assert_eq!(Device::choose(Some(&named)).unwrap().1.number, 1);
    let absent = format!("{}:9", device.name());
    assert!(Device::choose(Some(&absent)).is_err());
    assert_eq!(chosen.take_event().unwrap(), None);
}

/// Pages of this size are locked unless the device takes faults; whichever it is, the answer comes from trying.
#[test]
fn on_demand_paging_is_found_out_by_trying() {
    let Some(device) = device() else { return };
    let pd = Pd::new(&device).unwrap();
    let does = verbs_backend::mr::on_demand(&pd);
    println!("{}: on-demand paging {does}", device.name());
    if device.name().starts_with("rxe") {
        assert!(!does, "SoftRoCE of the guest's kernel locks pages");
    }
}

#[path = "device/cm.rs"]
mod cm;

/// The flags of the mapping that an address is in, as `/proc/self/smaps` has them.
fn flags_of_mapping(address: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in maps.lines() {
        let range = line
            .split_once(' ')
            .and_then(|(range, _)| range.split_once('-'));
        let hex = |text| usize::from_str_radix(text, 16).ok();
        if let Some((start, end)) = range.and_then(|(s, e)| Some((hex(s)?, hex(e)?))) {
            inside = (start..end).contains(&address);
        }
        if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
            return flags.to_owned();
        }
    }
    panic!("{address:#x} is in no mapping");
}

/// A child may read what its parent had in registered memory, where the kernel copies that for it.
#[test]
fn registered_pages_are_in_children_where_the_kernel_copies_them() {
    let Some(device) = device() else { return };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = release.split(['.', '-']).map(str::parse::<u32>);
    let kernel = (parts.next(), parts.next());
    let (Some(Ok(major)), Some(Ok(minor))) = kernel else {
        panic!("{release}");
    };
    if (major, minor) < (5, 12) {
        eprintln!("skipped: Linux {major}.{minor} does not copy registered pages");
        return;
    }
    verbs_backend::fork::protect().unwrap();
    let window = Window::new(&Pd::new(&device).unwrap(), 4096).unwrap();
    let flags = flags_of_mapping(window.mr().address());
    assert!(!flags.split(' ').any(|f| f == "dc"), "{flags}");
}
