//! Property: whatever calls do, and whenever their clients cancel, hang up or vanish, each has one end.

use std::time::Duration;

use proptest::prelude::*;
use toolgate::testing::{TestClient, TestVersion};

use super::{Behavior, Recorded};

/// What a client does with its call.
#[derive(Clone, Copy, Debug)]
enum Action {
    Await,
    Cancel,
    /// Stops waiting. Over HTTP, that closes the response.
    Drop,
}

#[derive(Clone, Debug)]
struct PlannedCall {
    version: usize,
    transport: usize,
    tool: &'static str,
    behavior: Behavior,
    /// How often the handler gives way before it ends.
    handler_yields: u32,
    action: Action,
    /// How often the client gives way before it acts.
    client_yields: u32,
    /// Time before the client acts, beyond the time limit of handlers at most.
    delay: Duration,
}

fn planned_call() -> impl Strategy<Value = PlannedCall> {
    let behavior = prop_oneof![
        Just(Behavior::Return),
        Just(Behavior::Fail),
        Just(Behavior::Panic),
        Just(Behavior::Wait),
    ];
    let action = prop_oneof![Just(Action::Await), Just(Action::Cancel), Just(Action::Drop)];
    let tool = prop_oneof![4 => Just("act"), 1 => Just("refuse")];
    let delay = prop_oneof![2 => Just(Duration::ZERO), 1 => (1..3000u64).prop_map(Duration::from_millis)];
    let client = (0..5usize, 0..3usize, action, 0..20u32, delay);
    (client, tool, behavior, 0..20u32).prop_map(
        |((version, transport, action, client_yields, delay), tool, behavior, handler_yields)| PlannedCall {
            version,
            transport,
            tool,
            behavior,
            handler_yields,
            action,
            client_yields,
            delay,
        },
    )
}

async fn run_call(recorded: &Recorded, clients: &[TestClient], key: u64, plan: &PlannedCall) {
    let behavior = format!("{:?}", plan.behavior).to_lowercase();
    let arguments = serde_json::json!({ "key": key, "behavior": behavior, "yields": plan.handler_yields });
    let act = async {
        for _ in 0..plan.client_yields {
            tokio::task::yield_now().await;
        }
        if !plan.delay.is_zero() {
            tokio::time::sleep(plan.delay).await;
        }
    };
    // In memory, without a version. Dropping the future is the only way to cancel.
    if plan.transport == 2 {
        let params = serde_json::json!({ "name": plan.tool, "arguments": arguments });
        let request =
            serde_json::json!({ "jsonrpc": "2.0", "id": key, "method": "tools/call", "params": params });
        let call = recorded.server.handle(request);
        match plan.action {
            Action::Await => drop(call.await),
            Action::Cancel | Action::Drop => {
                tokio::select! {
                    biased;
                    () = act => {}
                    _ = call => {}
                }
            }
        }
        return;
    }
    let client = clients[plan.version * 2 + plan.transport].clone();
    let call = client.call(plan.tool, arguments);
    match plan.action {
        Action::Await => drop(call.await),
        Action::Drop => {
            let call = call.start();
            act.await;
            drop(call);
        }
        Action::Cancel => {
            let call = call.start();
            act.await;
            // Cancelling a call that has completed is a mistake in other tests, and panics; here it is likely.
            let _ = tokio::spawn(call.cancel()).await;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn each_call_ends_once(plans in prop::collection::vec(planned_call(), 1..24), stops_early in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let recorded = std::sync::Arc::new(Recorded::new());
        runtime.block_on(async {
            let clients: Vec<_> = TestVersion::all().flat_map(|version| super::clients(&recorded.server, version)).collect();
            let calls: Vec<_> = plans.iter().cloned().enumerate().map(|(key, plan)| {
                let (recorded, clients) = (std::sync::Arc::clone(&recorded), clients.clone());
                tokio::spawn(async move { run_call(&recorded, &clients, key as u64, &plan).await })
            }).collect();
            if stops_early {
                // The calls that still run are dropped with the runtime.
                tokio::time::sleep(Duration::from_millis(500)).await;
                return;
            }
            for call in calls {
                call.await.unwrap();
            }
            drop(clients);
            recorded.wait_idle().await;
        });
        drop(runtime);
        recorded.check();
    }
}
