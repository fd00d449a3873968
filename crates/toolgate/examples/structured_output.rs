//! Use this when a program, not only a model, reads what your tool returns: the result has a schema, and
//! clients can check it and pick fields out of it.
//!
//! `cargo run --example structured_output -- 127.0.0.1:8080`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate::model::ToolOutput;
use toolgate::{Json, Server, ToolError};

#[derive(Deserialize, JsonSchema)]
struct Place {
    /// The name of a city
    city: String,
    /// Which unit to answer in
    #[serde(default)]
    unit: Unit,
}

#[derive(Clone, Copy, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Unit {
    #[default]
    Celsius,
    Fahrenheit,
}

// The fields become the tool's output schema, their comments its descriptions.
/// The weather of one city
#[derive(Serialize, JsonSchema)]
struct Weather {
    /// In the unit that was asked for
    temperature: f64,
    unit: Unit,
}

/// An error is a result too: the model reads it and may try again.
async fn weather(args: Place) -> Result<Json<Weather>, ToolError> {
    let celsius = match args.city.as_str() {
        "Oslo" => 4.0,
        "Lagos" => 31.5,
        _ => return Err(ToolError::new("no weather for this city; try Oslo or Lagos")),
    };
    let temperature = match args.unit {
        Unit::Celsius => celsius,
        Unit::Fahrenheit => celsius * 9.0 / 5.0 + 32.0,
    };
    let unit = args.unit;
    Ok(Json(Weather { temperature, unit }))
}

/// Words of your own for the model, beside the same JSON for programs.
async fn summary(args: Place) -> Result<ToolOutput, ToolError> {
    let Json(weather) = weather(args).await?;
    let words = format!("It is {} degrees there.", weather.temperature);
    let structured = serde_json::to_value(&weather)?;
    Ok(ToolOutput { structured: Some(structured.into()), ..ToolOutput::text(words) })
}

#[tokio::main]
async fn main() -> Result<(), toolgate::Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    Server::new("weather", "1.0.0")
        .tool("weather", weather)
        .describe("Tells the temperature of a city")
        .read_only()
        .tool("summary", summary)
        .describe("Tells the temperature of a city in a sentence")
        .read_only()
        // `ToolOutput` says nothing of what is in it, so here the schema is given by hand.
        .output_schema(schemars::schema_for!(Weather).to_value())
        .listen(address)
        .await
}
