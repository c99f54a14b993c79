//! A small driver on the model: messages end to end, hostile hosts, determinism, latency.

mod driver;
mod hostile;
mod latency;
mod messages;
mod peer;
