//! Sessions while time passes.

use toolgate_wire::model::{ClientCapabilities, Implementation};

use super::table::MAX_RECENT_CLIENTS;
use super::*;
use crate::stream::{Capacity, Stream};
use crate::subscriptions::Subscriptions;

fn client() -> Client {
    Client {
        protocol_version: ProtocolVersion::LATEST_WITH_HANDSHAKE,
        capabilities: ClientCapabilities::default(),
        info: None,
    }
}

fn open(sessions: &Sessions, clock: &Clock) -> Option<Arc<Session>> {
    let offered = ServerCapabilities::default();
    sessions.create(client(), Principal::anonymous(), &offered, &Subscriptions::default(), clock)
}

#[test]
fn a_session_lives_as_long_as_it_is_heard_of() {
    let (sessions, clock) = (Sessions::new(SessionLimits::default()), Clock::manual());
    let session = open(&sessions, &clock).unwrap();
    let found = || sessions.find(session.id.as_bytes(), &Principal::anonymous(), &clock).is_some();
    for _ in 0..3 {
        clock.advance(Duration::from_secs(29 * 60));
        assert!(found());
    }
    clock.advance(Duration::from_secs(31 * 60));
    assert!(!found());
    assert!(session.closed.is_cancelled(), "what belongs to it ends too");
}

#[test]
fn a_call_under_way_keeps_its_session() {
    let (sessions, clock) = (Sessions::new(SessionLimits::default()), Clock::manual());
    let session = open(&sessions, &clock).unwrap();
    let ticket = session.in_flight.insert(&RequestId::from(1), &Cancel::new());
    clock.advance(Duration::from_secs(60 * 60));
    assert!(sessions.find(session.id.as_bytes(), &Principal::anonymous(), &clock).is_some());
    drop(ticket);
    clock.advance(Duration::from_secs(60 * 60));
    assert!(sessions.find(session.id.as_bytes(), &Principal::anonymous(), &clock).is_none());
}

#[test]
fn when_there_are_too_many_the_silent_ones_make_room() {
    let limits = SessionLimits { max_sessions: 2, ..SessionLimits::default() };
    let (sessions, clock) = (Sessions::new(limits), Clock::manual());
    let first = open(&sessions, &clock).unwrap();
    assert!(open(&sessions, &clock).is_some());
    assert!(open(&sessions, &clock).is_none(), "refused while all are in use");
    clock.advance(Duration::from_secs(31 * 60));
    assert!(open(&sessions, &clock).is_some());
    assert!(sessions.find(first.id.as_bytes(), &Principal::anonymous(), &clock).is_none());
}

#[test]
fn a_greeting_that_nobody_followed_up_makes_room_first() {
    let limits = SessionLimits { max_sessions: 2, ..SessionLimits::default() };
    let (sessions, clock) = (Sessions::new(limits), Clock::manual());
    let used = open(&sessions, &clock).unwrap();
    let unused = open(&sessions, &clock).unwrap();
    let found =
        |session: &Session| sessions.find(session.id.as_bytes(), &Principal::anonymous(), &clock).is_some();
    assert!(found(&used));
    clock.advance(Duration::from_secs(31));
    assert!(open(&sessions, &clock).is_some());
    assert!(found(&used));
    assert!(!found(&unused));
}

#[test]
fn silent_sessions_are_forgotten_without_being_asked_for() {
    let (sessions, clock) = (Sessions::new(SessionLimits::default()), Clock::manual());
    for _ in 0..10 {
        open(&sessions, &clock).unwrap();
    }
    clock.advance(Duration::from_secs(31 * 60));
    open(&sessions, &clock).unwrap();
    assert_eq!(sessions.by_id.read().unwrap().len(), 1);
}

#[test]
fn a_session_that_is_listened_to_lives_on() {
    let (sessions, clock) = (Sessions::new(SessionLimits::default()), Clock::manual());
    let session = open(&sessions, &clock).unwrap();
    let reader = session.standalone_stream().reader();
    clock.advance(Duration::from_secs(60 * 60));
    assert!(sessions.find(session.id.as_bytes(), &Principal::anonymous(), &clock).is_some());
    drop(reader);
    clock.advance(Duration::from_secs(60 * 60));
    assert!(sessions.find(session.id.as_bytes(), &Principal::anonymous(), &clock).is_none());
}

