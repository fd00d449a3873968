//! Minimal stand-in for the services behind the pack `hub`. Each response is JSON that depends only on the request, so
//! `examples/hub.toml` runs without a network and its results can be checked.
//!
//! ```sh
//! cargo run -p toolgate-cli --example hub_upstream            # http://127.0.0.1:9100
//! toolgate serve examples/hub.toml
//! ```

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};

/// Largest request body.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Longest delay of the service `slow`, in milliseconds.
const MAX_DELAY_MS: u64 = 120_000;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = match arguments.as_slice() {
        [flag, address] if flag == "--http" => address.clone(),
        [] => "127.0.0.1:9100".to_owned(),
        _ => {
            eprintln!("usage: hub_upstream [--http ADDRESS]");
            std::process::exit(2);
        }
    };
    let listener = tokio::net::TcpListener::bind(address).await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let service = hyper::service::service_fn(respond);
            let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            // An error means that the client has disconnected.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, MAX_REQUEST_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return Ok(json_response(StatusCode::PAYLOAD_TOO_LARGE, &json!({ "error": "too large" }))),
    };
    if parts.method != Method::POST {
        return Ok(json_response(StatusCode::METHOD_NOT_ALLOWED, &json!({ "error": "POST only" })));
    }
    let Ok(input) = serde_json::from_slice::<Value>(&body) else {
        return Ok(json_response(StatusCode::BAD_REQUEST, &json!({ "error": "the body is no JSON" })));
    };
    let path = parts.uri.path().trim_start_matches('/');
    Ok(match path {
        "always-down" => json_response(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": "down for good" })),
        "slow" => {
            let wait = input["ms"].as_u64().unwrap_or(1000).min(MAX_DELAY_MS);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            json_response(StatusCode::OK, &json!({ "result": format!("waited {wait} ms") }))
        }
        _ => match path.strip_prefix("console/") {
            Some(page) => console(page, &input),
            None => service(path, &input),
        },
    })
}

/// Services that return text for people.
fn console(name: &str, input: &Value) -> Response<Full<Bytes>> {
    let text = |key: &str| input[key].as_str().unwrap_or_default().to_owned();
    let page = match name {
        "idea" => format!(
            "# Blue Idea Brief\n\n## Problem\n{} is not there yet.\n\n## Why now\nIt can be paid by the call.\n\n\
             ## What to build first\nThe smallest part that somebody pays for.\n",
            text("prompt")
        ),
        "build" => format!(
            "# Blue Build Plan\n\n## Goal\n{}\n\n## Stack\nOne service, one contract.\n",
            text("prompt")
        ),
        "audit" => {
            format!("# Blue Audit\n\n## Subject\n{}\n\n## Findings\nNone that are severe.\n", text("prompt"))
        }
        "ship" => {
            format!("# Blue Ship Checklist\n\n## Release\n{}\n\n- [ ] Deploy\n- [ ] Verify\n", text("prompt"))
        }
        "raise" => format!("# Blue Raise Story\n\n## Ask\n{}\n\n## Why us\nIt runs.\n", text("prompt")),
        // The pack maps the argument `handle` to `username`.
        "score" => {
            let username = text("username");
            let username = username.trim_start_matches('@');
            format!("# Blue Score\n\n@{username}: {} of 100\n", hash_number(username) % 101)
        }
        "new" => {
            format!("# New project\n\n{} from {}\n\n- README.md\n- src/main.rs\n", text("name"), text("type"))
        }
        "monitor" | "research" | "compose" | "deploy" | "analytics" | "simulate" | "stream" => {
            format!("# Blue {name}\n\n{}\n", format_input(input))
        }
        _ => return not_found(),
    };
    json_response(StatusCode::OK, &json!({ "result": page }))
}

/// Services that return data for programs.
fn service(slug: &str, input: &Value) -> Response<Full<Bytes>> {
    const SERVICES: [&str; 31] = [
        "risk-gate",
        "honeypot-check",
        "allowance-audit",
        "phishing-scan",
        "mev-shield",
        "contract-trust",
        "circuit-breaker",
        "aml-screen",
        "quantum-premium",
        "quantum-batch",
        "quantum-migrate",
        "quantum-timeline",
        "key-exposure",
        "deep-analysis",
        "tokenomics-score",
        "whitepaper-tldr",
        "narrative-pulse",
        "vc-tracker",
        "launch-advisor",
        "grant-evaluator",
        "x402-readiness",
        "base-deploy-check",
        "wallet-pnl",
        "whale-tracker",
        "airdrop-check",
        "dex-flow",
        "yield-optimizer",
        "lp-analyzer",
        "tax-report",
        "alert-subscribe",
        "alert-check",
    ];
    if !SERVICES.contains(&slug) {
        return not_found();
    }
    let score = hash_number(&input.to_string()) % 101;
    let verdict = |levels: [&str; 3]| levels[usize::from(score > 40) + usize::from(score > 75)].to_owned();
    let response = match slug {
        "honeypot-check" => {
            let verdict = verdict(["SAFE", "SUSPICIOUS", "HONEYPOT"]);
            let indicators: &[&str] = if verdict == "SAFE" { &[] } else { &["owner can pause transfers"] };
            json!({
                "verdict": verdict, "riskScore": score, "indicators": indicators, "safeToTrade": verdict == "SAFE",
            })
        }
        "risk-gate" => json!({ "decision": verdict(["APPROVE", "WARN", "BLOCK"]), "riskScore": score }),
        "circuit-breaker" => json!({ "halt": score > 75, "riskScore": score }),
        "aml-screen" => json!({ "risk": verdict(["LOW", "MEDIUM", "HIGH"]), "score": score, "matches": [] }),
        "quantum-batch" => {
            let addresses = input["addresses"].as_array().cloned().unwrap_or_default();
            let each = |address: &Value| json!({ "address": address, "score": hash_number(&address.to_string()) % 101 });
            json!({ "count": addresses.len(), "results": addresses.iter().map(each).collect::<Vec<_>>() })
        }
        "alert-subscribe" => json!({ "id": format!("alert-{score}"), "topics": input["topics"] }),
        _ => json!({ "service": slug, "input": input, "score": score, "summary": format_input(input) }),
    };
    json_response(StatusCode::OK, &response)
}

fn not_found() -> Response<Full<Bytes>> {
    json_response(StatusCode::NOT_FOUND, &json!({ "error": "there is no such service" }))
}

fn json_response(status: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// Formats the input, one member per line.
fn format_input(input: &Value) -> String {
    let lines = input.as_object().into_iter().flatten().map(|(key, value)| format!("{key}: {value}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Hashes a text to a number.
fn hash_number(text: &str) -> u64 {
    text.bytes().fold(17, |sum, byte| (sum * 31 + u64::from(byte)) % 1_000_003)
}
