//! Requests whose answer will not come.
//!
//! Portals says nothing of a message that is lost: an ack or a reply never comes. Here a program
//! that waits for one gets an event with a failure, when the kernel knows that it will not:
//!
//! | what happened | how the kernel knows |
//! |---|---|
//! | the target's chip does not take the message | TX_FAILED of the firmware, after `give_up` |
//! | the source's memory cannot be read | TX_FAULT |
//! | the payload was damaged, or could not be placed at the target | the target's kernel answers with the failure flag |
//! | the target's node has failed after it took the message | the RAS controller says so, and the message has been sent |
//!
//! A message that the target's library drops (no match, access refused) is none of these: the
//! specification has the initiator hear nothing of it.
//!
//! An answer to a request that has ended so ends nothing: it is thrown away (`firmware_sim::awaited`).

pub(super) use firmware_sim::answer::{fail, refusal, request_of};
pub(super) use firmware_sim::awaited::{Answered, Awaited, Request};
