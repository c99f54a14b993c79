//! Which rank sits on which place of the grid: by a rule, or as a file says.
//!
//! Ranks fill nodes in order, which is the business of [`Placement`](fabric_api::place::Placement); a map moves whole nodes. Node
//! ids stay those of the ranks: the map changes how far nodes are from one another, and nothing else.

use nic_model::Topology;

/// The words of the rules.
const LINEAR: &str = "linear";
const BLOCKED: &str = "blocked";
const RANDOM: &str = "random";
/// The side of a block where none is said.
const SIDE: u16 = 2;

/// Where the nodes of ranks sit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Map {
    /// Node n at place n.
    #[default]
    Linear,
    /// Cubes of so many places a side, one after another.
    Blocked(u16),
    /// Drawn from a seed.
    Random(u64),
    /// As a file says.
    File(Lines),
}

/// The places of a file, by rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lines {
    file: String,
    /// Each with the number of its line, from 1.
    places: Vec<(usize, String)>,
}

impl Map {
    /// Whether `text` is the name of a file, and not a rule.
    pub(super) fn is_file(text: &str) -> bool {
        let word = text.split_once(':').map_or(text, |(word, _)| word);
        ![LINEAR, BLOCKED, RANDOM].contains(&word)
    }

    /// Reads a rule, or the file of that name.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let number = |what: &str, wanted: &str| format!("map {text:?}: {what} is {wanted}");
        match text.split_once(':').unwrap_or((text, "")) {
            (LINEAR, "") => Ok(Self::Linear),
            (LINEAR, _) => Err(format!("map {text:?}: linear has no number")),
            (BLOCKED, "") => Ok(Self::Blocked(SIDE)),
            (BLOCKED, side) => {
                let side = side.parse().ok().filter(|side| *side > 0);
                let wanted = "a number of places from 1, as in blocked:2";
                side.map(Self::Blocked)
                    .ok_or_else(|| number("the side of a block", wanted))
            }
            (RANDOM, seed) => {
                let wanted = "a whole number, as in random:7";
                let seed = seed.parse().ok();
                seed.map(Self::Random)
                    .ok_or_else(|| number("the seed", wanted))
            }
            _ => Self::read(text),
        }
    }

    fn read(file: &str) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            format!(
                "map {file}: {error}; a rule is linear, blocked:N or random:SEED, anything else a file"
            )
        })?;
        let places = text.lines().enumerate().filter_map(|(at, line)| {
            let words = line.split('#').next().unwrap_or_default().trim();
            (!words.is_empty()).then(|| (at + 1, words.to_owned()))
        });
        Ok(Self::File(Lines {
            file: file.to_owned(),
            places: places.collect(),
        }))
    }

    /// The grid with the nodes at their places; `nodes` has the node of each rank. It must hold them.
    pub(super) fn apply(&self, grid: &Topology, nodes: &[usize]) -> Result<Topology, String> {
        let places = match self {
            Self::Linear => return Ok(grid.clone()),
            Self::Blocked(side) => grid.blocked_places(*side),
            Self::Random(seed) => grid.shuffled_places(*seed),
            Self::File(lines) => lines.of_nodes(grid, nodes)?,
        };
        grid.placed(&places).map_err(|error| error.to_string())
    }
}

impl Lines {
    /// The place of each node.
    fn of_nodes(&self, grid: &Topology, nodes: &[usize]) -> Result<Vec<u16>, String> {
        let file = &self.file;
        if self.places.len() < nodes.len() {
            return Err(format!(
                "map {file}: there are places for {} ranks, and the job has {}",
                self.places.len(),
                nodes.len()
            ));
        }
        // By node: the first rank of it, and the place.
        let mut known: Vec<Option<(usize, u16)>> = Vec::new();
        for (rank, (node, (line, words))) in nodes.iter().zip(&self.places).enumerate() {
            let refuse = |why: String| format!("map {file} line {line}: {why}");
            let place = place(grid, words).map_err(refuse)?;
            let taken = known.iter().enumerate().find_map(|(other, at)| {
                let (first, there) = (*at)?;
                (there == place && other != *node).then_some(first)
            });
            if let Some(first) = taken {
                return Err(refuse(format!(
                    "place {words} of rank {rank} is that of rank {first}, which is on another node; --ranks-per-node says how \
                     many ranks share one"
                )));
            }
            known.resize(known.len().max(node + 1), None);
            match known[*node] {
                Some((first, there)) if there != place => {
                    return Err(refuse(format!(
                        "rank {rank} is on the node of rank {first}, which is at place {there}, and not at {words}"
                    )));
                }
                Some(_) => {}
                None => known[*node] = Some((rank, place)),
            }
        }
        // Nodes between have ranks, or the job would not have begun.
        let places = known.into_iter().map(|at| at.map(|(_, place)| place));
        places
            .collect::<Option<_>>()
            .ok_or_else(|| format!("map {file}: a node of the job has no rank"))
    }
}

