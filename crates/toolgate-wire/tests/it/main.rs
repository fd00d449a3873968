//! All integration tests of the crate, in one binary.

mod limits;
mod roundtrip;
mod samples;
mod schema;
