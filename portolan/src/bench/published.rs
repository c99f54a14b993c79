//! Published measurements of the machines the SeaStar model stands for.
//!
//! They are MPI figures: they contain the cost of an MPI library on both sides, which a Portals
//! measurement does not. The table of each curve, its source and its standing are in `published.json`.

use serde::Deserialize;

use super::name::Name;

/// A published curve.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Curve {
    /// The machine file that is to give this curve.
    pub(crate) machine: String,
    /// A few words for a legend.
    pub(crate) label: String,
    /// Where it is published.
    pub(crate) source: String,
    /// What is certain about it and what is not.
    pub(crate) status: String,
    /// Measured points: bytes and one-way nanoseconds, by size.
    #[serde(default)]
    points_ns: Vec<(u64, f64)>,
    /// A fit: the last piece that starts at or below a size holds.
    #[serde(default)]
    pieces: Vec<Piece>,
    /// Measured points between two processes of one node: bytes and one-way nanoseconds.
    #[serde(default)]
    same_node_ns: Vec<(u64, f64)>,
    /// The same as a fit.
    #[serde(default)]
    same_node_pieces: Vec<Piece>,
    /// Small messages that one rank sends another.
    #[serde(default)]
    pub(crate) messages_per_s: Option<f64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Piece {
    from: u64,
    intercept_us: f64,
    rate_gb_s: Option<f64>,
}

/// The sizes a fit is drawn at, as powers of 2. It is not carried on beyond the last.
const FIT_SIZES: std::ops::RangeInclusive<u32> = 3..=20;

/// Sizes that the fit sees, between nodes; for all machines, cut to those a curve has.
const FIT_ON: [u64; 13] = [
    0, 8, 16, 32, 300, 2048, 3072, 4608, 8192, 16_384, 32_768, 65_536, 196_608,
];

/// What a fit says of `bytes`, µs; the last piece that starts at or below holds.
fn fitted(pieces: &[Piece], bytes: u64) -> Option<f64> {
    let covered = bytes <= 1 << FIT_SIZES.end();
    let piece = pieces.iter().rev().find(|p| covered && p.from <= bytes)?;
    let wire = |rate| bytes as f64 / (rate * 1e3);
    Some(piece.intercept_us + piece.rate_gb_s.map_or(0.0, wire))
}

impl Curve {
    /// All published curves.
    pub(crate) fn all() -> Vec<Self> {
        serde_json::from_str(include_str!("published.json"))
            .expect("the file is part of this program and read by its tests")
    }

    /// A few words for measurement `name`: a bandwidth is derived, not published.
    pub(crate) fn label_for(&self, name: Name) -> String {
        match name {
            Name::PutBandwidth => format!("{}; bytes / time, derived", self.label),
            Name::Pingpong => self.label.clone(),
            _ => format!("{}; there + empty one back, derived", self.label),
        }
    }

    /// One-way time of a message of `bytes`, µs, where the curve has that very size.
    pub(crate) fn one_way(&self, bytes: u64) -> Option<f64> {
        let point = self
            .points_ns
            .iter()
            .find(|(size, _)| *size == bytes)
            .map(|(_, ns)| ns / 1e3);
        point.or_else(|| fitted(&self.pieces, bytes))
    }

    /// One-way time between two processes of one node, µs, where that has this very size.
    pub(crate) fn same_node(&self, bytes: u64) -> Option<f64> {
        let mut points = self.same_node_ns.iter();
        let point = points.find(|(size, _)| *size == bytes);
        let point = point.map(|(_, ns)| ns / 1e3);
        point.or_else(|| fitted(&self.same_node_pieces, bytes))
    }

    /// The sizes of the curve between two processes of one node.
    pub(crate) fn same_node_sizes(&self) -> Vec<u64> {
        if self.same_node_ns.is_empty() {
            return vec![0, 16, 1024, 16_384, 262_144, 1 << 20];
        }
        self.same_node_ns.iter().map(|(size, _)| *size).collect()
    }

    /// Whether the model was fitted on the one-way time of a message of `bytes` between nodes.
    pub(crate) fn is_fitted_on(bytes: u64) -> bool {
        FIT_ON.contains(&bytes)
    }

