//! Frames to calls, notices, answers: no bytes of a peer may panic a reader, and what was read once is
//! read again after writing.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use toolgate_wire::codec;
use toolgate_wire::{Broken, Edition, Frame, Index, Limits, Message, Meta, Raw};

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    let message = toolgate_wire::read(&bytes, &Limits::default());
    in_every_way(&bytes, &message);
    let Ok(message) = message else { return };
    let frames = match message {
        Message::One(frame) => vec![frame],
        Message::Batch(frames) => frames.into_iter().flatten().collect(),
    };
    for frame in frames {
        match frame {
            Frame::Request { method, params, .. } => request(&method, params.as_ref()),
            Frame::Notification { method, params } => {
                for edition in Edition::ALL {
                    let _ = codec::read_notice(edition, &method, params.as_ref());
                }
            }
            Frame::Response { outcome: Ok(result), .. } => result_of_anything(&result),
            _ => {}
        }
    }
});

/// Reads again with an index and with greetings: the second time the greeting may be known.
fn in_every_way(bytes: &Bytes, expect: &Result<Message, Broken>) {
    let greetings = codec::Greetings::default();
    for _ in 0..3 {
        let mut index = Index::default();
        let message = toolgate_wire::read_knowing(bytes, &Limits::default(), &mut index, &greetings);
        assert_eq!(&message, expect);
        let Ok(Message::One(Frame::Request { method, params, .. })) = &message else { return };
        let noted = codec::Said::noted(params.as_ref(), &index).expect("params are an object");
        let walked = codec::Said::of(params.as_ref()).expect("params are an object");
        assert_eq!(noted.version(), walked.version());
        assert_eq!(noted.meta(), walked.meta());
        assert_eq!(noted.call(Edition::NEWEST, method), walked.call(Edition::NEWEST, method));
        match (greetings.meet(&noted), walked.greeting()) {
            (Ok((version, client)), Ok((other, capabilities, info))) => {
                assert_eq!((&*version, &client.capabilities, &client.info), (&*other, &capabilities, &info));
            }
            (met, read) => assert_eq!(met.err(), read.err()),
        }
    }
}

fn request(method: &str, params: Option<&Raw>) {
    let _ = codec::read_greeting(params);
    let _ = codec::read_meta(params);
    for edition in Edition::ALL {
        let _ = codec::read_ask(edition, method, params);
        let Ok(call) = codec::read_call(edition, method, params) else { continue };
        // An edition may not be able to say all of it; what it did say must come back the same.
        let written = write(edition, &call);
        let again = codec::read_call(edition, method, Some(&written)).expect("what we write can be read");
        assert_eq!(written, write(edition, &again));
    }
}

fn write(edition: Edition, call: &toolgate_wire::model::Call) -> Raw {
    let mut written = Vec::new();
    codec::write_call_params(&mut written, edition, call, None, &Meta::default());
    Raw::parse(written.into()).expect("what we write is JSON")
}

fn result_of_anything(result: &Raw) {
    for edition in Edition::ALL {
        for method in
            ["tools/call", "tools/list", "resources/read", "prompts/get", "server/discover", "initialize"]
        {
            let params = Raw::from(serde_json::json!({
                "name": "x", "uri": "x://y", "protocolVersion": "x", "capabilities": {},
                "clientInfo": { "name": "x", "version": "1" },
            }));
            let Ok(call) = codec::read_call(edition, method, Some(&params)) else { continue };
            let Ok(outcome) = codec::read_outcome(edition, &call, result) else { continue };
            let mut written = Vec::new();
            codec::write_outcome(&mut written, edition, &outcome, None);
            Raw::parse(written.into()).expect("what we write is JSON");
        }
    }
}
