//! `cargo xtask fuzz [TARGET] [--seconds N]`: coverage-guided fuzzing on the stable toolchain.
//!
//! libFuzzer is built from source by its crate, and stable rustc can instrument the code for its coverage, so there is
//! nothing to install. The corpus of earlier runs stays in `target/xtask/fuzz/corpus`.

use std::path::Path;
use std::process::Command;

use crate::Workspace;

const TARGETS: [&str; 5] = ["frame", "http1", "message", "schema", "template"];

/// Flags that instrument the code for coverage.
const COVERAGE_RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table";

/// The initial corpus, so that the fuzzer does not have to discover JSON-RPC.
const SEEDS: [&str; 12] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":[1,2.5,null,true,"\u00e9"]},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"progressToken":1},"inputResponses":{"k":{"action":"accept"}},"requestState":"s"}}"#,
    r#"{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{"tools":{}}},"clientInfo":{"name":"c","version":"1"}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"v"},"context":{"arguments":{"x":"y"}}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a://b"]}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"mode":"form","message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string","oneOf":[{"const":"x","title":"X"}]}}}}}"#,
    r#"[{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#,
    r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"x"},{"type":"image","data":"AAAA","mimeType":"i"}],"structuredContent":{"a":1},"tools":[{"name":"t","inputSchema":{"type":"object"}}]}}"#,
    "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/x\"}},\"additionalProperties\":false,\"required\":[\"a\"],\"$defs\":{\"x\":{\"anyOf\":[{\"minimum\":1},{\"pattern\":\"^a+$\"}]}}}\n{\"a\":1.5}",
    "{\"unevaluatedProperties\":false,\"allOf\":[{\"patternProperties\":{\"^x\":true}}],\"if\":{\"const\":1},\"then\":{\"$dynamicRef\":\"#n\"},\"$dynamicAnchor\":\"n\"}\n{\"x\":[]}",
    "^(?=.*[a-z])(?:a|b{2,3}|\\p{L})+?(c)\\1$\nabbcc",
    "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}\0POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n",
    "notes://{id}/x{?a,b*}\nnotes://7/x?a=1",
];

/// Fuzzes one target, or all of them one after the other. Returns false if one found a failure.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<bool, String> {
    let (mut seconds, mut chosen) = (30_u64, None);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => {
                let given = arguments.next().and_then(|text| text.parse().ok());
                seconds = given.ok_or("`--seconds` needs a number")?;
            }
            name if TARGETS.contains(&name) => chosen = Some(name),
            other => {
                return Err(format!("unknown fuzz target `{other}`; expected one of {}", TARGETS.join(", ")));
            }
        }
    }
    let target = workspace.work_dir.join("fuzz");
    build(&workspace.root, &target)?;
    let mut is_success = true;
    for name in TARGETS.iter().filter(|name| chosen.is_none_or(|chosen| chosen == **name)) {
        println!("\n== fuzz {name}, {seconds} s");
        is_success &= fuzz(&target, name, seconds)?;
    }
    Ok(is_success)
}

fn build(root: &Path, target: &Path) -> Result<(), String> {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--release", "--target", &host_triple()?])
        .current_dir(root.join("fuzz"))
        .env("RUSTFLAGS", COVERAGE_RUSTFLAGS)
        .env("CARGO_TARGET_DIR", target)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("the fuzz targets do not build".into()),
        Err(error) => Err(format!("cannot run cargo: {error}")),
    }
}

/// The host target. Naming it keeps the flags away from build scripts and macros, which cannot link the fuzzer.
fn host_triple() -> Result<String, String> {
    let output =
        Command::new("rustc").arg("-vV").output().map_err(|error| format!("cannot run rustc: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not report its host".into())
}

fn fuzz(target: &Path, name: &str, seconds: u64) -> Result<bool, String> {
    let corpus = target.join("corpus").join(name);
    let io = |error: std::io::Error| format!("{}: {error}", corpus.display());
    std::fs::create_dir_all(&corpus).map_err(io)?;
    for (number, seed) in SEEDS.iter().enumerate() {
        std::fs::write(corpus.join(format!("seed-{number}")), seed).map_err(io)?;
    }
    let status = Command::new(target.join(host_triple()?).join("release").join(name))
        .arg(format!("-max_total_time={seconds}"))
        .args(["-max_len=4096", "-print_final_stats=1", "-verbosity=0", "-rss_limit_mb=1024", "-timeout=5"])
        .arg(&corpus)
        .current_dir(target)
        .status()
        .map_err(io)?;
    Ok(status.success())
}
