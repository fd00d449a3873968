//! Builtins about what the program keeps in memory: fetched documents, sessions, slow logs.

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
        "cache_get_names" => Builtin::Sync(|here, _| {
            Ok(json!({ "names": caches(&here.state).iter().map(|cache| cache.name).collect::<Vec<_>>() }))
        }),
        "cache_get_keys" => Builtin::Sync(|here, given| {
            with_cache(here, given, |cache| {
                let keys: Vec<&String> = cache.keys.iter().take(given.limit(100)).collect();
                json!({ "cacheName": cache.name, "count": keys.len(), "keys": keys })
            })
        }),
        "cache_get_size" => Builtin::Sync(|here, given| {
            with_cache(here, given, |cache| json!({ "cacheName": cache.name, "size": cache.size }))
        }),
        "cache_has_key" => Builtin::Sync(|here, given| {
            let key = given.require("key")?.to_owned();
            with_cache(
                here,
                given,
                |cache| json!({ "cacheName": cache.name, "exists": cache.keys.contains(&key) }),
            )
        }),
        "cache_get_key_metadata" => Builtin::Sync(|here, given| {
            let key = given.require("key")?.to_owned();
            let seen = here.state.snapshot();
            with_cache(here, given, |cache| {
                let bytes = seen.documents.iter().find(|(url, _)| *url == key).map(|(_, bytes)| *bytes);
                json!({ "cacheName": cache.name, "key": key, "exists": cache.keys.contains(&key), "bytes": bytes })
            })
        }),
        "cache_get_store_metadata" => Builtin::Sync(|here, given| {
            with_cache(
                here,
                given,
                |cache| json!({ "cacheName": cache.name, "store": "memory", "about": cache.description }),
            )
        }),
        "cache_get_health" => Builtin::Sync(|here, _| Ok(cache_report(&caches(&here.state)).to_json())),
        "cache_reap" => Builtin::Sync(|here, given| {
            with_cache(
                here,
                given,
                |cache| json!({ "cacheName": cache.name, "reaped": 0, "note": "what is over is forgotten by itself" }),
            )
        }),
        "cache_reap_all" => Builtin::Sync(|_, _| {
            shrink_buffers();
            Ok(json!({ "reaped": 0, "note": "what is over is forgotten by itself" }))
        }),
        "cache_clear_stats" => Builtin::Sync(|here, given| {
            with_cache(here, given, |cache| {
                unavailable(&format!("nothing is counted of `{}` but its size", cache.name))
            })
        }),
        "cache_clear" => Builtin::Sync(cache_clear),
        "cache_clear_item" => Builtin::Sync(|here, given| {
            with_cache(here, given, |_| {
                unavailable("single entries are not forgotten; `cache_clear` forgets all of them")
            })
        }),
        "cache_clear_all" => Builtin::Sync(|here, _| {
            let removed: usize =
                caches(&here.state).iter().map(|cache| clear_cache(&here.state, cache.name)).sum();
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
    let mut say = |code, message: String, action| {
        issues.push(Issue::new(Severity::Warning, code, name, message, action, metrics.clone()));
    };
    if !cache.is_enabled {
        say("CACHE_DISABLED", format!("`{name}` keeps nothing"), "turn it on, if that was not meant");
    }
    let asked = cache.hits.unwrap_or(0) + cache.misses.unwrap_or(0);
    if asked >= 100 && (cache.hits.unwrap_or(0) as f64 / asked as f64) < 0.3 {
        let message = format!("less than a third of what is looked for is in `{name}`");
        say("CACHE_LOW_HIT_RATE", message, "make it larger, or do without it");
    }
    if cache.evictions.is_some_and(|evictions| evictions > 1000 && evictions > cache.hits.unwrap_or(0)) {
        say("CACHE_HIGH_EVICTIONS", format!("`{name}` forgets more than it is asked for"), "make it larger");
    }
    issues
}

/// Something that is kept so that it need not be asked for again.
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

pub(super) fn caches(world: &RuntimeState) -> Vec<CacheInfo> {
    let seen = world.snapshot();
    let sessions: usize = world
        .servers
        .names()
        .into_iter()
        .filter_map(|name| world.servers.get(&name))
        .map(|server| server.sessions().len())
        .sum();
    let cache = |name, about, size, keys| CacheInfo {
        name,
        description: about,
        is_enabled: true,
        size,
        keys,
        hits: None,
        misses: None,
        evictions: None,
    };
    let documents: Vec<String> = seen.documents.iter().map(|(url, _)| url.clone()).collect();
    let all = collectors();
    let kept = |slow: &SlowLog| slow.count_since(0);
    vec![
        cache("descriptions", "descriptions of APIs that were read from URLs", documents.len(), documents),
        cache("sessions", "clients that are remembered; ids are not shown", sessions, Vec::new()),
        cache("slow_requests", "what took too long", kept(&all.requests), Vec::new()),
        cache("slow_http", "calls of APIs that took too long", kept(&all.http), Vec::new()),
        cache("slow_sql", "statements that took too long", kept(&all.sql), Vec::new()),
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

fn cache_stats(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    match given.text("cacheName") {
        Some(_) => with_cache(here, given, CacheInfo::to_json),
        None => Ok(list_json("caches", caches(&here.state).iter().map(CacheInfo::to_json).collect())),
    }
}

/// What becomes of a cache by its name; one that is not there is no failure.
fn with_cache(
    here: &BuiltinContext,
    given: BuiltinArguments<'_>,
    show: impl FnOnce(&CacheInfo) -> Value,
) -> BuiltinResult {
    let name = given.require("cacheName")?;
    let all = caches(&here.state);
    Ok(match all.iter().find(|cache| cache.name == name) {
        Some(cache) => show(cache),
        None => {
            let names: Vec<&str> = all.iter().map(|cache| cache.name).collect();
            unavailable(&format!("there is no cache `{name}`; there is {}", names.join(", ")))
        }
    })
}

fn cache_clear(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let world = Arc::clone(&here.state);
    with_cache(
        here,
        given,
        move |cache| json!({ "cacheName": cache.name, "cleared": true, "removed": clear_cache(&world, cache.name) }),
    )
}

fn clear_cache(world: &RuntimeState, name: &str) -> usize {
    let all = collectors();
    match name {
        "sessions" => {
            let servers = world.servers.names().into_iter().filter_map(|name| world.servers.get(&name));
            servers.map(|server| server.clear_sessions()).sum()
        }
        "slow_requests" => all.requests.clear(),
        "slow_http" => all.http.clear(),
        "slow_sql" => all.sql.clear(),
        // They are asked for again when the configuration is read again.
        "descriptions" => {
            world.reload.notify_one();
            world.snapshot().documents.len()
        }
        _ => 0,
    }
}

/// Gives back room that is not needed.
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
