//! Renders the results as a Markdown document.

use std::fmt::Write as _;

use super::behavior::CLIENTS;
use super::contender::read;
use super::machine::Machine;
use super::source::{Language, RULES, count};
use super::{Measured, Results};
use crate::Workspace;

const MAX_REASON_CHARS: usize = 240;

const INTRODUCTION: &str = "\
# Comparison with rmcp and FastMCP

`compare/` contains the same server three times: an order desk with five tools, a resource template and a prompt, served over
stdio. Its tools return structured output with optional fields, have defaults and ranges, ask the user (elicitation), report
progress and ask the client's model (sampling). Each is written as the documentation of its library shows. `cargo xtask compare
--write` checks what they do, measures them and writes this page.";

const BEHAVIOR_NOTE: &str = "\
In rmcp and FastMCP, `elicit` and `create_message` send a request to the client, which 2026-07-28 does not allow. For its clients
a tool has to return an `InputRequiredResult` from a second code path, and continue when it is called again; that path is neither
written nor counted here. FastMCP 4 has no method of its own for sampling; the server calls that of the session.";

const MEASUREMENT: &str = "\
- **Steps**: what `compare/client.py` checks with the official Python client, over stdio, once with a handshake and once with
  the newest protocol version. Structured output is validated against the announced schema.
- **Packages**: crates that are compiled for this machine, without the server itself, or packages in a new venv.
- **Clean build**: `cargo build` in the debug profile into an empty directory, all packages downloaded before, no compiler cache.
  CPU is the time of cargo and all compilers, in user space and in the kernel.
- **Rebuild**: the same after a change of one text that a tool returns; the median of three.
- **Start**: from the start of the process to its response to `initialize`; the median of ten, with the debug build.
- Toolgate is built with its default features, which include HTTP. rmcp is built with `elicitation` and `transport-io`, without
  HTTP. FastMCP is not compiled.";

/// A label, and the cell of a server.
type Row = (&'static str, fn(&Results) -> String);

pub(super) fn render(workspace: &Workspace, all: &[Results], machine: &Machine) -> Result<String, String> {
    let mut text = format!("{INTRODUCTION}\n\n");
    let is_timed = all.iter().any(|results| results.start_seconds.is_some());
    if let Some(warning) = machine.warning().filter(|_| is_timed) {
        let _ = write!(text, "{warning}\n\n");
    }
    push_table(&mut text, all);
    push_failures(&mut text, all);
    let _ = write!(text, "\n## Rules\n\n{RULES}\n{MEASUREMENT}\n{}\n", domain_rule(workspace)?);
    let _ = writeln!(text, "- **Machine**: {}.", machine.description);
    text.push_str("\n## Concepts\n");
    for results in all {
        let names: Vec<String> = results.source.names.iter().map(|name| format!("`{name}`")).collect();
        let _ = write!(text, "\n**{}**, {}:\n{}\n", title(results), names.len(), wrap(&names));
    }
    Ok(text)
}

fn push_table(text: &mut String, all: &[Results]) {
    let titles: Vec<String> = all.iter().map(title).collect();
    let _ = writeln!(text, "| | {} |", titles.join(" | "));
    let _ = writeln!(text, "|---|{}", "--:|".repeat(all.len()));
    let mut push = |label: &str, cell: &dyn Fn(&Results) -> String| {
        let cells: Vec<String> = all.iter().map(cell).collect();
        // A row that nobody asked for.
        if cells.iter().any(|cell| !cell.is_empty()) {
            let _ = writeln!(text, "| {label} | {} |", cells.join(" | "));
        }
    };
    for (index, (_, version)) in CLIENTS.iter().enumerate() {
        push(&format!("steps that pass, client of {version}"), &|results| {
            cell(&results.behavior, |behavior| {
                let (passed, total) = behavior.counts(index);
                format!("{passed} of {total}")
            })
        });
    }
    push("lines", &|results| results.source.lines.to_string());
    push("concepts", &|results| results.source.names.len().to_string());
    let rows: [Row; 6] = [
        ("packages", |results| cell(&results.n_packages, ToString::to_string)),
        ("clean build, CPU", |results| build_cell(results, &results.clean_build, |cost| cost.cpu_seconds)),
        ("clean build, wall", |results| build_cell(results, &results.clean_build, |cost| cost.wall_seconds)),
        ("rebuild after a one-line change, CPU", |results| {
            build_cell(results, &results.rebuild, |cost| cost.cpu_seconds)
        }),
        ("rebuild after a one-line change, wall", |results| {
            build_cell(results, &results.rebuild, |cost| cost.wall_seconds)
        }),
        ("start to first response", |results| {
            cell(&results.start_seconds, |seconds| format!("{:.0} ms", seconds * 1e3))
        }),
    ];
    for (label, value) in rows {
        push(label, &value);
    }
}

fn cell<T>(figure: &Option<Measured<T>>, show: impl Fn(&T) -> String) -> String {
    match figure {
        None => String::new(),
        Some(Ok(value)) => show(value),
        Some(Err(_)) => "not measured".to_owned(),
    }
}

/// Seconds, or a dash for a server that is not compiled.
fn build_cell(
    results: &Results,
    figure: &Option<Measured<super::build::Cost>>,
    seconds: impl Fn(&super::build::Cost) -> f64,
) -> String {
    let is_measured = results.start_seconds.is_some();
    match results.contender.is_compiled() {
        true => cell(figure, |cost| format!("{:.1} s", seconds(cost))),
        false => if is_measured { "–" } else { "" }.to_owned(),
    }
}

fn push_failures(text: &mut String, all: &[Results]) {
    let mut lines = Vec::new();
    for results in all {
        if let Some(Ok(behavior)) = &results.behavior {
            for (version, step, reason) in behavior.failures() {
                lines.push(format!("- {}, {version}: {step}: `{}`", title(results), shorten(reason)));
            }
        }
    }
    if !lines.is_empty() {
        let _ = writeln!(text, "\nSteps that fail:\n\n{}\n\n{BEHAVIOR_NOTE}", lines.join("\n"));
    }
}

/// One line without backquotes.
fn shorten(reason: &str) -> String {
    let reason = reason.replace(['`', '\n'], " ");
    match reason.char_indices().nth(MAX_REASON_CHARS) {
        Some((end, _)) => format!("{}…", &reason[..end]),
        None => reason,
    }
}

