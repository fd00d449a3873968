//! The acts of the pack `runtime`: what the program and its host are doing.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolgate::model::ToolOutput;
use toolgate::{Context, Raw};

use super::world::World;
use crate::source::{Act, Acting};

/// What looks at the program, by name.
pub(super) fn builtin(name: &str, world: &Arc<World>) -> Option<Arc<dyn Act>> {
    let look: Look = match name {
        "runtime_get_info" => info,
        _ => return None,
    };
    Some(Arc::new(Looking { world: Arc::clone(world), look }))
}

type Look = fn(&World, &Map<String, Value>) -> Value;

struct Looking {
    world: Arc<World>,
    look: Look,
}

impl Act for Looking {
    fn act<'a>(&'a self, _: &'a Context, arguments: &'a Map<String, Value>) -> Acting<'a> {
        Box::pin(async move { Ok(told(&(self.look)(&self.world, arguments))) })
    }
}

/// JSON, as text for models and, where it is an object, as itself for programs.
fn told(value: &Value) -> ToolOutput {
    let raw = Raw::from(value);
    let structured = value.is_object().then(|| raw.clone());
    ToolOutput { structured, ..ToolOutput::text(raw.as_str()) }
}

fn info(world: &World, _: &Map<String, Value>) -> Value {
    let uptime = world.started.elapsed().unwrap_or_default();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "os": std::env::consts::OS,
        "uptimeMs": u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
    })
}
