//! Which protocol carries a message between nodes of the model, and the table of them.
//!
//! | protocol | file | when |
//! |---|---|---|
//! | `short` | `ssnal/transmit.rs` | the data fits the header packet |
//! | `eager dma` | `ssnal/transmit.rs`, `ssnal/receive.rs` | longer: the transmit DMA engine reads it where it is, the receive DMA engine puts it where the header matched |

use super::choice::machine_of;
use super::header::is_short;
use fabric_api::config::FabricConfig;
use fabric_api::mode::Mode;
use fabric_api::protocol::{Operation, Protocols, Reached};

/// The protocols of a machine, as it is configured.
///
/// # Errors
/// There is no such machine, or it does not have the mode.
pub fn protocols(config: &FabricConfig) -> Result<Protocols, String> {
    let setting = machine_of(config)?;
    let machine = &setting.machine;
    let (mode, matches) = match setting.mode {
        Mode::Generic => ("generic", "kernel"),
        Mode::Accelerated => ("accelerated", "firmware"),
    };
    let mut all = Protocols::new(
        "seastar",
        format!(
            "simulated {}, {mode} mode: the {matches} of the target matches",
            machine.name
        ),
    );
    let room = machine.protocol.inline_data as usize;
    let message = |len| match is_short(len, room) {
        true => ("short", "the data fits the header packet"),
        false => (
            "eager dma",
            "the chips' DMA engines read and write host memory",
        ),
    };
    all.add((Operation::Put, Reached::Matched), message);
    // The answer is a message of the target.
    all.add((Operation::Get, Reached::Matched), message);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_that_of_the_machine() {
        let config = FabricConfig::default();
        let machine = machine_of(&config).unwrap().machine;
        let room = u64::from(machine.protocol.inline_data);
        let all = protocols(&config).unwrap();
        for operation in [Operation::Put, Operation::Get] {
            let name = |len| all.of(operation, Reached::Matched, len).map(|row| row.name);
            assert_eq!([0, room].map(name), [Some("short"); 2]);
            assert_eq!([room + 1, 1 << 20].map(name), [Some("eager dma"); 2]);
        }
        let none = FabricConfig {
            machine: "no such machine".to_owned(),
            ..config
        };
        assert!(protocols(&none).is_err());
    }
}
