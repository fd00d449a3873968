//! Statistics of servers in the Prometheus text format.
//!
//! Names follow its conventions: `_total` for counters, seconds for durations. Text chosen by clients appears in label
//! values only, and its variety is bounded where it is counted.

use std::fmt::Write as _;

use super::outcome::CallOutcome;
use super::stats::{OutcomeCounts, StatsDetail};

/// A server and its statistics.
pub(crate) struct ServerMetrics {
    pub(crate) server: String,
    pub(crate) is_paused: bool,
    pub(crate) stats: StatsDetail,
    /// Whether to list tool names, methods and error codes: only for readers who may see all of them.
    pub(crate) has_names: bool,
}

/// Encodes the statistics of these servers.
pub(crate) fn encode(servers: &[ServerMetrics]) -> String {
    let mut metrics = MetricsText(String::new());
    let stats = |value: fn(&StatsDetail) -> f64| {
        move |server: &ServerMetrics, samples: &mut SampleWriter<'_>| {
            samples.write_sample(&[("server", &server.server)], value(&server.stats))
        }
    };
    metrics.write_family(
        servers,
        "mcp_requests_total",
        "counter",
        "Completed requests.",
        stats(|stats| stats.requests.total as f64),
    );
    metrics.write_family(
        servers,
        "mcp_requests_failed_total",
        "counter",
        "Failed requests, including results marked as errors.",
        stats(|stats| stats.requests.failed as f64),
    );
    metrics.write_family(
        servers,
        "mcp_request_outcomes_total",
        "counter",
        "Completed requests by outcome.",
        |server, samples| {
            let labels = [("server", &*server.server)];
            samples.write_outcomes(&labels, &server.stats.requests.by_outcome);
        },
    );
    metrics.write_family(
        servers,
        "mcp_requests_active",
        "gauge",
        "Requests in progress.",
        stats(|stats| stats.active_requests as f64),
    );
    metrics.write_family(
        servers,
        "mcp_request_duration_seconds",
        "summary",
        "Response time.",
        |server: &ServerMetrics, samples: &mut SampleWriter<'_>| {
            let times = &server.stats.requests;
            for (quantile, millis) in [
                ("0.5", times.p50_response_time),
                ("0.95", times.p95_response_time),
                ("0.99", times.p99_response_time),
            ] {
                samples.write_sample(&[("server", &server.server), ("quantile", quantile)], millis / 1000.0);
            }
            let sum = times.avg_response_time * times.total as f64 / 1000.0;
            samples.write_suffixed_sample("_sum", &[("server", &server.server)], sum);
            samples.write_suffixed_sample("_count", &[("server", &server.server)], times.total as f64);
        },
    );
    metrics.write_family(servers, "mcp_tool_calls_total", "counter", "Tool calls.", |server, samples| {
        if server.has_names {
            for (tool, calls) in &server.stats.tools.by_tool {
                samples.write_sample(&[("server", &server.server), ("tool", tool)], calls.count as f64);
            }
        } else {
            samples.write_sample(&[("server", &server.server)], server.stats.tools.total_invocations as f64);
        }
    });
    metrics.write_family(
        servers,
        "mcp_tool_errors_total",
        "counter",
        "Tool calls that failed.",
        |server, samples| {
            for (tool, calls) in server.stats.tools.by_tool.iter().filter(|_| server.has_names) {
                samples.write_sample(&[("server", &server.server), ("tool", tool)], calls.errors as f64);
            }
        },
    );
    metrics.write_family(
        servers,
        "mcp_tool_outcomes_total",
        "counter",
        "Tool calls by outcome.",
        |server, samples| {
            for (tool, calls) in server.stats.tools.by_tool.iter().filter(|_| server.has_names) {
                let labels = [("server", &*server.server), ("tool", tool)];
                samples.write_outcomes(&labels, &calls.by_outcome);
            }
        },
    );
    metrics.write_family(
        servers,
        "mcp_tool_seconds_total",
        "counter",
        "Execution time of tools.",
        |server, samples| {
            for (tool, calls) in server.stats.tools.by_tool.iter().filter(|_| server.has_names) {
                samples
                    .write_sample(&[("server", &server.server), ("tool", tool)], calls.total_time / 1000.0);
            }
        },
    );
    metrics.write_family(
        servers,
        "mcp_method_requests_total",
        "counter",
        "Requests by method.",
        |server, samples| {
            for (method, count) in server.stats.requests.by_method.iter().filter(|_| server.has_names) {
                samples.write_sample(&[("server", &server.server), ("method", method)], *count as f64);
            }
        },
    );
    metrics.write_family(servers, "mcp_errors_total", "counter", "Errors by code.", |server, samples| {
        for (code, count) in server.stats.errors.by_code.iter().filter(|_| server.has_names) {
            samples.write_sample(&[("server", &server.server), ("code", code)], *count as f64);
        }
    });
    metrics.write_family(
        servers,
        "mcp_resource_reads_total",
        "counter",
        "Resource reads.",
        stats(|stats| stats.resources.total_reads as f64),
    );
    metrics.write_family(
        servers,
        "mcp_prompts_total",
        "counter",
        "Prompts generated.",
        stats(|stats| stats.prompts.total_generations as f64),
    );
    metrics.write_family(
        servers,
        "mcp_refused_total",
        "counter",
        "Rejected clients, by reason.",
        |server, samples| {
            let rejected = &server.stats.security;
            for (reason, count) in [
                ("auth", rejected.auth_failures),
                ("api_key", rejected.api_key_failures),
                ("body_size", rejected.body_size_violations),
                ("ip", rejected.ip_filter_failures),
                ("origin", rejected.origin_failures),
                ("rate", rejected.rate_limited),
            ] {
                samples.write_sample(&[("server", &server.server), ("reason", reason)], count as f64);
            }
        },
    );
    metrics.write_family(
        servers,
        "mcp_server_paused",
        "gauge",
        "1 while the server is paused.",
        |server, samples| {
            samples.write_sample(&[("server", &server.server)], if server.is_paused { 1.0 } else { 0.0 });
        },
    );
    metrics.write_family(
        servers,
        "mcp_server_uptime_seconds",
        "gauge",
        "Time since the server was created.",
        stats(|stats| stats.uptime as f64 / 1000.0),
    );
    metrics.0
}

