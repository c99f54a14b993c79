//! The environment variables of the conduit, read once.
//!
//! Names and defaults are those of the portals-conduit (`names.rs` has them all). Numbers are
//! decimal or `0x` hexadecimal with an optional suffix K, M, G, T or B (powers of 1024); an empty
//! variable counts as unset; switches take 1/0, y/n, yes/no.

mod firehose;
mod names;
mod reader;

use crate::credits::{Knobs, Wishes};
use crate::debugging;
use crate::trace;
pub(crate) use firehose::Pinning;
pub(crate) use names::Sharing;
pub use reader::EnvError;
use reader::{Reader, Shown};

/// The choices of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Env {
    /// Messages in flight that this rank initiated.
    pub(crate) msg_limit: u32,
    /// Temporary descriptors at one time.
    pub(crate) num_tmpmd: u32,
    /// Active messages between ranks that share memory are frames.
    pub(crate) near: bool,
    /// Most payload bytes of a Long that travels in one message; 0: none does, whatever its length.
    packed_long: usize,
    /// What is asked of the credits.
    pub(crate) credits: Wishes,
    /// `GASNET_PORTAL_MAX_CRED_PER_NODE`, `GASNET_PORTAL_EPOCH_DURATION`
    most_credits: u16,
    epoch: u32,
    /// Credit statistics are written at the end.
    pub(crate) credit_stats: bool,
    /// A table of the credits is written at the start and for each epoch.
    pub(crate) credit_dumps: bool,
    /// Chunks of the request send buffer.
    pub(crate) sb_chunks: u32,
    /// Chunks of the reply send buffer.
    pub(crate) rpl_chunks: u32,
    /// Events of each queue in one poll; `u32::MAX` for no limit.
    pub(crate) sys_limit: u32,
    pub(crate) safe_limit: u32,
    pub(crate) am_limit: u32,
    /// Largest transfers that are copied through a chunk, bytes.
    put_bounce: usize,
    get_bounce: usize,
    exit_timeout: Option<f64>,
    exit_max: f64,
    exit_min: f64,
    exit_factor: f64,
    /// Signals that are left alone, by name or number.
    pub(crate) no_catch: Vec<String>,
    /// The largest segment that a program may be offered, bytes; `None` where it is for the program to say.
    pub(crate) max_segment: Option<u64>,
    /// Where files are written.
    pub(crate) tmpdir: Option<String>,
    /// Waiting for debuggers, stack traces.
    pub(crate) debugging: debugging::Wishes,
    /// Trace and statistics files.
    pub(crate) trace: trace::Wishes,
    pub(crate) firehose: Pinning,
    /// Variables that the environment has.
    set: Vec<&'static str>,
    quiet: bool,
    /// What rank 0 says at the start.
    pub(crate) notes: Vec<String>,
}

/// Fewer messages in flight than this could not carry one Long and its reply.
const MIN_MSG_LIMIT: u64 = 12;
/// A reply's long id must be above every chunk offset of 2048-byte chunks.
const MAX_SB_CHUNKS: u64 = 4096;

impl Env {
    /// Whether the payload of a Long may travel with its header, as far as the environment says.
    #[inline]
    pub(crate) fn packs(&self, len: usize) -> bool {
        self.packed_long > 0 && len <= self.packed_long
    }

    /// Whether local memory of so many bytes is copied through a chunk.
    #[inline]
    pub(crate) fn bounces(&self, get: bool, len: usize) -> bool {
        let most = if get {
            self.get_bounce
        } else {
            self.put_bounce
        };
        len <= most
    }

    fn packed_long<F: Fn(&str) -> Option<String>>(r: &Reader<F>) -> Result<usize, EnvError> {
        let on = r.switch("GASNET_PORTAL_PACKED_LONG", true)?;
        let chunk = crate::chunks::CHUNK as u64;
        let limit = r
            .number_up_to("GASNET_PACKEDLONG_LIMIT", &chunk.to_string(), chunk)?
            .unwrap_or(chunk);
        Ok(if on { limit as usize } else { 0 })
    }

