//! Small building blocks without knowledge of the protocol: clock, cancellation, task spawning, sharded counters.

pub(crate) mod cancel;
pub(crate) mod clock;
pub(crate) mod name_map;
pub(crate) mod option_cell;
pub(crate) mod percent;
pub(crate) mod segments;
pub(crate) mod sharded;
pub(crate) mod spawn;
pub(crate) mod stored_json;
