//! Results that are kept for a while: equal calls are answered with what the first one gave, and those that come while it
//! runs wait for it.
//!
//! Kept is what went well, for at most so many calls and bytes; the oldest leaves first. A change of the configuration
//! forgets everything.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::watch;
use toolgate::model::ToolOutput;
use toolgate::{Context, HandlerError};

use crate::clock::Stopwatch;

/// How many results of one tool are kept, how many bytes of them, and how large one may be.
const MAX_CACHED_RESULTS: usize = 1000;
const MAX_CACHE_BYTES: usize = 16 << 20;
const MAX_RESULT_BYTES: usize = 1 << 20;
/// Calls with longer arguments are not remembered.
const MAX_KEY_BYTES: usize = 16 << 10;

/// What of a caller a result depends on, beside the arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VaryBy {
    pub(super) is_public: bool,
    pub(super) headers: Vec<String>,
    pub(super) attributes: Vec<String>,
}

impl VaryBy {
    /// Nothing: everybody gets the same.
    pub(super) fn public() -> VaryBy {
        VaryBy { is_public: true, ..VaryBy::default() }
    }

    fn write(&self, cx: &Context, key: &mut String) {
        if self.is_public {
            return;
        }
        let _ = write!(key, "|{:?}", cx.principal().id());
        for name in &self.headers {
            let sent: Vec<&[u8]> = cx.headers().get_all(name).iter().map(|value| value.as_bytes()).collect();
            let _ = write!(key, "|{sent:?}");
        }
        for name in &self.attributes {
            let known = cx.principal().attribute(name).map(Value::to_string);
            let _ = write!(key, "|{known:?}");
        }
    }
}

/// What came of a call, for those who waited for it.
type SharedResult = Arc<Result<ToolOutput, String>>;

/// See the module.
pub(super) struct ResultCache {
    ttl: Duration,
    vary_by: VaryBy,
    state: Mutex<CacheState>,
}

#[derive(Default)]
struct CacheState {
    slots: HashMap<Arc<str>, CacheSlot>,
    /// What is kept, the oldest first.
    order: VecDeque<Arc<str>>,
    bytes: usize,
}

enum CacheSlot {
    /// Somebody is at it.
    Running(watch::Receiver<Option<SharedResult>>),
    Ready {
        result: SharedResult,
        bytes: usize,
        age: Stopwatch,
    },
}

enum CacheMiss {
    Running(watch::Receiver<Option<SharedResult>>),
    Vacant(watch::Sender<Option<SharedResult>>),
}

impl ResultCache {
    pub(super) fn new(ttl: Duration, vary_by: VaryBy) -> ResultCache {
        ResultCache { ttl, vary_by, state: Mutex::default() }
    }

    /// What was said to the same question, or what is said now.
    ///
    /// Cancel safe: yes; somebody who waits goes on in its place.
    pub(super) async fn get_or_run(
        &self,
        cx: &Context,
        arguments: &Map<String, Value>,
        run: impl Future<Output = Result<ToolOutput, HandlerError>>,
    ) -> Result<ToolOutput, HandlerError> {
        let mut key = String::new();
        write_canonical_map(arguments, &mut key);
        self.vary_by.write(cx, &mut key);
        if key.len() > MAX_KEY_BYTES {
            return run.await;
        }
        let key: Arc<str> = key.into();
        let begun = loop {
            match self.lookup(&key) {
                Ok(outcome) => return to_tool_result(&outcome),
                Err(CacheMiss::Vacant(begun)) => break begun,
                Err(CacheMiss::Running(mut ended)) => {
                    if let Ok(outcome) = ended.wait_for(Option::is_some).await
                        && let Some(outcome) = outcome.as_ref()
                    {
                        return to_tool_result(outcome);
                    }
                    // Whoever was at it left before it was done.
                }
            }
        };
        let landing = RunGuard { cache: self, key };
        let outcome: SharedResult = Arc::new(run.await.map_err(|error| error.to_string()));
        landing.store_result(&outcome);
        begun.send_replace(Some(Arc::clone(&outcome)));
        to_tool_result(&outcome)
    }

