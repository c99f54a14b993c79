//! The environment variables of the conduit, read once.
//!
//! Names and defaults are those of the portals-conduit. Numbers are
//! decimal or `0x` hexadecimal with an optional suffix K, M, G, T or B (powers of 1024); an empty
//! variable counts as unset; switches take 1/0, y/n, yes/no.

/// A variable has a value that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}=\"{value}\" is not {expected}")]
pub struct EnvError {
    /// The variable.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What it should have been.
    pub expected: &'static str,
}

/// The choices of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Env {
    /// Messages in flight that this rank initiated.
    pub(crate) msg_limit: u32,
    /// Temporary descriptors at one time.
    pub(crate) num_tmpmd: u32,
    /// Small Longs travel in one message.
    pub(crate) packed_long: bool,
    /// Requests need credits.
    pub(crate) flow_control: bool,
    /// Chunks of the request send buffer.
    pub(crate) sb_chunks: u32,
    /// Chunks of the reply send buffer.
    pub(crate) rpl_chunks: u32,
    /// Events of each queue in one poll; `u32::MAX` for no limit.
    pub(crate) sys_limit: u32,
    pub(crate) safe_limit: u32,
    pub(crate) am_limit: u32,
    /// Overrides of the credit table.
    pub(crate) cred_per_node: Option<u64>,
    pub(crate) amrecv_space: Option<u64>,
    /// Largest transfers that are copied through a chunk, bytes.
    pub(crate) put_bounce: usize,
    pub(crate) get_bounce: usize,
    exit_timeout: Option<f64>,
    exit_max: f64,
    exit_min: f64,
    exit_factor: f64,
}

/// Fewer messages in flight than this could not carry one Long and its reply.
const MIN_MSG_LIMIT: u64 = 12;
/// A reply's long id must be above every chunk offset of 2048-byte chunks.
const MAX_SB_CHUNKS: u64 = 4096;

struct Reader<F>(F);

impl<F: Fn(&str) -> Option<String>> Reader<F> {
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name)
            .map(|v| v.trim().to_owned())
            .filter(|v| !v.is_empty())
    }

    fn number(&self, name: &'static str) -> Result<Option<u64>, EnvError> {
        let Some(value) = self.text(name) else {
            return Ok(None);
        };
        let number = parse_number(&value).ok_or(EnvError {
            name,
            value,
            expected: "a number",
        })?;
        Ok(Some(number))
    }

    fn count(
        &self,
        name: &'static str,
        default: u64,
        least: u64,
        most: u64,
    ) -> Result<u32, EnvError> {
        let n = self.number(name)?.unwrap_or(default).clamp(least, most);
        Ok(u32::try_from(n).unwrap_or(u32::MAX))
    }

    fn seconds(&self, name: &'static str) -> Result<Option<f64>, EnvError> {
        let Some(value) = self.text(name) else {
            return Ok(None);
        };
        match value.parse::<f64>() {
            Ok(v) if v.is_finite() && v >= 0.0 => Ok(Some(v)),
            _ => Err(EnvError {
                name,
                value,
                expected: "a number of seconds",
            }),
        }
    }

    fn switch(&self, name: &'static str, default: bool) -> Result<bool, EnvError> {
        let Some(value) = self.text(name) else {
            return Ok(default);
        };
        match value.to_ascii_lowercase().as_str() {
            "1" | "y" | "yes" => Ok(true),
            "0" | "n" | "no" => Ok(false),
            _ => Err(EnvError {
                name,
                value,
                expected: "yes or no",
            }),
        }
    }
}

