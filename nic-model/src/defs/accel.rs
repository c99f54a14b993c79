//! Accelerated mode: what a process and the firmware say to each other without a kernel between
//! them. All of it is *ours*; public drivers show only that a mailbox is a page, so that it can be
//! mapped into a process, and the fields of [`InitProcess`](super::command::InitProcess).
//!
//! ```text
//!  process                                     firmware
//!   64-byte command ──► own mailbox, doorbell ──► carries it out
//!   Completion      ◄── posted write ◄─────────── result of a command with ANSWER
//!   event ring      ◄── posted write ◄─────────── 128-byte EventRecord
//! ```
//!
//! A process has one answered command under way at a time. The n-th answer since the process was
//! set up has tag n, so that it needs no room in the command.
//!
//! | op code | command | type | answer's data |
//! |---|---|---|---|
//! | 16 | set up a process (generic mailbox only; result ring) | [`InitAccel`] | |
//! | 17 | close the interface | [`Object`] | |
//! | 18, 19, 20 | match entry: attach, insert, unlink | [`EntryCommand`], [`Object`] | handle, portal |
//! | 21, 22, 25, 26 | descriptor: attach, bind, update, post with an entry | [`DescriptorCommand`] | handles; old values |
//! | 23, 24 | descriptor: unlink, query | [`Object`] | values |
//! | 27, 28 | event queue: make, free | [`QueueCommand`], [`Object`] | handle, first sequence number |
//! | 29 | access control entry | [`AccessCommand`] | |
//! | 30, 31 | put, get | [`Initiate`] | |
//! | 32 | getput | [`Exchange`] | |
//! | 33, 34, 35 | status, usage, list lengths | [`Object`] | counters |
//! | 36 | a node has failed (generic mailbox only; not answered) | [`Object`] | |
//!
//! A descriptor does not fit a command: its [`DescriptorRecord`] is fetched from host memory, and so
//! is the list of its pieces, each time it is used.

use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::{COMMAND_LEN, Command, OpCode};

/// Op codes of accelerated mode.
impl OpCode {
    /// [`InitAccel`].
    pub const INIT_ACCEL: Self = Self(16);
    /// [`Object`], none.
    pub const FINI: Self = Self(17);
    /// [`EntryCommand`].
    pub const ME_ATTACH: Self = Self(18);
    /// [`EntryCommand`].
    pub const ME_INSERT: Self = Self(19);
    /// [`Object`], a match entry.
    pub const ME_UNLINK: Self = Self(20);
    /// [`DescriptorCommand`].
    pub const MD_ATTACH: Self = Self(21);
    /// [`DescriptorCommand`].
    pub const MD_BIND: Self = Self(22);
    /// [`Object`], a descriptor.
    pub const MD_UNLINK: Self = Self(23);
    /// [`Object`], a descriptor.
    pub const MD_QUERY: Self = Self(24);
    /// [`DescriptorCommand`].
    pub const MD_UPDATE: Self = Self(25);
    /// [`DescriptorCommand`].
    pub const ME_MD_POST: Self = Self(26);
    /// [`QueueCommand`].
    pub const EQ_ALLOC: Self = Self(27);
    /// [`Object`], an event queue.
    pub const EQ_FREE: Self = Self(28);
    /// [`AccessCommand`].
    pub const AC_ENTRY: Self = Self(29);
    /// [`Initiate`].
    pub const PUT: Self = Self(30);
    /// [`Initiate`].
    pub const GET: Self = Self(31);
    /// [`Exchange`].
    pub const GET_PUT: Self = Self(32);
    /// [`Object`], none.
    pub const STATUS: Self = Self(33);
    /// [`Object`], none.
    pub const USAGE: Self = Self(34);
    /// [`Object`], a portal index.
    pub const LIST_LENGTHS: Self = Self(35);
    /// [`Object`], a node; from the kernel, which the RAS controller has told.
    pub const NODE_FAILED: Self = Self(36);
}

/// Flags of commands.
pub mod flags {
    /// Write a [`Completion`](super::Completion) when done.
    pub const ANSWER: u8 = 1 << 0;
    /// The object goes away when it is spent.
    pub const UNLINK: u8 = 1 << 1;
    /// Entries: behind the base, or at the tail. Otherwise before it, or at the head.
    pub const AFTER: u8 = 1 << 2;
    /// Attach to the lowest portal whose list is empty.
    pub const ANY_PORTAL: u8 = 1 << 3;
    /// Update and post: only when the test queue is quiet.
    pub const TEST: u8 = 1 << 4;
    /// Put: ask for an ack.
    pub const ACK: u8 = 1 << 5;
    /// Put, get, getput: the whole descriptor, offset and length do not count.
    pub const WHOLE: u8 = 1 << 6;
    /// Put: the data is in the command.
    pub const INLINE: u8 = 1 << 7;
    /// Set-up: a get posts SEND events.
    pub const GET_SEND_EVENTS: u8 = 1 << 0;
}

/// Data that rides in a put command.
pub const INLINE_DATA: usize = 16;
/// A 32-bit handle that names nothing.
pub const NO_HANDLE: u32 = u32::MAX;
/// Most events of a queue.
pub const RING_MAX: u64 = 1 << 24;

