//! Caches the results of a tool. Equal calls get the cached result, and calls that arrive while the first one runs wait for
//! its result.
//!
//! Only successful results are cached, up to a number of results and bytes; the oldest are evicted first. A reload of the
//! configuration clears the cache.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::watch;
use toolgate::model::ToolOutput;
use toolgate::{Context, HandlerError};

use crate::clock::Stopwatch;

/// Limits of the cache of one tool.
const MAX_CACHED_RESULTS: usize = 1000;
const MAX_CACHE_BYTES: usize = 16 << 20;
/// Larger results are not cached.
const MAX_RESULT_BYTES: usize = 1 << 20;
/// Results of calls with longer keys are not cached.
const MAX_KEY_BYTES: usize = 16 << 10;

/// The properties of the caller that a result depends on, in addition to the arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VaryBy {
    pub(super) is_public: bool,
    pub(super) headers: Vec<String>,
    pub(super) attributes: Vec<String>,
}

impl VaryBy {
    /// The result is the same for every caller.
    pub(super) fn public() -> VaryBy {
        VaryBy { is_public: true, ..VaryBy::default() }
    }

    fn write(&self, cx: &Context, key: &mut String) {
        if self.is_public {
            return;
        }
        let _ = write!(key, "|{:?}", cx.principal().id());
        for name in &self.headers {
            let values: Vec<&[u8]> =
                cx.headers().get_all(name).iter().map(|value| value.as_bytes()).collect();
            let _ = write!(key, "|{values:?}");
        }
        for name in &self.attributes {
            let value = cx.principal().attribute(name).map(Value::to_string);
            let _ = write!(key, "|{value:?}");
        }
    }
}

/// The result of a call, shared with the calls that waited for it.
type SharedResult = Arc<Result<ToolOutput, String>>;

/// The cached results of one tool; see the [module](self).
pub(super) struct ResultCache {
    ttl: Duration,
    vary_by: VaryBy,
    state: Mutex<CacheState>,
}

#[derive(Default)]
struct CacheState {
    slots: HashMap<Arc<str>, CacheSlot>,
    /// Keys of the `Ready` slots, the oldest first.
    order: VecDeque<Arc<str>>,
    bytes: usize,
}

enum CacheSlot {
    /// A call is running.
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

    /// Returns the cached result of an equal call, or runs the call.
    ///
    /// Cancel safe: yes, because a call that waits for a cancelled one runs in its place.
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
        let sender = loop {
            match self.lookup(&key) {
                Ok(result) => return to_tool_result(&result),
                Err(CacheMiss::Vacant(sender)) => break sender,
                Err(CacheMiss::Running(mut receiver)) => {
                    if let Ok(result) = receiver.wait_for(Option::is_some).await
                        && let Some(result) = result.as_ref()
                    {
                        return to_tool_result(result);
                    }
                    // The running call was cancelled.
                }
            }
        };
        let guard = RunGuard { cache: self, key };
        let result: SharedResult = Arc::new(run.await.map_err(|error| error.to_string()));
        guard.store_result(&result);
        sender.send_replace(Some(Arc::clone(&result)));
        to_tool_result(&result)
    }

    fn lookup(&self, key: &Arc<str>) -> Result<SharedResult, CacheMiss> {
        let mut state = self.lock_state();
        match state.slots.get(key) {
            Some(CacheSlot::Ready { result, age, .. }) if age.elapsed() < self.ttl => {
                return Ok(Arc::clone(result));
            }
            Some(CacheSlot::Ready { .. }) => state.remove(key),
            // A slot whose sender is gone belongs to a cancelled call, which is about to remove it.
            Some(CacheSlot::Running(receiver)) if receiver.has_changed().is_ok() => {
                return Err(CacheMiss::Running(receiver.clone()));
            }
            Some(CacheSlot::Running(_)) | None => {}
        }
        let (sender, receiver) = watch::channel(None);
        state.slots.insert(Arc::clone(key), CacheSlot::Running(receiver));
        Err(CacheMiss::Vacant(sender))
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

    /// Removes expired results, and then the oldest until the limits hold.
    fn evict(&mut self, ttl: Duration) {
        while let Some(oldest) = self.order.front().cloned() {
            let is_expired = match self.slots.get(&oldest) {
                Some(CacheSlot::Ready { age, .. }) => age.elapsed() >= ttl,
                _ => true,
            };
            if !is_expired && self.order.len() <= MAX_CACHED_RESULTS && self.bytes <= MAX_CACHE_BYTES {
                return;
            }
            self.order.pop_front();
            if let Some(CacheSlot::Ready { bytes, .. }) = self.slots.remove(&oldest) {
                self.bytes -= bytes;
            }
        }
    }
}

/// Removes the `Running` slot when the call ends or is cancelled.
struct RunGuard<'a> {
    cache: &'a ResultCache,
    key: Arc<str>,
}

impl RunGuard<'_> {
    fn store_result(&self, result: &SharedResult) {
        let Ok(output) = &**result else { return };
        let structured =
            output.structured_content.as_ref().map_or(0, |structured| structured.as_bytes().len());
        let texts = output.content.iter().map(super::limits::content_bytes).sum::<usize>();
        let bytes = self.key.len() + structured + texts;
        if output.is_error || bytes > MAX_RESULT_BYTES {
            return;
        }
        let age = Stopwatch::start();
        let mut state = self.cache.lock_state();
        state
            .slots
            .insert(Arc::clone(&self.key), CacheSlot::Ready { result: Arc::clone(result), bytes, age });
        state.order.push_back(Arc::clone(&self.key));
        state.bytes += bytes;
        state.evict(self.cache.ttl);
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.lock_state();
        if matches!(state.slots.get(&self.key), Some(CacheSlot::Running(_))) {
            state.slots.remove(&self.key);
        }
    }
}

fn to_tool_result(result: &SharedResult) -> Result<ToolOutput, HandlerError> {
    (**result).clone().map_err(HandlerError::new)
}

/// Writes the same text for equal arguments, regardless of their order.
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
