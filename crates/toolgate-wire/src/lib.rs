//! The language of the Model Context Protocol: five revisions, one model.
//!
//! Bytes become a [`Frame`] ([`read`]), a frame becomes a [`model::Call`], an [`model::Outcome`] becomes
//! bytes again; which [`ProtocolVersion`] is spoken decides the shape and nothing else. Both directions are here,
//! so a client is built of the same words as a server.
//!
//! Nothing in this crate does I/O, waits, reads a clock, draws a random number or logs.

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
