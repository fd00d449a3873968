//! Sessions while time passes.

use super::*;

fn client() -> Arc<Client> {
    Arc::new(Client {
        edition: Edition::NEWEST_HANDSHAKE,
        capabilities: ClientCapabilities::default(),
        info: None,
    })
}

fn open(sessions: &Sessions, clock: &Clock) -> Option<Arc<Session>> {
    sessions.open(client(), Principal::anonymous(), &Hub::default(), clock)
}

#[test]
fn a_session_lives_as_long_as_it_is_heard_of() {
    let (sessions, clock) = (Sessions::new(SessionLimits::default()), Clock::manual());
    let session = open(&sessions, &clock).unwrap();
    let found = || sessions.find(&session.id, &Principal::anonymous(), &clock).is_some();
    for _ in 0..3 {
        clock.advance(Duration::from_secs(29 * 60));
        assert!(found());
    }
    clock.advance(Duration::from_secs(31 * 60));
    assert!(!found());
    assert!(session.over.is_cancelled(), "what belongs to it ends too");
}

#[test]
fn a_call_under_way_keeps_its_session() {
    let (sessions, clock) = (Sessions::new(SessionLimits::default()), Clock::manual());
    let session = open(&sessions, &clock).unwrap();
    let ticket = session.calls.enter(&RequestId::from(1), &CancellationToken::new());
    clock.advance(Duration::from_secs(60 * 60));
    assert!(sessions.find(&session.id, &Principal::anonymous(), &clock).is_some());
    drop(ticket);
    clock.advance(Duration::from_secs(60 * 60));
    assert!(sessions.find(&session.id, &Principal::anonymous(), &clock).is_none());
}

#[test]
fn when_there_are_too_many_the_silent_ones_make_room() {
    let limits = SessionLimits { total: 2, ..SessionLimits::default() };
    let (sessions, clock) = (Sessions::new(limits), Clock::manual());
    let first = open(&sessions, &clock).unwrap();
    assert!(open(&sessions, &clock).is_some());
    assert!(open(&sessions, &clock).is_none(), "refused while all are in use");
    clock.advance(Duration::from_secs(31 * 60));
    assert!(open(&sessions, &clock).is_some());
    assert!(sessions.find(&first.id, &Principal::anonymous(), &clock).is_none());
}

#[test]
fn a_session_belongs_to_its_principal() {
    let (sessions, clock) = (Sessions::new(SessionLimits::default()), Clock::manual());
    let ada = Principal::new("ada");
    let session = sessions.open(client(), ada.clone(), &Hub::default(), &clock).unwrap();
    assert!(sessions.find(&session.id, &ada, &clock).is_some());
    assert!(sessions.find(&session.id, &Principal::new("eve"), &clock).is_none());
    assert!(sessions.find(&session.id, &Principal::anonymous(), &clock).is_none());
}

#[test]
fn only_so_many_streams_can_be_resumed() {
    let (sessions, clock) = (Sessions::new(SessionLimits::default()), Clock::manual());
    let session = open(&sessions, &clock).unwrap();
    let numbers: Vec<u64> = (0..40).map(|_| session.keep(&Stream::new(Capacity::default()))).collect();
    assert!(session.stream(numbers[0]).is_none());
    assert!(session.stream(numbers[39]).is_some());
    assert_eq!(read_event_id(&event_id(7, 9)), Some((7, 9)));
    for garbage in ["", "-", "7", "7-", "-9", "a-b", "7-9-1", "18446744073709551616-1", "../../etc"] {
        assert_eq!(read_event_id(garbage), None, "{garbage}");
    }
}
