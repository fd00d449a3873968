//! Configurations as files: what is wrong, and what is said of it.
