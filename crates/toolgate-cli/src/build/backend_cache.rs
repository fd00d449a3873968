//! What acts, kept from one configuration to the next: what is described as before is not made again.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::config::{BackendConfig, OutputConfig};
use crate::source::ToolBackend;
use crate::source::sql::SqlSpec;

/// Where something is said: a server, and the path of a table in it.
pub(super) type ToolPath = (String, String);

/// Everything that something that acts is made of, also what it takes from other tables.
#[derive(Clone, PartialEq)]
pub(super) struct BackendInputs {
    pub(super) backend: BackendConfig,
    pub(super) schema: Value,
    pub(super) output: OutputConfig,
    /// A statement with its limits, most of which its connection may say.
    pub(super) statement: Option<SqlSpec>,
    /// The connection it uses, as the one it is: an equal one would not do.
    pub(super) connection: usize,
}

/// What was made, and of what.
type CachedBackend = (BackendInputs, Arc<dyn ToolBackend>);

/// See the module.
#[derive(Clone, Default)]
pub(super) struct BackendCache {
    previous: Arc<HashMap<ToolPath, CachedBackend>>,
    current: HashMap<ToolPath, CachedBackend>,
}

impl BackendCache {
    /// What was made of the same before.
    pub(super) fn get(&self, spot: &ToolPath, recipe: &BackendInputs) -> Option<Arc<dyn ToolBackend>> {
        self.previous.get(spot).filter(|(known, _)| known == recipe).map(|(_, act)| Arc::clone(act))
    }

    pub(super) fn insert(&mut self, spot: ToolPath, recipe: BackendInputs, act: &Arc<dyn ToolBackend>) {
        self.current.insert(spot, (recipe, Arc::clone(act)));
    }

    /// What was made is what was before, from now on; what was not said again is forgotten.
    pub(super) fn rotate(&mut self) {
        self.previous = Arc::new(std::mem::take(&mut self.current));
    }

    pub(super) fn clear(&mut self) {
        self.previous = Arc::default();
    }
}
