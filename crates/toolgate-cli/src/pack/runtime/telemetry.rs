//! Acts about what was noted: slow requests, slow backends, routes, the log.

use serde_json::{Value, json};
use toolgate::HandlerError;
use tracing::Level;

use super::{Builtin, BuiltinArguments, BuiltinContext, BuiltinResult, list_json};
use crate::clock::{parse_iso8601, unix_millis};
use crate::log;
use crate::observe::logs::{self, LogLine};
use crate::observe::routes::RouteOrder;
use crate::observe::slow_log::{SlowLog, SlowLogUpdate};
use crate::observe::{Collectors, collectors};

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "requests_get_slow_requests" => {
            Builtin::Sync(|_, given| newest_samples(&collectors().requests, given, "requests"))
        }
        "requests_get_stats" => Builtin::Sync(|_, _| Ok(collectors().requests.stats())),
        "requests_get_config" => Builtin::Sync(|_, _| Ok(collectors().requests.config())),
        "requests_set_config" => Builtin::Sync(|_, given| Ok(update_slow_log(&collectors().requests, given))),
        "requests_clear" => Builtin::Sync(|_, _| Ok(cleared_json(collectors().requests.clear()))),
        "slow_http_get_calls" => Builtin::Sync(|_, given| newest_samples(&collectors().http, given, "calls")),
        "slow_http_get_stats" => Builtin::Sync(|_, _| Ok(collectors().http.stats())),
        "slow_http_get_config" => Builtin::Sync(|_, _| Ok(collectors().http.config())),
        "slow_http_set_config" => Builtin::Sync(|_, given| Ok(update_slow_log(&collectors().http, given))),
        "slow_http_clear" => Builtin::Sync(|_, _| Ok(cleared_json(collectors().http.clear()))),
        "sql_get_slow_queries" => {
            Builtin::Sync(|_, given| newest_samples(&collectors().sql, given, "queries"))
        }
        "sql_get_query_stats" => Builtin::Sync(|_, _| Ok(collectors().sql.stats())),
        "sql_get_config" => Builtin::Sync(|_, _| Ok(collectors().sql.config())),
        "sql_set_config" => Builtin::Sync(|_, given| Ok(update_slow_log(&collectors().sql, given))),
        "sql_clear" => Builtin::Sync(|_, _| Ok(cleared_json(collectors().sql.clear()))),
        "routes_get_all" => Builtin::Sync(list_routes),
        "routes_get_route" => Builtin::Sync(get_route),
        "routes_get_summary" => Builtin::Sync(|_, _| Ok(collectors().routes.summary())),
        "routes_get_config" => Builtin::Sync(|_, _| Ok(collectors().routes.config())),
        "routes_set_config" => Builtin::Sync(update_routes),
        "routes_clear" => Builtin::Sync(|_, _| Ok(cleared_json(collectors().routes.clear()))),
        "runtime_route" => Builtin::Sync(|_, given| {
            Ok(collectors().routes.get(given.text("key").unwrap_or_default()).unwrap_or_default())
        }),
        "logging_get_info" => Builtin::Sync(|_, _| Ok(logging_info())),
        "logging_get_config" => Builtin::Sync(|_, _| Ok(logging_config())),
        "logging_get_loggers" => Builtin::Sync(|_, _| Ok(list_json("loggers", loggers()))),
        "logging_get_logger" => Builtin::Sync(get_logger),
        "logging_get_root_logger" => {
            Builtin::Sync(|_, _| Ok(json!({ "name": "root", "level": log::level() })))
        }
        "logging_get_appenders" => Builtin::Sync(|_, _| Ok(list_json("appenders", appenders()))),
        "logging_read_entries" => Builtin::Sync(read_entries),
        "logging_read_named" => Builtin::Sync(read_named),
        "logging_get_last_error" => Builtin::Sync(last_error),
        "logging_search_entries" => Builtin::Sync(search_entries),
        "logging_log_message" => Builtin::Sync(log_message),
        _ => return None,
    })
}

/// A moment that an argument names; the beginning of time if it names none.
fn since_millis(given: BuiltinArguments<'_>) -> Result<u64, HandlerError> {
    match given.0.get("since") {
        None | Some(Value::Null) => Ok(0),
        Some(Value::Number(number)) => Ok(number.as_u64().unwrap_or(0)),
        Some(value) => value.as_str().and_then(parse_iso8601).ok_or_else(|| {
            HandlerError::new("`since` is a moment like 1999-12-31T12:00:00Z, or milliseconds since 1970")
        }),
    }
}

/// A list and nothing else: that is what those who wrote clients for such tools expect.
fn newest_samples(slow: &SlowLog, given: BuiltinArguments<'_>, _: &str) -> BuiltinResult {
    Ok(slow.newest(given.limit(50), since_millis(given)?).into())
}

