//! Memory of interfaces at rest, counted at the allocator.

use portals_core::{
    InsertPosition, MdDesc, MdOptions, MeSpec, Memory, Ni, ProcessId, THRESHOLD_INFINITE, Unlink,
};
use portolan_benches::{Before, Pair, interface};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that what `make` returns holds, itself included.
fn held<T>(make: impl FnOnce() -> T) -> (usize, T) {
    let region = Region::new(ALLOCATOR);
    let made = make();
    let stats = region.change();
    // Growth and shrinking of an allocation are in these two as well.
    let heap = stats.bytes_allocated - stats.bytes_deallocated;
    (heap + size_of::<T>(), made)
}

fn attach(ni: &mut Ni, portal: u32) {
    let spec = MeSpec {
        match_id: ProcessId::ANY,
        match_bits: 0,
        ignore_bits: 0,
        unlink: Unlink::Retain,
    };
    let me = ni.me_attach(portal, spec, InsertPosition::After).unwrap();
    let desc = MdDesc {
        memory: Memory::contiguous(0x1000, 8),
        threshold: THRESHOLD_INFINITE,
        max_size: 0,
        options: MdOptions::OP_PUT,
        user_ptr: 0,
        eq: None,
    };
    ni.md_attach(me, desc, Unlink::Retain).unwrap();
}

/// One test, because the counter sees every thread.
#[test]
fn interfaces_at_rest_are_small() {
    const KIB: usize = 1024;
    let me = ProcessId::new(1, 1);
    let (empty, ni) = held(|| interface(me));
    assert_eq!(ni.config().limits.max_pt_index, 63);
    println!("64 portal indexes, nothing on them: {empty} B");
    assert!(empty > 64 && empty < 4 * KIB, "{empty}");

    let (one_each, _ni) = held(|| {
        let mut ni = interface(me);
        (0..64).for_each(|portal| attach(&mut ni, portal));
        ni
    });
    println!("an entry and a descriptor on each: {one_each} B");
    assert!(one_each > empty && one_each < 64 * KIB, "{one_each}");

    let (one_list, _ni) = held(|| {
        let mut ni = interface(me);
        (0..64).for_each(|_| attach(&mut ni, 4));
        ni
    });
    println!("64 entries and descriptors on one: {one_list} B");
    assert!(one_list < 64 * KIB, "{one_list}");

    let (long, _pair) = held(|| Pair::new(Before::Exact(100_000), true).unwrap());
    println!("100,000 entries and descriptors: {} B each", long / 100_000);
    assert!(long / 100_000 < 512, "{long}");
}
