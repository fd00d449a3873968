//! Acts about what was noted: slow requests, slow backends, routes, the log.

use serde_json::{Value, json};
use toolgate::HandlerError;
use tracing::Level;

use super::{Deed, Given, Here, Said, listed};
use crate::clock::{read_iso8601, unix_millis};
use crate::log;
use crate::observe::logs::{self, Line};
use crate::observe::routes::Order;
use crate::observe::slow::{Setting, Slow};
use crate::observe::{Collectors, collectors};

pub(super) fn deed(name: &str) -> Option<Deed> {
    Some(match name {
        "requests_get_slow_requests" => {
            Deed::Now(|_, given| newest(&collectors().requests, given, "requests"))
        }
        "requests_get_stats" => Deed::Now(|_, _| Ok(collectors().requests.stats())),
        "requests_get_config" => Deed::Now(|_, _| Ok(collectors().requests.config())),
        "requests_set_config" => Deed::Now(|_, given| Ok(set(&collectors().requests, given))),
        "requests_clear" => Deed::Now(|_, _| Ok(cleared(collectors().requests.clear()))),
        "slow_http_get_calls" => Deed::Now(|_, given| newest(&collectors().http, given, "calls")),
        "slow_http_get_stats" => Deed::Now(|_, _| Ok(collectors().http.stats())),
        "slow_http_get_config" => Deed::Now(|_, _| Ok(collectors().http.config())),
        "slow_http_set_config" => Deed::Now(|_, given| Ok(set(&collectors().http, given))),
        "slow_http_clear" => Deed::Now(|_, _| Ok(cleared(collectors().http.clear()))),
        "sql_get_slow_queries" => Deed::Now(|_, given| newest(&collectors().sql, given, "queries")),
        "sql_get_query_stats" => Deed::Now(|_, _| Ok(collectors().sql.stats())),
        "sql_get_config" => Deed::Now(|_, _| Ok(collectors().sql.config())),
        "sql_set_config" => Deed::Now(|_, given| Ok(set(&collectors().sql, given))),
        "sql_clear" => Deed::Now(|_, _| Ok(cleared(collectors().sql.clear()))),
        "routes_get_all" => Deed::Now(routes),
        "routes_get_route" => Deed::Now(route),
        "routes_get_summary" => Deed::Now(|_, _| Ok(collectors().routes.summary())),
        "routes_get_config" => Deed::Now(|_, _| Ok(collectors().routes.config())),
        "routes_set_config" => Deed::Now(set_routes),
        "routes_clear" => Deed::Now(|_, _| Ok(cleared(collectors().routes.clear()))),
        "runtime_route" => Deed::Now(|_, given| {
            Ok(collectors().routes.one(given.text("key").unwrap_or_default()).unwrap_or_default())
        }),
        "logging_get_info" => Deed::Now(|_, _| Ok(info())),
        "logging_get_config" => Deed::Now(|_, _| Ok(config())),
        "logging_get_loggers" => Deed::Now(|_, _| Ok(listed("loggers", loggers()))),
        "logging_get_logger" => Deed::Now(logger),
        "logging_get_root_logger" => Deed::Now(|_, _| Ok(json!({ "name": "root", "level": log::level() }))),
        "logging_get_appenders" => Deed::Now(|_, _| Ok(listed("appenders", appenders()))),
        "logging_read_entries" => Deed::Now(read_entries),
        "logging_read_named" => Deed::Now(read_named),
        "logging_get_last_error" => Deed::Now(last_error),
        "logging_search_entries" => Deed::Now(search),
        "logging_log_message" => Deed::Now(write),
        _ => return None,
    })
}

/// A moment that an argument names; the beginning of time if it names none.
fn since(given: Given<'_>) -> Result<u64, HandlerError> {
    match given.0.get("since") {
        None | Some(Value::Null) => Ok(0),
        Some(Value::Number(number)) => Ok(number.as_u64().unwrap_or(0)),
        Some(value) => value.as_str().and_then(read_iso8601).ok_or_else(|| {
            HandlerError::new("`since` is a moment like 1999-12-31T12:00:00Z, or milliseconds since 1970")
        }),
    }
}

/// A list and nothing else: that is what those who wrote clients for such tools expect.
fn newest(slow: &Slow, given: Given<'_>, _: &str) -> Said {
    Ok(slow.newest(given.limit(50), since(given)?).into())
}

fn set(slow: &Slow, given: Given<'_>) -> Value {
    let captures = ["capture", "captureText", "captureBody", "captureStack"];
    slow.set(&Setting {
        enabled: given.flag("enabled"),
        threshold: given.number("thresholdMs"),
        kept: given.number("buffer").map(|kept| usize::try_from(kept).unwrap_or(usize::MAX)),
        captures: captures.iter().find_map(|name| given.flag(name)),
    });
    slow.config()
}

fn cleared(count: usize) -> Value {
    json!({ "cleared": true, "removed": count })
}

fn routes(_: &Here, given: Given<'_>) -> Said {
    let order = given.text("sortBy").unwrap_or("count");
    let order = Order::named(order)
        .ok_or_else(|| HandlerError::new(format!("routes cannot be ordered by `{order}`")))?;
    Ok(listed("routes", collectors().routes.all(order, given.limit(50))))
}

