//! Parameters are arguments or extractors by their types, whatever they are called.

#![deny(warnings)]

use toolgate::{Extract, Server, items};

mod own_names {
    use toolgate::prelude::{Deserialize, JsonSchema, tool};

    #[derive(Debug, Deserialize, JsonSchema)]
    pub(crate) enum State {
        Open,
        Closed,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    pub(crate) struct Headers {
        pub(crate) subject: String,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    pub(crate) struct Context {
        pub(crate) file: String,
    }

    #[tool]
    pub(crate) fn change(state: State, headers: Headers, context: Option<Context>, #[arg(default)] n: u8) -> String {
        format!("{state:?} {} {:?} {n}", headers.subject, context.map(|context| context.file))
    }
}

mod aliases {
    use toolgate::prelude::*;

    pub(crate) type Db = State<String>;
    pub(crate) type Caller = Option<Principal>;
    use toolgate::Context as Call;

    #[tool]
    pub(crate) async fn query(db: Db, caller: Caller, call: Call, text: String) -> String {
        format!("{} {caller:?} {} {text}", *db, call.is_cancelled())
    }
}

#[derive(Debug)]
pub struct Tenant;

impl Extract for Tenant {
    fn from_call(_: &toolgate::Context) -> Result<Tenant, toolgate::HandlerError> {
        Ok(Tenant)
    }
}

#[toolgate::tool]
fn own(tenant: Tenant, #[extract] second: Tenant) -> String {
    format!("{tenant:?} {second:?}")
}

#[toolgate::resource("x://one")]
fn one(tenant: Tenant) -> String {
    format!("{tenant:?}")
}

#[toolgate::template("x://{id}")]
fn any(id: Word, tenant: Tenant) -> String {
    format!("{tenant:?} {}", id.0)
}

#[derive(toolgate::prelude::Deserialize, toolgate::prelude::JsonSchema)]
#[serde(crate = "toolgate::__private::serde")]
#[schemars(crate = "toolgate::__private::schemars")]
struct Word(String);

#[toolgate::complete(any.id)]
fn ids(prefix: Word, _tenant: Tenant) -> Vec<String> {
    vec![prefix.0]
}

#[toolgate::complete(any.id)]
fn no_prefix(_tenant: Tenant) -> Vec<String> {
    Vec::new()
}

/// Generic over the type of state, which the generated code cannot name.
struct Kit<T>(T);

#[toolgate::server]
impl<T: Clone + Send + Sync + 'static> Kit<T> {
    #[toolgate::tool]
    fn kept(&self, other: toolgate::State<T>, n: u8) -> u8 {
        drop((self.0.clone(), other.clone()));
        n
    }
}

// More extractors than a closure can have parameters.
#[toolgate::tool]
fn many(_a: Tenant, _b: Tenant, _c: Tenant, _d: Tenant, _e: Tenant, _f: Tenant, _g: Tenant, _h: Tenant, _i: Tenant) {}

fn main() {
    let items = items![own_names::change, aliases::query, own, one, any, ids, no_prefix, many];
    let server = Server::new("by-type", "1").state(String::new()).state(7_u8).add(items).add(Kit(7_u8)).build();
    assert!(server.is_ok(), "{server:?}");
    let closure = Server::new("closure", "1").tool("who", |who: Option<toolgate::Principal>| async move {
        format!("{who:?}")
    });
    assert!(closure.build().is_ok());
}
