//! The grid of a simulated machine: chosen by the user, or the smallest torus that holds the nodes.
//!
//! The node at index i (node id i + 1) is at x = i mod X, y = i / X mod Y, z = i / X / Y, whatever
//! the grid: ranks fill nodes in order, and nodes fill rows of x first.

use nic_model::Topology;

/// Reads `X`, `XxY` or `XxYxZ`, with `,mesh` for a grid whose rows end, `,torus` for one whose rows are
/// rings, or `,torus-z` where those of the axes named are; a torus when none is said.
pub(super) fn parse(text: &str) -> Result<Topology, String> {
    let bad = || {
        let text: String = text.chars().take(60).collect();
        format!("topology {text:?}: XxYxZ is expected, such as 4x4x2, and perhaps ,mesh")
    };
    let (sides, kind) = text.split_once(',').unwrap_or((text, "torus"));
    let sides: Vec<u16> = sides
        .split('x')
        .map(|side| side.trim().parse().ok().filter(|side| *side > 0))
        .collect::<Option<_>>()
        .ok_or_else(bad)?;
    let dims = match sides[..] {
        [x] => [x, 1, 1],
        [x, y] => [x, y, 1],
        [x, y, z] => [x, y, z],
        _ => return Err(bad()),
    };
    let rings = match kind.trim().split_once('-') {
        None if kind.trim() == "torus" => [true; 3],
        None if kind.trim() == "mesh" => [false; 3],
        Some(("torus", axes)) if axes.chars().all(|c| "xyz".contains(c)) => {
            ['x', 'y', 'z'].map(|axis| axes.contains(axis))
        }
        _ => return Err(bad()),
    };
    Topology::grid(dims, rings).map_err(|e| e.to_string())
}

/// The most cubic `x × y × z >= n` with each side as small as possible, largest first.
pub(super) fn near_cube(n: u32) -> [u16; 3] {
    let n = n.max(1);
    let mut best = [n as u16, 1, 1];
    let mut volume = u64::from(n);
    let mut spread = n;
    for x in 1..=n.min(64) {
        for y in 1..=x {
            let z = n.div_ceil(x * y);
            if z > y {
                continue;
            }
            let v = u64::from(x) * u64::from(y) * u64::from(z);
            if v < volume || (v == volume && x - z < spread) {
                best = [x as u16, y as u16, z as u16];
                volume = v;
                spread = x - z;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use nic_model::NodeId;

    #[test]
    fn tori_are_compact() {
        assert_eq!(near_cube(1), [1, 1, 1]);
        assert_eq!(near_cube(2), [2, 1, 1]);
        assert_eq!(near_cube(4), [2, 2, 1]);
        assert_eq!(near_cube(8), [2, 2, 2]);
        assert_eq!(near_cube(64), [4, 4, 4]);
        assert_eq!(near_cube(7), [7, 1, 1]);
    }

    #[test]
    fn a_grid_is_what_its_words_say() {
        assert_eq!(parse("4x3x2").unwrap().dims(), [4, 3, 2]);
        assert_eq!(parse("5").unwrap().dims(), [5, 1, 1]);
        let ends = |text: &str| parse(text).unwrap().distance(NodeId(0), NodeId(4));
        assert_eq!((ends("5x1x1"), ends("5x1x1,mesh")), (1, 4));
        assert_eq!((ends("5x2x2,torus-xy"), ends("5x2x2,torus-z")), (1, 4));
        for bad in [
            "",
            "4x",
            "0x1",
            "4x4x4x4",
            "4x4,ring",
            "4x4,torus-w",
            "70000",
            "-1",
            "x",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.starts_with("topology"), "{bad}: {error}");
        }
        assert!(parse("64x64x64").unwrap_err().contains("32768"));
    }
}
