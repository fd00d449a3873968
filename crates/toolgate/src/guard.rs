//! The guardroom: who may come in, judged by the head of a request alone.
//!
//! The body of a request and its edition are not known here.

mod origin;

pub(crate) use origin::{Hosts, Refused};