/// Makes an accelerated process. Only through the mailbox of the generic process: the kernel says
/// who a process is. Its result is in that mailbox's result ring.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InitAccel {
    /// [`OpCode::INIT_ACCEL`].
    pub op: OpCode,
    /// 2 and up; the mailbox of index `p` is `p - 1`.
    pub process_index: u8,
    /// Number of the interface, part of every handle.
    pub interface: u8,
    /// [`flags::GET_SEND_EVENTS`].
    pub flags: u8,
    /// Node id in the process's identity.
    pub nid: U16,
    /// Process id.
    pub pid: U16,
    /// User id.
    pub uid: U32,
    /// Job id.
    pub jid: U32,
    /// Nodes of the job; a higher target does not exist.
    pub nodes: U32,
    /// Host physical address of the process's [`Completion`].
    pub completion: U64,
    /// Host physical address of the process's address 0.
    pub memory: U64,
    /// Host physical address of the small-message buffers: [`SMALL_BUFFER`] bytes for each of [`PLACES`].
    pub small_buffers: U64,
    /// Most match entries.
    pub max_mes: U32,
    /// Most descriptors.
    pub max_mds: U32,
    /// Most event queues.
    pub max_eqs: U32,
    /// Most entries of a list.
    pub max_me_list: U32,
    /// Largest access control index.
    pub max_ac_index: u8,
    /// Largest portal index.
    pub max_pt_index: u8,
    /// Most pieces of a descriptor.
    pub max_md_pieces: u8,
    /// Longest getput, bytes.
    pub max_getput: u8,
}

/// Pendings and places of answers in host memory that events can name.
pub const PLACES: u64 = 1 << 14;

/// Bytes of a small-message buffer.
pub const SMALL_BUFFER: u64 = 128;

/// A command about one object, or about none.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Object {
    /// The op code.
    pub op: OpCode,
    /// [`flags::ANSWER`].
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// Handle or index.
    pub object: U32,
    /// Zero.
    pub reserved2: [u8; 56],
}

/// Makes a match entry.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EntryCommand {
    /// The op code.
    pub op: OpCode,
    /// [`flags`].
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// Portal index, or handle of the entry to insert at.
    pub base: U32,
    /// What it matches.
    pub criteria: Criteria,
    /// Zero.
    pub reserved2: [u8; 32],
}

/// What a match entry matches.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Criteria {
    /// Node id or all ones.
    pub nid: U32,
    /// Process id or all ones.
    pub pid: U32,
    /// Match bits.
    pub match_bits: U64,
    /// Bits not compared.
    pub ignore_bits: U64,
}

/// Makes or changes a descriptor.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DescriptorCommand {
    /// The op code.
    pub op: OpCode,
    /// [`flags`]; `UNLINK` is the descriptor's.
    pub flags: u8,
    /// 1 when the entry of a post goes away with its descriptor.
    pub entry_unlink: u8,
    /// Zero.
    pub reserved: u8,
    /// The entry (attach), the base entry (post) or the descriptor (update).
    pub object: U32,
    /// Queue that must be quiet.
    pub test: U32,
    /// Sequence number of the first event of it that the process has not taken.
    pub taken: U32,
    /// Host physical address of a [`DescriptorRecord`].
    pub record: U64,
    /// Post: what the entry matches.
    pub criteria: Criteria,
    /// Zero.
    pub reserved2: [u8; 16],
}

/// A descriptor as it lies in host memory; the firmware fetches it.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DescriptorRecord {
    /// First byte, or address of the program's array of pieces.
    pub start: U64,
    /// Bytes; of no meaning with pieces.
    pub length: U64,
    /// Host physical address of [`PieceRecord`]s; 0 when the memory is one region.
    pub pieces: U64,
    /// See the API.
    pub max_size: U64,
    /// The program's value.
    pub user_ptr: U64,
    /// Remaining operations.
    pub threshold: I32,
    /// Options.
    pub options: U32,
    /// Queue, when `has_queue`.
    pub eq: U32,
    /// Pieces in the list.
    pub count: U16,
    /// Whether `eq` counts.
    pub has_queue: u8,
    /// Zero.
    pub reserved: u8,
    /// Zero.
    pub reserved2: U64,
}

/// One piece of a descriptor: process addresses.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PieceRecord {
    /// First byte.
    pub address: U64,
    /// Bytes.
    pub length: U64,
}

/// Makes an event queue.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct QueueCommand {
    /// [`OpCode::EQ_ALLOC`].
    pub op: OpCode,
    /// [`flags::ANSWER`].
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 6],
    /// Events, at most [`RING_MAX`].
    pub count: U64,
    /// Host physical address of the ring of [`EventRecord`]s.
    pub ring: U64,
    /// Zero.
    pub reserved2: [u8; 40],
}

