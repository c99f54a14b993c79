//! Requests together, and those that need nothing.

use super::*;

#[test]
fn all_are_waited_for_and_the_first_error_is_told() {
    for threads in [false, true] {
        let options = Options {
            threads,
            ..Options::default()
        };
        let worlds = worlds(2, &options);
        let (sender, receiver) = (worlds[0].comm(), worlds[1].comm());
        let places: Vec<_> = (0..4).map(|_| Region::new(8).unwrap()).collect();
        let post = |place| receiver.irecv(Slice::new(place, 0, 8).unwrap(), Some(0), Some(3));
        let mut receives: Vec<_> = places.iter().map(|p| post(p).unwrap()).collect();
        let send = |text: &[u8]| sender.isend(slice(text), 1, 3).unwrap();
        let texts = [
            &b"12345678"[..],
            b"too long for it",
            b"longer than it",
            b"abcdefgh",
        ];
        let mut sends: Vec<_> = texts.into_iter().map(send).collect();
        let Err(TagError::Request(RequestError::Truncated { sent, .. })) =
            receiver.wait_all(&mut receives)
        else {
            panic!("threads {threads}: the second is too long");
        };
        assert_eq!((sent, receives.len()), (15, 0));
        for (place, text) in places.iter().zip(texts) {
            let mut bytes = [0; 8];
            place.read(0, &mut bytes).unwrap();
            assert_eq!(bytes, text[..8]);
        }
        sender.wait_all(&mut sends).unwrap();
        assert!(sends.is_empty());
    }
}

#[test]
fn a_send_that_ended_within_its_call_has_its_end_as_often_as_it_is_asked() {
    let comms = comms(2);
    let send = comms[0].isend(slice(b"1234"), 1, 3).unwrap();
    for _ in 0..2 {
        let end = comms[0].test(&send).unwrap();
        assert_eq!(end.map(|e| e.unwrap().len), Some(4));
        assert_eq!(comms[0].cancel(&send), Ok(false));
    }
    assert_eq!(comms[0].wait(send).unwrap().len, 4);
}
