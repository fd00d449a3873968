//! Reads databases and APIs.

use toolgate_sources::source::sql::Driver;

use super::ConfigReader;
use crate::config::connection::{Connection, ConnectionKind, HttpConnectionConfig, SqlConnectionConfig};
use crate::config::keys;
use crate::config::table_view::TableView;
use crate::config::tree::{Node, TableEntry};

impl ConfigReader<'_> {
    pub(super) fn connections(&mut self) -> Vec<Connection> {
        let named = self.named("connections");
        named.entries().iter().filter_map(|entry| self.connection(entry)).collect()
    }

    fn connection(&mut self, entry: &TableEntry) -> Option<Connection> {
        let node = &entry.node;
        let kind = match node.text("http") {
            Some(base) => ConnectionKind::Http(self.http_connection(node, base)),
            None => ConnectionKind::Sql(self.sql_connection(node)?),
        };
        Some(Connection { name: entry.key.clone(), span: entry.span, node: node.clone(), kind })
    }

    fn http_connection(&mut self, node: &Node, base: String) -> HttpConnectionConfig {
        let ca_pem = node.get("ca").and_then(|file| self.read_text(file)).map(|(_, text)| text);
        let table = TableView::new(Some(node), &keys::CONNECTION);
        HttpConnectionConfig { ca_pem, ..HttpConnectionConfig::read(base, &table) }
    }

    fn sql_connection(&self, node: &Node) -> Option<SqlConnectionConfig> {
        let (driver, url) = [Driver::Sqlite, Driver::Postgres, Driver::MySql]
            .into_iter()
            .find_map(|driver| Some((driver, node.text(driver.key())?)))?;
        let url = if driver == Driver::Sqlite { self.sqlite_url(node, &url) } else { url };
        let table = TableView::new(Some(node), &keys::CONNECTION);
        let pool = table.table("pool", &keys::POOL);
        Some(SqlConnectionConfig {
            driver,
            url,
            pool_max: pool.number("max"),
            pool_queue: pool.number("queue"),
            pool_wait: pool.duration("wait"),
            pool_idle: pool.duration("idle"),
            read_only: table.flag("read_only"),
            timeout: table.duration("timeout"),
            max_rows: table.number("max_rows"),
            max_bytes: table.bytes("max_bytes"),
            expose_errors: table.flag("expose_errors"),
        })
    }

    /// Resolves the path in an SQLite URL relative to the configuration.
    fn sqlite_url(&self, node: &Node, url: &str) -> String {
        let (path, query) = url.split_once('?').map_or((url, None), |(path, query)| (path, Some(query)));
        let path = path.strip_prefix("sqlite:").or_else(|| path.strip_prefix("file:")).unwrap_or(path);
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.starts_with(":memory:") || path.is_empty() {
            return url.to_owned();
        }
        let path = self.files.resolve(node.span_at("sqlite").file, path);
        match query {
            Some(query) => format!("{}?{query}", path.display()),
            None => path.display().to_string(),
        }
    }
}