fn parse_number(text: &str) -> Option<u64> {
    let upper = text.to_ascii_uppercase();
    if let Some(hex) = upper.strip_prefix("0X") {
        return u64::from_str_radix(hex, 16).ok();
    }
    let (digits, shift) = match upper.strip_suffix(['B', 'K', 'M', 'G', 'T']) {
        Some(digits) => {
            let shift = match upper.as_bytes().last() {
                Some(b'K') => 10,
                Some(b'M') => 20,
                Some(b'G') => 30,
                Some(b'T') => 40,
                _ => 0,
            };
            (digits, shift)
        }
        None => (upper.as_str(), 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl Env {
    /// The process's environment.
    pub(crate) fn from_env() -> Result<Self, EnvError> {
        Self::read(|name| std::env::var(name).ok())
    }

    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, EnvError> {
        let r = Reader(get);
        let chunk = crate::chunks::CHUNK as u64;
        let bounce = r
            .number("GASNET_PORTAL_PUTGET_BOUNCE_LIMIT")?
            .unwrap_or(chunk)
            .min(chunk);
        let put_bounce = r
            .number("GASNET_PORTAL_PUT_BOUNCE_LIMIT")?
            .unwrap_or(bounce);
        let get_bounce = r
            .number("GASNET_PORTAL_GET_BOUNCE_LIMIT")?
            .unwrap_or(bounce);
        let limit = |n: u32| if n == 0 { u32::MAX } else { n };
        let most = u64::from(u32::MAX);
        Ok(Self {
            msg_limit: r.count("GASNET_PORTAL_MSG_LIMIT", 250, MIN_MSG_LIMIT, 1 << 16)?,
            num_tmpmd: r.count("GASNET_PORTAL_NUM_TMPMD", 1024, 2, 1 << 15)?,
            packed_long: r.switch("GASNET_PORTAL_PACKED_LONG", true)?,
            flow_control: r.switch("GASNET_PORTAL_FLOW_CONTROL", true)?,
            sb_chunks: r.count("GASNET_PORTAL_SB_CHUNKS", 2048, 1, MAX_SB_CHUNKS)?,
            rpl_chunks: r.count("GASNET_PORTAL_RPL_CHUNKS", 256, 1, 1 << 16)?,
            sys_limit: limit(r.count("GASNET_PORTAL_SYS_LIMIT", 0, 0, most)?),
            safe_limit: limit(r.count("GASNET_PORTAL_SAFE_LIMIT", 12, 0, most)?),
            am_limit: limit(r.count("GASNET_PORTAL_AM_LIMIT", 8, 0, most)?),
            cred_per_node: r.number("GASNET_PORTAL_CRED_PER_NODE")?,
            amrecv_space: r.number("GASNET_PORTAL_AMRECV_SPACE")?,
            put_bounce: usize::try_from(put_bounce.min(chunk)).unwrap_or(0),
            // The first 8 bytes of a get's chunk are not payload in the conduit's format.
            get_bounce: usize::try_from(get_bounce.min(chunk - 8)).unwrap_or(0),
            exit_timeout: r.seconds("GASNET_EXITTIMEOUT")?,
            exit_max: r.seconds("GASNET_EXITTIMEOUT_MAX")?.unwrap_or(360.0),
            exit_min: r.seconds("GASNET_EXITTIMEOUT_MIN")?.unwrap_or(5.0),
            exit_factor: r.seconds("GASNET_EXITTIMEOUT_FACTOR")?.unwrap_or(0.25),
        })
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
        assert!(e.packed_long && e.flow_control);
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
        assert_eq!(e.amrecv_space, Some(3 << 20));
        assert_eq!((e.put_bounce, e.get_bounce), (100, 2040));
        assert!(!e.packed_long);
        assert_eq!(e.exit_timeout_ns(4, true), 1_500_000_000);
    }

    #[test]
    fn nonsense_is_named() {
        let e = with(&[("GASNET_PORTAL_MSG_LIMIT", "many")]).unwrap_err();
        assert_eq!(
            e.to_string(),
            "GASNET_PORTAL_MSG_LIMIT=\"many\" is not a number"
        );
        assert!(with(&[("GASNET_PORTAL_FLOW_CONTROL", "maybe")]).is_err());
        assert!(with(&[("GASNET_EXITTIMEOUT_MIN", "-1")]).is_err());
    }
}
