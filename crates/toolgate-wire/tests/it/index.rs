//! Reading by index or from the client cache gives the same result as scanning the text.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use toolgate_wire::codec::{ClientCache, ParamsView};
use toolgate_wire::model::{Content, Outcome, ToolOutput};
use toolgate_wire::{
    Frame, Limits, Message, ParamsIndex, ProtocolVersion, RawJson, RequestId, codec, meta_key, read_message,
    read_message_cached, read_message_indexed,
};

/// Members of `_meta`, valid and invalid, in different notations.
const META_MEMBERS: [&str; 14] = [
    r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#,
    r#""io.modelcontextprotocol/protocolVersion":"2025-11-25""#,
    r#""io.modelcontextprotocol/protocolVersion":"\u0032026-07-28""#,
    r#""io.modelcontextprotocol\/protocolVersion":"2026-07-28""#,
    r#""io.modelcontextprotocol/protocolVersion":7"#,
    r#""io.modelcontextprotocol/clientCapabilities":{}"#,
    r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"extensions":{"a/b":{"c":[1]}}}"#,
    r#""io.modelcontextprotocol/clientCapabilities":[]"#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"load","version":"1.0.0"}"#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"l\u00f6\u0061d","version":"1"}"#,
    r#""io.modelcontextprotocol/logLevel":"info""#,
    r#""progressToken":"a""#,
    r#""progressToken":1"#,
    r#""traceparent":"00-x""#,
];

/// Parameters.
const PARAMS: [&str; 9] = [
    r#""name":"echo""#,
    r#""n\u0061me":"echo""#,
    r#""arguments":{"message":"hello"}"#,
    r#""arguments":{"_meta":{"io.modelcontextprotocol/protocolVersion":"x"}}"#,
    r#""uri":"a://b""#,
    r#""cursor":"c""#,
    r#""inputResponses":{"k":{"action":"accept"}}"#,
    r#""requestState":"s""#,
    r#""task":{"ttl":5}"#,
];

const CLIENT_META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"load","version":"1.0.0"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

fn call(params: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#).into()
}

