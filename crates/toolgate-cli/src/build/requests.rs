//! Requests and statements, from what a configuration says of them to what their sources take.

use crate::config::{self, HttpBody, HttpPart, SqlQuery};
use crate::source::http::{BodySpec, Field, HttpSpec, PartSpec, Serialization};
use crate::source::sql::{self, QuerySource, SqlSpec};

use super::upstreams::auth_spec;

/// A request. `output` is what the tool promises.
pub(super) fn request_spec(http: &config::Http, output: &config::OutputConfig) -> HttpSpec {
    HttpSpec {
        method: http.method.clone(),
        path: http.path.clone().unwrap_or_else(|| "/".into()),
        url: http.url.clone(),
        path_styles: Vec::new(),
        query: field_specs(&http.query),
        headers: field_specs(&http.headers)
            .into_iter()
            .map(|field| field.with_serialization(Serialization::SIMPLE))
            .collect(),
        cookies: field_specs(&http.cookies),
        body: body_spec(&http.body),
        pick: http.pick.clone(),
        paging: http.paging,
        expect: http.expect,
        errors: http.errors,
        on_exceed: http.on_exceed,
        unavailable_codes: http.unavailable_codes.clone(),
        auth: http.auth.as_ref().map(auth_spec),
        timeout: http.timeout,
        response_limit: http.max_response,
        idempotent: http.idempotent,
        concurrency: http.concurrency,
        queue: http.queue,
        output_schema: match output {
            config::OutputConfig::Schema(schema) => Some(schema.clone()),
            _ => None,
        },
    }
}

/// The request that follows it: what it does not say itself is as in the first.
pub(super) fn follow_up_spec(
    http: &config::Http,
    then: &config::HttpFollowUp,
    output: &config::OutputConfig,
) -> HttpSpec {
    HttpSpec {
        method: then.method.clone(),
        path: then.path.clone(),
        url: None,
        query: field_specs(&then.query),
        cookies: Vec::new(),
        body: then
            .json
            .as_ref()
            .map_or(BodySpec::None, |json| BodySpec::Json { value: json.clone(), is_optional: false }),
        pick: then.pick.clone(),
        idempotent: None,
        ..request_spec(http, output)
    }
}

fn field_specs(pairs: &[(String, String)]) -> Vec<Field> {
    pairs.iter().map(|(name, value)| Field::new(name, value)).collect()
}

fn body_spec(body: &HttpBody) -> BodySpec {
    match body {
        HttpBody::None => BodySpec::None,
        HttpBody::Json(value) => BodySpec::Json { value: value.clone(), is_optional: false },
        HttpBody::Form(pairs) => BodySpec::Form(field_specs(pairs)),
        HttpBody::Multipart(parts) => BodySpec::Multipart(parts.iter().map(part_spec).collect()),
        HttpBody::Text { text, content_type } => BodySpec::Text {
            text: text.clone(),
            mime: content_type.clone().unwrap_or_else(|| "text/plain; charset=utf-8".into()),
        },
        HttpBody::Bytes { argument, content_type } => BodySpec::Bytes {
            argument: argument.clone(),
            mime: content_type.clone().unwrap_or_else(|| "application/octet-stream".into()),
        },
    }
}

fn part_spec((name, part): &(String, HttpPart)) -> PartSpec {
    let name = name.clone();
    match part.clone() {
        HttpPart::Text(value) => PartSpec::Text { name, value },
        HttpPart::File { argument, filename, mime } => PartSpec::File { name, argument, filename, mime },
    }
}

/// A statement on a connection.
pub(super) fn statement_spec(
    sql: &config::Sql,
    connection: &config::SqlConnectionConfig,
    output: &config::OutputConfig,
) -> SqlSpec {
    let query = match &sql.query {
        SqlQuery::Text(text) => QuerySource::Static(text.clone()),
        SqlQuery::Argument(argument) => QuerySource::FromArgument(argument.clone()),
    };
    let word = match output {
        config::OutputConfig::Named(word) => word.as_str(),
        _ => "rows",
    };
    SqlSpec {
        result_shape: match word {
            "row" => sql::SqlResultShape::Row,
            "value" => sql::SqlResultShape::Value,
            _ => sql::SqlResultShape::Rows,
        },
        write: sql.write,
        timeout: sql.timeout.unwrap_or(connection.timeout),
        max_rows: sql.max_rows.unwrap_or(connection.max_rows),
        max_bytes: sql.max_bytes.unwrap_or(connection.max_bytes),
        expose_errors: sql.expose_errors.unwrap_or(connection.expose_errors),
        ..SqlSpec::new(query)
    }
}