    /// Whether the points are a formula's, and not measured ones.
    pub(crate) fn is_formula(&self) -> bool {
        self.points_ns.is_empty()
    }

    /// The sizes at which a model is compared: those published, or for a fit the starts of its pieces,
    /// powers of 2 and the middles between them from 4 KiB on. Where exactly a piece ends is not
    /// published, so that the last byte of one is nobody's measurement.
    pub(crate) fn compared_sizes(&self) -> Vec<u64> {
        if !self.is_formula() {
            return self.sizes();
        }
        let powers = [0].into_iter().chain(FIT_SIZES.map(|p| 1 << p));
        let middles = (12..*FIT_SIZES.end()).map(|p| 3 << (p - 1));
        let mut sizes: Vec<u64> = powers.chain(middles).collect();
        sizes.extend(self.pieces.iter().map(|p| p.from));
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The sizes of the curve: those published, or for a fit powers of 2 and both sides of each step.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.points_ns.iter().map(|(size, _)| *size).collect();
        if sizes.is_empty() {
            sizes = [0].into_iter().chain(FIT_SIZES.map(|p| 1 << p)).collect();
            // Both sides of each step.
            sizes.extend(
                self.pieces
                    .iter()
                    .flat_map(|p| [p.from.saturating_sub(1), p.from]),
            );
            sizes.sort_unstable();
            sizes.dedup();
        }
        sizes
    }

    /// What the curve says of measurement `name` at `bytes`, in the unit of `name`. Only one-way times
    /// are published. Derived from them: a bandwidth, as bytes / time; and what comes nearest to an
    /// operation that ends with an answer, the message and an empty one back.
    pub(crate) fn value(&self, name: Name, bytes: u64) -> Option<f64> {
        match name {
            Name::Pingpong => self.one_way(bytes),
            Name::PutBandwidth if bytes > 0 => Some(bytes as f64 / self.one_way(bytes)?),
            Name::PutLatency | Name::GetLatency | Name::AmMedium | Name::AmLong => {
                Some(self.one_way(bytes)? + self.one_way(0)?)
            }
            _ => None,
        }
    }

    /// The curve for a plot of `name`, by size.
    pub(crate) fn series(&self, name: Name) -> Vec<(u64, f64)> {
        self.sizes()
            .into_iter()
            .filter_map(|size| Some((size, self.value(name, size)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_both_curves_with_their_standing() {
        let curves = Curve::all();
        assert_eq!(curves.len(), 2);
        assert!(
            curves
                .iter()
                .all(|c| !c.source.is_empty() && !c.status.is_empty())
        );
        assert!(curves[0].points_ns.is_sorted_by_key(|(size, _)| *size));
        assert!(curves[1].pieces.is_sorted_by_key(|p| p.from));
    }

    #[test]
    fn points_are_exact_or_absent() {
        let curve = &Curve::all()[0];
        assert_eq!(curve.one_way(8), Some(6.17));
        assert_eq!(curve.one_way(16), None);
        let megabytes_per_second = curve.value(Name::PutBandwidth, 1 << 20).unwrap();
        assert!(
            (megabytes_per_second - 1773.6).abs() < 0.1,
            "{megabytes_per_second}"
        );
        assert_eq!(curve.value(Name::GetLatency, 8), Some(6.17 + 5.91));
        assert_eq!(curve.value(Name::Barrier, 8), None);
    }

    /// Values the fit's publisher gives for it.
    #[test]
    fn the_fit_gives_known_values() {
        let curve = &Curve::all()[1];
        for (bytes, us) in [
            (8, 5.74),
            (64, 9.12),
            (1024, 9.65),
            (4096, 10.9),
            (16384, 15.8),
            (65536, 37.7),
            (1 << 20, 511.5),
        ] {
            let got = curve.one_way(bytes).unwrap();
            assert!((got / us - 1.0).abs() < 0.01, "{bytes}: {got}");
        }
        assert_eq!(curve.one_way(2 << 20), None);
        assert!(curve.series(Name::Pingpong).len() > 20);
    }
}
