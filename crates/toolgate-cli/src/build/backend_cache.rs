//! Keeps the backends of tools across reloads: a backend whose inputs are unchanged is not built again.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use toolgate_sources::source::ToolBackend;
use toolgate_sources::source::sql::SqlSpec;

use crate::config::{BackendConfig, OutputConfig};

/// The names of a server and of a tool.
pub(super) type ToolPath = (String, String);

/// Everything that a backend is built from, including settings of its connection.
#[derive(Clone, PartialEq)]
pub(super) struct BackendInputs {
    pub(super) backend: BackendConfig,
    pub(super) schema: Value,
    pub(super) output: OutputConfig,
    /// A statement with its limits, which may come from its connection.
    pub(super) statement: Option<SqlSpec>,
    /// The address of the connection: a backend must not be reused with another connection that has equal settings.
    pub(super) connection: usize,
}

/// A backend and its inputs.
type CachedBackend = (BackendInputs, Arc<dyn ToolBackend>);

/// The backends of the previous and of the current configuration.
#[derive(Clone, Default)]
pub(super) struct BackendCache {
    previous: Arc<HashMap<ToolPath, CachedBackend>>,
    current: HashMap<ToolPath, CachedBackend>,
}

impl BackendCache {
    /// Returns the previous backend of a tool if its inputs are the same.
    pub(super) fn get(&self, path: &ToolPath, inputs: &BackendInputs) -> Option<Arc<dyn ToolBackend>> {
        self.previous.get(path).filter(|(known, _)| known == inputs).map(|(_, backend)| Arc::clone(backend))
    }

    pub(super) fn insert(&mut self, path: ToolPath, inputs: BackendInputs, backend: &Arc<dyn ToolBackend>) {
        self.current.insert(path, (inputs, Arc::clone(backend)));
    }

    /// Makes the current backends the previous ones. Backends that were not inserted again are dropped.
    pub(super) fn rotate(&mut self) {
        self.previous = Arc::new(std::mem::take(&mut self.current));
    }

    pub(super) fn clear(&mut self) {
        self.previous = Arc::default();
    }
}
