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
const MOST: usize = 1000;
const MOST_BYTES: usize = 16 << 20;
const LARGEST: usize = 1 << 20;
/// Calls with longer arguments are not remembered.
const LONGEST: usize = 16 << 10;

/// What of a caller a result depends on, beside the arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Whom {
    pub(super) is_anybody: bool,
    pub(super) headers: Vec<String>,
    pub(super) attributes: Vec<String>,
}

impl Whom {
    /// Nothing: everybody gets the same.
    pub(super) fn anybody() -> Whom {
        Whom { is_anybody: true, ..Whom::default() }
    }

    fn write(&self, cx: &Context, key: &mut String) {
        if self.is_anybody {
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
type Outcome = Arc<Result<ToolOutput, String>>;

/// See the module.
pub(super) struct Memory {
    life: Duration,
    whom: Whom,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    known: HashMap<Arc<str>, Slot>,
    /// What is kept, the oldest first.
    order: VecDeque<Arc<str>>,
    bytes: usize,
}

enum Slot {
    /// Somebody is at it.
    Begun(watch::Receiver<Option<Outcome>>),
    Kept {
        outcome: Outcome,
        bytes: usize,
        since: Stopwatch,
    },
}

enum Step {
    Wait(watch::Receiver<Option<Outcome>>),
    Go(watch::Sender<Option<Outcome>>),
}

impl Memory {
    pub(super) fn new(life: Duration, whom: Whom) -> Memory {
        Memory { life, whom, shelf: Mutex::default() }
    }

    /// What was said to the same question, or what is said now.
    ///
    /// Cancel safe: yes; somebody who waits goes on in its place.
    pub(super) async fn recall(
        &self,
        cx: &Context,
        arguments: &Map<String, Value>,
        run: impl Future<Output = Result<ToolOutput, HandlerError>>,
    ) -> Result<ToolOutput, HandlerError> {
        let mut key = String::new();
        write_map(arguments, &mut key);
        self.whom.write(cx, &mut key);
        if key.len() > LONGEST {
            return run.await;
        }
        let key: Arc<str> = key.into();
        let begun = loop {
            match self.step(&key) {
                Ok(outcome) => return told(&outcome),
                Err(Step::Go(begun)) => break begun,
                Err(Step::Wait(mut ended)) => {
                    if let Ok(outcome) = ended.wait_for(Option::is_some).await
                        && let Some(outcome) = outcome.as_ref()
                    {
                        return told(outcome);
                    }
                    // Whoever was at it left before it was done.
                }
            }
        };
        let landing = Landing { memory: self, key };
        let outcome: Outcome = Arc::new(run.await.map_err(|error| error.to_string()));
        landing.keep(&outcome);
        begun.send_replace(Some(Arc::clone(&outcome)));
        told(&outcome)
    }

    fn step(&self, key: &Arc<str>) -> Result<Outcome, Step> {
        let mut shelf = self.shelf();
        match shelf.known.get(key) {
            Some(Slot::Kept { outcome, since, .. }) if since.took() < self.life => {
                return Ok(Arc::clone(outcome));
            }
            Some(Slot::Kept { .. }) => shelf.forget(key),
            // One whose sender is gone was left, and is about to be taken away.
            Some(Slot::Begun(ended)) if ended.has_changed().is_ok() => return Err(Step::Wait(ended.clone())),
            Some(Slot::Begun(_)) | None => {}
        }
        let (begun, ended) = watch::channel(None);
        shelf.known.insert(Arc::clone(key), Slot::Begun(ended));
        Err(Step::Go(begun))
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn forget(&mut self, key: &Arc<str>) {
        if let Some(Slot::Kept { bytes, .. }) = self.known.remove(key) {
            self.bytes -= bytes;
            self.order.retain(|known| known != key);
        }
    }

    /// Makes room: what is over leaves, and then the oldest.
    fn tidy(&mut self, life: Duration) {
        while let Some(oldest) = self.order.front().cloned() {
            let is_over = match self.known.get(&oldest) {
                Some(Slot::Kept { since, .. }) => since.took() >= life,
                _ => true,
            };
            if !is_over && self.order.len() <= MOST && self.bytes <= MOST_BYTES {
                return;
            }
            self.order.pop_front();
            if let Some(Slot::Kept { bytes, .. }) = self.known.remove(&oldest) {
                self.bytes -= bytes;
            }
        }
    }
}

/// Takes the mark away that somebody is at it, however that ends.
struct Landing<'a> {
    memory: &'a Memory,
    key: Arc<str>,
}

impl Landing<'_> {
    fn keep(&self, outcome: &Outcome) {
        let Ok(output) = &**outcome else { return };
        let structured = output.structured_content.as_ref().map_or(0, |structured| structured.as_bytes().len());
        let texts = output.content.iter().map(super::bounds::size).sum::<usize>();
        let bytes = self.key.len() + structured + texts;
        if output.is_error || bytes > LARGEST {
            return;
        }
        let since = Stopwatch::start();
        let mut shelf = self.memory.shelf();
        shelf.known.insert(Arc::clone(&self.key), Slot::Kept { outcome: Arc::clone(outcome), bytes, since });
        shelf.order.push_back(Arc::clone(&self.key));
        shelf.bytes += bytes;
        shelf.tidy(self.memory.life);
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let mut shelf = self.memory.shelf();
        if matches!(shelf.known.get(&self.key), Some(Slot::Begun(_))) {
            shelf.known.remove(&self.key);
        }
    }
}

fn told(outcome: &Outcome) -> Result<ToolOutput, HandlerError> {
    (**outcome).clone().map_err(HandlerError::new)
}

/// The same text for the same arguments, in whatever order they came.
fn write_map(map: &Map<String, Value>, out: &mut String) {
    let mut members: Vec<_> = map.iter().collect();
    members.sort_by_key(|(name, _)| *name);
    out.push('{');
    for (name, value) in members {
        let _ = write!(out, "{name:?}:");
        write_value(value, out);
        out.push(',');
    }
    out.push('}');
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => write_map(map, out),
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_value(item, out);
                out.push(',');
            }
            out.push(']');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}
