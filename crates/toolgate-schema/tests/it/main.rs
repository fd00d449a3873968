//! Validation results, messages, and agreement with another implementation.

mod differential;
mod messages;
