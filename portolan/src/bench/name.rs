//! The measurements by name: what each measures, in which unit, at which sizes.

use std::fmt;

/// What a measurement reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Time of one blocking operation.
    Microseconds,
    /// Payload, 10⁶ bytes per second.
    MegabytesPerSecond,
    /// Operations per second.
    OperationsPerSecond,
}

impl Unit {
    /// The word of result lines.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Microseconds => "us",
            Self::MegabytesPerSecond => "MB/s",
            Self::OperationsPerSecond => "op/s",
        }
    }

    /// A duration that covers `bytes` and `operations`, in this unit.
    pub(super) fn convert(self, nanos: u64, bytes: u64, operations: u64) -> f64 {
        let seconds = nanos.max(1) as f64 * 1e-9;
        match self {
            Self::Microseconds => nanos as f64 * 1e-3 / operations.max(1) as f64,
            Self::MegabytesPerSecond => bytes as f64 * 1e-6 / seconds,
            Self::OperationsPerSecond => operations as f64 / seconds,
        }
    }
}

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub(crate) enum Name {
    /// Puts to and fro between ranks 0 and 1; half of a round trip
    Pingpong,
    /// A put until its ack
    PutLatency,
    /// A get until its reply
    GetLatency,
    /// Windows of puts until all acks
    PutBandwidth,
    /// Windows of gets until all replies
    GetBandwidth,
    /// Windows of puts of both ranks at once until all acks and all arrivals; the payload of both directions
    PutBidirectional,
    /// Windows of small puts until all acks
    PutRate,
    /// Small messages as fast as a program takes them one by one
    MessageRate,
    /// Puts of 8 KiB to all other ranks in turn, a number of them under way together
    PutsInFlight,
    /// An active message without payload until its reply has run
    AmShort,
    /// An active message with payload for its handler until its reply has run
    AmMedium,
    /// An active message with payload for the segment until its reply has run
    AmLong,
    /// Windows of active messages without payload until all replies have run
    AmRate,
    /// Rows of active messages without payload and without replies, until the last has been handled; one of them
    AmFlood,
    /// Active messages without payload from so many threads of rank 0, each to ranks of its own
    AmThreads,
    /// A blocking put of the conduit into the segment of rank 1
    SegmentPut,
    /// A blocking get of the conduit out of the segment of rank 1
    SegmentGet,
    /// Windows of 64 puts of the conduit into the segment of rank 1 until all handles are synchronised
    SegmentPutRate,
    /// Windows of 16 puts of the conduit out of the own segment into that of rank 1 until all handles are synchronised
    SegmentPutBandwidth,
    /// A plain copy within rank 0, to compare a put with
    Memcpy,
    /// The barrier of the conduit, on all ranks
    Barrier,
    /// A put behind a number of entries that do not match
    MatchDepth,
    /// Tagged messages to and fro between ranks 0 and 1; half of a round trip
    TagPingpong,
    /// Tagged messages of 8 bytes to and fro, behind a number of posted receives that do not match
    TagPosted,
    /// A tagged message and an empty one back; the whole round trip
    TagPingAck,
    /// Windows of 64 tagged messages until an empty one back says that all have come
    TagBandwidth,
    /// Blocking puts of 8 bytes to random pages of a working set of rank 1, pinned in one of several ways
    RandomPut,
}

impl Name {
    /// All, in the order of reports.
    pub(crate) const ALL: [Self; 27] = [
        Self::Pingpong,
        Self::PutLatency,
        Self::GetLatency,
        Self::PutBandwidth,
        Self::GetBandwidth,
        Self::PutBidirectional,
        Self::PutRate,
        Self::MessageRate,
        Self::PutsInFlight,
        Self::AmShort,
        Self::AmMedium,
        Self::AmLong,
        Self::AmRate,
        Self::AmFlood,
        Self::AmThreads,
        Self::SegmentPut,
        Self::SegmentGet,
        Self::SegmentPutRate,
        Self::SegmentPutBandwidth,
        Self::Memcpy,
        Self::Barrier,
        Self::MatchDepth,
        Self::TagPingpong,
        Self::TagPosted,
        Self::TagPingAck,
        Self::TagBandwidth,
        Self::RandomPut,
    ];

