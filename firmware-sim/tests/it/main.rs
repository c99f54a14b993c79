//! A small driver on the model: messages end to end, hostile hosts, determinism, latency.

mod accelerated;
mod back_off;
mod bodies;
mod datagrams;
mod driver;
mod exhaustion;
mod faults;
mod hostile;
mod latency;
mod many_peers;
mod messages;
mod peer;
mod refusals;
mod registers;
