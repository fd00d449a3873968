//! What acts, kept from one configuration to the next: what is described as before is not made again.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::config::{Does, Output};
use crate::source::Act;
use crate::source::sql::SqlSpec;

/// Where something is said: a server, and the path of a table in it.
pub(super) type Spot = (String, String);

/// Everything that something that acts is made of, also what it takes from other tables.
#[derive(Clone, PartialEq)]
pub(super) struct Recipe {
    pub(super) does: Does,
    pub(super) schema: Value,
    pub(super) output: Output,
    /// A statement with its limits, most of which its connection may say.
    pub(super) statement: Option<SqlSpec>,
    /// The connection it uses, as the one it is: an equal one would not do.
    pub(super) connection: usize,
}

/// What was made, and of what.
type Made = (Recipe, Arc<dyn Act>);

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Reuse {
    before: Arc<HashMap<Spot, Made>>,
    now: HashMap<Spot, Made>,
}

impl Reuse {
    /// What was made of the same before.
    pub(super) fn find(&self, spot: &Spot, recipe: &Recipe) -> Option<Arc<dyn Act>> {
        self.before.get(spot).filter(|(known, _)| known == recipe).map(|(_, act)| Arc::clone(act))
    }

    pub(super) fn keep(&mut self, spot: Spot, recipe: Recipe, act: &Arc<dyn Act>) {
        self.now.insert(spot, (recipe, Arc::clone(act)));
    }

    /// What was made is what was before, from now on; what was not said again is forgotten.
    pub(super) fn settle(&mut self) {
        self.before = Arc::new(std::mem::take(&mut self.now));
    }

    pub(super) fn clear(&mut self) {
        self.before = Arc::default();
    }
}
