//! The builtin of the pack `hub`: searches the tools of its server.

use std::sync::Arc;

use serde_json::{Map, Value};
use toolgate::model::{Tool, ToolOutput};
use toolgate::{Context, HandlerError, Profile, RawJson};
use toolgate_sources::source::{BackendFuture, ToolBackend};

use super::runtime_state::RuntimeState;
use crate::catalog;
use crate::config::Server;

/// Returns the builtin with this name.
pub(super) fn builtin(
    name: &str,
    server: &Server,
    state: &Arc<RuntimeState>,
) -> Option<Arc<dyn ToolBackend>> {
    (name == "catalog_search").then(|| {
        let (server, profile, state) =
            (server.name.clone(), server.settings.profile.clone(), Arc::clone(state));
        Arc::new(CatalogSearch { server, profile, state }) as Arc<dyn ToolBackend>
    })
}

struct CatalogSearch {
    server: String,
    /// The server's default profile.
    profile: Option<Profile>,
    state: Arc<RuntimeState>,
}

impl ToolBackend for CatalogSearch {
    fn execute<'a>(&'a self, cx: &'a Context, arguments: &'a Map<String, Value>) -> BackendFuture<'a> {
        Box::pin(async move {
            let Some(server) = self.state.servers.get(&self.server) else {
                return Err(HandlerError::new("the server is still starting"));
            };
            let profiles = [self.profile.as_ref(), cx.principal().profile()];
            let is_visible = |tool: &&Arc<Tool>| {
                profiles.iter().flatten().all(|profile| profile.allows_tool_with(&tool.name, &tool.hints))
            };
            let text = |name: &str| arguments.get(name).and_then(Value::as_str);
            let tools = server.tools();
            let found = catalog::list_tools(tools.iter().filter(is_visible), text("query"), text("category"));
            let found = RawJson::from(&found);
            Ok(ToolOutput::text(found.as_str()).with_structured_content(found.clone()))
        })
    }
}
