//! Batches, which one protocol version has.

use crate::transcript_player;

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("batch").await;
}
