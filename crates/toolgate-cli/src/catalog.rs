//! The catalog of a server: its tools with categories and prices, as JSON.
//!
//! Category, price and aliases of a tool are part of its `_meta`. A catalog is therefore computed from the tools that the
//! caller can see, and has no state of its own.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolgate::model::Tool;

use crate::config;

/// The key of category, price and aliases in the `_meta` of a tool.
pub(crate) const META_KEY: &str = "toolgate/catalog";

/// The `_meta` of a tool: that of the configuration, and the data for the catalog.
pub(crate) fn meta(tool: &config::Tool) -> Option<Value> {
    let mut catalog_meta = Map::new();
    if let Some(category) = &tool.category {
        catalog_meta.insert("category".into(), category.as_str().into());
    }
    if let Some(price) = &tool.price {
        catalog_meta.insert("price".into(), json!({ "usd": price.usd }));
    }
    if !tool.aliases.is_empty() {
        catalog_meta.insert("aliases".into(), json!(tool.aliases));
    }
    match (catalog_meta.is_empty(), tool.meta.clone()) {
        (true, meta) => meta,
        (false, Some(Value::Object(mut meta))) => {
            meta.insert(META_KEY.into(), catalog_meta.into());
            Some(meta.into())
        }
        // A value that is not an object is reported when the server is built.
        (false, Some(other)) => Some(other),
        (false, None) => Some(json!({ META_KEY: catalog_meta })),
    }
}

/// The error of calls of a tool that has a price, because payment is not implemented.
pub(crate) fn payment_error(tool: &config::Tool) -> Option<Arc<str>> {
    let price = tool.price.as_ref().filter(|price| !price.is_free())?;
    let message = format!(
        "`{}` costs {} USD per call, and payment is not set up on this server; the call was rejected",
        tool.name, price.usd
    );
    Some(message.into())
}

/// The catalog of tools that match a query and a category.
pub(crate) fn list_tools<'a>(
    tools: impl IntoIterator<Item = &'a Arc<Tool>>,
    query: Option<&str>,
    category: Option<&str>,
) -> Value {
    let words: Vec<String> = query.unwrap_or_default().split_whitespace().map(str::to_lowercase).collect();
    let category = category.map(str::trim).filter(|category| !category.is_empty());
    let mut found = Vec::new();
    for tool in tools {
        let entry = catalog_entry(tool);
        let is_category =
            |wanted: &str| entry["category"].as_str().is_some_and(|is| is.eq_ignore_ascii_case(wanted));
        if category.is_none_or(is_category) && words.iter().all(|word| contains_word(&entry, word)) {
            found.push(entry);
        }
    }
    json!({ "total": found.len(), "tools": found })
}

fn catalog_entry(tool: &Tool) -> Value {
    let catalog_meta = tool.meta.as_ref().and_then(|meta| Some(meta.view().get(META_KEY)?.to_value()));
    let catalog_meta = catalog_meta.unwrap_or_default();
    let kebab = tool.name.replace('_', "-");
    let aliases: Vec<&str> =
        catalog_meta["aliases"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let slug = aliases.iter().find(|alias| **alias == kebab).copied().unwrap_or(&tool.name);
    let mut entry = json!({
        "slug": slug,
        "name": tool.name,
        "title": tool.title.as_deref().unwrap_or(&tool.name),
        "description": tool.description.as_deref().unwrap_or_default(),
        "category": catalog_meta["category"],
        "price": catalog_meta["price"],
        "free": catalog_meta["price"]["usd"].as_str().is_none_or(|usd| usd == "0"),
        "aliases": aliases,
        "inputSchema": tool.input_schema.to_value(),
    });
    if let (Some(schema), Some(entry)) = (&tool.output_schema, entry.as_object_mut()) {
        entry.insert("outputSchema".into(), schema.to_value());
    }
    entry
}

/// Whether a lowercase word occurs in the texts of an entry.
fn contains_word(entry: &Value, word: &str) -> bool {
    let has = |text: &Value| text.as_str().is_some_and(|text| text.to_lowercase().contains(word));
    ["slug", "name", "title", "description", "category"].iter().any(|key| has(&entry[*key]))
        || entry["aliases"].as_array().is_some_and(|aliases| aliases.iter().any(has))
}

#[cfg(test)]
mod tests {
    use toolgate::RawJson;

    use super::*;

    fn tool(name: &str, description: &str, catalog_meta: &Value) -> Arc<Tool> {
        let mut tool = Tool::new(name, RawJson::empty_object());
        tool.description = Some(description.into());
        tool.meta = Some(RawJson::from(json!({ META_KEY: catalog_meta })));
        Arc::new(tool)
    }

    #[test]
    fn tools_are_found_by_query_and_category() {
        let tools = [
            tool(
                "honeypot_check",
                "Detect rug pulls",
                &json!({ "category": "security", "price": { "usd": "0.05" }, "aliases": ["hp", "honeypot-check"] }),
            ),
            tool(
                "blue_idea",
                "A brief of an idea",
                &json!({ "category": "console", "price": { "usd": "0" } }),
            ),
            tool("plain", "Nothing said", &json!({})),
        ];
        let slugs = |query: Option<&str>, category: Option<&str>| -> Vec<String> {
            let shown = list_tools(&tools, query, category);
            assert_eq!(shown["total"], shown["tools"].as_array().unwrap().len());
            let slugs = shown["tools"].as_array().unwrap().iter();
            slugs.map(|entry| entry["slug"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(slugs(None, None), ["honeypot-check", "blue_idea", "plain"]);
        assert_eq!(slugs(Some("RUG honeypot"), None), ["honeypot-check"]);
        assert_eq!(slugs(Some("hp"), Some("Security")), ["honeypot-check"]);
        assert_eq!(slugs(Some("rug"), Some("console")), Vec::<String>::new());
        assert_eq!(slugs(Some(" "), Some("")), ["honeypot-check", "blue_idea", "plain"]);
        let free: Vec<Value> = list_tools(&tools, None, None)["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["free"].clone())
            .collect();
        assert_eq!(free, [json!(false), json!(true), json!(true)]);
    }
}
