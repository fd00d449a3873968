//! The address of Redis: a single server, a master known to Sentinels, or a Cluster.
//!
//! Addresses contain passwords. Only their hosts are shown, and no error message quotes an address.

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _, RedisError};
use std::time::Duration;

use super::StoreError;

/// The servers to connect to.
#[derive(Clone)]
pub(super) enum Target {
    Single(Client),
    Sentinel { sentinels: Vec<String>, service: String, master: SentinelNodeConnectionInfo },
    Cluster { nodes: Vec<String> },
}

/// A connection for commands, shared by its clones.
#[derive(Clone)]
pub(super) enum RedisConnection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Target {
    pub(super) fn parse(url: &str) -> Result<Target, StoreError> {
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| invalid_address("it has no `redis://` in front"))?;
        let split_hosts = || {
            let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
            let (user, hosts) = match hosts.rsplit_once('@') {
                Some((user, hosts)) => (format!("{user}@"), hosts),
                None => (String::new(), hosts),
            };
            let hosts: Vec<&str> = hosts.split(',').filter(|host| !host.is_empty()).collect();
            (user, hosts, path)
        };
        match scheme {
            "redis" | "valkey" | "unix" | "redis+unix" | "valkey+unix" => Client::open(url)
                .map(Target::Single)
                .map_err(|error| invalid_address(&describe_error(&error))),
            "redis-cluster" | "redis+cluster" => {
                let (user, hosts, _) = split_hosts();
                let nodes: Vec<String> = hosts.iter().map(|host| format!("redis://{user}{host}")).collect();
                ClusterClient::new(nodes.clone())
                    .map_err(|error| invalid_address(&describe_error(&error)))?;
                Ok(Target::Cluster { nodes })
            }
            "redis-sentinel" | "redis+sentinel" => {
                let (user, hosts, path) = split_hosts();
                let (service, database) = path.split_once('/').unwrap_or((path, ""));
                if service.is_empty() || hosts.is_empty() {
                    return Err(invalid_address(
                        "Sentinels have the form `redis+sentinel://host:port,host:port/service`",
                    ));
                }
                let info = format!("redis://{user}{}/{database}", hosts[0]).into_connection_info();
                let info = info.map_err(|error| invalid_address(&describe_error(&error)))?;
                let master = SentinelNodeConnectionInfo::default()
                    .set_redis_connection_info(info.redis_settings().clone());
                let sentinels = hosts.iter().map(|host| format!("redis://{host}")).collect();
                Ok(Target::Sentinel { sentinels, service: service.to_owned(), master })
            }
            "rediss" | "valkeys" => Err(invalid_address(
                "TLS is not built in; let a proxy such as stunnel on this machine speak it",
            )),
            _ => Err(invalid_address(
                "it begins with none of `redis://`, `redis+sentinel://`, `redis-cluster://`",
            )),
        }
    }

    /// Returns the hosts, without users and passwords.
    pub(super) fn hosts(&self) -> String {
        let hosts = |urls: &[String]| {
            let hosts: Vec<&str> =
                urls.iter().map(|url| url.rsplit(['@', '/']).next().unwrap_or("")).collect();
            hosts.join(",")
        };
        match self {
            Target::Single(client) => client.get_connection_info().addr().to_string(),
            Target::Sentinel { sentinels, service, .. } => format!("{service} of {}", hosts(sentinels)),
            Target::Cluster { nodes } => hosts(nodes),
        }
    }

    /// Opens a connection for commands.
    pub(super) async fn connect(&self, deadline: Duration) -> Result<RedisConnection, RedisError> {
        if let Target::Cluster { nodes } = self {
            let builder = ClusterClient::builder(nodes.clone());
            let client =
                builder.connection_timeout(deadline).response_timeout(deadline).retries(2).build()?;
            return Ok(RedisConnection::Cluster(client.get_async_connection().await?));
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(deadline))
            .set_response_timeout(Some(deadline));
        let client = self.client(0).await?;
        Ok(RedisConnection::Single(client.get_multiplexed_async_connection_with_config(&config).await?))
    }

    /// Returns a server on which all channels can be received. If there are several, each attempt returns another one.
    pub(super) async fn client(&self, attempt: usize) -> Result<Client, RedisError> {
        match self {
            Target::Single(client) => Ok(client.clone()),
            Target::Sentinel { sentinels, service, master } => {
                let mut client = SentinelClient::build(
                    sentinels.clone(),
                    service.clone(),
                    Some(master.clone()),
                    SentinelServerType::Master,
                )?;
                client.async_get_client().await
            }
            // Messages published on one node of a Cluster reach all nodes.
            Target::Cluster { nodes } => Client::open(nodes[attempt % nodes.len()].as_str()),
        }
    }
}

/// Describes an error briefly, without an address.
pub(super) fn describe_error(error: &RedisError) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.category()),
        None => error.to_string(),
    }
}

fn invalid_address(reason: &str) -> StoreError {
    StoreError::Unavailable(format!("the address of Redis cannot be used: {reason}"))
}
