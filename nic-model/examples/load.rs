//! Latency and accepted load of routers and links alone, under loads of three patterns:
//! `cargo run --release -p nic-model --example load [TIE_BREAK]`.
//!
//! Loads are flits for each node and flit time; TIE_BREAK is the value of `network.tie_break`, 1 unless it is said.

#[path = "../tests/load/mod.rs"]
mod load;

fn main() -> Result<(), std::num::ParseIntError> {
    let tie_break = std::env::args().nth(1);
    let tie_break = tie_break.map_or(Ok(1), |word| word.parse())?;
    print!("{}", load::table(tie_break));
    Ok(())
}
