//! The pen: attribute macros that write builder calls and decide nothing.
//!
//! The crate is a seed. `#[tool]`, `#[resource]`, `#[template]`, `#[prompt]` and `#[complete]` will live
//! here; until then a server is written with the builder of the `toolgate` crate, which is all a macro
//! would have written anyway.
