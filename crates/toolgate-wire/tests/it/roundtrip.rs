//! Written values read back, in every protocol version.
//!
//! An older version may omit fields, so that the value that is read back is smaller. It must then be written as the same
//! bytes. In at least one version it must read back completely, else a field would be lost everywhere unnoticed.

// Helpers are tests too: they fail by panicking.
#![allow(clippy::unwrap_used)]

mod arbitrary;
mod downgraded;
mod rejected;
mod spec_examples;

use std::fmt::Debug;

use toolgate_wire::codec::*;
use toolgate_wire::model::*;
use toolgate_wire::*;

use super::samples;

fn raw(bytes: Vec<u8>) -> RawJson {
    let text = String::from_utf8_lossy(&bytes).into_owned();
    RawJson::parse(bytes.into()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn to_raw(write: impl FnOnce(&mut Vec<u8>)) -> RawJson {
    let mut out = Vec::new();
    write(&mut out);
    raw(out)
}

fn read_meta(params: Option<&RawJson>) -> Result<Meta, ProtocolError> {
    ParamsView::new(params)?.meta()
}

fn read_client_info(
    params: Option<&RawJson>,
) -> Result<(String, ClientCapabilities, Option<Implementation>), ProtocolError> {
    ParamsView::new(params)?.client_info()
}

/// Takes a value through every version that supports it. Returns whether it read back completely in one of them.
fn roundtrip_all_versions<T: PartialEq + Debug>(
    value: &T,
    is_supported: impl Fn(ProtocolVersion) -> bool,
    write: impl Fn(ProtocolVersion, &T) -> RawJson,
    read: impl Fn(ProtocolVersion, &RawJson) -> Result<T, ProtocolError>,
) -> bool {
    let mut is_complete = false;
    for version in ProtocolVersion::ALL.into_iter().filter(|version| is_supported(*version)) {
        let first = write(version, value);
        let read_back = read(version, &first).unwrap_or_else(|error| panic!("{version}: {error}\n{first}"));
        let second = write(version, &read_back);
        assert_eq!(first.as_str(), second.as_str(), "{version}");
        is_complete |= read_back == *value;
    }
    is_complete
}

fn has_method(version: ProtocolVersion, method: &str) -> bool {
    !read_call(version, method, None).is_err_and(|error| error.kind() == ProtocolErrorKind::MethodNotFound)
}

#[test]
fn calls_read_back() {
    let meta = Meta::default();
    for call in samples::calls() {
        let is_complete = roundtrip_all_versions(
            &call,
            |version| has_method(version, call.method()),
            |version, call| to_raw(|out| write_call_params(out, version, call, None, &meta)),
            |version, params| read_call(version, call.method(), Some(params)),
        );
        assert!(is_complete, "complete in no version: {call:#?}");
    }
}

#[test]
fn client_info_and_meta_read_back() {
    let call = Call::ListTools { cursor: None };
    for version in ProtocolVersion::ALL {
        let clients = samples::clients(version);
        let pairs =
            clients.iter().flat_map(|client| samples::metas().into_iter().map(move |meta| (client, meta)));
        for (client, meta) in pairs {
            let params = to_raw(|out| write_call_params(out, version, &call, Some(client), &meta));
            let read = read_meta(Some(&params)).unwrap();
            assert_eq!(read.progress_token, meta.progress_token);
            let trace = |raw: &Option<RawJson>| raw.as_ref()?.to_value().get("traceparent").cloned();
            assert_eq!(trace(&read.raw), trace(&meta.raw));
            if version.has_handshake() {
                assert_eq!(read_protocol_version(Some(&params)), None);
                assert_eq!(read.log_level, None);
                continue;
            }
            assert_eq!(read.log_level, meta.log_level);
            assert_eq!(read_protocol_version(Some(&params)).as_deref(), Some(version.as_str()));
            // Two parts of older versions are not written in this one.
            let capabilities = ClientCapabilities {
                roots: client.capabilities.roots.map(|_| false),
                tasks: None,
                ..client.capabilities.clone()
            };
            let expected = (version.as_str().to_owned(), capabilities, client.info.clone());
            assert_eq!(read_client_info(Some(&params)).unwrap(), expected);
        }
    }
}

#[test]
fn client_info_meant_for_us_is_not_passed_on() {
    let theirs = samples::clients(ProtocolVersion::LATEST).remove(0);
    let expected = &samples::metas()[1];
    let received = to_raw(|out| {
        write_call_params(out, ProtocolVersion::LATEST, &Call::Discover, Some(&theirs), expected)
    });
    let meta = Meta { progress_token: Some(ProgressToken::from(1)), ..read_meta(Some(&received)).unwrap() };

    let older = to_raw(|out| write_call_params(out, ProtocolVersion::V2025_11_25, &Call::Ping, None, &meta));
    let older = older.to_value();
    let keys: Vec<&String> = older["_meta"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["progressToken", "traceparent"]);

    let ours = Client {
        protocol_version: ProtocolVersion::LATEST,
        capabilities: ClientCapabilities::default(),
        info: None,
    };
    let newer =
        to_raw(|out| write_call_params(out, ProtocolVersion::LATEST, &Call::Discover, Some(&ours), &meta));
    let (_, capabilities, info) = read_client_info(Some(&newer)).unwrap();
    assert_eq!((capabilities, info), (ClientCapabilities::default(), None));
}

/// Whether a version has this result of this call.
fn has_outcome(version: ProtocolVersion, call: &Call, outcome: &Outcome) -> bool {
    let facts = version.behavior();
    let newest = facts.result_type;
    has_method(version, call.method())
        && match outcome {
            Outcome::InputRequired(_) | Outcome::ListenEnded { .. } => newest,
            Outcome::TaskStarted(_) => facts.tasks != TasksMode::Never,
            Outcome::TaskStatus(_) => !newest || !matches!(call, Call::CancelTask { .. }),
            Outcome::Empty => newest || !matches!(call, Call::CancelTask { .. }),
            _ => true,
        }
}

#[test]
fn outcomes_read_back() {
    let server = samples::server();
    let through = |call: &Call, outcome: &Outcome, server: Option<&Implementation>| {
        roundtrip_all_versions(
            outcome,
            |version| has_outcome(version, call, outcome),
            |version, outcome| to_raw(|out| write_outcome(out, version, outcome, server)),
            |version, result| read_outcome(version, call, result),
        )
    };
    for (call, outcome) in samples::outcomes() {
        assert!(through(&call, &outcome, None), "complete in no version: {outcome:#?}");
        through(&call, &outcome, Some(&server));
    }
    for (call, outcome) in samples::downgraded_outcomes() {
        through(&call, &outcome, None);
        through(&call, &outcome, Some(&server));
    }
}

#[test]
fn server_requests_read_back() {
    let through = |request: &ServerRequest| {
        roundtrip_all_versions(
            request,
            |version| supports_request(version, request),
            |version, request| to_raw(|out| write_server_request_params(out, version, request)),
            |version, params| read_server_request(version, request.method(), Some(params)),
        )
    };
    for request in samples::server_requests().into_iter().chain(samples::new_server_requests()) {
        assert!(through(&request), "complete in no version: {request:#?}");
    }
    for request in samples::downgraded_server_requests() {
        through(&request);
    }
}

#[test]
fn client_results_read_back() {
    let through = |request: &ServerRequest, result: &ClientResult| {
        roundtrip_all_versions(
            result,
            |version| supports_request(version, request),
            |version, result| to_raw(|out| write_client_result(out, version, result)),
            |version, result| read_client_result(version, request, result),
        )
    };
    for (request, result) in samples::client_results().into_iter().chain(samples::new_client_results()) {
        assert!(through(&request, &result), "complete in no version: {result:#?}");
    }
    for (request, result) in samples::downgraded_client_results() {
        through(&request, &result);
    }
}

#[test]
fn notifications_read_back() {
    let limits = Limits::default();
    for notification in samples::notifications() {
        let mut is_complete = false;
        for version in ProtocolVersion::ALL {
            for tag in [None, Some(RequestId::from("L1")), Some(RequestId::from(7))] {
                let mut first = Vec::new();
                if !write_notification(&mut first, version, &notification, tag.as_ref()) {
                    continue;
                }
                let message = read_message(&first.clone().into(), &limits).unwrap();
                let Message::Single(Frame::Notification { method, params }) = message else {
                    panic!("no notification: {message:?}");
                };
                let (read_back, read_tag) = read_notification(version, &method, params.as_ref()).unwrap();
                assert_eq!(
                    read_tag,
                    tag.filter(|_| version.behavior().change_delivery == ChangeDelivery::Listen)
                );
                let mut second = Vec::new();
                assert!(write_notification(&mut second, version, &read_back, read_tag.as_ref()));
                assert_eq!(first, second);
                is_complete |= read_back == notification;
            }
        }
        assert!(is_complete, "complete in no version: {notification:#?}");
    }
}