    /// The process's environment.
    pub(crate) fn from_env() -> Result<Self, EnvError> {
        let mut env = Self::read(|name| std::env::var(name).ok())?;
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        if !env.quiet {
            let warnings = names::warnings(names);
            env.notes
                .extend(warnings.into_iter().map(|w| format!("WARNING: {w}")));
        }
        Ok(env)
    }

    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, EnvError> {
        let r = Reader::new(get);
        let verbose = r.switch("GASNET_VERBOSEENV", false)?;
        let quiet = r.switch("GASNET_QUIET", false)?;
        let mut notes = Vec::new();
        let credits = Self::credits(&r, &mut notes)?;
        let chunk = crate::chunks::CHUNK as u64;
        let bounce = r
            .number_up_to("GASNET_PORTAL_PUTGET_BOUNCE_LIMIT", "2048", chunk)?
            .unwrap_or(chunk);
        let put_bounce = r
            .number_up_to("GASNET_PORTAL_PUT_BOUNCE_LIMIT", &bounce.to_string(), chunk)?
            .unwrap_or(bounce);
        // The first 8 bytes of a get's chunk are not payload in the conduit's format.
        let most = chunk - 8;
        let usual = bounce.min(most);
        let get_bounce = r
            .number_up_to("GASNET_PORTAL_GET_BOUNCE_LIMIT", &usual.to_string(), most)?
            .unwrap_or(usual);
        let limit = |n: u32| if n == 0 { u32::MAX } else { n };
        let most = u64::from(u32::MAX);
        let mut env = Self {
            msg_limit: r.count("GASNET_PORTAL_MSG_LIMIT", 250, MIN_MSG_LIMIT, 1 << 16)?,
            num_tmpmd: r.count("GASNET_PORTAL_NUM_TMPMD", 1024, 2, 1 << 15)?,
            packed_long: Self::packed_long(&r)?,
            near: r.switch("GASNET_PORTAL_NEAR", true)?,
            credits,
            // More than fits the state of a peer is never lent.
            most_credits: r.count("GASNET_PORTAL_MAX_CRED_PER_NODE", 400, 0, 65_535)? as u16,
            epoch: r.count("GASNET_PORTAL_EPOCH_DURATION", 1024, 1, most)?,
            credit_stats: r.switch("GASNET_PORTAL_CREDIT_STATS", false)?,
            credit_dumps: r.switch("GASNET_PORTAL_STATS", false)?,
            sb_chunks: r.count("GASNET_PORTAL_SB_CHUNKS", 2048, 1, MAX_SB_CHUNKS)?,
            rpl_chunks: r.count("GASNET_PORTAL_RPL_CHUNKS", 256, 1, 1 << 16)?,
            sys_limit: limit(r.count("GASNET_PORTAL_SYS_LIMIT", 0, 0, most)?),
            safe_limit: limit(r.count("GASNET_PORTAL_SAFE_LIMIT", 12, 0, most)?),
            am_limit: limit(r.count("GASNET_PORTAL_AM_LIMIT", 8, 0, most)?),
            put_bounce: usize::try_from(put_bounce).unwrap_or(0),
            get_bounce: usize::try_from(get_bounce).unwrap_or(0),
            exit_timeout: r.seconds("GASNET_EXITTIMEOUT", "from the number of ranks")?,
            exit_max: r.seconds("GASNET_EXITTIMEOUT_MAX", "360")?.unwrap_or(360.0),
            exit_min: r.seconds("GASNET_EXITTIMEOUT_MIN", "5")?.unwrap_or(5.0),
            exit_factor: r
                .seconds("GASNET_EXITTIMEOUT_FACTOR", "0.25")?
                .unwrap_or(0.25),
            no_catch: list(r.shown_text("GASNET_NO_CATCH_SIGNAL", "")),
            max_segment: r
                .number("GASNET_MAX_SEGSIZE", "a part of the memory")?
                .filter(|bytes| *bytes > 0),
            tmpdir: r
                .shown_text("GASNET_TMPDIR", "")
                .or_else(|| r.text("TMPDIR")),
            debugging: debugging::Wishes {
                freeze: r.switch("GASNET_FREEZE", false)?,
                freeze_on_error: r.switch("GASNET_FREEZE_ON_ERROR", false)?,
                backtrace: r.switch("GASNET_BACKTRACE", false)?,
                backtrace_nodes: r.shown_text("GASNET_BACKTRACE_NODES", ""),
            },
            trace: trace::Wishes::read(
                |name, unset| r.shown_text(name, unset),
                |n, d| r.switch(n, d),
            )?,
            firehose: Pinning::read(&r)?,
            notes,
            set: Vec::new(),
            quiet,
        };
        for known in &names::NO_EFFECT {
            r.shown_text(known.name, "no effect");
        }
        let read = r.done();
        env.set = read.set();
        if !quiet {
            let bent = read.bent.iter().map(|line| format!("WARNING: {line}"));
            env.notes.extend(bent);
        }
        if verbose {
            let shown = read.shown.iter().map(Shown::to_string);
            env.notes.splice(0..0, shown);
        }
        Ok(env)
    }

