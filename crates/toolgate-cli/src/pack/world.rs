//! What the acts of packs may look at: the program itself.

use std::time::SystemTime;

use toolgate::Servers;

/// The program, seen from inside. There is one, and it stays while configurations come and go.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) servers: Servers,
    pub(crate) started: SystemTime,
}

impl Default for World {
    fn default() -> World {
        World { servers: Servers::new(), started: SystemTime::now() }
    }
}