/// Sets an access control entry.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AccessCommand {
    /// [`OpCode::AC_ENTRY`].
    pub op: OpCode,
    /// [`flags::ANSWER`].
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// Index.
    pub index: U32,
    /// Node id or all ones.
    pub nid: U32,
    /// Process id or all ones.
    pub pid: U32,
    /// User id or all ones.
    pub uid: U32,
    /// Job id or all ones.
    pub jid: U32,
    /// Portal index or all ones.
    pub portal: U32,
    /// Zero.
    pub reserved2: [u8; 36],
}

/// Starts a put or a get.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Initiate {
    /// [`OpCode::PUT`] or [`OpCode::GET`].
    pub op: OpCode,
    /// [`flags`].
    pub flags: u8,
    /// Target node.
    pub nid: U16,
    /// Target process.
    pub pid: U16,
    /// Portal index; 255 for any above.
    pub portal: u8,
    /// Access control index; 255 for any above.
    pub access: u8,
    /// Descriptor.
    pub md: U32,
    /// Bytes.
    pub length: U32,
    /// Where in the descriptor.
    pub offset: U64,
    /// Match bits.
    pub match_bits: U64,
    /// Offset at the target.
    pub remote_offset: U64,
    /// Put: the program's 64 bits.
    pub hdr_data: U64,
    /// Put: the first `length` bytes are the data when [`flags::INLINE`] is set.
    pub data: [u8; INLINE_DATA],
}

/// Starts a getput.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Exchange {
    /// [`OpCode::GET_PUT`].
    pub op: OpCode,
    /// [`flags`].
    pub flags: u8,
    /// Target node.
    pub nid: U16,
    /// Target process.
    pub pid: U16,
    /// Portal index; 255 for any above.
    pub portal: u8,
    /// Access control index; 255 for any above.
    pub access: u8,
    /// Descriptor of the reply.
    pub get_md: U32,
    /// Descriptor of the data.
    pub put_md: U32,
    /// Where in the reply's.
    pub get_offset: U64,
    /// Where in the data's.
    pub put_offset: U64,
    /// Bytes.
    pub length: U64,
    /// Match bits.
    pub match_bits: U64,
    /// Offset at the target.
    pub remote_offset: U64,
    /// The program's 64 bits.
    pub hdr_data: U64,
}

macro_rules! commands {
    ($($name:ident),+) => {$(
        impl Command for $name {
            fn to_entry(&self) -> [u8; COMMAND_LEN] {
                zerocopy::transmute!(*self)
            }

            fn from_entry(entry: &[u8; COMMAND_LEN]) -> Self {
                zerocopy::transmute!(*entry)
            }
        }
        const _: () = assert!(size_of::<$name>() == COMMAND_LEN);
    )+};
}
commands!(
    InitAccel,
    Object,
    EntryCommand,
    DescriptorCommand,
    QueueCommand,
    AccessCommand,
    Initiate,
    Exchange
);

/// The answer to a command: one posted write into the process's memory.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Completion {
    /// Which answer this is, from 1.
    pub tag: U32,
    /// 0, a return code of the API, or [`MOVED`].
    pub code: U32,
    /// By command.
    pub data: [u8; COMPLETION_DATA],
}

/// Bytes of a completion's data.
pub const COMPLETION_DATA: usize = 248;
/// [`Completion::code`]: SRAM is full. The command was not carried out and the process is the
/// kernel's from now on; it makes the call again there.
pub const MOVED: u32 = 0xffff_0001;

const _: () = assert!(size_of::<Completion>() == 256);
const _: () = assert!(size_of::<DescriptorRecord>() == 64);

/// One event in a ring in host memory.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EventRecord {
    /// Kind of the event.
    pub kind: U32,
    /// +1 for each event of the queue; entry `n` of a ring of `c` holds `n - c` modulo 2^32 first.
    pub sequence: U32,
    /// Initiator: node, process, user and job id.
    pub initiator: [U32; 4],
    /// Portal index.
    pub portal: U32,
    /// The descriptor.
    pub md: U32,
    /// Match bits.
    pub match_bits: U64,
    /// Requested bytes.
    pub rlength: U64,
    /// Bytes moved.
    pub mlength: U64,
    /// Where in the descriptor.
    pub offset: U64,
    /// The put's 64 bits.
    pub hdr_data: U64,
    /// See the API.
    pub link: U32,
    /// 0 for success.
    pub ni_fail: U32,
    /// The descriptor's state.
    pub state: StateRecord,
    /// 1; the ring begins as zeroes.
    pub valid: U32,
}

/// Bytes of an event in host memory.
pub const EVENT_LEN: u64 = 128;
const _: () = assert!(size_of::<EventRecord>() as u64 == EVENT_LEN);

/// What a query or a change of a descriptor is answered.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct QueriedState {
    /// Its state, before the change.
    pub state: StateRecord,
    /// 1 while operations on it are under way.
    pub in_use: U32,
}

/// A descriptor's state as events and queries show it.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct StateRecord {
    /// First byte.
    pub start: U64,
    /// Bytes, or pieces.
    pub length: U64,
    /// See the API.
    pub max_size: U64,
    /// The program's value.
    pub user_ptr: U64,
    /// Remaining operations.
    pub threshold: I32,
    /// Options.
    pub options: U32,
    /// Queue, or [`NO_HANDLE`].
    pub eq: U32,
}
