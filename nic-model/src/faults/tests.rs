use super::*;

const FILE: &str = r#"seed = 7
[rates]
link_bit_errors = 100
lost_packets = 5

[[dead_link]]
node = 3
port = "x+"
at_ns = 12_000

[[dead_node]]
node = 5
at_ns = 20_000
router = true

[[slow_dma]]
node = 1
from_ns = 0
until_ns = 50_000
percent = 25

[[stalled_host]]
node = 2
from_ns = 10_000
until_ns = 30_000

[[stalled_host]]
node = 2
from_ns = 30_000
until_ns = 40_000

[[lost_packet]]
source = 0
destination = 1
packet = 17

[[slow_link]]
node = 0
port = "y+"
percent = 75

[[link_rates]]
node = 6
port = "z-"
lost_packets = 9
"#;

#[test]
fn a_file_says_what_a_program_can_build() {
    let file = Faults::from_toml(FILE).unwrap();
    let built = Faults::seeded(7)
        .with_rates(FaultRates {
            link_bit_errors: 100,
            lost_packets: 5,
            corrupted_packets: 0,
        })
        .with(Fault::DeadLink {
            node: NodeId(3),
            port: Port::XPlus,
            at: SimTime(12_000_000),
        })
        .with(Fault::DeadNode {
            node: NodeId(5),
            at: SimTime(20_000_000),
            router: true,
        });
    assert_eq!(file.seed(), built.seed());
    assert_eq!(file.rates(), built.rates());
    assert!(file.script().zip(built.script()).all(|(a, b)| a == b));
    assert_eq!(file.script().count(), 8);
    let whole_run = Fault::SlowLink {
        node: NodeId(0),
        port: Port::YPlus,
        from: SimTime::ZERO,
        until: SimTime::NEVER,
        percent: 75,
    };
    assert!(file.script().any(|fault| *fault == whole_run));
    file.check(&Topology::torus([2, 2, 2]).unwrap()).unwrap();
}

#[test]
fn windows_hold_from_their_first_instant_until_their_last() {
    let faults = Faults::from_toml(FILE).unwrap();
    let at = |ns: u64| SimTime(ns * 1_000);
    assert_eq!(faults.dma_percent(NodeId(1), at(0)), 25);
    assert_eq!(faults.dma_percent(NodeId(1), at(50_000)), 100);
    assert_eq!(faults.dma_percent(NodeId(0), at(0)), 100);
    assert_eq!(faults.host_resumes(NodeId(2), at(9_999)), at(9_999));
    assert_eq!(faults.host_resumes(NodeId(2), at(10_000)), at(40_000));
    assert_eq!(faults.host_resumes(NodeId(2), at(40_000)), at(40_000));
    let slow = |percent, from, until| Fault::SlowLink {
        node: NodeId(0),
        port: Port::XPlus,
        from: at(from),
        until: at(until),
        percent,
    };
    let ring = Topology::torus([4, 1, 1]).unwrap();
    let faults_of_link = Faults::none().with(slow(50, 10, 30)).with(slow(25, 20, 40));
    let percents = [9, 10, 20, 30, 40].map(|ns| {
        let of = |node, port| faults_of_link.link_percent(&ring, NodeId(node), port, at(ns));
        assert_eq!(of(0, Port::XPlus), of(1, Port::XMinus));
        assert_eq!(of(1, Port::XPlus), 100);
        of(0, Port::XPlus)
    });
    assert_eq!(percents, [100, 50, 25, 25, 100]);
    assert!(!faults.is_dead(NodeId(5), at(19_999)));
    assert!(faults.is_dead(NodeId(5), at(20_000)));
}

