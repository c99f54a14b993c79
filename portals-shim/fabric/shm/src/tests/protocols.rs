//! What the table of protocols says is what the rings carry.

use super::*;
use crate::protocols::protocols;
use fabric_api::protocol::{Operation, Reached};

/// The protocol of the message of `len` bytes that stands in a cell.
fn carried(map: &Map, cell: usize, len: u64) -> &'static str {
    let mut head = [0; cell::HEAD];
    map.read(cell::head_at(cell), &mut head);
    if head[0] == cell::Kind::Short as u8 {
        return "short";
    }
    let prefix = cell::decode(&head).unwrap();
    match (prefix.kind, u64::from(prefix.bulk_len)) {
        (cell::Kind::ReadyToSend, _) => "rndv zcopy",
        (cell::Kind::Message, 0) => "eager cell",
        (cell::Kind::Message, _) if len <= crate::protocols::EAGER => "eager bulk",
        (cell::Kind::Message, _) => "eager parts",
        other => panic!("{other:?}"),
    }
}

fn lengths_go_as_the_table_says(attaches: bool) {
    let memory = Memory::new(2).unwrap();
    let options = Options {
        attach: attaches,
        ..WITHOUT
    };
    let ids: Vec<_> = (0..2).map(|r| Placement::ONE.of(r)).collect();
    let config = |r| rank_config(Placement::ONE, r, 1);
    // All have joined before one opens.
    let mut joining = [0, 1].map(|r| (r, Joining::new(&memory, r, &config(r), options).unwrap()));
    let copies = joining
        .iter_mut()
        .all(|(_, joining)| joining.probe(2, false));
    if attaches && !copies {
        println!("skipped: the kernel does not copy between processes here");
        return;
    }
    let [a, b] = joining.map(|(r, joining)| {
        let opened = joining.open(config(r), Placement::ONE, ids.clone(), attaches);
        side(opened.into(), 1 << 17, true)
    });
    let (map, layout) = (memory.map_for_test(), Layout::new(2));
    let next = |ring: Ring| ring.cell(Words::consumed(&ring.words(&map)).load(Ordering::Relaxed));
    let (there, direct) = (b.o.interface.id(), || {
        a.o.interface.paths().unwrap().one_sided
    });
    let table = protocols(attaches);
    for row in &table.rows {
        for len in [row.from, row.to.unwrap_or(row.from + 1)] {
            let bits = match row.reached {
                Reached::Direct => QUIET,
                Reached::Notified | Reached::Matched => LOUD,
            };
            let before = direct();
            let target = super::to(there, bits, 0);
            let (ring, last) = match row.operation {
                Operation::Put => {
                    a.put(len as usize, target);
                    (layout.ring(0, 1), EventKind::Ack)
                }
                Operation::Get => {
                    let ni = &a.o.interface;
                    ni.get_region(a.source, (0, len), target).unwrap();
                    // The answer is what is looked at.
                    b.look();
                    (layout.ring(1, 0), EventKind::ReplyEnd)
                }
            };
            let by = match direct() - before {
                0 => carried(&map, next(ring), len),
                _ => "rma copy",
            };
            assert_eq!(by, row.name, "{len} bytes of {row:?}");
            assert_eq!(event(&[&a, &b], last).mlength, len);
            // What was sent has had its effect, and the peer has said so.
            while b.look().is_some() || a.look().is_some() {}
        }
    }
}

#[test]
fn lengths_go_as_the_table_says_where_the_kernel_copies() {
    lengths_go_as_the_table_says(true);
}

#[test]
fn lengths_go_as_the_table_says_where_it_does_not() {
    lengths_go_as_the_table_says(false);
}
