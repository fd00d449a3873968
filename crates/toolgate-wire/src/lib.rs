//! The wire format of the Model Context Protocol: five protocol versions, one model.
//!
//! [`read_message`] parses bytes into a [`Frame`], [`codec::read_call`] turns a frame into a [`model::Call`], and
//! [`codec::write_outcome`] turns a [`model::Outcome`] into bytes. The [`ProtocolVersion`] determines the encoding and
//! nothing else. Both directions are implemented, so that clients and servers share one model.
//!
//! Nothing in this crate does I/O, waits, reads a clock, generates random numbers or logs.

pub mod codec;
mod dialect;
mod frame;
mod id;
mod meta;
pub mod model;
mod params_index;
mod protocol_error;
mod protocol_version;

pub use dialect::{Dialect, ErlmcpError, GetDiscovery};
pub use frame::{
    Frame, FrameError, FrameErrorKind, Leniency, Message, RemoteError, read_message, read_message_cached,
    read_message_indexed, read_message_lenient, write_error, write_notification_frame, write_request,
    write_result,
};
pub use id::{ProgressToken, RequestId};
pub use meta::{Client, Meta, meta_key};
pub use params_index::ParamsIndex;
pub use protocol_error::{ProtocolError, ProtocolErrorKind};
pub use protocol_version::{
    Behavior, ChangeDelivery, ElicitationSupport, Lifecycle, LogLevelScope, ProtocolVersion, Resumability,
    ServerRequestMode, StructuredContent, TasksMode,
};
use toolgate_json as json;
pub use toolgate_json::{JsonError, JsonErrorKind, Kind, Limits, RawJson, View};

// The tests name every field of the model's types, so that a new field needs a sample; outside of this crate, types that
// are `#[non_exhaustive]` do not allow that.
#[cfg(test)]
extern crate self as toolgate_wire;
#[cfg(test)]
#[path = "../tests/it/main.rs"]
mod it;