fn route(_: &Here, given: Given<'_>) -> Said {
    let key = given.need("key")?;
    collectors().routes.one(key).ok_or_else(|| {
        HandlerError::new(format!(
            "nothing is known of the route `{key}`; `routes_get_all` lists those that are"
        ))
    })
}

fn set_routes(_: &Here, given: Given<'_>) -> Said {
    let most = given.number("maxRoutes").map(|most| usize::try_from(most).unwrap_or(usize::MAX));
    collectors().routes.set(most, given.flag("normalize"));
    Ok(collectors().routes.config())
}

fn info() -> Value {
    let Collectors { logs, .. } = collectors();
    json!({ "level": log::level(), "format": log::format(), "target": "standard error", "ring": logs.stats() })
}

fn config() -> Value {
    json!({
        "level": log::level(),
        "usualLevel": log::usual_level(),
        "format": log::format(),
        "levels": ["error", "warn", "info", "debug"],
        "changeWith": "runtime_toggle_debug_mode, or --log-level at the start",
    })
}

fn loggers() -> Vec<Value> {
    let targets = collectors().logs.targets();
    targets
        .into_iter()
        .map(|(name, entries)| json!({ "name": name, "level": log::level(), "entries": entries }))
        .collect()
}

fn logger(_: &Here, given: Given<'_>) -> Said {
    let name = given.need("name")?;
    super::pick("logger", name, loggers(), |logger| logger["name"].as_str().unwrap_or_default())
}

fn appenders() -> Vec<Value> {
    vec![
        json!({ "name": "stderr", "format": log::format() }),
        json!({ "name": "ring", "capacity": logs::KEPT, "ring": collectors().logs.stats() }),
    ]
}

/// Those of a level and worse; all without one.
fn wanted_level(given: Given<'_>) -> Result<Level, HandlerError> {
    match given.text("level") {
        None => Ok(Level::TRACE),
        Some(word) => logs::level(word).ok_or_else(|| HandlerError::new(format!("there is no level `{word}`"))),
    }
}

fn shown(lines: &[Line]) -> Value {
    listed("entries", lines.iter().map(Line::shown).collect())
}

fn read_entries(_: &Here, given: Given<'_>) -> Said {
    let level = wanted_level(given)?;
    Ok(shown(&collectors().logs.newest(given.limit(100), |line| line.level <= level)))
}

/// `runtime://logs/all`, or of one logger.
fn read_named(_: &Here, given: Given<'_>) -> Said {
    let (name, level) = (given.text("name").unwrap_or("all"), wanted_level(given)?);
    let is_wanted = |line: &Line| line.level <= level && (name == "all" || line.target == name);
    Ok(shown(&collectors().logs.newest(given.limit(100), is_wanted)))
}

fn last_error(_: &Here, given: Given<'_>) -> Said {
    let logger = given.text("logger");
    let is_wanted =
        |line: &Line| line.level == Level::ERROR && logger.is_none_or(|logger| line.target == logger);
    let found = collectors().logs.newest(1, is_wanted);
    Ok(match found.first() {
        Some(line) => json!({ "found": true, "entry": line.shown() }),
        None => json!({ "found": false }),
    })
}

fn search(_: &Here, given: Given<'_>) -> Said {
    let keyword = given.need("keyword")?;
    let level = wanted_level(given)?;
    let after = since(given)?;
    let pattern =
        if given.flag("regex").unwrap_or(true) { keyword.to_owned() } else { regex::escape(keyword) };
    let pattern = regex::RegexBuilder::new(&pattern).case_insensitive(true).size_limit(1 << 20).build();
    let pattern = pattern.map_err(|_| {
        HandlerError::new(
            "`keyword` is no regular expression; say `regex: false` to search for the text as it is",
        )
    })?;
    let is_wanted = |line: &Line| line.level <= level && line.at >= after && pattern.is_match(&line.text());
    Ok(shown(&collectors().logs.newest(given.limit(100), is_wanted)))
}

fn write(here: &Here, given: Given<'_>) -> Said {
    let text: String = given.need("text")?.chars().take(2000).collect();
    let word = given.text("level").unwrap_or("info");
    let level = logs::level(word).ok_or_else(|| HandlerError::new(format!("there is no level `{word}`")))?;
    // Control characters could make one line look like two.
    let text: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let server = here.server.as_str();
    match level {
        Level::ERROR => tracing::error!(target: "toolgate::operator", server, "{text}"),
        Level::WARN => tracing::warn!(target: "toolgate::operator", server, "{text}"),
        Level::INFO => tracing::info!(target: "toolgate::operator", server, "{text}"),
        Level::DEBUG => tracing::debug!(target: "toolgate::operator", server, "{text}"),
        Level::TRACE => tracing::trace!(target: "toolgate::operator", server, "{text}"),
    }
    Ok(json!({ "logged": true, "level": logs::word(level) }))
}

/// How many were slow in the last minutes.
pub(super) fn lately(slow: &Slow) -> usize {
    slow.count_since(unix_millis().saturating_sub(5 * 60 * 1000))
}