#[test]
fn what_nobody_came_back_for_is_forgotten() {
    let (sessions, clock) = (Sessions::new(SessionLimits::default()), Clock::manual());
    let session = open(&sessions, &clock).unwrap();
    let (ended, running) = (Stream::new(Capacity::default()), Stream::new(Capacity::default()));
    let (first, second) = (session.add_resumable(&ended, &clock), session.add_resumable(&running, &clock));
    ended.finish();
    session.add_resumable(&Stream::new(Capacity::default()), &clock);
    clock.advance(Duration::from_secs(6 * 60));
    session.add_resumable(&Stream::new(Capacity::default()), &clock);
    assert!(session.stream(first).is_none());
    assert!(session.stream(second).is_some(), "it is still being written");
}

#[test]
fn streams_that_have_ended_hold_only_so_much() {
    let limits = SessionLimits { max_replay_bytes: 100, ..SessionLimits::default() };
    let (sessions, clock) = (Sessions::new(limits), Clock::manual());
    let session = open(&sessions, &clock).unwrap();
    let numbers: Vec<u64> = (0..3)
        .map(|_| {
            let stream = Stream::new(Capacity::default());
            let number = session.add_resumable(&stream, &clock);
            stream.push(vec![b'x'; 60].into());
            stream.finish();
            number
        })
        .collect();
    session.add_resumable(&Stream::new(Capacity::default()), &clock);
    let kept: Vec<bool> = numbers.iter().map(|number| session.stream(*number).is_some()).collect();
    assert_eq!(kept, [false, false, true]);
}

#[test]
fn a_session_belongs_to_its_principal() {
    let (sessions, clock) = (Sessions::new(SessionLimits::default()), Clock::manual());
    let ada = Principal::new("ada");
    let offered = ServerCapabilities::default();
    let session =
        sessions.create(client(), ada.clone(), &offered, &Subscriptions::default(), &clock).unwrap();
    assert!(sessions.find(session.id.as_bytes(), &ada, &clock).is_some());
    assert!(sessions.find(session.id.as_bytes(), &Principal::new("eve"), &clock).is_none());
    assert!(sessions.find(session.id.as_bytes(), &Principal::anonymous(), &clock).is_none());
}

#[test]
fn only_so_many_streams_can_be_resumed() {
    let (sessions, clock) = (Sessions::new(SessionLimits::default()), Clock::manual());
    let session = open(&sessions, &clock).unwrap();
    let numbers: Vec<u64> =
        (0..40).map(|_| session.add_resumable(&Stream::new(Capacity::default()), &clock)).collect();
    assert!(session.stream(numbers[0]).is_none());
    assert!(session.stream(numbers[39]).is_some());
    assert_eq!(parse_event_id(&event_id(7, 9)), Some((7, 9)));
    for garbage in ["", "-", "7", "7-", "-9", "a-b", "7-9-1", "18446744073709551616-1", "../../etc"] {
        assert_eq!(parse_event_id(garbage), None, "{garbage}");
    }
}

#[test]
fn clients_that_are_alike_are_one_and_only_so_many_are_known() {
    let sessions = Sessions::new(SessionLimits::default());
    let named = |name: &str| {
        let info = Implementation { name: name.into(), version: "1".into(), ..Implementation::default() };
        sessions.intern_client(Client { info: Some(info), ..client() })
    };
    let first = named("first");
    for n in 0..100 {
        assert!(Arc::ptr_eq(&named("first"), &first), "whoever greets again stays known");
        let other = named(&format!("other {n}"));
        assert!(!Arc::ptr_eq(&other, &first));
        assert!(Arc::ptr_eq(&named(&format!("other {n}")), &other));
    }
    assert_eq!(sessions.recent_clients.lock().unwrap().len(), MAX_RECENT_CLIENTS);
    let older =
        sessions.intern_client(Client { protocol_version: ProtocolVersion::ALL[0], ..(*first).clone() });
    assert!(!Arc::ptr_eq(&older, &first), "the same program in another edition is another client");
}

/// What is resident, in bytes; none where the system does not say.
fn resident_bytes() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split(' ').nth(1)?.parse::<usize>().ok()? * 4096)
}

/// What is needed only where processes share sessions costs one pointer elsewhere.
#[test]
fn an_idle_session_is_small() {
    assert!(size_of::<Session>() <= 192, "{} bytes", size_of::<Session>());
    let limits = SessionLimits { max_sessions: 20_000, ..SessionLimits::default() };
    let (sessions, clock, hub) = (Sessions::new(limits), Clock::manual(), Subscriptions::default());
    let Some(before) = resident_bytes() else { return };
    for _ in 0..10_000 {
        let offered = ServerCapabilities::default();
        sessions.create(client(), Principal::anonymous(), &offered, &hub, &clock).unwrap();
    }
    let each = (resident_bytes().unwrap() - before) / 10_000;
    println!("an idle session takes {each} bytes");
    // What the system's allocator adds is in it. It was 1300 before sessions could be shared.
    assert!(each <= 1250, "{each} bytes each");
}