    fn lookup(&self, key: &Arc<str>) -> Result<SharedResult, CacheMiss> {
        let mut shelf = self.lock_state();
        match shelf.slots.get(key) {
            Some(CacheSlot::Ready { result: outcome, age: since, .. }) if since.elapsed() < self.ttl => {
                return Ok(Arc::clone(outcome));
            }
            Some(CacheSlot::Ready { .. }) => shelf.remove(key),
            // One whose sender is gone was left, and is about to be taken away.
            Some(CacheSlot::Running(ended)) if ended.has_changed().is_ok() => {
                return Err(CacheMiss::Running(ended.clone()));
            }
            Some(CacheSlot::Running(_)) | None => {}
        }
        let (begun, ended) = watch::channel(None);
        shelf.slots.insert(Arc::clone(key), CacheSlot::Running(ended));
        Err(CacheMiss::Vacant(begun))
    }

    fn lock_state(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    fn remove(&mut self, key: &Arc<str>) {
        if let Some(CacheSlot::Ready { bytes, .. }) = self.slots.remove(key) {
            self.bytes -= bytes;
            self.order.retain(|known| known != key);
        }
    }

    /// Makes room: what is over leaves, and then the oldest.
    fn evict(&mut self, life: Duration) {
        while let Some(oldest) = self.order.front().cloned() {
            let is_over = match self.slots.get(&oldest) {
                Some(CacheSlot::Ready { age: since, .. }) => since.elapsed() >= life,
                _ => true,
            };
            if !is_over && self.order.len() <= MAX_CACHED_RESULTS && self.bytes <= MAX_CACHE_BYTES {
                return;
            }
            self.order.pop_front();
            if let Some(CacheSlot::Ready { bytes, .. }) = self.slots.remove(&oldest) {
                self.bytes -= bytes;
            }
        }
    }
}

/// Takes the mark away that somebody is at it, however that ends.
struct RunGuard<'a> {
    cache: &'a ResultCache,
    key: Arc<str>,
}

impl RunGuard<'_> {
    fn store_result(&self, outcome: &SharedResult) {
        let Ok(output) = &**outcome else { return };
        let structured =
            output.structured_content.as_ref().map_or(0, |structured| structured.as_bytes().len());
        let texts = output.content.iter().map(super::limits::content_bytes).sum::<usize>();
        let bytes = self.key.len() + structured + texts;
        if output.is_error || bytes > MAX_RESULT_BYTES {
            return;
        }
        let since = Stopwatch::start();
        let mut shelf = self.cache.lock_state();
        shelf.slots.insert(
            Arc::clone(&self.key),
            CacheSlot::Ready { result: Arc::clone(outcome), bytes, age: since },
        );
        shelf.order.push_back(Arc::clone(&self.key));
        shelf.bytes += bytes;
        shelf.evict(self.cache.ttl);
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        let mut shelf = self.cache.lock_state();
        if matches!(shelf.slots.get(&self.key), Some(CacheSlot::Running(_))) {
            shelf.slots.remove(&self.key);
        }
    }
}

fn to_tool_result(outcome: &SharedResult) -> Result<ToolOutput, HandlerError> {
    (**outcome).clone().map_err(HandlerError::new)
}

/// The same text for the same arguments, in whatever order they came.
fn write_canonical_map(map: &Map<String, Value>, out: &mut String) {
    let mut members: Vec<_> = map.iter().collect();
    members.sort_by_key(|(name, _)| *name);
    out.push('{');
    for (name, value) in members {
        let _ = write!(out, "{name:?}:");
        write_canonical_value(value, out);
        out.push(',');
    }
    out.push('}');
}

fn write_canonical_value(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => write_canonical_map(map, out),
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_canonical_value(item, out);
                out.push(',');
            }
            out.push(']');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}
