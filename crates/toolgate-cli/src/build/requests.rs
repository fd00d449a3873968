//! Converts the settings of connections, requests and statements into those of their sources.

use toolgate_sources::source::http::{
    Auth, BodySpec, Field, HttpClientSpec, HttpSpec, PartSpec, Retry, Serialization,
};
use toolgate_sources::source::sql::{QuerySource, SqlPoolSpec, SqlResultShape, SqlSpec};

use crate::config::{
    Http, HttpBody, HttpConnectionConfig, HttpFollowUp, HttpPart, OutputConfig, Sql, SqlConnectionConfig,
    SqlQuery, UpstreamAuth,
};

/// The pool of a database.
pub(super) fn pool_spec(name: &str, connection: &SqlConnectionConfig) -> SqlPoolSpec {
    SqlPoolSpec {
        max_connections: connection.pool_max,
        max_queued: connection.pool_queue,
        idle_timeout: connection.pool_idle,
        acquire_timeout: connection.pool_wait,
        read_only: connection.read_only,
        ..SqlPoolSpec::new(name, connection.driver, &connection.url)
    }
}

/// The client of an API.
pub(super) fn client_spec(connection: &HttpConnectionConfig) -> HttpClientSpec {
    HttpClientSpec {
        base_url: connection.base.clone(),
        headers: connection.headers.clone(),
        query: connection.query.clone(),
        auth: connection.auth.as_ref().map(auth_spec).unwrap_or_default(),
        retry: Retry { max: connection.retry_max, statuses: connection.retry_on.clone() },
        timeout: connection.timeout,
        connect_timeout: connection.connect_timeout,
        response_limit: connection.max_response,
        max_redirects: connection.max_redirects,
        ca_pem: connection.ca_pem.clone(),
    }
}

pub(super) fn auth_spec(auth: &UpstreamAuth) -> Auth {
    match auth.clone() {
        UpstreamAuth::Forward => Auth::Forward,
        UpstreamAuth::Headers(names) => Auth::Headers(names),
        UpstreamAuth::Attribute { attribute, header, prefix } => {
            Auth::Attribute { attribute, header, prefix }
        }
    }
}

/// A request. `output` is the output of the tool.
pub(super) fn request_spec(http: &Http, output: &OutputConfig) -> HttpSpec {
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
            OutputConfig::Schema(schema) => Some(schema.clone()),
            _ => None,
        },
    }
}

/// The second request. Settings that it omits are those of the first.
pub(super) fn follow_up_spec(http: &Http, then: &HttpFollowUp, output: &OutputConfig) -> HttpSpec {
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
pub(super) fn statement_spec(sql: &Sql, connection: &SqlConnectionConfig, output: &OutputConfig) -> SqlSpec {
    let query = match &sql.query {
        SqlQuery::Text(text) => QuerySource::Static(text.clone()),
        SqlQuery::Argument(argument) => QuerySource::FromArgument(argument.clone()),
    };
    SqlSpec {
        result_shape: match output {
            OutputConfig::Named(name) if name == "row" => SqlResultShape::Row,
            OutputConfig::Named(name) if name == "value" => SqlResultShape::Value,
            _ => SqlResultShape::Rows,
        },
        write: sql.write,
        timeout: sql.timeout.unwrap_or(connection.timeout),
        max_rows: sql.max_rows.unwrap_or(connection.max_rows),
        max_bytes: sql.max_bytes.unwrap_or(connection.max_bytes),
        expose_errors: sql.expose_errors.unwrap_or(connection.expose_errors),
        ..SqlSpec::new(query)
    }
}