struct MetricsText(String);

/// Writes the samples of one metric family.
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
        help: &str,
        write_samples: impl Fn(&ServerMetrics, &mut SampleWriter<'_>),
    ) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        let mut samples = SampleWriter { text: &mut self.0, name };
        for server in servers {
            write_samples(server, &mut samples);
        }
    }
}

impl SampleWriter<'_> {
    fn write_sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.write_suffixed_sample("", labels, value);
    }

    /// Writes one sample for each outcome, also for those that have not occurred.
    fn write_outcomes(&mut self, labels: &[(&str, &str)], counts: &OutcomeCounts) {
        for outcome in [CallOutcome::Ok].into_iter().chain(CallOutcome::NOT_OK) {
            let labels = [labels, &[("outcome", outcome.as_str())]].concat();
            self.write_sample(&labels, counts.get(outcome) as f64);
        }
    }

    fn write_suffixed_sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "{}{suffix}{{", self.name);
        for (index, (label, value)) in labels.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(self.text, "{comma}{label}=\"");
            for character in value.chars() {
                match character {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    character => self.text.push(character),
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
    fn each_sample_is_a_line_with_its_server() {
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
        // Whatever names contain, each line is a comment or ends in a number.
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.rsplit_once(' ').is_some_and(|(_, number)| number.parse::<f64>().is_ok()), "{line}");
        }
    }

    #[test]
    fn names_are_listed_only_if_allowed() {
        let text = encode(&[server_metrics(false)]);
        assert!(!text.contains("tool=") && !text.contains("code=") && !text.contains("method="));
        assert!(text.contains("mcp_tool_calls_total{server=\"shop\"} 3\n"));
    }
}
