//! Use this when a program, not only a model, reads the result of your tool: the result has a schema, and clients can
//! validate it and access its fields.
//!
//! `cargo run --example structured_output -- --http :8080`

use toolgate::model::ToolOutput;
use toolgate::prelude::*;

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

/// Tell the temperature of a city
// An error is a result too: the model reads it and may try again.
#[tool(read_only)]
async fn weather(
    /// The name of a city
    city: String,
    /// Which unit to answer in
    #[arg(default)]
    unit: Unit,
) -> Result<Weather, HandlerError> {
    let celsius = match city.as_str() {
        "Oslo" => 4.0,
        "Lagos" => 31.5,
        _ => return Err(HandlerError::new("no weather for this city; try Oslo or Lagos")),
    };
    let temperature = match unit {
        Unit::Celsius => celsius,
        Unit::Fahrenheit => celsius * 9.0 / 5.0 + 32.0,
    };
    Ok(Weather { temperature, unit })
}

#[derive(Deserialize, JsonSchema)]
struct Place {
    /// The name of a city
    city: String,
}

/// Text of your own for the model, in addition to the same JSON for programs.
async fn summary(args: Place) -> Result<ToolOutput, HandlerError> {
    let weather = weather(args.city, Unit::default()).await?;
    let words = format!("It is {} degrees there.", weather.temperature);
    let structured = serde_json::to_value(&weather)?;
    Ok(ToolOutput::text(words).with_structured_content(structured))
}

toolgate::main!(
    Server::new("weather", "1.0.0")
        .add(items![weather])
        // The type `ToolOutput` has no schema, so it is given explicitly.
        .tool("summary", summary)
        .describe("Tells the temperature of a city in a sentence")
        .read_only()
        .output_schema(schemars::schema_for!(Weather).to_value())
);
