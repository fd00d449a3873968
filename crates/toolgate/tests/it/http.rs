//! HTTP: classification of requests, and rejections.

use crate::transcript_player;

#[tokio::test]
async fn transcripts() {
    transcript_player::play_all("http").await;
}
