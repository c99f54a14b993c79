//! The name of a link: where it begins, and which way it goes.

use std::fmt;
use std::str::FromStr;

use super::{NodeId, Port, Topology};

/// A link by its place, such as `(0,0,1) x+`: the coordinates of the node that sends over it, and its direction.
///
/// ```
/// use nic_model::{LinkName, Port};
///
/// let link: LinkName = "(0,0,1) x+".parse()?;
/// assert_eq!((link.at, link.port), ([0, 0, 1], Port::XPlus));
/// assert_eq!(link.to_string(), "(0,0,1) x+");
/// # Ok::<(), nic_model::LinkNameError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName {
    /// Coordinates of the node.
    pub at: [u16; 3],
    /// The link; [`Port::Node`] is the port from the router to the node.
    pub port: Port,
}

/// A text that names no link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no link, want its place and direction, such as \"(0,0,1) x+\"")]
pub struct LinkNameError(String);

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.at;
        write!(f, "({x},{y},{z}) {}", self.port.name())
    }
}

impl FromStr for LinkName {
    type Err = LinkNameError;

    /// Blanks between the parts do not count.
    fn from_str(text: &str) -> Result<Self, LinkNameError> {
        parsed(text).ok_or_else(|| LinkNameError(text.to_owned()))
    }
}

fn parsed(text: &str) -> Option<LinkName> {
    let (place, port) = text.trim().strip_prefix('(')?.split_once(')')?;
    let mut ports = Port::LINKS.into_iter().chain([Port::Node]);
    let port = ports.find(|known| known.name() == port.trim())?;
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let numbers = place.split(',').map(|number| {
        let number = number.trim();
        number.parse().ok().filter(|_| digits(number))
    });
    let numbers: Option<Vec<u16>> = numbers.collect();
    let at = numbers?.try_into().ok()?;
    Some(LinkName { at, port })
}

impl Topology {
    /// The name of the output `port` of `node`, which is a node of the grid.
    #[must_use]
    pub fn link_name(&self, node: NodeId, port: Port) -> LinkName {
        let at = self.coordinates(node);
        LinkName { at, port }
    }

    /// The node at these coordinates; `None` where the grid has none.
    #[must_use]
    pub fn node_at_place(&self, at: [u16; 3]) -> Option<NodeId> {
        let inside = at.iter().zip(self.dims()).all(|(at, extent)| *at < extent);
        inside.then(|| self.node_at(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let grid = Topology::torus([3, 4, 5]).unwrap();
        let grid = grid.placed(&grid.shuffled_places(7)).unwrap();
        for node in (0..60).map(NodeId) {
            for port in Port::LINKS.into_iter().chain([Port::Node]) {
                let name = grid.link_name(node, port);
                assert_eq!(name.to_string().parse(), Ok(name));
                assert_eq!(grid.node_at_place(name.at), Some(node));
            }
        }
        assert_eq!(grid.node_at_place([0, 4, 0]), None);
        let spaced: LinkName = " ( 1, 2 ,3)z- ".parse().unwrap();
        assert_eq!(spaced.to_string(), "(1,2,3) z-");
    }

    #[test]
    fn what_names_no_link_is_refused_with_an_example() {
        for bad in [
            "",
            "x+",
            "(0,0,1)",
            "(0,0,1) w+",
            "(0,0) x+",
            "(0,0,0,0) x+",
            "(0,0,-1) x+",
            "(0,0,+1) x+",
            "(0,0,65536) x+",
            "0,0,1 x+",
        ] {
            let error = bad.parse::<LinkName>().unwrap_err().to_string();
            let expected =
                format!("{bad:?} is no link, want its place and direction, such as \"(0,0,1) x+\"");
            assert_eq!(error, expected);
        }
    }
}