/// Creates a cache that has seen this `_meta` often enough to recognize it.
fn warm_cache(meta: &str) -> ClientCache {
    let cache = ClientCache::default();
    for _ in 0..3 {
        let bytes = call(&format!(r#"{{"_meta":{meta},"name":"x"}}"#));
        resolve_client(&bytes, &cache);
    }
    cache
}

fn resolve_client(bytes: &Bytes, cache: &ClientCache) {
    let mut index = ParamsIndex::default();
    let message = read_message_cached(bytes, &Limits::default(), &mut index, cache);
    if let Ok(Message::Single(Frame::Request { params, .. })) = &message
        && let Ok(view) = ParamsView::with_index(params.as_ref(), &index)
    {
        let _ = cache.resolve(&view);
    }
}

/// Reads a text in all possible ways, and compares.
fn check(bytes: &Bytes, limits: &Limits, cache: &ClientCache) {
    let plain = read_message(bytes, limits);
    let (mut noted, mut known) = (ParamsIndex::default(), ParamsIndex::default());
    assert_eq!(read_message_indexed(bytes, limits, &mut noted), plain);
    assert_eq!(read_message_cached(bytes, limits, &mut known, cache), plain);
    let Ok(Message::Single(Frame::Request { method, params, .. })) = &plain else { return };
    let walked = ParamsView::new(params.as_ref()).expect("params");
    let Ok(Message::Single(Frame::Request { params: again, .. })) = read_message(bytes, limits) else {
        panic!()
    };
    for index in [&noted, &known] {
        // A frame that shares the bytes, one that does not, and another message.
        for params in [params.clone(), again.clone(), again.as_ref().map(|raw| raw.view().to_raw())] {
            let view = ParamsView::with_index(params.as_ref(), index).expect("params");
            assert_eq!(view.protocol_version(), walked.protocol_version());
            assert_eq!(view.meta(), walked.meta());
            assert_eq!(view.client_info(), walked.client_info());
            for version in ProtocolVersion::ALL {
                assert_eq!(view.read_call(version, method), walked.read_call(version, method));
            }
            match (cache.resolve(&view), ParamsView::new(params.as_ref()).and_then(|view| view.client_info()))
            {
                (Ok((version, client)), Ok((other, capabilities, info))) => {
                    assert_eq!(version, other);
                    assert_eq!((&client.capabilities, &client.info), (&capabilities, &info));
                }
                (met, read) => assert_eq!(met.expect_err("refused"), read.expect_err("refused")),
            }
        }
    }
}

fn members(from: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(from, 0..=from.len().min(6)).prop_shuffle()
}

proptest! {
    #[test]
    fn all_ways_to_read_agree(
        meta in members(&META_MEMBERS),
        params in members(&PARAMS),
        spaced in any::<bool>(),
        place in 0_usize..8,
        greet in any::<bool>(),
    ) {
        let comma = if spaced { " ,\n\t" } else { "," };
        let meta = match greet {
            true => CLIENT_META.to_owned(),
            false => format!("{{{}}}", meta.join(comma)),
        };
        let mut params: Vec<String> = params.into_iter().map(str::to_owned).collect();
        params.insert(place.min(params.len()), format!(r#""_meta":{meta}"#));
        let bytes = call(&format!("{{{}}}", params.join(comma)));
        check(&bytes, &Limits::default(), &warm_cache(CLIENT_META));
        check(&bytes, &Limits::default(), &warm_cache(&meta));
    }

    /// A cached prefix does not make the rest of the text valid.
    #[test]
    fn a_cached_prefix_does_not_excuse_the_rest(tail in r#"[{}",:\[\]a1 ]{0,12}"#, cut in 0_usize..200) {
        let cache = warm_cache(CLIENT_META);
        for text in [
            format!(r#"{{"_meta":{CLIENT_META}{tail}}}"#),
            format!(r#"{{"_meta":{}{tail}}}"#, &CLIENT_META[..cut.min(CLIENT_META.len())]),
            format!(r#"{{"_meta":{CLIENT_META},"_meta":{CLIENT_META}}}"#),
            format!(r#"{{"name":{CLIENT_META},"arguments":{CLIENT_META}}}"#),
        ] {
            check(&call(&text), &Limits::default(), &cache);
        }
    }

    /// The fast path for text results writes the same as the general one.
    #[test]
    fn both_paths_write_text_results_alike(
        texts in proptest::collection::vec(any::<String>(), 0..4),
        is_error in any::<bool>(),
        signed in any::<bool>(),
    ) {
        let info = toolgate_wire::model::Implementation {
            name: "s".into(), version: "1".into(), title: Some("\"S\"".into()), ..Default::default()
        };
        let content: Vec<Content> = texts.into_iter().map(Content::text).collect();
        let plain = Outcome::Tool(ToolOutput { content, is_error, ..ToolOutput::default() });
        for version in ProtocolVersion::ALL {
            let written = |outcome: &Outcome| {
                let mut out = Vec::new();
                codec::write_outcome(&mut out, version, outcome, signed.then_some(&info));
                RawJson::parse(out.into()).unwrap()
            };
            let text = written(&plain);
            // An empty `_meta` forces the general path.
            let Outcome::Tool(output) = plain.clone() else { panic!() };
            let long = Outcome::Tool(ToolOutput { meta: Some(RawJson::empty_object()), ..output });
            let mut long = written(&long).to_value();
            if long["_meta"] == serde_json::json!({}) {
                long.as_object_mut().unwrap().remove("_meta");
            }
            prop_assert_eq!(text.to_value(), long);
            let mut out = Vec::new();
            let signature = codec::EncodedServerInfo::new(version, &info);
            codec::write_outcome_from(&mut out, &plain, &signature);
            let mut other = Vec::new();
            codec::write_outcome(&mut other, version, &plain, Some(&info));
            prop_assert_eq!(out, other);
        }
    }
}

#[test]
fn client_info_is_recognized_and_shared() {
    let cache = warm_cache(CLIENT_META);
    let bytes = call(&format!(r#"{{"_meta":{CLIENT_META},"name":"echo"}}"#));
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut index = ParamsIndex::default();
        let message = read_message_cached(&bytes, &Limits::default(), &mut index, &cache).unwrap();
        let Message::Single(Frame::Request { params, id, .. }) = message else { panic!() };
        assert_eq!(id, RequestId::Number(1));
        let view = ParamsView::with_index(params.as_ref(), &index).unwrap();
        clients.push(cache.resolve(&view).unwrap().1);
    }
    assert!(Arc::ptr_eq(&clients[0], &clients[1]));
    assert_eq!(clients[0].info.as_ref().unwrap().name, "load");
}

/// The depth limit applies even if the beginning of the text is cached.
#[test]
fn cached_text_does_not_loosen_the_limits() {
    let deep = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"a/b":{"c":[[[[1]]]]}}}}"#;
    let cache = warm_cache(deep);
    let bytes = call(&format!(r#"{{"_meta":{deep}}}"#));
    check(&bytes, &Limits::default(), &cache);
    for max_depth in 1..12 {
        check(&bytes, &Limits { max_depth, ..Limits::default() }, &cache);
    }
    for max_bytes in [10, bytes.len() - 1, bytes.len()] {
        check(&bytes, &Limits { max_bytes, ..Limits::default() }, &cache);
    }
}

/// A cached client must not keep a message alive.
#[test]
fn cached_clients_are_copies() {
    let meta = format!(
        r#"{{"{}":"2026-07-28","{}":{{"extensions":{{"a/b":{{"c":1}}}}}}}}"#,
        meta_key::PROTOCOL_VERSION,
        meta_key::CLIENT_CAPABILITIES
    );
    let cache = ClientCache::default();
    let bytes = call(&format!(r#"{{"_meta":{meta}}}"#));
    let place = bytes.as_ptr_range();
    let Ok(Message::Single(Frame::Request { params, .. })) = read_message(&bytes, &Limits::default()) else {
        panic!()
    };
    let (_, client) = cache.resolve(&ParamsView::new(params.as_ref()).unwrap()).unwrap();
    let settings = &client.capabilities.extensions["a/b"];
    assert_eq!(settings.as_str(), r#"{"c":1}"#);
    assert!(!place.contains(&settings.as_bytes().as_ptr()));
}
