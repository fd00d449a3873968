//! The time from the start of the process to its first response, several times.

use std::time::Instant;

use crate::client::Client;
use crate::options::Options;
use crate::server::Server;
use crate::workload::{Kind, Protocol, Workload};
use crate::{BoxError, Figures};

pub(crate) fn measure(options: &Options) -> Result<Figures, BoxError> {
    // Every server accepts this request without a handshake.
    let discover = Workload { kind: Kind::Discover, protocol: Protocol::Modern };
    let mut millis = Vec::with_capacity(options.count);
    let mut rss = Vec::with_capacity(options.count);
    for _ in 0..options.count {
        let began = Instant::now();
        let server = Server::start_unpinned(options)?;
        let response = Client::connect(&server.endpoint)?
            .exchange(&discover.prepare(&server.endpoint, None, 0).bytes)?;
        millis.push(began.elapsed().as_secs_f64() * 1000.0);
        if !response.is_success() {
            return Err(format!("server/discover: status {}", response.head.status).into());
        }
        rss.push(server.rss_kib()?);
    }
    millis.sort_by(f64::total_cmp);
    rss.sort_by(f64::total_cmp);
    let middle = millis.len() / 2;
    let (Some(best), Some(worst)) = (millis.first(), millis.last()) else {
        return Err("no server was started; `--count` must be at least 1".into());
    };
    Ok(vec![
        ("median_ms".into(), millis[middle]),
        ("best_ms".into(), *best),
        ("worst_ms".into(), *worst),
        ("idle_rss_kib".into(), rss[middle]),
    ])
}
