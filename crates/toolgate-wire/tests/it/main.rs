//! All integration tests of the crate, in one binary.

mod limits;
mod index;
mod roundtrip;
mod samples;
mod schema;
