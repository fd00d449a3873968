//! Latency statistics per route.
//!
//! A route is a method and its target: `tools/call /shop/find_orders`, `resources/read /shop/orders://{id}`. The HTTP
//! path does not identify the target, because all requests to a server have the same path.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Value, json};

use super::truncate;
use crate::clock::{format_iso8601, unix_millis};
use crate::sync::lock;

/// Default maximum number of routes.
const DEFAULT_MAX_ROUTES: usize = 200;

/// Upper bound for the configurable maximum.
pub(crate) const MAX_ROUTES: usize = 5000;

/// The route that counts all requests beyond the maximum.
const OTHER_ROUTES_KEY: &str = "(other)";

/// 16 buckets per doubling: percentiles are off by at most 3 %.
const BUCKETS_PER_DOUBLING: usize = 16;

/// Covers up to 2^32 microseconds, a bit more than an hour.
const MAX_BUCKETS: usize = (32 - 4 + 1) * BUCKETS_PER_DOUBLING;

/// Statistics of all routes.
pub(crate) struct Routes {
    is_normalizing: AtomicBool,
    max_routes: AtomicUsize,
    routes: Mutex<HashMap<String, Route>>,
}

#[derive(Default)]
struct Route {
    count: u64,
    errors: u64,
    total_micros: u64,
    max_micros: u64,
    last_seen: u64,
    last_error: Option<(u64, String)>,
    histogram: Histogram,
}

/// A histogram of durations. Grows with the longest one, up to 2 KiB.
#[derive(Default)]
struct Histogram(Vec<u32>);

/// The order of a route list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteOrder {
    Count,
    ErrorRate,
    P99,
    Average,
    LastSeen,
}

impl RouteOrder {
    pub(crate) fn parse(name: &str) -> Option<RouteOrder> {
        Some(match name {
            "count" => RouteOrder::Count,
            "errorRate" => RouteOrder::ErrorRate,
            "p99" => RouteOrder::P99,
            "avgLatency" => RouteOrder::Average,
            "lastSeen" => RouteOrder::LastSeen,
            _ => return None,
        })
    }
}

impl Routes {
    pub(crate) fn new() -> Routes {
        Routes {
            is_normalizing: AtomicBool::new(true),
            max_routes: AtomicUsize::new(DEFAULT_MAX_ROUTES),
            routes: Mutex::default(),
        }
    }

    /// Records a response. `error` is its error code.
    pub(crate) fn record(
        &self,
        method: &str,
        server: &str,
        subject: &str,
        duration: Duration,
        error: Option<String>,
    ) {
        let key = self.key(method, server, subject);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let now = unix_millis();
        let mut routes = lock(&self.routes);
        let is_full = routes.len() >= self.max_routes.load(Relaxed);
        let key = if is_full && !routes.contains_key(&key) { OTHER_ROUTES_KEY.to_owned() } else { key };
        let route = routes.entry(key).or_default();
        route.count += 1;
        route.total_micros = route.total_micros.saturating_add(micros);
        route.max_micros = route.max_micros.max(micros);
        route.last_seen = now;
        route.histogram.add(micros);
        if let Some(error) = error {
            route.errors += 1;
            route.last_error = Some((now, truncate(&error)));
        }
    }

    fn key(&self, method: &str, server: &str, subject: &str) -> String {
        let mut key = String::with_capacity(method.len() + server.len() + subject.len() + 3);
        key.push_str(method);
        key.push_str(" /");
        key.push_str(server);
        if !subject.is_empty() {
            key.push('/');
            if self.is_normalizing.load(Relaxed) {
                normalize_into(subject, &mut key);
            } else {
                key.push_str(subject);
            }
        }
        truncate(&key)
    }

    /// Lists routes in this order, highest first.
    pub(crate) fn list(&self, order: RouteOrder, limit: usize) -> Vec<Value> {
        let routes = lock(&self.routes);
        let mut all: Vec<(&String, &Route)> = routes.iter().collect();
        let rank = |route: &Route| match order {
            RouteOrder::Count => route.count as f64,
            RouteOrder::ErrorRate => route.error_rate(),
            RouteOrder::P99 => route.histogram.percentile(99.0),
            RouteOrder::Average => route.average(),
            RouteOrder::LastSeen => route.last_seen as f64,
        };
        all.sort_by(|(a_key, a), (b_key, b)| rank(b).total_cmp(&rank(a)).then_with(|| a_key.cmp(b_key)));
        all.into_iter().take(limit).map(|(key, route)| route.to_json(key)).collect()
    }

    /// Returns one route.
    pub(crate) fn get(&self, key: &str) -> Option<Value> {
        lock(&self.routes).get(key).map(|route| route.to_json(key))
    }

    pub(crate) fn summary(&self) -> Value {
        let routes = lock(&self.routes);
        let (count, errors, micros) =
            routes.values().fold((0, 0, 0_u64), |(count, errors, micros), route| {
                (count + route.count, errors + route.errors, micros.saturating_add(route.total_micros))
            });
        let mut all = Histogram::default();
        for route in routes.values() {
            all.merge(&route.histogram);
        }
        let rate = if count == 0 { 0.0 } else { errors as f64 / count as f64 };
        json!({
            "routes": routes.len(),
            "maxRoutes": self.max_routes.load(Relaxed),
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
        json!({ "maxRoutes": self.max_routes.load(Relaxed), "normalize": self.is_normalizing.load(Relaxed) })
    }

    pub(crate) fn update(&self, max_routes: Option<usize>, normalize: Option<bool>) {
        if let Some(max_routes) = max_routes {
            self.max_routes.store(max_routes.clamp(1, MAX_ROUTES), Relaxed);
        }
        if let Some(normalize) = normalize {
            self.is_normalizing.store(normalize, Relaxed);
        }
    }

    /// Removes all routes and returns how many there were.
    pub(crate) fn clear(&self) -> usize {
        std::mem::take(&mut *lock(&self.routes)).len()
    }
}

impl Route {
    fn error_rate(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.errors as f64 / self.count as f64 }
    }

    fn average(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total_micros as f64 / self.count as f64 / 1000.0 }
    }

