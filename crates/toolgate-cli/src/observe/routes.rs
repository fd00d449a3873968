//! How long each kind of request takes.
//!
//! A route is what is asked and of whom: `tools/call /shop/find_orders`, `resources/read /shop/orders://{id}`. The path of
//! HTTP would tell little here, because all requests to a server have the same one.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Value, json};

use super::{brief, lock};
use crate::clock::{iso8601, unix_millis};

/// How many routes are kept apart, unless somebody says otherwise.
const MOST: usize = 200;

/// The most that somebody can say.
pub(crate) const LIMIT: usize = 5000;

/// Where what is one too many is counted.
const OTHERS: &str = "(other)";

/// Sixteen steps for each doubling: a percentile is off by 3 % at most.
const STEPS: usize = 16;

/// Microseconds up to an hour and a bit: 2^32.
const N_STEPS: usize = (32 - 4 + 1) * STEPS;

/// See the module.
pub(crate) struct Routes {
    normalizes: AtomicBool,
    most: AtomicUsize,
    routes: Mutex<HashMap<String, Route>>,
}

#[derive(Default)]
struct Route {
    count: u64,
    errors: u64,
    micros: u64,
    longest: u64,
    last_seen: u64,
    last_error: Option<(u64, String)>,
    histogram: Histogram,
}

/// How often each length of time was seen. Grows with the longest, to 2 KiB.
#[derive(Default)]
struct Histogram(Vec<u32>);

/// By what routes are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Count,
    ErrorRate,
    P99,
    Average,
    LastSeen,
}

impl Order {
    pub(crate) fn named(name: &str) -> Option<Order> {
        Some(match name {
            "count" => Order::Count,
            "errorRate" => Order::ErrorRate,
            "p99" => Order::P99,
            "avgLatency" => Order::Average,
            "lastSeen" => Order::LastSeen,
            _ => return None,
        })
    }
}

impl Routes {
    pub(crate) fn new() -> Routes {
        Routes { normalizes: AtomicBool::new(true), most: AtomicUsize::new(MOST), routes: Mutex::default() }
    }

    /// A request was answered. `error` says what was wrong, in a word.
    pub(crate) fn note(
        &self,
        method: &str,
        server: &str,
        subject: &str,
        took: Duration,
        error: Option<String>,
    ) {
        let key = self.key(method, server, subject);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let now = unix_millis();
        let mut routes = lock(&self.routes);
        let is_full = routes.len() >= self.most.load(Relaxed);
        let key = if is_full && !routes.contains_key(&key) { OTHERS.to_owned() } else { key };
        let route = routes.entry(key).or_default();
        route.count += 1;
        route.micros = route.micros.saturating_add(micros);
        route.longest = route.longest.max(micros);
        route.last_seen = now;
        route.histogram.add(micros);
        if let Some(error) = error {
            route.errors += 1;
            route.last_error = Some((now, brief(&error)));
        }
    }

    fn key(&self, method: &str, server: &str, subject: &str) -> String {
        let mut key = String::with_capacity(method.len() + server.len() + subject.len() + 3);
        key.push_str(method);
        key.push_str(" /");
        key.push_str(server);
        if !subject.is_empty() {
            key.push('/');
            if self.normalizes.load(Relaxed) {
                normalise_into(subject, &mut key);
            } else {
                key.push_str(subject);
            }
        }
        brief(&key)
    }

    /// All routes, the first by this order first.
    pub(crate) fn all(&self, order: Order, limit: usize) -> Vec<Value> {
        let routes = lock(&self.routes);
        let mut all: Vec<(&String, &Route)> = routes.iter().collect();
        let rank = |route: &Route| match order {
            Order::Count => route.count as f64,
            Order::ErrorRate => route.error_rate(),
            Order::P99 => route.histogram.percentile(99.0),
            Order::Average => route.average(),
            Order::LastSeen => route.last_seen as f64,
        };
        all.sort_by(|(a_key, a), (b_key, b)| rank(b).total_cmp(&rank(a)).then_with(|| a_key.cmp(b_key)));
        all.into_iter().take(limit).map(|(key, route)| route.shown(key)).collect()
    }

    /// One route, by its name.
    pub(crate) fn one(&self, key: &str) -> Option<Value> {
        lock(&self.routes).get(key).map(|route| route.shown(key))
    }

    pub(crate) fn summary(&self) -> Value {
        let routes = lock(&self.routes);
        let (count, errors, micros) =
            routes.values().fold((0, 0, 0_u64), |(count, errors, micros), route| {
                (count + route.count, errors + route.errors, micros.saturating_add(route.micros))
            });
        let mut all = Histogram::default();
        for route in routes.values() {
            all.join(&route.histogram);
        }
        let rate = if count == 0 { 0.0 } else { errors as f64 / count as f64 };
        json!({
            "routes": routes.len(),
            "maxRoutes": self.most.load(Relaxed),
            "requests": count,
            "errors": errors,
            "errorRate": rate,
            "avgMs": if count == 0 { 0.0 } else { micros as f64 / count as f64 / 1000.0 },
            "p50Ms": all.percentile(50.0),
            "p95Ms": all.percentile(95.0),
            "p99Ms": all.percentile(99.0),
        })
    }

    pub(crate) fn config(&self) -> Value {
        json!({ "maxRoutes": self.most.load(Relaxed), "normalize": self.normalizes.load(Relaxed) })
    }

    pub(crate) fn set(&self, most: Option<usize>, normalizes: Option<bool>) {
        if let Some(most) = most {
            self.most.store(most.clamp(1, LIMIT), Relaxed);
        }
        if let Some(normalizes) = normalizes {
            self.normalizes.store(normalizes, Relaxed);
        }
    }

