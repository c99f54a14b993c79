//! What users set for this fabric, by variables of the environment.
//!
//! | variable | value | without it |
//! |---|---|---|
//! | `PORTOLAN_DEVICE` | device, or device and port as in `mlx5_0:2` | the first with a routable address |
//! | `PORTOLAN_GID` | index in the port's table, or the address itself | the one that reaches most peers |
//! | `PORTOLAN_SL` | service level, 0 to 15 | 0 |
//! | `PORTOLAN_TRAFFIC_CLASS` | traffic class of RoCE packets, 0 to 255 | 0 |
//! | `PORTOLAN_PKEY_INDEX` | index in the port's table of partition keys | 0 |
//! | `PORTOLAN_CONNECT` | `words`, `cm` or `iwarp`: who makes connections, and by which rules | `words`; `iwarp` on iWARP |
//! | `PORTOLAN_PROGRESS` | `calls` or `thread` | `calls` |
//! | `PORTOLAN_CONNECT_TIMEOUT` | seconds | 10 |
//! | `PORTOLAN_MEMLOCK` | most bytes of registered memory, with K, M or G | three quarters of `ulimit -l` |
//! | `PORTOLAN_CHATTY` | requests to a peer within a second that make it worth a connection, over the channel `auto` | 32 |
//! | `PORTOLAN_CONNECTIONS` | most connections of a rank, over the channel `auto` | half of the device's queue pairs, divided by the processors of the machine |
//! | `PORTOLAN_RINGS` | most peers whose short frames are written where this rank looks (`proto/eager_ring.rs`); 0: none | 8 |
//! | `PORTOLAN_SHORT_GETS` | `measured`, `adapter` or `am` (active messages; also `asked`): who reads what short gets are for (`proto/get_by_am.rs`) | `measured` |
//! | `PORTOLAN_WRITE_FROM` | bytes from which on puts are written into descriptors with event queues (`proto/rma_write_send.rs`); 0: none are | 2048 |

use super::proto::select::{NOTIFY_FROM, ShortGets, Thresholds};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;
use verbs_backend::{Device, Gid, PortInfo, Route};

/// Which of a port's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GidChoice {
    Index(u8),
    Address(Gid),
}

/// How connections are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connect {
    /// By words in the adapter's datagrams alone.
    Words,
    /// By the connection manager; words travel over the host's network.
    Manager,
    /// The same, and by the rules of iWARP besides, whatever the device.
    Iwarp,
}

/// The settings of an opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) gid: Option<GidChoice>,
    pub(super) route: Route,
    pub(super) thread: bool,
    /// How long a connection may take to make, or to mend.
    pub(super) patience: Duration,
    /// Most bytes of registered memory.
    pub(super) budget: Option<u64>,
    /// Requests within [`WINDOW`] that make a peer worth a connection.
    pub(super) chatty: u32,
    /// Most connections where datagrams can do without.
    pub(super) connections: Option<u32>,
    /// Shortest put that is written into a descriptor with an event queue.
    pub(super) notify_from: usize,
    /// Most rings for short frames.
    pub(super) rings: u32,
    /// The protocol of short gets.
    pub(super) short_gets: ShortGets,
    /// How connections are made, where the device leaves a choice.
    pub(super) connect: Option<Connect>,
}

/// In which requests to a peer are counted.
pub(super) const WINDOW: Duration = Duration::from_secs(1);
/// [`Settings::chatty`] unless it is set.
const CHATTY: u32 = 32;

/// A variable has a value that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value:?}: {expected} is expected")]
pub(super) struct SettingError {
    name: &'static str,
    value: String,
    expected: &'static str,
}

