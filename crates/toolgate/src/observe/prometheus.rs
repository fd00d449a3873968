//! The numbers of servers as Prometheus reads them: text, one line a number.
//!
//! Names follow its habits: `_total` counts up, times are seconds, labels say which. What peers choose is a value of a
//! label only, and how many there can be is bounded where they are counted.

use std::fmt::Write as _;

use super::view::StatsDetail;

/// A server and its numbers.
pub(crate) struct ServerMetrics {
    pub(crate) server: String,
    pub(crate) is_paused: bool,
    pub(crate) stats: StatsDetail,
    /// Also what names tools, methods and codes: for those who may see all of them.
    pub(crate) has_names: bool,
}

/// The text for these servers.
pub(crate) fn encode(servers: &[ServerMetrics]) -> String {
    let mut page = MetricsText(String::new());
    let stats = |each: fn(&StatsDetail) -> f64| {
        move |one: &ServerMetrics, rows: &mut SampleWriter<'_>| {
            rows.write_sample(&[("server", &one.server)], each(&one.stats))
        }
    };
    page.write_family(
        servers,
        "mcp_requests_total",
        "counter",
        "Requests answered.",
        stats(|all| all.requests.total as f64),
    );
    page.write_family(
        servers,
        "mcp_requests_failed_total",
        "counter",
        "Requests that ended in an error, or in a result that is marked as one.",
        stats(|all| all.requests.failed as f64),
    );
    page.write_family(
        servers,
        "mcp_requests_active",
        "gauge",
        "Requests that are being answered.",
        stats(|all| all.active_requests as f64),
    );
    page.write_family(
        servers,
        "mcp_request_duration_seconds",
        "summary",
        "How long answers took.",
        |one: &ServerMetrics, rows: &mut SampleWriter<'_>| {
            let times = &one.stats.requests;
            for (quantile, millis) in [
                ("0.5", times.p50_response_time),
                ("0.95", times.p95_response_time),
                ("0.99", times.p99_response_time),
            ] {
                rows.write_sample(&[("server", &one.server), ("quantile", quantile)], millis / 1000.0);
            }
            let sum = times.avg_response_time * times.total as f64 / 1000.0;
            rows.write_suffixed_sample("_sum", &[("server", &one.server)], sum);
            rows.write_suffixed_sample("_count", &[("server", &one.server)], times.total as f64);
        },
    );
    page.write_family(servers, "mcp_tool_calls_total", "counter", "Calls of tools.", |one, rows| {
        if one.has_names {
            for (tool, calls) in &one.stats.tools.by_tool {
                rows.write_sample(&[("server", &one.server), ("tool", tool)], calls.count as f64);
            }
        } else {
            rows.write_sample(&[("server", &one.server)], one.stats.tools.total_invocations as f64);
        }
    });
    page.write_family(
        servers,
        "mcp_tool_errors_total",
        "counter",
        "Results of tools that are marked as errors.",
        |one, rows| {
            for (tool, calls) in one.stats.tools.by_tool.iter().filter(|_| one.has_names) {
                rows.write_sample(&[("server", &one.server), ("tool", tool)], calls.errors as f64);
            }
        },
    );
    page.write_family(servers, "mcp_tool_seconds_total", "counter", "Time spent in tools.", |one, rows| {
        for (tool, calls) in one.stats.tools.by_tool.iter().filter(|_| one.has_names) {
            rows.write_sample(&[("server", &one.server), ("tool", tool)], calls.total_time / 1000.0);
        }
    });
    page.write_family(servers, "mcp_method_requests_total", "counter", "Requests by method.", |one, rows| {
        for (method, count) in one.stats.requests.by_method.iter().filter(|_| one.has_names) {
            rows.write_sample(&[("server", &one.server), ("method", method)], *count as f64);
        }
    });
    page.write_family(servers, "mcp_errors_total", "counter", "Errors by code.", |one, rows| {
        for (code, count) in one.stats.errors.by_code.iter().filter(|_| one.has_names) {
            rows.write_sample(&[("server", &one.server), ("code", code)], *count as f64);
        }
    });
    page.write_family(
        servers,
        "mcp_resource_reads_total",
        "counter",
        "Resources read.",
        stats(|all| all.resources.total_reads as f64),
    );
    page.write_family(
        servers,
        "mcp_prompts_total",
        "counter",
        "Prompts filled.",
        stats(|all| all.prompts.total_generations as f64),
    );
    page.write_family(servers, "mcp_refused_total", "counter", "Those who were not let in.", |one, rows| {
        let refused = &one.stats.security;
        for (reason, count) in [
            ("auth", refused.auth_failures),
            ("api_key", refused.api_key_failures),
            ("body_size", refused.body_size_violations),
            ("ip", refused.ip_filter_failures),
            ("origin", refused.origin_failures),
            ("rate", refused.rate_limited),
        ] {
            rows.write_sample(&[("server", &one.server), ("reason", reason)], count as f64);
        }
    });
    page.write_family(servers, "mcp_server_paused", "gauge", "1 while the server is paused.", |one, rows| {
        rows.write_sample(&[("server", &one.server)], if one.is_paused { 1.0 } else { 0.0 });
    });
    page.write_family(
        servers,
        "mcp_server_uptime_seconds",
        "gauge",
        "How long the server exists.",
        stats(|all| all.uptime as f64 / 1000.0),
    );
    page.0
}

