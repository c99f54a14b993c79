//! portolan.
fn main() {}
