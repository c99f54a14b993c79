//! gups.
fn main() {}