    /// What to say, once the ranks are attached, of variables that change nothing in this job.
    pub(crate) fn idle(&self, job: names::Sharing) -> Vec<String> {
        if self.quiet {
            return Vec::new();
        }
        names::idle(&self.set, job)
    }

    /// What the environment says of credits. Without flow control there are none to move; where it
    /// is switched off and dynamic credits are asked for by name, the latter count.
    fn credits<F: Fn(&str) -> Option<String>>(
        r: &Reader<F>,
        notes: &mut Vec<String>,
    ) -> Result<Wishes, EnvError> {
        let flow_control = r.switch("GASNET_PORTAL_FLOW_CONTROL", true)?;
        let dynamic = r.choice("GASNET_PORTAL_DYNAMIC_CREDITS", flow_control)?;
        if !flow_control && dynamic == Some(true) {
            notes.push(
                "WARNING: GASNET_PORTAL_DYNAMIC_CREDITS=1 needs flow control, which stays on"
                    .to_owned(),
            );
        }
        Ok(Wishes {
            flow_control: flow_control || dynamic == Some(true),
            dynamic: dynamic.unwrap_or(flow_control),
            per_node: r.number("GASNET_PORTAL_CRED_PER_NODE", "from the number of ranks")?,
            banked: r.number("GASNET_PORTAL_BANKED_CREDITS", "from the number of ranks")?,
            space: r.number("GASNET_PORTAL_AMRECV_SPACE", "from the number of ranks")?,
        })
    }

    /// How fast credits move.
    pub(crate) fn knobs(&self) -> Knobs {
        Knobs {
            most: self.most_credits,
            epoch: self.epoch,
            ..Knobs::DEFAULT
        }
    }

    /// How long an exit may take to reach every rank, in nanoseconds of the fabric's time.
    /// Before `attach` the variables do not count.
    pub(crate) fn exit_timeout_ns(&self, nodes: u32, attached: bool) -> u64 {
        let seconds = if attached {
            self.exit_timeout.unwrap_or_else(|| {
                self.exit_max
                    .min(self.exit_min + self.exit_factor * f64::from(nodes))
            })
        } else {
            f64::from((3 + nodes / 8).min(360))
        };
        u64::try_from(
            std::time::Duration::try_from_secs_f64(seconds)
                .unwrap_or(std::time::Duration::MAX)
                .as_nanos(),
        )
        .unwrap_or(u64::MAX)
    }
}

