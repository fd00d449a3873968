//! From the start of the process to its first answer, several times.

use std::time::Instant;

use crate::client::Client;
use crate::options::Options;
use crate::server::Server;
use crate::workload::{Era, Kind, Workload};
use crate::{Failure, Figures};

pub(crate) fn measure(options: &Options) -> Result<Figures, Failure> {
    // The one request that every server answers first.
    let discover = Workload { kind: Kind::Discover, era: Era::Modern };
    let mut millis = Vec::with_capacity(options.count);
    let mut rss = 0.0;
    for _ in 0..options.count {
        let began = Instant::now();
        let server = Server::start(options)?;
        let reply =
            Client::connect(&server.endpoint)?.exchange(&discover.ask(&server.endpoint, None, 0).bytes)?;
        millis.push(began.elapsed().as_secs_f64() * 1000.0);
        if !reply.is_success() {
            return Err(format!("server/discover: status {}", reply.head.status).into());
        }
        rss = server.rss_kib()?;
    }
    millis.sort_by(f64::total_cmp);
    let median = millis.get(millis.len() / 2).ok_or("nothing was started")?;
    Ok(vec![("median_ms", *median), ("best_ms", millis[0]), ("idle_rss_kib", rss)])
}
