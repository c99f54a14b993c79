//! 32-bit handles: kind, interface, generation and slot.
//!
//! ```text
//!  31 30 | 29 27     | 26       17 | 16      0
//!  kind  | interface | generation  | slot
//! ```
//!
//! Interface 7 is never used, so that the API's sentinels (`PTL_INVALID_HANDLE` 0xffffffff,
//! `PTL_HANDLE_NONE` 0x7fffffff, `PTL_EQ_NONE` 0xbfffffff) name nothing.

use serde::{Deserialize, Serialize};

/// What a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleKind {
    /// A network interface.
    Ni,
    /// A match entry.
    Me,
    /// A memory descriptor.
    Md,
    /// An event queue.
    Eq,
}

/// Any handle, as the API's `ptl_handle_any_t`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Handle(pub u32);

/// Bits that name a slot: 131,072 objects of a kind, so that a match list can hold 100,000 entries
/// with a descriptor each.
pub(crate) const SLOT_BITS: u32 = 17;
/// Lives of a slot that handles tell apart.
pub(crate) const GENERATIONS: u16 = 1 << 10;

impl Handle {
    /// `PTL_INVALID_HANDLE`.
    pub const INVALID: Self = Self(0xffff_ffff);

    pub(crate) const fn pack(kind: HandleKind, interface: u8, generation: u16, slot: u32) -> Self {
        let kind = match kind {
            HandleKind::Ni => 0u32,
            HandleKind::Me => 1,
            HandleKind::Md => 2,
            HandleKind::Eq => 3,
        };
        Self(
            kind << 30
                | ((interface & 7) as u32) << 27
                | ((generation & (GENERATIONS - 1)) as u32) << SLOT_BITS
                | (slot & ((1 << SLOT_BITS) - 1)),
        )
    }

    /// The handle of interface `interface` (0 to 6) itself.
    pub const fn interface_handle(interface: u8) -> Self {
        Self::pack(HandleKind::Ni, interface, 0, 0)
    }

    /// What kind of object the value claims to name.
    pub const fn kind(self) -> HandleKind {
        match self.0 >> 30 {
            0 => HandleKind::Ni,
            1 => HandleKind::Me,
            2 => HandleKind::Md,
            _ => HandleKind::Eq,
        }
    }

    /// The interface number, 0 to 6; `None` for the sentinels.
    pub const fn interface(self) -> Option<u8> {
        match (self.0 >> 27) & 7 {
            7 => None,
            n => Some(n as u8),
        }
    }

    pub(crate) const fn generation(self) -> u16 {
        ((self.0 >> SLOT_BITS) as u16) & (GENERATIONS - 1)
    }

    pub(crate) const fn slot(self) -> u32 {
        self.0 & ((1 << SLOT_BITS) - 1)
    }
}

impl core::fmt::Debug for Handle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

macro_rules! typed {
    ($(#[$doc:meta])* $name:ident, $kind:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct $name(pub Handle);

        impl $name {
            /// The 32-bit value of the C API.
            pub const fn raw(self) -> u32 {
                self.0.0
            }

            /// A value from a C caller or a peer; it is checked when it is used.
            pub const fn from_raw(raw: u32) -> Self {
                Self(Handle(raw))
            }

            /// Which of the objects of its kind and interface it is, from 0: no other one has the number while this one
            /// is there.
            pub const fn number(self) -> u32 {
                self.0.slot()
            }

            pub(crate) const fn of(interface: u8, generation: u16, slot: u32) -> Self {
                Self(Handle::pack(HandleKind::$kind, interface, generation, slot))
            }

            #[inline]
            pub(crate) fn key(self, interface: u8) -> Option<(u32, u16)> {
                // Kind and interface in one comparison. No interface has the number 7, so the
                // sentinels name nothing.
                let own = Handle::pack(HandleKind::$kind, interface, 0, 0).0;
                ((self.0.0 ^ own) >> 27 == 0)
                    .then(|| (self.0.slot(), self.0.generation()))
            }
        }
    };
}

typed!(
    /// A match entry.
    MeHandle, Me
);
typed!(
    /// A memory descriptor.
    MdHandle, Md
);
typed!(
    /// An event queue.
    EqHandle, Eq
);

/// An operation under way on an MD; given back to one of the `*_end` methods exactly once.
/// A value that is no longer known is ignored there, so that late completions after the interface
/// was closed are harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u32);