/// The words of a list with commas.
fn list(text: Option<String>) -> Vec<String> {
    let text = text.unwrap_or_default();
    let words = text.split(',').map(|w| w.trim().to_owned());
    words.filter(|w| !w.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Result<Env, EnvError> {
        Env::read(|name| {
            pairs
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| (*v).to_owned())
        })
    }

    #[test]
    fn defaults_are_the_conduits() {
        let e = with(&[]).unwrap();
        assert_eq!(
            (e.msg_limit, e.num_tmpmd, e.sb_chunks, e.rpl_chunks),
            (250, 1024, 2048, 256)
        );
        assert_eq!((e.sys_limit, e.safe_limit, e.am_limit), (u32::MAX, 12, 8));
        assert_eq!((e.put_bounce, e.get_bounce), (2048, 2040));
        assert!(e.packs(0) && e.packs(2048) && !e.packs(2049));
        assert!(e.credits == Wishes::DEFAULT && e.knobs() == Knobs::DEFAULT);
        assert!(!e.credit_stats && !e.credit_dumps && e.notes.is_empty() && e.no_catch.is_empty());
        assert_eq!(e.exit_timeout_ns(4, true), 6_000_000_000);
        assert_eq!(e.exit_timeout_ns(65_535, true), 360_000_000_000);
    }

    #[test]
    fn values_are_clamped_and_suffixes_understood() {
        let e = with(&[
            ("GASNET_PORTAL_MSG_LIMIT", "0"),
            ("GASNET_PORTAL_SB_CHUNKS", "0x10000"),
            ("GASNET_PORTAL_AMRECV_SPACE", "3m"),
            ("GASNET_PORTAL_PACKED_LONG", "No"),
            ("GASNET_PORTAL_PUTGET_BOUNCE_LIMIT", "100"),
            ("GASNET_PORTAL_GET_BOUNCE_LIMIT", "5000"),
            ("GASNET_EXITTIMEOUT", "1.5"),
            ("GASNET_PORTAL_NUM_TMPMD", " "),
        ])
        .unwrap();
        assert_eq!((e.msg_limit, e.sb_chunks, e.num_tmpmd), (12, 4096, 1024));
        assert_eq!(e.credits.space, Some(3 << 20));
        assert_eq!((e.put_bounce, e.get_bounce), (100, 2040));
        let most = |text| with(&[("GASNET_MAX_SEGSIZE", text)]).unwrap().max_segment;
        assert_eq!(
            (most("0.5G"), most("0"), most(" ")),
            (Some(1 << 29), None, None)
        );
        assert!(!e.packs(0));
        assert_eq!(e.exit_timeout_ns(4, true), 1_500_000_000);
    }

    #[test]
    fn packing_ends_at_the_limit() {
        let packs = |pairs: &[(&str, &str)], len| with(pairs).unwrap().packs(len);
        let limit = |text| ("GASNET_PACKEDLONG_LIMIT", text);
        assert!(packs(&[limit("1K")], 1024) && !packs(&[limit("1K")], 1025));
        // More than a chunk is no chunk more.
        assert!(packs(&[limit("1M")], 2048) && !packs(&[limit("1M")], 2049));
        assert!(!packs(&[limit("0")], 0) && !packs(&[limit("0")], 8));
        let off = ("GASNET_PORTAL_PACKED_LONG", "0");
        assert!(!packs(&[off, limit("1K")], 8));
        assert_eq!(
            with(&[limit("some")]).unwrap_err().to_string(),
            "GASNET_PACKEDLONG_LIMIT=\"some\" is not a number"
        );
    }

    #[test]
    fn the_longest_exit_grows_with_the_ranks_between_its_limits() {
        let e = with(&[
            ("GASNET_EXITTIMEOUT_MIN", "1"),
            ("GASNET_EXITTIMEOUT_FACTOR", "0.5"),
            ("GASNET_EXITTIMEOUT_MAX", "10"),
        ])
        .unwrap();
        let ns = |nodes| e.exit_timeout_ns(nodes, true);
        assert_eq!(
            [ns(1), ns(4), ns(18), ns(19), ns(1000)],
            [
                1_500_000_000,
                3_000_000_000,
                10_000_000_000,
                10_000_000_000,
                10_000_000_000
            ]
        );
        // Before there is a segment 3 s, and 1 s for each 8 ranks.
        assert_eq!(e.exit_timeout_ns(17, false), 5_000_000_000);
    }

    #[test]
    fn nonsense_is_named() {
        for (name, value, is_not) in [
            ("GASNET_PORTAL_MSG_LIMIT", "many", "a number"),
            ("GASNET_PORTAL_FLOW_CONTROL", "maybe", "yes or no"),
            ("GASNET_MAX_SEGSIZE", "big", "a number"),
            ("GASNET_EXITTIMEOUT_MIN", "-1", "a number of seconds"),
            ("GASNET_EXITTIMEOUT", "inf", "a number of seconds"),
            (
                "GASNET_PHYSMEM_PINNABLE_RATIO",
                "1",
                "a number between 0 and 1",
            ),
            ("GASNET_FIREHOSE_M", "1.5.2", "an amount of memory"),
        ] {
            let said = with(&[(name, value)]).unwrap_err().to_string();
            assert_eq!(said, format!("{name}=\"{value}\" is not {is_not}"));
        }
    }

    #[test]
    fn flow_control_and_dynamic_credits() {
        let c = |pairs: &[(&str, &str)]| {
            let e = with(pairs).unwrap();
            (e.credits.flow_control, e.credits.dynamic, e.notes.len())
        };
        let (flow, dynamic) = (
            "GASNET_PORTAL_FLOW_CONTROL",
            "GASNET_PORTAL_DYNAMIC_CREDITS",
        );
        assert_eq!(c(&[]), (true, true, 0));
        assert_eq!(c(&[(dynamic, "0")]), (true, false, 0));
        assert_eq!(c(&[(flow, "0")]), (false, false, 0));
        assert_eq!(c(&[(flow, "0"), (dynamic, "1")]), (true, true, 1));
    }

    #[test]
    fn values_that_count_as_others_are_said() {
        let said = |pairs: &[(&str, &str)]| with(pairs).unwrap().notes;
        for (name, value, counts) in [
            ("GASNET_PORTAL_MSG_LIMIT", "0", "12"),
            ("GASNET_PORTAL_SB_CHUNKS", "1M", "4096"),
            ("GASNET_PORTAL_MAX_CRED_PER_NODE", "70000", "65535"),
            ("GASNET_PACKEDLONG_LIMIT", "4K", "2048"),
            ("GASNET_PORTAL_PUTGET_BOUNCE_LIMIT", "4K", "2048"),
            ("GASNET_PORTAL_PUT_BOUNCE_LIMIT", "4K", "2048"),
            ("GASNET_PORTAL_GET_BOUNCE_LIMIT", "2048", "2040"),
            ("GASNET_FIREHOSE_MAXREGION_SIZE", "5K", "8K"),
            ("GASNET_FIREHOSE_MAXREGION_SIZE", "2048", "1G"),
        ] {
            let line = format!("WARNING: {name}={value} counts as {counts}");
            assert_eq!(said(&[(name, value)]), [line]);
            assert!(said(&[(name, value), ("GASNET_QUIET", "1")]).is_empty());
        }
        assert!(said(&[("GASNET_FIREHOSE_MAXREGION_SIZE", "8K")]).is_empty());
    }

    #[test]
    fn verbose_shows_amounts_in_the_unit_that_is_read() {
        let e = with(&[
            ("GASNET_VERBOSEENV", "1"),
            ("GASNET_FIREHOSE_M", "400"),
            ("GASNET_FIREHOSE_MAXVICTIM_M", "0.5"),
        ])
        .unwrap();
        let line = |name: &str| e.notes.iter().find(|n| n.contains(name)).unwrap().clone();
        assert!(line("FIREHOSE_M ").ends_with("GASNET_FIREHOSE_M = 400 (400M)"));
        assert!(line("MAXVICTIM_M").ends_with(" = 0.5 (512K)"));
        assert!(line("MAXREGION_SIZE").contains(" = 128K "));
    }

    #[test]
    fn variables_that_change_nothing_in_a_job_are_said() {
        let e = with(&[
            ("GASNET_PORTAL_FLOW_CONTROL", "1"),
            ("GASNET_FIREHOSE_M", "400"),
            ("GASNET_EXITTIMEOUT", "9"),
        ])
        .unwrap();
        let said = |near, pins| e.idle(Sharing { near, pins }).join("|");
        assert_eq!(said(false, true), "");
        let far = said(false, false);
        assert!(far.starts_with("GASNET_FIREHOSE_M has no effect"), "{far}");
        assert!(!far.contains('|'), "{far}");
        let near = said(true, true);
        assert!(near.starts_with("GASNET_PORTAL_FLOW_CONTROL has no effect"));
        assert!(!near.contains('|'), "{near}");
        assert_eq!(said(true, false).matches('|').count(), 1);
        let quiet = with(&[("GASNET_QUIET", "1"), ("GASNET_FIREHOSE_M", "1")]).unwrap();
        assert!(
            quiet
                .idle(Sharing {
                    near: true,
                    pins: false
                })
                .is_empty()
        );
    }

    #[test]
    fn verbose_shows_what_counts() {
        let e = with(&[
            ("GASNET_VERBOSEENV", "1"),
            ("GASNET_PORTAL_MSG_LIMIT", "2"),
            ("GASNET_PORTAL_SB_CHUNKS", "64"),
        ])
        .unwrap();
        let line = |name: &str| {
            let found = e.notes.iter().find(|n| n.contains(name));
            found.cloned().unwrap_or_default()
        };
        assert_eq!(
            line("MSG_LIMIT"),
            "ENV parameter: GASNET_PORTAL_MSG_LIMIT = 2 (12)"
        );
        assert_eq!(
            line("SB_CHUNKS"),
            "ENV parameter: GASNET_PORTAL_SB_CHUNKS = 64"
        );
        assert_eq!(
            line("AM_LIMIT"),
            "ENV parameter: GASNET_PORTAL_AM_LIMIT = 8                        (default)"
        );
        assert_eq!(
            line("GASNET_PHYSMEM_NOPROBE"),
            "ENV parameter: GASNET_PHYSMEM_NOPROBE = no effect                (default)"
        );
        let others = [
            "GASNET_EXITTIMEOUT",
            "GASNET_EXITTIMEOUT_MAX",
            "GASNET_EXITTIMEOUT_MIN",
            "GASNET_EXITTIMEOUT_FACTOR",
            "GASNET_NO_CATCH_SIGNAL",
            "GASNET_TMPDIR",
            "GASNET_QUIET",
        ];
        let idle = names::NO_EFFECT.map(|e| e.name);
        for name in names::KNOWN.into_iter().chain(idle).chain(others) {
            assert_ne!(line(name), "", "{name}");
        }
    }
}
