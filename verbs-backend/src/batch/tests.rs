#![expect(unsafe_code, reason = "walks a linked chain as the provider does")]

use super::*;
use crate::buffer::BufferPool;
use crate::inflight::Inflight;

/// What a provider would read from the chain: id, opcode, flags, and the bytes of inline requests.
fn walk(mut at: *const sys::ibv_send_wr) -> Vec<(u64, u32, u32, Vec<u8>, i32)> {
    let mut seen = Vec::new();
    while !at.is_null() {
        // SAFETY: the chain was just linked and the batch has not changed.
        let request = unsafe { *at };
        let mut bytes = Vec::new();
        if request.send_flags & sys::IBV_SEND_INLINE != 0 {
            // SAFETY: inline requests of these tests have one segment.
            let segment = unsafe { *request.sg_list };
            let data = std::ptr::with_exposed_provenance::<u8>(segment.addr as usize);
            // SAFETY: the segment lies in the batch's own bytes.
            bytes = unsafe { std::slice::from_raw_parts(data, segment.length as usize) }.to_vec();
        }
        seen.push((
            request.wr_id,
            request.opcode,
            request.send_flags,
            bytes,
            request.num_sge,
        ));
        at = request.next;
    }
    seen
}

#[test]
fn a_chain_is_linked_in_order_with_its_bytes() {
    let mut batch = SendBatch::new();
    let remote = Remote {
        address: 0x1000,
        rkey: 7,
    };
    batch
        .push_inline(1, SendOp::Write(remote), b"one", SendFlags::empty())
        .unwrap();
    batch
        .push_inline(2, SendOp::SendImmediate(9), b"second", SendFlags::SIGNALLED)
        .unwrap();
    // SAFETY: never posted.
    unsafe {
        batch.push_raw(
            3,
            SendOp::Read(remote),
            &[Segment::new(64, 8, 5).unwrap(); 2],
            SendFlags::FENCE,
        )
    }
    .unwrap();
    let inline = sys::IBV_SEND_INLINE;
    let expected = [
        (1, sys::IBV_WR_RDMA_WRITE, inline, b"one".to_vec(), 1),
        (
            2,
            sys::IBV_WR_SEND_WITH_IMM,
            inline | sys::IBV_SEND_SIGNALED,
            b"second".to_vec(),
            1,
        ),
        (3, sys::IBV_WR_RDMA_READ, sys::IBV_SEND_FENCE, vec![], 2),
    ];
    assert_eq!(walk(batch.link(3)), expected);
    // The first request is posted, the rest keeps its bytes although the batch grows.
    batch.posted(1);
    batch
        .push_inline(4, SendOp::Send, &[1; 5000], SendFlags::empty())
        .unwrap();
    let seen = walk(batch.link(3));
    assert_eq!(seen[..2], expected[1..]);
    assert_eq!(seen[2].3, [1; 5000]);
    assert_eq!(walk(batch.link(1)).len(), 1);
    batch.posted(3);
    assert!(batch.is_empty());
}

#[test]
fn owned_buffers_go_to_the_queue_and_come_back_if_refused() {
    let pool = BufferPool::unregistered(4, 64);
    let mut batch = SendBatch::new();
    for tag in 0..3 {
        let buffer = pool.take().unwrap();
        batch
            .push_owned(tag, SendOp::Send, buffer, 0..10, SendFlags::INLINE)
            .unwrap();
    }
    let refused = batch
        .push_owned(
            9,
            SendOp::Send,
            pool.take().unwrap(),
            60..65,
            SendFlags::empty(),
        )
        .unwrap_err();
    assert_eq!(refused.to_string(), "bytes 60..65 are outside the buffer");
    drop(refused);

    let mut table = Inflight::default();
    assert_eq!(batch.hand_over(|buffer, tag| table.insert(buffer, tag)), 3);
    let posted = walk(batch.link(3));
    assert!(
        posted
            .iter()
            .all(|r| is_ticket(r.0) && r.2 == sys::IBV_SEND_SIGNALED)
    );
    // The provider accepted one of three.
    batch.take_back(1, |ticket| table.take(ticket));
    batch.posted(1);
    assert_eq!((table.len(), batch.len()), (1, 2));
    assert_eq!(table.take(posted[0].0).map(|(_, tag)| tag), Some(0));
    batch.clear();
    assert_eq!(pool.available(), 4);
}

#[test]
fn reserved_ids_are_refused() {
    let mut batch = SendBatch::new();
    let id = 1 << 63;
    assert!(
        batch
            .push_inline(id, SendOp::Send, b"", SendFlags::empty())
            .is_err()
    );
    // SAFETY: never posted.
    assert!(unsafe { batch.push_raw(id, SendOp::Send, &[], SendFlags::empty()) }.is_err());
    assert!(batch.is_empty());
}
