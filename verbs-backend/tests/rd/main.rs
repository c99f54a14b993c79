//! Reliable datagrams over a simulated wire, in virtual time. Nothing here needs a device.
//!
//! | file | shows |
//! |---|---|
//! | `net.rs` | the wire: rate, delay, queue, loss, reordering, duplicates, corruption |
//! | `rules.rs` | the rules of the channel, one by one |
//! | `random.rs` | random use against a naive list, over a wire that does everything wrong |
//! | `owed.rs` | two ends that flood each other with requests, and answer |
//! | `explore.rs` | every schedule of a small configuration |
//! | `table.rs` | loss, reordering, window and round trip against goodput |
//! | `crowd.rs` | 10,000 peers; many to one |

mod crowd;
mod explore;
mod net;
mod owed;
mod random;
mod rules;
mod table;
