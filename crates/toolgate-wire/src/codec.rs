//! Encodes and decodes the model as JSON, in both directions and for every protocol version.
//!
//! All versions share one writer and one reader. A writer states for each field the version that introduced it, and
//! converts values that an older peer cannot represent; a reader takes the fields it knows and ignores the rest.
//! Writers append directly to a byte buffer. JSON supplied by users is copied as it is, never parsed into a tree.
//!
//! Nothing here decides whether a call is allowed or whether a version is supported. A written value is always one line.

mod base64;
mod call;
mod capability;
mod client_cache;
mod content;
mod error;
mod fields;
mod form;
mod list_item;
mod meta_writer;
mod notification;
mod object;
mod outcome_reader;
mod outcome_writer;
mod params_view;
mod persist;
mod sampling;
mod server_request;
mod task;
mod unversioned;

pub use call::{read_call, write_call_params};
pub use capability::write_client_capabilities;
pub use client_cache::ClientCache;
pub use error::{write_protocol_error, write_unversioned_error};
pub use notification::{read_notification, write_notification};
pub use outcome_reader::read_outcome;
pub use outcome_writer::{EncodedServerInfo, write_outcome, write_outcome_from, write_unversioned_outcome};
pub use params_view::{ParamsView, read_protocol_version};
pub use persist::{
    decode_client, decode_client_result, decode_task, encode_client, encode_client_result, encode_task,
};
pub use server_request::{
    missing_capabilities, read_client_result, read_server_request, supports_request, write_client_result,
    write_server_request_params, write_task_request_params,
};
pub use unversioned::{move_progress_token, write_unversioned_notification};
