//! The model to and from JSON, in both directions and in every edition.
//!
//! There is one writer and one reader for all editions. A writer says of each
//! field since when it exists and rewrites what an older peer could not show;
//! a reader takes what it knows and ignores the rest. Writers append straight
//! to bytes, and what users put in as JSON is spliced, never parsed into a tree.
//!
//! Nothing here decides whether a call may be made or an edition is served:
//! that is a matter of the house. What is written is always one line.

mod ask;
mod bare;
mod base64;
mod call;
mod capability;
mod content;
mod fields;
mod form;
mod greeting;
mod greetings;
mod item;
mod notice;
mod object;
mod put;
mod reply;
mod sample;
mod task;

pub use ask::{can_ask, read_answer, read_ask, write_answer, write_ask_params};
pub use bare::{move_progress, write_bare_notice};
pub use call::{read_call, write_call_params};
pub use capability::write_client_capabilities;
pub use greeting::{Said, read_greeting, read_meta, read_version};
pub use greetings::Greetings;
pub use notice::{read_notice, write_notice};
pub use put::{
    Signature, write_bare_fault, write_bare_outcome, write_fault, write_outcome, write_signed_outcome,
};
pub use reply::read_outcome;
