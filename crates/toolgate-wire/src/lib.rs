//! The language of the Model Context Protocol: five revisions, one model.
//!
//! Bytes become a [`Frame`] ([`read`]), a frame becomes a [`model::Call`], an [`model::Outcome`] becomes
//! bytes again; which [`Edition`] is spoken decides the shape and nothing else. Both directions are here,
//! so a client is built of the same words as a server.
//!
//! Nothing in this crate does I/O, waits, reads a clock, draws a random number or logs.

pub mod codec;
mod dialect;
mod protocol_version;
mod protocol_error;
mod frame;
mod id;
mod params_index;
mod meta;
pub mod model;

pub use dialect::{Dialect, ErlmcpError, GetDiscovery};
pub use protocol_version::{
    ServerRequestMode, ProtocolVersion, ElicitationSupport, Behavior, ChangeDelivery, Lifecycle, LogLevelScope, Resumability, StructuredContent, TasksMode,
};
pub use protocol_error::{ProtocolError, ProtocolErrorKind};
pub use frame::{
    FrameError, FrameErrorKind, Leniency, Frame, Message, RemoteError, read_message, read_message_lenient, read_message_cached,
    read_message_indexed, write_error, write_notification_frame, write_request, write_result,
};
pub use id::{ProgressToken, RequestId};
pub use params_index::ParamsIndex;
pub use meta::{Client, Meta, meta_key};
use toolgate_json as json;
pub use toolgate_json::{JsonError, JsonErrorKind, Kind, Limits, RawJson, View};
