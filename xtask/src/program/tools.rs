//! A configuration with many tools of all kinds.

use std::fmt::Write as _;
use std::path::Path;

/// The number of tools, of five kinds.
pub(super) const N_TOOLS: usize = 500;

/// Writes the configuration of a round atomically, as editors do.
pub(super) fn write(folder: &Path, file: &Path, round: usize) -> Result<(), String> {
    let fail = |error: std::io::Error| error.to_string();
    let new_file = folder.join("many.new");
    std::fs::write(&new_file, config_text(round)).map_err(fail)?;
    std::fs::rename(&new_file, file).map_err(fail)
}

fn config_text(round: usize) -> String {
    let mut text = String::from(
        "[security.egress]\ndeny_private = false\n\
         [connections.db]\nsqlite = \"file:catalog.db\"\n\
         [connections.api]\nhttp = \"http://127.0.0.1:9\"\n\
         [servers.many]\n",
    );
    for n in 0..N_TOOLS / 5 {
        let _ = write!(
            text,
            r#"
[servers.many.tools.text_{n}]
description = "Says text {n}."
text = "text {n}"
[servers.many.tools.template_{n}]
description = "Greets somebody, in way {n}."
template = "{{{{ name }}}}, hello {{% if loud %}}!{{% endif %}}"
args = {{ name = {{ type = "string", minLength = 1, maxLength = 200 }}, loud = "boolean=false" }}
[servers.many.tools.sql_{n}]
description = "Finds thing {n}."
sql = {{ on = "db", query = "SELECT sku, name, price, {n} AS n FROM product WHERE sku = :sku ORDER BY name" }}
args = {{ sku = {{ type = "string", minLength = 1 }} }}
[servers.many.tools.command_{n}]
description = "Prints {n}."
command = {{ argv = ["echo", "--", "{{word}}"] }}
args = {{ word = {{ enum = ["a", "b", "c"] }} }}
[servers.many.tools.http_{n}]
description = "Asks for item {n}."
http = {{ on = "api", path = "/items/{{id}}", query = {{ q = "{{q}}" }}, pick = "{{id: .id, names: [.items[]? | select(.n > {n}) | .name]}}" }}
args = {{ id = "string", q = "string?" }}
"#
        );
    }
    let _ = write!(text, "[servers.many.tools.round_{round}]\ntext = \"{round}\"\n");
    text
}
