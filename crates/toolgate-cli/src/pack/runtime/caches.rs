//! Builtins about data in memory: fetched documents, sessions, slow logs.

use std::sync::Arc;

use serde_json::{Value, json};

use super::health::{HealthReport, Issue, Severity};
use super::procfs::unavailable;
use super::{Builtin, BuiltinArguments, BuiltinContext, BuiltinResult, list_json};
use crate::observe::collectors;
use crate::observe::slow_log::SlowLog;
use crate::pack::runtime_state::RuntimeState;

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "cache_get_all" | "cache_get_stats" => Builtin::Sync(cache_stats),
        "cache_get_names" => Builtin::Sync(|context, _| {
            Ok(json!({ "names": caches(&context.state).iter().map(|cache| cache.name).collect::<Vec<_>>() }))
        }),
        "cache_get_keys" => Builtin::Sync(|context, arguments| {
            with_cache(context, arguments, |cache| {
                let keys: Vec<&String> = cache.keys.iter().take(arguments.limit(100)).collect();
                json!({ "cacheName": cache.name, "count": keys.len(), "keys": keys })
            })
        }),
        "cache_get_size" => Builtin::Sync(|context, arguments| {
            with_cache(context, arguments, |cache| json!({ "cacheName": cache.name, "size": cache.size }))
        }),
        "cache_has_key" => Builtin::Sync(|context, arguments| {
            let key = arguments.require("key")?.to_owned();
            with_cache(
                context,
                arguments,
                |cache| json!({ "cacheName": cache.name, "exists": cache.keys.contains(&key) }),
            )
        }),
        "cache_get_key_metadata" => Builtin::Sync(|context, arguments| {
            let key = arguments.require("key")?.to_owned();
            let snapshot = context.state.snapshot();
            with_cache(context, arguments, |cache| {
                let bytes = snapshot.documents.iter().find(|(url, _)| *url == key).map(|(_, bytes)| *bytes);
                json!({ "cacheName": cache.name, "key": key, "exists": cache.keys.contains(&key), "bytes": bytes })
            })
        }),
        "cache_get_store_metadata" => Builtin::Sync(|context, arguments| {
            with_cache(
                context,
                arguments,
                |cache| json!({ "cacheName": cache.name, "store": "memory", "about": cache.description }),
            )
        }),
        "cache_get_health" => Builtin::Sync(|context, _| Ok(cache_report(&caches(&context.state)).to_json())),
        "cache_reap" => Builtin::Sync(|context, arguments| {
            with_cache(
                context,
                arguments,
                |cache| json!({ "cacheName": cache.name, "reaped": 0, "note": "expired entries are removed automatically" }),
            )
        }),
        "cache_reap_all" => Builtin::Sync(|_, _| {
            shrink_buffers();
            Ok(json!({ "reaped": 0, "note": "expired entries are removed automatically" }))
        }),
        "cache_clear_stats" => Builtin::Sync(|context, arguments| {
            with_cache(context, arguments, |cache| {
                unavailable(&format!("only the size of `{}` is measured", cache.name))
            })
        }),
        "cache_clear" => Builtin::Sync(cache_clear),
        "cache_clear_item" => Builtin::Sync(|context, arguments| {
            with_cache(context, arguments, |_| {
                unavailable("single entries cannot be removed; `cache_clear` removes all of them")
            })
        }),
        "cache_clear_all" => Builtin::Sync(|context, _| {
            let removed: usize =
                caches(&context.state).iter().map(|cache| clear_cache(&context.state, cache.name)).sum();
            Ok(json!({ "removed": removed }))
        }),
        _ => return None,
    })
}

pub(super) fn cache_report(caches: &[CacheInfo]) -> HealthReport {
    HealthReport::new(caches.iter().flat_map(cache_issues).collect(), caches.len())
}

fn cache_issues(cache: &CacheInfo) -> Vec<Issue> {
    let name = cache.name;
    let metrics = json!({ "size": cache.size, "hits": cache.hits, "misses": cache.misses, "evictions": cache.evictions });
    let mut issues = Vec::new();
    let mut report = |code, message: String, action| {
        issues.push(Issue::new(Severity::Warning, code, name, message, action, metrics.clone()));
    };
    if !cache.is_enabled {
        report(
            "CACHE_DISABLED",
            format!("`{name}` is disabled"),
            "enable it, unless it is disabled on purpose",
        );
    }
    let n_lookups = cache.hits.unwrap_or(0) + cache.misses.unwrap_or(0);
    if n_lookups >= 100 && (cache.hits.unwrap_or(0) as f64 / n_lookups as f64) < 0.3 {
        let message = format!("the hit rate of `{name}` is below 30 %");
        report("CACHE_LOW_HIT_RATE", message, "make it larger, or disable it");
    }
    if cache.evictions.is_some_and(|evictions| evictions > 1000 && evictions > cache.hits.unwrap_or(0)) {
        report(
            "CACHE_HIGH_EVICTIONS",
            format!("`{name}` evicts more entries than it has hits"),
            "make it larger",
        );
    }
    issues
}

