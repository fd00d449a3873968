//! The text that the demo prints when it starts.

use std::net::SocketAddr;

/// Prints the address of the server and commands to try, on standard error.
pub(crate) fn print(address: SocketAddr) {
    eprintln!("{}", banner_text(address));
}

fn banner_text(address: SocketAddr) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let program =
        std::env::current_exe().map_or_else(|_| "toolgate".into(), |path| path.display().to_string());
    format!(
        r#"Toolgate {version} is serving a small demo.
listening on http://{address}/mcp

Call a tool:

  curl http://{address}/mcp -H 'content-type: application/json' \
    -d '{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"message":"hello"}}}}}}'

List all tools:

  curl http://{address}/mcp -H 'content-type: application/json' \
    -d '{{"jsonrpc":"2.0","id":1,"method":"tools/list"}}'

Connect a client over HTTP, or let it start the server itself:

  {{"mcpServers": {{"toolgate": {{"type": "http", "url": "http://{address}/mcp"}}}}}}
  {{"mcpServers": {{"toolgate": {{"command": "{program}", "args": ["stdio"]}}}}}}

Press Ctrl-C to stop."#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_to_copy_is_valid_json() {
        let text = banner_text("127.0.0.1:8080".parse().unwrap());
        let bodies: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("-d '")).collect();
        assert_eq!(bodies.len(), 2);
        for body in bodies {
            serde_json::from_str::<serde_json::Value>(body.strip_suffix('\'').unwrap()).unwrap();
        }
        let snippets: Vec<&str> = text.lines().filter(|line| line.contains("mcpServers")).collect();
        assert_eq!(snippets.len(), 2);
        for snippet in snippets {
            serde_json::from_str::<serde_json::Value>(snippet).unwrap();
        }
    }
}
