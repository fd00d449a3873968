//! The small server of the benchmarks on turbomcp.
//!
//! `--listen ADDR` serves HTTP, `--stdio` standard input and output.

use axum::serve::ListenerExt;
use turbomcp::http::{HttpConfig, router};
use turbomcp::prelude::*;

#[derive(Clone)]
struct Bench;

/// Defines a server with these tools in addition to `echo` and `add`: the names must be known at compile time.
macro_rules! bench {
    ($($dummy:ident)*) => {
        #[server(name = "bench", version = "1.0.0")]
        impl Bench {
            #[tool(description = "Says it again")]
            async fn echo(&self, message: String) -> McpResult<String> {
                Ok(message)
            }

            #[tool(description = "Adds two numbers")]
            async fn add(&self, a: i64, b: i64) -> McpResult<String> {
                Ok((a + b).to_string())
            }

            #[resource("bench://text")]
            async fn text(&self) -> McpResult<String> {
                Ok("A short text".to_owned())
            }

            $(
                #[tool(description = "One of many")]
                async fn $dummy(&self, message: String) -> McpResult<String> {
                    Ok(message)
                }
            )*
        }
    };
}

bench! {
    dummy_1 dummy_2 dummy_3 dummy_4 dummy_5 dummy_6 dummy_7 dummy_8 dummy_9 dummy_10
    dummy_11 dummy_12 dummy_13 dummy_14 dummy_15 dummy_16 dummy_17 dummy_18 dummy_19 dummy_20
    dummy_21 dummy_22 dummy_23 dummy_24 dummy_25 dummy_26 dummy_27 dummy_28 dummy_29 dummy_30
    dummy_31 dummy_32 dummy_33 dummy_34 dummy_35 dummy_36 dummy_37 dummy_38 dummy_39 dummy_40
    dummy_41 dummy_42 dummy_43 dummy_44 dummy_45 dummy_46 dummy_47 dummy_48 dummy_49 dummy_50
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--stdio"] => Bench.run_stdio().await?,
        ["--listen", address] => {
            let listener = tokio::net::TcpListener::bind(address).await?;
            eprintln!("listening on http://{}/mcp", listener.local_addr()?);
            let listener = listener.tap_io(|stream| {
                let _ = stream.set_nodelay(true);
            });
            let service = Bench.into_server().build();
            axum::serve(listener, router(service, HttpConfig::new())).await?;
        }
        _ => return Err("usage: peer-turbomcp --listen ADDR | --stdio".into()),
    }
    Ok(())
}
