//! What acts, kept from one configuration to the next: what is described as before is not made again.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::config::{Does, Output};
use crate::source::Act;

/// Where something is said: a server, and the path of a table in it.
pub(super) type Spot = (String, String);

/// Something that acts, and everything it was made of.
#[derive(Clone)]
pub(super) struct Made {
    does: Does,
    schema: Value,
    output: Output,
    /// The connection it uses, as the one it is: an equal one would not do.
    connection: usize,
    act: Arc<dyn Act>,
}

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Reuse {
    before: Arc<HashMap<Spot, Made>>,
    now: HashMap<Spot, Made>,
}

impl Reuse {
    /// What was made of the same before.
    pub(super) fn find(
        &self,
        spot: &Spot,
        (does, schema, output): (&Does, &Value, &Output),
        connection: usize,
    ) -> Option<Arc<dyn Act>> {
        let made = self.before.get(spot)?;
        let is_same = made.connection == connection
            && made.does == *does
            && made.schema == *schema
            && made.output == *output;
        is_same.then(|| Arc::clone(&made.act))
    }

    pub(super) fn keep(
        &mut self,
        spot: Spot,
        (does, schema, output): (&Does, &Value, &Output),
        connection: usize,
        act: &Arc<dyn Act>,
    ) {
        let (does, schema, output) = (does.clone(), schema.clone(), output.clone());
        self.now.insert(spot, Made { does, schema, output, connection, act: Arc::clone(act) });
    }

    /// What was made is what was before, from now on; what was not said again is forgotten.
    pub(super) fn settle(&mut self) {
        self.before = Arc::new(std::mem::take(&mut self.now));
    }

    pub(super) fn clear(&mut self) {
        self.before = Arc::default();
    }
}
