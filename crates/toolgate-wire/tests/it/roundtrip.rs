//! What is written reads back, in every edition.
//!
//! An older edition says less, so the value that comes back may be smaller. It
//! must then be written as the same bytes; and in some edition it must come
//! back whole, or a field would be lost everywhere without anyone noticing.

// Helpers are tests too: they fail by panicking.
#![allow(clippy::unwrap_used)]

mod printed;
mod refused;
mod shown;
mod wild;

use std::fmt::Debug;

use toolgate_wire::codec::*;
use toolgate_wire::model::*;
use toolgate_wire::*;

use super::samples;

fn raw(bytes: Vec<u8>) -> Raw {
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Raw::parse(bytes.into()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Raw {
    let mut out = Vec::new();
    write(&mut out);
    raw(out)
}

/// Takes a value through every edition that `says` it. Returns whether it came
/// back whole from one.
fn through<T: PartialEq + Debug>(
    value: &T,
    says: impl Fn(Edition) -> bool,
    write: impl Fn(Edition, &T) -> Raw,
    read: impl Fn(Edition, &Raw) -> Result<T, Fault>,
) -> bool {
    let mut whole = false;
    for edition in Edition::ALL.into_iter().filter(|edition| says(*edition)) {
        let first = write(edition, value);
        let back = read(edition, &first).unwrap_or_else(|fault| panic!("{edition}: {fault}\n{first}"));
        let second = write(edition, &back);
        assert_eq!(first.as_str(), second.as_str(), "{edition}");
        whole |= back == *value;
    }
    whole
}

fn has(edition: Edition, method: &str) -> bool {
    !read_call(edition, method, None).is_err_and(|fault| fault.kind() == FaultKind::Method)
}

#[test]
fn calls_read_back() {
    let meta = Meta::default();
    for call in samples::calls() {
        let whole = through(
            &call,
            |edition| has(edition, call.method()),
            |edition, call| written(|out| write_call_params(out, edition, call, None, &meta)),
            |edition, params| read_call(edition, call.method(), Some(params)),
        );
        assert!(whole, "nowhere whole: {call:#?}");
    }
}

#[test]
fn greetings_and_meta_read_back() {
    let call = Call::ListTools { cursor: None };
    for edition in Edition::ALL {
        let clients = samples::clients(edition);
        let pairs =
            clients.iter().flat_map(|client| samples::metas().into_iter().map(move |meta| (client, meta)));
        for (client, meta) in pairs {
            let params = written(|out| write_call_params(out, edition, &call, Some(client), &meta));
            let read = read_meta(Some(&params)).unwrap();
            assert_eq!(read.progress, meta.progress);
            let trace = |raw: &Option<Raw>| raw.as_ref()?.to_value().get("traceparent").cloned();
            assert_eq!(trace(&read.raw), trace(&meta.raw));
            if edition.shakes_hands() {
                assert_eq!(read_version(Some(&params)), None);
                assert_eq!(read.log_level, None);
                continue;
            }
            assert_eq!(read.log_level, meta.log_level);
            assert_eq!(read_version(Some(&params)).as_deref(), Some(edition.date()));
            // Two things of older editions are not said in this one.
            let capabilities = ClientCapabilities {
                roots: client.capabilities.roots.map(|_| false),
                tasks: None,
                ..client.capabilities.clone()
            };
            let said = (edition.date().to_owned(), capabilities, client.info.clone());
            assert_eq!(read_greeting(Some(&params)).unwrap(), said);
        }
    }
}

#[test]
fn a_greeting_meant_for_us_is_not_passed_on() {
    let theirs = samples::clients(Edition::NEWEST).remove(0);
    let said = &samples::metas()[1];
    let came = written(|out| write_call_params(out, Edition::NEWEST, &Call::Discover, Some(&theirs), said));
    let meta = Meta { progress: Some(ProgressToken::from(1)), ..read_meta(Some(&came)).unwrap() };

    let older = written(|out| write_call_params(out, Edition::E2025_11_25, &Call::Ping, None, &meta));
    let older = older.to_value();
    let keys: Vec<&String> = older["_meta"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["progressToken", "traceparent"]);

    let ours = Client { edition: Edition::NEWEST, capabilities: ClientCapabilities::default(), info: None };
    let newer = written(|out| write_call_params(out, Edition::NEWEST, &Call::Discover, Some(&ours), &meta));
    let (_, capabilities, info) = read_greeting(Some(&newer)).unwrap();
    assert_eq!((capabilities, info), (ClientCapabilities::default(), None));
}

/// Whether an edition has this answer to this call.
fn has_answer(edition: Edition, call: &Call, outcome: &Outcome) -> bool {
    let facts = edition.facts();
    let newest = facts.result_type;
    has(edition, call.method())
        && match outcome {
            Outcome::InputRequired(_) | Outcome::Listened { .. } => newest,
            Outcome::TaskStarted(_) => facts.tasks != Tasks::Never,
            Outcome::TaskStatus(_) => !newest || !matches!(call, Call::CancelTask { .. }),
            Outcome::Done => newest || !matches!(call, Call::CancelTask { .. }),
            _ => true,
        }
}

#[test]
fn outcomes_read_back() {
    let server = samples::server();
    let through = |call: &Call, outcome: &Outcome, server: Option<&Implementation>| {
        through(
            outcome,
            |edition| has_answer(edition, call, outcome),
            |edition, outcome| written(|out| write_outcome(out, edition, outcome, server)),
            |edition, result| read_outcome(edition, call, result),
        )
    };
    for (call, outcome) in samples::outcomes() {
        assert!(through(&call, &outcome, None), "nowhere whole: {outcome:#?}");
        through(&call, &outcome, Some(&server));
    }
    for (call, outcome) in samples::worded_outcomes() {
        through(&call, &outcome, None);
        through(&call, &outcome, Some(&server));
    }
}

#[test]
fn questions_read_back() {
    let through = |ask: &Ask| {
        through(
            ask,
            |edition| can_ask(edition, ask),
            |edition, ask| written(|out| write_ask_params(out, edition, ask)),
            |edition, params| read_ask(edition, ask.method(), Some(params)),
        )
    };
    for ask in samples::asks().into_iter().chain(samples::new_asks()) {
        assert!(through(&ask), "nowhere whole: {ask:#?}");
    }
    for ask in samples::worded_asks() {
        through(&ask);
    }
}

#[test]
fn answers_read_back() {
    let through = |ask: &Ask, answer: &Answer| {
        through(
            answer,
            |edition| can_ask(edition, ask),
            |edition, answer| written(|out| write_answer(out, edition, answer)),
            |edition, result| read_answer(edition, ask, result),
        )
    };
    for (ask, answer) in samples::answers().into_iter().chain(samples::new_answers()) {
        assert!(through(&ask, &answer), "nowhere whole: {answer:#?}");
    }
    for (ask, answer) in samples::worded_answers() {
        through(&ask, &answer);
    }
}

#[test]
fn notices_read_back() {
    let limits = Limits::default();
    for notice in samples::notices() {
        let mut whole = false;
        for edition in Edition::ALL {
            for tag in [None, Some(RequestId::from("L1")), Some(RequestId::from(7))] {
                let mut first = Vec::new();
                if !write_notice(&mut first, edition, &notice, tag.as_ref()) {
                    continue;
                }
                let message = read(&first.clone().into(), &limits).unwrap();
                let Message::One(Frame::Notification { method, params }) = message else {
                    panic!("no notification: {message:?}");
                };
                let (back, read_tag) = read_notice(edition, &method, params.as_ref()).unwrap();
                assert_eq!(read_tag, tag.filter(|_| edition.facts().feeding == Feeding::Listen));
                let mut second = Vec::new();
                assert!(write_notice(&mut second, edition, &back, read_tag.as_ref()));
                assert_eq!(first, second);
                whole |= back == notice;
            }
        }
        assert!(whole, "nowhere whole: {notice:#?}");
    }
}
