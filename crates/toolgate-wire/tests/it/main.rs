//! Tests of readers and writers together. They are a module of the crate, which allows complete struct literals.

mod index;
mod limits;
mod roundtrip;
mod samples;
mod schema;
