//! Arrays of messages, which one revision has.

use crate::play;

#[tokio::test]
async fn transcripts() {
    play::play_all("batch").await;
}
