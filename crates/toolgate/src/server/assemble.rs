//! Turns a configuration into the parts of a running server, and connects them.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

#[cfg(feature = "http")]
use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;
use toolgate_wire::model::{ServerCapabilities, TaskCapability};
use toolgate_wire::{RawJson, meta_key};

use super::config::Config;
use super::{Inner, Server};
use crate::cluster_bus::ClusterBus;
use crate::dispatch::{Dispatcher, ToolTaskExecutor};
use crate::engine::Engine;
use crate::handler::HandlerEnv;
use crate::handler::layer::Layers;
use crate::observe::{Events, Observer};
use crate::protocol::{ClusterSessions, Protocol, ProtocolDeps, ServerInfo, Sessions};
use crate::registry::{Features, Pager, Registry};
use crate::seal::Seal;
use crate::store::{MemoryStore, ScopedStore};
use crate::subscriptions::Subscriptions;
use crate::task::{TaskDeps, Tasks};
#[cfg(feature = "http")]
use crate::transport::http::ServerService;
use crate::util::clock::Clock;
use crate::util::option_cell::OptionCell;
use crate::util::poll_watch::PollWatch;
use crate::util::sharded::ShardedArc;

/// Tasks stop this much before the shutdown timeout, so that their final state can still be stored.
const TASK_SHUTDOWN_MARGIN: Duration = Duration::from_millis(500);

/// Builds the server. The configuration has been checked.
pub(super) fn assemble(config: Config) -> Server {
    let subscriptions = Arc::new(Subscriptions::default());
    let has_keys = config.seal.is_some();
    let seal = config.seal.unwrap_or_else(Seal::random);
    let registry =
        Arc::new(Registry::new(config.catalog, config.announced_features, Arc::clone(&subscriptions)));
    let name: Arc<str> = config.info.name.as_str().into();
    let store = config.store.unwrap_or_else(|| Arc::new(MemoryStore::new()));
    let scoped_store = ScopedStore::new(store, &name);
    let server_info = ServerInfo::new(config.info, config.instructions, config.cache);
    let capabilities_fn = Box::new({
        let registry = Arc::clone(&registry);
        move || capabilities(registry.features())
    });
    let sessions = Arc::new(Sessions::new(config.session_limits));
    let clock = Clock::system();
    let drain = CancellationToken::new();
    let events = Events::for_server(config.events.as_ref());
    let observer = Observer::new(Arc::clone(&name), clock.clone(), events);
    if !config.is_stats_enabled {
        observer.stats.disable();
    }
    let default_profile = Arc::new(OptionCell::new(config.default_profile));
    let handler_env = Arc::new(HandlerEnv {
        states: config.states,
        subscriptions: Arc::clone(&subscriptions),
        store: Some(scoped_store.clone()),
        server: OnceLock::new(),
        layers: (!config.layers.is_empty())
            .then(|| Layers { server: Arc::clone(&name), layers: config.layers.into() }),
        poll_watch: PollWatch::default(),
    });
    let executor = ToolTaskExecutor {
        registry: Arc::clone(&registry),
        env: Arc::clone(&handler_env),
        is_strict: config.is_strict,
        observer: observer.clone(),
        server: Arc::clone(&name),
    };
    let tasks = Arc::new(Tasks::new(TaskDeps {
        store: scoped_store.clone(),
        executor: Arc::new(executor),
        subscriptions: Arc::clone(&subscriptions),
        clock: clock.clone(),
        seal: seal.clone(),
        limits: config.task_limits,
        drain: drain.clone(),
        shutdown_timeout: config.shutdown_timeout.saturating_sub(TASK_SHUTDOWN_MARGIN),
    }));
    let cluster_sessions = scoped_store.is_shared().then(|| {
        let bus = ClusterBus::new(scoped_store.clone());
        let (sessions, subscriptions) = (Arc::clone(&sessions), Arc::clone(&subscriptions));
        // Random keys are exchanged with the other processes. Configured keys are not: they are either the same
        // everywhere, or differ on purpose.
        let seal = (!has_keys).then(|| seal.clone());
        let (clock, drain, tasks) = (clock.clone(), drain.clone(), Arc::clone(&tasks));
        ClusterSessions::new(bus, sessions, subscriptions, seal, clock, drain, tasks)
    });
    let protocol = Protocol::new(ProtocolDeps {
        server_info,
        capabilities: capabilities_fn,
        sessions,
        cluster: cluster_sessions,
        seal: seal.clone(),
        clock,
        subscriptions,
        default_profile: Arc::clone(&default_profile),
        drain,
        tasks: Arc::clone(&tasks),
        max_result_bytes: config.max_result_bytes,
    });
    let dispatcher = Dispatcher {
        registry,
        env: ShardedArc::new(Arc::clone(&handler_env)),
        tasks,
        pager: Pager { size: config.page_size, cache: config.cache, seal },
        timeout: config.timeout,
        is_strict: config.is_strict,
        default_profile,
        roots: Mutex::new(config.roots.map(Arc::new)),
    };
    let engine = Arc::new(Engine {
        protocol,
        dispatcher,
        scoped_store,
        limits: config.message_limits,
        dialect: OptionCell::new(config.dialect),
        observer,
        is_started: AtomicBool::new(false),
    });
    #[cfg(feature = "http")]
    let guards = Arc::new(ArcSwap::from_pointee(ShardedArc::new(config.guards)));
    let server = Server(Arc::new(Inner {
        #[cfg(feature = "http")]
        service: ServerService::new(Arc::clone(&engine), Arc::clone(&guards), config.http_options),
        #[cfg(feature = "http")]
        guards,
        engine,
        shutdown_timeout: config.shutdown_timeout,
        config_errors: Arc::default(),
        #[cfg(feature = "http")]
        listen_options: config.listen_options.shutdown_timeout(config.shutdown_timeout),
    }));
    // Set once, here. Weak, because the server owns the environment.
    let _ = handler_env.server.set(Box::new(server.downgrade()));
    server
}

/// Derives the capabilities to announce from the items that are registered, so that the two cannot disagree.
fn capabilities(features: Features) -> ServerCapabilities {
    let mut capabilities = ServerCapabilities::default();
    capabilities.tools = features.tools.then_some(true);
    capabilities.prompts = features.prompts.then_some(true);
    capabilities.resources = features.resources.then_some(true);
    capabilities.resource_updates = features.resources;
    capabilities.completions = features.completions;
    capabilities.logging = true;
    if features.tasks {
        let mut tasks = TaskCapability::default();
        (tasks.list, tasks.cancel, tasks.tools) = (true, true, true);
        capabilities.tasks = Some(tasks);
        capabilities.extensions.insert(meta_key::TASKS_EXTENSION.to_owned(), RawJson::empty_object());
    }
    capabilities
}