    /// The word of the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Pingpong => "pingpong",
            Self::PutLatency => "put-latency",
            Self::GetLatency => "get-latency",
            Self::PutBandwidth => "put-bandwidth",
            Self::GetBandwidth => "get-bandwidth",
            Self::PutBidirectional => "put-bidirectional",
            Self::PutRate => "put-rate",
            Self::MessageRate => "message-rate",
            Self::PutsInFlight => "puts-in-flight",
            Self::AmShort => "am-short",
            Self::AmMedium => "am-medium",
            Self::AmLong => "am-long",
            Self::AmRate => "am-rate",
            Self::AmFlood => "am-flood",
            Self::AmThreads => "am-threads",
            Self::SegmentPut => "segment-put",
            Self::SegmentGet => "segment-get",
            Self::SegmentPutRate => "segment-put-rate",
            Self::SegmentPutBandwidth => "segment-put-bandwidth",
            Self::Memcpy => "memcpy",
            Self::Barrier => "barrier",
            Self::MatchDepth => "match-depth",
            Self::TagPingpong => "tag-pingpong",
            Self::TagPosted => "tag-posted",
            Self::TagPingAck => "tag-ping-ack",
            Self::TagBandwidth => "tag-bandwidth",
            Self::RandomPut => "random-put",
        }
    }

    /// What it reports.
    pub(crate) fn unit(self) -> Unit {
        match self {
            Self::PutBandwidth
            | Self::GetBandwidth
            | Self::PutBidirectional
            | Self::SegmentPutBandwidth
            | Self::TagBandwidth => Unit::MegabytesPerSecond,
            Self::PutRate
            | Self::MessageRate
            | Self::PutsInFlight
            | Self::AmRate
            | Self::AmThreads
            | Self::SegmentPutRate => Unit::OperationsPerSecond,
            _ => Unit::Microseconds,
        }
    }

    /// What the numbers of `--sizes` are.
    pub(crate) fn axis(self) -> Axis {
        match self {
            Self::MatchDepth | Self::TagPosted => Axis::Entries,
            Self::PutsInFlight => Axis::Operations,
            Self::AmThreads => Axis::Threads,
            Self::RandomPut => Axis::WorkingSet,
            Self::AmShort | Self::AmRate | Self::AmFlood | Self::Barrier => Axis::Nothing,
            _ => Axis::Bytes,
        }
    }

    /// The largest number of `--sizes`, where it is less than that of any size.
    pub(crate) fn largest(self) -> Option<u64> {
        match self {
            Self::AmMedium => Some(conduit::MAX_MEDIUM as u64),
            Self::MatchDepth | Self::TagPosted => Some(100_000),
            Self::PutsInFlight => Some(4_000),
            Self::AmThreads => Some(64),
            _ => None,
        }
    }

    /// Whether it measures the conduit and not the Portals interface.
    pub(crate) fn is_of_conduit(self) -> bool {
        matches!(
            self,
            Self::AmShort
                | Self::AmMedium
                | Self::AmLong
                | Self::AmRate
                | Self::AmFlood
                | Self::SegmentPut
                | Self::SegmentGet
                | Self::SegmentPutRate
                | Self::SegmentPutBandwidth
                | Self::Memcpy
                | Self::Barrier
        )
    }

    /// Whether it measures the conduit as threads share it, which takes a job of its own.
    pub(crate) fn is_of_threads(self) -> bool {
        self == Self::AmThreads
    }

    /// Whether it compares ways to pin memory, which takes jobs of its own.
    pub(crate) fn is_of_pinning(self) -> bool {
        self == Self::RandomPut
    }

    /// Whether it measures tagged messages.
    pub(crate) fn is_of_tags(self) -> bool {
        matches!(
            self,
            Self::TagPingpong | Self::TagPosted | Self::TagPingAck | Self::TagBandwidth
        )
    }

    /// Whether the conduit over messages has it.
    pub(crate) fn is_of_both_conduits(self) -> bool {
        matches!(
            self,
            Self::AmMedium | Self::SegmentPut | Self::SegmentPutBandwidth
        )
    }

    /// What of messages alone stands beside it, in the published comparison of the conduits.
    pub(crate) fn by_messages(self) -> Option<Self> {
        match self {
            Self::SegmentPut => Some(Self::TagPingAck),
            Self::SegmentPutBandwidth => Some(Self::TagBandwidth),
            _ => None,
        }
    }

    /// Whether it stands for a library above Portals, whose computing is part of it.
    pub(crate) fn has_software(self) -> bool {
        matches!(
            self,
            Self::Pingpong | Self::MessageRate | Self::TagPingAck | Self::TagBandwidth
        )
    }

    /// The points measured where the user names none.
    pub(crate) fn default_points(self) -> Vec<u64> {
        let powers = |from: u32, to: u32| (from..=to).map(|p| 1 << p);
        match self {
            Self::Pingpong
            | Self::PutLatency
            | Self::GetLatency
            | Self::TagPingpong
            | Self::TagPingAck => [0].into_iter().chain(powers(3, 20)).collect(),
            Self::PutBandwidth | Self::GetBandwidth | Self::PutBidirectional => {
                powers(6, 20).collect()
            }
            Self::SegmentPutBandwidth | Self::TagBandwidth => powers(11, 21).collect(),
            Self::PutRate | Self::SegmentPutRate => vec![8, 64],
            Self::MessageRate => vec![0, 8, 64],
            Self::AmThreads => vec![1, 2],
            Self::RandomPut => powers(20, 30).collect(),
            Self::PutsInFlight => vec![16, 64, 128, 192, 256, 288, 320, 352, 384, 448, 512, 1024],
            Self::AmMedium => powers(0, 20)
                .filter(|p| Some(*p) <= self.largest())
                .collect(),
            Self::AmLong => powers(0, 20).collect(),
            Self::SegmentPut | Self::SegmentGet | Self::Memcpy => powers(3, 20).collect(),
            Self::AmShort | Self::AmRate | Self::AmFlood | Self::Barrier => vec![0],
            Self::MatchDepth | Self::TagPosted => [0].into_iter().chain(powers(0, 10)).collect(),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What varies within a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    /// The size of a message.
    Bytes,
    /// The entries of the match list before the one that matches.
    Entries,
    /// The operations that are under way together.
    Operations,
    /// The threads that send.
    Threads,
    /// The memory that operations touch, bytes.
    WorkingSet,
    /// Nothing: there is one point.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn words_are_those_of_the_command_line() {
        assert_eq!(Name::value_variants(), Name::ALL);
        for name in Name::ALL {
            assert_eq!(name.to_possible_value().unwrap().get_name(), name.word());
            assert!(!name.default_points().is_empty());
        }
    }
}
