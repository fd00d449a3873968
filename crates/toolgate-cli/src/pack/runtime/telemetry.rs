//! Builtins about recorded data: slow requests, slow backends, routes, the log.

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
            Builtin::Sync(|_, arguments| newest_samples(&collectors().requests, arguments))
        }
        "requests_get_stats" => Builtin::Sync(|_, _| Ok(collectors().requests.stats())),
        "requests_get_config" => Builtin::Sync(|_, _| Ok(collectors().requests.config())),
        "requests_set_config" => {
            Builtin::Sync(|_, arguments| Ok(update_slow_log(&collectors().requests, arguments)))
        }
        "requests_clear" => Builtin::Sync(|_, _| Ok(cleared_json(collectors().requests.clear()))),
        "slow_http_get_calls" => Builtin::Sync(|_, arguments| newest_samples(&collectors().http, arguments)),
        "slow_http_get_stats" => Builtin::Sync(|_, _| Ok(collectors().http.stats())),
        "slow_http_get_config" => Builtin::Sync(|_, _| Ok(collectors().http.config())),
        "slow_http_set_config" => {
            Builtin::Sync(|_, arguments| Ok(update_slow_log(&collectors().http, arguments)))
        }
        "slow_http_clear" => Builtin::Sync(|_, _| Ok(cleared_json(collectors().http.clear()))),
        "sql_get_slow_queries" => Builtin::Sync(|_, arguments| newest_samples(&collectors().sql, arguments)),
        "sql_get_query_stats" => Builtin::Sync(|_, _| Ok(collectors().sql.stats())),
        "sql_get_config" => Builtin::Sync(|_, _| Ok(collectors().sql.config())),
        "sql_set_config" => Builtin::Sync(|_, arguments| Ok(update_slow_log(&collectors().sql, arguments))),
        "sql_clear" => Builtin::Sync(|_, _| Ok(cleared_json(collectors().sql.clear()))),
        "routes_get_all" => Builtin::Sync(list_routes),
        "routes_get_route" => Builtin::Sync(get_route),
        "routes_get_summary" => Builtin::Sync(|_, _| Ok(collectors().routes.summary())),
        "routes_get_config" => Builtin::Sync(|_, _| Ok(collectors().routes.config())),
        "routes_set_config" => Builtin::Sync(update_routes),
        "routes_clear" => Builtin::Sync(|_, _| Ok(cleared_json(collectors().routes.clear()))),
        "runtime_route" => Builtin::Sync(|_, arguments| {
            Ok(collectors().routes.get(arguments.text("key").unwrap_or_default()).unwrap_or_default())
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

/// The `since` argument in milliseconds since 1970; 0 if it is missing.
fn since_millis(arguments: BuiltinArguments<'_>) -> Result<u64, HandlerError> {
    match arguments.0.get("since") {
        None | Some(Value::Null) => Ok(0),
        Some(Value::Number(number)) => Ok(number.as_u64().unwrap_or(0)),
        Some(value) => value.as_str().and_then(parse_iso8601).ok_or_else(|| {
            HandlerError::new(
                "`since` must be a time such as 1999-12-31T12:00:00Z, or milliseconds since 1970",
            )
        }),
    }
}

/// Returns a plain list, which clients of such tools expect.
fn newest_samples(log: &SlowLog, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    Ok(log.newest(arguments.limit(50), since_millis(arguments)?).into())
}

fn update_slow_log(log: &SlowLog, arguments: BuiltinArguments<'_>) -> Value {
    let captures = ["capture", "captureText", "captureBody", "captureStack"];
    log.update(&SlowLogUpdate {
        enabled: arguments.flag("enabled"),
        threshold_millis: arguments.number("thresholdMs"),
        capacity: arguments.number("buffer").map(|capacity| usize::try_from(capacity).unwrap_or(usize::MAX)),
        captures_text: captures.iter().find_map(|name| arguments.flag(name)),
    });
    log.config()
}

fn cleared_json(count: usize) -> Value {
    json!({ "cleared": true, "removed": count })
}

fn list_routes(_: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let order = arguments.text("sortBy").unwrap_or("count");
    let order =
        RouteOrder::parse(order).ok_or_else(|| HandlerError::new(format!("unknown order `{order}`")))?;
    Ok(list_json("routes", collectors().routes.list(order, arguments.limit(50))))
}

fn get_route(_: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let key = arguments.require("key")?;
    collectors()
        .routes
        .get(key)
        .ok_or_else(|| HandlerError::new(format!("unknown route `{key}`; `routes_get_all` lists all routes")))
}

fn update_routes(_: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let max_routes =
        arguments.number("maxRoutes").map(|max_routes| usize::try_from(max_routes).unwrap_or(usize::MAX));
    collectors().routes.update(max_routes, arguments.flag("normalize"));
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

fn get_logger(_: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let name = arguments.require("name")?;
    super::find_by_name("logger", name, loggers(), |logger| logger["name"].as_str().unwrap_or_default())
}

fn appenders() -> Vec<Value> {
    vec![
        json!({ "name": "stderr", "format": log::format() }),
        json!({ "name": "ring", "capacity": logs::MAX_LINES, "ring": collectors().logs.stats() }),
    ]
}

/// The `level` argument; all levels if it is missing.
fn min_level(arguments: BuiltinArguments<'_>) -> Result<Level, HandlerError> {
    match arguments.text("level") {
        None => Ok(Level::TRACE),
        Some(level_name) => logs::parse_level(level_name)
            .ok_or_else(|| HandlerError::new(format!("unknown level `{level_name}`"))),
    }
}

fn entries_json(lines: &[LogLine]) -> Value {
    list_json("entries", lines.iter().map(LogLine::to_json).collect())
}

fn read_entries(_: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let level = min_level(arguments)?;
    Ok(entries_json(&collectors().logs.newest(arguments.limit(100), |line| line.level <= level)))
}

/// The entries of `runtime://logs/all`, or of one logger.
fn read_named(_: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let (name, level) = (arguments.text("name").unwrap_or("all"), min_level(arguments)?);
    let is_wanted = |line: &LogLine| line.level <= level && (name == "all" || line.target == name);
    Ok(entries_json(&collectors().logs.newest(arguments.limit(100), is_wanted)))
}

fn last_error(_: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let logger = arguments.text("logger");
    let is_wanted =
        |line: &LogLine| line.level == Level::ERROR && logger.is_none_or(|logger| line.target == logger);
    let found = collectors().logs.newest(1, is_wanted);
    Ok(match found.first() {
        Some(line) => json!({ "found": true, "entry": line.to_json() }),
        None => json!({ "found": false }),
    })
}

fn search_entries(_: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let keyword = arguments.require("keyword")?;
    let level = min_level(arguments)?;
    let after = since_millis(arguments)?;
    let pattern =
        if arguments.flag("regex").unwrap_or(true) { keyword.to_owned() } else { regex::escape(keyword) };
    let pattern = regex::RegexBuilder::new(&pattern).case_insensitive(true).size_limit(1 << 20).build();
    let pattern = pattern.map_err(|_| {
        HandlerError::new(
            "`keyword` is not a valid regular expression; set `regex: false` to search for literal text",
        )
    })?;
    let is_wanted = |line: &LogLine| {
        line.level <= level && line.timestamp >= after && pattern.is_match(&line.search_text())
    };
    Ok(entries_json(&collectors().logs.newest(arguments.limit(100), is_wanted)))
}

fn log_message(context: &BuiltinContext, arguments: BuiltinArguments<'_>) -> BuiltinResult {
    let text: String = arguments.require("text")?.chars().take(2000).collect();
    let level_name = arguments.text("level").unwrap_or("info");
    let level = logs::parse_level(level_name)
        .ok_or_else(|| HandlerError::new(format!("unknown level `{level_name}`")))?;
    // Control characters could split a line.
    let text: String =
        text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
    let server = context.server.as_str();
    match level {
        Level::ERROR => tracing::error!(target: "toolgate::operator", server, "{text}"),
        Level::WARN => tracing::warn!(target: "toolgate::operator", server, "{text}"),
        Level::INFO => tracing::info!(target: "toolgate::operator", server, "{text}"),
        Level::DEBUG => tracing::debug!(target: "toolgate::operator", server, "{text}"),
        Level::TRACE => tracing::trace!(target: "toolgate::operator", server, "{text}"),
    }
    Ok(json!({ "logged": true, "level": logs::level_name(level) }))
}

/// The number of slow samples in the last five minutes.
pub(super) fn count_recent(log: &SlowLog) -> usize {
    log.count_since(unix_millis().saturating_sub(5 * 60 * 1000))
}