/// The place that a line means: its number, or its coordinates.
fn place(grid: &Topology, words: &str) -> Result<u16, String> {
    let dims = grid.dims();
    let [x, y, z] = dims;
    let nodes = grid.nodes();
    let none = || format!("{words:?} is no place; its number or x y z is expected");
    let numbers: Option<Vec<u16>> = words.split_whitespace().map(|w| w.parse().ok()).collect();
    let outside = || {
        format!(
            "place {words} is not one of the {nodes} of the grid {x}x{y}x{z}, whose numbers begin at 0"
        )
    };
    match numbers.ok_or_else(none)?.as_slice() {
        [place] if usize::from(*place) < nodes => Ok(*place),
        &[a, b, c] if a < x && b < y && c < z => Ok(grid.place([a, b, c])),
        [_] | [_, _, _] => Err(outside()),
        _ => Err(none()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nic_model::NodeId;
    use std::io::Write as _;

    fn of_file(text: &str, nodes: &[usize]) -> Result<Topology, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let map = Map::parse(file.path().to_str().unwrap()).unwrap();
        let grid = Topology::torus([4, 2, 1]).unwrap();
        let placed = map.apply(&grid, nodes);
        placed.map_err(|e| e.replace(file.path().to_str().unwrap(), "FILE"))
    }

    #[test]
    fn a_file_has_a_place_for_each_rank() {
        let text = "# a comment\n3\n\n1 1 0   # coordinates\n0\n7\n";
        let placed = of_file(text, &[0, 1, 2]).unwrap();
        let at = |n: u16| placed.coordinates(NodeId(n));
        assert_eq!([at(0), at(1), at(2)], [[3, 0, 0], [1, 1, 0], [0, 0, 0]]);
        let shared = of_file("5\n5\n2\n2\n", &[0, 0, 1, 1]).unwrap();
        assert_eq!(shared.coordinates(NodeId(1)), [2, 0, 0]);
    }

    #[test]
    fn what_a_file_cannot_mean_is_said_with_its_line() {
        for (text, nodes, said) in [
            (
                "0\n1\n",
                &[0, 1, 2][..],
                "map FILE: there are places for 2 ranks, and the job has 3",
            ),
            (
                "0\n\n8\n",
                &[0, 1],
                "map FILE line 3: place 8 is not one of the 8 of the grid 4x2x1, whose numbers begin at 0",
            ),
            (
                "0 2 0\n1\n",
                &[0, 1],
                "map FILE line 1: place 0 2 0 is not one of the 8 of the grid 4x2x1",
            ),
            (
                "3\n1\n3\n",
                &[0, 1, 2],
                "map FILE line 3: place 3 of rank 2 is that of rank 0, which is on another node; --ranks-per-node says",
            ),
            (
                "3\n3\n3\n",
                &[0, 0, 1],
                "map FILE line 3: place 3 of rank 2 is that of rank 0",
            ),
            (
                "3\n1\n",
                &[0, 0],
                "map FILE line 2: rank 1 is on the node of rank 0, which is at place 3, and not at 1",
            ),
            (
                "zero\n",
                &[0],
                "map FILE line 1: \"zero\" is no place; its number or x y z is expected",
            ),
            ("1 2\n", &[0], "map FILE line 1: \"1 2\" is no place"),
            ("-1\n", &[0], "map FILE line 1: \"-1\" is no place"),
        ] {
            let error = of_file(text, nodes).unwrap_err();
            assert!(error.starts_with(said), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_rule_is_what_its_words_say() {
        assert_eq!(Map::parse("linear"), Ok(Map::Linear));
        assert_eq!(Map::parse("blocked"), Ok(Map::Blocked(2)));
        assert_eq!(Map::parse("blocked:3"), Ok(Map::Blocked(3)));
        assert_eq!(Map::parse("random:7"), Ok(Map::Random(7)));
        for (text, said) in [
            ("random", "map \"random\": the seed is a whole number"),
            ("random:x", "the seed is a whole number, as in random:7"),
            (
                "blocked:0",
                "the side of a block is a number of places from 1",
            ),
            ("linear:1", "linear has no number"),
            ("./linear", "map ./linear: No such file or directory"),
            (
                "lineal",
                "a rule is linear, blocked:N or random:SEED, anything else a file",
            ),
        ] {
            let error = Map::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn rules_place_the_nodes_of_the_job() {
        let grid = Topology::torus([4, 4, 1]).unwrap();
        let at = |map: Map, n: u16| {
            map.apply(&grid, &[0, 1, 2, 3])
                .unwrap()
                .coordinates(NodeId(n))
        };
        assert_eq!(at(Map::Linear, 2), [2, 0, 0]);
        assert_eq!(at(Map::Blocked(2), 2), [0, 1, 0]);
        let order = grid.shuffled_places(7);
        assert_eq!(at(Map::Random(7), 3), [order[3] % 4, order[3] / 4, 0]);
    }
}
