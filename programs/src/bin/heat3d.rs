//! heat3d.
fn main() {}
