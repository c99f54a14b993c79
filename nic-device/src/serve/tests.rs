use super::*;
use nic_model::Machine;

#[test]
fn clients_have_their_turn_between_those_who_connect() {
    let folder = tempfile::tempdir().unwrap();
    let listeners = Listeners::bind(&folder.path().join("chips"), 1).unwrap();
    let mut chips = Chips::new(Machine::named("xt4").unwrap(), 1).unwrap();
    let mut callers = Callers::default();
    let connect = |_| UnixStream::connect(&listeners.sockets[0].1).unwrap();
    let connected: Vec<UnixStream> = (0..100).map(connect).collect();
    accept(&listeners, 0, &mut [None], &mut chips, &mut callers);
    let left = callers.accept(&listeners.sockets[0].0);
    assert!(left.is_some(), "all have been accepted at once");
    drop(connected);
}

#[test]
fn whoever_wakes_the_server_and_says_nothing_does_not_move_time() {
    let start = Instant::now();
    let mut quiet = Quiet { since: start };
    let at = |us| start + Duration::from_micros(us);
    // A loop of connections: a thousand in a millisecond.
    let steps = (0..10_000).filter(|us| quiet.is_over(false, at(*us)));
    assert_eq!(steps.count(), 9);
    // A message begins the while anew.
    assert!(!quiet.is_over(true, at(10_500)));
    assert!(!quiet.is_over(false, at(11_499)));
    assert!(quiet.is_over(false, at(11_500)));
}
