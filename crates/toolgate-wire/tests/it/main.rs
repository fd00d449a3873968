//! All integration tests of the crate, in one binary.

mod index;
mod limits;
mod roundtrip;
mod samples;
mod schema;
