//! Notifications that a test client receives, and subscriptions to changes.

use std::sync::Arc;

use serde_json::json;
use toolgate_wire::model::{Call, SubscriptionFilter};
use toolgate_wire::{ChangeDelivery, Meta, meta_key};

use super::TestClient;
use crate::testing::connection::{TestConnection, TestRequestHead};
#[cfg(feature = "http")]
use crate::testing::exchange::HttpExchange;
#[cfg(feature = "http")]
use crate::testing::http_client::receive_stream;
use crate::testing::request::TestCall;
use crate::testing::response::ReceivedNotification;

/// Notifications and subscriptions.
impl TestClient {
    /// Removes and returns all buffered notifications: progress, log messages, changes.
    pub fn notifications(&self) -> Vec<ReceivedNotification> {
        self.connection.get().map(|connection| connection.receiver.take_notifications()).unwrap_or_default()
    }

    /// Removes and returns the first buffered notification with this method, or waits for the next one. The prefix
    /// `notifications/` may be left out: `progress`, `message`, `tools/list_changed`.
    ///
    /// # Panics
    /// If no such notification arrives in time.
    pub async fn notification(&self, method: &str) -> ReceivedNotification {
        let Some(connection) = self.connection.get() else {
            panic!("the client has not connected; send a request first")
        };
        match connection
            .receiver
            .wait_notification(self.setup.timeout, |notification| notification.is_method(method))
            .await
        {
            Some(notification) => notification,
            None => {
                connection.receiver.resume_panic();
                let hint = if method.ends_with("_changed") || method.ends_with("updated") {
                    "; changes are only sent after `listen()` or `subscribe()`"
                } else {
                    ""
                };
                panic!(
                    "no `{method}` arrived within {:?}; received {}{hint}",
                    self.setup.timeout,
                    connection.receiver.buffered_methods()
                )
            }
        }
    }

    /// Subscribes to changes of the tool, resource and prompt lists, and waits until the server has registered it.
    ///
    /// # Panics
    /// If the server rejects the subscription.
    pub async fn listen(&self) {
        self.subscribe_filter(SubscriptionFilter {
            tools: true,
            prompts: true,
            resources: true,
            ..SubscriptionFilter::default()
        })
        .await;
    }

    /// Subscribes to changes of a resource, and waits until the server has registered it.
    ///
    /// # Panics
    /// If the server rejects the subscription.
    pub async fn subscribe(&self, uri: impl Into<String>) {
        self.subscribe_filter(SubscriptionFilter { uris: vec![uri.into()], ..SubscriptionFilter::default() })
            .await;
    }

    async fn subscribe_filter(&self, filter: SubscriptionFilter) {
        let connection = self.expect_connection().await;
        match self.setup.version.behavior().change_delivery {
            ChangeDelivery::Session => {
                #[cfg(feature = "http")]
                self.open_stream(&connection).await;
                // Without a URI a ping suffices: its response proves that the server has processed `initialized`.
                let call = filter.uris.into_iter().next().map_or(Call::Ping, |uri| Call::Subscribe { uri });
                let response = TestCall::new(self, call, |_| Some(())).await;
                response.outcome.unwrap_or_else(|error| panic!("the subscription failed: {error}"));
            }
            ChangeDelivery::Listen => self.send_listen(&connection, filter).await,
        }
    }

    async fn send_listen(&self, connection: &Arc<TestConnection>, filter: SubscriptionFilter) {
        let (call, id) = (Call::Listen(filter), connection.next_id());
        let request = TestRequestHead { id, method: call.method(), subject: None, headers: &[] };
        let params = connection.params(&call, &Meta::default());
        let subscription_id = json!(id);
        let is_acknowledgement = |notification: &ReceivedNotification| {
            notification.is_method("subscriptions/acknowledged")
                && notification.params["_meta"][meta_key::SUBSCRIPTION_ID] == subscription_id
        };
        let acknowledged = connection.receiver.wait_notification(self.setup.timeout, is_acknowledgement);
        #[cfg(feature = "http")]
        if let Some(http_client) = connection.http_client() {
            let mut exchange = http_client.post_request(&self.setup, &request, &params);
            let status = exchange.head().await.map(|head| head.status.as_u16());
            assert_eq!(status, Ok(200), "the subscription failed: {:?}", exchange.body().await);
            self.spawn_receiver(connection, exchange);
            assert!(acknowledged.await.is_some(), "the subscription was not acknowledged");
            return;
        }
        let rejection = connection.expect_response(id);
        connection.write(request.encode(&params)).await;
        tokio::select! {
            biased;
            notification = acknowledged => assert!(notification.is_some(), "the subscription was not acknowledged"),
            reply = rejection.wait(request.method) => panic!("the subscription failed: {:?}", reply.outcome),
        }
    }

    /// Opens the GET stream of a session, once.
    #[cfg(feature = "http")]
    async fn open_stream(&self, connection: &Arc<TestConnection>) {
        let Some(http_client) = connection.http_client() else { return };
        if !http_client.claim_get_stream() {
            return;
        }
        let mut exchange = http_client.get(&self.setup, None);
        let status = exchange.head().await.map(|head| head.status.as_u16());
        assert_eq!(status, Ok(200), "the subscription failed: {:?}", exchange.body().await);
        self.spawn_receiver(connection, exchange);
    }

    #[cfg(feature = "http")]
    fn spawn_receiver(&self, connection: &Arc<TestConnection>, exchange: HttpExchange) {
        let (weak, setup) = (Arc::downgrade(connection), self.setup.clone());
        connection.own_task(tokio::spawn(receive_stream(weak, setup, exchange)));
    }
}
