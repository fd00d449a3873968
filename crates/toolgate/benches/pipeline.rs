//! One call through the whole house, in memory.

fn main() {}
