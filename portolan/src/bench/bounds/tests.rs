//! Bounds by numbers worked out by hand, and bounds that figures of the model keep.

use super::*;

fn xt4() -> Machine {
    Machine::named("xt4").unwrap()
}

fn model(machine: &Machine) -> Model<'_> {
    Model {
        machine,
        mode: Mode::Generic,
        software: Software::default(),
        same_node: false,
    }
}

fn bound(model: &Model<'_>, name: Name, bytes: u64) -> (f64, &'static str) {
    let bound = model.bound(name, bytes, bytes).unwrap();
    (bound.value.round(), bound.by)
}

#[test]
fn the_rate_of_long_messages_is_that_of_the_transmit_engine() {
    let machine = xt4();
    // 1815 MB/s over 64 KiB, and over 8 KiB.
    let rate = |bytes| bound(&model(&machine), Name::MessageRate, bytes);
    assert_eq!(rate(65_536), (27_695.0, "the transmit engine"));
    assert_eq!(rate(8192), (221_558.0, "the transmit engine"));
    let bandwidth = model(&machine).bound(Name::PutBandwidth, 1 << 20, 1 << 20);
    assert!((bandwidth.unwrap().value - 1815.0).abs() < 0.1);
    let both = model(&machine).bound(Name::PutBidirectional, 1 << 20, 1 << 20);
    assert!((both.unwrap().value - 2.0 * 1815.0).abs() < 0.1);
}

#[test]
fn a_faster_engine_leaves_the_bound_to_the_link() {
    let machine = xt4().with("chip.tx_rate", 3200).unwrap();
    let machine = machine.with("chip.rx_rate", 3200).unwrap();
    // 9 flits of 3 ns for 64 bytes.
    let bandwidth = model(&machine).bound(Name::PutBandwidth, 1 << 20, 1 << 20);
    let bandwidth = bandwidth.unwrap();
    assert!(
        (bandwidth.value - 64.0 / 0.027).abs() < 0.1,
        "{bandwidth:?}"
    );
    assert_eq!(bandwidth.by, "the link");
}

#[test]
fn the_rate_of_short_messages_is_that_of_the_receivers_processor() {
    let machine = xt4();
    // A word of the firmware 960 ns, matching 100, taking the event 160; a second word and a command 1060 more.
    let rate = |bytes| bound(&model(&machine), Name::MessageRate, bytes);
    assert_eq!(
        rate(0),
        ((1e9_f64 / 1220.0).round(), "the receiver's processor")
    );
    assert_eq!(rate(16), rate(0));
    assert_eq!(
        rate(17),
        ((1e9_f64 / 2280.0).round(), "the receiver's processor")
    );
}

#[test]
fn what_a_library_computes_is_in_the_bound_of_what_stands_for_one() {
    let machine = xt4();
    let with = Model {
        software: Software {
            send: 110,
            receive: 110,
            ..Software::default()
        },
        ..model(&machine)
    };
    assert_eq!(
        bound(&with, Name::MessageRate, 0).0,
        (1e9_f64 / 1330.0).round()
    );
    let one_way = |model: &Model<'_>| model.bound(Name::Pingpong, 0, 0).unwrap().value;
    assert!((one_way(&with) - one_way(&model(&machine)) - 0.22).abs() < 1e-9);
    let put_rate = |model: &Model<'_>| bound(model, Name::PutRate, 8);
    assert_eq!(put_rate(&with), put_rate(&model(&machine)));
}

#[test]
fn a_message_takes_its_hop_its_processors_and_its_engines() {
    let machine = xt4();
    // api_call 100, trap 75, header_build 100, tx_message 300, ht_read 250, hop 55, rx_message 300, a word 960,
    // match 100, eq_read 60.
    let one_way = |bytes| model(&machine).bound(Name::Pingpong, bytes, bytes).unwrap();
    assert!((one_way(0).value - 2.3).abs() < 1e-9, "{:?}", one_way(0));
    // The data at 2650 MB/s, rx_command 300, rx_complete 100, a second word 960.
    let data = 1000.0 / 2650.0;
    assert!((one_way(1000).value - (2.3 + data + 1.36)).abs() < 1e-3);
    // A long one: at 1815 MB/s, behind nothing but the hop.
    let long = (1 << 20) as f64 / 1815.0;
    assert!(one_way(1 << 20).value > long && one_way(1 << 20).value < long + 3.0);
    let farther = machine.with("network.router_hop", 1_000_000).unwrap();
    let far = model(&farther).bound(Name::Pingpong, 0, 0).unwrap();
    assert!((far.value - one_way(0).value - 0.95).abs() < 1e-9);
}

#[test]
fn processes_of_a_node_are_bounded_by_its_kernel_and_libraries_are_not() {
    let machine = xt4();
    let node = Model {
        same_node: true,
        ..model(&machine)
    };
    // Half of a round trip: api_call 100, trap 75, header_build 100, hand-off 2340, match 100, eq_read 60.
    let one_way = node.bound(Name::Pingpong, 0, 0).unwrap();
    assert!((one_way.value - 2.775).abs() < 1e-9, "{one_way:?}");
    assert_eq!(
        bound(&node, Name::PutBandwidth, 1 << 20),
        (1930.0, "the copy within a node")
    );
    assert_eq!(node.bound(Name::SegmentPut, 8, 8), None);
    assert_eq!(model(&machine).bound(Name::Memcpy, 8, 8), None);
}

#[test]
fn a_figure_is_refused_exactly_where_it_is_better_than_its_bound() {
    let machine = xt4();
    let model = model(&machine);
    // What the reading of a full queue gives.
    let broken = model
        .check(Name::MessageRate, 64, 64, 3_605_726.0)
        .unwrap_err();
    let said = broken.to_string();
    assert!(
        said.starts_with("message-rate at 64: 3605726.000 op/s is better than 438596.491, which the receiver's processor of xt4"),
        "{said}"
    );
    assert!(model.check(Name::MessageRate, 64, 64, 438_000.0).is_ok());
    let one_way = |best| model.check(Name::Pingpong, 0, 0, best);
    assert!(one_way(2.25).is_err() && one_way(2.31).is_ok());
    // A nanosecond of the clock is no offence.
    assert!(one_way(2.299).is_ok());
    assert_eq!(model.check(Name::Memcpy, 8, 8, 0.0), Ok(None));
}

#[test]
fn every_measurement_has_a_bound_but_the_copy() {
    let machine = xt4();
    for mode in [Mode::Generic, Mode::Accelerated] {
        let model = Model {
            mode,
            ..model(&machine)
        };
        for name in Name::ALL {
            let bytes = if name == Name::PutsInFlight { 8192 } else { 64 };
            let bound = model.bound(name, 64, bytes);
            assert_eq!(bound.is_some(), name != Name::Memcpy, "{name} {mode:?}");
            assert!(
                bound.is_none_or(|b| b.value > 0.0 && b.value.is_finite()),
                "{name}"
            );
        }
    }
}