struct MetricsText(String);

/// Lines of one family.
struct SampleWriter<'a> {
    text: &'a mut String,
    name: &'a str,
}

impl MetricsText {
    fn write_family(
        &mut self,
        servers: &[ServerMetrics],
        name: &str,
        kind: &str,
        about: &str,
        each: impl Fn(&ServerMetrics, &mut SampleWriter<'_>),
    ) {
        let _ = write!(self.0, "# HELP {name} {about}\n# TYPE {name} {kind}\n");
        let mut rows = SampleWriter { text: &mut self.0, name };
        for server in servers {
            each(server, &mut rows);
        }
    }
}

impl SampleWriter<'_> {
    fn write_sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.write_suffixed_sample("", labels, value);
    }

    fn write_suffixed_sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "{}{suffix}{{", self.name);
        for (place, (label, value)) in labels.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let _ = write!(self.text, "{comma}{label}=\"");
            for letter in value.chars() {
                match letter {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    letter => self.text.push(letter),
                }
            }
            self.text.push('"');
        }
        let _ = writeln!(self.text, "}} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::ToolCalls;

    fn server_metrics(has_names: bool) -> ServerMetrics {
        let mut stats = StatsDetail::default();
        stats.requests.total = 4;
        stats.requests.avg_response_time = 250.0;
        stats.requests.p99_response_time = 500.0;
        stats.tools.total_invocations = 3;
        stats.tools.by_tool.insert("a\"b\\c\nd".into(), ToolCalls { count: 3, ..ToolCalls::default() });
        stats.errors.by_code.insert("-32602".into(), 2);
        ServerMetrics { server: "shop".into(), is_paused: true, stats, has_names }
    }

    #[test]
    fn each_number_is_a_line_with_its_server() {
        let text = encode(&[server_metrics(true)]);
        for line in [
            "mcp_requests_total{server=\"shop\"} 4",
            "mcp_request_duration_seconds{server=\"shop\",quantile=\"0.99\"} 0.5",
            "mcp_request_duration_seconds_sum{server=\"shop\"} 1",
            "mcp_request_duration_seconds_count{server=\"shop\"} 4",
            "mcp_tool_calls_total{server=\"shop\",tool=\"a\\\"b\\\\c\\nd\"} 3",
            "mcp_errors_total{server=\"shop\",code=\"-32602\"} 2",
            "mcp_refused_total{server=\"shop\",reason=\"rate\"} 0",
            "mcp_server_paused{server=\"shop\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        // Whatever names hold, a line is a comment or ends in a number.
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.rsplit_once(' ').is_some_and(|(_, number)| number.parse::<f64>().is_ok()), "{line}");
        }
    }

    #[test]
    fn names_are_only_for_those_who_may_see_them() {
        let text = encode(&[server_metrics(false)]);
        assert!(!text.contains("tool=") && !text.contains("code=") && !text.contains("method="));
        assert!(text.contains("mcp_tool_calls_total{server=\"shop\"} 3\n"));
    }
}
