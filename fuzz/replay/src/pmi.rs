//! Lines and frames of a process manager, or of whatever sits at the other end of its socket.

use portals_shim::job::pmi2::wire as frames;
use portals_shim::job::wire::{Line, excerpt, format};
use std::fmt::Display;

/// Keys that the client asks lines for.
const KEYS: [&str; 6] = ["rc", "msg", "key", "value", "kvsname", "vallen_max"];

/// A line that parses says the same when it is written and parsed again; frames come out or are errors.
pub fn run(data: &[u8]) -> u32 {
    line(data) + frame(data)
}

/// All frames that there are; none has more pairs than bytes.
fn frame(data: &[u8]) -> u32 {
    let mut inbox = data.to_vec();
    let mut count = 0;
    loop {
        let before = inbox.len();
        match frames::take(&mut inbox) {
            Ok(Some(frame)) => {
                assert!(inbox.len() < before);
                let _ = frame.number::<u32>("rank");
                count += u32::from(frame.command().is_some());
            }
            Ok(None) => return count,
            Err(error) => {
                assert!(error.to_string().len() < 2048);
                assert_eq!(inbox.len(), before);
                return count;
            }
        }
    }
}

fn line(data: &[u8]) -> u32 {
    let text = String::from_utf8_lossy(data);
    assert!(excerpt(&text).chars().count() <= 81);
    let line = match Line::parse(&text) {
        Ok(line) => line,
        Err(error) => {
            assert!(error.to_string().len() < 2048);
            return 0;
        }
    };
    let Some(command) = line.command() else {
        return 0;
    };
    let values = KEYS.map(|key| line.field(key));
    let pairs: Vec<(&str, &dyn Display)> = KEYS
        .iter()
        .zip(&values)
        .filter_map(|(key, value)| Some((*key, value.as_ref()? as &dyn Display)))
        .collect();
    let written = format(command, &pairs);
    let again = Line::parse(written.trim_end_matches('\n')).expect("was parsed before");
    assert_eq!(again.command(), Some(command));
    for (key, value) in KEYS.iter().zip(values) {
        assert_eq!(again.field(key), value, "{key} of {text:?}");
        let _: Option<i64> = again.number(key);
    }
    1
}