fn title(results: &Results) -> String {
    format!("{} {}", results.contender.name, results.version).trim_end().to_owned()
}

/// Why the code behind the tools is not counted.
fn domain_rule(workspace: &Workspace) -> Result<String, String> {
    let lines = |language, file: &str| {
        let text = read(&workspace.root.join(file))?;
        Ok::<_, String>(count(language, &text, &[])?.lines)
    };
    Ok(format!(
        "- The orders themselves are not counted, because they know nothing of MCP: `compare/orders.rs` ({} lines), which both \
         Rust servers\n  include, and `compare/fastmcp/orders.py` ({} lines).",
        lines(Language::Rust, "compare/orders.rs")?,
        lines(Language::Python, "compare/fastmcp/orders.py")?,
    ))
}

/// Joins words with commas into lines of at most 120 characters.
fn wrap(words: &[String]) -> String {
    let mut text = String::new();
    let mut length = 0;
    for (index, word) in words.iter().enumerate() {
        let word = if index + 1 < words.len() { format!("{word},") } else { word.clone() };
        if length > 0 && length + 1 + word.len() > 120 {
            text.push('\n');
            length = 0;
        } else if length > 0 {
            text.push(' ');
            length += 1;
        }
        length += word.len();
        text.push_str(&word);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_short() {
        let words: Vec<String> = (0..40).map(|number| format!("word{number}")).collect();
        let text = wrap(&words);
        assert!(text.lines().count() > 1 && text.lines().all(|line| line.len() <= 120));
        assert_eq!(text.replace('\n', " "), words.join(", "));
    }

    #[test]
    fn reasons_are_one_short_line() {
        assert_eq!(shorten("a `b`\nc"), "a  b  c");
        assert_eq!(shorten(&"x".repeat(1000)).chars().count(), MAX_REASON_CHARS + 1);
    }
}
