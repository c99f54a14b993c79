//! What a rank does that meets words which no rank writes: it ends the job, by the names of both.

use super::*;

/// Set for the process in which a rank meets this nonsense.
const NONSENSE: &str = "PORTOLAN_TEST_NONSENSE";

/// Each kind, and what is said of it.
const KINDS: [(&str, &str); 20] = [
    (
        "kind",
        "written a message that makes no sense (unknown kind 77)",
    ),
    ("inline", "makes no sense (153 bytes of data in a cell)"),
    ("short", "makes no sense (217 bytes of data in a cell)"),
    (
        "header",
        "makes no sense (magic 0x0000 version 0 is not a portals header)",
    ),
    ("behind", "makes no sense (data outside the ring)"),
    ("far", "makes no sense (data outside the ring)"),
    ("around", "makes no sense (data outside the ring)"),
    (
        "source",
        "makes no sense (a message in another process's name)",
    ),
    (
        "user",
        "makes no sense (a message in another process's name)",
    ),
    (
        "job",
        "makes no sense (a message in another process's name)",
    ),
    (
        "rts",
        "makes no sense (a message in another process's name)",
    ),
    ("longer", "makes no sense (more data than the header says)"),
    ("part", "makes no sense (a part of no message)"),
    ("too-long", "makes no sense (a part that is too long)"),
    ("empty", "makes no sense (a part that is too long)"),
    ("cut", "makes no sense (a message was cut off)"),
    ("answer", "makes no sense (an ATS for no RTS)"),
    ("resent", "makes no sense (data of no RTS)"),
    ("spoiled", "it has spoiled one that it had not finished"),
    (
        "consumed",
        "written a word that makes no sense (a reader claims to be at 1000,",
    ),
];

/// The cells of one kind.
fn cells(which: &str, us: &Side, layout: &Layout) -> Vec<[u8; cell::HEAD + cell::INLINE]> {
    let good = put_header(us, 300);
    let encoded = |prefix: &cell::Prefix, header: Option<&Header>| {
        let mut bytes = [7; cell::HEAD + cell::INLINE];
        bytes[..cell::HEAD].copy_from_slice(&cell::encode(prefix, header));
        bytes
    };
    let of = |kind, inline| cell::Prefix {
        inline,
        ..cell::Prefix::of(kind)
    };
    let message = |inline, header: Header| encoded(&of(cell::Kind::Message, inline), Some(&header));
    let more = |inline| encoded(&of(cell::Kind::More, inline), None);
    let begun = message(100, good);
    let bulk = |bulk_at, bulk_len| {
        let prefix = cell::Prefix {
            bulk_at,
            bulk_len,
            ..cell::Prefix::of(cell::Kind::Message)
        };
        vec![encoded(&prefix, Some(&put_header(us, 8)))]
    };
    match which {
        "kind" => vec![[77; _]],
        "inline" => vec![message(153, good)],
        "short" => {
            let mut bytes = [0; _];
            (bytes[0], bytes[2]) = (cell::Kind::Short as u8, 217);
            vec![bytes]
        }
        "header" => vec![encoded(&of(cell::Kind::Message, 0), None)],
        "behind" => bulk(layout.bulk, 8),
        "far" => bulk(1 << 30, 8),
        "around" => bulk(u32::MAX - 3, 8),
        "source" => {
            let source = us.o.peers[0];
            vec![message(0, Header { source, ..good })]
        }
        "user" => {
            let uid = good.uid + 1;
            vec![message(0, Header { uid, ..good })]
        }
        "job" => {
            let jid = good.jid + 1;
            vec![message(0, Header { jid, ..good })]
        }
        "rts" => {
            let source = us.o.peers[0];
            let prefix = of(cell::Kind::ReadyToSend, 16);
            vec![encoded(&prefix, Some(&Header { source, ..good }))]
        }
        "longer" => vec![message(8, put_header(us, 7))],
        "part" => vec![more(8)],
        "too-long" => vec![begun, more(100), more(101)],
        "empty" => vec![begun, more(0)],
        "cut" => vec![begun, message(8, put_header(us, 8))],
        "answer" => vec![encoded(&of(cell::Kind::AckToSend, 0), None)],
        "resent" => vec![encoded(&of(cell::Kind::Resent, 8), None)],
        _ => Vec::new(),
    }
}

