//! Host time of delivering messages in `portals-core`, by the length of the match list.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use portolan_benches::{Before, Pair};
use std::hint::black_box;

fn exact(c: &mut Criterion) {
    let mut group = c.benchmark_group("deliver 8 B to an exact entry");
    for entries in [1, 10, 1000, 100_000] {
        let mut pair = Pair::new(Before::Exact(entries - 1), true).expect("fits the library");
        group.bench_function(BenchmarkId::from_parameter(entries), |b| {
            b.iter(|| black_box(pair.deliver()));
        });
    }
    group.finish();
}

/// Every message to another entry, far from the last: what the caches of the host add.
fn everywhere(c: &mut Criterion) {
    let mut group = c.benchmark_group("deliver 8 B to every exact entry in turn");
    for entries in [10u32, 1000, 100_000] {
        let mut pair = Pair::new(Before::Exact(entries), true).expect("fits the library");
        let mut i = 0;
        group.bench_function(BenchmarkId::from_parameter(entries), |b| {
            b.iter(|| {
                i = (i + 61_803) % entries;
                black_box(pair.deliver_to(i))
            });
        });
    }
    group.finish();
}

fn ack(c: &mut Criterion) {
    let mut group = c.benchmark_group("put 8 B and its ack, both sides");
    for entries in [10, 100_000] {
        let mut pair = Pair::new(Before::Exact(entries - 1), true).expect("fits the library");
        group.bench_function(BenchmarkId::from_parameter(entries), |b| {
            b.iter(|| black_box(pair.put_and_ack()));
        });
    }
    group.finish();
}

fn miss(c: &mut Criterion) {
    let mut group = c.benchmark_group("drop 8 B that no entry takes");
    for (name, before) in [
        ("10 masked", Before::Masked(10)),
        ("1000 masked", Before::Masked(1000)),
        ("100000 exact", Before::Exact(100_000)),
    ] {
        let mut pair = Pair::new(before, false).expect("fits the library");
        group.bench_function(name, |b| b.iter(|| black_box(pair.deliver())));
    }
    group.finish();
}

criterion_group!(benches, exact, everywhere, ack, miss);
criterion_main!(benches);
