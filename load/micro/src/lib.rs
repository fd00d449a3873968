//! An empty library: the package only has benches. They are here and not in the measured crates, so that building and
//! testing those never builds a benchmark harness.