/// In a job of processes.
#[test]
fn nonsense_ends_the_job_by_name() {
    let Ok(which) = std::env::var(NONSENSE) else {
        let busy = ("busy", "been copying for too long");
        for (which, said) in KINDS.into_iter().chain([busy]) {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "tests::nonsense::nonsense_ends_the_job_by_name",
                    "--nocapture",
                ])
                .env(NONSENSE, which)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&child.stderr).into_owned();
            assert_eq!(child.status.code(), Some(1), "{which}: {text}");
            let names = "rank 0 of the ranks that share memory ends the job: rank 1 of them has ";
            assert!(text.contains(names), "{which}: {text}");
            assert!(text.contains(said), "{which}: {text}");
        }
        return;
    };
    let options = Options {
        on_fault: crate::OnFault::End,
        patience: Duration::from_millis(10),
        ..WITHOUT
    };
    let (us, map, layout) = alone_with(std::process::id(), options);
    let ring = layout.ring(1, 0);
    layout.block(0).contacts(&map, 0).store(2, Ordering::SeqCst);
    for (position, bytes) in (0..).zip(cells(&which, &us, &layout)) {
        send_cell(&map, ring, position, &bytes);
    }
    match which.as_str() {
        "spoiled" => map.word(ring.cell(0)).store(5, Ordering::SeqCst),
        "consumed" => {
            let back = layout.ring(0, 1).words(&map);
            Words::consumed(&back).store(1000, Ordering::SeqCst);
            (0..200).for_each(|_| us.put(8, to(us.o.peers[1], LOUD, 0)));
        }
        "busy" => {
            layout.block(1).busy(&map, 0).store(1, Ordering::SeqCst);
            let ni = &us.o.interface;
            let me = ni.me_attach(4, entry(77), InsertPosition::After).unwrap();
            let shown = spec(MdMemory::whole(&us.work), None);
            ni.md_attach(me, shown, Unlink::Retain).unwrap();
        }
        _ => {}
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        us.look();
    }
}

/// Rank 1 says that data is no longer needed which rank 2 is yet to read: the sender does not believe it.
#[test]
fn no_rank_answers_for_another() {
    const LEN: usize = 100_000;
    let memory = Memory::new(3).unwrap();
    let layout = Layout::new(3);
    let config = |r| rank_config(Placement::ONE, r, 1);
    let join = |r| Joining::new(&memory, r, &config(r), Options::default()).unwrap();
    let mut joining = [join(0), join(1), join(2)];
    if !joining.each_mut().map(|j| j.probe(3, false))[0] {
        println!("skipped: the kernel does not copy between processes here");
        return;
    }
    let map = memory.map_for_test();
    let ids: Vec<_> = (0..3).map(|r| Placement::ONE.of(r)).collect();
    let [first, _, third] = (0..)
        .zip(joining)
        .fold([None, None, None], |mut all, (r, joining)| {
            if r != 1 {
                let opened = joining.open(config(r), Placement::ONE, ids.clone(), true);
                all[r as usize] = Some(side(opened.into(), LEN, false));
            }
            all
        });
    let (a, b) = (first.unwrap(), third.unwrap());
    let data = pattern(LEN, 1);
    a.work.write(0, &data).unwrap();
    a.put(LEN, to(ids[2], LOUD, 0));
    layout.block(0).contacts(&map, 0).store(2, Ordering::SeqCst);
    let answer = cell::encode(&cell::Prefix::of(cell::Kind::AckToSend), None);
    send_cell(&map, layout.ring(1, 0), 0, &answer);
    for _ in 0..1000 {
        let event = a.look();
        let early = event.is_some_and(|e| e.kind == EventKind::SendEnd);
        assert!(!early, "{event:?}");
    }
    let ring = layout.ring(1, 0).words(&map);
    assert_eq!(
        Words::consumed(&ring).load(Ordering::SeqCst),
        1,
        "it was read"
    );
    assert_eq!(event(&[&a, &b], EventKind::SendEnd).ni_fail, NiFail::OK);
    assert_eq!(event(&[&a, &b], EventKind::Ack).mlength, LEN as u64);
    let mut seen = vec![0; LEN];
    b.loud.read(0, &mut seen).unwrap();
    assert!(seen == data);
}
