//! Frames to calls, notifications and results: no input may panic a reader, and a value that was read and written is
//! read as the same value again.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use toolgate_wire::codec;
use toolgate_wire::{Frame, FrameError, Limits, Message, Meta, ParamsIndex, ProtocolVersion, RawJson};

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    let message = toolgate_wire::read_message(&bytes, &Limits::default());
    read_with_cache(&bytes, &message);
    let Ok(message) = message else { return };
    let frames = match message {
        Message::Single(frame) => vec![frame],
        Message::Batch(frames) => frames.into_iter().flatten().collect(),
    };
    for frame in frames {
        match frame {
            Frame::Request { method, params, .. } => request(&method, params.as_ref()),
            Frame::Notification { method, params } => {
                for version in ProtocolVersion::ALL {
                    let _ = codec::read_notification(version, &method, params.as_ref());
                }
            }
            Frame::Response { outcome: Ok(result), .. } => read_results(&result),
            _ => {}
        }
    }
});

/// Reads the message again with an index and a client cache. From the second time on, the client may be cached.
fn read_with_cache(bytes: &Bytes, expected: &Result<Message, FrameError>) {
    let clients = codec::ClientCache::default();
    for _ in 0..3 {
        let mut index = ParamsIndex::default();
        let message = toolgate_wire::read_message_cached(bytes, &Limits::default(), &mut index, &clients);
        assert_eq!(&message, expected);
        let Ok(Message::Single(Frame::Request { method, params, .. })) = &message else { return };
        let indexed = codec::ParamsView::with_index(params.as_ref(), &index).expect("params are an object");
        let scanned = codec::ParamsView::new(params.as_ref()).expect("params are an object");
        assert_eq!(indexed.protocol_version(), scanned.protocol_version());
        assert_eq!(indexed.meta(), scanned.meta());
        assert_eq!(
            indexed.read_call(ProtocolVersion::LATEST, method),
            scanned.read_call(ProtocolVersion::LATEST, method)
        );
        match (clients.resolve(&indexed), scanned.client_info()) {
            (Ok((version, client)), Ok((expected, capabilities, info))) => {
                assert_eq!(
                    (&*version, &client.capabilities, &client.info),
                    (&*expected, &capabilities, &info)
                );
            }
            (cached, read) => assert_eq!(cached.err(), read.err()),
        }
    }
}

fn request(method: &str, params: Option<&RawJson>) {
    if let Ok(view) = codec::ParamsView::new(params) {
        let _ = view.client_info();
        let _ = view.meta();
    }
    for version in ProtocolVersion::ALL {
        let _ = codec::read_server_request(version, method, params);
        let Ok(call) = codec::read_call(version, method, params) else { continue };
        // A version may not be able to express all of it; the part it expressed must come back the same.
        let written = write(version, &call);
        let again = codec::read_call(version, method, Some(&written)).expect("our own output can be read");
        assert_eq!(written, write(version, &again));
    }
}

fn write(version: ProtocolVersion, call: &toolgate_wire::model::Call) -> RawJson {
    let mut written = Vec::new();
    codec::write_call_params(&mut written, version, call, None, &Meta::default());
    RawJson::parse(written.into()).expect("our own output is JSON")
}

fn read_results(result: &RawJson) {
    for version in ProtocolVersion::ALL {
        for method in
            ["tools/call", "tools/list", "resources/read", "prompts/get", "server/discover", "initialize"]
        {
            let params = RawJson::from(serde_json::json!({
                "name": "x", "uri": "x://y", "protocolVersion": "x", "capabilities": {},
                "clientInfo": { "name": "x", "version": "1" },
            }));
            let Ok(call) = codec::read_call(version, method, Some(&params)) else { continue };
            let Ok(outcome) = codec::read_outcome(version, &call, result) else { continue };
            let mut written = Vec::new();
            codec::write_outcome(&mut written, version, &outcome, None);
            RawJson::parse(written.into()).expect("our own output is JSON");
        }
    }
}