    /// Forgets everything; says how many routes there were.
    pub(crate) fn clear(&self) -> usize {
        std::mem::take(&mut *lock(&self.routes)).len()
    }
}

impl Route {
    fn error_rate(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.errors as f64 / self.count as f64 }
    }

    fn average(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.micros as f64 / self.count as f64 / 1000.0 }
    }

    fn shown(&self, key: &str) -> Value {
        let (at, error) =
            self.last_error.clone().map_or((None, None), |(at, error)| (Some(iso8601(at)), Some(error)));
        json!({
            "key": key,
            "count": self.count,
            "errors": self.errors,
            "errorRate": self.error_rate(),
            "avgMs": self.average(),
            "p50Ms": self.histogram.percentile(50.0),
            "p95Ms": self.histogram.percentile(95.0),
            "p99Ms": self.histogram.percentile(99.0),
            "maxMs": self.longest as f64 / 1000.0,
            "lastSeen": iso8601(self.last_seen),
            "lastError": error,
            "lastErrorAt": at,
        })
    }
}

impl Histogram {
    fn add(&mut self, micros: u64) {
        let step = step_of(micros);
        if self.0.len() <= step {
            self.0.resize(step + 1, 0);
        }
        self.0[step] = self.0[step].saturating_add(1);
    }

    fn join(&mut self, other: &Histogram) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, more) in self.0.iter_mut().zip(&other.0) {
            *own = own.saturating_add(*more);
        }
    }

    /// In milliseconds; zero if nothing was seen.
    fn percentile(&self, percent: f64) -> f64 {
        let total: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        let wanted = (total as f64 * percent / 100.0).ceil() as u64;
        let mut seen = 0;
        for (step, count) in self.0.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted.max(1) {
                return middle_of(step) / 1000.0;
            }
        }
        0.0
    }
}

fn step_of(micros: u64) -> usize {
    let micros = micros.min(u64::from(u32::MAX)) as usize;
    if micros < STEPS {
        return micros;
    }
    let shift = micros.ilog2() as usize - 4;
    ((shift + 1) * STEPS + ((micros >> shift) - STEPS)).min(N_STEPS - 1)
}

/// A time of that step, in microseconds.
fn middle_of(step: usize) -> f64 {
    if step < STEPS {
        return step as f64;
    }
    let shift = step / STEPS - 1;
    let low = ((step % STEPS + STEPS) << shift) as f64;
    low + ((1_usize << shift) as f64 - 1.0) / 2.0
}

/// A path in which numbers and UUIDs are `{id}`, so that it is one route whatever it is about.
fn normalise_into(path: &str, normal: &mut String) {
    // What comes after a question mark is no part of the route.
    let path = path.split(['?', '#']).next().unwrap_or_default();
    for (number, segment) in path.split('/').enumerate() {
        if number > 0 {
            normal.push('/');
        }
        normal.push_str(if is_id(segment) { "{id}" } else { segment });
    }
}

fn is_id(segment: &str) -> bool {
    let is_number = !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit());
    let is_uuid = segment.len() == 36
        && segment.bytes().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    is_number || is_uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_uuids_are_one_route() {
        let rows = [
            ("/users/123", "/users/{id}"),
            ("/users/123/posts/9?x=1", "/users/{id}/posts/{id}"),
            ("/u/0b8f5f0e-2a4b-4c1d-9e0f-1a2b3c4d5e6f", "/u/{id}"),
            ("/u/0b8f5f0e-2a4b-4c1d-9e0f-1a2b3c4d5e6", "/u/0b8f5f0e-2a4b-4c1d-9e0f-1a2b3c4d5e6"),
            ("/v2/12a", "/v2/12a"),
            ("orders://17/lines", "orders://{id}/lines"),
            ("", ""),
            ("/", "/"),
        ];
        for (path, wanted) in rows {
            let mut normal = String::new();
            normalise_into(path, &mut normal);
            assert_eq!(normal, wanted);
        }
    }

    #[test]
    fn percentiles_are_right_within_a_step() {
        let mut histogram = Histogram::default();
        for micros in 1..=10_000_u64 {
            histogram.add(micros);
        }
        for (percent, wanted) in [(50.0, 5.0), (95.0, 9.5), (99.0, 9.9)] {
            let found = histogram.percentile(percent);
            assert!((found - wanted).abs() / wanted < 0.04, "{percent}: {found}");
        }
        for micros in [0, 15, 16, 17, 1000, 65_535, u64::from(u32::MAX), u64::MAX] {
            let middle = middle_of(step_of(micros));
            let wanted = micros.min(u64::from(u32::MAX)) as f64;
            assert!((middle - wanted).abs() <= wanted * 0.04 + 0.5, "{micros}: {middle}");
        }
    }

    #[test]
    fn there_are_never_more_routes_than_may_be() {
        let routes = Routes::new();
        for n in 0..MOST + 50 {
            routes.note("tools/call", "shop", &format!("tool_{n}"), Duration::from_millis(2), None);
        }
        routes.note("tools/call", "shop", "tool_0", Duration::from_millis(4), Some("isError".into()));
        let all = routes.all(Order::Count, usize::MAX);
        assert_eq!(all.len(), MOST + 1, "and one for all others");
        assert_eq!(all[0]["key"], OTHERS);
        assert_eq!(all[0]["count"], 50);
        let worst = &routes.all(Order::ErrorRate, 1)[0];
        assert_eq!((&worst["key"], &worst["errorRate"]), (&json!("tools/call /shop/tool_0"), &json!(0.5)));
        assert_eq!(routes.one("tools/call /shop/tool_0").unwrap()["lastError"], "isError");
        assert_eq!(routes.summary()["requests"], MOST + 51);
        assert_eq!(routes.clear(), MOST + 1);
    }
}
