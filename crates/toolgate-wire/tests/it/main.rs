//! All integration tests of the crate, in one binary.

mod limits;
mod noted;
mod roundtrip;
mod samples;
mod schema;
