//! Sessions: how one begins and ends, and that they do not mix.

use crate::play;

#[tokio::test]
async fn transcripts() {
    play::play_all("session").await;
}
