//! Requests and statements, from what a configuration says of them to what their sources take.

use crate::config::{self, HttpBody, HttpPart, SqlQuery};
use crate::source::http::{BodySpec, Errors, Expect, Field, HttpSpec, OnExceed, Paging, PartSpec, Serial};
use crate::source::sql::{self, Query, SqlSpec};

use super::backends::auth;

/// A request. `output` is what the tool promises.
pub(super) fn request(http: &config::Http, output: &config::Output) -> HttpSpec {
    HttpSpec {
        method: http.method.clone(),
        path: http.path.clone().unwrap_or_else(|| "/".into()),
        url: http.url.clone(),
        path_styles: Vec::new(),
        query: fields(&http.query),
        headers: fields(&http.headers).into_iter().map(|field| field.with_serial(Serial::SIMPLE)).collect(),
        cookies: fields(&http.cookies),
        body: body(&http.body),
        pick: http.pick.clone(),
        paging: match http.paging.as_str() {
            "result" => Paging::Result,
            "off" => Paging::Off,
            _ => Paging::Meta,
        },
        expect: match http.expect.as_str() {
            "json" => Expect::Json,
            "text" => Expect::Text,
            _ => Expect::Auto,
        },
        errors: match http.errors.as_str() {
            "message" => Errors::Message,
            "status" => Errors::Status,
            _ => Errors::Auto,
        },
        on_exceed: if http.on_exceed == "truncate" { OnExceed::Truncate } else { OnExceed::Error },
        unavailable: http.unavailable.clone(),
        auth: http.auth.as_ref().map(auth),
        timeout: http.timeout,
        response_limit: http.max_response,
        idempotent: http.idempotent,
        concurrency: http.concurrency,
        queue: http.queue,
        output_schema: match output {
            config::Output::Schema(schema) => Some(schema.clone()),
            _ => None,
        },
    }
}

/// The request that follows it: what it does not say itself is as in the first.
pub(super) fn following(http: &config::Http, then: &config::HttpThen, output: &config::Output) -> HttpSpec {
    HttpSpec {
        method: then.method.clone(),
        path: then.path.clone(),
        url: None,
        query: fields(&then.query),
        cookies: Vec::new(),
        body: then
            .json
            .as_ref()
            .map_or(BodySpec::None, |json| BodySpec::Json { value: json.clone(), is_optional: false }),
        pick: then.pick.clone(),
        idempotent: None,
        ..request(http, output)
    }
}

fn fields(pairs: &[(String, String)]) -> Vec<Field> {
    pairs.iter().map(|(name, value)| Field::new(name, value)).collect()
}

fn body(body: &HttpBody) -> BodySpec {
    match body {
        HttpBody::None => BodySpec::None,
        HttpBody::Json(value) => BodySpec::Json { value: value.clone(), is_optional: false },
        HttpBody::Form(pairs) => BodySpec::Form(fields(pairs)),
        HttpBody::Multipart(parts) => BodySpec::Multipart(parts.iter().map(part).collect()),
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

fn part((name, part): &(String, HttpPart)) -> PartSpec {
    let name = name.clone();
    match part.clone() {
        HttpPart::Text(value) => PartSpec::Text { name, value },
        HttpPart::File { argument, filename, mime } => PartSpec::File { name, argument, filename, mime },
    }
}

/// A statement on a connection.
pub(super) fn statement(
    sql: &config::Sql,
    connection: &config::SqlConnection,
    output: &config::Output,
) -> SqlSpec {
    let query = match &sql.query {
        SqlQuery::Written(text) => Query::Written(text.clone()),
        SqlQuery::From(argument) => Query::From(argument.clone()),
    };
    let word = match output {
        config::Output::Word(word) => word.as_str(),
        _ => "rows",
    };
    SqlSpec {
        output: match word {
            "row" => sql::Output::Row,
            "value" => sql::Output::Value,
            _ => sql::Output::Rows,
        },
        write: sql.write,
        timeout: sql.timeout.unwrap_or(connection.timeout),
        max_rows: sql.max_rows.unwrap_or(connection.max_rows),
        max_bytes: sql.max_bytes.unwrap_or(connection.max_bytes),
        expose_errors: sql.expose_errors.unwrap_or(connection.expose_errors),
        ..SqlSpec::new(query)
    }
}