fn bytes(text: &str) -> Option<u64> {
    let (digits, factor) = match text.char_indices().last()? {
        (at, 'K' | 'k') => (&text[..at], 1 << 10),
        (at, 'M' | 'm') => (&text[..at], 1 << 20),
        (at, 'G' | 'g') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

fn gid(text: &str) -> Option<GidChoice> {
    if let Ok(index) = text.parse() {
        return Some(GidChoice::Index(index));
    }
    let address = match text.parse().ok()? {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    Some(GidChoice::Address(Gid(Ipv6Addr::octets(&address))))
}

impl Settings {
    /// Reads the environment.
    pub(super) fn from_env() -> Result<Self, SettingError> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    fn from_lookup(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingError> {
        fn one<T>(
            get: &impl Fn(&str) -> Option<String>,
            name: &'static str,
            expected: &'static str,
            parse: impl FnOnce(&str) -> Option<T>,
        ) -> Result<Option<T>, SettingError> {
            let Some(value) = get(name).filter(|v| !v.is_empty()) else {
                return Ok(None);
            };
            match parse(value.trim()) {
                Some(parsed) => Ok(Some(parsed)),
                None => Err(SettingError {
                    name,
                    value: value.chars().take(60).collect(),
                    expected,
                }),
            }
        }
        let service_level = one(&get, "PORTOLAN_SL", "a number from 0 to 15", |v| {
            v.parse().ok().filter(|sl| *sl < 16)
        })?;
        let traffic_class = one(
            &get,
            "PORTOLAN_TRAFFIC_CLASS",
            "a number from 0 to 255",
            |v| v.parse().ok(),
        )?;
        let pkey_index = one(
            &get,
            "PORTOLAN_PKEY_INDEX",
            "an index of the table of partition keys",
            |v| v.parse().ok(),
        )?;
        let gid = one(
            &get,
            "PORTOLAN_GID",
            "an index of the port's table or an IP address",
            gid,
        )?;
        let thread = one(&get, "PORTOLAN_PROGRESS", "calls or thread", |v| match v {
            "calls" => Some(false),
            "thread" => Some(true),
            _ => None,
        })?;
        let patience = one(
            &get,
            "PORTOLAN_CONNECT_TIMEOUT",
            "a number of seconds, more than 0",
            |v| {
                let seconds = v.parse().ok().filter(|s: &f64| *s > 0.0)?;
                Duration::try_from_secs_f64(seconds).ok()
            },
        )?;
        let budget = one(&get, "PORTOLAN_MEMLOCK", "a number of bytes", bytes)?;
        let chatty = one(
            &get,
            "PORTOLAN_CHATTY",
            "a number of requests, more than 0",
            |v| v.parse().ok().filter(|n| *n > 0),
        )?;
        let connections = one(
            &get,
            "PORTOLAN_CONNECTIONS",
            "a number of connections",
            |v| v.parse().ok(),
        )?;
        let notify_from = one(&get, "PORTOLAN_WRITE_FROM", "a number of bytes", bytes)?;
        let rings = one(&get, "PORTOLAN_RINGS", "a number of peers, 0 to 64", |v| {
            v.parse().ok().filter(|n| *n <= 64)
        })?;
        let short_gets = one(
            &get,
            "PORTOLAN_SHORT_GETS",
            "measured, adapter or am",
            |v| match v {
                "measured" => Some(ShortGets::Measured),
                "adapter" => Some(ShortGets::RmaRead),
                "am" | "asked" => Some(ShortGets::GetByAm),
                _ => None,
            },
        )?;
        let connect = one(
            &get,
            "PORTOLAN_CONNECT",
            "words, cm or iwarp",
            |v| match v {
                "words" => Some(Connect::Words),
                "cm" => Some(Connect::Manager),
                "iwarp" => Some(Connect::Iwarp),
                _ => None,
            },
        )?;
        Ok(Self {
            gid,
            route: Route {
                service_level: service_level.unwrap_or(0),
                traffic_class: traffic_class.unwrap_or(0),
                pkey_index: pkey_index.unwrap_or(0),
                // A GID that was asked for is to be used, on InfiniBand too.
                global: gid.is_some(),
            },
            thread: thread.unwrap_or(false),
            patience: patience.unwrap_or(Duration::from_secs(10)),
            notify_from: match notify_from {
                Some(0) => usize::MAX,
                Some(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
                None => NOTIFY_FROM,
            },
            rings: rings.unwrap_or(super::proto::eager_ring::MOST),
            short_gets: short_gets.unwrap_or(ShortGets::Measured),
            budget: budget.or_else(|| verbs_backend::mr::memlock_limit().map(|l| l / 4 * 3)),
            chatty: chatty.unwrap_or(CHATTY),
            connections,
            connect,
        })
    }

    /// Most rings of a rank; `crowded`: there is no processor for it. One that sleeps while its peers write has none.
    pub(super) const fn rings(&self, crowded: bool) -> u32 {
        if self.thread || crowded {
            0
        } else {
            self.rings
        }
    }

    /// What the choice of a protocol depends on; `iwarp`: over connections by the rules of iWARP.
    pub(super) const fn thresholds(&self, iwarp: bool) -> Thresholds {
        Thresholds::new(self.notify_from, self.short_gets, iwarp)
    }

    /// How connections over a port are made.
    pub(super) fn connect(&self, port: &PortInfo) -> Connect {
        match self.connect {
            _ if port.iwarp => Connect::Iwarp,
            Some(chosen) => chosen,
            None => Connect::Words,
        }
    }

    /// The address that was chosen as one.
    pub(super) fn address(&self) -> Option<IpAddr> {
        let Some(GidChoice::Address(gid)) = self.gid else {
            return None;
        };
        Some(gid.ipv4().map_or(IpAddr::V6(gid.address()), IpAddr::V4))
    }

    /// The index of the chosen address in the table of `port`; `None` leaves the choice to the device.
    pub(super) fn gid_index(&self, device: &Device, port: u8) -> Result<Option<u8>, String> {
        let wanted = match self.gid {
            None => return Ok(None),
            Some(GidChoice::Index(index)) => return Ok(Some(index)),
            Some(GidChoice::Address(wanted)) => wanted,
        };
        let table = device.gids(port).map_err(|e| e.to_string())?;
        // Of two entries with one address the second is usually RoCE version 2; the device prefers it.
        let same: Vec<_> = table.iter().copied().filter(|e| e.gid == wanted).collect();
        match verbs_backend::gid::choose(&same) {
            Some(entry) => Ok(Some(entry.index)),
            None => Err(format!(
                "port {port} of {} has no address {wanted}; \"portolan info\" lists those it has",
                device.name()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(vars: &[(&str, &str)]) -> Result<Settings, SettingError> {
        Settings::from_lookup(|n| {
            vars.iter()
                .find(|(k, _)| *k == n)
                .map(|(_, v)| (*v).to_owned())
        })
    }

    #[test]
    fn values_are_read() {
        let s = settings(&[
            ("PORTOLAN_GID", "10.9.0.1"),
            ("PORTOLAN_SL", "3"),
            ("PORTOLAN_TRAFFIC_CLASS", "106"),
            ("PORTOLAN_PKEY_INDEX", "1"),
            ("PORTOLAN_PROGRESS", "thread"),
            ("PORTOLAN_CONNECT_TIMEOUT", "0.5"),
            ("PORTOLAN_MEMLOCK", "64M"),
            ("PORTOLAN_CHATTY", "5"),
            ("PORTOLAN_CONNECTIONS", "0"),
            ("PORTOLAN_WRITE_FROM", "4K"),
            ("PORTOLAN_SHORT_GETS", "am"),
        ])
        .unwrap();
        let Some(GidChoice::Address(gid)) = s.gid else {
            panic!("{s:?}")
        };
        assert_eq!(gid.to_string(), "::ffff:10.9.0.1");
        assert_eq!(s.address(), Some("10.9.0.1".parse().unwrap()));
        assert_eq!(
            (
                s.route.service_level,
                s.route.traffic_class,
                s.route.pkey_index
            ),
            (3, 106, 1)
        );
        assert!(s.thread && s.route.global);
        assert_eq!(s.patience, Duration::from_millis(500));
        assert_eq!((s.chatty, s.connections), (5, Some(0)));
        assert_eq!((s.budget, s.notify_from), (Some(64 << 20), 4096));
        assert_eq!(s.short_gets, ShortGets::GetByAm);
        for (value, short_gets) in [
            ("measured", ShortGets::Measured),
            ("adapter", ShortGets::RmaRead),
            ("am", ShortGets::GetByAm),
            // Its former name.
            ("asked", ShortGets::GetByAm),
        ] {
            let s = settings(&[("PORTOLAN_SHORT_GETS", value)]).unwrap();
            assert_eq!(s.short_gets, short_gets, "{value}");
        }
        let none = settings(&[("PORTOLAN_WRITE_FROM", "0"), ("PORTOLAN_RINGS", "0")]).unwrap();
        assert_eq!((none.notify_from, none.rings), (usize::MAX, 0));
        let index = settings(&[("PORTOLAN_GID", "3")]).unwrap().gid;
        assert_eq!(index, Some(GidChoice::Index(3)));
        let plain = settings(&[("PORTOLAN_GID", "")]).unwrap();
        assert!(plain.gid.is_none() && !plain.thread && !plain.route.global);
        assert_eq!((plain.chatty, plain.connections), (32, None));
        assert_eq!(plain.short_gets, ShortGets::Measured);
    }

    #[test]
    fn nonsense_names_the_variable() {
        for (name, value) in [
            ("PORTOLAN_GID", "first"),
            ("PORTOLAN_SL", "16"),
            ("PORTOLAN_TRAFFIC_CLASS", "256"),
            ("PORTOLAN_PKEY_INDEX", "-1"),
            ("PORTOLAN_CONNECT", "tcp"),
            ("PORTOLAN_PROGRESS", "yes"),
            ("PORTOLAN_CONNECT_TIMEOUT", "0"),
            ("PORTOLAN_MEMLOCK", "much"),
            ("PORTOLAN_CHATTY", "0"),
            ("PORTOLAN_CONNECTIONS", "-1"),
            ("PORTOLAN_WRITE_FROM", "-1"),
            ("PORTOLAN_RINGS", "65"),
            ("PORTOLAN_SHORT_GETS", "quick"),
        ] {
            let error = settings(&[(name, value)]).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{name} is \"{value}\"")),
                "{error}"
            );
        }
    }
}