/// A cache or buffer.
pub(super) struct CacheInfo {
    name: &'static str,
    description: &'static str,
    is_enabled: bool,
    size: usize,
    keys: Vec<String>,
    hits: Option<u64>,
    misses: Option<u64>,
    evictions: Option<u64>,
}

pub(super) fn caches(state: &RuntimeState) -> Vec<CacheInfo> {
    let snapshot = state.snapshot();
    let sessions: usize = state
        .servers
        .names()
        .into_iter()
        .filter_map(|name| state.servers.get(&name))
        .map(|server| server.sessions().len())
        .sum();
    let cache = |name, description, size, keys| CacheInfo {
        name,
        description,
        is_enabled: true,
        size,
        keys,
        hits: None,
        misses: None,
        evictions: None,
    };
    let documents: Vec<String> = snapshot.documents.iter().map(|(url, _)| url.clone()).collect();
    let all = collectors();
    let n_samples = |slow: &SlowLog| slow.count_since(0);
    vec![
        cache("descriptions", "OpenAPI documents fetched from URLs", documents.len(), documents),
        cache("sessions", "client sessions; ids are not shown", sessions, Vec::new()),
        cache("slow_requests", "slow requests", n_samples(&all.requests), Vec::new()),
        cache("slow_http", "slow calls of HTTP backends", n_samples(&all.http), Vec::new()),
        cache("slow_sql", "slow SQL statements", n_samples(&all.sql), Vec::new()),
    ]
}

impl CacheInfo {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "about": self.description,
            "enabled": self.is_enabled,
            "size": self.size,
            "hits": self.hits,
            "misses": self.misses,
            "evictions": self.evictions,
        })
    }
}

fn cache_stats(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    match arguments.text("cacheName") {
        Some(_) => with_cache(context, arguments, CacheInfo::to_json),
        None => Ok(list_json("caches", caches(&context.state).iter().map(CacheInfo::to_json).collect())),
    }
}

/// Applies a function to the cache with this name; an unknown name is not an error.
fn with_cache(
    context: &BuiltinContext,
    arguments: BuiltinArguments<'_>,
    to_json: impl FnOnce(&CacheInfo) -> Value,
) -> BuiltinResult {
    let name = arguments.require("cacheName")?;
    let all = caches(&context.state);
    Ok(match all.iter().find(|cache| cache.name == name) {
        Some(cache) => to_json(cache),
        None => {
            let names: Vec<&str> = all.iter().map(|cache| cache.name).collect();
            unavailable(&format!("unknown cache `{name}`; known: {}", names.join(", ")))
        }
    })
}

fn cache_clear(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let state = Arc::clone(&context.state);
    with_cache(
        context,
        arguments,
        move |cache| json!({ "cacheName": cache.name, "cleared": true, "removed": clear_cache(&state, cache.name) }),
    )
}

fn clear_cache(state: &RuntimeState, name: &str) -> usize {
    let all = collectors();
    match name {
        "sessions" => {
            let servers = state.servers.names().into_iter().filter_map(|name| state.servers.get(&name));
            servers.map(|server| server.clear_sessions()).sum()
        }
        "slow_requests" => all.requests.clear(),
        "slow_http" => all.http.clear(),
        "slow_sql" => all.sql.clear(),
        // A reload fetches them again.
        "descriptions" => {
            state.request_reload();
            state.snapshot().documents.len()
        }
        _ => 0,
    }
}

/// Releases unused memory of the buffers.
pub(super) fn shrink_buffers() {
    collectors().logs.shrink();
    for slow in [&collectors().requests, &collectors().http, &collectors().sql] {
        slow.shrink();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(issues: &[Issue]) -> Vec<&str> {
        issues.iter().map(|issue| issue.code.as_str()).collect()
    }

    #[test]
    fn caches_are_judged_by_what_they_find() {
        let cache = |is_enabled, hits, misses, evictions| CacheInfo {
            name: "c",
            description: "",
            is_enabled,
            size: 1,
            keys: Vec::new(),
            hits: Some(hits),
            misses: Some(misses),
            evictions: Some(evictions),
        };
        assert!(cache_issues(&cache(true, 40, 60, 0)).is_empty());
        assert_eq!(codes(&cache_issues(&cache(false, 0, 0, 0))), ["CACHE_DISABLED"]);
        assert_eq!(
            codes(&cache_issues(&cache(true, 29, 71, 2000))),
            ["CACHE_LOW_HIT_RATE", "CACHE_HIGH_EVICTIONS"]
        );
    }
}