    fn to_json(&self, key: &str) -> Value {
        let (at, error) = self
            .last_error
            .clone()
            .map_or((None, None), |(at, error)| (Some(format_iso8601(at)), Some(error)));
        json!({
            "key": key,
            "count": self.count,
            "errors": self.errors,
            "errorRate": self.error_rate(),
            "avgMs": self.average(),
            "p50Ms": self.histogram.percentile(50.0),
            "p95Ms": self.histogram.percentile(95.0),
            "p99Ms": self.histogram.percentile(99.0),
            "maxMs": self.max_micros as f64 / 1000.0,
            "lastSeen": format_iso8601(self.last_seen),
            "lastError": error,
            "lastErrorAt": at,
        })
    }
}

impl Histogram {
    fn add(&mut self, micros: u64) {
        let bucket = bucket_of(micros);
        if self.0.len() <= bucket {
            self.0.resize(bucket + 1, 0);
        }
        self.0[bucket] = self.0[bucket].saturating_add(1);
    }

    fn merge(&mut self, other: &Histogram) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, more) in self.0.iter_mut().zip(&other.0) {
            *own = own.saturating_add(*more);
        }
    }

    /// A percentile in milliseconds; 0 without samples.
    fn percentile(&self, percent: f64) -> f64 {
        let total: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        let rank = (total as f64 * percent / 100.0).ceil() as u64;
        let mut n_seen = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            n_seen += u64::from(*count);
            if n_seen >= rank.max(1) {
                return bucket_midpoint(bucket) / 1000.0;
            }
        }
        0.0
    }
}

fn bucket_of(micros: u64) -> usize {
    let micros = micros.min(u64::from(u32::MAX)) as usize;
    if micros < BUCKETS_PER_DOUBLING {
        return micros;
    }
    let shift = micros.ilog2() as usize - 4;
    ((shift + 1) * BUCKETS_PER_DOUBLING + ((micros >> shift) - BUCKETS_PER_DOUBLING)).min(MAX_BUCKETS - 1)
}

/// The middle of a bucket, in microseconds.
fn bucket_midpoint(bucket: usize) -> f64 {
    if bucket < BUCKETS_PER_DOUBLING {
        return bucket as f64;
    }
    let shift = bucket / BUCKETS_PER_DOUBLING - 1;
    let low = ((bucket % BUCKETS_PER_DOUBLING + BUCKETS_PER_DOUBLING) << shift) as f64;
    low + ((1_usize << shift) as f64 - 1.0) / 2.0
}

/// Appends a path with `{id}` for numbers and UUIDs, so that they share a route.
fn normalize_into(path: &str, normalized: &mut String) {
    // The query is not part of the route.
    let path = path.split(['?', '#']).next().unwrap_or_default();
    for (index, segment) in path.split('/').enumerate() {
        if index > 0 {
            normalized.push('/');
        }
        normalized.push_str(if is_id(segment) { "{id}" } else { segment });
    }
}

fn is_id(segment: &str) -> bool {
    let is_number = !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit());
    let is_uuid = segment.len() == 36
        && segment.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    is_number || is_uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_uuids_share_a_route() {
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
            let mut normalized = String::new();
            normalize_into(path, &mut normalized);
            assert_eq!(normalized, wanted);
        }
    }

    #[test]
    fn percentiles_are_accurate_within_a_bucket() {
        let mut histogram = Histogram::default();
        for micros in 1..=10_000_u64 {
            histogram.add(micros);
        }
        for (percent, wanted) in [(50.0, 5.0), (95.0, 9.5), (99.0, 9.9)] {
            let found = histogram.percentile(percent);
            assert!((found - wanted).abs() / wanted < 0.04, "{percent}: {found}");
        }
        for micros in [0, 15, 16, 17, 1000, 65_535, u64::from(u32::MAX), u64::MAX] {
            let middle = bucket_midpoint(bucket_of(micros));
            let wanted = micros.min(u64::from(u32::MAX)) as f64;
            assert!((middle - wanted).abs() <= wanted * 0.04 + 0.5, "{micros}: {middle}");
        }
    }

    #[test]
    fn the_number_of_routes_is_limited() {
        let routes = Routes::new();
        for n in 0..DEFAULT_MAX_ROUTES + 50 {
            routes.record("tools/call", "shop", &format!("tool_{n}"), Duration::from_millis(2), None);
        }
        routes.record("tools/call", "shop", "tool_0", Duration::from_millis(4), Some("isError".into()));
        let all = routes.list(RouteOrder::Count, usize::MAX);
        assert_eq!(all.len(), DEFAULT_MAX_ROUTES + 1, "and one for all others");
        assert_eq!(all[0]["key"], OTHER_ROUTES_KEY);
        assert_eq!(all[0]["count"], 50);
        let worst = &routes.list(RouteOrder::ErrorRate, 1)[0];
        assert_eq!((&worst["key"], &worst["errorRate"]), (&json!("tools/call /shop/tool_0"), &json!(0.5)));
        assert_eq!(routes.get("tools/call /shop/tool_0").unwrap()["lastError"], "isError");
        assert_eq!(routes.summary()["requests"], DEFAULT_MAX_ROUTES + 51);
        assert_eq!(routes.clear(), DEFAULT_MAX_ROUTES + 1);
    }
}
