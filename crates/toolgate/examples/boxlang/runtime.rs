//! The server `boxlang`: information about a running program, for callers with a token. Each token has a profile that
//! selects names, for lists and calls alike.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use toolgate::guard::Token;
use toolgate::prelude::*;
use toolgate::{Error, Profile, Servers};

pub(crate) fn register(servers: &Servers) -> Result<(), Error> {
    servers
        .server("boxlang")
        .set_description("What this process is doing")
        .set_tokens([
            Token::new("your-token").profile(Profile::admin()),
            Token::new("your-auth-token").profile(Profile::admin()),
            Token::new("monitor-token").profile(Profile::readonly()),
            Token::new("readonly-token").include_tools(["*_get*", "*_has*", "*_search*", "*_read*"]),
        ])
        .set_allowed_ips(["127.0.0.1", "::1"])
        // Hidden from all callers, whatever their token.
        .set_profile(Profile::new("everybody").exclude_tools(["process_trigger_*"]))
        .add(Runtime {
            started: Instant::now(),
            started_at: SystemTime::now(),
            n_cached: AtomicU32::new(3),
        })?;
    Ok(())
}

struct Runtime {
    started: Instant,
    started_at: SystemTime,
    n_cached: AtomicU32,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Info {
    version: &'static str,
    /// The same as `version`, under the name that older clients know
    boxlang_version: &'static str,
    os: &'static str,
    architecture: &'static str,
    /// Milliseconds since 1970
    started_at: u64,
    uptime_ms: u64,
}

#[derive(Serialize, JsonSchema)]
struct Health {
    status: &'static str,
    score: u32,
    issues: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Cache {
    name: String,
    entries: u32,
}

#[server(instructions = "Look before you clear: `*_get*` tools change nothing.")]
impl Runtime {
    fn info(&self) -> Info {
        let started = self.started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Info {
            version: env!("CARGO_PKG_VERSION"),
            boxlang_version: env!("CARGO_PKG_VERSION"),
            os: std::env::consts::OS,
            architecture: std::env::consts::ARCH,
            started_at: millis(started),
            uptime_ms: millis(self.started.elapsed()),
        }
    }

    #[tool("BoxLang version, JVM environment, OS details, start time, uptime", read_only)]
    fn runtime_get_info(&self) -> Info {
        self.info()
    }

    /// How everything is
    #[tool(read_only)]
    fn system_get_health() -> Health {
        Health { status: "healthy", score: 100, issues: Vec::new() }
    }

    /// Whether a module is loaded
    #[tool(read_only)]
    fn module_has_name(name: String) -> bool {
        name == "bx-mcp"
    }

    /// How full a cache is
    #[tool(read_only)]
    fn cache_get_stats(
        &self,
        /// Which cache
        #[arg(rename = "cacheName", default = "default")]
        cache_name: String,
    ) -> Cache {
        Cache { name: cache_name, entries: self.n_cached.load(Ordering::Relaxed) }
    }

    /// Empty a cache
    #[tool(destructive)]
    fn cache_clear(
        &self,
        /// Which cache
        #[arg(rename = "cacheName")]
        cache_name: String,
    ) -> Cache {
        Cache { name: cache_name, entries: self.n_cached.swap(0, Ordering::Relaxed) }
    }

    /// Hidden from everybody by the profile of the server
    #[tool]
    fn process_trigger_gc() -> &'static str {
        "nobody gets to see this"
    }

    /// Panics: costs this call and nothing else
    #[tool]
    fn debug_panic() -> String {
        panic!("on purpose")
    }

    /// Fails
    #[tool]
    fn debug_fail() -> Result<String, HandlerError> {
        Err(HandlerError::new("on purpose"))
    }

    /// What is running
    #[resource("runtime://info")]
    fn info_resource(&self) -> Info {
        self.info()
    }

    /// Look at everything and report
    #[prompt]
    fn full_system_audit() -> &'static str {
        "Audit this runtime. Call these tools in this order and report what you find:\n\
         1. `system_get_health`\n2. `runtime_get_info`\n3. `cache_get_stats`"
    }

    /// Find out why something is slow
    #[prompt]
    fn performance_troubleshooting(
        /// What is slow
        symptom: String,
    ) -> String {
        format!("Find out why: {symptom}. Begin with `system_get_health`, then `cache_get_stats`.")
    }
}
