//! The settings that a builder collects, with their defaults.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use toolgate_wire::model::{CacheHint, Implementation};
use toolgate_wire::{Dialect, Limits};

use crate::error::{BuildProblem, ProblemKind};
#[cfg(feature = "http")]
use crate::guard::Guards;
use crate::handler::HandlerRequirements;
use crate::handler::layer::LayerFn;
use crate::observe::Events;
use crate::profile::Profile;
use crate::protocol::SessionLimits;
use crate::registry::{Features, Roots, Snapshot};
use crate::seal::Seal;
use crate::store::Store;
use crate::task::TaskLimits;
#[cfg(feature = "http")]
use crate::transport::{http::HttpOptions, listen};

/// The configuration of a server that is not built yet.
pub(super) struct Config {
    pub(super) info: Implementation,
    pub(super) instructions: Option<String>,
    pub(super) catalog: Snapshot,
    /// Capabilities announced to clients even while there are no items of that kind.
    pub(super) announced_features: Features,
    pub(super) states: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    /// The first is the outermost.
    pub(super) layers: Vec<LayerFn>,
    pub(super) message_limits: Limits,
    pub(super) max_result_bytes: usize,
    pub(super) page_size: usize,
    pub(super) cache: CacheHint,
    pub(super) timeout: Duration,
    pub(super) shutdown_timeout: Duration,
    pub(super) session_limits: SessionLimits,
    pub(super) task_limits: TaskLimits,
    /// `None`: random keys.
    pub(super) seal: Option<Seal>,
    /// `None`: a store in memory.
    pub(super) store: Option<Arc<dyn Store>>,
    pub(super) events: Option<Events>,
    pub(super) is_stats_enabled: bool,
    pub(super) is_strict: bool,
    pub(super) dialect: Option<Dialect>,
    pub(super) default_profile: Option<Profile>,
    pub(super) roots: Option<Roots>,
    #[cfg(feature = "http")]
    pub(super) guards: Guards,
    #[cfg(feature = "http")]
    pub(super) http_options: HttpOptions,
    #[cfg(feature = "http")]
    pub(super) listen_options: listen::Options,
    /// The requirements of each handler, by the item's kind and name. Checked at the end, because state may be added later.
    pub(super) requirements: Vec<(ProblemKind, String, HandlerRequirements)>,
    /// All configuration errors found so far.
    pub(super) errors: Vec<BuildProblem>,
}

impl Config {
    pub(super) fn new(name: String, version: String) -> Config {
        Config {
            info: Implementation::new(name, version),
            instructions: None,
            catalog: Snapshot::default(),
            announced_features: Features::default(),
            states: HashMap::new(),
            layers: Vec::new(),
            message_limits: Limits::default(),
            max_result_bytes: 16 << 20,
            page_size: 1000,
            cache: CacheHint::default(),
            timeout: Duration::from_secs(60),
            shutdown_timeout: Duration::from_secs(30),
            session_limits: SessionLimits::default(),
            task_limits: TaskLimits::default(),
            seal: None,
            store: None,
            events: None,
            is_stats_enabled: true,
            is_strict: false,
            dialect: None,
            default_profile: None,
            roots: None,
            #[cfg(feature = "http")]
            guards: Guards::default(),
            #[cfg(feature = "http")]
            http_options: HttpOptions::default(),
            #[cfg(feature = "http")]
            listen_options: listen::Options::default(),
            requirements: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Records the error of a setting, if there is one.
    pub(super) fn record(&mut self, checked: Result<(), String>) {
        self.errors.extend(checked.err().map(BuildProblem::general));
    }

    /// Makes the checks that are only possible once every setter has been called.
    pub(super) fn check(&mut self) {
        for (kind, name, requirements) in std::mem::take(&mut self.requirements) {
            let missing = requirements.find_missing(|state| self.states.contains_key(state));
            self.errors.extend(missing.map(|message| BuildProblem::new(kind, &name, message)));
        }
        #[cfg(feature = "http")]
        {
            let checked = self.guards.check();
            self.record(checked);
        }
    }
}
