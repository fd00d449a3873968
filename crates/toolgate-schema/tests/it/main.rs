//! Validation results, messages, and agreement with another implementation.

mod differential;
mod formats;
mod messages;
