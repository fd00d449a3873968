//! The act of the pack `hub`: what its server has, to be searched by those who call it.

use std::sync::Arc;

use serde_json::{Map, Value};
use toolgate::model::{Tool, ToolOutput};
use toolgate::{Context, Profile, RawJson, HandlerError};

use super::world::World;
use crate::catalog;
use crate::config::Server;
use crate::source::{Act, Acting};

/// What searches a catalogue, by name.
pub(super) fn builtin(name: &str, server: &Server, world: &Arc<World>) -> Option<Arc<dyn Act>> {
    (name == "catalog_search").then(|| {
        let (server, shown, world) = (server.name.clone(), server.frame.profile.clone(), Arc::clone(world));
        Arc::new(Searching { server, shown, world }) as Arc<dyn Act>
    })
}

struct Searching {
    server: String,
    /// What anybody sees.
    shown: Option<Profile>,
    world: Arc<World>,
}

impl Act for Searching {
    fn act<'a>(&'a self, cx: &'a Context, arguments: &'a Map<String, Value>) -> Acting<'a> {
        Box::pin(async move {
            let Some(server) = self.world.servers.get(&self.server) else {
                return Err(HandlerError::new("the catalogue is not there before the server is"));
            };
            let profiles = [self.shown.as_ref(), cx.principal().profile()];
            let is_seen =
                |tool: &&Arc<Tool>| profiles.iter().flatten().all(|profile| profile.allows_tool(&tool.name));
            let text = |name: &str| arguments.get(name).and_then(Value::as_str);
            let tools = server.tools();
            let found = catalog::shown(tools.iter().filter(is_seen), text("query"), text("category"));
            let found = RawJson::from(&found);
            Ok(ToolOutput { structured_content: Some(found.clone()), ..ToolOutput::text(found.as_str()) })
        })
    }
}
