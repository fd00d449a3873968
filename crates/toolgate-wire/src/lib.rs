//! The language of the Model Context Protocol: five revisions, one model.
//!
//! Bytes become a [`Frame`] ([`read`]), a frame becomes a [`model::Call`], an [`model::Outcome`] becomes
//! bytes again; which [`Edition`] is spoken decides the shape and nothing else. Both directions are here,
//! so a client is built of the same words as a server.
//!
//! Nothing in this crate does I/O, waits, reads a clock, draws a random number or logs.

pub mod codec;
mod dialect;
mod edition;
mod fault;
mod frame;
mod id;
mod index;
mod meta;
pub mod model;

pub use dialect::{Dialect, ErlmcpError, OnGet};
pub use edition::{
    Asking, Edition, Elicitation, Facts, Feeding, Greeting, LogLevels, Resume, Structured, Tasks,
};
pub use fault::{Fault, FaultKind};
pub use frame::{
    Broken, BrokenKind, Forgiving, Frame, Message, RemoteError, read, read_forgiving, read_knowing,
    read_noting, write_error, write_notification, write_request, write_result,
};
pub use id::{ProgressToken, RequestId};
pub use index::Index;
pub use meta::{Client, Meta, key};
use toolgate_json as json;
pub use toolgate_json::{JsonError, JsonErrorKind, Kind, Limits, Raw, View};
