//! What two sides tell each other to connect, and the states on the way.

use std::fmt;
use std::io;

use verbs_sys as sys;

use crate::gid::Gid;

/// State of a queue pair (`enum ibv_qp_state`); any code is a valid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QpState(pub u32);

impl QpState {
    /// Just made.
    pub const RESET: Self = Self(sys::IBV_QPS_RESET);
    /// Accepts receives.
    pub const INIT: Self = Self(sys::IBV_QPS_INIT);
    /// Ready to receive.
    pub const RTR: Self = Self(sys::IBV_QPS_RTR);
    /// Ready to send.
    pub const RTS: Self = Self(sys::IBV_QPS_RTS);
    /// Broken, or ended by this side.
    pub const ERROR: Self = Self(sys::IBV_QPS_ERR);
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            sys::IBV_QPS_RESET => "RESET",
            sys::IBV_QPS_INIT => "INIT",
            sys::IBV_QPS_RTR => "RTR",
            sys::IBV_QPS_RTS => "RTS",
            sys::IBV_QPS_SQD => "SQD",
            sys::IBV_QPS_SQE => "SQE",
            sys::IBV_QPS_ERR => "ERR",
            other => return write!(f, "state {other}"),
        })
    }
}

/// Largest payload of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// The size of a code of the wire and of the library (1 is 256, each next one twice as much). Codes out of
    /// that range become the nearest size.
    pub fn from_code(code: u32) -> Self {
        match code {
            0 | sys::IBV_MTU_256 => Self::B256,
            sys::IBV_MTU_512 => Self::B512,
            sys::IBV_MTU_1024 => Self::B1024,
            sys::IBV_MTU_2048 => Self::B2048,
            _ => Self::B4096,
        }
    }

    /// The code.
    pub fn code(self) -> u32 {
        u32::from(self as u8)
    }

    /// The size.
    pub fn bytes(self) -> usize {
        128 << self.code()
    }
}

/// What a peer needs to connect to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Number of the queue pair, 24 bits.
    pub qpn: u32,
    /// First packet sequence number that it sends, 24 bits.
    pub psn: u32,
    /// Local identifier of its port; 0 on RoCE.
    pub lid: u16,
    /// Address of its port.
    pub gid: Gid,
    /// Largest packet of its port.
    pub mtu: Mtu,
}

/// Bytes that are not an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// A number has more than 24 bits.
    #[error("{what} {value:#x} has more than 24 bits")]
    Number {
        /// Which number.
        what: &'static str,
        /// The value.
        value: u32,
    },
    /// The size of packets is not one of the five.
    #[error("MTU code {0} is not 1 to 5")]
    Mtu(u8),
}

impl Endpoint {
    /// Bytes of the exchanged form.
    pub const BYTES: usize = 28;

    /// The form to exchange, big-endian: qpn 4, psn 4, lid 2, mtu code 1, zero 1, gid 16.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&self.qpn.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.psn.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.lid.to_be_bytes());
        bytes[10] = self.mtu as u8;
        bytes[12..28].copy_from_slice(&self.gid.0);
        bytes
    }

    /// Reads the form that [`Endpoint::to_bytes`] writes.
    ///
    /// # Errors
    ///
    /// A field is out of its range.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Result<Self, EndpointError> {
        let number = |what, at: usize| {
            let value =
                u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            if value >> 24 == 0 {
                Ok(value)
            } else {
                Err(EndpointError::Number { what, value })
            }
        };
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[12..28]);
        if !(1..=5).contains(&bytes[10]) {
            return Err(EndpointError::Mtu(bytes[10]));
        }
        Ok(Self {
            qpn: number("queue pair number", 0)?,
            psn: number("packet sequence number", 4)?,
            lid: u16::from_be_bytes([bytes[8], bytes[9]]),
            gid: Gid(gid),
            mtu: Mtu::from_code(u32::from(bytes[10])),
        })
    }
}

/// A first packet sequence number that late packets of an earlier connection will not match.
pub(super) fn random_psn() -> io::Result<u32> {
    let mut number = [0; 4];
    getrandom::fill(&mut number[..3])?;
    Ok(u32::from_le_bytes(number))
}

/// The likely reason that a change of state was refused.
pub(crate) fn modify_cause(from: QpState, to: QpState, error: &io::Error) -> &'static str {
    let legal = matches!(
        (from, to),
        (QpState::RESET, QpState::INIT)
            | (QpState::INIT, QpState::INIT | QpState::RTR)
            | (QpState::RTR, QpState::RTS)
    ) || to == QpState::ERROR
        || to == QpState::RESET;
    match (error.raw_os_error(), to) {
        (Some(libc::EINVAL), _) if !legal => "the order is RESET, INIT, RTR, RTS",
        (Some(libc::EINVAL), QpState::INIT) => "is the port number right?",
        (Some(libc::EINVAL | libc::ENETUNREACH | libc::EHOSTUNREACH), QpState::RTR) => {
            "is the peer's address of the same kind and network as this port's GID?"
        }
        (Some(libc::ETIMEDOUT), QpState::RTR) => "the peer's address does not resolve on the link",
        (Some(libc::EINVAL), QpState::RTS) => {
            "is a timeout, retry count or read depth out of range?"
        }
        _ => "the device gives no reason",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_survive_the_wire() {
        let endpoint = Endpoint {
            qpn: 0x12_3456,
            psn: 0xff_ffff,
            lid: 0x8001,
            gid: Gid([7; 16]),
            mtu: Mtu::B2048,
        };
        let bytes = endpoint.to_bytes();
        assert_eq!(
            bytes[..12],
            [0, 0x12, 0x34, 0x56, 0, 0xff, 0xff, 0xff, 0x80, 1, 4, 0]
        );
        assert_eq!(Endpoint::from_bytes(&bytes), Ok(endpoint));
        for (at, value) in [(0, 1), (4, 1), (10, 0), (10, 6)] {
            let mut wrong = bytes;
            wrong[at] = value;
            assert!(Endpoint::from_bytes(&wrong).is_err(), "byte {at} = {value}");
        }
    }

    #[test]
    fn sizes_of_packets() {
        let sizes: Vec<usize> = (0..8).map(|code| Mtu::from_code(code).bytes()).collect();
        assert_eq!(sizes, [256, 256, 512, 1024, 2048, 4096, 4096, 4096]);
        assert!(Mtu::B512 < Mtu::B4096);
    }

    #[test]
    fn sequence_numbers_have_24_bits_and_differ() {
        let numbers: Vec<u32> = (0..8).map(|_| random_psn().unwrap()).collect();
        assert!(numbers.iter().all(|n| n >> 24 == 0));
        assert!(numbers.iter().any(|&n| n != numbers[0]));
    }

    #[test]
    fn causes_name_the_order_of_states() {
        let invalid = io::Error::from_raw_os_error(libc::EINVAL);
        let cause = |from, to| modify_cause(from, to, &invalid);
        assert!(cause(QpState::RESET, QpState::RTS).contains("order"));
        assert!(cause(QpState::INIT, QpState::RTR).contains("address"));
        assert!(cause(QpState(77), QpState::RTR).contains("order"));
    }
}
