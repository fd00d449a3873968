//! Nothing: the benches beside it are all there is. They stand here, and not with the crates that they measure, so that
//! nobody who builds or tests those builds a bench harness first.