#[test]
fn nonsense_is_refused_with_line_and_reason() {
    for (from, to, wanted) in [
        (
            "percent = 25",
            "percent = 0",
            "fault file line 16: percent = 0, want 1 to 100",
        ),
        (
            "port = \"x+\"",
            "port = \"w+\"",
            "fault file line 6: port = \"w+\", want x+, x-, y+, y-, z+ or z-",
        ),
        (
            "until_ns = 30_000",
            "until_ns = 10_000",
            "fault file line 22: until 10000.000 ns is not after from 10000.000 ns: the window is empty",
        ),
        (
            "link_bit_errors = 100",
            "link_bit_errors = 900000000",
            "fault file line 3: rates.link_bit_errors = 900000000, want 0 to 500000000",
        ),
        ("packet = 17", "pocket = 17", "line 35"),
        (
            "percent = 75",
            "percent = 101",
            "fault file line 37: percent = 101, want 1 to 100",
        ),
        (
            "percent = 75",
            "percent = 75\nuntil_ns = 0",
            "fault file line 37: until 0.000 ns is not after from 0.000 ns: the window is empty",
        ),
        (
            "port = \"y+\"",
            "port = \"node\"",
            "fault file line 37: port = \"node\", want x+",
        ),
        (
            "lost_packets = 9",
            "lost_packets = 1000000001",
            "fault file line 42: link_rates.lost_packets = 1000000001, want 0 to 1000000000",
        ),
        (
            "port = \"y+\"",
            "link = \"(0,0,0) y+\"",
            "fault file line 37: which link? want link = \"(0,0,1) x+\", or node and port",
        ),
        (
            "port = \"y+\"",
            "",
            "fault file line 37: which link? want link = \"(0,0,1) x+\", or node and port",
        ),
        (
            "node = 0\nport = \"y+\"",
            "link = \"0 0 0 y+\"",
            "fault file line 37: link = \"0 0 0 y+\" is no link, want its place and direction, such as \"(0,0,1) x+\"",
        ),
        (
            "node = 0\nport = \"y+\"",
            "link = \"(0,0,0) node\"",
            "fault file line 37: port = \"node\" is not a link",
        ),
        ("node = 5", "node = -5", "line 12"),
        ("at_ns = 12_000", "at_ns = 1.5", "line 9"),
    ] {
        assert!(FILE.contains(from));
        let error = Faults::from_toml(&FILE.replacen(from, to, 1))
            .unwrap_err()
            .to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn places_that_do_not_exist_are_refused() {
    let faults = Faults::from_toml(FILE).unwrap();
    let error = faults.check(&Topology::torus([4, 1, 1]).unwrap());
    assert_eq!(
        error.unwrap_err().to_string(),
        "fault file line 11: node 5 is not one of the 4 nodes"
    );
    let error = faults.check(&Topology::mesh([4, 2, 1]).unwrap());
    assert_eq!(
        error.unwrap_err().to_string(),
        "fault file line 6: node 3 has no link (3,0,0) x+"
    );
    let built = Faults::none().with(Fault::SlowDma {
        node: NodeId(0),
        from: SimTime(0),
        until: SimTime(1),
        percent: 101,
    });
    let error = built.check(&Topology::torus([4, 1, 1]).unwrap());
    assert_eq!(
        error.unwrap_err().to_string(),
        "fault: percent = 101, want 1 to 100"
    );
}

/// Each link of the file by the place of its node instead.
fn by_place(topology: &Topology) -> String {
    let links = [(3, "x+"), (0, "y+"), (6, "z-")];
    links.iter().fold(FILE.to_owned(), |text, (node, port)| {
        let [x, y, z] = topology.coordinates(NodeId(*node));
        let by_number = format!("node = {node}\nport = \"{port}\"");
        assert!(text.contains(&by_number));
        text.replace(&by_number, &format!("link = \"({x},{y},{z}) {port}\""))
    })
}

#[test]
fn a_link_by_its_place_is_that_of_whatever_node_sits_there() {
    let grid = Topology::torus([4, 2, 2]).unwrap();
    let mapped = grid.placed(&grid.shuffled_places(5)).unwrap();
    let expected: Vec<Fault> = Faults::from_toml(FILE).unwrap().script().copied().collect();
    for topology in [grid, mapped] {
        let faults = Faults::from_toml(&by_place(&topology)).unwrap();
        faults.check(&topology).unwrap();
        let faults = faults.resolved(&topology).unwrap();
        assert!(faults.script().eq(&expected), "{faults:?}");
    }
    let text = FILE.replace("node = 6\nport", "node = 7\nport");
    let text = text.replace("node = 0\nport = \"y+\"", "link = \"(1,2,0) y+\"");
    let faults = Faults::from_toml(&text).unwrap();
    let error = faults.check(&Topology::torus([4, 2, 2]).unwrap());
    assert_eq!(
        error.unwrap_err().to_string(),
        "fault file line 37: (1,2,0) is no place of the grid of 4x2x2"
    );
}

#[test]
fn draws_are_a_function_of_seed_stream_and_counter() {
    assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
    let hit =
        |seed, stream| (0..100_000).filter(move |&n| draw(seed, stream, n) < threshold(1, 10));
    for (seed, stream) in [(0, 0), (0, 1), (1, 0), (u64::MAX, 77)] {
        let count = hit(seed, stream).count();
        assert!(
            (9_700..10_300).contains(&count),
            "{count} of 100000 at a rate of 1 of 10"
        );
    }
    assert!(hit(0, 0).ne(hit(0, 1)), "streams differ");
    assert_eq!(threshold(0, 10), 0);
    assert_eq!(threshold(10, 10), u64::MAX);
}
