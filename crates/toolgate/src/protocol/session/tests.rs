//! Tests of session lifetimes and limits.

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
    let capabilities = ServerCapabilities::default();
    sessions.create(client(), (Principal::anonymous(), None), &capabilities, &Subscriptions::default(), clock)
}

#[test]
fn a_session_expires_when_it_is_idle() {
    let (sessions, clock) = (Sessions::new(SessionLimits::default()), Clock::manual());
    let session = open(&sessions, &clock).unwrap();
    let found = || sessions.find(session.id.as_bytes(), &Principal::anonymous(), &clock).is_some();
    for _ in 0..3 {
        clock.advance(Duration::from_secs(29 * 60));
        assert!(found());
    }
    clock.advance(Duration::from_secs(31 * 60));
    assert!(!found());
    assert!(session.closed.is_cancelled(), "its streams and calls end too");
}

#[test]
fn a_call_in_flight_keeps_its_session() {
    let (sessions, clock) = (Sessions::new(SessionLimits::default()), Clock::manual());
    let session = open(&sessions, &clock).unwrap();
    let guard = session.in_flight.insert(&RequestId::from(1), &Cancel::new());
    clock.advance(Duration::from_secs(60 * 60));
    assert!(sessions.find(session.id.as_bytes(), &Principal::anonymous(), &clock).is_some());
    drop(guard);
    clock.advance(Duration::from_secs(60 * 60));
    assert!(sessions.find(session.id.as_bytes(), &Principal::anonymous(), &clock).is_none());
}

#[test]
fn expired_sessions_make_room_for_new_ones() {
    let limits = SessionLimits { max_sessions: 2, ..SessionLimits::default() };
    let (sessions, clock) = (Sessions::new(limits), Clock::manual());
    let first = open(&sessions, &clock).unwrap();
    assert!(open(&sessions, &clock).is_some());
    clock.advance(Duration::from_secs(31 * 60));
    assert!(open(&sessions, &clock).is_some());
    assert!(sessions.find(first.id.as_bytes(), &Principal::anonymous(), &clock).is_none());
}

#[test]
fn a_session_in_use_is_not_removed() {
    let limits = SessionLimits { max_sessions: 2, ..SessionLimits::default() };
    let (sessions, clock) = (Sessions::new(limits), Clock::manual());
    let all = [open(&sessions, &clock).unwrap(), open(&sessions, &clock).unwrap()];
    let mut calls: Vec<_> =
        all.iter().map(|session| session.in_flight.insert(&RequestId::from(1), &Cancel::new())).collect();
    assert!(open(&sessions, &clock).is_none(), "rejected while all are in use");
    calls.pop();
    assert!(open(&sessions, &clock).is_none(), "not searched again at once");
    clock.advance(Duration::from_secs(1));
    assert!(open(&sessions, &clock).is_some());
    assert!(all[1].closed.is_cancelled() && !all[0].closed.is_cancelled());
}

/// F3: one client that opens all sessions does not keep others out, and takes none of theirs.
#[test]
fn a_client_with_most_sessions_loses_its_own() {
    let limits = SessionLimits { max_sessions: 1000, ..SessionLimits::default() };
    let (sessions, clock) = (Sessions::new(limits), Clock::manual());
    let capabilities = ServerCapabilities::default();
    let open_from = |address: &str| {
        let owner = (Principal::anonymous(), Some(address.parse().unwrap()));
        sessions.create(client(), owner, &capabilities, &Subscriptions::default(), &clock)
    };
    let good: Vec<_> = (1..=20).map(|n| open_from(&format!("192.0.2.{n}")).unwrap()).collect();
    clock.advance(Duration::from_secs(60));
    for n in 0..5_000 {
        assert!(open_from("2001:db8::1").is_some() && open_from(&format!("2001:db8::{n:x}")).is_some());
        clock.advance(Duration::from_millis(1));
    }
    assert!(good.iter().all(|session| !session.closed.is_cancelled()));
    assert!(open_from("192.0.2.200").is_some());
    assert!(sessions.infos(clock.uptime()).len() <= 1000);
}

#[test]
fn unused_sessions_are_removed_first() {
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
fn expired_sessions_are_swept() {
    let (sessions, clock) = (Sessions::new(SessionLimits::default()), Clock::manual());
    for _ in 0..10 {
        open(&sessions, &clock).unwrap();
    }
    clock.advance(Duration::from_secs(31 * 60));
    open(&sessions, &clock).unwrap();
    assert_eq!(sessions.by_id.read().unwrap().len(), 1);
}

#[test]
fn a_session_with_a_reader_does_not_expire() {
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
fn ended_streams_are_removed_after_the_replay_time() {
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
fn the_bytes_of_ended_streams_are_limited() {
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
    let capabilities = ServerCapabilities::default();
    let session = sessions
        .create(client(), (ada.clone(), None), &capabilities, &Subscriptions::default(), &clock)
        .unwrap();
    assert!(sessions.find(session.id.as_bytes(), &ada, &clock).is_some());
    assert!(sessions.find(session.id.as_bytes(), &Principal::new("eve"), &clock).is_none());
    assert!(sessions.find(session.id.as_bytes(), &Principal::anonymous(), &clock).is_none());
}

#[test]
fn the_number_of_resumable_streams_is_limited() {
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
fn equal_clients_share_one_value_and_the_cache_is_bounded() {
    let sessions = Sessions::new(SessionLimits::default());
    let named = |name: &str| {
        let info = Implementation::new(name, "1");
        sessions.intern_client(Client { info: Some(info), ..client() })
    };
    let first = named("first");
    for n in 0..100 {
        assert!(Arc::ptr_eq(&named("first"), &first), "a client that initializes again stays in the cache");
        let other = named(&format!("other {n}"));
        assert!(!Arc::ptr_eq(&other, &first));
        assert!(Arc::ptr_eq(&named(&format!("other {n}")), &other));
    }
    assert_eq!(sessions.recent_clients.lock().unwrap().len(), MAX_RECENT_CLIENTS);
    let older =
        sessions.intern_client(Client { protocol_version: ProtocolVersion::ALL[0], ..(*first).clone() });
    assert!(!Arc::ptr_eq(&older, &first), "the same program with another protocol version is another client");
}

/// Resident memory in bytes. `None` if the system does not report it.
fn resident_bytes() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split(' ').nth(1)?.parse::<usize>().ok()? * 4096)
}

/// State that only shared sessions need costs one pointer otherwise.
#[test]
fn an_idle_session_is_small() {
    assert!(size_of::<Session>() <= 192, "{} bytes", size_of::<Session>());
    let limits = SessionLimits { max_sessions: 20_000, ..SessionLimits::default() };
    let (sessions, clock, hub) = (Sessions::new(limits), Clock::manual(), Subscriptions::default());
    let Some(before) = resident_bytes() else { return };
    for _ in 0..10_000 {
        let capabilities = ServerCapabilities::default();
        sessions.create(client(), (Principal::anonymous(), None), &capabilities, &hub, &clock).unwrap();
    }
    let each = (resident_bytes().unwrap() - before) / 10_000;
    println!("an idle session takes {each} bytes");
    // Includes the overhead of the system's allocator. It was 1300 before sessions could be shared.
    assert!(each <= 1250, "{each} bytes each");
}