fn update_slow_log(slow: &SlowLog, given: BuiltinArguments<'_>) -> Value {
    let captures = ["capture", "captureText", "captureBody", "captureStack"];
    slow.update(&SlowLogUpdate {
        enabled: given.flag("enabled"),
        threshold_millis: given.number("thresholdMs"),
        capacity: given.number("buffer").map(|kept| usize::try_from(kept).unwrap_or(usize::MAX)),
        captures_text: captures.iter().find_map(|name| given.flag(name)),
    });
    slow.config()
}

fn cleared_json(count: usize) -> Value {
    json!({ "cleared": true, "removed": count })
}

fn list_routes(_: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let order = given.text("sortBy").unwrap_or("count");
    let order = RouteOrder::parse(order)
        .ok_or_else(|| HandlerError::new(format!("routes cannot be ordered by `{order}`")))?;
    Ok(list_json("routes", collectors().routes.list(order, given.limit(50))))
}

fn get_route(_: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let key = given.require("key")?;
    collectors().routes.get(key).ok_or_else(|| {
        HandlerError::new(format!(
            "nothing is known of the route `{key}`; `routes_get_all` lists those that are"
        ))
    })
}

fn update_routes(_: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let most = given.number("maxRoutes").map(|most| usize::try_from(most).unwrap_or(usize::MAX));
    collectors().routes.update(most, given.flag("normalize"));
    Ok(collectors().routes.config())
}

fn logging_info() -> Value {
    let Collectors { logs, .. } = collectors();
    json!({ "level": log::level(), "format": log::format(), "target": "standard error", "ring": logs.stats() })
}

fn logging_config() -> Value {
    json!({
        "level": log::level(),
        "usualLevel": log::initial_level(),
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

fn get_logger(_: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let name = given.require("name")?;
    super::find_by_name("logger", name, loggers(), |logger| logger["name"].as_str().unwrap_or_default())
}

fn appenders() -> Vec<Value> {
    vec![
        json!({ "name": "stderr", "format": log::format() }),
        json!({ "name": "ring", "capacity": logs::MAX_LINES, "ring": collectors().logs.stats() }),
    ]
}

/// Those of a level and worse; all without one.
fn min_level(given: BuiltinArguments<'_>) -> Result<Level, HandlerError> {
    match given.text("level") {
        None => Ok(Level::TRACE),
        Some(word) => {
            logs::parse_level(word).ok_or_else(|| HandlerError::new(format!("there is no level `{word}`")))
        }
    }
}

fn entries_json(lines: &[LogLine]) -> Value {
    list_json("entries", lines.iter().map(LogLine::to_json).collect())
}

fn read_entries(_: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let level = min_level(given)?;
    Ok(entries_json(&collectors().logs.newest(given.limit(100), |line| line.level <= level)))
}

/// `runtime://logs/all`, or of one logger.
fn read_named(_: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let (name, level) = (given.text("name").unwrap_or("all"), min_level(given)?);
    let is_wanted = |line: &LogLine| line.level <= level && (name == "all" || line.target == name);
    Ok(entries_json(&collectors().logs.newest(given.limit(100), is_wanted)))
}

fn last_error(_: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let logger = given.text("logger");
    let is_wanted =
        |line: &LogLine| line.level == Level::ERROR && logger.is_none_or(|logger| line.target == logger);
    let found = collectors().logs.newest(1, is_wanted);
    Ok(match found.first() {
        Some(line) => json!({ "found": true, "entry": line.to_json() }),
        None => json!({ "found": false }),
    })
}

fn search_entries(_: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let keyword = given.require("keyword")?;
    let level = min_level(given)?;
    let after = since_millis(given)?;
    let pattern =
        if given.flag("regex").unwrap_or(true) { keyword.to_owned() } else { regex::escape(keyword) };
    let pattern = regex::RegexBuilder::new(&pattern).case_insensitive(true).size_limit(1 << 20).build();
    let pattern = pattern.map_err(|_| {
        HandlerError::new(
            "`keyword` is no regular expression; say `regex: false` to search for the text as it is",
        )
    })?;
    let is_wanted = |line: &LogLine| {
        line.level <= level && line.timestamp >= after && pattern.is_match(&line.search_text())
    };
    Ok(entries_json(&collectors().logs.newest(given.limit(100), is_wanted)))
}

fn log_message(here: &BuiltinContext, given: BuiltinArguments<'_>) -> BuiltinResult {
    let text: String = given.require("text")?.chars().take(2000).collect();
    let word = given.text("level").unwrap_or("info");
    let level =
        logs::parse_level(word).ok_or_else(|| HandlerError::new(format!("there is no level `{word}`")))?;
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
    Ok(json!({ "logged": true, "level": logs::level_name(level) }))
}

/// How many were slow in the last minutes.
pub(super) fn count_recent(slow: &SlowLog) -> usize {
    slow.count_since(unix_millis().saturating_sub(5 * 60 * 1000))
}
